/* test_zero_freeze.c -- 1-bit Adam in the buckets of the optimizer: AdamW until it freezes, then a second moment that stays,
 * gradients that are rounded in units of its root, and the same weights on all ranks.
 */
#include "harness.h"
#include "zero_model.h"

#include <math.h>
#include <string.h>

static void freezes(struct rank *me)
{
    const struct way     plain = {.bytes = 1000}, coded = {.bytes = 1000, .freeze = TOY_STEPS};
    static __thread struct result a, b, first;
    struct toy           t;

    result_of(&a, me, &plain);
    toy_make(&t, me, &coded, NULL);
    for (int i = 0; i < TOY_STEPS; i++)
        toy_step(&t, NULL);
    toy_state(&b, &t);
    expect(memcmp(a.state, b.state, sizeof a.state) == 0, "%d steps before the freeze are not AdamW's", TOY_STEPS);
    for (int i = 0; i < 4; i++)
        toy_step(&t, NULL);
    toy_state(&b, &t);
    expect(memcmp(a.state[HKT_ZERO_MOMENT2], b.state[HKT_ZERO_MOMENT2], sizeof a.state[0]) == 0,
           "the second moment moves after the freeze");
    for (size_t i = 0; i < toy_elements(); i++)
        expect(b.state[HKT_ZERO_MASTER][i] != a.state[HKT_ZERO_MASTER][i], "weight %zu stays after the freeze", i);
    first = b;
    expect_ok(hkt_broadcast(first.state, first.state, sizeof first.state, HKT_UINT8, 0, me->comm, NULL));
    expect(memcmp(first.state, b.state, sizeof b.state) == 0, "the ranks have other weights than rank 0");
    toy_free(&t);
}

/* Proves (row 1422): the steps before `freeze` are AdamW's to the bit though there is a codec; later the second moment stays,
 * all weights go on, and are the same on all ranks. */
START_TEST(R1422_adamw_until_it_freezes)
{
    world(2 + _i, THREADS, freezes, NULL);
}
END_TEST

enum { COUNT = 6144 /* no padding for 2, 3, 4 ranks */, FREEZE = 5 };

/* Of very different size side by side; every eighth is never anything but 0. */
static float gradient_of(int i)
{
    return i % 8 == 7 ? 0 : (i % 3 ? 1.0f : -1.0f) * powf(10, (float)-(i % 5));
}

static void keeps_sizes(struct rank *me)
{
    const hkt_parameter_t p = {"w", COUNT, 0};
    hkt_zero_config_t     c = HKT_ZERO_CONFIG_INIT;
    hkt_adamw_t           o = HKT_ADAMW_INIT;
    hkt_zero_report_t     r;
    hkt_zero_t           *z;
    hkt_reduced_t         reduced;
    void                 *g;

    c.freeze        = FREEZE;
    c.buckets.codec = "onebit:block=64";
    o.clip          = 0;
    expect_ok(hkt_zero_create(&z, &p, 1, me->comm, &c, NULL));
    for (int step = 0; step < FREEZE + 3; step++) {
        expect_ok(hkt_zero_begin(z, 1));
        expect_ok(hkt_zero_gradient(&g, 0, z));
        for (int i = 0; i < COUNT; i++)
            ((float *)g)[i] = gradient_of(i);
        expect_ok(hkt_zero_ready(z, 0));
        expect_ok(hkt_zero_next(z));
        expect_ok(hkt_zero_finish(z));
        expect_ok(hkt_buckets_reduced(&reduced, 0, hkt_zero_buckets(z)));
        for (int i = 0; i < COUNT; i++) {
            const float is = ((const float *)reduced.values)[i], wanted = gradient_of(i);

            /* a block of 64 with 8 zeros has 56 equal magnitudes: their mean is 7/8 of each, and feedback makes up for it */
            expect(fabsf(is - wanted) <= 0.3f * fabsf(wanted), "step %d: gradient %d is %g, not %g", step, i, (double)is,
                   (double)wanted);
        }
        expect_ok(hkt_zero_step(&r, z, &o));
    }
    expect_ok(hkt_zero_destroy(z));
}

/* Proves (row 1422): one bit an element keeps gradients whose size differs by 10^4, for it rounds in units of the second moment's
 * root; and where there never was a gradient there is none. */
START_TEST(R1422_rounds_in_units)
{
    world(2 + _i, THREADS, keeps_sizes, NULL);
}
END_TEST

static void refusals(struct rank *me)
{
    const hkt_parameter_t p = {"w", COUNT, 0};
    hkt_zero_config_t     c = HKT_ZERO_CONFIG_INIT;
    hkt_zero_t           *z;

    c.freeze = FREEZE;
    expect(hkt_zero_create(&z, &p, 1, me->comm, &c, NULL) == HKT_ERR_ARGUMENT, "1-bit Adam without a codec");
    expect_true(strstr(hkt_last_error(), "needs a codec") != NULL);
    c.buckets.codec = "onebit";
    c.stage         = 1;
    expect(hkt_zero_create(&z, &p, 1, me->comm, &c, NULL) == HKT_ERR_ARGUMENT, "1-bit Adam in stage 1");
    expect_true(strstr(hkt_last_error(), "stage 0") != NULL);
}

START_TEST(mistakes_are_said)
{
    world(2, THREADS, refusals, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, R1422_adamw_until_it_freezes, 2, 30);
    ADD(s, R1422_rounds_in_units, 3, 30);
    ADD(s, mistakes_are_said, 1, 20);
}

int main(void)
{
    return run_suite("zero_freeze", add);
}
