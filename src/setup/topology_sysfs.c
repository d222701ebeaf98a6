/* topology_sysfs.c -- processors, caches and memory nodes of this host from Linux's /sys. See topology_read.h.
 *
 * Every processor gets the numbers of its socket, memory node, caches and core; sorted by these they stand as in the tree, and a level opens
 * where its number changes.
 */
#include "topology_read.h"

#include "base/error.h"
#include "base/memory.h"
#include "hocket.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

enum { CPUS = 4096, NODES = 1024 };

/* From outside to inside. */
enum level { SOCKET, NODE, L3, L2, CORE, LEVELS };

static const enum hkt_object_kind kind_of[LEVELS] = {HKT_OBJECT_SOCKET, HKT_OBJECT_NUMA, HKT_OBJECT_CACHE, HKT_OBJECT_CACHE, HKT_OBJECT_CORE};

struct cpu {
    int      cpu;
    int      id[LEVELS];   /* of what it is in; -1: the system does not say */
    uint64_t size[LEVELS]; /* of caches */
    bool     slow;
};

struct host {
    struct hkt_topology   *t;
    struct cpu            *cpu;
    int                    cpus;
    struct hkt_pci_device *device;
    int                    devices;
    char                   nodes[1024]; /* memory nodes that there are, as a list */
};

/* The first number in a file of the processor; -1: there is none. */
static int number(const char *file, int cpu)
{
    char text[256];

    return hkt_sysfs_text(text, sizeof(text), "/sys/devices/system/cpu/cpu%d/%s", cpu, file) ? atoi(text) : -1;
}

/* Is the processor in a list such as "0-3,8"? */
static bool listed(const char *list, int cpu)
{
    while (*list >= '0' && *list <= '9') {
        char      *end;
        const long low = strtol(list, &end, 10), high = *end == '-' ? strtol(end + 1, &end, 10) : low;

        if (cpu >= low && cpu <= high)
            return true;
        list = end + (*end == ',');
    }
    return false;
}

static void find_caches(struct cpu *c)
{
    for (int i = 0; i < 8; i++) {
        char path[96], text[256];
        int  level, unit;

        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/", c->cpu, i);
        if (!hkt_sysfs_text(text, sizeof(text), "%slevel", path))
            break;
        level = atoi(text) == 3 ? L3 : atoi(text) == 2 ? L2 : -1;
        if (level < 0 || !hkt_sysfs_text(text, sizeof(text), "%stype", path) || text[0] == 'I')
            continue;
        if (hkt_sysfs_text(text, sizeof(text), "%sshared_cpu_list", path))
            c->id[level] = atoi(text);
        hkt_sysfs_text(text, sizeof(text), "%ssize", path);
        unit           = strchr(text, 'M') ? 20 : strchr(text, 'K') ? 10 : 0;
        c->size[level] = (uint64_t)strtoul(text, NULL, 10) << unit;
    }
}

static void find_cpu(struct cpu *c, int cpu, const char *slow)
{
    *c            = (struct cpu){.cpu = cpu, .id = {-1, -1, -1, -1, -1}, .slow = listed(slow, cpu)};
    c->id[SOCKET] = number("topology/physical_package_id", cpu);
    c->id[CORE]   = number("topology/core_cpus_list", cpu); /* the first of its threads */
    if (c->id[CORE] < 0)
        c->id[CORE] = number("topology/thread_siblings_list", cpu);
    if (c->id[CORE] < 0)
        c->id[CORE] = cpu;
    find_caches(c);
}

static void find_nodes(struct host *h)
{
    hkt_sysfs_text(h->nodes, sizeof(h->nodes), "/sys/devices/system/node/online");
    for (int n = 0; n < NODES; n++) {
        char list[4096];

        if (!listed(h->nodes, n) || !hkt_sysfs_text(list, sizeof(list), "/sys/devices/system/node/node%d/cpulist", n))
            continue;
        for (int i = 0; i < h->cpus; i++)
            if (listed(list, h->cpu[i].cpu))
                h->cpu[i].id[NODE] = n;
    }
}

static int by_ids(const void *x, const void *y)
{
    const struct cpu *a = x, *b = y;

    for (int l = 0; l < LEVELS; l++)
        if (a->id[l] != b->id[l])
            return a->id[l] < b->id[l] ? -1 : 1;
    return a->cpu - b->cpu;
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

static uint64_t node_memory(int node)
{
    char        text[256]; /* "Node 0 MemTotal:       14680064 kB" */
    const char *total;

    hkt_sysfs_lines(text, sizeof(text), "/sys/devices/system/node/node%d/meminfo", node);
    total = strstr(text, "MemTotal:");
    return total ? strtoull(total + 9, NULL, 10) * 1024 : 0;
}

static int open_level(struct host *h, int level, const struct cpu *c)
{
    struct hkt_object *o;

    HKT_TRY(hkt_object_open(h->t, kind_of[level]));
    o        = &h->t->object[h->t->open];
    o->level = level == L3 ? 3 : level == L2 ? 2 : 0;
    o->bytes = level == NODE ? node_memory(c->id[NODE]) : level == CORE ? 0 : c->size[level];
    o->slow  = level == CORE && c->slow;
    return HKT_OK;
}

/* The processors from `first` on that are of the same object at this level, and all that is in it. LEVELS calls deep. */
static int emit(struct host *h, int level, int first, int count)
{
    for (int i = first, end; i < first + count; i = end) {
        const struct cpu *c    = &h->cpu[i];
        const bool        here = level < LEVELS && c->id[level] >= 0 && !hkt_object_refused(h->t, kind_of[level]);

        for (end = i + 1; end < first + count && (level == LEVELS || h->cpu[end].id[level] == c->id[level]); end++)
            ;
        if (here)
            HKT_TRY(open_level(h, level, c));
        if (level < CORE)
            HKT_TRY(emit(h, level + 1, i, end - i));
        for (int k = i; here && level == CORE && k < end; k++) {
            struct hkt_object *o = &h->t->object[h->t->open];

            if (o->cpus < HKT_OBJECT_CPUS && h->cpu[k].cpu <= INT16_MAX)
                o->cpu[o->cpus++] = (int16_t)h->cpu[k].cpu;
        }
        if (here && level == NODE)
            HKT_TRY(hkt_pci_add(h->t, h->device, h->devices, c->id[NODE]));
        if (here)
            hkt_object_close(h->t);
    }
    return HKT_OK;
}

/* Memory nodes and devices that no processor is near to. */
static int emit_others(struct host *h)
{
    for (int n = -1; n < NODES; n++) {
        bool near = n >= 0 && !listed(h->nodes, n);

        for (int i = 0; i < h->cpus; i++)
            near = near || (n >= 0 && h->cpu[i].id[NODE] == n);
        if (near)
            continue;
        if (n >= 0) {
            HKT_TRY(hkt_object_open(h->t, HKT_OBJECT_NUMA));
            h->t->object[h->t->open].bytes = node_memory(n);
        }
        HKT_TRY(hkt_pci_add(h->t, h->device, h->devices, n));
        if (n >= 0)
            hkt_object_close(h->t);
    }
    return HKT_OK;
}

static int emit_host(struct host *h)
{
    struct utsname system;

    HKT_TRY(hkt_topology_begin(h->t));
    HKT_TRY(hkt_object_open(h->t, HKT_OBJECT_HOST));
    if (!uname(&system))
        (void)hkt_value_name(system.nodename, h->t->object[h->t->open].name);
    HKT_TRY(emit(h, SOCKET, 0, h->cpus));
    return emit_others(h);
}

int hkt_read_sysfs(struct hkt_topology *t)
{
    struct host h = {.t = t, .cpu = hkt_alloc(CPUS * sizeof(struct cpu))};
    char        online[4096], slow[4096];
    int         rc = h.cpu ? HKT_OK : HKT_ERR_MEMORY;

    memset(t, 0, sizeof(*t));
    if (!rc && !hkt_sysfs_text(online, sizeof(online), "/sys/devices/system/cpu/online"))
        snprintf(online, sizeof(online), "0");
    hkt_sysfs_text(slow, sizeof(slow), "/sys/devices/cpu_atom/cpus");
    for (int cpu = 0; !rc && cpu < CPUS; cpu++)
        if (listed(online, cpu))
            find_cpu(&h.cpu[h.cpus++], cpu, slow);
    if (!rc)
        rc = h.devices = hkt_pci_list(&h.device);
    if (rc >= 0) {
        find_nodes(&h);
        qsort(h.cpu, (size_t)h.cpus, sizeof(*h.cpu), by_ids);
        rc = emit_host(&h);
    }
    hkt_free(h.device);
    hkt_free(h.cpu);
    if (rc)
        hkt_topology_free(t);
    return rc;
}
