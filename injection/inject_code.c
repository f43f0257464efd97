/* Code that a program loads: it is sent to the process `ptxmotion run`, or left as it is with a note in the log. */
#include "ptxmotion_inject.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_DEVICES = 8 };
enum { KIND_PTX = 1, KIND_FATBIN = 2 };

static const uint32_t WRAPPER_MAGIC = 0x466243b1, FATBIN_MAGIC = 0xba55ed50, ELF_MAGIC = 0x464c457f;

/* --- the log ---------------------------------------------------------------------------------------------------- */

void note(const char *way, const char *reason) {
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
    void *library = loaded_driver();
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

/* How long to wait for the other process: its own time limit, and a minute in which it can stop. */
static struct timeval time_limit(void) {
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
    struct timeval limit = time_limit();
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

/* Code that a program loads. `wrap` is the structure around a fatbin. `text` is a copy of PTX, which is freed. If
 * `reason` is not NULL, the code is left as it is. */
typedef struct {
    uint32_t kind;
    const void *data;
    size_t size;
    const wrapper *wrap;
    char *text;
    const char *reason;
} given_code;

/* A fatbin with `size` bytes; 0 if the size is not known. */
static void read_fatbin(given_code *given, const fatbin *fat, size_t size, const devices *known) {
    given->kind = KIND_FATBIN;
    given->data = fat;
    given->size = fat->head + fat->size;
    if (size && given->size > size)
        given->reason = "a fatbin that is cut short";
    else if (has_ptx(fat, known, &given->reason))
        given->reason = NULL;
}

/* PTX ends with a zero, which a buffer with a size may lack. */
static void read_text(given_code *given, const void *image, size_t size) {
    given->kind = KIND_PTX;
    given->text = size ? strndup(image, size) : NULL;
    given->data = size ? given->text : image;
    given->size = given->data ? strlen(given->data) : 0;
    if (!given->data || !is_ptx(given->data)) given->reason = "a format that is not known";
}

/* Whether code begins with these bytes. It may be a text that is shorter. */
static bool begins_with(const void *code, size_t size, uint32_t magic) {
    if (size && size < sizeof(fatbin)) return false;
    for (unsigned index = 0; index < sizeof magic; ++index)
        if (((const unsigned char *)code)[index] != (magic >> 8 * index & 0xff)) return false;
    return true;
}

static given_code read_code(const void *image, size_t size, const devices *known) {
    given_code given = {0};
    if (begins_with(image, size, WRAPPER_MAGIC)) {
        given.wrap = image;
        if (given.wrap->data && begins_with(given.wrap->data, 0, FATBIN_MAGIC))
            read_fatbin(&given, given.wrap->data, 0, known);
        else
            given.reason = "a format that is not known";
    } else if (begins_with(image, size, FATBIN_MAGIC)) {
        read_fatbin(&given, image, size, known);
    } else if (begins_with(image, size, ELF_MAGIC)) {
        given.reason = "machine code without PTX";
    } else {
        read_text(&given, image, size);
    }
    return given;
}

/* The structure of the CUDA runtime around another fatbin, which it owns; NULL if there is no memory. */
static wrapper *wrapped(const wrapper *old, void *code) {
    wrapper *copy = malloc(sizeof *copy);
    if (copy) {
        *copy = *old;
        copy->data = code;
    } else {
        free(code);
    }
    return copy;
}

void *code_for(const void *image, size_t size, const char *way, jit_options options, bool *is_kept) {
    *is_kept = false;
    if (!is_active() || !image) return NULL;
    int saved = errno;
    devices known = all_devices();
    given_code given = read_code(image, size, &known);
    if (!given.reason && !known.count) given.reason = "the driver names no device";
    if (!given.reason && options.is_debug) given.reason = "it is for a debugger";
    void *result = NULL;
    if (given.reason) {
        note(way, given.reason);
    } else {
        request_head head = {.kind = given.kind, .max_registers = options.max_registers, .level = options.level};
        head.driver_version = (uint32_t)known.driver_version;
        snprintf(head.way, sizeof head.way, "%s", way);
        head.target_count = known.count;
        memcpy(head.targets, known.targets, sizeof head.targets);
        head.size = given.size;
        result = optimized(&head, given.data, &given.size);
    }
    free(given.text);
    if (result && given.wrap) {
        result = wrapped(given.wrap, result);
        *is_kept = true;
    }
    errno = saved;
    return result;
}

char *content_of(const char *path, size_t *size) {
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
