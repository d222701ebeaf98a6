/* flat_far.c -- the flat algorithm over several hosts: the first rank of each host, its leader, carries what its ranks show to the other hosts, one message
 * a host, and shows here what comes from there. 2 hosts of 2 ranks, all_reduce:
 *
 *      rank 0 (leader)   rank 1            rank 2 (leader)   rank 3
 *      show a            show b            show c            show d
 *      wait 1                              wait 3
 *      send a b to 2                       send c d to 0
 *      hang up c d       wait 0 1, c d     hang up a b       wait 2 3, a b
 *      (a+b)+(c+d)       (a+b)+(c+d)       (a+b)+(c+d)       (a+b)+(c+d)
 *
 * T = t_line + gap (hosts - 1) + alpha + t_line: one message after the other, where schedules have one or two each with a wait between ranks of a host.
 * It costs bytes, as nothing is folded before it is sent, so it is for small calls on few hosts. What a host hangs up stays until all its ranks have
 * entered a later operation, as with what they show themselves; a root goes on when its message has been taken by the wire.
 *
 * A message holds what each rank of the host shows, one after the other: its input, or of an input in blocks those for the ranks of the other host; then
 * the scales of a premultiplied sum.
 */
#include "run/far.h"

#include "base/error.h"

#include <string.h>

enum { NAME, GATHER, SEND, ARRIVE, DONE };

/* Between a collective's root and the others: does one side alone have something to say? */
static bool from_root(const struct hkt_call *call)
{
    return hkt_collective[call->coll].rooted && hkt_collective[call->coll].in_root_only;
}

static bool to_root(const struct hkt_call *call)
{
    return hkt_collective[call->coll].rooted && !from_root(call);
}

/* Does anything go from host `from` to host `to`? */
static bool goes(const struct hkt_operation *op, int from, int to)
{
    const int root = op->comm->far->host[op->call->root];

    return from != to && (!from_root(op->call) || from == root) && (!to_root(op->call) || to == root);
}

/* What one rank shows to another host: bytes. */
static size_t share(const struct hkt_operation *op, int to)
{
    const size_t block = op->call->count * op->call->element;

    return hkt_collective[op->call->coll].flat_deposit == HKT_BLOCKS ? block * (size_t)op->comm->far->seats[to] : block;
}

static size_t shares(const struct hkt_operation *op, int from)
{
    return from_root(op->call) ? 1 : (size_t)op->comm->far->seats[from];
}

/* Where the scales stand in a message, and how long it is. */
static size_t scales_at(const struct hkt_operation *op, int from, int to)
{
    return (shares(op, from) * share(op, to) + 7) & ~(size_t)7;
}

static size_t length(const struct hkt_operation *op, int from, int to)
{
    if (op->call->op == HKT_PREMUL_SUM && op->call->count)
        return scales_at(op, from, to) + shares(op, from) * sizeof(double);
    return shares(op, from) * share(op, to);
}

static struct hkt_shelf *shelf_of(const struct hkt_communicator *c, int host)
{
    return (struct hkt_shelf *)(void *)((char *)c->shared + c->layout.shelves) + host;
}

/* What came from a host for this operation. */
static unsigned char *hung_up(const struct hkt_operation *op, int from)
{
    struct hkt_shelf *s = shelf_of(op->comm, from);

    if (length(op, from, op->comm->far->host[op->comm->rank]) <= HKT_SMALL)
        return s->banks.small[op->number % HKT_LINES];
    return s->banks.eager[op->number % HKT_EAGER_BANKS];
}

size_t hkt_far_flat_bytes(const struct hkt_communicator *c, const struct hkt_call *call)
{
    const struct hkt_far *far   = c->far;
    const size_t          most  = (size_t)far->most, own = hkt_flat_bytes(c, call);
    const size_t          width = hkt_collective[call->coll].flat_deposit == HKT_BLOCKS ? most : 1;
    size_t                message;

    if (far->hosts > HKT_SHELVES || own > HKT_EAGER)
        return SIZE_MAX;
    message = (from_root(call) ? 1 : most) * width * call->count * call->element + (call->op == HKT_PREMUL_SUM ? 8 * (most + 1) : 0);
    return message > own ? message : own;
}

/* ---- what the leader does ------------------------------------------------------------------------------------------ */

static struct hkt_wire_note note_of(const struct hkt_operation *op, size_t bytes)
{
    const struct hkt_signature *s = &hkt_line_of(op->comm, op->comm->rank, op->number)->signature;

    return (struct hkt_wire_note){{op->number, s->count, (uint64_t)(uint32_t)s->root << 32 | s->what}, 0, bytes};
}

static int name_all(struct hkt_operation *op, int here)
{
    struct hkt_far *far = op->comm->far;

    for (int h = 0; h < far->hosts; h++) {
        const struct hkt_wire_note note = note_of(op, length(op, h, here));

        if (goes(op, h, here))
            HKT_TRY(hkt_wire_receive(far->wire, HKT_LANE_COLLECTIVE, far->first[h], hung_up(op, h), &note));
    }
    return 0;
}

/* Waits for what the ranks of this host show to others. */
static int gather(struct hkt_operation *op)
{
    struct hkt_communicator *c = op->comm;

    for (; op->peer < c->size; op->peer++) {
        struct hkt_line *line = hkt_near(c, op->peer) ? hkt_line_of(c, op->peer, op->number) : NULL;
        int              rc;

        if (!line || op->peer == c->rank || (from_root(op->call) && op->peer != op->call->root))
            continue;
        rc = hkt_operation_wait(op, &line->number, op->number, op->peer);
        if (rc)
            return rc;
        if (!hkt_signature_equal(&line->signature, &hkt_line_of(c, c->rank, op->number)->signature))
            return hkt_communicator_mismatch(c, op->number, op->peer);
    }
    op->peer = 0;
    return 0;
}

/* The message to a host, from what the ranks of this one show. */
static void pack(const struct hkt_operation *op, int here, int to, unsigned char *message)
{
    const struct hkt_communicator *c     = op->comm;
    const struct hkt_far          *far   = c->far;
    const size_t                   block = op->call->count * op->call->element, bytes = share(op, to), shown = hkt_flat_bytes(c, op->call);
    double                        *scale = (double *)(void *)(message + scales_at(op, here, to));

    for (int r = 0; r < c->size; r++) {
        const unsigned char *from;

        if (far->host[r] != here || (from_root(op->call) && r != op->call->root))
            continue;
        from = hkt_flat_shown(op, r, shown);
        if (hkt_collective[op->call->coll].flat_deposit != HKT_BLOCKS) {
            memcpy(message, from, bytes);
            message += bytes;
        } else {
            for (int p = 0; p < c->size && block; p++)
                if (far->host[p] == to) {
                    memcpy(message, from + (size_t)p * block, block);
                    message += block;
                }
        }
        if (op->call->op == HKT_PREMUL_SUM)
            *scale++ = r == c->rank ? op->call->scale : hkt_line_of(c, r, op->number)->entry.scale;
    }
}

static int send_all(struct hkt_operation *op, int here)
{
    struct hkt_far *far = op->comm->far;

    for (; op->peer < far->hosts; op->peer++) {
        const int                  to   = far->first[op->peer];
        unsigned char             *from = far->cargo + (size_t)op->peer * HKT_EAGER;
        const struct hkt_wire_note note = note_of(op, length(op, here, op->peer));
        int                        rc;

        if (!goes(op, here, op->peer))
            continue;
        rc = hkt_operation_wait(op, hkt_wire_sent(far->wire, HKT_LANE_COLLECTIVE, to), far->out[to], to); /* the last one has left */
        if (rc)
            return rc;
        if (note.bytes)
            pack(op, here, op->peer, from);
        rc = hkt_wire_send(far->wire, HKT_LANE_COLLECTIVE, to, from, &note);
        if (rc)
            return rc;
        far->out[to]++;
    }
    op->peer = 0;
    return 0;
}

static int arrive(struct hkt_operation *op, int here)
{
    struct hkt_communicator *c   = op->comm;
    struct hkt_far          *far = c->far;

    for (; op->peer < far->hosts; op->peer++) {
        const int from = far->first[op->peer];
        int       rc;

        if (!goes(op, op->peer, here))
            continue;
        rc = hkt_operation_wait(op, hkt_wire_arrived(far->wire, HKT_LANE_COLLECTIVE, from), far->in[from] + 1, from);
        if (rc)
            return rc;
        far->in[from]++;
        hkt_publish(&shelf_of(c, op->peer)->arrived, op->number, &c->peer[c->rank].cell->sleepers);
    }
    op->peer = 0;
    return 0;
}

int hkt_far_relay(struct hkt_operation *op)
{
    const int here = op->comm->far->host[op->comm->rank];
    int       rc   = 0;

    if (op->comm->rank != op->comm->leader)
        return 0;
    for (; !rc && op->step < DONE; op->step += !rc) {
        const bool sends = !from_root(op->call) || op->comm->far->host[op->call->root] == here;

        switch (op->step) {
        case NAME:
            rc = name_all(op, here);
            break;
        case GATHER:
            rc = sends ? gather(op) : 0;
            break;
        case SEND:
            rc = send_all(op, here);
            break;
        default:
            rc = arrive(op, here);
        }
    }
    return rc;
}

/* ---- what all ranks do --------------------------------------------------------------------------------------------- */

int hkt_far_hear(struct hkt_operation *op)
{
    struct hkt_communicator *c    = op->comm;
    const int                here = c->far->host[c->rank];

    for (int h = 0; h < c->far->hosts && c->rank != c->leader; h++) {
        const int rc = !goes(op, h, here) ? 0 : hkt_operation_wait(op, &shelf_of(c, h)->arrived, op->number, c->leader);

        if (rc)
            return rc;
    }
    return 0;
}

int hkt_far_late(const struct hkt_operation *op, int rank)
{
    const struct hkt_communicator *c = op->comm;

    if (rank != c->leader || c->rank == c->leader || hkt_load_acquire(&hkt_line_of(c, rank, op->number)->number) < op->number ||
        hkt_process_stopped(c->peer[rank].process))
        return rank;
    for (int h = 0; h < c->far->hosts; h++)
        if (goes(op, h, c->far->host[c->rank]) && hkt_load_acquire(&shelf_of(c, h)->arrived) < op->number) /* pairs with arrive() */
            return c->far->first[h];
    return rank;
}

const unsigned char *hkt_far_shown(const struct hkt_operation *op, int r)
{
    const struct hkt_far *far   = op->comm->far;
    const size_t          block = op->call->count * op->call->element;
    const int             from = far->host[r], here = far->host[op->comm->rank];
    const unsigned char  *at = hung_up(op, from) + (from_root(op->call) ? 0 : (size_t)far->local[r] * share(op, here));

    return hkt_collective[op->call->coll].flat_deposit == HKT_BLOCKS ? at + (size_t)far->local[op->comm->rank] * block : at;
}

double hkt_far_scale(const struct hkt_operation *op, int r)
{
    const struct hkt_far *far = op->comm->far;
    double                scale;

    memcpy(&scale, hung_up(op, far->host[r]) + scales_at(op, far->host[r], far->host[op->comm->rank]) + (size_t)far->local[r] * sizeof(scale),
           sizeof(scale));
    return scale;
}
