/* reduce_call.c -- see reduce_call.h.
 *
 * The reference decodes with ldexp, folds in double (for fp32 that rounds as fp32 arithmetic does) and rounds by searching the
 * sorted table of all values of the type. */
#include "reduce_call.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef __int128 wide_int;

enum { GUARD = 64 };

/* A value of any type: f for floats, i for integers. */
struct value {
    double   f;
    wide_int i;
};

const char *isas[MAX_ISAS];
int         nisas;

void find_isas(void)
{
    static const char *const all[] = {"portable", "avx2", "avx512"};

    nisas = 0;
    for (int i = 0; i < MAX_ISAS; i++)
        if (hkt_reduce_select(all[i]))
            isas[nisas++] = all[i];
    ck_assert_int_ge(nisas, 1);
}

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

static uint64_t seed = 88172645463325252u;

uint64_t any64(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed * 2685821657736338717u;
}

uint32_t below(uint32_t n)
{
    return (uint32_t)(any64() >> 33) % n;
}

/* ---- types, as the reference sees them --------------------------------------------------------------------------- */

const struct format formats[HKT_TYPES] = {
    [HKT_FLOAT16] = {10, 5, 0x7e00, 0},      [HKT_BFLOAT16] = {7, 8, 0x7fc0, 0},
    [HKT_FLOAT32] = {23, 8, 0x7fc00000, 0},  [HKT_FLOAT64] = {52, 11, 0x7ff8000000000000, 0},
    [HKT_FLOAT8_E4M3] = {3, 4, 0x7f, 1},     [HKT_FLOAT8_E5M2] = {2, 5, 0x7e, 0},
};

int is_float(hkt_type_t t)
{
    return formats[t].mantissa > 0;
}

int is_small(hkt_type_t t)
{
    return is_float(t) && t != HKT_FLOAT32 && t != HKT_FLOAT64;
}

static int is_signed(hkt_type_t t)
{
    return t == HKT_INT8 || t == HKT_INT16 || t == HKT_INT32 || t == HKT_INT64;
}

static double decode_slowly(hkt_type_t t, uint64_t code)
{
    const struct format f = formats[t];
    const uint64_t      m = code & (((uint64_t)1 << f.mantissa) - 1);
    const int           e = (int)(code >> f.mantissa & ((1u << f.exponent) - 1)), top = (1 << f.exponent) - 1;
    const int           bias = top / 2, negative = (int)(code >> (f.mantissa + f.exponent) & 1);
    double              x;

    if (f.finite ? e == top && m == ((uint64_t)1 << f.mantissa) - 1 : e == top && m)
        return NAN;
    if (!f.finite && e == top)
        x = INFINITY;
    else if (!e)
        x = ldexp((double)m, 1 - bias - f.mantissa);
    else
        x = ldexp((double)(m + ((uint64_t)1 << f.mantissa)), e - bias - f.mantissa);
    return negative ? -x : x;
}

double decode_float(hkt_type_t t, uint64_t code)
{
    static double table[HKT_TYPES][1 << 16];
    static int    made[HKT_TYPES];

    if (!is_small(t))
        return decode_slowly(t, code);
    for (uint64_t i = 0; !made[t] && i < (uint64_t)2 << (formats[t].mantissa + formats[t].exponent); i++)
        table[t][i] = decode_slowly(t, i);
    made[t] = 1;
    return table[t][code];
}

/* The small floats: the nearest value of the whole table, ties to the even code, beyond the last by where the next would be. */
uint64_t encode_small(hkt_type_t t, double x)
{
    const struct format f   = formats[t];
    const uint64_t      top = ((uint64_t)1 << (f.mantissa + f.exponent)) - 1; /* the magnitude with all bits set */
    const uint64_t      end = f.finite ? top : (((uint64_t)1 << f.exponent) - 1) << f.mantissa; /* first that is no number */
    const uint64_t      sign = signbit(x) ? (uint64_t)1 << (f.mantissa + f.exponent) : 0;
    const double        a    = fabs(x);
    uint64_t            low = 0, high = end;

    if (isnan(x))
        return f.nan;
    while (high - low > 1) { /* decode(low) <= a < decode(high) */
        const uint64_t middle = (low + high) / 2;

        if (decode_float(t, middle) <= a)
            low = middle;
        else
            high = middle;
    }
    const double below_a = decode_float(t, low);
    const double above =
        high < end ? decode_float(t, high) : below_a + (below_a - decode_float(t, low - 1)); /* where the next would be */
    const double middle = below_a + (above - below_a) / 2;

    if (a > middle || (a == middle && (low & 1)))
        low = high;
    return f.finite && low == end ? f.nan : sign | low;
}

static struct value get(hkt_type_t t, const void *p, size_t i)
{
    const size_t size = hkt_type_size(t);
    uint64_t     code = 0;
    struct value v    = {0, 0};

    memcpy(&code, (const char *)p + i * size, size);
    if (is_float(t))
        v.f = decode_float(t, code);
    else
        v.i = is_signed(t) ? (wide_int)((int64_t)(code << (64 - 8 * size)) >> (64 - 8 * size)) : (wide_int)code;
    return v;
}

static void put_double(char *p, double x, size_t size)
{
    const float    f   = (float)x;
    const uint32_t n32 = 0x7fc00000;
    const uint64_t n64 = 0x7ff8000000000000;

    if (size == 4)
        memcpy(p, isnan(x) ? (const void *)&n32 : &f, 4);
    else
        memcpy(p, isnan(x) ? (const void *)&n64 : &x, 8);
}

static void set(hkt_type_t t, void *p, size_t i, struct value v)
{
    const size_t   size = hkt_type_size(t);
    const uint64_t code = is_small(t) ? encode_small(t, v.f) : (uint64_t)v.i;
    char          *to   = (char *)p + i * size;

    if (t == HKT_FLOAT32 || t == HKT_FLOAT64)
        put_double(to, v.f, size);
    else
        memcpy(to, &code, size);
}

static struct value get_wide(hkt_type_t t, hkt_op_t op, const void *p, size_t i)
{
    const size_t size = hkt_wide_size(t, op);
    struct value v    = {0, 0};
    int64_t      low;

    if (is_small(t))
        return get(HKT_FLOAT32, p, i);
    if (is_float(t) || op != HKT_AVG)
        return get(t, p, i);
    memcpy(&low, (const char *)p + i * size, 8);
    if (size == 8)
        v.i = is_signed(t) ? (wide_int)low : (wide_int)(uint64_t)low;
    else
        memcpy(&v.i, (const char *)p + i * size, 16);
    return v;
}

static void set_wide(hkt_type_t t, hkt_op_t op, void *p, size_t i, struct value v)
{
    const size_t size = hkt_wide_size(t, op);

    if (is_small(t))
        set(HKT_FLOAT32, p, i, v);
    else if (is_float(t) || op != HKT_AVG)
        set(t, p, i, v);
    else
        memcpy((char *)p + i * size, &v.i, size);
}

/* ---- the reference ------------------------------------------------------------------------------------------------ */

static double round_wide(hkt_type_t t, double x)
{
    return t == HKT_FLOAT64 ? x : (double)(float)x;
}

static wide_int wrap(hkt_type_t t, hkt_op_t op, wide_int x)
{
    const int bits = 8 * (int)hkt_type_size(t);

    if (op == HKT_AVG)
        return x;
    return is_signed(t) ? (wide_int)((int64_t)((uint64_t)x << (64 - bits)) >> (64 - bits))
                        : (wide_int)((uint64_t)x << (64 - bits) >> (64 - bits));
}

static double extreme(double a, double b, int largest)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return (signbit(a) != 0) == largest ? b : a;
    return (a < b) == largest ? b : a;
}

static struct value combine(hkt_type_t t, hkt_op_t op, struct value a, struct value b)
{
    const int largest = op == HKT_MAX;

    switch (op) {
    case HKT_PROD:
        return (struct value){round_wide(t, a.f * b.f), wrap(t, op, (wide_int)((uint64_t)a.i * (uint64_t)b.i))};
    case HKT_MIN:
    case HKT_MAX:
        return (struct value){extreme(a.f, b.f, largest), (a.i < b.i) == largest ? b.i : a.i};
    default:
        return (struct value){round_wide(t, a.f + b.f), wrap(t, op, a.i + b.i)};
    }
}

static struct value tree(hkt_type_t t, hkt_op_t op, const struct value *x, uint32_t n)
{
    uint32_t half = 1;

    if (n == 1)
        return x[0];
    while (2 * half < n)
        half *= 2;
    return combine(t, op, tree(t, op, x, half), tree(t, op, x + half, n - half));
}

static struct value premultiply(hkt_type_t t, struct value v, double scale)
{
    const uint64_t whole = scale < 0 ? 0 - (uint64_t)-scale : (uint64_t)scale;

    v.f = round_wide(t, v.f * round_wide(t, scale));
    v.i = wrap(t, HKT_SUM, (wide_int)((uint64_t)v.i * whole));
    return v;
}

/* What the call must leave in one destination. */
void reference(const struct hkt_reduce *r, hkt_type_t t, hkt_op_t op, char *out)
{
    struct value x[MAX_SOURCES], v;

    if (r->nsrc == 1 && r->in == r->out) { /* a copy, to the bit */
        memcpy(out, r->src[0], r->count * (r->in == HKT_PARTIAL ? hkt_wide_size(t, op) : hkt_type_size(t)));
        return;
    }
    for (size_t i = 0; i < r->count; i++) {
        for (uint32_t s = 0; s < r->nsrc; s++) {
            x[s] = r->in == HKT_PARTIAL ? get_wide(t, op, r->src[s], i) : get(t, r->src[s], i);
            if ((int)op == HKT_PREMUL_SUM && r->in == HKT_RAW)
                x[s] = premultiply(t, x[s], r->scale[s]);
        }
        v = tree(t, op, x, r->nsrc);
        if (op == HKT_AVG && r->out == HKT_FINISHED && r->in != HKT_FINISHED) {
            v.f = round_wide(t, v.f / r->divisor);
            v.i /= r->divisor;
        }
        if (r->out == HKT_PARTIAL)
            set_wide(t, op, out, i, v);
        else
            set(t, out, i, v);
    }
}

/* ---- running a call ----------------------------------------------------------------------------------------------- */

/* A float of a kind: any bits, a moderate number, or one of the values where rules change. */
uint64_t any_float(hkt_type_t t)
{
    const struct format f     = formats[t];
    const int           total = f.mantissa + f.exponent;
    const uint64_t      sign  = (any64() & 1) << total, mask = ((uint64_t)1 << total) - 1;
    const uint64_t      inf = (((uint64_t)1 << f.exponent) - 1) << f.mantissa, one = (inf >> 1) & inf;
    const uint64_t      special[] = {0, 1, inf, f.nan, inf - 1, one, ((uint64_t)1 << f.mantissa) - 1, (uint64_t)1 << f.mantissa,
                                     mask, inf | 1};

    switch (below(16)) {
    case 0:
        return sign | special[below(sizeof(special) / sizeof(special[0]))];
    case 1:
        return sign | (any64() & mask);
    case 2: /* subnormal */
        return sign | (any64() & (((uint64_t)1 << f.mantissa) - 1));
    default: /* an exponent within 4 of that of 1 */
        return sign | ((any64() & (((uint64_t)1 << f.mantissa) - 1)) + one - ((uint64_t)below(4) << f.mantissa) +
                       ((uint64_t)below(4) << f.mantissa));
    }
}

void fill(hkt_type_t t, void *p, size_t count)
{
    const size_t size = hkt_type_size(t);

    for (size_t i = 0; i < count; i++) {
        const uint64_t extremes[] = {0, 1, ~(uint64_t)0, (uint64_t)1 << (8 * size - 1), ((uint64_t)1 << (8 * size - 1)) - 1};
        const uint64_t code       = is_float(t) ? any_float(t) : below(8) ? any64() : extremes[below(5)];

        memcpy((char *)p + i * size, &code, size);
    }
}

/* Sums of integers to be averaged are as if made by few ranks. */
static void fill_wide(hkt_type_t t, hkt_op_t op, void *p, size_t count)
{
    const size_t size = hkt_wide_size(t, op);

    if (is_small(t) || is_float(t) || op != HKT_AVG) {
        fill(is_small(t) ? HKT_FLOAT32 : t, p, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const int bits = 8 * (int)hkt_type_size(t);
        wide_int  x    = is_signed(t) ? (wide_int)((int64_t)any64() >> (64 - bits)) : (wide_int)(any64() >> (64 - bits));

        x *= 1 + below(5);
        memcpy((char *)p + i * size, &x, size);
    }
}

static const double scales[] = {1, 0.5, -3.75, 255.9, 1e-3, 0, 3, -1};

char        *arena;
static char *arena_end;

static void *take(size_t bytes, unsigned align)
{
    char *p = arena_end + GUARD;

    p = (char *)(((uintptr_t)p + 63) / 64 * 64) + (align < 16 ? align : below(16));
    memset(arena_end, 0x5a, (size_t)(p - arena_end));
    arena_end = p + bytes;
    memset(arena_end, 0x5a, GUARD);
    return p;
}

static int guards_whole(const char *p, size_t bytes)
{
    for (int i = 0; i < GUARD; i++)
        if (p[i - GUARD] != 0x5a || p[bytes + (size_t)i] != 0x5a)
            return 0;
    return 1;
}

static void report(const struct call *c, const char *isa, const char *what, size_t i)
{
    ck_abort_msg("%s %s %s in=%d out=%d nsrc=%u ndst=%u count=%zu align=%u in_place=%d stream=%d: %s at element %zu", isa,
                 hkt_type_name(c->type), hkt_op_name(c->op), c->in, c->out, c->nsrc, c->ndst, c->count, c->align, c->in_place,
                 c->stream, what, i);
}

static size_t form_size(const struct call *c, enum hkt_form form)
{
    return form == HKT_PARTIAL ? hkt_wide_size(c->type, c->op) : hkt_type_size(c->type);
}

static void compare(const struct call *c, const char *isa, const char *got, const char *want)
{
    const size_t size = form_size(c, c->out), bytes = c->count * size;

    if (!guards_whole(got, bytes))
        report(c, isa, "bytes outside were written", 0);
    if (!memcmp(got, want, bytes))
        return;
    for (size_t i = 0; i < c->count; i++)
        if (memcmp(got + i * size, want + i * size, size))
            report(c, isa, "wrong value", i);
}

/* Runs the call under every instruction set and compares each destination with `want`. Sources are given. */
void run_all(const struct call *c, const struct hkt_reduce *r, const char *want)
{
    const size_t in = c->count * form_size(c, c->in), out = c->count * form_size(c, c->out);
    void        *kept = malloc(in + 1);
    void *const *dst  = r->dst;

    memcpy(kept, r->src[0], in);
    for (int k = 0; k < nisas; k++) {
        ck_assert_ptr_nonnull(hkt_reduce_select(isas[k]));
        for (uint32_t d = 0; d < c->ndst; d++)
            memset(dst[d], 0xa5, out);
        if (c->in_place)
            memcpy(dst[0], kept, in);
        hkt_reduce_kernel(c->type, c->op)(r);
        for (uint32_t d = 0; d < c->ndst; d++)
            compare(c, isas[k], dst[d], want);
    }
    free(kept);
}

void run_call(const struct call *c)
{
    const size_t in = form_size(c, c->in), out = form_size(c, c->out);
    const void  *src[MAX_SOURCES];
    void        *dst[MAX_DSTS];
    double       scale[MAX_SOURCES];
    char        *want = malloc(c->count * out + 1);

    arena_end = arena;
    for (uint32_t s = 0; s < c->nsrc; s++) {
        void *p = take(c->count * in, c->align);

        if (c->in == HKT_PARTIAL)
            fill_wide(c->type, c->op, p, c->count);
        else
            fill(c->type, p, c->count);
        src[s]   = p;
        scale[s] = scales[(s + c->nsrc) % (sizeof(scales) / sizeof(scales[0]))];
    }
    for (uint32_t d = 0; d < c->ndst; d++)
        dst[d] = d == 0 && c->in_place ? (void *)(uintptr_t)src[0] : take(c->count * out, c->align);

    const struct hkt_reduce r = {
        .src = src, .dst = dst, .scale = (int)c->op == HKT_PREMUL_SUM && c->in == HKT_RAW ? scale : NULL,
        .count = c->count, .nsrc = c->nsrc, .ndst = c->ndst, .divisor = c->nsrc + (uint32_t)(c->count % 3),
        .in = (uint8_t)c->in, .out = (uint8_t)c->out, .stream = c->stream != 0};

    reference(&r, c->type, c->op, want);
    run_all(c, &r, want);
    free(want);
}

