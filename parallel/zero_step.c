/* zero_step.c -- the end of a step: norm, clipping, AdamW on what this rank owns, and weights for everybody.
 *
 * The update goes tile by tile from the first parameters to the last, the order of the next forward pass; a bucket is
 * gathered as soon as its last tile is done. AdamW treats every element by itself with operations that round in one way
 * only, so tiles, shards and tiers do not show in the bits. */
#include <parallel/zero.h>

#include <math.h>

/* One update, as its tiles see it. */
struct update {
    hkt_zero_t              *zero;
    struct hkt_adamw_numbers numbers[2]; /* [decays] */
    int                      bucket;     /* to be gathered next: they go from the last to the first */
};

/* `count` elements of one parameter. Gradients and weights that are not fp32 go through a block that stays in cache. */
struct run {
    float      *master, *m, *v;
    const char *gradient;
    char       *weight; /* NULL: it is the master */
    size_t      count;
};

static void update_run(const struct update *u, const struct run *r, bool decays)
{
    const hkt_zero_t *z    = u->zero;
    const hkt_type_t  type = z->config.buckets.type;
    float             block[HKT_LOOP_BLOCK];

    if (type == HKT_FLOAT32 && !r->weight) {
        const hkt_adamw_state_t state = {r->master, r->m, r->v, (const float *)(const void *)r->gradient};
        (z->frozen ? hkt_loops()->frozen : hkt_loops()->adamw)(&u->numbers[decays], &state, r->count);
        return;
    }
    for (size_t i = 0; i < r->count; i += HKT_LOOP_BLOCK) {
        const size_t            n     = r->count - i < HKT_LOOP_BLOCK ? r->count - i : HKT_LOOP_BLOCK;
        const hkt_adamw_state_t state = {r->master + i, r->m + i, r->v + i, block};
        hkt_float_widen(block, r->gradient + i * z->buckets->size, type, n);
        hkt_loops()->adamw(&u->numbers[decays], &state, n);
        if (r->weight)
            hkt_float_narrow(r->weight + i * z->wsize, z->config.weight, r->master + i, n);
    }
}

/* state[kind] is where the tile begins. */
static void update_tile(const struct update *u, const struct hkt_tile *tile, float *const *state)
{
    const hkt_zero_t             *z      = u->zero;
    const struct hkt_flat_bucket *cut    = &z->flat->cut[tile->bucket];
    const size_t                  inside = tile->first - hkt_zero_own_first(z, tile->bucket),
                 from                    = hkt_zero_own_flat(z, tile->bucket) + inside;
    const char *gradient = (const char *)hkt_bucket_result(z->buckets, tile->bucket) + inside * z->buckets->size;
    char       *weight   = (char *)hkt_zero_own_weight(z, tile->bucket) + inside * z->wsize;

    for (int i = cut->position; i < cut->position + cut->parameters; i++) {
        const int                   p     = z->flat->order[i];
        const struct hkt_flat_piece piece = hkt_flat_within(z->flat, p, from, from + tile->count);
        const size_t                at    = piece.at - from;
        if (!piece.count)
            continue;
        const struct run r = {state[HKT_ZERO_MASTER] + at,
                              state[HKT_ZERO_MOMENT1] + at,
                              state[HKT_ZERO_MOMENT2] + at,
                              gradient + at * z->buckets->size,
                              z->apart ? weight + at * z->wsize : NULL,
                              piece.count};
        update_run(u, &r, !(z->buckets->parameters[p].flags & HKT_PARAMETER_NO_DECAY));
    }
}

/* Gathers the buckets whose last tile is done, in the order of the tiles, which is the same on all ranks. */
static int gather_done(void *arg)
{
    struct update *u = arg;
    hkt_zero_t    *z = u->zero;

    if (z->ranks == 1 || z->config.stage == 0 || z->part)
        return HKT_OK;
    for (; u->bucket >= 0 && atomic_load(&z->left[u->bucket]) == 0; u->bucket--)
        if (z->flat->cut[u->bucket].same < 0)
            TRY(hkt_zero_gather(z, u->bucket));
    return HKT_OK;
}

static int offloaded_tile(void *arg, const struct hkt_tile *tile, float *const *memory)
{
    struct update *u      = arg;
    hkt_zero_t    *z      = u->zero;
    const size_t   inside = tile->first - hkt_zero_own_first(z, tile->bucket);
    float         *weight = (float *)(void *)((char *)hkt_zero_own_weight(z, tile->bucket) + inside * z->wsize);
    float *const   state[HKT_ZERO_KINDS] = {z->apart ? memory[0] : weight, memory[z->apart], memory[1 + z->apart]};

    update_tile(u, tile, state);
    return HKT_OK;
}

static int device_tile(void *arg, const struct hkt_tile *tile, int worker)
{
    const struct update *u      = arg;
    const size_t         inside = tile->first - hkt_zero_own_first(u->zero, tile->bucket);
    float               *state[HKT_ZERO_KINDS];

    (void)worker;
    for (int kind = 0; kind < HKT_ZERO_KINDS; kind++)
        state[kind] = hkt_zero_own_state(u->zero, (hkt_zero_kind_t)kind, tile->bucket) + inside;
    update_tile(u, tile, state);
    return HKT_OK;
}

static int update(hkt_zero_t *z, const hkt_adamw_t *options, double scale)
{
    struct update u = {.zero = z, .bucket = z->flat->buckets - 1};

    z->steps++;
    for (int decays = 0; decays < 2; decays++) {
        u.numbers[decays] = hkt_adamw_numbers(options, z->steps, (float)scale, decays);
        if (z->frozen) /* what stays is the second moment of that step */
            u.numbers[decays].root = hkt_adamw_numbers(options, z->config.freeze, 1, decays).root;
    }
    if (z->offload) {
        TRY(hkt_offload_pass(z->offload, &(struct hkt_pass){z->tiles, z->n_tiles, true, z->steps, offloaded_tile, &u}));
        TRY(gather_done(&u)); /* nothing is left of the pass before */
    } else {
        TRY(hkt_zero_each_tile(z, device_tile, gather_done, &u));
    }
    TRY(hkt_zero_prefetch_first(z));
    if (z->part || z->config.late) /* fetch() waits */
        return HKT_OK;
    return hkt_zero_synchronize(z);
}

int hkt_zero_finish(hkt_zero_t *zero)
{
    if (!zero)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_zero_finish: the handle is NULL");
    TRY(hkt_buckets_finish(zero->buckets));
    return hkt_zero_complete(zero);
}

int hkt_zero_step(hkt_zero_report_t *report, hkt_zero_t *zero, const hkt_adamw_t *options)
{
    hkt_zero_report_t r = {.clipped = 1};

    if (!report || !zero || !options)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_zero_step: report, the handle or options is NULL");
    TRY(hkt_adamw_check(options));
    if (zero->buckets->open)
        TRY(hkt_zero_finish(zero));
    if (!zero->buckets->finished)
        return hkt_error_set(HKT_ERR_USAGE, "hkt_zero_step: there are no gradients; begin a step first");
    TRY(hkt_zero_forget(zero));
    TRY(hkt_zero_norm(&r.norm, &r.overflow, zero));
    zero->buckets->finished = false; /* they are used up */
    r.norm *= options->scale;
    if (!r.overflow.overflow && options->clip > 0 && options->clip / (r.norm + 1e-6) < 1)
        r.clipped = options->clip / (r.norm + 1e-6);
    r.skipped = r.overflow.overflow;
    if (!r.skipped)
        TRY(update(zero, options, options->scale * r.clipped));
    *report = r;
    return HKT_OK;
}
