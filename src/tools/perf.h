/* perf.h -- the parts of hkt-perf: settings (perf_main.c), what can be measured (perf_cases.c), proving the results
 * (perf_verify.c), timing (perf_measure.c), table, JSON and plot (perf_output.c). Only include/hocket.h of the library
 * is used.
 *
 * Flags, table, bandwidth factors and the idea of the check are those of nccl-tests, so that figures can be laid side
 * by side.
 */
#ifndef HKT_PERF_H
#define HKT_PERF_H

#include "flags.h"
#include "hocket.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum perf_average { AVERAGE_RANK0, AVERAGE_MEAN, AVERAGE_MIN, AVERAGE_MAX };
enum perf_statistic { STAT_AVG, STAT_MEDIAN, STAT_MIN };
enum perf_memory { MEMORY_MALLOC, MEMORY_REGISTERED, MEMORY_HOCKET };

struct perf_settings {
    const char *collective, *type, *op, *root, *json, *svg; /* lists of words, then files */
    size_t      begin, end, step, shift;
    double      factor, timeout;
    long        threads, iters, warmup, together, cycles, check, misalign, average, memory, blocking;
    int         statistic;
    bool        verbose;
    const char *command; /* the whole command line */
};
extern struct perf_settings perf;

/* ---- cases ------------------------------------------------------------------------------------------------------- */

enum perf_side { SIDE_NONE, SIDE_OWN /* the rank's own vector or block */, SIDE_ALL /* a block for every rank */ };
enum perf_source {
    SOURCE_SUM /* the reduction over all ranks */,
    SOURCE_EACH /* block r comes from rank r */,
    SOURCE_ROOT,
    SOURCE_PREVIOUS,
    SOURCE_PARTNER
};

struct perf_rank;
struct perf_call;

struct perf_case {
    const char      *name;
    enum perf_side   send, recv;
    enum perf_source source;
    bool             send_root, recv_root; /* only the root has that side */
    bool             reduces;
    bool             in_place; /* has an in-place form */
    int              weights;  /* 0: equal counts; 1: counts differ by rank; 2: by pair of ranks */
    double           share;    /* of the time of a call that one transfer takes (0.5: there and back) */
    enum { FACTOR_ONE, FACTOR_OTHERS /* (n-1)/n */, FACTOR_TWICE /* 2(n-1)/n */ } factor;
    int (*run)(const struct perf_rank *, const struct perf_call *, const void *send, void *recv);
};

extern const struct perf_case perf_cases[];
extern const size_t           perf_case_count;

const struct perf_case *
perf_case_find(const char *name); /* "alltoall", "all-to-all", "AllToAll" name all_to_all; or NULL */

/* One rank: a thread of this process and its communicator. */
struct perf_rank {
    hkt_comm_t   *comm;
    hkt_stream_t *stream; /* NULL: blocking calls */
    int           rank, size;
    char         *area[2];         /* for send and recv */
    void         *handle[2];       /* of their registration */
    size_t        room;            /* bytes of each */
    uint64_t      checks;          /* so far: the next one's seed */
    size_t        slide;           /* where in them the current call's buffers begin (--shift) */
    size_t       *counts, *displs; /* of the current call, by rank */
    bool          prints;
};

/* What is measured: the same on every rank. */
struct perf_call {
    const struct perf_case *what;
    size_t                  count; /* elements of one block of weight 1, or of the vector */
    hkt_type_t              type;
    int                     op_index; /* HKT_SUM ..., HKT_OPS for the premultiplied sum */
    hkt_op_t                op;
    int                     root;
};

/* Elements (times `count`) that the largest rank sends or receives. */
size_t perf_case_volume(const struct perf_case *what, int size);

/* Fills rank->counts and displs for the call. */
void perf_blocks(struct perf_rank *rank, const struct perf_call *call);

/* Elements of the side in this rank's buffer; 0 where it has none. */
size_t perf_elements(const struct perf_rank *rank, const struct perf_call *call, bool recv);

/* In place: how many elements lie before the side in the common buffer. */
size_t perf_place(const struct perf_rank *rank, const struct perf_call *call, bool recv);

/* First element, in rank `from`'s send buffer, of what this rank gets from it. */
size_t perf_origin(const struct perf_rank *rank, const struct perf_call *call, int from);

double perf_factor(const struct perf_case *what, int size);

/* ---- verify ------------------------------------------------------------------------------------------------------ */

/* This rank's scalar of the premultiplied sum. */
static inline double perf_scalar(int rank)
{
    return rank % 2 ? 2 : 1;
}

/* Writes the input, and garbage where results are to appear; later counts elements that are not exactly right, the
 * input that must not have changed and the bytes around the results included. `seed` makes every check's data differ.
 */
void   perf_prepare(const struct perf_rank *rank, const struct perf_call *call, bool in_place, uint64_t seed);
size_t perf_wrong(const struct perf_rank *rank, const struct perf_call *call, bool in_place, uint64_t seed);

/* ---- measure ----------------------------------------------------------------------------------------------------- */

enum {
    PERF_GUARD = 64,  /* bytes before and behind results that nobody may touch */
    PERF_LEAD  = 4096 /* bytes of an area before its first buffer, which so begins at a page */
};

struct perf_cell {
    bool   valid; /* false: there is no such form */
    double time_s, algorithm_gbps, bus_gbps;
    double wrong;                   /* elements; -1: not checked */
    double cpu_s, faults, switches; /* per operation and rank */
    long   iters;
};

/* Where the rank's buffers begin; in place both lie in the second one. */
char *perf_base(const struct perf_rank *rank, bool recv);
char *perf_send(const struct perf_rank *rank, const struct perf_call *call, bool in_place);
char *perf_recv(const struct perf_rank *rank, const struct perf_call *call, bool in_place);

/* Collective. 0 or HKT_ERR_*. */
int perf_measure(struct perf_rank *rank, const struct perf_call *call, bool in_place, struct perf_cell *cell);

/* Over all ranks. */
int perf_reduce(const struct perf_rank *rank, double *values, size_t count, hkt_op_t op);

/* ---- output (rank 0 only) ---------------------------------------------------------------------------------------- */

struct perf_place {
    char host[56];
    int  pid, thread, cpu;
};

struct perf_row {
    const struct perf_case *what;
    size_t                  bytes, count;
    hkt_type_t              type;
    int                     op_index, root;
    struct perf_cell        cell[2]; /* out of place, in place */
};

int  perf_output_begin(const struct perf_place *places,
                       int                      size); /* 0, or -1 with a message where a file cannot be made */
void perf_output_table(const struct perf_case *what);
void perf_output_row(const struct perf_row *row);
int  perf_output_end(void); /* the exit status: 1 when an element was wrong */

const char *perf_op_name(const struct perf_case *what, int op_index); /* "none" where nothing is reduced */

#endif
