"""A judge without an assembler: accesses to memory, long operations, and values beyond the registers of a thread.

Only these figures of PTX predict time. Other instructions and register pressure do not predict the machine code: ptxas
recomputes, reorders and allocates registers itself. In 185 timed arms of the suites, neither fewer PTX instructions nor
fewer live registers meant less time (docs/experiments/gate.md). A load or store that is
removed from PTX is removed from the machine code, too. So is a division or a root, which ptxas expands to tens of
instructions. A kernel is better if the weighted number of these instructions decreases. The weight of an
instruction is 8 to the power of its loop depth. A change that only saves short arithmetic is reverted.

Requires: nothing but the kernel. Guarantees: a kernel with one more access is never better. Nor is a kernel whose live
values newly exceed the registers of a thread, since ptxas would spill them.
Does not know: which of these instructions ptxas merges by itself, whether accesses coalesce, and everything else that
`toolchain.ptxas_judge` knows.
"""

from __future__ import annotations

from ...analysis.effects import memory_space
from ...analysis.manager import Facts
from ...analysis.register_limit import register_limit
from ...cost import Figures, loop_weight
from ...ptx import Effect, Instr, Kernel, Module
from ...work_times import WorkTimes

__all__ = ["StaticJudge"]

#: The least cost (in the opcode table) of operations that ptxas expands to a sequence: exact division, remainder, root.
_LONG = 16

#: Spaces that are read through a cache of their own, and never written.
_CONSTANT = ("param", "const")


class StaticJudge:
    """In its figures, ``weight`` counts accesses and long operations, and ``spills`` the 32-bit values that are live
    beyond the registers of a thread."""

    name = "static model"

    def __init__(self) -> None:
        self.times = WorkTimes()

    def figures(self, module: Module) -> dict[str, Figures]:
        """The figures of each entry by name."""
        with self.times.measure("static figures"):
            return {kernel.name: _figures(kernel, module) for kernel in module.entries}


def _figures(kernel: Kernel, module: Module) -> Figures:
    facts = Facts(kernel, module)
    total = 0.0
    code: list[str] = []
    for number in facts.cfg.rpo:
        weight = loop_weight(facts.loops.depth[number])
        for instr in facts.cfg.blocks[number].instrs:
            if not instr.is_directive:
                code.append(instr.text)
                total += weight * _is_counted(instr)
    registers = facts.pressure.maximum.words
    beyond = max(registers - register_limit(kernel), 0)
    return Figures("\n".join(code), registers, beyond, 0, total, is_static=True)


def _is_counted(instr: Instr) -> bool:
    form = instr.form
    if form.effects & (Effect.READ | Effect.WRITE):
        return memory_space(instr) not in _CONSTANT
    return (form.op.cost or 0) >= _LONG
