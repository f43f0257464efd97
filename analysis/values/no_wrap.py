"""32-bit sums that are proved not to wrap around before they are extended to a 64-bit address.

Computes, for an address at the end of a block, the same address with ``extend(r + c)`` written as ``extend(r) + c``
wherever ``r + c`` does not wrap around there. So ``A[i]`` of the next iteration, ``base + 4·extend(i + 1)``, is found
to be ``base + 4·extend(i) + 4`` of this iteration. A bound of r at the end of a block is proved by one of

    constant   r is a constant
    guard      an edge that dominates the block is taken only if r is below, or above, some value. The bound is then a
               constant, or one less than the greatest number
    φ          the bound holds for every argument at the end of its predecessor, or on the edge from there; or the
               argument is the φ plus a constant that moves it away from the bound, in a sum that does not wrap around

The last one is an induction over iterations: start, comparison and step must be in the code. PTX sums wrap around, so
the undefined overflow of C is not used. Signed bounds are used for zero-extended sums if the value is not negative, and
unsigned bounds for sign-extended sums below 2^31.

Requires: SSA view, value numbers, dominance. Guarantees: the result is the same number whenever control is at the end
of the block, for the values of the φs and other leaves that are current there. Refuses: ``!=`` as the condition of a
loop, and comparisons that are not in the block of their branch.
Reference: LLVM's ScalarEvolution (no-wrap flags of add recurrences, from guards only).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from ...ptx import Label, Reg
from ...ptx.operations import Operation
from . import affine
from .affine import Affine
from .symbolic_values import SymbolicValues

__all__ = ["NoWrap"]

Kind: TypeAlias = Literal["s", "u"]
_LEAST = {"s": -(1 << 31), "u": 0}
_MOST = {"s": (1 << 31) - 1, "u": (1 << 32) - 1}
#: Limits: dominating blocks whose guards are tested, and nested φs in one proof.
_MOST_GUARDS = 48
_MOST_PHIS = 3

#: By comparison: (whether the right operand is the smaller one, whether the operands may be equal).
_ORDERS = {
    "lt": (0, False), "le": (0, True), "gt": (1, False), "ge": (1, True),
    "lo": (0, False), "ls": (0, True), "hi": (1, False), "hs": (1, True),
}  # fmt: skip
_UNSIGNED = frozenset(["lo", "ls", "hi", "hs"])


@dataclass(frozen=True, slots=True)
class _Order:
    """``below`` is less than ``above``, or equal, as numbers of ``kind``."""

    kind: Kind
    below: int
    above: int
    may_be_equal: bool


@dataclass(frozen=True, slots=True)
class _Bound:
    """The claim that ``number``, read as ``kind``, is at most (``is_upper``) or at least ``limit``."""

    kind: Kind
    number: int
    limit: int
    is_upper: bool


class NoWrap:
    """Proofs that sums of one kernel do not wrap around."""

    def __init__(self, symbols: SymbolicValues) -> None:
        self.symbols = symbols
        self.cfg = symbols.cfg
        #: By (number, block): the result of `normal`.
        self._normal: dict[tuple[int, int], int] = {}
        #: By (kind, rest, constant, block): the result of `is_proven`.
        self._proven: dict[tuple[str, int, int, int], bool] = {}
        #: By block: the result of `_guard_above`.
        self._guards: dict[int, tuple[int, _Order | None]] = {}
        #: By block: the comparison that its branch tests, the result of `_find_condition`.
        self._conditions: dict[int, tuple[str, int, int, Kind, int, bool] | None] = {}
        self._blocks = {block.label: number for number, block in enumerate(self.cfg.blocks) if block.label is not None}

    def normal(self, number: int, block: int) -> int:
        """``number``, an address at the end of ``block``, with constants moved out of extensions where sums do not wrap
        around."""
        values = self.symbols.values
        form = values.affine_of(number, 64)
        if not any(values.key_of(atom)[0] == "extend" for atom, _ in form.terms):
            return number
        key = (number, block)
        result = self._normal.get(key)
        if result is None:
            result = self._normal[key] = self._find_normal(number, form, block)
        return result

    def _find_normal(self, number: int, form: Affine, block: int) -> int:
        values = self.symbols.values
        total: Affine | None = affine.constant(64, form.constant)
        for atom, coefficient in form.terms:
            key = values.key_of(atom)
            term = affine.atom(64, atom)
            if key[0] == "extend" and key[2] == 32 and key[3] == 64 and key[1] in ("s", "u"):
                kind, inner = key[1], cast("int", key[4])
                rest, constant = self.symbols.split(inner, 32)
                if constant and self.is_proven(kind, rest, constant, block):
                    outer = values.lookup(("extend", kind, 32, 64, rest))
                    term = Affine(64, constant & ((1 << 64) - 1), ((outer, 1),))
            total = affine.add(total, term, coefficient) if total is not None else None
        return number if total is None else values.of_affine(total)

    def is_proven(self, kind: Kind, rest: int, constant: int, block: int) -> bool:
        """Whether ``rest + constant`` does not wrap around at the end of ``block``, as a number of ``kind``.
        ``constant`` is signed."""
        key = (kind, rest, constant, block)
        is_proven = self._proven.get(key)
        if is_proven is None:
            is_proven = self._proven[key] = self._fits(kind, rest, constant, block, frozenset())
        return is_proven

    def _fits(self, kind: Kind, rest: int, constant: int, block: int, assumed: frozenset[_Bound]) -> bool:
        is_upper = constant > 0
        limit = (_MOST if is_upper else _LEAST)[kind] - constant
        return self._holds(_Bound(kind, rest, limit, is_upper), block, assumed)

    # --- bounds ----------------------------------------------------------------------------------------------------

    def _holds(self, bound: _Bound, block: int, assumed: frozenset[_Bound]) -> bool:
        """Whether the bound holds at the end of ``block``. ``assumed``: the claims of the inductions in progress."""
        return self._is_shown(bound, block, assumed) or self._holds_otherwise(bound, block, assumed)

    def _holds_otherwise(self, bound: _Bound, block: int, assumed: frozenset[_Bound]) -> bool:
        """The same by bounds of the value as a number of the other kind: both agree from 0 to 2^31 - 1."""
        half = _MOST["s"]
        if bound.kind == "s":
            if bound.is_upper:
                return bound.limit >= 0 and self._is_shown(_Bound("u", bound.number, bound.limit, True), block, assumed)
            return bound.limit <= 0 and self._is_shown(_Bound("u", bound.number, half, True), block, assumed)
        if not bound.is_upper:
            return bound.limit <= half and self._is_shown(_Bound("s", bound.number, bound.limit, False), block, assumed)
        as_signed = _Bound("s", bound.number, min(bound.limit, half), True)
        is_positive = _Bound("s", bound.number, 0, False)
        return self._is_shown(is_positive, block, assumed) and self._is_shown(as_signed, block, assumed)

    def _is_shown(self, bound: _Bound, block: int, assumed: frozenset[_Bound]) -> bool:
        if (_MOST[bound.kind] <= bound.limit) if bound.is_upper else (bound.limit <= _LEAST[bound.kind]):
            return True
        constant = _constant(self.symbols, bound.number, bound.kind)
        if constant is not None:
            return constant <= bound.limit if bound.is_upper else bound.limit <= constant
        return self._is_guarded(bound, block) or self._is_of_phi(bound, assumed)

    def _is_guarded(self, bound: _Bound, block: int) -> bool:
        """Whether an edge that dominates the end of ``block`` is taken only if the bound holds."""
        idom = self.symbols.dominance.idom
        for _ in range(_MOST_GUARDS):
            block, order = self._guard_above(block)
            if order is None:
                return False
            if _tells(order, bound, self.symbols):
                return True
            block = idom[block]
        return False

    def _guard_above(self, block: int) -> tuple[int, _Order | None]:
        """The lowest block that dominates ``block``, itself included, and that one edge alone enters, with the order
        that holds on this edge; (-1, None) if there is none."""
        passed: list[int] = []
        found: tuple[int, _Order | None] = (-1, None)
        while block >= 0:
            known = self._guards.get(block)
            if known is not None:
                found = known
                break
            passed.append(block)
            before = [each for each in self.cfg.pred[block] if self.cfg.reachable[each]]
            is_entered = len(before) == 1 and block != self.cfg.rpo[0]  # control comes to the first block from outside
            order = self._order(before[0], block) if is_entered else None
            if order is not None:
                found = (block, order)
                break
            block = self.symbols.dominance.idom[block]
        self._guards.update(dict.fromkeys(passed, found))
        return found

    def _is_on_edge(self, bound: _Bound, block: int, successor: int) -> bool:
        order = self._order(block, successor)
        return order is not None and _tells(order, bound, self.symbols)

    def _is_of_phi(self, bound: _Bound, assumed: frozenset[_Bound]) -> bool:
        """Whether the bound is one of a φ and holds for all its arguments."""
        if bound in assumed:
            return True
        place = self.symbols.places.get(bound.number)
        if place is None or place.position >= 0 or len(assumed) >= _MOST_PHIS:
            return False
        header = place.block
        if header == self.cfg.rpo[0]:
            return False
        arguments = self.symbols.ssa.phi_args.get(self.symbols.phis.get(header, {}).get(bound.number, -1), ())
        assumed |= {bound}
        return bool(arguments) and all(
            self._comes_in(bound, block, header, self.symbols.values.number[value], assumed)
            for block, value in arguments
        )

    def _comes_in(self, bound: _Bound, block: int, header: int, number: int, assumed: frozenset[_Bound]) -> bool:
        """Whether the bound holds for ``number`` on the edge from ``block`` to ``header``."""
        if not self.cfg.reachable[block]:
            return True
        argument = _Bound(bound.kind, number, bound.limit, bound.is_upper)
        if self._is_on_edge(argument, block, header) or self._holds(argument, block, assumed):
            return True
        # The argument is the φ plus a constant away from the bound, and the bound held in the last iteration.
        rest, constant = self.symbols.split(number, 32)
        is_away = constant < 0 if bound.is_upper else constant > 0
        return rest == bound.number and is_away and self._fits(bound.kind, rest, constant, block, assumed)

    # --- comparisons -----------------------------------------------------------------------------------------------

    def _order(self, block: int, successor: int) -> _Order | None:
        """The order that holds when control goes from ``block`` to ``successor``."""
        if block not in self._conditions:
            self._conditions[block] = self._find_condition(block)
        condition = self._conditions[block]
        if condition is None:
            return None
        word, left, right, kind, target, is_negated = condition
        is_reversed, may_be_equal = _ORDERS[word]
        if is_reversed:
            left, right = right, left
        if (successor == target) == is_negated:  # the comparison is false there
            left, right, may_be_equal = right, left, not may_be_equal
        return _Order(kind, left, right, may_be_equal)

    def _find_condition(self, block: int) -> tuple[str, int, int, Kind, int, bool] | None:
        """The comparison of the branch at the end of ``block``: (comparison, number of its left operand, of its right
        operand, their kind, target of the branch, whether the comparison is false there)."""
        end = self.cfg.blocks[block].terminator
        if (
            end is None
            or end.form.operation is not Operation.BRANCH
            or end.guard is None
            or len(set(self.cfg.succ[block])) != 2
        ):
            return None
        guard, label = end.guard.reg, end.operands[0]
        if not isinstance(guard, Reg) or not isinstance(label, Label):
            return None
        ssa, values = self.symbols.ssa, self.symbols.values
        value = ssa.read(end, guard)
        instr = ssa.instr[value]
        if (
            instr is None
            or ssa.block[value] != block
            or instr.guard is not None
            or instr.form.operation is not Operation.COMPARISON
            or not isinstance(instr.operands[0], Reg)  # the guard may be the second result, which is the opposite
        ):
            return None
        scalar, word = instr.form.type, instr.form.mods.get("cmp", "")
        if len(instr.operands) != 3 or word not in _ORDERS or scalar is None or scalar.name not in ("s32", "u32"):
            return None
        left, right = (values.of_operand(instr, operand, scalar) for operand in instr.operands[1:])
        kind: Kind = "s" if scalar.kind == "s" else "u"
        target = self._blocks.get(label, -1)
        if target not in self.cfg.succ[block] or (kind == "s" and word in _UNSIGNED):
            return None
        return word, left, right, kind, target, end.guard.negated


def _constant(symbols: SymbolicValues, number: int, kind: Kind) -> int | None:
    value = symbols.constant_of(number, 32)
    return value - (1 << 32) if value is not None and kind == "s" and value >> 31 else value


def _tells(order: _Order, bound: _Bound, symbols: SymbolicValues) -> bool:
    """Whether the bound follows from the order."""
    if order.kind != bound.kind or bound.number != (order.below if bound.is_upper else order.above):
        return False
    other = _constant(symbols, order.above if bound.is_upper else order.below, bound.kind)
    if bound.is_upper:
        return (other if other is not None else _MOST[bound.kind]) - (not order.may_be_equal) <= bound.limit
    return (other if other is not None else _LEAST[bound.kind]) + (not order.may_be_equal) >= bound.limit
