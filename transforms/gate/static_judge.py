"""The gate's judge where there is no assembler: accesses to memory, long operations, and values beyond the registers.

Only these figures of PTX predict time. ptxas recomputes, reorders and allocates anew: in 185 timed arms of the suites,
neither fewer PTX instructions nor fewer live registers went with less time (docs/experiments/gate.md). An access that
is removed from the PTX is missing in the machine code, too; so is a division or a root, which ptxas expands to tens of
instructions. A kernel is better where fewer of these remain, each counted 8 to the power of its loop depth times. A
kernel that saves only short arithmetic is reverted.

Requires: nothing but the kernel. Guarantees: one more access is never better; nor is a kernel whose live values exceed
the registers of a thread, which ptxas would spill.
Does not know: which of them ptxas merges by itself, whether accesses coalesce, and everything that
`toolchain.ptxas_judge` knows.
"""

from __future__ import annotations

from ...analysis.effects import memory_space
from ...analysis.manager import Facts
from ...analysis.register_limit import register_limit
from ...cost import Figures, loop_weight
from ...ptx import Effect, Instr, Kernel, Module

__all__ = ["StaticJudge"]

#: The cost (in the opcode table) from which ptxas makes a sequence of an operation: exact division, remainder, root.
_LONG = 16

#: Read through a cache of their own, and never written.
_CONSTANT = ("param", "const")


class StaticJudge:
    """``weight`` is accesses and long operations, ``spills`` values that are live beyond the registers of a thread."""

    name = "static model"

    def figures(self, module: Module) -> dict[str, Figures]:
        """The figures of each entry by name."""
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
                total += weight * _counts(instr)
    registers = facts.pressure.maximum.words
    beyond = max(registers - register_limit(kernel), 0)
    return Figures("\n".join(code), registers, beyond, 0, total, is_static=True)


def _counts(instr: Instr) -> bool:
    form = instr.form
    if form.effects & (Effect.READ | Effect.WRITE):
        return memory_space(instr) not in _CONSTANT
    return (form.op.cost or 0) >= _LONG
