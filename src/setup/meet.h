/* meet.h -- the inside of a bootstrap, shared by meet.c (how the ranks come together) and bootstrap.c (what they do then).
 */
#ifndef HKT_MEET_H
#define HKT_MEET_H

#include "bootstrap.h"
#include "frame.h"

#include <poll.h>

enum {
    HKT_STRANGERS = 64, /* connections at a time that have not said who they are */
    HKT_NAME      = 2 * HKT_HOST,
    HKT_TEXT      = 1024 /* a sentence */
};

static const uint64_t HKT_GRACE_NS = 3000000000u; /* the others wait so much longer than rank 0, which can say who is missing */

struct hkt_id { /* in hkt_unique_id_t; the rest is 0 */
    unsigned char public_key[HKT_KEY], secret[HKT_KEY];
    uint32_t      magic;
};

struct hkt_bootstrap {
    int              size, rank;
    int              listener; /* of rank 0; -1 once all are there */
    int              spare;    /* of rank 0, meanwhile: a descriptor to tell others with that there are no more */
    uint64_t         timeout;  /* ns, of each call */
    struct hkt_id    id;
    struct hkt_hello self;
    int              code; /* why it is dead; 0: it is not */
    char             sentence[HKT_TEXT];
    struct hkt_link  hub;    /* of the others: the connection to rank 0 */
    struct hkt_link *link;   /* of rank 0: by rank, [0] not used; then HKT_STRANGERS more */
    struct pollfd   *poll;   /* of rank 0: one for each of these; [0] is the listener's */
    struct pollfd   *packed; /* the same without those that are closed */
    struct hkt_frame result; /* of rank 0: what is going out to the others */
    const void      *result_body;
    unsigned         refused; /* connections of strangers */
};

int hkt_meet_as_hub(struct hkt_bootstrap *b, const char *name);   /* rank 0 */
void hkt_meet_close(struct hkt_bootstrap *b);                     /* closes rank 0's door */
int hkt_meet_as_other(struct hkt_bootstrap *b, const char *name); /* the others */

const char *hkt_rank_name(const struct hkt_hello *rank, char text[HKT_NAME]); /* "rank 3 (host a, pid 4711)" */

/* Rank 0 is dead of the thread's last error, and tells the others. Gives the code. */
int hkt_bootstrap_die_all(struct hkt_bootstrap *b, int code);

/* The rank at the other end has failed (error 1: a frame came that nobody expects, which is how it says so; else -errno). On rank 0 all
 * hear of it. Gives the code. */
int hkt_bootstrap_lose(struct hkt_bootstrap *b, struct hkt_link *l, int error);

/* Rank 0 gives up on those who are not `done` after the deadline. */
int hkt_bootstrap_give_up(struct hkt_bootstrap *b, const char *what);

/* Rank 0 polls the first n of b->poll. 0, or -ETIMEDOUT. */
int hkt_bootstrap_poll(struct hkt_bootstrap *b, int n, uint64_t deadline);

/* Takes over the sentence of an HKT_FAIL whose header has come, behind a prefix. Gives the code. */
int hkt_bootstrap_hear(struct hkt_link *l, const char *prefix);

#endif
