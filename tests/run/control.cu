// Divergence: loops that threads leave at different times, switches, calls, recursion, local arrays.
#include <stdint.h>
#define ID (blockIdx.x * blockDim.x + threadIdx.x)

//! RUN collatz grid=20 block=128
//! ARG i32[2560] zeros
extern "C" __global__ void collatz(int *out) {
    unsigned n = ID + 1;
    int steps = 0;
    while (n != 1) { n = n & 1 ? 3 * n + 1 : n >> 1; steps++; }
    out[ID] = steps;
}

//! RUN nested grid=4 block=100
//! ARG i32[400] range(50)
//! ARG i32[400] zeros
extern "C" __global__ void nested(const int *x, int *out) {
    int n = x[ID], s = 0;
    for (int i = 0; i < n; i++) {
        if (i % 3 == 0) continue;
        for (int j = i; j < n; j++) {
            if ((i * j) % 7 == 5) break;
            s += i ^ j;
            if (s > 5000) goto done;
        }
    }
done:
    out[ID] = s;
}

//! RUN table grid=4 block=128
//! ARG i32[512] range(12)
//! ARG i32[512] zeros
extern "C" __global__ void table(const int *x, int *out) {
    int v = ID, r;
    switch (x[ID]) {
        case 0: r = v + 1; break;
        case 1: r = v * 3; break;
        case 2: r = v ^ 0x55;
        case 3: r = v - 7; break;
        case 4: r = v << 3; break;
        case 5: r = v / 3; break;
        case 6: r = v % 11; break;
        case 7: r = ~v; break;
        case 8: r = v * v; break;
        default: r = -1;
    }
    out[ID] = r;
}

//! RUN jump grid=2 block=64
//! ARG i32[128] range(4)
//! ARG i32[128] zeros
extern "C" __global__ void jump(const int *x, int *out) {
    int r;
    asm volatile("{\n\t.reg .b32 t;\n\tmov.b32 t, %2;\nts: .branchtargets L0, L1, L2, L3;\n\tbrx.idx %1, ts;\n"
        "L0: mov.b32 %0, 10;\n\tbra.uni D;\nL1: mov.b32 %0, 20;\n\tbra.uni D;\n"
        "L2: add.s32 %0, t, 1;\n\tbra.uni D;\nL3: mul.lo.s32 %0, t, 3;\nD:\n\t}" : "=r"(r) : "r"(x[ID]), "r"((int)ID));
    out[ID] = r;
}

//! RUN early grid=8 block=128
//! ARG f32[1000] normal
//! ARG f32[1000] zeros
//! ARG i32 1000
extern "C" __global__ void early(const float *x, float *y, int n) {
    int i = ID;
    if (i >= n) return;
    float v = x[i];
    if (v < 0) { y[i] = -v; return; }
    for (int k = 0; k < 10; k++) { v = v * 1.5f; if (v > 8) { y[i] = v; return; } }
    y[i] = v + 1;
}

//! RUN search grid=4 block=128
//! ARG i32[1000] sorted
//! ARG i32[512] bits
//! ARG i32[512] zeros
//! ARG i32 1000
extern "C" __global__ void search(const int *keys, const int *want, int *out, int n) {
    int lo = 0, hi = n, w = want[ID];
    while (lo < hi) { int mid = (lo + hi) / 2; if (keys[mid] < w) lo = mid + 1; else hi = mid; }
    out[ID] = lo;
}

//! RUN mandelbrot grid=(4,4) block=(16,16)
//! ARG i32[4096] zeros
extern "C" __global__ void mandelbrot(int *out) {
    int px = blockIdx.x * 16 + threadIdx.x, py = blockIdx.y * 16 + threadIdx.y, k = 0;
    float cx = px / 24.0f - 2.0f, cy = py / 32.0f - 1.0f, x = 0, y = 0;
    while (k < 64 && x * x + y * y < 4.0f) { float t = x * x - y * y + cx; y = 2 * x * y + cy; x = t; k++; }
    out[py * 64 + px] = k;
}

//! RUN gcds grid=4 block=128
//! ARG i32[512] range(100000)
//! ARG i32[512] range(100000)
//! ARG i32[512] zeros
extern "C" __global__ void gcds(const int *x, const int *y, int *z) {
    int a = x[ID], b = y[ID];
    while (b) { int t = a % b; a = b; b = t; }
    z[ID] = a;
}

__device__ __noinline__ int factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }
__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

//! RUN recursion grid=2 block=64
//! ARG i32[128] zeros
extern "C" __global__ void recursion(int *out) { out[ID] = factorial(ID % 13) + ackermann(ID % 3, ID % 4); }

struct Pair { int a; double b; char c; };
__device__ __noinline__ Pair twist(Pair p, int k) { Pair q; q.a = p.a * k; q.b = p.b + p.c; q.c = p.c ^ k; return q; }

//! RUN structs grid=2 block=64
//! ARG i32[128] bits
//! ARG f64[128] zeros
extern "C" __global__ void structs(const int *x, double *out) {
    Pair p = {x[ID], 0.5 * ID, (char)ID};
    Pair q = twist(p, ID & 7);
    if (ID & 1) q = twist(q, 3);
    out[ID] = q.a + q.b + q.c;
}

typedef int (*Operation)(int, int);
__device__ __noinline__ int plus_(int a, int b) { return a + b; }
__device__ __noinline__ int minus_(int a, int b) { return a - b; }
__device__ __noinline__ int times_(int a, int b) { return a * b; }
__device__ Operation operations[3] = {plus_, minus_, times_};

//! RUN pointers grid=2 block=96
//! ARG i32[192] bits
//! ARG i32[192] zeros
extern "C" __global__ void pointers(const int *x, int *out) { out[ID] = operations[x[ID] % 3u](x[ID], ID); }

//! RUN bubble grid=2 block=64
//! ARG i32[2048] bits
//! ARG i32[2048] zeros
extern "C" __global__ void bubble(const int *x, int *out) {
    int v[16];
    for (int i = 0; i < 16; i++) v[i] = x[ID * 16 + i];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j + 1 < 16 - i; j++)
            if (v[j] > v[j + 1]) { int t = v[j]; v[j] = v[j + 1]; v[j + 1] = t; }
    for (int i = 0; i < 16; i++) out[ID * 16 + i] = v[i];
}

//! RUN queens grid=1 block=64
//! ARG i32[64] zeros
extern "C" __global__ void queens(int *out) {
    int board[6], row = 1, count = 0;
    board[0] = ID % 6; board[1] = -1;
    while (row > 0) {
        int c = ++board[row];
        if (c >= 6) { row--; continue; }
        bool ok = true;
        for (int r = 0; r < row; r++) ok = ok && board[r] != c && abs(board[r] - c) != row - r;
        if (!ok) continue;
        if (row == 5) count++;
        else board[++row] = -1;
    }
    out[ID] = count;
}

//! RUN levenshtein grid=2 block=32
//! ARG u8[640] range(4)
//! ARG u8[640] range(4)
//! ARG i32[64] zeros
extern "C" __global__ void levenshtein(const uint8_t *x, const uint8_t *y, int *out) {
    int row[11];
    for (int j = 0; j <= 10; j++) row[j] = j;
    for (int i = 1; i <= 10; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= 10; j++) {
            int t = row[j], cost = x[ID * 10 + i - 1] != y[ID * 10 + j - 1];
            row[j] = min(min(row[j], row[j - 1]) + 1, diagonal + cost);
            diagonal = t;
        }
    }
    out[ID] = row[10];
}
