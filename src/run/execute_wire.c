/* execute_wire.c -- the messages of a plan's steps between hosts. The plan says where each leaves from and lands (bind_wire.c); here they are named to the
 * wire, waited for, sent. Message `index` of slice s on a lane of `each` messages a slice is number base + s * each + index of that lane.
 *
 * Slices follow each other at a distance of two: what leaves from the slots of a slice must be gone before the next but one.
 */
#include "run/execute_host.h"

#include "base/error.h"
#include "run/far.h"

#include <string.h>

static uint64_t number_in(const struct hkt_operation *op, struct hkt_wire_index m)
{
    return op->comm->far->in[m.peer] + (uint64_t)op->slice * op->plan->lane_in[m.peer] + m.index;
}

static uint64_t number_out(const struct hkt_operation *op, struct hkt_wire_index m)
{
    return op->comm->far->out[m.peer] + (uint64_t)op->slice * op->plan->lane_out[m.peer] + m.index;
}

static _Atomic uint64_t *left_word(const struct hkt_operation *op, uint32_t peer)
{
    return hkt_wire_sent(op->comm->far->wire, HKT_LANE_COLLECTIVE, (int)peer);
}

static _Atomic uint64_t *arrived_word(const struct hkt_operation *op, uint32_t peer)
{
    return hkt_wire_arrived(op->comm->far->wire, HKT_LANE_COLLECTIVE, (int)peer);
}

static int wait_left(struct hkt_operation *op, struct hkt_wire_index m)
{
    return hkt_operation_wait(op, left_word(op, m.peer), number_out(op, m), (int)m.peer);
}

/* What both ends must agree on. */
static struct hkt_wire_note note_of(const struct hkt_operation *op, size_t bytes)
{
    const struct hkt_signature *s = &hkt_line_of(op->comm, op->comm->rank, op->number)->signature;

    return (struct hkt_wire_note){{op->number, s->count, (uint64_t)(uint32_t)s->root << 32 | s->what}, op->call->scale, bytes};
}

/* ---- landings ---------------------------------------------------------------------------------------------------- */

/* May the landing be named now? */
static bool is_free(const struct hkt_operation *op, const struct hkt_wire_place *p, bool waited)
{
    if (op->comm->far->named[p->what.peer] + 1 != p->what.index || (p->late && p->step == op->step && !waited))
        return false;
    for (int i = 0; i < p->nafter; i++) /* pairs with hkt_publish() in the wire */
        if (hkt_load_acquire(left_word(op, p->after[i].peer)) < number_out(op, p->after[i]))
            return false;
    return true;
}

static int name(struct hkt_operation *op, const struct hkt_wire_place *p)
{
    size_t                     bytes;
    char                      *to   = hkt_execute_place(op, p, &bytes);
    const struct hkt_wire_note note = note_of(op, bytes);
    const int                  rc   = hkt_wire_receive(op->comm->far->wire, HKT_LANE_COLLECTIVE, (int)p->what.peer, to, &note);

    if (!rc)
        op->comm->far->named[p->what.peer]++;
    return rc;
}

int hkt_execute_name(struct hkt_operation *op, bool waited)
{
    const struct hkt_plan *plan  = op->plan;
    const uint32_t        *named = op->comm->far->named;

    for (uint32_t i = op->landing; i < plan->nlandings && plan->landing[i].step <= op->step; i++) {
        const struct hkt_wire_place *p = &plan->landing[i];

        if (named[p->what.peer] < p->what.index && is_free(op, p, waited)) {
            const int rc = name(op, p);

            if (rc < 0)
                return rc;
        }
        if (i == op->landing && named[p->what.peer] >= p->what.index)
            op->landing++;
    }
    return 0;
}

/* The landing of `m` cannot be named yet: waits for what stands against the next one of its lane. */
static int wait_free(struct hkt_operation *op, struct hkt_wire_index m)
{
    const uint64_t               next = number_in(op, m) - (m.index - op->comm->far->named[m.peer] - 1);
    const struct hkt_wire_place *p    = op->plan->landing;

    while (p->what.peer != m.peer || p->what.index != op->comm->far->named[m.peer] + 1)
        p++;
    for (int i = 0; i < p->nafter; i++) {
        const int rc = wait_left(op, p->after[i]);

        if (rc)
            return rc;
    }
    return next > HKT_WIRE_RING ? hkt_operation_wait(op, arrived_word(op, m.peer), next - HKT_WIRE_RING, (int)m.peer) : 0;
}

int hkt_execute_arrivals(struct hkt_operation *op, const struct hkt_bound_step *st)
{
    struct hkt_communicator *c = op->comm;

    for (; op->wait < st->narrival; op->wait++) {
        const struct hkt_wire_index m  = op->plan->arrival[st->arrival + op->wait];
        int                         rc = hkt_execute_name(op, true);

        while (!rc && c->far->named[m.peer] < m.index) {
            rc = wait_free(op, m);
            if (!rc)
                rc = hkt_execute_name(op, true);
        }
        if (!rc)
            rc = hkt_operation_wait(op, arrived_word(op, m.peer), number_in(op, m), (int)m.peer);
        if (rc)
            return rc;
        if (op->call->op == HKT_PREMUL_SUM)
            c->scales[m.peer] = hkt_wire_value(c->far->wire, HKT_LANE_COLLECTIVE, (int)m.peer, number_in(op, m));
    }
    op->wait = 0;
    return 0;
}

/* ---- sends ------------------------------------------------------------------------------------------------------- */

static int send(struct hkt_operation *op, const struct hkt_wire_place *p)
{
    const uint64_t             number = number_out(op, p->what);
    size_t                     bytes;
    const char                *from = hkt_execute_place(op, p, &bytes);
    const struct hkt_wire_note note = note_of(op, bytes);
    int                        rc;

    while ((rc = hkt_wire_send(op->comm->far->wire, HKT_LANE_COLLECTIVE, (int)p->what.peer, from, &note)) == HKT_IN_PROGRESS) {
        rc = hkt_operation_wait(op, left_word(op, p->what.peer), number - HKT_WIRE_RING, (int)p->what.peer);
        if (rc)
            return rc;
    }
    return rc;
}

/* op->wait counts the messages sent, then those that have left. */
int hkt_execute_sends(struct hkt_operation *op, const struct hkt_bound_step *st)
{
    const struct hkt_wire_place *p = op->plan->send + st->send;
    int                          rc;

    for (; op->wait < st->nsend; op->wait++) {
        rc = send(op, &p[op->wait]);
        if (rc)
            return rc;
    }
    for (; st->sync && op->wait < 2u * st->nsend; op->wait++) {
        rc = wait_left(op, p[op->wait - st->nsend].what);
        if (rc)
            return rc;
    }
    op->wait = 0;
    return 0;
}

/* Waits until all messages of the first `slices` slices have left. */
static int wait_all_left(struct hkt_operation *op, uint32_t slices)
{
    for (; op->peer < op->comm->size; op->peer++) {
        const uint32_t each = op->plan->lane_out[op->peer];
        const int      rc   = !each ? 0
                                    : hkt_operation_wait(op, left_word(op, (uint32_t)op->peer),
                                                         op->comm->far->out[op->peer] + (uint64_t)slices * each, op->peer);

        if (rc)
            return rc;
    }
    op->peer = 0;
    return 0;
}

int hkt_execute_slice(struct hkt_operation *op)
{
    const int rc = op->slice < 2 ? 0 : wait_all_left(op, op->slice - 1);

    if (rc)
        return rc;
    memset(op->comm->far->named, 0, (size_t)op->comm->size * sizeof(*op->comm->far->named));
    op->landing = 0;
    op->stage   = HKT_STAGE_WAITS;
    return 0;
}

int hkt_execute_end(struct hkt_operation *op)
{
    struct hkt_communicator *c  = op->comm;
    const int                rc = wait_all_left(op, op->slices);

    for (int r = 0; !rc && r < c->size; r++) {
        c->far->in[r] += (uint64_t)op->slices * op->plan->lane_in[r];
        c->far->out[r] += (uint64_t)op->slices * op->plan->lane_out[r];
    }
    return rc;
}
