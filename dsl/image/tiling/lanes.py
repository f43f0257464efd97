"""Tiles of lanes: a warp walks down its tile, and its lanes keep the rows that are in use in registers.

`lane_layout` says what lanes keep. In each step, the next row of each item is loaded or computed, in the order of the
graph; then lanes exchange the pixels at the edges of their columns. An item is as many rows ahead of the results as
their windows reach down. In the first steps, only the rows that will be needed are computed.

Rows of inputs are loaded, and those of results stored, as one word for the columns of a lane, if the addresses allow
it. A warp at an edge of an image computes in a loop of one row. It loads inputs as their boundaries say, and gives the
places of other items outside of their images the pixels of the boundary: in a row by shuffles from the lanes that have
these pixels; below the image from a row above; above the image as soon as the row that is repeated is computed. So
windows are read everywhere without an exchange of indices (`padding`).

Operators get the pixels around theirs in an array with constant indices, as in hybrid tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
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

__all__ = ["LanesKernel"]

_EVERY_LANE = "0xFFFFFFFF"

#: The words of memory, by their bytes.
_MEMORY_WORDS = {2: "u16", 4: "u32", 8: "uint2", 16: "uint4"}

#: How many rows nvcc unrolls.
_UNROLLED_ROWS = 4


class LanesKernel(GroupKernel):
    """The kernel of a group with tiles of lanes."""

    def __init__(self, group: Group, options: Options) -> None:
        super().__init__(group, options)
        self.layout, (self.columns, self.tall) = group.lanes, group.pixels
        self.halo = self.layout.halo(self.columns)
        self.centre = Param("centre_x", t.I32), Param("centre_y", t.I32)
        self.variables |= set(self.centre)
        self._words = {item: self.arguments.reserved(f"row_of_{_image(item).name}") for item in self.layout.items}
        #: By (root, item): the variable with the pixels around a pixel of the root, row by row.
        self._around: dict[tuple[Node[Any], Item], Param] = {}
        for root, reads in self.layout.reads.items():
            for item in reads:
                name = self.arguments.reserved(f"near_{_image(item).name}")
                self._around[root, item] = Param(name, t.Pointer(_image(item).pixel, const=True))
        self.variables |= set(self._around.values())
        #: By result: the word with its pixels.
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
        for (root, item), array in self._around.items():
            size = _size(self.layout.reads[root][item].inner)
            lines.append(f"{array.name} = local({_image(item).pixel}, {size})")
        for node in self.group.stored:
            if word := _word(node.pixel, self.columns):
                # An array of words has the alignment of words.
                lines.append(f"{self._packed[node]} = local({word}, 1)")
        return lines

    # --- pixels ------------------------------------------------------------------------------------------------

    def stored(self, tile: Tile, context: Context) -> PixelFunction:
        assert context.root is not None
        return self._near(context.root, tile.node)

    def _source(self, access: Access, reader: Node[Any], context: Context) -> PixelFunction:
        staged = self.layout.staged(access, reader)
        if context.root is not None and not context.far and staged in self.layout.reads[context.root]:
            return self._near(context.root, staged)
        return super()._source(access, reader, context)

    def _near(self, root: Node[Any], item: Item) -> PixelFunction:
        """The function that reads an item from the pixels around a pixel of a root."""
        array, reach = self._around[root, item], self.layout.reads[root][item].inner
        name = self.arguments.reserved(f"read_{array.name}")
        x, y = (f"{axis} - {centre.name}" for axis, centre in zip("xy", self.centre, strict=True))
        index = f"({y} + {reach.up}) * {reach.left + reach.right + 1} + ({x} + {reach.left})".replace("+ -", "- ")
        pixel = _image(item).pixel
        return pixel_function(name, (array, *self.centre), pixel, [f"return {array.name}[{index}]"], {})

    def _kept(self, item: Item, row: int, column: int) -> str:
        """The variable with a pixel of an item: ``row`` counts from the oldest row, ``column`` from the first column of
        the lane."""
        side = "" if column < 0 else "_"
        return f"{self._words[item]}_{row}{side}{abs(column)}" if column >= 0 else f"{self._words[item]}_{row}m{-column}"

    # --- one row -----------------------------------------------------------------------------------------------

    def _step(self, *, inner: bool, first: bool) -> list[str]:
        """The code of one step. ``first``: some rows may not be needed yet, and no results are."""
        lines: list[str] = []
        for each in (*(item for item in self.layout.items if isinstance(item, Staged)), *self.layout.roots):
            reach = self.layout.reaches[each]
            body = self._moved(each, inner) if each in self._words else []
            body.append(f"row = first_y + step + {reach.down}" if reach.down else "row = first_y + step")
            body += self._loaded(each, inner) if isinstance(each, Staged) else self._computed(each, inner)
            if not inner and isinstance(each, Node) and each in self._words:
                body += self._padded(each)
            body += self._exchanged(each, inner) if each in self._words else []
            if not inner and isinstance(each, Node) and each in self._words:
                body += self._repeated(each)
            if not first:
                lines += body
            elif each in self._words:
                begin = -reach.up - reach.down
                lines += [f"if step >= {begin}:", *(f"    {line}" for line in body)]
        return lines if first else lines + self._stores(inner)

    def _moved(self, item: Item, inner: bool) -> list[str]:
        """Each row of an item takes the place of the one before."""
        left, right = self.layout.columns(item)
        rows = self.layout.depth(item, inner=inner) - 1
        columns = range(-left, self.columns + right)
        return [f"{self._kept(item, row, c)} = {self._kept(item, row + 1, c)}" for row in range(rows) for c in columns]

    def _newest(self, item: Item, inner: bool) -> list[str]:
        """The variables with the newest row of an item, without pixels of other lanes."""
        row = self.layout.depth(item, inner=inner) - 1
        return [self._kept(item, row, column) for column in range(self.columns)]

    def _loaded(self, item: Staged, inner: bool) -> list[str]:
        """Load the next row of an input."""
        names, access = self._newest(item, inner), self._accesses[item]
        pixels = self.use(self.arguments.pointer(item.image, access.param.name))
        width = self.use(self.arguments.width(item.image, pixels))
        if inner:
            return self._load_of_words(names, pixels, width, item.image.pixel)
        boundary = Boundary.CLAMP if item.boundary.kind == "undefined" else item.boundary
        name = self.arguments.reserved(f"load_{access.param.name}")
        checks = Checks(far=True), Checks(far=True)
        load = load_function(replace(access, boundary=boundary), checks, self.arguments, name)
        return [f"{each} = {self.call(load, f'lane_x + {at}', 'row')}" for at, each in enumerate(names)]

    def _load_of_words(self, names: Sequence[str], pixels: str, width: str, pixel: t.Type) -> list[str]:
        word, start = _word(pixel, self.columns), f"row * {width} + lane_x"
        if not word:
            return [f"{name} = {pixels}[{start} + {at}]" for at, name in enumerate(names)]
        loaded = self.arguments.reserved("loaded")
        lines = [f"{loaded} = pointer_cast({word}, addr({pixels}[{start}]))[0]"]
        return lines + [f"{name} = pointer_cast({pixel}, addr({loaded}))[{at}]" for at, name in enumerate(names)]

    def _computed(self, root: Node[Any], inner: bool) -> list[str]:
        """Compute the next row of an operator."""
        lines = ["centre_y = row"]
        if not inner:
            height = self.use(self.arguments.height(root, root.name))
            lines = [f"centre_y = max(min(row, {height} - 1), 0)"]
        function = self.pixel(root, Context(inner=inner, root=root))
        for column, name in enumerate(self._results(root, inner)):
            lines += [line for item in self.layout.reads[root] for line in self._surroundings(root, item, column, inner)]
            at = f"lane_x + {column}"
            if not inner:
                at = f"max(min({at}, {self.use(self.arguments.width(root, root.name))} - 1), 0)"
            lines += [f"centre_x = {at}", f"{name} = {self.call(function, 'centre_x', 'centre_y')}"]
        return lines

    def _results(self, root: Node[Any], inner: bool) -> list[str]:
        """The variables for the pixels of a row of an operator."""
        if root in self._words:
            return self._newest(root, inner)
        return [f"result_{self.group.stored.index(root)}_{column}" for column in range(self.columns)]

    def _surroundings(self, root: Node[Any], item: Item, column: int, inner: bool) -> list[str]:
        """Get the pixels of an item around a pixel of a root."""
        reach, array = self.layout.reads[root][item].inner, self._around[root, item]
        newest = self.layout.depth(item, inner=inner) - 1 + self.layout.reaches[root].down
        newest -= self.layout.reaches[item].down
        lines: list[str] = []
        for dy in range(-reach.up, reach.down + 1):
            for dx in range(-reach.left, reach.right + 1):
                lines.append(f"{array.name}[{len(lines)}] = {self._kept(item, newest + dy, column + dx)}")
        return lines

    def _exchanged(self, item: Item, inner: bool) -> list[str]:
        """Get the pixels of other lanes in the newest row of an item."""
        (left, right), row = self.layout.columns(item), self.layout.depth(item, inner=inner) - 1
        lines: list[str] = []
        for column in (*range(-left, 0), *range(self.columns, self.columns + right)):
            lanes, own = column // self.columns, self._kept(item, row, column % self.columns)
            shuffle = "shfl_up_sync" if lanes < 0 else "shfl_down_sync"
            lines.append(f"{self._kept(item, row, column)} = {shuffle}({_EVERY_LANE}, {own}, {abs(lanes)})")
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
        names, out, word = self._results(node, inner), self.output(node), _word(node.pixel, self.columns)
        if node in self._words:
            age = self.layout.reaches[node].down
            row = self.layout.depth(node, inner=inner) - 1 - age
            names = [self._kept(node, row, column) for column in range(self.columns)]
        if not inner:
            stores = [(at, f"{out}[{start} + {at}] = {name}") for at, name in enumerate(names)]
            return [line for at, store in stores for line in (f"if lane_x + {at} < {width}:", f"    {store}")]
        if not word:
            return [f"{out}[{start} + {at}] = {name}" for at, name in enumerate(names)]
        packed = self._packed[node]
        lines = [f"pointer_cast({node.pixel}, {packed})[{at}] = {name}" for at, name in enumerate(names)]
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
        names = self._newest(node, False)
        if not boundary.is_index_map:
            value, objects = constant_of(boundary, node.pixel, f"outside_{node.name}")
            self.maps |= objects
            rows = "row < 0 or row >= " + height
            tests = [f"{rows} or lane_x + {at} < 0 or lane_x + {at} >= {width}" for at in range(self.columns)]
            return [f"{name} = {value} if {test} else {name}" for name, test in zip(names, tests, strict=True)]
        lines = self._clamped(names, width) if boundary.kind == "clamp" else self._mapped(names, boundary, width)
        lines += [f"if row >= {height}:", f"    other_row = {self._map(boundary)}(row, {height})"]
        newest = self.layout.depth(node, inner=False) - 1
        for age in range(1, newest + 1):
            older = [self._kept(node, newest - age, column) for column in range(self.columns)]
            lines.append(f"    if other_row == row - {age}:")
            lines += [f"        {name} = {other}" for name, other in zip(names, older, strict=True)]
        return lines

    def _map(self, boundary: Boundary) -> str:
        """The name of the function that maps an index outside of an image."""
        index_map = Checks(far=True).map(boundary)
        assert index_map is not None
        self.maps[index_map.name] = index_map
        return index_map.name

    def _clamped(self, names: Sequence[str], width: str) -> list[str]:
        """Repeat the first and the last pixel of a row of an image."""
        first = f"first_x - {self.halo[0] * self.columns}"
        lines = [f"last_place = {width} - 1 - ({first})", f"edge_value = {names[0]}"]
        for at in range(1, self.columns):
            lines.append(f"edge_value = {names[at]} if last_place % {self.columns} == {at} else edge_value")
        lines.append(f"low_value = shfl_sync({_EVERY_LANE}, {names[0]}, (0 - ({first})) // {self.columns} & {WARP - 1})")
        place = f"last_place // {self.columns} & {WARP - 1}"
        lines.append(f"high_value = shfl_sync({_EVERY_LANE}, edge_value, {place})")
        for at, name in enumerate(names):
            inside = f"(high_value if lane_x + {at} >= {width} else {name})"
            lines.append(f"{name} = low_value if lane_x + {at} < 0 else {inside}")
        return lines

    def _mapped(self, names: Sequence[str], boundary: Boundary, width: str) -> list[str]:
        """Get the pixels outside of a row of an image from the lanes that have those that the boundary gives."""
        first, lines, values = f"first_x - {self.halo[0] * self.columns}", list[str](), list[str]()
        for at, name in enumerate(names):
            lines.append(f"other_place = {self._map(boundary)}(lane_x + {at}, {width}) - ({first})")
            lines.append(f"other_lane = other_place // {self.columns} & {WARP - 1}")
            value = f"{name}_outside"
            for slot, own in enumerate(names):
                given = f"shfl_sync({_EVERY_LANE}, {own}, other_lane)"
                lines.append(f"given = {given}")
                chosen = f"given if other_place % {self.columns} == {slot} else {value}"
                lines.append(f"{value} = {chosen if slot else 'given'}")
            outside = f"lane_x + {at} < 0 or lane_x + {at} >= {width}"
            values.append(f"{name} = {value} if {outside} else {name}")
        return lines + values

    def _repeated(self, node: Node[Any]) -> list[str]:
        """Give rows above the image the newest row, if the boundary repeats it there."""
        boundary, newest = self.reads.boundaries.get(node), self.layout.depth(node, inner=False) - 1
        if boundary is None or not boundary.is_index_map or not newest:
            return []
        left, right = self.layout.columns(node)
        height, lines = self.use(self.arguments.height(node, node.name)), list[str]()
        for age in range(1, newest + 1):
            lines.append(f"if row < {age} and {self._map(boundary)}(row - {age}, {height}) == row:")
            for column in range(-left, self.columns + right):
                lines.append(f"    {self._kept(node, newest - age, column)} = {self._kept(node, newest, column)}")
        return [f"if row >= 0 and row < {newest}:", *(f"    {line}" for line in lines)]

    # --- versions ----------------------------------------------------------------------------------------------

    def _begin(self, inner: bool) -> list[str]:
        """The variables of a version, and its first steps that give no results."""
        lines: list[str] = []
        for item in self.layout.items:
            left, right = self.layout.columns(item)
            for row in range(self.layout.depth(item, inner=inner)):
                for column in range(-left, self.columns + right):
                    lines.append(f"{self._kept(item, row, column)} = {_image(item).pixel}(0)")
        return lines

    def _first(self) -> int:
        reaches = self.layout.reaches.values()
        return min((-reach.up - reach.down for reach in reaches), default=0)

    def inner_version(self) -> list[str]:
        lines, first = self._begin(True), self._first()
        if first:
            body = self._step(inner=True, first=True)
            lines += [f"for step in unroll(range({first}, 0)):", *(f"    {line}" for line in body)]
        times = max(rows for rows in range(1, _UNROLLED_ROWS + 1) if self.tall % rows == 0)
        body = self._step(inner=True, first=False)
        return [*lines, f"for step in unroll(range({self.tall}), {times}):", *(f"    {line}" for line in body)]

    def checked_version(self) -> list[str]:
        first, lines = self.group.stored[0], self._begin(False)
        body = self._step(inner=False, first=False)
        at = len(body) - len(self._stores(False))
        body = [*body[:at], "if step >= 0:", *(f"    {line}" for line in body[at:])]
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


def _size(reach: Reach) -> int:
    return (reach.left + reach.right + 1) * (reach.up + reach.down + 1)


def _word(pixel: t.Type, columns: int) -> str:
    """The word that has the pixels of a lane. Empty if there is none, or one pixel is as large."""
    return _MEMORY_WORDS.get(t.size_of(pixel) * columns, "") if columns > 1 and isinstance(pixel, t.Scalar) else ""
