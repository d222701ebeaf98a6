/* message_far.c -- send and receive with a rank of another host: pieces of HKT_WIRE_MOST bytes over the lane for messages, as many under way as it
 * holds. Both sides are over when all pieces have left, or arrived; an empty message is one empty piece.
 *
 * op->slice counts the pieces that are named to the wire.
 */
#include "run/far.h"

static size_t pieces_of(const struct hkt_operation *op)
{
    const size_t bytes = op->call->count * op->call->element;

    return bytes ? (bytes + HKT_WIRE_MOST - 1) / HKT_WIRE_MOST : 1;
}

static int name_piece(struct hkt_operation *op, struct hkt_wire_note *note)
{
    struct hkt_wire *wire  = op->comm->far->wire;
    const size_t     bytes = op->call->count * op->call->element, at = (size_t)op->slice * HKT_WIRE_MOST;

    note->bytes = bytes - at < HKT_WIRE_MOST ? bytes - at : HKT_WIRE_MOST;
    if (op->call->coll == HKT_COLL_SEND)
        return hkt_wire_send(wire, HKT_LANE_MESSAGE, op->call->root, (const char *)op->call->send + at, note);
    return hkt_wire_receive(wire, HKT_LANE_MESSAGE, op->call->root, (char *)op->call->recv + at, note);
}

int hkt_message_far_advance(struct hkt_operation *op)
{
    const struct hkt_call     *call   = op->call;
    const int                  peer   = call->root;
    const bool                 sends  = call->coll == HKT_COLL_SEND;
    const size_t               pieces = pieces_of(op);
    uint64_t                  *passed = sends ? &op->comm->far->sent[peer] : &op->comm->far->got[peer];
    _Atomic uint64_t          *word   = sends ? hkt_wire_sent(op->comm->far->wire, HKT_LANE_MESSAGE, peer)
                                              : hkt_wire_arrived(op->comm->far->wire, HKT_LANE_MESSAGE, peer);
    struct hkt_wire_note       note   = {.same = {op->number, call->count, HKT_COLL_SEND | (uint64_t)hkt_signature_type(call->type)}};
    int                        rc;

    if (!op->phase) {
        op->slice = 0;
        op->phase = 1;
    }
    for (; op->slice < pieces; op->slice++) {
        while ((rc = name_piece(op, &note)) == HKT_IN_PROGRESS) {
            rc = hkt_operation_wait(op, word, *passed + op->slice + 1 - HKT_WIRE_RING, peer);
            if (rc)
                return rc;
        }
        if (rc)
            return hkt_operation_blame(op, rc);
    }
    rc = hkt_operation_wait(op, word, *passed + pieces, peer);
    if (!rc)
        *passed += pieces;
    return rc;
}
