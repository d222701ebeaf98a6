/* bucket.h -- the inside of hkt_buckets_t, for the two files that make it up and for ZeRO, which shares its layout. */
#ifndef PARALLEL_BUCKET_H
#define PARALLEL_BUCKET_H

#include <parallel/adamw.h>
#include <parallel/bucket_layout.h>

#include <pthread.h>
#include <stdatomic.h>

/* Memory of one bucket of one micro-batch, on its way (with config.each only). */
struct hkt_staging {
    hkt_buckets_t *owner;
    void          *memory; /* as large as the largest bucket */
    int            bucket; /* -1: free */
    bool           first;  /* micro-batch of the step: the result is copied, not added */
    bool           flying;
    double         launched;
};

struct hkt_bucket {
    hkt_buckets_t                *owner;
    _Atomic int                   missing; /* announcements until it may be launched */
    _Atomic(struct hkt_staging *) staging; /* in which the micro-batch's gradients are collected */
    hkt_compressor_t             *compressor;
    _Atomic double                launched, started, finished; /* may be looked at while it is on its way */
};

struct hkt_buckets {
    hkt_parameter_t     *parameters;
    hkt_buckets_config_t config; /* defaults filled in; order and groups are the handle's own copies or NULL */
    hkt_comm_t          *comm;
    hkt_ledger_t        *ledger;
    hkt_stream_t        *stream; /* NULL: one rank, or no overlap */
    struct hkt_flat      flat;
    int                 *groups;
    int                  ranks, rank;
    size_t               size; /* bytes of an element */

    bool               plain;    /* the codec is not used for now */
    void              *gradient; /* sums: the whole space, or (each && sharded) this rank's pieces side by side */
    struct hkt_bucket *bucket;
    _Atomic uint32_t  *announced; /* per parameter: micro-batches of this step */

    /* Launching: who raises requests from 0 launches, for itself and for whoever raises it meanwhile. */
    _Atomic int requests;
    int         next; /* bucket; belongs to the one who launches */
    _Atomic int error;

    int  micro_batches, micro_batch; /* of the step; the current one */
    bool open, finished;

    pthread_mutex_t     lock; /* of staging[] */
    pthread_cond_t      freed;
    struct hkt_staging *staging; /* room for `most` */
    int                 stagings, most, turn; /* turn: where the search for a free one begins */

    _Atomic int   arrivals; /* first step with config.rebuild: */
    int          *arrival;  /* parameters as they arrived */
    uint64_t      steps;
    hkt_overlap_t overlap;
};

/* bucket_work.c: from ready buckets to reduced gradients. */
void   hkt_bucket_advance(hkt_buckets_t *buckets);     /* launches what is ready, in order; any thread */
int    hkt_bucket_launch_rest(hkt_buckets_t *buckets); /* all that is left of the micro-batch or step */
int    hkt_bucket_staging(struct hkt_staging **staging, int bucket, hkt_buckets_t *buckets);
void   hkt_bucket_expect(hkt_buckets_t *buckets);      /* counts announcements from the start */
int    hkt_bucket_settle(hkt_buckets_t *buckets);      /* waits for the stream */
int    hkt_bucket_add_staging(hkt_buckets_t *buckets); /* one more; the lock is held or nobody else is there yet */
double hkt_bucket_clock(void);

/* bucket.c: whether the codec is used, and in which units (compress.h; of the space of all buckets; NULL: none). Not in a step. */
int hkt_bucket_code(hkt_buckets_t *buckets, bool use, const float *unit);

/* bucket.c: a number of the names of all parameters and where they lie: the same on all ranks that have the same
 * buckets. */
uint64_t hkt_bucket_layout(const hkt_buckets_t *buckets);

/* The reduced numbers of a bucket that this rank has: all of it, or with config.sharded its piece. */
void *hkt_bucket_result(hkt_buckets_t *buckets, int bucket);

#endif
