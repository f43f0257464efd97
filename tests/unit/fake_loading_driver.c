/* A driver for the tests of `ptxmotion run`: libcuda.so.1, libnvJitLink.so.13 and libnvrtc.so.13 in one file.
 *
 * It runs nothing. Each function that gets code writes it to a file NUMBER.FUNCTION in the folder FAKE_CUDA_OUT. Code
 * that contains the text in FAKE_CUDA_REFUSES gets an error. FAKE_CUDA_TARGETS has the targets of the devices, as in
 * "90,80". */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t magic, version;
    const unsigned char *data;
    void *other;
} wrapper;

static int targets(int *found) {
    const char *at = getenv("FAKE_CUDA_TARGETS");
    int count = 0;
    for (at = at ? at : "90"; *at && count < 8; at += strcspn(at, ","), at += *at == ',') found[count++] = atoi(at);
    return count;
}

/* Write code to a file; the status for the program. */
static int record(const char *function, const void *image, size_t size) {
    static atomic_int number;
    uint32_t magic;
    memcpy(&magic, image, 4);
    if (magic == 0x466243b1) {
        image = ((const wrapper *)image)->data;
        memcpy(&magic, image, 4);
    }
    if (!size && magic == 0xba55ed50) {
        uint64_t rest;
        memcpy(&rest, (const char *)image + 8, 8);
        size = 16 + rest;
    }
    if (!size) size = magic == 0x464c457f ? 64 : strlen(image);
    char path[1000];
    snprintf(path, sizeof path, "%s/%03d.%s", getenv("FAKE_CUDA_OUT"), atomic_fetch_add(&number, 1), function);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(image, 1, size, file) != size || fclose(file)) abort();
    const char *refused = getenv("FAKE_CUDA_REFUSES");
    return refused && memmem(image, size, refused, strlen(refused)) ? 218 : 0;
}

int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int *version) {
    const char *text = getenv("FAKE_CUDA_VERSION");
    *version = text ? atoi(text) : 13000;
    return 0;
}
int cuDeviceGetCount(int *count) {
    int found[8];
    *count = targets(found);
    return 0;
}
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    int found[8];
    if (device >= targets(found)) return 101;
    *value = attribute == 75 ? found[device] / 10 : attribute == 76 ? found[device] % 10 : 0;
    return 0;
}

int cuModuleLoadData(void **module, const void *image) { *module = NULL; return record("cuModuleLoadData", image, 0); }
int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    *module = NULL;
    return record("cuModuleLoadDataEx", image, 0);
}
int cuModuleLoadFatBinary(void **module, const void *image) {
    *module = NULL;
    return record("cuModuleLoadFatBinary", image, 0);
}
int cuModuleLoad(void **module, const char *path) { *module = NULL; return record("cuModuleLoad", path, 0); }
int cuLibraryLoadData(void **library, const void *image, int *jit, void **jit_values, unsigned jit_count, int *options,
                      void **values, unsigned count) {
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    *library = NULL;
    return record("cuLibraryLoadData", image, 0);
}
int cuLibraryLoadFromFile(void **library, const char *path, int *jit, void **jit_values, unsigned jit_count,
                          int *options, void **values, unsigned count) {
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    *library = NULL;
    return record("cuLibraryLoadFromFile", path, 0);
}
int cuLinkAddData_v2(void *state, int type, void *data, size_t size, const char *name, unsigned count, int *options,
                     void **values) {
    (void)state, (void)type, (void)name, (void)count, (void)options, (void)values;
    return record("cuLinkAddData", data, size);
}
int cuLinkAddFile_v2(void *state, int type, const char *path, unsigned count, int *options, void **values) {
    (void)state, (void)type, (void)count, (void)options, (void)values;
    return record("cuLinkAddFile", path, 0);
}
int nvJitLinkAddData(void *handle, int type, const void *data, size_t size, const char *name) {
    (void)handle, (void)type, (void)name;
    return record("nvJitLinkAddData", data, size);
}
int __nvJitLinkAddData_13_0(void *handle, int type, const void *data, size_t size, const char *name) {
    (void)handle, (void)type, (void)name;
    return record("nvJitLinkAddData_13_0", data, size);
}
int nvrtcGetCUBIN(void *program, char *cubin) {
    (void)program;
    memcpy(cubin, "\x7f" "ELF", 4);
    return 0;
}

int cuGetProcAddress(const char *symbol, void **result, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *symbol, void **result, int version, uint64_t flags, int *found);

/* The names that cuGetProcAddress knows, and the functions of the newest version. It does not look them up by dlsym. */
static const struct {
    const char *name;
    void *function;
} functions[] = {
    {"cuModuleLoad", (void *)cuModuleLoad},
    {"cuModuleLoadData", (void *)cuModuleLoadData},
    {"cuModuleLoadDataEx", (void *)cuModuleLoadDataEx},
    {"cuModuleLoadFatBinary", (void *)cuModuleLoadFatBinary},
    {"cuLibraryLoadData", (void *)cuLibraryLoadData},
    {"cuLibraryLoadFromFile", (void *)cuLibraryLoadFromFile},
    {"cuLinkAddData", (void *)cuLinkAddData_v2},
    {"cuLinkAddFile", (void *)cuLinkAddFile_v2},
    {"cuInit", (void *)cuInit},
};

int cuGetProcAddress_v2(const char *symbol, void **result, int version, uint64_t flags, int *found) {
    (void)flags;
    *result = NULL;
    for (size_t index = 0; index < sizeof functions / sizeof *functions; ++index)
        if (!strcmp(functions[index].name, symbol)) *result = functions[index].function;
    if (!strcmp(symbol, "cuGetProcAddress"))
        *result = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
    if (found) *found = *result ? 0 : 1;
    return *result ? 0 : 500;
}

int cuGetProcAddress(const char *symbol, void **result, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, result, version, flags, NULL);
}
