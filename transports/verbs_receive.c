/* verbs_receive.c -- what comes out of a device's completion queue: frames, writes that are there, frames that are through, errors.
 *
 * A frame's body is copied from its buffer to where it belongs; what was written is there already. Buffers go back to the device in batches. An error
 * ends the path, but not in here: what has come before it is looked at first.
 */
#include "transports/verbs.h"

#include "base/log.h"

#include <endian.h>
#include <string.h>

enum { BATCH = 32, HASH = 1024, TURNS = 8 };

static struct verbs_queue *by_number[HASH];

/* ---- tables ------------------------------------------------------------------------------------------------------ */

void verbs_enlist(struct verbs_queue *q)
{
    q->next                          = by_number[q->qp->qp_num % HASH];
    by_number[q->qp->qp_num % HASH] = q;
}

void verbs_delist(struct verbs_queue *q)
{
    struct verbs_queue **at = &by_number[q->qp->qp_num % HASH];

    while (*at && *at != q)
        at = &(*at)->next;
    if (*at)
        *at = q->next;
}

static struct verbs_queue *queue_of(const struct verbs_device *d, uint32_t number)
{
    struct verbs_queue *q = by_number[number % HASH];

    while (q && (q->qp->qp_num != number || q->channel->device != d))
        q = q->next;
    return q;
}

/* One entry for many messages: who finds it taken does without. */
struct verbs_landing *verbs_landing_at(struct verbs_landing *table, uint32_t pair, uint32_t lane, uint32_t number)
{
    return &table[(pair * 37u + lane * 101u + number) % VERBS_LANDINGS];
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static void cut(struct hkt_channel *c)
{
    verbs_lose(c, "the process sends what it may not send, and was cut off");
}

/* Of 8 or 16 bits that have come, the whole near one that is known. */
static uint32_t widen8(uint32_t low, uint32_t near)
{
    return near + (uint32_t)(int32_t)(int8_t)(low - near);
}

static void deliver(struct hkt_channel *c, const struct hkt_head *head, const char *body)
{
    char *to = NULL;

    if (c->user->place(c->arg, head, &to)) {
        cut(c);
        return;
    }
    if (to && head->length && to != body)
        memcpy(to, body, head->length);
    if (c->user->landed(c->arg, head))
        cut(c);
}

/* A part of an expected message was written. */
static void landed(struct hkt_channel *c, uint32_t index, uint32_t offset, const struct hkt_head *given, uint32_t bytes)
{
    struct verbs_landing *l    = index < VERBS_LANDINGS ? &c->landing[index] : NULL;
    struct hkt_head       head = *given;
    const char           *body;

    if (!l || !l->bytes || offset > l->bytes || bytes > l->bytes - offset || bytes > l->bytes - c->landed[index]) {
        cut(c);
        return;
    }
    head.kind   = HKT_HEAD_DATA;
    head.lane   = (uint8_t)l->lane;
    head.pair   = l->pair;
    head.number = l->number;
    head.bytes  = l->bytes;
    head.offset = offset;
    head.length = bytes;
    memcpy(head.same, l->same, sizeof(head.same));
    body = (const char *)(uintptr_t)(l->address + offset);
    c->landed[index] += bytes;
    if (c->landed[index] == l->bytes)
        l->bytes = 0;
    deliver(c, &head, body);
}

static void hear_immediate(struct hkt_channel *c, uint32_t word, uint32_t bytes)
{
    const uint32_t  index = word >> 22;
    struct hkt_head head  = {.kind = HKT_HEAD_DATA};

    if (index < VERBS_LANDINGS && c->landing[index].bytes) {
        c->user->known(c->arg, c->landing[index].pair, head.asked);
        head.asked[0] = widen8(word >> 8 & 255, head.asked[0]);
        head.asked[1] = widen8(word & 255, head.asked[1]);
    }
    landed(c, index, (word >> 16 & 63) * VERBS_UNIT, &head, bytes);
}

static void hear_landings(struct hkt_channel *c, const char *body, uint32_t bytes)
{
    struct verbs_landing l;

    if (bytes % sizeof(l)) {
        cut(c);
        return;
    }
    for (uint32_t at = 0; at < bytes; at += (uint32_t)sizeof(l)) {
        memcpy(&l, body + at, sizeof(l));
        *verbs_landing_at(c->known, l.pair, l.lane, l.number) = l;
    }
}

/* What was expected comes in frames: its sender had begun before it knew the place. */
static void forget_landing(struct hkt_channel *c, const struct hkt_head *head)
{
    struct verbs_landing *l = verbs_landing_at(c->landing, head->pair, head->lane, head->number);

    if (l->bytes && l->pair == head->pair && l->lane == head->lane && l->number == head->number)
        l->bytes = 0;
}

static void hear_frame(struct hkt_channel *c, const char *buffer, uint32_t bytes)
{
    struct verbs_frame frame;
    uint32_t           body;

    if (bytes < sizeof(frame)) {
        cut(c);
        return;
    }
    memcpy(&frame, buffer, sizeof(frame));
    body = bytes - (uint32_t)sizeof(frame);
    c->returned += (uint32_t)(int32_t)(int16_t)((uint16_t)frame.consumed - (uint16_t)c->returned);
    if (frame.landing)
        landed(c, frame.landing - 1u, frame.head.offset, &frame.head, frame.head.length);
    else if (frame.head.length != body)
        cut(c);
    else if (frame.head.kind == HKT_HEAD_CARRIER)
        hear_landings(c, buffer + sizeof(frame), body);
    else {
        if (frame.head.kind == HKT_HEAD_DATA)
            forget_landing(c, &frame.head);
        deliver(c, &frame.head, buffer + sizeof(frame));
    }
}

/* ---- completions ------------------------------------------------------------------------------------------------- */

static void fails(struct verbs_device *d, struct hkt_channel *c, const struct ibv_wc *wc)
{
    if (c->breaks != 2 && c->state == VERBS_IS_UP && wc->status != IBV_WC_WR_FLUSH_ERR)
        hkt_log(HKT_LOG_WARN, "verbs: %s: a path to another process has failed: %s (status %d, vendor's code %u); taking another",
                verbs.ibv_get_device_name(d->context->device), verbs.ibv_wc_status_str(wc->status), (int)wc->status, wc->vendor_err);
    c->breaks = 2;
}

static void look(struct verbs_device *d, const struct ibv_wc *wc)
{
    struct verbs_queue *q        = queue_of(d, wc->qp_num);
    const bool          received = wc->wr_id >> 63;

    /* What comes of a path that has ended was not counted: it goes once more, and its errors are no news. */
    if (!q || (q->channel->state != VERBS_IS_UP && q->channel->state != VERBS_JOINS))
        return;
    if (wc->status != IBV_WC_SUCCESS) {
        fails(d, q->channel, wc);
    } else if (!received) {
        verbs_sent_until(q, (uint32_t)wc->wr_id);
    } else {
        q->received++;
        q->channel->consumed++;
        if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
            hear_immediate(q->channel, be32toh(wc->imm_data), wc->byte_len);
        else
            hear_frame(q->channel, d->buffer[wc->wr_id & 0xffffff], wc->byte_len);
    }
}

bool verbs_poll(struct verbs_device *d)
{
    struct ibv_wc wc[BATCH];
    bool          any = false;
    int           n   = BATCH;

    for (int turn = 0; turn < TURNS && n == BATCH; turn++) {
        int again[BATCH], empty = 0;

        n = ibv_poll_cq(d->cq, BATCH, wc);
        for (int i = 0; i < n; i++) {
            look(d, &wc[i]);
            if (wc[i].wr_id >> 63)
                again[empty++] = (int)(wc[i].wr_id & 0xffffff);
        }
        if (n < 0 || verbs_repost(d, again, empty))
            verbs_troubled(d, "its queues cannot be used any more");
        any |= n > 0;
    }
    if (any)
        hkt_net_moved();
    verbs_attention |= any;
    return any;
}
