"""Whether the optimizer changes what ptxas contracts: multiply-adds, sums and products before and after.

    python docs/experiments/contraction.py [DIR …] [--suites] [--fuse] [--passes O3] [--arch sm_80] [--static]
        [--kernels] [--shard 0/1] [--seconds inf] [--json FILE]

Computes the counts of `toolchain/contraction_counts.py` before and after, the number of products and sums that got
``.rn``, and the number of kernels that were reverted. It does so for every PTX file below the folders, for every kernel
of the suites (``--suites``), and for every kernel that ``fuse`` builds of the suites' programs (``--fuse``; there,
"before" is the sum over the kernels that it is built of). A kernel *differs* if the number of its contracted sums is
not the same after as before; ``--kernels`` lists these kernels. Fewer sums may be contracted because fewer sums are
left, after redundant ones were removed.

Machine code is compared as with ``--gate=ptxas``. With ``--static`` it is not: kernels with open products stay as they
are. Files that ptxas refuses as they are do not count. There is no gate, so every rewrite counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ptxmotion.analysis.values.contraction import may_contract
from ptxmotion.judges import Assembled
from ptxmotion.ptx import PtxError, parse, print_module
from ptxmotion.toolchain.contraction_counts import FloatCounts, contraction_counts
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
from ptxmotion.toolchain.tools import PtxasError, ToolFailed, ToolTimeout
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks

NAMES = ("fma", "add", "mul", "contracted")


def optimized(text: str, args: argparse.Namespace, total: Counter[str]) -> str:
    """The module after the passes.

    Adds to ``total`` the numbers of rewrites, of added ``.rn`` and of reverted kernels.
    """
    module = parse(text)
    remarks = Remarks(module)
    run_passes(module, args.passes, remarks, float_code=None if args.static else Assembled(PtxasJudge(args.arch)))
    for (_, name, what), number in remarks.counts.items():
        total[f"{name}: {what}" if name == "contraction" else "rewrites"] += number
    return print_module(module)


def files(folders: list[str]) -> Iterator[tuple[str, str]]:
    """Name and text of each PTX file."""
    for folder in folders:
        for path in sorted(Path(folder).rglob("*.ptx")):
            yield str(path), path.read_text(encoding="utf-8", errors="surrogateescape")


def suite_kernels() -> Iterator[tuple[str, str]]:
    """Name and text of the module of each kernel of the suites."""
    from ptxmotion.suites.registry import benchmarks
    from ptxmotion.suites.runner import compiler, ptx_of

    nvcc = compiler()
    for benchmark in benchmarks():
        for name, text in ptx_of(benchmark, nvcc).items():
            yield f"{benchmark.name}.{name}", text


def compare(name: str, text: str, args: argparse.Namespace, total: Counter[str]) -> list[dict[str, Any]]:
    """The kernels of one module of which another number of sums is contracted after the passes."""
    if not any(may_contract(kernel) for kernel in parse(text).kernels):
        total["modules without contraction"] += 1
        return []
    after_text = optimized(text, args, total)
    before, after = contraction_counts(text, args.arch), contraction_counts(after_text, args.arch)
    return note(name, before, after, total)


def note(
    name: str, before: dict[str, FloatCounts], after: dict[str, FloatCounts], total: Counter[str]
) -> list[dict[str, Any]]:
    """Add the counts to ``total``. Returns the kernels of which another number of sums is contracted."""
    found: list[dict[str, Any]] = []
    for kernel, old in before.items():
        new = after[kernel]
        total["kernels"] += 1
        for key in NAMES:
            total[f"{key} before"] += asdict(old)[key]
            total[f"{key} after"] += asdict(new)[key]
        if old.contracted != new.contracted:
            total["kernels that differ"] += 1
            found.append({"module": name, "kernel": kernel, "before": asdict(old), "after": asdict(new)})
    return found


def compare_fused(args: argparse.Namespace, total: Counter[str]) -> list[dict[str, Any]]:
    """The kernels that ``fuse`` makes of the suites' programs and that have other counts than their parts together."""
    from ptxmotion.programs.fusing import FuseRequest, fuse
    from ptxmotion.suites.registry import benchmarks

    found: list[dict[str, Any]] = []
    for benchmark in benchmarks():
        result = fuse(FuseRequest(benchmark.fullname, benefit="none"))
        for pair in result.fused.fused.values():
            parts = [contraction_counts(code.text, args.arch)[code.entry.name] for code in pair.parts]
            before = FloatCounts(*(sum(asdict(part)[key] for part in parts) for key in NAMES))
            after = contraction_counts(optimized(pair.code.text, args, total), args.arch)
            found += note(benchmark.name, {pair.code.entry.name: before}, after, total)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="DIR")
    parser.add_argument("--suites", action="store_true")
    parser.add_argument("--fuse", action="store_true")
    parser.add_argument("--passes", default="O3")
    parser.add_argument("--arch", default=None, help="default: the module's target")
    parser.add_argument("--static", action="store_true", help="do not compare machine code")
    parser.add_argument("--kernels", action="store_true", help="list the kernels that differ")
    parser.add_argument("--shard", default="0/1", help="the part I of N of the modules")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no module after so many")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    index, number = map(int, args.shard.split("/"))
    total: Counter[str] = Counter()
    differing: list[dict[str, Any]] = []
    modules = [*files(args.folders), *(suite_kernels() if args.suites else ())]
    begin = time.monotonic()
    for name, text in modules[index::number]:
        if time.monotonic() - begin > args.seconds:
            total["not begun"] = len(modules[index::number]) - total["modules"]
            break
        try:
            total["modules"] += 1
            differing += compare(name, text, args, total)
        except (PtxasError, ToolFailed, ToolTimeout, PtxError) as error:
            total["refused"] += 1
            print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
    if args.fuse:
        differing += compare_fused(args, total)
    for key, value in total.items():
        print(f"{key:32} {value:10}")
    if args.kernels:
        for each in differing:
            print(json.dumps(each))
    if args.json is not None:
        args.json.write_text(json.dumps({"total": total, "differing": differing}, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
