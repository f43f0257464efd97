"""Optimize a few real kernels from end to end, and say what was gained.

    python demo/run.py [--arch sm_90] [FILE.cu …]

Each CUDA file beside this script (or each file that is named) is compiled with nvcc, its PTX goes through the default
pipeline, and ptxas assembles both. For each kernel: what moved, what was redundant as it stood, what was refused and
why, and registers, spills and machine instructions before and after. No GPU is needed, and no figure is a time.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from ptxmotion.harness.machine_diff import KernelDiff, figures
from ptxmotion.harness.toolchain import ToolchainError, ToolMissing, compile_cuda
from ptxmotion.ptx import Module, parse, print_module
from ptxmotion.ptx.verify import verify, verify_kernel
from ptxmotion.transforms.pipeline import Pipeline, pipeline_of
from ptxmotion.transforms.remarks import Remark, Remarks

SHOWN = ("registers", "spill bytes", "instructions", "instructions in loops")


def main() -> int:
    """Run the demo; its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.cu")
    parser.add_argument("--arch", default="sm_90", metavar="SM", help="what to compile for (default: sm_90)")
    arguments = parser.parse_args()
    files = arguments.files or sorted(Path(__file__).parent.glob("*.cu"))
    found: list[KernelDiff] = []
    try:
        for path in files:
            found += optimize(path, arguments.arch)
    except ToolMissing as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 4
    except ToolchainError as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 3
    _print_sums(found)
    return 0


def optimize(path: Path, arch: str) -> list[KernelDiff]:
    """Compile, optimize and assemble one CUDA file, and print what happened to each kernel."""
    source = compile_cuda(path, arch, flags=("-lineinfo",))
    module = parse(source, path.name)
    verify(module)
    remarks = Remarks(module)
    pipeline = Pipeline(pipeline_of("O1"), lambda kernel, of: verify_kernel(kernel, of.source), verify_each=True)
    pipeline.run(module, remarks)
    before, after = figures(source), figures(print_module(module))
    diffs = [KernelDiff(name, before[name], after[name]) for name in before]
    for diff in diffs:
        _print_kernel(path, module, diff, [r for r in dict.fromkeys(remarks.items) if r.kernel == diff.name])
    return diffs


def _print_kernel(path: Path, module: Module, diff: KernelDiff, remarks: list[Remark]) -> None:
    size = sum(1 for _ in module.kernel(diff.name).instructions())
    print(f"{diff.name}  ({path.name}, {size} PTX instructions after)")
    passed = [remark for remark in remarks if remark.kind == "Passed"]
    for name in dict.fromkeys(remark.name for remark in passed):
        _print_group(name.lower(), [remark for remark in passed if remark.name == name])
    refused = [remark for remark in remarks if remark.kind == "Missed"]
    for reason in dict.fromkeys(remark.reason for remark in refused):
        of_reason = [remark for remark in refused if remark.reason == reason]
        _print_group(f"refused, {of_reason[0].message.rpartition(': ')[2]} [{reason}]", of_reason)
    if not remarks:
        print("  nothing to do")
    if diff.is_identical:
        print("  machine code: identical")
    assert diff.before is not None and diff.after is not None
    before, after = diff.before.table(), diff.after.table()
    print("  " + ", ".join(f"{what} {_step(before[what], after[what])}" for what in SHOWN))
    print()


def _print_group(heading: str, remarks: list[Remark]) -> None:
    """A count, and the opcodes with their lines in the CUDA source."""
    if not remarks:
        return
    lines: dict[str, Counter[int]] = {}
    for remark in remarks:
        opcode = remark.message.split("'")[1] if "'" in remark.message else remark.message
        lines.setdefault(opcode, Counter())[remark.line] += 1
    parts = [f"{opcode} at {', '.join(map(str, sorted(at)))}" for opcode, at in lines.items()]
    print(f"  {len(remarks)} {heading}: {'; '.join(parts)}")


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
    sys.exit(main())
