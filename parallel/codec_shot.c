/* codec_shot.c -- reductions of codes in two shots.
 *
 *   rank r            encode x + e, chunk by chunk              first rounding, e = what was lost
 *   all-to-all        the code of chunk k goes to rank k
 *   rank k            decode n codes of chunk k, add them in rank order, encode the sum + its own e
 *                                                               second rounding, e = what was lost
 *   all-gather        the code of every sum to everybody, who decodes, the owner too
 *
 * No code is closed under addition, so a ring would round n - 1 times; here it is twice at any n, for the same bytes: 2
 * (n - 1) / n of the code. The owner's work is one pass tile by tile: what it decodes stays in the first-level cache.
 *
 * What is large goes in pieces, the same tiles of every chunk, so that the wire carries one while others are coded: a
 * stream runs all all-to-alls and then all all-gathers, in order, and the caller codes ahead of it and behind it.
 * Where the cuts are changes no bit: tiles are coded one by one.
 */
#include "compress.h"

#include <string.h>

struct chunks compress_chunks(const hkt_codec_t *codec, size_t part, int n)
{
    struct chunks chunks = {part, hkt_codec_bound(codec, part), (part + CODEC_TILE - 1) / CODEC_TILE, 0, 0};
    const size_t  worth  = (size_t)n * chunks.stride / COMPRESS_PIECE;
    const size_t  pieces = worth > COMPRESS_PIECES ? COMPRESS_PIECES : worth < 1 ? 1 : worth;

    chunks.piece_tiles = (chunks.tiles + pieces - 1) / pieces;
    chunks.pieces      = chunks.tiles ? (int)((chunks.tiles + chunks.piece_tiles - 1) / chunks.piece_tiles) : 1;
    return chunks;
}

size_t compress_chunk_size(const struct chunks *chunks, int chunk, size_t count)
{
    const size_t begin = (size_t)chunk * chunks->part;

    return begin < count ? codec_least(chunks->part, count - begin) : 0;
}

void shot_measure(uint32_t *scale, hkt_compressor_t *c, const float *in, const struct chunks *chunks)
{
    const struct codec *entry = codec_of(&c->codec);
    struct codec_desk   desk;

    memset(scale, 0, (size_t)c->n * chunks->tiles * sizeof(*scale));
    for (int k = 0; k < c->n; k++, scale += chunks->tiles) {
        const size_t begin = (size_t)k * chunks->part, size = compress_chunk_size(chunks, k, c->count);

        for (size_t at = 0; at < size; at += CODEC_TILE) {
            const size_t tile = codec_least(CODEC_TILE, size - at);
            float        own;

            c->loops->load(desk.x, in + begin + at, c->worker ? c->worker + begin + at : NULL, tile);
            own = entry->measure(desk.x, tile, c->codec.value);
            memcpy(&scale[at / CODEC_TILE], &own, sizeof(own));
        }
    }
}

/* ---- pieces */

struct piece {
    size_t tile, begin, count; /* its first tile and element in every chunk, and elements: the last chunks have fewer */
    size_t at, bytes;          /* in sent and got: where it begins, and a rank's share */
};

static struct piece piece_of(const hkt_compressor_t *c, const struct chunks *chunks, int p)
{
    const size_t first = (size_t)p * chunks->piece_tiles, tile = codec_of(&c->codec)->bound(CODEC_TILE, c->codec.value);
    const size_t end = p + 1 < chunks->pieces ? (first + chunks->piece_tiles) * tile : chunks->stride;

    return (struct piece){first, first * CODEC_TILE, chunks->piece_tiles * CODEC_TILE, (size_t)c->n * first * tile,
                          end - first * tile};
}

/* Elements that chunk k has in a piece. */
static size_t elements(const struct piece *piece, const struct chunks *chunks, int k, size_t count)
{
    const size_t size = compress_chunk_size(chunks, k, count);

    return size > piece->begin ? codec_least(piece->count, size - piece->begin) : 0;
}

static void encode_piece(hkt_compressor_t *c, const float *in, const struct chunks *chunks, const struct piece *piece)
{
    const bool shared = codec_of(&c->codec)->measure != NULL;

    for (int k = 0; k < c->n; k++) {
        const size_t              begin  = (size_t)k * chunks->part + piece->begin;
        const float              *scale  = (const float *)(const void *)(c->agreed + 1) + (size_t)k * chunks->tiles;
        const struct codec_source source = {&c->codec, codec_random(c->seed, c->step, c->me, 0), begin,
                                            shared ? scale + piece->tile : NULL, c->unit ? c->unit + begin : NULL};

        codec_encode(c->sent + piece->at + (size_t)k * piece->bytes, c->worker ? c->worker + begin : NULL, in + begin,
                     elements(piece, chunks, k, c->count), &source);
    }
}

/* desk->x = sum over ranks of their tile of this rank's chunk. */
static void sum_tile(hkt_compressor_t *c, struct codec_desk *desk, const struct piece *piece)
{
    const struct codec *entry = codec_of(&c->codec);
    const size_t        at = desk->tile * entry->bound(CODEC_TILE, c->codec.value), size = desk->count;
    const uint8_t      *got = c->got + piece->at + at;

    entry->decode(desk->x, got, size, c->codec.value);
    for (int r = 1; r < c->n; r++) {
        entry->decode(desk->d, got + (size_t)r * piece->bytes, size, c->codec.value);
        c->loops->add(desk->x, desk->d, size);
    }
    memset(desk->x + size, 0, (codec_groups(size) - size) * sizeof(float));
}

/* What becomes of a sum: a code for everybody, or, in a reduce-scatter, the result itself. */
static void sum_piece(hkt_compressor_t *c, const struct request *r, const struct chunks *chunks,
                      const struct piece *piece)
{
    const size_t              begin  = (size_t)c->me * chunks->part + piece->begin;
    const size_t              size   = elements(piece, chunks, c->me, c->count);
    const size_t              bytes  = codec_of(&c->codec)->bound(CODEC_TILE, c->codec.value);
    uint8_t                  *code   = c->sent + piece->at + (size_t)c->me * piece->bytes;
    const struct codec_source source = {&c->codec, codec_random(c->seed, c->step, c->me, 1), begin, NULL, NULL};
    struct codec_desk         desk;

    desk.tile = 0;
    for (size_t at = 0; at < size; at += CODEC_TILE, desk.tile++) {
        float *lost = c->owner ? c->owner + piece->begin + at : NULL;

        desk.count = codec_least(CODEC_TILE, size - at);
        sum_tile(c, &desk, piece);
        if (r->average)
            c->loops->divide(desk.x, (float)c->n, desk.count);
        if (r->scatter) {
            memcpy(r->out + piece->begin + at, desk.x, desk.count * sizeof(float));
            continue;
        }
        if (lost)
            c->loops->add(desk.x, lost, desk.count);
        codec_encode_tile(code + desk.tile * bytes, lost, &desk, &source);
    }
}

static void decode_piece(hkt_compressor_t *c, float *out, const struct chunks *chunks, const struct piece *piece)
{
    const size_t bytes = codec_of(&c->codec)->bound(CODEC_TILE, c->codec.value);

    for (int k = 0; k < c->n; k++) {
        const size_t   begin = (size_t)k * chunks->part + piece->begin, size = elements(piece, chunks, k, c->count);
        const uint8_t *code  = c->sent + piece->at + (size_t)k * piece->bytes;

        for (size_t at = 0; at < size; at += CODEC_TILE, code += bytes) {
            const size_t tile = codec_least(CODEC_TILE, size - at);

            codec_decode(out + begin + at, code, tile, &c->codec);
            if (c->unit)
                c->loops->divide_units(out + begin + at, c->unit + begin + at, tile);
        }
    }
}

/* ---- the wire */

static int ship(void *shipment)
{
    struct shipment  *s     = shipment;
    hkt_compressor_t *c     = s->compressor;
    uint8_t          *sent  = c->sent + s->at;
    const double      start = compress_seconds();

    s->rc      = s->gather ? hkt_all_gather(sent + (size_t)c->me * s->bytes, sent, s->bytes, HKT_UINT8, c->comm, NULL)
                           : hkt_all_to_all(sent, c->got + s->at, s->bytes, HKT_UINT8, c->comm, NULL);
    s->seconds = compress_seconds() - start;
    return s->rc;
}

static int send_off(hkt_compressor_t *c, struct shipment *s, const struct piece *piece, bool gather)
{
    s->compressor = c;
    s->gather     = gather;
    s->at         = piece->at;
    s->bytes      = piece->bytes;
    compress_coded(c);
    if (c->wire) {
        TRY(hkt_stream_call(c->wire, ship, s));
        return hkt_event_record(s->over, c->wire);
    }
    ship(s);
    compress_waited(c, s->seconds);
    return s->rc;
}

static int arrive(hkt_compressor_t *c, struct shipment *s)
{
    if (!c->wire)
        return HKT_OK;
    compress_coded(c);
    TRY(hkt_event_synchronize(s->over));
    compress_waited(c, s->seconds);
    return s->rc;
}

static int in_pieces(hkt_compressor_t *c, const struct request *r, const struct chunks *chunks)
{
    struct shipment *all_to_all = c->shipment, *gather = c->shipment + COMPRESS_PIECES;
    struct piece     piece[COMPRESS_PIECES];

    for (int p = 0; p < chunks->pieces; p++) {
        piece[p] = piece_of(c, chunks, p);
        encode_piece(c, r->in, chunks, &piece[p]);
        TRY(send_off(c, &all_to_all[p], &piece[p], false));
    }
    for (int p = 0; p < chunks->pieces; p++) {
        TRY(arrive(c, &all_to_all[p]));
        sum_piece(c, r, chunks, &piece[p]);
        if (!r->scatter)
            TRY(send_off(c, &gather[p], &piece[p], true));
    }
    for (int p = 0; p < chunks->pieces && !r->scatter; p++) {
        TRY(arrive(c, &gather[p]));
        decode_piece(c, r->out, chunks, &piece[p]);
    }
    return HKT_OK;
}

int shot_run(hkt_compressor_t *c, const struct request *r, const struct chunks *chunks)
{
    const int rc = in_pieces(c, r, chunks), wire = c->wire ? hkt_stream_synchronize(c->wire) : HKT_OK;

    return wire < 0 ? wire : rc; /* the wire has the sentence */
}

int shot_create(hkt_compressor_t *c)
{
    if (c->n == 1 || c->whole.pieces == 1)
        return HKT_OK;
    for (int i = 0; i < 2 * COMPRESS_PIECES; i++)
        TRY(hkt_event_create(&c->shipment[i].over));
    return hkt_stream_create(&c->wire);
}

void shot_destroy(hkt_compressor_t *c)
{
    hkt_stream_destroy(c->wire);
    for (int i = 0; i < 2 * COMPRESS_PIECES; i++)
        hkt_event_destroy(c->shipment[i].over);
}
