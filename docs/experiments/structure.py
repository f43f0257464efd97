"""The structure of kernels, side by side: of PTX files, or of programs of the suites.

    python docs/experiments/structure.py OURS.ptx THEIRS.ptx      kernel by kernel
    python docs/experiments/structure.py rodinia/nw THEIRS.ptx    a program of the suites, compiled by nvcc
    python docs/experiments/structure.py --table FOLDER

The last form prints Markdown: each program SUITE/NAME beside the file SUITE_NAME.ptx, if the folder has it.

Counted in the code: loops; conditional branches, and those of them that may diverge by the analysis of this project,
with an unknown shape of the block; barriers; loads and stores of global and of shared memory. A vector access is one;
an atomic is a load and a store. A branch that a compiler turned into a selection or a predicate does not count.
Functions that a kernel calls are left out.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from ptxmotion.analysis.manager import Facts
from ptxmotion.ptx import Kernel, Module, flatten_scopes, parse

HEADINGS = (
    *("loops", "branches", "divergent", "barriers"),
    *("global loads", "global stores", "shared loads", "shared stores"),
)


@dataclass
class Structure:
    """The counts of a kernel, or of several."""

    loops: int = 0
    branches: int = 0
    divergent: int = 0
    barriers: int = 0
    global_loads: int = 0
    global_stores: int = 0
    shared_loads: int = 0
    shared_stores: int = 0

    def __add__(self, other: Structure) -> Structure:
        return Structure(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def structure_of(kernel: Kernel, module: Module) -> Structure:
    """The counts of one kernel."""
    flatten_scopes(kernel)
    facts = Facts(kernel, module)
    conditional = [number for number, after in enumerate(facts.cfg.succ) if len(after) > 1]
    found = Structure(loops=len(facts.loops.loops), branches=len(conditional))
    found.divergent = sum(facts.branch_divergence.is_divergent(number) for number in conditional)
    for instr in kernel.instructions():
        is_atomic = instr.form.name in ("atom", "red")
        is_load, is_store = instr.form.name == "ld" or is_atomic, instr.form.name == "st" or is_atomic
        found.barriers += instr.form.name in ("bar", "barrier")
        found.global_loads += is_load and instr.form.space == "global"
        found.global_stores += is_store and instr.form.space == "global"
        found.shared_loads += is_load and instr.form.space.startswith("shared")
        found.shared_stores += is_store and instr.form.space.startswith("shared")
    return found


def structures(module: Module) -> list[tuple[str, Structure]]:
    """Each kernel's name, as it is in the source, and structure."""
    return [(_plain(each.name), structure_of(each, module)) for each in module.kernels if each.is_entry]


def _plain(name: str) -> str:
    """A mangled name without its types.

    >>> _plain("_Z6KernelP4NodePiib"), _plain("needle_1")
    ('Kernel', 'needle_1')
    """
    found = re.match(r"_Z(\d+)(.*)", name)
    return found[2][: int(found[1])] if found else name


def read(what: str) -> list[tuple[str, Structure]]:
    """The structure of the kernels of a PTX file, or of a program SUITE/NAME.

    Raises `OSError`, `PtxError`, `DslError`.
    """
    if what.endswith(".ptx"):
        return structures(parse(Path(what).read_text(encoding="utf-8", errors="surrogateescape"), what))
    from ptxmotion.suites.registry import find
    from ptxmotion.suites.runner import compiler, ptx_of

    found: dict[str, Structure] = {}
    for kernel, text in ptx_of(find(what), compiler()).items():
        found |= {name: each for name, each in structures(parse(text)) if name == kernel}
    return list(found.items())


def table(programs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Markdown: a row for each program and side, with the counts summed over its kernels."""
    yield "| program | | kernels | " + " | ".join(HEADINGS) + " |"
    yield "| --- " * 3 + "| ---: " * len(HEADINGS) + "|"
    for name, theirs in programs:
        for side, found in (("ours", read(name)), ("original", read(theirs))):
            total = sum((each for _, each in found), Structure())
            counts = " | ".join(str(count) for count in astuple(total))
            yield f"| {name if side == 'ours' else ''} | {side} | {len(found)} | {counts} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sides", nargs="*", metavar="PTX|PROGRAM", help="two to compare")
    parser.add_argument("--table", type=Path, metavar="FOLDER", help="of PTX files named SUITE_NAME.ptx")
    arguments = parser.parse_args()
    if arguments.table is not None:
        files = sorted(arguments.table.glob("*_*.ptx"))
        print("\n".join(table([(file.stem.replace("_", "/", 1), str(file)) for file in files])))
        return 0
    if not arguments.sides:
        parser.error("name PTX files or programs, or give --table")
    width = max(len(name) for side in arguments.sides for name, _ in read(side))
    for side in arguments.sides:
        print(f"{side}\n{'':{width}}  " + "  ".join(HEADINGS))
        for name, each in read(side):
            counts = (f"{count:{len(head)}}" for count, head in zip(astuple(each), HEADINGS, strict=True))
            print(f"{name:{width}}  " + "  ".join(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
