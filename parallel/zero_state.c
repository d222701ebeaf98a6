/* zero_state.c -- the optimizer's state in the coordinates of parameters, for those who save it and load it.
 *
 * A rank saves its n-th of every bucket, in stage 0 too, so each element is saved once by the group. What is loaded
 * goes where a rank holds it; hkt_zero_loaded() then makes weights from masters and hands them to those who need them.
 */
#include <parallel/zero.h>

#include <string.h>

static float *state_of(const hkt_zero_t *z, hkt_zero_kind_t kind, int bucket)
{
    return z->offload && z->config.tier == HKT_TIER_FILE ? NULL : hkt_zero_own_state(z, kind, bucket);
}

/* The array of the offloaded state that has this kind. */
static int array_of(const hkt_zero_t *z, hkt_zero_kind_t kind)
{
    return (int)kind - !z->apart;
}

static int check(const hkt_zero_t *z, int parameter, hkt_zero_kind_t kind, size_t first, size_t count)
{
    if (!z || parameter < 0 || parameter >= z->flat->parameters || (unsigned)kind >= HKT_ZERO_KINDS)
        return hkt_error_set(HKT_ERR_ARGUMENT, "optimizer state of kind %d of parameter %d of %d", (int)kind, parameter,
                             z ? z->flat->parameters : 0);
    const size_t size = z->flat->size[parameter];
    if (first > size || count > size - first)
        return hkt_error_set(HKT_ERR_ARGUMENT, "elements %zu to %zu of \"%s\", which has %zu", first, first + count,
                             z->buckets->parameters[parameter].name, size);
    return HKT_OK;
}

/* What this rank holds of [first, first + count) of a parameter: elements at `own` of the own space. */
struct held {
    size_t first, count, own;
};

static struct held held_of(const hkt_zero_t *z, int parameter, size_t first, size_t count)
{
    const int    bucket = z->flat->bucket[parameter];
    const size_t begin = z->flat->at[parameter] + first, end = begin + count;
    const size_t from = hkt_zero_own_flat(z, bucket), to = from + hkt_zero_own_count(z, bucket);
    const size_t a = begin > from ? begin : from, b = end < to ? end : to;

    if (a >= b || z->flat->cut[bucket].same >= 0)
        return (struct held){first, 0, 0};
    return (struct held){a - z->flat->at[parameter], b - a, hkt_zero_own_first(z, bucket) + (a - from)};
}

/* Weights of a tile from its masters. */
static int weights_of_tile(void *arg, const struct hkt_tile *tile, float *const *memory)
{
    hkt_zero_t  *z      = arg;
    const size_t inside = tile->first - hkt_zero_own_first(z, tile->bucket);

    hkt_float_narrow((char *)hkt_zero_own_weight(z, tile->bucket) + inside * z->wsize, z->config.weight, memory[0],
                     tile->count);
    return HKT_OK;
}

int hkt_zero_make_weights(hkt_zero_t *z)
{
    const struct hkt_pass pass = {.tiles = z->tiles, .count = z->n_tiles, .work = weights_of_tile, .arg = z};

    if (!z->apart)
        return HKT_OK;
    if (z->offload)
        return hkt_offload_pass(z->offload, &pass);
    for (int t = 0; t < z->n_tiles; t++) {
        const struct hkt_tile *tile = &z->tiles[t];
        float                 *master =
            hkt_zero_own_state(z, HKT_ZERO_MASTER, tile->bucket) + (tile->first - hkt_zero_own_first(z, tile->bucket));
        TRY(weights_of_tile(z, tile, &master));
    }
    return HKT_OK;
}

/* Stage 0: everybody gets from the owner of each n-th what only that rank may have loaded. */
static int share(hkt_zero_t *z)
{
    const size_t n = (size_t)z->ranks;

    for (int k = 0; k < z->flat->buckets; k++)
        for (int kind = 0; kind < HKT_ZERO_KINDS && z->flat->cut[k].same < 0; kind++) {
            float       *state = state_of(z, (hkt_zero_kind_t)kind, k);
            const size_t piece = z->flat->cut[k].count / n;
            if (state)
                TRY(hkt_all_gather(state + piece * (size_t)z->rank, state, piece, HKT_FLOAT32, z->comm, NULL));
        }
    return HKT_OK;
}

int hkt_zero_piece(hkt_zero_piece_t *piece, int index, hkt_zero_t *z)
{
    if (!piece || !z || index < 0)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_zero_piece: piece %d", index);
    for (int i = 0, left = index; i < z->flat->parameters; i++) {
        const int                   k    = z->flat->bucket[i];
        const size_t                from = hkt_flat_shard(z->flat, k, z->rank);
        const struct hkt_flat_piece p =
            hkt_flat_within(z->flat, i, from, from + z->flat->cut[k].count / (size_t)z->ranks);
        if (!p.count || z->flat->cut[k].same >= 0 || left--)
            continue;
        *piece = (hkt_zero_piece_t){i, p.first, p.count, {NULL, NULL, NULL}};
        for (int kind = 0; kind < HKT_ZERO_KINDS; kind++) {
            float *state      = state_of(z, (hkt_zero_kind_t)kind, k);
            piece->data[kind] = state ? state + (p.at - hkt_zero_own_flat(z, k)) : NULL;
        }
        return HKT_OK;
    }
    return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_zero_piece: there is no piece %d", index);
}

int hkt_zero_get(float *values, int parameter, hkt_zero_kind_t kind, size_t first, size_t count, hkt_zero_t *z)
{
    TRY(check(z, parameter, kind, first, count));
    const struct held h = held_of(z, parameter, first, count);
    const int         k = z->flat->bucket[parameter];
    if (h.count < count)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_zero_get: of elements %zu to %zu of \"%s\" this rank holds %zu",
                             first, first + count, z->buckets->parameters[parameter].name, h.count);
    const float *state = state_of(z, kind, k);
    if (!state && count)
        return hkt_offload_get(values, array_of(z, kind), h.own, count, z->offload);
    if (count)
        memcpy(values, state + (h.own - hkt_zero_own_first(z, k)), count * sizeof *values);
    return HKT_OK;
}

int hkt_zero_put(hkt_zero_t *z, int parameter, hkt_zero_kind_t kind, size_t first, size_t count, const float *values)
{
    TRY(check(z, parameter, kind, first, count));
    const struct held h = held_of(z, parameter, first, count);
    const int         k = z->flat->bucket[parameter];
    if (!h.count)
        return HKT_OK;
    float       *state = state_of(z, kind, k);
    const float *from  = values + (h.first - first);
    if (!state)
        return hkt_offload_put(z->offload, array_of(z, kind), h.own, h.count, from);
    memcpy(state + (h.own - hkt_zero_own_first(z, k)), from, h.count * sizeof *values);
    return HKT_OK;
}

int hkt_zero_persist(hkt_zero_t *z)
{
    if (!z)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_zero_persist: the handle is NULL");
    if (z->buckets->open)
        return hkt_error_set(HKT_ERR_USAGE, "hkt_zero_persist: a step is under way; end it first");
    return z->offload ? hkt_offload_force(z->offload) : HKT_OK;
}

int hkt_zero_loaded(hkt_zero_t *z)
{
    if (!z)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_zero_loaded: the handle is NULL");
    TRY(hkt_zero_forget(z));
    z->frozen = false;
    if (z->config.stage == 0 && z->ranks > 1)
        TRY(share(z));
    if (z->offload)
        TRY(hkt_offload_settle(z->offload, z->steps));
    TRY(hkt_zero_make_weights(z));
    if (z->config.stage == 0 || z->part || z->ranks == 1)
        return HKT_OK;
    for (int k = 0; k < z->flat->buckets; k++)
        if (z->flat->cut[k].same < 0)
            TRY(hkt_zero_gather(z, k));
    return hkt_zero_synchronize(z);
}
