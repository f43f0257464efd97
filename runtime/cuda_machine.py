"""What `choice.choose` reads of a GPU: the driver's side of `ptxmotion_launch.c` in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from ..contract import Extent, KernelContract
from .choice import Occupancy, Triple

__all__ = ["CudaMachine"]

#: Function attributes that the program may set, and that versions get, too. The C library copies the same ones.
_COPIED = (8, 9, 11, 12, 13, 14, 15)
_MAX_THREADS, _MAX_DYNAMIC_SHARED, _CLUSTER_WIDTH = 0, 8, 11
_MULTIPROCESSORS = 16
#: Pointer attributes: legacy IPC, managed, pool, kinds of handles, ordinal of the device.
_POINTER_ATTRIBUTES = (10, 8, 17, 14, 9)


class CudaMachine:
    """The current device, and one kernel with its versions. ``handles`` maps an entry to its CUkernel as an integer.

    ``_occupancies`` maps an entry, threads of a block and bytes of dynamic shared memory to the occupancy.
    """

    def __init__(
        self,
        functions: Any,
        handles: Mapping[str, int],
        kernel: KernelContract,
        sizes: Mapping[str, Sequence[tuple[int, int]]],
    ) -> None:
        self._functions, self._handles, self._kernel = functions, handles, kernel
        self._extra = {version.entry: _extra(kernel, sizes.get(version.entry)) for version in kernel.versions}
        if self._extra[kernel.name] is None:  # the kernel is not what the contract says, so no version is
            self._extra = dict.fromkeys(self._extra, None)
        self._occupancies: dict[tuple[str, int, int], Occupancy] = {}

    def attributes_changed(self) -> None:
        """Copy attributes to the versions again."""
        self._occupancies.clear()

    @property
    def limits(self) -> tuple[Triple, Triple]:
        """The largest grid and the largest block."""
        block, grid = ([self._device_attribute(first + axis) for axis in range(3)] for first in (2, 5))
        return (grid[0], grid[1], grid[2]), (block[0], block[1], block[2])

    def _device(self) -> int:
        device = ctypes.c_int()
        self._functions.cuCtxGetDevice(ctypes.byref(device))
        return device.value

    def _device_attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._functions.cuDeviceGetAttribute(ctypes.byref(value), number, self._device())
        return value.value

    def allocation(self, pointer: int) -> Extent | None:
        """The allocation that an address is in."""
        begin, size = ctypes.c_uint64(), ctypes.c_size_t()
        address = ctypes.c_uint64(pointer)
        if self._functions.cuMemGetAddressRange_v2(ctypes.byref(begin), ctypes.byref(size), address):
            return None
        return Extent(begin.value, begin.value + size.value)

    def is_mapped_once(self, pointer: int) -> bool:
        """Whether this is memory of cuMemAlloc, managed memory, or of a pool without exports, on the current device."""
        count = len(_POINTER_ATTRIBUTES)
        values = (ctypes.c_uint64 * count)()
        places = (ctypes.c_void_p * count)(*(ctypes.addressof(values) + 8 * index for index in range(count)))
        numbers = (ctypes.c_int * count)(*_POINTER_ATTRIBUTES)
        if self._functions.cuPointerGetAttributes(count, numbers, places, ctypes.c_uint64(pointer)):
            return False
        legacy, managed, pool, kinds, ordinal = values
        if managed & 0xFF:
            return True
        return bool(legacy & 0xFF or (pool and not kinds & 0xFFFFFFFF)) and ordinal & 0xFFFFFFFF == self._device()

    def is_capturing(self, stream: int) -> bool:
        """Whether the stream is being captured, or the driver does not say."""
        status = ctypes.c_int()
        return bool(self._functions.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status)) or status.value)

    def is_partitioned(self, stream: int) -> bool:
        """Whether the stream belongs to a green context, or the driver does not say."""
        context = ctypes.c_void_p()
        query = getattr(self._functions, "cuStreamGetGreenCtx", None)
        return bool(query and (query(ctypes.c_void_p(stream), ctypes.byref(context)) or context.value))

    def extra_sizes(self, entry: str) -> Sequence[int] | None:
        """The sizes of the parameters behind those of the kernel."""
        return self._extra.get(entry)

    def occupancy(self, entry: str, threads: int, shared: int) -> Occupancy:
        """The occupancy after the attributes of the kernel were copied to the version. It is not kept where the entry
        has no function, as in a thread without a context."""
        key = entry, threads, shared
        found = self._occupancies.get(key)
        if found is None:
            function = self._function(entry)
            if function is None:
                return Occupancy(0, self._device_attribute(_MULTIPROCESSORS))
            found = self._occupancies[key] = self._find_occupancy(entry, function, threads, shared)
        return found

    def _find_occupancy(self, entry: str, function: ctypes.c_void_p, threads: int, shared: int) -> Occupancy:
        multiprocessors = self._device_attribute(_MULTIPROCESSORS)
        if not self._copy_attributes(entry, function):
            return Occupancy(0, multiprocessors)
        most_threads = self._attribute(function, _MAX_THREADS)
        most_shared = self._attribute(function, _MAX_DYNAMIC_SHARED)
        clusters = bool(self._attribute(function, _CLUSTER_WIDTH))
        blocks = ctypes.c_int()
        too_large = most_threads is None or most_shared is None or threads > most_threads or shared > most_shared
        if too_large or self._functions.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(blocks), function, threads, ctypes.c_size_t(shared)
        ):
            return Occupancy(0, multiprocessors, clusters)
        return Occupancy(blocks.value, multiprocessors, clusters)

    def _function(self, entry: str) -> ctypes.c_void_p | None:
        """The function of a kernel in the current context."""
        function = ctypes.c_void_p()
        handle = ctypes.c_void_p(self._handles.get(entry, 0))
        return None if self._functions.cuKernelGetFunction(ctypes.byref(function), handle) else function

    def _attribute(self, function: ctypes.c_void_p, number: int) -> int | None:
        value = ctypes.c_int()
        return None if self._functions.cuFuncGetAttribute(ctypes.byref(value), number, function) else value.value

    def _copy_attributes(self, entry: str, function: ctypes.c_void_p) -> bool:
        original = self._function(self._kernel.name)
        if original is None:
            return False
        for number in _COPIED if entry != self._kernel.name else ():
            wanted = self._attribute(original, number)
            found = self._attribute(function, number)
            if wanted is None or wanted == found:
                continue
            if found is None or self._functions.cuFuncSetAttribute(function, number, wanted):
                return False
        return True


def _extra(kernel: KernelContract, sizes: Sequence[tuple[int, int]] | None) -> list[int] | None:
    """The sizes behind the parameters of the kernel; None if those in front are others. Their places do not matter: the
    driver gets a pointer to each argument, and ptxas aligns parameters in the constant bank, where the first one need
    not be at a multiple of 32 bytes."""
    own = [each.size for each in kernel.parameters]
    if sizes is None or [size for _, size in sizes[: len(own)]] != own:
        return None
    extra = [size for _, size in sizes[len(own) :]]
    return extra if all(size in (1, 2, 4, 8) for size in extra) else None
