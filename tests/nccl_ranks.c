/* nccl_ranks.c -- see nccl_ranks.h. */
#include "nccl_ranks.h"

#include <math.h>
#include <string.h>

const size_t nccl_bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

void nccl_said(const char *text)
{
    expect(strstr(ncclGetLastError(NULL), text), "the last error does not say '%s': %s", text, ncclGetLastError(NULL));
}

ncclComm_t nccl_join(const struct rank *me)
{
    ncclUniqueId id;
    ncclComm_t   comm;

    memcpy(&id, me->id, sizeof(id));
    nccl_ok(ncclCommInitRank(&comm, me->n, id, me->rank));
    return comm;
}

ncclResult_t nccl_settled(ncclComm_t comm, double seconds)
{
    const double until = now() + seconds;
    ncclResult_t state;

    do {
        nccl_ok(ncclCommGetAsyncError(comm, &state));
        if (state == ncclInProgress)
            pause_ms(1);
    } while (state == ncclInProgress && now() < until);
    return state;
}

/* Bits of a small whole number in a float with so many exponent and mantissa bits. */
static uint32_t encode(double value, int exponent_bits, int mantissa_bits)
{
    const int      bias = (1 << (exponent_bits - 1)) - 1;
    const uint32_t sign = value < 0 ? 1u << (exponent_bits + mantissa_bits) : 0;
    int            exponent;
    double         fraction;

    if (value == 0)
        return 0;
    fraction = frexp(fabs(value), &exponent); /* 0.5 to 1 */
    return sign | (uint32_t)(exponent - 1 + bias) << mantissa_bits | (uint32_t)ldexp(2 * fraction - 1, mantissa_bits);
}

static double decode(uint32_t bits, int exponent_bits, int mantissa_bits)
{
    const int    exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const double mantissa = bits & ((1u << mantissa_bits) - 1);
    const double sign     = bits >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1;

    return exponent || mantissa ? sign * ldexp(1 + ldexp(mantissa, -mantissa_bits), exponent - (1 << (exponent_bits - 1)) + 1) : 0;
}

void nccl_put(void *buffer, size_t index, ncclDataType_t type, double value)
{
    union {
        int8_t i8; uint8_t u8; int32_t i32; uint32_t u32; int64_t i64; uint64_t u64; uint16_t u16; float f32; double f64;
    } x;

    switch (type) {
    case ncclInt8: x.i8 = (int8_t)value; break;
    case ncclUint8: x.u8 = (uint8_t)value; break;
    case ncclInt32: x.i32 = (int32_t)value; break;
    case ncclUint32: x.u32 = (uint32_t)value; break;
    case ncclInt64: x.i64 = (int64_t)value; break;
    case ncclUint64: x.u64 = (uint64_t)value; break;
    case ncclFloat16: x.u16 = (uint16_t)encode(value, 5, 10); break;
    case ncclFloat32: x.f32 = (float)value; break;
    case ncclFloat64: x.f64 = value; break;
    case ncclBfloat16: x.u16 = (uint16_t)encode(value, 8, 7); break;
    case ncclFloat8e4m3: x.u8 = (uint8_t)encode(value, 4, 3); break;
    case ncclFloat8e5m2: x.u8 = (uint8_t)encode(value, 5, 2); break;
    default: return;
    }
    memcpy((char *)buffer + index * nccl_bytes[type], &x, nccl_bytes[type]);
}

double nccl_get(const void *buffer, size_t index, ncclDataType_t type)
{
    union {
        int8_t i8; uint8_t u8; int32_t i32; uint32_t u32; int64_t i64; uint64_t u64; uint16_t u16; float f32; double f64;
    } x;

    memcpy(&x, (const char *)buffer + index * nccl_bytes[type], nccl_bytes[type]);
    switch (type) {
    case ncclInt8: return x.i8;
    case ncclUint8: return x.u8;
    case ncclInt32: return x.i32;
    case ncclUint32: return x.u32;
    case ncclInt64: return (double)x.i64;
    case ncclUint64: return (double)x.u64;
    case ncclFloat16: return decode(x.u16, 5, 10);
    case ncclFloat32: return x.f32;
    case ncclFloat64: return x.f64;
    case ncclBfloat16: return decode(x.u16, 8, 7);
    case ncclFloat8e4m3: return decode(x.u8, 4, 3);
    case ncclFloat8e5m2: return decode(x.u8, 5, 2);
    default: return NAN;
    }
}
