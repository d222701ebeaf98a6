/* test_graph.c -- what is found in machines: that rings and trees hold all ranks and cross far links no more often than they must, that rails
 * are near, even and equal on equal hosts, what links cost. The recorded machines' texts are in test_topology.c. */
#include "harness.h"
#include "machines.h"

#include "hocket.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int links_of_ring(const struct hkt_graph *g, const int *ring, enum hkt_class class)
{
    int count = 0;

    for (int i = 0; i < g->size; i++)
        count += hkt_graph_class(g, ring[i], ring[(i + 1) % g->size]) == class;
    return count;
}

static int links_of_tree(const struct hkt_graph *g, const int *parent, enum hkt_class class)
{
    int count = 0;

    for (int r = 0; r < g->size; r++)
        count += parent[r] >= 0 && hkt_graph_class(g, r, parent[r]) == class;
    return count;
}

/* Machines of every kind, with any number of ranks: more than cores or GPUs, fewer, and numbers that nothing divides. */
START_TEST(test_any_size)
{
    static const char *const texts[] = {
        "1 cores",
        "3 hosts",
        "2 sockets; 3 numa; 5 cores; 1 nics",
        "5 hosts; 2 sockets; 2 numa; 2 caches 1MiB; 2 cores; 1 nics",
        "3 hosts 2 per leaf; 2 sockets; 2 switches; 2 gpus nvswitch; 1 nics",
        "4 hosts; 8 gpus xgmi; 3 nics",
        "2 hosts; 2 sockets; 7 gpus; 1 nics",
        "13 gpus nvlink",
    };

    for (int size = 1; size < 70; size += size < 20 ? 1 : 7) {
        struct hkt_topology t;
        struct hkt_graph    g;

        machine_of(&t, texts[_i]);
        doing("%d ranks on \"%s\"", size, texts[_i]);
        graph_of(&g, &t, size);
        check_graph(&g);
        for (int r = 0; r < size; r++) {
            const int nics = hkt_object_count(&t, hkt_object_above(&t, g.at[r], HKT_OBJECT_HOST), HKT_OBJECT_NIC);

            expect((g.nic[r] >= 0) == (nics > 0) && (g.rail[r] >= 0) == (nics > 0), "rank %d: nic %d of %d", r, g.nic[r], nics);
        }
        hkt_graph_free(&g);
        hkt_topology_free(&t);
    }
}
END_TEST

/* Ranks placed at random, hosts and sockets mixed: rings cross each socket of a host once, trees have one link less than sockets. */
START_TEST(test_crossings)
{
    struct hkt_topology t;
    int                 at[24];

    machine_of(&t, "3 hosts; 2 sockets; 2 numa; 8 cores; 1 nics");
    for (int turn = 0; turn < 200; turn++) {
        struct hkt_graph g;
        int              most = 0;

        for (int r = 0; r < 24; r++) {
            const int host = hkt_object_find(&t, 0, HKT_OBJECT_HOST, (int)(mix((uint64_t)(turn * 100 + r)) % 3));

            at[r] = hkt_object_find(&t, host, HKT_OBJECT_CORE, (int)(mix((uint64_t)(turn * 100 + r + 50)) % 32));
        }
        doing("placing 24 ranks in way %d", turn);
        expect_ok(hkt_graph_make(&g, &t, at, 24));
        check_graph(&g);
        most = g.groups[HKT_GROUP_SOCKET] - g.hosts;
        for (int i = 0; i < g.rings; i++)
            expect(links_of_ring(&g, g.ring + i * 24, HKT_CLASS_HOST) == most, "ring %d crosses sockets %d times, %d would do", i,
                   links_of_ring(&g, g.ring + i * 24, HKT_CLASS_HOST), most);
        for (int i = 0; i < g.trees; i++)
            expect(links_of_tree(&g, g.tree + i * 24, HKT_CLASS_HOST) == most, "tree %d crosses sockets %d times, %d would do", i,
                   links_of_tree(&g, g.tree + i * 24, HKT_CLASS_HOST), most);
        hkt_graph_free(&g);
    }
    hkt_topology_free(&t);
}
END_TEST

/* No two rings of a fully linked host use a link in the same direction; seven links carry six rings. */
START_TEST(test_rings_apart)
{
    struct hkt_topology t;
    struct hkt_graph    g;
    int                 used[8][8] = {{0}};

    machine_of(&t, "8 gpus xgmi");
    graph_of(&g, &t, 8);
    check_graph(&g);
    ck_assert_int_eq(g.rings, 6);
    for (int r = 0; r < g.rings; r++)
        for (int i = 0; i < 8; i++)
            ck_assert_int_eq(used[g.ring[r * 8 + i]][g.ring[r * 8 + (i + 1) % 8]]++, 0);
    hkt_graph_free(&g);
    hkt_topology_free(&t);
}
END_TEST

/* Of a mesh with single and double links, on which ranks stand in no order, the ring takes double links only, as there is such a ring. */
START_TEST(test_double_links)
{
    static const int    order[] = {5, 0, 3, 6, 1, 7, 2, 4};
    struct hkt_topology t;
    struct hkt_graph    g;
    size_t              size;
    char               *xml = read_recorded("cube-mesh-like", ".xml", &size);
    int                 at[8];

    expect_ok(hkt_topology_parse(&t, xml, size, "cube"));
    for (int r = 0; r < 8; r++)
        at[r] = hkt_object_find(&t, 0, HKT_OBJECT_GPU, order[r]);
    expect_ok(hkt_graph_make(&g, &t, at, 8));
    check_graph(&g);
    for (int i = 0; i < 8; i++) {
        const int a = g.ring[i], b = g.ring[(i + 1) % 8];

        expect(hkt_graph_level(&g, a, b) == 0, "gpu %d and gpu %d are neighbours by a slower link", order[a], order[b]);
    }
    hkt_graph_free(&g);
    hkt_topology_free(&t);
    free(xml);
}
END_TEST

/* Every hop between hosts stays on its rail, and so does the leaf switch, as long as the number of hosts is even. */
START_TEST(test_ring_rails)
{
    struct hkt_topology t;
    struct hkt_graph    g;

    machine_of(&t, "8 hosts 4 per leaf; 2 sockets; 4 switches; 1 gpus nvswitch; 1 nics 400Gb/s");
    graph_of(&g, &t, 64);
    check_graph(&g);
    ck_assert_int_eq(g.rings, 8);
    for (int r = 0; r < g.rings; r++) {
        const int *ring = g.ring + r * 64;

        ck_assert_int_eq(links_of_ring(&g, ring, HKT_CLASS_RAIL), 6);
        ck_assert_int_eq(links_of_ring(&g, ring, HKT_CLASS_NETWORK), 2);
        for (int i = 0; i < 64; i++)
            if (g.host[ring[i]] != g.host[ring[(i + 1) % 64]])
                ck_assert_int_eq(g.rail[ring[i]], g.rail[ring[(i + 1) % 64]]);
    }
    hkt_graph_free(&g);
    hkt_topology_free(&t);
}
END_TEST

/* ---- rails ------------------------------------------------------------------------------------------------------- */

static void check_shares(const char *text, int ranks, int least, int most)
{
    struct hkt_topology t;
    struct hkt_graph    g;
    int                 share[64] = {0};

    machine_of(&t, text);
    doing("%d ranks on \"%s\"", ranks, text);
    graph_of(&g, &t, ranks);
    for (int r = 0; r < ranks; r++) {
        expect(g.rail[r] >= 0 && g.rail[r] < g.rails, "rank %d has rail %d of %d", r, g.rail[r], g.rails);
        share[g.rail[r]]++;
    }
    for (int i = 0; i < g.rails; i++)
        expect(share[i] >= least && share[i] <= most, "rail %d has %d ranks", i, share[i]);
    hkt_graph_free(&g);
    hkt_topology_free(&t);
}

START_TEST(test_rails_even)
{
    check_shares("2 sockets; 8 gpus; 1 nics", 16, 8, 8);
    check_shares("8 gpus; 4 nics", 8, 2, 2);
    check_shares("9 gpus; 4 nics", 9, 2, 3);
    check_shares("5 gpus; 2 nics", 5, 2, 3);
    check_shares("2 gpus; 8 nics", 2, 1, 1);
    check_shares("3 gpus; 8 nics", 3, 1, 1);
}
END_TEST

/* The near NIC where both cannot have it, the slow one for nobody, and a rank moves when that lets another one have a near NIC. */
START_TEST(test_rails_near)
{
    static const char xml[] = "<machine format=\"1\"><host>"
                              "<socket><nic name=\"slow\" rate=\"10Gb/s\"/><switch><gpu/><nic name=\"a\" rate=\"400Gb/s\"/></switch><gpu/></socket>"
                              "<socket><gpu/><gpu/><nic name=\"b\" rate=\"400Gb/s\"/><nic name=\"c\" rate=\"200Gb/s\"/></socket>"
                              "</host></machine>";
    static const char *const expected[] = {"a", "a", "b", "c"};
    struct hkt_topology      t;
    struct hkt_graph         g;

    expect_ok(hkt_topology_parse(&t, xml, sizeof(xml) - 1, "x"));
    graph_of(&g, &t, 4);
    ck_assert_int_eq(g.rails, 3);
    for (int r = 0; r < 4; r++)
        expect(strcmp(t.object[g.nic[r]].name, expected[r]) == 0, "gpu %d has %s", r, t.object[g.nic[r]].name);
    hkt_graph_free(&g);
    hkt_topology_free(&t);
}
END_TEST

/* ---- distances, costs, groups ------------------------------------------------------------------------------------ */

static enum hkt_class between(const struct hkt_topology *t, enum hkt_object_kind x, int a, enum hkt_object_kind y, int b)
{
    return hkt_objects_class(t, hkt_object_find(t, 1, x, a), hkt_object_find(t, 1, y, b));
}

START_TEST(test_classes)
{
    struct hkt_topology t;
    const enum hkt_object_kind o = HKT_OBJECT_CORE, g = HKT_OBJECT_GPU, n = HKT_OBJECT_NIC, m = HKT_OBJECT_NUMA;

    machine_of(&t, "2 hosts; 2 sockets; 2 numa; 2 caches; 2 cores; 2 switches; 1 gpus; 1 nics 100Gb/s");
    ck_assert_int_eq(between(&t, o, 0, o, 0), HKT_CLASS_SELF);
    ck_assert_int_eq(between(&t, o, 0, o, 1), HKT_CLASS_CACHE);
    ck_assert_int_eq(between(&t, o, 0, o, 2), HKT_CLASS_NUMA);
    ck_assert_int_eq(between(&t, o, 0, o, 4), HKT_CLASS_SOCKET);
    ck_assert_int_eq(between(&t, o, 0, o, 8), HKT_CLASS_HOST);
    ck_assert_int_eq(between(&t, o, 5, m, 1), HKT_CLASS_NUMA);
    ck_assert_int_eq(between(&t, g, 0, n, 0), HKT_CLASS_PCIE);
    ck_assert_int_eq(between(&t, g, 0, n, 1), HKT_CLASS_NUMA);
    ck_assert_int_eq(between(&t, g, 0, g, 7), HKT_CLASS_HOST);
    ck_assert_int_eq(hkt_objects_class(&t, 1, t.object[1].end), HKT_CLASS_NETWORK);
    hkt_topology_free(&t);
}
END_TEST

/* A way has no more bandwidth than its narrowest part, and what was measured takes the place of what is usual. */
START_TEST(test_costs)
{
    struct hkt_topology   t;
    struct hkt_graph      g;
    struct hkt_link       link[2];
    struct hkt_class_cost cost;

    machine_of(&t, "2 hosts; 2 sockets; 4 gpus 16GB/s nvlink 100GB/s; 1 nics 800Gb/s");
    graph_of(&g, &t, 16);
    cost = hkt_graph_cost(&g, 0, 8);
    expect(fabs(cost.bandwidth / 12.5e9 - 1) < 0.01, "the port of 16 GB/s is what binds, not %g", cost.bandwidth);
    cost = hkt_graph_cost(&g, 0, 1);
    expect(fabs(cost.bandwidth / 82.2e9 - 1) < 0.01, "a link of 100 GB/s gives %g", cost.bandwidth);
    hkt_graph_links(&g, 0, link);
    ck_assert(link[0].outer == &link[1] && link[0].gamma > 0);
    ck_assert(fabs(1 / link[0].beta / 82.2e9 - 1) < 0.01 && link[0].alpha == hkt_class_default[HKT_CLASS_NVLINK].latency);
    ck_assert(fabs(1 / link[1].beta / 12.5e9 - 1) < 0.01 && link[1].alpha == hkt_class_default[HKT_CLASS_RAIL].latency);
    t.cost[HKT_CLASS_RAIL] = (struct hkt_class_cost){5e-6, 1e-7, 3e9};
    hkt_graph_links(&g, 2e-10, link);
    ck_assert(link[1].alpha == 5e-6 && link[1].gap == 1e-7 && fabs(link[1].beta * 3e9 - 1) < 1e-9 && link[1].gamma == 2e-10);
    hkt_graph_free(&g);
    hkt_topology_free(&t);
}
END_TEST

/* A fabric for the simulator: what the machine knows is in it, what it does not is left, and ranks in no order are refused. */
START_TEST(test_fabric)
{
    struct hkt_topology t;
    struct hkt_graph    g;
    struct hkt_fabric   f = hkt_fabric_preset[0].fabric;
    int                 at[4];

    machine_of(&t, "8 hosts 4 per leaf; 2 sockets; 4 gpus nvswitch 450GB/s; 2 nics 400Gb/s");
    graph_of(&g, &t, 64);
    f.gamma = 0.125e-9;
    expect_ok(hkt_graph_fabric(&g, &f));
    expect_ok(hkt_fabric_check(&f));
    ck_assert(f.hosts == 8 && f.per_host == 8 && f.per_cache == 8 && f.rails == 4 && f.per_leaf == 4 && f.gamma == 0.125e-9);
    ck_assert(fabs(f.wire[HKT_SPAN_CACHE].beta * 370e9 - 1) < 1e-6 && f.wire[HKT_SPAN_CACHE].alpha == hkt_class_default[HKT_CLASS_NVLINK].latency);
    ck_assert(f.wire[HKT_SPAN_NETWORK].alpha == hkt_class_default[HKT_CLASS_RAIL].latency && f.spine > 0);
    hkt_graph_free(&g);
    for (int r = 0; r < 4; r++)
        at[r] = hkt_object_find(&t, hkt_object_find(&t, 0, HKT_OBJECT_HOST, r % 2), HKT_OBJECT_GPU, r);
    expect_ok(hkt_graph_make(&g, &t, at, 4));
    expect_code(hkt_graph_fabric(&g, &f), HKT_ERR_UNSUPPORTED);
    ck_assert(f.hosts == 8);
    hkt_graph_free(&g);
    hkt_topology_free(&t);
    machine_of(&t, "2 hosts; 2 sockets; 1 caches 32MiB; 4 cores; 1 nics 100Gb/s");
    graph_of(&g, &t, 16);
    expect_ok(hkt_graph_fabric(&g, &f));
    ck_assert(f.per_host == 8 && f.per_cache == 4 && f.per_leaf == 0);
    ck_assert(f.wire[HKT_SPAN_CACHE].alpha == hkt_class_default[HKT_CLASS_CACHE].latency);
    ck_assert(f.wire[HKT_SPAN_HOST].alpha == hkt_class_default[HKT_CLASS_HOST].latency);
    hkt_graph_free(&g);
    hkt_topology_free(&t);
}
END_TEST

/* A rank that is bound sits on its core, one that may run on several cores on what holds them. */
START_TEST(test_seats)
{
    struct hkt_topology t;

    machine_of(&t, "1 hosts; 2 sockets; 2 numa; 4 cores 2 threads");
    for (int cpu = 0; cpu < 32; cpu++) {
        struct hkt_cpus cpus = {.bits = {1UL << cpu}};
        const int       seat = hkt_graph_seat(&t, 1, &cpus);

        expect(t.object[seat].kind == HKT_OBJECT_CORE && t.object[seat].number == cpu % 16, "processor %d is on object %d", cpu, seat);
    }
    ck_assert_int_eq(hkt_graph_seat(&t, 1, &(struct hkt_cpus){.bits = {0x00020002}}), hkt_object_find(&t, 1, HKT_OBJECT_CORE, 1));
    ck_assert_int_eq(hkt_graph_seat(&t, 1, &(struct hkt_cpus){.bits = {0xa0}}), hkt_object_find(&t, 1, HKT_OBJECT_NUMA, 1));
    ck_assert_int_eq(hkt_graph_seat(&t, 1, &(struct hkt_cpus){.bits = {0xff00}}), hkt_object_find(&t, 1, HKT_OBJECT_SOCKET, 1));
    ck_assert_int_eq(hkt_graph_seat(&t, 1, &(struct hkt_cpus){.bits = {0xffff}}), 1);
    ck_assert_int_eq(hkt_graph_seat(&t, 1, &(struct hkt_cpus){.bits = {0, 1}}), 1);
    hkt_topology_free(&t);
}
END_TEST

START_TEST(test_starts)
{
    struct hkt_topology t;
    struct hkt_graph    g;
    int                 start[13], at[4];

    machine_of(&t, "3 hosts; 2 sockets; 2 cores");
    graph_of(&g, &t, 12);
    ck_assert_int_eq(hkt_graph_starts(&g, HKT_GROUP_HOST, start), 3);
    ck_assert(start[0] == 0 && start[1] == 4 && start[2] == 8 && start[3] == 12);
    ck_assert_int_eq(hkt_graph_starts(&g, HKT_GROUP_SOCKET, start), 6);
    hkt_graph_free(&g);
    for (int r = 0; r < 4; r++)
        at[r] = hkt_object_find(&t, hkt_object_find(&t, 0, HKT_OBJECT_HOST, r % 2), HKT_OBJECT_CORE, r);
    expect_ok(hkt_graph_make(&g, &t, at, 4));
    ck_assert_int_eq(hkt_graph_starts(&g, HKT_GROUP_HOST, start), 0);
    hkt_graph_free(&g);
    at[2] = t.objects;
    expect_code(hkt_graph_make(&g, &t, at, 4), HKT_ERR_ARGUMENT);
    expect_said("rank 2 is placed on object");
    at[2] = 0;
    expect_code(hkt_graph_make(&g, &t, at, 4), HKT_ERR_ARGUMENT);
    hkt_topology_free(&t);
}
END_TEST

/* 1,500 hosts of 8 GPUs (in the long form 12,500): all is found, and rings stay on the fast links. */
START_TEST(test_large)
{
    const int           hosts = long_tests() ? 12500 : 1500;
    struct hkt_topology t;
    struct hkt_graph    g;
    char                text[128];

    snprintf(text, sizeof(text), "%d hosts 32 per leaf; 2 sockets; 4 gpus nvswitch; 4 nics 400Gb/s", hosts);
    machine_of(&t, text);
    graph_of(&g, &t, 8 * hosts);
    ck_assert_int_eq(g.hosts, hosts);
    ck_assert_int_eq(g.rails, 8);
    for (int r = 0; r < 2; r++)
        ck_assert_int_eq(links_of_ring(&g, g.ring + (size_t)r * 8 * (size_t)hosts, HKT_CLASS_NVLINK), hosts * 7);
    hkt_graph_free(&g);
    hkt_topology_free(&t);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, test_any_size, 8, 60);
    ADD(s, test_crossings, 1, 60);
    ADD(s, test_rings_apart, 1, 30);
    ADD(s, test_double_links, 1, 30);
    ADD(s, test_ring_rails, 1, 30);
    ADD(s, test_rails_even, 1, 30);
    ADD(s, test_rails_near, 1, 30);
    ADD(s, test_classes, 1, 30);
    ADD(s, test_costs, 1, 30);
    ADD(s, test_fabric, 1, 30);
    ADD(s, test_seats, 1, 30);
    ADD(s, test_starts, 1, 30);
    ADD(s, test_large, 1, 120);
}

int main(void)
{
    return run_suite("graph", add);
}
