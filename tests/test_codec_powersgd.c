/* test_codec_powersgd.c -- PowerSGD: the published ratios, exactness at the true rank, the warm start. What it has in
 * common with the other codecs is tested with them, in test_codec_reduce.c. */
#include "codecs.h"

struct shapes {
    const char             *name;
    const hkt_codec_shape_t shape[24];
    int                     count;
    double                  ratio[3]; /* rank 1, 2, 4 */
};
static const struct shapes published[] = {
    {"ResNet-18",
     {{64, 27},    {64, 576},   {64, 576},   {64, 576},   {64, 576},   {128, 576},  {128, 1152}, {128, 1152},
      {128, 1152}, {128, 64},   {256, 1152}, {256, 2304}, {256, 2304}, {256, 2304}, {256, 128},  {512, 2304},
      {512, 4608}, {512, 4608}, {512, 4608}, {512, 256},  {10, 512},   {9610, 0}},
     22,
     {243.3, 135.8, 72.1}},
    {"LSTM",
     {{28869, 650}, {2600, 650}, {2600, 650}, {2600, 650}, {2600, 650}, {2600, 650}, {2600, 650}, {44469, 0}},
     8,
     {309.7, 203.1, 120.3}}};

static void published_ratios(struct rank *me)
{
    for (int k = 0; k < 2; k++)
        for (int r = 0; r < 3; r++) {
            hkt_compressor_config_t config = HKT_COMPRESSOR_CONFIG_INIT;
            hkt_compressor_stats_t  stats;
            hkt_compressor_t       *c;
            char                    codec[32];
            size_t                  count = 0;

            for (int i = 0; i < published[k].count; i++)
                count += published[k].shape[i].rows * (published[k].shape[i].cols ? published[k].shape[i].cols : 1);
            snprintf(codec, sizeof(codec), "powersgd:rank=%d", 1 << r);
            config.codec        = codec;
            config.feedback     = 0;
            config.matrices     = published[k].shape;
            config.matrix_count = published[k].count;
            expect_ok(hkt_compressor_create(&c, count, &config, me->comm, NULL));
            expect_ok(hkt_compressor_stats(&stats, c));
            expect(fabs(stats.ratio - published[k].ratio[r]) < 0.06, "%s at rank %d: %g, published %g",
                   published[k].name, 1 << r, stats.ratio, published[k].ratio[r]);
            expect_ok(hkt_compressor_destroy(c));
        }
}

/* Proves: the compression of the paper's models is what the paper prints (recomputed from the shapes, research 3.6). */
START_TEST(R83_published_ratios)
{
    world(1, THREADS, published_ratios, NULL);
}
END_TEST

static const hkt_codec_shape_t shapes[] = {{40, 70}, {33, 0}, {90, 30}, {3, 5}};
enum { SHAPED = 40 * 70 + 33 + 90 * 30 + 15, TRUE_RANK = 3 };

/* Gradients whose average has rank 3 in every matrix: a common left factor. */
static void low_rank(float *x, uint64_t seed, int rank)
{
    size_t at = 0;

    for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++)
        for (size_t i = 0; i < shapes[k].rows; i++)
            for (size_t j = 0; j < (shapes[k].cols ? shapes[k].cols : 1); j++, at++) {
                x[at] = 0;
                for (size_t r = 0; r < TRUE_RANK; r++)
                    x[at] += noise(seed_of(seed + 7 * k + r, 63), i) * noise(seed_of(seed + 100 + 7 * k + r, rank), j);
            }
}

static void exact_at_rank(struct rank *me)
{
    const char *const       codec[] = {"powersgd:rank=3", "powersgd:rank=6", "powersgd:rank=2"};
    hkt_compressor_config_t config  = HKT_COMPRESSOR_CONFIG_INIT;
    float                  *in = floats(SHAPED), *out = floats(SHAPED), *other = floats(SHAPED);
    double                  worst[3] = {0};

    config.matrices     = shapes;
    config.matrix_count = sizeof(shapes) / sizeof(shapes[0]);
    for (int k = 0; k < 3; k++) {
        hkt_compressor_t *c;

        config.codec    = codec[k];
        config.feedback = 0;
        expect_ok(hkt_compressor_create(&c, SHAPED, &config, me->comm, NULL));
        for (uint64_t step = 0; step < 5; step++) {
            low_rank(in, step, me->rank);
            expect_ok(hkt_compressor_all_reduce(c, in, out, SHAPED, step % 2, NULL));
            same_everywhere(me, out, SHAPED, codec[k]);
            memset(in, 0, SHAPED * sizeof(float));
            for (int r = 0; r < me->n; r++) {
                low_rank(other, step, r);
                for (size_t i = 0; i < SHAPED; i++)
                    in[i] += other[i] / (float)(step % 2 ? me->n : 1);
            }
            for (size_t i = 0; i < SHAPED; i++)
                worst[k] = fmax(worst[k], fabs((double)in[i] - (double)out[i]));
        }
        expect_ok(hkt_compressor_destroy(c));
    }
    expect(worst[0] < 1e-3 && worst[1] < 1e-3,
           /* fp32, matrices of condition 100 */ "rank 3 of 3 is wrong by %g, rank 6 by %g", worst[0], worst[1]);
    expect(worst[2] > 0.05, "rank 2 of 3 cannot be exact, but is wrong by %g only", worst[2]);
    free(in);
    free(out);
    free(other);
}

/* Proves: a gradient of true rank r comes back whole at rank r and above, sums and averages, and the same on all ranks;
 * below it does not. */
START_TEST(R83_exact_for_low_rank)
{
    world(1 + 2 * _i, THREADS, exact_at_rank, NULL);
}
END_TEST

static void warm_start(struct rank *me)
{
    enum { ROWS = 60, COLS = 60, COUNT = ROWS * COLS };
    hkt_compressor_t *c  = made_of(me, "powersgd:rank=2", COUNT, 0);
    float            *in = floats(COUNT), *out = floats(COUNT);
    double            first = 0, last = 0;

    for (size_t i = 0; i < COUNT; i++) /* full rank, two directions stand out */
        in[i] = 0.05f * noise(seed_of(1, me->rank), i) +
                noise(seed_of(2, 0), i / COLS) * noise(seed_of(3, 0), i % COLS) +
                0.7f * noise(seed_of(4, 0), i / COLS) * noise(seed_of(5, 0), i % COLS);
    for (int call = 0; call < 10; call++) {
        last = 0;
        expect_ok(hkt_compressor_all_reduce(c, in, out, COUNT, true, NULL));
        for (size_t i = 0; i < COUNT; i++)
            last += ((double)in[i] - (double)out[i]) * ((double)in[i] - (double)out[i]);
        first = call ? first : last;
    }
    expect(last < 0.9 * first, "ten calls improve the error from %g to %g only", first, last);
    memset(in, 0, COUNT * sizeof(float)); /* zero gradients leave no dead factors behind */
    expect_ok(hkt_compressor_all_reduce(c, in, out, COUNT, true, NULL));
    for (size_t i = 0; i < COUNT; i++) {
        expect(out[i] == 0, "zero becomes %g", (double)out[i]);
        in[i] = noise(seed_of(2, 0), i / COLS) * noise(seed_of(3, 0), i % COLS);
    }
    expect_ok(hkt_compressor_all_reduce(c, in, out, COUNT, true, NULL));
    for (size_t i = 0; i < COUNT; i++)
        expect(fabs((double)in[i] - (double)out[i]) < 1e-5, "after zeros, %g becomes %g", (double)in[i],
               (double)out[i]);
    expect_ok(hkt_compressor_destroy(c));
    free(in);
    free(out);
}

/* Proves: the factors of the last call make the next one better, and vanishing ones are drawn anew. */
START_TEST(R83_warm_start)
{
    world(2, THREADS, warm_start, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, R83_published_ratios, 1, 30);
    ADD(s, R83_exact_for_low_rank, 3, 30);
    ADD(s, R83_warm_start, 1, 30);
}

int main(void)
{
    return run_suite("codec_powersgd", add);
}
