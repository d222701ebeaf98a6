/* test_bucket.c -- gradient buckets and the ledger: where parameters lie, when buckets are launched, and what comes
 * out. */
#include "bucket_model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the ledger */

/* Proves: bytes are counted by class exactly as asked for, peaks and takes too, memory is zero and aligned, and what is
 * wrong is said. */
START_TEST(ledger_counts_exactly)
{
    hkt_ledger_t      *ledger, *other;
    hkt_ledger_entry_t e;
    void              *a, *b, *c;

    expect_ok(hkt_ledger_create(&ledger));
    expect_ok(hkt_ledger_create(&other));
    expect_ok(hkt_ledger_take(&a, 1001, HKT_BYTES_GRADIENT, true, ledger));
    expect_ok(hkt_ledger_take(&b, 7, HKT_BYTES_GRADIENT, false, ledger));
    expect_ok(hkt_ledger_take(&c, 0, HKT_BYTES_OTHER, false, ledger));
    expect_true(a && b && c && (uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0);
    for (int i = 0; i < 1001; i++)
        expect_true(((char *)a)[i] == 0);
    expect_ok(hkt_ledger_read(&e, HKT_BYTES_GRADIENT, ledger));
    expect_true(e.now == 1008 && e.peak == 1008 && e.takes == 2);
    expect_code(hkt_ledger_give(b, other), HKT_ERR_ARGUMENT);
    expect_said("another ledger");
    expect_code(hkt_ledger_destroy(ledger), HKT_ERR_USAGE);
    expect_said("1008 bytes of class \"gradients\"");
    expect_ok(hkt_ledger_give(a, ledger));
    expect_ok(hkt_ledger_read(&e, HKT_BYTES_GRADIENT, ledger));
    expect_true(e.now == 7 && e.peak == 1008);
    expect_ok(hkt_ledger_reset_peaks(ledger));
    expect_ok(hkt_ledger_read(&e, HKT_BYTES_GRADIENT, ledger));
    expect_true(e.now == 7 && e.peak == 7 && e.takes == 0);
    expect_ok(hkt_ledger_give(b, ledger));
    expect_ok(hkt_ledger_give(c, ledger));
    expect_ok(hkt_ledger_give(NULL, ledger));
    expect_code(hkt_ledger_take(&a, 1, HKT_BYTES_CLASSES, false, ledger), HKT_ERR_ARGUMENT);
    expect_code(hkt_ledger_take(&a, SIZE_MAX - 3, HKT_BYTES_OTHER, false, ledger), HKT_ERR_MEMORY);
    expect_ok(hkt_ledger_take(&a, 5, HKT_BYTES_OTHER, false, NULL)); /* counted nowhere */
    expect_ok(hkt_ledger_give(a, NULL));
    expect_true(strcmp(hkt_bytes_name(HKT_BYTES_PARAMETER), "parameters") == 0 &&
                hkt_bytes_name(HKT_BYTES_CLASSES)[0] == '?');
    expect_ok(hkt_ledger_destroy(ledger));
    expect_ok(hkt_ledger_destroy(other));
    expect_ok(hkt_ledger_destroy(NULL));
}
END_TEST

/* ---- layout */

static void layout(struct rank *me)
{
    hkt_parameter_t p[] = {
        {"wte", 1000, HKT_PARAMETER_SHARED}, {"a", 300, 0}, {"b", 5, 0}, {"c", 700, 0}, {"d", 90, 0}};
    hkt_buckets_config_t c = HKT_BUCKETS_CONFIG_INIT;
    hkt_bucket_info_t    info;
    hkt_buckets_t       *b;
    int                  parameter;

    c.first_bytes = 4 * 50;
    c.bytes       = 4 * 701;
    c.alignment   = 16;
    expect_ok(hkt_buckets_create(&b, p, 5, me->comm, &c, NULL));
    const size_t unit = me->n == 3 ? 48 : 16; /* lcm(n, 16) for n = 1, 2, 3, 4 */
    /* d alone closes the small first one; c, then b at a multiple of 16 closes the second; a; wte is shared. */
    const size_t wanted[][2] = {{90, 1}, {704 + 5, 2}, {300, 1}, {1000, 1}};
    size_t       first       = 0;
    expect(hkt_buckets_count(b) == 4, "%d buckets", hkt_buckets_count(b));
    for (int k = 0; k < 4; k++) {
        expect_ok(hkt_buckets_info(&info, k, b));
        const size_t padded = (wanted[k][0] + unit - 1) / unit * unit;
        expect(info.first == first && info.count == padded && info.parameters == (int)wanted[k][1],
               "bucket %d: %zu elements at %zu, %d parameters", k, info.count, info.first, info.parameters);
        first += padded;
    }
    for (int i = 0; i < 5; i++) {
        expect_ok(hkt_buckets_parameter(&parameter, i, b));
        expect_true(parameter == 4 - i);
    }
    expect_ok(hkt_buckets_destroy(b));
    c.groups = (int[]){0, 1, 2, 2, 2}; /* borders of groups are borders of buckets */
    c.bytes = c.first_bytes = 1 << 20;
    expect_ok(hkt_buckets_create(&b, p, 5, me->comm, &c, NULL));
    expect_true(hkt_buckets_count(b) == 3);
    expect_ok(hkt_buckets_info(&info, 0, b));
    expect_true(info.parameters == 3);
    expect_ok(hkt_buckets_destroy(b));
}

/* Proves: buckets are cut as research 2.2 says: from the end, a small first one, shared parameters alone, lcm padding,
 * groups. */
START_TEST(layout_rules)
{
    world(1 + _i, THREADS, layout, NULL);
}
END_TEST

/* ---- what comes out */

/* A way to reduce; `threads` announce. */
struct way {
    size_t bytes;
    bool   sharded, each, overlap;
    int    threads, micro_batches;
};

struct announcer {
    hkt_buckets_t      *b;
    const struct model *m;
    int                 rank, step, thread, threads, *order;
    bool                integer;
    pthread_t           id;
};

static void *announce(void *arg)
{
    struct announcer *a = arg;

    for (int k = a->thread; k < MANY; k += a->threads) {
        fill_gradient(a->b, a->m, a->order[k], (int[]){a->rank, a->step}, a->integer);
        expect_ok(hkt_buckets_ready(a->b, a->order[k]));
    }
    return NULL;
}

/* Every rank has an order of arrival of its own. */
static void backward(hkt_buckets_t *b, const struct model *m, struct rank *me, const struct way *w, int step)
{
    struct announcer a[8];
    int              order[MANY];

    for (int i = 0; i < MANY; i++)
        order[i] = MANY - 1 - i;
    for (int i = MANY - 1; i > 0; i--) {
        const int k = (int)(mix((uint64_t)(me->rank * 64 + step * 1024 + i)) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    for (int t = 0; t < w->threads; t++) {
        a[t] = (struct announcer){b, m, me->rank, step, t, w->threads, order, false, 0};
        expect_true(pthread_create(&a[t].id, NULL, announce, &a[t]) == 0);
    }
    for (int t = 0; t < w->threads; t++)
        (void)pthread_join(a[t].id, NULL);
}

/* Reduces two steps in the way given; out gets all parameters side by side. Checks traffic. */
static void reduced_by(float *out, const struct model *m, struct rank *me, const struct way *w)
{
    hkt_buckets_config_t c = HKT_BUCKETS_CONFIG_INIT;
    hkt_traffic_t        before, after;
    hkt_bucket_info_t    info;
    hkt_buckets_t       *b;
    const char          *call   = w->sharded ? "reduce_scatter" : "all_reduce";
    uint64_t             padded = 0;
    double               last   = 0;

    c.bytes       = w->bytes;
    c.first_bytes = w->bytes / 4;
    c.sharded     = w->sharded;
    c.each        = w->each;
    c.overlap     = w->overlap;
    expect_ok(hkt_buckets_create(&b, m->parameter, MANY, me->comm, &c, NULL));
    expect_ok(hkt_comm_traffic(me->comm, call, &before));
    for (int step = 0; step < 2; step++) {
        expect_ok(hkt_buckets_begin(b, w->micro_batches));
        for (int k = 0; k < w->micro_batches; k++) {
            backward(b, m, me, w, step * 16 + k);
            expect_ok(hkt_buckets_next(b));
        }
        expect_ok(hkt_buckets_finish(b));
    }
    expect_ok(hkt_comm_traffic(me->comm, call, &after));
    for (int k = 0; k < hkt_buckets_count(b); k++) {
        expect_ok(hkt_buckets_info(&info, k, b));
        padded += info.count;
        expect(info.launched >= last && info.finished >= info.started && info.started >= info.launched,
               "bucket %d: times out of order", k);
        last = info.launched;
    }
    const uint64_t rounds = 2 * (uint64_t)(w->each ? w->micro_batches : 1);
    expect(after.calls - before.calls == (uint64_t)(me->n > 1) * rounds * (uint64_t)hkt_buckets_count(b),
           "%llu calls for %d buckets", (unsigned long long)(after.calls - before.calls), hkt_buckets_count(b));
    expect_true(after.bytes - before.bytes == (me->n > 1 ? rounds * padded * sizeof(float) : 0));
    for (int i = 0; i < MANY; out += m->parameter[i++].count)
        whole(out, b, m, i, w->sharded ? me->comm : NULL);
    expect_ok(hkt_buckets_destroy(b));
}

static void same_bits(struct rank *me)
{
    static const size_t sizes[] = {4, 1000, 20000, 1 << 20};
    struct model        m;

    model_make(&m, 3000);
    float *first = malloc(m.total * sizeof *first), *other = malloc(m.total * sizeof *other);
    for (int each = 0; each < 2; each++)
        for (unsigned k = 0; k < 16; k++) {
            const struct way w = {sizes[k % 4], k & 4, each, k & 8, 1 + (int)k % 3, 3};
            doing("buckets of %zu bytes, sharded %d, each %d, overlap %d", w.bytes, w.sharded, w.each, w.overlap);
            reduced_by(k ? other : first, &m, me, &w);
            expect(!k || memcmp(first, other, m.total * sizeof *first) == 0,
                   "the bits differ from those of buckets of 4 bytes");
        }
    free(first);
    free(other);
}

/* Proves (rows 3, 5, 7, 85): gradients announced by several threads in another order on each rank come out with the
 * same bits for any size of buckets, with and without overlap, all-reduced and reduce-scattered; launches are in order;
 * calls are buckets, bytes are padded bytes. */
START_TEST(T_row85_same_bits_for_any_buckets)
{
    world(1 + _i, THREADS, same_bits, NULL);
}
END_TEST

static void accumulated(struct rank *me)
{
    const hkt_parameter_t p[] = {{"w", 1000, 0}, {"v", 37, 0}};
    const int             m   = 4;
    hkt_reduced_t         r;
    hkt_traffic_t         t[2];
    void                 *g;

    for (int each = 0; each < 2; each++)
        for (int sharded = 0; sharded < 2; sharded++) {
            hkt_buckets_config_t c = HKT_BUCKETS_CONFIG_INIT;
            hkt_buckets_t       *b;
            c.each    = each;
            c.sharded = sharded;
            c.bytes = c.first_bytes = 64;
            expect_ok(hkt_buckets_create(&b, p, 2, me->comm, &c, NULL));
            expect_ok(hkt_comm_traffic(me->comm, NULL, &t[0]));
            expect_ok(hkt_buckets_begin(b, m));
            for (int k = 1; k <= m; k++) {
                for (int i = 1; i >= 0; i--) {
                    expect_ok(hkt_buckets_gradient(&g, i, b));
                    for (size_t e = 0; e < p[i].count; e++)
                        ((float *)g)[e] += (float)k;
                    expect_ok(hkt_buckets_ready(b, i));
                }
                expect_ok(hkt_buckets_next(b));
            }
            expect_ok(hkt_buckets_finish(b));
            expect_ok(hkt_comm_traffic(me->comm, NULL, &t[1]));
            expect_true(t[1].calls - t[0].calls == (uint64_t)(me->n > 1 ? 2 * (each ? m : 1) : 0));
            for (int i = 0; i < 2; i++) {
                expect_ok(hkt_buckets_reduced(&r, i, b));
                for (size_t e = 0; e < r.count; e++)
                    expect(((float *)r.values)[e] / (float)m == 10.0f / (float)m, "element %zu is %g", e,
                           (double)((float *)r.values)[e]);
            }
            expect_ok(hkt_buckets_destroy(b));
        }
}

/* Proves: the gradients 1, 2, 3, 4 of four micro-batches give 10 / 4, reduced once or for each micro-batch, whole or
 * sharded. */
START_TEST(T_C05_all_micro_batches_count)
{
    world(1 + _i, THREADS, accumulated, NULL);
}
END_TEST

static void unused(struct rank *me)
{
    struct model  m;
    hkt_reduced_t r;

    model_make(&m, 100);
    for (int each = 0; each < 2; each++) {
        hkt_buckets_config_t c = HKT_BUCKETS_CONFIG_INIT;
        hkt_buckets_t       *b;
        c.each  = each;
        c.op    = HKT_SUM;
        c.bytes = c.first_bytes = 512;
        expect_ok(hkt_buckets_create(&b, m.parameter, MANY, me->comm, &c, NULL));
        for (int step = 0; step < 2; step++) {
            expect_ok(hkt_buckets_begin(b, 2));
            for (int k = 0; k < 2; k++) {
                for (int i = MANY - 1; i >= 0; i--) {
                    if (i % 3 == k || (i + me->rank) % 5 == 0) /* some on one rank only, some in one micro-batch only */
                        continue;
                    fill_gradient(b, &m, i, (int[]){me->rank, step * 2 + k}, true);
                    expect_ok(hkt_buckets_ready(b, i));
                }
                expect_ok(hkt_buckets_next(b));
            }
            expect_ok(hkt_buckets_finish(b));
            for (int i = 0; i < MANY; i++) {
                expect_ok(hkt_buckets_reduced(&r, i, b));
                for (size_t e = 0; e < r.count; e++) {
                    float sum = 0;
                    for (int rank = 0; rank < me->n; rank++)
                        for (int k = 0; k < 2; k++)
                            if (i % 3 != k && (i + rank) % 5 != 0)
                                sum += value_of(rank, step * 2 + k, i, e, true);
                    expect(((float *)r.values)[e] == sum, "parameter %d: %g, not %g", i, (double)((float *)r.values)[e],
                           (double)sum);
                }
            }
        }
        expect_ok(hkt_buckets_destroy(b));
    }
}

/* Proves: parameters that were used on some ranks or in some micro-batches only count as zeros elsewhere; nothing
 * hangs. */
START_TEST(unused_parameters_are_zeros)
{
    world(1 + _i, THREADS, unused, NULL);
}
END_TEST

static void rebuilt(struct rank *me)
{
    struct model         m;
    hkt_buckets_config_t c = HKT_BUCKETS_CONFIG_INIT;
    hkt_ledger_entry_t   entry;
    hkt_ledger_t        *ledger;
    hkt_buckets_t       *b;
    int                  parameter;
    float                out[100];

    model_make(&m, 100);
    c.rebuild = true;
    c.bytes = c.first_bytes = 1024;
    expect_ok(hkt_ledger_create(&ledger));
    expect_ok(hkt_buckets_create(&b, m.parameter, MANY, me->comm, &c, ledger));
    for (int step = 0; step < STEPS; step++) {
        if (step == 2)
            expect_ok(hkt_ledger_reset_peaks(ledger));
        expect_ok(hkt_buckets_begin(b, 1));
        for (int k = 0; k < MANY; k++) {
            const int i = (k * 7 + me->rank * 11) % MANY; /* rank 0: 0, 7, 14, ... */
            if (i == 21)
                continue; /* never used */
            fill_gradient(b, &m, i, (int[]){me->rank, step}, true);
            expect_ok(hkt_buckets_ready(b, i));
        }
        expect_ok(hkt_buckets_finish(b));
        for (int i = 0; i < MANY; i++) {
            whole(out, b, &m, i, NULL);
            for (size_t e = 0; e < m.parameter[i].count; e++) {
                float sum = 0;
                for (int rank = 0; rank < me->n && i != 21; rank++)
                    sum += value_of(rank, step, i, e, true);
                expect_true(out[e] == sum / (float)me->n);
            }
        }
    }
    for (int k = 0, at = 0; k < MANY; k++) {
        if (k * 7 % MANY == 21)
            continue;
        expect_ok(hkt_buckets_parameter(&parameter, at++, b));
        expect(parameter == k * 7 % MANY, "place %d has parameter %d", at - 1, parameter);
    }
    expect_ok(hkt_ledger_read(&entry, HKT_BYTES_GRADIENT, ledger));
    expect(entry.takes == 0, "memory was taken %zu times after the second step", entry.takes);
    expect_ok(hkt_buckets_destroy(b));
    expect_ok(hkt_ledger_destroy(ledger));
}

/* Proves: after the first step buckets follow the arrival order of rank 0 on every rank, the never used last; results
 * stay right, and from the third step on no memory is taken. */
START_TEST(rebuilt_in_order_of_arrival)
{
    world(_i == 0 ? 1 : 2 * _i, THREADS, rebuilt, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, ledger_counts_exactly, 1, 10);
    ADD(s, layout_rules, 4, 20);
    ADD(s, T_row85_same_bits_for_any_buckets, 4, 60);
    ADD(s, T_C05_all_micro_batches_count, 3, 20);
    ADD(s, unused_parameters_are_zeros, 3, 20);
    ADD(s, rebuilt_in_order_of_arrival, 3, 20);
}

int main(void)
{
    return run_suite("bucket", add);
}
