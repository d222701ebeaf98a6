/* test_collectives.c -- every collective gives what hocket.h says it gives: for every type, operator, size class and rank count, on every
 * kind of memory, in place and out of place, for ranks that are threads and ranks that are processes. */
#include "job.h"

/* Elements. Chosen about the places where the library changes its way: a word, a cache line, an eager buffer, a staging slice. */
static const size_t size_classes[] = {1, 5, 10, 63, 700, 4100, 20011};
enum { SIZE_CLASSES = sizeof(size_classes) / sizeof(size_classes[0]), LONG = 150001 };

static uint64_t serial(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return mix(a ^ mix(b ^ mix(c ^ mix(d))));
}

/* ---- every collective x type x operator x size class, n = 1 to 9 */

static void run_sizes(struct lab *lab, enum coll coll, hkt_type_t type, int op)
{
    for (int s = 0; s <= SIZE_CLASSES; s++) {
        const uint64_t random = serial((uint64_t)coll, (uint64_t)type, (uint64_t)op, (uint64_t)(s * 64 + lab->n));
        struct job     j;

        if (s == SIZE_CLASSES && (random >> 60) > (long_tests() ? 15 : 0)) /* the long ones cost most: a sixteenth of them */
            continue;
        j    = job_random(random, coll, type, s < SIZE_CLASSES ? size_classes[s] : LONG, lab->n);
        j.op = op;
        job_run(lab, &j);
    }
}

static void everything(struct rank *me)
{
    struct lab lab;

    lab_open(&lab, me->comm, (size_t)me->n * (LONG + 4) * 8);
    for (enum coll coll = 0; coll < COLLS; coll++)
        for (hkt_type_t type = 0; type < HKT_TYPES; type++)
            for (int op = 0; op < (coll_reduces(coll) ? OP_COUNT : 1); op++)
                run_sizes(&lab, coll, type, op);
    lab_close(&lab);
}

/* Proves: results of every collective, type, operator and size class are right to the bit, n = 1 to 9, threads and processes. */
START_TEST(every_collective_type_operator_size)
{
    world_run(&(struct world){.n = 1 + _i % 9, .kind = _i / 9, .fn = everything, .deadline = 110});
}
END_TEST

/* ---- every rank count to 40 */

static void one_type(struct rank *me)
{
    static const size_t counts[] = {1, 63, 700, 6001};
    struct lab          lab;

    lab_open(&lab, me->comm, (size_t)me->n * 6100 * 4);
    for (enum coll coll = 0; coll < COLLS; coll++)
        for (int op = 0; op < (coll_reduces(coll) ? OP_COUNT : 1); op++)
            for (int s = 0; s < 4; s++) {
                struct job j = job_random(serial((uint64_t)coll, (uint64_t)op, (uint64_t)s, (uint64_t)me->n), coll, HKT_FLOAT32, counts[s], me->n);

                j.op = op;
                job_run(&lab, &j);
            }
    lab_close(&lab);
}

/* Proves: every collective is right for every rank count from 1 to 40 (ranks far outnumber the cores). */
START_TEST(C53_every_rank_count)
{
    world_run(&(struct world){.n = _i + 1, .kind = _i % 2 ? THREADS : PROCESSES, .fn = one_type, .deadline = 110});
}
END_TEST

/* ---- every root */

static void every_root_on(struct rank *me)
{
    static const enum coll rooted[] = {REDUCE, BROADCAST, GATHER, SCATTER, GATHER_V, SCATTER_V};
    static const size_t    counts[] = {1, 63, 5000, 40001};
    struct lab             lab;

    lab_open(&lab, me->comm, (size_t)me->n * (40001 + 4) * 2);
    for (int c = 0; c < 6; c++)
        for (int root = 0; root < me->n; root++)
            for (int s = 0; s < 4; s++) {
                struct job j = job_random(serial((uint64_t)c, (uint64_t)root, (uint64_t)s, 7), rooted[c], HKT_BFLOAT16, counts[s], me->n);

                j.root = root;
                job_run(&lab, &j);
            }
    lab_close(&lab);
}

/* Proves: rooted collectives are right for every root. */
START_TEST(every_root)
{
    world(2 + _i, _i % 2 ? PROCESSES : THREADS, every_root_on, NULL);
}
END_TEST

/* ---- alignment and borders */

static void every_offset(struct rank *me)
{
    static const enum coll colls[] = {ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, ALL_TO_ALL};
    const hkt_type_t       type    = *(hkt_type_t *)me->arg;
    struct lab             lab;

    lab_open(&lab, me->comm, (size_t)me->n * 80 * 8);
    for (size_t offset = 0; offset < 16; offset++)
        for (size_t count = 1; count <= 70; count++) {
            const uint64_t random = serial(offset, count, (uint64_t)type, 5);
            struct job     j      = job_random(random, colls[random % 5], type, count, me->n);

            j.shift[SEND] = offset;
            j.shift[RECV] = (offset * 7 + count) % 16;
            job_run(&lab, &j);
        }
    lab_close(&lab);
}

/* Proves: pointers may have any alignment, for every type and every count to 70, in place and not; nothing is written beside the buffer,
 * and nothing read or written behind a guard page. */
START_TEST(C55_every_alignment)
{
    hkt_type_t type = _i;

    world(3, _i % 2 ? PROCESSES : THREADS, every_offset, &type);
}
END_TEST

static void guarded_on(struct rank *me)
{
    struct lab lab;
    uint64_t   k = 0;

    lab_open(&lab, me->comm, (size_t)me->n * 70000 * 2);
    for (enum coll coll = 0; coll < BARRIER; coll++)
        for (size_t count = 1; count < 65536; count = count * 5 / 2 + 1)
            for (int edge = 0; edge < 4; edge++) {
                struct job j = job_random(mix(k++), coll, HKT_FLOAT16, count, me->n);

                j.memory[SEND] = edge & 1 ? GUARD_BEGIN : GUARD_END;
                j.memory[RECV] = edge & 2 ? GUARD_BEGIN : GUARD_END;
                job_run(&lab, &j);
            }
    lab_close(&lab);
}

/* Proves: no collective reads or writes one byte before or behind its buffers, at any size class. */
START_TEST(C55_guard_pages)
{
    world(2 + _i / 2, _i % 2, guarded_on, NULL);
}
END_TEST

/* ---- memory */

static void memory_on(struct rank *me)
{
    static const enum coll colls[] = {ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE};
    struct lab             lab;

    lab_open(&lab, me->comm, (size_t)me->n * 400000 * 4);
    for (int c = 0; c < 6; c++)
        for (int m = 0; m < MEMORIES * MEMORIES * 2; m++) {
            struct job j = job_random(serial((uint64_t)c, (uint64_t)m, 1, 2), colls[c], HKT_FLOAT32, c < 1 ? 400000 : 100003, me->n);

            j.memory[SEND] = m % MEMORIES;
            j.memory[RECV] = m / MEMORIES % MEMORIES;
            j.in_place     = m / (MEMORIES * MEMORIES);
            job_run(&lab, &j);
            j.memory[me->rank % 2] = (j.memory[me->rank % 2] + 1 + me->rank) % MEMORIES; /* every rank its own kind */
            j.in_place             = me->rank % 2;
            job_run(&lab, &j);
        }
    lab_close(&lab);
}

/* Proves: malloc, guarded, library and registered memory may be mixed, on one rank and between ranks, and in place with out of place. */
START_TEST(every_memory)
{
    world_run(&(struct world){.n = 2 + _i / 2 * 2, .kind = _i % 2, .fn = memory_on, .deadline = 110});
}
END_TEST

/* ---- nothing to do */

static void nothing(struct rank *me)
{
    const size_t zeros[8] = {0};
    hkt_comm_t  *c        = me->comm;
    float        x        = 1;

    for (int root = 0; root < me->n; root++) {
        for (hkt_type_t t = 0; t < HKT_TYPES; t++) {
            expect_ok(hkt_all_reduce(NULL, NULL, 0, t, HKT_SUM, c, NULL));
            expect_ok(hkt_reduce_scatter(NULL, NULL, 0, t, HKT_AVG, c, NULL));
            expect_ok(hkt_all_gather(NULL, NULL, 0, t, c, NULL));
            expect_ok(hkt_reduce(NULL, NULL, 0, t, HKT_MIN, root, c, NULL));
            expect_ok(hkt_broadcast(NULL, NULL, 0, t, root, c, NULL));
            expect_ok(hkt_gather(NULL, NULL, 0, t, root, c, NULL));
            expect_ok(hkt_scatter(NULL, NULL, 0, t, root, c, NULL));
            expect_ok(hkt_all_to_all(NULL, NULL, 0, t, c, NULL));
            expect_ok(hkt_reduce_scatter_v(NULL, NULL, zeros, NULL, t, HKT_SUM, c, NULL));
            expect_ok(hkt_all_gather_v(NULL, NULL, zeros, zeros, t, c, NULL));
            expect_ok(hkt_gather_v(NULL, NULL, zeros, NULL, t, root, c, NULL));
            expect_ok(hkt_scatter_v(NULL, NULL, zeros, NULL, t, root, c, NULL));
            expect_ok(hkt_all_to_all_v(NULL, zeros, NULL, NULL, zeros, NULL, t, c, NULL));
        }
        expect_ok(hkt_group_begin());
        expect_ok(hkt_send(NULL, 0, HKT_INT8, (me->rank + 1) % me->n, c, NULL));
        expect_ok(hkt_recv(NULL, 0, HKT_INT8, (me->rank + me->n - 1) % me->n, c, NULL));
        expect_ok(hkt_group_end());
    }
    expect_ok(hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, c, NULL));
    expect(x == (float)me->n, "after the empty calls 1 over %d ranks sums to %g", me->n, (double)x);
}

/* Proves: count 0 with NULL pointers is a valid call of every collective and leaves the ranks in step. */
START_TEST(C43_count_zero)
{
    world(1 + _i / 2, _i % 2, nothing, NULL);
}
END_TEST

static void sparse_on(struct rank *me)
{
    static const enum coll colls[] = {ALL_TO_ALL_V, REDUCE_SCATTER_V, ALL_GATHER_V, GATHER_V, SCATTER_V};
    struct lab             lab;

    lab_open(&lab, me->comm, (size_t)me->n * 3010 * 4);
    for (uint64_t k = 0; k < 1500; k++) {
        struct job j = job_random(mix(k), colls[k % 2 ? 0 : k / 2 % 5], HKT_INT32, 1 + mix(k) % (k % 3 ? 20 : 3000), me->n);

        j.sparse = true;
        job_run(&lab, &j);
    }
    lab_close(&lab);
}

/* Proves: v-forms in which 70 % of the blocks are empty, with NULL pointers where nothing is sent, complete and are right. */
START_TEST(C43_sparse_counts)
{
    world(4 + _i / 2, _i % 2, sparse_on, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, every_collective_type_operator_size, 18, 120);
    ADD(s, C53_every_rank_count, 40, 120);
    ADD(s, every_root, 8, 60);
    ADD(s, C55_every_alignment, HKT_TYPES, 60);
    ADD(s, C55_guard_pages, 4, 60);
    ADD(s, every_memory, 4, 120);
    ADD(s, C43_count_zero, 8, 60);
    ADD(s, C43_sparse_counts, 4, 60);
}

int main(void)
{
    return run_suite("collectives", add);
}
