/* verbs.h -- what the files of the verbs carrier share: verbs.c (the carrier), verbs_join.c (how a path comes to be and ends), verbs_send.c,
 * verbs_receive.c (frames), verbs_device.c (devices, which of their addresses), verbs_memory.c (what a device may touch). All under the lock of
 * net/progress.h.
 *
 * A path is a set of queue pairs between one port here and one port there. At any time a channel has one path or none; what it had sent on a path that
 * failed and the other side has not received goes by the next one, which may be tcp's. The other side says how much it has received of each queue pair, so
 * nothing comes twice.
 */
#ifndef HKT_VERBS_H
#define HKT_VERBS_H

#include "net/carrier.h"

#include <infiniband/verbs.h>
#undef ibv_query_port /* macros that call the library by name: it is loaded at run time */
#undef ibv_reg_mr
#undef ibv_get_device_list

enum {
    VERBS_DEVICES  = 8,
    VERBS_ENDS     = 16,    /* addresses of ports that a process offers */
    VERBS_QUEUES   = 16,    /* of a path, at most */
    VERBS_DEPTH    = 64,    /* frames under way of a queue pair; a power of two */
    VERBS_BODY     = 32768, /* bytes of a message in a frame; what is larger can be written to where it belongs */
    VERBS_UNIT     = 32768, /* writes begin at multiples of it, which the immediate data count */
    VERBS_WRITTEN  = 8192,  /* bytes above which a message is written, where its place is known */
    VERBS_GATE     = 65536, /* bytes below which a message is not split over several queue pairs */
    VERBS_REQUESTS = 16,    /* that a device gets at a time */
    VERBS_INLINE   = 320,   /* bytes that are asked to fit into a work request */
    VERBS_WINDOW   = 64,    /* frames that may be under way to a process before it has said that it is ready for more */
    VERBS_LENT     = VERBS_WINDOW + VERBS_WINDOW / 8, /* buffers for those, and for what is said about buffers */
    VERBS_BUFFERS  = 2048,  /* to receive into, of a device, at most */
    VERBS_SLOTS    = 512,   /* to send from, of the process, at most */
    VERBS_MESSAGES = 16,    /* whose memory is being read by the device, of a channel */
    VERBS_LANDINGS = 256,   /* places of expected messages that the other side knows, of a channel; the immediate data have 10 bits for them */
    VERBS_WORDS    = 8
};

/* ---- the library ------------------------------------------------------------------------------------------------- */

#define VERBS_FUNCTIONS(X)                                                                                                                         \
    X(ibv_get_device_list) X(ibv_free_device_list) X(ibv_get_device_name) X(ibv_open_device) X(ibv_query_device) X(ibv_query_gid)                  \
    X(_ibv_query_gid_ex) X(ibv_alloc_pd) X(ibv_dereg_mr) X(ibv_create_comp_channel) X(ibv_create_cq) X(ibv_resize_cq) X(ibv_create_srq)            \
    X(ibv_create_qp) X(ibv_modify_qp) X(ibv_destroy_qp) X(ibv_get_cq_event) X(ibv_ack_cq_events) X(ibv_create_ah) X(ibv_destroy_ah)                \
    X(ibv_get_async_event) X(ibv_ack_async_event) X(ibv_fork_init) X(ibv_wc_status_str) X(ibv_event_type_str)

struct verbs_library {
#define VERBS_POINTER(name) __typeof__(&(name)) name;
    VERBS_FUNCTIONS(VERBS_POINTER)
#undef VERBS_POINTER
    struct ibv_device **(*get_device_list)(int *n);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *address, size_t bytes, int access);
    int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
    struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t address, int fd, int access); /* NULL: too old */
};
extern struct verbs_library verbs;

/* ---- devices and their addresses --------------------------------------------------------------------------------- */

enum verbs_kind { VERBS_IB = 1, VERBS_V2_IPV4, VERBS_V2_IPV6, VERBS_V2_LINK, VERBS_V1 }; /* better ones first */

/* An address of a port, as the other process hears it: the same bytes on every host. */
struct verbs_end {
    uint8_t  gid[16];
    uint16_t lid;
    uint8_t  kind;
    uint8_t  prefix; /* bits of the subnet; 0: unknown */
    uint8_t  mtu;    /* enum ibv_mtu */
    uint8_t  device, port, index; /* of the process that says it; index of the GID */
};

struct verbs_region { /* memory that a device may touch */
    uint32_t       segment; /* id; 0: it was given with its own address (dmabuf) */
    const char    *base;
    size_t         size;
    struct ibv_mr *mr; /* NULL: the device refused */
};

struct verbs_queue;

struct verbs_device {
    struct ibv_context      *context;
    struct ibv_pd           *pd;
    struct ibv_comp_channel *events;
    struct ibv_cq           *cq;
    struct ibv_srq          *srq;
    struct hkt_watch         watch, trouble; /* of completions, of what befalls the device */
    int                      entries, inlined, buffers, lent; /* of the completion queue; bytes; receive buffers that it has, promised to channels */
    char                    *buffer[VERBS_BUFFERS];
    uint32_t                 key[VERBS_BUFFERS];
    struct ibv_mr           *slots[VERBS_SLOTS / 32]; /* blocks of slots, registered here */
    struct verbs_region     *region;
    int                      regions, room;
    uint64_t                 generation; /* of the segments, when the regions were last looked through */
    bool                     armed, refused; /* refused: it was said once that memory cannot be registered */
};

extern struct verbs_device verbs_devices[VERBS_DEVICES];
extern int                 verbs_ndevices;
extern struct verbs_end    verbs_ends[VERBS_ENDS];
extern int                 verbs_nends;

int      verbs_start(void);                                      /* loads the library, opens the devices. 0: there are some; HKT_ERR_UNSUPPORTED */
int      verbs_kind_of(const union ibv_gid *gid, uint32_t type); /* enum verbs_kind of an Ethernet port's address; type: enum ibv_gid_type */
uint32_t verbs_fitness(const struct verbs_end *mine, const struct verbs_end *theirs); /* 0: they cannot talk; more is better */
uint8_t  verbs_class(const struct verbs_device *d, const struct verbs_end *e);
void     verbs_troubled(struct verbs_device *d, const char *what); /* in verbs.c: all of its paths end */
bool     verbs_named(const char *list, const char *name, int port); /* is the port in the list "mlx5_0:1,rxe*"? Empty: yes */

/* ---- memory ------------------------------------------------------------------------------------------------------ */

int            verbs_lend(struct verbs_device *d, int buffers);                            /* more of them to receive into. 0 or HKT_ERR_* */
int            verbs_repost(struct verbs_device *d, const int *index, int n);              /* they are empty again. 0 or HKT_ERR_SYSTEM */
struct ibv_mr *verbs_region_of(struct verbs_device *d, const char *at, size_t bytes);      /* NULL: not in memory that may be registered */
int            verbs_add_dmabuf(struct verbs_device *d, int fd, uint64_t offset, char *address, size_t bytes); /* HKT_ERR_UNSUPPORTED: it cannot */
void           verbs_remove_dmabuf(struct verbs_device *d, const char *address);
char          *verbs_take_slot(struct verbs_device *d, uint32_t *key); /* sizeof(struct verbs_frame) + VERBS_BODY; NULL: none is free */
void           verbs_give_slot(char *slot);                            /* NULL is allowed */

/* ---- channels ---------------------------------------------------------------------------------------------------- */

/* In front of everything that is sent. */
struct verbs_frame {
    uint16_t        consumed; /* frames that its sender has received, low half */
    uint16_t        landing;  /* 1 + number of the landing that the body was written to just before; 0: it follows */
    uint32_t        zero;
    struct hkt_head head;
};
_Static_assert(sizeof(struct verbs_frame) == 72, "the same everywhere");

/* A place of an expected message, as it is told. */
struct verbs_landing {
    uint64_t address;
    uint32_t key, index;
    uint32_t pair, number, bytes, lane;
    uint64_t same[3];
};

/* A piece whose memory is still read. */
struct verbs_message {
    struct hkt_piece piece;
    int              parts; /* readers */
    char            *copy;
};

struct verbs_sent {
    struct hkt_head       head; /* with it the frame can be sent once more, by whichever way */
    const char           *body;
    char                 *slot;
    struct verbs_message *message;
    bool                  own; /* business of the carrier: not sent once more */
    char                  copy[VERBS_INLINE]; /* what was inlined */
};

struct verbs_queue {
    struct hkt_channel *channel;
    struct ibv_qp      *qp;
    struct verbs_queue *next; /* with the same hash */
    uint32_t            received;   /* frames that have come, and were looked at */
    uint32_t            done, sent; /* frames that have arrived at the other side; that were posted */
    struct verbs_sent   ring[VERBS_DEPTH];
    struct ibv_send_wr  request[VERBS_REQUESTS]; /* that the device gets together */
    struct ibv_sge      part[VERBS_REQUESTS];
    int                 requests;
    uint32_t            pent; /* bytes of them */
};

struct verbs_again { /* a frame of a path that has failed */
    struct verbs_sent sent;
    bool              taken, gone; /* by tcp; by whichever way */
};

/* What is told by way of tcp. */
enum verbs_word_kind { VERBS_HELLO = 1, VERBS_OPEN, VERBS_OPENED, VERBS_UP, VERBS_DOWN, VERBS_STAY };

struct verbs_word {
    uint16_t kind, version;
    uint32_t epoch;
    uint8_t  ends, mine, theirs, queues; /* mine, theirs: which ends, as the sender sees it */
    uint8_t  failed, mtu;
    uint16_t window;
    union {
        struct verbs_end end[VERBS_ENDS];
        struct {
            uint32_t number[VERBS_QUEUES], start[VERBS_QUEUES]; /* of queue pairs: their number, first packet's number; frames received */
        };
    };
};

enum verbs_state {
    VERBS_STRANGE, /* the other process has not said anything */
    VERBS_JOINS,   /* a path is being made */
    VERBS_IS_UP,
    VERBS_IS_DOWN, /* the path has failed; waits for what the other side has received, or for the next one */
    VERBS_BY_TCP,  /* no path is left */
    VERBS_IS_LOST
};

struct hkt_channel {
    struct hkt_channel            *next, *tcp;
    const struct hkt_channel_user *user;
    void                          *arg;
    enum verbs_state               state;
    bool                           decides; /* the process with the smaller uuid says which path is tried */
    bool                           by_verbs; /* tcp is looked at seldom */
    bool                           tell_down, hear_down, failed; /* DOWN of this epoch was said, was heard; the path was not just given up */
    int                            breaks; /* 0: no; 1: given up; 2: it has failed. Done at the end of a turn */
    uint32_t                       epoch;
    uint32_t                       heard_received[VERBS_QUEUES];
    struct verbs_word              word[VERBS_WORDS], heard; /* to be told, to be read */
    unsigned                       words, told, gone;        /* counts: written, taken by tcp, sent */

    struct verbs_end     theirs[VERBS_ENDS];
    int                  ntheirs, tried; /* of the pairs of ends, the next to try */
    struct verbs_device *device;
    struct verbs_queue  *queue[VERBS_QUEUES];
    int                  queues, turn;
    int                  mine;      /* end */
    struct verbs_device *lender;    /* whose receive buffers count for this channel */
    uint16_t             window;    /* that the other side grants */
    uint32_t             spent, returned, consumed, consumed_told;

    struct hkt_piece      now; /* is being sent */
    uint32_t              now_done;
    bool                  now_direct, stalled; /* the device reads it from where it is; there may be more than could be sent */
    struct verbs_landing  now_landing; /* .bytes 0: in frames */
    struct verbs_message *now_message; /* NULL: none */
    struct verbs_message  message[VERBS_MESSAGES];

    struct verbs_again *again; /* goes before everything else */
    int                 nagain, again_done, again_left;

    struct verbs_landing known[VERBS_LANDINGS];    /* of the other side, by hash; .bytes 0: none */
    struct verbs_landing landing[VERBS_LANDINGS];  /* of this side, by hash */
    uint32_t             landed[VERBS_LANDINGS];   /* bytes of it that have come */
    uint16_t             untold[VERBS_LANDINGS];
    int                  nuntold;
};

extern struct hkt_channel *verbs_channels;
extern bool                verbs_attention; /* something has come: there may be a channel that can go on */

const struct hkt_carrier *verbs_tcp(void);
void verbs_lose(struct hkt_channel *c, const char *why);

/* ---- verbs_send.c */
void verbs_pump(struct hkt_channel *c);
void verbs_sent_until(struct verbs_queue *q, uint32_t number); /* all frames up to this one have arrived */
void verbs_finish(struct hkt_channel *c, struct verbs_sent *s);
void verbs_expect(struct hkt_channel *c, const struct hkt_head *head, char *to);
bool verbs_next_again(struct hkt_channel *c, int sizes, struct hkt_piece *piece); /* for tcp */
bool verbs_is_again(const struct hkt_channel *c, const void *owner);
void verbs_gone_again(struct hkt_channel *c, void *owner);

/* ---- verbs_receive.c */
bool verbs_poll(struct verbs_device *d); /* true: there was something */
void verbs_enlist(struct verbs_queue *q);
void verbs_delist(struct verbs_queue *q);
struct verbs_landing *verbs_landing_at(struct verbs_landing *table, uint32_t pair, uint32_t lane, uint32_t number);

/* ---- verbs_join.c */
void verbs_return(struct hkt_channel *c);                      /* its receive buffers are for others again */
void verbs_greet(struct hkt_channel *c);                       /* the first word */
void verbs_break(struct hkt_channel *c, bool failed);          /* the path ends here */
void verbs_shut(struct hkt_channel *c);                        /* all that belongs to a path is freed, what was under way is forgotten */
bool verbs_next_word(struct hkt_channel *c, struct hkt_piece *piece);
int  verbs_hear(struct hkt_channel *c);                        /* c->heard has come. Not 0: it may not */

#endif
