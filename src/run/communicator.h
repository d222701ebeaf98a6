/* communicator.h -- one rank's end of a communicator, as the engine sees it. Made and destroyed in face/comm.c.
 *
 * One thread at a time runs operations on it (face/ sees to that); other threads only kill it or read its shared part.
 */
#ifndef HKT_COMMUNICATOR_H
#define HKT_COMMUNICATOR_H

#include "base/wait.h"
#include "run/call.h"
#include "run/shared.h"
#include "net/transport.h"
#include "setup/segment.h"

struct hkt_experience;
struct hkt_stand_in;
struct hkt_far;
struct hkt_gpu;
struct hkt_plan;
struct hkt_site;

/* Where a rank's memory is, from here. Of a rank of another host there are only the first three. */
struct hkt_peer {
    struct hkt_process         *process;
    int                         seat; /* among the ranks of its host */
    _Atomic uint32_t            left; /* of another host: it has destroyed its end */
    const struct hkt_transport *transport;
    struct hkt_cell            *cell; /* NULL: it is on another host */
    struct hkt_banks           *banks;
    char                       *staging; /* own mapping of its staging memory, once that was needed */
    size_t                      staging_size;
};

/* A buffer that was found in a segment lately; valid while the generation stands. */
struct hkt_found {
    uint64_t            generation;
    struct hkt_segment *segment; /* NULL: plain memory */
    const char         *begin, *end; /* addresses that this answer covers */
    bool                shared;  /* all peers have it mapped */
    uint64_t            used;    /* operation that looked it up */
};

/* A buffer that begins before or ends after its segment. Offsets from its start, bytes: mirrored are [0, head) and [tail, length). */
struct hkt_edge {
    bool   some;
    size_t head, tail;
};

/* The plan for calls of one kind, root, reach and magnitude (bits of the byte count). */
struct hkt_choice {
    uint8_t                coll, reach, magnitude;
    bool                   owns;
    int                    root;
    const struct hkt_algorithm *algorithm;
    const char                 *inner, *outer; /* that hierarchical is composed of; NULL: its defaults */
    const struct hkt_plan      *plan;
};

enum { HKT_COMM_NAME = 32, HKT_PREMULS = 64, HKT_FOUND = 4 };

struct hkt_communicator {
    int         rank, size;
    char        name[HKT_COMM_NAME];
    hkt_order_t order;
    double      timeout_s;

    struct hkt_shared       *shared; /* own mapping of the host's segment */
    struct hkt_shared_layout layout;
    struct hkt_peer         *peer; /* size */
    struct hkt_waiter        waiter, background; /* of a caller; of a stream's thread, which leaves the core to the caller soon */
    _Atomic uint32_t       **sleepers; /* size; of the cells */
    bool                     one_process, read_ok; /* all ranks in this process; every pair of a host can read each other's plain memory */
    struct hkt_far          *far;  /* ranks of other hosts: far.h; NULL: there are none */
    struct hkt_site         *site; /* who is near whom: site.h; NULL: all are as near */
    int                      leader, seats; /* of this host: the first rank, which decides for it; how many there are */

    uint64_t number;  /* of the last operation begun */
    uint64_t entered; /* every rank has entered this operation */
    uint32_t history; /* hash of all calls so far: ranks that only showed their data once tell by it later that they differed */
    uint64_t settled; /* the last operation that every rank knows to have differed */
    _Atomic uint64_t calls[HKT_COLLS], bytes[HKT_COLLS]; /* operations begun and their payload, for hkt_comm_traffic() */
    uint8_t  reach;   /* enum hkt_reach of the last operation in which every rank heard every other say it: the same everywhere */

    struct hkt_choice *choice; /* plans made so far, see tune.h */
    uint32_t           choices;
    struct hkt_experience *experience; /* of rank 0: with calls on plain memory; NULL until there was one */

    /* Scratch of the operation that runs: pointers per rank, sources and destinations of a kernel call (2 * size + 2 each). */
    char       **in, **out;            /* buffers of each rank; addresses there when not mapped */
    bool        *in_mapped, *out_mapped;
    struct hkt_edge *in_edge, *out_edge; /* of each rank's buffers */
    const void **src;
    void       **dst;
    double      *scales, *scale; /* per rank; per source of a kernel call */
    char        *scratch;        /* copies of what cannot be pointed at */
    size_t       scratch_size;

    struct hkt_segment *staging_segment; /* mine */
    struct hkt_gpu     *gpu;             /* its ranks on their GPUs: gpu.h; NULL: not connected */
    bool                gpu_tried;
    int                 gpu_attempts;
    struct hkt_stand_in *stand_ins;      /* host memory for calls on device memory: staged.h */
    struct hkt_found    found[HKT_FOUND];
    uint64_t           *sent, *received; /* messages to and from each rank */
    uint64_t           *pushed, *pulled; /* slices of staged messages, likewise */
    uint64_t           *known_taken, *known_pulled; /* what the other side was seen to be done with */
    size_t              core_cache;      /* bytes of a core's own */
    size_t              nontemporal;     /* results of at least this many bytes bypass the cache */

    double  premul[HKT_PREMULS];
    uint64_t premul_used; /* bit per entry */
};

/* ---- death of a communicator ---- */

/* Kills it for all its ranks: the first caller's sentence stands. Returns the code that stands, with its sentence as last error. Any
 * thread. */
int hkt_communicator_kill(struct hkt_communicator *c, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Another host says that it is dead: the same for the ranks of this one, without telling the others again. Any thread; no last error. */
void hkt_communicator_hear(struct hkt_communicator *c, int code, const char *sentence);

/* HKT_OK, or the code it died of. hkt_communicator_dead() also makes its sentence the last error. Any thread. */
int hkt_communicator_state(const struct hkt_communicator *c);
int hkt_communicator_dead(const struct hkt_communicator *c);

/* An error of this rank alone, in an operation that others count on: it is the end for all. When a rank has died, that is the reason. */
int hkt_communicator_blame(struct hkt_communicator *c, int code, const char *what, uint64_t number);

/* Turns HKT_WAIT_* of a wait for `rank` in operation `number`, which is `what`, into the communicator's death and the code. */
int hkt_communicator_lost(struct hkt_communicator *c, int why, int rank, const char *what, uint64_t number);

/* "rank 2 (host, pid 4711)". */
const char *hkt_communicator_who(const struct hkt_communicator *c, int rank, char *text, size_t size);

/* The report of hkt_comm_report(). */
void hkt_communicator_report(const struct hkt_communicator *c, char *text, size_t size);

/* ---- signatures ---- */
/* Of a plain call by itself; of the next operation, which tells of those before it, too. */
struct hkt_signature hkt_signature_of(const struct hkt_call *call);
struct hkt_signature hkt_signature_make(struct hkt_communicator *c, const struct hkt_call *call);

/* The type's part of signature.what. */
uint32_t hkt_signature_type(hkt_type_t type);

/* "all_reduce of 1024 float32, sum". */
void hkt_signature_print(const struct hkt_signature *s, char *text, size_t size);

static inline bool hkt_signature_equal(const struct hkt_signature *a, const struct hkt_signature *b)
{
    return a->count == b->count && a->what == b->what && a->root == b->root;
}

/* Lines of other ranks did not match mine in operation `number`: writes the sentence with both sides, and decides whether the call or
 * the communicator is dead (docs/failures.md). Returns HKT_ERR_MISMATCH. */
int hkt_communicator_mismatch(struct hkt_communicator *c, uint64_t number, int other);

/* ---- lines ---- */
static inline struct hkt_line *hkt_line_of(const struct hkt_communicator *c, int rank, uint64_t number)
{
    return &c->peer[rank].cell->line[hkt_line_index(number, HKT_LINES)];
}

/* Is the rank on this host? */
static inline bool hkt_near(const struct hkt_communicator *c, int rank)
{
    return c->peer[rank].cell != NULL;
}

/* It has destroyed its end. */
static inline bool hkt_peer_left(const struct hkt_communicator *c, int rank)
{
    const struct hkt_peer *p = &c->peer[rank];

    return atomic_load_explicit(p->cell ? &p->cell->left : &p->left, memory_order_relaxed);
}

static inline bool hkt_peer_alive(void *arg, int rank)
{
    const struct hkt_communicator *c = arg;

    return hkt_process_alive(c->peer[rank].process) && !hkt_peer_left(c, rank);
}

#endif
