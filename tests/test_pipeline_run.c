/* test_pipeline_run.c -- pipelines that run: a toy model of scalar layers gives the same bits on every schedule as in
 * one process.
 *
 * Layer l maps x to w_l x_i + x_(i+1) / 4; the loss is the squared distance from a target. Nothing in it is exact in
 * floats, so an order of additions that differs would show. Backward recomputes a chunk from its input, so the kept
 * input must be intact until then.
 */
#include "harness.h"

#include <hocket_train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 11, WIDTH = 96, STEPS = 3, MOST_MICROS = 16, MOST_STAGES = 8, MOST_PARTS = 16 };

/* What a test's ranks share as argument. */
struct plan {
    hkt_pipeline_shape_t shape;
    bool                 variable;
};

struct model {
    const struct plan *plan;
    int                stage, layers_of[MOST_PARTS];
    float              weight[LAYERS], gradient[LAYERS];
    double             loss;
    int                next_forward[4], next_backward[4], next_weight[4]; /* micro-batches come in order, by chunk */
};

/* ---- the model, for any number of layers */

static int width_of(const struct plan *plan, int micro)
{
    return plan->variable ? micro % 4 * 31 : WIDTH; /* one has no elements at all */
}

static float datum(int micro, int i, int salt)
{
    return (float)(mix((uint64_t)(micro * 1000 + i * 7 + salt)) % 2001) / 1000 - 1;
}

static void layer_forward(float *y, const float *x, float w, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = w * x[i] + 0.25f * x[(i + 1) % n];
}

static void layer_backward(float *gx, const float *gy, float w, int n)
{
    for (int i = 0; i < n; i++)
        gx[i] = w * gy[i] + 0.25f * gy[(i + n - 1) % n];
}

static float layer_weight(const float *gy, const float *x, int n)
{
    float sum = 0;

    for (int i = 0; i < n; i++)
        sum += gy[i] * x[i];
    return sum;
}

/* Some layers at work on one micro-batch. */
struct pass {
    const float *weight; /* [LAYERS], like `sum` */
    float       *sum;    /* gradients of the weights are added here; NULL: not wanted */
    int          first, count, n;
    float        x[LAYERS + 1][WIDTH]; /* inputs of the layers, and the last one's output */
};

static void through(struct pass *p, const float *input)
{
    memcpy(p->x[0], input, (size_t)p->n * sizeof(float));
    for (int l = 0; l < p->count; l++)
        layer_forward(p->x[l + 1], p->x[l], p->weight[p->first + l], p->n);
}

/* Gradients down the layers; that of the input where `gx` is not NULL. */
static void back(float *gx, const float *gy, struct pass *p)
{
    float g[WIDTH], lower[WIDTH];

    memcpy(g, gy, (size_t)p->n * sizeof(float));
    for (int l = p->count - 1; l >= 0; l--) {
        if (p->sum)
            p->sum[p->first + l] += layer_weight(g, p->x[l], p->n);
        layer_backward(lower, g, p->weight[p->first + l], p->n);
        memcpy(g, lower, (size_t)p->n * sizeof(float));
    }
    if (gx)
        memcpy(gx, g, (size_t)p->n * sizeof(float));
}

static double loss_of(float *gy, const float *y, int micro, int micros, int n)
{
    double loss = 0;

    for (int i = 0; i < n; i++) {
        const float d = y[i] - datum(micro, i, 5);

        loss += (double)d * (double)d;
        gy[i] = 2 * d / (float)micros;
    }
    return loss;
}

static void first_weights(float weight[LAYERS])
{
    for (int l = 0; l < LAYERS; l++)
        weight[l] = 0.7f + 0.03f * (float)l;
}

static void update(float weight[LAYERS], const float gradient[LAYERS])
{
    for (int l = 0; l < LAYERS; l++)
        weight[l] -= 0.001f * gradient[l];
}

/* What the first stage reads. */
static void data(float in[WIDTH], int micro, int n)
{
    for (int i = 0; i < n; i++)
        in[i] = datum(micro, i, 1);
}

/* All of it in one process: `steps` steps; the loss of the last. */
static double reference(float weight[LAYERS], const struct plan *plan, int steps)
{
    double loss = 0;

    first_weights(weight);
    for (int step = 0; step < steps; step++) {
        float       gradient[LAYERS] = {0}, in[WIDTH], gy[WIDTH];
        struct pass all              = {.weight = weight, .sum = gradient, .count = LAYERS};

        loss = 0;
        for (int micro = 0; micro < plan->shape.micros; micro++) {
            all.n = width_of(plan, micro);
            data(in, micro, all.n);
            through(&all, in);
            loss += loss_of(gy, all.x[LAYERS], micro, plan->shape.micros, all.n);
            back(NULL, gy, &all);
        }
        update(weight, gradient);
    }
    return loss;
}

/* ---- the same as a stage of a pipeline */

static int part_of(const struct model *m, int chunk)
{
    return chunk * m->plan->shape.stages + m->stage;
}

/* The chunk's activations, from its input. */
static void again(struct pass *p, const struct model *m, const hkt_pipeline_work_t *work)
{
    const int part = part_of(m, work->chunk);
    float     in[WIDTH];

    *p = (struct pass){.weight = m->weight,
                       .first  = hkt_layout_first(m->layers_of, part),
                       .count  = m->layers_of[part],
                       .n      = width_of(m->plan, work->micro)};
    data(in, work->micro, p->n);
    through(p, work->input ? work->input : in);
}

static int forward(hkt_pipeline_work_t *work, void *arg)
{
    struct model *m    = arg;
    const int     part = part_of(m, work->chunk), last = m->plan->shape.stages * m->plan->shape.chunks - 1;
    struct pass   p;
    float         gy[WIDTH];

    expect((work->input == NULL) == (part == 0) && !work->output_gradient && !work->input_gradient,
           "a forward has wrong pointers");
    expect((work->output == NULL) == (part == last), "an output is missing or too much");
    again(&p, m, work);
    expect(part == 0 || work->input_shape[2] == (m->plan->variable ? p.n : WIDTH), "an input of %lld comes",
           (long long)work->input_shape[2]);
    expect(work->micro == m->next_forward[work->chunk]++, "micro-batch %d comes out of order", work->micro);
    if (!work->output) {
        m->loss += loss_of(gy, p.x[p.count], work->micro, m->plan->shape.micros, p.n);
        return 0;
    }
    memcpy(work->output, p.x[p.count], (size_t)p.n * sizeof(float));
    if (m->plan->variable && part == 0)
        memcpy(work->output_shape, (int64_t[]){1, 1, p.n}, sizeof(work->output_shape));
    return 0;
}

static int backwards(const hkt_pipeline_work_t *work, struct model *m, bool input, bool weight)
{
    struct pass p;
    float       gy[WIDTH];

    again(&p, m, work);
    p.sum = weight ? m->gradient : NULL;
    if (!work->output_gradient)
        (void)loss_of(gy, p.x[p.count], work->micro, m->plan->shape.micros, p.n);
    else
        memcpy(gy, work->output_gradient, (size_t)p.n * sizeof(float));
    back(input ? work->input_gradient : NULL, gy, &p);
    return 0;
}

static int backward(hkt_pipeline_work_t *work, void *arg)
{
    struct model *m = arg;

    expect(work->micro == m->next_backward[work->chunk]++, "micro-batch %d comes back out of order", work->micro);
    return backwards(work, m, true, true);
}

static int backward_input(hkt_pipeline_work_t *work, void *arg)
{
    struct model *m = arg;

    expect(work->micro == m->next_backward[work->chunk]++, "micro-batch %d comes back out of order", work->micro);
    return backwards(work, m, true, false);
}

static int backward_weight(hkt_pipeline_work_t *work, void *arg)
{
    struct model *m = arg;

    expect(work->micro == m->next_weight[work->chunk]++ && !work->input_gradient,
           "weights of micro-batch %d come out of order", work->micro);
    return backwards(work, m, false, true);
}

static hkt_pipeline_calls_t calls_of(struct model *m, hkt_pipeline_kind_t kind)
{
    const hkt_pipeline_calls_t split = {forward, NULL, backward_input, backward_weight, m},
                               joint = {forward, backward, NULL, NULL, m};

    return kind == HKT_PIPELINE_ZERO_BUBBLE ? split : joint;
}

static void new_step(struct model *m)
{
    m->loss = 0;
    memset(m->gradient, 0, sizeof(m->gradient));
    memset(m->next_forward, 0, sizeof(m->next_forward));
    memset(m->next_backward, 0, sizeof(m->next_backward));
    memset(m->next_weight, 0, sizeof(m->next_weight));
}

static void make_model(struct model *m, const struct plan *plan, int stage)
{
    *m = (struct model){.plan = plan, .stage = stage};
    expect_ok(hkt_layout_make(m->layers_of, LAYERS, plan->shape.stages, plan->shape.chunks, NULL, 0));
    first_weights(m->weight);
}

static hkt_pipeline_message_t message_of(const struct plan *plan)
{
    return (hkt_pipeline_message_t){HKT_FLOAT32, {1, 1, WIDTH}, plan->variable};
}

/* ---- the same bits */

/* Rows 24 and 52: each boundary carries every micro-batch once in each direction, v times as many with v chunks. */
static void check_traffic(const hkt_pipeline_t *pipeline, const struct plan *plan, int stage, int steps)
{
    const hkt_pipeline_shape_t *s = &plan->shape;
    const int out = s->chunks - (stage == s->stages - 1), in = s->chunks - (stage == 0); /* virtual stages that send */
    uint64_t  elements = 0;
    hkt_traffic_t f, b;

    for (int i = 0; i < s->micros; i++)
        elements += (uint64_t)width_of(plan, i);
    expect_ok(hkt_pipeline_traffic(&f, &b, pipeline));
    expect(f.calls == (uint64_t)(steps * out * s->micros) * (plan->variable ? 2 : 1), "%llu messages forward",
           (unsigned long long)f.calls);
    expect(f.bytes == (uint64_t)(steps * out) * (4 * elements + (plan->variable ? 24 * (uint64_t)s->micros : 0)),
           "%llu bytes forward", (unsigned long long)f.bytes);
    expect(b.calls == (uint64_t)(steps * in * s->micros) && b.bytes == (uint64_t)(steps * in) * 4 * elements,
           "%llu messages of %llu bytes back", (unsigned long long)b.calls, (unsigned long long)b.bytes);
}

/* Memory is what the messages alive at once need: received activations no more than are in flight and one that is
 * coming. */
static void check_memory(hkt_ledger_t *ledger, const struct plan *plan, int stage)
{
    hkt_pipeline_stage_t  stages[MOST_STAGES];
    hkt_pipeline_timing_t t;
    hkt_ledger_entry_t    activations, others;
    const size_t          message = WIDTH * sizeof(float);

    expect_ok(hkt_pipeline_simulate(&t, stages, &plan->shape, NULL));
    expect_ok(hkt_ledger_read(&activations, HKT_BYTES_ACTIVATION, ledger));
    expect_ok(hkt_ledger_read(&others, HKT_BYTES_COMMUNICATION, ledger));
    expect(activations.peak % message == 0 && others.peak % message == 0, "%zu bytes of activations", activations.peak);
    if (plan->shape.chunks == 1 && plan->shape.kind != HKT_PIPELINE_GPIPE)
        expect(activations.peak <= (size_t)(stages[stage].peak + 1) * message &&
                   (stage == 0) == (activations.peak == 0),
               "stage %d keeps %zu inputs, in flight are %d", stage, activations.peak / message, stages[stage].peak);
}

static size_t takes(hkt_ledger_t *ledger)
{
    hkt_ledger_entry_t entry;
    size_t             sum = 0;

    for (int k = 0; k < HKT_BYTES_CLASSES; k++) {
        expect_ok(hkt_ledger_read(&entry, (hkt_bytes_t)k, ledger));
        sum += entry.takes;
    }
    return sum;
}

static void same_bits(struct rank *me)
{
    const struct plan           *plan    = me->arg;
    const hkt_pipeline_message_t message = message_of(plan);
    hkt_pipeline_t              *pipeline;
    hkt_ledger_t                *ledger;
    struct model                 m;
    hkt_pipeline_calls_t         calls;
    float                        wanted[LAYERS];
    double                       loss;
    size_t                       before;

    make_model(&m, plan, me->rank);
    calls = calls_of(&m, plan->shape.kind);
    expect_ok(hkt_ledger_create(&ledger));
    expect_ok(hkt_pipeline_create(&pipeline, me->comm, &plan->shape, &message, ledger));
    before = takes(ledger);
    for (int step = 0; step < STEPS; step++) {
        new_step(&m);
        expect_ok(hkt_pipeline_run(pipeline, &calls));
        expect_ok(hkt_pipeline_share(&m.loss, 1, pipeline)); /* case C25: every stage has the loss of the last */
        loss = reference(wanted, plan, step + 1);
        expect(!memcmp(&loss, &m.loss, sizeof(loss)), "step %d: the loss is %.17g, in one process %.17g", step, m.loss,
               loss);
        update(m.weight, m.gradient);
        for (int part = me->rank; part < me->n * plan->shape.chunks; part += me->n) {
            const int first = hkt_layout_first(m.layers_of, part);

            expect(!memcmp(m.weight + first, wanted + first, (size_t)m.layers_of[part] * sizeof(float)),
                   "step %d: weights of part %d differ: %.9g and %.9g", step, part, (double)m.weight[first],
                   (double)wanted[first]);
        }
    }
    expect(takes(ledger) == before, "a step takes memory");
    check_memory(ledger, plan, me->rank);
    check_traffic(pipeline, plan, me->rank, STEPS);
    new_step(&m);
    expect_ok(hkt_pipeline_evaluate(pipeline, &calls));
    expect_ok(hkt_pipeline_share(&m.loss, 1, pipeline));
    loss = reference(wanted, plan, STEPS + 1);
    expect(m.loss == loss, "evaluation gives %.17g, not %.17g", m.loss, loss);
    expect_ok(hkt_pipeline_destroy(pipeline));
    expect_ok(hkt_ledger_destroy(ledger));
}

static const hkt_pipeline_shape_t shapes[] = {
    {HKT_PIPELINE_GPIPE, 1, 1, 3, 0},       {HKT_PIPELINE_GPIPE, 2, 1, 5, 0},
    {HKT_PIPELINE_GPIPE, 3, 2, 2, 0},       {HKT_PIPELINE_GPIPE, 4, 2, 6, 0},
    {HKT_PIPELINE_1F1B, 1, 1, 4, 0},        {HKT_PIPELINE_1F1B, 2, 1, 1, 0},
    {HKT_PIPELINE_1F1B, 2, 1, 8, 0},        {HKT_PIPELINE_1F1B, 3, 1, 7, 0},
    {HKT_PIPELINE_1F1B, 4, 1, 2, 0},        {HKT_PIPELINE_1F1B, 4, 1, 16, 0},
    {HKT_PIPELINE_1F1B, 6, 1, 9, 0},        {HKT_PIPELINE_INTERLEAVED, 2, 2, 4, 0},
    {HKT_PIPELINE_INTERLEAVED, 2, 2, 5, 3}, {HKT_PIPELINE_INTERLEAVED, 2, 4, 2, 0},
    {HKT_PIPELINE_INTERLEAVED, 3, 2, 6, 0}, {HKT_PIPELINE_INTERLEAVED, 3, 3, 3, 0},
    {HKT_PIPELINE_INTERLEAVED, 4, 2, 8, 0}, {HKT_PIPELINE_INTERLEAVED, 4, 2, 4, 0},
    {HKT_PIPELINE_ZERO_BUBBLE, 1, 1, 3, 0}, {HKT_PIPELINE_ZERO_BUBBLE, 2, 1, 6, 0},
    {HKT_PIPELINE_ZERO_BUBBLE, 3, 1, 2, 0}, {HKT_PIPELINE_ZERO_BUBBLE, 4, 1, 8, 0},
    {HKT_PIPELINE_ZERO_BUBBLE, 5, 1, 9, 0},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* Proves rows 11, 20, 24, 52 and cases C12, C25: every schedule gives the bits of one process, loss on all stages
 * included, moves as many messages and bytes as the formulas say, and takes memory once. */
START_TEST(T_C12_C25_same_bits)
{
    struct plan plan = {shapes[_i], false};

    world(plan.shape.stages, THREADS, same_bits, &plan);
}
END_TEST

/* Proves: the same where lengths vary from micro-batch to micro-batch, one of them 0, the shape going ahead of each
 * message. */
START_TEST(variable_lengths)
{
    struct plan plan = {shapes[_i * 2 + 1], true};

    world(plan.shape.stages, THREADS, same_bits, &plan);
}
END_TEST

/* Proves: the same between processes. */
START_TEST(T_C12_same_bits_of_processes)
{
    struct plan plan = {shapes[(const int[]){6, 11, 17, 21}[_i]], _i % 2};

    world(plan.shape.stages, PROCESSES, same_bits, &plan);
}
END_TEST

/* ---- order */

/* Row 15 to 17 on the trace of a real run: warm-up, strict alternation, cool-down in order. */
static void traced(struct rank *me)
{
    const struct plan           *plan    = me->arg;
    const hkt_pipeline_message_t message = message_of(plan);
    const int                    m = plan->shape.micros, w = me->n - 1 - me->rank < m ? me->n - 1 - me->rank : m;
    hkt_pipeline_t              *pipeline;
    hkt_pipeline_trace_t         trace;
    struct model                 model;
    hkt_pipeline_calls_t         calls;
    double                       last = 0, busy = 0;
    int                          k = 0;

    make_model(&model, plan, me->rank);
    calls = calls_of(&model, plan->shape.kind);
    expect_ok(hkt_pipeline_create(&pipeline, me->comm, &plan->shape, &message, NULL));
    expect_ok(hkt_pipeline_trace(&trace, pipeline));
    expect_true(trace.n == 0);
    new_step(&model);
    expect_ok(hkt_pipeline_run(pipeline, &calls));
    expect_ok(hkt_pipeline_trace(&trace, pipeline));
    for (size_t i = 0; i < trace.n; i++) {
        const hkt_pipeline_mark_t *mark = &trace.marks[i];
        const bool                 f    = mark->instruction.action == HKT_DO_FORWARD;

        expect(mark->end >= mark->begin && mark->begin >= 0 && mark->end <= trace.total, "instruction %zu has no time",
               i);
        if (mark->instruction.action >= HKT_DO_SEND_FORWARD)
            continue;
        expect(mark->begin >= last, "computation %d overlaps the one before", k);
        expect(f == (k < w || (k < 2 * m - w && (k - w) % 2 == 0)),
               "computation %d of stage %d is of the wrong direction", k, me->rank);
        last = mark->end;
        busy += mark->end - mark->begin;
        k++;
    }
    expect(k == 2 * m && fabs(busy - trace.busy) < 1e-9 && trace.total >= busy, "%d computations, busy %g of %g", k,
           trace.busy, trace.total);
    expect_ok(hkt_pipeline_destroy(pipeline));
}

START_TEST(T_R15_R17_trace_of_1f1b)
{
    struct plan plan = {{HKT_PIPELINE_1F1B, 4, 1, (int[]){8, 2}[_i], 0}, false};

    world(4, THREADS, traced, &plan);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, T_C12_C25_same_bits, SHAPES, 60);
    ADD(s, variable_lengths, SHAPES / 2, 60);
    ADD(s, T_C12_same_bits_of_processes, 4, 60);
    ADD(s, T_R15_R17_trace_of_1f1b, 2, 60);
}

int main(void)
{
    return run_suite("pipeline runs", add);
}
