/* gpt_forward.c -- the forward pass of the GPT's layers:
 *   middle = input + dropout(mix(attention(qkv(norm1(input)))) + bias)
 *   output = middle + dropout(down(gelu(up(norm2(middle)) + bias)) + bias)
 * or, with SwiGLU, silu of one half of up's outputs times the other half instead of gelu.
 * qkv and up are column layers, mix and down row layers. Embedding and head are in gpt_head.c.
 */
#include "crew.h"
#include "gpt_inside.h"

#include <math.h>
#include <string.h>

int gpt_hook(int (*hook)(void *arg, int first, int count), const struct gpt *m, int first, int count)
{
    return hook ? hook(m->options.hooks.arg, first, count) : HKT_OK;
}

struct dropout gpt_dropout(double chance)
{
    return (struct dropout){(uint32_t)((1 - chance) * 4294967295.0), (float)(1 / (1 - chance))};
}

void gpt_drop_rows(const struct pass *p, float *y, const struct drop_rows *in)
{
    struct gpt             *m     = p->m;
    const struct gpt_batch *b     = p->batch;
    const bool              drops = p->train && m->options.shape.dropout > 0;
    const size_t            C = (size_t)m->options.shape.width, length = (size_t)b->length;
    uint32_t               *bits   = drops ? (uint32_t *)(void *)m->work[BITS] : NULL;
    const struct dropout    chance = gpt_dropout(m->options.shape.dropout);

    for (size_t i = 0; i < p->own; i++, y += C) {
        const size_t   row      = p->first + i;
        const uint32_t sequence = b->sequence + (uint32_t)(row / length);
        const float   *x        = in->x + i * C;

        if (drops)
            hkt_random_fill_bits(bits, hkt_random_at(m->options.seed, b->step, sequence, (uint32_t)in->layer, in->what),
                                 gpt_place(p, row) * C, C);
        if (in->bias)
            kernels->bias_dropout_add(y, &(struct dropped){x, in->bias, in->residual + i * C, bits, chance}, (int)C);
        else if (drops)
            kernels->dropout(y, x, bits, chance, (int)C);
        else if (x != y)
            memcpy(y, x, C * sizeof(float));
    }
}

struct norm gpt_norm(const struct pass *p, struct gpt_tensor *gain, const float *x, float *mean, float *rstd)
{
    const struct gpt_tensor *bias = gpt_norm_bias(p->m, gain);

    return (struct norm){(int)p->own, p->m->options.shape.width, x, gain->weight, bias ? bias->weight : NULL, mean,
                         rstd};
}

struct qkv_shape gpt_qkv(const struct gpt *m)
{
    const struct gpt_shape *s = &m->options.shape;
    struct qkv_shape        q = {.heads  = (size_t)(s->heads / m->n),
                                 .groups = (size_t)(s->groups / m->n),
                                 .each   = (size_t)(s->heads / s->groups),
                                 .size   = (size_t)(s->width / s->heads)};

    q.row = q.groups * (q.each + 2) * q.size;
    return q;
}

hkt_linear_t gpt_linear(const struct pass *p, const struct gpt_tensor *w, bool gradient)
{
    return (hkt_linear_t){p->rows,       (size_t)w->cols, (size_t)w->rows, w->weight, gradient ? w->gradient : NULL,
                          p->batch->keep};
}

void gpt_rotate(const struct pass *p, float *qkv, float sign)
{
    const struct gpt      *m     = p->m;
    const struct qkv_shape q     = gpt_qkv(m);
    const int32_t         *given = p->batch->position;

    if (m->options.shape.positions != GPT_ROTARY)
        return;
    for (size_t row = 0; row < p->rows; row++, qkv += q.row) {
        const size_t place = given ? (size_t)given[row] : gpt_place(p, row), at = place * (q.size / 2);

        for (size_t g = 0; g < q.groups; g++) /* a group's queries and its keys */
            for (size_t i = 0; i <= q.each; i++)
                kernels->rotate(qkv + (g * (q.each + 2) + i) * q.size, m->cosine + at, m->sine + at, sign,
                                (int)q.size / 2);
    }
}

hkt_heads_t gpt_third(const struct pass *p, float *qkv, enum qkv_part which)
{
    const struct qkv_shape q     = gpt_qkv(p->m);
    const size_t           first = which == QUERIES ? 0 : q.each + (which == VALUES);

    return (hkt_heads_t){qkv + first * q.size, (size_t)p->batch->length * q.row, q.row, (q.each + 2) * q.size, q.size};
}

static struct flash masks(const struct pass *p, int layer)
{
    struct gpt             *m     = p->m;
    const struct gpt_batch *b     = p->batch;
    const struct gpt_shape *s     = &m->options.shape;
    const bool              drops = p->train && s->attention_dropout > 0;

    for (int i = 0; drops && i < b->count; i++)
        m->random[i] =
            hkt_random_at(m->options.seed, b->step, b->sequence + (uint32_t)i, (uint32_t)layer, DROP_ATTENTION);
    return (struct flash){.length     = b->length,
                          .start      = b->start,
                          .slope      = m->slope,
                          .dropout    = gpt_dropout(s->attention_dropout),
                          .random     = drops ? m->random : NULL,
                          .first_head = m->me * (s->heads / m->n),
                          .span       = s->length};
}

struct gpt_attention gpt_attention(const struct pass *p, int layer, const struct layer_memory *memory)
{
    const struct gpt      *m = p->m;
    const struct qkv_shape q = gpt_qkv(m);
    const size_t           T = (size_t)p->batch->length, width = q.heads * q.size;
    float *const          *a   = memory->saved;
    const hkt_attention_t  own = {.batch     = (size_t)p->batch->count,
                                  .size      = q.size,
                                  .heads     = q.heads,
                                  .key_heads = q.groups,
                                  .queries   = T,
                                  .keys      = T,
                                  .query     = gpt_third(p, a[QKV], QUERIES),
                                  .key       = gpt_third(p, a[QKV], KEYS),
                                  .value     = gpt_third(p, a[QKV], VALUES),
                                  .out       = {a[MIXED], T * width, width, q.each * q.size, q.size},
                                  .log_sum   = {a[LOG_SUM], T, 1, q.each * p->rows, p->rows}};

    return (struct gpt_attention){own, masks(p, layer), m->work[FLASH]};
}

static int block_forward(const hkt_attention_t *block, void *arg)
{
    const struct gpt_attention *a = arg;

    flash_forward(block, &a->flash, a->scratch);
    return HKT_OK;
}

static int block_backward(const hkt_attention_gradient_t *gradient, const hkt_attention_t *block, void *arg)
{
    const struct gpt_attention *a = arg;

    flash_backward(gradient, block, &a->flash, a->scratch);
    return HKT_OK;
}

int gpt_ring_create(struct gpt *m)
{
    hkt_context_config_t config = HKT_CONTEXT_CONFIG_INIT;

    config.comm     = m->options.context;
    config.overlap  = m->options.overlap;
    config.forward  = block_forward;
    config.backward = block_backward;
    config.ledger   = m->options.ledger;
    return hkt_context_create(&m->ring, &config);
}

/* The activation on columns, which a crew divides: so that the column sums of backward have one order. */
struct activation {
    const struct gpt_tensor *bias;
    float                   *out, *dbias; /* dbias NULL: forward */
    const float             *up, *dy;     /* dy: of a SwiGLU */
    int                      rows, cols;  /* of the result */
};

static void some_columns(void *arg, size_t first, size_t count)
{
    const struct activation *a  = arg;
    const struct biased      in = {a->up + first, a->bias->weight + first, a->rows, (int)count, a->cols};

    if (a->dbias)
        kernels->bias_gelu_backward(a->out + first, a->dbias + first, &in);
    else
        kernels->bias_gelu(a->out + first, &in);
}

static void some_gates(void *arg, size_t first, size_t count)
{
    const struct activation *a  = arg;
    const struct biased      in = {a->up + first, a->bias->weight + first, a->rows, (int)count, a->cols};

    if (a->dbias)
        kernels->bias_swiglu_backward(a->out + first, a->dbias + first, a->dy + first, &in);
    else
        kernels->bias_swiglu(a->out + first, &in);
}

static void activate(const struct pass *p, struct activation *a)
{
    const struct gpt_shape *s = &p->m->options.shape;

    a->rows = (int)p->rows;
    a->cols = s->mlp / p->m->n;
    crew_run(s->gated ? some_gates : some_columns, a, (size_t)a->cols, 64);
}

void gpt_activation(const struct pass *p, int layer, const struct layer_memory *memory)
{
    float *const *s = memory->saved;

    activate(p, &(struct activation){.bias = block_tensor(p->m, layer, UP_BIAS), .out = s[GELU], .up = s[UP]});
}

void gpt_activation_backward(const struct pass *p, int layer, const struct layer_memory *memory)
{
    struct gpt_tensor *bias = block_tensor(p->m, layer, UP_BIAS);

    activate(p, &(struct activation){.bias  = bias,
                                     .out   = memory->late[D_UP],
                                     .dbias = gpt_vector_gradient(p, bias),
                                     .up    = memory->saved[UP],
                                     .dy    = p->m->work[D_GATED]});
}

static int mixer_forward(const struct pass *p, int layer, const struct layer_memory *memory)
{
    struct gpt              *m   = p->m;
    float *const            *s   = memory->saved;
    const struct gpt_tensor *qkv = block_tensor(m, layer, QKV_WEIGHT), *mix = block_tensor(m, layer, MIX_WEIGHT);
    const hkt_linear_t       column = gpt_linear(p, qkv, false), row = gpt_linear(p, mix, false);
    const struct norm        norm = gpt_norm(p, block_tensor(m, layer, LN1_GAIN), s[INPUT], s[MEAN1], s[RSTD1]);
    struct gpt_attention     a    = gpt_attention(p, layer, memory);

    kernels->norm(s[NORM1], &norm);
    TRY(hkt_column_forward(s[QKV], s[NORM1], &column, m->split));
    kernels->add_bias(s[QKV], block_tensor(m, layer, QKV_BIAS)->weight, (int)p->rows, qkv->own_rows);
    gpt_rotate(p, s[QKV], 1);
    TRY(hkt_context_forward(&a.own, &a, m->ring));
    TRY(hkt_row_forward(m->work[NARROW], s[MIXED], &row, m->split));
    gpt_drop_rows(
        p, s[MIDDLE],
        &(struct drop_rows){m->work[NARROW], block_tensor(m, layer, MIX_BIAS)->weight, s[INPUT], layer, DROP_MIX});
    return HKT_OK;
}

static int mlp_forward(const struct pass *p, int layer, const struct layer_memory *memory, float *output)
{
    struct gpt              *m  = p->m;
    float *const            *s  = memory->saved;
    const struct gpt_tensor *up = block_tensor(m, layer, UP_WEIGHT), *down = block_tensor(m, layer, DOWN_WEIGHT);
    const hkt_linear_t       column = gpt_linear(p, up, false), row = gpt_linear(p, down, false);
    const struct norm        norm = gpt_norm(p, block_tensor(m, layer, LN2_GAIN), s[MIDDLE], s[MEAN2], s[RSTD2]);

    kernels->norm(s[NORM2], &norm);
    TRY(hkt_column_forward(s[UP], s[NORM2], &column, m->split));
    gpt_activation(p, layer, memory);
    if (!output)
        return HKT_OK;
    TRY(hkt_row_forward(m->work[NARROW], s[GELU], &row, m->split));
    gpt_drop_rows(
        p, output,
        &(struct drop_rows){m->work[NARROW], block_tensor(m, layer, DOWN_BIAS)->weight, s[MIDDLE], layer, DROP_MLP});
    return HKT_OK;
}

int gpt_layer_forward(const struct pass *p, int layer, const struct layer_memory *memory, float *output)
{
    TRY(mixer_forward(p, layer, memory));
    return mlp_forward(p, layer, memory, output);
}

/* What the arrays of a batch say must be within what the model was made for. */
static int check_places(const struct pass *p)
{
    const struct gpt       *m = p->m;
    const struct gpt_batch *b = p->batch;

    for (size_t i = 0; i < p->rows; i++) {
        const int32_t here  = (int32_t)gpt_place(p, i);
        const bool    first = i % (size_t)b->length == 0;

        if (b->position && (b->position[i] < 0 || b->position[i] >= m->options.shape.length))
            return hkt_error_set(HKT_ERR_ARGUMENT, "position %d of row %zu is outside of the length %d",
                                 (int)b->position[i], i, m->options.shape.length);
        if (b->start && (b->start[i] < 0 || b->start[i] > here || (!first && b->start[i] < b->start[i - 1])))
            return hkt_error_set(HKT_ERR_ARGUMENT,
                                 "row %zu: its document starts at place %d of the sequence, after it or before the "
                                 "document of the row before",
                                 i, (int)b->start[i]);
    }
    return HKT_OK;
}

int gpt_pass(struct pass *p, struct gpt *m, int slot, const struct gpt_batch *b)
{
    const size_t n = m->options.sequence ? (size_t)m->n : 1, rows = (size_t)b->count * (size_t)b->length;
    const int    longest = m->options.shape.length / m->ranks, chunks = m->ranks > 1 ? 2 : 1;

    if (slot < 0 || slot >= m->options.slots)
        return hkt_error_set(HKT_ERR_ARGUMENT, "slot %d of %d", slot, m->options.slots);
    if (b->count < 1 || b->length < 1 || b->length > longest || b->count > m->options.batch || rows % n ||
        b->length % chunks)
        return hkt_error_set(
            HKT_ERR_ARGUMENT,
            "a micro-batch of %d sequences of %d own tokens: the model was made for at most %d of %d, for multiples of "
            "%zu rows, and for sequences in %d chunk(s)",
            b->count, b->length, m->options.batch, longest, n, chunks);
    *p = (struct pass){m, b, &m->slot[slot], rows, rows / n, m->options.sequence ? rows / n * (size_t)m->me : 0, false};
    return check_places(p);
}

size_t gpt_boundary(const struct gpt *m, const struct gpt_batch *b)
{
    const size_t floats = (size_t)b->count * (size_t)b->length * (size_t)m->options.shape.width;

    return m->options.sequence ? floats / (size_t)m->n : floats;
}

int gpt_forward(struct gpt *m, int slot, const struct gpt_batch *b, const struct gpt_ends *ends)
{
    const int   first = m->options.first, last = m->options.last;
    struct pass p;
    float      *target;

    TRY(gpt_pass(&p, m, slot, b));
    p.train = ends->mode == GPT_TRAIN;
    target  = first < last ? p.slot->layer[0].saved[INPUT] : m->head ? m->work[STREAM] : ends->output;
    if (m->embedding)
        TRY(gpt_embedding_forward(&p, target));
    else
        memcpy(target, ends->input, gpt_boundary(m, b) * sizeof(float));
    for (int layer = first; layer < last; layer++) {
        const int at = layer - first;

        target = layer + 1 < last ? p.slot->layer[at + 1].saved[INPUT] : m->head ? m->work[STREAM] : ends->output;
        TRY(gpt_hook(m->options.hooks.fetch, m, m->block + at * m->per_block, m->per_block));
        TRY(gpt_layer_forward(&p, layer, &p.slot->layer[at], target));
        TRY(gpt_hook(m->options.hooks.release, m, m->block + at * m->per_block, m->per_block));
    }
    return m->head ? gpt_head_forward(&p, ends->mode, ends->loss) : HKT_OK;
}
