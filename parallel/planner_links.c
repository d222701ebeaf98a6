/* planner_links.c -- what communication costs by the alpha-beta model, where a group may span several classes of links.
 *
 * A reduce-scatter over classes: first within the smallest blocks, then a block's share between them, and so on (the
 * library's hierarchical algorithm), each level at its own bandwidth with ceil(log2 n) messages one after the other.
 * Groups that do not fill aligned blocks evenly get no credit for the faster class.
 */
#include <parallel/planner.h>

#include <math.h>

/* Members of the group that lie in one block of a class; 1 where they fill it unevenly. */
static int members_within(const struct hkt_planner_group *g, int class)
{
    const int span = g->machine->link[class].span;

    if (class == g->machine->links - 1)
        return g->size;
    if (span / g->size >= g->stride)
        return span % (g->stride * g->size) == 0 ? g->size : 1;
    return span % g->stride == 0 && g->size % (span / g->stride) == 0 ? span / g->stride : 1;
}

double hkt_planner_scatter(const struct hkt_planner_group *g, double bytes)
{
    double seconds = 0;
    int    done    = 1; /* members that already share the vector */

    for (int class = 0; class < g->machine->links && done < g->size; class ++) {
        const hkt_plan_link_t *link = &g->machine->link[class];
        const int              all  = members_within(g, class);
        const int              n    = all > done ? all / done : 1;

        if (n == 1)
            continue;
        seconds += (n - 1.0) / n * (bytes / done) / link->bandwidth + ceil(log2(n)) * link->latency;
        done *= n;
    }
    return seconds;
}

int hkt_planner_link(const struct hkt_planner_group *g)
{
    for (int class = 0; class < g->machine->links; class ++)
        if (g->size > 1 && members_within(g, class) == g->size)
            return class;
    return -1;
}

double hkt_planner_shift(const struct hkt_planner_group *g, double bytes)
{
    const int class = hkt_planner_link(g);

    return class < 0 ? 0 : bytes / g->machine->link[class].bandwidth + g->machine->link[class].latency;
}
