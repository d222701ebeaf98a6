/* verbs.c -- other hosts over InfiniBand or RoCE, by libibverbs: messages that are expected are written to where they belong, without a copy where memory
 * is known to the library; others go in frames.
 *
 * tcp.c is underneath: by it two processes find each other, prove who they are and hear of each other's death, which queue pairs do not tell; by it they
 * agree on paths (verbs_join.c); and it is the path when no other is left. The files are listed in verbs.h. The library is loaded when it is needed, so
 * that a build runs where there is none.
 */
#include "transports/verbs.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "net/transport.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

enum {
    PATIENCE_MS = 2000, /* that something under way is waited for at the end */
    RECORD      = 96    /* bytes of the address of tcp that is ours: others need room too */
};

extern const struct hkt_transport hkt_transport_tcp;

struct hkt_channel *verbs_channels;
bool                verbs_attention;

const struct hkt_carrier *verbs_tcp(void)
{
    return hkt_transport_tcp.carrier;
}

void verbs_troubled(struct verbs_device *d, const char *what)
{
    hkt_log(HKT_LOG_WARN, "verbs: %s: %s; its paths are given up", verbs.ibv_get_device_name(d->context->device), what);
    for (struct hkt_channel *c = verbs_channels; c; c = c->next)
        if (c->device == d && c->queues)
            c->breaks = 2;
    verbs_attention = true;
}

/* ---- tcp, underneath --------------------------------------------------------------------------------------------- */

static bool next_below(void *arg, int sizes, uint32_t most, struct hkt_piece *piece)
{
    struct hkt_channel *c = arg;

    if (sizes & HKT_PIECE_SMALL && verbs_next_word(c, piece))
        return true;
    return c->state == VERBS_BY_TCP && (verbs_next_again(c, sizes, piece) || c->user->next(c->arg, sizes, most, piece));
}

static void gone_below(void *arg, const struct hkt_piece *piece)
{
    struct hkt_channel *c = arg;

    if (piece->head.kind == HKT_HEAD_CARRIER)
        c->gone++;
    else if (verbs_is_again(c, piece->owner))
        verbs_gone_again(c, piece->owner);
    else
        c->user->gone(c->arg, piece);
}

static int place_below(void *arg, const struct hkt_head *head, char **to)
{
    struct hkt_channel *c = arg;

    if (head->kind != HKT_HEAD_CARRIER)
        return c->user->place(c->arg, head, to);
    *to = (char *)&c->heard;
    return head->length == sizeof(c->heard) ? 0 : -1;
}

static int landed_below(void *arg, const struct hkt_head *head)
{
    struct hkt_channel *c = arg;

    if (c->state == VERBS_IS_LOST)
        return 0;
    return head->kind == HKT_HEAD_CARRIER ? verbs_hear(c) : c->user->landed(c->arg, head);
}

/* What has come before that is looked at. */
static void drain(struct hkt_channel *c)
{
    for (int i = 0; i < 64 && c->queues && verbs_poll(c->device); i++)
        ;
}

static void lost_below(void *arg, const char *why)
{
    struct hkt_channel *c = arg;

    drain(c);
    verbs_lose(c, why);
}

static void closed_below(void *arg)
{
    struct hkt_channel *c = arg;

    drain(c);
    if (c->state == VERBS_IS_LOST)
        return;
    verbs_shut(c);
    c->state = VERBS_STRANGE;
    verbs_greet(c);
    c->user->closed(c->arg);
}

static const struct hkt_channel_user below = {
    .next = next_below, .gone = gone_below, .place = place_below, .landed = landed_below, .lost = lost_below, .closed = closed_below};

/* ---- the carrier ------------------------------------------------------------------------------------------------- */

static bool has_devices(void)
{
    DIR *d    = opendir("/sys/class/infiniband");
    int  many = 0;

    while (d && readdir(d))
        many++;
    if (d)
        closedir(d);
    return many > 2;
}

/* Where nobody has asked for verbs by name, devices that cannot be used are no error, but worth a word. */
static int address(unsigned char *record, size_t room)
{
    static bool tried;
    static int  rc;
    const bool  pinned = strcmp(hkt_options()->network, "verbs") == 0;

    if (!pinned && !has_devices())
        return 0;
    if (!tried) {
        tried = true;
        HKT_TRY(hkt_net_use(verbs_tcp()));
        rc = verbs_start();
        if (rc && !pinned)
            hkt_log(HKT_LOG_WARN, "RDMA is not used: %s", hkt_last_error());
    }
    if (rc)
        return pinned ? hkt_fail(rc, "%s", hkt_last_error()) : 0;
    return verbs_tcp()->address(record, room < RECORD ? room : RECORD);
}

static void close_channel(struct hkt_channel *c);

static int open_channel(struct hkt_channel **made, const struct hkt_channel_config *config)
{
    struct hkt_channel       *c     = hkt_alloc(sizeof(*c));
    struct hkt_channel_config inner = *config;
    int                       rc;

    if (!c)
        return HKT_ERR_MEMORY;
    c->user       = config->user;
    c->arg        = config->arg;
    c->decides    = memcmp(config->self, config->peer, 2 * sizeof(config->self[0])) < 0;
    inner.user    = &below;
    inner.arg     = c;
    inner.seldom  = &c->by_verbs;
    c->next       = verbs_channels;
    verbs_channels = c;
    verbs_greet(c);
    rc = verbs_tcp()->open(&c->tcp, &inner);
    if (rc)
        close_channel(c);
    else
        *made = c;
    return rc;
}

static void connect_channel(struct hkt_channel *c)
{
    verbs_tcp()->connect(c->tcp);
}

static void pump(struct hkt_channel *c)
{
    verbs_pump(c);
    if (c->state == VERBS_BY_TCP || c->told != c->words)
        verbs_tcp()->pump(c->tcp);
}

static bool quiet(const struct hkt_channel *c)
{
    for (int i = 0; i < c->queues; i++)
        if (c->queue[i]->sent != c->queue[i]->done)
            return false;
    return !c->now_message && !c->again_left && c->state != VERBS_IS_DOWN && verbs_tcp()->quiet(c->tcp);
}

/* ---- memory that goes away --------------------------------------------------------------------------------------- */

static const char *moved(const char *at, const struct verbs_message *m, const char *copy)
{
    return copy + (at - m->piece.body);
}

/* What is left of the message is sent from a copy. */
static bool copy_message(struct hkt_channel *c, struct verbs_message *m)
{
    char *copy = m->piece.head.length ? hkt_alloc(m->piece.head.length) : NULL;

    m->piece.owner = NULL;
    if (!m->piece.head.length)
        return true;
    if (!copy)
        return false;
    memcpy(copy, m->piece.body, m->piece.head.length);
    for (int i = 0; i < c->queues; i++)
        for (uint32_t n = c->queue[i]->done; n != c->queue[i]->sent; n++) {
            struct verbs_sent *s = &c->queue[i]->ring[n % VERBS_DEPTH];

            s->body = s->message == m ? moved(s->body, m, copy) : s->body;
        }
    for (int i = c->again_done; i < c->nagain; i++)
        if (c->again[i].sent.message == m)
            c->again[i].sent.body = moved(c->again[i].sent.body, m, copy);
    if (c->now_message == m) {
        c->now.body   = copy;
        c->now_direct = false;
    }
    m->copy       = copy;
    m->piece.body = copy;
    return true;
}

/* tcp has taken frames of it already: it makes copies of its own. */
static void forget_taken(struct hkt_channel *c, const void *owner, uint32_t pair)
{
    for (int i = 0; i < c->again_done; i++) {
        struct verbs_again *a = &c->again[i];

        if (!a->gone && a->taken && a->sent.message && a->sent.message->piece.owner == owner) {
            verbs_tcp()->forget(c->tcp, a, pair);
            a->sent.message->piece.owner = NULL;
            verbs_gone_again(c, a);
            if (!c->again)
                return;
        }
    }
}

static bool reads(const struct hkt_channel *c, const void *owner)
{
    for (int i = 0; i < c->queues; i++)
        for (uint32_t n = c->queue[i]->done; n != c->queue[i]->sent; n++) {
            const struct verbs_sent *s = &c->queue[i]->ring[n % VERBS_DEPTH];

            if (s->message && s->message->piece.owner == owner)
                return true;
        }
    return false;
}

static void forget(struct hkt_channel *c, const void *owner, uint32_t pair)
{
    const uint64_t deadline = hkt_now_ns() + PATIENCE_MS * 1000000ull;
    bool           expects  = false;

    for (int i = 0; i < VERBS_LANDINGS; i++)
        expects |= c->landing[i].bytes && c->landing[i].pair == pair;
    if (expects)
        verbs_break(c, false);
    while (c->state == VERBS_IS_UP && !c->breaks && reads(c, owner) && hkt_now_ns() < deadline)
        verbs_poll(c->device);
    if (c->breaks || (c->state == VERBS_IS_UP && reads(c, owner)))
        verbs_break(c, true);
    forget_taken(c, owner, pair);
    for (int i = 0; i < VERBS_MESSAGES; i++)
        if (c->message[i].parts && c->message[i].piece.owner == owner && !copy_message(c, &c->message[i]))
            verbs_lose(c, "the connection was given up: no memory for the rest of a message");
    verbs_tcp()->forget(c->tcp, owner, pair);
}

static void close_channel(struct hkt_channel *c)
{
    struct hkt_channel **at = &verbs_channels;

    if (!c)
        return;
    for (const uint64_t deadline = hkt_now_ns() + PATIENCE_MS * 1000000ull; c->state == VERBS_IS_UP && !c->breaks && hkt_now_ns() < deadline;) {
        if (quiet(c))
            break;
        verbs_poll(c->device);
    }
    c->state = VERBS_IS_LOST; /* what comes is dropped */
    verbs_shut(c);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (c->tcp)
        verbs_tcp()->close(c->tcp);
    verbs_return(c);
    hkt_free(c);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static void attend(void)
{
    verbs_attention = false;
    for (struct hkt_channel *c = verbs_channels; c; c = c->next) {
        if (c->breaks && c->state != VERBS_IS_LOST)
            verbs_break(c, c->breaks == 2);
        if (c->stalled || c->nuntold || c->consumed - c->consumed_told >= VERBS_WINDOW / 2)
            verbs_pump(c);
    }
}

static bool poll_all(void)
{
    for (int i = 0; i < verbs_ndevices; i++)
        verbs_poll(&verbs_devices[i]);
    if (verbs_attention)
        attend();
    return false;
}

static void expect(struct hkt_channel *c, const struct hkt_head *head, char *to)
{
    verbs_expect(c, head, to);
    verbs_attention |= c->nuntold > 0;
}

static uint64_t tick(uint64_t now)
{
    (void)now;
    return UINT64_MAX;
}

/* A device tells once after it was asked to; what has come before that it does not tell. */
static void arm(void)
{
    for (int i = 0; i < verbs_ndevices; i++)
        if (!verbs_devices[i].armed)
            verbs_devices[i].armed = ibv_req_notify_cq(verbs_devices[i].cq, 0) == 0;
    poll_all();
}

static void forked(void)
{
    for (int i = 0; i < verbs_ndevices; i++) {
        close(verbs_devices[i].events->fd);
        close(verbs_devices[i].context->async_fd);
        close(verbs_devices[i].context->cmd_fd);
    }
}

static uint64_t strangers(void)
{
    return 0; /* tcp counts them */
}

static const struct hkt_carrier carrier = {
    .address   = address,
    .open      = open_channel,
    .connect   = connect_channel,
    .expect    = expect,
    .pump      = pump,
    .quiet     = quiet,
    .forget    = forget,
    .close     = close_channel,
    .poll      = poll_all,
    .tick      = tick,
    .arm       = arm,
    .forked    = forked,
    .strangers = strangers,
};

static int reach(const struct hkt_process *peer, struct hkt_link *link)
{
    (void)peer, (void)link;
    return HKT_ERR_UNSUPPORTED; /* no memory of a process of this host */
}

const struct hkt_transport hkt_transport_verbs = {
    .name    = "verbs",
    .desc    = "other hosts over InfiniBand and RoCE, by libibverbs",
    .reach   = reach,
    .carrier = &carrier,
};
