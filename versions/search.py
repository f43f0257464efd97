"""Finds the versions of kernels.

1. *Disjoint*: the passes run over each kernel as it was given, under the promise that no two pointer parameters point
   into the same buffer. A result that the gate finds better than the kernel without promises becomes a version. It
   requires conditions for the pairs of parameters that its rewrites need (`pairs`, `disjointness`).
2. *Inside*: the passes run again, and may also hoist loads whose range the launch compares with the buffer. A result
   that is expected to be faster than the version before, or than the kernel, in launches with few warps per scheduler
   becomes a version in front of it (`cost.preferred_warps`; without figures of the machine code, `cost.is_better`). It
   also requires that the ranges of the hoisted loads are inside (`inside`).
3. *Aligned*: the passes run under the promise that pointers and integers are multiples of small powers of two, so that
   adjacent loads become vector loads. A result that the gate finds better than the version for disjoint buffers, or
   than the kernel, becomes a version between the two others (`alignment`). If loads are hoisted under this promise,
   too, the result becomes the first version, and the one with vector loads precedes that of step 2.

4. *Clamped*: as step 2, and loads may be hoisted whose index is known only through memory, after it is clamped to the
   extents of their buffers (`clamped`). The result has to be expected to be faster than the versions before, and
   becomes the first one.
5. *Early*: loads in loops of the version for disjoint or aligned buffers, or of the kernel, are issued before the
   barriers that precede them (`early`). The result has to be expected to be faster than that and than the first
   version (`cost.preferred_between_barriers`), and becomes the first one.

Requires: the optimized module, and its entries as they were given. Guarantees: a version computes the same, bit for
bit, in every launch for which its conditions hold. Refuses, with a reason of `REASONS`: see there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..analysis.manager import Facts
from ..analysis.memory.access_ranges import are_readable
from ..analysis.memory.alias import Promise, RecordingPromise
from ..analysis.memory.assumptions import Assumptions
from ..arch import WARP
from ..contract import Condition
from ..contract.conditions import expressions_of
from ..contract.expressions import Expression
from ..contract.parsing import parse
from ..cost import (
    BLOCK_WARPS,
    MOST_WARPS,
    SCHEDULERS,
    Figures,
    gain,
    is_better,
    preferred_between_barriers,
    preferred_warps,
)
from ..ptx import Kernel, Module, flatten_scopes, print_kernel
from ..ptx.operations import Operation
from ..transforms.gate.judge import Judge, Refused
from ..transforms.gate.search import module_of
from .alignment import alignment_conditions, assumed_alignments, single_pointers
from .clamped import Clamped, clamp_indices, limit_conditions, limit_values
from .disjointness import by_allocation, by_ranges
from .early import Early, early_kernels, early_requirements
from .inside import inside_buffers, loads_at_home
from .pairs import Pair, needed_pairs, promise_of, transform_with

if TYPE_CHECKING:
    from ..transforms.passes import Pass
    from ..transforms.pipeline import KernelTransform

__all__ = [
    "FEW_WARPS",
    "HOISTING",
    "REASONS",
    "REASONS_TO_STAY",
    "Candidate",
    "Optimize",
    "VersionSearch",
    "Versioned",
    "limit_by_block",
    "pointer_pairs",
]

#: Why a kernel has no version, by id.
REASONS: dict[str, str] = {
    "debug": "the module has debug information of unoptimized code",
    "address-size": "its pointers do not have 64 bits",
    "own-variable": "it declares a variable in global memory, which its launches share",
    "no-pairs": "no two of its pointer parameters point to memory of which one part is written",
    "unchanged": "disjoint buffers make no rewrite possible that the gate keeps",
    "same": "the result is the same as without the promise that buffers are disjoint",
    "not-better": "the gate does not find the result better than the kernel without promises",
    "refused": "the gate cannot judge it",
    "too-long": "what it assumes cannot be written as a condition",
}

#: Why a kernel has no version with hoisted loads, by id.
REASONS_TO_STAY: dict[str, str] = {
    "one-block": "it has no branch above which a load could rise",
    "unchanged": "no load rises",
    "same": "no load rises under a condition, or the machine code stays the same",
    "not-better": "hoisted loads are not expected to make it faster",
    "refused": REASONS["refused"],
    "too-long": REASONS["too-long"],
}

#: The passes that hoist loads above the branches that decide about them, as the thesis does.
HOISTING = "ssrqp:paper=true"

#: A version with hoisted loads is made for launches with at most so many warps per scheduler. It issues more
#: instructions to overlap the latencies of its loads, and many warps hide latencies without it. Without figures of the
#: machine code, the version is preferred in all of these launches, and only in these.
FEW_WARPS = 4

#: How often the passes run with fewer clamped indices, until all loads with one have risen.
_MOST_TRIALS_OF_CLAMPS = 3

#: Optimizes kernels of a module in place with passes, under a promise. If the promise has `Promise.inside` and nothing
#: was assumed there, the result is not to be used.
Optimize = Callable[[Module, Sequence[Kernel], Promise, "Sequence[Pass]"], None]


@dataclass(frozen=True)
class Candidate:
    """A version that was found: the ``kernel``, still with its old name, and by description lists of conditions. It is
    valid if the conditions of one of the lists hold. ``pairs`` are assumed to be disjoint, ``aligned`` is assumed of
    parameters (`Promise.aligned`). ``gain``: what the gate found, in words. ``prefer_when``: when it is expected to be
    faster; None means always. ``arguments``: the values of the parameters that the kernel has behind those of the
    given one."""

    kernel: Kernel
    requires: Mapping[str, tuple[Condition, ...]]
    pairs: frozenset[Pair]
    gain: str = ""
    prefer_when: Expression | None = None
    aligned: frozenset[tuple[str, str, int]] = frozenset()
    arguments: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class Versioned:
    """The outcome for one kernel: versions, in the order in which they are tried, or none. ``reason`` is the id of the
    reason in `REASONS` why there is none for disjoint buffers, ``not_inside`` the one in `REASONS_TO_STAY` why there is
    none with hoisted loads.

    ``pointers``: the names of the parameters that point to memory which the kernel accesses.
    """

    candidates: tuple[Candidate, ...] = ()
    reason: str = ""
    not_inside: str = ""
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


class VersionSearch:
    """Finds the versions of one module. ``module`` is optimized; ``given`` has its entries as they were given.
    ``independent``: the entries about whose buffers the passes have asked nothing, so that a promise does not change
    the result. ``merges``: by entry, the alignments with which the passes would merge more loads, without a promise
    about buffers (`RecordingPromise.merges`); entries over which they have not run are missing."""

    def __init__(
        self,
        module: Module,
        given: Mapping[str, Kernel],
        independent: Set[str],
        merges: Mapping[str, frozenset[tuple[str, str, int]]],
        transform: KernelTransform,
        judge: Judge | None,
        optimize: Optimize,
        hoisting: Sequence[Pass],
    ) -> None:
        """``hoisting``: the passes that run before those of ``transform`` where loads may be hoisted."""
        self._module = module
        self._given = given
        self._independent = independent
        self._merges = merges
        self._transform = transform
        self._judge = judge
        self._optimize = optimize
        self._hoisting = hoisting

    def find(self) -> dict[str, Versioned]:
        """The outcome for each of the entries, by name."""
        reason = _reason_of(self._module)
        if reason:
            return {name: Versioned(reason=reason) for name in self._given}
        found: dict[str, Versioned] = {}
        pairs: dict[str, frozenset[Pair]] = {}
        for name, kernel in self._given.items():
            flatten_scopes(kernel)
            facts = self._facts(name)
            pointers = single_pointers(facts)
            if any(each.space == "global" for each in kernel.variables):
                found[name] = Versioned(reason="own-variable", pointers=pointers)
                continue
            pairs[name] = pointer_pairs(pointers, facts.memory.buffers.writes)
            found[name] = Versioned(reason="same" if pairs[name] else "no-pairs", pointers=pointers)
        candidates = [name for name in pairs if pairs[name] and name not in self._independent]
        restricted = self._optimized(candidates, Promise(everything=True), self._transform.passes)
        for name, kernel in restricted.items():
            candidate, reason = self._disjoint(name, kernel, pairs[name])
            found[name] = replace(found[name], candidates=(candidate,) if candidate else (), reason=reason)
        for name in pairs:
            disjoint = found[name].candidates
            aligned = self._aligned(name, disjoint)
            candidate, reason = self._inside(name, disjoint)
            inside = () if candidate is None else (candidate,)
            candidates = (*inside, *disjoint)
            if aligned is not None:
                both, _ = self._inside(name, (aligned,))
                candidates = (*inside, aligned, *disjoint) if both is None else (both, aligned, *inside, *disjoint)
            lower = disjoint if aligned is None else (aligned,)
            clamped = self._clamped(name, lower, candidates[:1])
            if clamped is not None:
                candidates = (clamped, *candidates)
            early = self._early(name, pairs[name], lower, candidates[:1])
            if early is not None:
                candidates = (early, *candidates)
            found[name] = replace(found[name], candidates=candidates, not_inside=reason)
        return found

    def _facts(self, name: str) -> Facts:
        """The facts of a copy of an entry as it was given, which nothing has changed yet. Whoever changes the copy need
        not say so: then the next call makes another one."""
        given, known = self._given[name], self._transform.known
        if name not in known or not known[name].kernel.is_still(given):
            known[name] = Facts(given.clone(), self._module)
        return known[name]

    def _aligned(self, name: str, disjoint: tuple[Candidate, ...]) -> Candidate | None:
        """The version with vector loads. ``disjoint``: the version that it extends."""
        pairs = disjoint[0].pairs if disjoint else frozenset[Pair]()
        promise = replace(promise_of(name, pairs), aligned=self._needed_alignments(name, pairs))
        if not promise.aligned:
            return None
        before = disjoint[0].kernel if disjoint else self._module.kernel(name)
        kernel = self._optimized([name], promise, self._transform.passes)[name]
        reason, gained, _ = self._judged(name, before, kernel)
        if reason:
            return None
        numbers = {param.name: number for number, param in enumerate(kernel.params or ())}
        conditions = alignment_conditions(promise, numbers)
        alternatives = disjoint[0].requires if disjoint else {"": ()}
        requires = {
            f"{what}{', ' if what else ''}aligned": (*others, *conditions) for what, others in alternatives.items()
        }
        return Candidate(kernel, requires, pairs, gained, aligned=promise.aligned)

    def _needed_alignments(self, name: str, pairs: frozenset[Pair]) -> frozenset[tuple[str, str, int]]:
        """What has to be aligned so that the passes, which assume that ``pairs`` are disjoint, merge more loads."""
        given = self._given[name]
        if not _has_similar_loads(given):
            return frozenset()
        if not pairs and name in self._merges:
            return self._merges[name]
        promise = RecordingPromise(pairs=promise_of(name, pairs).pairs, assumes=assumed_alignments)
        transform_with(self._transform, self._module, self._facts(name).kernel, promise)
        return promise.merges.get(name, frozenset())

    def _optimized(self, names: Sequence[str], promise: Promise, passes: Sequence[Pass]) -> dict[str, Kernel]:
        """The entries as they were given, optimized under a promise, by name."""
        results = self._optimized_copies([self._facts(name).kernel for name in names], promise, passes)
        # What is returned may be kept, but a copy that is still as it was given will be changed for another question.
        return {name: each.clone() if each.is_still(self._given[name]) else each for name, each in results.items()}

    def _optimized_copies(
        self, copies: Sequence[Kernel], promise: Promise, passes: Sequence[Pass]
    ) -> dict[str, Kernel]:
        """Entries, which are changed, optimized under a promise, by name."""
        scratch = replace(self._module, items=list(self._module.items))
        for kernel in copies:
            scratch.put(kernel)
        self._optimize(scratch, copies, promise, passes)
        return {kernel.name: scratch.kernel(kernel.name) for kernel in copies}

    def _disjoint(self, name: str, restricted: Kernel, relevant: frozenset[Pair]) -> tuple[Candidate | None, str]:
        """The version for disjoint buffers, or the reason why there is none."""
        base = self._module.kernel(name)
        reason, _, _ = self._judged(name, base, restricted)
        if reason:
            return None, reason
        pairs = needed_pairs(self._transform, self._module, self._given[name], relevant)
        if not pairs:
            return None, "same"
        # The gate may choose other rewrites under the smaller promise, so it decides again.
        kernel = self._optimized([name], promise_of(name, pairs), self._transform.passes)[name]
        reason, gained, _ = self._judged(name, base, kernel)
        if reason:
            return None, reason
        numbers = {param.name: number for number, param in enumerate(kernel.params or ())}
        ranges = by_ranges(self._facts(name), pairs)
        alternatives = [("disjoint buffers", by_allocation(numbers, pairs)), ("disjoint accesses", ranges)]
        requires = {what: conditions for what, conditions in alternatives if conditions is not None}
        return Candidate(kernel, requires, pairs, gained), ""

    def _inside(self, name: str, disjoint: tuple[Candidate, ...]) -> tuple[Candidate | None, str]:
        """The version with hoisted loads, or the reason why there is none. ``disjoint``: the version that it extends,
        for disjoint or aligned buffers."""
        base, given = self._module.kernel(name), self._given[name]
        if len(given.blocks) < 2:
            return None, "one-block"
        pairs = disjoint[0].pairs if disjoint else frozenset[Pair]()
        assumed = Assumptions()
        aligned = disjoint[0].aligned if disjoint else frozenset[tuple[str, str, int]]()
        promise = replace(promise_of(name, pairs), inside=assumed, aligned=aligned)
        kernel = self._optimized([name], promise, [*self._hoisting, *self._transform.passes])[name]
        if assumed.is_empty:
            return None, "same"
        before = disjoint[0].kernel if disjoint else base
        reason, gained, warps = self._judged(name, before, kernel, hoists=True)
        if reason:
            return None, reason
        inside = inside_buffers(self._module, kernel, [given, base, before], assumed)
        if not inside:
            return None, "same"
        if not are_readable(expression for each in inside for expression in expressions_of(each)):
            return None, "too-long"
        alternatives = disjoint[0].requires if disjoint else {"": ()}
        requires = {
            f"{what}{', ' if what else ''}loads inside buffers": (*conditions, *inside)
            for what, conditions in alternatives.items()
        }
        return Candidate(kernel, requires, pairs, gained, _up_to(warps)), ""

    def _clamped(self, name: str, lower: tuple[Candidate, ...], fastest: tuple[Candidate, ...]) -> Candidate | None:
        """The version with clamped indices, or ``None``. ``lower``: the version that it extends, for disjoint or
        aligned buffers. ``fastest``: the version that is tried first, in which other loads may have risen without a
        clamp."""
        base, given = self._module.kernel(name), self._given[name]
        if len(given.blocks) < 2:
            return None
        before = fastest[0].kernel if fastest else base
        pairs = lower[0].pairs if lower else frozenset[Pair]()
        aligned = lower[0].aligned if lower else frozenset[tuple[str, str, int]]()
        trial = clamp_indices(self._facts(name), loads_at_home(before, given))
        for _ in range(_MOST_TRIALS_OF_CLAMPS):
            if trial is None:
                return None
            assumed = Assumptions()
            promise = replace(promise_of(name, pairs), inside=assumed, aligned=aligned, limits=trial.limits)
            kernel = self._optimized_copies([trial.kernel], promise, [*self._hoisting, *self._transform.passes])[name]
            if not assumed.limits:
                return None
            risen = trial.positions - loads_at_home(kernel, given)
            if risen == trial.positions:
                homes = [given, base, *(each.kernel for each in lower)]
                inside = inside_buffers(self._module, kernel, homes, assumed, trial.limits)
                conditions = (*limit_conditions(trial.limits), *inside)
                return self._judged_clamped(name, kernel, conditions, trial, lower, before)
            # Clamps of loads that stay where they are cost instructions for nothing.
            trial = clamp_indices(self._facts(name), risen) if risen else None
        return None

    def _judged_clamped(
        self,
        name: str,
        kernel: Kernel,
        conditions: tuple[Condition, ...],
        trial: Clamped,
        lower: tuple[Candidate, ...],
        before: Kernel,
    ) -> Candidate | None:
        """The version with clamped indices if it is faster than ``before`` and than the version that it extends."""
        slower = lower[0].kernel if lower else self._module.kernel(name)
        gained, fewest = "", MOST_WARPS
        for other in (before, slower):
            reason, gained, warps = self._judged(name, other, kernel, hoists=True)
            if reason:
                return None
            fewest = min(fewest, MOST_WARPS if warps is None else warps)
        if not are_readable(expression for each in conditions for expression in expressions_of(each)):
            return None
        alternatives = lower[0].requires if lower else {"": ()}
        requires = {
            f"{what}{', ' if what else ''}clamped loads inside buffers": (*others, *conditions)
            for what, others in alternatives.items()
        }
        prefer_when = _up_to(None if fewest == MOST_WARPS else fewest)
        pairs = lower[0].pairs if lower else frozenset[Pair]()
        return Candidate(kernel, requires, pairs, gained, prefer_when, arguments=limit_values(trial.limits))

    def _early(
        self, name: str, relevant: frozenset[Pair], lower: tuple[Candidate, ...], fastest: tuple[Candidate, ...]
    ) -> Candidate | None:
        """The version with loads before barriers, or ``None``. The arguments are those of `_clamped`; ``relevant``: the
        pairs of parameters of which one is written."""
        base = self._module.kernel(name)
        extended = lower[0].kernel if lower else base
        pairs = lower[0].pairs if lower else frozenset[Pair]()
        results = early_kernels(self._transform, self._module, extended)
        others = [extended, *(each.kernel for each in fastest if each.kernel is not extended)]
        found = self._fastest_between_barriers(name, others, results)
        if found is None:
            return None
        chosen, gained, preferred = found
        more = chosen.needed(self._module, relevant) - pairs
        requires = early_requirements(self._facts(name), lower[0].requires if lower else {"": ()}, pairs, more)
        aligned = lower[0].aligned if lower else frozenset[tuple[str, str, int]]()
        return Candidate(chosen.kernel, requires, pairs | more, gained, preferred, aligned)

    def _fastest_between_barriers(
        self, name: str, others: Sequence[Kernel], results: Iterable[Early]
    ) -> tuple[Early, str, Expression | None] | None:
        """Of ``results`` the one that is expected to be the fastest, if it is expected to be faster than ``others``,
        with what it gains over the first of them, and when it is preferred; `None` is always."""
        if self._judge is None:
            first = next(iter(results), None)
            return None if first is None else (first, "", _up_to(FEW_WARPS))
        before: list[Figures] = []
        found: list[tuple[float, Early, str, Expression | None]] = []
        for each in results:
            try:
                before = before or [self._figures(name, kernel) for kernel in others]
            except Refused:
                return None
            try:
                figures = self._figures(name, each.kernel)
            except Refused:
                continue  # as where ptxas has no room for the results of the moved loads; fewer may fit
            limits = _least_limits([preferred_between_barriers(other, figures) for other in before])
            if any(limit != 0 for limit in limits):
                gained = gain(before[0], figures)
                cycles = math.prod(map(figures.cycles_of_block, BLOCK_WARPS))  # the size of blocks is not known
                found.append((cycles, each, gained, limit_by_block(limits)))
        if not found:
            return None
        _, chosen, gained, preferred = min(found, key=lambda each: each[0])
        return chosen, gained, preferred

    def _figures(self, name: str, kernel: Kernel) -> Figures:
        """The figures of code for an entry. Raises `Refused`."""
        assert self._judge is not None
        own = self._module.kernel(name)
        return self._judge.figures(module_of(self._module, [own], {name: kernel}))[name]

    def _judged(self, name: str, base: Kernel, kernel: Kernel, *, hoists: bool = False) -> tuple[str, str, int | None]:
        """The reason why ``kernel`` is not worth a version beside ``base``, or the empty string; what it gains; up to
        how many warps per scheduler it is preferred, `None` for any number. ``hoists``: it executes loads that
        ``base`` may not need."""
        if print_kernel(kernel) == print_kernel(base):
            is_given = print_kernel(kernel) == print_kernel(self._given[name])
            return "unchanged" if is_given else "same", "", None
        if self._judge is None:
            return "", "", FEW_WARPS if hoists else None
        try:
            before, after = self._figures(name, base), self._figures(name, kernel)
        except Refused:
            return "refused", "", None
        if before.code == after.code:
            return "same", "", None
        warps = _preferred(before, after, hoists=hoists)
        return ("not-better", "", None) if warps == 0 else ("", gain(before, after), warps)


def _has_similar_loads(kernel: Kernel) -> bool:
    """Whether two loads of the kernel have the same opcode, as those that become one vector load."""
    texts = [
        instr.form.text
        for instr in kernel.instructions()
        if instr.form.operation is Operation.LOAD and instr.form.space != "param" and instr.form.lanes == 1
    ]
    return len(set(texts)) < len(texts)


def _preferred(before: Figures, after: Figures, *, hoists: bool) -> int | None:
    """Up to how many warps per scheduler a version is preferred: 0 for none, `None` for any number."""
    if hoists and before.cycles and after.cycles:
        return preferred_warps(before, after)
    # A launch whose block does not fit takes another version, or the kernel itself.
    if not is_better(before, replace(after, threads=before.threads)):
        return 0
    return FEW_WARPS if hoists else None


def _up_to(warps: int | None) -> Expression | None:
    """The condition that a scheduler has at most so many warps of a launch; `None` for any number."""
    return None if warps is None else parse(f"warps_per_scheduler <= {warps}")


def _least_limits(limits: Sequence[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    """For each size of block the least of the limits; `None` is no limit."""
    columns = zip(*limits, strict=True)
    return tuple(min((each for each in column if each is not None), default=None) for column in columns)


def limit_by_block(limits: Sequence[int | None]) -> Expression | None:
    """The condition that a scheduler has at most so many warps of a launch, with one limit for each size of block in
    `BLOCK_WARPS`; blocks of other sizes have the limit of the next larger one. `None` for any launch.

    >>> str(limit_by_block((9, 9, 4, 4)))
    'warps_per_scheduler <= (9 if block_x * block_y * block_z <= 256 else 4)'
    """
    if all(limit is None for limit in limits):
        return None
    sizes = [each * SCHEDULERS * WARP for each in BLOCK_WARPS]
    numbers = [MOST_WARPS if limit is None else limit for limit in limits]
    text = str(numbers[-1])
    for index in reversed(range(len(numbers) - 1)):
        if numbers[index] != numbers[index + 1]:
            text = f"{numbers[index]} if block_x * block_y * block_z <= {sizes[index]} else {text}"
    return parse(f"warps_per_scheduler <= {text if ' ' not in text else f'({text})'}")


def _reason_of(module: Module) -> str:
    """The reason why no kernel of the module can have a version, or the empty string."""
    if "debug" in [word.strip() for word in module.target.split(",")]:
        return "debug"
    return "address-size" if (module.address_size or 64) != 64 else ""
