/* tcp.h -- what tcp.c (frames over sockets that are proven) and tcp_join.c (how they come to be) share. All under the lock of net/progress.h.
 */
#ifndef HKT_TCP_H
#define HKT_TCP_H

#include "net/carrier.h"
#include "setup/inet.h"
#include "setup/proof.h"

enum {
    TCP_BULK       = 16, /* most sockets of a channel for large messages */
    TCP_SOCKETS    = 1 + TCP_BULK,
    TCP_CANDIDATES = 12,
    TCP_BUFFER     = 8192, /* bytes read along with what was expected: heads, small messages */
    TCP_PIECES     = 8     /* that leave by one system call */
};

enum tcp_state {
    TCP_DIALS,   /* connect() is under way */
    TCP_GREETED, /* was accepted; its greeting is being read */
    TCP_UNKNOWN, /* says it is a process that is not known here yet */
    TCP_PROVES,
    TCP_PROVEN,  /* waits for the one of the two processes that decides to take it */
    TCP_UP,
    TCP_ENDS     /* all is said; waits for the other side to close */
};

/* What the caller says first, in the clear. It is part of what is proven: see tcp_join.c. */
struct tcp_greeting {
    uint64_t magic;
    uint64_t to, from; /* names of processes: hashes of their uuids */
    uint64_t session;  /* of the caller's: sockets of one channel have the same */
    uint16_t index;    /* 0: the first socket of a channel, for small frames; else for large messages */
    uint16_t zero[3];
};

struct tcp_socket {
    struct hkt_watch    watch; /* first */
    struct tcp_socket  *next;  /* in the list of all, for forks and deadlines */
    struct hkt_channel *channel; /* NULL: not yet known, or no longer */
    int                 fd;
    enum tcp_state      state;
    bool                caller;
    uint64_t            deadline; /* unless it is up */
    struct tcp_greeting greeting;
    size_t              greeted; /* bytes of it */
    struct hkt_inet_address address; /* of a caller: whom it has called */
    struct hkt_proof    proof;

    /* Coming in: what is behind `head`, or the next head, in `buffer`. */
    struct hkt_head head;
    bool            in_body;
    char           *to; /* NULL: into nothing */
    uint32_t        left;
    unsigned        used, have; /* of the buffer: read, filled */
    unsigned char  *buffer;     /* TCP_BUFFER */

    /* Going out. */
    struct hkt_piece piece[TCP_PIECES];
    void            *copy[TCP_PIECES]; /* bodies whose owner has gone */
    int              pieces;
    size_t           sent; /* bytes of the first piece */
    bool             full, armed;
    unsigned         idle, skipped; /* polls without a byte; polls left out since */
};

enum tcp_channel_state { TCP_IDLE, TCP_JOINS, TCP_JOINED, TCP_LOST };

struct hkt_channel {
    struct hkt_channel            *next;
    const struct hkt_channel_user *user;
    void                          *arg;
    enum tcp_channel_state         state;
    uint64_t                       self, peer; /* names */
    bool                           decides;    /* which of several connections is taken: the process with the smaller uuid */
    unsigned char                  key[HKT_PROOF_KEY];
    const bool                    *seldom; /* of struct hkt_channel_config */
    struct tcp_socket             *socket[TCP_SOCKETS]; /* that are up; [0] first */
    int                            bulk;                /* of them, without [0] */
    struct hkt_inet_address        candidate[TCP_CANDIDATES];
    int                            candidates, tried, dialing; /* tried: in this round */
    uint64_t                       session, next_try, deadline; /* while it joins */
    int                            error; /* of the last attempt: errno */
};

/* ---- tcp.c ---- */
void tcp_up(struct tcp_socket *s);                           /* frames may go */
void tcp_lose(struct hkt_channel *c, const char *why);       /* for good */
void tcp_part(struct hkt_channel *c);                        /* in peace: the other side has closed it */
void tcp_ready(struct hkt_watch *w, uint32_t events);        /* of sockets that are up or end */

/* ---- tcp_host.c ---- */
struct tcp_address {
    uint16_t                       port;
    const struct hkt_inet_address *list;
    int                            n;
};
size_t tcp_write_record(unsigned char *record, size_t room, const struct tcp_address *a); /* as many addresses as there is room for */
int    tcp_read_record(struct hkt_channel *c, const unsigned char *record, size_t size);  /* the candidates. 0 or HKT_ERR_SYSTEM */
int    tcp_bulk_sockets(void);

/* ---- tcp_join.c ---- */
extern struct tcp_socket  *tcp_all;
extern struct hkt_channel *tcp_channels;

int      tcp_address(unsigned char *record, size_t room);
int      tcp_name(struct hkt_channel *c, const struct hkt_channel_config *config); /* names, key, candidates */
void     tcp_connect(struct hkt_channel *c);
void     tcp_attached(struct hkt_channel *c); /* who has waited for that? */
void     tcp_choose(struct hkt_channel *c);   /* the channel is free: is there a connection for it already? */
void     tcp_drop(struct tcp_socket *s);      /* closes and frees */
uint64_t tcp_tick(uint64_t now);
void     tcp_forked(void);
uint64_t tcp_strangers(void);

#endif
