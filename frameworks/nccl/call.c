/* call.c -- the collectives: one row each says which arguments it has and which function of Hocket runs it. The entry points only collect their
 * arguments; checking, grouping and running is the same for all.
 */
#include "inside.h"

#include <string.h>

const struct nccl_type nccl_type[ncclNumTypes] = {
    [ncclInt8]       = {"int8", HKT_INT8, 1},         [ncclUint8]      = {"uint8", HKT_UINT8, 1},
    [ncclInt32]      = {"int32", HKT_INT32, 4},       [ncclUint32]     = {"uint32", HKT_UINT32, 4},
    [ncclInt64]      = {"int64", HKT_INT64, 8},       [ncclUint64]     = {"uint64", HKT_UINT64, 8},
    [ncclFloat16]    = {"float16", HKT_FLOAT16, 2},   [ncclFloat32]    = {"float32", HKT_FLOAT32, 4},
    [ncclFloat64]    = {"float64", HKT_FLOAT64, 8},   [ncclBfloat16]   = {"bfloat16", HKT_BFLOAT16, 2},
    [ncclFloat8e4m3] = {"float8e4m3", HKT_FLOAT8_E4M3, 1}, [ncclFloat8e5m2] = {"float8e5m2", HKT_FLOAT8_E5M2, 1},
};

static const hkt_op_t op_of[ncclNumOps] = {
    [ncclSum] = HKT_SUM, [ncclProd] = HKT_PROD, [ncclMax] = HKT_MAX, [ncclMin] = HKT_MIN, [ncclAvg] = HKT_AVG,
};

/* ---- the rows -------------------------------------------------------------------------------------------------------- */

typedef int run_fn(const struct nccl_call *c, hkt_type_t type, hkt_op_t op, hkt_stream_t *stream);

/* Hocket's function with the arguments that follow. */
#define RUN(name, ...)                                                                                                                   \
    static int run_##name(const struct nccl_call *c, hkt_type_t type, hkt_op_t op, hkt_stream_t *stream)                                 \
    {                                                                                                                                    \
        (void)op;                                                                                                                        \
        return hkt_##name(__VA_ARGS__, c->comm->hkt, stream);                                                                            \
    }
RUN(all_reduce, c->send, c->recv, c->count, type, op)
RUN(broadcast, c->send, c->recv, c->count, type, c->root)
RUN(reduce, c->send, c->recv, c->count, type, op, c->root)
RUN(all_gather, c->send, c->recv, c->count, type)
RUN(reduce_scatter, c->send, c->recv, c->count, type, op)
RUN(all_to_all, c->send, c->recv, c->count, type)
RUN(gather, c->send, c->recv, c->count, type, c->root)
RUN(scatter, c->send, c->recv, c->count, type, c->root)
RUN(send, c->send, c->count, type, c->root)
RUN(recv, c->recv, c->count, type, c->root)

enum { SEND = 1, RECV = 2, ROOT = 4, OP = 8, PEER = 16, SEND_AT_ROOT = 32, RECV_AT_ROOT = 64 };

static const struct {
    const char *name;
    unsigned    has;
    run_fn     *run;
} row[NCCL_KINDS] = {
    [NCCL_ALL_REDUCE]     = {"ncclAllReduce", SEND | RECV | OP, run_all_reduce},
    [NCCL_BROADCAST]      = {"ncclBroadcast", SEND_AT_ROOT | RECV | ROOT, run_broadcast},
    [NCCL_REDUCE]         = {"ncclReduce", SEND | RECV_AT_ROOT | OP | ROOT, run_reduce},
    [NCCL_ALL_GATHER]     = {"ncclAllGather", SEND | RECV, run_all_gather},
    [NCCL_REDUCE_SCATTER] = {"ncclReduceScatter", SEND | RECV | OP, run_reduce_scatter},
    [NCCL_ALL_TO_ALL]     = {"ncclAlltoAll", SEND | RECV, run_all_to_all},
    [NCCL_GATHER]         = {"ncclGather", SEND | RECV_AT_ROOT | ROOT, run_gather},
    [NCCL_SCATTER]        = {"ncclScatter", SEND_AT_ROOT | RECV | ROOT, run_scatter},
    [NCCL_SEND]           = {"ncclSend", SEND | PEER, run_send},
    [NCCL_RECV]           = {"ncclRecv", RECV | PEER, run_recv},
};

const char *nccl_kind_name(nccl_kind kind)
{
    return row[kind].name;
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

/* NCCL's average of integers is their sum, which wraps, divided; Hocket's is exact. On memory of the host programs get NCCL's. */
static bool divides(const struct nccl_call *c)
{
    return row[c->kind].has & OP && c->op == ncclAvg && c->type <= ncclUint64;
}

/* `wide` holds all values of the type and the number of ranks. */
#define DIVIDE(type, wide)                                                                                                               \
    for (size_t i = 0; i < n; i++)                                                                                                       \
    ((type *)out)[i] = (type)((wide)((type *)out)[i] / (wide)by)

static void divide(void *out, size_t n, ncclDataType_t type, int by)
{
    switch (type) {
    case ncclInt8: DIVIDE(int8_t, int32_t); return;
    case ncclUint8: DIVIDE(uint8_t, int32_t); return;
    case ncclInt32: DIVIDE(int32_t, int32_t); return;
    case ncclUint32: DIVIDE(uint32_t, uint32_t); return;
    case ncclInt64: DIVIDE(int64_t, int64_t); return;
    case ncclUint64: DIVIDE(uint64_t, uint64_t); return;
    default: return;
    }
}

void nccl_call_finish(const struct nccl_call *c)
{
    if (divides(c) && (c->kind != NCCL_REDUCE || c->root == c->comm->rank))
        divide(c->recv, c->count, c->type, c->comm->size);
}

int nccl_call_run(const struct nccl_call *c, hkt_stream_t *stream)
{
    const hkt_type_t type = nccl_type[c->type].type;
    hkt_comm_t      *comm = atomic_load_explicit(&c->comm->hkt, memory_order_relaxed);
    hkt_op_t         op;
    int              rc;

    if (!(row[c->kind].has & OP) || (divides(c) && !stream))
        return row[c->kind].run(c, type, HKT_SUM, stream);
    if (c->op < ncclNumOps)
        return row[c->kind].run(c, type, op_of[c->op], stream);
    /* The scalar is read by the call, so the operator need not outlive it, in a group either. */
    rc = hkt_op_create_premul_sum(&op, c->scalar_at ? nccl_scalar(c->scalar_at, c->type) : c->scalar, comm);
    if (rc)
        return rc;
    rc = row[c->kind].run(c, type, op, stream);
    hkt_op_destroy(op, comm);
    return rc;
}

/* ---- checking -------------------------------------------------------------------------------------------------------- */

static ncclResult_t check(struct nccl_call *c)
{
    const struct ncclComm *comm = c->comm;
    const unsigned         has  = row[c->kind].has;
    const bool             root = !(has & ROOT) || c->root == comm->rank;
    const bool             in   = has & SEND || (has & SEND_AT_ROOT && root);
    const bool             out  = has & RECV || (has & RECV_AT_ROOT && root);

    if ((unsigned)c->type >= ncclNumTypes)
        return nccl_fail(ncclInvalidArgument, "%s: datatype %d is none; they go from 0 (ncclInt8) to %d (ncclFloat8e5m2)", row[c->kind].name,
                         (int)c->type, ncclNumTypes - 1);
    if (has & (ROOT | PEER) && (c->root < 0 || c->root >= comm->size))
        return nccl_fail(ncclInvalidArgument, "%s: %s %d is no rank of %s, whose ranks go from 0 to %d (this is rank %d)", row[c->kind].name,
                         has & PEER ? "peer" : "root", c->root, comm->name, comm->size - 1, comm->rank);
    if (has & OP)
        NCCL_TRY(nccl_operator_read(c->comm, c));
    if (c->count && ((in && !c->send) || (out && !c->recv)))
        return nccl_fail(ncclInvalidArgument, "%s: %s is NULL on rank %d of %s, with %zu elements of %s", row[c->kind].name,
                         in && !c->send ? "the send buffer" : "the receive buffer", comm->rank, comm->name, c->count, nccl_type[c->type].name);
    return ncclSuccess;
}

static ncclResult_t submit_entered(struct nccl_call *c)
{
    NCCL_TRY(check(c));
    if (!c->count && !(row[c->kind].has & PEER)) /* as NCCL does it: a collective of nothing meets nobody */
        return ncclSuccess;
    if (nccl_group_active())
        return nccl_group_call(c);
    return nccl_job_submit(c, 1);
}

static ncclResult_t submit(struct nccl_call *c)
{
    ncclResult_t rc = nccl_comm_enter(c->comm, row[c->kind].name);

    if (rc == ncclSuccess) {
        rc = submit_entered(c);
        nccl_comm_leave(c->comm);
    }
    return rc == ncclSuccess || rc == ncclInProgress ? rc : nccl_group_error(rc);
}

/* The options of a call steer what Hocket decides by itself; what is asked for and is not there is refused. */
static ncclResult_t check_config(nccl_kind kind, const ncclCollConfig_t *config)
{
    if (!config)
        return ncclSuccess;
    if (config->size < offsetof(ncclCollConfig_t, ext) || config->magic != NCCL_API_MAGIC)
        return nccl_group_error(nccl_fail(ncclInvalidArgument, "%sConfig: the config is not initialised; begin with NCCL_COLLCONFIG_INITIALIZER",
                                          row[kind].name));
    if (config->size >= offsetof(ncclCollConfig_t, CTAPolicy) && config->algSelection && config->algSelection[0] && config->forceAlgSelection)
        return nccl_group_error(nccl_fail(ncclInvalidUsage, "%sConfig: algSelection \"%s\": algorithms are not chosen by call; set "
                                          "forceAlgSelection to 0, or HKT_ALGORITHM for all calls", row[kind].name, config->algSelection));
    return ncclSuccess;
}

/* ---- the entry points ------------------------------------------------------------------------------------------------ */

#define END ncclComm_t comm, cudaStream_t stream

/* ncclX and ncclXConfig, with these parameters before comm and stream and these members of struct nccl_call. */
#define PARAMETERS(...) __VA_ARGS__
#define COLLECTIVE(name, its_kind, parameters, ...)                                                                                      \
    NCCL_API(ncclResult_t, name, (parameters, END))                                                                                      \
    {                                                                                                                                    \
        return submit(&(struct nccl_call){.kind = its_kind, .comm = comm, .stream = stream, __VA_ARGS__});                               \
    }                                                                                                                                    \
    NCCL_API(ncclResult_t, name##Config, (parameters, END, const ncclCollConfig_t *config))                                              \
    {                                                                                                                                    \
        NCCL_TRY(check_config(its_kind, config));                                                                                        \
        return submit(&(struct nccl_call){.kind = its_kind, .comm = comm, .stream = stream, __VA_ARGS__});                               \
    }
#define BUFFERS       const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype
#define TAKE_BUFFERS  .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype

COLLECTIVE(AllReduce, NCCL_ALL_REDUCE, PARAMETERS(BUFFERS, ncclRedOp_t op), TAKE_BUFFERS, .op = (int)op)
COLLECTIVE(ReduceScatter, NCCL_REDUCE_SCATTER, PARAMETERS(BUFFERS, ncclRedOp_t op), TAKE_BUFFERS, .op = (int)op)
COLLECTIVE(Reduce, NCCL_REDUCE, PARAMETERS(BUFFERS, ncclRedOp_t op, int root), TAKE_BUFFERS, .op = (int)op, .root = root)
COLLECTIVE(Broadcast, NCCL_BROADCAST, PARAMETERS(BUFFERS, int root), TAKE_BUFFERS, .root = root)
COLLECTIVE(Gather, NCCL_GATHER, PARAMETERS(BUFFERS, int root), TAKE_BUFFERS, .root = root)
COLLECTIVE(Scatter, NCCL_SCATTER, PARAMETERS(BUFFERS, int root), TAKE_BUFFERS, .root = root)
COLLECTIVE(AllGather, NCCL_ALL_GATHER, PARAMETERS(BUFFERS), TAKE_BUFFERS)
COLLECTIVE(AlltoAll, NCCL_ALL_TO_ALL, PARAMETERS(BUFFERS), TAKE_BUFFERS)

NCCL_API(ncclResult_t, Bcast, (void *buffer, size_t count, ncclDataType_t datatype, int root, END))
{
    return pncclBroadcast(buffer, buffer, count, datatype, root, comm, stream);
}

NCCL_API(ncclResult_t, Send, (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, END))
{
    return submit(&(struct nccl_call){.kind = NCCL_SEND, .comm = comm, .stream = stream, .send = sendbuff, .count = count, .type = datatype,
                                      .root = peer});
}

NCCL_API(ncclResult_t, Recv, (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, END))
{
    return submit(&(struct nccl_call){.kind = NCCL_RECV, .comm = comm, .stream = stream, .recv = recvbuff, .count = count, .type = datatype,
                                      .root = peer});
}
