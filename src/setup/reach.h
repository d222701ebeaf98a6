/* reach.h -- one connection to somebody who can be reached at some of many addresses: all are tried, each a little after the one before, and the
 * first at which somebody proves that it holds the key is taken. So nobody has to choose an interface, and a stranger who happens to have the
 * address on another network is passed by. Whoever is not there yet is tried again. Non-blocking: many can be under way in one thread,
 * while it serves others.
 */
#ifndef HKT_REACH_H
#define HKT_REACH_H

#include "inet.h"
#include "proof.h"

#include <poll.h>
#include <stddef.h>

enum { HKT_REACH_TRIES = 32 };

struct hkt_reach_try {
    struct hkt_inet_address to;
    int                     fd; /* -1: none now */
    bool                    connected;
    int                     error;    /* -errno of the last attempt; 0: it is under way, or has not begun */
    int                     delay_ms; /* to the next attempt, which grows */
    uint64_t                due;      /* hkt_now_ns(): when it is to begin */
    struct hkt_proof        proof;
};

struct hkt_reach {
    int                  count;
    uint64_t             purpose;
    unsigned char        key[HKT_PROOF_KEY];
    struct hkt_reach_try try[HKT_REACH_TRIES];
};

/* Where to, as others have it from hkt_inet_own() (with ports). A link-local address is tried from every interface of this host that has
 * one. 0, or HKT_ERR_UNSUPPORTED (no libcrypto). Has no descriptors before the first turn. */
int hkt_reach_begin(struct hkt_reach *r, const struct hkt_inet_address *list, int count, const unsigned char key[HKT_PROOF_KEY],
                    uint64_t purpose);

/* Goes on as far as it can. The descriptor of the proven connection, which is the caller's now (hkt_reach_end() closes the others);
 * -EAGAIN: not yet. An address that fails is tried again, so the caller keeps the deadline. */
int hkt_reach_turn(struct hkt_reach *r);

/* What to poll for before the next turn. Gives the number of entries, at most HKT_REACH_TRIES; *until: turn then at the latest. */
int hkt_reach_poll(const struct hkt_reach *r, struct pollfd *polls, uint64_t *until);

/* All of that until the deadline, for one who has nothing else to do. The descriptor or -ETIMEDOUT; hkt_reach_end() comes after. */
int hkt_reach_wait(struct hkt_reach *r, uint64_t deadline);

/* Every address and what became of it: "10.0.0.1:4711 (Connection refused), ...". Gives `text`. Before hkt_reach_end(). */
const char *hkt_reach_text(const struct hkt_reach *r, char *text, size_t size);

void hkt_reach_end(struct hkt_reach *r);

#endif
