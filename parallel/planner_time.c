/* planner_time.c -- the seconds of a step, by where they go.
 *
 * A layer is a roofline of three terms that add: products at the rate their smallest dimension allows, everything else
 * as traffic of twice the activations it produces, and the start of its kernels. With A100 figures that gives 7.5
 * and 11.8 ms for the layer of which Korthikanti et al. 2022 measured 7.7 and 11.9. Communication is what is left of it
 * after what it can hide behind. A pipeline's time is that of its schedule's simulation (pipeline_time.c) with the
 * stages' own times; what it takes without messages more than the busiest stage works is the bubble, what it takes with
 * them on top is PP.
 */
#include <parallel/planner.h>

#include <math.h>
#include <stdlib.h>

enum { KERNELS_FORWARD = 16, KERNELS_BACKWARD = 24 };

/* Seconds of a forward or a backward pass of a micro-batch; only the parts up to HKT_PLAN_PP are used. */
struct pass {
    double part[HKT_PLAN_PARTS];
};

struct step {
    const hkt_plan_job_t    *job;
    const hkt_plan_layout_t *layout;
    double                   tokens; /* of a micro-batch on a device */
    double                   slower; /* than the formulas, as measured */
    struct hkt_planner_group tp, cp, pp, dp;
    struct pass              forward, backward; /* of one layer */
};

static double sum(const struct pass *pass)
{
    double seconds = 0;

    for (int part = 0; part < HKT_PLAN_PARTS; part++)
        seconds += pass->part[part];
    return seconds;
}

static void add(struct pass *to, const struct pass *from, double times)
{
    for (int part = 0; part < HKT_PLAN_PARTS; part++)
        to->part[part] += times * from->part[part];
}

static double above(double seconds, double cover)
{
    return seconds > cover ? seconds - cover : 0;
}

/* ---- a layer ----------------------------------------------------------------------------------------------------- */

/* FLOP/s of products whose least dimension is this. */
static double rate(const hkt_plan_machine_t *machine, double least)
{
    return machine->achieved * least / (least + machine->half);
}

/* Between two points that were measured on a line over the logarithm of the tokens, beyond them as at the last. */
static double slower(const hkt_plan_machine_t *machine, double tokens)
{
    const hkt_plan_point_t *p    = machine->point;
    const int               last = machine->points - 1;
    int                     i    = 0;

    if (last < 0)
        return 1;
    if (tokens <= p[0].tokens || tokens >= p[last].tokens)
        return tokens <= p[0].tokens ? p[0].slower : p[last].slower;
    while (tokens >= p[i + 1].tokens)
        i++;
    return p[i].slower +
           (p[i + 1].slower - p[i].slower) * log(tokens / p[i].tokens) / log(p[i + 1].tokens / p[i].tokens);
}

static double linear_seconds(const struct step *s)
{
    const hkt_plan_model_t *m = &s->job->model;

    return s->slower * hkt_planner_linear_flops(m) * s->tokens / s->layout->tp /
           rate(&s->job->machine, fmin(s->tokens, (double)m->hidden / s->layout->tp));
}

static double core_seconds(const struct step *s)
{
    const hkt_plan_model_t *m = &s->job->model;

    return s->slower * hkt_planner_core_flops(m) * s->tokens / s->layout->tp /
           rate(&s->job->machine, (double)m->hidden / m->heads);
}

/* Bytes that a device sends for a reduce-scatter or an all-gather of a micro-batch's hidden state. */
static double hidden_bytes(const struct step *s)
{
    return s->tokens * s->job->model.hidden * s->job->bytes.activation;
}

/* Keys and values of a block travel around while another block is worked on. */
static double ring_exposed(const struct step *s, double blocks, double cover)
{
    const hkt_plan_model_t *m  = &s->job->model;
    const double            kv = hidden_bytes(s) / m->heads * m->kv_heads / s->layout->tp;

    return above((s->layout->cp - 1) * hkt_planner_shift(&s->cp, 2 * kv * blocks), cover);
}

static void find_layer(struct step *s)
{
    const hkt_plan_machine_t *machine = &s->job->machine;
    const double              linear = linear_seconds(s), core = core_seconds(s);
    const double              kept    = hkt_planner_activation(s->job, s->layout, HKT_RECOMPUTE_NONE);
    const double              scatter = hkt_planner_scatter(&s->tp, hidden_bytes(s));
    const double weights = hkt_planner_layer_elements(&s->job->model, s->layout->tp) * s->job->bytes.gradient;
    double      *f = s->forward.part, *b = s->backward.part;

    f[HKT_PLAN_PRODUCTS] = linear + core;
    f[HKT_PLAN_TRAFFIC]  = s->slower * 2 * kept / machine->traffic;
    f[HKT_PLAN_LAUNCH]   = s->slower * KERNELS_FORWARD * machine->launch;
    f[HKT_PLAN_TP]       = 4 * scatter; /* two all-reduces, or two gathers and two reduce-scatters */
    f[HKT_PLAN_CP]       = ring_exposed(s, 1, core);

    b[HKT_PLAN_PRODUCTS] = 2 * (linear + core);
    b[HKT_PLAN_TRAFFIC]  = s->slower * 2 * (kept + weights) / machine->traffic; /* gradients are read and written */
    b[HKT_PLAN_LAUNCH]   = s->slower * KERNELS_BACKWARD * machine->launch;
    b[HKT_PLAN_TP]       = 4 * scatter;
    b[HKT_PLAN_CP]       = ring_exposed(s, 2, 2 * core);
    if (s->layout
            ->sequence_parallel) /* the inputs of both column products are gathered again, beside the input gradient */
        b[HKT_PLAN_TP] += above(2 * scatter, linear);
    if (s->layout->recompute == HKT_RECOMPUTE_FULL)
        add(&s->backward, &s->forward, 1);
    if (s->layout->recompute == HKT_RECOMPUTE_SELECTIVE) {
        b[HKT_PLAN_PRODUCTS] += core;
        b[HKT_PLAN_TRAFFIC] += s->slower * 2 * hkt_planner_core_bytes(s->job, s->layout) / machine->traffic;
    }
}

/* ---- a stage ----------------------------------------------------------------------------------------------------- */

/* The head and the loss: a product, and logits that are read and written in fp32. */
static void add_head(const struct step *s, struct pass *forward, struct pass *backward)
{
    const hkt_plan_model_t *m       = &s->job->model;
    const double            columns = hkt_planner_table_elements(m, s->layout->tp) / m->hidden;
    const double            product =
        s->slower * 2 * s->tokens * m->hidden * columns / rate(&s->job->machine, fmin(s->tokens, columns));
    const double traffic = s->slower * 8 * s->tokens * columns / s->job->machine.traffic;

    forward->part[HKT_PLAN_PRODUCTS] += product;
    forward->part[HKT_PLAN_TRAFFIC] += traffic;
    backward->part[HKT_PLAN_PRODUCTS] += 2 * product;
    backward->part[HKT_PLAN_TRAFFIC] += traffic;
    backward->part[HKT_PLAN_TP] += 2 * hkt_planner_scatter(&s->tp, hidden_bytes(s));
}

/* What all stages add to their layers; ends add theirs. TP ranks send a slice of a boundary each, which is gathered
 * unless sequence parallelism wants only the slice. */
static void find_stage(const struct step *s, int stage, struct pass *forward, struct pass *backward)
{
    const double layers = hkt_plan_stage_layers(&s->job->model, s->layout, stage);
    const double slices = s->layout->pp > 1 && !s->layout->sequence_parallel
                              ? s->layout->chunks * hkt_planner_scatter(&s->tp, hidden_bytes(s))
                              : 0;

    *forward = *backward = (struct pass){{0}};
    add(forward, &s->forward, layers);
    add(backward, &s->backward, layers);
    forward->part[HKT_PLAN_TP] += slices;
    backward->part[HKT_PLAN_TP] += slices;
    if (stage == 0)
        forward->part[HKT_PLAN_TP] += 2 * hkt_planner_scatter(&s->tp, hidden_bytes(s)); /* of the embedding */
    if (stage == s->layout->pp - 1)
        add_head(s, forward, backward);
}

/* ---- data parallelism -------------------------------------------------------------------------------------------- */

/* Seconds of it that are left, and those that are hidden, per step. Travelling starts with the first layer that is done
 * and ends one layer's share after the last. */
struct exposure {
    double left, hidden;
};

/* What is hidden takes memory and cores from the computation it hides behind (Galvatron's measured coefficient). */
static const double SLOWED = 0.1256;

static void expose(struct exposure *e, double seconds, double times, double cover, int layers)
{
    const double rest = above(seconds, cover), tail = seconds / (layers > 1 ? layers : 1);
    const double left = rest * (times - 1) + fmax(rest, tail);

    e->left += left + SLOWED * (seconds * times - left);
    e->hidden += seconds * times - left;
}

static struct exposure expose_stage(const struct step *s, int stage, double forward, double backward)
{
    const hkt_plan_bytes_t *b        = &s->job->bytes;
    const double            elements = hkt_planner_stage_elements(&s->job->model, s->layout, stage);
    const double            gather   = hkt_planner_scatter(&s->dp, elements * b->parameter),
                 reduce              = hkt_planner_scatter(&s->dp, elements * b->gradient);
    const double    m                = hkt_planner_micro_batches(s->job, s->layout);
    const int       layers           = hkt_plan_stage_layers(&s->job->model, s->layout, stage);
    const bool      hides            = !(s->job->options & HKT_PLAN_NO_OVERLAP);
    struct exposure e                = {0, 0};

    forward *= hides;
    backward *= hides;
    switch (s->layout->zero) {
    case 0:
        expose(&e, 2 * reduce, 1, backward, hides ? layers : 1);
        break;
    case 1:
    case 2:
        expose(&e, reduce, s->layout->zero == 2 ? m : 1, backward, hides ? layers : 1);
        expose(&e, gather, 1, forward, hides ? layers : 1);
        break;
    default:
        expose(&e, gather, m, forward, hides ? layers : 1);
        expose(&e, gather + reduce, m, backward, hides ? layers : 1);
    }
    return e;
}

/* Both copies of a tied table add their gradients. */
static double table_seconds(const struct step *s)
{
    const struct hkt_planner_group ends = {&s->job->machine, s->pp.stride * (s->layout->pp - 1), 2};

    if (!s->job->model.tied || s->layout->pp == 1)
        return 0;
    return 2 * hkt_planner_scatter(&ends,
                                   hkt_planner_table_elements(&s->job->model, s->layout->tp) * s->job->bytes.gradient);
}

static double optimizer_seconds(const hkt_plan_job_t *job, const hkt_plan_layout_t *layout, double elements)
{
    const double mine  = layout->zero >= 1 ? elements / hkt_planner_shards(layout) : elements;
    const double bytes = mine * (2 * job->bytes.optimizer + job->bytes.gradient + job->bytes.parameter);

    return (job->machine.update > 0 ? job->machine.update : 1) * bytes /
           (layout->offload ? job->machine.host : job->machine.traffic);
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

static void find_volumes(hkt_plan_time_t *time, const struct step *s, double elements)
{
    const hkt_plan_layout_t *l      = s->layout;
    const hkt_plan_model_t  *m      = &s->job->model;
    const double             layers = hkt_plan_stage_layers(m, l, time->slowest);
    const double             half   = hidden_bytes(s) * (l->tp - 1) / l->tp; /* of an all-reduce */
    const double             kv     = hidden_bytes(s) / m->heads * m->kv_heads / l->tp;
    const double             passes = l->recompute == HKT_RECOMPUTE_FULL ? 12 : 8;

    time->sent[HKT_PLAN_TP] = time->micro_batches * layers * half * (passes + (l->sequence_parallel ? 2 : 0));
    time->sent[HKT_PLAN_CP] = time->micro_batches * layers * (l->cp - 1) * 6 * kv * (passes == 12 ? 4.0 / 3 : 1);
    time->sent[HKT_PLAN_PP] = l->pp == 1 ? 0 : 2.0 * time->micro_batches * l->chunks * hidden_bytes(s) / l->tp;
    time->sent[HKT_PLAN_DP] =
        hkt_plan_volume(elements, s->dp.size, l->zero, time->micro_batches) * s->job->bytes.gradient;
    time->link[HKT_PLAN_TP] = hkt_planner_link(&s->tp);
    time->link[HKT_PLAN_CP] = hkt_planner_link(&s->cp);
    time->link[HKT_PLAN_PP] = hkt_planner_link(&s->pp);
    time->link[HKT_PLAN_DP] = hkt_planner_link(&s->dp);
}

/* The slowest stage with its micro-batches; before its first forward and behind its last backward lie those of the
 * first chunks of the stages before it. */
static void find_pipeline(hkt_plan_time_t *time, const struct step *s, struct exposure *dp, double *optimizer)
{
    const hkt_plan_layout_t *l       = s->layout;
    const bool               splits  = l->schedule == HKT_PIPELINE_ZERO_BUBBLE;
    double                   busiest = 0, before = 0, bound = 0;
    struct pass              forward, backward;

    for (int stage = 0; stage < l->pp; stage++) {
        const double    elements = hkt_planner_stage_elements(&s->job->model, l, stage);
        double          f, b;
        struct exposure e;

        find_stage(s, stage, &forward, &backward);
        f          = sum(&forward);
        b          = sum(&backward);
        e          = expose_stage(s, stage, f, b);
        *dp        = e.left > dp->left ? e : *dp;
        *optimizer = fmax(*optimizer, optimizer_seconds(s->job, l, elements));
        bound      = fmax(bound, before + time->micro_batches * (f + b));
        before +=
            hkt_planner_chunk_layers(&s->job->model, l, stage) * (sum(&s->forward) + (splits ? 0 : sum(&s->backward)));
        if (f + b <= busiest)
            continue;
        busiest       = f + b;
        time->slowest = stage;
        for (int part = 0; part < HKT_PLAN_PARTS; part++)
            time->part[part] = time->micro_batches * (forward.part[part] + backward.part[part]);
    }
    time->part[HKT_PLAN_BUBBLE] = bound - time->micro_batches * busiest;
}

static struct step step_of(const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    const int   inner = layout->tp, outer = layout->tp * layout->cp * layout->dp;
    struct step s = {.job    = job,
                     .layout = layout,
                     .tokens = hkt_planner_tokens(job, layout),
                     .tp     = {&job->machine, 1, layout->tp},
                     .cp     = {&job->machine, inner, layout->cp},
                     .pp     = {&job->machine, outer, layout->pp},
                     .dp     = {&job->machine, inner, hkt_planner_shards(layout)}};

    s.slower = slower(&job->machine, s.tokens);
    find_layer(&s);
    return s;
}

static void find_rates(hkt_plan_time_t *time, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    time->step = 0;
    for (int part = 0; part < HKT_PLAN_PARTS; part++)
        time->step += time->part[part];
    time->flops          = hkt_plan_flops(&job->model, job->global_batch, HKT_RECOMPUTE_NONE) / time->step / job->world;
    time->hardware_flops = hkt_plan_flops(&job->model, job->global_batch, layout->recompute) / time->step / job->world;
    time->tokens         = (double)job->global_batch * job->model.sequence / time->step;
}

void hkt_planner_bound(hkt_plan_time_t *time, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    const struct step s         = step_of(job, layout);
    struct exposure   dp        = {0, 0};
    double            optimizer = 0;

    *time = (hkt_plan_time_t){.micro_batches = hkt_planner_micro_batches(job, layout)};
    find_pipeline(time, &s, &dp, &optimizer);
    time->part[HKT_PLAN_DP]        = dp.left + table_seconds(&s);
    time->part[HKT_PLAN_OPTIMIZER] = optimizer;
    time->hidden                   = dp.hidden;
    find_volumes(time, &s, hkt_planner_stage_elements(&job->model, layout, time->slowest));
    find_rates(time, job, layout);
}

/* ---- the schedule ------------------------------------------------------------------------------------------------ */

/* By virtual stage, `stages * chunks` each; and by stage. */
struct seconds {
    double *forward, *backward, *weight, *send;
};

/* What a stage has beside its layers lies on the first chunk of the first and the last of the last. */
static void find_chunks(struct seconds *seconds, const struct step *s)
{
    const hkt_plan_layout_t *l      = s->layout;
    const hkt_plan_model_t  *m      = &s->job->model;
    const double             send   = hkt_planner_shift(&s->pp, hidden_bytes(s) / l->tp);
    const double             linear = linear_seconds(s);
    const double             f = sum(&s->forward), b = sum(&s->backward);
    const int                last = l->pp * l->chunks - 1;

    for (int stage = 0; stage < l->pp; stage++) {
        const double layers = hkt_plan_stage_layers(m, l, stage);
        struct pass  forward, backward;

        find_stage(s, stage, &forward, &backward);
        for (int chunk = 0; chunk < l->chunks; chunk++) {
            const int    at     = chunk * l->pp + stage;
            const double own    = hkt_planner_chunk_layers(m, l, at);
            const double beside = stage == 0 ? chunk == 0 : stage == l->pp - 1 ? at == last : 1.0 / l->chunks;

            /* of nothing beside the layers a rounding error is left, of either sign */
            seconds->forward[at]  = f * own + fmax(sum(&forward) - f * layers, 0) * beside;
            seconds->backward[at] = b * own + fmax(sum(&backward) - b * layers, 0) * beside;
            seconds->weight[at]   = linear * own;
        }
        seconds->send[stage] = send;
    }
}

/* Seconds of m micro-batches. */
static int run(double *total, const struct step *s, const struct seconds *seconds, bool sends, int m)
{
    const hkt_pipeline_shape_t shape = {.kind   = (hkt_pipeline_kind_t)s->layout->schedule,
                                        .stages = s->layout->pp,
                                        .chunks = s->layout->chunks,
                                        .micros = m};
    const hkt_pipeline_times_t times = {seconds->forward, seconds->backward, seconds->weight,
                                        sends ? seconds->send : NULL};
    hkt_pipeline_timing_t      timing;

    TRY(hkt_pipeline_simulate(&timing, NULL, &shape, &times));
    *total = timing.total;
    return 0;
}

/* The same; of many micro-batches those in the middle are not run: once filled, a pipeline takes the same time for
 * every round. */
static int run_long(double *total, const struct step *s, const struct seconds *seconds, bool sends, int m)
{
    const int p = s->layout->pp, few = 4 * p + m % p, more = few + 2 * p;
    double    less;

    if (m <= more || s->layout->schedule == HKT_PIPELINE_GPIPE)
        return run(total, s, seconds, sends, m);
    TRY(run(&less, s, seconds, sends, few));
    TRY(run(total, s, seconds, sends, more));
    *total += (m - more) * (*total - less) / (more - few);
    return 0;
}

int hkt_planner_simulate(hkt_plan_time_t *time, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    const struct step s   = step_of(job, layout);
    const size_t      n   = (size_t)layout->pp * (size_t)layout->chunks;
    double           *all = NULL, work, alone = 0, total = 0;
    int               rc;

    if (layout->pp == 1)
        return 0;
    all = malloc((3 * n + (size_t)layout->pp) * sizeof(*all));
    if (!all)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for the times of %zu chunks", n);
    find_chunks(&(struct seconds){all, all + n, all + 2 * n, all + 3 * n}, &s);
    rc = run_long(&alone, &s, &(struct seconds){all, all + n, all + 2 * n, all + 3 * n}, false, time->micro_batches);
    if (!rc)
        rc = run_long(&total, &s, &(struct seconds){all, all + n, all + 2 * n, all + 3 * n}, true, time->micro_batches);
    free(all);
    TRY(rc);
    work = 0;
    for (int part = 0; part < HKT_PLAN_PP; part++)
        work += time->part[part];
    time->part[HKT_PLAN_BUBBLE] = alone - work;
    time->part[HKT_PLAN_PP]     = total - alone;
    find_rates(time, job, layout);
    return 0;
}
