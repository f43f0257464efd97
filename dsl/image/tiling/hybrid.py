"""Hybrid tiles: a warp keeps the right part of each tile in registers, and its lanes exchange pixels by shuffles.

The tile of a warp is divided along x into parts that are 32 pixels wide. Parts at the left are in shared memory. In the
other ones, each lane has a register for each row. The parts of an operator are moved to the right by as many pixels as
readers need at the right, so they are parallelograms: what a reader needs is in the same part or at the left of it. A
pixel comes from

1. a register of the same lane,
2. shared memory, if it is at the left of all registers,
3. a register of another lane, of the same part,
4. a register of another lane, of the part at the left.

The paper shuffles twice and selects where a pixel may be of type 3 or 4. Here a lane first selects the register that
the receiver needs, since only one lane reads it. Then one shuffle is enough.

Rows are computed in the order in which they are needed, so that few registers are in use at a time. Operators get the
pixels around theirs in an array with constant indices, which nvcc keeps in registers. All lanes shuffle, whatever
branches the operator has. A warp at the edge of an image computes its tile in several steps in shared memory.

Source: Jangda, Guha: Model-Based Warp Overlapped Tiling, §5 (algorithm 1, figure 7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import types as t
from ...functions import Param
from ...intrinsics import shfl_up_sync
from ...language import local
from ..groups import Group
from ..lowered import Options
from ..lowering import pixel_function
from ..operator_body import PixelFunction
from ..operators import Image, Node
from ..reach import Reach, inner_window, window_of
from .kernel import Context, GroupKernel, Tile
from .teams import WARP

__all__ = ["HybridKernel"]

_EVERY_LANE = "0xFFFFFFFF"


@dataclass(frozen=True, slots=True)
class _Around:
    """The pixels of a tile around a pixel of a reader. ``array`` is the variable with these pixels, row by row."""

    tile: Tile
    reach: Reach
    array: Param

    @property
    def width(self) -> int:
        return self.reach.left + self.reach.right + 1

    @property
    def size(self) -> int:
        return self.width * (self.reach.up + self.reach.down + 1)


class HybridKernel(GroupKernel):
    """The kernel of a group with hybrid tiles."""

    def __init__(self, group: Group, options: Options) -> None:
        super().__init__(group, options)
        self.parts = group.in_registers
        #: The columns of a thread whose tiles are in shared memory.
        self.in_shared = group.pixels[0] - group.in_registers
        self.centre = Param("centre_x", t.I32), Param("centre_y", t.I32)
        self.variables |= set(self.centre)
        #: By (reader, tile's node): the pixels around a pixel of the reader.
        self.around: dict[tuple[Node[Any], Node[Any]], _Around] = {}
        roots = [node for node in group.nodes if node in self.tiles or node in group.stored]
        for root in roots:
            for image, reach in self._windows(root).items():
                array = Param(self.arguments.reserved(f"near_{image.name}"), t.Pointer(image.pixel, const=True))
                self.around[root, image] = _Around(self.tiles[image], reach, array)
                self.variables.add(array)
        #: By (node, part, row of the tile): the variable with the pixel of the lane.
        self._registers: dict[tuple[Node[Any], int, int], str] = {}
        #: By (node, part, row of the tile, distance of the lane): the variable with the pixel that was fetched.
        self._fetched: dict[tuple[Node[Any], int, int, int], str] = {}
        #: By distance: the variable with the number of the lane at this distance.
        self._lanes: dict[int, str] = {}

    def _windows(self, root: Node[Any]) -> dict[Node[Any], Reach]:
        """By tiled node: which of its pixels are read for a pixel of ``root``, also by inline operators."""
        found: dict[Image[Any], Reach] = {root: Reach()}
        for node in reversed(self.group.nodes):
            if node not in found or (node in self.tiles and node is not root):
                continue
            for access in node.accesses:
                if window_of(access, node, self.options) is not None:
                    reach = found[node].around(inner_window(access, node))
                    found[access.image] = found[access.image].with_(reach) if access.image in found else reach
        return {node: found[node] for node in self.tiles if node in found and node is not root}

    def words(self) -> dict[str, object]:
        return {"local": local, "shfl_up_sync": shfl_up_sync}

    # --- versions ----------------------------------------------------------------------------------------------

    def checked_version(self) -> list[str]:
        """The tile in steps, each as wide as the tiles in shared memory."""
        context, columns = Context(inner=False), max(1, self.in_shared)
        body = [*self.places(f" + part * {WARP}"), *self.fills(context)]
        body += [*self.results(context, columns, "part"), self.wait]
        return [f"for part in range(0, {self.group.pixels[0]}, {columns}):", *(f"    {line}" for line in body)]

    def inner_version(self) -> list[str]:
        context = Context(inner=True)
        lines = [*self.places(), *self.fills(context, 0 if self.in_shared else WARP)]
        if self.in_shared:
            lines += self.results(context, self.in_shared)
        for each in self.around.values():
            lines.append(f"{each.array.name} = local({each.tile.node.pixel}, {each.size})")
        return lines + self._rows()

    def _rows(self) -> list[str]:
        """The part of the tile in registers, in an order of rows in which few registers are in use at a time."""
        tall, tiles = self.group.pixels[1], list(self.tiles.values())
        lines: list[str] = []
        # Without tiles, results are the only rows: everything that is tiled is read by far accesses only.
        first = min((-tile.reach.up - tile.reach.down for tile in tiles), default=0)
        for step in range(first, tall):
            for tile in tiles:
                row = step + tile.reach.down
                if -tile.reach.up <= row < tall + tile.reach.down:
                    for part in range(self.parts):
                        lines += self._register(tile, part, row)
            if step >= 0:
                for part in range(self.parts):
                    lines += self._stored_pixels(part, step)
        return lines

    def _register(self, tile: Tile, part: int, row: int) -> list[str]:
        """Compute the pixel of a tile that each lane keeps. Rows are counted from the first row of the results."""
        lines = self._surroundings(tile.node, part, row, tile.reach.right)
        name = self.arguments.reserved(f"{tile.node.name}_{part}_{row + tile.reach.up}")
        value = self.call(self.pixel(tile.node, Context(inner=True, root=tile.node)), "centre_x", "centre_y")
        self._registers[tile.node, part, row + tile.reach.up] = name
        return [*lines, f"{name} = {value}"]

    def _stored_pixels(self, part: int, row: int) -> list[str]:
        """Compute the pixel of each result, and store it."""
        first = self.group.stored[0]
        width = self.use(self.arguments.width(first, first.name))
        lines: list[str] = []
        for node in self.group.stored:
            if node in self.tiles:
                tile = self.tiles[node]
                lines += self._centre(part, row, 0)
                more, value = self._fetch(tile, part, row + tile.reach.up, -tile.reach.right)
                lines += more
            else:
                lines += self._surroundings(node, part, row, 0)
                value = self.call(self.pixel(node, Context(inner=True, root=node)), "centre_x", "centre_y")
            lines.append(f"{self.output(node)}[centre_y * {width} + centre_x] = {value}")
        return lines

    def _centre(self, part: int, row: int, moved: int) -> list[str]:
        across = f"{(self.in_shared + part) * WARP + moved}"
        return [f"centre_x = first_x + local_x + {across}", f"centre_y = first_y + {row}".replace("+ -", "- ")]

    # --- pixels of tiles ---------------------------------------------------------------------------------------

    def _surroundings(self, root: Node[Any], part: int, row: int, moved: int) -> list[str]:
        """Get the pixels of tiles around a pixel of ``root``, which is in a part that is ``moved`` to the right."""
        lines = self._centre(part, row, moved)
        for (reader, _), around in self.around.items():
            if reader is not root:
                continue
            tile, reach, index = around.tile, around.reach, 0
            for dy in range(-reach.up, reach.down + 1):
                for dx in range(-reach.left, reach.right + 1):
                    more, value = self._fetch(tile, part, row + dy + tile.reach.up, moved + dx - tile.reach.right)
                    lines += [*more, f"{around.array.name}[{index}] = {value}"]
                    index += 1
        return lines

    def _fetch(self, tile: Tile, part: int, row: int, distance: int) -> tuple[list[str], str]:
        """The statements that get the pixel that is ``distance`` lanes to the right of a part, and the variable with
        it. The distance is at most 0."""
        assert distance <= 0
        whole, lanes = divmod(-distance, WARP)
        source = part - whole
        if lanes == 0 and source >= 0:
            return [], self._registers[tile.node, source, row]
        key = tile.node, part, row, distance
        if key in self._fetched:
            return [], self._fetched[key]
        self._fetched[key] = name = self.arguments.reserved(f"{tile.node.name}_{part}_{row}_{-distance}_left")
        start = self.in_shared * WARP + tile.reach.left + tile.reach.right + part * WARP + distance
        in_tile = f"{tile.array.name}[local_x + {row * tile.width + start}]"
        if source < 0:
            return [f"{name} = {in_tile}"], name
        own = self._registers[tile.node, source, row]
        if source == 0:
            shuffle = f"{name} = shfl_up_sync({_EVERY_LANE}, {own}, {lanes})"
            return [shuffle, f"if local_x < {lanes}:", f"    {name} = {in_tile}"], name
        lines: list[str] = []
        if lanes not in self._lanes:
            self._lanes[lanes] = self.arguments.reserved(f"lane_{lanes}_left")
            lines.append(f"{self._lanes[lanes]} = (local_x + {WARP - lanes}) & {WARP - 1}")
        left = self._registers[tile.node, source - 1, row]
        given = f"{own} if local_x < {WARP - lanes} else {left}"
        return [*lines, f"{name} = shfl_sync({_EVERY_LANE}, {given}, {self._lanes[lanes]})"], name

    def stored(self, tile: Tile, context: Context) -> PixelFunction:
        if context.root is None:
            return self.read_of_tile(tile)
        around = self.around[context.root, tile.node]
        name = self.arguments.reserved(f"read_{around.array.name}")
        x, y = (f"{axis} - {centre.name}" for axis, centre in zip("xy", self.centre, strict=True))
        index = f"({y} + {around.reach.up}) * {around.width} + ({x} + {around.reach.left})".replace("+ -", "- ")
        taken = (around.array, *self.centre)
        return pixel_function(name, taken, tile.node.pixel, [f"return {around.array.name}[{index}]"], {})
