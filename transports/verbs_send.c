/* verbs_send.c -- frames that leave. A small one is copied into its work request, one of some size into a slot; a large message whose place the other side
 * has told is written there, from where it is if the device may read that, else from slots. The last piece of it that goes on a queue pair carries
 * immediate data that say which place, which part, and how much this side has asked for:
 *
 *     bits 22..31 landing | 16..21 offset / VERBS_UNIT | 8..15 asked[0] | 0..7 asked[1]
 *
 * A message with a value of its own takes a frame behind the write instead, on the same queue pair. Where no place is known a large message goes in
 * frames. Nothing is sent that the other side has no buffer for.
 */
#include "transports/verbs.h"

#include "base/memory.h"

#include <endian.h>
#include <string.h>

enum { TOLD_AT_ONCE = 32 };

/* ---- frames that are through ------------------------------------------------------------------------------------- */

static void free_message(struct hkt_channel *c, struct verbs_message *m)
{
    if (m->piece.owner)
        c->user->gone(c->arg, &m->piece);
    hkt_free(m->copy);
    *m = (struct verbs_message){.parts = 0};
}

void verbs_finish(struct hkt_channel *c, struct verbs_sent *s)
{
    verbs_give_slot(s->slot);
    s->slot = NULL;
    if (s->message && --s->message->parts == 0)
        free_message(c, s->message);
    s->message = NULL;
}

void verbs_sent_until(struct verbs_queue *q, uint32_t number)
{
    while (q->done != number && q->done != q->sent)
        verbs_finish(q->channel, &q->ring[q->done++ % VERBS_DEPTH]);
}

/* ---- one frame --------------------------------------------------------------------------------------------------- */

/* The queue pair has room, and the other side a buffer. `beyond`: frames that may go though the window is used up. */
static bool has_room(const struct hkt_channel *c, const struct verbs_queue *q, uint32_t beyond)
{
    return q->sent - q->done < VERBS_DEPTH - 1 && c->spent - c->returned < c->window + beyond;
}

static struct verbs_sent *begin(struct verbs_queue *q, const struct hkt_head *head)
{
    struct verbs_sent *s = &q->ring[q->sent % VERBS_DEPTH];

    s->head    = *head;
    s->body    = NULL;
    s->slot    = NULL;
    s->message = NULL;
    s->own     = head->kind == HKT_HEAD_CARRIER;
    return s;
}

/* The device gets what has been put together; the last of it tells when it is through, and with it all before it. */
static void flush(struct hkt_channel *c, struct verbs_queue *q)
{
    struct ibv_send_wr *last = &q->request[q->requests - 1], *bad;

    if (!q->requests)
        return;
    last->wr_id = q->sent;
    last->send_flags |= IBV_SEND_SIGNALED;
    for (int i = 0; i + 1 < q->requests; i++)
        q->request[i].next = &q->request[i + 1];
    if (ibv_post_send(q->qp, q->request, &bad))
        c->breaks = 2;
    q->requests = 0;
    q->pent     = 0;
}

static struct ibv_send_wr *add_request(struct verbs_queue *q, enum ibv_wr_opcode opcode, const struct ibv_sge *part)
{
    struct ibv_send_wr *wr = &q->request[q->requests];

    q->part[q->requests] = *part;
    *wr                  = (struct ibv_send_wr){.sg_list = &q->part[q->requests], .num_sge = 1, .opcode = opcode};
    q->requests++;
    q->pent += part->length;
    return wr;
}

/* A frame is put together. Few are held back, and not much of a large message. */
static void end(struct hkt_channel *c, struct verbs_queue *q)
{
    q->sent++;
    c->spent++;
    if (q->requests + 2 > VERBS_REQUESTS || q->pent >= VERBS_GATE)
        flush(c, q);
}

static struct verbs_frame frame_of(struct hkt_channel *c, const struct hkt_head *head, unsigned landing)
{
    c->consumed_told = c->consumed;
    return (struct verbs_frame){.consumed = (uint16_t)c->consumed, .landing = (uint16_t)landing, .head = *head};
}

/* A frame with its body behind it. False: there is no slot. */
static bool send_frame(struct hkt_channel *c, struct verbs_queue *q, const struct hkt_head *head, const char *body)
{
    const size_t       bytes   = sizeof(struct verbs_frame) + head->length;
    const bool         inlined = bytes <= (size_t)c->device->inlined;
    struct verbs_sent *s       = begin(q, head);
    struct ibv_sge     part    = {.length = (uint32_t)bytes};
    struct verbs_frame frame;
    char              *at = s->copy;

    if (!inlined) {
        at = s->slot = verbs_take_slot(c->device, &part.lkey);
        if (!at)
            return false;
    }
    frame = frame_of(c, head, 0);
    memcpy(at, &frame, sizeof(frame));
    if (head->length)
        memcpy(at + sizeof(frame), body, head->length);
    s->body   = at + sizeof(frame);
    part.addr = (uintptr_t)at;
    add_request(q, IBV_WR_SEND, &part)->send_flags = inlined ? IBV_SEND_INLINE : 0;
    end(c, q);
    return true;
}

/* ---- what the carrier has to say --------------------------------------------------------------------------------- */

static bool tell_landings(struct hkt_channel *c)
{
    struct verbs_landing list[TOLD_AT_ONCE];
    struct hkt_head      head = {.kind = HKT_HEAD_CARRIER};
    int                  n    = 0;

    while (n < TOLD_AT_ONCE && n < c->nuntold) {
        list[n] = c->landing[c->untold[n]];
        n++;
    }
    head.bytes = head.length = (uint32_t)((size_t)n * sizeof(list[0]));
    if (!has_room(c, c->queue[0], 0) || !send_frame(c, c->queue[0], &head, (const char *)list))
        return false;
    c->nuntold -= n;
    memmove(c->untold, c->untold + n, (size_t)c->nuntold * sizeof(c->untold[0]));
    return true;
}

static bool tell_consumed(struct hkt_channel *c)
{
    const struct hkt_head head = {.kind = HKT_HEAD_CARRIER};

    return has_room(c, c->queue[0], VERBS_WINDOW / 8) && send_frame(c, c->queue[0], &head, NULL);
}

/* True: all is said. */
static bool say(struct hkt_channel *c)
{
    while (c->nuntold)
        if (!tell_landings(c))
            return false;
    if (c->consumed - c->consumed_told >= VERBS_WINDOW / 2)
        return tell_consumed(c);
    return true;
}

void verbs_expect(struct hkt_channel *c, const struct hkt_head *head, char *to)
{
    struct verbs_landing *l = verbs_landing_at(c->landing, head->pair, head->lane, head->number);
    const struct ibv_mr  *mr;

    if (c->state != VERBS_IS_UP || head->bytes <= VERBS_WRITTEN || head->bytes > 64 * VERBS_UNIT || l->bytes || c->nuntold == VERBS_LANDINGS)
        return;
    mr = verbs_region_of(c->device, to, head->bytes);
    if (!mr)
        return;
    *l = (struct verbs_landing){.address = (uintptr_t)to, .key = mr->rkey, .index = (uint32_t)(l - c->landing), .pair = head->pair,
                                .number = head->number, .bytes = head->bytes, .lane = head->lane};
    memcpy(l->same, head->same, sizeof(l->same));
    c->landed[l->index]      = 0;
    c->untold[c->nuntold++] = (uint16_t)l->index;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Where the message that is being sent is to be written; once. */
static void choose(struct hkt_channel *c)
{
    const struct hkt_head *head = &c->now.head;
    struct verbs_landing  *l    = verbs_landing_at(c->known, head->pair, head->lane, head->number);

    c->now_done          = 0;
    c->now_landing.bytes = 0;
    if (head->kind != HKT_HEAD_DATA || head->length != head->bytes || head->bytes <= VERBS_WRITTEN)
        return;
    if (l->bytes != head->bytes || l->pair != head->pair || l->lane != head->lane || l->number != head->number ||
        memcmp(l->same, head->same, sizeof(l->same)) != 0)
        return;
    c->now_landing = *l;
    c->now_direct  = verbs_region_of(c->device, c->now.body, head->length) != NULL; /* else the device is given copies */
    l->bytes       = 0;
}

/* Large messages take the queue pairs in turn, but the first, where there are others. */
static struct verbs_queue *next_queue(struct hkt_channel *c)
{
    if (c->queues == 1)
        return c->queue[0];
    c->turn = c->turn % (c->queues - 1) + 1;
    return c->queue[c->turn];
}

static uint32_t part_of(const struct hkt_channel *c, uint32_t bytes)
{
    const uint32_t ways = c->queues > 1 ? (uint32_t)c->queues - 1 : 1, share = (bytes + ways - 1) / ways;
    const uint32_t part = share > VERBS_GATE ? share : VERBS_GATE;

    return (part + VERBS_UNIT - 1) / VERBS_UNIT * VERBS_UNIT;
}

/* A write, and what tells of it. */
static void add_write(struct hkt_channel *c, struct verbs_queue *q, struct verbs_sent *s, const struct ibv_sge *part)
{
    const struct verbs_landing *l     = &c->now_landing;
    const struct hkt_head      *head  = &s->head;
    const bool                  short_word = head->value == 0;
    struct ibv_send_wr         *wr    = add_request(q, short_word ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, part);

    wr->wr.rdma.remote_addr = l->address + head->offset;
    wr->wr.rdma.rkey        = l->key;
    if (short_word) {
        wr->imm_data = htobe32(l->index << 22 | head->offset / VERBS_UNIT << 16 | (head->asked[0] & 255) << 8 | (head->asked[1] & 255));
    } else {
        const struct verbs_frame frame = frame_of(c, head, l->index + 1);

        memcpy(s->copy, &frame, sizeof(frame));
        add_request(q, IBV_WR_SEND, &(struct ibv_sge){(uintptr_t)s->copy, sizeof(frame), 0})->send_flags = IBV_SEND_INLINE;
    }
    end(c, q);
}

/* False: something is missing to go on. */
static bool write_part(struct hkt_channel *c)
{
    struct hkt_head      head = c->now.head;
    const char          *body = c->now.body + c->now_done;
    struct verbs_queue  *q    = next_queue(c);
    const struct ibv_mr *mr   = c->now_direct ? verbs_region_of(c->device, c->now.body, c->now.head.length) : NULL;
    const uint32_t       most = mr ? part_of(c, head.bytes) : VERBS_UNIT;
    struct verbs_sent   *s;
    struct ibv_sge       part = {.addr = (uintptr_t)body};

    if (!has_room(c, q, 0))
        return false;
    head.offset = c->now_done;
    head.length = head.bytes - c->now_done < most ? head.bytes - c->now_done : most;
    s           = begin(q, &head);
    part.length = head.length;
    s->body     = body;
    if (mr) {
        part.lkey  = mr->lkey;
        s->message = c->now_message;
        s->message->parts++;
    } else {
        s->slot = verbs_take_slot(c->device, &part.lkey);
        if (!s->slot)
            return false;
        memcpy(s->slot, body, head.length);
        s->body   = s->slot;
        part.addr = (uintptr_t)s->slot;
    }
    add_write(c, q, s, &part);
    c->now_done += head.length;
    return true;
}

static bool frame_part(struct hkt_channel *c)
{
    struct hkt_head     head = c->now.head;
    const uint32_t      left = head.length - c->now_done;
    struct verbs_queue *q    = head.length > VERBS_BODY ? next_queue(c) : c->queue[0];

    head.offset = head.kind == HKT_HEAD_DATA ? head.offset + c->now_done : head.offset;
    head.length = left < VERBS_BODY ? left : VERBS_BODY;
    if (!has_room(c, q, 0) || !send_frame(c, q, &head, c->now.body ? c->now.body + c->now_done : NULL))
        return false;
    c->now_done += head.length;
    return true;
}

/* The next piece, when there is room for one; its memory is let go of when nothing reads it any more. */
static bool take_piece(struct hkt_channel *c)
{
    int i = 0;

    while (i < VERBS_MESSAGES && c->message[i].parts)
        i++;
    c->stalled = i == VERBS_MESSAGES || !has_room(c, c->queue[0], 0);
    if (c->stalled || !c->user->next(c->arg, HKT_PIECE_SMALL | HKT_PIECE_LARGE, UINT32_MAX, &c->now))
        return false;
    c->now_message  = &c->message[i];
    *c->now_message = (struct verbs_message){.piece = c->now, .parts = 1};
    choose(c);
    return true;
}

/* True: all of it is on its way. */
static bool send_now(struct hkt_channel *c)
{
    do
        if (!(c->now_landing.bytes ? write_part(c) : frame_part(c)))
            return false;
    while (c->now_done < c->now.head.length);
    if (--c->now_message->parts == 0)
        free_message(c, c->now_message);
    c->now_message = NULL;
    return true;
}

/* ---- once more --------------------------------------------------------------------------------------------------- */

static void done_again(struct hkt_channel *c)
{
    if (c->again_left || !c->again)
        return;
    hkt_free(c->again);
    c->again  = NULL;
    c->nagain = c->again_done = 0;
}

/* What a failed path has not delivered, in frames. True: there is none left. */
static bool send_again(struct hkt_channel *c)
{
    while (c->again_done < c->nagain) {
        struct verbs_sent *s    = &c->again[c->again_done].sent;
        struct hkt_head    head = s->head;

        head.length = head.length < VERBS_BODY ? head.length : VERBS_BODY;
        if (!has_room(c, c->queue[0], 0) || !send_frame(c, c->queue[0], &head, s->body))
            return false;
        s->body += head.length;
        s->head.offset += head.length;
        s->head.length -= head.length;
        if (s->head.length)
            continue;
        verbs_finish(c, s);
        c->again[c->again_done].gone = true;
        c->again_done++;
        c->again_left--;
    }
    done_again(c);
    return true;
}

bool verbs_is_again(const struct hkt_channel *c, const void *owner)
{
    return c->again && (const struct verbs_again *)owner >= c->again && (const struct verbs_again *)owner < c->again + c->nagain;
}

bool verbs_next_again(struct hkt_channel *c, int sizes, struct hkt_piece *piece)
{
    struct verbs_again *a;

    if (c->again_done == c->nagain || !(sizes & (c->again[c->again_done].sent.head.length > VERBS_BODY ? HKT_PIECE_LARGE : HKT_PIECE_SMALL)))
        return false;
    a        = &c->again[c->again_done++];
    a->taken = true;
    *piece   = (struct hkt_piece){.head = a->sent.head, .body = a->sent.body, .owner = a};
    return true;
}

void verbs_gone_again(struct hkt_channel *c, void *owner)
{
    struct verbs_again *a = owner;

    a->gone = true;
    verbs_finish(c, &a->sent);
    c->again_left--;
    done_again(c);
}

/* ---- a turn ------------------------------------------------------------------------------------------------------ */

void verbs_pump(struct hkt_channel *c)
{
    if (c->state != VERBS_IS_UP || c->breaks)
        return;
    c->stalled = true;
    while (!c->breaks && say(c) && send_again(c) && (!c->now_message || send_now(c)) && take_piece(c))
        ;
    for (int i = 0; i < c->queues; i++)
        flush(c, c->queue[i]);
}
