"""Forwards values that the first body stores and the same thread loads in the second body, from register to register.

Computes: the loads of the second body that may read the register instead, and the stores that may then be removed
because nothing reads their buffer.

A load reads the register if all of this holds:
- It reads exactly the bytes that the store writes, at the same address in each thread.
- Whenever a thread executes the load, it has executed the store exactly once: all guards of the store guard the load,
  too.
- No other store or atomic of the first body, no access of another thread, and no store of the second body that may
  precede the load can write these bytes.
- The register is written once, so it still holds the value.

Requires: the fusibility of the pair.
Guarantees: the results of the loads are the same bits. Only words of 32 and 64 bits are handled.
Reference: thesis §5.1 and figure 5.1b.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...analysis.effects import is_plain_store
from ...analysis.memory.thread_accesses import Access, Comparison
from ...analysis.values.polynomial import Atom, Poly, TooManyTerms
from ...ptx import Effect, Imm, Instr, Reg
from ...ptx.operations import LOADS
from .buffer_use import accesses_of, buffer_of, facts_of, is_module_variable
from .host_values import HostValues, Signs
from .launch_site import LaunchSite
from .overlap import relation
from .placement import Placement, Target, bounds_of_names

__all__ = ["Forwarded", "forward"]


@dataclass(slots=True)
class Forwarded:
    """``loads`` maps loads of the second body to their values. ``stores`` holds the stores of each body that are not
    needed."""

    loads: dict[Instr, Reg | Imm] = field(default_factory=dict[Instr, "Reg | Imm"])
    stores: tuple[set[Instr], set[Instr]] = field(default_factory=lambda: (set[Instr](), set[Instr]()))


def forward(
    first: LaunchSite, second: LaunchSite, dead: frozenset[str], *, is_ordered: bool, checks: tuple[str, ...] = ()
) -> Forwarded:
    """The memory accesses between the two bodies that are not needed.

    ``is_ordered``: each dependence on the first body is within one thread or one block. ``dead``: allocations that
    nothing reads afterwards. ``checks`` are true whenever the fused kernel is launched.
    """
    forwarded = Forwarded()
    if is_ordered and first.grid == second.grid:
        forwarded.loads.update(_Forwarding(first, second, checks).loads())
    _drop_stores((first, second), dead, forwarded)
    return forwarded


def _drop_stores(sites: tuple[LaunchSite, LaunchSite], dead: frozenset[str], found: Forwarded) -> None:
    uses = [
        (side, access, buffer_of(site, access))
        for side, site in enumerate(sites)
        for access in accesses_of(site).accesses
        if not is_module_variable(access)
    ]
    read = {name for _, access, name in uses if not is_plain_store(access.instr) and access.instr not in found.loads}
    if "" in read:
        return
    for side, access, name in uses:
        if name in dead and name not in read and is_plain_store(access.instr):
            found.stores[side].add(access.instr)


class _Forwarding:
    def __init__(self, first: LaunchSite, second: LaunchSite, checks: tuple[str, ...]) -> None:
        values = HostValues(bounds_of_names((first, second)), checks)
        self.signs = Signs(values, may_check=False)
        self.sites = (first, second)
        #: Each body is placed twice. As launch 1, it is executed by the thread that is examined: ``same`` is the
        #: first body and ``mine`` the second one. As launch 0, it may be executed by any thread: ``other`` is the
        #: first body and ``earlier`` the second one.
        self.other = Placement(first, 0, values, self.signs)
        self.same = Placement(first, 1, values, self.signs)
        self.mine = Placement(second, 1, values, self.signs)
        self.earlier = Placement(second, 0, values, self.signs)

    def loads(self) -> dict[Instr, Reg | Imm]:
        """The loads to replace, with the registers or immediates that replace them."""
        replaced: dict[Instr, Reg | Imm] = {}
        first, second = (accesses_of(site).accesses for site in self.sites)
        stores = [access for access in first if self._is_candidate(access)]
        for load in second:
            if not _is_word_load(load) or is_module_variable(load):
                continue
            place = self.mine.place(load)
            if place is None or not _is_of_thread(place.offset):
                continue
            for store in stores:
                if self._yields(store, load, place):
                    replaced[load.instr] = _stored(store.instr)
                    break
        return replaced

    def _is_candidate(self, store: Access) -> bool:
        instr = store.instr
        if not is_plain_store(instr) or instr.guard is not None or not _is_word(instr) or is_module_variable(store):
            return False
        facts = facts_of(self.sites[0])
        value = instr.operands[1]
        if isinstance(value, Reg):
            scalar = instr.form.type
            if scalar is None or value.type.bits != scalar.bits or not facts.ssa.is_single(value):
                return False
            if facts.ssa.instr[facts.ssa.read(instr, value)] is None:
                return False
        elif not isinstance(value, Imm):
            return False
        block = self._block(0, instr)
        return facts.loops.loop_of[block] < 0 and accesses_of(self.sites[0]).guards.is_complete(block)

    def _block(self, side: int, instr: Instr) -> int:
        cfg = facts_of(self.sites[side]).cfg
        return next(block for block in cfg.rpo if instr in cfg.blocks[block].instrs)

    def _yields(self, store: Access, load: Access, place: Target) -> bool:
        if store.bytes != load.bytes:
            return False
        here = self.same.place(store)
        if here is None or here.buffer != place.buffer or here.offset != place.offset:
            return False
        load_guards = {self._key(self.mine, guard) for guard in load.guards}
        if not all((key := self._key(self.same, guard)) is not None and key in load_guards for guard in store.guards):
            return False
        return self._is_last(store, load, place)

    def _key(self, placement: Placement, guard: Comparison) -> tuple[object, ...] | None:
        try:
            left, right = placement.poly(guard.left), placement.poly(guard.right)
        except TooManyTerms:
            return None
        if not (_is_of_thread(left) and _is_of_thread(right)):
            return None
        return guard.relation, guard.kind, guard.bits, left, right

    def _is_last(self, store: Access, load: Access, place: Target) -> bool:
        """Whether the store is the last write of the bytes before the load."""
        for access in accesses_of(self.sites[0]).accesses:
            if access.writes and not is_module_variable(access):
                allowed = ("never", "thread") if access.instr is store.instr else ("never",)
                if self._relation(0, access, load, place) not in allowed:
                    return False
        for access in accesses_of(self.sites[1]).accesses:
            if not access.writes or is_module_variable(access):
                continue
            overlap = self._relation(1, access, load, place)
            if overlap != "never" and (overlap != "thread" or self._may_precede(access.instr, load.instr)):
                return False
        return True

    def _relation(self, side: int, access: Access, load: Access, place: Target) -> str:
        name = buffer_of(self.sites[side], access)
        if name and name != place.buffer:
            return "never"
        placement = self.other if side == 0 else self.earlier
        where = placement.place(access)
        if where is None or where.buffer != place.buffer:
            return "any"
        return relation((placement, where, access.bytes), (self.mine, place, load.bytes), self.signs)

    def _may_precede(self, write: Instr, load: Instr) -> bool:
        """Whether a thread may execute ``write`` of the second body before ``load``."""
        facts = facts_of(self.sites[1])
        source, target = self._block(1, write), self._block(1, load)
        instrs = facts.cfg.blocks[source].instrs
        if source == target and instrs.index(write) < instrs.index(load):
            return True
        visited: set[int] = set()
        work = list(facts.cfg.succ[source])
        while work:
            block = work.pop()
            if block not in visited:
                visited.add(block)
                work += facts.cfg.succ[block]
        return target in visited


def _is_word(instr: Instr) -> bool:
    form = instr.form
    return form.lanes == 1 and form.type is not None and form.type.bits in (32, 64)


def _is_word_load(load: Access) -> bool:
    instr = load.instr
    if instr.form.operation not in LOADS or not _is_word(instr) or instr.form.effects & Effect.ORDERED:
        return False
    result, scalar = instr.operands[0], instr.form.type
    return isinstance(result, Reg) and scalar is not None and result.type.bits == scalar.bits


def _stored(store: Instr) -> Reg | Imm:
    value = store.operands[1]
    assert isinstance(value, Reg | Imm)
    return value


def _is_of_thread(poly: Poly) -> bool:
    """Whether the polynomial has the same value in both bodies in one thread: none of its atoms belongs to one body
    only."""
    return all(_is_shared(atom) for atom in poly.atoms)


def _is_shared(atom: Atom) -> bool:
    if atom.inner is not None:
        return _is_of_thread(atom.inner)
    return atom.kind in ("tid", "ctaid", "gid", "host")
