/* verify_sweep.c -- which shapes hkt-verify proves. What an algorithm looks at besides rank, size and root is found by asking it, so a
 * new algorithm is swept over all its variants without a line here. */
#include "verify.h"

#include "language/order.h"
#include "language/verify.h"

#include <stdio.h>
#include <time.h>

enum { ENOUGH = 5 /* wrong shapes: the sweep ends */, FULL = 64, ALL_GROUPINGS = 6, ALL_PAIRS = 8, LABELLED = 7, MEDIUM = 256 };

struct sweep {
    const struct hkt_algorithm *a;
    const struct verify_range  *range;
    bool                        radix, pieces, groups; /* what it looks at */
    long                        shapes, wrong, canonical, pair;
    uint64_t                    steps;
};

/* ---- what an algorithm looks at ---------------------------------------------------------------------------------- */

/* Radix 1 is refused by whoever reads it. */
static bool looks_at_radix(const struct hkt_algorithm *a, enum hkt_coll coll)
{
    const struct hkt_shape sh = {.coll = coll, .size = 4, .radix = 1};

    return hkt_algorithm_refuses(a, &sh) && !hkt_algorithm_refuses(a, &(struct hkt_shape){.coll = coll, .size = 4});
}

static uint32_t chunks(const struct hkt_algorithm *a, enum hkt_coll coll, int pieces)
{
    const struct hkt_shape sh = {.coll = coll, .size = 4, .pieces = pieces};
    struct hkt_schedule    s  = {0};
    const uint32_t         n  = hkt_schedule_build(&s, a, &sh) < 0 ? 0 : s.chunks;

    hkt_schedule_free(&s);
    return n;
}

static bool looks_at_groups(const struct hkt_algorithm *a, enum hkt_coll coll)
{
    static const int       start[] = {0, 2, 4};
    const struct hkt_shape without = {.coll = coll, .size = 4};
    const struct hkt_shape with    = {.coll = coll, .size = 4, .ngroups = 2, .group_start = start};

    return hkt_algorithm_refuses(a, &without) && !hkt_algorithm_refuses(a, &with);
}

/* ---- one shape --------------------------------------------------------------------------------------------------- */

static void complain(const struct sweep *w, const struct hkt_shape *sh, int depth, const char *why)
{
    printf("WRONG %s %s n %d root %d depth %d", w->a->name, hkt_coll_name[sh->coll], sh->size, sh->root, depth);
    if (sh->radix)
        printf(" radix %d", sh->radix);
    if (sh->pieces)
        printf(" pieces %d", sh->pieces);
    if (sh->ngroups) {
        printf(" inner %s outer %s groups", sh->inner, sh->outer);
        for (int q = 0; q < sh->ngroups; q++)
            printf("%c%d", q ? ',' : ' ', sh->group_start[q + 1] - sh->group_start[q]);
    }
    for (int r = 0; sh->label && r < sh->size; r++)
        printf("%s%d", r ? "," : " labels ", sh->label[r]);
    printf(": %s\n", why);
}

static bool prove_depth(struct sweep *w, const struct hkt_shape *sh, int depth)
{
    struct hkt_verify_result result;
    const char              *why = depth == HKT_ORDER_DEPTH ? hkt_verify_ordered(w->a, sh, &result) : hkt_verify(w->a, sh, depth, &result);

    w->shapes++;
    w->steps += result.steps;
    w->canonical += result.canonical || sh->label; /* with labels none is promised */
    if (why) {
        complain(w, sh, depth, why);
        w->wrong++;
    }
    return !why;
}

/* The same with ranks out of their order, as on hosts that take turns: every third place, then those left out; and backwards. */
static void prove_labelled(struct sweep *w, struct hkt_shape sh)
{
    int label[LABELLED], n = 0;

    for (int first = 0; first < 3; first++)
        for (int r = first; r < sh.size; r += 3)
            label[n++] = r;
    sh.label = label;
    prove_depth(w, &sh, HKT_FIFO_DEPTH);
    for (int r = 0; r < sh.size; r++)
        label[r] = sh.size - 1 - r;
    if (prove_depth(w, &sh, HKT_FIFO_DEPTH))
        prove_depth(w, &sh, HKT_ORDER_DEPTH);
}

static void prove(struct sweep *w, const struct hkt_shape *sh)
{
    bool right = true;

    if (w->wrong >= ENOUGH || hkt_algorithm_refuses(w->a, sh))
        return;
    for (int depth = HKT_FIFO_DEPTH; depth <= HKT_FIFO_DEPTH + 1; depth++)
        right &= prove_depth(w, sh, depth);
    if (right) /* only what is right can be put in another order */
        prove_depth(w, sh, HKT_ORDER_DEPTH);
    if (sh->size <= LABELLED)
        prove_labelled(w, *sh);
}

static void prove_roots(struct sweep *w, struct hkt_shape sh, bool all)
{
    const int choice[] = {0, 1, sh.size / 2, sh.size - 1};

    if (!hkt_coll_in(sh.coll, HKT_COLLS_ROOTED))
        prove(w, &sh);
    for (int i = 0; i < (all ? sh.size : 4) && hkt_coll_in(sh.coll, HKT_COLLS_ROOTED); i++) {
        sh.root = all ? i : choice[i];
        prove(w, &sh);
    }
}

/* ---- variants of one size ---------------------------------------------------------------------------------------- */

static void prove_variants(struct sweep *w, struct hkt_shape sh)
{
    const bool full       = sh.size <= FULL;
    const int  max_radix  = !w->radix ? 0 : full ? 9 : sh.size <= MEDIUM ? 3 : 0;
    const int  max_pieces = w->pieces && full ? 4 : 0;

    for (int radix = 0; radix <= max_radix; radix++)
        for (int pieces = 0; pieces <= max_pieces; pieces++) {
            if (radix == 1)
                continue;
            sh.radix  = radix;
            sh.pieces = pieces;
            prove_roots(w, sh, full);
        }
}

/* Groups of the sizes of one pattern, again and again until n ranks are in; at least two groups. */
static int group_by_pattern(int n, const int *pattern, int *start)
{
    int groups = 0;

    for (int i = 0; start[groups] < n; i++) {
        const int size = pattern[i] ? pattern[i] : pattern[i = 0];

        start[groups + 1] = start[groups] + size < n ? start[groups] + size : n;
        groups++;
    }
    return groups;
}

/* Two algorithms composed; of few ranks also with other radices and pieces, which the ones composed may look at. */
static void prove_pair(struct sweep *w, struct hkt_shape sh)
{
    static const int variant[][2] = {{0, 0}, {2, 1}, {3, 3}}; /* radix, pieces */

    for (size_t i = 0; i < (sh.size <= ALL_GROUPINGS ? sizeof(variant) / sizeof(variant[0]) : 1); i++) {
        sh.radix  = variant[i][0];
        sh.pieces = variant[i][1];
        prove_roots(w, sh, sh.size <= ALL_PAIRS);
    }
}

/* Pairs of algorithms that compose, all at small sizes; at larger ones each `stride`-th, another one at each call. */
static void prove_pairs(struct sweep *w, struct hkt_shape sh)
{
    const int stride = sh.size <= ALL_PAIRS ? 1 : sh.size <= FULL ? 7 : sh.size <= MEDIUM ? 13 : 19;

    for (const struct hkt_algorithm *const *inner = hkt_algorithms; *inner; inner++)
        for (const struct hkt_algorithm *const *outer = hkt_algorithms; *outer; outer++) {
            sh.inner = (*inner)->name;
            sh.outer = (*outer)->name;
            if (!hkt_algorithm_refuses(w->a, &sh) && w->pair++ % stride == 0)
                prove_pair(w, sh);
        }
}

/* Every way to group few ranks; patterns for more. */
static void prove_groupings(struct sweep *w, struct hkt_shape sh)
{
    static const int pattern[][6] = {{8}, {5, 1, 2}, {7, 8}, {2}, {3}, {4}, {1}, {1, 2, 3, 4, 5}};
    const size_t     patterns     = sh.size <= FULL ? sizeof(pattern) / sizeof(pattern[0]) : sh.size <= MEDIUM ? 3 : 1;
    int              start[VERIFY_MAX_RANKS + 1];

    start[0]       = 0;
    sh.group_start = start;
    for (unsigned borders = 1; sh.size <= ALL_GROUPINGS && borders < 1u << (sh.size - 1); borders++) {
        sh.ngroups = 0;
        for (int r = 1; r <= sh.size; r++)
            if (r == sh.size || borders >> (r - 1) & 1)
                start[++sh.ngroups] = r;
        prove_pairs(w, sh);
    }
    for (size_t i = 0; sh.size > ALL_GROUPINGS && i < patterns; i++) {
        sh.ngroups = group_by_pattern(sh.size, pattern[i], start);
        prove_pairs(w, sh);
    }
    for (int i = 0; sh.size > ALL_GROUPINGS && sh.size <= FULL && i < 3; i++) {
        const int first[] = {1, sh.size - 1, sh.size / 2};

        sh.ngroups = group_by_pattern(sh.size, (int[]){first[i], sh.size - first[i], 0}, start);
        prove_pairs(w, sh);
    }
}

static void prove_size(struct sweep *w, enum hkt_coll coll, int n)
{
    const struct hkt_shape sh = {.coll = coll, .size = n};

    if (w->groups)
        prove_groupings(w, sh);
    else
        prove_variants(w, sh);
}

/* How many of the sums were the canonical tree. */
static const char *canonical_word(const struct sweep *w, enum hkt_coll coll)
{
    if (!hkt_coll_in(coll, HKT_COLLS_REDUCING))
        return "-";
    return w->canonical == w->shapes ? "all" : w->canonical ? "some" : "none";
}

long verify_sweep(const struct hkt_algorithm *a, enum hkt_coll coll, const struct verify_range *range, long *proven)
{
    static const int large[] = {65, 100, 127, 128, 255, 256, 500, 1000, 1024};
    const clock_t    start   = clock();
    struct sweep     w       = {.a = a, .range = range};

    w.radix  = looks_at_radix(a, coll);
    w.groups = looks_at_groups(a, coll);
    w.pieces = !w.groups && chunks(a, coll, 1) != chunks(a, coll, 3);
    for (int n = 1; n <= range->max; n++)
        prove_size(&w, coll, n);
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]) && range->large; i++)
        if (large[i] > range->max)
            prove_size(&w, coll, large[i]);
    printf("%-13s %-15s %8ld shapes %12llu steps  canonical %-4s %7.2f s%s\n", a->name, hkt_coll_name[coll], w.shapes,
           (unsigned long long)w.steps, canonical_word(&w, coll), (double)(clock() - start) / CLOCKS_PER_SEC,
           w.wrong ? "  WRONG" : "");
    fflush(stdout);
    *proven += w.shapes - w.wrong;
    return w.wrong;
}
