"""Video instructions: for each mnemonic, a kernel that applies it with several selectors of bytes and halves.

Computes: the kernels, in the frame of `forms.module_text`, as `launched.py` does; the operands, from a seed. Requires:
    only the notation of PTX. Guarantees: every mnemonic that the opcode table allows is there; the selectors are drawn
    by the mnemonic, and the first instruction of each kernel has none.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from .forms import load_operand, store_result
from .launched import BLOCK, Launched
from .operands import lanes_of

__all__ = ["video_cases", "video_columns"]

Lanes = npt.NDArray[Any]

#: Threads of a launch.
_LANES = 5 * BLOCK
_TYPES = ("u32", "s32")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_SECOND = ("", ".add", ".min", ".max")
_PLACES = ("b0", "b1", "b2", "b3", "h0", "h1")
_BYTE_MASKS = "b0 b1 b10 b2 b20 b21 b210 b3 b30 b31 b310 b32 b320 b321".split()


@cache
def video_columns() -> tuple[Lanes, ...]:
    """Three columns of operands: special values, and random ones."""
    columns = lanes_of(("u32", "s32", "b32"))
    special, rest = np.linspace(0, 4095, _LANES // 2).astype(int), np.arange(4096, 4096 + _LANES // 2)
    return tuple(column[np.concatenate([special, rest])] for column in columns)


def _case(mnemonic: str, detail: str, operands: list[str]) -> Launched:
    """``operands``: for each instruction, the operands after the result, and before ``|`` the part of the result."""
    lines: list[str] = []
    for index in range(3):
        load_operand(index, "b32", lines)
    lines.append(f".reg .b32 %d<{len(operands)}>;")
    for index, text in enumerate(operands):
        part, _, rest = text.partition("|")
        lines.append(f"{mnemonic} %d{index}{part}, {rest};")
    for index in range(len(operands)):
        store_result("b32", f"%d{index}", lines)
    return Launched(mnemonic, detail, ("b32",) * 3, ("b32",) * len(operands), tuple(lines))


def _words(mnemonic: str, *, has_second: bool) -> Iterator[Launched]:
    """An operation on words: alone or with a second operation; and with a merge, into each place."""
    rng = random.Random(mnemonic)
    parts = ["", *(f".{place}" for place in _PLACES)]
    third = ", %s2" if has_second else ""
    drawn = [f"|%s0{rng.choice(parts)}, %s1{rng.choice(parts)}{third}" for _ in range(3)]
    yield _case(mnemonic, "", [f"|%s0, %s1{third}", *drawn])
    if not has_second:
        merged = [f".{place}|%s0{rng.choice(parts)}, %s1{rng.choice(parts)}, %s2" for place in _PLACES]
        yield _case(mnemonic, "merge", merged)


def _mads(mnemonic: str) -> Iterator[Launched]:
    rng = random.Random(mnemonic)
    parts = ["", *(f".{place}" for place in _PLACES)]
    drawn = [f"|%s0{rng.choice(parts)}, %s1{rng.choice(parts)}, %s2" for _ in range(3)]
    yield _case(mnemonic, "", ["|%s0, %s1, %s2", *drawn])


def _parts(mnemonic: str, count: int) -> Iterator[Launched]:
    """An operation on halves or bytes: on all of them, and with selectors and masks."""
    rng = random.Random(mnemonic)
    letter = "h" if count == 2 else "b"
    masks = ["", *(f".{mask}" for mask in (("h0", "h1", "h10") if count == 2 else _BYTE_MASKS))]

    def places() -> str:
        text = f".{letter}" + "".join(str(rng.randrange(2 * count)) for _ in range(count))
        return text if text != ".b1024" else ".b1025"  # ptxas reads `.b1024` as a modifier of `tensormap`

    drawn = [f"{rng.choice(masks)}|%s0{places()}, %s1{places()}, %s2" for _ in range(4)]
    yield _case(mnemonic, "", ["|%s0, %s1, %s2", *drawn])


def _every() -> Iterator[Launched]:
    for name, d, a, b, sat, second in product(
        ("vadd", "vsub", "vabsdiff", "vmin", "vmax"), _TYPES, _TYPES, _TYPES, ("", ".sat"), _SECOND
    ):
        yield from _words(f"{name}.{d}.{a}.{b}{sat}{second}", has_second=second != "")
    for name, d, a, sat, mode, second in product(
        ("vshl", "vshr"), _TYPES, _TYPES, ("", ".sat"), (".clamp", ".wrap"), _SECOND
    ):
        yield from _words(f"{name}.{d}.{a}.u32{sat}{mode}{second}", has_second=second != "")
    for a, b, comparison, second in product(_TYPES, _TYPES, _COMPARISONS, _SECOND):
        yield from _words(f"vset.{a}.{b}.{comparison}{second}", has_second=second != "")
    for d, a, b, plus, sat, scale in product(
        _TYPES, _TYPES, _TYPES, ("", ".po"), ("", ".sat"), ("", ".shr7", ".shr15")
    ):
        yield from _mads(f"vmad.{d}.{a}.{b}{plus}{sat}{scale}")
    for count in (2, 4):
        names = ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")
        for name, d, a, b, last in product(names, _TYPES, _TYPES, _TYPES, ("", ".sat", ".add")):
            yield from _parts(f"{name}{count}.{d}.{a}.{b}{last}", count)
        for a, b, comparison, last in product(_TYPES, _TYPES, _COMPARISONS, ("", ".add")):
            yield from _parts(f"vset{count}.{a}.{b}.{comparison}{last}", count)


@cache
def video_cases() -> dict[str, Launched]:
    """The cases by their keys."""
    return {case.key: case for case in _every()}
