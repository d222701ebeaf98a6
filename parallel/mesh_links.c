/* mesh_links.c -- what the groups of a mesh cross: processors, machines.
 *
 * Computed, never assumed: with 8 ranks a machine and tensor parallelism 2, data parallel groups of two stay inside the
 * machine and the pipeline leaves it, against what is said of them in general. A group of n walks n hops (its ring), 1
 * when n is 2. */
#include <parallel/common.h>

#include <string.h>

static const char *const link_name[HKT_LINKS] = {
    [HKT_LINK_NONE] = "none", [HKT_LINK_SOCKET] = "socket", [HKT_LINK_NODE] = "node", [HKT_LINK_NETWORK] = "network"};

static const struct {
    const char *name;
    unsigned    mask;
} kind[] = {
    {"tp", HKT_MASK_TP}, {"cp", HKT_MASK_CP},       {"dp", HKT_MASK_DP},
    {"pp", HKT_MASK_PP}, {"dp-cp", HKT_MASK_DP_CP}, {"tp-pp", HKT_MASK_MODEL},
};

const char *hkt_link_name(hkt_link_t link)
{
    return (unsigned)link < HKT_LINKS ? link_name[link] : "?";
}

int hkt_places_fill(hkt_place_t *places, int world, int per_node, int per_socket)
{
    if (!places || world < 1 || per_node < 0 || per_socket < 0)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_places_fill: %s",
                             !places
                                 ? "places is NULL"
                                 : "the world is at least one rank, ranks per node and per socket are 0 (all) or more");
    for (int r = 0; r < world; r++) {
        const int in_node = per_node ? r % per_node : r;

        places[r] = (hkt_place_t){per_node ? r / per_node : 0, per_socket ? in_node / per_socket : 0};
    }
    return HKT_OK;
}

static hkt_link_t between(const hkt_place_t *places, int a, int b)
{
    if (a == b)
        return HKT_LINK_NONE;
    if (!places)
        return HKT_LINK_SOCKET;
    if (places[a].node != places[b].node)
        return HKT_LINK_NETWORK;
    return places[a].socket != places[b].socket ? HKT_LINK_NODE : HKT_LINK_SOCKET;
}

/* Adds one group's hops. Its slowest hop is its slowest link: whoever walks the ring comes to every member. */
static hkt_link_t walk(int hops[HKT_LINKS], const int *ranks, int n, const hkt_place_t *places)
{
    const int  count = n == 1 ? 0 : n == 2 ? 1 : n;
    hkt_link_t worst = HKT_LINK_NONE;

    for (int i = 0; i < count; i++) {
        const hkt_link_t link = between(places, ranks[i], ranks[(i + 1) % n]);

        hops[link]++;
        worst = link > worst ? link : worst;
    }
    return worst;
}

int hkt_grid_links(int worst[HKT_LINKS], int hops[HKT_LINKS], const hkt_grid_t *grid, unsigned mask,
                   const hkt_place_t *places)
{
    void *ranks = NULL;
    int   count, size;

    TRY(hkt_grid_groups(&count, &size, grid, mask));
    TRY(hkt_ledger_take(&ranks, (size_t)size * sizeof(int), HKT_BYTES_OTHER, false, NULL));
    memset(worst, 0, HKT_LINKS * sizeof(*worst));
    memset(hops, 0, HKT_LINKS * sizeof(*hops));
    for (int g = 0; g < count; g++) {
        (void)hkt_grid_group(ranks, grid, mask, g); /* in range */
        worst[walk(hops, ranks, size, places)]++;
    }
    return hkt_ledger_give(ranks, NULL);
}

/* The largest tensor parallelism of this grid whose groups stay inside machines. */
static int fitting_tp(const hkt_grid_t *grid, const hkt_place_t *places)
{
    int best = 1;

    for (int tp = 1; tp <= grid->size[HKT_AXIS_TP]; tp++) {
        const int  size[HKT_AXES] = {tp, 1, 0, 1};
        int        worst[HKT_LINKS], hops[HKT_LINKS];
        hkt_grid_t other;

        if (grid->size[HKT_AXIS_TP] % tp == 0 && !hkt_grid_init(&other, grid->world, size, NULL) &&
            !hkt_grid_links(worst, hops, &other, HKT_MASK_TP, places) && !worst[HKT_LINK_NETWORK])
            best = tp;
    }
    return best;
}

static int row(FILE *out, const hkt_grid_t *grid, size_t k, const hkt_place_t *places, int worst[HKT_LINKS])
{
    int hops[HKT_LINKS], count, size, classes = 0;

    TRY(hkt_grid_groups(&count, &size, grid, kind[k].mask));
    TRY(hkt_grid_links(worst, hops, grid, kind[k].mask, places));
    for (int l = HKT_LINK_SOCKET; l < HKT_LINKS; l++)
        classes += hops[l] > 0;
    fprintf(out, "%-6s %6d of %-5d %5d", kind[k].name, count, size, classes);
    for (int l = HKT_LINK_SOCKET; l < HKT_LINKS; l++)
        fprintf(out, "  %8d %8d", worst[l], hops[l]);
    fprintf(out, "\n");
    return HKT_OK;
}

int hkt_grid_report(FILE *out, const hkt_grid_t *grid, const hkt_place_t *places)
{
    int worst[HKT_LINKS], nodes = 1, tp_outside = 0;

    if (!out || !grid || grid->world < 1)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_grid_report: %s",
                             out ? "the grid was not made by hkt_grid_init()" : "out is NULL");
    for (int r = 0; places && r < grid->world; r++)
        nodes = places[r].node >= nodes ? places[r].node + 1 : nodes;
    fprintf(out, "mesh of %d ranks on %d node%s: tp %d, cp %d, dp %d, pp %d\n", grid->world, nodes,
            nodes == 1 ? "" : "s", grid->size[HKT_AXIS_TP], grid->size[HKT_AXIS_CP], grid->size[HKT_AXIS_DP],
            grid->size[HKT_AXIS_PP]);
    fprintf(out, "for each link: groups whose slowest it is, and neighbours that it joins\n");
    fprintf(out, "%-6s %-15s %5s", "group", "groups of ranks", "links");
    for (int l = HKT_LINK_SOCKET; l < HKT_LINKS; l++)
        fprintf(out, "  %8s %8s", link_name[l], "hops");
    fprintf(out, "\n");
    for (size_t k = 0; k < sizeof(kind) / sizeof(kind[0]); k++) {
        TRY(row(out, grid, k, places, worst));
        tp_outside = kind[k].mask == HKT_MASK_TP ? worst[HKT_LINK_NETWORK] : tp_outside;
    }
    if (tp_outside)
        fprintf(out,
                "warning: %d of the tp groups cross machines, and every layer waits for them four times; tp %d stays "
                "inside\n",
                tp_outside, fitting_tp(grid, places));
    return HKT_OK;
}
