/* graph_fabric.c -- the numbers that the simulator and the choice of algorithms take of a machine (language/fabric.h). See graph.h. */
#include "graph.h"

#include "base/error.h"

#include <math.h>

enum { PAIRS_OF = 64 }; /* ranks of a host that are looked at in pairs */

/* Ranks that share the nearest thing: GPU links, else a cache. */
static enum hkt_group nearest(const struct hkt_graph *g)
{
    return g->machine->wires ? HKT_GROUP_ISLAND : HKT_GROUP_CACHE;
}

/* Ranks of every group, where all have as many; 0: they differ, or are not numbered group by group. */
static int each(const struct hkt_graph *g, enum hkt_group group)
{
    const int *of   = g->group[group];
    const int  size = g->size / g->groups[group];

    for (int r = 0; r < g->size; r++)
        if (of[r] != r / size || g->size % g->groups[group])
            return 0;
    return size;
}

static void worsen(struct hkt_span_cost *w, struct hkt_class_cost cost)
{
    w->alpha = fmax(w->alpha, cost.latency);
    w->gap   = fmax(w->gap, cost.gap);
    w->beta  = fmax(w->beta, 1 / cost.bandwidth);
}

/* The worst of the ways of each kind inside the first host. */
static void look_inside(const struct hkt_graph *g, struct hkt_span_cost cost[HKT_SPANS])
{
    const int *near = g->group[nearest(g)];
    const int  n    = g->start[1] < PAIRS_OF ? g->start[1] : PAIRS_OF;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            const int a = g->member[(int64_t)i * g->start[1] / n], b = g->member[(int64_t)k * g->start[1] / n];

            worsen(&cost[near[a] == near[b] ? HKT_SPAN_CACHE : HKT_SPAN_HOST], hkt_graph_cost(g, a, b));
        }
}

static void look_between(const struct hkt_graph *g, struct hkt_span_cost *cost)
{
    const int first = g->member[0];

    for (int i = g->start[1]; g->hosts > 1 && i < g->start[2]; i++)
        if (g->rail[g->member[i]] == g->rail[first]) {
            worsen(cost, hkt_graph_cost(g, first, g->member[i]));
            break;
        }
}

/* Hosts of the first leaf switch; 0: not known, or one for all. */
static int per_leaf(const struct hkt_graph *g)
{
    int hosts = 0;

    while (hosts < g->hosts && hkt_graph_leaf(g, hosts) == hkt_graph_leaf(g, 0))
        hosts++;
    return hkt_graph_leaf(g, 0) >= 0 && hosts < g->hosts && g->hosts % hosts == 0 ? hosts : 0;
}

int hkt_graph_fabric(const struct hkt_graph *g, struct hkt_fabric *f)
{
    struct hkt_span_cost cost[HKT_SPANS] = {{0}};
    const int            per_host        = each(g, HKT_GROUP_HOST);
    const double         spine           = g->machine->cost[HKT_CLASS_NETWORK].latency - g->machine->cost[HKT_CLASS_RAIL].latency;

    if (!per_host)
        return hkt_fail(HKT_ERR_UNSUPPORTED, "%d ranks on %d hosts: a fabric has as many ranks on every host, numbered host by host", g->size,
                        g->hosts);
    look_inside(g, cost);
    look_between(g, &cost[HKT_SPAN_NETWORK]);
    f->hosts     = g->hosts;
    f->per_host  = per_host;
    f->per_cache = per_host % (each(g, nearest(g)) ? each(g, nearest(g)) : 1) ? 0 : each(g, nearest(g));
    f->rails     = g->rails;
    f->per_leaf  = per_leaf(g);
    f->spine     = f->per_leaf && spine > 0 ? spine : 0;
    for (int span = 0; span < HKT_SPANS; span++)
        if (cost[span].beta > 0) { /* there is such a way */
            f->wire[span].alpha = cost[span].alpha;
            f->wire[span].gap   = cost[span].gap;
            f->wire[span].beta  = cost[span].beta;
        }
    return HKT_OK;
}
