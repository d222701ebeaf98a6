/* engine_step.c -- the passes of a step, of an evaluation, and of one more token; see engine.h. */
#include "engine.h"

#include "clock.h"
#include "stop.h"

#include <string.h>

/* ---- one micro-batch through one part */

static struct gpt_batch batch_of(const struct engine *e, const struct part *p, int micro)
{
    struct gpt_batch b = e->batches->batch[micro];

    b.step  = e->step;
    b.scale = (float)e->scale;
    b.keep  = micro > 0 && !e->each && !p->sum;
    b.final = e->each || p->sum || micro == e->batches->count - 1;
    return b;
}

struct ends {
    const float *in;
    float       *out;
};

static int forward(struct engine *e, int part, int micro, struct ends ends)
{
    struct part           *p     = &e->part[part];
    const double           start = clock_seconds();
    const struct gpt_batch batch = batch_of(e, p, micro);
    const struct gpt_ends  to    = {ends.in, ends.out, e->mode == ENGINE_LOSS ? GPT_LOSS : GPT_TRAIN, &e->loss[micro]};
    int                    rc;

    e->micro = micro;
    rc       = gpt_forward(p->gpt, micro % p->slots, &batch, &to);
    e->times.forward += e->mode == ENGINE_LOSS ? 0 : clock_seconds() - start;
    return rc;
}

static int backward(struct engine *e, int part, int micro, struct ends ends)
{
    struct part           *p     = &e->part[part];
    const double           start = clock_seconds();
    const struct gpt_batch batch = batch_of(e, p, micro);
    int                    rc;

    e->micro = micro;
    rc       = gpt_backward(p->gpt, micro % p->slots, &batch, ends.in, ends.out);
    e->times.backward += clock_seconds() - start;
    return rc;
}

static int backward_weight(struct engine *e, int part, int micro)
{
    struct part           *p     = &e->part[part];
    const double           start = clock_seconds();
    const struct gpt_batch batch = batch_of(e, p, micro);
    int                    rc;

    e->micro = micro;
    rc       = gpt_backward_weight(p->gpt, micro % p->slots, &batch);
    e->times.backward += clock_seconds() - start;
    return rc;
}

/* ---- as callbacks of a pipeline */

static int stage_forward(hkt_pipeline_work_t *w, void *arg)
{
    struct engine *e = arg;

    e->mode = e->mode == ENGINE_LOSS ? ENGINE_LOSS : ENGINE_FORWARD;
    return forward(e, w->chunk, w->micro, (struct ends){w->input, w->output});
}

static int stage_backward(hkt_pipeline_work_t *w, void *arg)
{
    struct engine *e = arg;

    e->mode = ENGINE_BACKWARD;
    return backward(e, w->chunk, w->micro, (struct ends){w->output_gradient, w->input_gradient});
}

static int stage_backward_weight(hkt_pipeline_work_t *w, void *arg)
{
    struct engine *e = arg;

    e->mode = ENGINE_BACKWARD;
    return backward_weight(e, w->chunk, w->micro);
}

/* The pipeline for so many micro-batches: made anew only when a batch ramps up. */
static void make_pipeline(struct engine *e, int micros)
{
    hkt_pipeline_message_t message = {
        HKT_FLOAT32, {(int64_t)gpt_boundary(e->part[0].gpt, &e->batches->batch[0]), 1, 1}, false};

    if (e->pipeline && e->schedule.micros == micros)
        return;
    need(hkt_pipeline_destroy(e->pipeline), "ending the pipeline of another batch");
    e->pipeline        = NULL;
    e->schedule.micros = micros;
    need(hkt_pipeline_create(&e->pipeline, e->pp, &e->schedule, &message, e->ledger), "making the pipeline");
}

static void run_pipeline(struct engine *e)
{
    const hkt_pipeline_calls_t calls = {stage_forward, stage_backward, stage_backward, stage_backward_weight, e};
    hkt_pipeline_trace_t       trace;

    make_pipeline(e, e->batches->count);
    if (e->mode == ENGINE_LOSS) {
        need(hkt_pipeline_evaluate(e->pipeline, &calls), "evaluating");
        return;
    }
    need(hkt_pipeline_run(e->pipeline, &calls), "running the pipeline");
    need(hkt_pipeline_trace(&trace, e->pipeline), "reading the pipeline's times");
    e->times.busy += trace.busy;
    e->times.pipelined += trace.total;
}

/* ---- all micro-batches */

static void run_here(struct engine *e, int micro)
{
    const int  last = e->parts - 1;
    const bool loss = e->mode == ENGINE_LOSS;
    float     *x = e->boundary[0], *dx = e->boundary[1];

    e->mode = loss ? ENGINE_LOSS : ENGINE_FORWARD;
    for (int i = 0; i <= last; i++)
        need(forward(e, i, micro, (struct ends){i > 0 ? x : NULL, i < last ? x : NULL}), "forward");
    if (loss)
        return;
    e->mode = ENGINE_BACKWARD;
    for (int i = last; i >= 0; i--)
        need(backward(e, i, micro, (struct ends){i < last ? dx : NULL, i > 0 ? dx : NULL}), "backward");
}

/* Neighbours first, as the tree over ranks goes on. */
static double sum_in_pairs(double *x, int count)
{
    for (int half = 1; half < count; half *= 2)
        for (int i = 0; i + half < count; i += 2 * half)
            x[i] += x[i + half];
    return x[0];
}

/* Predictions that count in the batches of all ranks. */
static double all_weight(const struct engine *e)
{
    double weight = e->batches->weight;

    if (!e->dp_cp)
        return weight;
    if (!e->batches->batch[0].weight)
        return weight * e->grid.size[HKT_AXIS_DP] * e->grid.size[HKT_AXIS_CP];
    need(hkt_all_reduce(&weight, &weight, 1, HKT_FLOAT64, HKT_SUM, e->dp_cp, NULL), "counting predictions");
    return weight;
}

static void run(struct engine *e)
{
    memset(e->loss, 0, (size_t)e->micros * sizeof(*e->loss));
    if (e->pp) {
        run_pipeline(e);
    } else {
        for (int micro = 0; micro < e->batches->count; micro++) {
            run_here(e, micro);
            if (e->each && e->mode != ENGINE_LOSS)
                need(hkt_zero_next(e->zero), "handing gradients over");
        }
    }
}

/* The sum of the losses of all ranks; not while gradients are being reduced. */
static double all_losses(const struct engine *e)
{
    double sum = sum_in_pairs(e->loss, e->batches->count);

    if (e->dp_cp)
        need(hkt_all_reduce(&sum, &sum, 1, HKT_FLOAT64, HKT_SUM, e->dp_cp, NULL), "adding the losses");
    if (e->pp)
        need(hkt_pipeline_share(&sum, 1, e->pipeline), "sharing the loss");
    return sum;
}

/* ---- a step */

void engine_update(hkt_zero_report_t *report, struct engine *e, double rate)
{
    const struct settings *s       = e->settings;
    const double           start   = clock_seconds();
    hkt_adamw_t            options = HKT_ADAMW_INIT;

    options.rate    = rate;
    options.beta1   = s->beta1;
    options.beta2   = s->beta2;
    options.epsilon = s->epsilon;
    options.decay   = s->decay;
    options.clip    = s->clip;
    options.scale   = e->scaler ? 1 / hkt_scaler_scale(e->scaler) : 1;
    need(hkt_zero_step(report, e->zero, &options), "updating the weights");
    memset(e->fresh, 0, (size_t)e->parameters * sizeof(*e->fresh));
    if (e->scaler)
        need(hkt_scaler_update(e->scaler, report->skipped, report->overflow.tensor), "scaling the loss");
    else if (report->skipped)
        stop("the gradient of %s is no number any more (element %zu on rank %d of its group, step %llu): a lower --lr "
             "or a "
             "longer --lr-warmup-iters helps",
             report->overflow.tensor, report->overflow.element, report->overflow.rank, (unsigned long long)e->step);
    e->times.optimizer += clock_seconds() - start;
    e->times.steps += clock_seconds() - start;
}

double engine_passes(struct engine *e, struct batches *batches)
{
    const struct matrix_work before = matrix_work();
    const double             start  = clock_seconds();
    hkt_overlap_t            overlap;
    double                   weight;

    e->batches = batches;
    e->mode    = ENGINE_FORWARD;
    weight     = all_weight(e);
    e->scale   = (e->scaler ? hkt_scaler_scale(e->scaler) : 1) / weight;
    need(hkt_zero_begin(e->zero, e->each ? batches->count : 1), "beginning a step");
    run(e);
    if (!e->each)
        need(hkt_zero_next(e->zero), "handing gradients over");
    need(hkt_zero_finish(e->zero), "reducing the gradients");
    need(hkt_buckets_overlap(&overlap, hkt_zero_buckets(e->zero)), "reading the reduction's times");
    e->times.in_flight += overlap.in_flight;
    e->times.waited += overlap.waited;
    e->times.products += matrix_work().seconds - before.seconds;
    e->times.operations += matrix_work().operations - before.operations;
    e->times.steps += clock_seconds() - start;
    return all_losses(e) / weight;
}

void engine_evaluate(double sum[2], struct engine *e, struct batches *batches)
{
    e->batches = batches;
    e->mode    = ENGINE_LOSS;
    e->scale   = 1;
    sum[1]     = all_weight(e);
    run(e);
    sum[0] = all_losses(e);
}

/* ---- one more token */

/* What a sequence must be a multiple of to be shared out. */
static size_t unit_of(const struct engine *e)
{
    const size_t n = e->settings->sequence && e->tp ? (size_t)e->settings->tp : 1, c = (size_t)e->settings->cp;

    return c > 1 && n % 2 ? 2 * n * c : n * c;
}

/* Own rows out of the whole sequence's. */
static struct gpt_batch own_window(const struct engine *e, const int32_t *whole, size_t count)
{
    const size_t length = (size_t)e->settings->length, c = (size_t)e->settings->cp, own = length / c;
    int32_t     *part = e->padded + 3 * length;

    for (size_t i = 0; i < count / c; i++)
        for (size_t k = 0; k < 3; k++)
            part[k * own + i] = whole[k * length + hkt_context_place(i, count, e->at[HKT_AXIS_CP], (int)c)];
    return (struct gpt_batch){
        .count = 1, .length = (int)(count / c), .token = part, .position = part + own, .start = part + 2 * own};
}

/* What is missing for that stands in front, as a document of its own. */
static struct gpt_batch window(struct engine *e, const int32_t *token, size_t count)
{
    const size_t unit = unit_of(e), pad = (unit - count % unit) % unit, length = (size_t)e->settings->length;
    int32_t     *padded = e->padded, *position = padded + length, *start = position + length;

    memset(padded, 0, 3 * length * sizeof(*padded));
    memcpy(padded + pad, token, count * sizeof(*padded));
    for (size_t i = 0; i < pad + count; i++) {
        position[i] = (int32_t)(i < pad ? i : i - pad);
        start[i]    = (int32_t)(i < pad ? 0 : pad);
    }
    return own_window(e, padded, pad + count);
}

/* Through the virtual stages in their order, from rank to rank. */
static void walk(struct engine *e, const struct gpt_batch *b)
{
    const int    pp = e->pp ? (int)e->settings->pp : 1, all = e->parts * pp, stage = e->at[HKT_AXIS_PP];
    const size_t floats = gpt_boundary(e->part[0].gpt, b);
    float       *x      = e->boundary[0];

    for (int k = 0; k < all; k++) {
        const struct gpt_ends ends = {k > 0 ? x : NULL, k < all - 1 ? x : NULL, GPT_LOGITS, NULL};

        if (k % pp != stage)
            continue;
        if (e->pp && k > 0)
            need(hkt_recv(x, floats, HKT_FLOAT32, (k - 1) % pp, e->pp, NULL), "receiving activations");
        need(gpt_forward(e->part[k / pp].gpt, 0, b, &ends), "forward");
        if (e->pp && k < all - 1)
            need(hkt_send(x, floats, HKT_FLOAT32, (k + 1) % pp, e->pp, NULL), "sending activations");
    }
}

/* The vocabulary's logits from the rank of `comm` that has them. */
static void share_logits(float *logits, const struct engine *e, int root, hkt_comm_t *comm)
{
    if (comm)
        need(hkt_broadcast(logits, logits, (size_t)e->shape.vocabulary, HKT_FLOAT32, root, comm, NULL),
             "sharing the logits");
}

const float *engine_logits(struct engine *e, const int32_t *token, size_t count)
{
    const struct gpt_batch b      = window(e, token, count);
    const int              last   = (int)e->settings->pp - 1;
    const bool             has    = e->at[HKT_AXIS_PP] == last;
    const float           *logits = NULL;
    float                 *shared = e->boundary[1];

    e->mode = ENGINE_LOSS;
    walk(e, &b);
    if (has) {
        need(gpt_logits(e->part[e->parts - 1].gpt, &b, &logits), "logits");
        memcpy(shared, logits, (size_t)e->shape.vocabulary * sizeof(float));
        share_logits(shared, e, 0, e->cp);
    }
    share_logits(shared, e, last, e->pp);
    return shared;
}
