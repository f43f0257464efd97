"""Tiles that have the pixels outside of an image, too.

A team at the edge of an image computes the pixels of its tiles that are in the image, and then copies some of them to
the places outside, as the boundary of the readers says. The readers then need no exchange of indices, and share pixels
as other teams do. `boundaries` finds the tiles for which this gives the same values, and `Reads.is_padded` the accesses
that may read such a tile without an exchange.

An access may do so if it reads the tile itself, or an inline operator that reads nothing but pixels of such tiles at
its own place and does not depend on its coordinates. Then the operator gives at a place outside the value that it has
at the place for which that one is exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..borders import Boundary
from ..lowered import Options
from ..lowering import checks_of
from ..operators import Access, Image, Node
from ..reach import window_of
from ..sizes import text_of

__all__ = ["Reads"]


@dataclass
class Reads:
    """How the operators of a group, ``nodes``, read its tiles in teams at edges. ``boundaries``: by node whose tile is
    padded, the boundary that gives its pixels outside."""

    nodes: tuple[Node[Any], ...]
    options: Options
    tiles: frozenset[Node[Any]]
    boundaries: dict[Node[Any], Boundary] = field(default_factory=dict[Node[Any], Boundary])

    def __post_init__(self) -> None:
        for node in self.nodes:
            for access in node.accesses:
                for tile in self._tiles_of(access, node) or ():
                    self.boundaries.setdefault(tile, access.boundary)

    def is_padded(self, access: Access, reader: Node[Any]) -> bool:
        """Whether an access that has to be exchanged may read without it."""
        tiles = self._tiles_of(access, reader)
        return tiles is not None and all(self.boundaries.get(tile) == access.boundary for tile in tiles)

    def _tiles_of(self, access: Access, reader: Node[Any]) -> set[Node[Any]] | None:
        """The tiles that have to be padded so that an access needs no exchange. None if there are none such, or it
        needs none."""
        image = access.image
        if window_of(access, reader, self.options) is None or not any(checks_of(access, reader, self.options)):
            return None
        if not isinstance(image, Node) or image not in self.nodes or access.boundary.kind == "undefined":
            return None
        if image in self.tiles:
            return {image}
        return _pointwise(image, self.nodes, self.options, self.tiles) if access.boundary.is_index_map else None


def _pointwise(
    node: Node[Any], nodes: tuple[Node[Any], ...], options: Options, tiles: frozenset[Node[Any]]
) -> set[Node[Any]] | None:
    """The tiles that an inline operator reads at its own place. None if it reads anything else."""
    if node.operator.reads_coordinates or not node.accesses:
        return None
    found: set[Node[Any]] = set()
    for access in node.accesses:
        image, window = access.image, window_of(access, node, options)
        is_same = _size(image) == _size(node) and access.extent.size == (1, 1) and not any(_moved(access, node))
        if window is None or not isinstance(image, Node) or image not in nodes or not is_same:
            return None
        more = {image} if image in tiles else _pointwise(image, nodes, options, tiles)
        if more is None:
            return None
        found |= more
    return found


def _size(image: Image[Any]) -> tuple[str, str]:
    return text_of(image.width), text_of(image.height)


def _moved(access: Access, node: Node[Any]) -> tuple[int, int]:
    x, y = access.centres
    return x.offset + int(node.space.x0), y.offset + int(node.space.y0)
