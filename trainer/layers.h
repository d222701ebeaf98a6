/* layers.h -- forward and backward of the model's layers. M is rows: B * T. Backward functions write the gradient of
 * the input and write (keep 0) or add to (keep 1) the gradients of the parameters.
 */
#ifndef TRAINER_LAYERS_H
#define TRAINER_LAYERS_H

#include "kernels.h"

/* y (M,N) = x (M,K) weight^T (N,K) + bias (N) (+ residual (M,N)). */
struct linear {
    int          rows, inputs, outputs; /* M, K, N */
    const float *x, *weight, *bias;
};
void linear_forward(float *y, const float *residual, const struct linear *layer);

/* dx may be NULL. */
struct linear_gradient {
    float *dx, *dweight, *dbias;
    int    keep;
};
void linear_backward(const struct linear_gradient *gradient, const float *dy, const struct linear *layer);

/* Causal self-attention over B sequences: mixed = softmax(Q K^T / sqrt(C / H)) V, per head. */
struct attention {
    int    batch, length, width, heads; /* B, T, C, H */
    float *qkv;                         /* (B,T,3C): queries, keys and values side by side, each H heads of C / H */
    float *chances;                     /* (B,H,T,T), written forward */
    float *mixed;                       /* (B,T,C), written forward */
};
enum {
    ATTENTION_ROWS = 64
}; /* rows of scores computed at a time: what lies above the diagonal block is never computed */
void attention_forward(const struct attention *a);
/* dmixed (B,T,C) -> dqkv (B,T,3C); scratch is (ATTENTION_ROWS, T). */
void attention_backward(float *dqkv, const float *dmixed, float *scratch, const struct attention *a);

/* x (M,C) = tokens[token] + positions[place], place = row % length. */
struct embedding {
    int            rows, length, width;
    const uint8_t *token;
};
void embedding_forward(float *x, const float *tokens, const float *positions, const struct embedding *e);
/* Adds to dtokens (256,C); writes or adds to dpositions. */
void embedding_backward(float *dtokens, float *dpositions, const float *dx, int keep, const struct embedding *e);

#endif
