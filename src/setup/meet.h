/* meet.h -- the inside of a bootstrap, shared by those who make it: meet.c (rank 0 gives everybody a place), join.c (the others take theirs), bootstrap.c
 * (gathers), failure.c (who hears of what).
 */
#ifndef HKT_MEET_H
#define HKT_MEET_H

#include "bootstrap.h"
#include "door.h"
#include "frame.h"
#include "tree.h"

#include <poll.h>

enum {
    HKT_NAME = 2 * HKT_HOST,
    HKT_TEXT = 1024 /* a sentence */
};

static const uint64_t HKT_GRACE_NS = 3000000000u; /* the others wait so much longer than rank 0, which can say who is missing */

struct hkt_place { /* body of HKT_PLACE */
    struct hkt_hello        parent;
    int32_t                 leads; /* the receiver is the first of its host, and is to open a port for others */
    int32_t                 count; /* addresses of the parent; 0: it is on the receiver's host */
    struct hkt_inet_address at[HKT_ID_ADDRESSES];
};

struct hkt_doorplate { /* body of HKT_DOOR */
    int32_t                 count;
    struct hkt_inet_address at[HKT_ID_ADDRESSES];
};

struct hkt_start { /* body of HKT_START */
    char    may[HKT_MAY]; /* capabilities of all */
    int32_t parent[];     /* by rank */
};

struct hkt_bootstrap {
    int               size, rank;
    uint64_t          timeout; /* ns, of each call */
    struct hkt_id     id;
    struct hkt_hello  self;
    int               code; /* why it is dead; 0: it is not */
    char              sentence[HKT_TEXT];
    struct hkt_link   up;   /* to the parent; rank 0 has none */
    struct hkt_link  *link; /* guests, children and strangers while the ranks meet; then the children alone */
    int               links;
    struct pollfd    *poll; /* for the parent, the doors and every link */
    int               polls;
    struct hkt_door   door;
    struct hkt_hall  *hall; /* of rank 0, while the ranks meet */
    struct hkt_start *start;
    struct hkt_tree   tree;
    struct hkt_frame  out; /* what is going out to the children */
    const void       *out_body;
    unsigned          refused; /* connections of strangers */
};

/* ---- meet.c */
int  hkt_meet_as_hub(struct hkt_bootstrap *b); /* rank 0 */
void hkt_hall_free(struct hkt_bootstrap *b);

/* So many ranks that some cannot be rank 0's children: all listen, and the first of each host over TCP too. */
bool hkt_meet_many(const struct hkt_bootstrap *b);

/* Room for so many links, for what is to be polled, and for the start. HKT_ERR_MEMORY. */
int hkt_meet_room(struct hkt_bootstrap *b, int links);

/* All are here: closes the doors, drops strangers, keeps the children and tells them, builds the tree. */
int hkt_meet_done(struct hkt_bootstrap *b);

/* ---- join.c */
int hkt_meet_as_other(struct hkt_bootstrap *b); /* the others */

/* ---- failure.c */
const char *hkt_rank_name(const struct hkt_hello *rank, char text[HKT_NAME]); /* "rank 3 (host a, pid 4711)" */

/* This rank is dead of the thread's last error, and so are those that hear of it from here: those below, on rank 0 all. Gives the code. */
int hkt_bootstrap_die_all(struct hkt_bootstrap *b, int code);

/* The rank at the other end has failed (error 1: a frame came that nobody expects, which is how it says so; else -errno). All hear of
 * it. Gives the code. */
int hkt_bootstrap_lose(struct hkt_bootstrap *b, struct hkt_link *l, int error);

/* Marks in the tree those that have not given their part, as far as can be known from here in `ms` milliseconds. */
void hkt_bootstrap_find_missing(struct hkt_bootstrap *b, int ms);

/* Rank 0 gives up on those that are marked (a byte for each rank). */
int hkt_bootstrap_give_up(struct hkt_bootstrap *b, const char *what, const char *mark);

/* Takes over the sentence of an HKT_FAIL whose header has come. Gives the code. */
int hkt_bootstrap_hear(struct hkt_link *l);

/* What is to be polled, from b->polls = 0 on: gives the place, -1 for no descriptor. */
int hkt_bootstrap_watch(struct hkt_bootstrap *b, int fd, short events);

/* Polls that. 0, or -ETIMEDOUT when the deadline has passed already. */
int hkt_bootstrap_poll(struct hkt_bootstrap *b, uint64_t deadline);

bool hkt_bootstrap_ready(const struct hkt_bootstrap *b, int at);

#endif
