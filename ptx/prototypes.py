"""The signature of a function: the sizes of its parameters and results, from a declaration or a ``.callprototype``.

Guarantees: a size in bytes for each parameter, or ``None`` for an array without a size.
Reference: PTX ISA 9.0, §7.1 (function declarations), §9.7.13.5 (call), §11.2 (control-flow directives).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .ir import Kernel, Param, Variable
from .operands import Imm, Operand, Reg, Sink, Sym
from .types import TYPES

__all__ = ["Signature", "argument_problem", "signature_of_kernel", "signature_of_prototype"]


class Signature(NamedTuple):
    """Sizes in bytes of results and parameters; ``None`` for an array without a size."""

    results: tuple[int | None, ...]
    params: tuple[int | None, ...]


def signature_of_kernel(kernel: Kernel) -> Signature:
    """The signature of a function or of its declaration."""
    return Signature(_sizes(kernel.results), _sizes(kernel.params))


def _sizes(params: list[Param] | None) -> tuple[int | None, ...]:
    return tuple(None if None in param.dims else param.bytes for param in params or ())


_PROTOTYPE = re.compile(r"\.callprototype ?(?:\(([^()]*)\))? ?[\w$]+ ?(?:\(([^()]*)\))?(?: ?\.\w+(?: [\w, ]+)?)*")
_TYPE = re.compile(r"\.([a-z]+\d*(?:x2)?)\b(?!\s*::)")
_LENGTH = re.compile(r"\[\s*(\w*)\s*\]")


def signature_of_prototype(text: str) -> Signature | None:
    """The signature that ``.callprototype (.param .b32 _) _ (.param .b64 _)`` gives; ``None`` if malformed.

    >>> signature_of_prototype(".callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[24])")
    Signature(results=(4,), params=(8, 24))
    """
    match = _PROTOTYPE.fullmatch(" ".join(text.split()))
    if match is None:
        return None
    return Signature(*(_listed_sizes(part or "") for part in match.groups()))


def _listed_sizes(text: str) -> tuple[int | None, ...]:
    return tuple(_listed_size(part) for part in text.split(",")) if text.strip() else ()


def _listed_size(text: str) -> int | None:
    size = None
    for word in _TYPE.findall(text):
        if word in TYPES:
            size = TYPES[word].bytes
    for length in _LENGTH.findall(text):
        if not length.isdigit() or size is None:
            return None
        size *= int(length)
    return size


def argument_problem(operand: Operand, size: int | None, *, is_result: bool) -> str:
    """Why ``operand`` cannot be passed as a parameter of ``size`` bytes, or an empty string. The caller appends the
    name of the function."""
    if size is None:
        return ""
    if isinstance(operand, Reg):
        have = operand.type.bytes * operand.lanes
    elif isinstance(operand, Sym) and isinstance(operand.declaration, Param | Variable):
        declaration = operand.declaration
        if declaration.space != "param":
            return f"'{operand.text}' is in state space .{declaration.space}, not .param: it cannot be passed to"
        have = declaration.bytes or size
    elif isinstance(operand, Sink):
        return "" if is_result else "the sink '_' cannot be passed to"
    elif isinstance(operand, Imm) and is_result:
        return f"the literal '{operand.text}' cannot take the result of"
    else:
        return ""
    if have == size:
        return ""
    direction = "takes the result of" if is_result else "is passed to"
    return f"'{operand.text}' has {have} bytes, where {size} are wanted, and {direction}"
