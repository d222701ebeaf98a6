/* graph.c -- classes, costs, placement and groups. See graph.h. Rails, rings and trees are in graph_rail.c, graph_ring.c, graph_tree.c. */
#include "graph.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const hkt_group_name[HKT_GROUPS] = {[HKT_GROUP_HOST] = "host",   [HKT_GROUP_SOCKET] = "socket", [HKT_GROUP_NUMA] = "numa",
                                                [HKT_GROUP_CACHE] = "cache", [HKT_GROUP_ISLAND] = "island"};

/* Seconds per byte of a reduction, two reads and a write of one core at about 20 GB/s of results. */
static const double usual_gamma = 0.05e-9;

/* ---- between two objects ----------------------------------------------------------------------------------------- */

/* The way between two GPUs by GPU links, direct or through one fabric that both are linked to. False: there is none. */
static bool by_wire(const struct hkt_topology *t, int a, int b, struct hkt_gpu_link *way)
{
    const struct hkt_gpu_link *direct = hkt_gpu_link_find(t, a, b);
    const int              host   = hkt_object_above(t, a, HKT_OBJECT_HOST);

    if (t->object[a].kind != HKT_OBJECT_GPU || t->object[b].kind != HKT_OBJECT_GPU || !t->wires)
        return false;
    if (direct) {
        *way           = *direct;
        way->bandwidth = hkt_gpu_link_bandwidth(t, direct);
        return true;
    }
    for (int f = 0, o; (o = hkt_object_find(t, host, HKT_OBJECT_FABRIC, f)) >= 0; f++) {
        const struct hkt_gpu_link *wa = hkt_gpu_link_find(t, a, o), *wb = hkt_gpu_link_find(t, b, o);

        if (!wa || !wb)
            continue;
        *way           = *wa;
        way->bandwidth = fmin(hkt_gpu_link_bandwidth(t, wa), hkt_gpu_link_bandwidth(t, wb));
        return true;
    }
    return false;
}

static enum hkt_class between_hosts(const struct hkt_object *a, const struct hkt_object *b)
{
    const bool nics = a->kind == HKT_OBJECT_NIC && b->kind == HKT_OBJECT_NIC, known = a->leaf >= 0 && b->leaf >= 0;

    if (!nics)
        return HKT_CLASS_NETWORK;
    if (a->number == b->number && (!known || a->leaf == b->leaf))
        return HKT_CLASS_RAIL;
    return known && a->leaf == b->leaf ? HKT_CLASS_LEAF : HKT_CLASS_NETWORK;
}

enum hkt_class hkt_objects_class(const struct hkt_topology *t, int a, int b)
{
    struct hkt_gpu_link way;

    if (a == b)
        return HKT_CLASS_SELF;
    if (by_wire(t, a, b, &way))
        return way.class;
    switch (t->object[hkt_object_common(t, a, b)].kind) {
    case HKT_OBJECT_CORE:
        return HKT_CLASS_SELF;
    case HKT_OBJECT_CACHE:
        return HKT_CLASS_CACHE;
    case HKT_OBJECT_SWITCH:
        return HKT_CLASS_PCIE;
    case HKT_OBJECT_NUMA:
        return HKT_CLASS_NUMA;
    case HKT_OBJECT_SOCKET:
        return HKT_CLASS_SOCKET;
    case HKT_OBJECT_MACHINE:
        return between_hosts(&t->object[a], &t->object[b]);
    default:
        return HKT_CLASS_HOST;
    }
}

static bool has_port(const struct hkt_topology *t, int object)
{
    return t->object[object].kind == HKT_OBJECT_GPU || t->object[object].kind == HKT_OBJECT_NIC;
}

/* What was put in the place of the usual value holds, whatever is advertised. */
static bool measured(const struct hkt_topology *t, enum hkt_class class)
{
    return t->cost[class].bandwidth != hkt_class_default[class].bandwidth;
}

struct hkt_class_cost hkt_objects_cost(const struct hkt_topology *t, int a, int b)
{
    const enum hkt_class  class = hkt_objects_class(t, a, b);
    struct hkt_class_cost cost  = t->cost[class];
    struct hkt_gpu_link       way;

    if (a == b || measured(t, class))
        return cost;
    if (by_wire(t, a, b, &way)) {
        cost.bandwidth = way.bandwidth;
        return cost;
    }
    if (has_port(t, a) || has_port(t, b)) { /* what devices do with one another is bound by their ports, not by what a core can copy */
        if (class < HKT_CLASS_RAIL)
            cost.latency = fmax(cost.latency, t->cost[HKT_CLASS_PCIE].latency);
        cost.bandwidth = INFINITY;
        if (has_port(t, a))
            cost.bandwidth = fmin(cost.bandwidth, hkt_port_bandwidth(t, a));
        if (has_port(t, b))
            cost.bandwidth = fmin(cost.bandwidth, hkt_port_bandwidth(t, b));
    }
    return cost;
}

/* ---- between two ranks ------------------------------------------------------------------------------------------- */

static bool by_nic(const struct hkt_graph *g, int a, int b)
{
    return g->host[a] != g->host[b] && g->nic[a] >= 0 && g->nic[b] >= 0;
}

enum hkt_class hkt_graph_class(const struct hkt_graph *g, int a, int b)
{
    if (a != b && g->at[a] == g->at[b])
        return g->machine->object[g->at[a]].kind == HKT_OBJECT_HOST ? HKT_CLASS_HOST : HKT_CLASS_SELF;
    return by_nic(g, a, b) ? hkt_objects_class(g->machine, g->nic[a], g->nic[b]) : hkt_objects_class(g->machine, g->at[a], g->at[b]);
}

int hkt_graph_level(const struct hkt_graph *g, int a, int b)
{
    static const uint8_t level[HKT_CLASSES] = {[HKT_CLASS_CACHE] = 1, [HKT_CLASS_PCIE] = 2, [HKT_CLASS_NUMA] = 3, [HKT_CLASS_SOCKET] = 4,
                                               [HKT_CLASS_HOST] = 5,  [HKT_CLASS_RAIL] = 6, [HKT_CLASS_LEAF] = 6, [HKT_CLASS_NETWORK] = 6};
    struct hkt_gpu_link way;

    if (g->at[a] != g->at[b] && g->host[a] == g->host[b] && by_wire(g->machine, g->at[a], g->at[b], &way))
        return way.bandwidth < g->wire_bandwidth;
    return level[hkt_graph_class(g, a, b)];
}

struct hkt_class_cost hkt_graph_cost(const struct hkt_graph *g, int a, int b)
{
    const struct hkt_topology *t = g->machine;
    struct hkt_class_cost      cost, near[2];

    if (!by_nic(g, a, b))
        return a != b && g->at[a] == g->at[b] ? t->cost[hkt_graph_class(g, a, b)] : hkt_objects_cost(t, g->at[a], g->at[b]);
    cost    = hkt_objects_cost(t, g->nic[a], g->nic[b]);
    near[0] = hkt_objects_cost(t, g->at[a], g->nic[a]);
    near[1] = hkt_objects_cost(t, g->at[b], g->nic[b]);
    for (int i = 0; i < 2 && !measured(t, hkt_graph_class(g, a, b)); i++) /* the network's latency has the way from the NIC to its own memory in it */
        cost.bandwidth = fmin(cost.bandwidth, near[i].bandwidth);
    return cost;
}

int hkt_graph_leaf(const struct hkt_graph *g, int host)
{
    const int nic = g->nic[g->member[g->start[host]]];

    return nic < 0 ? HKT_LEAF_UNKNOWN : g->machine->object[nic].leaf;
}

/* ---- placement --------------------------------------------------------------------------------------------------- */

/* Puts `count` ranks of one host on its GPUs or cores: rank i of n on the one at i / n of them, so that sharers are neighbours, cores of
 * every memory node are used alike, and nobody shares who need not. */
static void place_on_host(const struct hkt_topology *t, int host, int count, int *at)
{
    const int                  gpus  = hkt_object_count(t, host, HKT_OBJECT_GPU);
    const enum hkt_object_kind kind  = gpus ? HKT_OBJECT_GPU : HKT_OBJECT_CORE;
    const int                  there = gpus ? gpus : hkt_object_count(t, host, HKT_OBJECT_CORE);
    int                        o = host, number = -1;

    for (int i = 0; i < count; i++) {
        const int wanted = (int)(count <= there && kind == HKT_OBJECT_GPU ? i : (int64_t)i * there / count);

        if (!there)
            at[i] = host;
        while (there && number < wanted)
            number += t->object[++o].kind == kind;
        if (there)
            at[i] = o;
    }
}

int hkt_graph_place(const struct hkt_topology *t, int size, int *at)
{
    const int hosts = t->object[0].end > 1 ? hkt_object_count(t, 0, HKT_OBJECT_HOST) : 0;
    int       done  = 0;

    if (size < 1 || size > HKT_GRAPH_RANKS_MOST)
        return hkt_fail(HKT_ERR_ARGUMENT, "%d ranks cannot be placed on a machine: 1 to %d can", size, HKT_GRAPH_RANKS_MOST);
    for (int host = 1, h = 0; h < hosts; host = t->object[host].end, h++) {
        const int until = (int)((int64_t)size * (h + 1) / hosts);

        place_on_host(t, host, until - done, at + done);
        done = until;
    }
    return HKT_OK;
}

int hkt_graph_seat(const struct hkt_topology *t, int host, const struct hkt_cpus *cpus)
{
    const int bits = 8 * (int)sizeof(cpus->bits[0]);
    int       seat = -1;

    for (int o = host; o < t->object[host].end; o++) {
        bool mine = false;

        for (int i = 0; i < t->object[o].cpus; i++) {
            const int cpu = t->object[o].cpu[i];

            mine = mine || (cpu < HKT_CPU_WORDS * bits && (cpus->bits[cpu / bits] >> (cpu % bits) & 1));
        }
        if (mine)
            seat = seat < 0 ? o : hkt_object_common(t, seat, o);
    }
    return seat < 0 ? host : seat;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* Takes every object to the least one that it reaches by GPU links: the roots of a forest over the objects. */
static int root_of(const int *forest, int o)
{
    while (forest[o] >= 0)
        o = forest[o];
    return o;
}

static void grow_forest(const struct hkt_topology *t, int *forest)
{
    for (int w = 0; w < t->wires; w++) {
        const int a = root_of(forest, t->wire[w].a), b = root_of(forest, t->wire[w].b);

        if (a != b)
            forest[a > b ? a : b] = a < b ? a : b;
    }
}

/* The object that all ranks of the group are in; -1: the rank is alone. */
static int shared(const struct hkt_graph *g, int rank, enum hkt_group group, const int *forest)
{
    static const enum hkt_object_kind kind[] = {[HKT_GROUP_HOST]   = HKT_OBJECT_HOST,
                                                [HKT_GROUP_SOCKET] = HKT_OBJECT_SOCKET,
                                                [HKT_GROUP_NUMA]   = HKT_OBJECT_NUMA,
                                                [HKT_GROUP_CACHE]  = HKT_OBJECT_CACHE};
    const struct hkt_topology        *t      = g->machine;
    int                               o, outer;

    if (group == HKT_GROUP_ISLAND)
        return root_of(forest, g->at[rank]);
    outer = hkt_object_above(t, g->at[rank], kind[group]);
    for (o = outer; outer >= 0; outer = hkt_object_above(t, t->object[outer].parent, kind[group]))
        o = outer; /* of caches the last level */
    return o;
}

/* `seen`: a number for every object of the machine, -1 before and after. */
static void group_ranks(struct hkt_graph *g, enum hkt_group group, const int *forest, int *seen)
{
    for (int r = 0; r < g->size; r++) {
        const int o = shared(g, r, group, forest);

        g->group[group][r] = o >= 0 && seen[o] >= 0 ? seen[o] : g->groups[group]++;
        if (o >= 0)
            seen[o] = g->group[group][r];
    }
    for (int r = 0; r < g->size; r++) {
        const int o = shared(g, r, group, forest);

        if (o >= 0)
            seen[o] = -1;
    }
}

static int find_groups(struct hkt_graph *g)
{
    const size_t bytes  = (size_t)g->machine->objects * sizeof(int);
    int         *forest = hkt_alloc(bytes), *seen = hkt_alloc(bytes);
    const bool   there  = forest && seen;

    if (there) {
        memset(forest, -1, bytes);
        memset(seen, -1, bytes);
        grow_forest(g->machine, forest);
        for (int group = 0; group < HKT_GROUPS; group++)
            group_ranks(g, (enum hkt_group)group, forest, seen);
    }
    hkt_free(forest);
    hkt_free(seen);
    return there ? HKT_OK : HKT_ERR_MEMORY;
}

int hkt_graph_starts(const struct hkt_graph *g, enum hkt_group group, int *start)
{
    const int *of = g->group[group];
    int        n  = 0;

    for (int r = 0; r < g->size; r++) /* groups are counted by their least ranks: a group that goes on later has a smaller number */
        if (r == 0 || of[r] != of[r - 1]) {
            if (of[r] != n)
                return 0;
            start[n++] = r;
        }
    start[n] = g->size;
    return n;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static int ascending(const void *x, const void *y)
{
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;

    return (a > b) - (a < b);
}

/* member and start: ranks by host, place, number, which are one number of 3 x 20 bits for the sort. */
static int sort_members(struct hkt_graph *g)
{
    int64_t *key = hkt_alloc((size_t)g->size * sizeof(*key));

    if (!key)
        return HKT_ERR_MEMORY;
    for (int r = 0; r < g->size; r++)
        key[r] = (int64_t)g->host[r] << 40 | (int64_t)g->at[r] << 20 | r;
    qsort(key, (size_t)g->size, sizeof(*key), ascending);
    for (int i = 0; i < g->size; i++) {
        g->member[i] = (int)(key[i] & ((1 << 20) - 1));
        if (i == 0 || g->host[g->member[i]] != g->host[g->member[i - 1]])
            g->start[g->host[g->member[i]]] = i;
    }
    g->start[g->hosts] = g->size;
    hkt_free(key);
    return HKT_OK;
}

static int take_ranks(struct hkt_graph *g, const int *at)
{
    int **const array[] = {&g->at, &g->host, &g->member, &g->nic, &g->rail, &g->start};

    for (size_t i = 0; i < sizeof(array) / sizeof(array[0]); i++)
        if (!(*array[i] = hkt_alloc(((size_t)g->size + 1) * sizeof(int))))
            return HKT_ERR_MEMORY;
    for (int i = 0; i < HKT_GROUPS; i++)
        if (!(g->group[i] = hkt_alloc((size_t)g->size * sizeof(int))))
            return HKT_ERR_MEMORY;
    for (int r = 0; r < g->size; r++) {
        if (at[r] < 0 || at[r] >= g->machine->objects || hkt_object_above(g->machine, at[r], HKT_OBJECT_HOST) < 0)
            return hkt_fail(HKT_ERR_ARGUMENT, "rank %d is placed on object %d, and the machine has objects 1 to %d in its hosts", r, at[r],
                            g->machine->objects - 1);
        g->at[r] = at[r];
    }
    return HKT_OK;
}

int hkt_graph_make(struct hkt_graph *g, const struct hkt_topology *t, const int *at, int size)
{
    int rc;

    memset(g, 0, sizeof(*g));
    g->machine = t;
    if (size < 1 || size > HKT_GRAPH_RANKS_MOST)
        return hkt_fail(HKT_ERR_ARGUMENT, "a graph of %d ranks: 1 to %d are possible", size, HKT_GRAPH_RANKS_MOST);
    g->size = size;
    for (int w = 0; w < t->wires; w++)
        g->wire_bandwidth = fmax(g->wire_bandwidth, hkt_gpu_link_bandwidth(t, &t->wire[w]));
    rc = take_ranks(g, at);
    if (!rc)
        rc = find_groups(g);
    if (!rc) {
        g->hosts = g->groups[HKT_GROUP_HOST];
        memcpy(g->host, g->group[HKT_GROUP_HOST], (size_t)size * sizeof(int));
        rc = sort_members(g);
    }
    if (!rc)
        rc = hkt_graph_rails(g);
    if (!rc)
        rc = hkt_graph_rings(g);
    if (!rc)
        rc = hkt_graph_trees(g);
    if (rc)
        hkt_graph_free(g);
    return rc;
}

void hkt_graph_free(struct hkt_graph *g)
{
    int *const array[] = {g->at, g->host, g->member, g->nic, g->rail, g->start, g->ring, g->tree};

    for (size_t i = 0; i < sizeof(array) / sizeof(array[0]); i++)
        hkt_free(array[i]);
    for (int i = 0; i < HKT_GROUPS; i++)
        hkt_free(g->group[i]);
    memset(g, 0, sizeof(*g));
}

void hkt_graph_links(const struct hkt_graph *g, double gamma, struct hkt_link link[2])
{
    struct hkt_class_cost worst[2] = {g->machine->cost[HKT_CLASS_SELF], g->machine->cost[HKT_CLASS_NETWORK]};
    bool                  any[2]   = {false, false};

    for (int i = 0; g->rings && i < g->size && g->size > 1; i++) {
        const int             a = g->ring[i], b = g->ring[(i + 1) % g->size], k = g->host[a] != g->host[b];
        struct hkt_class_cost cost = hkt_graph_cost(g, a, b);

        if (any[k]) {
            cost.latency   = fmax(cost.latency, worst[k].latency);
            cost.gap       = fmax(cost.gap, worst[k].gap);
            cost.bandwidth = fmin(cost.bandwidth, worst[k].bandwidth);
        }
        worst[k] = cost;
        any[k]   = true;
    }
    for (int k = 0; k < 2; k++)
        link[k] = (struct hkt_link){.alpha = worst[k].latency, .gap = worst[k].gap, .beta = 1 / worst[k].bandwidth,
                                    .gamma = gamma > 0 ? gamma : usual_gamma};
    link[0].outer = &link[1];
}
