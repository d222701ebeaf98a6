/* job.h -- one call of any collective on memory of any kind, with inputs made and results checked against reference.c.
 *
 * Plain forms and v-forms are one thing here: blocks with counts and displacements. Checked are the results, that nothing between,
 * before and behind the blocks has changed, and that the input has not.
 */
#ifndef TEST_JOB_H
#define TEST_JOB_H

#include "arena.h"
#include "reference.h"

enum coll {
    ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, REDUCE, BROADCAST, GATHER, SCATTER, ALL_TO_ALL,
    PLAIN_COLLS,
    REDUCE_SCATTER_V = PLAIN_COLLS, ALL_GATHER_V, GATHER_V, SCATTER_V, ALL_TO_ALL_V, BARRIER, COLLS
};

extern const char *const coll_name[COLLS];
bool                     coll_reduces(enum coll coll);

enum { MOST_BLOCKS = 64 };

struct job {
    enum coll   coll;
    hkt_type_t  type;
    int         op; /* HKT_SUM ... HKT_AVG, OP_PREMUL; of collectives that reduce */
    size_t      count; /* elements of a block; of the largest in a v-form */
    int         root;
    bool        in_place; /* where the collective has it */
    bool        packed;   /* v-forms: displacements NULL */
    bool        sparse;   /* v-forms: most blocks are empty */
    enum memory memory[SIDES];
    size_t      shift[SIDES]; /* bytes off alignment */
    enum values values;
    uint64_t    seed;
};

/* Where jobs run: one rank's end of a communicator, with memory and the operators for premultiplied sums. */
struct running;
struct lab {
    hkt_comm_t  *comm;
    int (*call)(const struct running *r, hkt_stream_t *stream); /* how jobs are called; NULL: job_call() with the spans' memory */
    void        *call_arg;
    int          rank, n;
    struct arena arena;
    hkt_op_t     premul[2]; /* of unsigned integers, of the other types */
    long         jobs;
};

void lab_open(struct lab *lab, hkt_comm_t *comm, size_t bytes); /* bytes: the largest buffer */
void lab_close(struct lab *lab);

/* A job in flight. */
struct running {
    struct job  job;
    struct lab *lab;
    uint64_t    data; /* another number, other inputs */
    struct span span[SIDES]; /* in place: SEND only, it holds both */
    char       *at[SIDES];   /* first byte of block space; NULL where the rank has no such buffer */
    size_t      counts[SIDES][MOST_BLOCKS], displs[SIDES][MOST_BLOCKS]; /* elements */
    int         blocks[SIDES]; /* 0, 1 or n */
    bool        all[SIDES];    /* has a block per rank, not only the rank's own; blocks may be 1 either way */
};

/* Makes the inputs and calls the collective; job_check() when it is complete. `stream` may be NULL. Spans stay in use until
 * arena_reset(). */
void job_start(struct running *r, struct lab *lab, const struct job *job, hkt_stream_t *stream);
void job_check(const struct running *r);

/* Other inputs in the same memory, for a call that was made once and runs again. */
void job_again(struct running *r, uint64_t data);

/* All of it, blocking. */
void job_run(struct lab *lab, const struct job *job);

/* A job made from random bits; `count` as given, everything else at random where the collective leaves a choice. */
struct job job_random(uint64_t random, enum coll coll, hkt_type_t type, size_t count, int n);

/* Just makes the call with these buffers, for tests that bring their own. */
int job_call(const struct running *r, const void *send, void *recv, hkt_stream_t *stream);

#endif
