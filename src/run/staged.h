/* staged.h -- a call on device memory, run by the engine for host memory: copied to host memory before, and back after.
 *
 * It serves every collective and every placement of ranks, so it is what everything falls back to. The memory that stands for the device's is shared
 * (a segment), so ranks of one host read each other's in place, and pinned.
 */
#ifndef HKT_STAGED_H
#define HKT_STAGED_H

#include "device/device.h"
#include "run/operation.h"

/* A call and what stands for its buffers. */
struct hkt_staged {
    struct hkt_call call;   /* as the engine sees it; its arrays are the user's call's */
    const void     *device; /* memory of the device, for hkt_device.queue() */
    const char     *in;     /* the user's, where it is the device's; else NULL */
    char           *out;
    size_t          in_bytes;
    int             rank, size; /* of the communicator */
};

/* Bytes of host memory that the call needs to stand for device memory; 0: it has none. */
size_t hkt_staged_bytes(const struct hkt_communicator *c, const struct hkt_call *call);

/* `memory` stands for the call's device memory. */
void hkt_staged_place(struct hkt_staged *s, const struct hkt_communicator *c, const struct hkt_call *call, char *memory);

/* Puts the copies before and after the call at the end of a queue. */
int hkt_staged_in(const struct hkt_staged *s, const struct hkt_queue *queue);
int hkt_staged_out(const struct hkt_staged *s, const struct hkt_queue *queue);

/* Shared pinned host memory. */
int  hkt_staged_make(struct hkt_segment **segment, size_t bytes);
void hkt_staged_unmake(struct hkt_segment *segment); /* NULL is allowed */

/* ---- operations whose call has device memory and no device's stream: operation.c ---- */

/* Gives the operation's call host memory, if it needs that; the operation then is to be advanced by hkt_staged_advance(). */
void hkt_staged_begin(struct hkt_operation *op);
int  hkt_staged_advance(struct hkt_operation *op);

void hkt_staged_free(struct hkt_communicator *c); /* the memory kept for such operations */

#endif
