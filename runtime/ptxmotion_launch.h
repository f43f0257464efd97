/* Launches of kernels under a launch contract (docs/contracts.md).
 *
 * A contract, as bytes (contract/bytecode.py), is bound to a module that the program has loaded. `ptxmotion_launch` then
 * takes the place of `cuLaunchKernelEx`: it evaluates the conditions of the versions of the kernel in their order, and
 * launches the first version that may be launched and is expected to be faster. If there is none, and whenever
 * something is not known, it launches the kernel itself with the arguments as they are.
 *
 * Needs no CUDA header. The driver is libcuda.so.1, loaded when it is first used, or a table of functions. All functions
 * may be called from any thread; only `ptxmotion_unload` must be the last call for its module.
 */
#ifndef PTXMOTION_LAUNCH_H
#define PTXMOTION_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with every change of a structure or a function of this header. */
#define PTXMOTION_ABI_VERSION 3

/* What functions of this header return. A launch returns a CUresult instead. */
enum ptxmotion_status {
    PTXMOTION_OK = 0,
    PTXMOTION_DAMAGED = 1,    /* the bytes are no contract */
    PTXMOTION_VERSION = 2,    /* they have another version than this library reads */
    PTXMOTION_NO_MEMORY = 3,
    PTXMOTION_NO_DRIVER = 4,  /* libcuda.so.1 or a function of it is missing */
    PTXMOTION_TOO_LARGE = 5   /* a kernel whose conditions read the extents of more than 64 pointers */
};

/* Why a version was not taken at a launch. */
enum ptxmotion_reason {
    PTXMOTION_TAKEN = 0,
    PTXMOTION_FALSE = 1,       /* a condition does not hold */
    PTXMOTION_UNDECIDABLE = 2, /* a condition, or an expression of the changed launch, has no value */
    PTXMOTION_SLOWER = 3,      /* prefer_when is not true */
    PTXMOTION_CAPTURED = 4,    /* the stream is being captured into a graph */
    PTXMOTION_ATTRIBUTE = 5,   /* a launch attribute that this library does not know, or that forbids it */
    PTXMOTION_RESIDENCE = 6,   /* fewer blocks of it than of the kernel run at the same time, which may matter */
    PTXMOTION_UNUSABLE = 7,    /* the module lacks the entry, its parameters differ, or the launch is too large for it */
    PTXMOTION_BAD_LAUNCH = 8,  /* the changed grid, block, shared memory or argument is out of range */
    PTXMOTION_REFUSED = 9,     /* the driver returned an error for the launch */
    PTXMOTION_FORBIDDEN = 10,  /* the caller wants the kernel itself */
    PTXMOTION_REASONS = 11
};

/* Flags of a launch. */
enum ptxmotion_flags {
    /* Versions may be put into graphs. The caller promises that no parameter of such a node is updated, and that the
     * buffers stay allocated as long as the graph is launched. Without it, a captured launch is the kernel itself. */
    PTXMOTION_CAPTURE = 1,
    /* prefer_when counts as true. For tests. */
    PTXMOTION_ALWAYS_PREFER = 2,
    /* Launch the kernel itself. */
    PTXMOTION_ORIGINAL = 4,
    /* No two addresses lead to the same memory. The caller promises it. Without it, memory that the program itself has
     * mapped (cuMemMap), registered or imported has no known extent. With it, such memory has one unless another mapping
     * touches it, since a buffer may consist of several. */
    PTXMOTION_MAPPED_ONCE = 8
};

/* The bytes [begin, end) of the allocation that a pointer points into. Both 0: unknown, and the driver knows. */
typedef struct ptxmotion_extent {
    uint64_t begin;
    uint64_t end;
} ptxmotion_extent;

/* A launch; the same structure as CUlaunchConfig. */
typedef struct ptxmotion_config {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared;
    void *stream;
    void *attributes; /* an array of CUlaunchAttribute, of 72 bytes each */
    uint32_t attribute_count;
} ptxmotion_config;

/* The functions of the driver that this library calls, in the types of cuda.h: CUresult is int, handles are void *.
 * `library_get_kernel` and what follows may be NULL. */
typedef struct ptxmotion_driver {
    int (*mem_get_address_range)(uint64_t *begin, size_t *size, uint64_t pointer);
    int (*pointer_get_attributes)(unsigned count, int *attributes, void **values, uint64_t pointer);
    int (*stream_is_capturing)(void *stream, int *status);
    int (*launch_kernel_ex)(const ptxmotion_config *config, void *function, void **arguments, void **extra);
    int (*module_get_function)(void **function, void *module, const char *name);
    int (*func_get_attribute)(int *value, int attribute, void *function);
    int (*func_set_attribute)(void *function, int attribute, int value);
    int (*func_get_param_info)(void *function, size_t index, size_t *offset, size_t *size);
    int (*occupancy)(int *blocks, void *function, int threads, size_t shared);
    int (*ctx_get_current)(void **context);
    int (*ctx_get_device)(int *device);
    int (*device_get_attribute)(int *value, int attribute, int device);
    int (*device_get_count)(int *count);
    int (*library_get_kernel)(void **kernel, void *library, const char *name);
    int (*kernel_get_function)(void **function, void *kernel);
    int (*kernel_get_library)(void **library, void *kernel);
    int (*stream_get_green_context)(void *stream, void **context);
    int (*func_load)(void *function);
    int (*module_get_loading_mode)(int *mode);
    int (*thread_exchange_stream_capture_mode)(int *mode);
    int (*device_get_name)(char *name, int size, int device);
} ptxmotion_driver;

typedef struct ptxmotion_module ptxmotion_module;
typedef struct ptxmotion_kernel ptxmotion_kernel;

/* What a launch would be. */
typedef struct ptxmotion_choice {
    uint32_t version;  /* its number in the contract; the last one is the kernel itself */
    const char *entry;
    void *handle;
    ptxmotion_config config;
} ptxmotion_choice;

/* The counts of one version. `reasons[PTXMOTION_TAKEN]`: how often it was taken. */
typedef struct ptxmotion_counts {
    const char *entry;
    uint64_t reasons[PTXMOTION_REASONS];
} ptxmotion_counts;

int ptxmotion_abi_version(void);

/* A status in words. */
const char *ptxmotion_message(int status);

/* Why a version was not taken, in words. */
const char *ptxmotion_reason_words(int reason);

/* The table of libcuda.so.1, or NULL and the name of what is missing. */
const ptxmotion_driver *ptxmotion_libcuda(const char **missing);

/* Binds a contract to a CUmodule. `driver`: NULL is libcuda.so.1. A table must live as long as the module. If the contract
 * has measured preferences for the kind of the current device, they count on all devices. */
int ptxmotion_bind_module(const ptxmotion_driver *driver, const void *contract, size_t size, void *module,
                          ptxmotion_module **result);

/* Binds a contract to a CUlibrary. The handles of its kernels are CUkernels. */
int ptxmotion_bind_library(const ptxmotion_driver *driver, const void *contract, size_t size, void *library,
                           ptxmotion_module **result);

/* Binds a contract to the CUlibrary that a CUkernel is of: for a program whose launches are seen, but not its loading. */
int ptxmotion_bind_kernel(const ptxmotion_driver *driver, const void *contract, size_t size, void *kernel,
                          ptxmotion_module **result);

/* Frees what was bound. Does not unload the module. NULL is allowed. */
void ptxmotion_unload(ptxmotion_module *module);

/* The SHA-256 of the PTX of the contract: 32 bytes. */
const uint8_t *ptxmotion_digest(const ptxmotion_module *module);

/* A kernel of the contract by its name, or NULL. */
ptxmotion_kernel *ptxmotion_find(ptxmotion_module *module, const char *name);

/* A kernel of the contract by its handle (CUfunction or CUkernel), or NULL. */
ptxmotion_kernel *ptxmotion_find_handle(ptxmotion_module *module, const void *handle);

/* How many versions of a kernel, without the kernel itself, the module has. */
uint32_t ptxmotion_usable(const ptxmotion_kernel *kernel);

/* Loads the code of the versions into the current context, where the driver would load it when it is first used. To load
 * may take as long as the kernels that run. Must precede all launches of the kernel. */
void ptxmotion_load(ptxmotion_kernel *kernel);

/* Launches a kernel or a version of it; the CUresult. `arguments` is as for cuLaunchKernelEx. `extents`: one for each
 * parameter of the kernel, or NULL. */
int ptxmotion_launch(ptxmotion_kernel *kernel, const ptxmotion_config *config, void **arguments,
                     const ptxmotion_extent *extents, uint32_t flags);

/* Launches a version of a kernel, if one may be launched. Returns 1 if the driver has accepted its launch. Otherwise
 * nothing was launched: the caller launches the kernel itself, and the launch is counted as one of the kernel. */
int ptxmotion_launch_version(ptxmotion_kernel *kernel, const ptxmotion_config *config, void **arguments,
                             const ptxmotion_extent *extents, uint32_t flags);

/* `ptxmotion_launch` with the arguments in one block of memory, each at the offset of its parameter. */
int ptxmotion_launch_packed(ptxmotion_kernel *kernel, const ptxmotion_config *config, void *arguments,
                            const ptxmotion_extent *extents, uint32_t flags);

/* What `ptxmotion_launch` would launch. Counts nothing. `reasons`: NULL, or one for each version; those behind the
 * chosen one are not written. */
void ptxmotion_choose(ptxmotion_kernel *kernel, const ptxmotion_config *config, void **arguments,
                      const ptxmotion_extent *extents, uint32_t flags, ptxmotion_choice *choice, uint8_t *reasons);

/* How the launches of a kernel went. Writes the counts of at most `capacity` versions; the number of versions. */
uint32_t ptxmotion_statistics(const ptxmotion_kernel *kernel, ptxmotion_counts *counts, uint32_t capacity);

/* How often condition `condition` of a version was false and undecidable. Returns 0 if there is none such. */
int ptxmotion_condition_counts(const ptxmotion_kernel *kernel, uint32_t version, uint32_t condition, uint64_t counts[2]);

/* To be called after attributes of the kernel were changed by cuFuncSetAttribute or cuKernelSetAttribute, so that the
 * versions get them, too. */
void ptxmotion_attributes_changed(ptxmotion_kernel *kernel);

#ifdef __cplusplus
}
#endif

#endif
