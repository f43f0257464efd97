"""The programs of `image_schedule_programs` in PyTorch, for `torch.compile`.

    python docs/experiments/image_schedule_torch.py --check [--compiled] [--programs …]                       on the CPU
    python docs/experiments/image_schedule_torch.py --prepare FILE [--programs …] [--sizes N ...] [--seconds N]

``--check`` compares the programs of the suite with their NumPy references. ``--prepare`` compiles all variants for the
GPU, several at a time, and writes a line of JSON for each: what `image_schedule_peers.py run --torch FILE` then times
is in the cache of `torch.compile` and takes no time to compile.

The edges of the input are repeated once, by as much as all windows together reach, as Halide does. So a window is a sum
of slices. Where each operator repeated the edges of its own input, Harris took 651 µs with 2048² pixels on an H200,
and naive kernels 141.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import sys
import time
from collections.abc import Callable, Sequence
from math import isqrt
from pathlib import Path
from typing import Any

import image_tiles_torch
import numpy as np
from image_schedule_programs import PROGRAMS
from image_tiles_torch import Tensor, inside, padded, torch, weighted
from ptxmotion.suites.registry import find

SMALL = [[1 / 16, 2 / 16, 1 / 16], [2 / 16, 4 / 16, 2 / 16], [1 / 16, 2 / 16, 1 / 16]]
#: By name: options of `torch.compile`. By default, its compiler decides which images between operators are in memory,
#: and computes the others again for each reader. ``torch stages`` keeps each image that is read more than once; kernels
#: whose pixels agree are still merged. The reordering of loops fails for pyramids (``InductorError``: an index ``is not
#: comparable``), so it is off.
VARIANTS: dict[str, dict[str, Any]] = {
    "torch": {"loop_ordering_after_fusion": False},
    "torch stages": {"loop_ordering_after_fusion": False, "realize_reads_threshold": 0},
}


def stencil_chain(src: Tensor) -> Tensor:
    made = padded(src, 8, 8)
    for _ in range(8):
        made = weighted(made, SMALL)
    return made


def max_filter(src: Tensor) -> Tensor:
    height, width = src.shape
    levels = [padded(src, 12, 12)]
    for power in range(4):
        last = levels[-1]
        levels.append(torch.maximum(last[: -(2**power)], last[2**power :]))
    found = src
    for dx in range(-12, 13):
        reach = isqrt(144 - dx * dx)
        power = (2 * reach + 1).bit_length() - 1
        for first in sorted({-reach, reach + 1 - 2**power}):
            pixels = levels[power][12 + first : 12 + first + height, 12 + dx : 12 + dx + width]
            found = torch.maximum(found, pixels)
    return found


def nl_means(src: Tensor) -> Tensor:
    pixels = inside(padded(src, 3, 3), 3, 3)
    apart = inside(padded(src, 3, 3), 1, 1)
    weights, total = torch.zeros_like(src), torch.zeros_like(src)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            distance = (apart(0, 0) - apart(dx, dy)) ** 2
            weight = torch.exp(-16.0 * weighted(weighted(distance, [[1.0] * 5]), [[1.0]] * 5))
            weights = weights + weight
            total = total + weight * pixels(dx, dy)
    return total / weights


def interpolate(src: Tensor) -> Tensor:
    image = src.permute(2, 0, 1)
    opacity = image[3:]
    levels = [torch.cat([image[:3] * opacity, opacity])]
    for _ in range(3):
        levels.append(weighted(padded(levels[-1], 1, 1), SMALL)[:, ::2, ::2])
    made = levels[-1]
    for level in reversed(levels[:-1]):
        right = torch.cat([made[:, :, 1:], made[:, :, -1:]], 2)
        wide = torch.stack([made, (made + right) * 0.5], 3).flatten(2)[:, :, : level.shape[2]]
        below = torch.cat([wide[:, 1:], wide[:, -1:]], 1)
        tall = torch.stack([wide, (wide + below) * 0.5], 2).flatten(1, 2)[:, : level.shape[1]]
        made = level + (1.0 - level[3:]) * tall
    return torch.cat([made[:3] / made[3:], torch.ones_like(made[3:])]).permute(1, 2, 0).contiguous()


def camera(src: Tensor) -> Tensor:
    # The margin is even, so that the pattern of colours is the same: 2 for hot pixels, 2 for colours, 2 for sharpening.
    wide = padded(src.to(torch.float32), 6, 6).to(torch.int32)
    at = inside(wide, 2, 2)
    near = torch.maximum(torch.maximum(at(-2, 0), at(2, 0)), torch.maximum(at(0, -2), at(0, 2)))
    whole = torch.minimum(at(0, 0), near)
    gr, red, blue, gb = (inside(whole[y::2, x::2], 1, 1) for x, y in ((0, 0), (1, 0), (0, 1), (1, 1)))

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
    detail = 0.5 * (luminance[1:-1, 1:-1] - weighted(luminance, [[1.0] * 3] * 3) * 0.125)[1:-1, 1:-1]
    channels = [torch.sqrt((each[2:-2, 2:-2] + detail).clamp(0, 1)) * 255.0 for each in made]
    return torch.stack([*channels, torch.full_like(detail, 255.0)], 2).to(torch.uint8)


def sobel(src: Tensor) -> Tensor:
    x, y = _gradients(padded(src, 1, 1))
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
    x, y = _gradients(padded(src, 2, 2))
    return [weighted(each, SMALL) for each in (x * x, x * y, y * y)]


def fusion_unsharp(src: Tensor) -> Tensor:
    row = (1, 4, 6, 4, 1)
    blurred = weighted(padded(src, 2, 2), [[one * other / 256 for one in row] for other in row])
    return (src + (src - blurred) * 1.5).clamp(0, 1)


def enhance(src: Tensor) -> Tensor:
    mean = torch.exp(weighted(torch.log(padded(src, 1, 1) + 0.5), [[1.0] * 3] * 3) / 9.0)
    return (torch.exp(torch.log(mean) * 0.8) - 0.25) / 1.25


def night(src: Tensor) -> Tensor:
    planes = list(padded(src.permute(2, 0, 1)[:3], 15, 15))
    for step in (1, 2, 4, 8):
        at = [inside(each, step, step) for each in planes]
        own = [each(0, 0) for each in at]
        sums = [torch.zeros_like(own[0]) for _ in range(4)]
        for y, row in enumerate(SMALL):
            for x, near in enumerate(row):
                pixel = [each((x - 1) * step, (y - 1) * step) for each in at]
                apart = [one - other for one, other in zip(pixel, own, strict=True)]
                squares = apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2]
                weight = torch.exp(-4.0 * squares) * near
                sums = [total + part for total, part in zip(sums, (*(weight * p for p in pixel), weight), strict=True)]
        planes = [each / sums[3] for each in sums[:3]]
    light = 0.25 * planes[0] + 0.5 * planes[1] + 0.25 * planes[2]
    tones = [each + 0.5 * (share * light - each) for each, share in zip(planes, (0.75, 0.875, 1.25), strict=True)]
    return torch.stack([*tones, src[:, :, 3]], 2)


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


def compiled(name: str, word: str) -> Callable[..., Any]:
    """A program, compiled with the options of a variant when it is called."""
    return torch.compile(functions()[name], dynamic=False, options=VARIANTS[word])


class Arm:
    """A program of `torch.compile` in a CUDA graph of some runs. ``word`` is a variant."""

    def __init__(self, name: str, size: int, runs: int, word: str = "torch") -> None:
        self.runs, self.graph, self.inputs = runs, torch.cuda.CUDAGraph(), tensors(name, size)
        made = compiled(name, word)
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


#: The pixels at each edge that are not compared: only the input's edges are repeated here.
MARGIN = 40


def check(programs: Sequence[str], is_compiled: bool) -> None:
    """Compare the programs of the suite with their NumPy references, on the CPU."""
    wrong = False
    for name in programs:
        if name not in functions() or not PROGRAMS[name].benchmark:
            continue
        benchmark = find(PROGRAMS[name].benchmark)
        data = benchmark.make_data("tiny", 0, width=160, height=128)
        (expected,) = benchmark.reference(data).values()
        source = _tensor(name, data["src"], 160, 128)
        for word in VARIANTS if is_compiled else ("eager",):
            start = time.monotonic()
            found = (compiled(name, word) if is_compiled else functions()[name])(source).numpy()
            wanted = np.ascontiguousarray(expected).view(found.dtype).reshape(found.shape)
            inner = np.s_[MARGIN:-MARGIN, MARGIN:-MARGIN]
            apart = float(np.abs(found[inner].astype(np.float64) - wanted[inner]).max())
            print(f"{name}, {word}: differs by {apart:.3g}; {time.monotonic() - start:.1f} s", flush=True)
            wrong |= not apart <= (1 if name == "camera" else 1e-4)  # a root may be rounded to another byte
    if wrong:
        sys.exit(1)


def prepare(file: Path, programs: Sequence[str], sizes: Sequence[int], seconds: float, jobs: int) -> None:
    """Compile programs in several processes, whose results are in the cache of `torch.compile` afterwards. Writes what
    is done into the file as it is done. Processes that are still at work after ``seconds`` are ended."""
    tasks = [(name, size, word) for word in reversed(VARIANTS) for size in sizes for name in programs]
    context = multiprocessing.get_context("spawn")
    waiting, done = context.Queue(), context.Queue()
    for task in tasks:
        waiting.put(task)
    workers = [context.Process(target=_prepare, args=(waiting, done), daemon=True) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    start, left = time.monotonic(), len(tasks)
    with file.open("w") as written:
        while left and (rest := start + seconds - time.monotonic()) > 0 and any(each.is_alive() for each in workers):
            try:
                record: dict[str, Any] = done.get(timeout=min(rest, 1.0))
            except queue.Empty:
                continue
            left -= 1
            written.write(json.dumps(record) + "\n")
            written.flush()
            print(" ".join(str(value) for value in record.values()), flush=True)
    for worker in workers:
        worker.kill()
    print(f"{len(tasks) - left} of {len(tasks)} after {time.monotonic() - start:.0f} s")


def _prepare(waiting: Any, done: Any) -> None:
    """Compile what is waiting. An error is the result of a program, and does not end the process."""
    while True:
        try:
            name, size, word = waiting.get(timeout=1.0)
        except queue.Empty:
            return
        start, error = time.monotonic(), ""
        try:
            compiled(name, word)(*tensors(name, size))
            torch.cuda.synchronize()
        except Exception as why:
            error = f"{type(why).__name__}: {str(why).strip().splitlines()[0][:160]}"
        seconds = round(time.monotonic() - start, 1)
        done.put({"program": name, "size": size, "variant": word, "seconds": seconds, "error": error})


def main() -> None:
    """Compare programs with references, or compile them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with references, without a GPU")
    parser.add_argument("--compiled", action="store_true", help="with --check: also after torch.compile for the CPU")
    parser.add_argument("--prepare", type=Path, metavar="FILE", help="compile, and write what is done to this file")
    parser.add_argument("--programs", nargs="*", default=list(functions()), choices=list(functions()))
    parser.add_argument("--sizes", type=int, nargs="*", default=[2048], help="widths and heights")
    parser.add_argument("--seconds", type=float, default=60, help="compilations that take longer are ended")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    chosen = parser.parse_args()
    if chosen.check:
        check(chosen.programs, chosen.compiled)
    if chosen.prepare:
        prepare(chosen.prepare, chosen.programs, chosen.sizes, chosen.seconds, chosen.jobs)


def _all(found: Any) -> Any:
    return (*found,) if isinstance(found, tuple) else (found,)


if __name__ == "__main__":
    main()
