"""What the fusions of the thesis would gain that are refused here, because blocks need results of other blocks.

    python docs/experiments/fusion_gaps.py PROGRAM … [--size small] [--launch stream] [--rounds 20] [--emulator]

Pairs that `fusibility` calls grid-wide are fused nevertheless, with a barrier of the block, as in the thesis, which
assumes that no barrier of the grid is needed (§5.3.1). Such a program races, so there is no verdict. For both
strategies the program is printed as written, fused legally, and fused with races: launches, time, the ratio with its
interval, and the outputs that differ. ``--emulator`` times nothing.

Requires: a GPU, except with ``--emulator``. Guarantees: no other command uses the programs that race. A program that
takes a wrong branch because of a race may run long, so run this command with a limit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from ptxmotion.harness.correctness import PATTERNS, run_once
from ptxmotion.harness.machine import choose
from ptxmotion.harness.protocol import Plan, Rounds, time_arms
from ptxmotion.harness.stats import Estimate
from ptxmotion.harness.workload import Arm, RecordedLaunch, Recording
from ptxmotion.programs.fused_variants import FUSIONS, fused_modules
from ptxmotion.programs.tasks import SuiteWork
from ptxmotion.suites.registry import Benchmark, find
from ptxmotion.suites.runner import compiler, ptx_of
from ptxmotion.transforms.kernel_fusion.launch_site import Fusibility, LaunchSite
from ptxmotion.transforms.kernel_fusion.plan import PtxFuser


class Racing(PtxFuser):
    """Fuses with a barrier of the block where a barrier of the grid is needed."""

    def decide(self, first: LaunchSite, second: LaunchSite, *, assume_independent: bool, may_check: bool) -> Fusibility:
        """The result of `fusibility`, with ``block`` instead of ``grid``."""
        found = super().decide(first, second, assume_independent=assume_independent, may_check=may_check)
        return Fusibility("block", found.reasons, found.checks) if found.kind == "grid" else found


def arms_of(benchmark: Benchmark, plain: dict[str, str], launch: str) -> list[Arm]:
    """The program as written, and fused by both strategies, legally and with races. Equal programs are one arm."""
    found = [Arm("as written", plain, role="baseline", launch=launch)]
    for strategy in FUSIONS:
        for how, fuser in (("", None), (", racing", Racing())):
            modules = fused_modules(benchmark, plain, strategy, fuser, as_graph=launch != "stream")
            if all(modules != each.modules for each in found):
                found.append(Arm(f"{strategy}{how}", modules, launch=launch, same_program=False))
    return found


def launches(recording: Recording) -> int:
    """The number of launches that a run makes."""
    return sum(isinstance(step, RecordedLaunch) for step in recording.steps)


def timed(backend: Any, work: SuiteWork, arms: list[Arm], plan: Plan) -> tuple[Rounds, list[Estimate]]:
    """The rounds of timing, and the comparison of each arm with the first."""
    from ptxmotion.harness.cuda_stopwatch import CudaStopwatch

    class Unchecked(CudaStopwatch):
        """Does not compare outputs: races make them different. `rows` reports these differences."""

        def verify(self, arm: int) -> list[str]:
            return []

    watch = Unchecked(backend, work, arms, plan.seeds[0])
    try:
        return time_arms(watch, len(arms), [(0, other) for other in range(1, len(arms))], plan)
    finally:
        watch.close()


def rows(backend: Any, name: str, arguments: argparse.Namespace) -> Iterator[str]:
    """The lines of the table, one for each arm."""
    benchmark, work = find(name), SuiteWork(name, arguments.size)
    arms = arms_of(benchmark, ptx_of(benchmark, compiler()), arguments.launch)
    outcomes = [run_once(backend, work, arm, 1, PATTERNS[0]) for arm in arms]
    rounds, estimates = Rounds(), list[Estimate]()
    if not arguments.emulator:
        rounds, estimates = timed(backend, work, arms, Plan(rounds=arguments.rounds, doublings=0, seeds=(1,)))
    for number, (arm, found) in enumerate(zip(arms, outcomes, strict=True)):
        before, after = outcomes[0].outputs, found.outputs
        differs = [key for key in before if before[key].tobytes() != after[key].tobytes()]
        time = f"{np.median(rounds.seconds[number]) * 1e6:.1f} µs" if rounds.seconds else ""
        ratio = ""
        if estimates and number:
            each = estimates[number - 1]
            ratio = f"{each.speedup:.3f} ({each.low:.3f} to {each.high:.3f})"
        first = "" if number else name
        cells = [first, arm.id, str(launches(found.recording)), time, ratio, ", ".join(differs) or "none"]
        yield f"| {' | '.join(cells)} |"


def main() -> int:
    """Measure the programs, and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    parser.add_argument("--size", default="small", help="default: small")
    parser.add_argument("--launch", choices=("stream", "graph"), default="stream", help="default: stream")
    parser.add_argument("--rounds", type=int, default=20, help="default: 20")
    parser.add_argument("--emulator", action="store_true", help="time nothing")
    arguments = parser.parse_args()
    machine, _, _ = choose("emulator" if arguments.emulator else "cuda")
    backend = machine.open()
    print("| program | | launches | time | speedup | outputs that differ |")
    print("| --- | --- | ---: | ---: | --- | --- |")
    for name in arguments.programs:
        print("\n".join(rows(backend, name, arguments)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
