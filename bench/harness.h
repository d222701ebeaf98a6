/* harness.h -- what a measuring program of bench/versus is made of. One harness (harness.c: starting, lining up,
 * commands; cell.c: buffers, patterns, timing) is linked with one backend file per library. The harness keeps its own
 * shared page, so that every library is started, woken, lined up, timed and checked in exactly the same way. */
#ifndef VERSUS_HARNESS_H
#define VERSUS_HARNESS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_RANKS = 64, MAX_BATCHES = 64, EXCHANGE_BYTES = 1024 };

enum element { FLOAT32, FLOAT16, BFLOAT16, ELEMENTS };

enum collective {
    ALL_REDUCE,
    ALL_REDUCE_IN_PLACE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    ALL_TO_ALL,
    SENDRECV,
    PINGPONG,
    COLLECTIVES
};

struct world {
    int         rank, size, shared; /* shared: there are more ranks than processors */
    const char *directory;          /* for files that bring the ranks together; removed by bench/versus */
    int         hosts;              /* of bench/versus --network; else 1 */
    char        address[32];        /* of this rank's host */
};

/* One library. Operations return 0, or -1 when the library has no such thing (the cell is then left out for it). Counts
 * are elements: of the buffer for all_reduce, broadcast and the messages, of one rank's block for the others. A kind is
 * a variant inside the same processes, a kind of memory or an algorithm; versus_build.py names them in this order.
 * Every rank calls everything in the same order. */
struct backend {
    int one_memory; /* all kinds may use the same buffers */
    int moves_only; /* a floor: only messages arrive where they belong, collectives are not checked */
    int (*open)(const struct world *world, char *version, size_t size);
    void (*close)(void);
    void (*select)(int kind);
    void *(*allocate)(int kind, size_t bytes); /* NULL: failed */
    void (*release)(int kind, void *memory, size_t bytes);
    void (*progress)(void); /* called while the ranks line up; may be NULL */
    int (*all_reduce)(const void *send, void *recv, size_t count, enum element type);
    int (*reduce_scatter)(const void *send, void *recv, size_t count, enum element type);
    int (*all_gather)(const void *send, void *recv, size_t count, enum element type);
    int (*broadcast)(void *buffer, size_t count, enum element type); /* from rank 0 */
    int (*all_to_all)(const void *send, void *recv, size_t count, enum element type);
    int (*sendrecv)(const void *send, int to, void *recv, int from, size_t count, enum element type);
    int (*send)(const void *send, size_t count, enum element type, int to);
    int (*receive)(void *recv, size_t count, enum element type, int from);
};
extern const struct backend the_backend;

/* One order of bench/versus: measure this cell. */
struct order {
    int    stop; /* 1: leave; 2: free all buffers */
    int    collective, element, kind;
    int    rewrite;  /* every rank writes its send buffer anew before each operation */
    int    batches;  /* at most this many */
    long   repeat;   /* operations per batch; 0: find out */
    size_t bytes;    /* as nccl-tests count: the whole n-rank buffer */
    double batch_us; /* how long a batch should take, for repeat 0 */
    double limit_us; /* start no further batch after this long */
};

struct outcome {
    int    unsupported, batches;
    long   repeat;
    long   wrong;            /* elements, over all ranks */
    double faults, switches; /* page faults and involuntary switches per operation, of the worst rank */
    double us[MAX_BATCHES];  /* per operation, slowest rank */
};

/* harness.c */
double now_us(void);
void   line_up(void);                                       /* a barrier of the ranks, outside the library */
double slowest(double value);                               /* the largest over the ranks */
void   exchange(const void *mine, void *all, size_t bytes); /* at most EXCHANGE_BYTES each */
void   slowest_each(double *values, int count);             /* element by element, at most MAX_BATCHES */

/* cell.c */
void cell_measure(const struct world *world, const struct order *order, struct outcome *outcome);
void cell_release(void);

#ifdef __cplusplus
}
#endif
#endif
