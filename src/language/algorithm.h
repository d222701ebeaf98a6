/* algorithm.h -- what an algorithm is: four pure functions and a name, one file each in algorithms/.
 *
 * The table hkt_algorithms[] is generated from ALGORITHM_SOURCES in Makefile.am, so a new file and one line there add one.
 * The step tables in the files are what the hkt-verify line above each prints (<p: the next message from rank p, >p: a message to
 * rank p, =>: finished); a test compares them.
 */
#ifndef HKT_ALGORITHM_H
#define HKT_ALGORITHM_H

#include "schedule.h"

#include <stdbool.h>
#include <stddef.h>

/* Which collective. Chunks of IN and OUT: `vector` ones cut the whole vector into schedule.chunks chunks (all_reduce, reduce,
 * broadcast); `blocks` ones have one block per rank, each cut into schedule.chunks pieces: chunk = block * chunks + piece;
 * where a side has only the rank's own block (IN of all_gather and gather, OUT of reduce_scatter and scatter), chunk = piece.
 * In most schedules of the block kind chunks is 1. */
enum hkt_coll {
    HKT_COLL_ALL_REDUCE, HKT_COLL_REDUCE_SCATTER, HKT_COLL_ALL_GATHER, HKT_COLL_REDUCE, HKT_COLL_BROADCAST,
    HKT_COLL_GATHER, HKT_COLL_SCATTER, HKT_COLL_ALL_TO_ALL,
    HKT_COLL_SCHEDULED, /* number of the above: those that algorithms exist for */
    HKT_COLL_BARRIER = HKT_COLL_SCHEDULED, HKT_COLL_SEND, HKT_COLL_RECV, HKT_COLL_SPLIT, HKT_COLLS
};

extern const char *const hkt_coll_name[HKT_COLLS]; /* "all_reduce", ... */

/* All that an algorithm may look at. */
struct hkt_shape {
    enum hkt_coll coll;
    int           rank, size, root; /* root 0 where there is none */
    int           ngroups;          /* node groups: consecutive ranks; 0 or 1: no grouping known */
    const int    *group_start;      /* ngroups + 1 entries, first 0, last size */
    int           radix;            /* of the radix-k algorithms, >= 2; 0: the algorithm's own default */
    const char   *inner, *outer;    /* hierarchical: names of the algorithms it composes; NULL: its defaults */
    int           pieces;           /* of the pipelined algorithms: chunks that follow each other on a path; 0: the default */
    const int    *label;            /* size entries, each rank once: who takes the place of rank r in the schedule; NULL: r itself. Groups are those
                                     * of the places. No algorithm sees it: hkt_schedule_build() and its neighbours stand between */
};

/* What a link costs, for cost(). */
struct hkt_link {
    double alpha; /* latency of one message, seconds */
    double gap;   /* time between two messages from one rank, seconds */
    double beta;  /* seconds per byte of one transfer */
    double gamma; /* seconds per byte of reduction */
    const struct hkt_link *outer; /* hierarchical: the links between groups; NULL: the same as inside */
};

struct hkt_algorithm {
    const char *name, *desc;
    uint32_t    colls;     /* bit per hkt_coll */
    uint32_t    canonical; /* bit per hkt_coll: the sum is the canonical tree for every shape that refuse() lets through */
    bool (*canonical_for)(const struct hkt_shape *); /* optional: also for the shapes it is true for */

    /* What follows sees shapes without labels, and is called by hkt_algorithm_refuses() and those beside it only. */

    /* NULL: can run this shape; else why not, a static sentence. Optional: NULL runs all of `colls`. */
    const char *(*refuse)(const struct hkt_shape *);
    /* Seconds for `bytes` (the vector, or the whole of the n blocks), by the formula of the file's head comment. */
    double (*cost)(const struct hkt_shape *, double bytes, const struct hkt_link *);
    /* Messages leave rank shape->rank: how many bytes it sends, in units of `chunk` as cut by the schedule, counted in chunk
     * transfers. The verifier compares it with the schedule. */
    uint64_t (*sent)(const struct hkt_shape *);
    /* Writes the steps of shape->rank. 0 or HKT_ERR_*. */
    int (*build)(struct hkt_schedule *, const struct hkt_shape *);
};

extern const struct hkt_algorithm *const hkt_algorithms[]; /* NULL-terminated; file foo.c defines hkt_algorithm_foo */

const struct hkt_algorithm *hkt_algorithm_find(const char *name);                                        /* or NULL */
const char *hkt_algorithm_refuses(const struct hkt_algorithm *a, const struct hkt_shape *shape); /* NULL: it runs */

/* True when the sum is the canonical tree for this shape: what a communicator of canonical order may run. True for the
 * collectives that reduce nothing, false for others with labels. */
bool hkt_algorithm_canonical(const struct hkt_algorithm *a, const struct hkt_shape *shape);

double   hkt_algorithm_cost(const struct hkt_algorithm *a, const struct hkt_shape *shape, double bytes, const struct hkt_link *link);
uint64_t hkt_algorithm_sent(const struct hkt_algorithm *a, const struct hkt_shape *shape);

/* Writes the steps of rank shape->rank, by their labels: the algorithm's, for the place of that rank, with peers and blocks renamed. */
int hkt_schedule_build(struct hkt_schedule *s, const struct hkt_algorithm *a, const struct hkt_shape *shape);

/* Writes the schedule of a communicator of one rank: every collective is then a copy, which a reduction finishes. Returns as build. */
int hkt_schedule_alone(struct hkt_schedule *s, const struct hkt_shape *shape);

/* Refusals that several algorithms share: more sources or destinations than a step holds; a radix that is none. */
const char *hkt_refuse_wide(const struct hkt_shape *shape);
const char *hkt_refuse_radix(const struct hkt_shape *shape);

#define HKT_COLL_BIT(name) (1u << HKT_COLL_##name)

enum {
    HKT_COLLS_REDUCING = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(REDUCE_SCATTER) | HKT_COLL_BIT(REDUCE),
    HKT_COLLS_ROOTED   = HKT_COLL_BIT(REDUCE) | HKT_COLL_BIT(BROADCAST) | HKT_COLL_BIT(GATHER) | HKT_COLL_BIT(SCATTER),
    HKT_COLLS_VECTOR   = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(REDUCE) | HKT_COLL_BIT(BROADCAST) /* the others: blocks */
};

static inline bool hkt_coll_in(enum hkt_coll coll, unsigned set)
{
    return set >> coll & 1;
}

/* (a mod n) for any sign of a. */
static inline int hkt_mod(int a, int n)
{
    return (a % n + n) % n;
}

/* Rounds that multiply a reach by `base` until it covers n: ceil(log_base n). */
static inline int hkt_log_ceil(int n, int base)
{
    int rounds = 0;

    for (int64_t reach = 1; reach < n; reach *= base)
        rounds++;
    return rounds;
}

#endif
