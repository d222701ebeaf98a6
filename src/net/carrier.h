/* carrier.h -- what a network transport does for the wire: it takes frames from this process to another one and back.
 *
 * A channel is the connection of two processes, one however many communicators and ranks they have in common. A frame is a head of 64 bytes
 * and `length` bytes behind it, which come from where the message is and go to where it belongs; no copy is made on the way. Every frame
 * stands for itself: the parts of one message may take different ways (sockets, queue pairs) and may overtake one another.
 *
 * The carrier pulls: when it can send, it asks the user for the next piece, so nothing is queued twice and the way that is free first takes the
 * next part of a large message. All calls, in both directions, are made under the lock of net/progress.c; none of them waits.
 */
#ifndef HKT_CARRIER_H
#define HKT_CARRIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hkt_frame_type {
    HKT_HEAD_DATA = 1, /* part of a message */
    HKT_HEAD_CREDIT,   /* only asked[] */
    HKT_HEAD_BIND,     /* same[0..1]: the communicator; from, to: the ranks; bytes: what the sender calls this pair */
    HKT_HEAD_LEFT,     /* the same; asked[]: how many messages it has sent in all */
    HKT_HEAD_POISON,   /* the same; bytes: the code; behind it the sentence */
    HKT_HEAD_BYE,      /* the channel is closed by a process that lives on */
    HKT_HEAD_CARRIER,  /* of a carrier to itself at the other end: no business of its user */
    HKT_HEAD_KINDS
};

/* Little-endian on every host: tcp_join.c refuses others. */
struct hkt_head {
    uint8_t  kind, lane;
    uint16_t zero;
    uint32_t pair;   /* as the receiver calls it */
    uint32_t number; /* of the message in its lane, low half; rank that sends */
    uint32_t bytes;  /* of the message */
    uint32_t offset; /* of this part; rank that receives */
    uint32_t length; /* of this part: what follows */
    uint32_t asked[2]; /* per lane: how many messages the sender of this frame has asked for, low half */
    uint64_t same[3];
    double   value;
};
_Static_assert(sizeof(struct hkt_head) == 64, "one cache line, the same everywhere");

/* What is to be sent next. */
struct hkt_piece {
    struct hkt_head head;
    const char     *body;  /* head.length bytes that stay until gone() */
    void           *owner; /* of the body; NULL: nobody wants to hear when it is gone */
};

enum hkt_piece_size { HKT_PIECE_SMALL = 1, HKT_PIECE_LARGE = 2 }; /* bits: frames for which a short way counts, parts of large messages */

/* Who uses a channel: net/peer.c, or fault.c in between. */
struct hkt_channel_user {
    bool (*next)(void *arg, int sizes, uint32_t most, struct hkt_piece *piece); /* at most so many bytes behind the head; false: nothing */
    void (*gone)(void *arg, const struct hkt_piece *piece); /* its body is no longer needed */
    /* A head has come: where its body goes (NULL: nowhere). Not 0: no head that the other side may send; the channel is lost. */
    int (*place)(void *arg, const struct hkt_head *head, char **to);
    int (*landed)(void *arg, const struct hkt_head *head); /* all of the body is there (also when there is none) */
    void (*lost)(void *arg, const char *why);              /* the process at the other end cannot be reached any more, for good */
    void (*closed)(void *arg);                             /* the other side has closed the channel in peace; connect() opens it again */
    /* What a head of this pair has said last, as far as it has come here, for carriers that send only some bits of it. */
    void (*known)(void *arg, uint32_t pair, uint32_t asked[2]);
};

struct hkt_channel_config {
    const uint64_t                *self, *peer; /* uuids: the secrets that both processes know */
    const unsigned char           *record;      /* of the peer's address, checked for nothing */
    size_t                         size;
    const struct hkt_channel_user *user;
    void                          *arg;
    const bool                    *seldom; /* while true nothing urgent comes: descriptors are looked at, not polled. NULL: never */
};

struct hkt_channel;

struct hkt_carrier {
    /* This process's address, at most `room` bytes that mean something to this carrier; begins to listen. Bytes or HKT_ERR_*. */
    int (*address)(unsigned char *record, size_t room);
    int (*open)(struct hkt_channel **c, const struct hkt_channel_config *config); /* connects to nobody. 0 or HKT_ERR_* */
    void (*connect)(struct hkt_channel *c);                                      /* begins to, unless it has */
    /* A message that will come: where it goes, and its head as far as that is known (no value, asked, offset). `to` stays until it has come, or forget().
     * Optional: what this is good for is that the other side can be told. */
    void (*expect)(struct hkt_channel *c, const struct hkt_head *head, char *to);
    void (*pump)(struct hkt_channel *c);                                         /* there may be something to send */
    bool (*quiet)(const struct hkt_channel *c); /* nothing of ours is on its way any more: the other host has it all */
    /* `owner` and its memory go away: what has begun is sent from a copy, what comes for its `pair` is dropped. */
    void (*forget)(struct hkt_channel *c, const void *owner, uint32_t pair);
    void (*close)(struct hkt_channel *c); /* in peace; frees it. NULL is allowed */
    bool (*poll)(void);                   /* looks whether something has come or can go. True: it has */
    uint64_t (*tick)(uint64_t now);       /* does what is due; gives the time of the next such thing (hkt_now_ns()) */
    void (*arm)(void);                    /* the caller is about to sleep on the watches: let them tell when something can be sent */
    void (*forked)(void);                 /* in a child: closes descriptors, touches nothing else */
    uint64_t (*strangers)(void);          /* connections dropped so far */
};

/* ---- what net/progress.c does for carriers ---- */

/* The carrier takes part from now on: polls, ticks, forks. For one that rides on another. 0 or HKT_ERR_*. */
int hkt_net_use(const struct hkt_carrier *c);

/* Bytes of frames have come or gone: whoever waits for the rest of them goes on polling. */
void hkt_net_moved(void);

/* A descriptor that wakes the thread that makes progress. */
struct hkt_watch {
    void (*ready)(struct hkt_watch *w, uint32_t events);
};

/* epoll events of a descriptor; events may be 0. 0 or -errno. */
int  hkt_net_watch(struct hkt_watch *w, int fd, uint32_t events);
int  hkt_net_rewatch(struct hkt_watch *w, int fd, uint32_t events);
void hkt_net_unwatch(int fd); /* before it is closed */

#endif
