"""Inputs for a kernel of which nothing is known but its PTX.

Computes: which parameters are pointers and what lies behind them, from how the kernel uses them; launches with
arrays and values drawn from a seed.
Method: a parameter is a pointer where its value flows, through moves, `cvta`, sums and selections, into an address.
What is loaded through it counts as floating point where a float instruction uses it, else as integers. Integer
parameters get numbers of the launch's size or small ones, integer data are small indices, so that most kernels stay in
bounds.
Guarantees: equal arguments for equal seeds. An input need not make sense: accesses that leave a buffer are skipped and
reported by the emulator, in the same way for every version of a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ptx import Imm, Instr, Kernel, Mem, Param, Reg, Sym, Variable, registers

__all__ = ["Input", "ParamUse", "generate", "param_uses"]

#: Elements behind each pointer.
ELEMENTS = 1 << 14
#: Scaled values are indices, not pointers: what is shifted or multiplied does not count.
_COPIES = frozenset("mov cvta add sub mad selp cvt".split())


@dataclass(slots=True)
class ParamUse:
    """How a parameter is used. ``width`` is the widest element in bytes that is accessed through it."""

    param: Param
    is_pointer: bool = False
    is_float: bool = False
    width: int = 4


@dataclass(slots=True)
class Input:
    """One launch: `args` are fresh arrays and values at every call of `arguments`."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    seed: int
    uses: list[ParamUse]
    size: int

    def arguments(self) -> list[Any]:
        random = np.random.default_rng(self.seed)
        return [_value(use, random, self.size) for use in self.uses]


def param_uses(kernel: Kernel, address_bits: int = 64) -> list[ParamUse]:
    """The use of every parameter of ``kernel`` in a module whose addresses have so many bits."""
    uses = {param.name: ParamUse(param) for param in kernel.params or ()}
    origin = _origins(kernel, uses)
    floats = {reg for instr in kernel.instructions() if _is_float(instr) for reg in instr.uses()}
    for instr in kernel.instructions():
        address = instr.address
        if address is None or not isinstance(address.base, Reg) or instr.form.space in ("shared", "local"):
            continue
        for name in origin.get(address.base, ()):
            use = uses[name]
            if use.param.type.bits != address_bits or use.param.type.is_float:
                continue
            use.is_pointer = True
            if instr.form.type is not None:
                use.width = max(instr.form.type.bytes, 1) if instr.form.type.bytes > use.width else use.width
                loaded = any(reg in floats for operand in instr.dsts for reg in registers(operand))
                use.is_float |= instr.form.type.is_float or loaded
    for use in uses.values():
        if ".ptr" in use.param.attributes:
            use.is_pointer = True
    return list(uses.values())


def _is_float(instr: Instr) -> bool:
    scalar = instr.form.scalar("atype") or instr.form.type
    return scalar is not None and scalar.is_float and instr.form.op.base not in ("ld", "st", "mov")


def _origins(kernel: Kernel, uses: dict[str, ParamUse]) -> dict[Reg, set[str]]:
    """For each register the parameters whose value may have flowed into it."""
    found: dict[Reg, set[str]] = {}
    grown = True
    while grown:
        grown = False
        for instr in kernel.instructions():
            names: set[str] = set()
            address = instr.address
            if instr.form.op.base == "ld" and address is not None and isinstance(address.base, Sym):
                if address.base.name in uses:
                    names.add(address.base.name)
            elif instr.form.op.base in _COPIES:
                for reg in _sources(instr):
                    names |= found.get(reg, set())
            if names:
                for reg in instr.defs():
                    known = found.setdefault(reg, set())
                    if not names <= known:
                        known |= names
                        grown = True
    return found


def _sources(instr: Instr) -> Iterator[Reg]:
    for operand in instr.srcs[2:] if instr.form.op.base == "mad" else instr.srcs:
        if not isinstance(operand, Mem | Imm):
            yield from registers(operand)


def _value(use: ParamUse, random: np.random.Generator, size: int) -> Any:
    param = use.param
    if use.is_pointer and not param.dims:
        if use.is_float:
            values = random.standard_normal(ELEMENTS)
            return values.astype(np.float64 if use.width == 8 else np.float16 if use.width == 2 else np.float32)
        high = random.choice([2, 64, size])
        return random.integers(0, high, ELEMENTS).astype(f"i{use.width if use.width in (1, 2, 4, 8) else 4}")
    if param.dims or param.type.bits > 64 or param.lanes > 1:
        return random.integers(0, 8, param.bytes).astype(np.uint8).tobytes()
    if param.type.is_float and param.type.bits in (16, 32, 64):
        return random.standard_normal(1).astype(f"f{param.type.bytes}")[0]
    value = int(random.choice([size, size - 3, 7, math.isqrt(size), 2]))
    return np.array(value & ((1 << min(param.type.bits, 31)) - 1)).astype(f"u{param.type.bytes}")[()]


def generate(kernel: Kernel, seed: int, address_bits: int = 64) -> Input:
    """A launch of ``kernel``: a few blocks, of the size that the kernel states or of a size drawn."""
    random = np.random.default_rng([seed, 1])
    stated = kernel.directive("reqntid") or kernel.directive("maxntid")
    if stated is not None:
        parts = [int(part) for part in stated.replace(",", " ").split()]
    elif _names(kernel, "%tid.y"):
        parts = [int(random.choice([8, 16])), int(random.choice([8, 16]))]
    else:
        parts = [int(random.choice([32, 64, 128]))]
    parts += [1] * (3 - len(parts))
    grid = (3, 2, 1) if _names(kernel, "%ctaid.y") else (4, 1, 1)
    threads = math.prod(parts) * math.prod(grid)
    return Input(
        kernel.name,
        grid,
        (parts[0], parts[1], parts[2]),
        _dynamic_bytes(kernel),
        seed,
        param_uses(kernel, address_bits),
        threads,
    )


def _dynamic_bytes(kernel: Kernel) -> int:
    """Dynamic shared memory: some where the kernel names an array without size."""
    operands = [operand for instr in kernel.instructions() for operand in instr.operands]
    symbols = [operand.base if isinstance(operand, Mem) else operand for operand in operands]
    unsized = (
        isinstance(symbol, Sym) and isinstance(symbol.declaration, Variable) and not symbol.declaration.bytes
        for symbol in symbols
    )
    return 4096 if any(unsized) else 0


def _names(kernel: Kernel, special: str) -> bool:
    return any(operand.text == special for instr in kernel.instructions() for operand in instr.operands)
