"""Dead stores: what this thread overwrites, or its local memory forgets, before anybody may read it.

For the bytes of every plain store, over bit vectors, backward, ∩ over successors:

    gen      an unguarded plain store overwrites these bytes; at an exit, the bytes of local memory
    kill     an access that may read one of them; a definition of what their base is computed from; and, for memory
             that others see, whatever orders it: barriers, fences, atomics, volatile accesses, lane exchanges, calls

A store is dead where other stores with its base, all certain behind it, cover its bytes. The solution is the least one:
an overwriting store that is behind a loop which may turn for ever is not certain.

Global memory is read by the host after the kernel, and shared memory by other threads after this one has ended, so only
local memory is dead at an exit; in a function only its own variables. A thread that reads the memory without any order
may still see the older value or the newer one, as it might have before.

Requires: SSA view, value numbers, `Facts.memory`. Guarantees: every byte of global and shared memory is the same at
every barrier, fence, atomic, call and exit. Refuses: ordered stores, stores that a pragma speaks of, addresses that
are no simple reference.
Reference: Knoop, Rüthing, Steffen, *Partial Dead Code Elimination*, PLDI 1994 (total deadness only); shared notes §5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ..analysis.alias import Reference
from ..analysis.dereferences import Dereferences
from ..analysis.effects import is_plain_store
from ..analysis.manager import Facts
from ..analysis.memory_effects import synchronization
from ..analysis.reference_sets import ReferenceSet
from ..ptx import Effect, Form, Instr, Kernel, Variable
from .expressions import is_spoken_of
from .remarks import Remarks

__all__ = ["DeadStores"]

_MEMORY = Effect.READ | Effect.WRITE | Effect.BARRIER | Effect.ORDERED | Effect.ASYNC | Effect.CROSS_LANE


@dataclass(frozen=True)
class DeadStores:
    """Removes stores to bytes that are overwritten, or forgotten, before anybody may read them."""

    name: ClassVar[str] = "deadstores"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Remove dead stores; whether there were any."""
        if not remarks.allows(self.name):
            return False
        overwritten = _Overwritten(facts)
        if not overwritten.sites:
            return False
        cfg = facts.cfg
        dead: dict[int, set[Instr]] = {}
        for block in cfg.rpo:
            found = [store for store in overwritten.dead_in(block) if remarks.may_rewrite(self.name, store)]
            if found:
                dead[block] = set(found)
                for store in reversed(found):
                    message = (
                        f"'{store.form.text}' is dead: its bytes are overwritten or gone before anybody reads them"
                    )
                    remarks.add("Passed", self.name, "DeadStore", kernel, message, instr=store)
        removed = 0
        for block, found in dead.items():
            kept = [instr for instr in cfg.blocks[block].instrs if instr not in found]
            removed += len(cfg.blocks[block].instrs) - len(kept)
            kernel.set_instrs(cfg.blocks[block], kept)
        remarks.count(kernel, self.name, "removed", removed)
        return removed > 0


class _Overwritten:
    """The solution of the equations in the header. ``sites`` are the references of all plain stores."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.cfg = facts.cfg
        self.memory = facts.memory
        self.sites: list[Reference] = []
        self._number: dict[Reference, int] = {}
        self._killed_by: dict[int, int] = {}
        self._stores: dict[Instr, int] = {}
        self._find_sites()
        if not self.sites:
            return
        self._set = ReferenceSet(self.memory, self.sites)
        self.private = sum(1 << number for number, site in enumerate(self.sites) if self.memory.is_private(site))
        self.forgotten = sum(1 << number for number, site in enumerate(self.sites) if self._is_forgotten(site))
        self._covered: dict[int, int] = {}
        self._seen: dict[Instr, int] = {}
        self.exit = [0] * len(self.cfg)
        self._solve()

    def _find_sites(self) -> None:
        leaves_of = self.facts.get(Dereferences).leaves_of_address
        for block in self.cfg.rpo:
            instrs = self.cfg.blocks[block].instrs
            for position, instr in enumerate(instrs):
                if not is_plain_store(instr) or is_spoken_of(instrs, position):
                    continue
                reference = self.memory.reference(instr)
                leaves = leaves_of(instr)
                if reference is None or reference.space == "param" or leaves is None:
                    continue
                number = self._number.get(reference)
                if number is None:
                    number = self._number[reference] = len(self.sites)
                    self.sites.append(reference)
                    for leaf in leaves:
                        self._killed_by[leaf] = self._killed_by.get(leaf, 0) | 1 << number
                self._stores[instr] = number

    def _is_forgotten(self, site: Reference) -> bool:
        """Whether the bytes are gone when the thread leaves the kernel, or this function."""
        if not self.memory.is_private(site):
            return False
        own = site.objects is not None and all(isinstance(each, Variable) for each in site.objects)
        return self.facts.kernel.is_entry or own

    # --- transfer --------------------------------------------------------------------------------------------------

    def _before(self, instr: Instr, after: int) -> int:
        """What is certain to be overwritten before ``instr``, given what is behind it."""
        if instr.is_directive:
            return after
        killed_by, ssa = self._killed_by, self.facts.ssa
        for reg in instr.defs():
            killed = killed_by.get(ssa.defined(instr, reg))
            if killed:
                after &= ~killed
        if instr.form.effects & _MEMORY:
            after &= ~self._seen_by(instr)
            number = self._stores.get(instr)
            if number is not None and instr.guard is None:
                after |= self._covered_by(number)
        return after

    def _seen_by(self, instr: Instr) -> int:
        """The sites that ``instr`` may read, or order before what others read."""
        found = self._seen.get(instr)
        if found is None:
            found = self._seen[instr] = self._find_seen_by(instr)
        return found

    def _find_seen_by(self, instr: Instr) -> int:
        form = instr.form
        if form.is_opaque or form.op.base == "call":
            return -1
        seen = ~self.private if _orders(form) else 0
        for access in self.memory.accesses(instr):
            if access.reads:
                reference = self.memory.reference(instr)
                seen |= self._set.overlapping(reference) if reference is not None else self._set.touched_by(access)
        return seen

    def _covered_by(self, number: int) -> int:
        """The sites whose bytes lie in those of a site."""
        found = self._covered.get(number)
        if found is None:
            whole = self.sites[number]
            found = 1 << number
            for other in self._set.near(whole):
                part = self.sites[other]
                start = part.offset - whole.offset
                if part.space == whole.space and 0 <= start and start + part.bytes <= whole.bytes:
                    found |= 1 << other
            self._covered[number] = found
        return found

    # --- solution --------------------------------------------------------------------------------------------------

    def _solve(self) -> None:
        cfg = self.cfg
        entry = [0] * len(cfg)
        exits = set(cfg.exits)
        everything = (1 << len(self.sites)) - 1
        changed = True
        while changed:
            changed = False
            for block in reversed(cfg.rpo):
                after = self.forgotten if block in exits else everything if cfg.succ[block] else 0
                for successor in cfg.succ[block]:
                    after &= entry[successor]
                before = after
                for instr in reversed(cfg.blocks[block].instrs):
                    before = self._before(instr, before)
                for phi in self.facts.ssa.phis[block]:
                    before &= ~self._killed_by.get(phi, 0)
                if after != self.exit[block] or before != entry[block]:
                    self.exit[block], entry[block] = after, before
                    changed = True

    def dead_in(self, block: int) -> Iterator[Instr]:
        """The dead stores of a block."""
        after = self.exit[block]
        for instr in reversed(self.cfg.blocks[block].instrs):
            number = self._stores.get(instr)
            if number is not None and self._is_covered(number, after):
                yield instr
                continue  # so the rest of the block is as if it were not there
            after = self._before(instr, after)

    def _is_covered(self, number: int, after: int) -> bool:
        """Whether the sites of ``after`` cover all bytes of a site."""
        if after >> number & 1:
            return True
        whole = self.sites[number]
        spans = sorted(
            (part.offset, part.offset + part.bytes)
            for other in self._set.near(whole)
            if after >> other & 1 and (part := self.sites[other]).space == whole.space
        )
        reached = whole.offset
        for start, end in spans:
            if start > reached:
                break
            reached = max(reached, end)
        return reached >= whole.offset + whole.bytes


def _orders(form: Form) -> bool:
    return bool(synchronization(form)) or form.effects & Effect.CROSS_LANE != 0
