/* queue.c -- what a CUDA stream is here; the one file that knows.
 *
 * Without CUDA in the process there are no streams: a call has run when it returns, or, on a communicator that does not block, runs in a thread of that
 * communicator. A CUDA runtime whose streams are threads of the host (it says so by exporting the symbol below) takes calls as host functions, so they
 * run in the order of the stream, and into graphs. With a CUDA driver streams are Hocket's (hkt_stream_from_cuda()); where Hocket has none, a call waits
 * for what is on the stream and then runs at once.
 */
#include "inside.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS_ARE_THREADS "hocket_cudart_streams_are_threads"

/* Missing from libraries that were built without it. */
extern int hkt_stream_from_cuda(hkt_stream_t **stream, void *cuda_stream) __attribute__((weak));
extern int hkt_mem_alloc_cuda(void **ptr, size_t size) __attribute__((weak));

static struct {
    /* a runtime whose streams are threads */
    int (*launch)(cudaStream_t stream, void (*function)(void *), void *arg);
    int (*capturing)(cudaStream_t stream, int *status);
    int (*synchronize)(cudaStream_t stream);
    int (*device)(int *device);
    bool threads;
    /* the driver */
    int (*driver_synchronize)(cudaStream_t stream);
    int (*driver_device)(int *device);
    int (*driver_init)(unsigned flags);
    int (*driver_devices)(int *count);
    int (*driver_context)(void **context, int device);
    int (*driver_push)(void *context);
    int (*driver_pop)(void **context);
    int (*copy)(uintptr_t to, uintptr_t from, size_t size);
    int (*allocate)(uintptr_t *ptr, size_t size);
    int (*release)(uintptr_t ptr);
    bool driver;
    int  devices;
} cuda;

/* Looks a function up by its name. */
typedef void *find_fn(const char *name);

static void *of_program(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

enum { DRIVER_VERSION = 12000 }; /* whose forms the prototypes above have */

static void *of_driver(const char *name)
{
    void *library  = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); /* the program's, never ours */
    void *function = NULL;
    int (*get)(const char *name, void **function, int version, uint64_t flags, void *status);

    *(void **)&get = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    return get && !get(name, &function, DRIVER_VERSION, 0, NULL) ? function : NULL;
}

struct symbol {
    const char *name;
    void       *at;
};

/* All of them, or none counts. */
static bool find_symbols(find_fn *find, const struct symbol *symbol, size_t n)
{
    bool all = true;

    for (size_t i = 0; i < n; i++) {
        *(void **)symbol[i].at = find(symbol[i].name);
        all &= *(void **)symbol[i].at != NULL;
    }
    return all;
}

/* A driver without a device is none: what calls get is memory of the host. */
static bool has_devices(void)
{
    return !cuda.driver_init(0) && !cuda.driver_devices(&cuda.devices) && cuda.devices;
}

static void find_cuda(void)
{
    const struct symbol runtime[] = {{"cudaLaunchHostFunc", &cuda.launch},
                                     {"cudaStreamIsCapturing", &cuda.capturing},
                                     {"cudaStreamSynchronize", &cuda.synchronize},
                                     {"cudaGetDevice", &cuda.device}};
    const struct symbol driver[]  = {{"cuStreamSynchronize", &cuda.driver_synchronize},
                                     {"cuCtxGetDevice", &cuda.driver_device},
                                     {"cuInit", &cuda.driver_init},
                                     {"cuDeviceGetCount", &cuda.driver_devices},
                                     {"cuDevicePrimaryCtxRetain", &cuda.driver_context},
                                     {"cuCtxPushCurrent", &cuda.driver_push},
                                     {"cuCtxPopCurrent", &cuda.driver_pop},
                                     {"cuMemcpy", &cuda.copy},
                                     {"cuMemAlloc", &cuda.allocate},
                                     {"cuMemFree", &cuda.release}};

    cuda.threads = dlsym(RTLD_DEFAULT, STREAMS_ARE_THREADS) && find_symbols(of_program, runtime, sizeof(runtime) / sizeof(runtime[0]));
    cuda.driver  = !cuda.threads && find_symbols(of_driver, driver, sizeof(driver) / sizeof(driver[0])) &&
                   has_devices();
}

/* When a communicator is made: by then a program that uses CUDA has it. Once it is there, it stays. */
static _Atomic uint32_t found;

static void look(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    if (atomic_load_explicit(&found, memory_order_acquire)) /* pairs with the release store below */
        return;
    pthread_mutex_lock(&lock);
    if (!atomic_load(&found)) {
        find_cuda();
        atomic_store_explicit(&found, cuda.threads || cuda.driver, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
}

static bool has_cuda(void)
{
    return __builtin_expect(atomic_load_explicit(&found, memory_order_acquire), 0); /* pairs with the release store in look() */
}

static ncclResult_t cuda_failed(const char *what, int error)
{
    return nccl_fail(ncclUnhandledCudaError, "%s gives CUDA error %d", what, error);
}

/* ---- streams ---------------------------------------------------------------------------------------------------------- */

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

/* NULL, and the two names that the default streams have, which belong to a device. */
static bool special(cudaStream_t stream)
{
    return (uintptr_t)stream < 3;
}

/* Hocket's streams for those of CUDA, kept for good: graphs may have calls on them. */
struct known {
    struct known *next;
    cudaStream_t  cuda;
    int           device; /* of a special one */
    hkt_stream_t *stream;
    hkt_event_t  *event;
};

static ncclResult_t add_known(struct known **list, cudaStream_t stream, int device)
{
    struct known *k = malloc(sizeof(*k));
    ncclResult_t  rc;

    if (!k)
        return nccl_fail(ncclSystemError, "out of memory for a stream");
    *k = (struct known){*list, stream, device, NULL, NULL};
    rc = nccl_from(hkt_event_create(&k->event));
    if (rc == ncclSuccess)
        rc = nccl_from(hkt_stream_from_cuda(&k->stream, stream));
    if (rc == ncclSuccess) {
        *list = k;
        return rc;
    }
    hkt_event_destroy(k->event);
    free(k);
    return rc;
}

/* Whose default stream is meant, whatever device is current: the communicator's, as with NCCL. */
static int device_of(ncclComm_t comm)
{
    return comm->device < cuda.devices ? comm->device : nccl_current_device();
}

/* Makes a device current that is not; true: it has to be popped again. */
static bool push_device(int device)
{
    void *context;
    int   current;

    if (!cuda.driver_device(&current) && current == device)
        return false;
    return !cuda.driver_context(&context, device) && !cuda.driver_push(context);
}

static ncclResult_t device_stream(struct nccl_queue *queue, ncclComm_t comm, cudaStream_t stream)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct known   *all;
    struct known          *k;
    ncclResult_t           rc     = ncclSuccess;
    const int              device = special(stream) ? device_of(comm) : 0;

    pthread_mutex_lock(&lock);
    for (k = all; k && (k->cuda != stream || k->device != device); k = k->next)
        ;
    if (!k) {
        const bool pushed = special(stream) && push_device(device);
        void      *context;

        rc = add_known(&all, stream, device);
        k  = all;
        if (pushed)
            cuda.driver_pop(&context);
    }
    pthread_mutex_unlock(&lock);
    if (rc == ncclSuccess)
        *queue = (struct nccl_queue){.kind = NCCL_DEVICE, .at = k->stream, .event = k->event};
    return rc;
}

ncclResult_t nccl_queue_find(struct nccl_queue *queue, ncclComm_t comm, cudaStream_t stream)
{
    int error, status = 0;

    *queue = (struct nccl_queue){.kind = NCCL_NOW};
    if (!has_cuda())
        return comm->blocking ? ncclSuccess : own_thread(queue, comm);
    if (cuda.driver && hkt_stream_from_cuda)
        return device_stream(queue, comm, stream);
    if (cuda.threads && !special(stream)) {
        error = cuda.capturing(stream, &status);
        if (error)
            return cuda_failed("cudaStreamIsCapturing", error);
        *queue = (struct nccl_queue){.kind = NCCL_HOST_FUNCTION, .at = stream, .capturing = status != 0};
        return ncclSuccess;
    }
    error = cuda.threads ? cuda.synchronize(stream) : cuda.driver_synchronize(stream);
    return error ? cuda_failed("waiting for the stream", error) : ncclSuccess;
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

/* ---- devices and their memory ------------------------------------------------------------------------------------------- */

int nccl_current_device(void)
{
    int device = 0;

    look();
    if (!has_cuda() || (cuda.threads ? cuda.device(&device) : cuda.driver_device(&device)))
        return 0;
    return device;
}

/* Of a driver only: elsewhere memory is the host's. */
ncclResult_t nccl_read_scalar(void *to, const void *from, size_t size, cudaStream_t stream)
{
    int error;

    if (!has_cuda() || !cuda.driver) {
        memcpy(to, from, size);
        return ncclSuccess;
    }
    error = cuda.driver_synchronize(stream);
    if (!error)
        error = cuda.copy((uintptr_t)to, (uintptr_t)from, size);
    return error ? cuda_failed("reading the scalar of an operator", error) : ncclSuccess;
}

ncclResult_t nccl_alloc(void **ptr, size_t size)
{
    uintptr_t at;
    int       error;

    look();
    if (!has_cuda() || !cuda.driver)
        return nccl_from(hkt_mem_alloc(ptr, size));
    if (hkt_mem_alloc_cuda)
        return nccl_from(hkt_mem_alloc_cuda(ptr, size));
    error = cuda.allocate(&at, size ? size : 1);
    if (error)
        return cuda_failed("cuMemAlloc", error);
    *ptr = (void *)at;
    return ncclSuccess;
}

ncclResult_t nccl_free(void *ptr)
{
    const bool of_driver = has_cuda() && cuda.driver && !hkt_mem_alloc_cuda;
    const int  error     = of_driver && ptr ? cuda.release((uintptr_t)ptr) : 0;

    if (!of_driver)
        return nccl_from(hkt_mem_free(ptr));
    return error ? cuda_failed("cuMemFree", error) : ncclSuccess;
}
