/* order.c -- see order.h. All schedules are run once, in their own order, with HKT_ORDER_DEPTH messages between ranks, and every step is given the time at which it
 * could have been done: after its messages have come, after what it reads was stored, after the places it stores to were read, after the message before in its
 * lanes, after the receiver has taken all but the last few. Then each rank's steps are sorted by time. Sorted by time and, where that is equal, by the order
 * of this run, the steps of all ranks together are a run without waiting: that is why the new order cannot lock up.
 *
 * Times are in units of what a message costs the ranks; how long it is under way is HOPS_FAR or HOPS_NEAR of them.
 */
#include "order.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { HOPS_FAR = 8, HOPS_NEAR = 1 };
static const uint32_t NONE = UINT32_MAX;

struct place {
    uint32_t stored, read; /* when last */
};

struct message {
    uint32_t sent, taken;  /* when */
    uint32_t before, next; /* of its lane */
};

/* From one rank to another. */
struct lane {
    uint32_t first, last, waiting; /* first: that has not been taken */
    uint32_t taken;                /* when the last one that was */
};

struct key {
    uint32_t time, step;
};

struct ordering {
    struct hkt_schedule *const *schedule;
    const struct hkt_shape     *shape;
    const int                  *host;
    uint32_t                    n;
    struct place              **place; /* per rank: IN and OUT as one, then TMP */
    uint32_t                   *both;  /* per rank: how many of the first kind */
    struct key                **key;   /* per rank and step */
    uint32_t                   *done;
    struct lane                *lane; /* from * n + to */
    struct message             *message;
    uint32_t                    messages;
};

/* In place some chunks of IN are chunks of OUT: one name for both, as it is assumed always. */
static uint32_t name_of(const struct ordering *o, uint32_t r, const struct hkt_operand *at)
{
    const uint32_t block = r * o->schedule[r]->chunks;

    if (at->place == HKT_TMP)
        return o->both[r] + at->id;
    switch (o->shape->coll) {
    case HKT_COLL_REDUCE_SCATTER:
    case HKT_COLL_SCATTER:
        return at->place == HKT_OUT ? at->id + block : at->id;
    case HKT_COLL_ALL_GATHER:
    case HKT_COLL_GATHER:
        return at->place == HKT_IN ? at->id + block : at->id;
    default:
        return at->id;
    }
}

static uint32_t later(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* ---- the time of a step -------------------------------------------------------------------------------------------- */

static bool can_run(const struct ordering *o, uint32_t r)
{
    const struct hkt_schedule *s  = o->schedule[r];
    const struct hkt_step     *st = &s->step[o->done[r]];
    const struct hkt_operand  *at = hkt_sources(s, st);

    for (uint32_t i = 0; i < (uint32_t)st->nsrc + st->ndst; i++) {
        if (at[i].place != HKT_PEER)
            continue;
        if (i < st->nsrc ? !o->lane[at[i].id * o->n + r].waiting : o->lane[r * o->n + at[i].id].waiting == HKT_ORDER_DEPTH)
            return false;
    }
    return true;
}

static uint32_t arrival(struct ordering *o, uint32_t from, uint32_t to)
{
    struct lane    *l    = &o->lane[from * o->n + to];
    const bool      near = o->host && o->host[from] == o->host[to];

    return later(o->message[l->first].sent + (near ? HOPS_NEAR : HOPS_FAR), l->taken);
}

/* When the lane has room for one more message, after the one before. */
static uint32_t room(const struct ordering *o, const struct lane *l)
{
    uint32_t m = l->last, time = m == NONE ? 0 : o->message[m].sent + 1;

    for (int i = 1; i < HKT_ORDER_DEPTH && m != NONE; i++)
        m = o->message[m].before;
    return m == NONE ? time : later(time, o->message[m].taken);
}

static void take(struct ordering *o, struct lane *l, uint32_t time)
{
    o->message[l->first].taken = l->taken = time;
    l->first = o->message[l->first].next;
    l->waiting--;
}

static void send(struct ordering *o, struct lane *l, uint32_t time)
{
    const uint32_t m = o->messages++;

    o->message[m] = (struct message){.sent = time, .before = l->last, .next = NONE};
    if (l->last != NONE)
        o->message[l->last].next = m;
    l->first = l->waiting++ ? l->first : m;
    l->last  = m;
}

static void run_step(struct ordering *o, uint32_t r)
{
    const struct hkt_schedule *s  = o->schedule[r];
    const struct hkt_step     *st = &s->step[o->done[r]];
    const struct hkt_operand  *at = hkt_sources(s, st);
    uint32_t                   time = 0;

    for (uint32_t i = 0; i < (uint32_t)st->nsrc + st->ndst; i++) {
        const bool          source = i < st->nsrc, peer = at[i].place == HKT_PEER;
        const struct place *p      = peer ? NULL : &o->place[r][name_of(o, r, &at[i])];

        time = later(time, peer ? source ? arrival(o, at[i].id, r) : room(o, &o->lane[r * o->n + at[i].id]) : p->stored);
        if (p && !source)
            time = later(time, p->read);
    }
    for (uint32_t i = 0; i < (uint32_t)st->nsrc + st->ndst; i++) {
        const bool    source = i < st->nsrc, peer = at[i].place == HKT_PEER;
        struct place *p      = peer ? NULL : &o->place[r][name_of(o, r, &at[i])];

        if (peer && source)
            take(o, &o->lane[at[i].id * o->n + r], time);
        else if (peer)
            send(o, &o->lane[r * o->n + at[i].id], time);
        else if (source)
            p->read = later(p->read, time);
        else
            *p = (struct place){time, time};
    }
    o->key[r][o->done[r]] = (struct key){time, o->done[r]};
    o->done[r]++;
}

/* False: they lock up. */
static bool run_all(struct ordering *o)
{
    bool moved = true, left = true;

    while (moved && left) {
        moved = left = false;
        for (uint32_t r = 0; r < o->n; r++) {
            for (; o->done[r] < o->schedule[r]->nsteps && can_run(o, r); moved = true)
                run_step(o, r);
            left |= o->done[r] < o->schedule[r]->nsteps;
        }
    }
    return !left;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------- */

static int by_time(const void *x, const void *y)
{
    const struct key *a = x, *b = y;

    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return a->step < b->step ? -1 : a->step > b->step;
}

/* `room`: for the steps of the longest schedule. */
static void sort(const struct ordering *o, struct hkt_step *copy)
{
    for (uint32_t r = 0; r < o->n; r++) {
        const struct hkt_schedule *s = o->schedule[r];

        if (!s->nsteps)
            continue;
        qsort(o->key[r], s->nsteps, sizeof(*o->key[r]), by_time);
        memcpy(copy, s->step, s->nsteps * sizeof(*copy));
        for (uint32_t i = 0; i < s->nsteps; i++)
            s->step[i] = copy[o->key[r][i].step];
    }
}

/* What one rank needs; counts its messages. */
static int prepare_rank(struct ordering *o, uint32_t r)
{
    const struct hkt_schedule *s      = o->schedule[r];
    const uint32_t             blocks = hkt_coll_in(o->shape->coll, HKT_COLLS_VECTOR) ? 1 : o->n;

    o->both[r]  = s->chunks * blocks;
    o->place[r] = hkt_alloc((o->both[r] + s->tmp_chunks) * sizeof(**o->place));
    o->key[r]   = hkt_alloc((s->nsteps + 1) * sizeof(**o->key));
    for (uint32_t i = 0; i < s->nsteps; i++)
        for (uint32_t d = 0; d < s->step[i].ndst; d++)
            o->messages += hkt_destinations(s, &s->step[i])[d].place == HKT_PEER;
    return o->place[r] && o->key[r] ? 0 : HKT_ERR_MEMORY;
}

static int prepare(struct ordering *o)
{
    o->place = hkt_alloc(o->n * sizeof(*o->place));
    o->both  = hkt_alloc(o->n * sizeof(*o->both));
    o->key   = hkt_alloc(o->n * sizeof(*o->key));
    o->done  = hkt_alloc(o->n * sizeof(*o->done));
    o->lane  = hkt_alloc((size_t)o->n * o->n * sizeof(*o->lane));
    if (!o->place || !o->both || !o->key || !o->done || !o->lane)
        return HKT_ERR_MEMORY;
    for (uint32_t r = 0; r < o->n; r++)
        HKT_TRY(prepare_rank(o, r));
    for (size_t i = 0; i < (size_t)o->n * o->n; i++)
        o->lane[i] = (struct lane){.first = NONE, .last = NONE};
    o->message  = hkt_alloc((o->messages + 1) * sizeof(*o->message));
    o->messages = 0;
    return o->message ? 0 : HKT_ERR_MEMORY;
}

static void finish(struct ordering *o)
{
    for (uint32_t r = 0; r < o->n; r++) {
        if (o->place)
            hkt_free(o->place[r]);
        if (o->key)
            hkt_free(o->key[r]);
    }
    hkt_free(o->place);
    hkt_free(o->both);
    hkt_free(o->key);
    hkt_free(o->done);
    hkt_free(o->lane);
    hkt_free(o->message);
}

int hkt_order_steps(struct hkt_schedule *const *schedule, const struct hkt_shape *shape, const int *host)
{
    struct ordering  o    = {.schedule = schedule, .shape = shape, .host = host, .n = (uint32_t)shape->size};
    struct hkt_step *copy = NULL;
    uint32_t         most = 1;
    int              rc;

    for (uint32_t r = 0; r < o.n; r++)
        most = later(most, schedule[r]->nsteps);
    rc = prepare(&o);
    if (!rc) {
        copy = hkt_alloc(most * sizeof(*copy));
        rc   = copy ? 0 : HKT_ERR_MEMORY;
    }
    if (!rc && run_all(&o))
        sort(&o, copy);
    hkt_free(copy);
    finish(&o);
    return rc;
}
