"""The gate: a change is kept only if the machine code does not get worse.

The assembler has the last word. The module is judged before and after; kernel by kernel the transformed version stays
only where it is *better*: nothing worse in

- accesses to local memory (spills),
- warps that fit on a multiprocessor,
- weighted machine instructions, 8 to the power of the loop depth each,

and something better, fewer registers included. Where a kernel got worse, its rewrites are tried again in halves, so
that one bad motion does not cost the good ones. A kernel whose machine code came out the same is left as it was given.

The judge is handed in (`Judge`): `harness.gate` builds one on ptxas; `PressureJudge` here is the static stand-in where
there is no assembler. Guarantees: a kernel that is kept is not worse by the judge's figures; every decision is a
remark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..analysis.manager import Facts
from ..ptx import Effect, Kernel, Module, Variable
from .remarks import Remarks

__all__ = ["Figures", "Gate", "Judge", "PressureJudge", "Refused", "worse"]

PASS = "gate"

#: How often a kernel that got worse is transformed and judged again.
MOST_TRIALS = 12


@dataclass(frozen=True, slots=True)
class Figures:
    """What the judge says of one kernel. ``code`` is equal for equal machine code; ``warps`` is how many fit on a
    multiprocessor; ``weight`` is weighted instructions; ``spills`` counts accesses to local memory."""

    code: str
    registers: int
    spills: int
    warps: int
    weight: float


class Refused(Exception):
    """The judge cannot judge the module; the message says why."""


class Judge(Protocol):
    """Says what becomes of the kernels of a module."""

    name: str

    def figures(self, module: Module) -> dict[str, Figures]:
        """The figures of each entry by name. Raises `Refused`."""
        ...


def worse(before: Figures, after: Figures) -> str:
    """In what ``after`` is worse than ``before``; empty where in nothing."""
    if after.spills > before.spills:
        return f"{after.spills - before.spills} more accesses to local memory"
    if after.warps < before.warps:
        return f"{after.warps} warps on a multiprocessor instead of {before.warps}"
    if after.weight > before.weight:
        return f"weighted machine instructions {after.weight:g} instead of {before.weight:g}"
    return ""


def _is_better(before: Figures, after: Figures) -> bool:
    if worse(before, after):
        return False
    return (after.spills, -after.warps, after.weight, after.registers) < (
        before.spills,
        -before.warps,
        before.weight,
        before.registers,
    )


#: Transforms a kernel of a module in place; whether anything changed.
Transform = Callable[[Module, Kernel, Remarks], bool]


class Gate:
    """Runs a transform over a module under a judge."""

    def __init__(self, judge: Judge, transform: Transform) -> None:
        self.judge = judge
        self.transform = transform

    def run(self, module: Module, kernels: Sequence[Kernel], remarks: Remarks) -> bool:
        """Transform ``kernels`` of ``module`` in place, and keep what is better; whether anything changed."""
        originals = {kernel.name: _copy(kernel) for kernel in kernels}
        given = replace(module, items=[self._original(item, originals) for item in module.items])
        own: dict[str, Remarks] = {}
        changed: list[Kernel] = []
        for kernel in kernels:
            own[kernel.name] = Remarks(module, _left(remarks), remarks.denied)
            if self.transform(module, kernel, own[kernel.name]):
                changed.append(kernel)
            remarks.rewrites += own[kernel.name].rewrites
            own[kernel.name].rewrites = 0
        if not changed:
            self._take(remarks, own)
            return False
        try:
            before, after = self.judge.figures(given), self.judge.figures(module)
        except Refused as reason:
            return self._give_up(module, originals, changed, remarks, own, str(reason))
        return self.decide(module, given, originals, changed, before, after, remarks, own)

    def decide(
        self,
        module: Module,
        given: Module,
        originals: dict[str, Kernel],
        changed: list[Kernel],
        before: dict[str, Figures],
        after: dict[str, Figures],
        remarks: Remarks,
        own: dict[str, Remarks],
    ) -> bool:
        """Keep, try again or give back each changed kernel; whether any stays changed."""
        functions = [kernel for kernel in changed if not kernel.is_entry]
        if functions and any(worse(before[name], after[name]) for name in before if name in after):
            # A function shows only in the entries that call it: where one got worse, none of them stays.
            for kernel in functions:
                _put(module, originals[kernel.name])
                self._say(remarks, kernel, "Missed", "an entry that may call it got worse", "gate-worse")
                own.pop(kernel.name)
            after = self.judge.figures(module)
        kept = [kernel for kernel in functions if kernel.name in own]
        for kernel in changed:
            if not kernel.is_entry:
                continue
            name = kernel.name
            if before[name].code == after[name].code:
                _put(module, originals[name])
                own.pop(name)
                self._say(remarks, kernel, "Analysis", "the machine code came out the same", "gate-identical")
            elif _is_better(before[name], after[name]):
                kept.append(kernel)
                self._say(remarks, kernel, "Passed", _gain(before[name], after[name]), "")
            else:
                own[name], better = self.try_again(
                    given, module, originals[name], before[name], after[name], own[name], remarks
                )
                _put(module, better if better is not None else originals[name])
                if better is not None:
                    kept.append(better)
                else:
                    own.pop(name)
        self._take(remarks, own)
        return bool(kept)

    def try_again(
        self,
        given: Module,
        places: Module,
        original: Kernel,
        before: Figures,
        after: Figures,
        first: Remarks,
        remarks: Remarks,
    ) -> tuple[Remarks, Kernel | None]:
        """Rewrites in halves, the best set found; ``None`` where no set is better than the kernel as given."""
        groups = list(first.keys)
        trials = 0
        best: tuple[Remarks, Kernel | None] = (first, None)
        best_figures = before
        allowed: list[str] = []
        alone = replace(given, items=[i for i in given.items if not _is_other_entry(i, original)])
        work = [groups[len(groups) // 2 :], groups[: len(groups) // 2]] if len(groups) > 1 else []
        while work and trials < MOST_TRIALS:
            group = work.pop()
            trials += 1
            denied = frozenset(groups) - set(allowed) - set(group)
            candidate, said = original.clone(), Remarks(places, None, denied | remarks.denied)
            module = replace(alone, items=[candidate if _same(item, original) else item for item in alone.items])
            if not self.transform(module, candidate, said):
                continue
            figures = self.judge.figures(module)[original.name]
            if _is_better(best_figures, figures):
                best, best_figures = (said, candidate), figures
                allowed += group
            elif not worse(best_figures, figures):
                allowed += group
            elif len(group) > 1:
                work += [group[len(group) // 2 :], group[: len(group) // 2]]
        why = worse(before, after) or "nothing got better"
        if best[1] is None:
            self._say(remarks, original, "Missed", f"given back: {why}", "gate-worse")
        else:
            made, all_of_them = len(best[0].keys), len(groups)
            message = f"{made} of {all_of_them} rewrites kept ({why} with all): {_gain(before, best_figures)}"
            self._say(remarks, original, "Passed", message, "")
        return best

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
            own.pop(kernel.name)
            self._say(remarks, kernel, "Missed", f"given back, since it cannot be judged: {why}", "gate-refused")
        self._take(remarks, own)
        return False

    def _original(self, item: object, originals: dict[str, Kernel]) -> Kernel:
        if isinstance(item, Kernel) and not item.is_declaration:
            return originals.get(item.name, item)
        return item  # pyright: ignore[reportReturnType]

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


def _is_other_entry(item: object, kernel: Kernel) -> bool:
    return isinstance(item, Kernel) and item.is_entry and item.name != kernel.name


def _put(module: Module, kernel: Kernel) -> None:
    """Put ``kernel`` in the place of the one of its name."""
    for position, item in enumerate(module.items):
        if _same(item, kernel):
            module.items[position] = kernel


def _gain(before: Figures, after: Figures) -> str:
    parts = [
        f"{what} {old:g} → {new:g}"
        for what, old, new in (
            ("weighted instructions", before.weight, after.weight),
            ("registers", before.registers, after.registers),
            ("spills", before.spills, after.spills),
            ("warps", before.warps, after.warps),
        )
        if old != new
    ]
    return ", ".join(parts)


class PressureJudge:
    """A judge without an assembler: weighted PTX instructions and the estimate of register pressure.

    ``registers`` is the largest number of 32-bit registers live at once; ``warps`` follows from it as if the
    multiprocessor had 65536 registers and held 64 warps. It knows nothing of spills.
    """

    name = "pressure model"

    def figures(self, module: Module) -> dict[str, Figures]:
        """The figures of each entry by name."""
        return {kernel.name: self._of(kernel, module) for kernel in module.entries}

    def _of(self, kernel: Kernel, module: Module) -> Figures:
        facts = Facts(kernel, module)
        depth = facts.loops.depth
        weight = 0.0
        code: list[str] = []
        for number in facts.cfg.rpo:
            for instr in facts.cfg.blocks[number].instrs:
                if not instr.is_directive:
                    code.append(instr.text)
                    if instr.form.op.cost or instr.form.effects & Effect.CONTROL:
                        weight += 8.0 ** min(depth[number], 6)
        registers = facts.pressure.maximum.words
        warps = min(64, 65536 // (32 * max(registers + 8, 1)))
        return Figures("\n".join(code), registers, 0, warps, weight)
