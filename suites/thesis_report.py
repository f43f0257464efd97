"""Compares a result file with the thesis: Markdown tables of its methods by program, for the docs.

Requires: a result file whose variants have the names of the methods (`bench run --variant=thesis`, or `kf_trad` and
`kfcm`).
Guarantees: every number of ours is in the file. A comparison without a verdict is marked and does not count for
geometric means. The report lists programs and methods that are not in the file.
Reference: `thesis_figures`, which names the source.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..harness.results import BenchmarkResult, ComparisonResult, ResultFile
from .thesis_figures import FIGURES, FUSION, Experiment

__all__ = ["thesis_report"]

_NO_VERDICT = ("INVALID", "INCONCLUSIVE", "UNTIMED")
_LEGEND = """\
A cell has our speedup over nvcc's -O3 and its verdict, then the statement of the thesis for each of its figures. `=`:
the machine code is the same as nvcc's. A number in parentheses has no verdict. A dash: the text of the thesis has no
statement."""


def thesis_report(result: ResultFile) -> str:
    """The Markdown text."""
    where = result.machine_info.get("gpu", result.backend)
    lines = [f"Run of {result.datetime} on {where}.", "", _LEGEND, ""]
    if how := result.options.get("launch"):
        lines[0] += f" Launched by {how}, except variants whose name says otherwise."
    variants = {each.candidate for benchmark in result.benchmarks for each in benchmark.candidates}
    for experiments in (FIGURES, (FUSION,)):
        if any(variants & set(experiment.methods) for experiment in experiments):
            for experiment in experiments:
                lines += [*_table(result, experiment), ""]
    lines += [*_all_programs(result), ""]
    return "\n".join(lines)


def _all_programs(result: ResultFile) -> Iterator[str]:
    """The lines of the table of all programs: the time of the baseline, and how each variant compares with it."""
    programs = [(each.fullname, each) for each in result.benchmarks if not each.error]
    variants = list(dict.fromkeys(c.candidate for _, each in programs for c in each.candidates))
    yield "## All programs"
    yield ""
    yield "| " + " | ".join(["program", "time of -O3", "-O3 again", *variants]) + " |"
    yield "| --- " * (3 + len(variants)) + "|"
    for name, benchmark in programs:
        median, control = _baseline_median(benchmark), benchmark.control
        time = "" if median is None else f"{median * 1e6:.1f} µs" if median < 1e-3 else f"{median * 1e3:.2f} ms"
        again = "" if control is None or control.speedup is None else f"{control.speedup:.3f} {control.verdict}"
        yield "| " + " | ".join([name, time, again, *(_ours(benchmark, each) for each in variants)]) + " |"
    yield "| " + " | ".join(["geometric mean", "", "", *(_mean(programs, each) for each in variants)]) + " |"
    counted = [
        f"{each}: {', '.join(f'{count} {verdict}' for verdict, count in _counts(result, each).items())}"
        for each in variants
    ]
    yield ""
    yield f"Verdicts. {'; '.join(counted)}."
    for each in result.benchmarks:
        if each.error:
            yield f"{each.fullname} could not be run: {each.error.splitlines()[0]}"


def _counts(result: ResultFile, variant: str) -> dict[str, int]:
    verdicts = [c.verdict for each in result.benchmarks for c in each.candidates if c.candidate == variant]
    return {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}


def _table(result: ResultFile, experiment: Experiment) -> Iterator[str]:
    yield f"## {experiment.title}"
    yield ""
    there = [(name, result.benchmark(name)) for name in experiment.programs]
    programs = [(name, each) for name, each in there if each is not None and not each.error]
    variants = {c.candidate for _, each in programs for c in each.candidates}
    methods = [method for method in experiment.methods if method in variants]
    levels = sorted(each for each in variants if each.startswith("-O") or each == "graph" or each.endswith("+graph"))
    heads = [f"{method} ({' / '.join(['here', *experiment.stated])})" for method in methods]
    yield "| " + " | ".join(["program", *heads, *levels]) + " |"
    yield "| --- " * (1 + len(methods) + len(levels)) + "|"
    for name, benchmark in programs:
        cells = [
            " / ".join([_ours(benchmark, method), *_theirs(experiment, name, method)])
            for method in (*methods, *levels)
            if method in methods
        ]
        yield "| " + " | ".join([name, *cells, *(_ours(benchmark, level) for level in levels)]) + " |"
    means = [
        " / ".join(
            [
                _mean(programs, method),
                *(_number(experiment.means.get(figure, {}).get(method)) for figure in experiment.stated),
            ]
        )
        for method in methods
    ]
    yield "| " + " | ".join(["geometric mean", *means, *(_mean(programs, level) for level in levels)]) + " |"
    yield ""
    if experiment.means_of:
        yield f"The thesis's means are over all programs of {experiment.means_of}."
    if experiment.original:
        yield "In the thesis, numbers of the consecutive pattern are relative to -O3 of the original pattern."
    yield from _patterns(result, experiment)
    if missing := [name for name, each in there if each is None or each.error]:
        yield f"Not in this run: {', '.join(missing)}."
    if absent := [method for method in experiment.methods if method not in methods]:
        yield f"Variants that this run lacks: {', '.join(absent)}."


def _ours(benchmark: BenchmarkResult, variant: str) -> str:
    comparison = _comparison(benchmark, variant)
    if comparison is None:
        return "—"
    if comparison.verdict == "IDENTICAL":
        return "="
    if comparison.speedup is None:
        return comparison.verdict
    return (
        f"({comparison.speedup:.3f})"
        if comparison.verdict in _NO_VERDICT
        else f"{comparison.speedup:.3f} {comparison.verdict}"
    )


def _theirs(experiment: Experiment, name: str, method: str) -> list[str]:
    return [_number(stated.get(name, {}).get(method)) for stated in experiment.stated.values()]


def _number(value: float | str | None) -> str:
    if value is None:
        return "—"
    return value if isinstance(value, str) else f"{value:g}"


def _mean(found: Sequence[tuple[str, BenchmarkResult]], variant: str) -> str:
    compared = [_comparison(each, variant) for _, each in found]
    ratios = [
        each.speedup
        for each in compared
        if each is not None and each.speedup is not None and each.verdict not in (*_NO_VERDICT, "MISMATCH")
    ]
    if not ratios:
        return "—"
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return f"{mean:.3f} of {len(ratios)}" if len(ratios) < len(found) else f"{mean:.3f}"


def _comparison(benchmark: BenchmarkResult, variant: str) -> ComparisonResult | None:
    return next((each for each in benchmark.candidates if each.candidate == variant), None)


def _patterns(result: ResultFile, experiment: Experiment) -> Iterator[str]:
    """The ratio of nvcc's -O3 for the two access patterns. They are two benchmarks, so there is no verdict."""
    for changed, original in experiment.original.items():
        stated = [_number(each.get(changed, {}).get("O3")) for each in experiment.stated.values()]
        medians = [_baseline_median(result.benchmark(name)) for name in (original, changed)]
        if medians[0] is not None and medians[1] is not None:
            ours = f"{medians[0] / medians[1]:.3f} here, from two benchmarks and without a verdict"
        else:
            ours = "not timed here"
        yield f"-O3 of {changed} over -O3 of {original}: {ours}; in the thesis {' / '.join(stated)}."
        yield ""


def _baseline_median(benchmark: BenchmarkResult | None) -> float | None:
    arms = benchmark.arms if benchmark is not None else []
    return next((each.stats.median for each in arms if each.role == "baseline" and each.stats is not None), None)
