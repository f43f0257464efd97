"""The kernel of a group of operators: overlapped tiles in shared memory, and operators that are computed where they are
read.

An index outside of an intermediate image is exchanged for the one that the boundary of its reader gives, and the
operator is computed there. So every operator is computed at pixels of its image only, as if the image were stored. The
exchanged pixel is in the tile, too, if it is near the pixel of the reader (`groups.window_of`). Otherwise the operator
is computed again from images in global memory, together with everything that it needs.

A team of threads computes a tile: a block, or a warp (`tiling.teams`). A team whose tiles are inside of all images (an
inner team) runs a version of the code without any check.

Sources: Qiao, thesis, §3.6.3 (index exchange); Jangda, Guha: Model-Based Warp Overlapped Tiling, §2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .. import types as t
from ..errors import DslError
from ..functions import Param
from ..intrinsics import syncthreads, syncwarp
from ..kernel import kernel_from_text
from ..language import shared, unroll
from .borders import MAP_NAMES, Checks
from .global_operators import GlobalNode
from .graph import Graph
from .groups import Group, Plan, Reach, window_of
from .lowered import Launch, Lowered, Options
from .lowering import (
    MOST_ROWS,
    Arguments,
    checks_of,
    load_function,
    mapped,
    named_launches,
    pixel_function,
    region,
    words_of,
)
from .operator_body import PixelFunction
from .operators import Access, Image, Node
from .reduction_lowering import global_launch
from .sizes import ceil_div, smallest

__all__ = ["group_launch", "lower_plan"]

_NO_CHECKS = Checks(False, False), Checks(False, False)
_VARIABLES = (
    *("x", "y", "value", "outside", "first_x", "first_y", "local_x", "local_y", "thread", "team"),
    *("i", "j", "k", "inner", "out_x", "out_y"),
)


@dataclass(frozen=True, slots=True)
class _Context:
    """Where a pixel function is used. ``inner``: in a team whose tiles are inside of all images. ``far``: below an
    access of pixels that are not near, so that tiles cannot be read."""

    inner: bool
    far: bool = False


@dataclass(frozen=True, slots=True)
class _Tile:
    """The tile of a node in shared memory. ``array``, ``x`` and ``y`` are variables of the kernel: the array, and the
    coordinates of its first pixel in the image."""

    node: Node[Any]
    reach: Reach
    width: int
    height: int
    array: Param
    x: Param
    y: Param


class _Kernel:
    """The kernel of a group that is being made."""

    def __init__(self, group: Group, options: Options) -> None:
        self.group, self.options, self.team = group, options, group.team
        self.inside = set(group.nodes)
        self.arguments = Arguments(*MAP_NAMES, *_VARIABLES, "shared", "syncthreads", "syncwarp", "unroll")
        self.reaches = group.reaches(options)
        self.tiles = {node: self._tile(node) for node in group.nodes if node in group.tiled and node in self.reaches}
        self.variables = {param for tile in self.tiles.values() for param in (tile.array, tile.x, tile.y)}
        #: By (node, context): the function of (x, y) in the image that computes its pixel.
        self._pixels: dict[tuple[Node[Any], _Context], PixelFunction] = {}
        #: By (access, number of its reader, context): the function that reads it.
        self._sources: dict[tuple[int, _Context], PixelFunction] = {}
        #: The pixel functions and the parameters that the text of the kernel mentions.
        self.functions: dict[str, PixelFunction] = {}
        self.params: dict[Param, None] = {}

    # --- pixel functions ---------------------------------------------------------------------------------------

    def _tile(self, node: Node[Any]) -> _Tile:
        reach = self.reaches[node]
        width, height = self.group.tile_shape(reach)
        word = f"tile_{node.name}"
        names = [self.arguments.reserved(name) for name in (word, f"{word}_x", f"{word}_y")]
        array = Param(names[0], t.Pointer(node.pixel, const=True))
        return _Tile(node, reach, width, height, array, Param(names[1], t.I32), Param(names[2], t.I32))

    def source(self, access: Access, reader: Node[Any], context: _Context) -> PixelFunction:
        """The function that reads an access of ``reader`` at any index."""
        key = id(access), context
        if key not in self._sources:
            self._sources[key] = self._source(access, reader, context)
        return self._sources[key]

    def _source(self, access: Access, reader: Node[Any], context: _Context) -> PixelFunction:
        image, name = access.image, self.arguments.reserved(f"load_{access.param.name}")
        is_near = not context.far and window_of(access, reader, self.options) is not None
        checks = _NO_CHECKS if is_near and context.inner else checks_of(access, reader, self.options)
        if not isinstance(image, Node) or image not in self.inside:
            return load_function(access, checks, self.arguments, name)
        if is_near and image in self.tiles:
            stored = self._read_of_tile(self.tiles[image])
        else:
            stored = self.pixel(image, context if is_near else _Context(inner=False, far=True))
        return mapped(access, checks, stored, self.arguments, name)

    def _read_of_tile(self, tile: _Tile) -> PixelFunction:
        """The function that reads a pixel of the image from its tile."""
        name = self.arguments.reserved(f"read_{tile.array.name}")
        element = f"{tile.array.name}[(y - {tile.y.name}) * {tile.width} + (x - {tile.x.name})]"
        return pixel_function(name, (tile.array, tile.x, tile.y), tile.node.pixel, [f"return {element}"], {})

    def pixel(self, node: Node[Any], context: _Context) -> PixelFunction:
        """The function that computes a pixel of a node for its coordinates in the image."""
        if (node, context) not in self._pixels:
            self._pixels[node, context] = self._pixel(node, context)
        return self._pixels[node, context]

    def _pixel(self, node: Node[Any], context: _Context) -> PixelFunction:
        loads = {access.param.name: self.source(access, node, context) for access in node.accesses}
        space, name = node.space, self.arguments.reserved(f"{node.operator.name}_at")
        at = region(node, loads, self.arguments, name)
        if not space.x0 and not space.y0:
            return at
        x0 = self.arguments.integer(f"{node.name}_x0", space.x0)
        y0 = self.arguments.integer(f"{node.name}_y0", space.y0)
        values = ", ".join([f"x + {x0.name}", f"y + {y0.name}", *(param.name for param in at.params)])
        moved = self.arguments.reserved(f"{node.operator.name}_in_image")
        params = [*at.params, *(param for param in (x0, y0) if param not in at.params)]
        return pixel_function(moved, params, node.pixel, [f"return {name}({values})"], {name: at.function})

    # --- text --------------------------------------------------------------------------------------------------

    def _use(self, param: Param) -> str:
        """A parameter of the kernel; its name."""
        self.params[param] = None
        return param.name

    def _call(self, function: PixelFunction, x: str, y: str) -> str:
        self.functions[function.function.name] = function
        for param in function.params:
            if param not in self.variables:
                self._use(param)
        return f"{function.function.name}({', '.join([x, y, *(param.name for param in function.params)])})"

    def _fill(self, tile: _Tile, context: _Context) -> list[str]:
        """Compute the pixels of a tile."""
        node = tile.node
        store = f"{tile.array.name}[i] = {self._call(self.pixel(node, context), 'x', 'y')}"
        body = [f"x = {tile.x.name} + i % {tile.width}", f"y = {tile.y.name} + i // {tile.width}"]
        if context.inner:
            body.append(store)
        else:
            width = self._use(self.arguments.width(node, node.name))
            height = self._use(self.arguments.height(node, node.name))
            body += [f"if x >= 0 and x < {width} and y >= 0 and y < {height}:", f"    {store}"]
        head = f"for i in range(thread, {tile.width * tile.height}, {self.team.size}):"
        return [head, *(f"    {line}" for line in body)]

    def _results(self, context: _Context) -> list[str]:
        """Compute and store the pixels of the results."""
        pixels_x, pixels_y = self.group.pixels
        first = self.group.stored[0]
        width = self._use(self.arguments.width(first, first.name))
        stores: list[str] = []
        for node in self.group.stored:
            out = self._use(self.arguments.output(node, f"out_{node.name}"))
            stores.append(
                f"{out}[out_y * {width} + out_x] = {self._call(self._result(node, context), 'out_x', 'out_y')}"
            )
        body = [
            "out_x = first_x + local_x" + (f" + j * {self.team.threads[0]}" if pixels_x > 1 else ""),
            "out_y = first_y + local_y" + (f" * {pixels_y} + k" if pixels_y > 1 else ""),
        ]
        if context.inner:
            body += stores
        else:
            height = self._use(self.arguments.height(first, first.name))
            body += [f"if out_x < {width} and out_y < {height}:", *(f"    {store}" for store in stores)]
        for variable, count in (("j", pixels_x), ("k", pixels_y)):
            if count > 1:
                body = [f"for {variable} in unroll(range({count})):", *(f"    {line}" for line in body)]
        return body

    def _result(self, node: Node[Any], context: _Context) -> PixelFunction:
        return self._read_of_tile(self.tiles[node]) if node in self.tiles else self.pixel(node, context)

    def _version(self, context: _Context) -> list[str]:
        """All tiles and results, with a barrier before a tile that was filled is read."""
        lines: list[str] = []
        wait = "syncthreads()" if self.group.kind == "block" else "syncwarp()"
        filled: set[Param] = set()
        for tile in self.tiles.values():
            if any(param in filled for param in self.pixel(tile.node, context).params):
                lines.append(wait)
                filled.clear()
            lines += self._fill(tile, context)
            filled.add(tile.array)
        if any(param in filled for node in self.group.stored for param in self._result(node, context).params):
            lines.append(wait)
        return lines + self._results(context)

    def _inner_test(self) -> str:
        """Whether all that near accesses read, and all tiles, are inside of the images."""
        (tile_x, tile_y), first = self.group.tile, self.group.stored[0]
        images = [*self.reaches]
        assert first in images
        left = max(self.reaches[image].left for image in images)
        up = max(self.reaches[image].up for image in images)
        last_x = smallest(*(image.width - (tile_x + self.reaches[image].right) for image in images))
        last_y = smallest(*(image.height - (tile_y + self.reaches[image].down) for image in images))
        x = self._use(self.arguments.integer("inner_x", last_x))
        y = self._use(self.arguments.integer("inner_y", last_y))
        return f"first_x >= {left} and first_x <= {x} and first_y >= {up} and first_y <= {y}"

    def _has_inner_version(self) -> bool:
        """Whether some block does more than guard its stores."""
        accesses = [(access, node) for node in self.group.nodes for access in node.accesses if node in self.reaches]
        near = [(access, node) for access, node in accesses if window_of(access, node, self.options) is not None]
        return bool(self.tiles) or any(any(checks_of(access, node, self.options)) for access, node in near)

    def launch(self, name: str) -> Launch:
        group = self.group
        lines = self.team.lines(group.tile)
        lines += [f"thread = {self.team.thread}"] if self.tiles else []
        lines += [f"team = {self.team.number}"] if self.tiles and self.team.teams > 1 else []
        for tile in self.tiles.values():
            lines += self._allocate(tile)
            lines.append(f"{tile.x.name} = first_x - {tile.reach.left}".replace("- -", "+ "))
            lines.append(f"{tile.y.name} = first_y - {tile.reach.up}".replace("- -", "+ "))
        checked = self._version(_Context(inner=False))
        if self._has_inner_version():
            lines += [f"if {self._inner_test()}:", *(f"    {line}" for line in self._version(_Context(inner=True)))]
            lines += ["else:", *(f"    {line}" for line in checked)]
        else:
            lines += checked
        params = list(self.params)
        head = f"def {name}({', '.join(f'{param.name}: {param.type}' for param in params)}) -> None:"
        text = "\n".join([head, *(f"    {line}" for line in lines)]) + "\n"
        kernel = kernel_from_text(text, self._names(params), file=f"<{name}>", arithmetic=self.options.arithmetic)
        arguments = self.arguments.of(params)
        return Launch(kernel, _grid_of(group), group.block, arguments, group.nodes, (f"group: {group}",))

    def _allocate(self, tile: _Tile) -> list[str]:
        """The array of a tile in shared memory. Each team has its own part."""
        word, size, array = tile.node.pixel.name, tile.width * tile.height, tile.array.name
        if self.team.teams == 1:
            return [f"{array} = shared({word}, {size})"]
        whole = self.arguments.reserved(f"{array}s")
        return [f"{whole} = shared({word}, {size * self.team.teams})", f"{array} = {whole} + team * {size}"]

    def _names(self, params: Sequence[Param]) -> dict[str, object]:
        pixels = [Param(tile.array.name, t.Pointer(tile.node.pixel)) for tile in self.tiles.values()]
        return {
            **words_of(self.group.stored[0].pixel, [*params, *pixels]),
            **{name: function.function for name, function in self.functions.items()},
            "shared": shared,
            "syncthreads": syncthreads,
            "syncwarp": syncwarp,
            "unroll": unroll,
        }


def _grid_of(group: Group) -> tuple[int, int]:
    """The blocks of a group. Raises `DslError` if they are too many."""
    first, tile, count = group.stored[0], group.tile, group.team.count
    grid = ceil_div(first.width, tile[0] * count[0]), ceil_div(first.height, tile[1] * count[1])
    if grid[1] > MOST_ROWS:
        rows = f"{first.name} needs {int(grid[1])} rows of tiles"
        raise DslError(f"{rows}, and a grid has at most {MOST_ROWS}: choose a higher tile", first.place)
    return grid


def group_launch(group: Group, name: str, options: Options) -> Launch:
    """The kernel of a group, called ``name``. Raises `DslError` if there is none."""
    group.check(options)
    return _Kernel(group, options).launch(name)


def lower_plan(plan: Plan, options: Options, lowering: str) -> Lowered:
    """One launch for each group of a plan. Raises `DslError` if the plan is not legal."""
    plan.check(options)

    def made(group: Group, name: str) -> Launch:
        (first, *_) = group.nodes
        return (
            global_launch(first, name, lowering, options)
            if isinstance(first, GlobalNode)
            else group_launch(group, name, options)
        )

    makers: list[tuple[str, Callable[[str], Launch]]] = [(_word(group), partial(made, group)) for group in plan.groups]
    again: Callable[[Graph], Lowered] = lambda other: lower_plan(plan.on(other), options, lowering)  # noqa: E731
    return Lowered(plan.graph, lowering, options, named_launches(makers), again)


def _word(group: Group) -> str:
    """The first part of the name of a group's kernel."""
    last: Image[Any] = group.nodes[-1]
    assert isinstance(last, Node)
    return last.operator.name if len(group.nodes) == 1 else f"{last.operator.name}_group"
