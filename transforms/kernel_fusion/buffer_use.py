"""The device allocation that each access of a launch goes to, independent of offsets."""

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
    "may_read_buffers",
    "is_barrier_counter",
    "is_module_variable",
]

#: By kernel: its module, and the analyses of the kernel. An entry is valid only for that module.
_FACTS: WeakKeyDictionary[Kernel, tuple[Module, Facts]] = WeakKeyDictionary()


def facts_of(site: LaunchSite) -> Facts:
    """The analyses of the site's kernel, cached while the kernel exists."""
    entry = _FACTS.get(site.kernel)
    if entry is None or entry[0] is not site.module:
        entry = _FACTS[site.kernel] = (site.module, Facts(site.kernel, site.module))
    return entry[1]


def accesses_of(site: LaunchSite) -> AccessSet:
    """The accesses to memory of the kernel of ``site``."""
    return access_set(facts_of(site))


def is_module_variable(access: Access) -> bool:
    """Whether the address is a variable of the module plus an offset that is no pointer."""
    terms = [(monomial, coefficient) for monomial, coefficient in access.address.terms if len(monomial) == 1]
    return any(m[0].kind == "symbol" and c == 1 for m, c in terms)


def is_barrier_counter(site: LaunchSite, access: Access) -> bool:
    """Whether the address is the counter of a grid barrier that an earlier fusion added to the kernel."""
    names = {f"global:{name}" for name in site.counters}
    return any(access.address == variable(atom) and atom.name in names for atom in access.address.atoms)


def buffer_of(site: LaunchSite, access: Access) -> str:
    """The allocation that the access goes to; empty if it may be any.

    The address must contain exactly one pointer, once, and nothing else that might be a pointer.
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
                    return ""  # this may be a pointer inside a struct
            elif is_alone and (atom.kind == "symbol" or (atom.kind == "opaque" and atom.high is None)):
                return ""  # this may be a pointer
    return names[0] if len(names) == 1 else ""


def buffers_written(sites: Iterable[LaunchSite]) -> frozenset[str]:
    """The allocations that may be written. An empty name stands for any allocation."""
    return frozenset(
        buffer_of(site, access)
        for site in sites
        for access in accesses_of(site).accesses
        if access.writes and not is_module_variable(access)
    )


def may_read_buffers(site: LaunchSite, instr: Instr, names: frozenset[str]) -> bool:
    """Whether the load may read one of the allocations ``names``."""
    if not names:
        return False
    for access in accesses_of(site).accesses:
        if access.instr is instr:
            name = buffer_of(site, access)
            return not is_module_variable(access) and (not name or "" in names or name in names)
    return True
