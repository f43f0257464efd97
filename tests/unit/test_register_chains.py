"""The copies of an edge, which happen at once, against a parallel assignment."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from motion import kernel_of
from ptxmotion.ptx import TYPES, Reg
from ptxmotion.transforms.scalar_replacement.register_chains import ChainPlan, ChainWriter


@pytest.mark.parametrize("chunk", range(2))
def test_copies_of_an_edge_happen_at_once(chunk: int) -> None:
    kernel = kernel_of("ret;").kernels[0]
    symbols: Any = SimpleNamespace(cfg=None)
    writer = ChainWriter(ChainPlan(kernel), symbols, symbols)
    for seed in range(chunk * 200, chunk * 200 + 200):
        choose = random.Random(seed)
        registers = [Reg(f"%r{number}", TYPES["b32"]) for number in range(6)]
        copies = {target: choose.choice(registers) for target in choose.sample(registers, choose.randrange(1, 7))}
        held: dict[Reg, object] = {reg: reg.name for reg in registers}
        expected = {reg: held[copies.get(reg, reg)] for reg in registers}
        for instr in writer._in_order(copies):  # pyright: ignore[reportPrivateUsage]
            target, source = instr.operands
            assert isinstance(target, Reg) and isinstance(source, Reg)
            held[target] = held[source]
        assert {reg: held[reg] for reg in registers} == expected, seed
