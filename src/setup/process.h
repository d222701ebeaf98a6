/* process.h -- this process and the processes of its peers, on this host and elsewhere.
 *
 * Every process that uses the library has one `life page`: a small memfd that peers map. It says who the process is, and holds
 * a word that the kernel marks when the process dies (robust futex list of the helper thread): seen in well under a
 * millisecond, long before sockets and pidfds of a process with much memory close.
 *
 * Every process has one helper thread. It sleeps in poll() and serves peers: they hand it memory segments (file descriptors)
 * to map, or tell it to forget one. It is started with the first communicator and ends with the process. It blocks all signals.
 *
 * A process of another host shares no memory: its page here is filled from its address, and the network (src/net) marks its death. Which processes
 * are of one host: HKT_HOST, else the machine since it was started, the network namespace and the user.
 *
 * Several ranks (threads) of one process share all of this. After fork() the child has none of it: hkt_process_self() fails there
 * with HKT_ERR_USAGE ("used after fork").
 */
#ifndef HKT_PROCESS_H
#define HKT_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hkt_net_peer;

enum { HKT_HOST_NAME = 64, HKT_SEGMENTS = 1024 /* shared segments of one process that peers can have mapped at a time */ };

/* How the networks reach this process: a record of each. bytes 0: none does. */
struct hkt_net_address {
    unsigned char bytes, data[255]; /* as many bytes as one byte can count: every value is in range */
};

/* How others find this process: a few plain bytes, to be handed to them (hkt_bootstrap_all_gather). */
struct hkt_process_address {
    uint64_t               uuid[2]; /* random, and the secret that the helper thread and the network ask of their callers */
    uint64_t               socket;  /* in the abstract name of the socket the helper thread listens at */
    uint64_t               host[2]; /* identity of the host */
    int32_t                pid;
    char                   name[HKT_HOST_NAME]; /* of the host, for people */
    struct hkt_net_address net;
};

struct hkt_life {
    struct hkt_process_address address;
    uint64_t                   self; /* where this page is in its own process: what a transport reads to prove that it can */
    int32_t                    pid;
    char                       host[HKT_HOST_NAME];
    _Atomic uint32_t detached; /* how often this process has let go of another one */
    _Atomic uint32_t word; /* tid of the helper thread; the kernel sets FUTEX_OWNER_DIED (0x40000000) in it at death */
};

struct hkt_process {
    struct hkt_life *life; /* mapped; for peers a mapping of their page */
    bool             self;
    int32_t          pid;                         /* as seen from here; 0: it is in another pid namespace */
    int              refs;                        /* under the module's lock */
    _Atomic(void *)  segment[HKT_SEGMENTS];       /* where segment `id % HKT_SEGMENTS` of that process is mapped here, or NULL;
                                                     written by the helper thread, read by any */
    size_t           segment_size[HKT_SEGMENTS];
    _Atomic uint32_t told[HKT_SEGMENTS]; /* ids of this process's segments that it has mapped: segment.c */
    uint32_t         told_since;         /* its life->detached when told[] began to be true; under segment.c's lock */
    struct hkt_net_peer *net; /* the way to a process of another host; NULL: it is on this one */
    _Atomic int      readable; /* its plain memory can be read: 1 yes, -1 no, 0 not yet known: the transport's reach() finds out */
};

/* This process; starts the helper thread the first time. Fails with HKT_ERR_SYSTEM, HKT_ERR_MEMORY, HKT_ERR_USAGE. */
int hkt_process_self(struct hkt_process **self);

/* Of this process; hkt_process_self() comes first. The networks begin to listen the first time; where none can, address->net is empty. */
void hkt_process_address(struct hkt_process_address *address);

/* peers[i] = the process at addresses[i]. On this host: asks its helper thread for the life page, unless it is known already; elsewhere: asks nobody,
 * connections are made with the first message. The same process gives the same pointer, its reference count raised; it may be this process itself.
 * All or none: HKT_ERR_PEER when one is dead, HKT_ERR_TIMEOUT when one does not answer within 5 s, HKT_ERR_UNSUPPORTED when no network leads
 * to one. */
int hkt_process_attach(struct hkt_process **peers, const struct hkt_process_address *addresses, int count);

void hkt_process_detach(struct hkt_process *peer); /* NULL is allowed; the last one unmaps its segments and its page */

/* False once the process has died (also by exec or exit). One relaxed load. */
static inline bool hkt_process_alive(const struct hkt_process *p)
{
    return !(atomic_load_explicit(&p->life->word, memory_order_relaxed) & 0x40000000u);
}

/* True in a child that was forked after hkt_process_self(): nothing of the library works there. One load. */
bool hkt_process_forked(void);

/* Tells every peer that has mapped segment `id` of this process to forget it; does not wait for them. */
void hkt_process_forget(uint32_t id);

/* What this layer needs of the network, which lies above it (net/peer.c). */
struct hkt_network {
    int (*address)(struct hkt_net_address *a); /* 0 or HKT_ERR_*, with the sentence */
    int (*attach)(struct hkt_net_peer **net, struct hkt_process *process, const uint64_t self[2]); /* its life page is filled */
    void (*detach)(struct hkt_net_peer *net);
};
extern const struct hkt_network hkt_network;

/* True when the state (R, S, T ...) in /proc/<pid>/stat says stopped: for the sentence about a silent rank. */
bool hkt_process_stopped(const struct hkt_process *p);

#endif
