/* choose.h -- which algorithm runs a collective, and why. Functions of what is equal on all ranks. */
#ifndef HKT_CHOOSE_H
#define HKT_CHOOSE_H

#include "hocket.h"
#include "language/cost.h"

/* What a choice is made on besides the call. */
struct hkt_terms {
    struct hkt_predictor *predictor; /* of the hosts and groups, with what was measured between hosts; NULL: there are none */
    int                   hosts;
    hkt_order_t           order;
    double                slice_bytes; /* that messages are cut to; 0: however long */
};

enum { HKT_REPLAY_MOST = 64 /* ranks; 8 ms (docs/simulator.md). More are chosen for by formula. */ };

void hkt_choose_start(void); /* reads HKT_ALGORITHM and HKT_TUNING; once, before any call */

/* What HKT_ALGORITHM says for the collective, or NULL. */
const struct hkt_algorithm *hkt_choose_forced(enum hkt_coll coll);

enum { HKT_REASON = 320 };

/* HKT_ALGORITHM, else the table of HKT_TUNING, else on one host `direct`, else the one that takes least; of those that can run the shape and keep the
 * order. Fills algorithm, inner and outer of the offer, and the result where there is one; `reason` says what decided. 0; HKT_ERR_MEMORY, which is
 * no choice; HKT_ERR_INTERNAL when none can run. */
int hkt_choose(const struct hkt_terms *terms, const struct hkt_shape *shape, double bytes, struct hkt_offer *offer, char reason[HKT_REASON]);

/* The shape to run an offer on: as given, or over hosts with groups and labels. */
struct hkt_shape hkt_choose_shape(const struct hkt_terms *terms, const struct hkt_shape *shape, const struct hkt_offer *offer);

#endif
