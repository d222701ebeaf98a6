/* wire.c -- messages between two hosts against plain sockets: streams of large ones one way, a ping-pong of small ones. Two processes on one machine, or
 * one in each of two network namespaces or guests that share FILE. What is compared takes turns, cell by cell. Each cell is told as it ends, so that one
 * sees how far a slow machine has come.
 *
 *     wire b FILE ADDRESS [ROUNDS [SHARE]]  and  wire a FILE ADDRESS [ROUNDS [SHARE]]
 *
 * FILE is where the two leave their addresses, and must be new; ADDRESS is where b is reached by plain sockets. SHARE of the messages are sent (1; less for
 * machines that are emulated: 1 moves 6 GB). HKT_NETWORK chooses the carrier.
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
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MIB = 1 << 20, ROUNDS = 99, CELLS = 6, PINGS = 5000, PORT = 5471 };

struct board {
    _Atomic uint32_t           barrier;
    struct hkt_process_address address[2];
};

static struct board    *board;
static int              me;
static struct hkt_wire *w;
static int              sock = -1;
static double           result[CELLS][ROUNDS]; /* the mean of a round */
static double           typical[CELLS][ROUNDS]; /* of pings, the median in a round */
static double           trip[PINGS];

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

static void wire_stream(char *buffer, size_t bytes, int n)
{
    const struct hkt_wire_note note = {.bytes = bytes};

    for (int i = 0; i < n; i++) {
        char *at = buffer + (size_t)(i % 8) * bytes;

        while ((me ? hkt_wire_receive(w, 0, !me, at, &note) : hkt_wire_send(w, 0, !me, at, &note)) == HKT_IN_PROGRESS)
            hkt_wire_poll();
    }
    if (me)
        await(hkt_wire_arrived(w, 0, !me), in += (uint64_t)n);
    else
        await(hkt_wire_sent(w, 0, !me), out += (uint64_t)n);
}

static void wire_ping(char *buffer, size_t bytes, int n)
{
    const struct hkt_wire_note note = {.bytes = bytes};

    for (int i = 0; i < n; i++) {
        const double begin = seconds();

        hkt_wire_receive(w, 0, !me, buffer + MIB, &note);
        if (me)
            await(hkt_wire_arrived(w, 0, !me), ++in);
        hkt_wire_send(w, 0, !me, buffer, &note);
        out++;
        if (!me)
            await(hkt_wire_arrived(w, 0, !me), ++in);
        trip[i] = seconds() - begin;
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

static void raw_stream(char *buffer, size_t bytes, int n)
{
    for (int i = 0; i < n; i++)
        all(buffer + (size_t)(i % 8) * bytes, bytes, !me);
}

static void raw_ping(char *buffer, size_t bytes, int n)
{
    for (int i = 0; i < n; i++) {
        const double begin = seconds();

        all(buffer, bytes, !me);
        all(buffer, bytes, me);
        trip[i] = seconds() - begin;
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

/* ---- cells: by the wire, then by the plain socket -------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*move)(char *buffer, size_t bytes, int n);
    size_t bytes;
    int    n;
} cell[CELLS] = {
    {"wire", wire_ping, 8, PINGS},
    {"plain", raw_ping, 8, PINGS},
    {"wire", wire_stream, 65536, 3200},
    {"plain", raw_stream, 65536, 3200},
    {"wire", wire_stream, MIB, 400},
    {"plain", raw_stream, MIB, 400},
};

static int count(int k, double share)
{
    const int n = (int)(cell[k].n * share);

    return n > 8 ? n : 8;
}

static int is_ping(int k)
{
    return cell[k].bytes == 8;
}

/* Microseconds of a round trip, or MB/s. */
static double figure(int k, double seconds_of_all, int n)
{
    return is_ping(k) ? seconds_of_all / n * 1e6 : n * (double)cell[k].bytes * 1e-6 / seconds_of_all;
}

static int compare(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof(*x), compare);
    return x[n / 2];
}

/* The first round is for warmth. */
static void run(char *buffer, int rounds, double share)
{
    for (int round = -1; round < rounds; round++)
        for (int k = 0; k < CELLS; k++) {
            const int n = count(k, round < 0 ? share / 4 : share);
            double    begin, mean, middle;

            meet();
            begin = seconds();
            cell[k].move(buffer, cell[k].bytes, n);
            meet();
            mean   = figure(k, seconds() - begin, n);
            middle = is_ping(k) ? median(trip, n) * 1e6 : mean;
            if (!me)
                fprintf(stderr, "round %d: %s, %zu bytes: %.2f %s (typical %.2f)\n", round, cell[k].name, cell[k].bytes, mean, is_ping(k) ? "us" : "MB/s",
                        middle);
            if (round >= 0) {
                result[k][round]  = mean;
                typical[k][round] = middle;
            }
        }
}

static void report(int rounds)
{
    for (int k = 0; k < CELLS; k += 2) {
        const double wire = median(result[k], rounds), plain = median(result[k + 1], rounds);

        printf("%s of %zu bytes: wire %.2f %s, plain %.2f, wire/plain %.3f\n", is_ping(k) ? "round trip" : "stream", cell[k].bytes, wire,
               is_ping(k) ? "us" : "MB/s", plain, wire / plain);
        if (is_ping(k))
            printf("  its typical one: wire %.2f us, plain %.2f\n", median(typical[k], rounds), median(typical[k + 1], rounds));
    }
}

/* What both share, and memory that a network may touch by itself. */
static char *prepare(const char *file)
{
    struct hkt_segment *segment = NULL;
    const int           fd      = open(file, O_RDWR | O_CREAT, 0600);

    if (fd < 0 || ftruncate(fd, sizeof(*board)))
        die(file);
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (board == MAP_FAILED || hkt_segment_create(&segment, 8 * MIB, "buffers"))
        die("memory");
    close(fd);
    memset(segment->base, 1, 8 * MIB);
    return (char *)segment->base;
}

int main(int n, char **arg)
{
    struct hkt_process     *process[2], *self;
    static char             host[] = "HKT_HOST=?";
    struct hkt_wire_events  events = {conflict, poison, left};
    const int               rounds = n > 4 ? atoi(arg[4]) : 9;
    const double            share  = n > 5 ? atof(arg[5]) : 1;
    char                   *buffer;

    if (n < 4 || rounds < 1 || rounds > ROUNDS || share <= 0 || share > 1)
        return fprintf(stderr, "usage: wire a|b FILE ADDRESS [ROUNDS [SHARE]]\n"), 2;
    me      = arg[1][0] == 'b';
    host[9] = arg[1][0];
    putenv(host);
    buffer = prepare(arg[2]);
    if (hkt_process_self(&self))
        return fprintf(stderr, "%s\n", hkt_last_error()), 1;
    hkt_process_address(&board->address[me]);
    meet();
    if (hkt_process_attach(process, board->address, 2) ||
        hkt_wire_open(&w, &(struct hkt_wire_config){.id = {1, 2}, .rank = me, .size = 2, .process = process, .events = &events}))
        return fprintf(stderr, "%s\n", hkt_last_error()), 1;
    raw_connect(arg[3]);
    run(buffer, rounds, share);
    if (!me)
        report(rounds);
    meet();
    hkt_wire_close(w);
    return 0;
}
