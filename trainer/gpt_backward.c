/* gpt_backward.c -- the backward pass of the GPT's layers, see gpt_forward.c. The gradient of the stream goes from
 * layer to layer in work STREAM; the gradients of what linear layers put out lie in the layer's late fields, for the
 * weights' pass where there is one.
 */
#include "gpt_inside.h"

#include <string.h>

float *gpt_vector_gradient(const struct pass *p, const struct gpt_tensor *t)
{
    if (t && !p->batch->keep)
        memset(t->gradient, 0, (size_t)t->own_rows * (size_t)t->own_cols * sizeof(float));
    return t ? t->gradient : NULL;
}

/* Vectors travel together; a matrix (the positions) as it lies. */
int gpt_sum_replicated(const struct pass *p, struct gpt_tensor *const *tensor, int count)
{
    struct gpt *m      = p->m;
    float      *packed = m->work[VECTORS];
    size_t      floats = 0;

    if (!p->batch->final || !m->options.sequence || m->n == 1)
        return HKT_OK;
    for (int i = 0; i < count; i++) {
        const size_t cols = (size_t)tensor[i]->cols, all = (size_t)tensor[i]->rows * cols;

        if (tensor[i]->rows > 1) {
            TRY(hkt_region_forward(tensor[i]->gradient, tensor[i]->gradient, 1, all, HKT_REGION_REDUCE, m->split));
            continue;
        }
        memcpy(packed + floats, tensor[i]->gradient, all * sizeof(float));
        floats += all;
    }
    TRY(hkt_region_forward(packed, packed, 1, floats, HKT_REGION_REDUCE, m->split));
    for (int i = 0; i < count; i++)
        if (tensor[i]->rows == 1) {
            memcpy(tensor[i]->gradient, packed, (size_t)tensor[i]->cols * sizeof(float));
            packed += tensor[i]->cols;
        }
    return HKT_OK;
}

/* The gradient of what a row layer puts out, before dropout and bias, from that of the stream. */
static const float *before_dropout(const struct pass *p, float *late, int layer, enum drop what)
{
    const struct gpt *m = p->m;

    if (!m->options.apart && m->options.shape.dropout == 0)
        return m->work[STREAM];
    gpt_drop_rows(p, late, &(struct drop_rows){m->work[STREAM], NULL, NULL, layer, what});
    return late;
}

static void norm_backward(const struct pass *p, struct gpt_tensor *gain, const struct norm *norm)
{
    kernels->norm_backward(p->m->work[STREAM], gpt_vector_gradient(p, gain),
                           gpt_vector_gradient(p, gpt_norm_bias(p->m, gain)), p->m->work[NARROW], norm);
}

static int mlp_backward(const struct pass *p, int layer, const struct layer_memory *memory)
{
    struct gpt        *m  = p->m;
    float *const      *s  = memory->saved;
    struct gpt_tensor *up = block_tensor(m, layer, UP_WEIGHT), *down = block_tensor(m, layer, DOWN_WEIGHT);
    struct gpt_tensor *gain   = block_tensor(m, layer, LN2_GAIN);
    const hkt_linear_t column = gpt_linear(p, up, !m->options.apart), row = gpt_linear(p, down, !m->options.apart);
    const struct norm  norm = gpt_norm(p, gain, s[MIDDLE], s[MEAN2], s[RSTD2]);
    const float       *dy   = before_dropout(p, memory->late[D_DOWN], layer, DROP_MLP);

    if (m->options.recompute == GPT_SELECTIVE) {
        kernels->norm(s[NORM2], &norm);
        gpt_activation(p, layer, memory);
    }
    kernels->sum_rows(block_tensor(m, layer, DOWN_BIAS)->gradient, dy, (int)p->own, down->rows, p->batch->keep);
    TRY(hkt_row_backward(m->options.shape.gated ? m->work[D_GATED] : memory->late[D_UP], dy, s[GELU], &row, m->split));
    gpt_activation_backward(p, layer, memory);
    TRY(hkt_column_backward(m->work[NARROW], memory->late[D_UP], s[NORM2], &column, m->split));
    norm_backward(p, gain, &norm);
    return HKT_OK;
}

/* From D_MIXED. */
static int attention_backward(const struct pass *p, float *dqkv, struct gpt_attention *a)
{
    hkt_attention_gradient_t g = {a->own.out, gpt_third(p, dqkv, QUERIES), gpt_third(p, dqkv, KEYS),
                                  gpt_third(p, dqkv, VALUES)};

    g.dout.data = p->m->work[D_MIXED];
    memset(dqkv, 0, p->rows * gpt_qkv(p->m).row * sizeof(float));
    return hkt_context_backward(&g, &a->own, a, p->m->ring);
}

static int mixer_backward(const struct pass *p, int layer, const struct layer_memory *memory)
{
    struct gpt          *m   = p->m;
    float *const        *s   = memory->saved;
    struct gpt_tensor   *qkv = block_tensor(m, layer, QKV_WEIGHT), *mix = block_tensor(m, layer, MIX_WEIGHT);
    struct gpt_tensor   *gain   = block_tensor(m, layer, LN1_GAIN);
    const hkt_linear_t   column = gpt_linear(p, qkv, !m->options.apart), row = gpt_linear(p, mix, !m->options.apart);
    const struct norm    norm = gpt_norm(p, gain, s[INPUT], s[MEAN1], s[RSTD1]);
    struct gpt_attention a    = gpt_attention(p, layer, memory);
    const float         *dy   = before_dropout(p, memory->late[D_MIX], layer, DROP_MIX);

    if (m->options.recompute == GPT_SELECTIVE)
        kernels->norm(s[NORM1], &norm);
    kernels->sum_rows(block_tensor(m, layer, MIX_BIAS)->gradient, dy, (int)p->own, mix->rows, p->batch->keep);
    TRY(hkt_row_backward(m->work[D_MIXED], dy, s[MIXED], &row, m->split));
    TRY(attention_backward(p, memory->late[D_QKV], &a));
    gpt_rotate(p, memory->late[D_QKV], -1);
    kernels->sum_rows(block_tensor(m, layer, QKV_BIAS)->gradient, memory->late[D_QKV], (int)p->rows, qkv->own_rows,
                      p->batch->keep);
    TRY(hkt_column_backward(m->work[NARROW], memory->late[D_QKV], s[NORM1], &column, m->split));
    norm_backward(p, gain, &norm);
    return HKT_OK;
}

static int layer_backward(const struct pass *p, int layer)
{
    struct gpt                    *m  = p->m;
    const int                      at = layer - m->options.first, first = m->block + at * m->per_block;
    const struct layer_memory     *memory = &p->slot->layer[at];
    const bool                     ready  = p->batch->final && !m->options.apart;
    struct gpt_tensor             *whole[6];
    int                            count    = 0;
    static const enum block_tensor which[6] = {LN1_GAIN, LN1_BIAS, MIX_BIAS, LN2_GAIN, LN2_BIAS, DOWN_BIAS};

    TRY(gpt_hook(m->options.hooks.fetch, m, first, m->per_block));
    if (m->options.recompute == GPT_FULL)
        TRY(gpt_layer_forward(p, layer, memory, NULL));
    TRY(mlp_backward(p, layer, memory));
    TRY(mixer_backward(p, layer, memory));
    for (int i = 0; i < 6; i++)
        if (m->in_block[which[i]] >= 0)
            whole[count++] = block_tensor(m, layer, which[i]);
    TRY(gpt_sum_replicated(p, whole, count));
    TRY(gpt_hook(m->options.hooks.release, m, first, m->per_block));
    return ready ? gpt_hook(m->options.hooks.ready, m, first, m->per_block) : HKT_OK;
}

int gpt_backward(struct gpt *m, int slot, const struct gpt_batch *b, const float *doutput, float *dinput)
{
    struct pass p;

    TRY(gpt_pass(&p, m, slot, b));
    p.train = true;

    const size_t bytes = gpt_boundary(m, b) * sizeof(float);

    memcpy(m->work[STREAM], m->head ? p.slot->field[HEAD_GRADIENT] : doutput, bytes);
    for (int layer = m->options.last - 1; layer >= m->options.first; layer--)
        TRY(layer_backward(&p, layer));
    if (m->embedding)
        return gpt_embedding_backward(&p, m->work[STREAM]);
    memcpy(dinput, m->work[STREAM], bytes);
    return HKT_OK;
}

/* One layer's four products, in the order of backward. */
static int layer_weights(const struct pass *p, int layer)
{
    struct gpt                *m      = p->m;
    const struct layer_memory *memory = &p->slot->layer[layer - m->options.first];
    float *const              *s = memory->saved, *const *d = memory->late;
    const struct norm          norm1 = gpt_norm(p, block_tensor(m, layer, LN1_GAIN), s[INPUT], s[MEAN1], s[RSTD1]);
    const struct norm          norm2 = gpt_norm(p, block_tensor(m, layer, LN2_GAIN), s[MIDDLE], s[MEAN2], s[RSTD2]);
    const hkt_linear_t         down  = gpt_linear(p, block_tensor(m, layer, DOWN_WEIGHT), true);
    const hkt_linear_t         up    = gpt_linear(p, block_tensor(m, layer, UP_WEIGHT), true);
    const hkt_linear_t         mix   = gpt_linear(p, block_tensor(m, layer, MIX_WEIGHT), true);
    const hkt_linear_t         qkv   = gpt_linear(p, block_tensor(m, layer, QKV_WEIGHT), true);

    if (m->options.recompute == GPT_SELECTIVE) {
        kernels->norm(s[NORM1], &norm1);
        kernels->norm(s[NORM2], &norm2);
        gpt_activation(p, layer, memory);
    }
    TRY(hkt_row_backward(NULL, d[D_DOWN], s[GELU], &down, m->split));
    TRY(hkt_column_backward(NULL, d[D_UP], s[NORM2], &up, m->split));
    TRY(hkt_row_backward(NULL, d[D_MIX], s[MIXED], &mix, m->split));
    return hkt_column_backward(NULL, d[D_QKV], s[NORM1], &qkv, m->split);
}

int gpt_backward_weight(struct gpt *m, int slot, const struct gpt_batch *b)
{
    struct pass p;

    if (!m->options.apart)
        return HKT_OK;
    TRY(gpt_pass(&p, m, slot, b));
    p.train = true;
    for (int layer = m->options.last - 1; layer >= m->options.first; layer--) {
        TRY(layer_weights(&p, layer));
        if (b->final)
            TRY(gpt_hook(m->options.hooks.ready, m, m->block + (layer - m->options.first) * m->per_block,
                         m->per_block));
    }
    return HKT_OK;
}
