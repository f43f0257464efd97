/* A CUDA driver and a CUDA runtime without a GPU, for programs that nvcc has built. They print each launch.
 *
 * Without a macro this is libcuda.so.1. With -DRUNTIME it is the CUDA runtime, which calls that driver. A library has an
 * entry if the name of the entry is in the image that is chosen by the environment variable FAKE_SM. FAKE_PARAMETERS has
 * the sizes of the parameters of each kernel: "multiply=8,8,4 fill=8". FAKE_LAZY=1: the driver says that it loads code
 * when it is used.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct library {
    const uint8_t *image;
    size_t size;
};

struct kernel {
    struct kernel *next;
    struct library *library;
    const char *name;
    int shared_limit;
};

struct size {
    unsigned x, y, z;
};

struct config {
    struct size grid, block;
    unsigned shared;
    void *stream, *attributes;
    unsigned attribute_count;
};

/* What the runtime calls, besides the functions of cuda.h. */
struct library *fake_load(const void *fatbin);
struct kernel *fake_kernel(struct library *library, const char *name);
void fake_print(const char *by, struct kernel *kernel, const struct config *config, void **arguments);
void fake_set_current(void);
void *fake_malloc(size_t size);
void fake_capture(void *stream);

#ifndef RUNTIME

enum { MOST = 64 };
static struct kernel *kernels;
static struct {
    uint64_t begin;
    size_t size;
} allocations[MOST];
static int allocation_count;
static void *captured;
static __thread int has_context;

static int parameters_of(const char *entry, int sizes[MOST])
{
    char *text = getenv("FAKE_PARAMETERS"), name[256];
    for (text = text ? strdup(text) : NULL, text = text ? strtok(text, " ") : NULL; text; text = strtok(NULL, " ")) {
        int used = 0, count = 0;
        if (sscanf(text, "%255[^=]=%n", name, &used) != 1 || strstr(entry, name) == NULL)
            continue;
        for (char *at = text + used; *at; at += *at == ',')
            sizes[count++] = (int)strtol(at, &at, 10);
        return count;
    }
    return 0;
}

struct library *fake_load(const void *fatbin)
{
    const uint8_t *at = (const uint8_t *)fatbin + 16, *end;
    uint64_t size;
    uint32_t head, sm;
    int wanted = getenv("FAKE_SM") ? atoi(getenv("FAKE_SM")) : 90;
    struct library *found = calloc(1, sizeof *found);
    memcpy(&size, (const uint8_t *)fatbin + 8, sizeof size);
    for (end = at + size; at < end; at += head + size) {
        memcpy(&head, at + 4, sizeof head);
        memcpy(&size, at + 8, sizeof size);
        memcpy(&sm, at + 28, sizeof sm);
        if ((int)sm == wanted && at[0] == 2)
            *found = (struct library){at + head, size};
    }
    return found;
}

struct kernel *fake_kernel(struct library *library, const char *name)
{
    static int lock;
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
        ;
    struct kernel *found = kernels;
    while (found != NULL && (found->library != library || strcmp(found->name, name) != 0))
        found = found->next;
    if (found == NULL && library->image != NULL) {
        char text[512] = {0};
        size_t length = (size_t)snprintf(text + 1, sizeof text - 1, "%s", name) + 2;
        if (memmem(library->image, library->size, text, length) != NULL) {
            found = calloc(1, sizeof *found);
            *found = (struct kernel){kernels, library, strdup(name), 49152};
            kernels = found;
        }
    }
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    return found;
}

void fake_print(const char *by, struct kernel *kernel, const struct config *config, void **arguments)
{
    int sizes[MOST], count = parameters_of(kernel->name, sizes);
    char line[1024];
    int at = snprintf(line, sizeof line, "%s %s grid %u %u %u block %u %u %u shared %u stream %llu attributes %u", by,
                      kernel->name, config->grid.x, config->grid.y, config->grid.z, config->block.x, config->block.y,
                      config->block.z, config->shared, (unsigned long long)(uintptr_t)config->stream,
                      config->attribute_count);
    for (int i = 0; i < count; i++)
        if (sizes[i] == 4)
            at += snprintf(line + at, sizeof line - (size_t)at, " argument %d", *(int *)arguments[i]);
    puts(line);
}

void fake_set_current(void)
{
    has_context = 1;
}

void *fake_malloc(size_t size)
{
    void *memory = aligned_alloc(256, (size + 255) / 256 * 256);
    allocations[allocation_count].begin = (uint64_t)(uintptr_t)memory;
    allocations[allocation_count++].size = size;
    return memory;
}

void fake_capture(void *stream)
{
    captured = stream;
}

int cuMemGetAddressRange_v2(uint64_t *begin, size_t *size, uint64_t pointer)
{
    for (int i = 0; i < allocation_count; i++)
        if (pointer - allocations[i].begin < allocations[i].size) {
            *begin = allocations[i].begin;
            *size = allocations[i].size;
            return 0;
        }
    return 500;
}

int cuPointerGetAttributes(unsigned count, int *attributes, void **values, uint64_t pointer)
{
    uint64_t begin = 0;
    size_t size = 0;
    int is_known = cuMemGetAddressRange_v2(&begin, &size, pointer) == 0;
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = attributes[i] == 10 ? (uint64_t)is_known : attributes[i] == 11 ? begin : attributes[i] == 12 ? size : 0;
        memcpy(values[i], &value, attributes[i] == 10 || attributes[i] == 8 ? 1 : attributes[i] == 9 ? 4 : 8);
    }
    return 0;
}

int cuStreamIsCapturing(void *stream, int *status)
{
    *status = stream != NULL && stream == captured;
    return 0;
}

int cuLaunchKernelEx(const struct config *config, struct kernel *function, void **arguments, void **extra)
{
    (void)extra;
    if (!has_context || (getenv("FAKE_REFUSES") && strstr(function->name, getenv("FAKE_REFUSES"))))
        return 201;
    fake_print("driver", function, config, arguments);
    return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    return (*function = fake_kernel(module, name)) == NULL ? 500 : 0;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    return cuModuleGetFunction(kernel, library, name);
}

int cuKernelGetFunction(void **function, void *kernel)
{
    *function = kernel;
    return has_context ? 0 : 201;
}

int cuKernelGetLibrary(void **library, struct kernel *kernel)
{
    *library = kernel->library;
    return 0;
}

int cuFuncGetAttribute(int *value, int attribute, struct kernel *function)
{
    *value = attribute == 0 ? 1024 : attribute == 8 ? function->shared_limit : 0;
    return 0;
}

int cuFuncSetAttribute(struct kernel *function, int attribute, int value)
{
    printf("attribute %d of %s is %d\n", attribute, function->name, value);
    function->shared_limit = attribute == 8 ? value : function->shared_limit;
    return 0;
}

int cuFuncGetParamInfo(struct kernel *function, size_t index, size_t *offset, size_t *size)
{
    int sizes[MOST], count = parameters_of(function->name, sizes);
    *offset = *size = 0;
    for (int i = 0; i <= (int)index && i < count; i++) {
        *offset = (*offset + *size + (size_t)sizes[i] - 1) / (size_t)sizes[i] * (size_t)sizes[i];
        *size = (size_t)sizes[i];
    }
    return (int)index < count ? 0 : 1;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared)
{
    (void)function, (void)threads, (void)shared;
    *blocks = 8;
    return 0;
}

int cuCtxGetCurrent(void **context)
{
    *context = has_context ? &has_context : NULL;
    return 0;
}

int cuCtxGetDevice(int *device)
{
    *device = 0;
    return has_context ? 0 : 201;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 16 ? 4 : attribute >= 5 && attribute <= 7 ? 65535 : 1024;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}

int cuFuncLoad(struct kernel *function)
{
    (void)function;
    return 0;
}

int cuModuleGetLoadingMode(int *mode)
{
    *mode = getenv("FAKE_LAZY") ? 2 : 1;
    return 0;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    static __thread int current;
    int old = current;
    current = *mode;
    *mode = old;
    return 0;
}

#else

enum { MOST = 64 };
static struct {
    const void *function;
    struct kernel *kernel;
} registered[MOST];
static int registered_count;
static __thread struct config pushed;

static struct kernel *kernel_of(const void *function)
{
    for (int i = 0; i < registered_count; i++)
        if (registered[i].function == function || registered[i].kernel == function)
            return registered[i].kernel;
    return NULL;
}

static int launch(const void *function, struct config config, void **arguments)
{
    struct kernel *kernel = kernel_of(function);
    fake_set_current();
    if (kernel == NULL)
        return 98;
    fake_print("runtime", kernel, &config, arguments);
    return 0;
}

void **__cudaRegisterFatBinary(void *wrapper)
{
    const void *data;
    memcpy(&data, (char *)wrapper + 8, sizeof data);
    return (void **)fake_load(data);
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *function, char *device_function, const char *name, int limit,
                            void *tid, void *bid, void *block, void *grid, int *warp)
{
    (void)device_function, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    registered[registered_count].function = function;
    registered[registered_count++].kernel = fake_kernel((struct library *)handle, name);
}

char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

unsigned __cudaPushCallConfiguration(struct size grid, struct size block, size_t shared, void *stream)
{
    pushed = (struct config){grid, block, (unsigned)shared, stream, NULL, 0};
    return 0;
}

int __cudaPopCallConfiguration(struct size *grid, struct size *block, size_t *shared, void **stream)
{
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *stream = pushed.stream;
    return 0;
}

int cudaGetKernel(void **kernel, const void *function)
{
    fake_set_current();
    return (*kernel = kernel_of(function)) == NULL ? 98 : 0;
}

int __cudaGetKernel(void **kernel, const void *function)
{
    return (*kernel = kernel_of(function)) == NULL ? 98 : 0;
}

#define LAUNCH(name)                                                                                                   \
    int name(const void *function, struct size grid, struct size block, void **arguments, size_t shared, void *stream) \
    {                                                                                                                  \
        return launch(function, (struct config){grid, block, (unsigned)shared, stream, NULL, 0}, arguments);           \
    }
LAUNCH(__cudaLaunchKernel)
LAUNCH(__cudaLaunchKernel_ptsz)
LAUNCH(cudaLaunchKernel)
LAUNCH(cudaLaunchKernel_ptsz)
LAUNCH(cudaLaunchCooperativeKernel)
LAUNCH(cudaLaunchCooperativeKernel_ptsz)

struct long_config {
    struct size grid, block;
    size_t shared;
    void *stream, *attributes;
    unsigned attribute_count;
};

int cudaLaunchKernelExC(const struct long_config *config, const void *function, void **arguments)
{
    struct config plain = {config->grid,   config->block,      (unsigned)config->shared,
                           config->stream, config->attributes, config->attribute_count};
    return launch(function, plain, arguments);
}

int cudaLaunchKernelExC_ptsz(const struct long_config *config, const void *function, void **arguments)
{
    return cudaLaunchKernelExC(config, function, arguments);
}

int cudaFuncGetAttributes(void *attributes, const void *function)
{
    (void)attributes, (void)function;
    return 0;
}

int cudaFuncSetAttribute(const void *function, int attribute, int value)
{
    kernel_of(function)->shared_limit = attribute == 8 ? value : 0;
    return 0;
}

int cudaKernelSetAttributeForDevice(struct kernel *kernel, int attribute, int value, int device)
{
    (void)device;
    return cudaFuncSetAttribute(kernel, attribute, value);
}

int cudaGetFuncBySymbol(void **handle, const void *function)
{
    return cudaGetKernel(handle, function);
}

int cudaFuncSetCacheConfig(const void *function, int config)
{
    (void)config, (void)function;
    return 0;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared)
{
    (void)function, (void)threads, (void)shared;
    *blocks = 8;
    return 0;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                           size_t shared, unsigned flags)
{
    (void)flags;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

int cudaMalloc(void **memory, size_t size)
{
    fake_set_current();
    *memory = fake_malloc(size);
    return 0;
}

int cudaStreamBeginCapture(void *stream, int mode)
{
    (void)mode;
    fake_capture(stream);
    return 0;
}

#endif
