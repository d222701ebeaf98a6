/* events.h -- a queue of what happens when: a heap of four ways by time, then by the order of adding. */
#ifndef HKT_EVENTS_H
#define HKT_EVENTS_H

#include "base/memory.h"

#include <stdbool.h>
#include <stdint.h>

struct hkt_event {
    int64_t  time;
    uint32_t number; /* of adding; wraps, which the comparison allows for */
    uint32_t what;   /* the user's */
};

struct hkt_events {
    struct hkt_event *event;
    uint32_t          count, cap, added;
};

static inline bool hkt_event_before(const struct hkt_event *a, const struct hkt_event *b)
{
    return a->time < b->time || (a->time == b->time && (int32_t)(a->number - b->number) < 0);
}

static inline bool hkt_events_add(struct hkt_events *q, int64_t time, uint32_t what)
{
    const struct hkt_event e = {time, q->added++, what};
    uint32_t               i = q->count;

    if (i == q->cap) {
        void *more = hkt_realloc(q->event, (q->cap ? 2 * (size_t)q->cap : 1024) * sizeof(*q->event));

        if (!more)
            return false;
        q->event = more;
        q->cap   = q->cap ? 2 * q->cap : 1024;
    }
    for (q->count++; i && hkt_event_before(&e, &q->event[(i - 1) / 4]); i = (i - 1) / 4)
        q->event[i] = q->event[(i - 1) / 4];
    q->event[i] = e;
    return true;
}

/* The queue is not empty. */
static inline struct hkt_event hkt_events_next(struct hkt_events *q)
{
    const struct hkt_event first = q->event[0], last = q->event[--q->count];
    uint32_t               i = 0, best;

    while ((best = 4 * i + 1) < q->count) {
        for (uint32_t child = best + 1, end = best + 4; child < end && child < q->count; child++)
            best = hkt_event_before(&q->event[child], &q->event[best]) ? child : best;
        if (!hkt_event_before(&q->event[best], &last))
            break;
        q->event[i] = q->event[best];
        i           = best;
    }
    if (q->count)
        q->event[i] = last;
    return first;
}

#endif
