"""How many wrong kernels does `verify A B` notice?

    python docs/experiments/mutation_score.py DIR [--part fit|report|all] [--files 40] [--mutants 8] [--budget 10]
        [--long 40]

A mutant is a kernel in which one instruction was changed: a store is deleted; a comparison, a constant, an address, a
sign, the order of two operands or a special register is changed; a guard is dropped or negated. Each mutant is compared
with its original in the way of `verify`. If `verify` does not notice the mutant, the two are compared again, with many
more inputs and more time. The score is the number of mutants that `verify` notices, divided by the number of mutants
that one of the two comparisons shows to be different. A mutant that neither notices may compute the same results.

A hash of its path decides to which half a file belongs. So inputs can be chosen by one half (``fit``) and tested with
the other (``report``). Kernels that the emulator does not execute, and kernels that are inconclusive when they are
compared with themselves, are counted but not used.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ptxmotion.harness.verification.equivalence import DIFFERENT, SAME, Verdict, compare, verdict
from ptxmotion.ptx import Block, Guard, Imm, Instr, Kernel, Mem, Module, PtxError, decode, parse
from ptxmotion.ptx.operands import Operand, Special
from ptxmotion.ptx.types import literal_value
from ptxmotion.ptx.verify import problems

__all__ = ["KINDS", "Mutant", "Score", "mutants"]

#: Files of more bytes are left out: reading them would take most of the time.
LARGEST = 400_000

_COMPARISONS = {
    "eq": "ne", "ne": "eq", "lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "lo": "ls", "ls": "lo", "hi": "hs",
    "hs": "hi", "equ": "neu", "neu": "equ", "ltu": "leu", "leu": "ltu", "gtu": "geu", "geu": "gtu",
}  # fmt: skip
_SIGNS = {"s16": "u16", "u16": "s16", "s32": "u32", "u32": "s32", "s64": "u64", "u64": "s64"}
_SIGNED = frozenset("setp set shr cvt div rem min max mul mad abs".split())
_ORDERED = frozenset("sub div rem shl shr setp set selp prmt bfi".split())
_SPECIALS = {
    "%tid.x": "%ctaid.x", "%tid.y": "%tid.x", "%tid.z": "%tid.y", "%ctaid.x": "%ctaid.y", "%ctaid.y": "%ctaid.x",
    "%ctaid.z": "%ctaid.y", "%ntid.x": "%nctaid.x", "%ntid.y": "%ntid.x", "%nctaid.x": "%ntid.x",
    "%nctaid.y": "%nctaid.x", "%ntid.z": "%ntid.y", "%laneid": "%tid.x",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one instruction: ``apply`` makes it, ``undo`` takes it back."""

    kind: str
    what: str
    apply: Callable[[], None]
    undo: Callable[[], None]


def _with_operands(kernel: Kernel, instr: Instr, kind: str, operands: Sequence[Operand]) -> Mutant:
    old, new = instr.operands, tuple(operands)
    what = f"{instr.text} -> {', '.join(operand.text for operand in new)}"
    return Mutant(kind, what, lambda: kernel.replace_operands(instr, new), lambda: kernel.replace_operands(instr, old))


def _with_form(kernel: Kernel, instr: Instr, kind: str, mnemonic: str) -> Mutant:
    old = instr.form.text
    what = f"{instr.text} -> {mnemonic}"
    return Mutant(kind, what, lambda: kernel.replace_form(instr, mnemonic), lambda: kernel.replace_form(instr, old))


def _with_instructions(kernel: Kernel, block: Block, kind: str, what: str, instrs: list[Instr]) -> Mutant:
    old = block.instrs
    return Mutant(kind, what, lambda: kernel.set_instrs(block, instrs), lambda: kernel.set_instrs(block, old))


def _with_guard(kernel: Kernel, instr: Instr, kind: str, guard: Guard | None) -> Mutant:
    old = instr.guard
    put, back = (lambda: kernel.replace_guard(instr, guard)), (lambda: kernel.replace_guard(instr, old))
    return Mutant(kind, instr.text, put, back)


def _stores(kernel: Kernel) -> Iterator[Mutant]:
    for block in kernel.blocks:
        for instr in block.instrs:
            is_store = instr.form.op.base in ("st", "red") and instr.form.space in ("global", "generic", "shared")
            if is_store and not instr.is_directive:
                kept = [each for each in block.instrs if each is not instr]
                yield _with_instructions(kernel, block, "store", f"without {instr.text}", kept)


def _comparisons(kernel: Kernel) -> Iterator[Mutant]:
    for instr in kernel.instructions():
        if instr.form.op.base in ("setp", "set"):
            head, *words = instr.form.text.split(".")
            for place, word in enumerate(words):
                if word in _COMPARISONS:
                    changed = [*words[:place], _COMPARISONS[word], *words[place + 1 :]]
                    yield _with_form(kernel, instr, "comparison", ".".join([head, *changed]))
                    break


def _signs(kernel: Kernel) -> Iterator[Mutant]:
    for instr in kernel.instructions():
        if instr.form.op.base in _SIGNED and "lo" not in instr.form.text.split("."):
            words = instr.form.text.split(".")
            places = [place for place, word in enumerate(words) if word in _SIGNS]
            if places:
                words[places[-1]] = _SIGNS[words[places[-1]]]
                yield _with_form(kernel, instr, "sign", ".".join(words))


def _constants(kernel: Kernel) -> Iterator[Mutant]:
    for instr in kernel.instructions():
        if instr.form.op.base in ("bar", "barrier", "shfl", "vote", "call", "cp", "mma", "lop3", "fence", "membar"):
            continue
        for place, operand in enumerate(instr.operands):
            if place >= instr.form.dst_count and isinstance(operand, Imm) and re.fullmatch(r"-?\d+", operand.text):
                value = int(literal_value(operand.text))
                changed = [*instr.operands[:place], Imm(value + 1), *instr.operands[place + 1 :]]
                yield _with_operands(kernel, instr, "constant", changed)
                break


def _addresses(kernel: Kernel) -> Iterator[Mutant]:
    for instr in kernel.instructions():
        address = instr.address
        width = instr.form.type.bytes * instr.form.lanes if instr.form.type is not None else 4
        if instr.form.op.base not in ("ld", "st") or address is None or instr.form.space in ("param", "const"):
            continue
        if address.rest:
            continue
        other = Mem(address.base, address.offset + width)
        changed = [other if operand is address else operand for operand in instr.operands]
        yield _with_operands(kernel, instr, "address", changed)


def _orders(kernel: Kernel) -> Iterator[Mutant]:
    for instr in kernel.instructions():
        place = instr.form.dst_count
        if instr.form.op.base in _ORDERED and len(instr.operands) > place + 1:
            first, second = instr.operands[place], instr.operands[place + 1]
            if first.text != second.text:
                changed = [*instr.operands[:place], second, first, *instr.operands[place + 2 :]]
                yield _with_operands(kernel, instr, "order", changed)


def _specials(kernel: Kernel) -> Iterator[Mutant]:
    for instr in kernel.instructions():
        for place, operand in enumerate(instr.operands):
            if isinstance(operand, Special) and operand.text in _SPECIALS:
                other = Special(_SPECIALS[operand.text], operand.type)
                changed = [*instr.operands[:place], other, *instr.operands[place + 1 :]]
                yield _with_operands(kernel, instr, "special register", changed)


def _masks(kernel: Kernel) -> Iterator[Mutant]:
    """Mutants that read ``%tid.x & 31`` instead of ``%tid.x``."""
    for block in kernel.blocks:
        for place, instr in enumerate(block.instrs):
            operands = instr.operands
            if instr.form.op.base == "mov" and len(operands) == 2 and operands[1].text == "%tid.x" and not instr.guard:
                mask = Instr(decode("and.b32", 3), (operands[0], operands[0], Imm(31)))
                longer = [*block.instrs[: place + 1], mask, *block.instrs[place + 1 :]]
                yield _with_instructions(kernel, block, "tid & 31", instr.text, longer)


def _guards(kernel: Kernel) -> Iterator[Mutant]:
    for instr in kernel.instructions():
        guard = instr.guard
        if guard is None:
            continue
        yield _with_guard(kernel, instr, "guard negated", Guard(guard.reg, negated=not guard.negated))
        if not instr.is_terminator:
            yield _with_guard(kernel, instr, "guard dropped", None)


#: What makes the mutants of a kernel, by kind.
KINDS: dict[str, Callable[[Kernel], Iterator[Mutant]]] = {
    "store": _stores,
    "comparison": _comparisons,
    "sign": _signs,
    "constant": _constants,
    "address": _addresses,
    "order": _orders,
    "special register": _specials,
    "tid & 31": _masks,
    "guard": _guards,
}


def mutants(kernel: Kernel, count: int, rng: random.Random) -> list[Mutant]:
    """``count`` mutants of a kernel, of as many kinds as there are."""
    pools = [list(make(kernel)) for make in KINDS.values()]
    for pool in pools:
        rng.shuffle(pool)
    rng.shuffle(pools)
    found: list[Mutant] = []
    while len(found) < count and any(pools):
        for pool in pools:
            if pool and len(found) < count:
                found.append(pool.pop())
    return found


@dataclass
class Score:
    """Numbers by kind of mutant: all that were compared, those noticed, and those that only the longer search saw."""

    tried: Counter[str] = field(default_factory=Counter[str])
    noticed: Counter[str] = field(default_factory=Counter[str])
    missed: Counter[str] = field(default_factory=Counter[str])
    left_out: Counter[str] = field(default_factory=Counter[str])
    seconds: list[float] = field(default_factory=list[float])

    @property
    def share(self) -> float:
        """Noticed mutants of those known to be different."""
        known = self.noticed.total() + self.missed.total()
        return self.noticed.total() / known if known else 1.0

    def lines(self) -> Iterator[str]:
        yield f"{'kind':18s} {'mutants':>8s} {'noticed':>8s} {'missed':>8s} {'alike':>8s}"
        for kind in sorted(self.tried):
            tried, noticed, missed = self.tried[kind], self.noticed[kind], self.missed[kind]
            yield f"{kind:18s} {tried:8d} {noticed:8d} {missed:8d} {tried - noticed - missed:8d}"
        known = self.noticed.total() + self.missed.total()
        yield f"score {100 * self.share:.1f} % ({self.noticed.total()} of {known} mutants known to be different)"
        kernels = ", ".join(f"{number} {why}" for why, number in sorted(self.left_out.items()))
        yield f"kernels: {kernels}"
        if self.seconds:
            ordered = sorted(self.seconds)
            middle = ordered[len(ordered) // 2]
            yield f"seconds for a comparison: median {middle:.2f}, longest {ordered[-1]:.2f}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for a comparison and for the longer search, and the inputs of the latter."""

    budget: float
    long: float
    inputs: int = 300


def judge(before: Module, after: Module, kernel: str, seconds: float, seeds: Sequence[int] | None = None) -> Verdict:
    """The verdict on one kernel."""
    return verdict(kernel, list(compare(before, after, kernels=[kernel], seconds=seconds, seeds=seeds)))


def score_kernel(text: str, name: str, count: int, limits: Limits, rng: random.Random, score: Score) -> None:
    """Compare mutants of one kernel with it."""
    before, after = parse(text), parse(text)
    itself = judge(before, after, name, limits.budget)
    if itself.outcome != SAME:
        score.left_out[itself.outcome] += 1
        return
    score.left_out["compared"] += 1
    for mutant in mutants(after.kernel(name), count, rng):
        mutant.apply()
        try:
            if problems(after):
                continue
            begin = time.monotonic()
            found = judge(before, after, name, limits.budget)
            score.seconds.append(time.monotonic() - begin)
            score.tried[mutant.kind] += 1
            if found.outcome == DIFFERENT:
                score.noticed[mutant.kind] += 1
                continue
            searched = judge(before, after, name, limits.long, range(limits.inputs))
            if searched.outcome == DIFFERENT:
                score.missed[mutant.kind] += 1
                seen = next(each for each in searched.comparisons if each.outcome == DIFFERENT)
                print(f"missed: {name}: {mutant.kind}: {mutant.what}: {found.outcome}; seen by {seen.name}", flush=True)
        finally:
            mutant.undo()


def files_of(folder: Path, part: str) -> list[Path]:
    """The PTX files below a folder that belong to a part, in an order that is by chance and always the same."""
    found: list[tuple[str, Path]] = []
    for path in folder.rglob("*.ptx"):
        digest = hashlib.sha256(str(path.relative_to(folder)).encode("utf-8", "surrogateescape")).hexdigest()
        is_fit = int(digest[-1], 16) % 2 == 0
        if path.is_file() and path.stat().st_size <= LARGEST and part in ("all", "fit" if is_fit else "report"):
            found.append((digest, path))
    return [path for _, path in sorted(found)]


def main() -> None:
    """Print the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=("fit", "report", "all"), default="all")
    parser.add_argument("--files", type=int, default=40, help="files, of which one kernel each is taken")
    parser.add_argument("--first", type=int, default=0, help="files to leave out before the first")
    parser.add_argument("--mutants", type=int, default=8, help="of each kernel")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds of a comparison")
    parser.add_argument("--long", type=float, default=40.0, help="seconds of the longer search")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no file after so many")
    arguments = parser.parse_args()
    begin = time.monotonic()
    score = Score()
    limits = Limits(arguments.budget, arguments.long)
    for path in files_of(arguments.folder, arguments.part)[arguments.first : arguments.first + arguments.files]:
        if time.monotonic() - begin > arguments.seconds:
            break
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
        rng = random.Random(str(path.name))
        try:
            module = parse(text)
        except PtxError:
            score.left_out["unreadable"] += 1
            continue
        if not module.entries or problems(module):
            score.left_out["without an entry, or not well-formed"] += 1
            continue
        score_kernel(text, rng.choice(module.entries).name, arguments.mutants, limits, rng, score)
        print(f"{path.name}: {score.noticed.total()} noticed, {score.missed.total()} missed", file=sys.stderr)
    print("\n".join(score.lines()))


if __name__ == "__main__":
    main()
