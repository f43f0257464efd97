"""The gate: a change is kept only if the machine code does not get worse.

The assembler has the last word. The module is judged before and after; kernel by kernel the transformed version stays
only where it is *better*, which is asked at both ends of what a launch may be, since the gate knows no launch:

- *one warp alone*: cycles of a warp that nothing hides the latency of, as in a small grid; loads that wait for one
  another instead of being issued together cost here;
- *a full multiprocessor*: cycles per warp where as many warps as fit share four schedulers: the issue slots of a warp,
  or its cycles alone divided by the number of warps, whichever is more; registers cost here, through occupancy.

Neither may get worse, nor may accesses to local memory (spills) increase, and something must get better. Figures that
differ by less than one in a thousand are equal; of equals the one with fewer weighted instructions or, where these are
equal, too, fewer registers is better. Where a kernel got worse, its rewrites are tried again in halves
(`search.py`), so that one bad motion does not cost the good ones. A kernel whose machine code came out the same is
left as it was given.

The judge is handed in (`gate_figures.Judge`): `toolchain.ptxas_judge` builds one on ptxas; `static_judge` is the stand-in where
there is no assembler, and knows much less. What became of an entry is kept by a judge that remembers, and taken from
there in the next run, without a pass (`outcome_cache.py`), unless rewrites are limited. Where functions change, which
show in the entries that call them, that is so of a module as a whole.

Guarantees: a kernel that is kept is not worse by the judge's figures; every decision is a remark, beside those of the
kernel's passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ptx import Kernel, Module
from ...ptx.collector import is_large, paused
from ..equal_kernels import Outcome, Twin, Twins, untouched_copy
from ..remarks import Remarks
from .figures import Figures, Judge, Refused, Remembering, gain, is_better, worse
from .outcome_cache import Given, Memory
from .search import Search, Transform, budget, module_of, try_halves

__all__ = ["Figures", "Gate", "Judge", "Refused", "Remembering", "is_better", "worse"]

PASS = "gate"

#: Why a static judge keeps no change of arithmetic alone.
_NOTHING_STATIC = "no fewer accesses to memory or long operations, and what else PTX tells does not foretell time"


@dataclass
class _Try:
    """A kernel in a run of the gate. ``kernel`` is what it is now, ``original`` a copy of it as it was; ``own`` is what
    the passes said, ``said`` what is said in the end, once that is known."""

    kernel: Kernel
    original: Kernel
    own: Remarks
    changed: bool
    said: Remarks | None = None

    def say(self, kind: str, message: str, reason: str) -> None:
        """Say what the gate decided."""
        said = self.said or self.own
        said.add(kind, PASS, "Kept" if kind == "Passed" else "NotKept", self.kernel, message, reason=reason)
        if kind == "Passed":  # what was gained, before how
            said.items.insert(0, said.items.pop())
        said.count(self.kernel, PASS, "kept" if kind == "Passed" else reason)

    @property
    def outcome(self) -> Outcome:
        """What became of the kernel."""
        said = self.said or self.own
        said.rewrites = self.own.rewrites  # whatever became of them
        return Outcome(self.kernel, said, self.changed and self.kernel is not self.original)


class Gate:
    """Runs a transform over a module under a judge. ``identity`` is all that the transform goes by besides the kernel
    and its module; `None` where that is not known, or is to be seen at work: then nothing is taken from earlier
    runs. ``goes_by_names`` says that kernels that differ in names only may become different."""

    def __init__(
        self, judge: Judge, transform: Transform, identity: str | None = None, *, goes_by_names: bool = True
    ) -> None:
        self.judge = judge
        self.transform = transform
        self.identity = identity
        self.goes_by_names = goes_by_names

    def run(self, module: Module, kernels: Sequence[Kernel], remarks: Remarks) -> bool:
        """Transform ``kernels`` of ``module`` in place, and keep what is better; whether anything changed."""
        return _Run(self, module, remarks).run(kernels)


class _Run:
    """One run of the gate over a module."""

    def __init__(self, gate: Gate, module: Module, remarks: Remarks) -> None:
        self.gate = gate
        self.judge = gate.judge
        self.module = module
        self.remarks = remarks
        self.tries: dict[str, _Try] = {}
        self.recalled: dict[str, Outcome] = {}
        self.twins: list[Twin] = []
        #: Where to keep what becomes of kernels.
        self.places: list[tuple[Memory, Given]] = []
        self.rewrites = remarks.rewrites
        self.is_complete = True

    def run(self, kernels: Sequence[Kernel]) -> bool:
        """Transform, decide and say so; whether anything changed."""
        with paused(promotes=is_large(self.module.source.text)):
            self.transform_all(kernels)
        self.judge_changed()
        return self.tell(kernels)

    def transform_all(self, kernels: Sequence[Kernel]) -> None:
        """Run the passes over all kernels of which it is not known what becomes of them."""
        functions = [kernel for kernel in kernels if not kernel.is_entry]
        if functions and self.recall_all(kernels):
            return
        # Functions first: an entry may be recalled only if these stay as they are.
        for kernel in functions:
            self.transform(kernel)
        memory = None if any(each.changed for each in self.tries.values()) else self.memory()
        twins = None if self.gate.goes_by_names else Twins.of(self.module, kernels, self.remarks)
        for kernel in kernels:
            if kernel.is_entry and not self.recall(kernel, memory):
                twin = twins.find(kernel) if twins is not None else None
                if twin is None:
                    self.transform(kernel)
                else:
                    self.twins.append(twin)

    def memory(self, together: Sequence[Kernel] = ()) -> Memory | None:
        """What earlier runs came to, if this one goes by all that they did."""
        if self.remarks.limit is not None:
            return None
        explains = self.remarks.explains
        return Memory.of(self.judge, self.module, self.gate.identity, together, explains=explains)

    def recall_all(self, kernels: Sequence[Kernel]) -> bool:
        """Put in place what became of the kernels, functions among them, in an earlier run over the same module;
        ``False`` where that is not known of each of them."""
        memory = self.memory(kernels)
        if memory is None:
            return False
        given = [memory.given(kernel) for kernel in kernels]
        for each in given:
            outcome = memory.recall(each)
            if outcome is None:
                for kernel in kernels:
                    self.module.put(kernel)
                self.recalled.clear()
                self.places += [(memory, each) for each in given]
                return False
            self.module.put(outcome.kernel)  # at once, so that those that call it are read back with it
            self.recalled[each.kernel.name] = outcome
        return True

    def recall(self, kernel: Kernel, memory: Memory | None) -> bool:
        """Put in place what became of the entry in an earlier run; ``False`` where that is not known."""
        if memory is None:
            return False
        given = memory.given(kernel)
        outcome = memory.recall(given)
        if outcome is None:
            self.places.append((memory, given))
            return False
        self.module.put(outcome.kernel)
        self.recalled[kernel.name] = outcome
        return True

    def transform(self, kernel: Kernel) -> None:
        """Run the passes over the kernel."""
        limit = self.remarks.limit
        left = None if limit is None else max(limit - self.rewrites, 0)
        own = Remarks(self.module, left, explains=self.remarks.explains)
        original = untouched_copy(kernel)
        changed = self.gate.transform(self.module, kernel, own)
        self.rewrites += own.rewrites
        self.tries[kernel.name] = _Try(kernel, original, own, changed)

    def judge_changed(self) -> None:
        """Decide about the kernels that have been transformed."""
        changed = [each for each in self.tries.values() if each.changed]
        if not changed:
            return
        try:
            self.decide(changed)
        except Refused as reason:
            self.is_complete = False
            for each in changed:
                self.give_back(each)
                each.say("Missed", f"given back, since it cannot be judged: {reason}", "gate-refused")

    def tell(self, kernels: Sequence[Kernel]) -> bool:
        """Say what became of each kernel, and keep it; whether any is changed."""
        outcomes = self.recalled | {name: each.outcome for name, each in self.tries.items()}
        for twin in self.twins:
            outcome = outcomes[twin.kernel.name] = twin.outcome(outcomes[twin.elder])
            self.module.put(outcome.kernel)
        if self.is_complete:
            for memory, given in self.places:
                memory.remember(given, outcomes[given.kernel.name])
        for kernel in kernels:
            self.remarks.take(outcomes[kernel.name].said)
        return any(outcome.is_changed for outcome in outcomes.values())

    def give_back(self, each: _Try) -> None:
        """Put the kernel back as it was. What was refused holds whatever becomes of the rest."""
        self.module.put(each.original)
        each.kernel = each.original
        if each.said is None:
            each.said = Remarks(self.module)
            each.said.take_refusals(each.own)

    def decide(self, changed: list[_Try]) -> None:
        """Keep, try again or give back each changed kernel. Raises `Refused`."""
        originals = {each.original.name: each.original for each in changed}
        before = self.judge.figures(module_of(self.module, list(originals.values()), originals))
        most = budget([each.kernel for each in changed])
        after = self.after(changed)
        functions = [each for each in changed if not each.original.is_entry]
        if functions and any(worse(before[name], after[name]) for name in before if name in after):
            # A function shows only in the entries that call it: where one got worse, none of them stays.
            for each in functions:
                self.give_back(each)
                each.say("Missed", "an entry that may call it got worse", "gate-worse")
            after = self.after(changed)
        searches: list[tuple[_Try, Search]] = []
        for each in changed:
            if not each.original.is_entry:
                continue
            old, new = before[each.original.name], after[each.original.name]
            if old.code == new.code:
                self.give_back(each)
                each.say("Analysis", "the machine code came out the same", "gate-identical")
            elif is_better(old, new):
                each.say("Passed", gain(old, new), "")
            else:
                why = worse(old, new) or (_NOTHING_STATIC if old.is_static else "nothing got better")
                self.give_back(each)
                searches.append((each, Search(each.original, old, new, list(each.own.keys), why)))
        if self.remarks.limit is None:  # a set of rewrites is not the first N of them
            self.search([search for _, search in searches], most)
        for each, search in searches:
            self.conclude(each, search)

    def after(self, changed: list[_Try]) -> dict[str, Figures]:
        """Figures of a module that could be judged before the passes ran."""
        try:
            return self.judge.figures(module_of(self.module, [each.kernel for each in changed]))
        except Refused as reason:
            raise Refused(f"what the passes made: {reason}") from reason

    def search(self, searches: list[Search], most: float) -> None:
        """Try the searches' rewrites in halves, for ``most`` instructions in all; or what an earlier run has come to,
        where what became of the kernels could not be recalled."""
        memory = self.judge if isinstance(self.judge, Remembering) else None
        for each in searches:
            result = memory.recall(each.key) if memory is not None else None
            if result is not None:
                each.resume(result)
        if not try_halves(self.judge, self.gate.transform, self.module, searches, most):
            self.is_complete = False
        for each in searches:
            if memory is not None and self.is_complete and not each.is_settled:
                memory.remember(each.key, each.result)

    def conclude(self, each: _Try, found: Search) -> None:
        """Put the best kernel of a search in place, and say so."""
        if found.best is None or found.best_said is None or found.best_figures is None:
            each.say("Missed", f"given back: {found.why}", "gate-worse")
            return
        self.module.put(found.best)
        each.kernel = found.best
        assert each.said is not None
        each.said.take(found.best_said)
        share = f"{len(found.best_said.keys)} of {len(found.groups)} rewrites kept ({found.why} with all)"
        each.say("Passed", f"{share}: {gain(found.before, found.best_figures)}", "")
