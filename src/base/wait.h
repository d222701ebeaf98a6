/* wait.h -- the one way to wait for another rank.
 *
 * A wait polls a 64-bit word in shared memory that only grows and that one rank writes. It knows: how long polling is worth it on
 * this machine (every rank has a core: spin; ranks share cores: yield), the communicator's poison word, the death of peers, the
 * deadline. After its polling budget it sleeps on the word (futex), so a late rank costs its peers no processor time.
 *
 * The writer's half is hkt_publish(): a release store, and a wake-up only when somebody sleeps on that rank.
 * Who sleeps: `sleepers[writer]`, raised before the last look at the word. Between "raise, look" and "store, look" stands the
 * asymmetric fence of atomic.h, so that the writer's path has no fence instruction.
 */
#ifndef HKT_WAIT_H
#define HKT_WAIT_H

#include "atomic.h"
#include "clock.h"

#include <stdbool.h>

/* What a waiter needs to know; one per rank and communicator, filled by its owner. */
struct hkt_waiter {
    const _Atomic uint64_t *poison;      /* not 0: the communicator is dead */
    _Atomic uint32_t      **sleepers;    /* per rank: threads asleep on a word of that rank */
    bool (*alive)(void *arg, int rank);  /* false: that rank's process has died or left */
    void    *arg;
    uint64_t (*poll)(void);              /* makes messages move that no other rank moves for us, at every look; NULL: there are none. Another
                                            number than before: some of their bytes have moved */
    void (*rest)(void);                  /* somebody else is to do that: this thread goes to sleep */
    uint64_t spin_ns;                    /* polling budget when every rank has a core: since the wait began, or bytes have moved */
    bool     shared;                     /* ranks share cores: yield instead of spinning */
    uint64_t timeout_ns;                 /* 0: none */
};

enum { HKT_WAIT_DEAD = -1, HKT_WAIT_POISON = -2, HKT_WAIT_TIMEOUT = -3 };

/* One wait, for *word >= value, a word that `rank` writes. The rest starts as zeros. */
struct hkt_backoff {
    _Atomic uint64_t *word;
    uint64_t          value;
    int               rank;
    uint32_t          polls;
    uint64_t          since;   /* when it began, ns; 0: not begun */
    uint64_t          moves;   /* what w->poll() has given */
    uint64_t          moved;   /* when that was another number, ns */
    uint64_t          checked; /* when it last looked for death */
};

/* One turn of waiting after a look at the word has failed: polls, yields, or sleeps at most max_sleep_ns. 0: look again; or HKT_WAIT_*. */
int hkt_backoff(const struct hkt_waiter *w, struct hkt_backoff *b, uint64_t max_sleep_ns);

enum { HKT_SLEEP_NS = 20000000 }; /* a sleeper looks for death, poison and deadline this often */

/* Waits until *word >= value. 0 or HKT_WAIT_*. On 0 everything that `rank` wrote before its hkt_publish() is visible. */
static inline int hkt_wait(const struct hkt_waiter *w, _Atomic uint64_t *word, uint64_t value, int rank)
{
    struct hkt_backoff b = {.word = word, .value = value, .rank = rank};

    while (hkt_load_acquire(word) < value) { /* pairs with the release store in hkt_publish() */
        const int rc = hkt_backoff(w, &b, HKT_SLEEP_NS);

        if (rc)
            return rc;
    }
    return 0;
}

void hkt_wake(_Atomic uint64_t *word);

/* Stores a new value of one of the calling rank's words; `sleepers` is that rank's own. */
static inline void hkt_publish(_Atomic uint64_t *word, uint64_t value, const _Atomic uint32_t *sleepers)
{
    hkt_store_release(word, value); /* pairs with the acquire load in hkt_wait() */
    hkt_fence_light();              /* pairs with hkt_fence_heavy() in hkt_backoff() */
    if (__builtin_expect(atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)sleepers, memory_order_relaxed) != 0, 0))
        hkt_wake(word);
}

#endif
