/* gpu.c -- see gpu.h. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void gpu_driver(void)
{
    const char *file = getenv("FAKECUDA_LIBRARY");

    if (getenv("TEST_GPU"))
        return;
    if (!file)
        file = "tests/fakecuda/.libs/libcuda.so.1";
    expect(dlopen(file, RTLD_NOW | RTLD_GLOBAL), "the fake driver does not load: %s", dlerror()); /* the library finds it by its soname */
}

void gpu_open(struct gpu *g, int ordinal, size_t bytes)
{
    CUdevice    device;
    CUdeviceptr memory;
    int         n = 0;

    memset(g, 0, sizeof(*g));
    gpu_driver();
    g->cuda = hkt_cuda();
    expect(g->cuda != NULL, "no CUDA driver: %s", hkt_cuda_missing());
    cuda_ok(cuDeviceGetCount(&n));
    cuda_ok(cuDeviceGet(&device, ordinal % n));
    cuda_ok(cuDevicePrimaryCtxRetain(&g->context, device));
    cuda_ok(cuCtxSetCurrent(g->context));
    cuda_ok(cuStreamCreateWithPriority(&g->queue, CU_STREAM_NON_BLOCKING, 0));
    cuda_ok(cuMemAlloc(&memory, bytes));
    g->memory = (char *)(uintptr_t)memory;
    g->size   = bytes;
    expect_ok(hkt_stream_from_cuda(&g->stream, g->queue));
}

void gpu_close(struct gpu *g)
{
    expect_ok(hkt_stream_destroy(g->stream));
    cuda_ok(cuStreamDestroy(g->queue));
    cuda_ok(cuMemFree((CUdeviceptr)(uintptr_t)g->memory));
}

/* What stands for a span on the device. */
struct twin {
    const struct span *span;
    char              *device; /* of the span's first canary byte; NULL: the span stays where it is */
};

static size_t whole(const struct span *s)
{
    return s->below + s->size + s->above;
}

static struct twin twin_of(struct gpu *g, const struct running *r, enum side side)
{
    const struct span *s  = &r->span[side];
    struct twin        t  = {s, NULL};
    const size_t       at = (g->used + 4095) / 4096 * 4096 + (size_t)((uintptr_t)(s->at - s->below) % 64);

    if (!s->at || (g->placement == MIXED && mix(r->job.seed ^ (uint64_t)(r->lab->rank * 2 + (int)side)) & 1))
        return t;
    expect(at + whole(s) <= g->size, "the GPU's memory is too small for %zu bytes", whole(s));
    t.device = g->memory + at;
    g->used  = at + whole(s);
    return t;
}

static void copy(struct gpu *g, const struct twin *t, bool in)
{
    const CUdeviceptr host = (CUdeviceptr)(uintptr_t)(t->span->at - t->span->below), device = (CUdeviceptr)(uintptr_t)t->device;

    if (t->device)
        cuda_ok(cuMemcpyAsync(in ? device : host, in ? host : device, whole(t->span), g->queue));
}

static char *place(const struct running *r, const struct twin twin[SIDES], enum side side)
{
    char *at = r->at[side];

    for (int s = 0; s < SIDES; s++)
        if (at && twin[s].device && at >= twin[s].span->at && at <= twin[s].span->at + twin[s].span->size)
            return twin[s].device + (at - (twin[s].span->at - twin[s].span->below));
    return at;
}

static int call(const struct running *r, hkt_stream_t *stream)
{
    struct gpu *g           = r->lab->call_arg;
    struct twin twin[SIDES] = {twin_of(g, r, SEND), twin_of(g, r, RECV)};
    double      since;
    int         rc;

    for (int s = 0; s < SIDES; s++)
        copy(g, &twin[s], true);
    if (!stream)
        cuda_ok(cuStreamSynchronize(g->queue));
    since   = now();
    rc      = job_call(r, place(r, twin, SEND), place(r, twin, RECV), stream);
    g->took = now() - since;
    for (int s = 0; s < SIDES; s++)
        copy(g, &twin[s], false);
    return rc;
}

void gpu_lab(struct gpu *g, struct lab *lab)
{
    lab->call     = call;
    lab->call_arg = g;
}

void gpu_finish(struct gpu *g)
{
    expect_ok(hkt_stream_synchronize(g->stream));
    g->used = 0;
}

void gpu_job(struct gpu *g, struct lab *lab, const struct job *job, bool stream)
{
    struct running r;

    job_start(&r, lab, job, stream ? g->stream : NULL);
    gpu_finish(g);
    job_check(&r);
    arena_reset(&lab->arena);
}
