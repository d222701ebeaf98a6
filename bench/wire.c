/* wire.c -- messages between two hosts against plain sockets: a stream of large ones one way, a ping-pong of small ones. Two processes, or one
 * in each of two network namespaces (bench/wire-compare makes those). What is compared takes turns, cell by cell.
 *
 * wire b FILE [NAMESPACE]  then  wire a FILE ADDRESS: FILE is where the two leave their addresses.
 */
#include "base/clock.h"
#include "hocket.h"
#include "net/wire.h"
#include "setup/process.h"
#include "setup/segment.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, STREAM = 400, PINGS = 5000, ROUNDS = 9, PORT = 5471 };

struct board {
    _Atomic uint32_t           ready[2], turn, barrier;
    struct hkt_process_address address[2];
    double                     result[4][ROUNDS];
};

static struct board    *board;
static int              me;
static struct hkt_wire *w;
static int              sock = -1;

static double seconds(void)
{
    return (double)hkt_now_ns() * 1e-9;
}

static void meet(void)
{
    const uint32_t arrived = atomic_fetch_add(&board->barrier, 1);

    while (atomic_load(&board->barrier) < (arrived / 2 + 1) * 2)
        sched_yield();
}

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- the wire */

static void conflict(void *arg, enum hkt_lane lane, int from, const struct hkt_wire_note n[2], const size_t b[2])
{
    (void)arg, (void)lane, (void)from, (void)n, (void)b;
    abort();
}

static void poison(void *arg, int from, int code, const char *s)
{
    (void)arg, (void)from, (void)code;
    fprintf(stderr, "poison: %s\n", s);
}

static void left(void *arg, int rank)
{
    (void)arg, (void)rank;
}

static void await(_Atomic uint64_t *word, uint64_t n)
{
    while (atomic_load_explicit(word, memory_order_acquire) < n)
        hkt_wire_poll();
}

static uint64_t out, in;
static const struct hkt_wire_note note = {.bytes = MIB}, small = {.bytes = 8};

static void wire_stream(char *buffer)
{
    for (int i = 0; i < STREAM; i++) {
        char *at = buffer + (size_t)(i % 8) * MIB;

        while ((me ? hkt_wire_receive(w, 0, !me, at, &note) : hkt_wire_send(w, 0, !me, at, &note)) == HKT_IN_PROGRESS)
            hkt_wire_poll();
    }
    if (me)
        await(hkt_wire_arrived(w, 0, !me), in += STREAM);
    else
        await(hkt_wire_sent(w, 0, !me), out += STREAM);
}

static void wire_ping(char *buffer)
{
    for (int i = 0; i < PINGS; i++) {
        hkt_wire_receive(w, 0, !me, buffer + 64, &small);
        if (me)
            await(hkt_wire_arrived(w, 0, !me), ++in);
        hkt_wire_send(w, 0, !me, buffer, &small);
        out++;
        if (!me)
            await(hkt_wire_arrived(w, 0, !me), ++in);
    }
    await(hkt_wire_sent(w, 0, !me), out);
}

/* ---- plain sockets, polled like the wire */

static void all(char *at, size_t bytes, int sending)
{
    while (bytes) {
        const ssize_t n = sending ? send(sock, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(sock, at, bytes, MSG_DONTWAIT);

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            die("plain socket");
        at += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
}

static void raw_stream(char *buffer)
{
    for (int i = 0; i < STREAM; i++)
        all(buffer + (size_t)(i % 8) * MIB, MIB, !me);
}

static void raw_ping(char *buffer)
{
    for (int i = 0; i < PINGS; i++) {
        all(buffer, 8, !me);
        all(buffer, 8, me);
    }
}

static void raw_connect(const char *to)
{
    struct sockaddr_in a  = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int                on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (me) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 1))
            die("listen");
        meet();
        sock = accept(fd, NULL, NULL);
    } else {
        inet_pton(AF_INET, to, &a.sin_addr);
        meet();
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)))
            die("connect");
        sock = fd;
    }
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* ---- */

static double cpu(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_nvcsw;
}

static int compare(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double median(double *x)
{
    qsort(x, ROUNDS, sizeof(*x), compare);
    return x[ROUNDS / 2];
}

static void run(void (*what[4])(char *), char *buffer)
{
    double waits = 0;

    for (int round = -1; round < ROUNDS; round++)
        for (int k = 0; k < 4; k++) {
            double       begin;
            const double before = cpu();

            meet();
            begin = seconds();
            what[k](buffer);
            meet();
            if (round >= 0 && !me)
                board->result[k][round] = seconds() - begin;
            if (k < 2)
                waits += cpu() - before;
        }
    printf("%c: %.0f voluntary context switches of the wire in all rounds\n", 'a' + me, waits);
}

int main(int n, char **arg)
{
    void (*what[4])(char *) = {wire_stream, wire_ping, raw_stream, raw_ping}; if (getenv("ONLY_PING")) what[0] = what[2] = wire_ping, what[3] = wire_ping;
    struct hkt_process     *process[2];
    struct hkt_process     *self;
    static char             host[] = "HKT_HOST=?";
    struct hkt_wire_events  events = {conflict, poison, left};
    struct hkt_segment     *segment;
    char                   *buffer = NULL;
    int                     fd;

    if (n < 4)
        return 2;
    me       = arg[1][0] == 'b';
    host[9]  = arg[1][0];
    putenv(host);
    fd = open(arg[2], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(*board)))
        die(arg[2]);
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (hkt_segment_create(&segment, 8 * MIB, "buffers") || board == MAP_FAILED) /* memory that a network may touch by itself */
        die("memory");
    buffer = segment->base;
    memset(buffer, 1, 8 * MIB);
    if (hkt_process_self(&self))
        return fprintf(stderr, "%s\n", hkt_last_error()), 1;
    hkt_process_address(&board->address[me]);
    meet();
    if (hkt_process_attach(process, board->address, 2) ||
        hkt_wire_open(&w, &(struct hkt_wire_config){.id = {1, 2}, .rank = me, .size = 2, .process = process, .events = &events}))
        return fprintf(stderr, "%s\n", hkt_last_error()), 1;
    raw_connect(arg[3]);
    meet();
    run(what, buffer);
    if (!me) {
        double t[4];

        for (int k = 0; k < 4; k++)
            t[k] = median(board->result[k]);
        printf("stream of 1 MiB: wire %.2f GB/s, plain %.2f GB/s, ratio %.3f\n", STREAM * 1.048576e-3 / t[0], STREAM * 1.048576e-3 / t[2], t[2] / t[0]);
        printf("8 B round trip:  wire %.2f us, plain %.2f us, ratio %.3f\n", t[1] / PINGS * 1e6, t[3] / PINGS * 1e6, t[1] / t[3]);
    }
    meet();
    hkt_wire_close(w);
    return 0;
}
