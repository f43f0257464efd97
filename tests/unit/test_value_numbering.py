"""SSA and value numbers against runs of random kernels."""

from __future__ import annotations

import random

import pytest
from motion import kernel_of, random_body
from ptxmotion.analysis.graph.dominance import Dominance
from ptxmotion.analysis.manager import Facts
from ptxmotion.analysis.values.ssa import Ssa
from ptxmotion.ptx import Instr, Reg
from walker import Endless, walk


class Run:
    """Follows a walk in the SSA view: which value each register holds, and the bits of each value."""

    def __init__(self, facts: Facts) -> None:
        self.ssa: Ssa = facts.ssa
        self.dominance: Dominance = facts.dominance
        self.number = facts.values.number
        self.held: dict[Reg, int] = {}  # register: the value that it holds
        self.bits: dict[int, int] = {}  # value: its bits
        self.block = -1
        self.made: set[int] = set()  # the values that were made since control entered the block
        self.compared = 0

    def enter(self, block: int) -> None:
        arrivals = {phi: dict(self.ssa.phi_args[phi]) for phi in self.ssa.phis[block]}
        values = {phi: self.bits.get(args[self.block]) for phi, args in arrivals.items()}
        for phi, args in arrivals.items():
            reg = self.ssa.reg[phi]
            held = self.held.get(reg)
            assert held == args[self.block] or (held is None and self.ssa.instr[args[self.block]] is None), reg.text
        self.made.clear()
        self.block = block
        for phi, bits in values.items():
            self.make(phi, bits)

    def execute(self, instr: Instr, written: int | None) -> None:
        for reg in instr.uses():
            read = self.ssa.read(instr, reg)
            assert self.held.get(reg, read) == read, (instr.text, reg.text)
            assert reg in self.held or self.ssa.instr[read] is None, (instr.text, reg.text)
        for reg in instr.defs():
            self.make(self.ssa.defined(instr, reg), written)

    def make(self, value: int, bits: int | None) -> None:
        """``value`` now exists. Every other value of its class that is current has the same bits."""
        self.held[self.ssa.reg[value]] = value
        if bits is None:  # a φ of a register that was not written
            return
        self.bits[value] = bits
        self.made.add(value)
        for other, its in self.bits.items():
            if other != value and self.number[other] == self.number[value] and self.is_current(other):
                assert its == bits, (self.ssa.reg[value].text, self.ssa.reg[other].text)
                self.compared += 1

    def is_current(self, value: int) -> bool:
        where = self.ssa.block[value]
        return value in self.made if where == self.block else self.dominance.dominates(where, self.block)


def follow(body: str, decisions: list[bool]) -> Run | None:
    kernel = kernel_of(body).kernels[0]
    run = Run(Facts(kernel))
    registers = {f"%r{number}": 1000 + number for number in range(64)}
    try:
        steps = walk(kernel, decisions, registers, {}).steps
    except Endless:
        return None
    for step in steps:
        if isinstance(step, int):
            run.enter(step)
        else:
            run.execute(*step)
    return run


@pytest.mark.parametrize("chunk", range(4))
def test_reads_get_the_value_that_was_written_and_equal_numbers_are_equal_bits(chunk: int) -> None:
    compared = 0
    for seed in range(chunk * 60, chunk * 60 + 60):
        choose = random.Random(seed)
        body = random_body(choose)
        for _ in range(6):
            run = follow(body, [choose.random() < 0.5 for _ in range(24)])
            compared += run.compared if run is not None else 0
    assert compared > 150


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        ("add.s32 %r8, %r1, %r2;", "add.s32 %r9, %r2, %r1;", True),
        ("add.s32 %r7, %r1, 4; add.s32 %r8, %r7, %r2;", "add.s32 %r6, %r2, 4; add.s32 %r9, %r6, %r1;", True),
        ("mad.lo.s32 %r8, %r1, 4, %r2;", "shl.b32 %r7, %r1, 2; add.s32 %r9, %r7, %r2;", True),
        ("sub.s32 %r8, %r1, %r2;", "sub.s32 %r9, %r2, %r1;", False),
        ("mov.u32 %r8, %r1;", "add.s32 %r9, %r1, 0;", True),
        ("add.f32 %f8, %f1, %f2;", "add.f32 %f9, %f1, %f2;", True),
        ("add.f32 %f8, %f1, %f2;", "add.rn.f32 %f9, %f1, %f2;", False),
        ("mov.u32 %r8, %tid.x;", "mov.u32 %r9, %tid.x;", True),
        ("mov.u32 %r8, %clock;", "mov.u32 %r9, %clock;", False),
        ("ld.global.u32 %r8, [%rd1];", "ld.global.u32 %r9, [%rd1];", False),  # another thread may write in between
        ("ld.global.nc.u32 %r8, [%rd1];", "ld.global.nc.u32 %r9, [%rd1];", True),
        ("@%p1 mov.u32 %r8, 7;", "mov.u32 %r9, 7;", False),
    ],
)
def test_which_values_are_equal(one: str, other: str, *, are_equal: bool) -> None:
    kernel = kernel_of(f"{one} {other} ret;").kernels[0]
    values = Facts(kernel).values
    last = {
        reg.name: values.number[values.ssa.defined(each, reg)] for each in kernel.instructions() for reg in each.defs()
    }
    bank = "%f" if "%f8" in one else "%r"
    assert (last[f"{bank}8"] == last[f"{bank}9"]) == are_equal
