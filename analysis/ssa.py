"""Static single assignment as a view of a kernel that stays as it is.

Computes: for each register read, which value it reads; a value is a definition, a φ at the start of a block, or the
undefined value a register has at entry. φs are pruned by liveness.

Most registers of compiler output are written once, by an unguarded instruction that dominates all reads; those take
a short cut. A may-definition (guarded, component, opaque) makes a new value that also depends on the old one.

Requires: the CFG and dominance of the same version. Guarantees: every read in a reachable block has a value.
Reference: Cytron et al., TOPLAS 1991; Briggs et al., "Practical Improvements to the Construction and Destruction of
Static Single Assignment Form", 1998 (pruning).
"""

from __future__ import annotations

from ..ptx import Instr, Reg
from .cfg import Cfg
from .dominance import Dominance
from .effects import is_may_definition
from .liveness import Liveness

__all__ = ["Ssa", "build_ssa"]


class Ssa:
    """Values are numbered from 0. ``instr[v]`` is the defining instruction, ``None`` for a φ or an undefined value;
    ``phi_args[v]`` lists (predecessor block, value) of a φ; ``block[v]`` is where it is defined."""

    __slots__ = ("_definitions", "_reads", "_single", "block", "instr", "old", "phi_args", "phis", "reg")

    def __init__(self, block_count: int) -> None:
        self.instr: list[Instr | None] = []
        self.reg: list[Reg] = []
        self.block: list[int] = []
        self.phi_args: dict[int, list[tuple[int, int]]] = {}
        #: The φs of each block.
        self.phis: list[list[int]] = [[] for _ in range(block_count)]
        #: For a may-definition, the value that may survive it.
        self.old: dict[int, int] = {}
        self._single: dict[Reg, int] = {}
        self._reads: dict[tuple[Instr, Reg], int] = {}
        self._definitions: dict[tuple[Instr, Reg], int] = {}

    def new_value(self, reg: Reg, block: int, instr: Instr | None) -> int:
        self.instr.append(instr)
        self.reg.append(reg)
        self.block.append(block)
        return len(self.instr) - 1

    def read(self, instr: Instr, reg: Reg) -> int:
        """The value that ``instr`` reads from ``reg``. ``KeyError`` in an unreachable block."""
        single = self._single
        return single[reg] if reg in single else self._reads[instr, reg]

    def defined(self, instr: Instr, reg: Reg) -> int:
        """The value that ``instr`` gives to ``reg``."""
        single = self._single
        return single[reg] if reg in single else self._definitions[instr, reg]

    def is_single(self, reg: Reg) -> bool:
        """Whether the register has at most one definition, and that dominates every read of it."""
        return reg in self._single

    def readers_of_rewritten(self) -> set[Instr]:
        """The instructions that read a register of which `is_single` does not hold."""
        return {instr for instr, _ in self._reads}


def single_definitions(cfg: Cfg, dominance: Dominance) -> Ssa:
    """The view without φs: all that `Ssa.is_single` needs, and nothing else is in it."""
    builder = _Builder(cfg, dominance)
    builder.find_single_definitions()
    return builder.ssa


def build_ssa(cfg: Cfg, dominance: Dominance) -> Ssa:
    """The SSA view of the kernel of ``cfg``."""
    return _Builder(cfg, dominance).build()


class _Builder:
    def __init__(self, cfg: Cfg, dominance: Dominance) -> None:
        self.cfg = cfg
        self.dominance = dominance
        self.ssa = Ssa(len(cfg.blocks))
        #: Registers that need φs or several values, with the blocks that define them.
        self.complex: dict[Reg, list[int]] = {}
        #: The value at entry of each register that may be read before it is written.
        self.undefined: dict[Reg, int] = {}

    def build(self) -> Ssa:
        self.find_single_definitions()
        if self.complex:
            self.place_phis()
            self.rename()
        return self.ssa

    def find_single_definitions(self) -> None:
        """Give registers with one dominating definition their value; collect all others in ``complex``."""
        cfg, complex_ = self.cfg, self.complex
        dominates = self.dominance.dominates
        #: The only definition of each register so far, and its block.
        first: dict[Reg, Instr] = {}
        home: dict[Reg, int] = {}
        # A definition that dominates a read comes before it in reverse postorder, and one in the same block stands
        # before it: so one walk will do.
        undominated: dict[Reg, None] = {}
        for block in cfg.rpo:
            here: set[Reg] = set()  # known to be dominated
            for instr in cfg.blocks[block].instrs:
                for reg in instr.uses():
                    where = home.get(reg)
                    if where != block and reg not in here:
                        if where is None or not dominates(where, block):
                            undominated[reg] = None
                        else:
                            here.add(reg)
                for reg in instr.defs():
                    if reg in home:
                        del first[reg]
                        complex_[reg] = [home.pop(reg), block]
                    elif reg in complex_:
                        complex_[reg].append(block)
                    elif is_may_definition(instr):
                        complex_[reg] = [block]
                    else:
                        first[reg] = instr
                        home[reg] = block
        ssa, root = self.ssa, cfg.rpo[0]
        single = ssa._single  # pyright: ignore[reportPrivateUsage]
        for reg in undominated:
            if reg in home:
                del first[reg]
                complex_[reg] = [home.pop(reg)]
            elif reg not in complex_:
                single[reg] = ssa.new_value(reg, root, None)
        for reg, instr in first.items():
            single[reg] = ssa.new_value(reg, home[reg], instr)

    def place_phis(self) -> None:
        """φs at the iterated dominance frontier of the definitions, where the register is live."""
        frontier = self.dominance.frontier()
        if not any(frontier):
            return
        live = Liveness(self.cfg, self.complex)
        index, live_in = live.index, live.live_in
        ssa = self.ssa
        for reg, blocks in self.complex.items():
            number = index.get(reg)
            if number is None:
                continue  # never live across a boundary
            bit = 1 << number
            placed: set[int] = set()
            work = list(blocks)
            while work:
                for join in frontier[work.pop()]:
                    if join not in placed and live_in[join] & bit:
                        placed.add(join)
                        ssa.phis[join].append(ssa.new_value(reg, join, None))
                        work.append(join)

    def rename(self) -> None:
        """Walk the dominator tree with the current value of each complex register."""
        ssa, cfg = self.ssa, self.cfg
        current: dict[Reg, int] = {}
        root = cfg.rpo[0]
        stack: list[tuple[int, list[tuple[Reg, int | None]] | None]] = [(root, None)]
        children = self.dominance.children
        while stack:
            block, done = stack.pop()
            if done is not None:
                for reg, value in reversed(done):
                    if value is None:
                        del current[reg]
                    else:
                        current[reg] = value
                continue
            undo: list[tuple[Reg, int | None]] = []
            self.rename_block(block, current, undo)
            for successor in cfg.succ[block]:
                for phi in ssa.phis[successor]:
                    reg = ssa.reg[phi]
                    ssa.phi_args.setdefault(phi, []).append((block, self.value_of(reg, current)))
            stack.append((block, undo))
            stack.extend((child, None) for child in reversed(children[block]))

    def rename_block(self, block: int, current: dict[Reg, int], undo: list[tuple[Reg, int | None]]) -> None:
        ssa, complex_ = self.ssa, self.complex
        reads, definitions = ssa._reads, ssa._definitions  # pyright: ignore[reportPrivateUsage]
        for phi in ssa.phis[block]:
            reg = ssa.reg[phi]
            undo.append((reg, current.get(reg)))
            current[reg] = phi
        for instr in self.cfg.blocks[block].instrs:
            for reg in instr.uses():
                if reg in complex_:
                    reads[instr, reg] = self.value_of(reg, current)
            for reg in instr.defs():
                if reg in complex_:
                    value = ssa.new_value(reg, block, instr)
                    if is_may_definition(instr):
                        ssa.old[value] = self.value_of(reg, current)
                    definitions[instr, reg] = value
                    undo.append((reg, current.get(reg)))
                    current[reg] = value

    def value_of(self, reg: Reg, current: dict[Reg, int]) -> int:
        """The current value of ``reg``; its undefined value where nothing has been written yet."""
        value = current.get(reg)
        if value is None:
            value = self.undefined.get(reg)
            if value is None:
                value = self.undefined[reg] = self.ssa.new_value(reg, self.cfg.rpo[0], None)
        return value
