/* pipeline_order.c -- the schedules: in which order a stage computes.
 *
 * All kinds are one pattern over two sequences, the forwards F and the backwards B of a stage: w forwards (the
 * warm-up), then F and B by turns, then the remaining B. They differ in w and in the sequences' order of chunks:
 *
 *   gpipe         w = m v: all forwards first; chunk after chunk over all micro-batches
 *   1f1b          w = min(p - 1 - r, m) on stage r
 *   interleaved   w = min(2 (p - 1 - r) + (v - 1) g, m v); g micro-batches of chunk 0, the same of chunk 1, ...
 *   zero-bubble   as 1f1b, B without the weight gradient W; W of a micro-batch follows r B later, so that every stage
 * keeps p activations at most and the last stages have work left for the end (ZB-H1 of Qi et al. 2023) forward       w
 * = m v without B
 *
 * Micro-batches of a chunk go backward in the order they went forward, whatever the kind: gradients are added up in one
 * order. */
#include <parallel/pipeline.h>
#include <parallel/rules.h>

#include <string.h>

static const char *const kind_name[HKT_PIPELINES] = {
    [HKT_PIPELINE_GPIPE]       = "gpipe",
    [HKT_PIPELINE_1F1B]        = "1f1b",
    [HKT_PIPELINE_INTERLEAVED] = "interleaved",
    [HKT_PIPELINE_ZERO_BUBBLE] = "zero-bubble",
    [HKT_PIPELINE_FORWARD]     = "forward",
};

enum {
    MOST_STAGES = 1 << 14,
    MOST_CHUNKS = 1 << 10,
    MOST_MICROS = 1 << 20,
    MOST_OPS    = 1 << 28
}; /* so that products fit an int */

const char *hkt_pipeline_name(hkt_pipeline_kind_t kind)
{
    return (unsigned)kind < HKT_PIPELINES ? kind_name[kind] : "?";
}

int hkt_pipeline_kind(hkt_pipeline_kind_t *kind, const char *name)
{
    if (!kind || !name)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_pipeline_kind: %s is NULL", kind ? "name" : "kind");
    for (int k = 0; k < HKT_PIPELINES; k++)
        if (!strcmp(name, kind_name[k])) {
            *kind = (hkt_pipeline_kind_t)k;
            return HKT_OK;
        }
    return hkt_error_set(HKT_ERR_ARGUMENT,
                         "\"%.40s\" is no pipeline schedule; gpipe, 1f1b, interleaved, zero-bubble or forward", name);
}

/* ---- what is allowed --------------------------------------------------------------------------------------------- */

static int group_of(const hkt_pipeline_shape_t *s)
{
    switch (s->kind) {
    case HKT_PIPELINE_INTERLEAVED:
        return s->group ? s->group : s->stages;
    case HKT_PIPELINE_FORWARD:
        return s->stages;
    default:
        return s->micros;
    }
}

/* The last group of micro-batches is whole, or has at least one for every stage: else a chunk would wait for the one
 * before. */
static bool group_fits(const hkt_pipeline_shape_t *s, int group)
{
    return group >= s->stages && group <= s->micros && (s->micros % group == 0 || s->micros % group >= s->stages);
}

static void check_group(struct hkt_rules *rules, const hkt_pipeline_shape_t *s)
{
    const int m = s->micros / s->stages * s->stages;
    int       n = 0;

    if (group_fits(s, group_of(s)))
        return;
    hkt_rules_add(
        rules,
        "%d micro-batches in groups of %d over %d stages (valid: micro-batches a multiple of the stages, such as ",
        s->micros, group_of(s), s->stages);
    if (m)
        hkt_rules_more(rules, "%d or ", m);
    hkt_rules_more(rules, "%d", m + s->stages);
    for (int g = s->stages; g <= s->micros && n < 8; g++)
        if (group_fits(s, g))
            hkt_rules_more(rules, "%s%d", n++ ? ", " : "; or groups of ", g);
    hkt_rules_more(rules, ")");
}

static void check_limit(struct hkt_rules *rules, const char *what, int value, int most)
{
    if (value < 1 || value > most)
        hkt_rules_add(rules, "%d %s (valid: 1 to %d)", value, what, most);
}

int hkt_pipeline_validate(const hkt_pipeline_shape_t *s)
{
    struct hkt_rules rules = {0};

    if (!s)
        return hkt_error_set(HKT_ERR_ARGUMENT, "the shape of the pipeline is NULL");
    if ((unsigned)s->kind >= HKT_PIPELINES)
        hkt_rules_add(&rules, "schedule %d (valid: gpipe 0, 1f1b 1, interleaved 2, zero-bubble 3, forward 4)",
                      (int)s->kind);
    check_limit(&rules, "stages", s->stages, MOST_STAGES);
    check_limit(&rules, "chunks", s->chunks, MOST_CHUNKS);
    check_limit(&rules, "micro-batches", s->micros, MOST_MICROS);
    if (s->group && s->kind != HKT_PIPELINE_INTERLEAVED)
        hkt_rules_add(&rules, "groups of %d with schedule %s (valid: 0; only interleaved has groups)", s->group,
                      hkt_pipeline_name(s->kind));
    if (s->group < 0)
        hkt_rules_add(&rules, "groups of %d (valid: 0, or as many as stages or more)", s->group);
    if (s->chunks > 1 && s->stages == 1)
        hkt_rules_add(&rules, "%d chunks on 1 stage (valid: 1 chunk, or more stages)", s->chunks);
    if (s->chunks > 1 && (s->kind == HKT_PIPELINE_1F1B || s->kind == HKT_PIPELINE_ZERO_BUBBLE))
        hkt_rules_add(&rules, "%d chunks with schedule %s (valid: 1, or schedule interleaved)", s->chunks,
                      hkt_pipeline_name(s->kind));
    if (s->kind == HKT_PIPELINE_INTERLEAVED && !rules.broken)
        check_group(&rules, s);
    if (!rules.broken && (int64_t)s->stages * s->chunks * s->micros > MOST_OPS)
        hkt_rules_add(&rules, "%d stages of %d chunks and %d micro-batches (valid: a product of at most %d)", s->stages,
                      s->chunks, s->micros, MOST_OPS);
    return hkt_rules_end(&rules, "the pipeline");
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

static int warm_up(const hkt_pipeline_shape_t *s, int stage)
{
    const int all = s->micros * s->chunks, after = s->stages - 1 - stage;
    int       w = all;

    if (s->kind == HKT_PIPELINE_1F1B || s->kind == HKT_PIPELINE_ZERO_BUBBLE)
        w = after;
    if (s->kind == HKT_PIPELINE_INTERLEAVED)
        w = 2 * after + (s->chunks - 1) * group_of(s);
    return w < all ? w : all;
}

/* The k-th of the sequence of (chunk, micro): group after group, in a group chunk after chunk. Backward the chunks come
 * from behind. */
static hkt_instruction_t nth(const hkt_pipeline_shape_t *s, int k, hkt_action_t action)
{
    const int g     = group_of(s);
    const int first = k / (g * s->chunks) * g;                       /* micro-batch of the group */
    const int size  = s->micros - first < g ? s->micros - first : g; /* the last group may be smaller */
    const int in    = k - first * s->chunks;
    const int chunk = in / size;

    return (hkt_instruction_t){action, action == HKT_DO_FORWARD ? chunk : s->chunks - 1 - chunk, first + in % size, -1};
}

static void fill(hkt_instruction_t *to, const hkt_pipeline_shape_t *s, int stage)
{
    const bool         split = s->kind == HKT_PIPELINE_ZERO_BUBBLE;
    const hkt_action_t back  = split ? HKT_DO_BACKWARD_INPUT : HKT_DO_BACKWARD;
    const int          all = s->micros * s->chunks, w = warm_up(s, stage);
    int                weights = 0;

    for (int k = 0; k < all + w; k++) {
        if (k < all)
            *to++ = nth(s, k, HKT_DO_FORWARD);
        if (k < w || s->kind == HKT_PIPELINE_FORWARD)
            continue;
        *to++ = nth(s, k - w, back);
        if (split && k - w >= stage)
            *to++ = nth(s, weights++, HKT_DO_BACKWARD_WEIGHT);
    }
    while (split && weights < all)
        *to++ = nth(s, weights++, HKT_DO_BACKWARD_WEIGHT);
}

int hkt_order_make(struct hkt_order *order, const hkt_pipeline_shape_t *shape)
{
    void *op = NULL, *w = NULL;

    memset(order, 0, sizeof(*order));
    TRY(hkt_pipeline_validate(shape));
    order->shape = *shape;
    order->each  = (size_t)shape->micros * (size_t)shape->chunks * (size_t)hkt_pipeline_parts(shape->kind);
    TRY(hkt_ledger_take(&op, (size_t)shape->stages * order->each * sizeof(*order->op), HKT_BYTES_OTHER, false, NULL));
    order->op = op;
    TRY(hkt_ledger_take(&w, (size_t)shape->stages * sizeof(*order->warm_up), HKT_BYTES_OTHER, false, NULL));
    order->warm_up = w;
    for (int stage = 0; stage < shape->stages; stage++) {
        fill(order->op + (size_t)stage * order->each, shape, stage);
        order->warm_up[stage] = warm_up(shape, stage);
    }
    return HKT_OK;
}

void hkt_order_free(struct hkt_order *order)
{
    (void)hkt_ledger_give(order->warm_up, NULL);
    (void)hkt_ledger_give(order->op, NULL);
}
