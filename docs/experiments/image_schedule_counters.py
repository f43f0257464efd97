"""Counters of schedules by Nsight Compute, and the counts of the model that they should equal.

    python docs/experiments/image_schedule_counters.py FOLDER [--peers LIBRARY] [--programs …] [--arms …] [--size N]

FOLDER was written by `image_schedule_peers.py build`. Runs its action `once` under `ncu` without control of clocks and
caches, and prints a line for each arm: the sums of its kernels. For our own schedules, each count of the model follows
with what was counted, for one pixel of the largest result: instructions, floating-point operations (alu), those of the
SFU, loads from global (loads) and shared memory (reads), stores to shared memory (filled); bytes between the L1 and L2
caches (moved); and the occupancy in percent.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from image_schedule_programs import PROGRAMS
from ptxmotion.dsl.image import Options
from ptxmotion.dsl.image.groups import plan_from_json
from ptxmotion.dsl.image.schedule.work import SECTOR, Members, Work, work_of
from ptxmotion.python_child import child_environment

SASS = "smsp__sass_inst_executed_op"
#: By our name: a counter of ncu that is added up over the kernels of an arm.
SUMS = {
    "us": "gpu__time_duration.sum",
    "dram": "dram__bytes.sum",
    "l2": "lts__t_bytes.sum",
    "l1 to l2": "lts__t_sectors_srcunit_tex.sum",
    "shared waves": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1 waves": "l1tex__data_pipe_lsu_wavefronts.sum",
    "instructions": "smsp__inst_executed.sum",
    "alu": "smsp__inst_executed_pipe_alu.sum",
    "fma": "smsp__inst_executed_pipe_fma.sum",
    "sfu": "smsp__inst_executed_pipe_xu.sum",
    "global loads": f"{SASS}_global_ld.sum",
    "shared loads": f"{SASS}_shared_ld.sum",
    "shared stores": f"{SASS}_shared_st.sum",
    "address unit": "smsp__inst_executed_pipe_adu.sum",
    "fadd": "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "fmul": "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "ffma": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
}
STALLED = "smsp__average_warps_issue_stalled"
#: By our name: a counter whose mean over the kernels of an arm is weighted with their times.
MEANS = {
    "occupancy %": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "issue %": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "wait memory": f"{STALLED}_long_scoreboard_per_issue_active.ratio",
    "wait shared": f"{STALLED}_short_scoreboard_per_issue_active.ratio",
    "wait lsu": f"{STALLED}_lg_throttle_per_issue_active.ratio",
    "wait mio": f"{STALLED}_mio_throttle_per_issue_active.ratio",
    "wait barrier": f"{STALLED}_barrier_per_issue_active.ratio",
    "wait code": f"{STALLED}_no_instruction_per_issue_active.ratio",
    "wait math": f"{STALLED}_math_pipe_throttle_per_issue_active.ratio",
    "registers": "launch__registers_per_thread",
}
#: By count of the model: the counter of executed instructions.
PREDICTED = {
    "instructions": "instructions",
    "sfu": "sfu",
    "loads": "global loads",
    "reads": "shared loads",
    "filled": "shared stores",
}


def known_metrics(ncu: str) -> set[str]:
    """The names of the counters of this GPU, without their suffixes, such as `.sum`."""
    found = subprocess.run([ncu, "--query-metrics", "--csv"], capture_output=True, text=True)
    return {line.split(",")[0].strip('"') for line in found.stdout.splitlines()}


def profiled(command: list[str], ncu: str, seconds: float) -> tuple[list[list[dict[str, float]]], list[str]]:
    """The counters of each kernel by name, a list for each arm; and the names of the arms, as ``command`` printed
    them."""
    known, metrics = known_metrics(ncu), [*SUMS.values(), *MEANS.values()]
    kept = [each for each in metrics if each.startswith("launch__") or each.split(".")[0] in known]
    if missing := sorted(set(metrics) - set(kept)):
        print("this version of ncu does not know", *missing, flush=True)
    options = ["--csv", "--page", "raw", "--clock-control", "none", "--cache-control", "none", "--print-units", "base"]
    full = [ncu, *options, "--metrics", ",".join(kept), *command]
    made = subprocess.run(full, capture_output=True, text=True, timeout=seconds, env=child_environment())
    lines = made.stdout.splitlines()
    named = [line.removeprefix("arm ") for line in lines if line.startswith("arm ")]
    first = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        sys.exit(f"ncu has no counters:\n{made.stdout[-2000:]}\n{made.stderr[-2000:]}")
    arms: list[list[dict[str, float]]] = []
    for row in csv.DictReader(line for line in lines[first:] if line.startswith('"')):
        if row["Kernel Name"].startswith("marker"):
            arms.append([])
        elif row["ID"] and arms:
            arms[-1].append({name: _number(row.get(name, "")) for name in kept})
    return arms, named


def _number(text: str | None) -> float:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return float("nan")


def summed(kernels: list[dict[str, float]]) -> dict[str, float]:
    """The counters of an arm by our names."""
    times = [kernel.get(SUMS["us"], 0.0) for kernel in kernels]
    found = {word: sum(kernel[name] for kernel in kernels) for word, name in SUMS.items() if name in kernels[0]}
    for word, name in MEANS.items():
        if name in kernels[0]:
            found[word] = sum(kernel[name] * each for kernel, each in zip(kernels, times, strict=True)) / sum(times)
    return found


def works(name: str, size: int, plan: str) -> list[Work]:
    graph, options = PROGRAMS[name].graph(size), Options()
    groups = plan_from_json(graph, plan, options).groups
    return [work_of(Members(graph, group.nodes, options), group) for group in groups]


def predicted(made: list[Work]) -> dict[str, float]:
    """The counts of the model for all kernels, per pixel of the largest result; bytes; and the mean occupancy."""
    pixels = max(work.pixels for work in made)
    found: dict[str, float] = defaultdict(float)
    for work in made:
        found["moved"] += work.moved
        found["occupancy"] += 100 * work.occupancy / len(made)
        for word in ("alu", "sfu", "loads", "reads", "filled", "instructions"):
            share = work.blocks * work.threads / pixels if word == "instructions" else work.pixels / pixels
            found[word] += getattr(work, word) * share
    return found


def main() -> None:
    """Profile, and print lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peers", type=Path, help="a shared library of compiled programs")
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--arms", nargs="*", default=[], help="only these arms; peers as peer:NAME")
    parser.add_argument("--size", type=int, default=2048, help="width and height")
    parser.add_argument("--ncu", default="ncu", help="the program ncu")
    parser.add_argument("--seconds", type=float, default=60, help="the time for ncu")
    chosen = parser.parse_args()
    script = str(Path(__file__).with_name("image_schedule_peers.py"))
    command = [sys.executable, "-P", script, "once", str(chosen.folder), "--programs", *chosen.programs]
    command += ["--sizes", str(chosen.size), *(["--peers", str(chosen.peers)] if chosen.peers else [])]
    command += ["--arms", *chosen.arms] if chosen.arms else []
    arms, named = profiled(command, chosen.ncu, chosen.seconds)
    for words, kernels in zip(named, arms, strict=False):
        if not kernels:
            continue
        name, _, word = words.split()
        found = summed(kernels)
        line: dict[str, Any] = {"program": name, "arm": word, "kernels": len(kernels), **found}
        plans = json.loads((chosen.folder / f"{name}-{chosen.size}.json").read_text())["arms"]
        if plans.get(word):
            made = works(name, chosen.size, plans[word])
            pixels = max(work.pixels for work in made)
            each = {word: found.get(counter, float("nan")) * 32 / pixels for word, counter in PREDICTED.items()}
            each["alu"] = (found["fadd"] + found["fmul"] + found["ffma"]) / pixels
            each["moved"] = found.get("l1 to l2", float("nan")) * SECTOR
            each["occupancy"] = found["occupancy %"]
            line["model"] = {word: [_short(value), _short(each[word])] for word, value in predicted(made).items()}
        print(json.dumps({key: _short(value) for key, value in line.items()}), flush=True)


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
