/* vector_x86.h -- the words of AVX2 and AVX-512 for the list of functions that reduce_vector.h builds on.
 *
 * F16C converts without regard to the caller's rounding and flushing mode. The bf16 conversion of AVX-512 is not used: it flushes
 * subnormals, and the bits are to be the same everywhere. */
#ifndef HKT_VECTOR_X86_H
#define HKT_VECTOR_X86_H

/* X86(add_ps) is the word for a vector, HALF(add_ps) that for half of one. */
#if defined(__AVX512BW__)
#define X86(name)  _mm512_##name
#define HALF(name) _mm256_##name
typedef __m512i ints;
typedef __m512  floats;
typedef __m512d doubles;
typedef __m256i half_ints;
#else
#define X86(name)  _mm256_##name
#define HALF(name) _mm_##name
typedef __m256i ints;
typedef __m256  floats;
typedef __m256d doubles;
typedef __m128i half_ints;
#endif

INLINE void store_past(char *p, vec v)
{
#if defined(__AVX512BW__)
    _mm512_stream_si512((ints *)(void *)p, (ints)v);
#else
    _mm256_stream_si256((ints *)(void *)p, (ints)v);
#endif
}

/* ---- parts of a vector: touch nothing beyond ----------------------------------------------------------------------- */

INLINE vec load_part(const char *p, int bytes)
{
#if defined(__AVX512BW__)
    return (vec)_mm512_maskz_loadu_epi8(~(uint64_t)0 >> (64 - bytes), p);
#else
    __m128i low;

    if (bytes == W)
        return load(p);
    if (bytes <= 8)
        return (vec)(v_uint64){load_word(p, bytes)};
    if (bytes <= 16)
        return (vec)(v_uint64){load_word(p, 8), load_word(p + 8, bytes - 8)};
    low = _mm_loadu_si128((const __m128i *)(const void *)p);
    if (bytes <= 24)
        return (vec)_mm256_set_m128i(_mm_cvtsi64_si128((int64_t)load_word(p + 16, bytes - 16)), low);
    return (vec)_mm256_set_m128i(_mm_set_epi64x((int64_t)load_word(p + 24, bytes - 24), (int64_t)load_word(p + 16, 8)), low);
#endif
}

INLINE void store_part(char *p, vec v, int bytes)
{
#if defined(__AVX512BW__)
    _mm512_mask_storeu_epi8(p, ~(uint64_t)0 >> (64 - bytes), (ints)v);
#else
    __m128i x = _mm256_castsi256_si128((ints)v);

    if (bytes == W) {
        store(p, v);
        return;
    }
    if (bytes > 16) {
        _mm_storeu_si128((__m128i *)(void *)p, x);
        x = _mm256_extracti128_si256((ints)v, 1);
        p += 16;
        bytes -= 16;
    }
    store_word(p, (uint64_t)_mm_cvtsi128_si64(x), bytes);
    if (bytes > 8)
        store_word(p + 8, (uint64_t)_mm_extract_epi64(x, 1), bytes - 8);
#endif
}

/* ---- lanes -------------------------------------------------------------------------------------------------------- */

INLINE vec pick(vec mask, vec a, vec b)
{
#if defined(__AVX512BW__)
    return (a & mask) | (b & ~mask);
#else
    return (vec)_mm256_blendv_epi8((ints)b, (ints)a, (ints)mask);
#endif
}

#if defined(__AVX512BW__)
#define UNORDERED(a, b, letters, words, bits)                                                                           \
    ((vec)_mm512_movm_epi##bits(_mm512_cmp_##letters##_mask((words)(a), (words)(b), _CMP_UNORD_Q)))
#define CANONICAL(v, nan, letters, words)                                                                               \
    ((vec)_mm512_mask_mov_##letters((words)(v), _mm512_cmp_##letters##_mask((words)(v), (words)(v), _CMP_UNORD_Q),      \
                                    (words)(nan)))
#else
#define UNORDERED(a, b, letters, words, bits) ((vec)_mm256_cmp_##letters((words)(a), (words)(b), _CMP_UNORD_Q))
#define CANONICAL(v, nan, letters, words)                                                                               \
    ((vec)_mm256_blendv_##letters((words)(v), (words)(nan), _mm256_cmp_##letters((words)(v), (words)(v), _CMP_UNORD_Q)))
#endif

/* The words give their second operand for zeros and for NaN, so both orders together show both operands: "or" makes -0 of zeros
 * of two signs and keeps the NaN of one; "and" makes +0, and a NaN has to be put back. */
#define FLOAT_LANES(kind, letters, words, bits)                                                                         \
    INLINE vec min_##kind(vec a, vec b)                                                                                 \
    {                                                                                                                   \
        return (vec)X86(min_##letters)((words)a, (words)b) | (vec)X86(min_##letters)((words)b, (words)a);               \
    }                                                                                                                   \
    INLINE vec max_##kind(vec a, vec b)                                                                                 \
    {                                                                                                                   \
        const vec both = (vec)X86(max_##letters)((words)a, (words)b) & (vec)X86(max_##letters)((words)b, (words)a);     \
                                                                                                                        \
        return both | UNORDERED(a, b, letters, words, bits);                                                            \
    }                                                                                                                   \
    INLINE vec canonical_##kind(vec v)                                                                                  \
    {                                                                                                                   \
        return CANONICAL(v, nan_##kind(), letters, words);                                                              \
    }

#define INTEGER_LANES(kind, letters)                                                                                    \
    INLINE vec min_##kind(vec a, vec b)                                                                                 \
    {                                                                                                                   \
        return (vec)X86(min_##letters)((ints)a, (ints)b);                                                               \
    }                                                                                                                   \
    INLINE vec max_##kind(vec a, vec b)                                                                                 \
    {                                                                                                                   \
        return (vec)X86(max_##letters)((ints)a, (ints)b);                                                               \
    }

FLOAT_LANES(float32, ps, floats, 32)
FLOAT_LANES(float64, pd, doubles, 64)
INTEGER_LANES(int8, epi8)
INTEGER_LANES(uint8, epu8)
INTEGER_LANES(int16, epi16)
INTEGER_LANES(uint16, epu16)
INTEGER_LANES(int32, epi32)
INTEGER_LANES(uint32, epu32)
#if defined(__AVX512BW__)
INTEGER_LANES(int64, epi64)
INTEGER_LANES(uint64, epu64)
#else
COMPARED_LANES(int64)
COMPARED_LANES(uint64)
#endif

/* ---- loads that widen: as many elements as there are lanes ------------------------------------------------------------ */

INLINE half_ints bytes_half(const char *p)
{
    return (half_ints)*(const half16_any *)p;
}

/* In the low part of a half. */
INLINE __m128i bytes_quarter(const char *p)
{
#if defined(__AVX512BW__)
    return _mm_loadu_si128((const __m128i *)(const void *)p);
#else
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
#endif
}

INLINE __m128i bytes_eighth(const char *p)
{
#if defined(__AVX512BW__)
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
#else
    return _mm_loadu_si32(p);
#endif
}

INLINE vec load_bfloat16(const char *p)
{
    return (vec)((v_uint32)X86(cvtepu16_epi32)(bytes_half(p)) << 16);
}

#define FORM_FLOAT16 FAST /* see reduce_loops.h */

INLINE vec load_float16(const char *p)
{
    return (vec)X86(cvtph_ps)(bytes_half(p));
}

/* It is the upper half of fp16. */
INLINE vec load_e5m2(const char *p)
{
    return (vec)X86(cvtph_ps)((half_ints)((half16)HALF(cvtepu8_epi16)(bytes_quarter(p)) << 8));
}

/* As fp16, whose bias is 8 larger: the value times 2^-8. The sign is spread above the magnitude, through bit 14, by the widening. */
INLINE vec load_e4m3_scaled(const char *p)
{
    const half16 code = ((half16)HALF(cvtepi8_epi16)(bytes_quarter(p)) << 7) & 0xbfff;
    const half16 nan  = (half16)((code & 0x3f80) == 0x3f80);

    return (vec)X86(cvtph_ps)((half_ints)(code | nan));
}

INLINE vec load_e4m3(const char *p)
{
    return (vec)((v_float32)load_e4m3_scaled(p) * 0x1p8f);
}

#define LOAD64(kind, letters, bytes)                                                                                    \
    INLINE vec load64_##kind(const char *p)                                                                             \
    {                                                                                                                   \
        return (vec)X86(cvt##letters##_epi64)(bytes(p));                                                                \
    }

LOAD64(int8, epi8, bytes_eighth)
LOAD64(uint8, epu8, bytes_eighth)
LOAD64(int16, epi16, bytes_quarter)
LOAD64(uint16, epu16, bytes_quarter)
LOAD64(int32, epi32, bytes_half)
LOAD64(uint32, epu32, bytes_half)

/* ---- narrowing: the lanes of several vectors into one, in order; they fit ------------------------------------------- */

INLINE vec narrow64(vec a, vec b)
{
#if defined(__AVX512BW__)
    const ints even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);

    return (vec)_mm512_permutex2var_epi32((ints)a, even, (ints)b);
#else
    return (vec)_mm256_permute4x64_epi64((ints)_mm256_shuffle_ps((floats)a, (floats)b, 0x88), 0xd8);
#endif
}

INLINE vec narrow16(v_uint32 a, v_uint32 b)
{
    const ints packed = X86(packus_epi32)((ints)a, (ints)b);

#if defined(__AVX512BW__)
    return (vec)_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
#else
    return (vec)_mm256_permute4x64_epi64(packed, 0xd8);
#endif
}

INLINE vec narrow8(v_uint32 a, v_uint32 b, v_uint32 c, v_uint32 d)
{
    const ints packed = X86(packus_epi16)(X86(packus_epi32)((ints)a, (ints)b), X86(packus_epi32)((ints)c, (ints)d));

#if defined(__AVX512BW__)
    return (vec)_mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), packed);
#else
    return (vec)_mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
#endif
}

/* The 16-bit lanes of a at even places, those of b at odd ones. */
INLINE vec alternate(vec a, vec b)
{
#if defined(__AVX512BW__)
    return (vec)_mm512_mask_blend_epi16(0xaaaaaaaa, (ints)a, (ints)b);
#else
    return (vec)_mm256_blend_epi16((ints)a, (ints)b, 0xaa);
#endif
}

/* fp16 or bf16 codes, NaN to the canonical one; it is the only code above infinity but for its sign. */
INLINE vec canonical_code16(vec v, const int16_t nan, const int16_t infinity)
{
    const vec magnitude = v & SPLAT(int16, 0x7fff);

#if defined(__AVX512BW__)
    return (vec)_mm512_mask_mov_epi16((ints)v, _mm512_cmpgt_epi16_mask((ints)magnitude, (ints)SPLAT(int16, infinity)), (ints)SPLAT(int16, nan));
#else
    return pick((vec)((v_int16)magnitude > (v_int16)SPLAT(int16, infinity)), SPLAT(int16, nan), v);
#endif
}

/* fp32 at even and odd places to bf16. Rounds all 16-bit halves at once: up when the lower half is above 0x8000, or equal and the
 * upper one odd. A NaN may come with any sign and payload, but its lower half has to be zero: so do NaN of bf16, their sums and those
 * that the machine makes. */
INLINE vec halve_bfloat16(vec even, vec odd)
{
    const vec      upper = alternate((vec)((v_uint32)even >> 16), odd), lower = alternate(even, (vec)((v_uint32)odd << 16));
    const v_uint16 above = (v_uint16)X86(subs_epu16)((ints)lower, (ints)(~upper & SPLAT(uint16, 1)));

    return canonical_code16((vec)((v_uint16)upper + (above >> 15)), 0x7fc0, 0x7f80);
}

INLINE void pack_bfloat16_sums(vec v[4])
{
    v[0] = halve_bfloat16(v[0], v[1]);
    v[1] = halve_bfloat16(v[2], v[3]);
}

/* The upper halves of two vectors of 32-bit lanes, by turns. */
INLINE vec upper_halves(vec even, vec odd)
{
    return alternate((vec)((v_uint32)even >> 16), odd);
}

INLINE vec join(half_ints low, half_ints high)
{
#if defined(__AVX512BW__)
    return (vec)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#else
    return (vec)_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
#endif
}

INLINE half_ints halve(vec v)
{
    return X86(cvtps_ph)((floats)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE vec halve_float16(vec a, vec b)
{
    return canonical_code16(join(halve(a), halve(b)), 0x7e00, 0x7c00);
}

/* Rounds fp32 to `mantissa` bits and to multiples of the smallest subnormal where 2^`least` is the smallest normal number: adds what
 * has just so many bits fewer below, and takes it away again. Beyond 2^64 it does not round. */
INLINE vec trim(vec v, const int mantissa, const int least)
{
    const ints      power = (ints)(v & SPLAT(uint32, 0x7f800000u));
    const ints      near  = X86(min_epi32)(X86(max_epi32)(power, (ints)SPLAT(int32, (127 + least) << 23)), (ints)SPLAT(int32, (127 + 64) << 23));
    const v_float32 large = (v_float32)((v_uint32)near + (((23u - (uint32_t)mantissa) << 23) + 0x400000u));
    const vec       sum   = (vec)(((v_float32)v + large) - large);

    return sum | (v & SPLAT(uint32, 0x80000000u)); /* the sign of what becomes zero */
}

/* Four vectors of small floats that fp16 can hold, to fp16; so that an in-lane pack of the two results gives them in order. */
INLINE void halve_four(const vec v[4], v_uint16 half[2])
{
#if defined(__AVX512BW__)
    half[0] = (v_uint16)join(halve(v[0]), halve(v[1]));
    half[1] = (v_uint16)join(halve(v[2]), halve(v[3]));
#else
    half[0] = (v_uint16)join(halve(v[0]), halve(v[2]));
    half[1] = (v_uint16)join(halve(v[1]), halve(v[3]));
#endif
}

/* The order after an in-lane pack of those two. */
INLINE vec in_order(ints packed)
{
#if defined(__AVX512BW__)
    return (vec)_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
#else
    return (vec)packed;
#endif
}

/* From values times 2^-8. What is too large has bits above the seven of the largest code, which is NaN, and the packing saturates;
 * so does a NaN. */
INLINE void pack_e4m3_scaled(vec v[4])
{
    v_uint16 half[2];
    vec      code, sign;

    UNIT_OF(v, trim(v[k], 3, -14));
    halve_four(v, half);
    sign = in_order(X86(packs_epi16)((ints)half[0], (ints)half[1]));
    code = in_order(X86(packs_epi16)((ints)((half[0] & 0x7fff) >> 7), (ints)((half[1] & 0x7fff) >> 7)));
    v[0] = code | (sign & 0x80 & (vec)(code != 0x7f));
}

INLINE void pack_e4m3(vec v[4])
{
    UNIT_OF(v, (vec)((v_float32)v[k] * 0x1p-8f));
    pack_e4m3_scaled(v);
}

INLINE void pack_e5m2(vec v[4])
{
    v_uint16 half[2];

    UNIT_OF(v, trim(v[k], 2, -14));
    halve_four(v, half);
    for (int i = 0; i < 2; i++)
        half[i] = (v_uint16)canonical_code16((vec)half[i], 0x7e00, 0x7c00) >> 8;
    v[0] = in_order(X86(packus_epi16)((ints)half[0], (ints)half[1]));
}

#endif
