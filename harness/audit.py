"""Does a result file bear out what it says? CI asks this of committed files, without a GPU.

Computes again, from the samples and clocks in the file: which rounds count, statistics, intervals, verdicts, control
and summary. Guarantees: nothing is measured; the answer is a line for each contradiction, empty if there is none.
Refuses: nothing; arms without samples (not timed, or a slimmed baseline) have only their verdicts' form checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .protocol import rule_of
from .results import BenchmarkResult, ComparisonResult, ResultFile, control_of, summary_of
from .stats import Rule, Verdict, estimate, keep_rounds, summarize

__all__ = ["audit"]

_UNTIMED = (Verdict.IDENTICAL, Verdict.MISMATCH, Verdict.UNTIMED)


def audit(result: ResultFile) -> list[str]:
    """What contradicts itself in a result file, one line each."""
    found: list[str] = []
    rule = rule_of(result.options)
    for each in result.benchmarks:
        try:
            found += [f"{each.fullname}: {line}" for line in _benchmark(each, rule)]
        except ValueError as error:  # rounds of unequal length, times that are none
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
    timing = of.timing
    keep: list[bool] = []
    if timing is not None:
        clocks = [[math.nan if hertz is None else hertz for hertz in row] for row in timing.clocks_hz]
        keep = keep_rounds(clocks, rule).tolist() if clocks else []
        if timing.dropped_rounds != [number for number, kept in enumerate(keep) if not kept]:
            yield "dropped_rounds: not what the clocks say"
        for arm in of.arms:
            if arm.samples and any(keep):
                ours = summarize([block for block, kept in zip(arm.samples, keep, strict=True) if kept])
                told = arm.stats
                if told is None or not _close((ours.median, ours.q1, ours.q3), (told.median, told.q1, told.q3)):
                    yield f"{arm.id}: stats are not those of the samples"
    for comparison in of.comparisons:
        yield from _comparison(of, comparison, keep, rule)


def _comparison(of: BenchmarkResult, told: ComparisonResult, keep: list[bool], rule: Rule) -> Iterator[str]:
    where = f"{told.baseline} and {told.candidate}"
    ids = {each.id: each for each in of.arms}
    if told.baseline not in ids or told.candidate not in ids:
        yield f"{where}: no such arms"
        return
    base, candidate = ids[told.baseline], ids[told.candidate]
    if told.verdict == Verdict.IDENTICAL and not base.cubin_sha256:
        yield f"{where}: IDENTICAL, and there is no machine code"
    if told.verdict not in (Verdict.MISMATCH, Verdict.INVALID) and candidate.correctness.status != "ok":
        yield f"{where}: {told.verdict}, though its correctness is {candidate.correctness.status}"
    if told.verdict in _UNTIMED or not base.samples or not candidate.samples:
        return
    ours = estimate(base.samples, candidate.samples, keep, rule)
    if ours.verdict != told.verdict:
        yield f"{where}: {told.verdict}, and the samples say {ours.verdict}"
    elif (ours.rounds, ours.rounds_dropped) != (told.rounds, told.rounds_dropped):
        yield f"{where}: not the rounds that the clocks say"
    elif told.speedup is None or told.ci is None:
        yield f"{where}: {told.verdict} without a speedup"
    elif not _close((ours.speedup, ours.low, ours.high), (told.speedup, *told.ci)):
        yield f"{where}: speedup {told.speedup:.6f}, and the samples say {ours.speedup:.6f}"


def _close(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return len(ours) == len(theirs) and all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(ours, theirs, strict=True))
