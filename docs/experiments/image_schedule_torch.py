"""The programs of `image_schedule_programs` in PyTorch: times of eager mode and of `torch.compile`.

    python docs/experiments/image_schedule_torch.py [--check] [--json FILE] [--programs …] [--sizes N ...] [--seconds N]

Needs PyTorch and a GPU; ``--check`` compares the programs of the suite with their NumPy references, on the CPU. Each
time is the median of seven CUDA graphs with ten runs, divided by ten.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from math import isqrt
from pathlib import Path
from typing import Any

import image_tiles_torch
import numpy as np
from image_schedule_programs import PROGRAMS
from image_tiles_torch import Tensor, around, microseconds, torch, weighted
from ptxmotion.suites.registry import find

SMALL = [[1 / 16, 2 / 16, 1 / 16], [2 / 16, 4 / 16, 2 / 16], [1 / 16, 2 / 16, 1 / 16]]


def stencil_chain(src: Tensor) -> Tensor:
    for _ in range(8):
        src = weighted(src, SMALL)
    return src


def max_filter(src: Tensor) -> Tensor:
    levels = [src]
    for power in range(4):
        last = levels[-1]
        levels.append(torch.maximum(last, around(last, 0, 2**power)(0, 2**power)))
    reads = [around(level, 12, 16) for level in levels]
    found = src
    for dx in range(-12, 13):
        height = isqrt(144 - dx * dx)
        power = (2 * height + 1).bit_length() - 1
        for first in sorted({-height, height + 1 - 2**power}):
            found = torch.maximum(found, reads[power](dx, first))
    return found


def nl_means(src: Tensor) -> Tensor:
    pixels = around(src, 1, 1)
    weights, total = torch.zeros_like(src), torch.zeros_like(src)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            distance = (src - pixels(dx, dy)) ** 2
            for x, y in ((1, 0), (0, 1)):
                near = around(distance, 2 * x, 2 * y)
                distance = sum((near(x * step, y * step) for step in range(-1, 3)), near(-2 * x, -2 * y))
            weight = torch.exp(-16.0 * distance)
            weights = weights + weight
            total = total + weight * pixels(dx, dy)
    return total / weights


def interpolate(src: Tensor) -> Tensor:
    image = src.permute(2, 0, 1)
    opacity = image[3:]
    levels = [torch.cat([image[:3] * opacity, opacity])]
    for _ in range(3):
        planes = [weighted(plane, SMALL)[::2, ::2] for plane in levels[-1]]
        levels.append(torch.stack(planes))
    made = levels[-1]
    for level in reversed(levels[:-1]):
        right = torch.cat([made[:, :, 1:], made[:, :, -1:]], 2)
        wide = torch.stack([made, (made + right) * 0.5], 3).flatten(2)[:, :, : level.shape[2]]
        below = torch.cat([wide[:, 1:], wide[:, -1:]], 1)
        tall = torch.stack([wide, (wide + below) * 0.5], 2).flatten(1, 2)[:, : level.shape[1]]
        made = level + (1.0 - level[3:]) * tall
    return torch.cat([made[:3] / made[3:], torch.ones_like(made[3:])]).permute(1, 2, 0).contiguous()


def camera(src: Tensor) -> Tensor:
    whole = src.to(torch.int32)
    at = around32(whole, 2)
    near = torch.maximum(torch.maximum(at(-2, 0), at(2, 0)), torch.maximum(at(0, -2), at(0, 2)))
    whole = torch.minimum(whole, near)
    gr, red, blue, gb = (around32(whole[y::2, x::2], 1) for x, y in ((0, 0), (1, 0), (0, 1), (1, 1)))

    def mean(*parts: Tensor) -> Tensor:
        return sum(parts[1:], parts[0]) // len(parts)

    def together(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        rows = torch.stack([torch.stack([a, b], 2).flatten(1), torch.stack([c, d], 2).flatten(1)], 1)
        return rows.flatten(0, 1).to(torch.float32) * 0.0009775171

    r = together(
        mean(red(-1, 0), red(0, 0)),
        red(0, 0),
        mean(red(-1, 0), red(0, 0), red(-1, 1), red(0, 1)),
        mean(red(0, 0), red(0, 1)),
    )
    g = together(
        gr(0, 0),
        mean(gr(0, 0), gr(1, 0), gb(0, -1), gb(0, 0)),
        mean(gr(0, 0), gr(0, 1), gb(-1, 0), gb(0, 0)),
        gb(0, 0),
    )
    b = together(
        mean(blue(0, -1), blue(0, 0)),
        mean(blue(0, -1), blue(1, -1), blue(0, 0), blue(1, 0)),
        blue(0, 0),
        mean(blue(0, 0), blue(1, 0)),
    )
    made = [1.5 * r - 0.25 * g - 0.25 * b, 1.25 * g - 0.125 * r - 0.125 * b, 1.5 * b - 0.125 * r - 0.375 * g]
    luminance = 0.25 * made[0] + 0.5 * made[1] + 0.25 * made[2]
    detail = 0.5 * (luminance - weighted(luminance, [[1.0] * 3] * 3) * 0.125)
    channels = [torch.sqrt((each + detail).clamp(0, 1)) * 255.0 for each in made]
    return torch.stack([*channels, torch.full_like(luminance, 255.0)], 2).to(torch.uint8)


def sobel(src: Tensor) -> Tensor:
    x, y = _gradients(src)
    return torch.sqrt(x * x + y * y)


def fusion_harris(src: Tensor) -> Tensor:
    xx, xy, yy = _products(src)
    trace = xx + yy
    return xx * yy - xy * xy - 0.04 * (trace * trace)


def shi_tomasi(src: Tensor) -> Tensor:
    xx, xy, yy = _products(src)
    half = (xx - yy) * 0.5
    return (xx + yy) * 0.5 - torch.sqrt(half * half + xy * xy)


def _gradients(src: Tensor) -> tuple[Tensor, Tensor]:
    return weighted(src, [[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]), weighted(src, [[-1.0, -2, -1], [0, 0, 0], [1, 2, 1]])


def _products(src: Tensor) -> list[Tensor]:
    x, y = _gradients(src)
    return [weighted(each, SMALL) for each in (x * x, x * y, y * y)]


def fusion_unsharp(src: Tensor) -> Tensor:
    row = (1, 4, 6, 4, 1)
    blurred = weighted(src, [[one * other / 256 for one in row] for other in row])
    return (src + (src - blurred) * 1.5).clamp(0, 1)


def enhance(src: Tensor) -> Tensor:
    mean = torch.exp(weighted(torch.log(src + 0.5), [[1.0] * 3] * 3) / 9.0)
    return (torch.exp(torch.log(mean) * 0.8) - 0.25) / 1.25


def night(src: Tensor) -> Tensor:
    planes = list(src.permute(2, 0, 1))
    for step in (1, 2, 4, 8):
        at = [around(each, step, step) for each in planes[:3]]
        sums = [torch.zeros_like(planes[0]) for _ in range(4)]
        for y, row in enumerate(SMALL):
            for x, near in enumerate(row):
                pixel = [each((x - 1) * step, (y - 1) * step) for each in at]
                apart = [one - other for one, other in zip(pixel, planes, strict=False)]
                squares = apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2]
                weight = torch.exp(-4.0 * squares) * near
                sums = [total + part for total, part in zip(sums, (*(weight * p for p in pixel), weight), strict=True)]
        planes = [*(each / sums[3] for each in sums[:3]), planes[3]]
    light = 0.25 * planes[0] + 0.5 * planes[1] + 0.25 * planes[2]
    tones = [each + 0.5 * (share * light - each) for each, share in zip(planes, (0.75, 0.875, 1.25), strict=False)]
    return torch.stack([*tones, planes[3]], 2)


def around32(image: Tensor, reach: int) -> Callable[[int, int], Tensor]:
    """`around` for an image of integers below 2 ** 24."""
    at = around(image.to(torch.float32), reach, reach)
    return lambda dx, dy: at(dx, dy).to(torch.int32)


def functions() -> dict[str, Callable[..., Any]]:
    """By name: the programs that are written here, as functions of tensors."""
    of_suite = (stencil_chain, max_filter, nl_means, interpolate, camera)
    of_fusion = (fusion_harris, fusion_unsharp, sobel, shi_tomasi, enhance, night)
    mine = {each.__name__: each for each in (*of_suite, *of_fusion)}
    known = {name: mine.get(name) or getattr(image_tiles_torch, name, None) for name in PROGRAMS}
    return {name: function for name, function in known.items() if function}


def tensors(name: str, size: int) -> list[Tensor]:
    """The inputs of a program on the GPU."""
    return [_tensor(name, pixels, size, size).cuda() for pixels in PROGRAMS[name].inputs(size)]


def _tensor(name: str, pixels: Any, width: int, height: int) -> Tensor:
    if name == "camera":
        return torch.from_numpy(pixels.reshape(height, width).astype(np.int32))
    shape = (height, width, 4) if name in ("interpolate", "night") else (height, width)
    return torch.from_numpy(np.ascontiguousarray(pixels).view(np.float32).reshape(shape))


class Arm:
    """A program of `torch.compile` in a CUDA graph of some runs."""

    def __init__(self, name: str, size: int, runs: int) -> None:
        self.runs, self.graph, self.inputs = runs, torch.cuda.CUDAGraph(), tensors(name, size)
        made: Any = torch.compile(functions()[name], dynamic=False)
        for _ in range(2):
            made(*self.inputs)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            for _ in range(runs):
                self.outputs = _all(made(*self.inputs))

    def result(self) -> list[Any]:
        """The pixels of each output: height, width, components."""
        self.graph.replay()
        torch.cuda.synchronize()
        return [each.cpu().numpy().reshape(*each.shape[:2], -1) for each in self.outputs]

    def seconds(self) -> float:
        """The time of a run."""
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        self.graph.replay()
        last.record()
        torch.cuda.synchronize()
        return first.elapsed_time(last) * 1e-3 / self.runs


def check() -> None:
    """Compare the programs of the suite with their references."""
    wrong = False
    for name, function in functions().items():
        if not PROGRAMS[name].benchmark:
            continue
        benchmark = find(PROGRAMS[name].benchmark)
        data = benchmark.make_data("tiny", 0, width=96, height=64)
        (expected,) = benchmark.reference(data).values()
        found = function(_tensor(name, data["src"], 96, 64)).numpy()
        apart = float(np.abs(found - np.ascontiguousarray(expected).view(found.dtype).reshape(found.shape)).max())
        print(f"{name}: differs by {apart:.3g}")
        wrong |= not apart < 1e-4
    if wrong:
        sys.exit(1)


def main() -> None:
    """Print a line for each program and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with references, without a GPU")
    parser.add_argument("--json", type=Path, help="append a line for each time to this file")
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--sizes", type=int, nargs="*", default=[2048, 4096, 512], help="widths and heights")
    parser.add_argument("--seconds", type=float, default=60, help="no program starts later")
    chosen = parser.parse_args()
    if chosen.check:
        check()
        return
    start, known = time.monotonic(), functions()
    for size in chosen.sizes:
        for name in chosen.programs:
            if time.monotonic() - start > chosen.seconds or name not in known:
                continue
            inputs, function = tensors(name, size), known[name]
            made: Any = torch.compile(function, dynamic=False)
            pairs = zip(_all(made(*inputs)), _all(function(*inputs)), strict=True)
            apart = [float((one.float() - other.float()).abs().max()) for one, other in pairs]
            if max(apart) > (1 if name == "camera" else 1e-3):  # a root may be rounded to another byte
                print(f"{name} {size}: torch.compile differs by {max(apart):.3g}; it is not timed", flush=True)
                continue
            times = {word: microseconds(each, inputs) for word, each in (("eager", function), ("compile", made))}
            words = " ".join(f"{word} {micros:.2f}" for word, micros in times.items())
            print(f"{name} {size}: {words}; {time.monotonic() - start:.0f} s", flush=True)
            if chosen.json:
                named = {"torch": times["compile"], "torch eager": times["eager"]}
                with chosen.json.open("a") as file:
                    file.write(json.dumps({"program": name, "size": size, "times": named}) + "\n")


def _all(found: Any) -> Any:
    return (*found,) if isinstance(found, tuple) else (found,)


if __name__ == "__main__":
    main()
