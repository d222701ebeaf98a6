/* codec_numbers.h -- bits of floats and sums in lanes, for the loops of the codecs; included by codec_table.c only.
 *
 * Everything is integer arithmetic, or one IEEE operation at a time in a fixed order, so every instruction set gives
 * the same bits. No branch depends on data, so compilers turn the loops into vector code.
 */
#ifndef PARALLEL_CODEC_NUMBERS_H
#define PARALLEL_CODEC_NUMBERS_H

#include "codec.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 32 };

static const uint32_t infinity_bits = 0x7f800000u, nan_bits = 0x7fc00000u, magnitude_mask = 0x7fffffffu;

INLINE uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

INLINE float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Codes have any alignment. */
INLINE float load_float(const uint8_t *from)
{
    float x;

    memcpy(&x, from, sizeof(x));
    return x;
}

INLINE void store_float(uint8_t *to, float x)
{
    memcpy(to, &x, sizeof(x));
}

/* The largest magnitude of whole groups as bits; NaN counts as the largest of all. Compared as signed, which every
 * instruction set can do. */
INLINE uint32_t largest(const float *x, size_t count)
{
    int32_t most = 0;

    for (size_t i = 0; i < count; i++) {
        const int32_t m = (int32_t)(bits_of(x[i]) & magnitude_mask);

        most = m > most ? m : most;
    }
    return (uint32_t)most;
}

/* Adds the lanes as a binary tree. */
INLINE float sum_lanes(float lane[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

INLINE float sum_of_magnitudes(const float *x, size_t count)
{
    float lane[LANES] = {0};

    for (size_t i = 0; i < count; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += fabsf(x[i + (size_t)l]);
    return sum_lanes(lane);
}

/* Of whole groups; `most` is the largest magnitude: what is squared is at most 1. */
INLINE float root_mean_square(const float *x, size_t count, float most)
{
    const float inverse     = most < 1e-35f ? 0 : 1 / most;
    float       lane[LANES] = {0};

    for (size_t i = 0; i < count; i += LANES)
        for (int l = 0; l < LANES; l++) {
            const float part = x[i + (size_t)l] * inverse;

            lane[l] += part * part;
        }
    return most * sqrtf(sum_lanes(lane) / (float)count);
}

/* A float of fewer bits: one of sign, then exponent, then mantissa. */
struct format {
    int     mantissa, bias;
    int32_t past; /* the first magnitude that is no number: infinity, or NaN where there is none */
    int32_t nan;  /* the canonical one */
};

static const struct format format_fp16 = {10, 15, 0x7c00, 0x7e00};
static const struct format format_bf16 = {7, 127, 0x7f80, 0x7fc0};
static const struct format format_e4m3 = {3, 7, 0x7f, 0x7f};

/* Rounded to nearest even. What is subnormal there is rounded by adding the number whose last place is the format's
 * least. All integers are far from overflow and compared as signed, see largest(). */
INLINE int32_t narrow(float x, const struct format f, int sign_at)
{
    const int     shift     = 23 - f.mantissa;
    const int32_t magnitude = (int32_t)(bits_of(x) & magnitude_mask), infinity = (int32_t)infinity_bits;
    const int32_t finite    = magnitude < infinity ? magnitude : infinity;
    const int32_t rounded   = finite + (1 << (shift - 1)) - 1 + ((finite >> shift) & 1);
    const int32_t normal    = (rounded >> shift) - ((127 - f.bias) << f.mantissa);
    const int32_t least     = (24 - f.bias - f.mantissa + 127) << 23;
    const int32_t subnormal = (int32_t)bits_of(float_of((uint32_t)finite) + float_of((uint32_t)least)) - least;
    int32_t       code      = f.bias < 127 && finite < (128 - f.bias) << 23 ? subnormal : normal;

    code = code > f.past ? f.past : code;
    return magnitude > infinity ? f.nan : code | (int32_t)((bits_of(x) >> 31) << sign_at);
}

INLINE float widen(int32_t code, const struct format f, int sign_at)
{
    const int      shift     = 23 - f.mantissa;
    const int32_t  magnitude = code & ((1 << sign_at) - 1);
    const uint32_t shifted = (uint32_t)magnitude << shift, least = (uint32_t)(128 - f.bias) << 23;
    const uint32_t normal    = shifted + ((uint32_t)(127 - f.bias) << 23);
    const uint32_t subnormal = bits_of(float_of(least + shifted) - float_of(least));
    uint32_t       bits      = f.bias < 127 && magnitude < 1 << f.mantissa ? subnormal : normal;

    bits = magnitude >= f.past ? infinity_bits : bits;
    bits = magnitude > f.past || magnitude == f.nan ? nan_bits : bits;
    return float_of(bits | ((uint32_t)code >> sign_at << 31));
}

#endif
