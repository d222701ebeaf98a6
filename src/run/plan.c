/* plan.c -- writes out one rank's bound steps. See plan.h for what a plan is, bind.c for how it comes about. */
#include "run/plan.h"

#include "base/error.h"
#include "base/memory.h"
#include "run/bind.h"

#include <stdlib.h>

const char *const hkt_reach_name[HKT_REACHES] = {"map", "read", "stage"};

/* Destinations that the step stores to, into `to` when it is not NULL; a slot that several peers read counts once. */
static uint16_t destinations(const struct hkt_binder *b, int me, uint32_t s, struct hkt_bound *to)
{
    const struct hkt_schedule *sched = &b->rank[me].schedule;
    const struct hkt_step     *st    = &sched->step[s];
    const struct hkt_operand  *o     = hkt_destinations(sched, st);
    uint16_t                   n     = 0;
    bool                       slot  = false;

    for (int i = 0; i < st->ndst; i++) {
        struct hkt_bound at;

        if (!hkt_bind_stores(b, me, s, &o[i]))
            continue;
        at = hkt_bind_operand(b, me, &o[i]);
        if (o[i].place == HKT_PEER && at.home == HKT_HOME_SLOT && at.rank == (uint32_t)me) {
            if (slot)
                continue;
            slot = true;
        }
        if (to)
            to[n] = at;
        n++;
    }
    return n;
}

static void write_step(const struct hkt_binder *b, uint32_t s, struct hkt_plan *plan, uint32_t *operands)
{
    const int                    me    = b->shape->rank;
    const struct hkt_schedule   *sched = &b->rank[me].schedule;
    const struct hkt_step       *st    = &sched->step[s];
    const struct hkt_trace_step *t     = &b->rank[me].step[s];
    struct hkt_bound_step       *out   = &plan->step[t->number];
    struct hkt_bound            *o     = plan->operand + *operands;

    for (int i = 0; i < st->nsrc; i++)
        o[i] = hkt_bind_operand(b, me, &hkt_sources(sched, st)[i]);
    *out = (struct hkt_bound_step){.first     = *operands,
                                   .nsrc      = st->nsrc,
                                   .ndst      = destinations(b, me, s, o + st->nsrc),
                                   .in        = t->in,
                                   .out       = t->out,
                                   .mixed     = t->mixed,
                                   .sync      = t->sync,
                                   .raw       = t->raw,
                                   .like      = t->like};
    for (int i = 0; i < out->nsrc + out->ndst; i++) /* my own memory is always at hand */
        o[i].copy &= o[i].rank != (uint32_t)me;
    *operands += (uint32_t)st->nsrc + out->ndst;
}

static void write_waits(const struct hkt_binder *b, struct hkt_plan *plan)
{
    const int me = b->shape->rank;
    uint32_t  n  = 0;

    for (uint32_t i = 0; i < b->nwaits; i++) {
        const struct hkt_wait_pair *w = &b->wait[i];

        if (w->on.rank == (uint32_t)me)
            plan->step[w->on.steps - 1].publish = true;
        if (w->actor != me)
            continue;
        if (w->step < plan->nsteps) {
            struct hkt_bound_step *st = &plan->step[w->step];

            if (!st->nwait++)
                st->wait = n;
        } else if (!plan->nlast++)
            plan->last = n;
        plan->wait[n++] = w->on;
    }
}

/* ---- between hosts ----------------------------------------------------------------------------------------------- */

static struct hkt_wire_place wire_place(const struct hkt_binder *b, const struct hkt_message *m, bool lands)
{
    struct hkt_wire_place p = {.what = {(uint32_t)(lands ? m->from : m->to), m->index},
                               .at   = lands ? m->landing : m->home,
                               .form = m->form,
                               .like = hkt_step_of(b, m->from, m->send)->like};

    if (lands) {
        p.step   = m->step;
        p.late   = m->late;
        p.nafter = m->nafter;
        for (int i = 0; i < m->nafter; i++)
            p.after[i] = m->after[i];
    }
    return p;
}

/* The messages of one of my steps: those that it waits for, those that it sends. */
static void write_wire_step(const struct hkt_binder *b, uint32_t s, struct hkt_plan *plan)
{
    const int                  me    = b->shape->rank;
    const struct hkt_schedule *sched = &b->rank[me].schedule;
    const struct hkt_step     *st    = &sched->step[s];
    const struct hkt_operand  *o     = hkt_sources(sched, st);
    struct hkt_bound_step     *out   = &plan->step[hkt_step_of(b, me, s)->number];

    out->arrival = plan->nlandings;
    out->send    = plan->nsends;
    for (int i = 0; i < st->nsrc + st->ndst; i++) {
        const struct hkt_message *m = o[i].place == HKT_PEER ? hkt_message_of(b, me, &o[i]) : NULL;

        if (!m || !m->wire)
            continue;
        if (i < st->nsrc) {
            plan->arrival[plan->nlandings]   = (struct hkt_wire_index){(uint32_t)m->from, m->index};
            plan->landing[plan->nlandings++] = wire_place(b, m, true);
            plan->lane_in[m->from]++;
            out->narrival++;
        } else {
            plan->send[plan->nsends++] = wire_place(b, m, false);
            plan->lane_out[m->to]++;
            out->nsend++;
        }
    }
}

/* In the order in which they can be named; those of a lane keep their order, since their steps do not fall (hkt_bind_lanes()). */
static int by_step(const void *x, const void *y)
{
    const struct hkt_wire_place *a = x, *b = y;

    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->late != b->late)
        return a->late - b->late;
    if (a->what.index != b->what.index)
        return a->what.index < b->what.index ? -1 : 1;
    return a->what.peer < b->what.peer ? -1 : a->what.peer > b->what.peer;
}

static int write_wire(const struct hkt_binder *b, struct hkt_plan *plan)
{
    const int me = b->shape->rank;
    uint32_t  in = 0, out = 0;

    if (!b->host)
        return 0;
    for (uint32_t i = 0; i < b->nmessages; i++) {
        in += b->message[i].wire && b->message[i].to == me;
        out += b->message[i].wire && b->message[i].from == me;
    }
    plan->send     = hkt_alloc(out * sizeof(*plan->send));
    plan->landing  = hkt_alloc(in * sizeof(*plan->landing));
    plan->arrival  = hkt_alloc(in * sizeof(*plan->arrival));
    plan->lane_in  = hkt_alloc((size_t)b->size * sizeof(*plan->lane_in));
    plan->lane_out = hkt_alloc((size_t)b->size * sizeof(*plan->lane_out));
    if (!plan->send || !plan->landing || !plan->arrival || !plan->lane_in || !plan->lane_out)
        return HKT_ERR_MEMORY;
    for (uint32_t s = 0; s < b->rank[me].schedule.nsteps; s++)
        if (hkt_step_of(b, me, s)->number != HKT_NO_STEP)
            write_wire_step(b, s, plan);
    qsort(plan->landing, plan->nlandings, sizeof(*plan->landing), by_step);
    return 0;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int write_plan(const struct hkt_binder *b, struct hkt_plan *plan)
{
    const int               me       = b->shape->rank;
    const struct hkt_trace *t        = &b->rank[me];
    uint32_t                operands = 0, waits = 0;

    for (uint32_t s = 0; s < t->schedule.nsteps; s++)
        operands += (uint32_t)t->schedule.step[s].nsrc + t->schedule.step[s].ndst;
    for (uint32_t i = 0; i < b->nwaits; i++)
        waits += b->wait[i].actor == me;
    plan->nsteps   = t->kept;
    plan->chunks   = b->chunks;
    plan->step     = hkt_alloc(plan->nsteps * sizeof(*plan->step));
    plan->operand  = hkt_alloc(operands * sizeof(*plan->operand));
    plan->wait     = hkt_alloc(waits * sizeof(*plan->wait));
    plan->steps_of = hkt_alloc((size_t)b->size * sizeof(*plan->steps_of));
    if (!plan->step || !plan->operand || !plan->wait || !plan->steps_of)
        return HKT_ERR_MEMORY;
    for (int r = 0; r < b->size; r++) {
        plan->steps_of[r] = b->rank[r].kept;
        if (b->rank[r].slots > plan->slots)
            plan->slots = b->rank[r].slots;
    }
    operands = 0;
    for (uint32_t s = 0; s < t->schedule.nsteps; s++)
        if (t->step[s].number >= 0)
            write_step(b, s, plan, &operands);
    write_waits(b, plan);
    return write_wire(b, plan);
}

static int bind(struct hkt_binder *b)
{
    const int rc = hkt_trace(b);

    return rc ? rc : hkt_bind(b);
}

int hkt_plan_build(struct hkt_plan **out, const struct hkt_algorithm *a, const struct hkt_shape *shape, struct hkt_ground ground)
{
    const struct hkt_binder empty = {.algorithm = a, .shape = shape, .reach = ground.reach, .host = ground.host, .size = shape->size};
    struct hkt_binder       b     = empty;
    struct hkt_plan        *plan  = hkt_alloc(sizeof(*plan));
    int                     rc    = plan ? 0 : HKT_ERR_MEMORY;

    b.ordered = ground.host != NULL;
    if (!rc)
        rc = bind(&b);
    if (rc == 1 && b.ordered) { /* as it was written, two messages are enough */
        hkt_trace_free(&b);
        b  = empty;
        rc = bind(&b);
    }
    if (rc == 1)
        rc = hkt_fail(HKT_ERR_INTERNAL, "algorithm %s, %s over %d ranks: the bound schedule locks up", a->name, hkt_coll_name[shape->coll], shape->size);
    if (!rc)
        rc = write_plan(&b, plan);
    if (!rc) {
        plan->coll      = shape->coll;
        plan->root      = shape->root;
        plan->reach     = ground.reach;
        plan->algorithm = a;
        *out            = plan;
    } else
        hkt_plan_free(plan);
    hkt_trace_free(&b);
    return rc;
}

void hkt_plan_free(struct hkt_plan *plan)
{
    if (!plan)
        return;
    hkt_free(plan->step);
    hkt_free(plan->operand);
    hkt_free(plan->wait);
    hkt_free(plan->steps_of);
    hkt_free(plan->lane_out);
    hkt_free(plan->lane_in);
    hkt_free(plan->arrival);
    hkt_free(plan->landing);
    hkt_free(plan->send);
    hkt_free(plan);
}
