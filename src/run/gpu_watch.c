/* gpu_watch.c -- one thread per process that looks after streams waiting for other ranks, since nothing on a GPU knows of death, deadlines and aborts:
 * it kills the communicator with a sentence, and lets its streams and kernels go. See gpu.h.
 *
 * A stream lets itself go through all that is on it: the thread sets the rank's flags again and again, as long as the communicator lives.
 */
#include "run/gpu.h"

#include "base/error.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

enum { LOOK_NS = 10000000, LET_GO_NS = 500000, GRACE_NS = 200000000 };

static struct hkt_gpu *list;
static bool            running;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  some = PTHREAD_COND_INITIALIZER;

/* Ranks that have not begun the operation, as "rank 2 (host, pid), rank 3 ...". */
static void missing(const struct hkt_gpu *g, uint32_t number, char *text, size_t size)
{
    size_t n = 0;
    char   who[128];

    snprintf(text, size, "a rank that has begun but not gone on");
    for (int r = 0; r < g->comm->size && n < size; r++)
        if ((int32_t)(atomic_load(&g->words[r]->begun) - number) < 0)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "", hkt_communicator_who(g->comm, r, who, sizeof(who)));
}

/* Has the rank done all that the operation needs of it? Then it may be gone. Of captured ones, whose numbers come again, only time can tell. */
static bool over(const struct hkt_gpu *g, int r, uint32_t number)
{
    const uint32_t begun = atomic_load(&g->words[r]->begun), ended = atomic_load(&g->words[r]->ended);

    if (ended == number || begun == number)
        return ended == number;
    return number & HKT_GPU_CAPTURED ? hkt_now_ns() - g->since < GRACE_NS : (int32_t)(begun - number) > 0;
}

static void look_for_death(struct hkt_gpu *g, uint32_t number)
{
    struct hkt_communicator *c = g->comm;

    for (int r = 0; r < c->size; r++)
        if (r != c->rank && !hkt_peer_alive(c, r) && !over(g, r, number) && atomic_load(&g->words[c->rank]->ended) != number)
            hkt_communicator_lost(c, HKT_WAIT_DEAD, r, "a collective on GPUs", number & ~HKT_GPU_CAPTURED);
}

/* Directly made operations have a number each; one that stays under way for so long is stuck. */
static void look_for_deadline(struct hkt_gpu *g, uint32_t number)
{
    struct hkt_communicator *c     = g->comm;
    const uint64_t           limit = c->waiter.timeout_ns, time = hkt_now_ns();
    char                     who[512];

    if (!(number & HKT_GPU_CAPTURED) && limit && time - g->since > limit) {
        missing(g, number, who, sizeof(who));
        hkt_communicator_kill(c, HKT_ERR_TIMEOUT,
                              "communicator %s: the stream of rank %d waited %g s in collective %u on GPUs for %s; is it busy, stopped or in another "
                              "call? the limit is HKT_TIMEOUT or hkt_config_t.timeout_s",
                              c->name, c->rank, (double)limit * 1e-9, number, who);
    }
}

/* True: it is dead, and its streams are being let go. */
static bool look(struct hkt_gpu *g)
{
    struct hkt_gpu_words *w     = g->words[g->comm->rank];
    const uint32_t        begun = atomic_load(&w->begun);

    if (!hkt_communicator_state(g->comm) && begun != atomic_load(&w->ended)) {
        if (g->seen != begun) {
            g->seen  = begun;
            g->since = hkt_now_ns();
        }
        look_for_death(g, begun);
        if (!hkt_communicator_state(g->comm))
            look_for_deadline(g, begun);
    }
    if (!hkt_communicator_state(g->comm))
        return false;
    atomic_store(&w->abort, 1); /* pairs with the looks of kernels that wait */
    for (int phase = 0; phase < 2; phase++)
        for (int r = 0; r < g->comm->size; r++)
            atomic_store(&w->flag[phase][r], 1); /* pairs with the waits of streams */
    return true;
}

static void *watch(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct timespec nap = {0, LOOK_NS};

        while (!list)
            pthread_cond_wait(&some, &lock);
        for (struct hkt_gpu *g = list; g; g = g->next)
            if (look(g))
                nap.tv_nsec = LET_GO_NS;
        pthread_mutex_unlock(&lock);
        nanosleep(&nap, NULL);
        pthread_mutex_lock(&lock);
    }
    return NULL;
}

static int start(void)
{
    pthread_t thread;
    sigset_t  all, before;
    int       rc;

    sigfillset(&all); /* signals are the program's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, NULL, watch, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return hkt_fail(HKT_ERR_SYSTEM, "cannot start the thread that looks after streams; is the limit on processes (ulimit -u) reached?");
    pthread_detach(thread);
    running = true;
    return 0;
}

int hkt_gpu_watch(struct hkt_gpu *g)
{
    int rc = 0;

    pthread_mutex_lock(&lock);
    if (!running)
        rc = start();
    if (!rc) {
        g->next = list;
        list    = g;
        g->watched = true;
        pthread_cond_signal(&some);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

void hkt_gpu_unwatch(struct hkt_gpu *g)
{
    pthread_mutex_lock(&lock);
    for (struct hkt_gpu **at = &list; *at; at = &(*at)->next)
        if (*at == g) {
            *at = g->next;
            break;
        }
    pthread_mutex_unlock(&lock);
}
