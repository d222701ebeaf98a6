/* address.h -- see address.c. */
#ifndef HKT_ADDRESS_H
#define HKT_ADDRESS_H

#include "net/transport.h"

/* May this transport be used to reach other hosts? */
bool hkt_net_wanted(const struct hkt_transport *t);

/* This process's. 0 or HKT_ERR_*, with the sentence. */
int hkt_net_address(struct hkt_net_address *a);

/* The record of a carrier in an address, whose every length is checked; NULL: there is none. */
const unsigned char *hkt_net_record(const struct hkt_net_address *a, const char *name, size_t *size);

/* The carrier that this process would rather use than any other, as it says in its address: the length of the name, 0 where there is none. */
size_t hkt_net_preferred(const struct hkt_net_address *a, const char **name);

#endif
