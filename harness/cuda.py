"""A GPU as a backend, through cuda-python. It has the same interface as the backend of the emulator.

cuda.core supplies the device, the stream, modules, kernels, events and graphs. Memory, copies and launches use the
driver itself (cuda-bindings, and ctypes for prepared calls), for three reasons. A buffer must be a part of another
buffer, at an address that does not change. `cuda.core.launch` accepts no structures as arguments, packs the arguments
again for each launch, and computes the occupancy again for each cooperative launch; a prepared call does this once.
ptxas assembles every module, so that all arms are assembled alike: `cuda.core.Program` would use other compilers.

The interface (`dsl.backend`) is ``name``, ``load``, ``allocate``, ``free``, ``write``, ``read``, ``fill``, ``launch``,
``synchronize`` and ``copy``. For measurements there are also views, cubins, occupancy, cooperative launches, events and
graphs.

Requires: the extra `gpu`, a driver for CUDA 13.0 or newer, a GPU of sm_75 or newer.
Guarantees: everything runs on one stream of the backend, and `read` waits for this stream only. The ptxas of this
project assembles each module, never the driver. The size of every argument is checked against the parameter of the
kernel. No setting of the GPU is changed.
Refuses: `MachineMissing` without a usable GPU; `DeviceFailed` for every error of the driver, with its name;
`TypeError` for arguments that do not match the parameters.
Reference: CUDA Driver API 13.0; cuda.core 1.0.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import re
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..contract import TunedMachine
from ..toolchain.cubin_cache import assemble_kept
from ..toolchain.driver_version import OLDEST_DRIVER, cuda_version, version_text
from .arm_code import arch_on
from .machine import DeviceFailed, MachineMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CudaBackend",
    "CudaBuffer",
    "CudaKernel",
    "CudaModule",
    "call_driver",
    "for_release",
    "open_backend",
    "probe",
    "require_driver",
]

_INSTALL = "install it with: python -m pip install 'ptxmotion[gpu]'"
_DRIVER = "install an NVIDIA driver, 580 or newer"

#: Sizes of allocations are rounded up to this number of bytes, so that freed memory can be reused.
_GRANULE = 1 << 20

#: A kernel that reads these registers waits for the whole grid, and needs a cooperative launch.
_GRID_WIDE = re.compile(r"%envreg[12]\b")


def open_backend() -> CudaBackend:
    """Open the first visible GPU. Raises `MachineMissing`."""
    return CudaBackend()


def probe() -> tuple[int, str]:
    """The number of usable GPUs; if it is 0, also the reason."""
    try:
        driver = require_driver()
        return int(call_driver(driver, "cuDeviceGetCount")), ""
    except MachineMissing as error:
        return 0, error.reason


def require_driver() -> Any:
    """The initialized bindings of the driver. Raises `MachineMissing`."""
    try:
        driver = importlib.import_module("cuda.bindings.driver")
        has_core = importlib.util.find_spec("cuda.core") is not None
    except ImportError as error:
        raise MachineMissing(f"the Python package cuda-bindings cannot be loaded ({error})", _INSTALL) from error
    if not has_core:
        raise MachineMissing("the Python package cuda-core is not installed", _INSTALL)
    try:
        (status,) = driver.cuInit(0)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise MachineMissing(
                f"no usable GPU: cuInit returned {status.name}", "install an NVIDIA driver, 580 or newer"
            )
        version, count = call_driver(driver, "cuDriverGetVersion"), call_driver(driver, "cuDeviceGetCount")
    except RuntimeError as error:  # libcuda is missing
        raise MachineMissing(f"no NVIDIA driver ({error})", _DRIVER) from error
    if cuda_version(version) < OLDEST_DRIVER:
        raise MachineMissing(
            f"the driver is too old: it supports CUDA {version_text(version)}, and 13.0 is required",
            "driver 580 or newer",
        )
    if not count:
        raise MachineMissing("the driver sees no device", "is CUDA_VISIBLE_DEVICES empty?")
    return driver


@contextlib.contextmanager
def _device_errors() -> Generator[None]:
    """Errors of cuda.core as `DeviceFailed`."""
    try:
        yield
    except Exception as error:
        if not _is_of_core(error):
            raise
        raise DeviceFailed(str(error)) from error


def _is_of_core(error: Exception) -> bool:
    """Whether cuda.core has raised this error. Its class for errors of the driver has no public name."""
    return type(error).__name__ == "CUDAError" or isinstance(error, RuntimeError)


def call_driver(driver: Any, name: str, *arguments: Any) -> Any:
    """Call a function of the driver; its results without the status. Raises `DeviceFailed`."""
    status, *values = getattr(driver, name)(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise DeviceFailed(f"{name}: {status.name}")
    return values[0] if len(values) == 1 else tuple(values) or None


@contextlib.contextmanager
def for_release(driver: Any, context: Any) -> Generator[None]:
    """Make ``context`` current while something is freed, at any time and in any thread: also in one that records a
    stream, where waiting and freeing would otherwise be errors."""
    call_driver(driver, "cuCtxPushCurrent", context)
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    mode = call_driver(driver, "cuThreadExchangeStreamCaptureMode", relaxed)
    try:
        yield
    finally:
        call_driver(driver, "cuThreadExchangeStreamCaptureMode", mode)
        call_driver(driver, "cuCtxPopCurrent")


@dataclass(frozen=True, slots=True)
class CudaBuffer:
    """Device memory of ``nbytes`` bytes. ``size`` is the size of the allocation, or 0 for a view."""

    pointer: int
    nbytes: int
    size: int = 0


class CudaKernel:
    """A kernel: its handle (a ``CUfunction``), the size of each parameter in bytes, and its `cuda.core.Kernel`, which
    keeps the code loaded."""

    __slots__ = ("core", "handle", "is_grid_wide", "name", "sizes")

    def __init__(self, name: str, handle: Any, sizes: tuple[int, ...], is_grid_wide: bool, core: Any) -> None:
        self.name, self.handle, self.sizes, self.is_grid_wide, self.core = name, handle, sizes, is_grid_wide, core


class CudaModule:
    """A loaded cubin. ``code`` is its `cuda.core.ObjectCode`."""

    def __init__(self, backend: CudaBackend, code: Any, is_grid_wide: bool) -> None:
        self._backend, self._code, self._is_grid_wide = backend, code, is_grid_wide

    def kernel(self, name: str, /) -> CudaKernel:
        """The kernel of that name. Raises `DeviceFailed` if there is none."""
        self._backend.enter()
        with _device_errors():
            found = self._code.get_kernel(name)
            sizes = tuple(int(info.size) for info in found.arguments_info)
        # The driver would load the code at the first launch, which may be in a graph that is being recorded.
        handle = self._backend.call("cuKernelGetFunction", found.handle)
        self._backend.call("cuFuncLoad", handle)
        return self._backend.keep(CudaKernel(name, handle, sizes, self._is_grid_wide, found))


@dataclass
class PackedArguments:
    """The values of the arguments of a launch, and the array of pointers to them that the driver reads."""

    values: list[NDArray[np.uint8]]
    pointers: NDArray[np.uint64]

    @property
    def address(self) -> int:
        """The address of the array of pointers."""
        return int(self.pointers.ctypes.data) if len(self.values) else 0


class _LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig` of cuda.h."""

    _fields_ = (
        *((f"{of}_{axis}", ctypes.c_uint) for of in ("grid", "block") for axis in "xyz"),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class CudaBackend:
    """One GPU, one context, one stream. One thread at a time may use it; its device becomes current in each. Its memory
    is freed when nothing refers to it any more.

    ``stream`` is a `cuda.core.Stream`. ``_pool`` maps a size to the pointers of freed allocations of this size,
    ``_cubins`` maps PTX to its cubin, and ``_allowed`` maps the handle of a kernel to the bytes of dynamic shared
    memory that it may use. ``_kernels`` keeps every kernel loaded as long as the backend: a graph may contain it.
    """

    name = "cuda"

    def __init__(self, device: int = 0) -> None:
        self.driver = require_driver()
        self.device = self.call("cuDeviceGet", device)
        core = importlib.import_module("cuda.core")
        #: ``is_current`` is set in the threads in which the device has become current.
        self._thread = threading.local()
        self._core, self._ordinal = core, device
        with _device_errors():
            self.core_device = core.Device(device)
        self.enter()
        with _device_errors():
            self.stream = self.create_stream()
        self._object_code = core.ObjectCode
        self._timed = core.EventOptions(timing_enabled=True)
        major, minor = self.attribute("COMPUTE_CAPABILITY_MAJOR"), self.attribute("COMPUTE_CAPABILITY_MINOR")
        self.sm = 10 * major + minor
        if self.sm < 75:
            raise MachineMissing(f"the GPU has sm_{self.sm}, and sm_75 or newer is required")
        self._pool: dict[int, list[int]] = {}
        #: The pointers of all allocations, also of those in the pool.
        self._allocated: set[int] = set()
        context = self.call("cuCtxGetCurrent")
        weakref.finalize(self, _free_all, self.driver, context, self._allocated).atexit = False
        self._cubins: dict[str, bytes] = {}
        self._allowed: dict[int, int] = {}
        self._kernels: list[CudaKernel] = []
        # The library that the bindings have loaded. A call through the bindings costs about 2 µs more.
        self._library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")

    def enter(self) -> None:
        """Make the device current in this thread. In a new thread, no context is."""
        if not hasattr(self._thread, "is_current"):
            with _device_errors():
                self._core.Device(self._ordinal).set_current()  # cuda.core has one object for each thread
            self._thread.is_current = True

    def create_stream(self) -> Any:
        """A new stream that does not wait for the default stream."""
        self.enter()
        return self.core_device.create_stream(options={"nonblocking": True})

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the driver; its results without the status. Raises `DeviceFailed`."""
        return call_driver(self.driver, name, *arguments)

    def attribute(self, name: str) -> int:
        """An attribute of the device, for example `L2_CACHE_SIZE`."""
        kinds = self.driver.CUdevice_attribute
        return int(self.call("cuDeviceGetAttribute", getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), self.device))

    @property
    def machine(self) -> TunedMachine:
        """The kind of this machine, for contracts that are tuned."""
        name = bytes(self.call("cuDeviceGetName", 256, self.device)).split(b"\0")[0].decode()
        return TunedMachine(name, self.attribute("MULTIPROCESSOR_COUNT"))

    def describe(self) -> dict[str, Any]:
        """The GPU, its driver and sizes, and other processes on it."""
        from .gpu_info import describe

        return describe(self)

    # --- modules -----------------------------------------------------------------------------------------------

    def load(self, ptx: str, /) -> CudaModule:
        """Assemble and load a module. Raises `PtxasError`, `DeviceFailed`."""
        cubin = self._cubins.get(ptx)
        if cubin is None:
            cubin = self._cubins[ptx] = assemble_kept(ptx, arch_on(ptx, self.sm)).cubin
        return self.load_cubin(cubin, is_grid_wide=_GRID_WIDE.search(ptx) is not None)

    def load_cubin(self, cubin: bytes, /, *, is_grid_wide: bool = False) -> CudaModule:
        """Load machine code. ``is_grid_wide``: its kernels need cooperative launches."""
        self.enter()
        with _device_errors():
            code = self._object_code.from_cubin(cubin)
            _ = code.handle  # loads it
        return CudaModule(self, code, is_grid_wide)

    def keep(self, kernel: CudaKernel) -> CudaKernel:
        """Keep a kernel loaded as long as the backend."""
        self._kernels.append(kernel)
        return kernel

    def occupancy(self, kernel: CudaKernel, threads: int, shared: int = 0) -> int:
        """The number of blocks of a kernel that one multiprocessor holds, according to the driver."""
        self.enter()
        with _device_errors():
            return int(kernel.core.occupancy.max_active_blocks_per_multiprocessor(threads, shared))

    # --- memory ------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int, /) -> CudaBuffer:
        """Device memory with undefined content; from the pool if memory of this size was freed before. Raises
        `DeviceFailed`."""
        self.enter()
        size = -(-max(nbytes, 1) // _GRANULE) * _GRANULE
        free = self._pool.get(size)
        if free:
            return CudaBuffer(free.pop(), nbytes, size)
        status, pointer = self.driver.cuMemAlloc(size)
        if status == self.driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY and self._pool:
            self.trim()
            status, pointer = self.driver.cuMemAlloc(size)
        if status != self.driver.CUresult.CUDA_SUCCESS:
            raise DeviceFailed(f"cuMemAlloc of {size} bytes: {status.name}")
        self._allocated.add(int(pointer))
        return CudaBuffer(int(pointer), nbytes, size)

    def free(self, buffer: CudaBuffer, /) -> None:
        """Return memory to the pool. Work that is already on the stream may still use it."""
        if not buffer.size:
            raise TypeError("a view of a buffer cannot be freed")
        self._pool.setdefault(buffer.size, []).append(buffer.pointer)

    def trim(self) -> None:
        """Return the pool to the driver."""
        self.synchronize()
        # Meanwhile the end of an object may return more memory to the pool.
        pool, self._pool = self._pool, {}
        for pointers in pool.values():
            for pointer in pointers:
                self.call("cuMemFree", pointer)
                self._allocated.discard(pointer)

    def view(self, buffer: CudaBuffer, offset: int, nbytes: int, /) -> CudaBuffer:
        """A part of a buffer."""
        _check_range(buffer, offset, nbytes)
        return CudaBuffer(buffer.pointer + offset, nbytes)

    def write(self, buffer: CudaBuffer, array: NDArray[Any], /, offset: int = 0) -> None:
        """Copy an array to the device."""
        self.enter()
        raw = np.ascontiguousarray(array)
        _check_range(buffer, offset, raw.nbytes)
        if raw.nbytes:
            self.call("cuMemcpyHtoDAsync", buffer.pointer + offset, raw.ctypes.data, raw.nbytes, self.stream.handle)
            self.synchronize()  # `raw` may not exist any more when the caller continues

    def read(self, buffer: CudaBuffer, dtype: Any, count: int, /, offset: int = 0) -> NDArray[Any]:
        """Copy elements to the host, after all earlier work on the stream."""
        self.enter()
        array = np.empty(count, dtype)
        _check_range(buffer, offset, array.nbytes)
        if array.nbytes:
            self.call("cuMemcpyDtoHAsync", array.ctypes.data, buffer.pointer + offset, array.nbytes, self.stream.handle)
        self.synchronize()
        return array

    def fill(self, buffer: CudaBuffer, byte: int, /) -> None:
        """Set every byte."""
        self.enter()
        if buffer.nbytes:
            self.call("cuMemsetD8Async", buffer.pointer, byte & 0xFF, buffer.nbytes, self.stream.handle)

    def copy(
        self, target: CudaBuffer, source: CudaBuffer, nbytes: int, target_offset: int, source_offset: int, /
    ) -> None:
        """Copy between buffers."""
        self.enter()
        _check_range(target, target_offset, nbytes)
        _check_range(source, source_offset, nbytes)
        if nbytes:
            to, since = target.pointer + target_offset, source.pointer + source_offset
            self.call("cuMemcpyDtoDAsync", to, since, nbytes, self.stream.handle)

    # --- launches ----------------------------------------------------------------------------------------------

    def launch(self, kernel: CudaKernel, grid: Any, block: Any, shared: int, args: Sequence[Any], /) -> None:
        """Launch a kernel on the stream; cooperatively if it needs that."""
        self.launch_packed(kernel, _three(grid), _three(block), shared, self.pack(kernel, args))

    def pack(self, kernel: CudaKernel, args: Sequence[Any]) -> PackedArguments:
        """The arguments in the form that the driver reads. Raises `TypeError` if they do not match the parameters."""
        if len(args) != len(kernel.sizes):
            raise TypeError(f"{kernel.name} takes {len(kernel.sizes)} arguments, not {len(args)}")
        values: list[NDArray[np.uint8]] = []
        for index, (each, size) in enumerate(zip(args, kernel.sizes, strict=True)):
            raw = _argument_bytes(each)
            if len(raw) != size:
                raise TypeError(f"{kernel.name}: parameter {index} has {size} bytes, and the argument {len(raw)}")
            values.append(np.frombuffer(raw, np.uint8).copy())
        return PackedArguments(values, np.array([value.ctypes.data for value in values], np.uint64))

    def allow_shared(self, kernel: CudaKernel, shared: int) -> None:
        """Allow a kernel to use more than 48 KiB of dynamic shared memory. The limit never decreases."""
        handle = int(kernel.handle)
        if shared > self._allowed.get(handle, 48 << 10):
            kind = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.call("cuFuncSetAttribute", kernel.handle, kind, shared)
            self._allowed[handle] = shared

    def cooperative(self, kernel: CudaKernel, /) -> CudaKernel:
        """The kernel for cooperative launches. A launch with too many blocks for the GPU raises `DeviceFailed`."""
        return CudaKernel(kernel.name, kernel.handle, kernel.sizes, True, kernel.core)

    def launch_packed(
        self,
        kernel: CudaKernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        packed: PackedArguments,
    ) -> None:
        """Launch with packed arguments."""
        self.enter()
        self.allow_shared(kernel, shared)
        stream = self.stream.handle
        if kernel.is_grid_wide:
            self.call("cuLaunchCooperativeKernel", kernel.handle, *grid, *block, shared, stream, packed.address)
        else:
            self.call("cuLaunchKernel", kernel.handle, *grid, *block, shared, stream, packed.address, 0)

    # --- prepared calls -----------------------------------------------------------------------------

    def launch_call(
        self,
        kernel: CudaKernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        packed: PackedArguments,
    ) -> Callable[[], None]:
        """A prepared `launch_packed`: a call of the result costs little more than a call from C."""
        self.allow_shared(kernel, shared)
        handle, stream = ctypes.c_void_p(int(kernel.handle)), ctypes.c_void_p(int(self.stream.handle))
        address = ctypes.c_void_p(packed.address)
        if kernel.is_grid_wide:
            sizes = [ctypes.c_uint(each) for each in (*grid, *block, shared)]
            return self._ready("cuLaunchCooperativeKernel", packed, handle, *sizes, stream, address)
        # One structure instead of seven numbers: passing the numbers takes 0.5 µs more for each call.
        config = _LaunchConfig(*grid, *block, shared, stream, None, 0)
        where = ctypes.byref(config)
        return self._ready("cuLaunchKernelEx", (packed, config), where, handle, address, ctypes.c_void_p(0))

    def fill_call(self, buffer: CudaBuffer, byte: int, /) -> Callable[[], None]:
        """A prepared `fill`."""
        if not buffer.nbytes:
            return _nothing
        value, count = ctypes.c_ubyte(byte & 0xFF), ctypes.c_size_t(buffer.nbytes)
        stream = ctypes.c_void_p(int(self.stream.handle))
        return self._ready("cuMemsetD8Async", buffer, ctypes.c_uint64(buffer.pointer), value, count, stream)

    def copy_call(
        self, target: CudaBuffer, source: CudaBuffer, nbytes: int, target_offset: int, source_offset: int, /
    ) -> Callable[[], None]:
        """A prepared `copy`."""
        _check_range(target, target_offset, nbytes)
        _check_range(source, source_offset, nbytes)
        if not nbytes:
            return _nothing
        places = [ctypes.c_uint64(each) for each in (target.pointer + target_offset, source.pointer + source_offset)]
        count, stream = ctypes.c_size_t(nbytes), ctypes.c_void_p(int(self.stream.handle))
        return self._ready("cuMemcpyDtoDAsync_v2", (target, source), *places, count, stream)

    def _ready(self, name: str, held: Any, *arguments: Any) -> Callable[[], None]:
        """A function that calls the driver with these arguments. ``held`` must live as long as the function."""
        function = getattr(self._library, name)
        kinds = self.driver.CUresult

        def call(_held: Any = held) -> None:
            if status := function(*arguments):
                raise DeviceFailed(f"{name}: {kinds(status).name}")

        return call

    def synchronize(self) -> None:
        """Wait for the stream. Raises `DeviceFailed` if a kernel has failed."""
        self.enter()
        with _device_errors():
            self.stream.sync()

    # --- events and graphs -------------------------------------------------------------------------------------

    def event(self) -> Any:
        """A new event with timing."""
        self.enter()
        with _device_errors():
            return self.core_device.create_event(options=self._timed)

    def record(self, event: Any) -> None:
        """Put an event on the stream. Raises `DeviceFailed`."""
        try:  # `_device_errors` would take 0.3 µs, between timed operations
            self.stream.record(event)
        except Exception as error:
            raise DeviceFailed(str(error)) from error

    def seconds_between(self, first: Any, second: Any) -> float:
        """Seconds between two completed events."""
        with _device_errors():
            return float(second - first) * 1e-3

    def seconds_of(self, work: Callable[[], object]) -> float:
        """Seconds of what ``work`` puts on the stream, between two events. Waits for it."""
        first, last = self.event(), self.event()
        self.record(first)
        work()
        self.record(last)
        self.synchronize()
        return self.seconds_between(first, last)

    def seconds_of_graph(self, graph: Any) -> float:
        """Seconds of one launch of a graph, between two events. Waits for it."""
        return self.seconds_of(lambda: self.launch_graph(graph))

    def graph(self, body: Callable[[], None]) -> Any:
        """A CUDA graph (`cuda.core.graph.Graph`) of the work that ``body`` puts on the stream."""
        self.enter()
        with _device_errors():
            builder = self.stream.create_graph_builder()
            builder.begin_building("thread_local")
        try:
            body()
        except BaseException:
            with contextlib.suppress(Exception):  # the first error matters, and not that the graph is incomplete
                builder.close()
            raise
        with _device_errors():
            made = builder.end_building().complete()
            builder.close()
        return made

    def launch_graph(self, graph: Any) -> None:
        """Launch a graph on the stream. Raises `DeviceFailed`."""
        self.enter()
        try:
            graph.launch(self.stream)
        except Exception as error:
            raise DeviceFailed(str(error)) from error

    def destroy_graph(self, graph: Any) -> None:
        """Destroy a graph that is not running."""
        graph.close()


def _free_all(driver: Any, context: Any, pointers: set[int]) -> None:
    """Free the memory of a backend. The driver first finishes the work that uses it. The thread may be any one."""
    with for_release(driver, context):
        for pointer in pointers:
            call_driver(driver, "cuMemFree", pointer)


def _nothing() -> None:
    """The prepared call for zero bytes."""


def _argument_bytes(value: Any) -> bytes:
    if isinstance(value, CudaBuffer):
        return value.pointer.to_bytes(8, "little")
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, bytes):
        return value
    raise TypeError(f"an argument is a buffer, a NumPy scalar or bytes, not {type(value).__name__}")


def _three(size: Any) -> tuple[int, int, int]:
    parts = (int(size),) if isinstance(size, int) else tuple(int(each) for each in size)
    x, y, z = (*parts, 1, 1, 1)[:3]
    return x, y, z


def _check_range(buffer: CudaBuffer, offset: int, nbytes: int) -> None:
    if offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
        raise ValueError(f"bytes {offset} to {offset + nbytes} of a buffer of {buffer.nbytes}")
