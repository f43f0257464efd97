"""What the kernel of a group does: operations, loads, shuffles, bytes, shared memory, registers, occupancy.

Counts are of a thread, on the average. They follow the text that `tiling` generates: pixels that a thread needs several
times count once, because nvcc finds equal expressions, and a tile is computed with its overlap.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from ....arch import MAX_REGISTERS
from ....toolchain.occupancy import occupancy
from ... import types as t
from ..fusion.benefit import operations_of
from ..graph import Graph
from ..groups import MOST_UNROLLED_COPIES, SHARED_BYTES, Group, Reach, window_of
from ..lowered import Options
from ..operator_body import MOST_UNROLLED
from ..operators import Access, Image, Node
from ..tiling.teams import WARP, problem_of_block

__all__ = ["SECTOR", "Members", "Work", "work_of"]

#: Registers of a thread that no pixel needs: addresses, sizes, coordinates.
_BASE_REGISTERS = 20

#: Instructions of an operation of the SFU, of a load from global memory, and of a shuffle.
_SFU, _LOAD, _SHUFFLE = 8.0, 2.0, 3.0
#: Instructions of a load whose index is checked.
_CHECKED_LOAD = 6.0

#: Further instructions of a thread, and of a pixel that it computes for a tile in shared memory.
_THREAD, _FILL = 30.0, 15.0

#: Bytes of a transaction of global memory.
SECTOR = 32


@dataclass(frozen=True, slots=True)
class Counts:
    """What one thread does: operations, operations of the SFU, and pixels that it reads from global memory and from
    tiles."""

    alu: float = 0
    sfu: float = 0
    loads: float = 0
    reads: float = 0

    def times(self, factor: float) -> Counts:
        return Counts(self.alu * factor, self.sfu * factor, self.loads * factor, self.reads * factor)

    @property
    def instructions(self) -> float:
        """About how many instructions these are."""
        return self.alu + _SFU * self.sfu + _LOAD * self.loads + self.reads

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.alu + other.alu, self.sfu + other.sfu, self.loads + other.loads, self.reads + other.reads)


@dataclass(frozen=True)
class Work:
    """What a kernel does. Rates are for one pixel of a result: ``alu`` and ``sfu`` operations, ``loads`` from global
    memory, ``reads`` from shared memory, ``shuffles``, ``filled`` pixels of tiles in shared memory, and ``waits`` of a
    thread for its team. ``transactions`` are those of loads.

    ``pixels`` are those of a result; ``moved`` are the bytes of images that the kernel reads and writes. ``overlap`` is
    the share of pixels of tiles that neighbouring tiles compute, too. ``shared`` are the bytes of shared memory of a
    block, ``registers`` an estimate for a thread. ``code`` are the instructions of the code that a thread runs through,
    where loops over its pixels are unrolled, and ``serial`` those that one thread executes, the slowest one if it is at
    an edge of the image. ``resident`` are the blocks that a multiprocessor holds, and ``occupancy`` their share of its
    warps.
    """

    pixels: float
    moved: float
    blocks: float
    threads: int
    alu: float
    sfu: float
    loads: float
    reads: float
    shuffles: float
    filled: float
    waits: float
    transactions: float
    overlap: float
    shared: int
    registers: float
    resident: int
    occupancy: float
    code: float
    serial: float


@dataclass
class Members:
    """Operators that one kernel may compute, and what does not depend on tiles and blocks."""

    graph: Graph
    nodes: tuple[Node[Any], ...]
    options: Options
    #: By (roots, tiled operators, pixels of a thread): what the thread does.
    _counts: dict[tuple[Any, ...], Counts] = field(default_factory=dict[tuple[Any, ...], Counts], repr=False)
    #: By tiled operators: how often each operator is computed for a pixel, where pixels share nothing.
    _copies: dict[frozenset[Node[Any]], dict[Node[Any], int]] = field(
        default_factory=dict[frozenset[Node[Any]], "dict[Node[Any], int]"], repr=False
    )

    @cached_property
    def group(self) -> Group:
        """The group without tiles."""
        return Group(self.graph, self.nodes)

    @cached_property
    def reaches(self) -> dict[Image[Any], Reach]:
        return self.group.reaches(self.options)

    @cached_property
    def problem(self) -> str:
        """Why no kernel can compute these operators, whatever its tiles. Empty if some kernel may."""
        everything = replace(self.group, tiled=frozenset(node for node in self.nodes if node in self.reaches))
        ignored = "the tiles need"
        return next((each for each in everything.problems(self.options) if not each.startswith(ignored)), "")

    @cached_property
    def _reread(self) -> set[Image[Any]]:
        """The images that a thread reads again for each pixel."""
        return {access.image for node in self.nodes if has_large_loops(node) for access in node.accesses}

    @cached_property
    def unrolled(self) -> float:
        """The share of the instructions of the operators that are written in the code. It is small if loops are not
        unrolled."""
        sizes = [a.extent.size for node in self.nodes if has_large_loops(node) for a in node.accesses]
        return 1 / max((width * height for width, height in sizes), default=1)

    def with_(self, tiled: frozenset[Node[Any]], shape: Any) -> Group:
        """The group with these tiles and this shape (`shapes.Shape`)."""
        return replace(
            self.group,
            tiled=tiled,
            block=shape.block,
            pixels=shape.pixels,
            kind=shape.kind,
            in_registers=shape.in_registers,
        )

    def is_legal(self, group: Group) -> bool:
        """Whether one kernel can compute a group of these operators, as `Group.problems` says, and has so little code
        that its loops are unrolled."""
        if self.problem or problem_of_block(group.kind, group.block):
            return False
        if group.kind == "hybrid" and next(iter(group.hybrid_problems()), None) is not None:
            return False
        copies = max(self.copies(group).values()) * group.pixels[0] * group.pixels[1]
        is_small = copies <= MOST_UNROLLED_COPIES or len(self.nodes) == 1
        return is_small and self.shared_bytes(group) <= SHARED_BYTES

    def copies(self, group: Group) -> dict[Node[Any], int]:
        """By node: how often it is computed for a pixel, as `Group.copies` says."""
        if group.tiled not in self._copies:
            self._copies[group.tiled] = group.copies(self.options)
        return self._copies[group.tiled]

    def checked(self, group: Group) -> float:
        """The instructions of a thread at an edge of the image for one of its pixels. There, pixels share nothing."""
        inside, total = set(self.nodes), 0.0
        for node, count in self.copies(group).items():
            operations = operations_of(node)
            sizes = [access.extent.size for access in node.accesses if access.image not in inside]
            loads = sum(width * height for width, height in sizes)
            total += count * (operations.alu + _SFU * operations.sfu + _CHECKED_LOAD * loads)
        return total

    def shared_bytes(self, group: Group) -> int:
        shapes = ((node, group.tile_shape(self.reaches[node])) for node in group.tiled if node in self.reaches)
        return group.team.teams * sum(width * height * t.size_of(node.pixel) for node, (width, height) in shapes)

    def counts(
        self, roots: tuple[Node[Any], ...], tiled: frozenset[Node[Any]], pixels: tuple[int, int], *, fill: bool
    ) -> Counts:
        """What a thread does for ``pixels`` neighbouring pixels of each root. ``fill``: the roots are computed for
        their tiles, and not read from these."""
        key = roots, tiled, pixels, fill
        if key not in self._counts:
            self._counts[key] = self._count(roots, tiled, pixels, fill)
        return self._counts[key]

    def _count(
        self, roots: tuple[Node[Any], ...], tiled: frozenset[Node[Any]], pixels: tuple[int, int], fill: bool
    ) -> Counts:
        inside: set[Image[Any]] = {*self.nodes}
        computed: set[Image[Any]] = inside - {node for node in tiled if not (fill and node in roots)}
        #: By image: how far it is needed around the pixels, and how often far accesses read it.
        near: dict[Image[Any], Reach] = dict.fromkeys(roots, Reach())
        far: dict[Image[Any], int] = {}
        alu = sfu = loads = reads = 0.0
        for node in reversed(self.nodes):
            count = (_positions(near[node], pixels) if node in near and node in computed else 0) + far.get(node, 0)
            if not count:
                continue
            operations = operations_of(node)
            alu, sfu = alu + count * operations.alu, sfu + count * operations.sfu
            for access in node.accesses:
                window, (width, height) = self._window(access, node), access.extent.size
                is_near = window is not None and node in near and node in computed
                if is_near and has_large_loops(node):
                    # A thread reads the window again for each pixel: nvcc finds equal reads in unrolled code only.
                    loads += count * (width * height if access.image not in inside else 0)
                    reads += count * (width * height if access.image in inside and access.image not in computed else 0)
                if is_near and window is not None:
                    reach = near[node].around(window)
                    near[access.image] = near[access.image].with_(reach) if access.image in near else reach
                elif access.image in inside:
                    far[access.image] = far.get(access.image, 0) + width * height * count
                else:
                    loads += count * width * height
        for image, reach in near.items():
            if image in self._reread:
                continue
            if image not in inside:
                loads += _positions(reach, pixels)
            elif image not in computed:
                reads += _positions(reach, pixels)
        return Counts(alu, sfu, loads, reads)

    def _window(self, access: Access, node: Node[Any]) -> Reach | None:
        return window_of(access, node, self.options)


@lru_cache(maxsize=1024)
def has_large_loops(node: Node[Any]) -> bool:
    """Whether an operator has loops over so many pixels that nvcc does not unroll them."""
    sizes = [width * height for access in node.accesses for width, height in [access.extent.size]]
    return max(sizes, default=1) > MOST_UNROLLED and any(
        isinstance(n, ast.For) for n in ast.walk(node.operator.body.tree)
    )


def _positions(reach: Reach, pixels: tuple[int, int]) -> int:
    return (pixels[0] + reach.left + reach.right) * (pixels[1] + reach.up + reach.down)


def work_of(members: Members, group: Group, sm: int = 90) -> Work:
    """The work of a legal group of ``members``."""
    first, team = group.stored[0], group.team
    across, tall = group.pixels
    columns = across - group.in_registers
    own = across * tall
    tiles = [node for node in group.nodes if node in group.tiled and node in members.reaches]
    total, filled, waits, shuffles, code = Counts(), 0.0, 0.0, 0.0, 0.0
    area = useful = 0.0
    #: Live registers: pixels that a thread needs at a time.
    live = 0.0
    for node in tiles:
        reach = members.reaches[node]
        width = team.threads[0] * columns + reach.left + reach.right
        height = team.threads[1] * tall + reach.up + reach.down
        rounds = -(-width * height // team.size)
        each = members.counts((node,), group.tiled, (1, 1), fill=True)
        total += each.times(rounds)
        code += each.instructions * members.unrolled
        filled += rounds
        waits += 1
        whole = width + WARP * group.in_registers if group.kind == "hybrid" else width
        area += whole * height
        useful += group.tile[0] * group.tile[1]
    if columns:
        each = members.counts(group.stored, group.tiled, (1 if columns > 1 else columns, tall), fill=False)
        total += each.times(columns)
        code += each.instructions * columns * members.unrolled
        live = each.loads / max(1, tall) + each.reads / max(1, tall)
    if group.kind == "hybrid":
        added, shuffles, live = _in_registers(members, group, tiles)
        total += added
        code += added.instructions * members.unrolled + _SHUFFLE * shuffles
    size = sum(t.size_of(image.pixel) for image in _inputs(group)) / max(1, len(_inputs(group)))
    registers = min(float(MAX_REGISTERS), _BASE_REGISTERS + live + 2 * len(group.stored))
    shared = members.shared_bytes(group)
    threads = group.block[0] * group.block[1]
    found = occupancy(sm, threads, round(registers), shared)
    blocks = _ceil(first.width, group.tile[0] * team.count[0]) * _ceil(first.height, group.tile[1] * team.count[1])
    return Work(
        pixels=float(int(first.width) * int(first.height)),
        moved=_bytes(group.stored) + _bytes(_inputs(group)),
        blocks=blocks,
        threads=threads,
        alu=total.alu / own,
        sfu=total.sfu / own,
        loads=total.loads / own,
        reads=total.reads / own,
        shuffles=shuffles / own,
        filled=filled / own,
        waits=waits / own,
        transactions=total.loads / own * size / SECTOR,
        overlap=area / useful - 1 if useful else 0.0,
        shared=shared,
        registers=registers,
        resident=found.blocks if found is not None else 1,
        occupancy=found.share if found is not None else 1.0,
        code=code,
        serial=max(total.instructions + _SHUFFLE * shuffles + _FILL * filled, own * members.checked(group)) + _THREAD,
    )


def _in_registers(members: Members, group: Group, tiles: list[Node[Any]]) -> tuple[Counts, float, float]:
    """What a thread does for the part of tiles in registers, how often it shuffles, and how many pixels it keeps."""
    tall = group.pixels[1]
    total, shuffles, live = Counts(), 0.0, 0.0
    for node in tiles:
        reach = members.reaches[node]
        rows = tall + reach.up + reach.down
        each = members.counts((node,), group.tiled, (1, rows), fill=True).times(group.in_registers)
        total += Counts(each.alu, each.sfu, each.loads, 0)
        shuffles += each.reads
        live += group.in_registers * (1 + reach.up + reach.down)
    results = tuple(node for node in group.stored if node not in group.tiled)
    each = members.counts(results, group.tiled, (1, tall), fill=False).times(group.in_registers)
    total += Counts(each.alu, each.sfu, each.loads, 0)
    return total, shuffles + each.reads, live + each.reads / tall


def _ceil(size: int, by: int) -> int:
    return -(-int(size) // by)


def _bytes(images: Iterable[Image[Any]]) -> float:
    return float(sum(int(image.width) * int(image.height) * t.size_of(image.pixel) for image in images))


def _inputs(group: Group) -> set[Image[Any]]:
    inside = set(group.nodes)
    return {access.image for node in group.nodes for access in node.accesses if access.image not in inside}
