"""Generates inputs for a kernel from its PTX alone.

Computes: which parts of the parameters are pointers, integers and floats; launches, first from fixed cases and then
from random cases. The fixed cases are likely to detect a wrong kernel: blocks longer than a warp, several blocks,
partly filled blocks, all three dimensions, sizes below and above the number of threads, zeros, negative and large
integers, the numbers that the code compares with, all bit patterns, special floats, and pointers into the same buffer.
Guarantees: equal numbers give equal launches. An input need not be meaningful: every accessed address has memory
(`input_regions`), and every version of the kernel must treat it in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...ptx import Imm, Instr, Kernel, Mem, Module, Param, Reg, ScalarType, Special, Sym, Variable, registers
from ...ptx.operands import walk
from ...ptx.operations import ADDRESS_CONVERSIONS, CONVERSIONS, COPIES, Operation, Pointers
from ...ptx.types import is_integer_literal, literal_value
from .input_regions import Regions

__all__ = [
    "CASES",
    "Case",
    "Field",
    "Input",
    "ParamUse",
    "Signature",
    "compared_numbers",
    "float_registers",
    "generate",
    "param_uses",
]

#: Operations through which a pointer may flow. Products and shifts make indices, so they are not among them.
_CARRIERS = (
    COPIES
    | CONVERSIONS
    | ADDRESS_CONVERSIONS
    | {Operation.SELECTION, Operation.AND, Operation.SUM, Operation.DIFFERENCE}
)
#: Further rows through which a pointer may flow, with any modifiers.
_SUMS = frozenset([Pointers.SUM, Pointers.PRODUCT_SUM])

#: Bytes of dynamic shared memory. A kernel that reads its size gets the others, too.
_DYNAMIC_SHARED = 16384
_DYNAMIC_SIZES = (_DYNAMIC_SHARED, 0, 4096, 1024, 32768, 256)
_SIZE_REGISTERS = ("%dynamic_smem_size", "%total_smem_size")
_LANE_REGISTERS = ("%laneid", "%warpid", *(f"%lanemask_{order}" for order in ("eq", "lt", "le", "gt", "ge")))


@dataclass(slots=True)
class ParamUse:
    """How a parameter is used. ``width`` is the widest element in bytes that is accessed through it."""

    param: Param
    is_pointer: bool = False
    is_float: bool = False
    width: int = 4


@dataclass(frozen=True, slots=True)
class Field:
    """``nbytes`` bytes at ``offset`` of a parameter. ``word`` is the number of the word if it may be a pointer."""

    offset: int
    nbytes: int
    is_float: bool
    word: int | None


@dataclass(slots=True)
class Signature:
    """The parameters of a kernel as fields. ``pointers`` has the numbers of the words that are pointers; ``certain``
    has those that are pointers according to the PTX."""

    params: list[tuple[Param, list[Field]]]
    certain: set[int]
    pointers: set[int] = field(default_factory=set[int])

    @property
    def words(self) -> list[int]:
        """The numbers of all words that may be pointers."""
        return [each.word for _, fields in self.params for each in fields if each.word is not None]

    def name_of(self, word: int) -> str:
        """The parameter with word number ``word``, and its offset if that is not 0."""
        for param, fields in self.params:
            for each in fields:
                if each.word == word:
                    return f"parameter '{param.name}'" + (f"+{each.offset}" if each.offset else "")
        return "no parameter"

    @staticmethod
    def address_bits(module: Module, kernel: Kernel) -> int:
        """The size of pointers in bits: as the module states; otherwise 64 if a parameter has 64 bits, else 32."""
        if module.address_size is not None:
            return module.address_size
        return 64 if any(param.dims or param.type.bits == 64 for param in kernel.params or ()) else 32

    @staticmethod
    def of(kernel: Kernel, regions: Regions) -> Signature:
        """The signature. Records in ``regions`` what the PTX shows about the elements that pointers point to."""
        bits = 64 if regions.is_wide else 32
        typed = _typed_loads(kernel)
        number = 0
        params: list[tuple[Param, list[Field]]] = []
        certain: set[int] = set()
        for use in param_uses(kernel, bits):
            fields: list[Field] = []
            for offset, nbytes, is_float in _fields(use.param, typed):
                may_point = nbytes == bits // 8 and not is_float and offset % nbytes == 0
                fields.append(Field(offset, nbytes, is_float, number if may_point else None))
                if may_point and use.is_pointer and not use.param.dims:
                    certain.add(number)
                    regions.regions[regions.region("parameter", number)].is_float = use.is_float
                number += may_point
            params.append((use.param, fields))
        return Signature(params, certain, set(certain))


@dataclass(frozen=True, slots=True)
class Case:
    """The kind of an input.

    ``shape`` chooses the block, ``grid`` the number of blocks in each dimension; ``ints`` and ``floats`` choose the
    values of scalars; ``fill`` is that of `input_regions`; ``buffers`` is ``apart``, ``same`` (all pointers are equal)
    or ``shifted`` (they are 16 bytes apart).
    """

    name: str
    shape: int
    grid: int
    ints: str
    floats: str = "usual"
    fill: str = "index"
    buffers: str = "apart"


CASES = (
    Case("one warp", 0, 1, "threads"),
    Case("half a warp", 7, 2, "threads"),
    Case("partly filled blocks", 1, 2, "fewer"),
    Case("several blocks", 2, 3, "more", fill="wide"),
    Case("small numbers", 0, 2, "small"),
    Case("special values", 0, 1, "threads", "special", "special"),
    Case("subnormal and infinite values", 0, 1, "threads", "tiny", "special"),
    Case("zeros", 0, 1, "zero", "zero"),
    Case("negative integers", 0, 1, "negative", "negative", "wide"),
    Case("large integers", 0, 1, "large", "large"),
    Case("one buffer", 0, 1, "threads", buffers="same"),
    Case("overlapping buffers", 1, 1, "small", buffers="shifted"),
    Case("large blocks", 3, 2, "threads"),
    Case("one long block", 6, 1, "threads", fill="wide"),
    Case("sizes above the grid", 0, 2, "above", fill="wide"),
    Case("numbers in comparisons", 0, 1, "compared"),
    Case("other numbers in comparisons", 0, 1, "compared", fill="compared"),
    Case("the largest block", 8, 1, "threads"),
)

_LINES = (32, 96, 128, 256, 64, 33, 512, 16, 1024)
_PLANES = ((8, 4), (48, 2), (16, 16), (32, 8), (16, 8), (5, 3), (64, 4), (4, 4), (32, 32))
_SOLIDS = ((8, 2, 2), (33, 2, 2), (8, 8, 4), (16, 4, 4), (4, 4, 2), (5, 3, 2), (64, 2, 2), (4, 2, 2), (16, 8, 8))
_LARGEST = 8  #: the number of the last shape; random cases have the others


@dataclass(slots=True)
class Input:
    """One launch. ``arguments`` are the bytes of each parameter."""

    kernel: str
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    seed: int
    fill: str
    buffers: str
    arguments: list[bytes]

    @property
    def threads(self) -> int:
        """The threads of the launch."""
        return math.prod(self.grid) * math.prod(self.block)


def compared_numbers(kernels: Sequence[Kernel]) -> tuple[int, ...]:
    """The integers with which the kernels compare, the largest first, without those that other inputs have anyway."""
    texts = {
        operand.text
        for kernel in kernels
        for instr in kernel.instructions()
        if instr.form.operation is Operation.COMPARISON and instr.form.type is not None and instr.form.type.is_integer
        for operand in instr.srcs
        if isinstance(operand, Imm) and is_integer_literal(operand.text)
    }
    return tuple(sorted({int(literal_value(text)) for text in texts} - {-1, 0, 1, 2, 3}, reverse=True))


def generate(
    kernel: Kernel,
    signature: Signature,
    regions: Regions,
    number: int,
    compared: Sequence[int] = (),
    others: Sequence[Kernel] = (),
) -> Input:
    """Input ``number`` of ``kernel``: a fixed case, or a random case for larger numbers. ``compared``: see
    `compared_numbers`. ``others``: kernels that get the same input; the axes of blocks and grids are those that one of
    them reads."""
    random = np.random.default_rng([number, 1])
    case = CASES[number] if number < len(CASES) else _random_case(number, random)
    kernels = (kernel, *others)
    block = _block(kernels, case.shape, number)
    grid = _grid(kernels, case.grid)
    shared = _dynamic_bytes(kernel, number, compared)
    made = Input(kernel.name, case.name, grid, block, shared, number, case.fill, case.buffers, [])
    values = _Values(case, made.threads, random, compared[number % 2 :] or compared)
    bases = {word: _base(regions, signature, case.buffers, word) for word in signature.pointers}
    made.arguments = [_argument(param, fields, values, bases) for param, fields in signature.params]
    return made


def _random_case(number: int, random: np.random.Generator) -> Case:
    ints = ("threads", "fewer", "more", "small", "above", "mixed", "mixed")
    return Case(
        f"random input {number}",
        int(random.integers(_LARGEST)),
        int(random.integers(1, 5)),
        str(random.choice(ints)),
        str(random.choice(["usual", "usual", "special", "tiny", "large"])),
        str(random.choice(["index", "index", "wide", "special"])),
        str(random.choice(["apart", "apart", "apart", "same", "shifted"])),
    )


def _base(regions: Regions, signature: Signature, buffers: str, word: int) -> int:
    if buffers == "apart":
        return regions.parameter_base(word)
    first = regions.parameter_base(min(signature.pointers))
    return first if buffers == "same" else first + 16 * sorted(signature.pointers).index(word)


class _Values:
    """Values of scalar parameters. Consecutive values differ if the case allows it."""

    def __init__(self, case: Case, threads: int, random: np.random.Generator, compared: Sequence[int] = ()) -> None:
        self.case = case
        self.compared = compared
        self.threads = threads
        self.random = random
        self.ints = 0
        self.floats = 0

    def int(self, nbytes: int) -> bytes:
        """The next integer."""
        self.ints += 1
        value = self._int(self.case.ints, 8 * min(nbytes, 8))
        if nbytes == 8 and self.case.ints in ("threads", "above"):
            value = -(-value // 16) * 16  # such an integer can be a stride in bytes
        return (value & (1 << 8 * nbytes) - 1).to_bytes(nbytes, "little")

    def _int(self, kind: str, bits: int) -> int:
        place = self.ints - 1
        match kind:
            case "threads":
                choices = (self.threads, math.isqrt(self.threads), 7, self.threads // 2, 3)
            case "fewer":
                choices = (self.threads - 3, math.isqrt(self.threads) + 1, 5, self.threads // 2 + 1)
            case "more":
                choices = (self.threads + 5, self.threads, 2 * math.isqrt(self.threads), 9)
            case "small":
                choices = (5, 3, 7, 2, 11, 13, 4)
            case "above":
                choices = (3 * self.threads + 1, 2 * self.threads, self.threads + 1)
            case "zero":
                choices = (0,)
            case "compared":
                choices = self.compared or (1, 4, self.threads + 2)
            case "negative":
                choices = (-1, -3, -(1 << bits - 1), -17)
            case "large":
                choices = ((1 << bits - 1) - 1, (1 << bits - 1) - 5, (1 << bits) - 2, 1 << bits - 2)
            case _:
                choices = (self.threads, math.isqrt(self.threads), 1, 2, 3, 16, 31, 33, 64, 0, -1)
                return int(self.random.choice(choices))
        return choices[place % len(choices)]

    def float(self, nbytes: int) -> bytes:
        """The next float."""
        self.floats += 1
        usual = float(np.round(self.random.standard_normal(), 3)) + 0.37
        small = {2: 1e-6, 4: 1e-41, 8: 1e-310}.get(nbytes, 0.0)  # below the smallest normal number
        values = {
            "special": (float("nan"), -0.0, float("inf"), small, float("-inf"), 0.0),
            "tiny": (small, float("-inf"), -small, -0.0),
            "zero": (0.0,),
            "negative": (-abs(usual),),
            "large": (usual * 2.0**12, usual * 2.0**-12),
        }.get(self.case.floats, (usual,))
        return np.array(values[(self.floats - 1) % len(values)]).astype(f"f{nbytes}").tobytes()


def _argument(param: Param, fields: Sequence[Field], values: _Values, bases: dict[int, int]) -> bytes:
    raw = bytearray(param.bytes)
    for each in fields:
        if each.word in bases:
            data = bases[each.word].to_bytes(each.nbytes, "little")
        elif each.is_float and each.nbytes in (2, 4, 8):
            data = values.float(each.nbytes)
        else:
            data = values.int(each.nbytes)
        raw[each.offset : each.offset + each.nbytes] = data
    return bytes(raw)


def _block(kernels: Sequence[Kernel], shape: int, number: int) -> tuple[int, int, int]:
    """The block that the first kernel requires; otherwise the shape of this number that fits its limit."""
    stated = kernels[0].directive_numbers("reqntid")
    if stated:
        x, y, z = (*stated, 1, 1)[:3]
        return x, y, z
    limit = math.prod(kernels[0].directive_numbers("maxntid") or (1024,))
    if _names(kernels, "%tid.z", "%ntid.z"):
        shapes: Sequence[tuple[int, ...]] = _SOLIDS
    elif _names(kernels, "%tid.y", "%ntid.y") or (number % 2 and _differ_in_lanes(kernels)):
        shapes = _PLANES
    else:
        shapes = [(length,) for length in _LINES]
    fitting = [each for each in shapes if math.prod(each) <= limit] or [(limit,)]
    chosen = max(fitting, key=math.prod) if shape == _LARGEST else fitting[shape % len(fitting)]
    x, y, z = (*chosen, 1, 1)[:3]
    return x, y, z


def _differ_in_lanes(kernels: Sequence[Kernel]) -> bool:
    """Whether only some kernels read the place of a thread in its warp. In blocks with one axis, others may compute it
    from ``%tid.x``."""
    return len({_names([kernel], *_LANE_REGISTERS) for kernel in kernels}) > 1


def _grid(kernels: Sequence[Kernel], blocks: int) -> tuple[int, int, int]:
    has_y = _names(kernels, "%ctaid.y", "%nctaid.y")
    has_z = _names(kernels, "%ctaid.z", "%nctaid.z")
    # From three blocks on, y and z differ: with equal extents, a kernel that reads the wrong one of them does the same.
    return blocks, min(blocks, 2) if has_y else 1, min(blocks, 3 if has_y else 2) if has_z else 1


def _dynamic_bytes(kernel: Kernel, number: int, compared: Sequence[int]) -> int:
    """The bytes of dynamic shared memory of input ``number``: 0 unless the kernel uses an array without size, or reads
    the size. If it reads the size, inputs have different ones, and those with which it compares."""
    if _names([kernel], *_SIZE_REGISTERS):
        sizes = [*_DYNAMIC_SIZES, *(each for each in compared if 0 < each <= _DYNAMIC_SIZES[4])]
        return sizes[number % len(sizes)]
    operands = [operand for instr in kernel.instructions() for operand in instr.operands]
    symbols = [operand.base if isinstance(operand, Mem) else operand for operand in operands]
    unsized = (
        isinstance(symbol, Sym) and isinstance(symbol.declaration, Variable) and not symbol.declaration.bytes
        for symbol in symbols
    )
    return _DYNAMIC_SHARED if any(unsized) else 0


def _names(kernels: Sequence[Kernel], *specials: str) -> bool:
    """Whether one of the kernels reads one of these special registers, such as ``%tid.y``, or the vector of which it is
    a component."""
    texts = {text for special in specials for text in (special, special.partition(".")[0])}
    operands = (operand for kernel in kernels for instr in kernel.instructions() for operand in instr.operands)
    return any(part.text in texts for operand in operands for part in walk(operand) if isinstance(part, Special))


# --- what the PTX shows about parameters -----------------------------------------------------------------------------


def _typed_loads(kernel: Kernel) -> dict[tuple[str, int], tuple[ScalarType, bool]]:
    """For each parameter name and offset that is loaded by name: the type, and whether it is used as a float."""
    floats = float_registers(kernel)
    types: dict[tuple[str, int], tuple[ScalarType, bool]] = {}
    for instr in kernel.instructions():
        address = instr.address
        if instr.form.operation is not Operation.LOAD or address is None or not isinstance(address.base, Sym):
            continue
        scalar = instr.form.type
        if not isinstance(address.base.declaration, Param) or scalar is None or scalar.bytes not in (1, 2, 4, 8):
            continue
        elements = [reg for operand in instr.dsts for reg in registers(operand)]
        is_float = scalar.is_float or any(reg in floats for reg in elements)
        for index in range(instr.form.lanes):
            offset = address.base.offset + address.offset + index * scalar.bytes
            types[address.base.name, offset] = (scalar, is_float and scalar.bytes > 1)
    return types


def _fields(param: Param, typed: dict[tuple[str, int], tuple[ScalarType, bool]]) -> Iterator[tuple[int, int, bool]]:
    """Offset, size in bytes and whether it is a float, for each field of a parameter, in order."""
    if not param.dims and param.lanes == 1 and param.type.bits <= 64:
        load = typed.get((param.name, 0))
        used_as_float = load is not None and load[0].bytes == param.type.bytes and load[1]
        yield 0, param.type.bytes, param.type.is_float or used_as_float
        return
    offset = 0
    while offset < param.bytes:
        load = typed.get((param.name, offset))
        left = param.bytes - offset
        if load is not None and load[0].bytes <= left:
            size, is_float = load[0].bytes, load[1]
        else:
            size, is_float = next(size for size in (8, 4, 2, 1) if offset % size == 0 and size <= left), False
            inner = [at for name, at in typed if name == param.name and offset < at < offset + size]
            size = min(inner) - offset if inner else size
        yield offset, size, is_float
        offset += size


def param_uses(kernel: Kernel, address_bits: int = 64) -> list[ParamUse]:
    """How ``kernel`` uses each parameter, as far as the PTX shows it. A parameter with ``address_bits`` bits is a
    pointer if its value reaches an address through moves, `cvta`, sums and selections."""
    uses = {param.name: ParamUse(param) for param in kernel.params or ()}
    origin = _origins(kernel, uses)
    floats = float_registers(kernel)
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


def float_registers(kernel: Kernel) -> set[Reg]:
    """Registers that a float instruction reads."""
    return {reg for instr in kernel.instructions() if _is_float(instr) for reg in instr.uses()}


#: Operations that move bits of a floating-point type without computing with them.
_RAW = COPIES | {Operation.LOAD, Operation.STORE}


def _is_float(instr: Instr) -> bool:
    scalar = instr.form.scalar("atype") or instr.form.type
    return scalar is not None and scalar.is_float and instr.form.operation not in _RAW


def _origins(kernel: Kernel, uses: dict[str, ParamUse]) -> dict[Reg, set[str]]:
    """The names of the parameters whose value can reach a register, by register."""
    origins: dict[Reg, set[str]] = {}
    grown = True
    while grown:
        grown = False
        for instr in kernel.instructions():
            names: set[str] = set()
            address = instr.address
            if instr.form.operation is Operation.LOAD and address is not None and isinstance(address.base, Sym):
                if address.base.name in uses:
                    names.add(address.base.name)
            elif instr.form.operation in _CARRIERS or instr.form.op.pointers in _SUMS:
                for reg in _sources(instr):
                    names |= origins.get(reg, set())
            if names:
                for reg in instr.defs():
                    old_names = origins.setdefault(reg, set())
                    if not names <= old_names:
                        old_names |= names
                        grown = True
    return origins


def _sources(instr: Instr) -> Iterator[Reg]:
    for operand in instr.srcs[2:] if instr.form.op.pointers is Pointers.PRODUCT_SUM else instr.srcs:
        if not isinstance(operand, Mem | Imm):
            yield from registers(operand)
