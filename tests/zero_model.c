/* zero_model.c -- see zero_model.h. */
#include "zero_model.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    size_t      count;
    int         layer;
    unsigned    flags;
} toys[TOYS] = {
    {"wte", 401, 0, 0},
    {"wpe", 99, 0, 0},
    {"l1.norm", 7, 1, HKT_PARAMETER_NO_DECAY},
    {"l1.weight", 640, 1, 0},
    {"l1.bias", 1, 1, HKT_PARAMETER_NO_DECAY},
    {"l2.norm", 7, 2, HKT_PARAMETER_NO_DECAY},
    {"l2.weight", 333, 2, 0},
    {"l2.bias", 64, 2, HKT_PARAMETER_NO_DECAY},
    {"l3.weight", 500, 3, 0},
    {"l3.bias", 65, 3, HKT_PARAMETER_NO_DECAY},
    {"final.norm", 31, 4, HKT_PARAMETER_NO_DECAY},
    {"head", 700, 4, 0},
};

size_t toy_elements(void)
{
    size_t sum = 0;

    for (int i = 0; i < TOYS; i++)
        sum += toys[i].count;
    return sum;
}

static float number(uint64_t a, uint64_t b, uint64_t c)
{
    return (float)(mix(mix(mix(a) + b) + c) % 20001) * 1e-4f - 1; /* -1 to 1 */
}

static float half_value(uint16_t h)
{
    const float magnitude =
        (h >> 10 & 31) ? ldexpf((float)((h & 1023) | 1024), (h >> 10 & 31) - 25) : ldexpf((float)(h & 1023), -24);
    return h & 0x8000 ? -magnitude : magnitude;
}

static float weight_of(const void *w, size_t i, hkt_type_t type)
{
    if (type == HKT_FLOAT32)
        return ((const float *)w)[i];
    const uint16_t h = ((const uint16_t *)w)[i];
    const uint32_t u = (uint32_t)h << 16;
    float          x;
    memcpy(&x, &u, sizeof x);
    return type == HKT_BFLOAT16 ? x : half_value(h);
}

void toy_make(struct toy *t, struct rank *me, const struct way *w, hkt_ledger_t *ledger)
{
    hkt_zero_config_t c  = HKT_ZERO_CONFIG_INIT;
    size_t            at = 0;
    float             initial[TOY_ELEMENTS];

    *t          = (struct toy){.rank          = me->rank,
                               .comm          = me->comm,
                               .equal         = w->equal,
                               .micro_batches = w->micro_batches ? w->micro_batches : 3};
    t->weight   = w->weight ? w->weight : HKT_FLOAT32;
    t->gradient = w->gradient ? w->gradient : HKT_FLOAT32;
    for (int i = 0; i < TOYS; i++) {
        t->parameter[i] = (hkt_parameter_t){toys[i].name, toys[i].count, toys[i].flags};
        t->group[i]     = toys[i].layer;
        t->at[i]        = at;
        at += toys[i].count;
    }
    c.stage               = w->stage;
    c.weight              = t->weight;
    c.reduce              = w->reduce;
    c.buckets.type        = t->gradient;
    c.buckets.bytes       = w->bytes;
    c.buckets.first_bytes = w->bytes / 3;
    c.groups              = t->group;
    c.live                = w->live;
    c.late                = w->late;
    c.tier                = w->tier;
    c.path                = w->path;
    c.resume              = w->resume;
    c.tile                = w->tile;
    c.threads             = w->threads;
    c.freeze              = w->freeze;
    c.buckets.codec       = w->freeze ? "onebit:block=64" : NULL;
    expect_ok(hkt_zero_create(&t->zero, t->parameter, TOYS, me->comm, &c, ledger));
    if (w->resume)
        return;
    for (int i = 0; i < TOYS; i++) {
        for (size_t e = 0; e < toys[i].count; e++)
            initial[e] = number(77, (uint64_t)i, e);
        expect_ok(hkt_zero_put(t->zero, i, HKT_ZERO_MASTER, 0, toys[i].count, initial));
    }
    expect_ok(hkt_zero_loaded(t->zero));
}

void toy_free(struct toy *t)
{
    expect_ok(hkt_zero_destroy(t->zero));
}

static void add_gradient(struct toy *t, int i, int micro)
{
    void *g, *w;
    float values[TOY_ELEMENTS];

    expect_ok(hkt_zero_weight(&w, i, t->zero));
    for (size_t e = 0; e < toys[i].count; e++) {
        if (t->equal)
            values[e] = (float)((int)(mix((uint64_t)(t->step * 4 + micro) * 4096 + (uint64_t)i * 512 + e) % 9) - 4);
        else
            values[e] = number((uint64_t)(t->rank * 100 + t->step * 10 + micro), (uint64_t)i, e) +
                        0.125f * weight_of(w, e, t->weight);
        if (t->poison && ((i == 7 && e == 3) || (i == 3 && e == 100)) && micro == 0)
            values[e] = INFINITY;
    }
    expect_ok(hkt_zero_gradient(&g, i, t->zero));
    if (t->gradient == HKT_FLOAT32)
        for (size_t e = 0; e < toys[i].count; e++)
            ((float *)g)[e] += values[e];
    else
        expect_ok(hkt_buckets_add(hkt_zero_buckets(t->zero), i, 0, values, toys[i].count, HKT_FLOAT32));
    expect_ok(hkt_zero_ready(t->zero, i));
}

void toy_step(struct toy *t, hkt_zero_report_t *report)
{
    hkt_adamw_t       o = HKT_ADAMW_INIT;
    hkt_zero_report_t r;

    o.rate  = 0.01;
    o.clip  = 5;
    o.scale = 0.5;
    expect_ok(hkt_zero_begin(t->zero, t->micro_batches));
    for (int m = 0; m < t->micro_batches; m++) {
        for (int g = 0; g < LAYERS; g++) {
            expect_ok(hkt_zero_fetch(t->zero, g));
            expect_ok(hkt_zero_release(t->zero, g));
        }
        for (int g = LAYERS - 1; g >= 0; g--) {
            expect_ok(hkt_zero_fetch(t->zero, g));
            for (int i = TOYS - 1; i >= 0; i--)
                if (t->group[i] == g)
                    add_gradient(t, i, m);
            expect_ok(hkt_zero_release(t->zero, g));
        }
        expect_ok(hkt_zero_next(t->zero));
    }
    expect_ok(hkt_zero_step(report ? report : &r, t->zero, &o));
    t->step++;
}

void toy_state(struct result *r, struct toy *t)
{
    hkt_zero_piece_t piece;

    memset(r->state, 0, sizeof r->state);
    for (int k = 0; hkt_zero_piece(&piece, k, t->zero) == HKT_OK; k++)
        for (int kind = 0; kind < HKT_ZERO_KINDS; kind++)
            expect_ok(hkt_zero_get(r->state[kind] + t->at[piece.parameter] + piece.first, piece.parameter,
                                   (hkt_zero_kind_t)kind, piece.first, piece.count, t->zero));
    if (t->comm) /* bits, in which the others have zeros */
        expect_ok(
            hkt_all_reduce(r->state, r->state, sizeof r->state / sizeof(int32_t), HKT_INT32, HKT_SUM, t->comm, NULL));
}

size_t toy_largest_bucket(struct toy *t)
{
    hkt_bucket_info_t info;
    size_t            largest = 0;

    for (int k = 0; k < hkt_buckets_count(hkt_zero_buckets(t->zero)); k++) {
        expect_ok(hkt_buckets_info(&info, k, hkt_zero_buckets(t->zero)));
        largest = info.count > largest ? info.count : largest;
    }
    return largest;
}

size_t toy_largest_group(struct toy *t)
{
    hkt_bucket_info_t info;
    size_t            sum[LAYERS] = {0}, largest = 0;

    for (int k = 0, position = 0; k < hkt_buckets_count(hkt_zero_buckets(t->zero)); k++) {
        int parameter;
        expect_ok(hkt_buckets_info(&info, k, hkt_zero_buckets(t->zero)));
        expect_ok(hkt_buckets_parameter(&parameter, position, hkt_zero_buckets(t->zero)));
        position += info.parameters;
        sum[t->group[parameter]] += info.count;
    }
    for (int g = 0; g < LAYERS; g++)
        largest = sum[g] > largest ? sum[g] : largest;
    return largest;
}

void result_of(struct result *r, struct rank *me, const struct way *w)
{
    hkt_zero_report_t report;
    struct toy        t;

    memset(r, 0, sizeof *r);
    toy_make(&t, me, w, NULL);
    for (int step = 0; step < TOY_STEPS; step++) {
        toy_step(&t, &report);
        r->norm[step]    = report.norm;
        r->clipped[step] = report.clipped;
    }
    toy_state(r, &t);
    toy_free(&t);
}
