/* reduce_vector.h -- one vector register of bytes and what the kernels do with it: load, store, combine, convert.
 *
 * Written in the compiler's vector extensions, so that one text serves every width; where the words of an instruction set are
 * better, they stand in vector_x86.h, else in vector_portable.h, under the same names and with the same bits. */
#ifndef HKT_REDUCE_VECTOR_H
#define HKT_REDUCE_VECTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* Bytes of a vector. */
#if defined(__AVX512BW__)
enum { W = 64 };
#elif defined(__AVX2__)
enum { W = 32 };
#else
enum { W = 16 };
#endif

#define INLINE static inline __attribute__((always_inline, unused))

/* The narrowing functions rely on it: the first of two elements lies in the low half. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the kernels are for little-endian machines");

#define VECTOR __attribute__((vector_size(W)))
#define ANY    __attribute__((aligned(1), may_alias))

typedef uint8_t  vec VECTOR; /* of no type in particular; casts between vectors cost nothing and change no bit */
typedef int8_t   v_int8 VECTOR;
typedef uint8_t  v_uint8 VECTOR;
typedef int16_t  v_int16 VECTOR;
typedef uint16_t v_uint16 VECTOR;
typedef int32_t  v_int32 VECTOR;
typedef uint32_t v_uint32 VECTOR;
typedef int64_t  v_int64 VECTOR;
typedef uint64_t v_uint64 VECTOR;
typedef float    v_float32 VECTOR;
typedef double   v_float64 VECTOR;
typedef uint16_t half16 __attribute__((vector_size(W / 2)));

typedef vec    vec_any ANY;
typedef half16 half16_any ANY;

/* A value in every lane. */
#define SPLAT(kind, x) ((vec)((v_##kind){0} + (x)))

/* v[k] = expression of k, for the four of them; a loop would not be unrolled by every compiler, and v would live in memory. */
#define UNIT_OF(v, expression)                                                                                          \
    do {                                                                                                                \
        {                                                                                                               \
            enum { k = 0 };                                                                                             \
            (v)[k] = (expression);                                                                                      \
        }                                                                                                               \
        {                                                                                                               \
            enum { k = 1 };                                                                                             \
            (v)[k] = (expression);                                                                                      \
        }                                                                                                               \
        {                                                                                                               \
            enum { k = 2 };                                                                                             \
            (v)[k] = (expression);                                                                                      \
        }                                                                                                               \
        {                                                                                                               \
            enum { k = 3 };                                                                                             \
            (v)[k] = (expression);                                                                                      \
        }                                                                                                               \
    } while (0)

INLINE vec load(const char *p)
{
    return *(const vec_any *)p;
}

INLINE void store(char *p, vec v)
{
    *(vec_any *)p = v;
}

INLINE vec nan_float32(void)
{
    return SPLAT(uint32, 0x7fc00000u);
}

INLINE vec nan_float64(void)
{
    return SPLAT(uint64, 0x7ff8000000000000u);
}

/* The first bytes, 8 at most; the rest zero. Reads nothing else. */
INLINE uint64_t load_word(const char *p, int bytes)
{
    uint64_t word;
    uint32_t low, high;
    uint16_t a, b;

    if (bytes >= 8) {
        memcpy(&word, p, 8);
        return word;
    }
    if (bytes >= 4) {
        memcpy(&low, p, 4);
        memcpy(&high, p + bytes - 4, 4);
        return low | (uint64_t)high << (8 * (bytes - 4));
    }
    if (bytes >= 2) {
        memcpy(&a, p, 2);
        memcpy(&b, p + bytes - 2, 2);
        return a | (uint64_t)b << (8 * (bytes - 2));
    }
    return bytes ? (uint8_t)*p : 0;
}

INLINE void store_word(char *p, uint64_t word, int bytes)
{
    if (bytes >= 8) {
        memcpy(p, &word, 8);
        return;
    }
    if (bytes & 4) {
        memcpy(p, &word, 4);
        word >>= 32;
        p += 4;
    }
    if (bytes & 2) {
        memcpy(p, &word, 2);
        word >>= 16;
        p += 2;
    }
    if (bytes & 1)
        *p = (char)word;
}

INLINE vec pick(vec mask, vec a, vec b); /* lanes of a where the mask is all ones, else of b */

/* Integer lanes where there is no word for it. */
#define COMPARED_LANES(kind)                                                                                            \
    INLINE vec min_##kind(vec a, vec b)                                                                                 \
    {                                                                                                                   \
        return pick((vec)((v_##kind)a < (v_##kind)b), a, b);                                                            \
    }                                                                                                                   \
    INLINE vec max_##kind(vec a, vec b)                                                                                 \
    {                                                                                                                   \
        return pick((vec)((v_##kind)a > (v_##kind)b), a, b);                                                            \
    }

/* fp32 magnitudes to a float of `mantissa` bits whose least normal number is `least` (fp32 bits), rounded to nearest even. The
 * codes run on above the largest finite number. */
INLINE v_uint32 encode(v_uint32 magnitude, const int mantissa, const uint32_t least)
{
    const int      shift = 23 - mantissa;
    const uint32_t magic = least + ((uint32_t)shift << 23); /* its unit in the last place is the smallest subnormal */
    const v_uint32 odd   = magnitude >> shift & 1u;
    const v_uint32 large = (magnitude + (((1u << (shift - 1)) - 1) - (least - (1u << 23))) + odd) >> shift;
    const v_uint32 small = (v_uint32)((v_float32)magnitude + (v_float32)SPLAT(uint32, magic)) - magic;

    return (v_uint32)pick((vec)((v_int32)magnitude < (int32_t)least), (vec)small, (vec)large);
}

/* fp32, NaN canonical, to a small float with infinities; `nan` and `infinity` are its codes. */
INLINE v_uint32 encode_ieee(v_uint32 u, const int mantissa, const uint32_t nan, const uint32_t infinity)
{
    const v_uint32 magnitude = u & 0x7fffffffu;
    const v_uint32 finite    = encode(magnitude, mantissa, 0x38800000u);
    const vec      code      = pick((vec)((v_int32)finite > (int32_t)infinity), SPLAT(uint32, infinity), (vec)finite);

    return (v_uint32)pick((vec)((v_int32)magnitude > 0x7f800000), SPLAT(uint32, nan), code);
}

INLINE v_uint32 to_float16(v_uint32 u)
{
    return encode_ieee(u, 10, 0x7e00, 0x7c00) | (u >> 16 & 0x8000u);
}

INLINE v_uint32 to_e5m2(v_uint32 u)
{
    return encode_ieee(u, 2, 0x7e, 0x7c) | (u >> 24 & 0x80u);
}

INLINE v_uint32 to_e4m3(v_uint32 u)
{
    const v_uint32 magnitude = u & 0x7fffffffu;
    const v_uint32 code      = encode(magnitude, 3, 0x3c800000u) | (u >> 24 & 0x80u);

    return (v_uint32)pick((vec)((v_int32)magnitude > 0x43e80000), SPLAT(uint32, 0x7fu), (vec)code); /* above 464: NaN */
}

/* To nearest even in the upper half; the lower half is left over. */
INLINE v_uint32 round_bfloat16(vec v)
{
    const v_uint32 u = (v_uint32)v;

    return u + 0x7fffu + (u >> 16 & 1u);
}

#if defined(__AVX2__)
#include "language/vector_x86.h"
#else
#include "language/vector_portable.h"
#endif

INLINE void fence_past(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* ---- combining two values ---------------------------------------------------------------------------------------- */

#define ARITHMETIC(kind, wrapping)                                                                                      \
    INLINE vec sum_##kind(vec a, vec b)                                                                                 \
    {                                                                                                                   \
        return (vec)((v_##wrapping)a + (v_##wrapping)b);                                                                \
    }                                                                                                                   \
    INLINE vec prod_##kind(vec a, vec b)                                                                                \
    {                                                                                                                   \
        return (vec)((v_##wrapping)a * (v_##wrapping)b);                                                                \
    }
#define INTEGER(kind, wrapping)                                                                                         \
    ARITHMETIC(kind, wrapping)                                                                                          \
    INLINE vec canonical_##kind(vec v)                                                                                  \
    {                                                                                                                   \
        return v;                                                                                                       \
    }
#define FLOAT(kind)                                                                                                     \
    ARITHMETIC(kind, kind)                                                                                              \
    INLINE vec divide_##kind(vec a, vec b)                                                                              \
    {                                                                                                                   \
        return (vec)((v_##kind)a / (v_##kind)b);                                                                        \
    }

INTEGER(int8, uint8)
INTEGER(uint8, uint8)
INTEGER(int16, uint16)
INTEGER(uint16, uint16)
INTEGER(int32, uint32)
INTEGER(uint32, uint32)
INTEGER(int64, uint64)
INTEGER(uint64, uint64)
FLOAT(float32)
FLOAT(float64)

/* ---- reading: vector k of a unit, of the wide type ------------------------------------------------------------------ */

/* Types that are their own wide type. */
#define READ_SELF(type)                                                                                                 \
    INLINE vec read_##type(const char *p, int k)                                                                        \
    {                                                                                                                   \
        return load(p + k * W);                                                                                         \
    }
#define READ_WIDENED(type, from, part)                                                                                  \
    INLINE vec read_##type(const char *p, int k)                                                                        \
    {                                                                                                                   \
        return from(p + k * (W / (part)));                                                                              \
    }

READ_SELF(int8)
READ_SELF(uint8)
READ_SELF(int16)
READ_SELF(uint16)
READ_SELF(int32)
READ_SELF(uint32)
READ_SELF(int64)
READ_SELF(uint64)
READ_SELF(float32)
READ_SELF(float64)
READ_WIDENED(float16, load_float16, 2)
READ_WIDENED(bfloat16, load_bfloat16, 2)
READ_WIDENED(e4m3, load_e4m3, 4)
READ_WIDENED(e4m3_scaled, load_e4m3_scaled, 4) /* the value times 2^-8; for sums alone */
READ_WIDENED(e5m2, load_e5m2, 4)
READ_WIDENED(average_int8, load64_int8, 8)
READ_WIDENED(average_uint8, load64_uint8, 8)
READ_WIDENED(average_int16, load64_int16, 4)
READ_WIDENED(average_uint16, load64_uint16, 4)
READ_WIDENED(average_int32, load64_int32, 2)
READ_WIDENED(average_uint32, load64_uint32, 2)

/* Even elements, then odd ones: cheaper than in order where fp32 does not meet memory. */
INLINE vec read_bfloat16_split(const char *p, int k)
{
    const v_uint32 both = (v_uint32)load(p + (k / 2) * W);

    return (vec)(k & 1 ? both & 0xffff0000u : both << 16);
}

/* ---- packing: a unit of the wide type to the type, in place at the front -------------------------------------------------- */

#define PACK_SELF(type)                                                                                                 \
    INLINE void pack_##type(vec v[4])                                                                                   \
    {                                                                                                                   \
        (void)v;                                                                                                        \
    }

PACK_SELF(int8)
PACK_SELF(uint8)
PACK_SELF(int16)
PACK_SELF(uint16)
PACK_SELF(int32)
PACK_SELF(uint32)
PACK_SELF(int64)
PACK_SELF(uint64)
PACK_SELF(float32)
PACK_SELF(float64)

INLINE void pack_float16(vec v[4])
{
    v[0] = halve_float16(v[0], v[1]);
    v[1] = halve_float16(v[2], v[3]);
}

INLINE void pack_bfloat16(vec v[4]) /* NaN canonical */
{
    v[0] = narrow16(round_bfloat16(v[0]) >> 16, round_bfloat16(v[1]) >> 16);
    v[1] = narrow16(round_bfloat16(v[2]) >> 16, round_bfloat16(v[3]) >> 16);
}

INLINE void pack_bfloat16_split(vec v[4]) /* likewise */
{
    v[0] = upper_halves((vec)round_bfloat16(v[0]), (vec)round_bfloat16(v[1]));
    v[1] = upper_halves((vec)round_bfloat16(v[2]), (vec)round_bfloat16(v[3]));
}

#define read_bfloat16_sums read_bfloat16_split

/* 64-bit lanes to their low 32, 16 or 8 bits. */
INLINE void pack_low32(vec v[4])
{
    v[0] = narrow64(v[0], v[1]);
    v[1] = narrow64(v[2], v[3]);
}

INLINE void pack_low16(vec v[4])
{
    pack_low32(v);
    v[0] = narrow16((v_uint32)v[0] & 0xffffu, (v_uint32)v[1] & 0xffffu);
}

INLINE void pack_low8(vec v[4])
{
    pack_low32(v);
    v[0] = narrow8((v_uint32)v[0] & 0xffu, (v_uint32)v[1] & 0xffu, (v_uint32){0}, (v_uint32){0});
}

#endif
