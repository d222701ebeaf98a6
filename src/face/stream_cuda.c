/* stream_cuda.c -- streams that are CUDA streams: what the host has to do takes its turn among the work of the GPU.
 *
 *      CUDA stream            copies in | callback: item to the thread | wait: word == 1 | copies out | word := passed | what comes next
 *      the stream's thread                                 runs the item, word := 1
 *
 * The callback only hands over, so callbacks of other streams are never held up; the stream waits for a word of host memory, so the thread can always
 * let it go, whatever became of the peers. Where the driver has no memory operations the callback itself waits.
 * A turn is a word and its item. Those of calls made directly are a ring; those of a capture stay for good, since a graph may run them at any
 * time: there the stream leaves the word at 0, ready for the next run. Host memory that stands for device memory belongs to the stream: one call after
 * the other uses it. Each capture has its own.
 */
#include "face/stream.h"

#include "base/error.h"
#include "base/memory.h"
#include "face/group.h"
#include "run/gpu.h"
#include "run/staged.h"

#include <string.h>

enum { USED = 16, TURNS = 64, WORD_APART = 64, READY = 0, RUN = 1, PASSED = 2 };

struct turn {
    struct hkt_cuda_line  *line;
    struct hkt_stream_item item;
    struct hkt_pending    *calls; /* its own: those of the item */
    size_t                 n;
    _Atomic uint32_t      *word;
    CUdeviceptr            address;
    _Atomic uint64_t       done; /* without memory operations: runs so far */
    _Atomic uint32_t       sleepers;
};

/* Turns with their words. */
struct block {
    struct block *next;
    char         *words;
    int           used;
    struct turn   turn[TURNS];
};

struct memory {
    struct memory      *next;
    struct hkt_segment *segment;
    uint64_t            capture; /* 0: of calls made directly */
};

struct hkt_cuda_line {
    hkt_stream_t  *stream;
    CUstream       cuda;
    CUcontext      context;
    bool           memops;
    struct block  *ring, *captured; /* captured: the newest block first */
    uint64_t       turns;           /* of the ring, ever */
    struct memory *memory;
    hkt_comm_t    *used[USED]; /* by calls that the GPUs run, since the last synchronize: nobody else tells of their errors */
    int            nused;
};

/* ---- the driver's thread, and ours ------------------------------------------------------------------------------- */

static void let_go(void *arg)
{
    struct turn *t = arg;

    if (t->line->memops)
        atomic_store_explicit(t->word, RUN, memory_order_release); /* pairs with the stream's wait */
    else
        hkt_publish(&t->done, hkt_load_relaxed(&t->done) + 1, &t->sleepers);
}

/* The stream has come to the turn. Runs in a thread of the driver, which must not call it. */
static void hand(void *arg)
{
    struct turn   *t    = arg;
    const uint64_t done = t->line->memops ? 0 : hkt_load_relaxed(&t->done);

    hkt_stream_hand(t->line->stream, &t->item);
    if (!t->line->memops)
        hkt_local_wait(&t->done, done + 1, &t->sleepers);
}

static void pass(void *arg)
{
    struct turn *t = arg;

    atomic_store(t->word, PASSED);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static void clear(struct turn *t)
{
    for (size_t i = 0; i < t->n; i++)
        hkt_call_release(&t->calls[i].call);
    hkt_free(t->calls);
    t->calls = NULL;
    t->n     = 0;
}

static int make_block(struct hkt_cuda_line *line, struct block **out)
{
    struct block *b    = hkt_alloc(sizeof(*b));
    CUdeviceptr   base = 0;
    void         *words = NULL;
    CUresult      error;

    if (!b)
        return HKT_ERR_MEMORY;
    error = hkt_cuda()->cuMemHostAlloc(&words, (size_t)TURNS * WORD_APART, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (!error)
        error = hkt_cuda()->cuMemHostGetDevicePointer(&base, words, 0);
    if (error) {
        hkt_free(b);
        return hkt_cuda_fail(error, "host memory for the words of a stream");
    }
    memset(words, 0, (size_t)TURNS * WORD_APART);
    b->words = words;
    for (int i = 0; i < TURNS; i++) {
        b->turn[i].line    = line;
        b->turn[i].word    = (_Atomic uint32_t *)(void *)(b->words + (size_t)i * WORD_APART);
        b->turn[i].address = base + (CUdeviceptr)i * WORD_APART;
    }
    *out = b;
    return 0;
}

static void free_blocks(struct block *b)
{
    while (b) {
        struct block *next = b->next;

        for (int i = 0; i < TURNS; i++)
            clear(&b->turn[i]);
        hkt_cuda()->cuMemFreeHost(b->words);
        hkt_free(b);
        b = next;
    }
}

/* The next of the ring; when that is still under way the stream is TURNS ahead, and the caller waits for it. */
static int next_turn(struct hkt_cuda_line *line, bool captured, struct turn **out)
{
    struct turn *t;

    if (captured) {
        if (!line->captured || line->captured->used == TURNS) {
            struct block *b;

            HKT_TRY(make_block(line, &b));
            b->next        = line->captured;
            line->captured = b;
        }
        *out = &line->captured->turn[line->captured->used++];
        return 0;
    }
    t = &line->ring->turn[line->turns % TURNS];
    if (line->turns >= TURNS && atomic_load_explicit(t->word, memory_order_acquire) != PASSED) /* pairs with the stream's write */
        HKT_CUDA_TRY(cuStreamSynchronize(line->cuda));
    line->turns++;
    clear(t);
    atomic_store(t->word, READY);
    *out = t;
    return 0;
}

/* ---- the CUDA stream --------------------------------------------------------------------------------------------- */

/* Number of the capture that the stream is in; 0: none. */
static int capture_of(struct hkt_cuda_line *line, uint64_t *capture)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    uint64_t              id     = 0;

    HKT_CUDA_TRY(cuStreamGetCaptureInfo(line->cuda, &status, &id));
    if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        return hkt_fail(HKT_ERR_USAGE, "the capture of CUDA stream %p has failed already; end it (cuStreamEndCapture) before other calls", (void *)line->cuda);
    *capture = status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? (id ? id : 1) : 0;
    return 0;
}

/* All that is on it has run; what became of it is not asked. */
static int finish(struct hkt_cuda_line *line)
{
    CUstreamCaptureMode before;
    CUresult            error;

    HKT_TRY(hkt_cuda_enter(line->context));
    before = hkt_cuda_relax();
    error  = hkt_cuda()->cuStreamSynchronize(line->cuda);
    hkt_cuda_restore(before);
    hkt_cuda_leave();
    return error ? hkt_cuda_fail(error, "waiting for a stream") : 0;
}

/* The stream comes to the turn: from then on it runs, whatever else fails. */
static int come(struct turn *t)
{
    HKT_CUDA_TRY(cuLaunchHostFunc(t->line->cuda, hand, t));
    return 0;
}

/* The stream waits until it has run. */
static int hold(struct turn *t)
{
    if (t->line->memops)
        HKT_CUDA_TRY(cuStreamWaitValue32(t->line->cuda, t->address, RUN, CU_STREAM_WAIT_VALUE_EQ));
    return 0;
}

static int end_turn(struct turn *t, bool captured)
{
    if (t->line->memops)
        HKT_CUDA_TRY(cuStreamWriteValue32(t->line->cuda, t->address, captured ? READY : PASSED, CU_STREAM_WRITE_VALUE_DEFAULT));
    else if (!captured)
        HKT_CUDA_TRY(cuLaunchHostFunc(t->line->cuda, pass, t));
    return 0;
}

/* Host memory for calls of the stream that follow one another. It is never freed while the stream may use it. */
static int memory_of(struct hkt_cuda_line *line, size_t bytes, uint64_t capture, char **out)
{
    struct memory *m = line->memory;
    size_t         least = 1 << 16;

    for (; m && (m->capture != capture || m->segment->size < bytes); m = m->next)
        if (m->capture == capture)
            least = 2 * m->segment->size;
    if (bytes && !m) {
        m = hkt_alloc(sizeof(*m));
        if (!m)
            return HKT_ERR_MEMORY;
        if (hkt_staged_make(&m->segment, bytes > least ? bytes : least)) {
            hkt_free(m);
            return HKT_ERR_MEMORY;
        }
        m->capture   = capture;
        m->next      = line->memory;
        line->memory = m;
    }
    *out = m ? m->segment->base : NULL;
    return 0;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* The calls of one turn, with host memory for those that need it. */
struct batch {
    struct hkt_cuda_line *line;
    struct hkt_pending   *calls;
    struct hkt_staged    *staged;
    size_t                n;
    uint64_t              capture;
};

static int stage(struct batch *b)
{
    size_t bytes = 0;
    char  *at;

    for (size_t i = 0; i < b->n; i++)
        bytes += hkt_staged_bytes(b->calls[i].end->comm, &b->calls[i].call);
    HKT_TRY(memory_of(b->line, bytes, b->capture, &at));
    for (size_t i = 0; i < b->n; i++) {
        struct hkt_communicator *c    = b->calls[i].end->comm;
        const size_t             need = hkt_staged_bytes(c, &b->calls[i].call);

        hkt_staged_place(&b->staged[i], c, &b->calls[i].call, at);
        b->calls[i].call  = b->staged[i].call;
        b->calls[i].kept  = true;
        b->calls[i].again = b->capture != 0;
        at += need;
    }
    return 0;
}

static int enqueue(struct batch *b)
{
    const struct hkt_queue queue = {&hkt_device_cuda, b->line->cuda, b->line->context};
    struct turn           *t;

    HKT_TRY(stage(b));
    HKT_TRY(next_turn(b->line, b->capture != 0, &t));
    t->item = (struct hkt_stream_item){.kind      = b->n == 1 ? HKT_STREAM_CALL : HKT_STREAM_BUNDLE,
                                       .call      = *b->calls,
                                       .bundle    = b->calls,
                                       .n         = b->n,
                                       .kept      = true,
                                       .after     = let_go,
                                       .after_arg = t};
    for (size_t i = 0; i < b->n; i++)
        HKT_TRY(hkt_staged_in(&b->staged[i], &queue));
    HKT_TRY(come(t));
    t->calls = b->calls; /* its own from here on, since it will run them */
    t->n     = b->n;
    b->calls = NULL;
    HKT_TRY(hold(t));
    for (size_t i = 0; i < b->n; i++)
        HKT_TRY(hkt_staged_out(&b->staged[i], &queue));
    return end_turn(t, b->capture != 0);
}

/* The calls cannot be put on the stream. The other ranks count on them. */
static int give_up(const struct hkt_pending *calls, size_t n, int rc)
{
    for (size_t i = 0; i < n; i++) {
        struct hkt_communicator *c = calls[i].end->comm;

        rc = hkt_communicator_blame(c, rc, hkt_coll_name[calls[i].call.coll], c->number + 1);
    }
    return rc;
}

/* A collective in which the ranks may find that all have GPUs: it is waited for, as is all that is before it. */
static int connecting(struct hkt_cuda_line *line, const struct hkt_pending *pending)
{
    struct hkt_pending       p = *pending;
    struct hkt_communicator *c = p.end->comm;
    int                      rc;

    rc = finish(line);
    hkt_turn_wait(p.end, p.ticket);
    if (hkt_communicator_state(c))
        rc = hkt_communicator_dead(c);
    else if (rc)
        rc = hkt_communicator_blame(c, rc, hkt_coll_name[p.call.coll], c->number + 1);
    else {
        hkt_gpu_offer(c);
        rc = hkt_operation_run(c, &p.call, &c->waiter);
        if (!rc)
            hkt_gpu_connect(c, line->context);
    }
    hkt_turn_pass(p.end, 1);
    hkt_call_release(&p.call);
    return rc;
}

/* Calls that go through the host. */
static int through_host(struct batch *b, const struct hkt_pending *calls)
{
    int rc;

    b->calls  = hkt_alloc(b->n * sizeof(*b->calls));
    b->staged = hkt_alloc(b->n * sizeof(*b->staged));
    rc        = b->calls && b->staged ? 0 : HKT_ERR_MEMORY;
    if (!rc) {
        memcpy(b->calls, calls, b->n * sizeof(*calls));
        rc = enqueue(b);
    }
    if (rc)
        rc = give_up(calls, b->n, rc);
    if (b->calls) /* no turn has them */
        hkt_stream_skip(calls, b->n);
    else if (b->capture) /* nor do they wait in the order of direct calls */
        for (size_t i = 0; i < b->n; i++) {
            hkt_turn_wait(calls[i].end, calls[i].ticket);
            hkt_turn_pass(calls[i].end, 1);
        }
    hkt_free(b->calls);
    hkt_free(b->staged);
    return rc;
}

static void use(struct hkt_cuda_line *line, const struct hkt_end *end)
{
    hkt_comm_t *comm = (hkt_comm_t *)atomic_load(&end->handle);

    for (int i = 0; i < line->nused; i++)
        if (line->used[i] == comm)
            return;
    line->used[line->nused < USED ? line->nused++ : USED - 1] = comm;
}

/* The first communicator of those that has died. */
static int errors(struct hkt_cuda_line *line)
{
    int rc = 0;

    for (int i = 0; i < line->nused && !rc; i++) {
        struct hkt_end *end = hkt_visit(line->used[i]);

        if (!end)
            continue; /* destroyed since */
        rc = atomic_load(&end->state) == HKT_OK ? hkt_communicator_dead(end->comm) : 0;
        hkt_visit_end(end);
    }
    line->nused = 0;
    return rc;
}

/* Calls that the GPUs run. */
static int direct(struct batch *b, const struct hkt_pending *calls)
{
    int rc = 0;

    for (size_t i = 0; i < b->n && !rc; i++) {
        struct hkt_communicator *c = calls[i].end->comm;

        use(b->line, calls[i].end);
        rc = hkt_communicator_state(c) ? hkt_communicator_dead(c) : hkt_execute_cuda(c, &calls[i].call, b->line->cuda, b->capture != 0);
    }
    return rc && !hkt_communicator_state(calls[0].end->comm) ? give_up(calls, b->n, rc) : rc;
}

int hkt_cuda_line_calls(struct hkt_cuda_line *line, const struct hkt_pending *calls, size_t n)
{
    struct batch        b = {.line = line, .n = 0};
    CUstreamCaptureMode before;
    size_t              i = 0;
    int                 rc = hkt_cuda_enter(line->context);

    if (rc)
        return give_up(calls, n, rc);
    before = hkt_cuda_relax();
    rc     = capture_of(line, &b.capture);
    if (!rc && n == 1 && !b.capture && !hkt_group_several && hkt_gpu_may_connect(calls->end->comm, &calls->call)) {
        rc = connecting(line, calls);
        i  = 1;
    }
    for (; i < n && !rc; i += b.n) { /* stretches of one kind */
        for (b.n = 1; i + b.n < n && calls[i + b.n].direct == calls[i].direct; b.n++)
            ;
        rc = calls[i].direct ? direct(&b, calls + i) : through_host(&b, calls + i);
    }
    if (i < n)
        hkt_stream_skip(calls + i, n - i);
    hkt_cuda_restore(before);
    hkt_cuda_leave();
    return rc;
}

static int put(struct hkt_cuda_line *line, const struct hkt_stream_item *item)
{
    struct turn *t;
    uint64_t     capture;

    HKT_TRY(capture_of(line, &capture));
    HKT_TRY(next_turn(line, capture != 0, &t));
    t->item           = *item;
    t->item.after     = let_go;
    t->item.after_arg = t;
    HKT_TRY(come(t));
    HKT_TRY(hold(t));
    return end_turn(t, capture != 0);
}

int hkt_cuda_line_put(struct hkt_cuda_line *line, const struct hkt_stream_item *item)
{
    CUstreamCaptureMode before;
    int                 rc;

    HKT_TRY(hkt_cuda_enter(line->context));
    before = hkt_cuda_relax();
    rc     = put(line, item);
    hkt_cuda_restore(before);
    hkt_cuda_leave();
    return rc;
}

/* ---- the stream as a whole --------------------------------------------------------------------------------------- */

/* Can streams wait for a word of host memory? Tried on a stream of our own. */
static bool try_memops(const struct hkt_cuda_line *line)
{
    CUstream s  = NULL;
    bool     ok = !hkt_cuda()->cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0);

    ok = ok && !hkt_cuda()->cuStreamWriteValue32(s, line->ring->turn[0].address, RUN, CU_STREAM_WRITE_VALUE_DEFAULT) &&
         !hkt_cuda()->cuStreamWaitValue32(s, line->ring->turn[0].address, RUN, CU_STREAM_WAIT_VALUE_EQ) && !hkt_cuda()->cuStreamSynchronize(s);
    if (s)
        hkt_cuda()->cuStreamDestroy(s);
    atomic_store(line->ring->turn[0].word, READY);
    return ok;
}

int hkt_cuda_line_open(struct hkt_cuda_line **out, hkt_stream_t *stream, void *cuda)
{
    struct hkt_cuda_line *line = hkt_alloc(sizeof(*line));
    CUstreamCaptureMode   before;
    int                   rc;

    if (!line)
        return HKT_ERR_MEMORY;
    line->stream  = stream;
    line->cuda    = cuda;
    line->context = hkt_cuda_context_of_stream(cuda);
    rc            = line->context ? hkt_cuda_enter(line->context) : HKT_ERR_ARGUMENT;
    if (rc) {
        hkt_free(line);
        return rc;
    }
    before = hkt_cuda_relax();
    rc     = make_block(line, &line->ring);
    if (!rc)
        line->memops = try_memops(line);
    hkt_cuda_restore(before);
    hkt_cuda_leave();
    if (rc)
        hkt_free(line);
    else
        *out = line;
    return rc;
}

/* What the driver, asked to wait, cannot say has ended may still use the words and the memory: then all stays. */
int hkt_cuda_line_close(struct hkt_cuda_line *line)
{
    CUstreamCaptureMode before;
    struct memory      *m;
    CUresult            error;

    if (!line)
        return 0;
    HKT_TRY(hkt_cuda_enter(line->context));
    before = hkt_cuda_relax();
    error  = hkt_cuda()->cuStreamSynchronize(line->cuda);
    hkt_cuda_restore(before);
    if (error) {
        hkt_cuda_leave();
        return hkt_cuda_fail(error, "hkt_stream_destroy: waiting for the CUDA stream, which has to outlive the hkt_stream_t and must not be captured; the "
                                    "hkt_stream_t stays, since its calls may still run");
    }
    free_blocks(line->ring);
    free_blocks(line->captured);
    while ((m = line->memory)) {
        line->memory = m->next;
        hkt_staged_unmake(m->segment);
        hkt_free(m);
    }
    hkt_cuda_leave();
    hkt_free(line);
    return 0;
}

int hkt_cuda_line_synchronize(struct hkt_cuda_line *line)
{
    HKT_TRY(finish(line));
    return errors(line);
}

int hkt_cuda_line_query(struct hkt_cuda_line *line)
{
    CUresult error;

    HKT_TRY(hkt_cuda_enter(line->context));
    error = hkt_cuda()->cuStreamQuery(line->cuda);
    hkt_cuda_leave();
    return !error ? HKT_OK : error == CUDA_ERROR_NOT_READY ? HKT_IN_PROGRESS : hkt_cuda_fail(error, "asking for the state of a stream");
}
