/* segment.h -- what a GPU kernel is told: plain C and C++, included by the host that launches and by the kernels.
 *
 * Two kernels do everything. The one that moves ("move") takes up to HKT_KERNEL_SEGMENTS segments, each "fold these sources by the
 * canonical tree, store the value in all these places", in no order among each other; before and after them it can wait for the
 * other ranks. The one for tiny messages ("low latency") is a whole all-reduce: data and flags travel in the same 16 bytes, so
 * nothing waits for anything but the data itself.
 *
 * One struct by value is all a launch passes. Addresses are those of the device the kernel runs on, whoever owns the memory. Which
 * kernel serves a type and an operator, and how `order` and `scale` are made, is kernel.h. Flags and epochs live in device memory
 * and are advanced by the kernels, so that a captured launch may be replayed as it is.
 */
#ifndef HKT_DEVICE_SEGMENT_H
#define HKT_DEVICE_SEGMENT_H

#include <stdint.h>

enum {
    HKT_SEGMENT_FAN    = 8,         /* sources, and destinations, of a segment; ranks that one launch waits for */
    HKT_KERNEL_SEGMENTS       = 8,         /* of a launch */
    HKT_KERNEL_BLOCKS  = 64,        /* most blocks of a launch */
    HKT_KERNEL_THREADS = 512,       /* most threads of a block */
    HKT_LOW_BYTES      = 64 << 10,  /* the longest message of the low latency kernel */
    HKT_LOW_LINE       = 16         /* bytes of a line: 8 of data, two flags of 4 */
};

/* What a rank's peers write and read to wait for each other: in the rank's memory, mapped by all of them, zero at the start. */
struct hkt_kernel_control {
    uint32_t flag[2][HKT_KERNEL_BLOCKS][HKT_SEGMENT_FAN]; /* written by peers: [before, after][block][from whom] */
    uint32_t epoch[HKT_SEGMENT_FAN];                      /* the rank's own: waits done with each peer */
    uint32_t low_epoch;                                   /* the rank's own: low latency operations done */
    uint32_t blocks_done;                                 /* the rank's own: of the launch that runs */
};

/* A rank's lines of the low latency kernel, in its memory: two banks by the parity of the epoch, a stretch for each sender. */
enum { HKT_LOW_LINES = HKT_LOW_BYTES / 8, HKT_LOW_AREA = 2 * HKT_SEGMENT_FAN * HKT_LOW_LINES * HKT_LOW_LINE /* bytes, 2 MiB */ };

/* How a value leaves. Neither: rounded to the type. */
enum { HKT_SEGMENT_PARTIAL = 1 /* in the wide type */, HKT_SEGMENT_DIVIDE = 2 /* by `divisor`: an average that becomes final */ };

struct hkt_kernel_segment {
    uint64_t count;                  /* elements; bytes for the kernel that copies */
    uint64_t src[HKT_SEGMENT_FAN];   /* addresses, each a multiple of its element's size; fastest when alike modulo 16 */
    uint64_t dst[HKT_SEGMENT_FAN];   /* may be equal to a source, never overlap one otherwise */
    uint64_t scale[HKT_SEGMENT_FAN]; /* what a scaled source is multiplied by: the bits of the wide type, see hkt_kernel_scale() */
    uint8_t  nsrc, ndst;             /* at least 1 */
    uint8_t  partial;                /* bit per source: it is of the wide type */
    uint8_t  scaled;                 /* bit per source: multiplied when read (raw inputs of a premultiplied sum) */
    uint8_t  out;                    /* HKT_SEGMENT_PARTIAL, HKT_SEGMENT_DIVIDE */
    uint8_t  unused[3];
};

/* For what is waited, in the kernel. */
enum { HKT_KERNEL_BEFORE = 1 /* until peers are there, before anything is read */, HKT_KERNEL_AFTER = 2 /* until they are done */ };

struct hkt_kernel_arguments {
    uint32_t           rank, ranks; /* of those below */
    uint32_t           peers;       /* bit per rank that is waited for; the own bit is ignored */
    uint32_t           wait;        /* HKT_KERNEL_BEFORE, HKT_KERNEL_AFTER; then all `peers` launch the same number of blocks */
    uint32_t           segments;
    uint32_t           divisor;     /* ranks that an average divides by */
    uint64_t           order;       /* of min and max, see hkt_kernel_order() */
    uint64_t           abort;       /* uint32_t that the host can set: not 0, nothing more is waited for; 0: there is none */
    uint64_t           control[HKT_SEGMENT_FAN]; /* struct hkt_kernel_control of every rank; unused where nothing is waited for */
    uint64_t           low[HKT_SEGMENT_FAN];     /* HKT_LOW_AREA bytes of every rank, zero at the start; low latency only */
    struct hkt_kernel_segment segment[HKT_KERNEL_SEGMENTS];    /* low latency: only the first, its first source and first destination, but the
                                                    scale of every rank */
};

#endif
