/* tree.c -- two binary trees over all ranks, a half of the vector through each, in pieces: every rank is inside one tree and a leaf
 * of the other, so all links carry alike; bandwidth of the ring at logarithmic latency.
 *
 * Tree 0 numbers its nodes in order: node v, lowest set bit b, has children v - b/2 and v + b/2 (cut at the end), and node 0 stands above
 * the largest power of two. Tree 1 is its mirror image (m even) or itself shifted by one (m odd). all_reduce takes m = n and each tree its
 * own root; reduce and broadcast leave the root out, m = n - 1, and hang both trees below it. Even chunks belong to tree 0.
 *
 * hkt-verify --print tree all_reduce 4 --pieces 1
 *      rank 0              rank 1                rank 2                rank 3
 *   1  IN 0 + <2 => OUT 0  IN 0 -> >2            <1 + IN 0 + <3 -> >0  IN 0 -> >2
 *   2  IN 1 -> >1          <2 + IN 1 + <0 -> >3  IN 1 -> >1            IN 1 + <1 => OUT 1
 *   3  OUT 0 -> >2         <2 -> OUT 0           <0 -> OUT 0, >1, >3   <2 -> OUT 0
 *   4  <1 -> OUT 1         <3 -> OUT 1, >2, >0   <1 -> OUT 1           OUT 1 -> >1
 * Every rank does the rows in one order, tree 0 first; of several pieces upward rows lead downward rows by `lag`, the way up and back.
 *
 * Cost of S bytes, P pieces a tree, c = S / 2P, d = ceil(log2 n): reduce, broadcast d (alpha + c beta) + S beta, all_reduce twice
 * that; folding S gamma. (Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.)
 */
#include "language/algorithm.h"

struct node {
    int up;            /* -1: the top */
    int down[2];       /* ranks below, left one first */
    int before, downs; /* of them numbered before me, in all */
};

static int depth(const struct hkt_shape *sh)
{
    return hkt_log_ceil(sh->size, 2);
}

static int pieces(const struct hkt_shape *sh)
{
    return sh->pieces > 0 ? sh->pieces : 2 * depth(sh);
}

/* Node v of tree 0 over m nodes, neighbours as node numbers. */
static struct node in_order(int v, int m)
{
    const int   low = v & -v;
    struct node at  = {.up = -1};
    int         reach;

    if (v) {
        at.up = (v ^ low) | low << 1;
        if (at.up >= m)
            at.up = v ^ low;
        if (low > 1)
            at.down[at.downs++] = v - low / 2;
    }
    at.before = at.downs;
    for (reach = v ? low / 2 : 1 << hkt_log_ceil(m, 2) >> 1; reach && v + reach >= m;)
        reach /= 2;
    if (reach)
        at.down[at.downs++] = v + reach;
    return at;
}

/* To the numbering of tree 1 and back; tree 0 keeps it. */
static int turn(int v, int m, int tree, int back)
{
    return tree == 0 ? v : m % 2 == 0 ? m - 1 - v : hkt_mod(v + (back ? 1 : -1), m);
}

/* My place in a tree, neighbours as ranks. */
static struct node place(const struct hkt_shape *sh, int tree)
{
    const bool  rooted = hkt_coll_in(sh->coll, HKT_COLLS_ROOTED);
    const int   m = rooted ? sh->size - 1 : sh->size, first = rooted ? sh->root + 1 : 0;
    struct node at = {.up = -1, .down = {0}, .downs = 1}; /* the root above both trees, over their nodes 0 */

    if (!rooted || sh->rank != sh->root)
        at = in_order(turn(hkt_mod(sh->rank - first, sh->size), m, tree, false), m);
    if (at.up >= 0)
        at.up = (first + turn(at.up, m, tree, true)) % sh->size;
    else if (rooted && sh->rank != sh->root)
        at.up = sh->root;
    for (int i = 0; i < at.downs; i++)
        at.down[i] = (first + turn(at.down[i], m, tree, true)) % sh->size;
    return at;
}

static void upward(struct hkt_schedule *s, const struct node *at, int chunk)
{
    hkt_step(s, at->up < 0 ? HKT_STEP_FINISH : 0);
    for (int i = 0; i < at->before; i++)
        hkt_from(s, HKT_PEER, at->down[i]);
    hkt_from(s, HKT_IN, chunk);
    for (int i = at->before; i < at->downs; i++)
        hkt_from(s, HKT_PEER, at->down[i]);
    hkt_to(s, at->up < 0 ? HKT_OUT : HKT_PEER, at->up < 0 ? chunk : at->up);
}

static void downward(struct hkt_schedule *s, const struct hkt_shape *sh, const struct node *at, int chunk)
{
    const bool in_out = at->up < 0 && sh->coll == HKT_COLL_ALL_REDUCE; /* stored there on the way up */

    hkt_step(s, 0);
    if (at->up >= 0)
        hkt_from(s, HKT_PEER, at->up);
    else
        hkt_from(s, in_out ? HKT_OUT : HKT_IN, chunk);
    if (!in_out)
        hkt_to(s, HKT_OUT, chunk);
    for (int i = 0; i < at->downs; i++)
        hkt_to(s, HKT_PEER, at->down[i]);
}

static int build(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    const bool up = sh->coll != HKT_COLL_BROADCAST, down = sh->coll != HKT_COLL_REDUCE;
    const int  all = pieces(sh), lag = !up ? 0 : all < 2 * depth(sh) ? all : 2 * depth(sh);

    if (sh->size == 1)
        return hkt_schedule_alone(s, sh);
    s->chunks = 2 * (uint32_t)all;
    for (int i = 0; i < all + lag; i++)
        for (int tree = 0; tree < 2; tree++) {
            const struct node at = place(sh, tree);

            if (up && i < all)
                upward(s, &at, 2 * i + tree);
            if (down && i >= lag)
                downward(s, sh, &at, 2 * (i - lag) + tree);
        }
    return hkt_schedule_end(s);
}

static uint64_t sent(const struct hkt_shape *sh)
{
    int sends = 0;

    if (sh->size == 1)
        return 0;
    for (int tree = 0; tree < 2; tree++) {
        const struct node at = place(sh, tree);

        sends += (sh->coll != HKT_COLL_BROADCAST && at.up >= 0) + (sh->coll != HKT_COLL_REDUCE ? at.downs : 0);
    }
    return (uint64_t)sends * (uint64_t)pieces(sh);
}

static double cost(const struct hkt_shape *sh, double bytes, const struct hkt_link *l)
{
    const double ways  = sh->coll == HKT_COLL_ALL_REDUCE ? 2 : 1;
    const double gamma = sh->coll == HKT_COLL_BROADCAST ? 0 : l->gamma;

    if (sh->size == 1)
        return 0;
    return ways * (depth(sh) * (l->alpha + bytes / (2 * pieces(sh)) * l->beta) + bytes * l->beta) + bytes * gamma;
}

const struct hkt_algorithm hkt_algorithm_tree = {
    .name  = "tree",
    .desc  = "double binary tree, pipelined: full bandwidth at logarithmic latency",
    .colls = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(REDUCE) | HKT_COLL_BIT(BROADCAST),
    .cost  = cost,
    .sent  = sent,
    .build = build,
};
