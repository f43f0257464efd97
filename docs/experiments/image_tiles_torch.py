"""The programs of `image_tiles` in PyTorch: times of eager mode and of `torch.compile`.

    python docs/experiments/image_tiles_torch.py [--json FILE] [--sizes N ...] [--seconds N]

Needs PyTorch and a GPU. The edges are repeated once, around the input of the first window, so that all windows are
slices; the edges of images between operators are therefore not those of the programs of this project. Each time is
the median of seven CUDA graphs with ten runs, divided by ten.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

torch: Any = importlib.import_module("torch")
ROUNDS, RUNS = 7, 10
Tensor = Any


def padded(image: Tensor, x: int, y: int) -> Tensor:
    """The image with x and y more pixels at each side, which are those of the edge. Axes before the last two are
    images."""
    wide = torch.nn.functional.pad(image.reshape(1, -1, *image.shape[-2:]), (x, x, y, y), mode="replicate")
    return wide.reshape(*image.shape[:-2], *wide.shape[-2:])


def inside(image: Tensor, x: int, y: int) -> Callable[[int, int], Tensor]:
    """The image without x and y pixels at each side, at an offset of at most x and y."""
    height, width = image.shape[-2:]
    return lambda dx, dy: image[..., y + dy : height - y + dy, x + dx : width - x + dx]


def weighted(image: Tensor, rows: list[list[float]]) -> Tensor:
    """The sum of a window with weights, without the pixels whose windows are not in the image."""
    x, y = len(rows[0]) // 2, len(rows) // 2
    at = inside(image, x, y)
    terms = [w * at(j - x, i - y) for i, row in enumerate(rows) for j, w in enumerate(row) if w]
    return sum(terms[1:], terms[0])


def harris(src: Tensor) -> Tensor:
    kernel = [[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]
    wide = padded(src, 2, 2)
    x = weighted(wide, [[each / 12 for each in row] for row in kernel])
    y = weighted(wide, [[kernel[j][i] / 12 for j in range(3)] for i in range(3)])
    xx, yy, xy = (weighted(each, [[1.0] * 3] * 3) for each in (x * x, y * y, x * y))
    trace = xx + yy
    return xx * yy - xy * xy - 0.04 * trace * trace


def chain(src: Tensor) -> Tensor:
    made = padded(src, 5, 5)
    for _ in range(5):
        made = weighted(made, [[1.0] * 3] * 3) * 0.11111111
    return made


def blur(src: Tensor) -> Tensor:
    across = weighted(padded(src, 1, 1), [[1.0] * 3]) * 0.33333333
    return weighted(across, [[1.0]] * 3) * 0.33333333


def unsharp(red: Tensor, green: Tensor, blue: Tensor) -> tuple[Tensor, ...]:
    taps = [each / 448 for each in (3, 27, 110, 168, 110, 27, 3)]
    value = 0.299 * red + 0.587 * green + 0.114 * blue
    smooth = weighted(weighted(padded(value, 3, 3), [[each] for each in taps]), [taps])
    factor = (2.0 * value - smooth) / value
    return red * factor, green * factor, blue * factor


def bilateral(src: Tensor) -> Tensor:
    at = inside(padded(src, 6, 6), 6, 6)
    weights, total = torch.zeros_like(src), torch.zeros_like(src)
    for dy in range(-6, 7):
        for dx in range(-6, 7):
            apart = at(dx, dy) - src
            weight = torch.exp(-20.0 * (apart * apart)) * math.exp(-(dx * dx + dy * dy) / 18.0)
            weights = weights + weight
            total = total + weight * at(dx, dy)
    return total / weights


def microseconds(function: Callable[..., Any], inputs: list[Tensor]) -> float:
    """The median time of a run in CUDA graphs."""
    function(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(RUNS):
            function(*inputs)
    times: list[float] = []
    for _ in range(ROUNDS + 1):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) * 1000 / RUNS)
    return statistics.median(times[1:])


def main() -> None:
    """Print a line for each program and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="append a line for each time to this file")
    parser.add_argument("--sizes", type=int, nargs="*", default=[2048, 4096], help="widths and heights")
    parser.add_argument("--seconds", type=float, default=60, help="no program starts later")
    chosen = parser.parse_args()
    start = time.monotonic()
    programs: list[tuple[Callable[..., Any], int]] = [(unsharp, 3), (harris, 1), (chain, 1), (blur, 1), (bilateral, 1)]
    for program, count in programs:
        for size in chosen.sizes:
            if time.monotonic() - start > chosen.seconds:
                continue
            inputs = [torch.rand(size, size, device="cuda") + 0.01 for _ in range(count)]
            made: Any = torch.compile(program, dynamic=False)
            for word, function in (("torch eager", program), ("torch.compile", made)):
                taken = microseconds(function, inputs)
                print(f"{program.__name__:10} {size} {word:14} {taken:8.2f}", flush=True)
                if chosen.json:
                    record = {"program": program.__name__, "size": size, "schedule": word, "us": taken}
                    with chosen.json.open("a") as file:
                        file.write(json.dumps(record) + "\n")
            got, expected = (torch.stack(list(function(*inputs))) for function in (made, program))
            assert torch.allclose(got, expected, rtol=1e-3, atol=1e-3), program.__name__


if __name__ == "__main__":
    main()
