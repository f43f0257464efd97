/* How programs find the functions of the driver: dlsym, and the table of the functions that are replaced. */
#include "ptxmotion_inject.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

char run_folder[4096];

__attribute__((constructor)) static void read_environment(void) {
    const char *value = getenv("PTXMOTION_RUN");
    if (value && strlen(value) < sizeof run_folder) strcpy(run_folder, value);
}

bool is_active(void) {
    return run_folder[0] != '\0';
}

/* A function pointer as a data pointer, and back: dlsym and cuGetProcAddress mix them. */
static void *data_of(function pointer) {
    void *result;
    memcpy(&result, &pointer, sizeof result);
    return result;
}

function function_of(void *pointer) {
    function result;
    memcpy(&result, &pointer, sizeof result);
    return result;
}

void *(*real_dlsym(void))(void *, const char *) {
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

hook *hook_named(const char *name) {
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

void *replaced(hook *found, void *real) {
    if (real == data_of(found->own)) return real;
    function none = NULL, pointer = function_of(real);
    if (atomic_compare_exchange_strong(&found->real, &none, pointer)) return data_of(found->own);
    return none == pointer || library_of(none) == library_of(pointer) ? data_of(found->own) : real;
}

void *loaded_driver(void) {
    return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
}

function real_of(int index) {
    function result = hooks[index].real;
    if (result) return result;
    void *found = next_symbol(hooks[index].name);
    if (!found) {
        void *library = loaded_driver();
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
