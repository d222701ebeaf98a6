/* memfd.h -- nameless memory as a descriptor. */
#ifndef HKT_MEMFD_H
#define HKT_MEMFD_H

#include <stddef.h>

/* A memfd of exactly `size` bytes, zero, whose size nobody can change any more: a peer that has the descriptor cannot make the memory
 * fault. Gives the descriptor, or HKT_ERR_SYSTEM / HKT_ERR_MEMORY with a sentence that begins with `what`. */
int hkt_memfd_create(size_t size, const char *what);

#endif
