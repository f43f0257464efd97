"""A user's own benchmark, whose kernel reads neighbours (coalesced) or strides over memory (not coalesced)."""

from pathlib import Path

_FILE = """\
import numpy as np
from ptxmotion.dsl import allocate, blockDim, blockIdx, copy, gridDim, host, i32, kernel, program, ptr, threadIdx
from ptxmotion.suites.registry import Benchmark

@kernel
def scale(x: ptr[i32], y: ptr[i32]) -> None:
    i: i32 = INDEX
    y[i] = x[i] * 3 + 1

@program
def run(x: host[i32], y: host[i32]) -> None:
    dx = allocate(i32, 4096)
    dy = allocate(i32, 4096)
    copy(dx, x)
    scale[32, 128](dx, dy)
    copy(y, dy)

def make_data(size, seed):
    x = np.random.default_rng(seed).integers(0, 1000, 4096).astype(np.int32)
    return {"x": x, "y": np.zeros(4096, np.int32)}

benchmark = Benchmark("mine", "scale", run, make_data, lambda data: {"y": data["x"] * 3 + 1},
                      [], "", sizes={"tiny": "4096"})
"""

COALESCED = "blockIdx.x * blockDim.x + threadIdx.x"
STRIDED = "threadIdx.x * gridDim.x + blockIdx.x"


def write_program(path: Path, index: str) -> Path:
    """Write the benchmark with this index of the element of a thread."""
    path.write_text(_FILE.replace("INDEX", index))
    return path


def write_ptx(path: Path, index: str) -> Path:
    """Write the PTX that nvcc makes of the kernel with this index."""
    from ptxmotion.suites.registry import from_file
    from ptxmotion.suites.runner import compiler, ptx_of

    (benchmark,) = from_file(write_program(path.with_suffix(".py"), index))
    path.write_text(ptx_of(benchmark, compiler())["scale"])
    return path
