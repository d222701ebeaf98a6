/* stream.c -- streams and events: a ring of items and one thread per stream that takes them in order.
 *
 * The thread sleeps when there is nothing to do, and in a call it leaves the core to the program soon (comm->background), so that work on a
 * stream goes on beside a computing caller without taking its time. The ring is allocated once; an item is a call, a bundle of
 * calls, a function of the program, or an event. The caller waits when it is a full ring ahead.
 */
#include "face/stream.h"

#include "base/error.h"
#include "base/memory.h"
#include "device/cuda.h"
#include "face/group.h"
#include "face/library.h"
#include "run/gpu.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { ITEMS = 256 };

struct hkt_event {
    _Atomic uint64_t recorded; /* by the recording thread: number of the last record */
    _Atomic uint64_t reached;  /* by the stream: number of the last record it has come to */
    _Atomic uint32_t sleepers;
};

struct hkt_stream {
    struct hkt_stream_item item[ITEMS];
    struct hkt_cuda_line *line; /* it is a CUDA stream: stream_cuda.c; NULL: it is not */
    _Atomic uint64_t posted; /* items, by the caller (under `post`) */
    _Atomic uint64_t done;   /* items, by the stream's thread */
    _Atomic uint32_t posted_sleepers, done_sleepers;
    _Atomic int      error;  /* the first since the last synchronize */
    char             sentence[HKT_SENTENCE];
    pthread_mutex_t  post;
    pthread_t        thread;
};

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static int run_item(struct hkt_stream_item *it)
{
    int rc = 0;

    switch (it->kind) {
    case HKT_STREAM_CALL:
        return hkt_run_alone(&it->call);
    case HKT_STREAM_BUNDLE:
        rc = hkt_run_together(it->bundle, it->n);
        if (!it->kept)
            hkt_free(it->bundle);
        return rc;
    case HKT_STREAM_FUNCTION:
        return it->function(it->arg);
    case HKT_STREAM_RECORD:
        hkt_publish(&it->event->reached, it->value, &it->event->sleepers);
        return 0;
    case HKT_STREAM_WAIT:
        hkt_local_wait(&it->event->reached, it->value, &it->event->sleepers);
        return 0;
    case HKT_STREAM_STOP:
        return 0;
    }
    return 0;
}

static void *work(void *arg)
{
    struct hkt_stream *s = arg;

    hkt_on_stream = true;
    for (uint64_t k = 0;; k++) {
        struct hkt_stream_item *it = &s->item[k % ITEMS];
        enum hkt_stream_kind    kind;
        int                     rc;

        hkt_local_wait(&s->posted, k + 1, &s->posted_sleepers);
        kind = it->kind;
        rc   = run_item(it);
        if (rc < 0 && !atomic_load(&s->error)) {
            snprintf(s->sentence, sizeof(s->sentence), "%s", hkt_last_error());
            atomic_store_explicit(&s->error, rc, memory_order_release); /* pairs with hkt_stream_synchronize() */
        }
        if (it->after)
            it->after(it->after_arg);
        hkt_publish(&s->done, k + 1, &s->done_sleepers);
        if (kind == HKT_STREAM_STOP)
            return NULL;
    }
}

/* The next free item, with s->post held. */
static struct hkt_stream_item *next_item(struct hkt_stream *s)
{
    const uint64_t k = hkt_load_relaxed(&s->posted);

    if (k >= ITEMS)
        hkt_local_wait(&s->done, k - ITEMS + 1, &s->done_sleepers);
    return &s->item[k % ITEMS];
}

void hkt_stream_hand(hkt_stream_t *s, const struct hkt_stream_item *it)
{
    pthread_mutex_lock(&s->post);
    *next_item(s) = *it;
    hkt_publish(&s->posted, hkt_load_relaxed(&s->posted) + 1, &s->posted_sleepers);
    pthread_mutex_unlock(&s->post);
}

void hkt_stream_ticket(struct hkt_pending *p)
{
    p->direct = p->stream && p->stream->line && hkt_gpu_runs(p->end->comm, &p->call);
    if (!p->direct)
        p->ticket = hkt_ticket(p->end);
}

void hkt_stream_skip(const struct hkt_pending *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct hkt_pending p = calls[i];

        if (!p.direct) {
            hkt_turn_wait(p.end, p.ticket);
            hkt_turn_pass(p.end, 1);
        }
        hkt_call_release(&p.call);
    }
}

/* At the end of the stream, of either kind. */
static int post(struct hkt_stream *s, const struct hkt_stream_item *it)
{
    if (s->line)
        return hkt_cuda_line_put(s->line, it);
    hkt_stream_hand(s, it);
    return HKT_OK;
}

int hkt_stream_calls(hkt_stream_t *stream, const struct hkt_pending *calls, size_t n)
{
    struct hkt_stream_item it = {.kind = HKT_STREAM_CALL, .call = *calls, .n = n};

    if (stream->line)
        return hkt_cuda_line_calls(stream->line, calls, n);

    if (n > 1) {
        it.kind   = HKT_STREAM_BUNDLE;
        it.bundle = hkt_alloc(n * sizeof(*calls));
        if (!it.bundle) { /* their turns must pass all the same */
            hkt_stream_skip(calls, n);
            return HKT_ERR_MEMORY;
        }
        memcpy(it.bundle, calls, n * sizeof(*calls));
    }
    return post(stream, &it);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static int create(hkt_stream_t **stream)
{
    struct hkt_stream *s = hkt_alloc(sizeof(*s));
    sigset_t           all, before;
    int                rc;

    if (!s)
        return HKT_ERR_MEMORY;
    pthread_mutex_init(&s->post, NULL);
    sigfillset(&all); /* signals are the program's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = hkt_alloc_check() ? -1 : pthread_create(&s->thread, NULL, work, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        hkt_free(s);
        return hkt_fail(HKT_ERR_SYSTEM, "cannot start the stream's thread; is the limit on processes (ulimit -u) reached?");
    }
    *stream = s;
    return HKT_OK;
}

int hkt_stream_create(hkt_stream_t **stream)
{
    hkt_library_start();
    return stream ? create(stream) : hkt_fail(HKT_ERR_ARGUMENT, "hkt_stream_create: stream is NULL");
}

int hkt_stream_from_cuda(hkt_stream_t **stream, void *cuda_stream)
{
    hkt_stream_t *made;
    int           rc;

    hkt_library_start();
    if (!stream)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_stream_from_cuda: stream is NULL");
    if (!hkt_cuda())
        return hkt_fail(HKT_ERR_UNSUPPORTED, "hkt_stream_from_cuda: %s", hkt_cuda_missing());
    HKT_TRY(create(&made));
    rc = hkt_cuda_line_open(&made->line, made, cuda_stream);
    if (rc) {
        hkt_stream_destroy(made);
        return rc;
    }
    *stream = made;
    return HKT_OK;
}

int hkt_stream_destroy(hkt_stream_t *s)
{
    if (!s)
        return HKT_OK;
    HKT_TRY(hkt_cuda_line_close(s->line));
    hkt_stream_hand(s, &(struct hkt_stream_item){.kind = HKT_STREAM_STOP});
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->post);
    hkt_free(s);
    return HKT_OK;
}

int hkt_stream_synchronize(hkt_stream_t *s)
{
    int rc;

    if (!s)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_stream_synchronize: stream is NULL");
    if (s->line)
        HKT_TRY(hkt_cuda_line_synchronize(s->line));
    hkt_local_wait(&s->done, hkt_load_acquire(&s->posted), &s->done_sleepers);
    rc = atomic_load_explicit(&s->error, memory_order_acquire); /* pairs with the release store in work() */
    if (!rc)
        return HKT_OK;
    hkt_fail_quiet(rc, s->sentence);
    atomic_store(&s->error, 0);
    return rc;
}

int hkt_stream_query(hkt_stream_t *s)
{
    if (!s)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_stream_query: stream is NULL");
    if (s->line)
        return hkt_cuda_line_query(s->line);
    return hkt_load_acquire(&s->done) >= hkt_load_acquire(&s->posted) ? HKT_OK : HKT_IN_PROGRESS;
}

int hkt_stream_call(hkt_stream_t *s, int (*call)(void *), void *arg)
{
    if (!s || !call)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_stream_call: %s is NULL", s ? "call" : "stream");
    if (hkt_group_active())
        return hkt_fail(HKT_ERR_USAGE, "hkt_stream_call: not between hkt_group_begin() and hkt_group_end(): the group's calls start at its end");
    return post(s, &(struct hkt_stream_item){.kind = HKT_STREAM_FUNCTION, .function = call, .arg = arg});
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

int hkt_event_create(hkt_event_t **event)
{
    hkt_event_t *e;

    hkt_library_start();
    if (!event)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_event_create: event is NULL");
    e = hkt_alloc(sizeof(*e));
    if (!e)
        return HKT_ERR_MEMORY;
    *event = e;
    return HKT_OK;
}

int hkt_event_destroy(hkt_event_t *event)
{
    hkt_free(event);
    return HKT_OK;
}

int hkt_event_record(hkt_event_t *event, hkt_stream_t *stream)
{
    if (!event || !stream)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_event_record: %s is NULL", event ? "stream" : "event");
    return post(stream, &(struct hkt_stream_item){
                            .kind = HKT_STREAM_RECORD, .event = event, .value = atomic_fetch_add(&event->recorded, 1) + 1});
}

int hkt_event_synchronize(hkt_event_t *event)
{
    if (!event)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_event_synchronize: event is NULL");
    hkt_local_wait(&event->reached, hkt_load_acquire(&event->recorded), &event->sleepers);
    return HKT_OK;
}

int hkt_event_query(hkt_event_t *event)
{
    if (!event)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_event_query: event is NULL");
    return hkt_load_acquire(&event->reached) >= hkt_load_acquire(&event->recorded) ? HKT_OK : HKT_IN_PROGRESS;
}

int hkt_stream_wait_event(hkt_stream_t *stream, hkt_event_t *event)
{
    if (!event || !stream)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_stream_wait_event: %s is NULL", event ? "stream" : "event");
    return post(stream,
                &(struct hkt_stream_item){.kind = HKT_STREAM_WAIT, .event = event, .value = hkt_load_acquire(&event->recorded)});
}
