/* graph.c -- capture and graphs. A graph is its operations in the order they were issued, which is one order that its edges allow.
 *
 * What is traced is what captures forbid: streams join by events only, every stream joins the first one again before the end, the end comes
 * from the thread of the beginning, and calls that could wait for the device end a capture (by mode). For that each stream of a capture
 * keeps a clock: how many operations of each stream precede its next one.
 */
#include "fake.h"

#include <stdlib.h>

struct fake_capture {
    unsigned long long     id;
    CUstreamCaptureMode    mode;
    pthread_t              thread;
    CUstream               origin;
    bool                   invalid;
    int                    nstreams, count[FAKE_CAPTURE_STREAMS]; /* operations of each stream */
    struct fake_clock      clock[FAKE_CAPTURE_STREAMS];
    struct fake_operation *head, **tail;
    size_t                 n;
    struct CUgraph_st     *graph; /* so that user objects can be given to it before the end */
    struct fake_capture   *next;
};

struct CUuserObject_st {
    void    *pointer;
    CUhostFn destroy;
    unsigned references;
};

struct kept {
    CUuserObject object;
    unsigned     count;
    struct kept *next;
};

struct CUgraph_st {
    struct fake_operation *head;
    size_t                 n;
    struct kept           *kept;
};

struct CUgraphExec_st {
    struct CUgraph_st graph;
    CUevent           last; /* of its last launch: it never runs beside itself */
};

static pthread_mutex_t              lock = PTHREAD_MUTEX_INITIALIZER; /* of all captures; recursion is not needed */
static struct fake_capture         *captures;
static unsigned long long           last_id;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* ---- operations of a list ---------------------------------------------------------------------------------------------------------------------- */

static void free_operations(struct fake_operation *o)
{
    while (o) {
        struct fake_operation *next = o->next;

        fake_operation_drop(o);
        free(o);
        o = next;
    }
}

static struct fake_operation *copy_operation(const struct fake_operation *o)
{
    struct fake_operation *copy = malloc(sizeof(*copy));

    if (copy) {
        *copy      = *o;
        copy->next = NULL;
    }
    return copy;
}

/* ---- captures, as streams and events see them ------------------------------------------------------------------------------------------------- */

bool fake_captured(CUstream stream)
{
    return __atomic_load_n(&stream->capture, __ATOMIC_RELAXED) != NULL; /* a capture is used by one thread at a time, or the program is wrong */
}

static struct fake_capture *capture_of(const struct fake_clock *clock) /* under the lock; NULL: over, or none */
{
    struct fake_capture *c;

    for (c = captures; c && (c != clock->capture || c->id != clock->id); c = c->next) {
    }
    return clock->capture ? c : NULL;
}

bool fake_capture_alive(const struct fake_clock *clock)
{
    bool alive;

    if (!__atomic_load_n(&clock->capture, __ATOMIC_RELAXED)) /* pairs with the record of the event */
        return false;
    pthread_mutex_lock(&lock);
    alive = capture_of(clock) != NULL;
    pthread_mutex_unlock(&lock);
    return alive;
}

CUresult fake_capture_operation(CUstream stream, const struct fake_operation *operation)
{
    struct fake_capture   *c = stream->capture;
    struct fake_operation *o = c->invalid ? NULL : copy_operation(operation);

    if (!o)
        return c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    *c->tail = o;
    c->tail  = &o->next;
    c->n++;
    c->clock[stream->slot].count[stream->slot] = ++c->count[stream->slot];
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult fake_capture_record(CUstream stream, struct fake_clock *clock)
{
    struct fake_capture *c = stream->capture;

    if (c->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    pthread_mutex_lock(&lock);
    *clock         = c->clock[stream->slot];
    clock->capture = c;
    clock->id      = c->id;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static void enter_capture(CUstream stream, struct fake_capture *c) /* under the lock */
{
    stream->slot = c->nstreams++;
    __atomic_store_n(&stream->capture, c, __ATOMIC_RELAXED); /* see fake_captured() */
}

CUresult fake_capture_join(CUstream stream, const struct fake_clock *clock)
{
    struct fake_capture *c;
    CUresult             error = CUDA_SUCCESS;

    pthread_mutex_lock(&lock);
    c = capture_of(clock);
    if (!c || (stream->capture && stream->capture != c) || stream->legacy) {
        error = CUDA_ERROR_STREAM_CAPTURE_MERGE;
    } else if (!stream->capture && c->nstreams == FAKE_CAPTURE_STREAMS) {
        error = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        if (!stream->capture)
            enter_capture(stream, c);
        for (int i = 0; i < FAKE_CAPTURE_STREAMS; i++)
            if (clock->count[i] > c->clock[stream->slot].count[i])
                c->clock[stream->slot].count[i] = clock->count[i];
    }
    pthread_mutex_unlock(&lock);
    return error;
}

/* A call that might wait for the device. Whether a capture forbids it is a matter of its mode and of the calling thread's. */
CUresult fake_capture_unsafe(void)
{
    CUresult error = CUDA_SUCCESS;

    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED || !__atomic_load_n(&captures, __ATOMIC_RELAXED))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (struct fake_capture *c = captures; c; c = c->next) {
        const bool mine = pthread_equal(c->thread, pthread_self());
        const bool all  = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

        if (c->mode == CU_STREAM_CAPTURE_MODE_RELAXED || (!mine && !all))
            continue;
        c->invalid = true;
        error      = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

CUresult fake_capture_implicit(int device)
{
    CUresult error = CUDA_SUCCESS;

    if (!__atomic_load_n(&captures, __ATOMIC_RELAXED))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (struct fake_capture *c = captures; c; c = c->next)
        if (c->origin->blocking && c->origin->device == device) {
            c->invalid = true;
            error      = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    pthread_mutex_unlock(&lock);
    return error;
}

/* ---- entry points of captures ------------------------------------------------------------------------------------------------------------------- */

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    struct fake_capture *c;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    FAKE_TRY(fake_stream_find(&stream, stream));
    if (stream->legacy || stream->capture)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    c = calloc(1, sizeof(*c));
    if (c)
        c->graph = calloc(1, sizeof(*c->graph));
    if (!c || !c->graph) {
        free(c);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    c->mode   = mode;
    c->thread = pthread_self();
    c->origin = stream;
    c->tail   = &c->head;
    pthread_mutex_lock(&lock);
    c->id   = ++last_id;
    c->next = captures;
    __atomic_store_n(&captures, c, __ATOMIC_RELAXED);
    enter_capture(stream, c);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static void leave_capture(CUstream stream, void *argument)
{
    if (stream->capture == argument)
        __atomic_store_n(&stream->capture, NULL, __ATOMIC_RELAXED); /* see fake_captured() */
}

static bool joined(const struct fake_capture *c)
{
    for (int i = 0; i < c->nstreams; i++)
        if (c->clock[0].count[i] < c->count[i])
            return false;
    return true;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    struct fake_capture *c;
    CUresult             error = CUDA_SUCCESS;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    FAKE_TRY(fake_stream_find(&stream, stream));
    c      = stream->capture;
    *graph = NULL;
    if (!c || c->origin != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    fake_stream_each(leave_capture, c);
    pthread_mutex_lock(&lock);
    for (struct fake_capture **at = &captures; *at; at = &(*at)->next)
        if (*at == c) {
            __atomic_store_n(at, c->next, __ATOMIC_RELAXED);
            break;
        }
    pthread_mutex_unlock(&lock);
    c->graph->head = c->head;
    c->graph->n    = c->n;
    if (c->invalid || !joined(c)) {
        error = c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        free_operations(c->head);
        free(c->graph);
    } else {
        *graph = c->graph;
        fake_count(FAKE_GRAPHS, 1);
    }
    free(c);
    return error;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    FAKE_TRY(fake_stream_find(&stream, stream));
    if (stream->legacy)
        FAKE_TRY(fake_capture_implicit(stream->device));
    *status = !stream->capture          ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id)
{
    FAKE_TRY(cuStreamIsCapturing(stream, status));
    FAKE_TRY(fake_stream_find(&stream, stream));
    if (stream->capture && id)
        *id = stream->capture->id;
    return CUDA_SUCCESS;
}

/* callback of the driver's interface */
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph, const void **nodes,
                                   size_t *count)
{
    FAKE_TRY(cuStreamGetCaptureInfo(stream, status, id));
    FAKE_TRY(fake_stream_find(&stream, stream));
    if (graph)
        *graph = stream->capture ? stream->capture->graph : NULL;
    if (nodes)
        *nodes = NULL;
    if (count)
        *count = 0;
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    const CUstreamCaptureMode before = thread_mode;

    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    thread_mode = *mode;
    *mode       = before;
    return CUDA_SUCCESS;
}

/* ---- user objects ---------------------------------------------------------------------------------------------------------------------------------- */

CUresult cuUserObjectCreate(CUuserObject *object, void *pointer, CUhostFn destroy, unsigned references, unsigned flags)
{
    CUuserObject o;

    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    if (!references || flags != 1 || !destroy)
        return CUDA_ERROR_INVALID_VALUE;
    o = malloc(sizeof(*o));
    if (!o)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *o      = (struct CUuserObject_st){pointer, destroy, references};
    *object = o;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned count)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    __atomic_add_fetch(&object->references, count, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

static void release(CUuserObject o, unsigned count)
{
    if (__atomic_sub_fetch(&o->references, count, __ATOMIC_ACQ_REL)) /* pairs with itself: the last one destroys */
        return;
    fake_in_callback = true; /* the driver has a thread for it, which may not call CUDA either */
    o->destroy(o->pointer);
    fake_in_callback = false;
    free(o);
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    release(object, count);
    return CUDA_SUCCESS;
}

static CUresult keep_object(struct CUgraph_st *g, CUuserObject object, unsigned count)
{
    struct kept *k = malloc(sizeof(*k));

    if (!k)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *k      = (struct kept){object, count, g->kept};
    g->kept = k;
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    if (!graph || !count || flags & ~(unsigned)FAKE_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!(flags & FAKE_GRAPH_USER_OBJECT_MOVE))
        __atomic_add_fetch(&object->references, count, __ATOMIC_RELAXED);
    return keep_object(graph, object, count);
}

static void empty(struct CUgraph_st *g)
{
    free_operations(g->head);
    while (g->kept) {
        struct kept *k = g->kept;

        g->kept = k->next;
        release(k->object, k->count);
        free(k);
    }
}

/* ---- graphs ------------------------------------------------------------------------------------------------------------------------------------------ */

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    CUgraphExec             x;
    struct fake_operation **tail;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    (void)flags;
    x = calloc(1, sizeof(*x));
    if (!x)
        return CUDA_ERROR_OUT_OF_MEMORY;
    FAKE_TRY(cuEventCreate(&x->last, CU_EVENT_DISABLE_TIMING));
    tail = &x->graph.head;
    for (const struct fake_operation *o = graph->head; o; o = o->next) {
        *tail = copy_operation(o);
        if (!*tail)
            return CUDA_ERROR_OUT_OF_MEMORY; /* tests have memory */
        fake_operation_keep(*tail);
        tail = &(*tail)->next;
    }
    for (const struct kept *k = graph->kept; k; k = k->next) {
        __atomic_add_fetch(&k->object->references, k->count, __ATOMIC_RELAXED);
        FAKE_TRY(keep_object(&x->graph, k->object, k->count));
    }
    fake_count(FAKE_GRAPHS, 1);
    *exec = x;
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    (void)exec;
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    return fake_stream_find(&stream, stream);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    FAKE_TRY(fake_stream_find(&stream, stream));
    if (fake_captured(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* a child graph: not here */
    FAKE_TRY(cuStreamWaitEvent(stream, exec->last, 0));
    for (const struct fake_operation *at = exec->graph.head; at; at = at->next) {
        struct fake_operation o = *at;

        if (o.external) /* this launch's record, or the last record before this launch */
            o.value = o.kind == FAKE_RECORD ? fake_event_next(o.event) : fake_event_last(o.event);
        fake_operation_keep(&o);
        FAKE_TRY(fake_submit(stream, &o));
    }
    return cuEventRecord(exec->last, stream);
}

CUresult cuGraphDestroy(CUgraph graph)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    empty(graph);
    free(graph);
    fake_count(FAKE_GRAPHS, -1);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    FAKE_TRY(cuEventDestroy(exec->last));
    empty(&exec->graph);
    free(exec);
    fake_count(FAKE_GRAPHS, -1);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, void *nodes, size_t *count)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    if (nodes)
        return CUDA_ERROR_NOT_SUPPORTED;
    *count = graph->n;
    return CUDA_SUCCESS;
}
