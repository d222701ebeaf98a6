/* flat.c -- small collectives in one synchronisation: every rank shows its data in its own line (40 bytes) or eager bank, waits for the
 * lines of the ranks it needs, and computes its result alone, in rank order. n = 4, all_reduce:
 *
 *      rank 0            rank 1            rank 2            rank 3
 *      show a            show b            show c            show d
 *      wait 1 2 3        wait 0 2 3        wait 0 1 3        wait 0 1 2
 *      (a+b)+(c+d)       (a+b)+(c+d)       (a+b)+(c+d)       (a+b)+(c+d)
 *
 * One line travels from each rank to each other, all at once: T = t_line + (n - 1) t_line / parallelism + fold.
 * There is no exit: what a rank shows stays untouched until every rank has entered a later operation (hkt_operation_room), so a
 * root that only shows, or a rank whose data only the root wants, goes on at once. Between hosts leaders carry what is shown: flat_far.c.
 */
#include "run/far.h"

#include "language/dtype.h"
#include "run/buffer.h"

#include <string.h>

enum { ROOM, RELAY, SHOWN };

/* Whose lines a rank needs. */
enum needs { NOBODY, THE_ROOT, EVERYBODY };

static enum needs needs_of(const struct hkt_call *call, int rank)
{
    switch (call->coll) {
    case HKT_COLL_BROADCAST:
    case HKT_COLL_SCATTER:
        return rank == call->root ? NOBODY : THE_ROOT;
    case HKT_COLL_REDUCE:
    case HKT_COLL_GATHER:
        return rank == call->root ? EVERYBODY : NOBODY;
    default:
        return EVERYBODY;
    }
}

size_t hkt_flat_bytes(const struct hkt_communicator *comm, const struct hkt_call *call)
{
    const size_t blocks = hkt_collective[call->coll].flat_deposit == HKT_BLOCKS ? (size_t)comm->size : 1;

    if (call->arrays || call->count > HKT_EAGER)
        return SIZE_MAX;
    return call->count * blocks * call->element;
}

static bool in_line(const struct hkt_call *call, size_t bytes)
{
    return bytes <= HKT_INLINE && call->op != HKT_PREMUL_SUM;
}

static unsigned char *bank(const struct hkt_communicator *c, int rank, uint64_t number, size_t bytes)
{
    struct hkt_banks *b = c->peer[rank].banks;

    return bytes <= HKT_SMALL ? b->small[number % HKT_LINES] : b->eager[number % HKT_EAGER_BANKS];
}

/* Writes my line, and my bank when the line is too small. */
static void show(struct hkt_operation *op, size_t bytes)
{
    struct hkt_communicator *c    = op->comm;
    const struct hkt_call   *call = op->call;
    struct hkt_line         *line = hkt_line_of(c, c->rank, op->number);
    const bool               mine = bytes && hkt_has_in(call, c->rank);

    line->signature = hkt_signature_make(c, call);
    if (mine && in_line(call, bytes))
        memcpy(line->data, call->send, bytes);
    else if (mine) {
        memcpy(bank(c, c->rank, op->number, bytes), call->send, bytes);
        line->entry.scale = call->scale;
        if (!hkt_collective[call->coll].rooted) /* else nobody may learn from it, and some ranks may have left already */
            line->entry.reach = (uint32_t)hkt_buffer_reach(c, call);
    }
    hkt_publish(&line->number, op->number, &c->peer[c->rank].cell->sleepers);
    hkt_own(hkt_line_of(c, c->rank, op->number + 1), sizeof(*line)); /* while the others' lines are on their way */
    if (mine && !in_line(call, bytes))
        hkt_own(bank(c, c->rank, op->number + 1, bytes), bytes);
}

/* Waits for the lines that this rank needs and compares them with its own. */
static int hear(struct hkt_operation *op, enum needs needs)
{
    struct hkt_communicator   *c     = op->comm;
    const struct hkt_signature mine  = hkt_line_of(c, c->rank, op->number)->signature;
    const int                  first = needs == THE_ROOT ? op->call->root : 0;
    const int                  end   = needs == THE_ROOT ? first + 1 : c->size;

    for (; op->peer + first < end; op->peer++) {
        const int r = op->peer + first;
        int       rc;

        if (r == c->rank || !hkt_near(c, r))
            continue;
        rc = hkt_operation_wait(op, &hkt_line_of(c, r, op->number)->number, op->number, r);
        if (rc)
            return rc;
    }
    for (int r = first; r < end; r++)
        if (hkt_near(c, r) && !hkt_signature_equal(&hkt_line_of(c, r, op->number)->signature, &mine))
            return hkt_communicator_mismatch(c, op->number, r);
    if (needs == EVERYBODY)
        c->entered = op->number;
    return c->far ? hkt_far_hear(op) : 0;
}

/* What the lines of all ranks say of their buffers, for the choice of the next call's algorithm. */
static void learn(struct hkt_operation *op)
{
    struct hkt_communicator *c = op->comm;

    c->reach = HKT_REACH_MAP;
    for (int r = 0; r < c->size; r++)
        if (hkt_line_of(c, r, op->number)->entry.reach > c->reach)
            c->reach = (uint8_t)hkt_line_of(c, r, op->number)->entry.reach;
}

const unsigned char *hkt_flat_shown(const struct hkt_operation *op, int r, size_t bytes)
{
    const struct hkt_communicator *c = op->comm;

    if (r == c->rank)
        return op->call->send;
    return in_line(op->call, bytes) ? hkt_line_of(c, r, op->number)->data : bank(c, r, op->number, bytes);
}

/* What a step of taking needs. */
struct taking {
    struct hkt_operation *op;
    size_t                bytes, skip; /* that a rank of this host shows; up to what is for this rank */
};

static const unsigned char *shown(const struct taking *t, int r)
{
    return hkt_near(t->op->comm, r) ? hkt_flat_shown(t->op, r, t->bytes) + t->skip : hkt_far_shown(t->op, r);
}

static double scale_of(const struct hkt_operation *op, int r)
{
    const struct hkt_communicator *c = op->comm;

    return r == c->rank ? op->call->scale : hkt_near(c, r) ? hkt_line_of(c, r, op->number)->entry.scale : hkt_far_scale(op, r);
}

static void fold(const struct taking *t)
{
    struct hkt_operation    *op   = t->op;
    struct hkt_communicator *c    = op->comm;
    const struct hkt_call   *call = op->call;
    struct hkt_reduce        r    = {.src     = c->src,
                                     .dst     = (void *const *)&call->recv,
                                     .count   = call->count,
                                     .nsrc    = (uint32_t)c->size,
                                     .ndst    = 1,
                                     .divisor = (uint32_t)c->size,
                                     .in      = HKT_RAW,
                                     .out     = HKT_FINISHED};

    for (int p = 0; p < c->size; p++)
        c->src[p] = shown(t, p);
    if (call->op == HKT_PREMUL_SUM) {
        for (int p = 0; p < c->size; p++)
            c->scale[p] = scale_of(op, p);
        r.scale = c->scale;
    }
    hkt_reduce_kernel(call->type, call->op)(&r);
}

/* Computes this rank's result from what was shown. */
static void take(struct hkt_operation *op, size_t bytes)
{
    struct hkt_communicator     *c     = op->comm;
    const struct hkt_call       *call  = op->call;
    const struct hkt_collective *kind  = &hkt_collective[call->coll];
    const size_t                 block = call->count * call->element;
    unsigned char               *recv  = call->recv;
    const struct taking          t     = {op, bytes, kind->flat_deposit == HKT_BLOCKS ? block * (size_t)c->rank : 0};

    if (!block || !hkt_has_out(call, c->rank))
        return;
    if (kind->reduces)
        fold(&t);
    else if (kind->out == HKT_BLOCK) {
        if (recv != shown(&t, call->root))
            memcpy(recv, shown(&t, call->root), block);
    } else
        for (int r = 0; r < c->size; r++)
            if (recv + block * (size_t)r != shown(&t, r))
                memcpy(recv + block * (size_t)r, shown(&t, r), block);
}

int hkt_flat_advance(struct hkt_operation *op)
{
    const struct hkt_call *call  = op->call;
    const size_t           bytes = hkt_flat_bytes(op->comm, call);
    const enum needs       needs = needs_of(call, op->comm->rank);
    int                    rc;

    if (op->phase == ROOM) {
        const size_t most = op->comm->far ? hkt_far_flat_bytes(op->comm, call) : bytes;

        rc = hkt_operation_room(op, most <= HKT_SMALL ? HKT_LINES : HKT_EAGER_BANKS);
        if (rc)
            return rc;
        show(op, bytes);
        op->phase = op->comm->far ? RELAY : SHOWN;
    }
    if (op->phase == RELAY) {
        rc = hkt_far_relay(op);
        if (rc)
            return rc == HKT_IN_PROGRESS || hkt_communicator_state(op->comm) ? rc : hkt_operation_blame(op, rc);
        op->phase = SHOWN;
    }
    if (needs != NOBODY) {
        rc = hear(op, needs);
        if (rc)
            return rc;
    }
    if (!hkt_collective[call->coll].rooted && !in_line(call, bytes) && !op->comm->far)
        learn(op);
    take(op, bytes);
    return 0;
}
