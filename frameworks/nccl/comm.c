/* comm.c -- communicators as programs hold them: which are alive, what can be asked of them, how they end.
 *
 * A handle points into memory that is never given back but used again for later communicators, so that a handle that was destroyed is recognised
 * as long as its place is free. A communicator ends when the last of its holders lets go: its handle, functions that are inside, work on queues.
 * So ncclCommAbort() waits for nobody, although another thread may be inside a call.
 */
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t  lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *free_places; /* under lock */

/* ---- life ------------------------------------------------------------------------------------------------------------ */

ncclComm_t nccl_comm_new(void)
{
    static _Atomic uint32_t count;
    struct ncclComm        *c;

    pthread_mutex_lock(&lock);
    c = free_places;
    if (c)
        free_places = c->next_free;
    pthread_mutex_unlock(&lock);
    if (c) /* what a stale handle looks at stays as it is */
        memset((char *)c + offsetof(struct ncclComm, next_free), 0, sizeof(*c) - offsetof(struct ncclComm, next_free));
    else
        c = calloc(1, sizeof(*c));
    if (!c) {
        nccl_fail(ncclSystemError, "out of memory for a communicator");
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    snprintf(c->name, sizeof(c->name), "nccl%u", atomic_fetch_add(&count, 1));
    c->device = nccl_current_device();
    atomic_store(&c->state, ncclInProgress);
    atomic_store(&c->holders, 1);
    atomic_store_explicit(&c->alive, 1, memory_order_release); /* pairs with hold() */
    return c;
}

/* Gives back all it has. Called by the last holder, or by the maker of one that has failed. */
void nccl_comm_recycle(ncclComm_t c)
{
    nccl_memory_forget(c);
    nccl_job_free_captured(c);
    hkt_stream_destroy(c->own.at);
    hkt_comm_destroy(atomic_load(&c->hkt));
    free(c->op);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    atomic_store(&c->alive, 0);
    atomic_store(&c->holders, 0);
    pthread_mutex_lock(&lock);
    c->next_free = free_places;
    free_places  = c;
    pthread_mutex_unlock(&lock);
}

static void *recycle(void *comm)
{
    nccl_comm_recycle(comm);
    return NULL;
}

static bool let_go(ncclComm_t c)
{
    return atomic_fetch_sub(&c->holders, 1) == 1;
}

void nccl_comm_leave(ncclComm_t c)
{
    if (let_go(c))
        nccl_comm_recycle(c);
}

void nccl_comm_leave_late(ncclComm_t c)
{
    pthread_t thread;

    if (let_go(c) && !pthread_create(&thread, NULL, recycle, c))
        pthread_detach(thread);
}

/* One holder more, if it has any. */
static bool hold(ncclComm_t c)
{
    uint32_t holders = atomic_load(&c->holders);

    while (holders)
        if (atomic_compare_exchange_weak(&c->holders, &holders, holders + 1)) {
            if (atomic_load_explicit(&c->alive, memory_order_acquire)) /* pairs with the release stores of the two that write it */
                return true;
            nccl_comm_leave(c);
            return false;
        }
    return false;
}

void nccl_comm_hold(ncclComm_t c)
{
    atomic_fetch_add(&c->holders, 1);
}

ncclResult_t nccl_comm_visit(ncclComm_t c, const char *what)
{
    if (!c)
        return what ? nccl_fail(ncclInvalidArgument, "%s: the communicator is NULL", what) : ncclInvalidArgument;
    if (hold(c))
        return ncclSuccess;
    return what ? nccl_fail(ncclInvalidArgument, "%s: the communicator at %p was destroyed or aborted", what, (void *)c) : ncclInvalidArgument;
}

/* Why it cannot be used; ncclSuccess: it can. */
static ncclResult_t usable(ncclComm_t c, const char *what)
{
    const int state = atomic_load_explicit(&c->state, memory_order_acquire); /* pairs with the release store of its maker */

    if (state == ncclInProgress)
        return nccl_fail(ncclInvalidArgument, "%s: %s is still being made; wait until ncclCommGetAsyncError() says ncclSuccess", what, c->name);
    if (state != ncclSuccess)
        return nccl_fail((ncclResult_t)state, "%s", c->sentence);
    if (atomic_load_explicit(&c->revoked, memory_order_relaxed))
        return nccl_fail(ncclInvalidUsage, "%s: %s was revoked on rank %d; shrink, split or destroy it", what, c->name, c->rank);
    if (c->finalized)
        return nccl_fail(ncclInvalidUsage, "%s: %s was finalized on rank %d; all that is left is ncclCommDestroy()", what, c->name, c->rank);
    if (c->suspended)
        return nccl_fail(ncclInvalidUsage, "%s: %s is suspended on rank %d; resume it first", what, c->name, c->rank);
    return ncclSuccess;
}

ncclResult_t nccl_comm_enter(ncclComm_t c, const char *what)
{
    ncclResult_t rc;

    NCCL_TRY(nccl_comm_visit(c, what));
    if (__builtin_expect(atomic_load_explicit(&c->state, memory_order_acquire) == ncclSuccess && !c->finalized && !c->suspended &&
                             !atomic_load_explicit(&c->revoked, memory_order_relaxed), 1))
        return ncclSuccess;
    rc = usable(c, what);
    if (rc != ncclSuccess)
        nccl_comm_leave(c);
    return rc;
}

void nccl_comm_async(ncclComm_t c, int hkt_code)
{
    const ncclResult_t code = nccl_from(hkt_code);

    pthread_mutex_lock(&c->lock);
    if (!atomic_load(&c->async)) {
        snprintf(c->sentence, sizeof(c->sentence), "%s", nccl_sentence());
        atomic_store_explicit(&c->async, (int)code, memory_order_release); /* pairs with state_of() */
    }
    pthread_mutex_unlock(&c->lock);
}

/* ---- what can be asked ------------------------------------------------------------------------------------------------ */

static ncclResult_t state_of(ncclComm_t c)
{
    int code = atomic_load_explicit(&c->state, memory_order_acquire), error;

    if (code != ncclSuccess || atomic_load(&c->revoked))
        return (ncclResult_t)code;
    code = atomic_load_explicit(&c->async, memory_order_acquire);
    if (code)
        return (ncclResult_t)code;
    error = hkt_comm_error(atomic_load(&c->hkt), &code);
    if (error || code) {
        nccl_comm_async(c, error ? error : code);
        return (ncclResult_t)atomic_load(&c->async);
    }
    return !c->blocking && atomic_load(&c->done) != atomic_load(&c->issued) ? ncclInProgress : ncclSuccess;
}

NCCL_API(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t *error))
{
    if (!error)
        return nccl_fail(ncclInvalidArgument, "ncclCommGetAsyncError: error is NULL");
    NCCL_TRY(nccl_comm_visit(comm, "ncclCommGetAsyncError"));
    *error = state_of(comm);
    nccl_comm_leave(comm);
    return ncclSuccess;
}

static ncclResult_t look(ncclComm_t comm, const char *name, const int *member, int *value)
{
    int state;

    if (!value)
        return nccl_fail(ncclInvalidArgument, "%s: there is no place for the result: it is NULL", name);
    NCCL_TRY(nccl_comm_visit(comm, name));
    state = atomic_load_explicit(&comm->state, memory_order_acquire);
    if (state == ncclSuccess)
        *value = *member;
    nccl_comm_leave(comm);
    return state == ncclSuccess ? ncclSuccess : nccl_fail(ncclInvalidArgument, "%s: the communicator is not made yet, or could not be made", name);
}

NCCL_API(ncclResult_t, CommCount, (const ncclComm_t comm, int *count))
{
    return look(comm, "ncclCommCount", &comm->size, count);
}

NCCL_API(ncclResult_t, CommUserRank, (const ncclComm_t comm, int *rank))
{
    return look(comm, "ncclCommUserRank", &comm->rank, rank);
}

NCCL_API(ncclResult_t, CommCuDevice, (const ncclComm_t comm, int *device))
{
    return look(comm, "ncclCommCuDevice", &comm->device, device);
}

/* ---- the end ---------------------------------------------------------------------------------------------------------- */

/* Takes the handle away; false when another thread was faster. */
static bool close_handle(ncclComm_t c)
{
    uint32_t one = 1;

    if (!atomic_compare_exchange_strong(&c->alive, &one, 0))
        return false;
    atomic_fetch_sub(&c->holders, 1); /* the caller still is one */
    return true;
}

NCCL_API(ncclResult_t, CommFinalize, (ncclComm_t comm))
{
    ncclResult_t rc;

    NCCL_TRY(nccl_comm_visit(comm, "ncclCommFinalize"));
    rc = usable(comm, "ncclCommFinalize");
    if (rc == ncclSuccess) {
        comm->finalized = true;
        if (comm->blocking)
            nccl_comm_drain(comm);
        else
            rc = state_of(comm) == ncclInProgress ? ncclInProgress : ncclSuccess;
    }
    nccl_comm_leave(comm);
    return rc;
}

NCCL_API(ncclResult_t, CommDestroy, (ncclComm_t comm))
{
    if (!comm) /* as NCCL does it */
        return ncclSuccess;
    NCCL_TRY(nccl_comm_visit(comm, "ncclCommDestroy"));
    nccl_making_wait(comm);
    nccl_comm_drain(comm);
    if (!close_handle(comm)) {
        nccl_comm_leave(comm);
        return nccl_fail(ncclInvalidArgument, "ncclCommDestroy: another thread destroys the communicator at %p", (void *)comm);
    }
    nccl_comm_leave(comm);
    return ncclSuccess;
}

NCCL_API(ncclResult_t, CommAbort, (ncclComm_t comm))
{
    if (!comm)
        return ncclSuccess;
    NCCL_TRY(nccl_comm_visit(comm, "ncclCommAbort"));
    atomic_store(&comm->aborted, 1);
    nccl_making_cancel(comm);
    if (atomic_load(&comm->hkt))
        hkt_comm_abort(atomic_load(&comm->hkt));
    if (!close_handle(comm)) {
        nccl_comm_leave(comm);
        return nccl_fail(ncclInvalidArgument, "ncclCommAbort: another thread destroys the communicator at %p", (void *)comm);
    }
    nccl_comm_leave(comm);
    return ncclSuccess;
}

NCCL_API(ncclResult_t, CommRevoke, (ncclComm_t comm, int flags))
{
    ncclResult_t rc;

    if (flags != NCCL_REVOKE_DEFAULT)
        return nccl_fail(ncclInvalidArgument, "ncclCommRevoke: flags are %d; there is only NCCL_REVOKE_DEFAULT", flags);
    NCCL_TRY(nccl_comm_visit(comm, "ncclCommRevoke"));
    rc = usable(comm, "ncclCommRevoke");
    if (rc == ncclSuccess) {
        atomic_store(&comm->revoked, 1);
        hkt_comm_abort(atomic_load(&comm->hkt));
    }
    nccl_comm_leave(comm);
    return rc;
}

/* There is nothing on a device that could be given back; what the calls promise about use is kept all the same. */
NCCL_API(ncclResult_t, CommSuspend, (ncclComm_t comm, int flags))
{
    if (flags & ~NCCL_SUSPEND_MEM)
        return nccl_fail(ncclInvalidArgument, "ncclCommSuspend: flags are %d; there is only NCCL_SUSPEND_MEM", flags);
    NCCL_TRY(nccl_comm_enter(comm, "ncclCommSuspend"));
    nccl_comm_drain(comm);
    comm->suspended = true;
    nccl_comm_leave(comm);
    return ncclSuccess;
}

NCCL_API(ncclResult_t, CommResume, (ncclComm_t comm))
{
    bool was;

    NCCL_TRY(nccl_comm_visit(comm, "ncclCommResume"));
    was             = comm->suspended;
    comm->suspended = false;
    nccl_comm_leave(comm);
    return was ? ncclSuccess : nccl_fail(ncclInvalidUsage, "ncclCommResume: the communicator is not suspended");
}

NCCL_API(ncclResult_t, CommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value))
{
    if (!value || (unsigned)stat > ncclStatGpuMemTotal)
        return nccl_fail(ncclInvalidArgument, "ncclCommMemStats: %s", value ? "there is no such statistic" : "value is NULL");
    NCCL_TRY(nccl_comm_visit(comm, "ncclCommMemStats"));
    *value = stat == ncclStatGpuMemSuspended ? comm->suspended : 0; /* no memory of a GPU is held */
    nccl_comm_leave(comm);
    return ncclSuccess;
}
