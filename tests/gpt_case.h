/* gpt_case.h -- a tiny model to test with, what a trainer holds around it, and its batches. */
#ifndef TEST_GPT_CASE_H
#define TEST_GPT_CASE_H

#include "gpt.h"
#include "harness.h"
#include "stop.h"

/* The tiny model of the kit: an odd vocabulary, four layers. */
enum { LAYERS = 4, WIDTH = 64, HEADS = 4, LENGTH = 32, VOCABULARY = 199, PADDED = 256, BATCH = 2, MICRO = 4 };

struct gpt_options tiny(void);

/* What a trainer holds. */
struct machine {
    struct gpt *model;
    float      *weight, *gradient, *mean, *square; /* AdamW's moments */
    size_t      floats;
};

extern enum matrix_numbers numbers; /* of the machines to come */

void machine_begin(struct machine *machine, const struct gpt_options *options);
void machine_end(struct machine *machine);

struct micro {
    int32_t          token[BATCH * LENGTH], target[BATCH * LENGTH];
    struct gpt_batch batch;
};

/* Micro-batch i of `of`, each of `count` sequences. */
void micro_batch(struct micro *m, int step, int i, int of, int count);

/* One step of a machine that has all layers, with AdamW; its mean loss. */
double train_step(struct machine *machine, int step, int of, int count);

/* Options that a model can have. */
struct variant {
    enum gpt_positions positions;
    bool               norm, untied;
    double             dropout, smoothing;
    bool               documents;
    int                groups; /* of heads; 0: as many */
    bool               gated, rms, unbiased;
};
enum { VARIANTS = 11 };
extern const struct variant variants[VARIANTS];
void                        apply(struct gpt_options *options, const struct variant *variant);

/* Two documents in every sequence, cut at row `cut`. */
void set_documents(int32_t *start, int32_t *position, int cut);

#endif
