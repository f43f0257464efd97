"""The last step after the passes: no sum is contracted otherwise than before.

Computes: the products of the kernel as it is now (`analysis/values/contraction.py`) against those that it had. A
product that was rounded and might not be any more, or that a sum reads which did not, gets ``.rn``: it was rounded, so
its readers see the same bits. Where the opcode has no ``.rn`` the sums get it, if nothing else that they read is
contracted.

Requires: the `Contraction` of the kernel before the passes; that passes leave the instructions in its ``fixed`` as the
objects that they are. Guarantees: where `is_kept` says yes, ptxas contracts each sum with the product with which it
contracted it before, or with none as before; of *open* products only together with the comparison of machine code
(`machine_contraction.py`). Refuses: kernels in which a product that may be contracted has other
readers than before, or the same ones in other blocks; the caller then reverts the kernel.
"""

from __future__ import annotations

from ..analysis.manager import Facts
from ..analysis.values.contraction import Contraction, Product, pinned
from ..ptx import Instr, Kernel

__all__ = ["keep_contraction"]


def keep_contraction(kernel: Kernel, facts: Facts, before: Contraction, *, is_compared: bool = False) -> int:
    """Pin what has to be pinned: the number of instructions that got ``.rn``; -1 where pins are not enough.

    ``is_compared``: the caller compares what became of ``before.fixed`` in machine code (`machine_contraction.py`).
    Then it is enough that no further sum reads an open or paired product.
    """
    after = facts.get(Contraction.of)
    check = _has_no_new_sum if is_compared else _is_unchanged
    if not all(check(instr, product, after) for instr, product in before.products.items()):
        return -1
    pins = _pins(before, after)
    if pins is None:
        return -1
    for instr, mnemonic in pins.items():
        kernel.replace_form(instr, mnemonic)
    return len(pins)


def _is_unchanged(instr: Instr, old: Product, after: Contraction) -> bool:
    """Whether a product that was not rounded has the readers that it had, as far as they are still needed."""
    if old.kind == "rounded":
        return True
    new = after.products.get(instr)
    if new is None:
        return not any(reader in after.live for reader, _, _ in old.readers)
    if old.kind in ("paired", "open"):
        return new.kind == old.kind and new.readers == old.readers
    gone = old.sums - new.sums
    return new.kind == "contracted" and new.sums <= old.sums and gone.isdisjoint(after.live)


def _has_no_new_sum(instr: Instr, old: Product, after: Contraction) -> bool:
    """Whether a product that was not rounded has no other sums than before, and none has lost it that is needed."""
    if old.kind == "rounded":
        return True
    new = after.products.get(instr)
    sums = new.sums if new is not None else frozenset[Instr]()
    return sums <= old.sums and (old.sums - sums).isdisjoint(after.live)


def _pins(before: Contraction, after: Contraction) -> dict[Instr, str] | None:
    """The instructions that need ``.rn``, with their new mnemonics; `None` where one of them has no such form."""
    pins: dict[Instr, str] = {}
    was_rounded = {instr for instr in after.products if _was_rounded(instr, before)}
    places = {instr.pos for instr, old in before.products.items() if old.kind != "rounded" and instr.pos >= 0}
    for instr, new in after.products.items():
        if instr not in was_rounded or _stays_rounded(instr, new, before):
            continue
        if instr not in before.products and instr.pos in places:
            return None  # a copy of a product that may be contracted
        mnemonic = pinned(instr.form)
        if mnemonic is not None:
            pins[instr] = mnemonic
            continue
        for each in new.sums:
            mnemonic = pinned(each.form)
            if mnemonic is None or not after.sources[each] <= was_rounded:
                return None
            pins[each] = mnemonic
        if new.kind == "open" and not new.sums:
            return None  # it goes where it cannot be followed
    return pins


def _was_rounded(instr: Instr, before: Contraction) -> bool:
    old = before.products.get(instr)
    return old is None or old.kind == "rounded"


def _stays_rounded(instr: Instr, new: Product, before: Contraction) -> bool:
    old = before.products.get(instr)
    return new.kind == "rounded" and new.sums <= (old.sums if old is not None else frozenset[Instr]())
