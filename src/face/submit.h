/* submit.h -- from a checked-in call to its execution: at once, in a group, or on a stream. */
#ifndef HKT_SUBMIT_H
#define HKT_SUBMIT_H

#include "face/handle.h"

/* A call that waits for its turn. */
struct hkt_pending {
    struct hkt_call call;
    struct hkt_end *end;
    uint64_t        ticket;
    uint64_t        before; /* calls of the same group on this communicator before it */
    hkt_stream_t   *stream;
    bool            direct; /* the GPUs run it: it has no ticket */
    bool            again;  /* part of a graph: runs whenever that does, outside the order of tickets */
    bool            kept;   /* the call's arrays are somebody else's */
};

/* Checks the call and runs it, adds it to the open group, or puts it on the stream. Takes over call->arrays in every case. */
int hkt_submit(struct hkt_call *call, hkt_comm_t *comm, hkt_stream_t *stream);

/* together.c: runs calls together, in any interleaving that keeps their order per communicator; passes their turns. The first error. */
int hkt_run_together(struct hkt_pending *pending, size_t n);

/* Runs one whose ticket was taken. */
int hkt_run_alone(struct hkt_pending *p);

#endif
