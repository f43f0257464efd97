// The three kernels of `docs/experiments/emulator.py`; `numba_kernels.py` has the same in Python.

extern "C" __global__ void elementwise(const float *x, const float *y, float *z, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = a * x[i] + y[i];
        z[i] = v > 0.0f ? v : v * v - 1.0f;
    }
}

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float as[8][8], bs[8][8];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 8 + ty, col = blockIdx.x * 8 + tx;
    float sum = 0;
    for (int k = 0; k < n; k += 8) {
        as[ty][tx] = a[row * n + k + tx];
        bs[ty][tx] = b[(k + ty) * n + col];
        __syncthreads();
        for (int i = 0; i < 8; i++) sum += as[ty][i] * bs[i][tx];
        __syncthreads();
    }
    c[row * n + col] = sum;
}

// How often each key's path in a binary search tree turns right, and where it ends.
extern "C" __global__ void traversal(const int *keys, const int *want, int *out, int nodes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, w = want[i], node = 0, turns = 0;
    while (node < nodes) {
        int key = keys[node];
        if (key == w) break;
        if (w < key) node = 2 * node + 1;
        else {
            turns++;
            node = 2 * node + 2;
        }
    }
    out[i] = turns * 65536 + node;
}
