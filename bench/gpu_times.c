/* gpu_times.c -- times of collectives on GPU memory, for bench/gpu-check: ranks by hkt-run, one CUDA stream each. A row per size: microseconds of a
 * call made directly and of one in a graph, bytes/s, and the share of the floor: n inputs read and n outputs written once, where ranks share a GPU,
 * against what a copy within it reaches in the same run.
 */
#include "hocket.h"

#include "base/clock.h"
#include "device/cuda.h"

#include <stdio.h>
#include <stdlib.h>

enum { REPEATS = 20, IN_GRAPH = 4, WARM = 3 };

static const size_t sizes[] = {8, 1024, 16384, 65536, 1 << 20, 16 << 20, 256 << 20, 1 << 30};

struct bench {
    hkt_comm_t   *comm;
    hkt_stream_t *stream;
    CUstream      queue;
    int           rank, n;
    CUdeviceptr   in, out;
};

static void must(long rc, const char *what)
{
    if (!rc)
        return;
    fprintf(stderr, "gpu_times: %s: %ld: %s\n", what, rc, hkt_last_error());
    exit(1);
}

#define CUDA(call) must((long)hkt_cuda()->call, #call)
#define HKT(call)  must(call, #call)

static void reduce(struct bench *b, size_t bytes)
{
    HKT(hkt_all_reduce((void *)(uintptr_t)b->in, (void *)(uintptr_t)b->out, bytes / 2, HKT_BFLOAT16, HKT_SUM, b->comm, b->stream));
}

static double seconds_since(uint64_t ns)
{
    return (double)(hkt_now_ns() - ns) * 1e-9;
}

/* All ranks are here, and their streams are idle. */
static void together(struct bench *b)
{
    HKT(hkt_stream_synchronize(b->stream));
    HKT(hkt_barrier(b->comm, b->stream));
    HKT(hkt_stream_synchronize(b->stream));
}

static double direct(struct bench *b, size_t bytes, int repeats)
{
    uint64_t began;

    for (int i = 0; i < WARM; i++)
        reduce(b, bytes);
    together(b);
    began = hkt_now_ns();
    for (int i = 0; i < repeats; i++)
        reduce(b, bytes);
    HKT(hkt_stream_synchronize(b->stream));
    return seconds_since(began) / repeats;
}

static double graph(struct bench *b, size_t bytes, int repeats)
{
    CUgraph     graph;
    CUgraphExec exec;
    uint64_t    began;
    double      took;

    CUDA(cuStreamBeginCapture(b->queue, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < IN_GRAPH; i++)
        reduce(b, bytes);
    CUDA(cuStreamEndCapture(b->queue, &graph));
    CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
    together(b);
    CUDA(cuGraphLaunch(exec, b->queue));
    together(b);
    began = hkt_now_ns();
    for (int i = 0; i < repeats; i += IN_GRAPH)
        CUDA(cuGraphLaunch(exec, b->queue));
    CUDA(cuStreamSynchronize(b->queue));
    took = seconds_since(began) / ((repeats + IN_GRAPH - 1) / IN_GRAPH * IN_GRAPH);
    together(b);
    CUDA(cuGraphExecDestroy(exec));
    CUDA(cuGraphDestroy(graph));
    return took;
}

/* Bytes/s of a copy within the GPU, read and written counted both; rank 0 alone. */
static double copy_rate(struct bench *b, size_t bytes)
{
    uint64_t began;

    together(b);
    CUDA(cuMemcpyAsync(b->out, b->in, bytes, b->queue));
    CUDA(cuStreamSynchronize(b->queue));
    began = hkt_now_ns();
    for (int i = 0; i < 4; i++)
        CUDA(cuMemcpyAsync(b->out, b->in, bytes, b->queue));
    CUDA(cuStreamSynchronize(b->queue));
    return 8 * (double)bytes / seconds_since(began);
}

static void open_gpu(struct bench *b)
{
    CUcontext context;
    CUdevice  device;
    int       count;

    must(hkt_cuda() == NULL, hkt_cuda_missing());
    CUDA(cuDeviceGetCount(&count));
    CUDA(cuDeviceGet(&device, b->rank % count));
    CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CUDA(cuCtxSetCurrent(context));
    CUDA(cuStreamCreateWithPriority(&b->queue, CU_STREAM_NON_BLOCKING, 0));
    HKT(hkt_stream_from_cuda(&b->stream, b->queue));
}

int main(int argc, char **argv)
{
    const size_t most = argc > 1 ? strtoull(argv[1], NULL, 0) : sizes[sizeof(sizes) / sizeof(sizes[0]) - 1];
    struct bench b    = {0};
    double       rate;

    HKT(hkt_comm_init_env(&b.comm, NULL));
    HKT(hkt_comm_rank(b.comm, &b.rank));
    HKT(hkt_comm_size(b.comm, &b.n));
    open_gpu(&b);
    CUDA(cuMemAlloc(&b.in, most));
    CUDA(cuMemAlloc(&b.out, most));
    HKT(hkt_barrier(b.comm, b.stream)); /* the GPUs connect */
    rate = copy_rate(&b, most);
    if (b.rank == 0)
        printf("%d ranks, a copy within the GPU reads and writes %.0f GB/s\n%12s %12s %12s %10s %10s\n", b.n, rate * 1e-9, "bytes", "direct us",
               "graph us", "GB/s", "of floor");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] <= most; i++) {
        const int    repeats = sizes[i] < 16 << 20 ? 10 * REPEATS : REPEATS / 2;
        const double d = direct(&b, sizes[i], repeats), g = graph(&b, sizes[i], repeats), bytes = (double)sizes[i];

        if (b.rank == 0)
            printf("%12zu %12.1f %12.1f %10.1f %9.0f%%\n", sizes[i], d * 1e6, g * 1e6, bytes / d * 1e-9, 2 * b.n * bytes / rate / d * 100);
    }
    HKT(hkt_stream_destroy(b.stream));
    CUDA(cuMemFree(b.in));
    CUDA(cuMemFree(b.out));
    HKT(hkt_comm_destroy(b.comm));
    return 0;
}
