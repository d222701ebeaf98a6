/* test_planner.c -- the planner's model of memory and time against what was published. Tables are those of the papers;
 * where two texts contradict each other the test's comment says which reading holds. Rows and sections are those of the
 * requirements. */
#include "planner_job.h"

static const double GIB = 1 << 30, GB = 1e9;

/* ---- ZeRO: Rajbhandari et al. 2020 ------------------------------------------------------------------------------- */

/* Every cell of table 1 and figure 1, printed digits: model state of 7.5 B, 128 B and 1 T parameters. */
START_TEST(R97_zero_memory_is_that_of_the_paper)
{
    static const struct {
        int    n;
        double gb[3][3];
    } rows[]                            = {{1, {{120, 120, 120}, {2048, 2048, 2048}, {16000, 16000, 16000}}},
                                           {4, {{52.5, 41.3, 30}, {896, 704, 512}, {7000, 5500, 4000}}},
                                           {16, {{35.6, 21.6, 7.5}, {608, 368, 128}, {4750, 2875, 1000}}},
                                           {64, {{31.4, 16.6, 1.88}, {536, 284, 32}, {4187, 2218, 250}}},
                                           {256, {{30.4, 15.4, 0.47}, {518, 263, 8}, {4046, 2054, 62.5}}},
                                           {1024, {{30.1, 15.1, 0.12}, {513, 257, 2}, {4011, 2013, 15.6}}}};
    static const double    parameters[] = {7.5e9, 128e9, 1e12};
    const hkt_plan_bytes_t fp16         = HKT_PLAN_FP16;

    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
        for (int m = 0; m < 3; m++)
            for (int zero = 1; zero <= 3; zero++) {
                const double printed = rows[r].gb[m][zero - 1];
                /* the paper cuts some figures and rounds others */
                const double last = printed >= 100 ? 1.01 : printed >= 10 ? 0.101 : 0.0101;

                near(hkt_plan_states(&fp16, parameters[m], rows[r].n, zero) / GB, printed, last, "model state, GB");
            }
    near(hkt_plan_states(&fp16, 7.5e9, 64, 0) / GB, 120, 1e-9, "without ZeRO");
}
END_TEST

/* The limits for many devices are 4, 8 and N times; at 64 they are 3.8, 7.2 and 64 (1.4, contradiction 23). */
START_TEST(R97_savings_reach_their_limits)
{
    const hkt_plan_bytes_t fp16 = HKT_PLAN_FP16;

    near(16e9 / hkt_plan_states(&fp16, 1e9, 1 << 20, 1), 4, 1e-4, "ZeRO 1");
    near(16e9 / hkt_plan_states(&fp16, 1e9, 1 << 20, 2), 8, 1e-3, "ZeRO 2");
    near(16e9 / hkt_plan_states(&fp16, 1e9, 1 << 20, 3), 1 << 20, 1e-3, "ZeRO 3");
    near(16e9 / hkt_plan_states(&fp16, 1e9, 64, 1), 3.8, 0.05, "ZeRO 1, 64 devices");
    near(16e9 / hkt_plan_states(&fp16, 1e9, 64, 2), 7.2, 0.05, "ZeRO 2, 64 devices");
    near(16e9 / hkt_plan_states(&fp16, 1e9, 64, 3), 64, 1e-9, "ZeRO 3, 64 devices");
}
END_TEST

/* Only the optimizer's 12 bytes are shared, not all of the memory (contradiction 10): 12 GB become 3 on 4 devices. */
START_TEST(R61_zero_1_shares_the_optimizer_state)
{
    const hkt_plan_bytes_t fp16 = HKT_PLAN_FP16;

    near(hkt_plan_states(&fp16, 1e9, 1, 1), (2 + 2 + 12) * 1e9, 0, "one device");
    near(hkt_plan_states(&fp16, 1e9, 4, 1), (2 + 2 + 3) * 1e9, 0, "four devices");
}
END_TEST

/* Table 2: the largest model on 32 GB. */
START_TEST(R97_largest_model_of_table_2)
{
    static const struct {
        int    mp;
        double billions[4];
    } rows[]                    = {{1, {2, 7.6, 14.4, 128}},
                                   {2, {4, 15.2, 28.8, 256}},
                                   {4, {8, 30.4, 57.6, 512}},
                                   {8, {16, 60.8, 115.2, 1024}},
                                   {16, {32, 121.6, 230.4, 2048}}};
    const hkt_plan_bytes_t fp16 = HKT_PLAN_FP16;

    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
        for (int zero = 0; zero <= 3; zero++)
            near(rows[r].mp * 32 / hkt_plan_states(&fp16, 1, 64, zero), rows[r].billions[zero],
                 rows[r].billions[zero] * 0.006, "largest model, billions");
}
END_TEST

/* What a device sends: 2, 2, 2 and 3 times the parameters x (N - 1)/N for a micro-batch (contradictions 15, 17); with
 * several, stage 2 and 3 pay for every one (contradiction 19). */
START_TEST(R68_volumes)
{
    for (int zero = 0; zero <= 2; zero++)
        near(hkt_plan_volume(1e9, 4, zero, 1), 2 * 0.75e9, 0, "one micro-batch");
    near(hkt_plan_volume(1e9, 4, 3, 1), 3 * 0.75e9, 0, "ZeRO 3");
    near(hkt_plan_volume(1e9, 4, 1, 8), 2 * 0.75e9, 0, "ZeRO 1, 8 micro-batches");
    near(hkt_plan_volume(1e9, 4, 2, 8), 9 * 0.75e9, 0, "ZeRO 2, 8 micro-batches");
    near(hkt_plan_volume(1e9, 4, 3, 8), 24 * 0.75e9, 0, "ZeRO 3, 8 micro-batches");
    near(hkt_plan_volume(1e9, 1, 3, 8), 0, 0, "alone");
}
END_TEST

/* bf16 with fp32 gradients is 6 + 12/d, fp16 4 + 12/d, fp32 8 + 8/d (Megatron's own table has 16-byte fp16 optimizer
 * state: there a copy of the gradient in fp32 counts as optimizer state). */
START_TEST(bytes_for_each_parameter)
{
    const hkt_plan_bytes_t bf16 = HKT_PLAN_BF16, fp32 = HKT_PLAN_FP32;

    near(hkt_plan_states(&bf16, 1, 8, 1), 6 + 12.0 / 8, 1e-12, "bf16");
    near(hkt_plan_states(&bf16, 1, 1, 0), 18, 0, "bf16, alone");
    near(hkt_plan_states(&fp32, 1, 8, 1), 8 + 8.0 / 8, 1e-12, "fp32");
}
END_TEST

/* ---- Narayanan et al. 2021, table 1 ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    int         tp, pp, devices, batch;
    double      teraflops, billions, seconds;
} megatron[] = {{"1.7b", 1, 1, 32, 512, 137, 1.65, 3.53},          {"3.6b", 2, 1, 64, 512, 138, 3.56, 3.70},
                {"7.5b", 4, 1, 128, 512, 142, 7.47, 3.70},         {"18.4b", 8, 1, 256, 1024, 135, 18.45, 9.40},
                {"39.1b", 8, 2, 512, 1536, 138, 39.10, 14.45},     {"76.1b", 8, 4, 1024, 1792, 140, 76.05, 16.06},
                {"145.6b", 8, 8, 1536, 2304, 148, 145.62, 24.82},  {"310.1b", 8, 16, 1920, 2160, 155, 310.13, 37.61},
                {"529.6b", 8, 35, 2520, 2520, 163, 529.60, 54.08}, {"1t", 8, 64, 3072, 3072, 163, 1008.0, 102.6}};
enum { MEGATRON = sizeof(megatron) / sizeof(megatron[0]) };

/* P = 12 l h^2 (1 + 13/(12h) + (V + s)/(12lh)), which leaves out the last norm; F = 96 B s l h^2 (1 + s/(6h) +
 * V/(16lh)). */
START_TEST(megatron_parameters_and_flops)
{
    const hkt_plan_model_t m = model(megatron[_i].name);
    const double           l = m.layers, h = m.hidden, s = m.sequence, v = m.vocabulary, b = megatron[_i].batch;
    const double           p     = 12 * l * h * h * (1 + 13 / (12 * h) + (v + s) / (12 * l * h));
    const double           f     = 96 * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
    const double           found = hkt_plan_flops(&m, b, HKT_RECOMPUTE_FULL);

    near(hkt_plan_parameters(&m) - 2 * h, p, p * 1e-12, "parameters");
    near(hkt_plan_parameters(&m) / GB, megatron[_i].billions, megatron[_i].billions * 0.002, "billions");
    near(found, f, f * 1e-12, "FLOPs");
    near(found / megatron[_i].devices / megatron[_i].teraflops / 1e12, megatron[_i].seconds,
         0.006 * megatron[_i].seconds, "seconds at the published rate");
}
END_TEST

/* The published layout under 1F1B with the best micro-batch, which is not published: all ten are 2 to 8 % below what
 * was measured. */
START_TEST(megatron_times)
{
    hkt_plan_job_t          j = job(megatron[_i].name, "a100-80g-dgx", megatron[_i].devices, megatron[_i].batch);
    const hkt_plan_layout_t published = {.tp          = megatron[_i].tp,
                                         .cp          = 1,
                                         .pp          = megatron[_i].pp,
                                         .dp          = HKT_PLAN_ANY,
                                         .schedule    = HKT_PIPELINE_1F1B,
                                         .chunks      = 1,
                                         .micro_batch = HKT_PLAN_ANY,
                                         .recompute   = HKT_RECOMPUTE_FULL};
    hkt_plan_family_t      *f;
    size_t                  n;
    double                  ratio;

    expect_ok(hkt_plan_search(&f, &n, &j, &published));
    expect(n == 1 && f->found, "%s: %s", megatron[_i].name, f->reason);
    ratio = f->time.step / megatron[_i].seconds;
    expect(ratio > 0.92 && ratio < 0.99, "%s: %.2f s, %.2f were measured", megatron[_i].name, f->time.step,
           megatron[_i].seconds);
    hkt_plan_search_free(f);
}
END_TEST

/* ---- Korthikanti et al. 2022 ------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int         pp, chunks, devices, batch, micro_batch;
    double      gib[6], extras, full_s, present_s, mfu, hfu;
} korthikanti[] = {{"22b", 1, 1, 8, 4, 4, {59.2, 39.6, 29.2, 9.6, 4.5}, 0.22, 1.42, 1.10, 41.5, 43.7},
                   {"175b", 8, 3, 64, 64, 1, {66.8, 41.4, 37.8, 12.4, 5.8}, 0.02, 18.13, 13.75, 51.4, 52.8},
                   {"529.6b", 35, 3, 280, 280, 1, {114.0, 66.5, 70.6, 23.1, 10.9}, 0.17, 49.05, 37.83, 56.0, 57.0},
                   {"1t", 64, 1, 512, 512, 1, {131.2, 76.6, 81.2, 26.6, 12.5}, 0.39, 94.42, 71.49, 56.3, 57.0}};
enum { KORTHIKANTI = sizeof(korthikanti) / sizeof(korthikanti[0]) };

static hkt_plan_job_t korthikanti_job(int i, hkt_plan_layout_t *l)
{
    *l = layout(8, korthikanti[i].pp, 1, korthikanti[i].chunks, korthikanti[i].micro_batch);
    return job(korthikanti[i].name, "a100-80g-dgx", korthikanti[i].devices, korthikanti[i].batch);
}

/* Activations of the first stage for the five schemes, by the formulas to the byte and as printed. */
START_TEST(activation_formulas_and_table)
{
    static const struct {
        int sequence_parallel, recompute;
    } scheme[] = {{0, HKT_RECOMPUTE_NONE},
                  {1, HKT_RECOMPUTE_NONE},
                  {0, HKT_RECOMPUTE_SELECTIVE},
                  {1, HKT_RECOMPUTE_SELECTIVE},
                  {0, HKT_RECOMPUTE_FULL}};
    hkt_plan_layout_t    l;
    const hkt_plan_job_t j = korthikanti_job(_i, &l);
    const double s = j.model.sequence, b = l.micro_batch, h = j.model.hidden, a = j.model.heads, t = 8, p = l.pp,
                 v           = l.chunks;
    const double core        = 5 * a * s / h;
    const double per_layer[] = {10 + 24 / t + core / t, (34 + core) / t, 10 + 24 / t, 34 / t, 2};
    const double interleave  = v > 1 ? 1 + (p - 1) / (p * v) : 1;

    for (int i = 0; i < 5; i++) {
        hkt_plan_stage_t stage[64];
        const double     whole  = scheme[i].sequence_parallel ? t : 1;
        const double     extras = s * b * h * p / whole + (p == 1 ? 4 * s * b * h * (1 / whole + 51200 / h / t) : 0);
        const double     layers = s * b * h * per_layer[i] * j.model.layers * interleave;

        l.sequence_parallel = scheme[i].sequence_parallel;
        l.recompute         = scheme[i].recompute;
        expect_ok(hkt_plan_memory(stage, &j, &l));
        near(stage[0].bytes[HKT_BYTES_ACTIVATION], layers + extras, layers * 1e-12, "activations of the first stage");
        near(layers / GIB, korthikanti[_i].gib[i], 0.06, "printed GiB");
        if (scheme[i].sequence_parallel)
            near(extras / GIB, korthikanti[_i].extras, 0.006, "printed extras");
    }
}
END_TEST

/* The 34 without any parallelism is 4 + 11 + 19, and each part scales with its own element size: fp32 without dropout
 * keeps no masks. */
START_TEST(activations_by_element_size)
{
    hkt_plan_job_t    j = job("22b", "a100-80g-dgx", 1, 1);
    hkt_plan_layout_t l = layout(1, 1, 1, 1, 1);
    hkt_plan_stage_t  one, two;
    const double      s = j.model.sequence, h = j.model.hidden, a = j.model.heads;
    const struct {
        hkt_plan_bytes_t bytes;
        bool             dropout;
        double           layer;
    } rows[] = {{HKT_PLAN_BF16, true, s * h * (4 + 11 + 19) + 5 * a * s * s},
                {{4, 4, 8, 4, 1}, true, s * h * (16 * 4 + 2) + 9 * a * s * s},
                {HKT_PLAN_FP32, false, s * h * 16 * 4 + 4 * a * s * s}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        j.bytes         = rows[i].bytes;
        j.model.dropout = rows[i].dropout;
        j.model.layers  = 1;
        expect_ok(hkt_plan_memory(&one, &j, &l));
        j.model.layers = 2;
        expect_ok(hkt_plan_memory(&two, &j, &l));
        near(two.bytes[HKT_BYTES_ACTIVATION] - one.bytes[HKT_BYTES_ACTIVATION], rows[i].layer, 0, "a layer");
    }
}
END_TEST

/* Table 4 of the paper: milliseconds of one layer of the 22B model, forward and backward, within 6 %. */
START_TEST(layer_times_of_22b)
{
    static const struct {
        int    sequence_parallel, recompute;
        double ms;
    } rows[] = {{0, HKT_RECOMPUTE_NONE, 19.6},
                {1, HKT_RECOMPUTE_NONE, 19.0},
                {0, HKT_RECOMPUTE_FULL, 27.2},
                {0, HKT_RECOMPUTE_SELECTIVE, 20.9},
                {1, HKT_RECOMPUTE_SELECTIVE, 20.3}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        hkt_plan_layout_t l;
        hkt_plan_job_t    j = korthikanti_job(0, &l);
        hkt_plan_time_t   all, less;
        double            ms;

        l.sequence_parallel = rows[i].sequence_parallel;
        l.recompute         = rows[i].recompute;
        expect_ok(hkt_plan_time(&all, &j, &l));
        j.model.layers--;
        expect_ok(hkt_plan_time(&less, &j, &l));
        ms = 1e3 * (all.step - all.part[HKT_PLAN_OPTIMIZER] - less.step + less.part[HKT_PLAN_OPTIMIZER]);
        near(ms, rows[i].ms, 0.06 * rows[i].ms, "milliseconds of a layer");
    }
}
END_TEST

/* Table 5: seconds of an iteration, full recomputation and present work, within 6 %; MFU from the FLOPs. The hardware
 * FLOPs printed count the core's recomputation three times, 72 B s L h^2 (1 + s/(3h) ...), while its forward pass runs
 * again once: that is what the library counts. */
START_TEST(iteration_times_and_mfu)
{
    hkt_plan_layout_t    l;
    const hkt_plan_job_t j     = korthikanti_job(_i, &l);
    const double         rate  = korthikanti[_i].present_s * j.world * 312e12 / 100;
    const double         none  = hkt_plan_flops(&j.model, j.global_batch, HKT_RECOMPUTE_NONE);
    const double         again = hkt_plan_flops(&j.model, j.global_batch, HKT_RECOMPUTE_SELECTIVE) - none;
    hkt_plan_time_t      time;

    l.recompute = HKT_RECOMPUTE_FULL;
    expect_ok(hkt_plan_time(&time, &j, &l));
    near(time.step, korthikanti[_i].full_s, 0.06 * korthikanti[_i].full_s, "seconds, full recomputation");
    l.recompute         = HKT_RECOMPUTE_SELECTIVE;
    l.sequence_parallel = 1;
    expect_ok(hkt_plan_time(&time, &j, &l));
    near(time.step, korthikanti[_i].present_s, 0.06 * korthikanti[_i].present_s, "seconds, present work");
    near(none / rate, korthikanti[_i].mfu, 0.2, "MFU");
    near((none + 3 * again) / rate, korthikanti[_i].hfu, 0.2, "HFU as printed");
    near(again, 4.0 * j.global_batch * j.model.layers * 2048.0 * 2048.0 * j.model.hidden, none * 1e-12,
         "the core's forward pass");
    near(time.flops, none / time.step / j.world, 1, "FLOP/s of a device");
}
END_TEST

/* ---- BLOOM-176B -------------------------------------------------------------------------------------------------- */

/* Rows 60, 75 and 77. The layout trained was TP 4, PP 12, DP 8, not TP 8, PP 12, DP 4 (contradiction 13). */
START_TEST(R60_R77_bloom_sizes)
{
    const hkt_plan_model_t m = model("bloom-176b");
    const double h = m.hidden, p = 12 * 70 * h * h * (1 + 13 / (12 * h)) + 250880 * h, all = hkt_plan_parameters(&m);
    const double f               = hkt_plan_flops(&m, 2048, HKT_RECOMPUTE_FULL);
    const hkt_plan_bytes_t bytes = HKT_PLAN_BF16;

    near(all - 4 * h, p, p * 1e-12, "parameters but the first and the last norm");
    near(all / GB, 176.247, 0.001, "billions");
    near(f, 6.0212e18, 1e14, "FLOPs of an iteration");
    near(f / 384 / 104.70, 149.77e12, 149.77e12 * 2e-4, "the published rate");
    near(all * (bytes.parameter + bytes.optimizer) / (GIB * 1024), 2.24, 0.01,
         "checkpoint, TiB (2.3 TB in the chronicle)");
    near(all * bytes.parameter / GIB, 328, 1, "weights, GiB");
}
END_TEST

/* Row 59: 70 layers on 12 stages are 5, 10 x 6, 5, as if embedding and head took a layer's place each. */
START_TEST(R59_bloom_stages)
{
    const hkt_plan_model_t  m = model("bloom-176b");
    const hkt_plan_layout_t l = layout(4, 12, 8, 1, 2);

    for (int stage = 0; stage < 12; stage++)
        ck_assert_int_eq(hkt_plan_stage_layers(&m, &l, stage), stage == 0 || stage == 11 ? 5 : 6);
}
END_TEST

/* As trained: bf16, fp32 gradients, full recomputation, the optimizer's state shared. Measured were 104.7 s; the model
 * does not know what made BLOOM slower than Megatron's own runs, and says 83. */
START_TEST(bloom_as_it_was_trained)
{
    hkt_plan_job_t    j = job("bloom-176b", "a100-80g-opa", 384, 2048);
    hkt_plan_layout_t l = layout(4, 12, 8, 1, 2), eight = layout(8, 12, 4, 1, 2);
    hkt_plan_stage_t  stage[12];
    hkt_plan_time_t   time, other;

    l.recompute = eight.recompute = HKT_RECOMPUTE_FULL;
    l.zero = eight.zero = 1;
    expect_ok(hkt_plan_time(&time, &j, &l));
    expect_ok(hkt_plan_time(&other, &j, &eight));
    near(time.step / 104.70, 0.8, 0.05, "seconds against those measured");
    expect(time.step < other.step, "TP 4 takes %.1f s and TP 8 %.1f s; measured were 104.7 and 120.3", time.step,
           other.step);
    expect_ok(hkt_plan_memory(stage, &j, &l));
    for (int i = 0; i < 12; i++) {
        const double layers = i == 0 || i == 11 ? 5 : 6, h = 14336, ends = (i == 0 || i == 11) * 250880 * h / 4;
        const double p = layers * ((12 * h * h + 7 * h) / 4 + 6 * h) + ends + (i == 0 || i == 11) * 2 * h;

        near(stage[i].parameters, p, 0, "parameters of a stage");
        near(stage[i].bytes[HKT_BYTES_PARAMETER], 2 * p, 0, "their bytes");
        near(stage[i].bytes[HKT_BYTES_GRADIENT], 4 * p, 0, "gradients");
        near(stage[i].bytes[HKT_BYTES_OPTIMIZER], 12 * ceil(p / 8), 0, "optimizer state");
        near(stage[i].in_flight, 12 - i, 0, "micro-batches in flight");
        expect(stage[i].total < j.machine.memory, "stage %d needs %.1f GB", i, stage[i].total / GB);
    }
}
END_TEST

/* Llama 3 405B, which no figure of the presets was fitted to: published 430 and 400 TFLOP/s of a device. 126 layers are
 * one for each of 16 x 8 chunks but the first and the last. */
START_TEST(llama_3_as_it_was_trained)
{
    static const struct {
        int    devices, dp;
        double teraflops;
    } rows[] = {{8192, 64, 430}, {16384, 128, 400}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        hkt_plan_job_t    j = job("llama-405b", "h100-dgx", rows[i].devices, 2048);
        hkt_plan_layout_t l = layout(8, 16, rows[i].dp, 8, 1);
        hkt_plan_time_t   time;

        l.zero = l.sequence_parallel = 1;
        expect_ok(hkt_plan_time(&time, &j, &l));
        near(time.flops / 1e12, rows[i].teraflops, 0.06 * rows[i].teraflops, "TFLOP/s of a device");
        ck_assert_int_eq(hkt_plan_stage_layers(&j.model, &l, 0), 7);
        ck_assert_int_eq(hkt_plan_stage_layers(&j.model, &l, 1), 8);
        ck_assert_int_eq(hkt_plan_stage_layers(&j.model, &l, 15), 7);
    }
}
END_TEST

static double passes_of(const hkt_plan_time_t *t)
{
    return t->part[HKT_PLAN_PRODUCTS] + t->part[HKT_PLAN_TRAFFIC] + t->part[HKT_PLAN_LAUNCH];
}

/* A machine's points multiply computation, between them on a line over log tokens, beyond them as at the last; its
 * `update` the optimizer; communication stays. And the search then takes the size of micro-batch that was the faster
 * one. */
START_TEST(steps_that_were_tried_correct_the_formulas)
{
    static const struct {
        int    micro_batch;
        double slower;
    } cases[]                 = {{1, 2}, {2, 2}, {4, 1.5}, {8, 1}, {16, 3}, {32, 3}};
    hkt_plan_job_t     plain  = job("gpt2-124m", "cpu", 2, 64), tried;
    hkt_plan_layout_t  limits = HKT_PLAN_LAYOUT_ANY;
    hkt_plan_family_t *family;
    hkt_plan_time_t    a, b;
    size_t             count;

    plain.model.sequence = plain.model.positions = 64;
    plain.machine.memory                         = 1e12;
    tried                                        = plain;
    tried.machine.points                         = 3;
    tried.machine.point[0]                       = (hkt_plan_point_t){128, 2};
    tried.machine.point[1]                       = (hkt_plan_point_t){512, 1};
    tried.machine.point[2]                       = (hkt_plan_point_t){1024, 3};
    tried.machine.update                         = 5;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const hkt_plan_layout_t l = layout(1, 1, 2, 1, cases[i].micro_batch);

        expect_ok(hkt_plan_time(&a, &plain, &l));
        expect_ok(hkt_plan_time(&b, &tried, &l));
        near(passes_of(&b) / passes_of(&a), cases[i].slower, 1e-9, "slower by");
        near(b.part[HKT_PLAN_OPTIMIZER] / a.part[HKT_PLAN_OPTIMIZER], 5, 1e-9, "the optimizer slower by");
    }
    limits.tp = limits.pp = limits.cp = 1;
    expect_ok(hkt_plan_search(&family, &count, &plain, &limits));
    expect(family[0].layout.micro_batch == 32, "without points %d sequences are best", family[0].layout.micro_batch);
    hkt_plan_search_free(family);
    expect_ok(hkt_plan_search(&family, &count, &tried, &limits));
    expect(family[0].layout.micro_batch == 8, "with points %d sequences are best", family[0].layout.micro_batch);
    hkt_plan_search_free(family);
    tried.machine.point[1].tokens = 128;
    expect_code(hkt_plan_search(&family, &count, &tried, &limits), HKT_ERR_ARGUMENT);
    expect_said("tokens have to rise");
}
END_TEST

static void add(Suite *s)
{
    ADD(s, R97_zero_memory_is_that_of_the_paper, 1, 10);
    ADD(s, R97_savings_reach_their_limits, 1, 10);
    ADD(s, R61_zero_1_shares_the_optimizer_state, 1, 10);
    ADD(s, R97_largest_model_of_table_2, 1, 10);
    ADD(s, R68_volumes, 1, 10);
    ADD(s, bytes_for_each_parameter, 1, 10);
    ADD(s, megatron_parameters_and_flops, MEGATRON, 10);
    ADD(s, megatron_times, MEGATRON, 20);
    ADD(s, activation_formulas_and_table, KORTHIKANTI, 10);
    ADD(s, activations_by_element_size, 1, 10);
    ADD(s, layer_times_of_22b, 1, 10);
    ADD(s, iteration_times_and_mfu, KORTHIKANTI, 10);
    ADD(s, R60_R77_bloom_sizes, 1, 10);
    ADD(s, R59_bloom_stages, 1, 10);
    ADD(s, bloom_as_it_was_trained, 1, 10);
    ADD(s, llama_3_as_it_was_trained, 1, 10);
    ADD(s, steps_that_were_tried_correct_the_formulas, 1, 10);
}

int main(void)
{
    return run_suite("planner", add);
}
