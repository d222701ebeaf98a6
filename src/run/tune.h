/* tune.h -- which way a call is run: flat or by schedule, and by which algorithm. Functions of what is equal on all ranks, and of what rank 0
 * has decided for all. */
#ifndef HKT_TUNE_H
#define HKT_TUNE_H

#include "run/communicator.h"
#include "run/plan.h"

/* Small enough for the flat algorithm? */
bool hkt_tune_flat(const struct hkt_communicator *comm, const struct hkt_call *call);

/* Two questions whose answer depends on where the cores are at the moment, on the caches, the kernel and the program. Rank 0 tries both
 * answers, keeps the times, and says in its line what all ranks do.
 *   plain   memory that peers can read: the usual plan by system calls instead of loads and stores, or through the staging memory
 *   mapped  large results: stored as usual, or past the caches */
enum hkt_open_question { HKT_PLAIN, HKT_MAPPED, HKT_QUESTIONS };
enum hkt_way { HKT_WAY_READ = 0, HKT_WAY_STAGE = 1, HKT_WAY_CACHE = 0, HKT_WAY_BYPASS = 1, HKT_WAYS = 2 };

struct hkt_experience {
    float    seconds[HKT_WAYS]; /* about the least that it took lately */
    uint32_t calls;
};

/* Rank 0: its answer for this call. */
enum hkt_way hkt_tune_way(const struct hkt_communicator *comm, const struct hkt_call *call, enum hkt_open_question question);

/* Is the time of a call of so much traffic (hkt_call_traffic(), bytes) worth keeping? */
bool hkt_tune_learns(const struct hkt_communicator *comm, enum hkt_reach reach, size_t traffic);

/* Rank 0: how long it took from the last rank's entry. */
void hkt_tune_learn(struct hkt_communicator *comm, const struct hkt_call *call, enum hkt_open_question question, enum hkt_way way, double seconds);

/* How a message is best sent from a buffer of this reach: small ones go through the banks. */
enum hkt_reach hkt_tune_message(enum hkt_reach reach, size_t bytes);

/* What plans are made for. */
struct hkt_request {
    enum hkt_reach reach; /* of the buffers */
    enum hkt_way   way;   /* to the first question, when that is HKT_REACH_READ */
    size_t         block; /* elements of the largest block of any rank */
};

/* The plan for a call: from the cache, else chosen, built and kept. */
int hkt_tune_plan(struct hkt_communicator *comm, const struct hkt_call *call, struct hkt_request request, const struct hkt_plan **plan);

void hkt_tune_free(struct hkt_communicator *comm); /* the cache */

/* The link between two ranks of a host. */
extern const struct hkt_link hkt_tune_local_link;

#endif
