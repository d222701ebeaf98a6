/* onebit_adam.c -- 1-bit Adam (Tang et al. 2021).
 *
 * Adam divides by the root of the second moment, so a gradient that was rounded to one bit is useless to it: every
 * element's second moment would be the same. But the second moment settles early. So for `freeze` steps this is AdamW;
 * then the second moment stays as it is, d = sqrt(v / its correction) + epsilon, and each step is
 *
 *   u = beta1 u + (1 - beta1) own gradient / d;  u = compressed average of u;  w -= rate * u / (1 - beta1^step), and
 * decay
 *
 * which is momentum SGD with a rate per element, for which error feedback is proved to work. u is the first moment in
 * the units of the step. The paper compresses the moment itself; one scale for elements of different size then drowns
 * the small ones, which d blows up again. After the freeze the arrays hold u and 1 / d in place of m and v.
 *
 * Weights, u and d are the same on all ranks at all times, only the feedback is a rank's own.
 */
#include "adamw.h"
#include "codec.h"

#include <string.h>

struct hkt_onebit_adam {
    hkt_adamw_t       options;
    uint64_t          freeze, step;
    size_t            count;
    hkt_compressor_t *compressor;
    hkt_comm_t       *comm;
    hkt_ledger_t     *ledger;
    float            *m, *v, *scratch; /* scratch is shared: the gradient's average, then the next m */
};

static int check(const hkt_onebit_adam_config_t *config)
{
    if (config->size != sizeof(*config))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_onebit_adam_create: the config was not begun with HKT_ONEBIT_ADAM_CONFIG_INIT");
    if (config->freeze < 1)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "1-bit Adam: freeze is 0, but without a warm-up there is no second moment; 15 to 20 %% "
                             "of all steps are usual");
    return HKT_OK;
}

static int take_moments(hkt_onebit_adam_t *a)
{
    const size_t bytes = a->count * sizeof(float);

    TRY(hkt_ledger_take((void **)&a->m, bytes, HKT_BYTES_OPTIMIZER, false, a->ledger));
    TRY(hkt_ledger_take((void **)&a->v, bytes, HKT_BYTES_OPTIMIZER, false, a->ledger));
    return hkt_ledger_take((void **)&a->scratch, bytes, HKT_BYTES_OPTIMIZER, true, a->ledger);
}

int hkt_onebit_adam_create(hkt_onebit_adam_t **adam, size_t count, const hkt_onebit_adam_config_t *config,
                           hkt_comm_t *comm, hkt_ledger_t *ledger)
{
    hkt_compressor_config_t coding  = HKT_COMPRESSOR_CONFIG_INIT;
    hkt_adamw_t             options = HKT_ADAMW_INIT;
    hkt_onebit_adam_t      *a;
    int                     rc;

    if (!adam || !config)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_onebit_adam_create: a pointer is NULL");
    TRY(check(config));
    options.beta1   = config->beta1;
    options.beta2   = config->beta2;
    options.epsilon = config->epsilon;
    options.decay   = config->decay;
    coding.codec    = config->codec;
    coding.seed     = config->seed;
    TRY(hkt_adamw_check(&options));
    TRY(hkt_ledger_take((void **)&a, sizeof(*a), HKT_BYTES_OTHER, false, ledger));
    *a = (hkt_onebit_adam_t){
        .options = options, .freeze = config->freeze, .count = count, .comm = comm, .ledger = ledger};
    rc = hkt_compressor_create(&a->compressor, count, &coding, comm, ledger);
    if (rc >= 0)
        rc = take_moments(a);
    if (rc < 0) {
        (void)hkt_onebit_adam_destroy(a);
        return rc;
    }
    *adam = a;
    return HKT_OK;
}

int hkt_onebit_adam_destroy(hkt_onebit_adam_t *a)
{
    if (!a)
        return HKT_OK;
    hkt_ledger_give(a->scratch, a->ledger);
    hkt_ledger_give(a->v, a->ledger);
    hkt_ledger_give(a->m, a->ledger);
    TRY(hkt_compressor_destroy(a->compressor));
    return hkt_ledger_give(a, a->ledger);
}

/* AdamW on the averaged gradient. */
static int warm_up(bool *skip, hkt_onebit_adam_t *a, float *weight, const float *gradient)
{
    const hkt_adamw_state_t        state   = {weight, a->m, a->v, a->scratch};
    const struct hkt_adamw_numbers numbers = hkt_adamw_numbers(&a->options, a->step + 1, 1, true);

    TRY(hkt_all_reduce(gradient, a->scratch, a->count, HKT_FLOAT32, HKT_AVG, a->comm, NULL));
    *skip = codec_loops()->bad(a->scratch, a->count) < a->count;
    if (*skip)
        return HKT_OK;
    TRY(hkt_adamw(&a->options, a->step + 1, 1, &state, a->count));
    if (a->step + 1 == a->freeze)
        codec_loops()->freeze(a->m, a->v, &numbers, a->count);
    return HKT_OK;
}

/* The average of the first moments, through the codec. */
static int go_on(bool *skip, hkt_onebit_adam_t *a, float *weight, const float *gradient)
{
    const struct hkt_adamw_numbers numbers = hkt_adamw_numbers(&a->options, a->step + 1, 1, true);
    hkt_compressor_stats_t         before, after;

    codec_loops()->blend(a->scratch, &(struct codec_moment){a->m, a->v}, gradient, &numbers, a->count);
    TRY(hkt_compressor_stats(&before, a->compressor));
    TRY(hkt_compressor_all_reduce(a->compressor, a->scratch, a->scratch, a->count, true, NULL));
    TRY(hkt_compressor_stats(&after, a->compressor));
    *skip = after.faults > before.faults;
    if (*skip)
        return HKT_OK;
    memcpy(a->m, a->scratch, a->count * sizeof(float));
    codec_loops()->move(weight, a->m, a->v, &numbers, a->count);
    return HKT_OK;
}

int hkt_onebit_adam_step(bool *skipped, hkt_onebit_adam_t *a, float *weight, const float *gradient, size_t count,
                         double rate)
{
    bool skip;

    if (!a || (count && (!weight || !gradient)))
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_onebit_adam_step: a pointer is NULL");
    if (count != a->count)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_onebit_adam_step: %zu elements, but it was made for %zu", count,
                             a->count);
    a->options.rate = rate;
    TRY(hkt_adamw_check(&a->options));
    TRY(a->step < a->freeze ? warm_up(&skip, a, weight, gradient) : go_on(&skip, a, weight, gradient));
    a->step += !skip;
    if (skipped)
        *skipped = skip;
    return HKT_OK;
}

/* ---- state: steps, moments, then the compressor's */

struct head {
    char     magic[8];
    uint64_t count, step, freeze;
};
static const char magic[8] = "HKTADAM2";

int hkt_onebit_adam_state_size(size_t *bytes, hkt_onebit_adam_t *a)
{
    size_t rest;

    if (!bytes || !a)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_onebit_adam_state_size: a pointer is NULL");
    TRY(hkt_compressor_state_size(&rest, a->compressor));
    *bytes = sizeof(struct head) + 2 * a->count * sizeof(float) + rest;
    return HKT_OK;
}

int hkt_onebit_adam_save(void *state, hkt_onebit_adam_t *a)
{
    struct head h  = {.step = 0};
    char       *to = state;

    if (!state || !a)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_onebit_adam_save: a pointer is NULL");
    memcpy(h.magic, magic, sizeof(magic));
    h.count  = a->count;
    h.step   = a->step;
    h.freeze = a->freeze;
    memcpy(to, &h, sizeof(h));
    memcpy(to + sizeof(h), a->m, a->count * sizeof(float));
    memcpy(to + sizeof(h) + a->count * sizeof(float), a->v, a->count * sizeof(float));
    return hkt_compressor_save(to + sizeof(h) + 2 * a->count * sizeof(float), a->compressor);
}

int hkt_onebit_adam_load(hkt_onebit_adam_t *a, const void *state, size_t bytes)
{
    const char *from = state;
    struct head h;
    size_t      wanted, moments;

    if (!state || !a)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_onebit_adam_load: a pointer is NULL");
    TRY(hkt_onebit_adam_state_size(&wanted, a));
    moments = a->count * sizeof(float);
    if (bytes != wanted)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_onebit_adam_load: %zu bytes are here, %zu are needed", bytes,
                             wanted);
    memcpy(&h, from, sizeof(h));
    if (memcmp(h.magic, magic, sizeof(magic)) != 0 || h.count != a->count)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_onebit_adam_load: these bytes are no state of 1-bit Adam of %zu elements", a->count);
    if (h.freeze != a->freeze) /* the arrays mean something else before it and after it */
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_onebit_adam_load: the state is of a run whose warm-up has %llu steps, here it has "
                             "%llu; make it with the same freeze",
                             (unsigned long long)h.freeze, (unsigned long long)a->freeze);
    TRY(hkt_compressor_load(a->compressor, from + sizeof(h) + 2 * moments, bytes - sizeof(h) - 2 * moments));
    a->step = h.step;
    memcpy(a->m, from + sizeof(h), moments);
    memcpy(a->v, from + sizeof(h) + moments, moments);
    return HKT_OK;
}
