/* reduce_loops.h -- the loops of the kernels, and the table ("family") of them for each type and operator. Part of
 * reduce_kernels.c.
 *
 * A loop goes over units, four vectors of the wide type: it reads the unit from up to FAN sources, folds it in registers by the
 * canonical tree and stores it to every destination. In the FAST form the number of sources is a constant in each copy of
 * the code; the SMALL form is one copy for all, for what is seldom asked for. */

enum {
    FAN  = 8,
    UNIT = 4 * W /* bytes of the wide type */
};

/* One run of a loop. */
struct span {
    const char  *src[FAN];
    const vec   *scale;   /* of each source, for SCALED loops */
    const vec   *divisor; /* for DIVIDED ones */
    void *const *dst;
    size_t       at;      /* bytes into each destination */
    size_t       units;
    uint32_t     nsrc, ndst;
    uint32_t     in, out, unit; /* bytes of an element, elements of a unit: the loops know them */
    bool         stream;
};

typedef void loop_fn(const struct span *s);

enum load { NARROW, SCALED, WIDE, LOADS };      /* of the type; the same, then premultiplied; of the wide type */
enum save { ROUNDED, DIVIDED, PARTIAL, SAVES }; /* to the type; divided before that; to the wide type */

INLINE void put_one(const struct span *s, char *p, vec v)
{
    if (s->stream)
        store_past(p, v);
    else
        store(p, v);
}

INLINE void put(const struct span *s, size_t at, const vec v[4], const int bytes)
{
    for (uint32_t d = 0; d < s->ndst; d++) {
        char *p = (char *)s->dst[d] + s->at + at;

        if (bytes < W)
            memcpy(p, v, (size_t)bytes);
        if (bytes >= W)
            put_one(s, p, v[0]);
        if (bytes >= 2 * W)
            put_one(s, p + W, v[1]);
        if (bytes >= 4 * W) {
            put_one(s, p + 2 * W, v[2]);
            put_one(s, p + 3 * W, v[3]);
        }
    }
}

#define SOURCE(read, i) read(src[i] + at, k, scale + (i))

/* The fold of up to FAN sources, vector k of the unit. */
#define TREE(name, read, fold)                                                                                          \
    INLINE vec tree_##name(const char *const *src, const vec *scale, size_t at, const int k, const uint32_t n)          \
    {                                                                                                                   \
        vec a = SOURCE(read, 0), b;                                                                                     \
                                                                                                                        \
        if (n >= 2)                                                                                                     \
            a = fold(a, SOURCE(read, 1));                                                                               \
        if (n == 3)                                                                                                     \
            a = fold(a, SOURCE(read, 2));                                                                               \
        if (n >= 4)                                                                                                     \
            a = fold(a, fold(SOURCE(read, 2), SOURCE(read, 3)));                                                        \
        if (n <= 4)                                                                                                     \
            return a;                                                                                                   \
        b = SOURCE(read, 4);                                                                                            \
        if (n >= 6)                                                                                                     \
            b = fold(b, SOURCE(read, 5));                                                                               \
        if (n == 7)                                                                                                     \
            b = fold(b, SOURCE(read, 6));                                                                               \
        if (n == 8)                                                                                                     \
            b = fold(b, fold(SOURCE(read, 6), SOURCE(read, 7)));                                                        \
        return fold(a, b);                                                                                              \
    }

/* From memory, where conversions leave the processor too little sight of what comes next: 5 % at two sources. Past the end of the
 * buffers it does nothing. */
INLINE void fetch_ahead(const struct span *s, size_t at, const uint32_t n, const int unit)
{
    enum { AHEAD = 512, LINE = 64 };

    for (uint32_t i = 0; i < n; i++)
        for (int line = 0; line < unit; line += LINE)
            __builtin_prefetch(s->src[i] + at + AHEAD + line);
}

/* `in` and `out` are the bytes of a unit in memory. */
#define FAST(name, read, fold, finish, in, out)                                                                         \
    TREE(name, read, fold)                                                                                              \
    INLINE void run_##name(const struct span *s, const uint32_t n)                                                      \
    {                                                                                                                   \
        const struct span t = *s; /* so that stores cannot alias it */                                                  \
                                                                                                                        \
        for (size_t u = 0; u < t.units; u++) {                                                                          \
            const size_t at = u * (in);                                                                                 \
            vec          v[4];                                                                                          \
                                                                                                                        \
            if ((in) < 4 * W && t.stream)                                                                               \
                fetch_ahead(&t, at, n, in);                                                                             \
            UNIT_OF(v, tree_##name(t.src, t.scale, at, k, n));                                                          \
            finish(v, t.divisor);                                                                                       \
            put(&t, u * (out), v, out);                                                                                 \
        }                                                                                                               \
    }                                                                                                                   \
                                                                                                                        \
    static void name(const struct span *s)                                                                              \
    {                                                                                                                   \
        switch (s->nsrc) {                                                                                              \
        case 1:                                                                                                         \
            run_##name(s, 1);                                                                                           \
            break;                                                                                                      \
        case 2:                                                                                                         \
            run_##name(s, 2);                                                                                           \
            break;                                                                                                      \
        case 3:                                                                                                         \
            run_##name(s, 3);                                                                                           \
            break;                                                                                                      \
        case 4:                                                                                                         \
            run_##name(s, 4);                                                                                           \
            break;                                                                                                      \
        case 5:                                                                                                         \
            run_##name(s, 5);                                                                                           \
            break;                                                                                                      \
        case 6:                                                                                                         \
            run_##name(s, 6);                                                                                           \
            break;                                                                                                      \
        case 7:                                                                                                         \
            run_##name(s, 7);                                                                                           \
            break;                                                                                                      \
        default:                                                                                                        \
            run_##name(s, 8);                                                                                           \
        }                                                                                                               \
    }

#define SMALL(name, read, fold, finish, in, out)                                                                        \
    TREE(name, read, fold)                                                                                              \
    static void name(const struct span *t)                                                                              \
    {                                                                                                                   \
        for (size_t u = 0; u < t->units; u++) {                                                                         \
            vec v[4];                                                                                                   \
                                                                                                                        \
            UNIT_OF(v, tree_##name(t->src, t->scale, u * (in), k, t->nsrc));                                            \
            finish(v, t->divisor);                                                                                      \
            put(t, u * (out), v, out);                                                                                  \
        }                                                                                                               \
    }

/* How a type is read and finished; `kind` is its wide type. */
#define READS(type, kind, canonical)                                                                                    \
    INLINE vec narrow_##type(const char *p, int k, const vec *scale)                                                    \
    {                                                                                                                   \
        (void)scale;                                                                                                    \
        return read_##type(p, k);                                                                                       \
    }                                                                                                                   \
    INLINE vec scaled_##type(const char *p, int k, const vec *scale)                                                    \
    {                                                                                                                   \
        return prod_##kind(read_##type(p, k), *scale);                                                                  \
    }                                                                                                                   \
    INLINE void rounded_##type(vec v[4], const vec *divisor)                                                            \
    {                                                                                                                   \
        (void)divisor;                                                                                                  \
        UNIT_OF(v, canonical(v[k]));                                                                                    \
        pack_##type(v);                                                                                                 \
    }

/* One vector of the type, which is `parts` of the wide type. */
#define TINY(name, type, fold, parts)                                                                                   \
    TREE(name, narrow_##type, fold)                                                                                     \
    static vec name(const char *const *src, uint32_t n)                                                                 \
    {                                                                                                                   \
        vec v[4] = {tree_##name(src, NULL, 0, 0, n)};                                                                   \
                                                                                                                        \
        if ((parts) > 1)                                                                                                \
            v[1] = tree_##name(src, NULL, 0, 1, n);                                                                     \
        if ((parts) > 2) {                                                                                              \
            v[2] = tree_##name(src, NULL, 0, 2, n);                                                                     \
            v[3] = tree_##name(src, NULL, 0, 3, n);                                                                     \
        }                                                                                                               \
        rounded_##type(v, NULL);                                                                                        \
        return v[0];                                                                                                    \
    }

#define DIVIDES(type, kind)                                                                                             \
    INLINE void divided_##type(vec v[4], const vec *divisor)                                                            \
    {                                                                                                                   \
        UNIT_OF(v, divide_##kind(v[k], *divisor));                                                                      \
        rounded_##type(v, divisor);                                                                                     \
    }

/* Types that are their own wide type. */
#define SELF_LOOP(FORM, type, op)                                                                                       \
    TINY(op##_##type##_tiny, type, op##_##type, 1)                                                                      \
    FORM(op##_##type##_loop, narrow_##type, op##_##type, rounded_##type, 4 * W, 4 * W)
#define EXTREME_LOOPS(type)                                                                                             \
    READS(type, type, canonical_##type)                                                                                 \
    SELF_LOOP(SMALL, type, min)                                                                                         \
    SELF_LOOP(SMALL, type, max)
#define WRAPPING_LOOPS(type) /* the same for signed and unsigned */                                                     \
    SELF_LOOP(FAST, type, sum)                                                                                          \
    SELF_LOOP(SMALL, type, prod)                                                                                        \
    SMALL(sum_##type##_scaled, scaled_##type, sum_##type, rounded_##type, 4 * W, 4 * W)
#define FLOAT_LOOPS(type)                                                                                               \
    EXTREME_LOOPS(type)                                                                                                 \
    WRAPPING_LOOPS(type)                                                                                                \
    DIVIDES(type, type)                                                                                                 \
    FAST(sum_##type##_divided, narrow_##type, sum_##type, divided_##type, 4 * W, 4 * W)

EXTREME_LOOPS(int8)
EXTREME_LOOPS(uint8)
EXTREME_LOOPS(int16)
EXTREME_LOOPS(uint16)
EXTREME_LOOPS(int32)
EXTREME_LOOPS(uint32)
EXTREME_LOOPS(int64)
EXTREME_LOOPS(uint64)
WRAPPING_LOOPS(uint8)
WRAPPING_LOOPS(uint16)
WRAPPING_LOOPS(uint32)
WRAPPING_LOOPS(uint64)
FLOAT_LOOPS(float32)
FLOAT_LOOPS(float64)

/* The small floats. Where fp32 does not meet memory, sums read and finish in the way of `sums`, and the others in that of `order`;
 * `size` bytes are a unit. */
#define WIDE_LOOPS(FORM, type, size, op)                                                                                \
    TINY(op##_##type##_tiny, type, op##_float32, 4 * W / (size))                                                        \
    FORM(op##_##type##_partial, narrow_##type, op##_float32, rounded_float32, size, 4 * W)                              \
    SMALL(op##_##type##_wide, narrow_float32, op##_float32, rounded_##type, 4 * W, size)
#define OTHER_LOOPS(type, order, size, op)                                                                              \
    SMALL(op##_##type##_loop, narrow_##order, op##_float32, rounded_##order, size, size)                                \
    WIDE_LOOPS(SMALL, type, size, op)
#define WIDENED_LOOPS(FORM, type, sums, order, size)                                                                    \
    FORM(sum_##type##_loop, narrow_##sums, sum_float32, rounded_##sums, size, size)                                     \
    FORM(sum_##type##_divided, narrow_##sums, sum_float32, divided_##sums, size, size)                                  \
    SMALL(sum_##type##_scaled, scaled_##order, sum_float32, rounded_##order, size, size)                                \
    SMALL(sum_##type##_scaled_partial, scaled_##type, sum_float32, rounded_float32, size, 4 * W)                        \
    SMALL(sum_##type##_wide_divided, narrow_float32, sum_float32, divided_##type, 4 * W, size)                          \
    WIDE_LOOPS(FORM, type, size, sum)                                                                                   \
    OTHER_LOOPS(type, order, size, prod)                                                                                \
    OTHER_LOOPS(type, order, size, min)                                                                                 \
    OTHER_LOOPS(type, order, size, max)

#define WIDENED(type, canonical)                                                                                        \
    READS(type, float32, canonical)                                                                                     \
    DIVIDES(type, float32)
#define ANY_NAN(v) (v) /* where the packing makes it canonical */

WIDENED(float16, ANY_NAN)
WIDENED(bfloat16, canonical_float32)
WIDENED(bfloat16_split, canonical_float32)
WIDENED(bfloat16_sums, ANY_NAN)
WIDENED(e4m3, ANY_NAN)
WIDENED(e4m3_scaled, ANY_NAN)
WIDENED(e5m2, ANY_NAN)
WIDENED_LOOPS(FORM_FLOAT16, float16, float16, float16, 2 * W)
WIDENED_LOOPS(FAST, bfloat16, bfloat16_sums, bfloat16_split, 2 * W)
WIDENED_LOOPS(SMALL, e4m3, e4m3_scaled, e4m3, W)
WIDENED_LOOPS(SMALL, e5m2, e5m2, e5m2, W)

/* The average of integers of up to 32 bits, summed in 64. */
#define AVERAGE_LOOPS(type, size, pack)                                                                                 \
    INLINE vec narrow_average_##type(const char *p, int k, const vec *scale)                                            \
    {                                                                                                                   \
        (void)scale;                                                                                                    \
        return read_average_##type(p, k);                                                                               \
    }                                                                                                                   \
    INLINE void divided_average_##type(vec v[4], const vec *divisor)                                                    \
    {                                                                                                                   \
        divide_integers(v, *divisor);                                                                                   \
        pack(v);                                                                                                        \
    }                                                                                                                   \
    SMALL(average_##type##_loop, narrow_average_##type, sum_uint64, divided_average_##type, size, size)                 \
    SMALL(average_##type##_partial, narrow_average_##type, sum_uint64, rounded_uint64, size, 4 * W)                     \
    SMALL(average_##type##_wide, narrow_uint64, sum_uint64, divided_average_##type, 4 * W, size)

AVERAGE_LOOPS(int8, W / 2, pack_low8)
AVERAGE_LOOPS(uint8, W / 2, pack_low8)
AVERAGE_LOOPS(int16, W, pack_low16)
AVERAGE_LOOPS(uint16, W, pack_low16)
AVERAGE_LOOPS(int32, 2 * W, pack_low32)
AVERAGE_LOOPS(uint32, 2 * W, pack_low32)

/* ---- families: what a type and operator are made of --------------------------------------------------------------- */

struct family {
    loop_fn *loop[LOADS][SAVES];
    vec    (*tiny)(const char *const *src, uint32_t n); /* from the type to the type; NULL where there is none */
    vec    (*splat)(double x);                          /* a scale or divisor in every lane */
    uint8_t  size, wide;       /* bytes */
    uint16_t unit;             /* elements */
};

/* Truncated towards zero, modulo 2^64. */
static uint64_t integer_of(double x)
{
    const double limit = 0x1p64;

    if (!isfinite(x))
        return 0;
    x = fmod(trunc(x), limit);
    return x >= 0 ? (uint64_t)x : 0 - (uint64_t)-x;
}

#define SPLATS(type, expr)                                                                                              \
    static vec splat_##type(double x)                                                                                   \
    {                                                                                                                   \
        return SPLAT(type, (type##_lane)(expr));                                                                        \
    }

typedef int8_t   int8_lane;
typedef uint8_t  uint8_lane;
typedef int16_t  int16_lane;
typedef uint16_t uint16_lane;
typedef int32_t  int32_lane;
typedef uint32_t uint32_lane;
typedef int64_t  int64_lane;
typedef uint64_t uint64_lane;
typedef float    float32_lane;
typedef double   float64_lane;

SPLATS(int8, integer_of(x))
SPLATS(uint8, integer_of(x))
SPLATS(int16, integer_of(x))
SPLATS(uint16, integer_of(x))
SPLATS(int32, integer_of(x))
SPLATS(uint32, integer_of(x))
SPLATS(int64, integer_of(x))
SPLATS(uint64, integer_of(x))
SPLATS(float32, x)
SPLATS(float64, x)

/* `sums` names the loops of the type with the same sums and products. */
#define FAMILY(type, op, loops, bytes, scaled, divided)                                                                 \
    static const struct family op##_##type##_family = {                                                                 \
        {{op##_##loops##_loop, divided, op##_##loops##_loop},                                                           \
         {scaled, NULL, scaled},                                                                                        \
         {op##_##loops##_loop, divided, op##_##loops##_loop}},                                                          \
        op##_##loops##_tiny, splat_##type, bytes, bytes, UNIT / (bytes)};
#define SELF_FAMILIES(type, sums, bytes, divided)                                                                       \
    FAMILY(type, sum, sums, bytes, sum_##sums##_scaled, divided)                                                        \
    FAMILY(type, prod, sums, bytes, NULL, NULL)                                                                         \
    FAMILY(type, min, type, bytes, NULL, NULL)                                                                          \
    FAMILY(type, max, type, bytes, NULL, NULL)

SELF_FAMILIES(int8, uint8, 1, NULL)
SELF_FAMILIES(uint8, uint8, 1, NULL)
SELF_FAMILIES(int16, uint16, 2, NULL)
SELF_FAMILIES(uint16, uint16, 2, NULL)
SELF_FAMILIES(int32, uint32, 4, NULL)
SELF_FAMILIES(uint32, uint32, 4, NULL)
SELF_FAMILIES(int64, uint64, 8, NULL)
SELF_FAMILIES(uint64, uint64, 8, NULL)
SELF_FAMILIES(float32, float32, 4, sum_float32_divided)
SELF_FAMILIES(float64, float64, 8, sum_float64_divided)

#define WIDENED_FAMILY(type, op, bytes)                                                                                 \
    static const struct family op##_##type##_family = {{{op##_##type##_loop, NULL, op##_##type##_partial},              \
                                                        {NULL, NULL, NULL},                                             \
                                                        {op##_##type##_wide, NULL, op##_float32_loop}},                 \
                                                       op##_##type##_tiny, splat_float32, bytes, 4, UNIT / 4};
#define WIDENED_FAMILIES(type, bytes)                                                                                   \
    static const struct family sum_##type##_family = {                                                                  \
        {{sum_##type##_loop, sum_##type##_divided, sum_##type##_partial},                                               \
         {sum_##type##_scaled, NULL, sum_##type##_scaled_partial},                                                      \
         {sum_##type##_wide, sum_##type##_wide_divided, sum_float32_loop}},                                             \
        sum_##type##_tiny, splat_float32, bytes, 4, UNIT / 4};                                                          \
    WIDENED_FAMILY(type, prod, bytes)                                                                                   \
    WIDENED_FAMILY(type, min, bytes)                                                                                    \
    WIDENED_FAMILY(type, max, bytes)

WIDENED_FAMILIES(float16, 2)
WIDENED_FAMILIES(bfloat16, 2)
WIDENED_FAMILIES(e4m3, 1)
WIDENED_FAMILIES(e5m2, 1)

#define AVERAGE_FAMILY(type, bytes)                                                                                     \
    static const struct family average_##type##_family = {                                                              \
        {{average_##type##_loop, average_##type##_loop, average_##type##_partial},                                      \
         {NULL, NULL, NULL},                                                                                            \
         {average_##type##_wide, average_##type##_wide, sum_uint64_loop}},                                              \
        NULL, splat_float64, bytes, 8, UNIT / 8};

AVERAGE_FAMILY(int8, 1)
AVERAGE_FAMILY(uint8, 1)
AVERAGE_FAMILY(int16, 2)
AVERAGE_FAMILY(uint16, 2)
AVERAGE_FAMILY(int32, 4)
AVERAGE_FAMILY(uint32, 4)
