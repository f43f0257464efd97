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

__all__ = ["UNROLLED_ROWS", "LanesKernel"]

_EVERY_LANE = "0xFFFFFFFF"

#: The words of memory, by their bytes.
_MEMORY_WORDS = {2: "u16", 4: "u32", 8: "uint2", 16: "uint4"}

#: How many rows nvcc unrolls.
UNROLLED_ROWS = 4


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
            reach = self.layout.reaches[each]
            body = self._moved(each, inner) if each in self.kept else []
            body.append(f"row = first_y + step + {reach.down}" if reach.down else "row = first_y + step")
            body += self._loaded(each, inner) if isinstance(each, Staged) else self._computed(each, inner)
            if not inner and isinstance(each, Node) and each in self.kept:
                body += self._padded(each)
            body += self._exchanged(each, inner) if each in self.kept else []
            if not inner and isinstance(each, Node) and each in self.kept:
                body += self._repeated(each)
            if not first:
                lines += body
            elif each in self.kept:
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

    def _loaded(self, item: Staged, inner: bool) -> list[str]:
        """Load the next row of an input."""
        access, array, start = self._accesses[item], self.kept[item].name, self._newest(item, inner)
        pixels = self.use(self.arguments.pointer(item.image, access.param.name))
        width = self.use(self.arguments.width(item.image, pixels))
        if not inner:
            boundary = Boundary.CLAMP if item.boundary.kind == "undefined" else item.boundary
            name = self.arguments.reserved(f"load_{access.param.name}")
            checks = Checks(far=True), Checks(far=True)
            load = load_function(replace(access, boundary=boundary), checks, self.arguments, name)
            return self._of_columns(f"{array}[{start} + column] = {self.call(load, 'lane_x + column', 'row')}")
        word, at = _word(item.image.pixel, self.columns), f"row * {width} + lane_x"
        if not word:
            return self._of_columns(f"{array}[{start} + column] = {pixels}[{at} + column]")
        loaded = self.arguments.reserved("loaded")
        part = f"pointer_cast({item.image.pixel}, addr({loaded}))[column]"
        line = f"{loaded} = pointer_cast({word}, addr({pixels}[{at}]))[0]"
        return [line, *self._of_columns(f"{array}[{start} + column] = {part}")]

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
        return [f"if {' and '.join(tests)}:", *(f"    {line}" for line in lines)] if tests else lines

    def _stored_row(self, node: Node[Any], start: str, width: str, inner: bool) -> list[str]:
        out, word, value = self.output(node), _word(node.pixel, self.columns), ""
        if node in self.kept:
            place = self._newest(node, inner) - self.layout.reaches[node].down * self._width(node)
            value = f"{self.kept[node].name}[{place} + column]"
        value = value or f"{self._rows[node]}[column]"
        store = f"{out}[{start} + column] = {value}"
        if not inner:
            return self._of_columns(f"if lane_x + column < {width}:", f"    {store}")
        if not word:
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
        lines = self._clamped(node, width) if boundary.kind == "clamp" else self._mapped(node, boundary, width)
        below = [f"other_row = {self._map(boundary)}(row, {height})"]
        for age in range(1, self.layout.depth(node, inner=False)):
            older = f"{array}[{start - age * self._width(node)} + column]"
            copy = self._of_columns(f"{pixel} = {older}")
            below += [f"if other_row == row - {age}:", *(f"    {line}" for line in copy)]
        return [*lines, f"if row >= {height}:", *(f"    {line}" for line in below)]

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

    def _repeated(self, node: Node[Any]) -> list[str]:
        """Give rows above the image the newest row, if the boundary repeats it there."""
        boundary, rows = self.reads.boundaries.get(node), self.layout.depth(node, inner=False) - 1
        if boundary is None or not boundary.is_index_map or not rows:
            return []
        height = self.use(self.arguments.height(node, node.name))
        array, width, lines = self.kept[node].name, self._width(node), list[str]()
        for age in range(1, rows + 1):
            lines.append(f"if row < {age} and {self._map(boundary)}(row - {age}, {height}) == row:")
            lines.append(f"    for i in unroll(range({width})):")
            lines.append(f"        {array}[{(rows - age) * width} + i] = {array}[{rows * width} + i]")
        return [f"if row >= 0 and row < {rows}:", *(f"    {line}" for line in lines)]

    # --- versions ----------------------------------------------------------------------------------------------

    def _begin(self, inner: bool) -> list[str]:
        """Give the rows of a version a value."""
        lines: list[str] = []
        for item, array in self.kept.items():
            size = self._width(item) * self.layout.depth(item, inner=inner)
            lines += [f"for i in unroll(range({size})):", f"    {array.name}[i] = {_image(item).pixel}(0)"]
        return lines

    def _first(self) -> int:
        reaches = self.layout.reaches.values()
        return min((-reach.up - reach.down for reach in reaches), default=0)

    def inner_version(self) -> list[str]:
        lines, first = self._begin(True), self._first()
        if first:
            body = self._step(inner=True, first=True)
            lines += [f"for step in unroll(range({first}, 0)):", *(f"    {line}" for line in body)]
        times = max(rows for rows in range(1, UNROLLED_ROWS + 1) if self.tall % rows == 0)
        body = [*self._step(inner=True, first=False), *self._stores(True)]
        return [*lines, f"for step in unroll(range({self.tall}), {times}):", *(f"    {line}" for line in body)]

    def checked_version(self) -> list[str]:
        first, lines = self.group.stored[0], self._begin(False)
        body = [*self._step(inner=False, first=False), "if step >= 0:", *(f"    {s}" for s in self._stores(False))]
        lines += [f"for step in unroll(range({self._first()}, {self.tall}), 1):", *(f"    {line}" for line in body)]
        width = self.use(self.arguments.width(first, first.name))
        height = self.use(self.arguments.height(first, first.name))
        return [f"if first_x < {width} and first_y < {height}:", *(f"    {line}" for line in lines)]

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
