"""Random image pipelines: the text of their operators, masks, boundaries, types, scales and sizes.

An operator is a Python function in the common part of the kernel language and plain Python on NumPy scalars, so that
`image_interpreter` can run the same text.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from image_interpreter import Array, interpret, python_names
from numpy.typing import NDArray
from ptxmotion.dsl import f16, f32, float3, i32, int2, sqrt, types, u8, u16, uchar4
from ptxmotion.dsl.image import (
    Accessor,
    Boundary,
    Domain,
    Graph,
    Image,
    IterationSpace,
    Mask,
    Window,
    graph_of,
    here,
    operator_from_text,
)
from ptxmotion.dsl.image.operators import InputImage, Node, Operator, ScalarInput
from ptxmotion.dsl.image.windows import layout_of

_KERNEL_NAMES: dict[str, object] = {
    "Window": Window,
    "here": here,
    "sqrt": sqrt,
    "f16": f16,
    "f32": f32,
    "i32": i32,
    "u8": u8,
    "u16": u16,
    "float3": float3,
    "int2": int2,
    "uchar4": uchar4,
}
_INTEGERS, _FLOATS, _VECTORS = ("i32", "u8", "u16"), ("f32",), ("int2", "uchar4", "float3")


@dataclass
class RandomPipeline:
    """A graph, its operators as text, its inputs and numbers."""

    graph: Graph
    texts: list[str]
    arrays: dict[str, Array]
    numbers: dict[str, Any]
    block: tuple[int, int]
    #: By operator: the names that its text mentions.
    names: dict[Operator[Any], tuple[str, dict[str, object]]] = field(repr=False)

    def reference(self) -> list[Array]:
        """The outputs according to the interpreter."""
        return interpret(self.graph, self.arrays, self.numbers, self._function)

    def _function(self, node: Node[Any]) -> tuple[Callable[..., Any], Any]:
        text, masks = self.names[node.operator]
        names, place = python_names({**masks, **dict.fromkeys(_VECTORS)})
        exec(text, names)
        return names[node.operator.name], place

    def __str__(self) -> str:
        return "\n".join([str(self.graph), f"block {self.block}", *self.texts])


def random_pipeline(seed: int, least: int = 1, most: int = 4) -> RandomPipeline:
    """A pipeline of ``least`` to ``most`` operators."""
    return _Writer(random.Random(seed)).pipeline(least, most)


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.texts: list[str] = []
        self.names: dict[Operator[Any], tuple[str, dict[str, object]]] = {}

    def pipeline(self, least: int, most: int) -> RandomPipeline:
        rng = self.rng
        width, height = rng.choice([(1, 1), (1, 7), (9, 1), (3, 2), (31, 3), (33, 9), (70, 11), (130, 5)])
        kinds = [rng.choice([*_INTEGERS, "f32", "f32", *_VECTORS])]
        kinds += [rng.choice(["i32", "f32"])] * rng.randint(0, 1)
        inputs: list[InputImage[Any]] = []
        for number, kind in enumerate(kinds):
            inputs.append(InputImage(f"image{number}", _pixel(kind), width, height))
        scalar = ScalarInput("number", types.I32)
        images: list[Image[Any]] = list(inputs)
        nodes: list[Image[Any]] = []
        for number in range(rng.randint(least, most)):
            node = self._node(number, images, scalar)
            images.append(node)
            nodes.append(node)
        used = {access.image for node in nodes if isinstance(node, Node) for access in node.accesses}
        outputs = [node for node in nodes if node not in used]
        graph = graph_of("fuzz", outputs, inputs, [scalar])
        arrays = {image.name: _pixels(rng, image) for image in inputs}
        block = rng.choice([(32, 8), (32, 2), (64, 2), (16, 4), (128, 1)])
        return RandomPipeline(graph, self.texts, arrays, {"number": np.int32(rng.randint(-9, 9))}, block, self.names)

    def _node(self, number: int, images: list[Image[Any]], scalar: ScalarInput) -> Image[Any]:
        rng = self.rng
        scalars = [image for image in images if isinstance(image.pixel, types.Scalar)]
        if scalars and rng.random() < 0.25:
            return self._point(number, scalars, scalar)
        chosen = [rng.choice(images) for _ in range(rng.choice([1, 1, 2]))]
        is_float = [layout_of(image.pixel)[0].kind == "f" for image in chosen]
        chosen = [image for image, each in zip(chosen, is_float, strict=True) if each == is_float[0]]
        result = "f32" if is_float[0] else rng.choice(_INTEGERS)
        masks: dict[str, object] = {}
        lines = ["x, y = here()", "total: f32 = f32(x - y)" if is_float[0] else "total: i32 = number + x * 7 - y"]
        windows: list[Mask | Domain] = []
        for index, image in enumerate(chosen):
            window, more = self._reads(f"a{index}", f"M{index}", image, is_float[0])
            windows.append(window)
            masks[f"M{index}"] = window
            lines += more
        lines.append(_result(result))
        params = [f"a{index}: Window[{image.pixel}]" for index, image in enumerate(chosen)]
        head = f"def op{number}({', '.join([*params, 'number: i32'])}) -> {result}:"
        operator = self._operator([head, *(f"    {line}" for line in lines)], masks, *windows)
        space = self._space(chosen[0])
        accessors = [self._accessor(image, space, is_float[0]) for image in chosen]
        return operator(*accessors, scalar if rng.random() < 0.7 else 5, space=space)

    def _point(self, number: int, images: list[Image[Any]], scalar: ScalarInput) -> Image[Any]:
        first = self.rng.choice(images)
        same = [image for image in images if image.pixel == first.pixel and image.size == first.size]
        second = self.rng.choice(same)
        kind = str(first.pixel)
        body = "a * 0.5 + sqrt(abs(b)) * f32(number)" if kind == "f32" else f"{kind}(max(a, b) * 3 + number & 255)"
        lines = [f"def op{number}(a: {kind}, b: {kind}, number: i32) -> {kind}:", f"    return {body}"]
        return self._operator(lines, {})(first, second, scalar)

    def _operator(self, lines: list[str], masks: dict[str, object], *windows: Mask | Domain) -> Operator[Any]:
        text = "\n".join(lines) + "\n"
        self.texts.append(text)
        made = operator_from_text(text, {**_KERNEL_NAMES, **masks}, *windows)
        self.names[made] = text, masks
        return made

    def _reads(self, name: str, mask: str, image: Image[Any], is_float: bool) -> tuple[Mask | Domain, list[str]]:
        """A window, and the statements that add its pixels to ``total``."""
        rng = self.rng
        width, height = rng.choice([(1, 1), (3, 1), (1, 3), (3, 3), (5, 3), (1, 9), (13, 1), (2, 4)])
        weights: NDArray[Any] = np.array([[rng.randint(-3, 3) for _ in range(width)] for _ in range(height)], np.int32)
        if is_float:
            weights = weights.astype(np.float32) / np.float32(8)
        window = Mask(weights, skip_zeros=rng.random() < 0.3)
        value = f"v{name}"  # a variable keeps the type of its first value
        pixel = f"{value}.x - {value}.y" if isinstance(image.pixel, types.Struct) else value
        add = [f"{value} = {name}[dx, dy]"]
        form = rng.choice(["mask", "domain", "loop", "table"])
        if form in ("mask", "table"):
            weight = "w" if form == "mask" else f"{mask}[dx, dy]"
            add.append(f"total = total * {'0.5' if is_float else '31'} + {weight} * ({pixel})")
        else:
            add.append(f"total = total * {'0.75' if is_float else '17'} + ({pixel})")
        if form == "mask":
            return window, [f"for dx, dy, w in {mask}:", *(f"    {line}" for line in add)]
        if form == "domain":
            offsets = list(Domain.box(width, height))
            rng.shuffle(offsets)
            domain = Domain(offsets[: rng.randint(1, len(offsets))])
            return domain, [f"for dx, dy in {mask}:", *(f"    {line}" for line in add)]
        extent = window.extent
        rows, columns = (-extent.up, extent.down + 1), (-extent.left, extent.right + 1)
        loops = [f"for dy in range({rows[0]}, {rows[1]}):", f"    for dx in range({columns[0]}, {columns[1]}):"]
        return window, [*loops, *(f"        {line}" for line in add)]

    def _space(self, image: Image[Any]) -> IterationSpace:
        rng = self.rng
        if rng.random() < 0.6:
            return IterationSpace(image.width, image.height)
        return IterationSpace(rng.randint(1, 70), rng.randint(1, 12), rng.randint(0, 5), rng.randint(0, 3))

    def _accessor(self, image: Image[Any], space: IterationSpace, is_float: bool) -> Accessor[Any]:
        rng = self.rng
        lanes = layout_of(image.pixel)[1]
        constant: Any = rng.randint(0, 9) if lanes == 1 else tuple(rng.randint(0, 9) for _ in range(lanes))
        boundary = rng.choice(
            [Boundary.CLAMP, Boundary.MIRROR, Boundary.REFLECT, Boundary.REPEAT, Boundary.constant(constant)]
        )
        if rng.random() < 0.7:
            return Accessor(image, boundary)
        scale = rng.choice([Fraction(1), Fraction(2), Fraction(1, 2), Fraction(3, 2)])
        return Accessor(image, boundary, scale=(scale, 1), offset=(rng.randint(-3, 3), rng.randint(-2, 2)))


def _pixel(kind: str) -> types.Scalar | types.Struct:
    value: Any = _KERNEL_NAMES[kind]
    struct = getattr(value, "__ptxmotion_struct__", None)
    return struct if isinstance(struct, types.Struct) else value


def _result(kind: str) -> str:
    return {"f32": "return total", "i32": "return total", "u8": "return u8(total & 255)"}.get(
        kind, "return u16(total & 65535)"
    )


def _pixels(rng: random.Random, image: Image[Any]) -> Array:
    dtype, lanes = layout_of(image.pixel)
    numbers = np.random.default_rng(rng.randrange(1 << 32))
    shape = (image.height, image.width) + ((lanes,) if lanes > 1 else ())
    if dtype.kind == "f":
        return numbers.normal(size=shape).astype(dtype)
    return numbers.integers(0, 256, shape).astype(dtype)
