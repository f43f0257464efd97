"""Measures the costs that kernel fusion uses: launches, graph nodes, barriers and memory bandwidth of a GPU.

Each cost is the median of `REPEATS` measurements between two events on one stream, after a warm-up.

- Launch and graph node: an empty kernel, `LAUNCHES` times in a row. The launch includes the driver call of this
  process. The extra cost of a cooperative launch or node is measured in the same way.
- Barrier of a block: a block of 256 threads with a loop of `BARRIERS` barriers, minus the same loop without them.
- Barrier of the grid, as fusion builds it: `GRID_BARRIERS` of them in a cooperative launch with one block on each
  multiprocessor, and with `CROWD` blocks, which gives the cost of each further block.
- Block: the time that each of `BLOCKS` empty blocks adds to a launch.
- Bandwidth: a copy of `COPIED` bytes in GPU memory, counting reads and writes.

Requires: a GPU. Guarantees: the clocks are not changed; all memory is freed.
Refuses: `MachineMissing` without a GPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = ["GpuBackend", "calibrate"]

REPEATS = 9
LAUNCHES = 500
BARRIERS = 20_000
GRID_BARRIERS = 1_000
CROWD = 8
BLOCKS = 1 << 18
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

#: A loop of the barrier that `transforms/kernel_fusion/grid_barrier.py` builds.
_GRID_PTX = """\
.version 8.0
.target sm_75
.address_size 64
.global .align 4 .u32 arrived = 0;
.visible .entry grid_turns(.param .u32 n)
{
  .reg .u32 %n, %t, %b, %g, %a, %old, %now;
  .reg .u64 %at;
  .reg .pred %p, %first, %other;
  ld.param.u32 %n, [n];
  mov.u32 %t, %tid.x;
  setp.ne.u32 %other, %t, 0;
  mov.u32 %b, %ctaid.x;
  mov.u32 %g, %nctaid.x;
  setp.eq.u32 %first, %b, 0;
  sub.u32 %a, 0x80000001, %g;
  selp.b32 %a, %a, 1, %first;
  mov.u64 %at, arrived;
AGAIN:
  bar.sync 0;
  @%other bra DONE;
  fence.acq_rel.gpu;
  atom.relaxed.gpu.global.add.u32 %old, [%at], %a;
WAIT:
  ld.acquire.gpu.global.u32 %now, [%at];
  xor.b32 %now, %now, %old;
  setp.ge.s32 %p, %now, 0;
  @%p bra WAIT;
  fence.acq_rel.gpu;
DONE:
  bar.sync 0;
  sub.u32 %n, %n, 1;
  setp.ne.u32 %p, %n, 0;
  @%p bra AGAIN;
  ret;
}
"""


class GpuBackend(Protocol):
    """The part of `cuda.CudaBackend` that the measurements need."""

    def load(self, ptx: str, /) -> Any: ...
    def cooperative(self, kernel: Any, /) -> Any: ...
    def allocate(self, nbytes: int, /) -> Any: ...
    def free(self, buffer: Any, /) -> None: ...
    def fill(self, buffer: Any, byte: int, /) -> None: ...
    def copy(self, target: Any, source: Any, nbytes: int, target_offset: int, source_offset: int, /) -> None: ...
    def pack(self, kernel: Any, args: Sequence[Any], /) -> Any: ...
    def launch_packed(self, kernel: Any, grid: Any, block: Any, shared: int, packed: Any, /) -> None: ...
    def synchronize(self) -> None: ...
    def seconds_of(self, work: Callable[[], object]) -> float: ...
    def graph(self, body: Callable[[], None], /) -> Any: ...
    def launch_graph(self, graph: Any, /) -> None: ...
    def destroy_graph(self, graph: Any, /) -> None: ...
    def attribute(self, name: str, /) -> int: ...
    def describe(self) -> dict[str, Any]: ...


def calibrate(backend: GpuBackend) -> dict[str, Any]:
    """The costs of this GPU. Raises `DeviceFailed`.

    In seconds: ``launch``, ``graph_node``, ``barrier``, ``grid_barrier`` (one block on each multiprocessor),
    ``grid_block`` (each further block), ``block`` (an empty block), and the extra cost of ``cooperative_launch`` and
    ``cooperative_node``. In bytes per second: ``bandwidth``. Also ``machine``, ``multiprocessors``, and the
    ``threads`` of a multiprocessor.
    """
    empty = backend.load(_PTX.replace("  SYNC\n", "")).kernel("empty")
    launch, node = _launch(backend, empty)
    cooperative = _launch(backend, backend.cooperative(empty))
    multiprocessors = backend.attribute("MULTIPROCESSOR_COUNT")
    whole, block = _grid_barrier(backend, multiprocessors)
    return {
        "machine": str(backend.describe().get("gpu", "GPU")),
        "launch": launch,
        "graph_node": node,
        "cooperative_launch": max(cooperative[0] - launch, 0.0),
        "cooperative_node": max(cooperative[1] - node, 0.0),
        "barrier": _barrier(backend),
        "grid_barrier": whole,
        "grid_block": block,
        "block": _block(backend, empty),
        "bandwidth": _bandwidth(backend),
        "multiprocessors": multiprocessors,
        "threads": backend.attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
    }


def _launch(backend: GpuBackend, kernel: Any) -> tuple[float, float]:
    """Seconds of a launch and of a graph node of an empty kernel."""
    nothing = backend.pack(kernel, [])

    def launches() -> None:
        for _ in range(LAUNCHES):
            backend.launch_packed(kernel, (1, 1, 1), (32, 1, 1), 0, nothing)

    launch = _median(backend, launches) / LAUNCHES
    graph = backend.graph(launches)
    try:
        return launch, _median(backend, lambda: backend.launch_graph(graph)) / LAUNCHES
    finally:
        backend.destroy_graph(graph)


def _block(backend: GpuBackend, kernel: Any) -> float:
    """Seconds that an empty block of 256 threads adds to a launch."""
    nothing = backend.pack(kernel, [])

    def seconds(blocks: int) -> float:
        return _median(backend, lambda: backend.launch_packed(kernel, (blocks, 1, 1), (256, 1, 1), 0, nothing))

    return max((seconds(BLOCKS + 1) - seconds(1)) / BLOCKS, 0.0)


def _grid_barrier(backend: GpuBackend, multiprocessors: int) -> tuple[float, float]:
    """Seconds of a grid barrier with one block on each multiprocessor, and the seconds that each further block adds."""
    import numpy as np

    kernel = backend.cooperative(backend.load(_GRID_PTX).kernel("grid_turns"))

    def seconds(blocks: int, turns: int) -> float:
        packed = backend.pack(kernel, [np.uint32(turns)])
        return _median(backend, lambda: backend.launch_packed(kernel, (blocks, 1, 1), (256, 1, 1), 0, packed))

    per_barrier: list[float] = []
    for blocks in (multiprocessors, multiprocessors * CROWD):
        per_barrier.append((seconds(blocks, GRID_BARRIERS + 1) - seconds(blocks, 1)) / GRID_BARRIERS)
    per_block = (per_barrier[1] - per_barrier[0]) / (multiprocessors * (CROWD - 1))
    return max(per_barrier[0], 0.0), max(per_block, 0.0)


def _barrier(backend: GpuBackend) -> float:
    import numpy as np

    seconds: list[float] = []
    for sync in ("", "bar.sync 0;"):
        kernel = backend.load(_PTX.replace("SYNC", sync)).kernel("turns")
        packed = backend.pack(kernel, [np.uint32(BARRIERS)])

        def turns(kernel: Any = kernel, packed: Any = packed) -> None:
            backend.launch_packed(kernel, (1, 1, 1), (256, 1, 1), 0, packed)

        seconds.append(_median(backend, turns))
    return max((seconds[1] - seconds[0]) / BARRIERS, 0.0)


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
    return statistics.median(backend.seconds_of(work) for _ in range(REPEATS))
