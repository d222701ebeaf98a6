/* test_device.c -- collectives on device memory give what they give on host memory, to the bit: on CUDA streams and blocking, in graphs, with
 * some buffers of the host; and streams are let go whatever becomes of the peers. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const size_t sizes[] = {1, 63, 700, 4100};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), LONGEST = 4104 };

static size_t span_bytes(int n)
{
    return (size_t)n * (LONGEST + 4) * 8 + 8192;
}

/* ---- every collective x type x operator */

static void everything(struct rank *me)
{
    struct lab lab;
    struct gpu gpu;

    gpu_open(&gpu, me->rank, 4 * span_bytes(me->n));
    lab_open(&lab, me->comm, span_bytes(me->n));
    gpu_lab(&gpu, &lab);
    gpu.placement = me->arg ? MIXED : ON_DEVICE;
    for (enum coll coll = 0; coll < COLLS; coll++)
        for (hkt_type_t type = 0; type < HKT_TYPES; type++)
            for (int op = 0; op < (coll_reduces(coll) ? OP_COUNT : 1); op++) {
                const uint64_t random = mix((uint64_t)coll << 20 | (uint64_t)type << 12 | (uint64_t)op << 8 | (uint64_t)me->n);
                struct job     j      = job_random(random, coll, type, sizes[random >> 50 & (SIZES - 1)], me->n);

                j.op = op;
                gpu_job(&gpu, &lab, &j, random >> 60 & 3);
            }
    lab_close(&lab);
    gpu_close(&gpu);
}

/* What the machine is like. */
static const char *const machine[][2] = {
    {"FAKECUDA_DEVICES=1", NULL},                          /* ranks share a GPU: staged */
    {"FAKECUDA_DEVICES=8", NULL},                          /* each has its own: fused */
    {"FAKECUDA_DEVICES=2", NULL},                          /* two leaders */
    {"FAKECUDA_DEVICES=1", "FAKECUDA_SHARE=exclusive"},    /* a GPU runs one process at a time, to the end of its kernel */
    {"FAKECUDA_DEVICES=1", "FAKECUDA_SHARE=slice:2000"},   /* or for 2 ms */
    {"FAKECUDA_DEVICES=4", "FAKECUDA_LINK=none"},          /* no GPU reaches another: through the host */
    {"FAKECUDA_DEVICES=8", "FAKECUDA_FAIL=cuMemCreate:1:801"}, /* no VMM memory: IPC handles */
    {"FAKECUDA_DEVICES=1", "FAKECUDA_NOMEMOPS=1"},         /* streams cannot wait for words: through the host, callbacks wait */
};
enum { SHARED_GPU, OWN_GPU, MACHINES = sizeof(machine) / sizeof(machine[0]) };

/* Proves: results of every collective, type and operator on device memory are right to the bit, n = 1 to 8, threads and processes, on a stream and
 * blocking, where ranks share a GPU and where each has its own. */
START_TEST(every_collective_type_operator)
{
    world_run(&(struct world){.n = 1 + _i % 8, .kind = _i / 8 % 2, .fn = everything, .environment = {machine[_i / 16][0]}, .deadline = 110});
}
END_TEST

/* Proves: the same on other machines; with processes, since only they are kept apart. */
START_TEST(other_machines)
{
    const int m = OWN_GPU + 1 + _i % (MACHINES - OWN_GPU - 1);

    world_run(&(struct world){.n = 4, .kind = PROCESSES, .fn = everything, .environment = {machine[m][0], machine[m][1]}, .deadline = 110});
}
END_TEST

/* Proves: a call may have device memory on one rank and host memory on another, or on its two sides. */
START_TEST(mixed_memory)
{
    world_run(&(struct world){.n = 2 + _i % 3, .kind = _i / 3 % 2, .fn = everything, .arg = &(int){1}, .environment = {machine[_i / 6][0]}, .deadline = 110});
}
END_TEST

/* ---- graphs */

enum { CAPTURED = 6, REPLAYS = 5 };

/* One capture of several calls, then replays with new inputs, calls made directly between them. */
static void replay(struct gpu *gpu, struct lab *lab, uint64_t seed)
{
    struct running r[CAPTURED];
    CUgraph        graph;
    CUgraphExec    exec;

    cuda_ok(cuStreamBeginCapture(gpu->queue, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < CAPTURED; i++) {
        const uint64_t random = mix(seed + (uint64_t)i);
        struct job     j      = job_random(random, (enum coll)(random >> 20) % COLLS, (hkt_type_t)(random >> 30) % HKT_TYPES,
                                           sizes[random >> 50 & (SIZES - 1)], lab->n);

        j.memory[SEND] = j.memory[RECV] = PLAIN; /* several buffers in flight */
        job_start(&r[i], lab, &j, gpu->stream);
    }
    cuda_ok(cuStreamEndCapture(gpu->queue, &graph));
    cuda_ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int k = 0; k < REPLAYS; k++) {
        for (int i = 0; i < CAPTURED; i++)
            job_again(&r[i], mix(seed ^ (uint64_t)(k * 100 + i)));
        cuda_ok(cuGraphLaunch(exec, gpu->queue));
        cuda_ok(cuStreamSynchronize(gpu->queue));
        for (int i = 0; i < CAPTURED; i++)
            job_check(&r[i]);
        if (k % 2) {
            const size_t   used  = gpu->used;
            struct job     j     = job_random(mix(seed ^ (uint64_t)k), ALL_REDUCE, HKT_BFLOAT16, 333, lab->n);
            struct running between;

            j.memory[SEND] = j.memory[RECV] = PLAIN;
            job_start(&between, lab, &j, gpu->stream);
            cuda_ok(cuStreamSynchronize(gpu->queue));
            job_check(&between);
            gpu->used = used;
        }
    }
    gpu_finish(gpu);
    arena_reset(&lab->arena);
    cuda_ok(cuGraphExecDestroy(exec));
    cuda_ok(cuGraphDestroy(graph));
}

static void graphs(struct rank *me)
{
    struct lab lab;
    struct gpu gpu;

    gpu_open(&gpu, me->rank, 4 * CAPTURED * span_bytes(me->n));
    lab_open(&lab, me->comm, 2 * CAPTURED * span_bytes(me->n));
    gpu_lab(&gpu, &lab);
    for (uint64_t g = 0; g < 4; g++) {
        struct job warm = job_random(g, ALL_REDUCE, HKT_FLOAT32, 100, me->n);

        gpu_job(&gpu, &lab, &warm, g != 1);
        replay(&gpu, &lab, mix(g * 77 + (uint64_t)me->n));
    }
    lab_close(&lab);
    gpu_close(&gpu);
}

/* Proves: calls captured in a CUDA graph run whenever it does, with the data that is there then, mixed with direct calls. */
START_TEST(graphs_are_replayed)
{
    world_run(&(struct world){.n = 1 + _i % 4, .kind = _i / 4 % 2, .fn = graphs, .environment = {machine[_i / 8][0]}, .deadline = 110});
}
END_TEST

/* ---- several streams and communicators */

enum { STREAMS = 4, LABS = 3, TOGETHER = 5 };

static void random_on(struct rank *me)
{
    const uint64_t rounds = long_tests() ? 2500 : slow_build() ? 20 : 80;
    hkt_comm_t    *comm[LABS] = {me->comm};
    struct gpu     gpu[STREAMS];
    struct lab     lab[LABS];

    expect_ok(hkt_comm_duplicate(&comm[1], me->comm, NULL));
    expect_ok(hkt_comm_split(&comm[2], me->comm, 0, -me->rank, NULL));
    for (int i = 0; i < STREAMS; i++)
        gpu_open(&gpu[i], me->rank, 2 * TOGETHER * span_bytes(me->n));
    for (int i = 0; i < LABS; i++)
        lab_open(&lab[i], comm[i], 2 * TOGETHER * span_bytes(me->n));
    for (uint64_t k = 0; k < rounds; k++) {
        struct running r[TOGETHER];

        for (uint64_t i = 0; i < TOGETHER; i++) {
            const uint64_t random = mix(k * TOGETHER + i + 12345);
            struct lab    *l      = &lab[random % LABS];
            struct gpu    *g      = &gpu[(random >> 8) % STREAMS];
            struct job     j = job_random(random, (enum coll)((random >> 20) % COLLS), (hkt_type_t)((random >> 30) % HKT_TYPES), sizes[random >> 50 & 3], l->n);

            j.memory[SEND] = j.memory[RECV] = PLAIN;
            gpu_lab(g, l);
            job_start(&r[i], l, &j, g->stream);
        }
        for (int i = 0; i < STREAMS; i++)
            gpu_finish(&gpu[i]);
        for (int i = 0; i < TOGETHER; i++)
            job_check(&r[i]);
        for (int i = 0; i < LABS; i++)
            arena_reset(&lab[i].arena);
    }
    for (int i = 0; i < LABS; i++) {
        lab_close(&lab[i]);
        if (i)
            expect_ok(hkt_comm_destroy(comm[i]));
    }
    for (int i = 0; i < STREAMS; i++)
        gpu_close(&gpu[i]);
}

/* Proves: random operations of three communicators on four streams, several in flight, are right. */
START_TEST(random_streams)
{
    world_run(&(struct world){.n = 3, .kind = _i % 2, .fn = random_on, .environment = {machine[_i / 2][0]}, .deadline = long_tests() ? 900 : 110});
}
END_TEST

/* ---- nobody hangs */

/* Rank 0 starts what nobody joins; what lets its stream go differs. */
enum end { ABORT, DEATH, TIMEOUT, ENDS };

static void alone(struct rank *me)
{
    const enum end     end  = *(enum end *)me->arg;
    const double       fake = getenv("TEST_GPU") ? 0 : 8; /* there kernels that wait take the processor that lets them go */
    _Atomic uint32_t  *word = me->shared;
    struct gpu         gpu;
    double             since;
    int                error = 0, rc;

    gpu_open(&gpu, me->rank, 1 << 20);
    for (int i = 0; i < 3; i++) /* all is connected */
        expect_ok(hkt_all_reduce(gpu.memory, gpu.memory + 8192, 1000, HKT_FLOAT32, HKT_SUM, me->comm, gpu.stream));
    expect_ok(hkt_stream_synchronize(gpu.stream));
    rendezvous(me);
    if (me->rank) {
        if (end == DEATH && me->rank == 1)
            _exit(1);
        await(word, 1, 50);
        gpu_close(&gpu);
        return;
    }
    for (int i = 0; i < 3; i++)
        expect_ok(hkt_all_reduce(gpu.memory, gpu.memory + 8192, 1000, HKT_FLOAT32, HKT_SUM, me->comm, gpu.stream));
    since = now();
    if (end == ABORT) {
        pause_ms(50);
        expect_code(hkt_stream_query(gpu.stream), HKT_IN_PROGRESS);
        expect_ok(hkt_comm_abort(me->comm));
        since = now();
    }
    rc = hkt_stream_synchronize(gpu.stream);
    expect(now() - since < (end == TIMEOUT ? 4 : 1) + fake, "the stream was let go after %g s only", now() - since);
    expect_code(rc, end == ABORT ? HKT_ERR_ABORTED : end == DEATH ? HKT_ERR_PEER : HKT_ERR_TIMEOUT);
    expect_ok(hkt_comm_error(me->comm, &error));
    expect_code(error, rc);
    expect_said(end == ABORT ? "rank 0" : "rank 1");
    atomic_store(word, 1);
    gpu_close(&gpu);
}

/* Proves: an abort, the death of a peer and the deadline let a waiting stream go within a second, and the communicator says why. */
START_TEST(streams_are_let_go)
{
    const hkt_config_t config = {sizeof(hkt_config_t), 1, 2.0, HKT_ORDER_CANONICAL, "alone"};
    enum end           end    = _i % ENDS;
    const enum kind    kind   = _i / ENDS % 2 ? THREADS : PROCESSES;

    if (kind == THREADS && end == DEATH)
        return;
    world_run(&(struct world){.n = 3, .kind = kind, .fn = alone, .arg = &end, .config = end == TIMEOUT ? &config : NULL,
                              .may_die = end == DEATH ? 2 : 0, .environment = {machine[_i / ENDS / 2][0]}, .deadline = 60});
}
END_TEST

static void different(struct rank *me)
{
    struct gpu gpu;
    int        rc = 0;

    gpu_open(&gpu, me->rank, 1 << 20);
    expect_ok(hkt_all_reduce(gpu.memory, gpu.memory + 8192, 1000, HKT_FLOAT32, HKT_SUM, me->comm, gpu.stream));
    expect_ok(hkt_stream_synchronize(gpu.stream));
    rc = hkt_all_reduce(gpu.memory, gpu.memory + 8192, me->rank ? 1000 : 999, HKT_FLOAT32, HKT_SUM, me->comm, gpu.stream);
    if (!rc)
        rc = hkt_stream_synchronize(gpu.stream);
    expect_code(rc, HKT_ERR_MISMATCH);
    expect_said("999 float32");
    expect_said("1000 float32");
    rendezvous(me);
    gpu_close(&gpu);
}

/* Proves: ranks that call different things on their streams are told so, by both sides' names. */
START_TEST(different_calls)
{
    world_run(&(struct world){.n = 3, .kind = _i % 2, .fn = different, .environment = {machine[_i / 2][0]}, .deadline = 60});
}
END_TEST

static void memory_on(struct rank *me)
{
    struct gpu gpu;
    void      *a, *b, *handle;
    float      x[1000], y[1000];

    gpu_open(&gpu, me->rank, 4096);
    expect_ok(hkt_mem_alloc_cuda(&a, sizeof(x)));
    expect_ok(hkt_mem_alloc_cuda(&b, sizeof(y)));
    expect_ok(hkt_comm_register(&handle, me->comm, a, sizeof(x)));
    cuda_ok(cuMemcpyAsync((CUdeviceptr)(uintptr_t)x, (CUdeviceptr)(uintptr_t)a, sizeof(x), gpu.queue));
    cuda_ok(cuStreamSynchronize(gpu.queue));
    for (int i = 0; i < 1000; i++) {
        expect(x[i] == 0, "new memory is not zero");
        x[i] = (float)(me->rank + i);
    }
    cuda_ok(cuMemcpyAsync((CUdeviceptr)(uintptr_t)a, (CUdeviceptr)(uintptr_t)x, sizeof(x), gpu.queue));
    expect_ok(hkt_all_reduce(a, b, 1000, HKT_FLOAT32, HKT_SUM, me->comm, gpu.stream));
    cuda_ok(cuMemcpyAsync((CUdeviceptr)(uintptr_t)y, (CUdeviceptr)(uintptr_t)b, sizeof(y), gpu.queue));
    expect_ok(hkt_stream_synchronize(gpu.stream));
    for (int i = 0; i < 1000; i++)
        expect(y[i] == (float)(me->n * i + me->n * (me->n - 1) / 2), "element %d is %g", i, (double)y[i]);
    expect_ok(hkt_comm_deregister(handle, me->comm));
    expect_ok(hkt_mem_free(a));
    expect_ok(hkt_mem_free(b));
    expect_code(hkt_mem_free(gpu.memory), HKT_ERR_ARGUMENT); /* not the library's */
    gpu_close(&gpu);
}

/* Proves: the library's device memory is zero, can be registered, used and freed. */
START_TEST(memory_of_the_gpu)
{
    world_run(&(struct world){.n = 2, .kind = _i % 2, .fn = memory_on, .deadline = 60});
}
END_TEST

static void late(struct rank *me)
{
    struct lab lab;
    struct gpu gpu;

    gpu_open(&gpu, me->rank, 4 * span_bytes(me->n));
    lab_open(&lab, me->comm, span_bytes(me->n));
    gpu_lab(&gpu, &lab);
    for (uint64_t k = 0; k < 20; k++) {
        struct job     j = job_random(mix(k), (enum coll)k % COLLS, HKT_FLOAT32, 500, me->n);
        struct running r;

        if ((int)(k % (uint64_t)me->n) == me->rank)
            pause_ms(60);
        job_start(&r, &lab, &j, gpu.stream);
        expect(k == 0 || slow_build() || gpu.took < 0.05 + world_delay(), "a call on a stream took %g s to return", gpu.took);
        gpu_finish(&gpu);
        job_check(&r);
        arena_reset(&lab.arena);
    }
    lab_close(&lab);
    gpu_close(&gpu);
}

/* Proves: a late rank makes no call on a stream wait, only the streams. */
START_TEST(late_rank)
{
    world_run(&(struct world){.n = 3, .kind = _i % 2, .fn = late, .environment = {machine[_i / 2][0]}, .deadline = 60});
}
END_TEST

/* Entry points that refuse once all is open, of a call through the host. */
static const char *const refusing[] = {"FAKECUDA_FAIL=cuMemcpyAsync:1:1", "FAKECUDA_FAIL=cuLaunchHostFunc:1:999", "FAKECUDA_FAIL=cuStreamWaitValue32:2:999",
                                       "FAKECUDA_FAIL=cuStreamWriteValue32:2:999"};
enum { REFUSING = sizeof(refusing) / sizeof(refusing[0]) };

static void refused(struct rank *me)
{
    struct gpu gpu;
    float     *x;
    int        rc;

    gpu_open(&gpu, me->rank, 1 << 20);
    x = (float *)(void *)gpu.memory;
    hkt_group_begin();
    for (int k = 0; k < 2; k++) {
        expect_ok(hkt_send(x, 100, HKT_FLOAT32, 1 - me->rank, me->comm, gpu.stream));
        expect_ok(hkt_recv(x + 1000, 100, HKT_FLOAT32, 1 - me->rank, me->comm, gpu.stream));
    }
    expect_code(hkt_group_end(), HKT_ERR_SYSTEM);
    expect_said("CUDA");
    expect_code(hkt_all_reduce(x, x, 100, HKT_FLOAT32, HKT_SUM, me->comm, gpu.stream), HKT_ERR_SYSTEM);
    rc = hkt_stream_synchronize(gpu.stream);
    expect(!rc || rc == HKT_ERR_SYSTEM, "synchronize gives %d", rc);
    gpu_close(&gpu);
}

/* Proves: a call that the driver refuses, half put on the stream or not at all, is an error on all ranks; nothing waits for it afterwards. */
START_TEST(driver_refuses)
{
    world_run(&(struct world){.n = 2, .kind = PROCESSES, .fn = refused, .environment = {refusing[_i]}, .deadline = 30});
}
END_TEST

/* The CUDA stream goes first, with a call on it whose peer is late. */
static void wrong_order(struct rank *me)
{
    struct gpu gpu;
    float     *x;

    gpu_open(&gpu, me->rank, 1 << 20);
    x = (float *)(void *)gpu.memory;
    if (me->rank)
        pause_ms(100);
    expect_ok(me->rank ? hkt_send(x, 100, HKT_FLOAT32, 0, me->comm, gpu.stream) : hkt_recv(x, 100, HKT_FLOAT32, 1, me->comm, gpu.stream));
    cuda_ok(cuStreamDestroy(gpu.queue));
    expect_code(hkt_stream_destroy(gpu.stream), HKT_ERR_SYSTEM);
    expect_said("has to outlive");
    rendezvous(me);
}

/* Proves: a CUDA stream that is destroyed under its hkt_stream_t is an error with a sentence, and the calls that are on it still run. */
START_TEST(stream_destroyed_early)
{
    world_run(&(struct world){.n = 2, .kind = _i, .fn = wrong_order, .deadline = 30});
}
END_TEST

static void add(Suite *s)
{
    ADD(s, every_collective_type_operator, 32, 120);
    ADD(s, other_machines, MACHINES - OWN_GPU - 1, 120);
    ADD(s, mixed_memory, 12, 120);
    ADD(s, graphs_are_replayed, 16, 120);
    ADD(s, random_streams, 4, 120);
    ADD(s, streams_are_let_go, 4 * ENDS, 80);
    ADD(s, late_rank, 4, 80);
    ADD(s, different_calls, 4, 80);
    ADD(s, memory_of_the_gpu, 2, 80);
    ADD(s, driver_refuses, REFUSING, 80);
    ADD(s, stream_destroyed_early, KINDS, 80);
}

int main(void)
{
    return run_suite("device", add);
}
