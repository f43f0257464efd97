"""Whether two memory references may touch a common byte, and which loads an instruction may change.

Level *conservative*: nothing is promised by the user. References are disjoint when their state spaces are, when they
have one base and offsets that do not overlap, or when they name different objects. Everything else may alias.

Requires: value numbers. Guarantees: ``may_overlap`` is ``True`` whenever the bytes may coincide in one thread at one
time. Reference: shared notes on code motion, §5; PTX ISA 9.0, §5.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ptx import Effect, Instr, Param, Sym, Variable
from .effects import is_constant_read, is_plain_store, memory_space
from .value_numbering import Values

__all__ = [
    "Reference",
    "are_spaces_disjoint",
    "is_inside_object",
    "is_mutable_read",
    "memory_kill",
    "may_overlap",
    "reference_of",
]

#: Spaces that a generic address can reach.
_GENERIC = frozenset(["generic", "global", "shared", "local", "const", "param"])


@dataclass(frozen=True, slots=True)
class Reference:
    """``bytes`` bytes at ``base + offset`` in ``space``; ``base`` is a class of `Values`. ``symbol`` names the object
    where the address is that object plus a constant."""

    space: str
    base: int
    offset: int
    bytes: int
    symbol: object | None = None


def reference_of(instr: Instr, values: Values) -> Reference | None:
    """The memory that a ``ld`` or ``st`` touches, or ``None`` where that is not one simple address."""
    address = instr.address
    scalar = instr.form.type
    if address is None or address.rest or scalar is None:
        return None
    base, offset = values.address(instr, address)
    size = scalar.bytes * instr.form.lanes
    symbol = address.base.declaration if isinstance(address.base, Sym) else None
    if not (isinstance(symbol, Variable | Param) and _is_inside(symbol, offset, size)):
        symbol = None
    return Reference(memory_space(instr), base, offset, size, symbol)


def is_inside_object(instr: Instr) -> bool:
    """Whether a ``ld`` or ``st`` names a variable or parameter and stays inside it, so that it cannot fault."""
    address, scalar = instr.address, instr.form.type
    if address is None or address.rest or scalar is None or not isinstance(address.base, Sym) or address.base.offset:
        return False
    declaration = address.base.declaration
    return isinstance(declaration, Variable | Param) and _is_inside(
        declaration, address.offset, scalar.bytes * instr.form.lanes
    )


def _is_inside(declaration: Variable | Param, offset: int, size: int) -> bool:
    """Whether the bytes lie in the object. ``extern`` arrays without size may share their start, so never."""
    return 0 <= offset and offset + size <= (declaration.bytes or 0)


def are_spaces_disjoint(left: str, right: str) -> bool:
    """Whether no address of one state space can be one of the other."""
    if left == right:
        return False
    if left == "generic":
        return right not in _GENERIC
    return right != "generic" or left not in _GENERIC


def may_overlap(left: Reference, right: Reference) -> bool:
    """Whether the two references may share a byte."""
    if are_spaces_disjoint(left.space, right.space):
        return False
    if left.base == right.base:
        return left.offset < right.offset + right.bytes and right.offset < left.offset + left.bytes
    return not (left.symbol is not None and right.symbol is not None and left.symbol is not right.symbol)


def memory_kill(instr: Instr) -> str:
    """What the instruction does to values loaded from memory that others may write: ``all``, ``store`` (only what it
    overlaps) or an empty string (nothing)."""
    effects = instr.form.effects
    if not effects & (Effect.WRITE | Effect.BARRIER | Effect.ORDERED | Effect.ASYNC):
        return ""
    return "store" if is_plain_store(instr) else "all"


def is_mutable_read(instr: Instr) -> bool:
    """Whether the load reads memory that somebody may write during the kernel."""
    return instr.form.effects & Effect.READ != 0 and not is_constant_read(instr)
