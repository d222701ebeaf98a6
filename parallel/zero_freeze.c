/* zero_freeze.c -- 1-bit Adam (Tang et al. 2021) for the buckets of hkt_zero_t.
 *
 * A gradient of one bit has no use for Adam's second moment, but that settles early. So for `freeze` steps this is
 * AdamW on whole gradients; from there on the second moment stays, and the codec rounds gradients in units of its root,
 * in which all elements are of one size. What comes out is a gradient again: copies, the norm, clipping and the first
 * moment are as ever, and pipelines, tensor-parallel sums, overlap and checkpoints know nothing of it. onebit_adam.c is
 * the same for a plain vector, with the first moment rounded instead.
 */
#include <parallel/zero.h>

#include <math.h>

int hkt_zero_check_freeze(const hkt_zero_t *z)
{
    const hkt_zero_config_t *c = &z->config;

    if (!c->freeze)
        return HKT_OK;
    if (c->stage > 0 || c->tier != HKT_TIER_DEVICE || z->apart || c->buckets.type != HKT_FLOAT32)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "1-bit Adam is for stage 0 with optimizer state in memory and fp32 weights and gradients: "
                             "every rank needs the second moment of every gradient that it encodes");
    if (!c->buckets.codec)
        return hkt_error_set(HKT_ERR_ARGUMENT, "1-bit Adam needs a codec for the buckets; onebit is usual");
    return HKT_OK;
}

int hkt_zero_freeze(hkt_zero_t *z)
{
    const float *v = z->state[HKT_ZERO_MOMENT2];

    if (!z->config.freeze || z->frozen)
        return HKT_OK;
    if (z->steps < z->config.freeze)
        return hkt_bucket_code(z->buckets, false, NULL);
    for (size_t i = 0; i < z->own; i++)
        z->unit[i] = v[i] > 0 ? 1 / sqrtf(v[i]) : 0;
    z->frozen = true;
    return hkt_bucket_code(z->buckets, true, z->unit);
}
