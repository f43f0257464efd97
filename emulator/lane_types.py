"""Lane functions: the arithmetic of one mnemonic over arrays of lanes, with raw bits as operands and results.

Computes: the NumPy types for each PTX type, and conversions between bits, signed integers, floats and packed halves.
Requires: a little-endian machine, as every CUDA host is; `ptx.types`.
Guarantees: a `LaneFunction` is pure. A result may be one of its sources (`mov`), so callers copy it before they change
    it. A source may have shape (1,) if its value is the same in all lanes; results are then broadcast.
Bits: predicates are bool; values of 8, 16, 32 and 64 bits are uint8 … uint64, also for packed types; values of 128 bits
    are arrays of shape (n, 2) of uint64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.notation import Form
from ..ptx.types import ScalarType

__all__ = [
    "FLOAT",
    "SIGNED",
    "UNSIGNED",
    "Call",
    "Compute",
    "DType",
    "Factory",
    "LaneFunction",
    "Lanes",
    "Results",
    "by_parts",
    "choose",
    "in_blocks",
    "without_warnings",
    "typed",
    "unsigned",
]

Lanes: TypeAlias = npt.NDArray[Any]
Results: TypeAlias = tuple[Lanes, ...]
#: Arithmetic on one to five sources. `Call` is its type where the number of sources is unknown.
Compute: TypeAlias = (
    Callable[[Lanes], Results]
    | Callable[[Lanes, Lanes], Results]
    | Callable[[Lanes, Lanes, Lanes], Results]
    | Callable[[Lanes, Lanes, Lanes, Lanes], Results]
    | Callable[[Lanes, Lanes, Lanes, Lanes, Lanes], Results]
)
Call: TypeAlias = Callable[..., Results]
DType: TypeAlias = Any

#: By width in bits: the NumPy types for raw bits, signed integers and floats.
UNSIGNED: dict[int, DType] = {8: np.dtype("u1"), 16: np.dtype("u2"), 32: np.dtype("u4"), 64: np.dtype("u8")}
SIGNED: dict[int, DType] = {8: np.dtype("i1"), 16: np.dtype("i2"), 32: np.dtype("i4"), 64: np.dtype("i8")}
FLOAT: dict[int, DType] = {16: np.dtype("f2"), 32: np.dtype("f4"), 64: np.dtype("f8")}


#: The size in lanes from which `choose` uses bit operations.
_LONG = 4096
#: Lanes that `in_blocks` computes at a time.
_BLOCK = 8192


@dataclass(frozen=True, slots=True)
class LaneFunction:
    """The arithmetic of one mnemonic: ``function(sources)`` gives the results, in the order of the destinations.

    ``sources`` are raw bits in operand order, each as wide as the type of its operand. If ``reads_carry``, ``carry`` is
    the flag (bool). If ``writes_carry``, the new flag is the last result. ``approximate``: the manual gives an error
    bound instead of a value.
    """

    compute: Compute
    reads_carry: bool = False
    writes_carry: bool = False
    approximate: bool = False

    def __call__(self, sources: Sequence[Lanes], carry: Lanes | None = None) -> Results:
        call: Call = self.compute
        if self.reads_carry:
            return call(*sources, carry)
        return call(*sources)


#: Makes the lane function of a form; ``None`` for a form without meaning, such as a type that the row does not have.
Factory: TypeAlias = Callable[[Form], LaneFunction | None]


def unsigned(scalar: ScalarType) -> DType:
    """The NumPy type of the raw bits of ``scalar``."""
    return np.dtype(bool) if scalar.kind == "p" else UNSIGNED[scalar.bits]


def typed(scalar: ScalarType) -> DType:
    """The NumPy type of one element of ``scalar`` as an integer; unsigned for types that are not integers."""
    bits = scalar.bits // scalar.lanes
    if scalar.kind == "s":
        return SIGNED[bits]
    return UNSIGNED[bits]


def by_parts(scalar: ScalarType, compute: Compute) -> Compute:
    """``compute`` applied to each element of a packed type; ``compute`` itself where ``scalar`` is not packed."""
    if scalar.lanes == 1:
        return compute
    call: Call = compute
    whole, part, lanes = UNSIGNED[scalar.bits], UNSIGNED[scalar.bits // scalar.lanes], scalar.lanes

    def packed(*sources: Lanes) -> Results:
        split = [np.ascontiguousarray(source).view(part).reshape(*source.shape, lanes) for source in sources]
        (result,) = call(*split)
        return (np.ascontiguousarray(result).view(whole)[..., 0],)

    return packed


def choose(mask: Lanes, a: Lanes, b: Lanes) -> Lanes:
    """``a`` where ``mask``, else ``b``, as `numpy.where`; for unsigned integers of one type.

    On long arrays `numpy.where` branches for each lane and mispredicts. Three bit operations need a tenth of the time.
    """
    if mask.size < _LONG or a.dtype.kind != "u":
        return np.where(mask, a, b)
    return (np.negative(mask.astype(a.dtype)) & (a ^ b)) ^ b


def in_blocks(compute: Compute) -> Compute:
    """``compute`` on some thousand lanes at a time, so that intermediate values stay in the cache.

    For functions of many steps with one result. Every source is one-dimensional.
    """
    call: Call = compute

    def blocked(*sources: Lanes) -> Results:
        lanes = max(source.shape[0] for source in sources)
        if lanes <= 2 * _BLOCK:
            return call(*sources)
        parts: list[Lanes] = []
        for start in range(0, lanes, _BLOCK):
            block = slice(start, start + _BLOCK)
            parts.append(call(*(source if source.shape[0] == 1 else source[block] for source in sources))[0])
        return (np.concatenate(parts),)

    return blocked


def without_warnings(compute: Compute) -> Compute:
    """``compute`` without the warnings of NumPy: overflow, division by zero and invalid operations are expected
    here."""

    call: Call = compute

    def silent(*sources: Lanes) -> Results:
        with np.errstate(all="ignore"):
            return call(*sources)

    return silent
