/* topology.c -- the array of objects: how it grows, what may stand where, and walks over it. See topology.h.
 *
 * Every source of a machine goes through hkt_object_open(), so the limits and the rules of nesting are checked here, once, and what came of
 * it can be walked without a check.
 */
#include "topology.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/option.h"
#include "hocket.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const char *const hkt_object_name[HKT_OBJECT_KINDS] = {
    [HKT_OBJECT_MACHINE] = "machine", [HKT_OBJECT_HOST] = "host", [HKT_OBJECT_SOCKET] = "socket", [HKT_OBJECT_NUMA] = "numa",
    [HKT_OBJECT_CACHE] = "cache",     [HKT_OBJECT_CORE] = "core", [HKT_OBJECT_SWITCH] = "switch", [HKT_OBJECT_GPU] = "gpu",
    [HKT_OBJECT_NIC] = "nic",         [HKT_OBJECT_FABRIC] = "fabric"};

const char *const hkt_class_name[HKT_CLASSES] = {
    [HKT_CLASS_SELF] = "self", [HKT_CLASS_NVLINK] = "nvlink", [HKT_CLASS_XGMI] = "xgmi",     [HKT_CLASS_CACHE] = "cache",
    [HKT_CLASS_PCIE] = "pcie", [HKT_CLASS_NUMA] = "numa",     [HKT_CLASS_SOCKET] = "socket", [HKT_CLASS_HOST] = "host",
    [HKT_CLASS_RAIL] = "rail", [HKT_CLASS_LEAF] = "leaf",     [HKT_CLASS_NETWORK] = "network"};

/* Where nothing was measured. Only the order and the rough ratio matter: measured values take their place.
 *   cores     one cache line one way 40-75 ns below one L3, 220-350 ns between two, and a call of the library passes about four; copies of one
 *             core 10-17 GB/s (this library's own probes on Zen and Ice Lake servers)
 *   nvlink    latency of a step of NCCL's model (LL to Simple: 0.6 to 3.4 us); 370 of the 450 GB/s of an H100 reached in its tests
 *   xgmi      one of the seven links of an MI300X: 64 GB/s advertised, 48 reached (AMD)
 *   pcie      latency as above (1.0 to 5.7 us); 16 lanes of generation 4: 32 GB/s, about 25 reached; through the processor less
 *   rail ...  one-sided writes of a 400 Gb/s NIC: 2 us; 46 to 48 of 50 GB/s reached (nccl-tests); a switch more costs about 0.5 us */
const struct hkt_class_cost hkt_class_default[HKT_CLASSES] = {
    [HKT_CLASS_SELF]    = {150e-9, 20e-9, 20e9},
    [HKT_CLASS_NVLINK]  = {1.9e-6, 200e-9, 370e9},
    [HKT_CLASS_XGMI]    = {2.0e-6, 200e-9, 48e9},
    [HKT_CLASS_CACHE]   = {250e-9, 20e-9, 12e9},
    [HKT_CLASS_PCIE]    = {2.5e-6, 300e-9, 25e9},
    [HKT_CLASS_NUMA]    = {400e-9, 20e-9, 10e9},
    [HKT_CLASS_SOCKET]  = {600e-9, 20e-9, 9e9},
    [HKT_CLASS_HOST]    = {1.0e-6, 30e-9, 7e9},
    [HKT_CLASS_RAIL]    = {2.0e-6, 150e-9, 47e9},
    [HKT_CLASS_LEAF]    = {2.0e-6, 150e-9, 47e9},
    [HKT_CLASS_NETWORK] = {3.0e-6, 150e-9, 47e9},
};

static const double usual_nic = 25e9 / 8; /* whose speed the system does not know, as in virtual machines */

/* How much of what is advertised is reached, from the same sources. */
static const double reached[HKT_CLASSES] = {[HKT_CLASS_NVLINK] = 370.0 / 450, [HKT_CLASS_XGMI] = 48.0 / 64, [HKT_CLASS_PCIE] = 25.0 / 32,
                                            [HKT_CLASS_RAIL] = 47.0 / 50};

#define IN(kind) (1u << HKT_OBJECT_##kind)

/* What each kind may stand in. A memory node lies in a socket, or holds sockets where the system knows one memory for all. */
static const unsigned may_stand_in[HKT_OBJECT_KINDS] = {
    [HKT_OBJECT_HOST]   = IN(MACHINE),
    [HKT_OBJECT_SOCKET] = IN(HOST) | IN(NUMA),
    [HKT_OBJECT_NUMA]   = IN(HOST) | IN(SOCKET) | IN(CACHE),
    [HKT_OBJECT_CACHE]  = IN(HOST) | IN(SOCKET) | IN(NUMA) | IN(CACHE),
    [HKT_OBJECT_CORE]   = IN(HOST) | IN(SOCKET) | IN(NUMA) | IN(CACHE),
    [HKT_OBJECT_SWITCH] = IN(HOST) | IN(SOCKET) | IN(NUMA) | IN(SWITCH),
    [HKT_OBJECT_GPU]    = IN(HOST) | IN(SOCKET) | IN(NUMA) | IN(SWITCH),
    [HKT_OBJECT_NIC]    = IN(HOST) | IN(SOCKET) | IN(NUMA) | IN(SWITCH),
    [HKT_OBJECT_FABRIC] = IN(HOST),
};

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* Room for one more of `size` bytes in an array of `count`. */
static int grow(void **array, int count, int *room, size_t size)
{
    const int more = *room ? 2 * *room : 64;
    void     *larger;

    if (count < *room)
        return HKT_OK;
    larger = hkt_realloc(*array, (size_t)more * size);
    if (!larger)
        return HKT_ERR_MEMORY;
    *array = larger;
    *room  = more;
    return HKT_OK;
}

int hkt_topology_begin(struct hkt_topology *t)
{
    memset(t, 0, sizeof(*t));
    memcpy(t->cost, hkt_class_default, sizeof(t->cost));
    t->open = -1;
    return hkt_object_open(t, HKT_OBJECT_MACHINE);
}

_Static_assert(HKT_OBJECTS_MOST == 1048576 && HKT_OBJECTS_DEPTH == 16, "as the sentences below say");

const char *hkt_object_refused(const struct hkt_topology *t, enum hkt_object_kind kind)
{
    int depth = 0;

    if (t->open < 0)
        return kind == HKT_OBJECT_MACHINE && t->objects == 0 ? NULL : "there is one root, the machine";
    if (t->objects == HKT_OBJECTS_MOST)
        return "a machine has at most 1048576 objects (leave out the cores when it has that many hosts)";
    if (!(may_stand_in[kind] >> t->object[t->open].kind & 1))
        return "this kind of object has no place in the one around it";
    for (int o = t->open; o >= 0; o = t->object[o].parent, depth++)
        if (t->object[o].kind == kind && (kind == HKT_OBJECT_SOCKET || kind == HKT_OBJECT_NUMA))
            return "sockets and memory nodes do not lie within one another";
    return depth < HKT_OBJECTS_DEPTH ? NULL : "objects are nested more than 16 deep";
}

int hkt_object_open(struct hkt_topology *t, enum hkt_object_kind kind)
{
    const char *why = hkt_object_refused(t, kind);

    if (why)
        return hkt_fail(HKT_ERR_ARGUMENT, "a machine cannot have this %s: %s", hkt_object_name[kind], why);
    HKT_TRY(grow((void **)&t->object, t->objects, &t->objects_room, sizeof(*t->object)));
    if (kind == HKT_OBJECT_HOST)
        memset(t->counted + HKT_OBJECT_HOST + 1, 0, sizeof(t->counted) - (HKT_OBJECT_HOST + 1) * sizeof(t->counted[0]));
    t->object[t->objects] =
        (struct hkt_object){.kind = kind, .parent = t->open, .leaf = HKT_LEAF_UNKNOWN, .number = t->counted[kind]++};
    t->open = t->objects++;
    return t->open;
}

void hkt_object_close(struct hkt_topology *t)
{
    struct hkt_object *o = &t->object[t->open];

    o->end  = t->objects;
    t->open = o->parent;
}

static bool has_wires(enum hkt_object_kind kind)
{
    return kind == HKT_OBJECT_GPU || kind == HKT_OBJECT_FABRIC;
}

int hkt_gpu_link_add(struct hkt_topology *t, int a, int b, struct hkt_gpu_link w)
{
    w.a = a < b ? a : b;
    w.b = a < b ? b : a;
    if (a == b || !has_wires(t->object[a].kind) || !has_wires(t->object[b].kind) ||
        hkt_object_above(t, a, HKT_OBJECT_HOST) != hkt_object_above(t, b, HKT_OBJECT_HOST))
        return hkt_fail(HKT_ERR_ARGUMENT, "a link joins two GPUs of a host, or one and a fabric; not %s %d and %s %d",
                        hkt_object_name[t->object[a].kind], t->object[a].number, hkt_object_name[t->object[b].kind], t->object[b].number);
    if (w.class != HKT_CLASS_NVLINK && w.class != HKT_CLASS_XGMI)
        return hkt_fail(HKT_ERR_ARGUMENT, "a link between GPUs is of class nvlink or xgmi, not %s", hkt_class_name[w.class]);
    if (t->wires == HKT_WIRES_MOST)
        return hkt_fail(HKT_ERR_ARGUMENT, "a machine has at most %d links between GPUs", HKT_WIRES_MOST);
    HKT_TRY(grow((void **)&t->wire, t->wires, &t->wires_room, sizeof(*t->wire)));
    t->wire[t->wires++] = w;
    return HKT_OK;
}

static int by_ends(const void *x, const void *y)
{
    const struct hkt_gpu_link *a = x, *b = y;

    return a->a != b->a ? (a->a > b->a) - (a->a < b->a) : (a->b > b->b) - (a->b < b->b);
}

int hkt_topology_finish(struct hkt_topology *t)
{
    if (t->open != 0)
        return hkt_fail(HKT_ERR_INTERNAL, "a machine was finished while an object inside it was open");
    hkt_object_close(t);
    if (hkt_object_find(t, 0, HKT_OBJECT_HOST, 0) < 0)
        return hkt_fail(HKT_ERR_ARGUMENT, "a machine without a host");
    if (t->wires)
        qsort(t->wire, (size_t)t->wires, sizeof(*t->wire), by_ends);
    for (int w = 1; w < t->wires; w++)
        if (by_ends(&t->wire[w - 1], &t->wire[w]) == 0)
            return hkt_fail(HKT_ERR_ARGUMENT, "%s %d and %s %d are linked twice: give one link the bandwidth of all its lanes",
                            hkt_object_name[t->object[t->wire[w].a].kind], t->object[t->wire[w].a].number,
                            hkt_object_name[t->object[t->wire[w].b].kind], t->object[t->wire[w].b].number);
    return HKT_OK;
}

void hkt_topology_free(struct hkt_topology *t)
{
    hkt_free(t->object);
    hkt_free(t->wire);
    memset(t, 0, sizeof(*t));
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

int hkt_object_above(const struct hkt_topology *t, int object, enum hkt_object_kind kind)
{
    while (object >= 0 && t->object[object].kind != kind)
        object = t->object[object].parent;
    return object;
}

int hkt_object_common(const struct hkt_topology *t, int a, int b)
{
    while (a > b || t->object[a].end <= b) /* depth first: what holds b begins at or before it and ends after it */
        a = t->object[a].parent;
    return a;
}

int hkt_object_find(const struct hkt_topology *t, int in, enum hkt_object_kind kind, int number)
{
    const bool hosts = kind == HKT_OBJECT_HOST;

    for (int o = in; o < t->object[in].end; o = hosts && o != in ? t->object[o].end : o + 1)
        if (t->object[o].kind == kind && t->object[o].number == number)
            return o;
    return -1;
}

int hkt_object_count(const struct hkt_topology *t, int in, enum hkt_object_kind kind)
{
    int count = 0;

    for (int o = in; o < t->object[in].end; o++)
        count += t->object[o].kind == kind;
    return count;
}

bool hkt_objects_alike(const struct hkt_topology *t, int a, int b)
{
    const int size = t->object[a].end - a;

    if (t->object[b].end - b != size)
        return false;
    for (int i = 0; i < size; i++) {
        const struct hkt_object *x = &t->object[a + i], *y = &t->object[b + i];

        if (x->kind != y->kind || (i && x->parent - a != y->parent - b) || x->level != y->level || x->cpus != y->cpus ||
            x->slow != y->slow || x->bytes != y->bytes || x->bandwidth != y->bandwidth)
            return false;
    }
    return true;
}

const struct hkt_gpu_link *hkt_gpu_link_find(const struct hkt_topology *t, int x, int y)
{
    const int a = x < y ? x : y, b = x < y ? y : x;
    int       low = 0, high = t->wires;

    while (low < high) {
        const int              mid = (low + high) / 2;
        const struct hkt_gpu_link *w   = &t->wire[mid];

        if (w->a < a || (w->a == a && w->b < b))
            low = mid + 1;
        else
            high = mid;
    }
    return low < t->wires && t->wire[low].a == a && t->wire[low].b == b ? &t->wire[low] : NULL;
}

double hkt_gpu_link_bandwidth(const struct hkt_topology *t, const struct hkt_gpu_link *w)
{
    return w->bandwidth > 0 ? w->bandwidth * reached[w->class] : t->cost[w->class].bandwidth;
}

double hkt_port_bandwidth(const struct hkt_topology *t, int object)
{
    const struct hkt_object *o     = &t->object[object];
    const enum hkt_class     class = o->kind == HKT_OBJECT_NIC ? HKT_CLASS_RAIL : HKT_CLASS_PCIE;

    if (o->kind == HKT_OBJECT_NIC)
        return (o->bandwidth > 0 ? o->bandwidth : usual_nic) * reached[class];
    return o->bandwidth > 0 ? o->bandwidth * reached[class] : t->cost[class].bandwidth;
}

/* ---- from somewhere ---------------------------------------------------------------------------------------------- */

int hkt_topology_load(struct hkt_topology *t, const char *what)
{
    const char *c = what + strspn(what, " ");

    if (isdigit((unsigned char)*c)) { /* "8 gpus": a number, a space and a word */
        c += strspn(c, "0123456789");
        if (*c == ' ' && isalpha((unsigned char)c[strspn(c, " ")]))
            return hkt_topology_text(t, what);
    }
    return hkt_topology_file(t, what);
}

int hkt_topology_get(struct hkt_topology *t)
{
    const char *what = hkt_options()->machine;

    return what[0] ? hkt_topology_load(t, what) : hkt_topology_read(t);
}
