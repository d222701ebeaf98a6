/* simulate_run.c -- hkt-simulate --run: the schedule for real, ranks as threads, messages as slots in memory that the sender fills: what the
 * simulator claims to predict, by the library's own kernels. It exists to be compared; the library itself does not send messages in one host.
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

enum { MOST_RANKS = 8, MOST_OPERANDS = 64, ROUNDS = 101, DEPTH = HKT_FABRIC_DEPTH };

struct fifo { /* from one rank to another; counters: release by who counts, acquire by who waits */
    _Alignas(128) atomic_uint sent;
    _Alignas(128) atomic_uint taken;
    char *slot; /* DEPTH chunks */
};

struct stage {
    int                 ranks;
    size_t              chunk; /* bytes */
    struct hkt_schedule schedule[MOST_RANKS];
    struct fifo         fifo[MOST_RANKS][MOST_RANKS];
    char               *memory[MOST_RANKS]; /* IN, OUT, TMP */
    size_t              out, tmp;           /* where they begin */
    atomic_uint         met; /* how often somebody has come to the meeting point */
    double              begin[MOST_RANKS], end[MOST_RANKS];
};

struct actor {
    struct stage *stage;
    int           rank;
    double        least; /* of rank 0: nine tenths of the rounds took longer */
};

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void wait_above(atomic_uint *counter, unsigned least)
{
    for (long spins = 0; (int)(atomic_load_explicit(counter, memory_order_acquire) - least) < 0; spins++)
        if (spins > 10000)
            sched_yield();
}

/* A barrier that nobody sleeps at: a wake-up would take longer than what is measured. The k-th of a thread. */
static void meet(struct stage *g, unsigned k)
{
    atomic_fetch_add_explicit(&g->met, 1, memory_order_acq_rel); /* with the others' waits for it */
    wait_above(&g->met, (k + 1) * (unsigned)g->ranks);
}

/* Where an operand is; waits for the message, or for room. */
static char *place(struct stage *g, int rank, struct hkt_operand o, bool source)
{
    struct fifo *f;
    unsigned     number;

    if (o.place != HKT_PEER)
        return g->memory[rank] + (o.place == HKT_IN ? 0 : o.place == HKT_OUT ? g->out : g->tmp) + o.id * g->chunk;
    f      = source ? &g->fifo[o.id][rank] : &g->fifo[rank][o.id];
    number = atomic_load_explicit(source ? &f->taken : &f->sent, memory_order_relaxed);
    if (source)
        wait_above(&f->sent, number + 1);
    else
        wait_above(&f->taken, number + 1 - DEPTH);
    return f->slot + number % DEPTH * g->chunk;
}

static void run_step(struct stage *g, int rank, const struct hkt_schedule *s, const struct hkt_step *st)
{
    const void             *src[MOST_OPERANDS];
    void                   *dst[MOST_OPERANDS];
    const struct hkt_reduce add = {.src = src, .dst = dst, .count = g->chunk / sizeof(float), .nsrc = st->nsrc, .ndst = st->ndst,
                                   .in = HKT_RAW, .out = HKT_FINISHED};

    for (uint32_t i = 0; i < st->nsrc; i++)
        src[i] = place(g, rank, hkt_sources(s, st)[i], true);
    for (uint32_t i = 0; i < st->ndst; i++)
        dst[i] = place(g, rank, hkt_destinations(s, st)[i], false);
    if (st->nsrc > 1)
        hkt_reduce_kernel(HKT_FLOAT32, HKT_SUM)(&add);
    else
        hkt_copy_bytes(dst, st->ndst, src[0], g->chunk, false);
    for (uint32_t i = 0; i < st->nsrc; i++)
        if (hkt_sources(s, st)[i].place == HKT_PEER)
            atomic_fetch_add_explicit(&g->fifo[hkt_sources(s, st)[i].id][rank].taken, 1, memory_order_release);
    for (uint32_t i = 0; i < st->ndst; i++)
        if (hkt_destinations(s, st)[i].place == HKT_PEER)
            atomic_fetch_add_explicit(&g->fifo[rank][hkt_destinations(s, st)[i].id].sent, 1, memory_order_release);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void *act(void *context)
{
    struct actor *a = context;
    struct stage *g = a->stage;
    double        time[ROUNDS];

    for (int round = 0; round < ROUNDS; round++) {
        const struct hkt_schedule *s = &g->schedule[a->rank];

        meet(g, 2 * (unsigned)round);
        g->begin[a->rank] = seconds();
        for (uint32_t i = 0; i < s->nsteps; i++)
            run_step(g, a->rank, s, &s->step[i]);
        g->end[a->rank] = seconds();
        meet(g, 2 * (unsigned)round + 1);
        time[round] = 0;
        for (int r = 0; r < g->ranks && a->rank == 0; r++) { /* from when the last came in */
            double entered = g->begin[0];

            for (int q = 1; q < g->ranks; q++)
                entered = g->begin[q] > entered ? g->begin[q] : entered;
            time[round] = g->end[r] - entered > time[round] ? g->end[r] - entered : time[round];
        }
    }
    qsort(time, ROUNDS, sizeof(*time), by_value);
    a->least = time[ROUNDS / 10]; /* what disturbs only adds, as in the measurements it is compared with */
    return NULL;
}

/* Schedules and memory of all ranks. */
static int prepare(struct stage *g, const struct hkt_offer *o, struct hkt_shape shape, double bytes)
{
    const bool vector = hkt_coll_in(shape.coll, HKT_COLLS_VECTOR);
    size_t     chunks = 0, tmp = 0;

    for (int r = 0; r < g->ranks; r++) {
        shape.rank = r;
        HKT_TRY(hkt_schedule_build(&g->schedule[r], o->algorithm, &shape));
        chunks = g->schedule[r].chunks * (vector ? 1u : (unsigned)g->ranks);
        tmp    = g->schedule[r].tmp_chunks > tmp ? g->schedule[r].tmp_chunks : tmp;
        for (uint32_t i = 0; i < g->schedule[r].nsteps; i++)
            if (g->schedule[r].step[i].nsrc > MOST_OPERANDS || g->schedule[r].step[i].ndst > MOST_OPERANDS)
                return hkt_fail(HKT_ERR_UNSUPPORTED, "--run takes steps of up to %d operands", MOST_OPERANDS);
    }
    g->chunk = (size_t)(bytes / (double)chunks) / 64 * 64;
    g->chunk = g->chunk ? g->chunk : 64;
    g->out   = chunks * g->chunk;
    g->tmp   = 2 * g->out;
    for (int r = 0; r < g->ranks; r++) {
        g->memory[r] = calloc(1, g->tmp + (tmp + 1) * g->chunk);
        if (!g->memory[r])
            return hkt_fail(HKT_ERR_MEMORY, "out of memory");
        memset(g->memory[r], 0, g->tmp + (tmp + 1) * g->chunk); /* its pages are there before the clock runs */
        for (int q = 0; q < g->ranks; q++) {
            g->fifo[r][q].slot = calloc(DEPTH, g->chunk);
            if (!g->fifo[r][q].slot)
                return hkt_fail(HKT_ERR_MEMORY, "out of memory");
        }
    }
    return 0;
}

static int perform(struct stage *g, double *least)
{
    struct actor actor[MOST_RANKS] = {{0}};
    pthread_t    thread[MOST_RANKS];

    for (int r = 0; r < g->ranks; r++) {
        actor[r] = (struct actor){g, r, 0};
        if (pthread_create(&thread[r], NULL, act, &actor[r])) { /* the others wait for it for ever: nothing can be undone */
            fprintf(stderr, "hkt-simulate: no thread for rank %d\n", r);
            exit(1);
        }
    }
    for (int r = 0; r < g->ranks; r++)
        pthread_join(thread[r], NULL);
    *least = actor[0].least;
    return 0;
}

int simulate_run(const struct hkt_offer *o, const struct hkt_question *q, int ranks, double *least)
{
    const struct hkt_shape shape = {.coll = q->coll, .size = ranks, .root = q->root};
    struct stage          *g;
    int                    rc;

    if (ranks > MOST_RANKS)
        return hkt_fail(HKT_ERR_UNSUPPORTED, "--run takes up to %d ranks", MOST_RANKS);
    g = aligned_alloc(128, sizeof(*g));
    if (!g)
        return hkt_fail(HKT_ERR_MEMORY, "out of memory");
    memset(g, 0, sizeof(*g));
    g->ranks = ranks;
    rc       = prepare(g, o, shape, q->bytes);
    if (rc == 0)
        rc = perform(g, least);
    for (int r = 0; r < ranks; r++) {
        hkt_schedule_free(&g->schedule[r]);
        free(g->memory[r]);
        for (int p = 0; p < ranks; p++)
            free(g->fifo[r][p].slot);
    }
    free(g);
    return rc;
}
