/* planner_job.h -- for the tests of the planner: jobs from presets, layouts, and numbers that must be close. */
#ifndef TEST_PLANNER_JOB_H
#define TEST_PLANNER_JOB_H

#include "harness.h"

#include <hocket_train.h>

#include <math.h>

static inline void near(double got, double wanted, double tolerance, const char *what)
{
    expect(fabs(got - wanted) <= tolerance, "%s is %.9g, %.9g within %.3g is expected", what, got, wanted, tolerance);
}

static inline hkt_plan_model_t model(const char *name)
{
    hkt_plan_model_t m;

    expect_ok(hkt_plan_model(&m, name));
    return m;
}

static inline hkt_plan_job_t job(const char *name, const char *machine, int world, int batch)
{
    hkt_plan_job_t j = {.model = model(name), .bytes = HKT_PLAN_BF16, .world = world, .global_batch = batch};

    expect_ok(hkt_plan_machine(&j.machine, machine));
    return j;
}

static inline hkt_plan_layout_t layout(int tp, int pp, int dp, int chunks, int micro_batch)
{
    return (hkt_plan_layout_t){.tp          = tp,
                               .cp          = 1,
                               .pp          = pp,
                               .dp          = dp,
                               .schedule    = chunks > 1 ? HKT_PIPELINE_INTERLEAVED : HKT_PIPELINE_1F1B,
                               .chunks      = chunks,
                               .micro_batch = micro_batch};
}

#endif
