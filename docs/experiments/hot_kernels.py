"""Which kernels of a program take its time, and what they wait for, as Nsight Compute counts it on a GPU.

    python docs/experiments/hot_kernels.py [PROGRAM …] [--size small] [--launches 40]

For each kernel of nvcc's code: its share of the time of the first launches of a run; and, weighted by time, the used
share of DRAM bandwidth, of the cycles in which a scheduler issues an instruction, of the warps that a multiprocessor
could hold, and of the sectors found in L1. If few cycles issue and little bandwidth is used, warps wait for the latency
of dependent instructions; then removing other instructions has no effect. A kernel with a small share cannot change the
time of the program much.

Requires: a GPU, and `ncu` of the CUDA toolkit. Guarantees: sets no clocks.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
from collections import defaultdict

from ptxmotion.suites.registry import benchmarks, find

#: Metric of ncu, and what it is called here.
METRICS = {
    "gpu__time_duration.sum": "time",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps",
    "l1tex__t_sector_hit_rate.pct": "L1 hits",
}


def launch(name: str, size: str) -> None:
    """The process that ncu profiles: one run of the program."""
    from ptxmotion.harness.cuda import CudaBackend
    from ptxmotion.programs.tasks import SuiteWork
    from ptxmotion.suites.runner import compiler, ptx_of

    backend = CudaBackend()
    SuiteWork(name, size).run(backend, ptx_of(find(name), compiler(f"sm_{backend.sm}a")), 1)
    backend.synchronize()


def rows(name: str, size: str, launches: int) -> list[dict[str, str]]:
    """A row for each launch and metric, as ncu writes them."""
    command = ["ncu", "--clock-control", "none", "--launch-count", str(launches), "--metrics", ",".join(METRICS)]
    command += ["--csv", "--print-units", "base", sys.executable, "-P", __file__, "--launch", name, "--size", size]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=300)
    found = list(csv.DictReader(line for line in done.stdout.splitlines() if line.startswith('"')))
    if not found:
        raise SystemExit(f"{name}: ncu gave nothing:\n{done.stdout[-1000:]}\n{done.stderr[-1000:]}")
    return found


def table(name: str, found: list[dict[str, str]]) -> list[str]:
    """Markdown: a line for each kernel, the longest first."""
    by_launch: dict[str, dict[str, float]] = defaultdict(dict)
    kernels: dict[str, str] = {}
    for row in found:
        kernels[row["ID"]] = row["Kernel Name"]
        text = row["Metric Value"].replace(",", "")
        by_launch[row["ID"]][METRICS[row["Metric Name"]]] = float(text) if text not in ("", "n/a") else 0.0
    total = sum(each["time"] for each in by_launch.values())
    lines: list[tuple[float, str]] = []
    for kernel in dict.fromkeys(kernels.values()):
        own = [by_launch[id] for id, name_of in kernels.items() if name_of == kernel]
        time = sum(each["time"] for each in own)
        means = [sum(each[what] * each["time"] for each in own) / time for what in list(METRICS.values())[1:]]
        cells = [f"{100 * time / total:.0f} %", *(f"{mean:.0f} %" for mean in means)]
        lines.append((time, f"{kernel} | {len(own)} | {' | '.join(cells)} |"))
    lines.sort(reverse=True)
    return [f"| {'' if number else name} | {line}" for number, (_, line) in enumerate(lines)]


def main() -> int:
    """Run ncu over the programs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="default: all")
    parser.add_argument("--size", default="small", help="default: small")
    parser.add_argument("--launches", type=int, default=40, help="how many at most are watched (default: 40)")
    parser.add_argument("--launch", metavar="PROGRAM", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.launch:
        launch(arguments.launch, arguments.size)
        return 0
    print("| program | kernel | launches | " + " | ".join(METRICS.values()) + " |")
    print("| --- | --- | ---: |" + " ---: |" * len(METRICS))
    for name in arguments.programs or [each.fullname for each in benchmarks()]:
        print("\n".join(table(name, rows(name, arguments.size, arguments.launches))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
