/* checkpoint_convert.c -- elements of a checkpoint in another float type than they were saved in, so that a bf16 run
 * goes on in fp32 and the other way round. Through fp32, to which each of the three converts exactly, and from there
 * rounded to nearest even, once. Not fast: a checkpoint is read once.
 */
#include "parallel/checkpoint.h"

#include <math.h>
#include <string.h>

static float from_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint32_t to_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float half_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;

    if (exponent == 31)
        return from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0)
        return from_bits(sign | to_bits((float)fraction * 0x1p-24f));
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static uint16_t half_from_float(float x)
{
    const uint32_t sign = to_bits(x) >> 16 & 0x8000;
    const float    size = fabsf(x);

    if (isnan(x))
        return (uint16_t)(sign | 0x7e00);
    if (size >= 65520.0f)
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x1p-14f) /* subnormal: the sum's last place is 2^-24, so the addition rounds */
        return (uint16_t)(sign | (to_bits(size + 0.5f) - to_bits(0.5f)));

    const uint32_t bits = to_bits(size) - (112u << 23);

    return (uint16_t)(sign | (bits + 0xfff + (bits >> 13 & 1)) >> 13);
}

static uint16_t bfloat_from_float(float x)
{
    const uint32_t bits = to_bits(x);

    if (isnan(x))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float load(const void *from, hkt_type_t type, size_t i)
{
    uint16_t h;

    if (type == HKT_FLOAT32) {
        float x;

        memcpy(&x, (const char *)from + 4 * i, sizeof(x));
        return x;
    }
    memcpy(&h, (const char *)from + 2 * i, sizeof(h));
    return type == HKT_BFLOAT16 ? from_bits((uint32_t)h << 16) : half_to_float(h);
}

static void store(void *to, hkt_type_t type, size_t i, float x)
{
    if (type == HKT_FLOAT32) {
        memcpy((char *)to + 4 * i, &x, sizeof(x));
    } else {
        const uint16_t h = type == HKT_BFLOAT16 ? bfloat_from_float(x) : half_from_float(x);

        memcpy((char *)to + 2 * i, &h, sizeof(h));
    }
}

static bool is_float(hkt_type_t type)
{
    return type == HKT_FLOAT32 || type == HKT_BFLOAT16 || type == HKT_FLOAT16;
}

bool piece_convertible(hkt_type_t to, hkt_type_t from)
{
    return to == from || (is_float(to) && is_float(from));
}

int hkt_convert(void *to, hkt_type_t to_type, const void *from, hkt_type_t from_type, size_t count)
{
    if (!piece_convertible(to_type, from_type) || !hkt_type_size(to_type))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "%s cannot be converted to %s; float32, bfloat16 and float16 can, into one another",
                             hkt_type_name(from_type), hkt_type_name(to_type));
    if (to_type == from_type && count)
        memcpy(to, from, count * hkt_type_size(to_type));
    for (size_t i = 0; i < count && to_type != from_type; i++)
        store(to, to_type, i, load(from, from_type, i));
    return HKT_OK;
}
