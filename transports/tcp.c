/* tcp.c -- other hosts over TCP: one socket for what is small, and some for large messages, whose parts take whichever is free.
 *
 * A head and what it announces leave by one sendmsg(), from where the message is; what comes is read to where it belongs, together with the head
 * behind it (readv). Kernel buffers are left to the kernel's own tuning. How sockets come to be is left to tcp_join.c.
 */
#include "transports/tcp.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "net/transport.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    PACKED  = 1024,   /* bytes that are copied together before they leave */
    PART    = 262144, /* bytes of a large message that one socket takes at a time */
    ROUNDS  = 8,      /* system calls in one turn of a socket */
    DIRECT  = 8,      /* so many sockets are looked at one by one, without asking epoll */
    IDLEST  = 3       /* a socket that was silent 2^n times is left out of up to 2^n polls */
};

static const uint64_t END_NS = 2000000000u;

static char nowhere[65536]; /* what nobody wants */

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void drop_all(struct hkt_channel *c)
{
    for (struct tcp_socket *s = tcp_all, *next; s; s = next) {
        next = s->next;
        if (s->channel == c)
            tcp_drop(s);
    }
    memset(c->socket, 0, sizeof(c->socket));
    c->bulk = 0;
}

void tcp_lose(struct hkt_channel *c, const char *why)
{
    if (c->state == TCP_LOST)
        return;
    c->state = TCP_LOST;
    drop_all(c);
    c->user->lost(c->arg, why);
}

void tcp_part(struct hkt_channel *c)
{
    for (int i = 0; i < TCP_SOCKETS; i++)
        if (c->socket[i])
            tcp_drop(c->socket[i]);
    memset(c->socket, 0, sizeof(c->socket));
    c->bulk  = 0;
    c->state = TCP_IDLE;
    c->user->closed(c->arg);
    tcp_choose(c);
}

static void lose_by(struct hkt_channel *c, int error)
{
    char text[200];

    snprintf(text, sizeof(text), "the connection was lost: %s",
             error == ETIMEDOUT ? "the host does not answer for 5 s" : error ? strerror(error) : "the process has ended");
    tcp_lose(c, text);
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

/* What has come of the body. False: the channel is gone. */
static bool advance_body(struct tcp_socket *s, uint32_t n)
{
    struct hkt_channel *c = s->channel;

    s->left -= n;
    s->to = s->to ? s->to + n : NULL;
    if (s->left)
        return true;
    s->in_body = false;
    if (s->head.kind == HKT_HEAD_BYE) {
        tcp_part(c);
        return false;
    }
    if (c->user->landed(c->arg, &s->head)) {
        tcp_lose(c, "the process sends what it may not send, and was cut off");
        return false;
    }
    return c->state == TCP_JOINED;
}

/* Takes apart what the buffer holds. False: the channel is gone. */
static bool parse(struct tcp_socket *s)
{
    struct hkt_channel *c = s->channel;

    for (;;) {
        const unsigned left = s->have - s->used;

        if (s->in_body) {
            const uint32_t n = left < s->left ? left : s->left;

            if (s->to)
                memcpy(s->to, s->buffer + s->used, n);
            s->used += n;
            if (!advance_body(s, n))
                return false;
            if (s->in_body)
                break;
            continue;
        }
        if (left < sizeof(s->head))
            break;
        memcpy(&s->head, s->buffer + s->used, sizeof(s->head));
        s->used += (unsigned)sizeof(s->head);
        s->in_body = true;
        s->left    = s->head.length;
        if (c->user->place(c->arg, &s->head, &s->to)) {
            tcp_lose(c, "the process sends what it may not send, and was cut off");
            return false;
        }
    }
    memmove(s->buffer, s->buffer + s->used, s->have - s->used);
    s->have -= s->used;
    s->used = 0;
    return true;
}

/* The other side has closed this socket: when that was in peace, the first one says so, but perhaps a little later. */
static bool retire(struct tcp_socket *s)
{
    struct hkt_channel *c = s->channel;

    if (!s->greeting.index || s->in_body || s->have || s->pieces)
        return false;
    c->socket[s->greeting.index] = NULL;
    c->bulk--;
    tcp_drop(s);
    return true;
}

/* Reads until there is no more, or it is the others' turn. False: the channel is gone. */
static bool pull(struct tcp_socket *s)
{
    bool any = false;

    for (int i = 0; i < ROUNDS; i++) {
        struct iovec   vec[2];
        int            n = 0;
        size_t         room = 0;
        ssize_t        got;
        const uint32_t expected = s->in_body ? s->left : 0;

        if (expected)
            vec[n++] = (struct iovec){s->to ? s->to : nowhere, s->to || expected < sizeof(nowhere) ? expected : sizeof(nowhere)};
        if (!expected || vec[0].iov_len == expected)
            vec[n++] = (struct iovec){s->buffer + s->have, TCP_BUFFER - s->have};
        for (int k = 0; k < n; k++)
            room += vec[k].iov_len;
        do
            got = n == 1 ? recv(s->fd, vec[0].iov_base, vec[0].iov_len, 0) : readv(s->fd, vec, n);
        while (got < 0 && errno == EINTR);
        if (got < 0 && errno == EAGAIN)
            break;
        if (got == 0 && retire(s))
            return true;
        if (got <= 0) {
            lose_by(s->channel, got ? errno : 0);
            return false;
        }
        any = true;
        if (expected) {
            const uint32_t body = (size_t)got < vec[0].iov_len ? (uint32_t)got : (uint32_t)vec[0].iov_len;

            s->have += (unsigned)((size_t)got - body);
            if (!advance_body(s, body))
                return false;
        } else {
            s->have += (unsigned)got;
        }
        if (!parse(s))
            return false;
        if ((size_t)got < room)
            break;
    }
    if (any)
        hkt_net_moved();
    s->idle = any ? 0 : s->idle + 1;
    return true;
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

/* What this socket is for. */
static int sizes_of(const struct tcp_socket *s)
{
    return s != s->channel->socket[0] ? HKT_PIECE_LARGE : s->channel->bulk ? HKT_PIECE_SMALL : HKT_PIECE_SMALL | HKT_PIECE_LARGE;
}

static void fetch(struct tcp_socket *s)
{
    struct hkt_channel *c     = s->channel;
    size_t              bytes = 0;

    for (int i = 0; i < s->pieces; i++)
        bytes += s->piece[i].head.length;
    while (s->pieces < TCP_PIECES && bytes < PART && c->user->next(c->arg, sizes_of(s), PART, &s->piece[s->pieces]))
        bytes += s->piece[s->pieces++].head.length;
}

/* So many bytes have gone. */
static void advance_out(struct tcp_socket *s, size_t n)
{
    struct hkt_channel *c    = s->channel;
    int                 done = 0;

    if (n)
        hkt_net_moved();
    s->sent += n;
    while (done < s->pieces && s->sent >= sizeof(struct hkt_head) + s->piece[done].head.length) {
        s->sent -= sizeof(struct hkt_head) + s->piece[done].head.length;
        hkt_free(s->copy[done]);
        s->copy[done] = NULL;
        if (s->piece[done].owner)
            c->user->gone(c->arg, &s->piece[done]);
        done++;
    }
    s->pieces -= done;
    memmove(s->piece, s->piece + done, (size_t)s->pieces * sizeof(s->piece[0]));
    memmove(s->copy, s->copy + done, (size_t)s->pieces * sizeof(s->copy[0]));
    memset(s->copy + s->pieces, 0, (size_t)(TCP_PIECES - s->pieces) * sizeof(s->copy[0]));
}

/* A little: a copy of it is cheaper than to describe its parts to the kernel. */
static ssize_t send_packed(int fd, const struct iovec *vec, int n, char *packed)
{
    size_t size = 0;

    for (int i = 0; i < n; i++) {
        memcpy(packed + size, vec[i].iov_base, vec[i].iov_len);
        size += vec[i].iov_len;
    }
    return send(fd, packed, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Sends until the socket is full or there is nothing more. False: the channel is gone. */
static bool push(struct tcp_socket *s)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct iovec  vec[2 * TCP_PIECES];
        struct msghdr message = {.msg_iov = vec};
        size_t        skip    = s->sent, total = 0;
        char          packed[PACKED];
        ssize_t       n;

        fetch(s);
        if (!s->pieces) {
            s->full = false;
            return true;
        }
        for (int k = 0; k < s->pieces; k++) {
            const struct iovec part[2] = {{&s->piece[k].head, sizeof(struct hkt_head)},
                                          {(void *)(uintptr_t)s->piece[k].body, s->piece[k].head.length}};

            for (int j = 0; j < 2; j++) {
                const size_t gone = skip < part[j].iov_len ? skip : part[j].iov_len;

                skip -= gone;
                if (part[j].iov_len > gone)
                    vec[message.msg_iovlen++] = (struct iovec){(char *)part[j].iov_base + gone, part[j].iov_len - gone};
                total += part[j].iov_len - gone;
            }
        }
        n = total <= sizeof(packed) ? send_packed(s->fd, vec, (int)message.msg_iovlen, packed) : sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            lose_by(s->channel, errno);
            return false;
        }
        advance_out(s, n > 0 ? (size_t)n : 0);
        s->full = n < 0 || (size_t)n < total;
        if (s->full)
            return true;
    }
    s->full = true; /* there may be more: it is tried again */
    return true;
}

static void pump(struct hkt_channel *c)
{
    for (int i = 0; i < TCP_SOCKETS && c->state == TCP_JOINED; i++)
        if (c->socket[i] && !push(c->socket[i]))
            return;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static void arm_socket(struct tcp_socket *s, bool on)
{
    if (s->armed == on)
        return;
    s->armed = on;
    hkt_net_rewatch(&s->watch, s->fd, on ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void tcp_ready(struct hkt_watch *w, uint32_t events)
{
    struct tcp_socket *s = (struct tcp_socket *)w;

    if (s->state == TCP_ENDS) {
        ssize_t n = recv(s->fd, nowhere, sizeof(nowhere), 0);

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            tcp_drop(s);
        return;
    }
    if (events & EPOLLOUT) {
        if (!push(s))
            return;
        if (!s->full)
            arm_socket(s, false);
    }
    if (events & ~(uint32_t)EPOLLOUT)
        pull(s);
}

void tcp_up(struct tcp_socket *s)
{
    struct hkt_channel *c = s->channel;

    s->state       = TCP_UP;
    s->watch.ready = tcp_ready;
    s->armed       = false;
    hkt_net_rewatch(&s->watch, s->fd, EPOLLIN);
    c->socket[s->greeting.index] = s;
    c->bulk += s->greeting.index > 0;
    if (!s->greeting.index)
        c->state = TCP_JOINED;
    push(s);
}

static bool poll_direct(struct hkt_channel *c)
{
    for (int i = 0; i < TCP_SOCKETS && c->state == TCP_JOINED; i++) {
        struct tcp_socket *s = c->socket[i];

        if (!s || (s->idle && i && ++s->skipped < 1u << (s->idle < IDLEST ? s->idle : IDLEST)))
            continue;
        s->skipped = 0;
        if ((s->full && !push(s)) || !pull(s))
            return false;
    }
    return true;
}

static bool seldom(const struct hkt_channel *c)
{
    return c->seldom && *c->seldom;
}

/* Few sockets are read without asking first: one system call less on the way of a message. */
static bool poll_all(void)
{
    int sockets = 0;

    for (struct hkt_channel *c = tcp_channels; c && sockets <= DIRECT; c = c->next)
        sockets += c->state == TCP_JOINED && !seldom(c) ? 1 + c->bulk : 0;
    for (struct hkt_channel *c = tcp_channels; c; c = c->next) {
        if (sockets <= DIRECT && !seldom(c))
            poll_direct(c);
        for (int i = 0; i < TCP_SOCKETS && sockets > DIRECT && c->state == TCP_JOINED; i++)
            if (c->socket[i] && c->socket[i]->full)
                push(c->socket[i]);
    }
    return sockets > DIRECT;
}

static void arm(void)
{
    for (struct hkt_channel *c = tcp_channels; c; c = c->next)
        for (int i = 0; i < TCP_SOCKETS && c->state == TCP_JOINED; i++)
            if (c->socket[i] && c->socket[i]->full)
                arm_socket(c->socket[i], true);
}

static bool quiet(const struct hkt_channel *c)
{
    for (int i = 0; i < TCP_SOCKETS && c->state == TCP_JOINED; i++) {
        int unsent = 0;

        if (c->socket[i] && (c->socket[i]->pieces || (ioctl(c->socket[i]->fd, SIOCOUTQ, &unsent) == 0 && unsent > 0)))
            return false;
    }
    return c->state != TCP_JOINS;
}

/* ---- channels ---------------------------------------------------------------------------------------------------- */

static int open_channel(struct hkt_channel **made, const struct hkt_channel_config *config)
{
    struct hkt_channel *c = hkt_alloc(sizeof(*c));
    int                 rc;

    if (!c)
        return HKT_ERR_MEMORY;
    c->user   = config->user;
    c->arg    = config->arg;
    c->seldom = config->seldom;
    rc        = tcp_name(c, config);
    if (rc) {
        hkt_free(c);
        return rc;
    }
    c->next      = tcp_channels;
    tcp_channels = c;
    tcp_attached(c);
    *made = c;
    return 0;
}

static void forget_in(struct tcp_socket *s, uint32_t pair)
{
    if (s->in_body && s->head.kind == HKT_HEAD_DATA && s->head.pair == pair)
        s->to = NULL;
}

/* False: there is no memory for a copy. */
static bool forget_out(struct tcp_socket *s, const void *owner)
{
    for (int i = 0; i < s->pieces; i++) {
        if (s->piece[i].owner != owner)
            continue;
        s->piece[i].owner = NULL;
        if (!s->piece[i].head.length)
            continue;
        s->copy[i] = hkt_alloc(s->piece[i].head.length);
        if (!s->copy[i])
            return false;
        memcpy(s->copy[i], s->piece[i].body, s->piece[i].head.length);
        s->piece[i].body = s->copy[i];
    }
    return true;
}

static void forget(struct hkt_channel *c, const void *owner, uint32_t pair)
{
    for (int i = 0; i < TCP_SOCKETS && c->state == TCP_JOINED; i++) {
        if (!c->socket[i])
            continue;
        forget_in(c->socket[i], pair);
        if (!forget_out(c->socket[i], owner)) {
            tcp_lose(c, "the connection was given up: no memory for the rest of a message");
            return;
        }
    }
}

/* What is still under way arrives, the other side closes; what it says meanwhile is dropped. */
static void end(struct tcp_socket *s)
{
    const struct hkt_head bye = {.kind = HKT_HEAD_BYE};

    if (s == s->channel->socket[0] && !s->pieces && send(s->fd, &bye, sizeof(bye), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(bye)) {
        tcp_drop(s);
        return;
    }
    if (s->pieces) {
        tcp_drop(s);
        return;
    }
    shutdown(s->fd, SHUT_WR);
    arm_socket(s, false);
    s->state    = TCP_ENDS;
    s->channel  = NULL;
    s->deadline = hkt_now_ns() + END_NS;
}

static void close_channel(struct hkt_channel *c)
{
    struct hkt_channel **at = &tcp_channels;

    if (!c)
        return;
    for (int i = TCP_SOCKETS - 1; i >= 0 && c->state == TCP_JOINED; i--)
        if (c->socket[i])
            end(c->socket[i]);
    drop_all(c);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    hkt_free(c);
}

static const struct hkt_carrier carrier = {
    .address   = tcp_address,
    .open      = open_channel,
    .connect   = tcp_connect,
    .pump      = pump,
    .quiet     = quiet,
    .forget    = forget,
    .close     = close_channel,
    .poll      = poll_all,
    .tick      = tcp_tick,
    .arm       = arm,
    .forked    = tcp_forked,
    .strangers = tcp_strangers,
};

/* The costs are orders of magnitude of a 10 Gbit/s network. */
static int reach(const struct hkt_process *peer, struct hkt_link *link)
{
    if (!peer->net)
        return HKT_ERR_UNSUPPORTED;
    *link = (struct hkt_link){.alpha = 15e-6, .gap = 1e-6, .beta = 1e-9, .gamma = 0.05e-9};
    return 0;
}

const struct hkt_transport hkt_transport_tcp = {
    .name    = "tcp",
    .desc    = "ranks on other hosts, over sockets",
    .reach   = reach,
    .carrier = &carrier,
};
