"""Random image pipelines: the text of their operators, masks, boundaries, types, scales and sizes.

Inputs may differ in their size and type: numbers of 1 to 8 bytes, and vectors. Results are numbers or vectors.
Operators read windows, single pixels and two numbers of the pipeline. Some outputs are read by other operators, too. A
boundary is UNDEFINED where the space of an operator keeps its window inside of the image.

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
from ptxmotion.dsl import (
    f16,
    f32,
    f64,
    float2,
    float3,
    float4,
    i8,
    i16,
    i32,
    i64,
    int2,
    sqrt,
    types,
    u8,
    u16,
    u32,
    u64,
    uchar4,
)
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

_NUMBERS: dict[str, object] = {
    "i8": i8, "i16": i16, "i32": i32, "i64": i64, "u8": u8, "u16": u16, "u32": u32, "u64": u64,
    "f16": f16, "f32": f32, "f64": f64,
}  # fmt: skip
_STRUCTS: dict[str, object] = {
    "float2": float2, "float3": float3, "float4": float4, "int2": int2, "uchar4": uchar4,
}  # fmt: skip
_KERNEL_NAMES: dict[str, object] = {**_NUMBERS, **_STRUCTS, "Window": Window, "here": here, "sqrt": sqrt}
#: Types of pixels: those before the others are the most frequent ones.
_INTEGERS = ("i32", "u8", "u16", "i32", "u8", "u16", *(name for name in _NUMBERS if name[0] != "f"))
_FLOATS = ("f32", "f32", "f32", "f16", "f64")
#: Types whose pixels operators read without a conversion: in C they become `int`, or stay `float`.
_PLAIN = ("i8", "i16", "i32", "u8", "u16", "f32", *_STRUCTS)


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
        names, place = python_names(masks)
        exec(text, names)
        return names[node.operator.name], place

    def __str__(self) -> str:
        return "\n".join([str(self.graph), f"block {self.block}", *self.texts])


def random_pipeline(seed: int, least: int = 1, most: int = 4) -> RandomPipeline:
    """A pipeline of ``least`` to ``most`` operators."""
    return _Writer(random.Random(seed)).pipeline(least, most)


def another(found: RandomPipeline, seed: int) -> tuple[list[Array], list[Any]]:
    """Other pixels and other numbers for a pipeline."""
    rng = random.Random(f"another:{seed}")
    return [_pixels(rng, image) for image in found.graph.inputs], list(_numbers(rng).values())


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.texts: list[str] = []
        self.scalars: list[ScalarInput] = []
        self.names: dict[Operator[Any], tuple[str, dict[str, object]]] = {}

    def pipeline(self, least: int, most: int) -> RandomPipeline:
        rng = self.rng
        sizes = [(1, 1), (1, 7), (9, 1), (3, 2), (31, 3), (33, 9), (70, 11), (130, 5)]
        size = rng.choice(sizes)
        inputs: list[InputImage[Any]] = []
        for number in range(rng.randint(1, 2)):
            kind = rng.choice([*_INTEGERS, *_FLOATS, *_FLOATS, *_STRUCTS])
            inputs.append(InputImage(f"image{number}", _pixel(kind), *size))
            if rng.random() < 0.3:
                size = rng.choice(sizes)
        self.scalars = [
            ScalarInput("number", types.I32),
            ScalarInput("factor", types.F32),
            ScalarInput("few", types.U8),
        ]
        images: list[Image[Any]] = list(inputs)
        nodes: list[Image[Any]] = []
        for number in range(rng.randint(least, most)):
            node = self._node(number, images)
            images.append(node)
            nodes.append(node)
        used = {access.image for node in nodes if isinstance(node, Node) for access in node.accesses}
        outputs = [node for node in nodes if node not in used or rng.random() < 0.15]
        rng.shuffle(outputs)
        graph = graph_of("fuzz", outputs, inputs, self.scalars)
        arrays = {image.name: _pixels(rng, image) for image in inputs}
        block = rng.choice([(32, 8), (32, 2), (64, 2), (16, 4), (128, 1)])
        return RandomPipeline(graph, self.texts, arrays, _numbers(rng), block, self.names)

    def _node(self, number: int, images: list[Image[Any]]) -> Image[Any]:
        rng = self.rng
        scalars = [image for image in images if isinstance(image.pixel, types.Scalar)]
        if scalars and rng.random() < 0.25:
            return self._point(number, scalars)
        chosen = [rng.choice(images) for _ in range(rng.choice([1, 1, 2]))]
        is_float = _is_float(chosen[0])
        chosen = [image for image in chosen if _is_float(image) == is_float]
        total = _sum_of(chosen)
        masks: dict[str, object] = {}
        first = f"{total}(x - y)" if is_float else "number + x * 7 - y" if total == "i32" else f"{total}(x * 7 - y)"
        lines = ["x, y = here()", f"total: {total} = {first}"]
        windows: list[Mask | Domain] = []
        for index, image in enumerate(chosen):
            window, more = self._reads(f"a{index}", f"M{index}", image, total)
            windows.append(window)
            masks[f"M{index}"] = window
            lines += more
        params = [f"a{index}: Window[{image.pixel}]" for index, image in enumerate(chosen)]
        space, is_inside = self._space(chosen[0], windows[0])
        arguments: list[Any] = [self._accessor(image, space) for image in chosen]
        if is_inside:
            arguments[0] = Accessor(chosen[0], Boundary.UNDEFINED)
        covering = [image for image in scalars if _is_float(image) == is_float and _covers(image, space)]
        if covering and rng.random() < 0.3:
            arguments.append(rng.choice(covering))
            params.append(f"pixel: {arguments[-1].pixel}")
            lines.append(f"total = total * {'0.5' if is_float else '3'} - {total}(pixel)")
        arguments.append(self.scalars[0] if rng.random() < 0.7 else 5)
        params.append("number: i32")
        if rng.random() < 0.4:
            scalar = self.scalars[1] if is_float else self.scalars[2]
            arguments.append(scalar)
            params.append(f"{scalar.name}: {scalar.type}")
            lines.append(f"total = total + {scalar.name}")
        result = rng.choice(_FLOATS) if is_float else rng.choice(_INTEGERS)
        if rng.random() < 0.12:
            result = rng.choice(["float2", "float4"] if is_float else ["int2", "uchar4"])
        lines.append(_result(result))
        head = f"def op{number}({', '.join(params)}) -> {result}:"
        operator = self._operator([head, *(f"    {line}" for line in lines)], masks, *windows)
        return operator(*arguments, space=space)

    def _point(self, number: int, images: list[Image[Any]]) -> Image[Any]:
        first = self.rng.choice(images)
        same = [image for image in images if image.pixel == first.pixel and image.size == first.size]
        second = self.rng.choice(same)
        kind = str(first.pixel)
        body = f"{kind}({_sum_of([first])}(max(a, b)) * 3 + number & 255)"
        if kind[0] == "f":
            wide = _sum_of([first])
            body = f"{kind}({wide}(a) * 0.5 + sqrt(abs({wide}(b))) * {wide}(number))"
        lines = [f"def op{number}(a: {kind}, b: {kind}, number: i32) -> {kind}:", f"    return {body}"]
        return self._operator(lines, {})(first, second, self.scalars[0])

    def _operator(self, lines: list[str], masks: dict[str, object], *windows: Mask | Domain) -> Operator[Any]:
        text = "\n".join(lines) + "\n"
        self.texts.append(text)
        made = operator_from_text(text, {**_KERNEL_NAMES, **masks}, *windows)
        self.names[made] = text, masks
        return made

    def _reads(self, name: str, mask: str, image: Image[Any], total: str) -> tuple[Mask | Domain, list[str]]:
        """A window, and the statements that add its pixels to ``total``, which has this type."""
        rng, is_float = self.rng, total[0] == "f"
        width, height = rng.choice([(1, 1), (3, 1), (1, 3), (3, 3), (5, 3), (1, 9), (13, 1), (2, 4)])
        weights: NDArray[Any] = np.array([[rng.randint(-3, 3) for _ in range(width)] for _ in range(height)], np.int32)
        if is_float:
            weights = weights.astype(np.float32) / np.float32(8)
        window = Mask(weights, skip_zeros=rng.random() < 0.3)
        value = f"v{name}"  # a variable keeps the type of its first value
        pixel = f"{value}.x - {value}.y" if isinstance(image.pixel, types.Struct) else value
        read = f"{name}[dx, dy]"
        is_converted = str(image.pixel) not in _PLAIN or rng.random() < 0.3
        add = [f"{value} = {total}({read})" if pixel == value and is_converted else f"{value} = {read}"]
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

    def _space(self, image: Image[Any], window: Mask | Domain) -> tuple[IterationSpace, bool]:
        """What is computed, and whether the window is inside of the image for all of it."""
        rng, extent = self.rng, window.extent
        left, right, up, down = extent.left, extent.right, extent.up, extent.down
        width, height = int(image.width) - left - right, int(image.height) - up - down
        if rng.random() < 0.25 and width > 0 and height > 0:
            return IterationSpace(width, height, left, up), True
        if rng.random() < 0.6:
            return IterationSpace(image.width, image.height), False
        return IterationSpace(rng.randint(1, 70), rng.randint(1, 12), rng.randint(0, 5), rng.randint(0, 3)), False

    def _accessor(self, image: Image[Any], space: IterationSpace) -> Accessor[Any]:
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


def _is_float(image: Image[Any]) -> bool:
    return layout_of(image.pixel)[0].kind == "f"


def _sum_of(images: list[Image[Any]]) -> str:
    """The type in which pixels of these images are added."""
    bits = 64 if any(layout_of(image.pixel)[0].itemsize == 8 for image in images) else 32
    wide = bits == 64 or any(image.pixel is types.U32 for image in images)
    return f"f{bits}" if _is_float(images[0]) else "i64" if wide else "i32"


def _covers(image: Image[Any], space: IterationSpace) -> bool:
    """Whether the image has a pixel at every place of the space."""
    return space.x0 + space.width <= image.width and space.y0 + space.height <= image.height


def _result(kind: str) -> str:
    """The statement that returns the sum."""
    lanes = {
        "int2": "i32(total), number",
        "uchar4": "u8(total & 255), u8(number & 255), u8(total >> 3 & 255), 7",
        "float2": "f32(total), f32(number)",
        "float4": "f32(total), f32(total) * 0.5, 1.0, f32(number)",
    }
    if kind in lanes:
        return f"return {kind}({lanes[kind]})"
    return f"return {kind}(total & 255)" if kind in ("u8", "i8") else f"return {kind}(total)"


def _numbers(rng: random.Random) -> dict[str, Any]:
    """The numbers of a pipeline."""
    return {
        "number": np.int32(rng.randint(-9, 9)),
        "factor": np.float32(rng.choice([0.5, -0.75, 1.1])),
        "few": np.uint8(rng.randint(0, 255)),
    }


def _pixels(rng: random.Random, image: Image[Any]) -> Array:
    dtype, lanes = layout_of(image.pixel)
    numbers = np.random.default_rng(rng.randrange(1 << 32))
    shape = (image.height, image.width) + ((lanes,) if lanes > 1 else ())
    if dtype.kind == "f":
        return numbers.normal(size=shape).astype(dtype)
    bits = np.iinfo(dtype)
    return numbers.integers(bits.min, bits.max, shape, dtype=dtype, endpoint=True)
