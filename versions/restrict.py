"""Versions of kernels for launches whose buffers are disjoint.

The passes run over each kernel as it was given, under the promise that no two pointer parameters point into the same
buffer. A result that the gate finds better than the kernel without promises becomes a version. What it requires are
conditions for the pairs of parameters that its rewrites need.

Requires: the optimized module, and its entries as they were given. Guarantees: a version computes the same, bit for
bit, in every launch for which its conditions hold. Refuses, with a reason of `REASONS`: see there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..analysis.manager import Facts
from ..analysis.memory.alias import Promise
from ..analysis.memory.points_to import is_pointer_parameter
from ..contract import Condition
from ..cost import gain, is_better
from ..ptx import Kernel, Module, flatten_scopes, print_kernel
from ..transforms.gate.judge import Judge, Refused
from ..transforms.gate.search import module_of
from .disjointness import by_allocation, by_ranges
from .pairs import Pair, needed_pairs, promise_of

if TYPE_CHECKING:
    from ..transforms.pipeline import KernelTransform

__all__ = ["REASONS", "Candidate", "Optimize", "RestrictVersions", "Versioned", "pointer_pairs"]

#: Why a kernel has no version, by id.
REASONS: dict[str, str] = {
    "debug": "the module has debug information of unoptimized code",
    "address-size": "its pointers do not have 64 bits",
    "no-pairs": "no two of its pointer parameters point to memory of which one part is written",
    "unchanged": "disjoint buffers make no rewrite possible that the gate keeps",
    "same": "the result is the same as without the promise that buffers are disjoint",
    "not-better": "the gate does not find the result better than the kernel without promises",
    "refused": "the gate cannot judge it",
}

#: Optimizes kernels of a module in place, under a promise.
Optimize = Callable[[Module, Sequence[Kernel], Promise], None]


@dataclass(frozen=True)
class Candidate:
    """A version that was found: the ``kernel``, still with its old name, and by description lists of conditions. It is
    valid if the conditions of one of the lists hold. ``gain``: what the gate found, in words."""

    kernel: Kernel
    requires: Mapping[str, tuple[Condition, ...]]
    gain: str = ""


@dataclass(frozen=True)
class Versioned:
    """The outcome for one kernel: a version, or the id of the reason why there is none.

    ``pointers``: the names of the parameters that point to memory which the kernel accesses.
    """

    candidate: Candidate | None = None
    reason: str = ""
    pointers: frozenset[str] = frozenset()


def pointer_pairs(pointers: Set[str], written: Set[str]) -> frozenset[Pair]:
    """The pairs of pointer parameters of which one points to memory that the kernel writes."""
    ordered = sorted(pointers)
    return frozenset(
        (one, two)
        for number, one in enumerate(ordered)
        for two in ordered[number + 1 :]
        if one in written or two in written
    )


class RestrictVersions:
    """Finds the versions of one module. ``module`` is optimized; ``given`` has its entries as they were given."""

    def __init__(
        self,
        module: Module,
        given: Mapping[str, Kernel],
        transform: KernelTransform,
        judge: Judge | None,
        optimize: Optimize,
    ) -> None:
        self._module = module
        self._given = given
        self._transform = transform
        self._judge = judge
        self._optimize = optimize

    def find(self) -> dict[str, Versioned]:
        """The outcome for each of the entries, by name."""
        reason = _reason_of(self._module)
        if reason:
            return {name: Versioned(reason=reason) for name in self._given}
        found: dict[str, Versioned] = {}
        pairs: dict[str, frozenset[Pair]] = {}
        for name, kernel in self._given.items():
            flatten_scopes(kernel)
            buffers = Facts(kernel, self._module).memory.buffers
            # The launch cannot check what a pointer in a structure points to, so no version assumes anything about it.
            single = {param.name for param in kernel.params or () if is_pointer_parameter(param, 64)}
            pointers = (buffers.reads | buffers.writes) & single
            pairs[name] = pointer_pairs(pointers, buffers.writes)
            found[name] = Versioned(reason="no-pairs", pointers=pointers)
        restricted = self._optimized([name for name in self._given if pairs[name]], Promise(everything=True))
        for name, kernel in restricted.items():
            outcome = self._version(name, kernel, pairs[name])
            found[name] = replace(outcome, pointers=found[name].pointers)
        return found

    def _optimized(self, names: Sequence[str], promise: Promise) -> dict[str, Kernel]:
        """The entries as they were given, optimized under a promise, by name."""
        copies = {name: self._given[name].clone() for name in names}
        scratch = replace(self._module, items=list(self._module.items))
        for kernel in copies.values():
            scratch.put(kernel)
        self._optimize(scratch, list(copies.values()), promise)
        return {name: scratch.kernel(name) for name in names}

    def _version(self, name: str, restricted: Kernel, relevant: frozenset[Pair]) -> Versioned:
        reason, _ = self._judged(name, restricted)
        if reason:
            return Versioned(reason=reason)
        pairs = needed_pairs(self._transform, self._module, self._given[name], relevant)
        if not pairs:
            return Versioned(reason="same")
        # The gate may choose other rewrites under the smaller promise, so it decides again.
        kernel = self._optimized([name], promise_of(name, pairs))[name]
        reason, gained = self._judged(name, kernel)
        if reason:
            return Versioned(reason=reason)
        numbers = {param.name: number for number, param in enumerate(kernel.params or ())}
        ranges = by_ranges(Facts(self._given[name], self._module), pairs)
        alternatives = [("disjoint buffers", by_allocation(numbers, pairs)), ("disjoint accesses", ranges)]
        requires = {what: conditions for what, conditions in alternatives if conditions is not None}
        return Versioned(Candidate(kernel, requires, gained))

    def _judged(self, name: str, kernel: Kernel) -> tuple[str, str]:
        """The reason why ``kernel`` is not worth a version, or the empty string, and what it gains in words."""
        base = self._module.kernel(name)
        if print_kernel(kernel) == print_kernel(base):
            is_given = print_kernel(kernel) == print_kernel(self._given[name])
            return "unchanged" if is_given else "same", ""
        if self._judge is None:
            return "", ""
        try:
            before = self._judge.figures(module_of(self._module, [base]))[name]
            after = self._judge.figures(module_of(self._module, [base], {name: kernel}))[name]
        except Refused:
            return "refused", ""
        if before.code == after.code:
            return "same", ""
        return ("", gain(before, after)) if is_better(before, after) else ("not-better", "")


def _reason_of(module: Module) -> str:
    """The reason why no kernel of the module can have a version, or the empty string."""
    if "debug" in [word.strip() for word in module.target.split(",")]:
        return "debug"
    return "address-size" if (module.address_size or 64) != 64 else ""
