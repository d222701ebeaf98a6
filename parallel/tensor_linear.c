/* tensor_linear.c -- linear layers split over the ranks of a tensor-parallel group.
 *
 *              forward                         backward
 *   column     (gather x)  y = x W'            dx = dy W, then sum (scatter) while dW = dy' x
 *   row        y = x W', sum (scatter)         (gather dy)  dx = dy W   dW = dy' x
 *
 * What stands in brackets is sequence parallel. With it a column layer keeps its own rows of x only and gathers them
 * again in backward, beside the product that makes dx; the reduction of dx travels beside the product that makes dW.
 *
 * With slices, every product is made in pieces whose shapes do not depend on the number of ranks, and a sum over a
 * split dimension is the same binary tree, whose upper part is the canonical tree of the collectives.
 */
#include "tensor.h"

static hkt_view_t dense(const void *data, size_t rows, size_t cols, hkt_type_t type)
{
    return (hkt_view_t){(void *)data, rows, cols, cols, false, type};
}

static hkt_view_t transposed(hkt_view_t m)
{
    return (hkt_view_t){m.data, m.cols, m.rows, m.stride, !m.transposed, m.type};
}

/* Rows `first` .. of the view. */
static hkt_view_t rows_of(hkt_view_t m, size_t first, size_t count)
{
    m.data = (char *)m.data + first * (m.transposed ? 1 : m.stride) * hkt_type_size(m.type);
    m.rows = count;
    return m;
}

static hkt_view_t cols_of(hkt_view_t m, size_t first, size_t count)
{
    return transposed(rows_of(transposed(m), first, count));
}

static int product(hkt_view_t c, hkt_view_t a, hkt_view_t b, bool keep, struct hkt_tensor *t)
{
    return t->config.product(c, a, b, keep, t->config.arg);
}

/* The product piece by piece of the rows of c. */
static int product_by_rows(hkt_view_t c, hkt_view_t a, hkt_view_t b, bool keep, struct hkt_tensor *t)
{
    const size_t step = c.rows / t->local_slices;

    for (size_t i = 0; i < t->local_slices; i++)
        TRY(product(rows_of(c, i * step, step), rows_of(a, i * step, step), b, keep, t));
    return HKT_OK;
}

static int product_by_cols(hkt_view_t c, hkt_view_t a, hkt_view_t b, bool keep, struct hkt_tensor *t)
{
    const size_t step = c.cols / t->local_slices;

    for (size_t i = 0; i < t->local_slices; i++)
        TRY(product(cols_of(c, i * step, step), a, cols_of(b, i * step, step), keep, t));
    return HKT_OK;
}

static void add(float *restrict to, const float *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

/* Slices first .. first + count - 1 of the sum; c is dense. */
static int sum_slices(hkt_view_t c, hkt_view_t a, hkt_view_t b, size_t slices[2], struct hkt_tensor *t)
{
    const size_t first = slices[0], count = slices[1], step = a.cols / t->local_slices;
    hkt_view_t   right = c;
    int          level = 0;

    if (count == 1)
        return product(c, cols_of(a, first * step, step), rows_of(b, first * step, step), false, t);
    while ((size_t)2 << level < count)
        level++;
    TRY(tensor_scratch(&right.data, c.rows * c.cols * sizeof(float), SCRATCH_TREE + level, t));
    TRY(sum_slices(c, a, b, (size_t[]){first, count / 2}, t));
    TRY(sum_slices(right, a, b, (size_t[]){first + count / 2, count / 2}, t));
    add(c.data, right.data, c.rows * c.cols);
    return HKT_OK;
}

/* The product whose inner dimension is split: this rank's share of the sum. */
static int product_by_depth(hkt_view_t c, hkt_view_t a, hkt_view_t b, struct hkt_tensor *t)
{
    if (t->local_slices == 1)
        return product(c, a, b, false, t);
    return sum_slices(c, a, b, (size_t[]){0, t->local_slices}, t);
}

static int check(const hkt_linear_t *l, size_t split, const char *what, struct hkt_tensor *t)
{
    if (!t || !l || !l->weight)
        return hkt_error_set(HKT_ERR_ARGUMENT, "a split linear layer without tensor-parallel group or weight");
    if (t->config.sequence && l->rows % (size_t)t->n)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "%zu rows cannot be split over %d sequence-parallel ranks: a multiple is needed", l->rows,
                             t->n);
    return tensor_divides(what, split, t);
}

int hkt_column_forward(void *y, const void *x, const hkt_linear_t *l, hkt_tensor_t *t)
{
    TRY(check(l, l->outputs, "the outputs of a column layer,", t));
    const hkt_type_t type    = t->config.type;
    const size_t     outputs = l->outputs / (size_t)t->n;
    const void      *whole   = x;

    if (t->config.sequence && t->n > 1) {
        void *gathered;

        TRY(tensor_scratch(&gathered, l->rows * l->inputs * t->element, SCRATCH_GATHERED, t));
        TRY(tensor_gather_rows(gathered, x, l->rows * l->inputs, NULL, t));
        whole = gathered;
    }
    return product_by_cols(dense(y, l->rows, outputs, type), dense(whole, l->rows, l->inputs, type),
                           transposed(dense(l->weight, outputs, l->inputs, type)), false, t);
}

/* Waits for what `stream` carries before a product reads it. */
static int column_weight(const void *dy, const void *x, const hkt_linear_t *l, struct hkt_tensor *t)
{
    const hkt_type_t type    = t->config.type;
    const size_t     outputs = l->outputs / (size_t)t->n;

    return product_by_rows(dense(l->gradient, outputs, l->inputs, HKT_FLOAT32),
                           transposed(dense(dy, l->rows, outputs, type)), dense(x, l->rows, l->inputs, type), l->keep,
                           t);
}

static int column_input(void *dx, const void *dy, const hkt_linear_t *l, struct hkt_tensor *t)
{
    const hkt_type_t type    = t->config.type;
    const size_t     outputs = l->outputs / (size_t)t->n;

    return product_by_depth(dense(dx, l->rows, l->inputs, type), dense(dy, l->rows, outputs, type),
                            dense(l->weight, outputs, l->inputs, type), t);
}

/* What was begun on the stream must have ended before an error leaves its memory. */
static int wait_after(int rc, struct hkt_tensor *t)
{
    const int waited = tensor_wait(t);

    return rc < 0 ? rc : waited;
}

int hkt_column_backward(void *dx, const void *dy, const void *x, const hkt_linear_t *l, hkt_tensor_t *t)
{
    TRY(check(l, l->outputs, "the outputs of a column layer,", t));
    const bool   split   = t->config.sequence && t->n > 1;
    const size_t count   = l->rows * l->inputs;
    const void  *whole   = x;
    void        *partial = dx, *gathered;

    if (split && l->gradient) {
        TRY(tensor_scratch(&gathered, count * t->element, SCRATCH_GATHERED, t));
        TRY(tensor_gather_rows(gathered, x, count, dx ? t->stream : NULL, t));
        whole = gathered;
    }
    if (split && dx)
        TRY(wait_after(tensor_scratch(&partial, count * t->element, SCRATCH_PARTIAL, t), t));
    if (dx) {
        TRY(wait_after(column_input(partial, dy, l, t), t));
        TRY(split ? tensor_reduce_rows(dx, partial, count, t->stream, t) : tensor_all_reduce(dx, count, t->stream, t));
    }
    return wait_after(l->gradient ? column_weight(dy, whole, l, t) : HKT_OK, t);
}

int hkt_row_forward(void *y, const void *x, const hkt_linear_t *l, hkt_tensor_t *t)
{
    TRY(check(l, l->inputs, "the inputs of a row layer,", t));
    const hkt_type_t type   = t->config.type;
    const size_t     inputs = l->inputs / (size_t)t->n, count = l->rows * l->outputs;
    const bool       split   = t->config.sequence && t->n > 1;
    void            *partial = y;

    if (split)
        TRY(tensor_scratch(&partial, count * t->element, SCRATCH_PARTIAL, t));
    TRY(product_by_depth(dense(partial, l->rows, l->outputs, type), dense(x, l->rows, inputs, type),
                         transposed(dense(l->weight, l->outputs, inputs, type)), t));
    return split ? tensor_reduce_rows(y, partial, count, NULL, t) : tensor_all_reduce(y, count, NULL, t);
}

int hkt_row_backward(void *dx, const void *dy, const void *x, const hkt_linear_t *l, hkt_tensor_t *t)
{
    TRY(check(l, l->inputs, "the inputs of a row layer,", t));
    const hkt_type_t type   = t->config.type;
    const size_t     inputs = l->inputs / (size_t)t->n, count = l->rows * l->outputs;
    const void      *whole = dy;
    void            *gathered;

    if (t->config.sequence && t->n > 1) {
        TRY(tensor_scratch(&gathered, count * t->element, SCRATCH_GATHERED, t));
        TRY(tensor_gather_rows(gathered, dy, count, NULL, t));
        whole = gathered;
    }
    if (dx)
        TRY(product_by_cols(dense(dx, l->rows, inputs, type), dense(whole, l->rows, l->outputs, type),
                            dense(l->weight, l->outputs, inputs, type), false, t));
    if (l->gradient)
        TRY(product_by_cols(dense(l->gradient, l->outputs, inputs, HKT_FLOAT32),
                            transposed(dense(whole, l->rows, l->outputs, type)), dense(x, l->rows, inputs, type),
                            l->keep, t));
    return HKT_OK;
}
