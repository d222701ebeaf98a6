/* lane.c -- the lanes of a pair of ranks: which message is sent next, and where one that comes goes. See wire.h.
 *
 * Parts of messages come in any order (several sockets), so each is looked up by the number of its message; what has arrived is counted in
 * order. Memory for what comes ahead is kept for the next one: its pages are there already.
 */
#include "net/pair.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/wait.h"

#include <string.h>

enum { KEPT = 64 };

static struct pool { /* under the lock */
    uint32_t size; /* bytes of each buffer */
    int      most, n; /* that are kept; that are */
    char    *buffer[KEPT];
} pools[] = {{.size = 1024, .most = KEPT}, {.size = HKT_WIRE_SMALL, .most = 16}, {.size = HKT_WIRE_MOST, .most = 8}};

/* ---- memory of what comes ahead ---------------------------------------------------------------------------------- */

static struct pool *pool_for(uint32_t bytes)
{
    struct pool *p = pools;

    while (p->size < bytes)
        p++;
    return p;
}

static char *take_buffer(uint32_t bytes)
{
    struct pool *p = pool_for(bytes);

    return p->n ? p->buffer[--p->n] : hkt_alloc(p->size);
}

static void drop_ahead(struct hkt_arrival *a)
{
    struct pool *p = pool_for(a->bytes);

    if (a->ahead && p->n < p->most)
        p->buffer[p->n++] = a->ahead;
    else
        hkt_free(a->ahead);
    a->ahead = NULL;
}

void hkt_lane_free(struct hkt_pair *p)
{
    for (int lane = 0; lane < HKT_LANES; lane++) {
        for (int i = 0; i < HKT_ARRIVALS && p->in[lane].arrival; i++)
            drop_ahead(&p->in[lane].arrival[i]);
        hkt_free(p->in[lane].arrival);
    }
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

/* The 64 bits of a counter of which the low half has come, near one that is known. */
static uint64_t widen(uint32_t low, uint64_t near)
{
    return near + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)near);
}

static struct hkt_arrival *arrival_of(struct hkt_in *in, uint64_t number)
{
    return &in->arrival[number % HKT_ARRIVALS];
}

static struct hkt_receive *receive_of(struct hkt_in *in, uint64_t number)
{
    return &in->ring[number % HKT_WIRE_RING];
}

static bool expected(const struct hkt_receive *r, const struct hkt_arrival *a)
{
    return r->bytes == a->bytes && memcmp(r->note.same, a->note.same, sizeof(r->note.same)) == 0;
}

static void conflict(struct hkt_pair *p, int lane, uint64_t number)
{
    struct hkt_in             *in = &p->in[lane];
    const struct hkt_receive  *r  = receive_of(in, number);
    const struct hkt_arrival  *a  = arrival_of(in, number);
    const struct hkt_wire_note notes[2] = {r->note, a->note};
    const size_t               bytes[2] = {r->bytes, a->bytes};

    in->stuck = true;
    p->wire->config.events->conflict(p->wire->config.arg, (enum hkt_lane)lane, p->rank, notes, bytes);
}

/* True when message `number`, the next one, is all there and where it belongs. */
static bool settle(struct hkt_pair *p, int lane, uint64_t number)
{
    struct hkt_in      *in = &p->in[lane];
    struct hkt_arrival *a  = arrival_of(in, number);
    struct hkt_receive *r  = receive_of(in, number);

    if (a->state == HKT_NOT_YET)
        return false;
    if (a->state == HKT_AHEAD && !expected(r, a))
        a->state = HKT_REFUSED;
    if (a->state == HKT_REFUSED) {
        conflict(p, lane, number);
        return false;
    }
    if (a->got < a->bytes)
        return false;
    if (a->state == HKT_AHEAD && a->bytes)
        memcpy(r->to, a->ahead, a->bytes);
    r->note.value = a->note.value;
    drop_ahead(a);
    *a = (struct hkt_arrival){.state = HKT_NOT_YET};
    return true;
}

static void match(struct hkt_pair *p, int lane)
{
    struct hkt_in *in = &p->in[lane];
    const uint64_t asked = hkt_load_acquire(&in->asked), before = hkt_load_relaxed(&in->arrived); /* pairs with hkt_wire_receive() */
    uint64_t       arrived = before;

    while (in->arrival && !in->stuck && arrived < asked && settle(p, lane, arrived + 1))
        arrived++;
    if (arrived > before)
        hkt_publish(&in->arrived, arrived, &p->sleepers);
}

void hkt_lane_match(struct hkt_pair *p)
{
    for (int lane = 0; lane < HKT_LANES; lane++)
        match(p, lane);
}

/* There was no memory for what has come: the end of the communicator. */
static void give_up(struct hkt_pair *p, struct hkt_in *in)
{
    in->stuck = true;
    hkt_wire_poison(p->wire, HKT_ERR_MEMORY, hkt_last_error());
    p->wire->config.events->poison(p->wire->config.arg, p->wire->config.rank, HKT_ERR_MEMORY, hkt_last_error());
}

/* One that has begun to come is no news. */
void hkt_lane_expect(struct hkt_pair *p)
{
    const struct hkt_carrier *carrier = p->peer->carrier;

    for (int lane = 0; lane < HKT_LANES && p->bound && carrier->expect; lane++) {
        struct hkt_in *in    = &p->in[lane];
        const uint64_t asked = hkt_load_acquire(&in->asked); /* pairs with hkt_wire_receive() */

        while (in->expected < asked && !in->stuck) {
            const uint64_t            n    = ++in->expected;
            const struct hkt_receive *r    = receive_of(in, n);
            struct hkt_head           head = {.kind = HKT_HEAD_DATA, .lane = (uint8_t)lane, .pair = p->mine, .number = (uint32_t)n, .bytes = r->bytes};

            if (n <= hkt_load_relaxed(&in->arrived) || (in->arrival && arrival_of(in, n)->state != HKT_NOT_YET))
                continue;
            memcpy(head.same, r->note.same, sizeof(head.same));
            carrier->expect(p->peer->channel, &head, r->to);
        }
    }
}

/* The first part of a message: does it fit what this rank has asked for, if it has? */
static void begin_arrival(struct hkt_pair *p, const struct hkt_head *head, uint64_t number)
{
    struct hkt_in      *in = &p->in[head->lane];
    struct hkt_arrival *a  = arrival_of(in, number);

    in->begun = number > in->begun ? number : in->begun;
    in->large = head->bytes > HKT_WIRE_SMALL;
    if (in->begun > in->told)
        hkt_pair_owes(p);
    *a = (struct hkt_arrival){.state = HKT_AHEAD, .bytes = head->bytes, .note = {.value = head->value}};
    memcpy(a->note.same, head->same, sizeof(a->note.same));
    if (number <= hkt_load_acquire(&in->asked)) { /* pairs with hkt_wire_receive() */
        a->state = expected(receive_of(in, number), a) ? HKT_DIRECT : HKT_REFUSED;
    } else if (a->bytes) {
        a->ahead = take_buffer(a->bytes);
        if (!a->ahead)
            give_up(p, in);
    }
}

/* How many messages may be on their way before they are asked for, when the last has so many bytes. */
static uint64_t ahead_of(uint32_t bytes)
{
    return bytes > HKT_WIRE_SMALL ? HKT_WIRE_DEPTH : HKT_WIRE_AHEAD;
}

int hkt_lane_place(struct hkt_pair *p, const struct hkt_head *head, char **to)
{
    struct hkt_in      *in;
    struct hkt_arrival *a;
    uint64_t            number, arrived;

    if (head->lane >= HKT_LANES || head->bytes > HKT_WIRE_MOST || head->offset > head->bytes || head->length > head->bytes - head->offset ||
        (head->length == 0 && head->bytes))
        return -1;
    in      = &p->in[head->lane];
    arrived = hkt_load_relaxed(&in->arrived);
    number  = widen(head->number, arrived);
    if (in->stuck)
        return 0;
    if (number <= arrived || number > in->told + ahead_of(head->bytes))
        return -1;
    if (!in->arrival)
        in->arrival = hkt_alloc(HKT_ARRIVALS * sizeof(*in->arrival));
    if (!in->arrival) {
        give_up(p, in);
        return 0;
    }
    a = arrival_of(in, number);
    if (a->state == HKT_NOT_YET)
        begin_arrival(p, head, number);
    else if (a->bytes == 0)
        return -1;
    if (a->bytes != head->bytes || head->length > a->bytes - a->claimed)
        return -1;
    a->claimed += head->length;
    if (a->state == HKT_DIRECT)
        *to = receive_of(in, number)->to + head->offset;
    else if (a->state == HKT_AHEAD && a->ahead)
        *to = a->ahead + head->offset;
    return 0;
}

void hkt_lane_landed(struct hkt_pair *p, const struct hkt_head *head)
{
    struct hkt_in *in     = &p->in[head->lane];
    const uint64_t number = widen(head->number, hkt_load_relaxed(&in->arrived));

    if (in->stuck)
        return;
    arrival_of(in, number)->got += head->length;
    match(p, head->lane);
}

bool hkt_lane_all_here(const struct hkt_pair *p)
{
    for (int lane = 0; lane < HKT_LANES; lane++) {
        const struct hkt_in *in      = &p->in[lane];
        const uint64_t       arrived = hkt_load_relaxed(&in->arrived), final = widen(p->final[lane], arrived);

        if (!in->arrival && final > arrived && !in->stuck)
            return false;

        for (uint64_t n = arrived + 1; n <= final && n <= arrived + HKT_ARRIVALS && !in->stuck; n++) {
            const struct hkt_arrival *a = &in->arrival[n % HKT_ARRIVALS]; /* there is one, when something has come */

            if (a->state == HKT_NOT_YET || (a->state != HKT_REFUSED && a->got < a->bytes))
                return false;
        }
    }
    return true;
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

/* Every head that goes to a rank tells it what this one has asked for. */
static void address(struct hkt_pair *p, struct hkt_head *head, enum hkt_frame_type kind)
{
    *head = (struct hkt_head){.kind = (uint8_t)kind, .pair = p->theirs};
    for (int lane = 0; lane < HKT_LANES; lane++) {
        p->in[lane].told  = hkt_load_relaxed(&p->in[lane].asked);
        head->asked[lane] = (uint32_t)p->in[lane].told;
    }
    p->say &= ~(unsigned)HKT_SAY_CREDIT;
}

/* Frames about the pair, which do not need to know its name at the other end. */
static int next_word(struct hkt_pair *p, struct hkt_piece *piece)
{
    const struct hkt_wire *w    = p->wire;
    const unsigned         what = p->say & HKT_SAY_BIND ? HKT_SAY_BIND : p->say & HKT_SAY_POISON ? HKT_SAY_POISON : HKT_SAY_LEFT;
    struct hkt_head       *head = &piece->head;

    *piece = (struct hkt_piece){
        .head = {.number = (uint32_t)w->config.rank, .offset = (uint32_t)p->rank, .same = {w->config.id[0], w->config.id[1]}}};
    if (what == HKT_SAY_BIND) {
        head->kind  = HKT_HEAD_BIND;
        head->bytes = p->mine;
    } else if (what == HKT_SAY_POISON) {
        head->kind   = HKT_HEAD_POISON;
        head->bytes  = (uint32_t)w->code;
        head->length = (uint32_t)strlen(w->sentence);
        piece->body  = w->sentence;
        piece->owner = p;
    } else {
        head->kind = HKT_HEAD_LEFT;
        for (int lane = 0; lane < HKT_LANES; lane++) /* one of which only a part has gone does not count */
            head->asked[lane] = (uint32_t)(p->out[lane].begun - (p->out[lane].rest > 0));
    }
    p->say &= ~what;
    return 1;
}

/* The message of the lane of which a part is to go next; 0: there is none that may. */
static uint64_t to_send(const struct hkt_pair *p, int lane)
{
    const struct hkt_out *out = &p->out[lane];
    const uint64_t        n   = out->begun;

    if (out->rest)
        return n;
    if (n == hkt_load_acquire(&out->posted)) /* pairs with hkt_wire_send() */
        return 0;
    return n < out->asked + ahead_of(out->ring[(n + 1) % HKT_WIRE_RING].bytes) ? n + 1 : 0;
}

static void take_part(struct hkt_pair *p, int lane, uint32_t most, struct hkt_piece *piece)
{
    struct hkt_out        *out   = &p->out[lane];
    const uint64_t         n     = to_send(p, lane);
    const struct hkt_send *s     = &out->ring[n % HKT_WIRE_RING];

    if (n > out->begun)
        out->rest = s->bytes;
    out->begun = n;
    address(p, &piece->head, HKT_HEAD_DATA);
    piece->head.lane   = (uint8_t)lane;
    piece->head.number = (uint32_t)n;
    piece->head.bytes  = s->bytes;
    piece->head.offset = s->bytes - out->rest;
    piece->head.length = out->rest < most ? out->rest : most;
    piece->head.value  = s->note.value;
    memcpy(piece->head.same, s->note.same, sizeof(piece->head.same));
    piece->body  = s->bytes ? s->from + piece->head.offset : NULL;
    piece->owner = p;
    out->rest -= piece->head.length;
}

int hkt_lane_next(struct hkt_pair *p, int sizes, uint32_t most, struct hkt_piece *piece)
{
    bool any = false;

    if (p->say & (HKT_SAY_BIND | HKT_SAY_POISON | HKT_SAY_LEFT)) {
        if (sizes & HKT_PIECE_SMALL)
            return next_word(p, piece);
        any = true;
    }
    for (int lane = 0; lane < HKT_LANES && p->bound && !p->gone && !atomic_load_explicit(&p->wire->poison, memory_order_relaxed); lane++) {
        const uint64_t n = to_send(p, lane);

        if (!n)
            continue;
        any = true;
        if (!(sizes & (p->out[lane].ring[n % HKT_WIRE_RING].bytes > HKT_WIRE_SMALL ? HKT_PIECE_LARGE : HKT_PIECE_SMALL)))
            continue;
        take_part(p, lane, most, piece);
        return 1;
    }
    if (p->bound && p->say & HKT_SAY_CREDIT) {
        if (sizes & HKT_PIECE_SMALL) {
            *piece = (struct hkt_piece){.body = NULL};
            address(p, &piece->head, HKT_HEAD_CREDIT);
            return 1;
        }
        any = true;
    }
    return any ? 0 : -1;
}

void hkt_lane_gone(struct hkt_pair *p, const struct hkt_piece *piece)
{
    struct hkt_out *out;
    uint64_t        sent, before;

    if (piece->head.kind != HKT_HEAD_DATA)
        return;
    out    = &p->out[piece->head.lane];
    before = sent = hkt_load_relaxed(&out->sent);
    out->ring[piece->head.number % HKT_WIRE_RING].left -= piece->head.length;
    while (sent < out->begun && out->ring[(sent + 1) % HKT_WIRE_RING].left == 0 &&
           (sent + 1 < out->begun || out->rest == 0))
        sent++;
    if (sent > before)
        hkt_publish(&out->sent, sent, &p->sleepers);
}

void hkt_lane_credit(struct hkt_pair *p, const struct hkt_head *head)
{
    for (int lane = 0; lane < HKT_LANES; lane++) {
        const uint64_t asked = widen(head->asked[lane], p->out[lane].asked);

        if (asked <= p->out[lane].asked)
            continue;
        p->out[lane].asked = asked;
        if (to_send(p, lane))
            hkt_pair_talk(p, 0);
    }
}

/* Is one of the messages that were asked for, and not told of, a large one? */
static bool wants_large(const struct hkt_in *in, uint64_t asked)
{
    for (uint64_t n = asked; n > in->told && n + HKT_WIRE_RING > asked + 1; n--) /* the caller may be at the next entry */
        if (in->ring[n % HKT_WIRE_RING].bytes > HKT_WIRE_SMALL)
            return true;
    return false;
}

/* The other rank may be some messages ahead of what it knows. With large ones it must hear more before it has used that up, and where many were
 * asked for it can make use of them; with small ones half of what it may be ahead can wait for a message of this rank to go along with. */
bool hkt_lane_owes(const struct hkt_pair *p, bool *now)
{
    bool any = *now = false;

    for (int lane = 0; lane < HKT_LANES; lane++) {
        const struct hkt_in *in    = &p->in[lane];
        const uint64_t       asked = hkt_load_acquire(&in->asked), owed = asked - in->told; /* pairs with hkt_wire_receive() */

        any |= owed > 0;
        *now |= owed >= HKT_WIRE_AHEAD / 2 || (owed && in->begun > in->told + (in->large ? 0 : HKT_WIRE_AHEAD / 2)) ||
                (owed >= HKT_WIRE_DEPTH && wants_large(in, asked));
    }
    return any;
}

bool hkt_lane_all_sent(const struct hkt_pair *p)
{
    for (int lane = 0; lane < HKT_LANES; lane++)
        if (hkt_load_relaxed(&p->out[lane].sent) < hkt_load_relaxed(&p->out[lane].posted))
            return false;
    return true;
}
