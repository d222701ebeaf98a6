/* memory.c -- allocation with a fault injector. Zeroed, since a struct that starts as zeros has one state fewer to get wrong. */
#include "memory.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local long fail_at;

void hkt_alloc_fail_at(long n)
{
    fail_at = n;
}

int hkt_alloc_check(void)
{
    return fail_at > 0 && --fail_at == 0 ? -1 : 0;
}

static void *checked(void *p, size_t size)
{
    if (!p)
        hkt_fail(HKT_ERR_MEMORY, "out of memory: %zu bytes were asked for", size);
    return p;
}

void *hkt_alloc(size_t size)
{
    return checked(hkt_alloc_check() ? NULL : calloc(1, size ? size : 1), size);
}

void *hkt_alloc_aligned(size_t size, size_t align)
{
    void *p = NULL;

    if (hkt_alloc_check() || posix_memalign(&p, align, size ? size : 1))
        return checked(NULL, size);
    memset(p, 0, size);
    return p;
}

void *hkt_realloc(void *ptr, size_t size)
{
    return checked(hkt_alloc_check() ? NULL : realloc(ptr, size ? size : 1), size);
}

char *hkt_strdup(const char *text)
{
    const size_t n    = strlen(text) + 1;
    char        *copy = hkt_alloc(n);

    return copy ? memcpy(copy, text, n) : NULL;
}

void hkt_free(void *ptr)
{
    free(ptr);
}
