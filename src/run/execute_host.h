/* execute_host.h -- the engine for host memory: runs a plan's bound steps. */
#ifndef HKT_EXECUTE_HOST_H
#define HKT_EXECUTE_HOST_H

#include "run/operation.h"

/* Runs or goes on with op->plan. 0, HKT_IN_PROGRESS, or an error. */
int hkt_execute_host(struct hkt_operation *op);

#endif
