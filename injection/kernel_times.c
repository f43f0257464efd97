/* The time of each kernel launch of a program that is not changed.
 *
 *     cc -O2 -shared -fPIC kernel_times.c -o libkernel_times.so -ldl -lpthread
 *     CUDA_INJECTION64_PATH=$PWD/libkernel_times.so KERNEL_TIMES_OUT=times.tsv ./program
 *
 * The CUDA driver loads this library when the program initializes CUDA. CUPTI records the begin and the end of each
 * kernel on the GPU. One line for each launch is appended to KERNEL_TIMES_OUT:
 *
 *     name, grid x,y,z, block x,y,z, registers, static shared, dynamic shared, local per thread, nanoseconds
 *
 * separated by tabs. With KERNEL_TIMES_SECONDS, the program is ended so many seconds after it has initialized CUDA, with
 * exit status 75; the launches that ended before are written. KERNEL_TIMES_CUPTI is the path of libcupti; without it,
 * the loader's search path decides. Messages about failures go to stderr.
 *
 * KERNEL_TIMES_TURN is the number of an open socket. With it, the library writes one byte there when the program has its
 * first context, waits for one byte or the end of the stream, and writes another byte after the last time. So programs
 * can start and end while another one is timed, but only one at a time executes kernels. The seconds of
 * KERNEL_TIMES_SECONDS begin with the turn. If CUPTI does not report contexts, the turn begins before the first one.
 *
 * Guarantees: several processes may append to one file. If something fails, the program runs without it.
 * Refuses: a process that ends without exit handlers (`_exit`, a signal) lacks its last launches, in most cases all. A
 * program that uses CUPTI itself, such as a profiler, cannot be timed.
 *
 * The declarations of CUPTI are those of `cupti_activity.h` of CUDA 13. The fields of `kernel_record` have the same
 * places in all versions from CUpti_ActivityKernel4 (CUDA 9) to CUpti_ActivityKernel10 (CUDA 13).
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER_BYTES (8u << 20)
#define STOPPED 75

enum { CUPTI_SUCCESS = 0, KIND_CONCURRENT_KERNEL = 10, DOMAIN_RESOURCE = 3, CONTEXT_CREATED = 1 };

typedef struct {
    uint32_t kind;
    uint8_t cache, shared;
    uint16_t registers;
    uint32_t partitioned[2];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3], static_shared, dynamic_shared;
    uint32_t local_per_thread, local_total, correlation;
    int64_t grid_id;
    const char *name;
} kernel_record;

_Static_assert(offsetof(kernel_record, start) == 16 && offsetof(kernel_record, grid) == 52 &&
                   offsetof(kernel_record, name) == 104,
               "the layout of CUPTI");

typedef void (*request_type)(uint8_t **, size_t *, size_t *);
typedef void (*complete_type)(void *, uint32_t, uint8_t *, size_t, size_t);
typedef void (*callback_type)(void *, int, uint32_t, const void *);

static int (*get_next_record)(uint8_t *, size_t, uint32_t **);
static int (*flush_all)(uint32_t);
static int (*get_dropped)(void *, uint32_t, size_t *);
static int out = -1, turn_socket = -1, turn = -1; /* turn: the socket, while the turn lasts */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pid_t owner;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void on_request(uint8_t **buffer, size_t *size, size_t *records) {
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *records = 0;
}

static void print_kernel(FILE *text, const kernel_record *k) {
    fprintf(text, "%s\t%d,%d,%d\t%d,%d,%d\t%u\t%d\t%d\t%u\t%llu\n", k->name, k->grid[0], k->grid[1], k->grid[2],
            k->block[0], k->block[1], k->block[2], (unsigned)k->registers, k->static_shared, k->dynamic_shared,
            (unsigned)k->local_per_thread, (unsigned long long)(k->end - k->start));
}

/* Lines are written at once, because other processes may append to the same file. */
static void write_lines(const char *text, size_t size) {
    while (size) {
        ssize_t written = write(out, text, size);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            perror("kernel_times: the file cannot be written");
            return;
        }
        text += written;
        size -= (size_t)written;
    }
}

/* A record without a time (start and end 0) is left out: the GPU had no memory for it. */
static void on_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)size;
    pthread_mutex_lock(&lock);
    char *lines = NULL;
    size_t length = 0, dropped = 0, untimed = 0;
    FILE *text = open_memstream(&lines, &length);
    uint32_t *record = NULL;
    while (text && valid && get_next_record(buffer, valid, &record) == CUPTI_SUCCESS) {
        const kernel_record *kernel = (const kernel_record *)record;
        if (*record != KIND_CONCURRENT_KERNEL) continue;
        if (kernel->start && kernel->end)
            print_kernel(text, kernel);
        else
            ++untimed;
    }
    if (!text || fclose(text))
        fprintf(stderr, "kernel_times: no memory\n");
    else if (out >= 0)
        write_lines(lines, length);
    free(lines);
    if (get_dropped(context, stream, &dropped) == CUPTI_SUCCESS && dropped + untimed)
        fprintf(stderr, "kernel_times: %zu launches have no time\n", dropped + untimed);
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* The process at the other end of the socket may have ended. Then the program runs on. */
static void write_turn(void) {
    if (send(turn, "t", 1, MSG_NOSIGNAL) != 1) perror("kernel_times: KERNEL_TIMES_TURN");
}

static void at_exit(void) {
    if (getpid() != owner) return; /* a process that was forked has no records */
    flush_all(1); /* also buffers that are not full */
    pthread_mutex_lock(&lock);
    if (out >= 0 && close(out)) perror("kernel_times: the file cannot be written");
    out = -1;
    if (turn >= 0) write_turn();
    turn = -1;
    pthread_mutex_unlock(&lock);
}

static void *end_later(void *seconds) {
    usleep((useconds_t)(atof(seconds) * 1e6));
    at_exit();
    _exit(STOPPED);
}

static void start_clock(void) {
    pthread_t thread;
    char *seconds = getenv("KERNEL_TIMES_SECONDS");
    if (seconds && pthread_create(&thread, NULL, end_later, seconds) == 0) pthread_detach(thread);
}

static void take_turn(void) {
    turn = turn_socket;
    write_turn();
    char byte;
    while (recv(turn, &byte, 1, 0) < 0 && errno == EINTR) continue;
    start_clock();
}

static void on_context(void *data, int domain, uint32_t what, const void *details) {
    (void)data;
    (void)details;
    if (domain == DOMAIN_RESOURCE && what == CONTEXT_CREATED && getpid() == owner) pthread_once(&once, take_turn);
}

/* dlsym gives data pointers, and ISO C has no conversion of them to function pointers. */
static bool find(void *library, const char *name, void *target) {
    void *found = dlsym(library, name);
    if (!found) fprintf(stderr, "kernel_times: libcupti has no %s\n", name);
    memcpy(target, &found, sizeof found);
    return found != NULL;
}

/* Take the turn, if there are turns, when the program has a context. */
static void wait_for_turn(void *library) {
    const char *text = getenv("KERNEL_TIMES_TURN");
    if (!text) {
        start_clock();
        return;
    }
    turn_socket = atoi(text);
    fcntl(turn_socket, F_SETFD, FD_CLOEXEC);
    unsetenv("KERNEL_TIMES_TURN"); /* for a process that the program starts, the number is that of another file */
    int (*subscribe)(void **, callback_type, void *);
    int (*enable)(uint32_t, void *, int, uint32_t);
    void *subscriber;
    if (!find(library, "cuptiSubscribe", &subscribe) || !find(library, "cuptiEnableCallback", &enable) ||
        subscribe(&subscriber, on_context, NULL) != CUPTI_SUCCESS ||
        enable(1, subscriber, DOMAIN_RESOURCE, CONTEXT_CREATED) != CUPTI_SUCCESS)
        pthread_once(&once, take_turn);
}

/* The driver calls this function, and takes 0 for a failure. */
__attribute__((visibility("default"))) int InitializeInjection(void) {
    const char *file = getenv("KERNEL_TIMES_OUT"), *path = getenv("KERNEL_TIMES_CUPTI");
    void *library = dlopen(path ? path : "libcupti.so.13", RTLD_NOW | RTLD_GLOBAL);
    if (!file || !library) {
        fprintf(stderr, "kernel_times: %s\n", file ? dlerror() : "KERNEL_TIMES_OUT is not set");
        return 0;
    }
    int (*enable)(int);
    int (*set_callbacks)(request_type, complete_type);
    if (!find(library, "cuptiActivityEnable", &enable) ||
        !find(library, "cuptiActivityRegisterCallbacks", &set_callbacks) ||
        !find(library, "cuptiActivityGetNextRecord", &get_next_record) ||
        !find(library, "cuptiActivityGetNumDroppedRecords", &get_dropped) ||
        !find(library, "cuptiActivityFlushAll", &flush_all))
        return 0;
    out = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (out < 0) {
        perror("kernel_times: KERNEL_TIMES_OUT");
        return 0;
    }
    owner = getpid();
    int status = set_callbacks(on_request, on_complete);
    if (status == CUPTI_SUCCESS) status = enable(KIND_CONCURRENT_KERNEL);
    if (status != CUPTI_SUCCESS) {
        fprintf(stderr, "kernel_times: CUPTI error %d\n", status);
        return 0;
    }
    wait_for_turn(library);
    atexit(at_exit);
    return 1;
}
