/* test_zero.c -- the sharded optimizer: the same bits in every stage, bytes and traffic as the formulas say, state in
 * and out. */
#include "harness.h"
#include "zero_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the same model in every stage */

static void compare(struct rank *me, const struct way *w, const struct way *reference)
{
    struct result a, b;

    result_of(&a, me, reference);
    result_of(&b, me, w);
    expect(memcmp(a.state, b.state, sizeof a.state) == 0,
           "stage %d, buckets of %zu bytes, tier %d, late %d, live %d: the state differs from stage %d's", w->stage,
           w->bytes, (int)w->tier, w->late, w->live, reference->stage);
    expect(memcmp(a.norm, b.norm, sizeof a.norm) == 0, "stage %d: norm %.17g, in stage %d %.17g", w->stage, b.norm[0],
           reference->stage, a.norm[0]);
    expect(a.norm[0] > 0 && a.clipped[1] < 1, "the test's gradients are not clipped");
}

static void stages(struct rank *me)
{
    static const hkt_type_t types[] = {HKT_FLOAT32, HKT_BFLOAT16, HKT_FLOAT16};

    for (int reduce = HKT_REDUCE_ONCE; reduce <= HKT_REDUCE_EACH; reduce++)
        for (unsigned k = 0; k < 3; k++) {
            const struct way reference = {
                .stage = 0, .reduce = (hkt_reduce_when_t)reduce, .bytes = 4000, .weight = types[k]};
            for (int stage = 0; stage <= 3; stage++) {
                struct way w = reference;
                w.stage      = stage;
                w.bytes      = stage % 2 ? 300 : 1 << 20;
                w.late       = k == 1;
                w.live       = 2 + (int)k;
                w.tile       = k == 2 ? 100 : 0;
                w.threads    = k == 2 ? 3 : 1;
                doing("stage %d, weights %s, reduce %d", stage, hkt_type_name(types[k]), reduce);
                compare(me, &w, &reference);
            }
        }
}

/* Proves (rows 4, 6, 8, 9, 62, 63, 65): weights, moments and norms have the same bits in all four stages, for all
 * weight types, sizes of buckets, early and late gathers, live windows, tiles and threads; gradients depend on the
 * weights, so that no stale weight is read. */
START_TEST(T_row62_same_bits_in_every_stage)
{
    world(1 + _i, THREADS, stages, NULL);
}
END_TEST

static void defaults(struct rank *me)
{
    const struct way once = {.stage = 1, .bytes = 1000}, each = {.stage = 2, .bytes = 1000};
    struct way       w = once;

    w.reduce = HKT_REDUCE_ONCE;
    compare(me, &w, &once);
    w        = each;
    w.stage  = 0;
    w.reduce = HKT_REDUCE_EACH;
    compare(me, &w, &each);
    w.stage          = 3;
    w.gradient       = HKT_BFLOAT16;
    w.reduce         = HKT_REDUCE_DEFAULT;
    struct way plain = w;
    plain.stage      = 0;
    plain.reduce     = HKT_REDUCE_EACH;
    compare(me, &w, &plain);
}

/* Proves: stages 0 and 1 reduce once by default, 2 and 3 each micro-batch; bf16 gradients work in all. */
START_TEST(T_C05_when_gradients_are_reduced)
{
    world(2 + _i, THREADS, defaults, NULL);
}
END_TEST

static void tiers(struct rank *me)
{
    char path[64];

    (void)snprintf(path, sizeof path, "zero-%d-%d.state", (int)getpid(), me->rank);
    for (int stage = 1; stage <= 3; stage++)
        for (unsigned k = 0; k < 2; k++) {
            const struct way reference = {.stage = stage, .bytes = 2000, .weight = k ? HKT_BFLOAT16 : HKT_FLOAT32};
            struct way       w         = reference;
            w.tier                     = HKT_TIER_HOST;
            w.tile                     = 77;
            compare(me, &w, &reference);
            w.tier = HKT_TIER_FILE;
            w.path = path;
            w.late = true;
            compare(me, &w, &reference);
        }
    expect_true(remove(path) == 0);
}

/* Proves (rows 98, 99, 102): state in another arena or in a file, moved in tiles that do not fit buckets, gives the
 * same bits. */
START_TEST(T_row98_same_bits_in_every_tier)
{
    world(1 + _i, THREADS, tiers, NULL);
}
END_TEST

/* ---- bytes and traffic */

static size_t now_of(hkt_bytes_t kind, hkt_ledger_t *ledger)
{
    hkt_ledger_entry_t e;

    expect_ok(hkt_ledger_read(&e, kind, ledger));
    return e.now;
}

static void memory(struct rank *me)
{
    static const struct {
        hkt_type_t weight, gradient;
    } types[]      = {{HKT_FLOAT32, HKT_FLOAT32}, {HKT_BFLOAT16, HKT_FLOAT32}, {HKT_FLOAT16, HKT_FLOAT16}};
    const size_t n = (size_t)me->n;

    for (int stage = 0; stage <= 3; stage++)
        for (unsigned k = 0; k < 3; k++) {
            const struct way way = {
                .stage = stage, .bytes = 1 << 20, .weight = types[k].weight, .gradient = types[k].gradient, .live = 2};
            struct toy      t;
            hkt_ledger_t   *ledger;
            hkt_zero_info_t info;

            expect_ok(hkt_ledger_create(&ledger));
            toy_make(&t, me, &way, ledger);
            expect_ok(hkt_zero_info(&info, t.zero));
            const size_t p = info.padded, w = hkt_type_size(types[k].weight), g = hkt_type_size(types[k].gradient);
            const size_t state = w == 4 ? 8 : 12, bucket = toy_largest_bucket(&t), group = toy_largest_group(&t);
            const size_t buckets = (size_t)hkt_buckets_count(hkt_zero_buckets(t.zero)) < 2 ? 1 : 2;
            const bool   part    = stage == 3 && n > 1;
            expect_true(info.parameters == toy_elements() && p >= info.parameters &&
                        p < info.parameters + TOYS * (32 + 32 * n));
            expect_true(now_of(HKT_BYTES_PARAMETER, ledger) == (part ? w * (p / n + 2 * group) : w * p));
            expect_true(now_of(HKT_BYTES_OPTIMIZER, ledger) == state * (stage ? p / n : p));
            expect_true(now_of(HKT_BYTES_GRADIENT, ledger) == (stage < 2 ? g * p : g * (p / n + buckets * bucket)));
            toy_free(&t);
            expect_ok(hkt_ledger_destroy(ledger));
        }
}

/* Proves (rows 4, 61, 63, 65; research 3.1): the bytes of weights, gradients and optimizer state are 16 P, (4 + 12/n)
 * P, (2 + 14/n) P and 16/n P in stages 0 to 3 with 16-bit weights and gradients (and likewise for the other types), to
 * the byte, plus two buckets and two groups. */
START_TEST(T_row61_bytes_are_the_formulas)
{
    world(1 + _i, THREADS, memory, NULL);
}
END_TEST

static void traffic(struct rank *me)
{
    static const char *const calls[] = {"all_reduce", "reduce_scatter", "all_gather"};

    for (int stage = 0; stage <= 3; stage++)
        for (int m = 1; m <= 3; m++) {
            const struct way way = {.stage = stage, .bytes = 1000, .micro_batches = m, .live = 2};
            struct toy       t;
            hkt_traffic_t    before[3], after;
            hkt_zero_info_t  info[2];
            uint64_t         moved[3];

            toy_make(&t, me, &way, NULL);
            toy_step(&t, NULL);
            expect_ok(hkt_zero_synchronize(t.zero));
            for (int c = 0; c < 3; c++)
                expect_ok(hkt_zero_traffic(&before[c], calls[c], t.zero));
            expect_ok(hkt_zero_info(&info[0], t.zero));
            toy_step(&t, NULL);
            expect_ok(hkt_zero_synchronize(t.zero));
            for (int c = 0; c < 3; c++) {
                expect_ok(hkt_zero_traffic(&after, calls[c], t.zero));
                moved[c] = (after.bytes - before[c].bytes) / sizeof(float);
            }
            expect_ok(hkt_zero_info(&info[1], t.zero));
            const uint64_t p = info[0].padded, small = 2 * 33; /* the all-reduce of the norm, in int64 */
            const uint64_t reused = info[1].reused - info[0].reused;
            expect(moved[0] == small + (stage ? 0 : p), "stage %d: %llu elements all-reduced", stage,
                   (unsigned long long)moved[0]);
            expect_true(moved[1] == (stage == 0 ? 0 : stage == 1 ? p : (uint64_t)m * p));
            if (stage < 3)
                expect_true(moved[2] == (stage ? p : 0));
            else /* every pass needs all groups; one was gathered ahead for the next step, as one was for this */
                expect(moved[2] + reused == 2 * (uint64_t)m * p &&
                           reused < (uint64_t)(m * 2 * 2) * toy_largest_group(&t),
                       "%d micro-batches: %llu elements gathered and %llu found, for %llu", m,
                       (unsigned long long)moved[2], (unsigned long long)reused,
                       (unsigned long long)(2 * (uint64_t)m * p));
            toy_free(&t);
        }
}

/* Proves (rows 10, 66, 67): elements on the way of a step: all-reduce P; reduce-scatter P and all-gather P;
 * reduce-scatter m P and all-gather P; reduce-scatter m P and all-gather 2 m P less what was still there, and none
 * after the update. */
START_TEST(T_row66_traffic_is_the_formulas)
{
    world(2 + _i, THREADS, traffic, NULL);
}
END_TEST

static void steady(struct rank *me)
{
    for (int stage = 0; stage <= 3; stage++) {
        const struct way   way = {.stage = stage, .bytes = 500, .live = 2};
        hkt_ledger_t      *ledger;
        hkt_ledger_entry_t e;
        struct toy         t;

        expect_ok(hkt_ledger_create(&ledger));
        toy_make(&t, me, &way, ledger);
        toy_step(&t, NULL);
        toy_step(&t, NULL);
        expect_ok(hkt_ledger_reset_peaks(ledger));
        toy_step(&t, NULL);
        toy_step(&t, NULL);
        for (int kind = 0; kind < HKT_BYTES_CLASSES; kind++) {
            expect_ok(hkt_ledger_read(&e, (hkt_bytes_t)kind, ledger));
            expect(e.takes == 0, "stage %d takes %s after the second step", stage, hkt_bytes_name((hkt_bytes_t)kind));
        }
        toy_free(&t);
        expect_ok(hkt_ledger_destroy(ledger));
    }
}

/* Proves: from the third step on no memory is taken, in any stage. */
START_TEST(nothing_is_taken_after_step_2)
{
    world(2 + _i, THREADS, steady, NULL);
}
END_TEST

/* ---- overflow, drift */

static void overflowed(struct rank *me)
{
    for (int stage = 0; stage <= 3; stage++) {
        const struct way  way = {.stage = stage, .bytes = 500, .weight = HKT_FLOAT16, .gradient = HKT_FLOAT16};
        struct toy        t;
        hkt_zero_report_t r;
        hkt_zero_info_t   info;
        struct result     before, after;

        toy_make(&t, me, &way, NULL);
        toy_step(&t, NULL);
        toy_state(&before, &t);
        t.poison = me->rank == me->n - 1; /* one rank, two parameters: the later one comes first in the backward pass */
        toy_step(&t, &r);
        expect(r.skipped && r.overflow.overflow, "stage %d: an infinite gradient is no overflow", stage);
        expect(strcmp(r.overflow.tensor, t.parameter[7].name) == 0 && r.overflow.element == 3,
               "stage %d: overflow in %s[%zu]", stage, r.overflow.tensor, r.overflow.element);
        expect_ok(hkt_zero_info(&info, t.zero));
        expect(info.steps == 1, "a skipped step counts");
        toy_state(&after, &t);
        expect_true(memcmp(before.state, after.state, sizeof before.state) == 0);
        t.poison = false;
        toy_step(&t, &r);
        expect_true(!r.skipped && r.norm > 0);
        expect_ok(hkt_zero_info(&info, t.zero));
        expect_true(info.steps == 2);
        toy_free(&t);
    }
}

/* Proves: an infinity in one rank's gradients makes every rank skip the step, names the tensor that had it first,
 * changes nothing and does not advance the step count. */
START_TEST(T_C19_overflow_skips_on_all_ranks)
{
    world(1 + _i, THREADS, overflowed, NULL);
}
END_TEST

/* Proves (row 92): updates too small for bf16 add up in the fp32 master and reach the weights. */
START_TEST(T_row92_small_updates_accumulate)
{
    const hkt_parameter_t p = {"w", 1, HKT_PARAMETER_NO_DECAY};
    hkt_zero_config_t     c = HKT_ZERO_CONFIG_INIT;
    hkt_adamw_t           a = HKT_ADAMW_INIT;
    hkt_zero_report_t     r;
    hkt_zero_t           *z;
    const float           one = 1;
    float                 master;
    void                 *g, *w;

    c.weight = HKT_BFLOAT16;
    a.rate   = 1e-4; /* half a unit of bf16 below 1 is 2^-9 = 1.95e-3 */
    expect_ok(hkt_zero_create(&z, &p, 1, NULL, &c, NULL));
    expect_ok(hkt_zero_put(z, 0, HKT_ZERO_MASTER, 0, 1, &one));
    expect_ok(hkt_zero_loaded(z));
    for (int step = 1; step <= 100; step++) {
        expect_ok(hkt_zero_begin(z, 1));
        expect_ok(hkt_zero_gradient(&g, 0, z));
        *(float *)g = 1;
        expect_ok(hkt_zero_ready(z, 0));
        expect_ok(hkt_zero_step(&r, z, &a));
        expect_ok(hkt_zero_weight(&w, 0, z));
        if (step == 10)
            expect_true(*(uint16_t *)w == 0x3f80); /* still 1 */
    }
    expect_ok(hkt_zero_get(&master, 0, HKT_ZERO_MASTER, 0, 1, z));
    expect(fabsf(master - 0.99f) < 1e-5f && *(uint16_t *)w == 0x3f7d, "after 100 steps of 1e-4 the master is %g",
           (double)master);
    expect_ok(hkt_zero_destroy(z));
}
END_TEST

/* ---- state */

static void reload(struct rank *me)
{
    /* Saved by n ranks in one stage, loaded by n or 1 in another; integer gradients, equal on all ranks, so n does not
     * show. */
    for (int k = 0; k < 12; k++) {
        const struct way from = {
            .stage = k % 4, .bytes = 700, .equal = true, .weight = k % 2 ? HKT_BFLOAT16 : HKT_FLOAT32};
        struct way       to = from;
        struct toy       a, b;
        struct result    wanted, got;
        hkt_zero_piece_t piece;
        size_t           covered = 0;

        to.stage = (k + 1 + k / 4) % 4;
        to.bytes = 5000;
        doing("from stage %d to %d", from.stage, to.stage);
        toy_make(&a, me, &from, NULL);
        toy_step(&a, NULL);
        toy_step(&a, NULL);
        struct rank alone = *me;
        alone.comm        = NULL;
        alone.n           = 1;
        alone.rank        = 0;
        toy_make(&b, k % 3 ? me : &alone, &to, NULL);
        toy_state(&wanted, &a);
        for (int i = 0; i < TOYS; i++)
            for (int kind = 0; kind < HKT_ZERO_KINDS; kind++)
                expect_ok(hkt_zero_put(b.zero, i, (hkt_zero_kind_t)kind, 0, a.parameter[i].count,
                                       wanted.state[kind] + a.at[i]));
        expect_ok(hkt_zero_set_steps(b.zero, 2));
        expect_ok(hkt_zero_loaded(b.zero));
        b.step = 2;
        for (int i = 0; hkt_zero_piece(&piece, i, b.zero) == HKT_OK; i++) {
            covered += piece.count;
            for (int kind = 0; kind < HKT_ZERO_KINDS; kind++)
                expect_true(memcmp(piece.data[kind], wanted.state[kind] + a.at[piece.parameter] + piece.first,
                                   piece.count * sizeof(float)) == 0);
        }
        uint64_t total = covered;
        if (k % 3)
            expect_ok(hkt_all_reduce(&total, &total, 1, HKT_UINT64, HKT_SUM, me->comm, NULL));
        expect(total == toy_elements(), "pieces cover %llu elements", (unsigned long long)total);
        toy_step(&a, NULL);
        toy_step(&b, NULL);
        toy_state(&wanted, &a);
        toy_state(&got, &b);
        expect(memcmp(wanted.state, got.state, sizeof got.state) == 0, "stage %d on %d ranks continues differently",
               to.stage, k % 3 ? me->n : 1);
        toy_free(&b);
        toy_free(&a);
    }
}

/* Proves: state saved in any stage goes on bit for bit in any other, on as many ranks or on one; pieces cover each
 * element once. */
START_TEST(T_C17_state_moves_between_stages)
{
    world(2 + _i, THREADS, reload, NULL);
}
END_TEST

static void loaded_by_pieces(struct rank *me)
{
    for (int stage = 0; stage <= 3; stage++) {
        const struct way way = {.stage = stage, .bytes = 900, .weight = HKT_BFLOAT16};
        struct toy       a, b;
        struct result    wanted, got;
        hkt_zero_piece_t from, to;

        toy_make(&a, me, &way, NULL);
        toy_step(&a, NULL);
        toy_make(&b, me, &way, NULL);
        for (int i = 0; hkt_zero_piece(&from, i, a.zero) == HKT_OK; i++) { /* as a checkpoint is read into pieces */
            expect_ok(hkt_zero_piece(&to, i, b.zero));
            for (int kind = 0; kind < HKT_ZERO_KINDS; kind++)
                memcpy(to.data[kind], from.data[kind], from.count * sizeof(float));
        }
        expect_ok(hkt_zero_set_steps(b.zero, 1));
        expect_ok(hkt_zero_loaded(b.zero));
        b.step = 1;
        toy_step(&a, NULL);
        toy_step(&b, NULL);
        toy_state(&wanted, &a);
        toy_state(&got, &b);
        expect(memcmp(wanted.state, got.state, sizeof got.state) == 0, "stage %d goes on differently", stage);
        toy_free(&b);
        toy_free(&a);
    }
}

/* Proves: what each rank saves is enough for all of them, also in stage 0, where every rank holds more than it saves.
 */
START_TEST(T_C16_pieces_are_enough)
{
    world(1 + _i, THREADS, loaded_by_pieces, NULL);
}
END_TEST

static void mistakes(struct rank *me)
{
    const struct way  way = {.stage = 3, .bytes = 700};
    hkt_zero_config_t c   = HKT_ZERO_CONFIG_INIT;
    hkt_adamw_t       o   = HKT_ADAMW_INIT;
    hkt_zero_report_t r;
    hkt_zero_t       *z = NULL;
    struct toy        t;
    float             x[4];
    void             *w;

    toy_make(&t, me, &way, NULL);
    c.stage = 4;
    expect_code(hkt_zero_create(&z, t.parameter, TOYS, me->comm, &c, NULL), HKT_ERR_ARGUMENT);
    c.stage = 3;
    expect_code(hkt_zero_create(&z, t.parameter, TOYS, me->comm, &c, NULL), HKT_ERR_ARGUMENT);
    expect_said("groups");
    c.stage    = 1;
    c.tier     = HKT_TIER_HOST;
    c.host_cap = 100;
    expect_code(hkt_zero_create(&z, t.parameter, TOYS, me->comm, &c, NULL), HKT_ERR_MEMORY);
    expect_said("of at most 100");
    c.tier = HKT_TIER_FILE;
    c.path = "/nowhere/at/all";
    expect_code(hkt_zero_create(&z, t.parameter, TOYS, me->comm, &c, NULL), HKT_ERR_SYSTEM);
    expect_said("/nowhere/at/all");
    expect_true(z == NULL);
    expect_code(hkt_zero_weight(&w, 0, t.zero), HKT_ERR_USAGE);
    expect_said("is not fetched");
    expect_code(hkt_zero_release(t.zero, 0), HKT_ERR_USAGE);
    expect_code(hkt_zero_fetch(t.zero, 99), HKT_ERR_ARGUMENT);
    expect_code(hkt_zero_step(&r, t.zero, &o), HKT_ERR_USAGE);
    expect_code(hkt_zero_get(x, 0, HKT_ZERO_MASTER, 1, SIZE_MAX, t.zero), HKT_ERR_ARGUMENT);
    expect_code(hkt_zero_put(t.zero, -1, HKT_ZERO_MASTER, 0, 1, x), HKT_ERR_ARGUMENT);
    expect_ok(hkt_zero_begin(t.zero, 1));
    expect_ok(hkt_zero_fetch(t.zero, 1));
    expect_code(hkt_zero_step(&r, t.zero, &o), HKT_ERR_USAGE);
    expect_said("still fetched");
    expect_ok(hkt_zero_release(t.zero, 1));
    o.beta2 = 1;
    expect_code(hkt_zero_step(&r, t.zero, &o), HKT_ERR_ARGUMENT);
    expect_said("beta2 is 1");
    o.beta2 = 0.99;
    expect_ok(hkt_zero_step(&r, t.zero, &o));
    expect_true(r.norm == 0 && r.clipped == 1 && !r.skipped);
    toy_free(&t);
    expect_ok(hkt_zero_destroy(NULL));
}

/* Proves: what is wrong is refused with a sentence, and leaves the handle usable. */
START_TEST(mistakes_are_said)
{
    world(2, THREADS, mistakes, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, T_row62_same_bits_in_every_stage, 4, 60);
    ADD(s, T_C05_when_gradients_are_reduced, 2, 30);
    ADD(s, T_row98_same_bits_in_every_tier, 3, 60);
    ADD(s, T_row61_bytes_are_the_formulas, 4, 30);
    ADD(s, T_row66_traffic_is_the_formulas, 3, 30);
    ADD(s, nothing_is_taken_after_step_2, 2, 30);
    ADD(s, T_C19_overflow_skips_on_all_ranks, 3, 30);
    ADD(s, T_row92_small_updates_accumulate, 1, 10);
    ADD(s, T_C17_state_moves_between_stages, 3, 30);
    ADD(s, T_C16_pieces_are_enough, 3, 30);
    ADD(s, mistakes_are_said, 1, 20);
}

int main(void)
{
    return run_suite("zero", add);
}
