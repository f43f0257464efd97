"""Checks whether a result file is consistent with its own samples. CI runs this on committed files, without a GPU.

Computes again, from the samples and clocks in the file: the rounds that count, statistics, intervals, verdicts, control
and summary. Guarantees: nothing is measured; the result has one line for each contradiction. Of arms without samples
(not timed, or of a slimmed baseline) only the form of the verdict is checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .protocol import rule_of
from .results import ArmResult, BenchmarkResult, ComparisonResult, ResultFile, control_of, summary_of
from .stats import Rule, Verdict, summarize
from .verdicts import comparisons_of, kept_rounds

__all__ = ["audit"]

_UNTIMED = (Verdict.IDENTICAL, Verdict.MISMATCH, Verdict.UNTIMED)


def audit(result: ResultFile) -> list[str]:
    """The contradictions of a result file, one line each."""
    contradictions: list[str] = []
    rule = rule_of(result.options)
    for each in result.benchmarks:
        try:
            contradictions += [f"{each.fullname}: {line}" for line in _benchmark(each, rule)]
        except ValueError as error:  # rounds of unequal length, invalid times, missing arms
            contradictions.append(f"{each.fullname}: the samples are invalid: {error}")
    names = [each.fullname for each in result.benchmarks]
    contradictions += [f"{name}: occurs twice" for name in sorted(set(names)) if names.count(name) > 1]
    if result.control != control_of(result.benchmarks):
        contradictions.append("control: differs from the benchmarks")
    computed = summary_of(result.benchmarks)
    means = [*computed.geomean_by_candidate.values(), computed.geomean_speedup or 0.0]
    stated = [*result.summary.geomean_by_candidate.values(), result.summary.geomean_speedup or 0.0]
    if computed.counts != result.summary.counts or not _close(means, stated):
        contradictions.append("summary: differs from the benchmarks")
    return contradictions


def _benchmark(of: BenchmarkResult, rule: Rule) -> Iterator[str]:
    baselines = [each for each in of.arms if each.role == "baseline"]
    if len(baselines) != 1:
        yield f"{len(baselines)} arms have the role baseline"
        return
    keep = kept_rounds(of, rule)
    if of.timing is not None and of.timing.dropped_rounds != [n for n, kept in enumerate(keep) if not kept]:
        yield "dropped_rounds: differs from what the clocks give"
    for arm in of.arms:
        yield from _arm(of, arm, keep)
    ids = {each.id for each in of.arms}
    for recorded in of.comparisons:
        if recorded.baseline not in ids or recorded.candidate not in ids:
            yield f"{recorded.baseline} and {recorded.candidate}: no such arms"
            return
    judged = {each.candidate: each for each in comparisons_of(of, rule)}
    for recorded in of.comparisons:
        yield from _comparison(of, recorded, judged.get(recorded.candidate))


def _arm(of: BenchmarkResult, arm: ArmResult, keep: Sequence[bool]) -> Iterator[str]:
    timed = of.timed_as(arm)
    if timed is not arm:
        codes = [{name: each.get("code_sha256") for name, each in which.static.items()} for which in (arm, timed)]
        if codes[0] != codes[1] or timed.same_code_as:
            yield f"{arm.id}: does not have the machine code of {timed.id}"
        if arm.samples:
            yield f"{arm.id}: has samples, but shares those of {timed.id}"
    if not timed.samples or not any(keep):
        return
    computed = summarize([block for block, kept in zip(timed.samples, keep, strict=True) if kept])
    recorded = arm.stats
    if recorded is None or not _close(
        (computed.median, computed.q1, computed.q3), (recorded.median, recorded.q1, recorded.q3)
    ):
        yield f"{arm.id}: stats differ from those of the samples"


def _comparison(of: BenchmarkResult, recorded: ComparisonResult, computed: ComparisonResult | None) -> Iterator[str]:
    where = f"{recorded.baseline} and {recorded.candidate}"
    base, candidate = of.arm(recorded.baseline), of.arm(recorded.candidate)
    if recorded.verdict == Verdict.IDENTICAL and not base.cubin_sha256:
        yield f"{where}: IDENTICAL, but there is no machine code"
    if recorded.verdict not in (Verdict.MISMATCH, Verdict.INVALID) and candidate.correctness.status != "ok":
        yield f"{where}: {recorded.verdict}, but its correctness is {candidate.correctness.status}"
    if recorded.verdict in _UNTIMED or computed is None:
        return
    if computed.verdict != recorded.verdict:
        yield f"{where}: {recorded.verdict}, but the samples give {computed.verdict}"
    elif (computed.rounds, computed.rounds_dropped) != (recorded.rounds, recorded.rounds_dropped):
        yield f"{where}: the number of rounds differs from what the clocks give"
    elif (computed.speedup is None) != (recorded.speedup is None) or (computed.ci is None) != (recorded.ci is None):
        yield f"{where}: {recorded.verdict} without a speedup"
    elif not _close(_interval(computed), _interval(recorded)):
        yield f"{where}: speedup {recorded.speedup or 0:.6f}, but the samples give {computed.speedup or 0:.6f}"


def _interval(of: ComparisonResult) -> tuple[float, ...]:
    return () if of.speedup is None or of.ci is None else (of.speedup, *of.ci)


def _close(computed: Sequence[float], theirs: Sequence[float]) -> bool:
    return len(computed) == len(theirs) and all(
        math.isclose(a, b, rel_tol=1e-9) for a, b in zip(computed, theirs, strict=True)
    )
