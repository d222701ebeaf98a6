/* kernel.h -- which kernel serves a type and an operator, under what name it is in the library's device code. Host side. */
#ifndef HKT_DEVICE_KERNEL_H
#define HKT_DEVICE_KERNEL_H

#include "device/kernels/segment.h"
#include "language/dtype.h"

/* The kernels' names, for cuLibraryGetKernel(). Several types share one: signed and unsigned sums, min and max of one width. Never NULL
 * for valid arguments (HKT_PREMUL_SUM for any handle). */
const char *hkt_kernel_move(hkt_type_t type, hkt_op_t op);
const char *hkt_kernel_low(hkt_type_t type, hkt_op_t op); /* HKT_AVG and premultiplied sums too */
#define HKT_KERNEL_COPY "hkt_copy" /* one source, bytes, no change; the same arguments */

/* hkt_kernel_arguments.order for the operator. */
uint64_t hkt_kernel_order(hkt_type_t type, hkt_op_t op);

/* hkt_kernel_segment.scale for a scalar of a premultiplied sum. */
uint64_t hkt_kernel_scale(hkt_type_t type, double scalar);

/* All names, ends with NULL; for whoever loads them all, and for tests. */
extern const char *const hkt_kernel_names[];

#endif
