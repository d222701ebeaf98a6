/* verify.h -- proves schedules by running them symbolically, all ranks at once: no buffers, no numbers, no network.
 *
 * What a proof covers: the result of every rank, every rule of schedule.h, no deadlock and no message left over with FIFOs of the
 * depth asked for, all ranks the same bits, the canonical order where it is promised, and messages sent equal to sent().
 * A schedule is a network of sequential processes with FIFOs between, so the order in which ranks run changes no value, and more
 * depth never blocks what less depth let through: one run per depth is a proof.
 */
#ifndef HKT_VERIFY_H
#define HKT_VERIFY_H

#include "algorithm.h"

enum { HKT_VERIFY_MAX_DEPTH = 8 };

struct hkt_verify_result {
    uint64_t steps, messages; /* of all ranks together */
    bool     canonical;       /* every sum is the canonical tree; true where nothing is summed */
    char     why[256];        /* "" or the first thing found wrong */
};

/* Builds the schedules of every rank of the shape (whose rank does not matter) and proves them. NULL: right; else `result->why`. */
const char *hkt_verify(const struct hkt_algorithm *a, const struct hkt_shape *shape, int depth,
                       struct hkt_verify_result *result);

/* The same with the steps in the order in which they can be done (order.h), and as much depth as that takes; groups are hosts. Of what
 * hkt_verify() finds right. */
const char *hkt_verify_ordered(const struct hkt_algorithm *a, const struct hkt_shape *shape, struct hkt_verify_result *result);

/* The same for schedules at hand, one per rank; what only the algorithm knows (promised order, sent) is not compared. */
const char *hkt_verify_schedules(const struct hkt_schedule *schedule, const struct hkt_shape *shape, int depth,
                                 struct hkt_verify_result *result);

#endif
