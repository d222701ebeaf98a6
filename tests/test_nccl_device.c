/* test_nccl_device.c -- libnccl.so.2 with a CUDA driver in the process, that of tests/fakecuda: memory of devices, streams, graphs, groups across streams.
 * Skipped where that driver is not built.
 */
#include "nccl_ranks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRIVER "tests/fakecuda/.libs/libcuda.so.1"

enum { COUNT = 3000, RANKS = 3 };

typedef uintptr_t pointer; /* of a device */

static struct {
    int (*cuInit)(unsigned flags);
    int (*cuDeviceGet)(int *device, int ordinal);
    int (*cuDeviceGetCount)(int *count);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuCtxSetCurrent)(void *context);
    int (*cuStreamCreateWithPriority)(cudaStream_t *stream, unsigned flags, int priority);
    int (*cuStreamSynchronize)(cudaStream_t stream);
    int (*cuStreamDestroy)(cudaStream_t stream);
    int (*cuMemcpy)(pointer to, pointer from, size_t bytes);
    int (*cuMemcpyDtoHAsync)(void *to, pointer from, size_t bytes, cudaStream_t stream);
    int (*cuStreamBeginCapture)(cudaStream_t stream, int mode);
    int (*cuStreamEndCapture)(cudaStream_t stream, void **graph);
    int (*cuGraphInstantiateWithFlags)(void **exec, void *graph, unsigned long long flags);
    int (*cuGraphLaunch)(void *exec, cudaStream_t stream);
} cuda;

#define cuda_ok(call)                                                                                                                    \
    do {                                                                                                                                 \
        const int error_ = cuda.call;                                                                                                    \
        expect(!error_, "%s gives CUDA error %d", #call, error_);                                                                        \
    } while (0)

/* Loads the driver and makes the rank's device current. */
static void use_device(int rank)
{
    static const char *const names[] = {"cuInit", "cuDeviceGet", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent",
                                        "cuStreamCreateWithPriority", "cuStreamSynchronize", "cuStreamDestroy", "cuMemcpy", "cuMemcpyDtoHAsync",
                                        "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch"};
    void *library = dlopen(DRIVER, RTLD_NOW | RTLD_GLOBAL), *context, *found[sizeof(names) / sizeof(names[0])];
    int (*get)(const char *, void **, int, uint64_t, void *);
    int device, n;

    expect(library, "%s", dlerror());
    *(void **)&get = dlsym(library, "cuGetProcAddress_v2");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        expect(get && !get(names[i], &found[i], 12000, 0, NULL) && found[i], "the driver has no %s", names[i]);
    memcpy(&cuda, found, sizeof(cuda));
    cuda_ok(cuInit(0));
    cuda_ok(cuDeviceGetCount(&n));
    cuda_ok(cuDeviceGet(&device, rank % n));
    cuda_ok(cuDevicePrimaryCtxRetain(&context, device));
    cuda_ok(cuCtxSetCurrent(context));
}

static cudaStream_t new_stream(void)
{
    cudaStream_t stream;

    cuda_ok(cuStreamCreateWithPriority(&stream, 1, 0));
    return stream;
}

static float *device_floats(const float *from, size_t n)
{
    float *p;

    nccl_ok(ncclMemAlloc((void **)&p, n * sizeof(*p)));
    if (from)
        cuda_ok(cuMemcpy((pointer)p, (pointer)from, n * sizeof(*p)));
    return p;
}

static void on_device(struct rank *me)
{
    static _Thread_local float in[COUNT], out[COUNT * RANKS];
    ncclComm_t   comm, other;
    cudaStream_t stream[2];
    ncclRedOp_t  op;
    float       *x, *y, *all, *factor, two = 2;
    int          device;

    use_device(me->rank);
    comm = nccl_join(me);
    nccl_ok(ncclCommSplit(comm, 0, me->rank, &other, NULL));
    nccl_ok(ncclCommCuDevice(comm, &device));
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)(me->rank + i % 7);
    for (int k = 0; k < 2; k++)
        stream[k] = new_stream();
    x      = device_floats(in, COUNT);
    y      = device_floats(NULL, COUNT);
    all    = device_floats(NULL, COUNT * RANKS);
    factor = device_floats(&two, 1);
    nccl_ok(ncclRedOpCreatePreMulSum(&op, factor, ncclFloat, ncclScalarDevice, comm));
    for (int turn = 0; turn < 5; turn++) {
        nccl_ok(ncclAllReduce(x, y, COUNT, ncclFloat, op, comm, stream[0]));
        nccl_ok(ncclAllGather(x, all, COUNT, ncclFloat, other, stream[1]));
        nccl_ok(ncclGroupStart()); /* crosses streams */
        nccl_ok(ncclSend(y, COUNT, ncclFloat, (me->rank + 1) % me->n, comm, stream[0]));
        nccl_ok(ncclRecv(all, COUNT, ncclFloat, (me->rank + me->n - 1) % me->n, comm, stream[1]));
        nccl_ok(ncclGroupEnd());
        cuda_ok(cuMemcpyDtoHAsync(out, (pointer)all, sizeof(out), stream[1]));
        for (int k = 0; k < 2; k++)
            cuda_ok(cuStreamSynchronize(stream[k]));
        for (int i = 0; i < COUNT; i++)
            expect(out[i] == (float)(2 * (RANKS * (i % 7) + RANKS * (RANKS - 1) / 2)) && out[COUNT + i] == (float)(1 + i % 7),
                   "turn %d, element %d: %g, %g", turn, i, (double)out[i], (double)out[COUNT + i]);
    }
    /* host memory; the default stream, which is one for all threads that use the device */
    stream[0] = me->kind == THREADS ? stream[0] : NULL;
    nccl_ok(ncclAllReduce(in, in, COUNT, ncclFloat, ncclMax, comm, stream[0]));
    cuda_ok(cuStreamSynchronize(stream[0]));
    expect(in[0] == (float)(RANKS - 1), "the maximum is %g", (double)in[0]);
    nccl_ok(ncclCommDestroy(other));
    nccl_ok(ncclCommDestroy(comm));
    nccl_ok(ncclMemFree(factor));
    nccl_ok(ncclMemFree(all));
    nccl_ok(ncclMemFree(y));
    nccl_ok(ncclMemFree(x));
}

/* Proves: device memory on streams, operators with their scalar on the device, groups across streams, host memory beside it. */
START_TEST(device_memory)
{
    world_run(&(struct world){.n = RANKS, .kind = _i, .fn = on_device, .bare = true});
}
END_TEST

static void in_graph(struct rank *me)
{
    ncclComm_t   comm;
    cudaStream_t stream;
    void        *graph, *exec;
    float       *x, one = 1, value = 0;

    use_device(me->rank);
    comm   = nccl_join(me);
    stream = new_stream();
    x      = device_floats(&one, 1);
    nccl_ok(ncclAllReduce(x, x, 1, ncclFloat, ncclMax, comm, stream));
    cuda_ok(cuStreamBeginCapture(stream, 1));
    nccl_ok(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, comm, stream));
    cuda_ok(cuStreamEndCapture(stream, &graph));
    cuda_ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int k = 0; k < 4; k++)
        cuda_ok(cuGraphLaunch(exec, stream));
    cuda_ok(cuStreamSynchronize(stream));
    cuda_ok(cuMemcpy((pointer)&value, (pointer)x, sizeof(value)));
    expect(value == 81, "after 4 launches: %g", (double)value);
    nccl_ok(ncclCommDestroy(comm));
    nccl_ok(ncclMemFree(x));
}

/* Proves: calls are captured into graphs and run with them. */
START_TEST(graph)
{
    world_run(&(struct world){.n = RANKS, .kind = _i, .fn = in_graph, .bare = true});
}
END_TEST

/* Rank 0's stream waits for a message that never comes. */
static void waits_on_device(struct rank *me)
{
    ncclComm_t   comm;
    cudaStream_t stream;
    float       *x;
    double       before;

    use_device(me->rank);
    comm = nccl_join(me);
    if (me->rank == 0) {
        stream = new_stream();
        x      = device_floats(NULL, 1);
        nccl_ok(ncclRecv(x, 1, ncclFloat, 1, comm, stream));
        pause_ms(50);
        before = now();
        nccl_ok(ncclCommAbort(comm));
        cuda_ok(cuStreamSynchronize(stream));
        expect(now() - before < SOON, "the stream was freed after %g s", now() - before);
        nccl_ok(ncclMemFree(x));
    }
    rendezvous(me);
    if (me->rank)
        nccl_ok(ncclCommAbort(comm));
}

/* Proves: an abort frees a stream that waits. */
START_TEST(abort_on_device)
{
    world_run(&(struct world){.n = 2, .kind = _i, .fn = waits_on_device, .bare = true});
}
END_TEST

/* One thread is all ranks, each with its stream. */
static void one_thread(struct rank *me)
{
    ncclComm_t   comm[RANKS];
    cudaStream_t stream[RANKS];
    float       *x[RANKS], value;

    use_device(me->rank);
    nccl_ok(ncclCommInitAll(comm, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        stream[r] = new_stream();
        value     = (float)r;
        x[r]      = device_floats(&value, 1);
    }
    for (int k = 0; k < 3; k++) {
        nccl_ok(ncclGroupStart());
        for (int r = 0; r < RANKS; r++)
            nccl_ok(ncclAllReduce(x[r], x[r], 1, ncclFloat, ncclSum, comm[r], stream[r]));
        nccl_ok(ncclGroupEnd());
    }
    for (int r = 0; r < RANKS; r++) {
        cuda_ok(cuStreamSynchronize(stream[r]));
        cuda_ok(cuMemcpy((pointer)&value, (pointer)x[r], sizeof(value)));
        expect(value == 27, "rank %d: %g", r, (double)value);
        nccl_ok(ncclCommDestroy(comm[r]));
    }
}

START_TEST(one_thread_on_device)
{
    world_run(&(struct world){.n = 1, .kind = PROCESSES, .fn = one_thread, .bare = true});
}
END_TEST

static ncclComm_t one_comm[RANKS];
static float     *one_x[RANKS];

/* A thread that has made no device current. */
static void *elsewhere(void *arg)
{
    struct rank *me = arg;
    float        host = 1;

    nccl_ok(ncclAllReduce(one_x[me->rank], one_x[me->rank], 1, ncclFloat, ncclSum, one_comm[me->rank], NULL));
    nccl_ok(ncclAllReduce(&host, &host, 1, ncclFloat, ncclSum, one_comm[me->rank], NULL));
    return NULL;
}

static void on_default_stream(struct rank *me)
{
    pthread_t thread;
    float     one = 1;

    use_device(me->rank);
    one_comm[me->rank] = nccl_join(me);
    one_x[me->rank]    = device_floats(&one, 1);
    expect(!pthread_create(&thread, NULL, elsewhere, me), "there is no thread");
    pthread_join(thread, NULL);
    cuda_ok(cuStreamSynchronize(NULL));
    cuda_ok(cuMemcpy((pointer)&one, (pointer)one_x[me->rank], sizeof(one)));
    expect(one == (float)me->n, "the sum is %g", (double)one);
    nccl_ok(ncclCommDestroy(one_comm[me->rank]));
}

/* Proves: the default stream is that of the communicator's device, also in a thread that has none. */
START_TEST(thread_without_device)
{
    world_run(&(struct world){.n = 2, .kind = PROCESSES, .fn = on_default_stream, .bare = true, .environment = {_i ? "FAKECUDA_DEVICES=2" : NULL}});
}
END_TEST

static void without_device(struct rank *me)
{
    ncclComm_t comm;
    float     *x;

    expect(dlopen(DRIVER, RTLD_NOW | RTLD_GLOBAL), "%s", dlerror());
    comm = nccl_join(me);
    nccl_ok(ncclMemAlloc((void **)&x, sizeof(*x)));
    *x = 1;
    nccl_ok(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, comm, NULL));
    expect(*x == (float)me->n, "the sum is %g", (double)*x);
    nccl_ok(ncclMemFree(x));
    nccl_ok(ncclCommDestroy(comm));
}

/* Proves: a driver that sees no device is as none. */
START_TEST(no_device)
{
    world_run(&(struct world){.n = 2, .kind = PROCESSES, .fn = without_device, .bare = true, .environment = {"CUDA_VISIBLE_DEVICES="}});
}
END_TEST

static void survivor(struct rank *me)
{
    ncclComm_t   comm, rest;
    cudaStream_t stream;
    float       *x, one = 1;
    int          dead = 1;

    use_device(me->rank);
    comm   = nccl_join(me);
    stream = new_stream();
    x      = device_floats(&one, 1);
    for (int k = 0; k < 2; k++) /* the second on the GPUs themselves */
        nccl_ok(ncclAllReduce(x, x, 1, ncclFloat, ncclMax, comm, stream));
    cuda_ok(cuStreamSynchronize(stream));
    rendezvous(me);
    if (me->rank == dead)
        _exit(1);
    (void)ncclAllReduce(x, x, 1, ncclFloat, ncclMax, comm, stream);
    cuda_ok(cuStreamSynchronize(stream));
    nccl_ok(ncclCommShrink(comm, &dead, 1, &rest, NULL, NCCL_SHRINK_ABORT));
    nccl_ok(ncclCommAbort(comm));
    cuda_ok(cuMemcpy((pointer)x, (pointer)&one, sizeof(one)));
    for (int k = 0; k < 2; k++)
        nccl_ok(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, rest, stream));
    cuda_ok(cuStreamSynchronize(stream));
    cuda_ok(cuMemcpy((pointer)&one, (pointer)x, sizeof(one)));
    expect(one == 4, "the sum of the sum is %g", (double)one);
    nccl_ok(ncclCommDestroy(rest));
}

/* Proves: survivors of a death go on with a smaller communicator on the same stream. */
START_TEST(shrink_on_the_same_stream)
{
    world_run(&(struct world){.n = RANKS, .kind = PROCESSES, .fn = survivor, .bare = true, .may_die = 2});
}
END_TEST

static void add(Suite *s)
{
    ADD(s, device_memory, KINDS, 60);
    ADD(s, graph, KINDS, 60);
    ADD(s, abort_on_device, KINDS, 60);
    ADD(s, one_thread_on_device, 1, 60);
    ADD(s, thread_without_device, 2, 60);
    ADD(s, no_device, 1, 60);
    ADD(s, shrink_on_the_same_stream, 1, 60);
}

int main(void)
{
    if (access(DRIVER, R_OK)) {
        printf("skipped: there is no %s\n", DRIVER);
        return 77;
    }
    return run_suite("nccl_device", add);
}
