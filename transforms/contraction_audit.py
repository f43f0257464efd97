"""The last step after the passes: ptxas contracts each sum as it did before.

Computes: a comparison of the products of the kernel as it is now with those that it had before the passes
(`analysis/values/contraction.py`). A product that was rounded, and that ptxas might contract now, gets ``.rn``. It was
rounded before, so its readers see the same bits. Where its opcode has no ``.rn``, the sums that read it get ``.rn``,
if they read no other product that may be contracted.

Requires: the `Contraction` of the kernel before the passes; passes keep the instructions in its ``fixed`` as the same
objects. Guarantees: unless `keep_contraction` returns -1, ptxas contracts the same sums with the same products as
before. For *open* products this holds only if the machine code is compared, too (`machine_contraction.py`). Refuses:
kernels in which a product that may be contracted has other readers than before, or the same readers in other blocks.
The caller then reverts the kernel.
"""

from __future__ import annotations

from ..analysis.manager import Facts
from ..analysis.values.contraction import Contraction, Product, pinned
from ..ptx import Instr, Kernel

__all__ = ["keep_contraction"]


def keep_contraction(kernel: Kernel, facts: Facts, before: Contraction, *, is_compared: bool = False) -> int:
    """Give ``.rn`` to the instructions that need it. Returns their number, or -1 where that does not suffice.

    ``is_compared``: the caller compares the machine code of ``before.fixed`` (`machine_contraction.py`). Then it
    suffices that no new sum reads an open or paired product.
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
    """Whether the results of a product that ptxas may contract are read by the same instructions as before, apart from
    those whose results are not used any more."""
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
    """Whether a product that ptxas may contract can be contracted with the same sums as before, apart from sums whose
    results are not used any more."""
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
            return None  # its other readers are not known
    return pins


def _was_rounded(instr: Instr, before: Contraction) -> bool:
    old = before.products.get(instr)
    return old is None or old.kind == "rounded"


def _stays_rounded(instr: Instr, new: Product, before: Contraction) -> bool:
    old = before.products.get(instr)
    return new.kind == "rounded" and new.sums <= (old.sums if old is not None else frozenset[Instr]())
