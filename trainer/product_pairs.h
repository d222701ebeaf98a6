/* product_pairs.h -- packing for the bf16 schemes of product.h whose instructions multiply pairs: two consecutive k, rounded to
 * bf16, in 32 bits. Blocks of 16 lanes by 16 pairs, either way round; where the lanes lie the other way they are turned.
 * Included by the schemes only. */
#ifndef TRAINER_PRODUCT_PAIRS_H
#define TRAINER_PRODUCT_PAIRS_H

#include "product.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum { HALF = 16 };

/* 16 x 16 of 32 bits. */
static inline void turn(__m512i r[HALF])
{
    __m512i t[HALF];

    for (int i = 0; i < HALF; i += 2) {
        t[i]     = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < HALF; i += 4) {
        r[i]     = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        const __m512i a = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88),
                      b = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        const __m512i c = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd),
                      d = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);

        t[i]      = _mm512_shuffle_i32x4(a, b, 0x88);
        t[i + 4]  = _mm512_shuffle_i32x4(c, d, 0x88);
        t[i + 8]  = _mm512_shuffle_i32x4(a, b, 0xdd);
        t[i + 12] = _mm512_shuffle_i32x4(c, d, 0xdd);
    }
    memcpy(r, t, sizeof(t));
}

static inline __mmask16 first(int count)
{
    return count >= HALF ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
}

/* r[lane] = the pairs of a lane whose k lie side by side. */
static inline void pairs_along(__m512i r[HALF], const float *x, size_t stride, int lanes, int depth)
{
    const __mmask16 low = first(depth), high = first(depth - HALF);

    for (int lane = 0; lane < HALF; lane++, x += stride)
        r[lane] = lane < lanes ? (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high, x + HALF),
                                                              _mm512_maskz_loadu_ps(low, x))
                               : _mm512_setzero_si512();
}

/* r[pair] = that pair of 16 lanes that lie side by side. */
static inline void pairs_across(__m512i r[HALF], const float *x, size_t stride, int lanes, int depth)
{
    const __mmask16 here = first(lanes);

    for (int pair = 0; pair < HALF; pair++, x += 2 * stride) {
        const __m512 even = _mm512_maskz_loadu_ps(2 * pair < depth ? here : 0, x);
        const __m512 odd  = _mm512_maskz_loadu_ps(2 * pair + 1 < depth ? here : 0, x + stride);

        r[pair] = _mm512_or_si512(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(even)),
                                  _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(odd)), 16));
    }
}

#endif
