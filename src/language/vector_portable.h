/* vector_portable.h -- the list of functions that reduce_vector.h builds on, in the compiler's vector extensions alone. No step
 * makes or reads a subnormal of fp32 where the caller's flushing mode could change it. */
#ifndef HKT_VECTOR_PORTABLE_H
#define HKT_VECTOR_PORTABLE_H

/* W-aligned; where there is no store past the cache, an ordinary one. */
INLINE void store_past(char *p, vec v)
{
#if defined(__SSE2__)
    _mm_stream_si128((__m128i *)(void *)p, (__m128i)v);
#else
    store(p, v);
#endif
}

/* ---- parts of a vector: touch nothing beyond ----------------------------------------------------------------------- */

INLINE vec load_part(const char *p, int bytes)
{
    return (vec)(v_uint64){load_word(p, bytes), bytes > 8 ? load_word(p + 8, bytes - 8) : 0};
}

INLINE void store_part(char *p, vec v, int bytes)
{
    store_word(p, ((v_uint64)v)[0], bytes);
    if (bytes > 8)
        store_word(p + 8, ((v_uint64)v)[1], bytes - 8);
}

/* ---- lanes -------------------------------------------------------------------------------------------------------- */

INLINE vec pick(vec mask, vec a, vec b)
{
    return (a & mask) | (b & ~mask);
}

/* Equal lanes are either the same or zeros of two signs, for which "or" gives -0 and "and" gives +0. Lanes that compare neither way
 * hold a NaN, which "or" keeps one. */
#define FLOAT_LANES(kind)                                                                                               \
    INLINE vec min_##kind(vec a, vec b)                                                                                 \
    {                                                                                                                   \
        const vec less = (vec)((v_##kind)a < (v_##kind)b), more = (vec)((v_##kind)a > (v_##kind)b);                     \
                                                                                                                        \
        return pick(less, a, pick(more, b, a | b));                                                                     \
    }                                                                                                                   \
    INLINE vec max_##kind(vec a, vec b)                                                                                 \
    {                                                                                                                   \
        const vec less = (vec)((v_##kind)a < (v_##kind)b), more = (vec)((v_##kind)a > (v_##kind)b);                     \
        const vec nan = (vec)((v_##kind)a != (v_##kind)a) | (vec)((v_##kind)b != (v_##kind)b);                          \
                                                                                                                        \
        return pick(more, a, pick(less, b, (a & b) | nan));                                                             \
    }                                                                                                                   \
    INLINE vec canonical_##kind(vec v)                                                                                  \
    {                                                                                                                   \
        return pick((vec)((v_##kind)v != (v_##kind)v), nan_##kind(), v);                                                \
    }

FLOAT_LANES(float32)
FLOAT_LANES(float64)
COMPARED_LANES(int8)
COMPARED_LANES(uint8)
COMPARED_LANES(int16)
COMPARED_LANES(uint16)
COMPARED_LANES(int32)
COMPARED_LANES(uint32)
COMPARED_LANES(int64)
COMPARED_LANES(uint64)

/* ---- loads that widen: as many elements as there are lanes ------------------------------------------------------------ */

#define WIDEN(name, wide, narrow, lanes)                                                                                \
    INLINE vec name(const char *p)                                                                                      \
    {                                                                                                                   \
        narrow from[lanes];                                                                                             \
        wide   to[lanes];                                                                                               \
        vec    v;                                                                                                       \
                                                                                                                        \
        memcpy(from, p, sizeof(from));                                                                                  \
        for (int i = 0; i < (lanes); i++)                                                                               \
            to[i] = from[i];                                                                                            \
        memcpy(&v, to, sizeof(v));                                                                                      \
        return v;                                                                                                       \
    }

WIDEN(load64_int8, int64_t, int8_t, W / 8)
WIDEN(load64_uint8, int64_t, uint8_t, W / 8)
WIDEN(load64_int16, int64_t, int16_t, W / 8)
WIDEN(load64_uint16, int64_t, uint16_t, W / 8)
WIDEN(load64_int32, int64_t, int32_t, W / 8)
WIDEN(load64_uint32, int64_t, uint32_t, W / 8)
WIDEN(load32_uint8, uint32_t, uint8_t, W / 4)

INLINE v_uint32 load32_uint16(const char *p)
{
    return __builtin_convertvector(*(const half16_any *)p, v_uint32);
}

INLINE vec load_bfloat16(const char *p)
{
    return (vec)(load32_uint16(p) << 16);
}

/* fp16 in the low half of each lane. */
INLINE vec from_float16(v_uint32 h)
{
    const v_uint32 sign = (h & 0x8000u) << 16, magnitude = (h & 0x7fffu) << 13;
    const v_uint32 special = ((v_uint32)((v_int32)magnitude >= 0x0f800000) & 0x38000000u) + magnitude + 0x38000000u;
    const v_uint32 small = (v_uint32)((v_float32)(magnitude + 0x38800000u) - 0x1p-14f);

    return pick((vec)((v_int32)magnitude < 0x00800000), (vec)small, (vec)special) | (vec)sign;
}

INLINE vec load_float16(const char *p)
{
    return from_float16(load32_uint16(p));
}

/* It is the upper half of fp16. */
INLINE vec load_e5m2(const char *p)
{
    return from_float16((v_uint32)load32_uint8(p) << 8);
}

INLINE vec load_e4m3(const char *p)
{
    const v_uint32 x = (v_uint32)load32_uint8(p), magnitude = (x & 0x7fu) << 20;
    const v_uint32 large = (magnitude + 0x3c000000u) | ((v_uint32)(magnitude == 0x07f00000u) & 0x7fc00000u);
    const v_uint32 small = (v_uint32)((v_float32)(magnitude + 0x3c800000u) - 0x1p-6f);

    return pick((vec)((v_int32)magnitude < 0x00800000), (vec)small, (vec)large) | (vec)((x & 0x80u) << 24);
}

#define FORM_FLOAT16 SMALL /* see reduce_loops.h; a conversion is some twenty instructions here */

/* ---- narrowing: the lanes of several vectors into one, in order; they fit ------------------------------------------- */

INLINE vec narrow64(vec a, vec b)
{
    return (vec)__builtin_shufflevector((v_uint32)a, (v_uint32)b, 0, 2, 4, 6);
}

INLINE vec narrow16(v_uint32 a, v_uint32 b)
{
    return (vec)__builtin_shufflevector((v_uint16)a, (v_uint16)b, 0, 2, 4, 6, 8, 10, 12, 14);
}

INLINE vec narrow8(v_uint32 a, v_uint32 b, v_uint32 c, v_uint32 d)
{
    return (vec)__builtin_shufflevector((vec)narrow16(a, b), (vec)narrow16(c, d), 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26,
                                        28, 30);
}

INLINE vec halve_float16(vec a, vec b)
{
    return narrow16(to_float16((v_uint32)canonical_float32(a)), to_float16((v_uint32)canonical_float32(b)));
}

/* The upper halves of two vectors of 32-bit lanes, by turns. */
INLINE vec upper_halves(vec even, vec odd)
{
    return (vec)((v_uint32)even >> 16 | ((v_uint32)odd & 0xffff0000u));
}

INLINE void pack_e4m3(vec v[4])
{
    UNIT_OF(v, (vec)to_e4m3((v_uint32)v[k]));
    v[0] = narrow8((v_uint32)v[0], (v_uint32)v[1], (v_uint32)v[2], (v_uint32)v[3]);
}

INLINE void pack_e5m2(vec v[4])
{
    UNIT_OF(v, (vec)to_e5m2((v_uint32)canonical_float32(v[k])));
    v[0] = narrow8((v_uint32)v[0], (v_uint32)v[1], (v_uint32)v[2], (v_uint32)v[3]);
}

INLINE void pack_bfloat16_sums(vec v[4])
{
    UNIT_OF(v, (vec)round_bfloat16(canonical_float32(v[k])));
    v[0] = upper_halves(v[0], v[1]);
    v[1] = upper_halves(v[2], v[3]);
}

/* A scale that is cheaper on some machines; here there is none. */
#define load_e4m3_scaled load_e4m3
#define pack_e4m3_scaled pack_e4m3

#endif
