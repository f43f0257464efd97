"""Computes the verdicts of one benchmark from the samples and clocks in its result, and from nothing else.

A session uses this after measuring, and an audit uses it on the file, so both get the same verdicts.

Computes: the comparison of the baseline with itself (the control) and with every timed candidate. A candidate with the
machine code of another one was not timed: it gets the comparison of the other one.

Guarantees: if the control is not `SAME`, every candidate is `INVALID`, and the reason has the measured verdict.
Refuses: `ValueError` for invalid samples, as `stats.estimate`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from .results import ArmResult, BenchmarkResult, ComparisonResult
from .stats import Estimate, Rule, Verdict, estimate, keep_rounds

__all__ = ["comparisons_of", "kept_rounds"]


def kept_rounds(of: BenchmarkResult, rule: Rule) -> list[bool]:
    """For each round, whether the verdict uses it: not if the clocks differ too much. Empty if nothing was timed."""
    if of.timing is None or not of.timing.clocks_hz:
        return []
    clocks = [[math.nan if hertz is None else hertz for hertz in row] for row in of.timing.clocks_hz]
    return keep_rounds(clocks, rule).tolist()


def comparisons_of(of: BenchmarkResult, rule: Rule) -> Iterator[ComparisonResult]:
    """The comparisons of all arms that have samples, or share those of another arm; the control comes first."""
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
            found = _checked_by_control(found, control)
        yield found if timed is arm else _shared(found, timed)


def _checked_by_control(found: ComparisonResult, control: ComparisonResult) -> ComparisonResult:
    """The comparison; without a verdict if the control is not `SAME`."""
    if control.verdict == Verdict.SAME or found.verdict == Verdict.INVALID:
        return found
    ratio = "" if control.speedup is None else f" ({control.speedup:.3f})"
    reason = f"the baseline compared with itself is {control.verdict}{ratio}; this comparison alone is {found.verdict}"
    return replace(found, verdict=Verdict.INVALID.value, reason=reason)


def _shared(found: ComparisonResult, timed: ArmResult) -> ComparisonResult:
    return replace(found, reason=f"{found.reason}; the same machine code as {timed.id}, which was timed")


def _comparison(baseline: str, candidate: str, found: Estimate) -> ComparisonResult:
    has_rounds = found.rounds > 0
    return ComparisonResult(
        baseline,
        candidate,
        found.speedup if has_rounds else None,
        (found.low, found.high) if has_rounds else None,
        found.delta if has_rounds else None,
        found.rounds,
        found.rounds_dropped,
        found.verdict.value,
        found.reason,
    )
