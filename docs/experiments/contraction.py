"""Whether the optimizer changes what ptxas contracts: multiply-adds, sums and products before and after.

    python docs/experiments/contraction.py [DIR …] [--suites] [--fuse] [--passes O3] [--arch sm_80] [--static]
        [--kernels] [--only REGEX] [--shard 0/1] [--jobs 1] [--seconds inf] [--json FILE] [--rows FILE]

Computes the counts of `toolchain/contraction_counts.py` before and after, the number of products and sums that got
``.rn``, and the number of kernels that were reverted. It does so for every PTX file below the folders, for every kernel
of the suites (``--suites``), and for every kernel that ``fuse`` builds of the suites' programs (``--fuse``; there,
"before" is the sum over the kernels that it is built of). A kernel *differs* if the number of its contracted sums is
not the same after as before; ``--kernels`` lists these kernels. Fewer sums may be contracted because fewer sums are
left, after redundant ones were removed. *By copies*: the kernel has as many sums and products that are not contracted
as before. Then ptxas has copied or joined code that it contracts in each place, such as the body of a loop.

A part of the work is a file, the kernels of a program of the suites, or the fusion of a program. ``--rows FILE``
appends a line of JSON for each part when it is done, with its seconds, and does not repeat the parts that the file has,
so a run that was cut off can be continued.

Machine code is compared as with ``--gate=ptxas``. With ``--static`` it is not: kernels with open products stay as they
are. Files that ptxas refuses as they are do not count. There is no gate, so every rewrite counts.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ptxmotion.analysis.values.contraction import may_contract
from ptxmotion.judges import Assembled
from ptxmotion.ptx import PtxError, parse, print_module
from ptxmotion.python_child import process_pool
from ptxmotion.toolchain.contraction_counts import FloatCounts, contraction_counts
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
from ptxmotion.toolchain.tools import PtxasError, ToolFailed, ToolTimeout
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks

NAMES = ("fma", "add", "mul", "contracted")
NOT_BEGUN = "parts not begun"


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


@dataclass(frozen=True)
class Part:
    """One step of the work: a PTX file, or what is made of a program of the suites."""

    what: str  #: ``file``, ``suite`` (each of the program's kernels), ``fused`` (each that ``fuse`` builds)
    name: str  #: the path of the file, or the full name of the program


@dataclass
class Outcome:
    """The counts of a part, and the kernels that differ in it."""

    total: Counter[str] = field(default_factory=Counter[str])
    differing: list[dict[str, Any]] = field(default_factory=list["dict[str, Any]"])
    seconds: float = 0.0

    def add(self, other: Outcome) -> None:
        self.total.update(other.total)
        self.differing += other.differing


def parts(args: argparse.Namespace) -> Iterator[Part]:
    """What the options name. Fused kernels come first, because they take longest."""
    programs: list[str] = []
    if args.suites or args.fuse:
        from ptxmotion.suites.registry import benchmarks

        programs = [each.fullname for each in benchmarks()]
    if args.fuse:
        yield from (Part("fused", name) for name in programs)
    if args.suites:
        yield from (Part("suite", name) for name in programs)
    for folder in args.folders:
        yield from (Part("file", str(path)) for path in sorted(Path(folder).rglob("*.ptx")))


def modules(part: Part) -> Iterator[tuple[str, str]]:
    """Name and text of each module of a file or of a program of the suites."""
    if part.what == "file":
        yield part.name, Path(part.name).read_text(encoding="utf-8", errors="surrogateescape")
        return
    from ptxmotion.suites.registry import find
    from ptxmotion.suites.runner import compiler, ptx_of

    benchmark = find(part.name)
    for name, text in ptx_of(benchmark, compiler()).items():
        yield f"{benchmark.name}.{name}", text


def outcome(part: Part, args: argparse.Namespace, until: float) -> Outcome:
    """Compare a part, unless the time `until` (of `time.monotonic`) is over."""
    found, begun = Outcome(), time.monotonic()
    if begun > until:
        found.total[NOT_BEGUN] += 1
        return found
    if part.what == "fused":
        found.differing += compare_fused(part.name, args, found.total)
    else:
        compare_modules(part, args, found)
    found.seconds = time.monotonic() - begun
    return found


def compare_modules(part: Part, args: argparse.Namespace, found: Outcome) -> None:
    """Add to ``found`` what the modules of a part give."""
    for name, text in modules(part):
        found.total["modules"] += 1
        try:
            found.differing += compare(name, text, args, found.total)
        except (PtxasError, ToolFailed, ToolTimeout, PtxError) as error:
            found.total["refused"] += 1
            print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)


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
            total["of them by copies"] += (old.add, old.mul) == (new.add, new.mul)
            found.append({"module": name, "kernel": kernel, "before": asdict(old), "after": asdict(new)})
    return found


def compare_fused(program: str, args: argparse.Namespace, total: Counter[str]) -> list[dict[str, Any]]:
    """The kernels that ``fuse`` makes of a program and that have other counts than their parts together."""
    from ptxmotion.programs.fusing import FuseRequest, fuse

    found: list[dict[str, Any]] = []
    result = fuse(FuseRequest(program, benefit="none"))
    for pair in result.fused.fused.values():
        codes = [contraction_counts(code.text, args.arch)[code.entry.name] for code in pair.parts]
        before = FloatCounts(*(sum(asdict(code)[key] for code in codes) for key in NAMES))
        after = contraction_counts(optimized(pair.code.text, args, total), args.arch)
        total["fused kernels"] += 1
        found += note(program, {pair.code.entry.name: before}, after, total)
    return found


def rows_of(path: Path | None) -> dict[Part, Outcome]:
    """The parts that a file of ``--rows`` has. A last line that was cut off is removed from it."""
    rows: dict[Part, Outcome] = {}
    if path is None or not path.exists():
        return rows
    lines, whole, _ = path.read_text(encoding="utf-8").rpartition("\n")
    path.write_text(lines + whole, encoding="utf-8")
    for row in map(json.loads, lines.splitlines()):
        rows[Part(**row["part"])] = Outcome(Counter(row["total"]), row["differing"], row["seconds"])
    return rows


def results(args: argparse.Namespace) -> Iterator[Outcome]:
    """The outcome of each part, as soon as it is known. Those that the file of ``--rows`` has come first."""
    index, number = map(int, args.shard.split("/"))
    chosen = [part for part in parts(args) if re.search(args.only, part.name)][index::number]
    known = rows_of(args.rows)
    yield from (known[part] for part in chosen if part in known)
    until = time.monotonic() + args.seconds
    with process_pool(args.jobs) as pool:
        begun = {pool.submit(outcome, part, args, until): part for part in chosen if part not in known}
        for each in as_completed(begun):
            found, part = each.result(), begun[each]
            if args.rows is not None and not found.total[NOT_BEGUN]:
                row = {"part": asdict(part), **vars(found)}
                with args.rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            yield found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="DIR")
    parser.add_argument("--suites", action="store_true")
    parser.add_argument("--fuse", action="store_true")
    parser.add_argument("--passes", default="O3")
    parser.add_argument("--arch", default=None, help="default: the module's target")
    parser.add_argument("--static", action="store_true", help="do not compare machine code")
    parser.add_argument("--kernels", action="store_true", help="list the kernels that differ")
    parser.add_argument("--only", type=re.compile, default="", metavar="REGEX", help="only parts whose name matches")
    parser.add_argument("--shard", default="0/1", help="the part I of N of the files and programs")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no file or program after so many")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", type=Path, metavar="FILE", help="a line for each part; parts in it are not repeated")
    args = parser.parse_args()
    found = Outcome()
    for each in results(args):
        found.add(each)
        if args.kernels:
            for kernel in each.differing:
                print(json.dumps(kernel), flush=True)
    total, differing = found.total, found.differing
    for key, value in total.items():
        print(f"{key:32} {value:10}")
    if args.json is not None:
        args.json.write_text(json.dumps({"total": total, "differing": differing}, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
