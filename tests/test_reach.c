/* test_reach.c -- the addresses of a host, the proof that both ends of a connection hold the same key, and connections to somebody who
 * answers at one of many addresses. */
#include "network.h"
#include "party.h"

#include "base/option.h"
#include "setup/reach.h"
#include "setup/socket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const unsigned char KEY[HKT_PROOF_KEY] = "0123456789abcdef0123456789abcde", OTHER[HKT_PROOF_KEY] = "another";

/* Without libcrypto there is nothing to prove, which must be said. */
static bool no_crypto(void)
{
    struct hkt_proof p;

    if (hkt_proof_supported())
        return false;
    expect_code(hkt_proof_begin(&p, HKT_PROOF_ACCEPTS, KEY, 0), HKT_ERR_UNSUPPORTED);
    expect_said("libssl-dev");
    printf("skipped: built without libcrypto\n");
    return true;
}

static void pair(int fd[2])
{
    expect_true(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) == 0);
}

/* ---- proof ------------------------------------------------------------------------------------------------------- */

/* Both ends in turn, until both have a result; results in rc. */
static void prove(struct hkt_proof *c, struct hkt_proof *a, const int fd[2], int rc[2])
{
    rc[0] = rc[1] = 0;
    for (int i = 0; i < 20; i++) {
        rc[0] = rc[0] ? rc[0] : hkt_proof_turn(c, fd[0]);
        rc[1] = rc[1] ? rc[1] : hkt_proof_turn(a, fd[1]);
        if (rc[0] < 0)
            shutdown(fd[0], SHUT_RDWR);
        if (rc[1] < 0)
            shutdown(fd[1], SHUT_RDWR);
    }
}

/* Who holds the same key, for the same purpose, is believed; nobody else. What follows on the stream is left there. */
START_TEST(test_proof)
{
    static const struct {
        const unsigned char *key;
        uint64_t             purpose;
        enum hkt_proof_role  role;
        int                  result[2];
    } tries[] = {{KEY, 7, HKT_PROOF_CONNECTS, {1, 1}},
                 {OTHER, 7, HKT_PROOF_CONNECTS, {-ECONNRESET, -EACCES}},
                 {KEY, 8, HKT_PROOF_CONNECTS, {-ECONNRESET, -EACCES}},
                 {KEY, 7, HKT_PROOF_ACCEPTS, {0, 0}}};
    struct hkt_proof c, a;
    int              fd[2], rc[2];
    char             rest[8] = "";

    if (no_crypto())
        return;
    pair(fd);
    expect_ok(hkt_proof_begin(&c, tries[_i].role, tries[_i].key, tries[_i].purpose));
    expect_ok(hkt_proof_begin(&a, HKT_PROOF_ACCEPTS, KEY, 7));
    prove(&c, &a, fd, rc);
    expect(rc[0] == tries[_i].result[0] && rc[1] == tries[_i].result[1], "the results are %d and %d", rc[0], rc[1]);
    if (rc[0] == 1) {
        expect_true(hkt_socket_send(fd[0], "next", 4, -1) == 4);
        expect_true(hkt_socket_receive(fd[1], rest, 8, NULL) == 4 && memcmp(rest, "next", 4) == 0);
    }
}
END_TEST

/* Moves at most one byte a turn from one socket to the other, changed at position `at`. Gives whether there was one. */
static bool carry(int from, int to, long at, long *moved)
{
    unsigned char byte;

    if (hkt_socket_receive(from, &byte, 1, NULL) != 1)
        return false;
    byte ^= *moved == at;
    ++*moved;
    expect_true(hkt_socket_send(to, &byte, 1, -1) == 1);
    return true;
}

/* A proof that comes byte by byte is believed; with one bit changed anywhere, on the way there, it is not. */
START_TEST(test_bytes)
{
    const long whole = HKT_PROOF_HELLO + HKT_PROOF_MAC;

    if (no_crypto())
        return;
    for (long at = 0; at <= whole; at++) {
        struct hkt_proof c, a;
        int              one[2], two[2], rc[2] = {0, 0};
        long             there = 0, back = 0;

        pair(one);
        pair(two);
        expect_ok(hkt_proof_begin(&c, HKT_PROOF_CONNECTS, KEY, 1));
        expect_ok(hkt_proof_begin(&a, HKT_PROOF_ACCEPTS, KEY, 1));
        for (int i = 0; i < 500 && rc[1] >= 0; i++) {
            rc[0] = rc[0] ? rc[0] : hkt_proof_turn(&c, one[0]);
            carry(one[1], two[0], at, &there);
            rc[1] = rc[1] ? rc[1] : hkt_proof_turn(&a, two[1]);
            carry(two[0], one[1], -1, &back);
        }
        expect(rc[1] == (at == whole ? 1 : -EACCES), "byte %ld changed: %d", at, rc[1]);
        expect(at >= 8 || there == at + 1, "the stranger's byte %ld was not refused at once", at);
        for (int i = 0; i < 2; i++) {
            close(one[i]);
            close(two[i]);
        }
    }
}
END_TEST

/* C18: what one has recorded, or what the other end says, is worth nothing when it is said again; other protocols get no answer at all. */
START_TEST(test_replay)
{
    unsigned char    first[HKT_PROOF_HELLO], mac[HKT_PROOF_MAC], said[HKT_PROOF_HELLO];
    const char       http[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    struct hkt_proof c, a;
    int              fd[2];

    if (no_crypto())
        return;
    pair(fd);
    expect_ok(hkt_proof_begin(&c, HKT_PROOF_CONNECTS, KEY, 1));
    expect_ok(hkt_proof_begin(&a, HKT_PROOF_ACCEPTS, KEY, 1));
    for (int i = 0; i < 4; i++) {
        hkt_proof_turn(&c, fd[0]);
        hkt_proof_turn(&a, fd[1]);
    }
    memcpy(first, c.hello[0], sizeof(first));
    memcpy(mac, c.mac[0], sizeof(mac));

    pair(fd); /* the same bytes again */
    expect_ok(hkt_proof_begin(&a, HKT_PROOF_ACCEPTS, KEY, 1));
    expect_true(hkt_socket_send(fd[0], first, sizeof(first), -1) == sizeof(first) && hkt_proof_turn(&a, fd[1]) == 0);
    expect_true(hkt_socket_receive(fd[0], said, sizeof(said), NULL) == sizeof(said));
    expect_true(hkt_socket_send(fd[0], mac, sizeof(mac), -1) == sizeof(mac) && hkt_proof_turn(&a, fd[1]) == -EACCES);

    pair(fd); /* what the other end says */
    expect_ok(hkt_proof_begin(&c, HKT_PROOF_CONNECTS, KEY, 1));
    expect_true(hkt_proof_turn(&c, fd[0]) == 0 && hkt_socket_receive(fd[1], said, sizeof(said), NULL) == sizeof(said));
    expect_true(hkt_socket_send(fd[1], said, sizeof(said), -1) == sizeof(said) && hkt_proof_turn(&c, fd[0]) == 0);
    expect_true(hkt_socket_receive(fd[1], mac, sizeof(mac), NULL) == sizeof(mac));
    expect_true(hkt_socket_send(fd[1], mac, sizeof(mac), -1) == sizeof(mac) && hkt_proof_turn(&c, fd[0]) == -EACCES);

    pair(fd);
    expect_ok(hkt_proof_begin(&a, HKT_PROOF_ACCEPTS, KEY, 1));
    expect_true(hkt_socket_send(fd[0], http, sizeof(http), -1) == sizeof(http) && hkt_proof_turn(&a, fd[1]) == -EACCES);
    expect_true(hkt_socket_receive(fd[0], said, sizeof(said), NULL) == -EAGAIN);
}
END_TEST

/* ---- addresses --------------------------------------------------------------------------------------------------- */

/* Runs the rest of the test with these options, in a process of its own: options are read once. */
static void with_options(const char *ifname, const char *subnet, const char *ports, void (*fn)(void))
{
    pid_t pid = fork();
    int   status;

    if (pid == 0) {
        setenv("HKT_IFNAME", ifname, 1);
        setenv("HKT_SUBNET", subnet, 1);
        setenv("HKT_PORTS", ports, 1);
        fn();
        exit(0);
    }
    expect_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    expect(status == 0, "IFNAME=%s SUBNET=%s PORTS=%s: status %#x", ifname, subnet, ports, status);
}

/* What hkt_inet_own() gives, as "10.0.0.1 fd00::1 "; exits with 1 when it is something else. */
static const char *wanted_list;
static void        check_list(void)
{
    struct hkt_inet_address own[HKT_INET_LIST];
    char                    text[1024] = "", one[HKT_INET_TEXT];
    const int               n          = hkt_inet_own(own, HKT_INET_LIST);

    for (int i = 0; i < n; i++) {
        strcat(text, hkt_inet_text(&own[i], one));
        strcat(text, " ");
    }
    if (n < 0)
        snprintf(text, sizeof(text), "%.1000s", hkt_last_error());
    if (n < 0 ? !strstr(text, wanted_list) : strcmp(text, wanted_list) != 0) {
        printf("the list is '%s', not '%s'\n", text, wanted_list);
        exit(1);
    }
}

static void check_own(const char *ifname, const char *subnet, const char *wanted)
{
    wanted_list = wanted;
    with_options(ifname, subnet, "", check_list);
}

/* C10: what is down or has no carrier is not in the list, a lone /32 is behind the others whatever it is called, loopback comes last; HKT_IFNAME
 * and HKT_SUBNET pin and exclude, and say so when nothing is left. */
START_TEST(test_addresses)
{
    if (!network_open())
        return;
    network_run('a', "ip link add a-dead type bridge && ip addr add 10.9.0.1/24 dev a-dead && ip link set a-dead up && ip -6 addr flush dev a-dead");
    network_run('a', "ip link add a-lone type veth peer name a-none && ip addr add 10.8.0.1/32 dev a-lone");
    network_run('a', "ip link set a-lone addrgenmode none up && ip link set a-none addrgenmode none up");
    network_run('a', "ip link add a-off type veth peer name a-peer && ip addr add 10.7.0.1/24 dev a-off && ip link set a-off up");
    network_run('a', "ip link add a-down type bridge && ip addr add 10.6.0.1/24 dev a-down");
    network_cable('b', "z-good");
    network_run('a', "ip link set z-good addrgenmode none");
    network_run('a', "ip addr flush dev z-good && ip addr add 10.1.0.1/24 dev z-good && ip addr add fd01::1/64 dev z-good nodad");
    network_run('a', "ip addr add fe80::1/64 dev z-good nodad");
    check_own("", "", "10.9.0.1 10.1.0.1 fd01::1 10.8.0.1 fe80::1%z-good 127.0.0.1 ::1 ");
    check_own("z-good", "", "10.1.0.1 fd01::1 fe80::1%z-good ");
    check_own("^z-good,lo", "", "10.9.0.1 10.8.0.1 ");
    check_own("z-*", "10.0.0.0/8", "10.1.0.1 ");
    check_own("", "10.8.0.0/16,fd01::/16", "fd01::1 10.8.0.1 ");
    check_own("", "10.1.0.1", "10.1.0.1 ");
    check_own("eth7", "", "leave no address of this host over; there are: lo 127.0.0.1");
    check_own("", "10.1.0/8", "a subnet is address/bits");
    check_own("", "10.1.0.0/33", "a subnet is address/bits");
    network_run('a', "ip addr add 10.2.0.1/24 dev z-good && ip route add default via 10.2.0.2");
    check_own("", "10.0.0.0/8", "10.2.0.1 10.9.0.1 10.1.0.1 10.8.0.1 ");
}
END_TEST

static void use_ports(void)
{
    int      fd[5];
    uint16_t port = 0;

    for (int i = 0; i < 4; i++, port = 0) {
        fd[i] = hkt_inet_listen(&port, 8);
        if (fd[i] < 0 || port < 40000 || port > 40003)
            exit(2);
    }
    if (hkt_inet_listen(&port, 8) != HKT_ERR_SYSTEM || !strstr(hkt_last_error(), "HKT_PORTS=40000-40003: all 4 are in use"))
        exit(3);
    close(fd[0]);
    if (hkt_inet_listen(&port, 8) < 0)
        exit(4);
}

static void bad_ports(void)
{
    uint16_t port = 0;

    if (hkt_inet_listen(&port, 8) != HKT_ERR_ARGUMENT || !strstr(hkt_last_error(), "first-last"))
        exit(5);
}

/* C15: every listener is inside HKT_PORTS; when that is used up the sentence says so and what needs ports. */
START_TEST(test_ports)
{
    static const char *const bad[] = {"0-5", "5-4", "70000", "x", "1-70000", "10-20x"};

    if (!network_open())
        return;
    with_options("", "", "40000-40003", use_ports);
    for (int i = 0; i < 6; i++)
        with_options("", "", bad[i], bad_ports);
}
END_TEST

/* Addresses as texts, there and back. */
START_TEST(test_texts)
{
    static const char *const good[] = {"10.0.0.1:4711", "[fd00::1]:80", "127.0.0.1:65535"};
    static const char *const bad[]  = {"", ":", "host", "host:", ":80", "fd00::1:80", "[fd00::1]", "a:0", "a:65536", "a:8o", "[]:80", "a:+8"};
    struct hkt_inet_address  list[4];
    char                     text[HKT_INET_TEXT];

    for (int i = 0; i < 3; i++) {
        expect_true(hkt_inet_resolve(list, 4, good[i]) == 1);
        expect(strcmp(hkt_inet_text(list, text), good[i]) == 0, "%s became %s", good[i], text);
    }
    for (int i = 0; i < 12; i++) {
        expect_code(hkt_inet_resolve(list, 4, bad[i]), HKT_ERR_ARGUMENT);
        expect_said("host:port");
    }
    expect_true(hkt_inet_resolve(list, 4, "localhost:80") > 0);
}
END_TEST

/* ---- reaching ---------------------------------------------------------------------------------------------------- */

/* Accepts and proves until one is believed; gives its descriptor. Those who do not prove themselves are closed. */
static int serve(int listener, const unsigned char *key)
{
    struct hkt_proof proof[64];
    int              fd[64], n = 0;
    const double     end = now() + 10;

    while (now() < end) {
        const int new = n < 64 ? hkt_inet_accept(listener, NULL) : -1;

        if (new >= 0) {
            fd[n] = new;
            expect_ok(hkt_proof_begin(&proof[n++], HKT_PROOF_ACCEPTS, key, 5));
        }
        for (int i = 0; i < n; i++) {
            const int rc = fd[i] >= 0 ? hkt_proof_turn(&proof[i], fd[i]) : 0;

            if (rc == 1)
                return fd[i];
            if (rc < 0) {
                close(fd[i]);
                fd[i] = -1;
            }
        }
        usleep(200);
    }
    fail_at(__FILE__, __LINE__, "nobody has come");
}

static struct hkt_inet_address at(const char *text)
{
    struct hkt_inet_address a;

    expect_true(hkt_inet_resolve(&a, 1, text) == 1);
    return a;
}

static void reach_rank(struct rank *me)
{
    struct board           *board   = me->shared;
    struct hkt_inet_address list[5] = {at("127.0.0.9:1"), at("192.0.2.1:9"), at("127.0.0.1:9"), at("127.0.0.1:9"), at("[::1]:9")};
    struct hkt_reach        r;
    uint16_t                port = 0;
    int                     fd, silent;
    char                    byte;

    if (me->rank == 0) {
        silent = hkt_inet_listen(&port, 8); /* takes connections, says nothing */
        atomic_store(&board->ready, port);
        port = 0;
        fd   = hkt_inet_listen(&port, 8);
        atomic_store(&board->go, port);
        fd = serve(fd, KEY);
        expect_true(hkt_socket_send(fd, "x", 1, -1) == 1);
        close(silent);
        return;
    }
    await(&board->go, 1, 10);
    list[2].port = (uint16_t)board->ready;
    list[3].port = list[4].port = (uint16_t)board->go;
    expect_ok(hkt_reach_begin(&r, list, 5, KEY, 5));
    fd = hkt_reach_wait(&r, hkt_now_ns() + 10000000000u);
    expect_true(fd >= 0);
    hkt_reach_end(&r);
    expect_ok(hkt_socket_wait(fd, POLLIN, hkt_now_ns() + 5000000000u));
    expect_true(hkt_socket_receive(fd, &byte, 1, NULL) == 1 && byte == 'x');
}

/* An address where nobody listens, one to nowhere, one with a stranger who is silent: the fourth or fifth is taken. */
START_TEST(test_reach)
{
    if (!no_crypto())
        bare_world(2, PROCESSES, reach_rank, NULL, 0);
}
END_TEST

/* When nobody proves himself, the sentence has every address and what became of it; nothing stays open. */
START_TEST(test_unreachable)
{
    struct hkt_inet_address list[2] = {at("127.0.0.9:1"), at("127.0.0.1:9")};
    struct hkt_reach        r;
    const int               before = open_descriptors();
    uint16_t                port   = 0;
    int                     listener;
    char                    text[512];

    if (no_crypto())
        return;
    listener     = hkt_inet_listen(&port, 8);
    list[1].port = port;
    expect_ok(hkt_reach_begin(&r, list, 2, KEY, 5));
    expect_true(hkt_reach_wait(&r, hkt_now_ns() + 200000000u) == -ETIMEDOUT);
    hkt_reach_text(&r, text, sizeof(text));
    expect(strstr(text, "127.0.0.9:1 (Connection refused), 127.0.0.1:") && strstr(text, "(connected, no answer)"), "it says: %s", text);
    hkt_reach_end(&r);
    close(listener);
    expect_true(open_descriptors() == before);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, test_proof, 4, 20);
    ADD(s, test_bytes, 1, 20);
    ADD(s, test_replay, 1, 20);
    ADD(s, test_addresses, 1, 20);
    ADD(s, test_ports, 1, 20);
    ADD(s, test_texts, 1, 20);
    ADD(s, test_reach, 1, 20);
    ADD(s, test_unreachable, 1, 20);
}

int main(void)
{
    return run_suite("reach", add);
}
