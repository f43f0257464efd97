"""Checks of the CUDA backend on `fake_driver.cpp`: `test_cuda_backend_calls.py` runs each in a process of its own."""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from ptxmotion.dsl import f32, i32
from ptxmotion.dsl.image import Image, Options, lower, pipeline, point
from ptxmotion.dsl.image import total as sum_of
from ptxmotion.dsl.image.operators import Scratch
from ptxmotion.dsl.image.streams.array_graph import ArrayGraph
from ptxmotion.dsl.image.streams.cuda_graph import CudaGraph
from ptxmotion.dsl.image.streams.memory import bytes_of
from ptxmotion.dsl.image.streams.planning import ExecutionPlan, plan_execution
from ptxmotion.dsl.image.streams.running import PlanRun
from ptxmotion.harness import cuda
from ptxmotion.harness.cuda import CudaBackend, CudaBuffer, probe
from ptxmotion.harness.machine import DeviceFailed
from ptxmotion.runtime.cuda_device import CudaDevice
from ptxmotion.toolchain import cubin_cache

MODULE = b"kernel plain 8 4 2\nkernel structure 8 12\nkernel nothing\nkernel fault\n"


def check_the_gpu() -> None:
    assert probe() == (1, "")
    backend = CudaBackend()
    assert backend.sm == 90 and backend.attribute("MULTIPROCESSOR_COUNT") == 4
    described = backend.describe()
    assert described["gpu"] == "Fake" and described["driver_cuda"] == "13.0" and described["compute_capability"] == 90


def launched(backend: CudaBackend, out: CudaBuffer, extra: int = 0) -> list[int]:
    return backend.read(out, np.uint32, 8 + extra).tolist()


def check_launches_and_their_arguments() -> None:
    backend = CudaBackend()
    module = backend.load_cubin(MODULE)
    out = backend.allocate(64)
    plain = module.kernel("plain")
    assert plain.sizes == (8, 4, 2)
    args: list[Any] = [out, np.float32(2.5), np.int16(-3)]
    backend.launch(plain, (5, 4), (32, 2, 1), 99, args)
    assert launched(backend, out) == [5, 4, 1, 32, 2, 1, 99, 0]
    assert backend.read(out, np.float32, 1, offset=32) == 2.5 and backend.read(out, np.int16, 1, offset=36) == -3
    structure = module.kernel("structure")
    assert module.kernel("nothing").sizes == ()
    backend.launch(module.kernel("nothing"), 1, 1, 0, [])
    backend.launch(structure, 3, 64, 0, [out, np.arange(3, dtype=np.uint32).tobytes()])
    assert launched(backend, out, 3) == [3, 1, 1, 64, 1, 1, 0, 0, 0, 1, 2]
    backend.launch(backend.cooperative(structure), 2, 64, 0, [out, np.arange(3, dtype=np.uint32).tobytes()])
    assert launched(backend, out)[7] == 1
    backend.launch(structure, 1, 64, 100_000, [out, bytes(12)])
    assert launched(backend, out)[6] == 100_000
    assert backend.occupancy(plain, 256) == 8


def check_prepared_calls() -> None:
    backend = CudaBackend()
    kernel = backend.load_cubin(MODULE).kernel("plain")
    out, other = backend.allocate(64), backend.allocate(64)
    packed = backend.pack(kernel, [out, np.uint32(7), np.uint16(8)])
    backend.fill_call(out, 0xAB)()
    assert launched(backend, out) == [0xABABABAB] * 8
    backend.launch_call(kernel, (3, 2, 1), (64, 1, 1), 16, packed)()
    backend.copy_call(other, out, 36, 0, 0)()
    assert launched(backend, other, 1) == [3, 2, 1, 64, 1, 1, 16, 0, 7]
    cooperative = backend.cooperative(kernel)
    backend.launch_call(cooperative, (2, 1, 1), (64, 1, 1), 0, packed)()
    assert launched(backend, out)[7] == 1


def check_events_and_graphs() -> None:
    backend = CudaBackend()
    kernel = backend.load_cubin(MODULE).kernel("plain")
    out = backend.allocate(64)
    packed = backend.pack(kernel, [out, np.uint32(7), np.uint16(8)])
    call = backend.launch_call(kernel, (9, 1, 1), (32, 1, 1), 0, packed)
    backend.fill(out, 0)

    def work() -> None:
        call()
        backend.launch_packed(kernel, (6, 1, 1), (32, 1, 1), 0, packed)
        call()

    graph = backend.graph(work)
    assert launched(backend, out) == [0] * 8
    first, second = backend.event(), backend.event()
    backend.record(first)
    backend.launch_graph(graph)
    backend.launch_graph(graph)
    backend.record(second)
    assert launched(backend, out)[0] == 9
    assert backend.seconds_between(first, second) == 6e-3
    assert backend.seconds_of_graph(graph) == backend.seconds_of(work) == 3e-3
    backend.destroy_graph(graph)


def check_graphs_of_plans() -> None:
    """Every kernel gets its arguments, in an order that the plan allows, and memory that must be zero is cleared."""

    @point
    def plus(a: f32, b: f32, number: i32) -> f32:
        return a + b * f32(number)

    @pipeline
    def diamond(src: Image[f32], number: i32):  # pyright: ignore[reportUnknownParameterType, reportUnknownVariableType]
        first = plus(src, src, number)
        return plus(plus(first, src, 2), plus(first, first, number), 4), sum_of(f32)(first)

    lowered = lower(diamond.graph(40, 3), "naive", Options())
    plan = plan_execution(lowered, "branches")
    backend = CudaBackend()
    lines: dict[str, str] = {}
    for launch in lowered.launches:
        # A kernel of the fake driver writes to its first parameter, so a reduction gets none.
        sizes = [8 if isinstance(each.value, Image) else 4 for each in launch.arguments]
        words = map(str, sizes if isinstance(launch.arguments[0].value, Image) else [])
        lines[launch.kernel.name] = " ".join(["kernel", launch.kernel.name, *words])
    module = backend.load_cubin("\n".join([*lines.values(), ""]).encode())
    functions = {name: module.kernel(name).handle for name in lowered.kernels}
    images = (*lowered.graph.inputs, *lowered.buffers, *lowered.graph.outputs)
    memory = {image: backend.allocate(max(bytes_of(image), 512)) for image in images}
    for buffer in memory.values():
        backend.fill(buffer, 7)
    addresses = {image: buffer.pointer for image, buffer in memory.items()}
    graph = CudaGraph(plan, functions, addresses, {"number": 5})
    graph.launch(int(backend.stream.handle))
    for launch in lowered.launches:
        if len(launch.images(written=True)) == 1:
            (image,) = launch.images(written=True)
            x, y = launch.grid
            assert launched(backend, memory[image])[:6] == [int(x), int(y), 1, *launch.block, 1], image
    cleared = [image for image in lowered.buffers if isinstance(image, Scratch) and image.is_zero]
    assert cleared and all(backend.read(memory[image], np.uint32, 1)[0] == 0 for image in cleared)
    (first, *_) = lowered.launches
    number = 8 + sum(2 if isinstance(each.value, Image) else 1 for each in first.arguments[1:]) - 1
    assert [each.value for each in first.arguments][-1] is lowered.graph.scalars[0]
    (image,) = first.images(written=True)
    assert launched(backend, memory[image], number - 7)[number] == 5
    other = backend.allocate(512)
    graph.set({**addresses, image: other.pointer}, {"number": 6})
    graph.launch(int(backend.stream.handle))
    assert launched(backend, other, number - 7)[number] == 6
    assert launched(backend, memory[image], number - 7)[number] == 5
    names = "cuGraphExecDestroy", "cuGraphDestroy"
    destroyed: list[str] = []

    def recorded(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda handle: (destroyed.append(name), function(handle))[1]

    for name in names:
        setattr(backend.driver, name, recorded(name, getattr(backend.driver, name)))
    graph.close()
    graph.close()
    assert destroyed == [*names]
    graph = CudaGraph(plan, functions, addresses, {"number": 5})
    del graph
    assert destroyed == [*names, *names]


def fails(action: Callable[[], object], message: str) -> None:
    try:
        action()
    except DeviceFailed as error:
        assert message in str(error), str(error)
    else:
        raise AssertionError(f"{message} was expected")


def check_threads() -> None:
    """A thread in which no context is current uses the GPU of the backend."""
    backend = CudaBackend()
    kernel = backend.load_cubin(MODULE).kernel("plain")
    out = backend.allocate(64)
    args: list[Any] = [out, np.float32(2.5), np.int16(-3)]

    def first(action: Callable[[], object]) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(action).result()

    first(lambda: backend.launch(kernel, 5, 32, 0, args))
    assert launched(backend, out)[:4] == [5, 1, 1, 32]
    first(lambda: backend.fill(out, 1))
    assert launched(backend, out)[0] == 0x01010101
    first(lambda: backend.write(out, np.full(16, 7, np.uint32)))
    first(lambda: backend.copy(out, out, 4, 4, 0))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(launched, backend, out).result()[:2] == [7, 7]
        assert pool.submit(backend.allocate, 1 << 20).result().nbytes == 1 << 20
    first(lambda: backend.load_cubin(MODULE))
    module = backend.load_cubin(MODULE)
    first(lambda: module.kernel("nothing"))
    graph = backend.graph(lambda: backend.launch(kernel, 6, 32, 0, args))
    for action in backend.event, backend.create_stream, lambda: backend.occupancy(kernel, 32):
        first(action)
    first(lambda: backend.seconds_of_graph(graph))
    first(lambda: backend.launch_graph(graph))
    assert launched(backend, out)[0] == 6


class OnGpu:
    """An array of an unknown library."""

    def __init__(self, address: int) -> None:
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (3, 40), "typestr": "<f4", "version": 3}


@dataclass
class OverArrays:
    """A pipeline of one launch, and arrays of an unknown library for it. ``written`` is what its kernel writes to: a
    kernel of the fake driver writes to its first parameter."""

    plan: ExecutionPlan
    backend: CudaBackend
    arrays: dict[Image[Any], OnGpu]
    written: CudaBuffer
    ptx: dict[str, str]

    def graph(self) -> ArrayGraph:
        return ArrayGraph(self.plan, self.ptx, None, 0)

    def check(self) -> None:
        """Whether the launch was made; clears what it has written."""
        (launch,) = self.plan.lowered.launches
        assert launched(self.backend, self.written)[:2] == [int(each) for each in launch.grid]
        self.backend.fill(self.written, 0)


def over_arrays() -> OverArrays:
    @point
    def plus(a: f32, b: f32) -> f32:
        return a + b

    @pipeline
    def once(src: Image[f32]) -> Image[f32]:
        return plus(src, src)

    lowered = lower(once.graph(40, 3), "naive", Options())
    (launch,) = lowered.launches
    sizes = [8 if isinstance(each.value, Image) else 4 for each in launch.arguments]
    cubin = " ".join(["kernel", launch.kernel.name, *map(str, sizes)]).encode() + b"\n"
    for module in cubin_cache, cuda:
        module.assemble_kept = lambda *_: SimpleNamespace(cubin=cubin)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType]
    backend = CudaBackend()
    memory: dict[Any, CudaBuffer] = {
        image: backend.allocate(1024) for image in (*lowered.graph.inputs, *lowered.graph.outputs)
    }
    arrays = {image: OnGpu(buffer.pointer) for image, buffer in memory.items()}
    (first, *_) = [memory[each.value] for each in launch.arguments if isinstance(each.value, Image)]
    backend.fill(first, 0)
    text = f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry {launch.kernel.name}() {{ ret; }}\n"
    return OverArrays(plan_execution(lowered, "chain"), backend, arrays, first, {launch.kernel.name: text})


def check_graphs_of_arrays_in_new_threads() -> None:
    """A thread in which no context is current makes a graph, and another one launches it."""
    case, made = over_arrays(), list[ArrayGraph]()

    def make() -> None:
        made.append(case.graph())
        made[0].launch(case.arrays, {}, 0)

    for action in (make, lambda: made[0].launch(case.arrays, {}, 0)):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(action).result()
        case.check()


def check_plans_in_new_threads() -> None:
    """A plan runs again in a thread in which no context is current. A graph alone refuses to."""
    case = over_arrays()
    run = PlanRun(case.plan, case.backend, case.ptx)
    run.execute({})
    graph = run.graph({})
    addresses = {image: int(buffer.pointer) for image, buffer in run.memory.items()}
    moved = case.backend.allocate(1024)
    run.memory = dict.fromkeys(run.memory, moved)  # so that the next launch changes the arguments
    with ThreadPoolExecutor(1) as pool:
        pool.submit(fails, lambda: graph.set(addresses, {}), "no context is current in the thread").result()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(run.execute, {}).result()
    (launch,) = case.plan.lowered.launches
    assert launched(case.backend, moved)[:2] == [int(each) for each in launch.grid]


def check_what_graphs_of_arrays_hold() -> None:
    """Kernels and buffers of a graph that nothing refers to are held until its last launch has ended."""
    case, waited = over_arrays(), list[bool]()
    graph = case.graph()
    graph.launch(case.arrays, {}, 0)
    case.check()
    code = weakref.ref(graph.kernels[0])
    driver, wait = graph.driver, graph.driver.cuEventSynchronize

    def recorded(event: Any) -> Any:
        waited.append(code() is not None)
        return wait(event)

    driver.cuEventSynchronize = recorded
    with ThreadPoolExecutor(1) as pool:
        kept = [graph]
        del graph
        pool.submit(kept.clear).result()  # a thread in which no context is current
    assert waited == [True] and code() is None


def allocations() -> int:
    """The allocations of the driver that are not freed."""
    return ctypes.c_int.in_dll(ctypes.CDLL("libcuda.so.1"), "allocations").value


def check_memory_is_freed() -> None:
    """The memory of a backend, and of a plan on it, is freed when nothing refers to them, in any thread."""
    backend = CudaBackend()
    buffers = [backend.allocate(size) for size in (1, 1 << 21, 1 << 21)]
    backend.free(buffers.pop())
    assert allocations() == 3
    backend.trim()
    assert allocations() == 2
    kept = [backend]
    del backend
    with ThreadPoolExecutor(1) as pool:
        pool.submit(kept.clear).result()
    assert allocations() == 0
    case = over_arrays()
    before = allocations()
    for _ in range(3):
        PlanRun(case.plan, case.backend, case.ptx)
    assert allocations() == before + 2


def check_memory_that_is_freed_during_a_trim() -> None:
    """The garbage collector may end an object with memory at any time."""
    backend = CudaBackend()
    first, second = backend.allocate(1), backend.allocate(1 << 21)
    backend.free(first)
    kept, call = [second], backend.call

    def calling(name: str, *arguments: Any) -> Any:
        if name == "cuMemFree" and kept:
            backend.free(kept.pop())
        return call(name, *arguments)

    backend.call = calling
    backend.trim()
    assert not kept and allocations() == 1
    assert backend.allocate(1 << 21).pointer == second.pointer and allocations() == 1


def check_devices_of_the_runtime_in_new_threads() -> None:
    """The device is that of the first context, which becomes current in each thread that asks."""
    device = CudaDevice(in_python=True)
    questions: list[Callable[[], object]] = [lambda: device.sm, lambda: device.machine.multiprocessors]
    for question in questions:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(question).result() == question()
    assert device.sm == 90


def check_errors() -> None:
    backend = CudaBackend()
    module = backend.load_cubin(MODULE)
    fails(lambda: module.kernel("none"), "CUDA_ERROR_NOT_FOUND")
    fails(lambda: backend.load_cubin(b"garbage\n"), "CUDA_ERROR_INVALID_IMAGE")
    backend.launch(module.kernel("fault"), 1, 1, 0, [])
    fails(backend.synchronize, "CUDA_ERROR_ILLEGAL_ADDRESS")
    fails(lambda: backend.seconds_between(backend.event(), backend.event()), "recorded")
    for wrong in ValueError("mine"), RuntimeError("mine, too"), KeyboardInterrupt():

        def body(error: BaseException = wrong) -> None:
            raise error

        try:
            backend.graph(body)
        except BaseException as error:
            assert error is wrong
        else:
            raise AssertionError("the error of the body was lost")
        out = backend.allocate(4)
        backend.fill(out, 1)  # not captured any more
        assert backend.read(out, np.uint32, 1) == 0x01010101


if __name__ == "__main__":
    globals()[sys.argv[1]]()
