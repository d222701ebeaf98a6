/* graph_rail.c -- which NIC each rank uses. See graph.h.
 *
 * The NICs that count are the fast ones of the host: at least half as fast as the fastest, so that an adapter for storage or management is
 * left alone. They are shared evenly (no NIC gets more than its share of ranks while others have less), and within that every rank gets the
 * nearest: ranks are matched along augmenting paths with NICs at growing distance, so a rank moves on to another near NIC when that lets one
 * more have a near one. With more NICs than ranks, ranks are shared out over NICs in the same way, and a rank's first NIC is its own.
 *
 * Hosts of one kind come to the same result, since nothing but their objects' order goes into it: rail 3 of one is rail 3 of the others.
 */
#include "graph.h"

#include "base/memory.h"
#include "hocket.h"

#include <math.h>
#include <string.h>

/* Left and right are ranks and NICs of a host, or the other way round when there are more NICs: every left one gets one right one, and a
 * right one at most `share` left ones. */
struct matching {
    const struct hkt_graph *g;
    const int              *left, *right; /* objects */
    int                     lefts, rights, share;
    enum hkt_class          far;          /* nothing farther may be matched */
    int                    *of;           /* [lefts] index of its right one; -1 */
    int                    *used;         /* [rights] */
    bool                   *seen;         /* [rights] in the present attempt */
};

static bool near(const struct matching *m, int left, int right)
{
    return hkt_objects_class(m->g->machine, m->left[left], m->right[right]) <= m->far;
}

/* A free place if there is one, else one that somebody can be moved away from. At most `rights` calls deep, since each takes one from
 * `seen`. */
static bool match(struct matching *m, int left)
{
    for (int r = 0; r < m->rights; r++)
        if (!m->seen[r] && m->used[r] < m->share && near(m, left, r)) {
            m->used[r]++;
            m->of[left] = r;
            return true;
        }
    for (int r = 0; r < m->rights; r++) {
        if (m->seen[r] || !near(m, left, r))
            continue;
        m->seen[r] = true;
        for (int other = 0; other < m->lefts; other++)
            if (m->of[other] == r && match(m, other)) { /* it has moved, and its place is free */
                m->of[left] = r;
                return true;
            }
    }
    return false;
}

static void match_all(struct matching *m)
{
    memset(m->of, -1, (size_t)m->lefts * sizeof(int));
    memset(m->used, 0, (size_t)m->rights * sizeof(int));
    for (int over = 0; over < 2; over++) /* everybody's share first, then the rest */
        for (m->share = m->lefts / m->rights + over, m->far = HKT_CLASS_SELF; m->far <= HKT_CLASS_HOST; m->far++)
            for (int left = 0; left < m->lefts; left++) {
                memset(m->seen, 0, (size_t)m->rights * sizeof(bool));
                if (m->of[left] < 0)
                    match(m, left);
            }
}

/* The NICs of the host that count, in their order. */
static int fast_nics(const struct hkt_topology *t, int host, int *nic)
{
    double fastest = 0;
    int    n       = 0;

    for (int o = host; o < t->object[host].end; o++)
        if (t->object[o].kind == HKT_OBJECT_NIC)
            fastest = fmax(fastest, hkt_port_bandwidth(t, o));
    for (int o = host; o < t->object[host].end; o++)
        if (t->object[o].kind == HKT_OBJECT_NIC && hkt_port_bandwidth(t, o) >= fastest / 2)
            nic[n++] = o;
    return n;
}

/* Numbers of rails are places among the NICs that are used. */
static int number_rails(struct hkt_graph *g, const int *member, int ranks, const int *nic, int nics)
{
    int rails = 0;

    for (int i = 0; i < nics; i++) {
        bool used = false;

        for (int r = 0; r < ranks; r++)
            if (g->nic[member[r]] == nic[i]) {
                g->rail[member[r]] = rails;
                used               = true;
            }
        rails += used;
    }
    return rails;
}

/* One host: its ranks are `member`, in the order of their places. `room`: 5 arrays of as many ints as there are NICs and ranks together. */
static int rails_of_host(struct hkt_graph *g, const int *member, int ranks, int *room, int each)
{
    const int       host = hkt_object_above(g->machine, g->at[member[0]], HKT_OBJECT_HOST);
    int            *nic = room, *place = room + each;
    const int       nics = fast_nics(g->machine, host, nic);
    const bool      more = nics > ranks;
    struct matching m    = {.g = g, .left = more ? nic : place, .right = more ? place : nic, .lefts = more ? nics : ranks,
                            .rights = more ? ranks : nics, .of = room + 2 * each, .used = room + 3 * each, .seen = (void *)(room + 4 * each)};

    for (int i = 0; i < ranks; i++) {
        place[i]           = g->at[member[i]];
        g->nic[member[i]]  = -1;
        g->rail[member[i]] = -1;
    }
    if (!nics)
        return 0;
    match_all(&m);
    for (int i = m.lefts - 1; i >= 0; i--) { /* backwards, so that a rank's first NIC stays */
        const int rank = member[more ? m.of[i] : i];

        g->nic[rank] = more ? nic[i] : nic[m.of[i]];
    }
    return number_rails(g, member, ranks, nic, nics);
}

int hkt_graph_rails(struct hkt_graph *g)
{
    int  most = 0, each;
    int *room;

    for (int h = 0; h < g->hosts; h++) {
        const int host = hkt_object_above(g->machine, g->at[g->member[g->start[h]]], HKT_OBJECT_HOST);
        const int size = g->start[h + 1] - g->start[h] + hkt_object_count(g->machine, host, HKT_OBJECT_NIC);

        most = size > most ? size : most;
    }
    each = most;
    room = hkt_alloc(5 * (size_t)each * sizeof(int));
    if (!room)
        return HKT_ERR_MEMORY;
    g->rails = 0;
    for (int h = 0; h < g->hosts; h++) {
        const int rails = rails_of_host(g, g->member + g->start[h], g->start[h + 1] - g->start[h], room, each);

        g->rails = h == 0 || rails < g->rails ? rails : g->rails;
    }
    hkt_free(room);
    return HKT_OK;
}
