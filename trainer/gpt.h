/* gpt.h -- a GPT as one rank holds it: a run of its layers (all of them, or those of one pipeline stage or chunk), of
 * which tensor parallelism leaves it a part, for several micro-batches at a time.
 *
 * Letters in shapes: B sequences, T positions, R = B T rows (tokens), C width, H heads, F width of the MLP, V
 * vocabulary, n tensor-parallel ranks, c context-parallel ones. All matrices are row-major fp32; a linear layer keeps
 * its weight as (outputs, inputs). With sequence parallelism what lies between the blocks is held as R / n own rows on
 * each rank. With context parallelism a rank has T / c rows of every sequence, hkt_context_place() says which, and that
 * is its T.
 *
 * Whatever is drawn (weights, dropout) is a function of global coordinates; so layouts, recomputation and resuming
 * never change it. All functions return HKT_OK or a negative error with its sentence in hkt_last_error(). Those that
 * run passes are collective over the tensor-parallel and the context-parallel group.
 */
#ifndef TRAINER_GPT_H
#define TRAINER_GPT_H

#include "kernels.h"

#include <hocket_train.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gpt_positions { GPT_LEARNED, GPT_ROTARY, GPT_ALIBI };

/* What is computed again in backward instead of being kept: nothing; what is cheap (norms, the activation; attention
 * scores are never kept); everything but each layer's input. */
enum gpt_recompute { GPT_NONE, GPT_SELECTIVE, GPT_FULL };

struct gpt_shape {
    int                layers, width, heads, mlp; /* L, C, H, F */
    int                groups;             /* of heads that share keys and values; 0: H, every head has its own */
    int                length;             /* largest T */
    int                vocabulary, padded; /* V; padded: a multiple of n (and of slices) */
    enum gpt_positions positions;
    bool               embedding_norm; /* layer norm behind the embedding, as BLOOM has */
    bool               untied;         /* the head has a table of its own */
    bool               gated;          /* SwiGLU: the MLP's first layer has 2 F outputs, half of them gates */
    bool               rms;            /* norms are RMSNorm: by the root of the mean square, with a gain only */
    bool               unbiased;       /* linear layers have no biases */
    double             dropout, attention_dropout;
    double             smoothing; /* of the labels */
    double             deviation; /* of the initial weights */
};

/* Gradients that are complete: those of tensors first .. first + count - 1, in the last micro-batch of a step. And
 * before tensors are read, and when they are not needed for a while (ZeRO 3 gathers and releases them then). Any may be
 * NULL. */
struct gpt_hooks {
    int (*ready)(void *arg, int first, int count);
    int (*fetch)(void *arg, int first, int count);
    int (*release)(void *arg, int first, int count);
    void *arg;
};

struct gpt_options {
    struct gpt_shape shape;
    int first, last; /* layers first .. last - 1; the embedding goes with layer 0, the head with the last one */
    int batch;       /* largest B of a micro-batch */
    int slots;       /* micro-batches between forward and backward at a time */
    enum gpt_recompute recompute;
    bool               apart; /* the gradients of weights in a pass of their own: gpt_backward_weight() */
    uint64_t           seed;
    hkt_comm_t        *comm; /* tensor-parallel group; NULL: one rank */
    bool               sequence, overlap;
    int                slices;  /* as in hkt_tensor_config_t: 0, or sums that do not depend on n */
    hkt_comm_t        *context; /* context-parallel group; NULL: one rank */
    hkt_ledger_t      *ledger;  /* activations are counted there to the byte; NULL: nowhere */
    struct gpt_hooks   hooks;
};

/* One tensor: rows x cols of which this rank holds own_rows x own_cols from (first_row, first_col) on. A vector has one
 * row and is split by columns. In c_attn the queries of a group lie together with its keys and values:
 * [group][q, q, .., k, v][size]. A SwiGLU's gates and what they let through are two halves, of both of which a rank has
 * its part: then own rows (columns) are two blocks, of the first of which first_row is the place. */
struct gpt_tensor {
    char     name[48]; /* GPT-2's: "h.3.mlp.c_fc.weight"; the head's own table is "lm_head.weight" */
    int      rows, cols;
    int      first_row, first_col, own_rows, own_cols, blocks; /* blocks: 1, or 2 for halves */
    unsigned flags;                                            /* HKT_PARAMETER_* */
    size_t   offset;                                           /* floats; tensors start on a cache line */
    float   *weight, *gradient;
};

/* Where own row (column of a vector) i of `own` is among all. */
static inline int gpt_global(int i, int first, int own, const struct gpt_tensor *t)
{
    const int block = own / t->blocks;

    return i / block * ((t->rows == 1 ? t->cols : t->rows) / t->blocks) + first + i % block;
}

/* A micro-batch. Arrays are (B, T), of own rows. */
struct gpt_batch {
    int            count, length;  /* B, T */
    const int32_t *token, *target; /* target may be NULL where there is no loss */
    const float   *weight;         /* of each row's loss; NULL: 1 */
    const int32_t *position;       /* of rows within their document; NULL: within their sequence */
    const int32_t *start;    /* the place in the sequence that each row's document starts at, never falling; NULL: 0 */
    uint64_t       step;     /* for dropout, with: */
    uint32_t       sequence; /* number of the first sequence within the global batch */
    float          scale;    /* of the gradient: loss scale / tokens of the step */
    bool           keep;     /* add to the gradients; false in the first micro-batch of a step */
    bool           final;    /* the last micro-batch of a step: gradients are announced */
};

enum gpt_mode {
    GPT_TRAIN, /* dropout; with the head: the loss and already the head's gradients */
    GPT_LOSS,  /* no dropout, no backward */
    GPT_LOGITS /* no dropout, no loss: logits of every sequence's last own row */
};

struct gpt;

/* Every rule that the shape breaks on n tensor-parallel ranks (sequence parallel or not) and c context-parallel ones,
 * in hkt_last_error(), with what would do. */
int gpt_check(const struct gpt_options *options, int n, int c);

/* The calling thread, with its crew if it has one, runs the passes. */
int  gpt_create(struct gpt **model, const struct gpt_options *options);
void gpt_destroy(struct gpt *model);

/* The tensors of this part, in the order of the forward pass; weight and gradient are the caller's to set (or with
 * gpt_bind()). */
struct gpt_tensor *gpt_tensors(struct gpt *model, int *count);
size_t             gpt_floats(const struct gpt *model); /* of all tensors, gaps included */
double gpt_parameters(const struct gpt *model); /* of the part, all tensor-parallel ranks together, tied ones once */

/* Points every tensor into the two buffers, at its offset. */
void gpt_bind(struct gpt *model, float *weight, float *gradient);

/* Draws the initial weights of this rank's parts from the seed; padding is zero. */
void gpt_draw(struct gpt *model);

/* Bytes that one slot keeps, and bytes of the working memory that all slots share, both by formula. */
size_t gpt_slot_bytes(const struct gpt *model);
size_t gpt_work_bytes(const struct gpt *model);

/* Floats between stages: the own rows of `batch`. */
size_t gpt_boundary(const struct gpt *model, const struct gpt_batch *batch);

/* Where a forward begins and ends. */
struct gpt_ends {
    const float  *input;  /* from the part before; NULL for the first */
    float        *output; /* for the next; NULL for the last */
    enum gpt_mode mode;
    double
        *loss; /* of the last part, but in GPT_LOGITS: sum over rows of weight * cross entropy, the same on all ranks */
};
int gpt_forward(struct gpt *model, int slot, const struct gpt_batch *batch, const struct gpt_ends *ends);

/* After GPT_LOGITS: (B, V), all of the vocabulary on every tensor-parallel rank, valid until the next forward. The
 * sequences' last row is that of context-parallel rank 0. */
int gpt_logits(struct gpt *model, const struct gpt_batch *batch, const float **logits);

/* Backward of a slot whose forward was GPT_TRAIN. doutput: from the next part (NULL for the last); dinput: for the part
 * before (NULL for the first). Without `apart` all gradients of weights are computed here. */
int gpt_backward(struct gpt *model, int slot, const struct gpt_batch *batch, const float *doutput, float *dinput);
int gpt_backward_weight(struct gpt *model, int slot, const struct gpt_batch *batch);

#endif
