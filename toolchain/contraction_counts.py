"""How many sums ptxas contracts, counted in machine code.

Computes: for each kernel of a module the floating-point multiply-adds, sums and products of its machine code, and
``contracted``: by how many the multiply-adds are more than without contraction (``ptxas --fmad false``). Loops are
told not to be unrolled, so that each instruction of the PTX counts once, and ptxas's choice of a factor is no change.

An FMA of a packed half type with a zero addend is a product: from sm_100 on there is no other instruction for it.

Requires: ptxas and nvdisasm. Guarantees: equal input gives equal output. Refuses: what ptxas refuses, with
`PtxasError`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from ..ptx import RawDirective, parse, print_module
from .tools import assemble, disassemble

__all__ = ["FloatCounts", "contraction_counts"]

_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_OPCODE = re.compile(r"\b([FDH])(FMA|ADD|MUL)2?(?:\.[\w.]+)?\s+([^;]*);")
_KINDS = {"FMA": "fma", "ADD": "add", "MUL": "mul"}
_ZERO = re.compile(r"^-?RZ\b")


@dataclass(frozen=True, slots=True)
class FloatCounts:
    """Machine instructions of one kernel. ``contracted`` of the ``fma`` were a product and a sum in the PTX."""

    fma: int = 0
    add: int = 0
    mul: int = 0
    contracted: int = 0


def contraction_counts(ptx: str, arch: str | None = None) -> dict[str, FloatCounts]:
    """The counts of each kernel of the module."""
    module = parse(ptx)
    module.items.insert(0, RawDirective('.pragma "nounroll";'))
    text = print_module(module)
    plain = _counted(disassemble(assemble(text, arch).cubin))
    rounded = _counted(disassemble(assemble(text, arch, flags=("--fmad", "false")).cubin))
    return {
        name: FloatCounts(found["fma"], found["add"], found["mul"], found["fma"] - rounded[name]["fma"])
        for name, found in plain.items()
    }


def _counted(listing: str) -> dict[str, Counter[str]]:
    """By section of code how often each kind of instruction stands in it."""
    found: dict[str, Counter[str]] = {}
    counts: Counter[str] = Counter()
    for line in listing.splitlines():
        section = _SECTION.match(line)
        if section is not None:
            counts = found.setdefault(section.group(1), Counter())
            continue
        match = _OPCODE.search(line)
        if match is None:
            continue
        letter, kind, text = match.groups()
        operands = [operand.strip() for operand in text.split(",")]
        if letter == "H" and kind == "FMA":
            if any(_ZERO.match(operand) for operand in operands[1:2]):
                continue  # a constant
            if _ZERO.match(operands[-1]):
                kind = "MUL"
        counts[_KINDS[kind]] += 1
    return found
