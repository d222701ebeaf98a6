/* kernels.c -- see kernels.h. Compiled once per instruction set, with TRAINER_ISA naming the table.
 *
 * `omp simd reduction` lets the compiler add in lanes; without it a sum is one long chain of additions. Row loops stay
 * outermost, so a row is in the first-level cache when it is read again.
 */
#include "kernels.h"

#include "parallel/exponential.h"

#include <math.h>
#include <string.h>

static void sum_rows(float *sum, const float *y, int rows, int cols, int keep)
{
    if (!keep)
        memset(sum, 0, (size_t)cols * sizeof(float));
    for (int i = 0; i < rows; i++, y += cols) {
#pragma omp simd
        for (int j = 0; j < cols; j++)
            sum[j] += y[j];
    }
}

/* gelu(x) = x / 2 (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
static const float gelu_a = 1.5957691216057308f, gelu_b = 0.0713548162726009f; /* 2u = a x + b x^3 */

static void gelu(float *restrict y, const float *restrict x, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        y[i] = x[i] / (1.0f + exponential(-x[i] * (gelu_a + gelu_b * x[i] * x[i])));
}

static void gelu_backward(float *restrict dx, const float *restrict x, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        const float square = x[i] * x[i], s = 1.0f / (1.0f + exponential(-x[i] * (gelu_a + gelu_b * square)));

        dx[i] *= s + x[i] * s * (1.0f - s) * (gelu_a + 3.0f * gelu_b * square);
    }
}

static void add_bias(float *restrict y, const float *restrict bias, int rows, int cols)
{
    for (int i = 0; i < rows; i++, y += cols) {
#pragma omp simd
        for (int j = 0; j < cols; j++)
            y[j] += bias[j];
    }
}

static void bias_gelu(float *restrict y, const struct biased *in)
{
    const float *restrict x = in->x, *restrict bias = in->bias;

    for (int i = 0; i < in->rows; i++, y += in->stride, x += in->stride) {
#pragma omp simd
        for (int j = 0; j < in->cols; j++) {
            const float u = x[j] + bias[j];

            y[j] = u / (1.0f + exponential(-u * (gelu_a + gelu_b * u * u)));
        }
    }
}

static void bias_gelu_backward(float *restrict dx, float *restrict dbias, const struct biased *in)
{
    const float *restrict x = in->x, *restrict bias = in->bias;

    for (int i = 0; i < in->rows; i++, dx += in->stride, x += in->stride) {
#pragma omp simd
        for (int j = 0; j < in->cols; j++) {
            const float u = x[j] + bias[j], square = u * u;
            const float s = 1.0f / (1.0f + exponential(-u * (gelu_a + gelu_b * square)));

            dx[j] *= s + u * s * (1.0f - s) * (gelu_a + 3.0f * gelu_b * square);
            dbias[j] += dx[j];
        }
    }
}

static void bias_swiglu(float *restrict y, const struct biased *in)
{
    const float *restrict x = in->x, *restrict bias = in->bias;
    const int half = in->stride;

    for (int i = 0; i < in->rows; i++, y += half, x += 2 * half) {
#pragma omp simd
        for (int j = 0; j < in->cols; j++) {
            const float g = x[j] + bias[j], u = x[half + j] + bias[half + j];

            y[j] = g / (1.0f + exponential(-g)) * u;
        }
    }
}

static void bias_swiglu_backward(float *restrict dx, float *restrict dbias, const float *restrict dy,
                                 const struct biased *in)
{
    const float *restrict x = in->x, *restrict bias = in->bias;
    const int half = in->stride;

    for (int i = 0; i < in->rows; i++, dy += half, x += 2 * half, dx += 2 * half) {
#pragma omp simd
        for (int j = 0; j < in->cols; j++) {
            const float g = x[j] + bias[j], u = x[half + j] + bias[half + j], s = 1.0f / (1.0f + exponential(-g));
            const float dg = dy[j] * u * s * (1.0f + g * (1.0f - s)), du = dy[j] * g * s;

            dx[j]        = dg;
            dx[half + j] = du;
            dbias[j] += dg;
            dbias[half + j] += du;
        }
    }
}

static void bias_dropout_add(float *y, const struct dropped *in, int cols)
{
    const struct dropped d = *in;

    if (!d.bits) {
#pragma omp simd
        for (int j = 0; j < cols; j++)
            y[j] = d.residual[j] + (d.x[j] + d.bias[j]);
        return;
    }
#pragma omp simd
    for (int j = 0; j < cols; j++)
        y[j] = d.residual[j] + (d.bits[j] < d.dropout.below ? (d.x[j] + d.bias[j]) * d.dropout.factor : 0.0f);
}

static void dropout(float *y, const float *x, const uint32_t *bits, struct dropout d, int cols)
{
#pragma omp simd
    for (int j = 0; j < cols; j++)
        y[j] = bits[j] < d.below ? x[j] * d.factor : 0.0f;
}

static void rotate(float *restrict x, const float *restrict cosine, const float *restrict sine, float sign, int half)
{
#pragma omp simd
    for (int j = 0; j < half; j++) {
        const float a = x[j], b = x[j + half], s = sign * sine[j];

        x[j]        = a * cosine[j] - b * s;
        x[j + half] = b * cosine[j] + a * s;
    }
}

static void rms_norm(float *restrict y, const struct norm *n)
{
    const float *restrict x = n->x, *restrict gain = n->gain;

    for (int i = 0; i < n->rows; i++, x += n->cols, y += n->cols) {
        float squares = 0;

#pragma omp simd reduction(+ : squares)
        for (int j = 0; j < n->cols; j++)
            squares += x[j] * x[j];
        const float rstd = 1.0f / sqrtf(squares / (float)n->cols + 1e-5f);

#pragma omp simd
        for (int j = 0; j < n->cols; j++)
            y[j] = x[j] * rstd * gain[j];
        n->rstd[i] = rstd;
    }
}

static void rms_norm_backward(float *restrict dx, float *restrict dgain, const float *restrict dy, const struct norm *n)
{
    const float *restrict x = n->x, *restrict gain = n->gain;

    for (int i = 0; i < n->rows; i++, x += n->cols, dx += n->cols, dy += n->cols) {
        const float rstd    = n->rstd[i];
        float       product = 0;

#pragma omp simd reduction(+ : product)
        for (int j = 0; j < n->cols; j++) {
            product += dy[j] * gain[j] * (x[j] * rstd);
            dgain[j] += dy[j] * (x[j] * rstd);
        }
        product /= (float)n->cols;
#pragma omp simd
        for (int j = 0; j < n->cols; j++)
            dx[j] += (dy[j] * gain[j] - x[j] * rstd * product) * rstd;
    }
}

static void norm(float *restrict y, const struct norm *n)
{
    const float *restrict x = n->x, *restrict gain = n->gain, *restrict bias = n->bias;

    if (!bias) {
        rms_norm(y, n);
        return;
    }
    for (int i = 0; i < n->rows; i++, x += n->cols, y += n->cols) {
        float sum = 0, squares = 0;

#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < n->cols; j++)
            sum += x[j];
        const float mean = sum / (float)n->cols;

#pragma omp simd reduction(+ : squares)
        for (int j = 0; j < n->cols; j++)
            squares += (x[j] - mean) * (x[j] - mean);
        const float rstd = 1.0f / sqrtf(squares / (float)n->cols + 1e-5f);

#pragma omp simd
        for (int j = 0; j < n->cols; j++)
            y[j] = (x[j] - mean) * rstd * gain[j] + bias[j];
        n->mean[i] = mean;
        n->rstd[i] = rstd;
    }
}

static void norm_backward(float *restrict dx, float *restrict dgain, float *restrict dbias, const float *restrict dy,
                          const struct norm *n)
{
    const float *restrict x = n->x, *restrict gain = n->gain;

    if (!n->bias) {
        rms_norm_backward(dx, dgain, dy, n);
        return;
    }
    for (int i = 0; i < n->rows; i++, x += n->cols, dx += n->cols, dy += n->cols) {
        const float mean = n->mean[i], rstd = n->rstd[i];
        float       sum = 0, product = 0;

#pragma omp simd reduction(+ : sum, product)
        for (int j = 0; j < n->cols; j++) {
            const float unit = (x[j] - mean) * rstd;

            sum += dy[j] * gain[j];
            product += dy[j] * gain[j] * unit;
            dgain[j] += dy[j] * unit;
            dbias[j] += dy[j];
        }
        sum /= (float)n->cols;
        product /= (float)n->cols;
#pragma omp simd
        for (int j = 0; j < n->cols; j++)
            dx[j] += (dy[j] * gain[j] - sum - (x[j] - mean) * rstd * product) * rstd;
    }
}

static float largest(const float *x, int count)
{
    float lane[8], most = x[0];
    int   j = 0;

    for (int k = 0; k < 8; k++) /* lanes by hand: NaN keeps compilers from reordering a maximum */
        lane[k] = most;
    for (; j + 8 <= count; j += 8)
        for (int k = 0; k < 8; k++)
            lane[k] = x[j + k] > lane[k] ? x[j + k] : lane[k];
    for (; j < count; j++)
        most = x[j] > most ? x[j] : most;
    for (int k = 0; k < 8; k++)
        most = lane[k] > most ? lane[k] : most;
    return most;
}

/* x = e^(x - most); returns the sum. */
static float exponentials(float *x, int count, float most)
{
    float sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < count; j++) {
        x[j] = exponential(x[j] - most);
        sum += x[j];
    }
    return sum;
}

/* The columns of row i of a tile that its query sees: *from to the result. */
static int seen(int *from, int i, int cols, const struct tile *t)
{
    const int start = t->start ? t->start[i] : 0, last = t->first_row + i - t->first_col + 1;

    *from = start > t->first_col ? start - t->first_col : 0;
    *from = *from < cols ? *from : cols;
    return last < *from ? *from : last < cols ? last : cols;
}

/* x = scale x - slope (distance to the query) for the keys first .. first + count of row i. */
static void set_scores(float *x, int count, int first, int i, const struct tile *t)
{
    const float nearest = (float)(t->first_row + i - t->first_col - first), scale = t->scale, slope = t->slope;

#pragma omp simd
    for (int j = 0; j < count; j++)
        x[j] = scale * x[j] - slope * (nearest - (float)j);
}

static void scale_row(float *x, int count, float factor)
{
#pragma omp simd
    for (int j = 0; j < count; j++)
        x[j] *= factor;
}

static void tile_forward(struct matrix s, struct matrix mixed, float *most, float *sum, const struct tile *t)
{
    for (int i = 0; i < s.rows; i++) {
        float    *row = s.data + (size_t)i * (size_t)s.stride, *x;
        int       from;
        const int to = seen(&from, i, s.cols, t), count = to - from;

        memset(row, 0, (size_t)from * sizeof(float));
        memset(row + to, 0, (size_t)(s.cols - to) * sizeof(float));
        if (count == 0)
            continue;
        x = row + from;
        set_scores(x, count, from, i, t);
        const float here = largest(x, count), now = here > most[i] ? here : most[i];
        const float shrink = sum[i] > 0 ? exponential(most[i] - now) : 0;

        if (sum[i] > 0 && shrink != 1)
            scale_row(mixed.data + (size_t)i * (size_t)mixed.stride, mixed.cols, shrink);
        sum[i]  = sum[i] * shrink + exponentials(x, count, now);
        most[i] = now;
        if (t->bits)
            dropout(x, x, t->bits + (size_t)i * (size_t)s.cols + from, t->dropout, count);
    }
}

static void tile_end(struct matrix mixed, float *log_sum, const float *most, const float *sum)
{
    for (int i = 0; i < mixed.rows; i++) {
        scale_row(mixed.data + (size_t)i * (size_t)mixed.stride, mixed.cols, sum[i] > 0 ? 1.0f / sum[i] : 0);
        log_sum[i] = most[i] + logf(sum[i]);
    }
}

static void tile_backward(struct matrix ds, struct matrix s, const float *log_sum, const float *delta,
                          const struct tile *t)
{
    for (int i = 0; i < s.rows; i++) {
        float          *p = s.data + (size_t)i * (size_t)s.stride, *d = ds.data + (size_t)i * (size_t)ds.stride;
        int             from;
        const int       to    = seen(&from, i, s.cols, t);
        const float     whole = log_sum[i], mean = delta[i], scale = t->scale;
        const uint32_t *bits = t->bits ? t->bits + (size_t)i * (size_t)s.cols : NULL;

        memset(p, 0, (size_t)from * sizeof(float));
        memset(p + to, 0, (size_t)(s.cols - to) * sizeof(float));
        memset(d, 0, (size_t)from * sizeof(float));
        memset(d + to, 0, (size_t)(s.cols - to) * sizeof(float));
        set_scores(p + from, to - from, from, i, t);
        if (bits) {
#pragma omp simd
            for (int j = from; j < to; j++) {
                const float chance = exponential(p[j] - whole),
                            stays  = bits[j] < t->dropout.below ? t->dropout.factor : 0.0f;

                d[j] = scale * chance * (d[j] * stays - mean);
                p[j] = chance * stays;
            }
            continue;
        }
#pragma omp simd
        for (int j = from; j < to; j++) {
            p[j] = exponential(p[j] - whole);
            d[j] = scale * p[j] * (d[j] - mean);
        }
    }
}

static void row_products(float *delta, struct matrix a, struct matrix b)
{
    for (int i = 0; i < a.rows; i++) {
        const float *x = a.data + (size_t)i * (size_t)a.stride, *y = b.data + (size_t)i * (size_t)b.stride;
        float        sum = 0;

#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < a.cols; j++)
            sum += x[j] * y[j];
        delta[i] = sum;
    }
}

#define TABLE_OF(isa) kernels_##isa
#define TABLE(isa) TABLE_OF(isa)
#define TEXT_OF(isa) #isa
#define TEXT(isa) TEXT_OF(isa)

extern const struct kernels TABLE(TRAINER_ISA);
const struct kernels        TABLE(TRAINER_ISA) = {
           .name                 = TEXT(TRAINER_ISA),
           .sum_rows             = sum_rows,
           .gelu                 = gelu,
           .gelu_backward        = gelu_backward,
           .add_bias             = add_bias,
           .bias_gelu            = bias_gelu,
           .bias_gelu_backward   = bias_gelu_backward,
           .bias_swiglu          = bias_swiglu,
           .bias_swiglu_backward = bias_swiglu_backward,
           .bias_dropout_add     = bias_dropout_add,
           .dropout              = dropout,
           .rotate               = rotate,
           .tile_forward         = tile_forward,
           .tile_end             = tile_end,
           .tile_backward        = tile_backward,
           .row_products         = row_products,
           .norm                 = norm,
           .norm_backward        = norm_backward,
};
