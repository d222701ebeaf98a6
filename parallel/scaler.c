/* scaler.c -- loss scaling: a state machine, and the agreement of the ranks on whether a step overflowed.
 *
 * The machine is Megatron-LM's: the hysteresis is refilled when the scale grows, not by a good step. That all ranks see
 * the same events is what keeps their scales equal; nothing is sent to compare scales. */
#include <parallel/adamw.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hkt_scaler {
    hkt_scaler_config_t config;
    hkt_scaler_state_t  state;
};

static int check(const hkt_scaler_config_t *c)
{
    const struct {
        const char *name;
        double      value, low, high;
    } limits[] = {
        {"least", c->least, 0x1p-126, 0x1p127}, {"initial", c->initial, c->least, 0x1p127},
        {"growth", c->growth, 1, 65536},        {"backoff", c->backoff, 0x1p-16, 1},
        {"interval", c->interval, 1, HUGE_VAL}, {"hysteresis", c->hysteresis, 1, HUGE_VAL},
        {"patience", c->patience, 0, HUGE_VAL},
    };

    if (c->size != sizeof *c)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_scaler_config_t has size %zu instead of %zu; begin with HKT_SCALER_CONFIG_INIT",
                             c->size, sizeof *c);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (!(limits[i].value >= limits[i].low && limits[i].value <= limits[i].high))
            return hkt_error_set(HKT_ERR_ARGUMENT, "loss scaler: %s is %g and must be in [%g, %g]", limits[i].name,
                                 limits[i].value, limits[i].low, limits[i].high);
    return HKT_OK;
}

static void overflowed(struct hkt_scaler *s)
{
    hkt_scaler_state_t *t     = &s->state;
    const bool          least = !s->config.dynamic || t->scale <= s->config.least;

    t->skipped++;
    t->stuck  = least ? t->stuck + 1 : 0;
    t->growth = 0;
    if (s->config.dynamic && --t->hysteresis <= 0) {
        t->hysteresis = 0;
        t->scale      = fmax(t->scale * s->config.backoff, s->config.least);
    }
}

static void went_well(struct hkt_scaler *s)
{
    hkt_scaler_state_t *t = &s->state;

    t->stuck = 0;
    if (!s->config.dynamic || ++t->growth < s->config.interval)
        return;
    t->growth     = 0;
    t->hysteresis = s->config.hysteresis;
    t->scale      = fmin(t->scale * s->config.growth, 0x1p127);
}

int hkt_scaler_create(hkt_scaler_t **scaler, const hkt_scaler_config_t *config)
{
    const hkt_scaler_config_t usual = HKT_SCALER_CONFIG_INIT, *c = config ? config : &usual;

    if (!scaler)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_scaler_create: scaler is NULL");
    TRY(check(c));
    hkt_scaler_t *s = calloc(1, sizeof *s);
    if (!s)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for a loss scaler");
    s->config = *c;
    s->state  = (hkt_scaler_state_t){.scale = c->initial, .hysteresis = c->hysteresis};
    *scaler   = s;
    return HKT_OK;
}

int hkt_scaler_destroy(hkt_scaler_t *scaler)
{
    free(scaler);
    return HKT_OK;
}

double hkt_scaler_scale(const hkt_scaler_t *scaler)
{
    return scaler ? scaler->state.scale : 1;
}

int hkt_scaler_update(hkt_scaler_t *scaler, bool overflow, const char *tensor)
{
    if (!scaler)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_scaler_update: scaler is NULL");
    if (!overflow) {
        went_well(scaler);
        return HKT_OK;
    }
    overflowed(scaler);
    const hkt_scaler_state_t *t = &scaler->state;
    if (!scaler->config.patience || t->stuck < scaler->config.patience)
        return HKT_OK;
    return hkt_error_set(
        HKT_ERR_USAGE,
        "%d steps in a row had infinite or NaN gradients at the %s loss scale %g, the last first in tensor \"%s\" "
        "(%llu steps skipped in all): the model diverges or the data is broken; look at that tensor, lower the "
        "learning rate, or use bf16",
        t->stuck, scaler->config.dynamic ? "least" : "static", t->scale, tensor ? tensor : "?",
        (unsigned long long)t->skipped);
}

int hkt_scaler_get(hkt_scaler_state_t *state, const hkt_scaler_t *scaler)
{
    if (!state || !scaler)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_scaler_get: state or scaler is NULL");
    *state = scaler->state;
    return HKT_OK;
}

int hkt_scaler_set(hkt_scaler_t *scaler, const hkt_scaler_state_t *state)
{
    if (!scaler || !state)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_scaler_set: scaler or state is NULL");
    const hkt_scaler_config_t *c = &scaler->config;
    if (!(state->scale >= c->least && state->scale <= 0x1p127) || state->growth < 0 || state->growth >= c->interval ||
        state->hysteresis < 0 || state->hysteresis > c->hysteresis || state->stuck < 0)
        return hkt_error_set(
            HKT_ERR_ARGUMENT,
            "a loss scaler with least %g, interval %d and hysteresis %d cannot have scale %g, %d good steps, %d "
            "overflows left and %d steps stuck; was it saved with other options?",
            c->least, c->interval, c->hysteresis, state->scale, state->growth, state->hysteresis, state->stuck);
    scaler->state = *state;
    return HKT_OK;
}

int hkt_find_nonfinite(size_t *index, const void *values, size_t count, hkt_type_t type)
{
    if (!index || (!values && count) || !hkt_is_float_type(type))
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_find_nonfinite: %s",
                             !hkt_is_float_type(type) ? "the type is not float32, bfloat16 or float16"
                                                      : "index or values is NULL");
    struct hkt_exact unused = {{0}};
    *index                  = hkt_float_squares(&unused, values, type, count);
    return HKT_OK;
}

int hkt_scaler_agree(hkt_overflow_t *overflow, bool saw, const char *tensor, size_t element, hkt_comm_t *comm)
{
    hkt_overflow_t seen    = {.overflow = saw, .element = saw ? element : 0};
    int64_t        highest = 0; /* rank that saw one, + 1 */

    if (!overflow)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_scaler_agree: overflow is NULL");
    if (saw)
        (void)snprintf(seen.tensor, sizeof seen.tensor, "%s", tensor ? tensor : "?");
    if (comm) {
        TRY(hkt_comm_rank(comm, &seen.rank));
        highest = saw ? seen.rank + 1 : 0;
        TRY(hkt_all_reduce(&highest, &highest, 1, HKT_INT64, HKT_MAX, comm, NULL));
        if (highest)
            TRY(hkt_broadcast(&seen, &seen, sizeof seen, HKT_UINT8, (int)(highest - 1), comm, NULL));
        else
            seen.rank = 0;
    }
    *overflow = seen;
    return HKT_OK;
}
