/* tune.h -- which way a call is run: flat or by schedule, and by which algorithm. Pure functions of what is equal on all ranks. */
#ifndef HKT_TUNE_H
#define HKT_TUNE_H

#include "run/communicator.h"
#include "run/plan.h"

void hkt_tune_start(void); /* reads HKT_ALGORITHM; once, before any call */

/* Small enough for the flat algorithm? */
bool hkt_tune_flat(const struct hkt_communicator *comm, const struct hkt_call *call);

/* How buffers of this reach are best used: small plain memory goes through staging, since reading it costs a system call. */
enum hkt_reach hkt_tune_reach(const struct hkt_call *call, size_t block, enum hkt_reach reach);

/* The same for a message. */
enum hkt_reach hkt_tune_message(enum hkt_reach reach, size_t bytes);

/* The plan for a call on buffers of this reach: from the cache, else chosen, built and kept. `block`: elements of the largest block of any rank. */
int hkt_tune_plan(struct hkt_communicator *comm, const struct hkt_call *call, enum hkt_reach reach, size_t block,
                  const struct hkt_plan **plan);

void hkt_tune_free(struct hkt_communicator *comm); /* the cache */

/* The algorithm the above takes, for a communicator of this kind: HKT_ALGORITHM, else the cheapest that keeps the order asked for. NULL
 * when none can run. */
const struct hkt_algorithm *hkt_tune_choose(const struct hkt_shape *shape, double bytes, hkt_order_t order);

/* The link between two ranks of a host. */
extern const struct hkt_link hkt_tune_local_link;

#endif
