/* random.c -- the counter-based generator Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: Parallel random
 * numbers: as easy as 1, 2, 3; 2011), and the numbers drawn from it.
 *
 * A number is a function of (seed, stream, index) and of nothing else, so nothing has to be saved, and a rank that
 * computes only a part of a tensor draws exactly that part. Element i of a stream is word i % 4 of block i / 4; the
 * counter of a block is (block, stream), the key is the seed.
 *
 * Blocks are computed LANES at a time in plain loops that compilers turn into vector code, once per instruction set.
 * Normals use only + - * / and square roots in a fixed order (this file is compiled without contraction to fused
 * operations), so all sets give the same bits; the C library's log, sin and cos would not.
 */
#include "common.h"
#include "isa.h"

#include <math.h>
#include <string.h>

enum { LANES = 64, TILE = 4 * LANES /* elements of one tile of blocks */ };

/* Word w of lane l's block. */
struct tile {
    uint32_t word[4][LANES];
};

/* The ten rounds stand inside the loop over lanes, so that a vector of blocks stays in registers. */
ISA_BODY void rounds(struct tile *t, uint32_t key0, uint32_t key1)
{
    for (int l = 0; l < LANES; l++) {
        uint32_t c0 = t->word[0][l], c1 = t->word[1][l], c2 = t->word[2][l], c3 = t->word[3][l];

#pragma GCC unroll 10
        for (uint32_t round = 0; round < 10; round++) {
            const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;

            c0 = (uint32_t)(b >> 32) ^ c1 ^ (key0 + round * 0x9E3779B9u);
            c1 = (uint32_t)b;
            c2 = (uint32_t)(a >> 32) ^ c3 ^ (key1 + round * 0xBB67AE85u);
            c3 = (uint32_t)a;
        }
        t->word[0][l] = c0, t->word[1][l] = c1, t->word[2][l] = c2, t->word[3][l] = c3;
    }
}

/* The blocks `block` .. `block` + LANES - 1 of a stream. */
ISA_BODY void draw(struct tile *t, hkt_random_t r, uint64_t block)
{
    for (int l = 0; l < LANES; l++) {
        t->word[0][l] = (uint32_t)(block + (uint64_t)l);
        t->word[1][l] = (uint32_t)((block + (uint64_t)l) >> 32);
        t->word[2][l] = (uint32_t)r.stream;
        t->word[3][l] = (uint32_t)(r.stream >> 32);
    }
    rounds(t, (uint32_t)r.seed, (uint32_t)(r.seed >> 32));
}

/* Radius of Box and Muller: sqrt(-2 ln u), u = (w + 1/2) / 2^32. ln u = e ln 2 + 2 atanh((m - 1) / (m + 1)) for u = m
 * 2^e with m in [sqrt(1/2), sqrt 2). */
ISA_BODY double radius(uint32_t w)
{
    const double u = ((double)w + 0.5) * 0x1p-32;
    uint64_t     bits;
    double       m;

    memcpy(&bits, &u, sizeof(bits));
    const uint64_t shifted = bits - 0x3FE6A09E667F3BCDu; /* the bits of sqrt(1/2) */
    const double   e       = (double)(int32_t)(uint32_t)((shifted >> 52) | (shifted >> 63 ? 0xFFFFF000u : 0));

    bits -= shifted & 0xFFF0000000000000u;
    memcpy(&m, &bits, sizeof(m));
    const double s = (m - 1) / (m + 1), q = s * s;
    double       p = 1.0 / 15;

    p = p * q + 1.0 / 13;
    p = p * q + 1.0 / 11;
    p = p * q + 1.0 / 9;
    p = p * q + 1.0 / 7;
    p = p * q + 1.0 / 5;
    p = p * q + 1.0 / 3;
    p = p * q + 1;
    return sqrt(-2 * (e * 0.693147180559945309 + 2 * s * p));
}

/* Cosine and sine of 2 pi w / 2^32: Taylor's series within an eighth of a turn, then quarter turns. */
ISA_BODY void turn(double *cosine, double *sine, uint32_t w)
{
    const uint32_t quarter = (w + 0x20000000u) >> 30;
    const double   x = (double)(int32_t)(w - (quarter << 30)) * (6.283185307179586477 * 0x1p-32), q = x * x;
    double         c = 1.0 / 479001600, s = -1.0 / 39916800;

    c              = c * q - 1.0 / 3628800;
    c              = c * q + 1.0 / 40320;
    c              = c * q - 1.0 / 720;
    c              = c * q + 1.0 / 24;
    c              = c * q - 0.5;
    c              = c * q + 1;
    s              = s * q + 1.0 / 362880;
    s              = s * q - 1.0 / 5040;
    s              = s * q + 1.0 / 120;
    s              = s * q - 1.0 / 6;
    s              = (s * q + 1) * x;
    const double a = quarter & 1 ? s : c, b = quarter & 1 ? c : s;

    *cosine = (quarter + 1) & 2 ? -a : a;
    *sine   = quarter & 2 ? -b : b;
}

ISA_BODY void bits_body(uint32_t *out, hkt_random_t r, uint64_t block)
{
    struct tile t;

    draw(&t, r, block);
    for (int l = 0; l < LANES; l++)
        for (int w = 0; w < 4; w++)
            out[4 * l + w] = t.word[w][l];
}

/* Words 0 and 1 of a block make its normals 0 and 1, words 2 and 3 the others. */
ISA_BODY void normal_body(float *out, hkt_random_t r, uint64_t block, double deviation)
{
    struct tile t;
    float       normal[4][LANES];

    draw(&t, r, block);
    for (int pair = 0; pair < 4; pair += 2)
        for (int l = 0; l < LANES; l++) {
            const double length = deviation * radius(t.word[pair][l]);
            double       cosine, sine;

            turn(&cosine, &sine, t.word[pair + 1][l]);
            normal[pair][l]     = (float)(length * cosine);
            normal[pair + 1][l] = (float)(length * sine);
        }
    for (int l = 0; l < LANES; l++)
        for (int w = 0; w < 4; w++)
            out[4 * l + w] = normal[w][l];
}

struct kernels {
    void (*bits)(uint32_t *out, hkt_random_t r, uint64_t block);
    void (*normal)(float *out, hkt_random_t r, uint64_t block, double deviation);
};

#define KERNELS(isa, target)                                                                                           \
    target static void bits_##isa(uint32_t *out, hkt_random_t r, uint64_t block)                                       \
    {                                                                                                                  \
        bits_body(out, r, block);                                                                                      \
    }                                                                                                                  \
    target static void normal_##isa(float *out, hkt_random_t r, uint64_t block, double deviation)                      \
    {                                                                                                                  \
        normal_body(out, r, block, deviation);                                                                         \
    }                                                                                                                  \
    static const struct kernels kernels_##isa = {bits_##isa, normal_##isa};

KERNELS(portable, )
KERNELS(avx2, ISA_TARGET_AVX2)
KERNELS(avx512, ISA_TARGET_AVX512)

static const struct kernels *usable(void)
{
    static const struct kernels *const table[ISAS] = {&kernels_portable, &kernels_avx2, &kernels_avx512};

    return table[isa_usable()];
}

void hkt_random_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    struct tile t = {{{0}}};

    for (int w = 0; w < 4; w++)
        t.word[w][0] = counter[w];
    rounds(&t, key[0], key[1]);
    for (int w = 0; w < 4; w++)
        out[w] = t.word[w][0];
}

static uint32_t low(uint64_t x)
{
    return (uint32_t)x;
}

hkt_random_t hkt_random_at(uint64_t seed, uint64_t step, uint32_t micro_batch, uint32_t layer, uint32_t operation)
{
    const uint32_t counter[4] = {low(step), low(step >> 32) ^ operation << 16, micro_batch, layer};
    const uint32_t key[2]     = {low(seed), low(seed >> 32)};
    uint32_t       out[4];

    hkt_random_philox(out, counter, key);
    return (hkt_random_t){seed, (uint64_t)out[1] << 32 | out[0]};
}

hkt_random_t hkt_random_named(uint64_t seed, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return (hkt_random_t){seed, hash};
}

uint32_t hkt_random_bits(hkt_random_t r, uint64_t index)
{
    const uint32_t counter[4] = {low(index / 4), low(index / 4 >> 32), low(r.stream), low(r.stream >> 32)};
    const uint32_t key[2]     = {low(r.seed), low(r.seed >> 32)};
    uint32_t       out[4];

    hkt_random_philox(out, counter, key);
    return out[index % 4];
}

/* 24 bits, so that the largest is below 1 in fp32. */
static inline float uniform(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

float hkt_random_uniform(hkt_random_t r, uint64_t index)
{
    return uniform(hkt_random_bits(r, index));
}

/* Where a range of `count` elements from `first` lies in the tiles that cover it. */
struct cut {
    size_t skip, take; /* elements of the first tile: left out, taken */
};

static struct cut cut_of(uint64_t first, size_t count)
{
    const size_t skip = (size_t)(first % 4), room = TILE - skip;

    return (struct cut){skip, count < room ? count : room};
}

void hkt_random_fill_bits(uint32_t *out, hkt_random_t r, uint64_t first, size_t count)
{
    const struct kernels *k = usable();
    uint32_t              part[TILE];

    while (count > 0) {
        const struct cut c = cut_of(first, count);

        k->bits(c.take == TILE ? out : part, r, first / 4);
        if (c.take < TILE)
            memcpy(out, part + c.skip, c.take * sizeof(*out));
        out += c.take;
        first += c.take;
        count -= c.take;
    }
}

void hkt_random_fill_uniform(float *out, hkt_random_t r, uint64_t first, size_t count)
{
    const struct kernels *k = usable();
    uint32_t              part[TILE];

    while (count > 0) {
        const struct cut c = cut_of(first, count);

        k->bits(part, r, first / 4);
        for (size_t i = 0; i < c.take; i++)
            out[i] = uniform(part[c.skip + i]);
        out += c.take;
        first += c.take;
        count -= c.take;
    }
}

void hkt_random_fill_normal(float *out, hkt_random_t r, uint64_t first, size_t count, double deviation)
{
    const struct kernels *k = usable();
    float                 part[TILE];

    while (count > 0) {
        const struct cut c = cut_of(first, count);

        k->normal(c.take == TILE ? out : part, r, first / 4, deviation);
        if (c.take < TILE)
            memcpy(out, part + c.skip, c.take * sizeof(*out));
        out += c.take;
        first += c.take;
        count -= c.take;
    }
}

/* A Feistel network over the next power of four shuffles that range; places outside are sent round again until one is
 * inside. */
uint64_t hkt_random_shuffle(hkt_random_t r, uint64_t index, uint64_t size)
{
    int half = 1;

    while (half < 32 && size > (uint64_t)1 << 2 * half)
        half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;

    do {
        uint64_t left = index >> half, right = index & mask;

        for (uint64_t round = 0; round < 6; round++) {
            const uint64_t mixed = left ^ (hkt_random_bits(r, right << 3 | round) & mask);

            left  = right;
            right = mixed;
        }
        index = left << half | right;
    } while (index >= size);
    return index;
}
