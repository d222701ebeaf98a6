/* test_trainer.c -- the arithmetic of the trainer, without ranks: every layer's gradient against finite differences
 * with every set of kernels that this processor can run, the optimizer and the generator against their definitions, and
 * what sequences a step sees.
 */
#include "data.h"
#include "layers.h"
#include "model.h"
#include "optimizer.h"
#include "random.h"
#include "stop.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 7 };

/* Normal numbers that depend on `name`. */
static float *numbers(const char *name, size_t count, double deviation)
{
    const struct random_source source = {SEED, random_stream(name), 0, deviation};
    float                     *x      = take_floats(count);

    random_normal(&source, x, count);
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

enum { ROWS = 7, IN = 19, OUT = 23 };

struct linear_case {
    struct linear layer;
    float        *y, *residual, *out;
};

static double linear_value(void *arg)
{
    struct linear_case *c = arg;

    linear_forward(c->y, c->residual, &c->layer);
    return dot(c->y, c->out, ROWS * OUT);
}

START_TEST(linear_gradient_is_right)
{
    float *x = numbers("x", ROWS * IN, 1), *w = numbers("w", OUT * IN, 0.3), *b = numbers("b", OUT, 1),
          *dx             = take_floats(ROWS * IN);
    float             *dw = numbers("junk", OUT * IN, 1), *db = numbers("junk", OUT, 1);
    struct linear_case c = {
        {ROWS, IN, OUT, x, w, b}, take_floats(ROWS * OUT), numbers("r", ROWS * OUT, 1), numbers("o", ROWS * OUT, 1)};
    const struct linear_gradient g = {dx, dw, db, 0}, again = {dx, dw, db, 1};
    float                        first;

    use_kernels(_i);
    linear_backward(&g, c.out, &c.layer); /* keep 0 must overwrite the junk */
    prove(&(struct claim){"linear input", linear_value, &c, x, dx, ROWS * IN});
    prove(&(struct claim){"linear weight", linear_value, &c, w, dw, OUT * IN});
    prove(&(struct claim){"linear bias", linear_value, &c, b, db, OUT});
    prove(&(struct claim){"linear residual", linear_value, &c, c.residual, c.out, ROWS * OUT});
    first = dw[5];
    linear_backward(&again, c.out, &c.layer);
    ck_assert_float_eq_tol(dw[5], 2 * first, 1e-4f * (1 + fabsf(first)));
    for (float **p = (float *[]){x, w, b, dx, dw, db, c.y, c.residual, c.out, NULL}; *p; p++)
        free(*p);
}
END_TEST

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

struct attention_case {
    struct attention attention;
    float           *out;
    size_t           count;
};

static double attention_value(void *arg)
{
    struct attention_case *c = arg;

    attention_forward(&c->attention);
    return dot(c->attention.mixed, c->out, c->count);
}

START_TEST(attention_gradient_is_right)
{
    const int batch = 2, heads = 3, width = 24,
              lengths[] = {1, 5, ATTENTION_ROWS, ATTENTION_ROWS + 9, 2 * ATTENTION_ROWS + 1};
    const int    length = lengths[_i % 5];
    const size_t rows = (size_t)(batch * length), count = rows * (size_t)width;
    float       *qkv = numbers("qkv", 3 * count, 1), *dqkv = numbers("junk", 3 * count, 1);
    float       *chances    = numbers("junk", rows * (size_t)(heads * length), 1),
          *scratch          = numbers("junk", (size_t)(ATTENTION_ROWS * length), 1);
    struct attention_case c = {
        {batch, length, width, heads, qkv, chances, take_floats(count)}, numbers("o", count, 1), count};
    float *before;

    use_kernels(_i / 5);
    attention_value(&c);
    attention_backward(dqkv, c.out, scratch, &c.attention);
    prove(&(struct claim){"attention", attention_value, &c, qkv, dqkv, 3 * count});

    attention_forward(&c.attention);
    before = take_floats(count);
    memcpy(before, c.attention.mixed, count * sizeof(float));
    for (int i = 0; i < 3 * width; i++) /* a change of the last position is seen by no earlier one */
        qkv[(size_t)(length - 1) * 3 * (size_t)width + (size_t)i] += 1;
    attention_forward(&c.attention);
    ck_assert_mem_eq(before, c.attention.mixed, (size_t)(length - 1) * (size_t)width * sizeof(float));
    for (float **p = (float *[]){qkv, dqkv, chances, scratch, c.attention.mixed, c.out, before, NULL}; *p; p++)
        free(*p);
}
END_TEST

struct loss_case {
    float         *logits, *copy;
    const uint8_t *target;
};

static double loss_value(void *arg)
{
    struct loss_case *c = arg;

    memcpy(c->copy, c->logits, ROWS * VOCABULARY * sizeof(float));
    return kernels->cross_entropy(matrix_of(c->copy, ROWS, VOCABULARY), c->target, 1);
}

START_TEST(cross_entropy_gradient_is_right)
{
    const uint8_t    target[ROWS] = {0, 255, 17, 3, 3, 128, 64};
    struct loss_case c            = {numbers("l", ROWS * VOCABULARY, 3), take_floats(ROWS * VOCABULARY), target};
    float           *gradient     = take_floats(ROWS * VOCABULARY);
    double           exact        = 0, loss;

    use_kernels(_i);
    loss = loss_value(&c);
    memcpy(gradient, c.copy, ROWS * VOCABULARY * sizeof(float));
    for (int i = 0; i < ROWS; i++) {
        double sum = 0;

        for (int j = 0; j < VOCABULARY; j++)
            sum += exp((double)c.logits[i * VOCABULARY + j]);
        exact += log(sum) - (double)c.logits[i * VOCABULARY + target[i]];
    }
    ck_assert_double_eq_tol(loss, exact, 1e-5 * exact);
    prove(&(struct claim){"cross entropy", loss_value, &c, c.logits, gradient, ROWS * VOCABULARY});
    free(c.logits), free(c.copy), free(gradient);
}
END_TEST

/* ---- the whole model
 * ------------------------------------------------------------------------------------------------------------ */

struct model_case {
    struct model model;
    struct batch batch;
    uint8_t      token[2 * 12], target[2 * 12];
    size_t       ready; /* the last offset that was announced */
    int          announced;
};

static void announce(void *arg, size_t offset)
{
    struct model_case *c = arg;

    ck_assert_uint_lt(offset, c->ready);
    c->ready = offset;
    c->announced++;
}

static void begin_model(struct model_case *c)
{
    *c = (struct model_case){.ready = SIZE_MAX};
    for (size_t i = 0; i < sizeof(c->token); i++) {
        c->token[i]  = (uint8_t)random_bits(SEED, 1, i);
        c->target[i] = (uint8_t)random_bits(SEED, 2, i);
    }
    c->batch = (struct batch){2, 12, c->token, c->target};
    model_layout(&c->model, (struct shape){.layers = 2, .width = 18, .heads = 3, .mlp = 40, .length = 12});
    c->model.weight   = take_floats(c->model.parameters);
    c->model.gradient = take_floats(c->model.parameters);
    model_begin(&c->model, 2, SEED, 0.2);
}

static void end_model(struct model_case *c)
{
    free(c->model.weight);
    free(c->model.gradient);
    model_end(&c->model);
}

static double model_value(void *arg)
{
    struct model_case *c = arg;

    model_forward(&c->model, c->batch);
    return model_loss(&c->model, c->batch, 1);
}

START_TEST(model_gradient_is_right)
{
    struct model_case c;

    use_kernels(_i);
    begin_model(&c);
    model_value(&c);
    model_backward(&c.model, c.batch, 0, (struct ready_hook){announce, &c});
    ck_assert_uint_eq(c.ready, 0);
    ck_assert_int_eq(c.announced, 2 * 2 + 2);
    for (int i = 0; i < c.model.tensors; i++) {
        const struct tensor *t = &c.model.tensor[i];

        prove(&(struct claim){t->name, model_value, &c, c.model.weight + t->offset, c.model.gradient + t->offset,
                              (size_t)(t->rows * t->cols)});
    }
    end_model(&c);
}
END_TEST

/* What is announced as complete is not touched again: that is what lets its all-reduce start. */
struct frozen {
    struct model_case *c;
    float             *copy;
    size_t             from;
};

static void freeze(void *arg, size_t offset)
{
    struct frozen      *f = arg;
    const struct model *m = &f->c->model;

    ck_assert_mem_eq(f->copy + f->from, m->gradient + f->from, (m->parameters - f->from) * sizeof(float));
    memcpy(f->copy + offset, m->gradient + offset, (f->from - offset) * sizeof(float));
    f->from = offset;
}

START_TEST(announced_gradients_are_final)
{
    struct model_case c;
    struct frozen     f = {.c = &c};

    use_kernels(0);
    begin_model(&c);
    f.copy = take_floats(c.model.parameters);
    f.from = c.model.parameters;
    model_value(&c);
    model_backward(&c.model, c.batch, 0, (struct ready_hook){freeze, &f});
    ck_assert_uint_eq(f.from, 0);
    ck_assert_mem_eq(f.copy, c.model.gradient, c.model.parameters * sizeof(float));
    free(f.copy);
    end_model(&c);
}
END_TEST

START_TEST(passes_add_up)
{
    struct model_case c;
    double            once, twice;

    use_kernels(0);
    begin_model(&c);
    c.ready = SIZE_MAX;
    model_value(&c);
    model_backward(&c.model, c.batch, 0, (struct ready_hook){announce, &c});
    once    = kernels->sum_of_squares(c.model.gradient, c.model.parameters);
    c.ready = SIZE_MAX;
    model_value(&c);
    model_backward(&c.model, c.batch, 1, (struct ready_hook){announce, &c});
    twice = kernels->sum_of_squares(c.model.gradient, c.model.parameters);
    ck_assert_double_eq_tol(twice / once, 4, 1e-5);
    end_model(&c);
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
        const double       c1 = 1 - pow(0.9, step), c2 = 1 - pow(0.95, step), rate = 0.01 * step;
        const struct adamw a = {(float)rate, 0.1f, 0.9f, 0.95f, 1e-8f, 0.5f, (float)c1, (float)c2};

        kernels->adamw(&a, &(struct adamw_state){w, m, v, g}, COUNT);
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
    const struct settings s = {.rate = 1, .least_rate = 0.1, .warmup = 10, .iterations = 110};

    ck_assert_double_eq_tol(optimizer_rate(&s, 1), 0.1, 1e-12);
    ck_assert_double_eq_tol(optimizer_rate(&s, 10), 1, 1e-12);
    ck_assert_double_eq_tol(optimizer_rate(&s, 60), 0.55, 1e-12);
    ck_assert_double_eq_tol(optimizer_rate(&s, 110), 0.1, 1e-12);
}
END_TEST

START_TEST(generator_is_philox)
{
    struct random_source source = {SEED, 3, 0, 2};
    float                all[1000], part[700];
    double               sum = 0, squares = 0;

    /* the authors' known answers, first two words of each block */
    ck_assert_uint_eq(random_bits(0, 0, 0), 0xe169c58d6627e8d5u);
    ck_assert_uint_eq(random_bits(UINT64_MAX, UINT64_MAX, UINT64_MAX), 0x41c83b0e408f276du);
    random_normal(&source, all, 1000);
    source.first = 301; /* a part drawn on its own is the same: a shard needs no more than its place */
    random_normal(&source, part, 699);
    ck_assert_mem_eq(part, all + 301, 699 * sizeof(float));
    for (int i = 0; i < 1000; i++) {
        sum += (double)all[i];
        squares += (double)all[i] * (double)all[i];
    }
    ck_assert(fabs(sum / 1000) < 0.25 && fabs(squares / 1000 - 4) < 0.8);
}
END_TEST

START_TEST(shuffle_is_a_permutation)
{
    const uint64_t sizes[] = {1, 2, 3, 5, 16, 17, 100, 1000, 4097};

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        uint8_t  seen[4097] = {0};
        uint64_t still      = 0;

        for (uint64_t i = 0; i < sizes[s]; i++) {
            const uint64_t place = random_shuffle(SEED, s, i, sizes[s]);

            ck_assert_uint_lt(place, sizes[s]);
            ck_assert_uint_eq(seen[place]++, 0);
            still += place == i;
        }
        ck_assert(sizes[s] < 100 || still < 20);
    }
}
END_TEST

START_TEST(an_epoch_sees_each_window_once)
{
    enum { SIZE = 1003, LENGTH = 10 };
    uint8_t     bytes[SIZE];
    struct text text    = {bytes, SIZE, 950, 1, ""};
    uint64_t    windows = (950 - 1) / LENGTH - 1;

    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        int times[SIZE] = {0};

        for (uint64_t i = 0; i < windows; i++) {
            const uint8_t *sequence = text_sequence(&text, SEED, epoch * windows + i, LENGTH);

            ck_assert_ptr_eq(sequence, text_sequence(&text, SEED, epoch * windows + i, LENGTH));
            ck_assert(sequence >= bytes && sequence + LENGTH + 1 <= bytes + text.train);
            for (int j = 0; j < LENGTH; j++)
                times[sequence - bytes + j]++;
        }
        for (int j = 0; j < SIZE; j++)
            ck_assert_int_le(times[j], 1);
    }
    for (uint64_t i = 0; i < 7; i++) { /* what is evaluated on is never trained on */
        const uint8_t *window = text_held_out(&text, i, 7, LENGTH);

        ck_assert(window >= bytes + text.train && window + LENGTH + 1 <= bytes + SIZE);
    }
}
END_TEST

START_TEST(initial_weights_do_not_depend_on_the_layout)
{
    struct model_case small, deep;

    use_kernels(0);
    begin_model(&small);
    model_layout(&deep.model, (struct shape){.layers = 5, .width = 18, .heads = 2, .mlp = 40, .length = 12});
    deep.model.weight = take_floats(deep.model.parameters);
    model_begin(&deep.model, 1, SEED, 0.2);
    for (int which = 0; which < PER_BLOCK; which++) {
        const struct tensor *a = model_tensor(&small.model, 1, which), *b = model_tensor(&deep.model, 1, which);
        const float ratio = which == MIX_WEIGHT || which == DOWN_WEIGHT ? sqrtf(2.0f / 5.0f) : 1; /* scaled by depth */

        ck_assert_str_eq(a->name, b->name);
        for (int i = 0; i < a->rows * a->cols; i++)
            ck_assert_float_eq_tol(deep.model.weight[b->offset + (size_t)i],
                                   ratio * small.model.weight[a->offset + (size_t)i], 1e-6f);
    }
    free(deep.model.weight);
    model_end(&deep.model);
    end_model(&small);
}
END_TEST

int main(void)
{
    const int all    = kernels_usable();
    Suite    *suite  = suite_create("trainer");
    TCase    *layers = tcase_create("layers"), *model = tcase_create("model"), *rest = tcase_create("rest");
    SRunner  *runner = srunner_create(suite);
    int       failed;

    tcase_add_loop_test(layers, linear_gradient_is_right, 0, all);
    tcase_add_loop_test(layers, norm_gradient_is_right, 0, all);
    tcase_add_loop_test(layers, gelu_gradient_is_right, 0, all);
    tcase_add_loop_test(layers, attention_gradient_is_right, 0, 5 * all);
    tcase_add_loop_test(layers, cross_entropy_gradient_is_right, 0, all);
    tcase_add_loop_test(model, model_gradient_is_right, 0, all);
    tcase_add_test(model, announced_gradients_are_final);
    tcase_add_test(model, passes_add_up);
    tcase_add_test(model, initial_weights_do_not_depend_on_the_layout);
    tcase_add_loop_test(rest, adamw_follows_its_definition, 0, all);
    tcase_add_test(rest, rate_rises_and_falls);
    tcase_add_test(rest, generator_is_philox);
    tcase_add_test(rest, shuffle_is_a_permutation);
    tcase_add_test(rest, an_epoch_sees_each_window_once);
    suite_add_tcase(suite, layers);
    suite_add_tcase(suite, model);
    suite_add_tcase(suite, rest);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
