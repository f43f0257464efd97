"""Throughputs: the work of a run, as its program declares it, divided by the median time of an arm.

The roof of a machine is the bandwidth of a copy in its memory, as `doctor --calibrate` measured it; a run records it in
`machine_info` (`copy_bandwidth`, bytes per second), or for each worker of a cluster in the list `workers` there.
Requires: times. Guarantees: an arm that was not timed has none.
"""

from __future__ import annotations

from typing import Any, cast

from .results import ArmResult, BenchmarkResult, ResultFile

__all__ = ["ROOF", "throughput_text", "throughputs"]

#: The field of `machine_info` with the bandwidth of a copy, in bytes per second.
ROOF = "copy_bandwidth"


def throughputs(benchmark: BenchmarkResult, arm: ArmResult) -> dict[str, float]:
    """Bytes per second and elements per second of an arm, by ``bytes`` and ``elements``."""
    stats = benchmark.timed_as(arm).stats
    return {} if stats is None else {name: amount / stats.median for name, amount in benchmark.work.items()}


def throughput_text(result: ResultFile, benchmark: BenchmarkResult, arm: ArmResult) -> str:
    """The throughputs of an arm in words: ``812 GB/s (20 % of the bandwidth of a copy), 203 G elements/s``."""
    parts: list[str] = []
    for name, value in throughputs(benchmark, arm).items():
        if name == "bytes":
            roof = _roof(result, benchmark)
            percent = 100 * value / roof if roof else 0.0
            shown = f"{percent:.0f}" if percent >= 10 else f"{percent:.1g}"
            share = f" ({shown} % of the bandwidth of a copy)" if roof else ""
            parts.append(f"{value / 1e9:.4g} GB/s{share}")
        else:
            parts.append(f"{value / 1e9:.4g} G {name}/s")
    return ", ".join(parts)


def _roof(result: ResultFile, benchmark: BenchmarkResult) -> float:
    """The bandwidth of a copy on the machine that timed a benchmark, in bytes per second; 0 if it is unknown."""
    workers = result.machine_info.get("workers")
    facts: Any = result.machine_info
    if isinstance(workers, list) and benchmark.timing is not None:
        known = cast("list[Any]", workers)
        facts = known[benchmark.timing.machine] if benchmark.timing.machine < len(known) else None
    roof = cast("dict[str, Any]", facts).get(ROOF) if isinstance(facts, dict) else None
    return float(roof) if isinstance(roof, int | float) and roof > 0 else 0.0
