/* bucket.c -- hkt_buckets_t: making it, and the calls of a step; see hocket_train.h. bucket_work.c has what is
 * launched.
 *
 * Two ways to hold gradients. Once a step: one run of memory for all, in which micro-batches add up and which is
 * reduced in place. Each micro-batch: a bucket's gradients are collected in a staging buffer that is reduced and added
 * to the sums; so the sums may be shards only, and the buffers are few. */
#include <parallel/agree.h>
#include <parallel/bucket.h>
#include <parallel/compress.h>

#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20, STAGINGS = 2 };

static int check(const hkt_parameter_t *parameters, int count, const hkt_buckets_config_t *c)
{
    if (c->size != sizeof *c)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_buckets_config_t has size %zu instead of %zu; begin with HKT_BUCKETS_CONFIG_INIT",
                             c->size, sizeof *c);
    if (count < 1 || !parameters)
        return hkt_error_set(HKT_ERR_ARGUMENT, "buckets need parameters: there are %d", count);
    if (!hkt_is_float_type(c->type) || (c->op != HKT_AVG && c->op != HKT_SUM))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "gradients of type %s with %s; possible are float32, bfloat16 and float16 with avg or sum",
                             hkt_type_name(c->type), hkt_op_name(c->op));
    if (c->codec && c->type != HKT_FLOAT32)
        return hkt_error_set(HKT_ERR_ARGUMENT, "the codec \"%s\" takes float32 gradients, not %s", c->codec,
                             hkt_type_name(c->type));
    if (c->rebuild && c->sharded)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "buckets that are sharded cannot be rebuilt: optimizer state lies as they do; give the "
                             "order of arrival as `order`");
    for (int i = 0; i < count; i++)
        if (!parameters[i].name)
            return hkt_error_set(HKT_ERR_ARGUMENT, "parameter %d of %d has no name", i, count);
    return HKT_OK;
}

static uint64_t mix(uint64_t hash, uint64_t x)
{
    hash = (hash ^ x) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

uint64_t hkt_bucket_layout(const hkt_buckets_t *b)
{
    uint64_t hash = (uint64_t)b->ranks;

    for (int i = 0; i < b->flat.parameters; i++) {
        hash = mix(mix(hash, b->parameters[i].count), (uint64_t)b->flat.at[i]);
        hash = mix(hash, (uint64_t)b->flat.bucket[i]);
        for (const char *c = b->parameters[i].name; *c; c++)
            hash = mix(hash, (unsigned char)*c);
    }
    return mix(hash, b->config.sharded);
}

/* The ranks must have the same buckets: `rc` is what this one has found so far. */
static int compare(hkt_buckets_t *b, int rc)
{
    char request[256];

    if (!b->comm)
        return rc;
    (void)snprintf(request, sizeof request,
                   "%d parameters of %zu elements with padding (names and places %016llx), %s, %s%s%s%s%s%s",
                   b->flat.parameters, b->flat.total, (unsigned long long)hkt_bucket_layout(b),
                   hkt_type_name(b->config.type), hkt_op_name(b->config.op), b->config.sharded ? ", sharded" : "",
                   b->config.each ? ", each micro-batch" : "", b->config.rebuild ? ", rebuilt" : "",
                   b->config.codec ? ", codec " : "", b->config.codec ? b->config.codec : "");
    return hkt_agree(b->comm, rc, "hkt_buckets_create", request);
}

static struct hkt_flat_rule rule_of(const hkt_buckets_t *b, const int *order)
{
    return (struct hkt_flat_rule){
        b->config.first_bytes / b->size, b->config.bytes / b->size, b->config.alignment, b->ranks, order, b->groups};
}

/* Memory of the sums. */
static int take_gradient(hkt_buckets_t *b)
{
    const size_t parts = b->config.each && b->config.sharded ? (size_t)b->ranks : 1;
    return hkt_ledger_take(&b->gradient, b->flat.total / parts * b->size, HKT_BYTES_GRADIENT, true, b->ledger);
}

static int make_compressors(hkt_buckets_t *b)
{
    hkt_compressor_config_t c = HKT_COMPRESSOR_CONFIG_INIT;

    c.codec = b->config.codec;
    for (int i = 0; b->config.codec && b->ranks > 1 && i < b->flat.buckets; i++) {
        c.seed = mix(b->config.seed, (uint64_t)i);
        TRY(hkt_compressor_create(&b->bucket[i].compressor, b->flat.cut[i].count, &c, b->comm, b->ledger));
    }
    return HKT_OK;
}

int hkt_bucket_code(hkt_buckets_t *b, bool use, const float *unit)
{
    b->plain = !use;
    for (int i = 0; i < b->flat.buckets && b->bucket[i].compressor; i++) {
        const int same = b->flat.cut[i].same; /* a copy lies as its original does */

        TRY(compress_in_units(b->bucket[i].compressor,
                              unit ? unit + b->flat.cut[same < 0 ? i : same].first : NULL));
    }
    return HKT_OK;
}

static int free_compressors(hkt_buckets_t *b)
{
    for (int i = 0; i < b->flat.buckets; i++) {
        TRY(hkt_compressor_destroy(b->bucket[i].compressor));
        b->bucket[i].compressor = NULL;
    }
    return HKT_OK;
}

/* All that does not depend on the layout. */
static int fill(hkt_buckets_t *b, const hkt_parameter_t *parameters, int count, const hkt_buckets_config_t *config)
{
    const size_t n = (size_t)count;

    b->config             = *config;
    b->config.bytes       = config->bytes ? config->bytes : 25 * (size_t)MIB;
    b->config.first_bytes = config->first_bytes ? config->first_bytes : MIB;
    b->config.alignment   = config->alignment ? config->alignment : 32;
    b->size               = hkt_type_size(config->type);
    b->ranks              = 1;
    if (b->comm) {
        TRY(hkt_comm_size(b->comm, &b->ranks));
        TRY(hkt_comm_rank(b->comm, &b->rank));
    }
    b->parameters = calloc(n, sizeof *b->parameters);
    b->announced  = calloc(n, sizeof *b->announced);
    b->bucket     = calloc(n, sizeof *b->bucket);
    b->staging    = calloc(n, sizeof *b->staging);
    b->arrival    = calloc(n, sizeof *b->arrival);
    b->groups     = calloc(n, sizeof *b->groups);
    if (!b->parameters || !b->announced || !b->bucket || !b->staging || !b->arrival || !b->groups)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for buckets of %d parameters", count);
    memcpy(b->parameters, parameters, n * sizeof *parameters);
    if (config->groups)
        memcpy(b->groups, config->groups, n * sizeof *b->groups);
    b->config.order = b->config.groups = NULL;
    return HKT_OK;
}

/* What a rank does alone. */
static int prepare(hkt_buckets_t *b, const hkt_parameter_t *parameters, int count, const hkt_buckets_config_t *config)
{
    TRY(check(parameters, count, config));
    TRY(fill(b, parameters, count, config));
    const struct hkt_flat_rule rule = rule_of(b, config->order);
    TRY(hkt_flat_make(&b->flat, b->parameters, count, &rule));
    for (int i = 0; i < count; i++)
        b->bucket[i].owner = b;
    b->most = b->flat.buckets;
    TRY(take_gradient(b));
    for (int i = 0; b->config.each && i < STAGINGS && i < b->most; i++)
        TRY(hkt_bucket_add_staging(b));
    if (b->ranks > 1 && b->config.overlap)
        TRY(hkt_stream_create(&b->stream));
    return HKT_OK;
}

static int build(hkt_buckets_t *b, const hkt_parameter_t *parameters, int count, const hkt_buckets_config_t *config)
{
    TRY(compare(b, prepare(b, parameters, count, config)));
    return make_compressors(b);
}

/* Rank 0's order of arrival becomes the order of the buckets. Results of the last step are gone. Those that never
 * arrived keep their order, at the end. */
static int rebuild(hkt_buckets_t *b)
{
    const int count = b->flat.parameters, arrived = atomic_load(&b->arrivals);
    int       n = arrived;

    for (int i = 0; i < count; i++) {
        const int p     = b->flat.order[i];
        bool      there = false;
        for (int k = 0; k < arrived && !there; k++)
            there = b->arrival[k] == p;
        if (!there)
            b->arrival[n++] = p;
    }
    if (b->ranks > 1)
        TRY(hkt_broadcast(b->arrival, b->arrival, (size_t)count, HKT_INT32, 0, b->comm, NULL));
    b->config.rebuild = false;
    if (memcmp(b->arrival, b->flat.order, (size_t)count * sizeof *b->arrival) == 0)
        return HKT_OK;

    const struct hkt_flat_rule rule = rule_of(b, b->arrival);
    struct hkt_flat            flat;
    TRY(hkt_flat_make(&flat, b->parameters, count, &rule));
    TRY(free_compressors(b));
    for (; b->stagings; b->stagings--) /* their size depends on the buckets */
        TRY(hkt_ledger_give(b->staging[b->stagings - 1].memory, b->ledger));
    hkt_flat_free(&b->flat);
    b->flat = flat;
    b->most = flat.buckets;
    TRY(hkt_ledger_give(b->gradient, b->ledger));
    b->gradient = NULL;
    TRY(take_gradient(b));
    for (int i = 0; b->config.each && i < STAGINGS && i < b->most; i++)
        TRY(hkt_bucket_add_staging(b));
    return make_compressors(b);
}

static int known(const hkt_buckets_t *b, int parameter, const char *call)
{
    if (b && parameter >= 0 && parameter < b->flat.parameters)
        return HKT_OK;
    return hkt_error_set(HKT_ERR_ARGUMENT, "%s: parameter %d of %d", call, parameter, b ? b->flat.parameters : 0);
}

static int in_step(const hkt_buckets_t *b, const char *call)
{
    if (b && b->open)
        return HKT_OK;
    return hkt_error_set(b ? HKT_ERR_USAGE : HKT_ERR_ARGUMENT, "%s: %s", call,
                         b ? "only between hkt_buckets_begin() and hkt_buckets_finish()" : "the handle is NULL");
}

int hkt_buckets_create(hkt_buckets_t **buckets, const hkt_parameter_t *parameters, int count, hkt_comm_t *comm,
                       const hkt_buckets_config_t *config, hkt_ledger_t *ledger)
{
    const hkt_buckets_config_t usual = HKT_BUCKETS_CONFIG_INIT, *c = config ? config : &usual;

    if (!buckets)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_buckets_create: buckets is NULL");
    hkt_buckets_t *b = calloc(1, sizeof *b);
    if (!b)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for buckets");
    b->comm   = comm;
    b->ledger = ledger;
    (void)pthread_mutex_init(&b->lock, NULL);
    (void)pthread_cond_init(&b->freed, NULL);
    const int rc = build(b, parameters, count, c);
    if (rc < 0) {
        char why[1024];
        (void)snprintf(why, sizeof why, "%s", hkt_last_error());
        (void)hkt_buckets_destroy(b);
        return hkt_error_set(rc, "%s", why);
    }
    *buckets = b;
    return HKT_OK;
}

int hkt_buckets_destroy(hkt_buckets_t *b)
{
    if (!b)
        return HKT_OK;
    int rc = hkt_stream_destroy(b->stream);
    if (b->bucket && rc >= 0)
        rc = free_compressors(b);
    for (int i = 0; i < b->stagings; i++)
        (void)hkt_ledger_give(b->staging[i].memory, b->ledger);
    (void)hkt_ledger_give(b->gradient, b->ledger);
    hkt_flat_free(&b->flat);
    (void)pthread_cond_destroy(&b->freed);
    (void)pthread_mutex_destroy(&b->lock);
    free(b->parameters);
    free(b->announced);
    free(b->bucket);
    free(b->staging);
    free(b->arrival);
    free(b->groups);
    free(b);
    return rc;
}

int hkt_buckets_begin(hkt_buckets_t *b, int micro_batches)
{
    if (!b || micro_batches < 1)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_buckets_begin: %s",
                             b ? "there must be a micro-batch" : "the handle is NULL");
    if (b->open)
        return hkt_error_set(HKT_ERR_USAGE, "hkt_buckets_begin: the step before was not finished");
    if (b->config.rebuild && b->steps == 1)
        TRY(rebuild(b));
    if (!b->gradient)
        return hkt_error_set(HKT_ERR_USAGE,
                             "hkt_buckets_begin: the handle has no memory since an error before; destroy it");
    if (!b->config.each)
        memset(b->gradient, 0, b->flat.total * b->size);
    for (int i = 0; i < b->flat.parameters; i++)
        atomic_store(&b->announced[i], 0);
    b->micro_batches = micro_batches;
    b->micro_batch   = 0;
    b->overlap       = (hkt_overlap_t){0, 0};
    b->finished      = false;
    b->open          = true;
    hkt_bucket_expect(b);
    return HKT_OK;
}

int hkt_buckets_gradient(void **gradient, int parameter, hkt_buckets_t *b)
{
    struct hkt_staging *s;

    TRY(known(b, parameter, "hkt_buckets_gradient"));
    TRY(in_step(b, "hkt_buckets_gradient"));
    const int bucket = b->flat.bucket[parameter];
    if (!b->config.each) {
        *gradient = (char *)b->gradient + b->flat.at[parameter] * b->size;
        return HKT_OK;
    }
    TRY(hkt_bucket_staging(&s, bucket, b));
    *gradient = (char *)s->memory + (b->flat.at[parameter] - b->flat.cut[bucket].first) * b->size;
    return HKT_OK;
}

int hkt_buckets_add(hkt_buckets_t *b, int parameter, size_t first, const void *values, size_t count, hkt_type_t type)
{
    void *gradient;

    TRY(known(b, parameter, "hkt_buckets_add"));
    const size_t size = b->flat.size[parameter];
    if (!hkt_is_float_type(type) || first > size || count > size - first || (count && !values))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_buckets_add: elements %zu to %zu of type %s for parameter \"%s\" of %zu", first,
                             first + count, hkt_type_name(type), b->parameters[parameter].name, size);
    TRY(hkt_buckets_gradient(&gradient, parameter, b));
    hkt_float_add((char *)gradient + first * b->size, b->config.type, values, type, count);
    return HKT_OK;
}

int hkt_buckets_ready(hkt_buckets_t *b, int parameter)
{
    TRY(known(b, parameter, "hkt_buckets_ready"));
    TRY(in_step(b, "hkt_buckets_ready"));
    const uint32_t most   = (uint32_t)(b->config.each ? b->micro_batch + 1 : b->micro_batches);
    const uint32_t before = atomic_fetch_add(&b->announced[parameter], 1);
    const uint32_t least  = b->config.each ? (uint32_t)b->micro_batch : 0;

    if (before >= most) {
        atomic_fetch_sub(&b->announced[parameter], 1);
        return hkt_error_set(
            HKT_ERR_USAGE,
            "the gradient of \"%s\" was announced once more than the step has micro-batches (%d, the current is %d); "
            "announce a parameter that is used several times after its last use",
            b->parameters[parameter].name, b->micro_batches, b->micro_batch);
    }
    if (before < least) /* was unused in micro-batches before */
        atomic_store(&b->announced[parameter], most);
    if (b->config.rebuild && b->steps == 0 && before == 0)
        b->arrival[atomic_fetch_add(&b->arrivals, 1)] = parameter;
    if (atomic_fetch_sub(&b->bucket[b->flat.bucket[parameter]].missing, 1) == 1 && (b->stream || b->config.each))
        hkt_bucket_advance(b);
    return HKT_OK;
}

int hkt_buckets_next(hkt_buckets_t *b)
{
    TRY(in_step(b, "hkt_buckets_next"));
    if (b->micro_batch >= b->micro_batches)
        return hkt_error_set(HKT_ERR_USAGE, "hkt_buckets_next: the step has %d micro-batches only", b->micro_batches);
    int rc = HKT_OK;
    if (b->config.each)
        rc = hkt_bucket_launch_rest(b);
    b->micro_batch++;
    if (b->config.each && b->micro_batch < b->micro_batches)
        hkt_bucket_expect(b);
    return rc < 0 ? hkt_bucket_settle(b) : HKT_OK;
}

int hkt_buckets_finish(hkt_buckets_t *b)
{
    TRY(in_step(b, "hkt_buckets_finish"));
    if (b->config.each && b->micro_batch + 1 < b->micro_batches)
        return hkt_error_set(HKT_ERR_USAGE,
                             "hkt_buckets_finish: micro-batch %d of %d; call hkt_buckets_next() after each",
                             b->micro_batch + 1, b->micro_batches);
    (void)hkt_bucket_launch_rest(b); /* its error is that of settle */
    b->open = false;
    TRY(hkt_bucket_settle(b));
    b->steps++;
    b->finished = true;
    return HKT_OK;
}
