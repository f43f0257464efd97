"""Optimizes a few CUDA kernels from end to end, and reports the gains.

    python demo/run.py [--arch sm_90] [FILE.cu …]

nvcc compiles each CUDA file in this folder (or each named file). The PTX is optimized as `opt` does by default (`-O2`
with the gate), and ptxas assembles the PTX before and after. For each kernel the report lists moved and redundant
expressions, refused rewrites with their reasons, the decision of the gate, and registers, spills and machine
instructions before and after. No GPU is needed; none of the figures is a time.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ptxmotion.driver import Policy, optimize
from ptxmotion.ptx import Module, parse, print_module
from ptxmotion.toolchain.machine_diff import KernelDiff, figures
from ptxmotion.toolchain.tools import ToolchainError, ToolMissing, compile_cuda
from ptxmotion.transforms.remarks import Remark, Remarks

SHOWN = ("registers", "spill bytes", "instructions", "instructions in loops")
WIDTH = 110
INDENT = 13


def main() -> int:
    """Run the demo; its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.cu")
    parser.add_argument("--arch", default="sm_90", metavar="SM", help="the target to compile for (default: sm_90)")
    arguments = parser.parse_args()
    files = arguments.files or sorted(Path(__file__).parent.glob("*.cu"))
    diffs: list[KernelDiff] = []
    print(f"nvcc → opt -O2 with the gate → ptxas, for {arguments.arch}. No figure is a time.\n")
    try:
        for path in files:
            diffs += optimize_file(path, arguments.arch)
    except ToolMissing as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 4
    except ToolchainError as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 3
    _print_sums(diffs)
    return 0


def _guarded() -> int:
    """`main`, without an error message if the reader of its output closes the pipe."""
    try:
        code = main()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def optimize_file(path: Path, arch: str) -> list[KernelDiff]:
    """Compile, optimize and assemble one CUDA file, and print what happened to each kernel."""
    source = compile_cuda(path, arch, flags=("-lineinfo",))
    module, remarks = _optimized(source, path.name, gated=True)
    tried: Remarks | None = None
    before, after = figures(source), figures(print_module(module))
    diffs = [KernelDiff(name, before[name], after[name]) for name in before]
    for diff in diffs:
        of_kernel = _of(remarks, diff.name)
        decision = next((remark for remark in of_kernel if remark.pass_name == "gate"), None)
        rewrites = [remark for remark in of_kernel if remark.kind == "Passed" and remark is not decision]
        if decision is not None and decision.kind != "Passed":
            # A reverted kernel has no remarks about its rewrites: optimize again without the gate.
            tried = tried or _optimized(source, path.name, gated=False)[1]
            rewrites = [remark for remark in _of(tried, diff.name) if remark.kind == "Passed"]
        _print_kernel(path, diff, rewrites, decision, [remark for remark in of_kernel if remark.kind == "Missed"])
    return diffs


def _optimized(source: str, name: str, *, gated: bool) -> tuple[Module, Remarks]:
    module = parse(source, name)
    policy = Policy(gate="ptxas" if gated else "off", explain=True, verify_each=True)
    result = optimize(module, "O2", policy)
    return result.module, result.log


def _of(remarks: Remarks, kernel: str) -> list[Remark]:
    return [remark for remark in dict.fromkeys(remarks.items) if remark.kernel == kernel]


def _print_kernel(
    path: Path, diff: KernelDiff, rewrites: list[Remark], decision: Remark | None, refused: list[Remark]
) -> None:
    print(f"{diff.name} ({path.name})")
    for kind in dict.fromkeys(remark.name for remark in rewrites):
        _say(kind.lower(), _places(remark for remark in rewrites if remark.name == kind))
    reasons: dict[str, list[Remark]] = {}
    for remark in refused:
        if remark is not decision:
            reasons.setdefault(_reason(remark), []).append(remark)
    for number, (reason, of_reason) in enumerate(reasons.items()):
        _say("" if number else "refused", f"{_places(of_reason)}: {reason}")
    if decision is None:
        _say("gate", "not needed: there was no rewrite")
    else:
        words = {"Passed": "kept: ", "Analysis": "reverted: "}
        _say("gate", words.get(decision.kind, "") + decision.message)
    assert diff.before is not None and diff.after is not None
    before, after = diff.before.table(), diff.after.table()
    _say("ptxas", ", ".join(f"{what} {_step(before[what], after[what])}" for what in SHOWN))
    print()


def _say(heading: str, text: str) -> None:
    lines = textwrap.wrap(text, WIDTH - INDENT, break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(lines):
        print(f"  {'' if number else heading:{INDENT - 2}}{line}")


def _reason(remark: Remark) -> str:
    """The reason of a refusal, without the location of the blocking instruction."""
    why = remark.message.partition(": ")[2] or remark.message
    return f"{re.sub(r' at [^ ]+:[0-9]+', '', why)} [{remark.reason}]"


def _places(remarks: Iterable[Remark]) -> str:
    """Opcodes with their lines in the CUDA source, if they have lines."""
    lines: dict[str, Counter[int]] = {}
    for remark in remarks:
        opcode = remark.expression or remark.message.split("'")[1]
        lines.setdefault(opcode, Counter())[remark.line] += 1
    return "; ".join(f"{opcode}{_lines(at)}" for opcode, at in lines.items())


def _lines(at: Counter[int]) -> str:
    lines = [str(line) for line in sorted(at) if line]
    where = f" in line{'s' if len(lines) > 1 else ''} {', '.join(lines)}" if lines else ""
    return where + (" and once without a line" if at[0] and lines else "")


def _step(before: int, after: int) -> str:
    return f"{before}" if before == after else f"{before} → {after}"


def _print_sums(diffs: list[KernelDiff]) -> None:
    verdicts = Counter(diff.verdict for diff in diffs)
    print(f"{len(diffs)} kernels: " + ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items()))
    for what in SHOWN:
        before = sum(diff.before.table()[what] for diff in diffs if diff.before is not None)
        after = sum(diff.after.table()[what] for diff in diffs if diff.after is not None)
        print(f"  {what}: {_step(before, after)}")


if __name__ == "__main__":
    sys.exit(_guarded())
