/* zero_norm.c -- from reduced gradients to one number: what other ranks have to add to them, and the global norm.
 *
 * The sum of squares is exact (adamw.h), every unique element is counted once by one rank, and the digits are added
 * over ranks: so the norm has the same bits for every stage, bucket size, number of stages and ranks. A gradient that
 * is infinite or NaN has no norm; then the ranks agree on where it was seen first, in the order in which gradients
 * arrive. */
#include <parallel/zero.h>

#include <math.h>
#include <string.h>

/* Sums of one more int64: how many ranks saw something that is not finite. */
enum { DIGITS = 2 * HKT_EXACT_DIGITS, NUMBERS = DIGITS + 1 };

/* Gradients of the own run of a bucket. */
static char *gradient_of(const hkt_zero_t *z, int bucket)
{
    return hkt_bucket_result(z->buckets, bucket);
}

static int add_copies(hkt_zero_t *z)
{
    const hkt_type_t type = z->config.buckets.type;

    for (int k = 0; k < z->flat->buckets; k++)
        if (z->flat->cut[k].same >= 0)
            hkt_float_add(gradient_of(z, z->flat->cut[k].same), type, gradient_of(z, k), type,
                          hkt_zero_own_count(z, k));
    return HKT_OK;
}

/* First and last stage have the shared parameters in buckets of the same form, so equal ranks have equal pieces. */
static int add_embeddings(hkt_zero_t *z)
{
    for (int k = 0; z->config.embedding && k < z->flat->buckets; k++) {
        const int first = z->flat->order[z->flat->cut[k].position];
        void     *g     = gradient_of(z, k);
        if (z->flat->cut[k].same < 0 && z->buckets->parameters[first].flags & HKT_PARAMETER_SHARED)
            TRY(hkt_all_reduce(g, g, hkt_zero_own_count(z, k), z->config.buckets.type, HKT_SUM, z->config.embedding,
                               NULL));
    }
    return HKT_OK;
}

/* Copies what this rank owns of replicated parameters into the staging, or back. */
static void move_replicated(hkt_zero_t *z, bool back)
{
    const hkt_type_t type = z->config.buckets.type;
    const size_t     size = z->buckets->size;
    float           *at   = z->replicated;

    for (int i = 0; i < z->flat->parameters; i++) {
        const int    k    = z->flat->bucket[i];
        const size_t from = hkt_zero_own_flat(z, k);
        if (!(z->buckets->parameters[i].flags & HKT_PARAMETER_REPLICATED))
            continue;
        const struct hkt_flat_piece piece = hkt_flat_within(z->flat, i, from, from + hkt_zero_own_count(z, k));
        char                       *g     = gradient_of(z, k) + (piece.at - from) * size;
        if (piece.count && back)
            hkt_float_narrow(g, type, at, piece.count);
        else if (piece.count)
            hkt_float_widen(at, g, type, piece.count);
        at += piece.count;
    }
}

int hkt_zero_complete(hkt_zero_t *z)
{
    TRY(add_copies(z));
    TRY(add_embeddings(z));
    if (!z->n_replicated)
        return HKT_OK;
    move_replicated(z, false);
    TRY(hkt_all_reduce(z->replicated, z->replicated, z->n_replicated, HKT_FLOAT32, HKT_SUM, z->config.tensor, NULL));
    move_replicated(z, true);
    return HKT_OK;
}

/* What this rank adds to the norm. */
struct share {
    struct hkt_exact sum;
    int              bad; /* parameter whose gradient is not finite, the first in the order of the buckets; -1 */
    size_t           element;
};

/* The same, by worker. */
struct shares {
    hkt_zero_t  *zero;
    struct share share[HKT_ZERO_WORKERS];
};

static bool earlier(const struct share *a, const struct share *b, const hkt_zero_t *z)
{
    if (a->bad < 0 || b->bad < 0 || a->bad == b->bad)
        return a->bad >= 0 && (b->bad < 0 || a->element < b->element);
    return z->order[a->bad] < z->order[b->bad];
}

/* Adds a piece of a parameter, whose gradient is at `values`. */
static void measure(struct share *s, const hkt_zero_t *z, int parameter, const struct hkt_flat_piece *piece,
                    const char *values)
{
    const unsigned   flags = z->buckets->parameters[parameter].flags;
    struct hkt_exact sum   = {{0}};
    const size_t     at    = hkt_float_squares(&sum, values, z->config.buckets.type, piece->count);

    if (at < piece->count) {
        const struct share found = {.bad = parameter, .element = piece->first + at};
        if (earlier(&found, s, z)) {
            s->bad     = found.bad;
            s->element = found.element;
        }
        return;
    }
    if (flags & HKT_PARAMETER_COPY || (flags & HKT_PARAMETER_REPLICATED && !z->config.first_tensor))
        return;
    for (int d = 0; d < HKT_EXACT_DIGITS; d++)
        s->sum.digit[d] += sum.digit[d];
    hkt_exact_settle(&s->sum);
}

/* What of the tile lies in this rank's n-th of the bucket: in stage 0 it has all of it, but the others do the rest. */
static int measure_tile(void *arg, const struct hkt_tile *tile, int worker)
{
    struct shares                *s   = arg;
    const hkt_zero_t             *z   = s->zero;
    const struct hkt_flat_bucket *cut = &z->flat->cut[tile->bucket];
    const size_t                  own = hkt_zero_own_flat(z, tile->bucket),
                 begin                = own + (tile->first - hkt_zero_own_first(z, tile->bucket));
    const size_t shard = hkt_flat_shard(z->flat, tile->bucket, z->rank), end = shard + cut->count / (size_t)z->ranks;
    const size_t from = begin > shard ? begin : shard, to = begin + tile->count < end ? begin + tile->count : end;

    for (int i = cut->position; from < to && i < cut->position + cut->parameters; i++) {
        const int                   p     = z->flat->order[i];
        const struct hkt_flat_piece piece = hkt_flat_within(z->flat, p, from, to);
        if (piece.count)
            measure(&s->share[worker], z, p, &piece,
                    gradient_of(z, tile->bucket) + (piece.at - own) * z->buckets->size);
    }
    return HKT_OK;
}

/* All of this rank's, in *s. */
static int measure_all(struct share *s, hkt_zero_t *z)
{
    struct shares shares = {.zero = z};

    for (int w = 0; w < HKT_ZERO_WORKERS; w++)
        shares.share[w].bad = -1;
    TRY(hkt_zero_each_tile(z, measure_tile, NULL, &shares));
    *s = shares.share[0];
    for (int w = 1; w < HKT_ZERO_WORKERS; w++) {
        for (int d = 0; d < HKT_EXACT_DIGITS; d++)
            s->sum.digit[d] += shares.share[w].sum.digit[d];
        if (earlier(&shares.share[w], s, z)) {
            s->bad     = shares.share[w].bad;
            s->element = shares.share[w].element;
        }
    }
    hkt_exact_settle(&s->sum);
    return HKT_OK;
}

/* Digits in two halves, so that sums over any number of ranks fit. */
static void to_numbers(int64_t *numbers, const struct share *s)
{
    for (int d = 0; d < HKT_EXACT_DIGITS; d++) {
        numbers[2 * d]     = s->sum.digit[d] & 0xffffffff;
        numbers[2 * d + 1] = s->sum.digit[d] >> 32;
    }
    numbers[DIGITS] = s->bad >= 0;
}

static double norm_of(const int64_t *numbers)
{
    struct hkt_exact sum = {{0}};

    for (int d = HKT_EXACT_DIGITS - 1; d >= 0; d--) {
        const int64_t low  = numbers[2 * d],
                      high = numbers[2 * d + 1] + (low >> 32); /* high has 8 bits of the digit, and carries */
        sum.digit[d] += (high & 0xff) * ((int64_t)1 << 32) + (low & 0xffffffff);
        if (d + 1 < HKT_EXACT_DIGITS)
            sum.digit[d + 1] += high >> 8;
        else
            sum.digit[d] += (high >> 8) * ((int64_t)1 << HKT_EXACT_BITS);
    }
    return sqrt(hkt_exact_value(&sum));
}

/* Where it was first, over the ranks that have the same parameters, and then over those that have others. */
static int agree(hkt_overflow_t *overflow, const struct share *s, hkt_zero_t *z)
{
    const char *name  = s->bad < 0 ? "" : z->buckets->parameters[s->bad].name;
    int64_t     first = s->bad < 0 ? INT64_MAX : z->order[s->bad], mine = first;

    if (z->ranks > 1)
        TRY(hkt_all_reduce(&first, &first, 1, HKT_INT64, HKT_MIN, z->comm, NULL));
    TRY(hkt_scaler_agree(overflow, s->bad >= 0 && mine == first, name, s->element, z->comm));
    if (!z->config.model)
        return HKT_OK;
    const hkt_overflow_t here = *overflow;
    return hkt_scaler_agree(overflow, here.overflow, here.tensor, here.element, z->config.model);
}

int hkt_zero_norm(double *norm, hkt_overflow_t *overflow, hkt_zero_t *z)
{
    struct share s = {.bad = -1};
    int64_t      numbers[NUMBERS];

    TRY(measure_all(&s, z));
    to_numbers(numbers, &s);
    if (z->ranks > 1)
        TRY(hkt_all_reduce(numbers, numbers, NUMBERS, HKT_INT64, HKT_SUM, z->comm, NULL));
    if (z->config.model)
        TRY(hkt_all_reduce(numbers, numbers, NUMBERS, HKT_INT64, HKT_SUM, z->config.model, NULL));
    *overflow = (hkt_overflow_t){.overflow = false};
    *norm     = NAN;
    if (numbers[DIGITS])
        return agree(overflow, &s, z);
    *norm = norm_of(numbers);
    return HKT_OK;
}
