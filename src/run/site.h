/* site.h -- who is near whom among the ranks of a communicator, as algorithms are chosen and schedules are labelled by it: hosts, and within them the groups
 * of ranks that share a socket, memory node and last cache. Ranks that are not bound are nowhere in particular, and so side by side.
 *
 * Between hosts it also holds what links cost (far_measure.c). On one host groups are used where HKT_ALGORITHM or HKT_TUNING ask for hierarchical.
 */
#ifndef HKT_SITE_H
#define HKT_SITE_H

#include "language/cost.h"
#include "run/communicator.h"
#include "setup/here.h"

struct hkt_site {
    struct hkt_seat      *seat;      /* per rank */
    struct hkt_fabric     fabric;    /* of the seats; what links cost; the same on all ranks */
    struct hkt_predictor *predictor; /* of it; NULL until links are known */
};

/* From where every rank says it is; after the hosts are known. Makes none on one host where all are side by side. HKT_ERR_MEMORY. */
int  hkt_site_make(struct hkt_communicator *c, const struct hkt_here *here);
void hkt_site_free(struct hkt_communicator *c); /* also when there is none */

#endif
