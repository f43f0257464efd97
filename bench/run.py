"""How long ptxmotion takes, as ratios to what ptxas takes for the same files in the same run.

    python bench/run.py [DIR] [--every 15] [--level O2] [--json FILE]

Without a folder, the files are the PTX that nvcc makes of the kernels in `demo/`, and generated kernels. The passes are
those of the level, without the gate; `bench/cost.py` measures the gate. Each limit is a line that passes or fails; a
failed one makes the exit code 1:

    parse and print           at most 0.15 of ptxas, in total
    the level's pipeline      at most 1.0 of ptxas, in total: read, verify, transform, verify, print
    start of `opt`            at most 0.25 s for a file with one kernel, for the whole process
    growth                    n·log n, up to 200,000 instructions in one kernel
    memory                    under 1.5 GB for a module of 10 MB

Limits are on the CPU time of all processes that take part, so a busy machine changes them little. Wall time is printed
beside it; on an idle machine both are equal.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from generated import kernel, module
from ptxmotion.ptx import parse, print_module
from ptxmotion.ptx.verify import verify
from ptxmotion.python_child import child_environment, module_command
from ptxmotion.toolchain.tools import PtxasError, assemble, compile_cuda
from ptxmotion.transforms.passes import LEVELS
from ptxmotion.transforms.pipeline import run_passes

MOST_PARSE_PRINT = 0.15
MOST_PIPELINE = 1.0
MOST_START = 0.25
MOST_MEMORY = 1.5e9

#: How much more than n·log n the largest kernel may take, from the first size of the curve on. Large kernels do not fit
#: into the processor's caches.
MOST_GROWTH = 2.0

SIZES = (2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000)
_HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"


@dataclass
class Times:
    """CPU seconds for one file, and ptxas's wall seconds."""

    name: str
    bytes: int
    instructions: int
    parse_print: float
    pipeline: float
    ptxas: float
    ptxas_wall: float


@dataclass
class Limit:
    """A figure and what it may be at most."""

    name: str
    value: float
    limit: float
    unit: str

    @property
    def passed(self) -> bool:
        return self.value <= self.limit


def main() -> int:
    """Run everything, print, write, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="PTX files, with those in subfolders")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of the files every N-th, ordered by path")
    parser.add_argument("--level", default="O2", metavar="LEVEL", help="level or passes (default: that of opt, O2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    parser.add_argument("--quick", action="store_true", help="a growth curve up to 20,000 instructions only")
    arguments = parser.parse_args()
    level: str = arguments.level
    files = _measure_files(_inputs(arguments.folder, arguments.every), level)
    start = _start_seconds(level)
    growth = _growth(SIZES[:4] if arguments.quick else SIZES, level)
    size, memory = _memory(level)
    limits = _ratios(files, level)
    limits.append(Limit("start of opt", statistics.median(cpu for _, cpu in start), MOST_START, "s"))
    limits.append(Limit("growth beyond n log n", _beyond(growth), MOST_GROWTH, "times"))
    limits.append(Limit(f"memory for {size / 1e6:.1f} MB", memory, MOST_MEMORY, "bytes"))
    _print_files(files)
    _print_growth(growth)
    walls = [wall for wall, _ in start]
    print(f"start of opt, wall: best {min(walls):.3f} s, median {statistics.median(walls):.3f} s, of {len(start)}\n")
    for limit in limits:
        value = f"{limit.value / 1e9:.2f} GB" if limit.unit == "bytes" else f"{limit.value:.3f} {limit.unit}"
        most = f"{limit.limit / 1e9:.2f} GB" if limit.unit == "bytes" else f"{limit.limit:.3f}"
        print(f"{'pass' if limit.passed else 'FAIL'}  {limit.name:32} {value:>14}  at most {most}")
    if arguments.json:
        document = {
            "schema_version": 2,
            "level": level,
            "limits": [{**asdict(limit), "passed": limit.passed} for limit in limits],
            "files": [asdict(each) for each in files],
            "start_seconds": [{"wall": wall, "cpu": cpu} for wall, cpu in start],
            "growth": growth,
            "memory": {"module_bytes": size, "peak_bytes": memory},
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if all(limit.passed for limit in limits) else 1


def _inputs(folder: Path | None, every: int) -> Iterator[tuple[str, str]]:
    """Name and text of each file to measure."""
    if folder is not None:
        for path in sorted(folder.rglob("*.ptx"))[::every]:
            text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
            yield str(path.relative_to(folder)), text.replace("\r\n", "\n")
        return
    demo = Path(__file__).resolve().parents[1] / "demo"
    for path in sorted(demo.glob("*.cu")):
        yield path.name, compile_cuda(path, "sm_90")
    for size in (200, 1_000, 5_000):
        yield f"generated, {size} instructions", _HEADER + kernel("k", size, seed=size)


def _measure_files(inputs: Iterator[tuple[str, str]], level: str) -> list[Times]:
    """Times of each file that ptxas accepts. The names of the other files are printed."""
    times: list[Times] = []
    for name, text in inputs:
        before = _children_seconds()
        try:
            assembled = assemble(text)
        except PtxasError as error:
            print(f"{name}: left out, ptxas refuses it: {str(error).splitlines()[-1]}", file=sys.stderr)
            continue
        ptxas = _children_seconds() - before
        repeats = 3 if len(text) < 500_000 else 1
        parse_print = min(_parse_print_seconds(text) for _ in range(repeats))
        runs = [_pipeline_seconds(text, level) for _ in range(repeats)]
        seconds, count = min(runs)
        times.append(Times(name, len(text), count, parse_print, seconds, ptxas, assembled.seconds))
    return times


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _parse_print_seconds(text: str) -> float:
    started = time.process_time()
    print_module(parse(text))
    return time.process_time() - started


def _pipeline_seconds(text: str, level: str) -> tuple[float, int]:
    """CPU seconds of all that `opt` does between reading and writing, and the number of instructions before."""
    started = time.process_time()
    module = parse(text)
    verify(module)
    counting = time.process_time()
    count = sum(1 for each in module.kernels for _ in each.instructions())
    started += time.process_time() - counting
    run_passes(module, level)
    print_module(module)
    return time.process_time() - started, count


def _ratios(files: list[Times], level: str) -> list[Limit]:
    ptxas = sum(each.ptxas for each in files)
    if not ptxas:
        raise SystemExit("bench: error: there is no file that ptxas accepts")
    return [
        Limit("parse and print, of ptxas", sum(each.parse_print for each in files) / ptxas, MOST_PARSE_PRINT, "times"),
        Limit(f"-{level} without gate, of ptxas", sum(each.pipeline for each in files) / ptxas, MOST_PIPELINE, "times"),
    ]


def _start_seconds(level: str, runs: int = 9) -> list[tuple[float, float]]:
    """Wall and CPU seconds of `opt` on a file with one kernel, all of the process included."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.ptx"
        path.write_text(_HEADER + kernel("k", 60))
        _child(path, Path(folder) / "out.ptx", level)  # compiles what has changed
        return [_child(path, Path(folder) / "out.ptx", level)[:2] for _ in range(runs)]


def _child(source: Path, output: Path, level: str) -> tuple[float, float, int]:
    """Run `opt`; wall and CPU seconds, and the most memory that it held in bytes."""
    options = ["--no-config", f"-{level}" if level in LEVELS else f"--passes={level}", "--gate=off"]
    command = module_command("opt", *options, str(source), "-o", str(output))
    started = time.perf_counter()
    child = subprocess.Popen(command, env=child_environment())
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"bench: error: opt ended with {child.returncode} on {source}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def _growth(sizes: tuple[int, ...], level: str) -> list[dict[str, float]]:
    """For each size CPU seconds of parsing and printing, and of everything; the best of some runs."""
    rows: list[dict[str, float]] = []
    for size in sizes:
        text = _HEADER + kernel("k", size, seed=1)
        repeats = 3 if size <= 20_000 else 1
        parse_print = min(_parse_print_seconds(text) for _ in range(repeats))
        seconds, count = min(_pipeline_seconds(text, level) for _ in range(repeats))
        rows.append({"instructions": count, "parse_print": parse_print, "pipeline": seconds})
    return rows


def _beyond(growth: list[dict[str, float]]) -> float:
    """How much more the last size takes than n·log n allows, from the first of 10,000 instructions or more."""
    scale = [row["pipeline"] / (row["instructions"] * math.log2(row["instructions"])) for row in growth]
    first = next(i for i, row in enumerate(growth) if row["instructions"] >= 10_000)
    return max(scale[first:]) / scale[first]


def _memory(level: str) -> tuple[int, int]:
    """Size of a module of about 10 MB, and the most memory that `opt` held for it."""
    text = module(kernels=40, instructions=7_400)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.ptx"
        path.write_text(text)
        return len(text), _child(path, Path(folder) / "out.ptx", level)[2]


def _print_files(files: list[Times]) -> None:
    folders: dict[str, list[Times]] = {}
    for each in files:
        folders.setdefault(os.path.dirname(each.name) or each.name, []).append(each)
    rows = [("file or folder", "instr", "ptxas s", "wall s", "parse+print", "ratio", "pipeline", "ratio")]
    for name, members in [*folders.items(), ("all", files)]:
        ptxas = sum(each.ptxas for each in members)
        ours = [sum(each.parse_print for each in members), sum(each.pipeline for each in members)]
        count = sum(each.instructions for each in members)
        wall = sum(each.ptxas_wall for each in members)
        ratios = [f"{seconds / ptxas:.3f}" for seconds in ours]
        rows.append(
            (name, str(count), f"{ptxas:.3f}", f"{wall:.3f}", f"{ours[0]:.3f}", ratios[0], f"{ours[1]:.3f}", ratios[1])
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]))
    print()


def _print_growth(growth: list[dict[str, float]]) -> None:
    print(f"{'instructions':>12}  {'parse+print':>11}  {'pipeline':>9}  {'µs/instr':>8}  ns per n·log₂n")
    for row in growth:
        count, seconds = row["instructions"], row["pipeline"]
        scaled = seconds / (count * math.log2(count)) * 1e9
        print(
            f"{count:12.0f}  {row['parse_print']:11.3f}  {seconds:9.3f}  {seconds / count * 1e6:8.1f}  {scaled:14.0f}"
        )
    print()


if __name__ == "__main__":
    sys.exit(main())
