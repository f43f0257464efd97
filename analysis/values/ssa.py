"""A static single assignment view of a kernel, which stays unchanged.

Computes: for each read of a register the value that it reads. A value is a definition, a φ at the start of a block, or
the undefined value of a register at entry. φs are pruned by liveness.

Most registers of compiler output are written once, by an unguarded instruction that dominates all reads; they need no φ
and no renaming. A may-definition (guarded, component, opaque) makes a new value that also depends on the old one.

Requires: the CFG and dominance of the same version. Guarantees: every read in a reachable block has a value.
Reference: Cytron et al., TOPLAS 1991; Briggs et al., "Practical Improvements to the Construction and Destruction of
Static Single Assignment Form", 1998 (pruning).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import count

from ...ptx import Instr, Reg
from ..effects import is_may_definition
from ..graph.cfg import Cfg
from ..graph.dominance import Dominance
from .liveness import Liveness

__all__ = ["Ssa", "build_ssa"]


class Ssa:
    """Values are numbered from 0. ``instr[v]`` is the defining instruction, ``None`` for a φ or an undefined value;
    ``phi_args[v]`` lists (predecessor block, value) of a φ; ``block[v]`` is where it is defined."""

    __slots__ = ("_definitions", "_reads", "block", "instr", "old", "phi_args", "phis", "reg", "single", "undefined")

    def __init__(self, block_count: int) -> None:
        self.instr: list[Instr | None] = []
        self.reg: list[Reg] = []
        self.block: list[int] = []
        self.phi_args: dict[int, list[tuple[int, int]]] = {}
        #: By block: its φs.
        self.phis: list[list[int]] = [[] for _ in range(block_count)]
        #: For a may-definition, the value that may survive it.
        self.old: dict[int, int] = {}
        #: The values that are neither a φ nor defined by an instruction, ascending.
        self.undefined: list[int] = []
        #: By register with at most one definition, which dominates every read of it: its value.
        self.single: dict[Reg, int] = {}
        #: By (instruction, register), for all other registers, the value that is read and that is defined.
        self._reads: dict[tuple[Instr, Reg], int] = {}
        self._definitions: dict[tuple[Instr, Reg], int] = {}

    def new_value(self, reg: Reg, block: int, instr: Instr | None) -> int:
        """Make a value of ``reg`` in ``block``, written by ``instr``, or by no instruction. Returns its number."""
        self.instr.append(instr)
        self.reg.append(reg)
        self.block.append(block)
        return len(self.instr) - 1

    def new_undefined(self, reg: Reg, block: int) -> int:
        """Make the value that ``reg`` has before it is written."""
        value = self.new_value(reg, block, None)
        self.undefined.append(value)
        return value

    def add_single(self, definitions: dict[Reg, Instr], blocks: Iterable[int]) -> None:
        """Make values for registers with one definition each. ``blocks`` are the blocks of the definitions."""
        self.single.update(zip(definitions, count(len(self.instr))))
        self.reg.extend(definitions)
        self.instr.extend(definitions.values())
        self.block.extend(blocks)

    def forget_others(self, among: Set[Reg]) -> None:
        """Restrict `single` to registers ``among``."""
        self.single = {reg: value for reg, value in self.single.items() if reg in among}

    def read(self, instr: Instr, reg: Reg) -> int:
        """The value that ``instr`` reads from ``reg``. ``KeyError`` in an unreachable block."""
        single = self.single
        return single[reg] if reg in single else self._reads[instr, reg]

    def defined(self, instr: Instr, reg: Reg) -> int:
        """The value of ``reg`` that ``instr`` defines."""
        single = self.single
        return single[reg] if reg in single else self._definitions[instr, reg]

    def is_single(self, reg: Reg) -> bool:
        """Whether the register has at most one definition, which dominates every read of it."""
        return reg in self.single

    def readers_of_rewritten(self) -> set[Instr]:
        """The instructions that read a register for which `is_single` is false."""
        return {instr for instr, _ in self._reads}


def single_definitions(cfg: Cfg, dominance: Dominance, among: Set[Reg]) -> Ssa:
    """A view of the registers ``among`` without φs: sufficient for `Ssa.is_single` of these registers."""
    builder = _Builder(cfg, dominance)
    builder.find_mentions(among)
    builder.find_single_definitions(builder.mentions)
    builder.ssa.forget_others(among)
    return builder.ssa


def build_ssa(cfg: Cfg, dominance: Dominance) -> Ssa:
    """The SSA view of the kernel of ``cfg``."""
    return _Builder(cfg, dominance).build()


class _Builder:
    def __init__(self, cfg: Cfg, dominance: Dominance) -> None:
        self.cfg = cfg
        self.dominance = dominance
        self.ssa = Ssa(len(cfg.blocks))
        #: By register that needs φs or several values: the blocks that define it.
        self.complex: dict[Reg, list[int]] = {}
        #: By block: the instructions that read or write such a register, in text order, if there are any.
        self.mentions: dict[int, list[Instr]] = {}
        #: By register that may be read before it is written: its value at entry.
        self.entry: dict[Reg, int] = {}

    def build(self) -> Ssa:
        self.find_single_definitions({block: self.cfg.blocks[block].instrs for block in self.cfg.rpo})
        if self.complex:
            self.find_mentions(self.complex.keys())
            self.place_phis()
            self.rename()
        return self.ssa

    def find_single_definitions(self, code: Mapping[int, Sequence[Instr]]) -> None:
        """Make the values of registers with one dominating definition; collect all others in ``complex``. ``code``: by
        block its instructions that matter, if there are any."""
        cfg, complex_ = self.cfg, self.complex
        dominates = self.dominance.dominates
        #: By register with one definition so far: this definition, and its block.
        first: dict[Reg, Instr] = {}
        home: dict[Reg, int] = {}
        home_of = home.get
        # One pass is enough: a definition that dominates a read comes before it in reverse postorder, or earlier in the
        # same block.
        undominated: dict[Reg, None] = {}
        for block in cfg.rpo:
            here: set[Reg] = set()  # known to be dominated
            for instr in code.get(block, ()):
                for reg in instr.uses():
                    where = home_of(reg)
                    if where != block and reg not in here:
                        if where is None or not dominates(where, block):
                            undominated[reg] = None
                        else:
                            here.add(reg)
                target = instr.operands[0] if instr.form.dst_count == 1 and instr.guard is None else None
                if type(target) is Reg and target not in home and target not in complex_:
                    first[target] = instr  # most instructions
                    home[target] = block
                    continue
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
        for reg in undominated:
            if reg in home:
                del first[reg]
                complex_[reg] = [home.pop(reg)]
            elif reg not in complex_:
                ssa.single[reg] = ssa.new_undefined(reg, root)
        ssa.add_single(first, home.values())

    def find_mentions(self, among: Set[Reg]) -> None:
        """Find the instructions that read or write one of ``among``."""
        cfg, mentions = self.cfg, self.mentions
        has_none = frozenset(among).isdisjoint
        for block in cfg.rpo:
            mentioning = [
                instr for instr in cfg.blocks[block].instrs if not (has_none(instr.uses()) and has_none(instr.defs()))
            ]
            if mentioning:
                mentions[block] = mentioning

    def place_phis(self) -> None:
        """Place φs at the iterated dominance frontier of the definitions, where the register is live."""
        frontier = self.dominance.frontier()
        if not any(frontier):
            return
        live = Liveness(self.cfg, self.complex, self.mentions)
        ssa = self.ssa
        for reg, blocks in self.complex.items():
            if reg not in live.index:
                continue  # never live across a boundary
            column, bit = live.column_in(reg)
            placed: set[int] = set()
            work = list(blocks)
            while work:
                for join in frontier[work.pop()]:
                    if join not in placed and (column(join) or 0) & bit:
                        placed.add(join)
                        ssa.phis[join].append(ssa.new_value(reg, join, None))
                        work.append(join)

    def rename(self) -> None:
        """Walk the dominator tree and track the current value of each complex register."""
        ssa, succ, phis = self.ssa, self.cfg.succ, self.ssa.phis
        mentions, children = self.mentions, self.dominance.children
        current: dict[Reg, int] = {}
        # An entry is a block to visit, or the list of (register, previous value) to restore after a subtree.
        stack: list[int | list[tuple[Reg, int | None]]] = [self.cfg.rpo[0]]
        while stack:
            block = stack.pop()
            if not isinstance(block, int):
                for reg, value in reversed(block):
                    if value is None:
                        del current[reg]
                    else:
                        current[reg] = value
                continue
            if phis[block] or block in mentions:
                undo: list[tuple[Reg, int | None]] = []
                self.rename_block(block, current, undo)
                if undo:
                    stack.append(undo)
            for successor in succ[block]:
                for phi in phis[successor]:
                    ssa.phi_args.setdefault(phi, []).append((block, self.value_of(ssa.reg[phi], current)))
            stack.extend(reversed(children[block]))

    def rename_block(self, block: int, current: dict[Reg, int], undo: list[tuple[Reg, int | None]]) -> None:
        ssa, complex_ = self.ssa, self.complex
        reads, definitions = ssa._reads, ssa._definitions  # pyright: ignore[reportPrivateUsage]
        for phi in ssa.phis[block]:
            reg = ssa.reg[phi]
            undo.append((reg, current.get(reg)))
            current[reg] = phi
        for instr in self.mentions.get(block, ()):
            for reg in instr.uses():
                if reg in complex_:
                    reads[instr, reg] = current[reg] if reg in current else self.value_of(reg, current)
            for reg in instr.defs():
                if reg in complex_:
                    value = ssa.new_value(reg, block, instr)
                    if is_may_definition(instr):
                        ssa.old[value] = self.value_of(reg, current)
                    definitions[instr, reg] = value
                    undo.append((reg, current.get(reg)))
                    current[reg] = value

    def value_of(self, reg: Reg, current: dict[Reg, int]) -> int:
        """The current value of ``reg``; its undefined value if it has not been written yet."""
        value = current.get(reg)
        if value is None:
            value = self.entry.get(reg)
            if value is None:
                value = self.entry[reg] = self.ssa.new_undefined(reg, self.cfg.rpo[0])
        return value
