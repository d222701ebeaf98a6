/* kernel.c -- the table from type and operator to a kernel's name, and the two numbers that go with them. */
#include "device/kernels/kernel.h"

#include <math.h>
#include <string.h>

#include "device/kernels/list.h"

struct names {
    const char *move, *low;
};

#define NAMES(op, type) {"hkt_move_" #op "_" #type, "hkt_low_" #op "_" #type}

/* One type: the kernels of its width, and that of its average. */
#define ROW(type, own)                                                                                                                     \
    {                                                                                                                                      \
        [HKT_SUM] = NAMES(sum, type), [HKT_PROD] = NAMES(prod, type), [HKT_MIN] = NAMES(extreme, type), [HKT_MAX] = NAMES(extreme, type),  \
        [HKT_AVG] = NAMES(average, own), [HKT_OPS] = NAMES(premul, type),                                                                  \
    }

static const struct names table[HKT_TYPES][HKT_OPS + 1] = {
    [HKT_INT8]        = ROW(uint8, int8),
    [HKT_UINT8]       = ROW(uint8, uint8),
    [HKT_INT16]       = ROW(uint16, int16),
    [HKT_UINT16]      = ROW(uint16, uint16),
    [HKT_INT32]       = ROW(uint32, int32),
    [HKT_UINT32]      = ROW(uint32, uint32),
    [HKT_INT64]       = ROW(uint64, int64),
    [HKT_UINT64]      = ROW(uint64, uint64),
    [HKT_FLOAT16]     = ROW(float16, float16),
    [HKT_BFLOAT16]    = ROW(bfloat16, bfloat16),
    [HKT_FLOAT32]     = ROW(float32, float32),
    [HKT_FLOAT64]     = ROW(float64, float64),
    [HKT_FLOAT8_E4M3] = ROW(float8_e4m3, float8_e4m3),
    [HKT_FLOAT8_E5M2] = ROW(float8_e5m2, float8_e5m2),
};

const char *const hkt_kernel_names[] = {
#define BOTH(type, op, E, fold, scales) "hkt_move_" #op "_" #type, "hkt_low_" #op "_" #type,
    HKT_KERNELS(BOTH) HKT_KERNEL_COPY,
#undef BOTH
    NULL,
};

static const struct names *names_of(hkt_type_t type, hkt_op_t op)
{
    return &table[type][(unsigned)op < HKT_OPS ? (int)op : HKT_OPS];
}

const char *hkt_kernel_move(hkt_type_t type, hkt_op_t op)
{
    return names_of(type, op)->move;
}

const char *hkt_kernel_low(hkt_type_t type, hkt_op_t op)
{
    return names_of(type, op)->low;
}

static bool is_signed(hkt_type_t type)
{
    return type == HKT_INT8 || type == HKT_INT16 || type == HKT_INT32 || type == HKT_INT64;
}

static bool is_float(hkt_type_t type)
{
    return type >= HKT_FLOAT16;
}

/* Integers: the bits to turn over before the larger one is taken as unsigned: the sign, for signed types; all, for the minimum. */
uint64_t hkt_kernel_order(hkt_type_t type, hkt_op_t op)
{
    const unsigned bits = 8 * (unsigned)hkt_type_size(type);
    const uint64_t sign = is_signed(type) ? (uint64_t)1 << (bits - 1) : 0, all = bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;

    if (op != HKT_MIN && op != HKT_MAX)
        return 0;
    if (is_float(type))
        return op == HKT_MIN;
    return op == HKT_MIN ? all ^ sign : sign;
}

/* Towards zero, modulo 2^64, which is right for every narrower integer too. */
static uint64_t whole(double x)
{
    double rest;

    if (!isfinite(x))
        return 0;
    rest = fmod(trunc(x), 0x1p64);
    return rest < 0 ? 0 - (uint64_t)-rest : (uint64_t)rest;
}

uint64_t hkt_kernel_scale(hkt_type_t type, double scalar)
{
    const float narrow = (float)scalar;
    uint64_t    bits   = 0;

    if (!is_float(type))
        return whole(scalar);
    if (type == HKT_FLOAT64)
        memcpy(&bits, &scalar, sizeof(scalar));
    else
        memcpy(&bits, &narrow, sizeof(narrow)); /* little-endian: the low half */
    return bits;
}
