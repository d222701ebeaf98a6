/* arena.c -- see arena.h. */
#include "arena.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const char *const memory_name[MEMORIES] = {"plain", "guard behind", "guard before", "hkt_mem_alloc", "registered"};

static void guarded(struct region *r, size_t size)
{
    const size_t page  = (size_t)sysconf(_SC_PAGESIZE);
    const size_t whole = (size + page - 1) / page * page;

    r->map = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect_true(r->map != MAP_FAILED);
    expect_true(mprotect(r->map + page, whole, PROT_READ | PROT_WRITE) == 0);
    r->base = r->map + page;
    r->size = whole;
}

static void make_region(struct region *r, enum memory memory, size_t size, hkt_comm_t *comm)
{
    r->size = size;
    switch (memory) {
    case GUARD_END:
    case GUARD_BEGIN:
        guarded(r, size);
        break;
    case LIBRARY: {
        void *p;

        expect_ok(hkt_mem_alloc(&p, size));
        r->base = p;
        break;
    }
    case PLAIN:
    case REGISTERED:
    default:
        r->size = size < 16384 ? 16384 : size; /* registering takes whole pages */
        expect_true(posix_memalign((void **)&r->base, 64, r->size) == 0);
        memset(r->base, 0, r->size);
        if (memory == REGISTERED && comm)
            expect_ok(hkt_comm_register(&r->handle, comm, r->base, r->size));
    }
}

void arena_make(struct arena *a, hkt_comm_t *comm, size_t size)
{
    memset(a, 0, sizeof(*a));
    a->comm = comm;
    for (int m = 0; m < MEMORIES; m++)
        for (int s = 0; s < SIDES; s++)
            make_region(&a->region[m][s], m, size + 4 * MARGIN, comm);
}

void arena_free(struct arena *a)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (int m = 0; m < MEMORIES; m++)
        for (int s = 0; s < SIDES; s++) {
            struct region *r = &a->region[m][s];

            if (r->handle)
                expect_ok(hkt_comm_deregister(r->handle, a->comm));
            if (m == LIBRARY)
                expect_ok(hkt_mem_free(r->base));
            else if (r->map)
                munmap(r->map, r->size + 2 * page);
            else
                free(r->base);
        }
}

void arena_reset(struct arena *a)
{
    for (int m = 0; m < MEMORIES; m++)
        for (int s = 0; s < SIDES; s++)
            a->region[m][s].used = 0;
}

struct span arena_span(struct arena *a, enum memory memory, enum side side, size_t size, size_t shift)
{
    struct region *r = &a->region[memory][side];
    struct span    s = {NULL, size, 0, 0};

    if (memory == GUARD_END || memory == GUARD_BEGIN) {
        const size_t spare = r->size - size;

        expect(size <= r->size, "the arena is too small for %zu bytes", size);
        s.at    = memory == GUARD_END ? r->base + spare : r->base;
        s.below = memory == GUARD_END ? (spare < MARGIN ? spare : MARGIN) : 0;
        s.above = memory == GUARD_BEGIN ? (spare < MARGIN ? spare : MARGIN) : 0;
    } else {
        const size_t begin = (r->used + 63) / 64 * 64 + MARGIN + shift;

        expect(begin + size + MARGIN <= r->size, "the arena is too small for %zu bytes", size);
        s       = (struct span){r->base + begin, size, MARGIN, MARGIN};
        r->used = begin + size + MARGIN;
    }
    memset(s.at - s.below, UNTOUCHED, s.below + size + s.above);
    return s;
}

bool untouched(const char *at, size_t size)
{
    return size == 0 || ((unsigned char)at[0] == UNTOUCHED && memcmp(at, at + 1, size - 1) == 0);
}

void span_check(const struct span *s, const char *what)
{
    if (!s->at)
        return;
    expect(untouched(s->at - s->below, s->below), "bytes before the %s buffer were written", what);
    expect(untouched(s->at + s->size, s->above), "bytes behind the %s buffer were written", what);
}
