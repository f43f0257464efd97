"""Integer values as polynomials in the coordinates of the thread and the arguments of the launch.

Computes: for each SSA value of 32 or 64 bits a polynomial over the atoms below to which it is congruent modulo
2^width. A word that was extended from 32 bits is an atom, ``s32(…)`` or ``u32(…)``, whose ``inner`` is the polynomial
of the narrow word. As a number it is in the range of that type and congruent to ``inner`` modulo 2^32. A register to
which a loop adds the same amount in every iteration is ``first + amount·turn``.

Atoms by kind: ``tid ctaid ntid nctaid`` (``tid.x`` …); ``param`` (``name`` or ``name+offset``, one for each parameter
that is read as an integer); ``symbol`` (the address of a variable); ``turn`` (the number of finished iterations of a
loop); ``extended``; and ``opaque`` (an unknown value, maybe with bounds). A ``turn`` and an ``opaque`` are values of
one evaluation by one thread; the others are the same at every read.

Requires: facts of a kernel without nested scopes. Guarantees: the congruences hold for every evaluation; nothing is
assumed about overflow. Refuses: nothing; other values are ``opaque``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from ...ptx import Effect, Form, Imm, Instr, Mem, Operand, Param, Reg, ScalarType, Special, Sym, Variable
from ...ptx.operations import Operation
from ...ptx.types import is_integer_literal, literal_value
from ..effects import is_may_definition
from ..manager import Facts
from .polynomial import ZERO, Atom, Poly, TooManyTerms, constant, variable

#: An upper bound of the iterations of a loop: more would take years.
MOST_TURNS = 1 << 56

__all__ = ["MOST_TURNS", "UNIFORM", "ThreadForms", "coordinate", "fits", "range_of"]

#: Kinds of atoms that are the same for all threads of a launch.
UNIFORM = frozenset(["ntid", "nctaid", "param", "symbol"])

_COORDINATES = {
    f"%{kind}.{axis}": Atom(kind, f"{kind}.{axis}", *bounds[axis])
    for kind, bounds in {
        "tid": {"x": (0, 1023), "y": (0, 1023), "z": (0, 63)},
        "ntid": {"x": (1, 1024), "y": (1, 1024), "z": (1, 64)},
        "ctaid": {"x": (0, 2**31 - 2), "y": (0, 65534), "z": (0, 65534)},
        "nctaid": {"x": (1, 2**31 - 1), "y": (1, 65535), "z": (1, 65535)},
    }.items()
    for axis in "xyz"
}


def coordinate(kind: str, axis: str) -> Atom:
    """The atom of ``%tid.x`` and similar special registers."""
    return _COORDINATES[f"%{kind}.{axis}"]


def range_of(kind: str, bits: int) -> tuple[int, int]:
    """The least and greatest value of a signed (``s``) or unsigned word."""
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind == "s" else (0, (1 << bits) - 1)


def fits(interval: tuple[int | None, int | None], kind: str, bits: int) -> bool:
    """Whether all numbers of the interval are in the range of that type."""
    low, high = range_of(kind, bits)
    return interval[0] is not None and interval[1] is not None and low <= interval[0] and interval[1] <= high


def _of_atom(atom: Atom) -> tuple[int | None, int | None]:
    return atom.low, atom.high


class ThreadForms:
    """The polynomials of one kernel.

    ``turns``: by the header block of a loop, the atom for the number of its iteration.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._ssa = facts.ssa
        self._forms: dict[int, Poly] = {}
        self._numbers = itertools.count()
        #: By atom of a φ at a loop header: its (block, SSA value).
        self._loops: dict[Atom, tuple[int, int]] = {}
        #: By such an atom: its polynomial in the ``turn`` of the loop.
        self._solved: dict[Atom, Poly] = {}
        self.turns: dict[int, Atom] = {}
        for block in facts.cfg.rpo:
            self._block(block)
        self._solve_loops()

    # --- queries -------------------------------------------------------------------------------------------------

    def word(self, instr: Instr, operand: Operand, bits: int) -> Poly:
        """The value that ``instr`` reads from ``operand``, modulo ``2**bits``."""
        return self._resolved(self._operand(instr, operand, bits))

    def address(self, instr: Instr, mem: Mem, bits: int) -> Poly:
        """The address of a memory operand, modulo ``2**bits``."""
        return self.word(instr, mem.base, bits) + mem.offset

    def value(self, number: int) -> Poly | None:
        """The polynomial of an SSA value; ``None`` if it is not an integer of 32 or 64 bits."""
        form = self._forms.get(number)
        return self._resolved(form) if form is not None else None

    # --- computing -----------------------------------------------------------------------------------------------

    def _opaque(self, low: int | None = None, high: int | None = None) -> Poly:
        return variable(Atom("opaque", f"v{next(self._numbers)}", low, high))

    def _word(self, bits: int) -> Poly:
        """An unknown word; one of 32 bits is bounded as an unsigned number."""
        return self._opaque(0, (1 << 32) - 1) if bits == 32 else self._opaque()

    def _block(self, block: int) -> None:
        ssa, cfg = self._ssa, self.facts.cfg
        for phi in ssa.phis[block]:
            self._forms[phi] = self._phi(phi, block)
        for instr in cfg.blocks[block].instrs:
            for reg in instr.defs():
                if reg.type.bits not in (32, 64) or reg.lanes != 1:
                    continue
                value = ssa.defined(instr, reg)
                self._forms[value] = self._definition(instr, reg)

    def _arguments(self, phi: int) -> list[tuple[int, int]]:
        """The (block before, value) of a φ."""
        return self._ssa.phi_args.get(phi, [])

    def _phi(self, phi: int, block: int) -> Poly:
        forms = [self._forms.get(value) for _, value in self._arguments(phi)]
        first = forms[0] if forms else None
        if first is not None and all(form == first for form in forms):
            return first
        form = self._word(self._ssa.reg[phi].type.bits)
        if any(found is None for found in forms):
            self._loops[next(iter(form.atoms))] = (block, phi)
        return form

    def _definition(self, instr: Instr, reg: Reg) -> Poly:
        bits = reg.type.bits
        if is_may_definition(instr) or len(instr.defs()) != 1 or instr.form.is_opaque:
            return self._word(bits)
        try:
            form = self._operation(instr, bits)
        except TooManyTerms:
            form = None
        return form if form is not None else self._opaque(*self._bounds(instr, bits))

    def _operation(self, instr: Instr, bits: int) -> Poly | None:
        form = instr.form
        if form.effects & Effect.READ:
            return self._load(instr, bits)
        rule = _RULES.get(form.operation)
        if rule is None or form.type is None or form.type.lanes != 1 or form.type.is_float:
            return None
        if form.operation not in _WIDENING and form.type.bits != bits:
            return None
        return rule(self, instr, bits)

    def _load(self, instr: Instr, bits: int) -> Poly | None:
        """The polynomial of a load of a whole parameter of the kernel."""
        address, scalar = instr.address, instr.form.type
        if (
            instr.form.operation is not Operation.LOAD
            or instr.form.space != "param"
            or scalar is None
            or instr.form.lanes != 1
        ):
            return None
        if address is None or not isinstance(address.base, Sym) or not self.facts.kernel.is_entry:
            return None
        param = address.base.declaration
        if not isinstance(param, Param) or scalar.is_float or scalar.bits != bits:
            return None
        offset = address.offset + address.base.offset
        return variable(Atom("param", f"{param.name}+{offset}" if offset or param.dims else param.name))

    def _operand(self, instr: Instr, operand: Operand, bits: int) -> Poly:
        if isinstance(operand, Reg):
            if operand.type.bits != bits or operand.lanes != 1:
                return self._word(bits)
            value = self._ssa.read(instr, operand)
            form = self._forms.get(value)
            if form is None:
                form = self._forms[value] = self._word(bits)  # never written
            return form
        if isinstance(operand, Imm) and is_integer_literal(operand.text):
            return constant(int(literal_value(operand.text)))
        if isinstance(operand, Special):
            atom = _COORDINATES.get(operand.name)
            return variable(atom) if atom is not None else self._opaque(0, (1 << bits) - 1)
        if isinstance(operand, Sym):
            kind = operand.declaration
            space = kind.space if isinstance(kind, Variable | Param) else "code"
            return variable(Atom("symbol", f"{space}:{operand.name}")) + operand.offset
        return self._opaque()

    def extended(self, form: Poly, kind: str) -> Poly:
        """The value of a 32-bit word congruent to ``form``, read as signed or unsigned (``kind``)."""
        low, high = range_of(kind, 32)
        if form.is_constant:
            value = form.value & 0xFFFF_FFFF
            return constant(value - (1 << 32) if value > high else value)
        if fits(form.interval(_of_atom), kind, 32) and not form.atoms & self._loops.keys():
            return form
        return variable(Atom("extended", f"{kind}32({form})", low, high, form))

    def _bounds(self, instr: Instr, bits: int) -> tuple[int | None, int | None]:
        """Bounds of the result as an unsigned word, congruent to it."""
        form, operation = instr.form, instr.form.operation
        top = (1 << bits) - 1
        if operation is Operation.AND:
            masks = [o for o in instr.srcs if isinstance(o, Imm) and is_integer_literal(o.text)]
            return 0, min([int(literal_value(o.text)) & top for o in masks], default=top)
        if (
            operation in (Operation.REMAINDER, Operation.SHIFT_RIGHT)
            and isinstance(instr.operands[-1], Imm)
            and form.type is not None
        ):
            count = int(literal_value(instr.operands[-1].text))
            if operation is Operation.REMAINDER and form.type.kind == "u" and count > 0:
                return 0, count - 1
            if operation is Operation.SHIFT_RIGHT and form.type.kind in "ub" and 0 <= count < bits:
                return 0, top >> count
        if form.effects & Effect.READ and form.type is not None and form.type.kind in "ub" and form.type.bits < bits:
            return 0, (1 << form.type.bits) - 1
        return (0, top) if bits == 32 else (None, None)

    # --- loops ---------------------------------------------------------------------------------------------------

    def _solve_loops(self) -> None:
        """``i = φ(first, i + amount)`` is ``first + amount·turn``."""
        for atom, (block, phi) in self._loops.items():
            form = self._induction(atom, block, phi)
            if form is not None:
                self._solved[atom] = form

    def _induction(self, atom: Atom, block: int, phi: int) -> Poly | None:
        dominance = self.facts.dominance
        first: Poly | None = None
        amount: Poly | None = None
        for before, value in self._arguments(phi):
            form = self._forms.get(value)
            if form is None:
                return None
            if dominance.dominates(block, before):
                step = form - variable(atom)
                if (amount is not None and step != amount) or not all(_is_fixed(a) for a in step.atoms):
                    return None
                amount = step
            elif first is not None and first != form:
                return None
            else:
                first = form
        if first is None or amount is None or atom in first.atoms:
            return None
        turn = self.turns.get(block)
        if turn is None:
            turn = self.turns[block] = Atom("turn", f"turn{block}", 0, self._most_turns(block))
        try:
            return first + amount * variable(turn)
        except TooManyTerms:
            return None

    def _most_turns(self, head: int) -> int:
        """An upper bound of the iterations of the loop: known if its only latch compares a counter with a constant."""
        found = self._latch_test(head)
        if found is None:
            return MOST_TURNS
        compare, relation = found
        counter, limit = (self._operand(compare, operand, 32) for operand in compare.operands[1:])
        assert compare.form.type is not None
        return self._turns_until(counter, relation, limit, compare.form.type.kind, head)

    def _latch_test(self, head: int) -> tuple[Instr, str] | None:
        """The comparison of 32-bit integers at the only latch of a loop, and the relation with which the loop
        continues; empty where that has no name."""
        cfg, dominance = self.facts.cfg, self.facts.dominance
        latches = [before for before in cfg.pred[head] if dominance.dominates(head, before)]
        branch = cfg.blocks[latches[0]].terminator if len(latches) == 1 else None
        if (
            branch is None
            or branch.guard is None
            or branch.form.operation is not Operation.BRANCH
            or len(cfg.succ[latches[0]]) != 2
        ):
            return None
        guard = branch.guard.reg
        compare = self._ssa.instr[self._ssa.read(branch, guard)] if isinstance(guard, Reg) else None
        if compare is None or compare.form.operation is not Operation.COMPARISON or is_may_definition(compare):
            return None
        form, scalar = compare.form, compare.form.type
        if scalar is None or scalar.bits != 32 or "bool" in form.mods or len(compare.operands) != 3:
            return None
        if not isinstance(compare.operands[0], Reg):  # the guard may be the second result, which is the opposite
            return None
        relation = form.mods["cmp"]
        if (branch.operands[0] is cfg.blocks[head].label) == branch.guard.negated:
            relation = {"eq": "ne", "ge": "lt", "gt": "le"}.get(relation, "")
        return compare, relation

    def _turns_until(self, counter: Poly, relation: str, limit: Poly, kind: str, head: int) -> int:
        """The iterations of a loop that continues while ``counter relation limit``, if all of these are constants."""
        loops = [atom for atom in counter.atoms if self._loops.get(atom, (-1, 0))[0] == head]
        if len(loops) != 1 or not limit.is_constant or not (counter - variable(loops[0])).is_constant:
            return MOST_TURNS
        first: int | None = None
        step: int | None = None
        for before, value in self._arguments(self._loops[loops[0]][1]):
            form = self._forms.get(value)
            if form is not None and self.facts.dominance.dominates(head, before):
                form -= variable(loops[0])
                step = form.value if form.is_constant and step in (None, form.value) else 0
            elif form is not None and form.is_constant and first is None:
                first = form.value
            else:
                return MOST_TURNS
        if first is None or not step or not 0 < step < 1 << 30:
            return MOST_TURNS
        end, now = limit.value, first + (counter - variable(loops[0])).value
        least = 0 if kind == "u" and relation != "ne" else -(1 << 30)
        if not least <= now <= end < 1 << 30:
            return MOST_TURNS
        if relation == "ne":
            return (end - now) // step if (end - now) % step == 0 else MOST_TURNS
        if relation in ("lt", "le", "lo", "ls") and kind in "su":
            last = end - 1 if relation in ("lt", "lo") else end
            return (last - now) // step + 1 if now <= last else 0
        return MOST_TURNS

    def _resolved(self, form: Poly, depth: int = 8) -> Poly:
        """The form with loop variables replaced by polynomials in ``turn``, inside extended words as well."""
        while depth and self._solved and any(self._mentions(atom) for atom in form.atoms):
            replaced = {atom: self._atom(atom, depth - 1) for atom in form.atoms if self._mentions(atom)}
            try:
                form = form.substitute(replaced)
            except TooManyTerms:
                return self._opaque()
            depth -= 1
        return form

    def _mentions(self, atom: Atom) -> bool:
        if atom in self._solved:
            return True
        return atom.inner is not None and any(self._mentions(inner) for inner in atom.inner.atoms)

    def _atom(self, atom: Atom, depth: int) -> Poly:
        form = self._solved.get(atom)
        if form is not None:
            return form
        assert atom.inner is not None
        inner = self._resolved(atom.inner, depth)
        return variable(Atom("extended", f"{atom.name[0]}32({inner})", atom.low, atom.high, inner))


#: Kinds of atoms that a loop cannot change.
_FIXED = UNIFORM | {"tid", "ctaid"}


def _is_fixed(atom: Atom) -> bool:
    return atom.kind in _FIXED or (atom.inner is not None and all(_is_fixed(inner) for inner in atom.inner.atoms))


_Rule = Callable[[ThreadForms, Instr, int], "Poly | None"]


def _sources(forms: ThreadForms, instr: Instr, bits: int) -> list[Poly]:
    return [forms._operand(instr, operand, bits) for operand in instr.operands[1:]]  # pyright: ignore[reportPrivateUsage]


def _move(forms: ThreadForms, instr: Instr, bits: int) -> Poly | None:
    return _sources(forms, instr, bits)[0] if len(instr.operands) == 2 else None


def _add(forms: ThreadForms, instr: Instr, bits: int) -> Poly | None:
    a, b = _sources(forms, instr, bits)
    return a + b


def _subtract(forms: ThreadForms, instr: Instr, bits: int) -> Poly | None:
    a, b = _sources(forms, instr, bits)
    return a - b


def _negate(forms: ThreadForms, instr: Instr, bits: int) -> Poly | None:
    return -_sources(forms, instr, bits)[0]


def _complement(forms: ThreadForms, instr: Instr, bits: int) -> Poly | None:
    return -_sources(forms, instr, bits)[0] - 1


def _multiply(forms: ThreadForms, instr: Instr, bits: int) -> Poly | None:
    a, b = _sources(forms, instr, bits)
    return a * b


def _multiply_add(forms: ThreadForms, instr: Instr, bits: int) -> Poly | None:
    a, b, c = _sources(forms, instr, bits)
    return a * b + c


def _shift(forms: ThreadForms, instr: Instr, bits: int) -> Poly | None:
    count = instr.operands[2]
    if not isinstance(count, Imm):
        return None
    by = int(literal_value(count.text))
    if not 0 <= by < bits:
        return ZERO if by >= bits else None
    return forms._operand(instr, instr.operands[1], bits) * (1 << by)  # pyright: ignore[reportPrivateUsage]


def _wide(forms: ThreadForms, instr: Instr, bits: int) -> Poly | None:
    scalar = instr.form.type
    assert scalar is not None
    if scalar.bits != 32 or bits != 64:
        return None
    a, b = (forms.extended(form, scalar.kind) for form in _sources_of(forms, instr, instr.operands[1:3], 32))
    product = a * b
    if instr.form.operation is Operation.WIDE_PRODUCT:
        return product
    return product + _sources_of(forms, instr, instr.operands[3:], 64)[0]


def _sources_of(forms: ThreadForms, instr: Instr, operands: tuple[Operand, ...], bits: int) -> list[Poly]:
    return [forms._operand(instr, operand, bits) for operand in operands]  # pyright: ignore[reportPrivateUsage]


def _convert(forms: ThreadForms, instr: Instr, bits: int) -> Poly | None:
    form = instr.form
    source, target = form.scalar("atype"), form.scalar("dtype")
    if source is None or target is None or len(instr.operands) != 2 or _is_saturating(form):
        return None
    if not (_is_word(source) and _is_word(target)) or target.bits != bits:
        return None
    operand = instr.operands[1]
    if isinstance(operand, Reg) and operand.type.bits != source.bits:
        return None
    value = forms._operand(instr, operand, source.bits)  # pyright: ignore[reportPrivateUsage]
    if target.bits <= source.bits:
        return value
    return forms.extended(value, source.kind)


def _is_word(scalar: ScalarType) -> bool:
    return scalar.is_integer and scalar.bits in (32, 64)


def _is_saturating(form: Form) -> bool:
    return bool(form.flags) or "rnd" in form.mods


def _address(forms: ThreadForms, instr: Instr, bits: int) -> Poly | None:
    """``cvta``: a global address is the same number as a generic one; others are an object plus an offset."""
    return _move(forms, instr, bits)


#: Operations whose result is wider than the type of their row, or has another type.
_WIDENING = frozenset([Operation.CONVERSION, Operation.WIDE_PRODUCT, Operation.WIDE_PRODUCT_SUM])
_RULES: dict[Operation, _Rule] = {
    Operation.COPY: _move,
    Operation.SUM: _add,
    Operation.DIFFERENCE: _subtract,
    Operation.NEGATION: _negate,
    Operation.PRODUCT: _multiply,
    Operation.PRODUCT_SUM: _multiply_add,
    Operation.SHIFT_LEFT: _shift,
    Operation.NOT: _complement,
    Operation.WIDE_PRODUCT: _wide,
    Operation.WIDE_PRODUCT_SUM: _wide,
    Operation.CONVERSION: _convert,
    Operation.TO_GENERIC: _address,
    Operation.FROM_GENERIC: _address,
}
