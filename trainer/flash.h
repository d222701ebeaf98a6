/* flash.h -- blocked attention of queries to keys, forward and backward: causal, with documents that do not see each
 * other, ALiBi and dropout; memory beside input and output is a number per row and head, and tiles.
 */
#ifndef TRAINER_FLASH_H
#define TRAINER_FLASH_H

#include "kernels.h"

#include <hocket_train.h>

enum { FLASH_ROWS = 64, FLASH_COLS = 256 }; /* queries and keys of a tile */

/* What decides which keys a query sees, beside its place: it sees none behind it. */
struct flash {
    int            length;  /* rows of a sequence on this rank */
    const int32_t *start;   /* (B, length): the first key that a row sees, never falling; NULL: 0 */
    const float   *slope;   /* (heads): ALiBi; NULL: none */
    struct dropout dropout; /* below 0: none */
    /* Where the masks come from: element ((head * span + query) * span + key) of the stream of each sequence. */
    const hkt_random_t *random; /* (B); NULL: no dropout */
    int                 first_head, span;
};

/* Floats of scratch that both passes need for a crew of `threads`. */
size_t flash_scratch(size_t threads);

/* The shapes are those of context parallelism in hocket_train.h. Heads of keys are shared by the threads of the
 * caller's crew. */
void flash_forward(const hkt_attention_t *a, const struct flash *f, float *scratch);
/* Adds to the gradients; out and log_sum are those of all keys. */
void flash_backward(const hkt_attention_gradient_t *g, const hkt_attention_t *a, const struct flash *f, float *scratch);

#endif
