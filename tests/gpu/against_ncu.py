"""Do our times agree with Nsight Compute's? Ten kernels, timed by the harness and by `ncu`, in one run.

    PYTHONPATH=typings python tests/gpu/against_ncu.py

An event-to-event time holds the launch of the kernel, which ncu's duration does not: a launch of an empty kernel is
timed as well and taken off. ncu sets no clocks here (`--clock-control none`). The exit code is 1 where any of the ten
differs by more than 2 %.
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
TURNS = [round(3000 * 1.4**number) for number in range(10)]
_GRIDS = (132, 264, 1056)


def launch() -> None:
    """What ncu watches: each kernel some times."""
    backend = CudaBackend()
    for number, turns in enumerate(TURNS):
        work, variant = chain_work("x", _GRIDS[number % 3]), arm("O3", chain(turns))
        for _ in range(_REPEATS):
            run_once(backend, work, variant, 1, None)


def by_ncu() -> list[float]:
    """The median duration of each kernel in seconds, as ncu has it."""
    command = ["ncu", "--clock-control", "none", "--cache-control", "all", "--metrics", "gpu__time_duration.sum"]
    command += ["--csv", "--print-units", "base", sys.executable, __file__, "--launch"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=150)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    if len(rows) != _REPEATS * len(TURNS):
        raise SystemExit(f"ncu gave {len(rows)} rows:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    values = [float(row["Metric Value"].replace(",", "")) * 1e-9 for row in rows]
    return [float(np.median(values[i : i + _REPEATS])) for i in range(0, len(values), _REPEATS)]


def by_events() -> tuple[list[float], float]:
    """The median time of each kernel in seconds, and that of a kernel that does nothing."""
    backend = CudaBackend()
    found: list[float] = []
    for number, turns in enumerate(TURNS):
        watch = CudaStopwatch(backend, chain_work("x", _GRIDS[number % 3]), [arm("O3", chain(turns))], 1)
        watch.warm_up(0, 0.1)
        found.append(float(np.median([watch.measure(0, 10).seconds for _ in range(10)])))
        watch.close()
    nothing = backend.load(".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }")
    kernel, start, stop = nothing.kernel("nothing"), backend.event(), backend.event()
    packed, flushed, seconds = backend.pack(kernel, []), backend.allocate(128 << 20), list[float]()
    for _ in range(50):
        backend.fill(flushed, 0)
        backend.record(start)
        backend.launch_packed(kernel, (132, 1, 1), (256, 1, 1), 0, packed)
        backend.record(stop)
        backend.synchronize()
        seconds.append(backend.seconds_between(start, stop))
    return found, float(np.median(seconds))


def main() -> int:
    if "--launch" in sys.argv:
        launch()
        return 0
    ours, empty = by_events()
    theirs = by_ncu()
    print(f"a launch of nothing takes {empty * 1e6:.2f} µs")
    worst = 0.0
    for turns, event, ncu in zip(TURNS, ours, theirs, strict=True):
        apart = (event - empty) / ncu - 1
        worst = max(worst, abs(apart))
        print(f"{turns:7} turns: events {event * 1e6:9.2f} µs, ncu {ncu * 1e6:9.2f} µs, without launch {apart:+.2%}")
    return int(worst > 0.02)


if __name__ == "__main__":
    sys.exit(main())
