/* test_layers.c -- what the model's layers are made of, against definitions in fp64: matrix products of every scheme
 * and shape, crews, blocked attention forward and backward, with every set of kernels that this processor can run.
 */
#include "crew.h"
#include "flash.h"
#include "harness.h"
#include "product.h"
#include "stop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *normals(uint32_t what, size_t count)
{
    float *x = take_floats(count + 1);

    hkt_random_fill_normal(x, hkt_random_at(5, what, 0, 0, 0), 0, count, 1);
    return x;
}

/* Integers that bf16 holds exactly, so that every scheme must give the same bits. */
static float *integers(uint32_t what, size_t count)
{
    float *x = take_floats(count + 1);

    for (size_t i = 0; i < count; i++)
        x[i] = (float)(hkt_random_bits(hkt_random_at(6, what, 0, 0, 0), i) % 17) - 8;
    return x;
}

static void use_kernels(int which)
{
    kernels = kernels_table[which < kernels_usable() ? which : 0];
    matrix_begin(MATRIX_FP32);
}

/* ---- products */

static float at(struct matrix m, int row, int col)
{
    return m.transposed ? m.data[(size_t)col * (size_t)m.stride + (size_t)row]
                        : m.data[(size_t)row * (size_t)m.stride + (size_t)col];
}

static struct matrix view(float *memory, int rows, int cols, bool transposed)
{
    const int gap = 5; /* rows do not lie side by side */

    return transposed ? transpose((struct matrix){memory, cols, rows, rows + gap, false})
                      : (struct matrix){memory, rows, cols, cols + gap, false};
}

static void product_case(const struct product_scheme *s, const int size[3], int variant)
{
    const int M = size[0], N = size[1], K = size[2], keep = variant >> 2;
    float    *x = integers(1, (size_t)(M + 5) * (size_t)(K + 5)), *y = integers(2, (size_t)(N + 5) * (size_t)(K + 5));
    float    *z = integers(3, (size_t)M * (size_t)(N + 5)), *old = integers(3, (size_t)M * (size_t)(N + 5));
    struct matrix a = view(x, M, K, variant & 1), b = view(y, K, N, variant & 2), c = view(z, M, N, false), before = c;

    before.data = old;
    product_run(s, c, a, b, keep);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N + 5; j++) {
            float sum = j >= N || keep ? before.data[i * before.stride + j] : 0;

            for (int k = 0; j < N && k < K; k++)
                sum += at(a, i, k) * at(b, k, j);
            ck_assert_msg(c.data[i * c.stride + j] == sum,
                          "%s: %d x %d x %d, variant %d: element (%d, %d) is %g, not %g", s->name, M, N, K, variant, i,
                          j, (double)c.data[i * c.stride + j], (double)sum);
        }
    free(x), free(y), free(z), free(old);
}

#ifdef HAVE_AMX
extern const struct product_scheme product_dot;
extern int                         product_dot_usable(void);
#endif

/* The way to multiply in bf16 that a matrix unit hides, where there is one; else the first way once more. */
static const struct product_scheme *hidden(void)
{
#ifdef HAVE_AMX
    if (kernels_usable() == 3 && product_dot_usable())
        return &product_dot;
#endif
    return product_single();
}

#ifdef __x86_64__
extern const struct product_scheme product_portable[2], product_avx2[2];
#define NARROWER product_portable, product_portable + 1, product_avx2, product_avx2 + 1
#else
#define NARROWER product_single()
#endif

START_TEST(products_are_exact)
{
    const struct product_scheme *const all[]  = {product_single(), product_single() + 1, product_half(), hidden(), NARROWER};
    const int                          usable = kernels_usable() > 1 ? (int)(sizeof(all) / sizeof(all[0])) : 4;
    static const int sizes[][3]               = {{1, 1, 1},    {3, 5, 7},    {8, 48, 256},  {9, 49, 257},  {64, 64, 64},
                                                 {33, 95, 31}, {31, 97, 65}, {70, 33, 600}, {513, 17, 40}, {16, 130, 513}};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int variant = 0; variant < 8; variant++)
            for (int which = 0; which < usable; which++)
                product_case(all[which], sizes[i], variant);
}
END_TEST

/* An element depends on neither threads nor neighbours: what layouts rely on. */
START_TEST(products_do_not_depend_on_division)
{
    enum { M = 70, N = 300, K = 777 };
    float              *a = normals(1, M * K), *b = normals(2, N * K), *c[3];
    const struct matrix x = matrix_of(a, M, K), y = transpose(matrix_of(b, N, K));

    for (int half = 0; half < 2; half++) {
        const struct product_scheme *s = half ? product_half() : product_single();

        for (int i = 0; i < 3; i++)
            c[i] = take_floats(M * N);
        product_run(s, matrix_of(c[0], M, N), x, y, 0);
        crew_begin(3);
        product_run(s, matrix_of(c[1], M, N), x, y, 0);
        crew_end();
        for (int j = 0; j < N; j += 100) /* in three parts of its columns */
            product_run(s, (struct matrix){c[2] + j, M, 100, N, false}, x, transpose(matrix_of(b + j * K, 100, K)), 0);
        ck_assert_mem_eq(c[0], c[1], M * N * sizeof(float));
        ck_assert_mem_eq(c[0], c[2], M * N * sizeof(float));
        for (int i = 0; i < 3; i++)
            free(c[i]);
    }
    free(a), free(b);
}
END_TEST

/* Factors are rounded to bf16, sums are not. */
START_TEST(half_products_sum_in_fp32)
{
    enum { K = 4096 };
    float *a = take_floats(K), *b = take_floats(K), c = 0, nan = 0;

    for (int k = 0; k < K; k++)
        a[k] = 1 + 0x1p-9f, b[k] = 1; /* the step of bf16 at 1 is 2^-7: rounds to 1 */
    product_run(product_half(), matrix_of(&c, 1, 1), matrix_of(a, 1, K), matrix_of(b, K, 1), 0);
    ck_assert(c == K); /* a sum in bf16 would stop at 256 */
    a[77] = NAN;
    product_run(product_half(), matrix_of(&nan, 1, 1), matrix_of(a, 1, K), matrix_of(b, K, 1), 0);
    ck_assert(isnan(nan));
    free(a), free(b);
}
END_TEST

/* ---- crews */

static void count_up(void *arg, size_t first, size_t count)
{
    unsigned char *seen = arg;

    for (size_t i = first; i < first + count; i++)
        seen[i]++;
}

/* Work within work is done by the thread that has it. */
static void count_within(void *arg, size_t first, size_t count)
{
    crew_run(count_up, (unsigned char *)arg + first, count, 1);
}

START_TEST(crews_do_everything_once)
{
    static const size_t totals[] = {0, 1, 7, 64, 1000};

    for (int threads = 1; threads <= 4; threads++) {
        crew_begin(threads);
        ck_assert_int_eq(crew_size(), threads);
        for (int round = 0; round < 200; round++)
            for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
                unsigned char seen[1001] = {0};

                crew_run(round & 1 ? count_up : count_within, seen, totals[i], 1 + (size_t)round % 9);
                for (size_t k = 0; k <= 1000; k++)
                    ck_assert_uint_eq(seen[k], k < totals[i]);
            }
        crew_end();
        ck_assert_int_eq(crew_size(), 1);
    }
}
END_TEST

/* ---- attention */

enum { BATCH = 2, ALL_HEADS = 4, OWN = 2, FIRST = 1, SIZE = 12, LONGEST = 600 };

struct attention {
    hkt_attention_t a;
    struct flash    f;
    const float    *qkv;
    int32_t         start[BATCH * LONGEST];
    hkt_random_t    random[BATCH];
    double          p[LONGEST];    /* chances of one row */
    float           stay[LONGEST]; /* of the dropout */
    const float    *dmixed;
    double         *mixed, *gradient; /* by definition */
};

enum { QUERY, KEY, VALUE };

/* Where the query, key or value of a row and head begins. */
static size_t part(int row, int h, int which)
{
    return (((size_t)row * OWN + (size_t)h) * 3 + (size_t)which) * SIZE;
}

static hkt_heads_t third(float *qkv, size_t length, int which)
{
    return (hkt_heads_t){qkv + (size_t)which * SIZE, length * OWN * 3 * SIZE, OWN * 3 * SIZE, 3 * SIZE, 0};
}

static double dot(const float *x, const float *y)
{
    double sum = 0;

    for (int i = 0; i < SIZE; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* The chances of row q, and what stays of them, by definition. */
static void chances(struct attention *a, int b, int h, int q)
{
    const struct flash *f    = &a->f;
    const int           from = f->start ? f->start[b * f->length + q] : 0;
    const float        *own  = a->qkv + part(b * f->length + q, h, QUERY);
    double              most = -INFINITY, sum = 0;

    for (int k = 0; k < f->length; k++) {
        const uint64_t index =
            ((uint64_t)(FIRST + h) * (uint64_t)f->span + (uint64_t)q) * (uint64_t)f->span + (uint64_t)k;
        const bool stays = !f->random || hkt_random_bits(f->random[b], index) < f->dropout.below;

        a->p[k]    = 0;
        a->stay[k] = !stays ? 0 : f->random ? f->dropout.factor : 1;
        if (k < from || k > q)
            continue;
        a->p[k] = dot(own, a->qkv + part(b * f->length + k, h, KEY)) / sqrt(SIZE) -
                  (f->slope ? (double)f->slope[h] * (q - k) : 0);
        most = fmax(most, a->p[k]);
    }
    for (int k = from; k <= q; k++)
        sum += a->p[k] = exp(a->p[k] - most);
    for (int k = from; k <= q; k++)
        a->p[k] /= sum;
}

/* What row q contributes: mixed, and the gradients of queries, keys and values. */
static void row_by_definition(struct attention *a, int b, int h, int q)
{
    const struct flash *f   = &a->f;
    const int           row = b * f->length;
    const size_t        out = ((size_t)(row + q) * OWN + (size_t)h) * SIZE, query = part(row + q, h, QUERY);
    double              dp[LONGEST], mean                                         = 0;

    chances(a, b, h, q);
    for (int k = 0; k <= q; k++) {
        const size_t value = part(row + k, h, VALUE);

        for (size_t i = 0; i < SIZE; i++) {
            a->mixed[out + i] += a->p[k] * (double)a->stay[k] * (double)a->qkv[value + i];
            a->gradient[value + i] += a->p[k] * (double)a->stay[k] * (double)a->dmixed[out + i];
        }
        dp[k] = dot(a->dmixed + out, a->qkv + value) * (double)a->stay[k];
        mean += a->p[k] * dp[k];
    }
    for (int k = 0; k <= q; k++) {
        const size_t key = part(row + k, h, KEY);
        const double ds  = a->p[k] * (dp[k] - mean) / sqrt(SIZE);

        for (size_t i = 0; i < SIZE; i++) {
            a->gradient[query + i] += ds * (double)a->qkv[key + i];
            a->gradient[key + i] += ds * (double)a->qkv[query + i];
        }
    }
}

static void expect_near(const float *x, const double *wanted, size_t count, double tolerance, const char *what)
{
    double size = 0, worst = 0;

    for (size_t i = 0; i < count; i++) {
        size += wanted[i] * wanted[i];
        worst = fmax(worst, fabs((double)x[i] - wanted[i]));
    }
    size = sqrt(size / (double)count);
    ck_assert_msg(worst <= tolerance * fmax(size, 1), "%s (%s): %g off, of typically %g", what, kernels->name, worst,
                  size);
}

static hkt_heads_t from_row(hkt_heads_t v, size_t row)
{
    v.data += row * v.row;
    return v;
}

/* The block of `queries` queries from q on and `keys` keys from k on. */
static hkt_attention_t block_of(const hkt_attention_t *a, size_t q, size_t queries, size_t k, size_t keys)
{
    hkt_attention_t block = *a;

    block.queries = queries, block.keys = keys;
    block.first_query = block.own_query = q, block.first_key = k;
    block.query = from_row(a->query, q), block.out = from_row(a->out, q), block.log_sum = from_row(a->log_sum, q);
    block.key = from_row(a->key, k), block.value = from_row(a->value, k);
    return block;
}

/* The same attention by blocks that are merged, cut anywhere: also where a block hides all its keys from a query. */
static void by_blocks(struct attention *a, const hkt_attention_gradient_t *g, float *scratch)
{
    const size_t T = a->a.queries, cut[] = {0, T / 3, T * 4 / 5, T};
    float       *part = take_floats(BATCH * T * OWN * (SIZE + 1));

    for (int pass = 0; pass < 2; pass++)
        for (int q = 0; q < 3; q++)
            for (int k = 2; k >= 0; k--) {
                hkt_attention_t b     = block_of(&a->a, cut[q], cut[q + 1] - cut[q], cut[k], cut[k + 1] - cut[k]),
                                other = b;
                const hkt_attention_gradient_t h = {from_row(g->dout, cut[q]), from_row(g->dquery, cut[q]),
                                                    from_row(g->dkey, cut[k]), from_row(g->dvalue, cut[k])};

                other.out     = (hkt_heads_t){part, b.queries * OWN * SIZE, OWN * SIZE, SIZE, 0};
                other.log_sum = (hkt_heads_t){part + BATCH * T * OWN * SIZE, b.queries, 1, BATCH * b.queries, 0};
                if (b.queries == 0 || b.keys == 0)
                    continue;
                if (pass == 1)
                    flash_backward(&h, &b, &a->f, scratch);
                else if (k == 2)
                    flash_forward(&b, &a->f, scratch);
                else
                    flash_forward(&other, &a->f, scratch), hkt_attention_merge(&b, &other.out, &other.log_sum);
            }
    free(part);
}

static const float slope[OWN] = {0.25f, 0.01f};

/* With documents, slopes and masks as the variant's bits say. */
static void attention_begin(struct attention *a, size_t T, int variant, float *qkv, float *mixed)
{
    const int length = (int)T;

    a->qkv = qkv;
    a->a   = (hkt_attention_t){.batch     = BATCH,
                               .size      = SIZE,
                               .heads     = OWN,
                               .key_heads = OWN,
                               .queries   = T,
                               .keys      = T,
                               .query     = third(qkv, T, QUERY),
                               .key       = third(qkv, T, KEY),
                               .value     = third(qkv, T, VALUE),
                               .out       = {mixed, T * OWN * SIZE, OWN * SIZE, SIZE, 0},
                               .log_sum   = {mixed + BATCH * T * OWN * SIZE, T, 1, BATCH * T, 0}};
    a->f   = (struct flash){.length     = length,
                            .start      = variant & 1 ? a->start : NULL,
                            .slope      = variant & 2 ? slope : NULL,
                            .dropout    = {0xc0000000u, 4.0f / 3},
                            .random     = variant & 4 ? a->random : NULL,
                            .first_head = FIRST,
                            .span       = LONGEST};
    for (int b = 0; b < BATCH; b++) {
        a->random[b] = hkt_random_at(1, 2, (uint32_t)b, 0, 0);
        for (int t = 0; t < length; t++)
            a->start[b * length + t] = t < length / 2 ? 0 : length / 2 + b < t ? length / 2 + b : 0;
    }
}

static void by_definition(struct attention *a)
{
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < OWN; h++)
            for (int q = 0; q < a->f.length; q++)
                row_by_definition(a, b, h, q);
}

/* Row 90: blocked equals naive, and two threads give the same bits. */
static void attention_case(int length, int variant)
{
    static struct attention a;
    const size_t T = (size_t)length, rows = BATCH * T, count = rows * OWN * SIZE, bytes = 3 * count * sizeof(float);
    float       *qkv = normals(1, 3 * count), *dmixed = normals(2, count), *mixed = take_floats(count + rows * OWN),
          *dqkv = take_floats(3 * count), *again = take_floats(4 * count), *scratch = take_floats(flash_scratch(2));
    const hkt_attention_gradient_t g     = {{dmixed, T * OWN * SIZE, OWN * SIZE, SIZE, 0},
                                            third(dqkv, T, QUERY),
                                            third(dqkv, T, KEY),
                                            third(dqkv, T, VALUE)};
    double                        *exact = calloc(count, sizeof(double)), *gradient = calloc(3 * count, sizeof(double));

    ck_assert(exact && gradient);
    attention_begin(&a, T, variant, qkv, mixed);
    a.dmixed = dmixed, a.mixed = exact, a.gradient = gradient;
    by_definition(&a);
    for (int threads = 1; threads <= 2; threads++) {
        crew_begin(threads);
        memset(dqkv, 0, bytes);
        flash_forward(&a.a, &a.f, scratch);
        flash_backward(&g, &a.a, &a.f, scratch);
        crew_end();
        expect_near(mixed, exact, count, 2e-6, "attention");
        expect_near(dqkv, gradient, 3 * count, 1e-5, "attention's gradient");
        ck_assert(threads == 1 ||
                  (!memcmp(again, dqkv, bytes) && !memcmp(again + 3 * count, mixed, count * sizeof(float))));
        memcpy(again, dqkv, bytes);
        memcpy(again + 3 * count, mixed, count * sizeof(float));
    }
    memset(dqkv, 0, bytes);
    if (length > 4) {
        by_blocks(&a, &g, scratch);
        expect_near(mixed, exact, count, 2e-6, "attention by blocks");
        expect_near(dqkv, gradient, 3 * count, 1e-5, "the gradient of attention by blocks");
    }
    for (float **p = (float *[]){qkv, dmixed, mixed, dqkv, scratch, again, NULL}; *p; p++)
        free(*p);
    free(exact), free(gradient);
}

START_TEST(blocked_attention_equals_naive)
{
    static const int lengths[] = {1, 63, 65, 130, 330};

    use_kernels(_i % 3);
    for (int variant = 0; variant < 8; variant++)
        attention_case(lengths[_i / 3], variant);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, products_are_exact, 1, 180);
    ADD(s, products_do_not_depend_on_division, 1, 20);
    ADD(s, half_products_sum_in_fp32, 1, 10);
    ADD(s, crews_do_everything_once, 1, 20);
    ADD(s, blocked_attention_equals_naive, 15, 30);
}

int main(void)
{
    return run_suite("layers", add);
}
