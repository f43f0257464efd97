/* What the files of the library of `ptxmotion run` share. `ptxmotion_inject.c` describes the library. */
#ifndef PTXMOTION_INJECT_H
#define PTXMOTION_INJECT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__x86_64__) || !defined(__linux__) || !defined(__GLIBC__)
#error "this library is for Linux on x86-64 with glibc"
#endif

/* Everything is hidden, except for what the dynamic linker is to find in place of the functions of the driver. */
#define EXPORT __attribute__((visibility("default")))
#define HIDDEN __attribute__((visibility("hidden")))
#define SUCCESS 0

/* --- inject_symbols.c: how programs find functions -------------------------------------------------------------- */

/* The numbers of the functions that are replaced. */
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

/* The table is in `ptxmotion_inject.c`. */
extern HIDDEN hook hooks[HOOKS];

/* The value of PTXMOTION_RUN when the library was loaded; empty if there was none. A program may change its environment
 * in one thread while another one loads code. */
extern HIDDEN char run_folder[4096];

/* Whether `ptxmotion run` has started the program. Otherwise each function only calls the real one. */
HIDDEN bool is_active(void);

HIDDEN function function_of(void *pointer);
HIDDEN void *(*real_dlsym(void))(void *, const char *);
HIDDEN hook *hook_named(const char *name);

/* What a program gets if it has looked up the function `real`: the function of this library, or `real` itself. */
HIDDEN void *replaced(hook *found, void *real);

/* The driver, if it is loaded. The caller closes it. */
HIDDEN void *loaded_driver(void);

/* The real function, also for a program that was linked with the driver and has looked up nothing. NULL if there is
 * none. */
HIDDEN function real_of(int index);

/* --- inject_code.c: code for the driver ------------------------------------------------------------------------- */

/* Options of the driver's compiler that the optimizer has to know. */
typedef struct {
    uint32_t max_registers, level;
    bool is_debug;
} jit_options;

/* Append a line to the log that says that code was left as it is. `reason` has no characters that JSON quotes. */
HIDDEN void note(const char *way, const char *reason);

/* Code for the driver in place of `image`, NULL if there is none. `is_kept`: the driver may read it at any time, and
 * it must not be freed. `size` is that of the image, or 0 if the image itself says where it ends. */
HIDDEN void *code_for(const void *image, size_t size, const char *way, jit_options options, bool *is_kept);

/* A file with device code, followed by a zero; NULL if it cannot be read. */
HIDDEN char *content_of(const char *path, size_t *size);

#endif
