// Kernels without communication: every scalar type, every way to number threads.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#define ID (blockIdx.x * blockDim.x + threadIdx.x)

//! RUN saxpy grid=40 block=256
//! ARG f32 2.5
//! ARG f32[10000] normal
//! ARG f32[10000] normal
//! ARG i32 10000
extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = ID;
    if (i < n) y[i] = a * x[i] + y[i];
}

//! RUN copy4 grid=10 block=250
//! ARG f32[10000] normal
//! ARG f32[10000] zeros
extern "C" __global__ void copy4(const float4 *x, float4 *y) {
    float4 v = x[ID];
    y[ID] = make_float4(v.w, v.z, v.y, v.x);
}

//! RUN integers grid=8 block=128
//! ARG i32[1024] bits
//! ARG i32[1024] bits
//! ARG i32[12288] zeros
extern "C" __global__ void integers(const int *x, const int *y, int *z) {
    int i = ID, a = x[i], b = y[i], o = i * 12;
    unsigned ua = a, ub = b;
    z[o] = a + b * 3; z[o + 1] = a / (b | 1); z[o + 2] = a % (b | 1);
    z[o + 3] = ua / (ub | 1); z[o + 4] = ua % (ub | 1); z[o + 5] = __mulhi(a, b);
    z[o + 6] = __umulhi(ua, ub); z[o + 7] = a >> (b & 31); z[o + 8] = ua >> (b & 31);
    z[o + 9] = min(a, b) ^ max(ua, ub); z[o + 10] = abs(a) + __sad(a, b, i); z[o + 11] = __mul24(a, b) - __hadd(a, b);
}

//! RUN longs grid=8 block=128
//! ARG i64[1024] bits
//! ARG i64[1024] bits
//! ARG i64[8192] zeros
extern "C" __global__ void longs(const long long *x, const long long *y, long long *z) {
    int i = ID, o = i * 8;
    long long a = x[i], b = y[i];
    unsigned long long ua = a, ub = b;
    z[o] = a * b; z[o + 1] = a / (b | 1); z[o + 2] = ua % (ub | 1); z[o + 3] = __mul64hi(a, b);
    z[o + 4] = __umul64hi(ua, ub); z[o + 5] = a >> (b & 63); z[o + 6] = ua << (b & 63); z[o + 7] = min(a, b) - max(ua, ub);
}

//! RUN bits grid=8 block=128
//! ARG i32[1024] bits
//! ARG i32[1024] bits
//! ARG i32[8192] zeros
extern "C" __global__ void bits(const unsigned *x, const unsigned *y, unsigned *z) {
    int i = ID, o = i * 8;
    unsigned a = x[i], b = y[i];
    z[o] = __popc(a) + 100 * __clz(b); z[o + 1] = __brev(a) ^ __ffs(b); z[o + 2] = __byte_perm(a, b, a & 0x7777);
    z[o + 3] = __funnelshift_l(a, b, b); z[o + 4] = __funnelshift_rc(a, b, b & 63);
    z[o + 5] = (a & b) | (~a & i); z[o + 6] = (a >> 5) & 0x3ff;
    unsigned d;
    asm("bfi.b32 %0, %1, %2, 7, 11;" : "=r"(d) : "r"(a), "r"(b));
    z[o + 7] = d;
}

//! RUN floats grid=8 block=128
//! ARG f32[1024] special
//! ARG f32[1024] special
//! ARG f32[10240] zeros
extern "C" __global__ void floats(const float *x, const float *y, float *z) {
    int i = ID, o = i * 10;
    float a = x[i], b = y[i];
    z[o] = __fmul_rz(a, b); z[o + 1] = a / b; z[o + 2] = sqrtf(fabsf(a)); z[o + 3] = __fmaf_rn(a, b, a);
    z[o + 4] = fminf(a, b); z[o + 5] = fmaxf(a, b); z[o + 6] = __fadd_ru(a, b); z[o + 7] = truncf(a) + floorf(b);
    z[o + 8] = copysignf(a, b); z[o + 9] = __saturatef(a) + rintf(b);
}

//! RUN doubles grid=8 block=128
//! ARG f64[1024] special
//! ARG f64[1024] special
//! ARG f64[8192] zeros
extern "C" __global__ void doubles(const double *x, const double *y, double *z) {
    int i = ID, o = i * 8;
    double a = x[i], b = y[i];
    z[o] = __dmul_rz(a, b); z[o + 1] = __ddiv_rn(a, b); z[o + 2] = __dsqrt_rn(fabs(a)); z[o + 3] = __fma_rn(a, b, a);
    z[o + 4] = fmin(a, b); z[o + 5] = __dadd_rd(a, b); z[o + 6] = floor(a) + ceil(b); z[o + 7] = a < b ? a : -b;
}

//! RUN halves grid=8 block=128
//! ARG f16[1024] normal
//! ARG f16[1024] normal
//! ARG f16[8192] zeros
extern "C" __global__ void halves(const __half *x, const __half *y, __half *z) {
    int i = ID, o = i * 8;
    __half a = x[i], b = y[i];
    z[o] = __hadd(a, b); z[o + 1] = __hmul(a, b); z[o + 2] = __hfma(a, b, a); z[o + 3] = __hmax(a, b);
    z[o + 4] = __hsub(a, b); z[o + 5] = __hneg(a); z[o + 6] = __float2half(__half2float(a) * 3.0f);
    z[o + 7] = __hlt(a, b) ? a : b;
}

//! RUN packed grid=4 block=128
//! ARG i32[512] halves
//! ARG i32[512] halves
//! ARG i32[2048] zeros
extern "C" __global__ void packed(const __half2 *x, const __half2 *y, __half2 *z) {
    int i = ID;
    z[4 * i] = __hadd2(x[i], y[i]); z[4 * i + 1] = __hfma2(x[i], y[i], x[i]);
    z[4 * i + 2] = __hmul2(x[i], y[i]); z[4 * i + 3] = __hmin2(x[i], y[i]);
}

//! RUN bfloats grid=4 block=128
//! ARG f32[512] normal
//! ARG f32[512] normal
//! ARG i16[2048] zeros
extern "C" __global__ void bfloats(const float *x, const float *y, __nv_bfloat16 *z) {
    int i = ID;
    __nv_bfloat16 a = __float2bfloat16(x[i]), b = __float2bfloat16(y[i]);
    z[4 * i] = __hadd(a, b); z[4 * i + 1] = __hfma(a, b, a); z[4 * i + 2] = __hmul(a, b); z[4 * i + 3] = __hmin(a, b);
}

//! RUN conversions grid=8 block=128
//! ARG f32[1024] special
//! ARG f64[1024] special
//! ARG i64[1024] bits
//! ARG i64[16384] zeros
extern "C" __global__ void conversions(const float *x, const double *y, const long long *w, long long *z) {
    int i = ID, o = i * 16;
    float a = x[i];
    double b = y[i];
    long long c = w[i];
    z[o] = __float2int_rn(a); z[o + 1] = __float2uint_rz(a); z[o + 2] = __float2ll_rd(a); z[o + 3] = __float2ull_ru(a);
    z[o + 4] = __double2int_rz(b); z[o + 5] = __double2uint_rn(b); z[o + 6] = __double2ll_rz(b);
    z[o + 7] = __double_as_longlong((double)a); z[o + 8] = __float_as_int((float)b); z[o + 9] = __float_as_int(__ll2float_rz(c));
    z[o + 10] = __double_as_longlong(__ll2double_rn(c)); z[o + 11] = __float_as_int(__int2float_ru((int)c));
    z[o + 12] = (signed char)c; z[o + 13] = (unsigned short)c; z[o + 14] = (short)(c >> 7);
    z[o + 15] = __half_as_ushort(__float2half_rz(a));
}

//! RUN bytes grid=8 block=128
//! ARG u8[1024] bits
//! ARG i16[1024] bits
//! ARG u8[1024] zeros
//! ARG i16[1024] zeros
extern "C" __global__ void bytes(const uint8_t *x, const int16_t *y, uint8_t *z, int16_t *w) {
    int i = ID;
    z[i] = x[i] * 3 + (uint8_t)y[i];
    w[i] = y[i] / (int16_t)(x[i] + 1) - (int8_t)x[i];
}

//! RUN strided grid=5 block=96
//! ARG i32[5000] bits
//! ARG i32[5000] zeros
//! ARG i32 5000
extern "C" __global__ void strided(const int *x, int *y, int n) {
    for (int i = ID; i < n; i += gridDim.x * blockDim.x) y[i] = x[n - 1 - i] ^ i;
}

//! RUN indices3d grid=(3,2,2) block=(5,3,4)
//! ARG i32[720] zeros
extern "C" __global__ void indices3d(int *z) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int k = blockIdx.z * blockDim.z + threadIdx.z;
    z[(k * gridDim.y * blockDim.y + y) * gridDim.x * blockDim.x + x] = x + 100 * y + 10000 * k;
}

//! RUN carries grid=4 block=64
//! ARG i32[1024] bits
//! ARG i32[1024] bits
//! ARG i32[1024] zeros
extern "C" __global__ void carries(const unsigned *x, const unsigned *y, unsigned *z) {
    int i = ID * 4;
    asm volatile("add.cc.u32 %0, %4, %8;\n\taddc.cc.u32 %1, %5, %9;\n\taddc.cc.u32 %2, %6, %10;\n\taddc.u32 %3, %7, %11;"
        : "=r"(z[i]), "=r"(z[i + 1]), "=r"(z[i + 2]), "=r"(z[i + 3])
        : "r"(x[i]), "r"(x[i + 1]), "r"(x[i + 2]), "r"(x[i + 3]), "r"(y[i]), "r"(y[i + 1]), "r"(y[i + 2]), "r"(y[i + 3]));
}

//! RUN polynomial grid=16 block=64
//! ARG f64[1024] normal
//! ARG f64[1024] zeros
extern "C" __global__ void polynomial(const double *x, double *y) {
    double v = x[ID], s = 0;
    for (int k = 1; k < 20; k++) s = s * v + 1.0 / k;
    y[ID] = s;
}
