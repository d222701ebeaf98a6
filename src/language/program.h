/* program.h -- a schedule as the simulator runs it: only what costs time, and peers by how far they stand instead of by number, so that
 * ranks in the same role have the same program and share it.
 */
#ifndef HKT_PROGRAM_H
#define HKT_PROGRAM_H

#include "algorithm.h"

/* How far `peer` stands from `rank`, counted upwards and around; and back. */
static inline uint32_t hkt_distance(uint32_t size, uint32_t rank, uint32_t peer)
{
    return peer >= rank ? peer - rank : peer + size - rank;
}

static inline uint32_t hkt_at_distance(uint32_t size, uint32_t rank, uint32_t distance)
{
    return rank + distance >= size ? rank + distance - size : rank + distance;
}

struct hkt_program_step {
    uint64_t deps;       /* bit d: not before the step d + 1 back */
    uint32_t first;      /* of its peers in hkt_program.at: those it hears from, then those it sends to */
    uint16_t hear, send;
    uint16_t folds;      /* sources after the first */
    uint16_t stores;     /* destinations here */
};

struct hkt_program_peer {
    uint32_t distance;
    uint32_t sent, heard; /* messages to it and from it, in all */
};

struct hkt_program {
    struct hkt_program_step *step;
    struct hkt_program_peer *peer; /* by distance */
    uint32_t                *at;   /* indices into peer */
    uint32_t                 nsteps, npeers, nat, chunks, messages;
    uint64_t                 hash;
};

/* From the schedule of shape->rank. `deps` only where a window needs them. 0 or HKT_ERR_*; on error nothing is kept. */
int  hkt_program_make(struct hkt_program *p, const struct hkt_algorithm *a, const struct hkt_shape *shape, bool deps);
void hkt_program_free(struct hkt_program *p);
bool hkt_program_equal(const struct hkt_program *a, const struct hkt_program *b);

/* Which peer stands so far away; npeers when none does. */
uint32_t hkt_program_find(const struct hkt_program *p, uint32_t distance);

#endif
