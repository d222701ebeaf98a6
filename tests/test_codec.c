/* test_codec.c -- codecs one by one: ratios, sizes, error bounds, feedback, chance, what is not finite, names, gain.
 * Their bits are tested in test_codec_bits.c, reductions in test_codec_reduce.c, training in test_codec_training.c. */
#include "codecs.h"

#include <float.h>

enum { LARGE = 1 << 16, GUARD = 64, TILE = 2048 };

/* The codecs that have codes, in the order of the list. */
static int coders(hkt_codec_t codec[32])
{
    hkt_codec_info_t info;
    int              n = 0;

    for (int i = 0; hkt_codec_list(&info, i) == HKT_OK; i++)
        if (!info.linear)
            expect_ok(hkt_codec_parse(&codec[n++], info.name));
    expect(n == 9, "%d codecs", n);
    return n;
}

/* By the text, which begins with it. */
static const char *name_of(const hkt_codec_t *codec)
{
    static char text[128];

    expect_ok(hkt_codec_text(text, sizeof(text), codec));
    text[strcspn(text, ":")] = 0;
    return text;
}

/* ---- sizes */

/* Proves: the ratios of rows 79, 80, 82 and that the table says what is true; codes are exactly as long as promised. */
START_TEST(R79_R80_R82_ratios)
{
    static const struct {
        const char *codec;
        double      least, most;
    } wanted[] = {{"fp16", 2, 2},         {"bf16", 2, 2},          {"int8", 3.9, 4},        {"fp8", 3.9, 4},
                  {"int4", 7.5, 8},       {"qsgd", 7.8, 8},        {"qsgd:bits=8", 3.9, 4}, {"onebit", 31, 32},
                  {"terngrad", 15.8, 16}, {"qsgd:bits=2", 15, 16}, {"topk", 42, 43}};
    hkt_codec_info_t info;

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        hkt_codec_t codec;

        expect_ok(hkt_codec_parse(&codec, wanted[i].codec));
        const double ratio = 4.0 * (1 << 20) / (double)hkt_codec_bound(&codec, 1 << 20);

        expect(ratio >= wanted[i].least && ratio <= wanted[i].most, "%s: %g", wanted[i].codec, ratio);
    }
    for (int i = 0; hkt_codec_list(&info, i) == HKT_OK; i++) {
        hkt_codec_t codec;

        expect_ok(hkt_codec_parse(&codec, info.name));
        if (!info.linear)
            expect(fabs(info.ratio - 4.0 * (1 << 20) / (double)hkt_codec_bound(&codec, 1 << 20)) < 1e-9, "%s says %g",
                   info.name, info.ratio);
    }
}
END_TEST

static const size_t sizes[] = {0, 1, 2, 63, 64, 65, 127, 128, 129, 255, 257, 1000, 2047, 2048, 2049, 4096, 5000, 20001};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), MOST = 20001 };

/* Proves: no byte beyond the code and no element beyond the vector is written, at any size and alignment; bytes that
 * are no code do no harm. */
START_TEST(nothing_beyond_the_buffers)
{
    static float      x[MOST], e[MOST + GUARD], y[MOST + GUARD];
    static uint8_t    code[4 * MOST + 1024];
    hkt_codec_t       codec[32];
    const int         n     = coders(codec);
    hkt_codec_place_t place = {1, 2, 3};

    fill_gradient(x, 1, MOST);
    for (int c = 0; c < n; c++)
        for (int s = 0; s < SIZES; s++) {
            const size_t count = sizes[s], bytes = hkt_codec_bound(&codec[c], count), shift = (size_t)s % 4;

            memset(code, 0xA5, sizeof(code));
            memset(y, 0xA5, sizeof(y));
            memset(e, 0, sizeof(e));
            expect_ok(hkt_codec_encode(code + shift, e, x, count, &place, &codec[c]));
            expect_ok(hkt_codec_decode(y, code + shift, count, &codec[c]));
            for (size_t i = 0; i < GUARD; i++)
                expect(code[shift + bytes + i] == 0xA5 && bits_of_float(y[count + i]) == 0xA5A5A5A5 &&
                           e[count + i] == 0,
                       "%s, %zu elements", name_of(&codec[c]), count);
            for (size_t i = 0; i < bytes; i++)
                code[shift + i] = (uint8_t)mix(i + count);
            expect_ok(hkt_codec_decode(y, code + shift, count, &codec[c]));
            for (size_t i = 0; i < GUARD; i++)
                expect(bits_of_float(y[count + i]) == 0xA5A5A5A5, "%s, %zu elements of garbage", name_of(&codec[c]),
                       count);
        }
}
END_TEST

/* ---- errors */

/* Proves: rounding to nearest is within half a step of the block's scale; fp8 within 1/16 of the number or half the
 * least step. */
START_TEST(R79_error_bounds)
{
    static const struct {
        const char *codec;
        size_t      block;
        double      levels;
    } cases[] = {{"int8", 256, 127}, {"int4", 128, 7},          {"int8:block=64", 64, 127},
                 {"fp8", 256, 448},  {"qsgd:bits=8", 512, 127}, {"qsgd", 512, 7}};
    static float      x[LARGE], y[LARGE];
    static uint8_t    code[4 * LARGE];
    hkt_codec_place_t place = {5, 5, 0};

    fill_gradient(x, 9, LARGE);
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        const bool  chance = cases[k].codec[0] == 'q';
        hkt_codec_t codec;

        expect_ok(hkt_codec_parse(&codec, cases[k].codec));
        expect_ok(hkt_codec_encode(code, NULL, x, LARGE, &place, &codec));
        expect_ok(hkt_codec_decode(y, code, LARGE, &codec));
        for (size_t b = 0; b < LARGE; b += cases[k].block) {
            double most = 0;

            for (size_t i = b; i < b + cases[k].block; i++)
                most = fmax(most, fabs((double)x[i]));
            for (size_t i = b; i < b + cases[k].block; i++) {
                const double step = most / cases[k].levels, lost = fabs((double)x[i] - (double)y[i]);
                const double bound = cases[k].levels == 448 ? fmax(fabs((double)x[i]) / 16, step * 0x1p-10)
                                     : chance               ? step
                                                            : step / 2;

                expect(lost <= bound * 1.00001, "%s: element %zu loses %g of %g, more than %g", cases[k].codec, i, lost,
                       (double)x[i], bound);
            }
        }
    }
}
END_TEST

/* Proves: what feedback promises: the sum of all that was decoded and what is left is the sum of all that was put in.
 */
START_TEST(R80_feedback_telescopes)
{
    enum { COUNT = 5000, STEPS = 60 };
    static float   x[COUNT], e[COUNT], y[COUNT];
    static double  in[COUNT], out[COUNT];
    static uint8_t code[4 * COUNT];
    hkt_codec_t    codec[32];
    const int      n = coders(codec);

    for (int c = 0; c < n; c++) {
        memset(e, 0, sizeof(e));
        memset(in, 0, sizeof(in));
        memset(out, 0, sizeof(out));
        for (uint64_t t = 0; t < STEPS; t++) {
            const hkt_codec_place_t place = {7, t, 0};

            fill_gradient(x, t, COUNT);
            expect_ok(hkt_codec_encode(code, e, x, COUNT, &place, &codec[c]));
            expect_ok(hkt_codec_decode(y, code, COUNT, &codec[c]));
            for (size_t i = 0; i < COUNT; i++) {
                in[i] += (double)x[i];
                out[i] += (double)y[i];
            }
        }
        for (size_t i = 0; i < COUNT; i++)
            expect(fabs(out[i] + (double)e[i] - in[i]) < 1e-4, "%s: element %zu: %g decoded, %g left, %g put in",
                   name_of(&codec[c]), i, out[i], (double)e[i], in[i]);
    }
}
END_TEST

/* Proves: topk keeps exactly the largest of a tile, the first of equal ones; one-bit codes have the mean magnitude. */
START_TEST(topk_and_onebit_by_definition)
{
    static float   x[TILE], y[TILE];
    static uint8_t code[4 * TILE];
    hkt_codec_t    topk, onebit;
    double         mean = 0;

    expect_ok(hkt_codec_parse(&topk, "topk:share=0.25"));
    expect_ok(hkt_codec_parse(&onebit, "onebit"));
    for (size_t i = 0; i < TILE; i++)
        x[i] = (float)((int)(mix(i) % 41) - 20); /* many equal magnitudes */
    expect_ok(hkt_codec_encode(code, NULL, x, TILE, NULL, &topk));
    expect_ok(hkt_codec_decode(y, code, TILE, &topk));
    for (size_t i = 0; i < TILE; i++) {
        size_t before = 0; /* those that come first */

        for (size_t j = 0; j < TILE; j++)
            before += fabsf(x[j]) > fabsf(x[i]) || (fabsf(x[j]) == fabsf(x[i]) && j < i);
        expect(y[i] == (before < TILE / 4 ? x[i] : 0), "element %zu, place %zu, becomes %g", i, before, (double)y[i]);
        mean += fabs((double)x[i]) / TILE;
    }
    expect_ok(hkt_codec_encode(code, NULL, x, TILE, NULL, &onebit));
    expect_ok(hkt_codec_decode(y, code, TILE, &onebit));
    for (size_t i = 0; i < TILE; i++)
        expect(fabs((double)y[i] - (x[i] < 0 ? -mean : mean)) < 1e-5, "element %zu: %g becomes %g", i, (double)x[i],
               (double)y[i]);
}
END_TEST

/* ---- chance */

/* Proves: QSGD and TernGrad give the vector on average (4 sigma of 10^4 draws) with the variance that their papers
 * state. */
START_TEST(R81_R82_unbiased)
{
    static const char *const names[] = {"qsgd", "qsgd:bits=2", "qsgd:bits=8", "qsgd:norm=2", "terngrad:clip=0"};
    enum { COUNT = 512, DRAWS = 10000 };
    static float   x[COUNT], y[COUNT];
    static double  sum[COUNT], squares[COUNT];
    static uint8_t code[4 * COUNT];
    const int      draws = slow_build() ? DRAWS / 10 : DRAWS;
    hkt_codec_t    codec;
    double         norm = 0, ones = 0, most = 0, variance = 0, length = 0;

    expect_ok(hkt_codec_parse(&codec, names[_i]));
    for (size_t i = 0; i < COUNT; i++) {
        x[i] = gradient_like(4, i);
        norm += (double)x[i] * (double)x[i];
        ones += fabs((double)x[i]);
        most = fmax(most, fabs((double)x[i]));
    }
    memset(sum, 0, sizeof(sum));
    memset(squares, 0, sizeof(squares));
    for (int d = 0; d < draws; d++) {
        const hkt_codec_place_t place = {99, (uint64_t)d, 0};

        expect_ok(hkt_codec_encode(code, NULL, x, COUNT, &place, &codec));
        expect_ok(hkt_codec_decode(y, code, COUNT, &codec));
        for (size_t i = 0; i < COUNT; i++) {
            sum[i] += (double)y[i];
            squares[i] += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
            length += (double)y[i] * (double)y[i] / draws;
        }
    }
    const double levels = _i == 4 ? 1 : ((1 << ((int)codec.value[1] - 1)) - 1);
    const double step   = (_i == 3 ? sqrt(norm) : most) / levels;

    for (size_t i = 0; i < COUNT; i++) {
        const double p = fmod(fabs((double)x[i]), step) / step, sigma = step * sqrt(p * (1 - p) / draws);

        /* 512 elements: one beyond 4.5 sigma in 300 seeds; the seed is fixed. A chance of few draws is not normal. */
        expect(fabs(sum[i] / draws - (double)x[i]) <= 4.5 * sigma + 4 * step / draws,
               "%s: element %zu: %g on average, not %g (sigma %g)", names[_i], i, sum[i] / draws, (double)x[i], sigma);
        variance += squares[i] / draws;
    }
    expect(variance <= fmin(COUNT / levels / levels, sqrt(COUNT) / levels) * norm, "%s: variance %g of norm %g",
           names[_i], variance, norm);
    if (_i == 4) /* E |g~|^2 = s |g|_1 */
        expect(fabs(length / (most * ones) - 1) < 0.02, "TernGrad: the squared length is %g, not %g", length,
               most * ones);
}
END_TEST

/* Proves: TernGrad cuts at 2.5 sigma, and the numbers drawn are those of the element's own index, however a vector is
 * cut. */
START_TEST(R82_clip_and_indices)
{
    static float   x[8192], y[8192], z[8192];
    static uint8_t code[4 * 8192];
    hkt_codec_t    tern, qsgd;

    expect_ok(hkt_codec_parse(&tern, "terngrad"));
    expect_ok(hkt_codec_parse(&qsgd, "qsgd"));
    for (size_t i = 0; i < 8192; i++)
        x[i] = gradient_like(8, i);
    x[77]                          = 100;
    const hkt_codec_place_t place  = {1, 1, 0};
    double                  square = 0;

    for (size_t i = 0; i < TILE; i++)
        square += (double)x[i] * (double)x[i] / TILE;
    expect_ok(hkt_codec_encode(code, NULL, x, TILE, &place, &tern));
    expect_ok(hkt_codec_decode(y, code, TILE, &tern));
    expect(fabs((double)y[77] - 2.5 * sqrt(square)) < 1e-3, "an outlier of 100 becomes %g, 2.5 sigma is %g",
           (double)y[77], 2.5 * sqrt(square));

    expect_ok(hkt_codec_encode(code, NULL, x, 8192, &place, &qsgd));
    expect_ok(hkt_codec_decode(y, code, 8192, &qsgd));
    for (size_t at = 0; at < 8192; at += 512) { /* QSGD's block */
        expect_ok(hkt_codec_encode(code, NULL, x + at, 512, &(hkt_codec_place_t){1, 1, at}, &qsgd));
        expect_ok(hkt_codec_decode(z + at, code, 512, &qsgd));
    }
    expect_true(!memcmp(y, z, sizeof(y)));
    expect_ok(hkt_codec_encode(code, NULL, x, 8192, &(hkt_codec_place_t){2, 1, 0}, &qsgd));
    expect_ok(hkt_codec_decode(z, code, 8192, &qsgd));
    expect_true(memcmp(y, z, sizeof(y)) != 0);
}
END_TEST

/* ---- what is not finite, what is very large or small */

/* Proves: NaN and infinity come out as the header says, never as a number; the feedback stays finite. */
START_TEST(not_finite)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    enum { COUNT = 3 * TILE, AT = TILE + 100 };
    static float            x[COUNT], y[COUNT], e[COUNT];
    static uint8_t          code[4 * COUNT];
    hkt_codec_t             codec[32];
    const int               n     = coders(codec);
    const hkt_codec_place_t place = {1, 2, 0};

    for (int c = 0; c < n; c++)
        for (int k = 0; k < 3; k++) {
            const char *name = name_of(&codec[c]);
            const bool  own  = !strcmp(name, "fp16") || !strcmp(name, "bf16") || !strcmp(name, "topk");

            fill_gradient(x, 3, COUNT);
            memset(e, 0, sizeof(e));
            x[AT] = odd[k];
            expect_ok(hkt_codec_encode(code, e, x, COUNT, &place, &codec[c]));
            expect_ok(hkt_codec_decode(y, code, COUNT, &codec[c]));
            expect(own && k ? y[AT] == odd[k] : isnan(y[AT]), "%s: %g becomes %g", name, (double)odd[k], (double)y[AT]);
            for (size_t i = 0; i < COUNT; i++) {
                expect(isfinite(e[i]), "%s: feedback %g", name, (double)e[i]);
                expect(i / TILE == 1 || isfinite(y[i]), "%s: the tile of element %zu had no %g", name, i,
                       (double)odd[k]);
                expect(i == AT || !own || isfinite(y[i]), "%s: element %zu is no neighbour's", name, i);
            }
        }
}
END_TEST

/* Proves: the largest and the smallest numbers, and all zeros, give no NaN and no infinity (but in fp16). */
START_TEST(extremes)
{
    static const float      scale[] = {FLT_MAX, 1e38f, 1e-34f, 1e-36f, FLT_MIN, 1e-45f, 0};
    static float            x[TILE], y[TILE], e[TILE];
    static uint8_t          code[4 * TILE];
    hkt_codec_t             codec[32];
    const int               n     = coders(codec);
    const hkt_codec_place_t place = {1, 2, 0};

    for (int c = 0; c < n; c++)
        for (size_t k = 0; k < sizeof(scale) / sizeof(scale[0]); k++) {
            const bool sums = !strcmp(name_of(&codec[c]), "onebit"); /* a mean of many of these overflows */

            if ((!strcmp(name_of(&codec[c]), "fp16") || !strcmp(name_of(&codec[c]), "bf16") || sums) && k < 2)
                continue;
            memset(e, 0, sizeof(e));
            for (size_t i = 0; i < TILE; i++)
                x[i] = scale[k] * (i % 3 ? 1 : -1) * (i % 2 ? 1 : 0.3f);
            expect_ok(hkt_codec_encode(code, e, x, TILE, &place, &codec[c]));
            expect_ok(hkt_codec_decode(y, code, TILE, &codec[c]));
            for (size_t i = 0; i < TILE; i++)
                expect(isfinite(y[i]) && isfinite(e[i]) && fabsf(y[i]) <= fabsf(scale[k]) * 1.01f + 1e-38f,
                       "%s: %g becomes %g, %g is left", name_of(&codec[c]), (double)x[i], (double)y[i], (double)e[i]);
        }
}
END_TEST

/* ---- names, gain */

/* Proves: texts are read and written back; what is wrong in one is said with what would be right. */
START_TEST(texts)
{
    static const struct {
        const char *text, *said;
    } wrong[]         = {{"in8", "int8"},
                         {"", "there are: fp16"},
                         {"int8:blok=4", "block"},
                         {"int8:block=100", "power of two"},
                         {"int8:block", "block"},
                         {"int8:block=", "block"},
                         {"int8:block=1e9", "2048"},
                         {"qsgd:bits=nan", "2, 4 or 8"},
                         {"fp16:block=4", "none"},
                         {"topk:share=0", "1/2048"},
                         {"qsgd:bits=4,", "no option"}};
    hkt_codec_t codec = {0}, again;
    char        text[128];

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        expect_code(hkt_codec_parse(&codec, wrong[i].text), HKT_ERR_ARGUMENT);
        expect_said(wrong[i].said);
        expect_true(!codec.entry);
    }
    expect_ok(hkt_codec_parse(&codec, "qsgd:bits=8,block=64"));
    expect_ok(hkt_codec_text(text, sizeof(text), &codec));
    expect(!strcmp(text, "qsgd:block=64,bits=8,norm=0"), "%s", text);
    expect_ok(hkt_codec_parse(&again, text));
    expect_true(!memcmp(&codec, &again, sizeof(codec)));
    expect_code(hkt_codec_text(text, 5, &codec), HKT_ERR_ARGUMENT);
    expect_code(hkt_codec_encode(text, NULL, (float[]){1}, 1, NULL, &codec), HKT_ERR_ARGUMENT);
    expect_said("place");
    expect_ok(hkt_codec_parse(&codec, "powersgd:rank=2"));
    expect_code(hkt_codec_decode((float[]){1}, text, 1, &codec), HKT_ERR_UNSUPPORTED);
    expect_true(hkt_codec_bound(&codec, 100) == 0);
}
END_TEST

/* Proves: every codec is worth it at 1 Gbit/s and none at a link without cost; the figures are the formula's. */
START_TEST(gain)
{
    hkt_codec_info_t info;

    for (int i = 0; hkt_codec_list(&info, i) == HKT_OK; i++) {
        hkt_codec_gain_t slow, fast, again;
        hkt_codec_t      codec;

        expect_ok(hkt_codec_parse(&codec, info.name));
        expect_ok(hkt_codec_gain(&slow, &codec, 1 << 22, 4, 125e6, 50e-6));
        expect_ok(hkt_codec_gain(&fast, &codec, 1 << 22, 4, 1e12, 1e-7));
        expect_ok(hkt_codec_gain(&again, &codec, 1 << 22, 4, 125e6, 50e-6));
        expect(fabs(slow.plain_s - 6 * (50e-6 + (1 << 22) / 125e6)) < 1e-9, "plain: %g s", slow.plain_s);
        expect(slow.coded_s < slow.plain_s || slow_build(), "%s: %g s instead of %g at 1 Gbit/s", info.name,
               slow.coded_s, slow.plain_s);
        expect(fast.coded_s > fast.plain_s, "%s: %g s instead of %g at 1 TB/s", info.name, fast.coded_s, fast.plain_s);
        expect(again.coded_s == slow.coded_s, "%s was measured twice", info.name);
        expect_code(hkt_codec_gain(&slow, &codec, 1, 0, 1, 0), HKT_ERR_ARGUMENT);
    }
}
END_TEST

static void add(Suite *s)
{
    ADD(s, R79_R80_R82_ratios, 1, 10);
    ADD(s, nothing_beyond_the_buffers, 1, 20);
    ADD(s, R79_error_bounds, 1, 10);
    ADD(s, R80_feedback_telescopes, 1, 20);
    ADD(s, topk_and_onebit_by_definition, 1, 10);
    ADD(s, R81_R82_unbiased, 5, 30);
    ADD(s, R82_clip_and_indices, 1, 10);
    ADD(s, not_finite, 1, 10);
    ADD(s, extremes, 1, 10);
    ADD(s, texts, 1, 10);
    ADD(s, gain, 1, 20);
}

int main(void)
{
    return run_suite("codec", add);
}
