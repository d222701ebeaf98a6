/* job.c -- calls that run together: those of a group, or a single one. They run in the caller's thread, or on the queues of their streams: then all
 * those queues wait for each other before and after, as NCCL's groups make their streams do, and one of them runs the calls.
 *
 * Jobs of one communicator run in the order in which they were submitted, whatever queues they are on: each takes a ticket of every communicator.
 */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

struct turn {
    ncclComm_t comm;
    uint64_t   ticket;
};

struct nccl_job {
    struct nccl_job *next;     /* of those that a communicator keeps */
    bool             captured; /* runs whenever its graph does */
    int              parties, arrived, left; /* the queues, and the caller where it waits */
    bool             over;
    int              code; /* what came of it */
    pthread_mutex_t  lock;
    pthread_cond_t   changed;
    struct turn     *turn; /* behind the calls */
    size_t           turns, calls;
    struct nccl_call call[];
};

/* ---- running --------------------------------------------------------------------------------------------------------- */

static int run_calls(const struct nccl_call *call, size_t n)
{
    int rc = 0, end;

    if (n > 1)
        hkt_group_begin();
    for (size_t i = 0; i < n && !rc; i++)
        rc = nccl_call_run(&call[i], NULL);
    end = n > 1 ? hkt_group_end() : 0;
    rc  = end ? end : rc;
    for (size_t i = 0; i < n && !rc; i++)
        nccl_call_finish(&call[i]);
    return rc;
}

uint64_t nccl_turn_issue(ncclComm_t comm)
{
    uint64_t ticket;

    pthread_mutex_lock(&comm->lock);
    ticket = atomic_fetch_add(&comm->issued, 1);
    pthread_mutex_unlock(&comm->lock);
    return ticket;
}

void nccl_turn_wait(ncclComm_t comm, uint64_t ticket)
{
    pthread_mutex_lock(&comm->lock);
    while (atomic_load_explicit(&comm->done, memory_order_relaxed) != ticket)
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

void nccl_turn_pass(ncclComm_t comm, uint64_t ticket)
{
    pthread_mutex_lock(&comm->lock);
    atomic_store(&comm->done, ticket + 1);
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
}

/* A graph comes when it comes: it takes no ticket, but two jobs of one communicator never run at the same time. */
static void begin_turn(const struct turn *t, bool captured)
{
    pthread_mutex_lock(&t->comm->lock);
    while (t->comm->busy || (!captured && atomic_load_explicit(&t->comm->done, memory_order_relaxed) != t->ticket))
        pthread_cond_wait(&t->comm->changed, &t->comm->lock);
    t->comm->busy = true;
    pthread_mutex_unlock(&t->comm->lock);
}

static void end_turn(const struct turn *t, bool captured)
{
    pthread_mutex_lock(&t->comm->lock);
    t->comm->busy = false;
    if (!captured)
        atomic_store(&t->comm->done, t->ticket + 1);
    pthread_cond_broadcast(&t->comm->changed);
    pthread_mutex_unlock(&t->comm->lock);
}

static void run(struct nccl_job *job)
{
    for (size_t i = 0; i < job->turns; i++)
        begin_turn(&job->turn[i], job->captured);
    job->code = run_calls(job->call, job->calls);
    for (size_t i = 0; i < job->turns; i++) {
        if (job->code)
            nccl_comm_async(job->turn[i].comm, job->code);
        end_turn(&job->turn[i], job->captured);
    }
}

static void free_job(struct nccl_job *job)
{
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

/* One of the parties is here; returns when the calls have run. */
static void meet(struct nccl_job *job)
{
    pthread_mutex_lock(&job->lock);
    if (++job->arrived == job->parties) {
        pthread_mutex_unlock(&job->lock);
        run(job);
        pthread_mutex_lock(&job->lock);
        job->over = true;
        pthread_cond_broadcast(&job->changed);
    }
    while (!job->over)
        pthread_cond_wait(&job->changed, &job->lock);
    pthread_mutex_unlock(&job->lock);
}

/* The last one to go frees it. */
static void part(struct nccl_job *job)
{
    bool last;

    pthread_mutex_lock(&job->lock);
    last = ++job->left == job->parties;
    pthread_mutex_unlock(&job->lock);
    if (!last)
        return;
    for (size_t i = 0; i < job->turns; i++)
        nccl_comm_leave_late(job->turn[i].comm);
    free_job(job);
}

/* On a queue. */
static void on_queue(void *arg)
{
    struct nccl_job *job = arg;

    if (job->captured) {
        run(job);
        return;
    }
    meet(job);
    part(job);
}

/* ---- submitting ------------------------------------------------------------------------------------------------------ */

static int by_address(const void *x, const void *y)
{
    const struct turn *a = x, *b = y;

    return (a->comm > b->comm) - (a->comm < b->comm);
}

static struct nccl_job *new_job(const struct nccl_call *call, size_t n)
{
    struct nccl_job *job = calloc(1, sizeof(*job) + n * (sizeof(*call) + sizeof(struct turn)));

    if (!job) {
        nccl_fail(ncclSystemError, "out of memory for %zu calls", n);
        return NULL;
    }
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->changed, NULL);
    memcpy(job->call, call, n * sizeof(*call));
    job->calls = n;
    job->turn  = (struct turn *)(job->call + n);
    for (size_t i = 0, k; i < n; i++) {
        for (k = 0; k < job->turns && job->turn[k].comm != call[i].comm; k++)
            ;
        if (k == job->turns)
            job->turn[job->turns++].comm = call[i].comm;
    }
    qsort(job->turn, job->turns, sizeof(*job->turn), by_address); /* all take their communicators in one order */
    return job;
}

static void issue(struct nccl_job *job)
{
    for (size_t i = 0; i < job->turns; i++) {
        nccl_comm_hold(job->turn[i].comm); /* until it has run */
        job->turn[i].ticket = nccl_turn_issue(job->turn[i].comm);
    }
}

static bool same(const struct nccl_queue *a, const struct nccl_queue *b)
{
    return a->kind == b->kind && a->at == b->at;
}

/* The queues that calls run on, each once; sets whether the caller has to wait because some have none. */
static ncclResult_t find_queues(const struct nccl_call *call, size_t n, struct nccl_queue *queue, size_t *queues, bool *wait)
{
    *queues = 0;
    *wait   = false;
    for (size_t i = 0, k; i < n; i++) {
        struct nccl_queue found;

        if (i && call[i].comm == call[i - 1].comm && call[i].stream == call[i - 1].stream)
            continue;
        NCCL_TRY(nccl_queue_find(&found, call[i].comm, call[i].stream));
        if (found.kind == NCCL_NOW) {
            *wait = true;
            continue;
        }
        for (k = 0; k < *queues && !same(&queue[k], &found); k++)
            ;
        if (k == *queues)
            queue[(*queues)++] = found;
    }
    return ncclSuccess;
}

/* A graph keeps its calls; the communicator of the first keeps them alive, and the others have to live as long. */
static ncclResult_t capture(struct nccl_job *job, const struct nccl_queue *queue, size_t queues, bool wait)
{
    ncclComm_t   comm = job->call[0].comm;
    ncclResult_t rc   = ncclSuccess;

    if (queues > 1 || wait)
        rc = nccl_fail(ncclInvalidUsage, "a group that is captured into a graph has to be on one stream; this one is on %zu", queues + wait);
    job->captured = true;
    if (rc == ncclSuccess)
        rc = nccl_queue_post(queue, on_queue, job);
    if (rc != ncclSuccess) {
        free_job(job);
        return rc;
    }
    job->next      = comm->captured;
    comm->captured = job;
    return ncclSuccess;
}

static ncclResult_t post(struct nccl_job *job, const struct nccl_queue *queue, size_t queues, bool wait)
{
    ncclResult_t rc     = ncclSuccess;
    size_t       posted = 0;

    for (size_t i = 0; i < queues; i++)
        if (queue[i].capturing)
            return capture(job, queue, queues, wait);
    job->parties = (int)queues + wait;
    issue(job);
    while (posted < queues && rc == ncclSuccess) {
        rc = nccl_queue_post(&queue[posted], on_queue, job);
        posted += rc == ncclSuccess;
    }
    if (rc != ncclSuccess) { /* those that have it wait for the others: this thread comes for them */
        pthread_mutex_lock(&job->lock);
        job->parties = (int)posted + 1;
        pthread_mutex_unlock(&job->lock);
        on_queue(job);
        return rc;
    }
    if (!wait)
        return queue->kind == NCCL_THREAD ? ncclInProgress : ncclSuccess;
    meet(job);
    if (job->code)
        hkt_error_set(job->code, "%s", job->call[0].comm->sentence);
    rc = nccl_from(job->code);
    part(job);
    return rc;
}

void nccl_comm_drain(ncclComm_t comm)
{
    pthread_mutex_lock(&comm->lock);
    while (atomic_load(&comm->done) != atomic_load(&comm->issued))
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

/* In this thread, behind what is on queues. */
static ncclResult_t run_now(const struct nccl_call *call, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (__builtin_expect(atomic_load_explicit(&call[i].comm->done, memory_order_acquire) !=
                                 atomic_load_explicit(&call[i].comm->issued, memory_order_relaxed), 0))
            nccl_comm_drain(call[i].comm);
    return nccl_from(run_calls(call, n));
}

/* A graph may be running. */
static bool has_graphs(const struct nccl_call *call, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (call[i].comm->captured)
            return true;
    return false;
}

/* ---- on the streams of a device ------------------------------------------------------------------------------------------- */

/* The first queue waits for the others, or they for it. */
static int join_streams(const struct nccl_queue *queue, size_t n, bool before)
{
    int rc = 0;

    for (size_t i = 1; i < n && !rc; i++) {
        const struct nccl_queue *from = &queue[before ? i : 0], *to = &queue[before ? 0 : i];

        rc = hkt_event_record(from->event, from->at);
        if (!rc)
            rc = hkt_stream_wait_event(to->at, from->event);
    }
    return rc;
}

/* Whether a communicator has calls on several streams: those would wait for each other. */
static bool crosses(const struct nccl_call *call, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (call[k].comm == call[i].comm && call[k].stream != call[i].stream)
                return true;
    return false;
}

/* Hocket puts the calls on its streams itself. Those that cross run on the first of them, with the others joined to it. */
static ncclResult_t run_on_device(struct nccl_call *call, size_t n, const struct nccl_queue *queue, size_t queues)
{
    const bool one = queues == 1 || crosses(call, n);
    int        rc = 0, end;

    for (size_t i = 0; i < n; i++)
        if (call[i].op == ncclNumOps && call[i].scalar_at) {
            uint64_t bits = 0;

            NCCL_TRY(nccl_read_scalar(&bits, call[i].scalar_at, nccl_type[call[i].type].size, call[i].stream));
            call[i].scalar    = nccl_scalar(&bits, call[i].type);
            call[i].scalar_at = NULL;
        }
    if (n == 1)
        return nccl_from(nccl_call_run(call, queue->at));
    if (one)
        rc = join_streams(queue, queues, true);
    hkt_group_begin();
    for (size_t i = 0; i < n && !rc; i++) {
        struct nccl_queue own = *queue;

        if (!one && nccl_queue_find(&own, call[i].comm, call[i].stream) != ncclSuccess)
            rc = HKT_ERR_INTERNAL;
        if (!rc)
            rc = nccl_call_run(&call[i], own.at);
    }
    end = hkt_group_end();
    rc  = rc ? rc : end;
    return nccl_from(rc || !one ? rc : join_streams(queue, queues, false));
}

enum { FEW = 8 }; /* queues that need no allocation */

ncclResult_t nccl_job_submit(struct nccl_call *call, size_t n)
{
    struct nccl_queue few[FEW], *queue = n <= FEW ? few : malloc(n * sizeof(*queue));
    struct nccl_job  *job;
    size_t            queues = 0;
    bool              wait = false;
    ncclResult_t      rc = queue ? find_queues(call, n, queue, &queues, &wait) : nccl_fail(ncclSystemError, "out of memory for %zu calls", n);

    if (rc == ncclSuccess && !queues && !has_graphs(call, n))
        rc = run_now(call, n);
    else if (rc == ncclSuccess && queues && queue->kind == NCCL_DEVICE)
        rc = run_on_device(call, n, queue, queues);
    else if (rc == ncclSuccess) {
        job = new_job(call, n);
        rc  = job ? post(job, queue, queues, wait) : ncclSystemError;
    }
    if (queue != few)
        free(queue);
    return rc;
}

void nccl_job_free_captured(ncclComm_t comm)
{
    while (comm->captured) {
        struct nccl_job *job = comm->captured;

        comm->captured = job->next;
        free_job(job);
    }
}
