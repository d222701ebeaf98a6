/* here.h -- where this process is in the machine (setup/topology.h): what the engine and the networks ask of that. The machine is read once, when it is first
 * asked for: that takes some milliseconds, so nobody asks who can do without.
 */
#ifndef HKT_HERE_H
#define HKT_HERE_H

#include "machine.h"

/* The numbers, in the host, of the socket, memory node and last cache that hold all processors of a rank; -1: none does, or nothing is known. */
struct hkt_here {
    int32_t socket, numa, cache;
};

/* Of a rank whose thread may run on these processors. Nothing is read for one that may run on all of them. */
void hkt_here(struct hkt_here *here, const struct hkt_cpus *cpus);

/* How far a network interface of this host is from the calling thread's processors: 0 shares a PCIe switch or memory node, 1 a socket, 2 less than that;
 * and 3 more for one that is not half as fast as the host's fastest. Of no device of the machine: 0. */
int hkt_here_interface(const char *name);

/* Ranks of one host by where they are; 0: side by side. */
int hkt_here_compare(const struct hkt_here *a, const struct hkt_here *b);

#endif
