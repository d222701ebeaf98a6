/* flash.h -- blocked self-attention, forward and backward: causal, with documents that do not see each other, ALiBi and
 * dropout; memory beside input and output is a number per row and head, and tiles.
 */
#ifndef TRAINER_FLASH_H
#define TRAINER_FLASH_H

#include "kernels.h"

#include <hocket_train.h>

enum { FLASH_ROWS = 64, FLASH_COLS = 256 }; /* queries and keys of a tile */

/* B sequences of T rows; this rank's heads of D floats each. */
struct flash {
    int            batch, length, heads, size; /* B, T, heads, D */
    const float   *qkv;                        /* (B,T, heads, 3, D): queries, keys, values of a head side by side */
    float         *mixed;                      /* (B,T, heads, D) */
    float         *log_sum;                    /* (heads, B,T), written forward */
    const int32_t *start;                      /* (B,T): the first key that a row sees, never falling; NULL: 0 */
    const float   *slope;                      /* (heads): ALiBi; NULL: none */
    struct dropout dropout;                    /* below 0: none */
    /* Where the masks come from: element ((head * span + query) * span + key) of the stream of each sequence. */
    const hkt_random_t *random; /* (B); NULL: no dropout */
    int                 first_head, span;
};

/* Floats of scratch that both passes need for a crew of `threads`. */
size_t flash_scratch(size_t threads);

/* Heads are shared by the threads of the caller's crew. */
void flash_forward(const struct flash *f, float *scratch);
/* dmixed -> dqkv, shaped as mixed and qkv. */
void flash_backward(float *dqkv, const float *dmixed, const struct flash *f, float *scratch);

#endif
