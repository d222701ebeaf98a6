/* info_topology.c -- hkt-info --topology: a machine, this one or one that is given, as a tree of text, with the rings, trees, rails and groups
 * of ranks on it; saved as XML; drawn (info_drawing.c).
 */
#include "info.h"

#include "base/memory.h"
#include "setup/graph.h"

#include <stdio.h>

/* As many ranks as there are GPUs or, without any, cores: those of one host when they are many. */
static int usual_ranks(const struct hkt_topology *t)
{
    const int gpus  = hkt_object_count(t, 0, HKT_OBJECT_GPU);
    const int count = gpus ? gpus : hkt_object_count(t, 0, HKT_OBJECT_CORE);

    return count ? count : hkt_object_count(t, 0, HKT_OBJECT_HOST);
}

static int print_graph(const struct hkt_topology *t, int ranks)
{
    struct hkt_graph g;
    int             *at = hkt_alloc((size_t)ranks * sizeof(int));
    int              rc = at ? hkt_graph_place(t, ranks, at) : HKT_ERR_MEMORY;

    if (!rc)
        rc = hkt_graph_make(&g, t, at, ranks);
    if (!rc) {
        printf("\n");
        hkt_graph_print(stdout, &g);
        hkt_graph_free(&g);
    }
    hkt_free(at);
    return rc;
}

int info_topology(const struct info_topology *what)
{
    struct hkt_topology t;
    int                 rc = what->machine ? hkt_topology_load(&t, what->machine) : hkt_topology_get(&t);
    const bool          saved = what->xml || what->svg;

    if (!rc && what->xml)
        rc = hkt_topology_save(&t, what->xml);
    if (!rc && what->svg)
        rc = info_drawing(&t, what->svg);
    if (!rc && !saved) {
        hkt_topology_print(stdout, &t);
        rc = print_graph(&t, what->ranks ? what->ranks : usual_ranks(&t));
    }
    if (rc)
        fprintf(stderr, "hkt-info: %s\n", hkt_last_error());
    else
        hkt_topology_free(&t);
    return rc ? 1 : 0;
}
