/* random.h -- numbers that depend on where they are used, not on who draws them. A part of hocket_train.h, whose conventions hold. */
#ifndef HOCKET_TRAIN_RANDOM_H
#define HOCKET_TRAIN_RANDOM_H

#include <hocket.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers that are a function of a stream and an index and of nothing else (Philox 4x32-10, Salmon et al. 2011): a layout, a
 * number of ranks, a recomputation or a resumed run never changes what is drawn, and there is no state to save. The index is
 * that of the element in the *whole* tensor; a rank that holds a part draws the indices of its part. Any thread. */
typedef struct { uint64_t seed, stream; } hkt_random_t;

/* The stream of one use: distinct for distinct coordinates. step < 2^48, operation < 2^16. */
HKT_API hkt_random_t hkt_random_at(uint64_t seed, uint64_t step, uint32_t micro_batch, uint32_t layer, uint32_t operation);
/* The stream of a name, for initial weights: the name of the tensor. */
HKT_API hkt_random_t hkt_random_named(uint64_t seed, const char *name);

HKT_API uint32_t hkt_random_bits(hkt_random_t random, uint64_t index);    /* 32 even bits */
HKT_API float    hkt_random_uniform(hkt_random_t random, uint64_t index); /* in [0, 1): the upper 24 bits / 2^24 */

/* out[i] = number at index first + i, the same bits as one by one and on every processor. Fast where first and count are
 * multiples of 4. Normals have mean 0 and the standard deviation given (Box and Muller). */
HKT_API void hkt_random_fill_bits(uint32_t *out, hkt_random_t random, uint64_t first, size_t count);
HKT_API void hkt_random_fill_uniform(float *out, hkt_random_t random, uint64_t first, size_t count);
HKT_API void hkt_random_fill_normal(float *out, hkt_random_t random, uint64_t first, size_t count, double deviation);

/* The place of `index` in a shuffle of 0 .. size - 1 that the stream chooses, without a table. index < size. */
HKT_API uint64_t hkt_random_shuffle(hkt_random_t random, uint64_t index, uint64_t size);

/* The function under all of this: ten rounds on a counter and a key. */
HKT_API void hkt_random_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_RANDOM_H */
