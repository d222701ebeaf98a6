/* test_planner_pipeline.c -- the planner's stages: their layers, what is in flight, bubbles. Golden numbers are those
 * of the requirements' section 1.4, from a simulator of Megatron's order.
 */
#include "planner_job.h"

#include <string.h>

/* Whatever the layout, no layer is lost (case C09), and no stage has nothing to do. */
START_TEST(T_C09_no_layer_is_lost)
{
    hkt_plan_model_t m        = model("gpt2-124m");
    int              possible = 0;

    for (m.layers = 1; m.layers <= 40; m.layers++)
        for (int p = 1; p <= 10; p++)
            for (int v = 1; v <= 5; v++)
                for (int head = 0; head <= 4; head++) {
                    hkt_plan_layout_t l   = layout(1, p, 1, v, 1);
                    int               sum = 0, least = 99;

                    l.head_layers = head;
                    for (int stage = 0; stage < p; stage++) {
                        const int layers = hkt_plan_stage_layers(&m, &l, stage);

                        sum += layers;
                        least = layers < least ? layers : least;
                    }
                    expect(sum == 0 || (sum == m.layers && least > 0),
                           "%d of %d layers on %d stages, %d chunks, head %d", sum, m.layers, p, v, head);
                    expect(sum || head || v > 1 || p > m.layers, "%d layers on %d stages is possible", m.layers, p);
                    possible += sum > 0;
                }
    expect(possible > 1500, "%d layouts are possible", possible);
}
END_TEST

/* GPT-2's head costs as much as two to four layers: on two stages 12 layers are not best as 6 and 6. */
START_TEST(the_head_takes_the_place_of_layers)
{
    const hkt_plan_job_t j    = job("gpt2-124m", "h200", 2, 64);
    hkt_plan_layout_t    l    = layout(1, 2, 1, 1, 1);
    double               best = INFINITY;
    int                  at   = -1;
    hkt_plan_time_t      time;

    for (l.head_layers = 0; l.head_layers <= 6; l.head_layers++) {
        if (hkt_plan_check(NULL, 0, &j, &l))
            continue;
        expect_ok(hkt_plan_time(&time, &j, &l));
        if (time.step < best) {
            best = time.step;
            at   = l.head_layers;
        }
    }
    l.head_layers = at;
    ck_assert_int_eq(hkt_plan_stage_layers(&j.model, &l, 0) + hkt_plan_stage_layers(&j.model, &l, 1), 12);
    ck_assert_int_ge(hkt_plan_stage_layers(&j.model, &l, 1), 4);
    ck_assert_int_le(hkt_plan_stage_layers(&j.model, &l, 1), 5);
    l.head_layers = 0;
    expect_ok(hkt_plan_time(&time, &j, &l));
    expect(best < 0.95 * time.step, "with %d layers less on the last stage %g s, with 6 and 6 %g s", at, best,
           time.step);
}
END_TEST

/* Peaks of the golden table, in micro-batches x chunks. */
START_TEST(in_flight_of_the_golden_table)
{
    static const struct {
        int p, m, v, peak[8];
    } rows[] = {{2, 4, 1, {2, 1}},
                {2, 4, 2, {5, 3}},
                {4, 8, 1, {4, 3, 2, 1}},
                {4, 8, 2, {11, 9, 7, 5}},
                {4, 8, 4, {19, 17, 15, 13}},
                {8, 8, 1, {8, 7, 6, 5, 4, 3, 2, 1}},
                {8, 16, 2, {23, 21, 19, 17, 15, 13, 11, 9}},
                {4, 2, 1, {2, 2, 2, 1}},
                {4, 4, 2, {8, 8, 7, 5}},
                {4, 12, 3, {15, 13, 11, 9}}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        hkt_plan_job_t          j = job("22b", "a100-80g-dgx", rows[i].p, rows[i].m);
        const hkt_plan_layout_t l = layout(1, rows[i].p, 1, rows[i].v, 1);
        hkt_plan_stage_t        stage[8];

        expect_ok(hkt_plan_memory(stage, &j, &l));
        for (int k = 0; k < rows[i].p; k++)
            near(stage[k].in_flight, rows[i].peak[k], 0, "activations in flight");
    }
}
END_TEST

/* The same against the simulator, for every schedule and shape that is possible. */
START_TEST(in_flight_is_that_of_the_simulator)
{
    hkt_plan_job_t j    = job("gpt2-124m", "cpu", 1, 1);
    int            seen = 0;

    j.model.layers = 8 * 4 * 3;
    for (int kind = HKT_PIPELINE_GPIPE; kind <= HKT_PIPELINE_ZERO_BUBBLE; kind++)
        for (int p = 2; p <= 8; p++)
            for (int m = 1; m <= 16; m++)
                for (int v = 1; v <= 4; v++) {
                    const hkt_pipeline_shape_t shape = {(hkt_pipeline_kind_t)kind, p, v, m, 0};
                    hkt_plan_layout_t          l     = layout(1, p, 1, v, 1);
                    hkt_pipeline_stage_t       wanted[8];
                    hkt_pipeline_timing_t      timing;
                    hkt_plan_stage_t           stage[8];

                    j.world = p, j.global_batch = m, l.schedule = kind;
                    if (hkt_plan_memory(stage, &j, &l) || hkt_pipeline_simulate(&timing, wanted, &shape, NULL))
                        continue;
                    for (int k = 0; k < p; k++)
                        expect(stage[k].in_flight >= wanted[k].peak &&
                                   (kind == HKT_PIPELINE_ZERO_BUBBLE || stage[k].in_flight <= wanted[k].peak),
                               "%s p %d m %d v %d stage %d: %g in flight, the simulator has %d",
                               hkt_pipeline_name(shape.kind), p, m, v, k, stage[k].in_flight, wanted[k].peak);
                    seen++;
                }
    expect(seen > 300, "only %d shapes were compared", seen);
}
END_TEST

/* A machine on which nothing but products takes time, and a model whose ends take none. */
static hkt_plan_job_t ideal(int p, int m)
{
    hkt_plan_job_t j = job("gpt2-124m", "cpu", p, m);

    j.model.vocabulary        = 1;
    j.model.pad               = 1;
    j.model.layers            = 64;
    j.machine.launch          = 0;
    j.machine.traffic         = 1e30;
    j.machine.link[0].latency = 0, j.machine.link[0].bandwidth = 1e30;
    return j;
}

/* Rows 18 and 21: (p - 1)/(v m) of the ideal time, which is (p - 1)/(v m + p - 1) of the whole (contradiction 9). */
START_TEST(R18_R21_bubbles)
{
    for (int p = 2; p <= 8; p *= 2)
        for (int v = 1; v <= 4; v *= 2)
            for (int m = p; m <= 256; m *= 4) {
                const hkt_plan_job_t    j = ideal(p, m);
                const hkt_plan_layout_t l = layout(1, p, 1, v, 1);
                hkt_plan_time_t         time;
                const double            wanted = (p - 1.0) / (v * m);

                expect_ok(hkt_plan_time(&time, &j, &l));
                near(time.part[HKT_PLAN_BUBBLE] / time.part[HKT_PLAN_PRODUCTS], wanted, 2e-4 * wanted + 1e-6,
                     "bubble / ideal");
                near(time.part[HKT_PLAN_BUBBLE] / time.step, (p - 1.0) / (v * m + p - 1.0), 1e-3 * wanted + 1e-6,
                     "bubble / all");
                near(time.part[HKT_PLAN_PP], 0, 1e-9 * time.step, "messages");
            }
}
END_TEST

/* What is not run of a long pipeline is what would have come out: as many seconds for every further round of
 * micro-batches. */
START_TEST(long_pipelines_are_linear)
{
    for (int schedule = HKT_PIPELINE_1F1B; schedule <= HKT_PIPELINE_ZERO_BUBBLE; schedule++) {
        double before = 0, each = 0;

        for (int round = 1; round <= 40; round++) {
            hkt_plan_job_t    j = job("175b", "v100", 8, 8 * round);
            hkt_plan_layout_t l = layout(1, 8, 1, schedule == HKT_PIPELINE_INTERLEAVED ? 3 : 1, 1);
            hkt_plan_time_t   time;

            l.schedule = schedule;
            expect_ok(hkt_plan_time(&time, &j, &l));
            if (round >= 5)
                near(time.step - before, each, 1e-9 * time.step, "seconds of a round");
            each   = time.step - before;
            before = time.step;
        }
    }
}
END_TEST

/* The parts are the step. */
START_TEST(parts_sum_up)
{
    const hkt_plan_job_t j = job("175b", "a100-80g-dgx", 128, 256);
    hkt_plan_layout_t    l = layout(8, 8, 2, 3, 1);
    hkt_plan_time_t      time;
    double               sum = 0;

    l.zero = 1;
    expect_ok(hkt_plan_time(&time, &j, &l));
    for (int part = 0; part < HKT_PLAN_PARTS; part++) {
        sum += time.part[part];
        expect(time.part[part] >= 0 && strcmp(hkt_plan_part_name(part), "?"), "%s takes %g s", hkt_plan_part_name(part),
               time.part[part]);
    }
    near(sum, time.step, 1e-12 * sum, "the parts");
    near(time.tokens, 256 * 2048 / time.step, 1, "tokens/s");
    ck_assert_int_eq(time.link[HKT_PLAN_TP], 0);
    ck_assert_int_eq(time.link[HKT_PLAN_PP], 1);
    ck_assert_int_eq(time.link[HKT_PLAN_CP], -1);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, T_C09_no_layer_is_lost, 1, 10);
    ADD(s, the_head_takes_the_place_of_layers, 1, 10);
    ADD(s, in_flight_of_the_golden_table, 1, 10);
    ADD(s, in_flight_is_that_of_the_simulator, 1, 20);
    ADD(s, R18_R21_bubbles, 1, 20);
    ADD(s, long_pipelines_are_linear, 1, 20);
    ADD(s, parts_sum_up, 1, 10);
}

int main(void)
{
    return run_suite("planner pipeline", add);
}
