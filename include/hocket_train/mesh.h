/* mesh.h -- the axes of parallelism laid over ranks, with a communicator for each group. A part of hocket_train.h, whose conventions hold. */
#ifndef HOCKET_TRAIN_MESH_H
#define HOCKET_TRAIN_MESH_H

#include <hocket.h>

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A mesh lays the axes of parallelism over the ranks 0 .. world - 1: rank = sum over axes of coordinate * stride. The order
 * says which axis is the fastest, that is, has stride 1; by default "tp-cp-dp-pp" (Megatron's, expert axes left out). */
typedef enum { HKT_AXIS_TP = 0, HKT_AXIS_CP, HKT_AXIS_DP, HKT_AXIS_PP, HKT_AXES } hkt_axis_t;

/* A mask holds the axes that vary inside a group; the others are the same for all its members. */
enum {
    HKT_MASK_TP    = 1 << HKT_AXIS_TP,
    HKT_MASK_CP    = 1 << HKT_AXIS_CP,
    HKT_MASK_DP    = 1 << HKT_AXIS_DP,
    HKT_MASK_PP    = 1 << HKT_AXIS_PP,
    HKT_MASK_DP_CP = HKT_MASK_DP | HKT_MASK_CP, /* who adds gradients up */
    HKT_MASK_MODEL = HKT_MASK_TP | HKT_MASK_PP, /* who holds one copy of the model */
    HKT_MASK_ALL   = (1 << HKT_AXES) - 1
};

/* The pure part: a plain value for any world size, which needs no communicator. Read it, but let hkt_grid_init() fill it. */
typedef struct {
    int        world;
    int        size[HKT_AXES];
    int        stride[HKT_AXES]; /* ranks between neighbours along the axis */
    hkt_axis_t order[HKT_AXES];  /* the fastest first; axes that the order string left out last */
} hkt_grid_t;

/* `size[HKT_AXIS_DP]` may be 0: world / (tp * cp * pp). `order` names axes with '-' between them, NULL is the default; an
 * axis that it leaves out must have size 1. HKT_ERR_ARGUMENT names every rule that is broken, with the values that would be
 * valid. */
HKT_API int hkt_grid_init(hkt_grid_t *grid, int world, const int size[HKT_AXES], const char *order);

HKT_API int hkt_grid_coordinates(int at[HKT_AXES], const hkt_grid_t *grid, int rank);
HKT_API int hkt_grid_rank(int *rank, const hkt_grid_t *grid, const int at[HKT_AXES]);

/* The groups of a mask: `count` groups of `size` ranks each, which together are the world. Inside a group, ranks stand in
 * the order of the axes (the fastest of the mask first); groups are numbered in the order of the other axes. */
HKT_API int hkt_grid_groups(int *count, int *size, const hkt_grid_t *grid, unsigned mask);
HKT_API int hkt_grid_group(int *ranks, const hkt_grid_t *grid, unsigned mask, int group);                 /* ranks[size] */
HKT_API int hkt_grid_locate(int *group, int *member, const hkt_grid_t *grid, unsigned mask,
                            int rank); /* rank = group[member] */

/* Who holds the tied embedding: first and last rank of pipeline group `group`, `n` = 2; the only one, `n` = 1, without a
 * pipeline. ranks[0] alone holds the position embedding. */
HKT_API int hkt_grid_embedding(int ranks[2], int *n, const hkt_grid_t *grid, int group);

/* Where a rank runs, and the slowest thing between two of them. */
typedef struct { int node, socket; } hkt_place_t;
typedef enum {
    HKT_LINK_NONE = 0, /* a group of one */
    HKT_LINK_SOCKET,   /* the same processor */
    HKT_LINK_NODE,     /* two processors of one machine */
    HKT_LINK_NETWORK,
    HKT_LINKS
} hkt_link_t;
HKT_API const char *hkt_link_name(hkt_link_t link); /* "socket"; "?" when it is no link */

/* Fills places[world] with nodes of `per_node` ranks and processors of `per_socket` ranks, in rank order; 0: all in one. */
HKT_API int hkt_places_fill(hkt_place_t *places, int world, int per_node, int per_socket);

/* Links of the groups of a mask. `worst[l]`: groups whose slowest link is l; `hops[l]`: neighbours within a group (the ring
 * that a collective walks, closed when there are more than two) that l connects, over all groups. `places`: [world], NULL:
 * one processor. */
HKT_API int hkt_grid_links(int worst[HKT_LINKS], int hops[HKT_LINKS], const hkt_grid_t *grid, unsigned mask,
                           const hkt_place_t *places);

/* A table of the above for every kind of group, and a warning where tensor parallelism crosses machines. */
HKT_API int hkt_grid_report(FILE *out, const hkt_grid_t *grid, const hkt_place_t *places);

/* The real part: the grid over the ranks of a communicator, with a communicator for each group that this rank belongs to. */
typedef struct hkt_mesh hkt_mesh_t;

/* Collective over `comm`; sizes and order as hkt_grid_init() and the same on all ranks, else every rank gets the error.
 * `config` is for the communicators made (NULL: HKT_CONFIG_INIT); they are called "tp 3", with the number of the group.
 * `comm` stays the caller's and has to outlive the mesh. */
HKT_API int hkt_mesh_create(hkt_mesh_t **mesh, hkt_comm_t *comm, const int size[HKT_AXES], const char *order,
                            const hkt_config_t *config);
HKT_API int hkt_mesh_destroy(hkt_mesh_t *mesh); /* with its communicators; not collective; NULL is allowed */

HKT_API int hkt_mesh_grid(hkt_grid_t *grid, const hkt_mesh_t *mesh);
HKT_API int hkt_mesh_coordinates(int at[HKT_AXES], const hkt_mesh_t *mesh); /* of this rank */

/* The communicator of this rank's group: "tp", "cp", "dp", "pp", "dp-cp", "tp-pp" or "embedding"; NULL is written where this
 * rank holds no embedding. Each has traffic counters of its own. It belongs to the mesh. */
HKT_API int hkt_mesh_comm(hkt_comm_t **comm, const hkt_mesh_t *mesh, const char *name);

/* Where the ranks really run: places[world], nodes numbered by their first rank. Collective over the mesh. Ranks that are
 * not bound to a processor are placed where they happen to run. */
HKT_API int hkt_mesh_places(hkt_place_t *places, const hkt_mesh_t *mesh);

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_MESH_H */
