/* stream.c -- a stream is a thread that runs what is submitted, in order; the default streams; waiting for streams.
 *
 * The legacy default stream and the blocking streams of its device wait for each other, as documented: by fences, which are
 * operations that wait for what another stream had been given by then.
 */
#include "fake.h"

#include <stdlib.h>

static pthread_mutex_t    lock = PTHREAD_MUTEX_INITIALIZER;
static CUstream           streams; /* all but the default ones of a device */
static CUstream           legacy[FAKE_DEVICES];
static __thread CUstream  own[FAKE_DEVICES]; /* the thread's */
static unsigned long long last_id;

void fake_stream_keep(CUstream stream)
{
    __atomic_add_fetch(&stream->references, 1, __ATOMIC_RELAXED);
}

void fake_stream_drop(CUstream stream)
{
    if (__atomic_sub_fetch(&stream->references, 1, __ATOMIC_ACQ_REL)) /* pairs with itself: the last one frees */
        return;
    simt_pool_free(&stream->pool);
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->changed);
    free(stream);
}

/* ---- the thread ---------------------------------------------------------------------------------------------------------------------------- */

static void *serve(void *argument)
{
    CUstream s = argument;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        struct fake_operation *operation;

        while (!s->head && !s->ending)
            pthread_cond_wait(&s->changed, &s->lock);
        if (!s->head)
            break;
        operation = s->head;
        pthread_mutex_unlock(&s->lock);
        fake_operation_run(s, operation);
        pthread_mutex_lock(&s->lock);
        s->head = operation->next;
        if (!s->head)
            s->tail = &s->head;
        s->done++;
        pthread_cond_broadcast(&s->changed);
        fake_operation_drop(operation);
        free(operation);
    }
    pthread_mutex_unlock(&s->lock);
    fake_stream_drop(s);
    return NULL;
}

static CUstream new_stream(int device, bool blocking, bool is_legacy)
{
    CUstream       s = calloc(1, sizeof(*s));
    pthread_t      thread;
    pthread_attr_t detached;
    int            error;

    if (!s)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->tail       = &s->head;
    s->device     = device;
    s->blocking   = blocking;
    s->legacy     = is_legacy;
    s->references = 2; /* the handle and the thread */
    s->id         = __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED);
    s->queue      = fake.queues ? (int)(s->id % fake.queues) : -1;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &detached, serve, s);
    pthread_attr_destroy(&detached);
    if (error) {
        free(s);
        return NULL;
    }
    return s;
}

/* ---- which stream is meant ------------------------------------------------------------------------------------------------------------------ */

static void list(CUstream s)
{
    pthread_mutex_lock(&lock);
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&lock);
}

static bool listed(CUstream stream)
{
    CUstream s;

    pthread_mutex_lock(&lock);
    for (s = streams; s && s != stream; s = s->next) {
    }
    pthread_mutex_unlock(&lock);
    return s != NULL;
}

CUresult fake_stream_find(CUstream *stream, CUstream given)
{
    const int device = fake_context()->device;

    if ((uintptr_t)given > 2) {
        *stream = given;
        return listed(given) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    }
    if ((uintptr_t)given == 2) {
        if (!own[device]) {
            own[device] = new_stream(device, true, false);
            if (!own[device])
                return CUDA_ERROR_OUT_OF_MEMORY;
            list(own[device]);
        }
        *stream = own[device];
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&lock);
    if (!legacy[device])
        __atomic_store_n(&legacy[device], new_stream(device, true, true), __ATOMIC_RELEASE); /* pairs with order_with_legacy() */
    *stream = legacy[device];
    pthread_mutex_unlock(&lock);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- submitting ------------------------------------------------------------------------------------------------------------------------------ */

static CUresult push(CUstream s, const struct fake_operation *operation)
{
    struct fake_operation *o = malloc(sizeof(*o));

    if (!o)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *o      = *operation;
    o->next = NULL;
    pthread_mutex_lock(&s->lock);
    o->ticket = fake_queue_ticket(s);
    *s->tail  = o;
    s->tail   = &o->next;
    s->submitted++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return CUDA_SUCCESS;
}

/* s goes on when `on` has done what it was given by now. */
static CUresult fence(CUstream s, CUstream on)
{
    struct fake_operation o = {.kind = FAKE_FENCE, .device = s->device, .on = on};
    bool                  busy;

    pthread_mutex_lock(&on->lock);
    o.value = on->submitted;
    busy    = on->done < on->submitted;
    pthread_mutex_unlock(&on->lock);
    if (!busy)
        return CUDA_SUCCESS;
    fake_stream_keep(on);
    return push(s, &o);
}

struct fences {
    CUstream of;
    CUresult error;
};

static void fence_on(CUstream stream, void *argument)
{
    struct fences *f = argument;

    if (stream->blocking && stream->device == f->of->device && !f->error)
        f->error = fence(f->of, stream);
}

static CUresult order_with_legacy(CUstream s)
{
    const CUstream on = __atomic_load_n(&legacy[s->device], __ATOMIC_ACQUIRE); /* pairs with fake_stream_find() */
    struct fences  f  = {s, CUDA_SUCCESS};

    if (!s->blocking)
        return CUDA_SUCCESS;
    if (s->legacy)
        fake_stream_each(fence_on, &f);
    else if (on)
        f.error = fence(s, on);
    return f.error;
}

CUresult fake_submit(CUstream stream, const struct fake_operation *operation)
{
    struct fake_operation o = *operation;
    CUresult              error;

    if (fake_captured(stream)) {
        error = fake_capture_operation(stream, &o);
    } else {
        error = stream->legacy ? fake_capture_implicit(stream->device) : CUDA_SUCCESS;
        if (!error)
            error = order_with_legacy(stream);
        if (!error)
            error = push(stream, &o);
    }
    if (error)
        fake_operation_drop(&o);
    return error;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------------------------------------- */

CUresult fake_stream_each(void (*visit)(CUstream stream, void *argument), void *argument)
{
    pthread_mutex_lock(&lock);
    for (CUstream s = streams; s; s = s->next)
        visit(s, argument);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

void fake_stream_drain(CUstream s)
{
    unsigned long submitted;

    pthread_mutex_lock(&s->lock);
    submitted = s->submitted;
    while (s->done < submitted)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void fake_context_drain(int device)
{
    enum { MOST = 512 };
    CUstream all[MOST + 1];
    int      n = 0;

    pthread_mutex_lock(&lock);
    for (CUstream s = streams; s && n < MOST; s = s->next)
        if (s->device == device)
            all[n++] = s;
    if (legacy[device])
        all[n++] = legacy[device];
    for (int i = 0; i < n; i++)
        fake_stream_keep(all[i]);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < n; i++) {
        fake_stream_drain(all[i]);
        fake_stream_drop(all[i]);
    }
}

static CUresult sticky(CUstream s)
{
    CUcontext context = fake_context_of(s->device);

    return context ? (CUresult)__atomic_load_n(&context->sticky, __ATOMIC_RELAXED) : CUDA_SUCCESS;
}

/* ---- entry points ------------------------------------------------------------------------------------------------------------------------------- */

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    CUstream s;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    (void)priority;
    if (flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    s = new_stream(fake_context()->device, !(flags & CU_STREAM_NON_BLOCKING), false);
    if (!s)
        return CUDA_ERROR_OUT_OF_MEMORY;
    list(s);
    fake_count(FAKE_STREAMS, 1);
    *stream = s;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

/* Returns at once; what was submitted still runs. */
CUresult cuStreamDestroy(CUstream stream)
{
    bool found = false;

    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    pthread_mutex_lock(&lock);
    for (CUstream *at = &streams; *at; at = &(*at)->next)
        if (*at == stream) {
            found = true;
            *at   = stream->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&stream->lock);
    stream->ending = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    fake_stream_drop(stream);
    fake_count(FAKE_STREAMS, -1);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    FAKE_TRY(fake_stream_find(&stream, stream));
    if (fake_captured(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    FAKE_TRY(fake_capture_unsafe());
    fake_stream_drain(stream);
    return sticky(stream);
}

CUresult cuStreamQuery(CUstream stream)
{
    bool busy;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    FAKE_TRY(fake_stream_find(&stream, stream));
    if (fake_captured(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    FAKE_TRY(fake_capture_unsafe());
    pthread_mutex_lock(&stream->lock);
    busy = stream->done < stream->submitted;
    pthread_mutex_unlock(&stream->lock);
    return busy ? CUDA_ERROR_NOT_READY : sticky(stream);
}

CUresult cuCtxSynchronize(void)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    fake_context_drain(fake_context()->device);
    return (CUresult)__atomic_load_n(&fake_context()->sticky, __ATOMIC_RELAXED);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    FAKE_TRY(fake_stream_find(&stream, stream));
    *context = fake_context_of(stream->device);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice *device)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    FAKE_TRY(fake_stream_find(&stream, stream));
    *device = fake_context_of(stream->device)->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    FAKE_TRY(fake_stream_find(&stream, stream));
    *id = stream->id;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    FAKE_TRY(fake_stream_find(&stream, stream));
    *flags = stream->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
    return CUDA_SUCCESS;
}
