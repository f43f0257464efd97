"""Values that the first body stores and the same thread loads in the second: from register to register.

Computes: loads of the second body that may take the register stored by the first, and stores to buffers that nobody
reads afterwards which may then go.

A load takes the register where (1) it reads exactly the bytes that the store writes, at the same place for each thread;
(2) whenever a thread executes the load it has executed the store, once: what guards the store, all of it, guards the
load too; (3) no other store or atomic of the first body, and none of any other thread, can touch these bytes, and no
store of the second that may come before the load; (4) the register is written once, so that it still holds the value.

Requires: the fusibility of the pair. Guarantees: the loads' results are the same bits. Only words of 32 and 64 bits.
Reference: thesis §5.1 and figure 5.1b.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...analysis.effects import is_plain_store
from ...analysis.memory.thread_accesses import Access, Comparison
from ...analysis.values.polynomial import Atom, Poly, TooManyTerms
from ...ptx import Effect, Imm, Instr, Reg
from ...ptx.operations import LOADS
from .buffer_use import accesses_of, buffer_of, facts_of, is_of_variable
from .host_values import HostValues, Signs
from .launch_site import LaunchSite
from .overlap import relation
from .placement import Place, Placement, bounds_of_names

__all__ = ["Forwarded", "forward"]


@dataclass(slots=True)
class Forwarded:
    """``loads`` maps loads of the second body to what they yield; ``stores`` of either body are not needed."""

    loads: dict[Instr, Reg | Imm] = field(default_factory=dict[Instr, "Reg | Imm"])
    stores: tuple[set[Instr], set[Instr]] = field(default_factory=lambda: (set[Instr](), set[Instr]()))


def forward(
    first: LaunchSite, second: LaunchSite, dead: frozenset[str], *, is_ordered: bool, checks: tuple[str, ...] = ()
) -> Forwarded:
    """What of the memory traffic between the two bodies is not needed. ``is_ordered``: nothing but the same thread or
    block depends on the first body. ``checks`` are true of the host's values wherever the fused kernel is launched."""
    found = Forwarded()
    if is_ordered and first.grid == second.grid:
        found.loads.update(_Forwarding(first, second, checks).loads())
    _drop_stores((first, second), dead, found)
    return found


def _drop_stores(sites: tuple[LaunchSite, LaunchSite], dead: frozenset[str], found: Forwarded) -> None:
    uses = [
        (side, access, buffer_of(site, access))
        for side, site in enumerate(sites)
        for access in accesses_of(site).accesses
        if not is_of_variable(access)
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
        #: The first body as the other party of a comparison, and as the same thread as that of the second.
        self.other = Placement(first, 0, values, self.signs)
        self.same = Placement(first, 1, values, self.signs)
        self.mine = Placement(second, 1, values, self.signs)
        self.earlier = Placement(second, 0, values, self.signs)

    def loads(self) -> dict[Instr, Reg | Imm]:
        """The loads that take a register, and which."""
        found: dict[Instr, Reg | Imm] = {}
        first, second = (accesses_of(site).accesses for site in self.sites)
        stores = [access for access in first if self._is_candidate(access)]
        for load in second:
            if not _is_word_load(load) or is_of_variable(load):
                continue
            place = self.mine.place(load)
            if place is None or not _is_of_thread(place.offset):
                continue
            for store in stores:
                if self._yields(store, load, place):
                    found[load.instr] = _stored(store.instr)
                    break
        return found

    def _is_candidate(self, store: Access) -> bool:
        instr = store.instr
        if not is_plain_store(instr) or instr.guard is not None or not _is_word(instr) or is_of_variable(store):
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

    def _yields(self, store: Access, load: Access, place: Place) -> bool:
        if store.bytes != load.bytes:
            return False
        here = self.same.place(store)
        if here is None or here.buffer != place.buffer or here.offset != place.offset:
            return False
        known = {self._key(self.mine, guard) for guard in load.guards}
        if not all((key := self._key(self.same, guard)) is not None and key in known for guard in store.guards):
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

    def _is_last(self, store: Access, load: Access, place: Place) -> bool:
        """Whether nothing else can have written the bytes when the load reads them."""
        for access in accesses_of(self.sites[0]).accesses:
            if access.writes and not is_of_variable(access):
                wanted = ("never", "thread") if access.instr is store.instr else ("never",)
                if self._relation(0, access, load, place) not in wanted:
                    return False
        for access in accesses_of(self.sites[1]).accesses:
            if not access.writes or is_of_variable(access):
                continue
            found = self._relation(1, access, load, place)
            if found != "never" and (found != "thread" or self._may_precede(access.instr, load.instr)):
                return False
        return True

    def _relation(self, side: int, access: Access, load: Access, place: Place) -> str:
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
        seen: set[int] = set()
        work = list(facts.cfg.succ[source])
        while work:
            block = work.pop()
            if block not in seen:
                seen.add(block)
                work += facts.cfg.succ[block]
        return target in seen


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
    """Whether equal polynomials of two bodies are equal values in one thread: nothing in it belongs to one body."""
    return all(_is_shared(atom) for atom in poly.atoms)


def _is_shared(atom: Atom) -> bool:
    if atom.inner is not None:
        return _is_of_thread(atom.inner)
    return atom.kind in ("tid", "ctaid", "gid", "host")
