"""Ranges of integer values over all threads of a launch, as expressions of its arguments and dimensions.

Computes: for a polynomial of `LaunchForms` at a place with known comparisons (`thread_accesses.Guards`) a `Span` that
contains its value in every thread that reaches the place. Coordinates are bounded by the dimensions of the launch,
parameters are known exactly, and ``turn`` is bounded by a test that every iteration of its loop executes:

- ``counter < limit``, with a step of known sign, also with ``<=`` and the other direction: by division;
- ``counter != limit``: the counter is the limit after difference / step iterations, if that is an integer and not
  negative. It may be the limit earlier, because words wrap around. So this is an upper bound without further proof.

A word of 32 bits has the value of its polynomial only if the polynomial is in the range of its type. Where that is not
known statically it becomes a *need*: a condition of the launch. Alternatively, comparisons bound the word itself from
both sides. If a comparison of the place does not depend on the thread and is false in a launch, no thread reaches the
place, and nothing is needed.

Requires: facts of a kernel without nested scopes. Guarantees: if all needs hold in a launch, the value of the
polynomial is in the span whenever a thread is at the place. Refuses (``None``): values that nothing bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...contract import Expression, Number, Symbol
from ...contract.expressions import (
    FIELD_TYPES,
    any_of,
    argument,
    compare,
    field,
    maximum,
    minimum,
    negated,
    symbols,
)
from ...ptx import Param
from ..values.launch_forms import LaunchForms
from ..values.polynomial import Atom, Poly, TooManyTerms, constant, variable
from ..values.thread_affine import UNIFORM, range_of
from .spans import Span, exactly, number, product, sum_of, united
from .thread_accesses import Comparison, Guards

if TYPE_CHECKING:
    from ..manager import Facts

__all__ = ["LaunchRanges", "Place"]

_HALF = {32: 1 << 31, 64: 1 << 63}
#: Nested words, derived values and loops in one value.
_DEEPEST = 12


class _Part(NamedTuple):
    """A side of a comparison of 32 bits, which may replace a part of a polynomial. ``kind`` is its type. ``is_static``:
    the word always has the value of the polynomial. ``atoms`` are those of which the side is the sum with, or the
    difference from, something else, with their factors 1 or -1."""

    side: Poly
    kind: str
    is_static: bool
    atoms: tuple[tuple[Atom, int], ...]


class _Beginning(NamedTuple):
    """What follows from guards alone: see `Place`. ``needs``: of ``positive``."""

    parts: list[_Part]
    positive: dict[Atom, int]
    needs: tuple[Expression, ...]


class LaunchRanges:
    """The ranges of one kernel."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.forms = LaunchForms(facts)
        self.guards = Guards(facts, self.forms)
        self.params: dict[str, tuple[int, Param]] = {
            param.name: (index, param) for index, param in enumerate(facts.kernel.params or ())
        }
        #: By header of a loop: the bound of its iterations and what it needs; ``None`` while it is computed.
        self._turns: dict[int, tuple[Span, tuple[Expression, ...]] | None] = {}
        self._headers = {atom: header for header, atom in self.forms.turns.items()}
        self._parts: dict[Comparison, tuple[_Part, ...]] = {}
        #: By guards: what a `Place` begins with.
        self.beginnings: dict[tuple[Comparison, ...], _Beginning] = {}
        #: By guards and polynomial: `span_where`.
        self._spans: dict[tuple[tuple[Comparison, ...], Poly], tuple[Span, tuple[Expression, ...]] | None] = {}

    def place(self, guards: Sequence[Comparison]) -> Place:
        """The ranges at a place where these comparisons hold."""
        return Place(self, tuple(guards))

    def span_where(self, guards: Sequence[Comparison], form: Poly) -> tuple[Span, tuple[Expression, ...]] | None:
        """The range of a polynomial of 64 bits, as an integer, where these comparisons hold, and what that needs."""
        key = (tuple(guards), form)
        if key not in self._spans:
            place = self.place(guards)
            span = place.span(form)
            self._spans[key] = None if span is None else (span, place.conditions())
        return self._spans[key]

    def parts(self, test: Comparison) -> tuple[_Part, ...]:
        """The sides of a comparison that may replace parts of polynomials."""
        if test not in self._parts:
            is_word = test.bits == 32 and test.kind != "b"
            kind = "s" if test.kind == "s" else "u"
            self._parts[test] = tuple(_part(side, kind) for side in (test.left, test.right) if is_word)
        return self._parts[test]

    def turns(self, atom: Atom) -> tuple[Span, tuple[Expression, ...]] | None:
        """How many iterations a thread may have finished when it reads a ``turn``, and what that needs."""
        header = self._headers[atom]
        if header not in self._turns:
            self._turns[header] = None
            self._turns[header] = self._find_turns(header, atom)
        return self._turns[header]

    def is_around(self, outer: Atom, inner: Atom) -> bool:
        """Whether the loop of one ``turn`` contains that of another one."""
        header = self._headers[inner]
        return any(header in each for each in self.facts.loops.loops if each.header == self._headers[outer])

    def _find_turns(self, header: int, turn: Atom) -> tuple[Span, tuple[Expression, ...]] | None:
        loops = self.facts.loops
        loop = next((each for each in loops.loops if each.header == header and not each.is_irreducible), None)
        if loop is None:
            return None
        dominates = self.facts.dominance.dominates
        for block, _ in loop.exits:
            if loops.loop_of[block] != loop.index or not all(dominates(block, latch) for latch in loop.latches):
                continue
            inside = [other for other in self.facts.cfg.succ[block] if other in loop]
            if len(inside) != 1 or len(self.facts.cfg.succ[block]) != 2:
                continue
            for test in self.guards.on_edge(block, inside[0]):
                place = self.place(self.guards.at(header))
                most = place.iterations(test, turn)
                if most is not None:
                    return most, place.conditions()
        return None


class Place:
    """The ranges of values where ``guards`` hold. `conditions` has what all answers so far need."""

    def __init__(self, ranges: LaunchRanges, guards: tuple[Comparison, ...]) -> None:
        self._ranges = ranges
        self._forms = ranges.forms
        self._guards = guards
        self._needs: dict[Expression, None] = {}
        #: Conditions of the launch that need no proof that the place is reached: those of loops have their own.
        self._inherited: dict[Expression, None] = {}
        self._depth = 0
        #: The words of 32 bits whose polynomials are evaluated now; they do not replace parts of these polynomials.
        self._active: list[Poly] = []
        #: The results of `word`, by its arguments and what else decides about it: the depth and `_active`. What a
        #: result needs is in `_needs` from the first time on.
        self._found: dict[tuple[Poly, str, int, int, tuple[Poly, ...]], Span | None] = {}
        #: The polynomial of each word that stands for a part of another polynomial, with its type.
        self._words: dict[Atom, tuple[Poly, str, int]] = {}
        beginning = ranges.beginnings.get(guards)
        if beginning is None:
            parts = [part for test in guards for part in ranges.parts(test) if part.atoms]
            positive = self._find_positive()
            beginning = ranges.beginnings[guards] = _Beginning(parts, positive, tuple(self._needs))
        self._parts = beginning.parts
        #: Parameters of 32 bits that are not negative as signed words, and what is known of them.
        self._positive = beginning.positive
        self._needs.update(dict.fromkeys(beginning.needs))

    # --- results -----------------------------------------------------------------------------------------------------

    def conditions(self) -> tuple[Expression, ...]:
        """What the launch must fulfil for the answers of this place."""
        needs = list(self._needs)
        never: list[Expression] = []
        if any(map(_reads_arguments, needs)):
            never = [negated(each) for each in self._uniform_guards()]
        # What only the dimensions decide is as good as always true, so it is not made longer.
        found = (any_of(need, *never) if _reads_arguments(need) else need for need in needs)
        return tuple(dict.fromkeys((*self._inherited, *found)))

    def span(self, form: Poly) -> Span | None:
        """The range of a polynomial of 64 bits, as an integer."""
        try:
            return self._of_poly(self._substituted(form, 64), "u", 64)
        except TooManyTerms:
            return None

    # --- polynomials -------------------------------------------------------------------------------------------------

    def _of_poly(self, form: Poly, kind: str, bits: int) -> Span | None:
        if self._depth >= _DEEPEST:
            return None
        self._depth += 1
        try:
            total: Span | None = None
            for monomial, factor in form:
                part = number(factor)
                for atom in monomial:
                    span = self._of_atom(atom, kind, bits)
                    if span is None:
                        return None
                    part = product(part, span)
                total = part if total is None else sum_of(total, part)
            return number(0) if total is None else total
        finally:
            self._depth -= 1

    def _of_atom(self, atom: Atom, kind: str, bits: int) -> Span | None:
        match atom.kind:
            case "tid" | "ctaid" | "ntid" | "nctaid":
                return _coordinate(atom)
            case "param":
                return self._of_param(atom, kind, bits)
            case "turn":
                return self._of_turn(atom)
            case "extended":
                return self._of_extended(atom)
            case "word":
                return self.word(*self._words[atom])
            case "derived":
                return self._of_derived(atom, kind)
            case _:
                if atom.low is None or atom.high is None:
                    return None
                return Span(Number(atom.low), Number(atom.high), atom.low, atom.high)

    def _of_turn(self, atom: Atom) -> Span | None:
        found = self._ranges.turns(atom)
        if found is None:
            return None
        self._inherited.update(dict.fromkeys(found[1]))
        return found[0]

    def _of_extended(self, atom: Atom) -> Span | None:
        assert atom.inner is not None
        span = self.word(atom.inner, atom.name[0], 32)
        bounds = self._guarded(variable(atom), "s", 64)
        if span is None or bounds == (None, None):
            return span
        low, high = bounds  # a comparison of 64 bits bounds the extended word
        return Span(
            span.low if low is None else maximum(span.low, low.low),
            span.high if high is None else minimum(span.high, high.high),
            span.least,
            span.most,
        )

    def _of_param(self, atom: Atom, kind: str, bits: int) -> Span | None:
        name, plus, offset = atom.name.partition("+")
        found = self._ranges.params.get(name)
        if found is None:
            return None
        index, param = found
        if plus:
            type = f"{kind}{bits}"
            if not param.dims or type not in FIELD_TYPES or int(offset) + bits // 8 > param.bytes:
                return None
            return exactly(field(index, int(offset), type), *range_of(kind, bits))
        if param.dims or param.lanes != 1 or param.type.is_float or param.type.kind not in "usb":
            return None
        own, width = "s" if param.type.kind == "s" else "u", param.type.bits
        if width < bits:
            return None  # the load reads beyond the parameter
        value, bounds = argument(index), range_of(own, width)
        if bits != 32 or width != 32 or own == kind:
            return exactly(value, *bounds)
        if atom in self._positive:
            return exactly(value, self._positive[atom], (1 << 31) - 1)
        return exactly(_wrapped(value, kind, 32), *range_of(kind, 32))

    def _of_derived(self, atom: Atom, kind: str) -> Span | None:
        operation = self._forms.derived[atom]
        operands = self._forms.operands(atom)
        if operation.kind == "choice":
            spans = [self._of_poly(self._substituted(each, operation.bits), kind, operation.bits) for each in operands]
            total: Span | None = spans[0]
            for span in spans[1:]:
                total = None if total is None or span is None else united(total, span)
            return total
        amount = operation.amount
        fixed = None
        if atom.low is not None and atom.high is not None:
            fixed = Span(Number(atom.low), Number(atom.high), atom.low, atom.high)
        if operation.kind == "low":
            inner = self._of_poly(operands[0], kind, operation.bits) if _is_uniform(self._forms, operands[0]) else None
            return exactly(inner.low % amount, 0, amount - 1) if inner is not None and inner.is_exact else fixed
        word = self.word(operands[0], "s" if operation.signed else "u", operation.bits)
        if word is None:
            return fixed
        if operation.kind == "remainder":
            return exactly(word.low % amount, 0, amount - 1) if word.is_exact else fixed
        least, most = (None if bound is None else bound // amount for bound in (word.least, word.most))
        return Span(word.low // amount, word.high // amount, least, most)

    # --- words -------------------------------------------------------------------------------------------------------

    def word(self, form: Poly, kind: str, bits: int) -> Span | None:
        """The range of the word of ``bits`` bits that is congruent to ``form``, read as signed (``s``) or unsigned."""
        key = (form, kind, bits, self._depth, tuple(self._active))
        if key not in self._found:
            self._found[key] = self._find_word(form, kind, bits)
        return self._found[key]

    def _find_word(self, form: Poly, kind: str, bits: int) -> Span | None:
        low, high = range_of(kind, bits)
        below, above = self._guarded(form, kind, bits)
        if above is not None and (below is not None or kind == "u"):
            least = below.least if below is not None and below.least is not None else low
            start = below.low if below is not None else Number(0)
            return Span(start, above.high, max(least, low), _smaller(above.most, high))
        self._active.append(form)
        try:
            span = self._of_poly(self._substituted(form, bits), kind, bits)
        finally:
            self._active.pop()
        if span is None:
            return None
        if not span.is_within(low, high):
            if span.is_exact:
                return exactly(_wrapped(span.low, kind, bits), low, high)
            self._need_within(span, low, high)
        least = low if span.least is None else max(span.least, low)
        most = high if span.most is None else min(span.most, high)
        if span.is_exact:
            return exactly(span.low, least, most)
        start = span.low if below is None else maximum(span.low, below.low)
        stop = span.high if above is None else minimum(span.high, above.high)
        width = span.width if below is None and above is None else 0
        return Span(start, stop, least, _smaller(above.most if above is not None else None, most), width)

    def _need_within(self, span: Span, low: int, high: int) -> None:
        if span.least is None or span.least < low:
            self._need(compare(">=", span.low, low))
        if span.most is None or span.most > high:
            self._need(compare("<=", span.high, high))

    def _need(self, condition: Expression) -> None:
        self._needs[condition] = None

    def _substituted(self, form: Poly, bits: int) -> Poly:
        """The polynomial with parts of it replaced by words that comparisons bound: ``i·n + j`` with ``i < n``, where i
        is ``ctaid.y·ntid.y + tid.y``."""
        for part in self._parts if self._guards else ():
            replaced = self._with_word(form, part, bits)
            if replaced is not None and (len(part.side.terms) == 1 or _spread(replaced) < _spread(form)):
                form = replaced
        return form

    def _with_word(self, form: Poly, part: _Part, bits: int) -> Poly | None:
        side, kind = part.side, part.kind
        # In a sum of 64 bits, the word must be the polynomial itself and not only congruent to it.
        if side in self._active or (bits != 32 and not part.is_static):
            return None
        for atom, factor in part.atoms:
            if atom not in form.atoms:
                continue
            word = Atom("word", f"{kind}32({side})")
            self._words[word] = (side, kind, 32)
            rest = side - variable(atom) * factor
            return form.substitute({atom: (variable(word) - rest) * factor})
        return None

    # --- comparisons -------------------------------------------------------------------------------------------------

    def _guarded(self, form: Poly, kind: str, bits: int) -> tuple[Span | None, Span | None]:
        """(span whose low end is a lower bound, span whose high end is an upper bound) of the word that is congruent to
        ``form``, as far as a comparison gives one."""
        below: Span | None = None
        above: Span | None = None
        if self._depth >= _DEEPEST:
            return None, None
        self._depth += 1
        try:
            for test in self._guards:
                if test.bits != bits or test.relation == "ne" or not _is_of_kind(test, kind):
                    continue
                is_strict = int(test.relation == "lt")
                if above is None and test.left == form:
                    above = self._moved(self.word(test.right, kind, bits), -is_strict)
                if below is None and test.right == form:
                    below = self._moved(self.word(test.left, kind, bits), is_strict)
                if test.relation == "eq":
                    if below is None and test.left == form:
                        below = self.word(test.right, kind, bits)
                    if above is None and test.right == form:
                        above = self.word(test.left, kind, bits)
        finally:
            self._depth -= 1
        return below, above

    def _moved(self, span: Span | None, by: int) -> Span | None:
        return None if span is None else sum_of(span, number(by))

    def _find_positive(self) -> dict[Atom, int]:
        """By parameter of 32 bits a lower bound as a signed word, which is 0 or more, from comparisons with constants
        and with sums of coordinates."""
        found: dict[Atom, int] = {}
        for test in self._guards:
            atom = next(iter(test.right.atoms), None)
            if test.kind != "s" or test.bits != 32 or test.relation not in ("lt", "le") or atom is None:
                continue
            if atom.kind != "param" or test.right != variable(atom):
                continue
            least = self._least(test.left)
            bound = -1 if least is None else least + (test.relation == "lt")
            if bound >= 0:
                found[atom] = max(found.get(atom, 0), bound)
        return found

    def _least(self, form: Poly) -> int | None:
        """A lower bound of the signed word that is congruent to a constant or to a sum of coordinates."""
        if form.is_constant:
            return (form.value + (1 << 31)) % (1 << 32) - (1 << 31)
        if any(atom.kind not in ("tid", "ctaid", "ntid", "nctaid") for atom in form.atoms):
            return None
        span = self._of_poly(form, "s", 32)
        if span is None or span.least is None or span.least < 0:
            return None
        self._need_within(span, *range_of("s", 32))
        return span.least

    def _uniform_guards(self) -> list[Expression]:
        """The comparisons of the place that are the same in all threads, as expressions."""
        found: list[Expression] = []
        needs = dict(self._needs)
        for test in self._guards:
            if test.bits != 32 or not (_is_uniform(self._forms, test.left) and _is_uniform(self._forms, test.right)):
                continue
            kind = "s" if test.kind == "s" else "u"
            sides = [self.exact(side, kind) for side in (test.left, test.right)]
            if None in sides:
                continue
            left, right = (side for side in sides if side is not None)
            found.append(compare({"lt": "<", "le": "<=", "eq": "==", "ne": "!="}[test.relation], left, right))
        self._needs = needs
        return found

    def exact(self, form: Poly, kind: str) -> Expression | None:
        """The exact value of a word that is the same in all threads, in every launch."""
        positive, self._positive = self._positive, {}
        guards, self._guards = self._guards, ()
        found, self._found = self._found, {}  # with other guards, and perhaps needs that are not kept
        try:
            span = self.word(form, kind, 32)
        finally:
            self._positive, self._guards, self._found = positive, guards, found
        return span.low if span is not None and span.is_exact else None

    # --- loops -------------------------------------------------------------------------------------------------------

    def iterations(self, test: Comparison, turn: Atom) -> Span | None:
        """The bound of ``turn``, if a thread stays in the loop in an iteration only where ``test`` holds in it."""
        if test.bits not in (32, 64):
            return None
        for counter, limit, is_below in ((test.left, test.right, True), (test.right, test.left, False)):
            step = counter.coefficient(turn)
            start = counter.without(lambda atom: atom == turn)
            if turn in limit.atoms or step is None or not step.is_constant or not step.value:
                continue
            if not self._is_steady(start, turn):
                continue
            if test.relation == "ne" and self._is_steady(limit, turn):
                return self._until_equal(start, step.value, limit, test.bits)
            if test.relation in ("lt", "le") and test.kind in "su" and (step.value > 0) == is_below:
                return self._until_beyond(start, step.value, limit, test)
        return None

    def _is_steady(self, form: Poly, turn: Atom) -> bool:
        """Whether the value is the same in all iterations of the loop of ``turn``, for one thread."""
        return all(self._is_steady_atom(atom, turn) for atom in form.atoms)

    def _is_steady_atom(self, atom: Atom, turn: Atom) -> bool:
        if atom.kind in ("tid", "ctaid", "ntid", "nctaid", "param"):
            return True
        if atom.kind == "turn":
            return atom != turn and self._ranges.is_around(atom, turn)
        if atom.inner is not None:
            return self._is_steady(atom.inner, turn)
        if atom.kind != "derived" or self._forms.derived[atom].kind == "choice":
            return False
        return all(self._is_steady(each, turn) for each in self._forms.operands(atom))

    def _until_equal(self, start: Poly, step: int, limit: Poly, bits: int) -> Span | None:
        """A counter that has become equal to its limit after difference / step iterations, or earlier."""
        difference = (limit - start) * (1 if step > 0 else -1)
        span = self._of_poly(self._substituted(difference, bits), "s", bits)
        if span is None:
            return None
        step = abs(step)
        if span.least is None or span.least < 0:
            self._need(compare(">=", span.low, 0))
        if step > 1 and not self._is_multiple(difference, step):
            if not span.is_exact:
                return None
            self._need(compare("==", span.low % step, 0))
        most = None if span.most is None else max(span.most, 0) // step
        return Span(Number(0), span.high // step, 0, most)

    def _is_multiple(self, form: Poly, step: int) -> bool:
        """Whether ``step`` certainly divides the polynomial. ``x`` and its remainder by a multiple of the step count as
        equal."""
        low: dict[Atom, Poly] = {}
        for atom in form.atoms:
            operation = self._forms.derived.get(atom)
            if operation is not None and operation.kind == "low" and operation.amount % step == 0:
                low[atom] = self._forms.operands(atom)[0]
        return all(factor % step == 0 for _, factor in form.substitute(low))

    def _until_beyond(self, start: Poly, step: int, limit: Poly, test: Comparison) -> Span | None:
        """A counter that runs towards its limit. Its words do not wrap around before: neither the first one nor the one
        after the limit."""
        low, high = range_of(test.kind, test.bits)
        first = self.word(start, test.kind, test.bits)
        last = self.word(limit, test.kind, test.bits)
        if first is None or last is None:
            return None
        size, strict = abs(step), int(test.relation == "lt")
        if step > 0:
            # The last counter that stays is at most last.high - strict, and the next one is larger by the step.
            self._need_within(
                sum_of(Span(last.high, last.high, last.least, last.most), number(size - strict)), low, high
            )
            distance = sum_of(Span(last.high, last.high, None, last.most), product(number(-1), first))
        else:
            self._need_within(sum_of(Span(last.low, last.low, last.least, last.most), number(strict - size)), low, high)
            distance = sum_of(first, product(number(-1), Span(last.low, last.low, last.least, None)))
        top = (distance.high - strict) // size + 1
        return Span(Number(0), maximum(top, 0), 0, None if distance.most is None else max(distance.most // size + 1, 0))


def _part(side: Poly, kind: str) -> _Part:
    atoms = tuple(
        (monomial[0], factor)
        for monomial, factor in side
        if len(monomial) == 1
        and factor in (1, -1)
        and monomial[0].kind not in UNIFORM
        and side.coefficient(monomial[0]) == constant(factor)
    )
    return _Part(side, kind, _is_statically(side, kind), atoms)


def _coordinate(atom: Atom) -> Span:
    kind, _, axis = atom.name.partition(".")
    dimension = Symbol(f"{'block' if kind in ('tid', 'ntid') else 'grid'}_{axis}")
    if kind in ("ntid", "nctaid"):
        return exactly(dimension, atom.low, atom.high)
    return Span(Number(0), dimension - 1, atom.low, atom.high)


def _wrapped(value: Expression, kind: str, bits: int) -> Expression:
    """The word that is congruent to ``value``."""
    if kind == "u":
        return value % (1 << bits)
    return (value + _HALF[bits]) % (1 << bits) - _HALF[bits]


def _is_uniform(forms: LaunchForms, form: Poly) -> bool:
    """Whether the value is the same in all threads, and the launch decides it."""
    for atom in form.atoms:
        if atom.kind in ("ntid", "nctaid", "param"):
            continue
        if atom.kind == "extended" and atom.inner is not None and _is_uniform(forms, atom.inner):
            continue
        if atom.kind != "derived" or forms.derived[atom].kind == "choice":
            return False
        if not all(_is_uniform(forms, each) for each in forms.operands(atom)):
            return False
    return True


def _is_of_kind(test: Comparison, kind: str) -> bool:
    return test.kind == kind or test.relation == "eq"


def _is_statically(form: Poly, kind: str) -> bool:
    """Whether the polynomial is in the range of the word in every launch."""
    if any(atom.kind in ("derived", "opaque", "word") for atom in form.atoms):
        return False
    least, most = form.interval(lambda atom: (atom.low, atom.high))
    low, high = range_of(kind, 32)
    return least is not None and most is not None and low <= least and most <= high


def _spread(form: Poly) -> int:
    """How many terms differ between threads."""
    return sum(any(atom.kind not in UNIFORM for atom in monomial) for monomial, _ in form)


def _smaller(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)


def _reads_arguments(expression: Expression) -> bool:
    return any(symbol.kind in ("arg", "field") for symbol in symbols(expression))
