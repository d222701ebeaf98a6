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
 */
#include "compress.h"

#include <string.h>

struct chunks compress_chunks(const hkt_codec_t *codec, size_t part)
{
    return (struct chunks){part, hkt_codec_bound(codec, part), (part + CODEC_TILE - 1) / CODEC_TILE};
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

static void encode_all(hkt_compressor_t *c, const float *in, const struct chunks *chunks)
{
    const bool shared = codec_of(&c->codec)->measure != NULL;

    for (int k = 0; k < c->n; k++) {
        const size_t              begin  = (size_t)k * chunks->part;
        const float              *scale  = (const float *)(const void *)(c->agreed + 1) + (size_t)k * chunks->tiles;
        const struct codec_source source = {&c->codec, codec_random(c->seed, c->step, c->me, 0), begin,
                                            shared ? scale : NULL};

        codec_encode(c->sent + (size_t)k * chunks->stride, c->worker ? c->worker + begin : NULL, in + begin,
                     compress_chunk_size(chunks, k, c->count), &source);
    }
}

/* desk->x = sum over ranks of their tile of this rank's chunk. */
static void sum_tile(hkt_compressor_t *c, struct codec_desk *desk, const struct chunks *chunks)
{
    const struct codec *entry = codec_of(&c->codec);
    const size_t        at = desk->tile * entry->bound(CODEC_TILE, c->codec.value), size = desk->count;

    entry->decode(desk->x, c->got + at, size, c->codec.value);
    for (int r = 1; r < c->n; r++) {
        entry->decode(desk->d, c->got + (size_t)r * chunks->stride + at, size, c->codec.value);
        c->loops->add(desk->x, desk->d, size);
    }
    memset(desk->x + size, 0, (codec_groups(size) - size) * sizeof(float));
}

/* What becomes of a sum: a code for everybody, or, where `out` is given, the result itself. */
static void sum_chunk(hkt_compressor_t *c, const struct chunks *chunks, bool average, float *out)
{
    const size_t              begin = (size_t)c->me * chunks->part, size = compress_chunk_size(chunks, c->me, c->count);
    const size_t              bytes  = codec_of(&c->codec)->bound(CODEC_TILE, c->codec.value);
    uint8_t                  *code   = c->sent + (size_t)c->me * chunks->stride;
    const struct codec_source source = {&c->codec, codec_random(c->seed, c->step, c->me, 1), begin, NULL};
    struct codec_desk         desk;

    desk.tile = 0;
    for (size_t at = 0; at < size; at += CODEC_TILE, desk.tile++) {
        float *lost = c->owner ? c->owner + at : NULL;

        desk.count = codec_least(CODEC_TILE, size - at);
        sum_tile(c, &desk, chunks);
        if (average)
            c->loops->divide(desk.x, (float)c->n, desk.count);
        if (out) {
            memcpy(out + at, desk.x, desk.count * sizeof(float));
            continue;
        }
        if (lost)
            c->loops->add(desk.x, lost, desk.count);
        codec_encode_tile(code + desk.tile * bytes, lost, &desk, &source);
    }
}

int shot_run(hkt_compressor_t *c, const struct request *r, const struct chunks *chunks)
{
    uint8_t *own = c->sent + (size_t)c->me * chunks->stride;

    encode_all(c, r->in, chunks);
    compress_coded(c);
    TRY(hkt_all_to_all(c->sent, c->got, chunks->stride, HKT_UINT8, c->comm, NULL));
    compress_wired(c);
    sum_chunk(c, chunks, r->average, r->scatter ? r->out : NULL);
    if (r->scatter)
        return HKT_OK;
    compress_coded(c);
    TRY(hkt_all_gather(own, c->sent, chunks->stride, HKT_UINT8, c->comm, NULL));
    compress_wired(c);
    for (int k = 0; k < c->n; k++)
        codec_decode(r->out + (size_t)k * chunks->part, c->sent + (size_t)k * chunks->stride,
                     compress_chunk_size(chunks, k, c->count), &c->codec);
    return HKT_OK;
}
