/* test_scaler.c -- loss scaling: the state machine, its agreement over ranks, and the search for what is not finite. */
#include "harness.h"

#include <hocket_train.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the state machine */

/* I: overflow, G: good; the scale after each. */
struct golden {
    const char *events;
    double      scale[16];
};

static void follow(const hkt_scaler_config_t *c, const struct golden *g)
{
    hkt_scaler_t *s;

    expect_ok(hkt_scaler_create(&s, c));
    expect_true(hkt_scaler_scale(s) == c->initial);
    for (int i = 0; g->events[i]; i++) {
        expect_ok(hkt_scaler_update(s, g->events[i] == 'I', "w"));
        expect(hkt_scaler_scale(s) == g->scale[i], "after %.*s the scale is %g, not %g", i + 1, g->events,
               hkt_scaler_scale(s), g->scale[i]);
    }
    expect_ok(hkt_scaler_destroy(s));
}

/* Proves (research 2.4, row 93): the golden sequence of Megatron's rule, that a good step does not refill the
 * hysteresis, that the scale neither falls below the least nor moves when it is static. */
START_TEST(T_row93_golden_sequences)
{
    const struct golden megatron = {"IIGGGGIGI", {16, 8, 8, 8, 8, 16, 16, 16, 8}};
    const struct golden falling  = {"IIIIIIG", {16, 8, 4, 4, 4, 4, 4}}; /* each further one halves; least 4 */
    const struct golden direct   = {"IGIGG", {8, 8, 4, 4, 8}};
    const struct golden still    = {"IIGGGGGG", {16, 16, 16, 16, 16, 16, 16, 16}};
    hkt_scaler_config_t c        = HKT_SCALER_CONFIG_INIT;

    expect_true(c.initial == 4294967296.0 && c.interval == 1000 && c.hysteresis == 2 && c.least == 1);
    c.initial  = 16;
    c.interval = 4;
    follow(&c, &megatron);
    c.least = 4;
    follow(&c, &falling);
    c.hysteresis = 1;
    c.interval   = 2;
    follow(&c, &direct);
    c.dynamic = false;
    follow(&c, &still);
}
END_TEST

/* Proves: when patience runs out at the least scale the error names tensor, scale and counts; a good step in between
 * resets it; above the least scale nothing counts. */
START_TEST(T_C19_stops_with_a_diagnosis)
{
    for (int dynamic = 0; dynamic < 2; dynamic++) {
        hkt_scaler_config_t c = HKT_SCALER_CONFIG_INIT;
        hkt_scaler_t       *s;

        c.dynamic    = dynamic;
        c.initial    = dynamic ? 4 : 1;
        c.hysteresis = 1;
        c.patience   = 3;
        expect_ok(hkt_scaler_create(&s, &c));
        for (int i = 0; dynamic && i < 2; i++) /* 4, 2: not yet at the least */
            expect_ok(hkt_scaler_update(s, true, "early"));
        expect_true(hkt_scaler_scale(s) == 1);
        for (int i = 0; i < 2; i++)
            expect_ok(hkt_scaler_update(s, true, "w"));
        expect_ok(hkt_scaler_update(s, false, NULL));
        for (int i = 0; i < 2; i++)
            expect_ok(hkt_scaler_update(s, true, "w"));
        expect_code(hkt_scaler_update(s, true, "layer7.mlp"), HKT_ERR_USAGE);
        expect_said("\"layer7.mlp\"");
        expect_said("3 steps in a row");
        expect_said(dynamic ? "least loss scale 1" : "static loss scale 1");
        expect_said(dynamic ? "7 steps skipped" : "5 steps skipped");
        expect_ok(hkt_scaler_destroy(s));
    }
}
END_TEST

/* Proves: a scaler restored in the middle goes on as the one that was saved; states that cannot be are refused,
 * whatever they hold. */
START_TEST(T_C16_state_goes_on)
{
    const char         *events = "IGGIGGGGIIGIGGGGGGGGIIIIGGGG";
    hkt_scaler_config_t c      = HKT_SCALER_CONFIG_INIT;
    hkt_scaler_state_t  state, bad;
    hkt_scaler_t       *whole, *second;

    c.initial  = 1024;
    c.interval = 4;
    for (int cut = 0; events[cut]; cut++) {
        expect_ok(hkt_scaler_create(&whole, &c));
        expect_ok(hkt_scaler_create(&second, &c));
        for (int i = 0; i < cut; i++)
            expect_ok(hkt_scaler_update(whole, events[i] == 'I', "w"));
        expect_ok(hkt_scaler_get(&state, whole));
        expect_ok(hkt_scaler_set(second, &state));
        for (int i = cut; events[i]; i++) {
            expect_ok(hkt_scaler_update(whole, events[i] == 'I', "w"));
            expect_ok(hkt_scaler_update(second, events[i] == 'I', "w"));
            expect_true(hkt_scaler_scale(whole) == hkt_scaler_scale(second));
        }
        expect_ok(hkt_scaler_destroy(whole));
        expect_ok(hkt_scaler_destroy(second));
    }
    expect_ok(hkt_scaler_create(&second, &c));
    bad       = state;
    bad.scale = NAN;
    expect_code(hkt_scaler_set(second, &bad), HKT_ERR_ARGUMENT);
    bad        = state;
    bad.growth = 4;
    expect_code(hkt_scaler_set(second, &bad), HKT_ERR_ARGUMENT);
    bad            = state;
    bad.hysteresis = 3;
    expect_code(hkt_scaler_set(second, &bad), HKT_ERR_ARGUMENT);
    expect_true(hkt_scaler_scale(second) == 1024);
    expect_ok(hkt_scaler_destroy(second));
    c.backoff = 1.5;
    expect_code(hkt_scaler_create(&second, &c), HKT_ERR_ARGUMENT);
    expect_said("backoff is 1.5");
    c         = (hkt_scaler_config_t)HKT_SCALER_CONFIG_INIT;
    c.initial = 0.5;
    expect_code(hkt_scaler_create(&second, &c), HKT_ERR_ARGUMENT);
    expect_said("initial is 0.5");
    expect_ok(hkt_scaler_destroy(NULL));
}
END_TEST

/* ---- over ranks */

static void agree(struct rank *me)
{
    hkt_overflow_t o;
    hkt_scaler_t  *s;

    expect_ok(hkt_scaler_create(&s, NULL));
    for (unsigned saw = 0; saw < 1u << me->n; saw++) { /* every set of ranks that see one */
        char name[HKT_TENSOR_NAME + 20];
        int  highest = -1;

        memset(name, 'x', sizeof name); /* longer than what is kept */
        (void)snprintf(name, 12, "tensor%d", me->rank);
        name[strlen(name)]    = '.';
        name[sizeof name - 1] = 0;
        for (int r = 0; r < me->n; r++)
            highest = saw >> r & 1 ? r : highest;
        expect_ok(hkt_scaler_agree(&o, saw >> me->rank & 1, name, 100 + (size_t)me->rank, me->comm));
        expect_true(o.overflow == (saw != 0));
        if (saw)
            expect(o.rank == highest && o.element == 100 + (size_t)highest && o.tensor[6] == '0' + highest &&
                       strlen(o.tensor) == HKT_TENSOR_NAME - 1,
                   "ranks %x: rank %d, element %zu, %s", saw, o.rank, o.element, o.tensor);
        else
            expect_true(o.rank == 0 && o.element == 0 && o.tensor[0] == 0);
        expect_ok(hkt_scaler_update(s, o.overflow, o.tensor));
    }
    double scale[2] = {hkt_scaler_scale(s), -hkt_scaler_scale(s)};
    if (me->comm)
        expect_ok(hkt_all_reduce(scale, scale, 2, HKT_FLOAT64, HKT_MAX, me->comm, NULL));
    expect(scale[0] == -scale[1], "the ranks have scales from %g to %g", -scale[1], scale[0]);
    expect_ok(hkt_scaler_destroy(s));
}

/* Proves: whichever ranks see an overflow, all agree that there was one and where, and their scales stay equal. */
START_TEST(T_C19_ranks_agree)
{
    world(1 + _i, THREADS, agree, NULL);
}
END_TEST

/* Proves: the first infinity or NaN is found at every place of arrays of many lengths and all types; extremes that are
 * finite are not. */
START_TEST(nonfinite_is_found)
{
    static const hkt_type_t types[]    = {HKT_FLOAT32, HKT_BFLOAT16, HKT_FLOAT16};
    static const uint32_t   bad[3][4]  = {{0x7f800000, 0xff800000, 0x7f800001, 0xffffffff},
                                          {0x7f80, 0xff80, 0x7f81, 0xffff},
                                          {0x7c00, 0xfc00, 0x7c01, 0xffff}};
    static const uint32_t   good[3][3] = {{0x7f7fffff, 0x80000001, 0}, {0x7f7f, 0x8001, 0}, {0x7bff, 0x8001, 0}};
    char                    x[4 * 2100];
    size_t                  at;

    for (int t = 0; t < 3; t++)
        for (size_t n = 0; n < 2100; n = n < 70 ? n + 1 : n + 171) {
            const size_t size = hkt_type_size(types[t]);
            for (size_t i = 0; i < n; i++)
                memcpy(x + i * size, &good[t][i % 3], size);
            expect_ok(hkt_find_nonfinite(&at, x, n, types[t]));
            expect_true(at == n);
            for (size_t i = 0; i < n; i += 1 + n / 13) {
                memcpy(x + (n - 1) * size, &bad[t][0], size); /* a second one, at the end */
                memcpy(x + i * size, &bad[t][i % 4], size);
                expect_ok(hkt_find_nonfinite(&at, x, n, types[t]));
                expect(at == i, "%s: element %zu of %zu is not finite, found is %zu", hkt_type_name(types[t]), i, n,
                       at);
                memcpy(x + i * size, &good[t][0], size);
            }
        }
    expect_code(hkt_find_nonfinite(&at, x, 1, HKT_INT32), HKT_ERR_ARGUMENT);
    expect_code(hkt_find_nonfinite(&at, NULL, 1, HKT_FLOAT32), HKT_ERR_ARGUMENT);
    expect_ok(hkt_find_nonfinite(&at, NULL, 0, HKT_FLOAT32));
}
END_TEST

static void add(Suite *s)
{
    ADD(s, T_row93_golden_sequences, 1, 10);
    ADD(s, T_C19_stops_with_a_diagnosis, 1, 10);
    ADD(s, T_C16_state_goes_on, 1, 10);
    ADD(s, T_C19_ranks_agree, 4, 20);
    ADD(s, nonfinite_is_found, 1, 20);
}

int main(void)
{
    return run_suite("scaler", add);
}
