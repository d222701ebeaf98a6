/* trace.c -- runs the schedules of all ranks symbolically, with boundless queues: pairs every send with its receive and finds, for every
 * step, the form of its value (raw, partial, finished) and the chunk that it is as long as. Trusts the schedules: that they are
 * right is the verifier's affair (language/verify.c).
 */
#include "run/bind.h"

#include "base/error.h"
#include "base/memory.h"
#include "language/order.h"

#include <string.h>

enum { EMPTY = UINT32_MAX };

/* Queues of messages on their way, one per pair of ranks, linked through `next`. */
struct queues {
    uint32_t *head, *tail; /* size * size */
    uint32_t *next;        /* per message */
};

/* What stands in a rank's OUT and TMP chunks. */
struct contents {
    uint8_t         *out_form, *tmp_form;
    struct hkt_like *tmp_like;
};

struct tracer {
    struct hkt_binder *b;
    struct queues      q;
    struct contents   *at; /* per rank */
    bool               reduces;
};

static uint32_t out_chunks(const struct hkt_binder *b)
{
    const bool blocks = b->shape->coll == HKT_COLL_ALL_GATHER || b->shape->coll == HKT_COLL_GATHER ||
                        b->shape->coll == HKT_COLL_ALL_TO_ALL;

    return b->chunks * (blocks ? (uint32_t)b->size : 1);
}

/* Is the source there? */
static bool ready(const struct tracer *t, int r, const struct hkt_operand *o)
{
    return o->place != HKT_PEER || t->q.head[(size_t)r * (size_t)t->b->size + o->id] != EMPTY;
}

static void send(struct tracer *t, int r, uint32_t s, const struct hkt_operand *o)
{
    struct hkt_binder *b  = t->b;
    const size_t       q  = (size_t)o->id * (size_t)b->size + (size_t)r;
    const uint32_t     id = b->nmessages++;

    b->message[id]                                            = (struct hkt_message){.from = r, .to = (int)o->id, .send = s};
    b->message[id].form                                       = b->rank[r].step[s].out;
    b->rank[r].message[o - b->rank[r].schedule.operand]       = id;
    t->q.next[id]                                             = EMPTY;
    if (t->q.head[q] == EMPTY)
        t->q.head[q] = id;
    else
        t->q.next[t->q.tail[q]] = id;
    t->q.tail[q] = id;
}

static struct hkt_message *receive(struct tracer *t, int r, uint32_t s, const struct hkt_operand *o)
{
    struct hkt_binder *b  = t->b;
    const size_t       q  = (size_t)r * (size_t)b->size + o->id;
    const uint32_t     id = t->q.head[q];

    t->q.head[q]                                        = t->q.next[id];
    b->rank[r].message[o - b->rank[r].schedule.operand] = id;
    b->message[id].recv                                 = s;
    return &b->message[id];
}

/* The form of one source; takes its message. */
static uint8_t source_form(struct tracer *t, int r, uint32_t s, const struct hkt_operand *o)
{
    switch (o->place) {
    case HKT_IN:
        return HKT_RAW;
    case HKT_OUT:
        return t->at[r].out_form[o->id];
    case HKT_TMP:
        return t->at[r].tmp_form[o->id];
    default:
        return receive(t, r, s, o)->form;
    }
}

/* How long the value is: as a chunk of mine that it touches, else as where it came from. */
static struct hkt_like length_like(struct tracer *t, int r, uint32_t s)
{
    struct hkt_binder         *b     = t->b;
    const struct hkt_schedule *sched = &b->rank[r].schedule;
    const struct hkt_step     *st    = &sched->step[s];
    const struct hkt_operand  *o     = hkt_sources(sched, st);

    for (int i = 0; i < st->nsrc + st->ndst; i++)
        if (o[i].place == HKT_IN || o[i].place == HKT_OUT)
            return (struct hkt_like){(uint32_t)r, o[i].id, o[i].place == HKT_OUT};
    if (o[0].place == HKT_TMP)
        return t->at[r].tmp_like[o[0].id];
    {
        const struct hkt_message *m = &b->message[b->rank[r].message[o - sched->operand]];

        return b->rank[m->from].step[m->send].like;
    }
}

static void trace_step(struct tracer *t, int r, uint32_t s)
{
    const struct hkt_schedule *sched = &t->b->rank[r].schedule;
    const struct hkt_step     *st    = &sched->step[s];
    const struct hkt_operand  *o     = hkt_sources(sched, st);
    struct hkt_trace_step     *out   = &t->b->rank[r].step[s];
    bool                       partial = false;

    out->in = HKT_RAW;
    for (int i = 0; i < st->nsrc; i++) {
        const uint8_t form = source_form(t, r, s, &o[i]);

        if (st->nsrc == 1)
            out->in = form;
        partial |= form == HKT_PARTIAL;
        if (form == HKT_RAW && i < 64)
            out->raw |= 1ULL << i;
    }
    if (st->nsrc > 1 && partial) {
        out->in    = HKT_PARTIAL;
        out->mixed = out->raw != 0;
    }
    out->out  = st->flags & HKT_STEP_FINISH ? HKT_FINISHED : st->nsrc > 1 ? HKT_PARTIAL : out->in;
    out->like = length_like(t, r, s);
    o = hkt_destinations(sched, st);
    for (int i = 0; i < st->ndst; i++) {
        if (o[i].place == HKT_OUT)
            t->at[r].out_form[o[i].id] = out->out;
        else if (o[i].place == HKT_TMP) {
            t->at[r].tmp_form[o[i].id] = out->out;
            t->at[r].tmp_like[o[i].id] = out->like;
        } else
            send(t, r, s, &o[i]);
    }
}

static int run(struct tracer *t)
{
    struct hkt_binder *b = t->b;
    bool               moved = true, left = true;

    while (moved) {
        moved = left = false;
        for (int r = 0; r < b->size; r++) {
            const struct hkt_schedule *sched = &b->rank[r].schedule;
            uint32_t                  *s     = &b->rank[r].done;

            for (; *s < sched->nsteps; ++*s, moved = true) {
                const struct hkt_step    *st = &sched->step[*s];
                const struct hkt_operand *o  = hkt_sources(sched, st);
                int                       i  = 0;

                while (i < st->nsrc && ready(t, r, &o[i]))
                    i++;
                if (i < st->nsrc)
                    break;
                trace_step(t, r, *s);
            }
            left |= *s < sched->nsteps;
        }
    }
    return left ? hkt_fail(HKT_ERR_INTERNAL, "algorithm %s, %s over %d ranks: the schedule locks up", b->algorithm->name,
                           hkt_coll_name[b->shape->coll], b->size)
                : 0;
}

static int build_schedules(struct hkt_binder *b, uint32_t *messages)
{
    *messages = 0;
    b->rank   = hkt_alloc((size_t)b->size * sizeof(*b->rank));
    if (!b->rank)
        return HKT_ERR_MEMORY;
    for (int r = 0; r < b->size; r++) {
        struct hkt_trace *t     = &b->rank[r];
        struct hkt_shape  shape = *b->shape;

        shape.rank = r;
        HKT_TRY(hkt_schedule_build(&t->schedule, b->algorithm, &shape));
        b->chunks  = t->schedule.chunks;
        t->step    = hkt_alloc(t->schedule.nsteps * sizeof(*t->step));
        t->message = hkt_alloc(t->schedule.noperands * sizeof(*t->message));
        t->kept_as = hkt_alloc(t->schedule.nsteps * sizeof(*t->kept_as));
        if (!t->step || !t->message || !t->kept_as)
            return HKT_ERR_MEMORY;
        for (uint32_t s = 0; s < t->schedule.nsteps; s++)
            for (int i = 0; i < t->schedule.step[s].ndst; i++)
                *messages += hkt_destinations(&t->schedule, &t->schedule.step[s])[i].place == HKT_PEER;
    }
    return 0;
}

/* Steps that wait for other hosts come as late as they can. */
static int order(const struct hkt_binder *b)
{
    struct hkt_schedule **all = hkt_alloc((size_t)b->size * sizeof(struct hkt_schedule *));
    int                   rc;

    if (!all)
        return HKT_ERR_MEMORY;
    for (int r = 0; r < b->size; r++)
        all[r] = &b->rank[r].schedule;
    rc = hkt_order_steps(all, b->shape, b->host);
    hkt_free(all);
    return rc;
}

static void tracer_free(struct tracer *t)
{
    for (int r = 0; t->at && r < t->b->size; r++) {
        hkt_free(t->at[r].out_form);
        hkt_free(t->at[r].tmp_form);
        hkt_free(t->at[r].tmp_like);
    }
    hkt_free(t->at);
    hkt_free(t->q.head);
    hkt_free(t->q.tail);
    hkt_free(t->q.next);
}

static int tracer_init(struct tracer *t, uint32_t messages)
{
    struct hkt_binder *b     = t->b;
    const size_t       pairs = (size_t)b->size * (size_t)b->size;

    t->at      = hkt_alloc((size_t)b->size * sizeof(*t->at));
    t->q.head  = hkt_alloc(pairs * sizeof(*t->q.head));
    t->q.tail  = hkt_alloc(pairs * sizeof(*t->q.tail));
    t->q.next  = hkt_alloc(messages * sizeof(*t->q.next));
    b->message = hkt_alloc(messages * sizeof(*b->message));
    if (!t->at || !t->q.head || !t->q.tail || !t->q.next || !b->message)
        return HKT_ERR_MEMORY;
    for (size_t i = 0; i < pairs; i++)
        t->q.head[i] = EMPTY;
    for (int r = 0; r < b->size; r++) {
        const uint32_t tmp = b->rank[r].schedule.tmp_chunks;

        t->at[r].out_form = hkt_alloc(out_chunks(b));
        t->at[r].tmp_form = hkt_alloc(tmp);
        t->at[r].tmp_like = hkt_alloc(tmp * sizeof(*t->at[r].tmp_like));
        if (!t->at[r].out_form || !t->at[r].tmp_form || !t->at[r].tmp_like)
            return HKT_ERR_MEMORY;
    }
    return 0;
}

int hkt_trace(struct hkt_binder *b)
{
    struct tracer t = {.b = b};
    uint32_t      messages;
    int           rc;

    HKT_TRY(build_schedules(b, &messages));
    if (b->ordered)
        HKT_TRY(order(b));
    rc = tracer_init(&t, messages);
    if (!rc)
        rc = run(&t);
    tracer_free(&t);
    return rc;
}

void hkt_trace_free(struct hkt_binder *b)
{
    for (int r = 0; b->rank && r < b->size; r++) {
        hkt_schedule_free(&b->rank[r].schedule);
        hkt_free(b->rank[r].step);
        hkt_free(b->rank[r].message);
        hkt_free(b->rank[r].kept_as);
    }
    hkt_free(b->rank);
    hkt_free(b->message);
    hkt_free(b->access);
    hkt_free(b->wait);
}
