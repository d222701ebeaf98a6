/* bruck.c -- dissemination of radix k (default 2): ceil(log_k n) rounds for every n; blocks travel in company and may be forwarded.
 *
 * all_gather: after rounds of width 1, k, k^2 .. a rank has the blocks me .. me+width-1; each round it takes, from the ranks
 * me + width, me + 2 width .. me + (k-1) width, what they have. all_to_all: the block for the rank d places on travels by the
 * digits of d in base k, lowest first; in between it waits in TMP d of whoever holds it.
 *
 * hkt-verify --print bruck all_gather 4
 *      rank 0             rank 1             rank 2             rank 3
 *   1  IN 0 -> OUT 0, >3  IN 0 -> OUT 1, >0  IN 0 -> OUT 2, >1  IN 0 -> OUT 3, >2
 *   2  <1 -> OUT 1        <2 -> OUT 2        <3 -> OUT 3        <0 -> OUT 0
 *   3  OUT 0 -> >2        OUT 1 -> >3        OUT 2 -> >0        OUT 3 -> >1
 *   4  <2 -> OUT 2        <3 -> OUT 3        <0 -> OUT 0        <1 -> OUT 1
 *   5  OUT 1 -> >2        OUT 2 -> >3        OUT 3 -> >0        OUT 0 -> >1
 *   6  <2 -> OUT 3        <3 -> OUT 0        <0 -> OUT 1        <1 -> OUT 2
 * hkt-verify --print bruck all_to_all 4
 *      rank 0         rank 1         rank 2         rank 3
 *   1  IN 0 -> OUT 0  IN 1 -> OUT 1  IN 2 -> OUT 2  IN 3 -> OUT 3
 *   2  IN 1 -> >1     IN 2 -> >2     IN 3 -> >3     IN 0 -> >0
 *   3  <3 -> OUT 3    <0 -> OUT 0    <1 -> OUT 1    <2 -> OUT 2
 *   4  IN 3 -> >1     IN 0 -> >2     IN 1 -> >3     IN 2 -> >0
 *   5  <3 -> TMP 3    <0 -> TMP 3    <1 -> TMP 3    <2 -> TMP 3
 *   6  IN 2 -> >2     IN 3 -> >3     IN 0 -> >0     IN 1 -> >1
 *   7  <2 -> OUT 2    <3 -> OUT 3    <0 -> OUT 0    <1 -> OUT 1
 *   8  TMP 3 -> >2    TMP 3 -> >3    TMP 3 -> >0    TMP 3 -> >1
 *   9  <2 -> OUT 1    <3 -> OUT 2    <0 -> OUT 3    <1 -> OUT 0
 *
 * Cost of S bytes (n blocks): ceil(log_k n) alpha + m (gap + S/n beta), m = n-1 blocks for all_gather, about
 * (1 - 1/k) n ceil(log_k n) for all_to_all. (Bruck, Ho, Kipnis, Upfal and Weathersby 1997.)
 */
#include "language/algorithm.h"

static int radix(const struct hkt_shape *sh)
{
    return sh->radix ? sh->radix : 2;
}

static void all_gather(struct hkt_schedule *s, const struct hkt_shape *sh, int64_t width)
{
    const int n = sh->size, me = sh->rank;

    for (int64_t i = 0; i < width && i + width < n; i++) {
        hkt_step(s, 0);
        if (width == 1) {
            hkt_from(s, HKT_IN, 0);
            hkt_to(s, HKT_OUT, me);
        } else {
            hkt_from(s, HKT_OUT, (int)((me + i) % n));
        }
        for (int64_t way = width; way < width * radix(sh) && way + i < n; way += width)
            hkt_to(s, HKT_PEER, hkt_mod(me - (int)way, n));
        for (int64_t way = width; way < width * radix(sh) && way + i < n; way += width)
            hkt_copy(s, HKT_PEER, (int)((me + way) % n), HKT_OUT, (int)((me + way + i) % n));
    }
}

/* The round that moves every block by its digit of weight `width`. */
static void all_to_all(struct hkt_schedule *s, const struct hkt_shape *sh, int64_t width)
{
    const int n = sh->size, me = sh->rank;

    for (int d = (int)width; d < n; d++) {
        const int  way   = (int)(d / width % radix(sh) * width);
        const bool first = d % width == 0, last = d / width < radix(sh);

        if (!way)
            continue;
        hkt_copy(s, first ? HKT_IN : HKT_TMP, first ? (me + d) % n : d, HKT_PEER, (me + way) % n);
        hkt_copy(s, HKT_PEER, hkt_mod(me - way, n), last ? HKT_OUT : HKT_TMP, last ? hkt_mod(me - d, n) : d);
    }
}

static int build(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    if (sh->size == 1)
        return hkt_schedule_alone(s, sh);
    s->chunks = 1;
    if (sh->coll == HKT_COLL_ALL_TO_ALL)
        hkt_copy(s, HKT_IN, sh->rank, HKT_OUT, sh->rank);
    for (int64_t width = 1; width < sh->size; width *= radix(sh))
        if (sh->coll == HKT_COLL_ALL_TO_ALL)
            all_to_all(s, sh, width);
        else
            all_gather(s, sh, width);
    return hkt_schedule_end(s);
}

static uint64_t sent(const struct hkt_shape *sh)
{
    uint64_t digits = 0;

    if (sh->coll == HKT_COLL_ALL_GATHER)
        return (uint64_t)sh->size - 1;
    for (int d = 1; d < sh->size; d++)
        for (int rest = d; rest; rest /= radix(sh))
            digits += rest % radix(sh) != 0;
    return digits;
}

static double cost(const struct hkt_shape *sh, double bytes, const struct hkt_link *l)
{
    return hkt_log_ceil(sh->size, radix(sh)) * l->alpha + (double)sent(sh) * (l->gap + bytes / sh->size * l->beta);
}

const struct hkt_algorithm hkt_algorithm_bruck = {
    .name   = "bruck",
    .desc   = "radix-k dissemination of blocks: logarithmic rounds for every n",
    .colls  = HKT_COLL_BIT(ALL_GATHER) | HKT_COLL_BIT(ALL_TO_ALL),
    .refuse = hkt_refuse_radix,
    .cost   = cost,
    .sent   = sent,
    .build  = build,
};
