"""Launches under a contract on a GPU: kinds of memory, streams, graphs, attributes, threads, and arrays of frameworks.

Everything runs with the C library, and in Python. The kernel is that of `contract_modules`: it adds windows of x to y,
and says by a mark which version ran.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from contract_modules import HEADER, SUM_PTX, sum_contract
from fake_driver import built_library
from ptxmotion.contract import Contract, Disjoint, KernelContract, Parameter, Range, Version
from ptxmotion.contract.document import digest_of
from ptxmotion.runtime import CudaDevice, Flag, Kernel, Pointer, load
from ptxmotion.runtime.cuda_arrays import pointer_of

pytestmark = pytest.mark.gpu

FIRST, SECOND, ITSELF = 1, 2, 3
THREADS, N = 32, 4
X_BYTES = 4 * (THREADS + N - 1)


@pytest.fixture(params=["c", "python"])
def device(request: pytest.FixtureRequest) -> CudaDevice:
    return CudaDevice(built_library()) if request.param == "c" else CudaDevice(in_python=True)


class Memory:
    """Memory of one kind, freed at the end."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self._frees: list[Callable[[], object]] = []

    def alloc(self, size: int) -> int:
        pointer = int(self.device.call("cuMemAlloc", size))
        self._frees.append(lambda: self.device.call("cuMemFree", pointer))
        return pointer

    def pool(self, size: int) -> int:
        pointer = int(self.device.call("cuMemAllocAsync", size, 0))
        self.device.call("cuCtxSynchronize")
        self._frees.append(lambda: self.device.call("cuMemFreeAsync", pointer, 0))
        return pointer

    def managed(self, size: int) -> int:
        flags = self.device.driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
        pointer = int(self.device.call("cuMemAllocManaged", size, flags))
        self._frees.append(lambda: self.device.call("cuMemFree", pointer))
        return pointer

    def pinned(self, size: int) -> int:
        pointer = int(self.device.call("cuMemHostAlloc", size, 0))
        self._frees.append(lambda: self.device.call("cuMemFreeHost", pointer))
        return pointer

    def mapped_twice(self) -> tuple[int, int, int]:
        """Two addresses of one physical allocation, and its size."""
        driver, call = self.device.driver, self.device.call
        prop = driver.CUmemAllocationProp()
        prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        prop.location.id = int(call("cuCtxGetDevice"))
        minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        size = int(call("cuMemGetAllocationGranularity", prop, minimum))
        physical = call("cuMemCreate", size, prop, 0)
        access = driver.CUmemAccessDesc()
        access.location = prop.location
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        found: list[int] = []
        for _ in range(2):
            pointer = call("cuMemAddressReserve", size, 0, 0, 0)
            call("cuMemMap", pointer, size, 0, physical, 0)
            call("cuMemSetAccess", pointer, size, [access], 1)
            found.append(int(pointer))
            self._frees.append(lambda pointer=pointer: call("cuMemAddressFree", pointer, size))
            self._frees.append(lambda pointer=pointer: call("cuMemUnmap", pointer, size))
        self._frees.insert(0, lambda: call("cuMemRelease", physical))
        return found[0], found[1], size

    def write(self, pointer: int, array: np.ndarray[Any, Any]) -> int:
        self.device.call("cuMemcpyHtoD", pointer, array.ctypes.data, array.nbytes)
        return pointer

    def read(self, pointer: int, count: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
        self.device.call("cuCtxSynchronize")
        array = np.empty(count, dtype)
        self.device.call("cuMemcpyDtoH", array.ctypes.data, pointer, array.nbytes)
        return array

    def free(self) -> None:
        self.device.call("cuCtxSynchronize")
        for free in reversed(self._frees):
            free()


@pytest.fixture
def memory(device: CudaDevice) -> Iterator[Memory]:
    found = Memory(device)
    yield found
    found.free()


class Case:
    """Buffers of the kernel, and what y has after one launch of it."""

    def __init__(self, memory: Memory, y: int, x: int, elements: int = THREADS + N - 1) -> None:
        self.memory, self.y, self.x, self.mark = memory, y, x, memory.alloc(4)
        self.host_x = np.arange(elements, dtype=np.float32)
        memory.write(x, self.host_x)
        memory.write(y, np.ones(THREADS, np.float32))
        memory.write(self.mark, np.zeros(1, np.uint32))

    @property
    def arguments(self) -> tuple[int, int, int, int]:
        return self.y, self.x, N, self.mark

    def check(self, mark: int, launches: int = 1) -> None:
        """Which version ran, and that the result is right."""
        assert int(self.memory.read(self.mark, 1, np.uint32)[0]) == mark
        windows = sum((self.host_x[each : each + THREADS] for each in range(N)), np.zeros(THREADS, np.float32))
        assert (self.memory.read(self.y, THREADS) == 1 + launches * windows).all()


def sum_of(device: CudaDevice, **options: Any) -> Kernel:
    return load(SUM_PTX, sum_contract(), device=device, strict=True, **options)["sum"]


@pytest.mark.parametrize("kind", ["alloc", "pool", "managed"])
def test_a_version_runs_if_its_buffer_has_exactly_the_bytes_that_it_needs(
    device: CudaDevice, memory: Memory, kind: str
) -> None:
    """The version that needs all of x runs if x has exactly these bytes, and not if one element is missing."""
    allocate: Callable[[int], int] = getattr(memory, kind)
    of = sum_of(device)
    y = allocate(4 * THREADS)
    case = Case(memory, y, allocate(X_BYTES))
    of.launch(1, THREADS, *case.arguments)
    case.check(FIRST)
    short = Pointer(memory.alloc(X_BYTES - 4))
    assert of.decide(1, THREADS, y, short, N, case.mark).entry == "sum_2"


def test_pinned_memory_takes_the_kernel(device: CudaDevice, memory: Memory) -> None:
    """Host memory may be registered at two addresses, so its extent is unknown; the caller may promise otherwise."""
    case = Case(memory, memory.alloc(4 * THREADS), memory.pinned(X_BYTES))
    sum_of(device).launch(1, THREADS, *case.arguments)
    case.check(ITSELF)
    sum_of(device, mapped_once=True).launch(1, THREADS, *case.arguments)
    case.check(FIRST, launches=2)


def test_memory_that_is_mapped_twice_takes_the_kernel(device: CudaDevice, memory: Memory) -> None:
    """Two addresses of the same bytes: the ranges are disjoint as addresses."""
    one, other, size = memory.mapped_twice()
    mark, of = memory.alloc(4), sum_of(device)
    assert abs(one - other) >= size
    memory.write(one, np.ones(size // 4, np.float32))
    decision = of.decide(1, THREADS, one, other, N, mark)
    assert decision.entry == "sum"
    assert all(why.startswith("a condition is undecidable") for _, why in decision.refused)
    of.launch(1, THREADS, one, other, N, mark)
    assert int(memory.read(mark, 1, np.uint32)[0]) == ITSELF


@pytest.mark.parametrize("pointer", [0, 8, 0x1234_5678_9000, 2**64 - 8])
def test_wild_pointers_take_the_kernel(device: CudaDevice, memory: Memory, pointer: int) -> None:
    mark, y = memory.alloc(4), memory.alloc(4 * THREADS)
    assert sum_of(device).decide(1, THREADS, y, pointer, N, mark).entry == "sum"


def test_host_memory_without_registration_takes_the_kernel(device: CudaDevice, memory: Memory) -> None:
    host = ctypes.create_string_buffer(1 << 20)
    mark, y = memory.alloc(4), memory.alloc(4 * THREADS)
    assert sum_of(device).decide(1, THREADS, y, ctypes.addressof(host), N, mark).entry == "sum"


def test_launches_on_streams_of_all_kinds_take_a_version(device: CudaDevice, memory: Memory) -> None:
    core: Any = importlib.import_module("cuda.core")
    case = Case(memory, memory.alloc(4 * THREADS), memory.alloc(X_BYTES))
    of = sum_of(device)
    gpu = core.Device(int(device.call("cuCtxGetDevice")))
    gpu.set_current()
    stream = gpu.create_stream()
    # 1 and 2: the default stream, and that of the thread.
    for launches, each in enumerate((None, 0, 1, 2, stream), 1):
        of.launch(1, THREADS, *case.arguments, stream=each)
        case.check(FIRST, launches)
    with pytest.raises(TypeError, match="a str is not a stream"):
        of.launch(1, THREADS, *case.arguments, stream="0")


@pytest.mark.parametrize("allow", [False, True])
def test_a_captured_launch_takes_a_version_only_if_that_is_allowed(
    device: CudaDevice, memory: Memory, allow: bool
) -> None:
    """A captured launch is the kernel itself, unless the caller promises that nodes are not updated."""
    call, driver = device.call, device.driver
    case = Case(memory, memory.alloc(4 * THREADS), memory.alloc(X_BYTES))
    of = sum_of(device, allow_capture=allow)
    stream = call("cuStreamCreate", driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
    call("cuStreamBeginCapture", stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    of.launch(1, THREADS, *case.arguments, stream=int(stream))
    graph = call("cuStreamEndCapture", stream)
    made = call("cuGraphInstantiate", graph, 0)
    for _ in range(3):
        call("cuGraphLaunch", made, stream)
    call("cuStreamSynchronize", stream)
    case.check(FIRST if allow else ITSELF, launches=3)
    assert ("the stream is captured" in str(of.statistics)) != allow
    of.launch(1, THREADS, *case.arguments, stream=int(stream))
    case.check(FIRST, launches=4)
    call("cuGraphExecDestroy", made)
    call("cuGraphDestroy", graph)
    call("cuStreamDestroy", stream)


def test_cooperative_launches_and_clusters(device: CudaDevice, memory: Memory) -> None:
    case = Case(memory, memory.alloc(4 * THREADS), memory.alloc(X_BYTES))
    of = sum_of(device)
    of.launch(1, THREADS, *case.arguments, cooperative=True)
    case.check(FIRST)
    if device.sm >= 90:
        of.launch(2, THREADS // 2, *case.arguments, cluster=2)
        case.check(FIRST, launches=2)


def test_an_error_of_a_launch_is_reported(device: CudaDevice, memory: Memory) -> None:
    case = Case(memory, memory.alloc(4 * THREADS), memory.alloc(X_BYTES))
    of = sum_of(device)
    with pytest.raises(Exception, match="sum: CUDA_ERROR_INVALID_VALUE"):
        of.launch(1, 2048, *case.arguments)
    of.launch(1, THREADS, *case.arguments)
    case.check(FIRST)


def shared_entry(name: str, mark: int, static: int = 0) -> str:
    """Writes a mark; uses dynamic shared memory, and static shared memory of some size."""
    return f"""
.visible .entry {name}(.param .u64 where, .param .u64 other)
{{
    .shared .align 4 .b8 own_{name}[{static + 4}];
    .reg .b64 %a;
    .reg .b32 %r<2>;
    mov.u32 %r0, own_{name};
    mov.u32 %r1, dynamic;
    st.volatile.shared.u32 [%r0], {mark};
    st.volatile.shared.u32 [%r1], {mark};
    ld.param.u64 %a, [where];
    st.global.u32 [%a], {mark};
    ret;
}}
"""


def shared_kernel(device: CudaDevice, static: int) -> tuple[Kernel, Any]:
    """A kernel whose version has more static shared memory, and the device module."""
    ptx = HEADER + ".extern .shared .align 4 .b8 dynamic[];\n"
    ptx += shared_entry("mark_1", FIRST, static) + shared_entry("mark", ITSELF)
    parameters = (Parameter("where", 0, 8, "u64", pointer=True), Parameter("other", 8, 8, "u64", pointer=True))
    versions = (Version("mark_1", (Disjoint(Range(0), Range(1)),)), Version("mark"))
    contract = Contract(digest_of(ptx), {"mark": KernelContract("mark", parameters, versions)})
    module = load(ptx, contract, device=device, strict=True)
    return module["mark"], module


def test_the_limit_of_dynamic_shared_memory_is_copied(device: CudaDevice, memory: Memory) -> None:
    of, _ = shared_kernel(device, 0)
    mark, other = memory.alloc(4), memory.alloc(4)
    with pytest.raises(Exception, match="CUDA_ERROR_INVALID_VALUE"):
        of.launch(1, 32, mark, other, shared=60_000)
    of.set_attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES", 60_000)
    of.launch(1, 32, mark, other, shared=60_000)
    assert int(memory.read(mark, 1, np.uint32)[0]) == FIRST


def test_a_version_of_which_fewer_blocks_run_at_the_same_time(device: CudaDevice, memory: Memory) -> None:
    """Blocks may wait for each other, if all run at the same time. 40,000 bytes: five blocks fit instead of 32."""
    of, _ = shared_kernel(device, 40_000)
    mark, other = memory.alloc(4), memory.alloc(4)
    kind = device.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    machine = int(device.call("cuDeviceGetAttribute", kind, device.call("cuCtxGetDevice")))
    assert of.decide(machine, 32, mark, other).entry == "mark_1"
    middle = of.decide(12 * machine, 32, mark, other)
    assert middle.entry == "mark"
    assert middle.refused == (("mark_1", "fewer blocks of it run at the same time"),)
    assert of.decide(64 * machine, 32, mark, other).entry == "mark_1"


def test_several_threads_launch_one_kernel(device: CudaDevice, memory: Memory) -> None:
    case = Case(memory, memory.alloc(4 * THREADS), memory.alloc(X_BYTES))
    of, threads, each = sum_of(device), 8, 200
    context = device.call("cuCtxGetCurrent")
    failures: list[BaseException] = []

    def run() -> None:
        try:
            device.call("cuCtxSetCurrent", context)
            for index in range(each):
                flags = Flag.ORIGINAL if index % 2 else Flag(0)
                of.launch(1, THREADS, *case.arguments, flags=flags)
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failures
    case.check(int(memory.read(case.mark, 1, np.uint32)[0]), launches=threads * each)
    assert [version.taken for version in of.statistics.versions] == [threads * each // 2, 0, threads * each // 2]


class OnlyDlpack:
    """An array that supports DLPack and nothing else."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.__dlpack_device__()


class OnlyInterface:
    """An array with the CUDA array interface and nothing else."""

    def __init__(self, tensor: Any) -> None:
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


@pytest.mark.parametrize("wrapper", [None, OnlyDlpack, OnlyInterface])
def test_tensors_of_pytorch_are_arguments(device: CudaDevice, wrapper: Callable[[Any], Any] | None) -> None:
    torch: Any = pytest.importorskip("torch")
    wrap: Callable[[Any], Any] = wrapper or (lambda tensor: tensor)
    of = sum_of(device)
    x = torch.arange(THREADS + N - 1, dtype=torch.float32, device="cuda")
    y, mark = torch.ones(THREADS, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    expected = y + sum(x[each : each + THREADS] for each in range(N))
    torch.cuda.synchronize()
    of.launch(1, THREADS, wrap(y), wrap(x), N, wrap(mark), stream=torch.cuda.current_stream())
    torch.cuda.synchronize()
    # For a wrapper the driver knows the extent: that of the block of PyTorch's pool, which has all three tensors.
    assert int(mark[0]) == (FIRST if wrapper is None else SECOND)
    assert bool((y == expected).all())
    # Two views of one storage have one extent, and only the ranges distinguish them.
    both = torch.zeros(2 * THREADS + N, device="cuda")
    assert of.decide(1, THREADS, both[:THREADS], both[THREADS:], N, mark).entry == "sum_2"
    assert of.decide(1, THREADS, both[1:], both, N, mark).entry == "sum"
    with pytest.raises(TypeError, match="is not on the GPU"):
        of.launch(1, THREADS, y.cpu(), x, N, mark)


def test_arrays_of_cupy_are_arguments(device: CudaDevice) -> None:
    cupy: Any = pytest.importorskip("cupy")
    of = sum_of(device)
    x = cupy.arange(THREADS + N - 1, dtype=cupy.float32)
    y, mark = cupy.ones(THREADS, cupy.float32), cupy.zeros(1, cupy.uint32)
    expected = y + sum(x[each : each + THREADS] for each in range(N))
    of.launch(1, THREADS, y, x, cupy.uint32(N), mark, stream=cupy.cuda.get_current_stream())
    assert int(mark[0]) == FIRST
    assert bool((y == expected).all())
    both = cupy.zeros(2 * THREADS + N, cupy.float32)
    assert of.decide(1, THREADS, both[:THREADS], both[THREADS:], N, mark).entry == "sum_2"
    assert of.decide(1, THREADS, both[1:], both, N, mark).entry == "sum"


def test_imported_memory_has_the_extent_of_the_driver() -> None:
    """An array of PyTorch or CuPy may be imported memory, which shows only a part of an allocation. Its extent is that
    of the allocation."""
    torch: Any = pytest.importorskip("torch")
    cupy: Any = pytest.importorskip("cupy")
    array, tensor = cupy.zeros(1000, cupy.float32), torch.zeros(1000, device="cuda")
    for imported, own in ((torch.as_tensor(array[10:20], device="cuda"), array), (cupy.asarray(tensor[10:20]), tensor)):
        found, whole = pointer_of(imported), pointer_of(own)
        assert found is not None and found.extent is None
        assert whole is not None and whole.extent is not None
        assert found.address == whole.address + 40
        assert whole.extent.end - whole.extent.begin >= 4000
    found = pointer_of(cupy.from_dlpack(tensor[10:20]))
    assert found is not None and found.extent is None


def test_c_and_python_decide_the_same(memory: Memory) -> None:
    """Over pointers into real allocations."""
    kinds = [memory.alloc(X_BYTES), memory.pool(X_BYTES), memory.managed(X_BYTES), memory.pinned(X_BYTES), 0]
    pointers = [base + offset for base in kinds for offset in (0, 4, 64, X_BYTES - 4)]
    both = [sum_of(CudaDevice(built_library())), sum_of(CudaDevice(in_python=True))]
    mark = memory.alloc(4)
    for y in pointers:
        for x in pointers:
            for n in (0, 1, N):
                entries = [of.decide(1, THREADS // 4, y, x, n, mark).entry for of in both]
                assert entries[0] == entries[1], (y, x, n)
