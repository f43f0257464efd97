"""The loads and stores of a kernel, arranged for questions: what provides bytes in memory, and what may change them.

Computes: for each block, by address key (space, base number, offset, bytes), the positions of the plain loads and
stores that leave the value of these bytes in a register; and the positions of everything that may change memory. The
components of a vector access are accesses of their own.

Requires: value numbers. Guarantees: a provider is unguarded and weak; `kill_of` names a reason whenever the
instruction may change the bytes in question, for this thread or by ordering it behind another thread.
Refuses: addresses of several parts, accesses that a pragma speaks of, loads that belong to a call.
Reference: thesis §4.3.2, rules (4) and (5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ...analysis.effects import is_call_parameter, is_constant_read, is_plain_store, may_not_return, may_remove
from ...analysis.manager import Facts
from ...analysis.memory.alias import Reference
from ...analysis.memory.points_to import Objects
from ...analysis.values.no_wrap import NoWrap
from ...analysis.values.symbolic_values import SymbolicValues
from ...analysis.values.value_inputs import Candidates, Ingredients
from ...ptx import Effect, Imm, Instr, Operand, Reg, ScalarType, Vec
from ...ptx.operations import Operation
from ..code_motion.expressions import is_spoken_of
from .nearest_change import Changes

__all__ = ["Accesses", "AddressKey", "Provider", "Question", "data_operands"]

_CHANGES = Effect.WRITE | Effect.BARRIER | Effect.ORDERED | Effect.ASYNC

#: The number of no value.
_NOWHERE = -2

#: (state space, number of the base, byte offset, bytes)
AddressKey: TypeAlias = tuple[str, int, int, int]


class Question(NamedTuple):
    """Bytes in memory, named in terms of the values that are current at the point where one asks.

    The address is ``base + offset``, of ``width`` bits; ``is_constant`` says that the load promises that nobody writes
    the bytes while the kernel runs. ``objects`` are those that they may lie in, ``symbol`` the one that the address
    names; both are facts about the address, whatever it is called.
    """

    space: str
    base: int
    offset: int
    bytes: int
    width: int
    is_constant: bool = False
    symbol: object | None = None
    objects: Objects = None

    @property
    def key(self) -> AddressKey:
        return self.space, self.base, self.offset, self.bytes

    @property
    def reference(self) -> Reference:
        return Reference(self.space, self.base, self.offset, self.bytes, self.symbol, self.objects)

    def at(self, base: int, offset: int) -> Question:
        """The same bytes, by another name of their address."""
        if base == self.base and offset == self.offset:
            return self
        return Question(self.space, base, offset, self.bytes, self.width, self.is_constant, self.symbol, self.objects)


@dataclass(frozen=True, slots=True)
class Provider:
    """An instruction that leaves ``operand`` with the bytes in its low bits, extended as ``scalar`` says for a load."""

    position: int
    instr: Instr
    operand: Reg | Imm
    scalar: ScalarType
    is_store: bool


@dataclass(slots=True)
class _Block:
    """The accesses of one block. ``kills`` are in ascending order of their positions."""

    providers: dict[AddressKey, list[Provider]]
    kills: list[tuple[int, Instr]]
    loads: list[tuple[int, Instr]]


def data_operands(instr: Instr) -> tuple[Operand, ...]:
    """The registers or literals that a ``ld`` writes or a ``st`` reads, by component."""
    data = instr.operands[0] if instr.form.dst_count else instr.operands[1]
    return data.elements if isinstance(data, Vec) else (data,)


class Accesses:
    """All accesses of a kernel, by block number."""

    def __init__(self, facts: Facts, symbols: SymbolicValues) -> None:
        self.facts = facts
        self.symbols = symbols
        self.values = facts.values
        self.memory = facts.memory
        self.blocks: dict[int, _Block] = {}
        #: The blocks that write memory, or let others write it.
        self.writing: set[int] = set()
        #: How many providers each address key has in the whole kernel.
        self.count: dict[AddressKey, int] = {}
        #: The blocks that have them.
        self._providing: dict[AddressKey, set[int]] = {}
        self.no_wrap = NoWrap(symbols)
        self.ingredients = Ingredients(symbols)
        #: The addresses of all providers, by space and bytes.
        self._candidates: dict[tuple[str, int], Candidates] = {}
        self._block_of: dict[Instr, int] = {}
        self._kills: dict[tuple[Instr, Question], str] = {}
        #: By block.
        self._changes: dict[int, Changes] = {}
        self._nowhere: dict[Question, Question] = {}
        self._questions: dict[Instr, Question | None] = {}
        #: What ends in a fault or never comes back, or waits for another grid: nothing moves up across it.
        self.pinches: dict[int, list[int]] = {}
        #: What else may not return: nothing that may fault moves up across it.
        self.waits: dict[int, list[int]] = {}
        for block in facts.cfg.rpo:
            found = self.blocks[block] = self._scan(block)
            if found.kills:
                self.writing.add(block)

    def _scan(self, block: int) -> _Block:
        found = _Block({}, [], [])
        instrs = self.facts.cfg.blocks[block].instrs
        for position, instr in enumerate(instrs):
            if instr.is_directive:
                continue
            form = instr.form
            effects = form.effects
            is_pinch = effects & Effect.GRID != 0
            if is_pinch:
                self.pinches.setdefault(block, []).append(position)
            elif may_not_return(form):
                self.waits.setdefault(block, []).append(position)
            if effects & (Effect.READ | Effect.WRITE):
                self._block_of[instr] = block
            if effects & Effect.READ and self.is_plain_load(instr):
                if not is_spoken_of(instrs, position):
                    found.loads.append((position, instr))
                    self._add_providers(block, found, position, instr, is_store=False)
            elif is_pinch or effects & _CHANGES:
                found.kills.append((position, instr))
                if is_plain_store(instr) and not self.values.is_late(instr):
                    self._add_providers(block, found, position, instr, is_store=True)
        return found

    def is_plain_load(self, instr: Instr) -> bool:
        """Whether the instruction is a weak ``ld`` of one address, into registers that change by definitions only."""
        form = instr.form
        if form.operation is not Operation.LOAD or form.effects & (Effect.ORDERED | Effect.BARRIER | Effect.ASYNC):
            return False
        if not may_remove(instr) or self.values.is_late(instr) or is_call_parameter(instr):
            return False
        address = instr.address
        return address is not None and not address.rest and form.type is not None

    def _add_providers(self, block: int, found: _Block, position: int, instr: Instr, *, is_store: bool) -> None:
        question = self.question(instr)
        if question is None or instr.guard is not None:
            return
        scalar = instr.form.type
        assert scalar is not None
        for number, operand in enumerate(data_operands(instr)):
            if not isinstance(operand, Reg | Imm) or (isinstance(operand, Reg) and not _is_plain(operand)):
                continue
            key = (question.space, question.base, question.offset + number * scalar.bytes, scalar.bytes)
            provider = Provider(position, instr, operand, scalar, is_store)
            found.providers.setdefault(key, []).append(provider)
            self.count[key] = self.count.get(key, 0) + 1
            self._providing.setdefault(key, set()).add(block)

    def question(self, instr: Instr) -> Question | None:
        """What the first component of a ``ld`` or ``st`` reads or writes, as a question at its place."""
        if instr in self._questions:
            return self._questions[instr]
        found = self._questions[instr] = self._question(instr)
        return found

    def _question(self, instr: Instr) -> Question | None:
        address, scalar = instr.address, instr.form.type
        reference = self.memory.reference(instr)
        if address is None or scalar is None or reference is None:
            return None
        width = address.base.type.bits if isinstance(address.base, Reg) else self._symbol_width()
        base, offset = self.normal(reference.base, width, self._block_of.get(instr, -1))
        return Question(
            reference.space,
            base,
            reference.offset + offset,
            scalar.bytes,
            width,
            is_constant_read(instr),
            reference.symbol,
            reference.objects,
        )

    def normal(self, base: int, width: int, block: int) -> tuple[int, int]:
        """An address at the end of ``block`` as a base without constants and an offset, with indices that do not wrap
        there taken apart."""
        named = self.no_wrap.normal(base, block) if width == 64 and block >= 0 else base
        return (base, 0) if named == base else self.symbols.split(named, width)

    def has_candidate(self, question: Question) -> bool:
        """Whether a provider of as many bytes in the same space has an address, other than the question's own, that
        the question might come to ask for once φs are replaced by their arguments. Looks at what addresses are made of,
        so it says yes too often."""
        candidates = self._candidates.get((question.space, question.bytes))
        if candidates is None:
            kind = question.space, question.bytes
            addresses = ((base, offset) for space, base, offset, size in self.count if (space, size) == kind)
            candidates = self._candidates[kind] = Candidates(self.ingredients, addresses)
        return candidates.may_be_met(question.base, question.offset)

    def _symbol_width(self) -> int:
        module = self.facts.module
        return module.address_size or 32 if module is not None else 64

    def providers(self, block: int, question: Question) -> list[Provider]:
        """What provides the bytes in ``block``, in the order of the text."""
        return self.blocks[block].providers.get(question.key, [])

    def concerning(self, question: Question) -> set[int]:
        """The blocks that provide the bytes or define what the address is made of. Where it is not known what it is
        made of, all that define anything."""
        found = set(self._providing.get(question.key, ()))
        leaves = self.symbols.leaves(question.base)
        if leaves is None:
            return found.union(self.symbols.defined_in)
        for leaf in leaves:
            place = self.symbols.places.get(leaf)
            if place is not None and place.position >= 0:
                found.add(place.block)
        return found

    def last_kill(self, block: int, question: Question, after: int, end: int) -> str:
        """Why the last instruction behind position ``after`` and before ``end`` that may change what the question is
        about does so; empty where none does."""
        changes = self._changes.get(block)
        if changes is None:
            changes = self._changes[block] = Changes(self.blocks[block].kills, self.memory, self.kill_of)
        return changes.reason(question, after, end)

    def kill_of(self, instr: Instr, question: Question) -> str:
        """Why the instruction may change what the question, asked at its place, is about; empty if it does not."""
        memo = (instr, question)
        known = self._kills.get(memo)
        if known is None:
            known = self._kills[memo] = self._kill_of(instr, question)
        return known

    def kill_in_other_terms(self, instr: Instr, written: Reference | None, question: Question) -> str:
        """The same for a question in terms of the values at some other point; ``written`` is what a plain store writes,
        in these terms."""
        reason = self.kill_of(instr, self._unnamed(question))
        if reason == "store" and written is not None and not self.memory.may_alias(written, question.reference):
            return ""
        return reason

    def _unnamed(self, question: Question) -> Question:
        """The question about an address of which nothing is known."""
        nowhere = self._nowhere.get(question)
        if nowhere is None:
            nowhere = self._nowhere[question] = question.at(_NOWHERE, 0)
        return nowhere

    def _kill_of(self, instr: Instr, question: Question) -> str:
        form = instr.form
        if not question.is_constant:
            return self.memory.kills(instr, question.reference)
        if not form.effects & Effect.GRID:
            return ""
        # Parameters and constants are the same for the whole kernel.
        if question.space in ("param", "const") and not form.is_opaque:
            return ""
        return "opaque" if form.is_opaque else form.op.base


def _is_plain(reg: Reg) -> bool:
    return reg.lanes == 1 and reg.type.kind in "busf" and reg.type.lanes == 1 and reg.type.bits in (16, 32, 64)
