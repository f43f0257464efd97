"""Video instructions: arithmetic on bytes, halves and words of 32-bit registers.

Computes: `vadd`, `vsub`, `vabsdiff`, `vmin`, `vmax`, `vshl`, `vshr`, `vset`, `vmad`, and the forms for two halves and
four bytes, such as `vadd2` and `vset4`. Operands are extended to 64 bits, so every intermediate value of the manual is
exact. Requires: `registers`. Guarantees: the results that the manual defines.
Refuses, by name: selectors that the form does not have, and a third source that is missing.
Reference: PTX ISA 9.0, §9.7.18 (video instructions).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from ..ptx.notation import Form
from ..ptx.operands import Element, Operand
from ..ptx.types import TYPES
from .registers import Binder, Getter, Refused
from .segments import semantics

if TYPE_CHECKING:
    from .cohort import Cohort

__all__ = ["bind"]

Array: TypeAlias = npt.NDArray[Any]
Step: TypeAlias = "Callable[[Cohort], None]"
#: From 64-bit numbers to a 64-bit number.
_Two: TypeAlias = Callable[[Array, Array], Array]

_WORD = TYPES["b32"]
_COMPARISONS: dict[str, _Two] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_SECOND: dict[str, _Two] = {"add": np.add, "min": np.minimum, "max": np.maximum}


def bind(binder: Binder, instr: Instr) -> Step:
    """The step of a video instruction."""
    compute = {"video_word": _word, "video_mad": _mad, "video_parts": _parts}[semantics(instr)](instr)
    result, *sources = [operand.reg if isinstance(operand, Element) else operand for operand in instr.operands]
    reads: list[Getter] = [binder.source(operand, _WORD) for operand in sources]
    write, guard = binder.destination(result, _WORD), binder.guard(instr)

    def step(c: Cohort) -> None:
        values = compute(*[read(c) for read in reads])
        write(c, values.astype(np.uint32), None if guard is None else guard(c))

    return step


def _selector(operand: Operand) -> str:
    """The bytes or halves that ``operand`` names, such as ``b3210``; empty for a whole register or a literal."""
    return operand.component if isinstance(operand, Element) else ""


def _is_signed(form: Form, slot: str) -> bool:
    return form.mods.get(slot) == "s32"


def _third(instr: Instr, selectors: list[str]) -> None:
    """`Refused` if the third source is selected, or is missing where the form reads it."""
    if selectors[3:] and selectors[3]:
        raise Refused(f"selector '.{selectors[3]}' of the third source")
    if len(instr.operands) < 4 and (selectors[0] or "secop" in instr.form.mods):
        raise Refused("no third source")


# --- words ----------------------------------------------------------------------------------------------------------


def _word(instr: Instr) -> Callable[..., Array]:
    """One operation on words, halves or bytes, and then a second one, or a merge into the third source."""
    form = instr.form
    selectors = [_selector(operand) for operand in instr.operands]
    _third(instr, selectors)
    first, other = _extraction(selectors[1], form, "atype"), _extraction(selectors[2], form, "btype")
    operation = _operation(form)
    limits = _limits(_place(selectors[0])[1], signed=_is_signed(form, "dtype")) if "sat" in form.flags else None
    second = _SECOND.get(form.mods.get("secop", ""))
    if second is not None and selectors[0]:
        raise Refused("a second operation and a part of the result")
    addend = _extraction("", form, "dtype")

    def compute(a: Array, b: Array, c: Array | None = None) -> Array:
        value = operation(first(a), other(b))
        if limits is not None:
            value = np.clip(value, *limits)
        if second is not None and c is not None:
            return second(value, addend(c))
        return value if c is None else _merged(selectors[0], value, c)

    return compute


def _place(selector: str) -> tuple[int, int]:
    """The first bit and the width of what ``selector`` names in a word."""
    if not selector:
        return 0, 32
    match = re.fullmatch(r"b([0-3])|h([01])", selector)
    if match is None:
        raise Refused(f"selector '.{selector}'")
    return (8 * int(match[1]), 8) if match[1] else (16 * int(match[2]), 16)


def _extraction(selector: str, form: Form, slot: str) -> Callable[[Array], Array]:
    """A function from words to the numbers that ``selector`` names in them, extended by the type in ``slot``."""
    start, width = _place(selector)
    return lambda bits: _field(bits, start, width, signed=_is_signed(form, slot))


def _field(bits: Array, start: int, width: int, *, signed: bool) -> Array:
    value = (bits.astype(np.int64) >> start) & ((1 << width) - 1)
    return value - ((value >> (width - 1)) << width) if signed else value


def _limits(width: int, *, signed: bool) -> tuple[int, int]:
    return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)


def _operation(form: Form) -> _Two:
    base = form.op.base
    if base in ("vshl", "vshr"):
        is_wrapped = form.mods["mode"] == "wrap"

        def shift(a: Array, b: Array) -> Array:
            count = b & 31 if is_wrapped else np.minimum(b, 32)
            # The result of a left shift has 34 bits, one of which is the sign.
            return a >> count if base == "vshr" else (a << count) << 30 >> 30

        return shift
    if base.startswith("vset"):
        compare = _COMPARISONS[form.mods["mode"]]
        return lambda a, b: compare(a, b).astype(np.int64)
    return _ARITHMETIC[base.rstrip("24")]


def _average(a: Array, b: Array) -> Array:
    """Half of the sum, rounded to the nearest number, and at a half upward if the sum is not negative."""
    total = a + b
    return (total + (total >= 0)) >> 1


_ARITHMETIC: dict[str, _Two] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
    "vavrg": _average,
}


def _merged(selector: str, value: Array, c: Array) -> Array:
    """The part ``selector`` of ``c`` replaced by ``value``; ``value`` if there is no selector."""
    if not selector:
        return value
    start, width = _place(selector)
    mask = ((1 << width) - 1) << start
    return (value << start) & mask | c.astype(np.int64) & ~mask


# --- multiply and add -----------------------------------------------------------------------------------------------


def _mad(instr: Instr) -> Callable[..., Array]:
    """``a · b + c``, plus 1 with ``.po``, shifted right and saturated. It is computed modulo 2^64.

    The product of two words and a third word fit in 65 bits. The shift by 7 or 15 and the saturation need the sign and
    at most 64 bits: an unsigned result is one of unsigned sources, so it is below 2^64.
    """
    form = instr.form
    selectors = [_selector(operand) for operand in instr.operands]
    if selectors[0] or selectors[3]:
        raise Refused(f"selector '.{selectors[0] or selectors[3]}'")
    first, other = _extraction(selectors[1], form, "atype"), _extraction(selectors[2], form, "btype")
    signed = _is_signed(form, "atype") or _is_signed(form, "btype")
    shift = {"shr7": 7, "shr15": 15}.get(form.mods.get("mode", ""), 0)
    plus = int("po" in form.flags)
    low, high = _limits(32, signed=signed)

    def compute(a: Array, b: Array, c: Array) -> Array:
        total = first(a) * other(b) + _field(c, 0, 32, signed=signed) + plus
        result = (total if signed else total.view(np.uint64)) >> shift
        return np.clip(result, low, high) if "sat" in form.flags else result

    return compute


# --- two halves or four bytes ---------------------------------------------------------------------------------------


def _parts(instr: Instr) -> Callable[..., Array]:
    """The operation on each of two halves or four bytes, which are then added to the third source or merged into it."""
    form = instr.form
    count = int(form.op.base[-1])
    width = 32 // count
    selectors = [_selector(operand) for operand in instr.operands]
    _third(instr, selectors)
    chosen = _mask(selectors[0], count)
    sides = [
        (_places(selector, count, default), _is_signed(form, slot))
        for selector, default, slot in ((selectors[1], 0, "atype"), (selectors[2], count, "btype"))
    ]
    operation = _operation(form)
    limits = _limits(width, signed=_is_signed(form, "dtype")) if "sat" in form.flags else None

    def part(words: tuple[Array, Array], side: int, index: int) -> Array:
        places, signed = sides[side]
        word, place = divmod(places[index], count)
        return _field(words[word], place * width, width, signed=signed)

    def compute(a: Array, b: Array, c: Array) -> Array:
        result = c.astype(np.int64)
        for index in chosen:
            value = operation(part((a, b), 0, index), part((a, b), 1, index))
            if limits is not None:
                value = np.clip(value, *limits)
            if "add" in form.flags:
                result = result + value
            else:
                mask = ((1 << width) - 1) << (index * width)
                result = result & ~mask | (value << (index * width)) & mask
        return result

    return compute


def _mask(selector: str, count: int) -> list[int]:
    """The parts of the result that are computed, the lowest first."""
    if not selector:
        return list(range(count))
    parts = [int(digit) for digit in reversed(selector[1:])]
    if selector[0] != _letter(count) or parts != sorted({*parts}) or parts[-1] >= count:
        raise Refused(f"selector '.{selector}' of the result")
    return parts


def _places(selector: str, count: int, first: int) -> list[int]:
    """By part: its place among the parts of both sources, those of ``a`` first. ``first``: the place of the lowest."""
    if not selector:
        return list(range(first, first + count))
    places = [int(digit) for digit in reversed(selector[1:])]
    if selector[0] != _letter(count) or len(places) != count or max(places) >= 2 * count:
        raise Refused(f"selector '.{selector}'")
    return places


def _letter(count: int) -> str:
    return "h" if count == 2 else "b"
