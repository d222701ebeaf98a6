/* operation.c -- what all operations share: choosing the kind, waiting. */
#include "run/operation.h"

#include "base/error.h"
#include "run/far.h"
#include "run/staged.h"
#include "run/tune.h"

int hkt_operation_wait_slow(struct hkt_operation *op, _Atomic uint64_t *word, uint64_t value, int rank)
{
    int rc;

    if (!op->waiter) {
        op->word  = word;
        op->value = value;
        op->rank  = rank;
        return HKT_IN_PROGRESS;
    }
    rc = hkt_wait(op->waiter, word, value, rank);
    return rc ? hkt_operation_lost(op, rc, rank) : 0;
}

int hkt_operation_lost(const struct hkt_operation *op, int why, int rank)
{
    char what[128];

    if (why == HKT_WAIT_TIMEOUT && op->comm->far && op->advance == hkt_flat_advance)
        rank = hkt_far_late(op, rank);
    hkt_call_print(op->call, what, sizeof(what));
    return hkt_communicator_lost(op->comm, why, rank, what, op->number);
}

int hkt_operation_blame(const struct hkt_operation *op, int code)
{
    char what[128];

    hkt_call_print(op->call, what, sizeof(what));
    return hkt_communicator_blame(op->comm, code, what, op->number);
}

int hkt_operation_room(struct hkt_operation *op, uint64_t depth)
{
    struct hkt_communicator *c    = op->comm;
    const uint64_t           need = op->number < depth ? 0 : op->number - depth + 1;
    uint64_t                 ask;

    if (__builtin_expect(c->entered >= need, 1))
        return 0;
    /* Ask for half the depth more, so that a rank that runs ahead looks at the others' lines only now and then. */
    ask = need + depth / 2 < op->number ? need + depth / 2 : op->number - 1;
    for (; op->peer < c->size; op->peer++)
        if (op->peer != c->rank && hkt_near(c, op->peer)) {
            const int rc = hkt_operation_wait(op, &hkt_line_of(c, op->peer, ask)->number, ask, op->peer);

            if (rc)
                return rc;
        }
    op->peer   = 0;
    c->entered = ask;
    return 0;
}

/* The communicator's one thread writes, any thread reads: the values need no order. */
static void count(struct hkt_communicator *comm, const struct hkt_call *call)
{
    _Atomic uint64_t *calls = &comm->calls[call->coll], *bytes = &comm->bytes[call->coll];

    hkt_store_relaxed(calls, hkt_load_relaxed(calls) + 1);
    hkt_store_relaxed(bytes, hkt_load_relaxed(bytes) + hkt_call_payload(call, comm->size));
}

void hkt_operation_begin(struct hkt_operation *op, struct hkt_communicator *comm, struct hkt_call *call,
                         const struct hkt_waiter *waiter)
{
    const bool message = call->coll == HKT_COLL_SEND || call->coll == HKT_COLL_RECV;
    const bool device  = __builtin_expect(hkt_cuda_here() != NULL, 0);

    op->comm   = comm;
    op->call   = call;
    op->waiter = waiter;
    op->phase = op->peer = 0;
    op->plan             = NULL;
    count(comm, call);
    if (device) {
        op->stand_in      = NULL;
        op->stand_in_code = 0;
        hkt_staged_begin(op);
        call = op->call;
    }
    if (message) {
        uint64_t *count = call->coll == HKT_COLL_SEND ? comm->sent : comm->received;

        op->number  = ++count[call->root];
        op->advance = hkt_near(comm, call->root) ? hkt_message_advance : hkt_message_far_advance;
    } else {
        op->number  = ++comm->number;
        op->step    = 0;
        op->advance = hkt_tune_flat(comm, call) ? hkt_flat_advance : comm->far ? hkt_far_begin(op) : hkt_scheduled_advance;
    }
    if (device && (op->stand_in || op->stand_in_code)) {
        op->staged_advance = op->advance;
        op->advance        = hkt_staged_advance;
    }
}

int hkt_operation_run(struct hkt_communicator *comm, struct hkt_call *call, const struct hkt_waiter *waiter)
{
    struct hkt_operation op;

    hkt_operation_begin(&op, comm, call, waiter);
    return op.advance(&op);
}
