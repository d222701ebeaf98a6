/* layers.c -- linear layers and embeddings, see layers.h. Leaves attention to attention.c. */
#include "layers.h"

#include <string.h>

void linear_forward(float *y, const float *residual, const struct linear *l)
{
    kernels->set_rows(y, l->bias, residual, l->rows, l->outputs);
    multiply(matrix_of(y, l->rows, l->outputs), matrix_of(l->x, l->rows, l->inputs),
             transpose(matrix_of(l->weight, l->outputs, l->inputs)), 1);
}

void linear_backward(const struct linear_gradient *g, const float *dy, const struct linear *l)
{
    const struct matrix out = matrix_of(dy, l->rows, l->outputs);

    multiply(matrix_of(g->dweight, l->outputs, l->inputs), transpose(out), matrix_of(l->x, l->rows, l->inputs),
             g->keep);
    kernels->sum_rows(g->dbias, dy, l->rows, l->outputs, g->keep);
    if (g->dx)
        multiply(matrix_of(g->dx, l->rows, l->inputs), out, matrix_of(l->weight, l->outputs, l->inputs), 0);
}

static void add(float *restrict to, const float *restrict from, int count)
{
#pragma omp simd
    for (int i = 0; i < count; i++)
        to[i] += from[i];
}

void embedding_forward(float *x, const float *tokens, const float *positions, const struct embedding *e)
{
    for (int row = 0; row < e->rows; row++, x += e->width) {
        memcpy(x, tokens + (size_t)e->token[row] * (size_t)e->width, (size_t)e->width * sizeof(float));
        add(x, positions + (size_t)(row % e->length) * (size_t)e->width, e->width);
    }
}

void embedding_backward(float *dtokens, float *dpositions, const float *dx, int keep, const struct embedding *e)
{
    if (!keep)
        memset(dpositions, 0, (size_t)e->length * (size_t)e->width * sizeof(float));
    for (int row = 0; row < e->rows; row++, dx += e->width) {
        add(dtokens + (size_t)e->token[row] * (size_t)e->width, dx, e->width);
        add(dpositions + (size_t)(row % e->length) * (size_t)e->width, dx, e->width);
    }
}
