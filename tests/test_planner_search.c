/* test_planner_search.c -- the planner's search: the same as trying everything, never over the budget, and with a
 * reason for whatever it does not offer. Rows are those of the requirements. */
#include "planner_job.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const hkt_plan_layout_t any = HKT_PLAN_LAYOUT_ANY;

/* The best plan; the job must have one. */
static hkt_plan_family_t best_within(const hkt_plan_job_t *j, const hkt_plan_layout_t *limits)
{
    hkt_plan_family_t *f, best;
    size_t             n;

    expect_ok(hkt_plan_search(&f, &n, j, limits));
    best = f[0];
    hkt_plan_search_free(f);
    expect(best.found, "%s on %d: %s", j->model.name, j->world, best.reason);
    return best;
}

/* ---- all there is ------------------------------------------------------------------------------------------------ */

enum { HEADS = 3 /* 0 to 2: the head of these models costs as much as 1.5 layers */ };

struct brute {
    const hkt_plan_job_t *job;
    double                best; /* INFINITY: none */
    size_t                valid;
};

static void try_one(struct brute *b, const hkt_plan_layout_t *l)
{
    hkt_plan_time_t time;

    if (hkt_plan_check(NULL, 0, b->job, l))
        return;
    b->valid++;
    expect_ok(hkt_plan_time(&time, b->job, l));
    b->best = fmin(b->best, time.step);
}

/* Every value that any field could have, one after the other, by a counter in mixed radix. */
static void try_everything(struct brute *b, hkt_plan_layout_t l)
{
    const int radix[] = {3, b->job->model.layers, HEADS, 4, b->job->global_batch, HKT_RECOMPUTES, 2, 2};
    int      *field[] = {&l.schedule,    &l.chunks,    &l.head_layers,       &l.zero,
                         &l.micro_batch, &l.recompute, &l.sequence_parallel, &l.offload};
    long      all     = 1;

    for (int i = 0; i < 8; i++)
        all *= radix[i];
    for (long k = 0; k < all; k++) {
        long rest = k;

        for (int i = 0; i < 8; i++, rest /= radix[i - 1])
            *field[i] = (int)(rest % radix[i]);
        l.schedule += HKT_PIPELINE_1F1B;
        l.chunks++;
        l.micro_batch++;
        try_one(b, &l);
    }
}

/* Row 103. Small jobs that are hard in different ways: memory too small for most, enough for all, blocked attention
 * with CP, layers that do not divide, slow links, everything allowed. */
static const struct {
    int      layers, world, batch;
    bool     blocked;
    double   memory; /* MB */
    double   link;   /* GB/s between nodes of 4 */
    unsigned options;
} spaces[] = {{4, 8, 8, false, 400, 1, 0},
              {4, 8, 8, false, 150, 1, HKT_PLAN_ZERO_ANYWHERE},
              {6, 4, 12, true, 300, 5, 0},
              {5, 8, 16, true, 220, 0.1, HKT_PLAN_TP_ANYWHERE | HKT_PLAN_ZERO_ANYWHERE},
              {6, 12, 12, true, 2000, 1, HKT_PLAN_NO_OVERLAP},
              {8, 4, 16, false, 1e5, 10, 0},
              {7, 6, 6, true, 120, 1, HKT_PLAN_ZERO_ANYWHERE}};

enum { SPACES = sizeof(spaces) / sizeof(spaces[0]), DRAWN = 16 };

/* One of the table; behind them, numbers drawn so that memory is short in many ways. */
static hkt_plan_job_t space(int i)
{
    static const int worlds[] = {2, 4, 6}, batches[] = {4, 6, 8};
    const uint64_t   draw   = mix((uint64_t)i + 7);
    const bool       listed = i < SPACES;
    hkt_plan_job_t   j      = job("gpt2-124m", "cpu", listed ? spaces[i].world : worlds[draw % 3],
                           listed ? spaces[i].batch : batches[draw / 3 % 3]);

    j.model.layers     = listed ? spaces[i].layers : (int)(2 + draw / 9 % 4);
    j.model.hidden     = 384;
    j.model.ffn        = 1536;
    j.model.sequence   = 512;
    j.model.vocabulary = 8192;
    j.model.blocked    = listed ? spaces[i].blocked : draw / 64 % 2;
    j.machine.memory   = 1e6 * (listed ? spaces[i].memory : 50 * pow(2, (double)(draw / 128 % 1024) / 400));
    j.machine.links    = 2;
    j.machine.link[0]  = (hkt_plan_link_t){"memory", 4, 10e9, 1e-6};
    j.machine.link[1]  = (hkt_plan_link_t){"ethernet", 0, (listed ? spaces[i].link : 1) * 1e9, 20e-6};
    j.machine.host =
        listed ? 1e9 : ldexp(j.machine.traffic, -(int)(draw >> 20 & 7));       /* offloading is worth it at times */
    j.machine.launch = listed ? 1e-6 : pow(10, -2 - (double)(draw >> 29 & 3)); /* larger micro-batches, too */
    j.options        = listed ? spaces[i].options : draw >> 26 & 7;
    return j;
}

START_TEST(R103_search_equals_trying_everything)
{
    const hkt_plan_job_t j = space(_i);
    hkt_plan_family_t   *f;
    size_t               n, found = 0, families = 0, valid = 0, timed = 0;

    expect_ok(hkt_plan_search(&f, &n, &j, NULL));
    for (size_t i = 0; i < n; i++) {
        struct brute b = {&j, INFINITY, 0};

        try_everything(&b, f[i].layout);
        expect(f[i].found == (b.best < INFINITY), "TP %d CP %d PP %d: the search says %d, there are %zu",
               f[i].layout.tp, f[i].layout.cp, f[i].layout.pp, f[i].found, b.valid);
        expect(!f[i].found || fabs(f[i].time.step / b.best - 1) < 1e-9,
               "TP %d CP %d PP %d: %.12g s, the best of all takes %.12g", f[i].layout.tp, f[i].layout.cp,
               f[i].layout.pp, f[i].time.step, b.best);
        expect(f[i].found || strlen(f[i].reason) > 10, "no reason for TP %d CP %d PP %d", f[i].layout.tp,
               f[i].layout.cp, f[i].layout.pp);
        expect(i == 0 || !f[i].found || (f[i - 1].found && f[i - 1].time.step <= f[i].time.step),
               "plan %zu is not in order", i);
        found += f[i].found;
        valid += b.valid;
        timed += f[i].timed;
        families++;
    }
    for (int tp = 1; tp <= j.world; tp++) /* no family is left out */
        for (int cp = 1; cp <= j.world; cp++)
            for (int pp = 1; pp <= j.world; pp++)
                families -= j.world % (tp * cp * pp) == 0;
    ck_assert_uint_eq(families, 0);
    expect((found > 0 && timed < valid) || _i >= SPACES, "%zu families have plans, %zu of %zu plans were timed", found,
           timed, valid);
    hkt_plan_search_free(f);
}
END_TEST

/* Where starting kernels is dear, large micro-batches are worth recomputation; where memory outside is slow,
 * recomputation is better than offloading: neither is skipped. */
START_TEST(R103_nothing_better_is_skipped)
{
    hkt_plan_job_t    j      = job("gpt2-124m", "h200", 1, 64);
    hkt_plan_layout_t limits = any;
    int               seen   = 0;

    j.machine.launch = 5e-3;
    j.machine.host   = 2e7;
    limits.zero      = 0;
    for (double gb = 2.2; gb < 60; gb *= 1.09) {
        struct brute      b = {&j, INFINITY, 0};
        hkt_plan_layout_t l = {1, 1, 1, 1, HKT_PIPELINE_1F1B, 1, 0, 0, 1, 0, 0, 0};
        hkt_plan_family_t best;

        j.machine.memory = gb * 1e9;
        for (l.micro_batch = 1; l.micro_batch <= 64; l.micro_batch *= 2)
            for (l.recompute = 0; l.recompute < HKT_RECOMPUTES; l.recompute++)
                for (l.offload = 0; l.offload < 2; l.offload++)
                    try_one(&b, &l);
        if (b.valid == 0)
            continue;
        best = best_within(&j, &limits);
        expect(fabs(best.time.step / b.best - 1) < 1e-9, "with %.1f GB %g s were found, %g are possible", gb,
               best.time.step, b.best);
        seen |= (best.layout.offload ? 1 : best.layout.recompute ? 2 : 4) | (best.layout.micro_batch > 8 ? 8 : 16);
    }
    ck_assert_int_eq(seen & 26, 26);
}
END_TEST

/* Stage 3 is taken where nothing else fits, and only there. */
START_TEST(R65_zero_3_where_it_is_needed)
{
    hkt_plan_job_t     j      = job("7.5b", "a100-80g-dgx", 64, 512);
    hkt_plan_layout_t  limits = any;
    hkt_plan_family_t *f;
    size_t             n;

    j.machine.memory = 15e9;
    limits.tp = limits.pp = limits.cp = 1;
    ck_assert_int_eq(best_within(&j, &limits).layout.zero, 3);
    for (limits.zero = 0; limits.zero < 3; limits.zero++) {
        expect_ok(hkt_plan_search(&f, &n, &j, &limits));
        expect(n == 1 && !f->found && f->over > 0, "ZeRO %d fits", limits.zero);
        hkt_plan_search_free(f);
    }
}
END_TEST

/* ---- what is offered --------------------------------------------------------------------------------------------- */

/* Every model on several machines, few and many of them: what is found breaks no rule and fits. */
START_TEST(R103_nothing_is_over_the_budget)
{
    static const char *const machines[] = {"a100-80g-dgx", "h200", "v100", "cpu"};
    static const int         worlds[]   = {8, 96};
    size_t                   plans      = 0;

    for (int m = _i; hkt_plan_model_name(m); m += 3)
        for (int k = 0; k < 4; k++)
            for (int w = 0; w < 2; w++) {
                const hkt_plan_job_t j = job(hkt_plan_model_name(m), machines[k], worlds[w], 768);
                hkt_plan_family_t   *f;
                size_t               n;

                expect_ok(hkt_plan_search(&f, &n, &j, NULL));
                for (size_t i = 0; i < n && f[i].found; i++, plans++) {
                    char             text[512];
                    hkt_plan_stage_t stage[384];
                    double           most = 0;

                    expect(hkt_plan_check(text, sizeof(text), &j, &f[i].layout) == 0, "%s on %s x %d: %s", j.model.name,
                           j.machine.name, j.world, text);
                    expect_ok(hkt_plan_memory(stage, &j, &f[i].layout));
                    for (int s = 0; s < f[i].layout.pp; s++)
                        most = fmax(most, stage[s].total);
                    expect(most == f[i].memory && most <= j.machine.memory, "%.9g bytes, said %.9g, limit %.9g", most,
                           f[i].memory, j.machine.memory);
                }
                hkt_plan_search_free(f);
            }
    expect(plans > 100, "only %zu plans", plans);
}
END_TEST

/* Row 35: TP stays where links are fast, unless it is forced. */
START_TEST(R35_tp_stays_in_the_node)
{
    hkt_plan_job_t     j = job("1t", "a100-80g-dgx", 512, 512);
    hkt_plan_layout_t  l = {16, 1, 32, 1, HKT_PIPELINE_1F1B, 1, 0, 0, 1, HKT_RECOMPUTE_FULL, 0, 0};
    hkt_plan_family_t *f;
    hkt_plan_time_t    inside, outside;
    size_t             n;
    char               text[512];

    expect_ok(hkt_plan_search(&f, &n, &j, NULL));
    for (size_t i = 0; i < n; i++)
        expect(!f[i].found || f[i].layout.tp <= 8, "TP %d crosses nodes", f[i].layout.tp);
    hkt_plan_search_free(f);
    ck_assert_int_eq(hkt_plan_check(text, sizeof(text), &j, &l), 1);
    expect(strstr(text, "TP 16 would leave the 8 devices joined by nvlink; valid: 1, 2, 4, 8"), "%s", text);
    j.options = HKT_PLAN_TP_ANYWHERE;
    ck_assert_int_eq(hkt_plan_check(text, sizeof(text), &j, &l), 0);
    expect_ok(hkt_plan_time(&outside, &j, &l));
    l.tp = 8, l.dp = 2;
    expect_ok(hkt_plan_time(&inside, &j, &l));
    expect(outside.link[HKT_PLAN_TP] == 1 && outside.part[HKT_PLAN_TP] > 3 * inside.part[HKT_PLAN_TP],
           "TP takes %.1f s across nodes, %.1f s within", outside.part[HKT_PLAN_TP], inside.part[HKT_PLAN_TP]);
}
END_TEST

/* Row 64: as DeepSpeed does; forced, it is possible and costs a reduction for every micro-batch. */
START_TEST(R64_zero_2_under_a_pipeline_is_refused)
{
    hkt_plan_job_t    j = job("7.5b", "a100-80g-dgx", 16, 128);
    hkt_plan_layout_t l = {1, 1, 4, 4, HKT_PIPELINE_1F1B, 1, 0, 2, 1, HKT_RECOMPUTE_FULL, 0, 0}, one = l;
    hkt_plan_time_t   two, less;
    char              text[512];

    one.zero = 1;
    ck_assert_int_eq(hkt_plan_check(text, sizeof(text), &j, &l), 1);
    expect(strstr(text, "ZeRO 2 under PP 4") && strstr(text, "valid: 0, 1"), "%s", text);
    expect_code(hkt_plan_time(&two, &j, &l), HKT_ERR_ARGUMENT);
    j.options = HKT_PLAN_ZERO_ANYWHERE;
    ck_assert_int_eq(hkt_plan_check(text, sizeof(text), &j, &l), 0);
    expect_ok(hkt_plan_time(&two, &j, &l));
    expect_ok(hkt_plan_time(&less, &j, &one));
    expect(two.sent[HKT_PLAN_DP] > 10 * less.sent[HKT_PLAN_DP], "ZeRO 2 sends %g bytes, ZeRO 1 %g",
           two.sent[HKT_PLAN_DP], less.sent[HKT_PLAN_DP]);
}
END_TEST

/* Row 104: m and the order of the schedule come from the simulation. With few micro-batches the bubble is worth more
 * messages; where messages are dear there are fewer chunks. */
START_TEST(R104_schedule_and_chunks_are_chosen)
{
    hkt_plan_job_t    j      = job("175b", "a100-80g-dgx", 64, 16);
    hkt_plan_layout_t limits = any, plain;
    hkt_plan_family_t a, b;

    limits.tp = 8, limits.pp = 8, limits.schedule = HKT_PIPELINE_INTERLEAVED;
    plain          = limits;
    plain.schedule = HKT_PIPELINE_1F1B;
    a              = best_within(&j, &limits);
    b              = best_within(&j, &plain);
    expect(a.time.step < 0.85 * b.time.step, "with 16 sequences interleaving takes %.2f s, 1F1B %.2f s", a.time.step,
           b.time.step);
    j.machine.link[1].bandwidth /= 50;
    b = best_within(&j, &limits);
    expect(b.layout.chunks < a.layout.chunks, "%d chunks on a fast link, %d on a slow one", a.layout.chunks,
           b.layout.chunks);
    plain.schedule  = HKT_PIPELINE_ZERO_BUBBLE;
    a               = best_within(&j, &plain);
    limits.schedule = HKT_PLAN_ANY;
    expect(best_within(&j, &limits).time.step <= fmin(a.time.step, b.time.step), "the slower schedule was taken");
}
END_TEST

/* Row 106: with less memory micro-batches shrink and accumulation grows; the global batch stays. */
START_TEST(R106_accumulation_follows_memory)
{
    hkt_plan_job_t    j      = job("1.7b", "a100-80g-dgx", 8, 256);
    hkt_plan_layout_t limits = any;
    int               before = INT_MAX, different = 0;

    limits.tp = limits.cp = limits.pp = 1;
    limits.recompute                  = HKT_RECOMPUTE_SELECTIVE;
    limits.zero                       = 1;
    limits.offload                    = 0;
    for (double gb = 80; gb >= 20; gb /= 1.3) {
        hkt_plan_family_t best;

        j.machine.memory = gb * 1e9;
        best             = best_within(&j, &limits);
        ck_assert_int_eq(best.time.micro_batches * best.layout.micro_batch * best.layout.dp, 256);
        expect(best.layout.micro_batch <= before, "with %.0f GB micro-batches grow to %d", gb, best.layout.micro_batch);
        different += best.layout.micro_batch < before;
        before = best.layout.micro_batch;
    }
    expect(different >= 3, "the micro-batch changed %d times", different);
}
END_TEST

/* Row 107: optimizer state is what goes out first; weights, gradients and activations stay on the device, and it costs
 * time. */
START_TEST(R107_state_goes_outside_when_it_must)
{
    hkt_plan_job_t    j      = job("7.5b", "a100-80g-dgx", 1, 8);
    hkt_plan_layout_t limits = any;
    hkt_plan_family_t best   = {.found = false};
    hkt_plan_stage_t  stage;
    const double      p = hkt_plan_parameters(&j.model);

    best = best_within(&j, NULL);
    ck_assert_int_eq(best.layout.offload, 1);
    expect_ok(hkt_plan_memory(&stage, &j, &best.layout));
    expect(fabs(stage.outside - 12 * p) < 1e9 && stage.bytes[HKT_BYTES_OPTIMIZER] == 0, "%g bytes outside",
           stage.outside);
    expect(stage.bytes[HKT_BYTES_PARAMETER] >= 2 * p && stage.bytes[HKT_BYTES_GRADIENT] >= 4 * p, "what stays");
    expect(best.time.part[HKT_PLAN_OPTIMIZER] > 10, "an update takes %g s", best.time.part[HKT_PLAN_OPTIMIZER]);
    limits.offload = 0;
    {
        hkt_plan_family_t *f;
        size_t             n;

        expect_ok(hkt_plan_search(&f, &n, &j, &limits));
        expect(n == 1 && !f->found && strstr(f->reason, "needs") && strstr(f->reason, "optimizer"), "%s", f->reason);
        hkt_plan_search_free(f);
    }
    j.machine.memory = 1e12;
    ck_assert_int_eq(best_within(&j, NULL).layout.offload, 0);
}
END_TEST

/* Row 108: below ten billion DP with ZeRO, tens of billions with PP on top, beyond a hundred all three. */
START_TEST(R108_checklist)
{
    hkt_plan_job_t    j    = job("7.5b", "a100-80g-dgx", 64, 512);
    hkt_plan_family_t best = best_within(&j, NULL);

    expect(best.layout.tp == 1 && best.layout.pp == 1 && best.layout.zero >= 1, "7.5 B on 64: TP %d PP %d ZeRO %d",
           best.layout.tp, best.layout.pp, best.layout.zero);
    expect_ok(hkt_plan_model(&j.model, "39.1b"));
    j.model.hidden = 7168, j.model.heads = j.model.kv_heads = 56, j.model.ffn = 28672; /* 30 B */
    best = best_within(&j, NULL);
    expect(best.layout.pp > 1 && best.layout.dp > 1, "30 B on 64: TP %d PP %d DP %d", best.layout.tp, best.layout.pp,
           best.layout.dp);
    j    = job("175b", "a100-80g-dgx", 512, 1536);
    best = best_within(&j, NULL);
    expect(best.layout.tp > 1 && best.layout.pp > 1 && best.layout.dp > 1, "175 B on 512: TP %d PP %d DP %d",
           best.layout.tp, best.layout.pp, best.layout.dp);
    expect(best.time.flops / 312e12 > 0.5, "MFU %.2f", best.time.flops / 312e12);
}
END_TEST

/* The layout that was trained, found without a hint. */
START_TEST(bloom_comes_out)
{
    const hkt_plan_job_t    j    = job("bloom-176b", "a100-80g-dgx", 384, 2048);
    const hkt_plan_family_t best = best_within(&j, NULL);

    ck_assert_int_eq(best.layout.tp, 4);
    ck_assert_int_eq(best.layout.pp, 12);
    ck_assert_int_eq(best.layout.dp, 8);
    ck_assert_int_eq(best.layout.zero, 1);
    ck_assert_int_eq(best.layout.micro_batch, 2);
}
END_TEST

/* Megatron 2021, with what they had: full recomputation, nothing sharded, 1F1B. The published TP and PP or a step
 * beside it comes out, or theirs is within 5 % of the best; for the middle sizes only within 13 %, where more stages
 * and less TP are found to be faster. */
START_TEST(megatron_layouts_come_out)
{
    static const struct {
        const char *name;
        int         tp, pp, devices, batch;
        double      slower;
    } rows[]                    = {{"1.7b", 1, 1, 32, 512, 1.05},       {"3.6b", 2, 1, 64, 512, 1.08},
                                   {"7.5b", 4, 1, 128, 512, 1.13},      {"18.4b", 8, 1, 256, 1024, 1.13},
                                   {"39.1b", 8, 2, 512, 1536, 1.13},    {"76.1b", 8, 4, 1024, 1792, 1.08},
                                   {"145.6b", 8, 8, 1536, 2304, 1.05},  {"310.1b", 8, 16, 1920, 2160, 1.05},
                                   {"529.6b", 8, 35, 2520, 2520, 1.05}, {"1t", 8, 64, 3072, 3072, 1.05}};
    const hkt_plan_job_t j      = job(rows[_i].name, "a100-80g-dgx", rows[_i].devices, rows[_i].batch);
    hkt_plan_layout_t    theirs = any;
    hkt_plan_family_t    best, published;
    bool                 close;

    theirs.cp = 1, theirs.schedule = HKT_PIPELINE_1F1B, theirs.recompute = HKT_RECOMPUTE_FULL,
    theirs.zero = theirs.sequence_parallel = theirs.offload = 0;
    best                                                    = best_within(&j, &theirs);
    theirs.tp                                               = rows[_i].tp;
    theirs.pp                                               = rows[_i].pp;
    published                                               = best_within(&j, &theirs);
    close = best.layout.tp == rows[_i].tp && best.layout.pp <= 2 * rows[_i].pp && 2 * best.layout.pp >= rows[_i].pp;
    expect(close || published.time.step <= rows[_i].slower * best.time.step,
           "%s: best is TP %d PP %d, %.2f s; published takes %.2f s", rows[_i].name, best.layout.tp, best.layout.pp,
           best.time.step, published.time.step);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, R103_search_equals_trying_everything, SPACES + DRAWN, 60);
    ADD(s, R103_nothing_better_is_skipped, 1, 10);
    ADD(s, R65_zero_3_where_it_is_needed, 1, 10);
    ADD(s, R103_nothing_is_over_the_budget, 3, 60);
    ADD(s, R35_tp_stays_in_the_node, 1, 10);
    ADD(s, R64_zero_2_under_a_pipeline_is_refused, 1, 10);
    ADD(s, R104_schedule_and_chunks_are_chosen, 1, 20);
    ADD(s, R106_accumulation_follows_memory, 1, 10);
    ADD(s, R107_state_goes_outside_when_it_must, 1, 10);
    ADD(s, R108_checklist, 1, 20);
    ADD(s, bloom_comes_out, 1, 20);
    ADD(s, megatron_layouts_come_out, 10, 30);
}

int main(void)
{
    return run_suite("planner search", add);
}
