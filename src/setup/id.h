/* id.h -- what is in a unique id: a key, and where rank 0 listens. See bootstrap.h for the functions that make and read ids.
 */
#ifndef HKT_ID_H
#define HKT_ID_H

#include "hocket.h"
#include "inet.h"

#include <stdbool.h>
#include <stdint.h>

enum { HKT_KEY = 16, HKT_ID_ADDRESSES = 16 };

struct hkt_id { /* fills hkt_unique_id_t; public_key and secret together are the key of a proof */
    unsigned char public_key[HKT_KEY], secret[HKT_KEY];
    uint32_t      magic;
    uint16_t      port; /* of rank 0; 0: it can be met on its own host only */
    uint8_t       fixed; /* the port was asked for: rank 0 must get it */
    uint8_t       unused;
    uint64_t      host;       /* rank 0's hkt_inet_host(); 0: not known */
    unsigned char packed[80]; /* its addresses: family and kind, then 4 or 16 bytes; 0 ends them */
};

int hkt_id_check(const struct hkt_id *id);

/* The abstract socket of rank 0. */
void hkt_id_socket(const struct hkt_id *id, char name[64]);

/* Where rank 0 says that it is. Gives the number. */
int hkt_id_addresses(const struct hkt_id *id, struct hkt_inet_address list[HKT_ID_ADDRESSES]);

/* The listener that this process opened when it made the id; it is the caller's then. -1: there is none. */
int hkt_id_listener(const struct hkt_id *id);

#endif
