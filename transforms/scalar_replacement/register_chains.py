"""Registers that carry values from loads and stores to where they are loaded again, also over back edges.

Computes: for each question that a replaced load is propagated to, a register of its own; the copies that fill it after
loads and stores; the copies on edges on which a question changes its name, which for ``A[i]``, ``A[i + 1]``, … in a
loop form a chain that moves by one register with each iteration; and the loads on edges where the value is missing.
`ChainPlan` collects these, `ChainWriter` writes them into the kernel.

Guarantees: every write to the register of a question writes the bytes that the question names at that point, so chains
of several loads may share registers. The copies of one edge are parallel: they are ordered so that no register is
overwritten before it is read, with one more register where they form a cycle. Loads come after the copies.
Reference: Callahan, Carr, Kennedy, "Improving Register Allocation for Subscripted Variables", PLDI 1990 (rotation);
thesis §4.3.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...analysis.values.pressure import units
from ...analysis.values.symbolic_values import Materializer, SymbolicValues
from ...ptx import Guard, Instr, Kernel, Mem, Reg
from ..code_motion.edges import EdgeInserter
from .access_index import Provider
from .block_answers import PlannedLoad
from .decisions import Component, EarlyIssue, FromPaths, Local, Replacement
from .path_costs import Insertion
from .questions import Question
from .value_copies import Kind, copy_of, deliver

__all__ = ["ChainPlan", "ChainWriter"]


@dataclass(slots=True)
class InsertedLoad:
    """A load to be written: of the bytes of ``question``, with the opcode and source line of ``like``."""

    question: Question
    like: Instr
    guard: Guard | None = None


@dataclass(slots=True)
class ChainPlan:
    """The changes of the kernel that accepted decisions need."""

    kernel: Kernel
    #: Block → the registers that have to hold their values at its start.
    needed: dict[int, set[Reg]] = field(default_factory=dict[int, set[Reg]])
    #: Access → register → the instruction after the access that fills the register.
    fills: dict[Instr, dict[Reg, Instr]] = field(default_factory=dict[Instr, dict[Reg, Instr]])
    #: Edge → register → the register that is copied to it there.
    copies: dict[tuple[int, int], dict[Reg, Reg]] = field(default_factory=dict[tuple[int, int], dict[Reg, Reg]])
    #: Edge → register → what is loaded into it there.
    edge_loads: dict[tuple[int, int], dict[Reg, InsertedLoad]] = field(
        default_factory=dict[tuple[int, int], dict[Reg, InsertedLoad]]
    )
    #: Block → register → what is loaded into it at the block's end, before its terminator.
    end_loads: dict[int, dict[Reg, InsertedLoad]] = field(default_factory=dict[int, dict[Reg, InsertedLoad]])
    #: Replaced load → the copies that replace it.
    replaced: dict[Instr, list[Instr]] = field(default_factory=dict[Instr, list[Instr]])
    #: Replaced unguarded load → its result → the register that the result is copied from.
    origins: dict[Instr, dict[Reg, Reg]] = field(default_factory=dict[Instr, dict[Reg, Reg]])
    #: (question, kind) → the register that carries its bytes.
    _registers: dict[tuple[Question, Kind], Reg] = field(default_factory=dict[tuple[Question, Kind], Reg])

    def is_needed(self, block: int, question: Question, kind: Kind) -> bool:
        """Whether a register has to hold the value of ``question`` at the start of ``block`` already."""
        return self._registers.get((question, kind)) in self.needed.get(block, ())

    def words(self, block: int) -> int:
        """The 32-bit registers that chains need at the start of ``block``."""
        return sum(units(register).words for register in self.needed.get(block, ()))

    def issue_early(self, decision: EarlyIssue) -> None:
        """Insert the load at the end of the block of ``decision``, under its guard, with a new register as its result.

        A copy of this register replaces the original load.
        """
        instr = decision.load.instr
        result = instr.operands[0]
        assert isinstance(result, Reg)
        early = self.kernel.new_reg(result.type, "%q")
        self.end_loads.setdefault(decision.block, {})[early] = InsertedLoad(decision.question, instr, decision.guard)
        self.replaced[instr] = [copy_of(result, early, instr.loc)]

    def carry(self, replacement: Replacement) -> list[Insertion]:
        """Carry the values that the load reads, and replace it by copies of them. Returns the inserted loads."""
        load = replacement.load.instr
        insertions: list[Insertion] = []
        for component, source in replacement.sources:
            if isinstance(source, Local):
                self._fill(component.question, component.kind, source.provider)
            else:
                insertions += self._carry_over_paths(load, component.kind, source)
        self._replace(load, [component for component, _ in replacement.sources])
        return insertions

    def _carry_over_paths(self, load: Instr, kind: Kind, source: FromPaths) -> list[Insertion]:
        insertions: list[Insertion] = []
        missing = {(reply.block, state) for reply, state in source.solution.insertions}
        for state in source.solution.support:
            register = self._need(state.block, state.question, kind)
            for reply in source.exploration.replies[state]:
                question, provider = reply.question, reply.answer.provider
                assert question is not None
                edge = (reply.block, state.block)
                if (reply.block, state) in missing:
                    self.edge_loads.setdefault(edge, {})[register] = InsertedLoad(question, load)
                    insertions.append((edge, register))
                    continue
                if isinstance(provider, PlannedLoad):
                    planned = InsertedLoad(question, load)
                    self.end_loads.setdefault(reply.block, {})[self._register(question, kind)] = planned
                elif provider is not None:
                    self._fill(question, kind, provider)
                if question != state.question:
                    self.copies.setdefault(edge, {})[register] = self._register(question, kind)
        return insertions

    def _register(self, question: Question, kind: Kind) -> Reg:
        register = self._registers.get((question, kind))
        if register is None:
            register = self._registers[question, kind] = self.kernel.new_reg(kind.type, "%q")
        return register

    def _need(self, block: int, question: Question, kind: Kind) -> Reg:
        """The register of ``question``, which has to hold its value at the start of ``block``."""
        register = self._register(question, kind)
        self.needed.setdefault(block, set()).add(register)
        return register

    def _fill(self, question: Question, kind: Kind, provider: Provider) -> None:
        """Fill the register of ``question`` after the provider."""
        register = self._register(question, kind)
        instr = deliver(register, kind, question.bytes, provider, provider.instr.loc)
        assert instr is not None
        self.fills.setdefault(provider.instr, {})[register] = instr

    def _replace(self, load: Instr, components: list[Component]) -> None:
        registers = [(each.result, self._register(each.question, each.kind)) for each in components]
        self.replaced[load] = [copy_of(result, register, load.loc) for result, register in registers]
        for instr in self.replaced[load]:
            instr.guard = load.guard
        if load.guard is None:
            self.origins[load] = dict(registers)


class ChainWriter:
    """Writes a plan into the kernel. ``symbols`` and ``inserter`` are those of the kernel before it changes."""

    def __init__(self, plan: ChainPlan, symbols: SymbolicValues, inserter: EdgeInserter) -> None:
        self._plan = plan
        self._kernel = plan.kernel
        self._cfg = symbols.cfg
        self._symbols = symbols
        self._inserter = inserter

    def write(self) -> None:
        """Change the kernel."""
        plan = self._plan
        # The registers that addresses are computed from have to be found before the kernel changes.
        at_ends = {block: self._loads(block, loads) for block, loads in plan.end_loads.items()}
        on_edges = {edge: self._loads(edge[0], self._not_copied(edge)) for edge in plan.edge_loads}
        for block in self._cfg.rpo:
            self._rewrite(block)
        for block, code in at_ends.items():
            self._append(block, code)
        for edge in {**plan.copies, **plan.edge_loads}:
            copies: dict[Reg, Reg] = plan.copies.get(edge, {})
            loads = on_edges.get(edge, [])
            if not loads and self._may_be_at_end(edge, copies):
                self._append(edge[0], self._in_order(copies))
                continue
            for instr in (*self._in_order(copies), *loads):
                self._inserter.insert(*edge, instr)
        self._inserter.commit()

    def _not_copied(self, edge: tuple[int, int]) -> dict[Reg, InsertedLoad]:
        """The loads on an edge into registers that no copy fills there."""
        copied = self._plan.copies.get(edge, {})
        return {register: load for register, load in self._plan.edge_loads[edge].items() if register not in copied}

    def _rewrite(self, number: int) -> None:
        """Replace loads and fill registers in one block."""
        plan, block = self._plan, self._cfg.blocks[number]
        if not any(instr in plan.replaced or instr in plan.fills for instr in block.instrs):
            return
        rewritten: list[Instr] = []
        for instr in block.instrs:
            rewritten.extend(plan.replaced.get(instr, (instr,)))
            origins = plan.origins.get(instr, {})
            for register, fill in plan.fills.get(instr, {}).items():
                source = fill.operands[1]
                # A result that was copied from the register need not be copied back.
                if not isinstance(source, Reg) or origins.get(source) is not register:
                    rewritten.append(fill)
        self._kernel.set_instrs(block, rewritten)

    def _append(self, number: int, code: list[Instr]) -> None:
        """Put ``code`` at the end of a block, before its terminator."""
        block = self._cfg.blocks[number]
        terminator = block.terminator
        at = block.instrs.index(terminator) if terminator is not None else len(block.instrs)
        self._kernel.set_instrs(block, [*block.instrs[:at], *code, *block.instrs[at:]])

    def _may_be_at_end(self, edge: tuple[int, int], copies: dict[Reg, Reg]) -> bool:
        """Whether the copies may be executed on the other edges out of the block, too. Then a loop keeps its shape."""
        plan, (block, successor) = self._plan, edge
        for other in self._cfg.succ[block]:
            if other == successor:
                continue
            read = plan.needed.get(other, set()) | set(plan.copies.get((block, other), {}).values())
            if not read.isdisjoint(copies):
                return False
        return True

    def _loads(self, block: int, loads: dict[Reg, InsertedLoad]) -> list[Instr]:
        """The loads, and the instructions that compute their addresses at the end of ``block``."""
        maker = Materializer(self._symbols, block)
        code: list[Instr] = []
        for register, load in loads.items():
            question, like = load.question, load.like
            address = maker.address(question.base, question.offset, question.width)
            assert address is not None
            code += maker.code
            maker.code = []
            code.append(Instr(like.form, (register, Mem(*address)), load.guard, like.loc))
        return code

    def _in_order(self, copies: dict[Reg, Reg]) -> list[Instr]:
        """A sequence of copies with the effect of the parallel ``copies`` (target → source)."""
        waiting: dict[Reg, Reg] = {target: source for target, source in copies.items() if target is not source}
        sequence: list[Instr] = []
        while waiting:
            read = set(waiting.values())
            target = next((target for target in waiting if target not in read), None)
            if target is not None:
                sequence.append(copy_of(target, waiting.pop(target), None))
                continue
            # All targets are read: save one of them, and read the saved value instead.
            saved = next(iter(waiting))
            register = self._kernel.new_reg(saved.type, "%q")
            sequence.append(copy_of(register, saved, None))
            waiting = {target: register if source is saved else source for target, source in waiting.items()}
        return sequence
