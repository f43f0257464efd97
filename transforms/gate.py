"""The gate: a change is kept only if the machine code does not get worse.

The assembler has the last word. The module is judged before and after; kernel by kernel the transformed version stays
only where it is *better*, which is asked at both ends of what a launch may be, since the gate knows no launch:

- *one warp alone*: cycles of a warp that nothing hides the latency of, as in a small grid; loads that wait for one
  another instead of being issued together cost here;
- *a full multiprocessor*: cycles per warp where as many warps as fit share four schedulers: the issue slots of a warp,
  or its cycles alone divided by the number of warps, whichever is more; registers cost here, through occupancy.

Neither may get worse, nor may accesses to local memory (spills) increase, and something must get better. Figures that
differ by less than one in a thousand are equal; of equals the one with fewer instructions, then registers, is better.
Where a kernel got worse, its rewrites are tried again in halves, so that one bad motion does not cost the good ones. A
kernel whose machine code came out the same is left as it was given.

The judge is handed in (`Judge`): `harness.gate` builds one on ptxas; `static_judge` is the stand-in where there is
no assembler, and knows much less. Guarantees: a kernel that is kept is not worse by the judge's figures; every
decision is a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from ..ptx import Kernel, Module, Variable
from .remarks import Remarks

__all__ = ["Figures", "Gate", "Judge", "Refused", "Remembering", "is_better", "worse"]

PASS = "gate"

#: How often a kernel that got worse is transformed and judged again, and how many instructions all trials together may
#: have assembled: as many as the changed kernels have, times the first, or the second where that is more.
MOST_TRIALS = 12
MOST_CODE = 1.0
LEAST_CODE = 1500

#: Instructions that a multiprocessor issues in a cycle.
SCHEDULERS = 4

#: Why a static judge keeps no change of arithmetic alone.
_NOTHING_STATIC = "no fewer accesses to memory or long operations, and what else PTX tells does not foretell time"

#: Figures that differ by less than this share are equal.
RESOLUTION = 0.001


@dataclass(frozen=True, slots=True)
class Figures:
    """What the judge says of one kernel. ``code`` is equal for equal machine code; ``warps`` is how many fit on a
    multiprocessor; ``weight`` is weighted instructions; ``spills`` counts accesses to local memory; ``cycles`` are
    those of one warp alone, 0 where the judge knows no schedule.

    A judge without an assembler says ``is_static``: ``weight`` is accesses to memory and long operations then,
    ``spills`` the 32-bit values that are live beyond the registers of a thread, and neither warps nor registers
    decide.
    """

    code: str
    registers: int
    spills: int
    warps: float
    weight: float
    cycles: float = 0.0
    is_static: bool = False

    @property
    def full(self) -> float:
        """Cycles per warp on a full multiprocessor."""
        return max(self.weight / SCHEDULERS, self.cycles / max(self.warps, 1.0))


class Refused(Exception):
    """The judge cannot judge the module; the message says why."""


class Judge(Protocol):
    """Says what becomes of the kernels of a module."""

    name: str

    def figures(self, module: Module) -> dict[str, Figures]:
        """The figures of each entry by name. Raises `Refused`."""
        ...


@dataclass(frozen=True, slots=True)
class _Term:
    """One figure of two kernels, as a cost; ``change`` says it in words."""

    before: float
    after: float
    change: str

    @property
    def is_worse(self) -> bool:
        return _is_less(self.before, self.after)

    @property
    def is_better(self) -> bool:
        return _is_less(self.after, self.before)


def _terms(before: Figures, after: Figures) -> list[_Term]:
    """What must not get worse besides spills."""
    if before.is_static:
        counted = f"weighted accesses and long operations {after.weight:g} instead of {before.weight:g}"
        return [_Term(before.weight, after.weight, counted)]
    if before.cycles and after.cycles:
        alone = f"{after.cycles:.0f} cycles of one warp alone instead of {before.cycles:.0f}"
        full = f"{after.full:.2f} cycles per warp on a full multiprocessor instead of {before.full:.2f}"
        return [_Term(before.cycles, after.cycles, alone), _Term(before.full, after.full, full)]
    # Without a schedule, all that is known of latency is how many warps there are to hide it.
    warps = f"{after.warps:g} warps on a multiprocessor instead of {before.warps:g}"
    weight = f"weighted machine instructions {after.weight:g} instead of {before.weight:g}"
    return [_Term(-before.warps, -after.warps, warps), _Term(before.weight, after.weight, weight)]


def _is_less(left: float, right: float) -> bool:
    return right - left > RESOLUTION * abs(right)


@runtime_checkable
class Remembering(Protocol):
    """A judge that also keeps what searches came to, from run to run."""

    def recall(self, key: str) -> list[str] | None:
        """What was kept under ``key``."""
        ...

    def remember(self, key: str, value: list[str]) -> None:
        """Keep ``value`` under ``key``."""
        ...


def worse(before: Figures, after: Figures) -> str:
    """In what ``after`` is worse than ``before``; empty where in nothing."""
    if after.spills > before.spills:
        more = "live values beyond a thread's registers" if before.is_static else "accesses to local memory"
        return f"{after.spills - before.spills} more {more}"
    return next((term.change for term in _terms(before, after) if term.is_worse), "")


def is_better(before: Figures, after: Figures) -> bool:
    """Whether ``after`` is worse in nothing, and better in something."""
    if worse(before, after):
        return False
    if after.spills < before.spills or any(term.is_better for term in _terms(before, after)):
        return True
    return not before.is_static and (after.weight, after.registers) < (before.weight, before.registers)


#: Transforms a kernel of a module in place; whether anything changed.
Transform = Callable[[Module, Kernel, Remarks], bool]


@dataclass
class _Search:
    """The rewrites of one kernel that got worse, tried in halves: the best set found so far.

    ``allowed`` are those that are known not to hurt, ``waiting`` the groups still to be tried on top of them.
    """

    original: Kernel
    before: Figures
    after: Figures
    groups: list[str]
    why: str
    allowed: list[str] = field(default_factory=list[str])
    waiting: list[list[str]] = field(default_factory=list["list[str]"])
    trying: list[str] = field(default_factory=list[str])
    candidate: Kernel | None = None
    said: Remarks | None = None
    best: Kernel | None = None
    best_said: Remarks | None = None
    best_figures: Figures | None = None
    is_settled: bool = False

    def __post_init__(self) -> None:
        self.split(self.groups)

    @property
    def key(self) -> str:
        """Equal where the search comes to the same: machine code before and after, and the rewrites."""
        return "\0".join((self.before.code, self.after.code, *self.groups))

    @property
    def result(self) -> list[str]:
        """The rewrites of the best set; none where nothing is better."""
        kept = set(self.best_said.keys) if self.best_said is not None else set[str]()
        return [key for key in self.groups if key in kept]

    def resume(self, result: list[str]) -> None:
        """Try nothing but what an earlier search came to."""
        self.waiting = [result] if result else []
        self.is_settled = True

    @property
    def size(self) -> int:
        """Instructions of the kernel."""
        return _size(self.original)

    def split(self, group: list[str]) -> None:
        """Let the halves of ``group`` be tried, the first one first."""
        if len(group) > 1 and not self.is_settled:
            self.waiting += [group[len(group) // 2 :], group[: len(group) // 2]]

    def advance(self, places: Module, transform: Transform) -> bool:
        """Make the next candidate; ``False`` where none is left."""
        while self.waiting:
            self.trying = self.waiting.pop()
            self.said = Remarks(places, None, frozenset([*self.allowed, *self.trying]))
            self.candidate = self.original.clone()
            if transform(places, self.candidate, self.said):
                return True
        return False

    def judge(self, figures: Figures) -> None:
        """Say what became of the candidate."""
        so_far = self.best_figures or self.before
        if is_better(so_far, figures):
            self.best, self.best_said, self.best_figures = self.candidate, self.said, figures
            self.allowed += self.trying
        elif not worse(so_far, figures):
            self.allowed += self.trying
        else:
            self.split(self.trying)


class Gate:
    """Runs a transform over a module under a judge."""

    def __init__(self, judge: Judge, transform: Transform) -> None:
        self.judge = judge
        self.transform = transform

    def run(self, module: Module, kernels: Sequence[Kernel], remarks: Remarks) -> bool:
        """Transform ``kernels`` of ``module`` in place, and keep what is better; whether anything changed."""
        originals = {kernel.name: _copy(kernel) for kernel in kernels}
        own: dict[str, Remarks] = {}
        changed: list[Kernel] = []
        for kernel in kernels:
            own[kernel.name] = Remarks(module, _left(remarks), explains=remarks.explains)
            if self.transform(module, kernel, own[kernel.name]):
                changed.append(kernel)
            remarks.rewrites += own[kernel.name].rewrites
            own[kernel.name].rewrites = 0
        if not changed:
            self._take(remarks, own)
            return False
        try:
            kept = self.decide(module, originals, changed, remarks, own)
        except Refused as reason:
            return self._give_up(module, originals, changed, remarks, own, str(reason))
        self._take(remarks, own)
        return kept

    def decide(
        self,
        module: Module,
        originals: dict[str, Kernel],
        changed: list[Kernel],
        remarks: Remarks,
        own: dict[str, Remarks],
    ) -> bool:
        """Keep, try again or give back each changed kernel; whether any stays changed. Raises `Refused`."""
        before = self.judge.figures(_module_of(module, changed, originals))
        after = self._after(_module_of(module, changed))
        functions = [kernel for kernel in changed if not kernel.is_entry]
        if functions and any(worse(before[name], after[name]) for name in before if name in after):
            # A function shows only in the entries that call it: where one got worse, none of them stays.
            for kernel in functions:
                _put(module, originals[kernel.name])
                self._say(remarks, kernel, "Missed", "an entry that may call it got worse", "gate-worse")
                remarks.take_refusals(own.pop(kernel.name))
            after = self._after(_module_of(module, changed))
        kept = any(kernel.name in own for kernel in functions)
        searches: list[_Search] = []
        for kernel in changed:
            if not kernel.is_entry:
                continue
            name = kernel.name
            old, new = before[name], after[name]
            if old.code == new.code:
                _put(module, originals[name])
                remarks.take_refusals(own.pop(name))
                self._say(remarks, kernel, "Analysis", "the machine code came out the same", "gate-identical")
            elif is_better(old, new):
                kept = True
                self._say(remarks, kernel, "Passed", _gain(old, new), "")
            else:
                why = worse(old, new) or (_NOTHING_STATIC if old.is_static else "nothing got better")
                searches.append(_Search(originals[name], old, new, list(own[name].keys), why))
                _put(module, originals[name])
                remarks.take_refusals(own.pop(name))
        if remarks.limit is None:  # a set of rewrites is not the first N of them
            self.search(module, searches, sum(_size(kernel) for kernel in changed), remarks)
        for each in searches:
            kept |= self.conclude(module, each, remarks, own)
        return kept

    def _after(self, module: Module) -> dict[str, Figures]:
        """Figures of a module that could be judged before the passes ran."""
        try:
            return self.judge.figures(module)
        except Refused as reason:
            raise Refused(f"what the passes made: {reason}") from reason

    def search(self, module: Module, searches: list[_Search], size: int, remarks: Remarks) -> None:
        """Try the searches' rewrites in halves, all kernels at a time, for at most as much code as ``size`` allows; or
        what an earlier run has come to."""
        memory = self.judge if isinstance(self.judge, Remembering) else None
        for each in searches:
            result = memory.recall(each.key) if memory is not None else None
            if result is not None:
                each.resume(result)
        self._try_halves(module, searches, max(size * MOST_CODE, LEAST_CODE), remarks)
        for each in searches:
            if memory is not None and not each.is_settled:
                memory.remember(each.key, each.result)

    def _try_halves(self, module: Module, searches: list[_Search], most: float, remarks: Remarks) -> None:
        open_ones = list(searches)
        for _ in range(MOST_TRIALS):
            trials: list[_Search] = []
            for each in open_ones:
                if most >= each.size and each.advance(module, self.transform):
                    most -= each.size
                    trials.append(each)
            if not trials:
                return
            candidates = {each.original.name: each.candidate for each in trials if each.candidate is not None}
            try:
                found = self.judge.figures(_module_of(module, list(candidates.values()), candidates))
            except Refused:
                return  # the best found so far stands
            for each in trials:
                each.judge(found[each.original.name])
            open_ones = trials

    def conclude(self, module: Module, found: _Search, remarks: Remarks, own: dict[str, Remarks]) -> bool:
        """Put the best kernel of a search in place, and say so; whether it is a changed one."""
        name = found.original.name
        if found.best is None or found.best_said is None or found.best_figures is None:
            self._say(remarks, found.original, "Missed", f"given back: {found.why}", "gate-worse")
            return False
        _put(module, found.best)
        own[name] = found.best_said
        own[name].rewrites = 0
        share = f"{len(found.best_said.keys)} of {len(found.groups)} rewrites kept ({found.why} with all)"
        self._say(remarks, found.original, "Passed", f"{share}: {_gain(found.before, found.best_figures)}", "")
        return True

    def _give_up(
        self,
        module: Module,
        originals: dict[str, Kernel],
        changed: list[Kernel],
        remarks: Remarks,
        own: dict[str, Remarks],
        why: str,
    ) -> bool:
        for kernel in changed:
            _put(module, originals[kernel.name])
            remarks.take_refusals(own.pop(kernel.name))
            self._say(remarks, kernel, "Missed", f"given back, since it cannot be judged: {why}", "gate-refused")
        self._take(remarks, own)
        return False

    def _say(self, remarks: Remarks, kernel: Kernel, kind: str, message: str, reason: str) -> None:
        remarks.add(kind, PASS, "Kept" if kind == "Passed" else "NotKept", kernel, message, reason=reason)
        remarks.count(kernel, PASS, "kept" if kind == "Passed" else reason)

    def _take(self, remarks: Remarks, own: dict[str, Remarks]) -> None:
        for said in own.values():
            remarks.take(said)


def _copy(kernel: Kernel) -> Kernel:
    """A copy that later changes of the kernel do not touch."""
    if any(isinstance(item, Variable) and item.space != "param" for item in kernel.scoped_names):
        kernel.flatten_scopes()  # which may rename variables in place
    return kernel.clone()


def _left(remarks: Remarks) -> int | None:
    return None if remarks.limit is None else max(remarks.limit - remarks.rewrites, 0)


def _same(item: object, kernel: Kernel) -> bool:
    return isinstance(item, Kernel) and item.name == kernel.name and not item.is_declaration


def _size(kernel: Kernel) -> int:
    return sum(len(block.instrs) for block in kernel.blocks)


def _module_of(module: Module, kernels: Sequence[Kernel], instead: Mapping[str, Kernel] | None = None) -> Module:
    """The module without the entries that are not among ``kernels``, with ``instead`` in place of those of its names.

    All entries stay where one of the kernels is a function, which shows in what calls it only.
    """
    names = {kernel.name for kernel in kernels}
    everything = any(not kernel.is_entry for kernel in kernels)
    items: list[Any] = []
    for item in module.items:
        if isinstance(item, Kernel) and not item.is_declaration:
            if item.is_entry and not everything and item.name not in names:
                continue
            items.append(instead.get(item.name, item) if instead else item)
        else:
            items.append(item)
    return replace(module, items=items)


def _put(module: Module, kernel: Kernel) -> None:
    """Put ``kernel`` in the place of the one of its name."""
    for position, item in enumerate(module.items):
        if _same(item, kernel):
            module.items[position] = kernel


def _short(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 1000 or number == int(number) else f"{number:.3g}"


def _gain(before: Figures, after: Figures) -> str:
    weight, registers = "weighted instructions", "registers"
    if before.is_static:
        weight, registers = "weighted accesses and long operations", "live registers"
    parts = [
        f"{what} {_short(old)} → {_short(new)}"
        for what, old, new in (
            ("cycles of one warp", before.cycles, after.cycles),
            (weight, before.weight, after.weight),
            (registers, before.registers, after.registers),
            ("spills", before.spills, after.spills),
            ("warps", before.warps, after.warps),
        )
        if old != new
    ]
    return ", ".join(parts)
