"""Runs a plan on a backend: as a CUDA graph on a GPU, and launch by launch on others.

Intermediate images have the buffers of the plan, so that several of them use the same memory. On the emulator the steps
can run in a random order that the plan allows (``seed``). A dependence that the plan lacks shows as a wrong result.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ... import types as t
from ..operators import Image, Scratch
from .cuda_graph import CudaGraph
from .memory import bytes_of
from .planning import ExecutionPlan
from .values import value_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...backend import Backend

__all__ = ["PlanRun"]


class PlanRun:
    """A plan that is loaded on a backend. ``ptx`` has the PTX of each kernel by its name.

    Its memory is freed by `close`, or when nothing refers to it any more.
    """

    def __init__(self, plan: ExecutionPlan, backend: Backend, ptx: Mapping[str, str]) -> None:
        plan.check()
        self.plan, self.backend = plan, backend
        lowered = plan.lowered
        modules = {name: backend.load(text) for name, text in ptx.items()}
        self.kernels = {name: modules[name].kernel(kernel.entry(ptx[name])) for name, kernel in lowered.kernels.items()}
        owned: list[Any] = []
        # From here on, for an allocation that fails leaves the others to be freed.
        self._free = weakref.finalize(self, _free_each, backend, owned)
        self._free.atexit = False

        def allocate(size: int) -> Any:
            owned.append(backend.allocate(size))
            return owned[-1]

        slots = [allocate(size) for size in plan.sharing.slots]
        #: By image: its memory. Several images may have the same buffer.
        self.memory: dict[Image[Any], Any] = {image: slots[slot] for image, slot in plan.sharing.slot_of.items()}
        for image in (*lowered.graph.inputs, *lowered.graph.outputs):
            self.memory[image] = allocate(bytes_of(image))
        self._graph: CudaGraph | None = None

    def run(
        self, arrays: Sequence[NDArray[Any]], numbers: Mapping[str, Any], seed: int | None = None
    ) -> list[NDArray[Any]]:
        """The pixels of the outputs for those of the inputs, one after the other in each array. ``seed`` chooses the
        order of steps on a backend without graphs."""
        graph = self.plan.lowered.graph
        for image, array in zip(graph.inputs, arrays, strict=True):
            self.backend.write(self.memory[image], array)
        self.execute(numbers, seed)
        return [
            self.backend.read(self.memory[image], t.dtype_of_type(image.pixel), int(image.width) * int(image.height))
            for image in graph.outputs
        ]

    def execute(self, numbers: Mapping[str, Any], seed: int | None = None) -> None:
        """Run all steps on what is in the memory of the inputs."""
        if self.plan.is_graph and self.backend.name == "cuda":
            self.graph(numbers).launch(int(self.cuda.stream.handle))
            return
        for number in self.plan.order(seed):
            step = self.plan.steps[number]
            if step.launch is None:
                assert isinstance(step.cleared, Scratch)
                self.backend.fill(self.memory[step.cleared], 0)
                continue
            launch = step.launch
            values = [value_of(each, self.memory, numbers) for each in launch.arguments]
            (x, y), (threads_x, threads_y) = launch.grid, launch.block
            kernel = self.kernels[launch.kernel.name]
            self.backend.launch(kernel, (int(x), int(y), 1), (threads_x, threads_y, 1), 0, values)

    @property
    def cuda(self) -> Any:
        """The backend, which must be a GPU."""
        return self.backend

    def graph(self, numbers: Mapping[str, Any]) -> CudaGraph:
        """The CUDA graph for these numbers."""
        self.cuda.enter()
        addresses = {image: int(buffer.pointer) for image, buffer in self.memory.items()}
        if self._graph is None:
            functions = {name: kernel.handle for name, kernel in self.kernels.items()}
            self._graph = CudaGraph(self.plan, functions, addresses, numbers)
        else:
            self._graph.set(addresses, numbers)
        return self._graph

    def close(self) -> None:
        """Wait until all launches have ended, and free the memory."""
        self.backend.synchronize()
        if self._graph is not None:
            self._graph.close()
            self._graph = None
        self._free()


def _free_each(backend: Backend, buffers: Sequence[Any]) -> None:
    """Free memory. Launches that are on the stream of the backend may still use it."""
    for buffer in buffers:
        backend.free(buffer)
