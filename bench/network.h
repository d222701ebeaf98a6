/* network.h -- ranks on several hosts for bench/versus --network: which host a rank is on, and going there. */
#ifndef VERSUS_NETWORK_H
#define VERSUS_NETWORK_H

#include "harness.h"

/* Ranks are spread evenly and in a row; their number is a multiple of that of the hosts. */
static inline int host_of(const struct world *world, int rank)
{
    return rank * world->hosts / world->size;
}

/* The calling process goes to the host of its rank: a network namespace that bench/versus has made, and a host name of
 * its own. `text` is "PREFIX:HOSTS:SUBNET": host h is the namespace PREFIXh and has the address SUBNET.h+1. Says in the
 * world where that is. -1, and a message, when it cannot. */
int network_enter(struct world *world, const char *text);

#endif
