"""Decides whether two consecutive launches may be fused, and what is needed between their bodies.

Computes: for every pair of accesses that may touch the same bytes, one of them a write, which threads can do so
(`overlap`). If only the same thread can, nothing is needed, because each thread runs the bodies in order. If threads of
one block can, a ``bar.sync`` is needed; if any threads can, a grid barrier. Write after read and write after write
count like read after write. Two ``red`` with the same commutative integer operation need no order.

Requires: the buffer names of the `LaunchSite`s are device allocations: equal names are one allocation, different names
are two. Accesses stay inside the allocation that their pointer was made for.
Guarantees: a pair called ``thread`` or ``block`` has no conflict that this does not order, for all values of the host's
quantities, or for those that pass the ``checks``.
Refuses (``none``): different block shapes, what `obstacles` lists, and instructions that may wait for lanes of a warp
which wait behind the first body (`warp_waits`). Addresses that are not understood give ``grid``, because a grid barrier
orders all accesses.
Reference: thesis §5.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from ...analysis.memory.thread_accesses import Access
from ...ptx import Instr, Kernel, Module, flatten_scopes, parse, print_module
from .buffer_use import accesses_of, buffer_of, facts_of, is_barrier_counter, is_module_variable
from .host_values import HostValues, Signs
from .launch_site import Argument, Buffer, Extent, Extents, Fusibility, LaunchSite, Scalar
from .obstacles import configuration_obstacles, described, obstacles
from .overlap import ORDER, relation
from .placement import Placement, Target, bounds_of_names
from .warp_waits import has_waits, partial_waits

__all__ = ["Argument", "Buffer", "Extent", "Extents", "Fusibility", "LaunchSite", "Scalar", "decide", "flat_site"]

#: The largest number of reasons in an answer.
_MOST_REASONS = 8


def decide(
    first: LaunchSite,
    second: LaunchSite,
    *,
    assume_independent: bool = False,
    may_check: bool = False,
    may_pad: bool = False,
) -> Fusibility:
    """What is needed to fuse ``first`` and ``second``, in this order.

    ``assume_independent`` is the user's promise that no thread of the second launch touches memory that another thread
    of the first launch writes, nor writes memory that it touches. With ``may_check`` the answer may depend on
    ``checks`` of host values. With ``may_pad`` the grids may differ, and the fused kernel must be launched with the
    grid that it names.
    """
    first, second = flat_site(first), flat_site(second)
    reasons = _refusals(first, second)
    if first.grid != second.grid and not may_pad:
        reasons.insert(0, f"the grids differ: {first.grid} and {second.grid}")
    if reasons:
        return Fusibility("none", tuple(reasons[:_MOST_REASONS]))
    if assume_independent:
        return Fusibility("thread", ("the user promises that the two kernels are independent",))
    found = _order(first, second, may_check=may_check)
    stranded = partial_waits(first) if found.kind != "thread" else ()
    return Fusibility("none", _stranded(stranded)) if stranded else found


def _order(first: LaunchSite, second: LaunchSite, *, may_check: bool) -> Fusibility:
    unchecked = _Decision(first, second, may_check=False).answer()
    if unchecked.kind != "grid" or not may_check:
        return unchecked
    checked = _Decision(first, second, may_check=True).answer()
    return checked if checked.kind != "grid" else unchecked


def _stranded(waits: Iterable[Instr]) -> tuple[str, ...]:
    """Why the body of the first launch cannot be in front of something that waits."""
    reasons = (f"{described(instr)} may wait for lanes that wait behind the first body" for instr in waits)
    return tuple(dict.fromkeys(reasons))[:_MOST_REASONS]


#: By kernel: its version, a copy of its module, and in this copy the kernel without nested scopes.
_FLAT: WeakKeyDictionary[Kernel, tuple[int, Module, Kernel]] = WeakKeyDictionary()


def flat_site(site: LaunchSite) -> LaunchSite:
    """The launch with a kernel without nested scopes: the same site, or one of a copy of its module."""
    if not any(kernel.has_scopes for kernel in site.module.kernels):
        return site
    entry = _FLAT.get(site.kernel)
    if entry is None or entry[0] != site.kernel.version:
        module = parse(print_module(site.module), site.module.source.name)
        for kernel in module.kernels:
            flatten_scopes(kernel)
        entry = _FLAT[site.kernel] = (site.kernel.version, module, module.kernel(site.kernel.name))
    return replace(site, kernel=entry[2], module=entry[1])


def _refusals(first: LaunchSite, second: LaunchSite) -> list[str]:
    reasons = configuration_obstacles(first, second)
    reasons += obstacles(facts_of(first), first, is_second=False)
    reasons += [reason for reason in obstacles(facts_of(second), second, is_second=True) if reason not in reasons]
    for site in (first, second):
        reasons += [
            f"{described(instr)} accesses memory in a way that is not analysed"
            for instr in accesses_of(site).unknown
            if not instr.form.is_call  # `obstacles` accepts only calls that access no memory
        ]
        reasons += [
            f"{described(access.instr)} writes a variable of the module"
            for access in accesses_of(site).accesses
            if access.writes and is_module_variable(access) and not is_barrier_counter(site, access)
        ]
    if not reasons and has_waits(second):
        reasons += _stranded(partial_waits(first))
    return reasons


@dataclass(frozen=True, slots=True)
class _Placed:
    access: Access
    place: Target | None
    buffer: str  #: empty if it is not known


class _Decision:
    """Decides about one pair of launches, from all pairs of their accesses."""

    def __init__(self, first: LaunchSite, second: LaunchSite, *, may_check: bool) -> None:
        values = HostValues(bounds_of_names((first, second)))
        self.sites = (first, second)
        self.signs = Signs(values, may_check=may_check)
        self.placements = (Placement(first, 0, values, self.signs), Placement(second, 1, values, self.signs))

    def answer(self) -> Fusibility:
        first, second = (self._placed(side) for side in (0, 1))
        worst, reasons = "never", dict[str, None]()
        settled: set[tuple[str, str]] = set()
        for a, b in _conflicting(first, second):
            buffers = a.buffer, b.buffer
            if buffers in settled:
                continue
            overlap, reason = self._pair(a, b)
            if overlap == "any":
                settled.add(buffers)
            if ORDER.index(overlap) > ORDER.index(worst):
                worst, reasons = overlap, {}
            if overlap == worst and overlap != "never" and len(reasons) < _MOST_REASONS:
                reasons[reason] = None
        kind = {"never": "thread", "any": "grid"}.get(worst, worst)
        if worst == "never":
            reasons = {"no access of one kernel conflicts with an access of the other": None}
        checks = tuple(self.signs.checks) if kind in ("thread", "block") else ()
        return Fusibility(kind, tuple(reasons), checks)

    def _placed(self, side: int) -> list[_Placed]:
        placed: dict[tuple[object, ...], _Placed] = {}
        for access in accesses_of(self.sites[side]).accesses:
            if is_module_variable(access):
                continue
            key = access.address, access.effect, access.bytes, access.guards, access.operation
            if key not in placed:
                place = self.placements[side].place(access)
                buffer = place.buffer if place is not None else buffer_of(self.sites[side], access)
                placed[key] = _Placed(access, place, buffer)
        return list(placed.values())

    def _pair(self, a: _Placed, b: _Placed) -> tuple[str, str]:
        """The relation of two accesses that conflict if they touch the same bytes, and a sentence that explains it."""
        if not a.buffer or not b.buffer:
            unknown = a if not a.buffer else b
            return "any", f"the address of {described(unknown.access.instr)} is not known"
        before = f"{_verb(a.access)} before by {described(a.access.instr)}"
        what = f"{_verb(b.access)} by {described(b.access.instr)} and {before}"
        if a.place is None or b.place is None:
            return "any", f"'{a.buffer}' is {what}, at an offset that is not known"
        overlap = relation(
            (self.placements[0], a.place, a.access.bytes), (self.placements[1], b.place, b.access.bytes), self.signs
        )
        where = {
            "thread": "by the same thread only",
            "block": "by threads of one block",
            "any": "perhaps by threads of different blocks",
            "never": "never at the same address",
        }
        return overlap, f"'{a.buffer}' is {what}, {where[overlap]}"


def _verb(access: Access) -> str:
    return {"read": "read", "write": "written", "atomic": "updated"}[access.effect]


def _conflicting(first: list[_Placed], second: list[_Placed]) -> Iterator[tuple[_Placed, _Placed]]:
    for a in first:
        for b in second:
            if not (a.access.writes or b.access.writes):
                continue
            if a.buffer and b.buffer and a.buffer != b.buffer:
                continue
            if a.access.operation and a.access.operation == b.access.operation:
                continue
            yield a, b
