/* matrix.c -- matrix products by OpenBLAS, or by the blocked product at the end of this file where there is none.
 *
 * The fallback packs panels as every fast product does (Goto and van de Geijn 2008) and reaches a good part of the
 * library's rate; it exists so that the trainer needs nothing but a C compiler.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "matrix.h"

#include "clock.h"
#include "kernels.h"
#include "stop.h"

#ifdef HAVE_CBLAS
#include <cblas.h>
#else
#include <string.h>
#endif

static struct matrix_work work;

struct matrix_work matrix_work(void)
{
    return work;
}

#ifdef HAVE_CBLAS
const char *matrix_begin(void)
{
    openblas_set_num_threads(1);
    return "OpenBLAS";
}

static void product(struct matrix c, struct matrix a, struct matrix b, int keep)
{
    cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans, b.transposed ? CblasTrans : CblasNoTrans,
                c.rows, c.cols, a.cols, 1.0f, a.data, a.stride, b.data, b.stride, (float)keep, c.data, c.stride);
}
#else
enum { ROWS = KERNEL_TILE_ROWS, COLS = KERNEL_TILE_COLS, DEPTH = 256, HIGH = 16 * ROWS, WIDE = 64 * COLS };

static float *packed_a, *packed_b;

const char *matrix_begin(void)
{
    if (!packed_a) {
        packed_a = take_floats((size_t)HIGH * DEPTH);
        packed_b = take_floats((size_t)WIDE * DEPTH);
    }
    return "its own product";
}

/* out[panel][k][lane] = a[panel * lanes + lane][k], zero beyond the edge. */
static void pack(float *out, struct matrix a, int lanes)
{
    const size_t down = a.transposed ? 1 : (size_t)a.stride, along = a.transposed ? (size_t)a.stride : 1;

    for (int panel = 0; panel < a.rows; panel += lanes) {
        const int    full = a.rows - panel < lanes ? a.rows - panel : lanes;
        const float *from = a.data + (size_t)panel * down;

        for (int k = 0; k < a.cols; k++, from += along, out += lanes)
            if (full == lanes && a.transposed)
                memcpy(out, from, (size_t)lanes * sizeof(float));
            else
                for (int lane = 0; lane < lanes; lane++)
                    out[lane] = lane < full ? from[(size_t)lane * down] : 0;
    }
}

static struct matrix part(struct matrix a, int row, int col, int rows, int cols)
{
    const size_t skip =
        a.transposed ? (size_t)col * (size_t)a.stride + (size_t)row : (size_t)row * (size_t)a.stride + (size_t)col;

    a.data += skip;
    a.rows = a.rows - row < rows ? a.rows - row : rows;
    a.cols = a.cols - col < cols ? a.cols - col : cols;
    return a;
}

static void product(struct matrix c, struct matrix a, struct matrix b, int keep)
{
    const int depth = a.cols;

    for (int i = 0; !keep && i < c.rows; i++)
        for (int j = 0; j < c.cols; j++)
            c.data[(size_t)i * (size_t)c.stride + (size_t)j] = 0;
    for (int j = 0; j < c.cols; j += WIDE)
        for (int k = 0; k < depth; k += DEPTH) {
            pack(packed_b, transpose(part(b, k, j, DEPTH, WIDE)), COLS);
            for (int i = 0; i < c.rows; i += HIGH) {
                const struct matrix block = part(a, i, k, HIGH, DEPTH), out = part(c, i, j, HIGH, WIDE);

                pack(packed_a, block, ROWS);
                for (int jj = 0; jj < out.cols; jj += COLS)
                    for (int ii = 0; ii < out.rows; ii += ROWS)
                        kernels->add_tile(part(out, ii, jj, ROWS, COLS), packed_a + (size_t)ii * (size_t)block.cols,
                                          packed_b + (size_t)jj * (size_t)block.cols, block.cols);
            }
        }
}
#endif

void multiply(struct matrix c, struct matrix a, struct matrix b, int keep)
{
    const double start = clock_seconds();

    product(c, a, b, keep);
    work.seconds += clock_seconds() - start;
    work.operations += 2.0 * c.rows * c.cols * a.cols;
}
