/* topology_read.c -- this host as a machine. See topology.h.
 *
 * Processors and devices come from sysfs, and from hwloc where sysfs has no processors to show. Both know the same on Linux, but hwloc loads
 * its plugins and theirs (graphics, drivers) into the process of the user and takes fifteen times as long (12 ms against 0.8 on two cores).
 * Links between GPUs come from the drivers: libnvidia-ml, opened if it is there, and AMD's tables in sysfs. Each may be missing: a host of which
 * nothing is known is a host with nothing in it, and ranks there are at the same distance from one another.
 */
#include "topology_read.h"

#include "base/error.h"
#include "hocket.h"
#include "setup/machine.h"

#include <stdlib.h>
#include <string.h>

int hkt_gpu_at(const struct hkt_topology *t, unsigned domain, unsigned bus, unsigned device)
{
    for (int o = t->open; o < t->objects; o++) {
        char         *end;
        unsigned long is[3] = {0};

        if (t->object[o].kind != HKT_OBJECT_GPU || !t->object[o].bus[0])
            continue;
        is[0] = strtoul(t->object[o].bus, &end, 16);
        for (int i = 1; i < 3 && *end == ':'; i++)
            is[i] = strtoul(end + 1, &end, 16);
        if (is[0] == domain && is[1] == bus && is[2] == device)
            return o;
    }
    return -1;
}

static int read_processors(struct hkt_topology *t)
{
    struct hkt_topology better;
    const int           rc = hkt_read_sysfs(t);

    if (rc || t->counted[HKT_OBJECT_CORE] || hkt_machine_root[0] || hkt_read_hwloc(&better))
        return rc;
    hkt_topology_free(t);
    *t = better;
    return HKT_OK;
}

int hkt_topology_read(struct hkt_topology *t)
{
    int rc = read_processors(t);

    for (int o = 0; !rc && o < t->objects; o++)
        if (t->object[o].kind == HKT_OBJECT_NIC && !(t->object[o].bandwidth > 0))
            t->object[o].bandwidth = hkt_nic_bandwidth(t->object[o].name);
    if (!rc && !hkt_machine_root[0]) /* the driver knows this host only */
        rc = hkt_read_nvml(t);
    if (!rc)
        rc = hkt_read_kfd(t);
    if (!rc) {
        hkt_object_close(t);
        rc = hkt_topology_finish(t);
    }
    if (rc)
        hkt_topology_free(t);
    return rc;
}
