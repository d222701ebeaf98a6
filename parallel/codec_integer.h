/* codec_integer.h -- integers of 8, 4 and 2 bits with a scale per block: int8 and int4 round to nearest, QSGD and
 * TernGrad by chance; included by codec_table.c only.
 *
 * Code of a tile: the scales of its blocks, then the integers. Four-bit integers lie in pairs of elements 32 apart,
 * two-bit ones in fours 16 apart, within their group of 64: packing is then shifts of whole vectors and never moves a
 * number across lanes.
 *
 * QSGD (Alistarh et al. 2017) divides by the block's 2-norm; in codes of fixed width the largest magnitude serves
 * better: the bound on the variance, min(n / s^2, sqrt(n) / s) of the squared norm, holds for both, as max <= norm.
 * `norm=2` gives the paper's. TernGrad (Wen et al. 2017) is one level with the scaler shared by all ranks, tile by
 * tile, and clipped at 2.5 sigma; sigma is taken about zero, for a tile whose numbers are all alike has none about its
 * mean.
 */
#include "codec_block.h"

static size_t packed_bytes(size_t count, int bits)
{
    return codec_groups(count) * (size_t)bits / 8;
}

static int levels_of(int bits)
{
    return (1 << (bits - 1)) - 1;
}

/* Rounds to nearest even: the sum's last place is 1, so its low byte is the integer. */
INLINE int8_t nearest(float x)
{
    return (int8_t)(uint8_t)bits_of(x + 12582912.0f /* 1.5 * 2^23 */);
}

/* The nearest of x + u, u uniform in (-1/2, 1/2), within -levels .. levels: x on average, to 2^-17 of a level. */
INLINE int8_t by_chance(float x, uint16_t random, int32_t levels)
{
    const float u = ((float)(int32_t)random - 32767.5f) * 0x1p-16f;
    int32_t     q = (int32_t)bits_of(x + u + 12582912.0f) - 0x4B400000;

    q = q < levels ? q : levels;
    q = q > -levels ? q : -levels;
    return (int8_t)q;
}

static void pack(uint8_t *restrict code, const int8_t *restrict q, size_t count, int bits)
{
    if (bits == 8) {
        memcpy(code, q, count);
    } else if (bits == 4) {
        for (size_t g = 0; g < count; g += CODEC_GROUP, code += CODEC_GROUP / 2)
            for (size_t i = 0; i < CODEC_GROUP / 2; i++)
                code[i] = (uint8_t)((q[g + i] & 15) | (uint8_t)q[g + i + 32] << 4);
    } else {
        for (size_t g = 0; g < count; g += CODEC_GROUP, code += CODEC_GROUP / 4)
            for (size_t i = 0; i < CODEC_GROUP / 4; i++)
                code[i] = (uint8_t)((q[g + i] & 3) | (q[g + i + 16] & 3) << 2 | (q[g + i + 32] & 3) << 4 |
                                    (uint8_t)q[g + i + 48] << 6);
    }
}

static void unpack(int8_t *restrict q, const uint8_t *restrict code, size_t count, int bits)
{
    if (bits == 8) {
        memcpy(q, code, count);
    } else if (bits == 4) {
        for (size_t g = 0; g < count; g += CODEC_GROUP, code += CODEC_GROUP / 2)
            for (size_t i = 0; i < CODEC_GROUP / 2; i++) {
                q[g + i]      = (int8_t)((code[i] & 15) - ((code[i] & 8) << 1));
                q[g + i + 32] = (int8_t)((code[i] >> 4) - ((code[i] & 128) >> 3));
            }
    } else {
        for (size_t g = 0; g < count; g += CODEC_GROUP, code += CODEC_GROUP / 4)
            for (size_t i = 0; i < CODEC_GROUP / 4; i++)
                for (size_t k = 0; k < 4; k++) {
                    const int two = code[i] >> (2 * k) & 3;

                    q[g + i + 16 * k] = (int8_t)(two - ((two & 2) << 1));
                }
    }
}

INLINE void nearest_tile(uint8_t *restrict code, const float *restrict x, size_t count, const double *value,
                         const int bits)
{
    const size_t block = (size_t)value[0], all = codec_groups(count);
    uint8_t     *packed = code + blocks_of(count, value) * sizeof(float);
    int8_t       q[CODEC_TILE] __attribute__((aligned(64)));

    for (size_t b = 0; b < all; b += block, code += sizeof(float)) {
        const size_t       end = codec_least(b + block, all);
        const struct scale s   = scale_of(largest(x + b, end - b), levels_of(bits));

        store_float(code, s.step);
        for (size_t i = b; i < end; i++)
            q[i] = nearest(x[i] * s.inverse);
    }
    pack(packed, q, all, bits);
}

INLINE void chance_block(int8_t *restrict q, const float *restrict x, const uint16_t *restrict random, size_t count,
                         struct scale s)
{
    for (size_t i = 0; i < count; i++)
        q[i] = by_chance(x[i] * s.inverse, random[i], s.levels);
}

INLINE void integer_tile(float *restrict x, const uint8_t *restrict code, size_t count, const double *value,
                         const int bits)
{
    const size_t block = (size_t)value[0], all = codec_groups(count);
    int8_t       q[CODEC_TILE] __attribute__((aligned(64)));

    unpack(q, code + blocks_of(count, value) * sizeof(float), all, bits);
    for (size_t b = 0; b < all; b += block, code += sizeof(float)) {
        const float  step = load_float(code);
        const size_t end  = codec_least(b + block, all);

        for (size_t i = b; i < end; i++)
            x[i] = (float)q[i] * step;
    }
}

#define NEAREST(name, bits)                                                                                            \
    static size_t name##_bound(size_t count, const double *value)                                                      \
    {                                                                                                                  \
        return blocks_of(count, value) * sizeof(float) + packed_bytes(count, bits);                                    \
    }                                                                                                                  \
    static void name##_encode(uint8_t *code, const float *x, size_t count, const struct codec_call *call)              \
    {                                                                                                                  \
        nearest_tile(code, x, count, call->value, bits);                                                               \
    }                                                                                                                  \
    static void name##_decode(float *x, const uint8_t *code, size_t count, const double *value)                        \
    {                                                                                                                  \
        integer_tile(x, code, count, value, bits);                                                                     \
    }

NEAREST(int8, 8)
NEAREST(int4, 4)

static const struct codec codec_int8 = {
    .name   = "int8",
    .desc   = "8-bit integers, a scale per block, to nearest",
    .option = {OPTION_BLOCK(256)},
    .ratio  = 4 / (1 + 4.0 / 256),
    .bound  = int8_bound,
    .encode = int8_encode,
    .decode = int8_decode,
};

static const struct codec codec_int4 = {
    .name     = "int4",
    .desc     = "4-bit integers, a scale per block, to nearest",
    .option   = {OPTION_BLOCK(128)},
    .ratio    = 4 / (0.5 + 4.0 / 128),
    .feedback = true,
    .bound    = int4_bound,
    .encode   = int4_encode,
    .decode   = int4_decode,
};

/* ---- QSGD */

enum { QSGD_BLOCK = 0, QSGD_BITS, QSGD_NORM };

static size_t qsgd_bound(size_t count, const double *value)
{
    return blocks_of(count, value) * sizeof(float) + packed_bytes(count, (int)value[QSGD_BITS]);
}

static void qsgd_encode(uint8_t *code, const float *x, size_t count, const struct codec_call *call)
{
    const size_t block = (size_t)call->value[QSGD_BLOCK], all = codec_groups(count);
    const int    bits   = (int)call->value[QSGD_BITS];
    const int    levels = levels_of(bits);
    uint8_t     *packed = code + blocks_of(count, call->value) * sizeof(float);
    int8_t       q[CODEC_TILE] __attribute__((aligned(64)));

    for (size_t b = 0; b < all; b += block, code += sizeof(float)) {
        const size_t size = codec_least(block, all - b);
        uint32_t     most = largest(x + b, size);

        if (call->value[QSGD_NORM] == 2 && most < infinity_bits)
            most = bits_of(root_mean_square(x + b, size, float_of(most)) * sqrtf((float)size));
        const struct scale s = scale_of(most, levels);

        store_float(code, s.step);
        chance_block(q + b, x + b, call->random + b, size, s);
    }
    pack(packed, q, all, bits);
}

static void qsgd_decode(float *x, const uint8_t *code, size_t count, const double *value)
{
    integer_tile(x, code, count, value, (int)value[QSGD_BITS]);
}

static const struct codec codec_qsgd = {
    .name   = "qsgd",
    .desc   = "integers rounded by chance, a scale per block",
    .option = {OPTION_BLOCK(512),
               {"bits", CODEC_POWER, 2, 8, 4, "2, 4 or 8 (4): 1, 7 or 127 levels of either sign"},
               {"norm", CODEC_WHOLE, 0, 2, 0, "the scale: 2: the 2-norm, 0: the largest magnitude (0)"}},
    .ratio  = 4 / (0.5 + 4.0 / 512),
    .random = true,
    .bound  = qsgd_bound,
    .encode = qsgd_encode,
    .decode = qsgd_decode,
};

/* ---- TernGrad: one scale for a tile */

enum { TERN_CLIP = 0 };
static const double tern_block[] = {CODEC_TILE};

static size_t terngrad_bound(size_t count, const double *value)
{
    (void)value;
    return sizeof(float) + packed_bytes(count, 2);
}

static float terngrad_measure(const float *x, size_t count, const double *value)
{
    const size_t   all  = codec_groups(count);
    const uint32_t most = largest(x, all);

    if (most >= infinity_bits || value[TERN_CLIP] == 0)
        return float_of(most);
    const float at =
        (float)value[TERN_CLIP] * root_mean_square(x, all, float_of(most)) * sqrtf((float)all / (float)count);

    return at < float_of(most) ? at : float_of(most);
}

static void terngrad_encode(uint8_t *code, const float *x, size_t count, const struct codec_call *call)
{
    const struct scale s = scale_of(bits_of(call->scale), 1);
    int8_t             q[CODEC_TILE] __attribute__((aligned(64)));

    store_float(code, s.step);
    chance_block(q, x, call->random, codec_groups(count), s);
    pack(code + sizeof(float), q, codec_groups(count), 2);
}

static void terngrad_decode(float *x, const uint8_t *code, size_t count, const double *value)
{
    (void)value;
    integer_tile(x, code, count, tern_block, 2);
}

static const struct codec codec_terngrad = {
    .name    = "terngrad",
    .desc    = "-1, 0, 1 by chance, one scaler per tile of 2048 for all ranks",
    .option  = {{"clip", CODEC_REAL, 0, 1000, 2.5,
                 "magnitudes are cut at so many sigma; 0: not at all, unbiased (2.5)"}},
    .ratio   = 4 / (0.25 + 4.0 / CODEC_TILE),
    .random  = true,
    .bound   = terngrad_bound,
    .measure = terngrad_measure,
    .encode  = terngrad_encode,
    .decode  = terngrad_decode,
};
