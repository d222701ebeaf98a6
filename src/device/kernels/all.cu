/* all.cu -- every kernel, for nvcc: a driver takes one image for each architecture. */
#include "device/kernels/compress.cu"
#include "device/kernels/copy.cu"
#include "device/kernels/low.h"
#include "device/kernels/list.h"
#include "device/kernels/move.h"

#define BOTH(type, op, E, fold, scales)                                                                                                    \
    MOVE(op##_##type, E, fold, scales)                                                                                                     \
    LOW(op##_##type, E, fold, scales)

HKT_KERNELS(BOTH)
