/* startup.h -- how long it takes until so many ranks know each other, by a tree of connections: rank r's parent is (r-1) / fanout. One less
 * than the ranks as fanout is a hub, which all connect to.
 *
 * Every rank connects to its parent, which takes its children in one at a time as they come, and each has proven the secret after so many round
 * trips. Then gathers: each rank hands up what its subtree has, the root hands the whole down. What a parent does for one child it does for no
 * other at the same time. Times of the real thing that are not its own (loading libraries, the fabric's manager) are no part of it.
 */
#ifndef HKT_STARTUP_H
#define HKT_STARTUP_H

struct hkt_startup {
    int    ranks, fanout;
    int    trips;    /* round trips of a handshake */
    int    gathers;  /* all-gathers that follow */
    double accept;   /* the parent's processor for one connection with its proof, seconds */
    double message;  /* a processor for one message, in or out */
    double alpha;    /* one way */
    double beta;     /* per byte on the port of a rank */
    double bytes;    /* what a rank hands in to one gather */
};

struct hkt_startup_result {
    double seconds, connected, gathered; /* all; of these until all are connected; for all gathers */
    int    depth, most_children;
};

/* 0, HKT_ERR_ARGUMENT, HKT_ERR_MEMORY. O(ranks log fanout). */
int hkt_startup_simulate(const struct hkt_startup *how, struct hkt_startup_result *result);

#endif
