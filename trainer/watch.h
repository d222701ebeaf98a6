/* watch.h -- how long work on a stream is in flight: from its launch until its event is reached.
 *
 * A thread of its own waits for the events, because the thread that launched the work computes meanwhile and would
 * notice late. It sleeps nearly always.
 */
#ifndef TRAINER_WATCH_H
#define TRAINER_WATCH_H

#include <hocket.h>
#include <pthread.h>
#include <stdbool.h>

struct watched {
    hkt_event_t *event;
    double       launched;
};

struct watch {
    pthread_t       thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t  changed;
    struct watched *list;
    int             posted, seen;
    bool            ending;
    double          last;    /* clock when the last one was reached */
    double          seconds; /* in flight, overlapping spans counted once */
};

/* At most `capacity` events between two calls of watch_settle(). */
void watch_begin(struct watch *watch, int capacity);
void watch_end(struct watch *watch);

/* The event has been recorded behind work that was launched at `launched` (clock_seconds()), on the same stream as the
 * one before. */
void watch_post(struct watch *watch, hkt_event_t *event, double launched);

/* Waits until all posted events have been seen, and forgets them; returns the seconds in flight since the last call. */
double watch_settle(struct watch *watch);

#endif
