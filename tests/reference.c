/* reference.c -- see reference.h. Plain on purpose; what is slow (conversions, making values) is tabulated once a process. */
#include "reference.h"

#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 1024, VALUES = 4096 };

/* ---- the formats */

struct format {
    int  bytes;
    bool floating, is_signed;
    int  exponent, mantissa; /* bits, floats up to 32 */
    bool finite;             /* no infinities (E4M3) */
};

static const struct format format_of[HKT_TYPES] = {
    [HKT_INT8] = {1, false, true, 0, 0, false},          [HKT_UINT8] = {1, false, false, 0, 0, false},
    [HKT_INT16] = {2, false, true, 0, 0, false},         [HKT_UINT16] = {2, false, false, 0, 0, false},
    [HKT_INT32] = {4, false, true, 0, 0, false},         [HKT_UINT32] = {4, false, false, 0, 0, false},
    [HKT_INT64] = {8, false, true, 0, 0, false},         [HKT_UINT64] = {8, false, false, 0, 0, false},
    [HKT_FLOAT16] = {2, true, true, 5, 10, false},       [HKT_BFLOAT16] = {2, true, true, 8, 7, false},
    [HKT_FLOAT32] = {4, true, true, 8, 23, false},       [HKT_FLOAT64] = {8, true, true, 11, 52, false},
    [HKT_FLOAT8_E4M3] = {1, true, true, 4, 3, true},     [HKT_FLOAT8_E5M2] = {1, true, true, 5, 2, false},
};

size_t size_of(hkt_type_t type)
{
    return (size_t)format_of[type].bytes;
}

bool is_float(hkt_type_t type)
{
    return format_of[type].floating;
}

const char *name_of_op(int op)
{
    static const char *const name[OP_COUNT] = {"sum", "prod", "min", "max", "avg", "premul_sum"};

    return name[op];
}

uint64_t canonical_nan(hkt_type_t type)
{
    const struct format *f        = &format_of[type];
    const uint64_t       exponent = ((uint64_t)1 << f->exponent) - 1;

    if (f->finite)
        return 0x7f;
    return exponent << f->mantissa | (uint64_t)1 << (f->mantissa - 1);
}

bool is_nan(hkt_type_t type, uint64_t bits)
{
    const struct format *f         = &format_of[type];
    const uint64_t       magnitude = bits & (((uint64_t)1 << (f->bytes * 8 - 1)) - 1);

    if (!f->floating)
        return false;
    return f->finite ? magnitude == 0x7f : magnitude > (((uint64_t)1 << f->exponent) - 1) << f->mantissa;
}

static double bits_double(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint64_t double_bits(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static double float_of(const struct format *f, uint64_t bits)
{
    const int      bias     = (1 << (f->exponent - 1)) - 1;
    const int      exponent = (int)(bits >> f->mantissa & (((uint64_t)1 << f->exponent) - 1));
    const uint64_t mantissa = bits & (((uint64_t)1 << f->mantissa) - 1);
    const double   sign     = bits >> (f->bytes * 8 - 1) & 1 ? -1.0 : 1.0;

    if (!f->finite && exponent == (1 << f->exponent) - 1)
        return sign * INFINITY; /* NaN is dealt with by the caller */
    if (exponent == 0)
        return sign * ldexp((double)mantissa, 1 - bias - f->mantissa);
    return sign * ldexp((double)(mantissa | (uint64_t)1 << f->mantissa), exponent - bias - f->mantissa);
}

static uint64_t float_to(const struct format *f, double x)
{
    const int      bias    = (1 << (f->exponent - 1)) - 1;
    const uint64_t sign    = signbit(x) ? (uint64_t)1 << (f->bytes * 8 - 1) : 0;
    const uint64_t top     = f->finite ? 0x7e : ((((uint64_t)1 << f->exponent) - 1) << f->mantissa) - 1; /* the largest number */
    int            e       = x == 0 || isinf(x) ? 1 - bias : ilogb(x);
    double         in_ulps;
    uint64_t       bits;

    if (isinf(x))
        return f->finite ? 0x7f : sign | (top + 1);
    if (e < 1 - bias)
        e = 1 - bias;
    in_ulps = nearbyint(ldexp(fabs(x), f->mantissa - e)); /* ties to even; at most twice the hidden bit, which carries by itself */
    bits    = e > bias + 1 ? top + 1 : (uint64_t)in_ulps + ((uint64_t)(e + bias - 1) << f->mantissa);
    if (bits > top)
        return f->finite ? 0x7f : sign | (top + 1);
    return sign | bits;
}

static double  *decoded[HKT_TYPES];               /* floats of 8 and 16 bits */
static uint64_t tabulated[HKT_TYPES][2][VALUES]; /* the values that inputs are drawn from, per enum values */

double to_double(hkt_type_t type, uint64_t bits)
{
    const struct format *f = &format_of[type];
    float                single;

    if (type == HKT_FLOAT64)
        return bits_double(bits);
    if (type == HKT_FLOAT32) {
        memcpy(&single, &(uint32_t){(uint32_t)bits}, sizeof(single));
        return (double)single;
    }
    if (f->floating)
        return decoded[type][bits];
    if (f->is_signed)
        return (double)((int64_t)(bits << (64 - f->bytes * 8)) >> (64 - f->bytes * 8));
    return (double)bits;
}

static uint64_t low_bits(hkt_type_t type, uint64_t bits)
{
    return format_of[type].bytes == 8 ? bits : bits & (((uint64_t)1 << (format_of[type].bytes * 8)) - 1);
}

uint64_t from_double(hkt_type_t type, double x)
{
    if (!is_float(type))
        return low_bits(type, x < 0 ? (uint64_t)(int64_t)x : (uint64_t)x);
    if (isnan(x))
        return canonical_nan(type);
    if (type == HKT_FLOAT32) {
        const float single = (float)x;
        uint32_t    bits;

        memcpy(&bits, &single, sizeof(bits));
        return bits;
    }
    return type == HKT_FLOAT64 ? double_bits(x) : float_to(&format_of[type], x);
}

void store_element(hkt_type_t type, void *to, size_t index, uint64_t bits)
{
    char *at = (char *)to + index * size_of(type);

    switch (size_of(type)) {
    case 1:
        memcpy(at, &(uint8_t){(uint8_t)bits}, 1);
        break;
    case 2:
        memcpy(at, &(uint16_t){(uint16_t)bits}, 2);
        break;
    case 4:
        memcpy(at, &(uint32_t){(uint32_t)bits}, 4);
        break;
    default:
        memcpy(at, &bits, 8);
    }
}

uint64_t load_element(hkt_type_t type, const void *from, size_t index)
{
    uint64_t bits = 0;

    memcpy(&bits, (const char *)from + index * size_of(type), size_of(type)); /* little-endian, as every machine this runs on */
    return bits;
}

/* ---- the fold: split at the largest power of two below n, recurse */

static int split(int n)
{
    int half = 1;

    while (half * 2 < n)
        half *= 2;
    return half;
}

/* In fp32 where `narrow`, else in fp64. */
static double float_pair(int op, double a, double b, bool narrow)
{
    switch (op) {
    case HKT_PROD:
        return narrow ? (double)((float)a * (float)b) : a * b;
    case HKT_MIN:
    case HKT_MAX:
        if (isnan(a) || isnan(b))
            return (double)NAN;
        if (a == b)
            return signbit(a) == (op == HKT_MIN) ? a : b; /* -0 is less than +0 */
        return (a < b) == (op == HKT_MIN) ? a : b;
    default:
        return narrow ? (double)((float)a + (float)b) : a + b;
    }
}

static double float_fold(int op, const double *x, int n, bool narrow)
{
    const int half = split(n);

    return n == 1 ? x[0] : float_pair(op, float_fold(op, x, half, narrow), float_fold(op, x + half, n - half, narrow), narrow);
}

static uint64_t fold_floats(hkt_type_t type, int op, const uint64_t *bits, int n)
{
    const bool narrow = type != HKT_FLOAT64;
    double     x[MOST_RANKS], total;

    for (int r = 0; r < n; r++) {
        x[r] = to_double(type, bits[r]);
        if (op == OP_PREMUL)
            x[r] = narrow ? (double)((float)x[r] * (float)factor(type, r)) : x[r] * factor(type, r);
    }
    total = float_fold(op, x, n, narrow);
    if (op == HKT_AVG)
        total = narrow ? (double)((float)total / (float)n) : total / n;
    return from_double(type, total);
}

/* Any order gives the same, so the plainest: modulo 2^64, or exactly in 128 bits. */
static uint64_t fold_integers(hkt_type_t type, int op, const uint64_t *bits, int n)
{
    const struct format *f     = &format_of[type];
    const int            spare = 64 - f->bytes * 8;
    __int128             exact = 0, least = 0, most = 0;
    uint64_t             total = op == HKT_PROD;

    for (int r = 0; r < n; r++) {
        const uint64_t wide  = f->is_signed ? (uint64_t)((int64_t)(bits[r] << spare) >> spare) : bits[r];
        const __int128 value = f->is_signed ? (__int128)(int64_t)wide : (__int128)wide;

        exact += value;
        least = r == 0 || value < least ? value : least;
        most  = r == 0 || value > most ? value : most;
        if (op == HKT_PROD)
            total *= wide;
        else
            total += op == OP_PREMUL ? wide * (uint64_t)(int64_t)factor(type, r) : wide;
    }
    if (op == HKT_AVG)
        return low_bits(type, (uint64_t)(exact / n));
    return low_bits(type, op == HKT_MIN ? (uint64_t)least : op == HKT_MAX ? (uint64_t)most : total);
}

uint64_t fold(hkt_type_t type, int op, const uint64_t *bits, int n)
{
    return is_float(type) ? fold_floats(type, op, bits, n) : fold_integers(type, op, bits, n);
}

/* ---- the inputs */

double factor(hkt_type_t type, int rank)
{
    static const double factors[] = {0.75, 1.5, 2.0, 1.25, 3.0, 0.5, 2.75};
    const double        x         = factors[rank % 7];

    return format_of[type].is_signed && rank % 3 == 1 ? -x : x; /* all of them exact in every type's wide type */
}

static uint64_t special(hkt_type_t type, uint64_t random)
{
    const struct format *f    = &format_of[type];
    const uint64_t       sign = (random >> 8 & 1) << (f->bytes * 8 - 1);
    const uint64_t       nan  = canonical_nan(type);
    const uint64_t       top  = f->finite ? 0x7e : ((((uint64_t)1 << f->exponent) - 1) << f->mantissa) - 1;

    switch (random % 8) {
    case 0:
        return sign | nan;
    case 1:
        return f->finite ? sign | nan : sign | nan | 1; /* with a payload */
    case 2:
        return sign | (f->finite ? top : top + 1); /* infinity where there is one */
    case 3:
        return sign;
    case 4:
        return sign | 1; /* the smallest subnormal */
    case 5:
        return sign | (((uint64_t)1 << f->mantissa) - 1);
    case 6:
        return sign | top;
    default:
        return sign | (top - 1);
    }
}

static uint64_t make_value(hkt_type_t type, enum values values, uint64_t random)
{
    if (!is_float(type))
        return low_bits(type, random);
    if (values == SPECIAL && (random >> 50) % 4 == 0)
        return special(type, random >> 20);
    /* a full mantissa, and an exponent of -2 to 1 */
    return from_double(type, (random >> 63 ? -1 : 1) * ldexp(1.0 + (double)(random & 0xfffffffffffffu) * 0x1p-52,
                                                             (int)(random >> 60 & 3) - 2));
}

__attribute__((constructor)) static void make_tables(void)
{
    for (hkt_type_t type = 0; type < HKT_TYPES; type++) {
        const struct format *f = &format_of[type];

        if (f->floating && f->bytes <= 2) {
            const size_t n = (size_t)1 << (8 * f->bytes);

            decoded[type] = malloc(n * sizeof(double));
            for (uint64_t bits = 0; bits < n; bits++)
                decoded[type][bits] = is_nan(type, bits) ? (double)NAN : float_of(f, bits);
        }
        for (uint64_t i = 0; i < VALUES; i++) {
            tabulated[type][ORDINARY][i] = make_value(type, ORDINARY, mix(i));
            tabulated[type][SPECIAL][i]  = make_value(type, SPECIAL, mix(~i));
        }
    }
}

uint64_t element(hkt_type_t type, enum values values, uint64_t seed, int rank, size_t index)
{
    return tabulated[type][values][mix(seed ^ ((uint64_t)rank << 32 | index % PERIOD)) % VALUES];
}

static uint64_t wanted(const struct origin *o, size_t index)
{
    uint64_t bits[MOST_RANKS];

    if (o->source != EVERYBODY)
        return element(o->type, o->values, o->seed, o->source, index);
    for (int r = 0; r < o->n; r++)
        bits[r] = element(o->type, o->values, o->seed, r, index);
    return fold(o->type, o->op, bits, o->n);
}

void fill(const struct origin *o, void *to, size_t count)
{
    const size_t first = count < PERIOD ? count : PERIOD;
    const size_t bytes = count * size_of(o->type);
    size_t       done  = first * size_of(o->type);

    for (size_t i = 0; i < first; i++)
        store_element(o->type, to, i, wanted(o, o->index + i));
    while (done < bytes) { /* `done` stays a multiple of the period */
        const size_t more = done < bytes - done ? done : bytes - done;

        memcpy((char *)to + done, to, more);
        done += more;
    }
}

size_t differs(const struct origin *o, const void *is, size_t count)
{
    const size_t size  = size_of(o->type);
    const size_t first = count < PERIOD ? count : PERIOD;
    const char  *at    = is;

    for (size_t i = 0; i < first; i++)
        if (load_element(o->type, is, i) != wanted(o, o->index + i))
            return i;
    /* The first period is right; the rest must repeat it. */
    if (count <= first || memcmp(at, at + first * size, (count - first) * size) == 0)
        return count;
    for (size_t i = first; i < count; i++)
        if (memcmp(at + i * size, at + (i - first) * size, size))
            return i;
    return count;
}
