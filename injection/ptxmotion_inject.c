/* The library that `ptxmotion run` loads into a program with LD_PRELOAD.
 *
 * It replaces the functions of the CUDA driver, nvJitLink and NVRTC that get device code. PTX, alone or in a
 * fatbin, is sent to the process `ptxmotion run`, which answers with optimized code. The driver gets this code; if
 * there is none, or the driver refuses it, the driver gets the code of the program.
 *
 * A program reaches these functions in three ways, and each gives it a function of this library:
 * - the dynamic linker binds its symbols, and finds those of this library first;
 * - it calls dlsym: see the assembly in `inject_symbols.c`;
 * - it calls cuGetProcAddress, as the CUDA runtime does.
 *
 * Environment: PTXMOTION_RUN is a folder with `socket`, where the process listens, and `log`, to which this library
 * appends a line of JSON for code that it leaves as it is. Without the variable each function only calls the real one.
 *
 * Guarantees: if the other process or this library fails, the driver gets the program's own code. No signal
 * is raised, no descriptor is inherited by other programs, and errno does not change.
 * Requires: Linux on x86-64 with glibc, and a program that is linked dynamically.
 */
#include "ptxmotion_inject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND */
#define NO_SYMBOL 302

/* Of the options of the driver's compiler, those that the optimizer has to know. */
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

/* The driver writes into the values of options, such as the length of a log. So the first attempt gets a copy of them.
 * If it was the last attempt, `write_back` copies them to the values. A copy may be NULL: then the driver gets the
 * values themselves. */
static void **copied(void **values, unsigned count) {
    void **copy = values && count ? malloc(count * sizeof *copy) : NULL;
    if (copy) memcpy(copy, values, count * sizeof *copy);
    return copy;
}

static void write_back(void **copy, void **values, unsigned count, bool is_last) {
    if (copy && is_last) memcpy(values, copy, count * sizeof *copy);
    free(copy);
}

/* After the driver has got optimized code: free the code, unless it is kept, and log if the driver refuses it. Returns
 * whether it was loaded. */
static bool finish_load(int status, void *code, bool is_kept, const char *way) {
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

/* Replace the function that cuGetProcAddress has found for a name and a version of CUDA. The name has no suffix `_v2`.
 * From CUDA 12.0 and 6.5 on, it means the functions with this suffix. */
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
    if (code && finish_load(load(module, code), code, is_kept, "cuModuleLoad")) return SUCCESS;
    return real(module, path);
}

EXPORT int cuModuleLoadData(void **module, const void *image) {
    REAL(module_data_type, MODULE_DATA);
    bool is_kept;
    void *code = code_for(image, 0, "cuModuleLoadData", NO_OPTIONS, &is_kept);
    if (code && finish_load(real(module, code), code, is_kept, "cuModuleLoadData")) return SUCCESS;
    return real(module, image);
}

EXPORT int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
    REAL(module_data_ex_type, MODULE_DATA_EX);
    bool is_kept;
    void *code = code_for(image, 0, "cuModuleLoadDataEx", jit_options_of(count, options, values), &is_kept);
    if (code) {
        void **copy = copied(values, count);
        int status = real(module, code, count, options, copy ? copy : values);
        write_back(copy, values, count, status == SUCCESS);
        if (finish_load(status, code, is_kept, "cuModuleLoadDataEx")) return SUCCESS;
    }
    return real(module, image, count, options, values);
}

EXPORT int cuModuleLoadFatBinary(void **module, const void *image) {
    REAL(module_data_type, MODULE_FATBIN);
    bool is_kept;
    void *code = code_for(image, 0, "cuModuleLoadFatBinary", NO_OPTIONS, &is_kept);
    if (code && finish_load(real(module, code), code, is_kept, "cuModuleLoadFatBinary")) return SUCCESS;
    return real(module, image);
}

/* CU_LIBRARY_BINARY_IS_PRESERVED: the driver reads the code also after it has returned. */
static bool is_preserved(unsigned count, const int *options, void *const *values) {
    for (unsigned index = 0; options && values && index < count; ++index)
        if (options[index] == 1 && values[index]) return true;
    return false;
}

/* Load optimized code as a library. Returns whether the driver has loaded it. */
static bool load_library(library_data_type load, void *code, bool is_kept, const char *way, void **library, int *jit,
                         void **jit_values, unsigned jit_count, int *options, void **values, unsigned count) {
    if (!code) return false;
    void **copy = copied(jit_values, jit_count);
    int status = load(library, code, jit, copy ? copy : jit_values, jit_count, options, values, count);
    write_back(copy, jit_values, jit_count, status == SUCCESS);
    return finish_load(status, code, is_kept || is_preserved(count, options, values), way);
}

EXPORT int cuLibraryLoadData(void **library, const void *image, int *jit, void **jit_values, unsigned jit_count,
                             int *options, void **values, unsigned count) {
    REAL(library_data_type, LIBRARY_DATA);
    static const char way[] = "cuLibraryLoadData";
    bool is_kept;
    void *code = code_for(image, 0, way, jit_options_of(jit_count, jit, jit_values), &is_kept);
    if (load_library(real, code, is_kept, way, library, jit, jit_values, jit_count, options, values, count))
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
    if (load_library(load, code, is_kept, way, library, jit, jit_values, jit_count, options, values, count))
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
    if (code && finish_load(real(state, type, code, strlen(code) + 1, name, count, options, values), code, is_kept,
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
    if (code && finish_load(add(state, type, code, strlen(code) + 1, path, count, options, values), code, is_kept,
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
    is_kept = true; /* it is not documented until when nvJitLink reads its inputs */
    /* Some versions count the zero at the end of PTX, others do not. */
    size_t length = code ? strlen(code) + (size && ((const char *)data)[size - 1] == '\0') : 0;
    if (code && finish_load(real(handle, type, code, length, name), code, is_kept, "nvJitLink")) return SUCCESS;
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

hook hooks[HOOKS] = {
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
