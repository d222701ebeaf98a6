/* test_hosts.c -- ranks on several hosts, made of network namespaces, meet: over IPv4, IPv6 and link-local addresses, past interfaces that lead nowhere,
 * through a firewall, and with strangers at the port. Skipped where namespaces are not allowed.
 */
#include "network.h"
#include "party.h"

#include "setup/id.h"
#include "setup/proof.h"
#include "setup/socket.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static bool ready(void)
{
    if (!hkt_proof_supported()) {
        printf("skipped: built without libcrypto\n");
        return false;
    }
    return network_open();
}

/* Two hosts at both ends of a cable, with IPv4. */
static bool ready_two(void)
{
    if (!ready())
        return false;
    network_cable('b', "eth0");
    network_run('a', "ip addr add 10.1.0.1/24 dev eth0");
    network_run('b', "ip addr add 10.1.0.2/24 dev eth0");
    return true;
}

static void meet(const struct rank *me, int n, int rank, int rounds)
{
    struct hkt_bootstrap *b;
    char                  mine[400], all[16 * 400];

    for (int k = 0; k < rounds; k++) {
        expect_ok(hkt_bootstrap_open(&b, me->id, n, rank, 20));
        for (int i = 0; i < 3; i++) {
            memset(mine, 'a' + rank + i, sizeof(mine));
            expect_ok(hkt_bootstrap_all_gather(b, mine, sizeof(mine), all));
            for (int r = 0; r < n; r++)
                expect(all[r * 400] == 'a' + r + i && all[r * 400 + 399] == 'a' + r + i, "rank %d's part is wrong", r);
        }
        hkt_bootstrap_close(b);
    }
}

/* ---- ways ---------------------------------------------------------------------------------------------------------- */

static void two_rank(struct rank *me)
{
    struct hkt_bootstrap *b;
    char                  all[6];

    network_enter("ab"[me->rank % 2]);
    expect_ok(hkt_bootstrap_open(&b, me->id, me->n, me->rank, 20));
    expect_ok(hkt_bootstrap_all_gather(b, "x", 1, all));
    /* Rank 0 has its two neighbours on host a and one of host b, who has the two others. */
    expect(me->rank || hkt_bootstrap_sockets(b) == 3, "rank 0 has %d sockets", hkt_bootstrap_sockets(b));
    hkt_bootstrap_close(b);
    meet(me, me->n, me->rank, 2);
}

static void ipv4(void)
{
    network_cable('b', "eth0");
    network_run('a', "ip addr add 10.1.0.1/24 dev eth0");
    network_run('b', "ip addr add 10.1.0.2/24 dev eth0");
}

static void ipv6_only(void)
{
    network_cable('b', "eth0");
    network_run('a', "ip addr del 127.0.0.1/8 dev lo; ip addr add fd01::1/64 dev eth0 nodad");
    network_run('b', "ip addr del 127.0.0.1/8 dev lo; ip addr add fd01::2/64 dev eth0 nodad");
}

static void link_local_only(void)
{
    network_cable('b', "eth7");
    network_run('a', "ip -6 addr flush dev eth7; ip addr add fe80::1/64 dev eth7 nodad");
    network_run('b', "ip link add aa0 type veth peer name aa1; ip link set aa0 up; ip link set aa1 up"); /* nobody is there */
    network_run('b', "ip -6 addr flush dev eth7; ip addr add fe80::2/64 dev eth7 nodad");
}

/* C10: before the one that is good come a bridge and a veth to nobody, the same subnet on both hosts, a /32, one without carrier. */
static void dead_ones(void)
{
    for (char host = 'a'; host <= 'b'; host++) {
        network_run(host, "ip link add br0 type bridge && ip addr add 172.17.0.1/16 dev br0 && ip link set br0 up");
        network_run(host, "ip link add aa0 type veth peer name aa1 && ip addr add 10.5.0.%d/24 dev aa0", host - 'a' + 1);
        network_run(host, "ip link set aa0 up && ip link set aa1 up");
        network_run(host, "ip link add ab0 type veth peer name ab1 && ip addr add 10.6.0.%d/32 dev ab0", host - 'a' + 1);
        network_run(host, "ip link set ab0 up && ip link set ab1 up");
        network_run(host, "ip link add ac0 type veth peer name ac1 && ip addr add 10.7.0.%d/24 dev ac0 && ip link set ac0 up", host - 'a' + 1);
    }
    network_cable('b', "zz0");
    network_run('a', "ip addr add 10.1.0.1/24 dev zz0");
    network_run('b', "ip addr add 10.1.0.2/24 dev zz0");
}

/* C12: twenty interfaces, of which the last one works. */
static void twenty(void)
{
    for (int i = 0; i < 10; i++)
        network_run('a', "ip link add d%d type veth peer name e%d && ip addr add 10.9.%d.1/24 dev d%d && ip link set d%d up && ip link set e%d up", i, i, i, i,
                    i, i);
    ipv4();
}

/* Six ranks on two hosts, in turn; the network is crossed once. Then the same id twice more (C22). */
START_TEST(test_ways)
{
    static void (*const make[])(void) = {ipv4, ipv6_only, link_local_only, dead_ones, twenty};

    if (!ready())
        return;
    make[_i]();
    bare_world(6, PROCESSES, two_rank, NULL, 0);
}
END_TEST

static void three_rank(struct rank *me)
{
    network_enter("abc"[me->rank % 3]);
    hkt_bootstrap_arity = 1; /* the first of c is to be below the first of b */
    if (me->rank == 2)
        pause_ms(100); /* and comes later */
    meet(me, me->n, me->rank, 1);
}

/* Hosts b and c reach host a, but not each other: who cannot join its parent joins rank 0. */
START_TEST(test_detour)
{
    if (!ready_two())
        return;
    network_cable('c', "eth1");
    network_run('a', "ip addr add 10.2.0.1/24 dev eth1");
    network_run('c', "ip addr add 10.2.0.2/24 dev eth1");
    bare_world(6, PROCESSES, three_rank, NULL, 0);
}
END_TEST

static void firewall_rank(struct rank *me)
{
    network_enter("ab"[me->rank % 2]);
    hkt_bootstrap_arity = 1; /* every first rank of a host opens a port */
    meet(me, me->n, me->rank, 2);
}

/* C15: all ports but those of HKT_PORTS are blocked on both hosts. */
START_TEST(test_firewall)
{
    if (!ready_two())
        return;
    if (system("nft --version >/dev/null 2>&1")) {
        printf("skipped: nft(8) is not installed\n");
        return;
    }
    for (char host = 'a'; host <= 'b'; host++) {
        network_run(host, "nft add table inet wall");
        network_run(host, "nft add chain inet wall in { type filter hook input priority 0 \\; }");
        network_run(host, "nft \"add rule inet wall in tcp dport != 40000-40010 tcp flags & (syn | ack) == syn drop\"");
    }
    setenv("HKT_PORTS", "40000-40010", 1);
    bare_world(4, PROCESSES, firewall_rank, NULL, 0);
}
END_TEST

static void alone_rank(struct rank *me)
{
    struct hkt_bootstrap *b;

    network_enter("ab"[me->rank]);
    expect_code(hkt_bootstrap_open(&b, me->id, 2, me->rank, 0.7), HKT_ERR_TIMEOUT);
    if (me->rank == 0) {
        expect_said("1 of 2 ranks did not come within 0.7 s (limit: HKT_INIT_TIMEOUT): 1");
        return;
    }
    expect_said("this host cannot reach it: 10.1.0.1:");
    expect_said("10.3.0.1:");
    expect_said("(Network is unreachable)");
}

/* C12: when nothing answers, the deadline is kept, and the sentence has every address that was tried. */
START_TEST(test_unreachable)
{
    if (!ready_two())
        return;
    network_run('a', "ip link add x0 type veth peer name x1 && ip addr add 10.3.0.1/24 dev x0 && ip link set x0 up && ip link set x1 up");
    network_run('b', "ip addr del 10.1.0.2/24 dev eth0 && ip addr add 10.1.0.2/32 dev eth0");
    bare_world(2, PROCESSES, alone_rank, NULL, 0);
}
END_TEST

/* ---- ids of launchers -------------------------------------------------------------------------------------------------- */

static void at_rank(struct rank *me)
{
    const bool            wrong = *(int *)me->arg;
    hkt_unique_id_t       id;
    struct rank           you = *me;
    struct hkt_bootstrap *b;

    network_enter("ab"[me->rank % 2]);
    expect_code(hkt_bootstrap_id_at(&id, "10.1.0.1", "s"), HKT_ERR_ARGUMENT);
    expect_ok(hkt_bootstrap_id_at(&id, "10.1.0.1:41000", wrong && me->rank == 1 ? "wrong" : "job 4711"));
    you.id = &id;
    if (!wrong) {
        meet(&you, me->n, me->rank, 3);
        return;
    }
    expect_code(hkt_bootstrap_open(&b, &id, 2, me->rank, 0.7), HKT_ERR_TIMEOUT);
    expect_said(me->rank ? "10.1.0.1:41000 (Connection reset by peer)" : "1 of 2 ranks did not come");
}

/* Ids made on every rank of "host:port" and a secret meet, again and again; with another secret they do not. */
START_TEST(test_id_at)
{
    if (ready_two())
        bare_world(_i ? 2 : 4, PROCESSES, at_rank, &_i, 0);
}
END_TEST

/* ---- strangers ---------------------------------------------------------------------------------------------------------- */

enum stranger { SCANNER, SILENT, GARBAGE, HTTP, RECORDED, CROWD };

static int knock(const struct rank *me)
{
    struct hkt_inet_address list[HKT_ID_ADDRESSES];
    struct hkt_id           id;
    int                     fd;

    memcpy(&id, me->id, sizeof(id));
    expect_true(hkt_id_addresses(&id, list) > 0);
    fd = hkt_inet_connect(&list[0]);
    expect(fd >= 0, "cannot connect: %s", strerror(-fd));
    expect_ok(hkt_socket_wait(fd, POLLOUT, hkt_now_ns() + 5000000000u));
    expect_ok(hkt_inet_connected(fd));
    return fd;
}

/* Half of what one who knows the key has said to somebody else. */
static void say_recorded(const struct rank *me, int fd)
{
    unsigned char    key[HKT_PROOF_KEY];
    struct hkt_proof p;
    int              tube[2];
    char             bytes[HKT_PROOF_HELLO];

    memcpy(key, me->id, sizeof(key));
    expect_true(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, tube) == 0);
    expect_ok(hkt_proof_begin(&p, HKT_PROOF_CONNECTS, key, 0));
    expect_true(hkt_proof_turn(&p, tube[0]) == 0 && hkt_socket_receive(tube[1], bytes, sizeof(bytes), NULL) == sizeof(bytes));
    hkt_socket_send(fd, bytes, sizeof(bytes), -1);
    hkt_socket_send(fd, bytes, HKT_PROOF_MAC, -1); /* and some mac */
    close(tube[0]);
    close(tube[1]);
}

static void stranger(struct rank *me, enum stranger kind)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: rank0\r\n\r\n";
    const int         n      = kind == SCANNER ? 1000 : kind == CROWD ? 200 : 10;
    struct board     *board  = me->shared;
    int               fd[200];

    for (int i = 0; i < n; i++) {
        const int at = fd[i % 200] = knock(me);

        if (kind == GARBAGE)
            hkt_socket_send(at, "\1\2\3\4\5\6\7\10", 8, -1);
        if (kind == HTTP)
            hkt_socket_send(at, http, sizeof(http) - 1, -1);
        if (kind == RECORDED)
            say_recorded(me, at);
        if (kind == SCANNER)
            close(at);
    }
    atomic_store(&board->go, 1);
    for (int i = 0; i < n && kind != SCANNER && kind != CROWD; i++) {
        char byte;

        expect(hkt_socket_wait(fd[i], POLLIN, hkt_now_ns() + 5000000000u) == 0, "a stranger is not dropped");
        if (kind != RECORDED)
            expect_true(hkt_socket_receive(fd[i], &byte, 1, NULL) <= 0);
    }
    await(&board->ready, 2, 15);
}

static void with_strangers_rank(struct rank *me)
{
    const enum stranger   kind  = *(enum stranger *)me->arg;
    struct board         *board = me->shared;
    struct hkt_bootstrap *b;
    char                  all[2];
    unsigned              known;

    network_enter(me->rank == 1 ? 'b' : 'a');
    if (me->rank == 2) {
        stranger(me, kind);
        return;
    }
    if (me->rank == 1) /* it comes when the strangers are there */
        await(&board->go, 1, 15);
    expect_ok(hkt_bootstrap_open(&b, me->id, 2, me->rank, 20));
    expect_ok(hkt_bootstrap_all_gather(b, "x", 1, all));
    known = hkt_bootstrap_strangers(b);
    if (me->rank == 0 && kind != CROWD && kind != SILENT)
        expect(known == (kind == SCANNER ? 1000u : 10u), "%u strangers were counted", known);
    hkt_bootstrap_close(b);
    atomic_fetch_add(&board->ready, 1);
}

/* C17, C18: at the port while ranks meet: a thousand that connect and hang up, ten that are silent, that send garbage, HTTP, what others said before,
 * two hundred at once. All are dropped and counted, and the ranks meet. */
START_TEST(test_strangers)
{
    if (ready_two())
        bare_world(3, PROCESSES, with_strangers_rank, &_i, 0);
}
END_TEST

/* ---- signals ------------------------------------------------------------------------------------------------------------- */

static void tick(int number)
{
    (void)number;
}

static void signal_rank(struct rank *me)
{
    const struct itimerval timer  = {{0, 1000}, {0, 1000}};
    struct sigaction       action = {.sa_handler = tick}; /* without SA_RESTART */

    network_enter("ab"[me->rank % 2]);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    meet(me, me->n, me->rank, 10);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
}

/* C20: a signal every millisecond, over TCP. */
START_TEST(test_signals)
{
    if (ready_two())
        bare_world(4, PROCESSES, signal_rank, NULL, 0);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, test_ways, 5, 20);
    ADD(s, test_detour, 1, 20);
    ADD(s, test_firewall, 1, 20);
    ADD(s, test_unreachable, 1, 20);
    ADD(s, test_id_at, 2, 20);
    ADD(s, test_strangers, 6, 20);
    ADD(s, test_signals, 1, 20);
}

int main(void)
{
    return run_suite("hosts", add);
}
