"""`Holders` compared with a search through all registers that have a value."""

from __future__ import annotations

import random

import pytest
from ptxmotion.analysis.graph.cfg import reverse_postorder
from ptxmotion.analysis.graph.dominance import Dominance
from ptxmotion.ptx import TYPES, Reg
from ptxmotion.transforms.cleanup.copy_propagation import are_exchangeable
from ptxmotion.transforms.code_motion.total_redundancy import Holders


@pytest.mark.parametrize("chunk", range(4))
def test_the_register_that_dominates_is_found(chunk: int) -> None:
    redundant = 0
    for seed in range(chunk * 100, chunk * 100 + 100):
        choose = random.Random(seed)
        count = choose.randint(2, 30)
        succ = [
            sorted({choose.randrange(count) for _ in range(choose.randint(0, 2))} | {node + 1}) for node in range(count)
        ]
        succ = [[other for other in others if other < count] for others in succ]
        pred = [[node for node in range(count) if other in succ[node]] for other in range(count)]
        dominance = Dominance(succ, pred, 0)
        holders = Holders(dominance)
        known: list[tuple[int, int, Reg]] = []
        for block in reverse_postorder(succ, 0):
            for _ in range(choose.randint(0, 2)):
                number = choose.randrange(3)
                reg = Reg(f"%r{len(known)}", TYPES[choose.choice(["u32", "s32", "b32", "f32", "tf32", "u64"])])
                expected = [
                    each
                    for other, where, each in known
                    if other == number and are_exchangeable(each.type, reg.type) and dominance.dominates(where, block)
                ]
                assert holders.dominating(number, block, reg) is (expected[0] if expected else None), f"seed {seed}"
                if not expected:
                    known.append((number, block, reg))
                redundant += bool(expected)
    assert redundant > 100
