/* Functions of CUPTI that record launches of `timed_program.c`. Records are 16 bytes longer than those that the library
 * knows, as in later versions of CUPTI. FAKE_CUPTI_DROPPED: how many launches were not recorded. FAKE_CUPTI_STATUS: the
 * status of cuptiActivityEnable. FAKE_CUPTI_SUBSCRIBED: that of cuptiSubscribe. The first launch is reported as the
 * first context, too. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD = 224, KERNEL = 10, NO_MORE = 12, RESOURCE = 3, CONTEXT_CREATED = 1 };

typedef struct {
    const char *name;
    uint64_t nanoseconds;
} launch;

static launch launches[1000];
static unsigned count;
static void (*request)(uint8_t **, size_t *, size_t *);
static void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);

static unsigned number_of(const char *variable) {
    const char *text = getenv(variable);
    return text ? (unsigned)atoi(text) : 0;
}

static void (*callback)(void *, int, uint32_t, const void *);
static int is_enabled;

int cuptiSubscribe(void **subscriber, void *function, void *data) {
    *subscriber = &is_enabled;
    memcpy(&callback, &function, sizeof function);
    return data ? 1 : (int)number_of("FAKE_CUPTI_SUBSCRIBED");
}

int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t what) {
    is_enabled = enable && domain == RESOURCE && what == CONTEXT_CREATED;
    return subscriber == &is_enabled ? 0 : 1;
}

void fake_launch(const char *name, uint64_t nanoseconds) {
    if (!count && is_enabled) callback(NULL, RESOURCE, CONTEXT_CREATED, NULL);
    launches[count++] = (launch){name, nanoseconds};
}

int cuptiActivityRegisterCallbacks(void *first, void *second) {
    memcpy(&request, &first, sizeof first);
    memcpy(&complete, &second, sizeof second);
    return 0;
}

int cuptiActivityEnable(int kind) {
    return kind == KERNEL ? (int)number_of("FAKE_CUPTI_STATUS") : 1;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
    uint8_t *next = *record ? *record + RECORD : buffer;
    if (next + RECORD > buffer + valid) return NO_MORE;
    *record = next;
    return 0;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) {
    (void)context;
    (void)stream;
    *dropped = number_of("FAKE_CUPTI_DROPPED");
    return 0;
}

int cuptiActivityFlushAll(uint32_t flags) {
    (void)flags;
    uint8_t *buffer = NULL;
    size_t size = 0, most = 0;
    request(&buffer, &size, &most);
    memset(buffer, 0, size);
    for (unsigned index = 0; index < count; ++index) {
        uint8_t *record = buffer + (size_t)index * RECORD;
        uint32_t kind = KERNEL;
        uint64_t start = 1000, end = launches[index].nanoseconds ? start + launches[index].nanoseconds : 0;
        int32_t sizes[6] = {4, 1, 1, 128, 1, 1};
        memcpy(record, &kind, sizeof kind);
        memcpy(record + 16, &start, sizeof start);
        memcpy(record + 24, &end, sizeof end);
        memcpy(record + 52, sizes, sizeof sizes);
        memcpy(record + 104, &launches[index].name, sizeof launches[index].name);
    }
    complete(NULL, 0, buffer, size, (size_t)count * RECORD);
    return 0;
}
