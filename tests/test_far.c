/* test_far.c -- communicators over several hosts: the same bits as on one, whoever is where and whichever algorithm runs; what crosses the cable is what
 * the formula says; what goes wrong on one host is named on all. Hosts are pretended (HKT_HOST), or network namespaces where those are allowed.
 * Every suite whose ranks are processes runs over several hosts with TEST_HOSTS=2.
 */
#include "job.h"
#include "network.h"

#include "net/transport.h"
#include "run/site.h"
#include "setup/proof.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Who is where: ranks, hosts as in struct world. Even, uneven, all apart, in turn. */
static const struct {
    int n, hosts;
} places[] = {{2, 2}, {4, 2}, {7, 2}, {7, 3}, {5, 5}, {6, -2}, {5, -3}};
enum { PLACES = sizeof(places) / sizeof(places[0]) };

static uint64_t serial(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return mix(a ^ mix(b ^ mix(c ^ mix(d))));
}

/* ---- the same bits ------------------------------------------------------------------------------------------------- */

static void every_collective(struct lab *lab, const hkt_type_t *types, int ntypes, size_t most)
{
    static const size_t counts[] = {1, 63, 4100, 70001};

    for (enum coll coll = 0; coll < COLLS; coll++)
        for (int t = 0; t < ntypes; t++)
            for (int op = 0; op < (coll_reduces(coll) ? OP_COUNT : 1); op++)
                for (int s = 0; s < 4 && counts[s] <= most; s++) {
                    struct job j = job_random(serial((uint64_t)coll, (uint64_t)types[t], (uint64_t)op, (uint64_t)(s * 64 + lab->n)), coll,
                                              types[t], counts[s], lab->n);

                    j.op = op;
                    job_run(lab, &j);
                }
}

static void some_types(struct rank *me)
{
    static const hkt_type_t types[] = {HKT_FLOAT32, HKT_BFLOAT16, HKT_INT64};
    struct lab              lab;

    lab_open(&lab, me->comm, (size_t)me->n * 70100 * 8);
    every_collective(&lab, types, 3, me->n < 5 ? 70001 : 4100);
    lab_close(&lab);
}

/* Proves: every collective and operator over hosts of even and uneven numbers of ranks, in a row and in turn, gives the bits of one host. */
START_TEST(bits_are_those_of_one_host)
{
    world_run(&(struct world){.n = places[_i].n, .kind = PROCESSES, .hosts = places[_i].hosts, .fn = some_types, .deadline = 110});
}
END_TEST

static const char *const algorithms[] = {"direct", "ring", "tree", "halving", "circulant", "radix", "pairwise", "bruck", "hierarchical", "oneshot"};
enum { ALGORITHMS = sizeof(algorithms) / sizeof(algorithms[0]) };

static void one_type(struct rank *me)
{
    static const hkt_type_t type = HKT_FLOAT32;
    struct lab              lab;

    lab_open(&lab, me->comm, (size_t)me->n * 70100 * 4);
    every_collective(&lab, &type, 1, 4100);
    lab_close(&lab);
}

/* Proves: the same for every algorithm that can be forced, where it can run; 6 ranks on 2 hosts, in a row and in turn. */
START_TEST(every_algorithm)
{
    char text[64];

    snprintf(text, sizeof(text), "HKT_ALGORITHM=%s", algorithms[_i / 2]);
    world_run(&(struct world){.n = 6, .kind = PROCESSES, .hosts = _i % 2 ? -2 : 2, .environment = {text}, .fn = one_type, .deadline = 110});
}
END_TEST

/* Whole numbers, which add up to the same in any order. */
static void in_any_order(struct rank *me)
{
    static const hkt_type_t type   = HKT_INT64;
    hkt_config_t            config = HKT_CONFIG_INIT;
    struct lab              lab;

    config.order = HKT_ORDER_ANY;
    expect_ok(hkt_comm_init(&me->comm, me->n, me->id, me->rank, &config));
    lab_open(&lab, me->comm, (size_t)me->n * 4100 * 8);
    every_collective(&lab, &type, 1, 4100);
    lab_close(&lab);
    expect_ok(hkt_comm_destroy(me->comm));
    me->comm = NULL;
}

/* What is forced or in the table, over hosts that ranks take in turn, evenly or not, and hosts of uneven numbers in a row. */
static const struct {
    int         n, hosts;
    const char *rule;
} anywhere[] = {{6, -2, "hierarchical"},  {5, -3, "hierarchical"},         {7, 3, "hierarchical"},
                {7, -2, "hierarchical direct ring"}, {7, -3, "hierarchical ring radix"}, {6, -2, "ring"}};

/* Proves: where the order of a sum is free, hierarchical runs whoever is where, and so does a ring that goes host by host, by labels; also composed as a
 * table says. */
START_TEST(any_placement)
{
    static char text[64];
    char        path[] = "/tmp/hkt-test-far-XXXXXX";
    FILE       *f      = fdopen(mkstemp(path), "w");

    ck_assert_ptr_nonnull(f);
    fprintf(f, "* * 2- * %s\n", anywhere[_i].rule);
    ck_assert_int_eq(fclose(f), 0);
    snprintf(text, sizeof(text), "HKT_TUNING=%s", path);
    world_run(&(struct world){.n = anywhere[_i].n, .kind = PROCESSES, .hosts = anywhere[_i].hosts, .environment = {text}, .bare = true,
                              .fn = in_any_order, .deadline = 110});
    unlink(path);
}
END_TEST

/* Is UCX built in, and installed? */
static bool have_ucx(void)
{
    for (int i = 0; hkt_transports[i]; i++)
        if (!strcmp(hkt_transports[i]->name, "ucx") && dlopen("libucp.so.0", RTLD_LAZY))
            return true;
    printf("skipped: without UCX (libucx-dev, libucx0)\n");
    return false;
}

/* Proves: the same over UCX. */
START_TEST(bits_over_ucx)
{
    if (have_ucx())
        world_run(&(struct world){.n = places[_i].n, .kind = PROCESSES, .hosts = places[_i].hosts, .environment = {"HKT_NETWORK=ucx"},
                                  .fn = some_types, .deadline = 110});
}
END_TEST

/* ---- messages ------------------------------------------------------------------------------------------------------ */

enum { LONGEST = 5 << 20 };

static void exchange(struct rank *me)
{
    static const size_t sizes[] = {0, 1, 40, 41, 65536, (1 << 20) - 1, 1 << 20, LONGEST};
    unsigned char      *out = malloc(LONGEST), *in = malloc(LONGEST);
    const int           to = (me->rank + 1) % me->n, from = (me->rank + me->n - 1) % me->n;

    expect_true(out && in);
    for (int round = 0; round < 3; round++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            doing("exchange of %zu bytes", sizes[s]);
            for (size_t i = 0; i < sizes[s]; i++)
                out[i] = (unsigned char)(i * 7 + (size_t)me->rank + s);
            memset(in, 0xee, sizes[s]);
            expect_ok(hkt_group_begin());
            expect_ok(hkt_send(out, sizes[s], HKT_UINT8, to, me->comm, NULL));
            expect_ok(hkt_recv(in, sizes[s], HKT_UINT8, from, me->comm, NULL));
            expect_ok(hkt_group_end());
            for (size_t i = 0; i < sizes[s]; i++)
                if (in[i] != (unsigned char)(i * 7 + (size_t)from + s))
                    expect(false, "byte %zu of %zu is wrong", i, sizes[s]);
        }
    free(in);
    free(out);
}

/* Proves: messages of 0 bytes to several pieces arrive whole, between ranks of one host and of two, sent and received at once. */
START_TEST(messages_round_a_ring)
{
    world_run(&(struct world){.n = 4, .kind = PROCESSES, .hosts = _i ? -2 : 2, .fn = exchange});
}
END_TEST

/* ---- split --------------------------------------------------------------------------------------------------------- */

static void split_and_use(struct rank *me)
{
    hkt_comm_t *rows, *columns, *all;
    float       in = (float)(1 << me->rank), out[2];

    expect_ok(hkt_comm_split(&rows, me->comm, me->rank / 2, me->rank, NULL));
    expect_ok(hkt_comm_split(&columns, me->comm, me->rank % 2, -me->rank, NULL));
    expect_ok(hkt_comm_duplicate(&all, rows, NULL));
    for (int i = 0; i < 20; i++) {
        expect_ok(hkt_all_reduce(&in, out, 1, HKT_FLOAT32, HKT_SUM, rows, NULL));
        expect_true(out[0] == (float)(3 << (me->rank & ~1)));
        expect_ok(hkt_all_gather(&in, out, 1, HKT_FLOAT32, columns, NULL)); /* the higher rank is first */
        expect_true(out[0] == (float)(4 << (me->rank & 1)) && out[1] == (float)(1 << (me->rank & 1)));
        expect_ok(hkt_barrier(all, NULL));
    }
    expect_ok(hkt_comm_destroy(columns));
    expect_ok(hkt_comm_destroy(rows));
    expect_ok(hkt_comm_destroy(all));
}

/* Proves: parts of a communicator, within a host and across hosts, work side by side and end in any order. */
START_TEST(parts_within_and_across)
{
    world_run(&(struct world){.n = 4, .kind = PROCESSES, .hosts = 2, .fn = split_and_use});
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------------------------------ */

static void different_counts(struct rank *me)
{
    float in[8] = {0}, out[8];

    expect_code(hkt_all_reduce(in, out, me->rank == 3 ? 5 : 4, HKT_FLOAT32, HKT_SUM, me->comm, NULL), HKT_ERR_MISMATCH);
    expect_said("all_reduce of 4 float32");
    expect_said("all_reduce of 5 float32");
}

/* Proves: ranks of several hosts that call different things all hear of it, with both calls. */
START_TEST(C45_mismatch_between_hosts)
{
    world_run(&(struct world){.n = 4, .kind = PROCESSES, .hosts = 2, .fn = different_counts, .deadline = 20});
}
END_TEST

static void one_by_another_network(struct rank *me)
{
    hkt_comm_t *comm;

    if (me->rank == 3)
        setenv("HKT_FAULT", "delay=1", 1); /* a network of its own */
    expect_code(hkt_comm_init(&comm, me->n, me->id, me->rank, NULL), HKT_ERR_MISMATCH);
    expect_said("rank 3 (host host1");
    expect_said("would send by fault, rank 0");
}

/* Proves: a rank that lacks the network which the others would take is named on all of them. */
START_TEST(missing_network_is_named)
{
    world_run(&(struct world){.n = 4, .kind = PROCESSES, .hosts = 2, .bare = true, .fn = one_by_another_network, .deadline = 20});
}
END_TEST

static void until_one_dies(struct rank *me)
{
    _Atomic uint32_t *ready = me->shared;
    static float      in[65536], out[65536];
    int               rc = HKT_OK;

    for (int i = 0; rc == HKT_OK; i++) {
        if (i == 20) {
            atomic_fetch_add(ready, 1);
            if (me->rank == 2)
                pause();
        }
        rc = hkt_all_reduce(in, out, 65536, HKT_FLOAT32, HKT_SUM, me->comm, NULL);
    }
    expect_true(rc == HKT_ERR_PEER);
    expect_said("rank 2");
    expect_said("died");
}

static void kill_rank_2(const struct world *w, const pid_t *pids, void *shared)
{
    _Atomic uint32_t *ready = shared;

    (void)w;
    if (atomic_load(ready) == 4) {
        kill(pids[2], SIGKILL);
        atomic_store(ready, 5);
    }
}

/* Proves: a rank that is killed is named to the ranks of its own host and of the other one. */
START_TEST(C34_death_on_another_host)
{
    world_run(&(struct world){.n = 4, .kind = PROCESSES, .hosts = 2, .fn = until_one_dies, .may_die = 1 << 2, .meanwhile = kill_rank_2,
                              .deadline = 20});
}
END_TEST

/* ---- within a host ----------------------------------------------------------------------------------------------- */

/* Seats of ranks on one host whose places take turns: groups by their first ranks, numbers by groups; labels that go group by group. */
START_TEST(seats_by_place)
{
    static const struct hkt_here here[]  = {{0, 0, 0}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}};
    static const int             cache[] = {0, 1, 0, 1, 0}, local[] = {0, 3, 1, 4, 2}, label[] = {0, 2, 4, 1, 3}, start[] = {0, 3, 5};
    const struct hkt_question    q = {.coll = HKT_COLL_ALL_GATHER}, sum = {.coll = HKT_COLL_ALL_REDUCE, .canonical = true};
    struct hkt_communicator      c = {.size = 5};
    struct hkt_shape             shape;

    ck_assert_int_eq(hkt_site_make(&c, here), 0);
    ck_assert_ptr_nonnull(c.site);
    ck_assert(c.site->fabric.hosts == 1 && c.site->fabric.per_host == 5 && c.site->fabric.per_cache);
    for (int r = 0; r < 5; r++)
        ck_assert(c.site->seat[r].host == 0 && c.site->seat[r].cache == cache[r] && c.site->seat[r].local == local[r]);
    shape = hkt_predictor_shape(c.site->predictor, &q, &(struct hkt_offer){0}, 1);
    ck_assert_int_eq(shape.ngroups, 2);
    ck_assert_mem_eq(shape.label, label, sizeof(label));
    ck_assert_mem_eq(shape.group_start, start, sizeof(start));
    shape = hkt_predictor_shape(c.site->predictor, &sum, &(struct hkt_offer){0}, 1);
    ck_assert(!shape.label && !shape.ngroups);
    hkt_site_free(&c);
    c.site = NULL;
    ck_assert_int_eq(hkt_site_make(&c, (struct hkt_here[5]){{0}}), 0);
    ck_assert_ptr_null(c.site); /* side by side */
}
END_TEST

static const char two_sockets[] = "<machine format=\"1\"><host><socket><numa><cache level=\"3\"><core cpus=\"0\"/></cache></numa></socket>"
                                  "<socket><numa><cache level=\"3\"><core cpus=\"1\"/></cache></numa></socket></host></machine>";

static void bound(struct rank *me)
{
    struct hkt_cpus cpus;
    struct hkt_here here;
    cpu_set_t       one;

    CPU_ZERO(&one);
    CPU_SET(me->rank % 2, &one);
    expect_true(sched_setaffinity(0, sizeof(one), &one) == 0);
    hkt_machine_cpus(&cpus);
    hkt_here(&here, &cpus);
    expect_true(here.socket == me->rank % 2 && here.numa == me->rank % 2 && here.cache == me->rank % 2);
    in_any_order(me);
}

/* Proves: ranks bound to the sockets of one host in turn know where they are, and compute by groups of them what they compute without. */
START_TEST(groups_of_one_host)
{
    static char text[64];
    char        path[] = "/tmp/hkt-test-far-XXXXXX";
    const int   fd     = mkstemp(path);
    cpu_set_t   all;

    ck_assert(fd >= 0 && write(fd, two_sockets, sizeof(two_sockets) - 1) == (ssize_t)sizeof(two_sockets) - 1);
    close(fd);
    snprintf(text, sizeof(text), "HKT_MACHINE=%s", path);
    if (sched_getaffinity(0, sizeof(all), &all) || !CPU_ISSET(0, &all) || !CPU_ISSET(1, &all))
        printf("skipped: processors 0 and 1 are not both to be had\n");
    else
        world_run(&(struct world){.n = 5, .kind = PROCESSES, .hosts = 1, .environment = {text, _i ? "HKT_ALGORITHM=ring" : "HKT_ALGORITHM=hierarchical"},
                                  .bare = true, .fn = bound, .deadline = 60});
    unlink(path);
}
END_TEST

/* ---- many ---------------------------------------------------------------------------------------------------------- */

enum { THREADS_EACH = 64, EACH_PROCESS = 8, STACK = 256 << 10 };

struct seat {
    struct rank *me;
    int          thread;
    pthread_t    id;
};

static void *one_of_many(void *arg)
{
    const struct seat *s = arg;
    hkt_comm_t        *comm;

    expect_ok(hkt_comm_init(&comm, EACH_PROCESS * THREADS_EACH, s->me->id, s->me->rank * THREADS_EACH + s->thread, NULL));
    expect_ok(hkt_comm_destroy(comm));
    return NULL;
}

static void many(struct rank *me)
{
    static struct seat seat[THREADS_EACH];
    struct timespec    begin, end;
    pthread_attr_t     small;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK);
    for (int t = 0; t < THREADS_EACH; t++) {
        seat[t] = (struct seat){.me = me, .thread = t};
        expect_true(pthread_create(&seat[t].id, &small, one_of_many, &seat[t]) == 0);
    }
    for (int t = 0; t < THREADS_EACH; t++)
        pthread_join(seat[t].id, NULL);
    pthread_attr_destroy(&small);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (!me->rank)
        printf("%d ranks were made in %.2f s\n", EACH_PROCESS * THREADS_EACH,
               (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
}

/* Proves: 512 ranks, 64 threads in each of 8 processes, become a communicator, on one host and on two: in 1.2 and 1.9 s where two cores do nothing
 * else. */
START_TEST(five_hundred_ranks)
{
    world_run(&(struct world){.n = EACH_PROCESS, .kind = PROCESSES, .hosts = _i + 1, .bare = true, .fn = many, .deadline = 50});
}
END_TEST

/* ---- cables -------------------------------------------------------------------------------------------------------- */

static unsigned long long bytes_out(void)
{
    unsigned long long bytes = 0;
    char               line[512];
    FILE              *f = fopen("/proc/self/net/dev", "r");

    expect_true(f != NULL);
    while (fgets(line, sizeof(line), f)) {
        const char *at = strstr(line, "eth0:");

        if (at)
            sscanf(at + 5, "%*u %*u %*u %*u %*u %*u %*u %*u %llu", &bytes);
    }
    fclose(f);
    return bytes;
}

enum { VECTOR = 4 << 20 }; /* elements */
static char in_turn[] = "in turn";

/* Rank r is on host a or b; 4 ranks, 2 a host: in a row, or in turn, when the sum is of any order. */
static void over_a_cable(struct rank *me)
{
    const bool              turns = me->arg != NULL;
    hkt_config_t            config = HKT_CONFIG_INIT;
    static const hkt_type_t type = HKT_FLOAT32, whole = HKT_INT64;
    const double            floor = 4.0 * VECTOR; /* each host sends its half of the sum and gets the other: S bytes, whoever sends them */
    struct lab              lab;
    float                  *v;
    unsigned long long      before, after;

    config.order = turns ? HKT_ORDER_ANY : HKT_ORDER_CANONICAL;
    network_enter("ab"[turns ? me->rank % 2 : me->rank / 2]);
    expect_ok(hkt_comm_init(&me->comm, me->n, me->id, me->rank, &config));
    lab_open(&lab, me->comm, (size_t)me->n * 4100 * 8);
    every_collective(&lab, turns ? &whole : &type, 1, 4100);
    lab_close(&lab);
    v = calloc(VECTOR, sizeof(*v));
    expect_true(v != NULL);
    expect_ok(hkt_barrier(me->comm, NULL));
    before = bytes_out();
    rendezvous(me);
    expect_ok(hkt_all_reduce(v, v, VECTOR, HKT_FLOAT32, HKT_SUM, me->comm, NULL));
    expect_ok(hkt_barrier(me->comm, NULL));
    rendezvous(me);
    after = bytes_out();
    expect((double)(after - before) >= floor && (double)(after - before) < 1.05 * floor, "%llu bytes crossed the cable, %.0f are needed",
           after - before, floor);
    free(v);
    expect_ok(hkt_comm_destroy(me->comm));
}

/* Proves: two hosts with a cable between them compute what one does, and the sum of a large vector crosses it once in each direction, however many ranks
 * a host has, and whether they are in a row or in turn. */
START_TEST(a_cable_is_crossed_once)
{
    if (!network_open())
        return;
    network_cable('b', "eth0");
    network_run('a', "ip addr add 10.1.0.1/24 dev eth0");
    network_run('b', "ip addr add 10.1.0.2/24 dev eth0");
    world_run(&(struct world){.n = 4, .kind = PROCESSES, .hosts = 1, .bare = true, .fn = over_a_cable, .arg = _i ? in_turn : NULL});
}
END_TEST

static void add(Suite *s)
{
    if (!hkt_proof_supported()) {
        printf("skipped: built without libcrypto\n");
        return;
    }
    ADD(s, bits_are_those_of_one_host, PLACES, 120);
    ADD(s, bits_over_ucx, 3, 120);
    ADD(s, every_algorithm, 2 * ALGORITHMS, 120);
    ADD(s, messages_round_a_ring, 2, 120);
    ADD(s, parts_within_and_across, 1, 60);
    ADD(s, missing_network_is_named, 1, 60);
    ADD(s, C45_mismatch_between_hosts, 1, 60);
    ADD(s, C34_death_on_another_host, 1, 60);
    ADD(s, any_placement, (int)(sizeof(anywhere) / sizeof(anywhere[0])), 120);
    ADD(s, seats_by_place, 1, 10);
    ADD(s, groups_of_one_host, 2, 70);
    ADD(s, five_hundred_ranks, 2, 60);
    ADD(s, a_cable_is_crossed_once, 2, 60);
}

int main(void)
{
    return run_suite("far", add);
}
