"""Rows of a thread that read the same row of an image of another size.

A thread computes neighbouring rows of a result. Where an operator reads an image at a fraction of its own scale, such
as the next coarser level of a pyramid, several of these rows read the same row of that image. nvcc finds equal reads
only if their indices are equal expressions, and for it the quotients of two rows differ. So all these rows compute the
index from the first one of them: for a factor of 8, rows 8 n to 8 n + 7 take the index from row 8 n.

Requires that the first row of each thread is a multiple of the rows of a thread. This holds for tiles of blocks and of
warps. The inner version of a kernel shares indices: there, each row of a thread is in the image, so that no branch
separates the rows.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

from ..operator_body import Centre
from ..operators import Access, Node

if TYPE_CHECKING:
    from ..groups import Group

__all__ = ["equal_rows", "keeps_row", "shares_rows", "sharing_nodes"]


def equal_rows(centre: Centre, rows: int) -> int:
    """How many neighbouring rows of a thread that computes ``rows`` rows have the same centre along y, at least. The
    first one of them is a multiple of this number.

    >>> equal_rows(Centre(denominator=8), 4), equal_rows(Centre(denominator=2), 4), equal_rows(Centre(), 4)
    (4, 2, 1)
    """
    return gcd(centre.denominator, rows) if centre.numerator == 1 else 1


def keeps_row(access: Access, reader: Node[Any]) -> bool:
    """Whether an access reads pixels in the row of its reader's pixel only."""
    extent = access.extent
    return access.centres[1] == Centre() and not (extent.up or extent.down or reader.space.y0)


def sharing_nodes(group: Group) -> frozenset[Node[Any]]:
    """The operators that are computed in the rows of a thread and not in tiles."""
    if group.kind not in ("block", "warp") or group.pixels[1] == 1 or group.regions:
        return frozenset()
    inside = set(group.nodes)
    found = {node for node in group.stored if node not in group.tiled}
    for node in reversed(group.nodes):
        if node in found:
            read = (access.image for access in node.accesses if keeps_row(access, node))
            found |= {image for image in read if isinstance(image, Node) and image in inside - group.tiled}
    return frozenset(found)


def shares_rows(group: Group) -> bool:
    """Whether several rows of a thread read the same row of an image of another size."""
    rows = group.pixels[1]
    nodes = sharing_nodes(group)
    return any(equal_rows(each.centres[1], rows) > 1 for node in nodes if not node.space.y0 for each in node.accesses)
