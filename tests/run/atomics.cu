// Atomic operations whose outcome does not depend on the order of threads.
#include <cuda_fp16.h>
#include <stdint.h>
#define ID (blockIdx.x * blockDim.x + threadIdx.x)
typedef unsigned long long u64;

//! RUN counters grid=10 block=128
//! ARG i32[1280] bits
//! ARG i32[10] zeros
extern "C" __global__ void counters(const int *x, int *c) {
    int v = x[ID];
    atomicAdd(&c[0], v); atomicSub(&c[1], v); atomicMin(&c[2], v); atomicMax(&c[3], v);
    atomicMin((unsigned *)&c[4], (unsigned)v); atomicMax((unsigned *)&c[5], (unsigned)v);
    atomicAnd(&c[6], v); atomicOr(&c[7], v & 0xff00); atomicXor(&c[8], v); atomicInc((unsigned *)&c[9], 100);
}

//! RUN wide_counters grid=10 block=128
//! ARG i64[1280] bits
//! ARG i64[8] bits
extern "C" __global__ void wide_counters(const long long *x, long long *c) {
    long long v = x[ID];
    atomicAdd((u64 *)&c[0], (u64)v); atomicMin(&c[1], v); atomicMax(&c[2], v); atomicMin((u64 *)&c[3], (u64)v);
    atomicMax((u64 *)&c[4], (u64)v); atomicAnd((u64 *)&c[5], (u64)v); atomicOr((u64 *)&c[6], (u64)v);
    atomicXor((u64 *)&c[7], (u64)v);
}

//! RUN float_sums grid=8 block=128
//! ARG i32[1024] range(1000)
//! ARG f32[16] zeros
//! ARG f64[16] zeros
//! ARG i32[4] zeros
extern "C" __global__ void float_sums(const int *x, float *f, double *d, __half2 *h) {
    int v = x[ID];
    atomicAdd(&f[v % 16], (float)v);
    atomicAdd(&d[v % 16], v * 0.5);
    if (v < 8) atomicAdd(&h[v % 4], __floats2half2_rn(1.0f, 2.0f));
}

//! RUN bins grid=6 block=100
//! ARG i32[600] range(37)
//! ARG i32[37] zeros
//! ARG i32[600] zeros
extern "C" __global__ void bins(const int *x, int *count, int *seen) {
    int old = atomicAdd(&count[x[ID]], 1);
    atomicAdd(&seen[x[ID] * 16 + old % 16], 1);
}

//! RUN cas_loop grid=4 block=64
//! ARG f64[256] integers
//! ARG f64[4] zeros
extern "C" __global__ void cas_loop(const double *x, double *out) {
    u64 *p = (u64 *)&out[ID & 3], old = *(volatile u64 *)p, was;
    do { was = old; old = atomicCAS(p, was, (u64)__double_as_longlong(__longlong_as_double((long long)was) + x[ID])); }
    while (was != old);
}

//! RUN short_cas grid=2 block=64
//! ARG i16[8] zeros
extern "C" __global__ void short_cas(unsigned short *x) {
    unsigned short *p = x + (ID & 7), old = *(volatile unsigned short *)p, was;
    do { was = old; old = atomicCAS(p, was, (unsigned short)(was + 3)); } while (was != old);
}

__device__ unsigned finished;
//! RUN last_block grid=12 block=64
//! ARG i32[768] bits
//! ARG i32[12] zeros
//! ARG i32[1] zeros
extern "C" __global__ void last_block(const int *x, int *partial, int *out) {
    __shared__ int s[64];
    __shared__ bool is_last;
    int t = threadIdx.x;
    s[t] = x[ID];
    __syncthreads();
    for (int k = 32; k > 0; k >>= 1) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
    if (t == 0) {
        partial[blockIdx.x] = s[0];
        __threadfence();
        is_last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && t == 0) {
        int sum = 0;
        for (int k = 0; k < gridDim.x; k++) sum += partial[k];
        out[0] = sum;
    }
}

__device__ int lock_word;
//! RUN spin_lock grid=4 block=32
//! ARG i32[2] zeros
extern "C" __global__ void spin_lock(int *x) {
    bool done = false;
    while (!done) {
        if (atomicCAS(&lock_word, 0, 1) == 0) {
            __threadfence();
            x[0] = x[0] + 1; x[1] = x[1] + 2;
            __threadfence();
            atomicExch(&lock_word, 0);
            done = true;
        }
    }
}

//! RUN shared_atomics grid=4 block=128
//! ARG i32[512] bits
//! ARG i32[32] zeros
extern "C" __global__ void shared_atomics(const int *x, int *out) {
    __shared__ int s[8];
    int t = threadIdx.x, v = x[ID];
    if (t < 8) s[t] = t == 3 ? 0x7fffffff : t == 6 ? -1 : 0;
    __syncthreads();
    atomicAdd(&s[0], v); atomicOr(&s[1], v); atomicXor(&s[2], v); atomicMin(&s[3], v); atomicMax(&s[4], v);
    atomicDec((unsigned *)&s[5], 50); atomicAnd(&s[6], v | 15); atomicAdd((float *)&s[7], 1.0f);
    __syncthreads();
    if (t < 8) out[blockIdx.x * 8 + t] = s[t];
}

//! RUN aggregated grid=4 block=128
//! ARG i32[512] range(4)
//! ARG i32[1] zeros
//! ARG i32[512] zeros
extern "C" __global__ void aggregated(const int *x, int *count, int *flags) {
    if (x[ID] == 2) {
        unsigned active = __activemask();
        int lane = threadIdx.x & 31, leader = __ffs(active) - 1, base = 0;
        if (lane == leader) base = atomicAdd(count, __popc(active));
        base = __shfl_sync(active, base, leader);
        flags[base + __popc(active & ((1u << lane) - 1))] = 1;
    }
}

//! RUN handoff grid=2 block=32
//! ARG i32[8] zeros
extern "C" __global__ void handoff(int *x) {
    // Block 1 waits for block 0: release and acquire through memory.
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        x[0] = 41;
        asm volatile("st.release.gpu.global.b32 [%0], 1;" ::"l"(x + 1) : "memory");
    } else {
        int ready = 0;
        while (!ready) asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(ready) : "l"(x + 1) : "memory");
        x[2] = x[0] + 1;
    }
}
