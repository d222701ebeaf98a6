/* halving.c -- recursive halving for reduce_scatter, its mirror image for all_gather, both for all_reduce: logarithmic rounds, least
 * bytes, and the canonical tree for every n, since what merges are always aligned blocks of ranks.
 *
 * In round h blocks of 2^h ranks merge in pairs, L before R. In each block every chunk has one owner, who holds the block's sum of
 * it. Of the owners in L and R one wins and gets the other's sum. Seen from the end: chunk c is won by rank c in the last round, and
 * the loser of a chunk sits in the other half, opposite the winner; where R is short (the last block of a ragged n) it is chunk c modulo
 * the size of the half, so that the chunks spread evenly. The all_gather goes back the same ways, from winner to loser.
 *
 * hkt-verify --print halving all_reduce 4
 *      rank 0               rank 1               rank 2               rank 3
 *   1  IN 1 -> >1           IN 0 -> >0           IN 1 -> >3           IN 0 -> >2
 *   2  IN 0 + <1 -> TMP 0   IN 2 -> >0           IN 0 + <3 -> TMP 0   IN 2 -> >2
 *   3  IN 3 -> >1           <0 + IN 1 -> TMP 0   IN 3 -> >3           <2 + IN 1 -> TMP 0
 *   4  IN 2 + <1 -> TMP 1   <0 + IN 3 -> TMP 1   IN 2 + <3 -> TMP 1   <2 + IN 3 -> TMP 1
 *   5  TMP 1 -> >2          TMP 1 -> >3          TMP 0 -> >0          TMP 0 -> >1
 *   6  TMP 0 + <2 => OUT 0  TMP 0 + <3 => OUT 1  <0 + TMP 1 => OUT 2  <1 + TMP 1 => OUT 3
 *   7  OUT 0 -> >2          OUT 1 -> >3          OUT 2 -> >0          OUT 3 -> >1
 *   8  <2 -> OUT 2          <3 -> OUT 3          <0 -> OUT 0          <1 -> OUT 1
 *   9  OUT 0 -> >1          OUT 1 -> >0          OUT 0 -> >3          OUT 1 -> >2
 *  10  OUT 2 -> >1          <0 -> OUT 0          OUT 2 -> >3          <2 -> OUT 0
 *  11  <1 -> OUT 1          OUT 3 -> >0          <3 -> OUT 1          OUT 3 -> >2
 *  12  <1 -> OUT 3          <0 -> OUT 2          <3 -> OUT 3          <2 -> OUT 2
 *
 * Cost of S bytes: ceil(log2 n) alpha + (n-1) gap + (n-1)/n S beta each way, folding (n-1)/n S gamma. On the way in every rank sends
 * n-1 chunks, since each is lost once; on the way back n-1 is the mean, for ragged n the busiest sends up to half as many more.
 * (Rabenseifner 2004 for powers of two; here no rank is folded in beforehand for the others.)
 */
#include "language/algorithm.h"

#include "base/error.h"
#include "base/memory.h"

/* The merge of one chunk in my block in one round. No merge, because R is empty: both -1. */
struct meeting {
    int winner, loser;
};

enum { MAX_ROUNDS = 31 };

/* All that one build needs; per chunk unless it says otherwise. */
struct work {
    struct hkt_schedule    *s;
    const struct hkt_shape *sh;
    struct meeting         *meeting; /* [round * n + chunk] */
    int                    *slot;    /* TMP chunk of my sum; -1: it is still my IN */
    int                    *next;    /* the next chunk that I send to the same rank in this round; -1: none */
    int                    *first;   /* per rank: the first chunk that I send to it in this round; -1: none */
    int                     slots;
};

static int rounds(const struct hkt_shape *sh)
{
    return hkt_log_ceil(sh->size, 2);
}

/* The meetings of chunk c in the blocks that I am in, by round. */
static void meetings(const struct hkt_shape *sh, int c, struct meeting at[MAX_ROUNDS])
{
    int owner = c;

    for (int h = rounds(sh) - 1; h >= 0; h--) {
        const int  width = 1 << h, start = sh->rank >> h >> 1 << h << 1, middle = start + width;
        const int  right   = sh->size - middle < width ? sh->size - middle : width;
        const bool in_left = owner < middle;
        int        other;

        at[h] = (struct meeting){-1, -1};
        if (right <= 0)
            continue;
        if (right == width)
            other = in_left ? owner + width : owner - width;
        else
            other = in_left ? middle + c % right : start + c % width;
        at[h] = (struct meeting){owner, other};
        owner = in_left == (sh->rank < middle) ? owner : other;
    }
}

/* ---- one round --------------------------------------------------------------------------------------------------- */

static int sender(const struct work *w, int h, bool back, int c)
{
    const struct meeting *m = &w->meeting[h * w->sh->size + c];

    return back ? m->winner : m->loser;
}

static int receiver(const struct work *w, int h, bool back, int c)
{
    const struct meeting *m = &w->meeting[h * w->sh->size + c];

    return back ? m->loser : m->winner;
}

static void from_mine(const struct work *w, int c)
{
    if (w->slot[c] < 0)
        hkt_from(w->s, HKT_IN, c);
    else
        hkt_from(w->s, HKT_TMP, w->slot[c]);
}

static void send(const struct work *w, int h, bool back, int c)
{
    hkt_step(w->s, 0);
    if (back)
        hkt_from(w->s, HKT_OUT, c);
    else
        from_mine(w, c);
    hkt_to(w->s, HKT_PEER, receiver(w, h, back, c));
}

static void receive(struct work *w, int h, bool back, int c)
{
    const int  from = sender(w, h, back, c);
    const bool last = h == rounds(w->sh) - 1;

    if (back) {
        hkt_copy(w->s, HKT_PEER, from, HKT_OUT, c);
        return;
    }
    hkt_step(w->s, last ? HKT_STEP_FINISH : 0);
    if (from < w->sh->rank)
        hkt_from(w->s, HKT_PEER, from);
    from_mine(w, c);
    if (from > w->sh->rank)
        hkt_from(w->s, HKT_PEER, from);
    if (last) {
        hkt_to(w->s, HKT_OUT, w->sh->coll == HKT_COLL_ALL_REDUCE ? c : 0);
    } else {
        if (w->slot[c] < 0)
            w->slot[c] = w->slots++;
        hkt_to(w->s, HKT_TMP, w->slot[c]);
    }
}

/* All messages of the round in the order of chunks, but each is sent when its forerunner between the same two ranks is due: the
 * latencies overlap, at most two are on the way, and every rank follows one order of all messages, so none waits for ever. */
static void exchange(struct work *w, int h, bool back)
{
    const int n = w->sh->size, me = w->sh->rank;

    for (int r = 0; r < n; r++)
        w->first[r] = -1;
    for (int c = n - 1; c >= 0; c--)
        if (sender(w, h, back, c) == me) {
            w->next[c]                        = w->first[receiver(w, h, back, c)];
            w->first[receiver(w, h, back, c)] = c;
        }
    for (int c = 0; c < n; c++)
        if (sender(w, h, back, c) == me && w->first[receiver(w, h, back, c)] == c)
            send(w, h, back, c);
    for (int c = 0; c < n; c++)
        if (receiver(w, h, back, c) == me)
            receive(w, h, back, c);
        else if (sender(w, h, back, c) == me && w->next[c] >= 0)
            send(w, h, back, w->next[c]);
}

/* ---- what an algorithm is ---------------------------------------------------------------------------------------- */

static int start(struct work *w)
{
    const int    n    = w->sh->size;
    const size_t each = (size_t)n * sizeof(int);

    w->meeting = hkt_alloc((size_t)rounds(w->sh) * (size_t)n * sizeof(*w->meeting));
    w->slot    = hkt_alloc(3 * each);
    if (!w->meeting || !w->slot)
        return HKT_ERR_MEMORY;
    w->next  = w->slot + n;
    w->first = w->next + n;
    for (int c = 0; c < n; c++) {
        struct meeting at[MAX_ROUNDS];

        w->slot[c] = -1;
        meetings(w->sh, c, at);
        for (int h = 0; h < rounds(w->sh); h++)
            w->meeting[h * n + c] = at[h];
    }
    return 0;
}

static int build(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    struct work w = {.s = s, .sh = sh};

    if (sh->size == 1)
        return hkt_schedule_alone(s, sh);
    s->chunks = sh->coll == HKT_COLL_ALL_REDUCE ? (uint32_t)sh->size : 1;
    s->error  = start(&w);
    if (sh->coll == HKT_COLL_ALL_GATHER)
        hkt_copy(s, HKT_IN, 0, HKT_OUT, sh->rank);
    for (int h = 0; h < rounds(sh) && !s->error && sh->coll != HKT_COLL_ALL_GATHER; h++)
        exchange(&w, h, false);
    for (int h = rounds(sh) - 1; h >= 0 && !s->error && sh->coll != HKT_COLL_REDUCE_SCATTER; h--)
        exchange(&w, h, true);
    hkt_free(w.slot);
    hkt_free(w.meeting);
    return hkt_schedule_end(s);
}

static uint64_t sent(const struct hkt_shape *sh)
{
    const uint64_t lost = (uint64_t)sh->size - 1;
    uint64_t       won  = 0;

    for (int c = 0; c < sh->size && sh->coll != HKT_COLL_REDUCE_SCATTER; c++) {
        struct meeting at[MAX_ROUNDS];

        meetings(sh, c, at);
        for (int h = 0; h < rounds(sh); h++)
            won += at[h].winner == sh->rank;
    }
    return (sh->coll != HKT_COLL_ALL_GATHER ? lost : 0) + won;
}

static double cost(const struct hkt_shape *sh, double bytes, const struct hkt_link *l)
{
    const double others = sh->size - 1, part = others / sh->size * bytes;
    const double way = rounds(sh) * l->alpha + others * l->gap + part * l->beta;

    return (sh->coll == HKT_COLL_ALL_REDUCE ? 2 : 1) * way + (sh->coll == HKT_COLL_ALL_GATHER ? 0 : part * l->gamma);
}

const struct hkt_algorithm hkt_algorithm_halving = {
    .name      = "halving",
    .desc      = "recursive halving and doubling over aligned blocks: logarithmic rounds, canonical for every n",
    .colls     = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(REDUCE_SCATTER) | HKT_COLL_BIT(ALL_GATHER),
    .canonical = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(REDUCE_SCATTER),
    .cost      = cost,
    .sent      = sent,
    .build     = build,
};
