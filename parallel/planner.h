/* planner.h -- what the files of the planner share: quantities of a (job, layout), both taken as checked. */
#ifndef PARALLEL_PLANNER_H
#define PARALLEL_PLANNER_H

#include <parallel/common.h>

/* ---- planner_model.c: sizes */

/* HKT_ERR_ARGUMENT with the field that makes no sense. */
int hkt_planner_check_model(const hkt_plan_model_t *model);
int hkt_planner_check_job(const hkt_plan_job_t *job);

/* FLOPs of the products of one layer with weights, and of its attention core, forward, for one token. */
double hkt_planner_linear_flops(const hkt_plan_model_t *model);
double hkt_planner_core_flops(const hkt_plan_model_t *model);

/* Elements on one of tp devices: of a layer; of the table of tokens with its padding. */
double hkt_planner_layer_elements(const hkt_plan_model_t *model, int tp);
double hkt_planner_table_elements(const hkt_plan_model_t *model, int tp);
double hkt_planner_stage_elements(const hkt_plan_model_t *model, const hkt_plan_layout_t *layout, int stage);

/* Layers of chunk `chunk` of all pp x chunks, in the order of the model. */
int hkt_planner_chunk_layers(const hkt_plan_model_t *model, const hkt_plan_layout_t *layout, int chunk);

static inline int hkt_planner_shards(const hkt_plan_layout_t *layout)
{
    return layout->dp * layout->cp;
}

static inline int hkt_planner_micro_batches(const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    return job->global_batch / layout->dp / layout->micro_batch;
}

/* Tokens of a micro-batch on a device. */
static inline double hkt_planner_tokens(const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    return (double)layout->micro_batch * (job->model.sequence / layout->cp);
}

/* ---- planner_memory.c */

/* Bytes that a layer keeps of a micro-batch for its backward pass, and the part of it that selective recomputation
 * drops. */
double hkt_planner_activation(const hkt_plan_job_t *job, const hkt_plan_layout_t *layout, int recompute);
double hkt_planner_core_bytes(const hkt_plan_job_t *job, const hkt_plan_layout_t *layout);

/* Fills one stage and returns its bytes. */
double hkt_planner_stage_memory(hkt_plan_stage_t *stage, int index, const hkt_plan_job_t *job,
                                const hkt_plan_layout_t *layout);
/* Bytes of the fullest stage, whose index is set. */
double hkt_planner_memory(int *fullest, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout);

/* ---- planner_links.c: the devices of a group are `size` ranks, `stride` apart */

struct hkt_planner_group {
    const hkt_plan_machine_t *machine;
    int                       stride, size;
};

/* Seconds of a reduce-scatter or an all-gather of a vector of `bytes`; an all-reduce is both. */
double hkt_planner_scatter(const struct hkt_planner_group *group, double bytes);
/* Seconds until every device has sent `bytes` to its neighbour in the group. */
double hkt_planner_shift(const struct hkt_planner_group *group, double bytes);
/* The slowest class of links in the group, -1 when it has one device. */
int hkt_planner_link(const struct hkt_planner_group *group);

/* ---- planner_time.c */

/* All of the time but what a pipeline's messages cost; `bubble` is a lower bound (exact for equal stages and the orders
 * 1F1B and interleaved). Then the schedule's simulation finds both. */
void hkt_planner_bound(hkt_plan_time_t *time, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout);
int  hkt_planner_simulate(hkt_plan_time_t *time, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout);

/* ---- planner_rules.c */

struct hkt_rules;

/* Whether the layout breaks a rule: one of those that see only tp, cp, pp, dp, or one of the others but memory. The
 * first goes to `rules`, or nowhere when it is NULL. */
bool hkt_planner_breaks_family(struct hkt_rules *rules, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout);
bool hkt_planner_breaks_variant(struct hkt_rules *rules, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout);
void hkt_planner_tell_memory(struct hkt_rules *rules, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout);

#endif
