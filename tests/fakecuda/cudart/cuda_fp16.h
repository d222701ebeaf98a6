/* cuda_fp16.h -- half precision, by the compiler's own type. */
#ifndef FAKE_CUDA_FP16_H
#define FAKE_CUDA_FP16_H

#include "cuda_runtime.h"

#ifdef __cplusplus
struct __half {
    _Float16 value;
    __half() = default;
    template<class T> __half(T x) : value(static_cast<_Float16>(x)) {}
    operator float() const { return static_cast<float>(value); }
};
typedef __half half;

inline float  __half2float(__half x) { return x; }
inline __half __float2half(float x) { return __half(x); }
inline __half __double2half(double x) { return __half(x); }
inline __half __ull2half_rn(unsigned long long x) { return __half(x); }
#endif
#endif
