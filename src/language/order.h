/* order.h -- the steps of schedules in the order in which they can be done, where messages take long.
 *
 * An algorithm writes its steps in the order that is easiest to read and needs two messages between ranks. A rank that runs them so waits for one message,
 * sends what it makes of it, waits for the next: a latency for each. Done as soon as their sources are there, the same steps take a latency for
 * each of the longest chain of messages. This puts them in the order of that time, once, when a plan is made; the engine still walks a straight line.
 *
 * What a step computes does not change, nor which message of a pair of ranks is the k-th; steps that touch the same place keep their order. So every value is
 * what it was, and the schedules are as right as before with `depth` messages between ranks (the verifier proves it: hkt_verify_ordered()).
 */
#ifndef HKT_ORDER_H
#define HKT_ORDER_H

#include "algorithm.h"

enum { HKT_ORDER_DEPTH = 8 }; /* messages that may be on their way between two ranks: HKT_WIRE_RING */

/* Reorders the steps of the schedules of all ranks. host: per rank, messages within one are quick; NULL: every rank is on its own.
 * 0; HKT_ERR_MEMORY: nothing has changed. Schedules that lock up stay as they are. */
int hkt_order_steps(struct hkt_schedule *const *schedule, const struct hkt_shape *shape, const int *host);

#endif
