"""Value numbers as expressions: their inputs, their translation over an edge, and the registers that hold them.

Computes, over `Values`: the *leaves* of a number: the φs and the opaque results (of loads, atomics, calls) of which it
is a function; its *translation* over an edge p → b, in which every φ of b is replaced by its argument for p and sums
are normalized again (rule 6 of question propagation, thesis §4.3.2: ``A[i]`` becomes ``A[i + 1]``); its value under
assumptions about φs; and the registers that hold it at the end of a block, or the instructions that compute it there.

Requires: SSA view and value numbers of the current version of the kernel, with its late registers.
Guarantees: a number means one value at all points between two definitions of its leaves. Translation is exact modulo
2^width. The extension of a sum that may wrap around stays an atom, so that ``A[i + 1]`` with a 32-bit ``i`` is not
assumed to be next to ``A[i]``. Refuses (``None``): numbers with an input that has no place of definition; translation
through a load.
Reference: VanDrunen and Hosking, "Value-Based Partial Redundancy Elimination", CC 2004 (φ translation).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import cast

from ...ptx import Imm, Instr, Operand, Reg, Special, Sym, decode
from ...ptx.types import TYPES
from ..manager import Facts
from . import affine
from .affine import Affine
from .value_numbering import Key, Values

__all__ = ["Materializer", "Place", "SymbolicValues", "is_load"]

#: Expressions that are nested deeper than this are not analyzed.
MAX_DEPTH = 24


@dataclass(frozen=True, slots=True)
class Place:
    """Where a leaf is defined: at ``position`` of ``block``; -1 is the start of the block (a φ)."""

    block: int
    position: int


class SymbolicValues:
    """The numbers of one kernel as expressions."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.values: Values = facts.values
        self.ssa = facts.ssa
        self.cfg = facts.cfg
        self.dominance = facts.dominance
        #: By number: its leaves.
        self._leaves: dict[int, frozenset[int] | None] = {}
        #: By edge (block, successor): by number its translation.
        self._translated: dict[tuple[int, int], dict[int, int | None]] = {}
        #: By block: by register with several definitions the SSA value that the block defines last.
        self._ends: dict[int, dict[Reg, int]] = {}
        #: By leaf that the code defines: its place. Other leaves never change.
        self.places: dict[int, Place] = {}
        #: By block: by number of a φ its SSA value.
        self.phis: dict[int, dict[int, int]] = {}
        #: By block: the leaves that its instructions define.
        self.defined_in: dict[int, list[int]] = {}
        #: By number: its SSA values.
        self._holders: dict[int, list[int]] | None = None
        #: By head of a key: an instruction that computes it.
        self._templates: dict[object, Instr] | None = None
        self._known: set[int] = set(self.values.number)
        unique = self.values.unique_numbers()
        #: Numbers of operands that are no SSA value, such as clocks.
        self._strays = unique - self._known
        #: By number: the symbol, for symbols in addresses.
        self.symbols: dict[int, Sym] = {}
        self._find_places(unique)

    def key(self, number: int) -> Key:
        """The key of the class ``number``; see `Values.lookup`."""
        return self.values.key_of(number)

    def _find_places(self, unique: set[int]) -> None:
        ssa, number, places = self.ssa, self.values.number, self.places
        defined, strays = ssa.defined, self._strays
        for block in self.cfg.rpo:
            for phi in ssa.phis[block]:
                own = number[phi]
                for _, value in ssa.phi_args.get(phi, ()):
                    if number[value] != own:
                        places.setdefault(own, Place(block, -1))
                        self.phis.setdefault(block, {}).setdefault(own, phi)
                        break
            for position, instr in enumerate(self.cfg.blocks[block].instrs):
                address = instr.address
                if address is not None and isinstance(address.base, Sym) and not address.base.offset:
                    self.symbols[self.values.of_symbol(address.base)] = address.base
                for reg in instr.defs():
                    own = number[defined(instr, reg)]
                    # An opaque result is identified by its place of definition.
                    is_opaque = own in unique or (strays and not strays.isdisjoint(self.children(self.key(own))))
                    if is_opaque and own not in places:
                        places[own] = Place(block, position)
                        self.defined_in.setdefault(block, []).append(own)

    def children(self, key: Key) -> tuple[int, ...]:
        """The numbers from which a class is computed."""
        head = key[0]
        if head == "affine":
            return tuple([atom for atom, _ in cast("tuple[tuple[int, int], ...]", key[3])])
        if isinstance(head, tuple):
            return cast("tuple[int, ...]", key[1:2] if is_load(key) else key[1:])
        if head == "extend":
            return (cast("int", key[4]),)
        return (cast("int", key[1]),) if head in ("symbol+", "element") else ()

    def leaves(self, number: int) -> frozenset[int] | None:
        """The leaves of which ``number`` is a function; ``None`` if they are unknown."""
        if number in self._leaves:
            return self._leaves[number]
        computed = self._leaves[number] = self._find_leaves(number, MAX_DEPTH)
        return computed

    def template(self, head: object) -> Instr | None:
        """An instruction with the operation ``head``, from registers, literals and special registers."""
        if self._templates is None:
            self._templates = {}
            for value, instr in enumerate(self.ssa.instr):
                if instr is None or instr.guard is not None or instr.form.dst_count != 1 or instr.form.inout:
                    continue
                if all(_is_scalar(operand) for operand in instr.operands):
                    own = self.key(self.values.number[value])[0]
                    if isinstance(own, tuple):
                        self._templates.setdefault(cast("object", own), instr)
        return self._templates.get(head)

    def _find_leaves(self, number: int, depth: int) -> frozenset[int] | None:
        if number in self._leaves:
            return self._leaves[number]
        if number in self.places:
            return frozenset([number])
        key = self.key(number)
        if key[0] == "unique":
            return frozenset() if number in self._known else None
        if key[0] == "phi" or depth == 0:
            return None
        leaves: frozenset[int] = frozenset()
        for child in self.children(key):
            part = self._find_leaves(child, depth - 1)
            if part is None:
                return None
            leaves |= part
        self._leaves[number] = leaves
        return leaves

    # --- substitution --------------------------------------------------------------------------------------------

    def translate(self, number: int, block: int, successor: int) -> int | None:
        """The number at the end of ``block`` of the value that is ``number`` at the start of ``successor``; ``None`` if
        it is unknown."""
        phis = self.phis.get(successor)
        if not phis:
            return number
        leaves = self.leaves(number)
        if leaves is None:
            return None
        if leaves.isdisjoint(phis):
            return number
        memo = self._translated.get((block, successor))
        if memo is None:
            memo = self._translated[block, successor] = dict(self._arguments(block, successor))
        return self._substitute(number, memo, phis.keys(), MAX_DEPTH)

    def _arguments(self, block: int, successor: int) -> dict[int, int]:
        """By number of a φ of ``successor``: the number of its argument for the edge from ``block``."""
        number = self.values.number
        return {
            own: number[value]
            for own, phi in self.phis.get(successor, {}).items()
            for before, value in self.ssa.phi_args[phi]
            if before == block
        }

    def arguments(self, block: int, successor: int) -> Mapping[int, int]:
        """By number of a φ of ``successor``: the number of its argument for the edge from ``block``. Read-only."""
        return self._arguments(block, successor)

    def substitute(self, number: int, replaced: dict[int, int | None]) -> int | None:
        """``number`` with leaves replaced. ``replaced`` maps a leaf to its replacement; it also memoizes results."""
        return self._substitute(number, replaced, dict.fromkeys(replaced).keys(), MAX_DEPTH)

    def _substitute(self, number: int, replaced: dict[int, int | None], roots: Set[int], depth: int) -> int | None:
        """`substitute`; ``roots`` are the leaves among the keys of ``replaced``."""
        if number in replaced:
            return replaced[number]
        leaves = self.leaves(number)
        if leaves is None or depth == 0:
            return None
        if leaves.isdisjoint(roots):
            return number
        result = replaced[number] = self._rebuilt(number, replaced, roots, depth - 1)
        return result

    def _rebuilt(self, number: int, replaced: dict[int, int | None], roots: Set[int], depth: int) -> int | None:
        key = self.key(number)
        values = self.values
        head = key[0]
        if head == "affine":
            _, width, constant, terms = cast("tuple[str, int, int, tuple[tuple[int, int], ...]]", key)
            return self._rebuilt_sum(width, constant, terms, replaced, roots, depth)
        if head == "extend":
            kind, bits, width, inner = cast("tuple[str, int, int, int]", key[1:])
            new = self._substitute(inner, replaced, roots, depth)
            if new is None:
                return None
            form = values.affine_of(new, bits)
            if form.is_constant:
                constant = form.signed_constant() if kind == "s" else form.constant
                return values.of_affine(affine.constant(width, constant))
            return values.lookup(("extend", kind, bits, width, new))
        if head == "element" or (isinstance(head, tuple) and not is_load(key)):
            children: list[int | None] = [
                self._substitute(child, replaced, roots, depth) for child in self.children(key)
            ]
            if None in children:
                return None
            kept: Key = key[:1]
            return values.lookup((*kept, *children, *key[2:]) if head == "element" else (*kept, *children))
        return None

    def _rebuilt_sum(
        self,
        width: int,
        constant: int,
        terms: tuple[tuple[int, int], ...],
        replaced: dict[int, int | None],
        roots: Set[int],
        depth: int,
    ) -> int | None:
        """The sum with its atoms replaced. Most atoms do not change, which their leaves show."""
        kept: list[tuple[int, int]] = []
        parts: list[tuple[int, Affine]] = []
        leaves_of = self._leaves
        for term in terms:
            atom, coefficient = term
            if atom in replaced:
                new = replaced[atom]
            elif (leaves := leaves_of.get(atom)) is not None and leaves.isdisjoint(roots) and depth:
                kept.append(term)
                continue
            else:
                new = self._substitute(atom, replaced, roots, depth)
            if new is None:
                return None
            parts.append((coefficient, self.values.affine_of(new, width)))
        total = affine.weighted_sum(Affine(width, constant, tuple(kept)), parts)
        return None if total is None else self.values.of_affine(total)

    def split(self, number: int, width: int) -> tuple[int, int]:
        """A number as (number without its constant, signed constant): base and byte offset of an address."""
        form = self.values.affine_of(number, width)
        if not form[1]:
            return number, 0
        return self.values.of_affine(Affine(width, 0, form[2])), form.signed_constant()

    def constant_of(self, number: int, width: int) -> int | None:
        """The value of ``number`` modulo 2^width if it is a constant; else ``None``."""
        form = self.values.affine_of(number, width)
        return form.constant if form.is_constant else None

    # --- registers -----------------------------------------------------------------------------------------------

    def value_at_end(self, reg: Reg, block: int) -> int | None:
        """The SSA value that ``reg`` holds at the end of ``block``; ``None`` if it is unknown."""
        ssa = self.ssa
        if ssa.is_single(reg):
            return None
        liveness, idom = self.facts.liveness, self.dominance.idom
        while True:
            ends = self._ends.get(block)
            if ends is None:
                ends = self._ends[block] = self._values_at_end(block)
            if reg in ends:
                return ends[reg]
            # φs are pruned: the value of a dead register is unknown.
            if not liveness.is_live_in(reg, block) or block == self.cfg.rpo[0]:
                return None
            block = idom[block]

    def _values_at_end(self, block: int) -> dict[Reg, int]:
        ssa = self.ssa
        values = {ssa.reg[phi]: phi for phi in ssa.phis[block]}
        for instr in self.cfg.blocks[block].instrs:
            for reg in instr.defs():
                if not ssa.is_single(reg):
                    values[reg] = ssa.defined(instr, reg)
        return values

    def register_of(self, number: int, block: int, width: int) -> Reg | None:
        """A register of ``width`` bits that holds ``number`` at the end of ``block``."""
        if self._holders is None:
            self._holders = {}
            for value, own in enumerate(self.values.number):
                self._holders.setdefault(own, []).append(value)
        ssa, dominates = self.ssa, self.dominance.dominates
        for value in self._holders.get(number, ())[:16]:
            reg = ssa.reg[value]
            if reg.type.bits != width or reg.lanes != 1 or reg.type.kind not in "busf" or reg in self.values.late:
                continue
            if reg.type.kind == "f" or (ssa.instr[value] is None and value not in ssa.phi_args):
                continue
            if ssa.is_single(reg):
                if dominates(ssa.block[value], block):
                    return reg
            elif self.value_at_end(reg, block) == value:
                return reg
        return None


class Materializer:
    """Makes instructions that compute numbers at the end of one block, each number once.

    With ``is_trial`` the kernel gets no new registers: to test whether a number can be computed.
    """

    def __init__(self, symbols: SymbolicValues, block: int, *, is_trial: bool = False) -> None:
        self.symbols = symbols
        self.block = block
        self.is_trial = is_trial
        self.code: list[Instr] = []
        #: By (number, width in bits): the register that `code` computes.
        self._made: dict[tuple[int, int], Reg] = {}

    def address(self, base: int, offset: int, width: int) -> tuple[Reg | Sym, int] | None:
        """(register or symbol, byte offset) whose sum is the address ``base + offset``; ``None`` if impossible."""
        symbol = self.symbols.symbols.get(base)
        if symbol is not None:
            return symbol, offset
        register = self.symbols.register_of(base, self.block, width)
        if register is None and offset:
            whole = self._sum(base, offset, width)
            register = self.symbols.register_of(whole, self.block, width) if whole is not None else None
            if register is not None:
                return register, 0
        if register is None:
            register = self.register(base, width)
        if register is None or not -(1 << 31) <= offset < 1 << 31:
            return None
        return register, offset

    def _sum(self, base: int, offset: int, width: int) -> int | None:
        values = self.symbols.values
        total = affine.add(values.affine_of(base, width), affine.constant(width, offset))
        return None if total is None else values.of_affine(total)

    def register(self, number: int, width: int, depth: int = MAX_DEPTH) -> Reg | None:
        """A register that holds ``number``, a value of ``width`` bits; ``None`` if it cannot be computed here."""
        existing = self._made.get((number, width))
        if existing is None:
            existing = self.symbols.register_of(number, self.block, width)
        if existing is not None or depth == 0 or width not in (32, 64):
            return existing
        made = self._make(number, width, depth - 1)
        if made is not None:
            self._made[number, width] = made
        return made

    def _make(self, number: int, width: int, depth: int) -> Reg | None:
        symbols = self.symbols
        key = symbols.key(number)
        head = key[0]
        if head == "affine" and key[1] == width:
            form = symbols.values.affine_of(number, width)
            return self._make_sum(form, depth)
        if head == "extend" and key[3] == width:
            kind, bits, _, inner = cast("tuple[str, int, int, int]", key[1:])
            source = self.register(inner, bits, depth) if bits == 32 else None
            if source is None or kind == "b":
                return None
            return self._emit(f"cvt.{kind}{width}.{kind}{bits}", width, source)
        if head == "special":
            name = cast("str", key[1])
            special = _special(name)
            return self._emit("mov.u32", width, special) if special is not None and width == 32 else None
        return self._make_like(symbols.template(key[0]), key, width, depth) if isinstance(head, tuple) else None

    def _make_like(self, template: Instr | None, key: Key, width: int, depth: int) -> Reg | None:
        """Make the operation of ``template`` with the operands of ``key``."""
        symbols = self.symbols
        children = cast("tuple[int, ...]", key[1:])
        if template is None or is_load(key) or len(children) != len(template.operands) - 1:
            return None
        result = template.operands[0]
        if not isinstance(result, Reg) or result.type.bits != width or not _is_integer(result):
            return None
        operands: list[Operand] = []
        for child, operand, spec in zip(children, template.operands[1:], template.form.specs[1:], strict=False):
            scalar = template.form.operand_type(spec)
            bits = operand.type.bits if isinstance(operand, Reg) else scalar.bits if scalar is not None else 0
            if bits not in (32, 64) or (isinstance(operand, Reg) and not _is_integer(operand)):
                return None
            form = symbols.values.affine_of(child, bits)
            if form.is_constant and scalar is not None and scalar.bits == bits:
                operands.append(Imm(str(form.signed_constant() if scalar.kind == "s" else form.constant)))
                continue
            reg = self.register(child, bits, depth)
            if reg is None:
                return None
            operands.append(reg)
        if len(operands) != len(children) or all(isinstance(operand, Imm) for operand in operands):
            return None
        if template.form.op.commutes and isinstance(operands[0], Imm):
            operands[0], operands[1] = operands[1], operands[0]
        made = Reg("%trial", result.type) if self.is_trial else symbols.facts.kernel.new_reg(result.type)
        self.code.append(Instr(template.form, (made, *operands)))
        return made

    def _make_sum(self, form: Affine, depth: int) -> Reg | None:
        width = form.width
        total: Reg | None = None
        for atom, coefficient in form.terms:
            reg = self.register(atom, width, depth)
            if reg is None:
                return None
            factor = affine.constant(width, coefficient).signed_constant()
            if total is None:
                total = reg if factor == 1 else self._emit(f"mul.lo.s{width}", width, reg, Imm(str(factor)))
            elif factor == 1:
                total = self._emit(f"add.s{width}", width, total, reg)
            elif factor == -1:
                total = self._emit(f"sub.s{width}", width, total, reg)
            else:
                total = self._emit(f"mad.lo.s{width}", width, reg, Imm(str(factor)), total)
        constant = Imm(str(form.signed_constant()))
        if total is None:
            return self._emit(f"mov.b{width}", width, constant)
        return self._emit(f"add.s{width}", width, total, constant) if form.constant else total

    def _emit(self, mnemonic: str, width: int, *sources: Reg | Imm | Special) -> Reg:
        scalar = TYPES[f"b{width}"]
        result = Reg("%trial", scalar) if self.is_trial else self.symbols.facts.kernel.new_reg(scalar)
        self.code.append(Instr(decode(mnemonic, 1 + len(sources)), (result, *sources)))
        return result


def _special(name: str) -> Special | None:
    from ...ptx.special_registers import special_type

    kind = special_type(name)
    return Special(name, TYPES[kind]) if kind == "u32" else None


def _is_scalar(operand: Operand) -> bool:
    return operand.lanes == 1 if isinstance(operand, Reg) else isinstance(operand, Imm | Special)


def _is_integer(reg: Reg) -> bool:
    return reg.type.kind in "bus" and reg.lanes == 1 and reg.type.lanes == 1


def is_load(key: Key) -> bool:
    """Whether the class is the result of a load."""
    head = key[0]
    return isinstance(head, tuple) and str(cast("tuple[object, ...]", head)[0]).startswith("ld")
