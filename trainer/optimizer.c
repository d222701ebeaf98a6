/* optimizer.c -- see optimizer.h. */
#include "optimizer.h"

#include "stop.h"

#include <math.h>
#include <stdlib.h>

void optimizer_begin(struct optimizer *o, const struct model *model)
{
    *o = (struct optimizer){take_floats(model->parameters), take_floats(model->parameters)};
}

void optimizer_end(struct optimizer *o)
{
    free(o->mean);
    free(o->square);
}

double optimizer_rate(const struct settings *s, long step)
{
    if (step <= s->warmup)
        return s->rate * (double)step / (double)s->warmup;

    const double done =
        (double)(step - s->warmup) / (double)(s->iterations > s->warmup ? s->iterations - s->warmup : 1);

    return s->least_rate + (s->rate - s->least_rate) * 0.5 * (1 + cos(3.141592653589793 * fmin(done, 1)));
}

void optimizer_step(struct optimizer *o, struct model *model, const struct settings *s, long step, double norm)
{
    struct adamw a = {
        .rate        = (float)optimizer_rate(s, step),
        .beta1       = (float)s->beta1,
        .beta2       = (float)s->beta2,
        .epsilon     = (float)s->epsilon,
        .scale       = s->clip > 0 && norm > s->clip ? (float)(s->clip / norm) : 1.0f,
        .correction1 = (float)(1 - pow(s->beta1, (double)step)),
        .correction2 = (float)(1 - pow(s->beta2, (double)step)),
    };

    for (int i = 0; i < model->tensors; i++) {
        const struct tensor     *t     = &model->tensor[i];
        const struct adamw_state state = {model->weight + t->offset, o->mean + t->offset, o->square + t->offset,
                                          model->gradient + t->offset};

        a.decay = t->rows > 1 ? (float)s->decay : 0;
        kernels->adamw(&a, &state, (size_t)t->rows * (size_t)t->cols);
    }
}
