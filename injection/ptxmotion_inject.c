/* The library that `ptxmotion run` loads into a program with LD_PRELOAD.
 *
 * It stands before the functions of the CUDA driver, nvJitLink and NVRTC that get device code. PTX, alone or in a
 * fatbin, is sent to the process `ptxmotion run`, which answers with optimized code. The driver gets this code; if
 * there is none, or the driver refuses it, the driver gets the code of the program.
 *
 * A program reaches these functions in three ways, and each gives it a function of this library:
 * - the dynamic linker binds its symbols, and finds those of this library first;
 * - it calls dlsym: see the assembly below;
 * - it calls cuGetProcAddress, as the CUDA runtime does.
 *
 * Environment: PTXMOTION_RUN is a folder with `socket`, where the process listens, and `log`, to which this library
 * appends a line of JSON for code that it leaves as it is. Without the variable each function only calls the real one.
 *
 * Guarantees: a failure of the other process, or of this library, has no effect but the program's own code. No signal
 * is raised, no descriptor is inherited by other programs, and errno does not change.
 * Requires: Linux on x86-64 with glibc, and a program that is linked dynamically.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#if !defined(__x86_64__) || !defined(__linux__) || !defined(__GLIBC__)
#error "this library is for Linux on x86-64 with glibc"
#endif

#define EXPORT __attribute__((visibility("default")))
#define SUCCESS 0
/* CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND */
#define NO_SYMBOL 302

enum { MAX_DEVICES = 8 };
enum { KIND_PTX = 1, KIND_FATBIN = 2 };

static const uint32_t WRAPPER_MAGIC = 0x466243b1, FATBIN_MAGIC = 0xba55ed50, ELF_MAGIC = 0x464c457f;

/* The value of PTXMOTION_RUN when the library was loaded; empty if there was none. A program may change its environment
 * in one thread while another one loads code. */
static char run_folder[4096];

__attribute__((constructor)) static void read_environment(void) {
    const char *value = getenv("PTXMOTION_RUN");
    if (value && strlen(value) < sizeof run_folder) strcpy(run_folder, value);
}

static bool is_active(void) {
    return run_folder[0] != '\0';
}

/* --- the functions that are replaced ---------------------------------------------------------------------------- */

enum {
    GET_PROC,
    GET_PROC_2,
    MODULE_LOAD,
    MODULE_DATA,
    MODULE_DATA_EX,
    MODULE_FATBIN,
    LIBRARY_DATA,
    LIBRARY_FILE,
    LINK_DATA,
    LINK_DATA_2,
    LINK_FILE,
    LINK_FILE_2,
    JITLINK_DATA,
    JITLINK_DATA_12_0,
    JITLINK_DATA_12_1,
    JITLINK_DATA_12_2,
    JITLINK_DATA_12_3,
    JITLINK_DATA_12_4,
    JITLINK_DATA_12_5,
    JITLINK_DATA_12_6,
    JITLINK_DATA_12_7,
    JITLINK_DATA_12_8,
    JITLINK_DATA_12_9,
    JITLINK_DATA_13_0,
    JITLINK_DATA_13_1,
    JITLINK_DATA_13_2,
    JITLINK_DATA_13_3,
    NVRTC_CUBIN,
    HOOKS
};

typedef void (*function)(void);

/* `real` is the function of the first library that was found; a second library with the same function is not
 * replaced. `own` is the function of this library. */
typedef struct {
    const char *name;
    function own;
    _Atomic(function) real;
} hook;

static hook hooks[HOOKS];

/* A function pointer as a data pointer, and back: dlsym and cuGetProcAddress mix them. */
static void *data_of(function pointer) {
    void *result;
    memcpy(&result, &pointer, sizeof result);
    return result;
}

static function function_of(void *pointer) {
    function result;
    memcpy(&result, &pointer, sizeof result);
    return result;
}

static void *(*real_dlsym(void))(void *, const char *) {
    static _Atomic(function) found;
    function result = found;
    if (!result) {
        result = function_of(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
        found = result;
    }
    return (void *(*)(void *, const char *))result;
}

/* The symbol of the libraries after this one. dlsym looks at its return address, so it must not be jumped to at the end
 * of a function, as compilers do. */
static void *next_symbol(const char *name) {
    void *found = real_dlsym()(RTLD_NEXT, name);
    __asm__ volatile("" : "+r"(found) : : "memory");
    return found;
}

static hook *hook_named(const char *name) {
    if (!name || name[0] == '\0' || (strncmp(name, "cu", 2) && !strstr(name, "nvJitLink") && strncmp(name, "nvrtc", 5)))
        return NULL;
    for (int index = 0; index < HOOKS; ++index)
        if (!strcmp(hooks[index].name, name)) return &hooks[index];
    return NULL;
}

static const void *library_of(function pointer) {
    Dl_info info;
    return dladdr(data_of(pointer), &info) ? info.dli_fbase : NULL;
}

/* What a program gets for a function that it has looked up. */
static void *replaced(hook *found, void *real) {
    if (real == data_of(found->own)) return real;
    function none = NULL, pointer = function_of(real);
    if (__atomic_compare_exchange_n((function *)&found->real, &none, pointer, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return data_of(found->own);
    return none == pointer || library_of(none) == library_of(pointer) ? data_of(found->own) : real;
}

/* The driver, if it is loaded. */
static void *driver(void) {
    return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
}

/* The real function, also for a program that was linked with the driver and has looked up nothing. */
static function real_of(int index) {
    function result = hooks[index].real;
    if (result) return result;
    void *found = next_symbol(hooks[index].name);
    if (!found) {
        void *library = driver();
        found = library ? real_dlsym()(library, hooks[index].name) : NULL;
        if (library) dlclose(library);
    }
    if (!found) return NULL;
    replaced(&hooks[index], found);
    return hooks[index].real;
}

/* dlsym for the names in `hooks`. The libraries that RTLD_DEFAULT means contain this one. */
static void *hooked_dlsym(void *handle, const char *name) {
    hook *found = hook_named(name);
    void *real;
    if (handle == RTLD_DEFAULT) {
        real = data_of(real_of((int)(found - hooks)));
        if (!real) return next_symbol(name); /* sets what dlerror returns */
    } else {
        real = real_dlsym()(handle, name);
        if (real == data_of(found->own)) { /* the handle is that of the program */
            real = data_of(real_of((int)(found - hooks)));
            if (!real) return next_symbol(name);
        }
    }
    return real ? replaced(found, real) : NULL;
}

/* Where the dlsym of this library jumps to. */
__attribute__((used, visibility("hidden"))) void *ptxmotion_dlsym_target(void *handle, const char *name) {
    bool is_plain = handle == RTLD_NEXT || !is_active() || !hook_named(name);
    return is_plain ? data_of((function)real_dlsym()) : data_of((function)hooked_dlsym);
}

/* For RTLD_NEXT and RTLD_DEFAULT, dlsym looks at its return address to find the library that calls it. So the real
 * dlsym is not called but jumped to, with the arguments and the return address of the caller. */
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "pushq %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "call ptxmotion_dlsym_target\n"
        "addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "popq %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "popq %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "jmp *%rax\n"
        ".cfi_endproc\n"
        ".size dlsym, .-dlsym\n");

/* --- the log ---------------------------------------------------------------------------------------------------- */

/* Append a line that says that code was left as it is. `reason` has no characters that JSON quotes. */
static void note(const char *way, const char *reason) {
    if (!is_active()) return;
    int saved = errno;
    char path[sizeof run_folder + 8], line[512];
    int length = snprintf(line, sizeof line, "{\"way\": \"%s\", \"left\": \"%s\"}\n", way, reason);
    if (snprintf(path, sizeof path, "%s/log", run_folder) < (int)sizeof path && length < (int)sizeof line) {
        int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (file >= 0) {
            /* A log that cannot be written lacks a line; there is no other place to report this. */
            ssize_t written = write(file, line, (size_t)length);
            (void)written;
            close(file);
        }
    }
    errno = saved;
}

/* --- devices ---------------------------------------------------------------------------------------------------- */

/* The targets of the devices as in 90, without repetitions, that of the current context first. */
typedef struct {
    uint32_t count, targets[MAX_DEVICES];
    int driver_version;
} devices;

static void add_target(devices *result, int (*attribute)(int *, int, int), int device) {
    int major = 0, minor = 0;
    if (attribute(&major, 75, device) || attribute(&minor, 76, device) || major <= 0) return;
    uint32_t target = (uint32_t)(10 * major + minor);
    for (uint32_t index = 0; index < result->count; ++index)
        if (result->targets[index] == target) return;
    if (result->count < MAX_DEVICES) result->targets[result->count++] = target;
}

static devices all_devices(void) {
    devices result = {0};
    void *library = driver();
    if (!library) return result;
    void *(*find)(void *, const char *) = real_dlsym();
    int (*version)(int *) = (int (*)(int *))function_of(find(library, "cuDriverGetVersion"));
    int (*count_of)(int *) = (int (*)(int *))function_of(find(library, "cuDeviceGetCount"));
    int (*device_at)(int *, int) = (int (*)(int *, int))function_of(find(library, "cuDeviceGet"));
    int (*current)(int *) = (int (*)(int *))function_of(find(library, "cuCtxGetDevice"));
    int (*attribute)(int *, int, int) = (int (*)(int *, int, int))function_of(find(library, "cuDeviceGetAttribute"));
    int count = 0, device = 0;
    if (version && version(&result.driver_version)) result.driver_version = 0;
    if (current && attribute && !current(&device)) add_target(&result, attribute, device);
    if (count_of && device_at && attribute && !count_of(&count))
        for (int index = 0; index < count; ++index)
            if (!device_at(&device, index)) add_target(&result, attribute, device);
    dlclose(library);
    return result;
}

/* --- the other process ------------------------------------------------------------------------------------------ */

/* `injection/protocol.py` has the same layout. The data follow the head. */
typedef struct {
    char magic[8];
    char way[32];
    uint32_t kind, max_registers, level, driver_version;
    uint32_t target_count, targets[MAX_DEVICES], unused;
    uint64_t size;
} request_head;

typedef struct {
    char magic[8];
    uint64_t size; /* 0: nothing is to be replaced */
} reply_head;

_Static_assert(sizeof(request_head) == 104 && sizeof(reply_head) == 16, "the layout of the protocol");

static bool send_all(int connection, const void *data, size_t size) {
    const char *at = data;
    while (size) {
        ssize_t sent = send(connection, at, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

static bool receive_all(int connection, void *data, size_t size) {
    char *at = data;
    while (size) {
        ssize_t got = recv(connection, at, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        size -= (size_t)got;
    }
    return true;
}

/* The limit of the other process, and a minute in which it can stop. */
static struct timeval patience(void) {
    const char *text = getenv("PTXMOTION_SECONDS");
    double seconds = text && *text ? strtod(text, NULL) : 600;
    if (!(seconds >= 0 && seconds < 1e6)) seconds = 600;
    return (struct timeval){.tv_sec = (time_t)seconds + 60};
}

static int connected(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", run_folder) >= (int)sizeof address.sun_path)
        return -1;
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0) return -1;
    struct timeval limit = patience();
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(connection, (struct sockaddr *)&address, sizeof address)) {
        close(connection);
        return -1;
    }
    return connection;
}

/* The optimized code, which the caller frees; NULL if there is none. */
static void *optimized(request_head *head, const void *data, size_t *size) {
    int connection = connected();
    if (connection < 0) {
        note(head->way, "ptxmotion run cannot be reached");
        return NULL;
    }
    memcpy(head->magic, "PTXMRUN1", 8);
    reply_head reply = {.size = 0};
    char *result = NULL;
    if (!send_all(connection, head, sizeof *head) || !send_all(connection, data, head->size) ||
        !receive_all(connection, &reply, sizeof reply) || memcmp(reply.magic, "PTXMRUN1", 8)) {
        note(head->way, "the optimizer did not answer");
    } else if (reply.size && reply.size < (uint64_t)1 << 32 && (result = malloc(reply.size + 1))) {
        *size = reply.size;
        if (receive_all(connection, result, reply.size)) {
            result[reply.size] = '\0'; /* the driver reads PTX up to here */
        } else {
            note(head->way, "the optimizer did not answer");
            free(result);
            result = NULL;
        }
    }
    close(connection);
    return result;
}

/* --- images ----------------------------------------------------------------------------------------------------- */

/* The fatbin's wrapper of the CUDA runtime, as in fatbinary_section.h. */
typedef struct {
    uint32_t magic, version;
    const void *data;
    const void *other;
} wrapper;

typedef struct {
    uint32_t magic;
    uint16_t version, head;
    uint64_t size;
} fatbin;

/* Options of the driver's compiler that the optimizer has to know. */
typedef struct {
    uint32_t max_registers, level;
    bool is_debug;
} jit_options;

static uint32_t word_at(const void *data, size_t offset) {
    uint32_t word;
    memcpy(&word, (const char *)data + offset, sizeof word);
    return word;
}

/* Whether one of the images of a fatbin is PTX that a device can use. The layout is described in
 * `toolchain/fatbin.py`. */
static bool has_ptx(const fatbin *fat, const devices *known, const char **reason) {
    const char *at = (const char *)fat + fat->head, *end = at + fat->size;
    *reason = "machine code without PTX";
    while (end - at >= 64) {
        uint32_t kind = word_at(at, 0) & 0xffff, head = word_at(at, 4), target = word_at(at, 28);
        uint64_t size;
        memcpy(&size, at + 8, sizeof size);
        if (head < 64 || head > (uint64_t)(end - at) || size > (uint64_t)(end - at) - head) return false;
        if (kind == 8) *reason = "LTO-IR";
        if (kind == 1) {
            for (uint32_t index = 0; index < known->count; ++index)
                if (target <= known->targets[index]) return true;
            *reason = "PTX for newer devices";
        }
        at += head + size;
    }
    return false;
}

static bool is_ptx(const char *text) {
    return text[0] > 0 && strstr(text, ".version") != NULL && strstr(text, ".target") != NULL;
}

/* Code for the driver in place of `image`, NULL if there is none. `is_kept`: the driver may read it at any time, and
 * it must not be freed. `size` is that of the image, or 0 if the image itself says where it ends. */
static void *code_for(const void *image, size_t size, const char *way, jit_options options, bool *is_kept) {
    *is_kept = false;
    if (!is_active() || !image) return NULL;
    int saved = errno;
    devices known = all_devices();
    request_head head = {.max_registers = options.max_registers, .level = options.level};
    head.driver_version = (uint32_t)known.driver_version;
    snprintf(head.way, sizeof head.way, "%s", way);
    head.target_count = known.count;
    memcpy(head.targets, known.targets, sizeof head.targets);
    const wrapper *wrap = NULL;
    const fatbin *fat = NULL;
    uint32_t magic = size && size < sizeof(fatbin) ? 0 : word_at(image, 0);
    if (magic == WRAPPER_MAGIC) {
        wrap = image;
        fat = wrap->data;
        magic = fat ? word_at(fat, 0) : 0;
    } else if (magic == FATBIN_MAGIC) {
        fat = image;
    }
    const char *reason = NULL;
    const void *data = image;
    char *text = NULL;
    if (magic == FATBIN_MAGIC && size && !wrap && fat->head + fat->size > size) {
        reason = "a fatbin that is cut short";
    } else if (magic == FATBIN_MAGIC) {
        size = fat->head + fat->size;
        if (has_ptx(fat, &known, &reason)) reason = NULL;
        head.kind = KIND_FATBIN;
        data = fat;
    } else if (magic == ELF_MAGIC) {
        reason = "machine code without PTX";
    } else if (wrap) {
        reason = "a format that is not known";
    } else {
        /* The driver reads up to a zero, which a buffer with a size may lack. */
        text = size ? strndup(image, size) : NULL;
        data = size ? text : image;
        if (!data || !is_ptx(data)) reason = "a format that is not known";
        size = data ? strlen(data) : 0;
        head.kind = KIND_PTX;
    }
    if (!reason && !known.count) reason = "the driver names no device";
    if (!reason && options.is_debug) reason = "it is for a debugger";
    void *result = NULL;
    if (reason) {
        note(way, reason);
    } else {
        head.size = size;
        result = optimized(&head, data, &size);
    }
    free(text);
    if (result && wrap) {
        wrapper *copy = malloc(sizeof *copy);
        if (copy) {
            *copy = *wrap;
            copy->data = result;
            *is_kept = true;
        } else {
            free(result);
        }
        result = copy;
    }
    errno = saved;
    return result;
}

/* A file with device code, followed by a zero; NULL if it cannot be read. */
static char *content_of(const char *path, size_t *size) {
    int saved = errno;
    char *result = NULL;
    int file = path && is_active() ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat status;
    if (file >= 0 && !fstat(file, &status) && S_ISREG(status.st_mode) && status.st_size > 0) {
        size_t expected = (size_t)status.st_size, done = 0;
        result = malloc(expected + 1);
        while (result && done < expected) {
            ssize_t got = read(file, result + done, expected - done);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) break;
            done += (size_t)got;
        }
        if (result && done == expected) {
            result[done] = '\0';
            *size = done;
        } else {
            free(result);
            result = NULL;
        }
    }
    if (file >= 0) close(file);
    errno = saved;
    return result;
}

static jit_options jit_options_of(unsigned count, const int *options, void *const *values) {
    jit_options result = {.level = 4};
    for (unsigned index = 0; options && values && index < count; ++index) {
        uint32_t value = (uint32_t)(uintptr_t)values[index];
        if (options[index] == 0) result.max_registers = value;
        if (options[index] == 7) result.level = value;
        if (options[index] == 11) result.is_debug = value != 0;
    }
    return result;
}

/* The driver writes into the values of options, such as the length of a log. So the first attempt gets a copy of them,
 * which `keep` writes back if the attempt was the last one. A copy may be NULL: then the values themselves are used. */
static void **copied(void **values, unsigned count) {
    void **copy = values && count ? malloc(count * sizeof *copy) : NULL;
    if (copy) memcpy(copy, values, count * sizeof *copy);
    return copy;
}

static void keep(void **copy, void **values, unsigned count, bool is_last) {
    if (copy && is_last) memcpy(values, copy, count * sizeof *copy);
    free(copy);
}

/* Free the code after the driver has read it, and say whether the driver took it. */
static bool is_done(int status, void *code, bool is_kept, const char *way) {
    if (!is_kept) free(code);
    if (status != SUCCESS) note(way, "the driver refuses the optimized code");
    return status == SUCCESS;
}

/* --- the driver ------------------------------------------------------------------------------------------------- */

typedef int (*get_proc_type)(const char *, void **, int, uint64_t);
typedef int (*get_proc_2_type)(const char *, void **, int, uint64_t, int *);
typedef int (*module_load_type)(void **, const char *);
typedef int (*module_data_type)(void **, const void *);
typedef int (*module_data_ex_type)(void **, const void *, unsigned, int *, void **);
typedef int (*library_data_type)(void **, const void *, int *, void **, unsigned, int *, void **, unsigned);
typedef int (*library_file_type)(void **, const char *, int *, void **, unsigned, int *, void **, unsigned);
typedef int (*link_data_type)(void *, int, void *, size_t, const char *, unsigned, int *, void **);
typedef int (*link_file_type)(void *, int, const char *, unsigned, int *, void **);
typedef int (*jitlink_data_type)(void *, int, const void *, size_t, const char *);
typedef int (*nvrtc_cubin_type)(void *, char *);

#define REAL(type, index) \
    type real = (type)real_of(index); \
    if (!real) return NO_SYMBOL

static const jit_options NO_OPTIONS = {.level = 4};

/* In place of what cuGetProcAddress has found for a name and a version of CUDA. The name has no suffix `_v2`; from
 * CUDA 12.0 and 6.5 on, it means the functions with this suffix. */
static void replace_found(const char *symbol, void **result, int version) {
    if (!is_active() || !symbol || !result || !*result) return;
    char name[64];
    const char *suffix = "";
    if (!strcmp(symbol, "cuGetProcAddress")) suffix = version >= 12000 ? "_v2" : "";
    if (!strcmp(symbol, "cuLinkAddData") || !strcmp(symbol, "cuLinkAddFile")) suffix = version >= 6050 ? "_v2" : "";
    if (snprintf(name, sizeof name, "%s%s", symbol, suffix) >= (int)sizeof name) return;
    hook *found = hook_named(name);
    if (found) *result = replaced(found, *result);
}

EXPORT int cuGetProcAddress(const char *symbol, void **result, int version, uint64_t flags) {
    REAL(get_proc_type, GET_PROC);
    int status = real(symbol, result, version, flags);
    if (status == SUCCESS) replace_found(symbol, result, version);
    return status;
}

EXPORT int cuGetProcAddress_v2(const char *symbol, void **result, int version, uint64_t flags, int *found) {
    REAL(get_proc_2_type, GET_PROC_2);
    int status = real(symbol, result, version, flags, found);
    if (status == SUCCESS) replace_found(symbol, result, version);
    return status;
}

EXPORT int cuModuleLoad(void **module, const char *path) {
    REAL(module_load_type, MODULE_LOAD);
    module_data_type load = (module_data_type)real_of(MODULE_DATA);
    size_t size = 0;
    bool is_kept;
    char *content = load ? content_of(path, &size) : NULL;
    void *code = content ? code_for(content, size, "cuModuleLoad", NO_OPTIONS, &is_kept) : NULL;
    free(content);
    if (code && is_done(load(module, code), code, is_kept, "cuModuleLoad")) return SUCCESS;
    return real(module, path);
}

EXPORT int cuModuleLoadData(void **module, const void *image) {
    REAL(module_data_type, MODULE_DATA);
    bool is_kept;
    void *code = code_for(image, 0, "cuModuleLoadData", NO_OPTIONS, &is_kept);
    if (code && is_done(real(module, code), code, is_kept, "cuModuleLoadData")) return SUCCESS;
    return real(module, image);
}

EXPORT int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
    REAL(module_data_ex_type, MODULE_DATA_EX);
    bool is_kept;
    void *code = code_for(image, 0, "cuModuleLoadDataEx", jit_options_of(count, options, values), &is_kept);
    if (code) {
        void **copy = copied(values, count);
        int status = real(module, code, count, options, copy ? copy : values);
        keep(copy, values, count, status == SUCCESS);
        if (is_done(status, code, is_kept, "cuModuleLoadDataEx")) return SUCCESS;
    }
    return real(module, image, count, options, values);
}

EXPORT int cuModuleLoadFatBinary(void **module, const void *image) {
    REAL(module_data_type, MODULE_FATBIN);
    bool is_kept;
    void *code = code_for(image, 0, "cuModuleLoadFatBinary", NO_OPTIONS, &is_kept);
    if (code && is_done(real(module, code), code, is_kept, "cuModuleLoadFatBinary")) return SUCCESS;
    return real(module, image);
}

/* CU_LIBRARY_BINARY_IS_PRESERVED: the driver reads the code also after it has returned. */
static bool is_preserved(unsigned count, const int *options, void *const *values) {
    for (unsigned index = 0; options && values && index < count; ++index)
        if (options[index] == 1 && values[index]) return true;
    return false;
}

/* Whether the driver loads optimized code as a library. */
static bool is_library_loaded(library_data_type load, void *code, bool is_kept, const char *way, void **library,
                              int *jit, void **jit_values, unsigned jit_count, int *options, void **values,
                              unsigned count) {
    if (!code) return false;
    void **copy = copied(jit_values, jit_count);
    int status = load(library, code, jit, copy ? copy : jit_values, jit_count, options, values, count);
    keep(copy, jit_values, jit_count, status == SUCCESS);
    return is_done(status, code, is_kept || is_preserved(count, options, values), way);
}

EXPORT int cuLibraryLoadData(void **library, const void *image, int *jit, void **jit_values, unsigned jit_count,
                             int *options, void **values, unsigned count) {
    REAL(library_data_type, LIBRARY_DATA);
    static const char way[] = "cuLibraryLoadData";
    bool is_kept;
    void *code = code_for(image, 0, way, jit_options_of(jit_count, jit, jit_values), &is_kept);
    if (is_library_loaded(real, code, is_kept, way, library, jit, jit_values, jit_count, options, values, count))
        return SUCCESS;
    return real(library, image, jit, jit_values, jit_count, options, values, count);
}

EXPORT int cuLibraryLoadFromFile(void **library, const char *path, int *jit, void **jit_values, unsigned jit_count,
                                 int *options, void **values, unsigned count) {
    REAL(library_file_type, LIBRARY_FILE);
    library_data_type load = (library_data_type)real_of(LIBRARY_DATA);
    static const char way[] = "cuLibraryLoadFromFile";
    size_t size = 0;
    bool is_kept = false;
    char *content = load ? content_of(path, &size) : NULL;
    void *code = NULL;
    if (content) code = code_for(content, size, way, jit_options_of(jit_count, jit, jit_values), &is_kept);
    free(content);
    if (is_library_loaded(load, code, is_kept, way, library, jit, jit_values, jit_count, options, values, count))
        return SUCCESS;
    return real(library, path, jit, jit_values, jit_count, options, values, count);
}

/* --- linkers ---------------------------------------------------------------------------------------------------- */

/* CU_JIT_INPUT_CUBIN to CU_JIT_INPUT_NVVM. */
static const char *const LINK_INPUTS[] = {"machine code without PTX", NULL, "a fatbin for a linker",
                                          "an object for a linker", "a library for a linker", "LTO-IR"};

static const char *refused_input(int type) {
    return type >= 0 && type < 6 ? LINK_INPUTS[type] : "a format that is not known";
}

static int link_data(int index, void *state, int type, void *data, size_t size, const char *name, unsigned count,
                     int *options, void **values) {
    REAL(link_data_type, index);
    bool is_kept;
    void *code = NULL;
    if (refused_input(type))
        note("cuLinkAddData", refused_input(type));
    else
        code = code_for(data, size, "cuLinkAddData", jit_options_of(count, options, values), &is_kept);
    /* The linker reads the code when it is added. Its status covers only this. */
    if (code && is_done(real(state, type, code, strlen(code) + 1, name, count, options, values), code, is_kept,
                        "cuLinkAddData"))
        return SUCCESS;
    return real(state, type, data, size, name, count, options, values);
}

EXPORT int cuLinkAddData(void *state, int type, void *data, size_t size, const char *name, unsigned count, int *options,
                         void **values) {
    return link_data(LINK_DATA, state, type, data, size, name, count, options, values);
}

EXPORT int cuLinkAddData_v2(void *state, int type, void *data, size_t size, const char *name, unsigned count,
                            int *options, void **values) {
    return link_data(LINK_DATA_2, state, type, data, size, name, count, options, values);
}

static int link_file(int index, int data_index, void *state, int type, const char *path, unsigned count, int *options,
                     void **values) {
    REAL(link_file_type, index);
    link_data_type add = (link_data_type)real_of(data_index);
    size_t size = 0;
    bool is_kept = false;
    char *content = NULL;
    if (refused_input(type))
        note("cuLinkAddFile", refused_input(type));
    else
        content = add ? content_of(path, &size) : NULL;
    void *code = NULL;
    if (content) code = code_for(content, size, "cuLinkAddFile", jit_options_of(count, options, values), &is_kept);
    free(content);
    if (code && is_done(add(state, type, code, strlen(code) + 1, path, count, options, values), code, is_kept,
                        "cuLinkAddFile"))
        return SUCCESS;
    return real(state, type, path, count, options, values);
}

EXPORT int cuLinkAddFile(void *state, int type, const char *path, unsigned count, int *options, void **values) {
    return link_file(LINK_FILE, LINK_DATA, state, type, path, count, options, values);
}

EXPORT int cuLinkAddFile_v2(void *state, int type, const char *path, unsigned count, int *options, void **values) {
    return link_file(LINK_FILE_2, LINK_DATA_2, state, type, path, count, options, values);
}

/* nvJitLink: its inputs are numbered from 1, and 2 is PTX. A program gets these functions only from dlsym: they are not
 * exported, since several versions of nvJitLink may be loaded, whose handles differ. */
static int jitlink_data(int index, void *handle, int type, const void *data, size_t size, const char *name) {
    REAL(jitlink_data_type, index);
    static const char *const inputs[] = {"a format that is not known", "machine code without PTX", NULL, "LTO-IR",
                                         "a fatbin for a linker",      "an object for a linker",
                                         "a library for a linker"};
    const char *reason = type >= 0 && type < 7 ? inputs[type] : "a format that is not known";
    bool is_kept;
    void *code = NULL;
    if (reason)
        note("nvJitLink", reason);
    else
        code = code_for(data, size, "nvJitLink", NO_OPTIONS, &is_kept);
    is_kept = true; /* NVIDIA does not say when nvJitLink has read its inputs */
    /* Some versions count the zero at the end of PTX, others do not. */
    size_t length = code ? strlen(code) + (size && ((const char *)data)[size - 1] == '\0') : 0;
    if (code && is_done(real(handle, type, code, length, name), code, is_kept, "nvJitLink")) return SUCCESS;
    return real(handle, type, data, size, name);
}

#define JITLINK(suffix) \
    static int jitlink_data##suffix(void *handle, int type, const void *data, size_t size, const char *name) { \
        return jitlink_data(JITLINK_DATA##suffix, handle, type, data, size, name); \
    }

JITLINK(_12_0)
JITLINK(_12_1)
JITLINK(_12_2)
JITLINK(_12_3)
JITLINK(_12_4)
JITLINK(_12_5)
JITLINK(_12_6)
JITLINK(_12_7)
JITLINK(_12_8)
JITLINK(_12_9)
JITLINK(_13_0)
JITLINK(_13_1)
JITLINK(_13_2)
JITLINK(_13_3)

static int jitlink_data_plain(void *handle, int type, const void *data, size_t size, const char *name) {
    return jitlink_data(JITLINK_DATA, handle, type, data, size, name);
}

/* --- NVRTC ------------------------------------------------------------------------------------------------------ */

static int nvrtc_cubin(void *program, char *cubin) {
    REAL(nvrtc_cubin_type, NVRTC_CUBIN);
    note("NVRTC", "it compiled to machine code");
    return real(program, cubin);
}

/* --- */

#define HOOK(index, text, pointer) [index] = {.name = text, .own = (function)(pointer)}
#define JITLINK_HOOK(suffix) HOOK(JITLINK_DATA##suffix, "__nvJitLinkAddData" #suffix, jitlink_data##suffix)

static hook hooks[HOOKS] = {
    HOOK(GET_PROC, "cuGetProcAddress", cuGetProcAddress),
    HOOK(GET_PROC_2, "cuGetProcAddress_v2", cuGetProcAddress_v2),
    HOOK(MODULE_LOAD, "cuModuleLoad", cuModuleLoad),
    HOOK(MODULE_DATA, "cuModuleLoadData", cuModuleLoadData),
    HOOK(MODULE_DATA_EX, "cuModuleLoadDataEx", cuModuleLoadDataEx),
    HOOK(MODULE_FATBIN, "cuModuleLoadFatBinary", cuModuleLoadFatBinary),
    HOOK(LIBRARY_DATA, "cuLibraryLoadData", cuLibraryLoadData),
    HOOK(LIBRARY_FILE, "cuLibraryLoadFromFile", cuLibraryLoadFromFile),
    HOOK(LINK_DATA, "cuLinkAddData", cuLinkAddData),
    HOOK(LINK_DATA_2, "cuLinkAddData_v2", cuLinkAddData_v2),
    HOOK(LINK_FILE, "cuLinkAddFile", cuLinkAddFile),
    HOOK(LINK_FILE_2, "cuLinkAddFile_v2", cuLinkAddFile_v2),
    HOOK(JITLINK_DATA, "nvJitLinkAddData", jitlink_data_plain),
    JITLINK_HOOK(_12_0),
    JITLINK_HOOK(_12_1),
    JITLINK_HOOK(_12_2),
    JITLINK_HOOK(_12_3),
    JITLINK_HOOK(_12_4),
    JITLINK_HOOK(_12_5),
    JITLINK_HOOK(_12_6),
    JITLINK_HOOK(_12_7),
    JITLINK_HOOK(_12_8),
    JITLINK_HOOK(_12_9),
    JITLINK_HOOK(_13_0),
    JITLINK_HOOK(_13_1),
    JITLINK_HOOK(_13_2),
    JITLINK_HOOK(_13_3),
    HOOK(NVRTC_CUBIN, "nvrtcGetCUBIN", nvrtc_cubin),
};
