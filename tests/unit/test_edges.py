"""Insertion of code on edges, against walks: the code of an edge runs when, and only when, control takes the edge."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from motion import kernel_of, random_body
from ptxmotion.analysis.graph.cfg import build_cfg
from ptxmotion.ptx import Instr, Kernel, parse, print_module
from ptxmotion.ptx.verify import verify
from ptxmotion.transforms.code_motion.edges import SYNTHETIC, EdgeInserter
from walker import Endless, walk

#: No store of a random body goes there.
PLACE = 0x7000_0000


def mark(number: int) -> Instr:
    """A store that a walk records."""
    (instr,) = kernel_of(f"st.global.u32 [%r60], {number};").kernels[0].instructions()
    return instr


def marks(kernel: Kernel, decisions: list[bool]) -> tuple[list[int], list[int], bool]:
    """The numbers of the marks on a walk, the blocks, and whether the kernel ended."""
    registers = {f"%r{number}": number for number in range(60)} | {"%r60": PLACE}
    found = walk(kernel, decisions, registers, {})
    blocks = [step for step in found.steps if isinstance(step, int)]
    return [number for at, number in found.stores if at == PLACE], blocks, found.left


@pytest.mark.parametrize("chunk", range(3))
def test_the_code_of_an_edge_runs_when_the_edge_is_taken(chunk: int) -> None:
    compared = 0
    for seed in range(chunk * 60, chunk * 60 + 60):
        choose = random.Random(seed)
        # A branch to the first block, and blocks that a thread may leave at their end.
        body = random_body(choose).replace(
            "\nret;\n", choose.choice(["\nret;\n", "\n@%p2 ret;\n", "\n@%p2 bra B0;\n"]), 1
        )
        module, original = kernel_of(body), kernel_of(body).kernels[0]
        kernel = module.kernels[0]
        cfg = build_cfg(kernel)
        edges = [(block, to) for block in cfg.rpo for to in cfg.succ[block] if choose.random() < 0.7]
        inserter = EdgeInserter(kernel, cfg)
        for number, edge in enumerate(edges):
            assert inserter.is_possible(*edge)
            inserter.insert(*edge, mark(number))
        inserter.commit()
        after = parse(print_module(module))
        verify(after)
        assert all(block.instrs for block in kernel.blocks if block.label and block.label.text.startswith(SYNTHETIC))
        for _ in range(6):
            decisions = [choose.random() < 0.5 for _ in range(16)]
            try:
                _, blocks, left = marks(original, decisions)
                found, _, also_left = marks(after.kernels[0], decisions)
            except Endless:
                continue
            expected = [edges.index(edge) for edge in pairwise(blocks) if edge in edges]
            assert left == also_left
            assert found[: len(expected)] == expected if not left else found == expected, (seed, body)
            compared += len(expected)
    assert compared > 300


def test_an_edge_of_a_branch_table_is_not_split() -> None:
    kernel = kernel_of("T: .branchtargets A, B; brx.idx %r1, T; A: add.s32 %r2, %r2, 1; B: bra A;").kernels[0]
    cfg = build_cfg(kernel)
    inserter = EdgeInserter(kernel, cfg)
    names = [block.label.text if block.label else "" for block in cfg.blocks]
    table = next(number for number in cfg.rpo if len(cfg.succ[number]) == 2)
    assert [inserter.is_possible(table, names.index(to)) for to in "AB"] == [False, False]
    assert inserter.is_possible(names.index("A"), names.index("B"))


def test_a_loop_pragma_stays_at_the_start_of_its_block() -> None:
    kernel = kernel_of(
        '@%p1 bra A; ret; A: .pragma "nounroll"; .pragma "used_bytes_mask 15"; ld.global.u32 %r1, [%rd1]; ret;'
    )
    cfg = build_cfg(kernel.kernels[0])
    inserter = EdgeInserter(kernel.kernels[0], cfg)
    inserter.insert(0, 2, mark(1))
    inserter.commit()
    text = print_module(kernel)
    order = [text.index(part) for part in ("nounroll", "st.global", "used_bytes_mask", "ld.global")]
    assert order == sorted(order)
