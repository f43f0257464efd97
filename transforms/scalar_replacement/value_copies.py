"""Instructions that put the bytes of a load or store into another register.

Computes: how a load fills its result (`Kind`), and the one instruction that fills a register in the same way from what
a provider has in its operand. Refuses: values that no single instruction converts.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ptx import Imm, Instr, Loc, Reg, ScalarType, decode
from ...ptx.types import literal_bits
from ..code_motion.replacement import move_mnemonic
from .access_index import Provider

__all__ = ["Kind", "copy_of", "deliver", "kind_of"]


@dataclass(frozen=True, slots=True)
class Kind:
    """How a load fills its result: the register's type, and ``s`` or ``u`` where it extends what it reads."""

    type: ScalarType
    extension: str = ""


def kind_of(load: Instr, result: Reg) -> Kind:
    """The kind of ``result`` of ``load``."""
    scalar = load.form.type
    assert scalar is not None
    if scalar.bits >= result.type.bits:
        return Kind(result.type)
    return Kind(result.type, "s" if scalar.kind == "s" else "u")


def deliver(target: Reg, kind: Kind, size: int, provider: Provider, loc: Loc | None) -> Instr | None:
    """The instruction that fills ``target`` as a load of ``kind`` does, with the ``size`` bytes in the operand of
    ``provider``; `None` where no single instruction does."""
    source = provider.operand
    if isinstance(source, Imm):
        return _deliver_literal(target, kind, size, source, provider.scalar, loc)
    target_bits, bits, source_bits = kind.type.bits, 8 * size, source.type.bits
    if source_bits < bits or (target_bits > bits and kind.type.is_float):
        return None
    if target_bits == bits == source_bits:
        return copy_of(target, source, loc)
    if source.type.is_float or kind.type.is_float or target_bits < bits:
        return None
    if target_bits == bits:
        return Instr(decode(f"cvt.u{bits}.u{source_bits}", 2), (target, source), None, loc)
    extension = kind.extension
    if not provider.is_store and source_bits == target_bits and extension == _extension_of(provider.scalar):
        return copy_of(target, source, loc)
    return Instr(decode(f"cvt.{extension}{target_bits}.{extension}{bits}", 2), (target, source), None, loc)


def _extension_of(scalar: ScalarType) -> str:
    return "s" if scalar.kind == "s" else "u"


def copy_of(target: Reg, source: Reg, loc: Loc | None) -> Instr:
    """``mov target, source`` with all bits; the registers have the same width."""
    is_same = source.type is target.type
    mnemonic = move_mnemonic(target.type) if is_same else f"mov.b{target.type.bits}"
    return Instr(decode(mnemonic, 2), (target, source), None, loc)


def _deliver_literal(
    target: Reg, kind: Kind, size: int, literal: Imm, scalar: ScalarType, loc: Loc | None
) -> Instr | None:
    """`deliver` for a literal that was stored as a ``scalar``."""
    target_bits, bits = kind.type.bits, 8 * size
    if scalar.bits != bits or scalar.lanes != 1 or scalar.name == "bf16":
        return None
    if target_bits < bits or (target_bits > bits and kind.type.is_float):
        return None
    try:
        value = literal_bits(literal.text, scalar) & ((1 << bits) - 1)
    except ValueError:
        return None
    if target_bits > bits and kind.extension == "s" and value >> bits - 1:
        value |= ((1 << target_bits) - 1) ^ ((1 << bits) - 1)
    return Instr(decode(f"mov.b{target_bits}", 2), (target, Imm(f"0x{value:X}")), None, loc)
