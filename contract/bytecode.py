"""A contract as bytes for the C library (`runtime/ptxmotion_launch.c`), which is the other half of this format.

All numbers are little-endian. A name is a 16-bit length, its bytes, and a zero byte. An expression is a 16-bit length
and code for a stack machine; a jump adds its 16-bit operand to the address behind it.

    "PTXMCT", version (16 bits), size of everything (32), SHA-256 of the PTX, number of kernels (32), kernels
    kernel:     name, number of parameters (16), parameters, number of versions (16), versions
    parameter:  offset (16), size (16), kind (8: 0 other, 1 unsigned, 2 signed, 3 structure), is a pointer (8)
    version:    entry, number of conditions (16), conditions, flags (8), the expressions that the flags name
    flags:      1 prefer_when, 2 grid (three), 4 block (three), 8 shared, 16 arguments: their number (8) in front,
                32 preferences on machines: their number (8), then of each the name of the GPU, the number of
                multiprocessors (32), and the expression that takes the place of prefer_when
    condition:  kind (8: 1 inside, 2 disjoint, 3 holds), one or two ranges, or an expression
    range:      pointer (16), is whole (8); if it is not: two expressions

Requires: a contract that `Contract.check` accepts.
Refuses: `ContractError` for an expression with more than 65,535 bytes of code.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

from .conditions import Condition, Disjoint, Holds, Inside, Range, ranges_of
from .document import Contract, KernelContract, Parameter, Version
from .errors import ContractError
from .expressions import COMPARISONS, FIELD_TYPES, PLAIN_SYMBOLS, Expression, Number, Operation, Symbol
from .tuning import Tuning, tuned_preference

__all__ = ["BYTECODE_VERSION", "MAGIC", "code_of", "encode"]

MAGIC = b"PTXMCT"
BYTECODE_VERSION = 2


class Code(IntEnum):
    """The instructions. `BYTE` and so on push a literal of 1, 8 or 16 bytes; the jumps take a value off the stack."""

    BYTE = 1
    WORD = 2
    WIDE = 3
    ARG = 16
    FIELD = 17
    BEGIN = 18
    END = 19
    PLAIN = 20
    ADD = 32
    SUB = 33
    MUL = 34
    DIV = 35
    MOD = 36
    NEG = 37
    MIN = 38
    MAX = 39
    NOT = 40
    COMPARE = 48  # and the five behind it, in the order of COMPARISONS
    JUMP = 64
    JUMP_FALSE = 65
    JUMP_TRUE = 66


_BINARY: dict[str, int] = {
    "+": Code.ADD,
    "-": Code.SUB,
    "*": Code.MUL,
    "//": Code.DIV,
    "%": Code.MOD,
    "min": Code.MIN,
    "max": Code.MAX,
    **{operator: Code.COMPARE + index for index, operator in enumerate(COMPARISONS)},
}


def encode(contract: Contract) -> bytes:
    """The bytes of a contract. Raises `ContractError`."""
    kernels = b"".join(map(_kernel, contract.kernels.values()))
    head = bytes.fromhex(contract.sha256) + struct.pack("<I", len(contract.kernels))
    size = len(MAGIC) + 2 + 4 + len(head) + len(kernels)
    return MAGIC + struct.pack("<HI", BYTECODE_VERSION, size) + head + kernels


def _kernel(kernel: KernelContract) -> bytes:
    parameters = b"".join(map(_parameter, kernel.parameters))
    last = kernel.versions[-1]
    versions = b"".join(_version(each, () if each is last else kernel.tunings) for each in kernel.versions)
    head = _name(kernel.name) + struct.pack("<H", len(kernel.parameters)) + parameters
    return head + struct.pack("<H", len(kernel.versions)) + versions


def _parameter(parameter: Parameter) -> bytes:
    kind = 3 if parameter.is_structure else 0 if not parameter.is_integer else 2 if parameter.is_signed else 1
    return struct.pack("<HHBB", parameter.offset, parameter.size, kind, parameter.pointer)


def _version(version: Version, tunings: Sequence[Tuning]) -> bytes:
    change = version.launch
    flags, parts = 0, b""
    if version.prefer_when is not None:
        flags, parts = 1, _expression(version.prefer_when)
    if change is not None:
        for flag, three in ((2, change.grid), (4, change.block)):
            if three is not None:
                flags, parts = flags | flag, parts + b"".join(map(_expression, three))
        if change.shared is not None:
            flags, parts = flags | 8, parts + _expression(change.shared)
        if change.arguments:
            flags |= 16
            parts += bytes([len(change.arguments)]) + b"".join(map(_expression, change.arguments))
    if tunings:
        flags |= 32
        parts += bytes([len(tunings)]) + b"".join(_preference(version, each) for each in tunings)
    conditions = b"".join(map(_condition, version.requires))
    return _name(version.entry) + struct.pack("<H", len(version.requires)) + conditions + bytes([flags]) + parts


def _preference(version: Version, tuning: Tuning) -> bytes:
    machine = _name(tuning.machine.gpu) + struct.pack("<I", tuning.machine.multiprocessors)
    return machine + _expression(tuned_preference(version, tuning))


def _name(name: str) -> bytes:
    raw = name.encode()
    return struct.pack("<H", len(raw)) + raw + b"\0"


def _condition(condition: Condition) -> bytes:
    if isinstance(condition, Holds):
        return b"\3" + _expression(condition.expression)
    kind = {Inside: b"\1", Disjoint: b"\2"}[type(condition)]
    return kind + b"".join(map(_range, ranges_of(condition)))


def _range(range: Range) -> bytes:
    head = struct.pack("<HB", range.pointer, range.is_whole)
    bounds = () if range.start is None or range.stop is None else (range.start, range.stop)
    return head + b"".join(map(_expression, bounds))


def _expression(expression: Expression) -> bytes:
    code = code_of(expression)
    if len(code) > 0xFFFF:
        raise ContractError(f"'{str(expression)[:80]}' has {len(code)} bytes of code, more than 65535")
    return struct.pack("<H", len(code)) + code


def code_of(expression: Expression) -> bytes:
    """The code that leaves the value of an expression on the stack."""
    if isinstance(expression, Number):
        return _literal(expression.value)
    if isinstance(expression, Symbol):
        return _symbol(expression)
    assert isinstance(expression, Operation)
    operator, parts = expression.operator, [code_of(operand) for operand in expression.operands]
    if operator in ("and", "or"):
        return _short_circuit(operator, parts)
    if operator == "if":
        condition, then, otherwise = parts
        then += _jump(Code.JUMP, otherwise)
        return condition + _jump(Code.JUMP_FALSE, then) + then + otherwise
    if len(parts) == 1:
        return parts[0] + bytes([Code.NOT if operator == "not" else Code.NEG])
    # The operands of min and max are combined two at a time.
    return parts[0] + b"".join(part + bytes([_BINARY[operator]]) for part in parts[1:])


def _short_circuit(operator: str, parts: list[bytes]) -> bytes:
    """Each operand but the result is taken off by a jump to the end of the code, where the other truth value is."""
    neutral, decisive = (1, 0) if operator == "and" else (0, 1)
    last = _literal(decisive)
    code = _literal(neutral) + _jump(Code.JUMP, last)
    for part in reversed(parts):
        code = part + _jump(Code.JUMP_FALSE if operator == "and" else Code.JUMP_TRUE, code) + code
    return code + last


def _jump(kind: Code, over: bytes) -> bytes:
    if len(over) > 0xFFFF:
        raise ContractError("an expression has more than 65535 bytes of code")
    return struct.pack("<BH", kind, len(over))


def _literal(value: int) -> bytes:
    for code, size in ((Code.BYTE, 1), (Code.WORD, 8)):
        if -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1):
            return bytes([code]) + value.to_bytes(size, "little", signed=True)
    return bytes([Code.WIDE]) + value.to_bytes(16, "little", signed=True)


def _symbol(symbol: Symbol) -> bytes:
    match symbol.kind:
        case "arg":
            return struct.pack("<BH", Code.ARG, symbol.index)
        case "field":
            type = sorted(FIELD_TYPES).index(symbol.type)
            return struct.pack("<BHHB", Code.FIELD, symbol.index, symbol.offset, type)
        case "begin" | "end":
            return struct.pack("<BH", Code.BEGIN if symbol.kind == "begin" else Code.END, symbol.index)
        case _:
            return struct.pack("<BB", Code.PLAIN, PLAIN_SYMBOLS.index(symbol.kind))
