"""Operands of PTX instructions.

Every operand has ``text``, its spelling in PTX; ``parts``, the operands directly inside it; and ``with_parts``, which
builds the same operand of other parts. `walk` and `map_parts` work on all operands by these, so a new class of operands
needs no change there.

Guarantees: operands are immutable, so instructions may share them, and a change makes a new operand. Registers compare
by identity: two registers with the same name in different scopes are different registers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from operator import is_
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
    "map_parts",
    "registers",
    "substitute",
    "walk",
]


_WORD = re.compile(r"[A-Za-z_$%][\w$]*")


class _Leaf:
    """An operand without parts."""

    __slots__ = ()
    parts: tuple[Operand, ...] = ()

    def with_parts(self, parts: tuple[Operand, ...]) -> Operand:
        raise TypeError(f"{type(self).__name__} has no parts")


class Reg(_Leaf):
    """A virtual register. ``lanes`` is 2 or 4 for a vector register (``.reg .v4 .f32 %v``), else 1."""

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

    @property
    def parts(self) -> tuple[Operand, ...]:
        return (self.reg,)

    def with_parts(self, parts: tuple[Operand, ...]) -> Element:
        (reg,) = parts
        if not isinstance(reg, Reg):
            raise TypeError(f"'{reg.text}' is no vector register")
        return Element(reg, self.component)


class Special(_Leaf):
    """A special register, such as ``%tid.x``. It can only be read."""

    __slots__ = ("text", "type")

    def __init__(self, name: str, type: ScalarType) -> None:
        self.text = name
        self.type = type

    @property
    def name(self) -> str:
        return self.text


class Imm(_Leaf):
    """A literal, such as ``0f3F800000``, ``-1`` or ``0x1F``. ``text`` keeps the spelling of the source."""

    __slots__ = ("text",)

    def __init__(self, text: str | int) -> None:
        self.text = str(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Imm) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


class Sym(_Leaf):
    """A symbol: a variable, parameter or function, with an offset from its start in bytes.

    ``has_zero`` says that an offset of 0 is printed. ptxas accepts ``tab+0`` in places where it refuses ``tab``.
    """

    __slots__ = ("declaration", "has_zero", "name", "offset", "text")

    def __init__(self, name: str, declaration: Declaration | None, offset: int = 0, *, has_zero: bool = False) -> None:
        self.name = name
        self.declaration = declaration
        self.offset = offset
        self.has_zero = has_zero
        self.text = f"{name}+{offset}" if offset or has_zero else name


class Label(_Leaf):
    """The label of a block, or of a ``.branchtargets``, ``.calltargets`` or ``.callprototype``."""

    __slots__ = ("text",)

    def __init__(self, name: str) -> None:
        self.text = name

    @property
    def name(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<label {self.text}>"


class Mem:
    """An address in brackets: ``[base+offset]``, with the offset in bytes, or ``[base, rest…]`` for textures and
    tensors.

    ``has_zero`` says that an offset of 0 is printed. At -O0, ptxas makes an addition of ``[%SP+0]``.
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

    @property
    def parts(self) -> tuple[Operand, ...]:
        return (self.base, *self.rest)

    def with_parts(self, parts: tuple[Operand, ...]) -> Mem:
        base, *rest = parts
        if not isinstance(base, Reg | Element | Sym | Imm | Special):
            raise TypeError(f"'{base.text}' cannot be an address")
        return Mem(base, self.offset, tuple(rest), has_zero=self.has_zero)


class Vec:
    """A brace list, ``{%f1, %f2}``."""

    __slots__ = ("elements", "text")

    def __init__(self, elements: tuple[Operand, ...]) -> None:
        self.elements = elements
        self.text = "{" + ", ".join([element.text for element in elements]) + "}"

    @property
    def parts(self) -> tuple[Operand, ...]:
        return self.elements

    def with_parts(self, parts: tuple[Operand, ...]) -> Vec:
        return Vec(parts)


class Args:
    """The results or arguments of a call, in parentheses."""

    __slots__ = ("elements", "text")

    def __init__(self, elements: tuple[Operand, ...]) -> None:
        self.elements = elements
        self.text = "(" + ", ".join([element.text for element in elements]) + ")"

    @property
    def parts(self) -> tuple[Operand, ...]:
        return self.elements

    def with_parts(self, parts: tuple[Operand, ...]) -> Args:
        return Args(parts)


class Pair:
    """Two destinations, ``%p1|%p2``."""

    __slots__ = ("first", "second", "text")

    def __init__(self, first: Operand, second: Operand) -> None:
        self.first = first
        self.second = second
        self.text = f"{first.text}|{second.text}"

    @property
    def parts(self) -> tuple[Operand, ...]:
        return self.first, self.second

    def with_parts(self, parts: tuple[Operand, ...]) -> Pair:
        first, second = parts
        return Pair(first, second)


class Not:
    """A negated predicate operand, ``!%p1``."""

    __slots__ = ("operand", "text")

    def __init__(self, operand: Reg | Imm) -> None:
        self.operand = operand
        self.text = f"!{operand.text}"

    @property
    def parts(self) -> tuple[Operand, ...]:
        return (self.operand,)

    def with_parts(self, parts: tuple[Operand, ...]) -> Not:
        (operand,) = parts
        if not isinstance(operand, Reg | Imm):
            raise TypeError(f"'{operand.text}' cannot be a predicate")
        return Not(operand)


class Sink(_Leaf):
    """The sink ``_``: a result that is not stored."""

    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text = "_"


class Raw:
    """The operands of an opaque instruction as text, and the registers in it."""

    __slots__ = ("registers", "text")

    def __init__(self, text: str, registers: tuple[Reg, ...]) -> None:
        self.text = text
        self.registers = registers

    @property
    def parts(self) -> tuple[Operand, ...]:
        return self.registers

    def with_parts(self, parts: tuple[Operand, ...]) -> Raw:
        names = {reg.text: part.text for reg, part in zip(self.registers, parts, strict=True)}
        text = _WORD.sub(lambda word: names.get(word[0], word[0]), self.text)
        return Raw(text, tuple([part for part in parts if isinstance(part, Reg)]))


#: The only sink.
SINK = Sink()

Operand: TypeAlias = Reg | Element | Special | Imm | Sym | Label | Mem | Vec | Args | Pair | Not | Sink | Raw


def walk(operand: Operand) -> Iterator[Operand]:
    """``operand`` and all operands inside it, each before its own parts, in the order of the text."""
    yield operand
    for part in operand.parts:
        yield from walk(part)


def map_parts(operand: Operand, change: Callable[[Operand], Operand]) -> Operand:
    """``operand`` with each part replaced by ``change(part)``; ``operand`` itself if no part changes.

    Raises ``TypeError`` if a new part is not possible in its place.
    """
    parts = operand.parts
    if not parts:
        return operand
    changed = tuple([change(part) for part in parts])
    return operand if all(map(is_, changed, parts)) else operand.with_parts(changed)


def registers(operand: Operand) -> tuple[Reg, ...]:
    """All registers in ``operand``, also those of addresses, in the order of the text."""
    if type(operand) is Reg:
        return (operand,)
    parts = operand.parts
    if len(parts) == 1:
        return registers(parts[0])
    return tuple([reg for part in parts for reg in registers(part)]) if parts else ()


def substitute(operand: Operand, replaced: Mapping[Operand, Operand]) -> Operand:
    """``operand`` with every operand in it that is a key of ``replaced`` replaced; itself if there is none.

    Raises ``TypeError`` if a new part is not possible in its place, such as a literal for a vector register.
    """
    replacement = replaced.get(operand)
    if replacement is not None:
        return replacement
    return map_parts(operand, lambda part: substitute(part, replaced)) if operand.parts else operand
