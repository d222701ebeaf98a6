/* offload_ring.h -- many transfers of a file at a time, through the kernel's io_uring. One ring is used by one thread
 * at a time. */
#ifndef PARALLEL_OFFLOAD_RING_H
#define PARALLEL_OFFLOAD_RING_H

#include <parallel/common.h>

#include <sys/types.h>

struct hkt_ring;

struct hkt_transfer {
    char  *memory;
    size_t size;
    off_t  at;
};

/* NULL where the system has no io_uring or does not permit it: use pread() and pwrite() then. */
struct hkt_ring *hkt_ring_make(void);
void             hkt_ring_free(struct hkt_ring *ring); /* NULL is allowed */

/* Reads or writes all of them, in pieces and in any order; returns when nothing is under way any more. 0, or an errno;
 * -1: the file ends too early. The list is used up. */
int hkt_ring_transfer(struct hkt_ring *ring, int file, struct hkt_transfer *list, int count, bool write);

#endif
