"""Tiles of lanes: a warp walks down its tile, and its lanes keep the rows that are in use in registers.

`lane_layout` says what lanes keep. In each step, the next row of each item is loaded or computed, in the order of the
graph; then lanes exchange the pixels at the edges of their columns. An item is as many rows ahead of the results as
their windows reach down. In the first steps, only the rows that will be needed are computed.

Rows of inputs are loaded, and those of results stored, as one word for the columns of a lane, if the addresses allow
it. A warp at an edge of an image computes in a loop of one row. It loads inputs as their boundaries say, and gives the
places of other items outside of their images the pixels of the boundary: in a row by shuffles from the lanes that have
these pixels; below the image from a row above; above the image as soon as the row that is repeated is computed. So
windows are read everywhere without an exchange of indices (`padding`).

The rows of an item are an array with constant indices, which nvcc keeps in registers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ... import types as t
from ...functions import Param
from ...intrinsics import shfl_down_sync, shfl_up_sync
from ...language import addr, local, pointer_cast, uint2, uint4
from ..borders import Boundary, Checks
from ..groups import Group
from ..lowered import Options
from ..lowering import constant_of, load_function, pixel_function
from ..operator_body import PixelFunction
from ..operators import Access, Image, Node
from ..reach import Reach
from ..sizes import smallest
from .kernel import Context, GroupKernel, Tile
from .lane_layout import Item, Staged
from .teams import WARP

__all__ = ["ROWS_AHEAD", "UNROLLED_ROWS", "LanesKernel"]

_EVERY_LANE = "0xFFFFFFFF"

#: The words of memory, by their bytes.
_MEMORY_WORDS = {2: "u16", 4: "u32", 8: "uint2", 16: "uint4"}

#: How many rows nvcc unrolls, and how many rows of inputs are loaded before they are needed.
UNROLLED_ROWS, ROWS_AHEAD = 4, 2


class LanesKernel(GroupKernel):
    """The kernel of a group with tiles of lanes."""

    def __init__(self, group: Group, options: Options) -> None:
        super().__init__(group, options)
        self.layout, (self.columns, self.tall) = group.lanes, group.pixels
        self.halo = self.layout.halo(self.columns)
        self.places_of_root = tuple(Param(name, t.I32) for name in ("centre_x", "centre_y", "column"))
        #: By item: the array with the rows that a lane keeps, row by row, the oldest one first.
        self.kept: dict[Item, Param] = {}
        for item in self.layout.items:
            name = self.arguments.reserved(f"rows_of_{_image(item).name}")
            self.kept[item] = Param(name, t.Pointer(_image(item).pixel, const=True))
        self.variables |= {*self.places_of_root, *self.kept.values()}
        #: By result that is not kept: the array with the pixels of a row. By result: the word with these.
        self._rows = {n: self.arguments.reserved(f"row_of_{n.name}") for n in group.stored if n not in self.kept}
        self._packed = {node: self.arguments.reserved(f"packed_{node.name}") for node in group.stored}
        #: An access of each item that is an input: how it is loaded.
        self._accesses: dict[Staged, Access] = {}
        for node in group.nodes:
            for access in node.accesses:
                if (staged := self.layout.staged(access, node)) is not None:
                    self._accesses.setdefault(staged, access)
        #: By input: the array with the rows that are loaded ahead; the function that loads a pixel at an edge.
        self._ahead = {item: self.arguments.reserved(f"ahead_{item.image.name}") for item in self._accesses}
        self._loads: dict[Staged, PixelFunction] = {}
        #: By width of an image: the variables about lanes outside of it.
        self._edges: dict[str, tuple[str, ...]] = {}

    def words(self) -> dict[str, object]:
        shuffles = {"shfl_up_sync": shfl_up_sync, "shfl_down_sync": shfl_down_sync}
        memory = {"addr": addr, "pointer_cast": pointer_cast, "uint2": uint2, "uint4": uint4}
        return {"local": local, **shuffles, **memory}

    def scratch(self) -> list[str]:
        left = self.halo[0]
        lane = f"(local_x - {left})" if left else "local_x"
        lines = [f"lane_x = first_x + {lane} * {self.columns}" if self.columns > 1 else f"lane_x = first_x + {lane}"]
        for item, array in self.kept.items():
            size = self._width(item) * self.layout.depth(item, inner=False)
            lines.append(f"{array.name} = local({_image(item).pixel}, {size})")
        for item, array in self._ahead.items():
            lines.append(f"{array} = local({item.image.pixel}, {ROWS_AHEAD * self.columns})")
        lines += [f"{row} = local({node.pixel}, {self.columns})" for node, row in self._rows.items()]
        for node in self.group.stored:
            if word := _word(node.pixel, self.columns):
                # An array of words has the alignment of words.
                lines.append(f"{self._packed[node]} = local({word}, 1)")
        return lines

    def _width(self, item: Item) -> int:
        """The pixels that a lane keeps of a row."""
        return self.columns + sum(self.layout.columns(item))

    def _newest(self, item: Item, inner: bool) -> int:
        """The place of the first column of a lane in the newest row of an item."""
        return (self.layout.depth(item, inner=inner) - 1) * self._width(item) + self.layout.columns(item)[0]

    # --- pixels ------------------------------------------------------------------------------------------------

    def stored(self, tile: Tile, context: Context) -> PixelFunction:
        assert context.root is not None
        return self._near(context.root, tile.node, context.inner)

    def _source(self, access: Access, reader: Node[Any], context: Context) -> PixelFunction:
        staged = self.layout.staged(access, reader)
        if context.root is not None and not context.far and staged in self.layout.reads[context.root]:
            return self._near(context.root, staged, context.inner)
        return super()._source(access, reader, context)

    def _near(self, root: Node[Any], item: Item, inner: bool) -> PixelFunction:
        """The function that reads an item near a pixel of a root, which is in the column ``column`` of the lane."""
        array, width, reaches = self.kept[item], self._width(item), self.layout.reaches
        start = self._newest(item, inner) - width * (reaches[item].down - reaches[root].down)
        x, y, column = (param.name for param in self.places_of_root)
        index = f"{start} + (y - {y}) * {width} + (x - {x}) + {column}"
        name = self.arguments.reserved(f"read_{array.name}")
        taken, pixel = (array, *self.places_of_root), _image(item).pixel
        return pixel_function(name, taken, pixel, [f"return {array.name}[{index}]"], {})

    # --- one row -----------------------------------------------------------------------------------------------

    def _step(self, *, inner: bool, first: bool) -> list[str]:
        """The code of one step. ``first``: some rows may not be needed yet, and no results are."""
        lines: list[str] = []
        for each in (*(item for item in self.layout.items if isinstance(item, Staged)), *self.layout.roots):
            reach, is_kept = self.layout.reaches[each], each in self.kept
            body = self._moved(each, inner) if is_kept else []
            body.append(f"row = first_y + step + {reach.down}" if reach.down else "row = first_y + step")
            if isinstance(each, Staged):
                last = f"first_y + {self.tall - 1 + reach.down}"
                body += [
                    *self._taken(each, inner),
                    *self._loaded(each, inner, f"min(row + {ROWS_AHEAD}, {last})", ROWS_AHEAD - 1),
                ]
            else:
                body += self._computed(each, inner)
            padded = each if not inner and is_kept and isinstance(each, Node) else None
            body += self._padded(padded) if padded is not None else []
            body += self._exchanged(each, inner) if is_kept else []
            body += self._repeated(padded, first) if padded is not None else []
            if not first:
                lines += body
            elif is_kept:
                begin = -reach.up - reach.down
                lines += [f"if step >= {begin}:", *(f"    {line}" for line in body)]
        return lines

    def _moved(self, item: Item, inner: bool) -> list[str]:
        """Each row of an item takes the place of the one before."""
        array, width = self.kept[item].name, self._width(item)
        moved = (self.layout.depth(item, inner=inner) - 1) * width
        return [f"for i in unroll(range({moved})):", f"    {array}[i] = {array}[i + {width}]"] if moved else []

    def _of_columns(self, *lines: str) -> list[str]:
        """Lines for each column of a lane, which is ``column``."""
        return [f"for column in unroll(range({self.columns})):", *(f"    {line}" for line in lines)]

    def _taken(self, item: Staged, inner: bool) -> list[str]:
        """Take the next row of an input from those that were loaded ahead."""
        array, ahead, start = self.kept[item].name, self._ahead[item], self._newest(item, inner)
        lines = self._of_columns(f"{array}[{start} + column] = {ahead}[column]")
        moved = (ROWS_AHEAD - 1) * self.columns
        return [*lines, f"for i in unroll(range({moved})):", f"    {ahead}[i] = {ahead}[i + {self.columns}]"]

    def _loaded(self, item: Staged, inner: bool, row: str, place: int) -> list[str]:
        """Load a row of an input ahead, as the row ``place`` of those."""
        access, array, start = self._accesses[item], self._ahead[item], place * self.columns
        pixels = self.use(self.arguments.pointer(item.image, access.param.name))
        width = self.use(self.arguments.width(item.image, pixels))
        lines = [f"next_row = {row}"]
        if not inner:
            if item not in self._loads:
                boundary = Boundary.CLAMP if item.boundary.kind == "undefined" else item.boundary
                name = self.arguments.reserved(f"load_{access.param.name}")
                checks = Checks(far=True), Checks(far=True)
                self._loads[item] = load_function(replace(access, boundary=boundary), checks, self.arguments, name)
            value = self.call(self._loads[item], "lane_x + column", "next_row")
            return [*lines, *self._of_columns(f"{array}[{start} + column] = {value}")]
        word, at = _word(item.image.pixel, self.columns), f"next_row * {width} + lane_x"
        if not word:
            return [*lines, *self._of_columns(f"{array}[{start} + column] = {pixels}[{at} + column]")]
        loaded = self.arguments.reserved("loaded")
        part = f"pointer_cast({item.image.pixel}, addr({loaded}))[column]"
        lines.append(f"{loaded} = pointer_cast({word}, addr({pixels}[{at}]))[0]")
        return [*lines, *self._of_columns(f"{array}[{start} + column] = {part}")]

    def _computed(self, root: Node[Any], inner: bool) -> list[str]:
        """Compute the next row of an operator."""
        x, y = "lane_x + column", "row"
        if not inner:
            # Lanes outside of the image compute a pixel of it, which nobody reads.
            width = self.use(self.arguments.width(root, root.name))
            height = self.use(self.arguments.height(root, root.name))
            x, y = f"max(min({x}, {width} - 1), 0)", f"max(min({y}, {height} - 1), 0)"
        value = self.call(self.pixel(root, Context(inner=inner, root=root)), "centre_x", "centre_y")
        place = f"{self.kept[root].name}[{self._newest(root, inner)} + column]" if root in self.kept else ""
        place = place or f"{self._rows[root]}[column]"
        return [f"centre_y = {y}", *self._of_columns(f"centre_x = {x}", f"{place} = {value}")]

    def _exchanged(self, item: Item, inner: bool) -> list[str]:
        """Get the pixels of other lanes in the newest row of an item."""
        (left, right), array, start = self.layout.columns(item), self.kept[item].name, self._newest(item, inner)
        lines: list[str] = []
        for column in (*range(-left, 0), *range(self.columns, self.columns + right)):
            lanes, own = column // self.columns, f"{array}[{start + column % self.columns}]"
            shuffle = "shfl_up_sync" if lanes < 0 else "shfl_down_sync"
            lines.append(f"{array}[{start + column}] = {shuffle}({_EVERY_LANE}, {own}, {abs(lanes)})")
        return lines

    def _stores(self, inner: bool) -> list[str]:
        """Store a row of the results."""
        left, right = self.halo
        tests = [f"local_x >= {left}"] if left else []
        tests += [f"local_x < {WARP - right}"] if right else []
        first = self.group.stored[0]
        width = self.use(self.arguments.width(first, first.name))
        start, lines = f"(first_y + step) * {width} + lane_x", list[str]()
        for node in self.group.stored:
            lines += self._stored_row(node, start, width, inner)
        if not inner:
            tests.append(f"first_y + step < {self.use(self.arguments.height(first, first.name))}")
            tests += [f"lane_x < {width}"] if self._is_whole(first) else []
        return [f"if {' and '.join(tests)}:", *(f"    {line}" for line in lines)] if tests else lines

    def _stored_row(self, node: Node[Any], start: str, width: str, inner: bool) -> list[str]:
        out, word, value = self.output(node), _word(node.pixel, self.columns), ""
        if node in self.kept:
            place = self._newest(node, inner) - self.layout.reaches[node].down * self._width(node)
            value = f"{self.kept[node].name}[{place} + column]"
        value = value or f"{self._rows[node]}[column]"
        store = f"{out}[{start} + column] = {value}"
        if not inner and not self._is_whole(node):
            return self._of_columns(f"if lane_x + column < {width}:", f"    {store}")
        if not inner or not word:
            return self._of_columns(store)
        packed = self._packed[node]
        lines = self._of_columns(f"pointer_cast({node.pixel}, {packed})[column] = {value}")
        return [*lines, f"pointer_cast({word}, addr({out}[{start}]))[0] = {packed}[0]"]

    # --- edges -------------------------------------------------------------------------------------------------

    def _padded(self, node: Node[Any]) -> list[str]:
        """Give the newest row of an operator its pixels outside of the image: those of other columns, and all of them
        if the row is below the image."""
        boundary = self.reads.boundaries.get(node)
        if boundary is None:
            return []
        width = self.use(self.arguments.width(node, node.name))
        height = self.use(self.arguments.height(node, node.name))
        array, start = self.kept[node].name, self._newest(node, False)
        pixel, outside = f"{array}[{start} + column]", f"lane_x + column < 0 or lane_x + column >= {width}"
        if not boundary.is_index_map:
            value, objects = constant_of(boundary, node.pixel, f"outside_{node.name}")
            self.maps |= objects
            test = f"row < 0 or row >= {height} or {outside}"
            return self._of_columns(f"{pixel} = {value} if {test} else {pixel}")
        older = f"{array}[{start - self._width(node)} + column]"
        if boundary.kind == "clamp":
            lines = self._clamped_by_lanes(node) if self._is_whole(node) else self._clamped(node, width)
            if self.layout.depth(node, inner=False) > 1:
                lines += self._of_columns(f"{pixel} = {older} if row >= {height} else {pixel}")
            return lines
        lines = self._mapped(node, boundary, width)
        below = [f"other_row = {self._map(boundary)}(row, {height})"]
        for age in range(1, self.layout.depth(node, inner=False)):
            older = f"{array}[{start - age * self._width(node)} + column]"
            copy = self._of_columns(f"{pixel} = {older}")
            below += [f"if other_row == row - {age}:", *(f"    {line}" for line in copy)]
        return [*lines, f"if row >= {height}:", *(f"    {line}" for line in below)]

    def _is_whole(self, node: Node[Any]) -> bool:
        """Whether each lane has columns of the image only, or only others."""
        width = int(node.width)
        return width % self.columns == 0 and width >= 2 * self.columns

    def _clamped_by_lanes(self, node: Node[Any]) -> list[str]:
        """Repeat the first and the last pixel of a row of an image, which two lanes have, in the lanes outside."""
        array, start = self.kept[node].name, self._newest(node, False)
        outside, lane, is_first = self._lanes_outside(node)
        first, last = f"{array}[{start}]", f"{array}[{start + self.columns - 1}]"
        given = f"{first} if {is_first} else {last}" if self.columns > 1 else first
        value, own = self.arguments.reserved(f"edge_of_{node.name}"), f"{array}[{start} + column]"
        lines = [f"{value} = shfl_sync({_EVERY_LANE}, {given}, {lane})"]
        return [*lines, *self._of_columns(f"{own} = {value} if {outside} else {own}")]

    def _lanes_outside(self, node: Node[Any]) -> tuple[str, ...]:
        """The variables that say whether a lane is outside of the image of a node, which lane has the pixel at the edge
        that is next to it, and whether it is itself the one with the first pixel of a row."""
        width = self.use(self.arguments.width(node, node.name))
        if width not in self._edges:
            words = ("outside_lane", "edge_lane", "is_first_lane")
            self._edges[width] = tuple(self.arguments.reserved(f"{word}_{width}") for word in words)
        return self._edges[width]

    def _edge_lanes(self) -> list[str]:
        """The values of the variables of `_lanes_outside`."""
        lines: list[str] = []
        for width, (outside, lane, is_first) in self._edges.items():
            first = f"(0 - {self._first_column()}) // {self.columns} & {WARP - 1}"
            last = f"({width} - 1 - {self._first_column()}) // {self.columns} & {WARP - 1}"
            lines.append(f"{outside} = lane_x < 0 or lane_x >= {width}")
            lines.append(f"{lane} = {first} if lane_x < 0 else ({last} if lane_x >= {width} else local_x)")
            lines.append(f"{is_first} = local_x == {first} and lane_x == 0")
        return lines

    def _map(self, boundary: Boundary) -> str:
        """The name of the function that maps an index outside of an image."""
        index_map = Checks(far=True).map(boundary)
        assert index_map is not None
        self.maps[index_map.name] = index_map
        return index_map.name

    def _first_column(self) -> str:
        """The coordinate of the first column of the warp, as code."""
        left = self.halo[0] * self.columns
        return f"(first_x - {left})" if left else "first_x"

    def _clamped(self, node: Node[Any], width: str) -> list[str]:
        """Repeat the first and the last pixel of a row of an image."""
        array, start = self.kept[node].name, self._newest(node, False)
        low, high = (self.arguments.reserved(f"{word}_{node.name}") for word in ("first", "last"))
        lines = [f"last_place = {width} - 1 - {self._first_column()}", f"{high} = {array}[{start}]"]
        for at in range(1, self.columns):
            value = f"{array}[{start + at}] if last_place % {self.columns} == {at} else {high}"
            lines.append(f"{high} = {value}")
        lane = f"(0 - {self._first_column()}) // {self.columns} & {WARP - 1}"
        lines.append(f"{low} = shfl_sync({_EVERY_LANE}, {array}[{start}], {lane})")
        lines.append(f"{high} = shfl_sync({_EVERY_LANE}, {high}, last_place // {self.columns} & {WARP - 1})")
        own = f"{array}[{start} + column]"
        inside = f"({high} if lane_x + column >= {width} else {own})"
        return [*lines, *self._of_columns(f"{own} = {low} if lane_x + column < 0 else {inside}")]

    def _mapped(self, node: Node[Any], boundary: Boundary, width: str) -> list[str]:
        """Get the pixels outside of a row of an image from the lanes that have those that the boundary gives."""
        array, start = self.kept[node].name, self._newest(node, False)
        values = [self.arguments.reserved(f"outside_{node.name}_{column}") for column in range(self.columns)]
        given, lines = self.arguments.reserved(f"given_{node.name}"), list[str]()
        for column, name in enumerate(values):
            lines.append(f"other_place = {self._map(boundary)}(lane_x + {column}, {width}) - {self._first_column()}")
            for at in range(self.columns):
                lane = f"other_place // {self.columns} & {WARP - 1}"
                lines.append(f"{given} = shfl_sync({_EVERY_LANE}, {array}[{start + at}], {lane})")
                chosen = f"{given} if other_place % {self.columns} == {at} else {name}"
                lines.append(f"{name} = {chosen if at else given}")
        for column, name in enumerate(values):
            test, own = f"lane_x + {column} < 0 or lane_x + {column} >= {width}", f"{array}[{start + column}]"
            lines.append(f"{own} = {name} if {test} else {own}")
        return lines

    def _repeated(self, node: Node[Any], first: bool) -> list[str]:
        """Give rows above the image the newest row, if the boundary repeats it there. ``first``: in the steps before
        those with results."""
        boundary, rows = self.reads.boundaries.get(node), self.layout.depth(node, inner=False) - 1
        # The newest row is at most the last one that is read above the image.
        last_step = rows - 1 - self.layout.reaches[node].down
        if boundary is None or not boundary.is_index_map or not rows or (last_step < 0 and not first):
            return []
        height = self.use(self.arguments.height(node, node.name))
        array, width, lines = self.kept[node].name, self._width(node), list[str]()
        for age in range(1, rows + 1):
            copy = [
                f"    for i in unroll(range({width})):",
                f"        {array}[{(rows - age) * width} + i] = {array}[{rows * width} + i]",
            ]
            if boundary.kind == "clamp":
                lines += [line[4:] for line in copy]
            else:
                lines += [f"if row < {age} and {self._map(boundary)}(row - {age}, {height}) == row:", *copy]
        test = "row == 0" if boundary.kind == "clamp" else f"row >= 0 and row < {rows}"
        return [f"if {test}:", *(f"    {line}" for line in lines)]

    # --- versions ----------------------------------------------------------------------------------------------

    def _begin(self, inner: bool) -> list[str]:
        """Give the rows of a version a value."""
        lines: list[str] = []
        for item, array in self.kept.items():
            size = self._width(item) * self.layout.depth(item, inner=inner)
            lines += [f"for i in unroll(range({size})):", f"    {array.name}[i] = {_image(item).pixel}(0)"]
            if isinstance(item, Staged):
                for place in range(ROWS_AHEAD):
                    row = f"first_y - {self.layout.reaches[item].up} + {place}"
                    last = f"first_y + {self.tall - 1 + self.layout.reaches[item].down}"
                    lines += self._loaded(item, inner, f"min({row}, {last})", place)
        return lines

    def _first(self) -> int:
        reaches = self.layout.reaches.values()
        return min((-reach.up - reach.down for reach in reaches), default=0)

    def _version(self, inner: bool) -> list[str]:
        lines, first = self._begin(inner), self._first()
        if first:
            body = self._step(inner=inner, first=True)
            lines += [f"for step in unroll(range({first}, 0)):", *(f"    {line}" for line in body)]
        times = max(rows for rows in range(1, UNROLLED_ROWS + 1) if self.tall % rows == 0)
        body = [*self._step(inner=inner, first=False), *self._stores(inner)]
        return [*lines, f"for step in unroll(range({self.tall}), {times}):", *(f"    {line}" for line in body)]

    def inner_version(self) -> list[str]:
        return self._version(True)

    def checked_version(self) -> list[str]:
        body, first = self._version(False), self.group.stored[0]
        width = self.use(self.arguments.width(first, first.name))
        height = self.use(self.arguments.height(first, first.name))
        return [
            f"if first_x < {width} and first_y < {height}:",
            *(f"    {line}" for line in (*self._edge_lanes(), *body)),
        ]

    def has_inner_version(self) -> bool:
        return True

    def inner_test(self) -> str:
        """Whether all columns of the lanes and all rows are inside of all images, and words can be loaded."""
        (tile_x, tile_y), layout = self.group.tile, self.layout
        #: By image: how far it is read around the tile.
        reaches: dict[Image[Any], Reach] = {}
        left, right = (lanes * self.columns for lanes in self.halo)
        for each, reach in layout.reaches.items():
            whole = Reach(left, right, reach.up, reach.down)
            reaches[_image(each)] = whole.with_(reaches.get(_image(each), whole))
        for image, reach in self.reaches.items():
            # Lanes without results may read this, too.
            if image not in self.inside and image not in reaches:
                reaches[image] = Reach(left, right).around(Reach().with_(reach))
        last_x = smallest(*(image.width - (tile_x + reach.right) for image, reach in reaches.items()))
        last_y = smallest(*(image.height - (tile_y + reach.down) for image, reach in reaches.items()))
        x = self.use(self.arguments.integer("inner_x", last_x))
        y = self.use(self.arguments.integer("inner_y", last_y))
        first_x, first_y = max(r.left for r in reaches.values()), max(r.up for r in reaches.values())
        tests = [f"first_x >= {first_x} and first_x <= {x} and first_y >= {first_y} and first_y <= {y}"]
        return " and ".join([*tests, *self._word_tests()])

    def _word_tests(self) -> list[str]:
        """Whether each row of the images that are loaded or stored by words begins at a multiple of a word."""
        tests: dict[str, None] = {}
        for item, access in self._accesses.items():
            if word := _word(item.image.pixel, self.columns):
                pixels = self.use(self.arguments.pointer(item.image, access.param.name))
                tests[f"{self.use(self.arguments.width(item.image, pixels))} % {self.columns} == 0"] = None
                tests[f"u64({pixels}) % {_BYTES[word]} == 0"] = None
        for node in self.group.stored:
            if word := _word(node.pixel, self.columns):
                tests[f"{self.use(self.arguments.width(node, node.name))} % {self.columns} == 0"] = None
                tests[f"u64({self.output(node)}) % {_BYTES[word]} == 0"] = None
        return list(tests)


#: The bytes of words.
_BYTES = {word: size for size, word in _MEMORY_WORDS.items()}


def _image(item: Item) -> Image[Any]:
    return item.image if isinstance(item, Staged) else item


def _word(pixel: t.Type, columns: int) -> str:
    """The word that has the pixels of a lane. Empty if there is none, or one pixel is as large."""
    return _MEMORY_WORDS.get(t.size_of(pixel) * columns, "") if columns > 1 and isinstance(pixel, t.Scalar) else ""
