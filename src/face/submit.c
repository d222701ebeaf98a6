/* submit.c -- checks a call and sends it on its way. The checks are the same for every collective: the table in run/call.c says
 * what each has.
 */
#include "face/submit.h"

#include "base/error.h"
#include "face/group.h"
#include "face/stream.h"
#include "language/dtype.h"
#include "language/part.h"
#include "run/operation.h"

#include <stdio.h>

static int check_operator(struct hkt_call *call, const struct hkt_communicator *c)
{
    const int i = (int)call->op - HKT_PREMUL_SUM;

    if ((unsigned)call->op < HKT_OPS)
        return 0;
    if (i < 0 || i >= HKT_PREMULS || !(c->premul_used >> i & 1))
        return hkt_fail(HKT_ERR_ARGUMENT, "%s: operator %d is none of the built-in ones and no premultiplied sum of communicator %s",
                        hkt_coll_name[call->coll], (int)call->op, c->name);
    call->op    = HKT_PREMUL_SUM;
    call->scale = c->premul[i];
    return 0;
}

enum { SURE = 1 << 24 }; /* so many elements of any type for any number of ranks can be addressed */

/* Bytes of a buffer; checks that they can be counted. */
static int buffer_bytes(const struct hkt_call *call, const struct hkt_communicator *c, bool out, size_t *bytes)
{
    const size_t elements = hkt_call_extent(call, out, c->rank, c->size);
    size_t       all;

    *bytes = elements * call->element;
    if (__builtin_expect(call->count <= SURE && elements <= SURE, 1))
        return 0;
    if (!hkt_bytes(call->count, (size_t)c->size, call->element, &all) || !hkt_bytes(elements, 1, call->element, bytes))
        return hkt_fail(HKT_ERR_ARGUMENT, "%s: %zu elements of %s for %d ranks are more bytes than can be addressed",
                        hkt_coll_name[call->coll], call->count, hkt_type_name(call->type), c->size);
    return 0;
}

/* Where the in-place form puts IN within OUT (or OUT within IN), elements; SIZE_MAX: there is none. */
static size_t in_place_offset(const struct hkt_call *call, int rank, int size, bool *out_in_in)
{
    const struct hkt_collective *k      = &hkt_collective[call->coll];

    *out_in_in = k->in == HKT_BLOCKS && k->out == HKT_BLOCK;
    if (k->vector)
        return 0;
    if (k->in == k->out)
        return SIZE_MAX;
    if (call->arrays)
        return hkt_array(call, *out_in_in ? HKT_IN_DISPLS : HKT_OUT_DISPLS, size)[rank];
    return call->count * (size_t)rank;
}

static int check_overlap(const struct hkt_call *call, const struct hkt_communicator *c, size_t in_bytes, size_t out_bytes)
{
    const uintptr_t in = (uintptr_t)call->send, out = (uintptr_t)call->recv;
    const size_t    size = call->element;
    bool            out_in_in;
    size_t          offset;

    if (!in_bytes || !out_bytes || in + in_bytes <= out || out + out_bytes <= in)
        return 0;
    offset = in_place_offset(call, c->rank, c->size, &out_in_in);
    if (offset != SIZE_MAX && (out_in_in ? out == in + offset * size : in == out + offset * size))
        return 0;
    return hkt_fail(HKT_ERR_ARGUMENT, "%s: send (%p, %zu bytes) and recv (%p, %zu bytes) overlap on rank %d in a way that is not the in-place form",
                    hkt_coll_name[call->coll], call->send, in_bytes, (void *)call->recv, out_bytes, c->rank);
}

static int check(struct hkt_call *call, const struct hkt_communicator *c)
{
    const struct hkt_collective *k       = &hkt_collective[call->coll];
    const bool                   message = call->coll == HKT_COLL_SEND || call->coll == HKT_COLL_RECV;
    size_t                       in = 0, out = 0;

    if (call->coll == HKT_COLL_BARRIER)
        return 0;
    if ((unsigned)call->type >= HKT_TYPES)
        return hkt_fail(HKT_ERR_ARGUMENT, "%s: %d is no type", hkt_coll_name[call->coll], (int)call->type);
    call->element = hkt_type_size(call->type);
    if ((k->rooted || message) && (call->root < 0 || call->root >= c->size))
        return hkt_fail(HKT_ERR_ARGUMENT, "%s: %s %d is not in 0..%d of communicator %s", hkt_coll_name[call->coll],
                        message ? "peer" : "root", call->root, c->size - 1, c->name);
    if (k->reduces)
        HKT_TRY(check_operator(call, c));
    if (hkt_has_in(call, c->rank))
        HKT_TRY(buffer_bytes(call, c, false, &in));
    if (hkt_has_out(call, c->rank))
        HKT_TRY(buffer_bytes(call, c, true, &out));
    if ((in && !call->send) || (out && !call->recv))
        return hkt_fail(HKT_ERR_ARGUMENT, "%s: %s is NULL on rank %d with %zu elements", hkt_coll_name[call->coll],
                        in && !call->send ? "send" : "recv", c->rank, call->count);
    return check_overlap(call, c, in, out);
}

int hkt_run_alone(struct hkt_pending *p)
{
    struct hkt_communicator *c = p->end->comm;
    int                      rc;

    if (!p->again)
        hkt_turn_wait(p->end, p->ticket);
    rc = __builtin_expect(hkt_communicator_state(c), 0) ? hkt_communicator_dead(c)
                                                        : hkt_operation_run(c, &p->call, hkt_waiter_here(c));
    if (!p->again)
        hkt_turn_pass(p->end, 1);
    if (!p->kept)
        hkt_call_release(&p->call);
    return rc;
}

static int submit_checked(struct hkt_call *call, struct hkt_end *end, hkt_stream_t *stream)
{
    struct hkt_communicator *c = end->comm;
    uint64_t                 ticket;
    int                      rc;

    if (hkt_group_active())
        return hkt_group_add(&(struct hkt_pending){.call = *call, .end = end, .stream = stream});
    if (stream) {
        struct hkt_pending p = {.call = *call, .end = end, .stream = stream};

        hkt_stream_ticket(&p);
        return hkt_stream_calls(stream, &p, 1);
    }
    ticket = hkt_ticket(end);
    hkt_turn_wait(end, ticket);
    rc = __builtin_expect(hkt_communicator_state(c), 0)
             ? hkt_communicator_dead(c)
             : hkt_operation_run(c, call, hkt_waiter_here(c));
    hkt_turn_pass(end, 1);
    hkt_call_release(call);
    return rc;
}

int hkt_submit(struct hkt_call *call, hkt_comm_t *handle, hkt_stream_t *stream)
{
    struct hkt_end *end;
    int             rc = hkt_enter(handle, &end);

    if (__builtin_expect(rc, 0)) {
        hkt_call_release(call);
        return hkt_group_active() ? hkt_group_error(rc) : rc;
    }
    rc = check(call, end->comm);
    if (__builtin_expect(rc, 0)) {
        hkt_call_release(call);
        rc = hkt_group_active() ? hkt_group_error(rc) : rc;
    } else
        rc = submit_checked(call, end, stream);
    hkt_leave(end);
    return rc;
}
