// Exchanges inside a warp, whole and divergent.
#include <stdint.h>
#define ID (blockIdx.x * blockDim.x + threadIdx.x)
#define ALL 0xffffffffu

//! RUN shuffles grid=2 block=64
//! ARG i32[128] bits
//! ARG i32[1024] zeros
extern "C" __global__ void shuffles(const int *x, int *out) {
    int v = x[ID], o = ID * 8;
    out[o] = __shfl_sync(ALL, v, ID * 7); out[o + 1] = __shfl_up_sync(ALL, v, 3); out[o + 2] = __shfl_down_sync(ALL, v, 5);
    out[o + 3] = __shfl_xor_sync(ALL, v, 9); out[o + 4] = __shfl_sync(ALL, v, ID, 8);
    out[o + 5] = __shfl_up_sync(ALL, v, 1, 16); out[o + 6] = __shfl_down_sync(ALL, v, 2, 4);
    out[o + 7] = __shfl_xor_sync(ALL, v, 3, 8);
}

//! RUN warp_sum grid=4 block=128
//! ARG f32[512] normal
//! ARG f32[16] zeros
extern "C" __global__ void warp_sum(const float *x, float *out) {
    float v = x[ID];
    for (int k = 16; k > 0; k >>= 1) v += __shfl_down_sync(ALL, v, k);
    if ((threadIdx.x & 31) == 0) out[ID / 32] = v;
}

//! RUN warp_scan grid=4 block=64
//! ARG i64[256] bits
//! ARG i64[256] zeros
extern "C" __global__ void warp_scan(const long long *x, long long *out) {
    long long v = x[ID];
    int lane = threadIdx.x & 31;
    for (int k = 1; k < 32; k <<= 1) { long long u = __shfl_up_sync(ALL, v, k); if (lane >= k) v += u; }
    out[ID] = v;
}

//! RUN compact grid=8 block=128
//! ARG i32[1024] range(5)
//! ARG i32[1024] zeros
//! ARG i32[32] zeros
extern "C" __global__ void compact(const int *x, int *out, int *counts) {
    int v = x[ID], lane = threadIdx.x & 31, base = ID - lane;
    unsigned mask = __ballot_sync(ALL, v > 2);
    if (v > 2) out[base + __popc(mask & ((1u << lane) - 1))] = ID;
    if (lane == 0) counts[ID / 32] = __popc(mask);
}

//! RUN ballots grid=2 block=96
//! ARG i32[192] range(4)
//! ARG i32[768] zeros
extern "C" __global__ void ballots(const int *x, int *out) {
    int v = x[ID];
    out[4 * ID] = __all_sync(ALL, v < 3); out[4 * ID + 1] = __any_sync(ALL, v == 3);
    out[4 * ID + 2] = __ballot_sync(ALL, v & 1); out[4 * ID + 3] = __uni_sync(ALL, v >= 0);
}

//! RUN matches grid=2 block=64
//! ARG i32[128] range(6)
//! ARG i32[384] zeros
extern "C" __global__ void matches(const int *x, int *out) {
    int v = x[ID], p;
    out[3 * ID] = __match_any_sync(ALL, v);
    out[3 * ID + 1] = __match_all_sync(ALL, ID < 32 ? 5 : v, &p);
    out[3 * ID + 2] = p + __popc(__match_any_sync(ALL, (long long)v * v));
}

//! RUN reductions grid=2 block=64
//! ARG i32[128] bits
//! ARG i32[1024] zeros
extern "C" __global__ void reductions(const int *x, int *out) {
    int v = x[ID], o = ID * 8;
    out[o] = __reduce_add_sync(ALL, v); out[o + 1] = __reduce_min_sync(ALL, v); out[o + 2] = __reduce_max_sync(ALL, v);
    out[o + 3] = __reduce_min_sync(ALL, (unsigned)v); out[o + 4] = __reduce_and_sync(ALL, v | 7);
    out[o + 5] = __reduce_or_sync(ALL, v & 12); out[o + 6] = __reduce_xor_sync(ALL, v);
    unsigned part = ID & 1 ? 0xaaaaaaaau : 0x55555555u;
    if (ID & 1) out[o + 7] = __reduce_add_sync(part, v);
    else out[o + 7] = __reduce_max_sync(part, v);
}

//! RUN divergent_masks grid=4 block=64
//! ARG i32[256] bits
//! ARG i32[256] zeros
extern "C" __global__ void divergent_masks(const int *x, int *out) {
    int v = x[ID], lane = threadIdx.x & 31;
    if (lane < 11) v += __shfl_sync(0x7ff, v, 10 - lane);
    else if (lane < 20) v ^= __shfl_xor_sync(0xff800, v, 0);
    else v = __ballot_sync(0xfff00000, v & 1);
    __syncwarp();
    out[ID] = v + __shfl_sync(ALL, v, 31 - lane);
}

//! RUN partial_warp grid=3 block=45
//! ARG i32[135] bits
//! ARG i32[135] zeros
extern "C" __global__ void partial_warp(const int *x, int *out) {
    unsigned mask = threadIdx.x < 32 ? ALL : 0x1fff;
    out[ID] = __popc(__ballot_sync(mask, x[ID] > 0)) * 1000 + __popc(__activemask());
}

//! RUN segmented grid=4 block=64
//! ARG i32[256] range(10)
//! ARG i32[256] zeros
extern "C" __global__ void segmented(const int *x, int *out) {
    int v = x[ID];
    unsigned peers = __match_any_sync(ALL, v);
    int leader = __ffs(peers) - 1, lane = threadIdx.x & 31;
    int rank = __popc(peers & ((1u << lane) - 1));
    out[ID] = __shfl_sync(peers, ID, leader) * 100 + rank;
}

//! RUN exchange grid=4 block=64
//! ARG i32[256] bits
extern "C" __global__ void exchange(int *x) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[ID];
    __syncwarp();
    int v = s[t ^ 5];
    __syncwarp();
    s[t] = v * 3;
    __syncwarp();
    x[ID] = s[t ^ 17];
}

//! RUN elected grid=2 block=64
//! ARG i32[128] zeros
extern "C" __global__ void elected(int *out) {
    unsigned leader, is_leader;
    asm volatile("{\n\t.reg .pred p;\n\telect.sync %0|p, 0xffffffff;\n\tselp.u32 %1, 1, 0, p;\n\t}" : "=r"(leader), "=r"(is_leader));
    // Which lane is elected is not fixed; that exactly one is, is.
    out[ID] = __popc(__ballot_sync(ALL, is_leader)) * 10 + (__shfl_sync(ALL, leader, 0) == leader);
}
