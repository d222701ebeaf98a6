/* gpt_head.c -- both ends of the GPT: the embedding, and the last norm with the head.
 *
 * The head's forward computes its gradients at once, a block of rows at a time: the logits of a micro-batch never exist
 * together (they would be most of a small model's memory), and what a slot keeps for backward is one gradient of the
 * stream's shape. Every sum keeps the order of the micro-batches, as if it had been done in backward.
 */
#include "gpt_inside.h"

#include <string.h>

static hkt_vocabulary_t vocabulary(const struct gpt *m, size_t rows)
{
    return (hkt_vocabulary_t){(size_t)m->options.shape.vocabulary, (size_t)m->options.shape.padded,
                              (size_t)m->options.shape.width, rows};
}

/* ---- embedding */

static size_t place_of(const struct pass *p, size_t row)
{
    return p->batch->position ? (size_t)p->batch->position[row] : gpt_place(p, row);
}

static struct norm embedding_norm(const struct pass *p)
{
    return gpt_norm(p, &p->m->tensor[p->m->embedding_gain], p->slot->field[EMBEDDED], p->slot->field[EMBEDDED_MEAN],
                    p->slot->field[EMBEDDED_RSTD]);
}

int gpt_embedding_forward(const struct pass *p, float *x)
{
    struct gpt            *m = p->m;
    const size_t           C = (size_t)m->options.shape.width;
    const hkt_vocabulary_t v = vocabulary(m, p->rows);
    float                 *y = m->embedding_norm ? p->slot->field[EMBEDDED] : x;

    TRY(gpt_hook(m->options.hooks.fetch, m, 0, m->block));
    TRY(hkt_embedding_forward(y, m->tensor[m->tokens].weight, p->batch->token, &v, m->split));
    for (size_t i = 0; m->positions >= 0 && i < p->own; i++)
        kernels->add_bias(y + i * C, m->tensor[m->positions].weight + place_of(p, p->first + i) * C, 1, (int)C);
    if (m->embedding_norm) {
        const struct norm norm = embedding_norm(p);

        kernels->norm(x, &norm);
    }
    gpt_drop_rows(p, x, &(struct drop_rows){x, NULL, NULL, 0, DROP_EMBEDDING});
    return gpt_hook(m->options.hooks.release, m, 0, m->block);
}

static void positions_backward(const struct pass *p, const float *dx)
{
    const struct gpt        *m = p->m;
    const struct gpt_tensor *t = &m->tensor[m->positions];
    const size_t             C = (size_t)m->options.shape.width;

    if (!p->batch->keep)
        memset(t->gradient, 0, (size_t)t->rows * C * sizeof(float));
    for (size_t i = 0; i < p->own; i++)
        kernels->add_bias(t->gradient + place_of(p, p->first + i) * C, dx + i * C, 1, (int)C);
}

int gpt_embedding_backward(const struct pass *p, float *dx)
{
    struct gpt            *m      = p->m;
    struct gpt_tensor     *tokens = &m->tensor[m->tokens], *whole[3];
    const hkt_vocabulary_t v      = vocabulary(m, p->rows);
    const size_t           count  = p->own * v.width;
    int                    partly = 0;

    gpt_drop_rows(p, dx, &(struct drop_rows){dx, NULL, NULL, 0, DROP_EMBEDDING});
    if (m->embedding_norm) {
        const struct norm  norm = embedding_norm(p);
        struct gpt_tensor *gain = &m->tensor[m->embedding_gain];

        memset(m->work[NARROW], 0, count * sizeof(float));
        kernels->norm_backward(m->work[NARROW], gpt_vector_gradient(p, gain),
                               gpt_vector_gradient(p, gpt_norm_bias(m, gain)), dx, &norm);
        dx              = m->work[NARROW];
        whole[partly++] = gain;
        if (gpt_norm_bias(m, gain))
            whole[partly++] = gain + 1;
    }
    if (m->positions >= 0) {
        positions_backward(p, dx);
        whole[partly++] = &m->tensor[m->positions];
    }
    if (!p->batch->keep && m->head_table != m->tokens)
        memset(tokens->gradient, 0, (size_t)tokens->own_rows * v.width * sizeof(float));
    TRY(hkt_embedding_backward(tokens->gradient, dx, p->batch->token, &v, m->split));
    TRY(gpt_sum_replicated(p, whole, partly));
    return p->batch->final ? gpt_hook(m->options.hooks.ready, m, 0, m->block) : HKT_OK;
}

/* ---- head */

struct head {
    const struct pass *p;
    enum gpt_mode      mode;
    const float       *x; /* (rows, C): the norm's output, all rows */
    double            *loss;
};

/* Loss, and gradients, of rows `first` .. first + count - 1. */
static int head_block(const struct head *h, size_t first, size_t count)
{
    struct gpt              *m      = h->p->m;
    const struct gpt_batch  *b      = h->p->batch;
    const struct gpt_tensor *table  = &m->tensor[m->head_table];
    const hkt_vocabulary_t   v      = vocabulary(m, count);
    const float             *x      = h->x + first * v.width;
    float                   *logits = m->work[LOGITS];
    const hkt_linear_t       linear = {count,         v.width,         v.padded / (size_t)m->n,
                                       table->weight, table->gradient, b->keep || first > 0};
    double                   loss;

    TRY(hkt_column_forward(logits, x, &linear, m->local));
    TRY(hkt_cross_entropy(&loss, logits, b->target + first, b->weight ? b->weight + first : NULL,
                          h->mode == GPT_TRAIN ? (float)m->options.shape.smoothing : 0, b->scale, &v, m->split));
    *h->loss += loss;
    return h->mode == GPT_TRAIN
               ? hkt_column_backward(m->work[HEAD_BACK] + first * v.width, logits, x, &linear, m->local)
               : HKT_OK;
}

/* The gradient of the norm's output is summed over the vocabulary's parts and taken through the norm. */
static int head_backward(const struct pass *p, const struct norm *norm)
{
    struct gpt        *m       = p->m;
    struct gpt_tensor *gain    = &m->tensor[m->last_gain];
    const size_t       C       = (size_t)m->options.shape.width;
    const bool         split   = m->options.sequence && m->n > 1;
    float             *back    = split ? m->work[NARROW] : m->work[HEAD_BACK];
    const hkt_region_t region  = split ? HKT_REGION_SEQUENCE_GATHER : HKT_REGION_COPY;
    struct gpt_tensor *whole[] = {gain, gain + 1};

    TRY(hkt_region_backward(back, m->work[HEAD_BACK], p->rows, C, region, m->split));
    memset(p->slot->field[HEAD_GRADIENT], 0, p->own * C * sizeof(float));
    kernels->norm_backward(p->slot->field[HEAD_GRADIENT], gpt_vector_gradient(p, gain),
                           gpt_vector_gradient(p, gpt_norm_bias(m, gain)), back, norm);
    TRY(gpt_sum_replicated(p, whole, m->options.shape.rms ? 1 : 2));
    if (!p->batch->final)
        return HKT_OK;
    return gpt_hook(m->options.hooks.ready, m, m->last_gain, m->tensors - m->last_gain);
}

/* Logits of the last row of every sequence. */
static int last_logits(const struct head *h)
{
    struct gpt  *m = h->p->m;
    const size_t C = (size_t)m->options.shape.width, length = (size_t)h->p->batch->length,
                 B            = (size_t)h->p->batch->count;
    const hkt_linear_t linear = {B,    C,    (size_t)(m->options.shape.padded / m->n), m->tensor[m->head_table].weight,
                                 NULL, false};

    for (size_t b = 0; b < B; b++) /* moves rows forward only: B rows of the block's memory hold them */
        memmove(m->work[HEAD_BACK] + b * C, h->x + ((b + 1) * length - 1) * C, C * sizeof(float));
    return hkt_column_forward(m->work[LOGITS], m->work[HEAD_BACK], &linear, m->local);
}

int gpt_head_forward(const struct pass *p, enum gpt_mode mode, double *loss)
{
    struct gpt       *m     = p->m;
    const size_t      C     = (size_t)m->options.shape.width;
    const bool        split = m->options.sequence && m->n > 1;
    double            sum   = 0;
    const struct head h     = {p, mode, m->work[HEAD_ROWS], &sum};
    const int         first = m->last_gain, count = m->tensors - first;
    struct norm       norm;

    TRY(gpt_hook(m->options.hooks.fetch, m, m->head_table, 1));
    TRY(gpt_hook(m->options.hooks.fetch, m, first, count));
    norm = gpt_norm(p, &m->tensor[m->last_gain], m->work[STREAM], m->work[HEAD_STAT], m->work[HEAD_STAT] + p->own);
    kernels->norm(split ? m->work[NARROW] : m->work[HEAD_ROWS], &norm);
    if (split)
        TRY(hkt_region_forward(m->work[HEAD_ROWS], m->work[NARROW], p->rows, C, HKT_REGION_SEQUENCE_GATHER, m->split));
    if (mode == GPT_LOGITS)
        return last_logits(&h);
    for (size_t row = 0; row < p->rows; row += HEAD_BLOCK)
        TRY(head_block(&h, row, p->rows - row < HEAD_BLOCK ? p->rows - row : HEAD_BLOCK));
    if (mode == GPT_TRAIN)
        TRY(head_backward(p, &norm));
    *loss = sum;
    TRY(gpt_hook(m->options.hooks.release, m, m->head_table, 1));
    return gpt_hook(m->options.hooks.release, m, first, count);
}

int gpt_logits(struct gpt *m, const struct gpt_batch *b, const float **logits)
{
    if (!m->head)
        return hkt_error_set(HKT_ERR_USAGE, "logits of a part that has no head");
    TRY(hkt_region_forward(m->work[ALL_LOGITS], m->work[LOGITS], (size_t)b->count, (size_t)m->options.shape.padded,
                           HKT_REGION_GATHER, m->split));
    *logits = m->work[ALL_LOGITS];
    return HKT_OK;
}
