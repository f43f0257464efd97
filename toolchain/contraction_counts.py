"""The number of sums that ptxas contracts, counted in machine code.

Computes: for each kernel of a module, the floating-point multiply-adds, sums and products in its machine code, and
``contracted``, the number of additional multiply-adds against ``ptxas --fmad false``. A pragma forbids unrolling, so
each instruction of the PTX counts once, and the unroll factor that ptxas chooses has no influence.

An FMA of a packed half type with a zero addend counts as a product: from sm_100 on, there is no other instruction for
such a product. One with the factor 1 counts as a sum: for some of the sums of bfloat16, ptxas chooses it instead of an
addition.

Requires: ptxas and nvdisasm. Guarantees: equal input gives equal output. Refuses: with `PtxasError`, a module that
ptxas refuses.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from ..ptx import RawDirective, parse, print_module
from .round_trip import sections
from .tools import assemble, disassemble

__all__ = ["FloatCounts", "contraction_counts"]

_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_OPCODE = re.compile(r"\b([FDH])(FMA|ADD|MUL)2?(?:\.[\w.]+)?\s+([^;]*);")
_KINDS = {"FMA": "fma", "ADD": "add", "MUL": "mul"}
_ZERO = re.compile(r"^-?RZ\b")


@dataclass(frozen=True, slots=True)
class FloatCounts:
    """Counts of machine instructions of a kernel. ``contracted``: the ``fma`` that are a product and a sum in PTX."""

    fma: int = 0
    add: int = 0
    mul: int = 0
    contracted: int = 0


def contraction_counts(ptx: str, arch: str | None = None) -> dict[str, FloatCounts]:
    """The counts of each kernel of the module."""
    module = parse(ptx)
    module.items.insert(0, RawDirective('.pragma "nounroll";'))
    text = print_module(module)
    contracting, rounding = assemble(text, arch).cubin, assemble(text, arch, flags=("--fmad", "false")).cubin
    plain = _counted(disassemble(contracting))
    # nvdisasm takes most of the time, and where ptxas contracts nothing, the code is the same.
    rounded = plain if sections(contracting) == sections(rounding) else _counted(disassemble(rounding))
    return {
        name: FloatCounts(counts["fma"], counts["add"], counts["mul"], counts["fma"] - rounded[name]["fma"])
        for name, counts in plain.items()
    }


def _counted(listing: str) -> dict[str, Counter[str]]:
    """counts[section][kind]: the number of instructions of a kind in a section of code."""
    by_section: dict[str, Counter[str]] = {}
    counts: Counter[str] = Counter()
    for line in listing.splitlines():
        section = _SECTION.match(line)
        if section is not None:
            counts = by_section.setdefault(section.group(1), Counter())
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
            elif operands[2:4] == ["1", "1"]:
                kind = "ADD"
        counts[_KINDS[kind]] += 1
    return by_section
