/* crew.c -- see crew.h. A crew belongs to the thread that made it, so ranks that are threads have their own. Workers
 * spin for a while for the next loop, for loops follow one another closely, and then sleep.
 */
#include "crew.h"

#include "clock.h"
#include "stop.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

enum { MOST = 64 };
static const double patience = 50e-6; /* seconds of spinning */

struct crew {
    int threads;
    void (*work)(void *arg, size_t first, size_t count);
    void            *arg;
    size_t           total, step;
    _Atomic uint64_t round; /* of loops begun; the crew ends when `over` is set with it */
    _Atomic int      busy;  /* workers that have not finished this round */
    _Atomic int      asleep;
    _Atomic int      over;
    pthread_mutex_t  mutex;
    pthread_cond_t   wake;
    struct worker {
        struct crew *crew;
        int          index;
        pthread_t    thread;
    } worker[MOST];
};

static _Thread_local struct crew *own;
static _Thread_local int          within;

static void relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

static void do_part(const struct crew *c, int index)
{
    const size_t first = (size_t)index * c->step;

    if (first < c->total)
        c->work(c->arg, first, c->total - first < c->step ? c->total - first : c->step);
}

/* Waits for a round after `seen`. The mutex guards only sleeping: a round is published before `asleep` is looked at. */
static void await_round(struct crew *c, uint64_t seen)
{
    const double until = clock_seconds() + patience;

    while (atomic_load_explicit(&c->round, memory_order_acquire) == seen) { /* pairs with the release in publish() */
        for (int i = 0; i < 64; i++)
            relax();
        if (clock_seconds() < until)
            continue;
        pthread_mutex_lock(&c->mutex);
        atomic_fetch_add(&c->asleep, 1);
        while (atomic_load(&c->round) == seen)
            pthread_cond_wait(&c->wake, &c->mutex);
        atomic_fetch_sub(&c->asleep, 1);
        pthread_mutex_unlock(&c->mutex);
    }
}

static void publish(struct crew *c)
{
    atomic_store(&c->busy, c->threads - 1);
    atomic_fetch_add(&c->round, 1);
    if (atomic_load(&c->asleep)) {
        pthread_mutex_lock(&c->mutex);
        pthread_cond_broadcast(&c->wake);
        pthread_mutex_unlock(&c->mutex);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w    = arg;
    struct crew   *c    = w->crew;
    uint64_t       seen = 0;

    within = 1;
    for (;;) {
        await_round(c, seen);
        seen++;
        if (atomic_load(&c->over))
            return NULL;
        do_part(c, w->index);
        atomic_fetch_sub_explicit(&c->busy, 1, memory_order_release); /* pairs with the acquire in crew_run() */
    }
}

int crew_size(void)
{
    return own && !within ? own->threads : 1;
}

void crew_begin(int threads)
{
    struct crew *c;

    if (threads < 2)
        return;
    c = calloc(1, sizeof(*c));
    if (!c)
        stop("out of memory for %d threads", threads);
    c->threads = threads < MOST ? threads : MOST;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->wake, NULL);
    for (int i = 1; i < c->threads; i++) {
        c->worker[i] = (struct worker){.crew = c, .index = i};
        if (pthread_create(&c->worker[i].thread, NULL, worker_main, &c->worker[i]) != 0)
            stop("thread %d of %d cannot be made", i + 1, c->threads);
    }
    own = c;
}

void crew_end(void)
{
    struct crew *c = own;

    if (!c)
        return;
    atomic_store(&c->over, 1);
    publish(c);
    for (int i = 1; i < c->threads; i++)
        pthread_join(c->worker[i].thread, NULL);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->mutex);
    free(c);
    own = NULL;
}

void crew_run(void (*work)(void *arg, size_t first, size_t count), void *arg, size_t total, size_t grain)
{
    struct crew *c     = own;
    const size_t parts = (total + grain - 1) / grain;

    if (crew_size() == 1 || parts < 2) {
        if (total > 0)
            work(arg, 0, total);
        return;
    }
    c->work  = work;
    c->arg   = arg;
    c->total = total;
    c->step  = (parts + (size_t)c->threads - 1) / (size_t)c->threads * grain;
    publish(c);
    within = 1;
    do_part(c, 0);
    within = 0;
    while (atomic_load_explicit(&c->busy, memory_order_acquire) > 0)
        relax();
}
