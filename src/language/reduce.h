/* reduce.h -- between the dispatch (reduce.c) and the kernels, which are compiled once per instruction set. */
#ifndef HKT_REDUCE_H
#define HKT_REDUCE_H

#include "language/dtype.h"

enum { HKT_PREMUL = HKT_OPS, HKT_KERNEL_OPS }; /* the row of every HKT_PREMUL_SUM handle */

struct hkt_copy {
    const char  *src;
    void *const *dst;
    size_t       bytes;
    uint32_t     ndst;
    bool         stream;
};

struct hkt_kernels {
    hkt_reduce_fn *reduce[HKT_TYPES][HKT_KERNEL_OPS];
    void (*copy)(const struct hkt_copy *c);
};

extern const struct hkt_kernels hkt_kernels_portable;
#if defined(__x86_64__)
extern const struct hkt_kernels hkt_kernels_avx2, hkt_kernels_avx512;
#endif

#endif
