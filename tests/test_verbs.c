/* test_verbs.c -- the verbs carrier: which addresses of ports are taken, anywhere; the rest where there is an RDMA device (tests/vm makes guests
 * that have two). What holds of every network is in test_wire.c and test_far.c, which run over this one with TEST_NETWORK=verbs, HKT_NETWORK=verbs.
 */
#include "wires.h"

#include "transports/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- addresses */

static union ibv_gid gid_of(const uint8_t bytes[16])
{
    union ibv_gid gid;

    memcpy(gid.raw, bytes, sizeof(gid.raw));
    return gid;
}

static const uint8_t mapped[16] = {[10] = 0xff, 0xff, 10, 77, 0, 1}, near[16] = {[10] = 0xff, 0xff, 10, 77, 0, 2}, far[16] = {[10] = 0xff, 0xff, 10, 78, 0, 2},
                     routed[16] = {0x20, 1, 0xd, 0xb8, [15] = 1}, link_local[16] = {0xfe, 0x80, [15] = 1};

/* Proves: addresses are told apart: RoCE v2 with IPv4, routed IPv6, link-local; v1. */
START_TEST(test_kinds)
{
    const union ibv_gid a = gid_of(mapped), b = gid_of(routed), c = gid_of(link_local);

    expect_true(verbs_kind_of(&a, IBV_GID_TYPE_ROCE_V2) == VERBS_V2_IPV4);
    expect_true(verbs_kind_of(&b, IBV_GID_TYPE_ROCE_V2) == VERBS_V2_IPV6);
    expect_true(verbs_kind_of(&c, IBV_GID_TYPE_ROCE_V2) == VERBS_V2_LINK);
    expect_true(verbs_kind_of(&a, IBV_GID_TYPE_ROCE_V1) == VERBS_V1);
    expect_true(verbs_kind_of(&c, IBV_GID_TYPE_ROCE_V1) == VERBS_V1);
}
END_TEST

static struct verbs_end end_of(int kind, const uint8_t gid[16], int prefix, int device)
{
    struct verbs_end e = {.kind = (uint8_t)kind, .prefix = (uint8_t)prefix, .device = (uint8_t)device, .port = 1};

    memcpy(e.gid, gid, sizeof(e.gid));
    return e;
}

/* Proves: of two pairs of addresses the better one: one subnet before all, then IPv4, IPv6, link-local, v1; ports of the same number; never two
 * kinds, never two fabrics of InfiniBand. */
START_TEST(test_fitness)
{
    const struct verbs_end here = end_of(VERBS_V2_IPV4, mapped, 24, 0), same = end_of(VERBS_V2_IPV4, near, 24, 0),
                           other = end_of(VERBS_V2_IPV4, far, 24, 0), rail = end_of(VERBS_V2_IPV4, near, 24, 1),
                           wide = end_of(VERBS_V2_IPV4, far, 8, 0), v6 = end_of(VERBS_V2_IPV6, routed, 64, 0),
                           local = end_of(VERBS_V2_LINK, link_local, 0, 0), v1 = end_of(VERBS_V1, mapped, 0, 0),
                           ib = end_of(VERBS_IB, link_local, 0, 0), fabric = end_of(VERBS_IB, routed, 0, 0);

    expect_true(verbs_fitness(&here, &same) > verbs_fitness(&here, &rail));
    expect_true(verbs_fitness(&here, &rail) > verbs_fitness(&here, &other));
    expect_true(verbs_fitness(&here, &other) == verbs_fitness(&here, &wide)); /* what the two hosts say of the subnet differs */
    expect_true(verbs_fitness(&here, &same) > verbs_fitness(&v6, &v6));
    expect_true(verbs_fitness(&v6, &v6) > verbs_fitness(&local, &local));
    expect_true(verbs_fitness(&local, &local) > verbs_fitness(&v1, &v1));
    expect_true(verbs_fitness(&v1, &v1) > 0);
    expect_true(!verbs_fitness(&here, &v6) && !verbs_fitness(&here, &v1) && !verbs_fitness(&here, &ib));
    expect_true(verbs_fitness(&ib, &ib) > 0 && !verbs_fitness(&ib, &fabric));
}
END_TEST

/* Proves: HKT_VERBS_DEVICES names devices, ports, patterns. */
START_TEST(test_names)
{
    expect_true(verbs_named("", "mlx5_0", 1));
    expect_true(verbs_named("mlx5_0", "mlx5_0", 2) && !verbs_named("mlx5_0", "mlx5_1", 1));
    expect_true(verbs_named("rxe0,mlx5_1:2", "mlx5_1", 2) && !verbs_named("rxe0,mlx5_1:2", "mlx5_1", 1));
    expect_true(verbs_named("mlx5_*:1", "mlx5_3", 1) && !verbs_named("mlx5_*:1", "mlx5_3", 2));
}
END_TEST

/* ---- with a device */

static struct hkt_segment *segment;

static char *known_memory(void)
{
    expect_ok(hkt_segment_create(&segment, 4 * MIB, "test"));
    return segment->base;
}

/* Frames that this process has posted on the path of its only channel. */
static uint32_t frames(void)
{
    uint32_t n = 0;

    for (int i = 0; i < verbs_channels->queues; i++)
        n += verbs_channels->queue[i]->sent;
    return n;
}

/* One message each way, asked for before it is sent, and heard of when `told`; with or without a value of its own. */
static void exchange(struct wires *x, char *memory, uint64_t n, double value, bool told)
{
    const struct hkt_wire_note note = {.same = {n, 1, 2}, .value = value, .bytes = MIB};
    const int                  peer = !x->me->rank;

    wires_fill(memory, MIB, 2 * n + (uint64_t)x->me->rank);
    expect_ok(hkt_wire_receive(x->w, HKT_LANE_COLLECTIVE, peer, memory + 2 * MIB, &note));
    for (int i = 0; i < 50; i++)
        hkt_wire_poll();
    if (told)
        party_barrier(&x->p); /* the other side has said where it wants it */
    for (int i = 0; i < 50; i++)
        hkt_wire_poll();
    expect_ok(hkt_wire_send(x->w, HKT_LANE_COLLECTIVE, peer, memory, &note));
    wires_await(hkt_wire_arrived(x->w, HKT_LANE_COLLECTIVE, peer), n);
    wires_await(hkt_wire_sent(x->w, HKT_LANE_COLLECTIVE, peer), n);
    wires_check(memory + 2 * MIB, MIB, 2 * n + (uint64_t)peer);
    expect_true(hkt_wire_value(x->w, HKT_LANE_COLLECTIVE, peer, n) == value);
}

static void written_rank(struct rank *me)
{
    struct wires x;
    uint32_t     before, by_writes;
    char        *memory;

    wires_join(&x, me);
    memory = known_memory();
    for (uint64_t n = 1; n <= 4; n++)
        exchange(&x, memory, n, 0, false);
    before = frames();
    for (uint64_t n = 5; n <= 24; n++) {
        exchange(&x, memory, n, n % 2 ? 0 : 1.5, true);
    }
    by_writes = frames() - before;
    expect(by_writes < 20 * 16, "20 messages of 1 MiB took %u frames: they were not written", by_writes);
    wires_leave(&x);
    hkt_segment_free(segment);
}

static void verbs_world(rank_fn *fn, const char *more)
{
    world_run(&(struct world){.n = 2, .kind = PROCESSES, .fn = fn, .bare = true, .deadline = 60, .environment = {"HKT_NETWORK=verbs", more}});
}

/* Proves: what is expected in memory that the library knows is written to where it belongs, not sent in frames; over one queue pair and over several. */
START_TEST(test_written)
{
    static const char *const queues[] = {"HKT_VERBS_QUEUES=4", "HKT_VERBS_QUEUES=1", "HKT_VERBS_QUEUES=16"};

    verbs_world(written_rank, queues[_i]);
}
END_TEST

static void run(const char *command)
{
    expect(system(command) == 0, "this command failed: %s", command);
}

static void failing_rank(struct rank *me)
{
    struct wires x;
    char        *memory;

    wires_join(&x, me);
    memory = known_memory();
    for (uint64_t n = 1; n <= 60; n++) {
        if (n % 20 == 0)
            party_barrier(&x.p);
        if (n == 20 && me->rank == 0)
            run("ip link set eth0 down");
        if (n == 40 && me->rank == 0)
            run("ip link set eth1 down");
        exchange(&x, memory, n, n % 2, false);
    }
    expect(verbs_channels->state == VERBS_BY_TCP, "two links are down, but the path is in state %d", (int)verbs_channels->state);
    wires_leave(&x);
    hkt_segment_free(segment);
}

/* Proves: the link of the path goes down, then that of the next one: everything arrives, once, and in the end by TCP. */
START_TEST(test_links_fail)
{
    verbs_world(failing_rank, "HKT_VERBS_TIMEOUT=0.3");
    run("ip link set eth0 up; ip link set eth1 up");
}
END_TEST

static void withdrawn_rank(struct rank *me)
{
    struct wires     x;
    struct hkt_wire *second;
    uint32_t         epoch;
    char            *memory;

    wires_join(&x, me);
    wires_open(&second, &x, 2, &x.heard);
    memory = known_memory();
    exchange(&x, memory, 1, 0, false);
    for (int lane = 0; lane < 2; lane++) { /* the second one is asked for when the pair is known, so the other side hears where it goes */
        const struct letter l = {!me->rank, HKT_LANE_MESSAGE, 100000, 1 + (uint64_t)lane};

        if (me->rank == 1)
            wires_receive(second, &l, memory + MIB);
        if (me->rank == 0 && lane == 0)
            wires_send(second, &l, memory);
        if (me->rank == 1 && lane == 0)
            wires_await(hkt_wire_arrived(second, HKT_LANE_MESSAGE, 0), 1);
        else if (lane == 0)
            wires_await(hkt_wire_sent(second, HKT_LANE_MESSAGE, 1), 1);
    }
    exchange(&x, memory, 2, 0, false);
    party_barrier(&x.p);
    epoch = verbs_channels->epoch;
    if (me->rank == 1)
        hkt_wire_close(second);
    party_barrier(&x.p);
    if (me->rank == 0)
        hkt_wire_close(second);
    for (uint64_t n = 3; n <= 10; n++)
        exchange(&x, memory, n, 0, false);
    expect(verbs_channels->epoch > epoch, "an end was closed with a message expected, and the other side may still write there");
    expect_true(verbs_channels->state == VERBS_IS_UP && verbs_channels->tried == 0);
    wires_leave(&x);
    hkt_segment_free(segment);
}

/* Proves: who closes its end with a message still expected cannot be written to any more, and the other communicators of the channel go on. */
START_TEST(test_withdrawn)
{
    verbs_world(withdrawn_rank, NULL);
}
END_TEST

static void poor_rank(struct rank *me)
{
    struct hkt_net_address a;

    (void)me;
    expect_true(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){65536, 65536}) == 0);
    expect_true(setuid(65534) == 0); /* root may lock all it likes */
    expect_code(hkt_network.address(&a), HKT_ERR_UNSUPPORTED);
    expect_said("may lock 64 KiB");
    expect_said("ulimit -l");
}

/* Proves: 64 KiB of memory that may be locked are too few, and the sentence says so and what to do. */
START_TEST(test_locked_memory)
{
    world_run(&(struct world){.n = 1, .kind = PROCESSES, .fn = poor_rank, .bare = true, .deadline = 30, .environment = {"HKT_NETWORK=verbs"}});
}
END_TEST

static void dmabuf_rank(struct rank *me)
{
    struct hkt_net_address a;
    const int              fd = memfd_create("no dmabuf", MFD_CLOEXEC);

    (void)me;
    expect_true(fd >= 0 && ftruncate(fd, 65536) == 0);
    expect_ok(hkt_network.address(&a));
    expect_code(verbs_add_dmabuf(&verbs_devices[0], fd, 0, (char *)65536, 65536), HKT_ERR_UNSUPPORTED);
    expect_true(verbs_devices[0].regions == 0);
    verbs_remove_dmabuf(&verbs_devices[0], (char *)65536);
}

/* Proves: what is no dmabuf, or a device that knows none (soft-RoCE), is refused and leaves nothing. */
START_TEST(test_dmabuf)
{
    world_run(&(struct world){.n = 1, .kind = PROCESSES, .fn = dmabuf_rank, .bare = true, .deadline = 30, .environment = {"HKT_NETWORK=verbs"}});
}
END_TEST

static void add(Suite *s)
{
    ADD(s, test_kinds, 1, 10);
    ADD(s, test_fitness, 1, 10);
    ADD(s, test_names, 1, 10);
    if (access("/sys/class/infiniband/rxe0", F_OK) || access("/sys/class/infiniband/rxe1", F_OK)) {
        printf("skipped: there are no soft-RoCE devices here; tests/vm/run-in-rdma-vm makes some\n");
        return;
    }
    ADD(s, test_written, 3, 60);
    ADD(s, test_links_fail, 1, 60);
    ADD(s, test_withdrawn, 1, 60);
    ADD(s, test_locked_memory, 1, 60);
    ADD(s, test_dmabuf, 1, 60);
}

int main(void)
{
    return run_suite("verbs", add);
}
