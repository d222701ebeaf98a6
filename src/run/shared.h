/* shared.h -- the communicator's segment: what its ranks see of one another. Nameless shared memory; every word has one writer, but for
 * the poison claim and the claimed pieces of a message. Pages that nobody has needed are never touched, so an idle communicator costs a few pages.
 *
 * Every operation has a number (1, 2, 3 ...; the same on every rank). A rank enters operation k by writing one of its HKT_LINES lines: what
 * it was asked to do, and either the data itself (small) or where its buffers are. The number in the line is written last.
 * A line may be written again once every rank has entered operation k - HKT_LINES + 1, since entering that means it has left
 * operation k - HKT_LINES.
 */
#ifndef HKT_SHARED_H
#define HKT_SHARED_H

#include "base/atomic.h"

#include <stddef.h>
#include <stdint.h>

enum {
    HKT_LINES        = 64,    /* operations that a rank can be ahead of the slowest reader of its lines */
    HKT_INLINE       = 40,    /* bytes of data in a line */
    HKT_SMALL        = 1024,  /* bytes of data in a small bank; there is one per line */
    HKT_EAGER        = 16384, /* bytes of data in an eager bank */
    HKT_EAGER_BANKS  = 16,
    HKT_SHELVES      = 8,     /* hosts at most, where small collectives go from host to host the flat way */
    HKT_MAIL_LINES   = 16, /* messages that fit between two ranks */
    HKT_MAIL_BANKS   = 4,
    HKT_SENTENCE     = 1024,
    HKT_TABLES       = 2,  /* banks of all_to_all_v tables */
    HKT_PIECE_BITS   = 24,
    HKT_STEP_BITS    = 24, /* progress = operation << HKT_STEP_BITS | steps done */
    HKT_APART        = 128 /* bytes between words of different writers: two lines, since hardware fetches pairs */
};

/* What a rank was asked to do, as two words that must be equal on every rank. */
struct hkt_signature {
    uint64_t count;
    uint32_t what; /* collective, type, operator, and a hash of all earlier calls: hkt_signature_make() */
    int32_t  root;
};

/* What a receiver need not wait for, or can hope for. */
enum hkt_mail_state { HKT_MAIL_PLAIN, HKT_MAIL_READY /* all is in a bank */, HKT_MAIL_HELPED /* the sender will copy, too */ };

/* Where a rank's buffers are, when the data is not in the line. */
struct hkt_entry {
    uint64_t in_offset, out_offset; /* in the segment; or the address when the segment is 0 */
    uint32_t in_segment, out_segment;
    double   scale;    /* of a premultiplied sum */
    uint32_t reach;    /* enum hkt_reach of the worse buffer */
    union {
        struct {
            uint16_t plain, mapped; /* enum hkt_way, by rank 0: its answers to the questions of run/tune.h */
        } way;
        uint32_t mail;  /* enum hkt_mail_state, of a message */
    };
};

struct hkt_line {
    _Atomic uint64_t     number; /* of the operation; written last */
    struct hkt_signature signature;
    union {
        unsigned char    data[HKT_INLINE];
        struct hkt_entry entry;
    };
};
_Static_assert(sizeof(struct hkt_line) == 64, "one cache line");

/* Which of `lines` (a power of two) serves operation or message `number`: consecutive ones are two lines apart, since hardware fetches
 * pairs, and fetching the next line together with this one would take it from its writer. */
static inline uint64_t hkt_line_index(uint64_t number, uint64_t lines)
{
    return ((2 * number) & (lines - 1)) | (number & lines / 2 ? 1 : 0);
}

/* One rank's data that does not fit in its lines. */
struct hkt_banks {
    unsigned char small[HKT_LINES][HKT_SMALL], eager[HKT_EAGER_BANKS][HKT_EAGER];
};

/* What the ranks of another host show; by the leader of this one. */
struct hkt_shelf {
    _Alignas(HKT_APART) _Atomic uint64_t arrived; /* the last operation that something came for */
    _Alignas(HKT_APART) struct hkt_banks banks;
};

/* What of a rank's buffer lies just before and just after its segment: see edge.h. */
enum { HKT_EDGE = 4096, HKT_EDGE_SLACK = 64 };
struct hkt_mirror {
    unsigned char head[HKT_EDGE + HKT_EDGE_SLACK], tail[HKT_EDGE + HKT_EDGE_SLACK];
};

/* One rank's part. */
struct hkt_cell {
    _Alignas(HKT_APART) struct hkt_line line[HKT_LINES];
    _Alignas(HKT_APART) _Atomic uint64_t progress;
    _Alignas(HKT_APART) _Atomic uint32_t sleepers; /* threads asleep on a word of this rank; written by them */
    _Alignas(HKT_APART) _Atomic uint64_t staging;  /* of its staging segment: pages << 32 | id; it only grows */
    _Atomic uint32_t left;                         /* destroyed its end */
    _Atomic uint64_t gpu;                          /* from which operation on it can connect its GPU; 0: cannot: gpu.h */
};

/* Messages from one rank to another. */
struct hkt_mail {
    _Alignas(HKT_APART) struct hkt_line line[HKT_MAIL_LINES]; /* by the sender */
    _Alignas(HKT_APART) _Atomic uint64_t pushed;              /* by the sender: slices of staged messages in the banks, ever */
    _Atomic uint64_t                     helped;              /* by the sender: message << HKT_PIECE_BITS | pieces that it has copied */
    _Alignas(HKT_APART) _Atomic uint64_t taken;               /* by the receiver: messages it is done with */
    struct hkt_signature                 wanted;              /* by the receiver: of the message it refused */
    _Atomic uint64_t                     refused;             /* by the receiver: number of that message */
    struct hkt_signature                 want;                /* by the receiver: of the large message it is at, */
    struct hkt_entry                     place;               /* and where that shall go */
    _Alignas(HKT_APART) _Atomic uint64_t pulled;              /* by the receiver: slices of staged messages, ever */
    _Alignas(HKT_APART) _Atomic uint64_t claimed; /* by the receiver, then both: message << HKT_PIECE_BITS | pieces begun */
};

/* all_to_all_v: what a rank says of its block for one other rank; elements. */
struct hkt_table_row {
    uint64_t in_count, in_displ, out_count, out_displ;
};

/* The head of the segment. Cells, eager banks, mail and tables follow at offsets that hkt_shared_size() computes. */
struct hkt_shared {
    _Atomic uint32_t claim;               /* 0 -> 1 by the rank that may write the sentence */
    _Alignas(HKT_APART) _Atomic uint64_t poison; /* 0, or 1 << 63 | rank << 8 | -code; after the sentence */
    char sentence[HKT_SENTENCE];
};

struct hkt_shared_layout {
    size_t cells, eager, mail, mail_banks, tables, mirrors, gpu, shelves, size; /* offsets, bytes */
};

/* Of n ranks of one host, in a communicator of `size` ranks, with `shelves` for other hosts. */
static inline struct hkt_shared_layout hkt_shared_layout(size_t n, size_t size, size_t shelves)
{
    struct hkt_shared_layout l;

    l.cells      = 4096;
    l.tables     = (l.cells + n * sizeof(struct hkt_cell) + 4095) & ~(size_t)4095;
    l.mail       = (l.tables + n * size * HKT_TABLES * sizeof(struct hkt_table_row) + 4095) & ~(size_t)4095;
    l.eager      = (l.mail + n * n * sizeof(struct hkt_mail) + 4095) & ~(size_t)4095;
    l.mail_banks = l.eager + n * sizeof(struct hkt_banks);
    l.mirrors    = l.mail_banks + n * n * HKT_MAIL_BANKS * (size_t)HKT_EAGER;
    l.gpu        = (l.mirrors + 2 * n * sizeof(struct hkt_mirror) + 4095) & ~(size_t)4095;
    l.shelves    = l.gpu + n * 4096;
    l.size       = l.shelves + shelves * sizeof(struct hkt_shelf);
    return l;
}

#endif
