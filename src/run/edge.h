/* edge.h -- buffers that a segment covers all but for their edges.
 *
 * Registered memory seldom begins and ends at a page border: the whole pages are shared, the edges are not. For the time of an
 * operation their bytes stand in a mirror in the communicator's segment: the owner copies what it sends there before it enters, and
 * what it receives back before it returns. An element that straddles a border is in the mirror whole.
 */
#ifndef HKT_EDGE_H
#define HKT_EDGE_H

#include "run/operation.h"

/* The edge of rank r's buffer, which has `bytes` bytes of elements of `element` and stands at `at`, whose offset may be negative. */
struct hkt_edge hkt_edge_of(const struct hkt_communicator *c, int r, const struct hkt_location *at, size_t bytes, size_t element);

/* My IN to my mirror; my mirror to my OUT. */
void hkt_edge_save(const struct hkt_operation *op, const struct hkt_edge *e);
void hkt_edge_restore(const struct hkt_operation *op, const struct hkt_edge *e);

/* Where byte `at` of rank r's IN or OUT is; lowers *bytes to what is contiguous from there. `base`: the buffer. */
static inline char *hkt_edge_pointer(const struct hkt_communicator *c, uint32_t r, bool out, size_t at, size_t *bytes)
{
    const struct hkt_edge *e    = out ? &c->out_edge[r] : &c->in_edge[r];
    char                  *base = out ? c->out[r] : c->in[r];
    struct hkt_mirror     *m;

    if (__builtin_expect(!e->some, 1))
        return base + at;
    m = (struct hkt_mirror *)((char *)c->shared + c->layout.mirrors) + 2 * r + out;
    if (at >= e->tail)
        return (char *)m->tail + (at - e->tail);
    if (at < e->head) {
        *bytes = *bytes < e->head - at ? *bytes : e->head - at;
        return (char *)m->head + at;
    }
    *bytes = *bytes < e->tail - at ? *bytes : e->tail - at;
    return base + at;
}

#endif
