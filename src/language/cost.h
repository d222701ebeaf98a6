/* cost.h -- what a collective will take on a fabric, by which algorithm it takes least, and why.
 *
 * A prediction replays the real schedule (simulate.h); programs once built are kept, so a second size costs only the run. Beside it stand the
 * formula of the algorithm's head comment and a lower bound that no algorithm of messages can beat.
 */
#ifndef HKT_COST_H
#define HKT_COST_H

#include "simulate.h"

struct hkt_predictor;

/* A prediction, or why there is none. */
struct hkt_offer {
    const struct hkt_algorithm *algorithm;
    const char                 *inner, *outer; /* of hierarchical; else NULL */
    bool                        canonical;     /* keeps the canonical order */
    double                      formula;       /* cost() on the links of the fabric, seconds */
    struct hkt_sim_result       result;    /* of the replay; by formula only its seconds */
    char                        why[160];  /* "": it can, and result is there */
};

struct hkt_question {
    enum hkt_coll coll;
    int           root, slices;
    double        bytes, slice_bytes; /* as in struct hkt_sim_load */
    bool          canonical; /* only those that keep the canonical order */
    bool          formula;   /* do not replay: where there are too many ranks to wait for that */
};

/* The fabric is copied, but for its seats, which must stay. 0 or HKT_ERR_*. */
int  hkt_predictor_open(struct hkt_predictor **p, const struct hkt_fabric *f);
void hkt_predictor_close(struct hkt_predictor *p); /* NULL is allowed */

/* `offer` says which algorithm, inner and outer; the rest is filled in. An algorithm that cannot is no error. 0 or HKT_ERR_MEMORY, _INTERNAL. */
int hkt_predict(struct hkt_predictor *p, const struct hkt_question *q, struct hkt_offer *offer);

enum { HKT_OFFERS_MOST = 64 };

/* The shape that an offer is made for, of rank `rank`: with labels where ranks are not host by host and a label may be, and hosts as groups (caches
 * on one host) where places then are. Points into the predictor. */
struct hkt_shape hkt_predictor_shape(const struct hkt_predictor *p, const struct hkt_question *q, const struct hkt_offer *offer, int rank);

/* All algorithms, hierarchical in several compositions, the fastest first; then those that cannot. Those of another order than asked for count
 * among these. 0 or HKT_ERR_*. */
int hkt_predict_all(struct hkt_predictor *p, const struct hkt_question *q, struct hkt_offer offer[HKT_OFFERS_MOST], int *count);

/* "ring", "hierarchical(direct,circulant)". */
const char *hkt_offer_name(const struct hkt_offer *offer, char text[64]);

/* "190 us". */
const char *hkt_time_text(double seconds, char text[24]);

/* Why it takes as long: "126 messages one after the other; latency 252 us of 417 us, card 165 us", or why it cannot. */
const char *hkt_offer_reason(const struct hkt_offer *offer, char text[200]);

/* No algorithm of messages takes less: one latency, and what must pass a rank, a host or a leaf at the least. `what` is which. */
double hkt_lower_bound(const struct hkt_question *q, const struct hkt_fabric *f, const char **what);

/* Bytes a rank moves at the least / bytes of the call, the factor of nccl-tests' bus bandwidth. */
double hkt_bus_factor(enum hkt_coll coll, int ranks);

#endif
