/* test_planner_refuse.c -- what the planner says to layouts, jobs and names that make no sense: the rule, the value,
 * what would be valid; and an answer to any numbers at all. Rows are those of the requirements.
 */
#include "planner_job.h"

#include <limits.h>
#include <string.h>

/* Every rule that is broken is told with what would be valid. */
START_TEST(R36_all_broken_rules_are_told)
{
    const hkt_plan_job_t     j        = job("gpt2-1.5b", "h100-dgx", 64, 100);
    const hkt_plan_layout_t  l        = {2, 1, 5, 3, HKT_PIPELINE_INTERLEAVED, 7, 0, 5, 7, 3, 0, 2};
    static const char *const wanted[] = {"TP 2 x CP 1 x PP 5 x DP 3 are not the 64 devices",
                                         "TP 2 does not divide the 25 heads; valid: 1, 5, 25",
                                         "DP 3 does not divide the 100 sequences",
                                         "micro-batches of 7",
                                         "48 layers do not make 7 chunks",
                                         "ZeRO 5",
                                         "recomputation 3",
                                         "offload 2"};
    hkt_plan_stage_t         stage[5];
    char                     text[2048];

    expect(hkt_plan_check(text, sizeof(text), &j, &l) >= 8, "%s", text);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        expect(strstr(text, wanted[i]), "\"%s\" is missing in: %s", wanted[i], text);
    expect_code(hkt_plan_memory(stage, &j, &l), HKT_ERR_ARGUMENT);
    expect_said("TP 2 does not divide the 25 heads");
}
END_TEST

START_TEST(reasons_have_values)
{
    const hkt_plan_job_t j = job("gpt2-1.5b", "v100", 16, 64);
    hkt_plan_family_t   *f;
    size_t               n;

    expect_ok(hkt_plan_search(&f, &n, &j, NULL));
    for (size_t i = 0; i < n; i++) {
        if (f[i].found)
            continue;
        if (f[i].layout.tp == 2)
            expect(strstr(f[i].reason, "25 heads"), "TP 2: %s", f[i].reason);
        expect(f[i].refused + f[i].over > 0, "nothing was counted for TP %d PP %d", f[i].layout.tp, f[i].layout.pp);
    }
    hkt_plan_search_free(f);
}
END_TEST

START_TEST(unknown_names_are_refused_with_the_known)
{
    hkt_plan_model_t   m;
    hkt_plan_machine_t k;

    expect_code(hkt_plan_model(&m, "gpt5"), HKT_ERR_ARGUMENT);
    expect_said("bloom-176b");
    expect_code(hkt_plan_machine(&k, "pdp11"), HKT_ERR_ARGUMENT);
    expect_said("h100-dgx");
    expect_code(hkt_plan_model(&m, NULL), HKT_ERR_ARGUMENT);
    ck_assert_ptr_null(hkt_plan_model_name(-1));
    ck_assert_ptr_null(hkt_plan_machine_name(1000));
    ck_assert_str_eq(hkt_recompute_name(7), "?");
    ck_assert_str_eq(hkt_plan_part_name(-1), "?");
}
END_TEST

/* Each bad field of a job is named, by every function that takes one. */
START_TEST(bad_jobs_are_refused)
{
    const hkt_plan_layout_t  l      = {1, 1, 1, 1, HKT_PIPELINE_1F1B, 1, 0, 0, 1, 0, 0, 0};
    static const char *const said[] = {"layers",     "hidden",   "heads",     "kv_heads",     "ffn",
                                       "vocabulary", "sequence", "positions", "memory",       "classes of links",
                                       "bandwidth",  "span",     "world",     "global batch", "parameter",
                                       "latency",    "achieved"};

    for (int i = 0; i < 17; i++) {
        hkt_plan_job_t     j = job("gpt2-124m", "h200", 8, 64);
        hkt_plan_family_t *f = NULL;
        hkt_plan_stage_t   stage;
        hkt_plan_time_t    time;
        size_t             n;
        int *const         whole[] = {&j.model.layers, &j.model.hidden,     &j.model.heads,    &j.model.kv_heads,
                                      &j.model.ffn,    &j.model.vocabulary, &j.model.sequence, &j.model.positions};
        double *const real[] = {&j.machine.memory, &j.bytes.parameter, &j.machine.link[1].latency, &j.machine.achieved};

        if (i < 8)
            *whole[i] = i == 3 ? 7 : -1;
        else if (i == 8 || i >= 14)
            *real[i == 8 ? 0 : i - 13] = i == 14 ? 0 : NAN;
        else if (i == 9)
            j.machine.links = 5;
        else if (i == 10)
            j.machine.link[0].bandwidth = 0;
        else if (i == 11)
            j.machine.link[1].span = 12;
        else if (i == 12)
            j.world = 0;
        else
            j.global_batch = INT_MAX;
        expect_code(hkt_plan_search(&f, &n, &j, NULL), HKT_ERR_ARGUMENT);
        expect_said(said[i]);
        expect_code(hkt_plan_check(NULL, 0, &j, &l), HKT_ERR_ARGUMENT);
        expect_code(hkt_plan_memory(&stage, &j, &l), HKT_ERR_ARGUMENT);
        expect_code(hkt_plan_time(&time, &j, &l), HKT_ERR_ARGUMENT);
        ck_assert_ptr_null(f);
        expect(i >= 8 || isnan(hkt_plan_parameters(&j.model)), "parameters of a bad model");
    }
}
END_TEST

/* Any numbers at all: an answer, never a crash; and what breaks no rule has a time that is one. */
START_TEST(any_layout_gets_an_answer)
{
    const hkt_plan_job_t j     = job("175b", "a100-80g-dgx", 512, 1536);
    static const int     odd[] = {INT_MIN, -1, 0, 1, 2, 3, 4, 8, 16, 64, 512, 1536, 1 << 20, INT_MAX};
    uint64_t             seed  = 42;
    int                  valid = 0;

    for (int i = 0; i < 300000; i++) {
        hkt_plan_layout_t l;
        int *const field[] = {&l.tp,          &l.cp,   &l.pp,          &l.dp,        &l.schedule,          &l.chunks,
                              &l.head_layers, &l.zero, &l.micro_batch, &l.recompute, &l.sequence_parallel, &l.offload};
        char       text[64];
        hkt_plan_time_t time;

        for (int k = 0; k < 12; k++) {
            const uint64_t draw = seed = mix(seed + 1);

            *field[k] = draw % 8 ? (int)(1 << draw / 8 % 4) : odd[draw / 8 % 14];
            if (*field[k] > 0)
                *field[k] -= k == 6 || k == 7 || k >= 9;
        }
        l.cp = 1, l.dp = 512 / (l.tp > 0 ? l.tp : 1) / (l.pp > 0 ? l.pp : 1);
        if (hkt_plan_check(text, sizeof(text), &j, &l) || hkt_plan_time(&time, &j, &l))
            continue;
        valid++;
        expect(isfinite(time.step) && time.step > 0, "%g s", time.step);
    }
    expect(valid > 20, "only %d of the layouts were valid", valid);
}
END_TEST

/* Limits nobody can keep, and a model that fits nowhere. */
START_TEST(nothing_to_offer)
{
    hkt_plan_job_t     j      = job("1t", "v100", 8, 8);
    hkt_plan_layout_t  limits = HKT_PLAN_LAYOUT_ANY;
    hkt_plan_family_t *f      = NULL;
    size_t             n;

    limits.tp = 3;
    expect_code(hkt_plan_search(&f, &n, &j, &limits), HKT_ERR_ARGUMENT);
    expect_said("TP 3");
    limits.tp = HKT_PLAN_ANY;
    expect_ok(hkt_plan_search(&f, &n, &j, NULL));
    for (size_t i = 0; i < n; i++)
        expect(!f[i].found && f[i].reason[0], "a trillion parameters fit on 8 V100");
    expect(strstr(f[0].reason, "GiB of 28.9"), "%s", f[0].reason);
    hkt_plan_search_free(f);
    hkt_plan_search_free(NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, R36_all_broken_rules_are_told, 1, 10);
    ADD(s, reasons_have_values, 1, 10);
    ADD(s, unknown_names_are_refused_with_the_known, 1, 10);
    ADD(s, bad_jobs_are_refused, 1, 10);
    ADD(s, any_layout_gets_an_answer, 1, 30);
    ADD(s, nothing_to_offer, 1, 10);
}

int main(void)
{
    return run_suite("planner refuse", add);
}
