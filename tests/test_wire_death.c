/* test_wire_death.c -- processes and hosts that die while others wait for their messages, and strangers at the network's door. */
#include "network.h"
#include "wires.h"

#include "transports/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- death */

/* Waits until the process of `rank` is known to be dead. Gives the seconds. */
static double await_death(const struct wires *x, int rank, double most)
{
    const double begin = now();

    while (hkt_process_alive(x->p.peer[rank])) {
        expect(now() - begin < most, "the death of rank %d is not seen in %g s", rank, most);
        hkt_wire_poll();
        usleep(100);
    }
    return now() - begin;
}

static void warm_up(struct wires *x, char *memory)
{
    const struct letter l = {!x->me->rank, HKT_LANE_MESSAGE, 8, 1};

    wires_receive(x->w, &l, memory + 8);
    wires_send(x->w, &l, memory);
    wires_await(hkt_wire_arrived(x->w, l.lane, l.peer), 1);
    wires_await(hkt_wire_sent(x->w, l.lane, l.peer), 1);
}

static void killed_rank(struct rank *me)
{
    static char  memory[4][MIB];
    struct wires x;
    const int    how = *(int *)me->arg;
    double       begin;

    wires_join(&x, me);
    if (how != 3) /* 3: nobody has talked to it yet */
        warm_up(&x, memory[0]);
    party_barrier(&x.p);
    if (me->rank == 1) {
        for (uint64_t tag = 1; tag <= 2 && how == 1; tag++) /* 1: with messages of its own under way */
            wires_send(x.w, &(struct letter){0, HKT_LANE_COLLECTIVE, MIB, tag}, memory[tag]);
        kill(getpid(), SIGKILL);
    }
    for (uint64_t tag = 1; tag <= 8 && how != 1; tag++)
        if (how == 2) /* 2: with messages to it under way */
            wires_send(x.w, &(struct letter){1, HKT_LANE_COLLECTIVE, MIB, tag}, memory[0]);
    wires_receive(x.w, &(struct letter){1, HKT_LANE_COLLECTIVE, MIB, 1}, memory[3]);
    await_death(&x, 1, how == 3 ? 20 : 5);
    begin = now();
    hkt_wire_close(x.w);
    expect(now() - begin < 0.5 || slow_build(), "closing took %.1f s", now() - begin);
    party_detach(&x.p, 2);
    hkt_bootstrap_close(x.p.b);
}

/* C34: a process is killed: those that wait for it know at once, whatever was under way. */
START_TEST(test_killed)
{
    int how = _i;

    world_run(&(struct world){.n = 2, .kind = PROCESSES, .fn = killed_rank, .arg = &how, .bare = true, .may_die = 2, .deadline = 30,
                              .environment = {"HKT_INIT_TIMEOUT=3", wires_network()}});
}
END_TEST

static void faulty_rank(struct rank *me)
{
    static char  memory[2][MIB];
    struct wires x;
    uint64_t     n = 0;

    wires_join(&x, me);
    while (hkt_process_alive(x.p.peer[!me->rank])) {
        const struct letter l = {!me->rank, HKT_LANE_COLLECTIVE, 100000, ++n};
        const double        end = now() + 20;

        wires_receive(x.w, &l, memory[1]);
        wires_fill(memory[0], l.bytes, n);
        wires_send(x.w, &l, memory[0]);
        while (hkt_process_alive(x.p.peer[!me->rank]) && (atomic_load(hkt_wire_arrived(x.w, l.lane, l.peer)) < n ||
                                                          atomic_load(hkt_wire_sent(x.w, l.lane, l.peer)) < n)) {
            hkt_wire_poll();
            expect(now() < end, "message %d", (int)n);
        }
        if (atomic_load(hkt_wire_arrived(x.w, l.lane, l.peer)) == n)
            wires_check(memory[1], l.bytes, n);
    }
    hkt_wire_close(x.w);
    party_detach(&x.p, 2);
    hkt_bootstrap_close(x.p.b);
}

/* The connection is cut, or a process kills itself, at any piece from the first one on: both know it, and what has arrived is whole. */
START_TEST(test_any_piece)
{
    static char fault[2][40];

    for (int at = 1; at < 40; at += at < 8 ? 1 : 7) {
        snprintf(fault[0], sizeof(fault[0]), "HKT_FAULT=short=20000,%s=%d", _i ? "kill" : "drop", at);
        world_run(&(struct world){.n = 2, .kind = PROCESSES, .fn = faulty_rank, .bare = true, .may_die = _i ? 3 : 0, .deadline = 30,
                                  .environment = {fault[0], "HKT_INIT_TIMEOUT=3", wires_network()}});
    }
}
END_TEST

static void vanishing_rank(struct rank *me)
{
    static char   memory[4][MIB];
    struct board *board = me->shared;
    struct wires  x;
    double        seconds;

    network_enter(me->rank ? 'b' : 'a');
    expect_ok(hkt_process_self(&x.p.self));
    memset(&x, 0, sizeof(x));
    x.me = me;
    if (me->rank == 0) {
        hkt_process_address((struct hkt_process_address *)(void *)(board + 1));
        atomic_fetch_add(&board->ready, 1);
    } else {
        hkt_process_address((struct hkt_process_address *)(void *)(board + 1) + 1);
        atomic_fetch_add(&board->ready, 1);
    }
    await(&board->ready, 2, 10);
    expect_ok(hkt_process_attach(x.p.peer, (struct hkt_process_address *)(void *)(board + 1), 2));
    wires_open(&x.w, &x, 1, &x.heard);
    warm_up(&x, memory[0]);
    atomic_fetch_add(&board->ready, 1);
    await(&board->ready, 4, 10);
    if (me->rank == 0) {
        network_run('a', "ip link set cable0 down");
        atomic_store(&board->go, 1);
    }
    await(&board->go, 1, 10);
    wires_receive(x.w, &(struct letter){!me->rank, HKT_LANE_COLLECTIVE, 8, 1}, memory[3]);
    seconds = await_death(&x, !me->rank, 12);
    printf("a host that vanished was missed after %.1f s\n", seconds);
    hkt_wire_close(x.w);
    party_detach(&x.p, 2);
}

/* The link goes down: nobody says goodbye, and both sides notice within about 5 s. */
START_TEST(test_vanished_host)
{
    if (!network_open())
        return;
    network_cable('b', "cable0");
    network_run('a', "ip addr add 10.77.0.1/24 dev cable0");
    network_run('b', "ip addr add 10.77.0.2/24 dev cable0");
    world_run(&(struct world){.n = 2, .kind = PROCESSES, .fn = vanishing_rank, .bare = true, .deadline = 40, .environment = {wires_network()}});
}
END_TEST

/* ---- strangers */

static int knock(const struct wires *x)
{
    const struct hkt_net_address *a    = &x->p.peer[0]->life->address.net;
    struct sockaddr_in            to   = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval                wait = {10, 0};
    uint16_t                      port;
    const int                     fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    expect_true(a->bytes > 7 && a->data[0] == 3 && memcmp(a->data + 1, "tcp", 3) == 0);
    memcpy(&port, a->data + 5, sizeof(port));
    to.sin_port = htons(port);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    expect(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0, "cannot connect to rank 0: %s", strerror(errno));
    return fd;
}

/* It hears nothing and is cut off. */
static void expect_dropped(int fd)
{
    char    byte;
    ssize_t n = recv(fd, &byte, 1, 0);

    expect(n == 0 || (n < 0 && errno == ECONNRESET), "a stranger got %zd bytes: %s", n, strerror(errno));
    close(fd);
}

enum knocking { CONNECT_CLOSE, HTTP, GARBAGE, SILENT, GREETING, KNOCKINGS };

static void stranger_rank(struct rank *me)
{
    const enum knocking kind = *(enum knocking *)me->arg;
    struct board       *board = me->shared;
    struct wires        x;
    char                memory[64] = {0}, garbage[4096];
    uint64_t            greeting[5] = {0x0131504354544b48u, 1, 2, 3, 0}; /* the right form of tcp_join.c, but nobody knows the names */
    int                 silent[20];

    wires_join(&x, me);
    party_barrier(&x.p);
    for (size_t i = 0; i < sizeof(garbage); i++)
        garbage[i] = (char)mix(i);
    for (int i = 0; me->rank == 1 && i < (kind == CONNECT_CLOSE ? 1000 : kind == SILENT ? 20 : 100); i++) {
        const int fd = knock(&x);

        if (kind == HTTP)
            expect_true(send(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27, MSG_NOSIGNAL) > 0);
        if (kind == GARBAGE)
            send(fd, garbage, mix((uint64_t)i) % sizeof(garbage), MSG_NOSIGNAL);
        if (kind == GREETING)
            send(fd, greeting, sizeof(greeting), MSG_NOSIGNAL);
        if (kind == SILENT || (kind == GREETING && i < 20))
            silent[i] = fd;
        else if (kind == HTTP)
            expect_dropped(fd);
        else
            close(fd);
        if (i % 10 == 5 && (i == 5 || kind != SILENT))
            hkt_wire_poll();
    }
    warm_up(&x, memory); /* is not held up */
    for (int i = 0; me->rank == 1 && (kind == SILENT || kind == GREETING) && i < 20; i++)
        expect_dropped(silent[i]);
    (void)board;
    wires_leave(&x);
}

/* C17, C18: a thousand that connect and hang up, HTTP, garbage, silence, a greeting of nobody: dropped, and nobody is held up. */
START_TEST(test_strangers)
{
    int kind = _i;

    world_run(&(struct world){.n = 2, .kind = PROCESSES, .fn = stranger_rank, .arg = &kind, .bare = true, .deadline = 60, .environment = {wires_network()}});
}
END_TEST

/* ---- a handshake, replayed */

enum { REPLAYS = 10, GREETING_BYTES = 40, RECORD = GREETING_BYTES + HKT_PROOF_HELLO + HKT_PROOF_MAC };

static uint64_t name_of(const uint64_t uuid[2])
{
    unsigned char hash[HKT_PROOF_KEY];
    uint64_t      name;

    expect_ok(hkt_proof_key(hash, "hocket tcp name", uuid, 16));
    memcpy(&name, hash, sizeof(name));
    return name;
}

/* What this process would say to rank 0 for one more socket, said once and recorded: rank 0 takes it for what it is, and answers with its own proof. */
static void record(const struct wires *x, unsigned char record[RECORD])
{
    const uint64_t  *mine = x->p.self->life->address.uuid, *theirs = x->p.peer[0]->life->address.uuid;
    const bool       first = memcmp(mine, theirs, 16) < 0;
    const uint64_t   both[2][2] = {{first ? mine[0] : theirs[0], first ? mine[1] : theirs[1]}, {first ? theirs[0] : mine[0], first ? theirs[1] : mine[1]}};
    const uint64_t   greeting[5] = {0x0131504354544b48u, name_of(theirs), name_of(mine), 4711, 1};
    unsigned char    key[HKT_PROOF_KEY];
    struct hkt_proof p;
    const int        fd = knock(x);
    int              rc;

    expect_ok(hkt_proof_key(key, "hocket tcp key", both, sizeof(both)));
    expect_ok(hkt_proof_begin(&p, HKT_PROOF_CONNECTS, key, greeting[3] ^ (greeting[4] << 48 | 0x544350)));
    expect_true(send(fd, greeting, sizeof(greeting), MSG_NOSIGNAL) == sizeof(greeting));
    while (!(rc = hkt_proof_turn(&p, fd))) {
        struct pollfd at = {.fd = fd, .events = p.events};

        expect_true(poll(&at, 1, 5000) == 1);
    }
    expect(rc == 1, "rank 0 does not know the real handshake: %s", strerror(-rc));
    memcpy(record, greeting, GREETING_BYTES);
    memcpy(record + GREETING_BYTES, p.hello[HKT_PROOF_CONNECTS], HKT_PROOF_HELLO);
    memcpy(record + GREETING_BYTES + HKT_PROOF_HELLO, p.mac[HKT_PROOF_CONNECTS], HKT_PROOF_MAC);
    close(fd);
}

static void replay_rank(struct rank *me)
{
    unsigned char said[RECORD];
    char          memory[64] = {0}, heard[RECORD];
    struct wires  x;

    wires_join(&x, me);
    warm_up(&x, memory); /* the processes know each other */
    if (me->rank == 1)
        record(&x, said);
    for (int i = 0; me->rank == 1 && i < REPLAYS; i++) {
        const int fd    = knock(&x);
        size_t    bytes = 0;
        ssize_t   n;

        expect_true(send(fd, said, sizeof(said), MSG_NOSIGNAL) == sizeof(said));
        while ((n = recv(fd, heard + bytes, sizeof(heard) - bytes, 0)) > 0)
            bytes += (size_t)n;
        expect((n == 0 || errno == ECONNRESET) && bytes <= HKT_PROOF_HELLO, "a recording got %zu bytes: %s", bytes, n ? strerror(errno) : "the end");
        close(fd);
    }
    party_barrier(&x.p);
    if (!me->rank) /* the real one hung up, which can come before its last word is read */
        expect(tcp_strangers() == REPLAYS || tcp_strangers() == REPLAYS + 1, "%llu strangers were counted", (unsigned long long)tcp_strangers());
    wires_leave(&x);
}

/* Proves: the bytes with which a member has joined, replayed by somebody who has seen them pass, get a fresh nonce and nothing else. */
START_TEST(test_replayed_handshake)
{
    world_run(&(struct world){.n = 2, .kind = PROCESSES, .fn = replay_rank, .bare = true, .deadline = 60, .environment = {"HKT_NETWORK=tcp"}});
}
END_TEST

static void add(Suite *s)
{
    if (!hkt_proof_supported()) {
        printf("skipped: built without libcrypto\n");
        return;
    }
    ADD(s, test_killed, 4, 60);
    ADD(s, test_any_piece, 2, 120);
    ADD(s, test_vanished_host, 1, 60);
    ADD(s, test_strangers, KNOCKINGS, 60);
    ADD(s, test_replayed_handshake, 1, 60);
}

int main(void)
{
    return run_suite("wire_death", add);
}
