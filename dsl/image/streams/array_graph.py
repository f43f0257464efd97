"""A plan as a CUDA graph over arrays of PyTorch, CuPy and others, which stay where they are.

The graph keeps its buffers between launches, as arrays of the same library. The addresses of inputs and outputs are
set before each launch. Launches of one graph never run at a time, so these buffers are used by one launch only. The
library may use a buffer again as soon as it is freed, on the stream on which it was made. So buffers and kernels of a
graph that nothing refers to any more are freed when its last launch has ended.

Requires: the device of the arrays is the current one, or the thread has no current context.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Mapping
from typing import Any

from ..arrays import address_of, bytes_like
from ..operators import Image
from .cuda_graph import CudaGraph
from .planning import ExecutionPlan

__all__ = ["ArrayGraph"]


class ArrayGraph:
    """The graph. ``ptx`` has the PTX of each kernel by its name; ``like`` is an array of the library that
    allocates the buffers, on the GPU ``device``."""

    def __init__(self, plan: ExecutionPlan, ptx: Mapping[str, str], like: Any, device: int) -> None:
        from ....harness.arm_code import arch_on
        from ....harness.cuda import require_driver
        from ....toolchain.cubin_cache import assemble_kept

        plan.check()
        self.plan, self.driver = plan, require_driver()
        core = importlib.import_module("cuda.core")
        if not int(self._current_context()):
            core.Device(device).set_current()
        self._context = self._current_context()
        major, minor = core.Device().compute_capability
        #: The loaded kernels. They must live as long as the graph.
        self.kernels: list[Any] = []
        self.functions: dict[str, Any] = {}
        for name, kernel in plan.lowered.kernels.items():
            text = ptx[name]
            code = core.ObjectCode.from_cubin(assemble_kept(text, arch_on(text, 10 * major + minor)).cubin)
            found = code.get_kernel(kernel.entry(text))
            status, self.functions[name] = self.driver.cuKernelGetFunction(found.handle)
            assert status == self.driver.CUresult.CUDA_SUCCESS, status
            self.kernels += [code, found]
        self.slots = [bytes_like(like, size, is_zero=False) for size in plan.sharing.slots]
        self.buffers = {image: address_of(self.slots[slot]) for image, slot in plan.sharing.slot_of.items()}
        self._graph: CudaGraph | None = None
        #: Recorded behind each launch.
        self._launched = self._call("cuEventCreate", self.driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        held = self.kernels, self.slots
        weakref.finalize(self, _wait, self.driver, self._context, self._launched, held).atexit = False

    def _call(self, name: str, *arguments: Any) -> Any:
        from ....harness.cuda import call_driver

        return call_driver(self.driver, name, *arguments)

    def _current_context(self) -> Any:
        return self._call("cuCtxGetCurrent")

    def _enter(self) -> None:
        """Make the context of the graph current, if this thread has none: libraries of arrays may not have used the GPU
        in it."""
        if not int(self._current_context()):
            self._call("cuCtxSetCurrent", self._context)

    def launch(self, arrays: Mapping[Image[Any], Any], numbers: Mapping[str, Any], stream: int) -> None:
        """Launch the graph for these inputs and outputs."""
        self._enter()
        addresses = {**self.buffers, **{image: address_of(array) for image, array in arrays.items()}}
        if self._graph is None:
            self._graph = CudaGraph(self.plan, self.functions, addresses, numbers)
        else:
            self._graph.set(addresses, numbers)
        self._graph.launch(stream)
        self._call("cuEventRecord", self._launched, self.driver.CUstream(stream))


def _wait(driver: Any, context: Any, launched: Any, _held: object) -> None:
    """Wait for the last launch of a graph. What it uses is held until then."""
    from ....harness.cuda import call_driver, for_release

    with for_release(driver, context):
        call_driver(driver, "cuEventSynchronize", launched)
        call_driver(driver, "cuEventDestroy", launched)
