"""Every form of the exact and the approximate arithmetic rows, and kernels that apply a form to arrays.

Computes: the mnemonics that the slots of a row allow, from the table only; which of them the emulator executes; PTX
    that applies a form to operands in memory. Requires: `ptxmotion.ptx.ops`, `ptxmotion.emulator.semantics`.
Guarantees: a `Case` identifies its form, so that operands and results can be computed again: the mnemonic, its number
    of operands, and immediates if PTX requires them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Protocol

from ptxmotion.emulator.semantics import FACTORIES, LaneFunction, resolve
from ptxmotion.ptx import ROWS, decode
from ptxmotion.ptx.notation import Form, Op, OperandSpec

from .operands import width_of

__all__ = ["Case", "Frame", "cases", "load_operand", "module_text", "rows", "store_result"]

#: Types that Hopper converts between; the others exist on later chips only.
_CONVERTED = frozenset(
    "u8 s8 u16 s16 u32 s32 u64 s64 f16 bf16 f32 f64 f16x2 bf16x2 tf32 e4m3x2 e5m2x2 u2 s2 u4 s4 b32".split()
)

#: By row and operand name: operands that are counts of bits. Others are drawn by their type.
_KINDS = {
    ("bits_shl", "b"): "count",
    ("bits_shr", "b"): "count",
    ("bits_shf", "c"): "count",
    ("int_bfe", "b"): "count",
    ("int_bfe", "c"): "count",
    ("int_bfi", "c"): "count",
    ("int_bfi", "e"): "count",
    ("int_szext", "b"): "count",
    ("int_bmsk", "a"): "count",
    ("int_bmsk", "b"): "count",
    ("int_fns", "b"): "base",
    ("int_fns", "c"): "offset",
}


@dataclass(frozen=True)
class Case:
    """One form with its number of source operands, and the value of an immediate operand (the table of ``lop3``)."""

    mnemonic: str
    arity: int
    immediate: int | None = None

    @property
    def key(self) -> str:
        suffix = "" if self.immediate is None else f" {self.immediate}"
        return f"{self.mnemonic} {self.arity}{suffix}"

    @classmethod
    def from_key(cls, key: str) -> Case:
        mnemonic, arity, *immediate = key.split(" ")
        return cls(mnemonic, int(arity), int(immediate[0]) if immediate else None)

    @cached_property
    def form(self) -> Form:
        results = 1 if self.arity else 0
        return decode(self.mnemonic, self.arity + results)

    @property
    def function(self) -> LaneFunction | None:
        return resolve(self.form)

    @property
    def sources(self) -> tuple[OperandSpec, ...]:
        return tuple(spec for spec in self.form.specs if spec.role == "use")[: self.arity]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the operands that vary from lane to lane, the carry last."""
        row = self.form.op.semantics
        kinds = [_KINDS.get((row, spec.name), self.type_of(spec)) for spec in self.sources if not self._fixed(spec)]
        return (*kinds, "pred") if self.reads_carry else tuple(kinds)

    def _fixed(self, spec: OperandSpec) -> bool:
        return self.immediate is not None and spec.name == "e"

    @property
    def reads_carry(self) -> bool:
        return self.mnemonic.startswith(("addc", "subc", "madc"))

    @property
    def writes_carry(self) -> bool:
        return "cc" in self.mnemonic.split(".")

    @property
    def body(self) -> list[str]:
        return _body(self)

    def type_of(self, spec: OperandSpec) -> str:
        """The type of an operand, by the notation of the row."""
        mods = self.form.mods
        if spec.type == "wide":
            narrow = mods["type"]
            return f"{narrow[0]}{2 * int(narrow[1:])}"
        return mods.get(spec.type, spec.type)

    @property
    def results(self) -> tuple[str, ...]:
        """The types of the results that a kernel stores: the destinations, and the carry."""
        spec, form_row = self.form.specs[0], self.form.op.semantics
        types = [self.type_of(spec)]
        # With a scalar half type, there is only one predicate, unlike with every other type.
        if spec.pair is not None and not (form_row == "compare_setp" and self.form.mods["type"] in ("f16", "bf16")):
            types.append(self.type_of(spec.pair))
        if self.writes_carry:
            types.append("pred")
        return tuple(types)


def rows() -> tuple[Op, ...]:
    """The rows that a lane function computes."""
    return tuple(row for row in ROWS if row.semantics in FACTORIES)


def cases(row: Op) -> Iterator[Case]:
    """Every form of ``row`` that the emulator executes, with each number of operands that it can have."""
    uses = [spec for spec in row.operands if spec.role == "use"]
    least = sum(not spec.optional for spec in uses)
    for mnemonic in _mnemonics(row):
        for arity in range(least, len(uses) + 1):
            case = Case(mnemonic, arity)
            if case.form.op is not row or case.function is None:
                continue
            if row.semantics.startswith("bits_lop3"):
                tables = range(256) if row.semantics == "bits_lop3" else range(1, 256, 17)
                yield from (Case(mnemonic, arity, table) for table in tables)
            elif _is_storable(case):
                yield case


#: Types that a register of Hopper can hold and an operand be drawn for.
_STORED = frozenset(
    "pred b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 u16x2 s16x2 f16 f16x2 bf16 bf16x2 tf32 f32 f64 "
    "e4m3x2 e5m2x2".split()
)


def _is_storable(case: Case) -> bool:
    return all(kind in _STORED for kind in (*case.results, *map(case.type_of, case.sources)))


def _mnemonics(row: Op) -> Iterator[str]:
    choices: list[list[str]] = []
    for piece in row.pieces:
        words = sorted(piece.words)
        if piece.name in ("dtype", "atype", "ctype") and row.semantics.startswith("convert"):
            words = [word for word in words if word in _CONVERTED]
        if piece.literal and "::" in piece.name:
            words = []
        choices.append(["", *words] if piece.optional else words)
    for words in product(*choices):
        yield ".".join([row.base, *(word for word in words if word)])


# Kernels


def _register(kind: str) -> str:
    return "pred" if kind == "pred" else f"b{max(width_of(kind), 16)}"


def load_operand(index: int, kind: str, lines: list[str]) -> str:
    """Loads operand ``index`` into a register of its width; returns the register."""
    register = f"%s{index}"
    lines.append(f".reg .{_register(kind)} {register};")
    lines.append("ld.global.b64 %w, [%in]; add.s64 %in, %in, %step;")
    if kind == "pred":
        lines.append(f"setp.ne.u64 {register}, %w, 0;")
    elif width_of(kind) == 64:
        lines.append(f"mov.b64 {register}, %w;")
    else:
        lines.append(f"cvt.u{max(width_of(kind), 16)}.u64 {register}, %w;")
    return register


def store_result(kind: str, register: str, lines: list[str]) -> None:
    """Stores ``register`` as the next result."""
    if kind == "pred":
        lines.append(f"selp.b64 %w, 1, 0, {register};")
    elif width_of(kind) == 64:
        lines.append(f"mov.b64 %w, {register};")
    else:
        lines.append(f"cvt.u64.u{max(width_of(kind), 16)} %w, {register};")
    lines.append("st.global.b64 [%out], %w; add.s64 %out, %out, %step;")


def _body(case: Case) -> list[str]:
    lines: list[str] = []
    kinds = list(case.kinds)
    operands: list[str] = []
    for index, spec in enumerate(case.sources):
        if case.immediate is not None and spec.name == "e":
            operands.append(str(case.immediate))
        else:
            operands.append(load_operand(index, case.type_of(spec), lines))
    if case.reads_carry:
        flag = load_operand(len(kinds), "pred", lines)
        lines.append(f"selp.b32 %carry, 1, 0, {flag};")
        lines.append("add.cc.u32 %t, %carry, 0xffffffff;")
    destinations = case.results[: len(case.results) - case.writes_carry]
    names = [f"%d{index}" for index in range(len(destinations))]
    declarations = [f".reg .{_register(kind)} {name};" for kind, name in zip(destinations, names, strict=True)]
    lines = [*declarations, *lines, f"{case.mnemonic} {', '.join(['|'.join(names), *operands])};"]
    if case.writes_carry:
        lines.append("addc.u32 %t, 0, 0;")
    for kind, name in zip(destinations, names, strict=True):
        store_result(kind, name, lines)
    if case.writes_carry:
        lines.append("cvt.u64.u32 %w, %t; st.global.b64 [%out], %w;")
    return lines


class Frame(Protocol):
    """A body that is tested, between loads of its operands and stores of its results. Each of them is a column."""

    @property
    def key(self) -> str: ...

    @property
    def kinds(self) -> tuple[str, ...]: ...

    @property
    def results(self) -> tuple[str, ...]: ...

    @property
    def body(self) -> list[str]: ...


def _kernel(case: Frame, name: str) -> list[str]:
    """A kernel whose thread ``i`` reads word ``i`` of each operand array and writes word ``i`` of each result array."""
    head = [
        f".visible .entry {name}(.param .u64 inputs, .param .u64 outputs, .param .u32 lanes) {{",
        ".reg .b64 %in, %out, %w, %step, %at; .reg .b32 %n, %i, %j, %t, %carry; .reg .pred %beyond;",
        "ld.param.u32 %n, [lanes]; mov.u32 %i, %ctaid.x; mov.u32 %j, %ntid.x; mul.lo.u32 %i, %i, %j;",
        "mov.u32 %j, %tid.x; add.u32 %i, %i, %j; setp.ge.u32 %beyond, %i, %n; @%beyond ret;",
        "ld.param.u64 %in, [inputs]; ld.param.u64 %out, [outputs]; mul.wide.u32 %step, %n, 8;",
        "mul.wide.u32 %at, %i, 8; add.s64 %in, %in, %at; add.s64 %out, %out, %at;",
    ]
    return [*head, *case.body, "ret;", "}"]


def module_text(batch: Sequence[Frame], cells: int = 0) -> tuple[str, list[int]]:
    """PTX with one kernel ``k0``, ``k1``, … for each case, and the line on which each kernel begins.

    ``cells`` is the size in bytes of a global array that they share. They also share an array of constants.
    """
    lines = [".version 9.0", ".target sm_90", ".address_size 64"]
    if cells:
        lines.append(f".visible .global .align 32 .b8 cells_of_grid[{cells}];")
        lines.append(".visible .const .align 8 .b64 constants[8] = {1, 2, 3, 4, 5, 6, 7, 8};")
    starts: list[int] = []
    for index, case in enumerate(batch):
        starts.append(len(lines) + 1)
        lines += _kernel(case, f"k{index}")
    return "\n".join(lines) + "\n", starts
