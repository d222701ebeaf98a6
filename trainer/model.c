/* model.c -- where the parameters of the GPT lie, what they start as, and the memory its passes need. Leaves the passes
 * to passes.c. */
#include "model.h"

#include "layers.h"
#include "random.h"
#include "stop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 16 /* floats; tensors start on a cache line */ };

static void add_tensor(struct model *model, const char *name, int rows, int cols)
{
    struct tensor *t = &model->tensor[model->tensors++];

    *t = (struct tensor){.rows = rows, .cols = cols, .offset = model->parameters};
    snprintf(t->name, sizeof(t->name), "%s", name);
    model->unpadded += (size_t)rows * (size_t)cols;
    model->parameters += ((size_t)rows * (size_t)cols + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void model_layout(struct model *model, struct shape shape)
{
    const int C = shape.width, F = shape.mlp;
    char      name[40];

    *model        = (struct model){.shape = shape};
    model->tensor = calloc((size_t)(FIRST_BLOCK + shape.layers * PER_BLOCK + 2), sizeof(*model->tensor));
    if (!model->tensor)
        stop("out of memory for the list of %d layers", shape.layers);
    add_tensor(model, "wte.weight", VOCABULARY, C);
    add_tensor(model, "wpe.weight", shape.length, C);
    for (int layer = 0; layer < shape.layers; layer++) {
#define BLOCK_ADD(id, text, rows, cols)                                                                                \
    snprintf(name, sizeof(name), "h.%d." text, layer);                                                                 \
    add_tensor(model, name, rows, cols);
        BLOCK_TENSORS(BLOCK_ADD)
#undef BLOCK_ADD
    }
    add_tensor(model, "ln_f.weight", 1, C);
    add_tensor(model, "ln_f.bias", 1, C);
}

const struct tensor *model_tensor(const struct model *model, int layer, enum block_tensor which)
{
    return &model->tensor[FIRST_BLOCK + layer * PER_BLOCK + (int)which];
}

static bool ends_with(const char *text, const char *end)
{
    const size_t a = strlen(text), b = strlen(end);

    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Matrices normal, the two that write to the residual stream narrower (so that its variance does not grow with depth,
 * as in GPT-2); gains one; the rest zero. */
static void draw(const struct model *model, uint64_t seed, double deviation)
{
    for (int i = 0; i < model->tensors; i++) {
        const struct tensor *t      = &model->tensor[i];
        float               *w      = model->weight + t->offset;
        const size_t         count  = (size_t)t->rows * (size_t)t->cols;
        struct random_source source = {seed, random_stream(t->name), 0, deviation};

        if (ends_with(t->name, "c_proj.weight"))
            source.deviation /= sqrt(2.0 * model->shape.layers);
        memset(w, 0, count * sizeof(float));
        if (t->rows > 1)
            random_normal(&source, w, count);
        else if (ends_with(t->name, ".weight"))
            for (size_t j = 0; j < count; j++)
                w[j] = 1;
    }
}

static void take_block(struct block_memory *b, size_t rows, const struct shape *s)
{
    const size_t C = (size_t)s->width, F = (size_t)s->mlp;

    *b = (struct block_memory){
        .input   = take_floats(rows * C),
        .norm1   = take_floats(rows * C),
        .mean1   = take_floats(rows),
        .rstd1   = take_floats(rows),
        .qkv     = take_floats(rows * 3 * C),
        .mixed   = take_floats(rows * C),
        .middle  = take_floats(rows * C),
        .norm2   = take_floats(rows * C),
        .mean2   = take_floats(rows),
        .rstd2   = take_floats(rows),
        .up      = take_floats(rows * F),
        .gelu    = take_floats(rows * F),
        .chances = take_floats(rows * (size_t)s->heads * (size_t)s->length),
    };
}

static void give_block(struct block_memory *b)
{
    float *const all[] = {b->input, b->norm1, b->mean1, b->rstd1, b->qkv,  b->mixed,  b->middle,
                          b->norm2, b->mean2, b->rstd2, b->up,    b->gelu, b->chances};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
}

void model_begin(struct model *model, int batch, uint64_t seed, double deviation)
{
    const struct shape *s    = &model->shape;
    const size_t        rows = (size_t)batch * (size_t)s->length, C = (size_t)s->width;
    const size_t        wide = (size_t)(s->mlp > 3 * s->width ? s->mlp : 3 * s->width);

    model->batch = batch;
    model->block = calloc((size_t)s->layers, sizeof(*model->block));
    if (!model->block)
        stop("out of memory for %d layers", s->layers);
    for (int layer = 0; layer < s->layers; layer++)
        take_block(&model->block[layer], rows, s);
    model->back   = (struct backward_memory){.stream  = take_floats(rows * C),
                                             .narrow  = take_floats(rows * C),
                                             .wide    = take_floats(rows * wide),
                                             .chances = take_floats((size_t)ATTENTION_ROWS * (size_t)s->length)};
    model->output = take_floats(rows * C);
    model->norm   = take_floats(rows * C);
    model->mean   = take_floats(rows);
    model->rstd   = take_floats(rows);
    model->logits = take_floats(rows * VOCABULARY);
    draw(model, seed, deviation);
}

void model_end(struct model *model)
{
    for (int layer = 0; model->block && layer < model->shape.layers; layer++)
        give_block(&model->block[layer]);
    free(model->block);
    free(model->back.stream);
    free(model->back.narrow);
    free(model->back.wide);
    free(model->back.chances);
    free(model->output);
    free(model->norm);
    free(model->mean);
    free(model->rstd);
    free(model->logits);
    free(model->tensor);
}
