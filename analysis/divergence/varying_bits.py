"""Which bits of a value may differ between the lanes of a warp.

Computes: for the integer operations of PTX, the `Bits` of the result from the `Bits` of the operands: which bits may
vary between lanes, and which are certainly 0 or 1. For example, in a block of width 64 ``tid.x`` varies in its lowest
five bits. ``tid.x >> 5``, ``tid.x & ~31`` and ``tid.x < 32`` do not vary. Adding ``ctaid.x * 64`` varies no other bits,
because no carry leaves the lowest six bits.

Guarantees: every result over-approximates the varying bits and is monotone in them. The result of an operation that is
not in `OPERATIONS` varies in all bits if an operand varies.
Reference: LLVM's ``KnownBits`` (addition of known bits); Coutinho et al. (PACT 2011) use affine values of the thread
index for the same purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...ptx import Form
from ...ptx.operations import Operation

__all__ = ["OPERATIONS", "Bits", "constant", "special_registers", "uniform", "unknown"]


class Bits(NamedTuple):
    """Bit masks of the bits that may vary between lanes, that are 0, and that are 1. A known bit never varies."""

    varying: int
    zero: int = 0
    one: int = 0


def _mask(width: int) -> int:
    return (1 << width) - 1


def constant(value: int, width: int) -> Bits:
    """The bits of a known ``value`` of ``width`` bits."""
    mask = _mask(width)
    return Bits(0, ~value & mask, value & mask)


def uniform() -> Bits:
    """Bits that do not vary between lanes, and of which none is known."""
    return Bits(0)


def unknown(width: int) -> Bits:
    """Bits of which all may vary between lanes."""
    return Bits(_mask(width))


def _value(bits: Bits, width: int) -> int | None:
    """The value if all bits are known; else ``None``."""
    return bits.one if bits.zero | bits.one == _mask(width) else None


def _known(varying: int, zero: int, one: int, width: int) -> Bits:
    mask = _mask(width)
    zero &= mask
    one &= mask
    return Bits(varying & mask & ~(zero | one), zero, one)


def _trailing_zeros(bits: Bits, width: int) -> int:
    """The number of lowest bits that are certainly 0."""
    maybe = ~bits.zero & _mask(width)
    return (maybe & -maybe).bit_length() - 1 if maybe else width


def _from_lowest(varying: int, width: int) -> int:
    """All bits from the lowest varying one upwards."""
    return _mask(width) & -(varying & -varying) if varying else 0


# --- logic and shifts ------------------------------------------------------------------------------------------------


def _and(a: Bits, b: Bits, width: int) -> Bits:
    return _known(a.varying & ~b.zero | b.varying & ~a.zero, a.zero | b.zero, a.one & b.one, width)


def _or(a: Bits, b: Bits, width: int) -> Bits:
    return _known(a.varying & ~b.one | b.varying & ~a.one, a.zero & b.zero, a.one | b.one, width)


def _xor(a: Bits, b: Bits, width: int) -> Bits:
    zero = a.zero & b.zero | a.one & b.one
    return _known(a.varying | b.varying, zero, a.zero & b.one | a.one & b.zero, width)


def _not(a: Bits, width: int) -> Bits:
    return _known(a.varying, a.one, a.zero, width)


def _shl(a: Bits, count: Bits, width: int) -> Bits:
    amount = _value(count, 32)
    if amount is None:
        return Bits(_mask(width) if count.varying else _from_lowest(a.varying, width))
    amount = min(amount, width)
    return _known(a.varying << amount, a.zero << amount | _mask(amount), a.one << amount, width)


def _shr(a: Bits, count: Bits, width: int, *, is_signed: bool) -> Bits:
    amount = _value(count, 32)
    if amount is None:
        if count.varying:
            return Bits(_mask(width))
        is_sign_varying = is_signed and a.varying >> (width - 1) != 0
        return Bits(_mask(width if is_sign_varying else a.varying.bit_length()))
    amount = min(amount, width)
    fill = _mask(width) & ~_mask(width - amount)

    def moved(bits: int) -> int:
        return bits >> amount | (fill if is_signed and bits >> (width - 1) else 0)

    zero = moved(a.zero) if is_signed else a.zero >> amount | fill
    return _known(moved(a.varying), zero, moved(a.one), width)


# --- sums and products -----------------------------------------------------------------------------------------------


def _sum(a: Bits, b: Bits, width: int, carry: int = 0) -> Bits:
    """``a + b + carry``: a bit varies if the bit of an addend or the carry into it varies."""
    mask = _mask(width)
    highest = (~a.zero & mask) + (~b.zero & mask) + carry  # with 1 for each unknown bit
    lowest = a.one + b.one + carry
    carry_zero = ~(highest ^ a.zero ^ b.zero) & mask
    carry_one = (lowest ^ a.one ^ b.one) & mask
    is_known = (a.zero | a.one) & (b.zero | b.one) & (carry_zero | carry_one)
    varying = a.varying | b.varying
    # A varying carry propagates upwards from a varying bit, through bits with an unknown carry.
    open_bits = mask & ~(carry_zero | carry_one)
    seeds = varying << 1 & open_bits
    varying |= (open_bits ^ (open_bits + seeds)) & open_bits | seeds
    return _known(varying, ~highest & is_known, lowest & is_known, width)


def _difference(a: Bits, b: Bits, width: int) -> Bits:
    return _sum(a, _not(b, width), width, 1)


def _negation(a: Bits, width: int) -> Bits:
    return _difference(constant(0, width), a, width)


def _product(a: Bits, b: Bits, width: int) -> Bits:
    mask = _mask(width)
    low_a, low_b = _trailing_zeros(a, width), _trailing_zeros(b, width)
    varying = _from_lowest(a.varying << low_b & mask, width) | _from_lowest(b.varying << low_a & mask, width)
    for factor, other in ((a, b), (b, a)):
        power = _value(factor, width)
        if power is not None and power & (power - 1) == 0:
            shifted = constant(power.bit_length() - 1, 32) if power else constant(width, 32)
            return _shl(other, shifted, width)
    zero = _mask(min(low_a + low_b, width))
    greatest = (~a.zero & mask) * (~b.zero & mask)
    if greatest <= mask:
        zero |= mask & ~_mask(greatest.bit_length())
    return _known(varying, zero, 0, width)


def _extend(a: Bits, narrow: int, wide: int, *, is_signed: bool) -> Bits:
    """The lowest ``narrow`` bits, extended or truncated to ``wide`` bits."""
    mask = _mask(min(narrow, wide))
    fill = _mask(wide) & ~mask

    def extended(bits: int) -> int:
        return bits & mask | (fill if is_signed and bits >> (narrow - 1) & 1 else 0)

    zero = extended(a.zero) if is_signed else a.zero & mask | fill
    return _known(extended(a.varying), zero, extended(a.one), wide)


def _quotient(a: Bits, b: Bits, width: int) -> Bits:
    """Unsigned ``a / (m·2^t)`` is ``(a >> t) / m``."""
    divisor = _value(b, width)
    if not divisor:
        return Bits(_mask(width) if a.varying or b.varying else 0)
    twos = (divisor & -divisor).bit_length() - 1
    upper = _shr(a, constant(twos, 32), width, is_signed=False)
    if divisor >> twos == 1:
        return upper
    return Bits(_mask(width) if upper.varying else 0)


def _remainder(a: Bits, b: Bits, width: int) -> Bits:
    """Unsigned ``a mod (m·2^t)`` is ``((a >> t) mod m)·2^t`` with the lowest t bits of a."""
    divisor = _value(b, width)
    if not divisor:
        return Bits(_mask(width) if a.varying or b.varying else 0)
    twos = (divisor & -divisor).bit_length() - 1
    if divisor >> twos == 1:
        return _and(a, constant(divisor - 1, width), width)
    zero = _mask(width) & ~_mask(divisor.bit_length())
    varying = _mask(width) if a.varying >> twos else a.varying
    return _known(varying, zero, 0, width)


# --- by form ---------------------------------------------------------------------------------------------------------


def _plain(operation: Callable[..., Bits]) -> Callable[[Form, list[Bits]], Bits | None]:
    """An operation on operands that all have the width of the type of the form."""

    def apply(form: Form, operands: list[Bits]) -> Bits | None:
        scalar = form.type
        if scalar is None or scalar.lanes != 1 or scalar.kind == "f":
            return None
        return operation(*operands, scalar.bits)

    return apply


def _wide(operation: Callable[..., Bits]) -> Callable[[Form, list[Bits]], Bits | None]:
    """A product of two extended factors, with an optional wide addend."""

    def apply(form: Form, operands: list[Bits]) -> Bits | None:
        scalar = form.type
        if scalar is None:
            return None
        wide = 2 * scalar.bits
        a, b = (_extend(each, scalar.bits, wide, is_signed=scalar.kind == "s") for each in operands[:2])
        return operation(a, b, *operands[2:], wide)

    return apply


def _product_sum(a: Bits, b: Bits, c: Bits, width: int) -> Bits:
    return _sum(_product(a, b, width), c, width)


def _shift_right(form: Form, operands: list[Bits]) -> Bits | None:
    scalar = form.type
    if scalar is None:
        return None
    return _shr(operands[0], operands[1], scalar.bits, is_signed=scalar.kind == "s")


def _division(operation: Callable[[Bits, Bits, int], Bits]) -> Callable[[Form, list[Bits]], Bits | None]:
    def apply(form: Form, operands: list[Bits]) -> Bits | None:
        scalar = form.type
        if scalar is None:
            return None
        a, b = operands
        sign = 1 << (scalar.bits - 1)
        if scalar.kind == "s" and not (a.zero & sign and b.zero & sign):
            return None
        return operation(a, b, scalar.bits)

    return apply


def _convert(form: Form, operands: list[Bits]) -> Bits | None:
    source, target = form.scalar("atype"), form.scalar("dtype")
    if source is None or target is None or not (source.is_integer and target.is_integer) or form.flags:
        return None
    return _extend(operands[0], source.bits, target.bits, is_signed=source.kind == "s")


def _move(form: Form, operands: list[Bits]) -> Bits | None:
    return operands[0] if form.type is not None else None


def _extract(form: Form, operands: list[Bits]) -> Bits | None:
    scalar = form.type
    if scalar is None or scalar.kind != "u":
        return None
    start, length = _value(operands[1], 32), _value(operands[2], 32)
    if start is None or length is None:
        return None
    width = scalar.bits
    field = _shr(operands[0], constant(start & 0xFF, 32), width, is_signed=False)
    return _and(field, constant(_mask(min(length & 0xFF, width)), width), width)


def _select(form: Form, operands: list[Bits]) -> Bits | None:
    scalar = form.type
    if scalar is None:
        return None
    a, b, predicate = operands
    zero, one = a.zero & b.zero, a.one & b.one
    varying = _mask(scalar.bits) if predicate.varying else a.varying | b.varying
    return _known(varying, zero, one, scalar.bits)


_ORDER = {"lt": "lt", "lo": "lt", "ge": "lt", "hs": "lt", "le": "le", "ls": "le", "gt": "le", "hi": "le"}
_TURNED = {"lt": "le", "le": "lt"}


def _compare(form: Form, operands: list[Bits]) -> Bits | None:
    """``a < c`` does not depend on the lowest t bits of a if those of c are 0; ``a ≤ c`` does not if they are 1."""
    scalar = form.type
    a, b = operands[:2]
    if not (a.varying or b.varying):
        varying = 0
    else:
        order = _ORDER.get(form.mods.get("cmp", ""))
        if order is None or scalar is None or scalar.kind == "f" or scalar.lanes != 1 or (a.varying and b.varying):
            return None
        if b.varying:
            a, b, order = b, a, _TURNED[order]
        low = _mask(a.varying.bit_length())
        if low >> (scalar.bits - 1) and scalar.kind == "s":
            return None
        varying = int(low & ~(b.zero if order == "lt" else b.one) != 0)
    return Bits(varying | (operands[2].varying if len(operands) > 2 else 0))


#: By operation: the function that computes the varying bits of the result from those of the operands. It
#: returns ``None`` where there is no rule for single bits.
OPERATIONS: dict[Operation, Callable[[Form, list[Bits]], Bits | None]] = {
    Operation.SUM: _plain(_sum),
    Operation.DIFFERENCE: _plain(_difference),
    Operation.NEGATION: _plain(_negation),
    Operation.PRODUCT: _plain(_product),
    Operation.PRODUCT_SUM: _plain(_product_sum),
    Operation.WIDE_PRODUCT: _wide(_product),
    Operation.WIDE_PRODUCT_SUM: _wide(_product_sum),
    Operation.QUOTIENT: _division(_quotient),
    Operation.REMAINDER: _division(_remainder),
    Operation.BIT_FIELD: _extract,
    Operation.AND: _plain(_and),
    Operation.OR: _plain(_or),
    Operation.XOR: _plain(_xor),
    Operation.NOT: _plain(_not),
    Operation.SHIFT_LEFT: _plain(_shl),
    Operation.SHIFT_RIGHT: _shift_right,
    Operation.CONVERSION: _convert,
    Operation.COPY: _move,
    Operation.COMPARISON: _compare,
    Operation.SELECTION: _select,
}


# --- special registers -----------------------------------------------------------------------------------------------


def special_registers(shape: tuple[int, int, int] | None, most_threads: int = 1024) -> dict[str, Bits]:
    """By name: the bits of special registers; all others are `uniform` or vary in all bits.

    ``shape`` is the exact block shape, if it is known; ``most_threads`` is the largest number of threads of a block. A
    warp consists of 32 threads with consecutive linear indices x + X·(y + Y·z), starting at a multiple of 32.
    """
    limit = 1024 if shape is None else shape[0] * shape[1] * shape[2]
    limit = min(limit, most_threads)
    extents = (limit, limit, min(limit, 64)) if shape is None else shape
    widths = [(extent - 1).bit_length() for extent in extents]
    varying = [_mask(width) for width in widths] if shape is None else _lane_bits(shape, widths)
    by_name: dict[str, Bits] = {
        f"%tid.{axis}": _known(bits, ~_mask(width), 0, 32)
        for axis, bits, width in zip("xyz", varying, widths, strict=True)
    }
    by_name["%tid.w"] = constant(0, 32)
    by_name["%laneid"] = _known(31, ~31, 0, 32)
    by_name["WARP_SZ"] = constant(32, 32)
    for axis, extent in zip("xyz", extents, strict=True):
        top = _mask(extent.bit_length())
        by_name[f"%ntid.{axis}"] = constant(extent, 32) if shape is not None else _known(0, ~top, 0, 32)
    return by_name


def _lane_bits(shape: tuple[int, int, int], widths: list[int]) -> list[int]:
    """By axis: the bits of the thread index that vary within a warp."""
    x, y, z = shape
    full = [_mask(width) for width in widths]
    rows = 32 // x if 32 % x == 0 else 0  # rows of x threads in a warp, if it has only whole rows
    if x % 32 == 0 or y * z == 1:
        return [31 & full[0], 0, 0]
    if not rows:
        return [full[0], full[1], 0 if x * y % 32 == 0 else full[2]]
    if y % rows == 0 or z == 1:
        return [full[0], (rows - 1) & full[1], 0]
    if rows % y == 0:
        return [full[0], full[1], (rows // y - 1) & full[2]]
    return full
