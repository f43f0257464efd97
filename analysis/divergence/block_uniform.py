"""Which branches all threads of a block take in the same way, and which barriers all of them reach.

Computes: the values that vary between the threads of a block, by propagation from sources (``%tid``, lanes, clocks,
loads from memory that may be written, atomics, calls) over data and control: a φ after a varying branch varies, and so
does a value that leaves a loop which threads leave in different iterations. `divergence` computes the same for a warp;
this analysis for a block is simpler.

Guarantees: a barrier that is not among `partial_barriers` is executed by all threads of a block or by none, and equally
often, provided that no thread ends in a called function. A value that is not known to be uniform counts as varying.
Reference: Coutinho et al., "Divergence Analysis and Optimizations", PACT 2011; PTX ISA 9.0, §9.7.13 (bar).
"""

from __future__ import annotations

from ...ptx import Effect, Instr, Reg
from ...ptx.operations import BARRIERS
from ..effects import is_constant_read, is_may_definition, memory_space
from ..manager import Facts
from .sources import specials_in

__all__ = ["is_barrier", "partial_barriers"]

_UNIFORM_SPECIALS = frozenset(
    f"%{name}.{axis}" for name in ("ctaid", "ntid", "nctaid", "clusterid", "nclusterid") for axis in "xyz"
) | {"WARP_SZ", "%gridid", "%dynamic_smem_size", "%total_smem_size", "%smid", "%nsmid"}


def is_barrier(instr: Instr) -> bool:
    """Whether the instruction waits for the other threads of the block."""
    return instr.form.operation in BARRIERS


def partial_barriers(facts: Facts) -> tuple[Instr, ...]:
    """The barriers that some threads of a block may not reach."""
    return facts.get(_solve)


def _solve(facts: Facts) -> tuple[Instr, ...]:
    return _Solver(facts).solve()


class _Solver:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.cfg = facts.cfg
        self.ssa = facts.ssa
        self.varying: set[int] = set()
        #: The blocks on the paths from a varying branch to the block where all these paths meet, without that block.
        self.between: set[int] = set()
        #: The blocks of ``between``, and the blocks where the paths meet.
        self.joins: set[int] = set()
        self.branches: set[int] = set()
        self.regions: dict[int, frozenset[int]] = {}
        self.used_in: dict[int, set[int]] = {}

    def solve(self) -> tuple[Instr, ...]:
        self._collect_uses()
        while self._turn():
            pass
        return tuple(
            instr
            for block in self.cfg.rpo
            for instr in self.cfg.blocks[block].instrs
            if is_barrier(instr) and (block in self.between or self._guard_varies(instr))
        )

    def _collect_uses(self) -> None:
        for block in self.cfg.rpo:
            for phi in self.ssa.phis[block]:
                for _, value in self.ssa.phi_args.get(phi, ()):
                    self.used_in.setdefault(value, set()).add(block)
            for instr in self.cfg.blocks[block].instrs:
                for reg in instr.uses():
                    self.used_in.setdefault(self.ssa.read(instr, reg), set()).add(block)

    def _turn(self) -> bool:
        before = len(self.varying), len(self.branches)
        for block in self.cfg.rpo:
            for phi in self.ssa.phis[block]:
                if block in self.joins or any(value in self.varying for _, value in self.ssa.phi_args.get(phi, ())):
                    self.varying.add(phi)
            for instr in self.cfg.blocks[block].instrs:
                if instr.defs() and self._varies(instr):
                    self.varying.update(self.ssa.defined(instr, reg) for reg in instr.defs())
            last = self.cfg.blocks[block].terminator
            if last is not None and block not in self.branches and self._may_diverge(last):
                self.branches.add(block)
                self._influence(block)
        return (len(self.varying), len(self.branches)) != before

    def _may_diverge(self, last: Instr) -> bool:
        return any(self._reads_varying(last, reg) for reg in last.uses())

    def _guard_varies(self, instr: Instr) -> bool:
        return instr.guard is not None and any(self._reads_varying(instr, reg) for reg in instr.uses())

    def _reads_varying(self, instr: Instr, reg: Reg) -> bool:
        value = self.ssa.read(instr, reg)
        return value in self.varying or (self.ssa.instr[value] is None and value not in self.ssa.phi_args)

    def _varies(self, instr: Instr) -> bool:
        form = instr.form
        if form.is_opaque or form.is_call:
            return True
        if is_barrier(instr):
            return False  # all threads get the same result of bar.red
        if form.effects & Effect.READ:
            space = memory_space(instr)
            if form.effects & Effect.ORDERED or not is_constant_read(instr) or space in ("local", "generic"):
                return True
        elif form.op.divergence == "source" or form.effects & Effect.CROSS_LANE:
            return True
        if any(special.name not in _UNIFORM_SPECIALS for special in specials_in(instr)):
            return True
        if is_may_definition(instr):
            for reg in instr.defs():
                if self.ssa.old.get(self.ssa.defined(instr, reg)) in self.varying:
                    return True
        return any(self._reads_varying(instr, reg) for reg in instr.uses())

    def _influence(self, branch: int) -> None:
        """Add the blocks between ``branch`` and the block where all paths from it meet."""
        end = self.facts.post_dominance.idom[branch]
        region: set[int] = set()
        work = [after for after in self.cfg.succ[branch] if after != end]
        while work:
            block = work.pop()
            if block not in region:
                region.add(block)
                work += [after for after in self.cfg.succ[block] if after != end]
        self.between |= region
        self.joins |= region
        if end < len(self.cfg):
            self.joins.add(end)
        if branch in region:
            # Threads leave the loop in different iterations, so values of the loop differ after it.
            for value, blocks in self.used_in.items():
                if self.ssa.block[value] in region and not blocks <= region:
                    self.varying.add(value)
