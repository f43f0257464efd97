"""Whether conditions of a block hold in blocks of a usual launch.

Computes: whether some block of a few sample launches fulfils all conditions of a list. The samples have blocks of
several shapes, and block numbers from the second one to the 33rd of 64 on each axis. A parameter that is subtracted
from a coordinate, or multiplied with one, is small (a radius, a number of steps); the others are all large, or all
small.

Used to avoid tests that no block passes. It is a guess about launches: correctness does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from ..values.polynomial import Atom, Poly

__all__ = ["is_usual"]

_SHAPES = ((32, 8, 4), (16, 16, 1), (8, 8, 8), (256, 1, 1))
_NUMBERS = (1, 2, 3, 6, 32)
_BLOCKS = 64
#: The value of small parameters, and the values of the others.
_SMALL = 2
_OTHERS = (1 << 20, 4096, _SMALL)


def is_usual(conditions: Sequence[Poly]) -> bool:
    """Whether a block of a sample launch fulfils all ``conditions``.

    >>> from ..values.polynomial import variable
    >>> from ..values.thread_affine import coordinate
    >>> first = variable(coordinate("ctaid", "x")) * variable(coordinate("ntid", "x"))
    >>> is_usual([first - 2]), is_usual([first - (1 << 33)])
    (True, False)
    """
    small = {atom for each in conditions for atom in _small_parameters(each)}
    return any(
        all(_value(each, shape, number, small, other) >= 0 for each in conditions)
        for shape, number, other in product(_SHAPES, _NUMBERS, _OTHERS)
    )


def _small_parameters(condition: Poly) -> Iterable[Atom]:
    grows = any(factor > 0 and any(atom.kind == "ctaid" for atom in monomial) for monomial, factor in condition)
    for monomial, factor in condition:
        has_block = any(atom.kind == "ctaid" for atom in monomial)
        if has_block or (grows and factor < 0):
            yield from (atom for atom in monomial if atom.kind == "param")


def _value(condition: Poly, shape: tuple[int, int, int], number: int, small: set[Atom], other: int) -> int:
    total = 0
    for monomial, factor in condition:
        term = factor
        for atom in monomial:
            if atom.kind == "param":
                term *= _SMALL if atom in small else other
            else:
                term *= {"ctaid": number, "nctaid": _BLOCKS, "ntid": shape["xyz".index(atom.name[-1])]}[atom.kind]
        total += term
    return total
