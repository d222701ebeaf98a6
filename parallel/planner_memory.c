/* planner_memory.c -- the bytes of every stage, by class.
 *
 * Model state: Rajbhandari et al. 2020. Activations: counted tensor by tensor as Korthikanti et al. 2022 do, with the
 * element sizes of the job, which for 2-byte activations and 1-byte masks gives their s b h (10 + 24/t + 5 a s/(h t)).
 * Other than theirs, every stage has its own figure: what is in flight under the schedule, the embedding's mask on the
 * first, the last norm and the logits on the last.
 */
#include <parallel/planner.h>

#include <math.h>

enum {
    BUCKET = 25 << 20, /* elements of gradient or state on their way, twice */
};

double hkt_planner_core_bytes(const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    const hkt_plan_model_t *m    = &job->model;
    const double            rows = hkt_planner_tokens(job, layout) * m->heads / layout->tp;

    if (m->blocked)
        return rows * 4; /* the logarithm of a row's sum, fp32 */
    /* softmax; with dropout also its mask and what it lets through */
    return rows * m->sequence * (m->dropout ? 2 * job->bytes.activation + job->bytes.mask : job->bytes.activation);
}

double hkt_planner_activation(const hkt_plan_job_t *job, const hkt_plan_layout_t *layout, int recompute)
{
    const hkt_plan_model_t *m      = &job->model;
    const double            tokens = hkt_planner_tokens(job, layout), e = job->bytes.activation;
    const double            whole = layout->sequence_parallel ? layout->tp : 1; /* what TP alone does not share */
    const double            kv    = (double)m->hidden / m->heads * m->kv_heads;
    /* inputs of both norms, of the queries' product and of the MLP; masks behind attention and MLP */
    const double outside = 4 * e * m->hidden + (m->dropout ? 2 * job->bytes.mask * m->hidden : 0);
    /* queries, keys, values, input of the output product; before and behind the MLP's activation */
    const double inside = e * (2 * m->hidden + 2 * kv) + (m->gated ? 3 : 2) * e * m->ffn;

    if (recompute == HKT_RECOMPUTE_FULL)
        return tokens * e * m->hidden / whole;
    return tokens * (outside / whole + inside / layout->tp) +
           (recompute == HKT_RECOMPUTE_NONE ? hkt_planner_core_bytes(job, layout) : 0);
}

/* Micro-batches x chunks between their forward and backward pass on a stage, at most (Megatron's orders). */
static double in_flight(const hkt_plan_layout_t *layout, int m, int stage)
{
    const int p = layout->pp, v = layout->chunks;

    switch (layout->schedule) {
    case HKT_PIPELINE_GPIPE:
        return m;
    case HKT_PIPELINE_INTERLEAVED:
        return fmin(2.0 * (p - stage - 1) + (v - 1.0) * p + 1, (double)m * v);
    case HKT_PIPELINE_ZERO_BUBBLE:
        return fmin(m, p);
    default:
        return fmin(m, p - stage);
    }
}

/* What lives in one layer's backward pass: what is computed again, and the gradients on their way through it. */
static double working_bytes(const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    const hkt_plan_model_t *m     = &job->model;
    const double            again = layout->recompute == HKT_RECOMPUTE_FULL
                                        ? hkt_planner_activation(job, layout, HKT_RECOMPUTE_NONE)
                                    : layout->recompute == HKT_RECOMPUTE_SELECTIVE ? hkt_planner_core_bytes(job, layout)
                                                                                   : 0;

    return again +
           hkt_planner_tokens(job, layout) * job->bytes.activation * (2.0 * m->hidden + (double)m->ffn / layout->tp);
}

static double communication_bytes(const hkt_plan_stage_t *stage, const hkt_plan_job_t *job,
                                  const hkt_plan_layout_t *layout)
{
    const hkt_plan_model_t *m      = &job->model;
    const hkt_plan_bytes_t *b      = &job->bytes;
    const double            tokens = hkt_planner_tokens(job, layout), tp = layout->tp;
    const double            boundary = tokens * b->activation * m->hidden / (layout->sequence_parallel ? tp : 1);
    const double            kv       = tokens * b->activation * m->hidden / m->heads * m->kv_heads / tp;
    const double            bucket   = fmin(BUCKET, stage->parameters);
    double                  bytes    = 0;

    if (layout->pp > 1)
        bytes += 4 * boundary; /* an input and an output each way */
    if (layout->cp > 1)
        bytes += 10 * kv /* keys and values at hand and on their way; of their gradients three: one is made */
                 + tokens / 2 * b->activation * (m->hidden + m->heads) / tp; /* a chunk's output until it is merged */
    if (layout->zero >= 2)
        bytes += 2 * bucket * b->gradient;
    if (layout->zero == 3)
        bytes += 2 * fmin(hkt_planner_layer_elements(m, layout->tp), stage->parameters) * b->parameter;
    if (layout->offload)
        bytes += 2 * bucket * (b->gradient + b->parameter);
    return bytes;
}

/* Activations that only the ends of the model have. */
static double end_bytes(int index, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    const hkt_plan_model_t *m      = &job->model;
    const double            tokens = hkt_planner_tokens(job, layout), e = job->bytes.activation;
    const double            whole = layout->sequence_parallel ? layout->tp : 1;
    const int               flying =
        layout->pp < hkt_planner_micro_batches(job, layout) ? layout->pp : hkt_planner_micro_batches(job, layout);
    double bytes = 0;

    if (index == 0 && m->dropout)
        bytes += flying * tokens * m->hidden * job->bytes.mask / whole;
    if (index == layout->pp - 1) /* inputs of the last norm and of the head; logits in fp32 */
        bytes += tokens * (2 * e * m->hidden / whole + 4 * hkt_planner_table_elements(m, layout->tp) / m->hidden);
    return bytes;
}

double hkt_planner_stage_memory(hkt_plan_stage_t *stage, int index, const hkt_plan_job_t *job,
                                const hkt_plan_layout_t *layout)
{
    const hkt_plan_bytes_t *b = &job->bytes;
    const double            n = hkt_planner_shards(layout);
    double                  shard, state;

    *stage           = (hkt_plan_stage_t){.layers     = hkt_plan_stage_layers(&job->model, layout, index),
                                          .parameters = hkt_planner_stage_elements(&job->model, layout, index)};
    stage->in_flight = in_flight(layout, hkt_planner_micro_batches(job, layout), index);
    shard            = ceil(stage->parameters / n);
    state            = (layout->zero >= 1 ? shard : stage->parameters) * b->optimizer;
    stage->outside   = layout->offload ? state : 0;

    stage->bytes[HKT_BYTES_PARAMETER] = (layout->zero >= 3 ? shard : stage->parameters) * b->parameter;
    stage->bytes[HKT_BYTES_GRADIENT]  = (layout->zero >= 2 ? shard : stage->parameters) * b->gradient;
    stage->bytes[HKT_BYTES_OPTIMIZER] = layout->offload ? 0 : state;
    stage->bytes[HKT_BYTES_ACTIVATION] =
        stage->in_flight * stage->layers / layout->chunks * hkt_planner_activation(job, layout, layout->recompute) +
        end_bytes(index, job, layout);
    stage->bytes[HKT_BYTES_COMMUNICATION] = communication_bytes(stage, job, layout);
    stage->bytes[HKT_BYTES_OTHER]         = working_bytes(job, layout);
    for (int kind = 0; kind < HKT_BYTES_CLASSES; kind++)
        stage->total += stage->bytes[kind];
    return stage->total;
}

/* Behind the second stage nothing grows but at the last one: layers and what is in flight only fall. */
double hkt_planner_memory(int *fullest, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    const int        candidate[] = {0, 1, layout->pp - 1};
    double           most        = 0;
    hkt_plan_stage_t stage;

    for (int i = 0; i < 3; i++)
        if (candidate[i] < layout->pp && hkt_planner_stage_memory(&stage, candidate[i], job, layout) > most) {
            most     = stage.total;
            *fullest = candidate[i];
        }
    return most;
}

double hkt_plan_states(const hkt_plan_bytes_t *bytes, double parameters, int n, int zero)
{
    return parameters * ((zero >= 3 ? 1.0 / n : 1) * bytes->parameter + (zero >= 2 ? 1.0 / n : 1) * bytes->gradient +
                         (zero >= 1 ? 1.0 / n : 1) * bytes->optimizer);
}

double hkt_plan_volume(double parameters, int n, int zero, int m)
{
    const double times = zero == 3 ? 3.0 * m : zero == 2 ? m + 1.0 : 2;

    return times * parameters * (n - 1) / n;
}
