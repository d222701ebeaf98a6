/* codec_table.c -- all codecs and the loops around them for one instruction set; compiled once for each, with
 * -DHKT_ISA=name.
 *
 * The codecs are headers so that their loops get the flags of the set. A new one is a header and a line in CODECS.
 */
#include "codec_numbers.h"

#include "codec_float.h"
#include "codec_integer.h"
#include "codec_powersgd.h"
#include "codec_sign.h"
#include "codec_topk.h"

#define CODECS(X)                                                                                                      \
    X(fp16)                                                                                                            \
    X(bf16)                                                                                                            \
    X(fp8)                                                                                                             \
    X(int8)                                                                                                            \
    X(int4)                                                                                                            \
    X(qsgd)                                                                                                            \
    X(terngrad)                                                                                                        \
    X(onebit)                                                                                                          \
    X(topk)                                                                                                            \
    X(powersgd)

static const struct codec *const table[] = {
#define CODEC_ENTRY(name) &codec_##name,
    CODECS(CODEC_ENTRY)
#undef CODEC_ENTRY
        NULL};

static void load(float *restrict x, const float *restrict g, const float *restrict e, size_t count)
{
    if (e)
        for (size_t i = 0; i < count; i++)
            x[i] = g[i] + e[i];
    else
        memcpy(x, g, count * sizeof(float));
    memset(x + count, 0, (codec_groups(count) - count) * sizeof(float));
}

static void load_units(float *restrict x, const struct codec_units *g, const float *restrict e, size_t count)
{
    const float *restrict from = g->x, *restrict unit = g->unit;

    for (size_t i = 0; i < count; i++)
        x[i] = from[i] * unit[i] + e[i];
    memset(x + count, 0, (codec_groups(count) - count) * sizeof(float));
}

static void divide_units(float *restrict x, const float *restrict u, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float quotient = x[i] / u[i];

        x[i] = u[i] > 0 ? quotient : 0;
    }
}

static void add(float *restrict sum, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += x[i];
}

static void divide(float *x, float divisor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] /= divisor;
}

/* e and x may be the same. */
static void keep(float *e, const float *x, const float *restrict d, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float lost = x[i] - d[i];

        e[i] = (bits_of(lost) & magnitude_mask) < infinity_bits ? lost : 0;
    }
}

static size_t bad(const float *x, size_t count)
{
    size_t at = 0;

    for (; at + CODEC_TILE <= count; at += CODEC_TILE)
        if (largest(x + at, CODEC_TILE) >= infinity_bits)
            break;
    while (at < count && (bits_of(x[at]) & magnitude_mask) < infinity_bits)
        at++;
    return at;
}

static float dot(const float *restrict a, const float *restrict b, size_t count)
{
    const size_t whole       = count / LANES * LANES;
    float        lane[LANES] = {0};

    for (size_t i = 0; i < whole; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += a[i + (size_t)l] * b[i + (size_t)l];
    for (size_t i = whole; i < count; i++)
        lane[i - whole] += a[i] * b[i];
    return sum_lanes(lane);
}

static void add_scaled(float *restrict y, float a, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] += a * x[i];
}

static void freeze(float *restrict m, float *restrict v, const struct hkt_adamw_numbers *a, size_t count)
{
    const float root = a->root, epsilon = a->epsilon;

    for (size_t i = 0; i < count; i++) {
        const float inverse = 1 / (sqrtf(v[i]) * root + epsilon);

        v[i] = v[i] > 0 ? inverse : 0;
        m[i] *= v[i];
    }
}

static void blend(float *restrict next, const struct codec_moment *old, const float *restrict g,
                  const struct hkt_adamw_numbers *a, size_t count)
{
    const float *restrict m = old->m, *restrict v = old->v;
    const float beta = a->beta1, rest = a->rest1;

    for (size_t i = 0; i < count; i++)
        next[i] = beta * m[i] + rest * (g[i] * v[i]);
}

static void move(float *restrict w, const float *restrict m, const float *restrict v, const struct hkt_adamw_numbers *a,
                 size_t count)
{
    const float shrink = a->shrink, length = a->length;

    for (size_t i = 0; i < count; i++) {
        const float next = w[i] * shrink - length * m[i];

        w[i] = v[i] > 0 ? next : w[i];
    }
}

#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)
#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)

extern const struct codec_loops PASTE(codec_loops_, HKT_ISA);
const struct codec_loops        PASTE(codec_loops_, HKT_ISA) = {
           .name       = TEXT(HKT_ISA),
           .table      = table,
           .load       = load,
           .load_units   = load_units,
           .divide_units = divide_units,
           .add        = add,
           .divide     = divide,
           .keep       = keep,
           .bad        = bad,
           .dot        = dot,
           .add_scaled = add_scaled,
           .freeze     = freeze,
           .blend      = blend,
           .move       = move,
};
