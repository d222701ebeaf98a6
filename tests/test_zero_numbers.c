/* test_zero_numbers.c -- the loops under the optimizer: AdamW, the exact sum of squares, conversions; the same bits
 * everywhere. */
#include "harness.h"

#include "parallel/adamw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 5000 };

static float any_float(uint64_t seed, int spread)
{
    const uint64_t x = mix(seed);
    return ldexpf((float)(int32_t)(uint32_t)x, -31 - (int)(x >> 32) % spread);
}

static uint32_t bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* ---- AdamW */

/* Proves: every instruction set and every cut of an array give the same bits of weights and moments, over several
 * steps. */
START_TEST(adamw_has_the_same_bits_everywhere)
{
    static float wanted[3][MANY], got[3][MANY], g[MANY];
    hkt_adamw_t  o = HKT_ADAMW_INIT;

    for (int isa = 0; hkt_loops_at(isa); isa++)
        for (size_t cut = 0; cut < 40; cut += 13) {
            for (int i = 0; i < MANY; i++) {
                got[0][i] = any_float((uint64_t)i, 20);
                got[1][i] = got[2][i] = 0;
            }
            for (uint64_t step = 1; step <= 5; step++) {
                const struct hkt_adamw_numbers n = hkt_adamw_numbers(&o, step, 0.37f, true);
                for (int i = 0; i < MANY; i++)
                    g[i] = any_float(step * 10000 + (uint64_t)i, 60);
                for (size_t at = 0, next; at < MANY; at = next) {
                    next = cut && at + cut < MANY ? at + cut : MANY;
                    hkt_loops_at(isa)->adamw(&n, &(hkt_adamw_state_t){got[0] + at, got[1] + at, got[2] + at, g + at},
                                             next - at);
                }
            }
            if (isa == 0 && cut == 0)
                memcpy(wanted, got, sizeof got);
            expect(memcmp(wanted, got, sizeof got) == 0, "%s in pieces of %zu differs", hkt_loops_at(isa)->name, cut);
        }
}
END_TEST

/* Proves: hkt_adamw() is AdamW: ten steps agree with the textbook in double to fp32's precision, decay and all. */
START_TEST(adamw_is_adamw)
{
    hkt_adamw_t o = HKT_ADAMW_INIT;
    double      w = 0.7, m = 0, v = 0;
    float       fw = 0.7f, fm = 0, fv = 0;

    o.rate  = 0.02;
    o.beta2 = 0.95;
    o.decay = 0.1;
    for (uint64_t step = 1; step <= 10; step++) {
        const float g = any_float(step, 4);
        expect_ok(hkt_adamw(&o, step, 3, &(hkt_adamw_state_t){&fw, &fm, &fv, &g}, 1));
        const double x = 3 * (double)g;
        m              = 0.9 * m + 0.1 * x;
        v              = 0.95 * v + 0.05 * x * x;
        w -= o.rate * o.decay * w;
        w -= o.rate * (m / (1 - pow(0.9, (double)step))) / (sqrt(v / (1 - pow(0.95, (double)step))) + o.epsilon);
        expect(fabs(w - (double)fw) < 1e-6, "step %d: %.9g, not %.9g", (int)step, (double)fw, w);
    }
    expect_code(hkt_adamw(&o, 0, 1, &(hkt_adamw_state_t){&fw, &fm, &fv, &fw}, 1), HKT_ERR_ARGUMENT);
    expect_code(hkt_adamw(&o, 1, 1, &(hkt_adamw_state_t){0}, 1), HKT_ERR_ARGUMENT);
    o.epsilon = -1;
    expect_code(hkt_adamw(&o, 1, 1, &(hkt_adamw_state_t){&fw, &fm, &fv, &fw}, 1), HKT_ERR_ARGUMENT);
}
END_TEST

/* ---- the exact sum */

/* Proves: sums of squares of numbers of all magnitudes, subnormals to the largest, do not depend on order, cut or
 * instruction set, and are right to the last bit of a double but one. */
START_TEST(sums_are_exact)
{
    static float x[MANY], shuffled[MANY];

    for (int spread = 1; spread <= 256; spread *= 4) {
        struct hkt_exact first = {{0}};
        for (int i = 0; i < MANY; i++)
            x[i] = spread == 256 ? ldexpf(any_float((uint64_t)i, 1), 126 - i % 280) : any_float((uint64_t)i, spread);
        memcpy(shuffled, x, sizeof x);
        for (int i = MANY - 1; i > 0; i--) {
            const int   k = (int)(mix((uint64_t)i) % (uint64_t)(i + 1));
            const float t = shuffled[i];
            shuffled[i]   = shuffled[k];
            shuffled[k]   = t;
        }
        for (int isa = 0; hkt_loops_at(isa); isa++)
            for (size_t cut = 1; cut <= MANY; cut = cut * 7 + 3) {
                struct hkt_exact sum = {{0}}, part;
                for (size_t at = 0; at < MANY; at += cut) {
                    const size_t n = at + cut < MANY ? cut : MANY - at;
                    part           = (struct hkt_exact){{0}};
                    expect_true(hkt_loops_at(isa)->squares(&part, (cut % 2 ? x : shuffled) + at, n) == n);
                    for (int d = 0; d < HKT_EXACT_DIGITS; d++) /* as ranks are added up */
                        sum.digit[d] += part.digit[d];
                    hkt_exact_settle(&sum);
                }
                if (isa == 0 && cut == 1)
                    first = sum;
                expect(memcmp(&first, &sum, sizeof sum) == 0, "%s in pieces of %zu has another sum",
                       hkt_loops_at(isa)->name, cut);
            }
        long double wide = 0, carry = 0; /* Kahan in 64 bits: far more than a double's */
        for (int i = 0; i < MANY; i++) {
            const long double y = (long double)x[i] * x[i] - carry, t = wide + y;
            carry = (t - wide) - y;
            wide  = t;
        }
        expect(fabsl(hkt_exact_value(&first) - wide) <= wide * 0x1p-51L, "spread %d: %.17g, not %.17Lg", spread,
               hkt_exact_value(&first), wide);
    }
}
END_TEST

/* ---- conversions (row 69) */

static void check_half(uint16_t h, int isa)
{
    const struct hkt_loops *l = hkt_loops_at(isa);
    float                   x;
    uint16_t                back;

    l->widen_fp16(&x, &h, 1);
    const double magnitude = (h >> 10 & 31) ? ldexp((h & 1023) | 1024, (h >> 10 & 31) - 25) : ldexp(h & 1023, -24);
    if ((h & 0x7c00) == 0x7c00)
        expect_true((h & 1023) ? isnan(x) : isinf(x) && !signbit(x) == !(h >> 15));
    else
        expect_true(x == (float)(h & 0x8000 ? -magnitude : magnitude) && !signbit(x) == !(h >> 15));
    l->narrow_fp16(&back, &x, 1);
    expect(back == ((h & 0x7fff) > 0x7c00 ? 0x7e00 : h), "%s: %04x becomes %04x", l->name, h, back);
    if ((h & 0x7fff) >= 0x7bff)
        return;
    /* Between h and its neighbour: below the middle, the middle (to even), above it. */
    const uint16_t next = (uint16_t)(h + 1);
    float          y, middle, near;
    l->widen_fp16(&y, &next, 1);
    middle = (x + y) / 2;
    l->narrow_fp16(&back, &middle, 1);
    expect_true(back == (h & 1 ? next : h));
    near = nextafterf(middle, x);
    l->narrow_fp16(&back, &near, 1);
    expect_true(back == h);
    near = nextafterf(middle, y);
    l->narrow_fp16(&back, &near, 1);
    expect_true(back == next);
}

/* Proves (row 69): all fp16 numbers survive, every middle between neighbours rounds to even and its neighbours to
 * theirs, subnormals included; 65504, 65519.99 stay finite and 65520 does not; bf16 likewise. */
START_TEST(T_row69_conversions_round_to_even)
{
    static const struct {
        float    x;
        uint16_t wanted;
    } edges[] = {{65504, 0x7bff}, {65519.99f, 0x7bff}, {65520, 0x7c00}, {-65520, 0xfc00}, {1e30f, 0x7c00},
                 {0x1p-25f, 0},   {0x1.8p-25f, 1},     {-0.0f, 0x8000}, {0x1p-149f, 0}};

    for (int isa = 0; hkt_loops_at(isa); isa++) {
        for (unsigned h = 0; h < 1 << 16; h++)
            check_half((uint16_t)h, isa);
        for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
            uint16_t h;
            hkt_loops_at(isa)->narrow_fp16(&h, &edges[i].x, 1);
            expect(h == edges[i].wanted, "%a becomes %04x, not %04x", (double)edges[i].x, h, edges[i].wanted);
        }
    }
    for (int isa = 0; hkt_loops_at(isa); isa++)
        for (unsigned k = 0; k < 1 << 16; k++) {
            const struct hkt_loops *l = hkt_loops_at(isa);
            const uint16_t          b = (uint16_t)k;
            uint16_t                back;
            float                   x, near;
            l->widen_bf16(&x, &b, 1);
            expect_true(bits(x) == k << 16);
            l->narrow_bf16(&back, &x, 1);
            expect_true(back == ((k & 0x7fff) > 0x7f80 ? 0x7fc0 : k));
            for (uint32_t low = 0x7fff; (k & 0x7fff) < 0x7f80 && low <= 0x8001; low++) {
                const uint32_t u = k << 16 | low;
                memcpy(&near, &u, sizeof near);
                l->narrow_bf16(&back, &near, 1);
                expect_true(back == (low < 0x8000 || (low == 0x8000 && !(k & 1)) ? k : k + 1));
            }
        }
}
END_TEST

/* Proves: whole arrays of any length are converted, added and scaled as single numbers are, on every instruction set.
 */
START_TEST(arrays_are_treated_as_numbers)
{
    static float    x[MANY], y[MANY], z[MANY];
    static uint16_t h[MANY], k[MANY];

    for (int i = 0; i < MANY; i++)
        x[i] = any_float((uint64_t)i, 30);
    for (int t = 0; t < 2; t++) {
        const hkt_type_t type = t ? HKT_BFLOAT16 : HKT_FLOAT16;
        for (size_t n = 0; n < MANY; n = n * 3 + 1) {
            memset(k, 0xab, sizeof k);
            hkt_float_narrow(h, type, x, n);
            for (size_t i = 0; i < n; i++) {
                (t ? hkt_loops_at(0)->narrow_bf16 : hkt_loops_at(0)->narrow_fp16)(k + i, x + i, 1);
                expect_true(h[i] == k[i]);
            }
            hkt_float_widen(y, h, type, n);
            hkt_float_add(h, type, x, HKT_FLOAT32, n);
            for (size_t i = 0; i < n; i++) {
                const float sum = y[i] + x[i];
                hkt_float_narrow(k + i, type, &sum, 1);
                expect_true(h[i] == k[i]);
            }
            hkt_float_widen(y, h, type, n);
            hkt_float_scale(h, type, 0.3f, n);
            hkt_float_widen(z, h, type, n);
            for (size_t i = 0; i < n; i++) {
                const float product = y[i] * 0.3f;
                hkt_float_narrow(k + i, type, &product, 1);
                expect_true(h[i] == k[i]);
            }
        }
    }
}
END_TEST

static void add(Suite *s)
{
    ADD(s, adamw_has_the_same_bits_everywhere, 1, 10);
    ADD(s, adamw_is_adamw, 1, 10);
    ADD(s, sums_are_exact, 1, 20);
    ADD(s, T_row69_conversions_round_to_even, 1, 20);
    ADD(s, arrays_are_treated_as_numbers, 1, 10);
}

int main(void)
{
    return run_suite("zero_numbers", add);
}
