/* startup.c -- see startup.h. Ranks above a rank have smaller numbers, so one walk down the numbers goes up the tree, one up goes down. */
#include "startup.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>

enum { MOST_RANKS = 1 << 24 };

struct tree {
    const struct hkt_startup *how;
    double *ready;   /* per rank: when it has done the phase at hand */
    double *arrival; /* of the children of one rank */
    int    *below;   /* ranks in its subtree, itself among them */
};

static int first_child(const struct hkt_startup *how, int rank)
{
    const int64_t child = (int64_t)rank * how->fanout + 1;

    return child < how->ranks ? (int)child : how->ranks;
}

static int children(const struct hkt_startup *how, int rank)
{
    const int first = first_child(how, rank), left = how->ranks - first;

    return left < how->fanout ? left : how->fanout;
}

static int by_time(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* When the parent is through with all children, one at a time in the order they come; the k-th takes cost(k-th arrival). */
static double serve(double *arrival, int count, double from, double each)
{
    qsort(arrival, (size_t)count, sizeof(*arrival), by_time);
    for (int i = 0; i < count; i++)
        from = (arrival[i] > from ? arrival[i] : from) + each;
    return from;
}

/* All call at once; the last of a parent's children is in. Returns when the last of all is. */
static double connect_all(struct tree *t)
{
    const struct hkt_startup *how  = t->how;
    double                    last = 0;

    for (int r = 0; r < how->ranks; r++) {
        const int count = children(how, r);

        for (int i = 0; i < count; i++)
            t->arrival[i] = how->alpha;
        t->ready[r] = count ? serve(t->arrival, count, 0, how->accept) + (2 * how->trips - 1) * how->alpha : 0;
        last        = t->ready[r] > last ? t->ready[r] : last;
    }
    for (int r = 1; r < how->ranks; r++) { /* a rank is connected upwards when its parent is through with all */
        const double parent = t->ready[(r - 1) / how->fanout];

        t->ready[r] = parent > t->ready[r] ? parent : t->ready[r];
    }
    return last;
}

/* Up: what the subtrees have. A child that has more below it takes longer on the port. */
static void gather(struct tree *t)
{
    const struct hkt_startup *how = t->how;

    for (int r = how->ranks - 1; r >= 0; r--) {
        const int first = first_child(how, r), count = children(how, r);
        double    port = 0;

        t->below[r] = 1;
        for (int i = 0; i < count; i++) {
            t->arrival[i] = t->ready[first + i] + how->message + how->alpha;
            port += t->below[first + i] * how->bytes * how->beta;
            t->below[r] += t->below[first + i];
        }
        if (count)
            t->ready[r] = serve(t->arrival, count, t->ready[r], how->message + port / count);
    }
}

/* Down: the whole, to one child after the other. */
static double hand_down(struct tree *t)
{
    const struct hkt_startup *how   = t->how;
    const double              table = how->ranks * how->bytes * how->beta + how->message;
    double                    last  = t->ready[0];

    for (int r = 0; r < how->ranks; r++) {
        const int first = first_child(how, r), count = children(how, r);

        for (int i = 0; i < count; i++) {
            t->ready[first + i] = t->ready[r] + (i + 1) * table + how->alpha + how->message;
            last                = t->ready[first + i] > last ? t->ready[first + i] : last;
        }
        t->ready[r] += count * table;
    }
    return last;
}

static void run(struct tree *t, struct hkt_startup_result *result)
{
    result->connected = result->seconds = connect_all(t);
    for (int i = 0; i < t->how->gathers; i++) {
        gather(t);
        result->seconds = hand_down(t);
    }
    result->gathered      = result->seconds - result->connected;
    result->most_children = children(t->how, 0);
    for (int r = t->how->ranks - 1; r > 0; r = (r - 1) / t->how->fanout)
        result->depth++;
}

int hkt_startup_simulate(const struct hkt_startup *how, struct hkt_startup_result *result)
{
    const double number[] = {how->accept, how->message, how->alpha, how->beta, how->bytes};
    struct tree  t        = {.how = how};
    int          rc       = HKT_ERR_MEMORY;

    if (how->ranks < 1 || how->ranks > MOST_RANKS || how->fanout < 1 || how->trips < 1 || how->gathers < 0)
        return hkt_fail(HKT_ERR_ARGUMENT, "a start of %d ranks, fanout %d, %d round trips, %d gathers; 1 to %d ranks, and 1, 1 and 0 or more are "
                        "expected", how->ranks, how->fanout, how->trips, how->gathers, MOST_RANKS);
    for (int i = 0; i < 5; i++)
        if (!(number[i] >= 0 && number[i] < 1e9))
            return hkt_fail(HKT_ERR_ARGUMENT, "a start with a time or size of %g; none may be negative", number[i]);
    *result   = (struct hkt_startup_result){0};
    t.ready   = hkt_alloc((size_t)how->ranks * sizeof(*t.ready));
    t.arrival = hkt_alloc((size_t)how->ranks * sizeof(*t.arrival));
    t.below   = hkt_alloc((size_t)how->ranks * sizeof(*t.below));
    if (t.ready && t.arrival && t.below) {
        run(&t, result);
        rc = 0;
    }
    hkt_free(t.ready);
    hkt_free(t.arrival);
    hkt_free(t.below);
    return rc;
}
