"""The gate's search: of the rewrites of a kernel that got worse, those that make it better.

They are tried in halves: a half that does not hurt on top of those that are allowed stays allowed, one that hurts is
split again. All kernels of a module are tried at a time, so that ptxas starts once for each turn.

Requires: a transform that makes no rewrite that `Remarks.allowed` does not name. Guarantees: ends after `MOST_TRIALS`
turns, and for no more code than `budget` allows; what is best is better than the kernel as it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ...cost import Figures, is_better, worse
from ...ptx import Kernel, Module
from ..remarks import Remarks
from .judge import Judge, Refused

__all__ = ["Search", "Transform", "budget", "module_of", "size_of", "try_halves"]

#: How often a kernel that got worse is transformed and judged again, and how many instructions all trials together may
#: have transformed and assembled: as many as the changed kernels have, times the second, or the third where that is
#: more. A turn counts as so many instructions besides, as long as it takes ptxas to start. Of the kernels of public PTX
#: that were kept in part with twice the code, two of three still are.
MOST_TRIALS = 12
MOST_CODE = 0.6
LEAST_CODE = 1500
START = 100

#: Transforms a kernel of a module in place; whether anything changed.
Transform: TypeAlias = Callable[[Module, Kernel, Remarks], bool]


@dataclass
class Search:
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


def budget(changed: Sequence[Kernel]) -> float:
    """How many instructions the trials may have in all, for ``changed`` kernels."""
    return max(sum(map(size_of, changed)) * MOST_CODE, LEAST_CODE)


def try_halves(judge: Judge, transform: Transform, module: Module, searches: Sequence[Search], most: float) -> bool:
    """Try the searches' rewrites in halves, all kernels at a time, for at most ``most`` instructions; ``False`` where
    the judge refused a turn, so that less was tried than might have been."""
    open_ones = list(searches)
    for _ in range(MOST_TRIALS):
        trials: list[Search] = []
        most -= START
        for each in open_ones:
            size = size_of(each.original)
            if most >= size and each.advance(module, transform):
                most -= size
                trials.append(each)
        if not trials:
            return True
        candidates = {each.original.name: each.candidate for each in trials if each.candidate is not None}
        try:
            found = judge.figures(module_of(module, list(candidates.values()), candidates))
        except Refused:
            return False  # the best found so far stands
        for each in trials:
            each.judge(found[each.original.name])
        open_ones = trials
    return True


def size_of(kernel: Kernel) -> int:
    """Instructions of the kernel."""
    return sum(len(block.instrs) for block in kernel.blocks)


def module_of(module: Module, kernels: Sequence[Kernel], instead: Mapping[str, Kernel] | None = None) -> Module:
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
