/* group.c -- collects the calls between begin and end; the end runs those without a stream together in this thread, and hands those
 * with streams over, one bundle per stream. All or nothing: an argument error of any call starts none.
 */
#include "face/group.h"

#include "base/error.h"
#include "base/memory.h"
#include "face/stream.h"

#include <string.h>

_Thread_local int  hkt_group_depth;
_Thread_local bool hkt_on_stream;
_Thread_local bool hkt_group_several;

static _Thread_local struct {
    struct hkt_pending *pending;
    size_t              n, cap;
    int                 code; /* the first error; its sentence is kept aside */
} group;

enum { KEPT = 64 };

/* The array of a thread that ends goes with it. */
static pthread_key_t array_of_thread;

static void make_key(void)
{
    pthread_key_create(&array_of_thread, hkt_free);
}

static void keep(struct hkt_pending *pending, size_t cap)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_key);
    pthread_setspecific(array_of_thread, pending);
    group.pending = pending;
    group.cap     = cap;
}

int hkt_group_begin(void)
{
    hkt_group_depth++;
    return HKT_OK;
}

int hkt_group_error(int code)
{
    if (!group.code) {
        group.code = code;
        hkt_error_keep();
    }
    return code;
}

int hkt_group_add(const struct hkt_pending *pending)
{
    if (group.n == group.cap) {
        const size_t cap  = group.cap ? 2 * group.cap : 16;
        void        *more = hkt_realloc(group.pending, cap * sizeof(*group.pending));

        if (!more) {
            hkt_free(pending->call.arrays);
            return hkt_group_error(HKT_ERR_MEMORY);
        }
        keep(more, cap);
    }
    group.pending[group.n++] = *pending;
    return HKT_OK;
}

/* Tickets in the order of the calls; communicators destroyed meanwhile are an error. */
static int take_tickets(struct hkt_pending *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!p[i].end->comm)
            return hkt_fail(HKT_ERR_USAGE, "a communicator was destroyed inside the group that uses it");
    for (size_t i = 0; i < n; i++) {
        hkt_stream_ticket(&p[i]);
        for (size_t j = i; j-- > 0;)
            if (p[j].end == p[i].end && !p[j].direct) {
                p[i].before = p[j].before + 1;
                break;
            }
    }
    return 0;
}

/* Stable partition by stream: runs of equal streams, NULL last, since those run here. */
static size_t next_bundle(struct hkt_pending *p, size_t n)
{
    hkt_stream_t *stream = NULL;
    size_t        at = 0;

    for (size_t i = 0; i < n && !stream; i++)
        stream = p[i].stream;
    for (size_t i = 0; i < n; i++)
        if (p[i].stream == stream) {
            const struct hkt_pending moved = p[i];

            memmove(p + at + 1, p + at, (i - at) * sizeof(*p));
            p[at++] = moved;
        }
    return at;
}

static int start(struct hkt_pending *p, size_t n)
{
    int rc = take_tickets(p, n);

    while (n && !rc) {
        const size_t bundle = next_bundle(p, n);

        hkt_group_several |= bundle < n;
        for (size_t i = 0, j; i < bundle; i++) { /* within the bundle */
            p[i].before = 0;
            for (j = i; j-- > 0;)
                if (p[j].end == p[i].end && !p[j].direct) {
                    p[i].before = p[j].before + 1;
                    break;
                }
        }
        rc = p->stream ? hkt_stream_calls(p->stream, p, bundle) : hkt_run_together(p, bundle);
        p += bundle;
        n -= bundle;
    }
    hkt_group_several = false;
    return rc;
}

int hkt_group_end(void)
{
    struct hkt_pending *pending = group.pending;
    const size_t        n       = group.n;
    int                 code    = group.code;

    if (!hkt_group_depth)
        return hkt_fail(HKT_ERR_USAGE, "hkt_group_end without hkt_group_begin");
    if (--hkt_group_depth)
        return HKT_OK;
    /* The array stays for the next group of this thread, unless it is large. A call of this group cannot begin one. */
    group.n    = 0;
    group.code = 0;
    if (code) {
        hkt_fail_kept(code);
        for (size_t i = 0; i < n; i++)
            hkt_call_release(&pending[i].call);
    } else if (n)
        code = start(pending, n);
    if (group.cap > KEPT) {
        hkt_free(group.pending);
        keep(NULL, 0);
    }
    return code;
}
