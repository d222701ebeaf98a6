/* edge.c -- the mirrors of buffers' edges. See edge.h. */
#include "run/edge.h"

#include <string.h>

static struct hkt_mirror *mirror(const struct hkt_communicator *c, bool out)
{
    return (struct hkt_mirror *)((char *)c->shared + c->layout.mirrors) + 2 * c->rank + out;
}

struct hkt_edge hkt_edge_of(const struct hkt_communicator *c, int r, const struct hkt_location *at, size_t bytes, size_t element)
{
    const int64_t   size = (int64_t)c->peer[r].process->segment_size[at->segment % HKT_SEGMENTS], offset = (int64_t)at->offset;
    struct hkt_edge e    = {.head = 0, .tail = bytes};

    if (!at->segment || !bytes)
        return e;
    if (offset < 0)
        e.head = ((size_t)-offset + element - 1) / element * element;
    if (offset + (int64_t)bytes > size)
        e.tail = (size_t)(size - offset) / element * element;
    e.some = e.head || e.tail < bytes;
    return e;
}

void hkt_edge_save(const struct hkt_operation *op, const struct hkt_edge *e)
{
    const struct hkt_communicator *c     = op->comm;
    const size_t                   bytes = hkt_call_extent(op->call, false, c->rank, c->size) * op->element;
    const char                    *in    = op->call->send;

    if (!e->some)
        return;
    memcpy(mirror(c, false)->head, in, e->head);
    memcpy(mirror(c, false)->tail, in + e->tail, bytes - e->tail);
}

void hkt_edge_restore(const struct hkt_operation *op, const struct hkt_edge *e)
{
    const struct hkt_communicator *c     = op->comm;
    const size_t                   bytes = hkt_call_extent(op->call, true, c->rank, c->size) * op->element;
    char                          *out   = op->call->recv;

    if (!e->some)
        return;
    memcpy(out, mirror(c, true)->head, e->head);
    memcpy(out + e->tail, mirror(c, true)->tail, bytes - e->tail);
}
