"""A GPU as a device of the runtime, through cuda-python. The C library launches, or Python where it is not built.

Requires: the extra `gpu`, a driver for CUDA 13.0 or newer. Guarantees: kernels are launched in the current context; if
a thread has none, the primary context of the first device becomes current. Nothing waits for the GPU. Arrays must live
until the kernel has run, and the caller orders the work on streams, as for every launch.
Refuses: `MachineMissing` without a usable GPU; `DeviceFailed` for every error of the driver; `TypeError` for a stream
or an array that is not known.
"""

from __future__ import annotations

import ctypes
import importlib
import struct
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ..contract import Contract, Extent, KernelContract, TunedMachine
from ..contract.bytecode import encode
from ..harness.cuda import require_driver
from ..harness.machine import DeviceFailed
from .arguments import Packed, Pointer, split
from .choice import Choice, Flag, Request, Triple, choose
from .cuda_arrays import pointer_of
from .cuda_machine import CudaMachine
from .library import BoundKernel, CConfig, Library, LibraryError, find_library, packed_attributes, packed_config
from .statistics import Statistics

__all__ = ["CudaDevice", "CudaModule"]

#: The status of a launch without a context: CUDA_ERROR_INVALID_CONTEXT.
_NO_CONTEXT = 201

#: `ptxmotion_extent`.
_EXTENT = struct.Struct("<QQ")


class CudaDevice:
    """The GPU of the current context. ``library`` is the C library, by default the one that was built with the package.

    ``in_python``: launch in Python even if there is one.
    """

    name = "cuda"

    def __init__(self, library: Library | None = None, *, in_python: bool = False) -> None:
        self.driver = require_driver()
        self.library = None if in_python else library or _library()
        self.enter()
        # A call through ctypes takes less time than one through the bindings.
        self.functions = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the driver; its results without the status. Raises `DeviceFailed`."""
        status, *values = getattr(self.driver, name)(*arguments)
        if status != self.driver.CUresult.CUDA_SUCCESS:
            raise DeviceFailed(f"{name}: {status.name}")
        return values[0] if len(values) == 1 else tuple(values) or None

    def enter(self) -> bool:
        """Make the primary context of the first device current if this thread has no context, and say whether it had
        none."""
        if int(self.call("cuCtxGetCurrent")):
            return False
        self.call("cuCtxSetCurrent", self.call("cuDevicePrimaryCtxRetain", self.call("cuDeviceGet", 0)))
        return True

    def current(self) -> Any:
        """The current device, which is the first one if the thread had no context."""
        self.enter()
        return self.call("cuCtxGetDevice")

    @property
    def sm(self) -> int:
        """The architecture of the current device: 90 for sm_90."""
        kinds, device = self.driver.CUdevice_attribute, self.current()
        names = ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR")
        major, minor = (int(self.call("cuDeviceGetAttribute", getattr(kinds, name), device)) for name in names)
        return 10 * major + minor

    @property
    def machine(self) -> TunedMachine:
        """The kind of the current device, for contracts that are tuned."""
        device, kinds = self.current(), self.driver.CUdevice_attribute
        gpu = bytes(self.call("cuDeviceGetName", 256, device)).split(b"\0")[0].decode()
        kind = kinds.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        return TunedMachine(gpu, int(self.call("cuDeviceGetAttribute", kind, device)))

    def load(self, cubin: bytes) -> CudaModule:
        """Load machine code."""
        self.enter()
        return CudaModule(self, cubin)


def _library() -> Library | None:
    try:
        return find_library()
    except LibraryError as error:
        warnings.warn(f"{error}; launches are made in Python. To build the library anew: pip install", stacklevel=3)
        return None


class CudaModule:
    """A loaded cubin. `bind` has to be called once, before launches.

    ``_handles`` maps an entry to its CUkernel as an integer. ``_bound`` maps a kernel to that of the C library; without
    it, ``_machines`` and ``_statistics`` have what Python needs.
    """

    def __init__(self, device: CudaDevice, cubin: bytes) -> None:
        self._device = device
        # The object owns the CUlibrary.
        self._code = importlib.import_module("cuda.core").ObjectCode.from_cubin(cubin)
        self._library = int(self._code.handle)
        handle = device.driver.CUlibrary(self._library)
        count = int(device.call("cuLibraryGetKernelCount", handle))
        kernels: list[Any] = device.call("cuLibraryEnumerateKernels", count, handle) if count else []
        self._handles = {device.call("cuKernelGetName", each).decode(): int(each) for each in kernels}
        self._bound: dict[str, BoundKernel] = {}
        self._machines: dict[str, CudaMachine] = {}
        self._statistics: dict[str, Statistics] = {}

    @property
    def entries(self) -> list[str]:
        """The names of the kernels."""
        return list(self._handles)

    def sizes(self, entry: str) -> list[tuple[int, int]]:
        """Offset and size of each parameter of a kernel."""
        driver, found = self._device.driver, list[tuple[int, int]]()
        while True:
            status, offset, size = driver.cuKernelGetParamInfo(driver.CUkernel(self._handles[entry]), len(found))
            if status != driver.CUresult.CUDA_SUCCESS:
                return found
            found.append((int(offset), int(size)))

    def bind(self, kernels: Sequence[KernelContract]) -> None:
        """Prepare launches of these kernels. Raises `LibraryError`."""
        library = self._device.library
        if library is not None:
            contract = Contract("0" * 64, {kernel.name: kernel for kernel in kernels})
            bound = library.bind(encode(contract), self._library)
            for kernel in kernels:
                found = bound.kernel(kernel.name)
                assert found is not None
                self._bound[kernel.name] = found
            return
        sizes = {entry: self.sizes(entry) for entry in self._handles}
        for kernel in kernels:
            self._machines[kernel.name] = CudaMachine(self._device.functions, self._handles, kernel, sizes)
            self._statistics[kernel.name] = Statistics(kernel)

    def begin(self) -> CudaModule:
        """Begin a launch, which needs no state of its own here."""
        return self

    def end(self) -> None:
        """End a launch: nothing has to be copied back."""

    def stream_of(self, stream: Any) -> int:
        """The handle of a stream: of None (the default stream), an integer, or a stream of another library. Raises
        `TypeError` for other objects."""
        if stream is None:
            return 0
        if isinstance(stream, int):
            return stream
        if hasattr(stream, "__cuda_stream__"):
            return int(stream.__cuda_stream__()[1])
        for name in ("cuda_stream", "ptr", "handle"):  # PyTorch, CuPy, Numba
            found = getattr(stream, name, None)
            if found is not None:
                return int(getattr(found, "value", found) or 0)
        raise TypeError(f"a {type(stream).__name__} is not a stream")

    def pointer(self, value: object) -> Pointer | None:
        """The address of an array, and its extent if its owner is known. None for other objects."""
        return pointer_of(value)

    def choose(self, kernel: KernelContract, request: Request) -> Choice:
        """The version that a launch would take."""
        self._device.enter()  # the driver answers no question about memory in a thread without a context
        bound = self._bound.get(kernel.name)
        return choose(kernel, request, self._machines[kernel.name]) if bound is None else bound.choose(request)

    def launch_packed(self, kernel: KernelContract, packed: Packed, grid: Triple, block: Triple, flags: Flag) -> None:
        """A launch without options. Raises `DeviceFailed`."""
        bound = self._bound.get(kernel.name)
        if bound is None:
            arguments = split(kernel.parameters, packed.block)
            self.launch(kernel, Request(arguments, grid, block, extents=packed.extents, flags=flags))
            return
        config, extents = packed_config(grid, block, 0, 0), _packed_extents(kernel, packed.extents)
        status = bound.launch(config, packed.block, extents, flags)
        if status and self._may_launch_again(status):
            status = bound.launch(config, packed.block, extents, flags)
        self._check(kernel, status)

    def launch(self, kernel: KernelContract, request: Request) -> None:
        """Choose a version and launch it. Raises `DeviceFailed`."""
        bound = self._bound.get(kernel.name)

        def launched() -> int:
            return self._launch_in_python(kernel, request) if bound is None else _launch_in_c(bound, kernel, request)

        status = launched()
        if status and self._may_launch_again(status):
            status = launched()
        self._check(kernel, status)

    def _may_launch_again(self, status: int) -> bool:
        """Whether a launch failed because this thread had no context. It has one afterwards."""
        return status == _NO_CONTEXT and self._device.enter()

    def _check(self, kernel: KernelContract, status: int) -> None:
        if status:
            raise DeviceFailed(f"{kernel.name}: {self._device.driver.CUresult(status).name}")

    def _launch_in_python(self, kernel: KernelContract, request: Request) -> int:
        choice = choose(kernel, request, self._machines[kernel.name])
        entry = kernel.versions[choice.version].entry
        shape = choice.grid, choice.block, choice.shared
        status = self._launch_entry(entry, shape, request, (*request.arguments, *choice.extra))
        is_refused = status != 0 and entry != kernel.name
        self._statistics[kernel.name].record(choice, is_refused=is_refused)
        if is_refused:
            shape = request.grid, request.block, request.shared
            status = self._launch_entry(kernel.name, shape, request, request.arguments)
        return status

    def _launch_entry(
        self, entry: str, shape: tuple[Triple, Triple, int], request: Request, arguments: Sequence[bytes]
    ) -> int:
        buffers = [ctypes.create_string_buffer(each, len(each)) for each in arguments]
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*map(ctypes.addressof, buffers))
        attributes = ctypes.create_string_buffer(packed_attributes(request))
        config = CConfig.from_buffer_copy(
            packed_config(*shape, request.stream, ctypes.addressof(attributes), len(request.attributes))
        )
        function = ctypes.c_void_p(self._handles[entry])
        return self._device.functions.cuLaunchKernelEx(ctypes.byref(config), function, pointers, None)

    def statistics(self, kernel: KernelContract) -> Statistics:
        """How the launches of a kernel went."""
        bound = self._bound.get(kernel.name)
        if bound is None:
            return self._statistics[kernel.name].copy()
        result = Statistics(kernel)
        for index, (counts, version) in enumerate(zip(result.versions, kernel.versions, strict=True)):
            counts.reasons.update(bound.reasons(index, len(kernel.versions)))
            for condition in range(len(version.requires)):
                false, unknown = bound.condition_counts(index, condition)
                if false or unknown:
                    counts.failed[condition] = [false, unknown]
        return result

    def set_attribute(self, kernel: KernelContract, name: str, value: int) -> None:
        """Set an attribute of the function of a kernel on the current device. Raises `DeviceFailed`."""
        driver, device = self._device.driver, self._device.current()
        kind = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        self._device.call("cuKernelSetAttribute", kind, value, driver.CUkernel(self._handles[kernel.name]), device)
        self.attributes_changed(kernel)

    def attributes_changed(self, kernel: KernelContract) -> None:
        """Attributes of the kernel were set; the versions get them at the next launch."""
        if kernel.name in self._bound:
            self._bound[kernel.name].attributes_changed()
        else:
            self._machines[kernel.name].attributes_changed()


def _launch_in_c(bound: BoundKernel, kernel: KernelContract, request: Request) -> int:
    last = kernel.parameters[-1] if kernel.parameters else None
    block = bytearray(last.offset + last.size if last is not None else 0)
    for parameter, value in zip(kernel.parameters, request.arguments, strict=True):
        block[parameter.offset : parameter.offset + parameter.size] = value
    attributes = ctypes.create_string_buffer(packed_attributes(request))
    shape = request.grid, request.block, request.shared
    config = packed_config(*shape, request.stream, ctypes.addressof(attributes), len(request.attributes))
    return bound.launch(config, bytes(block), _packed_extents(kernel, request.extents), request.flags)


def _packed_extents(kernel: KernelContract, extents: Mapping[int, Extent]) -> bytes | None:
    """The extents as an array of `ptxmotion_extent`, one for each parameter; None if there is none."""
    if not extents:
        return None
    unknown = Extent(0, 0)
    found = [extents.get(index, unknown) for index in range(len(kernel.parameters))]
    return b"".join(_EXTENT.pack(*each) for each in found)
