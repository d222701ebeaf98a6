/* bucket_state.c -- what the codecs of buckets keep from step to step, as bytes for a checkpoint: a head that says
 * which buckets they belong to, then the state of each bucket's compressor (codec_state.c).
 *
 * Errors belong to elements of one rank in one bucket, so they fit the same layout only. All of it is checked before
 * any of it is taken over. Little endian, as everything that the layer writes. */
#include <parallel/bucket.h>
#include <parallel/compress.h>

#include <string.h>

struct head {
    char     magic[8];
    uint64_t bytes, layout; /* of all of it; what hkt_bucket_layout() says */
};
static const char magic[8] = "HKTBUCK1";

static int ready(const hkt_buckets_t *b, const void *other, const char *call)
{
    if (!b || !other)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s: the handle or the state is NULL", call);
    return b->open ? hkt_error_set(HKT_ERR_USAGE, "%s: not between hkt_buckets_begin() and hkt_buckets_finish()", call)
                   : HKT_OK;
}

int hkt_buckets_state_size(size_t *bytes, hkt_buckets_t *b)
{
    size_t sum = 0, one;

    TRY(ready(b, bytes, "hkt_buckets_state_size"));
    for (int i = 0; i < b->flat.buckets && b->bucket[i].compressor; i++) {
        TRY(hkt_compressor_state_size(&one, b->bucket[i].compressor));
        sum += one;
    }
    *bytes = sum ? sizeof(struct head) + sum : 0;
    return HKT_OK;
}

int hkt_buckets_save(void *state, hkt_buckets_t *b)
{
    struct head h  = {.layout = 0};
    char       *to = state;
    size_t      bytes, one;

    TRY(ready(b, state, "hkt_buckets_save"));
    TRY(hkt_buckets_state_size(&bytes, b));
    if (!bytes)
        return HKT_OK;
    memcpy(h.magic, magic, sizeof magic);
    h.bytes  = bytes;
    h.layout = hkt_bucket_layout(b);
    memcpy(to, &h, sizeof h);
    to += sizeof h;
    for (int i = 0; i < b->flat.buckets; i++, to += one) {
        TRY(hkt_compressor_state_size(&one, b->bucket[i].compressor));
        TRY(hkt_compressor_save(to, b->bucket[i].compressor));
    }
    return HKT_OK;
}

/* Hands every compressor its part of the state. */
static int each(hkt_buckets_t *b, const char *from, int (*call)(hkt_compressor_t *c, const void *state, size_t bytes))
{
    size_t one;

    for (int i = 0; i < b->flat.buckets; i++, from += one) {
        TRY(hkt_compressor_state_size(&one, b->bucket[i].compressor));
        TRY(call(b->bucket[i].compressor, from, one));
    }
    return HKT_OK;
}

int hkt_buckets_load(hkt_buckets_t *b, const void *state, size_t bytes)
{
    struct head h;
    size_t      wanted;

    TRY(ready(b, state, "hkt_buckets_load"));
    TRY(hkt_buckets_state_size(&wanted, b));
    if (bytes < sizeof h || (memcpy(&h, state, sizeof h), memcmp(h.magic, magic, sizeof magic) != 0))
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_buckets_load: these %zu bytes are no state of buckets with a codec",
                             bytes);
    if (bytes != wanted || h.bytes != wanted || h.layout != hkt_bucket_layout(b))
        return hkt_error_set(
            HKT_ERR_ARGUMENT,
            "hkt_buckets_load: the state (%zu bytes) is of other parameters, buckets, ranks or another "
            "codec than these buckets have (%zu bytes); begin without errors there",
            bytes, wanted);
    TRY(each(b, (const char *)state + sizeof h, compress_check_state));
    return each(b, (const char *)state + sizeof h, hkt_compressor_load);
}

int hkt_buckets_reset(hkt_buckets_t *b)
{
    TRY(ready(b, b, "hkt_buckets_reset"));
    for (int i = 0; i < b->flat.buckets && b->bucket[i].compressor; i++)
        TRY(hkt_compressor_reset(b->bucket[i].compressor));
    return HKT_OK;
}
