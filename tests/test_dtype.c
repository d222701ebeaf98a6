/* test_dtype.c -- conversions of the small floats, scalar and in the kernels, bit for bit: every code, and every place where a rounding
 * is decided. What is done with the values is test_reduce.c's. */
#include "reduce_call.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const hkt_type_t small_types[] = {HKT_FLOAT16, HKT_BFLOAT16, HKT_FLOAT8_E4M3, HKT_FLOAT8_E5M2};

enum { SMALL_TYPES = 4 };

static float library_decode(hkt_type_t t, uint32_t code)
{
    switch (t) {
    case HKT_FLOAT16:
        return hkt_from_float16((uint16_t)code);
    case HKT_BFLOAT16:
        return hkt_from_bfloat16((uint16_t)code);
    case HKT_FLOAT8_E4M3:
        return hkt_from_e4m3((uint8_t)code);
    default:
        return hkt_from_e5m2((uint8_t)code);
    }
}

static uint32_t library_encode(hkt_type_t t, float x)
{
    switch (t) {
    case HKT_FLOAT16:
        return hkt_to_float16(x);
    case HKT_BFLOAT16:
        return hkt_to_bfloat16(x);
    case HKT_FLOAT8_E4M3:
        return hkt_to_e4m3(x);
    default:
        return hkt_to_e5m2(x);
    }
}

static uint32_t float_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static float bits_float(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

/* Every code of every small float, scalar and through the kernels, is the value that the format defines. */
START_TEST(every_code_decodes)
{
    const hkt_type_t t     = small_types[_i];
    const uint32_t   codes = 1u << (8 * hkt_type_size(t));
    char            *from = malloc(codes * 2), *to = malloc(codes * sizeof(float));
    const void      *src[] = {from};
    void            *dst[] = {to};

    for (uint32_t c = 0; c < codes; c++) {
        const double want = decode_float(t, c);
        const float  got  = library_decode(t, c);

        memcpy(from + c * hkt_type_size(t), &c, hkt_type_size(t));
        ck_assert_msg(isnan(want) ? float_bits(got) == 0x7fc00000 : float_bits(got) == float_bits((float)want),
                      "%s %#x decodes to %a, not %a", hkt_type_name(t), c, (double)got, want);
    }
    for (int k = 0; k < nisas; k++) {
        const struct hkt_reduce r = {
            .src = src, .dst = dst, .count = codes, .nsrc = 1, .ndst = 1, .in = HKT_RAW, .out = HKT_PARTIAL};

        hkt_reduce_select(isas[k]);
        hkt_reduce_kernel(t, HKT_SUM)(&r);
        for (uint32_t c = 0; c < codes; c++) {
            float got;

            memcpy(&got, to + c * sizeof(got), sizeof(got));
            ck_assert_msg(float_bits(got) == float_bits(library_decode(t, c)), "%s: %s %#x decodes to %a", isas[k],
                          hkt_type_name(t), c, (double)got);
        }
    }
    free(from);
    free(to);
}
END_TEST

/* fp32 numbers where the rounding of a small float is decided: each code, the middle to the next, and their neighbours. */
static size_t critical(hkt_type_t t, float *x)
{
    const struct format f   = formats[t];
    const uint32_t      top = (1u << (f.mantissa + f.exponent)) - 1;
    size_t              n   = 0;

    for (uint32_t c = 0; c < top; c++) {
        const float a = (float)decode_float(t, c), b = (float)decode_float(t, c + 1), beyond = isfinite(b) ? b : 2 * a;
        const float seven[] = {a, nextafterf(a, -1), nextafterf(a, INFINITY), a + (beyond - a) / 2,
                               nextafterf(a + (beyond - a) / 2, 0), nextafterf(a + (beyond - a) / 2, INFINITY), beyond};

        for (int i = 0; i < 7; i++) {
            x[n++] = seven[i];
            x[n++] = -seven[i];
        }
    }
    return n;
}

/* ... and random bits, all exponents, for good measure. Every one rounds to the nearest value, ties to even, both in the scalar
 * functions and in the kernels. */
START_TEST(every_rounding_is_to_nearest_even)
{
    const hkt_type_t t     = small_types[_i];
    const size_t     size  = hkt_type_size(t);
    float           *x     = malloc((14 * 65536 + 100000) * sizeof(float));
    size_t           n     = critical(t, x);
    const void      *src[] = {x};
    char            *got   = malloc((n + 100000) * size);
    void            *dst[] = {got};

    for (int i = 0; i < 100000; i++)
        x[n++] = bits_float((uint32_t)any64());
    for (size_t i = 0; i < n; i++) {
        const uint32_t code = library_encode(t, x[i]);

        ck_assert_msg(code == encode_small(t, x[i]), "%s: %a becomes %#x, not %#x", hkt_type_name(t), (double)x[i], code,
                      (unsigned)encode_small(t, x[i]));
    }
    for (int k = 0; k < nisas; k++) {
        const struct hkt_reduce r = {
            .src = src, .dst = dst, .count = n, .nsrc = 1, .ndst = 1, .in = HKT_PARTIAL, .out = HKT_FINISHED};

        hkt_reduce_select(isas[k]);
        hkt_reduce_kernel(t, HKT_SUM)(&r);
        for (size_t i = 0; i < n; i++) {
            uint32_t code = 0;

            memcpy(&code, got + i * size, size);
            ck_assert_msg(code == library_encode(t, x[i]), "%s %s: %a becomes %#x, not %#x", isas[k], hkt_type_name(t),
                          (double)x[i], code, library_encode(t, x[i]));
        }
    }
    free(x);
    free(got);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("dtype");
    TCase *c = tcase_create("conversions");

    tcase_add_checked_fixture(c, find_isas, NULL);
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, every_code_decodes, 0, SMALL_TYPES);
    tcase_add_loop_test(c, every_rounding_is_to_nearest_even, 0, SMALL_TYPES);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    int      failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
