"""The kernels of `emulator_kernels.cu` for Numba's CUDA simulator: set NUMBA_ENABLE_CUDASIM=1 before the import."""

# pyright: basic, reportMissingImports=false
from numba import cuda, float32


@cuda.jit
def elementwise(x, y, z, a, n):
    i = cuda.grid(1)
    if i < n:
        v = a * x[i] + y[i]
        z[i] = v if v > 0 else v * v - 1


@cuda.jit
def matmul(a, b, c, n):
    at = cuda.shared.array((8, 8), float32)
    bt = cuda.shared.array((8, 8), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * 8 + ty, cuda.blockIdx.x * 8 + tx
    total = 0.0
    for k in range(0, n, 8):
        at[ty, tx] = a[row * n + k + tx]
        bt[ty, tx] = b[(k + ty) * n + col]
        cuda.syncthreads()
        for i in range(8):
            total += at[ty, i] * bt[i, tx]
        cuda.syncthreads()
    c[row * n + col] = total


@cuda.jit
def traversal(keys, want, out, nodes):
    i = cuda.grid(1)
    w = want[i]
    node = 0
    turns = 0
    while node < nodes:
        key = keys[node]
        if key == w:
            break
        if w < key:
            node = 2 * node + 1
        else:
            turns += 1
            node = 2 * node + 2
    out[i] = turns * 65536 + node
