"""What each code motion does to the programs of the suites, without a GPU: a table in Markdown.

    python docs/experiments/code_motion.py [PROGRAM…] [--size tiny] [--no-emulator]

For each program, over all its kernels as nvcc compiles them (`O3`): expressions with something redundant, found by the
names of their operands and by value. Then for `lcm`, `scm`, `spre`, `sscm`, each with clean-up, and for `-O2` with the
gate on ptxas: how many expressions were moved or removed; what was refused and why; machine instructions; the most
registers that a kernel needs; and on the emulator the warp instructions of the whole program. The outputs of every arm
are compared with those of `O3`, bit for bit; a difference makes the exit code 1. Arms with equal PTX run once.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from ptxmotion.driver import Policy, optimize_in_place
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.ptx import parse, print_module
from ptxmotion.suites.registry import Benchmark, benchmarks, find
from ptxmotion.suites.runner import Outcome, compiler, ptx_of, run
from ptxmotion.toolchain.machine_diff import figures
from ptxmotion.transforms.opportunities import opportunities

CLEAN = ",dce,emptyblocks"
ARMS = {"lcm": f"lcm{CLEAN}", "scm": f"scm{CLEAN}", "spre": f"spre{CLEAN}", "sscm": f"sscm{CLEAN}", "-O2": "O2"}


@dataclass
class Arm:
    """The results of one arm for a program. ``ptx`` maps the name of each kernel to its module."""

    ptx: dict[str, str]
    moved: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    instructions: int = 0
    registers: int = 0
    warp_instructions: int = 0
    outcome: Outcome | None = None


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="default: all")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--no-emulator", action="store_true")
    arguments = parser.parse_args()
    chosen = [find(name) for name in arguments.programs] or list(benchmarks())
    nvcc = compiler()
    wrong = 0
    refusals: dict[str, Counter[str]] = {}
    print("| program | by name, by value | figure | `O3` | " + " | ".join(f"`{arm}`" for arm in ARMS) + " |")
    print("| --- | --- | --- |" + " --- |" * (len(ARMS) + 1))
    for benchmark in chosen:
        plain = Arm(ptx_of(benchmark, nvcc))
        arms = {name: _made(passes, plain.ptx, name == "-O2") for name, passes in ARMS.items()}
        known: dict[str, tuple[int, int, int, Outcome | None]] = {}
        for arm in (plain, *arms.values()):
            _measure(benchmark, arm, arguments.size, known, emulate=not arguments.no_emulator)
        wrong += sum(_differs(plain, arm) for arm in arms.values())
        name = f"{benchmark.suite}/{benchmark.name}"
        refusals[name] = arms["sscm"].refused
        _print_rows(name, _found(plain.ptx), plain, arms)
        sys.stdout.flush()
    print("\nRefused by `sscm`, by reason:\n\n| program | refused |\n| --- | --- |")
    for name, counts in refusals.items():
        if counts:
            print(f"| {name} | {', '.join(f'{number} {reason}' for reason, number in counts.most_common())} |")
    print(f"\n{wrong} arms with other outputs than `O3`.")
    return 1 if wrong else 0


def _made(passes: str, plain: dict[str, str], gated: bool) -> Arm:
    arm = Arm({})
    done: dict[str, str] = {}
    for kernel, text in plain.items():
        if text not in done:
            module = parse(text)
            policy = Policy(gate="ptxas" if gated else "off", explain=True)
            remarks = optimize_in_place(module, passes, policy).log
            done[text] = print_module(module)
            kept = [remark for remark in remarks.items if remark.pass_name not in ("gate", "dce")]
            arm.moved += sum(remark.kind == "Passed" for remark in kept)
            arm.refused.update(remark.reason for remark in kept if remark.kind == "Missed")
        arm.ptx[kernel] = done[text]
    return arm


def _measure(
    benchmark: Benchmark, arm: Arm, size: str, known: dict[str, tuple[int, int, int, Outcome | None]], *, emulate: bool
) -> None:
    key = "\0".join(arm.ptx.values())
    if key not in known:
        kernels = [each for text in dict.fromkeys(arm.ptx.values()) for each in figures(text).values()]
        outcome, executed = None, 0
        if emulate:
            backend = EmulatorBackend()
            outcome = run(benchmark, backend, arm.ptx, size, 0)
            executed = backend.counts.warp_instructions
        sizes = (sum(k.code.instructions for k in kernels), max(k.code.registers for k in kernels))
        known[key] = (*sizes, executed, outcome)
    arm.instructions, arm.registers, arm.warp_instructions, arm.outcome = known[key]


def _found(ptx: dict[str, str]) -> str:
    by_name = by_value = 0
    for text in dict.fromkeys(ptx.values()):
        module = parse(text)
        for kernel in module.kernels:
            found = opportunities(kernel, module)
            by_name += found.lexically.classes if found.lexically else 0
            by_value += found.by_value.classes if found.by_value else 0
    return f"{by_name}, {by_value}"


def _differs(plain: Arm, arm: Arm) -> bool:
    if plain.outcome is None or arm.outcome is None:
        return False
    before, after = plain.outcome.outputs, arm.outcome.outputs
    return any(
        not np.array_equal(np.asarray(after[name]).view(np.uint8), np.asarray(before[name]).view(np.uint8))
        for name in before
    )


def _print_rows(name: str, found: str, plain: Arm, arms: dict[str, Arm]) -> None:
    rows = (
        ("moved or dropped; refused", "", [f"{arm.moved}; {arm.refused.total()}" for arm in arms.values()]),
        ("machine instructions", plain.instructions, [arm.instructions for arm in arms.values()]),
        ("registers", plain.registers, [arm.registers for arm in arms.values()]),
        ("warp instructions", plain.warp_instructions, [arm.warp_instructions for arm in arms.values()]),
    )
    for number, (figure, before, after) in enumerate(rows):
        first = f"{name} | {found}" if number == 0 else " | "
        cells = " | ".join(str(each) for each in (before, *after))
        print(f"| {first} | {figure} | {cells} |")


if __name__ == "__main__":
    sys.exit(main())
