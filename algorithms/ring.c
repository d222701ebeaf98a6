/* ring.c -- neighbours only: every link is used once a round, so it is the best for huge vectors on fabrics that block; latency
 * grows with n. Reduce and broadcast are the open ring, a chain, through which the vector flows in pieces.
 *
 * hkt-verify --print ring all_reduce 4
 *      rank 0                  rank 1                  rank 2                  rank 3
 *   1  IN 0 -> >1              IN 1 -> >2              IN 2 -> >3              IN 3 -> >0
 *   2  <3 + IN 3 -> >1         <0 + IN 0 -> >2         <1 + IN 1 -> >3         <2 + IN 2 -> >0
 *   3  <3 + IN 2 -> >1         <0 + IN 3 -> >2         <1 + IN 0 -> >3         <2 + IN 1 -> >0
 *   4  <3 + IN 1 => OUT 1, >1  <0 + IN 2 => OUT 2, >2  <1 + IN 3 => OUT 3, >3  <2 + IN 0 => OUT 0, >0
 *   5  <3 -> OUT 0, >1         <0 -> OUT 1, >2         <1 -> OUT 2, >3         <2 -> OUT 3, >0
 *   6  <3 -> OUT 3, >1         <0 -> OUT 0, >2         <1 -> OUT 1, >3         <2 -> OUT 2, >0
 *   7  <3 -> OUT 2             <0 -> OUT 3             <1 -> OUT 0             <2 -> OUT 1
 * Chunk c starts at rank c and walks +1. reduce_scatter is 1-4 with chunks renumbered so that chunk r ends at rank r, all_gather
 * is 5-7 after each has sent its own. broadcast: root -> root+1 -> .. in pieces; reduce: root+1 -> root+2 -> .. -> root, each
 * rank folding its own in.
 *
 * Cost of S bytes: reduce_scatter, all_gather (n-1) (alpha + S/n beta), all_reduce both; folding adds (n-1)/n S gamma. Chain of P
 * pieces: (n-2+P) (alpha + S/P beta), folding adds S/P gamma a round. (Patarasuk and Yuan 2009; pipelined chain: any textbook.)
 */
#include "language/algorithm.h"

static bool is_chain(const struct hkt_shape *sh)
{
    return hkt_coll_in(sh->coll, HKT_COLLS_ROOTED);
}

static int pieces(const struct hkt_shape *sh)
{
    return sh->pieces > 0 ? sh->pieces : sh->size;
}

/* Chunk c of the value that comes from `prev`, with my own folded in. */
static void fold(struct hkt_schedule *s, int prev, int c, unsigned flags)
{
    hkt_step(s, flags);
    hkt_from(s, HKT_PEER, prev);
    hkt_from(s, HKT_IN, c);
}

static void broadcast(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    const int n = sh->size, at = hkt_mod(sh->rank - sh->root, n);

    for (int c = 0; c < pieces(sh); c++) {
        hkt_step(s, 0);
        hkt_from(s, at ? HKT_PEER : HKT_IN, at ? hkt_mod(sh->rank - 1, n) : c);
        hkt_to(s, HKT_OUT, c);
        if (at < n - 1)
            hkt_to(s, HKT_PEER, (sh->rank + 1) % n);
    }
}

static void reduce(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    const int n = sh->size, at = hkt_mod(sh->rank - sh->root - 1, n); /* the root is last */

    for (int c = 0; c < pieces(sh); c++) {
        if (at == 0) {
            hkt_copy(s, HKT_IN, c, HKT_PEER, (sh->rank + 1) % n);
            continue;
        }
        fold(s, hkt_mod(sh->rank - 1, n), c, at == n - 1 ? HKT_STEP_FINISH : 0);
        hkt_to(s, at == n - 1 ? HKT_OUT : HKT_PEER, at == n - 1 ? c : (sh->rank + 1) % n);
    }
}

/* The first n - 1 hops of each chunk; the chunk that ends at me is stored in OUT `out`, its step left open for more. */
static void reduce_scatter(struct hkt_schedule *s, const struct hkt_shape *sh, int first, int out)
{
    const int n = sh->size, next = (sh->rank + 1) % n, prev = hkt_mod(sh->rank - 1, n);

    hkt_copy(s, HKT_IN, hkt_mod(first, n), HKT_PEER, next);
    for (int i = 1; i < n - 1; i++) {
        fold(s, prev, hkt_mod(first - i, n), 0);
        hkt_to(s, HKT_PEER, next);
    }
    fold(s, prev, hkt_mod(first + 1, n), HKT_STEP_FINISH);
    hkt_to(s, HKT_OUT, out);
}

/* The last n - 1 hops; the chunk I started with is `own` and has been sent. */
static void all_gather(struct hkt_schedule *s, const struct hkt_shape *sh, int own)
{
    const int n = sh->size;

    for (int i = 1; i < n; i++) {
        hkt_copy(s, HKT_PEER, hkt_mod(sh->rank - 1, n), HKT_OUT, hkt_mod(own - i, n));
        if (i < n - 1)
            hkt_to(s, HKT_PEER, (sh->rank + 1) % n);
    }
}

static int build(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    const int n = sh->size, me = sh->rank;

    if (n == 1)
        return hkt_schedule_alone(s, sh);
    s->chunks = is_chain(sh) ? (uint32_t)pieces(sh) : sh->coll == HKT_COLL_ALL_REDUCE ? (uint32_t)n : 1;
    if (sh->coll == HKT_COLL_BROADCAST) {
        broadcast(s, sh);
    } else if (sh->coll == HKT_COLL_REDUCE) {
        reduce(s, sh);
    } else if (sh->coll == HKT_COLL_REDUCE_SCATTER) {
        reduce_scatter(s, sh, me - 1, 0);
    } else if (sh->coll == HKT_COLL_ALL_REDUCE) {
        reduce_scatter(s, sh, me, (me + 1) % n);
        hkt_to(s, HKT_PEER, (me + 1) % n);
        all_gather(s, sh, me + 1);
    } else {
        hkt_copy(s, HKT_IN, 0, HKT_OUT, me);
        hkt_to(s, HKT_PEER, (me + 1) % n);
        all_gather(s, sh, me);
    }
    return hkt_schedule_end(s);
}

static uint64_t sent(const struct hkt_shape *sh)
{
    const int      last = sh->coll == HKT_COLL_BROADCAST ? hkt_mod(sh->root - 1, sh->size) : sh->root;
    const uint64_t hops = (uint64_t)sh->size - 1;

    if (is_chain(sh))
        return sh->rank == last ? 0 : (uint64_t)pieces(sh);
    return sh->coll == HKT_COLL_ALL_REDUCE ? 2 * hops : hops;
}

static double cost(const struct hkt_shape *sh, double bytes, const struct hkt_link *l)
{
    const int    n = sh->size, hops = sh->coll == HKT_COLL_ALL_REDUCE ? 2 * (n - 1) : n - 1;
    const double gamma = hkt_coll_in(sh->coll, HKT_COLLS_REDUCING) ? l->gamma : 0;

    if (n == 1)
        return 0;
    if (is_chain(sh))
        return (n - 2 + pieces(sh)) * (l->alpha + bytes / pieces(sh) * (l->beta + gamma));
    return hops * (l->alpha + bytes / n * l->beta) + (n - 1) * bytes / n * gamma;
}

const struct hkt_algorithm hkt_algorithm_ring = {
    .name  = "ring",
    .desc  = "neighbours only: least traffic per link, latency grows with n",
    .colls = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(REDUCE_SCATTER) | HKT_COLL_BIT(ALL_GATHER) | HKT_COLL_BIT(REDUCE) |
             HKT_COLL_BIT(BROADCAST),
    .cost  = cost,
    .sent  = sent,
    .build = build,
};
