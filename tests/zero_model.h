/* zero_model.h -- a toy model for the suites of the optimizer: parameters of odd sizes in layers, with gradients that
 * depend on the weights, the rank, the step and the micro-batch, and one way to train it per struct way. */
#ifndef TEST_ZERO_MODEL_H
#define TEST_ZERO_MODEL_H

#include "harness.h"

#include <hocket_train.h>

#include <unistd.h>

enum { TOYS = 12, LAYERS = 5, TOY_ELEMENTS = 4096 /* at most */, TOY_STEPS = 3 };

struct way {
    int               stage;
    hkt_reduce_when_t reduce;
    size_t            bytes;            /* of a bucket */
    hkt_type_t        weight, gradient; /* HKT_INT8, that is 0: fp32 */
    hkt_tier_t        tier;
    const char       *path;
    bool              late, equal /* gradients are small integers, the same on all ranks */, resume;
    int               live, micro_batches; /* 0: 3 */
    size_t            tile;
    int               threads;
    uint64_t          freeze; /* 1-bit Adam */
};

struct toy {
    hkt_parameter_t parameter[TOYS];
    size_t          at[TOYS]; /* in struct result.state */
    int             group[TOYS], step, micro_batches, rank;
    hkt_type_t      weight, gradient;
    bool            equal, poison;
    hkt_comm_t     *comm;
    hkt_zero_t     *zero;
};

/* Everything, side by side. */
struct result {
    float  state[HKT_ZERO_KINDS][TOY_ELEMENTS];
    double norm[TOY_STEPS], clipped[TOY_STEPS];
};

size_t toy_elements(void);
void   toy_make(struct toy *t, struct rank *me, const struct way *w, hkt_ledger_t *ledger);
void   toy_free(struct toy *t);
void   toy_step(struct toy *t, hkt_zero_report_t *report); /* NULL: not wanted */
void   toy_state(struct result *r, struct toy *t);         /* collective */
size_t toy_largest_bucket(struct toy *t);
size_t toy_largest_group(struct toy *t); /* elements with padding */

/* Makes, trains for TOY_STEPS, frees. */
void result_of(struct result *r, struct rank *me, const struct way *w);

#endif
