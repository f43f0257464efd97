// Shared memory and barriers.
#include <stdint.h>
#define ID (blockIdx.x * blockDim.x + threadIdx.x)

//! RUN reverse grid=5 block=64
//! ARG i32[320] bits
extern "C" __global__ void reverse(int *x) {
    __shared__ int s[64];
    s[threadIdx.x] = x[ID];
    __syncthreads();
    x[ID] = s[63 - threadIdx.x];
}

//! RUN reduce grid=10 block=256
//! ARG f32[2560] normal
//! ARG f32[10] zeros
extern "C" __global__ void reduce(const float *x, float *out) {
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = x[ID];
    __syncthreads();
    for (int k = 128; k > 0; k >>= 1) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
    if (t == 0) out[blockIdx.x] = s[0];
}

//! RUN scan grid=6 block=128
//! ARG i32[768] bits
//! ARG i32[768] zeros
extern "C" __global__ void scan(const int *x, int *y) {
    __shared__ int s[2][128];
    int t = threadIdx.x, p = 0;
    s[0][t] = x[ID];
    __syncthreads();
    for (int d = 1; d < 128; d <<= 1) {
        s[1 - p][t] = s[p][t] + (t >= d ? s[p][t - d] : 0);
        p = 1 - p;
        __syncthreads();
    }
    y[ID] = s[p][t];
}

//! RUN matmul grid=(4,4) block=(16,16)
//! ARG f32[4096] normal
//! ARG f32[4096] normal
//! ARG f32[4096] zeros
//! ARG i32 64
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float as[16][16], bs[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        as[ty][tx] = a[row * n + k + tx];
        bs[ty][tx] = b[(k + ty) * n + col];
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += as[ty][i] * bs[i][tx];
        __syncthreads();
    }
    c[row * n + col] = sum;
}

//! RUN transpose grid=(2,3) block=(32,8)
//! ARG i32[6144] bits
//! ARG i32[6144] zeros
extern "C" __global__ void transpose(const int *x, int *y) {
    __shared__ int tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = x[(r + k) * 64 + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x; r = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) y[(r + k) * 96 + c] = tile[threadIdx.x][threadIdx.y + k];
}

//! RUN histogram grid=8 block=128
//! ARG u8[4096] bits
//! ARG i32[256] zeros
//! ARG i32 4096
extern "C" __global__ void histogram(const uint8_t *x, unsigned *out, int n) {
    __shared__ unsigned h[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) h[i] = 0;
    __syncthreads();
    for (int i = ID; i < n; i += gridDim.x * blockDim.x) atomicAdd(&h[x[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&out[i], h[i]);
}

//! RUN bitonic grid=4 block=256
//! ARG i32[1024] bits
extern "C" __global__ void bitonic(int *x) {
    __shared__ int s[256];
    int t = threadIdx.x;
    s[t] = x[ID];
    __syncthreads();
    for (int k = 2; k <= 256; k <<= 1)
        for (int j = k >> 1; j > 0; j >>= 1) {
            int other = t ^ j;
            if (other > t) {
                bool up = (t & k) == 0;
                if ((s[t] > s[other]) == up) { int v = s[t]; s[t] = s[other]; s[other] = v; }
            }
            __syncthreads();
        }
    x[ID] = s[t];
}

//! RUN stencil grid=8 block=128
//! ARG f32[1024] normal
//! ARG f32[1024] zeros
//! ARG i32 1024
extern "C" __global__ void stencil(const float *x, float *y, int n) {
    __shared__ float s[128 + 6];
    int t = threadIdx.x, i = ID;
    s[t + 3] = x[i];
    if (t < 3) s[t] = i >= 3 ? x[i - 3] : 0;
    if (t >= 125) s[t + 6] = i + 3 < n ? x[i + 3] : 0;
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 7; k++) sum += s[t + k];
    y[i] = sum;
}

extern __shared__ double dynamic[];
//! RUN dynamic_shared grid=3 block=96 shared=1536
//! ARG f64[288] normal
extern "C" __global__ void dynamic_shared(double *x) {
    double *a = dynamic, *b = dynamic + 96;
    a[threadIdx.x] = x[ID];
    b[95 - threadIdx.x] = x[ID] * 2;
    __syncthreads();
    x[ID] = a[(threadIdx.x + 1) % 96] - b[threadIdx.x];
}

//! RUN votes grid=4 block=160
//! ARG i32[640] range(3)
//! ARG i32[1920] zeros
extern "C" __global__ void votes(const int *x, int *out) {
    int v = x[ID];
    out[3 * ID] = __syncthreads_count(v == 1);
    out[3 * ID + 1] = __syncthreads_and(v < 2 || blockIdx.x > 1);
    out[3 * ID + 2] = __syncthreads_or(v == 2 && blockIdx.x == 3);
}

//! RUN named grid=4 block=128
//! ARG i32[256] bits
//! ARG i32[256] zeros
extern "C" __global__ void named(const int *x, int *out) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < 64) {
        s[t] = x[blockIdx.x * 64 + t] * 3;
        asm volatile("bar.arrive 1, 128;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 128;" ::: "memory");
        out[blockIdx.x * 64 + t - 64] = s[127 - t];
    }
}

//! RUN halves_of_block grid=3 block=128
//! ARG i32[384] bits
extern "C" __global__ void halves_of_block(int *x) {
    __shared__ int s[128];
    int t = threadIdx.x, half = t / 64;
    for (int k = 0; k < 3; k++) {
        s[t] = x[ID] + k;
        if (half) asm volatile("bar.sync 2, 64;" ::: "memory");
        else asm volatile("bar.sync 1, 64;" ::: "memory");
        x[ID] = s[half * 64 + (t + 7) % 64];
        if (half) asm volatile("bar.sync 2, 64;" ::: "memory");
        else asm volatile("bar.sync 1, 64;" ::: "memory");
    }
}

//! RUN odd_even grid=2 block=64
//! ARG i32[256] bits
extern "C" __global__ void odd_even(int *x) {
    __shared__ int s[128];
    int t = threadIdx.x, b = blockIdx.x * 128;
    s[t] = x[b + t]; s[t + 64] = x[b + t + 64];
    for (int k = 0; k < 128; k++) {
        __syncthreads();
        int i = 2 * t + (k & 1);
        if (i + 1 < 128 && s[i] > s[i + 1]) { int v = s[i]; s[i] = s[i + 1]; s[i + 1] = v; }
    }
    __syncthreads();
    x[b + t] = s[t]; x[b + t + 64] = s[t + 64];
}

//! RUN jacobi grid=(2,2) block=(16,16)
//! ARG f32[1024] normal
//! ARG f32[1024] zeros
extern "C" __global__ void jacobi(const float *x, float *y) {
    __shared__ float s[18][18];
    int gx = blockIdx.x * 16 + threadIdx.x, gy = blockIdx.y * 16 + threadIdx.y;
    for (int k = threadIdx.y * 16 + threadIdx.x; k < 18 * 18; k += 256) {
        int cx = (int)(blockIdx.x * 16) + k % 18 - 1, cy = (int)(blockIdx.y * 16) + k / 18 - 1;
        s[k / 18][k % 18] = cx >= 0 && cx < 32 && cy >= 0 && cy < 32 ? x[cy * 32 + cx] : 0;
    }
    __syncthreads();
    int r = threadIdx.y + 1, c = threadIdx.x + 1;
    y[gy * 32 + gx] = 0.25f * (s[r - 1][c] + s[r + 1][c] + s[r][c - 1] + s[r][c + 1]);
}

//! RUN async_copy grid=4 block=64
//! ARG i32[1024] bits
//! ARG i32[1024] zeros
extern "C" __global__ void async_copy(const int *x, int *y) {
    __shared__ __align__(16) int s[2][256];
    int t = threadIdx.x;
    for (int k = 0; k < 2; k++) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&s[k][4 * t]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + blockIdx.x * 256 + 4 * t) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    int v = s[0][255 - t];
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (int k = 0; k < 4; k++) y[blockIdx.x * 256 + 64 * k + t] = v + s[1][(t * 5 + k * 64) % 256];
}
