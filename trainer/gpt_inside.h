/* gpt_inside.h -- what the files of the GPT share: which tensors there are, what a slot keeps, and the working memory.
 */
#ifndef TRAINER_GPT_INSIDE_H
#define TRAINER_GPT_INSIDE_H

#include "flash.h"
#include "gpt.h"

#include "parallel/common.h"

enum split { WHOLE, BY_ROWS, BY_COLS, ROWS_OF_HALVES, COLS_OF_HALVES };

/* The tensors of one layer, in the order in which they lie in memory: X(id, name, rows, cols, split, whether it has
 * them). U are the outputs of the MLP's first layer, Q those of c_attn. */
#define BLOCK_TENSORS(X)                                                                                               \
    X(LN1_GAIN, "ln_1.weight", 1, C, WHOLE, true)                                                                      \
    X(LN1_BIAS, "ln_1.bias", 1, C, WHOLE, !rms)                                                                        \
    X(QKV_WEIGHT, "attn.c_attn.weight", Q, C, BY_ROWS, true)                                                           \
    X(QKV_BIAS, "attn.c_attn.bias", 1, Q, BY_COLS, biased)                                                             \
    X(MIX_WEIGHT, "attn.c_proj.weight", C, C, BY_COLS, true)                                                           \
    X(MIX_BIAS, "attn.c_proj.bias", 1, C, WHOLE, biased)                                                               \
    X(LN2_GAIN, "ln_2.weight", 1, C, WHOLE, true)                                                                      \
    X(LN2_BIAS, "ln_2.bias", 1, C, WHOLE, !rms)                                                                        \
    X(UP_WEIGHT, "mlp.c_fc.weight", U, C, gated ? ROWS_OF_HALVES : BY_ROWS, true)                                      \
    X(UP_BIAS, "mlp.c_fc.bias", 1, U, gated ? COLS_OF_HALVES : BY_COLS, biased)                                        \
    X(DOWN_WEIGHT, "mlp.c_proj.weight", C, F, BY_COLS, true)                                                           \
    X(DOWN_BIAS, "mlp.c_proj.bias", 1, C, WHOLE, biased)

#define BLOCK_ENUM(id, ...) id,
enum block_tensor { BLOCK_TENSORS(BLOCK_ENUM) BLOCK_MOST };
#undef BLOCK_ENUM

/* What backward reads of a layer's forward: X(id, floats, the strongest recomputation that still keeps it). `own` are
 * own rows, `rows` all; what is not kept is made again in memory that all layers share. */
#define SAVED_FIELDS(X)                                                                                                \
    X(INPUT, own *C, GPT_FULL)                                                                                         \
    X(MEAN1, rms ? 0 : own, GPT_SELECTIVE)                                                                             \
    X(RSTD1, own, GPT_SELECTIVE)                                                                                       \
    X(NORM1, own *C, GPT_NONE)                                                                                         \
    X(QKV, rows *Q / n, GPT_SELECTIVE)                                                                                 \
    X(LOG_SUM, rows *H / n, GPT_SELECTIVE)                                                                             \
    X(MIXED, rows *C / n, GPT_SELECTIVE)                                                                               \
    X(MIDDLE, own *C, GPT_SELECTIVE)                                                                                   \
    X(MEAN2, rms ? 0 : own, GPT_SELECTIVE)                                                                             \
    X(RSTD2, own, GPT_SELECTIVE)                                                                                       \
    X(NORM2, own *C, GPT_NONE)                                                                                         \
    X(UP, rows *U / n, GPT_SELECTIVE)                                                                                  \
    X(GELU, rows *F / n, GPT_NONE)

/* Gradients of what the four linear layers put out: kept per layer and slot when the gradients of weights come later.
 */
#define LATE_FIELDS(X)                                                                                                 \
    X(D_QKV, rows *Q / n)                                                                                              \
    X(D_MIX, own *C)                                                                                                   \
    X(D_UP, rows *U / n)                                                                                               \
    X(D_DOWN, own *C)

/* Per slot, once. */
#define SLOT_FIELDS(X)                                                                                                 \
    X(HEAD_GRADIENT, m->head ? own *C : 0)      /* of the last layer's output */                                       \
    X(EMBEDDED, m->embedding_norm ? own *C : 0) /* the embedding before its norm */                                    \
    X(EMBEDDED_MEAN, m->embedding_norm && !rms ? own : 0)                                                              \
    X(EMBEDDED_RSTD, m->embedding_norm ? own : 0)

/* Shared by all slots and layers. */
#define WORK_FIELDS(X)                                                                                                 \
    X(STREAM, own *C) /* the last layer's output, and the gradient on its way back */                                  \
    X(NARROW, own *C) /* what a linear layer puts out, and its gradient */                                             \
    X(D_GATED, m->options.shape.gated ? rows *F / n : 0) /* gradient of what the gates let through */                  \
    X(D_MIXED, rows *C / n)                              /* gradient of the attention's output */                      \
    X(HEAD_STAT, m->head ? 2 * own : 0)                                                                                \
    X(HEAD_ROWS, m->head ? rows *C : 0) /* the last norm's output, all rows */                                         \
    X(HEAD_BACK, m->head ? rows *C : 0) /* its gradient */                                                             \
    X(LOGITS, m->head ? head_rows *V / n : 0)                                                                          \
    X(ALL_LOGITS, m->head ? B *V : 0)                                                                                  \
    X(FLASH, flash_scratch(threads))                           /* a part for each thread */                            \
    X(NOTHING, m->options.shape.unbiased ? 2 * widest / n : 0) /* a bias that is none, and its gradient */             \
    X(BITS, C)                                                 /* random bits of one row */                            \
    X(VECTORS, 6 * C) /* replicated gradients on their way through one reduction */

#define FIELD_ENUM(id, ...) id,
enum saved_field { SAVED_FIELDS(FIELD_ENUM) SAVED };
enum late_field { LATE_FIELDS(FIELD_ENUM) LATE };
enum slot_field { SLOT_FIELDS(FIELD_ENUM) PER_SLOT };
enum work_field { WORK_FIELDS(FIELD_ENUM) WORK };
#undef FIELD_ENUM

enum { HEAD_BLOCK = 256 }; /* rows whose logits exist at a time */

struct layer_memory {
    float *saved[SAVED], *late[LATE];
};

struct slot {
    struct layer_memory *layer; /* of layers first .. */
    float               *field[PER_SLOT];
};

struct gpt {
    struct gpt_options options;
    int                n, me;           /* tensor-parallel */
    int                ranks, rank;     /* context-parallel */
    int                threads;         /* of the crew that runs the passes */
    bool               embedding, head; /* this part has them */
    bool               embedding_norm;  /* and it has that */
    hkt_tensor_t      *split, *local;   /* the group; this rank alone, for the head's blocks */
    hkt_context_t     *ring;            /* attention over the context-parallel group */
    int                tensors;
    struct gpt_tensor *tensor;
    size_t             floats;
    int               tokens, positions, embedding_gain, block, last_gain, head_table; /* first tensor of each, or -1 */
    int               per_block, in_block[BLOCK_MOST]; /* tensors of a layer; number of each among them, or -1 */
    struct gpt_tensor nothing;                         /* stands for biases that a model has not */
    struct slot      *slot;
    float            *work[WORK];
    float            *slots_memory, *work_memory;
    float            *cosine, *sine; /* (length, size / 2) of rotary positions */
    float            *slope;         /* (own heads) of ALiBi */
    hkt_random_t     *random;        /* (B): streams of the attention's masks */
};

static inline struct gpt_tensor *block_tensor(const struct gpt *m, int layer, enum block_tensor which)
{
    const int at = m->in_block[which];

    return at < 0 ? (struct gpt_tensor *)&m->nothing
                  : &m->tensor[m->block + (layer - m->options.first) * m->per_block + at];
}

/* A norm's bias stands behind its gain; an RMSNorm has none. */
static inline struct gpt_tensor *gpt_norm_bias(const struct gpt *m, struct gpt_tensor *gain)
{
    return m->options.shape.rms ? NULL : gain + 1;
}

/* Sizes of one pass. */
struct pass {
    struct gpt             *m;
    const struct gpt_batch *batch;
    struct slot            *slot;
    size_t                  rows, own, first; /* rows; own ones, and which is the first of them */
    bool                    train;
};

/* Where a row of the pass stands in its sequence. */
static inline size_t gpt_place(const struct pass *p, size_t row)
{
    const size_t length = (size_t)p->batch->length;

    return hkt_context_place(row % length, length * (size_t)p->m->ranks, p->m->rank, p->m->ranks);
}

/* What dropout is for: the last coordinate of its stream. */
enum drop { DROP_EMBEDDING = 1, DROP_ATTENTION, DROP_MIX, DROP_MLP };

struct dropout gpt_dropout(double chance);

/* y = residual + dropout(x + bias) over own rows, or only the dropout where bias is NULL (x and y may be the same). */
struct drop_rows {
    const float *x, *bias, *residual;
    int          layer;
    enum drop    what;
};
void gpt_drop_rows(const struct pass *p, float *y, const struct drop_rows *in);

/* The attention of layer `layer`: own rows, and what hides keys from them. Its block-wise part is the ring's callback.
 */
struct gpt_attention {
    hkt_attention_t own;
    struct flash    flash;
    float          *scratch;
};
struct gpt_attention gpt_attention(const struct pass *p, int layer, const struct layer_memory *memory);
/* Queries, keys and values in one row of QKV, and a view of one of them in an array of that shape. */
struct qkv_shape {
    size_t heads, groups, each, size, row; /* heads and groups of this rank, heads of a group, floats */
};
struct qkv_shape gpt_qkv(const struct gpt *m);
enum qkv_part { QUERIES, KEYS, VALUES };
hkt_heads_t gpt_third(const struct pass *p, float *qkv, enum qkv_part which);
int         gpt_ring_create(struct gpt *m);

/* One layer's forward. With output NULL it makes what the layer keeps, and no more: backward's way to compute
 * everything again. */
int         gpt_layer_forward(const struct pass *p, int layer, const struct layer_memory *memory, float *output);
struct norm gpt_norm(const struct pass *p, struct gpt_tensor *gain, const float *x, float *mean, float *rstd);
/* GELU from UP (with SwiGLU that instead), and D_UP from the gradient of GELU, which stands in D_UP or, with SwiGLU, in
 * work D_GATED. */
void         gpt_activation(const struct pass *p, int layer, const struct layer_memory *memory);
void         gpt_activation_backward(const struct pass *p, int layer, const struct layer_memory *memory);
hkt_linear_t gpt_linear(const struct pass *p, const struct gpt_tensor *weight, bool gradient);

/* Queries and keys turned by their positions (sign 1), or gradients back (-1). */
void gpt_rotate(const struct pass *p, float *qkv, float sign);

/* The gradient of a vector, zero in the first micro-batch of a step: asked for once per pass. NULL stays NULL. */
float *gpt_vector_gradient(const struct pass *p, const struct gpt_tensor *tensor);

/* Sums the gradients of `count` tensors that every rank holds whole, but has computed from its own rows only. */
int gpt_sum_replicated(const struct pass *p, struct gpt_tensor *const *tensor, int count);

int gpt_hook(int (*hook)(void *arg, int first, int count), const struct gpt *m, int first, int count);

int gpt_embedding_forward(const struct pass *p, float *x);
int gpt_embedding_backward(const struct pass *p, float *dx);
/* From the last layer's output in work STREAM: the loss, and in training the gradient for the slot. */
int gpt_head_forward(const struct pass *p, enum gpt_mode mode, double *loss);

int gpt_pass(struct pass *p, struct gpt *m, int slot, const struct gpt_batch *batch);

int  gpt_memory_create(struct gpt *m);
void gpt_memory_destroy(struct gpt *m);

#endif
