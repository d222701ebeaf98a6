/* random.c -- the counter-based generator Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: Parallel random
 * numbers: as easy as 1, 2, 3; 2011), and what the trainer draws from it.
 */
#include "random.h"

#include <math.h>

struct block {
    uint32_t word[4];
};

static struct block philox(uint64_t seed, uint64_t stream, uint64_t index)
{
    struct block c    = {{(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
    uint32_t     key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);

    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c.word[0], b = (uint64_t)0xCD9E8D57u * c.word[2];

        c = (struct block){
            {(uint32_t)(b >> 32) ^ c.word[1] ^ key0, (uint32_t)b, (uint32_t)(a >> 32) ^ c.word[3] ^ key1, (uint32_t)a}};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c;
}

uint64_t random_stream(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index)
{
    const struct block b = philox(seed, stream, index);

    return (uint64_t)b.word[1] << 32 | b.word[0];
}

double random_even(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(random_bits(seed, stream, index) >> 11) * 0x1p-53;
}

void random_normal(const struct random_source *source, float *out, size_t count)
{
    const double turn = 6.283185307179586, unit = 0x1p-32;
    double       normal[4] = {0}; /* one block of four words makes four normals, by Box and Muller */

    for (size_t i = 0; i < count; i++) {
        const uint64_t index = source->first + i;

        if (i == 0 || index % 4 == 0) {
            const struct block b = philox(source->seed, source->stream, index / 4);

            for (int pair = 0; pair < 4; pair += 2) {
                const double radius = sqrt(-2 * log((b.word[pair] + 0.5) * unit)),
                             angle  = turn * b.word[pair + 1] * unit;

                normal[pair]     = radius * cos(angle);
                normal[pair + 1] = radius * sin(angle);
            }
        }
        out[i] = (float)(source->deviation * normal[index % 4]);
    }
}

/* A Feistel network over the next even power of two shuffles that range; places outside are sent round again until one
 * is inside. */
uint64_t random_shuffle(uint64_t seed, uint64_t stream, uint64_t index, uint64_t size)
{
    int half = 1;

    while (half < 31 && size > (uint64_t)1 << 2 * half)
        half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;

    do {
        uint64_t left = index >> half, right = index & mask;

        for (uint64_t round = 0; round < 4; round++) {
            const uint64_t mixed = left ^ (random_bits(seed, stream, right << 2 | round) & mask);

            left  = right;
            right = mixed;
        }
        index = left << half | right;
    } while (index >= size);
    return index;
}
