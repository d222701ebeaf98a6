/* buffer.c -- which segment a pointer is in, remembered; staging memory, made at first need. See buffer.h.
 *
 * Staging memory of a peer is mapped a second time for this communicator: the peer may destroy its end, and its segment with it, while this
 * rank still reads there.
 */
#include "run/buffer.h"

#include "base/atomic.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* The thread sanitizer tells words by their addresses: under it all threads of a process use the process's own mapping, which then stays for
 * good (segment.c). */
static bool stays(const struct hkt_process *owner)
{
    return HKT_THREAD_SANITIZER && owner->self;
}

void *hkt_buffer_remap(const struct hkt_process *owner, void *ptr, size_t size)
{
    /* An old size of 0 leaves the old mapping of shared pages alone and makes another one. */
    void *p = stays(owner) ? ptr : mremap(ptr, 0, size, MREMAP_MAYMOVE);

    if (p != MAP_FAILED)
        return p;
    hkt_fail(HKT_ERR_SYSTEM, "cannot map %zu bytes of shared memory a second time: %s", size, strerror(errno));
    return NULL;
}

void hkt_buffer_unmap(const struct hkt_process *owner, void *ptr, size_t size)
{
    if (!stays(owner))
        munmap(ptr, size);
}

/* Asks the segment table, and shares the segment with the processes of all ranks. */
static void look_up(struct hkt_communicator *c, const void *ptr, struct hkt_found *f)
{
    struct hkt_process *process[64];
    int                 n = 0;

    f->generation = hkt_segment_generation();
    f->segment    = hkt_segment_find(ptr);
    f->begin      = f->segment ? f->segment->base : ptr;
    f->end        = f->segment ? f->segment->base + f->segment->size : (const char *)ptr + 1;
    f->shared     = f->segment != NULL;
    for (int r = 0; r < c->size && f->shared; r++) {
        if (hkt_near(c, r) && !c->peer[r].process->self)
            process[n++] = c->peer[r].process;
        if (n == 64 || (n && r == c->size - 1)) {
            f->shared = hkt_segment_share(f->segment, process, n) == 0; /* else it is plain memory to the others */
            n         = 0;
        }
    }
}

static const struct hkt_found *find(struct hkt_communicator *c, const void *ptr)
{
    const uint64_t    now  = hkt_segment_generation();
    struct hkt_found *slot = &c->found[0];

    for (int i = 0; i < HKT_FOUND; i++) {
        struct hkt_found *f = &c->found[i];

        if (f->generation == now && (const char *)ptr >= f->begin && (const char *)ptr < f->end)
            return f;
        if (f->generation != now || f->used < slot->used)
            slot = f;
    }
    look_up(c, ptr, slot);
    slot->used = c->number;
    return slot;
}

enum hkt_reach hkt_buffer_locate(struct hkt_communicator *c, const void *ptr, size_t bytes, size_t edge, struct hkt_location *at)
{
    const char             *begin = ptr, *page = (const char *)(((uintptr_t)ptr + HKT_EDGE - 1) & ~(uintptr_t)(HKT_EDGE - 1));
    const struct hkt_found *f;

    *at = (struct hkt_location){.address = (uintptr_t)ptr};
    if (!bytes || c->one_process)
        return HKT_REACH_MAP;
    f = find(c, begin);
    if (!f->segment && edge && page < begin + bytes) /* does a segment begin at the next page? */
        f = find(c, page);
    if (f->segment && f->shared && begin + edge >= f->begin && begin + bytes <= f->end + edge) {
        at->segment = f->segment->id;
        at->offset  = (uint64_t)(begin - f->begin); /* negative when it begins before */
        return HKT_REACH_MAP;
    }
    return c->read_ok ? HKT_REACH_READ : HKT_REACH_STAGE;
}

enum hkt_reach hkt_buffer_of_call(struct hkt_communicator *c, const struct hkt_call *call, bool out, struct hkt_location *at)
{
    const size_t bytes = hkt_call_extent(call, out, c->rank, c->size) * call->element;

    *at = (struct hkt_location){.segment = 0};
    if (out ? !hkt_has_out(call, c->rank) : !hkt_has_in(call, c->rank))
        return HKT_REACH_MAP;
    return hkt_buffer_locate(c, out ? call->recv : call->send, bytes, call->arrays || c->far ? 0 : HKT_EDGE - 1, at);
}

enum hkt_reach hkt_buffer_reach(struct hkt_communicator *c, const struct hkt_call *call)
{
    struct hkt_location  at;
    const enum hkt_reach in = hkt_buffer_of_call(c, call, false, &at), out = hkt_buffer_of_call(c, call, true, &at);

    return in > out ? in : out;
}

int hkt_buffer_stage(struct hkt_communicator *c, size_t bytes)
{
    struct hkt_cell    *cell = c->peer[c->rank].cell;
    struct hkt_segment *old  = c->staging_segment, *made;

    if (old && old->size >= bytes)
        return 0;
    HKT_TRY(hkt_segment_create(&made, bytes, "staging"));
    for (int r = 0; r < c->size; r++)
        if (hkt_near(c, r) && hkt_segment_share(made, &c->peer[r].process, 1)) {
            hkt_segment_free(made);
            return HKT_ERR_SYSTEM;
        }
    c->staging_segment           = made;
    c->peer[c->rank].staging     = made->base;
    c->peer[c->rank].staging_size = made->size;
    hkt_publish(&cell->staging, (uint64_t)(made->size >> 12) << 32 | made->id, &cell->sleepers);
    hkt_segment_free(old);
    return 0;
}

int hkt_buffer_staging_of(struct hkt_communicator *c, int r, size_t bytes)
{
    struct hkt_peer *peer = &c->peer[r];
    uint64_t         word;
    char            *there;

    if (peer->staging_size >= bytes)
        return 0;
    word  = hkt_load_acquire(&peer->cell->staging); /* pairs with hkt_publish() in hkt_buffer_stage() */
    there = hkt_segment_peer(peer->process, (uint32_t)word);
    if (!there)
        return hkt_fail(HKT_ERR_INTERNAL, "staging memory of rank %d is not mapped", r);
    there = hkt_buffer_remap(peer->process, there, (size_t)(word >> 32) << 12);
    if (!there)
        return HKT_ERR_SYSTEM;
    if (peer->staging)
        hkt_buffer_unmap(peer->process, peer->staging, peer->staging_size);
    peer->staging      = there;
    peer->staging_size = (size_t)(word >> 32) << 12;
    return 0;
}

void hkt_buffer_release(struct hkt_communicator *c)
{
    for (int r = 0; r < c->size; r++)
        if (r != c->rank && c->peer[r].staging)
            hkt_buffer_unmap(c->peer[r].process, c->peer[r].staging, c->peer[r].staging_size);
    hkt_segment_free(c->staging_segment);
}
