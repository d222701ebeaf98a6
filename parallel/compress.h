/* compress.h -- the inside of a compressor, shared by its files: compress.c (the handle, the rule for NaN, streams,
 * statistics), codec_shot.c (two-shot reductions), codec_powersgd.c (factors), codec_state.c (saving). */
#ifndef PARALLEL_COMPRESS_H
#define PARALLEL_COMPRESS_H

#include "codec.h"

#include <stdatomic.h>

enum {
    COMPRESS_WAITING = 8,         /* most calls on a stream */
    COMPRESS_JUDGED  = 8,         /* calls before the codec is judged */
    COMPRESS_PIECES  = 8,         /* most pieces of a call */
    COMPRESS_PIECE   = 256 * 1024 /* bytes of code, of all ranks, that are worth a piece */
};

/* One call. */
struct request {
    hkt_compressor_t *compressor;
    const float      *in;
    float            *out;
    bool              average, scatter;
    size_t            begin, end; /* the part of the vector that out gets */
    _Atomic int       busy;
};

/* How a vector is cut: n chunks of `part` elements, the last ones shorter or empty; a chunk's code takes `stride`
 * bytes. A piece is `piece_tiles` tiles of every chunk, at the same place; pieces travel one after the other. */
struct chunks {
    size_t part, stride, tiles, piece_tiles;
    int    pieces;
};

/* A collective of one piece, beside the coding of others. */
struct shipment {
    struct hkt_compressor *compressor;
    bool                   gather;    /* an all-gather of what was summed; else the all-to-all before */
    size_t                 at, bytes; /* where the piece lies in sent and got, and a rank's share of it */
    double                 seconds;
    int                    rc;
    hkt_event_t           *over;
};

/* A matrix of the vector; rank 0: it travels as it is. */
struct factor {
    size_t rows, cols, at; /* at: first element in the vector */
    int    rank;
};

struct factors {
    int            count;
    struct factor *of;
    size_t         p_count, q_count, rest; /* elements: left factors, right factors, what travels as it is */
    float         *p, *q;                  /* p is followed by the rest */
    float         *row;                    /* the longest */
};

struct hkt_compressor {
    hkt_codec_t               codec;
    const struct codec_loops *loops;
    hkt_comm_t               *comm;
    hkt_ledger_t             *ledger;
    int                       n, me;
    size_t                    count;
    bool                      feedback;
    const float              *unit; /* of every element: what is rounded are multiples of it; NULL: 1 */
    uint64_t                  seed, step; /* step: successful calls so far */

    struct chunks   whole;          /* of an all-reduce */
    float          *worker, *owner; /* error feedback; NULL without: count, whole.part elements */
    uint8_t        *sent, *got;     /* n strides each, shared: piece by piece, in it rank by rank */
    hkt_stream_t   *wire;           /* carries shipments; NULL where there is one piece: then the caller does */
    struct shipment shipment[2 * COMPRESS_PIECES];
    uint32_t       *agreed;  /* what ranks agree on first: a fault, and the scalers of all tiles */
    struct factors  factors; /* powersgd */

    struct request         request[COMPRESS_WAITING];
    hkt_compressor_stats_t stats;
    double                 code_s, wait_s, wire_s, since; /* of the present call; the wire works beside the coding */
    double                 least_s, least_wire_s;         /* of the fastest one */
    char                   fault[200];
};

/* What hkt_compressor_load() would say, without loading (codec_state.c). */
int compress_check_state(hkt_compressor_t *c, const void *state, size_t bytes);

/* From now on element i is multiplied by unit[i] before it is encoded and divided after it was decoded: what is rounded,
 * and what the feedback holds, is in those units. Where a unit is 0 the result is 0. The units are the same on all ranks
 * and stay the caller's; a codec with feedback that is not linear; only for all-reduces. */
int compress_in_units(hkt_compressor_t *c, const float *unit);

/* Moves the clock: what passed since the last move was coding, or waiting for the wire, which worked for that long or
 * for `wire_s`. */
void   compress_coded(hkt_compressor_t *c);
void   compress_wired(hkt_compressor_t *c);
void   compress_waited(hkt_compressor_t *c, double wire_s);
double compress_seconds(void);

struct chunks compress_chunks(const hkt_codec_t *codec, size_t part, int n);
size_t        compress_chunk_size(const struct chunks *chunks, int chunk, size_t count);

/* The scalers of all tiles of `in`, for codecs whose ranks share them; into `scale`, as bits. */
void shot_measure(uint32_t *scale, hkt_compressor_t *c, const float *in, const struct chunks *chunks);
int  shot_run(hkt_compressor_t *c, const struct request *r, const struct chunks *chunks);
int  shot_create(hkt_compressor_t *c); /* the wire, where there are pieces */
void shot_destroy(hkt_compressor_t *c);

int    factors_create(hkt_compressor_t *c, const hkt_compressor_config_t *config);
void   factors_destroy(hkt_compressor_t *c);
void   factors_reset(hkt_compressor_t *c);
int    factors_run(hkt_compressor_t *c, const struct request *r);
size_t factors_code_bytes(const struct factors *f);

/* Of a vector without known shapes. */
hkt_codec_shape_t factors_square(size_t count);

#endif
