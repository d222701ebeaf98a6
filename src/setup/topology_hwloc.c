/* topology_hwloc.c -- from hwloc's view of a machine, this one or a saved one, to ours. See topology_read.h.
 *
 * Packages, memory nodes, caches from the second level on, cores, PCI devices that are GPUs or NICs, and those PCI bridges below which there
 * are at least two of them: these share a way, and that is all that matters of a bridge. Groups, dies and the rest are passed through.
 */
#include "config.h"

#include "topology_read.h"

#include "base/error.h"
#include "hocket.h"

#ifndef HAVE_HWLOC

int hkt_topology_hwloc(struct hkt_topology *t, const char *xml, size_t size, const char *name)
{
    (void)t;
    (void)xml;
    (void)size;
    return hkt_fail(HKT_ERR_UNSUPPORTED, "%s was written by hwloc, and this build of Hocket cannot read that: configure it with hwloc", name);
}

int hkt_read_hwloc(struct hkt_topology *t)
{
    (void)t;
    return HKT_ERR_UNSUPPORTED;
}

#else

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>

struct walk {
    struct hkt_topology *t;
    bool                 live; /* of this host: sysfs can be asked about its devices */
};

static int convert(const struct walk *w, hwloc_obj_t object);

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static hwloc_obj_t named(hwloc_obj_t device, hwloc_obj_osdev_type_t type)
{
    hwloc_obj_t o = device->io_first_child;

    while (o && (o->type != HWLOC_OBJ_OS_DEVICE || o->attr->osdev.type != type))
        o = o->next_sibling;
    return o;
}

/* The name that a NIC goes by, RDMA's before the network's; NULL: the system does not use it. */
static const char *nic_name(hwloc_obj_t device)
{
    hwloc_obj_t o = named(device, HWLOC_OBJ_OSDEV_OPENFABRICS);

    if (!o)
        o = named(device, HWLOC_OBJ_OSDEV_NETWORK);
    return o ? o->name : NULL;
}

/* HKT_OBJECT_GPU, HKT_OBJECT_NIC, or HKT_OBJECT_KINDS for what does not count. */
static enum hkt_object_kind kind_of(const struct walk *w, hwloc_obj_t device)
{
    const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;

    if (hkt_pci_is_gpu(pci->class_id, pci->vendor_id))
        return HKT_OBJECT_GPU;
    if (pci->class_id >> 8 != 0x02 || !nic_name(device))
        return HKT_OBJECT_KINDS;
    return !w->live || hkt_nic_works(nic_name(device)) ? HKT_OBJECT_NIC : HKT_OBJECT_KINDS;
}

static void pci_address(hwloc_obj_t device, char bus[HKT_NAME_BYTES])
{
    const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;

    snprintf(bus, HKT_NAME_BYTES, "%04x:%02x:%02x.%x", (unsigned)pci->domain, (unsigned)pci->bus, (unsigned)pci->dev, (unsigned)pci->func);
}

static int take_device(const struct walk *w, hwloc_obj_t device)
{
    const enum hkt_object_kind kind = kind_of(w, device);
    const char                *name = kind == HKT_OBJECT_NIC ? nic_name(device) : hwloc_obj_get_info_by_name(device, "PCIDevice");
    struct hkt_object         *o;

    if (kind == HKT_OBJECT_KINDS)
        return HKT_OK;
    HKT_TRY(hkt_object_open(w->t, kind));
    o = &w->t->object[w->t->open];
    if (name)
        (void)hkt_value_name(name, o->name);
    pci_address(device, o->bus);
    if (kind == HKT_OBJECT_GPU && device->attr->pcidev.linkspeed > 0)
        o->bandwidth = (double)device->attr->pcidev.linkspeed * 1e9; /* GB/s of the data */
    hkt_object_close(w->t);
    return HKT_OK;
}

/* Devices that count at or below an I/O object, 2 standing for more. */
static int devices(const struct walk *w, hwloc_obj_t object)
{
    int count = object->type == HWLOC_OBJ_PCI_DEVICE && kind_of(w, object) != HKT_OBJECT_KINDS;

    for (hwloc_obj_t o = object->io_first_child; o && count < 2; o = o->next_sibling)
        count += devices(w, o);
    return count < 2 ? count : 2;
}

/* Is this the bridge where the ways of several devices part, and not the processor's own? */
static bool parts(const struct walk *w, hwloc_obj_t object)
{
    int branches = 0;

    if (object->type != HWLOC_OBJ_BRIDGE || object->attr->bridge.upstream_type != HWLOC_OBJ_BRIDGE_PCI)
        return false;
    for (hwloc_obj_t o = object->io_first_child; o; o = o->next_sibling)
        branches += devices(w, o) > 0;
    return branches > 1;
}

static int take_io(const struct walk *w, hwloc_obj_t object)
{
    const bool here = parts(w, object);

    if (object->type == HWLOC_OBJ_PCI_DEVICE)
        return take_device(w, object);
    if (here) {
        HKT_TRY(hkt_object_open(w->t, HKT_OBJECT_SWITCH));
        pci_address(object, w->t->object[w->t->open].bus);
    }
    for (hwloc_obj_t o = object->io_first_child; o; o = o->next_sibling)
        HKT_TRY(take_io(w, o));
    if (here)
        hkt_object_close(w->t);
    return HKT_OK;
}

/* ---- processors -------------------------------------------------------------------------------------------------- */

/* Cores of hybrid processors: those that are not of the kind that hwloc ranks as the fastest. */
static bool is_slow(hwloc_obj_t core)
{
    hwloc_topology_t topology = core->userdata; /* set by mark_cores() */
    const int        kinds    = topology ? hwloc_cpukinds_get_nr(topology, 0) : 0;
    const int        kind     = kinds > 1 ? hwloc_cpukinds_get_by_cpuset(topology, core->cpuset, 0) : -1;
    int              efficiency = -1;

    return kind >= 0 && kind < kinds - 1 && !hwloc_cpukinds_get_info(topology, (unsigned)kind, NULL, &efficiency, NULL, NULL, 0) &&
           efficiency >= 0;
}

static void mark_cores(hwloc_topology_t topology)
{
    for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core));)
        core->userdata = topology;
}

static int take_core(const struct walk *w, hwloc_obj_t core)
{
    struct hkt_object *o;
    unsigned           cpu;

    HKT_TRY(hkt_object_open(w->t, HKT_OBJECT_CORE));
    o       = &w->t->object[w->t->open];
    o->slow = core->type == HWLOC_OBJ_CORE && is_slow(core);
    hwloc_bitmap_foreach_begin(cpu, core->cpuset)
        if (o->cpus < HKT_OBJECT_CPUS && cpu <= INT16_MAX)
            o->cpu[o->cpus++] = (int16_t)cpu;
    hwloc_bitmap_foreach_end();
    hkt_object_close(w->t);
    return HKT_OK;
}

/* The kind that an object of hwloc becomes; HKT_OBJECT_KINDS: it is passed through. */
static enum hkt_object_kind become(hwloc_obj_t object)
{
    switch (object->type) {
    case HWLOC_OBJ_PACKAGE:
        return HKT_OBJECT_SOCKET;
    case HWLOC_OBJ_L2CACHE:
    case HWLOC_OBJ_L3CACHE:
    case HWLOC_OBJ_L4CACHE:
        return HKT_OBJECT_CACHE;
    default:
        return HKT_OBJECT_KINDS;
    }
}

static int take_numa(const struct walk *w, hwloc_obj_t node)
{
    HKT_TRY(hkt_object_open(w->t, HKT_OBJECT_NUMA));
    w->t->object[w->t->open].bytes = node->attr->numanode.local_memory;
    return HKT_OK;
}

/* What lies in an object. The first memory node there holds the rest, others (HBM, CXL) stand beside it. */
static int take_content(const struct walk *w, hwloc_obj_t object)
{
    hwloc_obj_t memory = object->memory_first_child;
    bool        in     = false;

    while (memory && memory->type != HWLOC_OBJ_NUMANODE) /* a cache of memory's side */
        memory = memory->memory_first_child;
    for (hwloc_obj_t node = memory ? memory->next_sibling : NULL; node; node = node->next_sibling)
        if (node->type == HWLOC_OBJ_NUMANODE && !hkt_object_refused(w->t, HKT_OBJECT_NUMA)) {
            HKT_TRY(take_numa(w, node));
            hkt_object_close(w->t);
        }
    if (memory && !hkt_object_refused(w->t, HKT_OBJECT_NUMA)) {
        HKT_TRY(take_numa(w, memory));
        in = true;
    }
    for (hwloc_obj_t o = object->first_child; o; o = o->next_sibling)
        HKT_TRY(convert(w, o));
    for (hwloc_obj_t o = object->io_first_child; o; o = o->next_sibling)
        HKT_TRY(take_io(w, o));
    if (in)
        hkt_object_close(w->t);
    return HKT_OK;
}

/* As deep as hwloc's tree, some ten levels. */
static int convert(const struct walk *w, hwloc_obj_t object)
{
    const enum hkt_object_kind kind = become(object);
    const bool                 here = kind != HKT_OBJECT_KINDS && !hkt_object_refused(w->t, kind);
    const char                *name = hwloc_obj_get_info_by_name(object, "CPUModel");

    if (object->type == HWLOC_OBJ_CORE || object->type == HWLOC_OBJ_PU)
        return take_core(w, object);
    if (here) {
        HKT_TRY(hkt_object_open(w->t, kind));
        if (kind == HKT_OBJECT_CACHE) {
            w->t->object[w->t->open].level = (int)object->attr->cache.depth;
            w->t->object[w->t->open].bytes = object->attr->cache.size;
        } else if (name)
            (void)hkt_value_name(name, w->t->object[w->t->open].name);
    }
    HKT_TRY(take_content(w, object));
    if (here)
        hkt_object_close(w->t);
    return HKT_OK;
}

/* ---- from this host or a file ------------------------------------------------------------------------------------ */

/* The host stays open. */
static int take_host(const struct walk *w, hwloc_topology_t topology)
{
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    const char *name = hwloc_obj_get_info_by_name(root, "HostName");

    mark_cores(topology);
    HKT_TRY(hkt_topology_begin(w->t));
    HKT_TRY(hkt_object_open(w->t, HKT_OBJECT_HOST));
    if (name)
        (void)hkt_value_name(name, w->t->object[w->t->open].name);
    return take_content(w, root);
}

static int load(struct walk w, const char *xml, size_t size)
{
    hwloc_topology_t topology;
    int              rc = HKT_ERR_UNSUPPORTED;

    if (hwloc_topology_init(&topology))
        return rc;
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    hwloc_topology_set_icache_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    if ((!xml || (size < INT32_MAX && !hwloc_topology_set_xmlbuffer(topology, xml, (int)size + 1))) && !hwloc_topology_load(topology))
        rc = take_host(&w, topology);
    hwloc_topology_destroy(topology);
    if (rc)
        hkt_topology_free(w.t);
    return rc;
}

int hkt_read_hwloc(struct hkt_topology *t)
{
    return load((struct walk){t, true}, NULL, 0);
}

int hkt_topology_hwloc(struct hkt_topology *t, const char *xml, size_t size, const char *name)
{
    int rc = load((struct walk){t, false}, xml, size);

    if (rc == HKT_ERR_UNSUPPORTED)
        return hkt_fail(HKT_ERR_ARGUMENT, "%s looks like hwloc's XML, but hwloc %x cannot read it", name, hwloc_get_api_version());
    if (!rc) {
        hkt_object_close(t);
        rc = hkt_topology_finish(t);
    }
    if (rc)
        hkt_topology_free(t);
    return rc;
}

#endif
