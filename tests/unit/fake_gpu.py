"""A fake GPU for the tests of the stopwatch: memory at addresses, a stream with a clock, events, and graphs.

It implements the part of `CudaBackend` that the correctness check and the stopwatch use. Kernels are those of the fake
backend. A kernel takes the time that its "PTX" states; other operations take about as long as on a GPU. It models
effects that the stopwatch depends on: a captured operation runs when its graph is launched, and the first launch of a
graph takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fake_backend import BEHAVIOURS, FakeBackend, FakeBuffer
from numpy.typing import NDArray
from ptxmotion.harness.cuda import CudaBuffer
from ptxmotion.harness.machine import DeviceFailed

BETWEEN_EVENTS, FIRST_LAUNCH, NODE = 1.5e-6, 20e-6, 0.5e-6
#: Seconds that the host needs for a call that adds an operation to the stream.
HOST_CALL = 3e-6
_BYTES_PER_SECOND = 3e12
_CLOCK_HZ = 1.98e9


@dataclass(frozen=True)
class Kernel:
    name: str
    behaviour: str
    seconds: float


@dataclass
class Graph:
    operations: list[Callable[[], None]]
    is_loaded: bool = False
    is_destroyed: bool = False


class Event:
    when = 0.0


class Module:
    def __init__(self, ptx: str) -> None:
        self.kernels: dict[str, Kernel] = {}
        for line in ptx.splitlines():
            words = line.split()
            if words[:1] == ["kernel"]:
                self.kernels[words[1]] = Kernel(words[1], words[2], float(words[3]))

    def kernel(self, name: str, /) -> Kernel:
        return Kernel("clock_probe", "", 30e-6) if name == "clock_probe" else self.kernels[name]


class FakeGpu:
    """``seconds`` is the time of the stream, ``host`` the time of the host, and ``kernels`` counts the kernels that
    ran.

    An operation that is added to the stream by a single call begins no earlier than that call.
    """

    name = "cuda"

    def __init__(self, memory: int = 1 << 26, l2: int = 1 << 20) -> None:
        self._memory: NDArray[np.uint8] = np.zeros(memory, np.uint8)
        self._end, self._l2 = 4096, l2
        self._capture: list[Callable[[], None]] | None = None
        self._machine = FakeBackend()
        self.seconds, self.host, self.kernels, self.held = 0.0, 0.0, 0, 0

    def attribute(self, name: str) -> int:
        assert name == "L2_CACHE_SIZE"
        return self._l2

    def load(self, ptx: str, /) -> Module:
        return Module(ptx)

    def allocate(self, nbytes: int, /) -> CudaBuffer:
        size = -(-max(nbytes, 1) // 4096) * 4096
        if self._end + size > self._memory.size:
            raise DeviceFailed("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY")
        self._end += size
        self.held += size
        return CudaBuffer(self._end - size, nbytes, size)

    def free(self, buffer: CudaBuffer, /) -> None:
        assert buffer.size
        self.held -= buffer.size

    def view(self, buffer: CudaBuffer, offset: int, nbytes: int, /) -> CudaBuffer:
        assert offset + nbytes <= buffer.nbytes
        return CudaBuffer(buffer.pointer + offset, nbytes)

    def write(self, buffer: CudaBuffer, array: NDArray[Any], /, offset: int = 0) -> None:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        assert self._capture is None and offset + raw.size <= buffer.nbytes
        self._memory[buffer.pointer + offset :][: raw.size] = raw

    def read(self, buffer: CudaBuffer, dtype: Any, count: int, /, offset: int = 0) -> NDArray[Any]:
        assert self._capture is None
        return self._memory[buffer.pointer + offset :][: count * np.dtype(dtype).itemsize].copy().view(dtype)

    def fill(self, buffer: CudaBuffer, byte: int, /) -> None:
        self._put(lambda: self._memory[buffer.pointer :][: buffer.nbytes].fill(byte), buffer.nbytes)

    def copy(self, target: CudaBuffer, source: CudaBuffer, nbytes: int, at: int, since: int, /) -> None:
        def move() -> None:
            self._memory[target.pointer + at :][:nbytes] = self._memory[source.pointer + since :][:nbytes]

        self._put(move, nbytes)

    def pack(self, kernel: Kernel, args: Sequence[Any]) -> Sequence[Any]:
        return args

    def launch(self, kernel: Kernel, grid: Any, block: Any, shared: int, args: Sequence[Any], /) -> None:
        self.launch_packed(kernel, grid, block, shared, args)

    def launch_packed(self, kernel: Kernel, grid: Any, block: Any, shared: int, packed: Sequence[Any]) -> None:
        def run() -> None:
            self.kernels += 1
            self.seconds += kernel.seconds
            buffers = [FakeBuffer(self._memory, each.pointer, each.nbytes) for each in packed]
            if kernel.name == "clock_probe":
                buffers[0].data.view(np.uint64)[:] = [round(_CLOCK_HZ * 30e-6), 30_000]
            else:
                BEHAVIOURS[kernel.behaviour](self._machine, buffers[0], buffers[1])

        self._put(run, 0)

    def launch_call(self, *launch: Any) -> Callable[[], None]:
        return lambda: self._from_host(lambda: self.launch_packed(*launch))

    def fill_call(self, *fill: Any) -> Callable[[], None]:
        return lambda: self._from_host(lambda: self.fill(*fill))

    def copy_call(self, *copy: Any) -> Callable[[], None]:
        return lambda: self._from_host(lambda: self.copy(*copy))

    def synchronize(self) -> None:
        self.host = self.seconds = max(self.host, self.seconds)

    def event(self) -> Event:
        return Event()

    def record(self, event: Event) -> None:
        assert self._capture is None
        self.seconds += BETWEEN_EVENTS / 2
        event.when = self.seconds
        self.seconds += BETWEEN_EVENTS / 2

    def seconds_between(self, first: Event, second: Event) -> float:
        return second.when - first.when

    def seconds_of_graph(self, graph: Graph) -> float:
        first, last = self.event(), self.event()
        self.record(first)
        self.launch_graph(graph)
        self.record(last)
        return self.seconds_between(first, last)

    def graph(self, body: Callable[[], None]) -> Graph:
        self._capture = []
        body()
        made, self._capture = Graph(self._capture), None
        return made

    def launch_graph(self, graph: Graph) -> None:
        assert not graph.is_destroyed
        self.seconds += 0 if graph.is_loaded else FIRST_LAUNCH
        graph.is_loaded = True
        for operation in graph.operations:
            operation()

    def destroy_graph(self, graph: Graph) -> None:
        assert not graph.is_destroyed
        graph.is_destroyed = True

    def _from_host(self, put: Callable[[], None]) -> None:
        if self._capture is None:
            self.host += HOST_CALL
            self.seconds = max(self.seconds, self.host)
        put()

    def _put(self, operation: Callable[[], None], nbytes: int) -> None:
        def timed() -> None:
            self.seconds += NODE + nbytes / _BYTES_PER_SECOND
            operation()

        if self._capture is not None:
            self._capture.append(timed)
        else:
            timed()
