/* matrix.h -- matrix products on views: a view is a pointer, a shape and a row stride, and says whether it is read
 * transposed. */
#ifndef TRAINER_MATRIX_H
#define TRAINER_MATRIX_H

#include <hocket_train.h>

#include <stdbool.h>
#include <stddef.h>

struct matrix {
    float *data;
    int    rows, cols; /* as the product sees them */
    int    stride;     /* floats from one row in memory to the next */
    bool   transposed; /* memory holds cols x rows */
};

static inline struct matrix matrix_of(const float *data, int rows, int cols)
{
    return (struct matrix){(float *)data, rows, cols, cols, false};
}

static inline struct matrix transpose(struct matrix a)
{
    return (struct matrix){a.data, a.cols, a.rows, a.stride, !a.transposed};
}

/* c = a b + keep c, for keep 0 or 1; c is not transposed. In fp32; shared by the threads of the caller's crew. */
void multiply(struct matrix c, struct matrix a, struct matrix b, int keep);

/* The same for the linear layers, on the views of the training layer, in the numbers that matrix_begin() was given. */
void matrix_linear(hkt_view_t c, hkt_view_t a, hkt_view_t b, bool keep);

/* What all products of this thread have cost so far. */
struct matrix_work {
    double seconds, operations;
};
struct matrix_work matrix_work(void);

/* Chooses how to multiply, once for the process: in fp32, or linear layers in bf16, which rounds both factors and sums
 * in fp32 (by the matrix unit where there is one). Returns the way's name. */
enum matrix_numbers { MATRIX_FP32, MATRIX_BF16 };
const char *matrix_begin(enum matrix_numbers numbers);

#endif
