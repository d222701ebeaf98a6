/* pipeline_time.c -- when a schedule computes what: the pure model that the planner asks and that programs are laid out
 * by.
 *
 * A stage begins an op when it has ended the one before and the op's input has come; a message leaves when its op has
 * ended and the link is free. There is nothing to decide, so the order in which stages are looked at does not matter:
 * each is taken as far as its inputs are known, round after round. Orders that wait in a circle would stop that; they
 * are found, not walked into. */
#include <parallel/pipeline.h>

#include <string.h>

/* Times of arrival by virtual stage and micro-batch; negative: not yet. */
struct model {
    const struct hkt_order     *order;
    const hkt_pipeline_times_t *times;
    double                     *begin, *end;
    double                     *input, *gradient; /* [virtual stages * micros] */
    double                     *link[2];          /* [stages]: when the link behind stage r is free, by direction */
    size_t                     *next;             /* [stages] */
    void                       *memory;
};

double hkt_pipeline_seconds(const hkt_pipeline_times_t *times, const hkt_pipeline_shape_t *shape, hkt_action_t action,
                            int virtual_stage)
{
    const double forward  = times ? times->forward[virtual_stage] : 1.0 / shape->chunks;
    const double backward = times ? times->backward[virtual_stage] : 2.0 / shape->chunks;
    const double weight   = times && times->weight ? times->weight[virtual_stage] : backward / 2;

    switch (action) {
    case HKT_DO_FORWARD:
        return forward;
    case HKT_DO_BACKWARD:
        return backward;
    case HKT_DO_BACKWARD_INPUT:
        return backward - weight;
    case HKT_DO_BACKWARD_WEIGHT:
        return weight;
    default:
        return 0;
    }
}

/* When the input of an op has come; negative: not known yet. That of a weight gradient is its own stage's. */
static double ready(const struct model *m, const hkt_instruction_t *op, int virtual_stage)
{
    const size_t at = (size_t)virtual_stage * (size_t)m->order->shape.micros + (size_t)op->micro;

    return op->action == HKT_DO_FORWARD ? m->input[at] : op->action == HKT_DO_BACKWARD_WEIGHT ? 0 : m->gradient[at];
}

/* Sends what an op that has ended gives to the neighbour; virtual stage k's link is the one behind stage k % p. */
static void deliver(struct model *m, const hkt_instruction_t *op, int virtual_stage, double end)
{
    const hkt_pipeline_shape_t *s       = &m->order->shape;
    const bool                  forward = op->action == HKT_DO_FORWARD;
    const int                   to      = virtual_stage + (forward ? 1 : -1);
    const int                   link    = (forward ? virtual_stage : to) % s->stages;
    double                     *arrival = forward ? m->input : m->gradient, *is_free;

    if (op->action == HKT_DO_BACKWARD_WEIGHT || to < 0)
        return;
    if (to > hkt_last_virtual_stage(s)) { /* the loss: the stage's own gradient */
        m->gradient[(size_t)virtual_stage * (size_t)s->micros + (size_t)op->micro] = end;
        return;
    }
    is_free  = &m->link[forward ? 0 : 1][link];
    *is_free = (*is_free > end ? *is_free : end) + (m->times && m->times->send ? m->times->send[link] : 0);
    arrival[(size_t)to * (size_t)s->micros + (size_t)op->micro] = *is_free;
}

/* Takes a stage as far as its inputs are known; true: it got on. */
static bool advance(struct model *m, int stage)
{
    const size_t each  = m->order->each;
    bool         moved = false;

    while (m->next[stage] < each) {
        const size_t             i  = (size_t)stage * each + m->next[stage];
        const hkt_instruction_t *op = &m->order->op[i];
        const int                vs = hkt_virtual_stage(&m->order->shape, stage, op->chunk);
        const double             in = ready(m, op, vs), before = m->next[stage] ? m->end[i - 1] : 0;

        if (in < 0)
            return moved;
        m->begin[i] = in > before ? in : before;
        m->end[i]   = m->begin[i] + hkt_pipeline_seconds(m->times, &m->order->shape, op->action, vs);
        deliver(m, op, vs, m->end[i]);
        m->next[stage]++;
        moved = true;
    }
    return moved;
}

static int take_tables(struct model *m)
{
    const hkt_pipeline_shape_t *s = &m->order->shape;
    const size_t pairs = (size_t)s->stages * (size_t)s->chunks * (size_t)s->micros, stages = (size_t)s->stages;
    double      *at;

    TRY(hkt_ledger_take(&m->memory, (2 * pairs + 2 * stages) * sizeof(double) + stages * sizeof(size_t),
                        HKT_BYTES_OTHER, false, NULL));
    at          = m->memory;
    m->input    = at;
    m->gradient = at + pairs;
    m->link[0]  = at + 2 * pairs;
    m->link[1]  = m->link[0] + stages;
    m->next     = (size_t *)(m->link[1] + stages);
    for (size_t i = 0; i < 2 * pairs; i++)
        at[i] = i < (size_t)s->micros ? 0 : -1; /* the first virtual stage has its input */
    return HKT_OK;
}

int hkt_order_time(double *begin, double *end, const struct hkt_order *order, const hkt_pipeline_times_t *times)
{
    struct model m     = {.order = order, .times = times, .begin = begin, .end = end};
    bool         moved = true;
    int          rc    = HKT_OK;

    TRY(take_tables(&m));
    while (moved) {
        moved = false;
        for (int stage = 0; stage < order->shape.stages; stage++)
            moved |= advance(&m, stage);
    }
    for (int stage = 0; stage < order->shape.stages && !rc; stage++)
        if (m.next[stage] < order->each)
            rc = hkt_error_set(
                HKT_ERR_INTERNAL,
                "the schedule %s with %d stages, %d chunks and %d micro-batches waits for itself at stage %d",
                hkt_pipeline_name(order->shape.kind), order->shape.stages, order->shape.chunks, order->shape.micros,
                stage);
    (void)hkt_ledger_give(m.memory, NULL);
    return rc;
}

/* ---- the public part --------------------------------------------------------------------------------------------- */

static int check_times(const hkt_pipeline_shape_t *s, const hkt_pipeline_times_t *t)
{
    if (!t)
        return HKT_OK;
    if (!t->forward || !t->backward)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_pipeline_simulate: times.%s is NULL",
                             t->forward ? "backward" : "forward");
    for (int k = 0; k <= hkt_last_virtual_stage(s); k++) {
        const double weight = t->weight ? t->weight[k] : 0;

        if (!(t->forward[k] >= 0) || !(t->backward[k] >= 0) || !(weight >= 0) || weight > t->backward[k])
            return hkt_error_set(HKT_ERR_ARGUMENT,
                                 "hkt_pipeline_simulate: virtual stage %d takes %g forward, %g backward, %g of it for "
                                 "weights; times are 0 or more, "
                                 "and the weights' part is no more than all",
                                 k, t->forward[k], t->backward[k], weight);
    }
    for (int r = 0; t->send && r < s->stages; r++)
        if (!(t->send[r] >= 0))
            return hkt_error_set(HKT_ERR_ARGUMENT,
                                 "hkt_pipeline_simulate: a message behind stage %d takes %g; 0 or more", r, t->send[r]);
    return HKT_OK;
}

static hkt_pipeline_stage_t look_at(const struct hkt_order *order, int stage, const double *begin, const double *end)
{
    const hkt_action_t last = order->shape.kind == HKT_PIPELINE_ZERO_BUBBLE ? HKT_DO_BACKWARD_WEIGHT : HKT_DO_BACKWARD;
    hkt_pipeline_stage_t seen = {.warm_up = order->warm_up[stage]};
    int                  kept = 0;

    for (size_t i = (size_t)stage * order->each; i < ((size_t)stage + 1) * order->each; i++) {
        const hkt_action_t action = order->op[i].action;

        seen.busy += end[i] - begin[i];
        kept += (action == HKT_DO_FORWARD) - (action == last);
        seen.peak = kept > seen.peak ? kept : seen.peak;
    }
    if (order->shape.kind == HKT_PIPELINE_FORWARD)
        seen.peak = 1; /* nothing is kept */
    return seen;
}

static int simulate(hkt_pipeline_timing_t *timing, hkt_pipeline_stage_t *stages, const struct hkt_order *order,
                    const hkt_pipeline_times_t *times)
{
    const size_t          n      = (size_t)order->shape.stages * order->each;
    hkt_pipeline_timing_t found  = {0};
    void                 *memory = NULL;
    double               *begin, *end;
    int                   rc;

    TRY(hkt_ledger_take(&memory, 2 * n * sizeof(double), HKT_BYTES_OTHER, false, NULL));
    begin = memory;
    end   = begin + n;
    rc    = hkt_order_time(begin, end, order, times);
    for (int stage = 0; stage < order->shape.stages && !rc; stage++) {
        const hkt_pipeline_stage_t seen = look_at(order, stage, begin, end);
        const double               last = end[((size_t)stage + 1) * order->each - 1];

        found.total = last > found.total ? last : found.total;
        found.ideal = seen.busy > found.ideal ? seen.busy : found.ideal;
        if (stages)
            stages[stage] = seen;
    }
    (void)hkt_ledger_give(memory, NULL);
    if (rc)
        return rc;
    found.bubble = found.ideal > 0 ? (found.total - found.ideal) / found.ideal : 0;
    *timing      = found;
    return HKT_OK;
}

int hkt_pipeline_simulate(hkt_pipeline_timing_t *timing, hkt_pipeline_stage_t *stages,
                          const hkt_pipeline_shape_t *shape, const hkt_pipeline_times_t *times)
{
    struct hkt_order order;
    int              rc;

    if (!timing)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_pipeline_simulate: timing is NULL");
    TRY(hkt_pipeline_validate(shape));
    TRY(check_times(shape, times));
    rc = hkt_order_make(&order, shape);
    if (!rc)
        rc = simulate(timing, stages, &order, times);
    hkt_order_free(&order);
    return rc;
}
