/* reference.h -- what every collective has to give, computed in the plainest way and with nothing of the library's: conversions from
 * the definition of the formats, the fold from its definition in hocket.h.
 *
 * Inputs are a function of (seed, rank, index), so no rank has to be told what the others hold. They repeat with a period of
 * PERIOD elements, a prime, so that the results of long vectors are checked in full at the speed of memcmp.
 */
#ifndef TEST_REFERENCE_H
#define TEST_REFERENCE_H

#include "hocket.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PERIOD = 4099, EVERYBODY = -1 };
enum { OP_PREMUL = HKT_OPS, OP_COUNT /* operators to test: the built-in ones and the premultiplied sum */ };

/* Elements of a kind. */
enum values {
    ORDINARY, /* integers: all bits; floats: small numbers of either sign whose sums and products stay finite */
    SPECIAL   /* floats also: NaN, infinities, zeros of either sign, subnormals, largest */
};

/* An element, as the bits of its type in the low part. */
uint64_t element(hkt_type_t type, enum values values, uint64_t seed, int rank, size_t index);
void     store_element(hkt_type_t type, void *to, size_t index, uint64_t bits);
uint64_t load_element(hkt_type_t type, const void *from, size_t index);

/* The factor of rank r in a premultiplied sum. */
double factor(hkt_type_t type, int rank);

/* The canonical reduction of n elements, given as bits. */
uint64_t fold(hkt_type_t type, int op, const uint64_t *bits, int n);

bool     is_float(hkt_type_t type);
uint64_t canonical_nan(hkt_type_t type);
bool     is_nan(hkt_type_t type, uint64_t bits);
double   to_double(hkt_type_t type, uint64_t bits);   /* exact for every type but 64-bit integers */
uint64_t from_double(hkt_type_t type, double x);      /* floats: rounded to nearest even; integers: truncated */
size_t   size_of(hkt_type_t type);                    /* bytes; does not ask the library */
const char *name_of_op(int op);                       /* "sum" ... "premul_sum" */

/* Where data comes from: elements index .. index + count of rank `source`, or of everybody's fold. */
struct origin {
    hkt_type_t  type;
    enum values values;
    uint64_t    seed;
    int         op, n; /* of a fold */
    int         source;
    size_t      index;
};

void fill(const struct origin *o, void *to, size_t count);

/* Compares with what fill() would write. Returns count when all are equal, else the first index that is not. */
size_t differs(const struct origin *o, const void *is, size_t count);

#endif
