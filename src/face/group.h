/* group.h -- hkt_group_begin()/end(): the calls a thread has collected. */
#ifndef HKT_GROUP_H
#define HKT_GROUP_H

#include "face/submit.h"

extern _Thread_local int hkt_group_depth;

static inline bool hkt_group_active(void)
{
    return hkt_group_depth > 0;
}

int hkt_group_add(const struct hkt_pending *pending);
int hkt_group_error(int code); /* the group starts nothing; returns code */

#endif
