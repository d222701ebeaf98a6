/* wire.h -- numbered messages between ranks of different hosts: all that the engine needs of a network, whichever it is.
 *
 * A wire is one rank's end of the network side of one communicator. From every rank of another host to this one, and back, lead two lanes: one
 * for collectives, one for send and receive. Messages of a lane are numbered 1, 2, 3 ... as they are sent; the receiver says where each goes, in the
 * same order, before or after it has come. The sizes that both ends name must agree. Nothing here waits: calls begin something, and words that only
 * grow say how far it is, so that the engine waits for a message as it waits for a rank of this host (base/wait.h).
 *
 * Credits are implied: a sender is at most HKT_WIRE_DEPTH messages ahead of the receiver's hkt_wire_receive(), which is what every schedule may
 * rely on (HKT_FIFO_DEPTH), and with small ones HKT_WIRE_AHEAD, so that who only sends need not wait for who only receives. What has come ahead waits
 * in memory of the wire and is copied once; what is expected lands where it belongs.
 *
 * Whoever waits makes the progress (hkt_wire_poll()); when nobody does, a thread of the process does, which sleeps while nothing happens.
 * Calls on one wire come from one thread at a time, but for hkt_wire_poll(), hkt_wire_rest() and hkt_wire_poison(): any thread.
 */
#ifndef HKT_WIRE_H
#define HKT_WIRE_H

#include "setup/process.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum hkt_lane { HKT_LANE_COLLECTIVE, HKT_LANE_MESSAGE, HKT_LANES };

enum {
    HKT_WIRE_DEPTH = 2,      /* messages of a lane that may be on their way before the receiver has asked for them */
    HKT_WIRE_AHEAD = 64,     /* the same of messages of at most HKT_WIRE_SMALL bytes */
    HKT_WIRE_SMALL = 16384,
    HKT_WIRE_RING  = 8,      /* sends, and receives, of a lane under way at a time */
    HKT_WIRE_MOST  = 1 << 20 /* bytes of a message */
};

/* Goes with every message. */
struct hkt_wire_note {
    uint64_t same[3]; /* what both ends must agree on: which operation this is about */
    double   value;   /* what only the sender knows */
    size_t   bytes;   /* of the message; both ends must agree on it, too */
};

/* What happens by itself. Called by whichever thread makes progress, which holds a lock: do not call the wire, but for hkt_wire_poison(). */
struct hkt_wire_events {
    /* The next message of a lane is not what this rank expects: note or size differ. Nothing was stored, the lane stands still. */
    void (*conflict)(void *arg, enum hkt_lane lane, int from, const struct hkt_wire_note mine_theirs[2], const size_t bytes[2]);
    void (*poison)(void *arg, int from, int code, const char *sentence); /* hkt_wire_poison() of a rank elsewhere */
    void (*left)(void *arg, int rank); /* it has closed its end; what it sent before has arrived */
};

struct hkt_wire_config {
    uint64_t                      id[2]; /* of the communicator: the same on all its ranks, no other has it */
    int                           rank, size;
    struct hkt_process *const    *process; /* by rank, for the life of the wire; lanes lead to those with process->net */
    const struct hkt_wire_events *events;
    void                         *arg;
};

struct hkt_wire;

/* Allocates all it will need but what comes ahead; connects to nobody before the first message. HKT_ERR_MEMORY, HKT_ERR_SYSTEM. */
int hkt_wire_open(struct hkt_wire **w, const struct hkt_wire_config *config);

/* Hands over what has been sent (for at most a second), says goodbye, frees. NULL is allowed. */
void hkt_wire_close(struct hkt_wire *w);

/* The next message of the lane to rank `to`: note->bytes, at most HKT_WIRE_MOST, which stay untouched until hkt_wire_sent() counts it.
 * HKT_IN_PROGRESS: HKT_WIRE_RING are under way; try again when one is gone. */
int hkt_wire_send(struct hkt_wire *w, enum hkt_lane lane, int to, const void *from, const struct hkt_wire_note *note);

/* Where the next message of the lane from rank `from` goes. As above; note->value is not looked at. */
int hkt_wire_receive(struct hkt_wire *w, enum hkt_lane lane, int from, void *to, const struct hkt_wire_note *note);

/* Messages of the lane that this rank's memory is no longer needed for; that have arrived. Written with hkt_publish() for that rank. */
_Atomic uint64_t *hkt_wire_sent(struct hkt_wire *w, enum hkt_lane lane, int to);
_Atomic uint64_t *hkt_wire_arrived(struct hkt_wire *w, enum hkt_lane lane, int from);

/* note.value of an arrived message, while it is one of the last HKT_WIRE_RING that were asked for. */
double hkt_wire_value(const struct hkt_wire *w, enum hkt_lane lane, int from, uint64_t number);

/* Threads asleep on the words of that rank: for struct hkt_waiter. */
_Atomic uint32_t *hkt_wire_sleepers(struct hkt_wire *w, int rank);

/* Makes progress, for all wires of the process; returns at once, also when another thread is at it. Gives a number that is another one whenever bytes
 * have come or gone. */
uint64_t hkt_wire_poll(void);

/* The caller stops polling (it goes to sleep, or to compute with sends under way): the thread goes on with it. */
void hkt_wire_rest(void);

/* Tells all other ranks, in the background, that the communicator is dead. */
void hkt_wire_poison(struct hkt_wire *w, int code, const char *sentence);

/* Somebody else has told them; whom this rank has talked to hears it again when it closes its end, before it hears that. */
void hkt_wire_dead(struct hkt_wire *w, int code, const char *sentence);

#endif
