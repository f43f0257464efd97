"""Calls of functions grow with the kernel, for kernels of one shape (`bench/generated_shapes.py`)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from growth import calls
from ptxmotion import Policy, optimize
from ptxmotion.analysis import Facts
from ptxmotion.analysis.memory.alias import Promise
from ptxmotion.analysis.values import liveness
from ptxmotion.analysis.values.divisors import Divisors
from ptxmotion.analysis.values.folding import operand_numbers
from ptxmotion.analysis.values.ssa import build_ssa
from ptxmotion.analysis.values.symbolic_values import SymbolicValues
from ptxmotion.analysis.values.value_inputs import ValueInputs
from ptxmotion.ptx import parse

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
generated: Any = importlib.import_module("generated_shapes")

#: The largest ratio of calls for four times the kernel.
MOST = 5


def facts_of(shape: str, instructions: int) -> Facts:
    return Facts(parse(generated.kernel_of(shape, instructions)).kernels[0])


def assert_linear(calls_of: Callable[[int], int], small: int) -> None:
    counts = [calls_of(small), calls_of(4 * small)]
    assert counts[1] < MOST * counts[0], counts


@pytest.mark.parametrize("shape", list(generated.SHAPES))
def test_all_passes(shape: str) -> None:
    optimize(generated.kernel_of(shape, 50), "O3", Policy(gate="off"))  # imports
    assert_linear(lambda size: calls(lambda: optimize(generated.kernel_of(shape, size), "O3", Policy(gate="off"))), 500)


def test_phis_of_many_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether one register is live is found without the other columns of live registers."""
    monkeypatch.setattr(liveness, "COLUMN", 16)

    def calls_of(instructions: int) -> int:
        facts = facts_of("nest", instructions)
        cfg, dominance = facts.cfg, facts.dominance
        return calls(lambda: build_ssa(cfg, dominance))

    assert_linear(calls_of, 1_000)


def test_inputs_of_phis_that_are_made_of_phis() -> None:
    def calls_of(instructions: int) -> int:
        facts = facts_of("branches", instructions)
        inputs = ValueInputs(SymbolicValues(facts))
        return calls(lambda: inputs.reached(facts.values.number[-1]))

    assert_linear(calls_of, 500)


def test_constants_that_are_made_of_constants() -> None:
    """x1 = x0 + x0, x2 = x1 + x1, … : the number of one does not contain those of the others."""
    lines = "".join(f"add.u32 %r{each + 1}, %r{each}, %r{each};" for each in range(16))
    text = f".version 8.0\n.target sm_90\n.entry k() {{ .reg .b32 %r<17>; mov.u32 %r0, 3; {lines} ret; }}"
    facts = Facts(parse(text).kernels[0])
    numbers = operand_numbers(facts.kernel.instructions(), facts.ssa)
    assert len(set(numbers.values())) == 17 and max(len(str(each)) for each in numbers.values()) < 30


@pytest.mark.parametrize("shape", list(generated.SHAPES))
def test_divisors_of_one_value(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the values are solved from which a value is computed, and each a few times."""
    facts = facts_of(shape, 2_000)
    solved: list[int] = []
    transfer = Divisors._transfer  # pyright: ignore[reportPrivateUsage]

    def counted(self: Divisors, value: int) -> int:
        solved.append(value)
        return transfer(self, value)

    monkeypatch.setattr(Divisors, "_transfer", counted)
    divisors = Divisors(facts, Promise(aligned=frozenset([("k", "in", 16)])))
    addresses = [facts.memory.reference(instr) for instr in facts.kernel.instructions()]
    for number in dict.fromkeys(each.base for each in addresses if each is not None):
        divisors.of(number)
    assert len(set(solved)) < len(facts.ssa.instr) and len(solved) <= 4 * len(set(solved))
