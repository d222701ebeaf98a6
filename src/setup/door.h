/* door.h -- where those come in who want to join this rank: at an abstract unix socket, over TCP, or both. Whoever comes is a stranger until it has
 * proved that it holds the key and has said who it is, for which it has a second; so many strangers at a time, the oldest makes room.
 */
#ifndef HKT_DOOR_H
#define HKT_DOOR_H

#include "frame.h"

enum { HKT_STRANGERS = 64 }; /* at a time */

struct hkt_bootstrap;

struct hkt_door {
    int      near, far; /* listening, unix and TCP; -1: not */
    int      spare;     /* a descriptor to tell others with that there are no more */
    int      at[2];     /* in what is polled */
    uint64_t full;      /* until when nobody is taken in; 0: there is room */
};

/* Called with a stranger that has proved who it is, and what it says in l->peer; makes it something else, or closes it. */
typedef int hkt_admit_fn(struct hkt_bootstrap *b, struct hkt_link *l);

void hkt_door_init(struct hkt_door *d);
int  hkt_door_near(struct hkt_bootstrap *b, const char *name); /* opens it; 0, -EADDRINUSE or other -errno */
void hkt_door_close(struct hkt_bootstrap *b);

/* Puts the door and the strangers into what is polled; strangers that are too late are dropped. *next: sooner when one will be. */
void hkt_door_watch(struct hkt_bootstrap *b, uint64_t *next);

/* What has happened there. */
int hkt_door_turn(struct hkt_bootstrap *b, hkt_admit_fn *admit);

/* Tells up to `most` of those who are at the door, or come before the deadline, why there will be no communicator. One after the other, and without memory. */
void hkt_door_turn_away(struct hkt_bootstrap *b, int most, uint64_t deadline);

void hkt_door_refuse(struct hkt_bootstrap *b, struct hkt_link *l); /* closes and counts */

#endif
