/* test_simulate.c -- the simulator against what is known without it: closed formulas on ideal links, hand-computed congestion, a hundred
 * thousand ranks against the same run with every rank for itself; the choice, its reasons, the lower bound; memory that runs out. */
#include "base/memory.h"
#include "hocket.h"
#include "language/cost.h"
#include "language/roles.h"
#include "language/startup.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct hkt_fabric ideal(int ranks)
{
    struct hkt_fabric f = hkt_fabric_find("ideal")->fabric;

    ck_assert_int_eq(hkt_fabric_resize(&f, ranks, 0), 0);
    return f;
}

static struct hkt_sim_result simulate(const char *name, struct hkt_shape shape, const struct hkt_fabric *f, struct hkt_sim_load load, bool all)
{
    struct hkt_simulator *sim;
    struct hkt_sim_result result, again;
    double                sum = 0;

    shape.size = hkt_fabric_ranks(f);
    ck_assert_msg(hkt_simulator_open(&sim, hkt_algorithm_find(name), &shape, f, all) == 0, "%s: %s", name, hkt_last_error());
    ck_assert_msg(hkt_simulator_run(sim, &load, &result) == 0, "%s: %s", name, hkt_last_error());
    ck_assert_int_eq(hkt_simulator_run(sim, &load, &again), 0);
    hkt_simulator_close(sim);
    ck_assert_msg(!memcmp(&result, &again, sizeof(result)), "%s: two runs differ", name);
    for (int i = 0; i < HKT_TIME_PARTS; i++)
        sum += result.part[i];
    ck_assert_double_eq_tol(sum, result.seconds, 1e-9 * result.seconds + 1e-15);
    return result;
}

static double seconds(const char *name, enum hkt_coll coll, const struct hkt_fabric *f, double bytes)
{
    return simulate(name, (struct hkt_shape){.coll = coll}, f, (struct hkt_sim_load){.bytes = bytes}, false).seconds;
}

static double formula(const char *name, enum hkt_coll coll, const struct hkt_fabric *f, double bytes)
{
    const struct hkt_span_cost *w     = &f->wire[HKT_SPAN_NETWORK];
    const struct hkt_link  link  = {.alpha = w->alpha, .gap = w->gap, .beta = w->beta, .gamma = f->gamma};
    const struct hkt_shape shape = {.coll = coll, .size = hkt_fabric_ranks(f)};

    return hkt_algorithm_find(name)->cost(&shape, bytes, &link);
}

/* ---- formulas ----------------------------------------------------------------------------------------------------- */

/* The ring is exact: strictly in order and with two messages between ranks, since every hop waits for the one before. */
START_TEST(test_ring_is_its_formula)
{
    static const enum hkt_coll coll[] = {HKT_COLL_ALL_REDUCE, HKT_COLL_REDUCE_SCATTER, HKT_COLL_ALL_GATHER};

    for (int n = 2; n <= 200; n += n < 20 ? 1 : 60)
        for (size_t c = 0; c < sizeof(coll) / sizeof(coll[0]); c++)
            for (double bytes = 1024; bytes < 1e9; bytes *= 64) {
                struct hkt_fabric f = ideal(n);

                f.gamma = 3e-11;
                f.depth = 2;
                ck_assert_double_eq_tol(seconds("ring", coll[c], &f, bytes) / formula("ring", coll[c], &f, bytes), 1, 1e-5);
            }
}
END_TEST

/* Others on links whose gap is nothing, ahead of steps that wait (window 63), with no limit to messages: what their formulas assume. The rows say
 * how far they are off and why. */
static const struct {
    const char   *name;
    enum hkt_coll coll;
    int           least, most; /* ranks */
    double        low, high;   /* simulated / formula */
} agree[] = {
    {"oneshot", HKT_COLL_ALL_REDUCE, 2, 32, 0.99, 1.01},
    {"direct", HKT_COLL_ALL_REDUCE, 2, 200, 0.99, 1.01},
    {"direct", HKT_COLL_REDUCE_SCATTER, 2, 200, 0.99, 1.01},
    {"direct", HKT_COLL_ALL_TO_ALL, 2, 200, 0.99, 1.01},
    {"direct", HKT_COLL_GATHER, 2, 200, 0.99, 1.01},
    {"radix", HKT_COLL_ALL_REDUCE, 8, 8, 0.99, 1.01}, /* one round of 8; elsewhere it takes all rounds as full */
    {"circulant", HKT_COLL_ALL_GATHER, 64, 64, 0.7, 1.01},
    {"circulant", HKT_COLL_ALL_REDUCE, 64, 64, 0.7, 1.01},
    {"halving", HKT_COLL_ALL_REDUCE, 64, 64, 0.7, 1.05},
    {"bruck", HKT_COLL_ALL_GATHER, 64, 64, 0.7, 1.01},
    {"circulant", HKT_COLL_ALL_GATHER, 2, 100, 0.5, 1.01}, /* a round does not wait for the one before where it sends what was there */
    {"circulant", HKT_COLL_ALL_REDUCE, 2, 100, 0.5, 1.01},
    {"bruck", HKT_COLL_ALL_GATHER, 2, 100, 0.5, 1.01},
    {"halving", HKT_COLL_ALL_REDUCE, 2, 100, 0.5, 1.6}, /* and ranks of a ragged last block send more than the mean */
    {"tree", HKT_COLL_ALL_REDUCE, 8, 64, 0.6, 1.3},        /* it counts neither the halves that a rank inside both trees carries nor overlap */
};

START_TEST(test_formulas)
{
    const int row = _i;

    for (int n = agree[row].least; n <= agree[row].most; n += 1 + n / 5)
        for (double bytes = 1024; bytes < 1e8; bytes *= 16) {
            struct hkt_fabric f = ideal(n);
            double            ratio;

            f.window                    = HKT_WINDOW_MOST;
            f.wire[HKT_SPAN_NETWORK].gap = 0;
            ratio = seconds(agree[row].name, agree[row].coll, &f, bytes) / formula(agree[row].name, agree[row].coll, &f, bytes);
            ck_assert_msg(ratio >= agree[row].low && ratio <= agree[row].high, "%s %s over %d ranks, %g bytes: %.3f of the formula",
                          agree[row].name, hkt_coll_name[agree[row].coll], n, bytes, ratio);
        }
}
END_TEST

/* Strictly in order, circulant waits a latency for every block, not for every round: its steps alternate between sending and hearing. */
START_TEST(test_order_costs_latency)
{
    struct hkt_fabric f = ideal(64);
    double            in_order, ahead;

    in_order = seconds("circulant", HKT_COLL_ALL_GATHER, &f, 64);
    f.window = HKT_WINDOW_MOST;
    ahead    = seconds("circulant", HKT_COLL_ALL_GATHER, &f, 64);
    ck_assert_double_eq_tol(in_order, 63 * 2e-6, 0.2e-6); /* the bytes are next to nothing */
    ck_assert_double_le(ahead, 6 * 2e-6 + 63 * 0.15e-6);
}
END_TEST

/* ---- what is shared ----------------------------------------------------------------------------------------------- */

/* Four hosts of one rank on two leaves: every rank of leaf 0 sends a block to every one of leaf 1, over an uplink that carries what half a card
 * does (oversubscribed 4: two hosts, one half). Two blocks of each of two hosts: four blocks at half the rate, against two at the full rate. */
START_TEST(test_uplink)
{
    struct hkt_fabric     f = ideal(4);
    struct hkt_sim_result r;
    const double          block = 1e6 * 8e-11; /* 80 us on a card */

    f.wire[HKT_SPAN_NETWORK].gap = 0;
    f.per_leaf                   = 2;
    f.oversubscription           = 4;
    r = simulate("direct", (struct hkt_shape){.coll = HKT_COLL_ALL_TO_ALL}, &f, (struct hkt_sim_load){.bytes = 4e6}, false);
    ck_assert_double_ge(r.seconds, 4 * 2 * block + 2e-6);
    ck_assert_double_le(r.seconds, 4 * 2 * block + 2e-6 + 2 * block); /* the first to cross waits for at most one inside the leaf */
    ck_assert_double_gt(r.part[HKT_TIME_UPLINK], r.seconds / 2);
    f.oversubscription = 1;
    r = simulate("direct", (struct hkt_shape){.coll = HKT_COLL_ALL_TO_ALL}, &f, (struct hkt_sim_load){.bytes = 4e6}, false);
    ck_assert_double_eq_tol(r.seconds, 3 * block + 2e-6, 1e-9);
}
END_TEST

/* Two hosts of two ranks that share one card each: what crosses takes twice as long as with a card each. */
START_TEST(test_cards_are_shared)
{
    struct hkt_fabric f = ideal(4);
    double            one, each;

    f.wire[HKT_SPAN_CACHE] = f.wire[HKT_SPAN_NETWORK];
    ck_assert_int_eq(hkt_fabric_resize(&f, 4, 2), 0);
    f.wire[HKT_SPAN_NETWORK].gap = 0;
    each    = seconds("direct", HKT_COLL_ALL_TO_ALL, &f, 4e6);
    f.rails = 1;
    one     = seconds("direct", HKT_COLL_ALL_TO_ALL, &f, 4e6);
    ck_assert_double_eq_tol(each, 3 * 80e-6 + 2e-6, 1e-9); /* both ranks send to rank 2 at first: rank 3's card begins a block later */
    ck_assert_double_eq_tol(one, 4 * 80e-6 + 2e-6, 1e-9);
}
END_TEST

/* A broadcast chain of many pieces: with room for one message a piece waits for the word that the last was taken, a round trip. */
START_TEST(test_room)
{
    struct hkt_fabric     f = ideal(4);
    const struct hkt_shape shape = {.coll = HKT_COLL_BROADCAST, .pieces = 32};
    struct hkt_sim_result r;

    f.wire[HKT_SPAN_NETWORK].gap = 0;
    r = simulate("ring", shape, &f, (struct hkt_sim_load){.bytes = 32}, false);
    ck_assert_double_eq_tol(r.seconds, 3 * 2e-6, 1e-8);
    f.depth = 1;
    r       = simulate("ring", shape, &f, (struct hkt_sim_load){.bytes = 32}, false);
    ck_assert_double_eq_tol(r.seconds, 3 * 2e-6 + 31 * 4e-6, 1e-8);
    ck_assert_double_gt(r.part[HKT_TIME_ROOM], 31 * 2e-6 - 1e-9);
    f.depth = 2;
    r       = simulate("ring", shape, &f, (struct hkt_sim_load){.bytes = 32}, false);
    ck_assert_double_eq_tol(r.seconds, 3 * 2e-6 + 15 * 4e-6, 1e-8);
}
END_TEST

/* Slices overlap like pieces: a chain of 8 ranks takes n-2+P parts. */
START_TEST(test_slices)
{
    struct hkt_fabric      f     = ideal(8);
    const struct hkt_shape shape = {.coll = HKT_COLL_BROADCAST, .pieces = 1};

    f.wire[HKT_SPAN_NETWORK] = (struct hkt_span_cost){.beta = 1e-9};
    ck_assert_double_eq_tol(simulate("ring", shape, &f, (struct hkt_sim_load){.bytes = 1e6}, false).seconds, 7e-3, 1e-9);
    ck_assert_double_eq_tol(simulate("ring", shape, &f, (struct hkt_sim_load){.bytes = 1e6, .slices = 10}, false).seconds, 1.6e-3, 1e-9);
}
END_TEST

/* ---- ranks that stand for all ------------------------------------------------------------------------------------- */

static const char *const merged[] = {"ring", "circulant", "direct", "pat", "bruck", "hierarchical"};

START_TEST(test_merged)
{
    static int start[65];

    for (int h = 0; h <= 64; h++)
        start[h] = 4 * h;
    for (int hosts = 2; hosts <= 16; hosts += 7) {
        struct hkt_fabric      f     = hkt_fabric_find("ib-ndr")->fabric;
        const bool             hier  = !strcmp(merged[_i], "hierarchical");
        const struct hkt_shape shape = {.coll = HKT_COLL_ALL_GATHER, .ngroups = hier ? hosts : 0, .group_start = start};
        struct hkt_sim_result  some, all;

        ck_assert_int_eq(hkt_fabric_resize(&f, 4 * hosts, 4), 0);
        f.rails = 2;
        if (hosts == 16)
            f.per_leaf = 4, f.oversubscription = 3;
        some = simulate(merged[_i], shape, &f, (struct hkt_sim_load){.bytes = 1e6}, false);
        all  = simulate(merged[_i], shape, &f, (struct hkt_sim_load){.bytes = 1e6}, true);
        ck_assert_uint_eq(all.ranks, (unsigned)(4 * hosts));
        ck_assert_uint_eq(some.ranks, hosts == 16 ? 16 : 4);
        ck_assert_double_eq_tol(some.seconds / all.seconds, 1, 0.02); /* who comes first at a card at one moment is told by number */
    }
}
END_TEST

/* The best of its kind on a fabric, in which ranks have seats or not. */
static struct hkt_offer best_of(const struct hkt_fabric *f, struct hkt_question q)
{
    struct hkt_predictor *p;
    struct hkt_offer      offer[HKT_OFFERS_MOST];
    int                   count;

    ck_assert_int_eq(hkt_predictor_open(&p, f), 0);
    ck_assert_int_eq(hkt_predict_all(p, &q, offer, &count), 0);
    hkt_predictor_close(p);
    return offer[0];
}

/* 12 ranks on 3 hosts: in a row, and in turn with seats. Where labels may be, the schedules and times are the same; in canonical order they may not
 * be, and nothing is composed. */
START_TEST(test_seats)
{
    static struct hkt_seat   seat[12];
    struct hkt_fabric        row = hkt_fabric_find("tcp-25g")->fabric, turn;
    const struct hkt_sim_load load = {.bytes = 3e6};

    ck_assert_int_eq(hkt_fabric_resize(&row, 12, 4), 0);
    turn       = row;
    turn.seat  = seat;
    turn.ranks = 12;
    for (int r = 0; r < 12; r++)
        seat[r] = (struct hkt_seat){.host = r / 4, .local = r % 4};
    ck_assert_double_eq(simulate("ring", (struct hkt_shape){.coll = HKT_COLL_ALL_GATHER}, &row, load, true).seconds,
                        simulate("ring", (struct hkt_shape){.coll = HKT_COLL_ALL_GATHER}, &turn, load, true).seconds);
    for (int r = 0; r < 12; r++)
        seat[r] = (struct hkt_seat){.host = r % 3, .local = r / 3};
    for (int coll = 0; coll < HKT_COLL_BROADCAST; coll++) {
        const struct hkt_question q = {.coll = (enum hkt_coll)coll, .bytes = 3e6};
        const struct hkt_offer    a = best_of(&row, q), b = best_of(&turn, q);

        char                      one[64], other[64];

        ck_assert_str_eq(hkt_offer_name(&a, one), hkt_offer_name(&b, other));
        ck_assert(coll != HKT_COLL_ALL_REDUCE || !strncmp(one, "hierarchical", 12));
        ck_assert_double_eq_tol(a.result.seconds / b.result.seconds, 1, 0.05); /* roots differ by what is near them */
        ck_assert_str_ne(best_of(&turn, (struct hkt_question){.coll = HKT_COLL_ALL_REDUCE, .bytes = 3e6, .canonical = true}).algorithm->name,
                         "hierarchical");
    }
}
END_TEST

/* Messages that are cut to a size take as many slices as that needs, the same as asking for these. */
START_TEST(test_slice_bytes)
{
    const struct hkt_fabric f = ideal(4);
    const struct hkt_shape  s = {.coll = HKT_COLL_ALL_REDUCE};

    ck_assert_double_eq(simulate("ring", s, &f, (struct hkt_sim_load){.bytes = 4e6, .slices = 10}, false).seconds,
                        simulate("ring", s, &f, (struct hkt_sim_load){.bytes = 4e6, .slice_bytes = 1e5}, false).seconds);
    ck_assert_double_eq(simulate("ring", s, &f, (struct hkt_sim_load){.bytes = 4e5, .slices = 1}, false).seconds,
                        simulate("ring", s, &f, (struct hkt_sim_load){.bytes = 4e5, .slice_bytes = 1e5}, false).seconds);
}
END_TEST

/* Without a replay only what the formulas are right for is offered, and its time is the formula's. */
START_TEST(test_by_formula)
{
    const struct hkt_fabric f    = hkt_fabric_find("tcp-25g")->fabric;
    const struct hkt_offer  best = best_of(&f, (struct hkt_question){.coll = HKT_COLL_ALL_REDUCE, .bytes = 1e6, .formula = true});
    char                    text[200];

    ck_assert_double_eq(best.result.seconds, best.formula);
    ck_assert(!best.why[0] && strcmp(best.algorithm->name, "circulant") && strcmp(best.algorithm->name, "tree"));
    ck_assert_ptr_nonnull(strstr(hkt_offer_reason(&best, text), "by formula"));
}
END_TEST

/* The start of a run over 100,000 ranks must not need a machine of that size. */
START_TEST(test_hundred_thousand)
{
    struct hkt_fabric     f = hkt_fabric_find("ib-ndr")->fabric;
    struct hkt_sim_result r;

    ck_assert_int_eq(hkt_fabric_resize(&f, 100000, 0), 0);
    r = simulate("radix", (struct hkt_shape){.coll = HKT_COLL_BROADCAST}, &f, (struct hkt_sim_load){.bytes = 8}, false);
    ck_assert_uint_eq(r.ranks, 100000);
    ck_assert_uint_eq(r.messages, 99999);
    r = simulate("pat", (struct hkt_shape){.coll = HKT_COLL_ALL_GATHER}, &f, (struct hkt_sim_load){.bytes = 8e5}, false);
    ck_assert_uint_eq(r.ranks, 8);
    ck_assert_uint_eq(r.messages, 8 * 99999);
}
END_TEST

START_TEST(test_too_much)
{
    struct hkt_fabric      f     = hkt_fabric_find("ib-ndr")->fabric;
    const struct hkt_shape shape = {.coll = HKT_COLL_ALL_GATHER, .size = 100000};
    struct hkt_simulator  *sim   = NULL;

    ck_assert_int_eq(hkt_fabric_resize(&f, 100000, 0), 0);
    ck_assert_int_eq(hkt_simulator_open(&sim, hkt_algorithm_find("halving"), &shape, &f, false), HKT_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(hkt_last_error(), "halving all_gather over 100000 ranks"));
    ck_assert_int_eq(hkt_simulator_open(&sim, hkt_algorithm_find("ring"), &(struct hkt_shape){.size = 7}, &f, false), HKT_ERR_ARGUMENT);
    f.wire[HKT_SPAN_NETWORK].alpha = NAN;
    ck_assert_int_eq(hkt_simulator_open(&sim, hkt_algorithm_find("ring"), &shape, &f, false), HKT_ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(hkt_last_error(), "latency"));
    ck_assert_ptr_null(sim);
}
END_TEST

/* ---- the choice --------------------------------------------------------------------------------------------------- */

START_TEST(test_choice)
{
    const struct hkt_fabric f = ideal(64);
    struct hkt_predictor   *p;
    struct hkt_offer        offer[HKT_OFFERS_MOST];
    char                    why[200];
    int                     count, ring = -1;
    struct hkt_question     q = {.coll = HKT_COLL_ALL_REDUCE, .bytes = 1024};

    ck_assert_int_eq(hkt_predictor_open(&p, &f), 0);
    ck_assert_int_eq(hkt_predict_all(p, &q, offer, &count), 0);
    for (int i = 0; i < count; i++) {
        if (i && !offer[i].why[0])
            ck_assert_double_ge(offer[i].result.seconds, offer[i - 1].result.seconds);
        if (!strcmp(offer[i].algorithm->name, "ring"))
            ring = i;
    }
    ck_assert_str_eq(offer[0].algorithm->name, "radix");
    ck_assert_int_ge(ring, 1);
    ck_assert_str_eq(hkt_offer_reason(&offer[ring], why), "126 messages one after the other; latency 252 us of 252 us");
    q.canonical = true;
    q.bytes     = 1 << 26;
    ck_assert_int_eq(hkt_predict_all(p, &q, offer, &count), 0);
    for (int i = 0; i < count; i++)
        ck_assert_msg(offer[i].why[0] || offer[i].canonical, "%s is offered for the canonical order", offer[i].algorithm->name);
    hkt_predictor_close(p);
}
END_TEST

/* Nothing is faster than the bound, on fabrics with everything that is shared. */
START_TEST(test_bound)
{
    for (int coll = 0; coll < HKT_COLL_SCHEDULED; coll++)
        for (int kind = 0; kind < 3; kind++) {
            struct hkt_fabric     f = hkt_fabric_find(kind == 0 ? "ideal" : "ib-ndr")->fabric;
            struct hkt_predictor *p;
            struct hkt_offer      offer[HKT_OFFERS_MOST];
            const char           *what;
            int                   count;

            ck_assert_int_eq(hkt_fabric_resize(&f, 32, kind ? 4 : 1), 0);
            f.window = HKT_WINDOW_MOST;
            f.depth  = 0;
            if (kind == 2)
                f.per_leaf = 4, f.oversubscription = 5;
            ck_assert_int_eq(hkt_predictor_open(&p, &f), 0);
            for (double bytes = 100; bytes < 1e8; bytes *= 300) {
                const struct hkt_question q = {.coll = (enum hkt_coll)coll, .bytes = bytes, .root = 0};

                ck_assert_int_eq(hkt_predict_all(p, &q, offer, &count), 0);
                ck_assert_msg(!offer[0].why[0], "%s", offer[0].why);
                ck_assert_msg(offer[0].result.seconds >= 0.999 * hkt_lower_bound(&q, &f, &what), "%s by %s, %g bytes: %g s, bound %g s by %s",
                              hkt_coll_name[coll], offer[0].algorithm->name, bytes, offer[0].result.seconds, hkt_lower_bound(&q, &f, &what), what);
            }
            hkt_predictor_close(p);
        }
}
END_TEST

/* ---- the start ---------------------------------------------------------------------------------------------------- */

/* A hub of 1000 ranks takes its children in one after the other; a tree does that at every level at once. */
START_TEST(test_start)
{
    struct hkt_startup        how = {.ranks = 1001, .fanout = 1000, .trips = 2, .accept = 100e-6, .alpha = 10e-6};
    struct hkt_startup_result hub, tree;

    ck_assert_int_eq(hkt_startup_simulate(&how, &hub), 0);
    ck_assert_double_eq_tol(hub.seconds, 10e-6 + 1000 * 100e-6 + 3 * 10e-6, 1e-9);
    ck_assert_int_eq(hub.depth, 1);
    how.fanout = 10;
    ck_assert_int_eq(hkt_startup_simulate(&how, &tree), 0);
    ck_assert_double_eq_tol(tree.seconds, 10e-6 + 10 * 100e-6 + 3 * 10e-6, 1e-9);
    ck_assert_int_eq(tree.depth, 3);
    how.gathers = 1;
    how.bytes   = 100;
    how.beta    = 1e-9;
    ck_assert_int_eq(hkt_startup_simulate(&how, &tree), 0);
    /* up: three latencies, and the root takes what ten subtrees have: 100 kB; down: ten times the table at each of three levels,
     * but the last of a level have no children */
    ck_assert_double_ge(tree.gathered, 6 * 10e-6 + 100e-6 + 28 * 100e-6);
    ck_assert_double_le(tree.gathered, 6 * 10e-6 + 120e-6 + 3 * 10 * 100.2e-6 + 1e-6);
    how.fanout = 0;
    ck_assert_int_eq(hkt_startup_simulate(&how, &tree), HKT_ERR_ARGUMENT);
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------------------------- */

START_TEST(test_memory)
{
    const struct hkt_fabric   f = ideal(8);
    const struct hkt_question q = {.coll = HKT_COLL_ALL_REDUCE, .bytes = 1e6};
    int                       rc = HKT_ERR_MEMORY, failures = 0;

    for (long n = 1; rc == HKT_ERR_MEMORY; n++) {
        struct hkt_predictor *p     = NULL;
        struct hkt_offer      offer = {.algorithm = hkt_algorithm_find("tree")};

        hkt_alloc_fail_at(n);
        rc = hkt_predictor_open(&p, &f);
        if (rc == 0)
            rc = hkt_predict(p, &q, &offer);
        hkt_alloc_fail_at(0);
        hkt_predictor_close(p);
        failures += rc != 0;
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_int_ge(failures, 10);
}
END_TEST

int main(void)
{
    Suite   *s = suite_create("simulate");
    TCase   *c = tcase_create("simulate");
    SRunner *r;
    int      failed;

    tcase_set_timeout(c, 60);
    tcase_add_test(c, test_ring_is_its_formula);
    tcase_add_loop_test(c, test_formulas, 0, (int)(sizeof(agree) / sizeof(agree[0])));
    tcase_add_test(c, test_order_costs_latency);
    tcase_add_test(c, test_uplink);
    tcase_add_test(c, test_cards_are_shared);
    tcase_add_test(c, test_room);
    tcase_add_test(c, test_slices);
    tcase_add_loop_test(c, test_merged, 0, (int)(sizeof(merged) / sizeof(merged[0])));
    tcase_add_test(c, test_seats);
    tcase_add_test(c, test_slice_bytes);
    tcase_add_test(c, test_by_formula);
    tcase_add_test(c, test_hundred_thousand);
    tcase_add_test(c, test_too_much);
    tcase_add_test(c, test_choice);
    tcase_add_test(c, test_bound);
    tcase_add_test(c, test_start);
    tcase_add_test(c, test_memory);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
