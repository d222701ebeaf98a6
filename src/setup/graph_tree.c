/* graph_tree.c -- trees over all ranks that cross far links as seldom as a tree can. See graph.h.
 *
 * Level by level (leaf switches, hosts, sockets, memory nodes, caches; where GPU links are, their islands instead of what is below the host)
 * the groups' first ranks make a tree of two children each, whose children then lead their groups in the same way: between k groups go k - 1
 * links, and a rank has at most two children a level. Inside an island the tree grows along its links: the best link that is left, from the
 * rank nearest to the root that has room for a child.
 *
 * There is a tree for every rail; in tree r the ranks that leave a host use rail r, and every other tree takes the hosts from the other end,
 * so that hosts inside one tree are leaves of the next.
 */
#include "graph.h"

#include "base/memory.h"
#include "hocket.h"

#include <stdlib.h>

enum { CHILDREN = 2, GROWN = 64 };

enum level { LEAVES, HOSTS, ISLANDS, SOCKETS, NODES, CACHES, RANKS };

struct tree {
    const struct hkt_graph *g;
    int                     rail;
    int                    *parent;
};

/* The group of a rank at a level, among those of the levels around it. */
static int group_of(const struct hkt_graph *g, int rank, enum level level)
{
    static const enum hkt_group group[] = {
        [HOSTS] = HKT_GROUP_HOST, [ISLANDS] = HKT_GROUP_ISLAND, [SOCKETS] = HKT_GROUP_SOCKET, [NODES] = HKT_GROUP_NUMA, [CACHES] = HKT_GROUP_CACHE};

    if (level == LEAVES)
        return hkt_graph_leaf(g, g->host[rank]);
    return g->group[group[level]][rank];
}

static void binary(const struct tree *t, const int *rank, int n)
{
    for (int i = 1; i < n; i++)
        t->parent[rank[i]] = rank[(i - 1) / CHILDREN];
}

/* Grows the tree of an island from rank[0] along its links. */
static void grow(const struct tree *t, const int *rank, int n)
{
    int depth[GROWN] = {0}, children[GROWN] = {0};
    bool in[GROWN] = {true};

    for (int left = n - 1; left > 0; left--) {
        int best = INT32_MAX, from = 0, to = 0;

        for (int a = 0; a < n; a++)
            for (int b = 0; in[a] && children[a] < CHILDREN && b < n; b++) {
                const int cost = in[b] ? INT32_MAX : hkt_graph_level(t->g, rank[a], rank[b]) * GROWN + depth[a];

                if (cost < best) {
                    best = cost;
                    from = a;
                    to   = b;
                }
            }
        t->parent[rank[to]] = rank[from];
        depth[to]           = depth[from] + 1;
        in[to]              = true;
        children[from]++;
    }
}

/* The place of the rank that leads: one that uses the rail, else the first. */
static int leading(const struct hkt_graph *g, int rail, const int *rank, int n)
{
    for (int i = 0; i < n; i++)
        if (g->rail[rank[i]] == rail)
            return i;
    return 0;
}

static void turn_round(int *rank, int n)
{
    for (int i = 0; i < n / 2; i++) {
        const int swap = rank[i];

        rank[i]         = rank[n - 1 - i];
        rank[n - 1 - i] = swap;
    }
}

/* Moves the leading rank to the front, and with it its groups of this and the inner levels, so that each stays in one piece. */
static void lead(const struct hkt_graph *g, int rail, enum level level, int *rank, int n)
{
    int i = leading(g, rail, rank, n);

    for (int l = level; l <= RANKS; l++) {
        int begin = i, end = i + 1;

        while (l < RANKS && begin > 0 && group_of(g, rank[begin - 1], (enum level)l) == group_of(g, rank[i], (enum level)l))
            begin--;
        while (l < RANKS && end < n && group_of(g, rank[end], (enum level)l) == group_of(g, rank[i], (enum level)l))
            end++;
        i -= begin;
        turn_round(rank, begin);
        turn_round(rank + begin, end - begin);
        turn_round(rank, end);
    }
}

void hkt_graph_lead(const struct hkt_graph *g, int rail, int *rank, int n)
{
    lead(g, rail, SOCKETS, rank, n);
}

/* Gives all of rank[] but the first, which is the root, a parent; rank[] is reordered. `leader`: room for the leaders of this level and, behind
 * them, of the inner ones. At most as many calls deep as there are levels. */
static void build(const struct tree *t, enum level level, int *rank, int n, int *leader)
{
    const struct hkt_graph *g = t->g;
    int                     groups = 0;

    if (level == ISLANDS && !g->machine->wires)
        level = SOCKETS;
    if (level == RANKS || n < 3) {
        binary(t, rank, n);
        return;
    }
    for (int i = 0, end; i < n; i = end) {
        const int root = rank[i];

        for (end = i + 1; end < n && group_of(g, rank[end], level) == group_of(g, root, level); end++)
            ;
        if (i > 0)
            lead(g, t->rail, level + 1, rank + i, end - i);
        leader[groups++] = rank[i];
        if (level == ISLANDS && end - i > 1 && end - i <= GROWN)
            grow(t, rank + i, end - i);
        else
            build(t, level == ISLANDS && end - i > 1 ? RANKS : level + 1, rank + i, end - i, leader + groups);
    }
    binary(t, leader, groups);
}

static int compare(const void *x, const void *y)
{
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;

    return (a > b) - (a < b);
}

/* All ranks by leaf switch, host and place; for odd rails from the last host on. */
static void order_ranks(const struct hkt_graph *g, int rail, int64_t *key, int *rank)
{
    int n = 0;

    for (int h = 0; h < g->hosts; h++)
        key[h] = (int64_t)(hkt_graph_leaf(g, h) + 1) << 32 | h;
    qsort(key, (size_t)g->hosts, sizeof(*key), compare);
    for (int i = 0; i < g->hosts; i++) {
        const int h = (int)(key[rail % 2 ? g->hosts - 1 - i : i] & INT32_MAX);

        for (int m = g->start[h]; m < g->start[h + 1]; m++)
            rank[n++] = g->member[m];
    }
}

int hkt_graph_trees(struct hkt_graph *g)
{
    int     *rank   = hkt_alloc((size_t)g->size * sizeof(int));
    int     *leader = hkt_alloc((size_t)g->size * 2 * sizeof(int));
    int64_t *key    = hkt_alloc((size_t)g->hosts * sizeof(*key));

    g->trees = g->rails < 1 ? 1 : g->rails > HKT_RINGS_MOST ? HKT_RINGS_MOST : g->rails;
    g->tree  = rank && leader && key ? hkt_alloc((size_t)g->trees * g->size * sizeof(int)) : NULL;
    for (int r = 0; g->tree && r < g->trees; r++) {
        const struct tree t = {.g = g, .rail = r, .parent = g->tree + (size_t)r * g->size};

        order_ranks(g, r, key, rank);
        lead(g, r, LEAVES, rank, g->size);
        t.parent[rank[0]] = -1;
        build(&t, LEAVES, rank, g->size, leader);
    }
    hkt_free(key);
    hkt_free(leader);
    hkt_free(rank);
    return g->tree ? HKT_OK : HKT_ERR_MEMORY;
}
