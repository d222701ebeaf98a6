/* verify.c -- the symbolic machine. A value is (which chunk, which sum of ranks, which form); places and FIFOs hold values. */
#include "verify.h"

#include "base/error.h"
#include "base/memory.h"
#include "expression.h"
#include "order.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum form { NOTHING, RAW, PARTIAL, FINISHED };

static const char *const form_name[] = {"nothing", "raw", "partial", "finished"};

struct value {
    uint32_t expr;
    uint32_t chunk : 29; /* numbered over the whole vector or all blocks */
    uint32_t form : 2;
    uint32_t read : 1; /* TMP: was read since it was stored */
};

struct fifo {
    uint32_t     head, count;
    struct value value[HKT_VERIFY_MAX_DEPTH];
};

/* How a side of a collective numbers its chunks. */
enum side { NONE, VECTOR, MINE, BLOCKS };

static const struct {
    uint8_t in, out;
    bool    in_at_root, out_at_root; /* only the root has it */
} layout[HKT_COLL_SCHEDULED] = {
    [HKT_COLL_ALL_REDUCE] = {VECTOR, VECTOR, false, false}, [HKT_COLL_REDUCE_SCATTER] = {BLOCKS, MINE, false, false},
    [HKT_COLL_ALL_GATHER] = {MINE, BLOCKS, false, false},   [HKT_COLL_REDUCE] = {VECTOR, VECTOR, false, true},
    [HKT_COLL_BROADCAST] = {VECTOR, VECTOR, true, false},   [HKT_COLL_GATHER] = {MINE, BLOCKS, false, true},
    [HKT_COLL_SCATTER] = {BLOCKS, MINE, true, false},       [HKT_COLL_ALL_TO_ALL] = {BLOCKS, BLOCKS, false, false},
};

struct proof {
    const struct hkt_schedule *schedule;
    const struct hkt_shape    *shape;
    struct hkt_verify_result  *result;
    struct hkt_expressions     sums;
    uint32_t                   n, chunks, depth, canonical;
    bool                       reducing;
    struct fifo               *fifo;   /* [from * n + to] */
    struct value              *memory; /* of all ranks: OUT, then TMP */
    struct value             **out, **tmp;
    uint32_t                  *at;    /* per rank: its next step */
    uint32_t                  *list;  /* the sources of the step being done */
    uint32_t                  *stamp; /* per peer: the last operand list that named it */
    uint32_t                   stamps;
};

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

static enum side in_side(const struct proof *p, uint32_t rank)
{
    return layout[p->shape->coll].in_at_root && rank != (uint32_t)p->shape->root ? NONE : layout[p->shape->coll].in;
}

static enum side out_side(const struct proof *p, uint32_t rank)
{
    return layout[p->shape->coll].out_at_root && rank != (uint32_t)p->shape->root ? NONE : layout[p->shape->coll].out;
}

static uint32_t side_chunks(const struct proof *p, enum side side)
{
    return side == NONE ? 0 : side == BLOCKS ? p->n * p->chunks : p->chunks;
}

/* What chunk c of my side is called by all. */
static uint32_t chunk_name(const struct proof *p, enum side side, uint32_t rank, uint32_t c)
{
    return side == MINE ? rank * p->chunks + c : c;
}

/* The value that must stand in OUT c of a rank at the end; of sums only the chunk is told. */
static struct value wanted(const struct proof *p, uint32_t rank, uint32_t c)
{
    const bool   from_root = layout[p->shape->coll].in_at_root;
    struct value v         = {.expr  = from_root ? (uint32_t)p->shape->root : c / p->chunks,
                              .chunk = chunk_name(p, out_side(p, rank), rank, c),
                              .form  = p->reducing ? FINISHED : RAW};

    if (p->shape->coll == HKT_COLL_ALL_TO_ALL)
        v.chunk = (rank * p->chunks + c % p->chunks);
    return v;
}

/* In place, a chunk of IN lies where the OUT chunk of the same name lies: has that one been stored? */
static bool overwritten(const struct proof *p, uint32_t rank, uint32_t c)
{
    const enum side side = out_side(p, rank);
    uint32_t        o    = chunk_name(p, in_side(p, rank), rank, c);

    if (p->shape->coll == HKT_COLL_ALL_TO_ALL) /* has no in-place form */
        return false;
    if (side == MINE)
        o -= rank * p->chunks; /* wraps beyond the end when it is before my block */
    return o < side_chunks(p, side) && p->out[rank][o].form != NOTHING;
}

/* ---- saying what is wrong ---------------------------------------------------------------------------------------- */

static const char *operand_text(struct hkt_operand o, char text[24])
{
    static const char *const place[] = {"IN", "OUT", "TMP", "PEER"};

    snprintf(text, 24, "%s %u", o.place <= HKT_PEER ? place[o.place] : "?", o.id);
    return text;
}

/* Keeps the sentence; always false, for `return wrong(...)`. */
__attribute__((format(printf, 3, 4))) static bool wrong(struct proof *p, uint32_t rank, const char *format, ...)
{
    char   *why  = p->result->why;
    size_t  size = sizeof(p->result->why), used;
    va_list args;

    used = (size_t)snprintf(why, size, "rank %u, step %u: ", rank, p->at[rank] + 1);
    va_start(args, format);
    vsnprintf(why + used, size - used, format, args);
    va_end(args);
    return false;
}

static bool no_memory(struct proof *p)
{
    snprintf(p->result->why, sizeof(p->result->why), "out of memory");
    return false;
}

/* ---- the form of a step ------------------------------------------------------------------------------------------ */

static bool check_operand(struct proof *p, uint32_t rank, struct hkt_operand o, bool source)
{
    const uint32_t limit[] = {[HKT_IN]   = source ? side_chunks(p, in_side(p, rank)) : 0,
                              [HKT_OUT]  = side_chunks(p, out_side(p, rank)),
                              [HKT_TMP]  = p->schedule[rank].tmp_chunks,
                              [HKT_PEER] = p->n};
    char           text[24];

    if (o.place > HKT_PEER || o.id >= limit[o.place])
        return wrong(p, rank, "%s %s does not exist", source ? "source" : "destination", operand_text(o, text));
    if (o.place != HKT_PEER)
        return true;
    if (o.id == rank)
        return wrong(p, rank, "a message to itself");
    if (p->stamp[o.id] == p->stamps)
        return wrong(p, rank, "names PEER %u twice", o.id);
    p->stamp[o.id] = p->stamps;
    return true;
}

/* All that one rank's schedule alone shows. Leaves at[rank] at 0. */
static bool check_schedule(struct proof *p, uint32_t rank)
{
    const struct hkt_schedule *s = &p->schedule[rank];

    if (s->chunks != p->chunks)
        return wrong(p, rank, "cuts into %u chunks, rank 0 into %u", s->chunks, p->chunks);
    for (p->at[rank] = 0; p->at[rank] < s->nsteps; p->at[rank]++) {
        const struct hkt_step *st = &s->step[p->at[rank]];

        if (!st->nsrc || !st->ndst)
            return wrong(p, rank, "has no %s", st->nsrc ? "destination" : "source");
        if (st->nsrc > 1 && !p->reducing)
            return wrong(p, rank, "reduces in a collective that does not");
        if (st->flags & HKT_STEP_FINISH && !p->reducing)
            return wrong(p, rank, "finishes in a collective that does not reduce");
        p->stamps++;
        for (uint32_t i = 0; i < st->nsrc; i++)
            if (!check_operand(p, rank, hkt_sources(s, st)[i], true))
                return false;
        p->stamps++;
        for (uint32_t i = 0; i < st->ndst; i++)
            if (!check_operand(p, rank, hkt_destinations(s, st)[i], false))
                return false;
    }
    p->at[rank] = 0;
    return true;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The operand that a step cannot go on without, or NULL. */
static const struct hkt_operand *blocked_by(const struct proof *p, uint32_t rank, bool *receiving)
{
    const struct hkt_schedule *s  = &p->schedule[rank];
    const struct hkt_step     *st = &s->step[p->at[rank]];

    for (uint32_t i = 0; i < (uint32_t)st->nsrc + st->ndst; i++) {
        const struct hkt_operand *o = &s->operand[st->first + i];

        *receiving = i < st->nsrc;
        if (o->place == HKT_PEER &&
            (*receiving ? p->fifo[o->id * p->n + rank].count == 0 : p->fifo[rank * p->n + o->id].count == p->depth))
            return o;
    }
    return NULL;
}

static struct value receive(struct proof *p, uint32_t from, uint32_t to)
{
    struct fifo *const f = &p->fifo[from * p->n + to];
    const struct value v = f->value[f->head];

    f->head = f->head + 1 == p->depth ? 0 : f->head + 1;
    f->count--;
    return v;
}

static void send(struct proof *p, uint32_t from, uint32_t to, struct value v)
{
    struct fifo *const f = &p->fifo[from * p->n + to];

    f->value[(f->head + f->count++) % p->depth] = v;
    p->result->messages++;
}

static bool load(struct proof *p, uint32_t rank, struct hkt_operand o, struct value *v)
{
    char text[24];

    switch ((enum hkt_place)o.place) {
    case HKT_IN:
        if (overwritten(p, rank, o.id))
            return wrong(p, rank, "reads IN %u after it stored that OUT chunk (in place they are one)", o.id);
        *v = (struct value){.expr = rank, .chunk = chunk_name(p, in_side(p, rank), rank, o.id), .form = RAW};
        return true;
    case HKT_OUT:
        *v = p->out[rank][o.id];
        break;
    case HKT_TMP:
        p->tmp[rank][o.id].read = 1;
        *v                      = p->tmp[rank][o.id];
        break;
    case HKT_PEER:
        *v = receive(p, o.id, rank);
        break;
    }
    return v->form != NOTHING || wrong(p, rank, "reads %s before it is stored", operand_text(o, text));
}

/* One source of a step: joins it to those before, in p->list and *sum. */
static bool take(struct proof *p, uint32_t rank, const struct hkt_step *st, uint32_t i, struct value *sum)
{
    const struct hkt_operand o = hkt_sources(&p->schedule[rank], st)[i];
    struct value             v = {0};
    char                     text[24];

    if (!load(p, rank, o, &v))
        return false;
    if (i && v.chunk != sum->chunk)
        return wrong(p, rank, "folds chunk %u with chunk %u (%s)", sum->chunk, v.chunk, operand_text(o, text));
    if (st->nsrc > 1 && v.form == FINISHED)
        return wrong(p, rank, "folds a finished value (%s)", operand_text(o, text));
    if (p->reducing && v.form == RAW && o.place == HKT_PEER && (st->nsrc == 1 || v.expr != o.id))
        return wrong(p, rank, "a raw message from rank %u with the input of rank %u is %s", o.id, v.expr,
                     st->nsrc == 1 ? "not folded where it arrives" : "not the sender's own");
    p->list[i] = v.expr;
    *sum       = v;
    return true;
}

static bool evaluate(struct proof *p, uint32_t rank, const struct hkt_step *st, struct value *v)
{
    char text[64];

    *v = (struct value){0};
    for (uint32_t i = 0; i < st->nsrc; i++)
        if (!take(p, rank, st, i, v))
            return false;
    if (st->nsrc > 1) {
        if (!hkt_expression_fold(&p->sums, p->list, st->nsrc, &p->list[0]))
            return no_memory(p);
        v->expr = p->list[0];
        v->form = PARTIAL;
    }
    v->read = 0;
    if (!(st->flags & HKT_STEP_FINISH))
        return true;
    hkt_expression_print(&p->sums, v->expr, text, sizeof(text));
    if (v->form == FINISHED)
        return wrong(p, rank, "finishes a finished value");
    if (!hkt_expression_complete(&p->sums, v->expr))
        return wrong(p, rank, "finishes %s, which has not every rank once", text);
    v->form = FINISHED;
    return true;
}

static bool store_tmp(struct proof *p, uint32_t rank, const struct hkt_step *st, uint32_t id, struct value v)
{
    struct value *const       at  = &p->tmp[rank][id];
    const struct hkt_operand *src = hkt_sources(&p->schedule[rank], st);

    if (p->reducing && v.form == RAW)
        return wrong(p, rank, "stores a raw value in TMP %u, in a reduction", id);
    if (at->form != NOTHING && !at->read)
        return wrong(p, rank, "overwrites TMP %u, which nobody has read", id);
    for (uint32_t i = 0; i < st->nsrc && at->form != v.form; i++)
        if (src[i].place == HKT_TMP && src[i].id == id)
            return wrong(p, rank, "turns TMP %u from %s to %s in place", id, form_name[at->form], form_name[v.form]);
    *at = v;
    return true;
}

static bool store(struct proof *p, uint32_t rank, const struct hkt_step *st, struct hkt_operand o, struct value v)
{
    switch ((enum hkt_place)o.place) {
    case HKT_OUT:
        if (v.form != (p->reducing ? FINISHED : RAW))
            return wrong(p, rank, "stores a %s value in OUT %u", form_name[v.form], o.id);
        if (p->out[rank][o.id].form != NOTHING)
            return wrong(p, rank, "stores OUT %u twice", o.id);
        p->out[rank][o.id] = v;
        return true;
    case HKT_TMP:
        return store_tmp(p, rank, st, o.id, v);
    case HKT_PEER:
        send(p, rank, o.id, v);
        return true;
    case HKT_IN:
        break;
    }
    return false; /* check_operand() lets no other through */
}

static bool run_step(struct proof *p, uint32_t rank)
{
    const struct hkt_schedule *s  = &p->schedule[rank];
    const struct hkt_step     *st = &s->step[p->at[rank]];
    struct value               v;

    if (!evaluate(p, rank, st, &v))
        return false;
    for (uint32_t i = 0; i < st->ndst; i++)
        if (!store(p, rank, st, hkt_destinations(s, st)[i], v))
            return false;
    p->at[rank]++;
    p->result->steps++;
    return true;
}

static bool run_all(struct proof *p)
{
    bool moved, receiving = false;

    do {
        moved = false;
        for (uint32_t r = 0; r < p->n; r++)
            for (; p->at[r] < p->schedule[r].nsteps && !blocked_by(p, r, &receiving); moved = true)
                if (!run_step(p, r))
                    return false;
    } while (moved);
    for (uint32_t r = 0; r < p->n; r++)
        if (p->at[r] < p->schedule[r].nsteps) {
            const struct hkt_operand *o = blocked_by(p, r, &receiving);

            return wrong(p, r, "deadlock: it waits for %s rank %u, FIFO depth %u",
                         receiving ? "a message from" : "room to send to", o->id, p->depth);
        }
    return true;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static bool check_out(struct proof *p, uint32_t rank)
{
    const uint32_t count = side_chunks(p, out_side(p, rank));

    for (uint32_t c = 0; c < count; c++) {
        const struct value is = p->out[rank][c], want = wanted(p, rank, c);

        if (is.form != want.form || is.chunk != want.chunk)
            return wrong(p, rank, "OUT %u ends with %s chunk %u, not %s chunk %u", c, form_name[is.form], is.chunk,
                         form_name[want.form], want.chunk);
        if (!p->reducing && is.expr != want.expr)
            return wrong(p, rank, "OUT %u ends with the input of rank %u, not of %u", c, is.expr, want.expr);
        if (p->shape->coll == HKT_COLL_ALL_REDUCE && is.expr != p->out[0][c].expr)
            return wrong(p, rank, "OUT %u is summed in another order than on rank 0", c);
        if (p->reducing && is.expr != p->canonical)
            p->result->canonical = false;
    }
    for (uint32_t t = 0; t < p->schedule[rank].tmp_chunks; t++)
        if (p->tmp[rank][t].form != NOTHING && !p->tmp[rank][t].read)
            return wrong(p, rank, "TMP %u is stored and never read", t);
    for (uint32_t from = 0; from < p->n; from++)
        if (p->fifo[from * p->n + rank].count)
            return wrong(p, rank, "%u messages from rank %u are never received", p->fifo[from * p->n + rank].count,
                         from);
    return true;
}

static void finish(struct proof *p)
{
    hkt_expressions_free(&p->sums);
    hkt_free(p->fifo);
    hkt_free(p->memory);
    hkt_free(p->out);
    hkt_free(p->tmp);
    hkt_free(p->at);
    hkt_free(p->list);
    hkt_free(p->stamp);
}

static bool start(struct proof *p)
{
    const size_t n       = p->n;
    size_t       cells   = 0;
    uint32_t     longest = p->n; /* list of sources */

    for (uint32_t r = 0; r < p->n; r++) {
        cells += side_chunks(p, out_side(p, r)) + p->schedule[r].tmp_chunks;
        for (uint32_t i = 0; i < p->schedule[r].nsteps; i++)
            if (longest < p->schedule[r].step[i].nsrc)
                longest = p->schedule[r].step[i].nsrc;
    }
    p->fifo   = hkt_alloc(n * n * sizeof(*p->fifo));
    p->memory = hkt_alloc(cells * sizeof(*p->memory));
    p->out    = hkt_alloc(n * sizeof(*p->out));
    p->tmp    = hkt_alloc(n * sizeof(*p->tmp));
    p->at     = hkt_alloc(n * sizeof(*p->at));
    p->list   = hkt_alloc(longest * sizeof(*p->list));
    p->stamp  = hkt_alloc(n * sizeof(*p->stamp));
    if (!p->fifo || !p->memory || !p->out || !p->tmp || !p->at || !p->list || !p->stamp ||
        hkt_expressions_init(&p->sums, (int)p->n))
        return no_memory(p);
    cells = 0;
    for (uint32_t r = 0; r < p->n; r++) {
        p->out[r] = p->memory + cells;
        p->tmp[r] = p->out[r] + side_chunks(p, out_side(p, r));
        cells += side_chunks(p, out_side(p, r)) + p->schedule[r].tmp_chunks;
        p->list[r] = r;
    }
    return hkt_expression_fold(&p->sums, p->list, p->n, &p->canonical) || no_memory(p);
}

const char *hkt_verify_schedules(const struct hkt_schedule *schedule, const struct hkt_shape *shape, int depth,
                                 struct hkt_verify_result *result)
{
    struct proof p = {.schedule = schedule,
                      .shape    = shape,
                      .result   = result,
                      .n        = (uint32_t)shape->size,
                      .chunks   = schedule[0].chunks,
                      .depth    = (uint32_t)depth,
                      .reducing = hkt_coll_in(shape->coll, HKT_COLLS_REDUCING)};
    bool         right;

    assert(depth > 0 && depth <= HKT_VERIFY_MAX_DEPTH && shape->coll < HKT_COLL_SCHEDULED);
    memset(result, 0, sizeof(*result));
    result->canonical = true;
    right             = start(&p);
    for (uint32_t r = 0; r < p.n && right; r++)
        right = check_schedule(&p, r);
    right = right && run_all(&p);
    for (uint32_t r = 0; r < p.n && right; r++)
        right = check_out(&p, r);
    finish(&p);
    return right ? NULL : result->why;
}

/* Builds rank by rank; false with the sentence in result->why. */
static bool build_all(const struct hkt_algorithm *a, struct hkt_shape sh, struct hkt_schedule *schedule,
                      struct hkt_verify_result *result)
{
    for (sh.rank = 0; sh.rank < sh.size; sh.rank++)
        if (hkt_schedule_build(&schedule[sh.rank], a, &sh) < 0) {
            snprintf(result->why, sizeof(result->why), "rank %d: build failed: %.200s", sh.rank, hkt_last_error());
            return false;
        }
    return true;
}

static bool sent_as_promised(const struct hkt_algorithm *a, struct hkt_shape sh, const struct hkt_schedule *schedule,
                             struct hkt_verify_result *result)
{
    for (sh.rank = 0; sh.rank < sh.size; sh.rank++) {
        const struct hkt_schedule *s     = &schedule[sh.rank];
        const uint64_t             said  = hkt_algorithm_sent(a, &sh);
        uint64_t                   sends = 0;

        for (uint32_t i = 0; i < s->nsteps; i++)
            for (uint32_t d = 0; d < s->step[i].ndst; d++)
                sends += hkt_destinations(s, &s->step[i])[d].place == HKT_PEER;
        if (sends != said) {
            snprintf(result->why, sizeof(result->why), "rank %d sends %llu chunks, sent() says %llu", sh.rank,
                     (unsigned long long)sends, (unsigned long long)said);
            return false;
        }
    }
    return true;
}

/* Which group each rank is in; NULL: there are none, or there is no memory. */
static int *groups_of(const struct hkt_shape *shape)
{
    int *group = shape->ngroups > 1 ? hkt_alloc((size_t)shape->size * sizeof(*group)) : NULL;

    for (int g = 0; group && g < shape->ngroups; g++)
        for (int r = shape->group_start[g]; r < shape->group_start[g + 1]; r++)
            group[shape->label ? shape->label[r] : r] = g;
    return group;
}

static int order(struct hkt_schedule *schedule, const struct hkt_shape *shape)
{
    struct hkt_schedule **all   = hkt_alloc((size_t)shape->size * sizeof(struct hkt_schedule *));
    int                  *group = groups_of(shape), rc = HKT_ERR_MEMORY;

    for (int r = 0; all && r < shape->size; r++)
        all[r] = &schedule[r];
    if (all)
        rc = hkt_order_steps(all, shape, group);
    hkt_free(group);
    hkt_free(all);
    return rc;
}

static const char *verify(const struct hkt_algorithm *a, const struct hkt_shape *shape, int depth, bool ordered, struct hkt_verify_result *result)
{
    struct hkt_schedule *schedule = hkt_alloc((size_t)shape->size * sizeof(*schedule));
    const char          *why;

    memset(result, 0, sizeof(*result));
    snprintf(result->why, sizeof(result->why), "out of memory");
    why = result->why;
    if (schedule && build_all(a, *shape, schedule, result) && !(ordered && order(schedule, shape)))
        why = hkt_verify_schedules(schedule, shape, depth, result);
    if (!why && !result->canonical && hkt_algorithm_canonical(a, shape)) {
        snprintf(result->why, sizeof(result->why), "the sum is not the canonical tree, which is promised");
        why = result->why;
    }
    if (!why && !sent_as_promised(a, *shape, schedule, result))
        why = result->why;
    for (int r = 0; r < shape->size && schedule; r++)
        hkt_schedule_free(&schedule[r]);
    hkt_free(schedule);
    return why;
}

const char *hkt_verify(const struct hkt_algorithm *a, const struct hkt_shape *shape, int depth, struct hkt_verify_result *result)
{
    return verify(a, shape, depth, false, result);
}

const char *hkt_verify_ordered(const struct hkt_algorithm *a, const struct hkt_shape *shape, struct hkt_verify_result *result)
{
    return verify(a, shape, HKT_ORDER_DEPTH, true, result);
}
