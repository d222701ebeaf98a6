/* test_tensor.c -- tensor and sequence parallelism: the mappings and their backward, column and row layers against the
 * whole layer bit by bit (integers in fp32: every order of adding gives the same bits), the calls and bytes per layer,
 * the split vocabulary against its definition in fp64, sums over slices that do not depend on the number of ranks, and
 * refusals.
 */
#include "harness.h"

#include <hocket_train.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 24, IN = 24, OUT = 48 };

/* The plainest product there is; sums in order of the inner index. */
static int plain_product(hkt_view_t c, hkt_view_t a, hkt_view_t b, bool keep, void *arg)
{
    const size_t ar = a.transposed ? 1 : a.stride, ac = a.transposed ? a.stride : 1;
    const size_t br = b.transposed ? 1 : b.stride, bc = b.transposed ? b.stride : 1;
    float       *to = c.data, *x = a.data, *y = b.data;

    (void)arg;
    for (size_t i = 0; i < c.rows; i++)
        for (size_t j = 0; j < c.cols; j++) {
            float sum = 0;

            for (size_t k = 0; k < a.cols; k++)
                sum += x[i * ar + k * ac] * y[k * br + j * bc];
            to[i * c.stride + j] = keep ? to[i * c.stride + j] + sum : sum;
        }
    return HKT_OK;
}

/* Small integers that depend on `what`, or normals. */
static float *numbers(const char *what, size_t count, bool normal)
{
    const hkt_random_t r = hkt_random_named(7, what);
    float             *x = malloc((count + 1) * sizeof(*x));

    expect_true(x != NULL);
    if (normal)
        hkt_random_fill_normal(x, r, 0, count, 1);
    else
        for (size_t i = 0; i < count; i++)
            x[i] = (float)(int)(hkt_random_bits(r, i) % 7) - 3;
    return x;
}

static float *nothing(size_t count)
{
    float *x = calloc(count + 1, sizeof(*x));

    expect_true(x != NULL);
    return x;
}

static void give(float **all)
{
    for (; *all; all++)
        free(*all);
}
#define GIVE(...) give((float *[]){__VA_ARGS__, NULL})

static bool equal(const float *x, const float *y, size_t count)
{
    return memcmp(x, y, count * sizeof(*x)) == 0;
}

static hkt_tensor_t *group(struct rank *me, hkt_tensor_config_t config)
{
    hkt_tensor_t *t = NULL;

    config.comm    = me ? me->comm : NULL;
    config.product = plain_product;
    expect_ok(hkt_tensor_create(&t, &config));
    return t;
}

#define CONFIG(...) ((hkt_tensor_config_t){.size = sizeof(hkt_tensor_config_t), .type = HKT_FLOAT32, __VA_ARGS__})

/* The columns of rank `part` of n. */
static float *columns(const float *x, size_t rows, size_t cols, int n, int part)
{
    const size_t width = cols / (size_t)n;
    float       *y     = nothing(rows * width);

    for (size_t i = 0; i < rows; i++)
        memcpy(y + i * width, x + i * cols + (size_t)part * width, width * sizeof(*x));
    return y;
}

/* ---- rows 30 to 33 and 39 to 41: every mapping gives what its definition says */

static void regions(struct rank *me)
{
    const int     n     = me->n;
    const size_t  count = ROWS * OUT, own = count / (size_t)n, first = own * (size_t)me->rank;
    hkt_tensor_t *t = group(me, CONFIG(.sequence = true));
    float        *x = numbers("x", count, false), *sum = nothing(count), *mine = nothing(count), *out = nothing(count);
    float        *cut = columns(x, ROWS, OUT, n, me->rank);

    for (size_t i = 0; i < count; i++) { /* rank r holds (r + 1) x */
        mine[i] = (float)(me->rank + 1) * x[i];
        sum[i]  = (float)(n * (n + 1) / 2) * x[i];
    }
    const struct {
        hkt_region_t region;
        const float *in, *wanted;
        size_t       size;
        bool         backward;
    } claims[] = {
        {HKT_REGION_COPY, mine, mine, count, false},
        {HKT_REGION_COPY, mine, sum, count, true},
        {HKT_REGION_REDUCE, mine, sum, count, false},
        {HKT_REGION_REDUCE, mine, mine, count, true},
        {HKT_REGION_SCATTER, x, cut, own, false},
        {HKT_REGION_SCATTER, cut, x, count, true},
        {HKT_REGION_GATHER, cut, x, count, false},
        {HKT_REGION_GATHER, x, cut, own, true},
        {HKT_REGION_SEQUENCE_SPLIT, x, x + first, own, false},
        {HKT_REGION_SEQUENCE_SPLIT, x + first, x, count, true},
        {HKT_REGION_SEQUENCE_JOIN, x + first, x, count, false},
        {HKT_REGION_SEQUENCE_JOIN, x, x + first, own, true},
        {HKT_REGION_SEQUENCE_GATHER, x + first, x, count, false},
        {HKT_REGION_SEQUENCE_GATHER, mine, sum + first, own, true},
        {HKT_REGION_SEQUENCE_REDUCE, mine, sum + first, own, false},
        {HKT_REGION_SEQUENCE_REDUCE, x + first, x, count, true},
    };

    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        doing("region %d, %s", (int)claims[i].region, claims[i].backward ? "backward" : "forward");
        memset(out, 0x55, count * sizeof(*out));
        expect_ok((claims[i].backward ? hkt_region_backward : hkt_region_forward)(out, claims[i].in, ROWS, OUT,
                                                                                  claims[i].region, t));
        expect(equal(out, claims[i].wanted, claims[i].size), "the result is not what the region's definition says");
    }
    expect_ok(hkt_tensor_destroy(t));
    GIVE(x, sum, mine, out, cut);
}

START_TEST(regions_do_what_they_say)
{
    world(1 + _i, THREADS, regions, NULL);
}
END_TEST

/* ---- rows 27, 28, 37: an MLP of a column and a row layer equals the whole one, forward and backward, to the bit */

struct mlp {
    float *x, *up, *down, *hidden, *y, *dy, *dhidden, *dx, *dup, *ddown;
};

static void whole_mlp(struct mlp *m)
{
    hkt_tensor_t *t = group(NULL, CONFIG(.sequence = false));

    *m = (struct mlp){numbers("x", ROWS * IN, false),
                      numbers("up", OUT * IN, false),
                      numbers("down", IN * OUT, false),
                      nothing(ROWS * OUT),
                      nothing(ROWS * IN),
                      numbers("dy", ROWS * IN, false),
                      nothing(ROWS * OUT),
                      nothing(ROWS * IN),
                      numbers("a", OUT * IN, false),
                      numbers("b", IN * OUT, false)};

    const hkt_linear_t up = {ROWS, IN, OUT, m->up, m->dup, true}, down = {ROWS, OUT, IN, m->down, m->ddown, true};

    expect_ok(hkt_column_forward(m->hidden, m->x, &up, t));
    expect_ok(hkt_row_forward(m->y, m->hidden, &down, t));
    expect_ok(hkt_row_backward(m->dhidden, m->dy, m->hidden, &down, t));
    expect_ok(hkt_column_backward(m->dx, m->dhidden, m->x, &up, t));
    expect_ok(hkt_tensor_destroy(t));
}

static void split_mlp(struct rank *me)
{
    const int    n = me->n, variant = *(int *)me->arg;
    const bool   sequence = variant & 1, apart = variant & 4;
    const size_t rows = sequence ? ROWS / (size_t)n : ROWS, first = sequence ? rows * (size_t)me->rank : 0;
    const size_t part = OUT / (size_t)n, mine = part * (size_t)me->rank;
    struct mlp   w;

    whole_mlp(&w);
    hkt_tensor_t *t    = group(me, CONFIG(.sequence = sequence, .overlap = variant & 2));
    float        *down = columns(w.down, IN, OUT, n, me->rank), *ddown = columns(w.ddown, IN, OUT, n, me->rank);
    float *dhidden = columns(w.dhidden, ROWS, OUT, n, me->rank), *hidden = columns(w.hidden, ROWS, OUT, n, me->rank);
    float *old_a = numbers("a", OUT * IN, false), *b = numbers("b", IN * OUT, false),
          *old_b = columns(b, IN, OUT, n, me->rank);
    float *h = nothing(ROWS * part), *dh = nothing(ROWS * part), *y = nothing(rows * IN), *dx = nothing(rows * IN);

    const hkt_linear_t up  = {ROWS, IN, OUT, w.up + mine * IN, old_a + mine * IN, true},
                       row = {ROWS, OUT, IN, down, old_b, true};
    hkt_linear_t up_input = up, row_input = row;

    up_input.gradient = row_input.gradient = NULL;
    expect_ok(hkt_column_forward(h, w.x + first * IN, &up, t));
    expect(equal(h, hidden, ROWS * part), "the column layer's outputs differ from those of the whole layer");
    expect_ok(hkt_row_forward(y, h, &row, t));
    expect(equal(y, w.y + first * IN, rows * IN), "the row layer's outputs differ from those of the whole layer");
    if (apart) { /* as a zero-bubble pipeline does it */
        expect_ok(hkt_row_backward(dh, w.dy + first * IN, h, &row_input, t));
        expect_ok(hkt_column_backward(dx, dh, w.x + first * IN, &up_input, t));
        expect_ok(hkt_row_backward(NULL, w.dy + first * IN, h, &row, t));
        expect_ok(hkt_column_backward(NULL, dh, w.x + first * IN, &up, t));
    } else {
        expect_ok(hkt_row_backward(dh, w.dy + first * IN, h, &row, t));
        expect_ok(hkt_column_backward(dx, dh, w.x + first * IN, &up, t));
    }
    expect(equal(dh, dhidden, ROWS * part), "the row layer's input gradient");
    expect(equal(dx, w.dx + first * IN, rows * IN), "the column layer's input gradient");
    expect(equal(old_a + mine * IN, w.dup + mine * IN, part * IN), "the column layer's weight gradient");
    expect(equal(old_b, ddown, IN * part), "the row layer's weight gradient");
    expect_ok(hkt_tensor_destroy(t));
    GIVE(w.x, w.up, w.down, w.hidden, w.y, w.dy, w.dhidden, w.dx, w.dup, w.ddown);
    GIVE(down, ddown, dhidden, hidden, old_a, b, old_b, h, dh, y, dx);
}

START_TEST(split_layers_equal_the_whole)
{
    for (int variant = 0; variant < 8; variant++)
        world(1 + _i, THREADS, split_mlp, &variant);
}
END_TEST

/* ---- rows 28, 29, 40, 42: calls and bytes of one transformer layer's four linear layers */

static hkt_traffic_t traffic(struct rank *me, const char *what)
{
    hkt_traffic_t t = {0, 0};

    expect_ok(hkt_comm_traffic(me->comm, what, &t));
    return t;
}

static void expect_traffic(struct rank *me, const char *what, uint64_t calls)
{
    const hkt_traffic_t t = traffic(me, what);

    expect(t.calls == calls && t.bytes == calls * ROWS * IN * sizeof(float),
           "%s: %llu calls and %llu bytes, wanted %llu of %zu bytes each", what, (unsigned long long)t.calls,
           (unsigned long long)t.bytes, (unsigned long long)calls, ROWS * IN * sizeof(float));
}

static void layer_traffic(struct rank *me)
{
    const bool    sequence = *(bool *)me->arg;
    hkt_ledger_t *ledger;

    expect_ok(hkt_ledger_create(&ledger));
    hkt_tensor_t *t = group(me, CONFIG(.sequence = sequence, .overlap = true, .ledger = ledger));
    float        *x = numbers("x", ROWS * IN, false), *h = nothing(ROWS * OUT), *w = numbers("w", OUT * IN, false),
          *g = nothing(OUT * IN), *dx = nothing(ROWS * IN);
    const hkt_linear_t column = {ROWS, IN, OUT, w, g, false}, row = {ROWS, OUT, IN, w, g, false};
    hkt_ledger_entry_t before = {0, 0, 0}, after;
    const uint64_t     none = 0, two = 2;

    for (uint64_t round = 1; round <= 3; round++) {
        for (int half = 0; half < 2; half++) { /* attention and MLP */
            expect_ok(hkt_column_forward(h, x, &column, t));
            expect_ok(hkt_row_forward(dx, h, &row, t));
        }
        if (round == 1) {
            expect_traffic(me, "all_reduce", sequence ? none : two);
            expect_traffic(me, "all_gather", sequence ? two : none);
            expect_traffic(me, "reduce_scatter", sequence ? two : none);
        }
        for (int half = 0; half < 2; half++) {
            expect_ok(hkt_row_backward(h, x, h, &row, t));
            expect_ok(hkt_column_backward(dx, h, x, &column, t));
        }
        expect_traffic(me, "all_reduce", sequence ? 0 : 4 * round);
        expect_traffic(me, "all_gather",
                       sequence ? (4 + 2) * round : 0); /* + 2: inputs kept as own rows, gathered again */
        expect_traffic(me, "reduce_scatter", sequence ? 4 * round : 0);
        expect_ok(hkt_ledger_read(&after, HKT_BYTES_COMMUNICATION, ledger));
        expect(round < 3 || after.takes == before.takes, "scratch was still taken in round 3");
        before = after;
    }
    expect_ok(hkt_tensor_destroy(t));
    expect_ok(hkt_ledger_destroy(ledger)); /* fails when anything is still out */
    GIVE(x, h, w, g, dx);
}

START_TEST(calls_and_bytes_per_layer)
{
    bool sequence = _i & 1;

    world(2 + _i / 2, THREADS, layer_traffic, &sequence);
}
END_TEST

/* ---- the split vocabulary against its definition */

enum { SIZE = 199, PADDED = 256, WIDTH = 12 }; /* an odd size: padding on the last rank, or on the last two */

static void vocabulary(struct rank *me)
{
    const bool    sequence = *(bool *)me->arg;
    const int     n        = me->n;
    const size_t  padded = PADDED / (size_t)n * (size_t)n, part = padded / (size_t)n, first = part * (size_t)me->rank;
    const size_t  rows = sequence ? ROWS / (size_t)n : ROWS, start = sequence ? rows * (size_t)me->rank : 0;
    hkt_tensor_t *t     = group(me, CONFIG(.sequence = sequence));
    float        *table = numbers("table", PADDED * WIDTH, true), *dy = numbers("dy", ROWS * WIDTH, false);
    float        *y = nothing(rows * WIDTH), *dtable = nothing(part * WIDTH), *wanted = nothing(padded * WIDTH);
    const hkt_vocabulary_t v = {SIZE, padded, WIDTH, ROWS};
    int32_t                token[ROWS];

    for (size_t i = 0; i < ROWS; i++)
        token[i] = i < 3 ? 198 : (int32_t)(hkt_random_bits(hkt_random_named(1, "token"), i) % SIZE);
    expect_ok(hkt_embedding_forward(y, table + first * WIDTH, token, &v, t));
    for (size_t i = 0; i < rows; i++)
        expect(equal(y + i * WIDTH, table + (size_t)token[start + i] * WIDTH, WIDTH), "row %zu of the embedding", i);
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < WIDTH; j++)
            wanted[(size_t)token[i] * WIDTH + j] += dy[i * WIDTH + j];
    expect_ok(hkt_embedding_backward(dtable, dy + start * WIDTH, token, &v, t));
    expect(equal(dtable, wanted + first * WIDTH, part * WIDTH), "the gradient of the token table");
    token[5] = SIZE; /* in the padding */
    expect_code(hkt_embedding_forward(y, table, token, &v, t), HKT_ERR_ARGUMENT);
    expect_said("token 199 of row 5 is outside of the vocabulary of 199");
    expect_ok(hkt_tensor_destroy(t));
    GIVE(table, dy, y, dtable, wanted);
}

START_TEST(split_vocabulary_is_the_table)
{
    bool sequence = _i & 1;

    world(1 + _i / 2, THREADS, vocabulary, &sequence);
}
END_TEST

/* The definition, and its gradient, in fp64. */
static double entropy(double *gradient, const float *logits, const int32_t *target, const float *weight,
                      double smoothing)
{
    double loss = 0;

    for (size_t i = 0; i < ROWS; i++) {
        const float *x   = logits + i * PADDED;
        double       sum = 0, all = 0;

        if (weight[i] == 0)
            continue;
        for (size_t j = 0; j < SIZE; j++)
            sum += exp((double)x[j]);
        for (size_t j = 0; j < SIZE; j++) {
            const double share = (j == (size_t)target[i] ? 1 - smoothing : 0) + smoothing / SIZE;

            all -= share * ((double)x[j] - log(sum));
            gradient[i * PADDED + j] = (double)weight[i] * (exp((double)x[j]) / sum - share);
        }
        loss += (double)weight[i] * all;
    }
    return loss;
}

static void cross_entropy(struct rank *me)
{
    const double           smoothing = *(double *)me->arg;
    const int              n         = me->n;
    const hkt_vocabulary_t v         = {SIZE, PADDED, WIDTH, ROWS};
    const size_t           part = PADDED / (size_t)n, first = part * (size_t)me->rank;
    hkt_tensor_t          *t        = group(me, CONFIG(.sequence = true));
    float                 *logits   = numbers("logits", ROWS * PADDED, true), *own, weight[ROWS];
    double                *gradient = calloc(ROWS * PADDED, sizeof(double)), loss = 0, worst = 0, wanted;
    int32_t                target[ROWS];

    expect_true(gradient != NULL);
    for (size_t i = 0; i < ROWS; i++) {
        target[i] = i == 4 ? -1 : i < 2 ? 0 : (int32_t)(hkt_random_bits(hkt_random_named(1, "target"), i) % SIZE);
        weight[i] = i == 4 ? 0 : i % 3 ? 1 : 0.5f;
        for (size_t j = SIZE; j < PADDED; j++)
            logits[i * PADDED + j] = 1000; /* the padding must not be looked at */
    }
    logits[7 * PADDED + 3] = 90; /* no overflow */
    wanted                 = entropy(gradient, logits, target, weight, smoothing);
    own                    = columns(logits, ROWS, PADDED, n, me->rank);
    expect_ok(hkt_cross_entropy(&loss, own, target, weight, (float)smoothing, 0.25f, &v, t));
    expect(fabs(loss - wanted) < 1e-6 * fabs(wanted), "loss %.9g, by definition %.9g", loss, wanted);
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < part; j++)
            worst = fmax(worst, fabs((double)own[i * part + j] - 0.25 * gradient[i * PADDED + first + j]));
    expect(worst < 1e-7, "a gradient is %g off", worst);
    if (n > 1) {
        expect(traffic(me, "all_reduce").calls == 2, "more than the two calls of the three reductions");
        expect(traffic(me, "all_reduce").bytes == (smoothing > 0 ? 4 : 3) * ROWS * sizeof(float),
               "the bytes of the reductions");
    }
    target[4] = SIZE;
    expect_ok(hkt_cross_entropy(&loss, own, target, weight, (float)smoothing, 1, &v, t)); /* its weight is 0 */
    target[6] = -1;
    expect_code(hkt_cross_entropy(&loss, own, target, weight, 0, 1, &v, t), HKT_ERR_ARGUMENT);
    expect_said("target -1 of row 6");
    target[6] = 1;
    for (size_t j = 0; j < part; j++)
        own[9 * part + j] = me->rank == n - 1 && j == 0 ? NAN : 0;
    expect_ok(hkt_cross_entropy(&loss, own, target, weight, 0, 1, &v, t));
    expect(isnan(loss), "NaN among the logits of one rank gives the loss %g", loss);
    expect_ok(hkt_tensor_destroy(t));
    GIVE(logits, own);
    free(gradient);
}

START_TEST(cross_entropy_is_its_definition)
{
    static const int sizes[]   = {1, 2, 4};
    double           smoothing = _i & 1 ? 0.1 : 0;

    world(sizes[_i / 2], THREADS, cross_entropy, &smoothing);
}
END_TEST

/* ---- sums over slices: 1, 2, 4 and 8 ranks give the same bits on numbers that round */

struct sliced {
    float  y[ROWS * IN], dx[ROWS * IN], dup[OUT * IN];
    double loss;
};
static struct sliced results[4]; /* of 1, 2, 4, 8 ranks, written by rank 0, dup by all */

static void sliced_mlp(struct rank *me)
{
    const int      n = me->n, variant = *(int *)me->arg;
    struct sliced *out      = &results[n == 1 ? 0 : n == 2 ? 1 : n == 4 ? 2 : 3];
    const bool     sequence = variant & 1;
    hkt_tensor_t  *t        = group(me, CONFIG(.sequence = sequence, .overlap = true, .slices = 8));
    const size_t   rows = sequence ? ROWS / (size_t)n : ROWS, start = sequence ? rows * (size_t)me->rank : 0;
    const size_t   part = OUT / (size_t)n, mine = part * (size_t)me->rank;
    float *x = numbers("x", ROWS * IN, true), *up = numbers("up", OUT * IN, true), *w = numbers("down", IN * OUT, true),
          *down = columns(w, IN, OUT, n, me->rank), *dy = numbers("dy", ROWS * IN, true);
    float *h = nothing(ROWS * part), *y = nothing(rows * IN), *dx = nothing(rows * IN), *dh = nothing(ROWS * part),
          *ddown = nothing(IN * part), *all = numbers("logits", ROWS * PADDED, true),
          *logits                       = columns(all, ROWS, PADDED, n, me->rank);
    const hkt_linear_t     column       = {ROWS, IN, OUT, up + mine * IN, out->dup + mine * IN, false};
    const hkt_linear_t     row          = {ROWS, OUT, IN, down, ddown, false};
    const hkt_vocabulary_t v            = {SIZE, PADDED, WIDTH, ROWS};
    const int32_t          target[ROWS] = {1, 198, 7};
    double                 loss         = 0;

    expect_ok(hkt_column_forward(h, x + start * IN, &column, t));
    expect_ok(hkt_row_forward(y, h, &row, t));
    expect_ok(hkt_row_backward(dh, dy + start * IN, h, &row, t));
    expect_ok(hkt_column_backward(dx, dh, x + start * IN, &column, t));
    expect_ok(hkt_cross_entropy(&loss, logits, target, NULL, 0.1f, 1, &v, t));
    if (sequence || me->rank == 0) {
        memcpy(out->y + start * IN, y, rows * IN * sizeof(*y));
        memcpy(out->dx + start * IN, dx, rows * IN * sizeof(*y));
    }
    if (me->rank == 0)
        out->loss = loss;
    expect_ok(hkt_tensor_destroy(t));
    GIVE(x, up, w, down, dy, h, y, dx, dh, ddown, all, logits);
}

START_TEST(slices_make_the_group_size_invisible)
{
    int variant = 0;

    for (; variant < 2; variant++) {
        for (int n = 1; n <= 8; n *= 2)
            world(n, THREADS, sliced_mlp, &variant);
        for (int i = 1; i < 4; i++)
            ck_assert_msg(memcmp(&results[0], &results[i], sizeof(results[0])) == 0,
                          "%d ranks give other bits than one", 1 << i);
    }
}
END_TEST

/* ---- row 36: what cannot be is refused, with the value and what would do */

static void refusals(struct rank *me)
{
    hkt_tensor_t       *t = group(me, CONFIG(.sequence = true)), *none = NULL;
    float               x[64] = {0};
    const hkt_linear_t  odd = {ROWS, IN, 47, x, NULL, false}, short_rows = {5, IN, OUT, x, NULL, false};
    hkt_tensor_config_t config = CONFIG(.comm = me->comm, .product = plain_product, .slices = 3);

    expect_code(hkt_column_forward(x, x, &odd, t), HKT_ERR_ARGUMENT);
    expect_said(
        "outputs of a column layer, 47 is no multiple of 2, the size of the tensor-parallel group: 46 and 48 are");
    expect_code(hkt_column_forward(x, x, &short_rows, t), HKT_ERR_ARGUMENT);
    expect_said("5 rows");
    expect_code(hkt_region_forward(x, x, 4, 5, HKT_REGION_SCATTER, t), HKT_ERR_ARGUMENT);
    expect_said("columns");
    expect_code(hkt_tensor_create(&none, &config), HKT_ERR_ARGUMENT);
    expect_said("powers of two");
    config.slices = 0, config.product = NULL;
    expect_code(hkt_tensor_create(&none, &config), HKT_ERR_ARGUMENT);
    config.product = plain_product, config.type = HKT_INT8;
    expect_code(hkt_tensor_create(&none, &config), HKT_ERR_UNSUPPORTED);
    config.type = HKT_FLOAT32, config.size = 3;
    expect_code(hkt_tensor_create(&none, &config), HKT_ERR_ARGUMENT);
    expect_true(none == NULL);
    expect_ok(hkt_tensor_destroy(t));
    expect_ok(hkt_tensor_destroy(NULL));
}

START_TEST(what_cannot_be_is_refused)
{
    world(2, THREADS, refusals, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, regions_do_what_they_say, 4, 20);
    ADD(s, split_layers_equal_the_whole, 4, 30);
    ADD(s, calls_and_bytes_per_layer, 4, 20);
    ADD(s, split_vocabulary_is_the_table, 8, 20);
    ADD(s, cross_entropy_is_its_definition, 6, 20);
    ADD(s, slices_make_the_group_size_invisible, 1, 30);
    ADD(s, what_cannot_be_is_refused, 1, 10);
}

int main(void)
{
    return run_suite("tensor", add);
}
