"""What a thread does for neighbouring pixels of operators of a group.

The operators are visited from results to inputs. Each one adds its operations, and how often its images are read. Reads
of windows are counted at the end, since those of several operators are often equal, and equal ones count once.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf
from typing import Any

from ..fusion.benefit import Operations, operations_of
from ..groups import Reach, has_large_loops, window_of
from ..lowered import Options
from ..lowering import checks_of
from ..operators import Access, Image, Node
from ..tiling.padding import Reads
from .counted import SFU, Counts
from .row_repeats import Repeats, shared_rows

__all__ = ["Computed", "thread_counts"]


@dataclass(frozen=True, slots=True)
class Computed:
    """What a thread computes: ``pixels`` neighbouring pixels, by columns and rows, of each of ``roots``. The operators
    ``tiled`` have tiles, and others are computed by each thread that needs them. ``fill``: the roots are computed for
    their tiles, and not read from these. ``edge``: in a team at an edge of the image, where the boundaries of
    ``padding`` are in padded tiles. ``rows``: operators that are computed in the rows of a thread, which may share rows
    of images of other sizes (`tiling.rows`). ``reread``: images that a thread reads again for each pixel."""

    roots: tuple[Node[Any], ...]
    tiled: frozenset[Node[Any]]
    pixels: tuple[int, int]
    fill: bool
    edge: bool
    rows: frozenset[Node[Any]]
    padding: Reads
    reread: AbstractSet[Image[Any]]


def thread_counts(nodes: tuple[Node[Any], ...], options: Options, computed: Computed) -> Counts:
    """What a thread does, on the average. ``nodes`` are the operators of the group, each behind those that it reads."""
    collected = _Collected(nodes, options, computed)
    for node in reversed(nodes):
        collected.add(node)
    return collected.with_windows()


@dataclass(frozen=True, slots=True)
class _Pixels:
    """How many pixels of an operator a thread computes: ``together`` near its own pixels, ``apart`` at exchanged
    indices, and ``distant`` for accesses of images of another size."""

    together: float
    apart: float
    distant: float
    operations: Operations
    repeats: Repeats | None

    @property
    def all(self) -> float:
        return self.together + self.apart + self.distant

    def repeated(self, access: Access) -> float:
        """How many reads of an access a thread need not repeat, because its rows share them."""
        return self.repeats.pixels if self.repeats is not None and access.param.name in self.repeats.images else 0.0


class _Collected:
    """The sums over the operators that were added; each one is added behind all that read it."""

    def __init__(self, nodes: tuple[Node[Any], ...], options: Options, computed: Computed) -> None:
        roots, fill = computed.roots, computed.fill
        self._options, self._computed = options, computed
        self._inside: set[Image[Any]] = {*nodes}
        #: The operators that the thread computes, and does not read from tiles.
        self._made = self._inside - {node for node in computed.tiled if not (fill and node in roots)}
        #: By image: how far it is needed around the pixels.
        self._near: dict[Image[Any], Reach] = dict.fromkeys(roots, Reach())
        #: By image: the reads of all windows around these pixels. Equal ones count once, so they are at most as many as
        #: the pixels within reach.
        self._wanted: dict[Image[Any], float] = {}
        #: By image: how often far accesses, and all accesses below these, read it. They share nothing, and read no
        #: tiles.
        self._far: dict[Image[Any], float] = {}
        #: By image: how often accesses at edges read it at an exchanged index.
        self._moved: dict[Image[Any], float] = {}
        #: Images that are read with checks.
        self._checked: set[Image[Any]] = set()
        #: What far accesses of images outside read, and around which pixels: equal reads count once.
        self._seen: set[tuple[Any, ...]] = set()
        self._alu = self._sfu = self._loads = self._reads = self._checks = self._far_loads = 0.0

    def add(self, node: Node[Any]) -> None:
        """Adds what the thread does for an operator, if it computes pixels of it."""
        pixels = self._pixels_of(node)
        if pixels is None:
            return
        self._add_operations(pixels)
        for access in node.accesses:
            self._add_access(node, access, pixels)

    def with_windows(self) -> Counts:
        """All sums, with the reads of windows, each pixel of which is read once."""
        for image, reach in self._near.items():
            if image in self._computed.reread or image in self._made:
                continue
            count = min(_positions(reach, self._computed.pixels), self._wanted.get(image, inf))
            self._add_reads(image, count)
            self._checks += count if image in self._checked else 0
        return Counts(self._alu, self._sfu, self._loads, self._reads, self._checks, self._far_loads)

    def _pixels_of(self, node: Node[Any]) -> _Pixels | None:
        computed, together = self._computed, 0.0
        if node in self._near and node in self._made:
            together = _positions(self._near[node], computed.pixels)
            together = together if node in computed.roots else min(together, self._wanted.get(node, inf))
        apart, distant = self._moved.get(node, 0.0), self._far.get(node, 0.0)
        if not together + apart + distant:
            return None
        repeats = shared_rows(node, computed.pixels, together) if node in computed.rows else None
        return _Pixels(together, apart, distant, operations_of(node), repeats)

    def _add_operations(self, pixels: _Pixels) -> None:
        self._alu += pixels.all * pixels.operations.alu
        self._sfu += pixels.all * pixels.operations.functions / SFU
        if pixels.repeats is not None:
            self._alu -= pixels.repeats.pixels * pixels.repeats.operations.alu
            self._sfu -= pixels.repeats.pixels * pixels.repeats.operations.functions / SFU

    def _add_access(self, node: Node[Any], access: Access, pixels: _Pixels) -> None:
        image, window = access.image, window_of(access, node, self._options)
        taps = _taps(access, pixels.operations)
        is_checked = self._computed.edge and any(checks_of(access, node, self._options))
        is_exchanged = is_checked and image in self._inside and not self._computed.padding.is_padded(access, node)
        if window is None:
            distant, single = pixels.all - self._equal(node, access, pixels), 0.0
        else:
            distant = pixels.distant - pixels.repeated(access)
            single = pixels.apart + pixels.together if is_exchanged else pixels.apart
        self._add_apart(image, taps, distant, single)
        self._checks += taps * (distant + single) if is_checked else 0
        if pixels.together and window is not None and not is_exchanged:
            if has_large_loops(node) and image not in self._made:
                # A thread reads the window again for each pixel: nvcc finds equal reads in unrolled code only.
                self._add_reads(image, pixels.together * taps)
            self._want(image, self._near[node].around(window), pixels.together * taps)
            self._checked |= {image} if is_checked and image not in self._inside else set()

    def _equal(self, node: Node[Any], access: Access, pixels: _Pixels) -> float:
        """How many reads of a far access are equal to others of the thread."""
        if not pixels.together or access.image in self._inside or has_large_loops(node):
            return pixels.repeated(access)
        what = access.image, access.centres, access.boundary, access.extent, self._near[node]
        was_seen = what in self._seen
        self._seen.add(what)
        return pixels.together if was_seen else pixels.repeated(access)

    def _add_apart(self, image: Image[Any], taps: int, distant: float, single: float) -> None:
        """Adds reads that share nothing: below far accesses (``distant``), and at an index of their own."""
        if image not in self._inside:
            self._loads += taps * (distant + single)
            self._far_loads += taps * distant
            return
        self._far[image] = self._far.get(image, 0.0) + taps * distant
        if image in self._made:
            self._moved[image] = self._moved.get(image, 0.0) + taps * single
        else:
            self._reads += taps * single

    def _add_reads(self, image: Image[Any], count: float) -> None:
        """Adds reads of an input, or of a tile."""
        if image in self._inside:
            self._reads += count
        else:
            self._loads += count

    def _want(self, image: Image[Any], reach: Reach, reads: float) -> None:
        self._near[image] = self._near[image].with_(reach) if image in self._near else reach
        self._wanted[image] = self._wanted.get(image, 0.0) + reads


def _taps(access: Access, operations: Operations) -> int:
    """How many pixels of its image an access reads for one pixel of its operator."""
    if not access.param.is_window:
        return 1
    width, height = access.extent.size
    return min(width * height, max(1, operations.reads_of(access.param.name)))


def _positions(reach: Reach, pixels: tuple[int, int]) -> int:
    return (pixels[0] + reach.left + reach.right) * (pixels[1] + reach.up + reach.down)
