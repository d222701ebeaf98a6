/* cuda_fp8.h -- the two 8-bit floats of OCP, rounded to nearest even; conversions saturate, as CUDA's constructors do. */
#ifndef FAKE_CUDA_FP8_H
#define FAKE_CUDA_FP8_H

#include "cuda_fp16.h"

#include <stdint.h>

#define __CUDA_FP8_TYPES_EXIST__

#ifdef __cplusplus
/* E exponent bits, M mantissa bits; LARGEST is the code of the largest finite number, NAN_CODE of a NaN. */
template<int E, int M, int LARGEST, int NAN_CODE> struct fake_cuda_fp8 {
    uint8_t __x;
    fake_cuda_fp8() = default;

    static double decode(int code)
    {
        const int bias = (1 << (E - 1)) - 1, exponent = code >> M & ((1 << E) - 1), mantissa = code & ((1 << M) - 1);

        return exponent ? std::ldexp((1 << M) + mantissa, exponent - bias - M) : std::ldexp(mantissa, 1 - bias - M);
    }
    explicit fake_cuda_fp8(double x)
    {
        const int    sign = std::signbit(x) ? 0x80 : 0;
        const double size = std::fabs(x);
        int          low = 0, high = LARGEST;

        if (x != x) {
            __x = static_cast<uint8_t>(NAN_CODE);
            return;
        }
        while (high - low > 1) { /* codes grow with what they mean */
            const int middle = (low + high) / 2;

            (decode(middle) <= size ? low : high) = middle;
        }
        if (decode(high) <= size)
            low = high;
        else if (size - decode(low) > decode(high) - size || (size - decode(low) == decode(high) - size && low & 1))
            low = high;
        __x = static_cast<uint8_t>(sign | low);
    }
    operator float() const
    {
        if ((__x & 0x7f) > LARGEST)
            return NAN_CODE == 0x7f && M == 3 ? NAN : (__x & ((1 << M) - 1)) ? NAN : __x & 0x80 ? -INFINITY : INFINITY;
        return static_cast<float>(__x & 0x80 ? -decode(__x & 0x7f) : decode(__x & 0x7f));
    }
};
typedef fake_cuda_fp8<4, 3, 0x7e, 0x7f> __nv_fp8_e4m3;
typedef fake_cuda_fp8<5, 2, 0x7b, 0x7f> __nv_fp8_e5m2;
#endif
#endif
