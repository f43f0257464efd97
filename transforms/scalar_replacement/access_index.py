"""The loads and stores of a kernel, indexed by address: what provides bytes of memory, and what may change them.

Computes, for each block: by address key (space, base, offset, bytes) the positions of the plain loads and stores that
leave the value of these bytes in a register; and the positions of all instructions that may change memory. Each
component of a vector access is indexed as an access of its own.

Requires: value numbers. Guarantees: a provider is unguarded and weak.
Refuses: addresses of several parts, accesses that a pragma describes, loads that belong to a call.
Reference: thesis §4.3.2, rule (5).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...analysis.effects import is_call_parameter, is_constant_read, is_plain_store, may_not_return, may_remove
from ...analysis.manager import Facts
from ...analysis.memoized import memoized
from ...analysis.values.no_wrap import NoWrap
from ...analysis.values.symbolic_values import SymbolicValues
from ...analysis.values.value_inputs import ValueInputs
from ...ptx import Effect, Imm, Instr, Operand, Reg, ScalarType, Vec
from ...ptx.operations import Operation
from ..code_motion.expressions import is_described_by_pragma
from .kills import BlockKills, Kills
from .questions import AddressKey, Question

__all__ = ["Accesses", "BlockAccesses", "Provider", "data_operands"]

_CHANGES = Effect.WRITE | Effect.BARRIER | Effect.ORDERED | Effect.ASYNC


@dataclass(frozen=True, slots=True)
class Provider:
    """A load or store with the value of some bytes in ``operand``.

    The bytes are the low bits of the operand; where it is wider, a load has extended them as ``scalar`` says.
    """

    position: int
    instr: Instr
    operand: Reg | Imm
    scalar: ScalarType
    is_store: bool


@dataclass(slots=True)
class BlockAccesses:
    """The accesses of one block: positions and instructions in the order of the text."""

    #: Address → the providers of its bytes.
    providers: dict[AddressKey, list[Provider]] = field(default_factory=dict[AddressKey, list[Provider]])
    #: The instructions that may change memory, or let other threads change it.
    kills: list[tuple[int, Instr]] = field(default_factory=list[tuple[int, Instr]])
    loads: list[tuple[int, Instr]] = field(default_factory=list[tuple[int, Instr]])


def data_operands(instr: Instr) -> tuple[Operand, ...]:
    """The registers or literals that a ``ld`` writes or a ``st`` reads, by component."""
    data = instr.operands[0] if instr.form.dst_count else instr.operands[1]
    return data.elements if isinstance(data, Vec) else (data,)


class Accesses:
    """All accesses of a kernel."""

    def __init__(self, facts: Facts, symbols: SymbolicValues) -> None:
        self.symbols = symbols
        self.kills = Kills(facts.memory)
        #: By reachable block: its accesses.
        self.blocks: dict[int, BlockAccesses] = {}
        #: The blocks that have kills.
        self.writing: set[int] = set()
        #: Address → the number of its providers in the whole kernel.
        self.count: dict[AddressKey, int] = {}
        #: Block → the positions of calls, which may fault or never return, and of waits for another grid. No load moves
        #: up across them.
        self.pinches: dict[int, list[int]] = {}
        #: Block → the positions of other instructions that may not return. No load that may fault moves up across them.
        self.waits: dict[int, list[int]] = {}
        self.inputs = ValueInputs(symbols)
        self._facts = facts
        self._values = facts.values
        self._memory = facts.memory
        self._no_wrap = NoWrap(symbols)
        #: Address → the blocks with a provider of it.
        self._providing: dict[AddressKey, set[int]] = {}
        self._block_of: dict[Instr, int] = {}
        for block in facts.cfg.rpo:
            accesses = self.blocks[block] = self._scan(block)
            if accesses.kills:
                self.writing.add(block)

    def _scan(self, block: int) -> BlockAccesses:
        accesses = BlockAccesses()
        instrs = self._facts.cfg.blocks[block].instrs
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
            if effects & Effect.READ and self._is_plain_load(instr):
                if not is_described_by_pragma(instrs, position):
                    accesses.loads.append((position, instr))
                    self._add_providers(block, accesses, position, instr, is_store=False)
            elif is_pinch or effects & _CHANGES:
                accesses.kills.append((position, instr))
                if is_plain_store(instr) and not self._values.is_late(instr):
                    self._add_providers(block, accesses, position, instr, is_store=True)
        return accesses

    def _is_plain_load(self, instr: Instr) -> bool:
        """Whether the instruction is a weak ``ld`` of one address, into registers that change by definitions only."""
        form = instr.form
        if form.operation is not Operation.LOAD or form.effects & (Effect.ORDERED | Effect.BARRIER | Effect.ASYNC):
            return False
        if not may_remove(instr) or self._values.is_late(instr) or is_call_parameter(instr):
            return False
        address = instr.address
        return address is not None and not address.rest and form.type is not None

    def _add_providers(
        self, block: int, accesses: BlockAccesses, position: int, instr: Instr, *, is_store: bool
    ) -> None:
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
            accesses.providers.setdefault(key, []).append(provider)
            self.count[key] = self.count.get(key, 0) + 1
            self._providing.setdefault(key, set()).add(block)

    @memoized
    def question(self, instr: Instr) -> Question | None:
        """The bytes that the first component of a ``ld`` or ``st`` reads or writes, named as at the instruction."""
        address, scalar = instr.address, instr.form.type
        reference = self._memory.reference(instr)
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
        """An address at the end of ``block`` as a base without constants, and an offset. Indices that do not wrap there
        are split into their terms."""
        named = self._no_wrap.normal(base, block) if width == 64 and block >= 0 else base
        return (base, 0) if named == base else self.symbols.split(named, width)

    def _symbol_width(self) -> int:
        module = self._facts.module
        return module.address_size or 32 if module is not None else 64

    def providers(self, block: int, question: Question) -> list[Provider]:
        """The providers of the bytes in ``block``, in the order of the text."""
        return self.blocks[block].providers.get(question.key, [])

    def concerning(self, question: Question) -> set[int]:
        """The blocks that provide the bytes or define a value that the address is computed from. Where these values are
        unknown: all blocks that define any value."""
        blocks = set(self._providing.get(question.key, ()))
        leaves = self.symbols.leaves(question.base)
        if leaves is None:
            return blocks.union(self.symbols.defined_in)
        for leaf in leaves:
            place = self.symbols.places.get(leaf)
            if place is not None and place.position >= 0:
                blocks.add(place.block)
        return blocks

    def last_kill(self, block: int, question: Question, after: int, end: int) -> str:
        """`BlockKills.last_reason` for ``block``."""
        return self._kills_of(block).last_reason(question, after, end)

    @memoized
    def _kills_of(self, block: int) -> BlockKills:
        return BlockKills(self.blocks[block].kills, self.kills)


def _is_plain(reg: Reg) -> bool:
    return reg.lanes == 1 and reg.type.kind in "busf" and reg.type.lanes == 1 and reg.type.bits in (16, 32, 64)
