/* topology_read.h -- the sources of hkt_topology_read(), each in a file of its own and each able to be missing. See topology_read.c. */
#ifndef HKT_TOPOLOGY_READ_H
#define HKT_TOPOLOGY_READ_H

#include "setup/topology.h"
#include "setup/topology_value.h"

/* ---- topology_hwloc.c: HKT_ERR_UNSUPPORTED in a build without hwloc ------------------------------------------------------------ */

/* A machine from hwloc's XML; `xml` ends with a 0. */
int hkt_topology_hwloc(struct hkt_topology *t, const char *xml, size_t size, const char *name);

/* This host, as hwloc sees it. The host stays open, for what follows; on an error nothing is left. */
int hkt_read_hwloc(struct hkt_topology *t);

/* ---- topology_sysfs.c: as Linux shows it below hkt_machine_root ------------------------------------------------------------------ */

int hkt_read_sysfs(struct hkt_topology *t); /* as hkt_read_hwloc() */

/* ---- topology_pci.c: devices ----------------------------------------------------------------------------------------------------- */

struct hkt_pci_device {
    enum hkt_object_kind kind;
    int                  numa;      /* number of the memory node in the system; -1: unknown */
    char                 path[200]; /* "pci0000:00/0000:00:01.0/0000:01:00.0": all bridges on the way */
    char                 name[HKT_NAME_BYTES];
    double               bandwidth; /* of a GPU's port */
};

/* The GPUs and working NICs of this host by path. Their number, or HKT_ERR_MEMORY; the caller frees *list. */
int hkt_pci_list(struct hkt_pci_device **list);

/* Adds those of the list of this memory node to the object that is open, with the switches above them. */
int hkt_pci_add(struct hkt_topology *t, const struct hkt_pci_device *list, int count, int numa);

bool   hkt_pci_is_gpu(unsigned class, unsigned vendor); /* made to compute, no screen of a server */
bool   hkt_nic_works(const char *name);                 /* "mlx5_0", "eth0": has a link and is no virtual function beside its card */
double hkt_nic_bandwidth(const char *name);             /* bytes/s; 0: unknown */

/* ---- links between GPUs of the open host; none is no error ----------------------------------------------------------------------- */

int hkt_read_nvml(struct hkt_topology *t); /* topology_nvml.c: names, memory, NVLink and NVSwitch by libnvidia-ml, opened at run time */
int hkt_read_kfd(struct hkt_topology *t);  /* topology_kfd.c: AMD's links from sysfs */

/* The GPU of the open host at this PCI address; -1: none. */
int hkt_gpu_at(const struct hkt_topology *t, unsigned domain, unsigned bus, unsigned device);

/* Read the beginning of a small file below hkt_machine_root, all of it or the first line; "" and false when that cannot be. */
bool hkt_sysfs_lines(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool hkt_sysfs_text(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
