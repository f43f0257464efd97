"""Which device allocations the accesses of a launch go to, whatever their offsets are."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from ...analysis.manager import Facts
from ...analysis.memory.thread_accesses import Access, AccessSet, access_set
from ...analysis.values.polynomial import variable
from ...ptx import Instr, Kernel, Module
from .launch_site import Buffer, LaunchSite

__all__ = [
    "accesses_of",
    "buffer_of",
    "buffers_written",
    "facts_of",
    "is_of_buffers",
    "is_of_counter",
    "is_of_variable",
]

_FACTS: WeakKeyDictionary[Kernel, tuple[Module, Facts]] = WeakKeyDictionary()


def facts_of(site: LaunchSite) -> Facts:
    """The facts of the site's kernel, kept while the kernel lives."""
    known = _FACTS.get(site.kernel)
    if known is None or known[0] is not site.module:
        known = _FACTS[site.kernel] = (site.module, Facts(site.kernel, site.module))
    return known[1]


def accesses_of(site: LaunchSite) -> AccessSet:
    """What the site's kernel reads and writes."""
    return access_set(facts_of(site))


def is_of_variable(access: Access) -> bool:
    """Whether the address is a variable of the module plus something that is no pointer."""
    terms = [(monomial, coefficient) for monomial, coefficient in access.address.terms if len(monomial) == 1]
    return any(m[0].kind == "symbol" and c == 1 for m, c in terms)


def is_of_counter(site: LaunchSite, access: Access) -> bool:
    """Whether the address is a counter of one of the grid's barriers that a fusion has put into the kernel."""
    names = {f"global:{name}" for name in site.counters}
    return any(access.address == variable(atom) and atom.name in names for atom in access.address.atoms)


def buffer_of(site: LaunchSite, access: Access) -> str:
    """The allocation that the access goes to; empty where it may be any.

    The address has to contain one pointer, once, and nothing else that might be one.
    """
    names: list[str] = []
    for monomial, coefficient in access.address.terms:
        for atom in monomial:
            is_alone = coefficient == 1 and len(monomial) == 1
            if atom.kind == "param":
                argument = site.arguments.get(atom.name)
                if isinstance(argument, Buffer):
                    if not is_alone:
                        return ""
                    names.append(argument.name)
                elif argument is None and is_alone:
                    return ""  # perhaps a pointer in a structure
            elif is_alone and (atom.kind == "symbol" or (atom.kind == "opaque" and atom.high is None)):
                return ""  # perhaps a pointer
    return names[0] if len(names) == 1 else ""


def buffers_written(sites: Iterable[LaunchSite]) -> frozenset[str]:
    """The allocations that are written; the empty name stands for any."""
    return frozenset(
        buffer_of(site, access)
        for site in sites
        for access in accesses_of(site).accesses
        if access.writes and not is_of_variable(access)
    )


def is_of_buffers(site: LaunchSite, instr: Instr, names: frozenset[str]) -> bool:
    """Whether the load may read one of the allocations."""
    if not names:
        return False
    for access in accesses_of(site).accesses:
        if access.instr is instr:
            name = buffer_of(site, access)
            return not is_of_variable(access) and (not name or "" in names or name in names)
    return True
