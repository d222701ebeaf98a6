/* execute_host.h -- the engine for host memory: runs a plan's bound steps. execute_host.c has the steps, execute_wire.c their messages from and to
 * other hosts.
 */
#ifndef HKT_EXECUTE_HOST_H
#define HKT_EXECUTE_HOST_H

#include "run/operation.h"

/* Runs or goes on with op->plan. 0, HKT_IN_PROGRESS, or an error. */
int hkt_execute_host(struct hkt_operation *op);

/* Where a message of the current slice leaves from or lands, and its bytes. */
char *hkt_execute_place(const struct hkt_operation *op, const struct hkt_wire_place *p, size_t *bytes);

/* ---- execute_wire.c; all can be called again after HKT_IN_PROGRESS ---- */

int  hkt_execute_slice(struct hkt_operation *op);             /* begins a slice: what left two slices ago is gone */
int  hkt_execute_name(struct hkt_operation *op, bool waited); /* names all landings that can be; waited: the step's waits are over */
int  hkt_execute_arrivals(struct hkt_operation *op, const struct hkt_bound_step *st);
int  hkt_execute_sends(struct hkt_operation *op, const struct hkt_bound_step *st);
int  hkt_execute_end(struct hkt_operation *op); /* all has left */

#endif
