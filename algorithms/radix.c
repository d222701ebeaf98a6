/* radix.c -- trees and butterflies of radix k over aligned blocks of ranks: ceil(log_k n) rounds with k-1 messages in each, for
 * vectors so small that latency is all. Best k is near alpha / gap; the default is 8.
 *
 * Blocks of width k^j start at multiples of k^j; k of them (fewer at the end) merge into one of width k^(j+1). In all_reduce every
 * rank of a block has the block's sum and takes the sums of the other parts from the ranks at its own offset; a part that is
 * short, the last one, serves several offsets with each of its ranks. In reduce and broadcast a block has a leader, its first rank, or the
 * root where it is inside. Parts are folded in the order of ranks, so with k a power of two the sum is the canonical tree.
 *
 * hkt-verify --print radix all_reduce 4 --radix 2
 *      rank 0                  rank 1                  rank 2                  rank 3
 *   1  IN 0 -> >1              IN 0 -> >0              IN 0 -> >3              IN 0 -> >2
 *   2  IN 0 + <1 -> TMP 0, >2  <0 + IN 0 -> TMP 0, >3  IN 0 + <3 -> TMP 0, >0  <2 + IN 0 -> TMP 0, >1
 *   3  TMP 0 + <2 => OUT 0     TMP 0 + <3 => OUT 0     <0 + TMP 0 => OUT 0     <1 + TMP 0 => OUT 0
 * hkt-verify --print radix reduce 4 --radix 2
 *      rank 0               rank 1      rank 2           rank 3
 *   1  IN 0 + <1 -> TMP 0   IN 0 -> >0  IN 0 + <3 -> >0  IN 0 -> >2
 *   2  TMP 0 + <2 => OUT 0
 * hkt-verify --print radix broadcast 4 --radix 2
 *      rank 0                 rank 1       rank 2           rank 3
 *   1  IN 0 -> OUT 0, >2, >1  <0 -> OUT 0  <0 -> OUT 0, >3  <2 -> OUT 0
 *
 * Cost of S bytes: ceil(log_k n) alpha + m (gap + S beta), m messages of the busiest rank (k-1 a round where n is a power of k);
 * folding (k-1) ceil(log_k n) S gamma. (Recursive multiplying: Ruefenacht, Bull and Booth 2017.)
 */
#include "language/algorithm.h"

/* A block that is about to merge from parts of `width` ranks. */
struct block {
    int64_t start, width;
    int     parts, mine;
};

static int radix(const struct hkt_shape *sh)
{
    return sh->radix ? sh->radix : 8;
}

static struct block block_of(const struct hkt_shape *sh, int64_t width)
{
    const int64_t whole = width * radix(sh), start = sh->rank / whole * whole;
    const int64_t end = start + whole < sh->size ? start + whole : sh->size;

    return (struct block){start, width, (int)((end - start + width - 1) / width), (int)((sh->rank - start) / width)};
}

static int part_size(const struct hkt_shape *sh, const struct block *b, int part)
{
    const int64_t start = b->start + part * b->width;

    return (int)(start + b->width < sh->size ? b->width : sh->size - start);
}

static int leader(const struct hkt_shape *sh, int64_t start, int64_t width)
{
    return sh->root >= start && sh->root < start + width ? sh->root : (int)start;
}

static int part_leader(const struct hkt_shape *sh, const struct block *b, int part)
{
    return leader(sh, b->start + part * b->width, b->width);
}

/* ---- all_reduce -------------------------------------------------------------------------------------------------- */

/* How many ranks of `part` take my sum: those whose offset is mine, modulo the size of my part. */
static int served(const struct hkt_shape *sh, const struct block *b, int part)
{
    const int offset = (int)((sh->rank - b->start) % b->width);
    const int mine = part_size(sh, b, b->mine), theirs = part_size(sh, b, part);

    return part == b->mine || offset >= theirs ? 0 : (theirs - offset + mine - 1) / mine;
}

static void all_reduce(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    bool folded = false; /* the last step is the fold of my block; where its value goes is still open */

    for (int64_t width = 1; width < sh->size; width *= radix(sh)) {
        const struct block b      = block_of(sh, width);
        const int          offset = (int)((sh->rank - b.start) % width);

        if (b.parts == 1)
            continue;
        if (folded) {
            hkt_to(s, HKT_TMP, 0);
        } else {
            hkt_step(s, 0);
            hkt_from(s, HKT_IN, 0);
        }
        for (int i = 1; i < b.parts; i++) {
            const int part = (b.mine + i) % b.parts;

            for (int j = 0; j < served(sh, &b, part); j++)
                hkt_to(s, HKT_PEER, (int)(b.start + part * width) + offset + j * part_size(sh, &b, b.mine));
        }
        hkt_step(s, width * radix(sh) >= sh->size ? HKT_STEP_FINISH : 0);
        for (int part = 0; part < b.parts; part++)
            if (part == b.mine)
                hkt_from(s, folded ? HKT_TMP : HKT_IN, 0);
            else
                hkt_from(s, HKT_PEER, (int)(b.start + part * width) + offset % part_size(sh, &b, part));
        folded = true;
    }
    hkt_to(s, HKT_OUT, 0);
}

/* ---- reduce, broadcast ------------------------------------------------------------------------------------------- */

static void reduce(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    bool folded = false; /* as above */

    for (int64_t width = 1; width < sh->size; width *= radix(sh)) {
        const struct block b   = block_of(sh, width);
        const int          top = leader(sh, b.start, width * radix(sh));

        if (b.parts == 1)
            continue;
        if (sh->rank != top) {
            if (folded)
                hkt_to(s, HKT_PEER, top);
            else
                hkt_copy(s, HKT_IN, 0, HKT_PEER, top);
            return;
        }
        if (folded)
            hkt_to(s, HKT_TMP, 0);
        hkt_step(s, width * radix(sh) >= sh->size ? HKT_STEP_FINISH : 0);
        for (int part = 0; part < b.parts; part++)
            if (part == b.mine)
                hkt_from(s, folded ? HKT_TMP : HKT_IN, 0);
            else
                hkt_from(s, HKT_PEER, part_leader(sh, &b, part));
        folded = true;
    }
    hkt_to(s, HKT_OUT, 0);
}

/* The width of the largest block that I lead. */
static int64_t reach(const struct hkt_shape *sh)
{
    int64_t width = 1;

    while (width < sh->size && leader(sh, block_of(sh, width).start, width * radix(sh)) == sh->rank)
        width *= radix(sh);
    return width;
}

static void broadcast(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    const int64_t width = reach(sh);

    hkt_step(s, 0);
    if (sh->rank == sh->root)
        hkt_from(s, HKT_IN, 0);
    else
        hkt_from(s, HKT_PEER, leader(sh, block_of(sh, width).start, width * radix(sh)));
    hkt_to(s, HKT_OUT, 0);
    for (int64_t w = width / radix(sh); w; w /= radix(sh)) {
        const struct block b = block_of(sh, w);

        for (int part = 0; part < b.parts; part++)
            if (part != b.mine)
                hkt_to(s, HKT_PEER, part_leader(sh, &b, part));
    }
}

/* ---- what an algorithm is ---------------------------------------------------------------------------------------- */

static int build(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    if (sh->size == 1)
        return hkt_schedule_alone(s, sh);
    s->chunks = 1;
    if (sh->coll == HKT_COLL_ALL_REDUCE)
        all_reduce(s, sh);
    else if (sh->coll == HKT_COLL_REDUCE)
        reduce(s, sh);
    else
        broadcast(s, sh);
    return hkt_schedule_end(s);
}

static uint64_t sent(const struct hkt_shape *sh)
{
    const int64_t end   = sh->coll == HKT_COLL_ALL_REDUCE ? sh->size : reach(sh);
    uint64_t      sends = 0;

    if (sh->coll == HKT_COLL_REDUCE)
        return sh->rank != sh->root;
    for (int64_t width = 1; width < end; width *= radix(sh)) {
        const struct block b = block_of(sh, width);

        for (int part = 0; part < b.parts; part++)
            sends += sh->coll == HKT_COLL_ALL_REDUCE ? (uint64_t)served(sh, &b, part) : part != b.mine;
    }
    return sends;
}

static double cost(const struct hkt_shape *sh, double bytes, const struct hkt_link *l)
{
    const int    rounds = hkt_log_ceil(sh->size, radix(sh));
    const int    most   = (radix(sh) - 1) * rounds < sh->size - 1 ? (radix(sh) - 1) * rounds : sh->size - 1;
    const double folds  = sh->coll == HKT_COLL_BROADCAST ? 0 : most;
    double       sends  = most;

    if (sh->coll == HKT_COLL_ALL_REDUCE) { /* the last rank is in every part that is short */
        const struct hkt_shape last   = {.coll = sh->coll, .rank = sh->size - 1, .size = sh->size, .radix = sh->radix};
        const double           ragged = (double)sent(&last);

        sends = ragged > sends ? ragged : sends;
    }
    return rounds * l->alpha + sends * (l->gap + bytes * l->beta) + folds * bytes * l->gamma;
}

static bool canonical_for(const struct hkt_shape *sh)
{
    return (radix(sh) & (radix(sh) - 1)) == 0;
}

const struct hkt_algorithm hkt_algorithm_radix = {
    .name          = "radix",
    .desc          = "radix-k trees and butterflies: log_k n rounds of the whole vector, for small ones",
    .colls         = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(REDUCE) | HKT_COLL_BIT(BROADCAST),
    .canonical_for = canonical_for,
    .refuse        = hkt_refuse_radix,
    .cost          = cost,
    .sent          = sent,
    .build         = build,
};
