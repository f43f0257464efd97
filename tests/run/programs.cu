// Kernels as programs have them: graphs, dynamic programming, hashing, n-body, sorting.
#include <stdint.h>
#define ID (blockIdx.x * blockDim.x + threadIdx.x)

//! RUN bfs grid=4 block=128
//! ARG i32[513] offsets(6)
//! ARG i32[3072] range(512)
//! ARG i32[512] levels
//! ARG i32[512] zeros
//! ARG i32 2
extern "C" __global__ void bfs(const int *offset, const int *edge, const int *level, int *next, int depth) {
    int v = ID;
    if (level[v] != depth) return;
    for (int e = offset[v]; e < offset[v + 1]; e++) atomicMax(&next[edge[e]], depth + 1);
}

//! RUN spmv grid=4 block=128
//! ARG i32[513] offsets(6)
//! ARG i32[3072] range(512)
//! ARG f32[3072] normal
//! ARG f32[512] normal
//! ARG f32[512] zeros
extern "C" __global__ void spmv(const int *offset, const int *column, const float *value, const float *x, float *y) {
    float s = 0;
    for (int e = offset[ID]; e < offset[ID + 1]; e++) s += value[e] * x[column[e]];
    y[ID] = s;
}

//! RUN nbody grid=2 block=64
//! ARG f32[512] normal
//! ARG f32[512] zeros
extern "C" __global__ void nbody(const float4 *p, float4 *out) {
    __shared__ float4 s[64];
    float4 me = p[ID];
    float ax = 0, ay = 0, az = 0;
    for (int b = 0; b < gridDim.x; b++) {
        s[threadIdx.x] = p[b * 64 + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < 64; j++) {
            float dx = s[j].x - me.x, dy = s[j].y - me.y, dz = s[j].z - me.z, r = dx * dx + dy * dy + dz * dz + 0.01f;
            float w = s[j].w / (r * sqrtf(r));
            ax += dx * w; ay += dy * w; az += dz * w;
        }
        __syncthreads();
    }
    out[ID] = make_float4(ax, ay, az, me.w);
}

//! RUN crc grid=2 block=64
//! ARG u8[4096] bits
//! ARG i32[128] zeros
extern "C" __global__ void crc(const uint8_t *x, unsigned *out) {
    __shared__ unsigned table[256];
    for (int i = threadIdx.x; i < 256; i += 64) {
        unsigned c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
        table[i] = c;
    }
    __syncthreads();
    unsigned c = ~0u;
    for (int i = 0; i < 32; i++) c = table[(c ^ x[ID * 32 + i]) & 255] ^ (c >> 8);
    out[ID] = ~c;
}

__device__ __forceinline__ unsigned rotate(unsigned x, int n) { return __funnelshift_r(x, x, n); }
//! RUN sha grid=2 block=32
//! ARG i32[1024] bits
//! ARG i32[512] zeros
extern "C" __global__ void sha(const unsigned *x, unsigned *out) {
    unsigned w[64], h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    for (int i = 0; i < 16; i++) w[i] = x[ID * 16 + i];
    for (int i = 16; i < 64; i++) {
        unsigned a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ (a >> 3)) + (rotate(b, 17) ^ rotate(b, 19) ^ (b >> 10));
    }
#pragma unroll 1
    for (int i = 0; i < 64; i++) {
        unsigned t = h[7] + (rotate(h[4], 6) ^ rotate(h[4], 11) ^ rotate(h[4], 25)) + ((h[4] & h[5]) ^ (~h[4] & h[6])) + w[i];
        unsigned u = (rotate(h[0], 2) ^ rotate(h[0], 13) ^ rotate(h[0], 22)) + ((h[0] & h[1]) ^ (h[0] & h[2]) ^ (h[1] & h[2]));
        h[7] = h[6]; h[6] = h[5]; h[5] = h[4]; h[4] = h[3] + t; h[3] = h[2]; h[2] = h[1]; h[1] = h[0]; h[0] = t + u;
    }
    for (int i = 0; i < 8; i++) out[ID * 8 + i] = h[i];
}

//! RUN pathfinder grid=2 block=128
//! ARG i32[2560] range(10)
//! ARG i32[256] range(10)
//! ARG i32[256] zeros
extern "C" __global__ void pathfinder(const int *wall, const int *src, int *dst) {
    __shared__ int prev[128], now[128];
    int t = threadIdx.x, x = ID;
    prev[t] = src[x];
    __syncthreads();
    for (int i = 0; i < 8; i++) {
        bool inside = t > i && t < 127 - i;
        if (inside) now[t] = min(min(prev[t - 1], prev[t]), prev[t + 1]) + wall[i * 256 + x];
        __syncthreads();
        if (inside) prev[t] = now[t];
        __syncthreads();
    }
    dst[x] = prev[t];
}

//! RUN random_walk grid=2 block=64
//! ARG i32[128] zeros
extern "C" __global__ void random_walk(int *out) {
    unsigned long long s = ID * 2654435761ull + 1;
    int x = 0;
    for (int i = 0; i < 100; i++) {
        s = s * 6364136223846793005ull + 1442695040888963407ull;
        unsigned r = (unsigned)(s >> 33);
        if (r & 1) x += r & 2 ? 1 : -1;
        else if (r % 17 == 0) x = -x;
    }
    out[ID] = x;
}

//! RUN tree grid=4 block=64
//! ARG i32[1023] sorted
//! ARG i32[256] bits
//! ARG i32[256] zeros
extern "C" __global__ void tree(const int *keys, const int *want, int *out) {
    int node = 0, steps = 0;
    while (node < 1023) {
        steps++;
        if (keys[node] == want[ID]) break;
        node = 2 * node + (want[ID] < keys[node] ? 1 : 2);
    }
    out[ID] = node * 16 + steps;
}

//! RUN lud grid=1 block=16
//! ARG f32[256] dominant(16)
extern "C" __global__ void lud(float *a) {
    __shared__ float s[16][16];
    int t = threadIdx.x;
    for (int i = 0; i < 16; i++) s[i][t] = a[i * 16 + t];
    __syncthreads();
    for (int i = 0; i < 15; i++) {
        if (t > i) {
            for (int j = 0; j < i; j++) s[t][i] -= s[t][j] * s[j][i];
            s[t][i] /= s[i][i];
        }
        __syncthreads();
        if (t > i) for (int j = 0; j < i + 1; j++) s[i + 1][t] -= s[i + 1][j] * s[j][t];
        __syncthreads();
    }
    for (int i = 0; i < 16; i++) a[i * 16 + t] = s[i][t];
}

//! RUN kmeans grid=4 block=64
//! ARG f32[1024] normal
//! ARG f32[20] normal
//! ARG i32[256] zeros
extern "C" __global__ void kmeans(const float *p, const float *c, int *out) {
    float best = 3e38f;
    int which = -1;
    for (int k = 0; k < 5; k++) {
        float d = 0;
        for (int j = 0; j < 4; j++) { float e = p[ID * 4 + j] - c[k * 4 + j]; d += e * e; }
        if (d < best) { best = d; which = k; }
    }
    out[ID] = which;
}

//! RUN convolution grid=(2,2) block=(16,16)
//! ARG f32[1024] normal
//! ARG f32[25] normal
//! ARG f32[1024] zeros
extern "C" __global__ void convolution(const float *x, const float *k, float *y) {
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    float s = 0;
    for (int i = -2; i <= 2; i++)
        for (int j = -2; j <= 2; j++) {
            int rr = r + i, cc = c + j;
            if (rr >= 0 && rr < 32 && cc >= 0 && cc < 32) s += x[rr * 32 + cc] * k[(i + 2) * 5 + j + 2];
        }
    y[r * 32 + c] = s;
}

//! RUN sieve grid=4 block=64
//! ARG i32[256] zeros
extern "C" __global__ void sieve(int *out) {
    int n = ID * 7 + 2;
    bool prime = true;
    for (int d = 2; d * d <= n && prime; d++) prime = n % d != 0;
    out[ID] = prime ? n : 0;
}
