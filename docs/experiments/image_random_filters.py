"""Random filters for `image_isp.py --random SEED`: operators, windows, masks, pixels, boundaries, blocks and sizes.

A filter has one local operator. The model `isp+m` was not chosen by any of them. A seed gives the same filters again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from ptxmotion.dsl import f32, i32, types, u8, u16
from ptxmotion.dsl.image import Accessor, Boundary, Domain, Graph, Mask, Window, graph_of, operator_from_text
from ptxmotion.dsl.image.operators import InputImage

#: Sides of windows. Three quarters of the windows are squares.
SIDES = (3, 3, 3, 5, 5, 7, 9, 11, 13, 15)
#: Pixels that a window may have at most: larger ones take long to compile.
MOST = 121
BOUNDARIES = {
    "clamp": Boundary.CLAMP,
    "mirror": Boundary.MIRROR,
    "repeat": Boundary.REPEAT,
    "constant": Boundary.constant(1),
}
BLOCKS = ((32, 4), (32, 8), (64, 2), (64, 4), (128, 1), (128, 2), (32, 16), (256, 1), (16, 16))
#: The pixels that are read and those that are made.
PIXELS = (("f32", "f32"), ("f32", "f32"), ("u8", "u8"), ("u8", "i32"), ("u16", "u16"), ("i32", "i32"))

_NAMES: dict[str, object] = {"Window": Window, "f32": f32, "i32": i32, "u8": u8, "u16": u16}


@dataclass(frozen=True)
class RandomFilter:
    """A filter by its text. ``offsets`` is a mask or a domain."""

    name: str
    text: str
    offsets: Any
    read: str
    boundary: str
    blocks: tuple[tuple[int, int], ...]
    sizes: tuple[tuple[int, int], ...]

    @cached_property
    def operator(self) -> Any:
        """The operator."""
        return operator_from_text(self.text, {**_NAMES, "WINDOW": self.offsets}, self.offsets)

    def graph(self, width: int, height: int) -> Graph:
        """The graph for a size of the image."""
        source: InputImage[Any] = InputImage("src", types.SCALARS[self.read], width, height)
        return graph_of(self.name, [self.operator(Accessor(source, BOUNDARIES[self.boundary]))], [source])


def random_filters(seed: int, count: int) -> list[RandomFilter]:
    """Filters that differ for each seed."""
    rng = random.Random(seed)
    return [_filter(rng, f"random{seed}_{number}") for number in range(count)]


@cache
def _of_seed(seed: int, number: int) -> RandomFilter:
    return random_filters(seed, number + 1)[number]


def random_filter(name: str) -> RandomFilter:
    """The filter with this name, such as ``random7_12``."""
    seed, _, number = name.removeprefix("random").partition("_")
    return _of_seed(int(seed), int(number))


def _filter(rng: random.Random, name: str) -> RandomFilter:
    read, made = rng.choice(PIXELS)
    text, offsets = _operator(rng, read, made)
    blocks = tuple(rng.sample(BLOCKS, 2))
    sizes = tuple((rng.randint(256, side), rng.randint(256, side)) for side in (512, 1024, 2048, 4096))
    return RandomFilter(name, text, offsets, read, rng.choice(sorted(BOUNDARIES)), blocks, sizes)


def _operator(rng: random.Random, read: str, made: str) -> tuple[str, Mask | Domain]:
    """The text of an operator, and its window."""
    width, height = _window(rng)
    number = "f32" if read == "f32" else "i32"
    kind = rng.choice(("weights", "weights", "largest", "above", "apart", "similar" if number == "f32" else "weights"))
    start, each, result = "0", "", "total"
    offsets: Mask | Domain = Domain.box(width, height)
    loop = "dx, dy"
    match kind:
        case "weights":
            values = np.array([[rng.randint(-3, 9) for _ in range(width)] for _ in range(height)])
            array = values.astype(np.float32) / np.float32(64) if number == "f32" else values.astype(np.int32)
            offsets, loop = Mask(array, skip_zeros=rng.random() < 0.5), "dx, dy, weight"
            each = f"total += weight * {number}(src[dx, dy])"
            result = "total" if number == "f32" else "(total >> 4) & 255"
        case "largest":
            each = f"total = max(total, {number}(src[dx, dy]))"
        case "above":
            each = f"total += {number}(1) if src[dx, dy] > src[0, 0] else {number}(0)"
        case "apart":
            each = f"total += abs({number}(src[dx, dy]) - {number}(src[0, 0]))"
            result = "total" if number == "f32" else "total & 255"
        case _:
            each = "apart = src[dx, dy] - src[0, 0]\n        total += src[dx, dy] / (1.0 + 8.0 * (apart * apart))"
            start = "0.5"
    lines = [
        f"def filtered(src: Window[{read}]) -> {made}:",
        f"    total: {number} = {start}",
        f"    for {loop} in WINDOW:",
        f"        {each}",
        f"    return {made}({result})",
    ]
    return "\n".join(lines) + "\n", offsets


def _window(rng: random.Random) -> tuple[int, int]:
    while True:
        width = rng.choice(SIDES)
        height = width if rng.random() < 0.75 else rng.choice((1, *SIDES))
        if rng.random() < 0.2:
            width, height = height, width
        if width * height <= MOST:
            return width, height
