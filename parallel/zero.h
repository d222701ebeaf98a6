/* zero.h -- the inside of hkt_zero_t, for the files that make it up.
 *
 * Everything lies in the space of all buckets (bucket_layout.h), without the copies at its end. What a rank owns of a
 * bucket, its "own run", is the whole bucket in stage 0 and its piece in the others; own runs side by side are the "own
 * space", in which optimizer state lies. Files: zero.c makes it, zero_gather.c hands out weights, zero_norm.c finishes
 * gradients, zero_step.c updates, zero_freeze.c makes it
 * 1-bit Adam, zero_team.c has the threads for both, zero_state.c is for checkpoints. */
#ifndef PARALLEL_ZERO_H
#define PARALLEL_ZERO_H

#include <parallel/bucket.h>
#include <parallel/offload.h>

/* Weights of one group, gathered (stage 3). */
struct hkt_slot {
    hkt_zero_t  *owner;
    void        *memory;
    hkt_event_t *gathered;
    int          group;   /* -1: nothing */
    int          users;   /* fetches without release */
    bool         fetched; /* since it was gathered */
    uint64_t     used;    /* when last, for the choice of what to overwrite */
};

/* Gathers the weights of one bucket (stages 1 and 2). */
struct hkt_gather {
    hkt_zero_t  *owner;
    hkt_event_t *gathered;
    int          bucket;
    bool         pending; /* launched, and nobody has waited yet */
};

struct hkt_worker;

struct hkt_zero {
    hkt_zero_config_t config;
    hkt_comm_t       *comm, *gather_comm; /* the latter a duplicate, for the gathers that overlap with reductions */
    hkt_ledger_t     *ledger;
    hkt_buckets_t    *buckets;
    const struct hkt_flat *flat;
    int                    ranks, rank;
    bool                   part;  /* weights lie in own runs only (stage 3, several ranks) */
    bool                   apart; /* masters are not the weights themselves */
    size_t                 wsize; /* bytes of a weight */
    int                   *order; /* per parameter: its place in the order of the buckets */

    void               *weight;                /* the whole space, or own runs side by side */
    float              *state[HKT_ZERO_KINDS]; /* own space; NULL: in weight (master), or in `offload` */
    size_t              own;                   /* elements of the own space */
    struct hkt_offload *offload;
    struct hkt_tile    *tiles; /* in the order in which the next forward pass needs them */
    int                 n_tiles;
    _Atomic int        *left;       /* per bucket: tiles of this pass that are not done */
    struct hkt_worker  *workers;    /* beside the caller */
    float              *replicated; /* staging for the sum over config.tensor */
    size_t              n_replicated;
    uint64_t            steps;
    float              *unit;   /* 1-bit Adam: in what gradients are rounded; the whole space, as stage is 0 */
    bool                frozen; /* the second moment stays, and unit is made of it */

    hkt_stream_t      *stream; /* of gathers; NULL: one rank */
    _Atomic int        error;  /* of a gather */
    struct hkt_gather *gather; /* per bucket */

    int             *group, groups;   /* per parameter */
    size_t          *place;           /* per bucket: its first element in a slot */
    size_t          *group_size;      /* per group: elements, with padding */
    struct hkt_slot *slot;            /* room for one per group, `slots` are made */
    int              slots, *slot_of; /* per group; -1: not there */
    int     *follows; /* by 3 * group + (0 from below, 1 from above, 2 from itself): fetched next the last time; -1 */
    int      last, key, first; /* fetched last; its key in follows[]; first of the step; -1 */
    uint64_t clock, gathered, reused;
};

/* zero_team.c: job(arg, tile, worker) for every tile, in order but several at a time: the caller is worker 0. After
 * each of its own and at the end the caller runs between(arg), unless NULL. The first error is returned; what else can
 * be done is done. */
enum { HKT_ZERO_WORKERS = 64 };
typedef int hkt_zero_job(void *arg, const struct hkt_tile *tile, int worker);
int         hkt_zero_each_tile(hkt_zero_t *zero, hkt_zero_job *job, int (*between)(void *arg), void *arg);
int         hkt_zero_make_team(hkt_zero_t *zero);
int         hkt_zero_free_team(hkt_zero_t *zero);

/* Of a bucket. */
size_t hkt_zero_own_count(const hkt_zero_t *zero, int bucket);
size_t hkt_zero_own_first(const hkt_zero_t *zero, int bucket);                       /* in the own space */
size_t hkt_zero_own_flat(const hkt_zero_t *zero, int bucket);                        /* in the space of all buckets */
void  *hkt_zero_own_weight(const hkt_zero_t *zero, int bucket);                      /* of this rank's own run */
float *hkt_zero_own_state(const hkt_zero_t *zero, hkt_zero_kind_t kind, int bucket); /* NULL: in a file */

/* Whether a parameter is a copy of one that is here, too: then it has a gradient only. */
bool hkt_zero_is_copy(const hkt_zero_t *zero, int parameter);

/* zero_gather.c */
int hkt_zero_make_gathers(hkt_zero_t *zero);
int hkt_zero_free_gathers(hkt_zero_t *zero);
int hkt_zero_gather(hkt_zero_t *zero, int bucket); /* stages 1 and 2: launches */
int hkt_zero_forget(hkt_zero_t *zero);         /* stage 3: what was gathered is old; refused while groups are fetched */
int hkt_zero_prefetch_first(hkt_zero_t *zero); /* stage 3: the group with which the next pass begins */

/* zero_norm.c: copies, embeddings and tensor-parallel sums; then the norm. */
int hkt_zero_complete(hkt_zero_t *zero);
int hkt_zero_norm(double *norm, hkt_overflow_t *overflow, hkt_zero_t *zero);

/* zero_freeze.c: before a step's gradients come. */
int hkt_zero_check_freeze(const hkt_zero_t *zero);
int hkt_zero_freeze(hkt_zero_t *zero);

/* zero_state.c: weights from masters, on this rank. */
int hkt_zero_make_weights(hkt_zero_t *zero);

#endif
