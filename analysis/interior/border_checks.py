"""Which outcome a border check has for the blocks of threads in the interior of a grid, and what that needs.

A border check is an integer comparison, minimum, maximum, magnitude, remainder or reflection of a value that depends
on ``ctaid``. The difference ``D`` of its two operands is a polynomial. In the interior, ``D`` lies on one side of 0 for
all threads of a block. Which side that is, is a guess (`Checks.side`):

- A minimum or maximum of one operand that depends on ``ctaid`` and one that does not gives the first one.
- If ``D`` compares the coordinate with a parameter, or with a constant of more than `_SMALL`, it is an upper bound, and
  the coordinate is below it. Otherwise it is a lower bound.
- A parameter that is added to the coordinate while another one is subtracted is the radius of a window. A difference
  with no other parameter is a lower bound.

A wrong guess makes a condition that few blocks fulfil. It never makes a wrong outcome: `BlockBounds` proves the outcome
from the conditions, for the wrapping words that the instructions read.

Requires: `InteriorForms`. Guarantees: if everything in `Decision.needs` holds in a block, the instruction has that
outcome whenever a thread of the block executes it. Refuses (`Unbounded`): values that are not polynomials with bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ...ptx import Instr, Operand, Reg
from ...ptx.operations import Operation
from ..effects import is_may_definition
from ..manager import Facts
from ..values.polynomial import Atom, Poly, TooManyTerms, centered, constant
from .block_bounds import BlockBounds, Needs, Unbounded, resolved_atoms
from .interior_forms import NOTHING, Choice, InteriorForms

__all__ = ["CHECKS", "Checks", "Decision", "is_candidate"]

#: A constant that is compared with a coordinate: up to this, it is the radius of a window and not the size of an image.
_SMALL = 31
#: The most operands of a tree of ``or``, ``min`` or ``max`` that is compared as a whole.
_MOST_LEAVES = 64

CHECKS = frozenset(
    [
        *(Operation.COMPARISON, Operation.MINIMUM, Operation.MAXIMUM, Operation.MAGNITUDE),
        *(Operation.REMAINDER, Operation.QUOTIENT, Operation.XOR),
    ]
)
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
#: By relation of ``D`` to 0: (outcome, margin). `_IF_LARGE` is for a large ``D``: the outcome holds if ``D - margin``
#: is not negative. `_IF_SMALL` is for a small ``D``: the outcome holds if ``-D - margin`` is not negative.
_IF_LARGE = {"lt": (False, 0), "le": (False, 1), "gt": (True, 1), "ge": (True, 0), "eq": (False, 1), "ne": (True, 1)}
_IF_SMALL = {"lt": (True, 1), "le": (True, 0), "gt": (False, 0), "ge": (False, 1), "eq": (False, 1), "ne": (True, 1)}


@dataclass(frozen=True, slots=True)
class Decision:
    """The ``outcome`` of a check, and what it ``needs``. ``is_border``: whether it depends on ``ctaid``."""

    outcome: bool | Choice
    needs: Needs
    is_border: bool


def is_candidate(instr: Instr) -> bool:
    """Whether the instruction may be a border check, by its form alone."""
    form = instr.form
    scalar = form.scalar("type")
    if form.operation not in CHECKS or scalar is None or scalar.bits not in (32, 64) or scalar.lanes != 1:
        return False
    if scalar.kind not in "usb" or form.flags or is_may_definition(instr):
        return False
    return isinstance(instr.operands[0], Reg) and instr.operands[0].lanes == 1


@dataclass(slots=True)
class Checks:
    """The checks of one kernel under the outcomes in ``forms``.

    ``radii``: the parameters that are a radius. ``uppers``: by how much coordinates exceed their upper bounds, without
    constants, in the checks that are decided."""

    facts: Facts
    bounds: BlockBounds
    forms: InteriorForms
    radii: frozenset[Atom] = frozenset()
    uppers: set[Poly] = field(default_factory=set[Poly])

    def find_radii(self, checks: Iterable[Instr]) -> frozenset[Atom]:
        """The parameters that are added to a coordinate while another parameter is subtracted."""
        found: set[Atom] = set()
        for instr in checks:
            if len(instr.operands) < 3:
                continue
            try:
                difference = self._difference(instr)
            except (Unbounded, TooManyTerms):
                continue
            sign = _sign(difference)
            added = {atom for atom, factor in _parameters(difference) if factor * sign > 0}
            if any(factor * sign < 0 for _, factor in _parameters(difference)):
                found |= added
        return frozenset(found)

    def decide(self, instr: Instr) -> Decision | None:
        """The decision about a candidate; `None` where it is no border check. Raises `Unbounded`."""
        try:
            match instr.form.operation:
                case Operation.COMPARISON:
                    return self._comparison(instr)
                case Operation.MINIMUM | Operation.MAXIMUM:
                    return self._extreme(instr)
                case Operation.MAGNITUDE:
                    return self._magnitude(instr)
                case Operation.REMAINDER:
                    return self._remainder(instr)
                case Operation.QUOTIENT:
                    return self._quotient(instr)
                case _:
                    return self._reflection(instr)
        except TooManyTerms:
            raise Unbounded("not-affine") from None

    # --- comparisons -------------------------------------------------------------------------------------------------

    def _comparison(self, instr: Instr) -> Decision | None:
        form, scalar = instr.form, instr.form.scalar("type")
        assert scalar is not None
        word = form.mods["cmp"]
        kind = "s" if scalar.kind == "s" and word not in _UNSIGNED else "u"
        relation = _UNSIGNED.get(word, word)
        if relation not in _IF_LARGE:
            return None
        right = self._word(instr, instr.operands[2], kind)
        join, leaves = self._leaves(instr, instr.operands[1], kind)
        lefts = [self._word(reader, operand, kind) for reader, operand in leaves]
        differences = [self._integer(left - right) for left in lefts]
        if len(differences) == 1 and differences[0].is_constant and lefts[0].is_constant and right.is_constant:
            return Decision(_holds(relation, differences[0].value), Needs(), is_border=False)
        if not any(map(_is_of_block, differences)):
            return None
        sides = {self.side(each, is_lower=right.is_constant) for each in differences if _is_of_block(each)}
        if len(sides) != 1 or not sides <= _SIDES_OF[join]:
            raise Unbounded("direction")
        if join == "or" and (kind, relation, right.value if right.is_constant else None) not in _SIGN_TESTS:
            raise Unbounded("not-affine")
        outcome = None
        needs = Needs()
        for left, difference in zip(lefts, differences, strict=True):
            sign = _sign(difference) or 1
            is_large = (sides == {"lower"}) == (sign > 0)
            result, margin = (_IF_LARGE if is_large else _IF_SMALL)[relation]
            if outcome not in (None, result):
                raise Unbounded("direction")
            outcome = result
            self.bounds.within(left, kind, scalar.bits, needs)
            self.bounds.not_negative((difference if is_large else -difference) - margin, needs)
        self.bounds.within(right, kind, scalar.bits, needs)
        assert outcome is not None
        if sides == {"upper"}:
            self.uppers.update(_normal(each) for each in differences)
        return self._decided(outcome, needs)

    def _leaves(self, instr: Instr, operand: Operand, kind: str) -> tuple[str, list[tuple[Instr, Operand]]]:
        """The operands of a tree of ``or``, ``min`` or ``max`` whose result ``instr`` reads from ``operand``, each with
        its reader; or the operand itself. An instruction that the tree contains several times counts once. Raises
        `Unbounded` where the tree has more than `_MOST_LEAVES` operands."""
        definition = self._definition(instr, operand)
        join = self._join(definition, kind)
        if definition is None or not join:
            return "", [(instr, operand)]
        leaves: list[tuple[Instr, Operand]] = []
        seen = {definition}
        work = [definition]
        while work:
            reader = work.pop()
            for source in reader.operands[1:]:
                inner = self._definition(reader, source)
                other = self._join(inner, kind)
                if inner is None or not other:
                    leaves.append((reader, source))
                elif other != join:
                    return "", [(instr, operand)]
                elif inner not in seen:
                    seen.add(inner)
                    work.append(inner)
            if len(leaves) > _MOST_LEAVES:
                raise Unbounded("not-affine")
        return join, leaves

    def _join(self, definition: Instr | None, kind: str) -> str:
        return "" if definition is None or definition in self.forms.chosen else _join(definition, kind)

    def _definition(self, instr: Instr, operand: Operand) -> Instr | None:
        if not isinstance(operand, Reg):
            return None
        definition = self.facts.ssa.instr[self.facts.ssa.read(instr, operand)]
        return definition if definition is not None and not is_may_definition(definition) else None

    # --- clamps, magnitudes, remainders ------------------------------------------------------------------------------

    def _extreme(self, instr: Instr) -> Decision | None:
        scalar = instr.form.scalar("type")
        assert scalar is not None
        left, right = (self._word(instr, each, scalar.kind) for each in instr.operands[1:])
        difference = self._integer(left - right)
        is_maximum = instr.form.operation is Operation.MAXIMUM
        if difference.is_constant and left.is_constant:
            return Decision(Choice(int((difference.value >= 0) != is_maximum)), Needs(), is_border=False)
        if not _is_of_block(difference):
            return None
        varying = [_is_of_block(self._integer(each)) for each in (left, right)]
        if varying.count(True) == 1:
            source = varying.index(True)
        else:
            is_large = (self.side(difference) == "lower") == (_sign(difference) > 0)
            source = int(is_large != is_maximum)
        is_large = (source == 0) == is_maximum
        needs = Needs()
        for each in (left, right):
            self.bounds.within(each, scalar.kind, scalar.bits, needs)
        self.bounds.not_negative(difference if is_large else -difference, needs)
        if not is_maximum:
            self.uppers.add(_normal(difference))
        return self._decided(Choice(source), needs)

    def _magnitude(self, instr: Instr) -> Decision | None:
        scalar = instr.form.scalar("type")
        assert scalar is not None
        operand = self._word(instr, instr.operands[1], "s")
        if not _is_of_block(self._integer(operand)):
            return None
        needs = Needs()
        self.bounds.within(operand, "s", scalar.bits, needs)
        self.bounds.not_negative(operand, needs)
        return self._decided(Choice(0), needs)

    def _remainder(self, instr: Instr) -> Decision | None:
        """``a % b`` is ``a``, or ``a - b`` if ``b`` is a term of ``a``: the coordinate is between 0 and ``b``."""
        scalar = instr.form.scalar("type")
        assert scalar is not None
        left, right = (self._word(instr, each, scalar.kind) for each in instr.operands[1:])
        if not _is_of_block(self._integer(left)) or _is_of_block(self._integer(right)) or right.is_constant:
            return None
        term = next((monomial for monomial, _ in right if monomial), ())
        times = int(any(monomial == term and factor > 0 for monomial, factor in left))
        rest = left - right * times
        beyond = self._integer(rest - right)
        if not times and _normal(beyond) not in self.uppers:
            return None  # an index that is split into coordinates
        needs = Needs()
        for each in (left, right):
            self.bounds.within(each, scalar.kind, scalar.bits, needs)
        self.bounds.not_negative(rest, needs)
        self.bounds.not_negative(-beyond - 1, needs)
        return self._decided(Choice(0, times), needs)

    def _quotient(self, instr: Instr) -> Decision | None:
        """``a / b`` is 0 if ``a`` is not negative, and less than ``b`` by a constant. So nvcc computes how often a loop
        adds the size of the image to an index."""
        scalar = instr.form.scalar("type")
        assert scalar is not None
        left, right = (self._word(instr, each, scalar.kind) for each in instr.operands[1:])
        difference = self._integer(left - right)
        if not difference.is_constant or right.is_constant or difference.value >= 0:
            return None
        needs = Needs()
        for each in (left, right):
            self.bounds.within(each, scalar.kind, scalar.bits, needs)
        self.bounds.not_negative(left, needs)
        return Decision(Choice(NOTHING), needs, is_border=_is_of_block(left))

    def _reflection(self, instr: Instr) -> Decision | None:
        """``x ^ (x >> 31)`` is ``x`` if ``x`` is not negative, else ``-x - 1``."""
        scalar = instr.form.scalar("type")
        assert scalar is not None
        for source in (0, 1):
            operand, shifted = instr.operands[1 + source], self._definition(instr, instr.operands[2 - source])
            if shifted is None or shifted.form.text != f"shr.s{scalar.bits}" or not isinstance(operand, Reg):
                continue
            count, shown = shifted.operands[2], shifted.operands[1]
            if not isinstance(shown, Reg) or self.facts.ssa.read(shifted, shown) != self.facts.ssa.read(instr, operand):
                continue
            form = self.forms.word(shifted, count, 32)
            value = self._word(instr, operand, "s")
            if form.is_constant and form.value == scalar.bits - 1 and _is_of_block(self._integer(value)):
                needs = Needs()
                self.bounds.within(value, "s", scalar.bits, needs)
                self.bounds.not_negative(value, needs)
                return self._decided(Choice(source), needs)
        return None

    # --- sides -------------------------------------------------------------------------------------------------------

    def side(self, difference: Poly, *, is_lower: bool = False) -> str:
        """``lower`` if the coordinate is large in the interior, ``upper`` if it is small. ``is_lower``: the other
        operand of the check is a constant. Raises `Unbounded` where the difference grows and falls."""
        sign = _sign(difference)
        if not sign:
            raise Unbounded("direction")
        bounds = [atom for atom, factor in _parameters(difference) if factor * sign < 0 and atom not in self.radii]
        if bounds and not (is_lower and sign > 0 and -difference.value <= _SMALL):
            return "upper"
        return "upper" if -difference.value * sign > _SMALL else "lower"

    # --- values ------------------------------------------------------------------------------------------------------

    def _word(self, instr: Instr, operand: Operand, kind: str) -> Poly:
        """The operand as a polynomial; a constant as a number of the type."""
        scalar = instr.form.scalar("type")
        assert scalar is not None
        form = self.forms.word(instr, operand, scalar.bits)
        if form.is_constant:
            value = form.value % (1 << scalar.bits)
            return constant(value - (1 << scalar.bits) if kind == "s" and value >> (scalar.bits - 1) else value)
        return centered(form, scalar.bits)

    def _integer(self, form: Poly) -> Poly:
        return self.bounds.as_integer(form, Needs())

    def _difference(self, instr: Instr) -> Poly:
        scalar = instr.form.scalar("type")
        assert scalar is not None
        left, right = (self._word(instr, each, scalar.kind) for each in instr.operands[1:3])
        return self._integer(left - right)

    def _decided(self, outcome: bool | Choice, needs: Needs) -> Decision:
        if any(self.bounds.is_never(each) for each in needs.conditions):
            raise Unbounded("never")
        return Decision(outcome, needs, is_border=True)


#: By kind of the tree of the left operand: the sides on which all its leaves may be.
_SIDES_OF = {"": {"lower", "upper"}, "or": {"lower"}, "min": {"lower"}, "max": {"upper"}}
#: The comparisons that test the sign of a word: (kind, relation, right operand).
_SIGN_TESTS = {("s", "lt", 0), ("s", "ge", 0), ("s", "gt", -1), ("s", "le", -1)}


def _join(instr: Instr, kind: str) -> str:
    """``or``, ``min`` or ``max`` for an instruction whose comparison with a number follows from comparisons of its
    operands with this number; else empty."""
    scalar, operation = instr.form.scalar("type"), instr.form.operation
    if scalar is None or scalar.lanes != 1 or scalar.bits not in (32, 64) or instr.form.flags:
        return ""
    if operation is Operation.OR:
        return "or"
    if scalar.kind != kind:
        return ""
    return {Operation.MINIMUM: "min", Operation.MAXIMUM: "max"}.get(operation, "")


def _is_of_block(form: Poly) -> bool:
    """Whether the value depends on the number of the block."""
    return any(atom.kind == "ctaid" for atom in resolved_atoms(form))


def _sign(form: Poly) -> int:
    """1 if the value grows with the number of the block, -1 if it falls, 0 if it does both."""
    signs = {1 if factor > 0 else -1 for monomial, factor in form if any(atom.kind == "ctaid" for atom in monomial)}
    return signs.pop() if len(signs) == 1 else 0


def _parameters(form: Poly) -> Iterator[tuple[Atom, int]]:
    """The parameters and dimensions of the grid that stand in terms without coordinates, with their factors."""
    for monomial, factor in form:
        if monomial and all(atom.kind in ("param", "nctaid", "ntid") for atom in monomial):
            for atom in monomial:
                if atom.kind != "ntid":
                    yield atom, factor


def _normal(difference: Poly) -> Poly:
    """The difference without its constant, growing with the number of the block."""
    rest = difference - difference.value
    return rest if _sign(difference) >= 0 else -rest


def _holds(relation: str, difference: int) -> bool:
    return {
        "lt": difference < 0,
        "le": difference <= 0,
        "gt": difference > 0,
        "ge": difference >= 0,
        "eq": difference == 0,
        "ne": difference != 0,
    }[relation]
