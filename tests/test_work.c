/* test_work.c -- groups, streams, events, messages, and memory that is registered: the ways to have work done beside or together. */
#include "job.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- groups */

static void grouped(struct rank *me)
{
    hkt_comm_t *other, *c = me->comm;
    const int   right = (me->rank + 1) % me->n, left = (me->rank + me->n - 1) % me->n;
    const float many[4000] = {[0] = (float)me->rank, [3999] = 5};
    float       got[4000] = {0}, x = 1, y = 2, self = 0;

    expect_ok(hkt_comm_duplicate(&other, c, NULL));
    for (int round = 0; round < 200; round++) {
        x = 1;
        y = 2;
        memset(got, 0, sizeof(got));
        expect_ok(hkt_group_begin());
        expect_ok(hkt_send(many, 4000, HKT_FLOAT32, right, c, NULL)); /* every rank sends first: only a group can do that */
        expect_ok(hkt_group_begin());                                 /* groups nest */
        expect_ok(hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, other, NULL));
        expect_ok(hkt_group_end());
        expect_ok(hkt_send(&y, 1, HKT_FLOAT32, me->rank, c, NULL)); /* to itself */
        expect_ok(hkt_recv(got, 4000, HKT_FLOAT32, left, c, NULL));
        expect_ok(hkt_recv(&self, 1, HKT_FLOAT32, me->rank, c, NULL));
        expect(x == 1 && got[3999] == 0, "work of a group was done before its end");
        expect_ok(hkt_group_end());
        expect(x == (float)me->n && self == 2, "the group gives %g and %g", (double)x, (double)self);
        expect(got[0] == (float)left && got[3999] == 5, "from rank %d comes %g", left, (double)got[0]);
    }
    expect_ok(hkt_comm_destroy(other));
}

/* Proves: what is in a group starts at its outermost end and progresses together: sends before receives, several communicators, itself. */
START_TEST(groups_progress_together)
{
    world(1 + _i / 2, _i % 2, grouped, NULL);
}
END_TEST

static void group_mistakes(struct rank *me)
{
    hkt_comm_t *made = (void *)me;
    float       x = 1, y = 1;

    expect_code(hkt_group_end(), HKT_ERR_USAGE);
    for (int round = 0; round < 3; round++) {
        x = y = 1;
        expect_ok(hkt_group_begin());
        expect_code(hkt_comm_init(&made, me->n, me->id, me->rank, NULL), HKT_ERR_USAGE);
        expect_said("group");
        expect_true(made == (void *)me);
        expect_code(hkt_comm_duplicate(&made, me->comm, NULL), HKT_ERR_USAGE);
        expect_ok(hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, me->comm, NULL));
        (void)hkt_group_end(); /* whether a refused init cancels the group is not promised; the next one must work */

        expect_ok(hkt_barrier(me->comm, NULL));
        x = y = 1;
        expect_ok(hkt_group_begin());
        expect_ok(hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, me->comm, NULL));
        expect_code(hkt_all_reduce(&y, &y, 1, (hkt_type_t)99, HKT_SUM, me->comm, NULL), HKT_ERR_ARGUMENT);
        expect_code(hkt_group_end(), HKT_ERR_ARGUMENT);
        expect(x == 1 && y == 1, "a group with an invalid call was started");
        expect_code(hkt_group_end(), HKT_ERR_USAGE);

        expect_ok(hkt_group_begin());
        expect_ok(hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, me->comm, NULL));
        expect_ok(hkt_group_end());
        expect_true(x == (float)me->n);
        expect_ok(hkt_group_begin()); /* an empty one */
        expect_ok(hkt_group_end());
    }
}

/* Proves: init in a group, an end without a begin and an invalid call in a group say what is wrong; the next group works. */
START_TEST(C40_group_mistakes)
{
    world(2, _i, group_mistakes, NULL);
}
END_TEST

/* ---- messages */

static void exchange(struct rank *me)
{
    static const size_t sizes[] = {0, 1, 39, 40, 41, 1000, 16384, 16385, 70000, 1 << 20, 3000001};
    struct arena        arena;
    unsigned            k = 0;

    arena_make(&arena, me->comm, 3000001);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (int m = 0; m < MEMORIES * MEMORIES; m++, k++) {
            const struct origin from = {HKT_UINT8, ORDINARY, k, 0, 2, 0, 0};
            const bool          sends = me->rank == (int)(k % 2);
            struct span         span = arena_span(&arena, sends ? m % MEMORIES : m / MEMORIES, SEND, sizes[s], k % 9);

            doing("message of %zu bytes from %s to %s", sizes[s], memory_name[m % MEMORIES], memory_name[m / MEMORIES]);
            if (sends) {
                fill(&from, span.at, sizes[s]);
                expect_ok(hkt_send(span.at, sizes[s], HKT_UINT8, 1 - me->rank, me->comm, NULL));
            } else {
                expect_ok(hkt_recv(span.at, sizes[s], HKT_UINT8, 1 - me->rank, me->comm, NULL));
            }
            expect(differs(&from, span.at, sizes[s]) == sizes[s], "byte %zu is wrong", differs(&from, span.at, sizes[s]));
            span_check(&span, "message");
            arena_reset(&arena);
        }
    arena_free(&arena);
}

/* Proves: messages of every size class between every two kinds of memory arrive whole and write nothing more. */
START_TEST(messages_of_every_size)
{
    world(2, _i, exchange, NULL);
}
END_TEST

static void in_order(struct rank *me)
{
    enum { MANY = 2000 };

    for (int round = 0; round < 10; round++) { /* more messages than fit between two ranks; receiver late by turns */
        for (int k = 0; k < MANY; k++) {
            int x[30] = {k, [29] = -k};

            if (me->rank == 0) {
                expect_ok(hkt_send(x, k % 2 ? 30 : 1, HKT_INT32, 1, me->comm, NULL));
            } else {
                memset(x, 0, sizeof(x));
                expect_ok(hkt_recv(x, k % 2 ? 30 : 1, HKT_INT32, 0, me->comm, NULL));
                expect(x[0] == k && x[29] == (k % 2 ? -k : 0), "message %d is %d ... %d", k, x[0], x[29]);
            }
        }
        rendezvous(me);
    }
}

/* Proves: messages arrive in the order sent, many more of them than there is room for. */
START_TEST(messages_in_order)
{
    world(2, _i, in_order, NULL);
}
END_TEST

/* ---- streams and events */

static void on_streams(struct rank *me)
{
    enum { N = 50000 };
    hkt_stream_t *one, *two;
    hkt_event_t  *event;
    hkt_comm_t   *other;
    float        *x = malloc(N * sizeof(*x)), *y = malloc(N * sizeof(*y));

    expect_ok(hkt_comm_duplicate(&other, me->comm, NULL));
    expect_ok(hkt_stream_create(&one));
    expect_ok(hkt_stream_create(&two));
    expect_ok(hkt_event_create(&event));
    expect_ok(hkt_event_synchronize(event)); /* never recorded: complete */
    expect_ok(hkt_event_query(event));
    expect_ok(hkt_stream_query(one));
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < N; i++)
            x[i] = 1;
        for (int k = 0; k < 3; k++) /* in the order of the stream: n, n * n, n * n * n */
            expect_ok(hkt_all_reduce(x, x, N, HKT_FLOAT32, HKT_SUM, me->comm, one));
        expect_ok(hkt_event_record(event, one));
        expect_ok(hkt_stream_wait_event(two, event));
        expect_ok(hkt_all_reduce(x, y, N, HKT_FLOAT32, HKT_SUM, other, two));
        if (round % 3 == 0)
            expect_ok(hkt_event_synchronize(event));
        expect_ok(hkt_stream_synchronize(two));
        expect_ok(hkt_event_query(event));
        for (int i = 0; i < N; i += 617)
            expect(x[i] == (float)(me->n * me->n * me->n) && y[i] == x[i] * (float)me->n, "element %d is %g and %g", i, (double)x[i], (double)y[i]);
        expect_ok(hkt_stream_synchronize(one));
    }
    expect_ok(hkt_all_reduce(x, x, N, HKT_FLOAT32, HKT_MAX, me->comm, one));
    expect_ok(hkt_stream_destroy(one)); /* finishes its work */
    expect_ok(hkt_stream_destroy(two));
    expect_ok(hkt_stream_destroy(NULL));
    expect_ok(hkt_event_destroy(event));
    expect_ok(hkt_comm_destroy(other));
    free(x);
    free(y);
}

/* Proves: work on a stream runs in order, events order streams, synchronize and destroy finish it. */
START_TEST(streams_and_events)
{
    world(1 + _i / 2, _i % 2, on_streams, NULL);
}
END_TEST

static void computing(struct rank *me)
{
    const size_t    n = 4 << 20;
    hkt_stream_t   *stream;
    float          *x = malloc(n * sizeof(*x));
    volatile double work = 1;
    double          end;

    for (size_t i = 0; i < n; i++)
        x[i] = 1;
    expect_ok(hkt_stream_create(&stream));
    expect_ok(hkt_barrier(me->comm, NULL));
    expect_ok(hkt_all_reduce(x, x, n, HKT_FLOAT32, HKT_SUM, me->comm, stream));
    end = now() + 20;
    while (__atomic_load_n((const uint32_t *)&x[n - 1], __ATOMIC_RELAXED) == 0x3f800000u || __atomic_load_n((const uint32_t *)&x[0], __ATOMIC_RELAXED) == 0x3f800000u) {
        for (int i = 0; i < 10000; i++)
            work = work * 1.0000001;
        expect(now() < end, "the stream makes no progress while its owner computes");
    }
    expect_ok(hkt_stream_synchronize(stream));
    expect_ok(hkt_stream_destroy(stream));
    free(x);
}

/* Proves: work on a stream progresses while its owner computes and makes no call of the library. */
START_TEST(streams_progress_by_themselves)
{
    if (!slow_build()) /* looks at memory that another thread writes, which ThreadSanitizer rightly reports */
        world(2, _i, computing, NULL);
}
END_TEST

static void many_streams(struct rank *me)
{
    enum { STREAMS = 8, EACH = 100 };
    hkt_stream_t *stream[STREAMS];
    hkt_comm_t   *comm[STREAMS];
    int64_t       x[STREAMS][EACH];

    for (int s = 0; s < STREAMS; s++) {
        expect_ok(hkt_comm_duplicate(&comm[s], me->comm, NULL));
        expect_ok(hkt_stream_create(&stream[s]));
    }
    for (int k = 0; k < EACH; k++)
        for (int i = 0; i < STREAMS; i++) {
            const int s = me->rank % 2 ? STREAMS - 1 - i : i; /* ranks start the communicators' work in different orders */

            x[s][k] = s * 1000 + k;
            expect_ok(hkt_all_reduce(&x[s][k], &x[s][k], 1, HKT_INT64, HKT_SUM, comm[s], stream[s]));
        }
    for (int s = 0; s < STREAMS; s++) {
        expect_ok(hkt_stream_synchronize(stream[s]));
        for (int k = 0; k < EACH; k++)
            expect(x[s][k] == (s * 1000 + k) * me->n, "stream %d, call %d gives %lld", s, k, (long long)x[s][k]);
    }
    for (int s = 0; s < STREAMS; s++) {
        expect_ok(hkt_stream_destroy(stream[s]));
        expect_ok(hkt_comm_destroy(comm[s]));
    }
}

/* Proves: streams with communicators of their own do not wait for one another, in whatever order ranks start them. */
START_TEST(streams_are_independent)
{
    world(3, _i, many_streams, NULL);
}
END_TEST

static void group_on_stream(struct rank *me)
{
    hkt_stream_t *stream;
    float         x = 1, in = (float)me->rank, out = -1;

    expect_ok(hkt_stream_create(&stream));
    for (int k = 0; k < 100; k++) {
        x = 1;
        expect_ok(hkt_group_begin());
        expect_ok(hkt_send(&in, 1, HKT_FLOAT32, (me->rank + 1) % me->n, me->comm, stream));
        expect_ok(hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, me->comm, stream));
        expect_ok(hkt_recv(&out, 1, HKT_FLOAT32, (me->rank + me->n - 1) % me->n, me->comm, stream));
        expect_ok(hkt_group_end());
        expect_ok(hkt_stream_synchronize(stream));
        expect_true(x == (float)me->n && out == (float)((me->rank + me->n - 1) % me->n));
    }
    expect_ok(hkt_stream_destroy(stream));
}

/* Proves: a group may be on a stream. */
START_TEST(groups_on_streams)
{
    world(3, _i, group_on_stream, NULL);
}
END_TEST

/* Work of the program on a stream: doubles a number, then sums it over the ranks. */
struct doubling {
    hkt_comm_t *comm;
    int64_t     value;
    int         times;
};

static int doubled_sum(void *arg)
{
    struct doubling *d = arg;

    if (d->times++ == 3)
        return hkt_error_set(HKT_ERR_SYSTEM, "the %drd time is once too often", d->times - 1);
    d->value *= 2;
    return hkt_all_reduce(&d->value, &d->value, 1, HKT_INT64, HKT_SUM, d->comm, NULL);
}

static void functions_on_stream(struct rank *me)
{
    hkt_stream_t   *stream;
    struct doubling d = {.value = 1};
    const int64_t   n = me->n;

    expect_ok(hkt_comm_duplicate(&d.comm, me->comm, NULL));
    expect_ok(hkt_stream_create(&stream));
    expect_ok(hkt_stream_call(stream, doubled_sum, &d));
    expect_ok(hkt_all_reduce(&d.value, &d.value, 1, HKT_INT64, HKT_SUM, me->comm, stream));
    expect_ok(hkt_stream_call(stream, doubled_sum, &d));
    expect_ok(hkt_stream_synchronize(stream));
    expect(d.value == 4 * n * n * n && d.times == 2, "two functions around a sum give %lld", (long long)d.value);
    expect_ok(hkt_stream_call(stream, doubled_sum, &d));
    expect_ok(hkt_stream_call(stream, doubled_sum, &d));
    expect_code(hkt_stream_synchronize(stream), HKT_ERR_SYSTEM);
    expect_said("once too often");
    expect_ok(hkt_stream_synchronize(stream));
    expect_code(hkt_stream_call(NULL, doubled_sum, &d), HKT_ERR_ARGUMENT);
    expect_code(hkt_stream_call(stream, NULL, &d), HKT_ERR_ARGUMENT);
    expect_ok(hkt_group_begin());
    expect_code(hkt_stream_call(stream, doubled_sum, &d), HKT_ERR_USAGE);
    expect_ok(hkt_group_end());
    expect_ok(hkt_stream_destroy(stream));
    expect_ok(hkt_comm_destroy(d.comm));
}

/* Proves: a function on a stream runs in the stream's order, may communicate, and its error is the stream's. */
START_TEST(functions_on_streams)
{
    world(1 + _i / 2, _i % 2, functions_on_stream, NULL);
}
END_TEST

static void mismatch_on_stream(struct rank *me)
{
    hkt_stream_t *stream;
    float         x[8] = {0};

    expect_ok(hkt_stream_create(&stream));
    expect_ok(hkt_all_reduce(x, x, me->rank ? 4 : 5, HKT_FLOAT32, HKT_SUM, me->comm, stream));
    expect_code(hkt_stream_synchronize(stream), HKT_ERR_MISMATCH);
    expect_said("5");
    expect_ok(hkt_stream_synchronize(stream)); /* told once */
    x[0] = 1;
    expect_ok(hkt_all_reduce(x, x, 1, HKT_FLOAT32, HKT_SUM, me->comm, stream));
    expect_ok(hkt_stream_synchronize(stream));
    expect_true(x[0] == 2);
    expect_ok(hkt_stream_destroy(stream));
}

/* Proves: an error of work on a stream is told by the next synchronize, once, with its sentence. */
START_TEST(C45_mismatch_on_a_stream)
{
    world(2, _i, mismatch_on_stream, NULL);
}
END_TEST

/* ---- registered memory */

static void adopt(struct rank *me)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 40 * page + 123;
    char        *map = mmap(NULL, 60 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at = map + 57;
    void        *handle, *again = me;
    int          rc;

    expect_true(map != MAP_FAILED);
    for (size_t i = 0; i < 60 * page; i++)
        map[i] = (char)mix(i);
    for (int round = 0; round < 20; round++) {
        expect_ok(hkt_comm_register(&handle, me->comm, at, size));
        for (size_t i = 0; i < 60 * page; i += 61)
            expect(map[i] == (char)mix(i), "registering changed byte %zu", i);
        expect_ok(hkt_broadcast(at, at, size, HKT_INT8, 0, me->comm, NULL));
        expect_ok(hkt_comm_deregister(handle, me->comm));
        for (size_t i = 0; i < 60 * page; i += 61)
            expect(map[i] == (char)mix(i), "deregistering changed byte %zu", i);
        expect_ok(hkt_broadcast(at, at, size, HKT_INT8, me->n - 1, me->comm, NULL));
    }
    expect_code(hkt_comm_deregister(handle, me->comm), HKT_ERR_ARGUMENT);
    rc = hkt_comm_register(&handle, me->comm, at, 10); /* not one whole page */
    expect(rc == HKT_OK || rc == HKT_ERR_UNSUPPORTED, "registering less than a page gives %d", rc);
    if (rc == HKT_OK)
        expect_ok(hkt_comm_deregister(handle, me->comm));
    munmap(map, 60 * page);
    map = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    expect_code(hkt_comm_register(&again, me->comm, map, 4 * page), HKT_ERR_UNSUPPORTED);
    expect_true(again == (void *)me);
    munmap(map, 4 * page);
    map = mmap(NULL, 4 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect_true(hkt_comm_register(&again, me->comm, map, 4 * page) < 0);
    munmap(map, 4 * page);
    expect_true(hkt_comm_register(&again, me->comm, map, 4 * page) < 0); /* not mapped at all */
    expect_code(hkt_comm_register(&again, me->comm, NULL, 5), HKT_ERR_ARGUMENT);
}

/* Proves: registering and deregistering keep the contents; memory that cannot be adopted is refused and stays as it is. */
START_TEST(register_keeps_contents)
{
    world(2, _i, adopt, NULL);
}
END_TEST

static void freed_and_new(struct rank *me)
{
    for (uint64_t k = 0; k < 300; k++) { /* the same addresses come back as other memory; nobody may remember the old */
        const size_t        n = 1000 + mix(k) % 60000;
        const struct origin sum = {HKT_INT32, ORDINARY, k, HKT_SUM, me->n, EVERYBODY, 0}, mine = {HKT_INT32, ORDINARY, k, HKT_SUM, me->n, me->rank, 0};
        const bool          plain = (k + (uint64_t)me->rank) % 3 == 0;
        void               *x;

        if (plain)
            x = malloc(n * 4);
        else
            expect_ok(hkt_mem_alloc(&x, n * 4));
        fill(&mine, x, n);
        expect_ok(hkt_all_reduce(x, x, n, HKT_INT32, HKT_SUM, me->comm, NULL));
        expect(differs(&sum, x, n) == n, "round %llu is wrong at element %zu", (unsigned long long)k, differs(&sum, x, n));
        if (plain)
            free(x);
        else
            expect_ok(hkt_mem_free(x));
    }
}

/* Proves: memory that is freed and allocated anew between calls, at addresses that come back, gives right results. */
START_TEST(memory_comes_and_goes)
{
    world(3, _i, freed_and_new, NULL);
}
END_TEST

static void library_memory(struct rank *me)
{
    char *p, *q;

    expect_ok(hkt_mem_free(NULL));
    expect_ok(hkt_mem_alloc((void **)&p, 0));
    expect_ok(hkt_mem_free(p));
    expect_ok(hkt_mem_alloc((void **)&p, 100001));
    expect_true((uintptr_t)p % (uintptr_t)sysconf(_SC_PAGESIZE) == 0);
    for (size_t i = 0; i < 100001; i++)
        expect_true(p[i] == 0);
    expect_ok(hkt_mem_alloc((void **)&q, 100001));
    p[100000] = (char)me->rank;
    expect_ok(hkt_broadcast(p + 100000, p + 100000, 1, HKT_INT8, me->n - 1, me->comm, NULL));
    expect_true(p[100000] == me->n - 1 && q[100000] == 0);
    expect_ok(hkt_mem_free(p));
    expect_code(hkt_mem_free(p), HKT_ERR_ARGUMENT);
    expect_ok(hkt_mem_free(q));
}

/* Proves: library memory is zero, page-aligned, usable from its middle, and refused when it is freed twice. */
START_TEST(library_memory_is_as_promised)
{
    world(2, _i, library_memory, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, groups_progress_together, 8, 60);
    ADD(s, C40_group_mistakes, 2, 30);
    ADD(s, messages_of_every_size, 2, 60);
    ADD(s, messages_in_order, 2, 60);
    ADD(s, streams_and_events, 6, 60);
    ADD(s, streams_progress_by_themselves, 2, 60);
    ADD(s, streams_are_independent, 2, 60);
    ADD(s, groups_on_streams, 2, 30);
    ADD(s, functions_on_streams, 6, 30);
    ADD(s, C45_mismatch_on_a_stream, 2, 30);
    ADD(s, register_keeps_contents, 2, 30);
    ADD(s, memory_comes_and_goes, 2, 60);
    ADD(s, library_memory_is_as_promised, 2, 30);
}

int main(void)
{
    return run_suite("work", add);
}
