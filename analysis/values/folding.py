"""Which instructions ptxas may fold, and which it certainly keeps.

ptxas replaces an instruction by one of its operands, by the negated operand or by a constant: ``max x, x``,
``mul x, -1``, ``and x, 0``, a selection by a constant predicate. Then the operand has other readers than in PTX, or
none (`contraction.py`).

Computes: numbers of values that may be equal (`operand_numbers`); for an instruction, whether ptxas may fold it
(`Folding.may_fold`); and the instructions whose results an effect certainly needs (`Folding.needed`). In between there
are only instructions whose results certainly depend on their operands: no sum of integers whose operands depend on one
value, as in ``(n - x) + x``, no product that shifts bits out, no comparison with a constant.

ptxas 13.0 folds, as `tests/unit/test_contraction.py` measures: equal operands of ``min``, ``max``, ``selp`` and of
integer operations; factors and divisors 1 and -1, also with ``.rn``; constant predicates; comparisons with NaN and of a
value with itself; neutral constants of integer operations, and pairs that cancel each other, such as two ``neg.s32``.
It removes a branch where both ways are the same after dead code is gone. It did not fold sums with 0 or -0, nor ``max``
with an infinity. By the rules of arithmetic it may, so these count as folded, too.

Requires: the SSA view and blocks of the current version. Guarantees: all folding that was measured, and any that
follows from one instruction with neutral, absorbing or only constant operands, or with equal ones. Refuses nothing.
Reference: experiments with ptxas 13.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...ptx import TYPES, Effect, Form, Imm, Instr, Mem, Not, Operand, Reg, ScalarType, Special, Sym
from ...ptx.operations import ADDRESS_CONVERSIONS, BRANCHES, COPIES, Operation
from ...ptx.types import is_integer_literal, literal_bits, literal_value

if TYPE_CHECKING:
    from ..manager import Facts
    from .ssa import Ssa

#: Effects for which ptxas keeps an instruction without a reader.
_KEPT = Effect.WRITE | Effect.BARRIER | Effect.ORDERED | Effect.ASYNC | Effect.REGISTERS_LATER | Effect.GRID
#: Operations whose results depend on the operand; those of integers that do unless two operands depend on one value.
_KEEPING = COPIES | ADDRESS_CONVERSIONS | {Operation.NEGATION, Operation.NOT}
_SUMS = frozenset([Operation.SUM, Operation.DIFFERENCE, Operation.XOR])
_PRODUCTS = frozenset([Operation.PRODUCT, Operation.WIDE_PRODUCT, Operation.PRODUCT_SUM, Operation.WIDE_PRODUCT_SUM])
#: The largest power of two that may divide a factor of a product of double width. No conversion has fewer bits than 8.
_LARGEST_SCALE = 16
#: The most values that are looked at to find out on what an operand depends.
_MOST_VALUES = 100
_CARRY = Effect.CARRY_IN | Effect.CARRY_OUT
#: They only decide what follows. ptxas removes them where this is the same on both ways.
_WAYS = BRANCHES | {Operation.RETURN, Operation.EXIT}

__all__ = ["Folding", "literal_number", "operand_numbers"]


def literal_number(operand: Operand, scalar: ScalarType | None) -> object:
    """What is equal for all spellings of a literal, in an instruction or in a register."""
    if not isinstance(operand, Imm) or scalar is None:
        return operand.text
    if is_integer_literal(operand.text) and not scalar.is_float:
        return "literal", int(literal_value(operand.text)) % (1 << scalar.bits)
    try:
        return "literal", literal_bits(operand.text, scalar)
    except ValueError:
        return operand.text


def operand_numbers(instrs: Iterable[Instr], ssa: Ssa) -> dict[int, object]:
    """By value: a number. Values have one number where ptxas may find that they are equal: the same instruction
    computes them from equal operands, or loads them from equal addresses, whatever is stored between the two loads. A
    value that is not a key is its own number. The number of a constant is a tuple of ``literal`` and its bits, or of
    ``constant`` and another number for each way in which one is computed."""
    number_of: dict[int, object] = {}
    first_of: dict[object, object] = {}
    #: By instruction of a constant and the numbers of its operands: the number of the constant. It does not contain
    #: those of the operands: a chain of sums of equal constants would make it twice as long at each sum.
    constants: dict[object, object] = {}
    for instr in instrs:
        form = instr.form
        read = [ssa.read(instr, reg) for reg in instr.uses()]
        numbers = [number_of.get(value, value) for value in read]
        key = (form.text, *numbers, *map(_constant, instr.operands[form.dst_count :]))
        is_copy = form.operation in COPIES and all(type(operand) is Reg for operand in instr.operands)
        is_literal = form.operation is Operation.COPY and type(instr.operands[-1]) is Imm
        is_constant = not is_copy and not form.effects and _is_computed_constant(instr, numbers)
        for place, reg in enumerate(instr.defs()):
            value = ssa.defined(instr, reg)
            if value in ssa.old:
                continue
            if is_literal:
                number_of[value] = literal_number(instr.operands[-1], form.type)
            elif is_constant:
                number_of[value] = constants.setdefault((*key, place), ("constant", len(constants)))
            else:
                number_of[value] = numbers[0] if is_copy else first_of.setdefault((*key, place), value)
    return number_of


def _is_computed_constant(instr: Instr, numbers: list[object]) -> bool:
    sources = instr.operands[instr.form.dst_count :]
    return bool(sources) and all(type(each) in (Imm, Reg) for each in sources) and all(map(is_constant_number, numbers))


def is_constant_number(number: object) -> bool:
    """Whether the number, of `operand_numbers`, is that of a constant."""
    return isinstance(number, tuple)


def _constant(operand: Operand) -> object:
    """The part of an operand that is no register."""
    if isinstance(operand, Mem):
        return _constant(operand.base), operand.offset
    return operand.text if isinstance(operand, (Imm, Special, Sym)) else None


class Folding:
    """What ptxas may fold in one kernel. ``numbers``: those of `operand_numbers`. ``is_kept``: whether ptxas certainly
    keeps a store."""

    def __init__(self, facts: Facts, numbers: Mapping[int, object], is_kept: Callable[[Instr], bool]) -> None:
        self._facts = facts
        self._cfg = facts.cfg
        self._ssa = facts.ssa
        self._numbers = numbers
        self._is_kept = is_kept
        self._origins_of: dict[int, frozenset[object] | None] = {}

    def may_fold(self, instr: Instr) -> bool:
        """Whether ptxas may replace the results by operands, negated operands or constants."""
        form = instr.form
        if form.effects & ~_CARRY or not form.dst_count or form.is_opaque:
            return False
        constants: list[object] = []
        others: list[object] = []
        for operand in instr.operands[form.dst_count :]:
            number = self._number(instr, operand)
            (constants if is_constant_number(number) else others).append(number)
        if not others:
            return True
        if not _is_float(form):
            return form.operation is not Operation.COMPARISON or bool(constants) or len(set(others)) < len(others)
        if _is_arithmetic(form):
            return any(_is_special(number, form.type, frozenset([0.0, 1.0])) for number in constants)
        if form.operation is Operation.CONVERSION:
            return False
        if len(set(others)) < len(others):
            return True
        if form.operation is Operation.SELECTION:
            return is_constant_number(self._number(instr, instr.operands[-1]))
        return any(_is_special(number, form.type, frozenset()) for number in constants)

    def _may_ignore(self, instr: Instr) -> bool:
        """Whether the results may be the same for all values of some operand."""
        form = instr.form
        if form.operation in _KEEPING:
            return False
        if form.operation is Operation.CONVERSION:
            return not _is_float(form) and _is_narrowing(form)
        if _is_float(form):
            return form.operation is not Operation.SUM and (self.may_fold(instr) or self._may_bound(instr))
        if form.effects & _CARRY:
            return True
        if form.operation in _SUMS:
            return self._may_cancel(instr)
        if form.operation in _PRODUCTS:
            factors = [self._number(instr, each) for each in instr.operands[form.dst_count :][:2]]
            return not any(_is_kept_by_factor(form, each) for each in factors) or self._may_cancel(instr)
        return self.may_fold(instr) or (form.operation is Operation.COMPARISON and self._may_cancel(instr))

    def _may_bound(self, instr: Instr) -> bool:
        """Whether a comparison, maximum or minimum has a constant operand. ptxas may know on which side of it the other
        one is, such as a saturated value."""
        form = instr.form
        if form.operation is Operation.SELECTION or _is_arithmetic(form):
            return False
        return any(is_constant_number(self._number(instr, each)) for each in instr.operands[form.dst_count :])

    def _may_cancel(self, instr: Instr) -> bool:
        """Whether two operands may depend on one value. Then the result may not depend on it, as in ``(n - x) + x``."""
        known: set[object] = set()
        for operand in instr.operands[instr.form.dst_count :]:
            if not isinstance(operand, Reg) or is_constant_number(self._number(instr, operand)):
                continue
            found = self._origins(self._ssa.read(instr, operand))
            if found is None or not known.isdisjoint(found):
                return True
            known |= found
        return False

    def _origins(self, value: int) -> frozenset[object] | None:
        """The numbers of the values on which ``value`` depends, and its own; `None` if they are many. Memory has no
        origin: a store keeps what is stored."""
        if value not in self._origins_of:
            self._origins_of[value] = self._find_origins(value)
        return self._origins_of[value]

    def _find_origins(self, value: int) -> frozenset[object] | None:
        ssa, seen, work = self._ssa, {value}, [value]
        while work:
            each = work.pop()
            after = [before for _, before in ssa.phi_args.get(each, ())]
            after += [ssa.old[each]] if each in ssa.old else []
            definition = ssa.instr[each]
            if definition is not None:
                after += [ssa.read(definition, reg) for reg in definition.uses()]
            work += [before for before in dict.fromkeys(after) if before not in seen]
            seen.update(after)
            if len(seen) > _MOST_VALUES:
                return None
        numbers = (self._numbers.get(each, each) for each in seen)
        return frozenset(number for number in numbers if not is_constant_number(number))

    def is_constant(self, instr: Instr, operand: Operand) -> bool:
        """Whether ptxas may know the value of ``operand``, but a literal in its place has not shown it."""
        number = self._number(instr, operand)
        return is_constant_number(number) and not _is_literal(number)

    def _number(self, instr: Instr, operand: Operand) -> Any:
        if isinstance(operand, Not):
            operand = operand.operand
        if isinstance(operand, Reg):
            value = self._ssa.read(instr, operand)
            return self._numbers.get(value, value)
        return literal_number(operand, instr.form.type or TYPES["b32"]) if isinstance(operand, Imm) else operand.text

    @cached_property
    def needed(self) -> frozenset[Instr]:
        """The instructions that ptxas keeps: effects, and what they need through no instruction that may be folded."""
        ssa = self._ssa
        found = {instr for block in self._certain_blocks() for instr in self._effects(block)}
        work = list(found)
        seen: set[int] = set()
        while work:
            instr = work.pop()
            if not _has_effect(instr) and (instr.guard is not None or self._may_ignore(instr)):
                continue
            # A branch may have decided the predicate of a selection: then one of its values is not needed.
            is_choice = instr.form.operation is Operation.SELECTION
            values = [ssa.read(instr, reg) for reg in instr.uses() if not is_choice or reg == instr.operands[-1]]
            while values:
                value = values.pop()
                if value in seen:
                    continue
                seen.add(value)
                values += [before for _, before in ssa.phi_args.get(value, ())]
                definition = ssa.instr[value]
                if definition is not None and value not in ssa.old and definition not in found:
                    found.add(definition)
                    work.append(definition)
        return frozenset(found)

    def _certain_blocks(self) -> list[int]:
        """The blocks that can be reached without a branch whose predicate is a constant."""
        if not self._cfg.rpo:
            return []
        found, work = {self._cfg.rpo[0]}, [self._cfg.rpo[0]]
        while work:
            block = work.pop()
            if any(instr.guard is not None and self._has_constant_guard(instr) for instr in self._branches(block)):
                continue
            for after in self._cfg.succ[block]:
                if after not in found:
                    found.add(after)
                    work.append(after)
        return [block for block in self._cfg.rpo if block in found]

    def _branches(self, block: int) -> list[Instr]:
        return [instr for instr in self._cfg.blocks[block].instrs if instr.form.operation in BRANCHES]

    def _has_constant_guard(self, instr: Instr) -> bool:
        guard = instr.guard
        return guard is not None and is_constant_number(self._number(instr, guard.reg))

    def _effects(self, block: int) -> Iterable[Instr]:
        """The instructions of ``block`` whose effects ptxas certainly keeps."""
        for instr in self._cfg.blocks[block].instrs:
            if instr.form.operation in _WAYS:
                if instr.guard is None or self._decides(block):
                    yield instr
            elif self._is_effect(instr):
                yield instr

    def _is_effect(self, instr: Instr) -> bool:
        if instr.form.operation in _WAYS or not _has_effect(instr) or instr.guard is not None:
            return False
        return instr.form.operation is not Operation.STORE or self._is_kept(instr)

    def _decides(self, block: int) -> bool:
        """Whether the ways out of ``block`` certainly differ: one leads to an effect that the other one does not have,
        or to an effect once more."""
        cfg = self._cfg
        for after in cfg.succ[block]:
            is_again = cfg.rpo_number[after] <= cfg.rpo_number[block]
            is_only_here = len(cfg.pred[after]) == 1 and not self._facts.post_dominance.dominates(after, block)
            if (is_again or is_only_here) and any(map(self._is_effect, cfg.blocks[after].instrs)):
                return True
        return False


def _has_effect(instr: Instr) -> bool:
    """Whether ptxas keeps the instruction even if none of its results is read. It removes ``shfl`` and ``vote``."""
    form = instr.form
    if instr.is_directive or form.is_opaque:
        return False
    return form.is_call or not form.dst_count or bool(form.effects & _KEPT)


def _is_float(form: Form) -> bool:
    if form.operation is Operation.CONVERSION:
        return any(TYPES[form.mods[each]].is_float for each in ("dtype", "atype") if form.mods.get(each) in TYPES)
    return form.type is not None and form.type.is_float


def _is_arithmetic(form: Form) -> bool:
    return form.op.contraction in ("product", "sum") or form.op.base in ("fma", "mad", "div")


def _is_narrowing(form: Form) -> bool:
    """Whether a conversion of integers leaves bits out."""
    to, of = (TYPES.get(form.mods.get(each, "")) for each in ("dtype", "atype"))
    return to is None or of is None or to.bits < of.bits


def _is_kept_by_factor(form: Form, factor: object) -> bool:
    """Whether a product of integers differs for different values of the other factor: the factor is an odd literal, or
    the product has double width. An even factor shifts bits out; several of them shift out all."""
    match factor:
        case ("literal", int(bits)) if bits:
            is_odd = bits % 2 == 1 and form.text.split(".")[1] == "lo"
            return is_odd or (form.text.split(".")[1] == "wide" and bits % (2 * _LARGEST_SCALE) != 0)
        case _:
            return False


def _is_literal(number: object) -> bool:
    match number:
        case ("literal", int()):
            return True
        case _:
            return False


def _is_special(number: object, scalar: ScalarType | None, neutral: frozenset[float]) -> bool:
    """Whether a constant is one of ``neutral`` or their negatives, infinite, no number, or not known."""
    match number, None if scalar is None else scalar.name:
        case ("literal", int(bits)), "f32":
            value = literal_value(f"0f{bits:08X}")
        case ("literal", int(bits)), "f64":
            value = literal_value(f"0d{bits:016X}")
        case _:
            return True
    return not math.isfinite(value) or abs(value) in neutral
