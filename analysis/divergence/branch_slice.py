"""The slice of a kernel on which its branches depend: the part that decides which of them diverge.

Computes: the instructions, φs and undefined values that a branch, a carry or an unknown opcode reads, directly or
indirectly; and for each such instruction the values that it reads and writes.

Requires: the SSA view. Guarantees: contains every value that an instruction or φ of the slice reads.
"""

from __future__ import annotations

from ...ptx import Effect, Form, Instr
from ..graph.cfg import Cfg
from ..values.ssa import Ssa

__all__ = ["BranchSlice", "values_of"]


def values_of(ssa: Ssa, instr: Instr) -> tuple[list[int], list[int]]:
    """(values that an instruction reads, values that it writes). Old values that may survive come last in the reads."""
    reads = [ssa.read(instr, reg) for reg in instr.uses()]
    writes = [ssa.defined(instr, reg) for reg in instr.defs()]
    if writes and writes[0] in ssa.old:
        reads += [ssa.old[value] for value in writes if value in ssa.old]
    return reads, writes


class BranchSlice:
    """The slice of the branches, carries and unknown opcodes of a kernel, these included. ``values``: by instruction
    the values that it reads and writes. ``joined``: the φs and the undefined values. ``is_for_branches``: there are no
    carries and unknown opcodes, so that a branch depends on every part of the slice."""

    def __init__(self, ssa: Ssa, cfg: Cfg) -> None:
        self.values: dict[Instr, tuple[list[int], list[int]]] = {}
        self.joined: set[int] = set()
        starts: dict[Form, bool] = {}
        work: list[Instr] = []
        self.is_for_branches = True
        for number in cfg.rpo:
            for instr in cfg.blocks[number].instrs:
                form = instr.form
                if form not in starts:
                    starts[form] = _is_start(form)
                if starts[form]:
                    work.append(instr)
                    if not instr.is_terminator and not instr.is_directive:
                        self.is_for_branches = False
        writer_of, joined = ssa.instr, self.joined
        while work:
            instr = work.pop()
            if instr in self.values:
                continue
            read_and_defined = self.values[instr] = values_of(ssa, instr)
            values = list(read_and_defined[0])
            while values:
                value = values.pop()
                writer = writer_of[value]
                if writer is not None:
                    work.append(writer)
                elif value not in joined:
                    joined.add(value)
                    values += [argument for _, argument in ssa.phi_args.get(value, ())]


def _is_start(form: Form) -> bool:
    return form.effects & (Effect.CONTROL | Effect.CARRY_IN | Effect.CARRY_OUT) != 0 or form.is_opaque
