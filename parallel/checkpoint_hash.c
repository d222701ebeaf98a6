/* checkpoint_hash.c -- XXH64, after its public specification (Collet): fast enough that a checksum costs less than the
 * disk, and anybody's xxhsum can check it. One call for data that lies together is all that checkpoints need.
 */
#include "parallel/common.h"

#include <string.h>

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t load64(const unsigned char *at)
{
    uint64_t x;

    memcpy(&x, at, sizeof(x));
    return x;
}

static uint64_t round_of(uint64_t lane, uint64_t input)
{
    return rotate(lane + input * P2, 31) * P1;
}

static uint64_t merge(uint64_t hash, uint64_t lane)
{
    return (hash ^ round_of(0, lane)) * P1 + P4;
}

/* The stripes of 32 bytes; moves *at behind them. */
static uint64_t stripes(const unsigned char **at, const unsigned char *end, uint64_t seed)
{
    uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;

    for (; end - *at >= 32; *at += 32) {
        a = round_of(a, load64(*at));
        b = round_of(b, load64(*at + 8));
        c = round_of(c, load64(*at + 16));
        d = round_of(d, load64(*at + 24));
    }

    const uint64_t hash = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);

    return merge(merge(merge(merge(hash, a), b), c), d);
}

uint64_t hkt_checksum(const void *data, size_t size, uint64_t seed)
{
    const unsigned char *at = data, *end = size ? at + size : at;
    uint64_t             hash = size >= 32 ? stripes(&at, end, seed) : seed + P5;

    hash += size;
    for (; end - at >= 8; at += 8)
        hash = rotate(hash ^ round_of(0, load64(at)), 27) * P1 + P4;
    if (end - at >= 4) {
        uint32_t x;

        memcpy(&x, at, sizeof(x));
        hash = rotate(hash ^ x * P1, 23) * P2 + P3;
        at += 4;
    }
    for (; at < end; at++)
        hash = rotate(hash ^ *at * P5, 11) * P1;
    hash = (hash ^ hash >> 33) * P2;
    hash = (hash ^ hash >> 29) * P3;
    return hash ^ hash >> 32;
}
