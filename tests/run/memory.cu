// State spaces, vectors, parameters by value, initialised variables, output.
#include <stdint.h>
#include <stdio.h>
#define ID (blockIdx.x * blockDim.x + threadIdx.x)

struct Config { int n; double scale; short shift[3]; float4 v; };
//! RUN by_value grid=2 block=32
//! ARG struct i4:7 pad4 f8:2.5 i2:1 i2:-2 i2:3 pad2 pad8 f4:1 f4:2 f4:3 f4:4
//! ARG f64[64] zeros
extern "C" __global__ void by_value(Config c, double *out) {
    out[ID] = c.n * c.scale + c.shift[ID % 3] + (&c.v.x)[ID % 4];
}

__constant__ int coefficients[8] = {3, 1, 4, 1, 5, -9, 2, 6};
__constant__ double one = 1.25;
//! RUN constants grid=2 block=64
//! ARG f64[128] zeros
extern "C" __global__ void constants(double *out) { out[ID] = coefficients[ID % 8] * one + coefficients[3]; }

__device__ int matrix[3][4] = {{1, 2, 3, 4}, {5, 6}, {9, 10, 11, 12}};
__device__ const char *names[3] = {"alpha", "beta", "gamma"};
__device__ int *inner = &matrix[1][1];
__device__ short counter = 5;
__device__ float weights[4] = {0.5f, -1.0f, 3e8f, 1e-40f};
//! RUN variables grid=1 block=48
//! ARG i32[48] zeros
//! ARG f32[48] zeros
extern "C" __global__ void variables(int *out, float *f) {
    out[ID] = matrix[ID % 3][ID % 4] + names[ID % 3][ID % 4] + *inner + counter;
    f[ID] = weights[ID % 4];
}

//! RUN generic grid=2 block=64
//! ARG i32[128] bits
//! ARG i32[128] zeros
extern "C" __global__ void generic(const int *x, int *out) {
    __shared__ int s[64];
    int local[4] = {1, 2, 3, (int)ID};
    s[threadIdx.x] = x[ID] * 2;
    __syncthreads();
    const int *p = ID % 3 == 0 ? x + ID : ID % 3 == 1 ? s + (63 - threadIdx.x) : local + (ID & 3);
    out[ID] = *p;
}

//! RUN dynamic_local grid=2 block=64
//! ARG i32[128] range(32)
//! ARG i32[128] zeros
extern "C" __global__ void dynamic_local(const int *x, int *out) {
    int a[32];
    for (int i = 0; i < 32; i++) a[i] = i * i;
    a[x[ID]] = -1;
    int s = 0;
    for (int i = 0; i < 32; i++) s = s * 3 + a[(i * 7 + ID) & 31];
    out[ID] = s;
}

//! RUN vectors grid=2 block=32
//! ARG i16[512] bits
//! ARG u8[512] zeros
//! ARG f64[128] zeros
extern "C" __global__ void vectors(const short4 *x, uchar4 *y, double2 *z) {
    short4 a = x[2 * ID], b = x[2 * ID + 1];
    y[ID] = make_uchar4(a.x, b.y, a.z, b.w);
    z[ID] = make_double2(a.x + b.x, a.w * b.w);
}

__device__ int persistent[4];
//! RUN persist grid=1 block=4
//! ARG i32[4] zeros
extern "C" __global__ void persist(int *out) {
    persistent[ID] += ID + 1;
    out[ID] = persistent[ID];
}

//! RUN print grid=2 block=2
//! OUTPUT block 0 thread 0 of 2: x=1.50 abc %
//! OUTPUT block 0 thread 1 of 2: x=2.50 abc %
//! OUTPUT block 1 thread 0 of 2: x=2.50 abc %
//! OUTPUT block 1 thread 1 of 2: x=3.50 abc %
extern "C" __global__ void print() {
    printf("block %d thread %u of %lld: x=%.2f %s %%\n", blockIdx.x, threadIdx.x, 2LL, 1.5 + threadIdx.x + blockIdx.x, "abc");
}

//! RUN heap grid=2 block=16
//! ARG i32[32] zeros
extern "C" __global__ void heap(int *out) {
    int *p = (int *)malloc(4 * (threadIdx.x + 1));
    for (int i = 0; i <= threadIdx.x; i++) p[i] = i;
    int s = 0;
    for (int i = 0; i <= threadIdx.x; i++) s += p[i];
    free(p);
    out[ID] = s;
}

//! RUN cached grid=4 block=64
//! ARG f32[256] normal
//! ARG f32[256] zeros
extern "C" __global__ void cached(const float *__restrict__ x, float *y) {
    float v = __ldg(x + ID) + __ldcg(x + (ID ^ 1)) + __ldcs(x + (ID ^ 2));
    __stwt(y + ID, v * __ldlu(x + (ID ^ 3)));
}
