/* test_pipeline.c -- pipelines without running them: layouts of layers, orders, their times against golden values and
 * formulas, and programs under sends that wait for their receive.
 */
#include "harness.h"

#include <hocket_train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { P = 8, V = 4, M = 16 };

static hkt_pipeline_shape_t shape_of(hkt_pipeline_kind_t kind, int p, int v, int m, int group)
{
    return (hkt_pipeline_shape_t){kind, p, v, m, group};
}

/* 1F1B where there is one chunk, interleaved where there are more: the rows of the golden table. */
static hkt_pipeline_shape_t megatron(int p, int m, int v, int group)
{
    return shape_of(v == 1 ? HKT_PIPELINE_1F1B : HKT_PIPELINE_INTERLEAVED, p, v, m, group);
}

static bool close_to(double a, double b)
{
    return fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b));
}

/* ---- layouts */

/* What a layout is for. */
struct ask {
    int      layers, stages, chunks;
    unsigned counted;
};
#define ASK(layers, stages, chunks, counted) (&(const struct ask){layers, stages, chunks, counted})

static void expect_layout(const char *text, const struct ask *ask, const char *wanted)
{
    int    layers_of[64], sum = 0;
    char   got[256] = "";
    size_t used     = 0;

    expect_ok(hkt_layout_make(layers_of, ask->layers, ask->stages, ask->chunks, text, ask->counted));
    for (int k = 0; k < ask->stages * ask->chunks; k++) {
        used += (size_t)snprintf(got + used, sizeof(got) - used, "%s%d", k ? "," : "", layers_of[k]);
        expect(hkt_layout_first(layers_of, k) == sum, "virtual stage %d begins at %d, not %d", k,
               hkt_layout_first(layers_of, k), sum);
        sum += layers_of[k];
    }
    expect(!strcmp(got, wanted) && sum == ask->layers, "%d layers on %d stages of %d chunks are %s and not %s",
           ask->layers, ask->stages, ask->chunks, got, wanted);
}

static void refuse_layout(const char *text, const struct ask *ask, const char *said)
{
    int layers_of[64] = {-5};

    expect_code(hkt_layout_make(layers_of, ask->layers, ask->stages, ask->chunks, text, ask->counted),
                HKT_ERR_ARGUMENT);
    expect_said(said);
    expect(layers_of[0] == -5, "a refused layout was written");
}

/* Proves case C09: uneven numbers of layers keep their sum, explicit ones are taken, nonsense is refused with what is
 * valid. */
START_TEST(T_C09_uneven_layers)
{
    expect_layout(NULL, ASK(6, 4, 1, 0), "2,2,1,1");
    expect_layout("2,2,1,1", ASK(6, 4, 1, 0), "2,2,1,1");
    expect_layout(" 1, 2,2, 1", ASK(6, 4, 1, 0), "1,2,2,1");
    expect_layout(NULL, ASK(7, 2, 2, 0), "2,2,2,1");
    expect_layout(NULL, ASK(30, 4, 1, 0), "8,8,7,7");
    expect_layout("0,3,3,0", ASK(6, 4, 1, 0), "0,3,3,0");
    refuse_layout("2,2,1", ASK(6, 4, 1, 0), "breaks 2 rules");
    refuse_layout("2,2,1", ASK(6, 4, 1, 0), "3 entries");
    refuse_layout("2,2,1", ASK(6, 4, 1, 0), "its sum is 5, and the model has 6 layers");
    refuse_layout("2,0,2,2", ASK(6, 4, 1, 0), "entry 2 is 0");
    refuse_layout("2,-1,3,2", ASK(6, 4, 1, 0), "entry 2 is -1");
    refuse_layout("2,2,1,1,", ASK(6, 3, 1, 0), "4 entries");
    refuse_layout("2,2;1,1", ASK(6, 4, 1, 0), "not readable at \"2;1,1\"");
    refuse_layout("9999999999999999999999,1", ASK(6, 2, 1, 0), "not readable");
    refuse_layout("1*99999999", ASK(6, 2, 1, 0), "not readable");
    refuse_layout(NULL, ASK(3, 2, 2, 0), "valid: 4 layers or more");
    refuse_layout(NULL, ASK(6, 2, 1, 4), "HKT_LAYOUT_");
    refuse_layout(NULL, ASK(0, 2, 1, 0), "1 or more");
    for (int layers = 1; layers <= 40; layers++)
        for (int p = 1; p <= 8; p++)
            for (int v = 1; v <= 4; v++)
                for (unsigned counted = 0; counted < 4; counted++) {
                    int       layers_of[32], sum = 0;
                    const int rc = hkt_layout_make(layers_of, layers, p, v, NULL, counted);

                    if (rc) {
                        expect(layers + 2 < p * v + 2, "%d layers on %d * %d are refused", layers, p, v);
                        continue;
                    }
                    for (int k = 0; k < p * v; k++) {
                        sum += layers_of[k];
                        expect(layers_of[k] >= 0 && abs(layers_of[k] - layers / (p * v)) <= 2,
                               "stage %d of %d * %d has %d of %d layers", k, p, v, layers_of[k], layers);
                    }
                    expect(sum == layers, "%d layers on %d * %d become %d", layers, p, v, sum);
                }
}
END_TEST

/* Proves: whatever the text, a layout is either right or refused, and nothing beyond it is written. */
START_TEST(T_C09_any_text)
{
    static const char letters[] = "0123456789,,,,**- x";

    for (uint64_t k = 0; k < 200000; k++) {
        const int layers = 1 + (int)(mix(k) % 9), p = 1 + (int)(mix(k + 1) % 3), v = 1 + (int)(mix(k + 2) % 2);
        int       layers_of[7] = {0}, sum = 0;
        char      text[12] = "";

        for (uint64_t i = 0; i < mix(k + 3) % sizeof(text); i++)
            text[i] = letters[mix(k * 16 + i) % (sizeof(letters) - 1)];
        layers_of[p * v] = -9;
        if (hkt_layout_make(layers_of, layers, p, v, text, (unsigned)(k % 4)) == HKT_OK) {
            for (int i = 0; i < p * v; i++)
                sum += layers_of[i];
            expect(sum == layers, "\"%s\" makes %d layers of %d", text, sum, layers);
        }
        expect(layers_of[p * v] == -9, "\"%s\" writes past %d entries", text, p * v);
    }
}
END_TEST

/* Proves row 59: BLOOM's 70 layers on 12 stages, embedding and head counting as a layer each. */
START_TEST(T_R59_embedding_and_head_count)
{
    expect_layout(NULL, ASK(70, 12, 1, HKT_LAYOUT_EMBEDDING | HKT_LAYOUT_HEAD), "5,6,6,6,6,6,6,6,6,6,6,5");
    expect_layout("5,6*10,5", ASK(70, 12, 1, 0), "5,6,6,6,6,6,6,6,6,6,6,5");
    expect_layout(NULL, ASK(7, 4, 1, HKT_LAYOUT_HEAD), "2,2,2,1");
}
END_TEST

static void expect_print(int layers, int p, int v, const char *wanted)
{
    int    layers_of[64];
    char  *text = NULL;
    size_t size;
    FILE  *out = open_memstream(&text, &size);

    expect_ok(hkt_layout_make(layers_of, layers, p, v, NULL, 0));
    expect_ok(hkt_layout_print(out, layers_of, p, v));
    fclose(out);
    expect(!strcmp(text, wanted), "%s", text);
    free(text);
}

/* Proves rows 20 and 55: which layers a stage holds, and 22: chunks from layers per chunk, where they divide. */
START_TEST(T_R20_R55_layer_maps)
{
    int v = -1;

    expect_print(16, 4, 2,
                 "stage 0: embedding layers 0-1 | layers 8-9\nstage 1: layers 2-3 | layers 10-11\n"
                 "stage 2: layers 4-5 | layers 12-13\nstage 3: layers 6-7 | layers 14-15 head\n");
    expect_print(
        24, 4, 1,
        "stage 0: embedding layers 0-5\nstage 1: layers 6-11\nstage 2: layers 12-17\nstage 3: layers 18-23 head\n");
    expect_ok(hkt_layout_chunks(&v, 16, 4, 2));
    expect_true(v == 2);
    expect_code(hkt_layout_chunks(&v, 16, 4, 3), HKT_ERR_ARGUMENT);
    expect_said("valid: 1, 2, 4");
    expect_code(hkt_layout_chunks(&v, 30, 4, 2), HKT_ERR_ARGUMENT);
    expect_said("valid: 1, 2, 3, 5, 6, 10, 15, 30 stages");
    expect_code(hkt_layout_chunks(&v, 16, 4, 0), HKT_ERR_ARGUMENT);
    expect_true(v == 2);
}
END_TEST

/* ---- golden schedules */

static const struct {
    int    p, m, v, group;
    double total, ideal, bubble;
    int    peak[12], warm_up[12];
} golden[] = {
    {2, 4, 1, 0, 15, 12, .25, {2, 1}, {1, 0}},
    {2, 4, 2, 0, 13.5, 12, .125, {5, 3}, {4, 2}},
    {4, 8, 1, 0, 33, 24, .375, {4, 3, 2, 1}, {3, 2, 1, 0}},
    {4, 8, 2, 0, 28.5, 24, .1875, {11, 9, 7, 5}, {10, 8, 6, 4}},
    {4, 8, 4, 0, 26.25, 24, .09375, {19, 17, 15, 13}, {18, 16, 14, 12}},
    {8, 8, 1, 0, 45, 24, .875, {8, 7, 6, 5, 4, 3, 2, 1}, {7, 6, 5, 4, 3, 2, 1, 0}},
    {8, 16, 2, 0, 58.5, 48, .21875, {23, 21, 19, 17, 15, 13, 11, 9}, {22, 20, 18, 16, 14, 12, 10, 8}},
    {4, 2, 1, 0, 15, 6, 1.5, {2, 2, 2, 1}, {2, 2, 1, 0}},
    {4, 4, 2, 0, 16.5, 12, .375, {8, 8, 7, 5}, {8, 8, 6, 4}},
    {4, 12, 3, 0, 39, 36, 1 / 12., {15, 13, 11, 9}, {14, 12, 10, 8}},
    {12,
     128,
     1,
     0,
     417,
     384,
     11 / 128.,
     {12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1},
     {11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
    {2, 5, 2, 3, 16.5, 15, .1, {6, 4}, {5, 3}},
};

/* Proves rows 15, 18, 21 and the table of golden schedules: totals, bubbles, warm-ups and peaks. */
START_TEST(T_R15_R18_R21_golden_schedules)
{
    const hkt_pipeline_shape_t shape = megatron(golden[_i].p, golden[_i].m, golden[_i].v, golden[_i].group);
    hkt_pipeline_timing_t      t;
    hkt_pipeline_stage_t       stage[12];

    expect_ok(hkt_pipeline_simulate(&t, stage, &shape, NULL));
    expect(close_to(t.total, golden[_i].total) && close_to(t.ideal, golden[_i].ideal) &&
               close_to(t.bubble, golden[_i].bubble),
           "total %g, ideal %g, bubble %g; wanted %g, %g, %g", t.total, t.ideal, t.bubble, golden[_i].total,
           golden[_i].ideal, golden[_i].bubble);
    for (int r = 0; r < shape.stages; r++)
        expect(stage[r].peak == golden[_i].peak[r] && stage[r].warm_up == golden[_i].warm_up[r] &&
                   close_to(stage[r].busy, t.ideal),
               "stage %d: peak %d, warm-up %d, busy %g; wanted %d, %d", r, stage[r].peak, stage[r].warm_up,
               stage[r].busy, golden[_i].peak[r], golden[_i].warm_up[r]);
}
END_TEST

/* The computations of a stage, in a line. */
static const char *order_text(const hkt_pipeline_shape_t *shape, int stage)
{
    static char              text[4096];
    hkt_program_t           *program;
    const hkt_instruction_t *list;
    size_t                   n, used = 0;

    expect_ok(hkt_program_create(&program, shape));
    expect_ok(hkt_program_stage(&list, &n, program, stage));
    for (size_t i = 0; i < n; i++)
        if (list[i].action < HKT_DO_SEND_FORWARD)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%c%d.%d ", "FBIW"[list[i].action],
                                     list[i].micro, list[i].chunk);
    expect_ok(hkt_program_destroy(program));
    return text;
}

static void expect_order(const hkt_pipeline_shape_t *shape, int stage, const char *wanted)
{
    const char *got = order_text(shape, stage);

    expect(!strncmp(got, wanted, strlen(wanted)), "stage %d does %.160s", stage, got);
}

/* Proves: the order of the interleaved schedule is Megatron's, also with its group size; zero bubble delays weight
 * gradients as it should. */
START_TEST(T_golden_orders)
{
    hkt_pipeline_shape_t s = megatron(4, 8, 2, 0);

    expect_order(
        &s, 0, "F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 F3.1 F4.0 F5.0 F6.0 B0.1 F7.0 B1.1 F4.1 B2.1 F5.1 B3.1 F6.1 B0.0 ");
    expect_order(&s, 3, "F0.0 F1.0 F2.0 F3.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.1 B3.1 F4.0 B0.0 ");
    s = megatron(2, 5, 2, 3);
    expect_order(
        &s, 1, "F0.0 F1.0 F2.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.0 B0.0 F4.0 B1.0 F3.1 B2.0 F4.1 B3.1 B4.1 B3.0 B4.0 ");
    s = shape_of(HKT_PIPELINE_ZERO_BUBBLE, 3, 1, 4, 0);
    expect_order(&s, 0, "F0.0 F1.0 F2.0 I0.0 W0.0 F3.0 I1.0 W1.0 I2.0 W2.0 I3.0 W3.0 ");
    expect_order(&s, 2, "F0.0 I0.0 F1.0 I1.0 F2.0 I2.0 W0.0 F3.0 I3.0 W1.0 W2.0 W3.0 ");
    s = shape_of(HKT_PIPELINE_GPIPE, 2, 2, 2, 0);
    expect_order(&s, 0, "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0 ");
    s = shape_of(HKT_PIPELINE_FORWARD, 2, 1, 3, 0);
    expect_order(&s, 1, "F0.0 F1.0 F2.0 ");
}
END_TEST

/* ---- every shape */

/* Total time in closed form, forward 1, backward 2; 0: there is none. */
static double formula(const hkt_pipeline_shape_t *s)
{
    const double p = s->stages, v = s->chunks, m = s->micros;

    switch (s->kind) {
    case HKT_PIPELINE_GPIPE: /* a chunk over all micro-batches takes no less than the way round all stages */
        return 3 * ((v - 1) * fmax(m, p) + m + p - 1) / v;
    case HKT_PIPELINE_1F1B:
        return 3 * (m + p - 1);
    case HKT_PIPELINE_INTERLEAVED:
        return 3 * m + 3 * (p - 1) / v;
    case HKT_PIPELINE_ZERO_BUBBLE:
        return m < p ? 2 * m + 2 * p - 1 : 3 * m + p - 1;
    default:
        return s->micros % s->stages ? 0 : m + (p - 1) / v;
    }
}

static void check_shape(const hkt_pipeline_shape_t *s)
{
    const hkt_instruction_t *lists[P];
    size_t                   counts[P];
    hkt_pipeline_timing_t    t;
    hkt_pipeline_stage_t     stage[P];
    hkt_program_t           *program;
    double                   strict;

    doing("%s, %d stages, %d chunks, %d micro-batches, groups of %d", hkt_pipeline_name(s->kind), s->stages, s->chunks,
          s->micros, s->group);
    expect_ok(hkt_pipeline_simulate(&t, stage, s, NULL));
    expect(!formula(s) || close_to(t.total, formula(s)), "%s %d %d %d takes %g, by the formula %g",
           hkt_pipeline_name(s->kind), s->stages, s->chunks, s->micros, t.total, formula(s));
    expect_ok(hkt_program_create(&program, s));
    for (int r = 0; r < s->stages; r++)
        expect_ok(hkt_program_stage(&lists[r], &counts[r], program, r));
    expect_ok(hkt_program_check(&strict, lists, counts, s));
    expect(s->kind == HKT_PIPELINE_INTERLEAVED ? strict >= t.total - 1e-9 : close_to(strict, t.total),
           "with sends that wait it takes %g, else %g", strict,
           t.total); /* only interleaved stages have something to do meanwhile */
    for (int r = 0; r < s->stages; r++) {
        if (s->kind == HKT_PIPELINE_1F1B) {
            const int most = s->stages - r < s->micros ? s->stages - r : s->micros, w = s->stages - r - 1;

            expect(stage[r].peak == most, "stage %d keeps %d, not %d", r, stage[r].peak, most);
            expect(stage[r].warm_up == (w < s->micros ? w : s->micros), "stage %d warms up %d", r, stage[r].warm_up);
        }
        if (s->kind == HKT_PIPELINE_ZERO_BUBBLE)
            expect(stage[r].peak <= s->stages, "stage %d keeps %d, more than 1f1b's first", r, stage[r].peak);
    }
    expect_ok(hkt_program_destroy(program));
}

/* Proves case C12: every schedule for p <= 8, v <= 4, m <= 16 and every group size ends under sends that wait for their
 * receive, does all that it has to exactly once and in order, and takes exactly the time of its formula; what cannot be
 * is refused with what can. */
START_TEST(T_C12_every_shape)
{
    int ran = 0;

    for (int p = 1; p <= P; p++)
        for (int v = 1; v <= V; v++)
            for (int m = 1; m <= M; m++)
                for (int g = 0; g <= (_i == HKT_PIPELINE_INTERLEAVED ? m + 1 : 0); g++) {
                    const hkt_pipeline_shape_t s     = shape_of((hkt_pipeline_kind_t)_i, p, v, m, g);
                    const int                  group = g ? g : p;
                    const bool                 chunks_ok =
                        v == 1 || (p > 1 && _i != HKT_PIPELINE_1F1B && _i != HKT_PIPELINE_ZERO_BUBBLE);
                    const bool group_ok = _i != HKT_PIPELINE_INTERLEAVED ||
                                          (group >= p && group <= m && (m % group == 0 || m % group >= p));

                    if (chunks_ok && group_ok) {
                        check_shape(&s);
                        ran++;
                    } else {
                        expect_code(hkt_pipeline_validate(&s), HKT_ERR_ARGUMENT);
                        expect_said("valid: ");
                    }
                }
    expect(ran > 100, "only %d shapes ran", ran);
}
END_TEST

/* Proves case C12: what is refused, and what is said to be valid. */
START_TEST(T_C12_refused)
{
    hkt_pipeline_shape_t  s       = megatron(4, 6, 2, 0);
    hkt_pipeline_timing_t t       = {.total = -3};
    hkt_program_t        *program = (void *)&s;
    hkt_pipeline_kind_t   kind;

    expect_code(hkt_pipeline_validate(&s), HKT_ERR_ARGUMENT);
    expect_said("4 or 8; or groups of 6)");
    expect_code(hkt_pipeline_simulate(&t, NULL, &s, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_program_create(&program, &s), HKT_ERR_ARGUMENT);
    expect_true(t.total == -3 && program == (void *)&s);
    s = megatron(8, 4, 2, 0);
    expect_code(hkt_pipeline_validate(&s), HKT_ERR_ARGUMENT);
    expect_said("such as 8)");
    s = shape_of(HKT_PIPELINE_1F1B, 0, 3, -1, 2);
    expect_code(hkt_pipeline_validate(&s), HKT_ERR_ARGUMENT);
    expect_said("breaks 4 rules");
    s = shape_of((hkt_pipeline_kind_t)9, 2, 1, 2, 0);
    expect_code(hkt_pipeline_validate(&s), HKT_ERR_ARGUMENT);
    s = shape_of(HKT_PIPELINE_GPIPE, 16384, 1024, 1 << 20, 0);
    expect_code(hkt_pipeline_validate(&s), HKT_ERR_ARGUMENT);
    expect_said("a product of");
    expect_code(hkt_pipeline_validate(NULL), HKT_ERR_ARGUMENT);
    for (int k = 0; k < HKT_PIPELINES; k++) {
        expect_ok(hkt_pipeline_kind(&kind, hkt_pipeline_name((hkt_pipeline_kind_t)k)));
        expect_true((int)kind == k);
    }
    expect_code(hkt_pipeline_kind(&kind, "2f2b"), HKT_ERR_ARGUMENT);
    expect_said("gpipe, 1f1b, interleaved");
}
END_TEST

/* ---- times that are not equal */

/* Proves: the model of time with uneven stages and sends that take time gives what can be computed by hand. */
START_TEST(times_by_hand)
{
    const double         forward[] = {1, 3}, backward[] = {2, 6}, weight[] = {1, 2}, send[] = {0.5, 9}, bad[] = {1, -1};
    hkt_pipeline_times_t times = {forward, backward, NULL, send};
    hkt_pipeline_shape_t s     = megatron(2, 2, 1, 0);
    hkt_pipeline_timing_t t;
    hkt_pipeline_stage_t  stage[2];

    /* stage 0: F0 0-1, F1 1-2, B0 11-13, B1 20-22; stage 1: F0 1.5-4.5, B0 4.5-10.5, F1 10.5-13.5, B1 13.5-19.5 */
    expect_ok(hkt_pipeline_simulate(&t, stage, &s, &times));
    expect(close_to(t.total, 22) && close_to(t.ideal, 18), "total %g, ideal %g", t.total, t.ideal);
    expect_true(close_to(stage[0].busy, 6) && stage[0].peak == 2 && stage[1].peak == 1);
    s.kind       = HKT_PIPELINE_ZERO_BUBBLE;
    times.weight = weight;
    /* stage 0: F0 0-1, F1 1-2, I0 9-10, W0 -11, I1 16-17, W1 -18; stage 1: F0 1.5-4.5, I0 -8.5, F1 -11.5, I1 -15.5, W0
     * -17.5, W1 -19.5 */
    expect_ok(hkt_pipeline_simulate(&t, stage, &s, &times));
    expect(close_to(t.total, 19.5) && close_to(t.bubble, 1.5 / 18), "total %g, bubble %g", t.total, t.bubble);
    times.backward = bad;
    expect_code(hkt_pipeline_simulate(&t, NULL, &s, &times), HKT_ERR_ARGUMENT);
    expect_said("virtual stage 1");
    times.backward = NULL;
    expect_code(hkt_pipeline_simulate(&t, NULL, &s, &times), HKT_ERR_ARGUMENT);
}
END_TEST

/* A slow link carries one message at a time: m of them take m times as long. */
START_TEST(links_are_serial)
{
    const double               forward[] = {1, 1}, backward[] = {1, 1}, send[] = {10, 0};
    const hkt_pipeline_times_t times = {forward, backward, NULL, send};
    const hkt_pipeline_shape_t s     = shape_of(HKT_PIPELINE_GPIPE, 2, 1, 4, 0);
    hkt_pipeline_timing_t      t;

    expect_ok(hkt_pipeline_simulate(&t, NULL, &s, &times));
    expect(close_to(t.total, 1 + 40 + 1 + 1 + 40 + 1), "total %g",
           t.total); /* B0 follows the last forward; three more wait for the link */
}
END_TEST

/* ---- the checker finds what is wrong */

struct broken {
    hkt_instruction_t       *list[P];
    const hkt_instruction_t *view[P];
    size_t                   count[P];
    hkt_program_t           *program;
};

static void take_apart(struct broken *b, const hkt_pipeline_shape_t *s)
{
    expect_ok(hkt_program_create(&b->program, s));
    for (int r = 0; r < s->stages; r++) {
        expect_ok(hkt_program_stage(&b->view[r], &b->count[r], b->program, r));
        b->list[r] = malloc((b->count[r] + 1) * sizeof(*b->list[r]));
        memcpy(b->list[r], b->view[r], b->count[r] * sizeof(*b->list[r]));
        b->view[r] = b->list[r];
    }
}

static void put_away(struct broken *b, const hkt_pipeline_shape_t *s)
{
    for (int r = 0; r < s->stages; r++)
        free(b->list[r]);
    expect_ok(hkt_program_destroy(b->program));
}

/* Proves: a deadlock is found and says who waits where: two stages that both send first. */
START_TEST(T_C12_deadlock_is_named)
{
    const hkt_pipeline_shape_t s       = megatron(2, 2, 1, 0);
    const hkt_instruction_t    first[] = {
           {HKT_DO_FORWARD, 0, 0, -1}, {HKT_DO_FORWARD, 0, 1, -1}, {HKT_DO_SEND_FORWARD, 0, 1, 1}};
    const hkt_instruction_t  second[] = {{HKT_DO_RECV_FORWARD, 0, 0, 0}};
    const hkt_instruction_t *lists[] = {first, second}, *none[] = {first, NULL};
    const size_t             counts[] = {3, 1};

    expect_code(hkt_program_check(NULL, lists, counts, &s), HKT_ERR_USAGE);
    expect_said(
        "deadlock: stage 0 waits in instruction 2, send F1.0 to 1, stage 1 waits in instruction 0, recv F0.0 from 0");
    expect_code(hkt_program_check(NULL, none, counts, &s), HKT_ERR_ARGUMENT);
    expect_code(hkt_program_check(NULL, NULL, counts, &s), HKT_ERR_ARGUMENT);
}
END_TEST

/* Proves: leaving out, doubling or turning round any single instruction of a program is found, wherever it matters. */
START_TEST(T_C12_every_single_mistake_is_found)
{
    static const hkt_pipeline_shape_t shapes[] = {{HKT_PIPELINE_1F1B, 3, 1, 4, 0},
                                                  {HKT_PIPELINE_INTERLEAVED, 2, 2, 4, 0},
                                                  {HKT_PIPELINE_ZERO_BUBBLE, 3, 1, 4, 0}};
    const hkt_pipeline_shape_t       *s        = &shapes[_i];
    struct broken                     b;

    take_apart(&b, s);
    for (int r = 0; r < s->stages; r++)
        for (size_t i = 0; i < b.count[r]; i++) {
            hkt_instruction_t *list = b.list[r], saved = list[i];
            const size_t       n = b.count[r];

            memmove(list + i, list + i + 1, (n - i - 1) * sizeof(*list)); /* left out */
            b.count[r] = n - 1;
            expect_code(hkt_program_check(NULL, b.view, b.count, s), HKT_ERR_USAGE);
            memmove(list + i + 1, list + i, (n - i - 1) * sizeof(*list));
            list[i] = saved;
            memmove(list + i + 1, list + i, (n - i) * sizeof(*list)); /* twice */
            b.count[r] = n + 1;
            expect_code(hkt_program_check(NULL, b.view, b.count, s), HKT_ERR_USAGE);
            memmove(list + i, list + i + 1, (n - i) * sizeof(*list));
            b.count[r] = n;
            list[i].micro += 1; /* another one */
            expect_code(hkt_program_check(NULL, b.view, b.count, s), HKT_ERR_USAGE);
            list[i]        = saved;
            list[i].action = HKT_ACTIONS;
            expect_code(hkt_program_check(NULL, b.view, b.count, s), HKT_ERR_USAGE);
            list[i]      = saved;
            list[i].peer = saved.peer < 0 ? saved.peer : s->stages; /* nobody; computations have no peer to be wrong */
            if (saved.peer >= 0)
                expect_code(hkt_program_check(NULL, b.view, b.count, s), HKT_ERR_USAGE);
            list[i] = saved;
            expect_ok(hkt_program_check(NULL, b.view, b.count, s));
        }
    put_away(&b, s);
}
END_TEST

/* Proves: the text of a program. */
START_TEST(program_as_text)
{
    const hkt_pipeline_shape_t s    = megatron(2, 2, 1, 0);
    char                      *text = NULL;
    hkt_program_t             *program;
    size_t                     size;
    FILE                      *out = open_memstream(&text, &size);

    expect_ok(hkt_program_create(&program, &s));
    expect_ok(hkt_program_print(out, program, -1));
    expect_code(hkt_program_print(out, program, 2), HKT_ERR_ARGUMENT);
    fclose(out);
    expect(!strcmp(
               text,
               "stage 0: F0.0; send F0.0 to 1; F1.0; send F1.0 to 1; recv B0.0 from 1; B0.0; recv B1.0 from 1; B1.0\n"
               "stage 1: recv F0.0 from 0; F0.0; recv F1.0 from 0; B0.0; send B0.0 to 0; F1.0; B1.0; send B1.0 to 0\n"),
           "%s", text);
    free(text);
    expect_ok(hkt_program_destroy(program));
    expect_ok(hkt_program_destroy(NULL));
}
END_TEST

static void add(Suite *s)
{
    ADD(s, T_C09_uneven_layers, 1, 60);
    ADD(s, T_C09_any_text, 1, 60);
    ADD(s, T_R59_embedding_and_head_count, 1, 60);
    ADD(s, T_R20_R55_layer_maps, 1, 60);
    ADD(s, T_R15_R18_R21_golden_schedules, (int)(sizeof(golden) / sizeof(golden[0])), 60);
    ADD(s, T_golden_orders, 1, 60);
    ADD(s, T_C12_every_shape, HKT_PIPELINES, 60);
    ADD(s, T_C12_refused, 1, 60);
    ADD(s, times_by_hand, 1, 60);
    ADD(s, links_are_serial, 1, 60);
    ADD(s, T_C12_deadlock_is_named, 1, 60);
    ADD(s, T_C12_every_single_mistake_is_found, 3, 60);
    ADD(s, program_as_text, 1, 60);
}

int main(void)
{
    return run_suite("pipeline", add);
}
