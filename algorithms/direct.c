/* direct.c -- every rank talks to every other: the owner of a chunk reads all n inputs, folds them in one step and hands the
 * result to whoever wants it ("two-shot"). Over memory that can be mapped this is one pass: n loads, n stores, the floor.
 *
 * hkt-verify --print direct all_reduce 4
 * rank 0
 *     1  IN 1 -> >1
 *     2  IN 2 -> >2
 *     3  IN 3 -> >3
 *     4  IN 0 + <1 + <2 + <3 => OUT 0, >1, >2, >3
 *     5  <1 -> OUT 1
 *     6  <2 -> OUT 2
 *     7  <3 -> OUT 3
 * rank 1
 *     1  IN 2 -> >2
 *     2  IN 3 -> >3
 *     3  IN 0 -> >0
 *     4  <0 + IN 1 + <2 + <3 => OUT 1, >2, >3, >0
 *     5  <2 -> OUT 2
 *     6  <3 -> OUT 3
 *     7  <0 -> OUT 0
 * The other ranks likewise. The other collectives are parts of it: deal (1-3), one step in the middle (4), collect (5-7). Peers rotate
 * by rank so that no two ranks start at the same one; sources stay in the order of ranks, which makes the sum the canonical tree.
 *
 * Cost of S bytes: each of deal, spread and collect is one hop, alpha + (n-1) gap + (n-1)/n S beta (broadcast, whose root sends all
 * pieces to all: P (n-1) gap and (n-1) S beta); the fold is (n-1)/n S gamma. All-reduce: 2 hops and the fold. (Thakur, Rabenseifner and Gropp 2005.)
 */
#include "language/algorithm.h"

enum {
    DEAL    = HKT_COLLS_REDUCING | HKT_COLL_BIT(ALL_TO_ALL) | HKT_COLL_BIT(SCATTER), /* IN c goes to rank c */
    COLLECT = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(REDUCE) | HKT_COLL_BIT(ALL_GATHER) | HKT_COLL_BIT(GATHER) |
              HKT_COLL_BIT(ALL_TO_ALL), /* what rank c sends is OUT c */
    SPREAD = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(ALL_GATHER) | HKT_COLL_BIT(BROADCAST), /* my value goes to all */
    FROM_ROOT = HKT_COLL_BIT(BROADCAST) | HKT_COLL_BIT(SCATTER),
    TO_ROOT   = HKT_COLL_BIT(REDUCE) | HKT_COLL_BIT(GATHER)
};

static bool deals(const struct hkt_shape *sh)
{
    return hkt_coll_in(sh->coll, DEAL) && (!hkt_coll_in(sh->coll, FROM_ROOT) || sh->rank == sh->root);
}

static bool collects(const struct hkt_shape *sh)
{
    return hkt_coll_in(sh->coll, COLLECT) && (!hkt_coll_in(sh->coll, TO_ROOT) || sh->rank == sh->root);
}

static bool spreads(const struct hkt_shape *sh)
{
    return hkt_coll_in(sh->coll, SPREAD) && (!hkt_coll_in(sh->coll, FROM_ROOT) || sh->rank == sh->root);
}

/* Broadcast in as many pieces as there are ranks, so that over memory, where either side can copy a piece, the root can take its share. */
enum { PIECES_MOST = 8 };

static int pieces(const struct hkt_shape *sh)
{
    return sh->coll != HKT_COLL_BROADCAST ? 1 : sh->size < PIECES_MOST ? sh->size : PIECES_MOST;
}

static void middle(struct hkt_schedule *s, const struct hkt_shape *sh, int piece)
{
    const bool reducing = hkt_coll_in(sh->coll, HKT_COLLS_REDUCING);
    const bool at_root  = sh->rank == sh->root;

    hkt_step(s, reducing ? HKT_STEP_FINISH : 0);
    if (reducing) {
        for (int r = 0; r < sh->size; r++)
            hkt_from(s, r == sh->rank ? HKT_IN : HKT_PEER, r);
    } else if (hkt_coll_in(sh->coll, FROM_ROOT) && !at_root) {
        hkt_from(s, HKT_PEER, sh->root);
    } else {
        hkt_from(s, HKT_IN, deals(sh) ? sh->rank : piece);
    }

    if (hkt_coll_in(sh->coll, TO_ROOT) && !at_root)
        hkt_to(s, HKT_PEER, sh->root);
    else
        hkt_to(s, HKT_OUT, hkt_coll_in(sh->coll, COLLECT) ? sh->rank : piece);
    for (int i = 1; i < sh->size && spreads(sh); i++)
        hkt_to(s, HKT_PEER, (sh->rank + i) % sh->size);
}

static int build(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    const int n = sh->size, me = sh->rank;

    s->chunks = (uint32_t)(sh->coll == HKT_COLL_ALL_REDUCE || sh->coll == HKT_COLL_REDUCE ? n : pieces(sh));
    for (int i = 1; i < n && deals(sh); i++)
        hkt_copy(s, HKT_IN, (me + i) % n, HKT_PEER, (me + i) % n);
    for (int piece = 0; piece < pieces(sh); piece++)
        middle(s, sh, piece);
    for (int i = 1; i < n && collects(sh); i++)
        hkt_copy(s, HKT_PEER, (me + i) % n, HKT_OUT, (me + i) % n);
    return hkt_schedule_end(s);
}

static uint64_t sent(const struct hkt_shape *sh)
{
    const uint64_t others = (uint64_t)sh->size - 1;

    return (deals(sh) ? others : 0) + (spreads(sh) ? others * (uint64_t)pieces(sh) : 0) +
           (hkt_coll_in(sh->coll, TO_ROOT) && sh->rank != sh->root ? 1 : 0);
}

static double cost(const struct hkt_shape *sh, double bytes, const struct hkt_link *l)
{
    const double others = sh->size - 1, part = others / sh->size * bytes;
    const int    hops = sh->coll == HKT_COLL_ALL_REDUCE || sh->coll == HKT_COLL_REDUCE ? 2 : 1;
    const double hop  = l->alpha + others * pieces(sh) * l->gap + (sh->coll == HKT_COLL_BROADCAST ? others * bytes : part) * l->beta;

    return sh->size == 1 ? 0 : hops * hop + (hkt_coll_in(sh->coll, HKT_COLLS_REDUCING) ? part * l->gamma : 0);
}

const struct hkt_algorithm hkt_algorithm_direct = {
    .name      = "direct",
    .desc      = "owner of a chunk reads n inputs, folds once, delivers: two hops, floor traffic over mapped memory",
    .colls     = (1u << HKT_COLL_SCHEDULED) - 1,
    .canonical = HKT_COLLS_REDUCING,
    .refuse    = hkt_refuse_wide,
    .cost      = cost,
    .sent      = sent,
    .build     = build,
};
