/* group.h -- hkt_group_begin()/end(): the calls a thread has collected. */
#ifndef HKT_GROUP_H
#define HKT_GROUP_H

#include "face/submit.h"

/* Read in every call; few bytes, so that they fit where the program's own thread-local variables are, also after dlopen(). */
#define HKT_NEAR __attribute__((tls_model("initial-exec")))
extern _Thread_local int  hkt_group_depth HKT_NEAR;
extern _Thread_local bool hkt_on_stream   HKT_NEAR; /* this thread works for a stream */

/* How this thread waits: that of a stream leaves the core to the program soon. */
static inline const struct hkt_waiter *hkt_waiter_here(const struct hkt_communicator *c)
{
    return hkt_on_stream ? &c->background : &c->waiter;
}

static inline bool hkt_group_active(void)
{
    return hkt_group_depth > 0;
}

/* The group that this thread is starting is on several streams, so its calls may wait for each other. */
extern _Thread_local bool hkt_group_several HKT_NEAR;

int hkt_group_add(const struct hkt_pending *pending);
int hkt_group_error(int code); /* the group starts nothing; returns code */

#endif
