/* The time of each kernel launch of a program that is not changed.
 *
 *     cc -O2 -shared -fPIC -I CUPTI/include kernel_times.c -o libkernel_times.so -ldl -lpthread
 *     CUDA_INJECTION64_PATH=$PWD/libkernel_times.so KERNEL_TIMES_OUT=times.tsv ./program
 *
 * The CUDA driver loads this library when the program initializes CUDA. CUPTI records the begin and the end of each
 * kernel on the GPU. At exit of the program one line for each launch is written to KERNEL_TIMES_OUT:
 *
 *     name, grid x,y,z, block x,y,z, registers, static shared, dynamic shared, local per thread, nanoseconds
 *
 * separated by tabs. With KERNEL_TIMES_SECONDS, the program is ended so many seconds after it has initialized CUDA, with
 * exit status 75; the launches that ended before are written. KERNEL_TIMES_CUPTI is the path of libcupti; without it, the loader's search path decides.
 * A program that ends without exit handlers (`_exit`, a signal) leaves no file. Messages about failures go to stderr.
 */

#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BUFFER_BYTES (8u << 20)
#define STOPPED 75

/* The record of CUPTI 13. Later versions only append fields, and earlier ones have the fields that are read here. */
typedef CUpti_ActivityKernel10 Kernel;

static CUptiResult (*get_next_record)(uint8_t *, size_t, CUpti_Activity **);
static CUptiResult (*flush_all)(uint32_t);
static CUptiResult (*get_dropped)(CUcontext, uint32_t, size_t *);
static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void on_request(uint8_t **buffer, size_t *size, size_t *records)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *records = 0;
}

static void write_kernel(const Kernel *k)
{
    fprintf(out, "%s\t%d,%d,%d\t%d,%d,%d\t%u\t%d\t%d\t%u\t%llu\n", k->name, k->gridX, k->gridY, k->gridZ, k->blockX,
            k->blockY, k->blockZ, (unsigned)k->registersPerThread, k->staticSharedMemory, k->dynamicSharedMemory,
            k->localMemoryPerThread, (unsigned long long)(k->end - k->start));
}

static void on_complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)size;
    pthread_mutex_lock(&lock);
    CUpti_Activity *record = NULL;
    while (out && valid && get_next_record(buffer, valid, &record) == CUPTI_SUCCESS)
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) write_kernel((const Kernel *)record);
    size_t dropped = 0;
    if (get_dropped(context, stream, &dropped) == CUPTI_SUCCESS && dropped)
        fprintf(stderr, "kernel_times: %zu records dropped\n", dropped);
    pthread_mutex_unlock(&lock);
    free(buffer);
}

static void at_exit(void)
{
    flush_all(1); /* also buffers that are not full */
    pthread_mutex_lock(&lock);
    if (out && fclose(out) != 0) fprintf(stderr, "kernel_times: the file cannot be written\n");
    out = NULL;
    pthread_mutex_unlock(&lock);
}

static void *end_later(void *seconds)
{
    usleep((useconds_t)(atof(seconds) * 1e6));
    at_exit();
    _exit(STOPPED);
}

static void *function(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found) fprintf(stderr, "kernel_times: libcupti has no %s\n", name);
    return found;
}

/* The driver calls this function, and takes 0 for a failure. */
int InitializeInjection(void)
{
    const char *file = getenv("KERNEL_TIMES_OUT"), *path = getenv("KERNEL_TIMES_CUPTI");
    void *library = dlopen(path ? path : "libcupti.so.13", RTLD_NOW | RTLD_GLOBAL);
    if (!file || !library) {
        fprintf(stderr, "kernel_times: %s\n", file ? dlerror() : "KERNEL_TIMES_OUT is not set");
        return 0;
    }
    CUptiResult (*enable)(CUpti_ActivityKind) = function(library, "cuptiActivityEnable");
    CUptiResult (*set_callbacks)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc) =
        function(library, "cuptiActivityRegisterCallbacks");
    get_next_record = function(library, "cuptiActivityGetNextRecord");
    get_dropped = function(library, "cuptiActivityGetNumDroppedRecords");
    flush_all = function(library, "cuptiActivityFlushAll");
    if (!enable || !set_callbacks || !get_next_record || !get_dropped || !flush_all) return 0;
    out = fopen(file, "w");
    if (!out) {
        perror("kernel_times: KERNEL_TIMES_OUT");
        return 0;
    }
    CUptiResult status = set_callbacks(on_request, on_complete);
    if (status == CUPTI_SUCCESS) status = enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    if (status != CUPTI_SUCCESS) {
        fprintf(stderr, "kernel_times: CUPTI error %d\n", (int)status);
        return 0;
    }
    atexit(at_exit);
    pthread_t thread;
    char *seconds = getenv("KERNEL_TIMES_SECONDS");
    if (seconds && pthread_create(&thread, NULL, end_later, seconds) == 0) pthread_detach(thread);
    return 1;
}
