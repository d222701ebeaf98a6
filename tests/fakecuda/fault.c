/* fault.c -- every call is counted here, and may be made to fail; what is alive is counted as well. For tests. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 256, FAULTS = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    const char   *name;
    unsigned long calls;
} called[NAMES];

static struct {
    char          name[64];
    unsigned long at; /* calls in all when it strikes */
    CUresult      error;
} faults[FAULTS];

static long alive[FAKE_KINDS];

/* Where a name is counted; under the lock. The table is open hashing over the few names there are. */
static unsigned long *counter(const char *name)
{
    unsigned h = 5381;

    for (const char *p = name; *p; p++)
        h = h * 33 + (unsigned char)*p;
    for (unsigned i = 0; i < NAMES; i++) {
        const unsigned at = (h + i) % NAMES;

        if (!called[at].name)
            called[at].name = strdup(name);
        if (called[at].name && !strcmp(called[at].name, name))
            return &called[at].calls;
    }
    abort();
}

static void set_fault(const char *name, size_t length, unsigned long at, CUresult error)
{
    for (int i = 0; i < FAULTS; i++) {
        const bool same = strlen(faults[i].name) == length && !strncmp(faults[i].name, name, length);

        if (!same && faults[i].at)
            continue;
        snprintf(faults[i].name, sizeof(faults[i].name), "%.*s", (int)length, name);
        faults[i].at    = at;
        faults[i].error = error;
        return;
    }
}

void fake_fault_read(const char *list)
{
    while (*list) {
        const size_t  length = strcspn(list, ":");
        unsigned long nth;
        int           error, used = 0;

        if (!length || sscanf(list + length, ":%lu:%d%n", &nth, &error, &used) != 2) {
            fprintf(stderr, "fakecuda: FAKECUDA_FAIL: '%s' does not begin with name:n:error\n", list);
            abort();
        }
        set_fault(list, length, nth, (CUresult)error);
        list += length + (size_t)used;
        list += *list == ',';
    }
}

CUresult fake_fault(const char *name)
{
    CUresult      error = CUDA_SUCCESS;
    unsigned long calls;

    pthread_mutex_lock(&lock);
    calls = ++*counter(name);
    for (int i = 0; i < FAULTS && !error; i++)
        if (faults[i].at == calls && !strcmp(faults[i].name, name)) {
            error        = faults[i].error;
            faults[i].at = 0;
        }
    pthread_mutex_unlock(&lock);
    return error;
}

void fake_count(enum fake_kind kind, int change)
{
    __atomic_add_fetch(&alive[kind], change, __ATOMIC_RELAXED); /* a statistic */
}

__attribute__((visibility("default"))) long fakecuda_alive(enum fake_kind kind)
{
    return kind == FAKE_CONTEXTS ? fake_contexts_alive() : __atomic_load_n(&alive[kind], __ATOMIC_RELAXED);
}

__attribute__((visibility("default"))) unsigned long fakecuda_calls(const char *name)
{
    unsigned long calls;

    pthread_mutex_lock(&lock);
    calls = *counter(name);
    pthread_mutex_unlock(&lock);
    return calls;
}

__attribute__((visibility("default"))) void fakecuda_fail(const char *name, unsigned long nth, CUresult error)
{
    pthread_mutex_lock(&lock);
    set_fault(name, strlen(name), nth ? *counter(name) + nth : 0, error);
    pthread_mutex_unlock(&lock);
}
