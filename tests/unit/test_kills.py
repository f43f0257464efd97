"""The last write that may change a load: the index gives the same result as a search through all writes."""

import random
from collections import Counter

import pytest
from growth import assert_near_linear
from ptxmotion.analysis.manager import Facts
from ptxmotion.analysis.memory.alias import CONSERVATIVE, Promise
from ptxmotion.analysis.values.symbolic_values import SymbolicValues
from ptxmotion.ptx import Module, parse, print_module
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.scalar_replacement.access_index import Accesses
from ptxmotion.transforms.scalar_replacement.questions import Question

HEAD = """
.version 9.0
.target sm_90
.address_size 64
.global .align 16 .b8 table[4096];
.visible .entry k(.param .u64 p, .param .u64 q) {
    .reg .b64 %rd<20>;
    .reg .b32 %r<20>;
    .reg .pred %p1;
    .shared .align 16 .b8 tile[1024];
    .local .align 16 .b8 stack[256];
    ld.param.u64 %rd1, [p];
    ld.param.u64 %rd2, [q];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.u64 %rd6, [%rd1+4096];
    cvta.to.global.u64 %rd7, %rd6;
    shl.b32 %r2, %r1, 4;
    mov.u64 %rd8, table;
    mul.wide.u32 %rd9, %r1, 8;
    add.s64 %rd9, %rd8, %rd9;
    setp.eq.u32 %p1, %r1, 3;
"""

ADDRESSES = ("%rd1", "%rd2", "%rd4", "%rd5", "%rd6", "%rd7", "%rd8", "%rd9")


def random_body(rng: random.Random, length: int) -> str:
    lines: list[str] = []
    addresses = rng.sample(
        ADDRESSES, rng.randint(1, len(ADDRESSES))
    )  # few addresses, so that more references have the same base
    for _ in range(length):
        offset = rng.choice((*range(0, 68, 4), *range(64, 512, 16)))
        place = f"[{rng.choice(addresses)}+{offset}]"
        lines.append(
            rng.choice(
                (
                    f"st.global.u32 {place}, %r1;",
                    f"@%p1 st.global.u32 {place}, %r1;",
                    f"st.u8 {place}, %r1;",
                    f"st.global.v4.u32 [{rng.choice(addresses)}+{offset // 16 * 16}], {{%r1, %r2, %r1, %r2}};",
                    f"st.shared.u32 [tile+{offset}], %r1;",
                    f"st.shared.u16 [%r2+{offset}], %r1;",
                    f"st.local.u32 [stack+{offset}], %r1;",
                    f"ld.global.u32 %r3, {place};",
                    f"ld.global.nc.u32 %r3, {place};",
                    f"ld.u64 %rd10, {place};",
                    f"ld.shared.u32 %r3, [tile+{offset}];",
                    f"ld.local.u32 %r3, [stack+{offset}];",
                )
                if rng.random() < 0.98
                else (
                    "bar.sync 0;",
                    "membar.gl;",
                    f"red.global.add.u32 {place}, %r1;",
                    f"ld.volatile.u32 %r3, {place};",
                )
            )
        )
    return "\n".join(lines)


def module_of(body: str) -> Module:
    return parse(HEAD + body + "\nret;\n}\n")


def one_by_one(accesses: Accesses, block: int, question: Question, after: int, end: int) -> str:
    for position, instr in reversed(accesses.blocks[block].kills):
        if after < position < end and (reason := accesses.kills.reason(instr, question)):
            return reason
    return ""


@pytest.mark.parametrize("promise", [CONSERVATIVE, Promise(everything=True)], ids=lambda promise: promise.text)
def test_the_index_says_what_a_scan_says(promise: Promise) -> None:
    reasons: Counter[str] = Counter()
    for seed in range(40):
        module = module_of(random_body(random.Random(seed), 120))
        facts = Facts(module.kernels[0], module, promise=promise)
        accesses = Accesses(facts, SymbolicValues(facts))
        for block, found in accesses.blocks.items():
            for position, load in found.loads:
                question = accesses.question(load)
                if question is None:
                    continue
                for end in (position, position // 2, len(facts.cfg.blocks[block].instrs)):
                    for after in (-1, end - 60, end - 20):
                        wanted = one_by_one(accesses, block, question, after, end)
                        assert accesses.last_kill(block, question, after, end) == wanted, (seed, load)
                        reasons[wanted] += 1
    assert all(reasons[reason] > 50 for reason in ("", "store", "barrier", "ordered")), reasons


def straight_line(accesses: int) -> Module:
    """A sequence of loads, sums and stores from one buffer to another. Every eighth address is computed again."""
    lines: list[str] = []
    for number in range(accesses):
        if number % 8 == 0:
            lines += [f"add.s32 %r4, %r1, {number};", "mul.wide.s32 %rd11, %r4, 4;", "add.s64 %rd12, %rd1, %rd11;"]
        lines += [
            f"ld.global.u32 %r5, [%rd12+{4 * number}];",
            f"add.s32 %r5, %r5, {number};",
            f"st.global.u32 [%rd2+{4 * number}], %r5;",
        ]
    return module_of("\n".join(lines))


@pytest.mark.parametrize("promise", [CONSERVATIVE, Promise(everything=True)], ids=lambda promise: promise.text)
def test_straight_line_code_takes_near_linear_time(promise: Promise) -> None:
    def optimize(module: Module) -> str:
        run_passes(module, "O3", promise=promise)
        return print_module(module)

    assert_near_linear(straight_line, optimize, 500)
