"""Throughputs: the work of a run, as its program declares it, divided by the median time of an arm.

The roof of a machine is the bandwidth of a copy in its memory, as `doctor --calibrate` measured it; a run records it in
`machine_info` (`copy_bandwidth`, bytes per second). Requires: times. Guarantees: an arm that was not timed has none.
"""

from __future__ import annotations

from .results import ArmResult, BenchmarkResult, ResultFile

__all__ = ["ROOF", "throughput_text", "throughputs"]

#: The field of `machine_info` with the bandwidth of a copy, in bytes per second.
ROOF = "copy_bandwidth"


def throughputs(benchmark: BenchmarkResult, arm: ArmResult) -> dict[str, float]:
    """Bytes per second and elements per second of an arm, by ``bytes`` and ``elements``."""
    stats = benchmark.timed_as(arm).stats
    return {} if stats is None else {name: amount / stats.median for name, amount in benchmark.work.items()}


def throughput_text(result: ResultFile, benchmark: BenchmarkResult, arm: ArmResult) -> str:
    """The throughputs of an arm in words: ``812 GB/s (20 % of a copy), 203 G elements/s``."""
    parts: list[str] = []
    for name, value in throughputs(benchmark, arm).items():
        if name == "bytes":
            roof = result.machine_info.get(ROOF)
            share = f" ({100 * value / roof:.0f} % of a copy)" if isinstance(roof, int | float) and roof > 0 else ""
            parts.append(f"{value / 1e9:.4g} GB/s{share}")
        else:
            parts.append(f"{value / 1e9:.4g} G {name}/s")
    return ", ".join(parts)
