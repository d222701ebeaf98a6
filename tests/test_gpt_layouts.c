/* test_gpt_layouts.c -- the same model on every layout: tensor and sequence parallel, any number of ranks with slices,
 * recomputation, gradients of weights apart, threads; and in bf16.
 */
#include "crew.h"
#include "gpt_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the same model on every layout */

enum { STEPS = 8 };

struct run {
    struct gpt_options options;
    int                n; /* ranks */
    double             loss[STEPS];
    float             *weight; /* after the last step, of rank 0 */
    size_t             floats;
};

static void run_rank(struct rank *me)
{
    struct run        *r = me->arg;
    struct gpt_options o = r->options;
    struct machine     a;

    o.comm = me->comm;
    machine_begin(&a, &o);
    for (int step = 1; step <= STEPS; step++) {
        const double loss = train_step(&a, step, MICRO, BATCH);

        if (me->rank == 0)
            r->loss[step - 1] = loss;
    }
    if (me->rank == 0) {
        r->floats = a.floats;
        r->weight = take_floats(a.floats);
        memcpy(r->weight, a.weight, a.floats * sizeof(float));
    }
    machine_end(&a);
}

static struct run run(const struct gpt_options *options, int n)
{
    struct run r = {.options = *options, .n = n};

    world(n, THREADS, run_rank, &r);
    return r;
}

static void expect_close(const struct run *a, const struct run *b, const char *what)
{
    for (int i = 0; i < STEPS; i++) {
        const double off = fabs(a->loss[i] - b->loss[i]) / a->loss[i];

        ck_assert_msg(off <= (i == 0 ? 1e-6 : 1e-4), "%s: step %d: loss %.9g against %.9g", what, i + 1, b->loss[i],
                      a->loss[i]);
    }
}

static void expect_same(const struct run *a, const struct run *b, const char *what)
{
    ck_assert_msg(memcmp(a->loss, b->loss, sizeof(a->loss)) == 0, "%s: other losses: %.17g and %.17g at the end", what,
                  a->loss[STEPS - 1], b->loss[STEPS - 1]);
    ck_assert_msg(a->floats == b->floats && memcmp(a->weight, b->weight, a->floats * sizeof(float)) == 0,
                  "%s: other weights", what);
}

/* Case C01, rows 27 to 43: tensor and sequence parallel train the model of one rank. */
START_TEST(T_C01_split_model_is_the_model)
{
    struct gpt_options o = tiny();

    apply(&o, &variants[_i]);
    o.shape.smoothing = 0;
    struct run one    = run(&o, 1);

    ck_assert_msg(one.loss[STEPS - 1] < 0.95 * one.loss[0], "the loss does not fall: %g to %g", one.loss[0],
                  one.loss[STEPS - 1]);
    for (int n = 2; n <= 4 && o.shape.groups % n == 0; n *= 2)
        for (int sequence = 0; sequence < 2; sequence++) {
            char       what[60];
            struct run split;

            o.sequence = sequence;
            split      = run(&o, n);
            snprintf(what, sizeof(what), "%d ranks%s", n, sequence ? ", sequence parallel" : "");
            expect_close(&one, &split, what);
            free(split.weight);
        }
    free(one.weight);
}
END_TEST

/* With slices the number of ranks changes no bit. */
START_TEST(slices_hide_the_number_of_ranks)
{
    struct gpt_options o = tiny();

    apply(&o, &variants[_i]);
    o.slices       = 4;
    struct run one = run(&o, 1);

    for (int n = 2; n <= 4; n *= 2) {
        struct run split = run(&o, n);

        ck_assert_msg(memcmp(one.loss, split.loss, sizeof(one.loss)) == 0,
                      "%d ranks: other losses: %.17g and %.17g at the end", n, split.loss[STEPS - 1],
                      one.loss[STEPS - 1]);
        free(split.weight);
    }
    free(one.weight);
}
END_TEST

/* Case C14, rows 44, 94, 95: recomputation changes no bit, dropout on; nor do gradients of weights that come later. */
START_TEST(T_C14_recomputation_changes_no_bit)
{
    const int          n = _i % 2 ? 2 : 1;
    struct gpt_options o = tiny();

    apply(&o, &variants[_i / 2 ? 7 : 3]);
    o.sequence         = n > 1;
    const struct run a = run(&o, n);

    for (int recompute = GPT_NONE; recompute <= GPT_FULL; recompute++)
        for (int apart = 0; apart < 2; apart++) {
            char       what[60];
            struct run b;

            o.recompute = (enum gpt_recompute)recompute;
            o.apart     = apart;
            b           = run(&o, n);
            snprintf(what, sizeof(what), "recompute %d, weights %s", recompute, apart ? "apart" : "at once");
            expect_same(&a, &b, what);
            free(b.weight);
        }
    free(a.weight);
}
END_TEST

/* Threads within a rank change no bit; linear layers in bf16 change the loss by little. */
START_TEST(threads_and_bf16)
{
    struct gpt_options o = tiny();
    struct machine     a;
    double             loss[3] = {0};
    float             *weight  = NULL;

    apply(&o, &variants[3]);
    for (int i = 0; i < 3; i++) {
        numbers = i == 2 ? MATRIX_BF16 : MATRIX_FP32;
        crew_begin(i == 1 ? 3 : 1);
        machine_begin(&a, &o);
        for (int step = 1; step <= STEPS; step++)
            loss[i] = train_step(&a, step, MICRO, BATCH);
        if (i == 0) {
            weight = take_floats(a.floats);
            memcpy(weight, a.weight, a.floats * sizeof(float));
        }
        ck_assert(i != 1 || memcmp(weight, a.weight, a.floats * sizeof(float)) == 0);
        machine_end(&a);
        crew_end();
    }
    numbers = MATRIX_FP32;
    ck_assert(loss[0] == loss[1]);
    ck_assert_msg(loss[2] != loss[0] && fabs(loss[2] - loss[0]) < 0.01 * loss[0], "loss %g in fp32, %g in bf16",
                  loss[0], loss[2]);
    free(weight);
}
END_TEST

/* ---- case C27: what is replicated stays so */

static void replicas_rank(struct rank *me)
{
    struct gpt_options o = tiny();
    struct machine     a;
    int                count;

    apply(&o, &variants[1]);
    o.comm     = me->comm;
    o.sequence = true;
    machine_begin(&a, &o);
    for (int step = 1; step <= 10; step++)
        train_step(&a, step, 2, BATCH);
    const struct gpt_tensor *t = gpt_tensors(a.model, &count);

    for (int i = 0; i < count; i++) {
        const size_t floats = (size_t)t[i].own_rows * (size_t)t[i].own_cols;
        uint64_t     hash   = 1, low, high;

        if (!(t[i].flags & HKT_PARAMETER_REPLICATED))
            continue;
        for (size_t j = 0; j < floats; j++) {
            uint32_t bits;

            memcpy(&bits, &t[i].weight[j], sizeof(bits));
            hash = mix(hash ^ bits);
        }
        expect_ok(hkt_all_reduce(&hash, &low, 1, HKT_UINT64, HKT_MIN, me->comm, NULL));
        expect_ok(hkt_all_reduce(&hash, &high, 1, HKT_UINT64, HKT_MAX, me->comm, NULL));
        expect(low == high, "%s differs between the ranks", t[i].name);
    }
    machine_end(&a);
}

START_TEST(T_C27_replicas_stay_replicas)
{
    world(2, THREADS, replicas_rank, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, T_C01_split_model_is_the_model, VARIANTS, 60);
    ADD(s, slices_hide_the_number_of_ranks, 2, 60);
    ADD(s, T_C14_recomputation_changes_no_bit, 4, 60);
    ADD(s, threads_and_bf16, 1, 30);
    ADD(s, T_C27_replicas_stay_replicas, 1, 30);
}

int main(void)
{
    return run_suite("gpt_layouts", add);
}
