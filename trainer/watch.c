/* watch.c -- see watch.h. */
#include "watch.h"

#include "clock.h"
#include "stop.h"

#include <stdlib.h>

static void *look(void *arg)
{
    struct watch *w = arg;

    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->seen == w->posted && !w->ending)
            pthread_cond_wait(&w->changed, &w->lock);
        if (w->seen == w->posted)
            break;

        const struct watched next = w->list[w->seen];

        pthread_mutex_unlock(&w->lock);
        need(hkt_event_synchronize(next.event), "watching the stream");

        const double now = clock_seconds();

        pthread_mutex_lock(&w->lock);
        w->seconds += now - (next.launched > w->last ? next.launched : w->last);
        w->last = now;
        w->seen++;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

void watch_begin(struct watch *w, int capacity)
{
    *w = (struct watch){.list = calloc((size_t)capacity, sizeof(*w->list))};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    if (!w->list || pthread_create(&w->thread, NULL, look, w))
        stop("cannot start the thread that watches the stream; is the limit on processes (ulimit -u) reached?");
}

void watch_end(struct watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->list);
}

void watch_post(struct watch *w, hkt_event_t *event, double launched)
{
    pthread_mutex_lock(&w->lock);
    w->list[w->posted++] = (struct watched){event, launched};
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

double watch_settle(struct watch *w)
{
    double seconds;

    pthread_mutex_lock(&w->lock);
    while (w->seen < w->posted)
        pthread_cond_wait(&w->changed, &w->lock);
    seconds = w->seconds;
    w->seen = w->posted = 0;
    w->seconds          = 0;
    pthread_mutex_unlock(&w->lock);
    return seconds;
}
