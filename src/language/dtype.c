/* dtype.c -- what a type and an operator are called and how wide they are, and the scalar conversions of the small floats.
 *
 * The conversions are written in integer arithmetic and one float addition that rounds for the subnormals, so they are exact
 * and the same everywhere; the vector forms in reduce_vector.h follow the same steps. */
#include "language/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    uint8_t     size, wide, average; /* bytes: the type, its partial sums, the partial sums of an average */
} types[HKT_TYPES] = {
    [HKT_INT8] = {"int8", 1, 1, 8},          [HKT_UINT8] = {"uint8", 1, 1, 8},
    [HKT_INT16] = {"int16", 2, 2, 8},        [HKT_UINT16] = {"uint16", 2, 2, 8},
    [HKT_INT32] = {"int32", 4, 4, 8},        [HKT_UINT32] = {"uint32", 4, 4, 8},
    [HKT_INT64] = {"int64", 8, 8, 16},       [HKT_UINT64] = {"uint64", 8, 8, 16},
    [HKT_FLOAT16] = {"float16", 2, 4, 4},    [HKT_BFLOAT16] = {"bfloat16", 2, 4, 4},
    [HKT_FLOAT32] = {"float32", 4, 4, 4},    [HKT_FLOAT64] = {"float64", 8, 8, 8},
    [HKT_FLOAT8_E4M3] = {"float8_e4m3", 1, 4, 4}, [HKT_FLOAT8_E5M2] = {"float8_e5m2", 1, 4, 4},
};

static const char *const operators[HKT_OPS] = {"sum", "prod", "min", "max", "avg"};

static bool valid(hkt_type_t type)
{
    return (unsigned)type < HKT_TYPES;
}

size_t hkt_type_size(hkt_type_t type)
{
    return valid(type) ? types[type].size : 0;
}

const char *hkt_type_name(hkt_type_t type)
{
    return valid(type) ? types[type].name : "?";
}

const char *hkt_op_name(hkt_op_t op)
{
    return (unsigned)op < HKT_OPS ? operators[op] : (int)op >= HKT_PREMUL_SUM ? "premul_sum" : "?";
}

size_t hkt_wide_size(hkt_type_t type, hkt_op_t op)
{
    return !valid(type) ? 0 : op == HKT_AVG ? types[type].average : types[type].wide;
}

static uint32_t bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

/* A small float is a sign, `exponent` bits and `mantissa` bits with bias 2^(exponent - 1) - 1. */
struct layout {
    int mantissa, bias;
};

static const struct layout float16 = {10, 15}, e4m3 = {3, 7}, e5m2 = {2, 15};

/* Of the magnitude; infinities and NaN are the caller's. */
static float decode(uint32_t magnitude, struct layout f)
{
    const int      shift = 23 - f.mantissa;
    const uint32_t least = (uint32_t)(128 - f.bias) << 23; /* the smallest normal number */

    if (magnitude >> f.mantissa)
        return float_of((magnitude << shift) + ((uint32_t)(127 - f.bias) << 23));
    return float_of((magnitude << shift) + least) - float_of(least); /* exact */
}

/* Of the magnitude; the result may lie beyond the largest finite number of the layout. */
static uint32_t encode(uint32_t magnitude, struct layout f)
{
    const int      shift = 23 - f.mantissa;
    const uint32_t least = (uint32_t)(128 - f.bias) << 23;
    const uint32_t magic = least + ((uint32_t)shift << 23); /* its unit in the last place is the smallest subnormal */

    if (magnitude < least)
        return bits_of(float_of(magnitude) + float_of(magic)) - magic;
    return ((magnitude + ((1u << (shift - 1)) - 1) + (magnitude >> shift & 1)) >> shift) -
           ((uint32_t)(127 - f.bias) << f.mantissa);
}

static float with_sign(float magnitude, uint32_t sign)
{
    return float_of(bits_of(magnitude) | sign);
}

enum { FLOAT32_INFINITY = 0x7f800000, FLOAT32_NAN = 0x7fc00000 };

float hkt_from_float16(uint16_t x)
{
    const uint32_t magnitude = x & 0x7fffu;

    if (magnitude > 0x7c00)
        return float_of(FLOAT32_NAN);
    return with_sign(magnitude == 0x7c00 ? float_of(FLOAT32_INFINITY) : decode(magnitude, float16), (x & 0x8000u) << 16);
}

uint16_t hkt_to_float16(float x)
{
    const uint32_t u = bits_of(x), magnitude = u & 0x7fffffff;
    uint32_t       code;

    if (magnitude > FLOAT32_INFINITY)
        return 0x7e00;
    code = magnitude >= 0x47800000 ? 0x7c00 : encode(magnitude, float16); /* 65536 and above */
    return (uint16_t)(code | (u >> 16 & 0x8000));
}

float hkt_from_bfloat16(uint16_t x)
{
    return (x & 0x7fff) > 0x7f80 ? float_of(FLOAT32_NAN) : float_of((uint32_t)x << 16);
}

uint16_t hkt_to_bfloat16(float x)
{
    const uint32_t u = bits_of(x);

    return (u & 0x7fffffff) > FLOAT32_INFINITY ? 0x7fc0 : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float hkt_from_e4m3(uint8_t x)
{
    const uint32_t magnitude = x & 0x7fu;

    return magnitude == 0x7f ? float_of(FLOAT32_NAN) : with_sign(decode(magnitude, e4m3), (x & 0x80u) << 24);
}

uint8_t hkt_to_e4m3(float x)
{
    const uint32_t u = bits_of(x), magnitude = u & 0x7fffffff;

    if (magnitude > 0x43e80000) /* 464: half way from 448, the largest, to what would follow; the tie goes to 448 */
        return 0x7f;
    return (uint8_t)(encode(magnitude, e4m3) | (u >> 24 & 0x80));
}

float hkt_from_e5m2(uint8_t x)
{
    return hkt_from_float16((uint16_t)(x << 8)); /* it is the upper half of binary16 */
}

uint8_t hkt_to_e5m2(float x)
{
    const uint32_t u = bits_of(x), magnitude = u & 0x7fffffff;
    uint32_t       code;

    if (magnitude > FLOAT32_INFINITY)
        return 0x7e;
    code = magnitude >= 0x47800000 ? 0x7c : encode(magnitude, e5m2);
    return (uint8_t)(code | (u >> 24 & 0x80));
}
