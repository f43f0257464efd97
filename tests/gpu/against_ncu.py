"""Compare the times of ten kernels, measured by the harness and by Nsight Compute (`ncu`) in one run.

    PYTHONPATH=typings python tests/gpu/against_ncu.py

The time between two events contains a part of the launch, about 1.6 µs on an H200, which the duration of ncu does not.
The two times may differ by 2 %, so the kernels take at least 100 µs. ncu does not set clocks (`--clock-control none`).
The exit code is 1 if a kernel differs by more.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from chains import arm, chain, chain_work
from ptxmotion.harness.correctness import run_once
from ptxmotion.harness.cuda import CudaBackend
from ptxmotion.harness.cuda_stopwatch import CudaStopwatch

_REPEATS = 5
TURNS = [round(7600 * 1.35**number) for number in range(10)]
_GRIDS = (132, 264, 1056)


def launch() -> None:
    """The process that ncu profiles: launches each kernel a few times."""
    backend = CudaBackend()
    for number, turns in enumerate(TURNS):
        work, variant = chain_work("x", _GRIDS[number % 3]), arm("O3", chain(turns))
        for _ in range(_REPEATS):
            run_once(backend, work, variant, 1, None)


def by_ncu() -> list[float]:
    """The median duration of each kernel in seconds, measured by ncu."""
    command = ["ncu", "--clock-control", "none", "--cache-control", "all", "--metrics", "gpu__time_duration.sum"]
    command += ["--csv", "--print-units", "base", sys.executable, __file__, "--launch"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=150)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    if len(rows) != _REPEATS * len(TURNS):
        raise SystemExit(f"ncu gave {len(rows)} rows:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    values = [float(row["Metric Value"].replace(",", "")) * 1e-9 for row in rows]
    return [float(np.median(values[i : i + _REPEATS])) for i in range(0, len(values), _REPEATS)]


def by_events() -> list[float]:
    """The median time of each kernel in seconds, measured by the harness."""
    backend = CudaBackend()
    found: list[float] = []
    for number, turns in enumerate(TURNS):
        watch = CudaStopwatch(backend, chain_work("x", _GRIDS[number % 3]), [arm("O3", chain(turns))], 1)
        watch.warm_up(0, 0.1)
        found.append(float(np.median([watch.measure(0, 10).seconds for _ in range(10)])))
        watch.close()
    return found


def main() -> int:
    if "--launch" in sys.argv:
        launch()
        return 0
    worst = 0.0
    for turns, event, ncu in zip(TURNS, by_events(), by_ncu(), strict=True):
        apart = event / ncu - 1
        worst = max(worst, abs(apart))
        print(f"{turns:7} turns: events {event * 1e6:9.2f} µs, ncu {ncu * 1e6:9.2f} µs, {apart:+.2%}")
    return int(worst > 0.02)


if __name__ == "__main__":
    sys.exit(main())
