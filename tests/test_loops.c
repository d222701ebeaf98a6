/* test_loops.c -- the model's fused loops against their parts and definitions, and their gradients against finite
 * differences, with every set of kernels that this processor can run.
 */
#include "harness.h"
#include "kernels.h"
#include "stop.h"

#include <hocket_train.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *normals(uint32_t what, size_t count)
{
    float *x = take_floats(count + 1);

    hkt_random_fill_normal(x, hkt_random_at(5, what, 0, 0, 0), 0, count, 1);
    return x;
}

static void use_kernels(int which)
{
    kernels = kernels_table[which < kernels_usable() ? which : 0];
}

START_TEST(fused_loops_equal_their_parts)
{
    enum { ROWS = 7, COLS = 37, WIDE = 41 };
    float *x = normals(1, ROWS * WIDE), *bias = normals(2, COLS), *y = take_floats(ROWS * WIDE),
          *dx = normals(3, ROWS * WIDE), *dy = normals(3, ROWS * WIDE), *dbias = take_floats(COLS), sum[ROWS * COLS],
          plain[ROWS * COLS];
    const struct dropout half = {0x80000000u, 2};
    uint32_t             bits[COLS];
    const struct biased  in   = {x, bias, ROWS, COLS, WIDE};
    struct dropped       drop = {x, bias, dy, bits, half};

    use_kernels(_i);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++)
            sum[i * COLS + j] = x[i * WIDE + j] + bias[j];
    kernels->gelu(plain, sum, ROWS * COLS);
    kernels->bias_gelu(y, &in);
    kernels->bias_gelu_backward(dx, dbias, &in);
    for (int j = 0; j < COLS; j++) {
        float total = 0;

        for (int i = 0; i < ROWS; i++) {
            float d = dy[i * WIDE + j];

            ck_assert_float_eq_tol(y[i * WIDE + j], plain[i * COLS + j], 1e-6f);
            kernels->gelu_backward(&d, &sum[i * COLS + j], 1);
            ck_assert_float_eq_tol(dx[i * WIDE + j], d, 2e-6f);
            total += dx[i * WIDE + j];
        }
        ck_assert_float_eq_tol(dbias[j], total, 1e-5f);
    }
    for (int i = 0; i < ROWS; i++) /* what lies beyond the columns is not touched */
        for (int j = COLS; j < WIDE; j++)
            ck_assert(y[i * WIDE + j] == 0 && dx[i * WIDE + j] == dy[i * WIDE + j]);
    hkt_random_fill_bits(bits, hkt_random_at(1, 1, 1, 1, 1), 0, COLS);
    kernels->bias_dropout_add(y, &drop, COLS);
    kernels->dropout(dx, dy, bits, half, COLS);
    for (int j = 0; j < COLS; j++) {
        ck_assert_float_eq_tol(y[j], dy[j] + (bits[j] >> 31 ? 0 : 2 * (x[j] + bias[j])), 1e-6f);
        ck_assert(dx[j] == (bits[j] >> 31 ? 0 : 2 * dy[j]));
    }
    drop.bits = NULL;
    kernels->bias_dropout_add(y, &drop, COLS);
    for (int j = 0; j < COLS; j++)
        ck_assert_float_eq_tol(y[j], dy[j] + x[j] + bias[j], 1e-6f);
    for (float **p = (float *[]){x, bias, y, dx, dy, dbias, NULL}; *p; p++)
        free(*p);
}
END_TEST

START_TEST(rotation_turns_and_turns_back)
{
    enum { HALF = 5 };
    float *x = normals(1, 2 * HALF), *before = normals(1, 2 * HALF), cosine[HALF], sine[HALF];

    use_kernels(_i);
    for (int i = 0; i < HALF; i++) {
        cosine[i] = (float)cos(0.3 * (i + 1));
        sine[i]   = (float)sin(0.3 * (i + 1));
    }
    kernels->rotate(x, cosine, sine, 1, HALF);
    for (int i = 0; i < HALF; i++) {
        ck_assert_float_eq_tol(x[i], before[i] * cosine[i] - before[i + HALF] * sine[i], 1e-6f);
        ck_assert_float_eq_tol(x[i + HALF], before[i + HALF] * cosine[i] + before[i] * sine[i], 1e-6f);
    }
    kernels->rotate(x, cosine, sine, -1, HALF);
    for (int i = 0; i < 2 * HALF; i++)
        ck_assert_float_eq_tol(x[i], before[i], 1e-6f);
    free(x), free(before);
}
END_TEST

/* SwiGLU by definition, and its gradient by central differences of the definition in fp64. */
static double gate(const float *x, const float *bias, int half, int j)
{
    const double g = (double)x[j] + (double)bias[j], u = (double)x[half + j] + (double)bias[half + j];

    return g / (1 + exp(-g)) * u;
}

START_TEST(gates_and_their_gradients)
{
    enum { ROWS = 5, HALF = 41, COLS = 37 };
    float *x = normals(1, ROWS * 2 * HALF), *bias = normals(2, 2 * HALF), *y = take_floats(ROWS * HALF),
          *dy = normals(3, ROWS * HALF), *dx = take_floats(ROWS * 2 * HALF), *dbias = take_floats(2 * HALF);
    const struct biased in = {x, bias, ROWS, COLS, HALF};
    const float         h  = 1.0f / 256;

    use_kernels(_i);
    kernels->bias_swiglu(y, &in);
    kernels->bias_swiglu_backward(dx, dbias, dy, &in);
    for (int j = 0; j < COLS; j++)
        for (int part = 0; part < 2; part++) {
            double sum = 0;

            for (int i = 0; i < ROWS; i++) {
                float       *row = x + i * 2 * HALF, saved = row[part * HALF + j];
                const double here = gate(row, bias, HALF, j);

                ck_assert_float_eq_tol(y[i * HALF + j], (float)here, 1e-5f);
                row[part * HALF + j] = saved + h;
                const double above   = gate(row, bias, HALF, j);

                row[part * HALF + j] = saved - h;
                const double wanted  = (above - gate(row, bias, HALF, j)) / (2 * (double)h) * (double)dy[i * HALF + j];

                row[part * HALF + j] = saved;
                ck_assert_float_eq_tol(dx[i * 2 * HALF + part * HALF + j], (float)wanted, 2e-4f);
                sum += (double)dx[i * 2 * HALF + part * HALF + j];
            }
            ck_assert_float_eq_tol(dbias[part * HALF + j], (float)sum, 1e-5f);
        }
    for (int i = 0; i < ROWS; i++) /* what lies beyond the columns is not touched */
        for (int j = COLS; j < HALF; j++)
            ck_assert(y[i * HALF + j] == 0 && dx[i * 2 * HALF + j] == 0 && dx[i * 2 * HALF + HALF + j] == 0);
    for (float **p = (float *[]){x, bias, y, dy, dx, dbias, NULL}; *p; p++)
        free(*p);
}
END_TEST

/* RMSNorm (Zhang and Sennrich 2019) by definition; its gradient by central differences. */
static double rms_loss(const float *x, const float *gain, const float *dy, int cols)
{
    double squares = 0, sum = 0;

    for (int j = 0; j < cols; j++)
        squares += (double)x[j] * (double)x[j];
    for (int j = 0; j < cols; j++)
        sum += (double)x[j] / sqrt(squares / cols + 1e-5) * (double)gain[j] * (double)dy[j];
    return sum;
}

START_TEST(root_mean_square_norm)
{
    enum { ROWS = 3, COLS = 37 };
    float *x = normals(1, ROWS * COLS), *gain = normals(2, COLS), *dy = normals(3, ROWS * COLS),
          *y = take_floats(ROWS * COLS), *dx = take_floats(ROWS * COLS), *dgain = take_floats(COLS), rstd[ROWS];
    const struct norm n = {ROWS, COLS, x, gain, NULL, NULL, rstd};
    const float       h = 1.0f / 256;

    use_kernels(_i);
    kernels->norm(y, &n);
    kernels->norm_backward(dx, dgain, NULL, dy, &n);
    for (int i = 0; i < ROWS; i++) {
        double sum = 0;

        for (int j = 0; j < COLS; j++) {
            float *at = x + i * COLS + j, saved = *at;

            sum += (double)y[i * COLS + j] * (double)dy[i * COLS + j];
            *at                = saved + h;
            const double above = rms_loss(x + i * COLS, gain, dy + i * COLS, COLS);

            *at                 = saved - h;
            const double wanted = (above - rms_loss(x + i * COLS, gain, dy + i * COLS, COLS)) / (2 * (double)h);

            *at = saved;
            ck_assert_float_eq_tol(dx[i * COLS + j], (float)wanted, 1e-4f);
        }
        ck_assert_float_eq_tol((float)sum, (float)rms_loss(x + i * COLS, gain, dy + i * COLS, COLS), 1e-4f);
    }
    for (int j = 0; j < COLS; j++) {
        float sum = 0;

        for (int i = 0; i < ROWS; i++)
            sum += dy[i * COLS + j] * y[i * COLS + j] / gain[j];
        ck_assert_float_eq_tol(dgain[j], sum, 1e-4f);
    }
    for (float **p = (float *[]){x, gain, dy, y, dx, dgain, NULL}; *p; p++)
        free(*p);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, fused_loops_equal_their_parts, 3, 10);
    ADD(s, gates_and_their_gradients, 3, 10);
    ADD(s, root_mean_square_norm, 3, 10);
    ADD(s, rotation_turns_and_turns_back, 3, 10);
}

int main(void)
{
    return run_suite("loops", add);
}
