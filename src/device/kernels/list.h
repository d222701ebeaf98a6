/* list.h -- all kernels that fold: X(type, operator, element type, fold, scaled). Types of one width share a kernel where their bits come
 * out alike: signed and unsigned sums and products, the four extremes of a width. Each list is a file of its own for the compiler, so that
 * they are compiled side by side. Included by kernels and by the host. */
#ifndef HKT_DEVICE_LIST_H
#define HKT_DEVICE_LIST_H

#define HKT_KERNELS_OF(X, type, E)                                                                                                         \
    X(type, sum, E, sum, false)                                                                                                            \
    X(type, prod, E, prod, false)                                                                                                          \
    X(type, extreme, E, extreme, false)                                                                                                    \
    X(type, premul, E, sum, true)

#define HKT_KERNELS_INTEGER(X)                                                                                                             \
    HKT_KERNELS_OF(X, uint8, integer<uint8_t>)                                                                                             \
    HKT_KERNELS_OF(X, uint16, integer<uint16_t>)                                                                                           \
    HKT_KERNELS_OF(X, uint32, integer<uint32_t>)                                                                                           \
    HKT_KERNELS_OF(X, uint64, integer<uint64_t>)
#define HKT_KERNELS_OF_FLOAT(X, type, E)                                                                                                   \
    HKT_KERNELS_OF(X, type, E)                                                                                                             \
    X(type, average, E, mean, false)

#define HKT_KERNELS_FLOAT(X)                                                                                                               \
    HKT_KERNELS_OF_FLOAT(X, float32, float32)                                                                                              \
    HKT_KERNELS_OF_FLOAT(X, float64, float64)
#define HKT_KERNELS_HALF(X)                                                                                                                \
    HKT_KERNELS_OF_FLOAT(X, float16, float16)                                                                                              \
    HKT_KERNELS_OF_FLOAT(X, bfloat16, bfloat16)
#define HKT_KERNELS_QUARTER(X)                                                                                                             \
    HKT_KERNELS_OF_FLOAT(X, float8_e4m3, e4m3)                                                                                             \
    HKT_KERNELS_OF_FLOAT(X, float8_e5m2, e5m2)

#define HKT_KERNELS_AVERAGE(X)                                                                                                             \
    X(int8, average, average_int8, mean, false)                                                                                            \
    X(uint8, average, average_uint8, mean, false)                                                                                          \
    X(int16, average, average_int16, mean, false)                                                                                          \
    X(uint16, average, average_uint16, mean, false)                                                                                        \
    X(int32, average, average_int32, mean, false)                                                                                          \
    X(uint32, average, average_uint32, mean, false)                                                                                        \
    X(int64, average, average_int64, mean, false)                                                                                          \
    X(uint64, average, average_uint64, mean, false)

#define HKT_KERNELS(X)                                                                                                                     \
    HKT_KERNELS_INTEGER(X)                                                                                                                 \
    HKT_KERNELS_FLOAT(X)                                                                                                                   \
    HKT_KERNELS_HALF(X)                                                                                                                    \
    HKT_KERNELS_QUARTER(X)                                                                                                                 \
    HKT_KERNELS_AVERAGE(X)

#endif
