"""Values that the analysis claims not to overflow do not: claims about random loops are tested at run time, near the
limits of 32 bits.

A loop counts a value up or down from a constant or a parameter, with a comparison at the top, at the bottom, or both,
and more comparisons inside. Another counter ends it after a few iterations. Claims are queried for φs, small constants
and blocks. For each claim, code at the end of the block extends the value and the sum, and stores a flag if they do not
differ by the constant.
"""

import itertools
import random

import numpy as np
import pytest
from ptxmotion.analysis import Facts
from ptxmotion.analysis.values.no_wrap import NoWrap
from ptxmotion.analysis.values.symbolic_values import SymbolicValues
from ptxmotion.emulator import Emulator
from ptxmotion.ptx import parse
from random_comparisons import respelled

FIXED, SHARE = 60, 20
STEPS = (1, 1, 1, -1, -1, 2, -2, 3, -5)
CONSTANTS = (1, -1, 2, -2, 4, -4, 100)
ENDS = (0, 1, 2, 3, 7, (1 << 31) - 1, (1 << 31) - 2, 1 << 31, (1 << 31) + 1, (1 << 32) - 1, (1 << 32) - 2, 1000)
HEADER = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 flags, .param .u32 a, .param .u32 b, .param .u32 c)
{
	.reg .pred %p<40>;
	.reg .b32 %r<40>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [flags];
	ld.param.u32 %r1, [a];
	ld.param.u32 %r2, [b];
	ld.param.u32 %r3, [c];
	mov.u32 %r20, 0;
"""


class Loops:
    """Writes one kernel. ``%r5`` is the counter of the outer loop, ``%r6`` that of the inner loop."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.predicates = 0

    def test(self, value: str, target: str) -> None:
        """A branch to ``target`` under a random comparison."""
        rng = self.rng
        word, kind = rng.choice(["lt", "le", "gt", "ge", "lt", "gt", "ne", "eq"]), rng.choice(["s32", "u32"])
        other = rng.choice(["%r1", "%r2", "%r3", str(rng.choice([0, 1, 5, 1000, 2147483647, 2147483640]))])
        sides = (value, other) if rng.random() < 0.75 or not other.startswith("%") else (other, value)
        predicate = f"%p{self.predicates}"
        self.predicates += 1
        negated = rng.choice(["", "!"])
        self.lines.append(f"\tsetp.{word}.{kind} {predicate}, {sides[0]}, {sides[1]};")
        self.lines.append(f"\t@{negated}{predicate} bra {target};")

    def loop(self, register: str, depth: int) -> None:
        rng = self.rng
        name = f"L{depth}"
        start = rng.choice(["%r1", "%r2", "0", "1", "5", "-1", "2147483640", "-2147483648"])
        turns = f"%r{10 + depth}"
        self.lines += [f"\tmov.u32 {register}, {start};", f"\tmov.u32 {turns}, 0;"]
        if rng.random() < 0.6:
            self.test(register, f"{name}E")
        self.lines.append(f"{name}:")
        if rng.random() < 0.5:
            self.test(register, f"{name}E")
        self.lines.append("\tadd.s32 %r20, %r20, 1;")
        if depth == 0 and rng.random() < 0.5:
            self.loop("%r6", 1)
        if rng.random() < 0.4:
            self.test(register, f"{name}S")
            self.lines.append("\tadd.s32 %r20, %r20, 2;")
            if rng.random() < 0.3:
                self.lines.append(f"\tadd.s32 {register}, {register}, {rng.choice(STEPS)};")
            self.lines.append(f"{name}S:")
        self.lines += [f"\tadd.s32 {turns}, {turns}, 1;", f"\tsetp.gt.u32 %p3{depth}, {turns}, 5;"]
        self.lines.append(f"\t@%p3{depth} bra {name}E;")
        self.lines.append(f"\tadd.s32 {register}, {register}, {rng.choice(STEPS)};")
        if rng.random() < 0.7:
            self.test(register, name)
        else:
            self.lines.append(f"\tbra {name};")
        self.lines.append(f"{name}E:")

    def text(self) -> str:
        self.loop("%r5", 0)
        lines = [HEADER + "\n".join(self.lines), "\tadd.s32 %r21, %r5, %r20;", "\tret;", "}", ""]
        return respelled("\n".join(lines), self.rng)


def checked(ptx: str, rng: random.Random) -> tuple[str, list[str]]:
    """The kernel with code that checks some of the claims, and these claims."""
    module = parse(ptx)
    facts = Facts(module.kernels[0], module)
    symbols = SymbolicValues(facts)
    known = NoWrap(symbols)
    claims: list[str] = []
    added: dict[int, list[str]] = {}
    for block in facts.cfg.rpo:
        instrs = facts.cfg.blocks[block].instrs
        if not instrs:
            continue
        line = module.source.line_column(instrs[-1].pos)[0]
        place = line if facts.cfg.blocks[block].terminator is None else line - 1
        for header, phis in symbols.phis.items():
            for number, phi in phis.items():
                is_known = symbols.dominance.dominates(header, block) and symbols.ssa.reg[phi].type.bits == 32
                held = symbols.register_of(number, block, 32) if is_known else None
                if held is None:
                    continue
                for constant, kind in itertools.product(rng.sample(CONSTANTS, 2), ("s", "u")):
                    if known.is_proven(kind, number, constant, block):
                        added.setdefault(place, []).append(
                            f"\tadd.s32 %r30, {held.name}, {constant};\n\tcvt.{kind}64.{kind}32 %rd4, %r30;\n"
                            f"\tcvt.{kind}64.{kind}32 %rd5, {held.name};\n\tsub.s64 %rd4, %rd4, %rd5;\n"
                            f"\tsetp.ne.s64 %p39, %rd4, {constant};\n"
                            f"\t@%p39 st.global.u32 [%rd1+{4 * len(claims)}], 1;"
                        )
                        claims.append(f"{held.name} + {constant} as {kind} at the end of block {block}")
    lines = ptx.splitlines()
    for place in sorted(added, reverse=True):
        lines[place:place] = added[place]
    return "\n".join(lines) + "\n", claims


def wrong_claims(seed: int) -> tuple[list[str], int]:
    """The claims about the loops of ``seed`` that did not hold in some run, and how many there are."""
    rng = random.Random(f"ends:{seed}")
    ptx, claims = checked(Loops(seed).text(), rng)
    wrong: set[str] = set()
    for _ in range(4 if claims else 0):
        flags = np.zeros(len(claims), np.uint32)
        first = rng.choice(ENDS)
        ends = [np.uint32((rng.choice([first, rng.choice(ENDS)]) + rng.randint(-3, 3)) & 0xFFFFFFFF) for _ in range(3)]
        Emulator(budget=400_000).load(parse(ptx)).launch("k", (1,), (1,), [flags, *ends])
        wrong.update(claims[number] for number in np.flatnonzero(flags))
    return sorted(wrong), len(claims)


@pytest.mark.fuzz
def test_no_claim_is_wrong(seeds: list[int]) -> None:
    claims = 0
    for seed in seeds:
        wrong, made = wrong_claims(seed)
        assert wrong == [], seed
        claims += made
    assert claims > len(seeds) // 4, "many loops have a bound that proves something"
