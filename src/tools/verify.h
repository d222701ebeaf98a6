/* verify.h -- shared by the files of hkt-verify. */
#ifndef HKT_TOOL_VERIFY_H
#define HKT_TOOL_VERIFY_H

#include "language/algorithm.h"

enum { VERIFY_MAX_RANKS = 4096 };

/* How much is proven. */
struct verify_range {
    int  max;   /* every n up to it, with every root and every variant */
    bool large; /* and a choice of shapes at sizes up to 1024 */
};

/* Proves everything of one algorithm and collective in the range and prints one line; the failures too, of which a few end the
 * sweep. Returns their number and adds the shapes proven to *proven. */
long verify_sweep(const struct hkt_algorithm *a, enum hkt_coll coll, const struct verify_range *range, long *proven);

/* Prints the steps of every rank of the shape as a table, and what the verifier says of it. False: it is wrong. */
bool verify_print(const struct hkt_algorithm *a, const struct hkt_shape *shape);

#endif
