/* concrete.h -- a second judge of schedules: runs them on numbers in real memory, in place or not, and looks at the result. It shares no
 * code with the verifier, sees no rules, only what comes out; so it tells which broken schedules do harm. */
#ifndef HKT_TEST_CONCRETE_H
#define HKT_TEST_CONCRETE_H

#include "language/algorithm.h"

struct concrete {
    const struct hkt_schedule *schedule; /* one per rank; every id within its place */
    const struct hkt_shape    *shape;
    int                        depth; /* of the FIFOs */
    bool                       in_place;
    bool                       ordered; /* the result must be the canonical tree; else any order of the sum */
};

/* True when every rank ends with the right numbers, no step waits for ever and no message is left. */
bool concrete_run(const struct concrete *c);

#endif
