"""The parser of declarations: parameters, registers, variables, performance directives.

Refuses: a name that is declared twice in one scope, and a register of a type that registers cannot have.
Reference: PTX ISA 9.0, §5.4.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import repeat

from .errors import PtxError
from .ir import Kernel, Param, RegisterDeclaration, Variable
from .lexer import Cursor, integer_of
from .operand_parser import Scope, is_below
from .operands import Reg
from .types import SPACES, TYPES, ScalarType

__all__ = [
    "LINKAGE",
    "declare_param",
    "local_variables",
    "parameters",
    "performance_directives",
    "register_declaration",
    "variables",
]

LINKAGE = frozenset([".visible", ".extern", ".weak", ".common"])

#: Directives whose operands are numbers: the greatest number of operands.
_LIMITS = {
    ".maxntid": 3,
    ".reqntid": 3,
    ".reqnctapercluster": 3,
    ".maxnreg": 1,
    ".minnctapersm": 1,
    ".maxnctapersm": 1,
    ".maxclusterrank": 1,
    ".abi_preserve": 1,
    ".abi_preserve_control": 1,
}
#: Those of them whose numbers must be at least 1.
_POSITIVE = frozenset([".maxntid", ".reqntid", ".maxnreg", ".minnctapersm", ".maxnctapersm"])
#: Directives that may follow a declaration without a semicolon. Linkage may follow it, too.
_NEXT_ITEM = frozenset(
    ".entry .func .global .const .local .shared .tex .file .section .loc .alias .version .target".split()
)
_REGISTER_TYPES = frozenset(scalar.name for scalar in TYPES.values() if scalar.kind in "usfbp")
#: The most common forms of declarations.
_PLAIN_REGISTERS = re.compile(r"\s*\.([a-z]\w*)\s+([A-Za-z_$%][\w$]*)(?:<(\d+)>)?\s*;", re.ASCII)
_PLAIN_VARIABLE = re.compile(
    r"\s*\.(\w+)(?:\s+\.align\s+([1-9]\d{0,4}))?\s+\.(\w+)\s+([A-Za-z_$%][\w$]*)(?:\[(0|[1-9]\d{0,12})\])?\s*;",
    re.ASCII,
)
#: The greatest size of a range of variables. A range makes one name for each number, so a short text could fill the
#: memory.
_MOST_OF_A_RANGE = 1 << 16


def declare_param(param: Param, scope: Scope, cursor: Cursor, kernel: Kernel) -> None:
    """Declare a parameter in the scope of the body. A ``.reg`` parameter is a register there."""
    if not param.name or param.name == "_":
        return
    if param.name in scope.names:
        raise PtxError(f"parameter '{param.name}' is declared twice", cursor.source, kernel.pos)
    scope.names[param.name] = Reg(param.name, param.type, param.lanes) if param.space == "reg" else param
    kernel.names.add(param.name)


def register_declaration(cursor: Cursor, scope: Scope, kernel: Kernel, *, is_nested: bool) -> RegisterDeclaration:
    """``.reg .type a, b<10>;``. The cursor is after ``.reg``."""
    plain = _PLAIN_REGISTERS.match(cursor.text, cursor.pos)
    if plain is not None and plain[1] in _REGISTER_TYPES and len(plain[3] or "") < 10:
        start, scalar, lanes = plain.start(2), TYPES[plain[1]], 1
        names: list[tuple[str, int | None]] = [(plain[2], int(plain[3]) if plain[3] else None)]
        cursor.pos = plain.end()
    else:
        start = cursor.skip_space()
        scalar, lanes = register_type(cursor)
        names = _register_names(cursor)
    scope.forget()
    made: list[tuple[Reg, ...]] = []
    for name, count in names:
        kernel.names.add(name)
        if count is None:
            made.append(())
            reg = Reg(name, scalar, lanes)
            _declare_register(reg, scope, cursor, start)
            if is_nested:
                kernel.scoped_names.append(reg)
        else:
            template = Reg(name, scalar, lanes)
            made.append(_declare_range(name, count, template, scope, cursor, start, is_nested=is_nested))
    return RegisterDeclaration(scalar, names[0][0], names[0][1], lanes, names[1:], made[0])


def register_type(cursor: Cursor) -> tuple[ScalarType, int]:
    """``.v2 .f32``: the type and the number of lanes."""
    lanes = 1
    scalar = None
    while (token := cursor.peek()).startswith("."):
        word = token[1:]
        if word in ("v2", "v4") and lanes == 1:
            lanes = int(word[1:])
        elif word in _REGISTER_TYPES and scalar is None:
            scalar = TYPES[word]
        elif word in _REGISTER_TYPES or word in ("v2", "v4"):
            raise cursor.error(f"'{token}' is one type too many for a register")
        else:
            raise cursor.error(f"'{token}' is no register type")
        cursor.next()
    if scalar is None:
        raise cursor.error("the register declaration has no type")
    return scalar, lanes


def _register_names(cursor: Cursor) -> list[tuple[str, int | None]]:
    names: list[tuple[str, int | None]] = []
    while True:
        name = cursor.name("a register's name")
        count = None
        if cursor.accept("<"):
            count = cursor.integer("a count")
            cursor.expect(">", "after a count")
        names.append((name, count))
        if cursor.accept(";"):
            return names
        cursor.expect(",", "or ';' after a register")


def _declare_register(reg: Reg, scope: Scope, cursor: Cursor, start: int) -> None:
    if reg.text in scope.names or scope.find_in_range(reg.text) is not None:
        raise PtxError(f"register '{reg.text}' is declared twice", cursor.source, start)
    scope.names[reg.text] = reg


def _declare_range(
    prefix: str, count: int, template: Reg, scope: Scope, cursor: Cursor, start: int, *, is_nested: bool
) -> tuple[Reg, ...]:
    """Declare ``prefix<count>``. Returns its registers if they are created now. Else returns an empty tuple; then each
    register is created at its first use."""
    names = scope.names
    if prefix in scope.ranges:
        raise PtxError(f"registers '{prefix}<…>' are declared twice", cursor.source, start)
    # To create all registers at once is four times as fast as one by one. It is not done for a range that is longer
    # than the body can use, nor in a nested scope, where each register may have to be renamed.
    if not is_nested and count * 8 < cursor.body_end() - cursor.pos:
        each = [f"{prefix}{number}" for number in range(count)]
        clash = None if names.keys().isdisjoint(each) else _clash(prefix, count, names)
    else:
        each = []
        clash = _clash(prefix, count, names)
    if clash is not None:
        raise PtxError(f"register '{clash}' is declared twice", cursor.source, start)
    scope.ranges[prefix] = (template.type, count, template.lanes)
    made = tuple(map(Reg, each, repeat(template.type), repeat(template.lanes)))
    scope.declare(dict(zip(each, made, strict=True)))
    return made


def _clash(prefix: str, count: int, names: Collection[str]) -> str | None:
    """A name of the range ``prefix<count>`` that is in ``names``, or ``None``."""
    if count < len(names):
        return next((f"{prefix}{i}" for i in range(count) if f"{prefix}{i}" in names), None)
    suffixes = ((name, name.removeprefix(prefix)) for name in names if name.startswith(prefix))
    return next((name for name, number in suffixes if is_below(number, count)), None)


def local_variables(cursor: Cursor, scope: Scope, start: int) -> list[Variable]:
    """Variables in a body, such as ``.shared .align 4 .b8 buffer[1024];``."""
    linkage: list[str] = []
    while cursor.peek() in (".extern", ".visible"):
        linkage.append(cursor.next())
    declared = variables(cursor, " ".join(linkage), start)
    for variable in declared:
        if variable.count is not None and variable.count > _MOST_OF_A_RANGE:
            raise PtxError(f"'{variable.name}<{variable.count}>' is too large a range", cursor.source, start)
        names = [variable.name] if variable.count is None else [f"{variable.name}{i}" for i in range(variable.count)]
        for name in names:
            if name in scope.names:
                raise PtxError(f"'{name}' is declared twice", cursor.source, start)
            scope.names[name] = variable
    scope.forget()
    return declared


def parameters(cursor: Cursor) -> list[Param]:
    """``( .param .u64 a, … )``"""
    cursor.expect("(", "before parameters")
    params: list[Param] = []
    if cursor.accept(")"):
        return params
    while True:
        params.append(parameter(cursor))
        if cursor.accept(")"):
            return params
        cursor.expect(",", "between parameters")


def parameter(cursor: Cursor) -> Param:
    space = cursor.next()
    if space not in (".param", ".reg"):
        raise cursor.error(f"expected '.param' or '.reg', found '{space}'")
    param = Param("", space[1:], TYPES["b32"])
    typed = False
    attributes: list[str] = []
    while (token := cursor.peek()).startswith("."):
        cursor.next()
        word = token[1:]
        if word == "align" and not attributes and param.align is None:
            param.align = cursor.integer("an alignment")
        elif word in ("v2", "v4") and not typed and param.lanes == 1:
            param.lanes = int(word[1:])
        elif word in TYPES and not typed:
            param.type = TYPES[word]
            typed = True
        elif typed and word not in TYPES:
            attributes.append(token)
            if word == "align":
                attributes.append(str(cursor.integer("an alignment")))
        else:
            raise cursor.error(f"unexpected '{token}' in a parameter")
    if not typed:
        raise cursor.error("the parameter has no type")
    param.attributes = " ".join(attributes)
    token = cursor.peek()
    if token and token not in ",)[":
        param.name = cursor.name("a parameter's name")
    param.dims = dimensions(cursor)
    return param


def dimensions(cursor: Cursor) -> tuple[int | None, ...]:
    """``[4][]``: the sizes in elements; ``None`` for an empty pair of brackets."""
    dims: list[int | None] = []
    while cursor.accept("["):
        if cursor.accept("]"):
            dims.append(None)
        else:
            dims.append(cursor.integer("an array size"))
            cursor.expect("]", "after an array size")
    return tuple(dims)


def performance_directives(cursor: Cursor, kernel: Kernel) -> None:
    """The directives between the head and the body of a function, such as ``.maxntid 256, 1, 1``, in their order."""
    while (token := cursor.peek()).startswith("."):
        if token in LINKAGE or token in _NEXT_ITEM:
            return
        if token == ".pragma":
            cursor.next()
            kernel.directives.append(f".pragma {cursor.until(';', '.pragma')};")
            continue
        start = cursor.skip_space()
        cursor.next()
        operands: list[str] = []
        while (value := cursor.peek()) and (value[0].isdigit() or value[0] == '"' or value == "WARP_SZ"):
            operands.append(cursor.next())
            if not cursor.accept(","):
                break
        else:
            if operands:
                raise cursor.error(f"expected a number after ',' in '{token}', found '{value}'")
        if cursor.peek() == "(":
            operands.append(cursor.balanced("(", ")", token))
        if token in _LIMITS:
            operands = _extents(cursor, token, operands, start)
        kernel.directives.append(" ".join([token, ", ".join(operands)]).rstrip())


def _extents(cursor: Cursor, directive: str, operands: list[str], start: int) -> list[str]:
    """The operands of a directive of `_LIMITS`, checked, and written with decimal digits."""
    most = _LIMITS[directive]
    numbers = [number for number in map(integer_of, operands) if number is not None]
    if not 1 <= len(numbers) <= most or len(numbers) != len(operands):
        wanted = "a number" if most == 1 else f"up to {most} numbers"
        raise cursor.error(f"'{directive}' takes {wanted}", start)
    if directive in _POSITIVE and min(numbers) < 1:
        raise cursor.error(f"'{directive}' takes numbers from 1 on", start)
    return [str(number) for number in numbers]


def variables(cursor: Cursor, linkage: str, start: int) -> list[Variable]:
    """``.space .align n .type name[…] = …, …;``. Returns one variable for each declarator."""
    plain = _PLAIN_VARIABLE.match(cursor.text, cursor.pos)
    if plain is not None and plain[3] in TYPES and plain[1] in SPACES:
        cursor.pos = plain.end()
        align = int(plain[2]) if plain[2] else None
        dims = (int(plain[5]),) if plain[5] else ()
        return [Variable(plain[4], plain[1], TYPES[plain[3]], linkage, align, 1, dims, pos=start)]
    space = cursor.next()[1:]
    template = Variable("", space, TYPES["b8"], linkage, pos=start)
    if cursor.peek() == "[":
        template.bank = cursor.balanced("[", "]", "a constant bank")
    typed = False
    while (token := cursor.peek()).startswith("."):
        cursor.next()
        word = token[1:]
        if word == "align" and template.align is None:
            template.align = cursor.integer("an alignment")
        elif word == "attribute" and not template.attributes:
            template.attributes = ".attribute" + cursor.balanced("(", ")", "an attribute")
        elif word in ("v2", "v4", "v8") and template.lanes == 1:
            template.lanes = int(word[1:])
        elif word in TYPES and not typed:
            template.type = TYPES[word]
            typed = True
        elif word in SPACES or word in TYPES or word in ("align", "attribute", "v2", "v4", "v8"):
            raise cursor.error(f"unexpected '{token}' in a declaration")
        else:
            template.attributes = f"{template.attributes} {token}".strip()
    if not typed:
        raise cursor.error("the declaration has no type")
    return declarators(cursor, template)


def declarators(cursor: Cursor, template: Variable) -> list[Variable]:
    declared: list[Variable] = []
    while True:
        variable = Variable(
            cursor.name("a variable's name"),
            template.space,
            template.type,
            template.linkage,
            template.align,
            template.lanes,
            attributes=template.attributes,
            pos=template.pos,
            bank=template.bank,
        )
        if cursor.accept("<"):
            variable.count = cursor.integer("a count")
            cursor.expect(">", "after a count")
        variable.dims = dimensions(cursor)
        if cursor.accept("="):
            variable.initializer = initializer(cursor)
        declared.append(variable)
        if cursor.accept(";"):
            return declared
        cursor.expect(",", "or ';' after a declaration")


def initializer(cursor: Cursor) -> str:
    """The text of an initializer, up to the comma or semicolon that ends it."""
    if cursor.peek() == "{":
        return cursor.balanced("{", "}", "an initializer")
    start = cursor.skip_space()
    depth = 0
    while (token := cursor.peek()) and not (depth == 0 and token in (",", ";")):
        depth += (token == "(") - (token == ")")
        cursor.next()
    if not token:
        raise cursor.error("expected ';' after an initializer, found the end of the file", start)
    return cursor.text[start : cursor.pos].strip()
