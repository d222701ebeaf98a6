/* verbs_join.c -- how a path comes to be, and what becomes of what was on it when it ends. Both processes tell each other over tcp, which has proven who
 * they are and which hears of their death:
 *
 *     both             HELLO  the addresses of my ports
 *     the one decides  OPEN   epoch, the pair of addresses, my queue pairs
 *     the other        OPENED its queue pairs: it can receive
 *     the one          UP     so can I
 *     either           DOWN   epoch, how many frames of each queue pair I have received. Said by both, whoever begins
 *     the one          OPEN with the next epoch, or STAY: all that is left is tcp
 *
 * Pairs of addresses are tried from the best to the worst (verbs_fitness()). A path is given up when the device says that the other one does not answer, and also,
 * without blame, when memory that the other side may still write to goes away.
 */
#include "transports/verbs.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "setup/socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, RETRIES = 3, DRAINS = 64 /* looks at a queue that others fill too */, RNR_TIMER = 6 /* 0.08 ms until a frame for which there was no buffer is tried again */ };

struct pair {
    uint32_t fitness;
    int      mine, theirs;
};

/* ---- words ------------------------------------------------------------------------------------------------------- */

static struct verbs_word *say(struct hkt_channel *c, enum verbs_word_kind kind)
{
    struct verbs_word *w = &c->word[c->words % VERBS_WORDS];

    if (c->words - c->gone == VERBS_WORDS) {
        verbs_lose(c, "its connection for what is told about others is held up");
        return NULL;
    }
    *w = (struct verbs_word){.kind = (uint16_t)kind, .version = VERSION, .epoch = c->epoch, .window = VERBS_WINDOW};
    return w;
}

static void said(struct hkt_channel *c)
{
    c->words++;
    verbs_tcp()->pump(c->tcp);
}

bool verbs_next_word(struct hkt_channel *c, struct hkt_piece *piece)
{
    struct verbs_word *w = &c->word[c->told % VERBS_WORDS];

    if (c->told == c->words)
        return false;
    *piece = (struct hkt_piece){.head = {.kind = HKT_HEAD_CARRIER, .bytes = sizeof(*w), .length = sizeof(*w)}, .body = (const char *)w, .owner = w};
    c->told++;
    return true;
}

void verbs_greet(struct hkt_channel *c)
{
    struct verbs_word *w = say(c, VERBS_HELLO);

    if (!w)
        return;
    w->ends = (uint8_t)verbs_nends;
    memcpy(w->end, verbs_ends, sizeof(w->end));
    c->words++;
}

/* ---- queue pairs ------------------------------------------------------------------------------------------------- */

/* The exponent of the time that a packet is waited for, so that all tries together take as long as was asked for. */
static uint8_t timeout_of(double seconds)
{
    uint8_t t = 8;

    while (t < 24 && (RETRIES + 1) * 4.096e-6 * (double)(1u << t) < seconds)
        t++;
    return t;
}

static struct verbs_queue *make_queue(struct hkt_channel *c, const struct verbs_end *e)
{
    struct ibv_qp_init_attr init = {.send_cq = c->device->cq, .recv_cq = c->device->cq, .srq = c->device->srq, .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 2 * VERBS_DEPTH, .max_send_sge = 1, .max_inline_data = VERBS_INLINE}};
    struct ibv_qp_attr      attr = {.qp_state = IBV_QPS_INIT, .port_num = e->port, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct verbs_queue     *q    = hkt_alloc(sizeof(*q));

    if (!q)
        return NULL;
    q->channel = c;
    q->qp      = verbs.ibv_create_qp(c->device->pd, &init);
    while (!q->qp && init.cap.max_inline_data > sizeof(struct verbs_frame) + 8) {
        init.cap.max_inline_data = init.cap.max_inline_data * 2 / 3; /* there is no other way to find out */
        q->qp                    = verbs.ibv_create_qp(c->device->pd, &init);
    }
    if (!q->qp || verbs.ibv_modify_qp(q->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) {
        if (q->qp)
            verbs.ibv_destroy_qp(q->qp);
        hkt_free(q);
        return NULL;
    }
    c->device->inlined = init.cap.max_inline_data < VERBS_INLINE ? (int)init.cap.max_inline_data : VERBS_INLINE;
    verbs_enlist(q);
    return q;
}

static void free_queues(struct hkt_channel *c)
{
    for (int i = 0; i < c->queues; i++) {
        verbs_delist(c->queue[i]);
        verbs.ibv_destroy_qp(c->queue[i]->qp);
        hkt_free(c->queue[i]);
        c->queue[i] = NULL;
    }
    c->queues = 0;
}

/* The completion queue holds everything that can be under way on the device. */
static bool make_room(struct verbs_device *d, int queues)
{
    int need = d->buffers + queues * VERBS_DEPTH;

    for (const struct hkt_channel *c = verbs_channels; c; c = c->next)
        need += c->device == d ? c->queues * VERBS_DEPTH : 0;
    if (need <= d->entries)
        return true;
    if (verbs.ibv_resize_cq(d->cq, 2 * need))
        return false;
    d->entries = 2 * need;
    return true;
}

void verbs_return(struct hkt_channel *c)
{
    if (c->lender)
        c->lender->lent -= VERBS_LENT;
    c->lender = NULL;
}

/* This side's half of a path from one of its ends. */
static bool make_path(struct hkt_channel *c, int mine, int queues)
{
    const struct verbs_end *e = &verbs_ends[mine];

    c->device = &verbs_devices[e->device];
    c->mine   = mine;
    c->breaks = 0;
    c->spent = c->returned = c->consumed = c->consumed_told = 0;
    if (c->lender != c->device) {
        verbs_return(c);
        c->lender = c->device;
        if (verbs_lend(c->device, VERBS_LENT)) /* then it shares those of others */
            hkt_log(HKT_LOG_WARN, "verbs: %s", hkt_last_error());
    }
    if (!make_room(c->device, queues))
        return false;
    for (c->queues = 0; c->queues < queues; c->queues++) {
        c->queue[c->queues] = make_queue(c, e);
        if (!c->queue[c->queues]) {
            free_queues(c);
            return false;
        }
    }
    return true;
}

static void describe(const struct hkt_channel *c, struct verbs_word *w, int theirs)
{
    w->mine   = (uint8_t)c->mine;
    w->theirs = (uint8_t)theirs;
    w->queues = (uint8_t)c->queues;
    w->mtu    = verbs_ends[c->mine].mtu;
    for (int i = 0; i < c->queues; i++) {
        w->number[i] = c->queue[i]->qp->qp_num;
        w->start[i]  = (c->queue[i]->qp->qp_num * 2654435761u ^ c->epoch * 40503u) & 0xffffff;
    }
}

static int connect_queue(struct hkt_channel *c, int i, const struct verbs_word *w, uint32_t start)
{
    const struct verbs_end *e = &verbs_ends[c->mine], *to = &c->theirs[w->mine];
    const int               level = (int)hkt_options()->verbs_level;
    struct ibv_qp_attr      attr  = {.qp_state = IBV_QPS_RTR, .path_mtu = (enum ibv_mtu)(e->mtu < to->mtu ? e->mtu : to->mtu),
                                     .dest_qp_num = w->number[i], .rq_psn = w->start[i], .min_rnr_timer = RNR_TIMER,
                                     .ah_attr = {.dlid = to->lid, .sl = (uint8_t)level, .port_num = e->port}};
    int                     rc;

    if (e->kind != VERBS_IB) {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh = (struct ibv_global_route){.sgid_index = e->index, .hop_limit = 64, .traffic_class = verbs_class(c->device, e)};
        memcpy(attr.ah_attr.grh.dgid.raw, to->gid, sizeof(to->gid));
    }
    rc = verbs.ibv_modify_qp(c->queue[i]->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (rc)
        return rc;
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = start, .timeout = timeout_of(hkt_options()->verbs_timeout), .retry_cnt = RETRIES,
                                .rnr_retry = 7 /* for ever: the other process is slow, not gone */};
    return verbs.ibv_modify_qp(c->queue[i]->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                                           IBV_QP_MAX_QP_RD_ATOMIC);
}

static bool connect_path(struct hkt_channel *c, const struct verbs_word *w)
{
    struct verbs_word own;
    int               rc = w->queues == c->queues ? 0 : -1;

    describe(c, &own, w->mine);
    for (int i = 0; i < c->queues && !rc; i++)
        rc = connect_queue(c, i, w, own.start[i]);
    if (rc > 0)
        hkt_log(HKT_LOG_WARN, "verbs: %s, port %d, GID %d: the other host's port is not reached: %s",
                verbs.ibv_get_device_name(c->device->context->device), verbs_ends[c->mine].port, verbs_ends[c->mine].index, strerror(rc));
    c->window = w->window < VERBS_WINDOW ? w->window : VERBS_WINDOW;
    return rc == 0;
}

/* ---- which path -------------------------------------------------------------------------------------------------- */

static int better(const void *x, const void *y)
{
    const struct pair *a = x, *b = y;

    return a->fitness != b->fitness ? (a->fitness < b->fitness ? 1 : -1) : a->mine != b->mine ? a->mine - b->mine : a->theirs - b->theirs;
}

/* The n-th best pair of ends. */
static bool pick(const struct hkt_channel *c, int n, struct pair *chosen)
{
    struct pair list[VERBS_ENDS * VERBS_ENDS];
    int         found = 0;

    for (int i = 0; i < verbs_nends; i++)
        for (int k = 0; k < c->ntheirs; k++) {
            const struct pair p = {verbs_fitness(&verbs_ends[i], &c->theirs[k]), i, k};

            if (p.fitness)
                list[found++] = p;
        }
    qsort(list, (size_t)found, sizeof(list[0]), better);
    if (n >= found)
        return false;
    *chosen = list[n];
    return true;
}

static void stay(struct hkt_channel *c)
{
    hkt_log(HKT_LOG_WARN, "verbs: no path to another process is left of %d: going on by TCP", c->tried);
    c->state    = VERBS_BY_TCP;
    c->by_verbs = false;
    verbs_tcp()->pump(c->tcp);
}

/* Of the process that decides. */
static void next_path(struct hkt_channel *c)
{
    struct verbs_word *w;
    struct pair        p;

    for (; pick(c, c->tried, &p); c->tried++) {
        c->epoch++;
        if (!make_path(c, p.mine, (int)hkt_options()->verbs_queues))
            continue;
        w = say(c, VERBS_OPEN);
        if (!w)
            return;
        describe(c, w, p.theirs);
        c->state = VERBS_JOINS;
        said(c);
        return;
    }
    if (say(c, VERBS_STAY)) {
        c->words++;
        stay(c);
    }
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void add_again(struct hkt_channel *c, const struct verbs_sent *s)
{
    struct verbs_again *a = &c->again[c->nagain++];

    *a = (struct verbs_again){.sent = *s};
    if (s->body >= s->copy && s->body < s->copy + sizeof(s->copy))
        a->sent.body = a->sent.copy + (s->body - s->copy);
    c->again_left++;
}

/* What of an older path still waits is kept, in front. */
static bool room_again(struct hkt_channel *c)
{
    int                 n = 1 + c->nagain - c->again_done, kept = 0;
    struct verbs_again *more;

    for (int i = 0; i < c->queues; i++)
        n += (int)(c->queue[i]->sent - c->queue[i]->done);
    more = hkt_alloc((size_t)n * sizeof(*more));
    if (!more)
        return false;
    for (int i = c->again_done; i < c->nagain; i++, kept++) {
        struct verbs_sent *s = &c->again[i].sent;

        more[kept] = c->again[i];
        if (s->body >= s->copy && s->body < s->copy + sizeof(s->copy))
            more[kept].sent.body = more[kept].sent.copy + (s->body - s->copy);
    }
    hkt_free(c->again);
    c->again      = more;
    c->nagain     = kept;
    c->again_done = 0;
    return true;
}

/* The rest of the message that was being sent. */
static void put_back(struct hkt_channel *c)
{
    struct verbs_sent rest = {.head = c->now.head, .body = c->now.body ? c->now.body + c->now_done : NULL, .message = c->now_message};

    if (!c->now_message)
        return;
    if (rest.head.kind == HKT_HEAD_DATA)
        rest.head.offset += c->now_done;
    rest.head.length -= c->now_done;
    add_again(c, &rest);
    c->now_message = NULL;
}

/* Both sides have said what they have received: what has not arrived goes once more, by the next path. */
static void settle(struct hkt_channel *c)
{
    bool ok = room_again(c);

    for (int i = 0; i < c->queues && ok; i++) {
        struct verbs_queue *q = c->queue[i];

        ok = c->heard_received[i] - q->done <= q->sent - q->done;
        verbs_sent_until(q, c->heard_received[i]);
        for (; ok && q->done != q->sent; q->done++) {
            struct verbs_sent *s = &q->ring[q->done % VERBS_DEPTH];

            if (s->own)
                verbs_finish(c, s);
            else
                add_again(c, s);
        }
    }
    if (!ok) {
        verbs_lose(c, "what was under way when its connection failed cannot be told");
        return;
    }
    put_back(c);
    free_queues(c);
    c->tell_down = c->hear_down = false;
    if (!c->decides)
        return;
    c->tried += c->failed;
    next_path(c);
}

static void stop_queues(struct hkt_channel *c)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    for (int i = 0; i < c->queues; i++)
        verbs.ibv_modify_qp(c->queue[i]->qp, &attr, IBV_QP_STATE);
}

void verbs_break(struct hkt_channel *c, bool failed)
{
    struct verbs_word *w;

    if (c->state != VERBS_IS_UP && c->state != VERBS_JOINS)
        return;
    stop_queues(c);
    for (int i = 0; i < DRAINS && verbs_poll(c->device); i++) /* what has come is looked at before it is counted */
        ;
    if (c->state == VERBS_IS_LOST)
        return;
    c->state  = VERBS_IS_DOWN;
    c->breaks = 0;
    c->failed = failed;
    c->nuntold = 0;
    c->now_landing.bytes = 0;
    memset(c->landing, 0, sizeof(c->landing));
    memset(c->known, 0, sizeof(c->known));
    w = say(c, VERBS_DOWN);
    if (!w)
        return;
    w->failed = failed;
    w->queues = (uint8_t)c->queues;
    for (int i = 0; i < c->queues; i++)
        w->number[i] = c->queue[i]->received;
    c->tell_down = true;
    said(c);
    if (c->hear_down)
        settle(c);
}

void verbs_shut(struct hkt_channel *c)
{
    if (c->queues)
        stop_queues(c);
    for (int i = 0; i < VERBS_MESSAGES; i++)
        c->message[i].piece.owner = NULL;
    for (int i = 0; i < c->queues; i++)
        verbs_sent_until(c->queue[i], c->queue[i]->sent);
    for (int i = 0; i < c->nagain; i++)
        if (!c->again[i].gone)
            verbs_finish(c, &c->again[i].sent);
    hkt_free(c->again);
    for (int i = 0; i < VERBS_MESSAGES; i++)
        hkt_free(c->message[i].copy);
    free_queues(c);
    memset(c->message, 0, sizeof(c->message));
    memset(c->landing, 0, sizeof(c->landing));
    memset(c->known, 0, sizeof(c->known));
    c->again  = NULL;
    c->nagain = c->again_done = c->again_left = c->nuntold = 0;
    c->now_message         = NULL;
    c->now_landing.bytes   = 0;
    c->words = c->told = c->gone = 0;
    c->tell_down = c->hear_down = c->stalled = false;
    c->breaks = c->tried = c->ntheirs = 0;
    c->epoch = 0;
}

void verbs_lose(struct hkt_channel *c, const char *why)
{
    if (c->state == VERBS_IS_LOST)
        return;
    c->state = VERBS_IS_LOST;
    stop_queues(c); /* nothing of the other side is written here any more */
    c->user->lost(c->arg, why);
}

/* ---- words that have come ---------------------------------------------------------------------------------------- */

static int hear_hello(struct hkt_channel *c, const struct verbs_word *w)
{
    if (c->state != VERBS_STRANGE || c->ntheirs || w->ends > VERBS_ENDS)
        return -1;
    c->ntheirs = w->ends;
    memcpy(c->theirs, w->end, sizeof(c->theirs));
    if (c->decides)
        next_path(c);
    return 0;
}

static int hear_open(struct hkt_channel *c, const struct verbs_word *w)
{
    struct verbs_word *answer;

    if (c->decides || (c->state != VERBS_STRANGE && c->state != VERBS_IS_DOWN) || c->queues || w->theirs >= verbs_nends || w->mine >= c->ntheirs ||
        !w->queues || w->queues > VERBS_QUEUES)
        return -1;
    c->epoch = w->epoch;
    c->state = VERBS_JOINS;
    if (!make_path(c, w->theirs, w->queues) || !connect_path(c, w)) {
        verbs_break(c, true);
        return 0;
    }
    answer = say(c, VERBS_OPENED);
    if (!answer)
        return 0;
    describe(c, answer, w->mine);
    said(c);
    return 0;
}

static void up(struct hkt_channel *c)
{
    const struct verbs_end *e = &verbs_ends[c->mine];

    c->state    = VERBS_IS_UP;
    c->by_verbs = true;
    hkt_log(HKT_LOG_INFO, "verbs: %s, port %d, GID %d: %d queue pairs to another process", verbs.ibv_get_device_name(c->device->context->device), e->port,
            e->index, c->queues);
    verbs_pump(c);
}

static int hear_opened(struct hkt_channel *c, const struct verbs_word *w)
{
    if (!c->decides || c->state != VERBS_JOINS || w->epoch != c->epoch)
        return c->decides ? 0 : -1;
    if (w->mine >= c->ntheirs)
        return -1;
    if (!connect_path(c, w)) {
        verbs_break(c, true);
    } else if (say(c, VERBS_UP)) {
        said(c);
        up(c);
    }
    return 0;
}

static int hear_down(struct hkt_channel *c, const struct verbs_word *w)
{
    if (w->epoch != c->epoch || c->hear_down || w->queues > VERBS_QUEUES)
        return w->epoch == c->epoch ? -1 : 0;
    c->hear_down = true;
    memset(c->heard_received, 0, sizeof(c->heard_received));
    memcpy(c->heard_received, w->number, w->queues * sizeof(w->number[0]));
    if (c->tell_down) {
        c->failed |= w->failed;
        settle(c);
    } else {
        verbs_break(c, w->failed);
    }
    return 0;
}

int verbs_hear(struct hkt_channel *c)
{
    const struct verbs_word *w = &c->heard;

    if (w->version != VERSION)
        return -1;
    switch (w->kind) {
    case VERBS_HELLO:
        return hear_hello(c, w);
    case VERBS_OPEN:
        return hear_open(c, w);
    case VERBS_OPENED:
        return hear_opened(c, w);
    case VERBS_UP:
        if (w->epoch == c->epoch && c->state == VERBS_JOINS && !c->decides)
            up(c);
        return 0;
    case VERBS_DOWN:
        return hear_down(c, w);
    case VERBS_STAY:
        if (c->decides || c->queues)
            return -1;
        stay(c);
        return 0;
    default:
        return -1;
    }
}
