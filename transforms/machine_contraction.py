"""Whether ptxas contracts the same sums in two versions of a kernel, read from machine code.

`analysis/values/contraction.py` cannot tell from PTX what becomes of an *open* product. Where the gate has ptxas, this
module compares the machine code of the kernel before and after the passes instead. Passes leave open products and
their sums as the objects that they are, so that the same sum can be found in both versions.

Computes: for each product that ptxas may contract, and for each of its sums, the kinds of floating-point machine
instructions made of it (`toolchain/float_lines.py`).
Requires: an entry that calls nothing. A function is assembled into its callers, which are not compared.
Guarantees: where `is_same` is true, the gate's ptxas contracts in both versions the same sums, each with the same
product, in every copy that it made of them. This does not extend to another ptxas, another architecture or another
optimization level.
Refuses: sums that are contracted in some copies only, sums of which there is no machine instruction (ptxas merged them
with others), and contracted sums whose product cannot be told. The kernel then counts as changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..analysis.values.contraction import Contraction
from ..ptx import Instr, Kernel, Module
from .gate.judge import ReadsFloatCode
from .gate.search import module_of

__all__ = ["can_compare", "float_code", "is_same"]


def can_compare(kernel: Kernel) -> bool:
    """Whether all that decides what is contracted in ``kernel`` stands in its own machine code."""
    return kernel.is_entry and not any(instr.form.op.base == "call" for instr in kernel.instructions())


def float_code(judge: ReadsFloatCode, module: Module, kernel: Kernel) -> list[frozenset[str]]:
    """For each instruction of ``kernel``, an entry of ``module``, the kinds of machine instructions made of it. Raises
    `Refused`."""
    return judge.float_code(module_of(module, [kernel], {kernel.name: kernel}))[kernel.name]


def is_same(
    contraction: Contraction,
    live: set[Instr],
    before: Mapping[Instr, frozenset[str]],
    after: Mapping[Instr, frozenset[str]],
) -> bool:
    """Whether ptxas contracts the same sums. ``contraction`` is of the kernel before, ``live`` of the kernel after."""
    return all(
        instr in after and _is_same(instr, contraction, before, after) for instr in contraction.fixed if instr in live
    )


def _is_same(
    instr: Instr,
    contraction: Contraction,
    before: Mapping[Instr, frozenset[str]],
    after: Mapping[Instr, frozenset[str]],
) -> bool:
    if instr in contraction.products:
        return bool(before[instr]) == bool(after[instr])
    if len(before[instr]) != 1 or before[instr] != after[instr]:
        return False
    if "fma" not in before[instr]:
        return True
    # One of the products that the sum may see was contracted with it: one of which there is no instruction. Of two
    # products the other one may be rounded. Of more it cannot be told which one the sum saw.
    products = contraction.sources.get(instr, set())
    rounded = sum(bool(before[product]) for product in products)
    return rounded < len(products) if len(products) <= 2 else not rounded
