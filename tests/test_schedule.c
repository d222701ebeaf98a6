/* test_schedule.c -- the schedule language: writing steps, what the verifier refuses (each rule of schedule.h by a schedule that
 * breaks only that one), what it promises about algorithms, memory that runs out at every allocation. The mutants are in
 * test_mutation.c, the sweep over all shapes in hkt-verify. */
#include "base/memory.h"
#include "concrete.h"
#include "hocket.h"
#include "language/expression.h"
#include "language/verify.h"

#include <check.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 17 };

/* ---- writing ----------------------------------------------------------------------------------------------------- */

START_TEST(test_writing)
{
    struct hkt_schedule s = {0};

    hkt_step(&s, HKT_STEP_FINISH);
    hkt_from(&s, HKT_IN, 3);
    hkt_from(&s, HKT_TMP, 6);
    hkt_to(&s, HKT_OUT, 1);
    hkt_copy(&s, HKT_PEER, 9, HKT_TMP, 2);
    ck_assert_int_eq(hkt_schedule_end(&s), 0);
    ck_assert_uint_eq(s.nsteps, 2);
    ck_assert_uint_eq(s.tmp_chunks, 7);
    ck_assert(s.step[0].nsrc == 2 && s.step[0].ndst == 1 && s.step[0].flags == HKT_STEP_FINISH);
    ck_assert(hkt_sources(&s, &s.step[0])[1].place == HKT_TMP && hkt_sources(&s, &s.step[0])[1].id == 6);
    ck_assert(hkt_destinations(&s, &s.step[0])[0].place == HKT_OUT && hkt_destinations(&s, &s.step[0])[0].id == 1);
    ck_assert(hkt_sources(&s, &s.step[1])[0].place == HKT_PEER && hkt_sources(&s, &s.step[1])[0].id == 9);
    ck_assert(hkt_destinations(&s, &s.step[1])[0].place == HKT_TMP && s.step[1].flags == 0);
    hkt_schedule_free(&s);
    ck_assert(!s.step && !s.operand && !s.nsteps && !s.tmp_chunks);
    hkt_schedule_free(&s);
}
END_TEST

START_TEST(test_too_many_operands)
{
    struct hkt_schedule s = {0};

    hkt_step(&s, 0);
    for (int i = 0; i <= UINT16_MAX; i++)
        hkt_from(&s, HKT_IN, i);
    hkt_to(&s, HKT_OUT, 0); /* after an error all is ignored */
    ck_assert_int_eq(hkt_schedule_end(&s), HKT_ERR_UNSUPPORTED);
    ck_assert(s.step[0].nsrc == UINT16_MAX && s.step[0].ndst == 0);
    hkt_schedule_free(&s);
}
END_TEST

START_TEST(test_log)
{
    static const int rows[][3] = {{1, 2, 0},
                                  {2, 2, 1},
                                  {3, 2, 2},
                                  {4, 2, 2},
                                  {5, 2, 3},
                                  {1024, 2, 10},
                                  {1025, 2, 11},
                                  {9, 3, 2},
                                  {10, 3, 3},
                                  {2147483647, 2, 31},
                                  {2147483647, 65535, 2}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        ck_assert_int_eq(hkt_log_ceil(rows[i][0], rows[i][1]), rows[i][2]);
    ck_assert(hkt_mod(-1, 5) == 4 && hkt_mod(-10, 5) == 0 && hkt_mod(12, 5) == 2);
}
END_TEST

/* ---- sums as trees ----------------------------------------------------------------------------------------------- */

static void check_tree(int n, const char *text)
{
    struct hkt_expressions e;
    uint32_t               list[64], id;
    char                   is[256];

    ck_assert_int_eq(hkt_expressions_init(&e, n), 0);
    for (int i = 0; i < n; i++)
        list[i] = (uint32_t)i;
    ck_assert(hkt_expression_fold(&e, list, (uint32_t)n, &id));
    hkt_expression_print(&e, id, is, sizeof(is));
    ck_assert_str_eq(is, text);
    ck_assert(hkt_expression_complete(&e, id));
    hkt_expressions_free(&e);
}

START_TEST(test_canonical_tree)
{
    check_tree(1, "0");
    check_tree(2, "(0+1)");
    check_tree(3, "((0+1)+2)");
    check_tree(4, "((0+1)+(2+3))");
    check_tree(7, "(((0+1)+(2+3))+((4+5)+6))");
    check_tree(9, "((((0+1)+(2+3))+((4+5)+(6+7)))+8)");
}
END_TEST

START_TEST(test_complete)
{
    struct hkt_expressions e;
    uint32_t               part, again, id;
    char                   text[16];

    ck_assert_int_eq(hkt_expressions_init(&e, 3), 0);
    ck_assert(hkt_expression_fold(&e, (uint32_t[]){0, 1}, 2, &part));
    ck_assert(hkt_expression_fold(&e, (uint32_t[]){0, 1}, 2, &again));
    ck_assert_uint_eq(part, again);
    ck_assert(!hkt_expression_complete(&e, part));
    ck_assert(hkt_expression_fold(&e, (uint32_t[]){part, 1}, 2, &id));
    ck_assert_msg(!hkt_expression_complete(&e, id), "three inputs, but rank 1 twice");
    ck_assert(hkt_expression_fold(&e, (uint32_t[]){2, part}, 2, &id));
    ck_assert(hkt_expression_complete(&e, id));
    ck_assert(hkt_expression_fold(&e, (uint32_t[]){id, id, id}, 3, &id));
    hkt_expression_print(&e, id, text, sizeof(text)); /* too long for the room */
    ck_assert_uint_lt(strlen(text), sizeof(text));
    hkt_expressions_free(&e);
}
END_TEST

/* ---- what the verifier refuses ----------------------------------------------------------------------------------- */

/* Schedules in short: steps end with ';', I IN, O OUT, T TMP, P PEER, '>' to, '=' to, finished. */
static void parse(struct hkt_schedule *s, const char *text, uint32_t chunks)
{
    bool to = false, open = false;

    s->chunks = chunks;
    for (; *text; text++) {
        if (!open && !isspace((unsigned char)*text)) {
            hkt_step(s, 0);
            open = true;
            to   = false;
        }
        if (*text == ';') {
            open = false;
        } else if (*text == '>' || *text == '=') {
            to                           = true;
            s->step[s->nsteps - 1].flags = *text == '=' ? HKT_STEP_FINISH : 0;
        } else if (strchr("IOTP", *text)) {
            const enum hkt_place place = (enum hkt_place)(strchr("IOTP", *text) - "IOTP");

            (to ? hkt_to : hkt_from)(s, place, atoi(text + 1));
        }
    }
    ck_assert_int_eq(hkt_schedule_end(s), 0);
}

struct refusal {
    enum hkt_coll coll;
    int           root;
    uint32_t      chunks;
    const char   *rank[4]; /* schedules */
    const char   *why;     /* part of the sentence; NULL: it is right */
};

#define AR HKT_COLL_ALL_REDUCE
#define AG HKT_COLL_ALL_GATHER
#define BC HKT_COLL_BROADCAST

static const struct refusal refusals[] = {
    {AR, 0, 1, {"I0>P1; I0+P1=O0", "I0>P0; P0+I0=O0"}, NULL},
    {AR, 0, 1, {"I0>P1; I0+P1=O0", "I0>P0; I0+P0=O0"}, "another order than on rank 0"},
    {AR, 0, 1, {"I0>P1; I0+P1>O0", "I0>P0; P0+I0=O0"}, "rank 0, step 2: stores a partial value in OUT 0"},
    {AR, 0, 1, {"I0>P1,O0", ""}, "stores a raw value in OUT 0"},
    {AR, 0, 1, {"I0=O0", "I0=O0"}, "finishes 0, which has not every rank once"},
    {AR, 0, 1, {"I0>P1; I0+P1+I0=O0", "I0>P0; P0+I0=O0"}, "finishes ((0+1)+0), which has not every rank once"},
    {AR, 0, 1, {"I0+P1=O0,P1", "P0>O0"}, "deadlock: it waits for a message from rank 1, FIFO depth 2"},
    {AR, 0, 1, {"I0>P1; I0+P1=O0", "I0>P0; I0>P0; P0+I0=O0"}, "1 messages from rank 1 are never received"},
    {AR, 0, 1, {"I0>P1; I0+P1=O0; I0>P1", "I0>P0; P0+I0=O0"}, "reads IN 0 after it stored that OUT chunk"},
    {AR, 0, 1, {"I0>P1; I0+P1=O0; O0>O0", "I0>P0; P0+I0=O0"}, "stores OUT 0 twice"},
    {AR, 0, 1, {"I0>P1; I0+P1=O0; O0=O0", "I0>P0; P0+I0=O0"}, "finishes a finished value"},
    {AR, 0, 1, {"I0+P1=O0,P1", "I0>P0; P0>T0; T0+I0>O0"}, "folds a finished value"},
    {AR, 0, 1, {"I0+P1=O0,P1", "I0>P0; P0+I0=O0"}, "folds a finished value"},
    {AR, 0, 1, {"T0>P1; I0+P1=O0", "I0>P0; P0+I0=O0"}, "reads TMP 0 before it is stored"},
    {AR, 0, 1, {"O0>P1; I0+P1=O0", "I0>P0; P0+I0=O0"}, "reads OUT 0 before it is stored"},
    {AR, 0, 1, {"I0+P1=T0,O0,P1", "I0>P0; P0>O0"}, "TMP 0 is stored and never read"},
    {AR, 0, 1, {"I0+P1=T0,O0; O0>T0,P1", "I0>P0; P0>O0"}, "overwrites TMP 0, which nobody has read"},
    {AR, 0, 1, {"I0+P1>T0; T0=T0; T0>O0,P1", "I0>P0; P0>O0"}, "turns TMP 0 from partial to finished in place"},
    {AR, 0, 1, {"I0>T0; T0+P1=O0,P1", "I0>P0; P0>O0"}, "stores a raw value in TMP 0"},
    {AR, 0, 1, {"I0>P0; I0+P1=O0,P1", "I0>P0; P0>O0"}, "a message to itself"},
    {AR, 0, 1, {"I0+P1=O0,P1,P1", "I0>P0; P0>O0"}, "names PEER 1 twice"},
    {AR, 0, 1, {"I0+P1+P1=O0", "I0>P0; P0>O0"}, "names PEER 1 twice"},
    {AR, 0, 1, {"I0+P2=O0", "I0>P0; P0>O0"}, "source PEER 2 does not exist"},
    {AR, 0, 1, {"I0+P1=O1", "I0>P0; P0>O0"}, "destination OUT 1 does not exist"},
    {AR, 0, 1, {"I1+P1=O0", "I0>P0; P0>O0"}, "source IN 1 does not exist"},
    {AR, 0, 1, {"I0>", "I0>P0; P0>O0"}, "has no destination"},
    {AR, 0, 1, {">O0", "I0>P0; P0>O0"}, "has no source"},
    {AR, 0, 1, {"I0+P1=P1", "I0>P0; P0>O0"}, "OUT 0 ends with nothing chunk 0, not finished chunk 0"},
    {AR, 0, 2, {"I0+P1=O0,P1; I1+P1=O1,P1", "I0>P0; I1>P0; P0>O0; P0>O1"}, NULL},
    {AR, 0, 2, {"I0+P1=O0,P1; I1+P1=O1,P1", "I1>P0; I0>P0; P0>O0; P0>O1"}, "folds chunk 0 with chunk 1"},
    {AR, 0, 2, {"I0+P1=O0,P1; I1+P1=O1,P1", "I0>P0; I1>P0; P0>O1; P0>O0"}, "OUT 0 ends with finished chunk 1"},
    {AR, 0, 1, {"I0>P1; P2>O0", "P0>P2; P2>O0", "P1+I0=O0,P0,P1"}, "not folded where it arrives"},
    {AR, 0, 1, {"I0>P1; P1>O0", "I0>P2; P0>P2; P2>O0", ""}, "not folded where it arrives"},
    {AR, 0, 3, {"I0>P1; I1>P1; I2>P1; P1>O0; P1>O1; P1>O2", "I0+P0=O0,P0; I1+P0=O1,P0; I2+P0=O2,P0"}, NULL},
    {AR,
     0,
     3,
     {"I0>P1; I1>P1; I2>P1; P1>T0; P1>T0; P1>T0", "I0>P0; I1>P0; I2>P0; P0>T0; P0>T0; P0>T0"},
     "room to send to rank"},
    {BC, 1, 1, {"P1>O0", "I0>O0,P0"}, NULL},
    {BC, 1, 1, {"I0>O0", "I0>O0"}, "source IN 0 does not exist"},
    {BC, 1, 1, {"P1=O0", "I0>O0,P0"}, "finishes in a collective that does not reduce"},
    {BC, 1, 1, {"P1>O0", "I0+I0>O0,P0"}, "reduces in a collective that does not"},
    {AG, 0, 1, {"I0>O0,P1; P1>O1", "I0>O1,P0; P0>O0"}, NULL},
    {AG, 0, 1, {"I0>O1,P1; P1>O0", "I0>O1,P0; P0>O0"}, "ends with raw chunk 1, not raw chunk 0"},
    {AG, 0, 1, {"I0>O0,P1; P1>O1", "I0>O1; O1>P0; I0>P0; P0>O0"}, "reads IN 0 after it stored that OUT chunk"},
    {HKT_COLL_REDUCE_SCATTER, 0, 1, {"I1>P1; I0+P1=O0", "I0>P0; P0+I1=O0"}, NULL},
    {HKT_COLL_REDUCE_SCATTER,
     0,
     1,
     {"I0>P1; I1+P1=O0", "I1>P0; P0+I0=O0"},
     "OUT 0 ends with finished chunk 1, not finished chunk 0"},
    {HKT_COLL_REDUCE, 1, 1, {"I0>P1", "P0+I0=O0"}, NULL},
    {HKT_COLL_REDUCE, 1, 1, {"I0>P1; P1>O0", "P0+I0=O0,P0"}, "destination OUT 0 does not exist"},
    {HKT_COLL_GATHER, 1, 1, {"I0>P1", "I0>O1; P0>O0"}, NULL},
    {HKT_COLL_SCATTER, 1, 1, {"P1>O0", "I1>O0; I0>P0"}, NULL},
    {HKT_COLL_SCATTER, 1, 1, {"P1>O0", "I1>O0; I1>P0"}, "reads IN 1 after it stored that OUT chunk"},
    {HKT_COLL_SCATTER, 1, 1, {"P1>O0", "I1>P0; I0>O0"}, "OUT 0 ends with raw chunk 1, not raw chunk 0"},
    {HKT_COLL_ALL_TO_ALL, 0, 1, {"I0>O0; I1>P1; P1>O1", "I1>O1; I0>P0; P0>O0"}, NULL},
    {HKT_COLL_ALL_TO_ALL,
     0,
     1,
     {"I0>O0; I1>P1; P1>O1", "I0>O1; I0>P0; P0>O0"},
     "OUT 1 ends with raw chunk 0, not raw chunk 1"},
    {HKT_COLL_ALL_TO_ALL,
     0,
     1,
     {"I1>O0; I1>P1; P1>O1", "I1>O1; I0>P0; P0>O0"},
     "OUT 0 ends with raw chunk 1, not raw chunk 0"},
    {HKT_COLL_ALL_TO_ALL,
     0,
     1,
     {"P1>O0; I1>P1; P1>O1", "I1>O1; I0>P0; I0>P0; P0>O0"},
     "ends with the input of rank 1, not of 0"},
};

START_TEST(test_refusal)
{
    const struct refusal    *c      = &refusals[_i];
    struct hkt_schedule      s[4]   = {{0}};
    struct hkt_shape         sh     = {.coll = c->coll, .root = c->root};
    struct hkt_verify_result result = {0};
    const char              *why;

    for (; sh.size < 4 && c->rank[sh.size]; sh.size++)
        parse(&s[sh.size], c->rank[sh.size], c->chunks);
    why = hkt_verify_schedules(s, &sh, HKT_FIFO_DEPTH, &result);
    if (c->why)
        ck_assert_msg(why && strstr(why, c->why), "said \"%s\", not \"%s\"", why ? why : "right", c->why);
    else
        ck_assert_msg(!why, "said \"%s\"", why);
    for (int r = 0; r < sh.size; r++)
        hkt_schedule_free(&s[r]);
}
END_TEST

START_TEST(test_chunks_differ)
{
    struct hkt_schedule      s[2] = {{0}};
    const struct hkt_shape   sh   = {.coll = AR, .size = 2};
    struct hkt_verify_result result;

    parse(&s[0], "I0>P1; I0+P1=O0", 1);
    parse(&s[1], "I0>P0; P0+I0=O0", 2);
    ck_assert_ptr_nonnull(strstr(hkt_verify_schedules(s, &sh, 2, &result), "cuts into 2 chunks, rank 0 into 1"));
    hkt_schedule_free(&s[0]);
    hkt_schedule_free(&s[1]);
}
END_TEST

/* ---- what algorithms promise ------------------------------------------------------------------------------------- */

/* The contract says depth 2, and this is why. */
START_TEST(test_depth_one)
{
    struct hkt_verify_result result;

    for (int n = 3; n <= MAX_RANKS; n++) {
        const struct hkt_shape sh  = {.coll = AR, .size = n};
        const char            *why = hkt_verify(hkt_algorithm_find("ring"), &sh, 1, &result);

        ck_assert_msg(why && strstr(why, "deadlock"), "n %d: %s", n, why ? why : "right");
        ck_assert_ptr_null(hkt_verify(hkt_algorithm_find("ring"), &sh, 2, &result));
        ck_assert(!result.canonical);
    }
}
END_TEST

static uint64_t one_too_few(const struct hkt_shape *sh)
{
    return hkt_algorithm_find("ring")->sent(sh) - (sh->rank == 2);
}

START_TEST(test_false_promises)
{
    struct hkt_algorithm     liar = *hkt_algorithm_find("ring");
    const struct hkt_shape   sh   = {.coll = AR, .size = 3};
    struct hkt_verify_result result;

    liar.canonical = HKT_COLL_BIT(ALL_REDUCE);
    ck_assert_ptr_nonnull(strstr(hkt_verify(&liar, &sh, 2, &result), "not the canonical tree, which is promised"));
    liar      = *hkt_algorithm_find("ring");
    liar.sent = one_too_few;
    ck_assert_ptr_nonnull(strstr(hkt_verify(&liar, &sh, 2, &result), "rank 2 sends 4 chunks, sent() says 3"));
}
END_TEST

START_TEST(test_table)
{
    const struct hkt_link link  = {.alpha = 1e-6, .gap = 1e-7, .beta = 1e-10, .gamma = 1e-11};
    unsigned              colls = 0, canonical = 0;

    for (const struct hkt_algorithm *const *a = hkt_algorithms; *a; a++) {
        ck_assert_ptr_eq(hkt_algorithm_find((*a)->name), *a);
        ck_assert((*a)->desc && (*a)->cost && (*a)->sent && (*a)->build);
        ck_assert_msg(((*a)->canonical & ~(*a)->colls) == 0, "%s", (*a)->name);
        colls |= (*a)->colls;
        canonical |= (*a)->canonical;
        for (int coll = 0; coll < HKT_COLL_SCHEDULED; coll++)
            for (int n = 1; n <= MAX_RANKS; n++) {
                const struct hkt_shape sh = {.coll = (enum hkt_coll)coll, .size = n};
                double                 small, large;

                if (hkt_algorithm_refuses(*a, &sh))
                    continue;
                small = (*a)->cost(&sh, 8, &link);
                large = (*a)->cost(&sh, 1e9, &link);
                ck_assert_msg(n == 1 ? small == 0 && large == 0 : small > 0 && large > small && isfinite(large),
                              "%s %s n %d costs %g and %g", (*a)->name, hkt_coll_name[coll], n, small, large);
            }
    }
    ck_assert_uint_eq(colls, (1u << HKT_COLL_SCHEDULED) - 1);
    ck_assert_uint_eq(canonical, HKT_COLLS_REDUCING);
    ck_assert_ptr_null(hkt_algorithm_find("no such"));
    for (int coll = 0; coll < HKT_COLLS; coll++)
        ck_assert_ptr_nonnull(hkt_coll_name[coll]);
}
END_TEST

/* Two trees for nothing, did ranks stand inside both: with an even number of ranks each must send 4 chunks of a piece at most. */
START_TEST(test_tree_balance)
{
    const struct hkt_algorithm *tree = hkt_algorithm_find("tree");

    for (int n = 2; n <= 100; n++) {
        int inside_both = 0;

        for (int r = 0; r < n; r++)
            inside_both += tree->sent(&(struct hkt_shape){.coll = AR, .rank = r, .size = n, .pieces = 1}) > 4;
        ck_assert_msg(inside_both <= n % 2, "n %d: %d ranks", n, inside_both);
    }
}
END_TEST

START_TEST(test_refuse)
{
    static const int            uneven[] = {0, 3, 4, 8}, even[] = {0, 4, 8}, last_short[] = {0, 4, 8, 9};
    struct hkt_shape            sh = {.coll = HKT_COLL_GATHER, .size = 8};
    const struct hkt_algorithm *h = hkt_algorithm_find("hierarchical"), *radix = hkt_algorithm_find("radix");

    ck_assert_ptr_nonnull(hkt_algorithm_refuses(hkt_algorithm_find("ring"), &sh));
    ck_assert_ptr_null(hkt_algorithm_refuses(hkt_algorithm_find("direct"), &sh));
    sh.size = 100000;
    ck_assert_ptr_nonnull(hkt_algorithm_refuses(hkt_algorithm_find("direct"), &sh));
    sh = (struct hkt_shape){.coll = AR, .size = 8, .radix = 1};
    ck_assert_ptr_nonnull(hkt_algorithm_refuses(radix, &sh));
    sh.radix = 4;
    ck_assert(!hkt_algorithm_refuses(radix, &sh) && hkt_algorithm_canonical(radix, &sh));
    sh.radix = 3;
    ck_assert(!hkt_algorithm_refuses(radix, &sh) && !hkt_algorithm_canonical(radix, &sh));

    sh = (struct hkt_shape){.coll = AR, .size = 8};
    ck_assert_ptr_nonnull(hkt_algorithm_refuses(h, &sh));
    sh.ngroups     = 2;
    sh.group_start = even;
    ck_assert(!hkt_algorithm_refuses(h, &sh) && hkt_algorithm_canonical(h, &sh));
    sh.outer = "ring";
    ck_assert(!hkt_algorithm_refuses(h, &sh) && !hkt_algorithm_canonical(h, &sh));
    sh.outer = "no such";
    ck_assert_ptr_nonnull(hkt_algorithm_refuses(h, &sh));
    sh.outer = "hierarchical";
    ck_assert_ptr_nonnull(hkt_algorithm_refuses(h, &sh));
    sh.outer = NULL;
    sh.inner = "tree";
    ck_assert_ptr_nonnull(hkt_algorithm_refuses(h, &sh));
    sh = (struct hkt_shape){.coll = AR, .size = 8, .ngroups = 3, .group_start = uneven};
    ck_assert(!hkt_algorithm_refuses(h, &sh) && !hkt_algorithm_canonical(h, &sh));
    sh = (struct hkt_shape){.coll = AR, .size = 9, .ngroups = 3, .group_start = last_short};
    ck_assert(!hkt_algorithm_refuses(h, &sh) && hkt_algorithm_canonical(h, &sh));
}
END_TEST

/* The verifier says what is right; real numbers in real memory must agree. */
START_TEST(test_numbers)
{
    static const int            start[] = {0, 3, 5, 9, 13, 17};
    const struct hkt_algorithm *a       = hkt_algorithms[_i];

    for (int coll = 0; coll < HKT_COLL_SCHEDULED; coll++)
        for (int k = 2; k <= 2 * MAX_RANKS + 1; k++) { /* every number of ranks, in a row and out of their order */
            const int           n                = k / 2;
            struct hkt_schedule s[MAX_RANKS] = {{0}};
            struct hkt_shape    sh           = {.coll = (enum hkt_coll)coll, .size = n};
            struct concrete     c            = {.schedule = s, .shape = &sh};
            int                 label[MAX_RANKS];

            for (int r = 0; r < n; r++)
                label[r] = n % 2 ? (2 * r + 1) % n : n - 1 - r;
            sh.label = k % 2 ? label : NULL;

            if (n == MAX_RANKS) {
                sh.ngroups     = 5;
                sh.group_start = start;
            }
            sh.root = hkt_coll_in(sh.coll, HKT_COLLS_ROOTED) ? n / 3 : 0;
            if (hkt_algorithm_refuses(a, &sh))
                continue;
            for (sh.rank = 0; sh.rank < n; sh.rank++)
                ck_assert_int_eq(hkt_schedule_build(&s[sh.rank], a, &sh), 0);
            sh.rank   = 0;
            c.ordered = hkt_algorithm_canonical(a, &sh);
            for (c.depth = 2; c.depth <= 3; c.depth++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    c.in_place = in_place;
                    ck_assert_msg(concrete_run(&c), "%s %s n %d%s depth %d in place %d", a->name, hkt_coll_name[coll], n,
                                  sh.label ? " labelled" : "", c.depth, in_place);
                }
            for (int r = 0; r < n; r++)
                hkt_schedule_free(&s[r]);
        }
}
END_TEST

/* ---- memory that runs out ---------------------------------------------------------------------------------------- */

/* The n-th allocation fails, for every n until there is none left to fail: an error each time, no leak, no crash. */
START_TEST(test_no_memory)
{
    static const int            start[] = {0, 2, 3, 5};
    const struct hkt_algorithm *a       = hkt_algorithms[_i];

    for (int coll = 0; coll < HKT_COLL_SCHEDULED; coll++) {
        const struct hkt_shape sh = {
            .coll = (enum hkt_coll)coll, .rank = 1, .size = 5, .ngroups = 3, .group_start = start};
        struct hkt_verify_result result;
        struct hkt_schedule      s  = {0};
        int                      rc = HKT_ERR_MEMORY;

        if (hkt_algorithm_refuses(a, &sh))
            continue;
        for (long n = 1; rc; n++) {
            ck_assert_int_lt((int)n, 200);
            hkt_alloc_fail_at(n);
            rc = a->build(&s, &sh);
            hkt_alloc_fail_at(0);
            hkt_schedule_free(&s);
            ck_assert_msg(rc == 0 || rc == HKT_ERR_MEMORY, "%s %s: %d", a->name, hkt_coll_name[coll], rc);
        }
        for (long n = 1;; n++) {
            const char *why;

            ck_assert_int_lt((int)n, 2000);
            hkt_alloc_fail_at(n);
            why = hkt_verify(a, &sh, 2, &result);
            hkt_alloc_fail_at(0);
            if (!why)
                break;
            ck_assert_msg(strstr(why, "out of memory") || strstr(why, "sent() says 18446744073709551615"), "%s", why);
        }
    }
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------------ */

int main(void)
{
    Suite   *suite = suite_create("schedule");
    TCase   *tcase = tcase_create("language");
    SRunner *runner;
    int      count = 0, failed;

    while (hkt_algorithms[count])
        count++;
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, test_writing);
    tcase_add_test(tcase, test_too_many_operands);
    tcase_add_test(tcase, test_log);
    tcase_add_test(tcase, test_canonical_tree);
    tcase_add_test(tcase, test_complete);
    tcase_add_loop_test(tcase, test_refusal, 0, (int)(sizeof(refusals) / sizeof(refusals[0])));
    tcase_add_test(tcase, test_chunks_differ);
    tcase_add_test(tcase, test_depth_one);
    tcase_add_test(tcase, test_false_promises);
    tcase_add_test(tcase, test_table);
    tcase_add_test(tcase, test_tree_balance);
    tcase_add_test(tcase, test_refuse);
    tcase_add_loop_test(tcase, test_numbers, 0, count);
    tcase_add_loop_test(tcase, test_no_memory, 0, count);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
