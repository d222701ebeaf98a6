/* backend_socket.c -- no library at all, between hosts: the bytes that a collective must send from host to host at
 * least, moved over plain TCP sockets, and nothing else: nothing is reduced, copied within a host or checked. Messages
 * between ranks of two hosts are whole messages. Kinds: over one socket to a peer, over several. bench/versus --network
 * takes the better one of each cell as its floor. */
#include "harness.h"
#include "network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SOCKETS = 4,
    SHARE   = 65536,  /* bytes that are worth another socket */
    ATONCE  = 1 << 20 /* bytes of one system call */
};

struct hello {
    int from, index;
};

struct place { /* where a rank listens */
    struct sockaddr_in at;
};

/* A part of a message on its socket. */
struct flow {
    int         fd;
    const char *out;
    char       *in;
    size_t      to_send, to_receive;
};

static const struct world *me;
static int                 line[MAX_RANKS][SOCKETS]; /* to each rank of another host that this one has to do with */
static int                 sockets = 1;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* ---- connecting ---- */

static int per_host(void)
{
    return me->size / me->hosts;
}

/* Ranks of different hosts that follow each other, or stand in the same place of hosts that do. */
static int related(int a, int b)
{
    const int distance = (b - a + me->size) % me->size, n = me->size;

    return host_of(me, a) != host_of(me, b) &&
           (distance == 1 || distance == n - 1 || distance == per_host() || distance == n - per_host());
}

static void keep(int fd, int rank, int index)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    line[rank][index] = fd;
}

static int listen_here(struct place *p)
{
    socklen_t length = sizeof p->at;
    const int fd     = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    p->at = (struct sockaddr_in){.sin_family = AF_INET};
    inet_pton(AF_INET, me->address, &p->at.sin_addr);
    if (fd < 0 || bind(fd, (struct sockaddr *)&p->at, sizeof p->at) || listen(fd, MAX_RANKS * SOCKETS) ||
        getsockname(fd, (struct sockaddr *)&p->at, &length))
        die("listen");
    return fd;
}

static void call(const struct place *p, int rank)
{
    for (int i = 0; i < SOCKETS; i++) {
        const struct hello hello = {me->rank, i};
        const int          fd    = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0 || connect(fd, (const struct sockaddr *)&p->at, sizeof p->at) || send(fd, &hello, sizeof hello, 0) != sizeof hello)
            die("connect");
        keep(fd, rank, i);
    }
}

static void answer(int listener)
{
    struct hello hello;
    const int    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0 || recv(fd, &hello, sizeof hello, MSG_WAITALL) != sizeof hello)
        die("accept");
    keep(fd, hello.from, hello.index);
}

static int socket_open(const struct world *world, char *version, size_t size)
{
    struct place mine, all[MAX_RANKS];
    int          listener;

    me       = world;
    listener = listen_here(&mine);
    exchange(&mine, all, sizeof mine);
    for (int r = world->rank + 1; r < world->size; r++)
        if (related(world->rank, r))
            call(&all[r], r);
    for (int r = 0; r < world->rank; r++)
        for (int i = 0; i < SOCKETS && related(world->rank, r); i++)
            answer(listener);
    close(listener);
    snprintf(version, size, "plain sockets, 1 and %d to a peer", SOCKETS);
    return 0;
}

static void socket_close(void)
{
}

static void socket_select(int kind)
{
    sockets = kind ? SOCKETS : 1;
}

static void *socket_allocate(int kind, size_t bytes)
{
    (void)kind;
    return aligned_alloc(4096, bytes);
}

static void socket_release(int kind, void *memory, size_t bytes)
{
    (void)kind, (void)bytes;
    free(memory);
}

/* ---- moving ---- */

static size_t moved(ssize_t n)
{
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        die("plain socket");
    return n > 0 ? (size_t)n : 0;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t push(struct flow *f)
{
    const size_t n = f->to_send ? moved(send(f->fd, f->out, least(f->to_send, ATONCE), MSG_DONTWAIT | MSG_NOSIGNAL)) : 0;

    f->out += n;
    f->to_send -= n;
    return n;
}

static size_t pull(struct flow *f)
{
    const size_t n = f->to_receive ? moved(recv(f->fd, f->in, least(f->to_receive, ATONCE), MSG_DONTWAIT)) : 0;

    f->in += n;
    f->to_receive -= n;
    return n;
}

/* Part k of `bytes`: small messages all go by the first socket. */
static size_t part(size_t bytes, int k)
{
    return bytes < (size_t)sockets * SHARE ? (k ? bytes : 0) : k == sockets ? bytes : bytes / (size_t)sockets * (size_t)k;
}

static void move(struct flow *flow, int flows)
{
    for (size_t left = 1; left;) {
        size_t n = 0;

        left = 0;
        for (int i = 0; i < flows; i++) {
            n += push(&flow[i]) + pull(&flow[i]);
            left += flow[i].to_send + flow[i].to_receive;
        }
        if (!n && left && me->shared)
            sched_yield();
    }
}

/* Sends to one rank and receives from another, whoever of them is on another host; -1: none. */
static void transfer(const void *out, int to, void *in, int from, size_t bytes)
{
    struct flow flow[2 * SOCKETS];
    int         flows = 0;

    for (int k = 0; k < sockets; k++) {
        const size_t begin = part(bytes, k), n = part(bytes, k + 1) - begin;

        if (n && to >= 0 && related(me->rank, to))
            flow[flows++] = (struct flow){.fd = line[to][k], .out = (const char *)out + begin, .to_send = n};
        if (n && from >= 0 && related(me->rank, from))
            flow[flows++] = (struct flow){.fd = line[from][k], .in = (char *)in + begin, .to_receive = n};
    }
    move(flow, flows);
}

/* The ranks of a host share in what it sends to the next one, and receive as much from the one before. */
static int shift(const void *out, void *in, size_t bytes)
{
    const int    n    = me->size, per = per_host();
    const size_t mine = bytes / (size_t)per / 4 * 4;

    transfer(out, (me->rank + per) % n, in, (me->rank - per + n) % n, mine ? mine : 4);
    return 0;
}

/* `bytes` of every host but this one. */
static size_t of_others(size_t bytes)
{
    return bytes / (size_t)me->hosts * (size_t)(me->hosts - 1);
}

static int socket_all_reduce(const void *send, void *recv, size_t count, enum element type)
{
    if (type != FLOAT32)
        return -1;
    if (me->hosts == 2) /* both have the other's sum in one exchange */
        return shift(send, recv, count * 4);
    shift(send, recv, of_others(count * 4));
    return shift(recv, recv, of_others(count * 4));
}

static int socket_reduce_scatter(const void *send, void *recv, size_t count, enum element type)
{
    const size_t block = count * 4;

    if (type != FLOAT32)
        return -1;
    for (int h = 1; h < me->hosts; h++) /* the sums of a host's blocks, which are as large as it has ranks */
        shift(send, recv, block * (size_t)per_host());
    return 0;
}

static int socket_all_gather(const void *send, void *recv, size_t count, enum element type)
{
    const size_t block = count * 4;

    if (type != FLOAT32)
        return -1;
    for (int h = 1; h < me->hosts; h++)
        shift(send, recv, block * (size_t)per_host());
    return 0;
}

static int socket_broadcast(void *buffer, size_t count, enum element type)
{
    const int    n = me->size, per = per_host(), host = host_of(me, me->rank);
    const size_t mine = count * 4 / (size_t)per / 4 * 4;

    if (type != FLOAT32)
        return -1;
    transfer(buffer, host < me->hosts - 1 ? (me->rank + per) % n : -1, buffer, host ? me->rank - per : -1, mine ? mine : 4);
    return 0;
}

static int socket_all_to_all(const void *send, void *recv, size_t count, enum element type)
{
    if (type != FLOAT32)
        return -1;
    for (int h = 1; h < me->hosts; h++)
        transfer(send, (me->rank + per_host()) % me->size, recv, (me->rank - per_host() + me->size) % me->size,
                 count * 4 * (size_t)per_host());
    return 0;
}

static int socket_sendrecv(const void *send, int to, void *recv, int from, size_t count, enum element type)
{
    if (type != FLOAT32 || per_host() > 1) /* messages within a host are not its subject */
        return -1;
    transfer(send, to, recv, from, count * 4);
    return 0;
}

static int socket_send(const void *send, size_t count, enum element type, int to)
{
    transfer(send, to, NULL, -1, count * 4);
    return type == FLOAT32 ? 0 : -1;
}

static int socket_receive(void *recv, size_t count, enum element type, int from)
{
    transfer(NULL, -1, recv, from, count * 4);
    return type == FLOAT32 ? 0 : -1;
}

const struct backend the_backend = {
    .one_memory     = 1,
    .moves_only     = 1,
    .open           = socket_open,
    .close          = socket_close,
    .select         = socket_select,
    .allocate       = socket_allocate,
    .release        = socket_release,
    .all_reduce     = socket_all_reduce,
    .reduce_scatter = socket_reduce_scatter,
    .all_gather     = socket_all_gather,
    .broadcast      = socket_broadcast,
    .all_to_all     = socket_all_to_all,
    .sendrecv       = socket_sendrecv,
    .send           = socket_send,
    .receive        = socket_receive,
};
