"""The expressions that code motion works on, and their local predicates.

Computes: classes of instructions that compute one value, by one of two namings, and for each block and class

    antloc   an occurrence before any change of the value in the block      (an entry computation)
    comp     an occurrence after the last change of the value in the block  (an exit computation)
    exit_comp  a comp that is also after the last pinch
    kill     an instruction of the block changes an operand or the memory   (not transparent)
    pinch    an instruction of the block may not return, or waits for the previous grid (``griddepcontrol``), so that a
             load that may fault must not move up across it, even if nobody writes its memory

*lexical* naming: same opcode and same operand registers. Any definition of an operand register changes the value.
*value* naming: same value number (`value_numbering.py`), with any register names. A definition of a value in the class
of an operand changes the value, and so does a φ of that class at the start of a block (``phi_kill``).

Sets of classes are ints used as bit vectors. Only classes that code motion may improve are numbered: those with two or
more occurrences, and those with one occurrence inside a loop that defines no operand of it.

Requires: SSA view, value numbers and loops of the current version of the kernel. Guarantees: the registers of an
occurrence hold the operands at each point above it that is reached upwards without passing a ``kill`` or ``phi_kill``:
SSA dominance implies that the definition of an operand dominates such a point, and that its register is not overwritten
in between.
Reference: Knoop, Rüthing, Steffen, PLDI 1992; thesis §2.1 (entry and exit parts).
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from ...analysis.effects import is_plain_store, is_promised_read, may_not_return
from ...analysis.graph.cfg import Cfg
from ...analysis.manager import Facts
from ...analysis.memory.alias import Memory, Reference, is_inside_object, is_mutable_read
from ...analysis.memory.alias_bitsets import ReferenceSet
from ...analysis.memory.touched_memory import synchronization
from ...analysis.values.value_numbering import Values
from ...ptx import TYPES, Directive, Effect, Instr, Reg, ScalarType

__all__ = [
    "Candidates",
    "ExpressionClass",
    "LocalPredicates",
    "Naming",
    "Occurrence",
    "Transfer",
    "candidates_by_name",
    "candidates_by_value",
    "collect",
    "is_described_by_pragma",
    "local_predicates",
    "movable",
    "rewritten_candidates",
]


#: The base of a reference with an unknown base; no store has it.
_NO_BASE = -1
_CHANGES = Effect.WRITE | Effect.BARRIER | Effect.ORDERED | Effect.ASYNC


@dataclass(eq=False, slots=True)
class Occurrence:
    """An instruction that computes the class's value, in block number ``block``."""

    block: int
    instr: Instr


@dataclass(eq=False, slots=True)
class ExpressionClass:
    """Instructions that compute one value. ``names`` are the names of its operands under the naming."""

    number: int
    type: ScalarType
    occurrences: list[Occurrence] = field(default_factory=list[Occurrence])
    names: set[Hashable] = field(default_factory=set[Hashable])
    result: Hashable = None  #: the name of its value
    #: The memory that a load reads, if it may be written.
    reference: Reference | None = None
    is_mutable: bool = False
    is_unwritten: bool = False  #: nobody writes the memory while the kernel runs

    @property
    def instr(self) -> Instr:
        """One of the evaluations, for what all of them have in common."""
        return self.occurrences[0].instr

    @property
    def cost(self) -> int:
        """The cost of an evaluation, by the opcode table."""
        return self.instr.form.op.cost

    @property
    def may_fault(self) -> bool:
        """Whether an evaluation may fault: true for a load, except from inside a parameter or constant."""
        form = self.instr.form
        if form.effects & Effect.TRAP == 0:
            return False
        return form.space not in ("param", "const") or not is_inside_object(self.instr)


class Naming:
    """How instructions are keyed, the names of their operands, and which names an instruction redefines."""

    def __init__(self, values: Values, *, by_value: bool, only_rewritten: bool = False) -> None:
        self.by_value = by_value
        self.values = values
        self.ssa = values.ssa
        #: The instructions that read a register with several definitions, if only these are of interest.
        self._readers = self.ssa.readers_of_rewritten() if only_rewritten else None

    def key(self, instr: Instr, reg: Reg, bank: str) -> Hashable:
        """A key that is equal for instructions that compute one value into registers of one bank (``bank``)."""
        form = instr.form
        is_by_address = form.effects & Effect.READ and (is_mutable_read(instr) or instr in self.values.awaiting)
        if self.by_value and not is_by_address:
            return (self.values.result[instr], bank)
        operands: tuple[Hashable, ...] = tuple(operand.text for operand in instr.operands[1:])
        if self.by_value:
            address = instr.address
            if address is None or address.rest or len(instr.operands) != 2:
                return ("unique", id(instr))
            operands = self.values.address(instr, address)
        mods = (*sorted(form.mods.items()), *sorted(form.flags))
        return (form.op.pattern, mods, operands, reg.type.name)

    def of_interest(self, instrs: list[Instr]) -> list[Instr]:
        """Those of ``instrs`` that may move."""
        readers, values = self._readers, self.values
        if readers is not None:
            instrs = [instr for instr in instrs if instr in readers]
        return [instr for instr in instrs if not values.is_late(instr)] if values.late else instrs

    def reference(self, load: Instr, memory: Memory) -> Reference | None:
        """The memory that ``load`` and all loads with its key read. If a register name stands for several values, only
        the state space of the address is known."""
        exact = memory.reference(load)
        if exact is None or self.by_value or all(self.ssa.is_single(reg) for reg in load.uses()):
            return exact
        return exact._replace(base=_NO_BASE, objects=None)

    def operand_names(self, instr: Instr) -> Iterable[Hashable]:
        """The names of the registers that the instruction reads."""
        if not self.by_value:
            return instr.uses()
        number, read = self.values.number, self.ssa.read
        return [number[read(instr, reg)] for reg in instr.uses()]

    def defined_names(self, instr: Instr) -> Sequence[Hashable]:
        """The names to which the instruction gives a new value."""
        if self.by_value:
            result = self.values.result.get(instr)
            if result is not None:
                return (result,)
        defs = instr.defs()
        if not self.by_value or not defs:
            return defs
        number, defined = self.values.number, self.ssa.defined
        return [number[defined(instr, reg)] for reg in defs]

    def definitions_of(self, names: Container[Hashable], cfg: Cfg) -> list[tuple[Instr, Hashable]]:
        """The instructions of the kernel that give a new value to one of ``names``, with each such name."""
        if self.by_value:
            found: list[tuple[Instr, Hashable]] = [each for each in self.values.result.items() if each[1] in names]
            return found + [each for each in self.values.several if each[1] in names]
        blocks = [cfg.blocks[block].instrs for block in cfg.rpo]
        return [(instr, reg) for instrs in blocks for instr in instrs for reg in instr.defs() if reg in names]

    def phi_names(self, block: int) -> list[Hashable]:
        """The names that get new values at the start of the block."""
        if not self.by_value:
            return []
        # A φ of values of one class changes nothing: its register holds the value before and after it.
        number, arguments = self.values.number, self.ssa.phi_args
        return [
            number[phi]
            for phi in self.ssa.phis[block]
            if any(number[value] != number[phi] for _, value in arguments[phi])
        ]


def _bank(scalar: ScalarType) -> str:
    """The bank of a register of this type: registers of one bank can replace each other in every instruction."""
    kind = "i" if scalar.kind in "usb" else scalar.kind if scalar.lanes == 1 else scalar.name
    return f"{kind}:{scalar.bits}"


#: By name of each type whose registers a ``mov`` can copy: its bank.
_BANKS = {each.name: _bank(each) for each in TYPES.values() if each.kind == "p" or each.bits in (16, 32, 64)}


@dataclass(frozen=True, slots=True)
class Candidates:
    """The input of one round of code motion."""

    naming: Naming
    classes: list[ExpressionClass]
    local: LocalPredicates


def candidates_by_value(facts: Facts) -> Candidates:
    """The classes by value; a fact for `Facts.get`, so that passes share it until the kernel changes."""
    return _candidates(facts, Naming(facts.values, by_value=True))


def candidates_by_name(facts: Facts) -> Candidates:
    """The classes by name of all instructions; a fact for `Facts.get`."""
    return _candidates(facts, Naming(facts.values, by_value=False))


def rewritten_candidates(facts: Facts) -> Candidates:
    """The classes by name of the instructions that read a register with several definitions; a fact for `Facts.get`.
    Registers with one definition have equal values where they have equal names, which the classes by value cover."""
    return _candidates(facts, Naming(facts.values, by_value=False, only_rewritten=True))


def _candidates(facts: Facts, naming: Naming) -> Candidates:
    classes = collect(facts, naming)
    return Candidates(naming, classes, local_predicates(facts, classes, naming))


def collect(facts: Facts, naming: Naming) -> list[ExpressionClass]:
    """The classes that code motion may improve, numbered from 0."""
    #: By key of `Naming.key`: the only (block, instruction), or the class if there are several instructions.
    found: dict[Hashable, tuple[int, Instr] | ExpressionClass] = {}
    several: list[ExpressionClass] = []
    for block, instrs in facts.get(movable):
        for instr in naming.of_interest(instrs):
            result = instr.operands[0]
            assert isinstance(result, Reg)
            bank = _BANKS.get(result.type.name)
            if bank is None:
                continue
            key = naming.key(instr, result, bank)
            known = found.get(key)
            if known is None:
                found[key] = (block, instr)
            elif isinstance(known, ExpressionClass):
                known.occurrences.append(Occurrence(block, instr))
            else:
                found[key] = item = ExpressionClass(-1, result.type, [Occurrence(*known), Occurrence(block, instr)])
                several.append(item)
    loop_of = facts.loops.loop_of
    inside = [each for each in found.values() if not isinstance(each, ExpressionClass) and loop_of[each[0]] >= 0]
    alone = [
        ExpressionClass(-1, instr.operands[0].type, [Occurrence(block, instr)])  # pyright: ignore
        for block, instr in _invariant(inside, facts, naming)
    ]
    return _numbered([*several, *alone], facts, naming)


def _invariant(inside: list[tuple[int, Instr]], facts: Facts, naming: Naming) -> list[tuple[int, Instr]]:
    """Those of the (block, instruction) pairs inside loops whose operands the loop does not define."""
    if not inside:
        return []
    loop_of, operand_names = facts.loops.loop_of, naming.operand_names
    defined_in_loop = _names_defined_in_loops(facts, naming)
    return [
        (block, instr) for block, instr in inside if defined_in_loop[loop_of[block]].isdisjoint(operand_names(instr))
    ]


def movable(facts: Facts) -> list[tuple[int, list[Instr]]]:
    """By block, in reverse postorder: the instructions that compute a value of nonzero cost into a register and may
    move. Products that ptxas may contract and the sums that read them are excluded (`Facts.fixed_instructions`)."""
    cfg = facts.cfg
    may_move = facts.values.movable
    fixed = facts.fixed_instructions
    by_block: list[tuple[int, list[Instr]]] = []
    for block in cfg.rpo:
        instrs = cfg.blocks[block].instrs
        moving = [
            instr
            for at, instr in enumerate(instrs)
            if instr in may_move
            and instr.form.op.cost
            and instr not in fixed
            # For the first instruction this tests the last one as well, and `is_described_by_pragma` then answers no.
            and not (instrs[at - 1].is_directive and is_described_by_pragma(instrs, at))
        ]
        if moving:
            by_block.append((block, moving))
    return by_block


def is_described_by_pragma(instrs: list[Instr], position: int) -> bool:
    """Whether the instruction follows a ``.pragma`` that describes it, such as ``used_bytes_mask``."""
    if position == 0:
        return False
    before = instrs[position - 1]
    return isinstance(before, Directive) and before.kind == "pragma" and "used_bytes_mask" in before.payload


def _numbered(classes: list[ExpressionClass], facts: Facts, naming: Naming) -> list[ExpressionClass]:
    """The classes, numbered and with all their fields filled in."""
    for number, candidate in enumerate(classes):
        candidate.result = naming.defined_names(candidate.instr)[0]
        for occurrence in candidate.occurrences:
            candidate.names.update(naming.operand_names(occurrence.instr))
        candidate.is_mutable = is_mutable_read(candidate.instr)
        if candidate.is_mutable:
            memory = facts.memory
            candidate.reference = naming.reference(candidate.instr, memory)
            candidate.is_unwritten = all(memory.is_unwritten(each.instr) for each in candidate.occurrences)
        candidate.number = number
    return classes


def _names_defined_in_loops(facts: Facts, naming: Naming) -> list[set[Hashable]]:
    """By loop number: the names that are redefined inside the loop, inner loops included."""
    loops = facts.loops
    defined: list[set[Hashable]] = [set() for _ in loops.loops]
    cfg = facts.cfg
    for block in cfg.rpo:
        loop = loops.loop_of[block]
        if loop < 0:
            continue
        names = set(naming.phi_names(block)).union(*map(naming.defined_names, cfg.blocks[block].instrs))
        while loop >= 0:
            defined[loop] |= names
            loop = loops.loops[loop].parent
    return defined


@dataclass(slots=True)
class LocalPredicates:
    """By block number: sets of class numbers; see the header of the module."""

    antloc: list[int]
    comp: list[int]
    kill: list[int]
    pinch: list[int]
    phi_kill: list[int]
    exit_comp: list[int]
    transfer: Transfer


class Transfer:
    """The classes whose value an instruction changes, and those that must not move up across it."""

    def __init__(self, classes: list[ExpressionClass], naming: Naming, facts: Facts) -> None:
        self.naming = naming
        self.by_name: dict[Hashable, int] = {}
        written = [candidate for candidate in classes if candidate.is_mutable and not candidate.is_unwritten]
        self._loads = _Loads(written, facts.memory) if written else None
        self.faulting = 0
        #: Loads that promise that nobody writes the memory. A grid for which the kernel waits may still write it.
        self.promised = 0
        for candidate in classes:
            bit = 1 << candidate.number
            if is_promised_read(candidate.instr):
                self.promised |= bit
            for name in candidate.names:
                self.by_name[name] = self.by_name.get(name, 0) | bit
            if candidate.may_fault:
                self.faulting |= bit
        #: By instruction: the classes whose values it may change.
        self.kills: dict[Instr, int] = self._changed(facts) if classes else {}

    def kill(self, instr: Instr) -> int:
        """Classes whose value the instruction may change."""
        return self.kills.get(instr, 0)

    def _changed(self, facts: Facts) -> dict[Instr, int]:
        by_name = self.by_name
        changed: dict[Instr, int] = {}
        for instr, name in self.naming.definitions_of(by_name, facts.cfg):
            changed[instr] = changed.get(instr, 0) | by_name[name]
        if self._loads is not None or self.promised:
            for instr in facts.get(_changing_memory):
                classes = self._loads.changed_by(instr) if self._loads is not None else 0
                if instr.form.effects & Effect.GRID:
                    classes |= self.promised
                if classes:
                    changed[instr] = changed.get(instr, 0) | classes
        return changed

    def phi_kill(self, block: int) -> int:
        """The classes whose value changes at a φ of ``block``, as bits."""
        killed = 0
        for name in self.naming.phi_names(block):
            killed |= self.by_name.get(name, 0)
        return killed


def _changing_memory(facts: Facts) -> list[Instr]:
    """The instructions that may change memory, or after which another thread may have changed it."""
    blocks = facts.cfg.blocks
    return [
        instr
        for block in facts.cfg.rpo
        for instr in blocks[block].instrs
        if instr.form.effects & _CHANGES and not instr.is_directive
    ]


def _pinching(facts: Facts) -> frozenset[Instr]:
    """The instructions across which a load that may fault must not move up (`may_not_return`). Some of them wait for a
    grid that may still write memory which is read-only afterwards."""
    blocks = facts.cfg.blocks
    return frozenset(
        instr
        for block in facts.cfg.rpo
        for instr in blocks[block].instrs
        if may_not_return(instr.form) and not instr.is_directive
    )


class _Loads:
    """The classes that load from memory that may be written."""

    def __init__(self, loads: Sequence[ExpressionClass], memory: Memory) -> None:
        self.memory = memory
        #: Bits of class numbers; ``private``: no other thread accesses the memory.
        self.all = self.private = 0
        references: list[Reference | None] = [None] * (loads[-1].number + 1)
        for item in loads:
            self.all |= 1 << item.number
            references[item.number] = item.reference
            if item.reference is not None and memory.is_private(item.reference):
                self.private |= 1 << item.number
        self._set = ReferenceSet(memory, references)

    def changed_by(self, instr: Instr) -> int:
        """The classes whose memory ``instr``, or a thread that synchronizes by it, may have written."""
        if is_plain_store(instr):
            store = self.memory.reference(instr)
            return self.all if store is None else self.all & self._set.overlapping(store)
        why = synchronization(instr.form)
        if why in ("call", "opaque"):
            return self.all
        changed = self.all & ~self.private if why else 0
        for access in self.memory.accesses(instr):
            if access.writes:
                changed |= self.all & self._set.touched_by(access)
        return changed


def local_predicates(facts: Facts, classes: list[ExpressionClass], naming: Naming) -> LocalPredicates:
    """The local predicates of all classes in all reachable blocks."""
    cfg = facts.cfg
    count = len(cfg.blocks)
    transfer = Transfer(classes, naming, facts)
    result = LocalPredicates([0] * count, [0] * count, [0] * count, [0] * count, [0] * count, [0] * count, transfer)
    bit_of = {occurrence.instr: 1 << item.number for item in classes for occurrence in item.occurrences}
    kills = transfer.kills
    pinches = facts.get(_pinching) if transfer.faulting else frozenset[Instr]()
    matters = {*bit_of, *kills, *pinches}
    for block in cfg.rpo if classes else ():
        result.phi_kill[block] = transfer.phi_kill(block)
        antloc = comp = exit_comp = killed = pinched = 0
        for instr in [each for each in cfg.blocks[block].instrs if each in matters]:
            bit = bit_of.get(instr)
            if bit is not None:
                antloc |= bit & ~(killed | pinched)
                comp |= bit
                exit_comp |= bit
            kill = kills.get(instr)
            if kill is not None:
                killed |= kill
                comp &= ~kill
                exit_comp &= ~kill
            if instr in pinches:
                pinched = transfer.faulting
                exit_comp &= ~pinched
        result.antloc[block] = antloc
        result.comp[block] = comp
        result.exit_comp[block] = exit_comp
        result.kill[block] = killed
        result.pinch[block] = pinched
    return result
