/* frame.h -- framed messages on the stream sockets of the bootstrap: reading and writing them bit by bit, without ever blocking.
 */
#ifndef HKT_FRAME_H
#define HKT_FRAME_H

#include "capability.h"
#include "id.h"
#include "proof.h"

enum { HKT_HOST = 64 };

/* 0 is no kind: what nobody expects. */
enum hkt_frame_kind {
    HKT_HELLO = 1, /* up: who I am */
    HKT_BUSY,      /* down: that rank is here already */
    HKT_JOINED,    /* down: you are my child */
    HKT_PLACE,     /* from rank 0: who your parent is */
    HKT_DOOR,      /* to rank 0: where other hosts find me */
    HKT_LINKED,    /* to rank 0: I have joined my parent */
    HKT_STAY,      /* to rank 0: I cannot reach my parent, be it yourself */
    HKT_START,     /* down: all are here, and the tree */
    HKT_GATHER,    /* up: the parts of me and those below me */
    HKT_RESULT,    /* down: the parts of all */
    HKT_FAIL,      /* up and down: a sentence */
    HKT_ASK,       /* down: whom do you wait for? */
    HKT_MISSING    /* up: a byte for each rank */
};

struct hkt_frame {
    uint64_t magic;
    uint32_t kind;
    int32_t  code; /* of HKT_FAIL; of HKT_ASK: ms to answer in */
    uint64_t size; /* of what follows */
};

struct hkt_hello { /* the same in every version of the library */
    uint32_t                version;
    int32_t                 size, rank, pid;
    char                    host[HKT_HOST];
    unsigned char           public_key[HKT_KEY], secret[HKT_KEY]; /* zeros where the connection has proved them */
    uint64_t                host_id; /* hkt_inet_host() */
    uint64_t                door;    /* in the name of the socket it listens at; 0: none */
    struct hkt_capabilities can;
};

enum hkt_link_state {
    HKT_LINK_STRANGER, /* has not said who it is */
    HKT_LINK_GUEST,    /* at rank 0: a rank that is on its way to its parent */
    HKT_LINK_MEMBER    /* my child, or my parent */
};

/* One end of a connection. */
struct hkt_link {
    int              fd; /* -1: none */
    struct hkt_frame head;
    size_t           got;  /* of the frame that is coming in: header and body */
    void            *body; /* where its body goes, if it is of the kind and size expected */
    uint32_t         expected;
    size_t           room;
    size_t           sent; /* of the frame that is going out; 0: not begun, or nothing is going out */
    bool             done; /* with the current gather */
    bool             far;  /* over TCP */
    bool             proven;
    int              at; /* in the array that is polled; -1: not there */
    uint64_t         deadline;
    enum hkt_link_state state;
    struct hkt_proof proof; /* of a stranger over TCP */
    struct hkt_hello peer;
};

void hkt_link_expect(struct hkt_link *l, uint32_t kind, void *body, size_t room);
void hkt_link_close(struct hkt_link *l);

/* Reads what there is. 1: a whole frame has come, the expected one or the header of another; 0: not yet; -errno; the end is
 * -ECONNRESET. */
int hkt_link_pull(struct hkt_link *l);
int hkt_link_pull_all(struct hkt_link *l, uint64_t deadline); /* waits. 0 or -errno */

struct hkt_frame hkt_frame_make(enum hkt_frame_kind kind, size_t size);

/* Sends on what is left of a frame. 1: all is gone; 0: the socket is full; -errno. */
int hkt_link_push(struct hkt_link *l, const struct hkt_frame *head, const void *body);
int hkt_link_push_all(struct hkt_link *l, const struct hkt_frame *head, const void *body, uint64_t deadline); /* waits. 0 or -errno */

/* A small frame of its own, waiting at most a second; `code` is that of HKT_FAIL. 0 or -errno. */
int hkt_link_say(struct hkt_link *l, enum hkt_frame_kind kind, const void *body, size_t size, int code);

/* Reads the body of a frame whose header has come, at most `room` bytes, waiting at most a second for each part. Gives the bytes read. */
size_t hkt_link_body(struct hkt_link *l, void *body, size_t room);

/* The same of an HKT_FAIL, as a string. */
void hkt_link_sentence(struct hkt_link *l, char *text, size_t room);

#endif
