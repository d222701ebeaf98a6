/* bind.h -- the working state of binding, shared by its three files: trace.c (what the schedules say), bind.c (homes and waits) and
 * plan.c (the result). */
#ifndef HKT_BIND_H
#define HKT_BIND_H

#include "language/dtype.h"
#include "run/plan.h"

enum hkt_message_kind { HKT_PULL_SOURCE, HKT_PUSH, HKT_PULL_KEPT, HKT_SLOT };

struct hkt_message {
    int              from, to;
    uint32_t         send, recv; /* steps, as in the schedules */
    uint8_t          form;       /* enum hkt_form */
    uint8_t          kind;       /* enum hkt_message_kind */
    struct hkt_bound home;
};

/* Which chunk a value is as long as. */
struct hkt_like {
    uint32_t rank, id;
    bool     out;
};

struct hkt_trace_step {
    int             number; /* among the steps kept; -1: dropped */
    int             slot;   /* of its value, or -1 */
    uint8_t         in, out;
    bool            mixed;
    uint64_t        raw;
    struct hkt_like like;
};

/* One rank. */
struct hkt_trace {
    struct hkt_schedule    schedule;
    struct hkt_trace_step *step;    /* per step */
    uint32_t              *message; /* per operand: index of its message */
    uint32_t               slots, kept, done, first_wait;
    uint32_t               load; /* messages that it copies, of those that either side can copy */
};

struct hkt_access {
    uint64_t place, order; /* whose place; where in the owner's order */
    int      actor;
    uint32_t step; /* of the actor, among those kept */
    bool     write;
    bool     same; /* a write of the value that stands there already, when it is the same memory */
};

struct hkt_wait_pair {
    int                 actor;
    uint32_t            step; /* kept steps: before the operation is over */
    struct hkt_wait_for on;
};

struct hkt_binder {
    const struct hkt_algorithm *algorithm;
    const struct hkt_shape     *shape;
    enum hkt_reach              reach;
    int                         size, error;
    uint32_t                    chunks;
    bool                        slots_only, conflict;
    struct hkt_trace           *rank; /* size */
    struct hkt_message         *message;
    struct hkt_access          *access;
    struct hkt_wait_pair       *wait;
    uint32_t                    nmessages, message_cap, naccesses, access_cap, nwaits, wait_cap;
};

int  hkt_trace(struct hkt_binder *b); /* builds all schedules and fills rank, message */
void hkt_trace_free(struct hkt_binder *b);
int  hkt_bind(struct hkt_binder *b);

bool             hkt_bind_stores(const struct hkt_binder *b, int rank, uint32_t s, const struct hkt_operand *dst);
struct hkt_bound hkt_bind_operand(const struct hkt_binder *b, int rank, const struct hkt_operand *o);

#endif
