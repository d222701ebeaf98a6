/* dtype.h -- element types and operators: sizes, names, conversions, and the reduction kernels behind one function.
 *
 * The kernels exist for several instruction sets, compiled from one source; hkt_reduce_select() picks at run time. All give the
 * same bits (no fused multiply-add, no reassociation): tested. The numeric rule is written in docs/numbers.md.
 */
#ifndef HKT_DTYPE_H
#define HKT_DTYPE_H

#include "hocket.h"

#include <stdbool.h>
#include <stddef.h>

/* The wide type that partial sums are kept in: fp32 for the 8- and 16-bit floats, else the type itself; but for HKT_AVG of
 * integers, exact sums: int64/uint64 for 8 to 32 bits, __int128 (16 bytes) for 64 bits. */
size_t hkt_wide_size(hkt_type_t type, hkt_op_t op);

enum hkt_form {
    HKT_RAW,     /* an element of the type that is some rank's input: premultiplied on reading when the operator asks for it */
    HKT_PARTIAL, /* of the wide type */
    HKT_FINISHED /* of the type, final: reading it converts, nothing more (never premultiplied again) */
};

/* One call of a kernel: value[i] = fold of src[0..nsrc)[i] by the canonical tree; stored to every dst[0..ndst).
 * Any alignment of any pointer. A dst may be the same address as a src (in place), never overlap it otherwise. */
struct hkt_reduce {
    const void *const *src;
    void *const       *dst;
    const double      *scale;    /* per source, for HKT_PREMUL_SUM raw sources; else NULL */
    size_t             count;    /* elements */
    uint32_t           nsrc, ndst;
    uint32_t           divisor;  /* HKT_AVG: number of ranks; used when out is HKT_FINISHED */
    uint8_t            in, out;  /* enum hkt_form of all sources, of all destinations */
    bool               stream;   /* store with non-temporal stores; the callee fences before it returns */
};

typedef void hkt_reduce_fn(const struct hkt_reduce *r);

/* The kernel for a type and operator (HKT_PREMUL_SUM for any handle); never NULL for valid arguments. nsrc == 1 is allowed:
 * a conversion between forms; RAW/FINISHED to the same form of one source is a copy (hkt_copy_fn below is faster). */
hkt_reduce_fn *hkt_reduce_kernel(hkt_type_t type, hkt_op_t op);

/* One source to several destinations, bytes; stream as above. */
void hkt_copy_bytes(void *const *dst, uint32_t ndst, const void *src, size_t bytes, bool stream);

/* Chooses the instruction set for the kernels: "avx512", "avx2", "portable"; NULL: the best this machine has. Returns the name chosen, or NULL
 * when this machine or build lacks the one asked for (nothing changes then). Not thread-safe: at library start, and in tests. */
const char *hkt_reduce_select(const char *isa);
const char *hkt_reduce_isa(void); /* the one in use */

/* Scalar conversions, round to nearest even; the reference that the kernels are tested against. */
float    hkt_from_float16(uint16_t x);
uint16_t hkt_to_float16(float x);
float    hkt_from_bfloat16(uint16_t x);
uint16_t hkt_to_bfloat16(float x);
float    hkt_from_e4m3(uint8_t x);
uint8_t  hkt_to_e4m3(float x);
float    hkt_from_e5m2(uint8_t x);
uint8_t  hkt_to_e5m2(float x);

#endif
