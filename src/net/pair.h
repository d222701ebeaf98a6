/* pair.h -- the inside of the wire: what wire.c, lane.c and peer.c share. Everything here is under the lock of progress.h but for what is said
 * to be the caller's.
 */
#ifndef HKT_PAIR_H
#define HKT_PAIR_H

#include "net/carrier.h"
#include "net/progress.h"
#include "net/wire.h"

enum {
    HKT_ARRIVALS  = 128, /* a power of two: messages of a lane that can be coming in */
    HKT_SENTENCE  = 1024,
    HKT_REPLIES   = 8
};

_Static_assert(HKT_WIRE_RING + HKT_WIRE_AHEAD <= HKT_ARRIVALS, "all that can be coming in has a place");
_Static_assert(HKT_WIRE_RING + HKT_WIRE_AHEAD < 128, "a carrier may tell asked[] in 8 bits");

struct hkt_send {
    const char          *from;
    uint32_t             bytes, left; /* left: not gone yet */
    struct hkt_wire_note note;
};

/* A lane to the other rank. Ring entry of message n: n % HKT_WIRE_RING; the caller writes it before `posted`, and again after `sent`. */
struct hkt_out {
    struct hkt_send  ring[HKT_WIRE_RING];
    _Atomic uint64_t posted; /* the caller's */
    uint64_t         begun;  /* messages of which a part has been taken by the carrier */
    uint32_t         rest;   /* bytes of the last of them that it has not taken yet */
    uint64_t         asked;  /* by the other rank, as far as it has told */
    _Atomic uint64_t sent;
};

struct hkt_receive {
    char                *to;
    uint32_t             bytes;
    struct hkt_wire_note note;
};

enum hkt_arrival_state { HKT_NOT_YET, HKT_DIRECT, HKT_AHEAD, HKT_REFUSED };

/* A message that is coming in, or waits. */
struct hkt_arrival {
    enum hkt_arrival_state state;
    uint32_t               bytes, claimed, got; /* claimed: that parts have been given a place for; got: that are there */
    char                  *ahead; /* its memory; NULL: none was needed, or there was none */
    struct hkt_wire_note   note;
};

/* A lane from the other rank. */
struct hkt_in {
    struct hkt_receive  ring[HKT_WIRE_RING];
    struct hkt_arrival *arrival; /* HKT_ARRIVALS, once a message has come; NULL: none has */
    _Atomic uint64_t    asked; /* the caller's */
    uint64_t            expected; /* that the carrier was told of */
    uint64_t            told;  /* that the other rank knows of, or will by what is on its way */
    uint64_t            begun; /* the last message of which a part has come */
    bool                large; /* it is a large one */
    bool                stuck; /* after a conflict */
    _Atomic uint64_t    arrived;
};

enum { HKT_SAY_BIND = 1, HKT_SAY_POISON = 2, HKT_SAY_LEFT = 4, HKT_SAY_CREDIT = 8 };

/* This rank and a rank elsewhere. */
struct hkt_pair {
    struct hkt_task      task; /* the caller has posted something */
    struct hkt_wire     *wire;
    struct hkt_net_peer *peer;
    int                  rank;
    uint32_t             mine, theirs; /* names of the pair; theirs is known when it is bound */
    bool                 bind_said, bound;
    bool                 gone, told_gone; /* the other rank has left; the engine knows */
    uint32_t             final[HKT_LANES]; /* and had sent so many */
    unsigned             say;
    bool                 talking; /* it is in the peer's list of pairs that have something to send */
    struct hkt_pair     *next_talking;
    bool                 lazy; /* it is in the list of credits that can wait */
    uint64_t             lazy_since;
    struct hkt_pair     *next_lazy;
    struct hkt_out       out[HKT_LANES];
    struct hkt_in        in[HKT_LANES];
    _Atomic uint32_t     sleepers;
};

struct hkt_wire {
    struct hkt_wire_config config;
    struct hkt_pair      **pair; /* by rank; NULL: on this host */
    struct hkt_task        task; /* it was poisoned */
    struct hkt_wire       *next;
    atomic_int             poison; /* 0, 1: being written, 2: `code` and `sentence` are there */
    int                    code;
    char                   sentence[HKT_SENTENCE];
};

/* A rank elsewhere that wants to talk to one whose end is not open yet. */
struct hkt_parked {
    struct hkt_parked *next;
    struct hkt_head    head; /* HKT_HEAD_BIND */
    bool               left;
};

/* The process at the other end of a channel. */
struct hkt_net_peer {
    struct hkt_process       *process;
    const struct hkt_carrier *carrier;
    struct hkt_channel       *channel;
    struct hkt_net_peer      *next;
    struct hkt_pair          *talk_first, *talk_last;
    bool                      pumping; /* it is in the list of peers to pump */
    struct hkt_net_peer      *next_pump;
    bool                      lost;
    struct hkt_parked        *parked;
    int                       nparked;
    struct hkt_head           reply[HKT_REPLIES]; /* to ranks that ask for one that has left */
    int                       nreply;
    char                      sentence[HKT_SENTENCE]; /* of a poison that is coming in */
};

/* ---- lane.c ---- */
void hkt_lane_match(struct hkt_pair *p); /* the caller has asked for more, or something has come: what of it has arrived now? */
/* 1: the piece; 0: nothing of these sizes; -1: nothing of any size. */
int  hkt_lane_next(struct hkt_pair *p, int sizes, uint32_t most, struct hkt_piece *piece);
void hkt_lane_gone(struct hkt_pair *p, const struct hkt_piece *piece);
void hkt_lane_expect(struct hkt_pair *p); /* it is bound: the carrier hears what this rank has asked for */
void hkt_lane_credit(struct hkt_pair *p, const struct hkt_head *head);
int  hkt_lane_place(struct hkt_pair *p, const struct hkt_head *head, char **to);
void hkt_lane_landed(struct hkt_pair *p, const struct hkt_head *head);
bool hkt_lane_owes(const struct hkt_pair *p, bool *now); /* credits that the other rank does not know of; now: and will soon need */
bool hkt_lane_all_sent(const struct hkt_pair *p);
bool hkt_lane_all_here(const struct hkt_pair *p); /* of a rank that has left: what it has sent */
void hkt_lane_free(struct hkt_pair *p);           /* memory of what came ahead */

/* ---- peer.c ---- */
void hkt_pair_talk(struct hkt_pair *p, unsigned say); /* it has something to send */
void hkt_pair_connect(struct hkt_pair *p);            /* somebody waits for the other rank: let it know us */
void hkt_pair_owes(struct hkt_pair *p);               /* has asked for more */
int  hkt_pair_add(struct hkt_pair *p);                /* gives it its name. 0 or HKT_ERR_MEMORY */
void hkt_pair_remove(struct hkt_pair *p);             /* NULL is allowed */
void hkt_pair_check_gone(struct hkt_pair *p);         /* if the other rank has left and all is here, the engine is told */
void hkt_wire_enlist(struct hkt_wire *w);             /* what came for it before it was open is looked at */
void hkt_wire_delist(struct hkt_wire *w);

#endif
