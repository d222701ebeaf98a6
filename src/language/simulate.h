/* simulate.h -- the schedules of all ranks in virtual time, on a fabric.
 *
 * A rank runs its steps as schedule.h says: a step waits until what it hears is there and what it sends fits, strictly in order or, with a
 * window, ahead of steps that wait as far as data allow. Then it costs the rank's processor: `overhead` for each message in, then one
 * pass over its sources, gamma a byte for each after the first, or copy where it only moves, and touch a byte for each further destination that
 * the processor itself writes; then `overhead` for each message out. A message then passes its way: the port, or the card
 * of the host, uplinks, the port at the other end.
 *
 * What is shared serves one message after the other, in the order they come, each at the full rate, and passes bytes on as they come
 * (cut-through). That is simpler than sharing the rate fairly among all that are under way (max-min): work done and the time when all is
 * through are the same, one message may be earlier and another later; it costs O(1) a message where max-min costs O(flows), which is what
 * lets 100,000 ranks run in seconds. Buffers in the network are endless: no congestion spreads backwards, nothing is lost and sent again.
 *
 * Time is in whole picoseconds and events of one time are taken in the order they were made, so results are equal everywhere.
 */
#ifndef HKT_SIMULATE_H
#define HKT_SIMULATE_H

#include "algorithm.h"
#include "fabric.h"

/* What the time of the slowest chain of steps and messages consists of. */
enum hkt_time_part {
    HKT_TIME_LATENCY,  /* messages under way */
    HKT_TIME_OVERHEAD, /* processors with messages */
    HKT_TIME_REDUCE,   /* folding and copying */
    HKT_TIME_PORT,     /* on, or waiting for, ports of ranks; of these .. */
    HKT_TIME_BUS,      /* .. memory buses and links between caches */
    HKT_TIME_CARD,     /* .. network cards */
    HKT_TIME_UPLINK,   /* .. uplinks of leaves */
    HKT_TIME_ROOM,     /* waiting for room at the receiver */
    HKT_TIME_PARTS
};

extern const char *const hkt_time_part_name[HKT_TIME_PARTS];

/* Something that took time, for pictures. */
struct hkt_sim_span {
    int    rank, peer; /* peer -1: work of the rank itself */
    double begin, end; /* a message: from the first byte on the port until it is there */
};

struct hkt_sim_load {
    double bytes;  /* the vector, or the blocks of all ranks together */
    int    slices; /* the data are cut into so many parts that follow each other through the schedule; 0: one */
    double slice_bytes; /* and into more where a message would be longer; 0: however long */
    void (*trace)(void *context, const struct hkt_sim_span *span); /* or NULL; of the ranks that are run */
    void *context;
};

struct hkt_sim_result {
    double   seconds;
    double   part[HKT_TIME_PARTS]; /* add up to seconds */
    uint32_t hops;                 /* messages one after the other in that chain */
    uint32_t ranks, programs;      /* that were run; different programs among them */
    uint64_t messages, events;     /* of those that were run */
};

struct hkt_simulator;

/* Builds the programs of all ranks; shape->rank is ignored, shape->size is the fabric's. `all`: ranks in the same role are run each for
 * itself. 0 or HKT_ERR_*: UNSUPPORTED where it is too much, ARGUMENT where fabric and shape do not fit. */
int hkt_simulator_open(struct hkt_simulator **sim, const struct hkt_algorithm *a, const struct hkt_shape *shape, const struct hkt_fabric *f,
                       bool all);
/* As often as wanted: each run starts anew. 0 or HKT_ERR_*. */
int  hkt_simulator_run(struct hkt_simulator *sim, const struct hkt_sim_load *load, struct hkt_sim_result *result);
void hkt_simulator_close(struct hkt_simulator *sim); /* NULL is allowed */

#endif
