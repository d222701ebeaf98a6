/* buckets.h -- the gradients as a few runs of memory, each averaged over the ranks as soon as the backward pass has
 * finished it.
 *
 * The backward pass works from the last parameter to the first, so buckets are cut from the end and launched in that
 * order, on a stream, while the pass goes on. Every rank launches the same buckets in the same order.
 */
#ifndef TRAINER_BUCKETS_H
#define TRAINER_BUCKETS_H

#include "model.h"
#include "watch.h"

#include <hocket.h>

struct bucket {
    size_t       first, count; /* floats of the gradient */
    hkt_event_t *averaged;
};

struct buckets {
    hkt_comm_t    *comm;
    hkt_stream_t  *stream;
    float         *gradient;
    struct bucket *bucket;
    int            count, launched, ranks;
    bool           overlap;
    struct watch   watch;
    double in_flight; /* seconds, summed over the finished steps: some bucket was launched and not yet averaged */
    double waited;    /* seconds: nothing was left to do but wait for them */
};

/* Cuts buckets of at least `bytes` from the end of the gradient, in whole tensors. */
void buckets_begin(struct buckets *buckets, const struct model *model, hkt_comm_t *comm, size_t bytes, bool overlap);
void buckets_end(struct buckets *buckets);

/* The hook for model_backward(): gradients from `offset` on are complete; arg is the buckets. */
void buckets_ready(void *arg, size_t offset);

/* Waits for all, and averages the loss over the ranks as well. Returns the global norm of the averaged gradient. */
double buckets_wait(struct buckets *buckets, double *loss);

#endif
