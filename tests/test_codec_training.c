/* test_codec_training.c -- whether training converges with each codec, with and without feedback, and 1-bit Adam.
 *
 * The problem is least squares with more equations than unknowns, so the best loss is not zero; every rank has
 * equations of its own, which want different solutions: what a codec loses on one rank is not made up for by another.
 */
#include "codecs.h"

enum {
    DIM   = 320,
    ROWS  = 120,
    RANKS = 4,
    BATCH = 12 /* equations of a step of Adam: its second moment must not vanish */
};

/* Rank r's equations, the same wherever they are asked for. */
struct problem {
    float a[ROWS][DIM], b[ROWS];
};

static void set_up(struct problem *p, int rank)
{
    for (size_t i = 0; i < ROWS; i++) {
        double right = 0;

        for (size_t j = 0; j < DIM; j++) {
            const float scale = 1.0f / (1 + (float)(j % 10)); /* columns of different size */

            p->a[i][j] = scale * noise(1000 + (uint64_t)rank, i * DIM + j);
            right += (double)p->a[i][j] * (double)(noise(7, j) + 0.3f * noise(8 + (uint64_t)rank, j));
        }
        p->b[i] = (float)right + 0.5f * noise(2000 + (uint64_t)rank, i);
    }
}

/* Half the mean square of what is left over `count` equations from `first` on, and its gradient. */
static double loss_of(float *gradient, const float *w, const struct problem *p, size_t first, size_t count)
{
    double loss = 0;

    memset(gradient, 0, DIM * sizeof(float));
    for (size_t k = 0; k < count; k++) {
        const size_t i    = (first + k) % ROWS;
        float        left = -p->b[i];

        for (size_t j = 0; j < DIM; j++)
            left += p->a[i][j] * w[j];
        for (size_t j = 0; j < DIM; j++)
            gradient[j] += left * p->a[i][j] / (float)count;
        loss += (double)left * (double)left / 2 / (double)count;
    }
    return loss;
}

static double mean_loss(struct rank *me, const float *w, const struct problem *p)
{
    float  gradient[DIM];
    double loss = loss_of(gradient, w, p, 0, ROWS);

    expect_ok(hkt_all_reduce(&loss, &loss, 1, HKT_FLOAT64, HKT_AVG, me->comm, NULL));
    return loss;
}

/* Gradient descent; NULL: without a codec. Returns the last loss. */
static double descend(struct rank *me, const struct problem *p, const char *codec, int feedback, int steps)
{
    hkt_compressor_config_t config = HKT_COMPRESSOR_CONFIG_INIT;
    hkt_compressor_t       *c      = NULL;
    float                   w[DIM] = {0}, gradient[DIM];

    config.codec    = codec;
    config.feedback = feedback;
    config.seed     = 5;
    if (codec)
        expect_ok(hkt_compressor_create(&c, DIM, &config, me->comm, NULL));
    for (int step = 0; step < steps; step++) {
        (void)loss_of(gradient, w, p, 0, ROWS);
        if (codec)
            expect_ok(hkt_compressor_all_reduce(c, gradient, gradient, DIM, true, NULL));
        else
            expect_ok(hkt_all_reduce(gradient, gradient, DIM, HKT_FLOAT32, HKT_AVG, me->comm, NULL));
        for (size_t j = 0; j < DIM; j++)
            w[j] -= 0.15f * gradient[j];
    }
    expect_ok(hkt_compressor_destroy(c));
    return mean_loss(me, w, p);
}

/* TernGrad is unbiased and meant to be used without feedback, which does it harm the larger the steps are. */
static const struct {
    const char *codec;
    double      with, without; /* the loss is so much more than that of fp32, at most: with feedback, without */
    bool        needs;         /* without feedback it is clearly worse */
} cases[] = {
    {"fp16", 1e-3, 1e-3, false},        {"bf16", 1e-3, 1e-3, false}, {"fp8", 1e-3, 0.01, false},
    {"int8", 1e-3, 0.01, false},        {"int4", 0.01, 0.2, true},   {"qsgd", 0.01, 0.01, false},
    {"terngrad", 0.5, 0.05, false},     {"onebit", 0.02, 0, true},   {"topk:share=0.05", 0.02, 0, true},
    {"powersgd:rank=2", 0.02, 0, true},
};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

static void converges(struct rank *me)
{
    const int             k    = *(const int *)me->arg;
    const int             many = 400;
    struct problem *const p    = calloc(1, sizeof(*p));

    set_up(p, me->rank);
    const double plain = descend(me, p, NULL, 0, many), with = descend(me, p, cases[k].codec, 1, many) / plain - 1;
    const double without = descend(me, p, cases[k].codec, 0, many) / plain - 1;

    expect(with <= cases[k].with, "%s with feedback ends %g above fp32's %g", cases[k].codec, with, plain);
    if (cases[k].needs)
        expect(without > 3 * fabs(with) && without > 0.05, "%s without feedback ends only %g above, with it %g",
               cases[k].codec, without, with);
    else
        expect(without <= cases[k].without, "%s without feedback ends %g above fp32's %g", cases[k].codec, without,
               plain);
    free(p);
}

/* Proves: at equal steps the loss with each codec is within its bound of fp32's (int8 1 %, 1-bit 2 %), and biased
 * codecs need feedback. */
START_TEST(R79_R80_R81_convergence)
{
    world(RANKS, THREADS, converges, &_i);
}
END_TEST

/* ---- 1-bit Adam */

static hkt_onebit_adam_t *adam_of(struct rank *me, size_t count, uint64_t freeze, double decay, hkt_ledger_t *ledger)
{
    hkt_onebit_adam_config_t config = HKT_ONEBIT_ADAM_CONFIG_INIT;
    hkt_onebit_adam_t       *adam;

    config.freeze = freeze;
    config.decay  = decay;
    config.beta2  = 0.99;
    expect_ok(hkt_onebit_adam_create(&adam, count, &config, me->comm, ledger));
    return adam;
}

static void warms_up(struct rank *me)
{
    enum { COUNT = 1000 };
    float              w[COUNT], v[COUNT], m[COUNT] = {0}, s[COUNT] = {0}, gradient[COUNT], mean[COUNT];
    hkt_adamw_t        options = HKT_ADAMW_INIT;
    hkt_onebit_adam_t *adam    = adam_of(me, COUNT, 10, 0.05, NULL);

    options.beta2 = 0.99;
    options.decay = 0.05;
    for (size_t i = 0; i < COUNT; i++)
        w[i] = v[i] = noise(3, i);
    for (uint64_t step = 1; step <= 12; step++) {
        options.rate = 0.01 / (double)step;
        for (size_t i = 0; i < COUNT; i++)
            gradient[i] = noise(step * 10 + (uint64_t)me->rank, i);
        expect_ok(hkt_onebit_adam_step(NULL, adam, w, gradient, COUNT, options.rate));
        expect_ok(hkt_all_reduce(gradient, mean, COUNT, HKT_FLOAT32, HKT_AVG, me->comm, NULL));
        expect_ok(hkt_adamw(&options, step, 1, &(hkt_adamw_state_t){v, m, s, mean}, COUNT));
        expect(!memcmp(v, w, sizeof(v)) == (step <= 10), "step %d is %s AdamW's", (int)step,
               step <= 10 ? "not" : "still");
    }
    expect_ok(hkt_onebit_adam_destroy(adam));
}

/* Proves: until it freezes, 1-bit Adam is AdamW on the averaged gradient, bit for bit; then it is something else. */
START_TEST(R1422_warm_up_is_adamw)
{
    world(3, THREADS, warms_up, NULL);
}
END_TEST

static double train(struct rank *me, const struct problem *p, uint64_t freeze, int steps)
{
    float              w[DIM] = {0}, first[DIM], gradient[DIM];
    hkt_onebit_adam_t *adam   = adam_of(me, DIM, freeze, 0, NULL);

    for (int step = 0; step < steps; step++) {
        (void)loss_of(gradient, w, p, mix((uint64_t)step), BATCH);
        expect_ok(hkt_onebit_adam_step(NULL, adam, w, gradient, DIM, 0.03 * (1 - (double)step / steps)));
    }
    memcpy(first, w, sizeof(w));
    expect_ok(hkt_broadcast(first, first, DIM, HKT_FLOAT32, 0, me->comm, NULL));
    expect(!memcmp(first, w, sizeof(w)), "the weights of rank %d are not those of rank 0", me->rank);
    expect_ok(hkt_onebit_adam_destroy(adam));
    return mean_loss(me, w, p);
}

/* Signs of gradients before Adam, which 1.4.22 calls wrong: no warm-up, no frozen moment. */
static double naive(struct rank *me, const struct problem *p, int steps)
{
    hkt_compressor_config_t config  = HKT_COMPRESSOR_CONFIG_INIT;
    hkt_adamw_t             options = HKT_ADAMW_INIT;
    float                   w[DIM] = {0}, m[DIM] = {0}, v[DIM] = {0}, gradient[DIM];
    hkt_compressor_t       *c;

    config.codec  = "onebit";
    options.beta2 = 0.99;
    options.decay = 0;
    expect_ok(hkt_compressor_create(&c, DIM, &config, me->comm, NULL));
    for (int step = 0; step < steps; step++) {
        options.rate = 0.03 * (1 - (double)step / steps);
        (void)loss_of(gradient, w, p, mix((uint64_t)step), BATCH);
        expect_ok(hkt_compressor_all_reduce(c, gradient, gradient, DIM, true, NULL));
        expect_ok(hkt_adamw(&options, (uint64_t)step + 1, 1, &(hkt_adamw_state_t){w, m, v, gradient}, DIM));
    }
    expect_ok(hkt_compressor_destroy(c));
    return mean_loss(me, w, p);
}

static void adam_converges(struct rank *me)
{
    enum { STEPS = 1200 };
    struct problem *const p = calloc(1, sizeof(*p));

    set_up(p, me->rank);
    const double plain = train(me, p, 1000000, STEPS), onebit = train(me, p, STEPS / 5, STEPS),
                 wrong = naive(me, p, STEPS);

    expect(fabs(onebit / plain - 1) < 0.02, "1-bit Adam ends at %g, Adam at %g", onebit, plain);
    expect(wrong - plain > 3 * fabs(onebit - plain), "signs before Adam end at %g, 1-bit Adam at %g, Adam at %g", wrong,
           onebit, plain);
    free(p);
}

/* Proves: 1-bit Adam ends within 2 % of Adam at equal steps, with the same weights on all ranks; signs before Adam do
 * worse. */
START_TEST(R1422_onebit_adam_converges)
{
    world(RANKS, THREADS, adam_converges, NULL);
}
END_TEST

enum { COUNT = 9000, DEAD = 777 /* an element without gradient */ };

static void adam_gradient(float *gradient, uint64_t step, int rank)
{
    fill_noise(gradient, seed_of(step, rank), COUNT);
    gradient[DEAD] = 0;
}

static uint64_t traffic_of(struct rank *me)
{
    hkt_traffic_t t;

    expect_ok(hkt_comm_traffic(me->comm, NULL, &t));
    return t.bytes;
}

static void adam_steps(struct rank *me)
{
    float             *w = floats(COUNT), *gradient = floats(COUNT), *before = floats(COUNT);
    hkt_ledger_entry_t entry;
    hkt_ledger_t      *ledger;
    bool               skipped;

    expect_ok(hkt_ledger_create(&ledger));
    hkt_onebit_adam_t *adam = adam_of(me, COUNT, 3, 0.1, ledger);

    expect_ok(hkt_ledger_read(&entry, HKT_BYTES_OPTIMIZER, ledger));
    expect_true(entry.now == 12 * COUNT);
    for (size_t i = 0; i < COUNT; i++)
        w[i] = 1;
    for (uint64_t step = 0; step < 8; step++) {
        const bool     bad = step == 1 || step == 5; /* before the freeze, after it */
        const uint64_t all = traffic_of(me);

        adam_gradient(gradient, step, me->rank);
        gradient[100] = bad && me->rank ? NAN : gradient[100];
        memcpy(before, w, COUNT * sizeof(float));
        expect_ok(hkt_onebit_adam_step(&skipped, adam, w, gradient, COUNT, 0.01));
        const uint64_t bytes = traffic_of(me) - all;

        expect(skipped == bad && same(before, w, COUNT) == bad, "step %d", (int)step);
        expect(step == 5 || (step < 4 ? bytes == 4 * COUNT : bytes < 4 * COUNT / 15), "%d bytes in step %d", (int)bytes,
               (int)step);
        expect(step < 4 || w[DEAD] == before[DEAD], "an element without gradient moves to %g", (double)w[DEAD]);
    }
    expect_code(hkt_onebit_adam_step(NULL, adam, w, gradient, COUNT - 1, 0.01), HKT_ERR_ARGUMENT);
    expect_ok(hkt_onebit_adam_destroy(adam));
    expect_ok(hkt_ledger_destroy(ledger));
    free(w);
    free(gradient);
    free(before);
}

/* Proves: 12 bytes an element; fp32 traffic in the warm-up and a fifteenth or less after it; bad gradients are skipped
 * on all ranks; elements without gradient stay. */
START_TEST(R1422_onebit_adam_steps)
{
    world(2, THREADS, adam_steps, NULL);
}
END_TEST

static void adam_saves(struct rank *me)
{
    const uint64_t     saved = *(const int *)me->arg ? 6 : 2; /* after the freeze, before it */
    float             *w = floats(COUNT), *twin = floats(COUNT), *gradient = floats(COUNT);
    hkt_onebit_adam_t *adam = adam_of(me, COUNT, 4, 0.1, NULL), *other = adam_of(me, COUNT, 4, 0.1, NULL);
    size_t             bytes;
    char              *state;

    for (uint64_t step = 0; step < saved; step++) {
        adam_gradient(gradient, step, me->rank);
        expect_ok(hkt_onebit_adam_step(NULL, adam, w, gradient, COUNT, 0.01));
    }
    expect_ok(hkt_onebit_adam_state_size(&bytes, adam));
    state = malloc(bytes);
    expect_ok(hkt_onebit_adam_save(state, adam));
    expect_code(hkt_onebit_adam_load(other, state, bytes - 1), HKT_ERR_ARGUMENT);
    expect_ok(hkt_onebit_adam_load(other, state, bytes));
    memcpy(twin, w, COUNT * sizeof(float));
    for (uint64_t step = saved; step < saved + 5; step++) {
        adam_gradient(gradient, step, me->rank);
        expect_ok(hkt_onebit_adam_step(NULL, adam, w, gradient, COUNT, 0.01));
        expect_ok(hkt_onebit_adam_step(NULL, other, twin, gradient, COUNT, 0.01));
        expect(same(twin, w, COUNT), "step %d is not the same after loading", (int)step);
    }
    expect_ok(hkt_onebit_adam_destroy(other));
    other = adam_of(me, COUNT, 5, 0.1, NULL);
    expect_code(hkt_onebit_adam_load(other, state, bytes), HKT_ERR_ARGUMENT);
    expect_said("warm-up has 4 steps, here it has 5");
    state[0] = 'X';
    expect_code(hkt_onebit_adam_load(other, state, bytes), HKT_ERR_ARGUMENT);
    expect_ok(hkt_onebit_adam_destroy(adam));
    expect_ok(hkt_onebit_adam_destroy(other));
    free(state);
    free(w);
    free(twin);
    free(gradient);
}

/* Proves: a saved state goes on with the same bits, from the warm-up and from after it; that of another warm-up is
 * refused. */
START_TEST(R1422_onebit_adam_saved)
{
    world(2, THREADS, adam_saves, &_i);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, R79_R80_R81_convergence, CASES, 30);
    ADD(s, R1422_warm_up_is_adamw, 1, 20);
    ADD(s, R1422_onebit_adam_converges, 1, 30);
    ADD(s, R1422_onebit_adam_steps, 1, 20);
    ADD(s, R1422_onebit_adam_saved, 2, 20);
}

int main(void)
{
    return run_suite("codec_training", add);
}
