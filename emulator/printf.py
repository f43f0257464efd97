"""`printf` on the device: converts the format string and the argument buffer to text.

Requires: functions that read the buffer and strings. Guarantees: arguments have the layout of nvcc: 4 bytes for an
``int``, 8 for a ``long long``, ``double`` or pointer, each aligned to its size. A conversion that C does not have is
copied unchanged, as on the device.
Reference: CUDA C++ Programming Guide 13.0, §10.32 (formatted output).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

__all__ = ["format_output"]

_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|L|j|z|t)?([diouxXcsfFeEgGaAp%])")


def format_output(text: str, read: Callable[[int, int], bytes], string: Callable[[int], str]) -> tuple[str, int]:
    """The output and the number of arguments.

    ``read(offset, size)`` reads the buffer, ``string(address)`` a string.
    """
    pieces: list[str] = []
    offset = 0
    count = 0
    at = 0

    def argument(size: int) -> bytes:
        nonlocal offset, count
        offset = -(-offset // size) * size
        data = read(offset, size)
        offset += size
        count += 1
        return data

    for match in _CONVERSION.finditer(text):
        pieces.append(text[at : match.start()])
        at = match.end()
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            pieces.append("%")
            continue
        if width == "*":
            width = str(int.from_bytes(argument(4), "little", signed=True))
            if width.startswith("-"):
                flags, width = flags + "-", width[1:]
        if precision == "*":
            number = int.from_bytes(argument(4), "little", signed=True)
            precision = str(number) if number >= 0 else None
        spec = f"%{flags}{width or ''}" + (f".{precision}" if precision is not None else "")
        pieces.append(_convert(spec, kind, length or "", argument, string))
    pieces.append(text[at:])
    return "".join(pieces), count


def _convert(spec: str, kind: str, length: str, argument: Callable[[int], bytes], string: Callable[[int], str]) -> str:
    if kind in "di":
        size = 8 if length in ("l", "ll", "j", "z", "t") else 4
        value = int.from_bytes(argument(size), "little", signed=True)
        return (spec + "d") % _narrow(value, length, signed=True)
    if kind in "ouxX":
        size = 8 if length in ("l", "ll", "j", "z", "t") else 4
        value = int.from_bytes(argument(size), "little")
        return (spec + ("d" if kind == "u" else kind)) % _narrow(value, length, signed=False)
    if kind == "c":
        return (spec + "c") % (int.from_bytes(argument(4), "little") & 0xFF)
    if kind == "s":
        address = int.from_bytes(argument(8), "little")
        return (spec + "s") % (string(address) if address else "(null)")
    if kind == "p":
        return (spec + "s") % hex(int.from_bytes(argument(8), "little"))
    (number,) = struct.unpack("<d", argument(8))
    if kind in "aA":
        text = float.hex(number)
        return text.upper() if kind == "A" else text
    return (spec + kind) % number


def _narrow(value: int, length: str, *, signed: bool) -> int:
    bits = {"hh": 8, "h": 16}.get(length)
    if bits is None:
        return value
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value
