"""A plan as a CUDA graph: one node for each step, and one edge for each dependence of the plan.

The graph is built with the driver (cuda-bindings), because its edges are those of the plan; a recorded stream would
give others. The nodes keep addresses and numbers. `CudaGraph.set` gives them others for the next launches.

Requires: a driver. Guarantees: nothing but the edges of the plan orders the nodes.
Refuses: `DeviceFailed` for every error of the driver, and in a thread in which no context is current:
cuGraphAddKernelNode and cuGraphExecKernelNodeSetParams of driver 580 return no error there, but end the process.
Reference: CUDA Driver API 13.0, graph management.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..operators import Image
from .dependences import Step
from .memory import bytes_of
from .planning import ExecutionPlan
from .values import raw_arguments

__all__ = ["CudaGraph"]


class CudaGraph:
    """An instantiated graph. ``functions`` maps the name of a kernel to its ``CUfunction``. The graph is destroyed by
    `close`, or when nothing refers to this object any more."""

    def __init__(
        self,
        plan: ExecutionPlan,
        functions: Mapping[str, Any],
        addresses: Mapping[Image[Any], int],
        numbers: Mapping[str, Any],
    ) -> None:
        from ....harness.cuda import require_driver

        self.driver = require_driver()
        self._check_context()
        self.plan, self.functions = plan, functions
        self.graph = self._call("cuGraphCreate", 0)
        #: The nodes of the steps, and the bytes of the arguments of each launch.
        self.nodes: list[Any] = []
        self.arguments: list[Sequence[bytes]] = []
        for number, step in enumerate(plan.steps):
            before = [self.nodes[first] for first, second in sorted(plan.edges) if second == number]
            self.arguments.append(raw_arguments(step.launch, addresses, numbers) if step.launch else ())
            self.nodes.append(self._node(step, before, addresses, self.arguments[-1]))
        self.executable = self._call("cuGraphInstantiate", self.graph, 0)
        self._destroy = weakref.finalize(self, _destroy, self.driver, self.executable, self.graph)
        self._destroy.atexit = False

    def _call(self, name: str, *arguments: Any) -> Any:
        from ....harness.cuda import call_driver

        return call_driver(self.driver, name, *arguments)

    def _check_context(self) -> None:
        """Raise `DeviceFailed` if no context is current in this thread."""
        from ....harness.machine import DeviceFailed

        if not int(self._call("cuCtxGetCurrent")):
            raise DeviceFailed("no context is current in the thread that uses a graph")

    def _node(self, step: Step, before: list[Any], addresses: Mapping[Image[Any], int], raw: Sequence[bytes]) -> Any:
        if step.launch is not None:
            params, _held = self._params(step, raw)
            return self._call("cuGraphAddKernelNode", self.graph, before, len(before), params)
        assert step.cleared is not None
        params = self.driver.CUDA_MEMSET_NODE_PARAMS()
        params.dst = self.driver.CUdeviceptr(addresses[step.cleared])
        params.value, params.elementSize = 0, 1
        params.width, params.height = bytes_of(step.cleared), 1
        context = self._call("cuCtxGetCurrent")
        return self._call("cuGraphAddMemsetNode", self.graph, before, len(before), params, context)

    def _params(self, step: Step, raw: Sequence[bytes]) -> tuple[Any, Any]:
        """The parameters of a kernel node, and what they point to, which the driver copies."""
        launch = step.launch
        assert launch is not None
        values = [np.frombuffer(each, np.uint8).copy() for each in raw]
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        params = self.driver.CUDA_KERNEL_NODE_PARAMS()
        params.func = self.functions[launch.kernel.name]
        params.gridDimX, params.gridDimY, params.gridDimZ = int(launch.grid[0]), int(launch.grid[1]), 1
        params.blockDimX, params.blockDimY, params.blockDimZ = int(launch.block[0]), int(launch.block[1]), 1
        params.sharedMemBytes = 0
        params.kernelParams = int(pointers.ctypes.data)
        return params, (values, pointers)

    def set(self, addresses: Mapping[Image[Any], int], numbers: Mapping[str, Any]) -> None:
        """Use these addresses and numbers from the next launch on. Buffers between launches must not change."""
        self._check_context()
        for index, (step, node) in enumerate(zip(self.plan.steps, self.nodes, strict=True)):
            if step.launch is None:
                continue
            raw = raw_arguments(step.launch, addresses, numbers)
            if raw != self.arguments[index]:
                params, _held = self._params(step, raw)
                self._call("cuGraphExecKernelNodeSetParams", self.executable, node, params)
                self.arguments[index] = raw

    def launch(self, stream: int) -> None:
        """Launch the graph on a stream, by its handle."""
        self._call("cuGraphLaunch", self.executable, self.driver.CUstream(stream))

    def close(self) -> None:
        """Destroy the graph. The driver first finishes a launch that is running."""
        self._destroy()


def _destroy(driver: Any, executable: Any, graph: Any) -> None:
    from ....harness.cuda import call_driver

    call_driver(driver, "cuGraphExecDestroy", executable)
    call_driver(driver, "cuGraphDestroy", graph)
