/* samples.h -- from documents to what a step trains on: epochs, shuffles, windows of tokens, blends of several data
 * sets, samplers, batch ramp-up, packing. The rules are Megatron-LM's, everything counted in 64 bits; the shuffles come
 * from a generator of their own (below), so orders differ from Megatron's, but never from one machine or layout to
 * another.
 *
 * Functions return 0 or a negative HKT_ERR_* with the sentence in hkt_last_error(), unless they say otherwise.
 */
#ifndef TRAINER_SAMPLES_H
#define TRAINER_SAMPLES_H

#include "indexed.h"

#include <hocket_train.h>

/* ---- which documents */

/* Cuts `documents` by a split as "969,30,1" (training, validation, test; missing ones are 0): part p gets documents
 * bound[p] to bound[p + 1] - 1. */
int split_bounds(size_t bound[4], const char *split, size_t documents);

/* ---- a data set of windows */

/* A sample is length + 1 tokens: the first `length` are read, the last `length` predicted; it begins with the token
 * that the one before ended with. The order: documents times the epochs that are needed, shuffled; cut into windows;
 * windows shuffled. An epoch of which less than 80 % is used is shuffled apart, behind the others. */
struct samples_description {
    size_t      first, last; /* documents (sequences of the file) [first, last) */
    size_t      length;      /* tokens that a sample predicts */
    uint64_t    wanted;      /* samples; 0: those of one epoch */
    uint64_t    seed;
    const char *cache;        /* folder for the index; NULL: kept in memory */
    bool        keep_partial; /* the last tokens, too few for a window, make one that is padded */
};

struct samples;

/* With a cache the index is one file, named by a hash of all that it depends on: made once, under a lock, renamed when
 * it is complete, with a checksum; others of the host wait for it. With a communicator all ranks must have the same
 * index, else HKT_ERR_MISMATCH; each may have a cache folder of its own. `indexed` must outlive it. */
int samples_open(struct samples **samples, const struct indexed *indexed, const struct samples_description *description,
                 hkt_comm_t *comm);
void samples_close(struct samples *samples); /* NULL is allowed */

uint64_t samples_count(const struct samples *samples); /* >= wanted */
uint64_t samples_epochs(const struct samples *samples);
uint64_t samples_checksum(const struct samples *samples);

/* Sample `index` (< count): length + 1 tokens. Where the data ends before (keep_partial) `pad` stands. O(1) and any
 * thread. */
void samples_get(int32_t *tokens, const struct samples *samples, uint64_t index, int32_t pad);

/* ---- blends */

/* Which data set sample i of a blend comes from and its number there, so that after every sample the counts are as near
 * to the weights as can be: the set with the greatest weight * max(i, 1) - count, the first of equals. Weights are
 * normalised. */
int blend_make(int16_t *set, uint64_t *number, uint64_t samples, const double *weights, size_t sets);
/* Samples that set `d` must have for a blend of `samples`: half a percent more than its share. */
uint64_t blend_wanted(double weight, uint64_t samples);

/* ---- which samples are in a step */

/* Batch size as a function of the samples consumed so far: from `start` in steps of `increment` to `global`, over
 * `ramp` samples. start == global or ramp 0: constant. */
struct ramp {
    uint64_t start, increment, global, ramp;
};
uint64_t ramp_batch(const struct ramp *ramp, uint64_t consumed);
/* Refuses a ramp of which some batch is no multiple of micro * ranks, saying which and what would be valid. */
int ramp_check(const struct ramp *ramp, uint64_t micro, uint64_t ranks);

/* The sample that a rank has as number b of micro-batch m, after `consumed` samples: the step's samples are
 * consecutive, and each slice of micro * ranks is dealt in runs of micro. So the set of a step depends on the batch
 * size only, not on ranks or micro. */
struct sampler {
    uint64_t micro, ranks, rank; /* samples a micro-batch; data-parallel ranks; which one this is */
};
uint64_t sampler_index(const struct sampler *sampler, uint64_t consumed, uint64_t m, uint64_t b);

/* ---- packing */

/* For one sample of `length` read tokens (and one more): documents end with `eod`. Any output may be NULL.
 *   position[i]  i; with reset: since the last document's end
 *   begin[i]     the first token that i may attend to; without reset 0
 *   weight[i]    1 where the prediction counts: not where pad stands, in or out, nor, with mask_eod, where eod is read
 * eod belongs to the document that it ends. Returns the sum of the weights. */
struct packing {
    int32_t eod, pad;
    bool    reset_position, reset_attention, mask_eod;
};
struct masks {
    int32_t *position, *begin;
    float   *weight;
};
size_t pack_masks(const struct masks *masks, const int32_t *tokens, size_t length, const struct packing *packing);

/* ---- the generator: splitmix64, and Fisher and Yates from the end with floor(random * n / 2^64) */
void shuffle(int64_t *numbers, uint64_t count, uint64_t seed);

#endif
