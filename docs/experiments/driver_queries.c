/* What the driver says about addresses of each kind of memory, and how long its queries take.
 *
 * Each line: the kind of memory, the query, its status, its result, and nanoseconds for a call (the smallest of 20
 * rounds of 2,000 calls). The memory starts 64 bytes in front of the address that is queried.
 *
 * cc -O2 -I <folder of cuda.h> driver_queries.c -o driver_queries -l:libcuda.so.1
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult status_ = (call);                                                                                     \
        if (status_ != CUDA_SUCCESS) {                                                                                 \
            const char *name_ = "?";                                                                                   \
            cuGetErrorName(status_, &name_);                                                                           \
            printf("%s: %s\n", #call, name_);                                                                          \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Sets `ns` to the time of one call, in nanoseconds. */
#define TIME(ns, call)                                                                                                 \
    do {                                                                                                               \
        ns = 1e18;                                                                                                     \
        for (int round_ = 0; round_ < 20; round_++) {                                                                  \
            double start_ = now();                                                                                     \
            for (int i_ = 0; i_ < 2000; i_++)                                                                          \
                (void)(call);                                                                                          \
            double took_ = (now() - start_) / 2000;                                                                    \
            if (took_ < ns)                                                                                            \
                ns = took_;                                                                                            \
        }                                                                                                              \
    } while (0)

static const struct {
    const char *name;
    int id;
} attributes[] = {{"MEMORY_TYPE", 2},      {"DEVICE_POINTER", 3},  {"BUFFER_ID", 7},        {"IS_MANAGED", 8},
                  {"DEVICE_ORDINAL", 9},   {"LEGACY_IPC", 10},     {"RANGE_START", 11},     {"RANGE_SIZE", 12},
                  {"MAPPED", 13},          {"HANDLE_TYPES", 14},   {"ACCESS_FLAGS", 16},    {"MEMPOOL_HANDLE", 17},
                  {"MAPPING_SIZE", 18},    {"MAPPING_BASE", 19},   {"MEMORY_BLOCK_ID", 20}};

static void query(const char *kind, CUdeviceptr address)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    double ns;
    CUresult status = cuMemGetAddressRange(&base, &size, address);
    TIME(ns, cuMemGetAddressRange(&base, &size, address));
    printf("%-18s %-18s %3d begin %+lld size %zu  %.0f ns\n", kind, "address range", status,
           status ? 0LL : (long long)(base - address), status ? 0 : size, ns);
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        unsigned long long value = 0;
        status = cuPointerGetAttribute(&value, attributes[i].id, address);
        TIME(ns, cuPointerGetAttribute(&value, attributes[i].id, address));
        printf("%-18s %-18s %3d %#llx  %.0f ns\n", kind, attributes[i].name, status, value, ns);
    }
    CUpointer_attribute ids[] = {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID};
    unsigned long long values[6] = {0};
    void *data[6] = {values, values + 1, values + 2, values + 3, values + 4, values + 5};
    for (int count = 1; count <= 6; count++) {
        status = cuPointerGetAttributes(count, ids, data, address);
        TIME(ns, cuPointerGetAttributes(count, ids, data, address));
        printf("%-18s %d attributes       %3d  %.0f ns\n", kind, count, status, ns);
    }
    CUmemGenericAllocationHandle handle = 0;
    status = cuMemRetainAllocationHandle(&handle, (void *)address);
    if (status == CUDA_SUCCESS) {
        cuMemRelease(handle);
        TIME(ns, (cuMemRetainAllocationHandle(&handle, (void *)address), cuMemRelease(handle)));
    } else {
        TIME(ns, cuMemRetainAllocationHandle(&handle, (void *)address));
    }
    printf("%-18s %-18s %3d %#llx  %.0f ns\n", kind, "retain handle", status, handle, ns);
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUstream stream;
    int version;
    CHECK(cuInit(0));
    CHECK(cuDriverGetVersion(&version));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    printf("driver %d\n", version);

    CUdeviceptr plain, pooled, managed;
    CHECK(cuMemAlloc(&plain, 1000));
    CHECK(cuMemAllocAsync(&pooled, 1000, stream));
    CHECK(cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuStreamSynchronize(stream));
    query("cuMemAlloc", plain + 64);
    query("end of cuMemAlloc", plain + 1000);
    query("cuMemAllocAsync", pooled + 64);
    query("managed", managed + 64);

    void *pinned, *pageable = malloc(1 << 20);
    CHECK(cuMemHostAlloc(&pinned, 1000, 0));
    query("cuMemHostAlloc", (CUdeviceptr)(size_t)pinned + 64);
    query("pageable", (CUdeviceptr)(size_t)pageable + 64);

    /* One file mapped at two addresses, and both registered. */
    int file = memfd_create("twice", 0);
    if (file < 0 || ftruncate(file, 1 << 20))
        return 1;
    void *one = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    void *two = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (cuMemHostRegister(one, 1 << 20, 0) == CUDA_SUCCESS)
        query("registered 1", (CUdeviceptr)(size_t)one + 64);
    CUresult second = cuMemHostRegister(two, 1 << 20, 0);
    printf("the same pages registered at another address: %d\n", second);
    if (second == CUDA_SUCCESS)
        query("registered 2", (CUdeviceptr)(size_t)two + 64);

    /* One physical allocation of VMM mapped at two addresses, twice in a row at the first one. */
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    size_t granule;
    CHECK(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUmemGenericAllocationHandle physical;
    CHECK(cuMemCreate(&physical, granule, &prop, 0));
    CUdeviceptr first, other;
    CHECK(cuMemAddressReserve(&first, 2 * granule, 0, 0, 0));
    CHECK(cuMemAddressReserve(&other, granule, 0, 0, 0));
    CHECK(cuMemMap(first, granule, 0, physical, 0));
    CHECK(cuMemMap(first + granule, granule, 0, physical, 0));
    CHECK(cuMemMap(other, granule, 0, physical, 0));
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemSetAccess(first, 2 * granule, &access, 1));
    CHECK(cuMemSetAccess(other, granule, &access, 1));
    query("VMM", first + 64);
    query("VMM, next mapping", first + granule + 64);
    query("VMM, other range", other + 64);
    query("null", 0);
    query("wild", 0x123456789000ull);

    double ns;
    CUstreamCaptureStatus capture;
    TIME(ns, cuStreamIsCapturing(stream, &capture));
    printf("cuStreamIsCapturing %.0f ns\n", ns);
    TIME(ns, cuStreamIsCapturing(NULL, &capture));
    printf("cuStreamIsCapturing of the default stream %.0f ns\n", ns);
    CUcontext current;
    TIME(ns, cuCtxGetCurrent(&current));
    printf("cuCtxGetCurrent %.0f ns\n", ns);
    TIME(ns, cuStreamGetCtx(stream, &current));
    printf("cuStreamGetCtx %.0f ns\n", ns);

    CUmodule module;
    CUfunction function;
    CHECK(cuModuleLoadData(&module, ".version 8.0\n.target sm_75\n.address_size 64\n"
                                    ".visible .entry nothing(.param .u64 a, .param .u64 b, .param .u64 c) { ret; }"));
    CHECK(cuModuleGetFunction(&function, module, "nothing"));
    int value;
    TIME(ns, cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
    printf("cuFuncGetAttribute %.0f ns\n", ns);
    TIME(ns, cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 128, 0));
    printf("cuOccupancyMaxActiveBlocksPerMultiprocessor %.0f ns\n", ns);
    void *arguments[] = {&plain, &pooled, &managed};
    double best = 1e18;
    for (int round = 0; round < 20; round++) {
        CHECK(cuStreamSynchronize(stream));
        double start = now();
        for (int i = 0; i < 500; i++)
            cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL);
        double took = (now() - start) / 500;
        best = took < best ? took : best;
    }
    printf("cuLaunchKernel %.0f ns\n", best);
    CHECK(cuStreamSynchronize(stream));

    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    printf("under capture, the strictest mode:\n");
    query("cuMemAlloc", plain + 64);
    query("cuMemAllocAsync", pooled + 64);
    CUresult launched = cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL);
    CUgraph graph;
    CUresult ended = cuStreamEndCapture(stream, &graph);
    printf("launch %d, end of capture %d\n", launched, ended);
    return 0;
}
