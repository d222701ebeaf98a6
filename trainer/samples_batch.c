/* samples_batch.c -- splits, blends, ramps, samplers and masks, see samples.h: small pure functions. */
#include "samples.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int split_bounds(size_t bound[4], const char *split, size_t documents)
{
    double      part[3] = {0}, sum = 0, before = 0;
    const char *at = split;
    char       *end;

    for (int p = 0; p < 3 && *at; p++, at = *end ? end + 1 : end) {
        part[p] = strtod(at, &end);
        if (end == at || !(part[p] >= 0 && part[p] < 1e18) || (*end && (*end != ',' || !end[1] || p == 2)))
            return hkt_error_set(HKT_ERR_ARGUMENT, "the split '%s' is not up to three numbers with commas, as 969,30,1",
                                 split);
        sum += part[p];
    }
    if (!(sum > 0))
        return hkt_error_set(HKT_ERR_ARGUMENT, "the split '%s' leaves nothing", split);
    bound[0] = 0;
    for (int p = 0; p < 3; p++) {
        before += part[p] / sum;
        bound[p + 1] = (size_t)rint(before * (double)documents); /* to even, as Python's round() */
    }
    bound[3] = bound[3] > documents ? documents : bound[3];
    return HKT_OK;
}

int blend_make(int16_t *set, uint64_t *number, uint64_t samples, const double *weights, size_t sets)
{
    uint64_t *count = calloc(sets + 1, sizeof(*count));
    double    sum   = 0;

    for (size_t d = 0; d < sets; d++) {
        if (!(weights[d] >= 0 && weights[d] < HUGE_VAL))
            sum = NAN;
        sum += weights[d];
    }
    if (!count || sets == 0 || sets > INT16_MAX || !(sum > 0)) {
        free(count);
        return hkt_error_set(
            count || sets == 0 ? HKT_ERR_ARGUMENT : HKT_ERR_MEMORY,
            "a blend of %zu data sets: it takes 1 to %d, with weights that are not negative and not all 0", sets,
            INT16_MAX);
    }
    for (uint64_t i = 0; i < samples; i++) {
        const double so_far   = (double)(i ? i : 1);
        double       greatest = -HUGE_VAL;
        size_t       chosen   = 0;

        for (size_t d = 0; d < sets; d++) {
            const double behind = weights[d] / sum * so_far - (double)count[d];

            if (behind > greatest) {
                greatest = behind;
                chosen   = d;
            }
        }
        set[i]    = (int16_t)chosen;
        number[i] = count[chosen]++;
    }
    free(count);
    return HKT_OK;
}

uint64_t blend_wanted(double weight, uint64_t samples)
{
    return (uint64_t)ceil(ceil(weight * (double)samples) * 1.005);
}

static uint64_t ramp_steps(const struct ramp *ramp)
{
    return ramp->increment && ramp->ramp && ramp->start < ramp->global ? (ramp->global - ramp->start) / ramp->increment
                                                                       : 0;
}

uint64_t ramp_batch(const struct ramp *ramp, uint64_t consumed)
{
    const uint64_t steps = ramp_steps(ramp);

    if (steps == 0 || consumed >= ramp->ramp)
        return ramp->global;
    return ramp->start + (uint64_t)((unsigned __int128)consumed * steps / ramp->ramp) * ramp->increment;
}

int ramp_check(const struct ramp *ramp, uint64_t micro, uint64_t ranks)
{
    const uint64_t unit = micro * ranks, steps = ramp_steps(ramp);

    if (micro == 0 || ranks == 0 || ramp->global == 0 || unit / ranks != micro)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "micro-batch, ranks and global batch are %" PRIu64 ", %" PRIu64 " and %" PRIu64
                             "; none may be 0",
                             micro, ranks, ramp->global);
    if (ramp->ramp &&
        (ramp->start == 0 || ramp->start > ramp->global || (ramp->start < ramp->global && ramp->increment == 0)))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "a ramp from %" PRIu64 " in steps of %" PRIu64 " does not reach the global batch %" PRIu64,
                             ramp->start, ramp->increment, ramp->global);
    if (steps && (ramp->global - ramp->start) % ramp->increment)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "a ramp from %" PRIu64 " to %" PRIu64 " is no whole number of steps of %" PRIu64
                             "; steps of %" PRIu64 " would be",
                             ramp->start, ramp->global, ramp->increment, unit);
    for (uint64_t k = 0; k <= steps; k++) {
        const uint64_t batch = ramp->global - k * (steps ? ramp->increment : 0);

        if (batch % unit)
            return hkt_error_set(HKT_ERR_ARGUMENT,
                                 "a batch of %" PRIu64 " is no multiple of micro-batch %" PRIu64 " times %" PRIu64
                                 " data-parallel ranks; %" PRIu64 " and %" PRIu64 " would be",
                                 batch, micro, ranks, batch / unit * unit, (batch / unit + 1) * unit);
    }
    return HKT_OK;
}

uint64_t sampler_index(const struct sampler *s, uint64_t consumed, uint64_t m, uint64_t b)
{
    return consumed + (m * s->ranks + s->rank) * s->micro + b;
}

size_t pack_masks(const struct masks *masks, const int32_t *tokens, size_t length, const struct packing *packing)
{
    size_t first = 0, counted = 0; /* first: token of the document at hand */

    for (size_t i = 0; i < length; i++) {
        const bool counts = tokens[i] != packing->pad && tokens[i + 1] != packing->pad &&
                            !(packing->mask_eod && tokens[i] == packing->eod);

        if (masks->position)
            masks->position[i] = (int32_t)(packing->reset_position ? i - first : i);
        if (masks->begin)
            masks->begin[i] = (int32_t)(packing->reset_attention ? first : 0);
        if (masks->weight)
            masks->weight[i] = counts ? 1.0f : 0.0f;
        counted += counts;
        if (tokens[i] == packing->eod)
            first = i + 1;
    }
    return counted;
}
