/* tensor.h -- layers split over ranks, with sequence-parallel regions. A part of hocket_train.h, whose conventions hold. */
#ifndef HOCKET_TRAIN_TENSOR_H
#define HOCKET_TRAIN_TENSOR_H

#include <hocket.h>
#include <hocket_train/ledger.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A layer is split over the n ranks of a tensor-parallel group as Megatron-LM does (Shoeybi et al. 2019; Korthikanti et al. 2022):
 * a column layer holds outputs / n rows of its weight and a row layer inputs / n columns, so that an MLP or an attention block
 * needs one reduction forward and one backward. With `sequence`, what lies between the blocks is split by rows (tokens): rank r
 * holds rows r * rows / n to (r + 1) * rows / n, and each reduction becomes a reduce-scatter and an all-gather.
 *
 * All functions that take the handle are collective over its ranks and finish before they return. Activations are dense
 * (rows, columns), of the type in the configuration; gradients of weights are fp32. Memory that the handle communicates is
 * read in place when it came from hkt_mem_alloc(). */
typedef struct hkt_tensor hkt_tensor_t;

/* A view of a matrix for the product that the caller brings. */
typedef struct {
    void      *data;
    size_t     rows, cols; /* as the product sees them */
    size_t     stride;     /* elements from one row in memory to the next */
    bool       transposed; /* memory holds cols x rows */
    hkt_type_t type;
} hkt_view_t;

/* c = a b, or c += a b where `keep`. c is not transposed. Returns HKT_OK or an error that the layer passes on. */
typedef int (*hkt_product_t)(hkt_view_t c, hkt_view_t a, hkt_view_t b, bool keep, void *arg);

typedef struct {
    size_t        size;     /* sizeof(hkt_tensor_config_t), set by HKT_TENSOR_CONFIG_INIT */
    hkt_comm_t   *comm;     /* of the group; the caller's; NULL: one rank */
    hkt_type_t    type;     /* of activations and weights: HKT_FLOAT32 or HKT_BFLOAT16 */
    bool          sequence; /* sequence parallel */
    bool          overlap;  /* communicate beside the product of the weight gradient */
    int           slices;   /* 0, or a power of two: every sum over a dimension that is split is then a fixed tree over this many
                             * slices, so that the group's size (a power of two that divides it) never changes a bit; fp32 only */
    hkt_product_t product;
    void         *arg;      /* of product */
    hkt_ledger_t *ledger;   /* scratch is taken from it, as HKT_BYTES_COMMUNICATION; NULL: not counted */
} hkt_tensor_config_t;
#define HKT_TENSOR_CONFIG_INIT { sizeof(hkt_tensor_config_t), NULL, HKT_FLOAT32, false, true, 0, NULL, NULL, NULL }

/* Not collective. Scratch grows in the first calls to the largest layer, and never again. */
HKT_API int hkt_tensor_create(hkt_tensor_t **tensor, const hkt_tensor_config_t *config);
HKT_API int hkt_tensor_destroy(hkt_tensor_t *tensor); /* NULL is allowed */

/* The mappings between what is split and what is whole; the backward of each is the forward of its partner. rows and cols are
 * those of the whole, and are divisible by n where they are split. in and out may be the same where nothing changes shape.
 *
 *   region             forward                        backward                        */
typedef enum {
    HKT_REGION_COPY = 0,        /* the same                       sum over the ranks              */
    HKT_REGION_REDUCE,          /* sum over the ranks             the same                        */
    HKT_REGION_SCATTER,         /* own columns                    columns of all                  */
    HKT_REGION_GATHER,          /* columns of all                 own columns                     */
    HKT_REGION_SEQUENCE_SPLIT,  /* own rows                       rows of all                     */
    HKT_REGION_SEQUENCE_JOIN,   /* rows of all                    own rows                        */
    HKT_REGION_SEQUENCE_GATHER, /* rows of all                    own rows of the sum             */
    HKT_REGION_SEQUENCE_REDUCE, /* own rows of the sum            rows of all                     */
    HKT_REGIONS
} hkt_region_t;
HKT_API int hkt_region_forward(void *out, const void *in, size_t rows, size_t cols, hkt_region_t region, hkt_tensor_t *tensor);
HKT_API int hkt_region_backward(void *din, const void *dout, size_t rows, size_t cols, hkt_region_t region,
                                hkt_tensor_t *tensor);

/* One linear layer, y = x weight^T. A bias is the caller's: added to the own outputs of a column layer, and once, after the sum,
 * to those of a row layer. */
typedef struct {
    size_t      rows, inputs, outputs; /* of the whole layer, all ranks together */
    const void *weight;                /* own slice: column (outputs / n, inputs); row (outputs, inputs / n) */
    float      *gradient;              /* of the own slice; may be NULL in backward */
    bool        keep;                  /* add to gradient instead of overwriting it */
} hkt_linear_t;

/* Column: x (rows, inputs), or the own rows with `sequence` -> y (rows, outputs / n). Backward: dx as x; x as in forward. With dx NULL
 * only the gradient of the weight is computed, with gradient NULL only dx (zero-bubble pipelines do both by turns). */
HKT_API int hkt_column_forward(void *y, const void *x, const hkt_linear_t *linear, hkt_tensor_t *tensor);
HKT_API int hkt_column_backward(void *dx, const void *dy, const void *x, const hkt_linear_t *linear, hkt_tensor_t *tensor);

/* Row: x (rows, inputs / n) -> y (rows, outputs), or the own rows with `sequence`. */
HKT_API int hkt_row_forward(void *y, const void *x, const hkt_linear_t *linear, hkt_tensor_t *tensor);
HKT_API int hkt_row_backward(void *dx, const void *dy, const void *x, const hkt_linear_t *linear, hkt_tensor_t *tensor);

/* The vocabulary is split by rows of its table. `padded` is a multiple of n (and of slices); what lies beyond `size` is never
 * chosen and has no chance. */
typedef struct {
    size_t size, padded;
    size_t width; /* of the table */
    size_t rows;  /* tokens at hand */
} hkt_vocabulary_t;

/* y (rows, width), or the own rows with `sequence`, = table[token]; table is (padded / n, width). HKT_ERR_ARGUMENT names the row
 * of a token that is none. Backward adds dy to dtable. */
HKT_API int hkt_embedding_forward(void *y, const void *table, const int32_t *token, const hkt_vocabulary_t *vocabulary,
                                  hkt_tensor_t *tensor);
HKT_API int hkt_embedding_backward(float *dtable, const void *dy, const int32_t *token, const hkt_vocabulary_t *vocabulary,
                                   hkt_tensor_t *tensor);

/* Cross entropy of the logits (rows, padded / n), fp32, against target (rows), in place: logits become scale times their gradient.
 * loss = sum over rows of weight * ((1 - smoothing) * -log p(target) + smoothing * mean over the vocabulary of -log p). Three small
 * reductions travel in two calls: the largest logit, then sums. weight NULL: 1; a row of weight 0 needs no target. NaN stays NaN. */
HKT_API int hkt_cross_entropy(double *loss, float *logits, const int32_t *target, const float *weight, float smoothing,
                              float scale, const hkt_vocabulary_t *vocabulary, hkt_tensor_t *tensor);

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_TENSOR_H */
