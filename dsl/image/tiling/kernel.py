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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ... import types as t
from ...functions import Param
from ...intrinsics import shfl_sync, syncthreads, syncwarp
from ...kernel import GeneratedKernel
from ...language import shared, unroll
from ..borders import MAP_NAMES, Checks
from ..groups import Group, Reach, window_of
from ..lowered import KernelArgument, Options
from ..lowering import (
    Arguments,
    checks_of,
    constant_of,
    kernel_for,
    load_function,
    mapped,
    pixel_function,
    region,
    words_of,
)
from ..operator_body import Centre, PixelFunction
from ..operators import Access, Node
from ..sizes import smallest
from .padding import Reads
from .rows import equal_rows, keeps_row, shares_rows
from .strips import Strips, strips_of

__all__ = ["Context", "GroupKernel", "Tile"]

_NO_CHECKS = Checks(False, False), Checks(False, False)
_VARIABLES = (
    *("x", "y", "value", "outside", "first_x", "first_y", "local_x", "local_y", "thread", "team"),
    *("i", "j", "k", "part", "near_x", "near_y", "out_x", "out_y", "centre_x", "centre_y"),
    *("step", "row", "next_row", "column", "lane_x", "loaded", "last_place", "other_row", "other_place"),
)
#: The words of the language that the text of a kernel may mention.
_WORDS = (
    *("local", "shared", "shfl_sync", "shfl_up_sync", "shfl_down_sync", "syncthreads", "syncwarp", "unroll"),
    *("addr", "pointer_cast", "uint2", "uint4"),
)


@dataclass(frozen=True, slots=True)
class Context:
    """Where a pixel function is used. ``inner``: in a team whose tiles are inside of all images. ``far``: below an
    access of pixels that are not near, so that tiles cannot be read. ``root``: the operator whose pixel is computed, if
    its tiles are read from an array of the pixels around it (`hybrid`). ``rows``: in the row of a thread that the
    kernel is computing (`rows`)."""

    inner: bool
    far: bool = False
    root: Node[Any] | None = None
    rows: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile of a node in shared memory. ``array``, ``x`` and ``y`` are variables of the kernel: the array, and the
    coordinates of its first pixel in the image. Rows are ``pitch`` pixels apart."""

    node: Node[Any]
    reach: Reach
    width: int
    height: int
    pitch: int
    array: Param
    x: Param
    y: Param


class GroupKernel:
    """The kernel of a group that is being made."""

    def __init__(self, group: Group, options: Options) -> None:
        self.group, self.options, self.team = group, options, group.team
        self.inside = set(group.nodes)
        self.is_unrolled = group.is_unrolled(options)
        self.rows_of_strip = group.rows_of_strip(options)
        self.arguments = Arguments(*MAP_NAMES, *_VARIABLES, *_WORDS, shared_sizes=True)
        self.reaches = group.reaches(options)
        self.pitches = group.pitches(options)
        self.tiles = {node: self._tile(node) for node in group.nodes if node in group.tiled and node in self.reaches}
        self.reads = Reads(group.nodes, options, frozenset(self.tiles))
        self.shares_rows = shares_rows(group)
        #: By name: maps of boundaries and constants that the text of the kernel mentions.
        self.maps: dict[str, object] = {}
        self.variables = {param for tile in self.tiles.values() for param in (tile.array, tile.x, tile.y)}
        #: By (node, context): the function of (x, y) in the image that computes its pixel.
        self._pixels: dict[tuple[Node[Any], Context], PixelFunction] = {}
        #: By (access, number of its reader, context): the function that reads it.
        self._sources: dict[tuple[int, Context], PixelFunction] = {}
        #: The pixel functions and the parameters that the text of the kernel mentions.
        self.functions: dict[str, PixelFunction] = {}
        self.params: dict[Param, None] = {}
        #: By pitch: the variable with the place of a strip.
        self._places: dict[int, str] = {}
        #: By how many rows of a thread have the same centre: the variable with the first of them (`rows`).
        self._first_rows: dict[int, Param] = {}

    # --- pixel functions ---------------------------------------------------------------------------------------

    def _tile(self, node: Node[Any]) -> Tile:
        reach = self.reaches[node]
        width, height = self.group.tile_shape(reach)
        word = f"tile_{node.name}"
        names = [self.arguments.reserved(name) for name in (word, f"{word}_x", f"{word}_y")]
        array = Param(names[0], t.Pointer(node.pixel, const=True))
        return Tile(
            node, reach, width, height, self.pitches[node], array, Param(names[1], t.I32), Param(names[2], t.I32)
        )

    def source(self, access: Access, reader: Node[Any], context: Context) -> PixelFunction:
        """The function that reads an access of ``reader`` at any index."""
        key = id(access), context
        if key not in self._sources:
            self._sources[key] = self._source(access, reader, context)
        return self._sources[key]

    def _source(self, access: Access, reader: Node[Any], context: Context) -> PixelFunction:
        image, name = access.image, self.arguments.reserved(f"load_{access.param.name}")
        is_near = not context.far and window_of(access, reader, self.options) is not None
        checks = _NO_CHECKS if is_near and context.inner else checks_of(access, reader, self.options)
        if is_near and self.reads.is_padded(access, reader):
            checks = _NO_CHECKS
        if not isinstance(image, Node) or image not in self.inside:
            return load_function(access, checks, self.arguments, name)
        if is_near and image in self.tiles:
            stored = self.stored(self.tiles[image], context)
        else:
            below = replace(context, rows=context.rows and keeps_row(access, reader))
            stored = self.pixel(image, below if is_near else Context(inner=False, far=True))
        return mapped(access, checks, stored, self.arguments, name)

    def stored(self, tile: Tile, context: Context) -> PixelFunction:
        """The function that reads a pixel of a tile."""
        return self.read_of_tile(tile)

    def read_of_tile(self, tile: Tile) -> PixelFunction:
        """The function that reads a pixel of the image from its tile."""
        name = self.arguments.reserved(f"read_{tile.array.name}")
        element = f"{tile.array.name}[(y - {tile.y.name}) * {tile.pitch} + (x - {tile.x.name})]"
        return pixel_function(name, (tile.array, tile.x, tile.y), tile.node.pixel, [f"return {element}"], {})

    def pixel(self, node: Node[Any], context: Context) -> PixelFunction:
        """The function that computes a pixel of a node for its coordinates in the image."""
        if (node, context) not in self._pixels:
            self._pixels[node, context] = self._pixel(node, context)
        return self._pixels[node, context]

    def _pixel(self, node: Node[Any], context: Context) -> PixelFunction:
        loads = {access.param.name: self.source(access, node, context) for access in node.accesses}
        space, name = node.space, self.arguments.reserved(f"{node.operator.name}_at")
        rows = self._first_row if context.rows and not space.y0 else None
        at = region(node, loads, self.arguments, name, unrolled=self.is_unrolled, rows=rows)
        if not space.x0 and not space.y0:
            return at
        # Where pixels around the root are read, offsets have to be constants.
        taken = () if context.root is not None else self._origin(node)
        x0, y0 = (param.name for param in taken) if taken else (int(space.x0), int(space.y0))
        values = ", ".join([f"x + {x0}", f"y + {y0}", *(param.name for param in at.params)]).replace("+ -", "- ")
        moved = self.arguments.reserved(f"{node.operator.name}_in_image")
        params = [*at.params, *(param for param in taken if param not in at.params)]
        return pixel_function(moved, params, node.pixel, [f"return {name}({values})"], {name: at.function})

    def _first_row(self, centre: Centre) -> Param | None:
        """The variable with the first row of a thread that has the same centre as the present one. None if there is no
        other such row."""
        count = equal_rows(centre, self.group.pixels[1])
        if count == 1:
            return None
        if count not in self._first_rows:
            self._first_rows[count] = Param(self.arguments.reserved(f"first_of_{count}_rows"), t.I32)
            self.variables.add(self._first_rows[count])
        return self._first_rows[count]

    def _origin(self, node: Node[Any]) -> tuple[Param, Param]:
        """The coordinates of the first pixel of a node."""
        x0 = self.arguments.integer(f"{node.name}_x0", node.space.x0)
        return x0, self.arguments.integer(f"{node.name}_y0", node.space.y0)

    # --- text --------------------------------------------------------------------------------------------------

    def use(self, param: Param) -> str:
        """A parameter of the kernel; its name."""
        self.params[param] = None
        return param.name

    def call(self, function: PixelFunction, x: str, y: str) -> str:
        """A call of a pixel function at ``(x, y)``, whose parameters become parameters of the kernel."""
        self.functions[function.function.name] = function
        for param in function.params:
            if param not in self.variables:
                self.use(param)
        return f"{function.function.name}({', '.join([x, y, *(param.name for param in function.params)])})"

    def _fill(self, tiles: Sequence[Tile], context: Context, width: int) -> list[str]:
        """Compute the first ``width`` columns of tiles of one shape, whose pixels do not need each other. In an inner
        team, each thread computes strips."""
        first = tiles[0]
        if context.inner:
            strips = strips_of(width, first.height, self.team.size, self.rows_of_strip)
            return self._fill_strips(tiles, context, width, strips)
        column, row = f"i % {width}", f"i // {width}"
        is_whole = all(tile.pitch == width for tile in tiles)
        index = "i" if is_whole else "({row}) * {pitch} + {column}"
        body = [f"x = {first.x.name} + {column}", f"y = {first.y.name} + {row}"]
        for tile in tiles:
            value = self.call(self.pixel(tile.node, context), "x", "y")
            place = index.format(row=row, pitch=tile.pitch, column=column)
            body += [f"if {self._is_inside(tile)}:", f"    {tile.array.name}[{place}] = {value}"]
        return [f"for i in range(thread, {width * first.height}, {self.team.size}):", *(f"    {line}" for line in body)]

    def _is_inside(self, tile: Tile) -> str:
        """The test whether the pixel (x, y) is in the image of a tile."""
        width = self.use(self.arguments.width(tile.node, tile.node.name))
        height = self.use(self.arguments.height(tile.node, tile.node.name))
        return f"x >= 0 and x < {width} and y >= 0 and y < {height}"

    def _fill_strips(self, tiles: Sequence[Tile], context: Context, width: int, strips: Strips) -> list[str]:
        first, total = tiles[0], width * strips.count
        body = [f"x = {first.x.name} + i % {width}", f"y = {first.y.name} + i // {width} * {strips.rows}"]
        for pitch in dict.fromkeys(tile.pitch for tile in tiles):
            body.append(f"{self._place(pitch)} = i // {width} * {pitch * strips.rows} + i % {width}")
        body += self._rows_of_strip(tiles, context, range(strips.last))
        if strips.last < strips.rows:
            rest = self._rows_of_strip(tiles, context, range(strips.last, strips.rows))
            body += [f"if i < {width * (strips.count - 1)}:", *(f"    {line}" for line in rest)]
        return [f"for i in range(thread, {total}, {self.team.size}):", *(f"    {line}" for line in body)]

    def _rows_of_strip(self, tiles: Sequence[Tile], context: Context, rows: Sequence[int]) -> list[str]:
        """Compute some pixels of a strip, and store them when all of them are computed."""
        values: list[str] = []
        stores: list[str] = []
        for tile in tiles:
            function = self.pixel(tile.node, context)
            for row in rows:
                name = self.arguments.reserved(f"{tile.node.name}_{row}")
                values.append(f"{name} = {self.call(function, 'x', f'y + {row}' if row else 'y')}")
                stores.append(f"{tile.array.name}[{self._place(tile.pitch)} + {row * tile.pitch}] = {name}")
        return [*values, *stores]

    def _place(self, pitch: int) -> str:
        """The variable with the place of a strip in tiles of this pitch."""
        if pitch not in self._places:
            self._places[pitch] = self.arguments.reserved(f"place_{pitch}")
        return self._places[pitch]

    def _pad(self, tile: Tile) -> list[str]:
        """Give the places of a tile outside of the image the pixels that its boundary has there."""
        boundary, (x, y) = self.reads.boundaries[tile.node], (tile.x.name, tile.y.name)
        head = f"for i in range(thread, {tile.width * tile.height}, {self.team.size}):"
        column, row = f"i % {tile.width}", f"i // {tile.width}"
        place = f"{tile.array.name}[({row}) * {tile.pitch} + {column}]"
        body = [f"x = {x} + {column}", f"y = {y} + {row}"]
        if boundary.is_index_map:
            index_map = Checks(far=True).map(boundary)
            assert index_map is not None
            self.maps[index_map.name] = index_map
            width = self.use(self.arguments.width(tile.node, tile.node.name))
            height = self.use(self.arguments.height(tile.node, tile.node.name))
            copied = f"{tile.array.name}[(near_y - {y}) * {tile.pitch} + near_x - {x}]"
            in_x = f"near_x >= {x} and near_x < {x} + {tile.width}"
            pad = [
                f"near_x = {index_map.name}(x, {width})",
                f"near_y = {index_map.name}(y, {height})",
                f"if {in_x} and near_y >= {y} and near_y < {y} + {tile.height}:",
                f"    {place} = {copied}",
            ]
        else:
            value, names = constant_of(boundary, tile.node.pixel, f"outside_{tile.node.name}")
            self.maps |= names
            pad = [f"{place} = {value}"]
        body += [f"if not ({self._is_inside(tile)}):", *(f"    {line}" for line in pad)]
        return [head, *(f"    {line}" for line in body)]

    def stores(self, context: Context, x: str, y: str) -> list[str]:
        """Compute and store the results at a pixel."""
        width = self.use(self.arguments.width(self.group.stored[0], self.group.stored[0].name))
        return [
            f"{self.output(node)}[{y} * {width} + {x}] = {self.call(self._result(node, context), x, y)}"
            for node in self.group.stored
        ]

    def output(self, node: Node[Any]) -> str:
        """The parameter for the pixels of a result."""
        return self.use(self.arguments.output(node, f"out_{node.name}"))

    def results(self, context: Context, columns: int, start: str = "") -> list[str]:
        """Compute and store the pixels of the results in some columns of the team's tile: ``columns`` for each thread,
        from column ``start`` of the thread on. In a team that is not inner, columns that the tile does not have are
        left out."""
        (pixels_x, pixels_y), across = self.group.pixels, self.team.threads[0]
        column = " + ".join([*([start] if start else []), *(["j"] if columns > 1 else [])])
        body = [
            "out_x = first_x + local_x" + (f" + ({column}) * {across}" if column else ""),
            "out_y = first_y + local_y" + (f" * {pixels_y} + k" if pixels_y > 1 else ""),
        ]
        stores = self.stores(replace(context, rows=context.inner and self.shares_rows), "out_x", "out_y")
        if context.inner:
            body += [
                f"{first.name} = first_y + local_y * {pixels_y} + k // {count} * {count}"
                for count, first in self._first_rows.items()
            ]
            body += stores
        else:
            first = self.group.stored[0]
            width = self.use(self.arguments.width(first, first.name))
            height = self.use(self.arguments.height(first, first.name))
            in_tile = f"{column} < {pixels_x} and " if start and pixels_x % columns else ""
            body += [f"if {in_tile}out_x < {width} and out_y < {height}:", *(f"    {store}" for store in stores)]
        for variable, count in (("j", columns), ("k", pixels_y)):
            if count > 1:
                body = [f"for {variable} in unroll(range({count})):", *(f"    {line}" for line in body)]
        return body

    def _result(self, node: Node[Any], context: Context) -> PixelFunction:
        return self.stored(self.tiles[node], context) if node in self.tiles else self.pixel(node, context)

    @property
    def wait(self) -> str:
        """The statement that waits for all threads of the team."""
        return "syncthreads()" if self.group.kind == "block" else "syncwarp()"

    def fills(self, context: Context, less: int = 0) -> list[str]:
        """Compute all tiles except for their last ``less`` columns, with a barrier before a tile that was filled is
        read."""
        lines: list[str] = []
        pending: list[Tile] = []
        for tile in self.tiles.values():
            arrays = {each.array for each in pending}
            if any(param in arrays for param in self.pixel(tile.node, context).params):
                lines += self._filled(pending, context, less)
                pending = []
            if tile.width > less:
                pending.append(tile)
        return [*lines, *self._filled(pending, context, less)]

    def _filled(self, tiles: Sequence[Tile], context: Context, less: int) -> list[str]:
        """Compute tiles that do not need each other, and wait for them."""
        #: By reach, which also gives the shape and the place: the tiles.
        alike: dict[Reach, list[Tile]] = {}
        for tile in tiles:
            alike.setdefault(tile.reach, []).append(tile)
        lines = [line for each in alike.values() for line in self._fill(each, context, each[0].width - less)]
        padded = [] if context.inner else [tile for tile in tiles if tile.node in self.reads.boundaries]
        if padded:
            lines += [self.wait, *(line for tile in padded for line in self._pad(tile))]
        return [*lines, self.wait] if lines else lines

    def checked_version(self) -> list[str]:
        """The code of a team whose tiles may be partly outside of images."""
        context = Context(inner=False)
        return [*self.places(), *self.fills(context), *self.results(context, self.group.pixels[0])]

    def inner_version(self) -> list[str]:
        """The code of a team whose tiles are inside of all images."""
        context = Context(inner=True)
        return [*self.places(), *self.fills(context), *self.results(context, self.group.pixels[0])]

    def places(self, moved: str = "") -> list[str]:
        """The coordinates of the first pixels of the tiles, which are ``moved`` to the right."""
        lines: list[str] = []
        for tile in self.tiles.values():
            lines.append(f"{tile.x.name} = first_x{moved} - {tile.reach.left}".replace("- -", "+ "))
            lines.append(f"{tile.y.name} = first_y - {tile.reach.up}".replace("- -", "+ "))
        return lines

    def inner_test(self) -> str:
        """Whether all that near accesses read, and all tiles, are inside of the images."""
        (tile_x, tile_y), first = self.group.tile, self.group.stored[0]
        images = [*self.reaches]
        assert first in images
        left = max(self.reaches[image].left for image in images)
        up = max(self.reaches[image].up for image in images)
        last_x = smallest(*(image.width - (tile_x + self.reaches[image].right) for image in images))
        last_y = smallest(*(image.height - (tile_y + self.reaches[image].down) for image in images))
        x = self.use(self.arguments.integer("inner_x", last_x))
        y = self.use(self.arguments.integer("inner_y", last_y))
        return f"first_x >= {left} and first_x <= {x} and first_y >= {up} and first_y <= {y}"

    def has_inner_version(self) -> bool:
        """Whether some block does more than guard its stores."""
        accesses = [(access, node) for node in self.group.nodes for access in node.accesses if node in self.reaches]
        near = [(access, node) for access, node in accesses if window_of(access, node, self.options) is not None]
        is_checked = any(any(checks_of(access, node, self.options)) for access, node in near)
        return bool(self.tiles) or is_checked or self.shares_rows

    def made(self, name: str) -> tuple[GeneratedKernel, tuple[KernelArgument, ...]]:
        """The kernel called ``name``, with its arguments."""
        group = self.group
        lines = self.team.lines(group.tile)
        lines += self.scratch()
        checked = self.checked_version()
        if self.has_inner_version():
            lines += [f"if {self.inner_test()}:", *(f"    {line}" for line in self.inner_version())]
            lines += ["else:", *(f"    {line}" for line in checked)]
        else:
            lines += checked
        params = list(self.params)
        head = f"def {name}({', '.join(f'{param.name}: {param.type}' for param in params)}) -> None:"
        text = "\n".join([head, *(f"    {line}" for line in lines)]) + "\n"
        kernel = kernel_for(text, self._names(params), name, group.block, self.options.arithmetic)
        return kernel, self.arguments.of(params)

    def scratch(self) -> list[str]:
        """The numbers of the thread and of its team, and the arrays of tiles."""
        lines = [f"thread = {self.team.thread}"] if self.tiles else []
        lines += [f"team = {self.team.number}"] if self.tiles and self.team.teams > 1 else []
        return [*lines, *(line for tile in self.tiles.values() for line in self._allocate(tile))]

    def _allocate(self, tile: Tile) -> list[str]:
        """The array of a tile in shared memory. Each team has its own part."""
        word, size, array = tile.node.pixel.name, tile.pitch * tile.height, tile.array.name
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
            "shfl_sync": shfl_sync,
            "syncthreads": syncthreads,
            "syncwarp": syncwarp,
            "unroll": unroll,
            **self.maps,
            **self.words(),
        }

    def words(self) -> dict[str, object]:
        """Further words that the text of the kernel mentions."""
        return {}
