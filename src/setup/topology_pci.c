/* topology_pci.c -- GPUs and NICs from sysfs: where they are plugged in, and how fast their ports are. See topology_read.h.
 *
 * The real path of a PCI device names every bridge above it. Devices are sorted by it, and where the ways of several part at a bridge that is
 * not the processor's own there is a switch.
 */
#include "topology_read.h"

#include "base/error.h"
#include "base/memory.h"
#include "hocket.h"
#include "setup/machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICES = 512 };

static bool read_text(char *text, size_t size, const char *format, va_list args)
{
    char    name[PATH_MAX], path[PATH_MAX + 64];
    ssize_t n;
    int     fd;

    vsnprintf(name, sizeof(name), format, args);
    snprintf(path, sizeof(path), "%.63s%s", hkt_machine_root, name);
    text[0] = 0;
    fd      = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    while ((n = read(fd, text, size - 1)) < 0 && errno == EINTR)
        continue;
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

bool hkt_sysfs_lines(char *text, size_t size, const char *format, ...)
{
    va_list args;
    bool    found;

    va_start(args, format);
    found = read_text(text, size, format, args);
    va_end(args);
    return found;
}

bool hkt_sysfs_text(char *text, size_t size, const char *format, ...)
{
    va_list args;
    bool    found;

    va_start(args, format);
    found = read_text(text, size, format, args);
    va_end(args);
    text[strcspn(text, "\n")] = 0;
    return found;
}

/* Whatever computes: 3D controllers, accelerators, and displays of those whose displays do. */
bool hkt_pci_is_gpu(unsigned class, unsigned vendor)
{
    return class == 0x0302 || class >> 8 == 0x12 || (class == 0x0300 && (vendor == 0x10de || vendor == 0x1002));
}

/* ---- NICs -------------------------------------------------------------------------------------------------------- */

bool hkt_nic_works(const char *name)
{
    char text[64], path[PATH_MAX];
    int  number = 0;

    for (int rdma = 0; rdma < 2; rdma++) {
        snprintf(path, sizeof(path), "%s/sys/class/%s/%.64s/device/physfn", hkt_machine_root, rdma ? "infiniband" : "net", name);
        if (access(path, F_OK) == 0)
            return false;
    }
    if (hkt_sysfs_text(text, sizeof(text), "/sys/class/infiniband/%.64s/ports/1/state", name))
        return sscanf(text, "%d", &number) == 1 && number == 4; /* active */
    return hkt_sysfs_text(text, sizeof(text), "/sys/class/net/%.64s/operstate", name) && strcmp(text, "down") != 0;
}

double hkt_nic_bandwidth(const char *name)
{
    char   text[64];
    double number = 0;

    if (hkt_sysfs_text(text, sizeof(text), "/sys/class/infiniband/%.64s/ports/1/rate", name)) /* "400 Gb/sec (4X NDR)" */
        return sscanf(text, "%lf", &number) == 1 && number > 0 && number < 1e6 ? number * 1e9 / 8 : 0;
    if (hkt_sysfs_text(text, sizeof(text), "/sys/class/net/%.64s/speed", name)) /* Mb/s, or -1 */
        return sscanf(text, "%lf", &number) == 1 && number > 0 && number < 1e9 ? number * 1e6 / 8 : 0;
    return 0;
}

/* The first entry of a folder of the device that can be a name; false: none. */
static bool entry(const char *device, const char *folder, char name[HKT_NAME_BYTES])
{
    char           path[PATH_MAX + 64];
    DIR           *dir;
    struct dirent *e;

    snprintf(path, sizeof(path), "%s/%s", device, folder);
    name[0] = 0;
    dir     = opendir(path);
    while (dir && (e = readdir(dir)))
        if (e->d_name[0] != '.' && (!name[0] || strcmp(e->d_name, name) < 0))
            (void)hkt_value_name(e->d_name, name);
    if (dir)
        closedir(dir);
    return name[0];
}

static bool nic_name(const char *device, char name[HKT_NAME_BYTES])
{
    char virtio[32];

    if (entry(device, "infiniband", name) || entry(device, "net", name))
        return true;
    for (int i = 0; i < 64; i++) { /* the network's folder is one level further down */
        snprintf(virtio, sizeof(virtio), "virtio%d/net", i);
        if (entry(device, virtio, name))
            return true;
    }
    return false;
}

/* ---- PCI --------------------------------------------------------------------------------------------------------- */

static unsigned long hexadecimal(const char *address, const char *file)
{
    char text[32];

    hkt_sysfs_text(text, sizeof(text), "/sys/bus/pci/devices/%s/%s", address, file);
    return strtoul(text, NULL, 16);
}

/* Bytes/s of the port as it is connected now: "16.0 GT/s PCIe" and the number of lanes, 128 of 130 bits being data (from 8 GT/s on). */
static double port_bandwidth(const char *address)
{
    char   speed[32], width[32];
    double transfers = 0;
    int    lanes     = 0;

    hkt_sysfs_text(speed, sizeof(speed), "/sys/bus/pci/devices/%s/current_link_speed", address);
    hkt_sysfs_text(width, sizeof(width), "/sys/bus/pci/devices/%s/current_link_width", address);
    if (sscanf(speed, "%lf", &transfers) != 1 || sscanf(width, "%d", &lanes) != 1 || transfers <= 0 || transfers > 1e3 || lanes < 1 || lanes > 32)
        return 0;
    return transfers * 1e9 / 8 * lanes * (transfers < 8 ? 0.8 : 128.0 / 130);
}

/* False: does not count. */
static bool look(const char *address, struct hkt_pci_device *d)
{
    const unsigned class = (unsigned)(hexadecimal(address, "class") >> 8), vendor = (unsigned)hexadecimal(address, "vendor");
    char           link[PATH_MAX], device[PATH_MAX], text[32];
    const char    *path;

    snprintf(link, sizeof(link), "%s/sys/bus/pci/devices/%s", hkt_machine_root, address);
    if ((!hkt_pci_is_gpu(class, vendor) && class >> 8 != 0x02) || !realpath(link, device))
        return false;
    path = strstr(device, "/devices/");
    path = path ? strstr(path, "/pci") : NULL;
    if (!path || strlen(path) >= sizeof(d->path))
        return false;
    *d = (struct hkt_pci_device){.kind = class >> 8 == 0x02 ? HKT_OBJECT_NIC : HKT_OBJECT_GPU, .numa = -1};
    snprintf(d->path, sizeof(d->path), "%s", path + 1);
    if (d->kind == HKT_OBJECT_NIC && (!nic_name(device, d->name) || !hkt_nic_works(d->name)))
        return false;
    d->bandwidth = d->kind == HKT_OBJECT_NIC ? hkt_nic_bandwidth(d->name) : port_bandwidth(address);
    if (hkt_sysfs_text(text, sizeof(text), "/sys/bus/pci/devices/%s/numa_node", address))
        d->numa = atoi(text);
    return true;
}

static int by_path(const void *x, const void *y)
{
    return strcmp(((const struct hkt_pci_device *)x)->path, ((const struct hkt_pci_device *)y)->path);
}

int hkt_pci_list(struct hkt_pci_device **list)
{
    char           path[PATH_MAX];
    DIR           *dir;
    struct dirent *e;
    int            n = 0;

    *list = hkt_alloc(DEVICES * sizeof(**list));
    if (!*list)
        return HKT_ERR_MEMORY;
    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices", hkt_machine_root);
    dir = opendir(path);
    while (dir && n < DEVICES && (e = readdir(dir)))
        if (e->d_name[0] != '.' && strlen(e->d_name) < HKT_NAME_BYTES)
            n += look(e->d_name, &(*list)[n]);
    if (dir)
        closedir(dir);
    qsort(*list, (size_t)n, sizeof(**list), by_path);
    return n;
}

/* Length of the path that all of the list share, up to a '/' (0: they do not even share the processor's port). */
static size_t shared(const struct hkt_pci_device *list, int count)
{
    const char *first = list[0].path, *last = list[count - 1].path; /* sorted: the two that differ most */
    size_t      n = 0, end = 0;

    for (; first[n] && first[n] == last[n]; n++)
        if (first[n] == '/')
            end = n;
    return end;
}

static int add(struct hkt_topology *t, const struct hkt_pci_device *d)
{
    const char *address = strrchr(d->path, '/');

    HKT_TRY(hkt_object_open(t, d->kind));
    snprintf(t->object[t->open].name, HKT_NAME_BYTES, "%s", d->name);
    snprintf(t->object[t->open].bus, HKT_NAME_BYTES, "%.31s", address ? address + 1 : d->path);
    t->object[t->open].bandwidth = d->bandwidth;
    hkt_object_close(t);
    return HKT_OK;
}

/* Devices that are neighbours in the list; as deep as there are bridges above one another. */
static int add_range(struct hkt_topology *t, const struct hkt_pci_device *list, int count)
{
    const size_t common = count ? shared(list, count) : 0;
    bool         here   = false;

    if (count < 2)
        return count ? add(t, list) : HKT_OK;
    if (memchr(list[0].path, '/', common) && !hkt_object_refused(t, HKT_OBJECT_SWITCH)) {
        const char *bridge = list[0].path + common;

        HKT_TRY(hkt_object_open(t, HKT_OBJECT_SWITCH));
        while (bridge[-1] != '/')
            bridge--;
        snprintf(t->object[t->open].bus, HKT_NAME_BYTES, "%.*s", (int)(list[0].path + common - bridge) & 31, bridge);
        here = true;
    }
    for (int i = 0, end; i < count; i = end) {
        const char *name = list[i].path + (common ? common + 1 : 0); /* what they differ in */

        for (end = i + 1; end < count && strncmp(list[end].path + (name - list[i].path), name, strcspn(name, "/")) == 0; end++)
            ;
        HKT_TRY(end - i < count ? add_range(t, list + i, end - i) : add(t, list + i));
    }
    if (here)
        hkt_object_close(t);
    return HKT_OK;
}

int hkt_pci_add(struct hkt_topology *t, const struct hkt_pci_device *list, int count, int numa)
{
    for (int i = 0, end; i < count; i = end) {
        for (end = i; end < count && list[end].numa == numa; end++)
            ;
        HKT_TRY(add_range(t, list + i, end - i));
        end += end == i;
    }
    return HKT_OK;
}
