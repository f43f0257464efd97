"""Registers that carry what was read or written to where it is read again, over back edges where need be.

Computes: for each question that an accepted load leads to a register of its own; the copies that fill it behind loads
and stores; the copies on edges on which a question changes its name, which for ``A[i]``, ``A[i + 1]``, … in a loop form
a chain that moves by one with every turn; and the loads on edges where the value is missing.

Guarantees: every write to the register of a question writes the bytes that the question names at that point; so chains
of several loads may share registers. The copies of one edge happen at once: they are put into an order in which no
register is overwritten before it is read, with one more register for a cycle. Loads come after the copies.
Reference: Callahan, Carr, Kennedy, "Improving Register Allocation for Subscripted Variables", PLDI 1990 (rotation);
thesis §4.3.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...analysis.values.symbolic_values import Materializer, SymbolicValues
from ...ptx import Guard, Imm, Instr, Kernel, Loc, Mem, Reg, ScalarType, decode
from ...ptx.types import literal_bits
from ..code_motion.edges import EdgeInserter
from ..code_motion.replacement import copy, move_mnemonic
from .access_index import Provider, Question

__all__ = ["Chains", "Kind", "deliver", "kind_of"]


@dataclass(frozen=True, slots=True)
class Kind:
    """How a load fills its result: the register's type, and ``s`` or ``u`` where it extends what it reads."""

    type: ScalarType
    extension: str = ""


def kind_of(load: Instr, result: Reg) -> Kind:
    """The kind of ``result`` of ``load``."""
    scalar = load.form.type
    assert scalar is not None
    if scalar.bits >= result.type.bits:
        return Kind(result.type)
    return Kind(result.type, "s" if scalar.kind == "s" else "u")


def deliver(target: Reg, kind: Kind, size: int, provider: Provider, loc: Loc | None) -> Instr | None:
    """The instruction that puts the ``size`` bytes that ``provider`` has in its operand into ``target``; ``None`` where
    no single one does."""
    wide, narrow = kind.type.bits, 8 * size
    source = provider.operand
    if isinstance(source, Imm):
        return _deliver_literal(target, kind, size, provider, loc)
    have = source.type.bits
    if have < narrow or (wide > narrow and kind.type.is_float):
        return None
    if wide == narrow == have:
        if source.type is target.type:
            return copy_of(target, source, loc)
        return Instr(decode(f"mov.b{wide}", 2), (target, source), None, loc)
    if source.type.is_float or kind.type.is_float or wide < narrow:
        return None
    if wide == narrow:
        return Instr(decode(f"cvt.u{wide}.u{have}", 2), (target, source), None, loc)
    same = "s" if provider.scalar.kind == "s" else "u"
    if not provider.is_store and have == wide and same == kind.extension:
        return copy_of(target, source, loc)
    letter = kind.extension
    return Instr(decode(f"cvt.{letter}{wide}.{letter}{narrow}", 2), (target, source), None, loc)


def copy_of(target: Reg, source: Reg, loc: Loc | None) -> Instr:
    """``mov target, source`` with all bits; the registers have one width."""
    if target.type is source.type:
        return Instr(decode(move_mnemonic(target.type), 2), (target, source), None, loc)
    return Instr(decode(f"mov.b{target.type.bits}", 2), (target, source), None, loc)


def _deliver_literal(target: Reg, kind: Kind, size: int, provider: Provider, loc: Loc | None) -> Instr | None:
    assert isinstance(provider.operand, Imm)
    wide, narrow = kind.type.bits, 8 * size
    if provider.scalar.bits != narrow or provider.scalar.lanes != 1 or provider.scalar.name == "bf16":
        return None
    if wide < narrow or (wide > narrow and kind.type.is_float):
        return None
    try:
        bits = literal_bits(provider.operand.text, provider.scalar) & ((1 << narrow) - 1)
    except ValueError:
        return None
    if wide > narrow and kind.extension == "s" and bits >> narrow - 1:
        bits |= ((1 << wide) - 1) ^ ((1 << narrow) - 1)
    return Instr(decode(f"mov.b{wide}", 2), (target, Imm(f"0x{bits:X}")), None, loc)


class Chains:
    """Collects what accepted loads need, and writes it into the kernel."""

    def __init__(self, kernel: Kernel, symbols: SymbolicValues, inserter: EdgeInserter) -> None:
        self.kernel = kernel
        self.symbols = symbols
        self.inserter = inserter
        self._registers: dict[tuple[Question, Kind], Reg] = {}
        #: What follows an instruction, by register that it fills.
        self._behind: dict[Instr, dict[Reg, Instr]] = {}
        self._copies: dict[tuple[int, int], dict[Reg, Reg]] = {}
        self._loads: dict[tuple[int, int], dict[Reg, tuple[Question, Instr]]] = {}
        #: Loads at the end of a block, before its terminator.
        self._at_ends: dict[int, dict[Reg, tuple[Question, Instr]]] = {}
        #: Of loads at ends of blocks that are issued under a predicate.
        self._guards: dict[Reg, Guard] = {}
        self._replaced: dict[Instr, list[Instr]] = {}
        #: What the results of a replaced load are copied from.
        self._origins: dict[Instr, dict[Reg, Reg]] = {}
        #: The registers that are needed at the start of each block.
        self._needed: dict[int, set[Reg]] = {}

    def register(self, question: Question, kind: Kind) -> Reg:
        """The register that carries what ``question`` asks for."""
        found = self._registers.get((question, kind))
        if found is None:
            found = self._registers[question, kind] = self.kernel.new_reg(kind.type, "%q")
        return found

    def is_carried(self, question: Question, kind: Kind) -> bool:
        """Whether the question has a register already."""
        return (question, kind) in self._registers

    def need(self, block: int, question: Question, kind: Kind) -> None:
        """Say that the register of ``question`` has to hold its value at the start of ``block``."""
        self._needed.setdefault(block, set()).add(self.register(question, kind))

    def fill(self, question: Question, kind: Kind, provider: Provider) -> None:
        """Fill the register of ``question`` behind the provider."""
        target = self.register(question, kind)
        made = deliver(target, kind, question.bytes, provider, provider.instr.loc)
        assert made is not None
        self._behind.setdefault(provider.instr, {})[target] = made

    def rename(self, edge: tuple[int, int], target: Question, source: Question, kind: Kind) -> None:
        """On ``edge``, what was called ``source`` becomes ``target``."""
        self._copies.setdefault(edge, {})[self.register(target, kind)] = self.register(source, kind)

    def insert(self, edge: tuple[int, int], target: Question, source: Question, kind: Kind, like: Instr) -> None:
        """Load on ``edge`` into the register of ``target``; its address is that of ``source`` at the edge's start."""
        self._loads.setdefault(edge, {})[self.register(target, kind)] = (source, like)

    def inserted(self, edge: tuple[int, int], register: Reg) -> Question:
        """What is loaded on ``edge`` into ``register``, as it is called at the edge's start."""
        return self._loads[edge][register][0]

    def issue_early(self, block: int, question: Question, load: Instr, guard: Guard) -> None:
        """Let ``load`` happen at the end of ``block``, under ``guard``, into a register of its own."""
        result = load.operands[0]
        assert isinstance(result, Reg)
        early = self.kernel.new_reg(result.type, "%q")
        self._guards[early] = guard
        self._at_ends.setdefault(block, {})[early] = (question, load)
        self._replaced[load] = [copy_of(result, early, load.loc)]

    def insert_at_end(self, block: int, question: Question, kind: Kind, like: Instr) -> None:
        """Load at the end of ``block`` into the register of ``question``."""
        self._at_ends.setdefault(block, {})[self.register(question, kind)] = (question, like)

    def replace(self, load: Instr, results: list[tuple[Reg, Question, Kind]]) -> None:
        """Let ``load`` become copies of the registers that carry its values."""
        made: list[Instr] = []
        for result, question, kind in results:
            instr = copy_of(result, self.register(question, kind), load.loc)
            instr.guard = load.guard
            made.append(instr)
        self._replaced[load] = made
        if load.guard is None:
            self._origins[load] = {result: self.register(question, kind) for result, question, kind in results}

    def write(self) -> None:
        """Carry everything out."""
        # What computes addresses has to be found before anything changes.
        at_ends = {number: self._made_loads(number, loads) for number, loads in self._at_ends.items()}
        on_edges: dict[tuple[int, int], list[Instr]] = {}
        for edge, found in self._loads.items():
            copied = self._copies.get(edge, {})
            on_edges[edge] = self._made_loads(edge[0], {reg: what for reg, what in found.items() if reg not in copied})
        for number in self.symbols.cfg.rpo:
            self._rewrite(number)
        for number, code in at_ends.items():
            self._append(number, code)
        for edge in {**self._copies, **self._loads}:
            copies: dict[Reg, Reg] = self._copies.get(edge, {})
            loads = on_edges.get(edge)
            if not loads and self._fits_at_end(edge, copies):
                self._append(edge[0], self._in_order(copies))
                continue
            for instr in (*self._in_order(copies), *(loads or ())):
                self.inserter.insert(*edge, instr)
        self.inserter.commit()

    def _rewrite(self, number: int) -> None:
        """Replace loads and fill registers in one block."""
        block = self.symbols.cfg.blocks[number]
        if not any(instr in self._replaced or instr in self._behind for instr in block.instrs):
            return
        rewritten: list[Instr] = []
        for instr in block.instrs:
            rewritten.extend(self._replaced.get(instr, (instr,)))
            origins = self._origins.get(instr, {})
            for target, made in self._behind.get(instr, {}).items():
                # What has just been copied from the register need not be copied back.
                if origins.get(made.operands[1]) is not target:  # pyright: ignore[reportArgumentType]
                    rewritten.append(made)
        self.kernel.set_instrs(block, rewritten)

    def _append(self, number: int, code: list[Instr]) -> None:
        """Put ``code`` at the end of a block, before its terminator."""
        block = self.symbols.cfg.blocks[number]
        terminator = block.terminator
        at = block.instrs.index(terminator) if terminator is not None else len(block.instrs)
        self.kernel.set_instrs(block, [*block.instrs[:at], *code, *block.instrs[at:]])

    def _fits_at_end(self, edge: tuple[int, int], copies: dict[Reg, Reg]) -> bool:
        """Whether the copies may as well happen on the other ways out of the block: so a loop keeps its shape."""
        block, successor = edge
        for other in self.symbols.cfg.succ[block]:
            if other == successor:
                continue
            read = self._needed.get(other, set()) | set(self._copies.get((block, other), {}).values())
            if not read.isdisjoint(copies):
                return False
        return True

    def _made_loads(self, block: int, loads: dict[Reg, tuple[Question, Instr]]) -> list[Instr]:
        """Loads with the instructions that compute their addresses at the end of ``block``."""
        maker = Materializer(self.symbols, block)
        code: list[Instr] = []
        for target, (question, like) in loads.items():
            address = maker.address(question.base, question.offset, question.width)
            assert address is not None
            code += maker.code
            maker.code = []
            code.append(Instr(like.form, (target, Mem(*address)), self._guards.get(target), like.loc))
        return code

    def _in_order(self, copies: dict[Reg, Reg]) -> list[Instr]:
        """Copies that happen at once, one after the other."""
        waiting: dict[Reg, Reg] = {target: source for target, source in copies.items() if target is not source}
        made: list[Instr] = []
        while waiting:
            read = set(waiting.values())
            free = next((target for target in waiting if target not in read), None)
            if free is None:
                # A cycle: keep one of its registers aside.
                target = next(iter(waiting))
                aside = self.kernel.new_reg(target.type, "%q")
                made.append(copy(aside, target, made[-1] if made else _NOWHERE))
                waiting = {each: aside if source is target else source for each, source in waiting.items()}
                continue
            made.append(copy(free, waiting.pop(free), made[-1] if made else _NOWHERE))
        return made


#: An instruction that stands nowhere in the source.
_NOWHERE = Instr(decode("ret", 0), ())
