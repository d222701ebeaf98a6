/* program.c -- from a schedule to a program. */
#include "program.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { BACK = 64 /* dependencies further back are kept by the window, which is no wider */ };

void hkt_program_free(struct hkt_program *p)
{
    hkt_free(p->step);
    hkt_free(p->peer);
    hkt_free(p->at);
    memset(p, 0, sizeof(*p));
}

uint32_t hkt_program_find(const struct hkt_program *p, uint32_t distance)
{
    uint32_t low = 0, high = p->npeers;

    while (low < high) {
        const uint32_t middle = (low + high) / 2;

        if (p->peer[middle].distance < distance)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->npeers && p->peer[low].distance == distance ? low : p->npeers;
}

bool hkt_program_equal(const struct hkt_program *a, const struct hkt_program *b)
{
    return a->hash == b->hash && a->nsteps == b->nsteps && a->npeers == b->npeers && a->nat == b->nat && a->chunks == b->chunks &&
           !memcmp(a->step, b->step, a->nsteps * sizeof(*a->step)) && !memcmp(a->peer, b->peer, a->npeers * sizeof(*a->peer)) &&
           !memcmp(a->at, b->at, a->nat * sizeof(*a->at));
}

static int by_distance(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

enum { RECENT = 16 };

/* Has it been among the last few that are in the list? Most schedules talk to few peers in turn, and sorting is what costs. */
static bool is_recent(const uint32_t *list, uint32_t count, uint32_t distance)
{
    for (uint32_t i = count; i && count - i < RECENT; i--)
        if (list[i - 1] == distance)
            return true;
    return false;
}

/* Distances of all peers named, in p->at; then sorted and each once in p->peer. */
static int find_peers(struct hkt_program *p, const struct hkt_schedule *s, const struct hkt_shape *sh)
{
    uint32_t *const named = hkt_alloc((s->noperands + 1) * sizeof(*named));
    uint32_t        count = 0;

    if (!named)
        return HKT_ERR_MEMORY;
    for (uint32_t i = 0; i < s->noperands; i++)
        if (s->operand[i].place == HKT_PEER) {
            const uint32_t distance = hkt_distance((uint32_t)sh->size, (uint32_t)sh->rank, s->operand[i].id);

            p->at[p->nat++] = distance;
            if (!is_recent(named, count, distance))
                named[count++] = distance;
        }
    qsort(named, count, sizeof(*named), by_distance);
    for (uint32_t i = 0; i < count; i++)
        if (!i || named[i] != named[i - 1])
            named[p->npeers++] = named[i];
    p->peer = hkt_alloc((p->npeers + 1) * sizeof(*p->peer));
    for (uint32_t i = 0; i < p->npeers && p->peer; i++)
        p->peer[i].distance = named[i];
    hkt_free(named);
    return p->peer ? 0 : HKT_ERR_MEMORY;
}

/* ---- which step waits for which ---------------------------------------------------------------------------------- */

/* The last steps, counted from 1, that stored or read a chunk, or heard from or sent to a peer. */
struct last {
    uint32_t *out, *tmp, *read, *heard, *sent;
};

static void depend(struct hkt_program_step *st, uint32_t now, uint32_t on)
{
    if (on && on != now && now - on <= BACK)
        st->deps |= 1ull << (now - on - 1);
}

/* A value is stored before it is read; what stands in TMP is read, by one step after the other, before it is overwritten; messages of a
 * pair keep their order. */
static void find_deps(struct hkt_program *p, const struct hkt_schedule *s, struct last *last)
{
    for (uint32_t i = 0; i < s->nsteps; i++) {
        const struct hkt_step *from = &s->step[i];
        const uint32_t         now  = i + 1;
        uint32_t               at   = p->step[i].first;

        for (uint32_t k = 0; k < (uint32_t)from->nsrc + from->ndst; k++) {
            const struct hkt_operand o      = s->operand[from->first + k];
            const bool               source = k < from->nsrc;
            uint32_t *const          order  = o.place == HKT_PEER ? &(source ? last->heard : last->sent)[p->at[at++]]
                                              : o.place == HKT_TMP ? &last->read[o.id]
                                                                   : NULL;

            if (o.place == HKT_OUT || o.place == HKT_TMP) {
                uint32_t *const stored = o.place == HKT_OUT ? &last->out[o.id] : &last->tmp[o.id];

                depend(&p->step[i], now, *stored);
                if (!source)
                    *stored = now;
            }
            if (order) {
                depend(&p->step[i], now, *order);
                *order = now;
            }
        }
    }
}

static int add_deps(struct hkt_program *p, const struct hkt_schedule *s)
{
    uint32_t    outs = 0;
    struct last last;

    for (uint32_t i = 0; i < s->noperands; i++)
        if (s->operand[i].place == HKT_OUT && s->operand[i].id >= outs)
            outs = s->operand[i].id + 1;
    last.out = hkt_alloc((outs + 2 * (size_t)s->tmp_chunks + 2 * (size_t)p->npeers + 1) * sizeof(*last.out));
    if (!last.out)
        return HKT_ERR_MEMORY;
    last.tmp   = last.out + outs;
    last.read  = last.tmp + s->tmp_chunks;
    last.heard = last.read + s->tmp_chunks;
    last.sent  = last.heard + p->npeers;
    find_deps(p, s, &last);
    hkt_free(last.out);
    return 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static void add_steps(struct hkt_program *p, const struct hkt_schedule *s)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < s->nsteps; i++) {
        const struct hkt_step   *from = &s->step[i];
        struct hkt_program_step *st   = &p->step[i];

        st->first = at;
        st->folds = (uint16_t)(from->nsrc - 1);
        for (uint32_t k = 0; k < (uint32_t)from->nsrc + from->ndst; k++) {
            const bool peer = s->operand[from->first + k].place == HKT_PEER;

            if (k < from->nsrc) {
                st->hear = (uint16_t)(st->hear + peer);
            } else {
                st->send = (uint16_t)(st->send + peer);
                st->stores = (uint16_t)(st->stores + !peer);
            }
            at += peer;
        }
        if (st->hear > 1)
            qsort(p->at + st->first, st->hear, sizeof(*p->at), by_distance); /* it waits for all: order says nothing */
        for (uint32_t k = st->first; k < at; k++) {
            const bool hears = k < st->first + st->hear;

            p->at[k] = hkt_program_find(p, p->at[k]);
            p->peer[p->at[k]].heard += hears;
            p->peer[p->at[k]].sent += !hears;
            p->messages += !hears;
        }
        p->hash = mix(p->hash, (uint64_t)st->hear << 48 | (uint64_t)st->send << 32 | (uint64_t)st->folds << 16 | st->stores);
    }
    for (uint32_t k = 0; k < at; k++)
        p->hash = mix(p->hash, p->peer[p->at[k]].distance);
}

static int make(struct hkt_program *p, const struct hkt_schedule *s, const struct hkt_shape *sh, bool deps)
{
    p->step = hkt_alloc((s->nsteps + 1) * sizeof(*p->step));
    p->at   = hkt_alloc((s->noperands + 1) * sizeof(*p->at));
    if (!p->step || !p->at)
        return HKT_ERR_MEMORY;
    p->nsteps = s->nsteps;
    p->chunks = s->chunks;
    HKT_TRY(find_peers(p, s, sh));
    add_steps(p, s);
    return deps ? add_deps(p, s) : 0;
}

int hkt_program_make(struct hkt_program *p, const struct hkt_algorithm *a, const struct hkt_shape *shape, bool deps)
{
    struct hkt_schedule s = {0};
    int                 rc;

    memset(p, 0, sizeof(*p));
    rc = hkt_schedule_build(&s, a, shape);
    if (rc == 0)
        rc = make(p, &s, shape, deps);
    hkt_schedule_free(&s);
    if (rc < 0)
        hkt_program_free(p);
    return rc;
}
