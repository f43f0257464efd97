"""Scalar types, state spaces and literals of PTX.

Computes: the meaning of a type name, a space name, and a literal with all its bits.
Requires: the standard library only.
Guarantees: the bit pattern of a literal is exact. Only decimal literals are converted by way of a Python float; the
    manual defines them as double precision.
Refuses: a malformed literal, with ``ValueError``.
Reference: PTX ISA 9.0, §4.5 (constants), §5.1 (state spaces), §5.2 (types).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import lru_cache

__all__ = [
    "SPACES",
    "TYPES",
    "ScalarType",
    "is_integer_literal",
    "literal_bits",
    "literal_value",
]


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A PTX scalar type.

    ``kind`` is ``u`` unsigned, ``s`` signed, ``f`` floating point, ``b`` untyped bits, ``p`` predicate,
    ``o`` opaque (texture, surface and sampler references). ``lanes`` is 2 for packed types such as
    ``f16x2``. ``bits`` is the width of all lanes together, in bits (1 for a predicate).
    """

    name: str
    bits: int
    kind: str
    lanes: int = 1

    @property
    def bytes(self) -> int:
        """Size in memory, in bytes; 0 for a predicate."""
        return self.bits // 8

    @property
    def is_integer(self) -> bool:
        """Whether it is a signed or unsigned integer."""
        return self.kind in "us"

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.kind == "f"

    def __str__(self) -> str:
        return self.name


def _scalar_types() -> dict[str, ScalarType]:
    types: list[ScalarType] = [ScalarType("pred", 1, "p")]
    for bits in (8, 16, 32, 64):
        types += [ScalarType(f"{kind}{bits}", bits, kind) for kind in "usb"]
    types += [
        ScalarType("b128", 128, "b"),
        ScalarType("b1", 1, "b"),
        ScalarType("u4", 4, "u"),
        ScalarType("s4", 4, "s"),
    ]
    types += [ScalarType("b4", 4, "b"), ScalarType("b6", 6, "b"), ScalarType("u2", 2, "u"), ScalarType("s2", 2, "s")]
    types += [ScalarType("f16", 16, "f"), ScalarType("bf16", 16, "f"), ScalarType("f32", 32, "f")]
    types += [ScalarType("f64", 64, "f"), ScalarType("tf32", 32, "f")]
    types += [ScalarType("f16x2", 32, "f", 2), ScalarType("bf16x2", 32, "f", 2), ScalarType("f32x2", 64, "f", 2)]
    types += [ScalarType("u16x2", 32, "u", 2), ScalarType("s16x2", 32, "s", 2)]
    # Narrow floats exist only inside packed conversions and matrix instructions.
    types += [ScalarType(name, 8, "f") for name in ("e4m3", "e5m2", "ue8m0")]
    types += [ScalarType("e2m3", 6, "f"), ScalarType("e3m2", 6, "f"), ScalarType("e2m1", 4, "f")]
    types += [ScalarType(name, 16, "f", 2) for name in ("e4m3x2", "e5m2x2", "ue8m0x2")]
    types += [ScalarType(name, 16, "f", 2) for name in ("e2m3x2", "e3m2x2")] + [ScalarType("e2m1x2", 8, "f", 2)]
    types += [ScalarType(name, 32, "f", 4) for name in ("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4")]
    types += [ScalarType("e2m1x4", 16, "f", 4)]
    types += [ScalarType(name, 64, "o") for name in ("texref", "samplerref", "surfref")]
    return {scalar.name: scalar for scalar in types}


#: Every scalar type by its name without the dot.
TYPES: dict[str, ScalarType] = _scalar_types()

#: Every state space that may qualify an address or a declaration. The generic space has no name in PTX.
SPACES: frozenset[str] = frozenset(
    "reg sreg const global local param shared tex shared::cta shared::cluster param::entry param::func".split()
)


#: Size of the caches of literals. A few literals occur very often.
_LITERALS = 1 << 12


@lru_cache(_LITERALS)
def is_integer_literal(text: str) -> bool:
    """Whether ``text`` is an integer literal: without the prefix ``0f`` or ``0d``, without point and exponent."""
    body = text.lstrip("+-")
    if body[:2] in ("0f", "0F", "0d", "0D"):
        return False
    return body[:2] in ("0x", "0X") or not any(c in body for c in ".eE")


@lru_cache(_LITERALS)
def literal_value(text: str) -> int | float:
    """The value of a literal: an ``int`` for an integer, a ``float`` for ``0f``, ``0d`` and decimal literals.

    >>> literal_value("0x1F"), literal_value("-017"), literal_value("0b101"), literal_value("16U")
    (31, -15, 5, 16)
    >>> literal_value("0f3F800000")
    1.0
    """
    sign = -1 if text.startswith("-") else 1
    body = text.lstrip("+-")
    prefix = body[:2].lower()
    if prefix == "0f":
        return sign * struct.unpack(">f", bytes.fromhex(body[2:].zfill(8)))[0]
    if prefix == "0d":
        return sign * struct.unpack(">d", bytes.fromhex(body[2:].zfill(16)))[0]
    if not is_integer_literal(body):
        return sign * float(body)
    digits = body.rstrip("uU")
    if prefix == "0x":
        return sign * int(digits, 16)
    if prefix == "0b":
        return sign * int(digits, 2)
    if len(digits) > 1 and digits[0] == "0":
        return sign * int(digits, 8)
    return sign * int(digits, 10)


def literal_bits(text: str, scalar: ScalarType) -> int:
    """The bit pattern of a literal that is used as a value of type ``scalar``.

    A ``0f`` literal used as ``f32`` and a ``0d`` literal used as ``f64`` keep their bits, with the payload of a NaN.
    The bits of a ``0f`` literal used as ``f64`` become the lower half of the value: ptxas does not convert it. A ``0d``
    literal used as ``f32`` is rounded. Raises `ValueError` for a literal that the type does not take.

    >>> hex(literal_bits("0f7FC00001", TYPES["f32"])), hex(literal_bits("-1", TYPES["u16"]))
    ('0x7fc00001', '0xffff')
    >>> hex(literal_bits("0f3F800000", TYPES["f64"])), hex(literal_bits("0d47F0000000000000", TYPES["f32"]))
    ('0x3f800000', '0x7f800000')
    """
    body = text.lstrip("+-")
    prefix = body[:2].lower()
    negative = text.startswith("-")
    if prefix == "0f" and (scalar.bits == 32 or scalar.name == "f64"):
        return int(body[2:], 16) ^ (1 << (scalar.bits - 1) if negative else 0)
    if prefix == "0d" and scalar.bits == 64:
        return int(body[2:], 16) ^ (0x8000_0000_0000_0000 if negative else 0)
    value = literal_value(text)
    if scalar.is_float:
        formats = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}
        if scalar.bits not in formats or scalar.name in ("bf16", "bf16x2", "f16x2"):
            return int(value) & ((1 << scalar.bits) - 1)
        pack, unpack = formats[scalar.bits]
        try:
            return struct.unpack(unpack, struct.pack(pack, value))[0]
        except OverflowError:
            return struct.unpack(unpack, struct.pack(pack, math.copysign(math.inf, value)))[0]
    if isinstance(value, float):
        # A floating-point literal in an untyped register is a value of the floating-point type of that width.
        if scalar.bits == 32:
            return struct.unpack("<I", struct.pack("<f", value))[0]
        if scalar.bits == 64:
            return struct.unpack("<Q", struct.pack("<d", value))[0]
        raise ValueError(f"a floating-point literal cannot be a .{scalar.name}")
    if scalar.kind == "p":
        return int(value != 0)
    return value & ((1 << scalar.bits) - 1)
