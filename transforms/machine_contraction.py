"""Whether ptxas contracts the same sums in two versions of a kernel, read from machine code.

`analysis/values/contraction.py` cannot decide from PTX whether an *open* product is contracted. Where the gate has
ptxas, this module compares the machine code of the kernel before and after the passes instead. Passes keep open
products and their sums as the same objects, so the same sum can be found in both versions.

Computes: for each product that ptxas may contract, and for each of its sums, the kinds of its floating-point machine
instructions (`toolchain/float_lines.py`).
Requires: an entry without calls. A function is assembled into its callers, which are not compared.
Guarantees: where `is_same` is true, the gate's ptxas contracts in both versions the same sums, each with the same
product, in every copy of them that it made. This does not extend to another ptxas, another architecture or another
optimization level.
Refuses: sums that are contracted in some copies only, sums without a machine instruction (ptxas merged them with
others), and contracted sums whose product is not known. These count as different.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..analysis.values.contraction import Contraction
from ..ptx import Instr, Kernel, Module
from .gate.judge import ReadsFloatCode
from .gate.search import module_of

__all__ = ["Snapshot", "can_compare", "is_same"]


def can_compare(kernel: Kernel) -> bool:
    """Whether the machine code of ``kernel`` alone shows what is contracted in it."""
    return kernel.is_entry and not any(instr.form.is_call for instr in kernel.instructions())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A kernel before the passes: its ``contraction``, a copy, and the ``instrs`` of the kernel.

    ``judged`` has the same instructions in the same order, and is what ptxas gets. It is the kernel as it was given,
    also with nested scopes: the gate assembles the same text, so ptxas runs once for both.
    """

    contraction: Contraction
    copy: Kernel
    judged: Kernel
    instrs: tuple[Instr, ...]

    @classmethod
    def of(cls, kernel: Kernel, contraction: Contraction, with_scopes: Kernel | None) -> Snapshot:
        """The snapshot of ``kernel`` as it is now. ``with_scopes``: a copy that was made before its nested scopes
        were flattened, if it had any."""
        copy = kernel.clone()
        return cls(contraction, copy, with_scopes or copy, tuple(kernel.instructions()))

    def contracts_the_same(
        self, judge: ReadsFloatCode, module: Module, kernel: Kernel, live: set[Instr], copies: Mapping[Instr, Instr]
    ) -> bool:
        """Whether ptxas contracts the same sums in ``kernel``, an entry of ``module``, after the passes.

        ``live`` are its instructions whose effect or result is needed. ``copies``: by copied instruction its original.
        Raises `Refused`.
        """
        before = self._before(judge, module, copies)
        after = _float_code(judge, module, kernel)
        contraction = self.contraction.with_copies(copies)
        return is_same(contraction, live, before, dict(zip(kernel.instructions(), after, strict=True)))

    def rounded_copies(self, judge: ReadsFloatCode, module: Module, copies: Mapping[Instr, Instr]) -> list[Instr]:
        """The copies of products that ptxas rounds in the original, as its machine code shows: the product has an
        instruction, and none of its sums is an FMA. Raises `Refused`."""
        before = self._before(judge, module, copies)
        found: list[Instr] = []
        for copy, original in copies.items():
            product = self.contraction.products.get(original)
            if product is None or product.kind == "rounded" or not before[original]:
                continue
            if all(before[each] and "fma" not in before[each] for each in product.sums):
                found.append(copy)
        return found

    def _before(
        self, judge: ReadsFloatCode, module: Module, copies: Mapping[Instr, Instr]
    ) -> dict[Instr, frozenset[str]]:
        """The kinds of machine instructions before the passes: of the originals, and for copies those of their
        originals."""
        code = dict(zip(self.instrs, _float_code(judge, module, self.judged), strict=True))
        code.update({copy: code[original] for copy, original in copies.items() if original in code})
        return code


def _float_code(judge: ReadsFloatCode, module: Module, kernel: Kernel) -> list[frozenset[str]]:
    """For each instruction of ``kernel`` the kinds of its floating-point machine instructions."""
    return judge.float_code(module_of(module, [kernel], {kernel.name: kernel}))[kernel.name]


def is_same(
    contraction: Contraction,
    live: set[Instr],
    before: Mapping[Instr, frozenset[str]],
    after: Mapping[Instr, frozenset[str]],
) -> bool:
    """Whether ptxas contracts the same sums.

    ``contraction`` is that of the kernel before the passes, ``live`` are the live instructions after them. ``before``
    and ``after`` map instructions to the kinds of their machine instructions.
    """
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
    # The sum was contracted with one of the products that it may read: with one that has no machine instruction. Where
    # there are two products, the other one may be rounded. Where there are more, all of them must be contracted.
    products = contraction.sources.get(instr, set())
    rounded = sum(bool(before[product]) for product in products)
    return rounded < len(products) if len(products) <= 2 else not rounded
