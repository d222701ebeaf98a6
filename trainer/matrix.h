/* matrix.h -- matrix products on views: a view is a pointer, a shape and a row stride, and says whether it is read
 * transposed. */
#ifndef TRAINER_MATRIX_H
#define TRAINER_MATRIX_H

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

/* c = a b + keep c, for keep 0 or 1; c is not transposed. One thread: more cores are more ranks. */
void multiply(struct matrix c, struct matrix a, struct matrix b, int keep);

/* What all products of this process have cost so far. */
struct matrix_work {
    double seconds, operations;
};
struct matrix_work matrix_work(void);

/* Readies the library; its name. */
const char *matrix_begin(void);

#endif
