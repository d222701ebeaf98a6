/* bucket_layout.c -- see bucket_layout.h. The rules are those of Megatron-LM's buffers (research: parameters in the
 * order of the backward pass, a bucket closed by the parameter that fills it, shared embeddings alone, ends padded so
 * that n equal pieces exist), so that pieces ignore the borders of parameters and every rank has the same work. */
#include <parallel/bucket_layout.h>

#include <stdlib.h>
#include <string.h>

static size_t gcd(size_t a, size_t b)
{
    while (b) {
        const size_t rest = a % b;
        a                 = b;
        b                 = rest;
    }
    return a;
}

static size_t round_up(size_t x, size_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Fills order[]: the given one when it is a permutation, else last to first. */
static int arrange(struct hkt_flat *l, const int *order)
{
    if (!order) {
        for (int i = 0; i < l->parameters; i++)
            l->order[i] = l->parameters - 1 - i;
        return HKT_OK;
    }
    for (int i = 0; i < l->parameters; i++)
        l->bucket[i] = -1; /* not seen */
    for (int i = 0; i < l->parameters; i++) {
        const int p = order[i];
        if (p < 0 || p >= l->parameters || l->bucket[p] >= 0)
            return hkt_error_set(
                HKT_ERR_ARGUMENT, "the order of %d parameters has %s %d at place %d; it must name each once",
                l->parameters, p < 0 || p >= l->parameters ? "the invalid index" : "a second time the index", p, i);
        l->bucket[p] = i;
        l->order[i]  = p;
    }
    return HKT_OK;
}

static void close_bucket(struct hkt_flat *l, struct hkt_flat_bucket *b, size_t end, size_t unit)
{
    b->count = round_up(end - b->first, unit);
    l->total = b->first + b->count;
    l->buckets++;
}

static void cut(struct hkt_flat *l, const hkt_parameter_t *parameters, const struct hkt_flat_rule *rule)
{
    const size_t n = (size_t)rule->ranks, unit = rule->alignment / gcd(rule->alignment, n) * n;
    size_t       end  = 0;
    bool         open = false;

    for (int i = 0; i < l->parameters; i++) {
        const int               p = l->order[i], group = rule->groups ? rule->groups[p] : 0;
        const bool              alone = parameters[p].flags & HKT_PARAMETER_SHARED;
        struct hkt_flat_bucket *b     = &l->cut[l->buckets];

        if (open && (alone || b->group != group)) {
            close_bucket(l, b++, end, unit);
            open = false;
        }
        if (!open) {
            *b  = (struct hkt_flat_bucket){.first = l->total, .position = i, .group = group, .same = -1};
            end = l->total;
        }
        l->at[p]     = round_up(end - b->first, rule->alignment) + b->first;
        l->bucket[p] = l->buckets;
        end          = l->at[p] + parameters[p].count;
        b->parameters++;
        open = !alone && end - b->first < (l->buckets ? rule->limit : rule->first_limit);
        if (!open)
            close_bucket(l, b, end, unit);
    }
    if (open)
        close_bucket(l, &l->cut[l->buckets], end, unit);
}

/* Moves a bucket and its parameters to where the space ends. */
static void place(struct hkt_flat *l, struct hkt_flat_bucket *b)
{
    for (int i = b->position; i < b->position + b->parameters; i++)
        l->at[l->order[i]] = l->at[l->order[i]] - b->first + l->total;
    b->first = l->total;
    l->total += b->count;
}

/* Finds the copies of what is here, too, and puts them last. */
static int part_copies(struct hkt_flat *l, const hkt_parameter_t *parameters)
{
    const unsigned copy = HKT_PARAMETER_SHARED | HKT_PARAMETER_COPY;

    for (int p = 0; p < l->parameters; p++)
        for (int q = 0; (parameters[p].flags & copy) == copy && q < l->parameters; q++) {
            if (q == p || parameters[q].flags & HKT_PARAMETER_COPY ||
                strcmp(parameters[p].name, parameters[q].name) != 0)
                continue;
            if (parameters[p].count != parameters[q].count || !(parameters[q].flags & HKT_PARAMETER_SHARED))
                return hkt_error_set(
                    HKT_ERR_ARGUMENT,
                    "\"%s\" and its copy must have as many elements, not %zu and %zu, and both be flagged "
                    "HKT_PARAMETER_SHARED",
                    parameters[p].name, parameters[q].count, parameters[p].count);
            l->cut[l->bucket[p]].same = l->bucket[q];
        }
    l->total = 0;
    for (int k = 0; k < l->buckets; k++)
        if (l->cut[k].same < 0)
            place(l, &l->cut[k]);
    l->main = l->total;
    for (int k = 0; k < l->buckets; k++)
        if (l->cut[k].same >= 0)
            place(l, &l->cut[k]);
    return HKT_OK;
}

int hkt_flat_make(struct hkt_flat *layout, const hkt_parameter_t *parameters, int count,
                  const struct hkt_flat_rule *rule)
{
    const size_t    n = (size_t)count;
    struct hkt_flat l = {.parameters = count, .ranks = rule->ranks};

    l.order  = calloc(n + 1, sizeof *l.order);
    l.at     = calloc(n + 1, sizeof *l.at);
    l.bucket = calloc(n + 1, sizeof *l.bucket);
    l.size   = calloc(n + 1, sizeof *l.size);
    l.cut    = calloc(n + 1, sizeof *l.cut);
    int rc   = HKT_OK;
    if (!l.order || !l.at || !l.bucket || !l.size || !l.cut)
        rc = hkt_error_set(HKT_ERR_MEMORY, "no memory for the layout of %d parameters", count);
    else
        rc = arrange(&l, rule->order);
    if (rc == HKT_OK) {
        for (int i = 0; i < count; i++)
            l.size[i] = parameters[i].count;
        cut(&l, parameters, rule);
        rc = part_copies(&l, parameters);
    }
    if (rc < 0) {
        hkt_flat_free(&l);
        return rc;
    }
    *layout = l;
    return HKT_OK;
}

void hkt_flat_free(struct hkt_flat *layout)
{
    free(layout->order);
    free(layout->at);
    free(layout->bucket);
    free(layout->size);
    free(layout->cut);
    *layout = (struct hkt_flat){0};
}

struct hkt_flat_piece hkt_flat_within(const struct hkt_flat *layout, int parameter, size_t from, size_t to)
{
    const size_t begin = layout->at[parameter], end = begin + layout->size[parameter];
    const size_t a = begin > from ? begin : from, b = end < to ? end : to;

    if (a >= b)
        return (struct hkt_flat_piece){.parameter = parameter, .at = a};
    return (struct hkt_flat_piece){parameter, a - begin, b - a, a};
}

size_t hkt_flat_shard(const struct hkt_flat *layout, int bucket, int rank)
{
    const struct hkt_flat_bucket *b = &layout->cut[bucket];
    return b->first + (size_t)rank * (b->count / (size_t)layout->ranks);
}
