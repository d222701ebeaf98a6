/* circulant.c -- reduce_scatter and all_gather on a circulant graph: ceil(log2 n) rounds and n-1 blocks for every n, not only powers
 * of two. All-reduce is the one after the other.
 *
 * The skips halve, rounding up: s_0 = n, s_k+1 = ceil(s_k / 2), until 1. R_i is my sum for rank me+i, at first my IN for it. Round k
 * sends R_i, s_k+1 <= i < s_k, to rank me + s_k+1 and folds what comes from me - s_k+1 into R_0, R_1, ..; R_0 ends complete. The
 * all_gather runs the rounds backwards: what was sent is received.
 *
 * hkt-verify --print circulant all_reduce 4
 *      rank 0                   rank 1                   rank 2                   rank 3
 *   1  IN 2 -> >2               IN 3 -> >3               IN 0 -> >0               IN 1 -> >1
 *   2  <2 + IN 0 -> TMP 0       <3 + IN 1 -> TMP 0       <0 + IN 2 -> TMP 0       <1 + IN 3 -> TMP 0
 *   3  IN 3 -> >2               IN 0 -> >3               IN 1 -> >0               IN 2 -> >1
 *   4  <2 + IN 1 -> TMP 1       <3 + IN 2 -> TMP 1       <0 + IN 3 -> TMP 1       <1 + IN 0 -> TMP 1
 *   5  TMP 1 -> >1              TMP 1 -> >2              TMP 1 -> >3              TMP 1 -> >0
 *   6  <3 + TMP 0 => OUT 0, >3  <0 + TMP 0 => OUT 1, >0  <1 + TMP 0 => OUT 2, >1  <2 + TMP 0 => OUT 3, >2
 *   7  <1 -> OUT 1              <2 -> OUT 2              <3 -> OUT 3              <0 -> OUT 0
 *   8  OUT 0 -> >2              OUT 1 -> >3              OUT 2 -> >0              OUT 3 -> >1
 *   9  <2 -> OUT 2              <3 -> OUT 3              <0 -> OUT 0              <1 -> OUT 1
 *  10  OUT 1 -> >2              OUT 2 -> >3              OUT 3 -> >0              OUT 0 -> >1
 *  11  <2 -> OUT 3              <3 -> OUT 0              <0 -> OUT 1              <1 -> OUT 2
 * Rows 1-4 are the round of skip 2, 5 and 6 that of skip 1 (6 is also the first of the all_gather), 7 and 8-11 the way back.
 *
 * Cost of S bytes: ceil(log2 n) alpha + (n-1) gap + (n-1)/n S beta each way; folding (n-1)/n S gamma.
 * (J. L. Traeff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", 2024.)
 */
#include "language/algorithm.h"

static int half(int skip)
{
    return (skip + 1) / 2;
}

/* R_i before the round with `skip` ranks still in reach. Ids from n/2 on are never folded into. */
static void from_sum(struct hkt_schedule *s, const struct hkt_shape *sh, int skip, int i)
{
    if (skip < sh->size && i < sh->size / 2)
        hkt_from(s, HKT_TMP, i);
    else
        hkt_from(s, HKT_IN, (sh->rank + i) % sh->size);
}

static void reduce_scatter(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    const int  n = sh->size, me = sh->rank;
    const bool all = sh->coll == HKT_COLL_ALL_REDUCE;

    for (int skip = n; skip > 1; skip = half(skip)) {
        const int next = half(skip), last = next == 1;

        for (int i = 0; i < skip - next; i++) {
            hkt_step(s, 0);
            from_sum(s, sh, skip, next + i);
            hkt_to(s, HKT_PEER, (me + next) % n);

            hkt_step(s, last ? HKT_STEP_FINISH : 0);
            hkt_from(s, HKT_PEER, hkt_mod(me - next, n));
            from_sum(s, sh, skip, i);
            hkt_to(s, last ? HKT_OUT : HKT_TMP, !last ? i : all ? me : 0);
        }
    }
}

/* The blocks me .. me + width - 1 are in OUT; block me has been sent already for the first round. */
static void all_gather(struct hkt_schedule *s, const struct hkt_shape *sh, int width)
{
    const int n = sh->size, me = sh->rank;
    int       skip = n;

    while (half(skip) > width)
        skip = half(skip);
    for (int i = 0; i < skip - width; i++) {
        if (width > 1)
            hkt_copy(s, HKT_OUT, (me + i) % n, HKT_PEER, hkt_mod(me - width, n));
        hkt_copy(s, HKT_PEER, (me + width) % n, HKT_OUT, (me + width + i) % n);
    }
    if (skip < n)
        all_gather(s, sh, skip);
}

static int build(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    const int n = sh->size, me = sh->rank;

    if (n == 1)
        return hkt_schedule_alone(s, sh);
    s->chunks = sh->coll == HKT_COLL_ALL_REDUCE ? (uint32_t)n : 1;
    if (sh->coll == HKT_COLL_ALL_GATHER)
        hkt_copy(s, HKT_IN, 0, HKT_OUT, me);
    else
        reduce_scatter(s, sh);
    if (sh->coll != HKT_COLL_REDUCE_SCATTER) {
        hkt_to(s, HKT_PEER, hkt_mod(me - 1, n)); /* in the step that stored OUT me */
        all_gather(s, sh, 1);
    }
    return hkt_schedule_end(s);
}

static uint64_t sent(const struct hkt_shape *sh)
{
    return (sh->coll == HKT_COLL_ALL_REDUCE ? 2 : 1) * ((uint64_t)sh->size - 1);
}

static double cost(const struct hkt_shape *sh, double bytes, const struct hkt_link *l)
{
    const double others = sh->size - 1, part = others / sh->size * bytes;
    const double way = hkt_log_ceil(sh->size, 2) * l->alpha + others * l->gap + part * l->beta;

    return (sh->coll == HKT_COLL_ALL_REDUCE ? 2 : 1) * way + (sh->coll == HKT_COLL_ALL_GATHER ? 0 : part * l->gamma);
}

const struct hkt_algorithm hkt_algorithm_circulant = {
    .name  = "circulant",
    .desc  = "circulant graph: logarithmic rounds and least bytes for every n",
    .colls = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(REDUCE_SCATTER) | HKT_COLL_BIT(ALL_GATHER),
    .cost  = cost,
    .sent  = sent,
    .build = build,
};
