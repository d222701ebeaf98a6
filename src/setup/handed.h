/* handed.h -- descriptors that one process gives another one of its host, through the helper thread: what is not shared memory of the library
 * itself (segment.h), as memory of a GPU.
 */
#ifndef HKT_HANDED_H
#define HKT_HANDED_H

#include "setup/helper.h"

/* Gives `fd` (which stays the caller's) to a peer under a new number; returns when it has it. 0 or HKT_ERR_*. */
int hkt_hand(uint32_t *number, struct hkt_process *peer, int fd);

/* Takes what the peer has given under that number; -1: nothing. The descriptor is the caller's. */
int hkt_handed(const struct hkt_process *peer, uint32_t number);

/* By the helper thread: keeps one. 0 or -errno. */
int hkt_handed_keep(const struct hkt_ask *ask, int fd);

#endif
