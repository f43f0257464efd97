"""Are mutants of kernels optimized correctly?

    python docs/experiments/optimized_mutants.py FOLDER... [--passes O3] [--mutants 24] [--shard 0/1] [--jobs 1]
        [--rounds 1] [--first-round 0] [--seconds inf] [--inputs 3] [--budget 0.5] [--keep FOLDER] [--digests FILE]

The mutants are those of `mutation_score`: kernels in which one instruction was changed. So they do what no compiler
writes, such as an access at a wrong place or a guard that is always true. ``--mutants`` mutants of a kernel become one
module, whose kernels are named ``KERNEL__0``, ``KERNEL__1`` and so on. Counted are

- the mutants that our verifier and ptxas accept;
- of these, whether ptxas accepts what the passes make of them;
- whether both compute the same on the emulator, in the way of `verify`, or why that is not known.

Every fault is printed; ``--keep`` writes its two modules to a folder. The last line is the sum, as JSON; *different
texts* are the accepted mutants without equal ones. ``--digests`` writes 8 bytes for each of these to a file, to count
those of several runs. Other rounds (``--first-round``) have other mutants.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from mutation_score import LARGEST, mutants
from ptxmotion.harness.verification.equivalence import DIFFERENT, compare, verdict
from ptxmotion.ptx import Kernel, Module, PtxError, RawDirective, Variable, parse, print_module
from ptxmotion.ptx.printer import print_kernel
from ptxmotion.ptx.verify import problems
from ptxmotion.python_child import process_pool
from ptxmotion.toolchain.tools import PtxasError, ToolTimeout, assemble
from ptxmotion.transforms.pipeline import run_passes

#: Kernels with more instructions are left out: one of them takes as long as many small ones.
MOST_INSTRUCTIONS = 400
#: How often mutants are removed from a module that ptxas refuses, before the module is left out.
TRIALS = 6
_LINE = re.compile(r"line (\d+); (?:error|fatal)")


@dataclass
class Tally:
    """Numbers by what became of mutants, and the number of faults."""

    counts: Counter[str] = field(default_factory=Counter[str])
    faults: int = 0
    accepted: set[bytes] = field(default_factory=set[bytes])  #: digests of the accepted mutants

    def add(self, other: Tally) -> None:
        self.counts += other.counts
        self.faults += other.faults
        self.accepted |= other.accepted

    def line(self, seconds: float) -> str:
        sums = {**dict(sorted(self.counts.items())), "different texts": len(self.accepted), "faults": self.faults}
        return json.dumps({**sums, "seconds": round(seconds)})


def named_in(kernel: Kernel) -> set[str]:
    return {symbol.name for instr in kernel.instructions() for symbol in instr.symbols()}


def own_module(module: Module, name: str) -> Module:
    """The module with one entry, without the variables that nothing in it names."""
    kept = [item for item in module.items if not (isinstance(item, Kernel) and item.is_entry and item.name != name)]
    used = {each for item in kept if isinstance(item, Kernel) for each in named_in(item)}
    text = "\n".join(item.initializer or "" for item in kept if isinstance(item, Variable))
    used |= set(re.findall(r"[\w$%]+", text))
    return replace(module, items=[item for item in kept if not is_unused(item, used)])


def is_unused(item: object, used: set[str]) -> bool:
    """Whether the item is a variable that nothing names, or debug information, which names what was removed."""
    if isinstance(item, RawDirective):
        return item.text.startswith(".section")
    return isinstance(item, Variable) and item.count is None and item.name not in used


def mutant_texts(text: str, name: str, count: int, rng: random.Random) -> tuple[str, list[str]]:
    """The text of the module without the entry, and the texts of mutants of the entry that the verifier accepts. The
    name of the entry is ``NAME`` in them."""
    module = parse(text)
    kernel = module.kernel(name)
    rest = print_module(replace(module, items=[item for item in module.items if item is not kernel]))
    found: list[str] = []
    for mutant in mutants(kernel, count, rng):
        mutant.apply()
        if not problems(module):
            head, entry, body = print_kernel(kernel).partition(f".entry {name}")
            found.append(f"{head}{entry.replace(name, 'NAME')}{body}")
        mutant.undo()
    return rest, list(dict.fromkeys(found))


def digest(rest: str, text: str) -> bytes:
    """8 bytes that stand for a mutant."""
    return hashlib.blake2b(f"{rest}\0{text}".encode("utf-8", "surrogateescape"), digest_size=8).digest()


def joined(rest: str, texts: list[str]) -> str:
    return rest + "".join(f"{text.replace('.entry NAME', f'.entry mutant_{n}', 1)}\n" for n, text in enumerate(texts))


def accepted(rest: str, texts: list[str]) -> list[str]:
    """The mutants that ptxas accepts."""
    for _ in range(TRIALS):
        try:
            assemble(joined(rest, texts), opt_level=1, timeout=30)
        except PtxasError as error:
            starts = [joined(rest, texts[:n]).count("\n") for n in range(len(texts) + 1)]
            lines = {int(line) - 1 for line in _LINE.findall(error.log)}
            sound = [
                text for n, text in enumerate(texts) if not any(starts[n] <= line < starts[n + 1] for line in lines)
            ]
            if len(sound) == len(texts):
                return []
            texts = sound
            continue
        except ToolTimeout:
            return []
        return texts
    return []


def check(rest: str, texts: list[str], options: argparse.Namespace, what: str, tally: Tally) -> None:
    """Optimize the mutants, and compare."""
    text = joined(rest, texts)
    before, after = parse(text), parse(text)
    run_passes(after, options.passes)
    output = print_module(after)
    tally.counts["accepted"] += len(texts)
    tally.accepted.update(digest(rest, each) for each in texts)
    after = parse(output)
    try:
        assemble(output, opt_level=1, timeout=60)
        tally.counts["output accepted"] += len(texts)
    except (PtxasError, ToolTimeout) as error:
        fault(f"ptxas: {error}", text, output, options, what, tally)
        return
    own = {entry.name: print_kernel(entry) for entry in before.entries}
    changed = [entry.name for entry in after.entries if print_kernel(entry) != own[entry.name]]
    tally.counts["not changed"] += len(own) - len(changed)
    found = list(compare(before, after, kernels=changed, seeds=range(options.inputs), seconds=options.budget))
    for name in changed:
        result = verdict(name, [each for each in found if each.kernel == name])
        tally.counts[result.outcome] += 1
        if result.outcome == DIFFERENT:
            seen = next(each for each in result.comparisons if each.outcome == DIFFERENT)
            fault(f"{name}: {seen.name}: {seen.details[:2]}", text, output, options, what, tally)


def fault(message: str, text: str, output: str, options: argparse.Namespace, what: str, tally: Tally) -> None:
    tally.faults += 1
    print(f"FAULT {what}: {message[:600]}", flush=True)
    if options.keep is not None:
        for part, content in (("before", text), ("after", output)):
            path = options.keep / f"{digest('', text).hex()}.{part}.ptx"
            path.write_text(content, encoding="utf-8", errors="surrogateescape")


def kernels_of(options: argparse.Namespace) -> Iterator[tuple[Path, Module, str]]:
    """The kernels of one shard of the files, in an order that is by chance and always the same."""
    shard, shards = map(int, options.shard.split("/"))
    files = [path for folder in options.folders for path in folder.rglob("*.ptx") if path.stat().st_size <= LARGEST]
    keyed = sorted((hashlib.sha256(path.name.encode("utf-8", "surrogateescape")).hexdigest(), path) for path in files)
    for number, (_, path) in enumerate(keyed):
        if number % shards != shard:
            continue
        try:
            module = parse(path.read_text(encoding="utf-8-sig", errors="surrogateescape"))
        except PtxError:
            continue
        if problems(module):
            continue
        for entry in module.entries:
            if 3 < sum(1 for _ in entry.instructions()) <= MOST_INSTRUCTIONS:
                yield path, module, entry.name


def tally_of(options: argparse.Namespace) -> Tally:
    """The numbers for one shard."""
    begin, tally, last = time.monotonic(), Tally(), 0.0
    kernels = list(kernels_of(options))
    taken: set[bytes] = set()  # digests of the mutants of earlier rounds
    for round_number in range(options.first_round, options.first_round + options.rounds):
        for path, module, name in kernels:
            seconds = time.monotonic() - begin
            if seconds > options.seconds:
                return tally
            rng = random.Random(f"{path.name}:{name}:{round_number}")
            try:
                rest, texts = mutant_texts(print_module(own_module(module, name)), name, options.mutants, rng)
            except PtxError:  # it needs another entry, which it launches
                tally.counts["kernels left out"] += 1
                continue
            texts = [each for each in texts if digest(rest, each) not in taken]
            taken |= {digest(rest, each) for each in texts}
            tally.counts["kernels"] += bool(texts) and round_number == options.first_round
            tally.counts["read"] += len(texts)
            texts = accepted(rest, texts) if texts else []
            if texts:
                check(rest, texts, options, f"{path.name} {name}", tally)
            if seconds - last > 20:
                last = seconds
                print(options.shard, tally.line(seconds), flush=True)
    return tally


def parts(options: argparse.Namespace) -> list[argparse.Namespace]:
    """The options of each process: the shard, cut into ``--jobs`` parts."""
    shard, shards = map(int, options.shard.split("/"))
    texts = [f"{shard + shards * job}/{shards * options.jobs}" for job in range(options.jobs)]
    return [argparse.Namespace(**{**vars(options), "shard": text}) for text in texts]


def main() -> None:
    """Print faults and counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--passes", default="O3")
    parser.add_argument("--mutants", type=int, default=24, help="of each kernel and round")
    parser.add_argument("--shard", default="0/1", help="the part of the files: number/of")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--rounds", type=int, default=1, help="how often all kernels are taken, with other mutants")
    parser.add_argument("--first-round", type=int, default=0, help="the number of the first round")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no kernel after so many")
    parser.add_argument("--inputs", type=int, default=3)
    parser.add_argument("--budget", type=float, default=0.5, help="seconds for the inputs of one kernel")
    parser.add_argument("--keep", type=Path, help="the folder for modules with faults")
    parser.add_argument("--digests", type=Path, help="the file for 8 bytes for each accepted mutant")
    options = parser.parse_args()
    begin, tally = time.monotonic(), Tally()
    with process_pool(options.jobs) as pool:
        for each in pool.map(tally_of, parts(options)):
            tally.add(each)
    if options.digests is not None:
        options.digests.write_bytes(b"".join(sorted(tally.accepted)))
    print(tally.line(time.monotonic() - begin))


if __name__ == "__main__":
    main()
