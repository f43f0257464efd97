"""Measure what fusion is judged by: a launch, a node of a CUDA graph, a barrier of a block, bandwidth.

Each is the median of `REPEATS` measurements between two events on one stream, after a warm-up. A launch and a graph
node: an empty kernel, `LAUNCHES` times in a row; the launch as this process's calls of the driver allow. A barrier: a
block of 256 threads that runs through `BARRIERS` of them, less the same loop without. Bandwidth: a copy of `COPIED`
bytes within the GPU's memory, reads and writes counted.

Requires: a GPU. Guarantees: the clocks are left alone; everything that is allocated is given back.
Refuses: `MachineMissing` where there is no GPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = ["GpuBackend", "calibrate"]

REPEATS = 9
LAUNCHES = 500
BARRIERS = 20_000
COPIED = 1 << 28

_PTX = """\
.version 8.0
.target sm_75
.address_size 64
.visible .entry empty()
{
  ret;
}
.visible .entry turns(.param .u32 n)
{
  .reg .u32 %n;
  .reg .pred %p;
  ld.param.u32 %n, [n];
AGAIN:
  SYNC
  sub.u32 %n, %n, 1;
  setp.ne.u32 %p, %n, 0;
  @%p bra AGAIN;
  ret;
}
"""


class GpuBackend(Protocol):
    """What is needed of `cuda.CudaBackend`."""

    def load(self, ptx: str, /) -> Any: ...
    def allocate(self, nbytes: int, /) -> Any: ...
    def free(self, buffer: Any, /) -> None: ...
    def fill(self, buffer: Any, byte: int, /) -> None: ...
    def copy(self, target: Any, source: Any, nbytes: int, target_offset: int, source_offset: int, /) -> None: ...
    def pack(self, kernel: Any, args: Sequence[Any], /) -> Any: ...
    def launch_packed(self, kernel: Any, grid: Any, block: Any, shared: int, packed: Any, /) -> None: ...
    def synchronize(self) -> None: ...
    def event(self) -> Any: ...
    def record(self, event: Any, /) -> None: ...
    def seconds_between(self, first: Any, second: Any, /) -> float: ...
    def graph(self, body: Callable[[], None], /) -> Any: ...
    def launch_graph(self, graph: Any, /) -> None: ...
    def destroy_graph(self, graph: Any, /) -> None: ...
    def attribute(self, name: str, /) -> int: ...
    def describe(self) -> dict[str, Any]: ...


def calibrate(backend: GpuBackend) -> dict[str, Any]:
    """The costs of this GPU: seconds for ``launch``, ``graph_node``, ``barrier``; bytes per second for ``bandwidth``;
    ``machine``, ``multiprocessors``, ``threads`` of a multiprocessor. Raises `DeviceFailed`."""
    empty = backend.load(_PTX.replace("  SYNC\n", "")).kernel("empty")
    nothing = backend.pack(empty, [])

    def launches() -> None:
        for _ in range(LAUNCHES):
            backend.launch_packed(empty, (1, 1, 1), (32, 1, 1), 0, nothing)

    launch = _median(backend, launches) / LAUNCHES
    graph = backend.graph(launches)
    try:
        node = _median(backend, lambda: backend.launch_graph(graph)) / LAUNCHES
    finally:
        backend.destroy_graph(graph)
    return {
        "machine": str(backend.describe().get("gpu", "GPU")),
        "launch": launch,
        "graph_node": node,
        "barrier": _barrier(backend),
        "bandwidth": _bandwidth(backend),
        "multiprocessors": backend.attribute("MULTIPROCESSOR_COUNT"),
        "threads": backend.attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
    }


def _barrier(backend: GpuBackend) -> float:
    import numpy as np

    seconds: list[float] = []
    for sync in ("", "bar.sync 0;"):
        kernel = backend.load(_PTX.replace("SYNC", sync)).kernel("turns")
        packed = backend.pack(kernel, [np.uint32(BARRIERS)])

        def turns(kernel: Any = kernel, packed: Any = packed) -> None:
            backend.launch_packed(kernel, (1, 1, 1), (256, 1, 1), 0, packed)

        seconds.append(_median(backend, turns))
    return max((seconds[1] - seconds[0]) / BARRIERS, 1e-12)


def _bandwidth(backend: GpuBackend) -> float:
    buffers = [backend.allocate(COPIED), backend.allocate(COPIED)]
    try:
        for buffer in buffers:
            backend.fill(buffer, 1)
        return 2 * COPIED / _median(backend, lambda: backend.copy(buffers[0], buffers[1], COPIED, 0, 0))
    finally:
        for buffer in buffers:
            backend.free(buffer)


def _median(backend: GpuBackend, work: Callable[[], None]) -> float:
    work()
    backend.synchronize()
    first, last = backend.event(), backend.event()
    found: list[float] = []
    for _ in range(REPEATS):
        backend.record(first)
        work()
        backend.record(last)
        backend.synchronize()
        found.append(backend.seconds_between(first, last))
    return statistics.median(found)
