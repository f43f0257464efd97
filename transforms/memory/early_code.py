"""The code that issues a load at the end of an earlier block: its address, its predicate, and the load.

Computes: registers and predicates with the values that address and branch of the load will have, by value numbers. The
earlier block may be in the iteration before, or in front of the loop: then the values are translated over the edge to
the header of the loop.

Requires: value numbers, dominance. Guarantees: what is computed is equal to what the load and its branch will read.
Refuses (`None`): values that depend on what the loop computes before the load and after its header; predicates that are
no comparison of integers, and no combination of such; addresses that `Materializer` cannot compute there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from ...analysis.manager import Facts
from ...analysis.values.affine import Affine
from ...analysis.values.symbolic_values import MAX_DEPTH, Materializer, SymbolicValues, is_load
from ...ptx import Guard, Imm, Instr, Mem, Operand, Reg, decode

__all__ = ["Condition", "Early", "EarlyCode"]

_MOST_NESTED = 8
#: An edge (block, header of the loop).
_Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate: the class of its value, and whether it has to be false."""

    number: int
    negated: bool


@dataclass(frozen=True, slots=True)
class Early:
    """A load to be issued: like ``instr``, of the address (class, byte offset), if ``condition`` holds."""

    instr: Instr
    address: tuple[int, int]
    width: int
    condition: Condition | None


#: A sum without its constant, as terms (class, coefficient).
_Terms = frozenset[tuple[int, int]]


def _sums(facts: Facts) -> dict[tuple[int, int], list[tuple[int, int, _Terms]]]:
    """By (class of an atom, width): the sums with it that values of the kernel are, as (class, constant, terms)."""
    found: dict[tuple[int, int], list[tuple[int, int, _Terms]]] = {}
    for number in dict.fromkeys(facts.values.number):
        key = facts.values.key_of(number)
        if key[0] == "affine":
            _, width, constant, terms = cast("tuple[str, int, int, tuple[tuple[int, int], ...]]", key)
            for atom, _ in terms:
                found.setdefault((atom, width), []).append((number, constant, frozenset(terms)))
    return found


class _Maker(Materializer):
    """Makes a sum also from a register that holds a part of it, such as a counter after its increment, or a pointer to
    which the index of the thread has been added."""

    def register(self, number: int, width: int, depth: int = MAX_DEPTH) -> Reg | None:
        """As `Materializer.register`."""
        known, made = len(self.code), dict(self._made)
        found = super().register(number, width, depth)
        if found is None and width in (32, 64) and depth > 0:
            del self.code[known:]
            self._made = made
            found = self._from_part(number, width, depth - 1)
            if found is not None:
                self._made[number, width] = found
        return found

    def _from_part(self, number: int, width: int, depth: int) -> Reg | None:
        """A register that holds a part of the sum, and the rest added to it."""
        form = self.symbols.values.affine_of(number, width)
        terms = frozenset(form.terms)
        for atom, _ in form.terms:
            for part, constant, part_terms in self.symbols.facts.get(_sums).get((atom, width), ()):
                held = self.symbols.register_of(part, self.block, width) if part_terms <= terms else None
                if held is None:
                    continue
                left = tuple(term for term in form.terms if term not in part_terms)
                rest = Affine(width, (form.constant - constant) % (1 << width), left)
                if rest.is_constant:
                    return self._emit(f"add.s{width}", width, held, Imm(str(rest.signed_constant())))
                made = self.register(self.symbols.values.of_affine(rest), width, depth)
                if made is not None:
                    return self._emit(f"add.s{width}", width, held, made)
        return None


@dataclass
class EarlyCode:
    """Makes the code at the end of one block. With ``is_trial`` the kernel gets no new registers."""

    symbols: SymbolicValues
    block: int
    is_trial: bool = False
    _maker: _Maker = field(init=False)
    #: By class: the predicate that was made.
    _made: dict[int, Reg] = field(default_factory=dict[int, Reg])

    def __post_init__(self) -> None:
        self._maker = _Maker(self.symbols, self.block, is_trial=self.is_trial)

    def of_load(self, load: Early, register: Reg, edge: _Edge | None, also: Condition | None) -> list[Instr] | None:
        """The code that loads into ``register``, if the condition of the load holds and ``also``. ``edge``: over which
        the block is left before the load; `None` in the same iteration. `None` if the code cannot be made."""
        base, offset = load.address
        if edge is not None:
            translated = self._translated(base, edge)
            if translated is None:
                return None
            base, constant = self.symbols.split(translated, load.width)
            offset += constant
        found = self._maker.address(base, offset, load.width)
        if found is None:
            return None
        conditions = [] if also is None else [also]
        if load.condition is not None:
            number = load.condition.number if edge is None else self._translated(load.condition.number, edge)
            if number is None:
                return None
            conditions.append(Condition(number, load.condition.negated))
        guards: list[Guard] = []
        for condition in conditions:
            predicate = self._predicate(condition.number, _MOST_NESTED)
            if predicate is None:
                return None
            guards.append(Guard(predicate, negated=condition.negated))
        guard = self._both(guards) if guards else None
        code, self._maker.code = self._maker.code, []
        if guard is not None:
            # Otherwise the register would be live around the whole loop for ptxas.
            zero = decode(f"mov.b{register.type.bits}", 2)
            code.append(Instr(zero, (register, Imm("0")), None, load.instr.loc))
        code.append(Instr(load.instr.form, (register, Mem(*found)), guard, load.instr.loc))
        return code

    def _translated(self, number: int, edge: _Edge) -> int | None:
        """The class at the end of the block of ``edge`` of what is ``number`` in the iteration that follows."""
        symbols, facts = self.symbols, self.symbols.facts
        leaves = symbols.leaves(number)
        if leaves is None:
            return None
        loop = facts.loops.loops[facts.loops.loop_of[edge[1]]]
        for leaf in leaves:
            place = symbols.places.get(leaf)
            if place is not None and place.block in loop and (place.block, place.position) != (loop.header, -1):
                return None
        return symbols.translate(number, *edge)

    def _both(self, guards: list[Guard]) -> Guard:
        """The guard that holds if all of them do."""
        if len(guards) == 1:
            return guards[0]
        regs: list[Reg] = []
        for guard in guards:
            reg = cast("Reg", guard.reg)
            if guard.negated:
                made = self._new(reg)
                self._maker.code.append(Instr(decode("not.pred", 2), (made, reg)))
                reg = made
            regs.append(reg)
        both = self._new(regs[0])
        self._maker.code.append(Instr(decode("and.pred", 3), (both, *regs)))
        return Guard(both, negated=False)

    def _new(self, like: Reg) -> Reg:
        return Reg("%trial", like.type) if self.is_trial else self.symbols.facts.kernel.new_reg(like.type, "%e")

    def _predicate(self, number: int, depth: int) -> Reg | None:
        """A predicate with the value ``number`` at the end of the block."""
        found = self._made.get(number) or self._held(number)
        if found is None and depth > 0:
            found = self._like(number, depth - 1)
            if found is not None:
                self._made[number] = found
        return found

    def _held(self, number: int) -> Reg | None:
        """A predicate of the kernel that has the value."""
        facts, values = self.symbols.facts, self.symbols.values
        branch = facts.cfg.blocks[self.block].terminator
        guard = branch.guard.reg if branch is not None and branch.guard is not None else None
        if branch is not None and isinstance(guard, Reg) and values.of_register(branch, guard) == number:
            return guard
        ssa = facts.ssa
        for reg, value in ssa.single.items():
            if reg.type.name != "pred" or values.number[value] != number or reg in facts.late_registers:
                continue
            if ssa.instr[value] is not None and facts.dominance.dominates(ssa.block[value], self.block):
                return reg
        return None

    def _like(self, number: int, depth: int) -> Reg | None:
        """Make the operation that computes the class, with operands that are known here."""
        symbols = self.symbols
        key = symbols.key(number)
        head = key[0]
        template = symbols.template(key[0]) if isinstance(head, tuple) and not is_load(key) else None
        if template is None:
            return None
        result, children = template.operands[0], cast("tuple[int, ...]", key[1:])
        if not isinstance(result, Reg) or result.type.name != "pred" or len(children) != len(template.operands) - 1:
            return None
        operands: list[Operand] = []
        for child, operand, spec in zip(children, template.operands[1:], template.form.specs[1:], strict=False):
            scalar = template.form.operand_type(spec)
            if isinstance(operand, Reg) and operand.type.name == "pred":
                made: Operand | None = self._predicate(child, depth)
            elif scalar is None or scalar.kind not in "bus" or scalar.bits not in (32, 64):
                return None
            else:
                form = symbols.values.affine_of(child, scalar.bits)
                value = form.signed_constant() if scalar.kind == "s" else form.constant
                # ptxas takes no literal as the first operand of a comparison.
                is_literal = form.is_constant and bool(operands)
                made = Imm(str(value)) if is_literal else self._maker.register(child, scalar.bits)
            if made is None:
                return None
            operands.append(made)
        predicate = self._new(result)
        self._maker.code.append(Instr(template.form, (predicate, *operands)))
        return predicate
