/* test_bucket_calls.c -- gradient buckets: types, means over tokens, overlap, codecs, and what is refused. */
#include "bucket_model.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Proves: 1024 gradients of 2^-9 on top of 1 make 3 in fp32, the default, and get lost in bf16, which is by flag only.
 */
START_TEST(T_C21_accumulation_in_fp32)
{
    const hkt_parameter_t p      = {"w", 3, 0};
    const uint16_t        one[3] = {0x3f80, 0x3f80, 0x3f80}, small[3] = {0x3b00, 0x3b00, 0x3b00}; /* bf16: 1 and 2^-9 */
    hkt_reduced_t         r;

    for (int wide = 0; wide < 2; wide++) {
        hkt_buckets_config_t c = HKT_BUCKETS_CONFIG_INIT;
        hkt_buckets_t       *b;
        expect_true(c.type == HKT_FLOAT32);
        c.type = wide ? HKT_FLOAT32 : HKT_BFLOAT16;
        expect_ok(hkt_buckets_create(&b, &p, 1, NULL, &c, NULL));
        expect_ok(hkt_buckets_begin(b, 1));
        expect_ok(hkt_buckets_add(b, 0, 0, one, 3, HKT_BFLOAT16));
        for (int i = 0; i < 1024; i++)
            expect_ok(hkt_buckets_add(b, 0, 0, small, 3, HKT_BFLOAT16));
        expect_code(hkt_buckets_add(b, 0, 1, small, 3, HKT_BFLOAT16), HKT_ERR_ARGUMENT);
        expect_ok(hkt_buckets_finish(b));
        expect_ok(hkt_buckets_reduced(&r, 0, b));
        expect_true(wide ? ((float *)r.values)[2] == 3.0f : ((uint16_t *)r.values)[2] == 0x3f80);
        expect_ok(hkt_buckets_destroy(b));
    }
}
END_TEST

static void tokens(struct rank *me)
{
    const hkt_parameter_t p = {"w", 10, 0};
    hkt_buckets_config_t  c = HKT_BUCKETS_CONFIG_INIT;
    hkt_buckets_t        *b;
    hkt_reduced_t         r;
    uint64_t              total;
    void                 *g;

    c.op = HKT_SUM;
    expect_ok(hkt_buckets_create(&b, &p, 1, me->comm, &c, NULL));
    for (int step = 0; step < 2; step++) {
        const uint64_t mine = step ? 0 : 8u * (unsigned)me->rank;
        expect_ok(hkt_buckets_begin(b, 1));
        expect_ok(hkt_buckets_gradient(&g, 0, b));
        expect_true(((float *)g)[3] == 0); /* of the step before nothing is left */
        ((float *)g)[3] = (float)mine * 3;
        expect_code(hkt_buckets_by_tokens(&total, b, mine), HKT_ERR_USAGE);
        expect_ok(hkt_buckets_finish(b));
        expect_ok(hkt_buckets_by_tokens(&total, b, mine));
        expect_ok(hkt_buckets_reduced(&r, 0, b));
        expect_true(total == (step ? 0u : 8u * (unsigned)(me->n * (me->n - 1) / 2)));
        expect(((float *)r.values)[3] == (total ? 3 : 0), "the mean over %llu tokens is %g", (unsigned long long)total,
               (double)((float *)r.values)[3]);
    }
    expect_ok(hkt_buckets_destroy(b));
}

/* Proves: sums are divided by the tokens of all ranks, which need not have equally many, or any. Gradients are zero at
 * the start of a step (C07). */
START_TEST(T_C07_mean_over_tokens_from_zero)
{
    world(1 + _i, THREADS, tokens, NULL);
}
END_TEST

static void overlapped(struct rank *me)
{
    struct model         m;
    hkt_buckets_config_t c = HKT_BUCKETS_CONFIG_INIT;
    hkt_bucket_info_t    info;
    hkt_overlap_t        overlap;
    hkt_buckets_t       *b;

    model_make(&m, 3000);
    c.bytes = c.first_bytes = 4096;
    expect_ok(hkt_buckets_create(&b, m.parameter, MANY, me->comm, &c, NULL));
    expect_ok(hkt_buckets_begin(b, 1));
    for (int i = MANY - 1; i > 0; i--)
        expect_ok(hkt_buckets_ready(b, i));
    const double deadline = now() + 20;
    do
        expect_ok(hkt_buckets_info(&info, hkt_buckets_count(b) - 2, b));
    while (info.finished == 0 && now() < deadline);
    expect(info.finished > 0, "the bucket before the last is not reduced before the backward pass ends");
    expect_ok(hkt_buckets_info(&info, hkt_buckets_count(b) - 1, b));
    expect(info.launched == 0, "a bucket was launched before its last gradient");
    expect_ok(hkt_buckets_ready(b, 0));
    expect_ok(hkt_buckets_finish(b));
    expect_ok(hkt_buckets_overlap(&overlap, b));
    expect_true(overlap.in_flight > 0);
    expect_ok(hkt_buckets_destroy(b));
}

/* Proves (row 5): all buckets but the one that is not complete are reduced while the backward pass still runs. */
START_TEST(T_row5_reduced_during_backward)
{
    world(2 + _i, THREADS, overlapped, NULL);
}
END_TEST

/* Four threads write gradients in random order: first poison, then the values, then "ready". */
struct writer {
    hkt_buckets_t      *b;
    const struct model *m;
    int                 thread, step, rank;
    pthread_t           id;
};

enum { WRITERS = 4 };

static void *write_gradients(void *arg)
{
    const struct writer *w = arg;
    void                *memory;

    for (int k = w->thread; k < MANY; k += WRITERS) {
        const int parameter = (k * 7 + w->step * 11) % MANY; /* 7 and MANY have no divisor in common: each once */
        float    *g;

        expect_ok(hkt_buckets_gradient(&memory, parameter, w->b));
        g = memory;
        for (size_t e = 0; e < w->m->parameter[parameter].count; e++)
            g[e] = NAN;
        if (mix((uint64_t)(parameter + w->step)) % 3 == 0)
            sched_yield();
        for (size_t e = 0; e < w->m->parameter[parameter].count; e++)
            g[e] = (float)(parameter + w->rank);
        expect_ok(hkt_buckets_ready(w->b, parameter));
    }
    return NULL;
}

static void written_by_threads(struct rank *me)
{
    const int            steps = getenv("TEST_LONG") ? 1000 : 60;
    hkt_buckets_config_t c     = HKT_BUCKETS_CONFIG_INIT;
    struct writer        w[WRITERS];
    struct model         m;
    hkt_overlap_t        overlap;
    hkt_buckets_t       *b;
    float               *sum;

    model_make(&m, 3000);
    sum = malloc(m.total * sizeof(*sum));
    expect_true(sum != NULL);
    c.bytes = c.first_bytes = 8192;
    expect_ok(hkt_buckets_create(&b, m.parameter, MANY, me->comm, &c, NULL));
    for (int step = 0; step < steps; step++) {
        expect_ok(hkt_buckets_begin(b, 1));
        for (int t = 0; t < WRITERS; t++) {
            w[t] = (struct writer){.b = b, .m = &m, .thread = t, .step = step, .rank = me->rank};
            expect_true(pthread_create(&w[t].id, NULL, write_gradients, &w[t]) == 0);
        }
        for (int t = 0; t < WRITERS; t++)
            (void)pthread_join(w[t].id, NULL);
        expect_ok(hkt_buckets_finish(b));
        for (int i = 0; i < MANY; i++) {
            whole(sum, b, &m, i, NULL);
            for (size_t e = 0; e < m.parameter[i].count; e++)
                expect(fabsf(sum[e] - (float)i - (float)(me->n - 1) / 2) < 1e-4f, "step %d: element %zu of parameter %d is %g", step, e, i, (double)sum[e]);
        }
    }
    expect_ok(hkt_buckets_overlap(&overlap, b));
    expect_true(overlap.in_flight > 0); /* buckets were under way while others were written */
    expect_ok(hkt_buckets_destroy(b));
    free(sum);
}

/* Proves: a bucket is launched only when all who write into it have said that they are done, and is under way while others are written. */
START_TEST(C57_launched_when_all_have_written)
{
    world(2 + _i, THREADS, written_by_threads, NULL);
}
END_TEST

static void coded(struct rank *me)
{
    static const char *const codecs[] = {"bf16", "int8", "onebit"};
    struct model             m;
    float                    mine[3000], others[3000];

    model_make(&m, 3000);
    for (unsigned k = 0; k < 6; k++) {
        hkt_buckets_config_t c = HKT_BUCKETS_CONFIG_INIT;
        hkt_buckets_t       *b;
        double               lost = 0, all = 0;

        c.codec   = codecs[k / 2];
        c.sharded = k % 2;
        c.bytes = c.first_bytes = 20000;
        expect_ok(hkt_buckets_create(&b, m.parameter, MANY, me->comm, &c, NULL));
        expect_ok(hkt_buckets_begin(b, 1));
        for (int i = MANY - 1; i >= 0; i--) {
            fill_gradient(b, &m, i, (int[]){me->rank, 0}, false);
            expect_ok(hkt_buckets_ready(b, i));
        }
        expect_ok(hkt_buckets_finish(b));
        for (int i = 0; i < MANY; i++) {
            whole(mine, b, &m, i, c.sharded ? me->comm : NULL);
            expect_ok(hkt_all_reduce(mine, others, m.parameter[i].count, HKT_FLOAT32, HKT_MAX, me->comm, NULL));
            expect(memcmp(mine, others, m.parameter[i].count * sizeof *mine) == 0,
                   "%s: the ranks have different gradients", c.codec);
            for (size_t e = 0; e < m.parameter[i].count; e++) {
                double mean = 0;
                for (int rank = 0; rank < me->n; rank++)
                    mean += (double)value_of(rank, 0, i, e, false) / me->n;
                lost += (mean - (double)mine[e]) * (mean - (double)mine[e]);
                all += mean * mean;
            }
        }
        expect(lost <= all * (k < 2 ? 1e-4 : k < 4 ? 1e-3 : 2) && lost > 0, "%s: error %g of %g", c.codec, lost, all);
        expect_ok(hkt_buckets_destroy(b));
    }
    hkt_buckets_config_t c = HKT_BUCKETS_CONFIG_INIT;
    hkt_buckets_t       *b = NULL;
    c.codec                = "zip";
    expect_code(hkt_buckets_create(&b, m.parameter, MANY, me->comm, &c, NULL), HKT_ERR_ARGUMENT);
    expect_said("zip");
    expect_true(b == NULL);
}

/* Proves: buckets go through codecs when asked to, all-reduced or sharded: near the mean, equal on all ranks; unknown
 * ones are refused. */
START_TEST(buckets_through_codecs)
{
    world(2 + _i, THREADS, coded, NULL);
}
END_TEST

/* One step, with the gradients of that number. */
static void coded_step(hkt_buckets_t *b, const struct model *m, int rank, int step)
{
    expect_ok(hkt_buckets_begin(b, 1));
    for (int i = MANY - 1; i >= 0; i--) {
        fill_gradient(b, m, i, (int[]){rank, step}, false);
        expect_ok(hkt_buckets_ready(b, i));
    }
    expect_ok(hkt_buckets_finish(b));
}

static void expect_same_reduced(hkt_buckets_t *a, hkt_buckets_t *b, bool same)
{
    bool all = true;

    for (int i = 0; i < MANY; i++) {
        hkt_reduced_t x, y;

        expect_ok(hkt_buckets_reduced(&x, i, a));
        expect_ok(hkt_buckets_reduced(&y, i, b));
        expect_true(x.count == y.count);
        all &= x.count == 0 || memcmp(x.values, y.values, x.count * sizeof(float)) == 0;
    }
    expect(all == same, "the gradients are %s", all ? "the same" : "not the same");
}

/* A handle of other buckets takes nothing over: it goes on as a new one does. */
static void refuses(const struct model *m, struct rank *me, hkt_buckets_config_t c, const void *state, size_t bytes)
{
    hkt_buckets_t *b, *fresh;

    c.bytes = c.first_bytes = 9000;
    expect_ok(hkt_buckets_create(&b, m->parameter, MANY, me->comm, &c, NULL));
    expect_ok(hkt_buckets_create(&fresh, m->parameter, MANY, me->comm, &c, NULL));
    expect_code(hkt_buckets_load(b, state, bytes), HKT_ERR_ARGUMENT);
    expect_said("other parameters, buckets, ranks or another codec");
    expect_code(hkt_buckets_load(b, state, 5), HKT_ERR_ARGUMENT);
    coded_step(b, m, me->rank, 0);
    coded_step(fresh, m, me->rank, 0);
    expect_same_reduced(b, fresh, true);
    expect_ok(hkt_buckets_destroy(b));
    expect_ok(hkt_buckets_destroy(fresh));
}

static void resumed(struct rank *me)
{
    static const char *const codecs[] = {"int8", "onebit", "qsgd", "powersgd", "topk:share=0.1"};
    const int                k        = *(const int *)me->arg;
    struct model             m;
    hkt_buckets_config_t     c = HKT_BUCKETS_CONFIG_INIT;
    hkt_buckets_t           *b, *other;
    size_t                   bytes;
    char                    *state;

    model_make(&m, 3000);
    c.codec   = codecs[k / 2];
    c.sharded = k % 2 && strcmp(c.codec, "powersgd") != 0;
    c.bytes = c.first_bytes = 20000;
    doing("%s%s", c.codec, c.sharded ? ", sharded" : "");
    expect_ok(hkt_buckets_create(&b, m.parameter, MANY, me->comm, &c, NULL));
    expect_ok(hkt_buckets_create(&other, m.parameter, MANY, me->comm, &c, NULL));
    for (int step = 0; step < 3; step++)
        coded_step(b, &m, me->rank, step);
    expect_ok(hkt_buckets_state_size(&bytes, b));
    state = malloc(bytes);
    expect_ok(hkt_buckets_save(state, b));
    state[bytes / 2] ^= 1;
    state[16 + 8] ^= 1; /* the first compressor's own size: nothing is taken over from the others either */
    expect_code(hkt_buckets_load(other, state, bytes), HKT_ERR_ARGUMENT);
    state[bytes / 2] ^= 1;
    state[16 + 8] ^= 1;
    expect_code(hkt_buckets_load(other, state, bytes - 1), HKT_ERR_ARGUMENT);
    expect_ok(hkt_buckets_load(other, state, bytes));
    for (int step = 3; step < 6; step++) {
        coded_step(b, &m, me->rank, step);
        coded_step(other, &m, me->rank, step);
        expect_same_reduced(b, other, true);
    }
    expect_ok(hkt_buckets_reset(other)); /* and the state is no idle thing */
    coded_step(b, &m, me->rank, 6);
    coded_step(other, &m, me->rank, 6);
    expect_same_reduced(b, other, k / 2 == 0); /* int8 is used without feedback, and rounds to nearest */
    refuses(&m, me, c, state, bytes);
    expect_ok(hkt_buckets_begin(b, 1));
    expect_code(hkt_buckets_save(state, b), HKT_ERR_USAGE);
    expect_ok(hkt_buckets_finish(b));
    free(state);
    expect_ok(hkt_buckets_destroy(b));
    expect_ok(hkt_buckets_destroy(other));
}

/* Proves: what codecs keep of a rank's gradients can be saved, and another handle goes on from it with the same bits,
 * all-reduced and sharded, with and without chance; other buckets, damaged heads and a step under way are refused, and
 * then nothing changes. */
START_TEST(T_codec_state_of_buckets)
{
    world(2, THREADS, resumed, &_i);
}
END_TEST

static void mistakes(struct rank *me)
{
    struct model         m;
    hkt_buckets_config_t c = HKT_BUCKETS_CONFIG_INIT;
    hkt_buckets_t       *b = NULL;
    hkt_reduced_t        r;
    void                *g;

    model_make(&m, 50);
    m.parameter[7].count += me->rank == 1; /* rank 1 has another model */
    expect_code(hkt_buckets_create(&b, m.parameter, MANY, me->comm, &c, NULL), HKT_ERR_MISMATCH);
    expect_said("all ranks must ask for the same");
    model_make(&m, 50);
    c.rebuild = c.sharded = true;
    expect_code(hkt_buckets_create(&b, m.parameter, MANY, me->comm, &c, NULL), HKT_ERR_ARGUMENT);
    c.rebuild = c.sharded = false;
    c.type                = me->rank ? HKT_FLOAT32 : HKT_UINT8; /* rank 0 alone is wrong, and nobody waits for it */
    expect_code(hkt_buckets_create(&b, m.parameter, MANY, me->comm, &c, NULL), HKT_ERR_ARGUMENT);
    expect_said(me->rank ? "rank 0 has an error" : "gradients of type uint8");
    c.type  = HKT_FLOAT32;
    c.order = (int[MANY]){3, 3};
    expect_code(hkt_buckets_create(&b, m.parameter, MANY, me->comm, &c, NULL), HKT_ERR_ARGUMENT);
    expect_said("second time the index 3");
    c.order = NULL;
    c.type  = HKT_INT32;
    expect_code(hkt_buckets_create(&b, m.parameter, MANY, me->comm, &c, NULL), HKT_ERR_ARGUMENT);
    expect_true(b == NULL);
    c.type = HKT_FLOAT32;
    expect_ok(hkt_buckets_create(&b, m.parameter, MANY, me->comm, &c, NULL));
    expect_code(hkt_buckets_ready(b, 0), HKT_ERR_USAGE);
    expect_ok(hkt_buckets_begin(b, 1));
    expect_code(hkt_buckets_begin(b, 1), HKT_ERR_USAGE);
    expect_ok(hkt_buckets_ready(b, 5));
    expect_code(hkt_buckets_ready(b, 5), HKT_ERR_USAGE);
    expect_said("\"layer5\" was announced once more");
    expect_code(hkt_buckets_ready(b, MANY), HKT_ERR_ARGUMENT);
    expect_code(hkt_buckets_gradient(&g, -1, b), HKT_ERR_ARGUMENT);
    expect_code(hkt_buckets_reduced(&r, 0, b), HKT_ERR_USAGE);
    expect_ok(hkt_buckets_finish(b));
    expect_code(hkt_buckets_finish(b), HKT_ERR_USAGE);
    expect_ok(hkt_buckets_destroy(b));
    expect_ok(hkt_buckets_destroy(NULL));
}

/* Proves: what is wrong is refused with a sentence, on every rank, and leaves the handle usable. */
START_TEST(mistakes_are_said)
{
    world(2, THREADS, mistakes, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, T_C21_accumulation_in_fp32, 1, 10);
    ADD(s, T_C07_mean_over_tokens_from_zero, 3, 20);
    ADD(s, T_row5_reduced_during_backward, 2, 60);
    ADD(s, C57_launched_when_all_have_written, 2, 60);
    ADD(s, buckets_through_codecs, 2, 30);
    ADD(s, T_codec_state_of_buckets, 10, 30);
    ADD(s, mistakes_are_said, 1, 20);
}

int main(void)
{
    return run_suite("bucket_calls", add);
}
