/* test_trainer.c -- what the trainer has beside the model, without ranks: loops against finite differences with every
 * set of kernels that this processor can run, the learning rate, flags from a file, and what sequences a step sees.
 */
#include "batches.h"
#include "data.h"
#include "kernels.h"
#include "settings.h"
#include "stop.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 7 };

/* Normal numbers that depend on `name`. */
static float *numbers(const char *name, size_t count, double deviation)
{
    float *x = take_floats(count);

    hkt_random_fill_normal(x, hkt_random_named(SEED, name), 0, count, deviation);
    return x;
}

static double dot(const float *x, const float *y, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* A function whose gradient is to be proved: value(arg) as a function of x. */
struct claim {
    const char *what;
    double (*value)(void *arg);
    void        *arg;
    float       *x;
    const float *gradient;
    size_t       count;
};

/* The derivative along random directions, by central differences, must equal the gradient's component. */
static void prove(const struct claim *claim)
{
    const double h     = 1e-2;
    float       *saved = take_floats(claim->count);

    memcpy(saved, claim->x, claim->count * sizeof(float));
    for (int direction = 0; direction < 4; direction++) {
        char   name[8] = {'d', (char)('0' + direction), 0};
        float *along   = numbers(name, claim->count, 1 / sqrt((double)claim->count));
        double value[2];

        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < claim->count; i++)
                claim->x[i] = saved[i] + (float)(side ? h : -h) * along[i];
            value[side] = claim->value(claim->arg);
        }
        memcpy(claim->x, saved, claim->count * sizeof(float));

        const double measured = (value[1] - value[0]) / (2 * h), claimed = dot(claim->gradient, along, claim->count);
        const double size = sqrt(dot(claim->gradient, claim->gradient, claim->count) / (double)claim->count);

        ck_assert_msg(fabs(measured - claimed) < 0.003 * size + 1e-3, "%s (%s): derivative %g, gradient says %g",
                      claim->what, kernels->name, measured, claimed);
        free(along);
    }
    free(saved);
}

static void use_kernels(int which)
{
    matrix_begin(MATRIX_FP32);
    kernels = kernels_table[which < kernels_usable() ? which : 0];
}

/* ---- layers; each value is the inner product of the result with fixed numbers, so that those are the result's
 * gradient ---------- */

enum { ROWS = 7, IN = 19 };

struct norm_case {
    struct norm norm;
    float      *y, *out;
};

static double norm_value(void *arg)
{
    struct norm_case *c = arg;

    kernels->norm(c->y, &c->norm);
    return dot(c->y, c->out, ROWS * IN);
}

START_TEST(norm_gradient_is_right)
{
    float *x = numbers("x", ROWS * IN, 2), *gain = numbers("g", IN, 1), *bias = numbers("b", IN, 1);
    float *dx = numbers("old", ROWS * IN, 1), *old = numbers("old", ROWS * IN, 1), *dgain = take_floats(IN),
          *dbias       = take_floats(IN);
    struct norm_case c = {{ROWS, IN, x, gain, bias, take_floats(ROWS), take_floats(ROWS)},
                          take_floats(ROWS * IN),
                          numbers("o", ROWS * IN, 1)};

    use_kernels(_i);
    norm_value(&c);
    kernels->norm_backward(dx, dgain, dbias, c.out, &c.norm);
    for (int i = 0; i < ROWS * IN; i++) /* it adds to what is there */
        dx[i] -= old[i];
    prove(&(struct claim){"norm input", norm_value, &c, x, dx, ROWS * IN});
    prove(&(struct claim){"norm gain", norm_value, &c, gain, dgain, IN});
    prove(&(struct claim){"norm bias", norm_value, &c, bias, dbias, IN});
    for (float **p = (float *[]){x, gain, bias, dx, old, dgain, dbias, c.norm.mean, c.norm.rstd, c.y, c.out, NULL}; *p;
         p++)
        free(*p);
}
END_TEST

struct gelu_case {
    float *x, *y, *out;
};

static double gelu_value(void *arg)
{
    struct gelu_case *c = arg;

    kernels->gelu(c->y, c->x, ROWS * IN);
    return dot(c->y, c->out, ROWS * IN);
}

START_TEST(gelu_gradient_is_right)
{
    struct gelu_case c  = {numbers("x", ROWS * IN, 2), take_floats(ROWS * IN), numbers("o", ROWS * IN, 1)};
    float           *dx = numbers("o", ROWS * IN, 1);
    const double     a = sqrt(2 / acos(-1.0)), b = 0.044715;

    use_kernels(_i);
    gelu_value(&c);
    kernels->gelu_backward(dx, c.x, ROWS * IN);
    for (int i = 0; i < ROWS * IN; i++) {
        const double x = (double)c.x[i], t = tanh(a * (x + b * x * x * x));
        const double slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * b * x * x), out = (double)c.out[i];

        ck_assert_double_eq_tol((double)c.y[i], 0.5 * x * (1 + t), 1e-6 * (1 + fabs(x)));
        ck_assert_double_eq_tol((double)dx[i], slope * out, 1e-6 * (1 + fabs(out)));
    }
    prove(&(struct claim){"gelu", gelu_value, &c, c.x, dx, ROWS * IN});
    c.x[0] = 60, c.x[1] = -60, c.x[2] = 0, dx[0] = dx[1] = dx[2] = 1; /* far out: no overflow */
    kernels->gelu(c.y, c.x, 3);
    kernels->gelu_backward(dx, c.x, 3);
    ck_assert(c.y[0] == 60 && fabsf(c.y[1]) < 1e-30f && c.y[2] == 0);
    ck_assert(dx[0] == 1 && fabsf(dx[1]) < 1e-30f && dx[2] == 0.5f);
    free(c.x), free(c.y), free(c.out), free(dx);
}
END_TEST

/* ---- the rest
 * -------------------------------------------------------------------------------------------------------------------
 */

START_TEST(adamw_follows_its_definition)
{
    enum { COUNT = 37, STEPS = 5 };
    float *w = numbers("w", COUNT, 1), *m = take_floats(COUNT), *v = take_floats(COUNT), *g = numbers("g", COUNT, 1);
    double exact[COUNT], mean[COUNT] = {0}, square[COUNT] = {0};

    use_kernels(_i);
    for (int i = 0; i < COUNT; i++)
        exact[i] = (double)w[i];
    for (int step = 1; step <= STEPS; step++) {
        const double      c1 = 1 - pow(0.9, step), c2 = 1 - pow(0.95, step), rate = 0.01 * step;
        const hkt_adamw_t a = {sizeof(a), rate, 0.9, 0.95, 1e-8, 0.1, 0, 1};

        ck_assert_int_eq(hkt_adamw(&a, (uint64_t)step, 0.5, &(hkt_adamw_state_t){w, m, v, g}, COUNT), HKT_OK);
        for (int i = 0; i < COUNT; i++) {
            const double gradient = 0.5 * (double)g[i];

            mean[i]   = 0.9 * mean[i] + 0.1 * gradient;
            square[i] = 0.95 * square[i] + 0.05 * gradient * gradient;
            exact[i] -= rate * 0.1 * exact[i];
            exact[i] -= rate * (mean[i] / c1) / (sqrt(square[i] / c2) + 1e-8);
        }
    }
    for (int i = 0; i < COUNT; i++)
        ck_assert_double_eq_tol((double)w[i], exact[i], 1e-5);
    free(w), free(m), free(v), free(g);
}
END_TEST

START_TEST(rate_rises_and_falls)
{
    struct settings s = {.rate = 1, .least_rate = 0.1, .warmup = 10, .iterations = 110};

    ck_assert_double_eq_tol(settings_rate(&s, 1), 0.1, 1e-12);
    ck_assert_double_eq_tol(settings_rate(&s, 10), 1, 1e-12);
    ck_assert_double_eq_tol(settings_rate(&s, 60), 0.55, 1e-12);
    ck_assert_double_eq_tol(settings_rate(&s, 110), 0.1, 1e-12);
    ck_assert_double_eq_tol(settings_rate(&s, 1000), 0.1, 1e-12);
    s.decay_style = 1; /* linear */
    ck_assert_double_eq_tol(settings_rate(&s, 35), 0.775, 1e-12);
    s.decay_steps = 60;
    ck_assert_double_eq_tol(settings_rate(&s, 60), 0.1, 1e-12);
    s.decay_style = 2; /* constant */
    ck_assert_double_eq_tol(settings_rate(&s, 60), 1, 1e-12);
}
END_TEST

START_TEST(an_epoch_sees_each_window_once)
{
    enum { SIZE = 1003, LENGTH = 10 };
    int32_t        token[SIZE], held[LENGTH + 1];
    struct data    data    = {.text = {token, SIZE, 950}, .length = LENGTH, .seed = SEED};
    const uint64_t windows = (950 - 1) / LENGTH - 1;

    for (int i = 0; i < SIZE; i++)
        token[i] = i;
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        int times[SIZE] = {0};

        for (uint64_t i = 0; i < windows; i++) {
            const int32_t *sequence = text_sequence(&data.text, SEED, epoch * windows + i, LENGTH);

            ck_assert_ptr_eq(sequence, text_sequence(&data.text, SEED, epoch * windows + i, LENGTH));
            ck_assert(sequence >= token && sequence + LENGTH + 1 <= token + data.text.train);
            for (int j = 0; j < LENGTH; j++)
                times[sequence - token + j]++;
        }
        for (int j = 0; j < SIZE; j++)
            ck_assert_int_le(times[j], 1);
    }
    for (uint64_t i = 0; i < 7; i++) { /* what is evaluated on is never trained on */
        data_held_out(held, &data, i, 7);
        ck_assert(held[0] >= 950 && held[LENGTH] < SIZE && held[LENGTH] - held[0] == LENGTH);
    }
}
END_TEST

/* Which sequences are in a step does not depend on how ranks and micro-batches share them. */
START_TEST(shares_make_the_batch)
{
    enum { SIZE = 2000, LENGTH = 8, BATCH = 8 };
    int32_t     token[SIZE], whole[BATCH];
    struct data data = {.text = {token, SIZE, 1900}, .length = LENGTH, .seed = SEED, .end = -1};

    for (int i = 0; i < SIZE; i++)
        token[i] = i;
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        for (long micro = 1; micro * ranks <= BATCH; micro *= 2) {
            const struct settings s     = {.micro_batch = micro, .length = LENGTH, .cp = 1};
            const int             count = BATCH / ranks / (int)micro;
            struct batches        b;

            batches_begin(&b, &s, count, 0);
            for (int rank = 0; rank < ranks; rank++) {
                batches_fill(&b, &data, &(struct batches_span){count, (uint64_t)(rank * count * micro), 24, 0});
                for (int i = 0; i < count * micro; i++) {
                    const struct gpt_batch *at    = &b.batch[i / micro];
                    const int               place = rank * count * (int)micro + i;
                    const int32_t           first = at->token[i % micro * LENGTH];

                    ck_assert_int_eq(at->target[i % micro * LENGTH], first + 1);
                    ck_assert_int_eq(at->sequence + i % micro, place);
                    if (ranks == 1 && micro == 1)
                        whole[place] = first;
                    ck_assert_int_eq(whole[place], first);
                }
                ck_assert(b.weight == count * micro * LENGTH);
            }
            batches_end(&b);
        }
}
END_TEST

/* Context-parallel ranks together have each token of a sequence once, with its target, weight and place. */
START_TEST(context_ranks_share_sequences)
{
    enum { SIZE = 2000, LENGTH = 24, END = 7 };
    int32_t     token[SIZE];
    struct data data      = {.text = {token, SIZE, 1900}, .length = LENGTH, .seed = SEED, .end = END};
    double      weight[2] = {0, 0};
    int32_t     all[LENGTH];

    for (int i = 0; i < SIZE; i++)
        token[i] = i % 11;
    for (int c = 1; c <= 4; c++) {
        const struct settings s = {.micro_batch     = 1,
                                   .length          = LENGTH,
                                   .cp              = c,
                                   .reset_position  = true,
                                   .reset_attention = true,
                                   .mask_end        = true};

        weight[c > 1] = 0;
        for (int rank = 0; rank < c; rank++) {
            struct batches b;

            batches_begin(&b, &s, 1, rank);
            batches_fill(&b, &data, &(struct batches_span){1, 5, 24, 0});
            ck_assert_int_eq(b.batch->length, LENGTH / c);
            for (int i = 0; i < LENGTH / c; i++) {
                const size_t place = hkt_context_place((size_t)i, LENGTH, rank, c);

                if (c == 1)
                    all[i] = b.batch->token[i];
                ck_assert_int_eq(b.batch->token[i], all[place]);
                ck_assert_int_eq(b.batch->target[i], (all[place] + 1) % 11);
                ck_assert_int_eq(b.batch->position[i] + b.batch->start[i], (int)place);
                ck_assert(b.batch->weight[i] == (all[place] == END ? 0 : 1));
            }
            weight[c > 1] += b.weight;
            batches_end(&b);
        }
        ck_assert(c == 1 || weight[0] == weight[1]);
    }
}
END_TEST

/* Flags come from a file, and those of the command line win. */
START_TEST(a_file_has_flags)
{
    char  path[] = "/tmp/hkt-settings-XXXXXX", name[] = "hkt-train", flag[] = "--config", lr[] = "--lr", rate[] = "0.5";
    char *words[]        = {name, flag, path, lr, rate, NULL};
    const int       fd   = mkstemp(path);
    FILE           *file = fdopen(fd, "w");
    struct settings s;

    fputs("# a comment\n--num-layers 7\nhidden-size = 96  # another\n\nlr 0.25\nsequence-parallel\nprompt = a b \n"
          "num-attention-heads=6\n",
          file);
    fclose(file);
    settings_parse(&s, 5, words);
    ck_assert_int_eq(s.layers, 7);
    ck_assert_int_eq(s.width, 96);
    ck_assert_int_eq(s.heads, 6);
    ck_assert_int_eq(s.mlp, 4 * 96);
    ck_assert(s.sequence && !s.bf16 && s.rate == 0.5);
    ck_assert_str_eq(s.prompt, "a b");
    remove(path);
}
END_TEST

/* Megatron-LM's rule for the width of a gated MLP. */
START_TEST(gated_width_is_megatrons)
{
    static const long width[] = {4096, 1024, 768, 64, 16}, mlp[] = {10880, 2688, 2048, 128, 64};
    char              name[32];
    char             *words[] = {(char *)"hkt-train", (char *)"--swiglu", name, NULL};
    struct settings   s;

    snprintf(name, sizeof(name), "--hidden-size=%ld", width[_i]);
    settings_parse(&s, 3, words);
    ck_assert_int_eq(s.mlp, mlp[_i]);
}
END_TEST

int main(void)
{
    const int all   = kernels_usable();
    Suite    *suite = suite_create("trainer");
    TCase    *loops = tcase_create("loops"), *rest = tcase_create("rest");
    SRunner  *runner = srunner_create(suite);
    int       failed;

    tcase_add_loop_test(loops, norm_gradient_is_right, 0, all);
    tcase_add_loop_test(loops, gelu_gradient_is_right, 0, all);
    tcase_add_loop_test(loops, adamw_follows_its_definition, 0, all);
    tcase_add_test(rest, rate_rises_and_falls);
    tcase_add_test(rest, an_epoch_sees_each_window_once);
    tcase_add_loop_test(rest, gated_width_is_megatrons, 0, 5);
    tcase_add_test(rest, shares_make_the_batch);
    tcase_add_test(rest, context_ranks_share_sequences);
    tcase_add_test(rest, a_file_has_flags);
    suite_add_tcase(suite, loops);
    suite_add_tcase(suite, rest);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
