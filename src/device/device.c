/* device.c -- the host and the CUDA device as `struct hkt_device`. See device.h.
 *
 * Copies that a call waits for run on one stream per context, made at first need and kept: an ordinary (blocking) stream, so that they come after
 * what the program has put on the default stream, as a program would expect of a call without a stream.
 */
#include "device/device.h"

#include "base/error.h"
#include "base/memory.h"

#include <pthread.h>
#include <string.h>

/* ---- host -------------------------------------------------------------------------------------------------------- */

static int host_queue(struct hkt_queue *queue, const void *ptr)
{
    (void)ptr;
    *queue = (struct hkt_queue){.device = &hkt_device_host};
    return 0;
}

static int host_copy(const struct hkt_queue *queue, void *to, const void *from, size_t bytes)
{
    (void)queue;
    memcpy(to, from, bytes);
    return 0;
}

static int host_finish(const struct hkt_queue *queue)
{
    (void)queue;
    return 0;
}

static int host_allocate(void **ptr, size_t bytes)
{
    *ptr = hkt_alloc(bytes);
    return *ptr ? 0 : HKT_ERR_MEMORY;
}

static int host_release(void *ptr)
{
    hkt_free(ptr);
    return 0;
}

static int host_pin(void *ptr, size_t bytes)
{
    (void)ptr, (void)bytes;
    return 0;
}

static void host_unpin(void *ptr)
{
    (void)ptr;
}

const struct hkt_device hkt_device_host = {
    .name     = "host",
    .queue    = host_queue,
    .copy     = host_copy,
    .finish   = host_finish,
    .allocate = host_allocate,
    .release  = host_release,
    .pin      = host_pin,
    .unpin    = host_unpin,
};

/* ---- CUDA -------------------------------------------------------------------------------------------------------- */

struct waited {
    struct waited *next;
    CUcontext      context;
    CUstream       stream;
};

static struct waited  *streams; /* one per context; they end with the process */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool hkt_cuda_owns(const void *ptr)
{
    unsigned kind = 0;

    return !hkt_cuda_here()->cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)ptr) &&
           kind == CU_MEMORYTYPE_DEVICE;
}

int hkt_cuda_enter(CUcontext context)
{
    if (!context)
        HKT_CUDA_TRY(cuCtxGetCurrent(&context));
    if (!context) /* this thread has none: that of the first device */
        HKT_CUDA_TRY(cuDevicePrimaryCtxRetain(&context, 0));
    HKT_CUDA_TRY(cuCtxPushCurrent(context));
    return 0;
}

void hkt_cuda_leave(void)
{
    CUcontext before;

    hkt_cuda()->cuCtxPopCurrent(&before);
}

CUcontext hkt_cuda_context_of(const void *ptr)
{
    CUcontext context = NULL;
    int       ordinal = 0;

    /* Memory that was mapped by the VMM calls belongs to a device and to no context. */
    if (!hkt_cuda()->cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)(uintptr_t)ptr) && context)
        return context;
    if (hkt_cuda()->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)(uintptr_t)ptr) ||
        hkt_cuda()->cuDevicePrimaryCtxRetain(&context, ordinal)) {
        hkt_fail(HKT_ERR_SYSTEM, "CUDA: %p belongs to no device that can be used", ptr);
        return NULL;
    }
    return context;
}

CUcontext hkt_cuda_context_of_stream(CUstream stream)
{
    CUcontext context = NULL;
    CUresult  error   = (uintptr_t)stream <= 2 ? hkt_cuda()->cuCtxGetCurrent(&context) : hkt_cuda()->cuStreamGetCtx(stream, &context);

    if (error || !context) {
        hkt_fail(HKT_ERR_ARGUMENT, "CUDA: stream %p belongs to no context%s", (void *)stream,
                 (uintptr_t)stream <= 2 ? "; the default stream is that of the calling thread's current device, and none is current" : "");
        return NULL;
    }
    return context;
}

static int stream_of(CUcontext context, CUstream *stream)
{
    struct waited *w;
    int            rc = 0;

    pthread_mutex_lock(&lock);
    for (w = streams; w && w->context != context; w = w->next)
        ;
    if (!w) {
        w  = hkt_alloc(sizeof(*w));
        rc = w ? hkt_cuda_enter(context) : HKT_ERR_MEMORY;
        if (!rc) {
            const CUresult error = hkt_cuda()->cuStreamCreateWithPriority(&w->stream, CU_STREAM_DEFAULT, 0);

            rc = error ? hkt_cuda_fail(error, "a stream for copies") : 0;
            hkt_cuda_leave();
        }
        if (rc)
            hkt_free(w);
        else {
            w->context = context;
            w->next    = streams;
            streams    = w;
        }
    }
    if (!rc)
        *stream = w->stream;
    pthread_mutex_unlock(&lock);
    return rc;
}

static int cuda_queue(struct hkt_queue *queue, const void *ptr)
{
    const CUstreamCaptureMode before  = hkt_cuda_relax();
    CUcontext                 context = hkt_cuda_context_of(ptr);
    CUstream                  stream  = NULL;
    const int                 rc      = context ? stream_of(context, &stream) : HKT_ERR_SYSTEM;

    hkt_cuda_restore(before);
    if (!rc)
        *queue = (struct hkt_queue){.device = &hkt_device_cuda, .stream = stream, .context = context};
    return rc;
}

static int cuda_copy(const struct hkt_queue *queue, void *to, const void *from, size_t bytes)
{
    CUresult error;

    HKT_TRY(hkt_cuda_enter(queue->context));
    error = hkt_cuda()->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, bytes, queue->stream);
    hkt_cuda_leave();
    return error ? hkt_cuda_fail(error, "a copy between host and device") : 0;
}

static int cuda_finish(const struct hkt_queue *queue)
{
    CUstreamCaptureMode before;
    CUresult            error;

    HKT_TRY(hkt_cuda_enter(queue->context));
    before = hkt_cuda_relax();
    error  = hkt_cuda()->cuStreamSynchronize(queue->stream);
    hkt_cuda_restore(before);
    hkt_cuda_leave();
    return error ? hkt_cuda_fail(error, "waiting for a copy") : 0;
}

static int cuda_pin(void *ptr, size_t bytes)
{
    const CUstreamCaptureMode before = hkt_cuda_relax();
    CUresult                  error;

    HKT_TRY(hkt_cuda_enter(NULL));
    error = hkt_cuda()->cuMemHostRegister(ptr, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    hkt_cuda_leave();
    hkt_cuda_restore(before);
    return error ? hkt_cuda_fail(error, "pinning memory of the host") : 0;
}

static void cuda_unpin(void *ptr)
{
    if (hkt_cuda_enter(NULL))
        return;
    hkt_cuda()->cuMemHostUnregister(ptr);
    hkt_cuda_leave();
}

static int cuda_release(void *ptr)
{
    CUcontext context = hkt_cuda_context_of(ptr);
    CUresult  error;

    if (!context)
        return HKT_ERR_SYSTEM;
    HKT_TRY(hkt_cuda_enter(context));
    error = hkt_cuda()->cuMemFree((CUdeviceptr)(uintptr_t)ptr);
    hkt_cuda_leave();
    return error ? hkt_cuda_fail(error, "freeing device memory") : 0;
}

static CUresult zero(CUdeviceptr at, size_t bytes)
{
    struct hkt_queue queue;
    CUresult         error = CUDA_ERROR_UNKNOWN;

    if (cuda_queue(&queue, (void *)(uintptr_t)at) || hkt_cuda_enter(queue.context))
        return error;
    error = hkt_cuda()->cuMemsetD8Async(at, 0, bytes, queue.stream);
    hkt_cuda_leave();
    return error ? error : cuda_finish(&queue) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static int cuda_allocate(void **ptr, size_t bytes)
{
    CUdeviceptr made = 0;
    CUresult    error;

    HKT_TRY(hkt_cuda_enter(NULL));
    error = hkt_cuda()->cuMemAlloc(&made, bytes);
    hkt_cuda_leave();
    if (error)
        return hkt_cuda_fail(error, "allocating device memory");
    error = zero(made, bytes);
    if (error) {
        cuda_release((void *)(uintptr_t)made);
        return hkt_cuda_fail(error, "clearing device memory");
    }
    *ptr = (void *)(uintptr_t)made;
    return 0;
}

const struct hkt_device hkt_device_cuda = {
    .name     = "cuda",
    .queue    = cuda_queue,
    .copy     = cuda_copy,
    .finish   = cuda_finish,
    .allocate = cuda_allocate,
    .release  = cuda_release,
    .pin      = cuda_pin,
    .unpin    = cuda_unpin,
};
