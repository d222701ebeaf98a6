/* codec_block.h -- a scale for each block of a tile: what fp8, the integers and the signs have in common; included by
 * codec_table.c only. */
#ifndef PARALLEL_CODEC_BLOCK_H
#define PARALLEL_CODEC_BLOCK_H

#include "codec_numbers.h"

/* The first option of every codec with blocks, so that value[0] is the block. */
#define OPTION_BLOCK(normal)                                                                                           \
    {                                                                                                                  \
        "block", CODEC_POWER, CODEC_GROUP, CODEC_TILE, normal,                                                         \
            "elements that share a scale, a power of two, 64 to 2048 (" #normal ")"                                    \
    }

/* x is step * code, code is x * inverse. */
struct scale {
    float   step, inverse;
    int32_t levels;
};

INLINE size_t blocks_of(size_t count, const double *value)
{
    const size_t block = (size_t)value[0];

    return (count + block - 1) / block;
}

/* Takes a block whose largest magnitude has the bits `most` to -levels .. levels. Not a number: the step is NaN, which
 * is how NaN and infinity reach the other side. Tiny: all zero, as levels / most would be infinite. */
INLINE struct scale scale_of(uint32_t most, int levels)
{
    const float m = float_of(most), whole = (float)levels;

    if (most >= infinity_bits)
        return (struct scale){float_of(nan_bits), 0, levels};
    if (m < 1e-35f)
        return (struct scale){0, 0, levels};
    return (struct scale){(m < 3.4e38f ? m : 3.4e38f) / whole, whole / m, levels}; /* step * levels is no infinity */
}

#endif
