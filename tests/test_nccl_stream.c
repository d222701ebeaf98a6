/* test_nccl_stream.c -- libnccl.so.2 with streams: those of the fake CUDA runtime, which are threads. Calls return at once and run in the order of
 * their stream; several communicators and streams; graphs; errors and aborts of what waits on a stream.
 */
#include "nccl_ranks.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 5000, RANKS = 3 };

#define cuda_ok(call) expect((call) == cudaSuccess, "%s fails", #call)

/* Holds up a stream until somebody lets it go. */
static void hold(void *word)
{
    await(word, 1, 30);
}

/* Between two pieces of work of this rank that the collective has to come between. */
static void fill(void *buffer)
{
    float *x = buffer;

    for (int i = 0; i < COUNT; i++)
        x[i] = (float)i;
}

static void ordered(struct rank *me)
{
    ncclComm_t   comm = nccl_join(me);
    cudaStream_t stream;
    static _Thread_local float x[COUNT], y[COUNT], z[COUNT];
    _Atomic uint32_t go = 0;

    cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    memset(x, 0, sizeof(x));
    cuda_ok(cudaLaunchHostFunc(stream, hold, &go));
    cuda_ok(cudaLaunchHostFunc(stream, fill, x));
    for (int k = 0; k < 5; k++)
        nccl_ok(ncclAllReduce(k ? y : x, y, COUNT, ncclFloat, ncclSum, comm, stream));
    cuda_ok(cudaMemcpyAsync(z, y, sizeof(z), cudaMemcpyDefault, stream));
    expect(z[1] == 0, "the stream went on while it was held"); /* and the calls have come back all the same */
    atomic_store(&go, 1);
    cuda_ok(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        expect(z[i] == (float)(243 * i) || me->n != 3, "element %d is %g", i, (double)z[i]);
    nccl_ok(ncclCommDestroy(comm));
    cuda_ok(cudaStreamDestroy(stream));
}

/* Proves: calls on a stream return at once and run between what was put on it before and after. */
START_TEST(order)
{
    world_run(&(struct world){.n = RANKS, .kind = _i, .fn = ordered, .bare = true});
}
END_TEST

/* Two communicators on two streams, issued in opposite orders by the ranks, which blocking calls could not do. */
static void crossing(struct rank *me)
{
    ncclComm_t   comm[2] = {nccl_join(me)};
    cudaStream_t stream[2];
    cudaEvent_t  event;
    int          x[2] = {1, 2}, sum = 0, last = 0, in = me->rank, out = -1;

    nccl_ok(ncclCommSplit(comm[0], 0, me->rank, &comm[1], NULL));
    cuda_ok(cudaEventCreate(&event));
    for (int k = 0; k < 2; k++)
        cuda_ok(cudaStreamCreate(&stream[k]));
    for (int turn = 0; turn < 50; turn++) {
        for (int k = 0; k < 2; k++) {
            const int i = me->rank % 2 ? k : 1 - k;

            x[i] = i + 1;
            nccl_ok(ncclAllReduce(&x[i], &x[i], 1, ncclInt, ncclSum, comm[i], stream[i]));
        }
        /* a group on both streams: behind both, and both behind it */
        nccl_ok(ncclGroupStart());
        nccl_ok(ncclAllReduce(&x[1], &sum, 1, ncclInt, ncclSum, comm[0], stream[0]));
        nccl_ok(ncclSend(&in, 1, ncclInt, (me->rank + 1) % me->n, comm[1], stream[1]));
        nccl_ok(ncclRecv(&out, 1, ncclInt, (me->rank + me->n - 1) % me->n, comm[0], stream[0]));
        nccl_ok(ncclSend(&in, 1, ncclInt, (me->rank + 1) % me->n, comm[0], stream[0]));
        nccl_ok(ncclRecv(&out, 1, ncclInt, (me->rank + me->n - 1) % me->n, comm[1], stream[1]));
        nccl_ok(ncclGroupEnd());
        cuda_ok(cudaMemcpyAsync(&last, &sum, sizeof(last), cudaMemcpyDefault, stream[1]));
        /* one communicator on the other stream */
        cuda_ok(cudaEventRecord(event, stream[1]));
        cuda_ok(cudaStreamWaitEvent(stream[0], event, 0));
        nccl_ok(ncclAllReduce(&last, &last, 1, ncclInt, ncclMax, comm[1], stream[0]));
        for (int k = 0; k < 2; k++)
            cuda_ok(cudaStreamSynchronize(stream[k]));
        expect(x[0] == me->n && x[1] == 2 * me->n && last == 2 * me->n * me->n && out == (me->rank + me->n - 1) % me->n,
               "turn %d: %d, %d, %d, %d", turn, x[0], x[1], last, out);
    }
    for (int k = 0; k < 2; k++) {
        nccl_ok(ncclCommDestroy(comm[k]));
        cuda_ok(cudaStreamDestroy(stream[k]));
    }
    cuda_ok(cudaEventDestroy(event));
}

START_TEST(several_streams)
{
    world_run(&(struct world){.n = RANKS, .kind = _i, .fn = crossing, .bare = true});
}
END_TEST

static void recorded(struct rank *me)
{
    ncclComm_t      comm = nccl_join(me);
    cudaStream_t    stream;
    cudaGraph_t     graph;
    cudaGraphExec_t exec;
    ncclRedOp_t     op;
    int             x = 1, scalar = 1, next = 0;

    cuda_ok(cudaStreamCreate(&stream));
    nccl_ok(ncclRedOpCreatePreMulSum(&op, &scalar, ncclInt, ncclScalarDevice, comm));
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    nccl_ok(ncclAllReduce(&x, &x, 1, ncclInt, op, comm, stream));
    nccl_ok(ncclGroupStart());
    nccl_ok(ncclSend(&x, 1, ncclInt, (me->rank + 1) % me->n, comm, stream));
    nccl_ok(ncclRecv(&next, 1, ncclInt, (me->rank + me->n - 1) % me->n, comm, stream));
    nccl_ok(ncclGroupEnd());
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    cuda_ok(cudaGraphInstantiate(&exec, graph, 0));
    nccl_ok(ncclRedOpDestroy(op, comm));
    expect(x == 1 && next == 0, "what was captured has run");
    for (int k = 0; k < 5; k++) {
        cuda_ok(cudaGraphLaunch(exec, stream));
        nccl_ok(ncclAllReduce(&scalar, &scalar, 1, ncclInt, ncclMin, comm, stream));
    }
    cuda_ok(cudaStreamSynchronize(stream));
    expect(x == 243 && next == 243, "after 5 launches: %d and %d", x, next);
    scalar = 2; /* it is read when the graph runs */
    cuda_ok(cudaGraphLaunch(exec, stream));
    cuda_ok(cudaStreamSynchronize(stream));
    expect(x == 6 * 243, "with another scalar: %d", x);
    nccl_ok(ncclCommDestroy(comm));
    cuda_ok(cudaGraphExecDestroy(exec));
    cuda_ok(cudaGraphDestroy(graph));
    cuda_ok(cudaStreamDestroy(stream));
}

/* Proves: calls and groups are captured into graphs and run with them, as often as those are launched, between other calls. */
START_TEST(graphs)
{
    world_run(&(struct world){.n = RANKS, .kind = _i, .fn = recorded, .bare = true});
}
END_TEST

/* Rank 1 never comes; rank 0's streams wait, and are freed by an abort of one communicator after the other. */
static void stuck(struct rank *me)
{
    ncclComm_t   first = nccl_join(me), second;
    cudaStream_t stream[2];
    int          x = 1, y = 1;
    double       before;
    ncclResult_t state;

    nccl_ok(ncclCommSplit(first, 0, me->rank, &second, NULL));
    if (me->rank == 0) {
        for (int k = 0; k < 2; k++)
            cuda_ok(cudaStreamCreate(&stream[k]));
        nccl_ok(ncclRecv(&x, 1, ncclInt, 1, first, stream[0]));
        nccl_ok(ncclRecv(&x, 1, ncclInt, 1, second, stream[0])); /* behind the other communicator's */
        nccl_ok(ncclRecv(&y, 1, ncclInt, 1, second, stream[1]));
        pause_ms(50);
        nccl_ok(ncclCommGetAsyncError(first, &state));
        expect(state == ncclSuccess, "the state is %d", (int)state);
        before = now();
        nccl_ok(ncclCommAbort(second)); /* what runs on it is not the first on its stream */
        nccl_ok(ncclCommAbort(first));
        for (int k = 0; k < 2; k++)
            cuda_ok(cudaStreamSynchronize(stream[k]));
        expect(now() - before < SOON, "the streams were freed after %g s", now() - before);
        rendezvous(me);
        for (int k = 0; k < 2; k++)
            cuda_ok(cudaStreamDestroy(stream[k]));
        return;
    }
    rendezvous(me);
    nccl_gives(ncclRecv(&x, 1, ncclInt, 0, first, NULL), ncclRemoteError);
    nccl_said("rank 0");
    nccl_ok(ncclCommAbort(second));
    nccl_ok(ncclCommAbort(first));
}

/* Proves: an abort waits for no stream and frees those that wait. */
START_TEST(abort_on_streams)
{
    world_run(&(struct world){.n = 2, .kind = _i, .fn = stuck, .bare = true});
}
END_TEST

static void mismatched(struct rank *me)
{
    ncclComm_t   comm = nccl_join(me);
    cudaStream_t stream;
    ncclResult_t state;
    int          x[4] = {1};

    cuda_ok(cudaStreamCreate(&stream));
    nccl_ok(ncclAllReduce(x, x, me->rank ? 3 : 4, ncclInt, ncclSum, comm, stream));
    cuda_ok(cudaStreamSynchronize(stream));
    nccl_ok(ncclCommGetAsyncError(comm, &state));
    expect(state == ncclInvalidUsage, "the state is %d: %s", (int)state, ncclGetLastError(comm));
    expect(strstr(ncclGetLastError(comm), "all_reduce"), "the call is not named: %s", ncclGetLastError(comm));
    nccl_ok(ncclCommAbort(comm));
    cuda_ok(cudaStreamDestroy(stream));
}

/* Proves: what goes wrong on a stream is the communicator's asynchronous error. */
START_TEST(asynchronous_error)
{
    world_run(&(struct world){.n = 2, .kind = _i, .fn = mismatched, .bare = true});
}
END_TEST

/* One thread is all ranks, each on its own stream, and one on none, which waits. */
START_TEST(one_thread_on_streams)
{
    ncclComm_t   comm[4];
    cudaStream_t stream[4] = {NULL};
    int          x[4], device;

    for (int r = 0; r < 3; r++) {
        cuda_ok(cudaSetDevice(r));
        cuda_ok(cudaStreamCreate(&stream[r]));
    }
    nccl_ok(ncclCommInitAll(comm, 4, NULL));
    for (int k = 0; k < 50; k++) {
        const int n = k % 2 ? 4 : 3; /* with and without the one that waits */

        for (int r = 0; r < 4; r++)
            x[r] = r;
        nccl_ok(ncclGroupStart());
        for (int r = 0; r < 4; r++)
            nccl_ok(ncclAllReduce(&x[r], &x[r], 1, ncclInt, ncclSum, comm[r], n == 4 ? stream[r] : stream[r % 3]));
        nccl_ok(ncclGroupEnd());
        for (int r = 0; r < 3; r++)
            cuda_ok(cudaStreamSynchronize(stream[r]));
        for (int r = 0; r < 4; r++)
            expect(x[r] == 6, "turn %d, rank %d: %d", k, r, x[r]);
    }
    cuda_ok(cudaGetDevice(&device));
    nccl_ok(ncclCommCuDevice(comm[2], &device));
    expect(device == 2, "the device is %d", device);
    for (int r = 0; r < 4; r++)
        nccl_ok(ncclCommDestroy(comm[r]));
    for (int r = 0; r < 3; r++)
        cuda_ok(cudaStreamDestroy(stream[r]));
}
END_TEST

static void add(Suite *s)
{
    ADD(s, order, KINDS, 60);
    ADD(s, several_streams, KINDS, 60);
    ADD(s, graphs, KINDS, 60);
    ADD(s, abort_on_streams, KINDS, 60);
    ADD(s, asynchronous_error, KINDS, 60);
    ADD(s, one_thread_on_streams, 1, 60);
}

int main(void)
{
    return run_suite("nccl_stream", add);
}
