/* optimizer.h -- AdamW in fp32 over the whole model, with the learning rate's schedule and clipping. */
#ifndef TRAINER_OPTIMIZER_H
#define TRAINER_OPTIMIZER_H

#include "model.h"
#include "settings.h"

struct optimizer {
    float *mean, *square; /* moments; they lie as the weights do */
};

void optimizer_begin(struct optimizer *optimizer, const struct model *model);
void optimizer_end(struct optimizer *optimizer);

/* Linear from 0 to --lr in the warm-up, then a cosine down to --min-lr at the last step. Steps count from 1. */
double optimizer_rate(const struct settings *settings, long step);

/* `norm` is the global norm of the gradient before clipping. */
void optimizer_step(struct optimizer *optimizer, struct model *model, const struct settings *settings, long step,
                    double norm);

#endif
