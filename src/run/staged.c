/* staged.c -- calls on device memory through host memory. See staged.h.
 *
 * Layout of the memory: what stands for IN, then what stands for OUT, each at a new page; where the two overlap (in place) one stretch stands for
 * both. OUT is copied back block by block, so that what lies between the blocks of a v-form stays as it is.
 */
#include "run/staged.h"

#include "base/error.h"
#include "base/memory.h"

enum { PAGE = 4096 };

/* Host memory that is kept for operations of a communicator, and the operation that has it. */
struct hkt_stand_in {
    struct hkt_stand_in *next;
    struct hkt_segment  *segment;
    bool                 busy;
    struct hkt_staged    staged;
    struct hkt_queue     queue;
    struct hkt_call     *user;
};

/* A buffer of the call. */
struct stretch {
    const char *at;
    size_t      bytes;
    bool        device;
};

static struct stretch stretch_of(const struct hkt_communicator *c, const struct hkt_call *call, bool out)
{
    struct stretch s = {.at = out ? call->recv : call->send};

    if (out ? hkt_has_out(call, c->rank) : hkt_has_in(call, c->rank))
        s.bytes = hkt_call_extent(call, out, c->rank, c->size) * call->element;
    s.device = s.bytes && hkt_device_of(s.at) != &hkt_device_host;
    return s;
}

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static bool overlap(const struct stretch *a, const struct stretch *b)
{
    return a->at < b->at + b->bytes && b->at < a->at + a->bytes;
}

/* The stretch that two overlapping ones make up. */
static struct stretch both(const struct stretch *a, const struct stretch *b)
{
    const char *begin = a->at < b->at ? a->at : b->at, *end = a->at + a->bytes > b->at + b->bytes ? a->at + a->bytes : b->at + b->bytes;

    return (struct stretch){begin, (size_t)(end - begin), true};
}

size_t hkt_staged_bytes(const struct hkt_communicator *c, const struct hkt_call *call)
{
    const struct stretch in = stretch_of(c, call, false), out = stretch_of(c, call, true);

    if (in.device && out.device && overlap(&in, &out))
        return pages(both(&in, &out).bytes);
    return (in.device ? pages(in.bytes) : 0) + (out.device ? pages(out.bytes) : 0);
}

void hkt_staged_place(struct hkt_staged *s, const struct hkt_communicator *c, const struct hkt_call *call, char *memory)
{
    const struct stretch in = stretch_of(c, call, false), out = stretch_of(c, call, true);

    *s = (struct hkt_staged){.call = *call, .rank = c->rank, .size = c->size, .in_bytes = in.bytes};
    s->device      = in.device ? in.at : out.at;
    s->call.staged = true;
    if (in.device && out.device && overlap(&in, &out)) {
        const struct stretch all = both(&in, &out);

        s->call.send = memory + (in.at - all.at);
        s->call.recv = memory + (out.at - all.at);
    } else {
        if (in.device)
            s->call.send = memory;
        if (out.device)
            s->call.recv = memory + (in.device ? pages(in.bytes) : 0);
    }
    s->in  = in.device ? call->send : NULL;
    s->out = out.device ? call->recv : NULL;
}

int hkt_staged_in(const struct hkt_staged *s, const struct hkt_queue *queue)
{
    return s->in ? queue->device->copy(queue, (void *)(uintptr_t)s->call.send, s->in, s->in_bytes) : 0;
}

int hkt_staged_out(const struct hkt_staged *s, const struct hkt_queue *queue)
{
    const struct hkt_call *call  = &s->call;
    const size_t           size  = call->element;
    const size_t          *counts, *displs;

    if (!s->out)
        return 0;
    if (!call->arrays || hkt_collective[call->coll].out == HKT_BLOCK)
        return queue->device->copy(queue, s->out, call->recv, hkt_call_extent(call, true, s->rank, s->size) * size);
    counts = hkt_array(call, HKT_OUT_COUNTS, s->size);
    displs = hkt_array(call, HKT_OUT_DISPLS, s->size);
    for (int r = 0; r < s->size;) { /* blocks that follow one another are one copy */
        const size_t begin = displs[r];
        size_t       end   = begin + counts[r];

        for (r++; r < s->size && displs[r] == end; r++)
            end += counts[r];
        if (end > begin)
            HKT_TRY(queue->device->copy(queue, s->out + begin * size, (const char *)call->recv + begin * size, (end - begin) * size));
    }
    return 0;
}

int hkt_staged_make(struct hkt_segment **segment, size_t bytes)
{
    struct hkt_segment *made;

    HKT_TRY(hkt_segment_create(&made, bytes, "device staging"));
    if (hkt_device_cuda.pin(made->base, made->size))
        hkt_error_clear(); /* slower, no more than that */
    *segment = made;
    return 0;
}

void hkt_staged_unmake(struct hkt_segment *segment)
{
    if (!segment)
        return;
    hkt_device_cuda.unpin(segment->base);
    hkt_segment_free(segment);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* One that is free and large enough; a free one that is too small grows, so that a communicator keeps few. */
static int take(struct hkt_communicator *c, size_t bytes, struct hkt_stand_in **out)
{
    struct hkt_stand_in *s = c->stand_ins;

    while (s && s->busy)
        s = s->next;
    if (!s) {
        s = hkt_alloc(sizeof(*s));
        if (!s)
            return HKT_ERR_MEMORY;
        s->next      = c->stand_ins;
        c->stand_ins = s;
    }
    s->busy = true;
    *out    = s;
    if (s->segment && s->segment->size >= bytes)
        return 0;
    hkt_staged_unmake(s->segment);
    s->segment = NULL;
    return hkt_staged_make(&s->segment, bytes);
}

static int begin(struct hkt_operation *op, struct hkt_stand_in *s)
{
    struct hkt_staged *staged = &s->staged;

    hkt_staged_place(staged, op->comm, op->call, s->segment->base);
    HKT_TRY(hkt_device_of(staged->device)->queue(&s->queue, staged->device));
    HKT_TRY(hkt_staged_in(staged, &s->queue));
    return s->queue.device->finish(&s->queue);
}

void hkt_staged_begin(struct hkt_operation *op)
{
    const size_t         bytes = op->call->staged ? 0 : hkt_staged_bytes(op->comm, op->call);
    struct hkt_stand_in *s     = NULL;
    int                  rc;

    if (!bytes)
        return;
    rc = take(op->comm, bytes, &s);
    if (!rc)
        rc = begin(op, s);
    if (!rc) {
        s->user  = op->call;
        op->call = &s->staged.call;
    } else if (s)
        s->busy = false;
    op->stand_in      = rc ? NULL : s;
    op->stand_in_code = rc;
}

int hkt_staged_advance(struct hkt_operation *op)
{
    struct hkt_stand_in *s = op->stand_in;
    int                  rc;

    if (op->stand_in_code) /* the others count on this rank */
        return hkt_operation_blame(op, op->stand_in_code);
    rc = op->staged_advance(op);
    if (rc == HKT_IN_PROGRESS)
        return rc;
    op->call = s->user;
    s->busy  = false;
    if (!rc)
        rc = hkt_staged_out(&s->staged, &s->queue);
    if (!rc)
        rc = s->queue.device->finish(&s->queue);
    return rc;
}

void hkt_staged_free(struct hkt_communicator *c)
{
    struct hkt_stand_in *s;

    while ((s = c->stand_ins)) {
        c->stand_ins = s->next;
        hkt_staged_unmake(s->segment);
        hkt_free(s);
    }
}
