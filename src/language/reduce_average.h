/* reduce_average.h -- the average of integers: an exact sum, then a division that truncates towards zero. Part of
 * reduce_kernels.c.
 *
 * Sums are 64 bits wide for types of 8 to 32 bits and 128 for those of 64, so they cannot overflow for any number of ranks; since
 * they are exact, the order of the sources does not matter. */

/* ---- 64-bit sums: the loops are the common ones, here is the division --------------------------------------------- */

/* In double. A sum below 2^51 is exact there, and its rounded quotient has the right whole part: a quotient that is no whole
 * number is at least 1/divisor, that is more than its rounding error, from the next one. */
INLINE vec divide_below_51_bits(vec v, vec divisor)
{
    const double    magic = 0x1.8p52; /* 2^52 + 2^51 + x holds x in its low bits */
    const v_uint64  bits = (v_uint64)SPLAT(float64, magic), sign = (v_uint64)SPLAT(uint64, (uint64_t)1 << 63);
    const v_float64 q     = ((v_float64)((v_uint64)v + bits) - magic) / (v_float64)divisor;
    const v_float64 near  = (q + magic) - magic;
    const v_uint64  above = (v_uint64)((v_float64)((v_uint64)near & ~sign) > (v_float64)((v_uint64)q & ~sign));
    const v_float64 one   = (v_float64)(above & ((v_uint64)SPLAT(float64, 1.0) | ((v_uint64)q & sign)));

    return (vec)((v_uint64)((near - one) + magic) - bits);
}

static __attribute__((noinline)) void divide_any(vec v[4], int64_t divisor)
{
    int64_t sum[4 * W / 8];

    memcpy(sum, v, sizeof(sum));
    for (int i = 0; i < 4 * W / 8; i++)
        sum[i] /= divisor;
    memcpy(v, sum, sizeof(sum));
}

/* The sum of d elements of 32 bits has 51 bits when d has 19. */
INLINE void divide_integers(vec v[4], vec divisor)
{
    const double d = ((v_float64)divisor)[0];

    if (d < 0x1p19)
        for (int k = 0; k < 4; k++)
            v[k] = divide_below_51_bits(v[k], divisor);
    else
        divide_any(v, (int64_t)d);
}

/* ---- 128-bit sums: plain code, since adding is two instructions an element and no vector unit divides -------------------- */

enum { AVERAGE_BLOCK = 128 /* elements */ };

typedef __int128          int128_any ANY;
typedef unsigned __int128 uint128_any ANY;
typedef int64_t           int64_any ANY;
typedef uint64_t          uint64_any ANY;

#define AVERAGE64(type, wide)                                                                                           \
    static type##_t divide_##type(wide sum, uint32_t divisor)                                                           \
    {                                                                                                                   \
        const type##_t low = (type##_t)sum;                                                                             \
                                                                                                                        \
        return (type##_t)(sum == low ? low / divisor : sum / divisor);                                                  \
    }                                                                                                                   \
                                                                                                                        \
    static void average_block_##type(const struct hkt_reduce *r, size_t at, size_t n)                                   \
    {                                                                                                                   \
        wide     sum[AVERAGE_BLOCK];                                                                                    \
        type##_t value[AVERAGE_BLOCK];                                                                                  \
                                                                                                                        \
        memset(sum, 0, n * sizeof(sum[0]));                                                                             \
        for (uint32_t s = 0; s < r->nsrc; s++) {                                                                        \
            const type##_any *x = (const type##_any *)r->src[s] + at;                                                   \
            const wide##_any *w = (const wide##_any *)r->src[s] + at;                                                   \
                                                                                                                        \
            for (size_t i = 0; i < n; i++)                                                                              \
                sum[i] += r->in == HKT_PARTIAL ? w[i] : x[i];                                                           \
        }                                                                                                               \
        if (r->out != HKT_PARTIAL)                                                                                      \
            for (size_t i = 0; i < n; i++)                                                                              \
                value[i] = divide_##type(sum[i], r->in == HKT_FINISHED ? 1 : r->divisor);                               \
        for (uint32_t d = 0; d < r->ndst; d++) {                                                                        \
            if (r->out == HKT_PARTIAL)                                                                                  \
                memcpy((wide##_any *)r->dst[d] + at, sum, n * sizeof(sum[0]));                                          \
            else                                                                                                        \
                memcpy((type##_any *)r->dst[d] + at, value, n * sizeof(value[0]));                                      \
        }                                                                                                               \
    }                                                                                                                   \
                                                                                                                        \
    static void reduce_##type##_avg(const struct hkt_reduce *r)                                                         \
    {                                                                                                                   \
        for (size_t at = 0; at < r->count; at += AVERAGE_BLOCK)                                                         \
            average_block_##type(r, at, r->count - at < AVERAGE_BLOCK ? r->count - at : AVERAGE_BLOCK);                 \
    }

typedef __int128          int128;
typedef unsigned __int128 uint128;

AVERAGE64(int64, int128)
AVERAGE64(uint64, uint128)
