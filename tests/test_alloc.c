/* test_alloc.c -- the N-th allocation of one rank fails, for every N until the whole passes unharmed: the rank is told, the others do not
 * hang, and nothing leaks. Linked with libcore, since the injector is no part of the interface. */
#include "job.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is done with failing allocations. Returns the first error; must undo what it made. */
typedef int attempt_fn(struct rank *me);

struct attempt {
    const char *name;
    attempt_fn *fn;
    bool        collective; /* the others take part and may fail too, with what the victim said */
    bool        again;      /* one call, so that it can be made again when it failed before the others could know */
};

static int attempt_init(struct rank *me)
{
    hkt_comm_t *comm = NULL;
    const int   rc   = hkt_comm_init(&comm, me->n, me->id, me->rank, NULL);

    hkt_alloc_fail_at(0);
    if (rc == HKT_OK)
        expect_ok(hkt_comm_destroy(comm));
    else
        expect(comm == NULL, "the output was written although init failed");
    return rc;
}

static int attempt_split(struct rank *me)
{
    hkt_comm_t *comm = NULL;
    const int   rc   = hkt_comm_split(&comm, me->comm, 0, 0, NULL);

    hkt_alloc_fail_at(0);
    if (rc == HKT_OK)
        expect_ok(hkt_comm_destroy(comm));
    else
        expect(comm == NULL, "the output was written although split failed");
    return rc;
}

/* Collectives of several kinds; every round uses shapes that have not been used before, so plans, staging and maps are made. */
static int attempt_collectives(struct rank *me)
{
    static _Thread_local size_t round;
    const size_t                n  = 100000 + ++round * 64;
    float                      *in = calloc((size_t)me->n, n * 4), *out = calloc((size_t)me->n, n * 4);
    int                         rc = HKT_OK;

    for (int k = 0; k < 6 && rc == HKT_OK; k++) {
        const size_t count = k % 2 ? n : 5 + round;

        if (k / 2 == 0)
            rc = hkt_all_reduce(in, out, count, HKT_FLOAT32, HKT_SUM, me->comm, NULL);
        else if (k / 2 == 1)
            rc = hkt_all_gather(in, out, count, HKT_BFLOAT16, me->comm, NULL);
        else
            rc = hkt_all_to_all(in, out, count, HKT_INT32, me->comm, NULL);
    }
    hkt_alloc_fail_at(0);
    rendezvous(me); /* after an error other threads may still be reading these */
    free(in);
    free(out);
    return rc;
}

static int attempt_v(struct rank *me)
{
    const size_t counts[4] = {10, 2000, 0, 70000};
    char        *in = calloc(4, 80000), *out = calloc(4, 80000);
    int          rc = hkt_all_gather_v(in, out, counts, NULL, HKT_INT16, me->comm, NULL);

    hkt_alloc_fail_at(0);
    free(in);
    free(out);
    return rc;
}

static int attempt_group(struct rank *me)
{
    float x[100] = {0}, y[100];
    int   rc, end;

    expect_ok(hkt_group_begin());
    rc = hkt_send(x, 100, HKT_FLOAT32, (me->rank + 1) % me->n, me->comm, NULL);
    if (rc == HKT_OK)
        rc = hkt_recv(y, 100, HKT_FLOAT32, (me->rank + me->n - 1) % me->n, me->comm, NULL);
    end = hkt_group_end();
    hkt_alloc_fail_at(0);
    return rc ? rc : end;
}

static int attempt_stream(struct rank *me)
{
    hkt_stream_t *stream = NULL;
    hkt_event_t  *event  = NULL;
    float         x      = 1;
    int           rc     = hkt_stream_create(&stream), last;

    if (rc == HKT_OK)
        rc = hkt_event_create(&event);
    if (rc == HKT_OK)
        rc = hkt_event_record(event, stream);
    last = hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, me->comm, rc == HKT_OK ? stream : NULL); /* the others count on it */
    rc   = rc ? rc : last;
    hkt_alloc_fail_at(0);
    last = stream ? hkt_stream_synchronize(stream) : HKT_OK;
    expect_ok(hkt_event_destroy(event));
    expect_ok(hkt_stream_destroy(stream));
    return rc ? rc : last;
}

static int attempt_memory(struct rank *me)
{
    char *mine = malloc(100000);
    void *p = NULL, *handle = NULL;
    int   rc = hkt_mem_alloc(&p, 50000);

    memset(mine, 7, 100000);
    if (rc == HKT_OK)
        rc = hkt_comm_register(&handle, me->comm, mine, 100000);
    hkt_alloc_fail_at(0);
    if (handle)
        expect_ok(hkt_comm_deregister(handle, me->comm));
    expect_ok(hkt_mem_free(p));
    for (int i = 0; i < 100000; i += 77)
        expect_true(mine[i] == 7);
    free(mine);
    return rc;
}

static const struct attempt attempts[] = {
    {"init", attempt_init, true, false},     {"split", attempt_split, true, true},  {"collectives", attempt_collectives, true, false},
    {"v-form", attempt_v, true, true},       {"group", attempt_group, true, true},  {"stream", attempt_stream, true, false},
    {"memory", attempt_memory, false, false},
};
enum { ATTEMPTS = sizeof(attempts) / sizeof(attempts[0]), MOST = 500 };

/* What the ranks tell each other about a round, without the library. */
enum { WAITING = 77 };
struct results {
    _Atomic int code[2][4], failed[2][4];
};

/* How many of the others have returned from their call in this round. */
static int returned(struct rank *me, const struct results *results, int side)
{
    int n = 0;

    for (int r = 0; r < me->n; r++)
        n += r != me->rank && atomic_load(&results->code[side][r]) != WAITING;
    return n;
}

/* The victim's call has failed. When that was before the others could know, they still wait, the communicator lives and the call can be
 * made again; else they have returned, or will soon. */
static int made_again(struct rank *me, const struct attempt *a, int rc, int side)
{
    const double end   = now() + 3;
    int          error = HKT_OK;

    if (rc == HKT_OK || !a->again)
        return rc;
    while (returned(me, me->shared, side) < me->n - 1 && now() < end)
        pause_ms(1);
    expect_ok(hkt_comm_error(me->comm, &error));
    return error || returned(me, me->shared, side) == me->n - 1 ? rc : a->fn(me);
}

/* One round: rank `victim` with its n-th allocation failing. True when none failed. The communicator is made anew when it died. */
static bool one_round(struct rank *me, const struct attempt *a, long n, int victim)
{
    struct results *results = me->shared;
    const int       side    = (int)(n & 1);
    int             rc, error = HKT_OK;
    bool            all_ok = true, failed;

    doing("%s, allocation %ld of rank %d fails", a->name, n, victim);
    atomic_store(&results->code[side][me->rank], WAITING);
    rendezvous(me);
    if (me->rank == victim)
        hkt_alloc_fail_at(n);
    rc = a->fn(me);
    hkt_alloc_fail_at(0);
    failed = rc != HKT_OK;
    if (me->rank == victim)
        rc = made_again(me, a, rc, side);
    if (me->rank == victim)
        expect(rc == HKT_OK || rc == HKT_ERR_MEMORY || rc == HKT_ERR_SYSTEM, "gives %d: %s", rc, hkt_last_error());
    else
        expect(rc <= 0 && (a->collective || rc == HKT_OK), "gives %d: %s", rc, hkt_last_error());
    if (me->rank != victim && a->fn != attempt_init) /* of init: a rank that has not met the others cannot tell them */
        expect(rc != HKT_ERR_TIMEOUT, "was not told, but waited for the deadline: %s", hkt_last_error());
    expect(rc == HKT_OK || *hkt_last_error(), "an error without a sentence");
    atomic_store(&results->code[side][me->rank], rc);
    atomic_store(&results->failed[side][me->rank], failed);
    rendezvous(me);
    for (int r = 0; r < me->n; r++)
        all_ok &= atomic_load(&results->code[side][r]) == HKT_OK;
    if (me->rank != victim && rc < 0 && atomic_load(&results->code[side][victim]) < 0) {
        char text[32];

        snprintf(text, sizeof(text), a->fn == attempt_init && rc == HKT_ERR_TIMEOUT ? ": %d" : "rank %d", victim);
        expect_said(text);
    }
    if (me->comm)
        expect_ok(hkt_comm_error(me->comm, &error));
    if (!all_ok && me->comm) { /* some of its ranks may have died with the call: begin afresh */
        expect_ok(hkt_comm_destroy(me->comm));
        expect_ok(hkt_comm_init(&me->comm, me->n, me->id, me->rank, NULL));
    }
    return !atomic_load(&results->failed[side][victim]) && all_ok;
}

/* Fails allocation 1, 2, 3 ... on a new communicator until a round is unharmed; returns how many were made to fail. */
static long pass(struct rank *me, const struct attempt *a)
{
    long n = 1;

    if (a->fn != attempt_init)
        expect_ok(hkt_comm_init(&me->comm, me->n, me->id, me->rank, NULL));
    for (; !one_round(me, a, n, 1); n++)
        expect(n < MOST, "still failing at allocation %ld", n);
    if (me->comm)
        expect_ok(hkt_comm_destroy(me->comm));
    rendezvous(me);
    return n - 1;
}

/* Descriptors and mappings of the process; ranks that share it look one at a time. */
static void look(struct rank *me, int *descriptors, int *mapped)
{
    rendezvous(me);
    for (int r = 0; r < me->n; r++) {
        if (r == me->rank) {
            *descriptors = open_descriptors();
            *mapped      = mappings();
        }
        rendezvous(me);
    }
}

/* Twice, since some things are allocated once a process; what the second pass leaves behind is a leak. */
static void every_allocation(struct rank *me)
{
    const struct attempt *a     = me->arg;
    const long            first = pass(me, a);
    int                   descriptors[2] = {0}, mapped[2] = {0};

    expect_true(first > 0);
    look(me, &descriptors[0], &mapped[0]);
    pass(me, a);
    look(me, &descriptors[1], &mapped[1]);
    expect(descriptors[1] <= descriptors[0], "%d descriptors became %d", descriptors[0], descriptors[1]);
    expect(slow_build() || mapped[1] <= mapped[0] + 4, "%d mappings became %d", mapped[0], mapped[1]);
    if (me->rank == 0)
        printf("%s: %ld allocations made to fail\n", a->name, first);
}

/* Proves: whichever allocation fails on one rank, that rank gets HKT_ERR_MEMORY with a sentence; then either the others get an error that
 * names it, or they know nothing yet and the call can be made again with success; nobody hangs, and neither descriptors nor mappings leak (memory: under AddressSanitizer). */
START_TEST(C24_every_allocation_fails_once)
{
    world_run(&(struct world){.n = 3, .kind = _i % 2, .fn = every_allocation, .arg = (void *)(uintptr_t)&attempts[_i / 2], .bare = true, .deadline = 100,
                              .environment = {"HKT_INIT_TIMEOUT=2", "HKT_TIMEOUT=15"}});
}
END_TEST

static void add(Suite *s)
{
    ADD(s, C24_every_allocation_fails_once, 2 * ATTEMPTS, 120);
}

int main(void)
{
    return run_suite("alloc", add);
}
