/* test_wire.c -- messages between ranks of different hosts, over every network that this machine has: what arrives, in which order, who may be
 * how far ahead. Hosts are names here (HKT_HOST); what happens when processes or hosts die is in test_wire_death.c.
 */
#include "wires.h"

#include "base/memory.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- order, sizes, lanes */

enum { SLOTS = HKT_WIRE_RING };

/* Per lane and direction. Networks other than TCP are mostly tried in a guest, which is slow. */
static uint64_t messages(void)
{
    return getenv("TEST_NETWORK") ? 60 : 500;
}

static size_t size_of(uint64_t n, size_t most)
{
    const size_t odd[] = {0, 1, 8, 63, 64, 65, 4096, 8191, 16384, 16385, 262144, 262145, 1 << 20};

    return n % 3 ? mix(n) % (most + 1) : odd[mix(n) % 13] % (most + 1);
}

struct stream {
    struct hkt_wire *w;
    enum hkt_lane    lane;
    int              peer;
    size_t           most;
    uint64_t         posted[2], seen[2]; /* sends, receives; seen: checked */
    bool             known; /* in memory that the library knows, which a network may touch by itself */
    char            *slot[2][SLOTS];
    struct hkt_segment *segment;
};

static void stream_make(struct stream *s)
{
    const size_t size = (s->most + 8 + 63) / 64 * 64;

    if (s->known)
        expect_ok(hkt_segment_create(&s->segment, 2 * SLOTS * size, "slots"));
    for (int k = 0; k < 2 * SLOTS; k++)
        s->slot[k / SLOTS][k % SLOTS] = s->known ? s->segment->base + (size_t)k * size : malloc(size);
}

static void stream_free(struct stream *s)
{
    for (int k = 0; k < 2 * SLOTS && !s->known; k++)
        free(s->slot[k / SLOTS][k % SLOTS]);
    hkt_segment_free(s->segment);
}

/* One more of each, where there is room; checks what has arrived. The values differ with the lane and the direction. */
static void stream_step(struct stream *s, int me)
{
    _Atomic uint64_t *arrived = hkt_wire_arrived(s->w, s->lane, s->peer), *sent = hkt_wire_sent(s->w, s->lane, s->peer);
    const uint64_t    salt = (uint64_t)s->lane * 7919 + 100000;

    while (s->seen[1] < atomic_load_explicit(arrived, memory_order_acquire)) {
        const uint64_t n = ++s->seen[1], tag = n + salt * (uint64_t)(1 + s->peer);

        wires_check(s->slot[1][n % SLOTS], size_of(tag, s->most), tag);
        expect_true(hkt_wire_value(s->w, s->lane, s->peer, n) == (double)tag / 2);
    }
    if (s->posted[1] < messages() && s->posted[1] < s->seen[1] + SLOTS) {
        const uint64_t n = ++s->posted[1], tag = n + salt * (uint64_t)(1 + s->peer);

        wires_receive(s->w, &(struct letter){s->peer, s->lane, size_of(tag, s->most), tag}, s->slot[1][n % SLOTS]);
    }
    if (s->posted[0] < messages() && s->posted[0] < atomic_load_explicit(sent, memory_order_acquire) + SLOTS) {
        const uint64_t n = ++s->posted[0], tag = n + salt * (uint64_t)(1 + me);

        wires_fill(s->slot[0][n % SLOTS], size_of(tag, s->most), tag);
        wires_send(s->w, &(struct letter){s->peer, s->lane, size_of(tag, s->most), tag}, s->slot[0][n % SLOTS]);
    }
}

static void order_rank(struct rank *me)
{
    struct stream     s[2 * PARTY * HKT_LANES];
    int               n = 0;
    struct wires      x;
    struct hkt_wire  *second;
    bool              busy = true;
    const double      end  = now() + 100;

    wires_join(&x, me);
    wires_open(&second, &x, 2, &x.heard);
    for (int k = 0; k < 2 * me->n * HKT_LANES; k++) {
        if (k / 2 / HKT_LANES == me->rank)
            continue;
        s[n] = (struct stream){.w = k & 1 ? second : x.w, .lane = k / 2 % HKT_LANES, .peer = k / 2 / HKT_LANES, .most = k & 1 ? 300000 : 3000, .known = k & 2};
        stream_make(&s[n++]);
    }
    while (busy) {
        busy = false;
        for (int i = 0; i < n; i++) {
            stream_step(&s[i], me->rank);
            busy |= s[i].seen[1] < messages() || atomic_load(hkt_wire_sent(s[i].w, s[i].lane, s[i].peer)) < messages();
        }
        hkt_wire_poll();
        expect(now() < end, "not done");
    }
    for (int i = 0; i < n; i++)
        stream_free(&s[i]);
    party_barrier(&x.p);
    hkt_wire_close(second);
    wires_leave(&x);
}

/* The networks (TEST_NETWORK): TCP, TCP with parts of at most 700 bytes and waits in between, TCP with several sockets for large messages. */
static const char *const networks[] = {"HKT_SOCKETS=1", "HKT_FAULT=short=700,delay=3", "HKT_SOCKETS=3"};
enum { NETWORKS = sizeof(networks) / sizeof(networks[0]) };

/* A world of ranks on hosts of their own, over each of the networks. */
static void net_world(int n, rank_fn *fn, int network)
{
    world_run(&(struct world){.n = n, .kind = PROCESSES, .fn = fn, .bare = true, .deadline = 60, .environment = {networks[network], wires_network()}});
}

/* Everything arrives, once, whole, in order, with its note: every lane of two communicators over one connection, sizes from 0, both ways. */
START_TEST(test_order)
{
    net_world(2, order_rank, _i);
}
END_TEST

START_TEST(test_order_of_three)
{
    net_world(3, order_rank, 0);
}
END_TEST

/* ---- credits */

static void credit_rank(struct rank *me)
{
    static char   memory[HKT_WIRE_RING][MIB], other[8];
    struct wires  x;
    struct board *board = me->shared;
    struct letter l     = {!me->rank, HKT_LANE_COLLECTIVE, MIB, 0};

    wires_join(&x, me);
    if (me->rank == 0) {
        for (l.tag = 1; l.tag <= HKT_WIRE_RING; l.tag++) {
            wires_fill(memory[l.tag % HKT_WIRE_RING], MIB, l.tag);
            wires_send(x.w, &l, memory[l.tag % HKT_WIRE_RING]);
        }
        wires_await(hkt_wire_sent(x.w, l.lane, l.peer), HKT_WIRE_DEPTH);
        for (int i = 0; i < 300; i++, usleep(100)) /* nothing more may go */
            hkt_wire_poll();
        expect_true(atomic_load(hkt_wire_sent(x.w, l.lane, l.peer)) == HKT_WIRE_DEPTH);
        atomic_store(&board->go, 1);
        wires_await(hkt_wire_sent(x.w, l.lane, l.peer), HKT_WIRE_RING);
    } else {
        l.tag = 0; /* lets the other rank know this one, which asks for nothing yet in the other lane */
        wires_receive(x.w, &(struct letter){0, HKT_LANE_MESSAGE, 8, 1}, other);
        for (; !atomic_load(&board->go); usleep(100))
            hkt_wire_poll();
        for (l.tag = 1; l.tag <= HKT_WIRE_RING; l.tag++) {
            wires_receive(x.w, &l, memory[l.tag % HKT_WIRE_RING]);
            wires_await(hkt_wire_arrived(x.w, l.lane, l.peer), l.tag);
            wires_check(memory[l.tag % HKT_WIRE_RING], MIB, l.tag);
        }
    }
    if (me->rank == 0) {
        wires_fill(memory[0], 8, 1);
        wires_send(x.w, &(struct letter){1, HKT_LANE_MESSAGE, 8, 1}, memory[0]);
        wires_await(hkt_wire_sent(x.w, HKT_LANE_MESSAGE, 1), 1);
    } else {
        wires_await(hkt_wire_arrived(x.w, HKT_LANE_MESSAGE, 0), 1);
    }
    wires_leave(&x);
}

/* A sender runs HKT_WIRE_DEPTH messages ahead of a late receiver, which nobody helps, and not one more; another lane is not held up. */
START_TEST(test_credits)
{
    net_world(2, credit_rank, _i);
}
END_TEST

/* Messages that run ahead: small ones; in the lane for messages only a few, then a large one. */
static const uint64_t ahead_all[HKT_LANES] = {HKT_WIRE_AHEAD + 5, HKT_WIRE_DEPTH + 3}, ahead_most[HKT_LANES] = {HKT_WIRE_AHEAD, HKT_WIRE_DEPTH + 2};

static struct letter ahead_letter(int peer, enum hkt_lane lane, uint64_t n)
{
    return (struct letter){peer, lane, lane == HKT_LANE_MESSAGE && n == ahead_all[lane] ? HKT_WIRE_SMALL + 1 : n % 4 ? 8 : HKT_WIRE_SMALL, n};
}

static void small_credit_rank(struct rank *me)
{
    static char   memory[HKT_LANES][HKT_WIRE_RING][HKT_WIRE_SMALL + 8];
    struct wires  x;
    struct board *board = me->shared;
    uint64_t      n[HKT_LANES] = {0, 0};

    wires_join(&x, me);
    for (int idle = 0; me->rank == 0 && idle < 300; idle++, usleep(100), hkt_wire_poll())
        for (enum hkt_lane lane = 0; lane < HKT_LANES; lane++)
            for (; n[lane] < ahead_all[lane] && n[lane] < atomic_load(hkt_wire_sent(x.w, lane, 1)) + HKT_WIRE_RING; idle = 0) {
                const struct letter l = ahead_letter(1, lane, ++n[lane]);

                wires_fill(memory[lane][l.tag % HKT_WIRE_RING], l.bytes, l.tag);
                wires_send(x.w, &l, memory[lane][l.tag % HKT_WIRE_RING]);
            }
    while (me->rank && !atomic_load(&board->go))
        hkt_wire_poll();
    for (enum hkt_lane lane = 0; lane < HKT_LANES; lane++)
        expect_true(me->rank || atomic_load(hkt_wire_sent(x.w, lane, 1)) == ahead_most[lane]);
    atomic_store(&board->go, 1);
    for (enum hkt_lane lane = 0; lane < HKT_LANES; lane++) {
        for (uint64_t k = 1; me->rank && k <= ahead_all[lane]; k++) {
            const struct letter l = ahead_letter(0, lane, k);

            wires_receive(x.w, &l, memory[0][0]);
            wires_await(hkt_wire_arrived(x.w, lane, 0), k);
            wires_check(memory[0][0], l.bytes, k);
        }
        if (me->rank == 0)
            wires_await(hkt_wire_sent(x.w, lane, 1), ahead_all[lane]);
    }
    wires_leave(&x);
}

/* With small messages a sender runs HKT_WIRE_AHEAD ahead, and not one more; a large one behind them waits as one does that follows large ones. */
START_TEST(test_small_credits)
{
    net_world(2, small_credit_rank, _i);
}
END_TEST

/* ---- without polling */

static void quiet_rank(struct rank *me)
{
    char          *memory = malloc(MIB);
    struct wires   x;
    struct letter  l = {!me->rank, HKT_LANE_MESSAGE, 0, 0};
    double         busy;

    wires_join(&x, me);
    for (l.tag = 1; l.tag <= 100; l.tag++) {
        l.bytes = size_of(l.tag, getenv("HKT_FAULT") ? 2000 : MIB); /* the thread looks once a millisecond whether a delay is over */
        if (me->rank == (int)(l.tag & 1)) {
            wires_fill(memory, l.bytes, l.tag);
            wires_send(x.w, &l, memory);
            wires_sleep(hkt_wire_sent(x.w, l.lane, l.peer), (l.tag + 1) / 2);
        } else {
            wires_receive(x.w, &l, memory);
            wires_sleep(hkt_wire_arrived(x.w, l.lane, l.peer), (l.tag + 1) / 2);
            wires_check(memory, l.bytes, l.tag);
        }
    }
    busy = cpu_seconds();
    pause_ms(500);
    expect(cpu_seconds() - busy < 0.1 || slow_build(), "%.3f s of processor time while nothing happens", cpu_seconds() - busy);
    wires_leave(&x);
    free(memory);
}

/* C07: nobody polls: a thread makes the progress, and costs nothing while nothing happens. */
START_TEST(test_thread)
{
    net_world(2, quiet_rank, _i);
}
END_TEST

static void *poller(void *stop)
{
    while (!atomic_load((atomic_bool *)stop))
        hkt_wire_poll();
    return NULL;
}

static void on_alarm(int number)
{
    (void)number;
}

static void pollers_rank(struct rank *me)
{
    atomic_bool stop = false;
    pthread_t   thread[2];

    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL); /* no SA_RESTART */
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 1000}, {0, 1000}}, NULL);
    for (int i = 0; i < 2; i++)
        expect_true(pthread_create(&thread[i], NULL, poller, &stop) == 0);
    order_rank(me);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
}

/* C20: three threads poll, and a signal comes every millisecond. */
START_TEST(test_pollers_and_signals)
{
    net_world(2, pollers_rank, 0);
}
END_TEST

/* ---- what goes wrong between living ranks */

static void conflict_rank(struct rank *me)
{
    char          memory[64] = {0};
    struct wires  x;
    const bool    size = *(int *)me->arg & 1, early = *(int *)me->arg & 2;
    struct letter l = {!me->rank, HKT_LANE_COLLECTIVE, 64, 7};

    wires_join(&x, me);
    if (me->rank == 0) {
        wires_send(x.w, &l, memory);
        wires_send(x.w, &(struct letter){1, HKT_LANE_MESSAGE, 8, 9}, memory);
    } else {
        l.tag += !size;
        l.bytes -= size;
        for (int i = 0; i < 200 && !early; i++) { /* the message comes first */
            wires_receive(x.w, &(struct letter){0, HKT_LANE_MESSAGE, 8, 9}, memory + 32);
            wires_await(hkt_wire_arrived(x.w, HKT_LANE_MESSAGE, 0), 1);
            break;
        }
        memset(memory, 'x', 32);
        wires_receive(x.w, &l, memory);
        wires_await_event(&x.heard.conflicts, 1, 20);
        expect_true(x.heard.from == 0 && x.heard.lane == HKT_LANE_COLLECTIVE);
        expect_true(x.heard.bytes[1] == 64 && x.heard.bytes[0] == (size ? 63 : 64));
        expect_true(x.heard.notes[0].same[0] == l.tag && x.heard.notes[1].same[0] == 7);
        expect_true(memory[0] == 'x' && memory[31] == 'x' && atomic_load(hkt_wire_arrived(x.w, HKT_LANE_COLLECTIVE, 0)) == 0);
    }
    wires_leave(&x);
    expect_true(atomic_load(&x.heard.conflicts) == (me->rank == 1));
}

/* C45: note or size differ: told once, with both sides; nothing is stored; whether the message or the receive was first. */
START_TEST(test_conflict)
{
    int how = _i;

    world_run(&(struct world){.n = 2, .kind = PROCESSES, .fn = conflict_rank, .arg = &how, .bare = true, .deadline = 60, .environment = {wires_network()}});
}
END_TEST

static void close_rank(struct rank *me)
{
    char         *memory = malloc(2 * MIB);
    struct wires  x;
    struct board *board = me->shared;
    const size_t  bytes = getenv("HKT_FAULT") ? 50000 : MIB; /* closing takes at most a second */

    wires_join(&x, me);
    if (me->rank == 0) {
        for (uint64_t tag = 1; tag <= 2; tag++) {
            wires_fill(memory + (tag - 1) * MIB, bytes, tag);
            wires_send(x.w, &(struct letter){1, HKT_LANE_COLLECTIVE, bytes, tag}, memory + (tag - 1) * MIB);
        }
        hkt_wire_close(x.w); /* with all of it under way */
        memset(memory, 0, 2 * MIB);
        atomic_store(&board->go, 1);
    } else {
        while (!atomic_load(&board->go)) {
            hkt_wire_poll();
            usleep(50);
        }
        for (uint64_t tag = 1; tag <= 2; tag++)
            wires_receive(x.w, &(struct letter){0, HKT_LANE_COLLECTIVE, bytes, tag}, memory + (tag - 1) * MIB);
        wires_await(hkt_wire_arrived(x.w, HKT_LANE_COLLECTIVE, 0), 2);
        wires_check(memory, bytes, 1);
        wires_check(memory + MIB, bytes, 2);
        wires_await_event(&x.heard.lefts, 1, 10);
        expect_true(hkt_process_alive(x.p.peer[0]));
        hkt_wire_close(x.w);
    }
    party_leave(&x.p, me);
    free(memory);
}

/* What was sent before a rank closed its end arrives, and then the other one is told that it has left. */
START_TEST(test_close)
{
    net_world(2, close_rank, _i);
}
END_TEST

static void absent_rank(struct rank *me)
{
    char         memory[8];
    struct wires x;

    wires_join(&x, me);
    party_barrier(&x.p);
    if (me->rank == 0) {
        hkt_wire_close(x.w); /* nobody has ever talked to it */
        party_barrier(&x.p);
        party_barrier(&x.p);
    } else {
        party_barrier(&x.p);
        wires_receive(x.w, &(struct letter){0, HKT_LANE_COLLECTIVE, 8, 1}, memory);
        wires_await_event(&x.heard.lefts, 1, 10);
        hkt_wire_close(x.w);
        party_barrier(&x.p);
    }
    party_leave(&x.p, me);
}

/* A rank that closed before anybody had talked to it: who asks later is told. */
START_TEST(test_closed_before)
{
    net_world(2, absent_rank, 0);
}
END_TEST

static void poison_rank(struct rank *me)
{
    char         memory[8];
    struct wires x;

    wires_join(&x, me);
    if (me->rank == 0) {
        hkt_wire_poison(x.w, HKT_ERR_ABORTED, "rank 0 has had enough");
        hkt_wire_poison(x.w, HKT_ERR_TIMEOUT, "the second one does not count");
    } else {
        if (me->rank == 1)
            wires_receive(x.w, &(struct letter){0, HKT_LANE_COLLECTIVE, 8, 1}, memory);
        wires_await_event(&x.heard.poisons, 1, 10);
        expect_true(x.heard.code == HKT_ERR_ABORTED && x.heard.from == 0 && strcmp(x.heard.sentence, "rank 0 has had enough") == 0);
    }
    wires_leave(&x);
}

/* All hear of it, also those that have never talked to the rank. */
START_TEST(test_poison)
{
    net_world(3, poison_rank, _i);
}
END_TEST

/* ---- resources */

static void fork_rank(struct rank *me)
{
    struct wires x;
    char         memory[8];
    int          status;
    pid_t        child;

    wires_join(&x, me);
    for (uint64_t tag = 1; tag <= 20; tag++) {
        const struct letter l = {!me->rank, HKT_LANE_COLLECTIVE, 8, tag};

        wires_receive(x.w, &l, memory);
        wires_fill(memory, 8, tag);
        wires_send(x.w, &l, memory);
        wires_await(hkt_wire_arrived(x.w, l.lane, l.peer), tag);
        child = fork();
        if (child == 0) {
            hkt_wire_poll();
            hkt_wire_rest();
            hkt_wire_close(x.w);
            _exit(threads() == 1 ? 0 : 1);
        }
        expect_true(waitpid(child, &status, 0) == child && status == 0);
    }
    wires_leave(&x);
}

/* C42: a child has neither the thread nor the sockets; the parent goes on. */
START_TEST(test_fork)
{
    net_world(2, fork_rank, 0);
}
END_TEST

static void alloc_rank(struct rank *me)
{
    static char         memory[2][MIB];
    struct hkt_process *peer = NULL;
    struct board       *board = me->shared;
    struct wires        x;
    long                n = 1;
    int                 rc;

    wires_join(&x, me);
    if (me->rank == 0) {
        const struct hkt_wire_config  config = {.id = {3, 3}, .rank = 0, .size = 2, .process = x.p.peer, .arg = &x.heard};
        struct hkt_process_address    other = x.p.peer[1]->life->address;
        struct hkt_wire              *w     = NULL;

        do {
            hkt_alloc_fail_at(n++);
            rc = hkt_wire_open(&w, &config);
            hkt_alloc_fail_at(0);
            expect_true(rc == 0 || (rc == HKT_ERR_MEMORY && !w));
        } while (rc);
        expect_true(n > 2);
        hkt_wire_close(w);
        other.uuid[0]++; /* a process that nobody knows */
        n = 1;
        do {
            hkt_alloc_fail_at(n++);
            rc = hkt_process_attach(&peer, &other, 1);
            hkt_alloc_fail_at(0);
            expect_true(rc == 0 || (rc == HKT_ERR_MEMORY && !peer));
        } while (rc);
        expect_true(n > 3);
        hkt_process_detach(peer);
        wires_send(x.w, &(struct letter){1, HKT_LANE_MESSAGE, 8, 1}, memory[0]);
        while (!atomic_load(&board->go))
            hkt_wire_poll();
        for (uint64_t tag = 1; tag <= 2; tag++)
            wires_send(x.w, &(struct letter){1, HKT_LANE_COLLECTIVE, MIB, tag}, memory[tag - 1]);
        wires_await_event(&x.heard.poisons, 1, 20); /* the other side has no memory for what came ahead */
        expect_true(x.heard.code == HKT_ERR_MEMORY);
    } else {
        wires_receive(x.w, &(struct letter){0, HKT_LANE_MESSAGE, 8, 1}, memory[0]);
        wires_await(hkt_wire_arrived(x.w, HKT_LANE_MESSAGE, 0), 1);
        atomic_store(&board->go, 1);
        while (!atomic_load(&x.heard.poisons)) {
            hkt_alloc_fail_at(1);
            hkt_wire_poll();
            hkt_alloc_fail_at(0);
        }
        expect_true(x.heard.code == HKT_ERR_MEMORY && x.heard.from == 1);
    }
    wires_leave(&x);
}

/* C24: whichever allocation fails: the call says so and leaves nothing; when it is one for what came ahead, both ranks are told. */
START_TEST(test_memory)
{
    net_world(2, alloc_rank, 0);
}
END_TEST

static void nothing_left_rank(struct rank *me)
{
    struct wires x;
    char         memory[8] = {0};
    int          before = 0;

    for (int round = 0; round < 20; round++) {
        const struct letter l = {!me->rank, HKT_LANE_COLLECTIVE, 8, 1};

        wires_join(&x, me);
        wires_receive(x.w, &l, memory);
        wires_send(x.w, &l, memory);
        wires_await(hkt_wire_arrived(x.w, l.lane, l.peer), 1);
        wires_leave(&x);
        if (round == 5)
            before = open_descriptors();
    }
    for (int i = 0; i < 300 && open_descriptors() > before + 4; i++)
        pause_ms(10);
    expect(open_descriptors() <= before + 4, "%d descriptors became %d", before, open_descriptors());
    expect_true(threads() <= 3 + slow_build()); /* ThreadSanitizer has one too */
}

/* C28: connections go with the last communicator, and come again with the next one; nothing piles up. */
START_TEST(test_nothing_left)
{
    net_world(2, nothing_left_rank, 0);
}
END_TEST

static void add(Suite *s)
{
    if (!hkt_proof_supported()) {
        printf("skipped: built without libcrypto\n");
        return;
    }
    ADD(s, test_order, NETWORKS, 120);
    ADD(s, test_order_of_three, 1, 120);
    ADD(s, test_credits, NETWORKS, 60);
    ADD(s, test_small_credits, NETWORKS, 60);
    ADD(s, test_thread, NETWORKS, 60);
    ADD(s, test_pollers_and_signals, 1, 120);
    ADD(s, test_conflict, 4, 60);
    ADD(s, test_close, NETWORKS, 60);
    ADD(s, test_closed_before, 1, 60);
    ADD(s, test_poison, NETWORKS, 60);
    ADD(s, test_fork, 1, 60);
    ADD(s, test_memory, 1, 60);
    ADD(s, test_nothing_left, 1, 60);
}

int main(void)
{
    return run_suite("wire", add);
}
