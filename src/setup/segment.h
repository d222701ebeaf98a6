/* segment.h -- memory of this process that other processes of the machine can map: nameless (memfd), so nothing is ever left
 * behind; sent as descriptors to the helper threads of peers (process.h), which map it at once and say so.
 */
#ifndef HKT_SEGMENT_H
#define HKT_SEGMENT_H

#include "process.h"

#include <stddef.h>

struct hkt_segment {
    uint32_t id; /* 1, 2, 3 ...: unique among the living segments of this process modulo HKT_SEGMENTS */
    int      fd;
    char    *base; /* page-aligned */
    size_t   size; /* whole pages */
    bool     adopted;
    char     what[32];
};

/* New zeroed memory of at least `size` bytes; pages appear when touched. `what` names it in messages and in /proc maps. Fails with
 * HKT_ERR_MEMORY / HKT_ERR_SYSTEM and says the bytes asked for and the limit that was met; never SIGBUS later. */
int hkt_segment_create(struct hkt_segment **segment, size_t size, const char *what);

/* Moves the whole pages within [ptr, ptr + size) under a memfd at the same address, contents kept. HKT_ERR_UNSUPPORTED when the range
 * is not private anonymous writable memory, or is in a segment already (/proc/self/maps decides). */
int hkt_segment_adopt(struct hkt_segment **segment, void *ptr, size_t size);

/* Tells peers to forget it (does not wait for them); an adopted one becomes private memory again, contents kept. NULL is allowed. */
void hkt_segment_free(struct hkt_segment *segment);

/* The living segment of this process that holds the byte at ptr, or NULL. Takes a lock; hot paths remember the answer
 * together with hkt_segment_generation(), which changes whenever a segment is made or freed. */
struct hkt_segment *hkt_segment_find(const void *ptr);
uint64_t            hkt_segment_generation(void);

/* Returns when every process of the list has mapped the segment (remembers whom it has told; a second call is cheap). A peer that
 * cannot map it, or does not answer within 5 s, gives HKT_ERR_SYSTEM with its reason: the caller then treats the memory as plain. */
int hkt_segment_share(struct hkt_segment *segment, struct hkt_process *const *peers, int count);

/* Where segment `id` of process `peer` is mapped here; NULL when it is not. For peer->self the address of the segment itself. Hot. */
static inline char *hkt_segment_peer(const struct hkt_process *peer, uint32_t id)
{
    /* pairs with the release store of the helper thread when it has mapped the segment */
    return atomic_load_explicit(&((struct hkt_process *)(uintptr_t)peer)->segment[id % HKT_SEGMENTS], memory_order_acquire);
}

#endif
