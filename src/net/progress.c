/* progress.c -- the lock, the tasks, the thread. See progress.h. What a turn does is left to peer.c and to the carriers. */
#include "net/progress.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "net/wire.h"
#include "setup/socket.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    CARRIERS    = 4,
    EVENTS      = 64,
    STACK       = 524288,   /* sanitizers need more than one would think */
    ASIDE_NS    = 5000000,  /* how often the thread looks whether somebody still polls */
    EPOLL_EVERY = 32,       /* polls between two looks at the descriptors that carriers do not look at themselves */
    TICK_NS     = 10000000, /* likewise, at what is due */
    LONGEST_MS  = 60000
};

static pthread_mutex_t            lock = PTHREAD_MUTEX_INITIALIZER;
static int                        epoll = -1;
static atomic_bool                started;
static const struct hkt_carrier  *carrier[CARRIERS];
static int                        carriers;
static uint64_t                   turns, due, wakes; /* when a poll looks at what is due, and the thread does */
static struct hkt_watch           kick_watch;
static int                        kick = -1; /* eventfd: the thread is to look sooner */
static _Atomic(struct hkt_task *) tasks;
static _Atomic uint64_t           moves; /* written under the lock */

static atomic_bool      polled; /* somebody has polled since the thread last looked, and has not come to rest */
static atomic_bool      aside;  /* the thread sleeps on `rests` */
static _Atomic uint32_t rests;

/* ---- watches ----------------------------------------------------------------------------------------------------- */

static int control(int op, struct hkt_watch *w, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = w};

    return epoll_ctl(epoll, op, fd, &event) ? -errno : 0;
}

int hkt_net_watch(struct hkt_watch *w, int fd, uint32_t events)
{
    return control(EPOLL_CTL_ADD, w, fd, events);
}

int hkt_net_rewatch(struct hkt_watch *w, int fd, uint32_t events)
{
    return control(EPOLL_CTL_MOD, w, fd, events);
}

/* One descriptor at a time: what is ready may free others that are ready too. */
static bool look(void)
{
    struct epoll_event event;
    bool               any = false;

    for (int i = 0; i < EVENTS && epoll_wait(epoll, &event, 1, 0) == 1; i++) {
        struct hkt_watch *w = event.data.ptr;

        w->ready(w, event.events);
        any = true;
    }
    return any;
}

void hkt_net_unwatch(int fd)
{
    control(EPOLL_CTL_DEL, NULL, fd, 0);
}

/* ---- a turn ------------------------------------------------------------------------------------------------------ */

static void run_tasks(void)
{
    struct hkt_task *t = atomic_exchange_explicit(&tasks, NULL, memory_order_acquire); /* pairs with hkt_net_submit() */

    while (t) {
        struct hkt_task *next = t->next;

        /* Before run() looks: what comes later is a new task. Pairs with the exchange in hkt_net_submit(). */
        atomic_exchange_explicit(&t->waiting, false, memory_order_seq_cst);
        t->run(t);
        t = next;
    }
}

/* Does what is due; gives when the next thing is. Whoever polls looks again soon: there may be more by then. */
static uint64_t tick(uint64_t now)
{
    uint64_t first = now + (uint64_t)LONGEST_MS * 1000000;

    for (int i = 0; i < carriers; i++) {
        const uint64_t next = carrier[i]->tick(now);

        first = next < first ? next : first;
    }
    due = first < now + TICK_NS ? first : now + TICK_NS;
    return first;
}

void hkt_net_step(void)
{
    bool crowded = false;

    run_tasks();
    hkt_net_pump();
    for (int i = 0; i < carriers; i++)
        crowded |= carrier[i]->poll();
    if (crowded || ++turns % EPOLL_EVERY == 0) {
        const uint64_t now = hkt_now_ns();

        look();
        if (now >= due)
            tick(now);
    }
    hkt_net_credits(false);
    hkt_net_pump();
}

void hkt_net_lock(void)
{
    pthread_mutex_lock(&lock);
}

/* Whoever finds the lock taken leaves a task and goes: look for it after letting go. The fence pairs with the one in hkt_net_submit(). */
void hkt_net_unlock(void)
{
    for (;;) {
        pthread_mutex_unlock(&lock);
        atomic_thread_fence(memory_order_seq_cst);
        if (!atomic_load_explicit(&tasks, memory_order_relaxed) || pthread_mutex_trylock(&lock))
            return;
        run_tasks();
        hkt_net_pump();
    }
}

void hkt_net_submit(struct hkt_task *t, bool send)
{
    struct hkt_task *first = atomic_load_explicit(&tasks, memory_order_relaxed);

    if (!atomic_exchange_explicit(&t->waiting, true, memory_order_seq_cst)) { /* pairs with run_tasks() */
        do
            t->next = first;
        while (!atomic_compare_exchange_weak_explicit(&tasks, &first, t, memory_order_release, memory_order_relaxed));
    }
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the one in hkt_net_unlock() */
    if (pthread_mutex_trylock(&lock))
        return;
    run_tasks();
    if (send)
        hkt_net_pump();
    hkt_net_unlock();
}

void hkt_net_moved(void)
{
    hkt_store_relaxed(&moves, hkt_load_relaxed(&moves) + 1);
}

uint64_t hkt_wire_poll(void)
{
    if (!atomic_load_explicit(&started, memory_order_acquire) || hkt_process_forked()) /* pairs with the store in hkt_net_start() */
        return 0;
    if (!atomic_load_explicit(&polled, memory_order_relaxed))
        atomic_store_explicit(&polled, true, memory_order_relaxed); /* pairs with step_aside(), which looks again soon enough */
    if (pthread_mutex_trylock(&lock) == 0) {
        hkt_net_step();
        hkt_net_unlock();
    }
    return hkt_load_relaxed(&moves);
}

void hkt_wire_rest(void)
{
    if (!atomic_load_explicit(&started, memory_order_acquire) || hkt_process_forked())
        return;
    if (pthread_mutex_trylock(&lock) == 0) {
        run_tasks();
        hkt_net_credits(true);
        hkt_net_pump();
        if (tick(hkt_now_ns()) < wakes)
            eventfd_write(kick, 1);
        hkt_net_unlock();
    }
    atomic_store_explicit(&polled, false, memory_order_relaxed);
    atomic_fetch_add_explicit(&rests, 1, memory_order_seq_cst); /* pairs with the load in step_aside() */
    if (atomic_load_explicit(&aside, memory_order_seq_cst))
        syscall(SYS_futex, &rests, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void kicked(struct hkt_watch *w, uint32_t events)
{
    eventfd_t count;

    (void)w, (void)events;
    eventfd_read(kick, &count);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Sleeps as long as somebody polls, without a wake-up for what comes meanwhile. */
static void step_aside(void)
{
    const struct timespec timeout = {0, ASIDE_NS};

    atomic_store_explicit(&aside, true, memory_order_seq_cst); /* pairs with the load in hkt_wire_rest() */
    for (;;) {
        const uint32_t seen = atomic_load_explicit(&rests, memory_order_seq_cst);

        if (!atomic_exchange_explicit(&polled, false, memory_order_relaxed))
            break;
        syscall(SYS_futex, &rests, FUTEX_WAIT_PRIVATE, seen, &timeout, NULL, 0);
    }
    atomic_store_explicit(&aside, false, memory_order_relaxed);
}

/* Does what can be done, and lets the descriptors tell of the rest. Gives how long the thread may sleep, ms. */
static int prepare_sleep(void)
{
    uint64_t now, next;

    hkt_net_lock();
    run_tasks();
    hkt_net_credits(true);
    hkt_net_pump();
    for (int i = 0; i < carriers; i++)
        carrier[i]->arm();
    hkt_net_pump(); /* a carrier may have looked once more; what that makes due is due in tick() */
    now   = hkt_now_ns();
    next  = tick(now);
    wakes = next;
    hkt_net_pump();
    hkt_net_unlock();
    return next > now ? (int)((next - now + 999999) / 1000000) : 0;
}

static void *serve(void *unused)
{
    struct epoll_event event;

    (void)unused;
    for (;;) {
        const int n = epoll_wait(epoll, &event, 1, prepare_sleep());

        if (n < 0 && errno != EINTR) /* the program has closed our descriptors */
            return NULL;
        if (atomic_load_explicit(&polled, memory_order_relaxed)) {
            step_aside();
            continue;
        }
        hkt_net_lock();
        look();
        hkt_net_step();
        hkt_net_unlock();
    }
}

/* Detached: it ends with the process. It handles no signal of the program. */
static int start_thread(void)
{
    pthread_attr_t attr;
    pthread_t      thread;
    sigset_t       all, before;
    int            rc = hkt_alloc_check() ? ENOMEM : pthread_attr_init(&attr);

    if (rc)
        return rc;
    pthread_attr_setstacksize(&attr, STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attr, serve, NULL);
    /* The program's thread-local variables live on the stack too, and may be large. */
    if (rc == EINVAL && !pthread_attr_setstacksize(&attr, 16 * STACK))
        rc = pthread_create(&thread, &attr, serve, NULL);
    if (!rc)
        pthread_setname_np(thread, "hocket-net");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

/* ---- forks: the child has none of it ----------------------------------------------------------------------------- */

static void fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

static void fork_parent(void)
{
    hkt_net_unlock();
}

static void fork_child(void)
{
    for (int i = 0; i < carriers; i++)
        carrier[i]->forked(); /* or the peers would not see the parent's death */
    if (epoll >= 0)
        close(epoll);
    if (kick >= 0)
        close(kick);
    pthread_mutex_unlock(&lock);
}

int hkt_net_use(const struct hkt_carrier *c)
{
    static bool fork_known;

    for (int i = 0; i < carriers; i++)
        if (carrier[i] == c)
            return 0;
    if (!fork_known && pthread_atfork(fork_prepare, fork_parent, fork_child))
        return hkt_fail(HKT_ERR_MEMORY, "out of memory: pthread_atfork");
    fork_known = true;
    if (epoll < 0)
        epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll >= 0 && kick < 0)
        kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    kick_watch.ready = kicked;
    if (kick < 0 || (hkt_net_watch(&kick_watch, kick, EPOLLIN) && errno != EEXIST))
        return hkt_fail(HKT_ERR_SYSTEM, "cannot reach other hosts: epoll: %s", hkt_errno_text(errno));
    carrier[carriers++] = c;
    return 0;
}

int hkt_net_start(void)
{
    int error;

    if (atomic_load_explicit(&started, memory_order_relaxed))
        return 0;
    error = start_thread();
    if (error)
        return hkt_fail(error == ENOMEM ? HKT_ERR_MEMORY : HKT_ERR_SYSTEM,
                        "cannot start the network thread: %s (limits: ulimit -u, ulimit -v, the pids cgroup)", strerror(error));
    atomic_store_explicit(&started, true, memory_order_release); /* pairs with the loads in hkt_wire_poll() and hkt_wire_rest() */
    return 0;
}
