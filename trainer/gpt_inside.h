/* gpt_inside.h -- what the files of the GPT share: which tensors there are, what a slot keeps, and the working memory.
 */
#ifndef TRAINER_GPT_INSIDE_H
#define TRAINER_GPT_INSIDE_H

#include "flash.h"
#include "gpt.h"

#include "parallel/common.h"

enum split { WHOLE, BY_ROWS, BY_COLS };

/* The tensors of one layer, in the order in which they lie in memory: X(id, name, rows, cols, split). */
#define BLOCK_TENSORS(X)                                                                                               \
    X(LN1_GAIN, "ln_1.weight", 1, C, WHOLE)                                                                            \
    X(LN1_BIAS, "ln_1.bias", 1, C, WHOLE)                                                                              \
    X(QKV_WEIGHT, "attn.c_attn.weight", 3 * C, C, BY_ROWS)                                                             \
    X(QKV_BIAS, "attn.c_attn.bias", 1, 3 * C, BY_COLS)                                                                 \
    X(MIX_WEIGHT, "attn.c_proj.weight", C, C, BY_COLS)                                                                 \
    X(MIX_BIAS, "attn.c_proj.bias", 1, C, WHOLE)                                                                       \
    X(LN2_GAIN, "ln_2.weight", 1, C, WHOLE)                                                                            \
    X(LN2_BIAS, "ln_2.bias", 1, C, WHOLE)                                                                              \
    X(UP_WEIGHT, "mlp.c_fc.weight", F, C, BY_ROWS)                                                                     \
    X(UP_BIAS, "mlp.c_fc.bias", 1, F, BY_COLS)                                                                         \
    X(DOWN_WEIGHT, "mlp.c_proj.weight", C, F, BY_COLS)                                                                 \
    X(DOWN_BIAS, "mlp.c_proj.bias", 1, C, WHOLE)

#define BLOCK_ENUM(id, name, rows, cols, split) id,
enum block_tensor { BLOCK_TENSORS(BLOCK_ENUM) PER_BLOCK };
#undef BLOCK_ENUM

/* What backward reads of a layer's forward: X(id, floats, the strongest recomputation that still keeps it). `own` are
 * own rows, `rows` all; what is not kept is made again in memory that all layers share. */
#define SAVED_FIELDS(X)                                                                                                \
    X(INPUT, own *C, GPT_FULL)                                                                                         \
    X(MEAN1, own, GPT_SELECTIVE)                                                                                       \
    X(RSTD1, own, GPT_SELECTIVE)                                                                                       \
    X(NORM1, own *C, GPT_NONE)                                                                                         \
    X(QKV, rows * 3 * C / n, GPT_SELECTIVE)                                                                            \
    X(LOG_SUM, rows *H / n, GPT_SELECTIVE)                                                                             \
    X(MIXED, rows *C / n, GPT_SELECTIVE)                                                                               \
    X(MIDDLE, own *C, GPT_SELECTIVE)                                                                                   \
    X(MEAN2, own, GPT_SELECTIVE)                                                                                       \
    X(RSTD2, own, GPT_SELECTIVE)                                                                                       \
    X(NORM2, own *C, GPT_NONE)                                                                                         \
    X(UP, rows *F / n, GPT_SELECTIVE)                                                                                  \
    X(GELU, rows *F / n, GPT_NONE)

/* Gradients of what the four linear layers put out: kept per layer and slot when the gradients of weights come later.
 */
#define LATE_FIELDS(X)                                                                                                 \
    X(D_QKV, rows * 3 * C / n)                                                                                         \
    X(D_MIX, own *C)                                                                                                   \
    X(D_UP, rows *F / n)                                                                                               \
    X(D_DOWN, own *C)

/* Per slot, once. */
#define SLOT_FIELDS(X)                                                                                                 \
    X(HEAD_GRADIENT, m->head ? own *C : 0)      /* of the last layer's output */                                       \
    X(EMBEDDED, m->embedding_norm ? own *C : 0) /* the embedding before its norm */                                    \
    X(EMBEDDED_MEAN, m->embedding_norm ? own : 0)                                                                      \
    X(EMBEDDED_RSTD, m->embedding_norm ? own : 0)

/* Shared by all slots and layers. */
#define WORK_FIELDS(X)                                                                                                 \
    X(STREAM, own *C)       /* the last layer's output, and the gradient on its way back */                            \
    X(NARROW, own *C)       /* what a linear layer puts out, and its gradient */                                       \
    X(D_MIXED, rows *C / n) /* gradient of the attention's output */                                                   \
    X(HEAD_STAT, m->head ? 2 * own : 0)                                                                                \
    X(HEAD_ROWS, m->head ? rows *C : 0) /* the last norm's output, all rows */                                         \
    X(HEAD_BACK, m->head ? rows *C : 0) /* its gradient */                                                             \
    X(LOGITS, m->head ? head_rows *V / n : 0)                                                                          \
    X(ALL_LOGITS, m->head ? B *V : 0)                                                                                  \
    X(FLASH, flash_scratch(threads)) /* a part for each thread */                                                      \
    X(BITS, C)                       /* random bits of one row */                                                      \
    X(VECTORS, 6 * C)                /* replicated gradients on their way through one reduction */

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
    int           tokens, positions, embedding_gain, block, last_gain, head_table; /* first tensor of each, or -1 */
    struct slot  *slot;
    float        *work[WORK];
    float        *slots_memory, *work_memory;
    float        *cosine, *sine; /* (length, size / 2) of rotary positions */
    float        *slope;         /* (own heads) of ALiBi */
    hkt_random_t *random;        /* (B): streams of the attention's masks */
};

static inline struct gpt_tensor *block_tensor(const struct gpt *m, int layer, enum block_tensor which)
{
    return &m->tensor[m->block + (layer - m->options.first) * PER_BLOCK + (int)which];
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
/* A view of queries (0), keys (1) or values (2) in an array shaped as QKV. */
hkt_heads_t gpt_third(const struct pass *p, float *qkv, int which);
int         gpt_ring_create(struct gpt *m);

/* One layer's forward. With output NULL it makes what the layer keeps, and no more: backward's way to compute
 * everything again. */
int         gpt_layer_forward(const struct pass *p, int layer, const struct layer_memory *memory, float *output);
struct norm gpt_norm(const struct pass *p, const struct gpt_tensor *gain, const float *x, float *mean, float *rstd);
/* GELU from UP, and D_UP from the gradient of GELU, which stands there. */
void         gpt_activation(const struct pass *p, int layer, const struct layer_memory *memory);
void         gpt_activation_backward(const struct pass *p, int layer, const struct layer_memory *memory);
hkt_linear_t gpt_linear(const struct pass *p, const struct gpt_tensor *weight, bool gradient);

/* Queries and keys turned by their positions (sign 1), or gradients back (-1). */
void gpt_rotate(const struct pass *p, float *qkv, float sign);

/* The gradient of a vector, zero in the first micro-batch of a step: asked for once per pass. */
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
