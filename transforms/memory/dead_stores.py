"""Dead stores: what this thread overwrites, or its local memory forgets, before anybody may read it.

For the bytes of every plain store, over bit vectors, backward, ∩ over successors:

    gen      an unguarded plain store overwrites these bytes; at an exit, the bytes of local memory
    kill     an access that may read one of them; a definition of what their base is computed from; and, for memory
             that others see, whatever orders it: barriers, fences, atomics, volatile accesses, lane exchanges, calls

A store is dead where other stores with its base, all certain behind it, cover its bytes. The solution is the least one:
an overwriting store that is behind a loop which may turn for ever is not certain. Only the bytes of *candidates* are
asked for, stores with bytes that another one overwrites somewhere, or that an exit forgets: mostly there are none.

Global memory is read by the host after the kernel, and shared memory by other threads after this one has ended, so only
local memory is dead at an exit; in a function only its own variables. A thread that reads the memory without any order
may still see the older value or the newer one, as it might have before.

Requires: SSA view, value numbers, `Facts.memory`. Guarantees: every byte of global and shared memory is the same at
every barrier, fence, atomic, call and exit. Refuses: ordered stores, stores that a pragma speaks of, addresses that
are no simple reference.
Reference: Knoop, Rüthing, Steffen, *Partial Dead Code Elimination*, PLDI 1994 (total deadness only).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

from ...analysis.effects import is_plain_store
from ...analysis.manager import Facts
from ...analysis.memory.address_inputs import AddressLeaves
from ...analysis.memory.alias import Reference
from ...analysis.memory.alias_bitsets import ReferenceSet
from ...analysis.memory.touched_memory import synchronization
from ...ptx import Effect, Form, Instr, Kernel, Variable
from ...ptx.operations import Operation
from ..code_motion.expressions import is_spoken_of
from ..remarks import Remarks

__all__ = ["DeadStores"]

_MEMORY = Effect.READ | Effect.WRITE | Effect.BARRIER | Effect.ORDERED | Effect.ASYNC | Effect.CROSS_LANE
#: An instruction, the sites that are not certain before it, and those that are.
_Step: TypeAlias = tuple[Instr, int, int]


@dataclass(frozen=True)
class DeadStores:
    """Removes stores to bytes that are overwritten, or forgotten, before anybody may read them."""

    name: ClassVar[str] = "deadstores"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Remove dead stores; whether there were any."""
        if not remarks.allows(self.name):
            return False
        overwritten = _Overwritten(facts)
        if not overwritten.candidates:
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
    """The solution of the equations in the header. ``sites`` are the references of all plain stores, ``candidates``
    the numbers of the sites of those stores that may be dead."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.cfg = facts.cfg
        self.memory = facts.memory
        self.sites: list[Reference] = []
        self._number: dict[Reference, int] = {}
        self._killed_by: dict[int, int] = {}
        self._stores: dict[Instr, int] = {}
        self._find_sites()
        self._set = ReferenceSet(self.memory, self.sites)
        self._near: dict[int, int] = {}
        self.candidates = self._find_candidates()
        if not self.candidates:
            return
        #: The sites that may cover bytes of a candidate; no others are followed.
        self._asked = 0
        for number in self.candidates.values():
            self._asked |= self._near_to(number)
        self._covered: dict[int, int] = {}
        self._at_start: dict[int, int] = {}
        self._steps = self._find_steps()
        self.exit = [0] * len(self.cfg)
        self._solve()

    def _find_sites(self) -> None:
        address_leaves = self.facts.get(AddressLeaves.of)
        for block in self.cfg.rpo:
            instrs = self.cfg.blocks[block].instrs
            for position in [at for at, instr in enumerate(instrs) if instr.form.operation is Operation.STORE]:
                instr = instrs[position]
                if not is_plain_store(instr) or is_spoken_of(instrs, position):
                    continue
                reference = self.memory.reference(instr)
                if reference is None or reference.space == "param":
                    continue
                leaves = address_leaves.of_instr(instr)
                if leaves is None:
                    continue
                number = self._number.get(reference)
                if number is None:
                    number = self._number[reference] = len(self.sites)
                    self.sites.append(reference)
                    for leaf in leaves:
                        self._killed_by[leaf] = self._killed_by.get(leaf, 0) | 1 << number
                self._stores[instr] = number

    def _find_candidates(self) -> dict[Instr, int]:
        """The stores with bytes that another store overwrites without a guard somewhere, or that are forgotten."""
        overwriting = [0] * len(self.sites)
        for instr, number in self._stores.items():
            overwriting[number] += instr.guard is None
        # Where a loop has no end, the store in it is behind itself.
        is_endless = bool(self.cfg.endless)
        found: dict[Instr, int] = {}
        for instr, number in self._stores.items():
            others = sum(overwriting[other] for other in self._members(self._near_to(number)))
            if instr.guard is None and not is_endless:
                others -= 1
            if others or self._near_to(number) & self._forgotten:
                found[instr] = number
        return found

    def _near_to(self, number: int) -> int:
        """The sites that may share bytes with a site and have its base; itself among them."""
        found = self._near.get(number)
        if found is None:
            found = 1 << number
            for other in self._set.near(self.sites[number]):
                found |= 1 << other
            self._near[number] = found
        return found

    @staticmethod
    def _members(bits: int) -> Iterator[int]:
        while bits:
            low = bits & -bits
            bits ^= low
            yield low.bit_length() - 1

    @cached_property
    def _private(self) -> int:
        return sum(1 << number for number, site in enumerate(self.sites) if self.memory.is_private(site))

    @cached_property
    def _forgotten(self) -> int:
        """The sites whose bytes are gone when the thread leaves the kernel, or this function."""
        found = 0
        for number in self._members(self._private):
            objects = self.sites[number].objects
            is_own = objects is not None and all(isinstance(each, Variable) for each in objects)
            if self.facts.kernel.is_entry or is_own:
                found |= 1 << number
        return found

    # --- transfer --------------------------------------------------------------------------------------------------

    def _find_steps(self) -> dict[int, list[_Step]]:
        """By reachable block the instructions that matter in it, in the order of the text."""
        ssa = self.facts.ssa
        redefined: dict[Instr, int] = {}
        for leaf, sites in self._killed_by.items():
            instr = ssa.instr[leaf]
            if instr is not None:
                redefined[instr] = redefined.get(instr, 0) | sites & self._asked
            else:  # a φ
                block = ssa.block[leaf]
                self._at_start[block] = self._at_start.get(block, 0) | sites & self._asked
        steps: dict[int, list[_Step]] = {}
        for block in self.cfg.rpo:
            found = steps[block] = []
            instrs = self.cfg.blocks[block].instrs
            for instr in [each for each in instrs if each in redefined or each.form.effects & _MEMORY]:
                lost, certain = redefined.get(instr, 0), 0
                if instr.form.effects & _MEMORY and not instr.is_directive:
                    lost |= self._seen_by(instr)
                    number = self._stores.get(instr)
                    if number is not None and instr.guard is None:
                        certain = self._covered_by(number)
                if lost or certain or instr in self.candidates:
                    found.append((instr, lost, certain))
        return steps

    def _seen_by(self, instr: Instr) -> int:
        """The sites that ``instr`` may read, or order before what others read."""
        form = instr.form
        if instr in self._stores:
            return 0  # a plain store
        if form.is_opaque or form.is_call:
            return self._asked
        seen = ~self._private if _orders(form) else 0
        for access in self.memory.accesses(instr):
            if access.reads:
                reference = self.memory.reference(instr)
                if reference is not None:
                    seen |= self._set.overlapping(reference, self._asked)
                else:
                    seen |= self._set.touched_by(access)
        return seen & self._asked

    def _covered_by(self, number: int) -> int:
        """The sites whose bytes lie in those of a site."""
        found = self._covered.get(number)
        if found is None:
            whole = self.sites[number]
            found = 0
            for other in self._members(self._near_to(number) & self._asked):
                part = self.sites[other]
                start = part.offset - whole.offset
                if part.space == whole.space and 0 <= start and start + part.bytes <= whole.bytes:
                    found |= 1 << other
            self._covered[number] = found
        return found

    # --- solution --------------------------------------------------------------------------------------------------

    def _solve(self) -> None:
        cfg = self.cfg
        gen, kill = [0] * len(cfg), [0] * len(cfg)
        for block, steps in self._steps.items():
            for _, lost, certain in reversed(steps):
                gen[block] = gen[block] & ~lost | certain
                kill[block] |= lost
        entry = [0] * len(cfg)
        exits = set(cfg.exits)
        forgotten = self._forgotten & self._asked
        changed = True
        while changed:
            changed = False
            for block in reversed(cfg.rpo):
                after = forgotten if block in exits else self._asked if cfg.succ[block] else 0
                for successor in cfg.succ[block]:
                    after &= entry[successor]
                before = (gen[block] | after & ~kill[block]) & ~self._at_start.get(block, 0)
                if after != self.exit[block] or before != entry[block]:
                    self.exit[block], entry[block] = after, before
                    changed = True

    def dead_in(self, block: int) -> Iterator[Instr]:
        """The dead stores of a block."""
        after = self.exit[block]
        for instr, lost, certain in reversed(self._steps[block]):
            number = self.candidates.get(instr)
            if number is not None and self._is_covered(number, after):
                yield instr
                continue  # so the rest of the block is as if it were not there
            after = after & ~lost | certain

    def _is_covered(self, number: int, after: int) -> bool:
        """Whether the sites of ``after`` cover all bytes of a site."""
        if after >> number & 1:
            return True
        whole = self.sites[number]
        spans = sorted(
            (part.offset, part.offset + part.bytes)
            for other in self._members(self._near_to(number) & after)
            if (part := self.sites[other]).space == whole.space
        )
        reached = whole.offset
        for start, end in spans:
            if start > reached:
                break
            reached = max(reached, end)
        return reached >= whole.offset + whole.bytes


def _orders(form: Form) -> bool:
    return bool(synchronization(form)) or form.effects & Effect.CROSS_LANE != 0
