"""The reader of cubins: the resources, code and instructions of each kernel.

Requires: an ELF file for sm_75 or newer from ptxas 11 or newer.
Guarantees: no process is started, and no GPU is needed. If `is_same_code` is true of two kernels, they run the same
instructions on the same constants with the same resources.
Refuses: with `CubinError`, bytes that are not a cubin, and a cubin for an older architecture.
Reference: the names of sections and attributes are those that `nvdisasm` and `cuobjdump -elf` print (CUDA Binary
Utilities 13.0). An entry of `.nv.info` is a byte for the format, a byte for the attribute, then a value of 2 bytes or,
in format 4, a size of 2 bytes and a value of that size.

On sm_90 and newer, the shared memory in a linked cubin begins with 1024 bytes that are reserved for the system. They
are subtracted here, as in the figure that ptxas prints, and `occupancy` adds them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import struct
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..cost import loop_weight
from .elf import sections_of
from .machine_code import REQUESTS, SIZE, Code, count

#: The numbers of the attributes EIATTR_… of `.nv.info`, with the names that nvdisasm prints.
_MAX_THREADS, _PARAM_CBANK, _REQNTID, _FRAME_SIZE, _MIN_STACK_SIZE = 0x05, 0x0A, 0x10, 0x11, 0x12
_KPARAM_INFO, _MAXREG_COUNT, _EXPLICIT_CLUSTER, _MAX_CLUSTER_RANK = 0x17, 0x1B, 0x3E, 0x3F
_REGCOUNT, _INDIRECT_BRANCH_TARGETS, _CTA_PER_CLUSTER, _NUM_BARRIERS = 0x2F, 0x34, 0x3D, 0x4C

_EM_CUDA = 190
_OSABI_CUDA_13 = 65
_STT_OBJECT, _STT_FUNC = 1, 2
_BINDINGS = {0: "local", 1: "global", 2: "weak"}
_STO_CUDA_ENTRY = 0x10
#: The visibility of a variable with `.attribute(.managed)` (STO_CUDA_MANAGED).
_MANAGED = 4
_RELOCATABLE = 1
_CALLS = (0x143, 0x144)

#: The architecture from which a linked cubin's shared sections begin with the bytes reserved for the system.
_RESERVES_SHARED = 90
_RESERVED_SHARED = 1024

OLDEST_SM = 75


class CubinError(ValueError):
    """The bytes are not a cubin that this module can read."""


@dataclass(frozen=True, slots=True)
class KernelCode:
    """One kernel of a cubin. Sizes are in bytes; registers, stack and local memory are per thread.

    `stack_bytes` is the stack of the kernel and of all functions that it calls. `frame_bytes` is its own frame, with
    local arrays and spilled registers. `shared_bytes` is static shared memory. `max_threads` and `required_threads` are
    the products of the numbers of `.maxntid` and `.reqntid`, and `cluster_blocks` that of the dimensions of the
    cluster; `None` if the kernel sets none. `code_bytes` includes padding, `instructions` does not. `by_depth[d]`
    counts the instructions inside exactly `d` loops, by class (`machine_ops.KINDS`), also those of called functions;
    `called[d]` counts those of them that only a call reaches. `code_sha256` is a hash of the code, relocations and
    constants of the kernel and of the functions that it calls, `data_sha256` of the initialised data of the module.
    `attributes[name]` are further properties that matter to a launch or to the linker. `variables[name]` describes a
    variable of the module: section, offset, size, binding and a hash of the contents.
    """

    name: str
    sm: int
    registers: int
    stack_bytes: int
    frame_bytes: int
    shared_bytes: int
    param_bytes: int
    barriers: int
    max_threads: int | None
    required_threads: int | None
    cluster_blocks: int | None
    code_bytes: int
    code_sha256: str
    data_sha256: str
    instructions: int
    by_depth: tuple[Mapping[str, int], ...]
    loops: int
    unknown_instructions: int
    cycles: float
    exposed: float
    cached: float
    looped: float
    quickest: float
    fetched: float
    calls: tuple[str, ...]
    called: tuple[Mapping[str, int], ...] = ()
    pieces: tuple[tuple[float, float, float], ...] = ()
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])

    @property
    def weighted_instructions(self) -> int:
        """Machine instructions, each weighted by `cost.loop_weight`."""
        return sum(sum(kinds.values()) * int(loop_weight(depth)) for depth, kinds in enumerate(self.by_depth))

    @property
    def weighted_requests(self) -> int:
        """Those of them that the load/store unit executes."""
        return self.weighted_of(*REQUESTS)

    def weighted_of(self, *kinds: str) -> int:
        """Those of them that are of some classes."""
        return sum(
            counted.get(kind, 0) * int(loop_weight(depth))
            for depth, counted in enumerate(self.by_depth)
            for kind in kinds
        )

    @property
    def weighted_in_loops(self) -> int:
        """The weights of the instructions in loops."""
        return self.weighted_instructions - sum(self.by_depth[0].values())

    @property
    def by_kind(self) -> dict[str, int]:
        """Instructions by class."""
        return _sum(self.by_depth)

    @property
    def in_loops(self) -> dict[str, int]:
        """Instructions inside at least one loop, by class."""
        return _sum(self.by_depth[1:])

    @property
    def local_accesses(self) -> int:
        """Loads from and stores to local memory (LDL, STL): spills, and accesses to local arrays."""
        kinds = self.by_kind
        return kinds.get("load_local", 0) + kinds.get("store_local", 0)

    def is_same_code(self, other: KernelCode) -> bool:
        """Whether both run the same instructions on the same constants with the same resources."""
        return self == dataclasses.replace(other, name=self.name)

    def to_json(self) -> dict[str, Any]:
        """Every field under its name, with `by_kind` and `in_loops`."""
        return {**dataclasses.asdict(self), "by_kind": self.by_kind, "in_loops": self.in_loops}


def read_cubin(cubin: bytes) -> dict[str, KernelCode]:
    """The kernels of a cubin by name, in the order of its symbols.

    Raises `CubinError`.

    >>> from .tools import assemble
    >>> done = assemble(".version 8.0\\n.target sm_90\\n.address_size 64\\n.entry k() { ret; }")
    >>> read_cubin(done.cubin)["k"].by_kind["exit"]
    1
    """
    with _damage_reported():
        image = Image(cubin)
        return {symbol.name: _kernel(image, symbol) for symbol in image.symbols if symbol.is_kernel}


def kernel_registers(cubin: bytes) -> dict[str, int]:
    """The number of registers of each kernel of a cubin by name. Reads no code. Raises `CubinError`."""
    image = read_image(cubin)
    return {symbol.name: image.value_of(_REGCOUNT, symbol.name) for symbol in image.symbols if symbol.is_kernel}


def read_image(cubin: bytes) -> Image:
    """The sections and symbols of a cubin. Raises `CubinError`."""
    with _damage_reported():
        return Image(cubin)


@contextlib.contextmanager
def _damage_reported() -> Generator[None]:
    """Raise `CubinError` instead of the errors that an invalid length or index in the file causes."""
    try:
        yield
    except CubinError:
        raise
    except (struct.error, ValueError, LookupError, AssertionError, MemoryError, OverflowError) as error:
        raise CubinError(f"no cubin, or a damaged one: {error}") from error


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str
    section: int
    offset: int
    size: int
    binding: str
    is_object: bool
    is_function: bool
    is_kernel: bool
    is_managed: bool


class Image:
    """The sections and symbols of a cubin."""

    def __init__(self, cubin: bytes) -> None:
        if cubin[:4] != b"\x7fELF":
            raise CubinError("no cubin, or a damaged one: it is no ELF file")
        sections = sections_of(cubin, 0, len(cubin))
        kind, machine = struct.unpack_from("<HH", cubin, 16)
        if machine != _EM_CUDA:
            raise CubinError(f"an ELF file for machine {machine}, not for CUDA")
        (flags,) = struct.unpack_from("<I", cubin, 48)
        self._cubin = cubin
        self.is_linked = kind != _RELOCATABLE
        # In files of CUDA 13, the architecture is one byte higher. The OS ABI shows that a file is of CUDA 13. The ABI
        # version does not: it is 2 if a function has parameters in registers.
        self.sm: int = flags >> 8 & 0xFF if cubin[7] == _OSABI_CUDA_13 else flags & 0xFF
        if self.sm < OLDEST_SM:
            raise CubinError(f"code for sm_{self.sm}: sm_{OLDEST_SM} and newer are read")
        self._sections = {section.name: section for section in sections}
        self.names = [section.name for section in sections]
        self.symbols = list(self._read_symbols())
        self._values = dict(self._read_values())

    @cached_property
    def data_sha256(self) -> str:
        """A hash of the initialised data of the module."""
        return _digest(self, (name for name in self.names if _is_module_data(name)))

    @cached_property
    def variables(self) -> dict[str, str]:
        """The variables of the module by name."""
        return dict(sorted(_variables(self)))

    def has(self, name: str) -> bool:
        """Whether the cubin has a section ``name``."""
        return name in self._sections

    def data(self, name: str) -> bytes:
        """The bytes of a section; empty if there is no such section, or if it has no bytes in the file."""
        section = self._sections.get(name)
        if section is None or not section.has_bytes:
            return b""
        return self._cubin[section.start : section.start + section.size]

    def size(self, name: str) -> int:
        """The size of a section, also of one without bytes in the file."""
        section = self._sections.get(name)
        return section.size if section is not None else 0

    def _read_symbols(self) -> Iterator[Symbol]:
        strings = self.data(".strtab")
        for name, info, other, section, offset, size in struct.iter_unpack("<IBBHQQ", self.data(".symtab")):
            text = strings[name : strings.index(b"\0", name)].decode("utf-8", "surrogateescape")
            kind, binding = info & 0xF, _BINDINGS.get(info >> 4, str(info >> 4))
            is_kernel = kind == _STT_FUNC and bool(other & _STO_CUDA_ENTRY)
            is_object = kind == _STT_OBJECT
            is_managed = is_object and other & 0xF == _MANAGED
            yield Symbol(text, section, offset, size, binding, is_object, kind == _STT_FUNC, is_kernel, is_managed)

    def _read_values(self) -> Iterator[tuple[tuple[int, str], int]]:
        """The attributes of `.nv.info` whose values are the index of a symbol and a number."""
        for number, payload in _attributes(self.data(".nv.info")):
            if len(payload) == 8:
                index, value = struct.unpack("<II", payload)
                if index < len(self.symbols):
                    yield (number, self.symbols[index].name), value

    def value_of(self, attribute: int, symbol: str) -> int:
        """The number that `.nv.info` has for an attribute of a symbol, or 0."""
        return self._values.get((attribute, symbol), 0)

    def relocations(self, section: str) -> Iterator[tuple[int, int, Symbol, int]]:
        """(offset, type, symbol, addend) of each relocation of a section."""
        for offset, info, addend in struct.iter_unpack("<QQq", self.data(f".rela{section}")):
            yield offset, info & 0xFFFFFFFF, self.symbols[info >> 32], addend
        for offset, info in struct.iter_unpack("<QQ", self.data(f".rel{section}")):
            yield offset, info & 0xFFFFFFFF, self.symbols[info >> 32], 0

    def code(self, function: str) -> Code:
        """The code of a function that has a section of its own."""
        data = self.data(f".text.{function}")
        calls: dict[int, str] = {}
        for offset, _, symbol, _ in self.relocations(f".text.{function}"):
            place = offset - offset % SIZE
            is_call = place + SIZE <= len(data) and (data[place] | (data[place + 1] & 1) << 8) in _CALLS
            if is_call and symbol.is_function and symbol.section < len(self.names):
                calls[place] = self.names[symbol.section].removeprefix(".text.")
        indirect = dict(_indirect_branches(_attributes(self.data(f".nv.info.{function}"))))
        return Code(data, indirect, {place: callee for place, callee in calls.items() if callee})


def _kernel(image: Image, symbol: Symbol) -> KernelCode:
    name = symbol.name
    functions = _reached(image, name)
    counts = count(functions, name, image.sm)
    own = dict(_attributes(image.data(f".nv.info.{name}")))
    shared = image.size(f".nv.shared.{name}")
    reserved = _RESERVED_SHARED if image.sm >= _RESERVES_SHARED and image.is_linked else 0
    return KernelCode(
        name=name,
        sm=image.sm,
        registers=image.value_of(_REGCOUNT, name),
        stack_bytes=image.value_of(_MIN_STACK_SIZE, name),
        frame_bytes=image.value_of(_FRAME_SIZE, name),
        shared_bytes=max(shared - reserved, 0),
        param_bytes=struct.unpack_from("<H", own[_PARAM_CBANK], 6)[0] if _PARAM_CBANK in own else 0,
        barriers=own[_NUM_BARRIERS][0] if _NUM_BARRIERS in own else 0,
        max_threads=_product(own.get(_MAX_THREADS)),
        required_threads=_product(own.get(_REQNTID)),
        cluster_blocks=_product(own.get(_CTA_PER_CLUSTER)),
        code_bytes=len(functions[name].data),
        code_sha256=_digest(image, [*(f".text.{f}" for f in sorted(functions)), *_constants(image, name)]),
        data_sha256=image.data_sha256,
        instructions=counts.instructions,
        by_depth=counts.by_depth,
        loops=counts.loops,
        unknown_instructions=counts.unknown,
        cycles=counts.cycles,
        exposed=counts.exposed,
        cached=counts.cached,
        looped=counts.looped,
        quickest=counts.quickest,
        fetched=counts.fetched,
        calls=tuple(sorted(set(functions) - {name})),
        called=counts.called,
        pieces=counts.pieces,
        attributes=dict(_kernel_attributes(image, symbol)),
        variables=image.variables,
    )


def _kernel_attributes(image: Image, symbol: Symbol) -> Iterator[tuple[str, str]]:
    """(name, value) of the properties that matter to a launch or to the linker and have no field of their own."""
    yield "binding", symbol.binding
    of_kernel = list(_attributes(image.data(f".nv.info.{symbol.name}")))
    for number, payload in of_kernel:
        if number in _SHAPES and len(payload) >= 12:
            yield _SHAPES[number], ", ".join(str(each) for each in struct.unpack_from("<III", payload))
        elif number == _EXPLICIT_CLUSTER:
            yield "explicit cluster (.explicitcluster)", "yes"
        elif number == _MAX_CLUSTER_RANK and len(payload) >= 4:
            yield "largest cluster (.maxclusterrank)", str(struct.unpack_from("<I", payload)[0])
        elif number == _MAXREG_COUNT:
            yield "limit of registers", str(struct.unpack_from("<H", payload)[0])
    layout = sorted(_parameter(payload) for number, payload in of_kernel if number == _KPARAM_INFO)
    if layout:
        yield "parameters", ", ".join(f"{size} bytes at {offset}" for _, offset, size in layout)


#: Attributes that are three extents, and their names in `KernelCode.attributes`.
_SHAPES = {
    _MAX_THREADS: "largest block (.maxntid)",
    _REQNTID: "block (.reqntid)",
    _CTA_PER_CLUSTER: "blocks of a cluster",
}


def _parameter(payload: bytes) -> tuple[int, int, int]:
    """(position, offset, size) of a parameter, from an index, two 16-bit numbers, and a word with the size from bit 18
    on."""
    _, position, offset, rest = struct.unpack_from("<IHHI", payload)
    return position, offset, rest >> 18


def _variables(image: Image) -> Iterator[tuple[str, str]]:
    """(name, description) of the variables of the module, with a hash of the initial contents."""
    for symbol in image.symbols:
        if not symbol.is_object or symbol.section >= len(image.names):
            continue
        section = image.names[symbol.section]
        if not section.startswith((".nv.global", ".nv.constant")):
            continue
        end = symbol.offset + symbol.size
        digest = hashlib.sha256(image.data(section)[symbol.offset : end])
        for offset, kind, target, addend in sorted(image.relocations(section), key=lambda r: r[:2]):
            if symbol.offset <= offset < end:
                text = f"{offset - symbol.offset} {kind} {target.name} {addend}\n"
                digest.update(text.encode("utf-8", "surrogateescape"))
        place = f"{symbol.size} bytes at {symbol.offset} of {section}, {symbol.binding}"
        place += ", managed" if symbol.is_managed else ""
        yield symbol.name, f"{place}, contents {digest.hexdigest()[:12]}"


def _reached(image: Image, kernel: str) -> dict[str, Code]:
    """By name: the code of a kernel and of all functions that it calls and that have their own sections."""
    functions: dict[str, Code] = {}
    waiting = [kernel]
    while waiting:
        name = waiting.pop()
        if name not in functions and image.has(f".text.{name}"):
            functions[name] = image.code(name)
            waiting += functions[name].calls.values()
    return functions


def _constants(image: Image, kernel: str) -> list[str]:
    """The sections of the constant banks of the kernel. Bank 0 holds the parameters, which a launch writes."""
    banks = (f".nv.constant{bank}.{kernel}" for bank in range(1, 18))
    return [section for section in banks if image.has(section)]


def _is_module_data(section: str) -> bool:
    return section.startswith(".nv.global.init") or section.removeprefix(".nv.constant").isdecimal()


def _digest(image: Image, sections: Iterable[str]) -> str:
    """A hash of the bytes and the relocations of sections. Symbols count by their names."""
    digest = hashlib.sha256()
    for section in sections:
        data = image.data(section)
        digest.update(len(data).to_bytes(8, "little") + data)
        for offset, kind, symbol, addend in sorted(image.relocations(section), key=lambda r: r[:2]):
            digest.update(f"{offset} {kind} {symbol.name} {addend}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, value) of each attribute in a `.nv.info` section."""
    at = 0
    while at + 4 <= len(data):
        form, number, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == 4:
            yield number, data[at : at + size]
            at += size
        else:
            yield number, size.to_bytes(2, "little")


def _indirect_branches(attributes: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, list[int]]]:
    """(offset of the branch, offsets of its targets). An entry is: offset, an unused word, number of targets,
    targets."""
    for number, payload in attributes:
        at = 0
        while number == _INDIRECT_BRANCH_TARGETS and at + 12 <= len(payload):
            place, _, targets = struct.unpack_from("<III", payload, at)
            at += 12
            yield place, list(struct.unpack_from(f"<{targets}I", payload, at))
            at += 4 * targets


def _product(dimensions: bytes | None) -> int | None:
    if dimensions is None or len(dimensions) < 12:
        return None
    x, y, z = struct.unpack_from("<III", dimensions)
    return x * y * z


def _sum(by_depth: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for kinds in by_depth:
        total.update(kinds)
    return dict(sorted(total.items()))
