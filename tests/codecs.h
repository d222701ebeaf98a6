/* codecs.h -- numbers and small checks that the suites of the codecs share. */
#ifndef TEST_CODECS_H
#define TEST_CODECS_H

#include "harness.h"

#include <hocket_train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Uniform in [-1, 1): a function of seed and index, so that every rank knows the others'. */
static inline float noise(uint64_t seed, size_t i)
{
    return (float)((double)(mix(mix(seed) + i) >> 11) * 0x1p-52 - 1);
}

static inline uint64_t seed_of(uint64_t step, int rank)
{
    return step * 64 + (uint64_t)rank;
}

static inline void fill_noise(float *x, uint64_t seed, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = noise(seed, i);
}

/* Normal numbers in layers of 5000, every second one a thousand times smaller: as gradients are. */
static inline float gradient_like(uint64_t seed, size_t i)
{
    const double u = (double)(mix(seed * 0x9E3779B97F4A7C15u + i) >> 11) * 0x1p-53,
                 v = (double)(mix(~seed + 3 * i) >> 11) * 0x1p-53;

    return (float)(sqrt(-2 * log(u + 1e-18)) * cos(6.283185307179586 * v)) * (i / 5000 % 2 ? 1e-3f : 1);
}

static inline void fill_gradient(float *x, uint64_t seed, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = gradient_like(seed, i);
}

static inline float float_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint32_t bits_of_float(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float *floats(size_t count)
{
    float *x = calloc(count + 1, sizeof(*x));

    expect_true(x);
    return x;
}

static inline bool same(const float *a, const float *b, size_t count)
{
    return !memcmp(a, b, count * sizeof(float));
}

/* All ranks must have the same bytes. */
static inline void same_everywhere(struct rank *me, const float *x, size_t count, const char *what)
{
    float *first = floats(count);

    memcpy(first, x, count * sizeof(float));
    expect_ok(hkt_broadcast(first, first, count, HKT_FLOAT32, 0, me->comm, NULL));
    expect(same(first, x, count), "%s: rank %d has other bits than rank 0", what, me->rank);
    free(first);
}

static inline hkt_compressor_t *made_of(struct rank *me, const char *codec, size_t count, int feedback)
{
    hkt_compressor_config_t config = HKT_COMPRESSOR_CONFIG_INIT;
    hkt_compressor_t       *c;

    config.codec    = codec;
    config.seed     = 42;
    config.feedback = feedback;
    expect_ok(hkt_compressor_create(&c, count, &config, me->comm, NULL));
    return c;
}

#endif
