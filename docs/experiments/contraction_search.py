"""Search for random kernels of which ptxas contracts other sums after the passes, many in each run of ptxas.

    python docs/experiments/contraction_search.py [--seconds 60] [--seed 0] [--arch sm_80] [--first LISTS]
        [--second LISTS] [--batch 600] [--keep FOLDER]

`tests/property/test_contraction.py` compares machine code for each kernel, so most of its time is ptxas. This script
runs two lists of passes over each kernel of `contraction_kernel`, one of ``--first`` and then one of ``--second``,
separated by blanks. The first one believes that the machine code stays the same, so it also changes kernels with
*open* products. What it makes of them need not be right; it is a new kernel, which the generator does not make. The
second one compares no machine code, so whatever it changes must be right. Kernels that neither list changes are left
out. ptxas assembles ``--batch`` texts in one module, in which:

- each sum whose products the analysis calls *rounded* or *contracted* must be so, before and after the first list;
- each sum must be contracted after the second list as it was before it.

The architecture must have ``redux``, so it is ``sm_80`` or newer. Each fault is printed with the seed of its kernel;
``--keep`` writes the texts to a folder. The last line has the numbers of kernels, of those changed by each list, and
of faults. With a fault, the exit code is 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ptxmotion.ptx import Module, parse, print_module
from ptxmotion.toolchain.tools import assemble, disassemble
from ptxmotion.transforms.pipeline import run_passes

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "property"))
from random_contraction import contraction_kernel, sums_in
from test_contraction import LISTS, changed_sums, wrong_kinds

#: By kernel and constant: the opcodes of a sum.
Sums = dict[tuple[str, str], set[str]]


class Believer:
    """A reader of machine code that finds the same in every kernel."""

    def float_code(self, module: Module) -> dict[str, list[frozenset[str]]]:
        return {each.name: [frozenset(["add"])] * len(list(each.instructions())) for each in module.entries}


@dataclass
class Case:
    """A kernel: the texts before the passes, after the first list and after the second, without equal ones.

    ``is_last_changed``: whether the last text is the work of the second list.
    """

    seed: int
    passes: tuple[str, str]
    texts: list[str]
    is_last_changed: bool


def case(seed: int, head: str, rng: random.Random, args: argparse.Namespace) -> Case | None:
    """The kernel of ``seed`` after two lists of passes; `None` if they change nothing."""
    first, second = rng.choice(args.first.split()), rng.choice(args.second.split())
    texts = [head + contraction_kernel(seed, "k", 0)]
    for passes, reader in ((first, Believer()), (second, None)):
        module = parse(texts[-1])
        is_changed = run_passes(module, passes, float_code=reader)
        if is_changed:
            texts.append(print_module(module))
    return Case(seed, (first, second), texts, is_changed) if len(texts) > 1 else None


def sums_of(cases: list[Case], head: str) -> Iterator[list[Sums]]:
    """For each case the sums of each of its texts, from one run of ptxas."""
    entries = [
        text[text.index(".visible .entry") :].replace(" k(", f" k{number}_{place}(", 1)
        for number, each in enumerate(cases)
        for place, text in enumerate(each.texts)
    ]
    found: dict[str, Sums] = {}
    for (name, constant), opcodes in sums_in(disassemble(assemble(head + "\n".join(entries)).cubin)).items():
        found.setdefault(name, {})["k", constant] = opcodes
    for number, each in enumerate(cases):
        yield [found.get(f"k{number}_{place}", {}) for place in range(len(each.texts))]


def faults(each: Case, sums: list[Sums]) -> Iterator[str]:
    """What is wrong with a case, in words."""
    claimed = len(each.texts) - each.is_last_changed
    for place in range(claimed):
        for _, constant, opcode in wrong_kinds(each.texts[place], sums[place]):
            yield f"text {place}: the sum with {constant} is not {opcode}"
    if each.is_last_changed:
        *_, (before, after) = pairwise(sums)
        for _, constant in changed_sums(after, before):
            yield f"the sum with {constant} became {after['k', constant]} from {before['k', constant]}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--arch", default="sm_80")
    parser.add_argument("--first", default=" ".join(LISTS), help="default: %(default)s")
    parser.add_argument("--second", default=" ".join(LISTS), help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=600)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    head = f".version 9.0\n.target {args.arch}\n.address_size 64\n"
    rng, until, total = random.Random(args.seed), time.monotonic() + args.seconds, Counter[str]()
    while time.monotonic() < until:
        cases: list[Case] = []
        while sum(len(each.texts) for each in cases) < args.batch and time.monotonic() < until:
            total["kernels"] += 1
            found = case(rng.randrange(1 << 42), head, rng, args)
            if found is not None:
                cases.append(found)
        for each, sums in zip(cases, sums_of(cases, head) if cases else (), strict=True):
            total["changed by the first list"] += len(each.texts) > 1 + each.is_last_changed
            total["changed by the second list"] += each.is_last_changed
            for fault in faults(each, sums):
                total["faults"] += 1
                print(f"seed {each.seed}, {' then '.join(each.passes)}: {fault}", flush=True)
                if args.keep is not None:
                    args.keep.mkdir(parents=True, exist_ok=True)
                    for place, text in enumerate(each.texts):
                        (args.keep / f"{each.seed}_{place}.ptx").write_text(text)
    print(", ".join(f"{name}: {total[name]}" for name in (*sorted(total.keys() - {"faults"}), "faults")))
    return 1 if total["faults"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
