"""Image programs beside CuPy's `ndimage` and PyTorch, in one run, with results compared.

    python docs/experiments/image_peers.py build FOLDER [--jobs N] [--sizes 512,4096] [--only sobel,night]    needs nvcc
    python docs/experiments/image_peers.py run FOLDER [--seconds N]      needs a GPU, CuPy, PyTorch and the extra `gpu`

Images are clamped at their edges. A peer is the shortest program that computes the same with the operators of its
library: correlations, median filters, convolutions of padded images, and elementwise functions, which CuPy fuses.
Neither library has a bilateral filter. CuPy's is its `generic_filter` with a CUDA function, and PyTorch's adds shifted
images. A time is that of a CUDA graph with several runs, divided by their number. Where a library cannot be captured
into a graph, it is that of several calls between two events, and the line says so. Before each time the same is run
once more, so that all find their own images in the cache, as far as they fit. `run` prints microseconds, and the
time of a library over that of the lowering `isp+m` and over that of the faster one of `isp+m` and `fused`.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ptxmotion.harness.machine import DeviceFailed
from ptxmotion.python_child import process_pool

PROGRAMS = (
    "gaussian3x3",
    "gaussian5x5",
    "laplace5x5",
    "bilateral13x13",
    "sobel",
    "night",
    "box5x5",
    "median3x3",
    "prewitt",
    "harris",
    "shi_tomasi",
    "unsharp",
    "enhance",
)
LOWERINGS = ("naive", "isp_rows", "isp+m", "fused")
SIZES = (2048, 4096, 512)
ARCH = "sm_90"
RUNS, ROUNDS = 10, 9
#: The largest difference from our result, by program. Peers may contract products and add in another order.
TOLERANCES = {"box5x5": 0.0, "median3x3": 0.0, "prewitt": 0.0}
USUAL_TOLERANCE = 2e-4


# --- ours ---------------------------------------------------------------------------------------------------------


def build(folder: Path, jobs: int, programs: Sequence[str], sizes: Sequence[int]) -> None:
    """Write the cubins and `runs.json`: by program and size, the launches of each lowering."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [(name, size) for size in sizes for name in programs]
    runs: list[Any] = []
    with process_pool(jobs) as pool:
        for made, cubins in pool.map(_built, *zip(*tasks, strict=True)):
            runs.append(made)
            for name, cubin in cubins.items():
                (folder / f"{name}.cubin").write_bytes(cubin)
            print(made["program"], made["size"], flush=True)
    (folder / "runs.json").write_text(json.dumps(runs, indent=0), encoding="utf-8")


def _built(name: str, size: int) -> tuple[Any, dict[str, bytes]]:
    from image_isp import bytes_of, launch_as_json
    from ptxmotion.dsl.image import Options, lower
    from ptxmotion.dsl.image.compiling import compiler
    from ptxmotion.dsl.image.windows import layout_of
    from ptxmotion.suites.registry import find
    from ptxmotion.toolchain.cubin_cache import assemble_kept

    program = find(f"image/{name}")
    assert program.pipeline is not None
    nvcc = compiler(program.flags, ARCH)
    graph = program.pipeline.graph(size, size)
    numbers = program.make_data("tiny", 0)
    cubins: dict[str, bytes] = {}
    arms: dict[str, Any] = {}
    for word in LOWERINGS:
        lowered = lower(graph, word, Options(nvcc=nvcc))
        images: dict[Any, int] = {}
        # A lowering may have changed the graph, so that its images are others.
        for image in (*lowered.graph.inputs, *lowered.graph.outputs, *lowered.buffers):
            images[image] = len(images)
        launches: list[Any] = []
        for launch in lowered.launches:
            ptx = launch.kernel.ptx(nvcc)
            made: dict[str, Any] = {**launch_as_json(launch, ptx, images, numbers), "block": list(launch.block)}
            cubins[made["file"]] = assemble_kept(ptx, ARCH).cubin
            launches.append(made)
        arms[word] = {"launches": launches, "images": [bytes_of(image) for image in images]}
    source, target = graph.inputs[0], graph.outputs[0]
    kinds = [layout_of(image.pixel)[0].str for image in (source, target)]
    lanes = layout_of(source.pixel)[1]
    chosen = {key: value for key, value in numbers.items() if isinstance(value, int | float)}
    return {"program": name, "size": size, "arms": arms, "kinds": kinds, "lanes": lanes, "numbers": chosen}, cubins


class Ours:
    """The GPU with our kernels."""

    def __init__(self, folder: Path) -> None:
        from ptxmotion.harness.cuda import CudaBackend

        self.backend = CudaBackend()
        self.folder = folder

    def graph(self, arm: Any, buffers: Sequence[Any]) -> Any:
        """A graph of several runs of an arm."""
        calls: list[Callable[[], object]] = []
        for launch in arm["launches"]:
            module = self.backend.load_cubin((self.folder / f"{launch['file']}.cubin").read_bytes())
            kernel = module.kernel(launch["entry"])
            values = [
                buffers[value] if kind == "image" else np.dtype(kind).type(value) for kind, value in launch["arguments"]
            ]
            packed = self.backend.pack(kernel, values)
            grid, block = launch["grid"], launch["block"]
            calls.append(self.backend.launch_call(kernel, (grid[0], grid[1], 1), (block[0], block[1], 1), 0, packed))

        def body() -> None:
            for _ in range(RUNS):
                for call in calls:
                    call()

        body()
        self.backend.synchronize()
        return self.backend.graph(body)

    def seconds(self, graph: Any) -> float:
        """The time of a graph."""
        return self.backend.seconds_of_graph(graph)


# --- masks of all peers -------------------------------------------------------------------------------------------

SMALL = np.outer([1, 2, 1], [1, 2, 1]).astype(np.float32) / 16
LARGE = np.outer([1, 4, 6, 4, 1], [1, 4, 6, 4, 1]).astype(np.float32) / 256
LAPLACE = np.ones((5, 5), np.float32) - 25 * (np.arange(25).reshape(5, 5) == 12).astype(np.float32)
SOBEL = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float32)
PREWITT = np.array([[-1, 0, 1]] * 3, np.float32)
STEPS = (1, 2, 4, 8)
_SQUARES = np.arange(-6, 7) ** 2
NEARNESS = np.exp(-(_SQUARES[:, None] + _SQUARES[None, :]) / 18.0).astype(np.float32)

BILATERAL = """
extern "C" __global__ void bilateral(double* pixels, int count, double* result) {
    float centre = (float)pixels[84], weights = 0, total = 0;
    for (int at = 0; at < count; ++at) {
        int x = at % 13 - 6, y = at / 13 - 6;
        float pixel = (float)pixels[at], apart = pixel - centre;
        float weight = expf(-20.0f * apart * apart) * expf(-(x * x + y * y) / 18.0f);
        weights += weight;
        total += weight * pixel;
    }
    *result = total / weights;
}
"""


# --- CuPy ---------------------------------------------------------------------------------------------------------


def cupy_programs() -> dict[str, Callable[[Any, Any], Any]]:
    """By program: a function of an image and the numbers of the program."""
    cp: Any = importlib.import_module("cupy")
    nd: Any = importlib.import_module("cupyx.scipy.ndimage")
    fuse: Any = cp.fuse
    small, large, laplace = cp.asarray(SMALL), cp.asarray(LARGE), cp.asarray(LAPLACE)
    sobel = cp.asarray(SOBEL), cp.asarray(SOBEL.T.copy())
    prewitt = cp.asarray(PREWITT), cp.asarray(PREWITT.T.copy())
    box, ninth = cp.ones((5, 5), np.float32), cp.full((3, 3), 1 / 9, np.float32)

    def correlate(image: Any, mask: Any) -> Any:
        return nd.correlate(image, mask, output=np.float32, mode="nearest")

    @fuse()
    def magnitude(x: Any, y: Any) -> Any:
        return cp.sqrt(x * x + y * y)

    @fuse()
    def corner(xx: Any, xy: Any, yy: Any, share: Any) -> Any:
        return xx * yy - xy * xy - share * ((xx + yy) * (xx + yy))

    @fuse()
    def eigenvalue(xx: Any, xy: Any, yy: Any) -> Any:
        half = (xx - yy) * np.float32(0.5)
        return (xx + yy) * np.float32(0.5) - cp.sqrt(half * half + xy * xy)

    @fuse()
    def sharp(image: Any, blurred: Any, amount: Any) -> Any:
        return cp.minimum(cp.maximum(image + (image - blurred) * amount, np.float32(0)), np.float32(1))

    @fuse()
    def logarithm(image: Any) -> Any:
        return cp.log(image + np.float32(0.5))

    @fuse()
    def enhanced(total: Any, gamma: Any, low: Any, high: Any) -> Any:
        return (cp.exp(total * gamma) - low) / (high - low)

    @fuse()
    def strength(x: Any, y: Any) -> Any:
        return cp.minimum(cp.abs(x) + cp.abs(y), np.float32(255)).astype(np.uint8)

    @fuse()
    def rounded_mean(total: Any) -> Any:
        return cp.floor((total + np.float32(12)) / np.float32(25)).astype(np.uint8)

    def matrix(image: Any) -> list[Any]:
        x, y = (correlate(image, mask) for mask in sobel)
        return [correlate(each, small) for each in (x * x, x * y, y * y)]

    kernel = cp.RawKernel(BILATERAL, "bilateral")
    one: Any = np.float32
    return {
        "gaussian3x3": lambda a, n: correlate(a, small),
        "gaussian5x5": lambda a, n: correlate(a, large),
        "laplace5x5": lambda a, n: correlate(a, laplace),
        "bilateral13x13": lambda a, n: nd.generic_filter(a, kernel, size=13, mode="nearest"),
        "sobel": lambda a, n: magnitude(*(correlate(a, mask) for mask in sobel)),
        "box5x5": lambda a, n: rounded_mean(correlate(a, box)),
        "median3x3": lambda a, n: nd.median_filter(a, size=3, mode="nearest"),
        "prewitt": lambda a, n: strength(*(correlate(a, mask) for mask in prewitt)),
        "harris": lambda a, n: corner(*matrix(a), one(n["share"])),
        "shi_tomasi": lambda a, n: eigenvalue(*matrix(a)),
        "unsharp": lambda a, n: sharp(a, correlate(a, large), one(n["amount"])),
        "enhance": lambda a, n: enhanced(
            correlate(logarithm(a), ninth), one(n["gamma"]), one(n["low"]), one(n["high"])
        ),
    }


class Cupy:
    """CuPy on its own stream."""

    def __init__(self) -> None:
        self.cupy: Any = importlib.import_module("cupy")
        self.programs = cupy_programs()
        self.stream: Any = self.cupy.cuda.Stream(non_blocking=True)
        self.first, self.last = self.cupy.cuda.Event(), self.cupy.cuda.Event()

    def array(self, pixels: Any) -> Any:
        return self.cupy.asarray(pixels)

    def host(self, array: Any) -> Any:
        return self.cupy.asnumpy(array)

    def prepared(self, call: Callable[[], Any], count: int) -> tuple[Callable[[], object], bool]:
        """A function that makes several calls, and whether it is a graph."""

        def several() -> None:
            for _ in range(count):
                call()

        with self.stream:
            several()
            self.stream.synchronize()
            try:
                self.stream.begin_capture()
                several()
                graph = self.stream.end_capture()
            except Exception as why:
                print(f"    CuPy is not captured: {str(why)[:90]}")
                self.stream = self.cupy.cuda.Stream(non_blocking=True)
                return several, False
        return lambda: graph.launch(self.stream), True

    def seconds(self, several: Callable[[], object]) -> float:
        with self.stream:
            self.first.record(self.stream)
            several()
            self.last.record(self.stream)
            self.last.synchronize()
        return self.cupy.cuda.get_elapsed_time(self.first, self.last) / 1e3


# --- PyTorch ------------------------------------------------------------------------------------------------------


def torch_programs() -> dict[str, Callable[[Any, Any], Any]]:
    """By program: a function of an image and the numbers of the program."""
    api: Any = importlib.import_module("torch")
    fun: Any = importlib.import_module("torch.nn.functional")
    api.backends.cudnn.allow_tf32 = False
    api.backends.cuda.matmul.allow_tf32 = False

    def weights(*masks: Any) -> Any:
        return api.from_numpy(np.stack(masks)[:, None].copy()).cuda()

    small, large, laplace = weights(SMALL), weights(LARGE), weights(LAPLACE)
    sobel, prewitt = weights(SOBEL, SOBEL.T), weights(PREWITT, PREWITT.T)
    box, ninth = weights(np.ones((5, 5), np.float32)), weights(np.full((3, 3), 1 / 9, np.float32))

    def padded(images: Any, reach: int) -> Any:
        return fun.pad(images, (reach, reach, reach, reach), mode="replicate")

    def convolved(image: Any, mask: Any) -> Any:
        """All results of the masks, as (masks, height, width)."""
        return fun.conv2d(padded(image[None, None], mask.shape[-1] // 2), mask)[0]

    def magnitude(image: Any, n: Any) -> Any:
        x, y = convolved(image, sobel)
        return api.sqrt(x * x + y * y)

    def matrix(image: Any) -> Any:
        x, y = convolved(image, sobel)
        products = api.stack([x * x, x * y, y * y])[:, None]
        return fun.conv2d(padded(products, 1), small)[:, 0]

    def harris(image: Any, n: Any) -> Any:
        xx, xy, yy = matrix(image)
        trace = xx + yy
        return xx * yy - xy * xy - n["share"] * (trace * trace)

    def shi_tomasi(image: Any, n: Any) -> Any:
        xx, xy, yy = matrix(image)
        half = (xx - yy) * 0.5
        return (xx + yy) * 0.5 - api.sqrt(half * half + xy * xy)

    def bilateral(image: Any, n: Any) -> Any:
        source, (height, width) = padded(image[None, None], 6)[0, 0], image.shape
        total, sums = api.zeros_like(image), api.zeros_like(image)
        for dy, dx in itertools.product(range(13), range(13)):
            pixel = source[dy : dy + height, dx : dx + width]
            apart = pixel - image
            weight = api.exp(apart * apart * -20.0) * float(NEARNESS[dy, dx])
            sums += weight
            total += weight * pixel
        return total / sums

    def night(image: Any, n: Any) -> Any:
        height, width, _ = image.shape
        for step in STEPS:
            planes = image.permute(2, 0, 1)[None]
            source = padded(planes, step)[0].permute(1, 2, 0)
            colours = image[..., :3]
            total, sums = api.zeros_like(colours), api.zeros_like(image[..., :1])
            for y, x in itertools.product(range(3), range(3)):
                pixel = source[y * step : y * step + height, x * step : x * step + width, :3]
                apart = pixel - colours
                weight = api.exp((apart * apart).sum(2, keepdim=True) * -4.0) * float(SMALL[y, x])
                sums += weight
                total += weight * pixel
            image = api.cat([total / sums, image[..., 3:]], 2)
        red, green, blue = image[..., 0], image[..., 1], image[..., 2]
        luminance = 0.25 * red + 0.5 * green + 0.25 * blue
        lanes = [
            lane + n["darkness"] * (factor * luminance - lane)
            for lane, factor in ((red, 0.75), (green, 0.875), (blue, 1.25))
        ]
        return api.stack([*lanes, image[..., 3]], 2)

    def prewitt_strength(image: Any, n: Any) -> Any:
        x, y = convolved(image.float(), prewitt)
        return (x.abs() + y.abs()).clamp(max=255).to(api.uint8)

    def median(image: Any, n: Any) -> Any:
        source, (height, width) = padded(image.float()[None, None], 1)[0, 0], image.shape
        shifts = [source[dy : dy + height, dx : dx + width] for dy in range(3) for dx in range(3)]
        return api.stack(shifts).median(0).values.to(api.uint8)

    def enhance(image: Any, n: Any) -> Any:
        total = convolved(api.log(image + 0.5), ninth)[0]
        return (api.exp(total * n["gamma"]) - n["low"]) / (n["high"] - n["low"])

    return {
        "gaussian3x3": lambda a, n: convolved(a, small)[0],
        "gaussian5x5": lambda a, n: convolved(a, large)[0],
        "laplace5x5": lambda a, n: convolved(a, laplace)[0],
        "bilateral13x13": bilateral,
        "sobel": magnitude,
        "night": night,
        "box5x5": lambda a, n: ((convolved(a.float(), box)[0] + 12) / 25).floor().to(api.uint8),
        "median3x3": median,
        "prewitt": prewitt_strength,
        "harris": harris,
        "shi_tomasi": shi_tomasi,
        "unsharp": lambda a, n: (a + (a - convolved(a, large)[0]) * n["amount"]).clamp(0, 1),
        "enhance": enhance,
    }


class Torch:
    """PyTorch."""

    def __init__(self) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.programs = torch_programs()
        self.first, self.last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))

    def array(self, pixels: Any) -> Any:
        return self.torch.from_numpy(pixels).cuda()

    def host(self, array: Any) -> Any:
        return array.cpu().numpy()

    def prepared(self, call: Callable[[], Any], count: int) -> tuple[Callable[[], object], bool]:
        """A function that makes several calls, and whether it is a graph."""

        def several() -> None:
            for _ in range(count):
                call()

        call()
        self.torch.cuda.synchronize()
        try:
            graph = self.torch.cuda.CUDAGraph()
            with self.torch.cuda.graph(graph):
                several()
        except Exception as why:
            print(f"    PyTorch is not captured: {str(why)[:90]}")
            return several, False
        return graph.replay, True

    def seconds(self, several: Callable[[], object]) -> float:
        self.first.record()
        several()
        self.last.record()
        self.last.synchronize()
        return self.first.elapsed_time(self.last) / 1e3


# --- run ----------------------------------------------------------------------------------------------------------


def run(folder: Path, seconds: float) -> None:
    """Compare and time all programs, for at most ``seconds``."""
    started = time.monotonic()
    runs = json.loads((folder / "runs.json").read_text(encoding="utf-8"))
    ours = Ours(folder)
    failures = 0
    libraries: dict[str, Any] = {}
    for name, make in (("cupy", Cupy), ("torch", Torch)):
        try:
            libraries[name] = make()
        except ImportError as why:
            print(f"{name} is missing: {why}")
    print(ours.backend.describe()["gpu"], *(f"{n} {getattr(x, n).__version__}" for n, x in libraries.items()))
    print("program size: microseconds of our lowerings and of the libraries; library over isp+m, over our best")
    for each in runs:
        if time.monotonic() - started > seconds:
            print("the time has ended")
            break
        try:
            _timed(ours, libraries, each)
        except (DeviceFailed, _ResultsDiffer) as why:
            failures += 1
            print(f"{each['program']} {each['size']} fails: {why}", flush=True)
    else:
        print(f"all programs in {time.monotonic() - started:.0f} s")
    if failures:
        sys.exit(f"{failures} programs failed")


class _ResultsDiffer(Exception):
    """A lowering computes other pixels than the naive one. The text names it."""


def _timed(ours: Ours, libraries: dict[str, Any], run: Any) -> None:
    name, size, lanes = run["program"], run["size"], run["lanes"]
    backend = ours.backend
    numbers: Any = np.random.default_rng(size)
    dtype, shape = np.dtype(run["kinds"][0]), (size, size, lanes) if lanes > 1 else (size, size)
    drawn: Any = numbers.random(shape) if dtype.kind == "f" else numbers.integers(0, 256, shape)
    pixels = drawn.astype(dtype)
    most = [0] * max(len(arm["images"]) for arm in run["arms"].values())
    for arm in run["arms"].values():
        most = [max(old, new) for old, new in itertools.zip_longest(most, arm["images"], fillvalue=0)]
    buffers = [backend.allocate(nbytes) for nbytes in most]
    backend.write(buffers[0], pixels.reshape(-1))
    arms: dict[str, tuple[Any, Any, int]] = {}
    results: dict[str, Any] = {}
    for word, arm in run["arms"].items():
        arms[word] = ours, ours.graph(arm, buffers), RUNS
        results[word] = backend.read(buffers[1], np.dtype(run["kinds"][1]), size * size * lanes).reshape(shape)
        if results[word].tobytes() != results["naive"].tobytes():
            raise _ResultsDiffer(f"{word} differs from naive")
    words = set[str]()
    for word, library in libraries.items():
        program = library.programs.get(name)
        if program is None:
            continue
        array = library.array(pixels)
        call = lambda program=program, array=array: program(array, run["numbers"])  # noqa: E731
        try:
            found: Any = library.host(call())
            count = RUNS if library.seconds(call) < 2e-3 else 1
            several, is_graph = library.prepared(call, count)
        except Exception as why:
            print(f"    {word} fails: {type(why).__name__}: {str(why)[:200]}", flush=True)
            continue
        wrong = float(np.abs(found.astype(np.float64) - results["naive"].astype(np.float64)).max())
        if not wrong <= TOLERANCES.get(name, USUAL_TOLERANCE):
            print(f"    {word} differs by {wrong:.3g}: it is not timed", flush=True)
            continue
        arms[word] = library, several, count
        words |= set() if is_graph else {f"{word} by events"}
    times: dict[str, list[float]] = {word: [] for word in arms}
    order = random.Random(size)
    for number in range(ROUNDS + 1):
        for word in order.sample(sorted(arms), len(arms)):
            library, several, count = arms[word]
            library.seconds(several)
            seconds = library.seconds(several)
            if number:
                times[word].append(seconds / count)
    median = {word: statistics.median(each) * 1e6 for word, each in times.items()}
    best = min(median["isp+m"], median["fused"])
    columns = " ".join(f"{word} {micros:.2f}" for word, micros in median.items())
    known = [word for word in libraries if word in median]
    gains = " ".join(f"{word}: {median[word] / median['isp+m']:.2f} {median[word] / best:.2f}" for word in known)
    print(f"{name} {size}: {columns}; {gains} {', '.join(sorted(words))}", flush=True)
    for word in LOWERINGS:
        backend.destroy_graph(arms[word][1])
    for buffer in buffers:
        backend.free(buffer)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    each = actions.add_parser("build")
    each.add_argument("folder", type=Path)
    each.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    each.add_argument("--sizes", default=",".join(map(str, SIZES)), help="widths of the images, with commas")
    each.add_argument("--only", default=",".join(PROGRAMS), help="names of programs, with commas")
    each = actions.add_parser("run")
    each.add_argument("folder", type=Path)
    each.add_argument("--seconds", type=float, default=3600)
    options = parser.parse_args()
    if options.action == "build":
        sizes = [int(size) for size in options.sizes.split(",")]
        build(options.folder, options.jobs, options.only.split(","), sizes)
    else:
        run(options.folder, options.seconds)


if __name__ == "__main__":
    main()
