/* group.c -- what a thread collects between ncclGroupStart() and the outermost ncclGroupEnd(): calls, or communicators to be made, never both. The end
 * starts all of them together, so that one thread can be several ranks. An error inside means that nothing is started; the end returns it again.
 */
#include "inside.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct group {
    int                  depth;
    ncclResult_t         code;
    char                 sentence[NCCL_SENTENCE]; /* of that code */
    struct nccl_call    *call;
    size_t               calls, room;
    struct nccl_making **making;
    size_t               makings, making_room;
};

static _Thread_local struct group *mine; /* freed when the thread ends */
static pthread_key_t               key;

static void free_group(void *arg)
{
    struct group *g = arg;

    free(g->making);
    free(g->call);
    free(g);
}

static void make_key(void)
{
    pthread_key_create(&key, free_group);
}

static struct group *group(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (!mine) {
        pthread_once(&once, make_key);
        mine = calloc(1, sizeof(*mine));
        if (mine)
            pthread_setspecific(key, mine);
    }
    return mine;
}

bool nccl_group_active(void)
{
    return mine && mine->depth;
}

ncclResult_t nccl_group_error(ncclResult_t code)
{
    if (nccl_group_active() && mine->code == ncclSuccess) {
        mine->code = code;
        snprintf(mine->sentence, sizeof(mine->sentence), "%s", nccl_sentence());
    }
    return code;
}

/* Room for one more in an array. */
static bool room_for(void *array, size_t n, size_t *room, size_t size)
{
    void **at = array, *more;

    if (n < *room)
        return true;
    more = realloc(*at, (*room ? 2 * *room : 16) * size);
    if (!more)
        return false;
    *at   = more;
    *room = *room ? 2 * *room : 16;
    return true;
}

static ncclResult_t no_memory(void)
{
    return nccl_group_error(nccl_fail(ncclSystemError, "out of memory for the calls of a group"));
}

ncclResult_t nccl_group_call(const struct nccl_call *call)
{
    if (!room_for(&mine->call, mine->calls, &mine->room, sizeof(*mine->call)))
        return no_memory();
    nccl_comm_hold(call->comm); /* it may be destroyed before the end */
    mine->call[mine->calls++] = *call;
    return ncclSuccess;
}

ncclResult_t nccl_group_make(struct nccl_making *making)
{
    if (!room_for(&mine->making, mine->makings, &mine->making_room, sizeof(*mine->making)))
        return no_memory();
    mine->making[mine->makings++] = making;
    return ncclSuccess;
}

NCCL_API(ncclResult_t, GroupStart, (void))
{
    if (!group())
        return nccl_fail(ncclSystemError, "ncclGroupStart: out of memory");
    mine->depth++;
    return ncclSuccess;
}

/* Takes what was collected out of the group; the arrays stay for the next one. */
static struct group take(struct group *g)
{
    const struct group taken = *g;

    g->calls = g->makings = 0;
    g->code               = ncclSuccess;
    return taken;
}

static ncclResult_t check(const struct group *g)
{
    if (g->code)
        return nccl_fail(g->code, "%s", g->sentence);
    if (g->calls && g->makings)
        return nccl_fail(ncclInvalidUsage, "ncclGroupEnd: this group makes %zu communicators and has %zu other calls; end it in between", g->makings,
                         g->calls);
    for (size_t i = 1; i < g->calls; i++)
        if (g->call[i].comm->blocking != g->call[0].comm->blocking)
            return nccl_fail(ncclInvalidUsage, "ncclGroupEnd: %s blocks and %s does not; communicators of one group have to be of one kind",
                             g->call[g->call[0].comm->blocking ? 0 : i].comm->name, g->call[g->call[0].comm->blocking ? i : 0].comm->name);
    return ncclSuccess;
}

/* Ends the group: runs it, or only checks it. */
static ncclResult_t end(const char *name, bool run)
{
    struct group taken;
    ncclResult_t rc;

    if (!nccl_group_active())
        return nccl_fail(ncclInvalidUsage, "%s: there is no group; each needs its ncclGroupStart() in the same thread", name);
    if (--mine->depth)
        return ncclSuccess;
    taken = take(mine);
    rc    = check(&taken);
    if (rc == ncclSuccess && run && taken.makings)
        return nccl_make_all(taken.making, taken.makings);
    for (size_t i = 0; i < taken.makings; i++)
        nccl_making_drop(taken.making[i]);
    if (rc == ncclSuccess && run && taken.calls)
        rc = nccl_job_submit(taken.call, taken.calls);
    for (size_t i = 0; i < taken.calls; i++)
        nccl_comm_leave(taken.call[i].comm);
    return rc;
}

NCCL_API(ncclResult_t, GroupEnd, (void))
{
    return end("ncclGroupEnd", true);
}

/* The group ends as if it ran; nothing runs. There is no estimate of times here: hkt-simulate makes them. */
NCCL_API(ncclResult_t, GroupSimulateEnd, (ncclSimInfo_t *info))
{
    ncclResult_t rc;

    if (info && (info->size < offsetof(ncclSimInfo_t, estimatedTime) + sizeof(float) || info->magic != 0x74685283))
        rc = nccl_group_error(nccl_fail(ncclInvalidArgument, "ncclGroupSimulateEnd: info is not initialised; begin with NCCL_SIM_INFO_INITIALIZER"));
    rc = end("ncclGroupSimulateEnd", false);
    if (rc == ncclSuccess && info)
        info->estimatedTime = NCCL_UNDEF_FLOAT;
    return rc;
}
