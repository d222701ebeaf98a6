/* far.h -- the ranks of other hosts: what a communicator of several hosts has beside its segment.
 *
 * Ranks of one host see one another through their segment; from host to host go numbered messages (net/wire.h). Which ranks share a host decides
 * what a plan makes of a schedule's messages (bind.c) and how algorithms group ranks. A host's ranks tell each other of a death by the poison
 * word; here it is told to, and heard from, the other hosts.
 */
#ifndef HKT_FAR_H
#define HKT_FAR_H

#include "language/fabric.h"
#include "net/wire.h"
#include "run/operation.h"

struct hkt_far {
    struct hkt_wire *wire;
    int             *host;  /* per rank: which host, numbered by their first ranks */
    int             *local; /* per rank: its number among those of its host, in the order of ranks */
    int              hosts, most;   /* the most ranks of a host */
    int             *first, *seats; /* per host: its first rank, which leads it; how many there are */
    unsigned char   *cargo; /* of a leader, HKT_EAGER per host: messages of small collectives on their way; NULL: too many hosts */
    uint64_t        *in, *out;   /* per rank: messages of finished collectives */
    uint64_t        *got, *sent; /* per rank: of finished send and receive */
    uint32_t        *named;      /* per rank: landings named in this slice */
    struct hkt_table_row *rows, *row; /* all_to_all_v: what every rank sends and receives, size * size; mine */
    struct hkt_call       gather;     /* of the rows, while it runs */
    struct hkt_operation  gathering;
    unsigned char         token[2]; /* what a barrier moves */
};

/* Finds out who shares a host with whom: fills leader, seats and every peer's seat, and c->far when there are several hosts. HKT_ERR_MEMORY. */
int hkt_far_create(struct hkt_communicator *c);

/* Opens the wire. `id` as in struct hkt_wire_config. */
int hkt_far_open(struct hkt_communicator *c, const uint64_t id[2]);

/* What links between hosts and within one cost, seconds, as rank 0 has found it. */
struct hkt_far_figures {
    struct hkt_span_cost wire[HKT_SPANS];
    double               gamma, copy; /* of a core, a byte folded and copied */
    double               crowd;       /* ranks to a core, where they share cores; else 1 */
    double               took;        /* to find out; 0: nobody has */
};

/* Measures; all ranks, once the communicator can send and receive. About 50 ms where nothing disturbs. 0 or what killed the communicator. */
int hkt_far_measure(struct hkt_communicator *c, struct hkt_far_figures *figures);

/* From rank 0's figures, on all ranks, before the first collective: what algorithms are chosen by. HKT_ERR_MEMORY. */
int hkt_far_know(struct hkt_communicator *c, const struct hkt_far_figures *figures);

/* The same from what the parent knows. */
int hkt_far_inherit(struct hkt_communicator *c, const struct hkt_communicator *parent);

size_t hkt_far_shelves(const struct hkt_communicator *c); /* how many its segment needs; 0 when there is no other host, or too many */

void hkt_far_free(struct hkt_communicator *c); /* also when there is none */

/* How a collective over several hosts begins: what advances it. A barrier gets a byte to move; the counts of all_to_all_v are gathered first. */
int (*hkt_far_begin(struct hkt_operation *op))(struct hkt_operation *);

/* ---- flat_far.c: small collectives ---- */

/* Bytes that a rank shows or a leader sends in one message, whichever is more; SIZE_MAX when the call cannot run that way. The same on all ranks. */
size_t hkt_far_flat_bytes(const struct hkt_communicator *c, const struct hkt_call *call);

int hkt_far_relay(struct hkt_operation *op); /* a leader takes what its host shows to the others, and the other way round */
int hkt_far_hear(struct hkt_operation *op);  /* waits until all is here that other hosts show to this one */
int hkt_far_late(const struct hkt_operation *op, int rank); /* `rank`, or whom it waits for itself: a rank of a host that nothing has come from */

/* What a rank of another host shows, for this rank; its factor. */
const unsigned char *hkt_far_shown(const struct hkt_operation *op, int r);
double               hkt_far_scale(const struct hkt_operation *op, int r);

#endif
