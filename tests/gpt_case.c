/* gpt_case.c -- see gpt_case.h. */
#include "gpt_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct gpt_options tiny(void)
{
    return (struct gpt_options){.shape   = {.layers     = LAYERS,
                                            .width      = WIDTH,
                                            .heads      = HEADS,
                                            .mlp        = 4 * WIDTH,
                                            .length     = LENGTH,
                                            .vocabulary = VOCABULARY,
                                            .padded     = PADDED,
                                            .deviation  = 0.1},
                                .first   = 0,
                                .last    = LAYERS,
                                .batch   = BATCH,
                                .slots   = 1,
                                .overlap = true,
                                .seed    = 1234};
}

/* The tokens of sequence `s` of a step, as if a data set gave them: learnable, for each follows from the one before. */
static void fill_tokens(int32_t *token, int32_t *target, uint64_t step, int first, int count)
{
    for (int s = 0; s < count; s++) {
        const hkt_random_t r = hkt_random_at(99, step, (uint32_t)(first + s), 0, 0);

        for (int t = 0; t < LENGTH; t++) {
            token[s * LENGTH + t]  = (int32_t)(hkt_random_bits(r, (uint64_t)t) % VOCABULARY);
            target[s * LENGTH + t] = (token[s * LENGTH + t] * 5 + 1) % VOCABULARY;
        }
    }
}

enum matrix_numbers numbers = MATRIX_FP32;

void machine_begin(struct machine *a, const struct gpt_options *options)
{
    matrix_begin(numbers);
    kernels_choose();
    expect_ok(gpt_create(&a->model, options));
    a->floats   = gpt_floats(a->model);
    a->weight   = take_floats(a->floats);
    a->gradient = take_floats(a->floats);
    a->mean     = take_floats(a->floats);
    a->square   = take_floats(a->floats);
    gpt_bind(a->model, a->weight, a->gradient);
    gpt_draw(a->model);
}

void machine_end(struct machine *a)
{
    gpt_destroy(a->model);
    free(a->weight), free(a->gradient), free(a->mean), free(a->square);
}

static void update(struct machine *a, int step)
{
    hkt_adamw_t w = HKT_ADAMW_INIT;

    w.rate  = 3e-3;
    w.beta2 = 0.95;
    w.decay = 0.1;
    expect_ok(
        hkt_adamw(&w, (uint64_t)step, 1, &(hkt_adamw_state_t){a->weight, a->mean, a->square, a->gradient}, a->floats));
}

void micro_batch(struct micro *m, int step, int i, int of, int count)
{
    fill_tokens(m->token, m->target, (uint64_t)step, i * count, count);
    m->batch = (struct gpt_batch){.count    = count,
                                  .length   = LENGTH,
                                  .token    = m->token,
                                  .target   = m->target,
                                  .step     = (uint64_t)step,
                                  .sequence = (uint32_t)(i * count),
                                  .scale    = 1.0f / (float)(of * count * LENGTH),
                                  .keep     = i > 0,
                                  .final    = i == of - 1};
}

double train_step(struct machine *a, int step, int of, int count)
{
    struct micro m;
    double       sum = 0, loss;

    for (int i = 0; i < of; i++) {
        micro_batch(&m, step, i, of, count);
        expect_ok(gpt_forward(a->model, 0, &m.batch, &(struct gpt_ends){NULL, NULL, GPT_TRAIN, &loss}));
        expect_ok(gpt_backward(a->model, 0, &m.batch, NULL, NULL));
        expect_ok(gpt_backward_weight(a->model, 0, &m.batch));
        sum += loss;
    }
    update(a, step);
    return sum / (of * count * LENGTH);
}

const struct variant variants[VARIANTS] = {
    {GPT_LEARNED, false, false, 0, 0, false, 0, false, false, false},
    {GPT_LEARNED, true, true, 0.2, 0.1, false, 0, false, false, false},
    {GPT_ROTARY, false, true, 0, 0, true, 0, false, false, false},
    {GPT_ROTARY, true, false, 0.2, 0, false, 0, false, false, false},
    {GPT_ALIBI, true, false, 0, 0, false, 0, false, false, false},
    {GPT_ALIBI, false, true, 0.2, 0, true, 0, false, false, false},
    {GPT_LEARNED, true, false, 0.2, 0.1, true, 0, false, false, false},
    {GPT_ROTARY, false, true, 0, 0, false, 2, true, true, true}, /* a LLaMA */
    {GPT_LEARNED, false, false, 0.2, 0, true, 4, true, false, false},
    {GPT_ROTARY, true, false, 0.2, 0, false, 2, false, true, false},
    {GPT_ALIBI, false, true, 0, 0, true, 2, false, false, true},
};

void apply(struct gpt_options *o, const struct variant *v)
{
    o->shape.positions         = v->positions;
    o->shape.embedding_norm    = v->norm;
    o->shape.untied            = v->untied;
    o->shape.dropout           = v->dropout;
    o->shape.attention_dropout = v->dropout;
    o->shape.smoothing         = v->smoothing;
    o->shape.groups            = v->groups;
    o->shape.gated             = v->gated;
    o->shape.rms               = v->rms;
    o->shape.unbiased          = v->unbiased;
}

void set_documents(int32_t *start, int32_t *position, int cut)
{
    for (int i = 0; i < BATCH * LENGTH; i++) {
        start[i]    = i % LENGTH < cut ? 0 : cut;
        position[i] = i % LENGTH - start[i];
    }
}
