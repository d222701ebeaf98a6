/* graph.h -- what collectives want to know of a machine: how far two objects or ranks are from one another, which ranks belong together,
 * which NIC each uses, and in which rings and trees data goes about without crossing far links more often than it must.
 *
 * All of it are pure functions of the machine and of where the ranks are, the same on every rank that has the same of both. Ranks are
 * numbers 0 .. size - 1 in any order over hosts.
 */
#ifndef HKT_GRAPH_H
#define HKT_GRAPH_H

#include "language/algorithm.h"
#include "language/fabric.h"
#include "setup/machine.h"
#include "setup/topology.h"

#include <stdio.h>

/* ---- between two objects ------------------------------------------------------------------------------------------------------ */

/* The class of the way between two objects. Of two hosts: rail and leaf are for NICs, everything else is network. */
enum hkt_class hkt_objects_class(const struct hkt_topology *t, int a, int b);

/* What one message over it costs: the class's, and no more bandwidth than the ports and links on the way have. */
struct hkt_class_cost hkt_objects_cost(const struct hkt_topology *t, int a, int b);

/* ---- ranks on a machine ------------------------------------------------------------------------------------------------------- */

/* Which ranks belong together: those that share an object of the kind, or, for HKT_GROUP_ISLAND, whose GPUs reach one another by GPU links. A
 * rank without such an object is alone. */
enum hkt_group { HKT_GROUP_HOST, HKT_GROUP_SOCKET, HKT_GROUP_NUMA, HKT_GROUP_CACHE, HKT_GROUP_ISLAND, HKT_GROUPS };

extern const char *const hkt_group_name[HKT_GROUPS];

enum { HKT_RINGS_MOST = 16, HKT_GRAPH_RANKS_MOST = 1 << 20 };

struct hkt_graph {
    const struct hkt_topology *machine; /* not ours; stays as long as the graph */
    int                        size;    /* ranks */
    int                        hosts;   /* hosts that have ranks */
    int                        rails;   /* NICs that each of these uses; the least of them; 0: some have none */
    int                        rings, trees;
    double                     wire_bandwidth; /* of the fastest link between GPUs */
    int *at;            /* [size] the object that the rank is on */
    int *host;          /* [size] its host, counted from 0 in the order of their least ranks */
    int *start;         /* [hosts + 1] of their ranks in `member` */
    int *member;        /* [size] ranks host by host, those of a host by where they are in the machine, then by number */
    int *nic;           /* [size] the NIC (an object) that the rank uses; -1: its host has none */
    int *rail;          /* [size] its number among the NICs that its host uses: equal rails of different hosts talk to one another; -1 */
    int *ring;          /* [rings][size] the ranks in the order of the ring */
    int *tree;          /* [trees][size] the parent of each rank; -1: the root */
    int *group[HKT_GROUPS]; /* [size] the group of each rank, counted from 0 in the order of their least ranks */
    int  groups[HKT_GROUPS];
};

/* Where `size` ranks go that were not placed by anybody: consecutive ranks to a host, as equally many as can be; on GPUs when every host has
 * some, else on cores, evenly over memory nodes. `at` gets an object for each. */
int hkt_graph_place(const struct hkt_topology *t, int size, int *at);

/* Where a rank is whose thread may run on these processors of the host: on the innermost object that has all of them, so for one that is
 * bound its core; the host when the machine does not know them. */
int hkt_graph_seat(const struct hkt_topology *t, int host, const struct hkt_cpus *cpus);

/* Fills the graph. `at`: an object for each rank (GPU, core, or what is known: any object of a host, or the host). 0; HKT_ERR_ARGUMENT: no
 * such object; HKT_ERR_MEMORY. On an error the graph holds nothing. */
int  hkt_graph_make(struct hkt_graph *g, const struct hkt_topology *t, const int *at, int size);
void hkt_graph_free(struct hkt_graph *g);

/* Between two ranks: as between their objects, and through the NICs that they use. */
enum hkt_class        hkt_graph_class(const struct hkt_graph *g, int a, int b);
struct hkt_class_cost hkt_graph_cost(const struct hkt_graph *g, int a, int b);

/* For hkt_shape: where groups of consecutive ranks begin, groups + 1 numbers into `start` (room for size + 1). The number of groups; 0 when some
 * group's ranks are not consecutive. */
int hkt_graph_starts(const struct hkt_graph *g, enum hkt_group group, int *start);

/* For cost() of an algorithm: link[0] is the slowest link between neighbours of a ring inside a host, link[1], the outer of link[0], the
 * one between hosts (each rail its own). `gamma`: seconds per byte of reduction, as measured; 0: what is usual. */
void hkt_graph_links(const struct hkt_graph *g, double gamma, struct hkt_link link[2]);

/* Puts into a fabric what the machine knows (hosts, ranks of a host and a cache or island, rails, hosts of a leaf switch; latency, gap and
 * bandwidth of each span that there is) and leaves the rest as it is. HKT_ERR_UNSUPPORTED when the ranks are not numbered host by host, equally
 * many on each. */
int hkt_graph_fabric(const struct hkt_graph *g, struct hkt_fabric *f);

/* All of it as text: what the tests compare and hkt-info shows. */
void hkt_graph_print(FILE *f, const struct hkt_graph *g);
void hkt_topology_print(FILE *f, const struct hkt_topology *t);

/* An object's attributes in words: "H100, at 0000:1b:00.0, 80GiB". */
enum { HKT_DESCRIPTION = 256 };
void hkt_object_describe(const struct hkt_object *o, char text[HKT_DESCRIPTION]);

/* ---- its parts, in files of their own ----------------------------------------------------------------------------------------- */

/* How unwanted the way between two ranks is in a ring or tree: 0 (same object, fastest GPU link), 1 (other GPU link, cache) ... 6 (network). */
int hkt_graph_level(const struct hkt_graph *g, int a, int b);

/* The leaf switch of the NIC of the host's first rank, which stands for the host. */
int hkt_graph_leaf(const struct hkt_graph *g, int host);

/* Reorders ranks of one host so that one of the rail is first, then those of its cache, memory node and socket, then the others. */
void hkt_graph_lead(const struct hkt_graph *g, int rail, int *rank, int n);

int hkt_graph_rails(struct hkt_graph *g); /* graph_rail.c: nic, rail, rails */
int hkt_graph_rings(struct hkt_graph *g); /* graph_ring.c: ring, rings */
int hkt_graph_trees(struct hkt_graph *g); /* graph_tree.c: tree, trees */

#endif
