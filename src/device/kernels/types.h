/* types.h -- the element types as the kernels fold them: how an element becomes a value of the wide type and back, to the bit as
 * docs/numbers.md says, and the operators. */
#ifndef HKT_DEVICE_TYPES_H
#define HKT_DEVICE_TYPES_H

#include "device/kernels/gpu.h"

/* ---- fp32 and the small floats ---------------------------------------------------------------------------------------------------- */

enum : uint32_t { FLOAT_SIGN = 0x80000000u, FLOAT_INFINITY = 0x7f800000u, FLOAT_NAN = 0x7fc00000u };

DEVICE bool is_nan(float x)
{
    return x != x;
}

DEVICE bool is_nan(double x)
{
    return x != x;
}

/* Payload and sign of a NaN are lost. */
DEVICE float canonical(float x)
{
    return is_nan(x) ? float_of(FLOAT_NAN) : x;
}

DEVICE double canonical(double x)
{
    return is_nan(x) ? double_of(UINT64_C(0x7ff8000000000000)) : x;
}

/* Sign and magnitude of a format whose mantissa has been moved to the place of fp32's; no infinity and no NaN. One multiplication by a power
 * of two, which is exact, for subnormals too. */
template <int bias> DEVICE float widen(uint32_t moved)
{
    return float_of(moved) * float_of((uint32_t)(254 - bias) << 23);
}

/* Rounded to nearest even; subnormals by adding the number whose last place is theirs. May give more than the largest of the format. */
template <int mantissa, int bias> DEVICE uint32_t narrow(uint32_t magnitude)
{
    const int      shift = 23 - mantissa;
    const uint32_t least = (uint32_t)(128 - bias) << 23, magic = least + ((uint32_t)shift << 23);

    if (magnitude < least)
        return bits_of(float_of(magnitude) + float_of(magic)) - magic;
    return ((magnitude + ((1u << (shift - 1)) - 1) + (magnitude >> shift & 1)) >> shift) - ((uint32_t)(127 - bias) << mantissa);
}

#ifdef __CUDACC__
DEVICE float from_half(uint16_t x)
{
    float y;

    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

DEVICE uint16_t to_half(float x)
{
    uint16_t y;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return is_nan(x) ? (uint16_t)0x7e00 : y;
}

DEVICE uint16_t to_bfloat(float x)
{
    uint16_t y;

    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return is_nan(x) ? (uint16_t)0x7fc0 : y;
}
#else
DEVICE float from_half(uint16_t x)
{
    const uint32_t magnitude = x & 0x7fffu, sign = (x & 0x8000u) << 16;

    if (magnitude >= 0x7c00)
        return float_of((magnitude == 0x7c00 ? (uint32_t)FLOAT_INFINITY : (uint32_t)FLOAT_NAN) | sign);
    return widen<15>(magnitude << 13 | sign);
}

DEVICE uint16_t to_half(float x)
{
    const uint32_t magnitude = bits_of(x) & ~FLOAT_SIGN;

    if (magnitude > FLOAT_INFINITY)
        return 0x7e00;
    return (uint16_t)((magnitude >= 0x47800000u ? 0x7c00u : narrow<10, 15>(magnitude)) | (bits_of(x) >> 16 & 0x8000u));
}

DEVICE uint16_t to_bfloat(float x)
{
    const uint32_t u = bits_of(x);

    return (u & ~FLOAT_SIGN) > FLOAT_INFINITY ? (uint16_t)0x7fc0 : (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
#endif

/* ---- types. T: in memory; A: the wide type; rare: not worth the fastest loops. ------------------------------------------------------------------------------------------ */

template <class Float> struct own_float {
    typedef Float T;
    typedef Float A;
    enum { rare = 0 };

    DEVICE A up(T x)
    {
        return x;
    }
    DEVICE T down(A x)
    {
        return canonical(x);
    }
    DEVICE A partial(A x)
    {
        return canonical(x);
    }
    DEVICE A divide(A x, uint32_t divisor)
    {
        return x / (A)divisor;
    }
};

typedef own_float<float>  float32;
typedef own_float<double> float64;

/* What the small floats share: all but up() and down(). */
template <class Storage> struct small_float {
    typedef Storage T;
    typedef float   A;
    enum { rare = 0 };

    DEVICE A partial(A x)
    {
        return canonical(x);
    }
    DEVICE A divide(A x, uint32_t divisor)
    {
        return x / (A)divisor;
    }
};

struct float16 : small_float<uint16_t> {
    DEVICE A up(T x)
    {
        return from_half(x);
    }
    DEVICE T down(A x)
    {
        return to_half(x);
    }
};

struct bfloat16 : small_float<uint16_t> {
    DEVICE A up(T x)
    {
        return float_of((uint32_t)x << 16);
    }
    DEVICE T down(A x)
    {
        return to_bfloat(x);
    }
};

/* No infinities: what lies above 464, half way from 448 to what would follow, is NaN. */
struct e4m3 : small_float<uint8_t> {
    DEVICE A up(T x)
    {
        const uint32_t magnitude = x & 0x7fu;

        return magnitude == 0x7f ? float_of(FLOAT_NAN) : widen<7>(magnitude << 20 | (x & 0x80u) << 24);
    }
    DEVICE T down(A x)
    {
        const uint32_t magnitude = bits_of(x) & ~FLOAT_SIGN;

        return magnitude > 0x43e80000u ? (T)0x7f : (T)(narrow<3, 7>(magnitude) | (bits_of(x) >> 24 & 0x80u));
    }
};

struct e5m2 : small_float<uint8_t> {
    DEVICE A up(T x)
    {
        return from_half((uint16_t)((uint32_t)x << 8)); /* it is the upper half of binary16 */
    }
    DEVICE T down(A x)
    {
        const uint32_t magnitude = bits_of(x) & ~FLOAT_SIGN;

        if (magnitude > FLOAT_INFINITY)
            return 0x7e;
        return (T)((magnitude >= 0x47800000u ? 0x7cu : narrow<2, 15>(magnitude)) | (bits_of(x) >> 24 & 0x80u));
    }
};

/* Sums and products modulo 2^bits: signed ones have the same bits. */
template <class Unsigned> struct integer {
    typedef Unsigned T;
    typedef Unsigned A;
    enum { rare = 0 };

    DEVICE A up(T x)
    {
        return x;
    }
    DEVICE T down(A x)
    {
        return x;
    }
    DEVICE A partial(A x)
    {
        return x;
    }
    DEVICE A divide(A x, uint32_t)
    {
        return x;
    }
};

/* Averages: an exact sum of 64 bits, divided at the end, towards zero. */
template <class Storage, class Sum> struct averaged {
    typedef Storage T;
    typedef Sum     A;
    enum { rare = 1 };

    DEVICE A up(T x)
    {
        return (A)x;
    }
    DEVICE T down(A x)
    {
        return (T)x;
    }
    DEVICE A partial(A x)
    {
        return x;
    }
    DEVICE A divide(A x, uint32_t divisor)
    {
        return x / (A)divisor;
    }
};

/* 128 bits, as two's complement; the layout of __int128. */
struct alignas(16) wide128 {
    uint64_t low, high;
};

DEVICE wide128 operator+(wide128 a, wide128 b)
{
    const uint64_t low = a.low + b.low;

    return wide128{low, a.high + b.high + (low < a.low)};
}

DEVICE wide128 operator-(wide128 a)
{
    return wide128{~a.low + 1, ~a.high + (a.low == 0)};
}

/* By school: 32 bits at a time, so every step is a division of 64 bits. */
DEVICE wide128 divided(wide128 x, uint32_t divisor)
{
    const uint32_t digit[4] = {(uint32_t)(x.high >> 32), (uint32_t)x.high, (uint32_t)(x.low >> 32), (uint32_t)x.low};
    uint64_t       rest = 0;
    uint32_t       q[4];

    UNROLL for (int i = 0; i < 4; i++)
    {
        const uint64_t part = rest << 32 | digit[i];

        q[i] = (uint32_t)(part / divisor);
        rest = part % divisor;
    }
    return wide128{(uint64_t)q[2] << 32 | q[3], (uint64_t)q[0] << 32 | q[1]};
}

template <class Storage, bool is_signed> struct averaged64 {
    typedef Storage T;
    typedef wide128 A;
    enum { rare = 1 };

    DEVICE A up(T x)
    {
        return wide128{(uint64_t)x, is_signed && x >> 63 ? ~UINT64_C(0) : 0};
    }
    DEVICE T down(A x)
    {
        return x.low;
    }
    DEVICE A partial(A x)
    {
        return x;
    }
    DEVICE A divide(A x, uint32_t divisor)
    {
        const bool negative = is_signed && x.high >> 63;
        const A    q        = divided(negative ? -x : x, divisor);

        return negative ? -q : q;
    }
};

typedef averaged<int8_t, int64_t>    average_int8;
typedef averaged<uint8_t, uint64_t>  average_uint8;
typedef averaged<int16_t, int64_t>   average_int16;
typedef averaged<uint16_t, uint64_t> average_uint16;
typedef averaged<int32_t, int64_t>   average_int32;
typedef averaged<uint32_t, uint64_t> average_uint32;
typedef averaged64<uint64_t, true>   average_int64;
typedef averaged64<uint64_t, false>  average_uint64;

/* ---- operators ----------------------------------------------------------------------------------------------------------------------- */

struct sum {
    enum { common = 1, divides = 0 }; /* common: worth a loop for each number of sources */

    template <class A> DEVICE A fold(A a, A b, uint64_t)
    {
        return (A)(a + b);
    }
};

/* A sum of its own, since division costs registers that the plain one needs for loads. */
struct mean : sum {
    enum { common = 0, divides = 1 };
};

struct prod {
    enum { common = 0, divides = 0 };

    template <class A> DEVICE A fold(A a, A b, uint64_t)
    {
        return (A)((A)(a * b));
    }
    DEVICE uint16_t fold(uint16_t a, uint16_t b, uint64_t)
    {
        return (uint16_t)((uint32_t)a * b); /* as int it would overflow */
    }
};

/* Minimum and maximum, signed and unsigned, of integers: the larger of both after the bits that `order` names are turned over. Of floats:
 * order 0 is the maximum, else the minimum; NaN wins, -0 is less than +0. */
struct extreme {
    enum { common = 0, divides = 0 };

    template <class A> DEVICE A fold(A a, A b, uint64_t order)
    {
        const A flip = (A)order, x = (A)(a ^ flip), y = (A)(b ^ flip);

        return x > y ? a : b;
    }
    DEVICE float fold(float a, float b, uint64_t order)
    {
        if (is_nan(a) || is_nan(b))
            return float_of(FLOAT_NAN);
        if (a == b) /* the same bits, but for zeros */
            return float_of(order ? bits_of(a) | bits_of(b) : bits_of(a) & bits_of(b));
        return (a > b) == !order ? a : b;
    }
    DEVICE double fold(double a, double b, uint64_t order)
    {
        if (is_nan(a) || is_nan(b))
            return canonical(is_nan(a) ? a : b);
        if (a == b)
            return double_of(order ? bits_of(a) | bits_of(b) : bits_of(a) & bits_of(b));
        return (a > b) == !order ? a : b;
    }
};

#endif
