/* A program for the tests of `ptxmotion run`: it loads a file with device code and prints the status.
 *
 * Arguments: HOW the function is found (linked, dlsym, default, old-getproc, getproc, getproc-twice), the FUNCTION,
 * the FILE, and `wrapped` for a fatbin in the structure of the CUDA runtime. It is linked with the driver, except with
 * -DNOT_LINKED. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*find_function)(const char *, void **, int, uint64_t);
typedef int (*find_function_2)(const char *, void **, int, uint64_t, int *);

#ifndef NOT_LINKED
int cuModuleLoad(void **, const char *);
int cuModuleLoadData(void **, const void *);
int cuModuleLoadDataEx(void **, const void *, unsigned, int *, void **);
int cuModuleLoadFatBinary(void **, const void *);
int cuLibraryLoadData(void **, const void *, int *, void **, unsigned, int *, void **, unsigned);
int cuLibraryLoadFromFile(void **, const char *, int *, void **, unsigned, int *, void **, unsigned);
int cuLinkAddData_v2(void *, int, void *, size_t, const char *, unsigned, int *, void **);
int cuLinkAddFile_v2(void *, int, const char *, unsigned, int *, void **);
static const struct {
    const char *name;
    void *function;
} linked[] = {
    {"cuModuleLoad", (void *)cuModuleLoad},
    {"cuModuleLoadData", (void *)cuModuleLoadData},
    {"cuModuleLoadDataEx", (void *)cuModuleLoadDataEx},
    {"cuModuleLoadFatBinary", (void *)cuModuleLoadFatBinary},
    {"cuLibraryLoadData", (void *)cuLibraryLoadData},
    {"cuLibraryLoadFromFile", (void *)cuLibraryLoadFromFile},
    {"cuLinkAddData_v2", (void *)cuLinkAddData_v2},
    {"cuLinkAddFile_v2", (void *)cuLinkAddFile_v2},
};
#endif

static void fail(const char *what) {
    fprintf(stderr, "load_code: %s\n", what);
    exit(2);
}

static void *opened(const char *name) {
    void *library = dlopen(name, RTLD_NOW);
    if (!library) fail(dlerror());
    return library;
}

static void *found(const char *how, const char *name) {
    void *result = NULL;
    int status;
#ifndef NOT_LINKED
    for (size_t index = 0; index < sizeof linked / sizeof *linked; ++index)
        if (!strcmp(how, "linked") && !strcmp(linked[index].name, name)) return linked[index].function;
#endif
    if (!strcmp(how, "dlsym")) {
        const char *library = strstr(name, "JitLink") ? "libnvJitLink.so.13"
                              : !strncmp(name, "nvrtc", 5) ? "libnvrtc.so.13" : "libcuda.so.1";
        return dlsym(opened(library), name);
    }
    if (!strcmp(how, "default")) return dlsym(RTLD_DEFAULT, name);
    void *driver = opened("libcuda.so.1");
    char plain[100];
    snprintf(plain, sizeof plain, "%.*s", (int)(strlen(name) - (strstr(name, "_v2") ? 3 : 0)), name);
    if (!strcmp(how, "old-getproc")) {
        find_function find = (find_function)dlsym(driver, "cuGetProcAddress");
        if (find(plain, &result, 11030, 0)) fail("cuGetProcAddress");
    } else if (!strncmp(how, "getproc", 7)) {
        find_function_2 find = (find_function_2)dlsym(driver, "cuGetProcAddress_v2");
        if (!strcmp(how, "getproc-twice")) {
            if (find("cuGetProcAddress", &result, 13000, 0, &status)) fail("cuGetProcAddress");
            find = (find_function_2)result;
        }
        if (find(plain, &result, 13000, 0, &status)) fail("cuGetProcAddress_v2");
    }
    return result;
}

int main(int count, char **arguments) {
    if (count < 4) fail("HOW FUNCTION FILE [wrapped]");
    const char *name = arguments[2], *path = arguments[3];
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    char *code = calloc(1, 1 << 22);
    size_t size = fread(code, 1, (1 << 22) - 1, file);
    fclose(file);
    struct {
        uint32_t magic, version;
        const void *data;
        void *other;
    } wrapper = {0x466243b1, 1, code, NULL};
    void *image = count > 4 && !strcmp(arguments[4], "wrapped") ? (void *)&wrapper : code, *handle;
    void *function = found(arguments[1], name);
    if (!function) fail("the function is not found");
    int status = -1;
    if (!strcmp(name, "cuModuleLoad"))
        status = ((int (*)(void **, const char *))function)(&handle, path);
    else if (!strcmp(name, "cuModuleLoadData") || !strcmp(name, "cuModuleLoadFatBinary"))
        status = ((int (*)(void **, const void *))function)(&handle, image);
    else if (!strcmp(name, "cuModuleLoadDataEx"))
        status = ((int (*)(void **, const void *, unsigned, int *, void **))function)(&handle, image, 0, NULL, NULL);
    else if (!strcmp(name, "cuLibraryLoadData"))
        status = ((int (*)(void **, const void *, int *, void **, unsigned, int *, void **, unsigned))function)(
            &handle, image, NULL, NULL, 0, NULL, NULL, 0);
    else if (!strcmp(name, "cuLibraryLoadFromFile"))
        status = ((int (*)(void **, const char *, int *, void **, unsigned, int *, void **, unsigned))function)(
            &handle, path, NULL, NULL, 0, NULL, NULL, 0);
    else if (!strcmp(name, "cuLinkAddData_v2"))
        status = ((int (*)(void *, int, void *, size_t, const char *, unsigned, int *, void **))function)(
            NULL, 1, code, size, "a.ptx", 0, NULL, NULL);
    else if (!strcmp(name, "cuLinkAddFile_v2"))
        status = ((int (*)(void *, int, const char *, unsigned, int *, void **))function)(NULL, 1, path, 0, NULL, NULL);
    else if (strstr(name, "nvJitLinkAddData"))
        status = ((int (*)(void *, int, const void *, size_t, const char *))function)(NULL, 2, code, size, "a.ptx");
    else if (!strcmp(name, "nvrtcGetCUBIN"))
        status = ((int (*)(void *, char *))function)(NULL, code);
    printf("status %d\n", status);
    return status != 0;
}
