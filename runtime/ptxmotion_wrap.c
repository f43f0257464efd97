/* The functions of the CUDA runtime that a linker replaces with `--wrap=NAME`. Compiled once for each of them, with
 * -DPTXMOTION_NAME, into one archive. So a function of the runtime is linked only into programs that call it.
 *
 * The types are those of driver_types.h and vector_types.h, which are not needed: dim3 is three numbers, cudaError_t is
 * int, a handle is a pointer.
 */
#include "ptxmotion_cudart.h"

/* dim3 */
struct size {
    uint32_t x, y, z;
};

/* cudaLaunchConfig_t */
struct launch {
    struct size grid, block;
    size_t shared;
    void *stream, *attributes;
    uint32_t attribute_count;
};

/* cudaLaunchAttribute */
struct attribute {
    int id;
    char padding[4];
    union {
        char bytes[64];
        int number;
    } value;
};

enum { COOPERATIVE = 2 };

/* A linker may also find the names in shared objects, and refuses hidden functions there. A protected function is still
 * called directly from its own executable or shared object. */
#define WRAPPED __attribute__((visibility("protected")))

/* The handle of the default stream of each thread. In functions with the suffix _ptsz, it is what NULL means. */
#define PER_THREAD ((void *)2)

int cudaGetKernel(void **kernel, const void *function); /* of the runtime; it is not wrapped */

/* Tries to launch a version. Returns 1 if one was launched; otherwise nothing was. */
__attribute__((unused)) static int has_launched(const void *key, ptxmotion_get_kernel *get_kernel, struct launch launch,
                                                void **arguments)
{
    if (launch.shared > UINT32_MAX)
        return 0;
    ptxmotion_config config = {{launch.grid.x, launch.grid.y, launch.grid.z},
                               {launch.block.x, launch.block.y, launch.block.z},
                               (uint32_t)launch.shared,
                               launch.stream,
                               launch.attributes,
                               launch.attribute_count};
    return ptxmotion_cudart_launch(key, get_kernel, &config, arguments);
}

/* A function that launches with the arguments of cudaLaunchKernel. `null` is the stream that NULL means. */
#define LAUNCH_PARAMETERS                                                                                              \
    const void *function, struct size grid, struct size block, void **arguments, size_t shared, void *stream
#define LAUNCH(name, get_kernel, null, attributes, count)                                                              \
    int __real_##name(LAUNCH_PARAMETERS);                                                                              \
    WRAPPED int __wrap_##name(LAUNCH_PARAMETERS);                                                                      \
    int __wrap_##name(LAUNCH_PARAMETERS)                                                                               \
    {                                                                                                                  \
        struct launch launch = {grid, block, shared, stream == NULL ? null : stream, attributes, count};               \
        if (has_launched(function, get_kernel, launch, arguments))                                                     \
            return 0;                                                                                                  \
        return __real_##name(function, grid, block, arguments, shared, stream);                                        \
    }

#define LAUNCH_COOPERATIVE(name, null)                                                                                 \
    static struct attribute cooperative[] = {{COOPERATIVE, {0}, {.number = 1}}};                                       \
    LAUNCH(name, cudaGetKernel, null, cooperative, 1)

#define LAUNCH_WITH_CONFIG(name, null)                                                                                 \
    int __real_##name(const struct launch *, const void *, void **);                                                   \
    WRAPPED int __wrap_##name(const struct launch *, const void *, void **);                                           \
    int __wrap_##name(const struct launch *given, const void *function, void **arguments)                              \
    {                                                                                                                  \
        if (given != NULL) {                                                                                           \
            struct launch launch = *given;                                                                             \
            launch.stream = launch.stream == NULL ? null : launch.stream;                                              \
            if (has_launched(function, cudaGetKernel, launch, arguments))                                              \
                return 0;                                                                                              \
        }                                                                                                              \
        return __real_##name(given, function, arguments);                                                              \
    }

#ifdef PTXMOTION___cudaRegisterFunction
void __real___cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *,
                                   int *);
WRAPPED void __wrap___cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *,
                                           void *, int *);
void __wrap___cudaRegisterFunction(void **fat_cubin, const char *function, char *device_function, const char *name,
                                   int thread_limit, void *tid, void *bid, void *block, void *grid, int *warp_size)
{
    __real___cudaRegisterFunction(fat_cubin, function, device_function, name, thread_limit, tid, bid, block, grid,
                                  warp_size);
    ptxmotion_cudart_registered(function, name);
}
#endif

#ifdef PTXMOTION___cudaGetKernel
int __real___cudaGetKernel(void **, const void *);
WRAPPED int __wrap___cudaGetKernel(void **, const void *);
int __wrap___cudaGetKernel(void **kernel, const void *function)
{
    int status = __real___cudaGetKernel(kernel, function);
    if (status == 0)
        ptxmotion_cudart_has_handle(function, *kernel);
    return status;
}
#endif

#ifdef PTXMOTION___cudaLaunchKernel
LAUNCH(__cudaLaunchKernel, NULL, NULL, NULL, 0)
#endif
#ifdef PTXMOTION___cudaLaunchKernel_ptsz
LAUNCH(__cudaLaunchKernel_ptsz, NULL, PER_THREAD, NULL, 0)
#endif
#ifdef PTXMOTION_cudaLaunchKernel
LAUNCH(cudaLaunchKernel, cudaGetKernel, NULL, NULL, 0)
#endif
#ifdef PTXMOTION_cudaLaunchKernel_ptsz
LAUNCH(cudaLaunchKernel_ptsz, cudaGetKernel, PER_THREAD, NULL, 0)
#endif
#ifdef PTXMOTION_cudaLaunchCooperativeKernel
LAUNCH_COOPERATIVE(cudaLaunchCooperativeKernel, NULL)
#endif
#ifdef PTXMOTION_cudaLaunchCooperativeKernel_ptsz
LAUNCH_COOPERATIVE(cudaLaunchCooperativeKernel_ptsz, PER_THREAD)
#endif
#ifdef PTXMOTION_cudaLaunchKernelExC
LAUNCH_WITH_CONFIG(cudaLaunchKernelExC, NULL)
#endif
#ifdef PTXMOTION_cudaLaunchKernelExC_ptsz
LAUNCH_WITH_CONFIG(cudaLaunchKernelExC_ptsz, PER_THREAD)
#endif

/* A function that loads the code of a kernel. */
#define USE(name, PARAMETERS, ...)                                                                                     \
    int __real_##name PARAMETERS;                                                                                      \
    WRAPPED int __wrap_##name PARAMETERS;                                                                              \
    int __wrap_##name PARAMETERS                                                                                       \
    {                                                                                                                  \
        ptxmotion_cudart_used(function, cudaGetKernel);                                                                \
        return __real_##name(__VA_ARGS__);                                                                             \
    }

#ifdef PTXMOTION_cudaFuncGetAttributes
USE(cudaFuncGetAttributes, (void *attributes, const void *function), attributes, function)
#endif
#ifdef PTXMOTION_cudaFuncSetCacheConfig
USE(cudaFuncSetCacheConfig, (const void *function, int config), function, config)
#endif
#ifdef PTXMOTION_cudaGetFuncBySymbol
USE(cudaGetFuncBySymbol, (void **handle, const void *function), handle, function)
#endif
#ifdef PTXMOTION_cudaOccupancyMaxActiveBlocksPerMultiprocessor
USE(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, const void *function, int threads, size_t shared),
    blocks, function, threads, shared)
#endif
#ifdef PTXMOTION_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
USE(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
    (int *blocks, const void *function, int threads, size_t shared, unsigned flags), blocks, function, threads, shared,
    flags)
#endif
#ifdef PTXMOTION_cudaOccupancyAvailableDynamicSMemPerBlock
USE(cudaOccupancyAvailableDynamicSMemPerBlock, (size_t *shared, const void *function, int blocks, int threads), shared,
    function, blocks, threads)
#endif
#ifdef PTXMOTION_cudaOccupancyMaxPotentialClusterSize
USE(cudaOccupancyMaxPotentialClusterSize, (int *size, const void *function, const void *config), size, function, config)
#endif
#ifdef PTXMOTION_cudaOccupancyMaxActiveClusters
USE(cudaOccupancyMaxActiveClusters, (int *clusters, const void *function, const void *config), clusters, function,
    config)
#endif

#ifdef PTXMOTION_cudaFuncSetAttribute
int __real_cudaFuncSetAttribute(const void *, int, int);
WRAPPED int __wrap_cudaFuncSetAttribute(const void *, int, int);
int __wrap_cudaFuncSetAttribute(const void *function, int attribute, int value)
{
    int before, after;
    ptxmotion_cudart_used(function, cudaGetKernel);
    int is_known = ptxmotion_cudart_attribute(function, attribute, &before);
    int status = __real_cudaFuncSetAttribute(function, attribute, value);
    /* Many programs set the same value before each launch. */
    if (!is_known || !ptxmotion_cudart_attribute(function, attribute, &after) || before != after)
        ptxmotion_cudart_changed(function);
    return status;
}
#endif

#ifdef PTXMOTION_cudaKernelSetAttributeForDevice
int __real_cudaKernelSetAttributeForDevice(void *, int, int, int);
WRAPPED int __wrap_cudaKernelSetAttributeForDevice(void *, int, int, int);
int __wrap_cudaKernelSetAttributeForDevice(void *kernel, int attribute, int value, int device)
{
    int status = __real_cudaKernelSetAttributeForDevice(kernel, attribute, value, device);
    ptxmotion_cudart_changed(NULL);
    return status;
}
#endif

#ifdef PTXMOTION_cuKernelSetAttribute
int __real_cuKernelSetAttribute(int, int, void *, int);
WRAPPED int __wrap_cuKernelSetAttribute(int, int, void *, int);
int __wrap_cuKernelSetAttribute(int attribute, int value, void *kernel, int device)
{
    int status = __real_cuKernelSetAttribute(attribute, value, kernel, device);
    ptxmotion_cudart_changed(NULL);
    return status;
}
#endif

#ifdef PTXMOTION_cuFuncSetAttribute
int __real_cuFuncSetAttribute(void *, int, int);
WRAPPED int __wrap_cuFuncSetAttribute(void *, int, int);
int __wrap_cuFuncSetAttribute(void *function, int attribute, int value)
{
    int status = __real_cuFuncSetAttribute(function, attribute, value);
    ptxmotion_cudart_changed(NULL);
    return status;
}
#endif
