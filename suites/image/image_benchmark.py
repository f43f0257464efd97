"""Makes a `Benchmark` of an image pipeline: the program for any size, its data, and its reference.

The program is lowered without partitioning or fusion (`naive`). Other lowerings are variants of it, such as
`lowering:isp`; they are lowered for the size of the data. Programs with a boundary have the parameter ``boundary``.
The parameters ``width`` and ``height`` replace those of a size. Kernels are compiled with ``-fmad=false``, so that sums
of products equal those of NumPy bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from ...dsl import types as t
from ...dsl.errors import DslError
from ...dsl.host_program import HostProgram
from ...dsl.image import Boundary, Graph, Pipeline, lower
from ...dsl.image.windows import layout_of
from ...dsl.program import Program
from ..registry import EXACT, Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray


__all__ = ["BOUNDARIES", "Filter", "Pixels", "image_benchmark", "ulps"]

#: The values of the parameter ``boundary``.
BOUNDARIES: dict[str, Boundary] = {
    "clamp": Boundary.CLAMP,
    "mirror": Boundary.MIRROR,
    "reflect": Boundary.REFLECT,
    "repeat": Boundary.REPEAT,
    "constant": Boundary.constant(0),
}

#: columns, rows
_SHAPES = {"tiny": (97, 19), "small": (512, 512), "full": (4096, 4096)}

#: Width, height and random numbers give the image (height, width[, components]).
Pixels: TypeAlias = "Callable[[int, int, Any], NDArray[Any]]"


def ulps(count: int) -> Tolerance:
    """At most this many units in the last place of an f32."""
    return Tolerance(relative=count * 2.0**-24)


@dataclass(frozen=True)
class Filter:
    """A pipeline with one image ``src``, by its boundary. ``reference(image, boundary, **numbers)`` computes its one
    output with NumPy; both images have the shape (height, width[, components]). ``shapes`` are those sizes that differ
    from the usual ones. ``numbers`` are the numbers that the pipeline takes. ``others`` are further images of the same
    size that it takes, by their names; the reference gets them by name, too."""

    name: str
    pipeline: Callable[[Boundary], Pipeline[..., Any]]
    pixels: Pixels
    reference: Callable[..., NDArray[Any]]
    stresses: Sequence[str]
    description: str
    tolerance: Tolerance = EXACT
    has_boundary: bool = True
    shapes: Mapping[str, tuple[int, int]] | None = None
    numbers: Mapping[str, float] | None = None
    others: Mapping[str, Pixels] | None = None

    def shape(self, size: str) -> tuple[int, int]:
        """Width and height of a size."""
        return (self.shapes or {}).get(size) or _SHAPES[size]


def image_benchmark(filter: Filter) -> Benchmark:
    """The benchmark of a filter. Its default boundary is ``clamp``."""
    return _Maker(filter, "clamp").benchmark


@dataclass(frozen=True)
class _Maker:
    """Makes the parts of a benchmark for one boundary."""

    filter: Filter
    boundary: str

    @property
    def benchmark(self) -> Benchmark:
        one = self.filter
        return Benchmark(
            suite="image",
            name=one.name,
            program=_LazyProgram(self),
            make_data=self.make_data,
            reference=self.reference,
            stresses=one.stresses,
            description=one.description,
            tolerance=one.tolerance,
            sizes={size: "{} x {} pixels".format(*one.shape(size)) for size in _SHAPES},
            flags=("-fmad=false",),
            work=self.work,
            parameters={"width": 0, "height": 0},
            choices={"boundary": tuple(BOUNDARIES)} if one.has_boundary else {},
            choose=self.with_boundary if one.has_boundary else None,
            pipeline=self.pipeline,
        )

    def with_boundary(self, boundary: str) -> Benchmark:
        return replace(self, boundary=boundary).benchmark

    @cached_property
    def pipeline(self) -> Pipeline[..., Any]:
        return self.filter.pipeline(BOUNDARIES[self.boundary])

    @property
    def images(self) -> dict[str, Pixels]:
        """By name: the pixels of each image that the pipeline takes."""
        return {"src": self.filter.pixels, **(self.filter.others or {})}

    def graph(self, width: int, height: int) -> Graph:
        return self.pipeline.graph(width, height)

    def make_data(self, size: str, seed: int, width: int = 0, height: int = 0) -> dict[str, Any]:
        """The arguments of the program for a size of the suite. ``width`` and ``height`` replace its own unless they
        are 0."""
        import numpy as np

        usual = self.filter.shape(size)
        width, height = width or usual[0], height or usual[1]
        if width < 1 or height < 1:
            raise DslError(f"image/{self.filter.name}: an image of {width} x {height} pixels has no pixel")
        graph = self.graph(width, height)
        random = np.random.default_rng(seed)
        data: dict[str, Any] = {}
        for image, pixels in zip(graph.inputs, self.images.values(), strict=True):
            data[image.name] = _flat(pixels(width, height, random), image.pixel)
        for image in graph.outputs:
            data[image.name] = np.zeros(image.width * image.height, t.dtype_of_type(image.pixel))
        sizes = {f"{name}_{axis}": n for name in self.images for axis, n in (("width", width), ("height", height))}
        return {**data, **(self.filter.numbers or {}), **sizes}

    def reference(self, data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        width, height = data["src_width"], data["src_height"]
        graph = self.graph(width, height)
        arrays: dict[str, Any] = {}
        for image in graph.inputs:
            dtype, lanes = layout_of(image.pixel)
            shape = (height, width, lanes) if lanes > 1 else (height, width)
            arrays[image.name] = data[image.name].view(dtype).reshape(shape)
        src = arrays.pop("src")
        numbers = {name: data[name] for name in self.filter.numbers or {}}
        made = self.filter.reference(src, BOUNDARIES[self.boundary], **arrays, **numbers)
        (output,) = graph.outputs
        return {output.name: _flat(made, output.pixel)}

    def work(self, data: Mapping[str, Any]) -> dict[str, float]:
        """The bytes of the input and of the output; images between operators are not counted."""
        graph = self.graph(data["src_width"], data["src_height"])
        images = [image.name for image in (*graph.inputs, *graph.outputs)]
        return {"bytes": sum(data[name].nbytes for name in images), "elements": data["src"].size}


class _LazyProgram(Program[...]):
    """The program for any size. The pipeline is lowered when the program is first needed: `bench` imports every program
    of every suite."""

    def __init__(self, maker: _Maker) -> None:
        self.maker = maker
        self.name = maker.filter.name
        self.__doc__ = maker.filter.description

    @cached_property
    def host(self) -> HostProgram:  # pyright: ignore[reportIncompatibleVariableOverride]
        graph = self.maker.graph(*self.maker.filter.shape("full"))
        return lower(graph).program(any_size=True).host


def _flat(pixels: NDArray[Any], pixel: t.Scalar | t.Struct) -> NDArray[Any]:
    """An image as the array of a host program: pixels one after the other, a struct for a vector."""
    import numpy as np

    dtype, _ = layout_of(pixel)
    assert pixels.dtype == dtype, (pixels.dtype, dtype)
    whole = np.ascontiguousarray(pixels).reshape(-1)
    return whole.view(t.dtype_of_type(pixel)) if isinstance(pixel, t.Struct) else whole
