"""Value numbers: one number for values that are equal whenever both exist.

Computes: a class for each SSA value, by hashing the operation over the classes of its operands, in reverse postorder
(pessimistic at loop headers). Integer sums, differences, products by constants and shifts are hashed by their affine
normal form, so that ``base + 4·i + 8`` has one number for every order of additions. Copies, and φs of values of one
class, get that class. Floating-point operations are hashed as written, never reassociated. Loads from memory that
nobody writes are hashed by address; every other load gets a unique class.

Requires: the SSA view. Guarantees: values with equal numbers have equal bits at any point where both are current.
Reference: Briggs, Cooper, Simpson, "Value Numbering", SPE 1997.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ptx import Effect, Element, Form, Imm, Instr, Mem, Operand, Reg, ScalarType, Special, Sym
from ...ptx.operations import Operation
from ...ptx.types import is_integer_literal, literal_bits, literal_value
from ..effects import is_constant_form, is_movable, is_promised_read, is_volatile_register
from ..graph.cfg import Cfg
from . import affine
from .affine import Affine
from .ssa import Ssa

__all__ = ["Values", "number_values"]

Key = tuple[object, ...]


class Values:
    """The value numbers of one kernel.

    ``number``: by SSA value its class. ``late``: see `effects.late_registers`. ``result``: by instruction with one
    result register the class of the result. ``several``: (instruction, class of a result) for instructions with several
    result registers. ``movable``: the instructions for which `effects.may_move` holds. ``awaiting``: the read-only
    loads after which the kernel may wait for another grid, which may change the memory.
    """

    __slots__ = (
        "_affine",
        "_key_of",
        "_keys",
        "_literals",
        "_of_form",
        "_single",
        "awaiting",
        "late",
        "movable",
        "number",
        "result",
        "several",
        "ssa",
    )

    def __init__(self, ssa: Ssa, late: frozenset[Reg] = frozenset()) -> None:
        self.ssa = ssa
        self.late = late
        self.awaiting: frozenset[Instr] = frozenset()
        self.number: list[int] = [-1] * len(ssa.instr)
        self.result: dict[Instr, int] = {}
        self.several: list[tuple[Instr, int]] = []
        self.movable: set[Instr] = set()
        #: By class: its key.
        self._key_of: list[Key] = []
        #: By key: its class.
        self._keys: dict[Key, int] = {}
        #: By affine form, except for single atoms: its class.
        self._of_form: dict[Affine, int] = {}
        #: By class: its affine form.
        self._affine: dict[int, Affine] = {}
        #: By (text of the literal, name of the type): its class.
        self._literals: dict[tuple[str, str], int] = {}
        self._single = ssa.single

    def is_late(self, instr: Instr) -> bool:
        """Whether the instruction reads or writes a late register, whose value changes without a definition."""
        late = self.late
        return bool(late) and not (late.isdisjoint(instr.uses()) and late.isdisjoint(instr.defs()))

    def fresh(self) -> int:
        """A new unique class."""
        number = len(self._key_of)
        self._key_of.append(("unique", number))
        return number

    def unique_numbers(self) -> set[int]:
        """The unique classes."""
        return {number for number, key in enumerate(self._key_of) if key[0] == "unique"}

    def lookup(self, key: Key) -> int:
        """The class of ``key``; a new one for a new key."""
        key_of = self._key_of
        new = len(key_of)
        number = self._keys.setdefault(key, new)
        if number == new:
            key_of.append(key)
        return number

    def key_of(self, number: int) -> Key:
        """The key of class ``number``: the name of an operation, or ``unique``, and the classes of its operands."""
        return self._key_of[number]

    def affine_of(self, number: int, width: int) -> Affine:
        """The affine form of a class, as a value of ``width`` bits."""
        form = self._affine.get(number)
        if form is None:
            form = self._affine[number] = affine.atom(width, number)
        return form if form[0] == width else affine.atom(width, number)

    def of_affine(self, form: Affine) -> int:
        """The class of an affine form."""
        width, constant, terms = form
        if not constant and len(terms) == 1 and terms[0][1] == 1:
            return terms[0][0]
        key_of = self._key_of
        new = len(key_of)
        number = self._of_form.setdefault(form, new)
        if number == new:
            key_of.append(("affine", width, constant, terms))
            self._affine[number] = form
        return number

    def of_register(self, instr: Instr, reg: Reg) -> int:
        """The class of the value that ``instr`` reads from ``reg``."""
        value = self._single.get(reg)
        return self.number[value if value is not None else self.ssa.read(instr, reg)]

    def of_operand(self, instr: Instr, operand: Operand, scalar: ScalarType | None) -> int:
        """The class of a source operand that is read as ``scalar`` (``None``: untyped)."""
        if type(operand) is Reg:
            value = self._single.get(operand)
            return self.number[value if value is not None else self.ssa.read(instr, operand)]
        if type(operand) is Imm:
            return self.of_literal(operand.text, scalar)
        if isinstance(operand, Special):
            return self.fresh() if is_volatile_register(operand) else self.lookup(("special", operand.text))
        if isinstance(operand, Sym):
            base = self.of_symbol(operand)
            return base if not operand.offset else self.lookup(("symbol+", base, operand.offset))
        if isinstance(operand, Element):
            return self.lookup(("element", self.of_register(instr, operand.reg), operand.component))
        return self.fresh()

    def of_symbol(self, symbol: Sym) -> int:
        """The class of the address of a symbol, without its offset."""
        return self.lookup(("symbol", symbol.name, id(symbol.declaration)))

    def of_literal(self, text: str, scalar: ScalarType | None) -> int:
        """The class of a literal that is an operand of type ``scalar``."""
        key = (text, scalar.name if scalar is not None else "")
        number = self._literals.get(key)
        if number is None:
            number = self._literals[key] = self._literal(text, scalar)
        return number

    def _literal(self, text: str, scalar: ScalarType | None) -> int:
        if scalar is not None and scalar.bits in (16, 32, 64) and scalar.lanes == 1:
            is_integer = is_integer_literal(text)
            if is_integer and not scalar.is_float:
                return self.of_affine(affine.constant(scalar.bits, int(literal_value(text))))
            if not is_integer and scalar.bits != 16:
                return self.of_affine(affine.constant(scalar.bits, literal_bits(text, scalar)))
        return self.lookup(("literal", text, scalar.name if scalar is not None else ""))

    def address(self, instr: Instr, mem: Mem) -> tuple[int, int]:
        """An address as (class of its base, byte offset): equal pairs are equal addresses."""
        base = mem.base
        if isinstance(base, Reg):
            width = base.type.bits
            form = self.affine_of(self.of_register(instr, base), width)
            stripped = Affine(width, 0, form.terms)
            return self.of_affine(stripped), form.signed_constant() + mem.offset
        return self.of_operand(instr, base, None), mem.offset


def number_values(cfg: Cfg, ssa: Ssa, late: frozenset[Reg] = frozenset()) -> Values:
    """Number all values of the reachable blocks."""
    values = Values(ssa, late)
    values.awaiting = _awaiting(cfg)
    number, result, single, old = values.number, values.result, ssa.single, ssa.old
    for value in ssa.undefined:
        # All reads of an undefined value must have the same class.
        number[value] = values.fresh()
    for block in cfg.rpo:
        for phi in ssa.phis[block]:
            number[phi] = _phi(values, phi, block)
        for instr in cfg.blocks[block].instrs:
            defs = instr.defs()
            if len(defs) == 1:
                (reg,) = defs
                if reg in single:  # most instructions
                    found = number[single[reg]] = _definition(values, instr)
                else:
                    value = ssa.defined(instr, reg)
                    found = number[value] = _definition(values, instr) if value not in old else values.fresh()
                result[instr] = found
            elif defs:
                _several(values, instr)
    return values


def _awaiting(cfg: Cfg) -> frozenset[Instr]:
    """The loads of `Values.awaiting`. Between two other loads there is no wait for a grid, so that equal addresses give
    equal values."""
    waiting: set[int] = set()
    loads: list[tuple[int, int, Instr]] = []
    last_wait: dict[int, int] = {}
    for block in cfg.rpo:
        for position, instr in enumerate(cfg.blocks[block].instrs):
            effects = instr.form.effects
            if effects & Effect.GRID and not instr.is_directive:
                last_wait[block] = position
            elif effects & Effect.READ and is_promised_read(instr):
                loads.append((block, position, instr))
    if not last_wait or not loads:
        return frozenset()
    work = list(last_wait)
    while work:
        for before in cfg.pred[work.pop()]:
            if before not in waiting:
                waiting.add(before)
                work.append(before)
    return frozenset(
        instr for block, position, instr in loads if block in waiting or position < last_wait.get(block, -1)
    )


def _several(values: Values, instr: Instr) -> None:
    for reg in instr.defs():
        values.number[values.ssa.defined(instr, reg)] = fresh = values.fresh()
        values.several.append((instr, fresh))


def _phi(values: Values, phi: int, block: int) -> int:
    arguments = sorted(values.ssa.phi_args.get(phi, ()))
    classes = tuple(values.number[value] for _, value in arguments)
    if not classes or -1 in classes:
        return values.fresh()  # an argument is from a back edge and has no class yet
    if all(number == classes[0] for number in classes):
        return classes[0]
    return values.lookup(("phi", block, classes))


class _Operation(tuple[object, ...]):
    """The head of a key: an operation with its modifiers. `_operation` makes one object for each, so that they compare
    and hash by identity, which is fast."""

    __slots__ = ()
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__


_OPERATIONS: dict[Key, _Operation] = {}


def _operation(form: Form) -> _Operation:
    parts = (form.op.pattern, *_modifiers(form))
    operation = _OPERATIONS.get(parts)
    if operation is None:
        operation = _OPERATIONS[parts] = _Operation(parts)
    return operation


@dataclass(frozen=True, slots=True)
class _Plan:
    """How results of a form are numbered, computed once per form."""

    #: ``copy``, ``affine``, ``shift``, ``extension``, ``product``, ``load`` (of constant memory), ``hash`` or
    #: ``unique``
    kind: str
    head: _Operation
    scalars: tuple[ScalarType | None, ...]  #: the types in which the sources are read
    commutes: bool
    operation: Callable[..., Affine | None] | None  #: the affine operation, if there is one
    is_sum: bool  #: a product to which something is added


_PLANS: dict[Form, _Plan] = {}


def _plan(form: Form) -> _Plan:
    kind_of_row = form.operation
    operation = affine.operation_of(form)
    if form.effects & Effect.READ:
        # A load of a parameter of a call sequence must not move, and `_definition` tests that first.
        kind = "load" if is_constant_form(form) else "unique"
    elif kind_of_row is Operation.COPY:
        kind = "copy"
    elif operation is not None:
        kind = "shift" if kind_of_row is Operation.SHIFT_LEFT else "affine"
    elif kind_of_row is Operation.CONVERSION and _is_extension(form):
        kind = "extension"
    elif kind_of_row in (Operation.WIDE_PRODUCT, Operation.WIDE_PRODUCT_SUM):
        kind = "product"
    else:
        kind = "hash"
    scalars = tuple(form.operand_type(spec) for spec in form.specs[1:])
    # An operation on two NaNs of f64 keeps the payload of one of them, which depends on their order.
    commutes = form.op.commutes and (form.type is None or form.type.name != "f64")
    return _Plan(kind, _operation(form), scalars, commutes, operation, kind_of_row is Operation.WIDE_PRODUCT_SUM)


def _is_extension(form: Form) -> bool:
    """Whether a conversion extends an integer to a wider one."""
    source, target = form.scalar("atype"), form.scalar("dtype")
    if source is None or target is None or form.flags or "rnd" in form.mods:
        return False
    return source.is_integer and target.is_integer and source.bits < target.bits in (32, 64)


def _definition(values: Values, instr: Instr) -> int:
    """The class of the single result of ``instr``."""
    if not is_movable(instr):
        return values.fresh()
    values.movable.add(instr)
    if values.late and values.is_late(instr):
        return values.fresh()
    form = instr.form
    plan = _PLANS.get(form)
    if plan is None:
        plan = _PLANS[form] = _plan(form)
    kind = plan.kind
    if kind == "unique" or instr in values.awaiting:
        return values.fresh()
    if kind == "load":
        return _load(values, instr, plan)
    if kind in _LINEAR:
        linear = _LINEAR[kind](values, instr, plan)
        if linear is not None:
            return values.of_affine(linear)
    of_operand = values.of_operand
    classes = [
        of_operand(instr, operand, scalar) for operand, scalar in zip(instr.operands[1:], plan.scalars, strict=False)
    ]
    if kind == "copy" and _is_whole_copy(instr):
        return classes[0]
    if plan.commutes:
        classes.sort()
    return values.lookup((plan.head, *classes))


def _is_whole_copy(instr: Instr) -> bool:
    """Whether a ``mov`` copies all bits of a register, literal, special register or symbol, and nothing else."""
    result, source = instr.operands
    return (
        isinstance(result, Reg)
        and isinstance(source, Reg | Imm | Special | Sym)
        and (not isinstance(source, Reg) or (source.lanes == 1 and source.type.bits == result.type.bits))
    )


def _is_of_width(operand: Operand, width: int) -> bool:
    return type(operand) is Reg and operand.type.bits == width


def _affine_result(values: Values, instr: Instr, plan: _Plan) -> Affine | None:
    scalar, operation = instr.form.type, plan.operation
    assert scalar is not None and operation is not None
    width = scalar.bits
    if not _is_of_width(instr.operands[0], width):
        return None
    of_operand, affine_of = values.of_operand, values.affine_of
    return operation(*[affine_of(of_operand(instr, operand, scalar), width) for operand in instr.operands[1:]])


def _shifted(values: Values, instr: Instr, plan: _Plan) -> Affine | None:
    scalar, operation = instr.form.type, plan.operation
    assert scalar is not None and operation is not None
    width = scalar.bits
    if not _is_of_width(instr.operands[0], width):
        return None
    number = values.of_operand(instr, instr.operands[1], scalar)
    count = values.affine_of(values.of_operand(instr, instr.operands[2], _U32), 32)
    if not count.is_constant:
        return None
    if count.constant >= width:
        return affine.constant(width, 0)
    return operation(values.affine_of(number, width), affine.constant(width, count.constant))


def _extension(values: Values, instr: Instr, plan: _Plan) -> Affine | None:
    """The extension of an integer. It is an atom, because it does not distribute over sums that may wrap around."""
    form = instr.form
    source, target = form.scalar("atype"), form.scalar("dtype")
    if source is None or target is None or len(instr.operands) != 2:
        return None
    return _extended(values, instr, instr.operands[1], source, target.bits)


def _wide_product(values: Values, instr: Instr, plan: _Plan) -> Affine | None:
    """``mul.wide`` and ``mad.wide`` by a constant: multiples of the extended operand."""
    scalar = instr.form.type
    assert scalar is not None
    width = 2 * scalar.bits
    left = _extended(values, instr, instr.operands[1], scalar, width)
    right = _extended(values, instr, instr.operands[2], scalar, width)
    if left is None or right is None:
        return None
    if right.is_constant:
        product = affine.scale(left, right.constant)
    elif left.is_constant:
        product = affine.scale(right, left.constant)
    else:
        return None
    if not plan.is_sum:
        return product
    wide = ScalarType(f"{scalar.kind}{width}", width, scalar.kind)
    return affine.add(product, values.affine_of(values.of_operand(instr, instr.operands[3], wide), width))


#: By kind of plan: the function that computes the affine form of a result, or ``None``.
_LINEAR: dict[str, Callable[[Values, Instr, _Plan], Affine | None]] = {
    "affine": _affine_result,
    "shift": _shifted,
    "extension": _extension,
    "product": _wide_product,
}


def _extended(values: Values, instr: Instr, operand: Operand, source: ScalarType, width: int) -> Affine | None:
    """The affine form of the operand, of type ``source``, extended to ``width`` bits."""
    result = instr.operands[0]
    if not isinstance(result, Reg) or result.type.bits != width:
        return None
    if isinstance(operand, Reg) and operand.type.bits != source.bits:
        return None
    number = values.of_operand(instr, operand, source)
    form = values.affine_of(number, source.bits)
    if form.is_constant:
        return affine.constant(width, form.signed_constant() if source.kind == "s" else form.constant)
    return values.affine_of(values.lookup(("extend", source.kind, source.bits, width, number)), width)


_U32 = ScalarType("u32", 32, "u")


def _load(values: Values, instr: Instr, plan: _Plan) -> int:
    address = instr.address
    if address is None or address.rest or len(instr.operands) != 2:
        return values.fresh()
    return values.lookup((plan.head, *values.address(instr, address)))


def _modifiers(form: Form) -> Key:
    return (*sorted(form.mods.items()), *sorted(form.flags))
