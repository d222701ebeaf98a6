/* codec_state.c -- the state of a compressor as bytes: a head that says whose it is, then the feedback of this rank as
 * a worker, as an owner, and the right factors. Little endian, as everything that the layer writes. */
#include "compress.h"

#include <string.h>

static const char magic[8] = "HKTCODE1";

struct head {
    char     magic[8];
    uint64_t bytes, count, seed, step;
    uint32_t n, rank, feedback, zero;
    char     codec[104];
};
_Static_assert(sizeof(struct head) == 160, "no padding");

/* The parts behind the head, in order. */
struct piece {
    float *at;
    size_t count;
};

enum { PIECES = 3 };

static void pieces_of(struct piece piece[PIECES], hkt_compressor_t *c)
{
    piece[0] = (struct piece){c->worker, c->worker ? c->count : 0};
    piece[1] = (struct piece){c->owner, c->owner ? c->whole.part : 0};
    piece[2] = (struct piece){c->factors.q, c->factors.q_count};
}

static size_t bytes_of(hkt_compressor_t *c)
{
    struct piece piece[PIECES];
    size_t       bytes = sizeof(struct head);

    pieces_of(piece, c);
    for (int i = 0; i < PIECES; i++)
        bytes += piece[i].count * sizeof(float);
    return bytes;
}

static struct head head_of(hkt_compressor_t *c)
{
    struct head h = {.bytes    = bytes_of(c),
                     .count    = c->count,
                     .seed     = c->seed,
                     .step     = c->step,
                     .n        = (uint32_t)c->n,
                     .rank     = (uint32_t)c->me,
                     .feedback = c->feedback};

    memcpy(h.magic, magic, sizeof(magic));
    if (hkt_codec_text(h.codec, sizeof(h.codec), &c->codec) < 0)
        snprintf(h.codec, sizeof(h.codec), "%s", codec_of(&c->codec)->name);
    return h;
}

int hkt_compressor_state_size(size_t *bytes, hkt_compressor_t *c)
{
    if (!bytes || !c)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_compressor_state_size: a pointer is NULL");
    *bytes = bytes_of(c);
    return HKT_OK;
}

int hkt_compressor_save(void *state, hkt_compressor_t *c)
{
    struct piece piece[PIECES];
    struct head  h;
    char        *to = state;

    if (!state || !c)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_compressor_save: a pointer is NULL");
    h = head_of(c);
    memcpy(to, &h, sizeof(h));
    to += sizeof(h);
    pieces_of(piece, c);
    for (int i = 0; i < PIECES; i++) {
        if (piece[i].count)
            memcpy(to, piece[i].at, piece[i].count * sizeof(float));
        to += piece[i].count * sizeof(float);
    }
    return HKT_OK;
}

static int check_head(const struct head *is, const struct head *wanted, size_t bytes)
{
    if (memcmp(is->magic, wanted->magic, sizeof(magic)) != 0 || memchr(is->codec, 0, sizeof(is->codec)) == NULL)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_compressor_load: these bytes are no state of a compressor");
    if (strcmp(is->codec, wanted->codec) != 0 || is->feedback != wanted->feedback)
        return hkt_error_set(
            HKT_ERR_ARGUMENT, "hkt_compressor_load: the state is of codec %s %s feedback, this compressor is %s %s",
            is->codec, is->feedback ? "with" : "without", wanted->codec, wanted->feedback ? "with" : "without");
    if (is->count != wanted->count || is->n != wanted->n || is->rank != wanted->rank)
        return hkt_error_set(
            HKT_ERR_ARGUMENT,
            "hkt_compressor_load: the state is of rank %u of %u with %llu elements, this is rank %u of %u with %llu; "
            "for another layout begin with hkt_compressor_reset()",
            is->rank, is->n, (unsigned long long)is->count, wanted->rank, wanted->n, (unsigned long long)wanted->count);
    if (is->bytes != wanted->bytes || bytes != wanted->bytes)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_compressor_load: the state says %llu bytes, %zu are here, %llu are needed",
                             (unsigned long long)is->bytes, bytes, (unsigned long long)wanted->bytes);
    return HKT_OK;
}

int compress_check_state(hkt_compressor_t *c, const void *state, size_t bytes)
{
    struct head h, wanted;

    if (bytes < sizeof(h))
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_compressor_load: %zu bytes are no state, its head alone has %zu",
                             bytes, sizeof(h));
    memcpy(&h, state, sizeof(h));
    wanted = head_of(c);
    return check_head(&h, &wanted, bytes);
}

int hkt_compressor_load(hkt_compressor_t *c, const void *state, size_t bytes)
{
    struct piece piece[PIECES];
    struct head  h;
    const char  *from = state;

    if (!state || !c)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_compressor_load: a pointer is NULL");
    TRY(compress_check_state(c, state, bytes));
    memcpy(&h, from, sizeof(h));
    c->seed = h.seed;
    c->step = h.step;
    from += sizeof(h);
    pieces_of(piece, c);
    for (int i = 0; i < PIECES; i++) {
        if (piece[i].count)
            memcpy(piece[i].at, from, piece[i].count * sizeof(float));
        from += piece[i].count * sizeof(float);
    }
    return HKT_OK;
}

int hkt_compressor_reset(hkt_compressor_t *c)
{
    struct piece piece[PIECES];

    if (!c)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_compressor_reset: the compressor is NULL");
    pieces_of(piece, c);
    for (int i = 0; i < PIECES; i++)
        if (piece[i].count)
            memset(piece[i].at, 0, piece[i].count * sizeof(float));
    c->step = 0;
    if (codec_of(&c->codec)->linear)
        factors_reset(c);
    return HKT_OK;
}
