/* fabric.h -- the machine as the simulator and the choice of algorithms see it: ranks on hosts, hosts on leaf switches, what a message
 * costs on each kind of way, and which things are shared. Numbers only: whoever knows the real machine fills it in.
 *
 * Ranks are numbered host by host, equally many on each, or have seats. A message between two ranks goes one of three ways (enum hkt_span); each
 * has its LogGP numbers.
 * Shared are, where their rate is not 0: a rank's port inside the host, the link between the caches (sockets) of a host, the memory bus of a
 * host, a network card (rail), the uplinks of a leaf switch. Both directions of a port, card and uplink are independent.
 */
#ifndef HKT_FABRIC_H
#define HKT_FABRIC_H

#include <stddef.h>
#include <stdint.h>

enum hkt_span { HKT_SPAN_CACHE, HKT_SPAN_HOST, HKT_SPAN_NETWORK, HKT_SPANS }; /* how far: one cache, one host, between hosts */

extern const char *const hkt_span_name[HKT_SPANS];

/* One way, in seconds and seconds per byte. LogGP's L, o, g, G; `touch` is what LogGOPS calls O. */
struct hkt_span_cost {
    double alpha;    /* from the last byte leaving until it can be used */
    double overhead; /* the sending and the receiving processor are busy with each message */
    double gap;      /* between two messages from one port, besides their bytes */
    double beta;     /* per byte on the port */
    double touch;    /* per byte the sending processor stores; nothing for the first destination of a step, which is part of the pass over its
                      * sources; 0 where a network card or copy engine moves it */
};

/* Where a rank is: its host, its number there, and its group of ranks of this host that share a cache, all from 0. */
struct hkt_seat {
    int host, local, cache;
};

struct hkt_fabric {
    char            name[32];
    int             hosts, per_host; /* ranks on each; with seats the most of any host */
    int             per_cache;       /* ranks that share a cache; 0: all of a host; with seats: do these say who shares one? */
    int             ranks;           /* with seats: how many */
    const struct hkt_seat *seat;     /* per rank, not ours; NULL: ranks are numbered host by host */
    int             rails;           /* network cards of a host; rank l of a host uses card l mod rails */
    int             per_leaf;        /* hosts on a leaf switch; 0: one switch for all */
    double          oversubscription; /* bytes that hosts of a leaf can send / that its uplinks carry; 1: none */
    double          spine;           /* more latency between leaves, seconds */
    struct hkt_span_cost wire[HKT_SPANS];
    double          bus, socket;     /* seconds per byte on a host's memory bus, and between its caches; 0: never short */
    double          gamma, copy;     /* seconds per byte folded, and per byte copied to its place; by a rank's processor */
    int             depth;           /* messages between two ranks before the sender waits; 0: no limit */
    int             window;          /* steps a rank may run ahead of one that waits, as far as data allow; 1: strictly in order */
};

enum { HKT_WINDOW_MOST = 63, HKT_FABRIC_DEPTH = 2 /* HKT_FIFO_DEPTH: all that a schedule may rely on */ };

static inline int hkt_fabric_ranks(const struct hkt_fabric *f)
{
    return f->seat ? f->ranks : f->hosts * f->per_host;
}

static inline uint32_t hkt_fabric_host(const struct hkt_fabric *f, uint32_t rank)
{
    return f->seat ? (uint32_t)f->seat[rank].host : rank / (uint32_t)f->per_host;
}

/* Its leaf switch; 0: there is one for all. */
static inline uint32_t hkt_fabric_leaf(const struct hkt_fabric *f, uint32_t rank)
{
    return f->per_leaf ? hkt_fabric_host(f, rank) / (uint32_t)f->per_leaf : 0;
}

static inline uint32_t hkt_fabric_local(const struct hkt_fabric *f, uint32_t rank)
{
    return f->seat ? (uint32_t)f->seat[rank].local : rank % (uint32_t)f->per_host;
}

/* How far a message between two different ranks goes. */
enum hkt_span hkt_fabric_span(const struct hkt_fabric *f, uint32_t from, uint32_t to);

/* 0, or HKT_ERR_ARGUMENT with what is wrong with it. */
int hkt_fabric_check(const struct hkt_fabric *f);

/* Known machines. Each has hosts = 1 or more and can be resized. */
struct hkt_fabric_preset {
    struct hkt_fabric fabric;
    const char       *source; /* of the numbers */
};

extern const struct hkt_fabric_preset hkt_fabric_preset[];
extern const size_t                   hkt_fabric_presets;

const struct hkt_fabric_preset *hkt_fabric_find(const char *name); /* or NULL */

/* Lays `ranks` on the hosts of the fabric: as many on each as it has, or as `per_host` says where that is not 0. HKT_ERR_ARGUMENT where they do not
 * fill the hosts. */
int hkt_fabric_resize(struct hkt_fabric *f, int ranks, int per_host);

#endif
