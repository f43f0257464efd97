"""An experiment that tests the verdicts: equal arms, and slowdowns of known size, on a GPU.

    PYTHONPATH=typings python tests/gpu/planted.py --output FILE [--kernels 12] [--runs 5] [--equal]

With `--equal`, each of 60 kernels of 2 to 50 µs is compared only with itself. Otherwise each of the kernels (chains of
different lengths and grids) is compared with itself, with a copy that is 2 % slower, and with a copy that is 0.3 %
slower. The result file of the last run is written. A table has, over all runs, how often each arm got each verdict. The
exit code is 1 unless every slowdown of 2 % is found and no equal arm is reported as different.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from chains import arm, chain, chain_work, planted
from ptxmotion import __version__
from ptxmotion.harness.arm_code import assemble_arm
from ptxmotion.harness.machine import CUDA
from ptxmotion.harness.protocol import Plan
from ptxmotion.harness.results import ResultFile, write
from ptxmotion.harness.session import Session, Task
from ptxmotion.harness.worker import Worker

_GRIDS = (132, 264, 1056)


def tasks(kernels: int) -> list[Task]:
    """Kernels of 50 µs to 1 ms."""
    made: list[Task] = []
    for number in range(kernels):
        turns = round(5000 * 1.25 ** (number % 12))
        work = chain_work(f"chains/{number:02}", _GRIDS[number % 3])
        slower = {f"{share} % slower": planted(turns, share / 100) for share in (2, 0.3)}
        arms = [arm("O3", chain(turns)), *(arm(id, ptx) for id, ptx in slower.items())]
        made.append(Task(work.fullname, lambda work=work, arms=arms: (work, arms)))
    return made


def equal_tasks() -> list[Task]:
    """Sixty kernels of 2 µs to 50 µs, each with only its baseline, which is always measured as two arms."""
    made: list[Task] = []
    for number in range(60):
        turns = round(100 * 1.2 ** (number % 20))
        work = chain_work(f"equal/{number:02}", _GRIDS[number // 20])
        made.append(Task(work.fullname, lambda work=work, turns=turns: (work, [arm("O3", chain(turns))])))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--kernels", type=int, default=12)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--equal", action="store_true")
    arguments = parser.parse_args()
    with Worker(CUDA) as worker:
        machine: dict[str, Any] = worker.describe(120)
    seen: Counter[tuple[str, str]] = Counter()
    speedups: dict[str, list[float]] = {}
    for run in range(arguments.runs):
        plan = Plan(shuffle_seed=run)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        empty = ResultFile(now, __version__, "cuda", machine, {}, plan.options())
        chosen = equal_tasks() if arguments.equal else tasks(arguments.kernels)
        assembler = partial(assemble_arm, sm=machine["compute_capability"])
        done = Session(CUDA, plan, empty, assembler=assembler, jobs=3).run(chosen)
        write(arguments.output, done)
        for each in done.benchmarks:
            if each.error:
                print(each.fullname, each.error)
                seen["error", each.error] += 1
            for found in each.comparisons:
                seen[found.candidate, found.verdict] += 1
                speedups.setdefault(found.candidate, []).append(found.speedup or 0.0)
                expected = "SLOWER" if found.candidate == "2 % slower" else "SAME"
                if found.verdict != expected:
                    print(run, each.fullname, found)
        seconds = sum(each.seconds for each in done.benchmarks)
        print(f"run {run}: control {done.control.aa_verdict}, {seconds:.1f} s", flush=True)
    for (candidate, verdict), count in sorted(seen.items()):
        values = speedups.get(candidate, [0.0])
        print(f"{candidate:14} {verdict:13} {count:4}   speedups {min(values):.5f} to {max(values):.5f}")
    wanted = {"O3 (again)": "SAME", "2 % slower": "SLOWER", "0.3 % slower": "SAME"}
    return int(any(wanted.get(candidate) != verdict for candidate, verdict in seen))


if __name__ == "__main__":
    sys.exit(main())
