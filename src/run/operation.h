/* operation.h -- one call on its way: begun, advanced until it is over. Blocking calls wait inside hkt_operation_advance(); in a group,
 * where several operations share a thread, it returns HKT_IN_PROGRESS and says what it waits for.
 */
#ifndef HKT_OPERATION_H
#define HKT_OPERATION_H

#include "run/communicator.h"
#include "run/tune.h"

struct hkt_stand_in;

enum hkt_stage { HKT_STAGE_SLICE, HKT_STAGE_WAITS, HKT_STAGE_ARRIVALS, HKT_STAGE_SENDS };

struct hkt_operation {
    struct hkt_communicator *comm;
    struct hkt_call         *call;
    const struct hkt_waiter *waiter; /* NULL: do not wait inside advance */
    int (*advance)(struct hkt_operation *op);
    uint64_t number; /* of the operation, or of the message between the two ranks */
    int      phase, peer; /* where it is; ranks already heard of */

    /* scheduled */
    const struct hkt_plan *plan;
    uint32_t               step, wait, slice, slices;
    enum hkt_stage         stage;   /* of the step */
    uint32_t               landing; /* of the plan: those before it are named in this slice */
    size_t                 slice_elements, slot_bytes, element, wide;
    bool                   stream;
    enum hkt_open_question      asked;
    enum hkt_way           way;   /* what rank 0 said to it */
    uint64_t               began; /* its steps, hkt_now_ns(); 0: the time is not wanted */

    /* on device memory, staged.h */
    struct hkt_stand_in *stand_in;
    int                  stand_in_code; /* why there is none */
    int (*staged_advance)(struct hkt_operation *op);

    /* what it waits for, after HKT_IN_PROGRESS */
    _Atomic uint64_t *word;
    uint64_t          value;
    int               rank;
};

/* Begins `call` as the next operation of `comm` (collectives) or message. The call must live until the operation is over. */
void hkt_operation_begin(struct hkt_operation *op, struct hkt_communicator *comm, struct hkt_call *call,
                         const struct hkt_waiter *waiter);

/* 0: over. HKT_IN_PROGRESS: not yet (only without a waiter). < 0: failed; the operation is over. */
static inline int hkt_operation_advance(struct hkt_operation *op)
{
    return op->advance(op);
}

/* Begins and finishes. */
int hkt_operation_run(struct hkt_communicator *comm, struct hkt_call *call, const struct hkt_waiter *waiter);

/* ---- for the kinds of operation ---- */

/* 0 once *word >= value; else waits, or HKT_IN_PROGRESS, or what killed the communicator. */
int hkt_operation_wait_slow(struct hkt_operation *op, _Atomic uint64_t *word, uint64_t value, int rank);

static inline int hkt_operation_wait(struct hkt_operation *op, _Atomic uint64_t *word, uint64_t value, int rank)
{
    /* pairs with the release store in hkt_publish() */
    return __builtin_expect(hkt_load_acquire(word) >= value, 1) ? 0 : hkt_operation_wait_slow(op, word, value, rank);
}

/* The communicator's death after HKT_WAIT_*; after an error of this rank alone. */
int hkt_operation_lost(const struct hkt_operation *op, int why, int rank);
int hkt_operation_blame(const struct hkt_operation *op, int code);

/* Waits until this rank may write what it keeps for the last `depth` operations: every rank must have entered number - depth + 1. */
int hkt_operation_room(struct hkt_operation *op, uint64_t depth);

int hkt_flat_advance(struct hkt_operation *op);      /* flat.c: small collectives */
int hkt_scheduled_advance(struct hkt_operation *op); /* scheduled.c: all others */
int hkt_message_advance(struct hkt_operation *op);   /* message.c: send and receive */
int hkt_message_far_advance(struct hkt_operation *op); /* message_far.c: the same with a rank of another host */

/* Bytes that a rank shows in the flat algorithm, or SIZE_MAX when the call cannot run that way. */
size_t hkt_flat_bytes(const struct hkt_communicator *comm, const struct hkt_call *call);

/* What rank r of this host shows in it: so many bytes. */
const unsigned char *hkt_flat_shown(const struct hkt_operation *op, int r, size_t bytes);

#endif
