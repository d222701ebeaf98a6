/* oneshot.c -- whole inputs in one hop: everyone (all_reduce) or the root (reduce) folds all n of them itself.
 *
 * hkt-verify --print oneshot all_reduce 4
 * rank 0
 *     1  IN 0 -> >1, >2, >3
 *     2  IN 0 + <1 + <2 + <3 => OUT 0
 * rank 1
 *     1  IN 0 -> >2, >3, >0
 *     2  <0 + IN 0 + <2 + <3 => OUT 0
 * The other ranks likewise. reduce: the first step goes to the root only, which alone does the second.
 *
 * Cost of S bytes: alpha + (n-1) (gap + S beta + S gamma): one hop, so the fastest for small S; the work grows with n.
 */
#include "language/algorithm.h"

static bool folds(const struct hkt_shape *sh)
{
    return sh->coll == HKT_COLL_ALL_REDUCE || sh->rank == sh->root;
}

static int build(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    const int n = sh->size, me = sh->rank;

    s->chunks = 1;
    if (sh->coll == HKT_COLL_REDUCE && me != sh->root) {
        hkt_copy(s, HKT_IN, 0, HKT_PEER, sh->root);
    } else if (sh->coll == HKT_COLL_ALL_REDUCE && n > 1) {
        hkt_step(s, 0);
        hkt_from(s, HKT_IN, 0);
        for (int i = 1; i < n; i++)
            hkt_to(s, HKT_PEER, (me + i) % n);
    }
    if (folds(sh)) {
        hkt_step(s, HKT_STEP_FINISH);
        for (int r = 0; r < n; r++)
            hkt_from(s, r == me ? HKT_IN : HKT_PEER, r == me ? 0 : r);
        hkt_to(s, HKT_OUT, 0);
    }
    return hkt_schedule_end(s);
}

static uint64_t sent(const struct hkt_shape *sh)
{
    return sh->coll == HKT_COLL_ALL_REDUCE ? (uint64_t)sh->size - 1 : sh->rank != sh->root;
}

static double cost(const struct hkt_shape *sh, double bytes, const struct hkt_link *l)
{
    return sh->size == 1 ? 0 : l->alpha + (sh->size - 1) * (l->gap + bytes * (l->beta + l->gamma));
}

const struct hkt_algorithm hkt_algorithm_oneshot = {
    .name      = "oneshot",
    .desc      = "every input goes whole to whoever folds: one hop, for small vectors",
    .colls     = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(REDUCE),
    .canonical = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(REDUCE),
    .refuse    = hkt_refuse_wide,
    .cost      = cost,
    .sent      = sent,
    .build     = build,
};
