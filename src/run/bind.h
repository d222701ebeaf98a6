/* bind.h -- the working state of binding, shared by its three files: trace.c (what the schedules say), bind.c (homes and waits) and
 * plan.c (the result). */
#ifndef HKT_BIND_H
#define HKT_BIND_H

#include "language/dtype.h"
#include "run/plan.h"

enum hkt_message_kind { HKT_PULL_SOURCE, HKT_PUSH, HKT_PULL_KEPT, HKT_SLOT };
enum { HKT_NO_STEP = -1, HKT_NO_SLOT = -1 };
static const uint32_t HKT_NO_MESSAGE = UINT32_MAX;

struct hkt_message {
    int              from, to;
    uint32_t         send, recv; /* steps, as in the schedules */
    uint8_t          form;       /* enum hkt_form */
    uint8_t          kind;       /* enum hkt_message_kind */
    bool             wire;       /* between hosts: never HKT_PUSH; home is where it leaves from */
    struct hkt_bound home;
    /* of a wire message: */
    struct hkt_bound      landing;
    uint32_t              index;   /* of those from `from` to `to`, from 1 */
    uint32_t              earlier; /* the message HKT_FIFO_DEPTH before it; HKT_NO_MESSAGE: none */
    uint32_t              ring;    /* the message HKT_WIRE_RING before it, likewise */
    uint32_t              step;   /* of the receiver, among those kept: see struct hkt_wire_place */
    bool                  late;
    uint8_t               nafter;
    struct hkt_wire_index after[HKT_AFTER];
};

struct hkt_trace_step {
    int             number; /* among the steps kept; -1: dropped */
    int             slot;   /* of its value, or -1 */
    uint8_t         in, out;
    bool            mixed;
    bool            sync;
    uint64_t        raw;
    struct hkt_like like;
};

/* One rank. */
struct hkt_trace {
    struct hkt_schedule    schedule;
    struct hkt_trace_step *step;    /* per step */
    uint32_t              *message; /* per operand: index of its message */
    uint32_t              *kept_as; /* per kept step: which of the schedule it is */
    uint32_t               slots, kept, done, first_wait;
    uint32_t               load; /* messages that it copies, of those that either side can copy */
};

struct hkt_access {
    uint64_t place, order; /* whose place; where in the owner's order */
    int      actor;
    uint32_t step; /* of the actor, among those kept */
    bool     write;
    bool     same; /* a write of the value that stands there already, when it is the same memory */
    uint8_t  wire; /* enum hkt_wire_access */
    uint32_t message;
};

enum hkt_wire_access { HKT_WIRE_NO, HKT_WIRE_LEAVES, HKT_WIRE_LANDS };

struct hkt_wait_pair {
    int                 actor;
    uint32_t            step; /* kept steps: before the operation is over */
    struct hkt_wait_for on;
};

struct hkt_binder {
    const struct hkt_algorithm *algorithm;
    const struct hkt_shape     *shape;
    enum hkt_reach              reach;
    const int                  *host; /* per rank; NULL: all are on one */
    int                         size, error;
    uint32_t                    chunks;
    bool                        ordered, slots_only, conflict; /* ordered: steps come when they can be done: language/order.h */
    struct hkt_trace           *rank; /* size */
    struct hkt_message         *message;
    struct hkt_access          *access;
    struct hkt_wait_pair       *wait;
    uint32_t                    nmessages, message_cap, naccesses, access_cap, nwaits, wait_cap;
};

int  hkt_trace(struct hkt_binder *b); /* builds all schedules and fills rank, message */
void hkt_trace_free(struct hkt_binder *b);
int  hkt_bind(struct hkt_binder *b);  /* 0; 1: what comes of it locks up; HKT_ERR_MEMORY */

static inline struct hkt_trace_step *hkt_step_of(const struct hkt_binder *b, int rank, uint32_t s)
{
    return &b->rank[rank].step[s];
}

/* The message of a PEER operand of a step; operands are numbered as in the schedule. */
static inline struct hkt_message *hkt_message_of(const struct hkt_binder *b, int rank, const struct hkt_operand *o)
{
    return &b->message[b->rank[rank].message[o - b->rank[rank].schedule.operand]];
}

/* The operand's place, in its rank's memory. */
static inline struct hkt_bound hkt_place_of(int rank, const struct hkt_operand *o)
{
    const uint8_t home[] = {[HKT_IN] = HKT_HOME_IN, [HKT_OUT] = HKT_HOME_OUT, [HKT_TMP] = HKT_HOME_SLOT};

    return (struct hkt_bound){.home = home[o->place], .rank = (uint32_t)rank, .id = o->id, .from = (uint32_t)rank};
}

const struct hkt_operand *hkt_local_destination(const struct hkt_binder *b, int rank, uint32_t s); /* the first; NULL: none */

/* ---- bind_wire.c: messages between hosts ---- */

int  hkt_bind_number(struct hkt_binder *b); /* which messages are; their indices */
int  hkt_bind_land(struct hkt_binder *b);   /* where each lands, once all homes are chosen */
void hkt_bind_order(struct hkt_binder *b, const struct hkt_access *a, uint32_t i, uint32_t n); /* access i of the n to a place, in order */
int  hkt_bind_lanes(struct hkt_binder *b);  /* landings of a lane are named in the order of its messages */
bool hkt_bind_held(const struct hkt_binder *b, int rank); /* on paper: the rank's next step waits for another host */

bool             hkt_bind_stores(const struct hkt_binder *b, int rank, uint32_t s, const struct hkt_operand *dst);
struct hkt_bound hkt_bind_operand(const struct hkt_binder *b, int rank, const struct hkt_operand *o);

#endif
