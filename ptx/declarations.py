"""Declarations inside a body: parameters, registers, variables.

Refuses: a name declared twice in one scope, a register of no register type.
Reference: PTX ISA 9.0, §5.4.
"""

from __future__ import annotations

from .errors import PtxError
from .ir import Kernel, Param, RegisterDeclaration, Variable
from .lexer import Cursor
from .operand_parser import Scope
from .operands import Reg
from .types import TYPES

__all__ = ["declare_param", "local_variables", "register_declaration"]

_REGISTER_KINDS = frozenset("usfbp")


def declare_param(param: Param, scope: Scope, cursor: Cursor, kernel: Kernel) -> None:
    """Make a parameter known in the body; a ``.reg`` parameter is a register there."""
    if not param.name or param.name == "_":
        return
    if param.name in scope.names:
        raise PtxError(f"parameter '{param.name}' is declared twice", cursor.source, kernel.pos)
    scope.names[param.name] = Reg(param.name, param.type, param.lanes) if param.space == "reg" else param
    kernel.names.add(param.name)


def register_declaration(cursor: Cursor, scope: Scope, kernel: Kernel, *, is_nested: bool) -> RegisterDeclaration:
    """``.reg .type a, b<10>;``, the cursor behind ``.reg``."""
    lanes = 1
    scalar = None
    while (token := cursor.peek()).startswith("."):
        word = token[1:]
        if word in ("v2", "v4"):
            lanes = int(word[1:])
        elif word in TYPES and TYPES[word].kind in _REGISTER_KINDS:
            scalar = TYPES[word]
        else:
            raise cursor.error(f"'{token}' is no register type")
        cursor.next()
    if scalar is None:
        raise cursor.error("the register declaration has no type")
    names: list[tuple[str, int | None]] = []
    while True:
        start = cursor.skip_space()
        name = cursor.name("a register's name")
        count = None
        if cursor.accept("<"):
            count = cursor.integer("a count")
            cursor.expect(">", "after a count")
        _declare_register(name, count, Reg(name, scalar, lanes), scope, cursor, start)
        kernel.names.add(name)
        if count is None and is_nested:
            found = scope.names[name]
            assert isinstance(found, Reg)
            kernel.scoped_names.append(found)
        names.append((name, count))
        if cursor.accept(";"):
            break
        cursor.expect(",", "or ';' after a register")
    return RegisterDeclaration(scalar, names[0][0], names[0][1], lanes, names[1:])


def _declare_register(name: str, count: int | None, reg: Reg, scope: Scope, cursor: Cursor, start: int) -> None:
    known = scope.names if count is None else scope.ranges
    if name in known:
        raise PtxError(f"register '{name}' is declared twice", cursor.source, start)
    if count is None:
        scope.names[name] = reg
    else:
        scope.ranges[name] = (reg.type, count, reg.lanes)
    # A nested declaration hides an outer one: what was parsed under this name in this scope no longer holds.
    scope.operands.clear()
    scope.guards.clear()


def local_variables(cursor: Cursor, scope: Scope, start: int) -> list[Variable]:
    """``.shared .align 4 .b8 buffer[1024];`` and the like in a body."""
    from .parser import variables

    linkage: list[str] = []
    while cursor.peek() in (".extern", ".visible"):
        linkage.append(cursor.next())
    found = variables(cursor, " ".join(linkage), start)
    for variable in found:
        names = [variable.name] if variable.count is None else [f"{variable.name}{i}" for i in range(variable.count)]
        for name in names:
            if name in scope.names:
                raise PtxError(f"'{name}' is declared twice", cursor.source, start)
            scope.names[name] = variable
    scope.operands.clear()
    return found
