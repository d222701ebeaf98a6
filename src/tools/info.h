/* info.h -- the parts of hkt-info: overview (info_machine.c, info_device.c), launcher (info_launcher.c), topology (info_topology.c, info_drawing.c),
 * algorithms and plans (info_plan.c), options (hkt-info.c). Each prints to stdout and returns the exit status. */
#ifndef HKT_INFO_H
#define HKT_INFO_H

#include "hocket.h"
#include "language/algorithm.h"
#include "setup/topology.h"

#include <stddef.h>

/* "8 B", "64 KiB", "1.5 MiB" */
const char *info_bytes(double bytes, char text[32]);

/* "350 ns", "1.2 us" */
const char *info_seconds(double seconds, char text[32]);

/* What --topology is asked for. */
struct info_topology {
    const char *machine;   /* a file or text as of HKT_MACHINE; NULL: as that says */
    const char *svg, *xml; /* where to; NULL: not */
    int         ranks;     /* 0: as many as there are GPUs or cores */
};

int info_machine(void);
void info_devices(void);
int info_launcher(void);
int info_topology(const struct info_topology *what);
int info_drawing(const struct hkt_topology *t, const char *path); /* as SVG; 0 or HKT_ERR_* */
int info_algorithms(const struct hkt_shape *shape, size_t bytes, hkt_order_t order);
int info_plan(const struct hkt_shape *shape, size_t bytes, hkt_order_t order);

#endif
