"""What a thread need not repeat for rows that read the same row of an image of another size (`tiling.rows`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..fusion.benefit import Operations
from ..fusion.row_operations import operations_of_rows
from ..operators import Node
from ..tiling.rows import equal_rows

__all__ = ["Repeats", "shared_rows"]


@dataclass(frozen=True, slots=True)
class Repeats:
    """For this many ``pixels`` of an operator, a thread takes the pixels of ``images``, which are parameters, from
    another one of its rows, and the results of ``operations``."""

    pixels: float
    images: frozenset[str]
    operations: Operations


def shared_rows(node: Node[Any], pixels: tuple[int, int], computed: float) -> Repeats | None:
    """What rows of a thread share that computes ``pixels`` columns and rows of a result, and ``computed`` pixels of
    ``node``. None if no two rows read the same row of an image."""
    if node.space.y0:
        return None
    equal = {access.param.name: equal_rows(access.centres[1], pixels[1]) for access in node.accesses}
    images = frozenset(name for name, count in equal.items() if count > 1)
    if not images:
        return None
    least = min(equal[name] for name in images)
    again = min(computed, pixels[0] * pixels[1]) * (1 - 1 / least)
    return Repeats(again, images, operations_of_rows(node.operator, images))
