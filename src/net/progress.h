/* progress.h -- who makes the network go on, and the lock that whoever does holds. Inside of src/net.
 *
 * Callers of the wire write down what they want (a task) and try the lock: when they get it, they do the work themselves; when not, whoever has
 * it finds the task before he is done. When nobody polls, a thread sleeps on the descriptors; while somebody does, it steps aside.
 */
#ifndef HKT_PROGRESS_H
#define HKT_PROGRESS_H

#include "net/carrier.h"

#include <stdatomic.h>

struct hkt_task {
    void (*run)(struct hkt_task *t); /* under the lock */
    struct hkt_task *next;
    atomic_bool      waiting; /* it is in the list */
};

/* Under the lock. 0, HKT_ERR_MEMORY, HKT_ERR_SYSTEM. */
int hkt_net_start(void);                            /* the thread, the first time */

void hkt_net_lock(void);
void hkt_net_unlock(void);

/* Any thread, also under the lock. Runs it at once when the lock is free, and sends what has come of it: unless that can wait for the next poll,
 * so that more goes along. */
void hkt_net_submit(struct hkt_task *t, bool send);
void hkt_net_step(void);                 /* one turn of progress, under the lock */

/* In net/peer.c: what there is to do besides carriers' turns. */
void hkt_net_pump(void);        /* channels that have something to send */
bool hkt_net_credits(bool all); /* credits that nothing has taken along for a while; all: every one. True: some wait still */

#endif
