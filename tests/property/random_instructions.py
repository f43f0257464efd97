"""The instructions of random programs: weights per row of the opcode table, and operands by the row's types.

Each instruction has one defined result on every machine: no approximations, no division by zero, no lane exchange.
Types, arity and results come from the table. This file holds only weights and spellings; `LEFT_OUT` lists the rows that
are not used.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from itertools import product

from ptxmotion.ptx import Form, Operation, ScalarType, decode

__all__ = [
    "CLASSES",
    "LEFT_OUT",
    "LEFT_OUT_WITH_EFFECTS",
    "Template",
    "approximate_templates",
    "class_of",
    "literal",
    "templates",
]

#: Register classes: the type that a register is declared with.
CLASSES = ("pred", "b16", "b32", "b64", "f32", "f64")

_ALL = "u16|s16|u32|s32|u64|s64"
_WORDS = "u32|s32|u64|s64"
_BITS = "b16|b32|b64"
_HALVES = "f16|f16x2"

#: Weight and spelling. ``a|b`` between dots means one of the words; an empty word means none.
_SPELLINGS: list[tuple[int, str]] = [
    (12, f"add.{_ALL}"),
    (6, "add.u32|s32|s64"),
    (1, "add.sat.s32"),
    (6, f"sub.{_ALL}"),
    (1, "sub.sat.s32"),
    (8, f"mul.lo.{_ALL}"),
    (2, f"mul.hi.{_ALL}"),
    (4, "mul.wide.u16|s16|u32|s32"),
    (6, f"mad.lo.{_ALL}"),
    (1, f"mad.hi.{_WORDS}"),
    (3, "mad.wide.u16|s16|u32|s32"),
    (1, "mad.hi.sat.s32"),
    (1, "mul24.lo|hi.u32|s32"),
    (1, "mad24.lo|hi.u32|s32"),
    (1, f"sad.{_ALL}"),
    (2, f"div.{_ALL}"),
    (2, f"rem.{_ALL}"),
    (1, "abs.s16|s32|s64"),
    (2, "neg.s16|s32|s64"),
    (3, f"min.{_ALL}"),
    (3, f"max.{_ALL}"),
    (1, "popc.b32|b64"),
    (1, "clz.b32|b64"),
    (1, f"bfind.|shiftamt.{_WORDS}"),
    (1, "brev.b32|b64"),
    (2, f"bfe.{_WORDS}"),
    (2, "bfi.b32|b64"),
    (1, "szext.clamp|wrap.u32|s32"),
    (1, "bmsk.clamp|wrap.b32"),
    (1, "dp4a.u32|s32.u32|s32"),
    (1, "dp2a.lo|hi.u32|s32.u32|s32"),
    (6, "add.|rn|rz|rm|rp.|ftz.f32"),
    (2, "add.sat.f32"),
    (3, "add.|rn|rz.f64"),
    (3, "sub.|rn|rz.|ftz.f32"),
    (1, "sub.f64"),
    (5, "mul.|rn|rp.|ftz.f32"),
    (2, "mul.rn|rm.f64"),
    (5, "fma.rn|rz.|ftz.|sat.f32"),
    (2, "fma.rn|rp.f64"),
    (1, f"add.|rn.{_HALVES}"),
    (1, f"sub.{_HALVES}"),
    (1, f"mul.{_HALVES}"),
    (1, f"fma.rn.{_HALVES}"),
    (1, "mad.rn|rz.f32|f64"),
    (1, "div.rn.f32|f64"),
    (1, f"abs.f32|f64|{_HALVES}"),
    (1, f"neg.f32|f64|{_HALVES}"),
    (2, "min.|ftz.f32"),
    (2, "max.f32|f64"),
    (1, "min.f16|f16x2"),
    (1, "copysign.f32|f64"),
    (1, "testp.finite|infinite|number|notanumber|normal|subnormal.f32|f64"),
    (1, "rcp.rn.f32|f64"),
    (1, "sqrt.rn|rz.f32|f64"),
    (1, f"set.eq|lt|ge.u32|s32.{_WORDS}"),
    (1, "set.lt|gtu.f32.f32"),
    (1, "set.lt.and|or|xor.u32.s32"),
    (6, f"setp.eq|ne|lt|le|gt|ge.{_ALL}"),
    (2, "setp.eq|ltu|ge|num|nan.f32|f64"),
    (2, "setp.eq|lt.and|or|xor.u32|s32"),
    (6, f"selp.{_ALL}|{_BITS}|f32|f64"),
    (1, "slct.u32|s64|f32.s32|f32"),
    (4, f"and.{_BITS}"),
    (3, f"or.{_BITS}"),
    (4, f"xor.{_BITS}"),
    (2, "and|or|xor.pred"),
    (1, "not.b16|b32|b64|pred"),
    (1, "cnot.b16|b32|b64"),
    (2, "lop3.b32"),
    (2, "shf.l|r.clamp|wrap.b32"),
    (6, f"shl.{_BITS}"),
    (5, f"shr.{_ALL}|{_BITS}"),
    (6, "mov.u16|u32|s32|u64|f32|f64|pred|b32|b64"),
    (2, "prmt.b32"),
    (1, "prmt.b32.f4e|b4e|rc8|ecl|ecr|rc16"),
    (3, "cvt.u32|s32.u16|s16|u8|s8"),
    (4, "cvt.u64|s64.u32|s32"),
    (3, "cvt.u32|u16.u64|u32"),
    (1, "cvt.sat.u8|s8|u16|s16.s32"),
    (2, "cvt.rn.f32|f64.s32|u32|s64"),
    (2, "cvt.rzi|rni|rmi.s32|u32|s64.f32|f64"),
    (1, "cvt.f64.f32"),
    (1, "cvt.rn|rz.f32.f64"),
    (1, "cvt.rn.f16.f32"),
    (1, "cvt.f32.f16"),
    (1, "cvt.rni|rpi.f32.f32"),
    (1, "cvt.rn.f16x2.f32"),
    (1, "cvt.pack.sat.s16|u16.s32"),
    (2, "vadd|vsub|vabsdiff|vmin|vmax.u32|s32.u32|s32.u32|s32.|sat.|add|min|max"),
    (1, "vshl|vshr.u32|s32.u32|s32.u32.|sat.clamp|wrap.|add|max"),
    (1, "vset.u32|s32.u32|s32.eq|ne|lt|le|gt|ge.|add|min"),
    (1, "vmad.u32|s32.u32|s32.u32|s32.|po.|sat.|shr7|shr15"),
    (1, "vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2|vadd4|vavrg4|vabsdiff4|vmax4.u32|s32.u32|s32.u32|s32.|sat|add"),
    (1, "vset2|vset4.u32|s32.u32|s32.eq|lt|ge.|add"),
]

#: Approximations: their results differ between machines.
_APPROXIMATIONS: list[tuple[int, str]] = [
    (1, "div.approx|full.f32"),
    (1, "rcp|rsqrt|sqrt.approx.f32"),
    (1, "rcp|rsqrt.approx.ftz.f64"),
    (1, "sin|cos|lg2|ex2|tanh.approx.f32"),
]

#: Rows with a function of the emulator that the random programs leave out, and why. The key is `Op.semantics`.
LEFT_OUT: dict[str, str] = {
    "int_add_cc": "made in carry chains",
    "int_addc": "made in carry chains",
    "int_sub_cc": "made in carry chains",
    "int_subc": "made in carry chains",
    "int_mad_cc": "made in carry chains",
    "int_madc": "made in carry chains",
    "mbarrier_pending_count": "reads the state that an mbarrier gave",
    "int_fns": "a loop of hundreds of machine instructions",
    "mixed_add": "sm_100 and newer",
    "mixed_sub": "sm_100 and newer",
    "mixed_fma": "sm_100 and newer",
    "float_min3": "sm_100 and newer",
    "float_max3": "sm_100 and newer",
    "bits_lop3_pred": "made with its second result",
    "address_cvta": "made with addresses",
    "address_cvta_to": "made with addresses",
    "address_isspacep": "depends on where the launcher puts buffers",
    "convert_stochastic": "sm_100 and newer",
    "memory_createpolicy": "has no value of its own",
    "move_vector": "made with vector registers, in `random_functions`",
}

#: The same for rows with effects.
LEFT_OUT_WITH_EFFECTS: dict[str, str] = {
    **dict.fromkeys(
        ["mbarrier_init", "mbarrier_inval", "mbarrier_arrive", "mbarrier_arrive_drop", "mbarrier_wait"],
        "how often a thread polls depends on the schedule",
    ),
    **dict.fromkeys(
        ["mbarrier_expect_tx", "mbarrier_complete_tx", "mbarrier_copies", "bulk_copy", "bulk_commit", "bulk_wait"],
        "need an mbarrier or a bulk copy",
    ),
    **dict.fromkeys(["matrix_mma", "matrix_load", "matrix_store"], "operands are spread over the lanes"),
    **dict.fromkeys(
        ["texture_fetch", "texture_query", "surface_load", "surface_store"],
        "need a texture or surface, which the launcher makes",
    ),
    "sync_activemask": "depends on the schedule",
}


@dataclass(frozen=True)
class Template:
    """One spelling: its weight (that of its family divided by its size), class of the result, types of the sources."""

    mnemonic: str
    weight: float
    result: str
    sources: tuple[ScalarType, ...]

    @property
    def form(self) -> Form:
        return decode(self.mnemonic, 1 + len(self.sources))

    @property
    def is_video(self) -> bool:
        """Whether its operands may be bytes or halves."""
        return self.form.operation is Operation.VIDEO

    @property
    def merges(self) -> bool:
        """Whether the result of a video instruction on words may be a byte or half of the third source."""
        form = self.form
        return form.op.semantics == "video_word" and "secop" not in form.mods and len(self.sources) == 3


@cache
def templates() -> tuple[Template, ...]:
    """Every exact spelling that is drawn from."""
    return _templates(_SPELLINGS)


@cache
def approximate_templates() -> tuple[Template, ...]:
    """Every approximate spelling that is drawn from."""
    return _templates(_APPROXIMATIONS)


def _templates(spellings: list[tuple[int, str]]) -> tuple[Template, ...]:
    found: list[Template] = []
    for weight, spelling in spellings:
        parts = [part.split("|") for part in spelling.split(".")]
        mnemonics = [".".join(word for word in words if word) for words in product(*parts)]
        for mnemonic in mnemonics:
            found += [_template(mnemonic, arity, weight / len(mnemonics)) for arity in _arities(mnemonic)]
    return tuple(found)


def _arities(mnemonic: str) -> list[int]:
    if mnemonic.startswith(("cvt.rn.f16x2", "cvt.pack")):
        return [3]
    if decode(mnemonic).op.semantics == "video_word":
        return [4] if "secop" in decode(mnemonic).mods else [3, 4]
    return [sum(not spec.optional for spec in decode(mnemonic).specs)]


def _template(mnemonic: str, arity: int, weight: float) -> Template:
    form = decode(mnemonic, arity)
    types = [form.operand_type(spec) for spec in form.specs[:arity]]
    assert not form.is_opaque and None not in types, mnemonic
    sound = [scalar for scalar in types if scalar is not None]
    return Template(mnemonic, weight, class_of(sound[0]), tuple(sound[1:]))


def class_of(scalar: ScalarType) -> str:
    """The class of the registers that hold a value of type ``scalar``."""
    if scalar.name in ("pred", "f32", "f64"):
        return scalar.name
    return f"b{max(16, scalar.bits)}" if scalar.bits != 8 else "b32"


_INTEGERS = (0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 32, 63, 64, 100, 255, 256, 1000, -1, -2, -4, -128)
_FLOATS = "0f00000000 0f3F800000 0fBF800000 0f40000000 0f3F000000 0f41200000 0f3DCCCCCD 0f4B000000".split()
_DOUBLES = "0d0000000000000000 0d3FF0000000000000 0dBFE0000000000000 0d4008000000000000 0d4059000000000000".split()
_SHIFTS = (0, 1, 2, 3, 4, 5, 8, 15, 16, 24, 31, 33)


def literal(scalar: ScalarType, rng: random.Random, *, is_count: bool = False) -> str:
    """A literal of type ``scalar``; ``is_count``: the width of a shift or field. Empty if the type has no literals."""
    if is_count:
        return str(rng.choice(_SHIFTS))
    if scalar.name == "f32":
        return rng.choice(_FLOATS)
    if scalar.name == "f64":
        return rng.choice(_DOUBLES)
    if scalar.is_float or scalar.kind == "p" or scalar.lanes > 1:
        return ""
    if rng.random() < 0.15:
        return str(rng.getrandbits(min(scalar.bits, 31)))
    return str(rng.choice(_INTEGERS))
