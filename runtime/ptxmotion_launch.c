/* Launches of kernels under a launch contract. The header has the interface, contract/bytecode.py the format of the
 * bytes, docs/contracts.md the rules.
 *
 * Requires: a 64-bit target with gcc or clang (__int128, __atomic), and a little-endian one.
 * Guarantees: the bytes are checked when they are bound (bounds, opcodes, jumps, depth of the stack), so that an
 * evaluation needs no checks of its own, and damaged bytes cannot make it read or write outside.
 * What is shared by threads is constant after binding, except counters and the list of occupancies. Both are changed
 * with atomic operations, and an element of the list is never removed before the module is.
 */
#define _GNU_SOURCE
#include "ptxmotion_launch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef __int128 wide;

/* A launch whose decision is remembered executes little code, which is kept together: after the work of the driver for the
 * launch before, it has to be fetched again. What it does not execute is in functions of their own. */
#define SEPARATE __attribute__((noinline))

#define LIMIT ((wide)1 << 64)
#define STACK 64
#define MAX_EXTENTS 64
#define MAX_EXTRA 64
/* Different ranges of a kernel whose addresses are computed once in a launch. Further ones are computed at each use. */
#define MAX_RANGES 32
/* Different expressions of a kernel that are evaluated once in a launch. Further ones are evaluated at each use. */
#define MAX_VALUES 64
#define MAX_PARAMETERS 4096
/* Occupancies that are kept for a kernel, since its attributes were changed last and in all. The driver computes others
 * at each launch. */
#define MAX_SHAPES 64
#define MAX_ALL_SHAPES 1024
#define BYTECODE_VERSION 2
/* Decisions that a thread remembers, and how much of a launch may be remembered: the bytes of the arguments that
 * conditions read, in words of 8 bytes, versions, and extents. */
#define MEMOS 16
#define MEMO_WORDS 16
#define MEMO_VERSIONS 14
#define MEMO_EXTENTS 8
#define MEMO_PAIRS 16

/* --- the driver ------------------------------------------------------------------------------------------------- */

enum {
    CAPTURE_NONE = 0,
    DEVICE_MAX_BLOCK_X = 2,
    DEVICE_MAX_GRID_X = 5,
    DEVICE_MULTIPROCESSORS = 16,
    FUNCTION_MAX_THREADS = 0,
    FUNCTION_MAX_DYNAMIC_SHARED = 8,
    FUNCTION_CLUSTER_WIDTH = 11,
    POINTER_BUFFER_ID = 7,
    POINTER_MANAGED = 8,
    POINTER_ORDINAL = 9,
    POINTER_LEGACY_IPC = 10,
    POINTER_RANGE_START = 11,
    POINTER_RANGE_SIZE = 12,
    POINTER_HANDLE_TYPES = 14,
    POINTER_MEMPOOL = 17,
    LAUNCH_CLUSTER = 4,
    LAUNCH_PREFERRED_CLUSTER = 11,
    LAUNCH_UPDATABLE = 13,
    LEGACY_STREAM = 1 /* CU_STREAM_LEGACY */
};

/* Attributes of a function that the program may set, in the order in which they are copied: the limit of dynamic shared
 * memory, the carveout, the size of clusters, whether it may be larger than portable, and how they are scheduled. */
static const int copied_attributes[] = {FUNCTION_MAX_DYNAMIC_SHARED, 9, FUNCTION_CLUSTER_WIDTH, 12, 13, 14, 15};

/* CUlaunchAttribute of cuda.h. */
struct launch_attribute {
    int id;
    char padding[4];
    union {
        char bytes[64];
        int number;
    } value;
};

static ptxmotion_driver libcuda;
static const char *libcuda_missing;
static pthread_once_t libcuda_once = PTHREAD_ONCE_INIT;

static void load_libcuda(void)
{
    static const struct {
        const char *name;
        size_t offset;
        int optional;
    } functions[] = {
#define FUNCTION(name, member) {name, offsetof(ptxmotion_driver, member), 0}
#define OPTIONAL(name, member) {name, offsetof(ptxmotion_driver, member), 1}
        FUNCTION("cuMemGetAddressRange_v2", mem_get_address_range),
        FUNCTION("cuPointerGetAttributes", pointer_get_attributes),
        FUNCTION("cuStreamIsCapturing", stream_is_capturing),
        FUNCTION("cuLaunchKernelEx", launch_kernel_ex),
        FUNCTION("cuModuleGetFunction", module_get_function),
        FUNCTION("cuFuncGetAttribute", func_get_attribute),
        FUNCTION("cuFuncSetAttribute", func_set_attribute),
        FUNCTION("cuFuncGetParamInfo", func_get_param_info),
        FUNCTION("cuOccupancyMaxActiveBlocksPerMultiprocessor", occupancy),
        FUNCTION("cuCtxGetCurrent", ctx_get_current),
        FUNCTION("cuCtxGetDevice", ctx_get_device),
        FUNCTION("cuDeviceGetAttribute", device_get_attribute),
        FUNCTION("cuDeviceGetCount", device_get_count),
        OPTIONAL("cuLibraryGetKernel", library_get_kernel),
        OPTIONAL("cuKernelGetFunction", kernel_get_function),
        OPTIONAL("cuKernelGetLibrary", kernel_get_library),
        OPTIONAL("cuStreamGetGreenCtx", stream_get_green_context),
        OPTIONAL("cuFuncLoad", func_load),
        OPTIONAL("cuModuleGetLoadingMode", module_get_loading_mode),
        OPTIONAL("cuThreadExchangeStreamCaptureMode", thread_exchange_stream_capture_mode),
        OPTIONAL("cuDeviceGetName", device_get_name),
#undef FUNCTION
#undef OPTIONAL
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        libcuda_missing = "libcuda.so.1";
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(library, functions[i].name);
        if (found == NULL && !functions[i].optional)
            libcuda_missing = functions[i].name;
        memcpy((char *)&libcuda + functions[i].offset, &found, sizeof found);
    }
}

const ptxmotion_driver *ptxmotion_libcuda(const char **missing)
{
    pthread_once(&libcuda_once, load_libcuda);
    if (missing != NULL)
        *missing = libcuda_missing;
    return libcuda_missing == NULL ? &libcuda : NULL;
}

/* --- decoded contracts ------------------------------------------------------------------------------------------ */

enum { INSIDE = 1, DISJOINT = 2, HOLDS = 3 };
enum { OTHER = 0, UNSIGNED = 1, SIGNED = 2, STRUCTURE = 3 };
enum { HAS_PREFERENCE = 1, HAS_GRID = 2, HAS_BLOCK = 4, HAS_SHARED = 8, HAS_ARGUMENTS = 16, HAS_TUNINGS = 32 };
enum {
    BYTE = 1, WORD, WIDE,
    ARG = 16, FIELD, BEGIN, END, PLAIN,
    ADD = 32, SUB, MUL, DIV, MOD, NEG, MIN, MAX, NOT,
    EQUAL = 48, UNEQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL,
    JUMP = 64, JUMP_FALSE, JUMP_TRUE
};
enum { PLAIN_SHARED = 6, PLAIN_WARPS = 7, PLAIN_SYMBOLS = 8 };

/* The types of fields, in the order of their numbers in the code. */
static const struct {
    uint8_t size, is_signed;
} field_types[] = {{2, 1}, {4, 1}, {8, 1}, {1, 1}, {2, 0}, {4, 0}, {8, 0}, {1, 0}};

struct expression {
    const uint8_t *code; /* NULL: there is none */
    uint32_t size;
    /* Whether the value is `constant + factor * argument`, so small that no step of the evaluation can exceed LIMIT. Most
     * expressions are, and this is faster than their code. */
    uint8_t is_affine;
    uint8_t slot;      /* the index of its value in `facts.values`; equal expressions share one. MAX_VALUES: none */
    uint16_t argument; /* if factor is not 0 */
    int64_t constant, factor;
};

struct range {
    uint16_t pointer;
    uint8_t is_whole;
    struct expression from, to;
    uint8_t slot; /* the index of its addresses in `facts.ranges`; equal ranges of a kernel share one. MAX_RANGES: none */
};

struct condition {
    uint8_t kind;
    struct range ranges[2];
    struct expression expression;
    uint64_t counts[2]; /* how often it was false, and undecidable */
};

struct parameter {
    uint16_t offset, size;
    uint8_t kind, is_pointer, is_read; /* is_read: a condition or an expression depends on its value */
    int8_t extent; /* its index in `facts.extents`, or -1 if nothing reads its extent */
};

/* The preference that was measured for a version on one kind of machine. */
struct tuned {
    const char *gpu;
    uint32_t multiprocessors;
    struct expression preference;
};

struct version {
    const char *entry;
    struct condition *conditions;
    uint32_t condition_count;
    uint8_t flags;
    struct expression preference, grid[3], block[3], shared, *extra;
    uint32_t extra_count;
    uint16_t *extra_sizes;
    struct tuned *tuned;
    uint32_t tuned_count;
    void *handle; /* CUfunction or CUkernel; NULL: unusable */
    uint64_t reasons[PTXMOTION_REASONS];
};

/* The occupancy of a version for launches of one size, after the attributes of the kernel were copied to it. */
struct shape {
    struct shape *next;
    const struct version *version;
    void *context;
    uint64_t generation;
    uint32_t threads, shared;
    int blocks; /* on one multiprocessor; 0: it cannot be launched */
    int multiprocessors;
    int has_clusters; /* the size of its clusters is an attribute of the function */
    int is_known;     /* 0: the driver did not say, as in a thread without a context */
};

struct ptxmotion_kernel {
    ptxmotion_module *module;
    const char *name;
    struct parameter *parameters;
    uint32_t parameter_count;
    struct version *versions;
    uint32_t version_count;
    int extent_count;
    const struct range *ranges[MAX_RANGES];
    uint8_t range_count;
    struct expression values[MAX_VALUES];
    uint8_t value_count;
    struct shape *shapes;
    uint32_t shape_count, all_shape_count;
    uint64_t generation;
    uint16_t *read; /* the parameters with is_read */
    uint32_t read_count, read_words;
    int is_remembered; /* whether its decisions fit into a memo */
};

struct ptxmotion_module {
    const ptxmotion_driver *driver;
    uint64_t serial; /* a number that no other module of the process has had */
    int is_library;
    int device_count;
    uint8_t *bytes;
    struct ptxmotion_kernel *kernels;
    uint32_t kernel_count;
};

/* --- reading the bytes ------------------------------------------------------------------------------------------ */

struct reader {
    const uint8_t *at, *end;
    int failed; /* a status, or 0 */
};

static const uint8_t *take(struct reader *reader, size_t size)
{
    static const uint8_t zeros[16];
    if (reader->failed || (size_t)(reader->end - reader->at) < size) {
        if (!reader->failed)
            reader->failed = PTXMOTION_DAMAGED;
        return size <= sizeof zeros ? zeros : NULL;
    }
    reader->at += size;
    return reader->at - size;
}

static uint32_t number(struct reader *reader, size_t size)
{
    uint32_t value = 0;
    memcpy(&value, take(reader, size), size);
    return value;
}

static void *allocate(struct reader *reader, size_t count, size_t size)
{
    if (reader->failed)
        return NULL;
    void *memory = calloc(count ? count : 1, size);
    if (memory == NULL)
        reader->failed = PTXMOTION_NO_MEMORY;
    return memory;
}

static const char *name(struct reader *reader)
{
    uint32_t size = number(reader, 2);
    const char *text = (const char *)take(reader, (size_t)size + 1);
    if (reader->failed)
        return "";
    if (memchr(text, 0, size + 1) != text + size)
        reader->failed = PTXMOTION_DAMAGED;
    return text;
}

static uint32_t read16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, 2);
    return value;
}

/* Bytes of the operands of an opcode, and how many values it takes and leaves; -1: there is no such opcode. */
static int operand_bytes(int opcode, int *takes, int *leaves)
{
    *takes = opcode < ADD || opcode == JUMP ? 0 : opcode == NEG || opcode == NOT || opcode >= JUMP_FALSE ? 1 : 2;
    *leaves = opcode < JUMP;
    switch (opcode) {
    case BYTE:
    case PLAIN:
        return 1;
    case WORD:
        return 8;
    case WIDE:
        return 16;
    case ARG:
    case BEGIN:
    case END:
    case JUMP:
    case JUMP_FALSE:
    case JUMP_TRUE:
        return 2;
    case FIELD:
        return 5;
    default:
        return (opcode >= ADD && opcode <= NOT) || (opcode >= EQUAL && opcode <= GREATER_EQUAL) ? 0 : -1;
    }
}

/* Gives a pointer parameter a place among the extents. Returns whether it is one. */
static int reads_extent(struct reader *reader, ptxmotion_kernel *kernel, uint32_t index)
{
    if (index >= kernel->parameter_count || !kernel->parameters[index].is_pointer)
        return 0;
    kernel->parameters[index].is_read = 1;
    if (kernel->parameters[index].extent < 0) {
        if (kernel->extent_count == MAX_EXTENTS)
            reader->failed = PTXMOTION_TOO_LARGE;
        else
            kernel->parameters[index].extent = (int8_t)kernel->extent_count++;
    }
    return 1;
}

/* Whether the operands of an opcode that reads a fact are valid. */
static int is_valid_fact(struct reader *reader, ptxmotion_kernel *kernel, const uint8_t *at)
{
    if (*at == PLAIN)
        return at[1] < PLAIN_SYMBOLS;
    uint32_t index = read16(at + 1);
    if (*at == BEGIN || *at == END)
        return reads_extent(reader, kernel, index);
    if (index >= kernel->parameter_count)
        return 0;
    struct parameter *parameter = &kernel->parameters[index];
    parameter->is_read = 1;
    if (*at == ARG)
        return (parameter->kind == UNSIGNED || parameter->kind == SIGNED) && parameter->size <= 8;
    return parameter->kind == STRUCTURE && at[5] < sizeof field_types / sizeof *field_types &&
           read16(at + 3) + field_types[at[5]].size <= parameter->size;
}

/* Checks code: opcodes, facts, jumps to the start of an instruction with the same depth of the stack, and one value at
 * the end. `depths` has an element for each byte and one more: the depth there plus 1, or 0 while it is not known. */
static int is_valid_code(struct reader *reader, ptxmotion_kernel *kernel, const uint8_t *code, uint32_t size,
                         uint8_t *depths)
{
    uint32_t at = 0;
    depths[0] = 1;
    while (at < size) {
        int takes, leaves, bytes = operand_bytes(code[at], &takes, &leaves);
        if (bytes < 0 || depths[at] == 0 || size - at < 1 + (uint32_t)bytes)
            return 0;
        int depth = depths[at] - 1 - takes + leaves, is_jump = code[at] >= JUMP;
        if (depths[at] - 1 < takes || depth > STACK)
            return 0;
        if (code[at] >= ARG && code[at] <= PLAIN && !is_valid_fact(reader, kernel, code + at))
            return 0;
        uint32_t next = at + 1 + (uint32_t)bytes;
        for (uint32_t i = at + 1; i < next; i++)
            if (depths[i] != 0)
                return 0; /* a jump into the operands */
        if (is_jump) {
            uint32_t target = next + read16(code + at + 1);
            if (target > size || (depths[target] != 0 && depths[target] != depth + 1))
                return 0;
            depths[target] = (uint8_t)(depth + 1);
        }
        if (code[at] != JUMP) {
            if (depths[next] != 0 && depths[next] != depth + 1)
                return 0;
            depths[next] = (uint8_t)(depth + 1);
        }
        at = next;
    }
    return depths[size] == 2;
}

#define SMALL (1ll << 30)

/* A value of an affine expression while its code is read. */
struct affine {
    int64_t constant, factor;
    uint16_t argument;
};

static int is_small(int64_t value)
{
    return value > -SMALL && value < SMALL;
}

/* Combines two affine values by an operator. Returns whether the result is affine and small. */
static int combine(int opcode, struct affine *left, const struct affine *right)
{
    if (opcode == MUL) {
        const struct affine *of = left->factor != 0 ? left : right;
        int64_t by = of == left ? right->constant : left->constant;
        if (left->factor != 0 && right->factor != 0)
            return 0;
        *left = (struct affine){of->constant * by, of->factor * by, of->argument};
    } else if (opcode == ADD || opcode == SUB) {
        int sign = opcode == ADD ? 1 : -1;
        if (left->factor != 0 && right->factor != 0 && left->argument != right->argument)
            return 0;
        if (left->factor == 0)
            left->argument = right->argument;
        left->constant += sign * right->constant;
        left->factor += sign * right->factor;
    } else {
        return 0;
    }
    return is_small(left->constant) && is_small(left->factor);
}

/* Finds whether an expression of checked code is affine in one argument of at most 4 bytes, with factors below 2**30. */
static void find_affine(const ptxmotion_kernel *kernel, struct expression *expression)
{
    struct affine stack[STACK];
    int depth = 0, takes, leaves;
    for (uint32_t at = 0; at < expression->size;) {
        const uint8_t *code = expression->code + at;
        if (*code == BYTE || *code == WORD) {
            int64_t value = (int8_t)code[1];
            if (*code == WORD)
                memcpy(&value, code + 1, sizeof value);
            if (!is_small(value))
                return;
            stack[depth++] = (struct affine){value, 0, 0};
        } else if (*code == ARG && kernel->parameters[read16(code + 1)].size <= 4) {
            stack[depth++] = (struct affine){0, 1, (uint16_t)read16(code + 1)};
        } else if (*code != ADD && *code != SUB && *code != MUL) {
            return;
        } else if (!combine(*code, &stack[depth - 2], &stack[depth - 1])) {
            return;
        } else {
            depth--;
        }
        at += 1 + (uint32_t)operand_bytes(*code, &takes, &leaves);
    }
    expression->is_affine = 1;
    expression->constant = stack[0].constant;
    expression->factor = stack[0].factor;
    expression->argument = stack[0].argument;
}

static int is_same_expression(const struct expression *one, const struct expression *other)
{
    return one->size == other->size && (one->size == 0 || memcmp(one->code, other->code, one->size) == 0);
}

/* Gives an expression the slot of an equal one, or a new one. */
static void find_value(ptxmotion_kernel *kernel, struct expression *expression)
{
    for (expression->slot = 0; expression->slot < kernel->value_count; expression->slot++)
        if (is_same_expression(&kernel->values[expression->slot], expression))
            return;
    if (expression->slot < MAX_VALUES)
        kernel->values[kernel->value_count++] = *expression;
}

static struct expression read_expression(struct reader *reader, ptxmotion_kernel *kernel)
{
    struct expression result = {0};
    result.size = number(reader, 2);
    result.code = take(reader, result.size);
    uint8_t *depths = allocate(reader, result.size + 1, 1);
    if (depths != NULL && !is_valid_code(reader, kernel, result.code, result.size, depths) && !reader->failed)
        reader->failed = PTXMOTION_DAMAGED;
    free(depths);
    if (!reader->failed) {
        find_affine(kernel, &result);
        find_value(kernel, &result);
    }
    return result;
}

static void read_range(struct reader *reader, ptxmotion_kernel *kernel, struct range *range)
{
    range->pointer = (uint16_t)number(reader, 2);
    range->is_whole = (uint8_t)number(reader, 1);
    if (!reader->failed && !reads_extent(reader, kernel, range->pointer))
        reader->failed = PTXMOTION_DAMAGED;
    if (!range->is_whole) {
        range->from = read_expression(reader, kernel);
        range->to = read_expression(reader, kernel);
    }
}

/* Gives a range the slot of an equal one, or a new one. `range` must stay where it is. */
static void find_slot(ptxmotion_kernel *kernel, struct range *range)
{
    for (range->slot = 0; range->slot < kernel->range_count; range->slot++) {
        const struct range *other = kernel->ranges[range->slot];
        if (other->pointer == range->pointer && other->is_whole == range->is_whole &&
            is_same_expression(&other->from, &range->from) && is_same_expression(&other->to, &range->to))
            return;
    }
    if (range->slot < MAX_RANGES)
        kernel->ranges[kernel->range_count++] = range;
}

static void read_version(struct reader *reader, ptxmotion_kernel *kernel, struct version *version)
{
    version->entry = name(reader);
    uint32_t count = number(reader, 2);
    version->conditions = allocate(reader, count, sizeof *version->conditions);
    for (; version->condition_count < count && !reader->failed; version->condition_count++) {
        struct condition *condition = &version->conditions[version->condition_count];
        condition->kind = (uint8_t)number(reader, 1);
        if (condition->kind == HOLDS) {
            condition->expression = read_expression(reader, kernel);
        } else if (condition->kind == INSIDE || condition->kind == DISJOINT) {
            for (int i = 0; i < condition->kind && !reader->failed; i++) {
                read_range(reader, kernel, &condition->ranges[i]);
                if (!reader->failed)
                    find_slot(kernel, &condition->ranges[i]);
            }
        } else if (!reader->failed) {
            reader->failed = PTXMOTION_DAMAGED;
        }
    }
    version->flags = (uint8_t)number(reader, 1);
    if (version->flags & HAS_PREFERENCE)
        version->preference = read_expression(reader, kernel);
    for (int i = 0; i < 3 && version->flags & HAS_GRID; i++)
        version->grid[i] = read_expression(reader, kernel);
    for (int i = 0; i < 3 && version->flags & HAS_BLOCK; i++)
        version->block[i] = read_expression(reader, kernel);
    if (version->flags & HAS_SHARED)
        version->shared = read_expression(reader, kernel);
    if (version->flags & HAS_ARGUMENTS) {
        count = number(reader, 1);
        if (count > MAX_EXTRA && !reader->failed)
            reader->failed = PTXMOTION_DAMAGED;
        version->extra = allocate(reader, count, sizeof *version->extra);
        version->extra_sizes = allocate(reader, count, sizeof *version->extra_sizes);
        for (; version->extra_count < count && !reader->failed; version->extra_count++)
            version->extra[version->extra_count] = read_expression(reader, kernel);
    }
    if (version->flags & HAS_TUNINGS) {
        count = number(reader, 1);
        version->tuned = allocate(reader, count, sizeof *version->tuned);
        for (; version->tuned_count < count && !reader->failed; version->tuned_count++) {
            struct tuned *tuned = &version->tuned[version->tuned_count];
            tuned->gpu = name(reader);
            tuned->multiprocessors = number(reader, 4);
            tuned->preference = read_expression(reader, kernel);
        }
        version->flags &= (uint8_t)~HAS_TUNINGS; /* `apply_tunings` makes one of them the preference */
    }
}

/* Finds what a decision depends on, and whether it is remembered. */
static void plan_memo(struct reader *reader, ptxmotion_kernel *kernel)
{
    kernel->read = allocate(reader, kernel->parameter_count, sizeof *kernel->read);
    for (uint32_t i = 0; kernel->read != NULL && i < kernel->parameter_count; i++)
        if (kernel->parameters[i].is_read) {
            kernel->read[kernel->read_count++] = (uint16_t)i;
            kernel->read_words += (kernel->parameters[i].size + 7u) / 8;
        }
    kernel->is_remembered = kernel->read_words <= MEMO_WORDS && kernel->version_count <= MEMO_VERSIONS &&
                            kernel->extent_count <= MEMO_EXTENTS;
    for (uint32_t i = 0; i < kernel->version_count; i++)
        if (kernel->versions[i].flags & ~HAS_PREFERENCE)
            kernel->is_remembered = 0; /* the launch of a version is a part of the decision */
}

static void read_kernel(struct reader *reader, ptxmotion_kernel *kernel)
{
    kernel->name = name(reader);
    uint32_t count = number(reader, 2);
    if (count > MAX_PARAMETERS && !reader->failed)
        reader->failed = PTXMOTION_DAMAGED;
    kernel->parameters = allocate(reader, count, sizeof *kernel->parameters);
    for (; kernel->parameter_count < count && !reader->failed; kernel->parameter_count++) {
        struct parameter *parameter = &kernel->parameters[kernel->parameter_count];
        parameter->offset = (uint16_t)number(reader, 2);
        parameter->size = (uint16_t)number(reader, 2);
        parameter->kind = (uint8_t)number(reader, 1);
        parameter->is_pointer = (uint8_t)number(reader, 1);
        parameter->extent = -1;
        if (parameter->is_pointer && (parameter->size != 8 || parameter->kind == STRUCTURE) && !reader->failed)
            reader->failed = PTXMOTION_DAMAGED;
    }
    count = number(reader, 2);
    kernel->versions = allocate(reader, count, sizeof *kernel->versions);
    for (; kernel->version_count < count && !reader->failed; kernel->version_count++)
        read_version(reader, kernel, &kernel->versions[kernel->version_count]);
    if (reader->failed)
        return;
    const struct version *last = count ? &kernel->versions[count - 1] : NULL;
    if (last == NULL || last->condition_count || last->flags || strcmp(last->entry, kernel->name) != 0)
        reader->failed = PTXMOTION_DAMAGED;
    plan_memo(reader, kernel);
}

static void read_contract(struct reader *reader, ptxmotion_module *module)
{
    static const char magic[] = "PTXMCT";
    size_t size = (size_t)(reader->end - reader->at);
    if (memcmp(take(reader, 6), magic, 6) != 0)
        reader->failed = PTXMOTION_DAMAGED;
    if (number(reader, 2) != BYTECODE_VERSION && !reader->failed)
        reader->failed = PTXMOTION_VERSION;
    if (number(reader, 4) != size && !reader->failed)
        reader->failed = PTXMOTION_DAMAGED;
    take(reader, 32);
    uint32_t count = number(reader, 4);
    if (count > size && !reader->failed)
        reader->failed = PTXMOTION_DAMAGED;
    module->kernels = allocate(reader, count, sizeof *module->kernels);
    for (; module->kernel_count < count && !reader->failed; module->kernel_count++) {
        module->kernels[module->kernel_count].module = module;
        read_kernel(reader, &module->kernels[module->kernel_count]);
    }
    if (!reader->failed && reader->at != reader->end)
        reader->failed = PTXMOTION_DAMAGED;
}

/* --- binding ---------------------------------------------------------------------------------------------------- */

/* The CUfunction of a version in the current context, or NULL. */
static void *function_of(const ptxmotion_module *module, void *handle)
{
    void *function = NULL;
    if (!module->is_library)
        return handle;
    return module->driver->kernel_get_function(&function, handle) ? NULL : function;
}

/* Whether the parameters of an entry are those of the contract, with the extra ones behind them. Their places do not
 * matter, since the driver gets a pointer to each argument. ptxas aligns a parameter in the constant bank, where the
 * parameters need not begin at a multiple of 32: on sm_90, one with the alignment 64 behind 56 bytes is at 112. */
static int has_the_parameters(const ptxmotion_kernel *kernel, struct version *version)
{
    const ptxmotion_driver *driver = kernel->module->driver;
    void *function = function_of(kernel->module, version->handle);
    size_t offset, size;
    if (function == NULL)
        return 0;
    for (uint32_t i = 0; i < kernel->parameter_count; i++)
        if (driver->func_get_param_info(function, i, &offset, &size) || size != kernel->parameters[i].size)
            return 0;
    for (uint32_t i = 0; i < version->extra_count; i++) {
        if (driver->func_get_param_info(function, kernel->parameter_count + i, &offset, &size))
            return 0;
        if (size != 1 && size != 2 && size != 4 && size != 8)
            return 0;
        version->extra_sizes[i] = (uint16_t)size;
    }
    return driver->func_get_param_info(function, kernel->parameter_count + version->extra_count, &offset, &size) != 0;
}

static void bind_handles(ptxmotion_kernel *kernel, void *loaded)
{
    const ptxmotion_driver *driver = kernel->module->driver;
    for (uint32_t i = kernel->version_count; i-- > 0;) {
        struct version *version = &kernel->versions[i];
        int status = kernel->module->is_library
                         ? driver->library_get_kernel(&version->handle, loaded, version->entry)
                         : driver->module_get_function(&version->handle, loaded, version->entry);
        if (status || (i + 1 < kernel->version_count && !has_the_parameters(kernel, version)))
            version->handle = NULL;
    }
    /* If the kernel is not what the contract says, no version is. */
    struct version *last = &kernel->versions[kernel->version_count - 1];
    if (last->handle == NULL || !has_the_parameters(kernel, last))
        for (uint32_t i = 0; i + 1 < kernel->version_count; i++)
            kernel->versions[i].handle = NULL;
}

/* Makes the preferences that were measured on the current device those of the versions. On a device that is not known,
 * and on one of another kind, the versions keep the preferences of the model. */
static void apply_tunings(ptxmotion_module *module)
{
    const ptxmotion_driver *driver = module->driver;
    char gpu[256] = "";
    int device, multiprocessors;
    if (driver->device_get_name == NULL || driver->ctx_get_device(&device) ||
        driver->device_get_name(gpu, sizeof gpu, device) ||
        driver->device_get_attribute(&multiprocessors, DEVICE_MULTIPROCESSORS, device))
        return;
    for (uint32_t i = 0; i < module->kernel_count; i++)
        for (uint32_t j = 0; j < module->kernels[i].version_count; j++) {
            struct version *version = &module->kernels[i].versions[j];
            for (uint32_t k = 0; k < version->tuned_count; k++)
                if (version->tuned[k].multiprocessors == (uint32_t)multiprocessors &&
                    strncmp(version->tuned[k].gpu, gpu, sizeof gpu) == 0) {
                    version->preference = version->tuned[k].preference;
                    version->flags |= HAS_PREFERENCE;
                }
        }
}

static int bind(const ptxmotion_driver *driver, const void *contract, size_t size, void *loaded, int is_library,
                ptxmotion_module **result)
{
    *result = NULL;
    if (driver == NULL)
        driver = ptxmotion_libcuda(NULL);
    if (driver == NULL || (is_library && (!driver->library_get_kernel || !driver->kernel_get_function)))
        return PTXMOTION_NO_DRIVER;
    ptxmotion_module *module = calloc(1, sizeof *module);
    uint8_t *bytes = malloc(size ? size : 1);
    if (module == NULL || bytes == NULL) {
        free(module);
        free(bytes);
        return PTXMOTION_NO_MEMORY;
    }
    static uint64_t serials;
    memcpy(bytes, contract, size);
    module->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
    module->bytes = bytes;
    module->driver = driver;
    module->is_library = is_library;
    if (driver->device_get_count(&module->device_count))
        module->device_count = 2; /* not known: as if there were several */
    struct reader reader = {bytes, bytes + size, 0};
    read_contract(&reader, module);
    if (reader.failed) {
        ptxmotion_unload(module);
        return reader.failed;
    }
    apply_tunings(module);
    for (uint32_t i = 0; i < module->kernel_count; i++)
        bind_handles(&module->kernels[i], loaded);
    *result = module;
    return PTXMOTION_OK;
}

int ptxmotion_bind_module(const ptxmotion_driver *driver, const void *contract, size_t size, void *module,
                          ptxmotion_module **result)
{
    return bind(driver, contract, size, module, 0, result);
}

int ptxmotion_bind_library(const ptxmotion_driver *driver, const void *contract, size_t size, void *library,
                           ptxmotion_module **result)
{
    return bind(driver, contract, size, library, 1, result);
}

int ptxmotion_bind_kernel(const ptxmotion_driver *driver, const void *contract, size_t size, void *kernel,
                          ptxmotion_module **result)
{
    void *library;
    *result = NULL;
    if (driver == NULL)
        driver = ptxmotion_libcuda(NULL);
    if (driver == NULL || driver->kernel_get_library == NULL || driver->kernel_get_library(&library, kernel))
        return PTXMOTION_NO_DRIVER;
    return bind(driver, contract, size, library, 1, result);
}

void ptxmotion_unload(ptxmotion_module *module)
{
    if (module == NULL)
        return;
    /* An element that was read in part is counted, and what was not read of it is zero. */
    for (uint32_t i = 0; module->kernels != NULL && i < module->kernel_count; i++) {
        ptxmotion_kernel *kernel = &module->kernels[i];
        for (uint32_t j = 0; kernel->versions != NULL && j < kernel->version_count; j++) {
            free(kernel->versions[j].conditions);
            free(kernel->versions[j].extra);
            free(kernel->versions[j].extra_sizes);
            free(kernel->versions[j].tuned);
        }
        while (kernel->shapes != NULL) {
            struct shape *next = kernel->shapes->next;
            free(kernel->shapes);
            kernel->shapes = next;
        }
        free(kernel->parameters);
        free(kernel->versions);
        free(kernel->read);
    }
    free(module->kernels);
    free(module->bytes);
    free(module);
}

const uint8_t *ptxmotion_digest(const ptxmotion_module *module)
{
    return module->bytes + 12;
}

ptxmotion_kernel *ptxmotion_find(ptxmotion_module *module, const char *name)
{
    for (uint32_t i = 0; i < module->kernel_count; i++)
        if (strcmp(module->kernels[i].name, name) == 0)
            return &module->kernels[i];
    return NULL;
}

ptxmotion_kernel *ptxmotion_find_handle(ptxmotion_module *module, const void *handle)
{
    for (uint32_t i = 0; i < module->kernel_count && handle != NULL; i++)
        if (module->kernels[i].versions[module->kernels[i].version_count - 1].handle == handle)
            return &module->kernels[i];
    return NULL;
}

uint32_t ptxmotion_usable(const ptxmotion_kernel *kernel)
{
    uint32_t usable = 0;
    for (uint32_t i = 0; i + 1 < kernel->version_count; i++)
        usable += kernel->versions[i].handle != NULL;
    return usable;
}

void ptxmotion_load(ptxmotion_kernel *kernel)
{
    const ptxmotion_driver *driver = kernel->module->driver;
    for (uint32_t i = 0; i + 1 < kernel->version_count && driver->func_load != NULL; i++) {
        struct version *version = &kernel->versions[i];
        void *function = version->handle == NULL ? NULL : function_of(kernel->module, version->handle);
        if (function == NULL || driver->func_load(function))
            version->handle = NULL;
    }
}

/* --- facts of a launch ------------------------------------------------------------------------------------------ */

enum { NOT_READ = 0, KNOWN = 1, UNKNOWN = 2 };

/* An allocation: its addresses, and the number that the driver has given to it and to no other one of the process; 0 if it
 * is not known. */
struct extent {
    wide begin, end;
    uint64_t id;
};

/* Extents of which one suffices, since the buffers are apart (`is_pair`). */
struct pair {
    uint8_t slots[2];
    uint8_t suffices[2]; /* whether it suffices that the allocation of this slot is still there */
};

struct facts {
    ptxmotion_kernel *kernel;
    const ptxmotion_config *config;
    void **arguments;
    const ptxmotion_extent *given;
    uint32_t flags;
    int is_momentary; /* whether the decision depends on what no key has: on more of the stream than whether it is being
                         captured, or on a query that failed, as in a thread without a context */
    wide warps; /* per scheduler; -1: unknown; -2: not computed */
    uint64_t needed; /* a bit for each extent on which the decision depends, besides by pairs */
    struct pair pairs[MEMO_PAIRS];
    uint32_t pair_count;
    uint8_t states[MAX_EXTENTS];
    struct extent extents[MAX_EXTENTS];
    uint8_t value_states[MAX_VALUES];
    wide values[MAX_VALUES];
    uint8_t range_states[MAX_RANGES];
    struct {
        wide first, last;
    } ranges[MAX_RANGES];
};

static const struct shape *shape_of(struct facts *facts, const struct version *version, uint32_t threads,
                                    uint32_t shared, struct shape *buffer);

static wide integer(const void *at, int size, int is_signed)
{
    /* A copy of a constant size is one instruction. */
#define COPY(type)                                                                                                     \
    {                                                                                                                  \
        type value;                                                                                                    \
        memcpy(&value, at, sizeof value);                                                                              \
        return value;                                                                                                  \
    }
    switch (size) {
    case 1:
        if (is_signed)
            COPY(int8_t)
        COPY(uint8_t)
    case 2:
        if (is_signed)
            COPY(int16_t)
        COPY(uint16_t)
    case 4:
        if (is_signed)
            COPY(int32_t)
        COPY(uint32_t)
    default:
        if (is_signed)
            COPY(int64_t)
        COPY(uint64_t)
    }
#undef COPY
}

static wide argument(const struct facts *facts, uint32_t index)
{
    const struct parameter *parameter = &facts->kernel->parameters[index];
    return integer(facts->arguments[index], parameter->size, parameter->kind == SIGNED);
}

enum { ID, START, SIZE, IPC, MANAGED, POOL, EXPORTS, ORDINAL, COUNT };

/* What is asked about a pointer. Those before MANAGED suffice for memory of cuMemAlloc if there is one device. */
static int pointer_attributes[COUNT] = {POINTER_BUFFER_ID, POINTER_RANGE_START, POINTER_RANGE_SIZE,   POINTER_LEGACY_IPC,
                                        POINTER_MANAGED,   POINTER_MEMPOOL,     POINTER_HANDLE_TYPES, POINTER_ORDINAL};

/* `find_allocation` for all kinds of memory, and for several devices. The number of the allocation stays unknown: the manual
 * does not say whether two allocations of a pool have different ones. */
static SEPARATE int find_any_allocation(const ptxmotion_module *module, uint64_t pointer, struct extent *found)
{
    uint64_t values[COUNT] = {0};
    void *data[COUNT];
    int has_several = module->device_count > 1, device;
    for (int i = 0; i < COUNT; i++)
        data[i] = &values[i];
    if (module->driver->pointer_get_attributes(has_several ? COUNT : ORDINAL, pointer_attributes, data, pointer))
        return 0;
    int is_managed = (values[MANAGED] & 0xff) != 0;
    if (!is_managed && !(values[IPC] & 0xff) && (values[POOL] == 0 || (values[EXPORTS] & 0xffffffff) != 0))
        return 0;
    if (has_several && !is_managed &&
        (module->driver->ctx_get_device(&device) || device != (int)(values[ORDINAL] & 0xffffffff)))
        return 0;
    *found = (struct extent){values[START], (wide)values[START] + values[SIZE], 0};
    return values[SIZE] != 0;
}

/* Whether memory that the driver knows touches a range. Several mappings of cuMemMap, or several registrations, may be one
 * buffer of the program. The driver gives the extent of a single one. */
static int has_neighbour(const ptxmotion_driver *driver, uint64_t begin, size_t size)
{
    uint64_t first;
    size_t count;
    return driver->mem_get_address_range(&first, &count, begin - 1) == 0 ||
           driver->mem_get_address_range(&first, &count, begin + size) == 0;
}

/* Finds the allocation of a pointer, if no other address can lead to the same memory and kernels of the current device can
 * read it: memory of cuMemAlloc, managed memory, or memory of a pool that cannot be exported. What the program itself has
 * mapped, registered or imported may have two addresses. Returns whether it is found. One query gives all of this, in
 * about the time that cuMemGetAddressRange takes (docs/experiments/driver_queries.c). */
static int find_allocation(const ptxmotion_module *module, uint64_t pointer, struct extent *found)
{
    uint64_t values[MANAGED] = {0};
    void *data[MANAGED] = {&values[ID], &values[START], &values[SIZE], &values[IPC]};
    if (module->device_count > 1)
        return find_any_allocation(module, pointer, found);
    /* The query succeeds for an invalid pointer, too; then all values are 0. */
    if (module->driver->pointer_get_attributes(MANAGED, pointer_attributes, data, pointer) || values[SIZE] == 0)
        return 0;
    if (!(values[IPC] & 0xff))
        return find_any_allocation(module, pointer, found);
    *found = (struct extent){values[START], (wide)values[START] + values[SIZE], values[ID]};
    return 1;
}

/* Whether a pointer is in an allocation that the driver has named for another pointer of this launch. Buffers of a pool
 * are. A pointer behind the last byte of it is not in it. */
static int is_in_known_allocation(const struct facts *facts, uint64_t pointer, struct extent *found)
{
    for (int slot = 0; slot < facts->kernel->extent_count; slot++)
        if (facts->states[slot] == KNOWN && facts->extents[slot].begin <= pointer && pointer < facts->extents[slot].end) {
            *found = facts->extents[slot];
            return 1;
        }
    return 0;
}

/* Whether the caller states the extent of a parameter. */
static int is_stated(const struct facts *facts, uint32_t index)
{
    return facts->given != NULL && (facts->given[index].begin | facts->given[index].end) != 0;
}

/* `find_extent` where the caller states extents, or that memory is mapped once. */
static SEPARATE int find_stated_extent(const struct facts *facts, uint32_t index, uint64_t pointer, struct extent *found)
{
    const ptxmotion_module *module = facts->kernel->module;
    const ptxmotion_extent *given = facts->given;
    uint64_t first;
    size_t size;
    int is_given = is_stated(facts, index);
    int is_trusted = (facts->flags & PTXMOTION_MAPPED_ONCE) != 0;
    /* Without stated extents, the allocation was not found before. */
    if (!(is_given && is_trusted) && (given == NULL || !find_allocation(module, pointer, found))) {
        if (!is_trusted || pointer == 0 || module->driver->mem_get_address_range(&first, &size, pointer))
            return UNKNOWN;
        if (!is_given && has_neighbour(module->driver, first, size))
            return UNKNOWN;
        *found = (struct extent){first, (wide)first + size, 0};
    }
    if (is_given)
        *found = (struct extent){given[index].begin, given[index].end, 0};
    return found->begin <= pointer && pointer <= found->end ? KNOWN : UNKNOWN;
}

static int find_extent(struct facts *facts, uint32_t index, int slot)
{
    struct extent *found = &facts->extents[slot];
    uint64_t pointer;
    memcpy(&pointer, facts->arguments[index], sizeof pointer);
    /* An extent that the caller states may be a part of an allocation. */
    if (facts->given == NULL) {
        if (is_in_known_allocation(facts, pointer, found))
            return KNOWN;
        if (find_allocation(facts->kernel->module, pointer, found))
            return found->begin <= pointer && pointer <= found->end ? KNOWN : UNKNOWN;
        if (!(facts->flags & PTXMOTION_MAPPED_ONCE))
            return UNKNOWN;
    }
    return find_stated_extent(facts, index, pointer, found);
}

/* The place of the extent of a parameter, or -1 if it is unknown. */
static int extent_of(struct facts *facts, uint32_t index)
{
    int slot = facts->kernel->parameters[index].extent;
    if (facts->states[slot] == NOT_READ)
        facts->states[slot] = (uint8_t)find_extent(facts, index, slot);
    return facts->states[slot] == KNOWN ? slot : -1;
}

static wide warps_per_scheduler(struct facts *facts)
{
    if (facts->warps != -2)
        return facts->warps;
    const ptxmotion_config *config = facts->config;
    const struct version *original = &facts->kernel->versions[facts->kernel->version_count - 1];
    uint32_t threads = config->block[0] * config->block[1] * config->block[2];
    struct shape buffer;
    const struct shape *shape = shape_of(facts, original, threads, config->shared, &buffer);
    facts->warps = -1;
    if (shape->blocks > 0 && shape->multiprocessors > 0) {
        /* The blocks are distributed evenly, and a block is on one multiprocessor. */
        wide warps = (threads + 31) / 32, schedulers = 4, multiprocessors = shape->multiprocessors;
        wide blocks = (wide)config->grid[0] * config->grid[1] * config->grid[2];
        wide have = (blocks + multiprocessors - 1) / multiprocessors;
        facts->warps = (warps * (have < shape->blocks ? have : shape->blocks) + schedulers - 1) / schedulers;
    }
    return facts->warps;
}

/* --- evaluation ------------------------------------------------------------------------------------------------- */

static int is_in_range(wide value)
{
    return value >= -LIMIT && value <= LIMIT;
}

/* Reads a fact. Returns whether it is known. */
static int fact(struct facts *facts, const uint8_t *at, wide *value)
{
    const ptxmotion_config *config = facts->config;
    uint32_t index = *at == PLAIN ? at[1] : read16(at + 1);
    int slot;
    switch (*at) {
    case ARG:
        *value = argument(facts, index);
        return 1;
    case FIELD:
        *value = integer((const char *)facts->arguments[index] + read16(at + 3), field_types[at[5]].size,
                         field_types[at[5]].is_signed);
        return 1;
    case BEGIN:
    case END:
        slot = extent_of(facts, index);
        facts->needed |= 1ull << facts->kernel->parameters[index].extent;
        if (slot < 0)
            return 0;
        *value = *at == BEGIN ? facts->extents[slot].begin : facts->extents[slot].end;
        return 1;
    default:
        if (index == PLAIN_WARPS)
            return (*value = warps_per_scheduler(facts)) >= 0;
        *value = index == PLAIN_SHARED ? config->shared : index < 3 ? config->grid[index] : config->block[index - 3];
        return 1;
    }
}

/* The quotient and the remainder, rounded to minus infinity. */
static wide divided(wide left, wide right, int want_remainder)
{
    wide quotient, remainder;
    if (left == (int64_t)left && right == (int64_t)right && right != -1) {
        quotient = (int64_t)left / (int64_t)right; /* much faster than with 128 bits */
        remainder = (int64_t)left % (int64_t)right;
    } else {
        quotient = left / right;
        remainder = left % right;
    }
    if (remainder != 0 && (remainder < 0) != (right < 0)) {
        quotient--;
        remainder += right;
    }
    return want_remainder ? remainder : quotient;
}

/* The cases of the operators that compare: as a macro, so that operands of 64 bits are compared as such. */
#define COMPARISONS(left, right, value)                                                                                \
    case MIN: (value) = (left) < (right) ? (left) : (right); break;                                                    \
    case MAX: (value) = (left) > (right) ? (left) : (right); break;                                                    \
    case EQUAL: (value) = (left) == (right); break;                                                                    \
    case UNEQUAL: (value) = (left) != (right); break;                                                                  \
    case LESS: (value) = (left) < (right); break;                                                                      \
    case LESS_EQUAL: (value) = (left) <= (right); break;                                                               \
    case GREATER: (value) = (left) > (right); break;                                                                   \
    default: (value) = (left) >= (right); break

/* Applies an operator with two operands. Returns whether it has a value. */
static int apply(int opcode, wide left, wide right, wide *value)
{
    switch (opcode) {
    case ADD:
        *value = left + right;
        return is_in_range(*value);
    case SUB:
        *value = left - right;
        return is_in_range(*value);
    case MUL:
        return !__builtin_mul_overflow(left, right, value) && is_in_range(*value);
    case DIV:
    case MOD:
        if (right == 0)
            return 0;
        *value = divided(left, right, opcode == MOD);
        return is_in_range(*value);
    COMPARISONS(left, right, *value);
    }
    return 1;
}

/* Applies an operator to values of 64 bits. Returns 0 if the result needs more bits or has no value. */
static int apply_short(int opcode, int64_t left, int64_t right, int64_t *value)
{
    switch (opcode) {
    case ADD:
        return !__builtin_add_overflow(left, right, value);
    case SUB:
        return !__builtin_sub_overflow(left, right, value);
    case MUL:
        return !__builtin_mul_overflow(left, right, value);
    case DIV:
    case MOD:
        if (right <= 0)
            return 0;
        *value = left % right;
        *value += *value < 0 ? right : 0;
        if (opcode == DIV)
            *value = left / right - (left % right < 0);
        return 1;
    COMPARISONS(left, right, *value);
    }
    return 1;
}

/* The value of an expression, if all values on the way have 64 bits. Returns 0 if they have not, or if there is none;
 * `evaluate` then decides. It is several times faster. */
static int evaluate_short(struct facts *facts, const struct expression *expression, int64_t *result)
{
    int64_t stack[STACK + 1];
    int64_t *top = stack; /* behind the last value */
    const uint8_t *at = expression->code, *end = at + expression->size;
    wide value;
    while (at < end) {
        switch (*at) {
        case BYTE:
            *top++ = (int8_t)at[1];
            at += 2;
            break;
        case WORD:
            memcpy(top++, at + 1, sizeof *top);
            at += 9;
            break;
        case ARG:
        case FIELD:
        case BEGIN:
        case END:
        case PLAIN:
            if (!fact(facts, at, &value) || value != (int64_t)value)
                return 0;
            *top++ = (int64_t)value;
            at += *at == FIELD ? 6 : *at == PLAIN ? 2 : 3;
            break;
        case NOT:
            top[-1] = top[-1] == 0;
            at++;
            break;
        case JUMP:
            at += 3 + read16(at + 1);
            break;
        case JUMP_FALSE:
        case JUMP_TRUE:
            top--;
            at += (*top != 0) == (*at == JUMP_TRUE) ? 3 + read16(at + 1) : 3;
            break;
        case NEG:
            if (__builtin_sub_overflow((int64_t)0, top[-1], &top[-1]))
                return 0;
            at++;
            break;
        case WIDE:
            return 0;
        default:
            top--;
            if (!apply_short(*at, top[-1], top[0], &top[-1]))
                return 0;
            at++;
        }
    }
    *result = stack[0];
    return 1;
}

/* The value of an expression whose code was checked. Returns whether it has one. */
static int evaluate_code(struct facts *facts, const struct expression *expression, wide *result)
{
    wide stack[STACK + 1];
    wide *top = stack; /* behind the last value */
    int64_t found;
    if (evaluate_short(facts, expression, &found)) {
        *result = found;
        return 1;
    }
    const uint8_t *at = expression->code, *end = at + expression->size;
    while (at < end) {
        switch (*at) {
        case BYTE:
            *top++ = (int8_t)at[1];
            at += 2;
            break;
        case WORD:
            *top++ = integer(at + 1, 8, 1);
            at += 9;
            break;
        case WIDE:
            memcpy(top, at + 1, 16);
            if (!is_in_range(*top++))
                return 0;
            at += 17;
            break;
        case ARG:
        case FIELD:
        case BEGIN:
        case END:
        case PLAIN:
            if (!fact(facts, at, top++))
                return 0;
            at += *at == FIELD ? 6 : *at == PLAIN ? 2 : 3;
            break;
        case NEG:
            top[-1] = -top[-1];
            at++;
            break;
        case NOT:
            top[-1] = top[-1] == 0;
            at++;
            break;
        case JUMP:
            at += 3 + read16(at + 1);
            break;
        case JUMP_FALSE:
        case JUMP_TRUE:
            top--;
            at += (*top != 0) == (*at == JUMP_TRUE) ? 3 + read16(at + 1) : 3;
            break;
        default:
            top--;
            if (!apply(*at, top[-1], top[0], &top[-1]))
                return 0;
            at++;
        }
    }
    *result = stack[0];
    return 1;
}

/* The same, evaluated once in a launch. */
static int evaluate(struct facts *facts, const struct expression *expression, wide *result)
{
    uint8_t slot = expression->slot;
    if (expression->is_affine) {
        *result = expression->constant;
        if (expression->factor != 0)
            *result += (wide)expression->factor * argument(facts, expression->argument);
        return 1;
    }
    if (slot >= MAX_VALUES)
        return evaluate_code(facts, expression, result);
    if (facts->value_states[slot] == NOT_READ)
        facts->value_states[slot] = evaluate_code(facts, expression, &facts->values[slot]) ? KNOWN : UNKNOWN;
    if (facts->value_states[slot] == UNKNOWN)
        return 0;
    *result = facts->values[slot];
    return 1;
}

static int find_addresses(struct facts *facts, const struct range *range, wide *first, wide *last)
{
    if (range->is_whole) {
        int slot = extent_of(facts, range->pointer);
        if (slot < 0)
            return 0;
        *first = facts->extents[slot].begin;
        *last = facts->extents[slot].end;
        return 1;
    }
    wide pointer = argument(facts, range->pointer);
    if (!evaluate(facts, &range->from, first) || !is_in_range(*first += pointer))
        return 0;
    return evaluate(facts, &range->to, last) && is_in_range(*last += pointer);
}

/* The addresses of a range. Returns whether they are known. */
static int addresses(struct facts *facts, const struct range *range, wide *first, wide *last)
{
    uint8_t slot = range->slot;
    if (slot >= MAX_RANGES)
        return find_addresses(facts, range, first, last);
    if (facts->range_states[slot] == NOT_READ)
        facts->range_states[slot] =
            find_addresses(facts, range, &facts->ranges[slot].first, &facts->ranges[slot].last) ? KNOWN : UNKNOWN;
    if (facts->range_states[slot] == UNKNOWN)
        return 0;
    *first = facts->ranges[slot].first;
    *last = facts->ranges[slot].last;
    return 1;
}

static void need_extent(struct facts *facts, uint32_t index)
{
    int slot = facts->kernel->parameters[index].extent;
    if (slot >= 0)
        facts->needed |= 1ull << slot;
}

/* Two buffers were found to be apart, and both extents are known. Then one of the two extents suffices for the same
 * launch later: memory that is allocated while an allocation is still there has no byte in common with it, since the
 * allocation has no second address. So whatever the other pointer points into then, the buffers are apart. But a pointer
 * to the end of the allocation may be one into it; there the other extent is needed. Returns whether one suffices. */
static int is_pair(struct facts *facts, const struct range ranges[2])
{
    struct pair *pair = &facts->pairs[facts->pair_count];
    uint64_t pointers[2];
    if (facts->pair_count == MEMO_PAIRS || ranges[0].is_whole != ranges[1].is_whole)
        return 0;
    for (int i = 0; i < 2; i++) {
        pair->slots[i] = (uint8_t)facts->kernel->parameters[ranges[i].pointer].extent;
        memcpy(&pointers[i], facts->arguments[ranges[i].pointer], sizeof pointers[i]);
    }
    for (int i = 0; i < 2; i++)
        pair->suffices[i] = facts->extents[pair->slots[i]].end != pointers[1 - i];
    if (!pair->suffices[0] && !pair->suffices[1])
        return 0;
    facts->pair_count++;
    return 1;
}

/* As `decide`. Sets `is_apart` where neither range is empty and the extents are known. */
static int decide_disjoint(struct facts *facts, const struct range ranges[2], int *is_apart)
{
    wide first, last, other_first, other_last;
    if (!addresses(facts, &ranges[0], &first, &last) || !addresses(facts, &ranges[1], &other_first, &other_last))
        return PTXMOTION_UNDECIDABLE;
    if (first >= last || other_first >= other_last)
        return PTXMOTION_TAKEN;
    if (extent_of(facts, ranges[0].pointer) < 0 || extent_of(facts, ranges[1].pointer) < 0)
        return PTXMOTION_UNDECIDABLE;
    *is_apart = last <= other_first || other_last <= first;
    return *is_apart ? PTXMOTION_TAKEN : PTXMOTION_FALSE;
}

/* PTXMOTION_TAKEN, PTXMOTION_FALSE or PTXMOTION_UNDECIDABLE. */
static int decide(struct facts *facts, const struct condition *condition)
{
    wide first, last, value;
    const struct range *ranges = condition->ranges;
    int slot, reason, is_apart = 0;
    switch (condition->kind) {
    case HOLDS:
        if (!evaluate(facts, &condition->expression, &value))
            return PTXMOTION_UNDECIDABLE;
        return value != 0 ? PTXMOTION_TAKEN : PTXMOTION_FALSE;
    case INSIDE:
        if (!addresses(facts, &ranges[0], &first, &last))
            return PTXMOTION_UNDECIDABLE;
        if (first >= last)
            return PTXMOTION_TAKEN;
        need_extent(facts, ranges[0].pointer);
        if ((slot = extent_of(facts, ranges[0].pointer)) < 0)
            return PTXMOTION_UNDECIDABLE;
        return facts->extents[slot].begin <= first && last <= facts->extents[slot].end ? PTXMOTION_TAKEN
                                                                                       : PTXMOTION_FALSE;
    default:
        reason = decide_disjoint(facts, ranges, &is_apart);
        if (!is_apart || !is_pair(facts, ranges)) {
            need_extent(facts, ranges[0].pointer);
            need_extent(facts, ranges[1].pointer);
        }
        return reason;
    }
}

/* --- occupancy -------------------------------------------------------------------------------------------------- */

/* Copies the attributes that the program may have set on the kernel to a version of it. Returns whether it has them. */
static int copy_attributes(const ptxmotion_driver *driver, void *from, void *to)
{
    for (size_t i = 0; i < sizeof copied_attributes / sizeof *copied_attributes; i++) {
        int wanted, found;
        if (driver->func_get_attribute(&wanted, copied_attributes[i], from))
            continue; /* a driver that does not know the attribute has not set it */
        if (driver->func_get_attribute(&found, copied_attributes[i], to))
            return 0;
        if (wanted != found && driver->func_set_attribute(to, copied_attributes[i], wanted))
            return 0;
    }
    return 1;
}

static void find_shape(ptxmotion_kernel *kernel, struct shape *shape)
{
    const ptxmotion_driver *driver = kernel->module->driver;
    const struct version *original = &kernel->versions[kernel->version_count - 1];
    void *function = function_of(kernel->module, shape->version->handle);
    int most, device;
    shape->blocks = shape->multiprocessors = shape->has_clusters = shape->is_known = 0;
    if (function == NULL || driver->ctx_get_device(&device) ||
        driver->device_get_attribute(&shape->multiprocessors, DEVICE_MULTIPROCESSORS, device))
        return;
    shape->is_known = 1;
    if (shape->version != original) {
        void *from = function_of(kernel->module, original->handle);
        if (from == NULL || !copy_attributes(driver, from, function))
            return;
    }
    if (driver->func_get_attribute(&shape->has_clusters, FUNCTION_CLUSTER_WIDTH, function))
        shape->has_clusters = 0; /* a driver without clusters */
    if (driver->func_get_attribute(&most, FUNCTION_MAX_THREADS, function) || shape->threads > (uint32_t)most ||
        driver->func_get_attribute(&most, FUNCTION_MAX_DYNAMIC_SHARED, function) || shape->shared > (uint32_t)most ||
        driver->occupancy(&shape->blocks, function, (int)shape->threads, shape->shared))
        shape->blocks = 0;
}

/* The occupancy of a version for a size of block. It is in `buffer` if it could not be kept, or is not known. */
static const struct shape *shape_of(struct facts *facts, const struct version *version, uint32_t threads,
                                    uint32_t shared, struct shape *buffer)
{
    ptxmotion_kernel *kernel = facts->kernel;
    const ptxmotion_module *module = kernel->module;
    void *context = NULL;
    /* A CUfunction belongs to one context; a CUkernel is launched in the current one. With a single GPU, the occupancy
     * does not depend on it; where a second context has other attributes, a launch fails, and the kernel is launched. */
    if (module->is_library && module->device_count > 1 && module->driver->ctx_get_current(&context))
        context = NULL;
    uint64_t generation = __atomic_load_n(&kernel->generation, __ATOMIC_ACQUIRE);
    struct shape *head = __atomic_load_n(&kernel->shapes, __ATOMIC_ACQUIRE);
    for (struct shape *each = head; each != NULL; each = each->next)
        if (each->version == version && each->threads == threads && each->shared == shared &&
            each->context == context && each->generation == generation)
            return each;
    *buffer = (struct shape){NULL, version, context, generation, threads, shared, 0, 0, 0, 0};
    find_shape(kernel, buffer);
    if (!buffer->is_known) {
        facts->is_momentary = 1;
        return buffer;
    }
    if (__atomic_load_n(&kernel->shape_count, __ATOMIC_RELAXED) >= MAX_SHAPES ||
        __atomic_load_n(&kernel->all_shape_count, __ATOMIC_RELAXED) >= MAX_ALL_SHAPES)
        return buffer;
    __atomic_fetch_add(&kernel->shape_count, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&kernel->all_shape_count, 1, __ATOMIC_RELAXED);
    struct shape *kept = malloc(sizeof *kept);
    if (kept == NULL)
        return buffer;
    *kept = *buffer;
    kept->next = head;
    while (!__atomic_compare_exchange_n(&kernel->shapes, &kept->next, kept, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    return kept;
}

void ptxmotion_attributes_changed(ptxmotion_kernel *kernel)
{
    __atomic_fetch_add(&kernel->generation, 1, __ATOMIC_RELEASE);
    /* Room for the new occupancies. The old ones stay in memory, since other threads may be reading them. */
    __atomic_store_n(&kernel->shape_count, 0, __ATOMIC_RELAXED);
}

/* --- choosing --------------------------------------------------------------------------------------------------- */

enum { PLAIN_LAUNCH = 0, CLUSTERS = 1, NO_VERSION = 2 };

/* What the attributes of a launch mean for the versions: flags. */
static int kind_of_launch(const ptxmotion_config *config)
{
    const struct launch_attribute *attributes = config->attributes;
    int kind = PLAIN_LAUNCH;
    for (uint32_t i = 0; i < config->attribute_count; i++) {
        int id = attributes[i].id;
        if (id == LAUNCH_CLUSTER || id == LAUNCH_PREFERRED_CLUSTER)
            kind |= CLUSTERS;
        else if ((id == LAUNCH_UPDATABLE && attributes[i].value.number) || id < 0 || id > 16)
            kind |= NO_VERSION;
    }
    return kind;
}

static uint64_t blocks_of(const ptxmotion_config *config)
{
    return (uint64_t)config->grid[0] * config->grid[1] * config->grid[2];
}

/* Whether as many blocks of the version as of the kernel run at the same time, as far as this can matter. A program may
 * launch as many blocks as fit and let them wait for each other, also without a cooperative launch. */
static int runs_as_many(struct facts *facts, const struct version *version, const ptxmotion_config *changed, int kind)
{
    ptxmotion_kernel *kernel = facts->kernel;
    const ptxmotion_config *config = facts->config;
    const struct version *original = &kernel->versions[kernel->version_count - 1];
    struct shape buffers[2];
    uint32_t threads = config->block[0] * config->block[1] * config->block[2];
    uint32_t changed_threads = changed->block[0] * changed->block[1] * changed->block[2];
    const struct shape *of_version = shape_of(facts, version, changed_threads, changed->shared, &buffers[0]);
    if (of_version->blocks <= 0)
        return PTXMOTION_UNUSABLE;
    const struct shape *of_kernel = shape_of(facts, original, threads, config->shared, &buffers[1]);
    if (of_kernel->blocks <= 0)
        return PTXMOTION_UNUSABLE;
    int has_same_size = changed_threads == threads && blocks_of(changed) == blocks_of(config);
    if (has_same_size && of_version->blocks >= of_kernel->blocks)
        return PTXMOTION_TAKEN;
    if (kind & CLUSTERS || of_kernel->has_clusters)
        return PTXMOTION_RESIDENCE;
    uint64_t machine = (uint64_t)of_version->multiprocessors;
    if (blocks_of(config) > machine * (uint64_t)of_kernel->blocks)
        return PTXMOTION_TAKEN; /* not all blocks of the kernel run at the same time */
    void *green = NULL;
    facts->is_momentary = 1;
    if (facts->kernel->module->driver->stream_get_green_context != NULL &&
        (facts->kernel->module->driver->stream_get_green_context(config->stream, &green) || green != NULL))
        machine = 1; /* a part of the GPU, of unknown size */
    return blocks_of(changed) <= machine * (uint64_t)of_version->blocks ? PTXMOTION_TAKEN : PTXMOTION_RESIDENCE;
}

/* Evaluates three sizes into `sizes`. */
static int change_sizes(struct facts *facts, const struct expression *expressions, uint32_t sizes[3], int limit)
{
    for (int i = 0; i < 3; i++) {
        wide value;
        int device, most;
        const ptxmotion_driver *driver = facts->kernel->module->driver;
        if (!evaluate(facts, &expressions[i], &value))
            return PTXMOTION_UNDECIDABLE;
        if (value < 1)
            return PTXMOTION_BAD_LAUNCH;
        if (driver->ctx_get_device(&device) || driver->device_get_attribute(&most, limit + i, device)) {
            facts->is_momentary = 1;
            return PTXMOTION_BAD_LAUNCH;
        }
        if (value > most)
            return PTXMOTION_BAD_LAUNCH;
        sizes[i] = (uint32_t)value;
    }
    return PTXMOTION_TAKEN;
}

/* The launch of a version: `changed` has the original one. `extra` gets the values of the extra arguments. */
static int change_launch(struct facts *facts, const struct version *version, ptxmotion_config *changed, uint64_t *extra)
{
    int reason = PTXMOTION_TAKEN;
    wide value;
    if (version->flags & HAS_GRID)
        reason = change_sizes(facts, version->grid, changed->grid, DEVICE_MAX_GRID_X);
    if (reason == PTXMOTION_TAKEN && version->flags & HAS_BLOCK) {
        reason = change_sizes(facts, version->block, changed->block, DEVICE_MAX_BLOCK_X);
        if (reason == PTXMOTION_TAKEN && (uint64_t)changed->block[0] * changed->block[1] * changed->block[2] > 1024)
            reason = PTXMOTION_BAD_LAUNCH;
    }
    if (reason == PTXMOTION_TAKEN && version->flags & HAS_SHARED) {
        if (!evaluate(facts, &version->shared, &value))
            return PTXMOTION_UNDECIDABLE;
        if (value < 0 || value > UINT32_MAX)
            return PTXMOTION_BAD_LAUNCH;
        changed->shared = (uint32_t)value;
    }
    for (uint32_t i = 0; i < version->extra_count && reason == PTXMOTION_TAKEN; i++) {
        if (!evaluate(facts, &version->extra[i], &value))
            return PTXMOTION_UNDECIDABLE;
        int bits = 8 * version->extra_sizes[i];
        if (value < -((wide)1 << (bits - 1)) || value >= (wide)1 << bits)
            return PTXMOTION_BAD_LAUNCH;
        extra[i] = (uint64_t)value;
    }
    return reason;
}

/* Whether a version may and should be launched. `failed` gets the number of the condition that does not hold. */
static SEPARATE int examine(struct facts *facts, const struct version *version, int kind, ptxmotion_config *changed,
                   uint64_t *extra, uint32_t *failed)
{
    wide value;
    *failed = UINT32_MAX;
    if (version->handle == NULL)
        return PTXMOTION_UNUSABLE;
    if (version->flags & HAS_PREFERENCE && !(facts->flags & PTXMOTION_ALWAYS_PREFER) &&
        (!evaluate(facts, &version->preference, &value) || value == 0))
        return PTXMOTION_SLOWER;
    for (uint32_t i = 0; i < version->condition_count; i++) {
        int reason = decide(facts, &version->conditions[i]);
        if (reason != PTXMOTION_TAKEN) {
            *failed = i;
            return reason;
        }
    }
    *changed = *facts->config;
    if (version->flags & ~HAS_PREFERENCE) {
        int reason = change_launch(facts, version, changed, extra);
        if (reason != PTXMOTION_TAKEN)
            return reason;
    }
    return runs_as_many(facts, version, changed, kind);
}

/* A reason that holds for all versions, or PTXMOTION_TAKEN. */
static int common_reason(const ptxmotion_kernel *kernel, const ptxmotion_config *config, void **arguments,
                         uint32_t flags, int kind)
{
    int capture = CAPTURE_NONE;
    if (flags & PTXMOTION_ORIGINAL || (arguments == NULL && kernel->parameter_count))
        return PTXMOTION_FORBIDDEN;
    if (kind & NO_VERSION)
        return PTXMOTION_ATTRIBUTE;
    uint64_t threads = (uint64_t)config->block[0] * config->block[1] * config->block[2];
    if (config->block[0] > 1024 || config->block[1] > 1024 || config->block[2] > 64 || threads == 0 ||
        threads > 1024 || config->grid[1] > 65535 || config->grid[2] > 65535 || blocks_of(config) == 0)
        return PTXMOTION_BAD_LAUNCH; /* the driver refuses it, and says why */
    /* The legacy null stream is never captured. While another stream is captured, a launch into it may be an error. */
    if (!(flags & PTXMOTION_CAPTURE) && (uintptr_t)config->stream > LEGACY_STREAM &&
        (kernel->module->driver->stream_is_capturing(config->stream, &capture) || capture != CAPTURE_NONE))
        return PTXMOTION_CAPTURED;
    return PTXMOTION_TAKEN;
}

/* The memory of one launch. */
struct decision {
    uint32_t version, failed;
    ptxmotion_config config;
    uint64_t extra[MAX_EXTRA];
};

static void count(struct version *version, int reason, uint32_t failed)
{
    __atomic_fetch_add(&version->reasons[reason], 1, __ATOMIC_RELAXED);
    if (failed != UINT32_MAX)
        __atomic_fetch_add(&version->conditions[failed].counts[reason == PTXMOTION_UNDECIDABLE], 1, __ATOMIC_RELAXED);
}

/* --- remembered decisions --------------------------------------------------------------------------------------- */

#define STATED_EXTENTS 0x80000000u /* in the flags of a key: the caller states extents */

/* What a decision depends on, besides the extents: words without padding, so that keys are compared by words. */
struct memo_key {
    uint64_t serial, generation;
    const ptxmotion_kernel *kernel;
    void *context;
    uint32_t flags, shared, grid[3], block[3];
    uint64_t arguments[MEMO_WORDS]; /* of which kernel->read_words are used; each argument begins a word */
};

_Static_assert(offsetof(struct memo_key, arguments) == 64, "a key has no padding");

/* A decision of this thread. It is valid for a launch with an equal key, if all extents that it depends on are the same.
 * Memory may have been freed and allocated with another size, so this is found out each time: an allocation with the same
 * number is the same one. Where the number is not known, the extents are found again. Extents that are not needed
 * (`is_pair`) have the state NOT_READ. */
struct memo {
    struct memo_key key;
    uint8_t reasons[MEMO_VERSIONS]; /* up to the version that was taken */
    uint32_t failed[MEMO_VERSIONS];
    uint8_t states[MEMO_EXTENTS];
    struct extent extents[MEMO_EXTENTS];
};

static __thread struct memo memos[MEMOS];

/* Writes the key of a launch. Returns the memo for it, or NULL if its decision is not remembered. */
static struct memo *memo_of(const struct facts *facts, struct memo_key *key)
{
    const ptxmotion_kernel *kernel = facts->kernel;
    const ptxmotion_module *module = kernel->module;
    const ptxmotion_config *config = facts->config;
    if (!kernel->is_remembered || config->attribute_count)
        return NULL;
    key->context = NULL;
    if (module->device_count > 1 && module->driver->ctx_get_current(&key->context))
        return NULL;
    key->serial = module->serial;
    key->generation = __atomic_load_n(&kernel->generation, __ATOMIC_ACQUIRE);
    key->kernel = kernel;
    key->flags = facts->flags | (facts->given != NULL ? STATED_EXTENTS : 0);
    key->shared = config->shared;
    memcpy(key->grid, config->grid, sizeof key->grid);
    memcpy(key->block, config->block, sizeof key->block);
    uint64_t *at = key->arguments, hash = (uintptr_t)kernel >> 4;
    for (uint32_t i = 0; i < kernel->read_count; i++) {
        uint32_t size = kernel->parameters[kernel->read[i]].size;
        const void *argument = facts->arguments[kernel->read[i]];
        if (size == 0)
            continue;
        *at = 0;
        if (size == sizeof *at) {
            memcpy(at, argument, sizeof *at);
            hash = (hash ^ *at) * 0x9e3779b97f4a7c15u;
        } else if (size == 4) {
            memcpy(at, argument, 4);
        } else {
            at[(size + 7) / 8 - 1] = 0;
            memcpy(at, argument, size);
        }
        at += (size + 7) / 8;
    }
    return &memos[hash >> 60];
}

static int is_same_key(const struct memo_key *key, const struct memo_key *other, uint32_t read_words)
{
    const char *one = (const char *)key, *two = (const char *)other;
    uint64_t left, right, differences = 0;
    for (size_t at = 0; at < offsetof(struct memo_key, arguments) + 8 * (size_t)read_words; at += 8) {
        memcpy(&left, one + at, 8);
        memcpy(&right, two + at, 8);
        differences |= left ^ right;
    }
    return differences == 0;
}

/* Whether a pointer still points into the allocation with this number. */
static int is_still_there(const ptxmotion_module *module, const void *argument, uint64_t id)
{
    uint64_t pointer, found = 0;
    void *data = &found;
    memcpy(&pointer, argument, sizeof pointer);
    return !module->driver->pointer_get_attributes(1, &pointer_attributes[ID], &data, pointer) && found == id;
}

/* Whether a memo is that of a launch, and the extents are still those of then. */
static int is_valid(const struct memo *memo, const struct memo_key *key, struct facts *facts)
{
    const ptxmotion_kernel *kernel = facts->kernel;
    if (!is_same_key(&memo->key, key, kernel->read_words))
        return 0;
    uint64_t last = 0;
    for (uint32_t i = 0; i < kernel->read_count; i++) {
        int slot = kernel->parameters[kernel->read[i]].extent;
        if (slot < 0 || memo->states[slot] == NOT_READ)
            continue;
        const struct extent *extent = &memo->extents[slot];
        if (memo->states[slot] == KNOWN && extent->id != 0 && !is_stated(facts, kernel->read[i])) {
            if (extent->id != last && !is_still_there(kernel->module, facts->arguments[kernel->read[i]], extent->id))
                return 0;
            last = extent->id;
            continue;
        }
        int found = extent_of(facts, kernel->read[i]);
        if ((found >= 0) != (memo->states[slot] == KNOWN) ||
            (found >= 0 && (extent->begin != facts->extents[slot].begin || extent->end != facts->extents[slot].end)))
            return 0;
    }
    return 1;
}

/* How many pairs that need another extent an extent suffices for. */
static int pairs_of(const struct facts *facts, uint64_t needed, int slot)
{
    int found = 0;
    for (uint32_t i = 0; i < facts->pair_count; i++) {
        const struct pair *pair = &facts->pairs[i];
        int is_open = !(pair->suffices[0] && needed >> pair->slots[0] & 1) &&
                      !(pair->suffices[1] && needed >> pair->slots[1] & 1);
        found += is_open && ((pair->suffices[0] && pair->slots[0] == slot) ||
                             (pair->suffices[1] && pair->slots[1] == slot));
    }
    return found;
}

/* The extents that are found again for the same launch: those that are needed, and few others, so that there is one for
 * each pair. Where two serve as many pairs, the one whose allocation has a number is preferred, since that is cheaper. */
static uint64_t needed_extents(const struct facts *facts)
{
    uint64_t needed = facts->needed;
    for (;;) {
        int best = -1, most = 0;
        for (int slot = 0; slot < facts->kernel->extent_count; slot++) {
            int pairs = facts->states[slot] == KNOWN ? 2 * pairs_of(facts, needed, slot) : 0;
            pairs += pairs && facts->extents[slot].id != 0;
            if (pairs > most) {
                most = pairs;
                best = slot;
            }
        }
        if (best < 0)
            return needed;
        needed |= 1ull << best;
    }
}

/* Keeps the decision for a launch. `memo` has the reasons. */
static SEPARATE void remember(struct memo *memo, const struct memo_key *key, const struct facts *facts)
{
    const ptxmotion_kernel *kernel = facts->kernel;
    memo->key.serial = 0; /* no module has this number */
    if (facts->is_momentary)
        return;
    /* What the caller states may change without an allocation. */
    uint64_t needed = facts->given != NULL ? UINT64_MAX : needed_extents(facts);
    for (int i = 0; i < kernel->extent_count; i++) {
        memo->states[i] = needed >> i & 1 ? facts->states[i] : NOT_READ;
        if (facts->states[i] == KNOWN)
            memo->extents[i] = facts->extents[i];
    }
    memcpy(&memo->key, key, offsetof(struct memo_key, arguments) + 8 * (size_t)kernel->read_words);
}

/* Finds the version for a launch whose decision is not remembered. `common` is a reason for all versions, or
 * PTXMOTION_TAKEN. Remembers the decision if there is a memo. */
static SEPARATE uint32_t examine_versions(struct facts *facts, int common, int kind, struct decision *decision, int counts,
                                          uint8_t *reasons, struct memo *memo, const struct memo_key *key)
{
    ptxmotion_kernel *kernel = facts->kernel;
    uint32_t last = kernel->version_count - 1, chosen = 0;
    memset(facts->value_states, NOT_READ, kernel->value_count);
    memset(facts->range_states, NOT_READ, kernel->range_count);
    for (; chosen < last; chosen++) {
        uint32_t failed = UINT32_MAX;
        int reason = common;
        if (common == PTXMOTION_TAKEN)
            reason = examine(facts, &kernel->versions[chosen], kind, &decision->config, decision->extra, &failed);
        if (memo != NULL) {
            memo->reasons[chosen] = (uint8_t)reason;
            memo->failed[chosen] = failed;
        }
        if (reasons != NULL)
            reasons[chosen] = (uint8_t)reason;
        if (reason == PTXMOTION_TAKEN)
            break;
        if (counts)
            count(&kernel->versions[chosen], reason, failed);
    }
    if (memo != NULL)
        remember(memo, key, facts);
    if (chosen == last)
        decision->config = *facts->config;
    return chosen;
}

/* Finds the version for a launch. Counts the others if `counts`; writes their reasons if there is room for them. */
static void choose(ptxmotion_kernel *kernel, const ptxmotion_config *config, void **arguments,
                   const ptxmotion_extent *extents, uint32_t flags, struct decision *decision, int counts,
                   uint8_t *reasons)
{
    uint32_t last = kernel->version_count - 1, chosen = 0;
    int kind = config->attribute_count ? kind_of_launch(config) : PLAIN_LAUNCH;
    int common = last ? common_reason(kernel, config, arguments, flags, kind) : PTXMOTION_TAKEN;
    struct facts facts;
    facts.kernel = kernel;
    facts.config = config;
    facts.arguments = arguments;
    facts.given = extents;
    facts.flags = flags;
    facts.is_momentary = 0;
    facts.warps = -2;
    facts.needed = facts.pair_count = 0;
    for (int slot = 0; slot < kernel->extent_count; slot++)
        facts.states[slot] = NOT_READ;
    struct memo_key key;
    struct memo *memo = last && common == PTXMOTION_TAKEN ? memo_of(&facts, &key) : NULL;
    if (memo != NULL && is_valid(memo, &key, &facts)) {
        for (; chosen < last && memo->reasons[chosen] != PTXMOTION_TAKEN; chosen++) {
            if (reasons != NULL)
                reasons[chosen] = memo->reasons[chosen];
            if (counts)
                count(&kernel->versions[chosen], memo->reasons[chosen], memo->failed[chosen]);
        }
        decision->config = *config;
    } else {
        chosen = examine_versions(&facts, common, kind, decision, counts, reasons, memo, &key);
    }
    if (reasons != NULL)
        reasons[chosen] = PTXMOTION_TAKEN;
    decision->version = chosen;
}

void ptxmotion_choose(ptxmotion_kernel *kernel, const ptxmotion_config *config, void **arguments,
                      const ptxmotion_extent *extents, uint32_t flags, ptxmotion_choice *choice, uint8_t *reasons)
{
    struct decision decision;
    choose(kernel, config, arguments, extents, flags, &decision, 0, reasons);
    const struct version *version = &kernel->versions[decision.version];
    *choice = (ptxmotion_choice){decision.version, version->entry, version->handle, decision.config};
}

/* Launches a version with the arguments and the extra ones. */
static int launch_version(ptxmotion_kernel *kernel, struct version *version, struct decision *decision,
                          void **arguments)
{
    const ptxmotion_driver *driver = kernel->module->driver;
    if (version->extra_count == 0)
        return driver->launch_kernel_ex(&decision->config, version->handle, arguments, NULL);
    uint32_t count = kernel->parameter_count;
    void **all = malloc((count + version->extra_count) * sizeof *all);
    if (all == NULL)
        return 2; /* CUDA_ERROR_OUT_OF_MEMORY: the kernel itself is launched */
    if (count)
        memcpy(all, arguments, count * sizeof *all);
    for (uint32_t i = 0; i < version->extra_count; i++)
        all[count + i] = &decision->extra[i];
    int status = driver->launch_kernel_ex(&decision->config, version->handle, all, NULL);
    free(all);
    return status;
}

int ptxmotion_launch_version(ptxmotion_kernel *kernel, const ptxmotion_config *config, void **arguments,
                             const ptxmotion_extent *extents, uint32_t flags)
{
    struct decision decision;
    struct version *original = &kernel->versions[kernel->version_count - 1];
    choose(kernel, config, arguments, extents, flags, &decision, 1, NULL);
    struct version *version = &kernel->versions[decision.version];
    if (version != original) {
        int status = launch_version(kernel, version, &decision, arguments);
        count(version, status ? PTXMOTION_REFUSED : PTXMOTION_TAKEN, UINT32_MAX);
        if (status == 0)
            return 1;
    }
    count(original, PTXMOTION_TAKEN, UINT32_MAX);
    return 0;
}

int ptxmotion_launch(ptxmotion_kernel *kernel, const ptxmotion_config *config, void **arguments,
                     const ptxmotion_extent *extents, uint32_t flags)
{
    void *original = kernel->versions[kernel->version_count - 1].handle;
    if (ptxmotion_launch_version(kernel, config, arguments, extents, flags))
        return 0;
    return kernel->module->driver->launch_kernel_ex(config, original, arguments, NULL);
}

int ptxmotion_launch_packed(ptxmotion_kernel *kernel, const ptxmotion_config *config, void *arguments,
                            const ptxmotion_extent *extents, uint32_t flags)
{
    void *pointers[MAX_PARAMETERS];
    for (uint32_t i = 0; i < kernel->parameter_count; i++)
        pointers[i] = (char *)arguments + kernel->parameters[i].offset;
    return ptxmotion_launch(kernel, config, pointers, extents, flags);
}

/* --- statistics and the rest ------------------------------------------------------------------------------------ */

uint32_t ptxmotion_statistics(const ptxmotion_kernel *kernel, ptxmotion_counts *counts, uint32_t capacity)
{
    for (uint32_t i = 0; i < kernel->version_count && i < capacity; i++) {
        counts[i].entry = kernel->versions[i].entry;
        for (int reason = 0; reason < PTXMOTION_REASONS; reason++)
            counts[i].reasons[reason] = __atomic_load_n(&kernel->versions[i].reasons[reason], __ATOMIC_RELAXED);
    }
    return kernel->version_count;
}

int ptxmotion_condition_counts(const ptxmotion_kernel *kernel, uint32_t version, uint32_t condition, uint64_t counts[2])
{
    if (version >= kernel->version_count || condition >= kernel->versions[version].condition_count)
        return 0;
    const struct condition *found = &kernel->versions[version].conditions[condition];
    for (int i = 0; i < 2; i++)
        counts[i] = __atomic_load_n(&found->counts[i], __ATOMIC_RELAXED);
    return 1;
}

int ptxmotion_abi_version(void)
{
    return PTXMOTION_ABI_VERSION;
}

const char *ptxmotion_message(int status)
{
    static const char *const messages[] = {
        "success",
        "the bytes are no contract",
        "the contract has a version that this library does not read",
        "there is not enough memory",
        "libcuda.so.1 or a function of it is missing",
        "the conditions of a kernel read the extents of more than 64 pointers",
    };
    return status >= 0 && status < (int)(sizeof messages / sizeof *messages) ? messages[status] : "unknown status";
}

const char *ptxmotion_reason_words(int reason)
{
    static const char *const words[PTXMOTION_REASONS] = {
        "taken",
        "a condition is false",
        "a condition is undecidable",
        "not expected to be faster",
        "captured into a graph",
        "a launch attribute",
        "fewer resident blocks",
        "unusable",
        "launch out of range",
        "refused by the driver",
        "the kernel itself is wanted",
    };
    return reason >= 0 && reason < PTXMOTION_REASONS ? words[reason] : "unknown reason";
}
