"""Optimize a few real kernels from end to end, and say what was gained.

    python demo/run.py [--arch sm_90] [FILE.cu …]

Each CUDA file beside this script (or each file that is named) is compiled with nvcc, its PTX goes through what `opt`
does by default (`-O2` behind the gate), and ptxas assembles both. For each kernel: what moved, what was redundant as it
stood, what was refused and why, what the gate decided, and registers, spills and machine instructions before and after.
No GPU is needed, and no figure is a time.
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
    parser.add_argument("--arch", default="sm_90", metavar="SM", help="what to compile for (default: sm_90)")
    arguments = parser.parse_args()
    files = arguments.files or sorted(Path(__file__).parent.glob("*.cu"))
    found: list[KernelDiff] = []
    print(f"nvcc → opt -O2, gated → ptxas, for {arguments.arch}. Lines are the CUDA file's; no figure is a time.\n")
    try:
        for path in files:
            found += optimize_file(path, arguments.arch)
    except ToolMissing as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 4
    except ToolchainError as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 3
    _print_sums(found)
    return 0


def _guarded() -> int:
    """`main`, quietly where whoever reads its output has read enough."""
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
            # A reverted kernel has no remarks of its rewrites: optimize again without the gate.
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
        _say("gate", "nothing to decide: no rewrite was found")
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
    """Why something was refused, without the place of what stands in the way."""
    why = remark.message.partition(": ")[2] or remark.message
    return f"{re.sub(r' at [^ ]+:[0-9]+', '', why)} [{remark.reason}]"


def _places(remarks: Iterable[Remark]) -> str:
    """Opcodes with their lines in the CUDA source, where they have one."""
    lines: dict[str, Counter[int]] = {}
    for remark in remarks:
        opcode = remark.expression or remark.message.split("'")[1]
        lines.setdefault(opcode, Counter())[remark.line] += 1
    return "; ".join(f"{opcode}{_lines(at)}" for opcode, at in lines.items())


def _lines(at: Counter[int]) -> str:
    known = [str(line) for line in sorted(at) if line]
    where = f" in line{'s' if len(known) > 1 else ''} {', '.join(known)}" if known else ""
    return where + (" and once without a line" if at[0] and known else "")


def _step(before: int, after: int) -> str:
    return f"{before}" if before == after else f"{before} → {after}"


def _print_sums(found: list[KernelDiff]) -> None:
    verdicts = Counter(diff.verdict for diff in found)
    print(f"{len(found)} kernels: " + ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items()))
    for what in SHOWN:
        before = sum(diff.before.table()[what] for diff in found if diff.before is not None)
        after = sum(diff.after.table()[what] for diff in found if diff.after is not None)
        print(f"  {what}: {_step(before, after)}")


if __name__ == "__main__":
    sys.exit(_guarded())
