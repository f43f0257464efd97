"""How sound, precise and fast the facts about kernels are: divergence and memory.

    python docs/experiments/facts.py suites [-k REGEX] [--json FILE]    runs every program of the suites on the emulator
    python docs/experiments/facts.py growth [--sizes N,N,…]             generated kernels, compared with ptxas

`suites` runs the smallest size of each program, in order and with warps in random order, and prints for each suite

    branches    executed branches that are called divergent, and how many of them diverged within one instance at least
                once; the same when the analysis knows the shape of the block
    pairs       pairs of memory references, one of them a write, that are called may-alias, and how many of them touched
                a common byte in one launch; without a promise, and with `restrict` for all pointers

and, for both, how often the facts were wrong: branches called uniform that diverged, pairs called disjoint that touched
a common byte. Any of these makes the exit code 1. In `growth`, so does a kernel whose facts take more CPU time than
ptxas takes for it.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from ptxmotion.analysis import Facts
from ptxmotion.analysis.memory.alias import CONSERVATIVE, Promise, Reference
from ptxmotion.analysis.memory.speculation import may_speculate
from ptxmotion.emulator import InstanceJudge
from ptxmotion.emulator.backend import Buffer, EmulatorBackend, EmulatorKernel, LoadedModule
from ptxmotion.ptx import Effect, Instr, Kernel, Module, Operation, parse
from ptxmotion.suites.registry import Benchmark, benchmarks
from ptxmotion.suites.runner import compiler, ptx_of, run
from ptxmotion.toolchain.tools import ToolTimeout, assemble

Shape = tuple[int, int, int]
RESTRICT = Promise.parse("restrict")
SCHEDULES = ("order", "warps")
_SHARED, _LOCAL, _CONST, _PARAM = 1, 2, 3, 4


class Recorder(EmulatorBackend):
    """A backend that remembers which modules were loaded, and with which shapes and memory their kernels ran."""

    def __init__(self, schedule: str) -> None:
        self.instances = InstanceJudge(loops_around)
        super().__init__(checks=False, trace=True, schedule=schedule, seed=1, judge=self.instances)
        self.modules: list[Module] = []
        self.shapes: dict[Kernel, set[Shape]] = {}
        self.touched: dict[Kernel, set[tuple[int, int]]] = {}
        self.seen: dict[Kernel, set[int]] = {}

    def load(self, ptx: str) -> LoadedModule:
        found = super().load(ptx)
        self.modules.append(found.module.loaded.module)
        return found

    def launch(
        self,
        kernel: EmulatorKernel,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared: int,
        args: Sequence[Buffer | np.generic | bytes],
    ) -> None:
        parts = [block] if isinstance(block, int) else list(block)
        x, y, z = (*parts, 1, 1)[:3]
        self.shapes.setdefault(kernel.entry, set()).add((int(x), int(y), int(z)))
        super().launch(kernel, grid, block, shared, args)
        trace = self.traces.pop()
        pairs, lines = common_bytes(trace.accesses)
        self.touched.setdefault(kernel.entry, set()).update(pairs)
        self.seen.setdefault(kernel.entry, set()).update(lines)


def loops_around(kernel: Kernel) -> list[list[int]]:
    """For each block the headers of the loops around it, outermost first."""
    facts = Facts(kernel)
    return [[loop.header for loop in facts.loops.around(block)] for block in range(len(facts.cfg))]


def common_bytes(accesses: Any) -> tuple[set[tuple[int, int]], set[int]]:
    """Pairs of lines that touched a common byte, the smaller one first, and all lines that touched anything."""
    accesses = accesses[(accesses["space"] != _PARAM) & (accesses["space"] != _CONST)]
    if not accesses.size:
        return set(), set()
    unit = int(np.gcd.reduce(np.concatenate([np.unique(accesses["bytes"]), np.unique(accesses["address"] % 16)])))
    keys: list[Any] = []
    lines: list[Any] = []
    for size in np.unique(accesses["bytes"]).tolist():
        part = np.unique(accesses[accesses["bytes"] == size][["instruction", "block", "thread", "address", "space"]])
        scope = np.zeros(part.size, np.uint64)
        is_shared, is_local = part["space"] == _SHARED, part["space"] == _LOCAL
        scope[is_shared] = part["block"][is_shared].astype(np.uint64) + 1
        scope[is_local] = (part["block"][is_local].astype(np.uint64) << 10) + part["thread"][is_local] + (1 << 20)
        for piece in range(0, size, unit):
            # Addresses of global memory have fewer than 47 bits. Offsets in shared and local memory have fewer than 20.
            own = (part["address"] + np.uint64(piece)) // np.uint64(unit)
            keys.append(np.where(scope > 0, (scope << np.uint64(20)) + own + (np.uint64(1) << np.uint64(62)), own))
            lines.append(part["instruction"].astype(np.int64))
    rows = np.zeros(sum(part.size for part in keys), [("key", "u8"), ("line", "i8")])
    rows["key"], rows["line"] = np.concatenate(keys), np.concatenate(lines)
    rows = np.unique(rows)
    found: set[tuple[int, int]] = set()
    starts = np.flatnonzero(np.concatenate([[True], rows["key"][1:] != rows["key"][:-1]]))
    counts = np.diff(np.concatenate([starts, [rows.size]]))
    for count in np.unique(counts[counts > 1]).tolist():
        first = starts[counts == count]
        groups = np.unique(np.stack([rows["line"][first + at] for at in range(count)], axis=1), axis=0)
        for group in groups.tolist():
            found.update((one, two) for at, two in enumerate(group) for one in group[:at])
    return found, set(np.unique(rows["line"]).tolist())


# --- one kernel ------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """The counts of a suite, or of all suites."""

    programs: int = 0
    kernels: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])

    def add(self, other: Tally) -> None:
        self.programs += other.programs
        self.kernels += other.kernels
        self.counts += other.counts
        self.wrong += other.wrong


def tally_of(benchmark: Benchmark, ptx: dict[str, str]) -> Tally:
    """Run a program by each schedule, and compare its facts with what happened."""
    found = Tally(programs=1)
    recorders: list[Recorder] = []
    for schedule in SCHEDULES:
        recorder = Recorder(schedule)
        outcome = run(benchmark, recorder, ptx, "tiny", 0)
        assert not outcome.differences, outcome.differences
        recorders.append(recorder)
    modules = {kernel.name: module for module in recorders[0].modules for kernel in module.kernels}
    for name, module in modules.items():
        kernel = module.kernel(name)
        runs = [(recorder, same_kernel(recorder, name)) for recorder in recorders]
        if not any(kernel in recorder.counts.executions for recorder, kernel in runs):
            continue
        found.kernels += 1
        count_branches(found, benchmark, kernel, module, runs)
        if kernel.is_entry:
            count_pairs(found, benchmark, kernel, module, runs)
    return found


def same_kernel(recorder: Recorder, name: str) -> Kernel:
    return next(kernel for module in recorder.modules for kernel in module.kernels if kernel.name == name)


Runs = list[tuple[Recorder, Kernel]]


def count_branches(found: Tally, benchmark: Benchmark, kernel: Kernel, module: Module, runs: Runs) -> None:
    """Branches by their position in the kernel, since each run parses it again."""
    executed: set[int] = set()
    parted: set[int] = set()
    shapes: set[Shape] = set()
    for recorder, own in runs:
        at = {instr: number for number, instr in enumerate(own.instructions())}
        executed.update(at[instr] for instr in recorder.counts.executions[own].branches)
        parted.update(at[instr] for instr in recorder.instances.parted if instr in at)
        shapes |= recorder.shapes.get(own, set())
    instrs = list(kernel.instructions())
    number = {instr: at for at, instr in enumerate(instrs)}
    for label, shape in (("", None), (" shaped", next(iter(shapes)) if len(shapes) == 1 else None)):
        divergence = Facts(kernel, module, shape=shape).divergence
        called = {number[cast("Instr", divergence.cfg.blocks[b].terminator)] for b in divergence.divergent_branches}
        found.counts[f"branches{label}"] += len(executed)
        found.counts[f"divergent{label}"] += len(called & executed)
        found.counts[f"parted{label}"] += len(called & parted)
        for at in sorted(parted - called):
            found.wrong.append(f"{benchmark.fullname}: {kernel.name}: uniform and parted: {instrs[at].text}")


def count_pairs(found: Tally, benchmark: Benchmark, kernel: Kernel, module: Module, runs: Runs) -> None:
    touched: set[tuple[int, int]] = set()
    lines: set[int] = set()
    for recorder, own in runs:
        touched |= recorder.touched.get(own, set())
        lines |= recorder.seen.get(own, set())
    by_line: dict[int, list[Instr]] = {}
    for instr in kernel.instructions():
        by_line.setdefault(module.source.line_column(instr.pos)[0], []).append(instr)
    for label, promise in (("", CONSERVATIVE), (" restrict", RESTRICT)):
        memory = Facts(kernel, module, promise=promise).memory
        references: list[tuple[int, Reference, bool]] = []
        for line in sorted(lines):
            # If several instructions are on one line, it is unknown which of them made the access.
            if len(by_line.get(line, ())) == 1:
                instr = by_line[line][0]
                reference = memory.reference(instr)
                if reference is not None:
                    references.append((line, reference, instr.form.effects & Effect.WRITE != 0))
        for position, (two, second, writes) in enumerate(references):
            for one, first, wrote in references[:position]:
                if not (writes or wrote):
                    continue
                did = (one, two) in touched
                found.counts[f"pairs{label}"] += 1
                if memory.may_ever_alias(first, second):
                    found.counts[f"may{label}"] += 1
                    found.counts[f"did{label}"] += did
                elif did:
                    found.wrong.append(f"{benchmark.fullname}: {kernel.name}: disjoint{label} and met: {one}, {two}")


# --- suites ----------------------------------------------------------------------------------------------------------


def run_suites(pattern: str, path: str) -> int:
    only = re.compile(pattern)
    nvcc = compiler()
    suites: dict[str, Tally] = {}
    total = Tally()
    for benchmark in benchmarks():
        if not only.search(benchmark.fullname):
            continue
        started = time.process_time()
        tally = tally_of(benchmark, ptx_of(benchmark, nvcc))
        print(f"{benchmark.fullname}: {time.process_time() - started:.1f} s", file=sys.stderr, flush=True)
        suites.setdefault(benchmark.suite, Tally()).add(tally)
        total.add(tally)
    print("| suite | programs | kernels | branches | divergent | parted | shape known: divergent | parted |", end="")
    print(" pairs | may alias | did | restrict: may alias | did |")
    print("| --- |" + " ---: |" * 12)
    for name, tally in [*suites.items(), ("all", total)]:
        print(f"| {name} | {tally.programs} | {tally.kernels} | {' | '.join(cells(tally.counts))} |")
    for line in total.wrong:
        print(f"WRONG {line}")
    print(f"\n{len(total.wrong)} facts were wrong")
    if path:
        data = {name: dict(tally.counts) for name, tally in suites.items()}
        Path(path).write_text(json.dumps({"suites": data, "wrong": total.wrong}, indent=1) + "\n")
    return 1 if total.wrong else 0


def cells(counts: Counter[str]) -> list[str]:
    return [
        str(counts["branches"]),
        str(counts["divergent"]),
        share(counts["parted"], counts["divergent"]),
        str(counts["divergent shaped"]),
        share(counts["parted shaped"], counts["divergent shaped"]),
        str(counts["pairs"]),
        str(counts["may"]),
        share(counts["did"], counts["may"]),
        str(counts["may restrict"]),
        share(counts["did restrict"], counts["may restrict"]),
    ]


def share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f} %)" if whole else "0"


# --- growth ----------------------------------------------------------------------------------------------------------

#: Every fact that there is, in the order in which one needs another.
FACTS: dict[str, Callable[[Facts], object]] = {
    "control flow": lambda facts: facts.cfg,
    "dominance": lambda facts: facts.dominance,
    "post-dominance": lambda facts: facts.post_dominance,
    "loops": lambda facts: facts.loops,
    "control dependence": lambda facts: facts.control_dependence,
    "liveness": lambda facts: facts.liveness,
    "pressure": lambda facts: facts.pressure.maximum,
    "SSA": lambda facts: facts.ssa,
    "values": lambda facts: facts.values,
    "divergence": lambda facts: (facts.divergence, facts.expected_divergence.cdrnd),
    "weights": lambda facts: facts.block_weight(0),
    "memory": lambda facts: all_memory(facts),
    "speculation": lambda facts: all_speculation(facts),
}


def all_memory(facts: Facts) -> int:
    """References, what each may point into, whether each is written, buffers."""
    memory = facts.memory
    found = 0
    for instr in facts.kernel.instructions():
        if memory.reference(instr) is not None:
            found += memory.is_unwritten(instr)
    return found + len(memory.buffers.reads)


def all_speculation(facts: Facts) -> int:
    """How many loads may be executed at the end of the immediate dominator of their block."""
    cfg, idom = facts.cfg, facts.dominance.idom
    found = 0
    for block in cfg.rpo:
        if idom[block] >= 0:
            above = cfg.blocks[idom[block]]
            for instr in cfg.blocks[block].instrs:
                if not instr.is_directive and instr.form.operation is Operation.LOAD:
                    found += bool(may_speculate(facts, instr, above))
    return found


def run_growth(sizes: list[int], timeout: float) -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
    import generated

    print("| instructions | " + " | ".join(FACTS) + " | all facts | ptxas | ratio |")
    print("| ---: |" + " ---: |" * (len(FACTS) + 3))
    is_slow = False
    for size in sizes:
        text = generated.module(1, size)
        ptxas, has_ended = ptxas_seconds(text, timeout)
        seconds = facts_seconds(text)
        total = sum(seconds.values())
        is_slow |= total > ptxas
        count = sum(1 for _ in parse(text).kernels[0].instructions())
        shown = " | ".join(f"{each:.2f}" for each in [*seconds.values(), total])
        more, less = ("", "") if has_ended else ("> ", "< ")
        print(f"| {count} | {shown} | {more}{ptxas:.2f} | {less}{total / ptxas:.3f} |", flush=True)
    print(f"\nCPU seconds; ratio: all facts to ptxas, which was ended after {timeout:g} s where there is a >")
    return 1 if is_slow else 0


def ptxas_seconds(text: str, timeout: float) -> tuple[float, bool]:
    """CPU seconds of ptxas, and whether it came to an end in ``timeout`` seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    has_ended = True
    try:
        assemble(text, timeout=timeout)
    except ToolTimeout:
        has_ended = False
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, has_ended


def facts_seconds(text: str) -> dict[str, float]:
    """CPU seconds of each fact, the collector off as it is while passes run."""
    module = parse(text)
    facts = Facts(module.kernels[0], module)
    seconds: dict[str, float] = {}
    gc.collect()
    gc.disable()
    try:
        for name, compute in FACTS.items():
            started = time.process_time()
            compute(facts)
            seconds[name] = time.process_time() - started
    finally:
        gc.enable()
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description="How sound, precise and fast the facts about kernels are.")
    kinds = parser.add_subparsers(dest="kind", required=True)
    suites = kinds.add_parser("suites")
    suites.add_argument("-k", default="", metavar="REGEX", help="only programs whose name matches")
    suites.add_argument("--json", default="", metavar="FILE")
    growth = kinds.add_parser("growth")
    growth.add_argument("--sizes", default="12500,25000,50000,100000", metavar="N,N,…")
    growth.add_argument("--timeout", type=float, default=600.0, metavar="S", help="when to end ptxas (default: 600)")
    arguments = parser.parse_args()
    if arguments.kind == "suites":
        return run_suites(arguments.k, arguments.json)
    return run_growth([int(part) for part in arguments.sizes.split(",")], arguments.timeout)


if __name__ == "__main__":
    sys.exit(main())
