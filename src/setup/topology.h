/* topology.h -- a machine as data: objects in a tree (hosts, sockets, memory nodes, caches, cores, PCIe switches, GPUs, NICs), the links
 * between GPUs, and what each class of link costs.
 *
 * The tree comes from this machine (topology_read.c, with what hwloc, sysfs and NVML know), from a file (topology_xml.c) or from a line of
 * text (topology_text.c), and is the same afterwards: an array of objects in depth-first order, with indices instead of pointers. Nothing
 * of where it came from is kept, so a machine can be saved, sent, compared, and planned for without having it.
 *
 * What collectives want to know of it is in graph.h.
 */
#ifndef HKT_TOPOLOGY_H
#define HKT_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hkt_object_kind {
    HKT_OBJECT_MACHINE, /* the root: all hosts */
    HKT_OBJECT_HOST,
    HKT_OBJECT_SOCKET,
    HKT_OBJECT_NUMA,   /* a memory node and what is nearest to it */
    HKT_OBJECT_CACHE,
    HKT_OBJECT_CORE,
    HKT_OBJECT_SWITCH, /* of PCIe */
    HKT_OBJECT_GPU,
    HKT_OBJECT_NIC,
    HKT_OBJECT_FABRIC, /* a switch of GPU links */
    HKT_OBJECT_KINDS
};

/* What the way between two objects is, from near to far: named for the nearest thing that they share. */
enum hkt_class {
    HKT_CLASS_SELF,    /* the same object */
    HKT_CLASS_NVLINK,  /* GPU links, direct or by a switch of such links */
    HKT_CLASS_XGMI,
    HKT_CLASS_CACHE,
    HKT_CLASS_PCIE,    /* a switch below the root */
    HKT_CLASS_NUMA,    /* a memory node */
    HKT_CLASS_SOCKET,  /* a socket, but not a memory node */
    HKT_CLASS_HOST,    /* only the host: the way crosses the link between sockets */
    HKT_CLASS_RAIL,    /* another host: NICs of the same number, below one leaf switch or with unknown ones */
    HKT_CLASS_LEAF,    /* another host: NICs of different numbers below one leaf switch */
    HKT_CLASS_NETWORK, /* another host, by way of the upper switches */
    HKT_CLASSES
};

enum {
    HKT_NAME_BYTES    = 32,
    HKT_OBJECT_CPUS   = 8,       /* hardware threads of a core */
    HKT_OBJECTS_MOST  = 1 << 20, /* of a machine, all hosts together */
    HKT_WIRES_MOST    = 1 << 20,
    HKT_OBJECTS_DEPTH = 16,
    HKT_LEAF_UNKNOWN  = -1
};

/* Fields that a kind does not have are 0 (leaf: HKT_LEAF_UNKNOWN). */
struct hkt_object {
    enum hkt_object_kind kind;
    int                  parent;               /* index of an object; -1: the root */
    int                  end;                  /* the objects below are those from the next one up to here */
    int                  number;               /* among those of its kind in its host; of a host: in the machine */
    int                  level;                /* cache: 1, 2, 3 */
    int                  leaf;                 /* NIC: the leaf switch that it is plugged into */
    int                  cpus;                 /* core: hardware threads */
    int16_t              cpu[HKT_OBJECT_CPUS]; /* their numbers in the system */
    bool                 slow;                 /* core: not of the fastest kind */
    uint64_t             bytes;                /* memory of a NUMA node or GPU, size of a cache */
    double               bandwidth;            /* advertised, of the port of a GPU, NIC or switch, bytes/s each way; 0: unknown */
    char                 name[HKT_NAME_BYTES];
    char                 bus[HKT_NAME_BYTES];  /* PCI address, as in sysfs */
};

/* Between two GPUs, or a GPU and a fabric, of one host. */
struct hkt_gpu_link {
    int            a, b;      /* indices of objects, a < b */
    enum hkt_class class;     /* HKT_CLASS_NVLINK, HKT_CLASS_XGMI */
    double         bandwidth; /* advertised, of all its lanes, bytes/s each way; 0: unknown */
};

/* One message over a link. */
struct hkt_class_cost {
    double latency;   /* seconds */
    double gap;       /* seconds between two messages */
    double bandwidth; /* bytes/s, one way */
};

struct hkt_topology {
    struct hkt_object    *object;
    int                   objects, objects_room;
    struct hkt_gpu_link      *wire;
    int                   wires, wires_room;
    struct hkt_class_cost cost[HKT_CLASSES]; /* hkt_class_default[] at first; what was measured may be put in its place */
    int                   open;                      /* while it is made: the object that the next one goes into; -1 */
    int                   counted[HKT_OBJECT_KINDS]; /* likewise: objects of the host so far, hosts of the machine */
};

extern const char *const           hkt_object_name[HKT_OBJECT_KINDS]; /* "machine", "host", ... */
extern const char *const           hkt_class_name[HKT_CLASSES];       /* "self", "nvlink", ... */
extern const struct hkt_class_cost hkt_class_default[HKT_CLASSES];

/* ---- a machine from somewhere: 0 or HKT_ERR_* with a sentence; then `t` holds nothing. hkt_topology_free() it. ----------------- */

int hkt_topology_read(struct hkt_topology *t);                   /* this host: processors, memory, devices that work */
int hkt_topology_file(struct hkt_topology *t, const char *path); /* XML: ours, or hwloc's where this build has hwloc */
int hkt_topology_text(struct hkt_topology *t, const char *text); /* "2 hosts; 8 gpus nvswitch; 8 nics 400Gb/s": docs/topology.md */
int hkt_topology_load(struct hkt_topology *t, const char *what); /* a text when it begins as one, else a file */
int hkt_topology_get(struct hkt_topology *t);                    /* as HKT_MACHINE says, else this host */

/* Our XML from memory; `name` stands in sentences. */
int hkt_topology_parse(struct hkt_topology *t, const char *xml, size_t size, const char *name);

/* Writes the XML. What was written and is read again gives the same bytes. `path` is replaced at once or not at all. */
int hkt_topology_save(const struct hkt_topology *t, const char *path);

/* Puts leaf switches into the NICs, from a table of lines "HOST NIC SWITCH" ('#': a comment): names or numbers of host and NIC, '*' for all;
 * switches are numbered in the order they appear in. Later lines win. `name` stands in sentences. */
int hkt_topology_leaves(struct hkt_topology *t, const char *table, const char *name);

void hkt_topology_free(struct hkt_topology *t); /* of one that holds nothing, too */

/* ---- making one: objects are opened and closed as parentheses, devices before the wires between them -------------------------- */

int  hkt_topology_begin(struct hkt_topology *t);                            /* empty, and the root open */
int  hkt_object_open(struct hkt_topology *t, enum hkt_object_kind kind);    /* its index, or HKT_ERR_* */
void hkt_object_close(struct hkt_topology *t);                              /* the last one that is open */
int  hkt_gpu_link_add(struct hkt_topology *t, int a, int b, struct hkt_gpu_link w); /* w: its class and bandwidth */
int  hkt_topology_finish(struct hkt_topology *t);                           /* closes the root, checks what only the whole shows */

/* Why hkt_object_open() would refuse the kind now; NULL: it would not. */
const char *hkt_object_refused(const struct hkt_topology *t, enum hkt_object_kind kind);

/* ---- looking at one ----------------------------------------------------------------------------------------------------------- */

int hkt_object_above(const struct hkt_topology *t, int object, enum hkt_object_kind kind); /* itself or the nearest around it; -1 */
int hkt_object_common(const struct hkt_topology *t, int a, int b);                         /* the innermost that holds both */
int hkt_object_find(const struct hkt_topology *t, int in, enum hkt_object_kind kind, int number); /* -1: none. `in`: a host or the root */
int hkt_object_count(const struct hkt_topology *t, int in, enum hkt_object_kind kind);     /* below `in` */

/* Do two objects and all below them differ in nothing but numbers, names and addresses? */
bool hkt_objects_alike(const struct hkt_topology *t, int a, int b);

const struct hkt_gpu_link *hkt_gpu_link_find(const struct hkt_topology *t, int a, int b); /* the link between two objects; NULL: none */

/* Bytes/s one way that are reached over a link, or through the port of a GPU, NIC or switch: a part of what is advertised, or what is usual. */
double hkt_gpu_link_bandwidth(const struct hkt_topology *t, const struct hkt_gpu_link *w);
double hkt_port_bandwidth(const struct hkt_topology *t, int object);

#endif
