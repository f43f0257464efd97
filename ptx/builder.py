"""Build instructions. The methods of `Builder` are the opcodes of the table.

>>> from .parser import parse
>>> module = parse(".version 9.0\\n.target sm_90\\n.visible .entry k() { .reg .b32 %r<2>; ret; }")
>>> kernel = module.kernels[0]
>>> b = Builder(kernel, Block())
>>> tid = b.mov("u32", b.special("%tid.x"))
>>> wide = b.mul("wide.u32", tid, 4)
>>> print(*[instr.text for instr in b.block.instrs], sep="\\n")
mov.u32 %m_u32_0, %tid.x;
mul.wide.u32 %m_u64_0, %m_u32_0, 4;

Requires: a kernel. The builder adds the declarations of new registers to it. Guarantees: the operands of each
instruction obey the rules of the verifier. Refuses: with `PtxError`, operands that the row does not take; with
``ValueError``, a mnemonic that no row fits, and a result whose type the row leaves open (use `Builder.emit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from .decoding import decode
from .errors import PtxError, SourceText
from .instructions import Guard, Instr, Loc
from .ir import Block, Kernel
from .notation import Form
from .operand_rules import align, kind_of, problem
from .operands import Args, Imm, Mem, Operand, Reg, Special, Sym, Vec
from .special_registers import special_type
from .types import TYPES, ScalarType

__all__ = ["Builder", "address", "float_literal", "vector"]

#: The arguments that stand for operands: an ``int`` is a literal, a block or label is a branch target.
Given: TypeAlias = Operand | int | Block


def address(base: Reg | Sym | Special | Imm, offset: int = 0) -> Mem:
    """``[base+offset]``; ``offset`` in bytes."""
    return Mem(base, offset)


def vector(elements: Iterable[Operand]) -> Vec:
    """``{a, b, …}``"""
    return Vec(tuple(elements))


def float_literal(value: float, type: str = "f32") -> Imm:
    """``value``, rounded to the nearest ``f32`` or ``f64``, as a literal that gives its bits.

    >>> float_literal(1.0).text, float_literal(-0.0, "f64").text
    ('0f3F800000', '0d8000000000000000')
    """
    import struct

    if type == "f32":
        return Imm("0f" + struct.pack(">f", value).hex().upper())
    return Imm("0d" + struct.pack(">d", value).hex().upper())


class Builder:
    """Appends instructions to ``block``. A caller may set ``block`` to another block at any time.

    Each new instruction has the current ``guard`` and ``loc``. A method that is not defined here is an opcode:
    ``b.add("s32", x, 1)`` makes ``add.s32`` and returns its new result register, or ``None`` if it has no result.
    """

    def __init__(self, kernel: Kernel, block: Block, *, hint: str = "%m", source: SourceText | None = None) -> None:
        self.kernel = kernel
        self.block = block
        self.hint = hint
        self.guard: Guard | None = None
        self.loc: Loc | None = None
        self.source = source if source is not None else SourceText("", kernel.name)

    def emit(self, mnemonic: str, *operands: Given) -> Instr:
        """Append ``mnemonic`` with all its operands, results first, and return the instruction."""
        instr = self.make(mnemonic, *operands)
        self.block.instrs.append(instr)
        self.kernel.changed()
        return instr

    def make(self, mnemonic: str, *operands: Given) -> Instr:
        """The instruction, checked, but not in any block. Raises `ValueError` for an unknown opcode, `PtxError` for
        operands that it does not take."""
        made = tuple(self._operand(operand) for operand in operands)
        form = decode(mnemonic, len(made))
        if form.is_opaque:
            raise ValueError(f"no opcode '{mnemonic}'")
        if not form.is_call:
            refusal = problem(form, tuple(kind_of(operand) for operand in made))
            if refusal is not None:
                text = made[refusal.operand].text if refusal.operand >= 0 else ""
                raise PtxError(refusal.message.replace("{}", text), self.source, -1)
        return Instr(form, made, self.guard, self.loc)

    def call(self, function: Sym | Kernel, arguments: Iterable[Given], results: Iterable[Operand] = ()) -> Instr:
        """``call (results), function, (arguments);`` with registers or ``.param`` variables."""
        target = function if isinstance(function, Sym) else Sym(function.name, function)
        passed = Args(tuple(self._operand(argument) for argument in arguments))
        return self.emit("call.uni", Args(tuple(results)), target, passed)

    def special(self, name: str) -> Special:
        """Special register ``name``, such as ``%tid.x``. Raises `ValueError` for another name."""
        kind = special_type(name)
        if kind is None:
            raise ValueError(f"no special register '{name}'")
        return Special(name, TYPES[kind])

    def new_reg(self, type: ScalarType | str) -> Reg:
        """A new register that can hold a value of ``type``."""
        scalar = TYPES[type] if isinstance(type, str) else type
        return self.kernel.new_reg(_register_type(scalar), self.hint)

    def __getattr__(self, base: str) -> Callable[..., Reg | None]:
        if base.startswith("_"):
            raise AttributeError(base)

        def build(mods: str, *operands: Given) -> Reg | None:
            return self._with_result(f"{base.rstrip('_')}.{mods}" if mods else base.rstrip("_"), operands)

        return build

    def _with_result(self, mnemonic: str, operands: tuple[Given, ...]) -> Reg | None:
        form = decode(mnemonic)
        if form.is_opaque:
            raise ValueError(f"no opcode '{mnemonic}'")
        if form.dst_count == 0:
            self.emit(mnemonic, *operands)
            return None
        # Some rows differ only in the number of operands, and the result is one of them.
        form = decode(mnemonic, len(operands) + 1)
        result = self.new_reg(self.result_type(form, len(operands) + 1))
        self.emit(mnemonic, result, *operands)
        return result

    def result_type(self, form: Form, arity: int) -> ScalarType:
        """The type that the row gives to the first result of ``form``. Raises `ValueError` if it gives none, or if
        the result is a vector."""
        specs = align(form, arity)
        scalar = form.operand_type(specs[0]) if specs else form.type
        if scalar is None or form.lanes > 1:
            raise ValueError(f"the result of '{form.text}' has to be given: use emit")
        return scalar

    def _operand(self, given: Given) -> Operand:
        if isinstance(given, Block):
            if given.label is None:
                given.label = self.kernel.new_label("$L_")
            return given.label
        return Imm(given) if isinstance(given, int) else given


def _register_type(scalar: ScalarType) -> ScalarType:
    """The type of the declaration of a register for ``scalar``. ptxas has no registers of ``bf16`` and packed types."""
    if scalar.name in ("pred", "f32", "f64"):
        return scalar
    width = next(bits for bits in (16, 32, 64, 128) if bits >= scalar.bits)
    is_plain = scalar.kind in "us" and scalar.lanes == 1
    return TYPES[f"{scalar.kind if is_plain else 'b'}{width}"]
