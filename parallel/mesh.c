/* mesh.c -- the real part of the mesh: a communicator for every group that this rank is in.
 *
 * Communicators are made by splitting the caller's in the order of one table, on every rank the same, with the number
 * of the group (mesh_grid.c) as colour and the place in it as key. Groups that happen to be equal (dp and dp-cp without
 * context parallelism) get communicators of their own all the same, so that traffic is counted by purpose and two parts
 * never share one. */
#include <parallel/agree.h>

#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { MADE_TP, MADE_CP, MADE_DP, MADE_PP, MADE_DP_CP, MADE_MODEL, MADE_EMBEDDING, MADE };

static const struct {
    const char *name;
    unsigned    mask; /* 0: the embedding */
} made[MADE] = {
    [MADE_TP] = {"tp", HKT_MASK_TP},          [MADE_CP] = {"cp", HKT_MASK_CP},
    [MADE_DP] = {"dp", HKT_MASK_DP},          [MADE_PP] = {"pp", HKT_MASK_PP},
    [MADE_DP_CP] = {"dp-cp", HKT_MASK_DP_CP}, [MADE_MODEL] = {"tp-pp", HKT_MASK_MODEL},
    [MADE_EMBEDDING] = {"embedding", 0},
};

struct hkt_mesh {
    hkt_grid_t  grid;
    int         rank;
    hkt_comm_t *parent;
    hkt_comm_t *comm[MADE]; /* NULL: no member */
};

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* Which group of the k-th kind this rank is in, and where in it; colour -1: in none. */
static int position(int *colour, int *key, const struct hkt_mesh *mesh, int k)
{
    int ranks[2], n;

    TRY(hkt_grid_locate(colour, key, &mesh->grid, k == MADE_EMBEDDING ? HKT_MASK_PP : made[k].mask, mesh->rank));
    if (k == MADE_EMBEDDING) {
        TRY(hkt_grid_embedding(ranks, &n, &mesh->grid, *colour));
        if (mesh->rank != ranks[0] && mesh->rank != ranks[1])
            *colour = -1;
    }
    return HKT_OK;
}

/* A NULL config inherits the parent's limits, but cannot carry a name; the names are worth an explicit one. */
static int split(struct hkt_mesh *mesh, int k, const hkt_config_t *given)
{
    const hkt_config_t initial = HKT_CONFIG_INIT;
    hkt_config_t       config  = given ? *given : initial;
    char               name[32];
    int                colour, key;

    TRY(position(&colour, &key, mesh, k));
    snprintf(name, sizeof(name), "%s %d", made[k].name, colour);
    config.name = name;
    return hkt_comm_split(&mesh->comm[k], mesh->parent, colour, key, &config);
}

int hkt_mesh_destroy(hkt_mesh_t *mesh)
{
    int rc = HKT_OK;

    if (!mesh)
        return HKT_OK;
    for (int k = MADE - 1; k >= 0; k--) {
        const int code = hkt_comm_destroy(mesh->comm[k]);

        rc = rc ? rc : code;
    }
    (void)hkt_ledger_give(mesh, NULL);
    return rc;
}

/* Sizes in the order of the axes, with the strides that the order string has led to. */
static void print_grid(char *text, size_t size, const hkt_grid_t *g)
{
    snprintf(text, size, "tp %d, cp %d, dp %d, pp %d (strides %d, %d, %d, %d)", g->size[HKT_AXIS_TP],
             g->size[HKT_AXIS_CP], g->size[HKT_AXIS_DP], g->size[HKT_AXIS_PP], g->stride[HKT_AXIS_TP],
             g->stride[HKT_AXIS_CP], g->stride[HKT_AXIS_DP], g->stride[HKT_AXIS_PP]);
}

int hkt_mesh_create(hkt_mesh_t **mesh, hkt_comm_t *comm, const int size[HKT_AXES], const char *order,
                    const hkt_config_t *config)
{
    struct hkt_mesh *m = NULL;
    char             request[128];
    void            *memory;
    int              n, rc;

    if (!mesh)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_mesh_create: mesh is NULL");
    TRY(hkt_comm_size(comm, &n));
    TRY(hkt_ledger_take(&memory, sizeof(*m), HKT_BYTES_OTHER, false, NULL));
    m         = memory;
    m->parent = comm;
    rc        = hkt_grid_init(&m->grid, n, size, order);
    print_grid(request, sizeof(request), &m->grid);
    rc = hkt_agree(comm, rc, "hkt_mesh_create", request);
    if (!rc)
        rc = hkt_comm_rank(comm, &m->rank);
    for (int k = 0; k < MADE && !rc; k++)
        rc = split(m, k, config);
    if (rc) {
        (void)hkt_mesh_destroy(m);
        return rc;
    }
    *mesh = m;
    return HKT_OK;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

int hkt_mesh_grid(hkt_grid_t *grid, const hkt_mesh_t *mesh)
{
    if (!grid || !mesh)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_mesh_grid: %s is NULL", grid ? "mesh" : "grid");
    *grid = mesh->grid;
    return HKT_OK;
}

int hkt_mesh_coordinates(int at[HKT_AXES], const hkt_mesh_t *mesh)
{
    if (!at || !mesh)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_mesh_coordinates: %s is NULL", at ? "mesh" : "at");
    return hkt_grid_coordinates(at, &mesh->grid, mesh->rank);
}

int hkt_mesh_comm(hkt_comm_t **comm, const hkt_mesh_t *mesh, const char *name)
{
    if (!comm || !mesh || !name)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_mesh_comm: %s is NULL", !comm ? "comm" : mesh ? "name" : "mesh");
    for (int k = 0; k < MADE; k++)
        if (!strcmp(name, made[k].name)) {
            *comm = mesh->comm[k];
            return HKT_OK;
        }
    return hkt_error_set(HKT_ERR_ARGUMENT,
                         "hkt_mesh_comm: \"%.40s\" is no group of a mesh; tp, cp, dp, pp, dp-cp, tp-pp or embedding",
                         name);
}

/* ---- where the ranks are ----------------------------------------------------------------------------------------- */

/* What tells machines apart, and the processor of this one that the calling thread runs on. */
struct spot {
    char    machine[128];
    int32_t socket;
};

static void find_spot(struct spot *spot)
{
    const int cpu = sched_getcpu();
    char      path[96], boot[40] = "";
    FILE     *file = fopen("/proc/sys/kernel/random/boot_id",
                           "re"); /* containers of one machine may have the same host name or not */

    memset(spot, 0, sizeof(*spot));
    if (file && fgets(boot, sizeof(boot), file))
        snprintf(spot->machine, sizeof(spot->machine), "%s", boot);
    else
        (void)gethostname(spot->machine, sizeof(spot->machine) - 1);
    if (file)
        fclose(file);
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu < 0 ? 0 : cpu);
    file = fopen(path, "re");
    if (file) {
        if (fscanf(file, "%d", &spot->socket) != 1 || spot->socket < 0)
            spot->socket = 0;
        fclose(file);
    }
}

/* Machines numbered by the first rank on each. */
static void number_nodes(hkt_place_t *places, const struct spot *spots, int n)
{
    int nodes = 0;

    for (int r = 0; r < n; r++) {
        int first = 0;

        while (memcmp(spots[first].machine, spots[r].machine, sizeof(spots[r].machine)))
            first++;
        places[r] = (hkt_place_t){first < r ? places[first].node : nodes++, spots[r].socket};
    }
}

int hkt_mesh_places(hkt_place_t *places, const hkt_mesh_t *mesh)
{
    struct spot mine;
    void       *all = NULL;
    int         rc;

    if (!places || !mesh)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_mesh_places: %s is NULL", places ? "mesh" : "places");
    TRY(hkt_ledger_take(&all, (size_t)mesh->grid.world * sizeof(mine), HKT_BYTES_OTHER, false, NULL));
    find_spot(&mine);
    rc = hkt_all_gather(&mine, all, sizeof(mine), HKT_UINT8, mesh->parent, NULL);
    if (!rc)
        number_nodes(places, all, mesh->grid.world);
    (void)hkt_ledger_give(all, NULL);
    return rc;
}
