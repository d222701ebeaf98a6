/* test_mesh.c -- the mesh: which ranks form which groups, as lists, as properties of every factorisation, and as
 * communicators. */
#include "harness.h"

#include <hocket_train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512 };

static hkt_grid_t grid(int tp, int cp, int dp, int pp, const char *order)
{
    const int  size[HKT_AXES] = {tp, cp, dp, pp};
    hkt_grid_t g;

    expect_ok(hkt_grid_init(&g, tp * cp * dp * pp, size, order));
    return g;
}

/* All groups of a mask as "[0,1] [2,3]". */
static const char *lists(const hkt_grid_t *g, unsigned mask)
{
    static char text[8192];
    int         count, size, ranks[MOST];
    size_t      used = 0;

    expect_ok(hkt_grid_groups(&count, &size, g, mask));
    for (int k = 0; k < count; k++) {
        expect_ok(hkt_grid_group(ranks, g, mask, k));
        for (int i = 0; i < size; i++)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d", i ? "," : k ? " [" : "[", ranks[i]);
        used += (size_t)snprintf(text + used, sizeof(text) - used, "]");
    }
    return text;
}

static void expect_lists(const hkt_grid_t *g, unsigned mask, const char *wanted)
{
    const char *got = lists(g, mask);

    expect(!strcmp(got, wanted), "mask %x gives %s and not %s", mask, got, wanted);
}

/* Proves rows 45 to 48: the group lists of Megatron's documentation, world 16, TP 2, PP 4, DP 2; the default order is
 * that. */
START_TEST(T_R45_R48_golden_world_16)
{
    const hkt_grid_t g = grid(2, 1, 2, 4, NULL);

    expect_lists(&g, HKT_MASK_TP, "[0,1] [2,3] [4,5] [6,7] [8,9] [10,11] [12,13] [14,15]");
    expect_lists(&g, HKT_MASK_PP, "[0,4,8,12] [1,5,9,13] [2,6,10,14] [3,7,11,15]");
    expect_lists(&g, HKT_MASK_DP, "[0,2] [1,3] [4,6] [5,7] [8,10] [9,11] [12,14] [13,15]");
    expect_lists(&g, HKT_MASK_DP_CP, "[0,2] [1,3] [4,6] [5,7] [8,10] [9,11] [12,14] [13,15]");
    expect_lists(&g, HKT_MASK_MODEL, "[0,1,4,5,8,9,12,13] [2,3,6,7,10,11,14,15]");
    expect_lists(&g, HKT_MASK_TP | HKT_MASK_DP, "[0,1,2,3] [4,5,6,7] [8,9,10,11] [12,13,14,15]");
    expect_lists(&g, HKT_MASK_ALL, "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]");
    for (int k = 0; k < 4; k++) {
        int ranks[2], n;

        expect_ok(hkt_grid_embedding(ranks, &n, &g, k));
        expect(n == 2 && ranks[0] == k && ranks[1] == k + 12, "embedding group %d is %d, %d", k, ranks[0], ranks[1]);
    }
}
END_TEST

/* Proves: the other order that people use, and that the order changes what it should. */
START_TEST(T_R45_pipeline_before_data)
{
    const hkt_grid_t g = grid(2, 1, 2, 4, "tp-pp-dp"); /* cp, of size 1, is left out */

    expect_lists(&g, HKT_MASK_PP, "[0,2,4,6] [1,3,5,7] [8,10,12,14] [9,11,13,15]");
    expect_lists(&g, HKT_MASK_DP, "[0,8] [1,9] [2,10] [3,11] [4,12] [5,13] [6,14] [7,15]");
}
END_TEST

/* Proves row 58: BLOOM's layout on 384 ranks. */
START_TEST(T_R58_golden_world_384)
{
    const hkt_grid_t g = grid(4, 1, 8, 12, "tp-cp-dp-pp");
    int              ranks[MOST], count, size;

    expect_ok(hkt_grid_groups(&count, &size, &g, HKT_MASK_PP));
    expect(count == 32 && size == 12, "%d groups of %d", count, size);
    expect_ok(hkt_grid_group(ranks, &g, HKT_MASK_PP, 31));
    for (int i = 0; i < 12; i++)
        expect(ranks[i] == 31 + 32 * i, "member %d is %d", i, ranks[i]);
    expect_ok(hkt_grid_group(ranks, &g, HKT_MASK_DP, 4 * 11 + 3)); /* the last */
    for (int i = 0; i < 8; i++)
        expect(ranks[i] == 352 + 3 + 4 * i, "member %d is %d", i, ranks[i]);
    expect_ok(hkt_grid_group(ranks, &g, HKT_MASK_TP, 95));
    expect(ranks[0] == 380 && ranks[3] == 383, "the last tp group is %d to %d", ranks[0], ranks[3]);
    expect_ok(hkt_grid_group(ranks, &g, HKT_MASK_MODEL, 1));
    expect(ranks[0] == 4 && ranks[3] == 7 && ranks[4] == 36 && ranks[47] == 4 + 3 + 32 * 11,
           "the second copy of the model is elsewhere");
}
END_TEST

/* ---- properties of every factorisation */

static void check_mask(const hkt_grid_t *g, unsigned mask)
{
    int  ranks[MOST], count, size;
    char seen[MOST] = {0};

    expect_ok(hkt_grid_groups(&count, &size, g, mask));
    expect(count * size == g->world, "%d groups of %d in a world of %d", count, size, g->world);
    for (int k = 0; k < count; k++) {
        expect_ok(hkt_grid_group(ranks, g, mask, k));
        for (int i = 0; i < size; i++) {
            int group, member, across, in_across;

            expect(ranks[i] >= 0 && ranks[i] < g->world && !seen[ranks[i]]++, "rank %d is in two groups", ranks[i]);
            expect_ok(hkt_grid_locate(&group, &member, g, mask, ranks[i]));
            expect(group == k && member == i, "rank %d is in group %d at %d, not %d at %d", ranks[i], group, member, k,
                   i);
            expect_ok(hkt_grid_locate(&across, &in_across, g, HKT_MASK_ALL & ~mask, ranks[i]));
            expect(across == i && in_across == k,
                   "complementary groups do not meet in one rank"); /* the pair is unique, so they do */
        }
    }
}

static void check_grid(const hkt_grid_t *g)
{
    int ranks[MOST], at[HKT_AXES], back, count, size;

    for (unsigned mask = 0; mask <= HKT_MASK_ALL; mask++)
        check_mask(g, mask);
    for (int r = 0; r < g->world; r++) {
        expect_ok(hkt_grid_coordinates(at, g, r));
        expect_ok(hkt_grid_rank(&back, g, at));
        expect(back == r, "rank %d comes back as %d", r, back);
    }
    expect_ok(hkt_grid_groups(&count, &size, g, HKT_MASK_PP));
    expect_ok(hkt_grid_group(ranks, g, HKT_MASK_PP, 0));
    if (g->order[HKT_AXES - 1] == HKT_AXIS_PP) /* row 49: pipeline slowest, stride = world / PP = number of groups */
        for (int i = 1; i < size; i++)
            expect(ranks[i] - ranks[i - 1] == count, "neighbours in the pipeline are %d apart, groups are %d",
                   ranks[i] - ranks[i - 1], count);
}

static void factorisations(int world, const char *order)
{
    for (int tp = 1; tp <= world; tp++)
        for (int cp = 1; cp <= world / tp; cp++)
            for (int dp = 1; dp <= world / tp / cp; dp++) {
                if (world % tp || world / tp % cp || world / tp / cp % dp)
                    continue;
                const hkt_grid_t g = grid(tp, cp, dp, world / tp / cp / dp, order);

                doing("tp %d, cp %d, dp %d of %d in %s", tp, cp, dp, world, order);
                check_grid(&g);
            }
}

/* Proves row 49 and the rules of groups: they partition the world, complementary ones meet in one rank, coordinates are
 * one to one. */
START_TEST(T_R49_every_factorisation)
{
    static const char *const order[] = {"tp-cp-dp-pp", "tp-cp-pp-dp", "pp-dp-cp-tp", "dp-tp-pp-cp"};

    for (int world_size = 1; world_size <= (slow_build() ? 24 : 64); world_size++)
        factorisations(world_size, order[_i]);
}
END_TEST

/* Proves row 58: the same for all layouts of 384 ranks (without context parallelism in all orders; with it in the
 * default). */
START_TEST(T_R58_every_factorisation_of_384)
{
    const int factor[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 384};

    for (int a = 0; a < 16; a++)
        for (int b = 0; b < 16; b++) {
            const int rest = 384 / factor[a] % factor[b] ? 0 : 384 / factor[a] / factor[b];

            if (!rest || (!_i && rest % 2))
                continue;
            const hkt_grid_t g =
                _i ? grid(factor[a], 1, factor[b], rest, "tp-pp-dp") : grid(factor[a], 2, factor[b], rest / 2, NULL);

            check_grid(&g);
        }
}
END_TEST

/* ---- mistakes */

#define SIZE(tp, cp, dp, pp) ((const int[HKT_AXES]){tp, cp, dp, pp})

static void refused(int world_size, const int size[HKT_AXES], const char *order, const char *said)
{
    hkt_grid_t g = {.world = -7};

    expect_code(hkt_grid_init(&g, world_size, size, order), HKT_ERR_ARGUMENT);
    expect(g.world == -7, "the grid was written to");
    expect_said(said);
}

/* Proves: all that is wrong is said at once, with what would be valid; the data axis is derived. */
START_TEST(violations_are_all_named)
{
    const int  size[HKT_AXES] = {2, 1, 0, 3};
    hkt_grid_t g;

    expect_ok(hkt_grid_init(&g, 24, size, NULL));
    expect_true(g.size[HKT_AXIS_DP] == 4 && g.stride[HKT_AXIS_PP] == 8);
    refused(16, SIZE(3, 1, 0, 4), NULL, "breaks 1 rule:");
    refused(16, SIZE(3, 1, 0, 4), NULL, "12, which does not divide the 16 ranks");
    refused(16, SIZE(3, 1, 0, 4), NULL, "1, 2, 4 for tp");
    refused(16, SIZE(2, 1, 3, 4), NULL, "tp * cp * dp * pp is 24");
    refused(16, SIZE(2, 1, 3, 4), NULL, "2 for dp");
    refused(64, SIZE(3, 1, 5, 2), NULL, "none, more than one has to change");
    refused(16, SIZE(-1, 0, 2, 4), "tp-xx-dp-dp", "breaks 5 rules:");
    refused(16, SIZE(-1, 0, 2, 4), "tp-xx-dp-dp", "tp is -1");
    refused(16, SIZE(-1, 0, 2, 4), "tp-xx-dp-dp", "cp is 0");
    refused(16, SIZE(-1, 0, 2, 4), "tp-xx-dp-dp", "\"xx\"");
    refused(16, SIZE(-1, 0, 2, 4), "tp-xx-dp-dp", "names dp twice");
    refused(16, SIZE(-1, 0, 2, 4), "tp-xx-dp-dp", "leaves out pp");
    refused(0, SIZE(1, 1, 1, 1), NULL, "the world is 0 ranks");
    refused(16, SIZE(1, 1, 16, 1), "", "\"\" in the order");
    refused(16, SIZE(1 << 30, 1 << 30, 1 << 30, 1 << 30), NULL, "more than");
    refused(16, SIZE(1 << 30, 1 << 30, 0, 4), NULL, "more than");
    expect_code(hkt_grid_init(NULL, 16, size, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_grid_init(&g, 16, NULL, NULL), HKT_ERR_ARGUMENT);
}
END_TEST

/* Proves: whatever the order string, the grid is either one of the world or refused. */
START_TEST(any_order_string)
{
    static const char *const word[] = {"tp", "cp", "dp", "pp", "-", "-", "-", "", "p", "xx", "tp-cp-dp-pp"};
    int                      made   = 0;

    for (uint64_t k = 0; k < 100000; k++) {
        char       order[128] = "";
        hkt_grid_t g;

        for (uint64_t i = 0; i < mix(k) % 9; i++)
            strcat(order, word[mix(k * 16 + i) % (sizeof(word) / sizeof(word[0]))]);
        if (hkt_grid_init(&g, 24, SIZE(k % 2 ? 1 : 2, 1, 0, k % 3 ? 1 : 3), order) == HKT_OK) {
            int rank;

            made++;
            expect_ok(hkt_grid_rank(&rank, &g, SIZE(g.size[0] - 1, g.size[1] - 1, g.size[2] - 1, g.size[3] - 1)));
            expect(rank == 23, "\"%s\": the last coordinates are rank %d", order, rank);
        }
    }
    expect(made > 100, "only %d grids were made", made);
}
END_TEST

/* Proves: questions outside of the grid are refused and say the range. */
START_TEST(questions_out_of_range)
{
    const hkt_grid_t g = grid(2, 1, 2, 4, NULL), none = {0};
    int              a = -3, b = -3, ranks[MOST], at[HKT_AXES] = {0, 0, 2, 0};

    expect_code(hkt_grid_coordinates(at, &g, 16), HKT_ERR_ARGUMENT);
    expect_said("0 to 15");
    expect_code(hkt_grid_rank(&a, &g, at), HKT_ERR_ARGUMENT);
    expect_said("dp is 2; 0 to 1");
    expect_code(hkt_grid_group(ranks, &g, HKT_MASK_PP, 4), HKT_ERR_ARGUMENT);
    expect_said("group is 4; 0 to 3");
    expect_code(hkt_grid_groups(&a, &b, &g, 16), HKT_ERR_ARGUMENT);
    expect_code(hkt_grid_groups(&a, &b, &none, 1), HKT_ERR_ARGUMENT);
    expect_code(hkt_grid_locate(&a, &b, &g, 1, -1), HKT_ERR_ARGUMENT);
    expect_code(hkt_grid_embedding(ranks, &a, &g, 4), HKT_ERR_ARGUMENT);
    expect_true(a == -3 && b == -3);
}
END_TEST

/* ---- links */

static void expect_links(const hkt_grid_t *g, unsigned mask, const hkt_place_t *places, const int worst[HKT_LINKS],
                         const int hops[HKT_LINKS])
{
    int w[HKT_LINKS], h[HKT_LINKS];

    expect_ok(hkt_grid_links(w, h, g, mask, places));
    for (int l = 0; l < HKT_LINKS; l++)
        expect(w[l] == worst[l] && h[l] == hops[l], "mask %x has %d groups and %d hops on link %s, not %d and %d", mask,
               w[l], h[l], hkt_link_name((hkt_link_t)l), worst[l], hops[l]);
}

static char *report(const hkt_grid_t *g, const hkt_place_t *places)
{
    char  *text = NULL;
    size_t size;
    FILE  *out = open_memstream(&text, &size);

    expect_ok(hkt_grid_report(out, g, places));
    fclose(out);
    return text;
}

/* Proves row 51 and contradiction 3: with 8 ranks a machine, TP 2 and DP 2 stay inside and the pipeline leaves it; the
 * report computes that. */
START_TEST(T_R51_links_are_computed)
{
    const hkt_grid_t g = grid(2, 1, 2, 4, NULL), wide = grid(16, 1, 1, 1, NULL);
    hkt_place_t      places[16];
    char            *text;

    expect_ok(hkt_places_fill(places, 16, 8, 4));
    expect_links(&g, HKT_MASK_TP, places, (int[]){0, 8, 0, 0}, (int[]){0, 8, 0, 0});
    expect_links(&g, HKT_MASK_DP, places, (int[]){0, 8, 0, 0}, (int[]){0, 8, 0, 0});
    expect_links(&g, HKT_MASK_PP, places, (int[]){0, 0, 0, 4},
                 (int[]){0, 0, 8, 8}); /* 0 4 | 8 12: sockets inside, machines between */
    expect_links(&g, HKT_MASK_CP, places, (int[]){16, 0, 0, 0}, (int[]){0, 0, 0, 0});
    expect_links(&g, HKT_MASK_ALL, NULL, (int[]){0, 1, 0, 0}, (int[]){0, 16, 0, 0});
    text = report(&g, places);
    expect(!strstr(text, "warning") && strstr(text, "on 2 nodes"), "the report says %s", text);
    free(text);
    text = report(&wide, places);
    expect(strstr(text, "warning: 1 of the tp groups cross machines") && strstr(text, "tp 8 stays inside"),
           "the report says %s", text);
    free(text);
    expect_code(hkt_places_fill(places, 0, 8, 4), HKT_ERR_ARGUMENT);
    expect_code(hkt_grid_report(NULL, &g, places), HKT_ERR_ARGUMENT);
    expect_true(!strcmp(hkt_link_name(HKT_LINKS), "?"));
}
END_TEST

/* ---- communicators */

static void expect_members(struct rank *me, hkt_comm_t *comm, const int *ranks, int n, const char *name)
{
    int got[MOST] = {0}, size, mine;

    expect_ok(hkt_comm_size(comm, &size));
    expect_ok(hkt_comm_rank(comm, &mine));
    expect(size == n && ranks[mine] == me->rank, "%s has %d ranks, %d wanted; this is its rank %d", name, size, n,
           mine);
    expect_ok(hkt_all_gather(&me->rank, got, 1, HKT_INT32, comm, NULL));
    for (int i = 0; i < n; i++)
        expect(got[i] == ranks[i], "member %d of %s is %d, not %d", i, name, got[i], ranks[i]);
}

static const struct {
    const char *name;
    unsigned    mask;
} kinds[] = {{"tp", HKT_MASK_TP}, {"cp", HKT_MASK_CP},       {"dp", HKT_MASK_DP},
             {"pp", HKT_MASK_PP}, {"dp-cp", HKT_MASK_DP_CP}, {"tp-pp", HKT_MASK_MODEL}};

static void on_mesh(struct rank *me)
{
    const int *const size = me->arg;
    hkt_mesh_t      *mesh = NULL;
    hkt_comm_t      *comm = NULL;
    hkt_traffic_t    traffic;
    hkt_grid_t       g;
    hkt_place_t      places[8];
    int              ranks[MOST], at[HKT_AXES], back, group, member, n;

    expect_ok(hkt_mesh_create(&mesh, me->comm, size, NULL, NULL));
    expect_ok(hkt_mesh_grid(&g, mesh));
    expect_ok(hkt_mesh_coordinates(at, mesh));
    expect_ok(hkt_grid_rank(&back, &g, at));
    expect_true(back == me->rank);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        char text[2048], name[64];

        expect_ok(hkt_mesh_comm(&comm, mesh, kinds[k].name));
        expect_ok(hkt_grid_locate(&group, &member, &g, kinds[k].mask, me->rank));
        expect_ok(hkt_grid_group(ranks, &g, kinds[k].mask, group));
        expect_ok(hkt_grid_groups(&back, &n, &g, kinds[k].mask));
        expect_members(me, comm, ranks, n, kinds[k].name);
        expect_ok(hkt_comm_traffic(comm, NULL, &traffic));
        expect(traffic.calls == 1, "%s has traffic of another group: %llu calls", kinds[k].name,
               (unsigned long long)traffic.calls);
        snprintf(name, sizeof(name), "%s %d", kinds[k].name, group);
        expect_ok(hkt_comm_report(comm, text, sizeof(text)));
        expect(strstr(text, name), "the communicator is not called %s: %s", name, text);
    }
    expect_ok(hkt_grid_locate(&group, &member, &g, HKT_MASK_PP, me->rank));
    expect_ok(hkt_grid_embedding(ranks, &n, &g, group));
    expect_ok(hkt_mesh_comm(&comm, mesh, "embedding"));
    expect((comm != NULL) == (me->rank == ranks[0] || me->rank == ranks[n - 1]),
           "only the ends of a pipeline hold the embedding");
    if (comm)
        expect_members(me, comm, ranks, n, "embedding");
    expect_code(hkt_mesh_comm(&comm, mesh, "ep"), HKT_ERR_ARGUMENT);
    expect_said("\"ep\" is no group");
    expect_ok(hkt_mesh_places(places, mesh));
    for (int r = 0; r < me->n; r++)
        expect(places[r].node == 0 && places[r].socket >= 0, "rank %d is on node %d", r, places[r].node);
    expect_ok(hkt_mesh_destroy(mesh));
    expect_ok(hkt_mesh_destroy(NULL));
}

/* Proves: the communicators of a mesh have the members of the lists in their order, carry their names, and count by
 * themselves. */
START_TEST(T_R45_communicators)
{
    static int size[][HKT_AXES] = {{2, 1, 2, 2}, {1, 2, 0, 4}, {2, 2, 2, 1}, {1, 1, 1, 1}, {3, 1, 0, 2}};
    static int n[]              = {8, 8, 8, 1, 6};

    world(n[_i], _i ? THREADS : PROCESSES, on_mesh, size[_i]);
}
END_TEST

static void disagreeing(struct rank *me)
{
    hkt_mesh_t *mesh           = (void *)me;
    const int   size[HKT_AXES] = {me->rank == 2 ? 2 : 1, 1, 0, 1}, wrong[HKT_AXES] = {me->rank == 2 ? 3 : 1, 1, 0, 1};
    const int   good[HKT_AXES] = {2, 1, 2, 1};

    expect_code(hkt_mesh_create(&mesh, me->comm, size, NULL, NULL), HKT_ERR_MISMATCH);
    expect_said("rank 2 for tp 2");
    expect_code(hkt_mesh_create(&mesh, me->comm, wrong, NULL, NULL), HKT_ERR_ARGUMENT);
    expect_said(me->rank == 2 ? "does not divide the 4 ranks" : "rank 2 has an error");
    expect_code(hkt_mesh_create(&mesh, me->comm, good, me->rank ? "tp-cp-dp-pp" : "dp-tp", NULL), HKT_ERR_MISMATCH);
    expect_code(hkt_mesh_create(NULL, me->comm, good, NULL, NULL), HKT_ERR_ARGUMENT);
    expect_true(mesh == (void *)me);
    expect_ok(hkt_mesh_create(&mesh, me->comm, good, NULL, NULL)); /* nothing is broken by all that */
    expect_ok(hkt_mesh_destroy(mesh));
}

/* Proves: ranks that ask for different meshes, or one that asks for nonsense, get an error all together and no hang. */
START_TEST(disagreement_is_an_error_of_all)
{
    world(4, THREADS, disagreeing, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, T_R45_R48_golden_world_16, 1, 60);
    ADD(s, T_R45_pipeline_before_data, 1, 60);
    ADD(s, T_R58_golden_world_384, 1, 60);
    ADD(s, T_R49_every_factorisation, 4, 60);
    ADD(s, T_R58_every_factorisation_of_384, 2, 60);
    ADD(s, violations_are_all_named, 1, 60);
    ADD(s, any_order_string, 1, 60);
    ADD(s, questions_out_of_range, 1, 60);
    ADD(s, T_R51_links_are_computed, 1, 60);
    ADD(s, T_R45_communicators, 5, 60);
    ADD(s, disagreement_is_an_error_of_all, 1, 60);
}

int main(void)
{
    return run_suite("mesh", add);
}
