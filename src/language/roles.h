/* roles.h -- the programs of all ranks, each kept once; and which ranks need be run at all.
 *
 * Where every rank does the same, seen from where it stands (ring, circulant, direct, pat), and the fabric looks alike from every host, or
 * every leaf, the ranks of one host or leaf stand for all: what one of them sends to a rank far away is what it hears from the rank as far on
 * the other side. So 100,000 ranks cost as much as 8. Whether that holds is not declared: programs are compared, a host (or leaf) at a time,
 * at several places.
 */
#ifndef HKT_ROLES_H
#define HKT_ROLES_H

#include "fabric.h"
#include "program.h"

struct hkt_roles {
    struct hkt_program *program;
    uint32_t            programs, cap;
    uint32_t           *of; /* program of each rank that is run */
    uint32_t            size, ranks; /* all; those that are run, the first ones */
    uint64_t            messages, peers; /* of the ranks that are run */
};

/* `all`: no merging, for comparison. Returns HKT_ERR_UNSUPPORTED with the reason where that is more than this machine should be asked for. */
int  hkt_roles_make(struct hkt_roles *roles, const struct hkt_algorithm *a, const struct hkt_shape *shape, const struct hkt_fabric *f, bool all);
void hkt_roles_free(struct hkt_roles *roles);

#endif
