/* graph_ring.c -- the orders in which rings go through all ranks. See graph.h.
 *
 * Inside a host a ring takes the far links as seldom as it can: of all cycles through its ranks it is one with the fewest links of the
 * farthest class, then of the next, and so on; of several the first in the order of ranks. Without GPU links the classes are those of a tree,
 * and the ranks in the tree's order are such a cycle. With them, up to 12 ranks all cycles are considered (dynamic programming over
 * subsets); more ranks begin in the tree's order and are improved by turning round pieces until that helps no more.
 *
 * GPU links that join pairs directly carry one ring each way; as long as the links that are left make a cycle, that is one more pair of rings.
 * A switch of such links is no reason for a second ring: its ports are used up by the first.
 *
 * Over several hosts there is a ring for every rail. Ring r begins in a host with a rank of rail r: it cuts the cycle there, or, without GPU
 * links, goes through that rank's memory node and socket first. Every other host is gone through backwards: data leaves a host by the rail that
 * it enters the next one by. (With an odd number of hosts one hop changes rails.) Hosts follow one another by leaf switch.
 */
#include "graph.h"

#include "base/memory.h"
#include "hocket.h"

#include <stdlib.h>
#include <string.h>

enum { EXACT = 12, IMPROVED = 255, CYCLES = HKT_RINGS_MOST / 2, NO_LINK = 6 };

/* The ranks of one host, numbered by their place in it. */
struct host {
    const struct hkt_graph *g;
    const int              *member;
    int                     n, bits;
    bool                    linked;                    /* some pair has GPU links */
    uint8_t                 level[IMPROVED * IMPROVED]; /* where linked */
    bool                    direct[IMPROVED * IMPROVED];
    int                    *cycle[CYCLES]; /* [n] each */
    int                    *way;           /* [n] for one that is being laid */
    int                     cycles;
    uint64_t               *best; /* [2^n][n] for the search */
};

static uint64_t weight(const struct host *h, int a, int b)
{
    return 1ULL << (h->bits * h->level[a * h->n + b]);
}

/* ---- one cycle --------------------------------------------------------------------------------------------------- */

/* best[visited][last]: what the rest of the cycle costs that has come from 0 through `visited` to `last`. */
static void search_all(struct host *h, int *cycle)
{
    const int      n    = h->n;
    const unsigned full = (1u << n) - 1;
    unsigned       visited = 1;

    for (unsigned set = full;; set--) {
        for (int last = 0; last < n; last++) {
            uint64_t *best = &h->best[(size_t)set * n + last];

            *best = set == full ? weight(h, last, 0) : UINT64_MAX;
            for (int next = 0; next < n; next++)
                if (!(set >> next & 1)) {
                    const uint64_t cost = weight(h, last, next) + h->best[(size_t)(set | 1u << next) * n + next];

                    *best = cost < *best ? cost : *best;
                }
        }
        if (set == 1)
            break;
    }
    cycle[0] = 0;
    for (int i = 1; i < n; i++) {
        const int last = cycle[i - 1];

        for (int next = 1; next < n; next++)
            if (!(visited >> next & 1) && weight(h, last, next) + h->best[(size_t)(visited | 1u << next) * n + next] ==
                                              h->best[(size_t)visited * n + last]) {
                cycle[i] = next;
                visited |= 1u << next;
                break;
            }
    }
}

/* Turns round pieces of the cycle while that makes it cheaper. Ends, as the cost falls every time. */
static void improve(const struct host *h, int *cycle)
{
    bool better = true;

    while (better) {
        better = false;
        for (int i = 0; i + 1 < h->n; i++)
            for (int j = i + 2; j < h->n; j++) {
                const int a = cycle[i], b = cycle[i + 1], c = cycle[j], d = cycle[(j + 1) % h->n];

                if (d == a || weight(h, a, c) + weight(h, b, d) >= weight(h, a, b) + weight(h, c, d))
                    continue;
                for (int x = i + 1, y = j; x < y; x++, y--) {
                    const int swap = cycle[x];

                    cycle[x] = cycle[y];
                    cycle[y] = swap;
                }
                better = true;
            }
    }
}

static void find_cycle(struct host *h, int *cycle)
{
    for (int i = 0; i < h->n; i++)
        cycle[i] = i;
    if (!h->linked || h->n < 4)
        return;
    if (h->n <= EXACT)
        search_all(h, cycle);
    else
        improve(h, cycle);
}

/* ---- the cycles of a host ---------------------------------------------------------------------------------------- */

/* Fills in the levels; true when they are those of the host before. */
static bool look(struct host *h)
{
    bool same = true;

    h->linked = false;
    for (int a = 0; a < h->n; a++)
        for (int b = 0; b < h->n; b++) {
            const int  x = h->member[a], y = h->member[b], level = a == b ? 0 : hkt_graph_level(h->g, x, y);
            const bool direct = a != b && hkt_gpu_link_find(h->g->machine, h->g->at[x], h->g->at[y]);

            same = same && h->level[a * h->n + b] == level && h->direct[a * h->n + b] == direct;
            h->level[a * h->n + b]  = (uint8_t)level;
            h->direct[a * h->n + b] = direct;
            h->linked               = h->linked || direct || (a != b && level < 2 && h->g->machine->wires);
        }
    return same;
}

static bool all_direct(const struct host *h, const int *cycle)
{
    for (int i = 0; i < h->n; i++)
        if (!h->direct[cycle[i] * h->n + cycle[(i + 1) % h->n]])
            return false;
    return h->n > 2;
}

static void take_away(struct host *h, const int *cycle)
{
    for (int i = 0; i < h->n; i++) {
        const int a = cycle[i], b = cycle[(i + 1) % h->n];

        h->level[a * h->n + b] = h->level[b * h->n + a] = NO_LINK;
        h->direct[a * h->n + b] = h->direct[b * h->n + a] = false;
    }
}

/* A host that looks as the one before has its cycles. One of too many ranks, or without GPU links, is not looked at. */
static void find_cycles(struct host *h, int ranks_before)
{
    const bool small = h->n <= IMPROVED && h->g->machine->wires;

    if (small && look(h) && ranks_before == h->n)
        return;
    h->linked = h->linked && small;
    h->cycles = 1;
    find_cycle(h, h->cycle[0]);
    while (h->linked && h->cycles < CYCLES && all_direct(h, h->cycle[h->cycles - 1])) {
        take_away(h, h->cycle[h->cycles - 1]);
        find_cycle(h, h->cycle[h->cycles]);
        if (!all_direct(h, h->cycle[h->cycles]))
            break;
        h->cycles++;
    }
    if (small)
        look(h); /* all links are there again */
}

/* ---- rings over all hosts ---------------------------------------------------------------------------------------- */

/* The place in the cycle of a linked host to cut in front of: the farthest link that goes to a rank of this rail, or to any when none has it. */
static int cut(const struct host *h, const int *cycle, int rail)
{
    int best = -1, best_level = -1;

    for (int any = 0; any < 2 && best < 0; any++)
        for (int i = 0; i < h->n; i++) {
            const int level = h->level[cycle[(i + h->n - 1) % h->n] * h->n + cycle[i]];

            if ((any || h->g->rail[h->member[cycle[i]]] == rail) && level > best_level) {
                best       = i;
                best_level = level;
            }
        }
    return best;
}

/* How many rings the cycles of a host carry: direct links one each way. */
static int ways(const struct host *h)
{
    return h->linked && all_direct(h, h->cycle[0]) ? 2 * h->cycles : h->cycles;
}

/* Writes the ranks of the host, the nth of several, into ring r. */
static void lay(struct host *h, int r, int nth, int *ring)
{
    const int  n = h->n, way = r % ways(h);
    const bool both     = ways(h) > h->cycles;
    const int *cycle    = h->cycle[both ? way / 2 : way];
    const bool backward = both && way % 2;
    int        first    = 0;

    for (int i = 0; i < n; i++)
        h->way[i] = cycle[backward ? (n - i) % n : i];
    if (h->g->hosts > 1 && h->linked)
        first = cut(h, h->way, r);
    for (int i = 0; i < n; i++)
        ring[i] = h->member[h->way[(first + i) % n]];
    if (h->g->hosts > 1 && !h->linked)
        hkt_graph_lead(h->g, r, ring, n);
    for (int i = 0; nth % 2 && i < n / 2; i++) {
        const int swap = ring[i];

        ring[i]         = ring[n - 1 - i];
        ring[n - 1 - i] = swap;
    }
}

static int ascending(const void *x, const void *y)
{
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;

    return (a > b) - (a < b);
}

/* Hosts by leaf switch, then in their order; each as its key for the sort, whose lower half it is. */
static void order_hosts(const struct hkt_graph *g, int64_t *order)
{
    for (int h = 0; h < g->hosts; h++)
        order[h] = (int64_t)(hkt_graph_leaf(g, h) + 1) << 32 | h;
    qsort(order, (size_t)g->hosts, sizeof(*order), ascending);
}

static int count_rings(const struct hkt_graph *g, int most_ways)
{
    const int wanted = g->hosts > 1 ? g->rails : most_ways;

    return wanted < 1 ? 1 : wanted > HKT_RINGS_MOST ? HKT_RINGS_MOST : wanted;
}

/* The first host says how many rings there are. */
static int lay_all(struct hkt_graph *g, struct host *h, const int64_t *order)
{
    int done = 0, before = 0;

    for (int i = 0; i < g->hosts; i++) {
        const int host = (int)(order[i] & INT32_MAX);

        h->member = g->member + g->start[host];
        h->n      = g->start[host + 1] - g->start[host];
        for (h->bits = 1; h->n >> h->bits; h->bits++)
            ;
        find_cycles(h, before);
        before = h->n;
        if (i == 0) {
            g->rings = count_rings(g, ways(h));
            g->ring  = hkt_alloc((size_t)g->rings * g->size * sizeof(int));
            if (!g->ring)
                return HKT_ERR_MEMORY;
        }
        for (int r = 0; r < g->rings; r++)
            lay(h, r, i, g->ring + (size_t)r * g->size + done);
        done += h->n;
    }
    return HKT_OK;
}

int hkt_graph_rings(struct hkt_graph *g)
{
    struct host *h     = hkt_alloc(sizeof(*h));
    int64_t     *order = hkt_alloc((size_t)g->hosts * sizeof(*order));
    int          rc    = h && order ? HKT_OK : HKT_ERR_MEMORY;

    if (!rc) {
        h->g    = g;
        h->way  = hkt_alloc((size_t)g->size * sizeof(int));
        h->best = g->machine->wires ? hkt_alloc(((size_t)EXACT << EXACT) * sizeof(*h->best)) : NULL;
        for (int c = 0; c < CYCLES; c++)
            if (!(h->cycle[c] = hkt_alloc((c ? IMPROVED : (size_t)g->size) * sizeof(int))))
                rc = HKT_ERR_MEMORY;
        if (!h->way || (g->machine->wires && !h->best))
            rc = HKT_ERR_MEMORY;
        if (!rc) {
            order_hosts(g, order);
            rc = lay_all(g, h, order);
        }
        for (int c = 0; c < CYCLES; c++)
            hkt_free(h->cycle[c]);
        hkt_free(h->way);
        hkt_free(h->best);
    }
    hkt_free(order);
    hkt_free(h);
    return rc;
}
