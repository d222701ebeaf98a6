/* pairwise.c -- all_to_all in n-1 rounds of one message out and one in, so that no rank is ever the target of two.
 *
 * hkt-verify --print pairwise all_to_all 4
 *      rank 0         rank 1         rank 2         rank 3
 *   1  IN 0 -> OUT 0  IN 1 -> OUT 1  IN 2 -> OUT 2  IN 3 -> OUT 3
 *   2  IN 1 -> >1     IN 2 -> >2     IN 3 -> >3     IN 0 -> >0
 *   3  <3 -> OUT 3    <0 -> OUT 0    <1 -> OUT 1    <2 -> OUT 2
 *   4  IN 2 -> >2     IN 3 -> >3     IN 0 -> >0     IN 1 -> >1
 *   5  <2 -> OUT 2    <3 -> OUT 3    <0 -> OUT 0    <1 -> OUT 1
 *   6  IN 3 -> >3     IN 0 -> >0     IN 1 -> >1     IN 2 -> >2
 *   7  <1 -> OUT 1    <2 -> OUT 2    <3 -> OUT 3    <0 -> OUT 0
 * `direct` sends all first: fewer waits, but n-1 messages may stand before one rank.
 *
 * Cost of S bytes (n blocks): (n-1) (alpha + S/n beta). (Thakur, Rabenseifner and Gropp 2005.)
 */
#include "language/algorithm.h"

static int build(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    const int n = sh->size, me = sh->rank;

    s->chunks = 1;
    hkt_copy(s, HKT_IN, me, HKT_OUT, me);
    for (int i = 1; i < n; i++) {
        const int to = (me + i) % n, from = hkt_mod(me - i, n);

        hkt_copy(s, HKT_IN, to, HKT_PEER, to);
        hkt_copy(s, HKT_PEER, from, HKT_OUT, from);
    }
    return hkt_schedule_end(s);
}

static uint64_t sent(const struct hkt_shape *sh)
{
    return (uint64_t)sh->size - 1;
}

static double cost(const struct hkt_shape *sh, double bytes, const struct hkt_link *l)
{
    return (sh->size - 1) * (l->alpha + bytes / sh->size * l->beta);
}

const struct hkt_algorithm hkt_algorithm_pairwise = {
    .name  = "pairwise",
    .desc  = "all_to_all by rotating pairs: one message at a time to and from each rank",
    .colls = HKT_COLL_BIT(ALL_TO_ALL),
    .cost  = cost,
    .sent  = sent,
    .build = build,
};
