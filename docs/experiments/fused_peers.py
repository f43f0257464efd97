"""Image pipelines of this project beside `torch.compile` and CuPy's `fuse`, in one process and in turns.

    python docs/experiments/fused_peers.py [--sizes N,N] [--seconds N]

Needs a GPU, PyTorch with Triton, CuPy, nvcc. Programs: ``sobel``, ``harris``, ``shi_tomasi``, ``unsharp`` and ``chain``
of `image_fusion.py`, with clamped borders, written as one expression of shifted views of a padded image.
`torch.compile` runs in a CUDA graph of ten runs, as the fused pipelines do; CuPy runs ten times on its stream, because
its memory pool is not recorded. Results must agree within 1e-3: the peers contract products and sums.
"""

from __future__ import annotations

import argparse
import importlib
import random
import statistics
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from image_arms import RUNS, Run, compiled
from image_fusion import PIPELINES
from ptxmotion.dsl.image import Options, lower
from ptxmotion.harness.cuda import CudaBackend

ROUNDS = 11


def sobel_of(shift: Callable[[int, int], Any], root: Any) -> Any:
    """The magnitude of the gradient. ``shift(dx, dy)`` is the image at an offset."""
    x = shift(1, -1) - shift(-1, -1) + 2 * (shift(1, 0) - shift(-1, 0)) + shift(1, 1) - shift(-1, 1)
    y = shift(-1, 1) - shift(-1, -1) + 2 * (shift(0, 1) - shift(0, -1)) + shift(1, 1) - shift(1, -1)
    return root(x * x + y * y)


def gradient_products(shift: Callable[[int, int], Any]) -> tuple[Any, Any, Any]:
    """The products of the gradients."""
    x = shift(1, -1) - shift(-1, -1) + 2 * (shift(1, 0) - shift(-1, 0)) + shift(1, 1) - shift(-1, 1)
    y = shift(-1, 1) - shift(-1, -1) + 2 * (shift(0, 1) - shift(0, -1)) + shift(1, 1) - shift(1, -1)
    return x * x, y * y, x * y


def blur_of(shift: Callable[[int, int], Any]) -> Any:
    """A Gaussian filter."""
    corners = shift(-1, -1) + shift(1, -1) + shift(-1, 1) + shift(1, 1)
    return (4 * shift(0, 0) + 2 * (shift(-1, 0) + shift(1, 0) + shift(0, -1) + shift(0, 1)) + corners) * 0.0625


def corner_of(a: Any, b: Any, c: Any) -> Any:
    """The measure of Harris and Stephens."""
    return a * b - c * c - 0.04 * (a + b) * (a + b)


def least_of(a: Any, b: Any, c: Any, root: Any) -> Any:
    """The measure of Shi and Tomasi."""
    return 0.5 * (a + b - root((a - b) * (a - b) + 4.0 * c * c))


def unsharp_of(shift: Callable[[int, int], Any]) -> Any:
    """Sharpening by a Gaussian filter of 5 x 5 pixels."""
    row = (1, 4, 6, 4, 1)
    blurred: Any = sum(row[dx + 2] * row[dy + 2] / 256 * shift(dx, dy) for dy in range(-2, 3) for dx in range(-2, 3))
    src = shift(0, 0)
    return (src + 0.7 * (src - blurred)) / (src + 0.001) * src


def mean_of(shift: Callable[[int, int], Any]) -> Any:
    """The mean of 3 x 3 pixels."""
    total: Any = sum(shift(dx, dy) for dy in (-1, 0, 1) for dx in (-1, 0, 1))
    return total * 0.11111111


def torch_programs() -> dict[str, Callable[[Any], Any]]:
    """The programs with PyTorch."""
    torch: Any = importlib.import_module("torch")
    pad: Any = importlib.import_module("torch.nn.functional").pad

    def views(image: Any, reach: int = 1) -> Callable[[int, int], Any]:
        height, width = image.shape
        wide = pad(image[None, None], (reach,) * 4, mode="replicate")[0, 0]
        return lambda dx, dy: wide[reach + dy : reach + dy + height, reach + dx : reach + dx + width]

    def sobel(image: Any) -> Any:
        return sobel_of(views(image), torch.sqrt)

    def harris(image: Any) -> Any:
        return corner_of(*(blur_of(views(each)) for each in gradient_products(views(image))))

    def shi_tomasi(image: Any) -> Any:
        a, b, c = (blur_of(views(each)) for each in gradient_products(views(image)))
        return least_of(a, b, c, torch.sqrt)

    def unsharp(image: Any) -> Any:
        return unsharp_of(views(image, 2))

    def chain(image: Any) -> Any:
        for _ in range(5):
            image = mean_of(views(image))
        return image

    return {"sobel": sobel, "harris": harris, "shi_tomasi": shi_tomasi, "unsharp": unsharp, "chain": chain}


def cupy_programs() -> dict[str, Callable[[Any], Any]]:
    """The programs with CuPy: what is between two paddings is one fused kernel."""
    cupy: Any = importlib.import_module("cupy")
    near = [(dx, dy) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    far = [(dx, dy) for dy in range(-2, 3) for dx in range(-2, 3)]

    def views(image: Any, offsets: list[tuple[int, int]]) -> list[Any]:
        (height, width), reach = image.shape, -offsets[0][0]
        wide = cupy.pad(image, reach, mode="edge")
        return [wide[reach + dy : reach + dy + height, reach + dx : reach + dx + width] for dx, dy in offsets]

    def shifted(pixels: tuple[Any, ...], offsets: list[tuple[int, int]]) -> Callable[[int, int], Any]:
        return lambda dx, dy: pixels[offsets.index((dx, dy))]

    def fused(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return cupy.fuse(kernel_name=name)(function)

    def of_views(name: str, function: Callable[[Callable[[int, int], Any]], Any], offsets: Any = near) -> Any:
        def body(*pixels: Any) -> Any:
            return function(shifted(pixels, offsets))

        return fused(name, body)

    magnitude = of_views("magnitude", lambda shift: sobel_of(shift, cupy.sqrt))
    products, blurred = of_views("products", gradient_products), of_views("blurred", blur_of)
    mean, sharpened = of_views("mean", mean_of), of_views("sharpened", unsharp_of, far)
    corner = fused("corner", corner_of)

    def least_by_root(a: Any, b: Any, c: Any) -> Any:
        return least_of(a, b, c, cupy.sqrt)

    least = fused("least", least_by_root)

    def tensor(image: Any) -> list[Any]:
        return [blurred(*views(each, near)) for each in products(*views(image, near))]

    def chain(image: Any) -> Any:
        for _ in range(5):
            image = mean(*views(image, near))
        return image

    return {
        "sobel": lambda image: magnitude(*views(image, near)),
        "harris": lambda image: corner(*tensor(image)),
        "shi_tomasi": lambda image: least(*tensor(image)),
        "unsharp": lambda image: sharpened(*views(image, far)),
        "chain": chain,
    }


def main() -> None:
    """Print a row for each program and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="512,2048,4096", help="widths and heights")
    parser.add_argument("--seconds", type=float, default=100, help="no row starts later")
    parser.add_argument("--wait", default="", help="a file: time when it exists")
    chosen = parser.parse_args()
    torch: Any = importlib.import_module("torch")

    start = time.monotonic()
    backend = CudaBackend()
    sizes = [int(each) for each in chosen.sizes.split(",")]
    cubins: dict[str, bytes] = {}
    rows: list[tuple[str, int, dict[str, Callable[[], float]]]] = []
    for size in sizes:
        for name, program in torch_programs().items():
            if time.monotonic() - start > chosen.seconds:
                print(f"{name} {size}: no time", flush=True)
                continue
            try:
                rows.append((name, size, prepared(backend, cubins, name, program, size)))
                print(f"{name} {size}: ready after {time.monotonic() - start:.1f} s", flush=True)
            except Exception:
                print(f"{name} {size}: failed\n{traceback.format_exc(limit=6)}", flush=True)
    while chosen.wait and not Path(chosen.wait).exists() and time.monotonic() - start < chosen.seconds:
        time.sleep(0.2)
    for name, size, arms in rows:
        order, times = random.Random(size), {word: list[float]() for word in arms}
        for number in range(2 * ROUNDS + 2):
            for word in order.sample(sorted(arms), len(arms)):
                seconds = arms[word]()
                if number >= 2:
                    times[word].append(seconds * 1e6)
        shown = " ".join(
            f"{word} {statistics.median(each[:ROUNDS]):.2f} {statistics.median(each[ROUNDS:]):.2f}"
            for word, each in times.items()
        )
        print(f"{name:8} {size:5} {shown}", flush=True)
    torch.cuda.synchronize()


def prepared(
    backend: CudaBackend, cubins: dict[str, bytes], name: str, program: Callable[[Any], Any], size: int
) -> dict[str, Callable[[], float]]:
    """By arm: what runs it and gives the seconds of one run. Raises `AssertionError` if results differ."""
    torch: Any = importlib.import_module("torch")

    graph = {each.name: each for each in PIPELINES}[name].graph(size, size)
    arms = {word: lower(graph, word, Options()) for word in ("naive", "fused")}
    compiled(arms, cubins)
    image = np.random.default_rng(size).random((size, size), np.float32)
    source = backend.allocate(image.nbytes)
    backend.write(source, image.reshape(-1))
    runs = {word: Run(backend, arm, cubins, [source]) for word, arm in arms.items()}
    expected = np.frombuffer(runs["naive"].results()[0], np.float32).reshape(size, size)
    assert runs["fused"].results() == runs["naive"].results(), name
    made: dict[str, Callable[[], float]] = {word: run.seconds for word, run in runs.items()}

    given = torch.from_numpy(image).cuda()
    by_compiler = torch.compile(program, dynamic=False)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        result: Any = by_compiler(given)
        for _ in range(2):
            result = by_compiler(given)
        recorded = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(recorded, stream=side):
            for _ in range(RUNS):
                result = by_compiler(given)
    recorded.replay()
    torch.cuda.synchronize()
    assert np.allclose(result.cpu().numpy(), expected, rtol=1e-3, atol=1e-3), "torch differs"

    def by_torch(_held: Any = (given, result)) -> float:
        """Seconds of a run. The recorded graph reads and writes the memory of ``_held``."""
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        recorded.replay()
        last.record()
        torch.cuda.synchronize()
        return first.elapsed_time(last) * 1e-3 / RUNS

    made["torch.compile"] = by_torch
    try:
        made["cupy.fuse"] = by_cupy(name, image, expected)
    except Exception as why:
        print(f"{name} {size}: CuPy failed: {str(why)[:200]}", flush=True)
    return made


def by_cupy(name: str, image: Any, expected: Any) -> Callable[[], float]:
    """What runs a program with CuPy. Raises `AssertionError` if its result differs."""
    cupy: Any = importlib.import_module("cupy")
    program, on_gpu = cupy_programs()[name], cupy.asarray(image)
    assert np.allclose(cupy.asnumpy(program(on_gpu)), expected, rtol=1e-3, atol=1e-3), "the result differs"

    def seconds() -> float:
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record()
        for _ in range(RUNS):
            program(on_gpu)
        last.record()
        last.synchronize()
        return cupy.cuda.get_elapsed_time(first, last) * 1e-3 / RUNS

    return seconds


if __name__ == "__main__":
    main()
