"""Converts a result file to the formats of other tools.

    gha               github-action-benchmark, tool `customSmallerIsBetter`: a list of {name, unit, value, range, extra}
    bmf               Bencher Metric Format: {benchmark: {measure: {value, lower_value, upper_value}}}, latency in ns
    pytest-benchmark  what `pytest-benchmark compare` and --benchmark-compare read
    csv               a row for each arm
    markdown          a table for a pull request

Guarantees: every value comes from the file. Arms that were not timed have only their noise-free figures. The format of
pytest-benchmark has only times, so it lacks these arms.
Reference: the README of benchmark-action/github-action-benchmark; https://bencher.dev/bmf.json;
pytest-benchmark 5, `pytest_benchmark/session.py` and `table.py`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

from .compare import noise_free
from .results import ArmResult, BenchmarkResult, ComparisonResult, ResultFile

__all__ = ["FORMATS", "export"]


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
            if not figure.endswith(("occupancy", "active_lane_ratio")):  # greater is better
                entries.append({"name": f"{name} {figure}", "unit": figure.rpartition(":")[2], "value": value})
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


_WITHOUT_VERDICT = ("INVALID", "MISMATCH")


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
        if measures:
            document[f"{benchmark.fullname}[{arm.id}]"] = measures
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _pytest_benchmark(result: ResultFile) -> str:
    benchmarks = [_pytest_entry(*each) for each in _arms(result) if each[1].stats is not None]
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


def _pytest_entry(benchmark: BenchmarkResult, arm: ArmResult, comparison: ComparisonResult | None) -> dict[str, Any]:
    stats = arm.stats
    assert stats is not None
    dropped = set(benchmark.timing.dropped_rounds) if benchmark.timing is not None else set[int]()
    samples = benchmark.timed_as(arm).samples
    data = [each for number, block in enumerate(samples) if number not in dropped for each in block]
    low, high = stats.q1 - 1.5 * stats.iqr, stats.q3 + 1.5 * stats.iqr
    outside = sum(not low <= each <= high for each in data)
    far = sum(abs(each - stats.mean) > stats.stddev for each in data)
    inner = [each for each in data if low <= each <= high]
    return {
        "group": benchmark.fullname,
        "name": f"{benchmark.name}[{arm.id}]",
        "fullname": f"{benchmark.fullname}[{arm.id}]",
        "params": {**benchmark.params, "arm": arm.id},
        "param": arm.id,
        "extra_info": {
            "verdict": comparison.verdict if comparison is not None else arm.role,
            "speedup": comparison.speedup if comparison is not None else None,
            **noise_free(arm),
        },
        "options": {"disable_gc": False, "timer": "CUDA events", "min_rounds": 1, "max_time": 0.0, "warmup": True},
        "stats": {
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
            "iterations": benchmark.timing.launches_per_sample if benchmark.timing is not None else 1,
        },
    }


_COLUMNS = "benchmark group arm role verdict speedup ci_low ci_high median_s q1_s q3_s samples correctness".split()


def _csv(result: ResultFile) -> str:
    rows = list(_arms(result))
    figures = list(dict.fromkeys(name for _, arm, _ in rows for name in noise_free(arm)))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_COLUMNS, *figures])
    for benchmark, arm, comparison in rows:
        stats, free = arm.stats, noise_free(arm)
        times = [stats.median, stats.q1, stats.q3, stats.rounds] if stats is not None else [None] * 4
        verdict: list[Any] = [None] * 4
        if comparison is not None:
            verdict = [comparison.verdict, comparison.speedup, *(comparison.ci or (None, None))]
        row = [benchmark.fullname, benchmark.group, arm.id, arm.role, *verdict, *times, arm.correctness.status]
        writer.writerow([*row, *(free.get(name) for name in figures)])
    return out.getvalue()


def _markdown(result: ResultFile) -> str:
    where = result.machine_info.get("gpu", result.backend)
    control = result.control.aa_verdict
    timing = "nothing was timed" if control == "NONE" else f"compared with itself, the baseline is {control}"
    lines = [f"Benchmarks on {where}; {timing}.", ""]
    lines += [
        "| benchmark | variant | verdict | speedup | interval | time |",
        "| --- | --- | --- | ---: | --- | ---: |",
    ]
    for benchmark, arm, comparison in _arms(result):
        if comparison is None:
            continue
        speedup = "" if comparison.speedup is None else f"{comparison.speedup:.3f}"
        interval = "" if comparison.ci is None else f"{comparison.ci[0]:.3f} to {comparison.ci[1]:.3f}"
        time = "" if arm.stats is None else f"{arm.stats.median * 1e6:.2f} µs"
        lines.append(f"| {benchmark.fullname} | {arm.id} | {comparison.verdict} | {speedup} | {interval} | {time} |")
    failed = [each for each in result.benchmarks if each.error]
    lines += [f"| {each.fullname} |  | error |  | {each.error.splitlines()[0]} |  |" for each in failed]
    means = [f"{name} {mean:.3f}" for name, mean in result.summary.geomean_by_candidate.items()]
    if means:
        lines += ["", f"Geometric means of the speedups: {', '.join(means)}."]
    return "\n".join(lines) + "\n"


#: The export functions by the name of the format.
FORMATS: dict[str, Callable[[ResultFile], str]] = {
    "gha": _gha,
    "bmf": _bmf,
    "pytest-benchmark": _pytest_benchmark,
    "csv": _csv,
    "markdown": _markdown,
}
