"""Which floating-point machine instructions ptxas made of each line of PTX.

Computes: from a cubin that was assembled with ``-lineinfo``, for each kernel and each line of the PTX text, the kinds
of floating-point additions, products and fused multiply-adds for that line, over all copies that ptxas made. A sum that
is contracted is listed as ``fma``, another one as ``add``. A product that is contracted everywhere is not listed.
``-lineinfo`` does not change the machine code (`tests/unit/test_float_lines.py` compares it).

Requires: the table ``.nv_debug_line_sass``, which maps machine instructions to lines of PTX. It is a DWARF 2 line
program. Guarantees: each floating-point instruction of each kernel is counted at the line that the table gives.
Refuses: cubins without that table, with opcodes of the line program that ptxas does not use, or with floating-point
instructions that have no line: `CubinError`.
Reference: DWARF 2.0, §6.2; ``nvdisasm -gp`` prints the same table.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from .cubin import CubinError, Image, read_image
from .machine_code import SIZE
from .machine_ops import names

__all__ = ["float_lines"]

_TABLE = ".nv_debug_line_sass"
_OPCODE = re.compile(r"U?[FDH](FMA|ADD|MUL)2?")
#: The byte of an instruction that names the register of the first factor, and RZ, which reads as zero.
_FACTOR, _ZERO_REGISTER = 3, 255
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _SET_COLUMN, _NEGATE, _BLOCK, _CONST_PC, _FIXED_PC = range(1, 10)
_END, _SET_ADDRESS = 1, 2

#: Offset in the section of the code, and line of the PTX.
Row = tuple[int, int]


def float_lines(cubin: bytes) -> dict[str, dict[int, frozenset[str]]]:
    """By kernel and line of PTX the kinds of instructions: ``fma``, ``add``, ``mul``. Raises `CubinError`."""
    image = read_image(cubin)
    if not image.has(_TABLE):
        raise CubinError(f"there is no section {_TABLE}")
    try:
        rows = _rows(image)
    except (IndexError, struct.error) as error:
        raise CubinError(f"the section {_TABLE} is damaged: {error}") from error
    opcodes = names(image.sm)
    kinds = {number: match[1].lower() for number, name in opcodes.items() if (match := _OPCODE.fullmatch(name))}
    halves = frozenset(number for number, name in opcodes.items() if name == "HFMA2")
    kernels = {symbol.name: f".text.{symbol.name}" for symbol in image.symbols if symbol.is_kernel}
    return {
        name: _of_section(image.data(section), rows.get(section, []), kinds, halves)
        for name, section in kernels.items()
    }


def _of_section(
    code: bytes, rows: list[Row], kinds: dict[int, str], halves: frozenset[int]
) -> dict[int, frozenset[str]]:
    """The kinds by line. ``halves`` are the opcodes of an FMA by which ptxas also makes constants."""
    rows = sorted(rows)
    starts = [offset for offset, _ in rows]
    kinds_by_line: dict[int, set[str]] = defaultdict(set)
    for offset in range(0, len(code), SIZE):
        opcode = code[offset] | (code[offset + 1] & 1) << 8
        kind = kinds.get(opcode)
        if kind is None or (opcode in halves and code[offset + _FACTOR] == _ZERO_REGISTER):
            continue
        index = bisect_right(starts, offset) - 1
        if index < 0:
            raise CubinError(f"the instruction at {offset:#x} has no line")
        kinds_by_line[rows[index][1]].add(kind)
    return {line: frozenset(each) for line, each in kinds_by_line.items()}


def _rows(image: Image) -> dict[str, list[Row]]:
    """By section of code: the rows of the table. An address is a relocation by the symbol of a kernel or section."""
    data = image.data(_TABLE)
    places: dict[int, tuple[str, int]] = {}
    for offset, _, symbol, addend in image.relocations(_TABLE):
        places[offset] = (image.names[symbol.section], symbol.offset + addend)
    by_section: dict[str, list[Row]] = defaultdict(list)
    start = 0
    while start < len(data):
        (length,) = struct.unpack_from("<I", data, start)
        end = start + 4 + length
        for section, row in _unit(data, start, end, places):
            by_section[section].append(row)
        start = end
    return by_section


def _unit(data: bytes, start: int, end: int, places: dict[int, tuple[str, int]]) -> Iterator[tuple[str, Row]]:
    """The rows of one line program."""
    version, header, step, _, base, span, first = struct.unpack_from("<HIBBbBB", data, start + 4)
    if version != 2:
        raise CubinError(f"the line table is of version {version}")
    lengths = data[start + 15 : start + 14 + first]
    at = start + 10 + header
    section, address, line = "", 0, 1
    while at < end:
        opcode = data[at]
        at += 1
        if opcode >= first:
            address += (opcode - first) // span * step
            line += base + (opcode - first) % span
            yield section, (address, line)
        elif opcode == 0:
            size, at = _unsigned(data, at)
            if data[at] == _SET_ADDRESS:
                section, address = places.get(at + 1, ("", 0))
                address += struct.unpack_from("<Q", data, at + 1)[0]
            elif data[at] == _END:
                section, address, line = "", 0, 1
            at += size
        elif opcode == _COPY:
            yield section, (address, line)
        elif opcode == _ADVANCE_PC:
            number, at = _unsigned(data, at)
            address += number * step
        elif opcode == _ADVANCE_LINE:
            number, at = _signed(data, at)
            line += number
        elif opcode == _CONST_PC:
            address += (255 - first) // span * step
        elif opcode == _FIXED_PC:
            address += struct.unpack_from("<H", data, at)[0]
            at += 2
        else:  # opcodes that change neither address nor line
            for _ in range(lengths[opcode - 1]):
                _, at = _unsigned(data, at)


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    """A number in LEB128, and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, after = _unsigned(data, at)
    bits = 7 * (after - at)
    return (value - (1 << bits) if value >> (bits - 1) else value), after
