/* info.h -- the parts of hkt-info: overview (info_machine.c), launcher (info_launcher.c), topology (info_topology.c), algorithms and plans
 * (info_plan.c), options (hkt-info.c). Each prints to stdout and returns the exit status. */
#ifndef HKT_INFO_H
#define HKT_INFO_H

#include "hocket.h"
#include "language/algorithm.h"

#include <stddef.h>

/* "8 B", "64 KiB", "1.5 MiB" */
const char *info_bytes(double bytes, char text[32]);

/* "350 ns", "1.2 us" */
const char *info_seconds(double seconds, char text[32]);

int info_machine(void);
int info_launcher(void);
int info_topology(const char *svg); /* drawn there, too, when not NULL */
int info_algorithms(const struct hkt_shape *shape, size_t bytes, hkt_order_t order);
int info_plan(const struct hkt_shape *shape, size_t bytes, hkt_order_t order);

#endif
