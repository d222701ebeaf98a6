/* model.h -- a byte-level GPT: its parameters, what a forward pass remembers, and the two passes.
 *
 * Letters in shapes: B sequences, T positions, C width, H heads, F width of the MLP, V tokens (256), L blocks. All
 * matrices are row-major fp32; a linear layer keeps its weight as (outputs, inputs). The head shares the token
 * embedding.
 */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "kernels.h"

enum { VOCABULARY = 256 };

/* The parameters of one block, in the order in which they lie in memory. Names are GPT-2's. */
#define BLOCK_TENSORS(X)                                                                                               \
    X(LN1_GAIN, "ln_1.weight", 1, C)                                                                                   \
    X(LN1_BIAS, "ln_1.bias", 1, C)                                                                                     \
    X(QKV_WEIGHT, "attn.c_attn.weight", 3 * C, C)                                                                      \
    X(QKV_BIAS, "attn.c_attn.bias", 1, 3 * C)                                                                          \
    X(MIX_WEIGHT, "attn.c_proj.weight", C, C)                                                                          \
    X(MIX_BIAS, "attn.c_proj.bias", 1, C)                                                                              \
    X(LN2_GAIN, "ln_2.weight", 1, C)                                                                                   \
    X(LN2_BIAS, "ln_2.bias", 1, C)                                                                                     \
    X(UP_WEIGHT, "mlp.c_fc.weight", F, C)                                                                              \
    X(UP_BIAS, "mlp.c_fc.bias", 1, F)                                                                                  \
    X(DOWN_WEIGHT, "mlp.c_proj.weight", C, F)                                                                          \
    X(DOWN_BIAS, "mlp.c_proj.bias", 1, C)

#define BLOCK_ENUM(id, name, rows, cols) id,
enum block_tensor { BLOCK_TENSORS(BLOCK_ENUM) PER_BLOCK };
#undef BLOCK_ENUM

/* Index of a tensor in the whole model: the embeddings, the blocks, the last norm. */
enum { TOKENS = 0, POSITIONS = 1, FIRST_BLOCK = 2 };

struct tensor {
    char   name[40];
    int    rows, cols; /* a vector has one row; only matrices are decayed */
    size_t offset;     /* in floats, the same in weights, gradients and moments */
};

struct shape {
    int layers, width, heads, mlp, length; /* L, C, H, F, largest T */
};

/* What backward needs of one block's forward pass. */
struct block_memory {
    float *input;                 /* (B,T,C) the residual stream as it comes in */
    float *norm1, *mean1, *rstd1; /* (B,T,C) (B,T) (B,T) */
    float *qkv;                   /* (B,T,3C) */
    float *chances;               /* (B,H,T,T) attention probabilities */
    float *mixed;                 /* (B,T,C) values, weighed, heads side by side */
    float *middle;                /* (B,T,C) the stream after attention */
    float *norm2, *mean2, *rstd2; /* (B,T,C) (B,T) (B,T) */
    float *up, *gelu;             /* (B,T,F) before and after the activation */
};

/* Gradients on their way back; one set serves all blocks. */
struct backward_memory {
    float *stream;  /* (B,T,C) */
    float *narrow;  /* (B,T,C) */
    float *wide;    /* (B,T,F), and (B,T,3C) of the attention */
    float *chances; /* (rows of one attention block, T) */
};

struct model {
    struct shape           shape;
    int                    batch; /* B that the memory is made for */
    int                    tensors;
    struct tensor         *tensor;
    size_t                 parameters; /* floats in weight and gradient, padding included */
    size_t                 unpadded;   /* parameters in the usual count */
    float                 *weight, *gradient;
    struct block_memory   *block;
    struct backward_memory back;
    float                 *output;             /* (B,T,C) the stream after the last block */
    float                 *norm, *mean, *rstd; /* (B,T,C) (B,T) (B,T) */
    float                 *logits;             /* (B,T,V); their gradient after model_loss() */
};

/* One batch of (B,T) tokens and what follows each. */
struct batch {
    int            count, length; /* B, T */
    const uint8_t *token, *target;
};

/* Says which parameters' gradients are complete: all from `offset` to the end. */
struct ready_hook {
    void (*call)(void *arg, size_t offset);
    void *arg;
};

/* Lays the tensors out; weight and gradient are still NULL. */
void model_layout(struct model *model, struct shape shape);

/* Draws the weights from the seed and makes the memory for B = batch. weight and gradient (parameters floats each) are
 * the caller's. */
void model_begin(struct model *model, int batch, uint64_t seed, double deviation);
void model_end(struct model *model);

const struct tensor *model_tensor(const struct model *model, int layer, enum block_tensor which);

/* Fills logits. */
void model_forward(struct model *model, struct batch batch);

/* Sum of -log p(target) over the batch; turns logits into `scale` times their gradient. */
double model_loss(struct model *model, struct batch batch, float scale);

/* After model_loss(). keep 0 overwrites the gradients, 1 adds to them. */
void model_backward(struct model *model, struct batch batch, int keep, struct ready_hook ready);

#endif
