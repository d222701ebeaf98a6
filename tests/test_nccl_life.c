/* test_nccl_life.c -- communicators of libnccl.so.2: made in every way, of every age of program, without blocking; split, shrunk, grown, revoked,
 * aborted; and what is said when a rank dies.
 */
#include "nccl_ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ncclUniqueId id_of(const struct rank *me)
{
    ncclUniqueId id;

    memcpy(&id, me->id, sizeof(id));
    return id;
}

/* The communicator works: the sum over its ranks of 1 and of the rank. */
static void works(ncclComm_t comm, int size, int rank)
{
    int x[2] = {1, rank}, value;

    nccl_ok(ncclCommCount(comm, &value));
    expect(value == size, "the size is %d, not %d", value, size);
    nccl_ok(ncclCommUserRank(comm, &value));
    expect(value == rank, "the rank is %d, not %d", value, rank);
    nccl_ok(ncclAllReduce(x, x, 2, ncclInt, ncclSum, comm, NULL));
    expect(x[0] == size && x[1] == size * (size - 1) / 2, "the sums over %d ranks are %d and %d", size, x[0], x[1]);
}

/* ---- configs of programs of every age ------------------------------------------------------------------------------------ */

/* Where the config ended in a version: its size is what a program passes. */
static const size_t ends[] = {
    offsetof(ncclConfig_t, cgaClusterSize), offsetof(ncclConfig_t, trafficClass), offsetof(ncclConfig_t, nChannelsPerNetPeer),
    offsetof(ncclConfig_t, graphUsageMode), offsetof(ncclConfig_t, maxP2pPeers),  offsetof(ncclConfig_t, launchOrderImplicit),
    sizeof(ncclConfig_t),                   sizeof(ncclConfig_t) + 64,
};
enum { ENDS = sizeof(ends) / sizeof(ends[0]) };

static void with_config(struct rank *me)
{
    for (int k = 0; k < ENDS; k++) {
        union {
            ncclConfig_t config;
            char         bytes[sizeof(ncclConfig_t) + 64];
        } u;
        const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
        ncclComm_t         comm;

        memset(&u, 0x77, sizeof(u)); /* what an older program has behind its config */
        memcpy(&u, &initial, ends[k] < sizeof(initial) ? ends[k] : sizeof(initial));
        u.config.size     = ends[k];
        u.config.blocking = 1;
        nccl_ok(ncclCommInitRankConfig(&comm, me->n, id_of(me), me->rank, &u.config));
        works(comm, me->n, me->rank);
        nccl_ok(ncclCommDestroy(comm));
        u.config.magic = 0;
        nccl_gives(ncclCommInitRankConfig(&comm, me->n, id_of(me), me->rank, &u.config), ncclInvalidArgument);
        nccl_said("NCCL_CONFIG_INITIALIZER");
    }
}

/* Proves: configs end where the program's header let them end, and nothing behind is read. */
START_TEST(configs)
{
    world_run(&(struct world){.n = 2, .kind = _i, .fn = with_config, .bare = true});
}
END_TEST

static void scalable(struct rank *me)
{
    ncclUniqueId ids[2] = {id_of(me), {{0}}};
    ncclComm_t   comm;

    nccl_ok(ncclCommInitRankScalable(&comm, me->n, me->rank, 2, ids, NULL));
    works(comm, me->n, me->rank);
    nccl_ok(ncclCommDestroy(comm));
    nccl_gives(ncclCommInitRank(&comm, 2, ids[0], 2), ncclInvalidArgument);
    nccl_said("rank 2 of 2");
}

/* Proves: several ids. */
START_TEST(several_ids)
{
    world_run(&(struct world){.n = 3, .kind = _i, .fn = scalable, .bare = true});
}
END_TEST

/* ---- without blocking ------------------------------------------------------------------------------------------------------ */

static ncclComm_t join_later(const struct rank *me)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t   comm;

    config.blocking = 0;
    nccl_gives(ncclCommInitRankConfig(&comm, me->n, id_of(me), me->rank, &config), ncclInProgress);
    return comm;
}

static void non_blocking(struct rank *me)
{
    ncclComm_t   comm = join_later(me), part = NULL, none = NULL;
    ncclResult_t state;
    float        x = 1, in = (float)me->rank, out = -1;
    int          size;

    expect(nccl_settled(comm, 30) == ncclSuccess, "it was not made: %s", ncclGetLastError(comm));
    nccl_ok(ncclCommCount(comm, &size));
    expect(size == me->n, "the size is %d", size);
    for (int k = 0; k < 20; k++) {
        nccl_gives(ncclAllReduce(&x, &x, 1, ncclFloat, ncclMax, comm, NULL), ncclInProgress);
        nccl_ok(ncclGroupStart());
        nccl_ok(ncclSend(&in, 1, ncclFloat, (me->rank + 1) % me->n, comm, NULL));
        nccl_ok(ncclRecv(&out, 1, ncclFloat, (me->rank + me->n - 1) % me->n, comm, NULL));
        nccl_gives(ncclGroupEnd(), ncclInProgress);
    }
    expect(nccl_settled(comm, 30) == ncclSuccess, "the calls have failed: %s", ncclGetLastError(comm));
    expect(x == 1 && out == (float)((me->rank + me->n - 1) % me->n), "the results are %g and %g", (double)x, (double)out);
    nccl_gives(ncclCommSplit(comm, me->rank ? 0 : NCCL_SPLIT_NOCOLOR, 0, me->rank ? &part : &none, NULL), ncclInProgress);
    expect(none == NULL && (part || !me->rank), "the handles of the split are wrong");
    expect(nccl_settled(comm, 30) == ncclSuccess, "the split has failed: %s", ncclGetLastError(comm));
    if (part) {
        expect(nccl_settled(part, 30) == ncclSuccess, "the part was not made: %s", ncclGetLastError(part));
        nccl_ok(ncclCommCount(part, &size));
        expect(size == me->n - 1, "the part has %d ranks", size);
        nccl_ok(ncclCommDestroy(part));
    }
    state = ncclCommFinalize(comm);
    expect(state == ncclSuccess || state == ncclInProgress, "finalize gives %d", (int)state);
    expect(nccl_settled(comm, 30) == ncclSuccess, "it was not finalized");
    nccl_ok(ncclCommDestroy(comm));
}

/* Proves: communicators that do not block are made, used and split behind the caller, who asks for their state. */
START_TEST(in_progress)
{
    world_run(&(struct world){.n = 3, .kind = _i, .fn = non_blocking, .bare = true});
}
END_TEST

static void alone(struct rank *me)
{
    ncclComm_t comm, blocking = nccl_join(me);
    double     before;

    if (me->rank == 0) {
        comm = join_later(me); /* the others do not come */
        pause_ms(20);
        nccl_gives(ncclAllReduce(&before, &before, 1, ncclDouble, ncclSum, comm, NULL), ncclInvalidArgument);
        nccl_said("still being made");
        before = now();
        nccl_ok(ncclCommAbort(comm));
        expect(now() - before < SOON, "the abort took %g s", now() - before);
        nccl_gives(ncclCommAbort(comm), ncclInvalidArgument);
    }
    works(blocking, me->n, me->rank);
    nccl_ok(ncclCommDestroy(blocking));
}

/* Proves: a communicator that is still being made, for whose ranks it waits, can be aborted at once. */
START_TEST(abort_while_made)
{
    world_run(&(struct world){.n = 2, .kind = _i, .fn = alone, .bare = true});
}
END_TEST

/* ---- from another one ------------------------------------------------------------------------------------------------------ */

static void splitting(struct rank *me)
{
    ncclComm_t   comm = nccl_join(me), half, quarter, none = (ncclComm_t)&none;
    const int    n = me->n, r = me->rank;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.commName = "half";
    nccl_ok(ncclCommSplit(comm, r % 2, -r, &half, &config)); /* backwards */
    works(half, (n + 1 - r % 2) / 2, ((n + 1 - r % 2) / 2 - 1) - r / 2);
    nccl_gives(ncclBroadcast(&r, &(int){0}, 1, ncclInt, 9, half, NULL), ncclInvalidArgument);
    nccl_said("of half");
    nccl_ok(ncclCommSplit(comm, r ? 0 : NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
    expect((none == NULL) == (r == 0), "rank %d has the part %p", r, (void *)none);
    if (none)
        works(none, n - 1, r - 1);
    nccl_ok(ncclGroupStart()); /* two at once */
    nccl_ok(ncclCommSplit(comm, 0, r, &quarter, NULL));
    nccl_ok(ncclGroupEnd());
    works(quarter, n, r);
    nccl_ok(ncclCommDestroy(comm)); /* before its parts */
    works(half, (n + 1 - r % 2) / 2, ((n + 1 - r % 2) / 2 - 1) - r / 2);
    nccl_ok(ncclCommDestroy(quarter));
    if (none)
        nccl_ok(ncclCommDestroy(none));
    nccl_ok(ncclCommDestroy(half));
}

START_TEST(split)
{
    world_run(&(struct world){.n = 4, .kind = _i, .fn = splitting, .bare = true});
}
END_TEST

/* One thread splits as all ranks, in one group. */
START_TEST(split_in_one_thread)
{
    ncclComm_t comm[4], part[4];
    int        x[4] = {1, 2, 3, 4};

    nccl_ok(ncclCommInitAll(comm, 4, NULL));
    nccl_ok(ncclGroupStart());
    for (int r = 0; r < 4; r++)
        nccl_ok(ncclCommSplit(comm[r], r / 2, r, &part[r], NULL));
    nccl_ok(ncclGroupEnd());
    nccl_ok(ncclGroupStart());
    for (int r = 0; r < 4; r++)
        nccl_ok(ncclAllReduce(&x[r], &x[r], 1, ncclInt, ncclSum, part[r], NULL));
    nccl_ok(ncclGroupEnd());
    expect(x[0] == 3 && x[1] == 3 && x[2] == 7 && x[3] == 7, "the sums are %d %d %d %d", x[0], x[1], x[2], x[3]);
    nccl_ok(ncclGroupStart()); /* communicators and calls do not mix */
    nccl_ok(ncclAllReduce(&x[0], &x[0], 1, ncclInt, ncclSum, comm[0], NULL));
    nccl_ok(ncclCommSplit(comm[1], 0, 0, &part[1], NULL));
    nccl_gives(ncclGroupEnd(), ncclInvalidUsage);
    expect(part[1] == NULL, "the handle of what was not made is left");
    for (int r = 0; r < 4; r++)
        nccl_ok(ncclCommDestroy(comm[r]));
}
END_TEST

static void shrinking(struct rank *me)
{
    ncclComm_t comm = nccl_join(me), less, again, back;
    int        list[] = {2, 0};

    nccl_gives(ncclCommShrink(comm, &(int){99}, 1, &less, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
    nccl_said("rank 99 is to be excluded");
    if (me->rank != 2 && me->rank != 0) {
        nccl_ok(ncclCommShrink(comm, list, 2, &less, NULL, NCCL_SHRINK_DEFAULT));
        works(less, me->n - 2, me->rank == 1 ? 0 : me->rank - 2);
        atomic_fetch_add((_Atomic uint32_t *)me->shared, 1);
        await(me->shared, (uint32_t)me->n - 2, 30); /* nobody is inside a call any more */
        if (me->rank > 1) { /* without its first, by aborting it */
            nccl_ok(ncclCommShrink(less, &(int){0}, 1, &again, NULL, NCCL_SHRINK_ABORT));
            works(again, me->n - 3, me->rank - 3);
            nccl_ok(ncclCommDestroy(again));
        }
        rendezvous(me);
        nccl_ok(ncclCommDestroy(less));
    } else
        rendezvous(me);
    works(comm, me->n, me->rank); /* lives */
    rendezvous(me); /* nobody is inside a call any more */
    nccl_ok(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    nccl_gives(ncclAllReduce(list, list, 1, ncclInt, ncclSum, comm, NULL), ncclInvalidUsage);
    nccl_said("was revoked");
    nccl_gives(ncclCommFinalize(comm), ncclInvalidUsage);
    rendezvous(me); /* all have revoked it */
    nccl_ok(ncclCommSplit(comm, 0, -me->rank, &back, NULL));
    works(back, me->n, me->n - 1 - me->rank);
    nccl_ok(ncclCommDestroy(back));
    if (me->rank) {
        nccl_ok(ncclCommShrink(comm, &(int){0}, 1, &less, NULL, NCCL_SHRINK_DEFAULT));
        works(less, me->n - 1, me->rank - 1);
        nccl_ok(ncclCommDestroy(less));
    }
    nccl_ok(ncclCommDestroy(comm));
}

/* Proves: survivors go on without the excluded, from a living communicator, from one they abort, and from one that was revoked. */
START_TEST(shrink_and_revoke)
{
    world_run(&(struct world){.n = 5, .kind = _i, .fn = shrinking, .bare = true});
}
END_TEST

struct growth { ncclUniqueId id; _Atomic uint32_t ready; };

static void growing(struct rank *me)
{
    struct growth *g   = me->shared;
    ncclComm_t     old = NULL, all;
    ncclUniqueId   id  = id_of(me);

    if (me->rank < 2) {
        nccl_ok(ncclCommInitRank(&old, 2, id, me->rank));
        works(old, 2, me->rank);
    }
    if (me->rank == 0) {
        nccl_ok(ncclCommGetUniqueId(old, &g->id));
        atomic_store(&g->ready, 1);
    }
    await(&g->ready, 1, 30);
    nccl_ok(ncclCommGrow(old, me->n, me->rank == 0 || !old ? &g->id : NULL, old ? -1 : me->rank, &all, NULL));
    works(all, me->n, me->rank);
    nccl_ok(ncclCommDestroy(all));
    nccl_ok(ncclCommDestroy(old));
}

START_TEST(grow)
{
    world_run(&(struct world){.n = 4, .kind = _i, .fn = growing, .bare = true});
}
END_TEST

/* ---- death and abort --------------------------------------------------------------------------------------------------------- */

struct watch {
    ncclComm_t       comm;
    _Atomic uint32_t waiting;
};

static void *watchdog(void *arg)
{
    struct watch *w = arg;
    ncclResult_t  state;

    while (!atomic_load(&w->waiting))
        pause_ms(1);
    pause_ms(50);
    ncclCommGetAsyncError(w->comm, &state);
    ncclCommAbort(w->comm);
    return (void *)(intptr_t)state;
}

static void aborted(struct rank *me)
{
    struct watch w = {.comm = nccl_join(me)};
    pthread_t    thread;
    int          x;
    double       before;
    void        *state;

    if (me->rank == 0) {
        pthread_create(&thread, NULL, watchdog, &w);
        before = now();
        atomic_store(&w.waiting, 1);
        nccl_gives(ncclRecv(&x, 1, ncclInt, 1, w.comm, NULL), ncclRemoteError);
        expect(now() - before < SOON, "the call ended %g s after the abort", now() - before);
        nccl_said("abort");
        pthread_join(thread, &state);
        expect((intptr_t)state == ncclSuccess, "the state before was %d", (int)(intptr_t)state);
        rendezvous(me);
    } else {
        rendezvous(me);
        nccl_gives(ncclRecv(&x, 1, ncclInt, 0, w.comm, NULL), ncclRemoteError);
        nccl_said("aborted");
        nccl_said("rank 0");
        nccl_ok(ncclCommAbort(w.comm));
    }
}

/* Proves: another thread's abort ends a call that waits, and the other ranks hear who it was. */
START_TEST(abort_of_a_waiting_call)
{
    world_run(&(struct world){.n = 2, .kind = _i, .fn = aborted, .bare = true});
}
END_TEST

/* The last rank dies; the others name it, go on without it. Those with an even rank wait in the call, the others ask for the state. */
static void bereaved(struct rank *me)
{
    const int    dead = me->n - 1;
    ncclComm_t   comm = me->rank % 2 ? join_later(me) : nccl_join(me), rest, part;
    float        x    = 1;
    char         who[32];
    ncclResult_t rc;

    expect(nccl_settled(comm, 30) == ncclSuccess, "it was not made: %s", ncclGetLastError(comm));
    rc = ncclCommSplit(comm, 0, me->rank, &part, NULL);
    expect(rc == ncclSuccess || rc == ncclInProgress, "split gives %d", (int)rc);
    expect(nccl_settled(part, 30) == ncclSuccess, "the split has failed: %s", ncclGetLastError(part));
    if (me->rank == dead) {
        pause_ms(50);
        raise(SIGKILL);
    }
    snprintf(who, sizeof(who), "rank %d", dead);
    if (me->rank % 2) {
        nccl_gives(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, part, NULL), ncclInProgress);
        rc = nccl_settled(part, 30);
    } else
        rc = ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, part, NULL);
    expect(rc == ncclRemoteError, "gives %d: %s", (int)rc, ncclGetLastError(part));
    expect(strstr(ncclGetLastError(part), who), "the dead rank is not named: %s", ncclGetLastError(part));
    nccl_ok(ncclCommGetAsyncError(part, &rc));
    expect(rc == ncclRemoteError, "the state is %d", (int)rc);
    rc = ncclCommShrink(part, (int[]){dead}, 1, &rest, NULL, NCCL_SHRINK_ABORT);
    expect(rc == ncclSuccess || rc == ncclInProgress, "shrink gives %d: %s", (int)rc, ncclGetLastError(NULL));
    rc = nccl_settled(rest, 30);
    expect(rc == ncclSuccess, "the survivors have not met: %s", ncclGetLastError(rest));
    rc = ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, rest, NULL);
    expect((rc == ncclSuccess || rc == ncclInProgress) && nccl_settled(rest, 30) == ncclSuccess, "the survivors cannot go on: %s", ncclGetLastError(rest));
    expect(x == (float)(me->n - 1), "the sum of the survivors is %g", (double)x);
    nccl_ok(ncclCommAbort(part));
    nccl_ok(ncclCommAbort(comm));
    nccl_ok(ncclCommDestroy(rest));
}

/* Proves: a rank that is killed is named, by the call or by the asynchronous error, and the survivors shrink and go on. */
START_TEST(death)
{
    world_run(&(struct world){.n = 4, .kind = PROCESSES, .fn = bereaved, .bare = true, .may_die = 1 << 3});
}
END_TEST

/* ---- many ---------------------------------------------------------------------------------------------------------------------- */

static void many(struct rank *me)
{
    ncclComm_t comm = nccl_join(me), parts[8];
    int        descriptors = 0, places = 0;

    for (int k = 0; k < (long_tests() ? 100 : 12); k++) {
        for (int i = 0; i < 8; i++)
            nccl_ok(ncclCommSplit(comm, 0, 0, &parts[i], NULL));
        for (int i = 0; i < 8; i++) {
            works(parts[i], me->n, me->rank);
            rendezvous(me); /* nobody is inside a call any more */
            if (i % 2)
                nccl_ok(ncclCommDestroy(parts[i]));
            else
                nccl_ok(ncclCommAbort(parts[i]));
            rendezvous(me);
        }
        if (k == 3) {
            descriptors = open_descriptors();
            places      = mappings();
        }
    }
    rendezvous(me);
    if (me->kind == PROCESSES && !slow_build()) {
        expect(open_descriptors() <= descriptors + 2, "%d descriptors, %d before", open_descriptors(), descriptors);
        expect(mappings() <= places + 16, "%d mappings, %d before", mappings(), places);
    }
    nccl_ok(ncclCommDestroy(comm));
}

/* Proves: communicators that were destroyed or aborted leave nothing behind. */
START_TEST(many_communicators)
{
    world_run(&(struct world){.n = 2, .kind = _i, .fn = many, .bare = true});
}
END_TEST

static void add(Suite *s)
{
    ADD(s, configs, KINDS, 60);
    ADD(s, several_ids, KINDS, 60);
    ADD(s, in_progress, KINDS, 60);
    ADD(s, abort_while_made, KINDS, 60);
    ADD(s, split, KINDS, 60);
    ADD(s, split_in_one_thread, 1, 60);
    ADD(s, shrink_and_revoke, KINDS, 60);
    ADD(s, grow, KINDS, 60);
    ADD(s, abort_of_a_waiting_call, KINDS, 60);
    ADD(s, death, 1, 60);
    ADD(s, many_communicators, KINDS, 60);
}

int main(void)
{
    return run_suite("nccl_life", add);
}
