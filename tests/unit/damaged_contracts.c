/* Binds every contract of a file and decides launches of all its kernels, with arguments of random bytes.
 *
 * damaged_contracts FILE: the file has for each contract its size (4 bytes) and its bytes. The driver is made of
 * functions here. Prints how many contracts were bound. Compiled with sanitizers, it ends with an error if the library
 * reads or writes outside of its memory, or computes something that C leaves undefined.
 */
#include "ptxmotion_launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As many bytes as a kernel has in parameters: 65,535 behind the offset 65,535. */
static unsigned char memory[1 << 17];

static int fails(void)
{
    return 1;
}

static int get_attributes(unsigned count, int *attributes, void **values, uint64_t pointer)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = attributes[i] == 10 ? 1 : attributes[i] == 11 ? pointer & ~63ull : attributes[i] == 12 ? 64 : 0;
        memcpy(values[i], &value, sizeof value);
    }
    return 0;
}

static int not_capturing(void *stream, int *status)
{
    (void)stream;
    *status = 0;
    return 0;
}

static int get_function(void **function, void *module, const char *name)
{
    (void)module;
    *function = (void *)name;
    return strlen(name) > 60000; /* reads all of the name */
}

static int launch(const ptxmotion_config *config, void *function, void **arguments, void **extra)
{
    (void)extra;
    return config->grid[0] == 0 || function == NULL || arguments == NULL;
}

static int get_number(int *value, int attribute, void *function)
{
    (void)function;
    *value = attribute == 11 ? 0 : 100000;
    return 0;
}

static int set_number(void *function, int attribute, int value)
{
    return function == NULL || attribute < 0 || value < 0;
}

static int occupancy(int *blocks, void *function, int threads, size_t shared)
{
    *blocks = function != NULL && threads > 0 && shared < 100000 ? 4 : 0;
    return 0;
}

static int zero(int *value)
{
    *value = 1;
    return 0;
}

static int device_attribute(int *value, int attribute, int device)
{
    *value = attribute + device < 1000 ? 1024 : 1;
    return 0;
}

/* The parameters of the kernels of tests/property/random_contracts.py, and no further ones. */
static int parameter_info(void *function, size_t index, size_t *offset, size_t *size)
{
    static const size_t parameters[][2] = {{0, 8},  {8, 8},  {16, 4}, {20, 4}, {24, 1},
                                           {26, 2}, {28, 4}, {32, 8}, {40, 8}, {48, 24}};
    (void)function;
    if (index >= sizeof parameters / sizeof *parameters)
        return 1;
    *offset = parameters[index][0];
    *size = parameters[index][1];
    return 0;
}

int main(int count, char **names)
{
    FILE *file = count == 2 ? fopen(names[1], "rb") : NULL;
    if (file == NULL)
        return 2;
    ptxmotion_driver driver;
    memset(&driver, 0, sizeof driver);
    driver.mem_get_address_range = (int (*)(uint64_t *, size_t *, uint64_t))(void *)fails;
    driver.pointer_get_attributes = get_attributes;
    driver.stream_is_capturing = not_capturing;
    driver.launch_kernel_ex = launch;
    driver.module_get_function = get_function;
    driver.func_get_attribute = get_number;
    driver.func_set_attribute = set_number;
    driver.func_get_param_info = parameter_info;
    driver.occupancy = occupancy;
    driver.ctx_get_device = zero;
    driver.device_get_attribute = device_attribute;
    driver.device_get_count = zero;
    unsigned size, all = 0, bound = 0;
    srand(1);
    while (fread(&size, sizeof size, 1, file) == 1) {
        unsigned char *bytes = malloc(size ? size : 1); /* of the exact size, so that a read behind it is seen */
        if (bytes == NULL || fread(bytes, 1, size, file) != size)
            return 2;
        ptxmotion_module *module;
        int status = ptxmotion_bind_module(&driver, bytes, size, (void *)1, &module);
        free(bytes);
        all++;
        if (status != PTXMOTION_OK)
            continue;
        bound++;
        ptxmotion_kernel *kernel = ptxmotion_find(module, "k");
        for (int i = 0; i < 8 && kernel != NULL; i++) {
            /* The parameters of an undamaged kernel have 72 bytes. */
            for (size_t j = 0; j < 80; j++)
                memory[j] = (unsigned char)(i == 0 ? 0 : i == 1 ? 255 : rand() >> 7);
            ptxmotion_config config = {{1 + i % 3, 1, 1}, {32, 1, 1}, 0, NULL, NULL, 0};
            ptxmotion_launch_packed(kernel, &config, memory, NULL, (uint32_t)(i % 4 == 3 ? PTXMOTION_ALWAYS_PREFER : 0));
        }
        ptxmotion_counts counts[4];
        if (kernel != NULL)
            ptxmotion_statistics(kernel, counts, 4);
        ptxmotion_unload(module);
    }
    fclose(file);
    printf("%u of %u contracts were bound\n", bound, all);
    return 0;
}
