/* random.h -- numbers that are a function of (seed, stream, index) and of nothing else, so that a layout, a rank count
 * or the order of calls never changes what is drawn.
 */
#ifndef TRAINER_RANDOM_H
#define TRAINER_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* A stream names what the numbers are for: weights use the hash of their tensor's name. */
uint64_t random_stream(const char *name);

/* 64 even bits. */
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index);

/* Even in [0, 1). */
double random_even(uint64_t seed, uint64_t stream, uint64_t index);

/* out[i] = deviation * normal(index first + i). */
struct random_source {
    uint64_t seed, stream, first;
    double   deviation;
};
void random_normal(const struct random_source *source, float *out, size_t count);

/* The place of `index` in a shuffle of 0 .. size - 1 that (seed, stream) chooses; no table. size > 0, index < size. */
uint64_t random_shuffle(uint64_t seed, uint64_t stream, uint64_t index, uint64_t size);

#endif
