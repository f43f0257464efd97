/* Launches versions of kernels in programs that nvcc builds (docs/existing-programs.md, "Checks at the launch").
 *
 * Each object file of the program has the contracts of its kernels in the section `ptxmotion_contracts`: one contract
 * (contract/bytecode.py) for each kernel, aligned to 16 bytes. The names of the versions contain a digest of the module
 * that they were made for. So the entries of a contract are found in a loaded library only if the contract belongs to
 * the image that the driver has chosen.
 *
 * A contract is bound when the kernel is first launched or used, and the code of its versions is loaded then. The
 * driver loads the code of the kernel at the same time. The driver may wait for all running kernels before it loads
 * code. A program that loads its kernels early may rely on not waiting. So nothing is bound later, unless the driver
 * loads all code of a module at once.
 * The driver has no query whether code is loaded: cuKernelGetFunction loads it.
 * Threads share the table of keys, the state of an entry, and counters. A slot of the table is written once, and its
 * array is replaced as a whole. No memory is freed, because a thread may launch while the program exits.
 */
#define _GNU_SOURCE
#include "ptxmotion_cudart.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The linker defines these two. They are absent if no object file has the section. */
extern const uint8_t __start_ptxmotion_contracts[] __attribute__((weak, visibility("hidden")));
extern const uint8_t __stop_ptxmotion_contracts[] __attribute__((weak, visibility("hidden")));

enum { ALIGNMENT = 16, OFFSET_OF_SIZE = 8, OFFSET_OF_NAME = 48, EAGER_LOADING = 1, CAPTURE_RELAXED = 2 };

/* A contract of one kernel. `next`: another one for a kernel of the same name. */
struct contract {
    const uint8_t *bytes;
    uint32_t size;
    const char *name;
    struct contract *next;
};

enum state { UNBOUND = 0, BOUND = 1, UNUSABLE = 2 };

/* Why the kernel itself was launched without an evaluation of conditions. */
enum passed { NO_CONTEXT, CAPTURED, BUSY, LOADED_BEFORE, NO_ENTRIES, NO_KERNEL, PASSED_REASONS };

static const char *const passed_words[PASSED_REASONS] = {
    "no context was current",
    "captured into a graph before a contract was bound",
    "another thread was binding a contract",
    "its code was loaded before a contract could be bound",
    "the loaded image has no versions of it, or the driver is too old",
    "the runtime did not find it",
};

/* A kernel that the program has registered and for which there are contracts. */
struct entry {
    struct entry *next; /* in the list of all */
    const void *function;
    const struct contract *contracts;
    void *kernel; /* the CUkernel, or NULL while it is not known */
    int state;
    int is_binding; /* a thread binds the contract */
    int is_loaded;  /* the program has loaded its code without its versions */
    int why;        /* enum passed, if the state is UNUSABLE */
    ptxmotion_kernel *bound;
    uint64_t passed[PASSED_REASONS];
};

/* From a host function or a CUkernel to its entry; open addressing, less than half full. */
struct table {
    size_t mask, used;
    struct slot {
        const void *key;
        struct entry *entry;
    } slots[];
};

static struct contract **contracts; /* by the hash of the name */
static size_t contract_mask;
static pthread_once_t contracts_once = PTHREAD_ONCE_INIT;
static struct table *table;
static struct entry *entries;
static pthread_mutex_t table_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint32_t launch_flags;
static int wants_statistics;

/* --- contracts of this executable or shared object -------------------------------------------------------------- */

static size_t hash_of(const char *name)
{
    size_t hash = 14695981039346656037u;
    while (*name)
        hash = (hash ^ (uint8_t)*name++) * 1099511628211u;
    return hash ^ hash >> 32;
}

/* Calls `use` for each contract of the section whose head is complete. */
static size_t each_contract(void (*use)(struct contract))
{
    const uint8_t *at = __start_ptxmotion_contracts, *end = __stop_ptxmotion_contracts;
    size_t count = 0;
    while (at != NULL && end > at && (size_t)(end - at) > OFFSET_OF_NAME + 2) {
        uint32_t size;
        uint16_t length;
        memcpy(&size, at + OFFSET_OF_SIZE, sizeof size);
        memcpy(&length, at + OFFSET_OF_NAME, sizeof length);
        if (memcmp(at, "PTXMCT", 6) != 0 || size > (size_t)(end - at) || size < OFFSET_OF_NAME + 3u + length ||
            at[OFFSET_OF_NAME + 2 + length] != 0) {
            at += ALIGNMENT; /* padding of the linker */
            continue;
        }
        if (use != NULL)
            use((struct contract){at, size, (const char *)at + OFFSET_OF_NAME + 2, NULL});
        count++;
        at += (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return count;
}

static void add_contract(struct contract found)
{
    struct contract *kept = malloc(sizeof *kept), **last = &contracts[hash_of(found.name) & contract_mask];
    if (kept == NULL)
        return;
    *kept = found;
    while (*last != NULL) /* the order of the object files, in which a linker of device code chooses, too */
        last = &(*last)->next;
    *last = kept;
}

static void read_settings(void)
{
    char *saved, *words = secure_getenv("PTXMOTION_LAUNCH");
    words = words == NULL ? NULL : strdup(words);
    for (char *word = words ? strtok_r(words, ", ", &saved) : NULL; word; word = strtok_r(NULL, ", ", &saved)) {
        if (strcmp(word, "statistics") == 0)
            wants_statistics = 1;
        else if (strcmp(word, "original") == 0)
            launch_flags |= PTXMOTION_ORIGINAL;
        else if (strcmp(word, "capture") == 0)
            launch_flags |= PTXMOTION_CAPTURE;
        else if (strcmp(word, "mapped-once") == 0)
            launch_flags |= PTXMOTION_MAPPED_ONCE;
        else if (strcmp(word, "always-prefer") == 0)
            launch_flags |= PTXMOTION_ALWAYS_PREFER;
        else
            fprintf(stderr, "ptxmotion: warning: PTXMOTION_LAUNCH: '%s' is not known\n", word);
    }
    free(words);
}

static void read_contracts(void)
{
    size_t count = each_contract(NULL), buckets = 16;
    if (count == 0)
        return;
    read_settings();
    while (buckets < 2 * count)
        buckets *= 2;
    contracts = calloc(buckets, sizeof *contracts);
    contract_mask = buckets - 1;
    if (contracts != NULL)
        each_contract(add_contract);
}

/* The next contract for a kernel, from `found` on. */
static const struct contract *named(const struct contract *found, const char *name)
{
    while (found != NULL && strcmp(found->name, name) != 0)
        found = found->next;
    return found;
}

/* --- the table of kernels --------------------------------------------------------------------------------------- */

static size_t slot_of(const struct table *in, const void *key)
{
    uintptr_t bits = (uintptr_t)key;
    return (size_t)(bits >> 4 ^ bits >> 13) & in->mask;
}

static struct entry *find(const void *key)
{
    struct table *in = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
    if (in == NULL || key == NULL)
        return NULL;
    for (size_t i = slot_of(in, key);; i = (i + 1) & in->mask) {
        const void *found = __atomic_load_n(&in->slots[i].key, __ATOMIC_ACQUIRE);
        if (found == key)
            return __atomic_load_n(&in->slots[i].entry, __ATOMIC_RELAXED);
        if (found == NULL)
            return NULL;
    }
}

/* The slot of a key, or a free one. */
static struct slot *place_of(struct table *in, const void *key)
{
    size_t i = slot_of(in, key);
    while (in->slots[i].key != NULL && in->slots[i].key != key)
        i = (i + 1) & in->mask;
    return &in->slots[i];
}

/* Puts a key into the table. The caller holds `table_mutex`. */
static void put(const void *key, struct entry *entry)
{
    struct table *in = table;
    if (in == NULL || 2 * (in->used + 1) > in->mask) {
        size_t size = in == NULL ? 64 : 2 * (in->mask + 1);
        struct table *larger = calloc(1, sizeof *larger + size * sizeof *larger->slots);
        if (larger == NULL)
            return;
        larger->mask = size - 1;
        for (size_t i = 0; in != NULL && i <= in->mask; i++)
            if (in->slots[i].key != NULL)
                *place_of(larger, in->slots[i].key) = in->slots[i];
        larger->used = in == NULL ? 0 : in->used;
        __atomic_store_n(&table, larger, __ATOMIC_RELEASE); /* the old one stays: a thread may be reading it */
        in = larger;
    }
    struct slot *slot = place_of(in, key);
    in->used += slot->key == NULL;
    __atomic_store_n(&slot->entry, entry, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->key, key, __ATOMIC_RELEASE);
}

void ptxmotion_cudart_registered(const void *function, const char *name)
{
    pthread_once(&contracts_once, read_contracts);
    if (contracts == NULL || name == NULL || function == NULL)
        return;
    const struct contract *found = named(contracts[hash_of(name) & contract_mask], name);
    if (found == NULL)
        return;
    pthread_mutex_lock(&table_mutex);
    struct entry *entry = find(function) == NULL ? calloc(1, sizeof *entry) : NULL;
    if (entry != NULL) {
        entry->function = function;
        entry->contracts = found;
        entry->next = entries;
        __atomic_store_n(&entries, entry, __ATOMIC_RELEASE);
        put(function, entry);
    }
    pthread_mutex_unlock(&table_mutex);
}

void ptxmotion_cudart_has_handle(const void *function, void *kernel)
{
    struct entry *entry = find(function);
    if (entry == NULL || kernel == NULL || find(kernel) == entry)
        return;
    pthread_mutex_lock(&table_mutex);
    __atomic_store_n(&entry->kernel, kernel, __ATOMIC_RELEASE);
    put(kernel, entry);
    pthread_mutex_unlock(&table_mutex);
}

/* --- binding ---------------------------------------------------------------------------------------------------- */

/* Whether the driver loads all code of a module when it loads the module. */
static int is_eager(const ptxmotion_driver *driver)
{
    int mode;
    return driver->module_get_loading_mode != NULL && driver->module_get_loading_mode(&mode) == 0 &&
           mode == EAGER_LOADING;
}

/* Binds the contract whose versions are in the image of a kernel. Returns the new state. */
static enum state bind_contract(struct entry *entry, const ptxmotion_driver *driver, void *kernel)
{
    if (__atomic_load_n(&entry->is_loaded, __ATOMIC_ACQUIRE) && !is_eager(driver)) {
        entry->why = LOADED_BEFORE;
        return UNUSABLE;
    }
    const char *name = entry->contracts->name;
    for (const struct contract *each = entry->contracts; each != NULL; each = named(each->next, name)) {
        ptxmotion_module *module;
        if (ptxmotion_bind_kernel(NULL, each->bytes, each->size, kernel, &module) != PTXMOTION_OK)
            continue;
        ptxmotion_kernel *found = ptxmotion_find(module, name);
        if (found != NULL && ptxmotion_usable(found)) {
            ptxmotion_load(found);
            entry->bound = found;
            return BOUND;
        }
        ptxmotion_unload(module);
    }
    entry->why = NO_ENTRIES;
    return UNUSABLE;
}

/* The bound kernel of an entry in the state UNBOUND. If there is none, NULL, and the reason. `stream` is that of the
 * launch. */
static ptxmotion_kernel *bind_entry(struct entry *entry, ptxmotion_get_kernel *get_kernel, void *stream, int *reason)
{
    const ptxmotion_driver *driver = ptxmotion_libcuda(NULL);
    void *context, *kernel = __atomic_load_n(&entry->kernel, __ATOMIC_ACQUIRE);
    int capture = 0, mode = CAPTURE_RELAXED;
    *reason = NO_ENTRIES;
    if (driver == NULL)
        return NULL;
    if (kernel == NULL && get_kernel != NULL && get_kernel(&kernel, entry->function) == 0)
        ptxmotion_cudart_has_handle(entry->function, kernel);
    *reason = NO_KERNEL;
    if (kernel == NULL)
        return NULL;
    *reason = NO_CONTEXT;
    if (driver->ctx_get_current(&context) || context == NULL)
        return NULL;
    *reason = CAPTURED;
    if (driver->stream_is_capturing(stream, &capture) || capture)
        return NULL;
    *reason = BUSY;
    if (__atomic_exchange_n(&entry->is_binding, 1, __ATOMIC_ACQUIRE))
        return NULL;
    if (__atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) == UNBOUND) {
        /* Another stream may be captured, which forbids some calls in this mode of the thread. */
        int exchanged = driver->thread_exchange_stream_capture_mode != NULL &&
                        driver->thread_exchange_stream_capture_mode(&mode) == 0;
        enum state state = bind_contract(entry, driver, kernel);
        if (exchanged)
            driver->thread_exchange_stream_capture_mode(&mode);
        __atomic_store_n(&entry->state, (int)state, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&entry->is_binding, 0, __ATOMIC_RELEASE);
    *reason = entry->why;
    return entry->bound;
}

/* Notes that the program loads the code of a kernel without its versions. */
static void note_loaded_alone(struct entry *entry, int reason)
{
    if (reason != BUSY)
        __atomic_store_n(&entry->is_loaded, 1, __ATOMIC_RELEASE);
}

int ptxmotion_cudart_launch(const void *key, ptxmotion_get_kernel *get_kernel, const ptxmotion_config *config,
                            void **arguments)
{
    struct entry *entry = find(key);
    if (entry == NULL || launch_flags & PTXMOTION_ORIGINAL)
        return 0;
    int state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE), reason = entry->why;
    ptxmotion_kernel *kernel = NULL;
    if (state == BOUND)
        kernel = entry->bound;
    else if (state == UNBOUND)
        kernel = bind_entry(entry, get_kernel, config->stream, &reason);
    if (kernel != NULL)
        return ptxmotion_launch_version(kernel, config, arguments, NULL, launch_flags);
    note_loaded_alone(entry, reason);
    __atomic_fetch_add(&entry->passed[reason], 1, __ATOMIC_RELAXED);
    return 0;
}

void ptxmotion_cudart_used(const void *function, ptxmotion_get_kernel *get_kernel)
{
    struct entry *entry = find(function);
    void *kernel = NULL;
    int reason = NO_KERNEL;
    if (entry == NULL || launch_flags & PTXMOTION_ORIGINAL ||
        __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) != UNBOUND)
        return;
    /* The runtime makes a context current before it returns the handle. */
    if (get_kernel(&kernel, function) == 0)
        ptxmotion_cudart_has_handle(function, kernel);
    if (kernel == NULL || bind_entry(entry, NULL, NULL, &reason) == NULL)
        note_loaded_alone(entry, reason);
}

int ptxmotion_cudart_attribute(const void *function, int attribute, int *value)
{
    struct entry *entry = find(function);
    const ptxmotion_driver *driver = entry == NULL ? NULL : ptxmotion_libcuda(NULL);
    void *found, *kernel = entry == NULL ? NULL : __atomic_load_n(&entry->kernel, __ATOMIC_ACQUIRE);
    return driver != NULL && kernel != NULL && driver->kernel_get_function != NULL &&
           driver->kernel_get_function(&found, kernel) == 0 &&
           driver->func_get_attribute(value, attribute, found) == 0;
}

void ptxmotion_cudart_changed(const void *function)
{
    for (struct entry *each = __atomic_load_n(&entries, __ATOMIC_ACQUIRE); each != NULL; each = each->next)
        if ((function == NULL || each->function == function) &&
            __atomic_load_n(&each->state, __ATOMIC_ACQUIRE) == BOUND)
            ptxmotion_attributes_changed(each->bound);
}

/* --- statistics ------------------------------------------------------------------------------------------------- */

static void print_version(const ptxmotion_counts *counts)
{
    fprintf(stderr, "  %s:", counts->entry);
    const char *separator = " ";
    for (int reason = 0; reason < PTXMOTION_REASONS; reason++)
        if (counts->reasons[reason]) {
            fprintf(stderr, "%s%s %llu", separator, ptxmotion_reason_words(reason),
                    (unsigned long long)counts->reasons[reason]);
            separator = ", ";
        }
    fprintf(stderr, "%s\n", *separator == ' ' ? " never examined" : "");
}

static void print_entry(const struct entry *entry)
{
    enum { MOST = 64 };
    ptxmotion_counts counts[MOST];
    fprintf(stderr, "ptxmotion: kernel %s\n", entry->contracts->name);
    if (__atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) == UNBOUND)
        fprintf(stderr, "  no version of it was considered\n");
    for (int reason = 0; reason < PASSED_REASONS; reason++)
        if (entry->passed[reason])
            fprintf(stderr, "  the kernel itself: %s %llu\n", passed_words[reason],
                    (unsigned long long)entry->passed[reason]);
    uint32_t found = entry->bound == NULL ? 0 : ptxmotion_statistics(entry->bound, counts, MOST);
    for (uint32_t i = 0; i < found && i < MOST; i++)
        print_version(&counts[i]);
}

__attribute__((destructor)) static void print_statistics(void)
{
    for (const struct entry *each = entries; each != NULL && wants_statistics; each = each->next)
        print_entry(each);
}
