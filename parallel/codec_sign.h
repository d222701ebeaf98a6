/* codec_sign.h -- one bit per element and a scale per block; included by codec_table.c only.
 *
 * 1-bit SGD (Seide et al. 2014) with the mean magnitude for a scale: of all scales it leaves the least error in the
 * 2-norm (Karimireddy et al. 2019), which is what error feedback needs to shrink. The blocks keep layers of different
 * size apart; one scale for a whole model drowns the small ones. Bit i of a block is that of element i; 1 is negative;
 * zero is positive.
 */
#include "codec_block.h"

static size_t onebit_bound(size_t count, const double *value)
{
    return blocks_of(count, value) * sizeof(float) + codec_groups(count) / 8;
}

#if defined(__AVX512F__)
#include <immintrin.h>
INLINE uint32_t signs_of_32(const float *x)
{
    return (uint32_t)_mm512_movepi32_mask(_mm512_loadu_si512(x)) |
           (uint32_t)_mm512_movepi32_mask(_mm512_loadu_si512(x + 16)) << 16;
}
#elif defined(__AVX2__)
#include <immintrin.h>
INLINE uint32_t signs_of_32(const float *x)
{
    uint32_t signs = 0;

    for (int k = 0; k < 4; k++)
        signs |= (uint32_t)_mm256_movemask_ps(_mm256_loadu_ps(x + 8 * k)) << (8 * k);
    return signs;
}
#else
INLINE uint32_t signs_of_32(const float *x)
{
    uint32_t signs = 0;

    for (int l = 0; l < 32; l++)
        signs |= (bits_of(x[l]) >> 31) << l;
    return signs;
}
#endif

static void onebit_encode(uint8_t *restrict code, const float *restrict x, size_t count, const struct codec_call *call)
{
    const size_t block = (size_t)call->value[0], all = codec_groups(count);
    uint8_t     *to = code + blocks_of(count, call->value) * sizeof(float);

    for (size_t b = 0; b < all; b += block, code += sizeof(float)) {
        const size_t end  = codec_least(b + block, all);
        const float  mean = sum_of_magnitudes(x + b, end - b) / (float)(codec_least(b + block, count) - b);

        store_float(code, mean < INFINITY ? mean : float_of(nan_bits));
        for (size_t i = b; i < end; i += 32) {
            const uint32_t signs = signs_of_32(x + i);

            memcpy(to + i / 8, &signs, sizeof(signs));
        }
    }
}

static void onebit_decode(float *restrict x, const uint8_t *restrict code, size_t count, const double *value)
{
    const size_t   block = (size_t)value[0], all = codec_groups(count);
    const uint8_t *from = code + blocks_of(count, value) * sizeof(float);

    for (size_t b = 0; b < all; b += block, code += sizeof(float)) {
        const uint32_t scale = bits_of(load_float(code));
        const size_t   end   = codec_least(b + block, all);

        for (size_t i = b; i < end; i += 32) {
            uint32_t signs;

            memcpy(&signs, from + i / 8, sizeof(signs));
            for (int l = 0; l < 32; l++)
                x[i + (size_t)l] = float_of(scale ^ (signs >> l << 31));
        }
    }
}

static const struct codec codec_onebit = {
    .name     = "onebit",
    .desc     = "signs, a mean magnitude per block",
    .option   = {OPTION_BLOCK(2048)},
    .ratio    = 32 / (1 + 32.0 / 2048),
    .feedback = true,
    .bound    = onebit_bound,
    .encode   = onebit_encode,
    .decode   = onebit_decode,
};
