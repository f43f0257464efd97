"""Converts a result file to the formats of other tools.

    gha               github-action-benchmark, tool `customSmallerIsBetter`: a list of {name, unit, value, range, extra}
    bmf               Bencher Metric Format: {benchmark: {measure: {value, lower_value, upper_value}}}, latency in ns
    pytest-benchmark  what `pytest-benchmark compare` and --benchmark-compare read
    csv               a row for each arm; a heading has the unit of its column in brackets
    markdown          a table for a pull request

Guarantees: every value comes from the file and has its unit. Arms that were not timed have their noise-free figures and
an estimate of time. The format of pytest-benchmark has only times. So an arm that was not timed has the estimate there,
with this word in its name, and its counts with their units in `extra_info`. An arm without an estimate is left out.
Reference: the README of benchmark-action/github-action-benchmark; https://bencher.dev/bmf.json;
pytest-benchmark 5, `pytest_benchmark/session.py` and `table.py`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

from .figures import (
    MODEL,
    estimated_cycles,
    figure_of,
    noise_free,
    percent_text,
    shown,
)
from .results import ArmResult, BenchmarkResult, ComparisonResult, ResultFile, Stats
from .throughput import throughput_text, throughputs

__all__ = [
    "ESTIMATED_CYCLE",
    "ESTIMATED_TIMER",
    "FORMATS",
    "differences",
    "estimate_text",
    "export",
    "extra_info",
    "kept_samples",
]


def export(result: ResultFile, format: str) -> str:
    """The text of a result file in one of `FORMATS`. Raises `KeyError`."""
    return FORMATS[format](result)


def _arms(result: ResultFile) -> Iterator[tuple[BenchmarkResult, ArmResult, ComparisonResult | None]]:
    for benchmark in result.benchmarks:
        comparisons = {each.candidate: each for each in benchmark.comparisons}
        for arm in benchmark.arms:
            if arm.role != "control":
                yield benchmark, arm, comparisons.get(arm.id)


def _gha(result: ResultFile) -> str:
    entries: list[dict[str, Any]] = []
    for benchmark, arm, comparison in _arms(result):
        name = f"{benchmark.fullname} [{arm.id}]"
        if arm.stats is not None:
            entries.append(
                {
                    "name": f"{name} time",
                    "unit": "us",
                    "value": arm.stats.median * 1e6,
                    "range": f"± {arm.stats.iqr / 2 * 1e6:.4g}",
                    "extra": f"{result.machine_info.get('gpu', '')}, {arm.stats.rounds} samples".lstrip(", "),
                }
            )
        if comparison is not None and comparison.speedup is not None and comparison.verdict not in _WITHOUT_VERDICT:
            entry: dict[str, Any] = {"name": f"{name} time relative to {comparison.baseline}", "unit": "ratio"}
            entry["value"] = 1 / comparison.speedup
            if comparison.ci is not None:
                entry["range"] = f"{1 / comparison.ci[1]:.4f} to {1 / comparison.ci[0]:.4f}"
            entries.append({**entry, "extra": f"{comparison.verdict}: {comparison.reason}"})
        for figure, value in noise_free(arm).items():
            row = figure_of(figure)
            if row is None or not row.is_gain:  # the tool takes a smaller value as better
                entries.append({"name": f"{name} {figure}", "unit": _unit(figure), "value": value})
        if arm.stats is None and (cycles := estimated_cycles(arm)) is not None:
            unit = "cycles, estimated"
            entries.append({"name": f"{name} estimated time", "unit": unit, "value": cycles, "extra": _ESTIMATE})
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


_WITHOUT_VERDICT = ("INVALID", "MISMATCH")
_ESTIMATE = f"not measured: an estimate by {MODEL}"


def _unit(figure: str) -> str:
    row = figure_of(figure)
    return row.unit if row is not None else "count"


def _bmf(result: ResultFile) -> str:
    document: dict[str, dict[str, dict[str, float]]] = {}
    for benchmark, arm, comparison in _arms(result):
        measures: dict[str, dict[str, float]] = {}
        if arm.stats is not None:
            nanoseconds = [each * 1e9 for each in (arm.stats.median, arm.stats.q1, arm.stats.q3)]
            measures["latency"] = dict(zip(("value", "lower_value", "upper_value"), nanoseconds, strict=True))
        if comparison is not None and comparison.speedup is not None and comparison.verdict not in _WITHOUT_VERDICT:
            measures["speedup"] = {"value": comparison.speedup}
            if comparison.ci is not None:
                measures["speedup"] |= {"lower_value": comparison.ci[0], "upper_value": comparison.ci[1]}
        several = len(arm.static) > 1
        for figure, value in noise_free(arm).items():
            kernel, _, what = figure.rpartition(":")
            slug = what.replace("_", "-")
            # The name of a measure has at most 64 characters, too few for mangled names: kernels are added up.
            if several and kernel in arm.static and slug != "occupancy":
                measures[slug] = {"value": measures.get(slug, {"value": 0.0})["value"] + value}
            elif slug == "occupancy" and slug in measures:
                measures[slug] = {"value": min(measures[slug]["value"], value)}
            else:
                measures[slug] = {"value": value}
        if arm.stats is None and (cycles := estimated_cycles(arm)) is not None:
            measures["estimated-cycles"] = {"value": cycles}
        if measures:
            document[f"{benchmark.fullname}[{arm.id}]"] = measures
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _pytest_benchmark(result: ResultFile) -> str:
    benchmarks = [entry for each in _arms(result) for entry in _pytest_entries(*each)]
    cpu: dict[str, Any] = {}
    machine: dict[str, Any] = {"node": "", "processor": "", "machine": "", "python_version": "", "cpu": cpu}
    machine |= result.machine_info
    document: dict[str, Any] = {
        "machine_info": machine,
        "commit_info": {"id": "", "time": None, "dirty": None, **result.commit_info},
        "benchmarks": benchmarks,
        "datetime": result.datetime,
        "version": "5.1.0",
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _pytest_entries(
    benchmark: BenchmarkResult, arm: ArmResult, comparison: ComparisonResult | None
) -> Iterator[dict[str, Any]]:
    """The entry of an arm; none if the arm was neither timed nor has an estimate."""
    name, timer, stats, data = arm.id, "CUDA events", arm.stats, kept_samples(benchmark, arm)
    if stats is None:
        cycles = estimated_cycles(arm)
        if cycles is None:
            return
        name, timer, value = f"{arm.id}, estimated", ESTIMATED_TIMER, cycles * ESTIMATED_CYCLE
        stats, data = Stats(value, value, value, value, 0.0, value, 0.0, value, 1), [value]
    yield {
        "group": benchmark.fullname,
        "name": f"{benchmark.name}[{name}]",
        "fullname": f"{benchmark.fullname}[{name}]",
        "params": {**benchmark.params, "arm": arm.id},
        "param": arm.id,
        "extra_info": extra_info(arm, comparison),
        "options": {"disable_gc": False, "timer": timer, "min_rounds": 1, "max_time": 0.0, "warmup": True},
        "stats": _pytest_stats(
            stats, data, benchmark.timing.launches_per_sample if benchmark.timing is not None else 1
        ),
    }


#: For the format of pytest-benchmark: seconds of an estimated cycle, and the name of the timer of an estimate.
ESTIMATED_CYCLE = 1e-9
ESTIMATED_TIMER = f"not measured: an estimate by {MODEL}, in cycles of one multiprocessor at 1 GHz"


def kept_samples(benchmark: BenchmarkResult, arm: ArmResult) -> list[float]:
    """The samples of an arm in the rounds that count, in seconds; empty if it was not timed, or no round counts."""
    dropped = set(benchmark.timing.dropped_rounds) if benchmark.timing is not None else set[int]()
    samples = benchmark.timed_as(arm).samples
    return [each for number, block in enumerate(samples) if number not in dropped for each in block]


def extra_info(arm: ArmResult, comparison: ComparisonResult | None) -> dict[str, Any]:
    """The verdict, and each noise-free figure as ``{"value": …, "unit": …}``."""
    info: dict[str, Any] = {"verdict": arm.role, "speedup": None}
    if comparison is not None:
        info = {"verdict": comparison.verdict, "speedup": comparison.speedup, "regressed": comparison.regressed}
    return info | {name: {"value": value, "unit": _unit(name)} for name, value in noise_free(arm).items()}


def _pytest_stats(stats: Stats, data: list[float], iterations: int) -> dict[str, Any]:
    low, high = stats.q1 - 1.5 * stats.iqr, stats.q3 + 1.5 * stats.iqr
    outside = sum(not low <= each <= high for each in data)
    far = sum(abs(each - stats.mean) > stats.stddev for each in data)
    inner = [each for each in data if low <= each <= high]
    return {
        "min": stats.min,
        "max": stats.max,
        "mean": stats.mean,
        "stddev": stats.stddev,
        "rounds": stats.rounds,
        "median": stats.median,
        "iqr": stats.iqr,
        "q1": stats.q1,
        "q3": stats.q3,
        "iqr_outliers": outside,
        "stddev_outliers": far,
        "outliers": f"{far};{outside}",
        "ld15iqr": min(inner, default=stats.min),
        "hd15iqr": max(inner, default=stats.max),
        "ops": 1 / stats.mean,
        "total": stats.mean * stats.rounds,
        "data": data,
        "iterations": iterations,
    }


_COLUMNS = (
    "benchmark group arm role verdict speedup ci_low ci_high median_s q1_s q3_s samples correctness estimated_cycles "
    "bytes_per_s elements_per_s"
).split()


def _csv(result: ResultFile) -> str:
    rows = list(_arms(result))
    figures = list(dict.fromkeys(name for _, arm, _ in rows for name in noise_free(arm)))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_COLUMNS, *(f"{name} [{_unit(name)}]" for name in figures)])
    for benchmark, arm, comparison in rows:
        stats, free = arm.stats, noise_free(arm)
        times = [stats.median, stats.q1, stats.q3, stats.rounds] if stats is not None else [None] * 4
        verdict: list[Any] = [None] * 4
        if comparison is not None:
            verdict = [comparison.verdict, comparison.speedup, *(comparison.ci or (None, None))]
        row = [benchmark.fullname, benchmark.group, arm.id, arm.role, *verdict, *times, arm.correctness.status]
        rates = throughputs(benchmark, arm)
        row += [estimated_cycles(arm), rates.get("bytes"), rates.get("elements")]
        writer.writerow([*row, *(free.get(name) for name in figures)])
    return out.getvalue()


def _markdown(result: ResultFile) -> str:
    where = result.machine_info.get("gpu", result.backend)
    control = result.control.aa_verdict
    timing = "nothing was timed" if control == "NONE" else f"compared with itself, the baseline is {control}"
    lines = [f"Benchmarks on {where}; {timing}.", ""]
    lines += _without_times(result) if control == "NONE" else _with_times(result)
    rates = [
        f"| {benchmark.fullname} | {arm.id} | {text} |"
        for benchmark, arm, _ in _arms(result)
        if (text := throughput_text(result, benchmark, arm))
    ]
    if rates:
        lines += ["", "| benchmark | variant | throughput |", "| --- | --- | ---: |", *rates]
    means = [f"{name} {mean:.3f}" for name, mean in result.summary.geomean_by_candidate.items()]
    if means and control != "NONE":
        lines += ["", f"Geometric means of the speedups: {', '.join(means)}."]
    return "\n".join(lines) + "\n"


def _with_times(result: ResultFile) -> Iterator[str]:
    yield "| benchmark | variant | verdict | speedup | interval | time |"
    yield "| --- | --- | --- | ---: | --- | ---: |"
    for benchmark, arm, found in _arms(result):
        if found is not None:
            speedup = "" if found.speedup is None else f"{found.speedup:.3f}"
            interval = "" if found.ci is None else f"{found.ci[0]:.3f} to {found.ci[1]:.3f}"
            time = "" if arm.stats is None else f"{arm.stats.median * 1e6:.2f} µs"
            yield f"| {benchmark.fullname} | {arm.id} | {found.verdict} | {speedup} | {interval} | {time} |"
    for each in result.benchmarks:
        if each.error:
            yield f"| {each.fullname} |  | error |  | {_first_line(each.error)} |  |"


def _without_times(result: ResultFile) -> Iterator[str]:
    yield "| benchmark | variant | verdict | estimated time | what differs |"
    yield "| --- | --- | --- | ---: | --- |"
    for benchmark, arm, found in _arms(result):
        if found is not None:
            why = differences(found) or _first_line(found.reason)
            yield f"| {benchmark.fullname} | {arm.id} | {found.verdict} | {estimate_text(found)} | {why} |"
    for each in result.benchmarks:
        if each.error:
            yield f"| {each.fullname} |  | error |  | {_first_line(each.error)} |"
    yield ""
    yield f"An estimated time is not measured. It is the change of the cycles by {MODEL}."


def estimate_text(comparison: ComparisonResult) -> str:
    """The estimated change of time in percent; empty if there is none."""
    found = comparison.estimate
    return "" if found is None else percent_text(found.baseline_cycles, found.candidate_cycles)


def differences(comparison: ComparisonResult) -> str:
    """The figures that differ, in words, those that are worse first; empty if none differs."""
    order = {"WORSE": 0, "BETTER": 1, "EQUAL": 2}
    differing = sorted((e for e in comparison.figures if e.before != e.after), key=lambda each: order[each.verdict])
    return ", ".join(shown(each) for each in differing)


def _first_line(text: str) -> str:
    return text.splitlines()[0].replace("|", "\\|") if text else ""


#: The export functions by the name of the format.
FORMATS: dict[str, Callable[[ResultFile], str]] = {
    "gha": _gha,
    "bmf": _bmf,
    "pytest-benchmark": _pytest_benchmark,
    "csv": _csv,
    "markdown": _markdown,
}
