/* frame.h -- framed messages on the stream sockets of the bootstrap: reading and writing them bit by bit, without ever blocking.
 */
#ifndef HKT_FRAME_H
#define HKT_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HKT_KEY = 16, HKT_HOST = 64 };

/* 0 is no kind: what nobody expects. */
enum hkt_frame_kind { HKT_HELLO = 1, HKT_BUSY, HKT_JOINED, HKT_START, HKT_GATHER, HKT_RESULT, HKT_FAIL };

struct hkt_frame {
    uint64_t magic;
    uint32_t kind;
    int32_t  code; /* of HKT_FAIL */
    uint64_t size; /* of what follows */
};

struct hkt_hello { /* the same in every version of the library */
    uint32_t      version;
    int32_t       size, rank, pid;
    char          host[HKT_HOST];
    unsigned char public_key[HKT_KEY], secret[HKT_KEY];
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
    uint64_t         deadline;
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

/* Reads the body of an HKT_FAIL whose header has come, as a string. */
void hkt_link_sentence(struct hkt_link *l, char *text, size_t room);

#endif
