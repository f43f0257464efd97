"""What scalar replacement saves in the programs of the suites, counted on the emulator: loads, sectors, instructions.

    python docs/experiments/scalar_replacement.py [NAME …] [--variants srqp,ssrqp,O3,O3@restrict] [--json FILE]
    python docs/experiments/scalar_replacement.py --options        each option beyond the thesis by itself

The kernels of each program as nvcc compiles them by default are the base. A variant is a pass, a list of passes joined
by +, or a level, with @restrict under that promise, without a gate. Its outputs have to be those of the base, bit for
bit. For each program and variant: loads that a thread executes (``ld`` from global, generic, shared and local memory,
also if its predicate is false), 32-byte sectors of global memory that loads touch, and instructions that warps issue;
how many loads the code had and how many were removed; and the reasons for those that were not. With ``--options`` a
cell has only what changed, stores included: it is empty for code that did not change, and `=` for code that changed and
does everything as often. No time is measured: the figures are the same on every machine with that nvcc.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptxmotion.analysis.memory.alias import Promise
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.ptx import parse, print_module
from ptxmotion.suites.registry import Benchmark, benchmarks, find
from ptxmotion.suites.runner import compiler, ptx_of, run
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks

VARIANTS = "srqp,esrqp,ssrqp_s,ssrqp,O3,O3@restrict"
#: The options that the thesis does not have, each alone. The first entry is scalar replacement without options.
OPTIONS = {
    "none": "ssrqp:forwarding=false",
    "forwarding": "ssrqp",
    "guarded": "ssrqp:forwarding=false:guarded=true",
    "restrict": "ssrqp:forwarding=false@restrict",
    "deadstores": "deadstores",
    "deadstores, restrict": "deadstores@restrict",
    "readonly": "readonly",
    "readonly, restrict": "readonly@restrict",
    "vectormerge": "vectormerge",
    "vectormerge, aligned": "vectormerge:aligned=256",
}
CLEANUP = ",copyprop,dce,emptyblocks"
_LOADS = ("ld.global", "ld.generic", "ld.shared", "ld.local")


@dataclass
class Figures:
    """The counts of a run of one version of a program, and of the rewrites that made this version."""

    threads: int = 0
    loads: int = 0
    stores: int = 0
    sectors: int = 0
    instructions: int = 0
    removed: int = 0
    inserted: int = 0
    reasons: dict[str, int] = field(default_factory=dict[str, int])
    is_changed: bool = True

    @property
    def loads_per_thread(self) -> float:
        return self.loads / self.threads if self.threads else 0.0


def transformed(ptx: str, passes: str, figures: Figures) -> str:
    """The module after ``passes``; what they did is added to ``figures``."""
    module = parse(ptx)
    remarks = Remarks(module)
    listed, _, promise = passes.partition("@")
    promised = Promise.parse(promise) if promise else None
    run_passes(module, listed, remarks, promise=promised)
    reasons: Counter[str] = Counter(figures.reasons)
    for (_, _, what), number in remarks.counts.items():
        if what == "loads removed":
            figures.removed += number
        elif what in ("loads inserted", "loads hoisted"):
            figures.inserted += number
    reasons.update(r.reason for r in remarks.items if r.name == "NotReplaced")
    figures.reasons = dict(reasons.most_common())
    return print_module(module)


def measured(benchmark: Benchmark, ptx: dict[str, str], size: str, figures: Figures) -> dict[str, bytes]:
    """Run the program, fill in ``figures`` and return its outputs."""
    backend = EmulatorBackend()
    outcome = run(benchmark, backend, ptx, size)
    if outcome.differences:
        raise SystemExit(f"{benchmark.fullname}: {outcome.differences[0]}")
    counts = backend.counts
    entries = [found for kernel, found in counts.executions.items() if kernel.is_entry]
    figures.threads = sum(found.blocks.get(0, [0, 0])[1] for found in entries)
    figures.loads = sum(
        threads for name, (_, threads) in counts.by_class.items() if name.startswith(_LOADS) or name == "ld"
    )
    figures.stores = sum(
        threads for name, (_, threads) in counts.by_class.items() if name.startswith("st.") or name == "st"
    )
    figures.sectors = counts.global_load_sectors
    figures.instructions = counts.warp_instructions
    return {name: value.tobytes() for name, value in outcome.outputs.items()}


def passes_of(variant: str) -> str:
    """The passes of a variant of the command line."""
    listed, at, promise = variant.partition("@")
    return (listed if listed.startswith("O") else listed.replace("+", ",") + CLEANUP) + at + promise


def measure(benchmark: Benchmark, variants: Iterable[str], size: str) -> dict[str, Figures]:
    """The figures of the base and of each variant; equal code is run once."""
    ptx = ptx_of(benchmark, compiler())
    plain = {name: print_module(parse(text)) for name, text in ptx.items()}
    found = {"base": Figures()}
    outputs = measured(benchmark, ptx, size, found["base"])
    ran: list[tuple[dict[str, str], Figures]] = [(plain, found["base"])]
    for variant in variants:
        figures = found[variant] = Figures()
        made = {name: transformed(text, passes_of(variant), figures) for name, text in ptx.items()}
        known = next((other for text, other in ran if text == made), None)
        if known is not None:
            for name in ("threads", "loads", "stores", "sectors", "instructions"):
                setattr(figures, name, getattr(known, name))
        elif measured(benchmark, made, size, figures) != outputs:
            raise SystemExit(f"{benchmark.fullname}: {variant} computes something else")
        figures.is_changed = made != plain
        ran.append((made, figures))
    return found


def row_of_options(name: str, found: dict[str, Figures]) -> str:
    """One line of the table of options: what each of them changes, in percent."""
    base = found["base"]
    cells = [name]
    for variant, figures in found.items():
        if variant == "base":
            continue
        changes = {
            "loads": _change(figures.loads, base.loads),
            "stores": _change(figures.stores, base.stores),
            "sectors": _change(figures.sectors, base.sectors),
            "instr.": _change(figures.instructions, base.instructions),
        }
        what = ", ".join(f"{what} {change}" for what, change in changes.items() if change not in ("0", "+0.0", "-0.0"))
        cells.append(what or ("=" if figures.is_changed else ""))
    return "| " + " | ".join(cells) + " |"


def row(name: str, found: dict[str, Figures]) -> str:
    """One line of the table: the base, then loads, sectors and instructions of each variant in percent of change."""
    base = found["base"]
    cells = [name, f"{base.loads_per_thread:.1f}", f"{base.sectors}", f"{base.instructions}"]
    for variant, figures in found.items():
        if variant == "base":
            continue
        if (figures.loads, figures.sectors, figures.instructions) == (base.loads, base.sectors, base.instructions):
            cells.append("=" if not figures.removed else f"= ({figures.removed})")
            continue
        parts = (
            _change(figures.loads, base.loads),
            _change(figures.sectors, base.sectors),
            _change(figures.instructions, base.instructions),
        )
        cells.append(" / ".join(parts))
    return "| " + " | ".join(cells) + " |"


def _change(new: int, old: int) -> str:
    return "0" if new == old or not old else f"{100 * (new - old) / old:+.1f}"


def main() -> int:
    """Measure, print the table on stdout, and the reasons of the last variant on stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs (default: all of the suites)")
    parser.add_argument("--variants", default=VARIANTS, metavar="LIST", help=f"default: {VARIANTS}")
    parser.add_argument("--options", action="store_true", help="each option beyond the thesis by itself")
    parser.add_argument("--size", default="tiny", help="default: tiny")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything here as well")
    arguments = parser.parse_args()
    variants: list[str] = list(OPTIONS.values()) if arguments.options else arguments.variants.split(",")
    chosen = [find(name) for name in arguments.names] or list(benchmarks())
    document: dict[str, Any] = {}
    heads = [
        "program",
        *(OPTIONS if arguments.options else ("loads per thread", "sectors", "warp instructions", *variants)),
    ]
    print("| " + " | ".join(heads) + " |")
    print("| --- |" + " ---: |" * (len(heads) - 1))
    for benchmark in chosen:
        found = measure(benchmark, variants, arguments.size)
        document[benchmark.fullname] = {name: vars(figures) for name, figures in found.items()}
        print((row_of_options if arguments.options else row)(benchmark.fullname, found), flush=True)
        reasons = ", ".join(f"{reason} {number}" for reason, number in found[variants[-1]].reasons.items())
        print(f"{benchmark.fullname}: {variants[-1]}: stayed: {reasons or 'none'}", file=sys.stderr, flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
