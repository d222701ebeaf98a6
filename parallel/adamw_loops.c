/* adamw_loops.c -- the loops of adamw.h for every instruction set: plain C that compilers turn into vector code.
 *
 * The exact sum of squares: in double, the square of an fp32 number is exact (48 bits). From a block of squares what is
 * a multiple of the digit's unit is split off by adding and subtracting 1.5 * 2^52 units; 64 such parts below 2^40
 * units are added exactly in any order; the rest goes on to the next digit, until there is none (two or three digits
 * for usual gradients). */
#include <parallel/adamw.h>
#include <parallel/isa.h>

#include <math.h>
#include <string.h>

ISA_BODY void adamw(const struct hkt_adamw_numbers *a, const hkt_adamw_state_t *state, size_t count)
{
    const struct hkt_adamw_numbers k = *a;
    float *restrict weight = state->weight, *restrict m = state->moment1, *restrict v = state->moment2;
    const float *restrict gradient = state->gradient;

    for (size_t i = 0; i < count; i++) {
        const float g      = gradient[i] * k.scale;
        const float first  = k.beta1 * m[i] + k.rest1 * g;
        const float second = k.beta2 * v[i] + k.rest2 * (g * g);

        m[i]      = first;
        v[i]      = second;
        weight[i] = weight[i] * k.shrink - k.length * (first / (sqrtf(second) * k.root + k.epsilon));
    }
}

ISA_BODY void frozen(const struct hkt_adamw_numbers *a, const hkt_adamw_state_t *state, size_t count)
{
    const struct hkt_adamw_numbers k = *a;
    float *restrict weight = state->weight, *restrict m = state->moment1;
    const float *restrict v = state->moment2, *restrict gradient = state->gradient;

    for (size_t i = 0; i < count; i++) {
        const float first = k.beta1 * m[i] + k.rest1 * (gradient[i] * k.scale);

        m[i]      = first;
        weight[i] = weight[i] * k.shrink - k.length * (first / (sqrtf(v[i]) * k.root + k.epsilon));
    }
}

ISA_BODY uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

ISA_BODY float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

ISA_BODY uint32_t largest_bits(const float *x, size_t count)
{
    uint32_t largest = 0;

    for (size_t i = 0; i < count; i++) {
        const uint32_t u = bits_of(x[i]) & 0x7fffffffu;
        largest          = largest < u ? u : largest;
    }
    return largest;
}

/* Vectors for the splitting: their operations are those of the single numbers; loops over arrays of lanes are not kept
 * in registers by compilers. */
typedef double  doubles __attribute__((vector_size(32), may_alias));
typedef int64_t words __attribute__((vector_size(32), may_alias));
enum { LANES = 4 };

/* Splits multiples of the unit off q, which are added to *sum; returns whether something is left. */
ISA_BODY bool split(double *restrict q, double magic, double *sum)
{
    doubles parts[4] = {{0}, {0}, {0}, {0}};
    words   left     = {0};

    for (int i = 0; i < HKT_LOOP_BLOCK; i += 4 * LANES) {
        doubles      *at = (doubles *)(void *)(q + i);
        const doubles p0 = (at[0] + magic) - magic, p1 = (at[1] + magic) - magic;
        const doubles p2 = (at[2] + magic) - magic, p3 = (at[3] + magic) - magic;

        at[0] -= p0;
        at[1] -= p1;
        at[2] -= p2;
        at[3] -= p3;
        parts[0] += p0;
        parts[1] += p1;
        parts[2] += p2;
        parts[3] += p3;
        left |= ((words)at[0] | (words)at[1]) | ((words)at[2] | (words)at[3]);
    }
    parts[0] += parts[1] + (parts[2] + parts[3]);
    *sum = (parts[0][0] + parts[0][1]) + (parts[0][2] + parts[0][3]);
    return left[0] | left[1] | left[2] | left[3];
}

ISA_BODY void add_block(struct hkt_exact *sum, const float *restrict x, size_t count, uint32_t largest)
{
    double q[HKT_LOOP_BLOCK] __attribute__((aligned(64)));
    int    exponent; /* of the largest square, which is below 2^exponent */
    bool   left = true;

    for (size_t i = 0; i < count; i++)
        q[i] = (double)x[i] * (double)x[i];
    for (size_t i = count; i < HKT_LOOP_BLOCK; i++)
        q[i] = 0;
    (void)frexp((double)float_of(largest) * (double)float_of(largest), &exponent);

    for (int b = (exponent - 1 - HKT_EXACT_LOWEST) / HKT_EXACT_BITS; b >= 0 && left; b--) {
        const int unit = HKT_EXACT_BITS * b + HKT_EXACT_LOWEST;
        double    part;

        left = split(q, ldexp(1.5, 52 + unit), &part);
        sum->digit[b] += (int64_t)ldexp(part, -unit);
    }
    hkt_exact_settle(sum);
}

ISA_BODY size_t squares(struct hkt_exact *sum, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i += HKT_LOOP_BLOCK) {
        const size_t   n       = count - i < HKT_LOOP_BLOCK ? count - i : HKT_LOOP_BLOCK;
        const uint32_t largest = largest_bits(x + i, n);

        if (largest >= 0x7f800000u)
            for (size_t k = i;; k++)
                if ((bits_of(x[k]) & 0x7fffffffu) >= 0x7f800000u)
                    return k;
        if (largest)
            add_block(sum, x + i, n, largest);
    }
    return count;
}

ISA_BODY void add(float *restrict to, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += x[i];
}

ISA_BODY void scale(float *x, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] *= factor;
}

ISA_BODY void widen_bf16(float *restrict to, const uint16_t *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = float_of((uint32_t)x[i] << 16);
}

/* The exponent is moved by a product, which normalises subnormals; infinity and NaN keep all its bits set. */
ISA_BODY void widen_fp16(float *restrict to, const uint16_t *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t h = x[i], magnitude = (h & 0x7fffu) << 13;
        const uint32_t moved = bits_of(float_of(magnitude) * 0x1p112f);

        to[i] = float_of((h & 0x8000u) << 16 | (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : moved));
    }
}

ISA_BODY void narrow_bf16(uint16_t *restrict to, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t u = bits_of(x[i]), rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;

        to[i] = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
    }
}

/* Below 2^-14 the adder rounds: 0.5 has its last bit at 2^-24, the unit of fp16's subnormals. */
ISA_BODY void narrow_fp16(uint16_t *restrict to, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t u = bits_of(x[i]), magnitude = u & 0x7fffffffu;
        const uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
        const uint32_t small  = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
        uint32_t       h      = magnitude < 0x38800000u ? small : normal;

        h     = magnitude >= 0x477ff000u ? 0x7c00u : h;
        to[i] = (uint16_t)(magnitude > 0x7f800000u ? 0x7e00u : h | (u >> 16 & 0x8000u));
    }
}

/* The bodies once more, as functions of one instruction set, and their table. */
#define LOOPS(isa, target)                                                                                             \
    target static void adamw_##isa(const struct hkt_adamw_numbers *a, const hkt_adamw_state_t *state, size_t count)    \
    {                                                                                                                  \
        adamw(a, state, count);                                                                                        \
    }                                                                                                                  \
    target static void frozen_##isa(const struct hkt_adamw_numbers *a, const hkt_adamw_state_t *state, size_t count)   \
    {                                                                                                                  \
        frozen(a, state, count);                                                                                       \
    }                                                                                                                  \
    target static size_t squares_##isa(struct hkt_exact *sum, const float *x, size_t count)                            \
    {                                                                                                                  \
        return squares(sum, x, count);                                                                                 \
    }                                                                                                                  \
    target static void add_##isa(float *to, const float *x, size_t count)                                              \
    {                                                                                                                  \
        add(to, x, count);                                                                                             \
    }                                                                                                                  \
    target static void scale_##isa(float *x, float factor, size_t count)                                               \
    {                                                                                                                  \
        scale(x, factor, count);                                                                                       \
    }                                                                                                                  \
    target static void widen_bf16_##isa(float *to, const uint16_t *x, size_t count)                                    \
    {                                                                                                                  \
        widen_bf16(to, x, count);                                                                                      \
    }                                                                                                                  \
    target static void widen_fp16_##isa(float *to, const uint16_t *x, size_t count)                                    \
    {                                                                                                                  \
        widen_fp16(to, x, count);                                                                                      \
    }                                                                                                                  \
    target static void narrow_bf16_##isa(uint16_t *to, const float *x, size_t count)                                   \
    {                                                                                                                  \
        narrow_bf16(to, x, count);                                                                                     \
    }                                                                                                                  \
    target static void narrow_fp16_##isa(uint16_t *to, const float *x, size_t count)                                   \
    {                                                                                                                  \
        narrow_fp16(to, x, count);                                                                                     \
    }                                                                                                                  \
    static const struct hkt_loops loops_##isa = {#isa,                                                                 \
                                                 adamw_##isa,                                                          \
                                                 frozen_##isa,                                                         \
                                                 squares_##isa,                                                        \
                                                 add_##isa,                                                            \
                                                 scale_##isa,                                                          \
                                                 widen_bf16_##isa,                                                     \
                                                 widen_fp16_##isa,                                                     \
                                                 narrow_bf16_##isa,                                                    \
                                                 narrow_fp16_##isa};

LOOPS(portable, )
LOOPS(avx2, ISA_TARGET_AVX2)
LOOPS(avx512, ISA_TARGET_AVX512)

static const struct hkt_loops *const table[ISAS] = {
    [ISA_PORTABLE] = &loops_portable, [ISA_AVX2] = &loops_avx2, [ISA_AVX512] = &loops_avx512};

const struct hkt_loops *hkt_loops_at(int index)
{
    return index >= 0 && index <= (int)isa_usable() ? table[index] : NULL;
}

const struct hkt_loops *hkt_loops(void)
{
    return table[isa_usable()];
}
