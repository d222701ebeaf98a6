/* kernels.h -- the arithmetic of the model that is no matrix product, as plain loops over rows that compilers turn into
 * vector code.
 *
 * kernels.c is compiled once per instruction set; kernels_choose() picks the widest one that this processor has. All
 * arrays are fp32 and dense unless a stride is named.
 */
#ifndef TRAINER_KERNELS_H
#define TRAINER_KERNELS_H

#include "matrix.h"

#include <stdint.h>

enum { KERNEL_TILE_ROWS = 6, KERNEL_TILE_COLS = 16 };

/* Layer norm over `cols` of `rows` rows: y = (x - mean) * rstd * gain + bias. */
struct norm {
    int          rows, cols;
    const float *x;           /* (rows, cols) */
    const float *gain, *bias; /* (cols) */
    float       *mean, *rstd; /* (rows), written forward, read backward */
};

/* One AdamW step (Loshchilov and Hutter 2019); the gradient is multiplied by `scale` (clipping) as it is read. */
struct adamw {
    float rate, decay, beta1, beta2, epsilon, scale;
    float correction1, correction2; /* 1 - beta^step */
};

struct adamw_state {
    float       *weight, *mean, *square;
    const float *gradient;
};

struct kernels {
    const char *name;

    /* y[i] = bias (+ residual[i] unless NULL), for (rows, cols) y and residual and (cols) bias. */
    void (*set_rows)(float *y, const float *bias, const float *residual, int rows, int cols);
    /* sum = column sums of y (rows, cols) + keep * sum. */
    void (*sum_rows)(float *sum, const float *y, int rows, int cols, int keep);

    /* y = gelu(x), the tanh form of GPT-2; backward: dx = dx * gelu'(x). */
    void (*gelu)(float *y, const float *x, size_t count);
    void (*gelu_backward)(float *dx, const float *x, size_t count);

    void (*norm)(float *y, const struct norm *norm);
    /* dx += gradient through the norm of dy; dgain and dbias (cols) are added to. */
    void (*norm_backward)(float *dx, float *dgain, float *dbias, const float *dy, const struct norm *norm);

    /* Causal softmax of scale * s in place; row i of s sees its first `first` + i + 1 columns, the others become 0. */
    void (*softmax)(struct matrix s, int first, float scale);
    /* dp (gradient of the probabilities p) becomes the gradient of the scores. */
    void (*softmax_backward)(struct matrix dp, struct matrix p, int first, float scale);

    /* Sum over rows of -log softmax(logits)[target]; logits (rows, cols) become scale * their gradient. */
    double (*cross_entropy)(struct matrix logits, const uint8_t *target, float scale);

    double (*sum_of_squares)(const float *x, size_t count);
    void (*adamw)(const struct adamw *step, const struct adamw_state *state, size_t count);

    /* c += a b for one tile of packed panels: a[depth][TILE_ROWS], b[depth][TILE_COLS]; c may be cut at the edge. */
    void (*add_tile)(struct matrix c, const float *a, const float *b, int depth);
};

extern const struct kernels *kernels; /* in use; the portable ones at first */

/* From the narrowest to the widest; this processor can run the first kernels_usable() of them. */
extern const struct kernels *const kernels_table[];
int                                kernels_usable(void);

void kernels_choose(void);

#endif
