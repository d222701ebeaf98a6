/* gpt_layout.c -- which tensors a part of the GPT has, what this rank holds of each, what they start as, and which
 * shapes can be split at all. Leaves activations to gpt_memory.c.
 */
#include "crew.h"
#include "gpt_inside.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 16 /* floats; tensors start on a cache line */ };

/* ---- rules */

struct rules {
    char text[900];
    int  broken;
};

__attribute__((format(printf, 3, 4))) static void rule(struct rules *r, bool holds, const char *format, ...)
{
    const size_t used = strlen(r->text);
    va_list      arguments;

    if (holds)
        return;
    r->broken++;
    if (used + 2 >= sizeof(r->text))
        return;
    memcpy(r->text + used, used ? "; " : "", used ? 3 : 1);
    va_start(arguments, format);
    vsnprintf(r->text + strlen(r->text), sizeof(r->text) - strlen(r->text), format, arguments);
    va_end(arguments);
}

static void divides(struct rules *r, const char *what, int value, int by, const char *who)
{
    rule(r, by > 0 && value % by == 0, "%s %d is no multiple of %d (%s): %d and %d are", what, value, by, who,
         by > 0 ? value / by * by : 0, by > 0 ? (value / by + 1) * by : 0);
}

int gpt_check(const struct gpt_options *o, int n, int c)
{
    const struct gpt_shape *s     = &o->shape;
    struct rules            r     = {{0}, 0};
    const int               parts = o->slices ? o->slices : n;
    const char             *who   = o->slices ? "slices" : "tensor-parallel size";

    rule(&r, s->layers > 0 && s->width > 0 && s->heads > 0 && s->mlp > 0 && s->length > 0 && s->vocabulary > 0,
         "layers, hidden size, heads, MLP size, length and vocabulary must be positive");
    rule(&r, s->groups >= 0, "%d query groups", s->groups);
    rule(&r, 0 <= o->first && o->first <= o->last && o->last <= s->layers, "layers %d to %d of %d: the part is none",
         o->first, o->last, s->layers);
    rule(&r, o->batch > 0 && o->slots > 0, "micro-batches of %d sequences, %d in flight: both must be positive",
         o->batch, o->slots);
    if (r.broken == 0) {
        divides(&r, "hidden size", s->width, s->heads, "attention heads");
        divides(&r, "attention heads", s->heads, parts, who);
        if (s->groups)
            divides(&r, "attention heads", s->heads, s->groups, "query groups");
        if (s->groups && s->groups != s->heads)
            divides(&r, "query groups", s->groups, parts, who);
        rule(&r, !s->gated || !o->slices, "SwiGLU does not sum over slices");
        divides(&r, "MLP size", s->mlp, parts, who);
        divides(&r, "padded vocabulary", s->padded, parts, who);
        rule(&r, s->vocabulary <= s->padded, "vocabulary %d is larger than its padded size %d", s->vocabulary,
             s->padded);
        if (c > 1)
            divides(&r, "sequence length", s->length, 2 * c, "context-parallel size, in two chunks a rank");
        if (o->sequence)
            divides(&r, "sequence length", s->length, n * c,
                    c > 1 ? "tensor-parallel size, with sequence parallelism, times context-parallel size"
                          : "tensor-parallel size, with sequence parallelism");
        rule(&r, s->positions != GPT_ROTARY || s->width / s->heads % 2 == 0,
             "rotary positions need heads of even size, not %d", s->width / s->heads);
        rule(&r, s->dropout >= 0 && s->dropout < 1 && s->attention_dropout >= 0 && s->attention_dropout < 1,
             "dropout %g and attention dropout %g must lie in [0, 1)", s->dropout, s->attention_dropout);
    }
    return r.broken ? hkt_error_set(HKT_ERR_ARGUMENT, "this model cannot be: %s", r.text) : HKT_OK;
}

/* ---- tensors */

struct wanted {
    const char *name;
    int         rows, cols;
    enum split  split;
};

static int add_tensor(struct gpt *m, struct wanted w)
{
    struct gpt_tensor *t = &m->tensor[m->tensors];

    *t = (struct gpt_tensor){
        .rows = w.rows, .cols = w.cols, .own_rows = w.rows, .own_cols = w.cols, .blocks = 1, .offset = m->floats};
    snprintf(t->name, sizeof(t->name), "%s", w.name);
    if (w.split == ROWS_OF_HALVES || w.split == COLS_OF_HALVES)
        t->blocks = 2;
    if (w.split == BY_ROWS || w.split == ROWS_OF_HALVES) {
        t->own_rows  = w.rows / m->n;
        t->first_row = t->own_rows / t->blocks * m->me;
    }
    if (w.split == BY_COLS || w.split == COLS_OF_HALVES) {
        t->own_cols  = w.cols / m->n;
        t->first_col = t->own_cols / t->blocks * m->me;
    }
    t->flags = (w.rows == 1 ? HKT_PARAMETER_NO_DECAY : 0u) | (w.split == WHOLE ? HKT_PARAMETER_REPLICATED : 0u);
    m->floats += ((size_t)t->own_rows * (size_t)t->own_cols + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return m->tensors++;
}

static void add_block(struct gpt *m, int layer)
{
    const struct gpt_shape *s     = &m->options.shape;
    const bool              gated = s->gated, rms = s->rms, biased = !s->unbiased;
    const int               C = s->width, F = s->mlp, U = gated ? 2 * F : F, Q = (int)gpt_qkv(m).row * m->n;
    const int               first = m->tensors;
    char                    name[48];

#define BLOCK_ADD(id, text, rows, cols, split, has)                                                                    \
    snprintf(name, sizeof(name), "h.%d." text, layer);                                                                 \
    m->in_block[id] = (has) ? add_tensor(m, (struct wanted){name, rows, cols, split}) - first : -1;
    BLOCK_TENSORS(BLOCK_ADD)
#undef BLOCK_ADD
    m->per_block = m->tensors - first;
}

static int add_norm(struct gpt *m, const char *what)
{
    const int C = m->options.shape.width;
    char      name[48];
    int       gain;

    snprintf(name, sizeof(name), "%s.weight", what);
    gain = add_tensor(m, (struct wanted){name, 1, C, WHOLE});
    snprintf(name, sizeof(name), "%s.bias", what);
    if (!m->options.shape.rms)
        add_tensor(m, (struct wanted){name, 1, C, WHOLE});
    return gain;
}

static int lay_out(struct gpt *m)
{
    const struct gpt_shape *s = &m->options.shape;
    const int               C = s->width, layers = m->options.last - m->options.first;
    const bool              tied = !s->untied;

    m->tensor = calloc((size_t)(layers * BLOCK_MOST + 8), sizeof(*m->tensor));
    if (!m->tensor)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for the list of %d layers", layers);
    m->tokens = m->positions = m->embedding_gain = m->last_gain = m->head_table = -1;
    if (m->embedding) {
        m->tokens = add_tensor(m, (struct wanted){"wte.weight", s->padded, C, BY_ROWS});
        if (s->positions == GPT_LEARNED)
            m->positions = add_tensor(m, (struct wanted){"wpe.weight", s->length, C, WHOLE});
        if (m->embedding_norm) {
            m->embedding_gain = add_norm(m, "ln_emb");
        }
    }
    m->block = m->tensors;
    for (int layer = m->options.first; layer < m->options.last; layer++)
        add_block(m, layer);
    if (m->head) {
        m->last_gain  = add_norm(m, "ln_f");
        m->head_table = m->tokens;
        if (!tied || !m->embedding)
            m->head_table =
                add_tensor(m, (struct wanted){tied ? "wte.weight" : "lm_head.weight", s->padded, C, BY_ROWS});
    }
    if (tied && m->embedding && !m->head)
        m->tensor[m->tokens].flags |= HKT_PARAMETER_SHARED;
    if (tied && m->head && !m->embedding)
        m->tensor[m->head_table].flags |= HKT_PARAMETER_SHARED | HKT_PARAMETER_COPY;
    return HKT_OK;
}

struct gpt_tensor *gpt_tensors(struct gpt *m, int *count)
{
    *count = m->tensors;
    return m->tensor;
}

size_t gpt_floats(const struct gpt *m)
{
    return m->floats;
}

double gpt_parameters(const struct gpt *m)
{
    double sum = 0;

    for (int i = 0; i < m->tensors; i++) {
        const struct gpt_tensor *t    = &m->tensor[i];
        const bool               rows = i == m->tokens || i == m->head_table;

        if (!(t->flags & HKT_PARAMETER_COPY))
            sum += (double)(rows ? m->options.shape.vocabulary : t->rows) * t->cols;
    }
    return sum;
}

void gpt_bind(struct gpt *m, float *weight, float *gradient)
{
    for (int i = 0; i < m->tensors; i++) {
        m->tensor[i].weight   = weight + m->tensor[i].offset;
        m->tensor[i].gradient = gradient + m->tensor[i].offset;
    }
}

static bool ends_with(const char *text, const char *end)
{
    const size_t a = strlen(text), b = strlen(end);

    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Matrices normal, the two that write to the residual stream narrower (so that its variance does not grow with depth,
 * as in GPT-2); gains one; the rest zero. */
static void draw(const struct gpt *m, const struct gpt_tensor *t, int true_rows)
{
    const hkt_random_t random    = hkt_random_named(m->options.seed, t->name);
    const double       deviation = m->options.shape.deviation;
    const double       narrower  = ends_with(t->name, "c_proj.weight") ? sqrt(2.0 * m->options.shape.layers) : 1;
    const size_t       cols      = (size_t)t->own_cols;

    for (int i = 0; i < t->own_rows; i++) {
        float    *row  = t->weight + (size_t)i * cols;
        const int here = t->rows == 1 ? 0 : gpt_global(i, t->first_row, t->own_rows, t);

        if (t->rows == 1)
            for (size_t j = 0; j < cols; j++)
                row[j] = ends_with(t->name, ".weight") ? 1 : 0;
        else if (here < true_rows)
            hkt_random_fill_normal(row, random, (uint64_t)here * (uint64_t)t->cols + (uint64_t)t->first_col, cols,
                                   deviation / narrower);
        else
            memset(row, 0, cols * sizeof(float));
    }
}

void gpt_draw(struct gpt *m)
{
    for (int i = 0; i < m->tensors; i++)
        draw(m, &m->tensor[i], i == m->tokens || i == m->head_table ? m->options.shape.vocabulary : m->tensor[i].rows);
}

/* ---- making a part */

/* Slopes of ALiBi (Press et al. 2021): 2^(-8 i / a) for a power of two; else those of the power below, and between them
 * every other one of the power above. By global head, so that a split changes nothing. */
static double slope_of(int head, int heads)
{
    int power = 1;

    while (2 * power <= heads)
        power *= 2;
    return head < power ? exp2(-8.0 * (head + 1) / power) : exp2(-4.0 * (2 * (head - power) + 1) / power);
}

static int take(float **memory, size_t floats, const struct gpt *m)
{
    void *taken;

    TRY(hkt_ledger_take(&taken, floats * sizeof(float), HKT_BYTES_OTHER, false, m->options.ledger));
    *memory = taken;
    return HKT_OK;
}

static int positions_create(struct gpt *m)
{
    const struct gpt_shape *s    = &m->options.shape;
    const int               half = s->width / s->heads / 2, own = s->heads / m->n;
    const size_t            count = (size_t)s->length * (size_t)half;

    if (s->positions == GPT_ROTARY) {
        TRY(take(&m->cosine, count, m));
        TRY(take(&m->sine, count, m));
        for (size_t i = 0; i < count; i++) {
            const double angle = (double)(i / (size_t)half) * pow(10000.0, -(double)(i % (size_t)half) / half);

            m->cosine[i] = (float)cos(angle);
            m->sine[i]   = (float)sin(angle);
        }
    }
    if (s->positions == GPT_ALIBI) {
        TRY(take(&m->slope, (size_t)own, m));
        for (int h = 0; h < own; h++)
            m->slope[h] = (float)slope_of(m->me * own + h, s->heads);
    }
    return HKT_OK;
}

static int product(hkt_view_t c, hkt_view_t a, hkt_view_t b, bool keep, void *arg)
{
    (void)arg;
    matrix_linear(c, a, b, keep);
    return HKT_OK;
}

static int groups_create(struct gpt *m)
{
    hkt_tensor_config_t config = HKT_TENSOR_CONFIG_INIT;

    config.comm     = m->options.comm;
    config.sequence = m->options.sequence;
    config.overlap  = m->options.overlap;
    config.slices   = m->options.slices;
    config.product  = product;
    config.ledger   = m->options.ledger;
    TRY(hkt_tensor_create(&m->split, &config));
    config.comm     = NULL;
    config.sequence = false;
    config.slices   = m->options.slices / m->n;
    return hkt_tensor_create(&m->local, &config);
}

static int fill(struct gpt *m)
{
    TRY(groups_create(m));
    TRY(gpt_ring_create(m));
    TRY(lay_out(m));
    TRY(positions_create(m));
    return gpt_memory_create(m);
}

static int place_in(hkt_comm_t *comm, int *n, int *me)
{
    if (!comm)
        return HKT_OK;
    TRY(hkt_comm_size(comm, n));
    return hkt_comm_rank(comm, me);
}

int gpt_create(struct gpt **model, const struct gpt_options *options)
{
    int         n = 1, me = 0, ranks = 1, rank = 0, rc;
    struct gpt *m;

    TRY(place_in(options->comm, &n, &me));
    TRY(place_in(options->context, &ranks, &rank));
    TRY(gpt_check(options, n, ranks));
    m = calloc(1, sizeof(*m));
    if (!m)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for a model");
    m->options              = *options;
    m->options.shape.groups = options->shape.groups ? options->shape.groups : options->shape.heads;
    m->options.apart &= options->recompute != GPT_FULL; /* what is made again does not last until then */
    m->n              = n;
    m->me             = me;
    m->ranks          = ranks;
    m->rank           = rank;
    m->threads        = crew_size();
    m->embedding      = options->first == 0;
    m->head           = options->last == options->shape.layers;
    m->embedding_norm = m->embedding && options->shape.embedding_norm;
    rc                = fill(m);
    if (rc < 0) {
        gpt_destroy(m);
        return rc;
    }
    *model = m;
    return HKT_OK;
}

void gpt_destroy(struct gpt *m)
{
    if (!m)
        return;
    gpt_memory_destroy(m);
    hkt_ledger_give(m->slope, m->options.ledger);
    hkt_ledger_give(m->sine, m->options.ledger);
    hkt_ledger_give(m->cosine, m->options.ledger);
    hkt_context_destroy(m->ring);
    hkt_tensor_destroy(m->local);
    hkt_tensor_destroy(m->split);
    free(m->tensor);
    free(m);
}
