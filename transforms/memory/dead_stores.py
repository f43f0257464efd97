"""Removes dead stores: their bytes are overwritten, or local memory is discarded, before anything may read them.

For the bytes of every plain store, over bit vectors, backward, ∩ over successors:

    gen      an unguarded plain store overwrites these bytes; at an exit, the bytes of local memory
    kill     an access that may read one of them; a definition of a value that their base is computed from; and, for
             memory that other threads see, everything that orders it: barriers, fences, atomics, volatile accesses,
             lane exchanges, calls

A store is dead where later stores with its base, which are certain to be executed, cover its bytes. The solution is the
least one: a store after a loop that may not end is not certain. Only the bytes of *candidates* are followed: stores
with bytes that another store overwrites somewhere, or that an exit discards. Most kernels have none.

The host reads global memory after the kernel, and other threads may read shared memory after this one has ended. So
only local memory is discarded at an exit; in a function only the variables of the function itself. A thread that reads
the memory without any order may see the older value or the newer one, as it might before.

Requires: SSA view, value numbers, `Facts.memory`. Guarantees: every byte of global and shared memory is the same at
every barrier, fence, atomic, call and exit. Refuses: ordered stores, stores that a pragma describes, addresses that are
no simple reference.
Reference: Knoop, Rüthing, Steffen, *Partial Dead Code Elimination*, PLDI 1994 (total deadness only).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from ...analysis.effects import is_plain_store
from ...analysis.manager import Facts
from ...analysis.memoized import memoized
from ...analysis.memory.address_inputs import AddressLeaves
from ...analysis.memory.alias import Reference
from ...analysis.memory.alias_bitsets import ReferenceSet
from ...analysis.memory.touched_memory import synchronization
from ...ptx import Effect, Form, Instr, Kernel, Variable
from ...ptx.operations import Operation
from ..code_motion.expressions import is_described_by_pragma
from ..remarks import Remarks

__all__ = ["DeadStores"]

_MEMORY = Effect.READ | Effect.WRITE | Effect.BARRIER | Effect.ORDERED | Effect.ASYNC | Effect.CROSS_LANE

#: An instruction, the sites that it kills, and the sites that it generates, as bits.
_Step: TypeAlias = tuple[Instr, int, int]


@dataclass(frozen=True)
class DeadStores:
    """Removes stores to bytes that are overwritten, or discarded, before anything may read them."""

    name: ClassVar[str] = "deadstores"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Remove dead stores; whether there were any."""
        if not remarks.allows(self.name):
            return False
        sites = _Sites(facts)
        if not sites.candidates:
            return False
        overwritten = _Overwritten(facts, sites)
        dead: dict[int, list[Instr]] = {}  # block → its dead stores, the last one first
        for block in facts.cfg.rpo:
            stores = [store for store in overwritten.dead_in(block) if remarks.may_rewrite(self.name, store)]
            if stores:
                dead[block] = stores
                self._report(kernel, stores, remarks)
        for block, stores in dead.items():
            gone = set(stores)
            instrs = facts.cfg.blocks[block].instrs
            kernel.set_instrs(facts.cfg.blocks[block], [instr for instr in instrs if instr not in gone])
        removed = sum(map(len, dead.values()))
        remarks.count(kernel, self.name, "removed", removed)
        return removed > 0

    def _report(self, kernel: Kernel, stores: list[Instr], remarks: Remarks) -> None:
        for store in reversed(stores):
            message = f"'{store.form.text}' is dead: its bytes are overwritten or discarded before anything reads them"
            remarks.add("Passed", self.name, "DeadStore", kernel, message, instr=store)


class _Sites:
    """The *sites* of a kernel: the different references of its plain stores, numbered. Sets of sites are bits."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._cfg = facts.cfg
        self.memory = facts.memory
        self.references: list[Reference] = []
        #: Plain store → its site.
        self.of_store: dict[Instr, int] = {}
        #: Value (of the SSA view) → the sites whose address is computed from it.
        self.computed_from: dict[int, int] = {}
        self._find()
        self._set = ReferenceSet(self.memory, self.references)
        #: The sites in memory that only this thread reaches, and those whose bytes an exit discards.
        self.private = sum(1 << site for site, each in enumerate(self.references) if self.memory.is_private(each))
        self.discarded = self._find_discarded()
        #: Store that may be dead → its site.
        self.candidates = self._find_candidates()
        #: The sites that may cover bytes of a candidate. No others are followed.
        self.followed = 0
        for site in self.candidates.values():
            self.followed |= self.near(site)

    def _find(self) -> None:
        address_leaves = self._facts.get(AddressLeaves.of)
        numbers: dict[Reference, int] = {}
        for block in self._cfg.rpo:
            instrs = self._cfg.blocks[block].instrs
            for position in [at for at, instr in enumerate(instrs) if instr.form.operation is Operation.STORE]:
                instr = instrs[position]
                if not is_plain_store(instr) or is_described_by_pragma(instrs, position):
                    continue
                reference = self.memory.reference(instr)
                if reference is None or reference.space == "param":
                    continue
                leaves = address_leaves.of_instr(instr)
                if leaves is None:
                    continue
                site = numbers.get(reference)
                if site is None:
                    site = numbers[reference] = len(self.references)
                    self.references.append(reference)
                    for leaf in leaves:
                        self.computed_from[leaf] = self.computed_from.get(leaf, 0) | 1 << site
                self.of_store[instr] = site

    def _find_discarded(self) -> int:
        """The sites whose bytes are gone when the thread leaves the kernel, or this function."""
        discarded = 0
        for site in _members(self.private):
            objects = self.references[site].objects
            is_own = objects is not None and all(isinstance(each, Variable) for each in objects)
            if self._facts.kernel.is_entry or is_own:
                discarded |= 1 << site
        return discarded

    def _find_candidates(self) -> dict[Instr, int]:
        """The stores with bytes that another store overwrites without a guard somewhere, or that are discarded."""
        overwriting = [0] * len(self.references)
        for instr, site in self.of_store.items():
            overwriting[site] += instr.guard is None
        # In a loop without an end, a store comes after itself.
        is_endless = bool(self._cfg.endless)
        candidates: dict[Instr, int] = {}
        for instr, site in self.of_store.items():
            others = sum(overwriting[other] for other in _members(self.near(site)))
            if instr.guard is None and not is_endless:
                others -= 1
            if others or self.near(site) & self.discarded:
                candidates[instr] = site
        return candidates

    @memoized
    def near(self, site: int) -> int:
        """The sites that may share bytes with a site and have its base, itself among them."""
        near = 1 << site
        for other in self._set.near(self.references[site]):
            near |= 1 << other
        return near

    @memoized
    def covered_by(self, site: int) -> int:
        """The followed sites whose bytes lie within those of a site."""
        whole = self.references[site]
        covered = 0
        for other in _members(self.near(site) & self.followed):
            part = self.references[other]
            start = part.offset - whole.offset
            if part.space == whole.space and 0 <= start and start + part.bytes <= whole.bytes:
                covered |= 1 << other
        return covered

    def read_by(self, instr: Instr) -> int:
        """The followed sites that ``instr`` may read, or order before what other threads read."""
        form = instr.form
        if instr in self.of_store:
            return 0  # a plain store
        if form.is_opaque or form.is_call:
            return self.followed
        read = ~self.private if _orders(form) else 0
        for access in self.memory.accesses(instr):
            if access.reads:
                reference = self.memory.reference(instr)
                if reference is not None:
                    read |= self._set.overlapping(reference, self.followed)
                else:
                    read |= self._set.touched_by(access)
        return read & self.followed

    def is_covered(self, site: int, by: int) -> bool:
        """Whether the sites of ``by`` together cover all bytes of a site."""
        if by >> site & 1:
            return True
        whole = self.references[site]
        spans = sorted(
            (part.offset, part.offset + part.bytes)
            for other in _members(self.near(site) & by)
            if (part := self.references[other]).space == whole.space
        )
        reached = whole.offset
        for start, end in spans:
            if start > reached:
                break
            reached = max(reached, end)
        return reached >= whole.offset + whole.bytes


class _Overwritten:
    """The solution of the equations in the module's header, over the sites that are followed."""

    def __init__(self, facts: Facts, sites: _Sites) -> None:
        self._facts = facts
        self._cfg = facts.cfg
        self._sites = sites
        #: Block → the sites that its φs kill.
        self._killed_by_phis: dict[int, int] = {}
        #: Reachable block → the instructions that matter, in the order of the text.
        self._steps = self._find_steps()
        #: Block → the sites that are certain to be overwritten, or discarded, after its end.
        self._at_end = [0] * len(self._cfg)
        self._solve()

    def _find_steps(self) -> dict[int, list[_Step]]:
        sites, ssa = self._sites, self._facts.ssa
        redefined: dict[Instr, int] = {}  # instruction → the sites whose base it redefines
        for leaf, computed in sites.computed_from.items():
            instr = ssa.instr[leaf]
            if instr is not None:
                redefined[instr] = redefined.get(instr, 0) | computed & sites.followed
            else:  # a φ
                block = ssa.block[leaf]
                self._killed_by_phis[block] = self._killed_by_phis.get(block, 0) | computed & sites.followed
        steps: dict[int, list[_Step]] = {}
        for block in self._cfg.rpo:
            of_block = steps[block] = []
            instrs = self._cfg.blocks[block].instrs
            for instr in [each for each in instrs if each in redefined or each.form.effects & _MEMORY]:
                kill, gen = redefined.get(instr, 0), 0
                if instr.form.effects & _MEMORY and not instr.is_directive:
                    kill |= sites.read_by(instr)
                    site = sites.of_store.get(instr)
                    if site is not None and instr.guard is None:
                        gen = sites.covered_by(site)
                if kill or gen or instr in sites.candidates:
                    of_block.append((instr, kill, gen))
        return steps

    def _solve(self) -> None:
        cfg = self._cfg
        block_gen, block_kill = [0] * len(cfg), [0] * len(cfg)
        for block, steps in self._steps.items():
            for _, kill, gen in reversed(steps):
                block_gen[block] = block_gen[block] & ~kill | gen
                block_kill[block] |= kill
        at_start = [0] * len(cfg)
        exits = set(cfg.exits)
        discarded = self._sites.discarded & self._sites.followed
        changed = True
        while changed:
            changed = False
            for block in reversed(cfg.rpo):
                after = discarded if block in exits else self._sites.followed if cfg.succ[block] else 0
                for successor in cfg.succ[block]:
                    after &= at_start[successor]
                before = (block_gen[block] | after & ~block_kill[block]) & ~self._killed_by_phis.get(block, 0)
                if after != self._at_end[block] or before != at_start[block]:
                    self._at_end[block], at_start[block] = after, before
                    changed = True

    def dead_in(self, block: int) -> Iterator[Instr]:
        """The dead stores of a block, the last one first."""
        after = self._at_end[block]
        for instr, kill, gen in reversed(self._steps[block]):
            site = self._sites.candidates.get(instr)
            if site is not None and self._sites.is_covered(site, after):
                yield instr
                continue  # the stores before it are tested as if it were gone
            after = after & ~kill | gen


def _members(sites: int) -> Iterator[int]:
    """The numbers of the bits that are set, ascending."""
    while sites:
        low = sites & -sites
        sites ^= low
        yield low.bit_length() - 1


def _orders(form: Form) -> bool:
    return bool(synchronization(form)) or form.effects & Effect.CROSS_LANE != 0
