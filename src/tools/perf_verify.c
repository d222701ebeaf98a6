/* perf_verify.c -- proves results of hkt-perf, element by element and bit by bit, without the library's own arithmetic.
 *
 * Inputs are such that every partial result, in any order, is exactly representable in the type: small whole numbers
 * whose absolute sum stays below 2^mantissa, signs and powers of two for products, any bits for integers (which wrap).
 * So there is one right answer whatever the algorithm; only the average rounds, once. Data repeats after a prime number
 * of elements: an element that lands at a wrong place, in a wrong block or from an earlier call (each has its own seed)
 * does not match. */
#include "perf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PERIOD = 4093, SCALING_RANKS = 6 /* ranks whose factor of a product may be 2 or 1/2: 2^6 fits every type */ };

static const struct type {
    int bits, exponent, mantissa; /* exponent 0: an integer */
    int is_signed;
} types[HKT_TYPES] = {
    [HKT_INT8] = {8, 0, 0, 1},        [HKT_UINT8] = {8, 0, 0, 0},       [HKT_INT16] = {16, 0, 0, 1},
    [HKT_UINT16] = {16, 0, 0, 0},     [HKT_INT32] = {32, 0, 0, 1},      [HKT_UINT32] = {32, 0, 0, 0},
    [HKT_INT64] = {64, 0, 0, 1},      [HKT_UINT64] = {64, 0, 0, 0},     [HKT_FLOAT16] = {16, 5, 10, 1},
    [HKT_BFLOAT16] = {16, 8, 7, 1},   [HKT_FLOAT32] = {32, 8, 23, 1},   [HKT_FLOAT64] = {64, 11, 52, 1},
    [HKT_FLOAT8_E4M3] = {8, 4, 3, 1}, [HKT_FLOAT8_E5M2] = {8, 5, 2, 1},
};

/* What the data depends on. */
struct data {
    const struct perf_call *call;
    struct type             type;
    uint64_t                seed;
    int                     size;
};

enum { EVERYBODY = -1 /* the reduction over all ranks instead of one rank's input */ };

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* The bits of a float type, rounded to nearest even. Never called with NaN, infinity or a value that overflows. */
static uint64_t encode(struct type type, double value)
{
    const int bias = (1 << (type.exponent - 1)) - 1;
    int       exponent;
    uint64_t  bits;
    float     single = (float)value;

    if (type.bits == 64) {
        memcpy(&bits, &value, 8);
        return bits;
    }
    if (type.bits == 32) {
        uint32_t word;

        memcpy(&word, &single, 4);
        return word;
    }
    if (value == 0)
        return 0;
    frexp(value, &exponent);
    exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    bits     = (uint64_t)nearbyint(ldexp(fabs(value), type.mantissa - exponent)); /* with the leading 1 */
    bits += (uint64_t)(exponent + bias - 1) << type.mantissa;
    return bits | (uint64_t)(value < 0) << (type.bits - 1);
}

static double float_input(const struct data *data, int rank, size_t i)
{
    static const double factors[] = {1, -1, 2, 0.5, -2, -0.5, 1, -1};
    const uint64_t      random    = mix(data->seed ^ mix((uint64_t)rank << 32 ^ i));
    const uint64_t      budget    = 1ULL << (data->type.mantissa + 1);
    uint64_t            limit     = budget / (2 * (uint64_t)data->size); /* 2: the largest scalar */

    if (data->call->op_index == HKT_PROD)
        return factors[random % (rank < SCALING_RANKS ? 8 : 2)];
    if (data->call->op_index == HKT_MIN || data->call->op_index == HKT_MAX)
        limit = budget;
    if (limit == 0) { /* more ranks than small numbers: most contribute nothing */
        const uint64_t stride = (2 * (uint64_t)data->size + budget - 1) / budget;

        return ((uint64_t)rank + i) % stride ? 0 : random % 2 ? 1 : -1;
    }
    return (double)(int64_t)(random % (2 * limit + 1)) - (double)limit;
}

static double float_result(const struct data *data, size_t i)
{
    const int op     = data->call->op_index;
    double    result = float_input(data, 0, i) * (op == HKT_OPS ? perf_scalar(0) : 1);

    for (int rank = 1; rank < data->size; rank++) {
        const double value = float_input(data, rank, i);

        switch (op) {
        case HKT_PROD:
            result *= value;
            break;
        case HKT_MIN:
            result = fmin(result, value);
            break;
        case HKT_MAX:
            result = fmax(result, value);
            break;
        default:
            result += value * (op == HKT_OPS ? perf_scalar(rank) : 1);
        }
    }
    if (op == HKT_AVG)
        result = data->type.bits == 64 ? result / data->size : (double)((float)result / (float)data->size);
    return result;
}

/* Sign- or zero-extended to 64 bits. */
static uint64_t extend(struct type type, uint64_t bits)
{
    const int unused = 64 - type.bits;

    return type.is_signed ? (uint64_t)((int64_t)(bits << unused) >> unused) : bits << unused >> unused;
}

static uint64_t integer_input(const struct data *data, int rank, size_t i)
{
    const uint64_t random = extend(data->type, mix(data->seed ^ mix((uint64_t)rank << 32 ^ i)));

    if (data->call->op_index != HKT_AVG || data->type.bits < 64)
        return random;
    return data->type.is_signed ? (uint64_t)((int64_t)random >> 17)
                                : random >> 17; /* the sum of 2^16 ranks fits 64 bits */
}

static uint64_t integer_result(const struct data *data, size_t i)
{
    const int      op        = data->call->op_index;
    const bool     is_signed = data->type.is_signed;
    const uint64_t n         = (uint64_t)data->size;
    uint64_t       result    = integer_input(data, 0, i) * (op == HKT_OPS ? (uint64_t)perf_scalar(0) : 1);

    for (int rank = 1; rank < data->size; rank++) {
        const uint64_t value = integer_input(data, rank, i);
        const bool     less  = is_signed ? (int64_t)value < (int64_t)result : value < result;

        if (op == HKT_PROD)
            result *= value;
        else if (op == HKT_MIN || op == HKT_MAX)
            result = less == (op == HKT_MIN) ? value : result;
        else
            result += value * (op == HKT_OPS ? (uint64_t)perf_scalar(rank) : 1);
    }
    if (op == HKT_AVG)
        result = is_signed ? (uint64_t)((int64_t)result / (int64_t)n) : result / n;
    return result;
}

static uint64_t element(const struct data *data, int rank, size_t i)
{
    if (data->type.exponent)
        return encode(data->type, rank == EVERYBODY ? float_result(data, i) : float_input(data, rank, i));
    return rank == EVERYBODY ? integer_result(data, i) : integer_input(data, rank, i);
}

/* ---- stretches of a buffer --------------------------------------------------------------------------------------- */

struct stretch {
    char  *at;
    int    rank;  /* whose input, or EVERYBODY */
    size_t first; /* element of that rank's buffer, from where */
    size_t count;
};

struct pattern {
    size_t size; /* bytes of an element */
    char   bytes[PERIOD * 8];
};

/* Computes what the stretch uses of the period. */
static void make_pattern(struct pattern *pattern, const struct data *data, const struct stretch *stretch)
{
    pattern->size = (size_t)data->type.bits / 8;
    for (size_t k = 0; k < stretch->count && k < PERIOD; k++) {
        const size_t   i    = (stretch->first + k) % PERIOD;
        const uint64_t bits = element(data, stretch->rank, i);

        for (size_t b = 0; b < pattern->size; b++) /* little endian, as the machines Hocket runs on */
            pattern->bytes[i * pattern->size + b] = (char)(bits >> (8 * b));
    }
}

static size_t run_length(const struct stretch *stretch, size_t done)
{
    const size_t to_end = PERIOD - (stretch->first + done) % PERIOD;

    return stretch->count - done < to_end ? stretch->count - done : to_end;
}

static void fill(const struct data *data, const struct stretch *stretch)
{
    struct pattern pattern;

    make_pattern(&pattern, data, stretch);
    for (size_t done = 0, n; done < stretch->count; done += n) {
        n = run_length(stretch, done);
        memcpy(stretch->at + done * pattern.size, pattern.bytes + (stretch->first + done) % PERIOD * pattern.size,
               n * pattern.size);
    }
}

static void report(const struct data *data, const struct stretch *stretch, size_t i, const char *right)
{
    const size_t size  = (size_t)data->type.bits / 8;
    uint64_t     found = 0, expected = 0;
    char         from[32];

    memcpy(&found, stretch->at + i * size, size);
    memcpy(&expected, right, size);
    if (stretch->rank == EVERYBODY)
        snprintf(from, sizeof(from), "all ranks");
    else
        snprintf(from, sizeof(from), "rank %d", stretch->rank);
    fprintf(stderr, "hkt-perf: %s %s: element %zu of the part from %s is 0x%" PRIx64 ", right is 0x%" PRIx64 "\n",
            data->call->what->name, hkt_type_name(data->call->type), i, from, found, expected);
}

static size_t compare(const struct data *data, const struct stretch *stretch)
{
    struct pattern pattern;
    size_t         wrong = 0;

    make_pattern(&pattern, data, stretch);
    for (size_t done = 0, n; done < stretch->count; done += n) {
        const char *right = pattern.bytes + (stretch->first + done) % PERIOD * pattern.size;
        const char *found = stretch->at + done * pattern.size;

        n = run_length(stretch, done);
        if (memcmp(found, right, n * pattern.size) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            if (memcmp(found + i * pattern.size, right + i * pattern.size, pattern.size) && wrong++ == 0)
                report(data, stretch, done + i, right + i * pattern.size);
    }
    return wrong;
}

/* ---- buffers of a rank ------------------------------------------------------------------------------------------- */

static struct data data_of(const struct perf_rank *rank, const struct perf_call *call, uint64_t seed)
{
    return (struct data){.call = call, .type = types[call->type], .seed = mix(seed), .size = rank->size};
}

/* Bytes of the buffer that results go to; in place the input's part belongs to it. */
static size_t extent(const struct perf_rank *rank, const struct perf_call *call, bool in_place)
{
    size_t recv = perf_elements(rank, call, true), send = 0;

    if (in_place) {
        recv += perf_place(rank, call, true);
        send = perf_place(rank, call, false) + perf_elements(rank, call, false);
    }
    return (recv > send ? recv : send) * hkt_type_size(call->type);
}

enum { GUARD_BYTE = 0x5a, GARBAGE_BYTE = 0xa5 };

static size_t guard_wrong(const char *at)
{
    size_t wrong = 0;

    for (int i = 0; i < PERF_GUARD; i++)
        wrong += at[i] != GUARD_BYTE;
    return wrong;
}

static struct stretch own_input(const struct perf_rank *rank, const struct perf_call *call, bool in_place)
{
    return (struct stretch){perf_send(rank, call, in_place), rank->rank, 0, perf_elements(rank, call, false)};
}

void perf_prepare(const struct perf_rank *rank, const struct perf_call *call, bool in_place, uint64_t seed)
{
    const struct data    data  = data_of(rank, call, seed);
    const struct stretch input = own_input(rank, call, in_place);
    const size_t         bytes = extent(rank, call, in_place);

    memset(perf_base(rank, true) - PERF_GUARD, GUARD_BYTE, PERF_GUARD);
    memset(perf_base(rank, true) + bytes, GUARD_BYTE, PERF_GUARD);
    memset(perf_base(rank, true), GARBAGE_BYTE, bytes);
    fill(&data, &input);
}

/* Where the result of block r lies and what it is. */
static struct stretch result(const struct perf_rank *rank, const struct perf_call *call, bool in_place, int block)
{
    const struct perf_case *what = call->what;
    struct stretch          out  = {.at = perf_recv(rank, call, in_place), .count = perf_elements(rank, call, true)};

    switch (what->source) {
    case SOURCE_SUM:
        out.rank = EVERYBODY;
        break;
    case SOURCE_EACH:
        out.rank  = block;
        out.count = rank->counts[block];
        out.at += rank->displs[block] * hkt_type_size(call->type);
        break;
    case SOURCE_ROOT:
        out.rank = call->root;
        break;
    case SOURCE_PREVIOUS:
        out.rank = (rank->rank + rank->size - 1) % rank->size;
        break;
    case SOURCE_PARTNER:
        out.rank = rank->rank ^ 1;
        break;
    }
    out.first = perf_origin(rank, call, out.rank);
    return out;
}

size_t perf_wrong(const struct perf_rank *rank, const struct perf_call *call, bool in_place, uint64_t seed)
{
    const struct data data   = data_of(rank, call, seed);
    const int         blocks = call->what->source == SOURCE_EACH ? rank->size : 1;
    size_t            wrong  = 0;

    if (perf_elements(rank, call, true))
        for (int block = 0; block < blocks; block++) {
            const struct stretch expected = result(rank, call, in_place, block);

            wrong += compare(&data, &expected);
        }
    if (!in_place) {
        const struct stretch input = own_input(rank, call, in_place);

        wrong += compare(&data, &input);
    }
    wrong += guard_wrong(perf_base(rank, true) - PERF_GUARD);
    return wrong + guard_wrong(perf_base(rank, true) + extent(rank, call, in_place));
}
