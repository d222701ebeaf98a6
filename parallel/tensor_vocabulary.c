/* tensor_vocabulary.c -- the token table and the cross entropy, split by vocabulary over a tensor-parallel group.
 *
 * No rank ever holds all the logits of a row: three numbers per row are enough (Shoeybi et al. 2019), the largest
 * logit, and the sums over the vocabulary of e^(logit - largest) and of the target's logit, which all but one rank
 * count as 0. Label smoothing needs the sum of the logits as well, over the whole true vocabulary.
 *
 * Sums within a row are kept in LANES lanes and folded in a fixed order, so every instruction set gives the same bits.
 */
#include "exponential.h"
#include "isa.h"
#include "tensor.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

ISA_BODY float fold(const float lane[LANES])
{
    float sum[LANES];

    memcpy(sum, lane, sizeof(sum));
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            sum[k] += sum[k + half];
    return sum[0];
}

ISA_BODY float largest_body(const float *x, size_t count)
{
    float  lane[LANES];
    size_t i = 0;

    for (int k = 0; k < LANES; k++)
        lane[k] = -INFINITY;
    for (; i + LANES <= count; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] = x[i + (size_t)k] > lane[k] ? x[i + (size_t)k] : lane[k];
    for (; i < count; i++)
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    for (int k = 1; k < LANES; k++)
        lane[0] = lane[k] > lane[0] ? lane[k] : lane[0];
    return lane[0];
}

struct sums {
    float powers, logits; /* of e^(x - most) and of x - most */
};

/* x becomes e^(x - most). */
ISA_BODY struct sums powers_body(float *x, size_t count, float most)
{
    float  power[LANES] = {0}, logit[LANES] = {0};
    size_t i = 0;

    for (; i + LANES <= count; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const float difference = x[i + (size_t)k] - most, e = exponential(difference);

            x[i + (size_t)k] = e;
            power[k] += e;
            logit[k] += difference;
        }
    for (int k = 0; i < count; i++, k++) {
        logit[k] += x[i] - most;
        power[k] += x[i] = exponential(x[i] - most);
    }
    return (struct sums){fold(power), fold(logit)};
}

ISA_BODY void scale_body(float *x, size_t count, float factor, float offset)
{
    for (size_t i = 0; i < count; i++)
        x[i] = x[i] * factor - offset;
}

struct kernels {
    float (*largest)(const float *x, size_t count);
    struct sums (*powers)(float *x, size_t count, float most);
    void (*scale)(float *x, size_t count, float factor, float offset);
};

#define KERNELS(isa, target)                                                                                           \
    target static float largest_##isa(const float *x, size_t count)                                                    \
    {                                                                                                                  \
        return largest_body(x, count);                                                                                 \
    }                                                                                                                  \
    target static struct sums powers_##isa(float *x, size_t count, float most)                                         \
    {                                                                                                                  \
        return powers_body(x, count, most);                                                                            \
    }                                                                                                                  \
    target static void scale_##isa(float *x, size_t count, float factor, float offset)                                 \
    {                                                                                                                  \
        scale_body(x, count, factor, offset);                                                                          \
    }                                                                                                                  \
    static const struct kernels kernels_##isa = {largest_##isa, powers_##isa, scale_##isa};

KERNELS(portable, )
KERNELS(avx2, ISA_TARGET_AVX2)
KERNELS(avx512, ISA_TARGET_AVX512)

static const struct kernels *usable(void)
{
    static const struct kernels *const table[ISAS] = {&kernels_portable, &kernels_avx2, &kernels_avx512};

    return table[isa_usable()];
}

/* The part of the vocabulary that this rank holds. */
struct part {
    size_t first, padded; /* in the table */
    size_t size;          /* of these, the true ones */
};

static size_t true_ones(size_t first, size_t count, size_t size)
{
    return first >= size ? 0 : size - first < count ? size - first : count;
}

static struct part part_of(const hkt_vocabulary_t *v, const struct hkt_tensor *t)
{
    const size_t padded = v->padded / (size_t)t->n, first = padded * (size_t)t->me;

    return (struct part){first, padded, true_ones(first, padded, v->size)};
}

static bool holds(const struct part *p, int32_t token)
{
    return (size_t)token >= p->first && (size_t)token - p->first < p->size;
}

static int check(const hkt_vocabulary_t *v, const struct hkt_tensor *t)
{
    if (!t || !v || v->size == 0 || v->size > v->padded || v->size > INT32_MAX)
        return hkt_error_set(HKT_ERR_ARGUMENT, "a vocabulary of %zu, padded to %zu, or no tensor-parallel group",
                             v ? v->size : 0, v ? v->padded : 0);
    return tensor_divides("the padded vocabulary", v->padded, t);
}

static int check_rows(const hkt_vocabulary_t *v, const struct hkt_tensor *t)
{
    if (t->config.sequence && v->rows % (size_t)t->n)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%zu rows cannot be split over %d sequence-parallel ranks", v->rows,
                             t->n);
    return HKT_OK;
}

static int check_tokens(const int32_t *token, const float *weight, const char *what, const hkt_vocabulary_t *v)
{
    for (size_t i = 0; i < v->rows; i++)
        if ((token[i] < 0 || (size_t)token[i] >= v->size) && !(weight && weight[i] == 0))
            return hkt_error_set(HKT_ERR_ARGUMENT, "%s %d of row %zu is outside of the vocabulary of %zu", what,
                                 (int)token[i], i, v->size);
    return HKT_OK;
}

int hkt_embedding_forward(void *y, const void *table, const int32_t *token, const hkt_vocabulary_t *v, hkt_tensor_t *t)
{
    TRY(check(v, t));
    TRY(check_rows(v, t));
    TRY(check_tokens(token, NULL, "token", v));
    const struct part p   = part_of(v, t);
    const size_t      run = v->width * t->element, count = v->rows * v->width;
    const bool        split = t->config.sequence && t->n > 1;
    void             *whole = y;

    if (split)
        TRY(tensor_scratch(&whole, count * t->element, SCRATCH_PARTIAL, t));
    for (size_t i = 0; i < v->rows; i++)
        if (holds(&p, token[i]))
            memcpy((char *)whole + i * run, (const char *)table + ((size_t)token[i] - p.first) * run, run);
        else
            memset((char *)whole + i * run, 0, run);
    return split ? tensor_reduce_rows(y, whole, count, NULL, t) : tensor_all_reduce(y, count, NULL, t);
}

static void add_row(float *restrict to, const void *restrict from, size_t count, hkt_type_t type)
{
    const uint16_t *half   = from;
    const float    *single = from;

    if (type == HKT_FLOAT32) {
        for (size_t i = 0; i < count; i++)
            to[i] += single[i];
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)half[i] << 16;
        float          x;

        memcpy(&x, &bits, sizeof(x));
        to[i] += x;
    }
}

int hkt_embedding_backward(float *dtable, const void *dy, const int32_t *token, const hkt_vocabulary_t *v,
                           hkt_tensor_t *t)
{
    TRY(check(v, t));
    TRY(check_rows(v, t));
    const struct part p     = part_of(v, t);
    const size_t      count = v->rows * v->width;
    const void       *whole = dy;

    if (t->config.sequence && t->n > 1) {
        void *gathered;

        TRY(tensor_scratch(&gathered, count * t->element, SCRATCH_GATHERED, t));
        TRY(tensor_gather_rows(gathered, dy, count, NULL, t));
        whole = gathered;
    }
    for (size_t i = 0; i < v->rows; i++)
        if (token[i] >= 0 && holds(&p, token[i]))
            add_row(dtable + ((size_t)token[i] - p.first) * v->width, (const char *)whole + i * v->width * t->element,
                    v->width, t->config.type);
    return HKT_OK;
}

/* One call of the cross entropy. Per row, sums holds the powers' and the target's and, with smoothing, the logits'. */
struct entropy {
    const hkt_vocabulary_t *v;
    struct hkt_tensor      *t;
    const struct kernels   *k;
    struct part             part;
    float                  *logits, *most, *sums;
    const int32_t          *target;
    const float            *weight;
    float                   smoothing, scale;
    size_t                  per_row;
};

/* The powers of one row, slice by slice when there are any; the sums of slices are added in a tree. */
static struct sums row_powers(const struct entropy *e, float *x, float most)
{
    struct sums  level[TREE_LEVELS] = {{0, 0}};
    const size_t slices = e->t->local_slices, width = e->part.padded / slices;
    int          depth = 0;

    for (size_t i = 0; i < slices; i++) {
        struct sums sum = e->k->powers(x + i * width, true_ones(i * width, width, e->part.size), most);

        for (size_t done = i; done & 1; done >>= 1) { /* two subtrees of the same size become one */
            depth--;
            sum.powers = level[depth].powers + sum.powers;
            sum.logits = level[depth].logits + sum.logits;
        }
        level[depth++] = sum;
    }
    return level[0];
}

static void powers(const struct entropy *e)
{
    for (size_t i = 0; i < e->v->rows; i++) {
        float *x = e->logits + i * e->part.padded, *sum = e->sums + i * e->per_row;

        sum[1]              = holds(&e->part, e->target[i]) ? x[(size_t)e->target[i] - e->part.first] - e->most[i] : 0;
        const struct sums s = row_powers(e, x, e->most[i]);

        sum[0] = s.powers;
        if (e->per_row == 3)
            sum[2] = s.logits;
    }
}

static double row_loss(const struct entropy *e, const float *sum)
{
    const double whole = log((double)sum[0]), chosen = whole - (double)sum[1], epsilon = (double)e->smoothing;

    return e->per_row == 3 ? (1 - epsilon) * chosen + epsilon * (whole - (double)sum[2] / (double)e->v->size) : chosen;
}

static double gradients(const struct entropy *e)
{
    double loss = 0;

    for (size_t i = 0; i < e->v->rows; i++) {
        float      *x = e->logits + i * e->part.padded, *sum = e->sums + i * e->per_row;
        const float weight = e->weight ? e->weight[i] : 1, scale = weight * e->scale;

        memset(x + e->part.size, 0, (e->part.padded - e->part.size) * sizeof(float));
        if (weight == 0) {
            memset(x, 0, e->part.size * sizeof(float));
            continue;
        }
        loss += (double)weight * row_loss(e, sum);
        e->k->scale(x, e->part.size, scale / sum[0], scale * e->smoothing / (float)e->v->size);
        if (holds(&e->part, e->target[i]))
            x[(size_t)e->target[i] - e->part.first] -= scale * (1 - e->smoothing);
    }
    return loss;
}

int hkt_cross_entropy(double *loss, float *logits, const int32_t *target, const float *weight, float smoothing,
                      float scale, const hkt_vocabulary_t *v, hkt_tensor_t *t)
{
    TRY(check(v, t));
    TRY(check_tokens(target, weight, "target", v));
    const size_t per_row = smoothing > 0 ? 3 : 2;
    void        *memory;

    TRY(tensor_scratch(&memory, v->rows * 4 * sizeof(float), SCRATCH_SUMS, t));
    const struct entropy e = {.v         = v,
                              .t         = t,
                              .k         = usable(),
                              .part      = part_of(v, t),
                              .logits    = logits,
                              .most      = memory,
                              .sums      = (float *)memory + v->rows,
                              .target    = target,
                              .weight    = weight,
                              .smoothing = smoothing,
                              .scale     = scale,
                              .per_row   = per_row};

    for (size_t i = 0; i < v->rows; i++)
        e.most[i] = e.k->largest(logits + i * e.part.padded, e.part.size);
    if (t->n > 1)
        TRY(hkt_all_reduce(e.most, e.most, v->rows, HKT_FLOAT32, HKT_MAX, t->config.comm, NULL));
    powers(&e);
    if (t->n > 1)
        TRY(hkt_all_reduce(e.sums, e.sums, v->rows * per_row, HKT_FLOAT32, HKT_SUM, t->config.comm, NULL));
    *loss = gradients(&e);
    return HKT_OK;
}
