/* plan.h -- a schedule bound to how ranks reach each other's memory: which message is a pointer, a copy or a wait.
 *
 * An algorithm's schedule sends messages. On one host most messages need not move: a value that stands in the sender's buffer is
 * read there, a value that only gets stored is stored there by its sender. Binding decides the home of every message, then
 * derives from reads and writes of the homes which step must wait for which step of which rank, and drops the steps that
 * have become empty. The direct all-reduce comes out as: one entry, one pass over the data, one exit.
 *
 * Between hosts a message does move: its sender names the place it stands at, its receiver the place where it shall land (net/wire.h), and
 * binding decides how early that place is free to be named.
 *
 * It is the same for every count, type and address, so few plans serve all calls; they are kept for the communicator's life.
 */
#ifndef HKT_PLAN_H
#define HKT_PLAN_H

#include "language/algorithm.h"

#include <stdbool.h>

/* How the ranks' buffers can be reached. The order is from best to worst. */
enum hkt_reach {
    HKT_REACH_MAP,   /* every buffer is mapped by every rank */
    HKT_REACH_READ,  /* plain memory that peers can copy from and to */
    HKT_REACH_STAGE, /* plain memory nobody else can touch */
    HKT_REACHES
};

extern const char *const hkt_reach_name[HKT_REACHES];

/* Where a bound operand is. */
enum hkt_home {
    HKT_HOME_IN, HKT_HOME_OUT, /* of rank `rank`, chunk `id` */
    HKT_HOME_SLOT              /* staging slot `id` of rank `rank` */
};

struct hkt_bound {
    uint8_t  home; /* enum hkt_home */
    bool     copy; /* perhaps cannot be pointed at: read into scratch first, or written from there */
    uint32_t rank, id;
    uint32_t from; /* whose value it is, of a raw one */
};

/* How long a value is: as chunk `id` of IN or OUT of `rank`. */
struct hkt_like {
    uint32_t rank, id;
    bool     out;
};

/* The index-th message of a slice to or from a rank of another host. */
struct hkt_wire_index {
    uint32_t peer, index; /* from 1 */
};

enum { HKT_AFTER = 2 };

/* A message to send, or where one shall land. */
struct hkt_wire_place {
    struct hkt_wire_index what;
    struct hkt_bound      at;
    uint8_t               form; /* enum hkt_form */
    struct hkt_like       like;
    /* of a landing: */
    uint32_t              step;  /* before which step the place is free */
    bool                  late;  /* after the waits of that step */
    uint8_t               nafter;
    struct hkt_wire_index after[HKT_AFTER]; /* and when these have left it */
};

/* Wait until rank has done `steps` steps of this operation; in slice s of an operation in slices, of slice s - back. */
struct hkt_wait_for {
    uint32_t rank, steps;
    uint8_t  back; /* 0, or 2: a staging slot is used again */
};

struct hkt_bound_step {
    uint32_t wait, nwait; /* into plan.wait */
    uint32_t first;       /* into plan.operand: sources, then destinations */
    uint16_t nsrc, ndst;
    uint8_t  in, out; /* enum hkt_form of the sources and of the destinations */
    bool     mixed;   /* some sources are raw, some partial (in = HKT_PARTIAL): bits in `raw` */
    bool     publish; /* some rank waits for it */
    bool     sync;    /* the place that its messages leave from is written next: they must have left */
    uint16_t nsend, narrival;
    uint32_t send, arrival; /* into plan.send, plan.arrival */
    struct hkt_like like; /* how long its value is */
    uint64_t raw; /* mixed: bit per source that is raw; such steps have at most 64 sources */
};

struct hkt_plan {
    /* key */
    enum hkt_coll               coll;
    int                         root;
    enum hkt_reach              reach;
    const struct hkt_algorithm *algorithm;

    uint32_t               chunks, nsteps, slots; /* slots: the largest number of any rank, so that all cut slices alike */
    struct hkt_bound_step *step;
    struct hkt_bound      *operand;
    struct hkt_wait_for   *wait;
    uint32_t               last, nlast; /* waits before the operation is over: others are done with my buffers */
    uint32_t              *steps_of;    /* per rank: number of its bound steps */

    /* Between hosts; NULL and 0 on one host. */
    struct hkt_wire_place *send, *landing; /* in the order of the steps; in the order in which they are to be named */
    struct hkt_wire_index *arrival;
    uint32_t               nsends, nlandings;
    uint32_t              *lane_in, *lane_out; /* per rank: messages of a slice from and to it */
};

/* How the ranks of a communicator can reach each other. */
struct hkt_ground {
    enum hkt_reach reach; /* of the buffers on this host */
    const int     *host;  /* per rank: which host; NULL: all are on one */
};

/* Builds the plan of shape->rank. HKT_ERR_MEMORY, or HKT_ERR_INTERNAL when the algorithm's schedule does not fit together. */
int  hkt_plan_build(struct hkt_plan **plan, const struct hkt_algorithm *a, const struct hkt_shape *shape, struct hkt_ground ground);
void hkt_plan_free(struct hkt_plan *plan);

#endif
