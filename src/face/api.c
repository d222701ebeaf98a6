/* api.c -- the collectives and messages of hocket.h: each only says what it is; submit.c does the rest. */
#include "base/error.h"
#include "base/memory.h"
#include "face/submit.h"

#include <string.h>

int hkt_all_reduce(const void *send, void *recv, size_t count, hkt_type_t type, hkt_op_t op, hkt_comm_t *comm, hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_ALL_REDUCE, .send = send, .recv = recv, .count = count, .type = type, .op = op};

    return hkt_submit(&call, comm, stream);
}

int hkt_reduce_scatter(const void *send, void *recv, size_t count, hkt_type_t type, hkt_op_t op, hkt_comm_t *comm, hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_REDUCE_SCATTER, .send = send, .recv = recv, .count = count, .type = type, .op = op};

    return hkt_submit(&call, comm, stream);
}

int hkt_all_gather(const void *send, void *recv, size_t count, hkt_type_t type, hkt_comm_t *comm, hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_ALL_GATHER, .send = send, .recv = recv, .count = count, .type = type};

    return hkt_submit(&call, comm, stream);
}

int hkt_reduce(const void *send, void *recv, size_t count, hkt_type_t type, hkt_op_t op, int root, hkt_comm_t *comm, hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_REDUCE, .send = send, .recv = recv, .count = count, .type = type, .op = op, .root = root};

    return hkt_submit(&call, comm, stream);
}

int hkt_broadcast(const void *send, void *recv, size_t count, hkt_type_t type, int root, hkt_comm_t *comm, hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_BROADCAST, .send = send, .recv = recv, .count = count, .type = type, .root = root};

    return hkt_submit(&call, comm, stream);
}

int hkt_gather(const void *send, void *recv, size_t count, hkt_type_t type, int root, hkt_comm_t *comm, hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_GATHER, .send = send, .recv = recv, .count = count, .type = type, .root = root};

    return hkt_submit(&call, comm, stream);
}

int hkt_scatter(const void *send, void *recv, size_t count, hkt_type_t type, int root, hkt_comm_t *comm, hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_SCATTER, .send = send, .recv = recv, .count = count, .type = type, .root = root};

    return hkt_submit(&call, comm, stream);
}

int hkt_all_to_all(const void *send, void *recv, size_t count, hkt_type_t type, hkt_comm_t *comm, hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_ALL_TO_ALL, .send = send, .recv = recv, .count = count, .type = type};

    return hkt_submit(&call, comm, stream);
}

int hkt_barrier(hkt_comm_t *comm, hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_BARRIER};

    return hkt_submit(&call, comm, stream);
}

int hkt_send(const void *send, size_t count, hkt_type_t type, int peer, hkt_comm_t *comm, hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_SEND, .send = send, .count = count, .type = type, .root = peer};

    return hkt_submit(&call, comm, stream);
}

int hkt_recv(void *recv, size_t count, hkt_type_t type, int peer, hkt_comm_t *comm, hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_RECV, .recv = recv, .count = count, .type = type, .root = peer};

    return hkt_submit(&call, comm, stream);
}

/* ---- v-forms ----------------------------------------------------------------------------------------------------- */

/* Copies one pair of arrays into place; packs when there are no displacements. Raises call->count to the largest. */
static int copy_arrays(struct hkt_call *call, size_t *counts, const size_t *from_counts, const size_t *from_displs, int n)
{
    size_t *displs = counts + n, end = 0;

    for (int r = 0; r < n; r++) {
        counts[r] = from_counts[r];
        displs[r] = from_displs ? from_displs[r] : end;
        if (__builtin_add_overflow(displs[r], counts[r], &end) || end > (size_t)PTRDIFF_MAX)
            return hkt_fail(HKT_ERR_ARGUMENT, "%s_v: block %d of %zu elements at %zu is beyond what can be addressed",
                            hkt_coll_name[call->coll], r, counts[r], displs[r]);
        call->count = counts[r] > call->count ? counts[r] : call->count;
    }
    return 0;
}

struct arrays {
    const size_t *in_counts, *in_displs, *out_counts, *out_displs;
};

static int submit_v(struct hkt_call *call, const struct arrays *a, hkt_comm_t *comm, hkt_stream_t *stream)
{
    int n, rc;

    HKT_TRY(hkt_comm_size(comm, &n));
    if (!a->in_counts || !a->out_counts)
        return hkt_fail(HKT_ERR_ARGUMENT, "%s_v: counts is NULL", hkt_coll_name[call->coll]);
    call->arrays = hkt_alloc(HKT_ARRAYS * (size_t)n * sizeof(size_t));
    if (!call->arrays)
        return HKT_ERR_MEMORY;
    rc = copy_arrays(call, hkt_array(call, HKT_IN_COUNTS, n), a->in_counts, a->in_displs, n);
    if (!rc)
        rc = copy_arrays(call, hkt_array(call, HKT_OUT_COUNTS, n), a->out_counts, a->out_displs, n);
    if (!rc)
        return hkt_submit(call, comm, stream);
    hkt_call_release(call);
    return rc;
}

int hkt_reduce_scatter_v(const void *send, void *recv, const size_t *counts, const size_t *displs, hkt_type_t type, hkt_op_t op,
                         hkt_comm_t *comm, hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_REDUCE_SCATTER, .send = send, .recv = recv, .type = type, .op = op};

    return submit_v(&call, &(struct arrays){counts, displs, counts, NULL}, comm, stream);
}

int hkt_all_gather_v(const void *send, void *recv, const size_t *counts, const size_t *displs, hkt_type_t type, hkt_comm_t *comm,
                     hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_ALL_GATHER, .send = send, .recv = recv, .type = type};

    return submit_v(&call, &(struct arrays){counts, NULL, counts, displs}, comm, stream);
}

int hkt_gather_v(const void *send, void *recv, const size_t *counts, const size_t *displs, hkt_type_t type, int root, hkt_comm_t *comm,
                 hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_GATHER, .send = send, .recv = recv, .type = type, .root = root};

    return submit_v(&call, &(struct arrays){counts, NULL, counts, displs}, comm, stream);
}

int hkt_scatter_v(const void *send, void *recv, const size_t *counts, const size_t *displs, hkt_type_t type, int root, hkt_comm_t *comm,
                  hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_SCATTER, .send = send, .recv = recv, .type = type, .root = root};

    return submit_v(&call, &(struct arrays){counts, displs, counts, NULL}, comm, stream);
}

int hkt_all_to_all_v(const void *send, const size_t *send_counts, const size_t *send_displs, void *recv, const size_t *recv_counts,
                     const size_t *recv_displs, hkt_type_t type, hkt_comm_t *comm, hkt_stream_t *stream)
{
    struct hkt_call call = {.coll = HKT_COLL_ALL_TO_ALL, .send = send, .recv = recv, .type = type};

    return submit_v(&call, &(struct arrays){send_counts, send_displs, recv_counts, recv_displs}, comm, stream);
}
