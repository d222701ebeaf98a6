/* product.h -- the trainer's own matrix product: packed panels and a tile kept in registers (Goto and van de Geijn
 * 2008), for every instruction set, and for the matrix unit (AMX) in bf16 with fp32 sums.
 *
 * An element of the result is one sum over the inner dimension in one order: it depends on neither the number of
 * threads nor the result's other rows and columns.
 */
#ifndef TRAINER_PRODUCT_H
#define TRAINER_PRODUCT_H

#include "matrix.h"

/* How one instruction set multiplies. Packed a: panels of `rows` rows, packed b: panels of `cols` columns; what they
 * look like within is the scheme's business. Depth is rounded up to `depth` elements, filled with zeros. */
struct product_scheme {
    const char *name;
    int         rows, cols, depth, lanes; /* lanes: columns that a narrower tile comes in */
    size_t      element;                  /* bytes of a packed element */
    int         block;                    /* elements of depth packed at a time, a multiple of depth */
    void (*pack_a)(void *out, size_t panel,
                   struct matrix a);            /* any rows: panels of `panel` bytes; at most `block` columns */
    void (*pack_b)(void *out, struct matrix b); /* at most `block` rows, at most `cols` columns */
    /* c = a b + keep c for one tile; c has at most rows x cols, `depth` is the rounded one. */
    void (*tile)(struct matrix c, const void *a, const void *b, int depth, int keep);
    void (*begin)(void), (*end)(void); /* around the tiles of a product, on each thread; may be NULL */
};

/* c = a b + keep c. */
void product_run(const struct product_scheme *scheme, struct matrix c, struct matrix a, struct matrix b, int keep);

/* For fp32 on this processor; and with both factors rounded to bf16 and sums in fp32, by the matrix unit where there is
 * one. */
const struct product_scheme *product_single(void);
const struct product_scheme *product_half(void);

#endif
