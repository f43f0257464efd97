"""A driver without a GPU: its functions for the C library, and the same facts as a `Machine` for `runtime.choice`.

`built_library` compiles the C library with the C compiler of the system, once for each run of the tests.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ptxmotion.contract import Extent, TunedMachine
from ptxmotion.runtime.choice import Occupancy, Triple
from ptxmotion.runtime.library import CConfig, CDriver, Library

ROOT = Path(__file__).resolve().parents[2]
SUCCESS, INVALID, NO_CONTEXT, OUT_OF_RESOURCES = 0, 1, 201, 701

WORD, SIZE, POINTER, ADDRESS = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint64


@functools.cache
def built_library(*flags: str) -> Library:
    """The C library, compiled with these further flags. Skips the test if there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = Path(tempfile.mkdtemp(prefix="ptxmotion-launch-"))
    target = folder / "launch.so"
    source = ROOT / "runtime" / "ptxmotion_launch.c"
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    command = [compiler, "-std=gnu11", "-O2", *warnings, *flags, "-fPIC", "-shared", source, "-o", target, "-ldl"]
    done = subprocess.run([*command, "-lpthread"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    library = Library(target)
    shutil.rmtree(folder)
    return library


@dataclass
class Entry:
    """An entry of the module: offset and size of each parameter, attributes, blocks on a multiprocessor.

    ``attributes`` maps the number of a function attribute to its value.
    """

    parameters: Sequence[tuple[int, int]]
    blocks: int = 8
    extra_sizes: Sequence[int] = ()
    attributes: dict[int, int] = field(default_factory=dict[int, int])

    def attribute(self, number: int) -> int:
        return self.attributes.get(number, {0: 1024, 8: 49152}.get(number, 0))


@dataclass
class FakeDriver:
    """The facts, and what was launched.

    ``allocations`` are those that the driver knows, ``mapped_twice`` those of them with a second address. ``launched``
    has the entry, the configuration, and the values of the arguments of each launch. ``refuses`` maps an entry to the
    error that its launches return.
    """

    entries: dict[str, Entry]
    allocations: Sequence[Extent] = ()
    mapped_twice: Sequence[Extent] = ()
    #: What `cuPointerGetAttributes` says about allocations that are not of cuMemAlloc: an attribute and its value.
    pointer_attributes: dict[Extent, dict[int, int]] = field(default_factory=dict[Extent, dict[int, int]])
    #: The numbers of allocations. A new allocation in the place of another one has a new number.
    buffer_ids: dict[Extent, int] = field(default_factory=dict[Extent, int])
    #: How many attributes each call of `cuPointerGetAttributes` asked for.
    asked: list[int] = field(default_factory=list[int])
    multiprocessors: int = 4
    gpu: str = "NVIDIA Fake"
    capturing: frozenset[int] = frozenset()
    partitioned: frozenset[int] = frozenset()
    refuses: dict[str, int] = field(default_factory=dict[str, int])
    #: Whether a context is current in the thread.
    has_context: bool = True
    launched: list[tuple[str, tuple[int, ...], list[bytes]]] = field(
        default_factory=list[tuple[str, tuple[int, ...], list[bytes]]]
    )
    calls: dict[str, int] = field(default_factory=dict[str, int])

    #: The module that was "loaded".
    MODULE = 0x77

    def __post_init__(self) -> None:
        self._handles = {index + 1: name for index, name in enumerate(self.entries)}
        self._kept: list[Any] = []

    @property
    def machine(self) -> TunedMachine:
        """The kind of this machine."""
        return TunedMachine(self.gpu, self.multiprocessors)

    # --- as a machine ----------------------------------------------------------------------------------------

    limits: tuple[Triple, Triple] = ((2**31 - 1, 65535, 65535), (1024, 1024, 64))

    def allocation(self, pointer: int) -> Extent | None:
        return next((each for each in self.allocations if each.begin <= pointer < each.end), None)

    def is_mapped_once(self, pointer: int) -> bool:
        return self.allocation(pointer) is not None and self.allocation(pointer) not in self.mapped_twice

    def is_capturing(self, stream: int) -> bool:
        return stream in self.capturing

    def is_partitioned(self, stream: int) -> bool:
        return stream in self.partitioned

    def extra_sizes(self, entry: str) -> Sequence[int] | None:
        return self.entries[entry].extra_sizes if entry in self.entries else None

    def occupancy(self, entry: str, threads: int, shared: int) -> Occupancy:
        found = self.entries[entry]
        fits = threads <= found.attribute(0) and shared <= max(found.attribute(8), self._copied(entry))
        return Occupancy(found.blocks if fits else 0, self.multiprocessors, bool(found.attribute(11)))

    def _copied(self, entry: str) -> int:
        """The limit of shared memory after that of the kernel, which is the last entry, was copied."""
        return list(self.entries.values())[-1].attribute(8) if entry in self.entries else 0

    # --- as a table of functions -----------------------------------------------------------------------------

    def table(self) -> CDriver:
        """The functions for the C library. They live as long as this object."""
        table = CDriver()
        for name, types in _TYPES.items():
            method: Callable[..., int] = getattr(self, f"_{name}")
            kept = ctypes.CFUNCTYPE(WORD, *types)(self._counted(name, method))
            self._kept.append(kept)
            setattr(table, name, ctypes.cast(kept, POINTER).value)
        return table

    def _counted(self, name: str, method: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls[name] = self.calls.get(name, 0) + 1
            return method(*arguments)

        return call

    def _mem_get_address_range(self, begin: Any, size: Any, pointer: int) -> int:
        found = self.allocation(pointer)
        if found is None:
            return INVALID
        begin[0], size[0] = found.begin, found.end - found.begin
        return SUCCESS

    def _pointer_get_attributes(self, count: int, attributes: Any, values: Any, pointer: int) -> int:
        found = self.allocation(pointer) or Extent(0, 0)
        facts = {10: int(self.is_mapped_once(pointer)), 11: found.begin, 12: found.end - found.begin}
        facts[7] = self.buffer_ids.setdefault(found, len(self.buffer_ids) + 1) if found.end else 0
        facts.update(self.pointer_attributes.get(found, {}))
        self.asked.append(count)
        for index in range(count):
            ctypes.cast(values[index], ctypes.POINTER(ctypes.c_uint64))[0] = facts.get(attributes[index], 0)
        return SUCCESS

    def _stream_is_capturing(self, stream: int | None, status: Any) -> int:
        status[0] = int((stream or 0) in self.capturing)
        return SUCCESS

    def _launch_kernel_ex(self, config: Any, function: int | None, arguments: Any, extra: int | None) -> int:
        if not self.has_context:
            return NO_CONTEXT
        name = self._handles.get(function or 0)
        if name is None or name in self.refuses:
            return self.refuses.get(name or "", 400)
        found = config[0]
        sizes = [*self.entries[name].parameters]
        values = [ctypes.string_at(arguments[index], size) for index, (_, size) in enumerate(sizes)]
        self.launched.append((name, (*found.grid, *found.block, found.shared, found.stream or 0), values))
        return SUCCESS

    def _module_get_function(self, function: Any, module: int, name: bytes) -> int:
        handle = next((each for each, entry in self._handles.items() if entry == name.decode()), 0)
        if module != self.MODULE or not handle:
            return 500
        function[0] = handle
        return SUCCESS

    def _device_get_name(self, name: Any, size: int, device: int) -> int:
        ctypes.memmove(name, self.gpu.encode()[: size - 1] + b"\0", min(len(self.gpu.encode()), size - 1) + 1)
        return SUCCESS

    _library_get_kernel = _module_get_function

    def _kernel_get_function(self, function: Any, kernel: int) -> int:
        if not self.has_context:
            return NO_CONTEXT
        function[0] = kernel
        return SUCCESS

    def _kernel_get_library(self, library: Any, kernel: int) -> int:
        library[0] = self.MODULE
        return SUCCESS if kernel in self._handles else INVALID

    def _func_get_attribute(self, value: Any, attribute: int, function: int) -> int:
        value[0] = self.entries[self._handles[function]].attribute(attribute)
        return SUCCESS

    def _func_set_attribute(self, function: int, attribute: int, value: int) -> int:
        self.entries[self._handles[function]].attributes[attribute] = value
        return SUCCESS

    def _func_get_param_info(self, function: int, index: int, offset: Any, size: Any) -> int:
        parameters = self.entries[self._handles[function]].parameters
        if index >= len(parameters):
            return INVALID
        offset[0], size[0] = parameters[index]
        return SUCCESS

    def _occupancy(self, blocks: Any, function: int, threads: int, shared: int) -> int:
        blocks[0] = self.occupancy(self._handles[function], threads, shared).blocks
        return SUCCESS

    def _ctx_get_current(self, context: Any) -> int:
        context[0] = 0x55 if self.has_context else None
        return SUCCESS

    def _ctx_get_device(self, device: Any) -> int:
        if not self.has_context:
            return NO_CONTEXT
        device[0] = 0
        return SUCCESS

    def _device_get_attribute(self, value: Any, attribute: int, device: int) -> int:
        (width, height, depth), (x, y, z) = self.limits
        value[0] = {16: self.multiprocessors, 2: x, 3: y, 4: z, 5: width, 6: height, 7: depth}[attribute]
        return SUCCESS

    def _device_get_count(self, count: Any) -> int:
        count[0] = 1
        return SUCCESS

    def _stream_get_green_context(self, stream: int | None, context: Any) -> int:
        context[0] = 0x66 if (stream or 0) in self.partitioned else None
        return SUCCESS


_TO_POINTER = ctypes.POINTER(POINTER)
_TYPES: dict[str, tuple[Any, ...]] = {
    "mem_get_address_range": (ctypes.POINTER(ADDRESS), ctypes.POINTER(SIZE), ADDRESS),
    "pointer_get_attributes": (ctypes.c_uint, ctypes.POINTER(WORD), _TO_POINTER, ADDRESS),
    "stream_is_capturing": (POINTER, ctypes.POINTER(WORD)),
    "launch_kernel_ex": (ctypes.POINTER(CConfig), POINTER, _TO_POINTER, POINTER),
    "module_get_function": (_TO_POINTER, POINTER, ctypes.c_char_p),
    "library_get_kernel": (_TO_POINTER, POINTER, ctypes.c_char_p),
    "kernel_get_function": (_TO_POINTER, POINTER),
    "kernel_get_library": (_TO_POINTER, POINTER),
    "func_get_attribute": (ctypes.POINTER(WORD), WORD, POINTER),
    "func_set_attribute": (POINTER, WORD, WORD),
    "func_get_param_info": (POINTER, SIZE, ctypes.POINTER(SIZE), ctypes.POINTER(SIZE)),
    "occupancy": (ctypes.POINTER(WORD), POINTER, WORD, SIZE),
    "ctx_get_current": (_TO_POINTER,),
    "ctx_get_device": (ctypes.POINTER(WORD),),
    "device_get_attribute": (ctypes.POINTER(WORD), WORD, WORD),
    "device_get_count": (ctypes.POINTER(WORD),),
    "device_get_name": (POINTER, WORD, WORD),
    "stream_get_green_context": (POINTER, _TO_POINTER),
}
