"""Registers as numbers (keys), and the operands of instructions as functions of a cohort.

Computes: a key for every register or component of a vector register; getters that give the raw bits of an operand with
the width of its type; setters that write results to registers of any width.
Requires: `layout` for symbols. Guarantees: if a register is wider than the type, its value is truncated when it is
    read, and a result is extended when it is written, with its sign if the type is signed (PTX ISA 9.0, §9.4.1).
    `{a, b}` or a vector register in the place of a scalar is packed and unpacked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from ..ptx.ir import Kernel, Param
from ..ptx.operands import Args, Element, Imm, Mem, Not, Operand, Pair, Reg, Sink, Special, Sym, Vec
from ..ptx.types import TYPES, ScalarType, literal_bits, literal_value
from .specials import special

if TYPE_CHECKING:
    from .cohort import Cohort

__all__ = ["Binder", "Getter", "Refused", "Registers", "Setter", "dtype_of", "integer"]

Array: TypeAlias = npt.NDArray[Any]
Getter: TypeAlias = "Callable[[Cohort], Array]"
#: A setter is called with the cohort, the value, and the guard (``None``: all lanes).
Setter: TypeAlias = "Callable[[Cohort, Array, Array | None], None]"

_VECTOR_SPECIALS = frozenset(["%tid", "%ntid", "%ctaid", "%nctaid"])
_COMPONENTS = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}
_SIGNED = {1: np.dtype("i1"), 2: np.dtype("i2"), 4: np.dtype("i4"), 8: np.dtype("i8")}


class Refused(Exception):
    """The emulator does not execute this instruction. The text says why."""


def dtype_of(scalar: ScalarType) -> np.dtype[Any]:
    """The NumPy type of a register or value; 128 bits are two columns of 64."""
    if scalar.kind == "p":
        return np.dtype(bool)
    if scalar.bits == 128:
        return np.dtype("u8")
    return np.dtype(f"u{max(scalar.bits // 8, 1)}")


def integer(text: str, what: str) -> int:
    """The value of an integer literal. `Refused` if it is not an integer; ``what`` names the operand in the message."""
    value = literal_value(text)
    if value != value or value in (float("inf"), float("-inf")) or int(value) != value:
        raise Refused(f"{what} of {text}")
    return int(value)


class Registers:
    """The keys of all registers of a program: numbers, with the type and the name of each register."""

    def __init__(self) -> None:
        self.types: list[ScalarType] = []
        self.names: list[str] = []
        self._keys: dict[tuple[Reg, int], int] = {}
        #: For a register that may be read before it is written, its shadow: a predicate register for "was written".
        self.shadows: dict[int, int] = {}
        self._carries: dict[Kernel, int] = {}
        self._unnamed: dict[tuple[Kernel, str], list[int]] = {}
        #: For each kernel, its ``.reg`` parameters and results that an instruction uses, by name. A kernel does not
        #: change after it was compiled with these registers.
        self._parameters: dict[Kernel, dict[str, Reg]] = {}

    def new(self, scalar: ScalarType, name: str) -> int:
        """Make a register. Returns its key."""
        self.types.append(scalar)
        self.names.append(name)
        return len(self.types) - 1

    def key(self, reg: Reg, component: int = 0) -> int:
        """The key of a register, or of a ``component`` of a vector register."""
        key = self._keys.get((reg, component))
        if key is None:
            name = reg.text if reg.lanes == 1 else f"{reg.text}.{'xyzw'[component]}"
            key = self._keys[reg, component] = self.new(reg.type, name)
        return key

    def of_parameter(self, kernel: Kernel, param: Param) -> list[int]:
        """The keys of a ``.reg`` parameter or result that no instruction of ``kernel`` uses, one for each element."""
        keys = self._unnamed.get((kernel, param.name))
        if keys is None:
            keys = [self.new(param.type, param.name) for _ in range(param.lanes)]
            self._unnamed[kernel, param.name] = keys
        return keys

    def used_parameters(self, kernel: Kernel) -> dict[str, Reg]:
        """The ``.reg`` parameters and results of ``kernel`` that its instructions use, by name."""
        found = self._parameters.get(kernel)
        if found is None:
            declared = (*(kernel.params or ()), *(kernel.results or ()))
            names = {param.name for param in declared if param.space == "reg"}
            found = self._parameters[kernel] = _used(kernel, names) if names else {}
        return found

    def keys(self, operand: Operand) -> list[int]:
        """The keys of all registers in ``operand``."""
        if isinstance(operand, Reg):
            if operand.lanes == 1:
                return [self.key(operand)]
            return [self.key(operand, index) for index in range(operand.lanes)]
        if isinstance(operand, Element):
            if operand.reg.lanes == 1:
                return [self.key(operand.reg)]
            component = _COMPONENTS.get(operand.component)
            if component is None:
                raise Refused(f"selector '{operand.text}'")
            return [self.key(operand.reg, component)]
        if isinstance(operand, Mem):
            return [key for part in (operand.base, *operand.rest) for key in self.keys(part)]
        if isinstance(operand, Vec | Args):
            return [key for part in operand.elements for key in self.keys(part)]
        if isinstance(operand, Pair):
            return self.keys(operand.first) + self.keys(operand.second)
        if isinstance(operand, Not):
            return self.keys(operand.operand)
        return []

    def carry(self, kernel: Kernel) -> int:
        """The key of the hidden carry flag of ``kernel``."""
        key = self._carries.get(kernel)
        if key is None:
            key = self._carries[kernel] = self.new(TYPES["pred"], "the carry flag")
        return key

    def zeros(self, key: int, count: int) -> Array:
        """An array of zeros for ``count`` threads of a register."""
        scalar = self.types[key]
        shape = (count, 2) if scalar.bits == 128 else (count,)
        return np.zeros(shape, dtype_of(scalar))


def _used(kernel: Kernel, names: set[str]) -> dict[str, Reg]:
    """The registers called ``names`` that instructions of ``kernel`` use."""
    found: dict[str, Reg] = {}
    for instr in kernel.instructions():
        for reg in (*instr.defs(), *instr.uses()):
            if reg.text in names:
                found.setdefault(reg.text, reg)
    return found


def _check_extension(scalar: ScalarType, target: ScalarType) -> None:
    """`Refused` if `extend` cannot convert between the types."""
    if "p" in (scalar.kind, target.kind) or 128 in (scalar.bits, target.bits):
        raise Refused(f"a .{scalar.name} value in a .{target.name} register")


def _refuse_selector(operand: Operand) -> None:
    """`Refused` for bytes or halves of a register: only video instructions select them (`video_ops`)."""
    if isinstance(operand, Element) and operand.reg.lanes == 1:
        raise Refused(f"selector '{operand.text}'")


def extend(value: Array, scalar: ScalarType, target: ScalarType) -> Array:
    """``value`` of type ``scalar`` as bits of a register of type ``target``."""
    if scalar.bits == target.bits:
        return value
    dtype = dtype_of(target)
    if value.dtype == dtype:
        return value
    if scalar.kind == "s" and target.bits > scalar.bits:
        return value.view(_SIGNED[value.dtype.itemsize]).astype(_SIGNED[dtype.itemsize]).view(dtype)
    return value.astype(dtype)


class Binder:
    """Makes getters and setters for the operands of one function.

    ``symbol`` gives the address of a symbol: a number, or a getter if it differs between threads.
    """

    def __init__(
        self,
        registers: Registers,
        kernel: Kernel,
        symbol: Callable[[Sym], int | Getter],
        address_bits: int,
    ) -> None:
        self.registers = registers
        self.kernel = kernel
        self.symbol = symbol
        self.address_bits = address_bits

    def source(self, operand: Operand, scalar: ScalarType | None) -> Getter:
        """A getter of ``operand`` as raw bits of ``scalar``."""
        _refuse_selector(operand)
        if isinstance(operand, Reg | Element):
            return self._register(operand, scalar)
        if isinstance(operand, Imm):
            literal_type = scalar if scalar is not None else TYPES["b32"]
            try:
                return self.constant(literal_bits(operand.text, literal_type), literal_type)
            except ValueError:
                raise Refused(f"literal '{operand.text}' as .{literal_type.name}") from None
        if isinstance(operand, Not):
            inner = self.source(operand.operand, TYPES["pred"])
            return lambda c: ~inner(c)
        if isinstance(operand, Special):
            read = special(operand.text)
            if read is None:
                raise Refused(f"special register '{operand.text}'")
            return self._converted(read, operand.type, scalar)
        if isinstance(operand, Sym):
            return self._symbol(operand, scalar)
        if isinstance(operand, Vec):
            return self._packed(operand, scalar)
        raise Refused(f"operand '{operand.text}'")

    def constant(self, bits: int, scalar: ScalarType) -> Getter:
        """A getter of the same ``bits`` for all threads."""
        if scalar.bits == 128:
            value = np.array([[bits & (2**64 - 1), bits >> 64]], np.uint64)
        else:
            value = np.array([bits], dtype_of(scalar))
        value.setflags(write=False)
        return lambda c: value

    def _register(self, operand: Reg | Element, scalar: ScalarType | None) -> Getter:
        keys = self.registers.keys(operand)
        if len(keys) != 1:
            return self._packed(self._as_list(operand), scalar)
        key = keys[0]
        declared = self.registers.types[key]
        if scalar is None or scalar.bits == declared.bits:
            return lambda c: c.env[key]
        return self._converted(lambda c: c.env[key], declared, scalar)

    def _converted(self, read: Getter, declared: ScalarType, scalar: ScalarType | None) -> Getter:
        if scalar is None or scalar.bits == declared.bits:
            return read
        _check_extension(declared, scalar)
        target = scalar
        return lambda c: extend(read(c), declared, target)

    def _symbol(self, operand: Sym, scalar: ScalarType | None) -> Getter:
        address_type = scalar if scalar is not None else TYPES[f"b{self.address_bits}"]
        if isinstance(operand.declaration, Param) and operand.declaration.space == "reg":
            raise Refused(f"register parameter '{operand.name}' by symbol")
        address = self.symbol(operand)
        if isinstance(address, int):
            return self.constant(address & ((1 << address_type.bits) - 1), address_type)
        dtype = dtype_of(address_type)
        read = address
        return lambda c: read(c).astype(dtype)

    def _packed(self, operand: Vec, scalar: ScalarType | None) -> Getter:
        count = len(operand.elements)
        if scalar is None or scalar.bits % count:
            raise Refused(f"operand '{operand.text}'")
        part = TYPES[f"b{scalar.bits // count}"]
        reads = [self.source(element, part) for element in operand.elements]
        if scalar.bits == 128:
            return _pack128(reads, part.bits)
        dtype = dtype_of(scalar)
        width = part.bits

        def pack(c: Cohort) -> Array:
            value = reads[0](c).astype(dtype)
            for index, read in enumerate(reads[1:], 1):
                value = value | (read(c).astype(dtype) << dtype.type(index * width))
            return value

        return pack

    # --- results -------------------------------------------------------------------------------------------------

    def destination(self, operand: Operand, scalar: ScalarType | None) -> Setter:
        """A setter that writes raw bits of ``scalar`` to ``operand``."""
        _refuse_selector(operand)
        if isinstance(operand, Sink):
            return lambda c, value, guard: None
        if isinstance(operand, Vec):
            return self._unpacked(operand, scalar)
        if not isinstance(operand, Reg | Element):
            raise Refused(f"result '{operand.text}'")
        keys = self.registers.keys(operand)
        if len(keys) != 1:
            return self._unpacked(self._as_list(operand), scalar)
        key = keys[0]
        declared = self.registers.types[key]
        put = self.put(key)
        if scalar is None or scalar.bits == declared.bits:
            return put
        _check_extension(scalar, declared)
        source = scalar
        return lambda c, value, guard: put(c, extend(value, source, declared), guard)

    def put(self, key: int) -> Setter:
        """A setter of the register ``key`` for bits of its own type."""
        shadow = self.registers.shadows.get(key)

        def put(c: Cohort, value: Array, guard: Array | None) -> None:
            env = c.env
            if guard is None:
                env[key] = value
            else:
                old = env.get(key)
                if old is None:
                    old = self.registers.zeros(key, 1)
                env[key] = np.where(guard if value.ndim == 1 else guard[:, None], value, old)
            c.dirty.add(key)

        if shadow is None:
            return put
        flag = shadow

        def put_and_note(c: Cohort, value: Array, guard: Array | None) -> None:
            put(c, value, guard)
            if guard is None:
                c.env[flag] = _TRUE
            else:
                old = c.env.get(flag)
                c.env[flag] = guard if old is None else guard | old
            c.dirty.add(flag)

        return put_and_note

    def _unpacked(self, operand: Vec, scalar: ScalarType | None) -> Setter:
        count = len(operand.elements)
        if scalar is None or scalar.bits % count:
            raise Refused(f"result '{operand.text}'")
        part = TYPES[f"b{scalar.bits // count}"]
        puts = [self.destination(element, part) for element in operand.elements]
        dtype = dtype_of(part)
        width = part.bits

        def unpack(c: Cohort, value: Array, guard: Array | None) -> None:
            pieces = [_piece(value, index * width, dtype) for index in range(count)]
            for put, piece in zip(puts, pieces, strict=True):
                put(c, piece, guard)

        return unpack

    def elements(self, operand: Operand) -> list[Operand]:
        """The elements of a vector operand or of a vector register; otherwise the operand itself."""
        if isinstance(operand, Vec):
            return list(operand.elements)
        if isinstance(operand, Reg) and operand.lanes > 1:
            return [Element(operand, "xyzw"[index]) for index in range(operand.lanes)]
        if isinstance(operand, Special) and operand.text in _VECTOR_SPECIALS:
            return [Special(f"{operand.text}.{component}", operand.type) for component in "xyzw"]
        return [operand]

    def _as_list(self, operand: Operand) -> Vec:
        """A vector register as a list of its elements."""
        return Vec(tuple(self.elements(operand)))

    def guard(self, instr: Instr) -> Getter | None:
        """A getter of the lanes in which ``instr`` takes effect; ``None`` for all lanes."""
        if instr.guard is None:
            return None
        read = self.source(instr.guard.reg, TYPES["pred"])
        if instr.guard.negated:
            return lambda c: ~read(c)
        return read


_TRUE = np.ones(1, bool)
_TRUE.setflags(write=False)


def _piece(value: Array, shift: int, dtype: np.dtype[Any]) -> Array:
    if value.ndim == 2:
        value, shift = value[:, shift // 64], shift % 64
    if shift:
        value = value >> value.dtype.type(shift)
    return value.astype(dtype)


def _pack128(reads: list[Getter], width: int) -> Getter:
    def pack(c: Cohort) -> Array:
        parts = [read(c).astype(np.uint64) for read in reads]
        per = 64 // width if width < 64 else 1
        halves: list[Array] = []
        for start in range(0, len(parts), per):
            value = parts[start]
            for index in range(1, per):
                value = value | (parts[start + index] << np.uint64(index * width))
            halves.append(value)
        return np.stack(np.broadcast_arrays(*halves), axis=1)

    return pack
