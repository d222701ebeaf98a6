/* fold_average.cu -- the kernels of one list of list.h. */
#include "device/kernels/list.h"
#include "device/kernels/low.h"
#include "device/kernels/move.h"

#define BOTH(type, op, E, fold, scales)                                                                                                    \
    MOVE(op##_##type, E, fold, scales)                                                                                                     \
    LOW(op##_##type, E, fold, scales)

HKT_KERNELS_AVERAGE(BOTH)
