"""Which addresses a thread certainly dereferences after a program point, and which before it.

A *site* is (space, base, offset, bytes) of a load, store or atomic without a guard. Two dataflow problems over sets of
sites, with gen and kill of straight-line code:

    past(b)    dereferenced on every path from the entry to the end of b                     (forward, ∩, greatest)
    future(b)  dereferenced on every path from the end of b, after finitely many blocks       (backward, ∩, least)

``future`` is the *least* solution, because an infinite path in a loop never reaches the code after the loop. At an exit
``future`` is empty. Nothing is anticipated across an instruction that may wait for another thread or never return:
barriers, lane exchanges, calls, unknown opcodes, asynchronous instructions. After a call ``past`` is empty, because the
call may free memory.

A base is a class of values. So a site is killed where one of the values from which its base is computed is defined
again (`address_inputs.py`). A definition that computes the same value again changes nothing.

Requires: value numbers and their SSA view.
Guarantees: if a site is in a set at the end of a block, and a value of the class of its base is available there,
``base + offset`` is the address that is dereferenced.
Reference: AF ("on all paths eventually") of CTL (Clarke, Emerson 1981).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from ...ptx import Effect, Form, Instr
from ...ptx.operations import PLAIN_ACCESSES
from ..effects import may_not_return
from .address_inputs import AddressLeaves
from .alias import Reference

if TYPE_CHECKING:
    from ..manager import Facts

__all__ = ["Dereferences"]

#: (form of an instruction, site that it dereferences, sites whose base it defines again); sites as bits.
_Event: TypeAlias = tuple[Form, int, int]


class Dereferences:
    """The sets of one kernel, as bit vectors over ``sites``."""

    def __init__(self, facts: Facts) -> None:
        self.cfg = facts.cfg
        self.memory = facts.memory
        self.ssa = self.memory.values.ssa
        self.sites: list[Reference] = []
        #: By (space, base): its sites, as bits.
        self.of_base: dict[tuple[str, int], int] = {}
        #: By instruction: its site, as a bit.
        self._site_of: dict[Instr, int] = {}
        self._leaves = facts.get(AddressLeaves.of)
        #: By SSA value that is a leaf: the sites whose base depends on it, as bits.
        self._killed_by: dict[int, int] = {}
        self._forms = {instr.form for block in self.cfg.rpo for instr in self.cfg.blocks[block].instrs}
        self._find_sites()
        self._everything = (1 << len(self.sites)) - 1
        self._frees = any(map(_may_free, self._forms))
        count = len(self.cfg)
        #: By block: the sites at its start and at its end.
        self.future_entry, self.future = [0] * count, [0] * count
        self.past = [0] * count
        if self.sites:
            events = self._events()
            self._solve_future(events)
            self._solve_past(events)

    @cached_property
    def at_end(self) -> list[int]:
        """By block: the sites that are certain, past or future, at its end before its branch, as bits."""
        return [past | future for past, future in zip(self.past, self.future, strict=True)]

    def known_at_end(self, block: int, space: str, base: int) -> Iterator[Reference]:
        """The sites with this base that are certain, past or future, at the end of ``block`` before its branch."""
        return self.members(self.at_end[block] & self.at_base(space, base))

    def known_at_start(self, block: int, space: str, base: int) -> Iterator[Reference]:
        """The sites with this base that every path from the start of ``block`` dereferences."""
        return self.members(self.future_entry[block] & self.at_base(space, base))

    def at_base(self, space: str, base: int) -> int:
        """The sites with this base, as bits."""
        sites = self.of_base.get((space, base), 0)
        # Global memory can also be read by its generic address.
        return sites | self.of_base.get(("global", base), 0) if space == "generic" else sites

    def members(self, bits: int) -> Iterator[Reference]:
        """The sites in a set."""
        while bits:
            low = bits & -bits
            yield self.sites[low.bit_length() - 1]
            bits ^= low

    # --- sites and what changes them -------------------------------------------------------------------------------

    def _find_sites(self) -> None:
        numbers: dict[Reference, int] = {}
        leaves_of = self._leaves.of_instr
        accesses = {form for form in self._forms if form.operation in PLAIN_ACCESSES}
        for block in self.cfg.rpo:
            for instr in self.cfg.blocks[block].instrs:
                if instr.form not in accesses or instr.guard is not None:
                    continue
                reference = self.memory.reference(instr)
                if reference is None or reference.space == "param":
                    continue
                number = numbers.get(reference)
                if number is None:
                    leaves = leaves_of(instr)
                    if leaves is None:
                        continue
                    number = numbers[reference] = len(self.sites)
                    self.sites.append(reference)
                    key = (reference.space, reference.base)
                    self.of_base[key] = self.of_base.get(key, 0) | 1 << number
                    for leaf in leaves:
                        self._killed_by[leaf] = self._killed_by.get(leaf, 0) | 1 << number
                self._site_of[instr] = 1 << number

    def _events(self) -> dict[int, list[_Event]]:
        """By reachable block: its instructions that matter, in text order."""
        redefined: dict[Instr, int] = {}
        for leaf, sites in self._killed_by.items():
            instr = self.ssa.instr[leaf]
            if instr is not None:
                redefined[instr] = redefined.get(instr, 0) | sites
        matters: dict[Form, bool] = {}  # whether the form may kill all sites
        events: dict[int, list[_Event]] = {}
        for block in self.cfg.rpo:
            of_block: list[_Event] = []
            for instr in self.cfg.blocks[block].instrs:
                form = instr.form
                if form not in matters:
                    matters[form] = not instr.is_directive and may_not_return(form)
                if matters[form] or instr in redefined or instr in self._site_of:
                    of_block.append((form, self._site_of.get(instr, 0), redefined.get(instr, 0)))
            events[block] = of_block
        return events

    def _redefined_at_start(self, block: int) -> int:
        killed = 0
        for phi in self.ssa.phis[block]:
            killed |= self._killed_by.get(phi, 0)
        return killed

    # --- solutions -------------------------------------------------------------------------------------------------

    def _solve_future(self, events: dict[int, list[_Event]]) -> None:
        cfg = self.cfg
        gen, kill = [0] * len(cfg), [0] * len(cfg)
        starts = [0] * len(cfg)
        for block in cfg.rpo:
            generated = killed = 0
            for form, site, redefined in reversed(events[block]):
                changed = self._everything if may_not_return(form) else redefined
                generated = generated & ~changed | site
                killed |= changed
            gen[block], kill[block] = generated, killed
            starts[block] = self._redefined_at_start(block)
        exits = set(cfg.exits)
        entry, end = self.future_entry, self.future
        changed_some = True
        while changed_some:
            changed_some = False
            for block in reversed(cfg.rpo):
                after = 0
                if block not in exits and cfg.succ[block]:
                    after = self._everything
                    for successor in cfg.succ[block]:
                        after &= entry[successor]
                before = (gen[block] | after & ~kill[block]) & ~starts[block]
                if after != end[block] or before != entry[block]:
                    end[block], entry[block] = after, before
                    changed_some = True

    def _solve_past(self, events: dict[int, list[_Event]]) -> None:
        cfg = self.cfg
        gen, kill = [0] * len(cfg), [0] * len(cfg)
        for block in cfg.rpo:
            generated = 0
            killed = self._redefined_at_start(block)
            for form, site, redefined in events[block]:
                changed = self._everything if self._may_free(form) else redefined
                generated = (generated | site) & ~changed
                killed |= changed
            gen[block], kill[block] = generated, killed
        past = self.past
        for block in cfg.rpo:
            past[block] = self._everything
        changed_some = True
        while changed_some:
            changed_some = False
            for block in cfg.rpo:
                before = 0 if block == cfg.rpo[0] else self._everything
                for predecessor in cfg.pred[block]:
                    if cfg.reachable[predecessor]:
                        before &= past[predecessor]
                after = gen[block] | before & ~kill[block]
                if after != past[block]:
                    past[block] = after
                    changed_some = True

    def _may_free(self, form: Form) -> bool:
        """Whether memory may be freed at an instruction: by this thread, or by another one before a barrier."""
        if _may_free(form) or form.effects & Effect.STATE:
            return True
        return self._frees and may_not_return(form)


def _may_free(form: Form) -> bool:
    return form.is_opaque or form.is_call
