/* topology_nvml.h -- what topology_nvml.c needs of libnvidia-ml: its calls as pointers, so that a test can be the library. Every call returns 0
 * when it could do it. Layouts are those of the library's published interface. */
#ifndef HKT_TOPOLOGY_NVML_H
#define HKT_TOPOLOGY_NVML_H

#include "setup/topology.h"

struct hkt_nvml_pci {
    char     legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char     address[32];
};

struct hkt_nvml_memory {
    unsigned long long total, free, used;
};

struct hkt_nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *devices);
    int (*handle)(unsigned index, void **device);
    int (*pci)(void *device, struct hkt_nvml_pci *pci);
    int (*state)(void *device, unsigned link, unsigned *active);
    int (*remote)(void *device, unsigned link, struct hkt_nvml_pci *pci);
    int (*type)(void *device, unsigned link, unsigned *type);       /* may be NULL: 0 a GPU, 2 a switch */
    int (*version)(void *device, unsigned link, unsigned *version); /* may be NULL */
    int (*name)(void *device, char *name, unsigned size);           /* may be NULL */
    int (*memory)(void *device, struct hkt_nvml_memory *memory);    /* may be NULL */
};

/* Adds what the library knows to the GPUs of the host that is open. */
int hkt_nvml_links(struct hkt_topology *t, const struct hkt_nvml *nvml);

#endif
