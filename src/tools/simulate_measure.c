/* simulate_measure.c -- hkt-simulate --measure: what a message costs in the shared memory of this computer. Two threads throw a cache line to and
 * fro; one copies and folds what the other has just written, as ranks do. The least of several tries counts: what disturbs only adds.
 */
#include "simulate.h"

#include "base/error.h"
#include "language/dtype.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THROWS = 2000, TRIES = 7, BLOCK = 256 << 10, ROUNDS = 12, PASSES = 3 };

struct table_tennis {
    _Alignas(128) atomic_uint ball; /* release by who writes, acquire by who waits for his turn */
    char *block;                    /* the other thread's */
};

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void wait_for(struct table_tennis *t, unsigned turn)
{
    while (atomic_load_explicit(&t->ball, memory_order_acquire) != turn)
        sched_yield();
}

static void spin_for(struct table_tennis *t, unsigned turn)
{
    for (long spins = 0; atomic_load_explicit(&t->ball, memory_order_acquire) != turn; spins++)
        if (spins > 100000) /* the other has no core */
            sched_yield();
}

/* Takes the odd turns: throws back, then writes its block before each throw. */
static void *partner(void *context)
{
    struct table_tennis *t = context;

    for (unsigned i = 0; i < TRIES * THROWS; i++) {
        spin_for(t, 2 * i + 1);
        atomic_store_explicit(&t->ball, 2 * i + 2, memory_order_release);
    }
    for (unsigned i = TRIES * THROWS; i < TRIES * THROWS + PASSES * ROUNDS; i++) {
        wait_for(t, 2 * i + 1);
        memset(t->block, (int)(i & 1), 2 * BLOCK);
        atomic_store_explicit(&t->ball, 2 * i + 2, memory_order_release);
    }
    return NULL;
}

static double one_way(struct table_tennis *t)
{
    double   least = 1;
    unsigned i     = 0;

    for (int k = 0; k < TRIES; k++) {
        const double begin = seconds();

        for (int n = 0; n < THROWS; n++, i++) {
            atomic_store_explicit(&t->ball, 2 * i + 1, memory_order_release);
            spin_for(t, 2 * i + 2);
        }
        least = seconds() - begin < least ? seconds() - begin : least;
    }
    return least / (2.0 * THROWS);
}

/* Seconds per byte to copy, or to fold into mine, what the other has written; by the library's kernels. */
static double per_byte(struct table_tennis *t, char *mine, int pass, bool fold, uint32_t ndst)
{
    const void *const       src[] = {mine, t->block};
    void *const             dst[] = {mine, t->block + BLOCK}; /* the second: where the other wrote, as in a slot for it */
    const unsigned          first = (unsigned)(TRIES * THROWS + pass * ROUNDS);
    const struct hkt_reduce add   = {
        .src = src, .dst = dst, .count = BLOCK / sizeof(float), .nsrc = 2, .ndst = ndst, .in = HKT_RAW, .out = HKT_FINISHED};
    hkt_reduce_fn *const kernel = hkt_reduce_kernel(HKT_FLOAT32, HKT_SUM);
    double               least  = 1;

    for (unsigned i = first; i < first + ROUNDS; i++) {
        double begin;

        atomic_store_explicit(&t->ball, 2 * i + 1, memory_order_release);
        wait_for(t, 2 * i + 2);
        begin = seconds();
        if (fold)
            kernel(&add);
        else
            hkt_copy_bytes(dst, ndst, t->block, BLOCK, false);
        least = seconds() - begin < least ? seconds() - begin : least;
    }
    return least / BLOCK;
}

int simulate_measure(struct hkt_fabric *f, int ranks)
{
    struct table_tennis t    = {.block = malloc(2 * BLOCK)};
    char *const         mine = calloc(1, BLOCK);
    pthread_t           thread;
    int                 rc = HKT_ERR_MEMORY;

    if (t.block && mine && pthread_create(&thread, NULL, partner, &t) == 0) {
        const double way  = one_way(&t);
        const double copy = per_byte(&t, mine, 0, false, 1), fold = per_byte(&t, mine, 1, true, 1), both = per_byte(&t, mine, 2, true, 2);

        pthread_join(thread, NULL);
        *f = (struct hkt_fabric){.name = "shm-here", .hosts = 1, .per_host = ranks, .oversubscription = 1, .gamma = fold, .copy = copy,
                                 .depth = HKT_FABRIC_DEPTH, .window = 1};
        for (int span = 0; span < HKT_SPANS; span++)
            f->wire[span] = (struct hkt_span_cost){.alpha = way, .touch = both > fold ? both - fold : copy / 8};
        rc = 0;
    } else {
        hkt_fail(HKT_ERR_MEMORY, "no memory or thread to measure with");
    }
    free(t.block);
    free(mine);
    return rc;
}
