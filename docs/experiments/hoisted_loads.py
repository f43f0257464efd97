"""Which of the loads that scalar replacement could replace nvcc has already replaced.

    python docs/experiments/hoisted_loads.py [NAME …] [--size tiny] [--variants srqp,ssrqp,…] [--json FILE]

The kernels of each program are compiled three times: without optimization (``-Xcicc -O0``: calls remain, and nothing is
replaced across a call), by nvcc's ``-O3`` without the passes that move or remove loads (`WITHOUT`: loads are where the
source has them), and by ``-O3``. Each runs on the emulator unchanged and after each variant (as in `passes.py`, without
a gate), and has to compute the same as the code that it was made from, bit for bit. A cell is the number of loads that
a thread executes (``ld`` from global, generic, shared and local memory), with the number of loads removed from the code
in parentheses; ``faults`` if the emulator stopped it. ``paper=true`` with ``readable=true`` is the method of the thesis
without the proof that a load cannot fault where it is inserted. No time is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ptxmotion.emulator import EmulatorError
from ptxmotion.suites.registry import Benchmark, benchmarks, find
from ptxmotion.suites.runner import compiler, ptx_of
from scalar_replacement import Figures, measured, passes_of, transformed

VARIANTS = "srqp,ssrqp,ssrqp@restrict"

#: Passes of nvcc 13's ``-O3`` that take loads out of loops, merge them, or unroll loops so that they can be merged.
WITHOUT = ("disable-LICMPass", "disable-GVNPass", "enable-load-pre=0", "disable-LoopUnrollPass")
CODES = {
    "`-O0`": ("-Xcicc", "-O0"),
    "less": tuple(word for each in WITHOUT for word in ("-Xcicc", f"--Xopt=-{each}")),
    "`-O3`": (),
}


def measure(benchmark: Benchmark, flags: Sequence[str], variants: Sequence[str], size: str) -> dict[str, Figures]:
    """The figures of nvcc's code with ``flags``, and of each variant of it."""
    ptx = ptx_of(benchmark, compiler(flags=flags))
    found = {"base": Figures()}
    outputs = measured(benchmark, ptx, size, found["base"])
    for variant in variants:
        figures = found[variant] = Figures()
        made = {name: transformed(text, passes_of(variant), figures) for name, text in ptx.items()}
        if made == ptx:
            base = found["base"]
            figures.threads, figures.loads = base.threads, base.loads
            continue
        try:
            if measured(benchmark, made, size, figures) != outputs:
                raise SystemExit(f"{benchmark.fullname}: {variant} computes something else")
        except EmulatorError:
            if "readable=true" not in variant:
                raise
            figures.threads = 0
    return found


def _cells(found: dict[str, Figures]) -> list[str]:
    base, *others = found.values()
    cells = [f"{base.loads_per_thread:.1f}"]
    for each in others:
        removed = f" ({each.removed})" if each.removed else ""
        loads = "faults" if not each.threads else "=" if each.loads == base.loads else f"{each.loads_per_thread:.1f}"
        cells.append(loads + removed)
    return cells


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs (default: all of the suites)")
    parser.add_argument("--variants", default=VARIANTS, metavar="LIST", help=f"default: {VARIANTS}")
    parser.add_argument("--size", default="tiny", help="default: tiny")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything here as well")
    arguments = parser.parse_args()
    variants: list[str] = arguments.variants.split(",")
    chosen = [find(name) for name in arguments.names] or list(benchmarks())
    document: dict[str, Any] = {}
    heads = [f"{of} {variant}" for of in CODES for variant in ("", *variants)]
    print("| program | " + " | ".join(head.strip() for head in heads) + " |")
    print("| --- |" + " ---: |" * len(heads))
    for benchmark in chosen:
        both = [measure(benchmark, flags, variants, arguments.size) for flags in CODES.values()]
        cells = [cell for found in both for cell in _cells(found)]
        print("| " + " | ".join([benchmark.fullname, *cells]) + " |", flush=True)
        document[benchmark.fullname] = [{name: vars(each) for name, each in found.items()} for found in both]
        if arguments.json:
            arguments.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
