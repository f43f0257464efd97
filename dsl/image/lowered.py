"""A lowered pipeline: launches of kernels over images, and a host program that makes these launches.

The host program takes host arrays. It is run, measured, fused and verified like every other host program. It can also
take the sizes of the images. Then it checks first whether the same lowering makes the same kernels for these sizes,
because kernels differ between large images and images that are smaller than a window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...arch import ALWAYS_FITS
from .. import types as t
from ..errors import DslError
from ..functions import Param
from ..host_language import allocate, copy, fill, host
from ..kernel import PythonKernel
from ..program import GeneratedProgram, program_from_text
from .graph import Graph
from .operators import Image, Node, ScalarInput, Scratch
from .sizes import is_integer, text_of

if TYPE_CHECKING:
    from ..compilation import Nvcc
    from ..unit import Arithmetic

__all__ = ["KernelArgument", "Launch", "Lowered", "Options"]


@dataclass(frozen=True)
class Options:
    """What a lowering may choose. ``block``: the threads of a block along x and y.

    ``contract``: products of floats are contracted with sums within an expression of an operator; without it every
    operation rounds. ``loops``: repeated images are read by loops, as in listing 1 of the paper, also where one step is
    enough. ``nvcc`` compiles kernels for lowerings that compare them.
    """

    block: tuple[int, int] = (32, 8)
    loops: bool = False
    nvcc: Nvcc | None = None
    contract: bool = False

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic of kernels. It does not depend on what is inlined, so lowerings compute the same bits."""
        return "contracted" if self.contract else "rounded"

    def __post_init__(self) -> None:
        if not (isinstance(self.block, tuple) and len(self.block) == 2 and all(is_integer(n) for n in self.block)):  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
            raise DslError(f"a block is a pair of integers (x, y), not {self.block!r}")
        x, y = self.block
        if x < 1 or y < 1 or x * y > 1024:
            raise DslError(f"a block has 1 to 1024 threads, not {x} x {y}")


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """A parameter of a kernel and its value: an image for a pointer, a size, or a number that the pipeline takes."""

    param: Param
    value: Image[Any] | int | ScalarInput


@dataclass(frozen=True)
class Launch:
    """A launch. ``nodes`` are the operators that it computes. ``notes`` are lines about how it was made.

    The images of ``tiled`` are kept in shared memory, and a thread computes ``pixels`` pixels along x and y.
    """

    kernel: PythonKernel[...]
    grid: tuple[int, int]
    block: tuple[int, int]
    arguments: tuple[KernelArgument, ...]
    nodes: tuple[Node[Any], ...]
    notes: tuple[str, ...] = ()
    tiled: frozenset[Node[Any]] = frozenset()
    pixels: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        threads = self.block[0] * self.block[1]
        stated = self.kernel.bounds[0] if self.kernel.bounds else ALWAYS_FITS
        assert threads <= stated, f"{self.kernel.name} may need too many registers for blocks of {threads} threads"

    def images(self, *, written: bool) -> tuple[Image[Any], ...]:
        """The images that it writes, or those that it reads."""
        found: list[Image[Any]] = []
        for each in self.arguments:
            type = each.param.type
            if isinstance(each.value, Image) and isinstance(type, t.Pointer) and type.const is not written:
                found.append(each.value)
        return tuple(found)


@dataclass(frozen=True)
class Lowered:
    """A graph as launches, in an order in which they can run. ``lowering`` names how it was made."""

    graph: Graph
    lowering: str
    options: Options
    launches: tuple[Launch, ...]
    #: Makes the same kind of launches for another graph of the same pipeline.
    again: Callable[[Graph], Lowered] = field(repr=False)

    @property
    def kernels(self) -> dict[str, PythonKernel[...]]:
        """The kernels by their names."""
        return {launch.kernel.name: launch.kernel for launch in self.launches}

    @property
    def buffers(self) -> tuple[Image[Any], ...]:
        """The images between launches, which are neither inputs nor outputs."""
        outside = {*self.graph.inputs, *self.graph.outputs}
        written = [image for launch in self.launches for image in launch.images(written=True)]
        return tuple(dict.fromkeys(image for image in written if image not in outside))

    @property
    def cuda(self) -> str:
        """The CUDA C++ of all kernels. Each kernel is a translation unit of its own, because the functions of two
        kernels may have the same name."""
        return "\n".join(f"// translation unit: {name}\n{kernel.cuda}" for name, kernel in self.kernels.items())

    def program(self, *, any_size: bool = False) -> GeneratedProgram:
        """The launches as a `Program` over host arrays, whose arguments are the inputs, the outputs and the numbers.

        ``any_size``: the widths and heights of the inputs are arguments, too (``src_width``, ``src_height``). A run
        raises `DslError` for sizes that would need other kernels than this size.
        """
        return _program_of(self, any_size=any_size)

    def __str__(self) -> str:
        lines = [f"{self.graph.name}: {self.lowering}"]
        for launch in self.launches:
            x, y = (int(each) for each in launch.grid)
            made = ", ".join(image.name for image in launch.images(written=True))
            lines.append(f"  {launch.kernel.name}[({x}, {y}), {launch.block}] -> {made}")
            lines += [f"    {note}" for note in launch.notes]
        return "\n".join(lines)


def _program_of(lowered: Lowered, *, any_size: bool) -> GeneratedProgram:
    """The program. Its parameters are the inputs, the outputs, the numbers and, for ``any_size``, the sizes."""
    graph = lowered.graph
    if any_size and graph.retrace is None:
        raise DslError(f"{graph.name} was not built by a pipeline function, so it has one size only")
    names = _Names([*lowered.kernels, "allocate", "copy", "fill", "host", "check_sizes", graph.name, *t.SCALARS])
    for image in (*graph.inputs, *graph.outputs):
        names.keep(image.name)
    for scalar in graph.scalars:
        names.keep(scalar.name)
    namespace: dict[str, Any] = {
        **t.SCALARS,
        "allocate": allocate,
        "copy": copy,
        "fill": fill,
        "host": host,
        **lowered.kernels,
    }
    params = [f"{image.name}: host[{_word(image, namespace)}]" for image in (*graph.inputs, *graph.outputs)]
    params += [f"{scalar.name}: {scalar.type}" for scalar in graph.scalars]
    body: list[str] = []
    text: Callable[[int], str] = lambda value: str(int(value))  # noqa: E731
    if any_size:
        sizes = [name for image in graph.inputs for name in (f"{image.name}_width", f"{image.name}_height")]
        for size in sizes:
            names.keep(size)
        params += [f"{size}: i32" for size in sizes]
        namespace["check_sizes"] = _SizeCheck(lowered)
        body.append(f"check_sizes({', '.join(sizes)})")
        text = text_of
    memory: dict[Image[Any], str] = {}
    for image in (*graph.inputs, *lowered.buffers, *graph.outputs):
        memory[image] = names.fresh(f"gpu_{image.name}")
        word = _word(image, namespace)
        body.append(f"{memory[image]} = allocate({word}, ({text(image.width)}) * ({text(image.height)}))")
        if isinstance(image, Scratch) and image.is_zero:
            body.append(f"fill({memory[image]}, 0)")
    body += [f"copy({memory[image]}, {image.name})" for image in graph.inputs]
    for launch in lowered.launches:
        grid = ", ".join(text(each) for each in launch.grid)
        arguments = ", ".join(_value_text(each, memory, text) for each in launch.arguments)
        body.append(f"{launch.kernel.name}[({grid}), {launch.block}]({arguments})")
    body += [f"copy({image.name}, {memory[image]})" for image in graph.outputs]
    lines = [f"def {graph.name}({', '.join(params)}) -> None:", *(f"    {line}" for line in body)]
    return GeneratedProgram(program_from_text("\n".join(lines) + "\n", namespace, f"<{graph.name}>"))


def _value_text(argument: KernelArgument, memory: dict[Image[Any], str], text: Callable[[int], str]) -> str:
    """The argument of a launch as host code."""
    value = argument.value
    if isinstance(value, Image):
        return memory[value]
    return value.name if isinstance(value, ScalarInput) else text(value)


def _word(image: Image[Any], namespace: dict[str, Any]) -> str:
    """The name of the type of an image's pixels, which is added to the namespace."""
    namespace[image.pixel.name] = image.pixel
    return image.pixel.name


class _Names:
    """Names of a program, without repetition."""

    def __init__(self, taken: Sequence[str]) -> None:
        self.taken = set(taken)

    def keep(self, name: str) -> None:
        """Take exactly this name."""
        if name in self.taken:
            raise DslError(f"two things of the program would be called {name}: rename an image or a number")
        self.taken.add(name)

    def fresh(self, name: str) -> str:
        """Take this name, with underscores at its end if it is taken."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


class _SizeCheck:
    """Raises `DslError` for sizes for which a lowering would make other kernels or launches."""

    __name__ = "check_sizes"

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered
        #: By the sizes of all inputs: what is wrong with them; empty if nothing is.
        self._problems: dict[tuple[int, ...], str] = {}

    def __call__(self, *sizes: int) -> None:
        if sizes not in self._problems:
            self._problems[sizes] = self._problem(sizes)
        if self._problems[sizes]:
            raise DslError(self._problems[sizes])

    def _problem(self, sizes: tuple[int, ...]) -> str:
        retrace = self.lowered.graph.retrace
        assert retrace is not None
        shapes = list(zip(sizes[::2], sizes[1::2], strict=True))
        other = self.lowered.again(retrace(shapes))
        names = [
            name for image in self.lowered.graph.inputs for name in (f"{image.name}_width", f"{image.name}_height")
        ]
        values = dict(zip(names, sizes, strict=True))
        if [_evaluated(launch, values) for launch in self.lowered.launches] == [
            _evaluated(launch, values) for launch in other.launches
        ]:
            return ""
        own = ", ".join(f"{int(image.width)} x {int(image.height)}" for image in self.lowered.graph.inputs)
        shown = ", ".join(f"{width} x {height}" for width, height in shapes)
        name, lowering = self.lowered.graph.name, self.lowered.lowering
        return f"{name} ({lowering}) for {own} pixels has other kernels than for {shown}: lower it for this size"


def _evaluated(launch: Launch, sizes: dict[str, int]) -> tuple[Any, ...]:
    """A launch with the values that its sizes have for these sizes of inputs."""
    number: Callable[[int], int] = lambda value: eval(text_of(value), {"min": min, "max": max}, dict(sizes))  # noqa: E731
    values = [
        each.value.name if isinstance(each.value, Image | ScalarInput) else number(each.value)
        for each in launch.arguments
    ]
    images = [
        (each.value.name, number(each.value.width), number(each.value.height))
        for each in launch.arguments
        if isinstance(each.value, Image)
    ]
    return launch.kernel.cuda, tuple(number(each) for each in launch.grid), launch.block, values, images
