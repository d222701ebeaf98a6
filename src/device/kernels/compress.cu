/* compress.cu -- codecs: fp16, bf16, and with a scale per block fp8 (E4M3), int8 and one bit.
 *
 * A warp makes the code of a block. Its threads take four elements at a time, 16 bytes of floats; but for the mean magnitude of a one-bit
 * block, whose sum has 32 lanes that each add every 32nd element, which is what the host does.
 */
#include "device/kernels/compress.h"
#include "device/kernels/types.h"

enum : uint32_t { WARP = 32, SHARE = 4 * WARP /* elements that a warp takes at once */ };

/* Where a block lies. */
struct block_place {
    uint64_t first;        /* its first element */
    uint32_t real, padded; /* elements that are there; with the zeros up to a whole group */
    uint64_t scale, codes; /* addresses */
};

/* Blocks of `bits` per element, `scaled` ones with 4 bytes each before the codes of their tile. */
struct layout {
    uint32_t block, bits, scale_bytes;

    __device__ uint64_t blocks(uint64_t count) const
    {
        return (count + block - 1) / block;
    }

    __device__ block_place place(uint64_t code, uint64_t count, uint64_t b) const
    {
        const uint32_t per_tile = HKT_COMPRESS_TILE / block;
        const uint64_t tile = b / per_tile, tile_bytes = per_tile * scale_bytes + (uint64_t)HKT_COMPRESS_TILE * bits / 8;
        const uint64_t left = count - tile * HKT_COMPRESS_TILE;
        const uint32_t elements = (uint32_t)(left < HKT_COMPRESS_TILE ? left : (uint64_t)HKT_COMPRESS_TILE), in_tile = (uint32_t)(b % per_tile);
        const uint32_t all = (elements + HKT_COMPRESS_GROUP - 1) / HKT_COMPRESS_GROUP * HKT_COMPRESS_GROUP, begin = in_tile * block;
        const uint64_t base = code + tile * tile_bytes, scales = (uint64_t)((elements + block - 1) / block) * scale_bytes;
        block_place    p;

        p.first  = tile * HKT_COMPRESS_TILE + begin;
        p.real   = elements - begin < block ? elements - begin : block;
        p.padded = all - begin < block ? all - begin : block;
        p.scale  = base + (uint64_t)in_tile * scale_bytes;
        p.codes  = base + scales + (uint64_t)begin * bits / 8;
        return p;
    }
};

union quad {
    vec16 vector;
    float x[4];
};

DEVICE uint32_t lane()
{
    return this_thread() % WARP;
}

/* Four elements of the block from `i` on; zeros behind its end. */
DEVICE quad load_quad(uint64_t address, const block_place &p, uint32_t i)
{
    const uint64_t at = address + 4 * (p.first + i);
    quad           q  = {{{0, 0, 0, 0}}};

    if (i + 4 <= p.real && at % 16 == 0)
        q.vector = load<vec16>(at);
    else
        UNROLL for (uint32_t e = 0; e < 4; e++)
        {
            if (i + e < p.real)
                q.x[e] = load<float>(at + 4 * e);
        }
    return q;
}

DEVICE void store_quad(uint64_t address, const block_place &p, uint32_t i, const quad &q)
{
    const uint64_t at = address + 4 * (p.first + i);

    if (i + 4 <= p.real && at % 16 == 0)
        store<vec16>(at, q.vector);
    else
        UNROLL for (uint32_t e = 0; e < 4; e++)
        {
            if (i + e < p.real)
                store<float>(at + 4 * e, q.x[e]);
        }
}

/* What is encoded: x with what the last code lost. */
DEVICE quad input(const hkt_compress_arguments &a, const block_place &p, uint32_t i)
{
    quad q = load_quad(a.x, p, i);

    if (a.error) {
        const quad e = load_quad(a.error, p, i);

        UNROLL for (int k = 0; k < 4; k++)
            q.x[k] += e.x[k];
    }
    return q;
}

/* What is lost, where that is a number. */
DEVICE void keep(const hkt_compress_arguments &a, const block_place &p, uint32_t i, quad q, const quad &decoded)
{
    if (!a.error)
        return;
    UNROLL for (int k = 0; k < 4; k++)
    {
        const float lost = q.x[k] - decoded.x[k];

        q.x[k] = (bits_of(lost) & ~FLOAT_SIGN) < FLOAT_INFINITY ? lost : 0;
    }
    store_quad(a.error, p, i, q);
}

/* ---- codecs: scale of a block, code of an element and back ---------------------------------------------------------------------------------- */

/* x is step * code, code is x * inverse. */
struct scale {
    float step, inverse;
};

/* The largest magnitude of the block as bits, to every thread of the warp; NaN is the largest of all. */
DEVICE uint32_t largest(const hkt_compress_arguments &a, const block_place &p)
{
    uint32_t most = 0;

    NO_UNROLL for (uint32_t i = 4 * lane(); i < p.real; i += SHARE)
    {
        const quad q = input(a, p, i);

        UNROLL for (int k = 0; k < 4; k++)
        {
            const uint32_t magnitude = bits_of(q.x[k]) & ~FLOAT_SIGN;

            most = magnitude > most ? magnitude : most;
        }
    }
    UNROLL for (uint32_t mask = WARP / 2; mask; mask /= 2)
    {
        const uint32_t other = warp_exchange(most, mask);

        most = other > most ? other : most;
    }
    return most;
}

/* To -levels .. levels. A block with a NaN or an infinity has a step that is NaN; one of tiny numbers is all zero. */
DEVICE scale scale_of(uint32_t most, float levels)
{
    const float m = float_of(most);

    if (most >= FLOAT_INFINITY)
        return scale{float_of(FLOAT_NAN), 0};
    if (m < 1e-35f)
        return scale{0, 0};
    return scale{(m < 3.4e38f ? m : 3.4e38f) / levels, levels / m};
}

struct plain_codec {
    static constexpr uint32_t bits = 16, scale_bytes = 0;

    DEVICE scale measure(const hkt_compress_arguments &, const block_place &)
    {
        return scale{1, 1};
    }
};

struct codec_fp16 : plain_codec {
    DEVICE uint32_t code(float x, scale)
    {
        return to_half(x);
    }
    DEVICE float value(uint32_t code, float)
    {
        return canonical(from_half((uint16_t)code));
    }
};

struct codec_bf16 : plain_codec {
    DEVICE uint32_t code(float x, scale)
    {
        return to_bfloat(x);
    }
    DEVICE float value(uint32_t code, float)
    {
        return canonical(float_of(code << 16));
    }
};

struct codec_fp8 {
    static constexpr uint32_t bits = 8, scale_bytes = 4;

    DEVICE scale measure(const hkt_compress_arguments &a, const block_place &p)
    {
        return scale_of(largest(a, p), 448);
    }
    DEVICE uint32_t code(float x, scale s)
    {
        return e4m3::down(x * s.inverse);
    }
    DEVICE float value(uint32_t code, float step)
    {
        return canonical(e4m3::up((uint8_t)code) * step);
    }
};

struct codec_int8 {
    static constexpr uint32_t bits = 8, scale_bytes = 4;

    DEVICE scale measure(const hkt_compress_arguments &a, const block_place &p)
    {
        return scale_of(largest(a, p), 127);
    }
    /* The last place of the sum is 1, so its low byte is the integer, rounded to nearest even. */
    DEVICE uint32_t code(float x, scale s)
    {
        return bits_of(x * s.inverse + 12582912.0f) & 0xff;
    }
    DEVICE float value(uint32_t code, float step)
    {
        return canonical((float)(int8_t)(uint8_t)code * step);
    }
};

/* ---- blocks --------------------------------------------------------------------------------------------------------------------------------------- */

template <class Codec> DEVICE void encode_block(const hkt_compress_arguments &a, const block_place &p)
{
    const scale s = Codec::measure(a, p);

    if (Codec::scale_bytes && lane() == 0)
        store<float>(p.scale, s.step);
    NO_UNROLL for (uint32_t i = 4 * lane(); i < p.padded; i += SHARE)
    {
        const quad q = input(a, p, i);
        quad       decoded;
        uint64_t   codes = 0;

        UNROLL for (int k = 0; k < 4; k++)
        {
            const uint32_t code = Codec::code(q.x[k], s);

            codes |= (uint64_t)code << (Codec::bits * k);
            decoded.x[k] = Codec::value(code, s.step);
        }
        store<uint32_t>(p.codes + i * Codec::bits / 8, (uint32_t)codes);
        if (Codec::bits == 16)
            store<uint32_t>(p.codes + i * Codec::bits / 8 + 4, (uint32_t)(codes >> 32));
        keep(a, p, i, q, decoded);
    }
}

template <class Codec> DEVICE void decode_block(const hkt_compress_arguments &a, const block_place &p)
{
    const float step = Codec::scale_bytes ? load<float>(p.scale) : 1;

    NO_UNROLL for (uint32_t i = 4 * lane(); i < p.real; i += SHARE)
    {
        const uint64_t at    = p.codes + i * Codec::bits / 8;
        const uint64_t codes = load<uint32_t>(at) | (Codec::bits == 16 ? (uint64_t)load<uint32_t>(at + 4) << 32 : 0);
        quad           q;

        UNROLL for (int k = 0; k < 4; k++)
            q.x[k] = Codec::value((uint32_t)(codes >> (Codec::bits * k)) & ((1u << Codec::bits) - 1), step);
        store_quad(a.x, p, i, q);
    }
}

/* One bit per element, 1 is negative; the scale is the mean magnitude. */
struct codec_onebit {
    static constexpr uint32_t bits = 1, scale_bytes = 4;
};

DEVICE float one(const hkt_compress_arguments &a, const block_place &p, uint32_t i)
{
    if (i >= p.real)
        return 0;
    return load<float>(a.x + 4 * (p.first + i)) + (a.error ? load<float>(a.error + 4 * (p.first + i)) : 0);
}

template <> __device__ void encode_block<codec_onebit>(const hkt_compress_arguments &a, const block_place &p)
{
    float sum = 0;

    NO_UNROLL for (uint32_t i = lane(); i < p.padded; i += WARP)
        sum += float_of(bits_of(one(a, p, i)) & ~FLOAT_SIGN);
    UNROLL for (uint32_t mask = WARP / 2; mask; mask /= 2)
        sum += float_of(warp_exchange(bits_of(sum), mask));
    sum /= (float)p.real;
    sum = sum < float_of(FLOAT_INFINITY) ? sum : float_of(FLOAT_NAN);
    if (lane() == 0)
        store<float>(p.scale, sum);
    NO_UNROLL for (uint32_t i = lane(); i < p.padded; i += WARP)
    {
        const float    x     = one(a, p, i);
        const uint32_t signs = warp_vote(bits_of(x) >> 31);

        if (lane() == 0)
            store<uint32_t>(p.codes + i / 8, signs);
        if (a.error && i < p.real) {
            const float lost = x - float_of(bits_of(sum) ^ (bits_of(x) & FLOAT_SIGN));

            store<float>(a.error + 4 * (p.first + i), (bits_of(lost) & ~FLOAT_SIGN) < FLOAT_INFINITY ? lost : 0);
        }
    }
}

template <> __device__ void decode_block<codec_onebit>(const hkt_compress_arguments &a, const block_place &p)
{
    const uint32_t scale = load<uint32_t>(p.scale);

    NO_UNROLL for (uint32_t i = lane(); i < p.real; i += WARP)
    {
        const uint32_t signs = load<uint32_t>(p.codes + i / WARP * 4);

        store<uint32_t>(a.x + 4 * (p.first + i), scale ^ (signs >> lane() << 31));
    }
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------------------------------- */

template <class Codec> DEVICE layout layout_of(const hkt_compress_arguments &a)
{
    return layout{Codec::scale_bytes ? a.block : (uint32_t)HKT_COMPRESS_TILE, Codec::bits, Codec::scale_bytes};
}

#define COMPRESS(name)                                                                                                                     \
    KERNEL(hkt_encode_##name, hkt_compress_arguments)                                                                                      \
    {                                                                                                                                      \
        const layout l = layout_of<codec_##name>(a);                                                                                       \
                                                                                                                                           \
        NO_UNROLL for (uint64_t b = grid_thread() / WARP; b < l.blocks(a.count); b += grid_threads() / WARP)                               \
            encode_block<codec_##name>(a, l.place(a.code, a.count, b));                                                                    \
    }                                                                                                                                      \
    KERNEL(hkt_decode_##name, hkt_compress_arguments)                                                                                      \
    {                                                                                                                                      \
        const layout l = layout_of<codec_##name>(a);                                                                                       \
                                                                                                                                           \
        NO_UNROLL for (uint64_t b = grid_thread() / WARP; b < l.blocks(a.count); b += grid_threads() / WARP)                               \
            decode_block<codec_##name>(a, l.place(a.code, a.count, b));                                                                    \
    }

HKT_COMPRESS_KERNELS(COMPRESS)
