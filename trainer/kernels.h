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

/* Layer norm over `cols` of `rows` rows: y = (x - mean) * rstd * gain + bias. With bias NULL RMSNorm: y = x * rstd *
 * gain, rstd = 1 / sqrt(mean square), and mean is not used. */
struct norm {
    int          rows, cols;
    const float *x;           /* (rows, cols) */
    const float *gain, *bias; /* (cols) */
    float       *mean, *rstd; /* (rows), written forward, read backward */
};

/* Dropout: an element stays, times `factor`, when its random bits are below `below`. */
struct dropout {
    uint32_t below;
    float    factor; /* 1 / chance to stay */
};

struct dropped {
    const float    *x, *bias, *residual;
    const uint32_t *bits; /* NULL: everything stays */
    struct dropout  dropout;
};

/* `cols` columns of x, and of what is made of it, in rows of `stride`; and as many of a bias. */
struct biased {
    const float *x, *bias;
    int          rows, cols, stride;
};

/* A tile of attention scores: queries first_row .. of a sequence against keys first_col .. of it, in rows and columns
 * from 0 on. Row i sees the keys start[i] (0 where start is NULL) to first_row + i, which may be none of the tile. With
 * slope the score falls by slope per key of distance (ALiBi). */
struct tile {
    int             first_row, first_col;
    const int32_t  *start; /* (rows) */
    float           scale, slope;
    const uint32_t *bits; /* (rows, cols) of the dropout, or NULL */
    struct dropout  dropout;
};

struct kernels {
    const char *name;

    /* sum = column sums of y (rows, cols) + keep * sum. */
    void (*sum_rows)(float *sum, const float *y, int rows, int cols, int keep);

    /* y = gelu(x), the tanh form of GPT-2; backward: dx = dx * gelu'(x). */
    void (*gelu)(float *y, const float *x, size_t count);
    void (*gelu_backward)(float *dx, const float *x, size_t count);

    void (*add_bias)(float *y, const float *bias, int rows, int cols);
    /* y = gelu(x + bias); backward: dx = dx * gelu'(x + bias), dbias += column sums. */
    void (*bias_gelu)(float *y, const struct biased *in);
    void (*bias_gelu_backward)(float *dx, float *dbias, const struct biased *in);
    /* SwiGLU (Shazeer 2020): y = silu(g) u for the halves g and u of the rows of x + bias, which are 2 stride apart;
     * the second half stands `stride` behind the first one, rows of y are `stride` apart. Backward: dx, shaped as x,
     * from dy; dbias += column sums. */
    void (*bias_swiglu)(float *y, const struct biased *in);
    void (*bias_swiglu_backward)(float *dx, float *dbias, const float *dy, const struct biased *in);
    /* y = residual + dropout(x + bias), of one row. y may be x or residual. */
    void (*bias_dropout_add)(float *y, const struct dropped *in, int cols);
    void (*dropout)(float *y, const float *x, const uint32_t *bits, struct dropout dropout, int cols);
    /* Turns the pairs (x[i], x[i + half]) of a head by the angles whose cosines and sines are given; sign -1: back. */
    void (*rotate)(float *x, const float *cosine, const float *sine, float sign, int half);

    void (*norm)(float *y, const struct norm *norm);
    /* dx += gradient through the norm of dy; dgain and dbias (cols; NULL of an RMSNorm) are added to. */
    void (*norm_backward)(float *dx, float *dgain, float *dbias, const float *dy, const struct norm *norm);

    /* Blocked attention. tile_forward: the scores s become e^(score - most), after dropout; most and sum (per row) are
     * carried from tile to tile, and what was accumulated in mixed so far is scaled to the new `most`. tile_end: mixed
     * / sum, and most + log sum; for a row that saw nothing zeros, and -INFINITY. */
    void (*tile_forward)(struct matrix s, struct matrix mixed, float *most, float *sum, const struct tile *tile);
    void (*tile_end)(struct matrix mixed, float *log_sum, const float *most, const float *sum);
    /* s: scores, become the probabilities after dropout; ds: gradient of those, becomes that of the scores. `delta` is
     * per row the product of mixed and its gradient. */
    void (*tile_backward)(struct matrix ds, struct matrix s, const float *log_sum, const float *delta,
                          const struct tile *tile);
    void (*row_products)(float *delta, struct matrix a, struct matrix b);
};

extern const struct kernels *kernels; /* in use; the portable ones at first */

/* From the narrowest to the widest; this processor can run the first kernels_usable() of them. */
extern const struct kernels *const kernels_table[];
int                                kernels_usable(void);

void kernels_choose(void);

#endif
