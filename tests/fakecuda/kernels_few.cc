/* kernels_few.cc -- those kernels that test_kernels_ranks uses for its scenes, for builds that are made again and again. */
#include "device/kernels/copy.cu"
#include "device/kernels/low.h"
#include "device/kernels/move.h"

#define BOTH(name, E, fold)                                                                                                                \
    MOVE(name, E, fold, false)                                                                                                             \
    LOW(name, E, fold, false)

BOTH(sum_float32, float32, sum)
BOTH(average_float32, float32, mean)
BOTH(extreme_float32, float32, extreme)
BOTH(sum_bfloat16, bfloat16, sum)
BOTH(average_bfloat16, bfloat16, mean)
BOTH(sum_uint8, integer<uint8_t>, sum)
BOTH(extreme_uint8, integer<uint8_t>, extreme)
