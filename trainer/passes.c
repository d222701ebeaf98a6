/* passes.c -- the forward and the backward pass of the GPT, see model.h. */
#include "layers.h"
#include "model.h"

#include <string.h>

/* The parameters and gradients of one tensor of a block. */
static float *weight(const struct model *m, int layer, enum block_tensor which)
{
    return m->weight + model_tensor(m, layer, which)->offset;
}

static float *gradient(const struct model *m, int layer, enum block_tensor which)
{
    return m->gradient + model_tensor(m, layer, which)->offset;
}

/* The last norm's gain (0) or bias (1). */
static size_t last_norm(const struct model *m, int which)
{
    return m->tensor[m->tensors - 2 + which].offset;
}

static struct linear linear_of(const struct model *m, int layer, enum block_tensor which, const float *x, int rows)
{
    const struct tensor *t = model_tensor(m, layer, which);

    return (struct linear){rows, t->cols, t->rows, x, m->weight + t->offset, weight(m, layer, which + 1)};
}

static struct norm norm1_of(const struct model *m, int layer, int rows)
{
    const struct block_memory *b = &m->block[layer];

    return (struct norm){rows,     m->shape.width, b->input, weight(m, layer, LN1_GAIN), weight(m, layer, LN1_BIAS),
                         b->mean1, b->rstd1};
}

static struct norm norm2_of(const struct model *m, int layer, int rows)
{
    const struct block_memory *b = &m->block[layer];

    return (struct norm){rows,     m->shape.width, b->middle, weight(m, layer, LN2_GAIN), weight(m, layer, LN2_BIAS),
                         b->mean2, b->rstd2};
}

static struct norm last_norm_of(const struct model *m, int rows)
{
    return (struct norm){rows,    m->shape.width, m->output, m->weight + last_norm(m, 0), m->weight + last_norm(m, 1),
                         m->mean, m->rstd};
}

static struct attention attention_of(const struct model *m, int layer, struct batch batch)
{
    const struct block_memory *b = &m->block[layer];

    return (struct attention){batch.count, batch.length, m->shape.width, m->shape.heads, b->qkv, b->chances, b->mixed};
}

/* output = input + mix(attention(norm1(input))) + down(gelu(up(norm2(...)))) */
static void block_forward(const struct model *m, int layer, struct batch batch, float *output)
{
    const int                  rows  = batch.count * batch.length;
    const struct block_memory *b     = &m->block[layer];
    const struct norm          norm1 = norm1_of(m, layer, rows), norm2 = norm2_of(m, layer, rows);
    const struct linear        qkv   = linear_of(m, layer, QKV_WEIGHT, b->norm1, rows),
                        mix          = linear_of(m, layer, MIX_WEIGHT, b->mixed, rows);
    const struct linear up           = linear_of(m, layer, UP_WEIGHT, b->norm2, rows),
                        down         = linear_of(m, layer, DOWN_WEIGHT, b->gelu, rows);
    const struct attention attention = attention_of(m, layer, batch);

    kernels->norm(b->norm1, &norm1);
    linear_forward(b->qkv, NULL, &qkv);
    attention_forward(&attention);
    linear_forward(b->middle, b->input, &mix);
    kernels->norm(b->norm2, &norm2);
    linear_forward(b->up, NULL, &up);
    kernels->gelu(b->gelu, b->up, (size_t)rows * (size_t)m->shape.mlp);
    linear_forward(output, b->middle, &down);
}

void model_forward(struct model *m, struct batch batch)
{
    const int              rows  = batch.count * batch.length;
    const struct embedding embed = {rows, batch.length, m->shape.width, batch.token};
    const struct norm      norm  = last_norm_of(m, rows);

    embedding_forward(m->block[0].input, m->weight + m->tensor[TOKENS].offset, m->weight + m->tensor[POSITIONS].offset,
                      &embed);
    for (int layer = 0; layer < m->shape.layers; layer++)
        block_forward(m, layer, batch, layer + 1 < m->shape.layers ? m->block[layer + 1].input : m->output);
    kernels->norm(m->norm, &norm);
    multiply(matrix_of(m->logits, rows, VOCABULARY), matrix_of(m->norm, rows, m->shape.width),
             transpose(matrix_of(m->weight + m->tensor[TOKENS].offset, VOCABULARY, m->shape.width)), 0);
}

double model_loss(struct model *m, struct batch batch, float scale)
{
    return kernels->cross_entropy(matrix_of(m->logits, batch.count * batch.length, VOCABULARY), batch.target, scale);
}

struct pass {
    struct model *model;
    struct batch  batch;
    int           rows, keep;
};

/* Gradient of the stream += through the norm, from the gradient of its result in back.narrow. */
static void norm_step(const struct pass *p, const struct norm *norm, float *dgain, float *dbias)
{
    const size_t size = (size_t)norm->cols * sizeof(float);

    if (!p->keep) {
        memset(dgain, 0, size);
        memset(dbias, 0, size);
    }
    kernels->norm_backward(p->model->back.stream, dgain, dbias, p->model->back.narrow, norm);
}

static void linear_step(const struct pass *p, const struct linear *layer, float *dx, const float *dy, float *dweight)
{
    const size_t                 bias = (size_t)(layer->bias - layer->weight); /* gradients lie as the weights do */
    const struct linear_gradient out  = {dx, dweight, dweight + bias, p->keep};

    linear_backward(&out, dy, layer);
}

static void mlp_backward(const struct pass *p, int layer)
{
    struct model              *m    = p->model;
    const struct block_memory *b    = &m->block[layer];
    const struct norm          norm = norm2_of(m, layer, p->rows);
    const struct linear        up   = linear_of(m, layer, UP_WEIGHT, b->norm2, p->rows);
    const struct linear        down = linear_of(m, layer, DOWN_WEIGHT, b->gelu, p->rows);

    linear_step(p, &down, m->back.wide, m->back.stream, gradient(m, layer, DOWN_WEIGHT));
    kernels->gelu_backward(m->back.wide, b->up, (size_t)p->rows * (size_t)m->shape.mlp);
    linear_step(p, &up, m->back.narrow, m->back.wide, gradient(m, layer, UP_WEIGHT));
    norm_step(p, &norm, gradient(m, layer, LN2_GAIN), gradient(m, layer, LN2_BIAS));
}

static void mixer_backward(const struct pass *p, int layer)
{
    struct model              *m         = p->model;
    const struct block_memory *b         = &m->block[layer];
    const struct norm          norm      = norm1_of(m, layer, p->rows);
    const struct linear        qkv       = linear_of(m, layer, QKV_WEIGHT, b->norm1, p->rows);
    const struct linear        mix       = linear_of(m, layer, MIX_WEIGHT, b->mixed, p->rows);
    const struct attention     attention = attention_of(m, layer, p->batch);

    linear_step(p, &mix, m->back.narrow, m->back.stream, gradient(m, layer, MIX_WEIGHT));
    attention_backward(m->back.wide, m->back.narrow, m->back.chances, &attention);
    linear_step(p, &qkv, m->back.narrow, m->back.wide, gradient(m, layer, QKV_WEIGHT));
    norm_step(p, &norm, gradient(m, layer, LN1_GAIN), gradient(m, layer, LN1_BIAS));
}

static void head_backward(const struct pass *p)
{
    struct model       *m      = p->model;
    const int           C      = m->shape.width;
    const struct norm   norm   = last_norm_of(m, p->rows);
    const struct matrix logits = matrix_of(m->logits, p->rows, VOCABULARY);

    multiply(matrix_of(m->back.narrow, p->rows, C), logits,
             matrix_of(m->weight + m->tensor[TOKENS].offset, VOCABULARY, C), 0);
    multiply(matrix_of(m->gradient + m->tensor[TOKENS].offset, VOCABULARY, C), transpose(logits),
             matrix_of(m->norm, p->rows, C), p->keep);
    memset(m->back.stream, 0, (size_t)p->rows * (size_t)C * sizeof(float));
    norm_step(p, &norm, m->gradient + last_norm(m, 0), m->gradient + last_norm(m, 1));
}

void model_backward(struct model *m, struct batch batch, int keep, struct ready_hook ready)
{
    const struct pass      p     = {m, batch, batch.count * batch.length, keep};
    const struct embedding embed = {p.rows, batch.length, m->shape.width, batch.token};

    head_backward(&p);
    ready.call(ready.arg, last_norm(m, 0));
    for (int layer = m->shape.layers - 1; layer >= 0; layer--) {
        mlp_backward(&p, layer);
        ready.call(ready.arg, model_tensor(m, layer, LN2_GAIN)->offset);
        mixer_backward(&p, layer);
        ready.call(ready.arg, model_tensor(m, layer, LN1_GAIN)->offset);
    }
    embedding_backward(m->gradient + m->tensor[TOKENS].offset, m->gradient + m->tensor[POSITIONS].offset,
                       m->back.stream, keep, &embed);
    ready.call(ready.arg, 0);
}
