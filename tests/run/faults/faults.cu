// Planted faults: each kernel has one, and the check named behind FINDING must find it.
#include <assert.h>
#include <stdint.h>
#define ID (blockIdx.x * blockDim.x + threadIdx.x)
#define T ((int)threadIdx.x)
#define ALL 0xffffffffu

//! RUN global_write_past_end grid=4 block=64
//! ARG i32[255] zeros
//! FINDING out-of-bounds
extern "C" __global__ void global_write_past_end(int *x) { x[ID] = 1; }

//! RUN global_read_past_end grid=2 block=64
//! ARG i32[128] bits
//! ARG i32[128] zeros
//! FINDING out-of-bounds
extern "C" __global__ void global_read_past_end(const int *x, int *y) { y[ID] = x[ID + 1]; }

//! RUN global_negative grid=2 block=64
//! ARG i32[128] bits
//! ARG i32[128] zeros
//! FINDING out-of-bounds
extern "C" __global__ void global_negative(const int *x, int *y) { y[ID] = x[(int)ID - 1]; }

//! RUN global_guard_off_by_one grid=2 block=64
//! ARG i32[100] zeros
//! ARG i32 100
//! FINDING out-of-bounds
extern "C" __global__ void global_guard_off_by_one(int *x, int n) { if (ID <= n) x[ID] = ID; }

//! RUN global_wrong_pitch grid=(2,2) block=(8,8)
//! ARG f32[240] zeros
//! FINDING out-of-bounds
extern "C" __global__ void global_wrong_pitch(float *x) {
    x[(blockIdx.y * 8 + threadIdx.y) * 16 + blockIdx.x * 8 + threadIdx.x] = 1;
}

//! RUN global_vector_past_end grid=1 block=32
//! ARG f32[126] normal
//! ARG f32[32] zeros
//! FINDING out-of-bounds
extern "C" __global__ void global_vector_past_end(const float4 *x, float *y) { float4 v = x[ID]; y[ID] = v.x + v.w; }

//! RUN global_null grid=1 block=32
//! ARG i64 0
//! FINDING out-of-bounds
extern "C" __global__ void global_null(int *x) { x[ID] = 1; }

//! RUN global_atomic_past_end grid=1 block=64
//! ARG i32[10] zeros
//! FINDING out-of-bounds
extern "C" __global__ void global_atomic_past_end(int *x) { atomicAdd(&x[ID % 11], 1); }

//! RUN global_far_away grid=1 block=32
//! ARG i32[32] bits
//! FINDING out-of-bounds
extern "C" __global__ void global_far_away(int *x) { x[(long long)ID << 40] = 1; }

//! RUN heap_after_free grid=1 block=1
//! ARG i32[1] zeros
//! FINDING out-of-bounds
extern "C" __global__ void heap_after_free(int *x) {
    volatile int *p = (volatile int *)malloc(16);
    p[0] = 3;
    free((void *)p);
    x[0] = p[0];
}

//! RUN shared_past_end grid=1 block=64
//! ARG i32[64] bits
//! FINDING out-of-bounds
extern "C" __global__ void shared_past_end(int *x) {
    __shared__ int s[64];
    s[T + 1] = x[ID];
    __syncthreads();
    x[ID] = s[(T + 1) & 63];
}

//! RUN shared_into_neighbour grid=1 block=64
//! ARG i32[64] bits
//! FINDING out-of-bounds
extern "C" __global__ void shared_into_neighbour(int *x) {
    __shared__ volatile int s[64], t[64];
    t[T] = 1;
    __syncthreads();
    s[T * 2] = x[ID];
    __syncthreads();
    x[ID] = s[T] + t[T];
}

//! RUN shared_negative grid=1 block=64
//! ARG i32[64] bits
//! FINDING out-of-bounds
extern "C" __global__ void shared_negative(int *x) {
    __shared__ int s[64];
    s[T] = x[ID];
    __syncthreads();
    x[ID] = s[T - 1];
}

extern __shared__ int dynamic[];
//! RUN shared_dynamic_too_small grid=2 block=64 shared=252
//! ARG i32[128] bits
//! FINDING out-of-bounds
extern "C" __global__ void shared_dynamic_too_small(int *x) {
    dynamic[T] = x[ID];
    __syncthreads();
    x[ID] = dynamic[63 - T];
}

//! RUN shared_atomic_past_end grid=1 block=64
//! ARG i32[64] bits
//! FINDING out-of-bounds
extern "C" __global__ void shared_atomic_past_end(int *x) {
    __shared__ int s[16];
    if (T < 16) s[T] = 0;
    __syncthreads();
    atomicAdd(&s[x[ID] & 31], 1);
    __syncthreads();
    x[ID] = s[T & 15];
}

//! RUN local_past_end grid=1 block=32
//! ARG i32[32] range(64)
//! FINDING out-of-bounds
extern "C" __global__ void local_past_end(int *x) {
    int a[32];
    for (int i = 0; i < 32; i++) a[i] = i;
    a[x[ID]] = 7;
    x[ID] = a[(x[ID] + ID) & 31];
}

__constant__ int table[8] = {1, 2, 3};
//! RUN constant_past_end grid=1 block=32
//! ARG i32[32] bits
//! FINDING out-of-bounds
extern "C" __global__ void constant_past_end(int *x) { x[ID] = table[ID % 9]; }

//! RUN generic_past_end grid=1 block=64
//! ARG i32[64] bits
//! FINDING out-of-bounds
extern "C" __global__ void generic_past_end(int *x) {
    __shared__ int s[64];
    s[T] = T;
    __syncthreads();
    volatile int *p = x[ID] & 1 ? x : s;
    x[ID] = p[T + 60];
}

//! RUN misaligned_vector grid=1 block=16
//! ARG f32[68] normal
//! ARG f32[16] zeros
//! FINDING misaligned
extern "C" __global__ void misaligned_vector(const float *x, float *y) {
    float4 v = *(const float4 *)(x + 1 + 4 * ID);
    y[ID] = v.x + v.y;
}

//! RUN misaligned_int grid=1 block=16
//! ARG u8[100] bits
//! ARG i32[16] zeros
//! FINDING misaligned
extern "C" __global__ void misaligned_int(const uint8_t *x, int *y) { y[ID] = *(const int *)(x + 3 * ID); }

//! RUN misaligned_shared grid=1 block=16
//! ARG f64[16] zeros
//! FINDING misaligned
extern "C" __global__ void misaligned_shared(double *y) {
    __shared__ int s[64];
    for (int i = T; i < 64; i += 16) s[i] = i;
    __syncthreads();
    y[ID] = *(volatile double *)(s + T);
}

//! RUN misaligned_atomic grid=1 block=4
//! ARG i32[16] zeros
//! FINDING misaligned
extern "C" __global__ void misaligned_atomic(char *x) { atomicAdd((int *)(x + 2), 1); }

//! RUN unwritten_shared grid=1 block=64
//! ARG i32[64] zeros
//! FINDING uninitialised-memory
extern "C" __global__ void unwritten_shared(int *x) {
    __shared__ int s[64];
    if (T < 63) s[T] = T;
    __syncthreads();
    x[ID] = s[T];
}

//! RUN unwritten_dynamic grid=2 block=32 shared=256
//! ARG i32[64] zeros
//! FINDING uninitialised-memory
extern "C" __global__ void unwritten_dynamic(int *x) {
    dynamic[T] = T;
    __syncthreads();
    x[ID] = dynamic[T + 32];
}

//! RUN unwritten_local grid=1 block=32
//! ARG i32[32] range(8)
//! FINDING uninitialised-memory
extern "C" __global__ void unwritten_local(int *x) {
    int a[8];
    a[x[ID]] = 3;
    x[ID] = a[(ID * 3) & 7];
}

//! RUN unwritten_heap grid=1 block=2
//! ARG i32[2] zeros
//! FINDING uninitialised-memory
extern "C" __global__ void unwritten_heap(int *x) { volatile int *p = (volatile int *)malloc(64); x[ID] = p[5]; }

//! RUN unwritten_atomic grid=1 block=32
//! ARG i32[32] zeros
//! FINDING uninitialised-memory
extern "C" __global__ void unwritten_atomic(int *x) {
    __shared__ int s;
    atomicAdd(&s, 1);
    __syncthreads();
    x[ID] = s;
}

//! RUN copy_not_waited_for grid=1 block=32
//! ARG i32[32] bits
//! ARG i32[32] zeros
//! FINDING uninitialised-memory
extern "C" __global__ void copy_not_waited_for(const int *x, int *y) {
    __shared__ int s[32];
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[T]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + T) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    __syncthreads();
    y[T] = s[T];
    asm volatile("cp.async.wait_all;" ::: "memory");
}

//! RUN unset_register grid=1 block=32
//! ARG i32[32] range(2)
//! FINDING uninitialised-register
extern "C" __global__ void unset_register(int *x) {
    int r;
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b32 t;\n\tsetp.ne.s32 p, %1, 0;\n\t@p mov.b32 t, 5;\n\tadd.s32 %0, t, 1;\n\t}"
        : "=r"(r) : "r"(x[ID]));
    x[ID] = r;
}

//! RUN barrier_for_some_warps grid=1 block=64
//! ARG i32[64] zeros
//! FINDING partial-barrier
extern "C" __global__ void barrier_for_some_warps(int *x) {
    if (T < 32) __syncthreads();
    x[ID] = 1;
}

//! RUN barrier_behind_return grid=2 block=64
//! ARG i32[100] zeros
//! ARG i32 100
//! FINDING partial-barrier
extern "C" __global__ void barrier_behind_return(int *x, int n) {
    if (ID >= n) return;
    __syncthreads();
    x[ID] = 1;
}

//! RUN barrier_in_branch grid=1 block=32
//! ARG i32[32] range(2)
//! FINDING divergent-barrier
extern "C" __global__ void barrier_in_branch(int *x) {
    if (x[ID]) { asm volatile("bar.sync 0;" ::: "memory"); x[ID] = 2; }
    else { x[ID] = 3; asm volatile("bar.sync 0;" ::: "memory"); }
}

//! RUN barrier_numbers_differ grid=1 block=64
//! ARG i32[64] zeros
//! FINDING deadlock
extern "C" __global__ void barrier_numbers_differ(int *x) {
    if (T < 32) asm volatile("bar.sync 1;" ::: "memory");
    else asm volatile("bar.sync 2;" ::: "memory");
    asm volatile("bar.sync 3;" ::: "memory");
    x[ID] = 1;
}

//! RUN barrier_count_too_large grid=1 block=64
//! ARG i32[64] zeros
//! FINDING deadlock
extern "C" __global__ void barrier_count_too_large(int *x) {
    asm volatile("bar.sync 1, 96;" ::: "memory");
    x[ID] = 1;
}

//! RUN race_shared_no_barrier grid=1 block=64
//! ARG i32[64] bits
//! FINDING race
extern "C" __global__ void race_shared_no_barrier(int *x) {
    __shared__ int s[64];
    s[T] = x[ID];
    x[ID] = ((volatile int *)s)[63 - T];
}

//! RUN race_shared_second_barrier grid=1 block=64
//! ARG i32[64] bits
//! FINDING race
extern "C" __global__ void race_shared_second_barrier(int *x) {
    __shared__ int s[64];
    for (int k = 0; k < 3; k++) {
        s[T] = x[ID] + k;
        __syncthreads();
        x[ID] = s[(T + 33) & 63];
    }
}

//! RUN race_shared_writes grid=1 block=64
//! ARG i32[64] bits
//! FINDING race
extern "C" __global__ void race_shared_writes(int *x) {
    __shared__ int s[8];
    s[T & 7] = x[ID];
    __syncthreads();
    x[ID] = s[T & 7];
}

//! RUN race_shared_counter grid=1 block=64
//! ARG i32[64] range(4)
//! FINDING race
extern "C" __global__ void race_shared_counter(int *x) {
    __shared__ int s[4];
    if (T < 4) s[T] = 0;
    __syncthreads();
    s[x[ID]]++;
    __syncthreads();
    x[ID] = s[T & 3];
}

//! RUN race_shared_last_warp grid=1 block=64
//! ARG f32[64] normal
//! FINDING race
extern "C" __global__ void race_shared_last_warp(float *x) {
    __shared__ float s[64];
    s[T] = x[ID];
    __syncthreads();
    if (T < 32) {
        for (int k = 32; k > 0; k >>= 1) { if (T < k) s[T] += s[T + k]; asm volatile("" ::: "memory"); }
    }
    if (T == 0) x[0] = s[0];
}

//! RUN race_shared_in_warp grid=1 block=32
//! ARG i32[32] bits
//! FINDING race
extern "C" __global__ void race_shared_in_warp(int *x) {
    __shared__ int s[32];
    s[T] = x[ID];
    asm volatile("" ::: "memory");
    x[ID] = s[T ^ 1];
}

//! RUN race_shared_wrong_partner grid=1 block=128
//! ARG i32[128] bits
//! FINDING race
extern "C" __global__ void race_shared_wrong_partner(int *x) {
    __shared__ int s[128];
    s[T] = x[ID];
    if (T < 64) asm volatile("bar.sync 1, 64;" ::: "memory");
    else asm volatile("bar.sync 2, 64;" ::: "memory");
    x[ID] = s[127 - T];
}

//! RUN race_shared_bytes grid=1 block=64
//! ARG u8[64] bits
//! FINDING race
extern "C" __global__ void race_shared_bytes(uint8_t *x) {
    __shared__ uint8_t s[65];
    s[T] = x[ID];
    asm volatile("" ::: "memory");
    s[T + 1] = x[ID] + 1;
    __syncthreads();
    x[ID] = s[T];
}

//! RUN race_shared_before_atomic grid=1 block=64
//! ARG i32[64] zeros
//! FINDING race
extern "C" __global__ void race_shared_before_atomic(int *x) {
    __shared__ int s;
    if (T == 0) s = 0;
    atomicAdd(&s, 1);
    __syncthreads();
    x[ID] = s;
}

//! RUN race_global_in_block grid=2 block=64
//! ARG i32[128] bits
//! FINDING race
extern "C" __global__ void race_global_in_block(int *x) { int v = x[ID ^ 63]; x[ID] = v; }

//! RUN race_global_across_blocks grid=4 block=32
//! ARG f32[129] normal
//! FINDING race
extern "C" __global__ void race_global_across_blocks(float *x) {
    float v = x[ID + 1];
    __syncthreads();
    x[ID] = v * 0.5f;
}

//! RUN race_global_counter grid=4 block=32
//! ARG i32[1] zeros
//! FINDING race
extern "C" __global__ void race_global_counter(int *x) { x[0] = x[0] + 1; }

//! RUN race_global_writes grid=4 block=32
//! ARG i32[16] zeros
//! FINDING race
extern "C" __global__ void race_global_writes(int *x) { x[ID & 15] = ID; }

//! RUN race_global_barrier_is_not_enough grid=2 block=64
//! ARG i32[128] bits
//! ARG i32[128] zeros
//! FINDING race
extern "C" __global__ void race_global_barrier_is_not_enough(int *x, int *y) {
    x[ID] = ID;
    __syncthreads();
    y[ID] = ((volatile int *)x)[127 - ID];
}

__device__ unsigned done;
//! RUN race_global_no_fence grid=4 block=32
//! ARG i32[4] zeros
//! ARG i32[1] zeros
//! FINDING race
extern "C" __global__ void race_global_no_fence(int *partial, int *out) {
    if (T == 0) {
        partial[blockIdx.x] = blockIdx.x * 3;
        if (atomicAdd(&done, 1) == gridDim.x - 1) {
            int sum = 0;
            for (int k = 0; k < gridDim.x; k++) sum += partial[k];
            out[0] = sum;
        }
    }
}

//! RUN race_global_plain_and_atomic grid=2 block=32
//! ARG i32[1] zeros
//! FINDING race
extern "C" __global__ void race_global_plain_and_atomic(int *x) {
    if (ID == 5) x[0] = 100;
    else atomicAdd(x, 1);
}

//! RUN race_global_bytes grid=1 block=64
//! ARG u8[65] zeros
//! FINDING race
extern "C" __global__ void race_global_bytes(uint8_t *x) { x[ID / 2] = ID; }

//! RUN same_value grid=2 block=32
//! ARG i32[1] zeros
//! FINDING same-value-race
extern "C" __global__ void same_value(int *x) { x[0] = 1; }

//! RUN membermask_without_self grid=1 block=32
//! ARG i32[32] bits
//! FINDING membermask
extern "C" __global__ void membermask_without_self(int *x) {
    unsigned r;
    asm volatile("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0x7fffffff;" : "=r"(r) : "r"(x[ID]));
    x[ID] = r;
}

//! RUN membermask_absent grid=1 block=32
//! ARG i32[32] bits
//! FINDING deadlock
extern "C" __global__ void membermask_absent(int *x) {
    if (T < 16) x[ID] = __shfl_sync(ALL, x[ID], 3);
    else __syncthreads();
}

//! RUN trapped grid=1 block=32
//! ARG i32[32] range(9)
//! FINDING trap
extern "C" __global__ void trapped(int *x) { if (x[ID] == 8) __trap(); }

//! RUN asserted grid=1 block=32
//! ARG i32[32] range(9)
//! FINDING assert
extern "C" __global__ void asserted(int *x) { assert(x[ID] < 8); }

//! RUN forever grid=1 block=32
//! ARG i32[1] zeros
//! FINDING endless
extern "C" __global__ void forever(int *x) { while (*(volatile int *)x == 0) { } }

//! RUN write_to_constant grid=1 block=32
//! ARG i32[32] zeros
//! FINDING read-only
extern "C" __global__ void write_to_constant(int *x) {
    // Through assembly, since nvcc makes the plain store a trap.
    asm volatile("st.b32 [%0], %1;" ::"l"(&table[ID & 7]), "r"(x[ID]) : "memory");
}
