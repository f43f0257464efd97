"""Tiles of lanes: which rows and columns of which images the lanes of a warp keep while it walks down its tile.

The tile of a warp, with everything around it that is needed, is as wide as the columns of 32 lanes. A lane has 1, 2 or
4 columns next to each other. It keeps the last rows of each image that windows read: those of tiled operators, and
those of inputs. Where windows reach beyond its columns, it gets the pixels of other lanes by shuffles, once for each
row. Nothing is in shared memory, and each row is loaded and computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from ... import types as t
from ..borders import Boundary
from ..lowered import Options
from ..lowering import checks_of
from ..operators import Access, Image, Node
from ..reach import Reach, inner_window, window_of
from .teams import WARP

__all__ = ["COLUMNS", "MOST_KEPT", "Item", "LaneLayout", "Staged", "Windows", "can_be_shuffled", "layout_of_lanes"]

#: The columns that a lane may have.
COLUMNS = (1, 2, 4)

#: The most pixels that a lane may keep: a thread has 255 registers.
MOST_KEPT = 220

#: The most bytes of a word of memory.
MOST_OF_WORD = 16

#: Windows do not depend on options.
_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Staged:
    """An input of a group whose rows lanes keep, with the pixels outside of it that its boundary gives."""

    image: Image[Any]
    boundary: Boundary


#: What lanes keep: a tiled operator, or an input.
Item: TypeAlias = "Node[Any] | Staged"


@dataclass(frozen=True, slots=True)
class Windows:
    """What is read of an image around a pixel of a reader: ``inner`` where no index is outside of the image, and
    ``whole`` also with the pixels that are read in place of those outside."""

    inner: Reach
    whole: Reach

    def around(self, inner: Reach, whole: Reach) -> Windows:
        """The windows around each place of these."""
        return Windows(self.inner.around(inner), self.whole.around(whole))

    def with_(self, other: Windows) -> Windows:
        """The smallest windows that contain both."""
        return Windows(self.inner.with_(other.inner), self.whole.with_(other.whole))


def can_be_shuffled(pixel: t.Scalar | t.Struct) -> bool:
    """Whether lanes can exchange such pixels."""
    return isinstance(pixel, t.Scalar) and pixel is not t.F16


@lru_cache(maxsize=1024)
def layout_of_lanes(
    nodes: tuple[Node[Any], ...], tiled: frozenset[Node[Any]], stored: tuple[Node[Any], ...]
) -> LaneLayout:
    """The layout of the operators ``nodes``, of which some are tiled and some are results."""
    return LaneLayout(nodes, tiled, stored)


class LaneLayout:
    """``roots``: the operators that are computed row by row, in order; the others are computed where they are read.
    ``reads``: by root, what it reads of each item. ``items``: what lanes keep, in the order in which it is computed.
    ``reaches``: by root and item, how far it is needed around the results. No number of these is negative."""

    def __init__(
        self, nodes: tuple[Node[Any], ...], tiled: frozenset[Node[Any]], stored: tuple[Node[Any], ...]
    ) -> None:
        self.nodes, self.tiled, self.stored = nodes, tiled, stored
        self._inside: set[Image[Any]] = set(nodes)
        #: By input: the boundary of accesses that read pixels outside. Those that do not take this one, too.
        self._boundaries: dict[Image[Any], Boundary] = {}
        for node in nodes:
            for access in node.accesses:
                if _is_near(access, node) and any(checks_of(access, node, _OPTIONS)):
                    self._boundaries.setdefault(access.image, access.boundary)
        self.reads: dict[Node[Any], dict[Item, Windows]] = {}
        needed: set[Item] = {*stored}
        for node in reversed(nodes):
            if node in needed:
                self.reads[node] = self._windows(node)
                needed |= set(self.reads[node])
        self.roots = tuple(node for node in nodes if node in self.reads)
        inputs = dict.fromkeys(item for root in self.roots for item in self.reads[root] if isinstance(item, Staged))
        self.items: tuple[Item, ...] = (*inputs, *(root for root in self.roots if root in tiled))
        self.reaches: dict[Item, Reach] = {item: Reach() for item in (*self.items, *self.roots)}
        for root in reversed(self.roots):
            for item, windows in self.reads[root].items():
                self.reaches[item] = self.reaches[item].with_(self.reaches[root].around(windows.whole))

    def staged(self, access: Access, reader: Node[Any]) -> Staged | None:
        """The input that a near access reads, if lanes keep it."""
        image = access.image
        if image in self._inside or not can_be_shuffled(image.pixel) or not _is_near(access, reader):
            return None
        is_checked = any(checks_of(access, reader, _OPTIONS))
        return Staged(image, access.boundary if is_checked else self._boundaries.get(image, Boundary.CLAMP))

    def _windows(self, root: Node[Any]) -> dict[Item, Windows]:
        """What is read of each item for a pixel of ``root``, also by operators that are computed for it."""
        found: dict[Node[Any], Windows] = {root: Windows(Reach(), Reach())}
        items: dict[Item, Windows] = {}
        for node in reversed(self.nodes):
            if node not in found or (node in self.tiled and node is not root):
                continue
            for access in node.accesses:
                whole = window_of(access, node, _OPTIONS)
                if whole is None:
                    continue
                windows = found[node].around(inner_window(access, node), whole)
                image = access.image
                if isinstance(image, Node) and image in self._inside:
                    found[image] = found[image].with_(windows) if image in found else windows
                elif (item := self.staged(access, node)) is not None:
                    items[item] = items[item].with_(windows) if item in items else windows
        return {**{node: each for node, each in found.items() if node in self.tiled and node is not root}, **items}

    def readers(self, item: Item) -> Iterator[tuple[Node[Any], Windows]]:
        """The roots that read an item, with what they read."""
        return ((root, reads[item]) for root, reads in self.reads.items() if item in reads)

    def halo(self, columns: int) -> tuple[int, int]:
        """The lanes at the left and at the right that have no results, if a lane has this many columns."""
        left = max((reach.left for reach in self.reaches.values()), default=0)
        right = max((reach.right for reach in self.reaches.values()), default=0)
        return -(-left // columns), -(-right // columns)

    def width(self, columns: int) -> int:
        """The columns of the results of a warp. At most 0 if lanes have not enough columns."""
        return (WARP - sum(self.halo(columns))) * columns

    def depth(self, item: Item, *, inner: bool) -> int:
        """How many rows of an item a lane keeps. ``inner``: if all rows are inside of the image."""
        down = self.reaches[item].down
        ages = [
            down - self.reaches[root].down + (windows.inner if inner else windows.whole).up
            for root, windows in self.readers(item)
        ]
        if item in self.stored:
            ages.append(down)
        return max([0, *ages]) + 1

    def columns(self, item: Item) -> tuple[int, int]:
        """How many columns at the left and at the right of its own a lane reads."""
        windows = [windows.inner for _, windows in self.readers(item)]
        return max([0, *(each.left for each in windows)]), max([0, *(each.right for each in windows)])

    def rows(self, item: Item, tall: int) -> int:
        """The rows of an item or root that a warp computes for ``tall`` rows of the results."""
        return tall + self.reaches[item].up + self.reaches[item].down

    def kept(self, columns: int) -> int:
        """The pixels that a lane keeps."""
        return sum(self.depth(item, inner=True) * (columns + sum(self.columns(item))) for item in self.items)

    def problems(self, columns: int) -> Iterator[str]:
        """Why lanes with this many columns cannot compute the operators."""
        if columns not in COLUMNS:
            yield f"a lane has 1, 2 or 4 columns, not {columns}"
            return
        for node in self.nodes:
            if node in self.tiled and not can_be_shuffled(node.pixel):
                yield f"lanes cannot exchange the pixels of {node.name}, which are {node.pixel}"
                return
        inputs = [access.image for node in self.nodes for access in node.accesses if access.image not in self._inside]
        for image in (*inputs, *self.stored):
            # Each lane would load or store its columns one by one, far from those of its neighbours.
            if columns > 1 and not (isinstance(image.pixel, t.Scalar) and columns * image.pixel.bytes <= MOST_OF_WORD):
                yield f"{columns} pixels of {image.name}, which are {image.pixel}, are no word of memory"
                return
        if self.width(columns) < 1:
            left, right = self.halo(columns)
            yield f"the results need {left} lanes at their left and {right} at their right, and a warp has {WARP}"
        elif self.kept(columns) > MOST_KEPT:
            yield f"a lane would keep {self.kept(columns)} pixels; it can keep {MOST_KEPT}"


def _is_near(access: Access, reader: Node[Any]) -> bool:
    return window_of(access, reader, _OPTIONS) is not None
