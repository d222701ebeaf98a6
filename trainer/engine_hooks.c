/* engine_hooks.c -- what the model's passes tell the optimizer: a group of weights is needed, or not for a while, and
 * gradients are complete.
 */
#include "engine.h"

#include "kernels.h"

#include <string.h>

/* ---- weights */

/* Where the optimizer has the weights now; in fp16, a copy of them. */
static int point_weights(struct part *p, int first, int count)
{
    struct engine *e = p->engine;
    int            rc;

    for (int i = first; i < first + count; i++) {
        struct gpt_tensor *t  = &p->tensor[i];
        const int          at = p->first + i;
        void              *weight;

        if (e->group[at] != e->group[p->first + first]) /* a copy: fetched with its original */
            continue;
        if ((rc = hkt_zero_weight(&weight, at, e->zero)) < 0)
            return rc;
        if (!p->weight) {
            t->weight = weight;
            continue;
        }
        t->weight = p->weight + t->offset;
        if (!e->fresh[at] &&
            (rc = hkt_convert(t->weight, HKT_FLOAT32, weight, HKT_FLOAT16, e->parameter[at].count)) < 0)
            return rc;
        e->fresh[at] = true;
    }
    return HKT_OK;
}

static int point_gradients(struct part *p, int first, int count)
{
    int rc;

    for (int i = first; i < first + count; i++) {
        struct gpt_tensor *t = &p->tensor[i];
        void              *gradient;

        if (p->gradient) {
            t->gradient = p->gradient + t->offset;
            continue;
        }
        if ((rc = hkt_zero_gradient(&gradient, p->first + i, p->engine->zero)) < 0)
            return rc;
        t->gradient = gradient;
    }
    return HKT_OK;
}

static bool is_layer(const struct part *p, int tensor)
{
    return strncmp(p->tensor[tensor].name, "h.", 2) == 0;
}

/* Gradients are asked for when they are about to be computed: with --grad-reduce each there are few buckets for them.
 * The head's are computed with its forward pass; the embedding's after those of the first layer. */
static int fetch_gradients(struct part *p, int first, int count)
{
    const struct engine *e      = p->engine;
    const bool           shared = e->parts == 1 && !e->pp && !e->shape.untied; /* the head's table is number 0 */
    int                  rc;

    if (e->mode == ENGINE_LOSS || (e->mode == ENGINE_FORWARD && (is_layer(p, first) || (first == 0 && !shared))))
        return HKT_OK;
    if ((rc = point_gradients(p, first, count)) < 0)
        return rc;
    for (int i = 0; e->mode == ENGINE_BACKWARD && i < first; i++)
        if (is_layer(p, i))
            return HKT_OK;
    return e->mode == ENGINE_BACKWARD ? point_gradients(p, 0, first) : HKT_OK;
}

int engine_hook_fetch(void *arg, int first, int count)
{
    struct part   *p  = arg;
    struct engine *e  = p->engine;
    int            rc = hkt_zero_fetch(e->zero, e->group[p->first + first]);

    if (rc < 0 || (rc = point_weights(p, first, count)) < 0)
        return rc;
    return fetch_gradients(p, first, count);
}

int engine_hook_release(void *arg, int first, int count)
{
    struct part *p = arg;

    (void)count;
    return hkt_zero_release(p->engine->zero, p->engine->group[p->first + first]);
}

/* ---- gradients */

/* Micro-batches are added as the leaves of a binary tree, so that a rank's sum is a subtree of that over all ranks.
 * Level l of `sum` holds 2^l micro-batches that wait for their neighbours. Returns where the sum so far is. */
static float *add_to_tree(struct part *p, const struct gpt_tensor *t, size_t floats, int micro)
{
    const size_t stride = gpt_floats(p->gpt);
    float       *value = t->gradient, *at = p->sum + t->offset;
    int          level = 0;

    for (; micro >> level & 1; level++, at += stride)
        for (size_t i = 0; i < floats; i++)
            value[i] = at[i] + value[i];
    memcpy(at, value, floats * sizeof(float));
    return at;
}

/* What waits below the top, where micro-batches are no power of two. */
static void close_tree(float *sum, struct part *p, const struct gpt_tensor *t, size_t floats, int micros)
{
    const size_t stride = gpt_floats(p->gpt);
    float       *at     = p->sum + t->offset;
    bool         first  = true;

    for (int level = 0; micros >> level; level++, at += stride) {
        if (!(micros >> level & 1))
            continue;
        for (size_t i = 0; i < floats; i++)
            sum[i] = first ? at[i] : at[i] + sum[i];
        first = false;
    }
}

static int hand_over(struct part *p, int tensor)
{
    struct engine           *e      = p->engine;
    const struct gpt_tensor *t      = &p->tensor[tensor];
    const int                at     = p->first + tensor;
    const size_t             floats = e->parameter[at].count;
    const int                micro  = e->micro;
    int                      rc;

    if (p->sum)
        add_to_tree(p, t, floats, micro);
    if (p->sum && micro < e->batches->count - 1)
        return HKT_OK;
    if (p->sum)
        close_tree(t->gradient, p, t, floats, e->batches->count);
    if (p->gradient && (rc = hkt_buckets_add(hkt_zero_buckets(e->zero), at, 0, t->gradient, floats, HKT_FLOAT32)) < 0)
        return rc;
    return hkt_zero_ready(e->zero, at);
}

int engine_hook_ready(void *arg, int first, int count)
{
    struct part *p  = arg;
    int          rc = HKT_OK;

    for (int i = first; i < first + count && rc >= 0; i++)
        rc = hand_over(p, i);
    return rc;
}
