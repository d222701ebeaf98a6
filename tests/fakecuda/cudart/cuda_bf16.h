/* cuda_bf16.h -- bfloat16: the upper half of a float, rounded to nearest even. */
#ifndef FAKE_CUDA_BF16_H
#define FAKE_CUDA_BF16_H

#include "cuda_runtime.h"

#include <stdint.h>

#define __CUDA_BF16_TYPES_EXIST__

#ifdef __cplusplus
struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    /* From a double at once, so that nothing is rounded twice: the float between is rounded to odd. */
    __nv_bfloat16(double x)
    {
        float    f = static_cast<float>(x);
        uint32_t u;

        if (f != x && !(x != x)) { /* to odd: not to the even one of two neighbours */
            std::memcpy(&u, &f, 4);
            if (!(u & 1)) {
                f = std::nextafter(f, f < x ? INFINITY : -INFINITY);
            }
        }
        std::memcpy(&u, &f, 4);
        if (x != x)
            bits = 0x7fff;
        else
            bits = static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    operator float() const
    {
        uint32_t u = static_cast<uint32_t>(bits) << 16;
        float    f;

        std::memcpy(&f, &u, 4);
        return f;
    }
};

inline float         __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
#endif
#endif
