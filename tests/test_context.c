/* test_context.c -- context parallelism: ring attention on 1 to 4 ranks, forward and backward, against attention to the
 * whole sequence by definition in fp64; its bits, its bytes on the wire and in memory; the merge; refusals.
 */
#include "harness.h"

#include <hocket_train.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Odd on purpose; T is a multiple of 2 n for n = 1 to 4. */
enum { B = 2, T = 48, HEADS = 6, D = 5, QUERIES = B * T * HEADS * D };

struct problem {
    size_t key_heads;
    bool   causal, documents, overlap;
};
static const struct problem problems[] = {{HEADS, true, false, true},
                                          {3, true, true, true},
                                          {1, true, false, false},
                                          {HEADS, false, false, true},
                                          {2, false, true, false}};
enum { PROBLEMS = sizeof(problems) / sizeof(problems[0]) };

/* The first place that a query sees: documents of 17. */
static size_t start_of(const struct problem *p, size_t place)
{
    return p->documents ? place / 17 * 17 : 0;
}

static bool sees(const struct problem *p, size_t query, size_t key)
{
    return key >= start_of(p, query) && (!p->causal || key <= query);
}

/* ---- attention of a block by definition */

static float *at(hkt_heads_t v, size_t b, size_t i, size_t h)
{
    return v.data + b * v.sequence + i * v.row + h * v.group;
}

/* Of queries, of which m share a head of keys. */
static float *query_at(hkt_heads_t v, const hkt_attention_t *a, const size_t place[3])
{
    const size_t m = a->heads / a->key_heads;

    return at(v, place[0], place[1], place[2] / m) + place[2] % m * v.head;
}

static double dot(const float *x, const float *y, size_t size)
{
    double sum = 0;

    for (size_t d = 0; d < size; d++)
        sum += (double)x[d] * (double)y[d];
    return sum;
}

static double score(const hkt_attention_t *a, size_t b, size_t q, size_t h, size_t k)
{
    return dot(query_at(a->query, a, (size_t[]){b, q, h}), at(a->key, b, k, h / (a->heads / a->key_heads)), a->size) /
           sqrt((double)a->size);
}

static void row_forward(const hkt_attention_t *a, const struct problem *p, size_t b, size_t q, size_t h)
{
    double sum = 0, out[D] = {0};

    for (size_t k = 0; k < a->keys; k++) {
        const double e = sees(p, a->first_query + q, a->first_key + k) ? exp(score(a, b, q, h, k)) : 0;

        sum += e;
        for (size_t d = 0; d < a->size; d++)
            out[d] += e * (double)at(a->value, b, k, h / (a->heads / a->key_heads))[d];
    }
    for (size_t d = 0; d < a->size; d++)
        query_at(a->out, a, (size_t[]){b, q, h})[d] = sum > 0 ? (float)(out[d] / sum) : 0;
    *query_at(a->log_sum, a, (size_t[]){b, q, h}) = sum > 0 ? (float)log(sum) : -INFINITY;
}

static void row_backward(const hkt_attention_gradient_t *g, const hkt_attention_t *a, const struct problem *p,
                         const size_t row[3])
{
    const size_t b = row[0], q = row[1], h = row[2], kh = h / (a->heads / a->key_heads);
    const float *dout  = query_at(g->dout, a, (size_t[]){b, q, h});
    const double mean  = dot(query_at(a->out, a, (size_t[]){b, q, h}), dout, a->size),
                 whole = (double)*query_at(a->log_sum, a, (size_t[]){b, q, h});

    for (size_t k = 0; k < a->keys; k++) {
        if (!sees(p, a->first_query + q, a->first_key + k))
            continue;
        const double chance = exp(score(a, b, q, h, k) - whole),
                     ds     = chance * (dot(dout, at(a->value, b, k, kh), a->size) - mean) / sqrt((double)a->size);

        for (size_t d = 0; d < a->size; d++) {
            at(g->dvalue, b, k, kh)[d] += (float)(chance * (double)dout[d]);
            query_at(g->dquery, a, (size_t[]){b, q, h})[d] += (float)(ds * (double)at(a->key, b, k, kh)[d]);
            at(g->dkey, b, k, kh)[d] += (float)(ds * (double)query_at(a->query, a, (size_t[]){b, q, h})[d]);
        }
    }
}

static int forward(const hkt_attention_t *a, void *arg)
{
    for (size_t b = 0; b < a->batch; b++)
        for (size_t q = 0; q < a->queries; q++)
            for (size_t h = 0; h < a->heads; h++)
                row_forward(a, arg, b, q, h);
    return HKT_OK;
}

static int backward(const hkt_attention_gradient_t *g, const hkt_attention_t *a, void *arg)
{
    for (size_t b = 0; b < a->batch; b++)
        for (size_t q = 0; q < a->queries; q++)
            for (size_t h = 0; h < a->heads; h++)
                row_backward(g, a, arg, (size_t[]){b, q, h});
    return HKT_OK;
}

/* ---- what one rank has of the problem */

enum { QUERY, KEY, VALUE, OUT, LOG_SUM, DOUT, DQUERY, DKEY, DVALUE, ARRAYS };

struct share {
    float                   *x[ARRAYS]; /* dense (B, T / n, heads, D) */
    size_t                   count[ARRAYS];
    hkt_attention_t          own;
    hkt_attention_gradient_t gradient;
};

static void draw_row(float *row, size_t first, size_t count, int which)
{
    hkt_random_fill_normal(row, hkt_random_at(11, 0, 0, 0, (uint32_t)which), first, count, 1.5);
}

static void share_begin(struct share *s, const struct problem *p, int rank, int n)
{
    const size_t rows = T / (size_t)n, m = HEADS / p->key_heads;
    hkt_heads_t  view[ARRAYS];

    for (int i = 0; i < ARRAYS; i++) {
        const bool   key   = i == KEY || i == VALUE || i == DKEY || i == DVALUE;
        const size_t heads = key ? p->key_heads : HEADS, size = i == LOG_SUM ? 1 : D, row = heads * size;

        s->count[i] = B * rows * row;
        s->x[i]     = calloc(s->count[i], sizeof(float));
        expect_true(s->x[i] != NULL);
        view[i] = i == LOG_SUM ? (hkt_heads_t){s->x[i], rows, 1, m * B * rows, B * rows}
                               : (hkt_heads_t){s->x[i], rows * row, row, key ? size : m * size, size};
        for (size_t b = 0; b < B && (i <= VALUE || i == DOUT); b++)
            for (size_t r = 0; r < rows; r++)
                draw_row(s->x[i] + (b * rows + r) * row, (b * T + hkt_context_place(r, T, rank, n)) * row, row, i);
    }
    s->own      = (hkt_attention_t){.batch     = B,
                                    .size      = D,
                                    .heads     = HEADS,
                                    .key_heads = p->key_heads,
                                    .queries   = rows,
                                    .keys      = rows,
                                    .query     = view[QUERY],
                                    .key       = view[KEY],
                                    .value     = view[VALUE],
                                    .out       = view[OUT],
                                    .log_sum   = view[LOG_SUM]};
    s->gradient = (hkt_attention_gradient_t){view[DOUT], view[DQUERY], view[DKEY], view[DVALUE]};
}

static void share_end(struct share *s)
{
    for (int i = 0; i < ARRAYS; i++)
        free(s->x[i]);
}

static hkt_context_t *context_of(hkt_comm_t *comm, const struct problem *p, hkt_ledger_t *ledger)
{
    hkt_context_config_t c = HKT_CONTEXT_CONFIG_INIT;
    hkt_context_t       *made;

    c.comm     = comm;
    c.causal   = p->causal;
    c.overlap  = p->overlap;
    c.forward  = forward;
    c.backward = backward;
    c.ledger   = ledger;
    expect_ok(hkt_context_create(&made, &c));
    return made;
}

static void solve(struct share *s, const struct problem *p, hkt_context_t *c)
{
    expect_ok(hkt_context_forward(&s->own, (void *)p, c));
    expect_ok(hkt_context_backward(&s->gradient, &s->own, (void *)p, c));
}

/* ---- every number of ranks gives what one gives */

static void compare(const struct share *mine, const struct share *whole, int rank, int n)
{
    static const char *const name[ARRAYS] = {[OUT] = "out", [DQUERY] = "dquery", [DKEY] = "dkey", [DVALUE] = "dvalue"};
    const size_t             rows         = T / (size_t)n;

    for (int i = OUT; i < ARRAYS; i++) {
        const size_t row  = mine->count[i] / (B * rows);
        double       size = 0, worst = 0;

        for (size_t b = 0; b < B && name[i]; b++)
            for (size_t r = 0; r < rows; r++)
                for (size_t j = 0; j < row; j++) {
                    const double wanted = (double)whole->x[i][(b * T + hkt_context_place(r, T, rank, n)) * row + j];

                    worst = fmax(worst, fabs((double)mine->x[i][(b * rows + r) * row + j] - wanted));
                    size  = fmax(size, fabs(wanted));
                }
        expect(worst <= (i == OUT ? 1e-6 : 1e-5) * fmax(size, 1), "%s on rank %d of %d: %g off, of at most %g", name[i],
               rank, n, worst, size);
    }
}

static void ring_rank(struct rank *me)
{
    const struct problem *p = me->arg;
    struct share          whole, mine, again;
    hkt_context_t        *one = context_of(NULL, p, NULL), *c = context_of(me->comm, p, NULL);
    struct problem        other = *p;

    share_begin(&whole, p, 0, 1);
    solve(&whole, p, one);
    share_begin(&mine, p, me->rank, me->n);
    solve(&mine, p, c);
    compare(&mine, &whole, me->rank, me->n);
    expect_ok(hkt_context_destroy(c));
    other.overlap = !p->overlap; /* the same bits, overlapped or not, and again */
    c             = context_of(me->comm, &other, NULL);
    for (int round = 0; round < 2; round++) {
        share_begin(&again, p, me->rank, me->n);
        solve(&again, p, c);
        for (int i = 0; i < ARRAYS; i++)
            expect(memcmp(mine.x[i], again.x[i], mine.count[i] * sizeof(float)) == 0, "array %d has other bits", i);
        share_end(&again);
    }
    expect_ok(hkt_context_destroy(c));
    expect_ok(hkt_context_destroy(one));
    share_end(&mine);
    share_end(&whole);
}

START_TEST(ring_gives_what_one_rank_gives)
{
    world(_i % 4 + 1, _i % 2 ? PROCESSES : THREADS, ring_rank, (void *)&problems[_i / 4]);
}
END_TEST

/* ---- bytes: on the wire, in memory */

static void bytes_rank(struct rank *me)
{
    const struct problem p = problems[1];
    const size_t         n = (size_t)me->n, K = 2 * B * (T / n) * p.key_heads * D;
    const size_t         taken[] = {2 * K + B * (T / n / 2) * HEADS * (D + 1), 3 * K}; /* forward; and backward */
    hkt_ledger_t        *ledger;
    hkt_ledger_entry_t   entry;
    hkt_traffic_t        before, after;
    hkt_context_t       *c;
    struct share         s;

    expect_ok(hkt_ledger_create(&ledger));
    c = context_of(me->comm, &p, ledger);
    share_begin(&s, &p, me->rank, me->n);
    for (int step = 0; step < 3; step++)
        for (size_t half = 0; half < 2; half++) {
            expect_ok(hkt_comm_traffic(me->comm, "send", &before));
            expect_ok(half ? hkt_context_backward(&s.gradient, &s.own, (void *)&p, c)
                           : hkt_context_forward(&s.own, (void *)&p, c));
            expect_ok(hkt_comm_traffic(me->comm, "send", &after));
            expect(after.bytes - before.bytes == (1 + half) * (n - 1) * K * sizeof(float), "%llu bytes were sent",
                   (unsigned long long)(after.bytes - before.bytes));
            expect_ok(hkt_ledger_read(&entry, HKT_BYTES_COMMUNICATION, ledger));
            expect(entry.now == (taken[0] + (half || step ? taken[1] : 0)) * sizeof(float), "%zu bytes", entry.now);
            expect(entry.takes <= 3, "memory is taken %zu times", entry.takes);
        }
    expect_ok(hkt_context_destroy(c));
    expect_ok(hkt_ledger_destroy(ledger));
    share_end(&s);
}

START_TEST(bytes_are_those_of_the_formulas)
{
    world(_i + 2, THREADS, bytes_rank, NULL);
}
END_TEST

/* ---- the cut */

START_TEST(places_are_a_cut_with_even_work)
{
    for (int n = 1; n <= 9; n++) {
        const size_t length   = (size_t)(n > 1 ? 2 * n : 1) * 5;
        bool         seen[90] = {false};
        size_t       least = SIZE_MAX, most = 0;

        for (int rank = 0; rank < n; rank++) {
            size_t work = 0;

            for (size_t row = 0; row < length / (size_t)n; row++) {
                const size_t place = hkt_context_place(row, length, rank, n);

                ck_assert(place < length && !seen[place]);
                ck_assert(row == 0 || place > hkt_context_place(row - 1, length, rank, n));
                seen[place] = true;
                work += place + 1;
            }
            least = work < least ? work : least;
            most  = work > most ? work : most;
        }
        ck_assert(least == most);
    }
}
END_TEST

/* ---- the merge */

struct parts {
    float out[3][D], log_sum[3]; /* the third is what they become */
};

static void merge(struct parts *m, int into, int from)
{
    const hkt_attention_t a     = {.batch     = 1,
                                   .queries   = 1,
                                   .heads     = 1,
                                   .key_heads = 1,
                                   .size      = D,
                                   .out       = {m->out[into], 0, 0, 0, 0},
                                   .log_sum   = {&m->log_sum[into], 0, 1, 0, 0}};
    const hkt_heads_t     other = {m->out[from], 0, 0, 0, 0}, sum = {&m->log_sum[from], 0, 1, 0, 0};

    hkt_attention_merge(&a, &other, &sum);
}

static void merged(struct parts *m)
{
    memcpy(m->out[2], m->out[0], sizeof(m->out[0]));
    m->log_sum[2] = m->log_sum[0];
    merge(m, 2, 1);
}

/* By the formula and by finite differences, for sums that are near and far apart. */
START_TEST(merge_and_its_derivative)
{
    static const float apart[] = {0, 0.5f, -3, 12, -40, 200};
    const hkt_random_t random  = hkt_random_named(5, "merge");
    const float        gap = apart[_i], h = 1e-2f;
    struct parts       m, side[2];
    float              along[2 * D + 2];

    hkt_random_fill_normal(m.out[0], random, 0, 2 * D, 1);
    hkt_random_fill_normal(along, random, 100, 2 * D + 2, 1);
    m.log_sum[0] = 1.25f;
    m.log_sum[1] = 1.25f + gap;
    merged(&m);
    const double w = 1 / (1 + exp((double)gap)), v = 1 - w;

    ck_assert_float_eq_tol(m.log_sum[2], (float)(gap > 0 ? 1.25 + (double)gap - log(v) : 1.25 - log(w)),
                           1e-6f * fmaxf(1, gap));
    for (int k = 0; k < 2; k++) {
        side[k] = m;
        for (int d = 0; d < 2 * D; d++)
            side[k].out[d / D][d % D] += (k ? h : -h) * along[d];
        for (int i = 0; i < 2; i++)
            side[k].log_sum[i] += (k ? h : -h) * along[2 * D + i];
        merged(&side[k]);
    }
    for (int d = 0; d < D; d++) {
        const double x = (double)m.out[0][d], y = (double)m.out[1][d],
                     slope = w * (double)along[d] + v * (double)along[D + d] +
                             w * v * (x - y) * (double)(along[2 * D] - along[2 * D + 1]);

        ck_assert_float_eq_tol(m.out[2][d], (float)(w * x + v * y), 1e-6f);
        ck_assert_float_eq_tol((side[1].out[2][d] - side[0].out[2][d]) / (2 * h), (float)slope, 1e-3f);
    }
}
END_TEST

START_TEST(merge_with_nothing_changes_nothing)
{
    struct parts m = {.out = {{1, 2, 3, 4, 5}, {0}}, .log_sum = {3, -INFINITY}};

    merged(&m);
    ck_assert_mem_eq(m.out[2], m.out[0], sizeof(m.out[0]));
    ck_assert(m.log_sum[2] == 3);
    merge(&m, 1, 0);
    ck_assert_mem_eq(m.out[1], m.out[0], sizeof(m.out[0]));
    ck_assert(m.log_sum[1] == 3);
    m.log_sum[0] = m.log_sum[2] = -INFINITY;
    merge(&m, 2, 0);
    ck_assert(m.log_sum[2] == -INFINITY && m.out[2][0] == 1);
}
END_TEST

/* ---- refusals */

static int fails(const hkt_attention_t *a, void *arg)
{
    (void)a, (void)arg;
    return hkt_error_set(HKT_ERR_UNSUPPORTED, "no attention today");
}

static void refusals_rank(struct rank *me)
{
    const struct problem p = problems[0];
    hkt_context_config_t c = HKT_CONTEXT_CONFIG_INIT;
    hkt_context_t       *ring;
    struct share         s;

    expect_code(hkt_context_create(&ring, &c), HKT_ERR_ARGUMENT);
    expect_said("config.forward is NULL");
    c.comm     = me->comm;
    c.forward  = fails;
    c.backward = backward;
    c.size     = 3;
    expect_code(hkt_context_create(&ring, &c), HKT_ERR_ARGUMENT);
    c.size = sizeof(c);
    expect_ok(hkt_context_create(&ring, &c));
    share_begin(&s, &p, me->rank, me->n);
    expect_code(hkt_context_forward(&s.own, NULL, ring), HKT_ERR_UNSUPPORTED);
    expect_said("no attention today");
    expect_code(hkt_context_backward(NULL, &s.own, NULL, ring), HKT_ERR_ARGUMENT);
    s.own.queries = s.own.keys = 7;
    expect_code(hkt_context_forward(&s.own, NULL, ring), HKT_ERR_ARGUMENT);
    expect_said("7 own queries and 7 own keys on each of 2 context-parallel ranks");
    s.own.queries = s.own.keys = 8;
    s.own.key_heads            = 4;
    expect_code(hkt_context_forward(&s.own, NULL, ring), HKT_ERR_ARGUMENT);
    expect_said("6 heads of queries are no multiple of 4");
    s.own.batch = 0;
    expect_code(hkt_context_forward(&s.own, NULL, ring), HKT_ERR_ARGUMENT);
    expect_ok(hkt_context_destroy(ring));
    expect_ok(hkt_context_destroy(NULL));
    share_end(&s);
}

START_TEST(refusals)
{
    world(2, THREADS, refusals_rank, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, ring_gives_what_one_rank_gives, 4 * PROBLEMS, 30);
    ADD(s, bytes_are_those_of_the_formulas, 3, 30);
    ADD(s, places_are_a_cut_with_even_work, 1, 5);
    ADD(s, merge_and_its_derivative, 6, 5);
    ADD(s, merge_with_nothing_changes_nothing, 1, 5);
    ADD(s, refusals, 1, 30);
}

int main(void)
{
    return run_suite("context", add);
}
