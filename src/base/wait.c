/* wait.c -- the slow half of waiting: poll, yield, sleep. See wait.h. */
#include "wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    EAGER_POLLS   = 60,      /* the first so many with nothing in between: a pause or a yield takes longer than a cache line's way */
    SHARED_POLLS  = 16,      /* the same where ranks share cores: the other one is probably not running; none where a look is a system call (w->poll) */
    SPIN_POLLS    = 64,      /* polls between two looks at the clock, when every rank has a core; else each failed look yields */
    YIELD_NS      = 2000000, /* how long a rank that shares its core keeps yielding before it sleeps */
    CHECK_NS      = 1000000  /* while polling, look for death this often */
};

static uint32_t *low_half(_Atomic uint64_t *word)
{
    return (uint32_t *)word + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

void hkt_wake(_Atomic uint64_t *word)
{
    syscall(SYS_futex, low_half(word), FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

static void sleep_on(const struct hkt_waiter *w, const struct hkt_backoff *b, uint64_t ns)
{
    const struct timespec timeout  = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    _Atomic uint32_t     *sleepers = w->sleepers[b->rank];
    uint64_t              seen;

    atomic_fetch_add_explicit(sleepers, 1, memory_order_relaxed); /* pairs with the load in hkt_publish() */
    hkt_fence_heavy();                                            /* pairs with hkt_fence_light() in hkt_publish() */
    seen = hkt_load_acquire(b->word);
    if (seen < b->value && !hkt_load_relaxed(w->poison))
        syscall(SYS_futex, low_half(b->word), FUTEX_WAIT, (uint32_t)seen, &timeout, NULL, 0);
    atomic_fetch_sub_explicit(sleepers, 1, memory_order_relaxed);
}

/* After the polling budget, or now and then within it: is there still something to wait for? */
static int check(const struct hkt_waiter *w, struct hkt_backoff *b, uint64_t now)
{
    b->checked = now;
    if (hkt_load_relaxed(w->poison))
        return HKT_WAIT_POISON;
    if (!w->alive(w->arg, b->rank)) /* what it published before it died still counts */
        return hkt_load_acquire(b->word) >= b->value ? 0 : HKT_WAIT_DEAD;
    if (w->timeout_ns && now - b->since > w->timeout_ns)
        return HKT_WAIT_TIMEOUT;
    return 0;
}

int hkt_backoff(const struct hkt_waiter *w, struct hkt_backoff *b, uint64_t max_sleep_ns)
{
    const uint64_t moves = w->poll ? w->poll() : 0;
    uint64_t       now;
    int            rc;

    if (++b->polls <= (!w->shared ? EAGER_POLLS : w->poll ? 0 : SHARED_POLLS))
        return 0;
    if (!w->shared && b->polls % SPIN_POLLS) {
        hkt_pause();
        return 0;
    }
    now = hkt_now_ns();
    if (!b->since)
        b->since = b->checked = b->moved = now;
    if (b->moves != moves) {
        b->moves = moves;
        b->moved = now;
    }
    if (now - b->moved <= (w->shared ? YIELD_NS : w->spin_ns)) {
        if (w->shared)
            sched_yield();
        if (now - b->checked < CHECK_NS)
            return hkt_load_relaxed(w->poison) ? HKT_WAIT_POISON : 0;
        return check(w, b, now);
    }
    rc = check(w, b, now);
    if (!rc && w->rest)
        w->rest();
    if (!rc)
        sleep_on(w, b, max_sleep_ns);
    return rc;
}
