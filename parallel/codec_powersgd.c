/* codec_powersgd.c -- PowerSGD (Vogels, Karimireddy, Jaggi 2019): one step of subspace iteration on each matrix of the
 * gradient.
 *
 *   M = gradient + e                     rows x cols, on every rank its own
 *   P = M Q, all-reduce                  rows x rank; Q is that of the last call: a warm start
 *   P's columns made orthonormal         the same bits on every rank
 *   Q = M' P, all-reduce, average        cols x rank
 *   result = P Q', e = M - result
 *
 * Both products are linear in M, so the sums over ranks are plain all-reduces and no rank rounds anything twice. What
 * does not pay as factors travels behind P. Factors and feedback are fp32. Q is kept as `rank` rows, so that all three
 * products run along rows of the matrix.
 *
 * A column of P that is nothing but the others' rounding noise is set to zero instead of being scaled up to length 1;
 * its column of Q, zero from then on, is drawn anew for the next call.
 */
#include "compress.h"

#include <math.h>
#include <string.h>

enum { POWER_RANK = 0, POWER_RATE };

hkt_codec_shape_t factors_square(size_t count)
{
    const size_t rows = (size_t)sqrt((double)count);

    return (hkt_codec_shape_t){rows, rows ? count / rows : 0};
}

size_t factors_code_bytes(const struct factors *f)
{
    return (f->p_count + f->rest + f->q_count) * sizeof(float);
}

static void add_factor(struct factors *f, hkt_codec_shape_t s, size_t *at, const double *value)
{
    const size_t least = s.rows < s.cols ? s.rows : s.cols;
    const size_t rank  = least < (size_t)value[POWER_RANK] ? least : (size_t)value[POWER_RANK];
    const bool   pays  = (double)((s.rows + s.cols) * rank) * value[POWER_RATE] < (double)s.rows * (double)s.cols;

    f->of[f->count] = (struct factor){s.rows, s.cols, *at, pays ? (int)rank : 0};
    if (pays) {
        f->p_count += s.rows * rank;
        f->q_count += s.cols * rank;
    } else {
        f->of[f->count].rows *= s.cols ? s.cols : 1;
        f->rest += f->of[f->count].rows;
    }
    *at += s.rows * (s.cols ? s.cols : 1);
    f->count++;
}

/* The sizes of the matrices must add up to the count; none may be larger. */
static int check_shapes(const hkt_compressor_t *c, const hkt_compressor_config_t *config)
{
    size_t all = 0;

    for (int i = 0; i < config->matrix_count; i++) {
        const hkt_codec_shape_t s = config->matrices[i];

        if (s.rows > c->count || (s.cols > 1 && s.rows > c->count / s.cols))
            all = SIZE_MAX;
        else if (all <= c->count)
            all += s.rows * (s.cols ? s.cols : 1);
    }
    if (all != c->count)
        return hkt_error_set(
            HKT_ERR_ARGUMENT, "powersgd: the %d matrices have %s%zu elements, the compressor is made for %zu",
            config->matrix_count, all == SIZE_MAX ? "more than " : "", all == SIZE_MAX ? c->count : all, c->count);
    return HKT_OK;
}

static int take(void *memory, size_t elements, bool shared, hkt_compressor_t *c)
{
    return hkt_ledger_take(memory, elements * sizeof(float), HKT_BYTES_COMMUNICATION, shared, c->ledger);
}

int factors_create(hkt_compressor_t *c, const hkt_compressor_config_t *config)
{
    struct factors         *f      = &c->factors;
    const bool              known  = config->matrices != NULL;
    const hkt_codec_shape_t square = factors_square(c->count), rest = {c->count - square.rows * square.cols, 0};
    size_t                  at = 0, longest = 0;

    if (known)
        TRY(check_shapes(c, config));
    TRY(hkt_ledger_take((void **)&f->of, (size_t)(known ? config->matrix_count : 2) * sizeof(*f->of), HKT_BYTES_OTHER,
                        false, c->ledger));
    for (int i = 0; known && i < config->matrix_count; i++)
        add_factor(f, config->matrices[i], &at, c->codec.value);
    if (!known) {
        add_factor(f, square, &at, c->codec.value);
        add_factor(f, rest, &at, c->codec.value);
    }
    for (int i = 0; i < f->count; i++)
        longest = f->of[i].rank && f->of[i].cols > longest ? f->of[i].cols : longest;
    TRY(take((void **)&f->p, f->p_count + f->rest, true, c));
    TRY(take((void **)&f->q, f->q_count, true, c));
    TRY(take((void **)&f->row, longest, false, c));
    factors_reset(c);
    return HKT_OK;
}

void factors_destroy(hkt_compressor_t *c)
{
    hkt_ledger_give(c->factors.row, c->ledger);
    hkt_ledger_give(c->factors.q, c->ledger);
    hkt_ledger_give(c->factors.p, c->ledger);
    hkt_ledger_give(c->factors.of, c->ledger);
}

void factors_reset(hkt_compressor_t *c)
{
    hkt_random_fill_normal(c->factors.q, codec_random(c->seed, 0, 0, 2), 0, c->factors.q_count, 1);
}

/* ---- a call */

/* P = M Q, and the rest behind all P. */
static void left_factors(hkt_compressor_t *c, const float *m)
{
    const struct factors *f = &c->factors;
    float                *p = f->p, *rest = f->p + f->p_count;
    const float          *q = f->q;

    for (int k = 0; k < f->count; k++) {
        const struct factor *of = &f->of[k];

        if (!of->rank) {
            memcpy(rest, m + of->at, of->rows * sizeof(float));
            rest += of->rows;
            continue;
        }
        for (size_t i = 0; i < of->rows; i++)
            for (int r = 0; r < of->rank; r++)
                *p++ = c->loops->dot(m + of->at + i * of->cols, q + (size_t)r * of->cols, of->cols);
        q += (size_t)of->rank * of->cols;
    }
}

static double column_dot(const float *p, size_t rows, int rank, int a, int b)
{
    double sum = 0;

    for (size_t i = 0; i < rows; i++)
        sum += (double)p[i * (size_t)rank + (size_t)a] * (double)p[i * (size_t)rank + (size_t)b];
    return sum;
}

/* Gram-Schmidt, each column twice: what one pass leaves is rounding noise of the size of the column it began with. */
static void orthonormal(float *p, size_t rows, int rank)
{
    for (int a = 0; a < rank; a++) {
        const double before = column_dot(p, rows, rank, a, a);

        for (int b = 0; b < 2 * a; b++) {
            const float along = (float)column_dot(p, rows, rank, a, b % a);

            for (size_t i = 0; i < rows; i++)
                p[i * (size_t)rank + (size_t)a] -= along * p[i * (size_t)rank + (size_t)(b % a)];
        }
        const double after = column_dot(p, rows, rank, a, a);
        const float  scale = after > 1e-10 * before ? (float)(1 / sqrt(after)) : 0;

        for (size_t i = 0; i < rows; i++)
            p[i * (size_t)rank + (size_t)a] *= scale;
    }
}

/* Q = M' P. */
static void right_factors(hkt_compressor_t *c, const float *m)
{
    const struct factors *f = &c->factors;
    const float          *p = f->p;
    float                *q = f->q;

    memset(f->q, 0, f->q_count * sizeof(float));
    for (int k = 0; k < f->count; k++) {
        const struct factor *of = &f->of[k];

        if (!of->rank)
            continue;
        for (size_t i = 0; i < of->rows; i++)
            for (int r = 0; r < of->rank; r++)
                c->loops->add_scaled(q + (size_t)r * of->cols, *p++, m + of->at + i * of->cols, of->cols);
        q += (size_t)of->rank * of->cols;
    }
}

/* Elements at .. at + count of the result; those that are asked for go to out. */
static void deliver(const struct request *r, const float *x, size_t at, size_t count)
{
    const size_t begin = at > r->begin ? at : r->begin, end = codec_least(at + count, r->end);

    if (begin < end)
        memcpy(r->out + (begin - r->begin), x + (begin - at), (end - begin) * sizeof(float));
}

static void scale_row(float *x, float by, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] *= by;
}

/* e = M - P Q', out = P Q' (times n for a sum). */
static void products(hkt_compressor_t *c, const struct request *r)
{
    const struct factors *f = &c->factors;
    const float          *p = f->p, *q = f->q;
    float                *rest = f->p + f->p_count;

    for (int k = 0; k < f->count; k++) {
        const struct factor *of = &f->of[k];

        if (!of->rank) {
            if (c->worker)
                memset(c->worker + of->at, 0, of->rows * sizeof(float));
            if (r->average)
                c->loops->divide(rest, (float)c->n, of->rows);
            deliver(r, rest, of->at, of->rows);
            rest += of->rows;
            continue;
        }
        for (size_t i = 0; i < of->rows; i++) {
            const size_t at = of->at + i * of->cols;

            memset(f->row, 0, of->cols * sizeof(float));
            for (int s = 0; s < of->rank; s++)
                c->loops->add_scaled(f->row, *p++, q + (size_t)s * of->cols, of->cols);
            if (c->worker)
                c->loops->keep(c->worker + at, c->worker + at, f->row, of->cols);
            if (!r->average)
                scale_row(f->row, (float)c->n, of->cols);
            deliver(r, f->row, at, of->cols);
        }
        q += (size_t)of->rank * of->cols;
    }
}

/* Columns of Q that vanished would stay zero for ever. */
static void renew(hkt_compressor_t *c)
{
    float *q = c->factors.q;

    for (int k = 0; k < c->factors.count; k++) {
        const struct factor *of = &c->factors.of[k];

        for (int r = 0; r < of->rank; r++, q += of->cols)
            if (c->loops->dot(q, q, of->cols) == 0)
                hkt_random_fill_normal(q, codec_random(c->seed, c->step + 1, 0, 2), (uint64_t)(q - c->factors.q),
                                       of->cols, 1);
    }
}

int factors_run(hkt_compressor_t *c, const struct request *r)
{
    struct factors *f = &c->factors;
    const float    *m = r->in;
    float          *p = f->p;

    if (c->worker) {
        c->loops->add(c->worker, r->in, c->count);
        m = c->worker;
    }
    left_factors(c, m);
    compress_coded(c);
    TRY(hkt_all_reduce(f->p, f->p, f->p_count + f->rest, HKT_FLOAT32, HKT_SUM, c->comm, NULL));
    compress_wired(c);
    for (int k = 0; k < f->count; k++) {
        if (f->of[k].rank)
            orthonormal(p, f->of[k].rows, f->of[k].rank);
        p += (size_t)f->of[k].rank * f->of[k].rows;
    }
    right_factors(c, m);
    compress_coded(c);
    TRY(hkt_all_reduce(f->q, f->q, f->q_count, HKT_FLOAT32, HKT_AVG, c->comm, NULL));
    compress_wired(c);
    products(c, r);
    renew(c);
    return HKT_OK;
}
