/* cudart.c -- the fake CUDA runtime: a stream is a thread of the host with a list of work, so calls that communicate may wait in it; the NULL stream is
 * the caller's thread, behind everything that is on the streams that do not opt out of that. Devices are numbers.
 *
 * It keeps what programs of NCCL rely on: order within a stream, events between streams, work that is recorded into a graph and runs with it, errors for
 * handles that are none. It does not keep times, devices apart from each other, or anything of the driver's.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_runtime.h"

#define EXPORT __attribute__((visibility("default")))

/* Tells libnccl.so.2 that host functions may wait for each other. */
EXPORT extern const int hocket_cudart_streams_are_threads;
const int               hocket_cudart_streams_are_threads = 1;

/* A piece of work with all it needs. */
struct work {
    struct work *next;
    void (*run)(void *data);
    size_t      size;
    max_align_t data[];
};

struct list {
    struct work *first, **last;
};

struct CUstream_st {
    struct CUstream_st *next; /* of all; under `streams` */
    int                 device, users; /* users: who waits for it; under `streams` */
    bool                non_blocking, stop, capturing;
    pthread_mutex_t     lock;
    pthread_cond_t      changed;
    struct list         list, captured;
    uint64_t            posted, done;
    pthread_t           thread;
};

struct CUevent_st {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    uint64_t        recorded, reached;
    struct timespec at;
};

struct CUgraph_st {
    struct list list;
};

struct CUgraphExec_st {
    struct list list;
};

static pthread_mutex_t     streams = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *all;

EXPORT _Thread_local struct fake_cuda_place fake_cuda_place;

/* ---- streams ---------------------------------------------------------------------------------------------------------- */

static void add(struct list *l, struct work *w)
{
    w->next  = NULL;
    *l->last = w;
    l->last  = &w->next;
}

static void empty(struct list *l)
{
    while (l->first) {
        struct work *w = l->first;

        l->first = w->next;
        free(w);
    }
    l->last = &l->first;
}

static void *serve(void *arg)
{
    struct CUstream_st *s = arg;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        struct work *w = s->list.first;

        if (!w && s->stop)
            break;
        if (!w) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        s->list.first = w->next;
        if (!w->next)
            s->list.last = &s->list.first;
        pthread_mutex_unlock(&s->lock);
        w->run(w->data);
        free(w);
        pthread_mutex_lock(&s->lock);
        s->done++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void drain(struct CUstream_st *s)
{
    pthread_mutex_lock(&s->lock);
    for (const uint64_t until = s->posted; s->done < until;)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* The next stream after `s` of the current device that is to be waited for, held; lets go of `s`. */
static struct CUstream_st *next_to_drain(struct CUstream_st *s, bool non_blocking_too)
{
    struct CUstream_st *n;
    int                 device;

    cudaGetDevice(&device);
    pthread_mutex_lock(&streams);
    for (n = s ? s->next : all; n && (n->device != device || (n->non_blocking && !non_blocking_too)); n = n->next)
        ;
    if (n)
        n->users++;
    if (s)
        s->users--;
    pthread_mutex_unlock(&streams);
    return n;
}

/* Those that the NULL stream waits for, or all. Nothing is locked meanwhile: other threads may have to post what a stream waits for. */
static void drain_all(bool non_blocking_too)
{
    for (struct CUstream_st *s = NULL; (s = next_to_drain(s, non_blocking_too));)
        drain(s);
}

static bool special(cudaStream_t s)
{
    return (uintptr_t)s < 3;
}

static struct CUstream_st *find(cudaStream_t stream)
{
    struct CUstream_st *s;

    pthread_mutex_lock(&streams);
    for (s = all; s && s != stream; s = s->next)
        ;
    pthread_mutex_unlock(&streams);
    return s;
}

/* Puts work on a stream, or into the graph that it records. */
static cudaError_t post(cudaStream_t stream, void (*run)(void *), const void *data, size_t size)
{
    struct CUstream_st *s = special(stream) ? NULL : find(stream);
    struct work        *w;

    if (!s && !special(stream))
        return cudaErrorInvalidResourceHandle;
    w = malloc(sizeof(*w) + size);
    if (!w)
        return cudaErrorMemoryAllocation;
    w->run  = run;
    w->size = size;
    if (size)
        memcpy(w->data, data, size);
    if (!s) {
        drain_all(false);
        run(w->data);
        free(w);
        return cudaSuccess;
    }
    pthread_mutex_lock(&s->lock);
    if (s->capturing)
        add(&s->captured, w);
    else {
        add(&s->list, w);
        s->posted++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    struct CUstream_st *s = calloc(1, sizeof(*s));

    if (!s)
        return cudaErrorMemoryAllocation;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    cudaGetDevice(&s->device);
    s->non_blocking  = flags & cudaStreamNonBlocking;
    s->list.last     = &s->list.first;
    s->captured.last = &s->captured.first;
    if (pthread_create(&s->thread, NULL, serve, s)) {
        free(s);
        return cudaErrorMemoryAllocation;
    }
    pthread_mutex_lock(&streams);
    s->next = all;
    all     = s;
    pthread_mutex_unlock(&streams);
    *stream = s;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    struct CUstream_st *s = NULL;

    for (bool used = true; used;) {
        pthread_mutex_lock(&streams);
        for (struct CUstream_st **at = &all; *at; at = &(*at)->next)
            if (*at == stream) {
                s = *at;
                if (!s->users)
                    *at = s->next;
                break;
            }
        used = s && s->users;
        pthread_mutex_unlock(&streams);
        if (used)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    if (!s)
        return cudaErrorInvalidResourceHandle;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    empty(&s->captured);
    free(s);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    struct CUstream_st *s = special(stream) ? NULL : find(stream);

    if (special(stream))
        drain_all(false);
    else if (!s)
        return cudaErrorInvalidResourceHandle;
    else
        drain(s);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    struct CUstream_st *s = special(stream) ? NULL : find(stream);
    bool                idle;

    if (special(stream))
        return cudaSuccess;
    if (!s)
        return cudaErrorInvalidResourceHandle;
    pthread_mutex_lock(&s->lock);
    idle = s->done == s->posted;
    pthread_mutex_unlock(&s->lock);
    return idle ? cudaSuccess : cudaErrorNotReady;
}

EXPORT cudaError_t cudaDeviceSynchronize(void)
{
    drain_all(true);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceReset(void)
{
    return cudaDeviceSynchronize();
}

/* ---- work -------------------------------------------------------------------------------------------------------------- */

struct host_function {
    cudaHostFn_t function;
    void        *arg;
};

static void run_host_function(void *data)
{
    const struct host_function *h = data;

    h->function(h->arg);
}

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *arg)
{
    return post(stream, run_host_function, &(struct host_function){function, arg}, sizeof(struct host_function));
}

struct copy {
    void       *to;
    const void *from;
    size_t      size;
};

static void run_copy(void *data)
{
    const struct copy *c = data;

    memmove(c->to, c->from, c->size);
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    return post(stream, run_copy, &(struct copy){to, from, size}, sizeof(struct copy));
}

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(to, from, size, kind, NULL);
}

EXPORT cudaError_t cudaMemset(void *ptr, int value, size_t size)
{
    drain_all(false);
    memset(ptr, value, size);
    return cudaSuccess;
}

struct launch {
    const struct fake_cuda_kernel *kernel;
    dim3                           grid, block;
    max_align_t                    args[];
};

static uint3 place_of(unsigned i, dim3 size)
{
    return (uint3){i % size.x, i / size.x % size.y, i / size.x / size.y};
}

static void run_kernel(void *data)
{
    const struct launch *l = data;
    const dim3           g = l->grid, b = l->block;

    fake_cuda_place.blocks  = (uint3){g.x, g.y, g.z};
    fake_cuda_place.threads = (uint3){b.x, b.y, b.z};
    for (unsigned i = 0; i < g.x * g.y * g.z; i++)
        for (unsigned j = 0; j < b.x * b.y * b.z; j++) {
            fake_cuda_place.block  = place_of(i, g);
            fake_cuda_place.thread = place_of(j, b);
            l->kernel->run(l->kernel, l->args);
        }
}

/* A callback of the program's, in CUDA's form. */
EXPORT cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream)
{
    const struct fake_cuda_kernel *k = kernel;
    struct launch                 *l = malloc(sizeof(*l) + k->size);
    cudaError_t                    rc;

    (void)shared;
    if (!l)
        return cudaErrorMemoryAllocation;
    l->kernel = k;
    l->grid   = grid;
    l->block  = block;
    k->copy(l->args, args);
    rc = post(stream, run_kernel, l, sizeof(*l) + k->size);
    free(l);
    return rc;
}

/* ---- events ------------------------------------------------------------------------------------------------------------ */

struct record {
    cudaEvent_t event;
    uint64_t    number;
};

static void run_record(void *data)
{
    const struct record *r = data;

    pthread_mutex_lock(&r->event->lock);
    clock_gettime(CLOCK_MONOTONIC, &r->event->at);
    r->event->reached = r->number;
    pthread_cond_broadcast(&r->event->changed);
    pthread_mutex_unlock(&r->event->lock);
}

static void wait_for(cudaEvent_t e, uint64_t number)
{
    pthread_mutex_lock(&e->lock);
    while (e->reached < number)
        pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

static void run_wait(void *data)
{
    const struct record *r = data;

    wait_for(r->event, r->number);
}

static uint64_t number_of(cudaEvent_t e, bool next)
{
    uint64_t number;

    pthread_mutex_lock(&e->lock);
    e->recorded += next;
    number = e->recorded;
    pthread_mutex_unlock(&e->lock);
    return number;
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    cudaEvent_t e = calloc(1, sizeof(*e));

    if (!e)
        return cudaErrorMemoryAllocation;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    *event = e;
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    wait_for(event, number_of(event, false));
    free(event);
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return post(stream, run_record, &(struct record){event, number_of(event, true)}, sizeof(struct record));
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    return post(stream, run_wait, &(struct record){event, number_of(event, false)}, sizeof(struct record));
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    wait_for(event, number_of(event, false));
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t event)
{
    bool reached;

    pthread_mutex_lock(&event->lock);
    reached = event->reached == event->recorded;
    pthread_mutex_unlock(&event->lock);
    return reached ? cudaSuccess : cudaErrorNotReady;
}

EXPORT cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    cudaEventSynchronize(from);
    cudaEventSynchronize(to);
    *ms = (float)((double)(to->at.tv_sec - from->at.tv_sec) * 1e3 + (double)(to->at.tv_nsec - from->at.tv_nsec) / 1e6);
    return cudaSuccess;
}

/* ---- graphs: what was captured, in its order ---------------------------------------------------------------------------- */

static bool copy_list(struct list *to, const struct list *from)
{
    *to = (struct list){NULL, &to->first};
    for (const struct work *w = from->first; w; w = w->next) {
        struct work *copy = malloc(sizeof(*copy) + w->size);

        if (!copy) {
            empty(to);
            return false;
        }
        memcpy(copy, w, sizeof(*w) + w->size);
        add(to, copy);
    }
    return true;
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    struct CUstream_st *s = special(stream) ? NULL : find(stream);
    bool                before;

    (void)mode;
    if (!s)
        return cudaErrorStreamCaptureUnsupported;
    pthread_mutex_lock(&s->lock);
    before       = s->capturing;
    s->capturing = true;
    pthread_mutex_unlock(&s->lock);
    return before ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    struct CUstream_st *s = special(stream) ? NULL : find(stream);

    *status = cudaStreamCaptureStatusNone;
    if (!s)
        return special(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
    pthread_mutex_lock(&s->lock);
    if (s->capturing)
        *status = cudaStreamCaptureStatusActive;
    pthread_mutex_unlock(&s->lock);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    struct CUstream_st *s = special(stream) ? NULL : find(stream);
    cudaGraph_t         g;
    bool                ok;

    if (!s || !s->capturing)
        return cudaErrorStreamCaptureUnsupported;
    g = malloc(sizeof(*g));
    if (!g)
        return cudaErrorMemoryAllocation;
    pthread_mutex_lock(&s->lock);
    ok = copy_list(&g->list, &s->captured);
    empty(&s->captured);
    s->capturing = false;
    pthread_mutex_unlock(&s->lock);
    *graph = g;
    return ok ? cudaSuccess : cudaErrorMemoryAllocation;
}

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    cudaGraphExec_t e = malloc(sizeof(*e));

    (void)flags;
    if (!e || !copy_list(&e->list, &graph->list)) {
        free(e);
        return cudaErrorMemoryAllocation;
    }
    *exec = e;
    return cudaSuccess;
}

/* Each launch puts all its work on the stream. */
EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t rc = cudaSuccess;

    for (const struct work *w = exec->list.first; w && !rc; w = w->next)
        rc = post(stream, w->run, w->data, w->size);
    return rc;
}

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    empty(&exec->list);
    free(exec);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    empty(&graph->list);
    free(graph);
    return cudaSuccess;
}
