/* handle.c -- the table behind communicator handles. handle = generation << 17 | index << 1 | 1: odd, so it is no pointer. */
#include "face/handle.h"

#include "base/error.h"
#include "base/memory.h"

#include <sched.h>
#include <stdio.h>

enum { ENDS = 1 << 16 };

static struct hkt_end *_Atomic ends[ENDS];
static size_t          used;
static struct hkt_end *free_ends;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t index_of(uintptr_t handle)
{
    return handle >> 1 & (ENDS - 1);
}

struct hkt_end *hkt_end_of(hkt_comm_t *handle)
{
    if (!((uintptr_t)handle & 1))
        return NULL;
    return atomic_load_explicit(&ends[index_of((uintptr_t)handle)], memory_order_acquire); /* pairs with hkt_end_create() */
}

int hkt_end_create(struct hkt_end **out, hkt_comm_t **handle)
{
    struct hkt_end *end;
    uintptr_t       name;

    pthread_mutex_lock(&lock);
    end = free_ends;
    if (end)
        free_ends = end->next_free;
    else if (used < ENDS && (end = hkt_alloc(sizeof(*end)))) {
        end->generation = used; /* the index, until the shift below */
        end->handle     = 0;
        atomic_store_explicit(&ends[used], end, memory_order_release); /* pairs with hkt_end_of() */
        end->generation = (uintptr_t)used++ << 1 | 1;
    }
    pthread_mutex_unlock(&lock);
    if (!end)
        return used < ENDS ? HKT_ERR_MEMORY : hkt_fail(HKT_ERR_MEMORY, "%d communicators exist in this process, no more can", ENDS);
    end->generation += (uintptr_t)ENDS << 1;
    name            = end->generation;
    end->comm       = NULL;
    end->issued     = 0;
    end->has_maker  = false;
    atomic_store(&end->aborted, 0);
    atomic_store(&end->done, 0);
    atomic_store(&end->state, HKT_IN_PROGRESS);
    atomic_store_explicit(&end->handle, name, memory_order_release); /* pairs with hkt_enter() */
    *out    = end;
    *handle = (hkt_comm_t *)name;
    return 0;
}

void hkt_end_free(struct hkt_end *end)
{
    pthread_mutex_lock(&lock);
    end->next_free = free_ends;
    free_ends      = end;
    pthread_mutex_unlock(&lock);
}

struct hkt_end *hkt_visit(hkt_comm_t *handle)
{
    struct hkt_end *end = hkt_end_of(handle);

    if (end && hkt_process_forked()) {
        hkt_fail(HKT_ERR_USAGE, "used after fork: the communicator belongs to the parent process");
        return NULL;
    }
    if (end) {
        atomic_fetch_add(&end->guests, 1);
        if (atomic_load(&end->handle) == (uintptr_t)handle)
            return end;
        atomic_fetch_sub(&end->guests, 1);
    }
    hkt_fail(HKT_ERR_ARGUMENT, handle ? "this is no communicator, or one that was destroyed" : "the communicator is NULL");
    return NULL;
}

void hkt_visit_end(struct hkt_end *end)
{
    atomic_fetch_sub(&end->guests, 1);
}

int hkt_enter_refused(hkt_comm_t *handle)
{
    struct hkt_end *end = hkt_visit(handle);
    int             state;

    if (!end)
        return hkt_stale_code();
    state = atomic_load(&end->state);
    if (state == HKT_IN_PROGRESS && atomic_load(&end->aborted))
        state = hkt_fail(HKT_ERR_ABORTED, "the communicator was aborted while it was being made");
    else if (state == HKT_IN_PROGRESS || state == HKT_OK) /* OK: it has got ready just now, still too early */
        state = hkt_fail(HKT_ERR_USAGE, "the communicator is still being made; wait until hkt_comm_error() gives no more HKT_IN_PROGRESS");
    else
        hkt_fail_quiet(state, end->sentence);
    hkt_visit_end(end);
    return state;
}

bool hkt_end_close(struct hkt_end *end, hkt_comm_t *handle, uint32_t visits)
{
    uintptr_t name = (uintptr_t)handle;

    if (!atomic_compare_exchange_strong(&end->handle, &name, 0))
        return false;
    hkt_fence_heavy(); /* pairs with hkt_fence_light() in hkt_enter() */
    while (atomic_load_explicit(&end->calling, memory_order_acquire) || atomic_load(&end->guests) > visits)
        sched_yield();
    return true;
}

static bool always(void *arg, int rank)
{
    (void)arg, (void)rank;
    return true;
}

void hkt_local_wait(_Atomic uint64_t *word, uint64_t value, _Atomic uint32_t *sleepers)
{
    static const _Atomic uint64_t never;
    const struct hkt_waiter       w = {.poison = &never, .sleepers = &sleepers, .alive = always, .spin_ns = 5000};

    hkt_wait(&w, word, value, 0);
}

void hkt_turn_wait(struct hkt_end *end, uint64_t ticket)
{
    if (__builtin_expect(hkt_load_acquire(&end->done) < ticket, 0)) /* pairs with hkt_turn_pass() */
        hkt_local_wait(&end->done, ticket, &end->sleepers);
}
