/* adamw.c -- the exact sum, conversions of any length, and AdamW on plain arrays (Loshchilov and Hutter 2019, decoupled
 * decay; the order of operations is that of PyTorch). */
#include <parallel/adamw.h>

#include <math.h>
#include <string.h>

void hkt_exact_settle(struct hkt_exact *sum)
{
    for (int b = 0; b + 1 < HKT_EXACT_DIGITS; b++) {
        sum->digit[b + 1] += sum->digit[b] >> HKT_EXACT_BITS; /* rounds down, also below zero */
        sum->digit[b] &= ((int64_t)1 << HKT_EXACT_BITS) - 1;
    }
}

double hkt_exact_value(const struct hkt_exact *sum)
{
    struct hkt_exact s     = *sum;
    int              top   = HKT_EXACT_DIGITS - 1;
    double           value = 0;

    hkt_exact_settle(&s);
    while (top > 0 && !s.digit[top])
        top--;
    for (int b = top > 2 ? top - 2 : 0; b <= top; b++) /* three digits are more than a double holds */
        value += ldexp((double)s.digit[b], HKT_EXACT_BITS * b + HKT_EXACT_LOWEST);
    return value;
}

struct hkt_adamw_numbers hkt_adamw_numbers(const hkt_adamw_t *o, uint64_t step, float scale, bool decays)
{
    const double t = (double)step;

    return (struct hkt_adamw_numbers){
        .scale   = scale,
        .beta1   = (float)o->beta1,
        .rest1   = (float)(1 - o->beta1),
        .beta2   = (float)o->beta2,
        .rest2   = (float)(1 - o->beta2),
        .shrink  = (float)(1 - (decays ? o->rate * o->decay : 0)),
        .length  = (float)(o->rate / (1 - pow(o->beta1, t))),
        .root    = (float)(1 / sqrt(1 - pow(o->beta2, t))),
        .epsilon = (float)o->epsilon,
    };
}

bool hkt_is_float_type(hkt_type_t type)
{
    return type == HKT_FLOAT32 || type == HKT_BFLOAT16 || type == HKT_FLOAT16;
}

/* x[0 .. count) as fp32: itself, or in block. count <= HKT_LOOP_BLOCK. */
static const float *as_float(float *block, const void *x, hkt_type_t type, size_t count)
{
    if (type == HKT_FLOAT32)
        return x;
    (type == HKT_BFLOAT16 ? hkt_loops()->widen_bf16 : hkt_loops()->widen_fp16)(block, x, count);
    return block;
}

static size_t block_at(size_t i, size_t count)
{
    return count - i < HKT_LOOP_BLOCK ? count - i : HKT_LOOP_BLOCK;
}

void hkt_float_widen(float *to, const void *x, hkt_type_t type, size_t count)
{
    if (type == HKT_FLOAT32)
        memcpy(to, x, count * sizeof *to);
    else
        (void)as_float(to, x, type, count);
}

void hkt_float_narrow(void *to, hkt_type_t type, const float *x, size_t count)
{
    if (type == HKT_FLOAT32)
        memcpy(to, x, count * sizeof *x);
    else
        (type == HKT_BFLOAT16 ? hkt_loops()->narrow_bf16 : hkt_loops()->narrow_fp16)(to, x, count);
}

void hkt_float_add(void *to, hkt_type_t to_type, const void *x, hkt_type_t type, size_t count)
{
    const size_t to_size = hkt_type_size(to_type), size = hkt_type_size(type);
    float        added[HKT_LOOP_BLOCK], sum[HKT_LOOP_BLOCK];

    for (size_t i = 0; i < count; i += HKT_LOOP_BLOCK) {
        const size_t n      = block_at(i, count);
        char        *at     = (char *)to + i * to_size;
        const float *values = as_float(added, (const char *)x + i * size, type, n);

        if (to_type == HKT_FLOAT32) {
            hkt_loops()->add((float *)(void *)at, values, n);
        } else {
            hkt_float_widen(sum, at, to_type, n);
            hkt_loops()->add(sum, values, n);
            hkt_float_narrow(at, to_type, sum, n);
        }
    }
}

void hkt_float_scale(void *x, hkt_type_t type, float factor, size_t count)
{
    const size_t size = hkt_type_size(type);
    float        block[HKT_LOOP_BLOCK];

    if (type == HKT_FLOAT32) {
        hkt_loops()->scale(x, factor, count);
        return;
    }
    for (size_t i = 0; i < count; i += HKT_LOOP_BLOCK) {
        const size_t n = block_at(i, count);
        hkt_float_widen(block, (char *)x + i * size, type, n);
        hkt_loops()->scale(block, factor, n);
        hkt_float_narrow((char *)x + i * size, type, block, n);
    }
}

size_t hkt_float_squares(struct hkt_exact *sum, const void *x, hkt_type_t type, size_t count)
{
    const size_t size = hkt_type_size(type);
    float        block[HKT_LOOP_BLOCK];

    for (size_t i = 0; i < count; i += HKT_LOOP_BLOCK) {
        const size_t n  = block_at(i, count);
        const size_t at = hkt_loops()->squares(sum, as_float(block, (const char *)x + i * size, type, n), n);
        if (at < n)
            return i + at;
    }
    return count;
}

int hkt_adamw_check(const hkt_adamw_t *o)
{
    const struct {
        const char *name;
        double      value, low, high;
    } limits[] = {
        {"rate", o->rate, 0, HUGE_VAL},       {"beta1", o->beta1, 0, 1},        {"beta2", o->beta2, 0, 1},
        {"epsilon", o->epsilon, 0, HUGE_VAL}, {"decay", o->decay, 0, HUGE_VAL}, {"clip", o->clip, 0, HUGE_VAL},
        {"scale", o->scale, 0, HUGE_VAL},
    };

    if (o->size != sizeof *o)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_adamw_t has size %zu instead of %zu; begin with HKT_ADAMW_INIT",
                             o->size, sizeof *o);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (!(limits[i].value >= limits[i].low && limits[i].value < limits[i].high))
            return hkt_error_set(HKT_ERR_ARGUMENT, "AdamW: %s is %g and must be in [%g, %g)", limits[i].name,
                                 limits[i].value, limits[i].low, limits[i].high);
    return HKT_OK;
}

int hkt_adamw(const hkt_adamw_t *options, uint64_t step, double scale, const hkt_adamw_state_t *state, size_t count)
{
    if (!options || !state || (count && (!state->weight || !state->moment1 || !state->moment2 || !state->gradient)))
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_adamw: options, state or one of its arrays is NULL");
    TRY(hkt_adamw_check(options));
    if (step < 1)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_adamw: steps count from 1");
    const struct hkt_adamw_numbers numbers = hkt_adamw_numbers(options, step, (float)scale, true);
    hkt_loops()->adamw(&numbers, state, count);
    return HKT_OK;
}
