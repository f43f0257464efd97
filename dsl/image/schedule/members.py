"""The operators that one kernel may compute: which groups of them are legal, what threads do for them, shared memory.

Counts are of a thread, on the average. They follow the text that `tiling` generates: pixels that a thread needs several
times count once, because nvcc finds equal expressions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

from ... import types as t
from ..graph import Graph
from ..groups import MOST_UNROLLED_COPIES, SHARED_BYTES, Group, Reach, has_large_loops, window_of
from ..lowered import Options
from ..operators import Access, Image, Node
from ..tiling.lane_layout import can_be_shuffled
from ..tiling.padding import Reads
from ..tiling.teams import problem_of_block
from .counted import Counts, Work
from .thread_counts import Computed, thread_counts

__all__ = ["THREAD", "Members", "bytes_of", "ceil_of", "shape_of"]

#: Further instructions of a thread, of a pixel of a tile that is checked, and of a pixel that a padded tile may get
#: from another place.
THREAD, _CHECKED_FILL, _PAD = 30.0, 16.0, 14.0


@dataclass
class Members:
    """Operators that one kernel may compute, and what is known about groups of them."""

    graph: Graph
    nodes: tuple[Node[Any], ...]
    options: Options
    #: By what `thread_counts` depends on: what a thread does. Groups of one graph with the same options may share it.
    counted: dict[Any, Counts] = field(default_factory=dict[Any, Counts], repr=False)
    #: By the arguments of `counts`: what the thread does. By roots: they and what they are computed from in the group.
    _counts: dict[tuple[Any, ...], Counts] = field(default_factory=dict[tuple[Any, ...], Counts], repr=False)
    _needs: dict[tuple[Node[Any], ...], frozenset[Node[Any]]] = field(
        default_factory=dict[tuple[Node[Any], ...], "frozenset[Node[Any]]"], repr=False
    )
    #: By tiled operators: how often each operator is computed for a pixel, where pixels share nothing.
    _copies: dict[frozenset[Node[Any]], dict[Node[Any], int]] = field(
        default_factory=dict[frozenset[Node[Any]], "dict[Node[Any], int]"], repr=False
    )

    #: By `_shape` of a group: the pitches, the bytes of shared memory, and with the architecture what the kernel does.
    _pitches: dict[Any, dict[Node[Any], int]] = field(default_factory=dict[Any, "dict[Node[Any], int]"], repr=False)
    _shared: dict[Any, int] = field(default_factory=dict[Any, int], repr=False)
    works: dict[Any, Work] = field(default_factory=dict[Any, Work], repr=False)
    #: By node and tiled operators: the tiles that the node is computed from.
    _tile_sources: dict[Any, frozenset[Node[Any]]] = field(
        default_factory=dict[Any, "frozenset[Node[Any]]"], repr=False
    )
    #: By tiled operators and pixels of a thread: the most pixels of a strip.
    _rows: dict[tuple[Any, ...], int] = field(default_factory=dict[tuple[Any, ...], int], repr=False)
    #: By tiled operators and columns of a lane: why lanes cannot compute the group.
    _lane_problems: dict[tuple[Any, ...], str] = field(default_factory=dict[tuple[Any, ...], str], repr=False)
    #: By tiled operators: the tiles by waits and loops, and which tiles are padded.
    _stages: dict[Any, Any] = field(default_factory=dict[Any, Any], repr=False)
    _padding: dict[Any, Reads] = field(default_factory=dict[Any, Reads], repr=False)

    @cached_property
    def group(self) -> Group:
        """The group without tiles."""
        return Group(self.graph, self.nodes)

    @cached_property
    def reaches(self) -> dict[Image[Any], Reach]:
        """By image: how far around a tile it is needed, as `Group.reaches` says."""
        return self.group.reaches(self.options)

    @cached_property
    def most(self) -> Reach:
        """The farthest that any image is needed around a tile."""
        reaches = list(self.reaches.values())
        return reduce(Reach.with_, reaches[1:], reaches[0])

    @cached_property
    def problem(self) -> str:
        """Why no kernel can compute these operators, whatever its tiles. Empty if some kernel may."""
        everything = replace(self.group, tiled=frozenset(node for node in self.nodes if node in self.reaches))
        ignored = "the tiles need"
        return next((each for each in everything.problems(self.options) if not each.startswith(ignored)), "")

    @cached_property
    def reread(self) -> frozenset[Image[Any]]:
        """The images that a thread reads again for each pixel."""
        return frozenset(access.image for node in self.nodes if has_large_loops(node) for access in node.accesses)

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
        if group.kind == "lanes" and (not self.can_be_kept or self._lane_problem(group) or not group.lanes.items):
            return False
        copies = max(self.copies(group).values()) * group.pixels[0] * group.pixels[1]
        is_small = copies <= MOST_UNROLLED_COPIES or len(self.nodes) == 1
        return is_small and (group.kind == "lanes" or self.shared_bytes(group) <= SHARED_BYTES)

    @cached_property
    def can_be_kept(self) -> bool:
        """Whether lanes keep all inputs. Otherwise tiles of lanes are not worth it: nothing is loaded ahead."""
        inside = set(self.nodes)
        images = (access.image for node in self.nodes for access in node.accesses if access.image not in inside)
        return all(can_be_shuffled(image.pixel) for image in images)

    def _lane_problem(self, group: Group) -> str:
        key = group.tiled, group.pixels[0]
        if key not in self._lane_problems:
            self._lane_problems[key] = next(iter(group.lane_problems(self.options)), "")
        return self._lane_problems[key]

    def copies(self, group: Group) -> dict[Node[Any], int]:
        """By node: how often it is computed for a pixel, as `Group.copies` says."""
        if group.tiled not in self._copies:
            self._copies[group.tiled] = group.copies(self.options)
        return self._copies[group.tiled]

    def rows_of_strip(self, group: Group) -> int:
        """The most pixels of a tile that a thread computes together, as `Group.rows_of_strip` says."""
        key = group.tiled, group.pixels
        if key not in self._rows:
            self._rows[key] = group.rows_of_strip(self.options)
        return self._rows[key]

    def stages(self, tiled: frozenset[Node[Any]]) -> list[list[tuple[Node[Any], ...]]]:
        """The tiles in the order in which they are computed: those between two waits, and of these the ones of equal
        reach, which one loop computes."""
        if tiled not in self._stages:
            stages: list[dict[Reach, list[Node[Any]]]] = [{}]
            pending: set[Node[Any]] = set()
            for node in self.nodes:
                if node not in tiled or node not in self.reaches:
                    continue
                if self.sources(node, tiled) & pending:
                    stages.append({})
                    pending = set()
                stages[-1].setdefault(self.reaches[node], []).append(node)
                pending.add(node)
            self._stages[tiled] = [[tuple(batch) for batch in stage.values()] for stage in stages if stage]
        return self._stages[tiled]

    def sources(self, node: Node[Any], tiled: frozenset[Node[Any]]) -> frozenset[Node[Any]]:
        """The tiles that a pixel of a node is computed from, as `Group.sources` says."""
        key = node, tiled
        if key not in self._tile_sources:
            self._tile_sources[key] = replace(self.group, tiled=tiled).sources(node, self.options)
        return self._tile_sources[key]

    def pitches(self, group: Group) -> dict[Node[Any], int]:
        """The pitches of the tiles, as `Group.pitches` says."""
        key = shape_of(group)
        if key not in self._pitches:
            tiles = [node for node in self.nodes if node in group.tiled and node in self.reaches]
            sources = {node: self.sources(node, group.tiled) for node in tiles}
            most = self.rows_of_strip(group) if tiles else 1
            self._pitches[key] = group.pitches_of(tiles, self.reaches, sources, most)
        return self._pitches[key]

    def padding(self, tiled: frozenset[Node[Any]]) -> Reads:
        """Which tiles are padded in teams at edges."""
        if tiled not in self._padding:
            tiles = frozenset(node for node in tiled if node in self.reaches)
            self._padding[tiled] = Reads(self.nodes, self.options, tiles)
        return self._padding[tiled]

    def at_edges(self, group: Group) -> float:
        """The instructions of a thread in a team at an edge of the image, where its pixels share nothing. In hybrid
        tiles, such a team computes its tile in steps."""
        padding, found = self.padding(group.tiled), THREAD
        steps = -(-group.pixels[0] // max(1, group.pixels[0] - group.in_registers)) if group.kind == "hybrid" else 1
        for batch in (batch for stage in self.stages(group.tiled) for batch in stage):
            width, height = group.tile_shape(self.reaches[batch[0]])
            rounds = -(-width * height // group.team.size)
            for node in batch:
                each = self.counts((node,), group.tiled, (1, 1), fill=True, edge=True)
                pad = _PAD if node in padding.boundaries else 0
                found += steps * rounds * (each.instructions + _CHECKED_FILL + pad)
        each = self.counts(group.stored, group.tiled, (1, 1), fill=False, edge=True)
        return found + group.pixels[0] * group.pixels[1] * (each.instructions + 4 * len(group.stored))

    def edges(self, group: Group) -> float:
        """The share of the teams that are at an edge of an image."""
        first, inner, teams = group.stored[0], 1, 1
        left = right = 0
        if group.kind == "lanes":
            left, right = (lanes * group.pixels[0] for lanes in group.lanes.halo(group.pixels[0]))
            if int(first.width) % group.pixels[0]:
                return 1.0
        most = self.most
        sides = (max(left, most.left), max(right, most.right)), (most.up, most.down)
        for (before, after), tile, size in zip(sides, group.tile, first.size, strict=True):
            count = ceil_of(size, tile)
            teams *= count
            low, high = ceil_of(before, tile), (int(size) - after - tile) // tile
            inner *= max(0, high - low + 1) if before or after else count
        return 1 - inner / teams

    @cached_property
    def read_by_windows(self) -> frozenset[Node[Any]]:
        """The operators of which another one reads several pixels around its own pixel."""
        return frozenset(
            access.image
            for reader in self.nodes
            for access in reader.accesses
            if isinstance(access.image, Node)
            and access.image in self.nodes
            and access.extent.size != (1, 1)
            and self._window(access, reader) is not None
        )

    @cached_property
    def repeated(self) -> frozenset[Node[Any]]:
        """The operators with windows of which several pixels are needed for one pixel of a result."""
        copies = self.copies(self.group)
        return frozenset(
            node
            for node in self.nodes
            if node.operator.kind == "local" and copies[node] > 1 and node in self.reaches and len(self.nodes) > 1
        )

    def shared_bytes(self, group: Group) -> int:
        """The bytes of shared memory that the tiles of a block take."""
        key = shape_of(group)
        if key not in self._shared:
            pitches = self.pitches(group)
            sizes = (pitch * group.tile_shape(self.reaches[n])[1] * t.size_of(n.pixel) for n, pitch in pitches.items())
            self._shared[key] = group.team.teams * sum(sizes)
        return self._shared[key]

    @cached_property
    def inputs(self) -> set[Image[Any]]:
        """The images that the operators read and do not compute."""
        inside = set(self.nodes)
        return {access.image for node in self.nodes for access in node.accesses if access.image not in inside}

    @cached_property
    def moved(self) -> float:
        """The bytes of the results and of the inputs."""
        return bytes_of(self.group.stored) + bytes_of(self.inputs)

    @cached_property
    def width(self) -> float:
        """The bytes of a pixel of the results and of the inputs, on the average over the bytes that are moved."""
        images = {*self.group.stored, *self.inputs}
        return sum(bytes_of([image]) * t.size_of(image.pixel) for image in images) / bytes_of(images)

    @cached_property
    def input_bytes(self) -> float:
        """The bytes of a pixel of an input, on the average."""
        return sum(t.size_of(image.pixel) for image in self.inputs) / max(1, len(self.inputs))

    def counts(
        self,
        roots: tuple[Node[Any], ...],
        tiled: frozenset[Node[Any]],
        pixels: tuple[int, int],
        *,
        fill: bool,
        edge: bool = False,
        rows: frozenset[Node[Any]] = frozenset(),
    ) -> Counts:
        """What a thread does for ``pixels`` neighbouring pixels of each root (`thread_counts.Computed`)."""
        key = roots, tiled, pixels, fill, edge, rows
        if key not in self._counts:
            needed = self.needed(roots)
            tiles = tiled & needed
            padding = self.padding(tiled).boundaries if edge else {}
            padded = frozenset((tile, padding[tile]) for tile in tiles if tile in padding)
            what = roots, needed, tiles, pixels, fill, edge, padded, self.reread, rows & needed
            if what not in self.counted:
                computed = Computed(roots, tiled, pixels, fill, edge, rows, self.padding(tiled), self.reread)
                self.counted[what] = thread_counts(self.nodes, self.options, computed)
            self._counts[key] = self.counted[what]
        return self._counts[key]

    def needed(self, roots: tuple[Node[Any], ...]) -> frozenset[Node[Any]]:
        """Operators of the group, and those of the group that they are computed from."""
        if roots not in self._needs:
            found = set(roots)
            for node in reversed(self.nodes):
                if node in found:
                    found |= {a.image for a in node.accesses if isinstance(a.image, Node) and a.image in self.nodes}
            self._needs[roots] = frozenset(found)
        return self._needs[roots]

    def _window(self, access: Access, node: Node[Any]) -> Reach | None:
        return window_of(access, node, self.options)


def shape_of(group: Group) -> tuple[Any, ...]:
    """What groups of the same operators differ in, but for regions."""
    return group.tiled, group.block, group.pixels, group.kind, group.in_registers


def ceil_of(size: int, by: int) -> int:
    """The quotient, rounded up."""
    return -(-int(size) // by)


def bytes_of(images: Iterable[Image[Any]]) -> float:
    """The bytes of all pixels of images."""
    return float(sum(int(image.width) * int(image.height) * t.size_of(image.pixel) for image in images))
