"""Operands of PTX instructions.

Guarantees: every operand is immutable and carries ``text``, its canonical spelling, built from its parts; so operands
can be shared between instructions, and an edit makes a new operand. Registers compare by identity: two registers of
the same name in different scopes are different registers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from .types import ScalarType

if TYPE_CHECKING:
    from .ir import Declaration

__all__ = [
    "SINK",
    "Args",
    "Element",
    "Imm",
    "Label",
    "Mem",
    "Not",
    "Operand",
    "Pair",
    "Raw",
    "Reg",
    "Sink",
    "Special",
    "Sym",
    "Vec",
    "registers",
    "substitute",
]


class Reg:
    """A virtual register. ``lanes`` is 2 or 4 for an old-style vector register (``.reg .v4 .f32 %v``)."""

    __slots__ = ("lanes", "text", "type")

    def __init__(self, name: str, type: ScalarType, lanes: int = 1) -> None:
        self.text = name
        self.type = type
        self.lanes = lanes

    @property
    def name(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<{self.text}:{self.type.name}>"


class Element:
    """One component of a vector register, ``%v.x``."""

    __slots__ = ("component", "reg", "text")

    def __init__(self, reg: Reg, component: str) -> None:
        self.reg = reg
        self.component = component
        self.text = f"{reg.text}.{component}"


class Special:
    """A special register such as ``%tid.x``, read-only."""

    __slots__ = ("text", "type")

    def __init__(self, name: str, type: ScalarType) -> None:
        self.text = name
        self.type = type

    @property
    def name(self) -> str:
        return self.text


class Imm:
    """A literal, in the spelling that fixes its bits (``0f3F800000``, ``-1``, ``0x1F``)."""

    __slots__ = ("text",)

    def __init__(self, text: str | int) -> None:
        self.text = str(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Imm) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


class Sym:
    """A symbol: a variable, parameter or function, with a byte offset from its start.

    ``has_zero`` says that an offset of 0 is written out: ptxas takes ``tab+0`` in places where it refuses ``tab``.
    """

    __slots__ = ("declaration", "has_zero", "name", "offset", "text")

    def __init__(self, name: str, declaration: Declaration | None, offset: int = 0, *, has_zero: bool = False) -> None:
        self.name = name
        self.declaration = declaration
        self.offset = offset
        self.has_zero = has_zero
        self.text = f"{name}+{offset}" if offset or has_zero else name


class Label:
    """A code label or the label of a ``.branchtargets``, ``.calltargets`` or ``.callprototype``."""

    __slots__ = ("text",)

    def __init__(self, name: str) -> None:
        self.text = name

    @property
    def name(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<label {self.text}>"


class Mem:
    """An address in brackets: ``[base+offset]``, or ``[base, rest…]`` for textures and tensors. Offset in bytes.

    ``has_zero`` says that an offset of 0 is written out: at -O0, ptxas makes an addition of ``[%SP+0]``.
    """

    __slots__ = ("base", "has_zero", "offset", "rest", "text")

    def __init__(
        self,
        base: Reg | Element | Sym | Imm | Special,
        offset: int = 0,
        rest: tuple[Operand, ...] = (),
        *,
        has_zero: bool = False,
    ) -> None:
        self.base = base
        self.offset = offset
        self.rest = rest
        self.has_zero = has_zero
        text = f"{base.text}+{offset}" if offset or has_zero else base.text
        if rest:
            text = ", ".join([text, *[operand.text for operand in rest]])
        self.text = f"[{text}]"


class Vec:
    """A brace list, ``{%f1, %f2}``."""

    __slots__ = ("elements", "text")

    def __init__(self, elements: tuple[Operand, ...]) -> None:
        self.elements = elements
        self.text = "{" + ", ".join([element.text for element in elements]) + "}"


class Args:
    """A parenthesised list of a call: results or arguments."""

    __slots__ = ("elements", "text")

    def __init__(self, elements: tuple[Operand, ...]) -> None:
        self.elements = elements
        self.text = "(" + ", ".join([element.text for element in elements]) + ")"


class Pair:
    """Two destinations, ``%p1|%p2``."""

    __slots__ = ("first", "second", "text")

    def __init__(self, first: Operand, second: Operand) -> None:
        self.first = first
        self.second = second
        self.text = f"{first.text}|{second.text}"


class Not:
    """A negated predicate operand, ``!%p1``."""

    __slots__ = ("operand", "text")

    def __init__(self, operand: Reg | Imm) -> None:
        self.operand = operand
        self.text = f"!{operand.text}"


class Sink:
    """The sink ``_``: a destination that is thrown away."""

    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text = "_"


class Raw:
    """Operand text that is not understood, with the registers that occur in it. Only opaque instructions have it."""

    __slots__ = ("registers", "text")

    def __init__(self, text: str, registers: tuple[Reg, ...]) -> None:
        self.text = text
        self.registers = registers


#: The only sink.
SINK = Sink()

Operand: TypeAlias = Reg | Element | Special | Imm | Sym | Label | Mem | Vec | Args | Pair | Not | Sink | Raw


def registers(operand: Operand) -> tuple[Reg, ...]:
    """Every register that occurs in ``operand``, addresses included, in the order written."""
    kind = type(operand)
    if kind is Reg:
        return (operand,)  # pyright: ignore[reportReturnType]
    if kind is Imm or kind is Sym or kind is Label:
        return ()
    if isinstance(operand, Mem):
        return _all_registers((operand.base, *operand.rest)) if operand.rest else registers(operand.base)
    if isinstance(operand, Vec | Args):
        return _all_registers(operand.elements)
    if isinstance(operand, Pair):
        return _all_registers((operand.first, operand.second))
    if isinstance(operand, Not):
        return registers(operand.operand)
    if isinstance(operand, Element):
        return (operand.reg,)
    return operand.registers if isinstance(operand, Raw) else ()


def _all_registers(operands: Iterable[Operand]) -> tuple[Reg, ...]:
    return tuple([reg for operand in operands for reg in registers(operand)])


def substitute(operand: Operand, replaced: Mapping[Operand, Operand]) -> Operand:
    """``operand`` with every part that is a key of ``replaced`` replaced; itself where there is none.

    Raises ``TypeError`` where the new part cannot stand in that place, as a literal in the place of a vector register.
    """
    found = replaced.get(operand)
    if found is not None:
        return found
    if isinstance(operand, Mem):
        base = substitute(operand.base, replaced)
        rest = _substitute_all(operand.rest, replaced)
        if base is operand.base and rest is operand.rest:
            return operand
        if not isinstance(base, Reg | Element | Sym | Imm | Special):
            raise TypeError(f"'{base.text}' cannot be an address")
        return Mem(base, operand.offset, rest, has_zero=operand.has_zero)
    if isinstance(operand, Vec | Args):
        elements = _substitute_all(operand.elements, replaced)
        return operand if elements is operand.elements else type(operand)(elements)
    if isinstance(operand, Pair):
        first, second = _substitute_all((operand.first, operand.second), replaced)
        return operand if first is operand.first and second is operand.second else Pair(first, second)
    if isinstance(operand, Not):
        inner = substitute(operand.operand, replaced)
        if not isinstance(inner, Reg | Imm):
            raise TypeError(f"'{inner.text}' cannot be a predicate")
        return operand if inner is operand.operand else Not(inner)
    if isinstance(operand, Element):
        reg = substitute(operand.reg, replaced)
        if not isinstance(reg, Reg):
            raise TypeError(f"'{reg.text}' is no vector register")
        return operand if reg is operand.reg else Element(reg, operand.component)
    if isinstance(operand, Raw):
        return _substitute_raw(operand, replaced)
    return operand


def _substitute_all(operands: tuple[Operand, ...], replaced: Mapping[Operand, Operand]) -> tuple[Operand, ...]:
    new = tuple([substitute(operand, replaced) for operand in operands])
    return operands if all(a is b for a, b in zip(new, operands, strict=True)) else new


def _substitute_raw(operand: Raw, replaced: Mapping[Operand, Operand]) -> Raw:
    names = {reg.text: substitute(reg, replaced) for reg in operand.registers}
    if all(names[reg.text] is reg for reg in operand.registers):
        return operand
    text = re.sub(r"[A-Za-z_$%][\w$]*", lambda word: names[word[0]].text if word[0] in names else word[0], operand.text)
    return Raw(text, tuple([reg for reg in names.values() if isinstance(reg, Reg)]))
