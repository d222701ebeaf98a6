/* codec_topk.h -- the largest elements of each tile as they are, the others zero; included by codec_table.c only.
 *
 * The choice within tiles of 2048 instead of the whole vector makes codes of one fixed size, indices of 16 bits, and
 * one pass over memory; every part of the model gets its share of the link. The k-th largest magnitude is found by
 * halving the range of its bits: each question is one count over the tile, in cache and in vectors, where sorting would
 * branch. Of equal ones the first count. A NaN is larger than everything.
 *
 * Code of a tile: k values, then their k indices, rising.
 */
#include "codec_numbers.h"

enum { TOPK_SHARE = 0 };

static size_t kept_of(size_t count, const double *value)
{
    return count ? (size_t)ceil((double)count * value[TOPK_SHARE]) : 0;
}

static size_t topk_bound(size_t count, const double *value)
{
    return kept_of(count, value) * (sizeof(float) + sizeof(uint16_t));
}

INLINE size_t count_above(const float *restrict x, size_t count, uint32_t limit)
{
    uint32_t above = 0;

    for (size_t i = 0; i < count; i++)
        above += (uint32_t)((int32_t)(bits_of(x[i]) & magnitude_mask) > (int32_t)limit);
    return above;
}

/* A limit with at most `kept` magnitudes above it and no fewer than can be. The mean is the first guess: it is most
 * often within a factor of ten of the answer, which saves half of the questions. */
static uint32_t limit_of(const float *x, size_t count, size_t kept)
{
    uint32_t low = 0, high = largest(x, count); /* nothing is above high */
    uint32_t guess = bits_of(sum_of_magnitudes(x, count) / (float)count);

    guess = guess < high ? guess : high / 2;
    while (low < high) {
        const size_t above = count_above(x, count, guess);

        if (above == kept)
            return guess;
        if (above < kept)
            high = guess;
        else
            low = guess + 1;
        guess = low + (high - low) / 2;
    }
    return low;
}

static void topk_encode(uint8_t *restrict code, const float *restrict x, size_t count, const struct codec_call *call)
{
    const size_t   kept  = kept_of(count, call->value);
    const uint32_t limit = limit_of(x, codec_groups(count), kept);
    size_t         ties = kept - count_above(x, codec_groups(count), limit), at = 0;

    for (size_t g = 0; g < codec_groups(count) && at < kept; g += CODEC_GROUP) {
        const size_t end = codec_least(g + CODEC_GROUP, count);

        if (largest(x + g, CODEC_GROUP) < limit)
            continue;
        for (size_t i = g; i < end && at < kept; i++) {
            const uint32_t magnitude = bits_of(x[i]) & magnitude_mask;
            const uint16_t index     = (uint16_t)i;

            if (magnitude < limit || (magnitude == limit && !ties))
                continue;
            ties -= magnitude == limit;
            store_float(code + at * sizeof(float), x[i]);
            memcpy(code + kept * sizeof(float) + at * sizeof(index), &index, sizeof(index));
            at++;
        }
    }
}

static void topk_decode(float *restrict x, const uint8_t *restrict code, size_t count, const double *value)
{
    const size_t kept = kept_of(count, value);

    memset(x, 0, codec_groups(count) * sizeof(float));
    for (size_t k = 0; k < kept; k++) {
        uint16_t index;

        memcpy(&index, code + kept * sizeof(float) + k * sizeof(index), sizeof(index));
        if (index < count)
            x[index] = load_float(code + k * sizeof(float));
    }
}

static const struct codec codec_topk = {
    .name     = "topk",
    .desc     = "the largest elements of each 2048, the others zero",
    .option   = {{"share", CODEC_REAL, 1.0 / CODEC_TILE, 1, 1.0 / 64, "of the elements is sent, 1/2048 to 1 (1/64)"}},
    .ratio    = 64 * 4.0 / 6,
    .feedback = true,
    .bound    = topk_bound,
    .encode   = topk_encode,
    .decode   = topk_decode,
};
