// What limits small kernels on images: how fast blocks start, what a load and an instruction take, how much of the
// memory's bandwidth kernels with one pixel for each thread reach, and what code costs that only the last blocks run.
//
//     nvcc -O3 -arch=sm_90 image_probes.cu -o image_probes && ./image_probes
//
// Each time is that of a CUDA graph with 20 launches, divided by 20; the median of 15.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#define CHECK(call)                                                                       \
    do {                                                                                  \
        cudaError_t error = (call);                                                       \
        if (error != cudaSuccess) {                                                       \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));           \
            std::exit(1);                                                                 \
        }                                                                                 \
    } while (0)

static cudaStream_t stream;

static double micros(const std::function<void()> &launch) {
    const int count = 20, rounds = 15;
    cudaGraph_t graph;
    cudaGraphExec_t made;
    launch();
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < count; ++i) launch();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&made, graph, 0));
    cudaEvent_t first, last;
    CHECK(cudaEventCreate(&first));
    CHECK(cudaEventCreate(&last));
    std::vector<float> times;
    for (int i = 0; i < rounds + 2; ++i) {
        CHECK(cudaEventRecord(first, stream));
        CHECK(cudaGraphLaunch(made, stream));
        CHECK(cudaEventRecord(last, stream));
        CHECK(cudaEventSynchronize(last));
        float milliseconds;
        CHECK(cudaEventElapsedTime(&milliseconds, first, last));
        if (i > 1) times.push_back(milliseconds);
    }
    CHECK(cudaGraphExecDestroy(made));
    CHECK(cudaGraphDestroy(graph));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1000.0 / count;
}

// --- starting blocks ------------------------------------------------------------------------------------------------

__global__ void nothing(float *out, int width, int height) {
    if (width < 0) out[threadIdx.x] = height;
}

static void starting(float *out) {
    std::printf("start: threads of a block, blocks, microseconds, nanoseconds of a further block\n");
    for (int threads : {32, 64, 128, 256, 512, 1024}) {
        double before = 0;
        int blocks_before = 0;
        for (int blocks : {132, 1056, 4224, 16896, 67584}) {
            double found = micros([&] { nothing<<<blocks, threads, 0, stream>>>(out, 4, blocks); });
            double slope = blocks_before ? (found - before) * 1000 / (blocks - blocks_before) : 0;
            std::printf("start;%d;%d;%.3f;%.4f\n", threads, blocks, found, slope);
            before = found, blocks_before = blocks;
        }
    }
}

// --- loads ----------------------------------------------------------------------------------------------------------

constexpr int STRIDE = 2048;

template <typename T, int LOADS, int SHIFT>
__global__ void loads(const T *__restrict__ in, float *__restrict__ out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const T *at = in + y * STRIDE + x;
    T total = 0;
#pragma unroll
    for (int i = 0; i < LOADS; ++i) total += at[(i % 5) * STRIDE + (i / 5) * SHIFT];
    if (total == T(77)) out[x] = 1;
}

template <typename T, int SHIFT> static void loading(const char *name, const T *in, float *out) {
    dim3 block(32, 8), grid(1536 / 32, 1536 / 8);
    double few = micros([&] { loads<T, 5, SHIFT><<<grid, block, 0, stream>>>(in, out); });
    double many = micros([&] { loads<T, 25, SHIFT><<<grid, block, 0, stream>>>(in, out); });
    double warps = 1536.0 * 1536 / 32 / 132;
    std::printf("load;%s;shift %d;5 loads %.3f;25 loads %.3f;nanoseconds of a warp's load on a multiprocessor %.4f\n", name,
                SHIFT, few, many, (many - few) * 1000 / warps / 20);
}

// --- instructions ---------------------------------------------------------------------------------------------------

template <int KIND, int COUNT> __global__ void instructions(float *out, int a, int b, float c, float d) {
    int x = threadIdx.x + a, z = blockIdx.x;
    float f = threadIdx.x * c, g = blockIdx.x;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if (KIND == 0) f = f * c + d, g = g * c + d;
        if (KIND == 1) x = min(x, z + i), z = max(z, x - b);
        if (KIND == 2) x = x * a + b, z = z * a + b;
        if (KIND == 3) x = (x ^ a) + z, z = (z & b) + x;
        if (KIND == 4) f = f > c ? g : f + d, g = g > d ? f : g + c;
    }
    if (x + z + int(f + g) == 123456789) out[0] = 1;
}

template <int KIND> static void executing(const char *name, float *out) {
    int blocks = 132 * 8 * 8;
    double few = micros([&] { instructions<KIND, 32><<<blocks, 256, 0, stream>>>(out, 3, 5, 1.5f, 2.5f); });
    double many = micros([&] { instructions<KIND, 160><<<blocks, 256, 0, stream>>>(out, 3, 5, 1.5f, 2.5f); });
    double warps = blocks * 8.0 / 528;
    std::printf("execute;%s;32 steps %.3f;160 steps %.3f;nanoseconds of a step of a warp on a scheduler %.4f\n", name, few,
                many, (many - few) * 1000 / warps / 128);
}

// --- memory ---------------------------------------------------------------------------------------------------------

template <int ROWS, int DELAY>
__global__ void copy(const float *__restrict__ in, float *__restrict__ out, int width, int height, int a) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = (blockIdx.y * blockDim.y + threadIdx.y) * ROWS;
    int late = y;
#pragma unroll
    for (int i = 0; i < DELAY; ++i) late = late * a + i; // a dependent chain before the first load
    if (a == 1 && DELAY) late = y;
    float values[ROWS];
    if (x >= width || y >= height) return;
#pragma unroll
    for (int row = 0; row < ROWS; ++row) values[row] = in[(late + row) * width + x];
#pragma unroll
    for (int row = 0; row < ROWS; ++row) out[(y + row) * width + x] = values[row];
}

template <int ROWS, int DELAY> static void copying(const float *in, float *out, int side, dim3 block) {
    dim3 grid(side / block.x, side / block.y / ROWS);
    double found = micros([&] { copy<ROWS, DELAY><<<grid, block, 0, stream>>>(in, out, side, side, 1); });
    std::printf("copy;%dx%d;block %dx%d;%d rows of a thread;%d multiplications before;%.3f us;%.3f TB/s\n", side, side,
                block.x, block.y, ROWS, DELAY, found, 8.0 * side * side / found * 1e-6);
}

// --- code that only the last blocks run -----------------------------------------------------------------------------

__global__ void regions(const float *__restrict__ in, float *__restrict__ out, int width, int height, int limit) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float total = 0;
    if (int(blockIdx.y) >= limit) {
#pragma unroll
        for (int i = 0; i < 9; ++i) total += in[min(y + i / 3, height - 1) * width + min(x + i % 3, width - 1)] * (i + 0.5f);
    } else {
#pragma unroll
        for (int i = 0; i < 9; ++i) total += in[(y + i / 3) * width + x + i % 3] * (i + 0.25f);
    }
    out[y * width + x] = total;
}

static void ending(const float *in, float *out) {
    for (auto size : {std::pair<int, int>(640, 480), std::pair<int, int>(768, 768), std::pair<int, int>(1536, 1536)}) {
        dim3 block(32, 4), grid(size.first / 32, size.second / 4);
        for (int last : {0, 1}) {
            int limit = int(grid.y) - last;
            double found = micros([&] { regions<<<grid, block, 0, stream>>>(in, out, size.first, size.second, limit); });
            std::printf("regions;%dx%d;rows of blocks that run other code: %d;%.3f us\n", size.first, size.second, last, found);
        }
        double all = micros([&] { regions<<<grid, block, 0, stream>>>(in, out, size.first, size.second, 0); });
        std::printf("regions;%dx%d;all rows of blocks run it;%.3f us\n", size.first, size.second, all);
    }
}

int main() {
    CHECK(cudaStreamCreate(&stream));
    const size_t bytes = 4096u * 4096u * 4u + (1u << 20);
    float *in, *out;
    CHECK(cudaMalloc(&in, bytes));
    CHECK(cudaMalloc(&out, bytes));
    CHECK(cudaMemset(in, 0, bytes));
    CHECK(cudaMemset(out, 0, bytes));
    starting(out);
    loading<float, 0>("f32", in, out);
    loading<float, 1>("f32", in, out);
    loading<unsigned short, 0>("u16", reinterpret_cast<unsigned short *>(in), out);
    loading<unsigned short, 1>("u16", reinterpret_cast<unsigned short *>(in), out);
    loading<unsigned char, 0>("u8", reinterpret_cast<unsigned char *>(in), out);
    loading<unsigned char, 1>("u8", reinterpret_cast<unsigned char *>(in), out);
    executing<0>("2 multiply-adds of f32", out);
    executing<1>("minimum, maximum, 2 sums of i32", out);
    executing<2>("2 multiply-adds of i32", out);
    executing<3>("2 logical operations, 2 sums of i32", out);
    executing<4>("2 comparisons, 2 selections, 2 sums of f32", out);
    for (int side : {1024, 2048, 4096}) {
        copying<1, 0>(in, out, side, dim3(32, 4));
        copying<1, 0>(in, out, side, dim3(32, 8));
        copying<1, 0>(in, out, side, dim3(32, 16));
        copying<1, 0>(in, out, side, dim3(32, 32));
        copying<1, 8>(in, out, side, dim3(32, 8));
        copying<1, 16>(in, out, side, dim3(32, 8));
        copying<2, 0>(in, out, side, dim3(32, 8));
        copying<4, 0>(in, out, side, dim3(32, 8));
        copying<4, 16>(in, out, side, dim3(32, 8));
        copying<8, 0>(in, out, side, dim3(32, 8));
    }
    ending(in, out);
    return 0;
}
