/* pipeline.h -- what the files of the pipeline share: orders of computation, virtual stages. */
#ifndef PARALLEL_PIPELINE_H
#define PARALLEL_PIPELINE_H

#include <parallel/common.h>

/* What every stage computes, in order: op[stage * each + i], without messages. */
struct hkt_order {
    hkt_pipeline_shape_t shape;
    size_t               each;
    hkt_instruction_t   *op;
    int                 *warm_up; /* [stages], forwards before forward and backward alternate */
};

/* Refuses what hkt_pipeline_validate() refuses. Free also after an error. */
int  hkt_order_make(struct hkt_order *order, const hkt_pipeline_shape_t *shape);
void hkt_order_free(struct hkt_order *order);

/* begin and end of every op, [stages * each], in the unit of `times` (NULL: hkt_pipeline_simulate()'s). */
int hkt_order_time(double *begin, double *end, const struct hkt_order *order, const hkt_pipeline_times_t *times);

/* Seconds of one op of `virtual_stage`. */
double hkt_pipeline_seconds(const hkt_pipeline_times_t *times, const hkt_pipeline_shape_t *shape, hkt_action_t action,
                            int virtual_stage);

/* "F3.0", "send F3.0 to 1": micro-batch and chunk. snprintf()'s result. */
int hkt_instruction_text(char *text, size_t size, const hkt_instruction_t *in);

static inline int hkt_virtual_stage(const hkt_pipeline_shape_t *shape, int stage, int chunk)
{
    return chunk * shape->stages + stage;
}

static inline int hkt_last_virtual_stage(const hkt_pipeline_shape_t *shape)
{
    return shape->stages * shape->chunks - 1;
}

/* Ops of one stage for each micro-batch and chunk: forward, backward in one or two. */
static inline int hkt_pipeline_parts(hkt_pipeline_kind_t kind)
{
    return kind == HKT_PIPELINE_FORWARD ? 1 : kind == HKT_PIPELINE_ZERO_BUBBLE ? 3 : 2;
}

/* Index of (chunk, micro) in tables of one stage. */
static inline size_t hkt_pair(const hkt_pipeline_shape_t *shape, const hkt_instruction_t *in)
{
    return (size_t)in->chunk * (size_t)shape->micros + (size_t)in->micro;
}

#endif
