/* transport.h -- what a transport is: one file each in transports/, one const struct each, table generated from Makefile.am.
 *
 * On one host a transport is a way to reach the memory of another rank: `map` gives a pointer to it, `read` and `write` copy from and to it.
 * Between hosts it is a carrier of frames (carrier.h). What a transport cannot do it leaves NULL.
 */
#ifndef HKT_TRANSPORT_H
#define HKT_TRANSPORT_H

#include "language/algorithm.h"
#include "net/carrier.h"
#include "setup/process.h"

/* Where a rank says its memory is. */
struct hkt_location {
    uint64_t address; /* in that rank's address space */
    uint32_t segment; /* id of the segment that holds it; 0: plain memory */
    uint64_t offset;  /* from the segment's base */
};

struct hkt_transport {
    const char *name, *desc;
    /* Can it reach `peer`? 0 and the link's cost, or HKT_ERR_UNSUPPORTED without a sentence. */
    int (*reach)(const struct hkt_process *peer, struct hkt_link *link);
    /* A pointer to the peer's memory, or NULL when it cannot be touched. Hot. */
    char *(*map)(const struct hkt_process *peer, const struct hkt_location *at);
    /* Copies from or to the peer's plain memory. 0 or HKT_ERR_SYSTEM / HKT_ERR_PEER. Optional. */
    int (*read)(const struct hkt_process *peer, void *to, uint64_t address, size_t size);
    int (*write)(const struct hkt_process *peer, uint64_t address, const void *from, size_t size);
    const struct hkt_carrier *carrier; /* between hosts: the wire's way there. Optional */
};

extern const struct hkt_transport *const hkt_transports[]; /* NULL-terminated, cheapest first */

#endif
