/* concrete.c -- see concrete.h. Sums are 64-bit numbers: an order-blind sum, or a mixing that shows any change of order. */
#include "concrete.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 8 };

struct queue {
    uint64_t value[MAX_DEPTH];
    int      count;
};

struct machine {
    const struct concrete *c;
    int                    n, chunks, names; /* chunks in all, of all ranks */
    struct queue          *queue;            /* [from * n + to] */
    uint64_t              *in, *out, *tmp;   /* [rank * size + ..] */
    int                    tmp_size;
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* What rank r has in its input for the chunk of that name. */
static uint64_t input(int rank, int name)
{
    return mix((uint64_t)rank << 32 | (uint64_t)name) | 1;
}

static uint64_t finished(uint64_t sum)
{
    return mix(sum + 0x5bd1e995) & ~(uint64_t)1;
}

static uint64_t add(const struct machine *m, uint64_t left, uint64_t right)
{
    return m->c->ordered ? mix(left * 3 + right * 5 + 7) : left + right;
}

static uint64_t fold(const struct machine *m, const uint64_t *value, int count)
{
    int split = 1;

    if (count == 1)
        return value[0];
    while (split * 2 < count)
        split *= 2;
    return add(m, fold(m, value, split), fold(m, value + split, count - split));
}

/* Only one block of the side is the rank's: its chunks are numbered from 0. */
static bool own_block(enum hkt_coll coll, bool out)
{
    return out ? coll == HKT_COLL_REDUCE_SCATTER || coll == HKT_COLL_SCATTER
               : coll == HKT_COLL_ALL_GATHER || coll == HKT_COLL_GATHER;
}

static uint64_t *cell(const struct machine *m, int rank, struct hkt_operand o)
{
    const bool own  = o.place != HKT_TMP && own_block(m->c->shape->coll, o.place == HKT_OUT);
    const int  name = own ? rank * m->chunks + (int)o.id : (int)o.id;

    if (o.place == HKT_TMP)
        return &m->tmp[rank * m->tmp_size + (int)o.id];
    return &(o.place == HKT_IN ? m->in : m->out)[rank * m->names + name];
}

static bool can_run(const struct machine *m, int rank, const struct hkt_step *st)
{
    const struct hkt_operand *o = m->c->schedule[rank].operand + st->first;

    for (int i = 0; i < st->nsrc + st->ndst; i++) {
        int same = 0; /* messages of this step with the same rank on the same side, this one included */

        for (int j = i < st->nsrc ? 0 : st->nsrc; j <= i; j++)
            same += o[j].place == HKT_PEER && o[j].id == o[i].id;
        if (o[i].place == HKT_PEER && i < st->nsrc && m->queue[(int)o[i].id * m->n + rank].count < same)
            return false;
        if (o[i].place == HKT_PEER && i >= st->nsrc && m->queue[rank * m->n + (int)o[i].id].count + same > m->c->depth)
            return false;
    }
    return true;
}

static void run_step(struct machine *m, int rank, const struct hkt_step *st)
{
    const struct hkt_operand *o = m->c->schedule[rank].operand + st->first;
    uint64_t                  value[64], result;

    for (int i = 0; i < st->nsrc; i++)
        if (o[i].place == HKT_PEER) {
            struct queue *q = &m->queue[(int)o[i].id * m->n + rank];

            value[i] = q->value[0];
            memmove(q->value, q->value + 1, (size_t)--q->count * sizeof(q->value[0]));
        } else {
            value[i] = *cell(m, rank, o[i]);
        }
    result = fold(m, value, st->nsrc);
    if (st->flags & HKT_STEP_FINISH)
        result = finished(result);
    for (int i = st->nsrc; i < st->nsrc + st->ndst; i++)
        if (o[i].place == HKT_PEER) {
            struct queue *q = &m->queue[rank * m->n + (int)o[i].id];

            q->value[q->count++] = result;
        } else {
            *cell(m, rank, o[i]) = result;
        }
}

static uint64_t wanted(const struct machine *m, int rank, int name)
{
    const struct hkt_shape *sh = m->c->shape;
    uint64_t                value[64];

    if (hkt_coll_in(sh->coll, HKT_COLLS_REDUCING)) {
        for (int r = 0; r < m->n; r++)
            value[r] = input(r, name);
        return finished(fold(m, value, m->n));
    }
    if (sh->coll == HKT_COLL_ALL_TO_ALL)
        return input(name / m->chunks, rank * m->chunks + name % m->chunks);
    return input(hkt_coll_in(sh->coll, HKT_COLLS_ROOTED) && sh->coll != HKT_COLL_GATHER ? sh->root : name / m->chunks,
                 name);
}

static bool right(const struct machine *m)
{
    const struct hkt_shape *sh = m->c->shape;

    for (int r = 0; r < m->n; r++) {
        const bool own     = own_block(sh->coll, true);
        const bool nothing = r != sh->root && (sh->coll == HKT_COLL_REDUCE || sh->coll == HKT_COLL_GATHER);

        for (int name = own ? r * m->chunks : 0; name < (own ? (r + 1) * m->chunks : m->names) && !nothing; name++)
            if (m->out[r * m->names + name] != wanted(m, r, name))
                return false;
    }
    return true;
}

static bool run(struct machine *m)
{
    int  at[64] = {0};
    bool moved;

    do {
        moved = false;
        for (int r = 0; r < m->n; r++) {
            const struct hkt_schedule *s = &m->c->schedule[r];

            for (; at[r] < (int)s->nsteps && can_run(m, r, &s->step[at[r]]); moved = true)
                run_step(m, r, &s->step[at[r]++]);
        }
    } while (moved);
    for (int r = 0; r < m->n; r++)
        if (at[r] < (int)m->c->schedule[r].nsteps)
            return false;
    for (int i = 0; i < m->n * m->n; i++)
        if (m->queue[i].count)
            return false;
    return right(m);
}

bool concrete_run(const struct concrete *c)
{
    struct machine m    = {.c = c, .n = c->shape->size, .chunks = (int)c->schedule[0].chunks};
    const bool     same = c->in_place && c->shape->coll != HKT_COLL_ALL_TO_ALL; /* has no in-place form */
    bool           ok;

    m.names = hkt_coll_in(c->shape->coll, HKT_COLLS_VECTOR) ? m.chunks : m.chunks * m.n;
    for (int r = 0; r < m.n; r++)
        if (m.tmp_size < (int)c->schedule[r].tmp_chunks)
            m.tmp_size = (int)c->schedule[r].tmp_chunks;
    m.queue = calloc((size_t)(m.n * m.n), sizeof(*m.queue));
    m.in    = calloc((size_t)(m.n * m.names), sizeof(*m.in));
    m.out   = same ? m.in : calloc((size_t)(m.n * m.names), sizeof(*m.out));
    m.tmp   = calloc((size_t)(m.n * m.tmp_size + 1), sizeof(*m.tmp));
    if (!m.queue || !m.in || !m.out || !m.tmp)
        abort();
    for (int r = 0; r < m.n; r++)
        for (int name = 0; name < m.names; name++) {
            const bool theirs = own_block(c->shape->coll, false) && name / m.chunks != r;
            const bool absent =
                (c->shape->coll == HKT_COLL_BROADCAST || c->shape->coll == HKT_COLL_SCATTER) && r != c->shape->root;

            m.in[r * m.names + name] = theirs || absent ? 0 : input(r, name);
        }
    ok = run(&m);
    free(m.queue);
    free(m.in);
    if (!same)
        free(m.out);
    free(m.tmp);
    return ok;
}
