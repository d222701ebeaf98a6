/* handle.h -- what the user holds: a number that names an end of a communicator, never a pointer to it. A stale handle is recognised for
 * ever (its generation is past), so using a communicator after its destruction is an error, not a crash.
 */
#ifndef HKT_HANDLE_H
#define HKT_HANDLE_H

#include "base/wait.h"
#include "run/communicator.h"

#include <pthread.h>

/* What the face keeps of one end. Never freed, used again for later communicators. */
struct hkt_end {
    _Atomic uintptr_t        handle; /* 0: not in use */
    uintptr_t                generation;
    struct hkt_end          *next_free;
    struct hkt_communicator *comm;  /* NULL until made */
    _Atomic uint32_t         aborted; /* while it was being made */
    _Atomic int              state; /* HKT_IN_PROGRESS while it is being made; then HKT_OK, or why it could not be */
    char                     sentence[HKT_SENTENCE];

    /* Calls run in the order they were issued, whichever thread runs them: a call takes ticket `issued`, runs when `done` gets
     * there, and raises it. */
    uint64_t         issued; /* by the issuing thread */
    _Atomic uint64_t done;   /* by the thread whose turn it is */
    _Atomic uint32_t sleepers;

    _Atomic uint32_t calling; /* a call is inside: see hkt_enter() */
    _Atomic uint32_t guests;  /* likewise for calls that any thread may make */

    pthread_t maker; /* the thread that makes it, when it is not the caller */
    bool      has_maker;
};

int  hkt_end_create(struct hkt_end **end, hkt_comm_t **handle); /* state HKT_IN_PROGRESS */
void hkt_end_free(struct hkt_end *end);

/* The end of a handle for a call by its using thread: 0, or HKT_ERR_* when it is no communicator, not made yet or failed. Leave it again.
 * A destroyer takes the handle away, then waits until nobody is inside: hkt_end_close(). */
int             hkt_enter_refused(hkt_comm_t *handle);
struct hkt_end *hkt_end_of(hkt_comm_t *handle); /* may be stale */

static inline int hkt_enter(hkt_comm_t *handle, struct hkt_end **out)
{
    struct hkt_end *end = hkt_end_of(handle);

    if (__builtin_expect(!end, 0))
        return hkt_enter_refused(handle);
    atomic_store_explicit(&end->calling, 1, memory_order_relaxed);
    hkt_fence_light(); /* pairs with hkt_fence_heavy() in hkt_end_close() */
    if (__builtin_expect(atomic_load_explicit(&end->handle, memory_order_acquire) == (uintptr_t)handle &&
                             atomic_load_explicit(&end->state, memory_order_acquire) == HKT_OK && !hkt_process_forked(), 1)) {
        *out = end;
        return 0;
    }
    atomic_store_explicit(&end->calling, 0, memory_order_release);
    return hkt_enter_refused(handle);
}

static inline void hkt_leave(struct hkt_end *end)
{
    atomic_store_explicit(&end->calling, 0, memory_order_release); /* pairs with the acquire load in hkt_end_close() */
}

/* For calls that any thread may make, also while the communicator is being made. */
struct hkt_end *hkt_visit(hkt_comm_t *handle); /* NULL: hkt_stale_code() says why */
void            hkt_visit_end(struct hkt_end *end);

static inline int hkt_stale_code(void)
{
    return hkt_process_forked() ? HKT_ERR_USAGE : HKT_ERR_ARGUMENT;
}

/* Takes the handle away from everybody; false when somebody has been faster. Then waits until no call is inside but for the caller's own
 * `visits`. */
bool hkt_end_close(struct hkt_end *end, hkt_comm_t *handle, uint32_t visits);

/* memory.c: what was registered with a communicator and not deregistered. */
void hkt_deregister_all(const hkt_comm_t *comm);

/* ---- turns ---- */
static inline uint64_t hkt_ticket(struct hkt_end *end)
{
    return end->issued++;
}

void hkt_turn_wait(struct hkt_end *end, uint64_t ticket); /* until it is the ticket's turn */

static inline void hkt_turn_pass(struct hkt_end *end, uint64_t tickets)
{
    hkt_publish(&end->done, atomic_load_explicit(&end->done, memory_order_relaxed) + tickets, &end->sleepers);
}

/* Waits for a word of this process, with nothing but patience. */
void hkt_local_wait(_Atomic uint64_t *word, uint64_t value, _Atomic uint32_t *sleepers);

#endif
