/* event.c -- events: a record has a serial number, waiting is for the number of the last record when the wait is submitted.
 *
 * An event recorded in a capture stands for a point of the graph and can only be waited for there; one that is recorded or waited for as
 * external belongs to the world outside also in a capture.
 */
#include "fake.h"

#include <stdlib.h>
#include <time.h>

struct CUevent_st {
    pthread_mutex_t   lock;
    pthread_cond_t    changed;
    uint64_t          recorded, done;
    double            time;
    bool              timing;
    int               references;
    struct fake_clock clock; /* of the capture it was recorded in */
};

void fake_event_keep(CUevent e)
{
    __atomic_add_fetch(&e->references, 1, __ATOMIC_RELAXED);
}

void fake_event_drop(CUevent e)
{
    if (__atomic_sub_fetch(&e->references, 1, __ATOMIC_ACQ_REL)) /* pairs with itself: the last one frees */
        return;
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
    free(e);
}

void fake_event_done(CUevent e, uint64_t serial)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    pthread_mutex_lock(&e->lock);
    if (serial > e->done)
        e->done = serial;
    e->time = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

void fake_event_wait(CUevent e, uint64_t serial)
{
    pthread_mutex_lock(&e->lock);
    while (e->done < serial)
        pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

uint64_t fake_event_next(CUevent e)
{
    uint64_t serial;

    pthread_mutex_lock(&e->lock);
    serial = ++e->recorded;
    pthread_mutex_unlock(&e->lock);
    return serial;
}

uint64_t fake_event_last(CUevent e)
{
    uint64_t serial;

    pthread_mutex_lock(&e->lock);
    serial = e->recorded;
    pthread_mutex_unlock(&e->lock);
    return serial;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    CUevent e;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    e = calloc(1, sizeof(*e));
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    e->timing     = !(flags & CU_EVENT_DISABLE_TIMING);
    e->references = 1;
    fake_count(FAKE_EVENTS, 1);
    *event = e;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    fake_event_drop(event);
    fake_count(FAKE_EVENTS, -1);
    return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream, bool external)
{
    struct fake_operation o = {.kind = FAKE_RECORD, .device = stream->device, .event = event, .external = external};

    if (fake_captured(stream) && !external)
        return fake_capture_record(stream, &event->clock);
    if (external && !fake_captured(stream))
        return CUDA_ERROR_INVALID_VALUE;
    __atomic_store_n(&event->clock.capture, NULL, __ATOMIC_RELAXED); /* pairs with fake_capture_alive() */
    if (!external)
        o.value = fake_event_next(event); /* else each launch of the graph takes one */
    fake_event_keep(event);
    return fake_submit(stream, &o);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    FAKE_TRY(fake_stream_find(&stream, stream));
    return record(event, stream, false);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    FAKE_TRY(fake_stream_find(&stream, stream));
    return record(event, stream, flags & FAKE_EVENT_EXTERNAL);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    struct fake_operation o;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    FAKE_TRY(fake_stream_find(&stream, stream));
    o = (struct fake_operation){.kind = FAKE_WAIT_EVENT, .device = stream->device, .event = event, .external = flags & FAKE_EVENT_EXTERNAL};
    if (fake_capture_alive(&event->clock))
        return o.external ? CUDA_ERROR_INVALID_VALUE : fake_capture_join(stream, &event->clock);
    if (fake_captured(stream) && !o.external)
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    if (!fake_captured(stream) && o.external)
        return CUDA_ERROR_INVALID_VALUE;
    o.value = fake_event_last(event);
    if (!o.value && !o.external)
        return CUDA_SUCCESS; /* never recorded */
    fake_event_keep(event);
    return fake_submit(stream, &o);
}

static CUresult look(const char *name, CUevent event)
{
    FAKE_TRY(fake_enter(name, FAKE_INITIALISED));
    if (fake_capture_alive(&event->clock))
        return (CUresult)FAKE_ERROR_CAPTURED_EVENT;
    return fake_capture_unsafe();
}

CUresult cuEventQuery(CUevent event)
{
    bool busy;

    FAKE_TRY(look(__func__, event));
    pthread_mutex_lock(&event->lock);
    busy = event->done < event->recorded;
    pthread_mutex_unlock(&event->lock);
    return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event)
{
    FAKE_TRY(look(__func__, event));
    fake_event_wait(event, fake_event_last(event));
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    if (!begin->timing || !end->timing || !begin->done || !end->done)
        return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = (float)(end->time - begin->time);
    return CUDA_SUCCESS;
}
