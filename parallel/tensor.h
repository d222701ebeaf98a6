/* tensor.h -- what the files of tensor and sequence parallelism share: the handle and its communication. */
#ifndef PARALLEL_TENSOR_H
#define PARALLEL_TENSOR_H

#include "common.h"

enum tensor_scratch {
    SCRATCH_GATHERED, /* rows of all ranks */
    SCRATCH_PARTIAL,  /* what is to be reduced into own rows */
    SCRATCH_SUMS,     /* per row: what the cross entropy sums */
    SCRATCH_TREE,     /* the right halves of a sum over slices: this one and the TREE_LEVELS - 1 behind it */
    TREE_LEVELS = 16,
    SCRATCHES   = SCRATCH_TREE + TREE_LEVELS
};

struct hkt_tensor {
    hkt_tensor_config_t config;
    int                 n, me;
    size_t              element;      /* bytes of an activation */
    size_t              local_slices; /* of this rank, at least 1 */
    hkt_stream_t       *stream;       /* NULL without overlap */
    void               *scratch[SCRATCHES];
    size_t              scratch_bytes[SCRATCHES];
};

/* *memory = scratch of at least `bytes`; what it held is lost when it grows. */
int tensor_scratch(void **memory, size_t bytes, enum tensor_scratch which, struct hkt_tensor *t);

/* Rows that this rank holds outside of the split layers. */
static inline size_t tensor_own_rows(size_t rows, const struct hkt_tensor *t)
{
    return t->config.sequence ? rows / (size_t)t->n : rows;
}

/* Collectives on activations; nothing at all for one rank, where out and in must be the same or are copied. `stream`
 * NULL: at once; else wait with tensor_wait(). */
int tensor_all_reduce(void *x, size_t count, hkt_stream_t *stream, struct hkt_tensor *t);
int tensor_gather_rows(void *all, const void *own, size_t count_all, hkt_stream_t *stream, struct hkt_tensor *t);
int tensor_reduce_rows(void *own, const void *all, size_t count_all, hkt_stream_t *stream, struct hkt_tensor *t);
int tensor_wait(struct hkt_tensor *t);

/* HKT_ERR_ARGUMENT unless `value`, named `what`, is a multiple of the group's size (and of slices). */
int tensor_divides(const char *what, size_t value, const struct hkt_tensor *t);

#endif
