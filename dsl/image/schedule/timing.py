"""Times of schedules on a GPU.

Each time is the median of CUDA graphs with several runs, divided by the runs. Images have random pixels. The results of
a schedule must be the bits of naive kernels.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from typing import TYPE_CHECKING, Any

from ....toolchain.cubin_cache import assemble_kept
from ... import types as t
from ...compilation import Nvcc
from ...errors import DslError
from ...kernel import PythonKernel
from ..graph import Graph
from ..group_lowering import lower_plan
from ..groups import Plan
from ..lowered import KernelArgument, Lowered, Options
from ..lowering import naive
from ..operators import Image, ScalarInput, Scratch
from ..windows import layout_of
from .tuning import Tuned, tune

if TYPE_CHECKING:
    from ....harness.cuda import CudaBackend, CudaBuffer

__all__ = ["Timer", "tuned"]

#: Runs of a CUDA graph, and how often it is launched.
_RUNS, _ROUNDS = 10, 7


class Timer:
    """Times plans of one graph. ``numbers`` are the numbers that the pipeline takes, by name."""

    def __init__(self, backend: CudaBackend, graph: Graph, options: Options, numbers: Mapping[str, Any]) -> None:
        import numpy as np

        assert options.nvcc is not None
        self.backend, self.graph, self.options, self.numbers = backend, graph, options, numbers
        self.nvcc: Nvcc = options.nvcc
        #: By CUDA C++ of a kernel: its machine code.
        self._cubins: dict[str, bytes] = {}
        self._inputs: dict[Image[Any], CudaBuffer] = {}
        rng = np.random.default_rng(0)
        for image in graph.inputs:
            dtype, lanes = layout_of(image.pixel)
            count = int(image.width) * int(image.height) * lanes
            raw = rng.integers(1, 255, count * dtype.itemsize, np.uint8)
            if dtype.kind == "f" and dtype.itemsize > 2:
                # Random bits would be NaN or huge, for which functions take longer.
                raw = rng.random(count).astype(dtype).view(np.uint8)
            self._inputs[image] = backend.allocate(raw.nbytes)
            backend.write(self._inputs[image], raw)
        self._expected: list[bytes] | None = None

    def compile(self, plans: Sequence[Plan]) -> None:
        """Compile the kernels of plans, several at a time."""
        lowered = [lower_plan(plan, self.options, "schedule") for plan in plans]
        self._compile([*lowered, *([naive(self.graph, self.options)] if self._expected is None else [])])

    def _compile(self, lowered: Sequence[Lowered]) -> None:
        kernels = {kernel.cuda: kernel for each in lowered for kernel in each.kernels.values()}
        missing = {cuda: kernel for cuda, kernel in kernels.items() if cuda not in self._cubins}

        def machine_code(kernel: PythonKernel[...]) -> bytes:
            return assemble_kept(kernel.ptx(self.nvcc), self.nvcc.arch).cubin

        with ThreadPoolExecutor(cpu_count() or 1) as pool:
            self._cubins.update(zip(missing, pool.map(machine_code, missing.values()), strict=True))

    def microseconds(self, plan: Plan) -> float:
        """The time of a plan. Raises `DslError` if its results are not those of naive kernels."""
        if self._expected is None:
            self._expected = self._run(naive(self.graph, self.options))[1]
        seconds, results = self._run(lower_plan(plan, self.options, "schedule"))
        if results != self._expected:
            raise DslError(f"a schedule of {self.graph.name} gives other pixels than naive kernels:\n{plan}")
        return seconds * 1e6

    def _run(self, lowered: Lowered) -> tuple[float, list[bytes]]:
        """The median time of a run, and the bytes of the outputs."""
        import numpy as np

        self._compile([lowered])
        backend, memory = self.backend, dict(self._inputs)
        own = [*lowered.buffers, *lowered.graph.outputs]
        try:
            for image in own:
                memory[image] = backend.allocate(_bytes(image))
            calls = self._calls(lowered, memory)

            def body() -> None:
                for _ in range(_RUNS):
                    for call in calls:
                        call()

            for image in own:
                backend.fill(memory[image], 0)
            for call in calls:
                call()
            backend.synchronize()
            results = [
                backend.read(memory[image], np.dtype(np.uint8), _bytes(image)).tobytes()
                for image in lowered.graph.outputs
            ]
            graph = backend.graph(body)
            times = [backend.seconds_of_graph(graph) for _ in range(_ROUNDS + 1)]
            backend.destroy_graph(graph)
        finally:
            for image in own:
                if image in memory:
                    backend.free(memory[image])
        return statistics.median(times[1:]) / _RUNS, results

    def _calls(self, lowered: Lowered, memory: Mapping[Image[Any], CudaBuffer]) -> list[Callable[[], object]]:
        zero = [image for image in lowered.buffers if isinstance(image, Scratch) and image.is_zero]
        calls: list[Callable[[], object]] = [self.backend.fill_call(memory[image], 0) for image in zero]
        for launch in lowered.launches:
            kernel = self.backend.keep(
                self.backend.load_cubin(self._cubins[launch.kernel.cuda]).kernel(launch.kernel.name)
            )
            values = [self._value(argument, memory) for argument in launch.arguments]
            (x, y), (threads_x, threads_y) = launch.grid, launch.block
            packed = self.backend.pack(kernel, values)
            grid = int(x), int(y), 1
            calls.append(self.backend.launch_call(kernel, grid, (threads_x, threads_y, 1), 0, packed))
        return calls

    def _value(self, argument: KernelArgument, memory: Mapping[Image[Any], CudaBuffer]) -> Any:
        import numpy as np

        value = argument.value
        if isinstance(value, Image):
            return memory[value]
        if isinstance(value, ScalarInput):
            return value.type.dtype.type(self.numbers[value.name])
        return np.int32(int(value))


def tuned(
    graph: Graph, options: Options, numbers: Mapping[str, Any], seconds: float, progress: Callable[[str], None]
) -> Tuned:
    """The fastest schedule on the first GPU (`tuning.tune`). ``numbers`` are those that the pipeline takes. Raises
    `MachineMissing`; `DslError` if a number is missing."""
    from ....harness.cuda import open_backend
    from ....harness.machine import MachineMissing

    if missing := [each.name for each in graph.scalars if each.name not in numbers]:
        raise DslError(f"{graph.name} takes the number {missing[0]}")
    try:
        backend = open_backend()
    except MachineMissing as error:
        raise MachineMissing(f"times are measured on a GPU: {error.reason}", error.advice) from error
    return tune(graph, options, Timer(backend, graph, options, numbers), seconds, progress)


def _bytes(image: Image[Any]) -> int:
    return int(image.width) * int(image.height) * t.size_of(image.pixel)
