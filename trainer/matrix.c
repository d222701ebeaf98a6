/* matrix.c -- the products that the model asks for, on the schemes of product.h; counts what they cost. */
#include "matrix.h"

#include "clock.h"
#include "product.h"

static _Thread_local struct matrix_work work;

static const struct product_scheme *_Atomic single, *_Atomic linear; /* the same for all threads */

struct matrix_work matrix_work(void)
{
    return work;
}

const char *matrix_begin(enum matrix_numbers numbers)
{
    single = product_single();
    linear = numbers == MATRIX_BF16 ? product_half() : single;
    return linear->name;
}

static void counted(const struct product_scheme *scheme, struct matrix c, struct matrix a, struct matrix b, int keep)
{
    const double start = clock_seconds();

    product_run(scheme, c, a, b, keep);
    work.seconds += clock_seconds() - start;
    work.operations += 2.0 * c.rows * c.cols * a.cols;
}

void multiply(struct matrix c, struct matrix a, struct matrix b, int keep)
{
    counted(single, c, a, b, keep);
}

static struct matrix matrix_from(hkt_view_t v)
{
    return (struct matrix){v.data, (int)v.rows, (int)v.cols, (int)v.stride, v.transposed};
}

void matrix_linear(hkt_view_t c, hkt_view_t a, hkt_view_t b, bool keep)
{
    counted(linear, matrix_from(c), matrix_from(a), matrix_from(b), keep);
}
