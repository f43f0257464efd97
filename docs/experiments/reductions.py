"""Global operators beside CUB and beside a copy: time and bandwidth by the size of the image.

    python docs/experiments/reductions.py [--library FILE] [--build FILE] [--most BYTES] [--shapes 512x4,1024x2]

Needs a GPU and the extra `gpu`. `reductions_cub.cu` is compiled with nvcc and the headers of CUB that come with it;
``--build`` only does this, and ``--library`` takes a library that was built before. Each time is that of a CUDA graph
with ten launches, divided by ten. Each round times all arms, in a random order. Prints medians in microseconds, the
ratio of CUB's time to that of ptxmotion with its least and greatest value over three groups of rounds, and the
bandwidth of ptxmotion beside that of the copy. ``--shapes`` also times kernels with other numbers of threads of a block
and words of a thread, and prints CUB's time over theirs.

The results of integers are compared with NumPy's. Sums of floating-point numbers are compared with a tolerance,
because CUB adds in another order. Two runs of ptxmotion are compared bit for bit.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ptxmotion.arch import H200_MULTIPROCESSORS
from ptxmotion.dsl import types as t
from ptxmotion.dsl.image import global_operators
from ptxmotion.harness.cuda import CudaBackend, CudaBuffer
from ptxmotion.suites.runner import compiler
from ptxmotion.toolchain.tools import find_tool

SOURCE = Path(__file__).with_name("reductions_cub.cu")
ROUNDS, LAUNCHES, GROUPS = 30, 10, 3


@dataclass(frozen=True)
class Case:
    """An operator on one type of pixels. ``cub`` has the numbers of type and operation in `reductions_cub.cu`."""

    name: str
    operator: global_operators.Reduction
    pixel: t.Scalar
    cub: tuple[int, int]


CASES = (
    Case("sum f32", global_operators.total(t.F32), t.F32, (0, 0)),
    Case("min f32", global_operators.minimum(t.F32), t.F32, (0, 1)),
    Case("max i32", global_operators.maximum(t.I32), t.I32, (1, 2)),
    Case("max u8", global_operators.maximum(t.U8), t.U8, (2, 2)),
)


@contextlib.contextmanager
def shape(threads: int, words: int) -> Generator[None]:
    """Kernels and grids with this many threads of a block, and words that a thread loads at once."""
    names = ("BLOCK", "UNROLL", "MOST_RESIDENT", "MOST_BLOCKS")
    before = {name: getattr(global_operators, name) for name in names}
    resident = 2048 // threads
    for name, value in zip(names, (threads, words, resident, H200_MULTIPROCESSORS * resident), strict=True):
        setattr(global_operators, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(global_operators, name, value)


def build(target: Path) -> None:
    """Compile the calls of CUB."""
    nvcc = find_tool("nvcc").path
    root = nvcc.parents[1]
    command = [str(nvcc), "-O3", "-std=c++17", "-arch=sm_90", "-shared", "-Xcompiler", "-fPIC", "-cudart", "static"]
    paths = [f"-I{root / 'include' / 'cccl'}", f"-L{root / 'lib'}"]
    subprocess.run([*command, *paths, str(SOURCE), "-o", str(target)], check=True)


class Machine:
    """The GPU with the library of CUB."""

    def __init__(self, library: Path) -> None:
        self.backend = CudaBackend()
        self.reduce = ctypes.CDLL(str(library)).cub_reduce
        self.reduce.restype = ctypes.c_long
        self.stream = ctypes.c_void_p(int(self.backend.stream.handle))

    def graph(self, call: Callable[[], object]) -> Any:
        """A graph of `LAUNCHES` calls."""

        def body() -> None:
            for _ in range(LAUNCHES):
                call()

        call()
        self.backend.synchronize()
        return self.backend.graph(body)

    def seconds(self, graph: Any) -> float:
        """The time of one call in a graph."""
        return self.backend.seconds_of_graph(graph) / LAUNCHES

    def ours(self, case: Case, kernel: Any, source: CudaBuffer, pixels: int) -> tuple[Callable[[], object], CudaBuffer]:
        """A prepared launch of our kernel, and where its result is."""
        grid = global_operators.Words.of(case.pixel).blocks(pixels)
        partial, counter, out = (self.backend.allocate(size) for size in (16 * grid, 4, 16))
        self.backend.fill(counter, 0)
        arguments = [np.int32(pixels), source, partial, counter, out]
        packed = self.backend.pack(kernel, arguments)
        return self.backend.launch_call(kernel, (grid, 1, 1), (global_operators.BLOCK, 1, 1), 0, packed), out

    def of_cub(self, case: Case, source: CudaBuffer, pixels: int) -> tuple[Callable[[], object], CudaBuffer]:
        """A call of CUB, and where its result is."""
        type, operation = case.cub
        out = self.backend.allocate(16)
        pointers = ctypes.c_void_p(source.pointer), ctypes.c_void_p(out.pointer), ctypes.c_long(pixels), self.stream
        needed = self.reduce(type, operation, None, ctypes.c_size_t(0), *pointers)
        assert needed > 0, needed
        space = self.backend.allocate(needed)

        def call() -> None:
            status = self.reduce(type, operation, ctypes.c_void_p(space.pointer), ctypes.c_size_t(needed), *pointers)
            assert status >= 0, status

        return call, out


def compared(machine: Machine, case: Case, kernels: dict[str, Any], nbytes: int) -> None:
    """Print one row. ``kernels`` has our kernel as ``ours``, and others by the name of their shape."""
    backend = machine.backend
    pixels = nbytes // case.pixel.bytes
    numbers = np.random.default_rng(nbytes)
    dtype = case.pixel.dtype
    # A block of random pixels is repeated: drawing 4 GiB of them would take a minute.
    block = min(pixels, 1 << 22)
    part = numbers.integers(0, 200, block).astype(dtype) if dtype.kind != "f" else numbers.random(block, np.float32)
    image = np.tile(part, -(-pixels // block))[:pixels]
    source, target = backend.allocate(nbytes), backend.allocate(nbytes)
    backend.write(source, image)
    (ours, out), (cub, cub_out) = (
        machine.ours(case, kernels["ours"], source, pixels),
        machine.of_cub(case, source, pixels),
    )
    arms = {"ours": ours, "cub": cub, "copy": backend.copy_call(target, source, nbytes, 0, 0)}
    outs = {"ours": out}
    for name, kernel in kernels.items():
        if name != "ours":
            with shape(*sizes_of(name)):
                arms[name], outs[name] = machine.ours(case, kernel, source, pixels)
    graphs = {name: machine.graph(call) for name, call in arms.items()}
    times: dict[str, list[float]] = {name: [] for name in arms}
    order = random.Random(nbytes)
    for number in range(ROUNDS + 3):
        for name in order.sample(sorted(arms), len(arms)):
            seconds = machine.seconds(graphs[name])
            if number >= 3:
                times[name].append(seconds)
    found, theirs = backend.read(out, dtype, 1)[0], backend.read(cub_out, dtype, 1)[0]
    for name, other in outs.items():
        value = backend.read(other, dtype, 1)[0]
        assert value == found or (case.cub[1] == 0 and abs(value - found) <= 1e-5 * found), (name, value, found)
    backend.launch_graph(graphs["ours"])
    backend.synchronize()
    assert backend.read(out, dtype, 1)[0].tobytes() == found.tobytes(), "two runs differ"
    if case.cub[1] == 0:
        assert abs(float(found) - float(image.sum(dtype=np.float64))) <= 1e-5 * float(found), (found, theirs)
    else:
        assert found == theirs == (image.min() if case.cub[1] == 1 else image.max()), (found, theirs)
    median = {name: statistics.median(each) for name, each in times.items()}
    share = ROUNDS // GROUPS
    parts = [slice(at * share, at * share + share) for at in range(GROUPS)]
    ratios = [statistics.median(times["cub"][part]) / statistics.median(times["ours"][part]) for part in parts]
    read, moved = nbytes / median["ours"] / 1e9, 2 * nbytes / median["copy"] / 1e9
    columns = [f"{median[name] * 1e6:9.2f}" for name in ("ours", "cub", "copy")]
    gain = f"{median['cub'] / median['ours']:7.3f} [{min(ratios):.3f}, {max(ratios):.3f}]"
    shapes = [f"{name} {median['cub'] / median[name]:.3f}" for name in kernels if name != "ours"]
    print(f"{case.name:8} {nbytes:13,}", *columns, gain, f"{read:7.0f} {read / moved:6.2f}", *shapes, flush=True)
    for graph in graphs.values():
        backend.destroy_graph(graph)
    for buffer in (source, target):
        backend.free(buffer)


def sizes_of(shape: str) -> tuple[int, int]:
    """The numbers of a shape such as ``512x4``."""
    threads, words = (int(each) for each in shape.split("x"))
    return threads, words


def kernels_of(machine: Machine, case: Case, shapes: list[str]) -> dict[str, Any]:
    """Our kernel, and those of other shapes."""

    def kernel() -> Any:
        return machine.backend.load(case.operator.kernel(case.pixel, "reduce", sm=90).ptx(compiler())).kernel("reduce")

    found = {"ours": kernel()}
    for name in shapes:
        with shape(*sizes_of(name)):
            found[name] = kernel()
    return found


def main() -> None:
    """Print all rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, help="the compiled reductions_cub.cu")
    parser.add_argument("--build", type=Path, help="only compile it to this file")
    parser.add_argument("--most", type=int, default=1 << 30, help="bytes of the largest image")
    parser.add_argument("--shapes", default="", help="shapes of other kernels, such as 512x4,1024x2")
    options = parser.parse_args()
    if options.build is not None:
        build(options.build)
        return
    with tempfile.TemporaryDirectory() as folder:
        library = options.library or Path(folder) / "libreductions.so"
        if options.library is None:
            build(library)
        machine = Machine(library)
        print(machine.backend.describe()["gpu"], sys.version.split()[0], shutil.which("nvcc") or "")
        print("times in microseconds; bandwidth of ours in GB/s, and as a share of the copy's (read and written bytes)")
        print(f"{'':8} {'bytes':>13} {'ours':>9} {'CUB':>9} {'copy':>9} {'CUB/ours':>22} {'GB/s':>7} {'share':>6}")
        for case in CASES:
            kernels = kernels_of(machine, case, options.shapes.split(",") if options.shapes else [])
            for exponent in range(10, options.most.bit_length()):
                if exponent % 2 == 0 or exponent > 24:
                    compared(machine, case, kernels, 1 << exponent)


if __name__ == "__main__":
    main()
