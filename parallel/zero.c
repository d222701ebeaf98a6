/* zero.c -- hkt_zero_t: what it is made of, and the calls that only pass on; see zero.h and hocket_train.h. */
#include <parallel/agree.h>
#include <parallel/zero.h>

#include <stdlib.h>
#include <string.h>

enum { TILE = 1 << 20, LIVE = 3 };

size_t hkt_zero_own_count(const hkt_zero_t *z, int bucket)
{
    return z->flat->cut[bucket].count / (size_t)(z->config.stage ? z->ranks : 1);
}

size_t hkt_zero_own_first(const hkt_zero_t *z, int bucket)
{
    return z->flat->cut[bucket].first / (size_t)(z->config.stage ? z->ranks : 1);
}

size_t hkt_zero_own_flat(const hkt_zero_t *z, int bucket)
{
    return z->config.stage ? hkt_flat_shard(z->flat, bucket, z->rank) : z->flat->cut[bucket].first;
}

void *hkt_zero_own_weight(const hkt_zero_t *z, int bucket)
{
    return (char *)z->weight + (z->part ? hkt_zero_own_first(z, bucket) : hkt_zero_own_flat(z, bucket)) * z->wsize;
}

float *hkt_zero_own_state(const hkt_zero_t *z, hkt_zero_kind_t kind, int bucket)
{
    if (kind == HKT_ZERO_MASTER && !z->apart)
        return hkt_zero_own_weight(z, bucket);
    float *array = z->state[kind];
    return array ? array + hkt_zero_own_first(z, bucket) : NULL;
}

bool hkt_zero_is_copy(const hkt_zero_t *z, int parameter)
{
    return z->flat->cut[z->flat->bucket[parameter]].same >= 0;
}

static int check(const hkt_zero_config_t *c, const hkt_parameter_t *parameters, int count)
{
    if (c->size != sizeof *c)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_zero_config_t has size %zu instead of %zu; begin with HKT_ZERO_CONFIG_INIT", c->size,
                             sizeof *c);
    if (count < 1 || !parameters)
        return hkt_error_set(HKT_ERR_ARGUMENT, "an optimizer needs parameters: there are %d", count);
    if (c->stage < 0 || c->stage > 3)
        return hkt_error_set(HKT_ERR_ARGUMENT, "ZeRO has stages 0 to 3, not %d", c->stage);
    if (!hkt_is_float_type(c->weight))
        return hkt_error_set(HKT_ERR_ARGUMENT, "weights may be float32, bfloat16 or float16, not %s",
                             hkt_type_name(c->weight));
    if ((unsigned)c->reduce > HKT_REDUCE_EACH || (unsigned)c->tier > HKT_TIER_FILE)
        return hkt_error_set(HKT_ERR_ARGUMENT, "reduce is %d and tier is %d; both are 0, 1 or 2", (int)c->reduce,
                             (int)c->tier);
    if (c->stage == 3 && (!c->groups || c->live == 1 || c->live < 0))
        return hkt_error_set(HKT_ERR_ARGUMENT, "stage 3 needs %s",
                             c->groups ? "at least 2 live groups" : "groups: what is fetched together");
    if (c->threads < 0 || c->threads > HKT_ZERO_WORKERS)
        return hkt_error_set(HKT_ERR_ARGUMENT, "an optimizer works with 1 to %d threads, not %d", HKT_ZERO_WORKERS,
                             c->threads);
    if (c->buckets.rebuild)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "buckets of an optimizer cannot be rebuilt: its state lies as they do; give the order of "
                             "arrival as `order`");
    for (int i = 0; c->groups && i < count; i++)
        if (c->groups[i] < 0 || c->groups[i] >= count)
            return hkt_error_set(HKT_ERR_ARGUMENT,
                                 "the group of \"%s\" is %d; groups are numbered from 0, at most one a parameter",
                                 parameters[i].name, c->groups[i]);
    return HKT_OK;
}

static int make_buckets(hkt_zero_t *z, const hkt_parameter_t *parameters, int count)
{
    hkt_buckets_config_t b = z->config.buckets;

    b.sharded = z->config.stage > 0;
    b.each    = z->config.reduce == HKT_REDUCE_EACH || (z->config.reduce == HKT_REDUCE_DEFAULT && z->config.stage >= 2);
    b.groups  = z->config.stage == 3 ? z->config.groups : NULL;
    TRY(hkt_buckets_create(&z->buckets, parameters, count, z->comm, &b, z->ledger));
    z->flat  = &z->buckets->flat;
    z->ranks = z->buckets->ranks;
    z->rank  = z->buckets->rank;
    z->own   = z->flat->main / (size_t)(z->config.stage ? z->ranks : 1);
    z->part  = z->config.stage == 3 && z->ranks > 1;
    z->apart = z->config.weight != HKT_FLOAT32 || z->config.tier == HKT_TIER_FILE;
    z->wsize = hkt_type_size(z->config.weight);
    return HKT_OK;
}

/* What can be told only when the ranks are known. */
static int check_tier(const hkt_zero_t *z)
{
    if (z->config.tier == HKT_TIER_FILE && z->config.stage == 0 && z->ranks > 1)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "stage 0 would keep the same optimizer state in %d files; use stage 1 or higher",
                             z->ranks);
    return HKT_OK;
}

static int make_groups(hkt_zero_t *z, int count)
{
    z->order = calloc((size_t)count, sizeof *z->order);
    z->group = calloc((size_t)count, sizeof *z->group);
    if (!z->order || !z->group)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for the groups of %d parameters", count);
    for (int i = 0; i < count; i++) {
        z->order[z->flat->order[i]] = i;
        z->group[i]                 = z->config.groups ? z->config.groups[i] : 0;
        z->groups                   = z->group[i] >= z->groups ? z->group[i] + 1 : z->groups;
    }
    z->config.groups = z->config.buckets.groups = z->config.buckets.order = NULL; /* the caller's */
    return HKT_OK;
}

/* Own runs, cut into tiles; the last bucket first, because forward passes begin with the first parameters. */
static int make_tiles(hkt_zero_t *z)
{
    const size_t tile = z->config.tile ? z->config.tile : TILE;
    size_t       n    = 0;

    for (int k = 0; k < z->flat->buckets; k++)
        n += z->flat->cut[k].same < 0 ? (hkt_zero_own_count(z, k) + tile - 1) / tile : 0;
    z->tiles = calloc(n + 1, sizeof *z->tiles);
    if (!z->tiles || n > INT32_MAX)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for %zu tiles; make them larger than %zu elements", n, tile);
    for (int k = z->flat->buckets - 1; k >= 0; k--)
        for (size_t at = 0, end = hkt_zero_own_count(z, k); at < end && z->flat->cut[k].same < 0; at += tile)
            z->tiles[z->n_tiles++] =
                (struct hkt_tile){hkt_zero_own_first(z, k) + at, end - at < tile ? end - at : tile, k};
    return HKT_OK;
}

static int take(float **array, size_t count, hkt_ledger_t *ledger)
{
    void *memory;
    TRY(hkt_ledger_take(&memory, count * sizeof(float), HKT_BYTES_OPTIMIZER, false, ledger));
    *array = memory;
    return HKT_OK;
}

/* All ranks continue with the step that every one of them has. */
static int resume(hkt_zero_t *z)
{
    int64_t generation = (int64_t)hkt_offload_generation(z->offload);

    if (z->ranks > 1)
        TRY(hkt_all_reduce(&generation, &generation, 1, HKT_INT64, HKT_MIN, z->comm, NULL));
    if (z->config.model)
        TRY(hkt_all_reduce(&generation, &generation, 1, HKT_INT64, HKT_MIN, z->config.model, NULL));
    TRY(hkt_offload_choose(z->offload, (uint64_t)generation));
    z->steps = (uint64_t)generation;
    return HKT_OK;
}

static int make_state(hkt_zero_t *z)
{
    struct hkt_offload_rule rule  = {.tier     = z->config.tier,
                                     .path     = z->config.path,
                                     .resume   = z->config.resume,
                                     .count    = z->own,
                                     .kinds    = z->apart ? 3 : 2,
                                     .layout   = (uint64_t)z->flat->main,
                                     .device   = z->ledger,
                                     .host     = z->config.host,
                                     .host_cap = z->config.host_cap};
    const int               first = z->apart ? HKT_ZERO_MASTER : HKT_ZERO_MOMENT1;

    if (z->config.tier == HKT_TIER_DEVICE) {
        for (int kind = first; kind < HKT_ZERO_KINDS; kind++)
            TRY(take(&z->state[kind], z->own, z->ledger));
        return HKT_OK;
    }
    for (int i = 0; i < z->n_tiles; i++)
        rule.largest = z->tiles[i].count > rule.largest ? z->tiles[i].count : rule.largest;
    for (int i = 0; i < z->flat->parameters; i++) /* who owns what */
        rule.layout = (rule.layout ^ z->flat->at[i]) * 0x9e3779b97f4a7c15u + (uint64_t)(z->ranks * 1024 + z->rank);
    TRY(hkt_offload_make(&z->offload, &rule));
    for (int kind = first; kind < HKT_ZERO_KINDS; kind++)
        z->state[kind] = hkt_offload_memory(z->offload, kind - first);
    return HKT_OK;
}

/* Elements of the own runs that lie in parameters flagged replicated. */
static int make_replicated(hkt_zero_t *z)
{
    void *memory;

    for (int i = 0; z->config.tensor && i < z->flat->parameters; i++) {
        const int    k    = z->flat->bucket[i];
        const size_t from = hkt_zero_own_flat(z, k), to = from + hkt_zero_own_count(z, k);
        if (z->buckets->parameters[i].flags & HKT_PARAMETER_REPLICATED)
            z->n_replicated += hkt_flat_within(z->flat, i, from, to).count;
    }
    if (!z->n_replicated)
        return HKT_OK;
    TRY(hkt_ledger_take(&memory, z->n_replicated * sizeof(float), HKT_BYTES_COMMUNICATION, true, z->ledger));
    z->replicated = memory;
    return HKT_OK;
}

/* `rc` is what this rank has found so far: an error becomes one of all ranks of the model before they wait for each
 * other. */
static int agree(const hkt_zero_t *z, int rc)
{
    char request[128];

    (void)snprintf(request, sizeof request, "stage %d, weights %s, reduce %d", z->config.stage,
                   hkt_type_name(z->config.weight), (int)z->config.reduce);
    if (z->comm)
        rc = hkt_agree(z->comm, rc, "hkt_zero_create", request);
    if (z->config.model)
        rc = hkt_agree(z->config.model, rc, "hkt_zero_create", request);
    return rc;
}

static int take_memory(hkt_zero_t *z, int count)
{
    TRY(check_tier(z));
    TRY(hkt_zero_check_freeze(z));
    TRY(make_groups(z, count));
    TRY(make_tiles(z));
    TRY(hkt_ledger_take(&z->weight, (z->part ? z->own : z->flat->main) * z->wsize, HKT_BYTES_PARAMETER, true,
                        z->ledger));
    TRY(make_state(z));
    if (z->config.freeze) {
        TRY(take(&z->unit, z->own, z->ledger));
        memset(z->unit, 0, z->own * sizeof *z->unit); /* touched now, not in the step that freezes */
    }
    TRY(hkt_zero_make_team(z));
    return make_replicated(z);
}

static int build(hkt_zero_t *z, const hkt_parameter_t *parameters, int count)
{
    TRY(agree(z, check(&z->config, parameters, count)));
    TRY(make_buckets(z, parameters, count));
    TRY(agree(z, take_memory(z, count)));
    TRY(hkt_zero_make_gathers(z));
    if (z->config.tier != HKT_TIER_FILE || !z->config.resume)
        return HKT_OK;
    TRY(resume(z));
    return hkt_zero_loaded(z);
}

int hkt_zero_create(hkt_zero_t **zero, const hkt_parameter_t *parameters, int count, hkt_comm_t *comm,
                    const hkt_zero_config_t *config, hkt_ledger_t *ledger)
{
    const hkt_zero_config_t usual = HKT_ZERO_CONFIG_INIT, *c = config ? config : &usual;

    if (!zero)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_zero_create: zero is NULL");
    hkt_zero_t *z = calloc(1, sizeof *z);
    if (!z)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for an optimizer");
    z->config         = *c;
    z->config.live    = c->live ? c->live : LIVE;
    z->config.threads = c->threads ? c->threads : 1;
    z->comm           = comm;
    z->ledger         = ledger;
    const int rc      = build(z, parameters, count);
    if (rc < 0) {
        char why[1024];
        (void)snprintf(why, sizeof why, "%s", hkt_last_error());
        (void)hkt_zero_destroy(z);
        return hkt_error_set(rc, "%s", why);
    }
    *zero = z;
    return HKT_OK;
}

int hkt_zero_destroy(hkt_zero_t *z)
{
    if (!z)
        return HKT_OK;
    const int results[] = {hkt_zero_free_team(z), hkt_zero_free_gathers(z), hkt_buckets_destroy(z->buckets)};
    int       rc        = HKT_OK;
    for (int i = 0; i < 3; i++)
        rc = rc < 0 ? rc : results[i];
    if (!z->offload)
        for (int kind = 0; kind < HKT_ZERO_KINDS; kind++)
            (void)hkt_ledger_give(z->state[kind], z->ledger);
    (void)hkt_offload_free(z->offload);
    (void)hkt_ledger_give(z->weight, z->ledger);
    (void)hkt_ledger_give(z->unit, z->ledger);
    (void)hkt_ledger_give(z->replicated, z->ledger);
    free(z->tiles);
    free(z->order);
    free(z->group);
    free(z);
    return rc;
}

static int absent(const char *call)
{
    return hkt_error_set(HKT_ERR_ARGUMENT, "%s: the handle or the output is NULL", call);
}

int hkt_zero_begin(hkt_zero_t *z, int micro_batches)
{
    if (!z)
        return absent("hkt_zero_begin");
    TRY(hkt_zero_freeze(z));
    return hkt_buckets_begin(z->buckets, micro_batches);
}

int hkt_zero_gradient(void **gradient, int parameter, hkt_zero_t *z)
{
    return z && gradient ? hkt_buckets_gradient(gradient, parameter, z->buckets) : absent("hkt_zero_gradient");
}

int hkt_zero_ready(hkt_zero_t *z, int parameter)
{
    return z ? hkt_buckets_ready(z->buckets, parameter) : absent("hkt_zero_ready");
}

int hkt_zero_next(hkt_zero_t *z)
{
    return z ? hkt_buckets_next(z->buckets) : absent("hkt_zero_next");
}

hkt_buckets_t *hkt_zero_buckets(hkt_zero_t *z)
{
    return z ? z->buckets : NULL;
}

int hkt_zero_info(hkt_zero_info_t *info, const hkt_zero_t *z)
{
    if (!z || !info)
        return absent("hkt_zero_info");
    *info = (hkt_zero_info_t){.padded = z->flat->main, .steps = z->steps, .gathered = z->gathered, .reused = z->reused};
    if (z->offload)
        hkt_offload_times(&info->offload, z->offload);
    for (int i = 0; i < z->flat->parameters; i++)
        info->parameters += hkt_zero_is_copy(z, i) ? 0 : z->flat->size[i];
    return HKT_OK;
}

int hkt_zero_set_steps(hkt_zero_t *z, uint64_t steps)
{
    if (!z)
        return absent("hkt_zero_set_steps");
    z->steps  = steps;
    z->frozen = false;
    return HKT_OK;
}

int hkt_zero_traffic(hkt_traffic_t *traffic, const char *collective, hkt_zero_t *z)
{
    hkt_traffic_t reduced = {0, 0}, gathered = {0, 0};

    if (!z || !traffic)
        return absent("hkt_zero_traffic");
    if (z->comm)
        TRY(hkt_comm_traffic(z->comm, collective, &reduced));
    if (z->gather_comm)
        TRY(hkt_comm_traffic(z->gather_comm, collective, &gathered));
    *traffic = (hkt_traffic_t){reduced.calls + gathered.calls, reduced.bytes + gathered.bytes};
    return HKT_OK;
}
