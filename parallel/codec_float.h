/* codec_float.h -- fp16, bf16, and fp8 (OCP E4M3) with a scale per block; included by codec_table.c only.
 *
 * fp16 and bf16 are conversions: no scale, every number by itself, what is too large becomes infinite as it does in
 * training in these types. E4M3 reaches from 2^-9 to 448 only, so a block is scaled to end at 448; it keeps small
 * numbers beside large ones that int8 loses.
 */
#include "codec_block.h"

static size_t float_bound(size_t count, const double *value)
{
    (void)value;
    return 2 * codec_groups(count);
}

#define HALVES(name)                                                                                                   \
    static void name##_encode(uint8_t *restrict code, const float *restrict x, size_t count,                           \
                              const struct codec_call *call)                                                           \
    {                                                                                                                  \
        (void)call;                                                                                                    \
        for (size_t g = 0; g < codec_groups(count); g += CODEC_GROUP) {                                                \
            int32_t  wide[CODEC_GROUP];                                                                                \
            uint16_t half[CODEC_GROUP];                                                                                \
                                                                                                                       \
            for (int i = 0; i < CODEC_GROUP; i++)                                                                      \
                wide[i] = narrow(x[g + (size_t)i], format_##name, 15);                                                 \
            for (int i = 0; i < CODEC_GROUP; i++)                                                                      \
                half[i] = (uint16_t)wide[i];                                                                           \
            memcpy(code + 2 * g, half, sizeof(half));                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_decode(float *restrict x, const uint8_t *restrict code, size_t count, const double *value)      \
    {                                                                                                                  \
        (void)value;                                                                                                   \
        for (size_t g = 0; g < codec_groups(count); g += CODEC_GROUP) {                                                \
            int32_t  wide[CODEC_GROUP];                                                                                \
            uint16_t half[CODEC_GROUP];                                                                                \
                                                                                                                       \
            memcpy(half, code + 2 * g, sizeof(half));                                                                  \
            for (int i = 0; i < CODEC_GROUP; i++)                                                                      \
                wide[i] = half[i];                                                                                     \
            for (int i = 0; i < CODEC_GROUP; i++)                                                                      \
                x[g + (size_t)i] = widen(wide[i], format_##name, 15);                                                  \
        }                                                                                                              \
    }

HALVES(fp16)
HALVES(bf16)

static const struct codec codec_fp16 = {.name   = "fp16",
                                        .desc   = "IEEE binary16",
                                        .ratio  = 2,
                                        .bound  = float_bound,
                                        .encode = fp16_encode,
                                        .decode = fp16_decode};
static const struct codec codec_bf16 = {.name   = "bf16",
                                        .desc   = "upper half of binary32",
                                        .ratio  = 2,
                                        .bound  = float_bound,
                                        .encode = bf16_encode,
                                        .decode = bf16_decode};

/* Scales of all blocks, then a byte per element. */
static size_t fp8_bound(size_t count, const double *value)
{
    return blocks_of(count, value) * sizeof(float) + codec_groups(count);
}

static void fp8_encode(uint8_t *restrict code, const float *restrict x, size_t count, const struct codec_call *call)
{
    const size_t block = (size_t)call->value[0], all = codec_groups(count);
    uint8_t     *to = code + blocks_of(count, call->value) * sizeof(float);

    for (size_t b = 0; b < all; b += block, code += sizeof(float)) {
        const struct scale s   = scale_of(largest(x + b, codec_least(block, all - b)), 448);
        const size_t       end = codec_least(b + block, all);

        store_float(code, s.step);
        for (size_t g = b; g < end; g += CODEC_GROUP) {
            int32_t wide[CODEC_GROUP];

            for (int i = 0; i < CODEC_GROUP; i++)
                wide[i] = narrow(x[g + (size_t)i] * s.inverse, format_e4m3, 7);
            for (int i = 0; i < CODEC_GROUP; i++)
                to[g + (size_t)i] = (uint8_t)wide[i];
        }
    }
}

static void fp8_decode(float *restrict x, const uint8_t *restrict code, size_t count, const double *value)
{
    const size_t   block = (size_t)value[0], all = codec_groups(count);
    const uint8_t *from = code + blocks_of(count, value) * sizeof(float);

    for (size_t b = 0; b < all; b += block, code += sizeof(float)) {
        const float  step = load_float(code);
        const size_t end  = codec_least(b + block, all);

        for (size_t g = b; g < end; g += CODEC_GROUP) {
            int32_t wide[CODEC_GROUP];

            for (int i = 0; i < CODEC_GROUP; i++)
                wide[i] = from[g + (size_t)i];
            for (int i = 0; i < CODEC_GROUP; i++)
                x[g + (size_t)i] = widen(wide[i], format_e4m3, 7) * step;
        }
    }
}

static const struct codec codec_fp8 = {
    .name   = "fp8",
    .desc   = "E4M3 with a scale per block",
    .option = {OPTION_BLOCK(256)},
    .ratio  = 4 / (1 + 4.0 / 256),
    .bound  = fp8_bound,
    .encode = fp8_encode,
    .decode = fp8_decode,
};
