"""The verdicts of one benchmark from the samples and clocks that its result holds, and from nothing else.

A session uses this when it has measured, and an audit uses it again on the file, so that both say the same.

Computes: the comparison of the baseline with itself (the control), and with every candidate that was timed. A candidate
of the same machine code as another one was not timed itself: its comparison is the other one's.

Guarantees: where the control is not `SAME`, no candidate of the benchmark gets a verdict: each is `INVALID`, with what
was measured beside it. Refuses: `ValueError` for samples that are none, as `stats.estimate` does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from .results import ArmResult, BenchmarkResult, ComparisonResult
from .stats import Estimate, Rule, Verdict, estimate, keep_rounds

__all__ = ["comparisons_of", "kept_rounds"]


def kept_rounds(of: BenchmarkResult, rule: Rule) -> list[bool]:
    """Which rounds count, by the clocks; empty where nothing was timed."""
    if of.timing is None or not of.timing.clocks_hz:
        return []
    clocks = [[math.nan if hertz is None else hertz for hertz in row] for row in of.timing.clocks_hz]
    return keep_rounds(clocks, rule).tolist()


def comparisons_of(of: BenchmarkResult, rule: Rule) -> Iterator[ComparisonResult]:
    """The comparisons of all arms that have samples, and of those that share another's, in the order of the arms."""
    keep = kept_rounds(of, rule)
    base = next(each for each in of.arms if each.role == "baseline")
    if not base.samples:
        return
    control: ComparisonResult | None = None
    for arm in sorted(of.arms, key=lambda each: each.role != "control"):
        timed = of.timed_as(arm)
        if arm is base or not timed.samples or timed is base:
            continue
        found = _comparison(base.id, arm.id, estimate(base.samples, timed.samples, keep, rule))
        if arm.role == "control":
            control = found
        elif control is not None:
            found = _doubted(found, control)
        yield found if timed is arm else _shared(found, timed)


def _doubted(found: ComparisonResult, control: ComparisonResult) -> ComparisonResult:
    """The comparison, without a verdict where the baseline is not the same as itself."""
    if control.verdict == Verdict.SAME or found.verdict == Verdict.INVALID:
        return found
    ratio = "" if control.speedup is None else f" ({control.speedup:.3f})"
    reason = f"the baseline is {control.verdict} as itself{ratio}: no verdict; {found.verdict} by itself"
    return replace(found, verdict=Verdict.INVALID.value, reason=reason)


def _shared(found: ComparisonResult, timed: ArmResult) -> ComparisonResult:
    return replace(found, reason=f"{found.reason}; the same machine code as {timed.id}, which was timed")


def _comparison(baseline: str, candidate: str, found: Estimate) -> ComparisonResult:
    known = found.rounds > 0
    return ComparisonResult(
        baseline,
        candidate,
        found.speedup if known else None,
        (found.low, found.high) if known else None,
        found.delta if known else None,
        found.rounds,
        found.rounds_dropped,
        found.verdict.value,
        found.reason,
    )
