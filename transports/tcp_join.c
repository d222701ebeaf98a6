/* tcp_join.c -- how the sockets of tcp.c come to be: a listener, calls to the addresses of another host, proof of who is there.
 *
 * Both processes may call at once, and each may call several addresses: whatever connects first and proves the key is taken. Of two processes
 * the one with the smaller uuid decides which that is, by one byte on it; the other one waits for that byte. Then the caller calls again for the
 * sockets that carry large messages. The greeting says which process calls which (by hashes: the uuids are secret), is part of what is proven, and
 * everything before the proof costs a small struct for a few seconds at most: strangers are dropped and counted, the oldest first when they are many.
 */
#include "transports/tcp.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/option.h"
#include "setup/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    STRANGERS = 128, /* connections at a time that have not proven who they are */
    BACKLOG   = 1024
};

static const uint64_t MAGIC      = 0x0131504354544b48ULL; /* "HKTTCP1", and tells the byte order */
static const uint64_t SILENCE_NS = 2000000000u;  /* to greet and to prove */
static const uint64_t UNKNOWN_NS = 4000000000u;  /* to become known */
static const uint64_t PROVEN_NS  = 5000000000u;  /* to be taken */
static const uint64_t DIAL_NS    = 3000000000u;  /* to connect */
static const uint64_t STAGGER_NS = 150000000u;   /* the next address is called though the one before may answer yet */
static const uint64_t REDIAL_NS  = 200000000u;   /* after the last one */
static const uint64_t FULL_NS    = 10000000u;    /* out of descriptors: look again after this */
static const unsigned char TAKEN = 'U';

enum { LOST_MS = 5000 }; /* what was sent and not acknowledged so long: the host has vanished */

struct tcp_socket  *tcp_all;
struct hkt_channel *tcp_channels;

static struct hkt_watch listener_watch;
static int              listener = -1;
static uint16_t         port;
static uint64_t         listener_paused;
static int              unproven;
static _Atomic uint64_t strangers;

static void ready(struct hkt_watch *w, uint32_t events);

/* ---- sockets ----------------------------------------------------------------------------------------------------- */

static bool is_unproven(const struct tcp_socket *s)
{
    return !s->caller && (s->state == TCP_GREETED || s->state == TCP_UNKNOWN || s->state == TCP_PROVES);
}

static bool is_dialing(const struct tcp_socket *s)
{
    return s->caller && s->channel && !s->greeting.index && (s->state == TCP_DIALS || s->state == TCP_PROVES);
}

static struct tcp_socket *new_socket(int fd, enum tcp_state state, struct hkt_channel *c, uint32_t events)
{
    struct tcp_socket *s = hkt_alloc(sizeof(*s));

    if (!s || hkt_net_watch(&s->watch, fd, events)) {
        hkt_free(s);
        close(fd);
        return NULL;
    }
    s->watch.ready = ready;
    s->fd          = fd;
    s->state       = state;
    s->channel     = c;
    s->deadline    = hkt_now_ns() + (state == TCP_DIALS ? DIAL_NS : SILENCE_NS);
    s->next        = tcp_all;
    tcp_all        = s;
    return s;
}

void tcp_drop(struct tcp_socket *s)
{
    struct tcp_socket **at = &tcp_all;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    unproven -= is_unproven(s);
    if (is_dialing(s))
        s->channel->dialing--;
    hkt_net_unwatch(s->fd); /* a forked child may keep it open */
    close(s->fd);
    for (int i = 0; i < s->pieces; i++)
        hkt_free(s->copy[i]);
    hkt_free(s->buffer);
    hkt_free(s);
}

static void drop_stranger(struct tcp_socket *s)
{
    atomic_fetch_add_explicit(&strangers, 1, memory_order_relaxed); /* a statistic: no partner */
    tcp_drop(s);
}

uint64_t tcp_strangers(void)
{
    return atomic_load_explicit(&strangers, memory_order_relaxed);
}

void tcp_forked(void)
{
    for (struct tcp_socket *s = tcp_all; s; s = s->next)
        close(s->fd);
    if (listener >= 0)
        close(listener);
}

/* ---- this host's address ----------------------------------------------------------------------------------------- */

static void welcome(struct hkt_watch *w, uint32_t events);

int tcp_address(unsigned char *record, size_t room)
{
    struct hkt_inet_address list[HKT_INET_LIST];
    int                     n, fd;

    if (!hkt_proof_supported())
        return hkt_proof_unsupported();
    n = hkt_inet_own(list, HKT_INET_LIST);
    if (n <= 0)
        return n ? n : hkt_fail(HKT_ERR_UNSUPPORTED, "this host has no network address");
    if (listener < 0) {
        port = 0;
        fd   = hkt_inet_listen(&port, BACKLOG);
        if (fd < 0)
            return fd;
        listener_watch.ready = welcome;
        if (hkt_net_watch(&listener_watch, fd, EPOLLIN)) {
            close(fd);
            return hkt_fail(HKT_ERR_SYSTEM, "cannot watch the network's listening socket: %s", hkt_errno_text(errno));
        }
        listener = fd;
    }
    return (int)tcp_write_record(record, room, &(struct tcp_address){port, list, n});
}

static int name_of(uint64_t *name, const uint64_t uuid[2])
{
    unsigned char hash[HKT_PROOF_KEY];

    HKT_TRY(hkt_proof_key(hash, "hocket tcp name", uuid, 2 * sizeof(uuid[0])));
    memcpy(name, hash, sizeof(*name));
    return 0;
}

int tcp_name(struct hkt_channel *c, const struct hkt_channel_config *config)
{
    uint64_t both[2][2];

    c->decides = memcmp(config->self, config->peer, sizeof(both[0])) < 0;
    memcpy(both[!c->decides], config->self, sizeof(both[0]));
    memcpy(both[c->decides], config->peer, sizeof(both[0]));
    HKT_TRY(hkt_proof_key(c->key, "hocket tcp key", both, sizeof(both)));
    HKT_TRY(name_of(&c->self, config->self));
    HKT_TRY(name_of(&c->peer, config->peer));
    return tcp_read_record(c, config->record, config->size);
}

/* ---- proving and taking ------------------------------------------------------------------------------------------ */

static void set(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof(value)); /* it works without, only slower or later */
}

static void call(struct hkt_channel *c, const struct hkt_inet_address *to, int index)
{
    const int          fd = hkt_inet_connect(to);
    struct tcp_socket *s  = fd < 0 ? NULL : new_socket(fd, TCP_DIALS, c, EPOLLOUT);

    if (!s) {
        c->error = fd < 0 ? -fd : ENOMEM;
        return;
    }
    s->caller   = true;
    s->greeting = (struct tcp_greeting){.magic = MAGIC, .to = c->peer, .from = c->self, .session = c->session, .index = (uint16_t)index};
    s->address  = *to;
    c->dialing += !index;
}

/* The extra sockets of what is up now, that came before they could be taken. */
static void adopt(struct hkt_channel *c)
{
    for (struct tcp_socket *s = tcp_all; s; s = s->next)
        if (s->channel == c && s->state == TCP_PROVEN && s->greeting.index && s->greeting.session == c->socket[0]->greeting.session &&
            !c->socket[s->greeting.index])
            tcp_up(s);
}

static bool prepare(struct tcp_socket *s)
{
    set(s->fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(s->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, LOST_MS);
    set(s->fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(s->fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    set(s->fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set(s->fd, IPPROTO_TCP, TCP_KEEPCNT, LOST_MS / 1000 - 1);
    s->buffer = s->buffer ? s->buffer : hkt_alloc(TCP_BUFFER);
    return s->buffer;
}

/* This first socket of a channel is it: all other attempts are given up. */
static void take(struct tcp_socket *s)
{
    struct hkt_channel *c = s->channel;

    s->state = TCP_UP;
    for (struct tcp_socket *o = tcp_all, *next; o; o = next) {
        next = o->next;
        if (o != s && o->channel == c && !o->greeting.index && (o->caller || c->decides))
            tcp_drop(o);
    }
    c->session = s->greeting.session;
    tcp_up(s);
    for (int i = 1; s->caller && i <= tcp_bulk_sockets() && c->state == TCP_JOINED; i++)
        call(c, &s->address, i);
    if (c->state == TCP_JOINED)
        adopt(c);
}

void tcp_choose(struct hkt_channel *c)
{
    struct tcp_socket *s = tcp_all;

    if (!c->decides || c->state == TCP_JOINED || c->state == TCP_LOST)
        return;
    while (s && (s->channel != c || s->state != TCP_PROVEN || s->greeting.index))
        s = s->next;
    if (s && send(s->fd, &TAKEN, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
        take(s);
    else if (s)
        tcp_drop(s);
}

/* The other process decides: has it? */
static void hear_choice(struct tcp_socket *s)
{
    struct hkt_channel *c = s->channel;
    unsigned char       byte;
    const ssize_t       n = recv(s->fd, &byte, 1, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != 1 || byte != TAKEN) {
        tcp_drop(s);
        return;
    }
    if (c->state == TCP_JOINED) /* it has given up the connection before */
        tcp_part(c);
    take(s);
}

static void proven(struct tcp_socket *s)
{
    struct hkt_channel *c = s->channel;

    if (is_dialing(s))
        c->dialing--;
    unproven -= is_unproven(s);
    s->state    = TCP_PROVEN;
    s->deadline = hkt_now_ns() + PROVEN_NS;
    hkt_net_rewatch(&s->watch, s->fd, s->greeting.index || c->decides ? 0 : EPOLLIN);
    if (!prepare(s) || c->state == TCP_LOST)
        tcp_drop(s);
    else if (s->greeting.index && c->state == TCP_JOINED)
        adopt(c);
    else if (!s->greeting.index && c->decides)
        tcp_choose(c);
    else if (!s->greeting.index)
        hear_choice(s);
}

/* ---- reading and calling ----------------------------------------------------------------------------------------- */

/* A call that came to nothing: the next address, if there is one. */
static void call_failed(struct tcp_socket *s, int error)
{
    struct hkt_channel *c     = s->channel;
    const bool          first = !s->greeting.index;

    c->error = error;
    tcp_drop(s);
    if (first && c->state == TCP_JOINS && c->tried < c->candidates)
        call(c, &c->candidate[c->tried++], 0);
}

static void prove(struct tcp_socket *s)
{
    const int rc = hkt_proof_turn(&s->proof, s->fd);

    if (rc == 1)
        proven(s);
    else if (rc == 0)
        hkt_net_rewatch(&s->watch, s->fd, (uint32_t)s->proof.events);
    else if (s->caller)
        call_failed(s, -rc);
    else
        drop_stranger(s);
}

static void begin_proof(struct tcp_socket *s)
{
    const uint64_t purpose = s->greeting.session ^ ((uint64_t)s->greeting.index << 48 | 0x544350);

    s->state = TCP_PROVES;
    if (hkt_proof_begin(&s->proof, s->caller ? HKT_PROOF_CONNECTS : HKT_PROOF_ACCEPTS, s->channel->key, purpose) == 0)
        prove(s);
    else if (s->caller)
        call_failed(s, ENOMEM);
    else
        drop_stranger(s);
}

static void connected(struct tcp_socket *s)
{
    const int rc = hkt_inet_connected(s->fd);

    if (rc) {
        call_failed(s, -rc);
        return;
    }
    if (send(s->fd, &s->greeting, sizeof(s->greeting), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(s->greeting)) {
        call_failed(s, errno);
        return;
    }
    s->deadline = hkt_now_ns() + UNKNOWN_NS + SILENCE_NS;
    begin_proof(s);
}

static struct hkt_channel *channel_of(const struct tcp_greeting *g)
{
    struct hkt_channel *c = tcp_channels;

    while (c && (c->self != g->to || c->peer != g->from))
        c = c->next;
    return c;
}

static void greeted(struct tcp_socket *s)
{
    s->channel = channel_of(&s->greeting);
    if (s->channel) {
        begin_proof(s);
        return;
    }
    s->state    = TCP_UNKNOWN; /* a process that this one does not know yet: it will soon, or it is a stranger */
    s->deadline = hkt_now_ns() + UNKNOWN_NS;
    hkt_net_rewatch(&s->watch, s->fd, 0);
}

static void hear_greeting(struct tcp_socket *s)
{
    const ssize_t n = recv(s->fd, (char *)&s->greeting + s->greeted, sizeof(s->greeting) - s->greeted, 0);
    size_t        head;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    s->greeted += n > 0 ? (size_t)n : 0;
    head = s->greeted < sizeof(MAGIC) ? s->greeted : sizeof(MAGIC);
    if (n <= 0 || memcmp(&s->greeting.magic, &MAGIC, head) != 0)
        drop_stranger(s);
    else if (s->greeted == sizeof(s->greeting) && s->greeting.index > TCP_BULK)
        drop_stranger(s);
    else if (s->greeted == sizeof(s->greeting))
        greeted(s);
}

static void ready(struct hkt_watch *w, uint32_t events)
{
    struct tcp_socket *s = (struct tcp_socket *)w;

    (void)events;
    switch (s->state) {
    case TCP_DIALS:
        connected(s);
        break;
    case TCP_GREETED:
        hear_greeting(s);
        break;
    case TCP_PROVES:
        prove(s);
        break;
    case TCP_PROVEN:
        if (!s->greeting.index && !s->channel->decides)
            hear_choice(s);
        else
            tcp_drop(s); /* it hung up */
        break;
    default:
        drop_stranger(s);
    }
}

void tcp_attached(struct hkt_channel *c)
{
    for (struct tcp_socket *s = tcp_all, *next; s; s = next) {
        next = s->next;
        if (s->state == TCP_UNKNOWN && s->greeting.to == c->self && s->greeting.from == c->peer) {
            s->channel  = c;
            s->deadline = hkt_now_ns() + SILENCE_NS;
            begin_proof(s);
        }
    }
}

static void pause_listener(uint64_t until)
{
    listener_paused = until;
    hkt_net_rewatch(&listener_watch, listener, until ? 0 : EPOLLIN);
}

static void drop_oldest(void)
{
    struct tcp_socket *oldest = NULL;

    for (struct tcp_socket *s = tcp_all; s; s = s->next)
        if (is_unproven(s) && (!oldest || s->deadline < oldest->deadline))
            oldest = s;
    if (oldest)
        drop_stranger(oldest);
}

static void welcome(struct hkt_watch *w, uint32_t events)
{
    (void)w, (void)events;
    for (int i = 0; i < BACKLOG; i++) {
        const int          fd = hkt_inet_accept(listener, NULL);
        struct tcp_socket *s;

        if (fd == -EAGAIN)
            return;
        if (fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM) {
            pause_listener(hkt_now_ns() + FULL_NS);
            return;
        }
        if (fd < 0)
            continue; /* it has hung up already */
        if (unproven >= STRANGERS)
            drop_oldest();
        s = new_socket(fd, TCP_GREETED, NULL, EPOLLIN);
        unproven += s != NULL;
    }
}

void tcp_connect(struct hkt_channel *c)
{
    const uint64_t now = hkt_now_ns();

    if (c->state != TCP_IDLE)
        return;
    c->state    = TCP_JOINS;
    c->tried    = 0;
    c->next_try = now + STAGGER_NS;
    c->deadline = now + (uint64_t)(hkt_options()->init_timeout * 1e9);
    if (hkt_random(&c->session, sizeof(c->session)))
        c->session = now;
    if (c->candidates)
        call(c, &c->candidate[c->tried++], 0);
}

/* ---- what is due ------------------------------------------------------------------------------------------------- */

static void give_up(struct hkt_channel *c)
{
    char text[600], address[HKT_INET_TEXT];
    int  at = snprintf(text, sizeof(text), "no connection in %g s to", hkt_options()->init_timeout);

    for (int i = 0; i < c->candidates && at < 480; i++)
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%s %s", i ? "," : "", hkt_inet_text(&c->candidate[i], address));
    snprintf(text + at, sizeof(text) - (size_t)at, "%s (%s): is there a firewall? HKT_PORTS, HKT_IFNAME", c->candidates ? "" : " any address",
             strerror(c->error));
    tcp_lose(c, text);
}

static void join_on(struct hkt_channel *c, uint64_t now)
{
    if (now >= c->deadline) {
        give_up(c);
        return;
    }
    if (now < c->next_try)
        return;
    if (c->tried < c->candidates)
        call(c, &c->candidate[c->tried++], 0);
    else if (!c->dialing)
        c->tried = 0;
    c->next_try = now + (c->tried ? STAGGER_NS : REDIAL_NS);
}

static void expire(struct tcp_socket *s)
{
    if (is_unproven(s))
        drop_stranger(s);
    else if (s->caller && s->channel && s->state != TCP_PROVEN)
        call_failed(s, ETIMEDOUT);
    else
        tcp_drop(s);
}

uint64_t tcp_tick(uint64_t now)
{
    uint64_t           next = UINT64_MAX;
    struct tcp_socket *s    = tcp_all;

    while (s) {
        if (s->state != TCP_UP && now >= s->deadline) {
            expire(s);
            s = tcp_all; /* others may have gone with it */
            continue;
        }
        next = s->state != TCP_UP && s->deadline < next ? s->deadline : next;
        s    = s->next;
    }
    for (struct hkt_channel *c = tcp_channels; c; c = c->next) {
        if (c->state == TCP_JOINS)
            join_on(c, now);
        if (c->state == TCP_JOINS)
            next = c->next_try < next ? c->next_try : next;
    }
    if (listener_paused && now >= listener_paused)
        pause_listener(0);
    return listener_paused && listener_paused < next ? listener_paused : next;
}
