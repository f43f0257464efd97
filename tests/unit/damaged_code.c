/* Reads damaged code as `ptxmotion run` reads what a program loads, for a test with the sanitizers of the compiler.
 *
 * Arguments: a folder for the log, and a file with cases: a size of 4 bytes, and so many bytes of code. It prints the
 * number of cases. The functions of `inject_symbols.c` are those of the test: the driver is this program. */
#include "ptxmotion_inject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char run_folder[4096];

bool is_active(void) { return true; }

function function_of(void *pointer) {
    function result;
    memcpy(&result, &pointer, sizeof result);
    return result;
}

void *(*real_dlsym(void))(void *, const char *) { return dlsym; }
void *loaded_driver(void) { return dlopen(NULL, RTLD_LAZY); }

EXPORT int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
EXPORT int cuDeviceGetCount(int *count) { return *count = 1, 0; }
EXPORT int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    return *value = attribute == 75 ? 9 : 0, device;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    snprintf(run_folder, sizeof run_folder, "%s", arguments[1]);
    FILE *file = fopen(arguments[2], "rb");
    uint32_t size;
    int cases = 0;
    while (file && fread(&size, sizeof size, 1, file) == 1) {
        char *code = malloc(size + 1);
        if (!code || fread(code, 1, size, file) != size) return 3;
        code[size] = '\0';
        bool is_kept;
        free(code_for(code, size, "test", (jit_options){.level = 4}, &is_kept));
        free(code);
        ++cases;
    }
    printf("%d\n", cases);
    return 0;
}
