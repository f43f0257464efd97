"""The emulator as a device of the runtime: arguments are NumPy arrays, and buffers end exactly where arrays do.

The buffer of an array is the memory of the array that owns it (the end of `base`). So two views of one array are in one
buffer, as two pointers into one allocation, and the buffer has no padding.

Requires: arrays that are writable. Guarantees: arrays have their new content when a launch returns; launches of one
module run one after the other, whatever threads make them.
Refuses: `LaunchError` and `EmulatorFault` as the emulator does.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ..arch import H200_MULTIPROCESSORS
from ..contract import Extent, KernelContract, TunedMachine
from ..emulator.launch import Emulator, EmulatorModule, LaunchResult
from ..emulator.memory import AddressSpace, MemoryObject
from ..emulator.options import Options
from ..ptx import Module
from .arguments import Packed, Pointer, split
from .choice import Choice, Flag, Occupancy, Request, Triple, choose
from .matching import parameters_of
from .statistics import Statistics

__all__ = ["EmulatedDevice", "EmulatedModule"]


class EmulatedDevice:
    """A device without a GPU. ``last_result`` is what the emulator says about the last launch.

    ``multiprocessors`` and ``warps`` (of a multiprocessor) give the warps per scheduler that `prefer_when` reads. All
    entries have the same occupancy. ``gpu``: launches choose as on this GPU, for which a contract may be tuned.
    """

    name = "emulator"

    def __init__(self, *, multiprocessors: int = H200_MULTIPROCESSORS, warps: int = 64, gpu: str = "") -> None:
        self.multiprocessors, self.warps = multiprocessors, warps
        self.machine = TunedMachine(gpu, multiprocessors)
        self.last_result: LaunchResult | None = None

    def load(self, module: Module, kernels: Sequence[KernelContract]) -> EmulatedModule:
        """Load a verified module whose kernels have these contracts."""
        return EmulatedModule(self, Emulator().load(module), kernels)


class EmulatedModule:
    """A module on the emulator, with the statistics of its kernels."""

    def __init__(self, device: EmulatedDevice, module: EmulatorModule, kernels: Sequence[KernelContract]) -> None:
        self.device, self.module = device, module
        #: Held by a launch: launches of a module use the same memory of the emulator.
        self.lock = threading.Lock()
        self._statistics = {kernel.name: Statistics(kernel) for kernel in kernels}
        #: For each entry the sizes of the parameters behind those of the kernel.
        self.extra_sizes: dict[str, list[int]] = {}
        for kernel in kernels:
            for version in kernel.versions:
                parameters = parameters_of(module.entry(version.entry)) or ()
                self.extra_sizes[version.entry] = [each.size for each in parameters[len(kernel.parameters) :]]

    def begin(self) -> EmulatedLaunch:
        """Begin a launch. Its `end` copies arrays back, and lets the next launch begin."""
        self.lock.acquire()
        return EmulatedLaunch(self)

    def stream_of(self, stream: Any) -> int:
        """There are no streams. Raises `TypeError` for one."""
        if stream is not None:
            raise TypeError("the emulator has no streams")
        return 0

    def statistics(self, kernel: KernelContract) -> Statistics:
        """How the launches of a kernel went."""
        return self._statistics[kernel.name].copy()

    def record(self, kernel: KernelContract, choice: Choice) -> None:
        """Count a launch."""
        self._statistics[kernel.name].record(choice)

    def set_attribute(self, kernel: KernelContract, name: str, value: int) -> None:
        """Functions of the emulator have no attributes: it allows as much shared memory as a GPU can have."""
        raise TypeError("functions of the emulator have no attributes")

    def attributes_changed(self, kernel: KernelContract) -> None:
        """Functions of the emulator have no attributes."""


class EmulatedLaunch:
    """The buffers of one launch, and a `Machine` for `choose`.

    ``_by_memory`` maps address and size of host memory to the array that owns it and its buffer.
    """

    limits: tuple[Triple, Triple] = ((2**31 - 1, 65535, 65535), (1024, 1024, 64))

    def __init__(self, of: EmulatedModule) -> None:
        self._of = of
        self._space: AddressSpace = of.module.loaded.space
        self._by_memory: dict[tuple[int, int], tuple[np.ndarray[Any, Any], MemoryObject]] = {}

    # --- arguments ---------------------------------------------------------------------------------------------

    def pointer(self, value: object) -> Pointer | None:
        """The address of an array in the emulator, and the extent of its buffer. None for other objects."""
        if not isinstance(value, np.ndarray):
            return None
        array = cast("np.ndarray[Any, Any]", value)
        if array.dtype.hasobject or not array.flags.writeable:
            raise TypeError("an array argument is writable and has no Python objects")
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = cast("np.ndarray[Any, Any]", owner.base)
        address = owner.ctypes.data
        found = self._by_memory.get((address, owner.nbytes))
        if found is None:
            self._check_alone(address, address + owner.nbytes)
            buffer = self._space.allocate("buffer", "global", owner.nbytes)
            buffer.fill_from(ctypes.string_at(address, owner.nbytes))
            buffer.written = None
            found = self._by_memory[address, owner.nbytes] = owner, buffer
        base = found[1].base
        offset = array.ctypes.data - address if array.nbytes else 0
        return Pointer(base + offset, Extent(base, base + found[1].nbytes))

    def _check_alone(self, first: int, last: int) -> None:
        """Raise `TypeError` for host memory that is in part that of another buffer. The two would not alias."""
        for address, nbytes in self._by_memory:
            if first < address + nbytes and address < last:
                raise TypeError("an array shares memory with another one, and neither owns it")

    def end(self) -> None:
        """Copy all buffers to their arrays, and free them."""
        try:
            for owner, buffer in self._by_memory.values():
                ctypes.memmove(owner.ctypes.data, buffer.bytes[: owner.nbytes].tobytes(), owner.nbytes)
                self._space.free(buffer)
            self._by_memory.clear()
        finally:
            self._of.lock.release()

    # --- launching ---------------------------------------------------------------------------------------------

    def choose(self, kernel: KernelContract, request: Request) -> Choice:
        """The version that a launch would take."""
        return choose(kernel, request, self)

    def launch(self, kernel: KernelContract, request: Request) -> None:
        """Choose a version and run it."""
        choice = choose(kernel, request, self)
        self._of.record(kernel, choice)
        entry = self._of.module.entry(kernel.versions[choice.version].entry)
        values = [*request.arguments, *choice.extra]
        options = Options(checks=True, counts=True)
        result = self._of.module.launch_bytes(entry, choice.grid, choice.block, values, choice.shared, options)
        self._of.device.last_result = result

    def launch_packed(self, kernel: KernelContract, packed: Packed, grid: Triple, block: Triple, flags: Flag) -> None:
        """A launch without options."""
        arguments = split(kernel.parameters, packed.block)
        self.launch(kernel, Request(arguments, grid, block, extents=packed.extents, flags=flags))

    # --- the machine -------------------------------------------------------------------------------------------

    def allocation(self, pointer: int) -> Extent | None:
        """The buffer or the variable that an address is in."""
        found = self._space.at(pointer)
        return None if found is None else Extent(found.base, found.base + found.nbytes)

    def is_mapped_once(self, pointer: int) -> bool:
        """The emulator maps no memory twice."""
        return True

    def is_capturing(self, stream: int) -> bool:
        """There are no streams."""
        return False

    def is_partitioned(self, stream: int) -> bool:
        """There are no partitions."""
        return False

    def extra_sizes(self, entry: str) -> Sequence[int] | None:
        """The sizes of the parameters behind those of the kernel."""
        return self._of.extra_sizes.get(entry)

    def occupancy(self, entry: str, threads: int, shared: int) -> Occupancy:
        """As many blocks as have warps."""
        device = self._of.device
        return Occupancy(max(device.warps // -(-threads // 32), 1), device.multiprocessors)
