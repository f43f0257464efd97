/* How long a launch under a contract takes. `launch_overhead.py` compiles this, and writes its inputs.
 *
 * launch_overhead MODULE.cubin CONTRACT.bytes
 *
 * The module has a kernel `k` with three pointers and a version `k_1` of equal code, for which the buffers have to be
 * disjoint and inside of their allocations, and a kernel `apart` with a version for which the buffers only have to be
 * different ones. Each line is a kind of launch and nanoseconds for one on the host: the median
 * and the smallest of 60 rounds of 400 launches. The kinds take turns.
 *
 * The second table divides the time of such launches by reading the clock at the calls of the driver, which takes some
 * nanoseconds itself: what precedes the driver's launch, and the queries in it; the driver's launch; what follows it.
 */
#define _GNU_SOURCE
#include "ptxmotion_launch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 60, LAUNCHES = 400, KINDS = 13, NODES = 1000 };

static void *cuda;

#define CALL(name, ...)                                                                                                \
    do {                                                                                                               \
        int (*function_)() = (int (*)())dlsym(cuda, name);                                                             \
        int status_ = function_ ? function_(__VA_ARGS__) : -1;                                                         \
        if (status_) {                                                                                                 \
            fprintf(stderr, "%s: %d\n", name, status_);                                                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static char *content(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        exit(2);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*size + 1);
    if (data == NULL || fread(data, 1, *size, file) != *size)
        exit(2);
    fclose(file);
    return data;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, double *rounds)
{
    qsort(rounds, ROUNDS, sizeof *rounds, by_size);
    printf("%-58s %7.0f %7.0f\n", name, rounds[ROUNDS / 2], rounds[0]);
}

/* Nanoseconds, of a clock that takes as few as possible. */
static double tick(void)
{
#ifdef __x86_64__
    static double scale;
    if (scale == 0) {
        double start = now();
        uint64_t first = __builtin_ia32_rdtsc();
        while (now() - start < 2e7)
            ;
        scale = (now() - start) / (double)(__builtin_ia32_rdtsc() - first);
    }
    return (double)__builtin_ia32_rdtsc() * scale;
#else
    return now();
#endif
}

/* The driver with a clock at its calls. */
static const ptxmotion_driver *real;
static double begun, ended, queried;

static int clocked_launch(const ptxmotion_config *config, void *function, void **arguments, void **extra)
{
    begun = tick();
    int status = real->launch_kernel_ex(config, function, arguments, extra);
    ended = tick();
    return status;
}

static int clocked_attributes(unsigned count, int *attributes, void **values, uint64_t pointer)
{
    double start = tick();
    int status = real->pointer_get_attributes(count, attributes, values, pointer);
    queried += tick() - start;
    return status;
}

static int clocked_capturing(void *stream, int *status)
{
    double start = tick();
    int result = real->stream_is_capturing(stream, status);
    queried += tick() - start;
    return result;
}

enum { PARTS = 4, DIVIDED = 6 };

/* Divides the times of launches. `kernels`: NULL is the driver's launch of `handle`. The kinds take turns. */
static void divide(const char *const *names, ptxmotion_kernel *const *kernels, void **const *arguments,
                   const ptxmotion_config *config, const ptxmotion_driver *driver, void *handle)
{
    static double rounds[DIVIDED][PARTS][ROUNDS];
    static const char *const parts[PARTS] = {"before the driver's launch", "of it queries", "the driver's launch",
                                             "behind it"};
    for (int round = -2; round < ROUNDS; round++)
        for (int kind = 0; kind < DIVIDED; kind++) {
            double sums[PARTS] = {0};
            queried = 0;
            CALL("cuStreamSynchronize", config->stream);
            for (int i = 0; i < LAUNCHES; i++) {
                double start = tick();
                int failed = kernels[kind] != NULL
                                 ? ptxmotion_launch(kernels[kind], config, arguments[kind], NULL, 0)
                                 : driver->launch_kernel_ex(config, handle, arguments[kind], NULL);
                double end = tick();
                if (failed)
                    exit(3);
                sums[0] += begun - start;
                sums[2] += ended - begun;
                sums[3] += end - ended;
            }
            sums[1] = queried;
            for (int part = 0; part < PARTS && round >= 0; part++)
                rounds[kind][part][round] = sums[part] / LAUNCHES;
        }
    for (int kind = 0; kind < DIVIDED; kind++)
        for (int part = 0; part < PARTS; part++) {
            char name[120];
            snprintf(name, sizeof name, "%s: %s", names[kind], parts[part]);
            report(name, rounds[kind][part]);
        }
}

/* Nanoseconds of the GPU for one of the nodes of a graph of `NODES` launches. */
static void time_graph(const char *name, ptxmotion_kernel *kernel, ptxmotion_config config, void **arguments,
                       uint32_t flags)
{
    void *graph, *made;
    CALL("cuStreamBeginCapture_v2", config.stream, 0);
    for (int i = 0; i < NODES; i++)
        if (ptxmotion_launch(kernel, &config, arguments, NULL, flags))
            exit(3);
    CALL("cuStreamEndCapture", config.stream, &graph);
    CALL("cuGraphInstantiateWithFlags", &made, graph, 0ull);
    double rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        CALL("cuGraphLaunch", made, config.stream);
        CALL("cuStreamSynchronize", config.stream);
        rounds[round] = (now() - start) / NODES;
    }
    report(name, rounds);
}

int main(int count, char **names)
{
    if (count != 3 || !(cuda = dlopen("libcuda.so.1", RTLD_NOW)))
        return 2;
    int device;
    void *context, *module, *stream;
    size_t size, bytes_size;
    char *cubin = content(names[1], &size), *bytes = content(names[2], &bytes_size);
    CALL("cuInit", 0);
    CALL("cuDeviceGet", &device, 0);
    CALL("cuDevicePrimaryCtxRetain", &context, device);
    CALL("cuCtxSetCurrent", context);
    CALL("cuModuleLoadData", &module, cubin);
    CALL("cuStreamCreate", &stream, 1);
    uint64_t pointers[3];
    for (int i = 0; i < 3; i++)
        CALL("cuMemAlloc_v2", &pointers[i], (size_t)4096);
    ptxmotion_module *bound;
    int status = ptxmotion_bind_module(NULL, bytes, bytes_size, module, &bound);
    if (status) {
        fprintf(stderr, "%s\n", ptxmotion_message(status));
        return 1;
    }
    ptxmotion_kernel *kernel = ptxmotion_find(bound, "k"), *alone = ptxmotion_find(bound, "alone"),
                     *apart = ptxmotion_find(bound, "apart");
    const ptxmotion_driver *driver = ptxmotion_libcuda(NULL);
    uint32_t n = 1024;
    void *good[] = {&pointers[0], &pointers[1], &pointers[2], &n};
    void *aliasing[] = {&pointers[0], &pointers[0], &pointers[2], &n};
    uint64_t pool, parts[3];
    CALL("cuMemAlloc_v2", &pool, (size_t)(3 * 4096));
    for (int i = 0; i < 3; i++)
        parts[i] = pool + 4096 * (uint64_t)i;
    void *pooled[] = {&parts[0], &parts[1], &parts[2], &n};
    ptxmotion_extent extents[4] = {{0, 0}};
    for (int i = 0; i < 3; i++)
        extents[i] = (ptxmotion_extent){pointers[i], pointers[i] + 4096};
    ptxmotion_config config = {{1, 1, 1}, {32, 1, 1}, 0, stream, NULL, 0};
    ptxmotion_choice choice;
    void *handle;
    ptxmotion_choose(kernel, &config, good, NULL, 0, &choice, NULL);
    printf("the version of the first kind is %s\n", choice.entry);
    ptxmotion_choose(apart, &config, good, NULL, 0, &choice, NULL);
    printf("that of different buffers is %s\n", choice.entry);
    CALL("cuModuleGetFunction", &handle, module, "k");

    static const char *const kinds[KINDS] = {
        "cuLaunchKernelEx",
        "contract, version taken, 3 extents from the driver",
        "contract, version taken, 3 extents given, mapped once",
        "contract, a condition is false, 2 extents",
        "a kernel without versions",
        "the decision alone, 3 extents from the driver",
        "the decision alone, 3 extents given, mapped once",
        "contract, version taken, another n at each launch",
        "the decision alone, another n at each launch",
        "contract, version taken, 3 parts of one allocation",
        "the decision alone, 3 parts of one allocation",
        "contract, version taken, 3 different buffers",
        "the decision alone, 3 different buffers",
    };
    static double rounds[KINDS][ROUNDS];
    for (int round = -2; round < ROUNDS; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            int failed = 0;
            n = 1024;
            CALL("cuStreamSynchronize", stream);
            double start = now();
            for (int i = 0; i < LAUNCHES; i++)
                switch (kind) {
                case 0:
                    failed |= driver->launch_kernel_ex(&config, handle, good, NULL);
                    break;
                case 1:
                    failed |= ptxmotion_launch(kernel, &config, good, NULL, 0);
                    break;
                case 2:
                    failed |= ptxmotion_launch(kernel, &config, good, extents, PTXMOTION_MAPPED_ONCE);
                    break;
                case 3:
                    failed |= ptxmotion_launch(kernel, &config, aliasing, NULL, 0);
                    break;
                case 4:
                    failed |= ptxmotion_launch(alone, &config, good, NULL, 0);
                    break;
                case 5:
                    ptxmotion_choose(kernel, &config, good, NULL, 0, &choice, NULL);
                    break;
                case 6:
                    ptxmotion_choose(kernel, &config, good, extents, PTXMOTION_MAPPED_ONCE, &choice, NULL);
                    break;
                case 7:
                    n = 1 + (uint32_t)i;
                    failed |= ptxmotion_launch(kernel, &config, good, NULL, 0);
                    break;
                case 8:
                    n = 1 + (uint32_t)i;
                    ptxmotion_choose(kernel, &config, good, NULL, 0, &choice, NULL);
                    break;
                case 9:
                    failed |= ptxmotion_launch(kernel, &config, pooled, NULL, 0);
                    break;
                case 10:
                    ptxmotion_choose(kernel, &config, pooled, NULL, 0, &choice, NULL);
                    break;
                case 11:
                    failed |= ptxmotion_launch(apart, &config, good, NULL, 0);
                    break;
                default:
                    ptxmotion_choose(apart, &config, good, NULL, 0, &choice, NULL);
                }
            if (failed)
                return 3;
            if (round >= 0)
                rounds[kind][round] = (now() - start) / LAUNCHES;
        }
    printf("%-58s %7s %7s\n", "nanoseconds", "median", "least");
    for (int kind = 0; kind < KINDS; kind++)
        report(kinds[kind], rounds[kind]);
    CALL("cuStreamSynchronize", stream);

    real = driver;
    ptxmotion_driver clocked = *driver;
    clocked.launch_kernel_ex = clocked_launch;
    clocked.pointer_get_attributes = clocked_attributes;
    clocked.stream_is_capturing = clocked_capturing;
    ptxmotion_module *divided;
    if (ptxmotion_bind_module(&clocked, bytes, bytes_size, module, &divided))
        return 1;
    ptxmotion_kernel *const kernels[DIVIDED] = {NULL, ptxmotion_find(divided, "alone"), ptxmotion_find(divided, "k"),
                                                ptxmotion_find(divided, "k"), ptxmotion_find(divided, "apart"), NULL};
    void **const arguments[DIVIDED] = {good, good, good, pooled, good, good};
    static const char *const names_of[DIVIDED] = {"cuLaunchKernelEx", "no versions", "3 allocations", "3 parts",
                                                  "3 different buffers", "cuLaunchKernelEx again"};
    n = 1024;
    divide(names_of, kernels, arguments, &config, &clocked, handle);
    ptxmotion_unload(divided);
    time_graph("node of a graph: the kernel itself", kernel, config, good, 0);
    time_graph("node of a graph: the version", kernel, config, good, PTXMOTION_CAPTURE);
    ptxmotion_unload(bound);
    return 0;
}
