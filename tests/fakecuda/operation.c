/* operation.c -- what streams do one by one: copies, memsets, waiting for a word and writing one, calling the host.
 *
 * Copies of plain host memory behave as documented: what is copied from is taken before the call returns, what is copied to is there
 * when it returns. Memory operations reach only aligned words of memory that the device can see.
 */
#include "fake.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 256 };

/* ---- owners of what an operation refers to ---------------------------------------------------------------------------------------------------- */

void fake_operation_keep(struct fake_operation *o)
{
    if (o->launch)
        fake_launch_keep(o->launch);
    if (o->event)
        fake_event_keep(o->event);
    if (o->on)
        fake_stream_keep(o->on);
}

void fake_operation_drop(struct fake_operation *o)
{
    if (o->launch)
        fake_launch_drop(o->launch);
    if (o->event)
        fake_event_drop(o->event);
    if (o->on)
        fake_stream_drop(o->on);
    free(o->staged);
}

/* ---- running ------------------------------------------------------------------------------------------------------------------------------------- */

static uint64_t read_word(const struct fake_operation *o)
{
    const void *p = fake_pointer(o->to);

    return o->bytes == 4 ? __atomic_load_n((const uint32_t *)p, __ATOMIC_ACQUIRE) : __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE);
}

static bool satisfied(const struct fake_operation *o)
{
    const uint64_t v = read_word(o), ones = o->bytes == 4 ? UINT32_MAX : UINT64_MAX;

    switch (o->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return o->bytes == 4 ? (int32_t)(uint32_t)(v - o->value) >= 0 : (int64_t)(v - o->value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return v == o->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (v & o->value) != 0;
    default:
        return (~(v | o->value) & ones) != 0;
    }
}

static void wait_for_word(const struct fake_operation *o)
{
    for (unsigned n = 0; !satisfied(o); n++) {
        if (n < 64)
            sched_yield();
        else
            usleep(n < 2000 ? 20 : 200);
    }
}

static void write_word(const struct fake_operation *o)
{
    if (o->bytes == 4)
        __atomic_store_n((uint32_t *)fake_pointer(o->to), (uint32_t)o->value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint64_t *)fake_pointer(o->to), o->value, __ATOMIC_RELEASE);
}

static void set(const struct fake_operation *o)
{
    char *p = fake_pointer(o->to);

    for (size_t i = 0; i < o->bytes; i += o->width)
        memcpy(p + i, &o->value, o->width);
}

static void wait_for_stream(CUstream on, uint64_t submitted)
{
    pthread_mutex_lock(&on->lock);
    while (on->done < submitted)
        pthread_cond_wait(&on->changed, &on->lock);
    pthread_mutex_unlock(&on->lock);
}

static void call(const struct fake_operation *o)
{
    fake_in_callback = true;
    o->function(o->argument);
    fake_in_callback = false;
}

static void jitter(CUstream stream)
{
    static __thread unsigned random;

    if (!fake.jitter_us)
        return;
    if (!random)
        random = fake.seed * 77u + (unsigned)getpid() * 31u + (unsigned)stream->id;
    random = random * 1664525u + 1013904223u;
    if (random >> 30 == 0)
        usleep((random >> 8) % fake.jitter_us);
}

bool fake_operation_waits(const struct fake_operation *o)
{
    return o->kind == FAKE_WAIT || o->kind == FAKE_WAIT_EVENT || o->kind == FAKE_FENCE;
}

static void run(CUstream stream, struct fake_operation *o)
{
    switch (o->kind) {
    case FAKE_COPY:
        memmove(fake_pointer(o->to), o->staged ? o->staged : fake_pointer(o->from), o->bytes);
        break;
    case FAKE_SET:
        set(o);
        break;
    case FAKE_LAUNCH:
        fake_share_begin(o->device);
        fake_launch_run(stream, o);
        fake_share_end(o->device);
        break;
    case FAKE_CALL:
        call(o);
        break;
    case FAKE_WAIT:
        wait_for_word(o);
        break;
    case FAKE_WRITE:
        write_word(o);
        break;
    case FAKE_RECORD:
        fake_event_done(o->event, o->value);
        break;
    case FAKE_WAIT_EVENT:
        fake_event_wait(o->event, o->value);
        break;
    case FAKE_FENCE:
        wait_for_stream(o->on, o->value);
        break;
    case FAKE_FAULT:
        fake_context_fail(o->device, (CUresult)o->value);
        break;
    }
}

void fake_operation_run(CUstream stream, struct fake_operation *o)
{
    jitter(stream);
    fake_queue_enter(stream, o->ticket);
    if (!fake_operation_waits(o)) /* else the queue goes on when the wait is over */
        fake_queue_leave(stream, o->ticket);
    run(stream, o);
    if (fake_operation_waits(o))
        fake_queue_leave(stream, o->ticket);
}

/* ---- copies and sets -------------------------------------------------------------------------------------------------------------------------------- */

static CUresult enter(const char *name, CUstream *stream)
{
    FAKE_TRY(fake_enter(name, FAKE_CONTEXT));
    return fake_stream_find(stream, *stream);
}

static CUresult copy(CUstream stream, const struct fake_operation *operation)
{
    struct fake_operation o = *operation;
    CUcontext             context = fake_context_of(stream->device);
    const bool            from_plain = fake_memory_pageable(o.from), to_plain = fake_memory_pageable(o.to);

    if (!o.bytes)
        return CUDA_SUCCESS;
    if (!fake_memory_reach(context, o.to, o.bytes, true) || !fake_memory_reach(context, o.from, o.bytes, true))
        return CUDA_ERROR_INVALID_VALUE;
    if (from_plain && !fake_captured(stream)) {
        o.staged = malloc(o.bytes);
        if (!o.staged)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(o.staged, fake_pointer(o.from), o.bytes);
    }
    FAKE_TRY(fake_submit(stream, &o));
    if (to_plain && !fake_captured(stream))
        fake_stream_drain(stream);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    FAKE_TRY(enter(__func__, &stream));
    return copy(stream, &(struct fake_operation){.kind = FAKE_COPY, .device = stream->device, .to = to, .from = from, .bytes = bytes});
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return cuMemcpyAsync(to, from, bytes, stream);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return cuMemcpyAsync(to, (CUdeviceptr)(uintptr_t)from, bytes, stream);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, from, bytes, stream);
}

/* On the legacy stream, and done when it returns. */
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    FAKE_TRY(cuMemcpyAsync(to, from, bytes, NULL));
    return cuStreamSynchronize(NULL);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
    return cuMemcpy(to, (CUdeviceptr)(uintptr_t)from, bytes);
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
    return cuMemcpy((CUdeviceptr)(uintptr_t)to, from, bytes);
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return cuMemcpy(to, from, bytes);
}

static CUresult fill(CUstream stream, const struct fake_operation *o)
{
    if (!o->bytes)
        return CUDA_SUCCESS;
    if (o->to % o->width || !fake_memory_reach(fake_context_of(stream->device), o->to, o->bytes, false))
        return CUDA_ERROR_INVALID_VALUE;
    return fake_submit(stream, o);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    FAKE_TRY(enter(__func__, &stream));
    return fill(stream, &(struct fake_operation){
                            .kind = FAKE_SET, .device = stream->device, .to = to, .value = value, .bytes = count, .width = 1});
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    FAKE_TRY(enter(__func__, &stream));
    return fill(stream, &(struct fake_operation){
                            .kind = FAKE_SET, .device = stream->device, .to = to, .value = value, .bytes = 4 * count, .width = 4});
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count)
{
    FAKE_TRY(cuMemsetD8Async(to, value, count, NULL));
    return cuStreamSynchronize(NULL);
}

/* ---- memory operations -------------------------------------------------------------------------------------------------------------------------------- */

static CUresult word(CUstream stream, struct fake_operation o)
{
    if (!fake.memory_operations)
        return CUDA_ERROR_NOT_SUPPORTED;
    o.device = stream->device;
    if (o.to % o.bytes || !fake_memory_reach(fake_context_of(stream->device), o.to, o.bytes, false))
        return CUDA_ERROR_INVALID_VALUE;
    return fake_submit(stream, &o);
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags)
{
    FAKE_TRY(enter(__func__, &stream));
    return word(stream, (struct fake_operation){.kind = FAKE_WAIT, .to = address, .bytes = 4, .value = value, .flags = flags});
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags)
{
    FAKE_TRY(enter(__func__, &stream));
    return word(stream, (struct fake_operation){.kind = FAKE_WAIT, .to = address, .bytes = 8, .value = value, .flags = flags});
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags)
{
    FAKE_TRY(enter(__func__, &stream));
    return word(stream, (struct fake_operation){.kind = FAKE_WRITE, .to = address, .bytes = 4, .value = value, .flags = flags});
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags)
{
    FAKE_TRY(enter(__func__, &stream));
    return word(stream, (struct fake_operation){.kind = FAKE_WRITE, .to = address, .bytes = 8, .value = value, .flags = flags});
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations, unsigned flags)
{
    FAKE_TRY(enter(__func__, &stream));
    if (count >= BATCH || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        const CUstreamBatchMemOpParams *p = &operations[i];
        const bool wait = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
        const bool wide = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;

        if (!wait && !wide && p->operation != CU_STREAM_MEM_OP_WRITE_VALUE_32)
            return CUDA_ERROR_NOT_SUPPORTED;
        FAKE_TRY(word(stream, (struct fake_operation){.kind  = wait ? FAKE_WAIT : FAKE_WRITE,
                                                      .to    = p->waitValue.address,
                                                      .bytes = wide ? 8 : 4,
                                                      .value = wide ? p->waitValue.value64 : p->waitValue.value,
                                                      .flags = p->waitValue.flags}));
    }
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument)
{
    FAKE_TRY(enter(__func__, &stream));
    return fake_submit(stream, &(struct fake_operation){.kind = FAKE_CALL, .device = stream->device, .function = function, .argument = argument});
}
