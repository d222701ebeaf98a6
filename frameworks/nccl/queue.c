/* queue.c -- what a CUDA stream is here; the one file that knows.
 *
 * Buffers are memory of the host. Without a CUDA runtime in the process there are no streams: a call has run when it returns, or, on a communicator
 * that does not block, runs in a thread of that communicator. A CUDA runtime whose streams are threads of the host (it says so by exporting the symbol
 * below) takes calls as host functions, so they run in the order of the stream, and into graphs. Any other CUDA runtime runs host functions of all
 * streams in one thread, where they must not wait for each other: there a call waits for what is on the stream and then runs at once.
 */
#include "inside.h"

#include <dlfcn.h>
#include <stdlib.h>

#define STREAMS_ARE_THREADS "hocket_cudart_streams_are_threads"

static struct {
    int (*launch)(cudaStream_t stream, void (*function)(void *), void *arg);
    int (*capturing)(cudaStream_t stream, int *status);
    int (*synchronize)(cudaStream_t stream);
    int (*device)(int *device);
    const char *(*text)(int error);
    bool threads;
} cuda;

static void find_cuda(void)
{
    const struct { const char *name; void *at; } symbols[] = {
        {"cudaLaunchHostFunc", &cuda.launch},         {"cudaStreamIsCapturing", &cuda.capturing}, {"cudaStreamSynchronize", &cuda.synchronize},
        {"cudaGetDevice", &cuda.device},              {"cudaGetErrorString", &cuda.text},
    };

    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
        *(void **)symbols[i].at = dlsym(RTLD_DEFAULT, symbols[i].name);
    cuda.threads = dlsym(RTLD_DEFAULT, STREAMS_ARE_THREADS) && cuda.launch && cuda.capturing;
}

/* Programs may load CUDA after this library; once it is there, it stays. */
static void look(void)
{
    static pthread_mutex_t  lock = PTHREAD_MUTEX_INITIALIZER;
    static _Atomic uint32_t found;

    if (atomic_load_explicit(&found, memory_order_acquire)) /* pairs with the release store below */
        return;
    pthread_mutex_lock(&lock);
    if (!atomic_load(&found)) {
        find_cuda();
        atomic_store_explicit(&found, cuda.synchronize != NULL, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
}

static ncclResult_t cuda_failed(const char *what, int error)
{
    return nccl_fail(ncclUnhandledCudaError, "%s: error %d, %s", what, error, cuda.text ? cuda.text(error) : "of the CUDA runtime");
}

static ncclResult_t own_thread(struct nccl_queue *queue, ncclComm_t comm)
{
    if (!comm->own.at) {
        hkt_stream_t *stream;

        NCCL_TRY(nccl_from(hkt_stream_create(&stream)));
        comm->own = (struct nccl_queue){.kind = NCCL_THREAD, .at = stream};
    }
    *queue = comm->own;
    return ncclSuccess;
}

ncclResult_t nccl_queue_find(struct nccl_queue *queue, ncclComm_t comm, cudaStream_t stream)
{
    const bool special = (uintptr_t)stream < 3; /* NULL, and the two names that the default streams have */
    int        error, status = 0;

    *queue = (struct nccl_queue){.kind = NCCL_NOW};
    look();
    if (!cuda.synchronize)
        return comm->blocking ? ncclSuccess : own_thread(queue, comm);
    if (cuda.threads && !special) {
        error = cuda.capturing(stream, &status);
        if (error)
            return cuda_failed("cudaStreamIsCapturing", error);
        *queue = (struct nccl_queue){.kind = NCCL_HOST_FUNCTION, .at = stream, .capturing = status != 0};
        return ncclSuccess;
    }
    error = cuda.synchronize(stream);
    return error ? cuda_failed("cudaStreamSynchronize", error) : ncclSuccess;
}

struct posted {
    void (*function)(void *);
    void *arg;
};

/* In the thread of a hkt_stream_t. */
static int run_posted(void *arg)
{
    const struct posted p = *(struct posted *)arg;

    free(arg);
    p.function(p.arg);
    return HKT_OK;
}

ncclResult_t nccl_queue_post(const struct nccl_queue *queue, void (*function)(void *), void *arg)
{
    struct posted *p;
    int            error;

    if (queue->kind == NCCL_HOST_FUNCTION) {
        error = cuda.launch(queue->at, function, arg);
        return error ? cuda_failed("cudaLaunchHostFunc", error) : ncclSuccess;
    }
    p = malloc(sizeof(*p));
    if (!p)
        return nccl_fail(ncclSystemError, "out of memory for a call");
    *p    = (struct posted){function, arg};
    error = hkt_stream_call(queue->at, run_posted, p);
    if (error)
        free(p);
    return nccl_from(error);
}

int nccl_current_device(void)
{
    int device = 0;

    look();
    return cuda.device && !cuda.device(&device) ? device : 0;
}
