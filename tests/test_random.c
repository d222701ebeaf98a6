/* test_random.c -- many operations back to back, chosen at random: what one operation leaves behind must not disturb the next. The seed
 * is printed; TEST_SEED=n repeats a run. */
#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LABS = 4, TOGETHER = 4, MOST = 20000 };

struct session {
    struct rank  *me;
    uint64_t      seed;
    long          operations;
    struct lab    lab[LABS]; /* the whole world, a duplicate, halves by parity, all in reverse order */
    hkt_stream_t *stream;
};

static uint64_t chosen_seed(void)
{
    const char    *text = getenv("TEST_SEED");
    const uint64_t seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* Mostly small, seldom long. */
static size_t random_count(uint64_t random)
{
    const unsigned bits = random % 64 == 0 ? 14 : random % 16 == 0 ? 11 : random % 4 == 0 ? 8 : 5;

    return (random >> 8) % ((1u << bits) + 1);
}

static struct job choose(const struct lab *lab, uint64_t random)
{
    const enum coll coll = (enum coll)((random >> 4) % COLLS);
    const size_t    count = random_count(mix(random));

    return job_random(mix(random ^ 1), coll, (hkt_type_t)((random >> 16) % HKT_TYPES), count, lab->n);
}

/* Guarded memory holds one buffer at a time, so jobs in flight together stay away from it. */
static struct job choose_unguarded(const struct lab *lab, uint64_t random)
{
    struct job j = choose(lab, random);

    for (int s = 0; s < SIDES; s++)
        if (j.memory[s] == GUARD_END || j.memory[s] == GUARD_BEGIN)
            j.memory[s] = PLAIN;
    return j;
}

static void finish(struct session *s, struct running *r, int n)
{
    for (int i = 0; i < n; i++)
        job_check(&r[i]);
    for (int l = 0; l < LABS; l++)
        arena_reset(&s->lab[l].arena);
}

static void several_in_a_group(struct session *s, uint64_t random)
{
    struct running r[TOGETHER];
    const int      n = 1 + (int)(random >> 40) % TOGETHER;

    expect_ok(hkt_group_begin());
    for (int i = 0; i < n; i++) {
        struct lab      *lab = &s->lab[mix(random + (uint64_t)i) % LABS];
        const struct job j   = choose_unguarded(lab, mix(random ^ (uint64_t)i << 7));

        job_start(&r[i], lab, &j, NULL);
    }
    expect_ok(hkt_group_end());
    finish(s, r, n);
}

static void several_on_a_stream(struct session *s, uint64_t random)
{
    struct running r[TOGETHER];
    const int      n = 1 + (int)(random >> 40) % TOGETHER;

    for (int i = 0; i < n; i++) {
        struct lab      *lab = &s->lab[mix(random + (uint64_t)i) % LABS];
        const struct job j   = choose_unguarded(lab, mix(random ^ (uint64_t)i << 7));

        job_start(&r[i], lab, &j, s->stream);
    }
    expect_ok(hkt_stream_synchronize(s->stream));
    finish(s, r, n);
}

/* Everybody sends to somebody `far` away and receives from the other side, several messages of different sizes. */
static void messages(struct session *s, uint64_t random)
{
    struct lab         *lab  = &s->lab[(random >> 20) % LABS];
    const int           far  = (int)((random >> 24) % (uint64_t)lab->n);
    const int           to   = (lab->rank + far) % lab->n, from = (lab->rank + lab->n - far) % lab->n;
    const int           n    = 1 + (int)(random >> 40) % TOGETHER;
    struct span         in[TOGETHER], out[TOGETHER];
    size_t              count[TOGETHER];
    const enum memory   memory = random >> 44 & 1 ? PLAIN : random >> 45 & 1 ? LIBRARY : REGISTERED;
    const struct origin mine   = {HKT_UINT16, ORDINARY, random, 0, lab->n, lab->rank, 0}, theirs = {HKT_UINT16, ORDINARY, random, 0, lab->n, from, 0};

    doing("%d messages to rank %d, from rank %d, n = %d, random %#llx", n, to, from, lab->n, (unsigned long long)random);
    for (int i = 0; i < n; i++) {
        count[i] = random_count(mix(random + (uint64_t)i));
        in[i]    = arena_span(&lab->arena, memory, SEND, count[i] * 2, mix(random) % 5);
        out[i]   = arena_span(&lab->arena, memory, RECV, count[i] * 2, mix(random) % 3);
        fill(&mine, in[i].at, count[i]);
    }
    expect_ok(hkt_group_begin());
    for (int i = 0; i < n; i++) {
        expect_ok(hkt_recv(out[i].at, count[i], HKT_UINT16, from, lab->comm, NULL));
        expect_ok(hkt_send(in[i].at, count[i], HKT_UINT16, to, lab->comm, NULL));
    }
    expect_ok(hkt_group_end());
    for (int i = 0; i < n; i++) {
        expect(differs(&theirs, out[i].at, count[i]) == count[i], "message %d of %zu elements is wrong at element %zu", i, count[i],
               differs(&theirs, out[i].at, count[i]));
        span_check(&out[i], "receive");
    }
    arena_reset(&lab->arena);
}

static void operate(struct session *s, uint64_t random)
{
    struct lab *lab = &s->lab[(random >> 20) % LABS];
    struct job  j;

    switch (random % 20) {
    case 0:
        several_in_a_group(s, random);
        break;
    case 1:
        several_on_a_stream(s, random);
        break;
    case 2:
        messages(s, random);
        break;
    default:
        j = choose(lab, random);
        job_run(lab, &j);
    }
}

static void open_all(struct session *s)
{
    struct rank *me   = s->me;
    const size_t size = (size_t)me->n * MOST * 8 * TOGETHER;
    hkt_comm_t  *comm[LABS] = {me->comm};

    expect_ok(hkt_comm_duplicate(&comm[1], me->comm, NULL));
    expect_ok(hkt_comm_split(&comm[2], me->comm, me->rank % 2, me->rank, NULL));
    expect_ok(hkt_comm_split(&comm[3], comm[1], 0, -me->rank, NULL));
    for (int l = 0; l < LABS; l++)
        lab_open(&s->lab[l], comm[l], size);
    expect(s->lab[3].rank == me->n - 1 - me->rank, "the reversed communicator made rank %d of rank %d", s->lab[3].rank, me->rank);
    expect_ok(hkt_stream_create(&s->stream));
}

static void random_operations(struct rank *me)
{
    struct session *s = calloc(1, sizeof(*s));

    s->me         = me;
    s->seed       = ((const uint64_t *)me->arg)[0];
    s->operations = (long)((const uint64_t *)me->arg)[1];
    open_all(s);
    for (long k = 0; k < s->operations; k++)
        operate(s, mix(s->seed + (uint64_t)k));
    expect_ok(hkt_stream_destroy(s->stream));
    for (int l = LABS - 1; l >= 0; l--) {
        hkt_comm_t *comm = s->lab[l].comm;

        lab_close(&s->lab[l]);
        if (l)
            expect_ok(hkt_comm_destroy(comm));
    }
    free(s);
}

static void run(int n, enum kind kind, uint64_t operations)
{
    uint64_t arg[2] = {chosen_seed(), slow_build() ? operations / 10 : long_tests() ? operations * 10 : operations};

    world_run(&(struct world){.n = n, .kind = kind, .fn = random_operations, .arg = arg, .deadline = long_tests() ? 1500 : 150});
}

/* Proves: 100,000 operations of all kinds back to back on four communicators give right values, ranks being processes. */
START_TEST(random_operations_by_processes)
{
    run(4, PROCESSES, 100000);
}
END_TEST

/* Proves: the same for ranks that are threads, an odd number of them. */
START_TEST(random_operations_by_threads)
{
    run(3, THREADS, 40000);
}
END_TEST

/* Proves: the same with far more ranks than cores. */
START_TEST(random_operations_oversubscribed)
{
    run(7, PROCESSES, 10000);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, random_operations_by_processes, 1, 1600);
    ADD(s, random_operations_by_threads, 1, 1600);
    ADD(s, random_operations_oversubscribed, 1, 1600);
}

int main(void)
{
    return run_suite("random", add);
}
