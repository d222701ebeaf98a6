/* reduce_call.h -- one call of a reduction kernel, run under every instruction set of this machine on random data between guard
 * bytes, against a scalar reference that shares no code with the kernels. */
#ifndef TEST_REDUCE_CALL_H
#define TEST_REDUCE_CALL_H

#include "language/dtype.h"

#include <stddef.h>
#include <stdint.h>

enum { MAX_SOURCES = 1024, MAX_ISAS = 3, MAX_DSTS = 3 };

extern const char *isas[MAX_ISAS]; /* those that this machine has */
extern int         nisas;
void               find_isas(void);

/* Small and fp32/fp64 floats: bits of mantissa and exponent. finite: E4M3 has no infinity. */
struct format {
    int      mantissa, exponent;
    uint64_t nan;
    int      finite;
};
extern const struct format formats[HKT_TYPES];

struct call {
    hkt_type_t    type;
    hkt_op_t      op;
    enum hkt_form in, out;
    uint32_t      nsrc, ndst;
    size_t        count;
    unsigned      align; /* bytes that pointers are off an aligned address; 16: any */
    int           in_place, stream;
};

extern char *arena; /* where run_call() puts its buffers; the test's */

uint64_t any64(void);
uint32_t below(uint32_t n);

int      is_float(hkt_type_t t);
int      is_small(hkt_type_t t); /* a float whose wide type is fp32 */
double   decode_float(hkt_type_t t, uint64_t code);
uint64_t encode_small(hkt_type_t t, double x);
uint64_t any_float(hkt_type_t t);
void     fill(hkt_type_t t, void *p, size_t count);

/* What the call must leave in a destination. */
void reference(const struct hkt_reduce *r, hkt_type_t t, hkt_op_t op, char *out);

/* Runs r, which is what c says, under every instruction set; each destination must become `want`. */
void run_all(const struct call *c, const struct hkt_reduce *r, const char *want);

/* Makes the buffers, random sources, the reference, and runs. */
void run_call(const struct call *c);

#endif
