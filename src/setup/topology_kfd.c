/* topology_kfd.c -- links between AMD's GPUs, as their driver lists them in /sys/class/kfd. See topology_read.h.
 *
 * A node there is a processor or a GPU (with a PCI address in location_id and domain); its io_links say what kind of link goes to which
 * node, 11 being xGMI, and how many MB/s it has.
 */
#include "topology_read.h"

#include "base/error.h"
#include "hocket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 256, LINKS = 64, XGMI = 11, PROPERTIES = 4096 };

/* The number behind `name` at the beginning of a line; 0: there is none. */
static unsigned long long property(const char *text, const char *name)
{
    const size_t n = strlen(name);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) == 0 && line[n] == ' ')
            return strtoull(line + n, NULL, 10);
    }
    return 0;
}

/* The GPU that a node is; -1: none. Location: bus, device and function as in PCI's requester id. */
static int gpu_of(const struct hkt_topology *t, int node)
{
    char               text[PROPERTIES];
    unsigned long long location;

    if (!hkt_sysfs_lines(text, sizeof(text), "/sys/class/kfd/kfd/topology/nodes/%d/properties", node) || !property(text, "simd_count"))
        return -1;
    location = property(text, "location_id");
    return hkt_gpu_at(t, (unsigned)property(text, "domain"), (unsigned)(location >> 8 & 0xff), (unsigned)(location >> 3 & 0x1f));
}

static int links_of(struct hkt_topology *t, const int gpu[NODES], int node)
{
    char text[PROPERTIES];

    for (int l = 0; l < LINKS; l++) {
        struct hkt_gpu_link    w = {.class = HKT_CLASS_XGMI};
        unsigned long long to;

        if (!hkt_sysfs_lines(text, sizeof(text), "/sys/class/kfd/kfd/topology/nodes/%d/io_links/%d/properties", node, l))
            break;
        to = property(text, "node_to");
        if (property(text, "type") != XGMI || to >= NODES || gpu[to] <= gpu[node]) /* each once, from the one before; gpu of a processor: -1 */
            continue;
        w.bandwidth = (double)property(text, "max_bandwidth") * 1e6;
        if (w.bandwidth > 0x1p60)
            w.bandwidth = 0;
        HKT_TRY(hkt_gpu_link_add(t, gpu[node], gpu[to], w));
    }
    return HKT_OK;
}

int hkt_read_kfd(struct hkt_topology *t)
{
    int gpu[NODES];

    for (int n = 0; n < NODES; n++)
        gpu[n] = gpu_of(t, n);
    for (int n = 0; n < NODES; n++)
        if (gpu[n] >= 0)
            HKT_TRY(links_of(t, gpu, n));
    return HKT_OK;
}
