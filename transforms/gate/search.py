"""The gate's search: a subset of the rewrites of a kernel that makes it better, where all of them make it worse.

Rewrites are tried in halves. A half that does not hurt, together with the rewrites that are allowed already, becomes
allowed. A half that hurts is split again. Each trial is made for all kernels of a module together, so that ptxas starts
only once for it.

Requires: a transform that makes no rewrite whose key `Remarks.allowed` does not contain. Guarantees: at most
`MOST_TRIALS` trials, and no more code than `budget` allows; the best kernel is better than the given one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ...cost import Figures, is_better, worse
from ...ptx import Kernel, Module, RawDirective
from ..remarks import Remarks
from .judge import Judge, Refused
from .usual_figures import usual_figures

__all__ = ["Search", "Transform", "budget", "module_of", "size_of", "try_halves", "without_entries"]

#: How often kernels that got worse are transformed and judged again.
MOST_TRIALS = 12
#: How many instructions all trials together may transform and assemble: this share of the instructions of the changed
#: kernels, or `LEAST_CODE` if that is more. Each trial costs `START` more, about the time that ptxas takes to start.
#: With these limits two thirds of the public kernels are kept in part that are kept in part with twice the code.
MOST_CODE = 0.6
LEAST_CODE = 1500
START = 100

#: Transforms a kernel of a module in place; whether anything changed.
Transform: TypeAlias = Callable[[Module, Kernel, Remarks], bool]


@dataclass
class Search:
    """The search for one kernel.

    ``before`` are the figures of ``original``, ``after`` those with all rewrites; ``why`` is how these are worse.
    ``keys`` are those of all rewrites. ``allowed`` are the keys that are known not to hurt, ``waiting`` the sets of
    keys that are still to be tried together with them, the next one last. ``trying`` is the set of the current
    ``candidate``, whose remarks are ``remarks``. ``is_resumed``: the result of an earlier run is used.
    """

    original: Kernel
    before: Figures
    after: Figures
    keys: list[str]
    why: str
    allowed: list[str] = field(default_factory=list[str])
    waiting: list[list[str]] = field(default_factory=list["list[str]"])
    trying: list[str] = field(default_factory=list[str])
    candidate: Kernel | None = None
    remarks: Remarks | None = None
    best: Kernel | None = None
    best_remarks: Remarks | None = None
    best_figures: Figures | None = None
    is_resumed: bool = False

    def __post_init__(self) -> None:
        self.split(self.keys)

    @property
    def key(self) -> str:
        """What the result depends on: the machine code before and after, and the rewrites."""
        return "\0".join((self.before.code, self.after.code, *self.keys))

    @property
    def result(self) -> list[str]:
        """The rewrites of the best set; empty where no set is better."""
        kept = set(self.best_remarks.keys) if self.best_remarks is not None else set[str]()
        return [key for key in self.keys if key in kept]

    def resume(self, result: list[str]) -> None:
        """Try nothing but the result of an earlier search."""
        self.waiting = [result] if result else []
        self.is_resumed = True

    def split(self, group: list[str]) -> None:
        """Add the halves of ``group`` to the sets to try, the first half first."""
        if len(group) > 1 and not self.is_resumed:
            self.waiting += [group[len(group) // 2 :], group[: len(group) // 2]]

    def advance(self, module: Module, transform: Transform) -> bool:
        """Make the next candidate; ``False`` where none is left. Remarks find their places in ``module``. What has none
        of the rewrites to try is no candidate."""
        while self.waiting:
            self.trying = self.waiting.pop()
            self.remarks = Remarks(module, None, frozenset([*self.allowed, *self.trying]))
            self.candidate = self.original.clone()
            if transform(module, self.candidate, self.remarks) and self.remarks.keys:
                return True
        return False

    def judge(self, figures: Figures) -> None:
        """Record the figures of the candidate."""
        so_far = self.best_figures or self.before
        if is_better(so_far, figures):
            self.best, self.best_remarks, self.best_figures = self.candidate, self.remarks, figures
            self.allowed += self.trying
        elif not worse(so_far, figures):
            self.allowed += self.trying
        else:
            self.split(self.trying)


def budget(changed: Sequence[Kernel]) -> float:
    """How many instructions all trials together may have, for ``changed`` kernels."""
    return max(sum(map(size_of, changed)) * MOST_CODE, LEAST_CODE)


def try_halves(judge: Judge, transform: Transform, module: Module, searches: Sequence[Search], most: float) -> bool:
    """Try the rewrites of all searches in halves, for at most ``most`` instructions; ``False`` where the judge refused
    a trial, so that fewer sets were tried than the limits allow."""
    active = list(searches)
    for _ in range(MOST_TRIALS):
        trials: list[Search] = []
        most -= START
        for search in active:
            size = size_of(search.original)
            if most >= size and search.advance(module, transform):
                most -= size
                trials.append(search)
        if not trials:
            return True
        candidates = {search.original.name: search.candidate for search in trials if search.candidate is not None}
        try:
            figures = usual_figures(judge, module_of(module, list(candidates.values()), candidates))
        except Refused:
            return False  # the best kernels so far stay
        for search in trials:
            search.judge(figures[search.original.name])
        active = trials
    return True


def size_of(kernel: Kernel) -> int:
    """The number of instructions of the kernel."""
    return sum(len(block.instrs) for block in kernel.blocks)


def module_of(module: Module, kernels: Sequence[Kernel], instead: Mapping[str, Kernel] | None = None) -> Module:
    """The module without the entries that are not in ``kernels``. ``instead`` replaces kernels by name.

    Where one of the kernels is a function, entries that may call it stay: only these show whether it got better. If
    nothing that stays can reach a function, the functions that are not in ``kernels`` are left out, too.
    """
    names = {kernel.name for kernel in kernels}
    with_callers = any(not kernel.is_entry for kernel in kernels)
    entries = [each for each in module.entries if each.name in names or (with_callers and _may_call(each))]
    shown = [instead.get(each.name, each) for each in entries] if instead else entries
    shown = [*shown, *(each for each in kernels if not each.is_entry)]
    stay = {each.name for each in entries} | names
    if any(_may_call(each) or _names_functions(each, module) for each in shown) or _may_name_functions(module):
        stay |= {each.name for each in module.kernels if not each.is_entry}
    left_out = {each.name for each in module.kernels} - stay
    items: list[Any] = []
    for item in module.items:
        if not isinstance(item, Kernel):
            items.append(item)
        elif item.name not in left_out:
            items.append(instead.get(item.name, item) if instead and not item.is_declaration else item)
    return replace(module, items=items)


def without_entries(module: Module, names: Collection[str]) -> Module:
    """The module without the entries of these names."""
    if not names:
        return module
    left_out = [kernel for kernel in module.entries if kernel.name in names]
    return replace(module, items=[item for item in module.items if item not in left_out])


def _may_call(kernel: Kernel) -> bool:
    return any(instr.form.is_call or instr.form.is_opaque for instr in kernel.instructions())


def _names_functions(entry: Kernel, module: Module) -> bool:
    """Whether an instruction of ``entry`` reads the address of a function."""
    functions = {each.name for each in module.items if isinstance(each, Kernel) and not each.is_entry}
    return bool(functions) and any(
        symbol.name in functions for instr in entry.instructions() for symbol in instr.symbols()
    )


def _may_name_functions(module: Module) -> bool:
    """Whether the initial value of a variable or a directive may name a function of ``module``. Debug information has
    labels of functions."""
    functions = {each.name for each in module.kernels if not each.is_entry}
    directives = [each.text for each in module.items if isinstance(each, RawDirective)]
    if functions and any(text.startswith(".section") for text in directives):
        return True
    texts = [*directives, *(each.initializer or "" for each in module.variables)]
    return any(name in text for text in texts for name in functions)
