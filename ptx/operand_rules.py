"""The operands that an instruction may have: their number, kinds and types, from the opcode table alone.

The rules see only the `Kind` of an operand: a register of some type, an integer literal, an address in some space, ….
There are few kinds, so the verifier calls `problem` once for each combination of a form and kinds, and caches the
result.

Guarantees: operands that ptxas 13.0 accepts are accepted. ptxas accepts more than the manual: a register of type
``.f16x2`` for an untyped one and for a predicate, and the name of a function for any value.
Refuses, although ptxas accepts it, what has no meaning in a brace list of ``mov``: elements of another width where the
first element is a literal, a predicate as a value of 32 bits, a special register or parameter that is written, a sink
that is read.
Reference: PTX ISA 9.0, §6.4 (operands), §9.4 (type information, operand size exceeding the instruction's size), and
ptxas itself for cases that the manual does not describe.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import NamedTuple

from .ir import Kernel, Param, Variable
from .notation import Effect, Form, OperandSpec
from .operands import Args, Element, Imm, Label, Mem, Not, Operand, Pair, Raw, Reg, Sink, Special, Sym, Vec
from .operations import ADDRESS_CONVERSIONS, CONVERSIONS, COPIES, Operation
from .types import TYPES, ScalarType, is_integer_literal, literal_value

__all__ = ["Kind", "align", "kind_of", "problem"]


class Kind(NamedTuple):
    """The properties of an operand that the rules depend on.

    ``what`` is ``reg``, ``int`` (a literal), ``f32 f64 decimal`` (a literal ``0f…``, ``0d…``, ``1.5``), ``special``,
    ``var`` (a variable's or parameter's address), ``function``, ``label``, ``mem``, ``vec``, ``args``, ``pair``,
    ``not``, ``sink``, ``selector`` (``%r.b0``), ``bad`` (a literal that no type holds) or ``raw``.
    ``space`` is the state space of a symbol, also inside of ``[…]``. ``parts`` are the kinds of the elements, or of the
    base of an address.
    """

    what: str
    type: str = ""
    lanes: int = 1
    space: str = ""
    parts: tuple[Kind, ...] = ()


_LARGEST_LITERAL = 1 << 64
#: The kinds of operands whose class alone decides.
_KINDS_BY_CLASS: dict[type[Operand], Kind] = {
    Sink: Kind("sink"),
    Label: Kind("label"),
    Raw: Kind("raw"),
    Args: Kind("args"),
}


def kind_of(operand: Operand) -> Kind:
    """The kind of ``operand``."""
    if isinstance(operand, Reg):
        return Kind("reg", operand.type.name, operand.lanes)
    if isinstance(operand, Imm):
        return Kind(_literal_class(operand.text))
    if isinstance(operand, Mem):
        base = kind_of(operand.base)
        return Kind("mem", base.type, len(operand.rest), base.space, (base,))
    if isinstance(operand, Vec):
        return Kind("vec", parts=tuple(kind_of(element) for element in operand.elements))
    if isinstance(operand, Sym):
        return _symbol_kind(operand)
    if isinstance(operand, Special):
        return Kind("special", "" if operand.name == "WARP_SZ" else _special_key(operand))
    if isinstance(operand, Element):
        is_component = operand.reg.lanes > 1 and operand.component in "xyzwrgba"
        return Kind("reg" if is_component else "selector", operand.reg.type.name)
    if isinstance(operand, Pair):
        return Kind("pair", parts=(kind_of(operand.first), kind_of(operand.second)))
    if isinstance(operand, Not):
        return Kind("not", parts=(kind_of(operand.operand),))
    return _KINDS_BY_CLASS[type(operand)]


def _literal_class(text: str) -> str:
    if is_integer_literal(text):
        try:
            return "int" if abs(literal_value(text)) < _LARGEST_LITERAL else "bad"
        except ValueError:  # 09 is no octal number, and Python does not convert thousands of digits
            return "bad"
    body = text.lstrip("+-").lower()
    name, digits = {"0f": ("f32", 8), "0d": ("f64", 16)}.get(body[:2], ("decimal", len(body) - 2))
    return name if len(body) == 2 + digits else "bad"


def _symbol_kind(symbol: Sym) -> Kind:
    declaration = symbol.declaration
    if isinstance(declaration, Kernel):
        return Kind("function")
    space = declaration.space if isinstance(declaration, Param | Variable) else ""
    # ptxas accepts a symbol with an offset wherever it accepts an integer, and a symbol alone in fewer places.
    return Kind("var", "offset" if symbol.offset or symbol.has_zero else "", 1, space)


def _special_key(special: Special) -> str:
    """The type of a special register; ``ids`` for those that have also been 16 bits wide."""
    base = special.name.partition(".")[0]
    if base in ("%tid", "%ntid", "%ctaid", "%nctaid"):
        return "ids"
    return "gridid" if base == "%gridid" else special.type.name


_SPECIAL_WIDTHS: dict[str, tuple[int, ...]] = {"ids": (16, 32), "gridid": (16, 32, 64)}


# --- types ---------------------------------------------------------------------------------------------------------

#: The types of registers that ptxas accepts.
REGISTER_TYPES = frozenset("pred b8 u8 s8 b16 u16 s16 b32 u32 s32 b64 u64 s64 b128 f16 f16x2 f32 f64".split())

#: Floating-point types whose operands of ``cvt`` may be wider than the type. Operands of other types must have its
#: width.
_WIDENED_FLOATS = frozenset(["f16", "f16x2", "f32", "f64"])


def is_compatible(scalar: ScalarType, register: ScalarType, *, relaxed: bool = False) -> bool:
    """Whether a register of type ``register`` may be an operand of type ``scalar``.

    ``relaxed`` allows wider registers, as ``ld``, ``st`` and ``cvt`` do.

    >>> is_compatible(TYPES["s32"], TYPES["b32"]), is_compatible(TYPES["s32"], TYPES["f32"])
    (True, False)
    >>> is_compatible(TYPES["u8"], TYPES["u32"]), is_compatible(TYPES["u8"], TYPES["u32"], relaxed=True)
    (False, True)
    """
    if scalar is register:
        return True
    want, have = scalar.kind, register.kind
    if want == "p" or have == "p":
        return want == have or register.name == "f16x2"
    if register.name == "f16x2" and not scalar.is_float:
        have = "b"
    if relaxed and not (scalar.is_float and scalar.name not in _WIDENED_FLOATS):
        if register.bits < scalar.bits:
            return False
    elif register.bits != scalar.bits:
        return False
    if want == "b":
        return True
    if want == "f" or scalar.lanes > 1:
        return have == "b"
    return have in "bus"


def takes_literal(scalar: ScalarType, literal: str) -> bool:
    """Whether a literal of class ``literal`` (see `Kind`) may be an operand of type ``scalar``."""
    if scalar.is_float:
        return scalar.name in ("f32", "f64") and literal != "int"
    if literal == "int":
        return True
    if scalar.kind != "b":
        return False
    return literal == "f32" if scalar.bits == 32 else literal in ("f64", "decimal") and scalar.bits == 64


def type_text(form: Form, spec: OperandSpec) -> str:
    scalar = form.operand_type(spec)
    return f".{scalar.name}" if scalar is not None else "an operand"


# --- the rules -----------------------------------------------------------------------------------------------------


class Complaint(NamedTuple):
    """An error: the number of the operand, or -1 for the whole instruction, and the message. ``{}`` in the message
    stands for the text of the operand."""

    operand: int
    message: str


def _specs(form: Form) -> tuple[OperandSpec, ...]:
    """The operands of the row; without the cache policy if the form has no ``.L2::cache_hint``."""
    specs = form.specs
    is_policy = specs and specs[-1].optional and specs[-1].type == "b64"
    if is_policy and "hint" not in form.mods and any(piece.name == "hint" for piece in form.op.pieces):
        return specs[:-1]
    return specs


@cache
def align(form: Form, count: int) -> tuple[OperandSpec, ...] | None:
    """The specifications of ``count`` operands of ``form``, or ``None`` if ``form`` cannot have ``count`` operands.

    If the row has more operands, the last optional ones are left out.
    """
    specs = _specs(form)
    missing = len(specs) - count
    if missing < 0:
        return specs if form.op.variadic else None
    chosen = list(specs)
    for spec in reversed(specs):
        if missing and spec.optional:
            chosen.remove(spec)
            missing -= 1
    return None if missing else tuple(chosen)


def problem(form: Form, kinds: tuple[Kind, ...]) -> Complaint | None:
    """The first error in operands of these ``kinds``, or ``None``. ``form`` must not be a ``call``."""
    if form.is_opaque:
        return None
    specs = align(form, len(kinds))
    if specs is None:
        return Complaint(-1, _arity_message(form, len(kinds)))
    has_address = False
    for index, (spec, kind) in enumerate(zip(specs, kinds, strict=False)):
        if spec.role == "addr":
            message = _address_problem(form, kind, is_first=not has_address)
            has_address = True
        else:
            message = _operand_problem(form, spec, kind)
        if message:
            return Complaint(index, message)
    if form.operation in COPIES and kinds[0].what == kinds[1].what == "vec" and form.lanes == 1:
        return Complaint(1, "'mov' cannot copy a vector to a vector")
    return None


def _arity_message(form: Form, count: int) -> str:
    most = len(_specs(form))
    least = sum(not spec.optional for spec in form.specs)
    if form.op.variadic:
        wanted, number = f"at least {least}", least
    elif least == most:
        wanted, number = str(most) if most else "no", most
    else:
        wanted, number = f"{least} {'or' if most == least + 1 else 'to'} {most}", most
    return f"'{form.text}' takes {wanted} operand{'' if number == 1 else 's'}, not {count}"


_GENERIC_SPACES = frozenset(["global", "shared", "local"])


def _address_problem(form: Form, kind: Kind, *, is_first: bool) -> str:
    if kind.what != "mem":
        return f"'{form.text}' takes an address in brackets here, not '{{}}'"
    base = kind.parts[0]
    if kind.lanes and not form.op.wildcard:
        return "the address '{}' has too many parts"
    if base.what in ("reg", "special"):
        scalar = TYPES.get(base.type)
        if scalar is not None and (scalar.kind not in "bus" or scalar.bits > 64):
            return f"the address '{{}}' is of type .{scalar.name}"
        return ""
    if base.what == "function":
        return "'{}' is a function's address, not one of data"
    has_space = is_first and not form.op.wildcard and any(piece.name == "space" for piece in form.op.pieces)
    if not has_space:
        return ""
    space = form.space
    if base.what == "var" and base.space:
        fits = base.space in _GENERIC_SPACES if space == "generic" else base.space == space
        if not fits:
            where = "generic addresses" if space == "generic" else f"state space .{space}"
            return f"'{form.text}' accesses {where}, but '{{}}' is in state space .{base.space}"
    elif base.what == "int" and space != "local":
        return "the address '{}' is a literal, which only state space .local allows"
    elif base.what == "bad":
        return "the address '{}' is no literal of 64 bits or less"
    return ""


def _operand_problem(form: Form, spec: OperandSpec, kind: Kind) -> str:
    what = kind.what
    if what == "pair":
        if spec.pair is None:
            return f"'{form.text}' has only one result, not '{{}}'"
        return _operand_problem(form, spec, kind.parts[0]) or _operand_problem(form, spec.pair, kind.parts[1])
    if spec.type == "label":
        return "" if what == "label" else "'{}' is no label"
    if what == "bad":
        return "'{}' is no literal of 64 bits or less"
    is_result = spec.role != "use"
    if is_result:
        if what in ("int", "f32", "f64", "decimal", "special", "var", "function", "label", "not"):
            return "'{}' cannot be written"
        if what == "mem":
            return "the result is an address, not a register: '{}'"
        if what == "sink":
            return "" if _may_sink(form, spec) else f"the result of '{form.text}' cannot be thrown away"
    elif what == "sink":
        return "the sink '_' cannot be read"
    if form.operation is Operation.VECTOR_COPY and what == "vec":
        return _copied_list_problem(form, spec, kind.parts)
    if spec.type in ("any", "vec", "name"):
        return ""
    scalar = form.operand_type(spec)
    if scalar is None:
        return ""
    if what == "selector" and form.operation is Operation.VIDEO:
        return _scalar_problem(form, Kind("reg", kind.type), scalar, relaxed=False)
    # All operands of a conversion may be wider, also if its result is packed.
    relaxed = form.operation in CONVERSIONS or (form.op.relaxed and spec.type in ("type", "dtype", "atype"))
    if what == "vec" or kind.lanes > 1:
        return _vector_problem(form, spec, kind, scalar, relaxed=relaxed)
    if spec.vec and form.lanes > 1:
        return f"'{form.text}' takes a vector of {form.lanes} elements here, not '{{}}'"
    return _scalar_problem(form, kind, scalar, relaxed=relaxed)


def _may_sink(form: Form, spec: OperandSpec) -> bool:
    return spec.type == "any" or form.effects & Effect.ORDERED != 0 or any(s.pair is not None for s in form.specs)


def _scalar_problem(form: Form, kind: Kind, scalar: ScalarType, *, relaxed: bool) -> str:
    what = kind.what
    if what == "reg":
        register = TYPES[kind.type]
        if is_compatible(scalar, register, relaxed=relaxed):
            return ""
        if scalar.name == "bf16" and "dtype" in form.mods and register.kind in "us" and register.bits == 16:
            return ""  # ptxas accepts integers as the narrow operands of mixed precision
        return f"'{{}}' is a .{kind.type} register, '{form.text}' takes .{scalar.name} here"
    if what in ("int", "f32", "f64", "decimal"):
        is_mixed = what == "int" and scalar.name == "bf16" and "dtype" in form.mods
        return "" if is_mixed or takes_literal(scalar, what) else f"the literal '{{}}' is no .{scalar.name}"
    if what == "special":
        return _special_problem(form, kind, scalar)
    if what == "var":
        return _symbol_problem(form, kind, scalar)
    if what == "not":
        inner = kind.parts[0]
        if scalar.kind == "p":
            return _scalar_problem(form, inner, scalar, relaxed=False)
        return f"'{{}}' is a predicate, '{form.text}' takes .{scalar.name} here"
    if what in ("mem", "args", "label", "selector"):
        names = {"mem": "an address", "args": "a list", "label": "a label", "selector": "a part of a register"}
        return f"'{{}}' is {names[what]}, '{form.text}' takes .{scalar.name} here"
    return ""  # the address of a function, or the text of an opaque instruction


def _special_problem(form: Form, kind: Kind, scalar: ScalarType) -> str:
    if not kind.type:  # WARP_SZ is a constant
        return "" if takes_literal(scalar, "int") else f"'{{}}' is no .{scalar.name}"
    if form.operation in CONVERSIONS and not scalar.is_float:
        return ""
    if form.operation not in COPIES:
        return f"special register '{{}}' can only be read by 'mov' and 'cvt', not by '{form.text}'"
    if scalar.kind == "p" or kind.type == "pred":
        return "" if scalar.name == kind.type else f"special register '{{}}' is no .{scalar.name}"
    widths = _SPECIAL_WIDTHS.get(kind.type) or (TYPES[kind.type].bits,)
    if scalar.bits in widths and not scalar.is_float:
        return ""
    return f"special register '{{}}' is {widths[-1]} bits wide, '{form.text}' takes .{scalar.name} here"


def _symbol_problem(form: Form, kind: Kind, scalar: ScalarType) -> str:
    if kind.type == "offset":
        return "" if takes_literal(scalar, "int") else f"the address '{{}}' is no .{scalar.name}"
    operation = form.operation
    if operation in COPIES:
        return "" if scalar.kind in "bus" and scalar.bits >= 16 else f"the address '{{}}' is no .{scalar.name}"
    if operation in ADDRESS_CONVERSIONS:
        space = form.space
        return "" if kind.space == space or not kind.space else f"'{{}}' is in state space .{kind.space}, not .{space}"
    if operation is Operation.CLUSTER_MAP:
        fits = kind.space in ("shared", "")
        return "" if fits else f"'{{}}' is in state space .{kind.space}, not .shared"
    return "'{}' is the name of a variable; 'mov' puts its address into a register"


def _vector_problem(form: Form, spec: OperandSpec, kind: Kind, scalar: ScalarType, *, relaxed: bool) -> str:
    elements = kind.parts if kind.what == "vec" else (Kind("reg", kind.type),) * kind.lanes
    if form.operation in COPIES:
        if form.lanes == 1:
            return _pack_problem(form, spec, elements, scalar)
    elif spec.vec:
        if len(elements) != form.lanes:
            one = "one element" if form.lanes == 1 else f"a vector of {form.lanes} elements"
            return f"'{form.text}' takes {one} here, '{{}}' has {len(elements)}"
    else:
        return f"'{form.text}' takes no vector here"
    for element in elements:
        if element.what == "sink":
            if spec.role == "use":
                return "the sink '_' in '{}' cannot be read"
        elif element.what == "reg":
            register = TYPES[element.type]
            if scalar.is_float and register.kind in "us" and register.bits == scalar.bits:
                continue  # in vectors ptxas accepts integers for floating-point values
            message = _scalar_problem(form, element, scalar, relaxed=relaxed)
            if message:
                return message.replace("'{}'", "an element of '{}'")
        elif element.what == "bad":
            return "an element of '{}' is no literal of 64 bits or less"
        elif element.what in ("int", "f32", "f64", "decimal") and spec.role != "use":
            return "an element of '{}' cannot be written"
    return _mixture_problem(elements)


def _mixture_problem(elements: tuple[Kind, ...]) -> str:
    types = [TYPES[element.type] for element in elements if element.what == "reg"]
    if len({scalar.bits for scalar in types}) > 1:
        return "the elements of '{}' are not of the same width"
    if len({scalar.is_float for scalar in types if scalar.kind != "b" and scalar.name != "f16x2"}) > 1:
        return "'{}' mixes integers and floating-point values"
    return ""


def _pack_problem(form: Form, spec: OperandSpec, elements: tuple[Kind, ...], scalar: ScalarType) -> str:
    """``mov.b64 %rd, {%r1, %r2}`` and its reverse."""
    if len(elements) == 1:
        return _scalar_problem(form, elements[0], scalar, relaxed=False) if elements[0].what == "reg" else ""
    if scalar.kind != "b":
        return f"'{form.text}' cannot pack or unpack '{{}}': only types .b16 to .b128 can"
    if len(elements) not in (2, 4):
        return f"'{form.text}' packs or unpacks 2 or 4 elements, '{{}}' has {len(elements)}"
    bits = scalar.bits // len(elements)
    for element in elements:
        if element.what == "sink" and spec.role == "use":
            return "the sink '_' in '{}' cannot be read"
        if element.what == "reg":
            part = TYPES[element.type]
            if part.kind == "p" or part.bits != bits:
                return f"the elements of '{{}}' are {part.bits} bits wide, which does not make .{scalar.name}"
    return _list_problem(spec, elements, bits)


# --- brace lists of mov --------------------------------------------------------------------------------------------


#: The most bits that ``mov`` can copy.
_MOST_COPIED_BITS = 128


def _copied_list_problem(form: Form, spec: OperandSpec, elements: tuple[Kind, ...]) -> str:
    """A brace list of ``mov.v2.b32``."""
    if len(elements) != form.lanes:
        return f"'{form.text}' takes a vector of {form.lanes} elements here, '{{}}' has {len(elements)}"
    scalar = form.type
    if scalar is None:
        return ""
    if form.lanes * scalar.bits > _MOST_COPIED_BITS:
        return f"'{form.text}' copies more than {_MOST_COPIED_BITS} bits"
    for element in elements:
        if element.what == "reg" and (TYPES[element.type].kind == "p" or TYPES[element.type].bits != scalar.bits):
            return f"an element of '{{}}' is a .{element.type} register, '{form.text}' takes .{scalar.name} here"
    return _list_problem(spec, elements, scalar.bits)


def _list_problem(spec: OperandSpec, elements: tuple[Kind, ...], bits: int) -> str:
    """The first error in the elements, of ``bits`` bits each, that are no registers, or that do not go together."""
    for element in elements:
        what = element.what
        if what == "bad":
            return "an element of '{}' is no literal of 64 bits or less"
        if what in ("function", "label", "not", "mem") or (what == "var" and element.space not in ("param", "")):
            return "an element of '{}' is no register, literal, or special register"
        if what == "special" and element.type and _special_bits(element) != bits:
            return f"a special register in '{{}}' is not {bits} bits wide"
    if spec.role != "use":
        message = _written_list_problem(elements)
        if message:
            return message
    families = [_family(element) for element in elements]
    for first, second in _neighbours(families):
        if second in _CLASHES.get(first, ()) or first in _CLASHES.get(second, ()):
            return f"'{{}}' has {_FAMILY_NAMES[first]} and {_FAMILY_NAMES[second]}"
    if set(families) == {"float literal"}:
        untyped = TYPES.get(f"b{bits}")
        # ptxas does not check the first element.
        if untyped is None or not any(takes_literal(untyped, element.what) for element in elements[1:]):
            return f"a literal in '{{}}' is not {bits} bits wide"
    return ""


def _neighbours(families: list[str]) -> list[tuple[str, str]]:
    """The pairs of families that ptxas compares: of elements side by side, and of ``ids`` with each literal."""
    literals = [family for family in families if family.endswith("literal")]
    return [*pairwise(families), *(("ids", literal) for literal in literals if "ids" in families)]


def _written_list_problem(elements: tuple[Kind, ...]) -> str:
    if any(element.what not in ("reg", "sink") for element in elements):
        return "an element of '{}' cannot be written"
    return "" if any(element.what == "reg" for element in elements) else "'{}' has no register to write"


_FLOAT_LITERALS = frozenset(["f32", "f64", "decimal"])
#: The families of elements (see `_family`) that ptxas refuses side by side (`_neighbours`).
_CLASHES: dict[str, tuple[str, ...]] = {
    "int": ("float", "float literal"),
    "int literal": ("float", "float literal"),
    "ids": ("int literal", "float literal"),
    "packed": ("int", "float", "int literal", "float literal"),
}
_FAMILY_NAMES = {
    "int": "an integer",
    "float": "a floating-point value",
    "int literal": "an integer literal",
    "float literal": "a floating-point literal",
    "ids": "a component of a special register",
    "packed": "a .f16x2",
}


def _family(element: Kind) -> str:
    """How ptxas groups the elements of a brace list. ``untyped`` elements and sinks go with all others, and
    ``ids``, such as ``%tid.x``, with all but literals."""
    what = element.what
    if what == "reg":
        kind = TYPES[element.type].kind
        return "packed" if element.type == "f16x2" else {"f": "float", "u": "int", "s": "int"}.get(kind, "untyped")
    if what in _FLOAT_LITERALS:
        return "float literal"
    if what == "special":
        return {"": "int literal", "ids": "ids"}.get(element.type, "untyped")
    return {"int": "int literal", "var": "int"}.get(what, "untyped")


def _special_bits(special: Kind) -> int:
    widths = _SPECIAL_WIDTHS.get(special.type)
    return widths[-1] if widths else TYPES[special.type].bits
