/* helper.h -- the helper thread of a process, and how peers ask it for something: one SOCK_SEQPACKET connection a question, one
 * message there, one back. What the answers do is left to process.c, which passes the functions in.
 */
#ifndef HKT_HELPER_H
#define HKT_HELPER_H

#include "process.h"

enum hkt_ask_kind {
    HKT_ASK_LIFE = 1, /* the answer carries the life page */
    HKT_ASK_MAP,      /* carries a segment; answered when it is mapped */
    HKT_ASK_FORGET,   /* a segment is gone; no answer */
    HKT_ASK_KEEP      /* carries a descriptor for handed.c; answered when it is kept */
};

#define HKT_ASK_MAGIC 0x31304b434f48ULL /* "HOCK01" */

struct hkt_ask {
    uint64_t magic;
    uint64_t to[2];   /* uuid of the process that is asked: who knows it is no stranger */
    uint64_t from[2]; /* uuid of the process that asks */
    uint64_t size;    /* of the segment, bytes */
    uint32_t id;      /* of the segment */
    uint32_t kind;
};

/* What the helper thread calls. */
struct hkt_helper_serve {
    int (*map)(const struct hkt_ask *ask, int fd);     /* 0, -EAGAIN: the asker is not attached yet, or -errno. fd is borrowed */
    int (*keep)(const struct hkt_ask *ask, int fd);    /* 0 or -errno; fd is borrowed */
    void (*forget)(const struct hkt_ask *ask);
    void (*gone)(int pidfd); /* a process watched has died */
};

/* Opens the socket, starts the thread, waits until it has put its tid into life->word (or 0: the kernel will not mark our death). */
int  hkt_helper_start(struct hkt_life *life, int life_fd, const struct hkt_helper_serve *serve);
void hkt_helper_poke(void);       /* a process was attached: look again at what could not be answered */
void hkt_helper_close_fds(void);  /* in a forked child */
int  hkt_helper_watch(int pidfd); /* calls gone() when the process dies. 0 or -errno */
void hkt_helper_unwatch(int pidfd);

uint64_t hkt_helper_strangers(void); /* connections dropped so far */

/* Asking. A question to one process: send gives a descriptor or -errno; answer closes it and gives 0 or -errno (-ETIMEDOUT,
 * -ECONNRESET, or what the other side says). */
int hkt_helper_send(const struct hkt_process_address *to, const struct hkt_ask *ask, int pass, uint64_t deadline, int32_t *pid);
int hkt_helper_answer(int fd, uint64_t deadline, const struct hkt_process *peer, int *passed);

#endif
