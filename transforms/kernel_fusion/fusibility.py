"""Whether two launches that stand one behind the other may become one, and what has to stand between their bodies.

Computes: for every pair of accesses that may touch the same bytes, one of them a write, which threads can do so
(`overlap`): the same thread (then nothing is needed, since the bodies stand in order in each thread), threads of one
block (``bar.sync``), any (a barrier of the whole grid). Write after read and write after write count like read after
write. Two ``red`` of one commuting integer operation need no order.

Requires: `LaunchSite`s whose buffer names are device allocations: equal names one, different names two. Guarantees: a
pair called ``thread`` or ``block`` has no conflict that this does not order, for all values of the host's quantities,
or for those that pass the ``checks``. Accesses stay inside the allocation that their pointer was made for.
Refuses (``none``): different block shapes, and what `obstacles` lists; ``grid`` is the answer to addresses that are not
understood, since a barrier of the grid orders whatever they touch.
Reference: thesis §5.1; shared notes, §6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from ...analysis.memory.thread_accesses import Access
from ...ptx import Kernel, Module, flatten_scopes, parse, print_module
from .buffer_use import accesses_of, buffer_of, facts_of, is_of_counter, is_of_variable
from .host_values import HostValues, Signs
from .launch_site import Argument, Buffer, Extent, Extents, Fusibility, LaunchSite, Scalar
from .obstacles import configuration_obstacles, described, obstacles
from .overlap import ORDER, relation
from .placement import Place, Placement, bounds_of_names

__all__ = ["Argument", "Buffer", "Extent", "Extents", "Fusibility", "LaunchSite", "Scalar", "decide", "flat_site"]

#: More reasons than these say nothing more.
_MOST_REASONS = 8


def decide(
    first: LaunchSite,
    second: LaunchSite,
    *,
    assume_independent: bool = False,
    may_check: bool = False,
    may_pad: bool = False,
) -> Fusibility:
    """What fusing ``first`` with ``second`` behind it needs.

    ``assume_independent`` is the user's promise that no thread of the second launch touches what another thread of the
    first one writes, nor writes what it touches. With ``may_check`` the answer may depend on ``checks`` of host values;
    with ``may_pad`` the grids may differ, and the fused kernel has to be launched with the grid that it names.
    """
    first, second = flat_site(first), flat_site(second)
    refused = _refusals(first, second)
    if first.grid != second.grid and not may_pad:
        refused.insert(0, f"the grids differ: {first.grid} and {second.grid}")
    if refused:
        return Fusibility("none", tuple(refused[:_MOST_REASONS]))
    if assume_independent:
        return Fusibility("thread", ("the user promises that the two kernels are independent",))
    found = _Decision(first, second, may_check=False).answer()
    if found.kind != "grid" or not may_check:
        return found
    checked = _Decision(first, second, may_check=True).answer()
    return checked if checked.kind != "grid" else found


_FLAT: WeakKeyDictionary[Kernel, tuple[int, Module, Kernel]] = WeakKeyDictionary()


def flat_site(site: LaunchSite) -> LaunchSite:
    """The launch with a kernel without nested scopes: itself, or of a copy of its module."""
    if not any(kernel.has_scopes for kernel in site.module.kernels):
        return site
    known = _FLAT.get(site.kernel)
    if known is None or known[0] != site.kernel.version:
        module = parse(print_module(site.module), site.module.source.name)
        for kernel in module.kernels:
            flatten_scopes(kernel)
        known = _FLAT[site.kernel] = (site.kernel.version, module, module.kernel(site.kernel.name))
    return replace(site, kernel=known[2], module=known[1])


def _refusals(first: LaunchSite, second: LaunchSite) -> list[str]:
    found = configuration_obstacles(first, second)
    found += obstacles(facts_of(first), first, is_second=False)
    found += [reason for reason in obstacles(facts_of(second), second, is_second=True) if reason not in found]
    for site in (first, second):
        found += [
            f"{described(instr)} touches memory in a way that is not followed"
            for instr in accesses_of(site).unknown
            if not instr.form.is_call  # `obstacles` lets only those pass that touch none
        ]
        found += [
            f"{described(access.instr)} writes a variable of the module"
            for access in accesses_of(site).accesses
            if access.writes and is_of_variable(access) and not is_of_counter(site, access)
        ]
    return found


@dataclass(frozen=True, slots=True)
class _Placed:
    access: Access
    place: Place | None
    buffer: str  #: empty where it is not known


class _Decision:
    """One run over all pairs of accesses."""

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
            found, reason = self._pair(a, b)
            if found == "any":
                settled.add(buffers)
            if ORDER.index(found) > ORDER.index(worst):
                worst, reasons = found, {}
            if found == worst and found != "never" and len(reasons) < _MOST_REASONS:
                reasons[reason] = None
        kind = {"never": "thread", "any": "grid"}.get(worst, worst)
        if worst == "never":
            reasons = {"no access of one conflicts with one of the other": None}
        checks = tuple(self.signs.checks) if kind in ("thread", "block") else ()
        return Fusibility(kind, tuple(reasons), checks)

    def _placed(self, side: int) -> list[_Placed]:
        found: dict[tuple[object, ...], _Placed] = {}
        for access in accesses_of(self.sites[side]).accesses:
            if is_of_variable(access):
                continue
            key = access.address, access.effect, access.bytes, access.guards, access.operation
            if key not in found:
                place = self.placements[side].place(access)
                buffer = place.buffer if place is not None else buffer_of(self.sites[side], access)
                found[key] = _Placed(access, place, buffer)
        return list(found.values())

    def _pair(self, a: _Placed, b: _Placed) -> tuple[str, str]:
        """The relation of two accesses that conflict if they touch the same bytes, and a sentence about it."""
        if not a.buffer or not b.buffer:
            other = a if not a.buffer else b
            return "any", f"the address of {described(other.access.instr)} is not known"
        before = f"{_verb(a.access)} before by {described(a.access.instr)}"
        what = f"{_verb(b.access)} by {described(b.access.instr)} and {before}"
        if a.place is None or b.place is None:
            return "any", f"'{a.buffer}' is {what}, at an offset that is not known"
        found = relation(
            (self.placements[0], a.place, a.access.bytes), (self.placements[1], b.place, b.access.bytes), self.signs
        )
        where = {
            "thread": "only by the same thread",
            "block": "by threads of one block",
            "any": "perhaps by threads of different blocks",
            "never": "never at the same place",
        }
        return found, f"'{a.buffer}' is {what}, {where[found]}"


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
