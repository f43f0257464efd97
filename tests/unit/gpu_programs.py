"""Programs for tests on a GPU: of nvcc, CuPy, Numba, Triton and torch.compile. Each prints what it has computed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

#: In these three programs a kernel computes a division on one side of a branch, and again after a barrier.
CUDA = r"""
#include <cstdio>
__global__ void choose(int *out, const int *in, int limit, int divisor) {
    int i = threadIdx.x;
    int value = in[i];
    int a = 1;
    if (value > limit) a = value / divisor; else atomicAdd(out + 256, 1);
    __syncthreads();
    out[i] = a + value / divisor;
}
int main() {
    int *in, *out, host[512], sum = 0;
    cudaMalloc(&in, sizeof host);
    cudaMalloc(&out, sizeof host);
    for (int i = 0; i < 512; ++i) host[i] = (i * 7919) % 1000;
    cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
    cudaMemset(out, 0, sizeof host);
    choose<<<1, 256>>>(out, in, 500, 7);
    cudaError_t error = cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 512; ++i) sum = sum * 31 + host[i];
    std::printf("%s %d\n", cudaGetErrorString(error), sum);
    return error != cudaSuccess;
}
"""

CUPY = r'''
import cupy
source = r"""
extern "C" __global__ void choose(int *out, const int *in, int limit, int divisor) {
    int i = threadIdx.x;
    int value = in[i];
    int a = 1;
    if (value > limit) a = value / divisor; else atomicAdd(out + 256, 1);
    __syncthreads();
    out[i] = a + value / divisor;
}
"""
given = (cupy.arange(512, dtype=cupy.int32) * 7919) % 1000
out = cupy.zeros(512, cupy.int32)
choose = cupy.RawModule(code=source).get_function("choose")
choose((1,), (256,), (out, given, cupy.int32(500), cupy.int32(7)))
print(out.tolist())
'''

#: In front of a program that imports Numba: it names a function that NumPy 2.5 has removed.
ROW_STACK = """
import numpy
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack
"""

NUMBA = (
    ROW_STACK
    + r"""
import sys
import numpy as np
from numba import cuda, int32
lto = {} if sys.argv[1] == "default" else {"lto": False}

@cuda.jit("void(int32[::1], int32[::1], int32, int32)", **lto)
def choose(out, given, limit, divisor):
    i = cuda.threadIdx.x
    value = given[i]
    a = int32(1)
    if value > limit:
        a = value // divisor
    else:
        cuda.atomic.add(out, 256, 1)
    cuda.syncthreads()
    out[i] = a + value // divisor

given = ((np.arange(512) * 7919) % 1000).astype(np.int32)
out = cuda.to_device(np.zeros(512, np.int32))
choose[1, 256](out, cuda.to_device(given), 500, 7)
print(out.copy_to_host().tolist())
"""
)

TRITON = r"""
import torch
import triton
import triton.language as tl

@triton.jit
def rows(x, y, out, n, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        a = tl.load(x + row * columns + at, mask=inside, other=0.0)
        b = tl.load(y + row * columns + at, mask=inside, other=0.0)
        total += tl.exp(a) * b
        tl.store(out + row * columns + at, a + b, mask=inside)
    tl.store(out + n + row, tl.sum(total))

torch.manual_seed(0)
n, columns = 16, 1000
x, y = torch.rand(n * columns, device="cuda"), torch.rand(n * columns, device="cuda")
out = torch.zeros(n * columns + n, device="cuda")
rows[(n,)](x, y, out, n * columns, columns, BLOCK=256)
print(out.double().sum().item(), out[-n:].tolist())
"""

TORCH = r"""
import torch

@torch.compile
def step(x, y):
    z = torch.softmax(x * 2 + y, dim=1)
    return z @ y.T, torch.nn.functional.layer_norm(z, z.shape[1:]).sum(dim=0)

torch.manual_seed(0)
x, y = torch.rand(64, 1000, device="cuda"), torch.rand(64, 1000, device="cuda")
first, second = step(x, y)
print(first.double().sum().item(), second.tolist())
"""


def program(folder: Path, text: str, *needs: str) -> list[str]:
    """The command of a Python program. Skips the test if a package is missing."""
    for name in needs:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    (folder / "program.py").write_text(text)
    return [sys.executable, "program.py"]
