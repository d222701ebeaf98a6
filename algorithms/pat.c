/* pat.c -- reduce_scatter and all_gather on one binomial tree a block, all ranks walking their n trees in one order, depth first: every n,
 * the far links carry least, and a rank never holds more than one message from each of its ceil(log2 n) neighbours, no scratch besides.
 *
 * Seen from block b, rank b + d stands at offset d. Its parent is d without its lowest set bit, its children are d + 1, d + 2, d + 4 .. below
 * that bit and below n. reduce_scatter walks d from n-1 down to 0: fold what the children sent into my IN, send it to the parent; at offset 0
 * the block is mine. all_gather walks the same trees from 0 up: take the block from the parent, hand it to the children, the farthest first.
 * A link of length 2^i is used by one offset of every 2^(i+1).
 *
 * hkt-verify --print pat reduce_scatter 4
 *      rank 0                   rank 1                   rank 2                   rank 3
 *   1  IN 1 -> >3               IN 2 -> >0               IN 3 -> >1               IN 0 -> >2
 *   2  IN 2 + <1 -> >2          IN 3 + <2 -> >3          IN 0 + <3 -> >0          IN 1 + <0 -> >1
 *   3  IN 3 -> >3               IN 0 -> >0               IN 1 -> >1               IN 2 -> >2
 *   4  IN 0 + <1 + <2 => OUT 0  IN 1 + <2 + <3 => OUT 0  IN 2 + <3 + <0 => OUT 0  IN 3 + <0 + <1 => OUT 0
 * hkt-verify --print pat all_gather 4
 *      rank 0                 rank 1                 rank 2                 rank 3
 *   1  IN 0 -> OUT 0, >2, >1  IN 0 -> OUT 1, >3, >2  IN 0 -> OUT 2, >0, >3  IN 0 -> OUT 3, >1, >0
 *   2  <3 -> OUT 3            <0 -> OUT 0            <1 -> OUT 1            <2 -> OUT 2
 *   3  <2 -> OUT 2, >1        <3 -> OUT 3, >2        <0 -> OUT 0, >3        <1 -> OUT 1, >0
 *   4  <3 -> OUT 1            <0 -> OUT 2            <1 -> OUT 3            <2 -> OUT 0
 *
 * Cost of S bytes each way: (n/2 + log2 n) alpha + S/n beta a message, since offsets come one after the other and two of them share a
 * latency; folding (n-1)/n S gamma. (The parallel aggregated trees of NCCL 2.23, without aggregation: S. Jeaugey 2025, arXiv 2506.20252.)
 */
#include "language/algorithm.h"

/* 1, 2, 4 .. below the lowest set bit of d: how far the children stand, cut at the end. Offset 0 has all. */
static bool has_child(const struct hkt_shape *sh, int d, int64_t far)
{
    return (d == 0 || far < (d & -d)) && d + far < sh->size;
}

static void reduce_scatter(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    const int n = sh->size, me = sh->rank;

    for (int d = n - 1; d >= 0; d--) {
        hkt_step(s, d == 0 ? HKT_STEP_FINISH : 0);
        hkt_from(s, HKT_IN, hkt_mod(me - d, n));
        for (int64_t far = 1; has_child(sh, d, far); far *= 2)
            hkt_from(s, HKT_PEER, (int)((me + far) % n));
        if (d)
            hkt_to(s, HKT_PEER, hkt_mod(me - (d & -d), n));
        else
            hkt_to(s, HKT_OUT, sh->coll == HKT_COLL_ALL_REDUCE ? me : 0);
    }
}

/* The step that stores OUT me is open. */
static void all_gather(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    const int n = sh->size, me = sh->rank;

    for (int d = 0; d < n; d++) {
        int64_t far = 1;

        if (d)
            hkt_copy(s, HKT_PEER, hkt_mod(me - (d & -d), n), HKT_OUT, hkt_mod(me - d, n));
        while (has_child(sh, d, far))
            far *= 2;
        while (far /= 2)
            hkt_to(s, HKT_PEER, (int)((me + far) % n));
    }
}

static int build(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    if (sh->size == 1)
        return hkt_schedule_alone(s, sh);
    s->chunks = sh->coll == HKT_COLL_ALL_REDUCE ? (uint32_t)sh->size : 1;
    if (sh->coll == HKT_COLL_ALL_GATHER)
        hkt_copy(s, HKT_IN, 0, HKT_OUT, sh->rank);
    else
        reduce_scatter(s, sh);
    if (sh->coll != HKT_COLL_REDUCE_SCATTER)
        all_gather(s, sh);
    return hkt_schedule_end(s);
}

static uint64_t sent(const struct hkt_shape *sh)
{
    return (sh->coll == HKT_COLL_ALL_REDUCE ? 2 : 1) * ((uint64_t)sh->size - 1);
}

static double cost(const struct hkt_shape *sh, double bytes, const struct hkt_link *l)
{
    const int    n   = sh->size;
    const double way = (n / 2 + hkt_log_ceil(n, 2)) * l->alpha + (n - 1) * (l->gap + bytes / n * l->beta);

    if (n == 1)
        return 0;
    return (sh->coll == HKT_COLL_ALL_REDUCE ? 2 : 1) * way + (sh->coll == HKT_COLL_ALL_GATHER ? 0 : (n - 1) * bytes / n * l->gamma);
}

const struct hkt_algorithm hkt_algorithm_pat = {
    .name  = "pat",
    .desc  = "a binomial tree for each block, walked depth first: any n, no scratch, far links carry least",
    .colls = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(REDUCE_SCATTER) | HKT_COLL_BIT(ALL_GATHER),
    .cost  = cost,
    .sent  = sent,
    .build = build,
};
