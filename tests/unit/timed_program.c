/* A program that "launches" kernels: each argument NAME=NANOSECONDS is a launch. It loads the library in
 * CUDA_INJECTION64_PATH like the driver. `fork` as the first argument: a forked process ends without a launch. `kill`:
 * the program ends without exit handlers. `child`: a process of this program launches `child`. STATUS is its exit
 * status. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    const char *path = getenv("CUDA_INJECTION64_PATH"), *cupti = getenv("KERNEL_TIMES_CUPTI"), *status = getenv("STATUS");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    int (*start)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    int is_recorded = start && start();
    void *fake = cupti ? dlopen(cupti, RTLD_NOW) : NULL;
    void (*launch)(const char *, uint64_t) =
        fake ? (void (*)(const char *, uint64_t))dlsym(fake, "fake_launch") : NULL;
    printf("recorded %d\n", is_recorded);
    for (int index = 1; index < count; ++index) {
        if (!strcmp(words[index], "fork")) {
            if (!fork()) exit(0);
            wait(NULL);
            continue;
        }
        if (!strcmp(words[index], "child")) {
            if (!fork()) {
                execl("/proc/self/exe", words[0], "child=2000", NULL);
                _exit(1);
            }
            wait(NULL);
            continue;
        }
        if (!strcmp(words[index], "kill")) _exit(0);
        char *number = strchr(words[index], '=');
        if (!number) return 2;
        *number++ = '\0';
        if (launch) launch(words[index], (uint64_t)atoll(number));
    }
    return status ? atoi(status) : 0;
}
