"""Pipelines that run: `pipeline` makes one of a Python function; a call compiles it and computes arrays.

NumPy arrays are copied to a backend: a GPU if there is one, otherwise the emulator. Arrays of CuPy, PyTorch and others
on a GPU are read where they are, on the current stream of their library, and results are arrays of the same library.
"""

from __future__ import annotations

import ast
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from ...spelling import did_you_mean
from .. import types as t
from ..compilation import Nvcc
from ..errors import DslError, FunctionSource, source_of
from ..kernel import Kernel
from ..scope import Scope
from .arrays import (
    bytes_like,
    check_apart,
    check_array,
    check_writeable,
    device_of,
    empty_like,
    handle_of,
    library_of,
    shape_of,
    stream_of,
)
from .compiling import compiler
from .graph import Graph, graph_of
from .group_lowering import lower_plan
from .groups import Plan
from .lowered import KernelArgument, Lowered, Options
from .lowerings import lower
from .operators import Image, ImageType, InputImage, ScalarInput, Scratch, caller
from .schedule.auto import scheduled
from .sizes import Size, is_integer
from .streams.planning import EXECUTIONS, ExecutionPlan, by_resources, plan_execution, usage_by
from .windows import layout_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..backend import Backend
    from ..run import Loaded
    from .streams.array_graph import ArrayGraph
    from .streams.running import PlanRun

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["Compiled", "Pipeline", "default_backend", "pipeline"]


def default_backend() -> Backend:
    """The GPU if it can be used, otherwise the emulator."""
    from ...harness.machine import MachineMissing

    try:
        from ...harness.cuda import CudaBackend

        return CudaBackend()
    except MachineMissing:
        from ...emulator.backend import EmulatorBackend

        return EmulatorBackend()


class Compiled:
    """A lowered pipeline for images of fixed sizes, with its compiler. Kernels are compiled when they are needed.

    ``execution``: ``stream`` makes the launches one after the other; the others run a plan (`streams.planning`).
    """

    def __init__(self, lowered: Lowered, nvcc: Nvcc, execution: str = "stream") -> None:
        if execution not in EXECUTIONS:
            hint = did_you_mean(str(execution), EXECUTIONS)
            raise DslError(f"there is no execution {execution!r}{hint}; there are {', '.join(EXECUTIONS)}")
        self.lowered = lowered
        self.nvcc = nvcc
        self.execution = execution
        #: Held by a call while it uses what calls share: memory of plans, arguments of graphs, backends.
        self._lock = threading.Lock()
        #: By the number of the device: the graph over arrays on it.
        self._graphs: dict[int, ArrayGraph] = {}
        #: The plan on the backend of the last call with ``backend``, and on the default backend.
        self._planned_on_given: tuple[Backend, PlanRun] | None = None
        self._planned_on_default: PlanRun | None = None
        #: By the number of the device: the kernels of the launches.
        self._on_device: dict[int, list[Any]] = {}
        #: The host program on the backend of the last call with ``backend``, and on the default backend.
        self._on_given: tuple[Backend, Loaded] | None = None
        self._on_default: Loaded | None = None

    @property
    def graph(self) -> Graph:
        """The graph of the pipeline."""
        return self.lowered.graph

    @property
    def cuda(self) -> str:
        """The CUDA C++ of all kernels, which are separate translation units."""
        return self.lowered.cuda

    @cached_property
    def ptx(self) -> dict[str, str]:
        """The PTX of each kernel by its name. Raises `DslError`."""
        return {name: kernel.ptx(self.nvcc) for name, kernel in self.lowered.kernels.items()}

    @cached_property
    def plan(self) -> ExecutionPlan:
        """How the launches run. Compiles the kernels: the plan depends on their registers and shared memory."""
        return plan_execution(self.lowered, self.execution, by_resources(self.ptx), usage=usage_by(self.ptx))

    def __call__(self, *arguments: Any, out: Any = None, backend: Backend | None = None) -> Any:
        """Compute the outputs for images and numbers, in the order of the pipeline's parameters.

        ``out``: the array, or a tuple of arrays, for the results. ``backend`` runs NumPy arrays. The result is an
        array, or a tuple if the pipeline has several outputs.
        """
        arrays, numbers = self._split(arguments)
        outputs = self._outputs(out)
        for image, array in zip(self.graph.inputs, arrays, strict=True):
            library_of([array], f"image {image.name}")
        library = library_of([*arrays, *outputs], "an array of out=")
        for image, array in zip(self.graph.inputs, arrays, strict=True):
            check_array(array, image.pixel, f"image {image.name}", image.size)
        for image, array in zip(self.graph.outputs, outputs, strict=False):
            check_array(array, image.pixel, f"output {image.name}", image.size)
        check_writeable(outputs)
        if library == "numpy":
            made = self._on_host(arrays, numbers, outputs, backend)
        else:
            if backend is not None:
                raise DslError("a backend runs NumPy arrays; other arrays stay where they are")
            made = self._in_place(arrays, numbers, outputs)
        return made[0] if len(made) == 1 else tuple(made)

    def _split(self, arguments: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        graph = self.graph
        if len(arguments) != len(graph.inputs) + len(graph.scalars):
            names = ", ".join(each.name for each in (*graph.inputs, *graph.scalars))
            raise DslError(f"{graph.name} takes {names}")
        numbers = {
            each.name: _number(value, each)
            for each, value in zip(graph.scalars, arguments[len(graph.inputs) :], strict=True)
        }
        return list(arguments[: len(graph.inputs)]), numbers

    def _outputs(self, out: Any) -> list[Any]:
        if out is None:
            return []
        outputs: list[Any] = list(cast("Sequence[Any]", out)) if isinstance(out, tuple | list) else [out]
        if len(outputs) != len(self.graph.outputs):
            have, given = len(self.graph.outputs), len(outputs)
            raise DslError(f"{self.graph.name} has {have} output{'s' * (have != 1)}, and out= has {given}")
        return outputs

    # --- NumPy -------------------------------------------------------------------------------------------------

    def _on_host(
        self, arrays: list[Any], numbers: dict[str, Any], outputs: list[Any], backend: Backend | None
    ) -> list[Any]:
        import numpy as np

        pixels = [_pixels(array, image.pixel) for image, array in zip(self.graph.inputs, arrays, strict=True)]
        if self.execution == "stream":
            values: dict[str, Any] = dict(numbers)
            values.update(zip((image.name for image in self.graph.inputs), pixels, strict=True))
            for image in self.graph.outputs:
                values[image.name] = np.zeros(image.width * image.height, t.dtype_of_type(image.pixel))
            with self._lock:
                by_name = self._host_program(backend).run(values)
            results = [by_name[image.name] for image in self.graph.outputs]
        else:
            with self._lock:
                results = self._plan_run(backend).run(pixels, numbers)
        made: list[Any] = []
        for number, image in enumerate(self.graph.outputs):
            dtype, lanes = layout_of(image.pixel)
            shape = (int(image.height), int(image.width)) + ((lanes,) if lanes > 1 else ())
            result: NDArray[Any] = results[number].view(dtype).reshape(shape)
            if outputs:
                outputs[number][...] = result
                result = outputs[number]
            made.append(result)
        return made

    def _host_program(self, backend: Backend | None) -> Loaded:
        """The host program, loaded on ``backend``, or on the default backend if it is None."""
        if backend is None:
            self._on_default = self._on_default or self._loaded(default_backend())
            return self._on_default
        if self._on_given is None or self._on_given[0] is not backend:
            self._on_given = backend, self._loaded(backend)
        return self._on_given[1]

    def _plan_run(self, backend: Backend | None) -> PlanRun:
        """The plan, loaded on ``backend``, or on the default backend if it is None."""
        from .streams.running import PlanRun

        if backend is None:
            if self._planned_on_default is None:
                self._planned_on_default = PlanRun(self.plan, default_backend(), self.ptx)
            return self._planned_on_default
        if self._planned_on_given is None or self._planned_on_given[0] is not backend:
            if self._planned_on_given is not None:
                self._planned_on_given[1].close()
            self._planned_on_given = backend, PlanRun(self.plan, backend, self.ptx)
        return self._planned_on_given[1]

    def _loaded(self, backend: Backend) -> Loaded:
        ptx: Callable[[Kernel[...]], str] = lambda kernel: self.ptx[kernel.name]  # noqa: E731
        return self.lowered.program().load(backend, ptx)

    # --- arrays on a GPU ---------------------------------------------------------------------------------------

    def _in_place(self, arrays: list[Any], numbers: dict[str, Any], outputs: list[Any]) -> list[Any]:
        check_apart(arrays, outputs)
        devices = dict.fromkeys(map(_device_number, (*arrays, *outputs)))
        if len(devices) > 1:
            raise DslError(f"the arrays are on different GPUs: {', '.join(map(str, devices))}")
        first = arrays[0]
        with device_of(first):
            memory: dict[Image[Any], Any] = dict(zip(self.graph.inputs, arrays, strict=True))
            made = outputs or [empty_like(first, image.pixel, image.size) for image in self.graph.outputs]
            memory.update(zip(self.graph.outputs, made, strict=True))
            stream = stream_of(first)
            if self.execution != "stream" and self.plan.is_graph:
                with self._lock:
                    self._array_graph(first).launch(memory, numbers, handle_of(stream))
                return made
            last = self._last_launches()
            for number, (launch, kernel) in enumerate(zip(self.lowered.launches, self._kernels(first), strict=True)):
                for image in launch.images(written=True):
                    if isinstance(image, Scratch):
                        memory[image] = bytes_like(first, image.width * t.size_of(image.pixel), is_zero=image.is_zero)
                    elif image not in memory:
                        memory[image] = empty_like(first, image.pixel, image.size)
                values = [_value(each, memory, numbers) for each in launch.arguments]
                x, y = launch.grid
                kernel.launch((int(x), int(y)), launch.block, *values, stream=stream)
                for image in [image for image in memory if last.get(image) == number]:
                    del memory[image]
        return made

    def _array_graph(self, array: Any) -> ArrayGraph:
        """The graph on the device of an array, which is the current one."""
        from .streams.array_graph import ArrayGraph

        number = _device_number(array)
        if number not in self._graphs:
            self._graphs[number] = ArrayGraph(self.plan, self.ptx, array, number)
        return self._graphs[number]

    def _last_launches(self) -> dict[Image[Any], int]:
        """By intermediate image: the number of the last launch that uses it."""
        buffers = set(self.lowered.buffers)
        return {
            image: number
            for number, launch in enumerate(self.lowered.launches)
            for image in (*launch.images(written=False), *launch.images(written=True))
            if image in buffers
        }

    def _kernels(self, array: Any) -> list[Any]:
        """The kernels of the launches, loaded on the device of an array."""
        from ...runtime import load

        number = _device_number(array)
        with self._lock:  # a second set of kernels would be unloaded while they run
            if number not in self._on_device:
                modules = {name: load(text)[self.lowered.kernels[name].entry(text)] for name, text in self.ptx.items()}
                self._on_device[number] = [modules[launch.kernel.name] for launch in self.lowered.launches]
        return self._on_device[number]


def _device_number(array: Any) -> int:
    """The number of the GPU of an array."""
    device = getattr(array, "device", 0)
    return int(getattr(device, "index", None) or getattr(device, "id", None) or 0)


def _number(value: Any, scalar: ScalarInput) -> Any:
    from ..host_values import scalar as converted

    return converted(value, scalar.type, f"number {scalar.name}", None)


def _value(argument: KernelArgument, memory: Mapping[Image[Any], Any], numbers: Mapping[str, Any]) -> Any:
    """The argument of a launch."""
    value, type = argument.value, argument.param.type
    if isinstance(value, Image):
        return memory[value]
    if isinstance(value, ScalarInput):
        return numbers[value.name]
    assert isinstance(type, t.Scalar)
    return type.dtype.type(int(value))


def _pixels(array: NDArray[Any], pixel: t.Scalar | t.Struct) -> NDArray[Any]:
    """The pixels of an array one after the other."""
    import numpy as np

    whole = np.ascontiguousarray(array).reshape(-1)
    return whole.view(t.dtype_of_type(pixel)) if isinstance(pixel, t.Struct) else whole


class Pipeline(Generic[P, R]):
    """The result of `pipeline`."""

    def __init__(self, function: Callable[P, R]) -> None:
        if not inspect.isfunction(function):
            raise DslError(f"a pipeline is a Python function, not {function!r}", caller())
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        #: By (shapes, lowering, options): the compiled pipeline.
        self._compiled: dict[object, Compiled] = {}

    @cached_property
    def source(self) -> FunctionSource:
        """The Python source."""
        return source_of(self.function)

    @cached_property
    def params(self) -> dict[str, ImageType | t.Scalar]:
        """The types of the parameters: images, and numbers. Raises `DslError`."""
        tree, scope = self.source.tree, Scope(self.function)
        found: dict[str, ImageType | t.Scalar] = {}
        for extra in (tree.args.vararg, tree.args.kwarg, *tree.args.kwonlyargs, *tree.args.defaults):
            if extra is not None:
                raise self.source.error("a pipeline has plain parameters only, without default values", extra)
        for argument in (*tree.args.posonlyargs, *tree.args.args):
            if argument.annotation is None:
                raise self.source.error(f"parameter {argument.arg} needs a type, such as Image[f32] or f32", argument)
            value = scope.annotation(argument.annotation, self.source, argument.arg)
            if not isinstance(value, ImageType | t.Scalar):
                raise self.source.error("a pipeline takes images, as Image[f32], and numbers", argument.annotation)
            found[argument.arg] = value
        if not any(isinstance(each, ImageType) for each in found.values()):
            raise self.source.error("a pipeline takes at least one image", tree)
        return found

    def graph(self, width: int = 0, height: int = 0, *, sizes: Mapping[str, tuple[int, int]] | None = None) -> Graph:
        """The graph for images of this width and height, or of the (width, height) that ``sizes`` has for an input.
        Sizes are in pixels. Raises `DslError` for an unknown image or a missing size."""
        images = self.images
        same = dict.fromkeys(images, (width, height)) if (width, height) != (0, 0) else {}
        chosen = {**same, **(sizes or {})}
        if unknown := sorted(chosen.keys() - images):
            raise DslError(f"{self.name} has no image {', '.join(unknown)}")
        if missing := [name for name in images if name not in chosen]:
            raise DslError(f"{self.name} needs the size of image {', '.join(missing)}")
        return self._traced([chosen[name] for name in images])

    def _traced(self, sizes: Sequence[tuple[int, int]]) -> Graph:
        values: dict[str, Any] = {}
        inputs: list[InputImage[Any]] = []
        scalars: list[ScalarInput] = []
        remaining = iter(sizes)
        for name, type in self.params.items():
            if isinstance(type, ImageType):
                width, height = next(remaining)
                made: InputImage[Any] = InputImage(
                    name, type.pixel, Size(width, f"{name}_width"), Size(height, f"{name}_height")
                )
                inputs.append(made)
                values[name] = made
            else:
                scalars.append(ScalarInput(name, type))
                values[name] = scalars[-1]
        function: Callable[..., Any] = self.function
        returned = function(**values)
        outputs: list[Any] = list(cast("Sequence[Any]", returned)) if isinstance(returned, tuple | list) else [returned]
        if not outputs or not all(isinstance(each, Image) for each in outputs):
            raise self.source.error(f"{self.name} must return an image, or a tuple of images", self.source.tree)
        self._check_result(outputs)
        return graph_of(self.name, outputs, inputs, scalars, self._traced)

    def _check_result(self, outputs: Sequence[Image[Any]]) -> None:
        """Raise `DslError` if the annotation of the result is another type of images."""
        node = self.source.tree.returns
        if not isinstance(node, ast.Subscript) or len(outputs) != 1:
            return
        declared = Scope(self.function).annotation(node, self.source, "return")
        if isinstance(declared, ImageType) and declared.pixel != outputs[0].pixel:
            message = f"{self.name} returns an image of {outputs[0].pixel}, but {declared.pixel} is declared"
            raise self.source.error(message, node)

    def compile(
        self,
        shape: tuple[int, int] | Mapping[str, tuple[int, int]],
        *,
        lowering: str = "naive",
        schedule: str | Plan = "",
        block: tuple[int, int] = (32, 8),
        flags: Sequence[str] = (),
        loops: bool = False,
        contract: bool = False,
        arch: str = "",
        nvcc: Nvcc | None = None,
        execution: str = "stream",
    ) -> Compiled:
        """The pipeline for images of one (height, width), or for one of each input by its name.

        ``lowering`` is one of `lowerings.LOWERINGS`. ``schedule`` says instead which groups, tiles and blocks
        kernels have: a `groups.Plan`, its JSON, or a name such as ``auto`` (`schedule.auto`). ``flags`` are flags of
        nvcc, ``arch`` its target, by default `arch.DEFAULT_TARGET`; ``nvcc`` is used instead of both. ``loops`` and
        ``contract`` are those of `Options`. ``execution``: ``stream`` makes the launches one after the other;
        ``graph`` makes a CUDA graph of them, and ``pipelined`` one in the order of kernel pipelining; with ``auto``
        a model chooses. The results are kept. ``shape`` is in pixels, ``block`` is (width, height) in threads.
        Raises `DslError`.
        """
        sizes, chosen = self._sizes(shape), _nvcc(flags, arch, nvcc)
        if not isinstance(schedule, str | Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DslError(f"a schedule is a Plan or a text, not {schedule!r}")
        if schedule and lowering != "naive":
            raise DslError(f"a schedule is a lowering of its own: leave out lowering={lowering!r}")
        written = schedule.to_json() if isinstance(schedule, Plan) else schedule
        settings = lowering, written, block, tuple(flags), loops, contract, arch, nvcc, execution
        options = Options(block, loops, chosen, contract)
        key = tuple(sorted(sizes.items())), *settings
        if key not in self._compiled:
            graph = self.graph(sizes=sizes)
            if written:
                lowered = lower_plan(scheduled(graph, options, written), options, "schedule")
            else:
                lowered = lower(graph, lowering, options)
            # Two threads get the same object: one that is not kept would end while its launches run.
            return self._compiled.setdefault(key, Compiled(lowered, chosen, execution))
        return self._compiled[key]

    def tune(
        self,
        shape: tuple[int, int] | Mapping[str, tuple[int, int]],
        *,
        numbers: Mapping[str, Any] | None = None,
        seconds: float = 60,
        flags: Sequence[str] = (),
        progress: Callable[[str], None] = lambda line: None,
    ) -> Plan:
        """The schedule that is fastest on the first GPU, for ``compile(schedule=...)``. Raises `MachineMissing`.

        ``numbers`` are the numbers that the pipeline takes. The search takes ``seconds`` seconds; ``progress`` gets
        lines about it.
        """
        from .schedule.timing import tuned

        options = Options(nvcc=_nvcc(flags))
        return tuned(self.graph(sizes=self._sizes(shape)), options, numbers or {}, seconds, progress).plan

    def _sizes(self, shape: tuple[int, int] | Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """By image: its width and height."""
        by_name = shape if isinstance(shape, Mapping) else dict.fromkeys(self.images, shape)
        for name, each in by_name.items():
            if not (isinstance(each, tuple) and len(each) == 2 and all(map(is_integer, each))):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise DslError(f"the shape of image {name} is a tuple (height, width), not {each!r}")
        return {name: (width, height) for name, (height, width) in by_name.items()}

    @property
    def images(self) -> list[str]:
        """The names of the parameters that are images."""
        return [name for name, type in self.params.items() if isinstance(type, ImageType)]

    def __call__(self, *arguments: Any, out: Any = None, backend: Backend | None = None, **named: Any) -> Any:
        """Compute the outputs with the naive lowering. `Compiled` describes arguments and results."""
        signature = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self.params]
        )
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError as why:
            raise DslError(f"{self.name}: {why}; it takes {', '.join(self.params)}") from None
        images = {name: bound.arguments[name] for name in self.images}
        numbers = [value for name, value in bound.arguments.items() if name not in images]
        for name, array in images.items():
            if isinstance(array, Image):
                message = f"{self.name} computes arrays: within another pipeline, call {self.name}.function"
                raise DslError(message, caller())
            library_of([array], f"image {name}")
            pixel = self.params[name]
            assert isinstance(pixel, ImageType)
            check_array(array, pixel.pixel, f"image {name}")
        shapes = {name: (shape_of(array)[0], shape_of(array)[1]) for name, array in images.items()}
        return self.compile(shapes)(*images.values(), *numbers, out=out, backend=backend)

    def __repr__(self) -> str:
        return f"<pipeline {self.name}>"


def _nvcc(flags: Sequence[str], arch: str = "", nvcc: Nvcc | None = None) -> Nvcc:
    """``nvcc``, or the one of this machine with these flags."""
    if isinstance(flags, str):
        raise DslError(f"flags= is a sequence of flags, such as ({flags!r},)")
    return nvcc if nvcc is not None else compiler(flags, arch)


def pipeline(function: Callable[P, R]) -> Pipeline[P, R]:
    """Make a pipeline of a Python function of images that calls operators. It runs once for each size of images."""
    return Pipeline(function)
