/* bucket_result.c -- what can be asked of hkt_buckets_t after a step: gradients, and how the buckets did. */
#include <parallel/bucket.h>

static int finished(const hkt_buckets_t *b, const char *call)
{
    if (b && b->finished)
        return HKT_OK;
    return hkt_error_set(b ? HKT_ERR_USAGE : HKT_ERR_ARGUMENT, "%s: %s", call,
                         b ? "only after hkt_buckets_finish() and before the next begin" : "the handle is NULL");
}

int hkt_buckets_by_tokens(uint64_t *total, hkt_buckets_t *b, uint64_t tokens)
{
    uint64_t sum = tokens;

    TRY(finished(b, "hkt_buckets_by_tokens"));
    if (b->ranks > 1)
        TRY(hkt_all_reduce(&tokens, &sum, 1, HKT_UINT64, HKT_SUM, b->comm, NULL));
    for (int k = 0; sum && k < b->flat.buckets; k++)
        hkt_float_scale(hkt_bucket_result(b, k), b->config.type, (float)(1.0 / (double)sum),
                        b->flat.cut[k].count / (size_t)(b->config.sharded ? b->ranks : 1));
    if (total)
        *total = sum;
    return HKT_OK;
}

int hkt_buckets_reduced(hkt_reduced_t *reduced, int parameter, hkt_buckets_t *b)
{
    TRY(finished(b, "hkt_buckets_reduced"));
    if (!reduced || parameter < 0 || parameter >= b->flat.parameters)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_buckets_reduced: parameter %d of %d", parameter,
                             b->flat.parameters);
    const int    bucket = b->flat.bucket[parameter];
    const size_t count  = b->flat.cut[bucket].count / (size_t)(b->config.sharded ? b->ranks : 1);
    const size_t from   = b->config.sharded ? hkt_flat_shard(&b->flat, bucket, b->rank) : b->flat.cut[bucket].first;

    const struct hkt_flat_piece piece  = hkt_flat_within(&b->flat, parameter, from, from + count);
    char                       *values = hkt_bucket_result(b, bucket);
    *reduced = (hkt_reduced_t){piece.count ? values + (piece.at - from) * b->size : NULL, piece.first, piece.count};
    return HKT_OK;
}

int hkt_buckets_count(const hkt_buckets_t *buckets)
{
    return buckets ? buckets->flat.buckets : 0;
}

int hkt_buckets_info(hkt_bucket_info_t *info, int bucket, hkt_buckets_t *b)
{
    if (!info || !b || bucket < 0 || bucket >= b->flat.buckets)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_buckets_info: bucket %d of %d", bucket, b ? b->flat.buckets : 0);
    const struct hkt_flat_bucket *cut = &b->flat.cut[bucket];
    const struct hkt_bucket      *k   = &b->bucket[bucket];
    *info = (hkt_bucket_info_t){cut->first, cut->count, cut->parameters, k->launched, k->started, k->finished};
    return HKT_OK;
}

int hkt_buckets_parameter(int *parameter, int position, hkt_buckets_t *b)
{
    if (!parameter || !b || position < 0 || position >= b->flat.parameters)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_buckets_parameter: position %d of %d", position,
                             b ? b->flat.parameters : 0);
    *parameter = b->flat.order[position];
    return HKT_OK;
}

int hkt_buckets_overlap(hkt_overlap_t *overlap, const hkt_buckets_t *b)
{
    if (!overlap || !b)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_buckets_overlap: overlap or the handle is NULL");
    *overlap = b->overlap;
    return HKT_OK;
}
