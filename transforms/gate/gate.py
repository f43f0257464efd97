"""The gate: a change of a kernel is kept only where the machine code gets better.

The judge (`judge.Judge`) returns figures of each kernel before and after. The gate does not know how a kernel is
launched. So a kernel stays changed only where it is better at both extremes of a launch:

- *one warp alone*: the cycles of a warp whose latencies no other warp hides, as in a small grid;
- *a full multiprocessor*: the cycles per warp where as many warps as fit share four schedulers. This is the larger of
  the issue slots of a warp and its cycles alone divided by the number of warps. Registers matter here, by occupancy.

Neither figure may get worse, accesses to local memory (spills) may not increase, and one of the figures or the weighted
instructions must get better by `cost.LEAST_GAIN`. Fewer warps may fit only if the latencies of a warp are
`cost.RESERVE` times as long as the work of all warps of its scheduler. The cycles of a warp in loops may not get worse
either, whatever is gained outside of them (`cost.slower_loops`). Fewer instructions are no gain by themselves if these
latencies are so long. A block that could be launched must still fit, so the registers of a kernel without calls are
limited if ptxas uses too many (``.maxnreg``). Figures that differ by less than one in a thousand are equal. On another
architecture than that of the measured times, `cost.FITTED_SM`, the gain has to be twice as large. A kernel whose
machine code is the same as before is reverted, and so is one in which only copies and dead code were removed: ptxas
removes them as well, so it is not started. Where a kernel got worse, subsets of its rewrites are tried (`search.py`),
so that one bad rewrite does not discard the others. A function has no figures of its own: where an entry got worse, all
functions are reverted first.

Requires: attempts whose kernels are in the module. Guarantees: a kernel that stays changed is not worse by the judge's
figures; each decision is a remark. Where the judge refuses, every kernel is reverted (reason ``gate-refused``).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...arch import most_registers
from ...cost import Figures, gain, is_better, too_small, worse
from ...ptx import Kernel, Module
from ..attempt import Attempt
from .judge import Judge, RecordingJudge, Refused
from .search import Search, Transform, budget, module_of, try_halves
from .usual_figures import prepare, usual_figures

__all__ = ["judge_attempts"]

PASS = "gate"

#: Why a change of arithmetic alone is reverted under the static judge.
_NO_STATIC_GAIN = "no fewer accesses to memory or long operations, and other figures of PTX do not predict time"


def judge_attempts(
    judge: Judge, module: Module, attempts: Sequence[Attempt], transform: Transform, *, searches: bool
) -> bool:
    """Keep, search or revert each changed kernel of ``module`` in place.

    ``searches``: whether subsets of rewrites are tried with ``transform``. Returns ``False`` where the judge refused
    something, so that another run may have another result.
    """
    for attempt in attempts:
        if attempt.changed and attempt.is_clean_up:
            attempt.revert(module)
            message = "only copies and dead code were removed, and ptxas removes them as well"
            _report(attempt, "Analysis", message, "gate-clean-up")
    changed = [attempt for attempt in attempts if attempt.changed and not attempt.is_reverted]
    if not changed:
        return True
    try:
        return _decide(judge, module, changed, transform, searches=searches)
    except Refused as reason:
        for attempt in changed:
            attempt.revert(module)
            _report(attempt, "Missed", f"reverted, because it cannot be judged: {reason}", "gate-refused")
        return False


def _decide(judge: Judge, module: Module, changed: Sequence[Attempt], transform: Transform, *, searches: bool) -> bool:
    originals = {attempt.original.name: attempt.original for attempt in changed}
    given = module_of(module, list(originals.values()), originals)
    prepare(judge, given, module_of(module, [attempt.kernel for attempt in changed]))
    before = usual_figures(judge, given)
    most = budget([attempt.kernel for attempt in changed])
    after = _figures_after(judge, module, changed)
    functions = [attempt for attempt in changed if not attempt.original.is_entry]
    if functions and any(worse(before[name], after[name]) for name in before if name in after):
        for attempt in functions:
            attempt.revert(module)
            _report(attempt, "Missed", "reverted, because an entry that may call it got worse", "gate-worse")
        after = _figures_after(judge, module, changed)
    after = _with_blocks_as_large(judge, module, changed, before, after)
    entries = [attempt for attempt in changed if attempt.original.is_entry]
    started = [(attempt, _decide_entry(module, attempt, before, after)) for attempt in entries]
    open_searches = [(attempt, search) for attempt, search in started if search is not None]
    complete = True
    if searches:
        complete = _search(judge, module, [search for _, search in open_searches], transform, most)
    for attempt, search in open_searches:
        _conclude(module, attempt, search)
    return complete


def _figures_after(judge: Judge, module: Module, changed: Sequence[Attempt]) -> dict[str, Figures]:
    """The figures of the transformed kernels. A judge that refuses them has accepted the module as it was given."""
    try:
        return usual_figures(judge, module_of(module, [attempt.kernel for attempt in changed]))
    except Refused as reason:
        raise Refused(f"after the passes: {reason}") from reason


def _with_blocks_as_large(
    judge: Judge, module: Module, changed: Sequence[Attempt], before: dict[str, Figures], after: dict[str, Figures]
) -> dict[str, Figures]:
    """The figures after each kernel whose largest block has become smaller got a limit of its registers, with which
    that block can be launched as before. A kernel with calls gets none: nvlink refuses a kernel with a limit if a
    function of another object has more registers."""
    names = [name for name, old in before.items() if name in after and after[name].threads < old.threads]
    limited = [
        attempt
        for attempt in changed
        if attempt.original.is_entry and attempt.original.name in names and not _has_calls(attempt.kernel)
    ]
    for attempt in limited:
        most = most_registers(before[attempt.original.name].threads)
        others = [each for each in attempt.kernel.directives if each.split()[0] != ".maxnreg"]
        attempt.kernel.directives = [*others, f".maxnreg {most}"]
    return _figures_after(judge, module, changed) if limited else after


def _has_calls(kernel: Kernel) -> bool:
    return any(instr.form.is_call for instr in kernel.instructions())


def _decide_entry(
    module: Module, attempt: Attempt, before: dict[str, Figures], after: dict[str, Figures]
) -> Search | None:
    """Keep or revert one entry; the search for a better set of rewrites where all of them together are not better."""
    old, new = before[attempt.original.name], after[attempt.original.name]
    if old.code == new.code:
        attempt.revert(module)
        _report(attempt, "Analysis", "the machine code is the same", "gate-identical")
        return None
    if is_better(old, new):
        added = [each for each in attempt.kernel.directives if each not in attempt.original.directives]
        _report(attempt, "Passed", ", ".join([gain(old, new), *(f"with {each}" for each in added)]), "")
        return None
    why = worse(old, new) or (_NO_STATIC_GAIN if old.is_static else too_small(old, new))
    attempt.revert(module)
    return Search(attempt.original, old, new, list(attempt.transformed.keys), why)


def _search(judge: Judge, module: Module, searches: Sequence[Search], transform: Transform, most: float) -> bool:
    """Try subsets of rewrites, for at most ``most`` instructions in all, or use the result that an earlier run
    recorded."""
    recorded = judge if isinstance(judge, RecordingJudge) else None
    for search in searches:
        result = recorded.recall(search.key) if recorded is not None else None
        if result is not None:
            search.resume(result)
    complete = try_halves(judge, transform, module, searches, most)
    for search in searches:
        if recorded is not None and complete and not search.is_resumed:
            recorded.remember(search.key, search.result)
    return complete


def _conclude(module: Module, attempt: Attempt, search: Search) -> None:
    """Put the best kernel of a search into the module and report it."""
    if search.best is None or search.best_remarks is None or search.best_figures is None:
        _report(attempt, "Missed", f"reverted: {search.why}", "gate-worse")
        return
    module.put(search.best)
    attempt.kernel = search.best
    attempt.is_reverted = False
    assert attempt.final is not None
    attempt.final.take(search.best_remarks)
    share = f"{len(search.best_remarks.keys)} of {len(search.keys)} rewrites kept ({search.why} with all)"
    _report(attempt, "Passed", f"{share}: {gain(search.before, search.best_figures)}", "")


def _report(attempt: Attempt, kind: str, message: str, reason: str) -> None:
    """Add the gate's remark. A remark about a gain comes before those about the rewrites."""
    remarks = attempt.final or attempt.transformed
    remarks.add(kind, PASS, "Kept" if kind == "Passed" else "NotKept", attempt.kernel, message, reason=reason)
    if kind == "Passed":
        remarks.items.insert(0, remarks.items.pop())
    remarks.count(attempt.kernel, PASS, "kept" if kind == "Passed" else reason)
