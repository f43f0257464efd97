"""Does a result file bear out what it says? CI asks this of committed files, without a GPU.

Computes again, from the samples and clocks in the file: which rounds count, statistics, intervals, verdicts, control
and summary. Guarantees: nothing is measured; the answer is a line for each contradiction, empty if there is none.
Refuses: nothing; arms without samples (not timed, or a slimmed baseline) have only their verdicts' form checked.
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
    """What contradicts itself in a result file, one line each."""
    found: list[str] = []
    rule = rule_of(result.options)
    for each in result.benchmarks:
        try:
            found += [f"{each.fullname}: {line}" for line in _benchmark(each, rule)]
        except ValueError as error:  # rounds of unequal length, times that are none, arms that are not there
            found.append(f"{each.fullname}: samples that cannot be judged: {error}")
    names = [each.fullname for each in result.benchmarks]
    found += [f"{name}: is there twice" for name in sorted(set(names)) if names.count(name) > 1]
    if result.control != control_of(result.benchmarks):
        found.append("control: not what the benchmarks say")
    ours = summary_of(result.benchmarks)
    means = [*ours.geomean_by_candidate.values(), ours.geomean_speedup or 0.0]
    theirs = [*result.summary.geomean_by_candidate.values(), result.summary.geomean_speedup or 0.0]
    if ours.counts != result.summary.counts or not _close(means, theirs):
        found.append("summary: not what the benchmarks say")
    return found


def _benchmark(of: BenchmarkResult, rule: Rule) -> Iterator[str]:
    baselines = [each for each in of.arms if each.role == "baseline"]
    if len(baselines) != 1:
        yield f"{len(baselines)} arms are the baseline"
        return
    keep = kept_rounds(of, rule)
    if of.timing is not None and of.timing.dropped_rounds != [n for n, kept in enumerate(keep) if not kept]:
        yield "dropped_rounds: not what the clocks say"
    for arm in of.arms:
        yield from _arm(of, arm, keep)
    ids = {each.id for each in of.arms}
    for told in of.comparisons:
        if told.baseline not in ids or told.candidate not in ids:
            yield f"{told.baseline} and {told.candidate}: no such arms"
            return
    judged = {each.candidate: each for each in comparisons_of(of, rule)}
    for told in of.comparisons:
        yield from _comparison(of, told, judged.get(told.candidate))


def _arm(of: BenchmarkResult, arm: ArmResult, keep: Sequence[bool]) -> Iterator[str]:
    timed = of.timed_as(arm)
    if timed is not arm:
        codes = [{name: each.get("code_sha256") for name, each in which.static.items()} for which in (arm, timed)]
        if codes[0] != codes[1] or timed.same_code_as:
            yield f"{arm.id}: is not of the machine code of {timed.id}"
        if arm.samples:
            yield f"{arm.id}: has samples of its own, and those of {timed.id}"
    if not timed.samples or not any(keep):
        return
    ours = summarize([block for block, kept in zip(timed.samples, keep, strict=True) if kept])
    told = arm.stats
    if told is None or not _close((ours.median, ours.q1, ours.q3), (told.median, told.q1, told.q3)):
        yield f"{arm.id}: stats are not those of the samples"


def _comparison(of: BenchmarkResult, told: ComparisonResult, ours: ComparisonResult | None) -> Iterator[str]:
    where = f"{told.baseline} and {told.candidate}"
    base, candidate = of.arm(told.baseline), of.arm(told.candidate)
    if told.verdict == Verdict.IDENTICAL and not base.cubin_sha256:
        yield f"{where}: IDENTICAL, and there is no machine code"
    if told.verdict not in (Verdict.MISMATCH, Verdict.INVALID) and candidate.correctness.status != "ok":
        yield f"{where}: {told.verdict}, though its correctness is {candidate.correctness.status}"
    if told.verdict in _UNTIMED or ours is None:
        return
    if ours.verdict != told.verdict:
        yield f"{where}: {told.verdict}, and the samples say {ours.verdict}"
    elif (ours.rounds, ours.rounds_dropped) != (told.rounds, told.rounds_dropped):
        yield f"{where}: not the rounds that the clocks say"
    elif (ours.speedup is None) != (told.speedup is None) or (ours.ci is None) != (told.ci is None):
        yield f"{where}: {told.verdict} without a speedup"
    elif not _close(_interval(ours), _interval(told)):
        yield f"{where}: speedup {told.speedup or 0:.6f}, and the samples say {ours.speedup or 0:.6f}"


def _interval(of: ComparisonResult) -> tuple[float, ...]:
    return () if of.speedup is None or of.ci is None else (of.speedup, *of.ci)


def _close(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return len(ours) == len(theirs) and all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(ours, theirs, strict=True))
