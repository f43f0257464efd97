"""The programs whose schedules are compared: pipelines, random images, numbers, and reading and writing plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import image_tiles
import numpy as np
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.suites.registry import find

__all__ = ["PROGRAMS", "TABLE_OF_FUSION", "Case"]


@dataclass(frozen=True)
class Case:
    """A program: its pipeline, and the values of the numbers that it takes. ``benchmark`` is its name in the suite
    `image`; empty for programs of `image_tiles`. ``work`` are the floating-point operations for one pixel of the
    result, by the definition of the program: a window of n pixels with weights has 2 n - 1 of them. ``margin`` are the
    pixels at each edge that are not compared with those of compiled programs."""

    name: str
    pipeline: Any
    work: float
    benchmark: str = ""
    margin: int = 40
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])

    def graph(self, size: int) -> Graph:
        return self.pipeline.graph(size, size)

    def inputs(self, size: int) -> list[Any]:
        """The pixels of each input, flat."""
        if self.benchmark:
            data = find(self.benchmark).make_data("tiny", 0, width=size, height=size)
            return [data[image.name] for image in self.graph(size).inputs]
        numbers = np.random.default_rng(size)
        return [numbers.random(size * size, np.float32) + np.float32(0.01) for _ in self.graph(size).inputs]


def _of_suite(name: str, work: float, benchmark_name: str = "", margin: int = 40) -> Case:
    benchmark = find(f"image/{benchmark_name or name}")
    assert benchmark.pipeline is not None
    data = benchmark.make_data("tiny", 0)
    numbers = {key: value for key, value in data.items() if isinstance(value, float)}
    return Case(name, benchmark.pipeline, work, benchmark.name, margin, numbers)


#: The six applications of table 3.6 of Qiao. The first two have other operators than `harris` and `unsharp`.
TABLE_OF_FUSION = ("fusion_harris", "fusion_unsharp", "sobel", "shi_tomasi", "enhance", "night")

#: By name. Those of `image_tiles` come first. An exponential function, a root or a maximum is one operation.
PROGRAMS: dict[str, Case] = {
    case.name: case
    for case in (
        Case("unsharp", image_tiles.unsharp, 5 + 2 * 13 + 2 + 1 + 3),
        Case("harris", image_tiles.harris, 2 * 11 + 3 + 3 * 8 + 7),
        Case("chain", image_tiles.chain, 5 * 9),
        Case("blur", image_tiles.blur, 2 * 3),
        Case("bilateral", image_tiles.bilateral, 169 * 8 + 1),
        _of_suite("stencil_chain", 8 * 17),
        _of_suite("max_filter", 4 + 50),
        _of_suite("nl_means", 9 * (2 + 8 + 5) + 1),
        _of_suite("interpolate", 4 * (1 + (17 / 4) * 4 / 3 + (7 + 2) * 4 / 3 + 1)),
        _of_suite("camera", 5 + 6 + 3 + 15 + 5 + 11 + 12),
        _of_suite("bilateral_grid", 3 * 5 + 5 * 2 * 3 * 9 / 64 + 2 * 2 * 9 + 6),
        _of_suite("local_laplacian", 5 * (10 + (49 / 4 + 1 + 7 * 2) * 4 / 3) + 49 / 4 * 4 / 3 + (9 + 15) * 4 / 3),
        _of_suite("lens_blur", 5 * (5 + 8) + 6 + 28 * 8 + 3),
        _of_suite("spline", 3 * 49 / 3 + (2 * 15 + 3 + 15) * 4 / 3, margin=160),
        _of_suite("fusion_harris", 2 * 11 + 3 + 3 * 17 + 7, "harris"),
        _of_suite("fusion_unsharp", 49 + 1 + 1 + 3, "unsharp"),
        _of_suite("sobel", 2 * 11 + 4),
        _of_suite("shi_tomasi", 2 * 11 + 3 + 3 * 17 + 8),
        _of_suite("enhance", 9 * 2 + 8 + 2 + 3 + 2),
        _of_suite("night", 4 * (9 * (3 + 5 + 3 + 7) + 3) + 5 + 9),
    )
}
