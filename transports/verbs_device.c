/* verbs_device.c -- the library, the devices, and which of the addresses (GIDs) of their ports are offered to other hosts.
 *
 * A RoCE port has many addresses, and the wrong one gives silence, not an error: RoCE v1 beside v2, link-local ones, those of interfaces that are gone. The rule:
 * RoCE v2 with an IPv4 address, then with a routed IPv6 one, then link-local, then v1; of two ports those that are in one subnet; and
 * only what the device itself takes as an address to send to (an address handle is made). Whether packets arrive is then seen
 * when a path is used: one that stays silent is given up for the next best pair.
 */
#include "transports/verbs.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

struct verbs_library verbs;
struct verbs_device  verbs_devices[VERBS_DEVICES];
int                  verbs_ndevices;
struct verbs_end     verbs_ends[VERBS_ENDS];
int                  verbs_nends;

enum { ENTRIES = 4096 /* of a completion queue at first */, ROCE_CLASS = 106 /* DSCP 26, what switches are mostly set up to carry without loss */ };

static int load(void)
{
    void *handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    bool  all    = true;

    if (!handle)
        return hkt_fail(HKT_ERR_UNSUPPORTED, "cannot load libibverbs: %s; install libibverbs1 and ibverbs-providers or choose another HKT_NETWORK",
                        dlerror());
#define FIND(name)                                                                                                                                 \
    *(void **)(void *)&verbs.name = dlsym(handle, #name);                                                                                         \
    all &= verbs.name != NULL;
    VERBS_FUNCTIONS(FIND)
#undef FIND
    *(void **)(void *)&verbs.get_device_list = dlsym(handle, "ibv_get_device_list");
    *(void **)(void *)&verbs.reg_mr          = dlsym(handle, "ibv_reg_mr");
    *(void **)(void *)&verbs.query_port      = dlsym(handle, "ibv_query_port");
    *(void **)(void *)&verbs.reg_dmabuf_mr   = dlsym(handle, "ibv_reg_dmabuf_mr");
    all &= verbs.reg_mr && verbs.query_port;
    return all ? 0 : hkt_fail(HKT_ERR_UNSUPPORTED, "the libibverbs that is installed is too old (rdma-core 32 is needed)");
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

int verbs_kind_of(const union ibv_gid *gid, uint32_t type)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    if (type == IBV_GID_TYPE_ROCE_V1)
        return VERBS_V1;
    if (memcmp(gid->raw, mapped, sizeof(mapped)) == 0)
        return VERBS_V2_IPV4;
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80 ? VERBS_V2_LINK : VERBS_V2_IPV6;
}

static bool same_subnet(const struct verbs_end *a, const struct verbs_end *b)
{
    const int bits = a->prefix + (a->kind == VERBS_V2_IPV4 ? 96 : 0), whole = bits / 8, rest = bits % 8;

    if (!a->prefix || a->prefix != b->prefix || bits > 128)
        return false;
    return memcmp(a->gid, b->gid, (size_t)whole) == 0 && (!rest || (a->gid[whole] ^ b->gid[whole]) >> (8 - rest) == 0);
}

uint32_t verbs_fitness(const struct verbs_end *a, const struct verbs_end *b)
{
    if (a->kind != b->kind)
        return 0;
    if (a->kind == VERBS_IB)
        return memcmp(a->gid, b->gid, 8) == 0 ? 400 + (a->index == b->index) : 0; /* another fabric */
    return (uint32_t)(VERBS_V1 + 1 - a->kind) * 10 + (same_subnet(a, b) ? 100 : 0) + (a->device == b->device) * 2 + (a->port == b->port);
}

/* How many bits of the address are its subnet, as this host's interfaces say. */
static uint8_t prefix_of(const struct verbs_end *e)
{
    struct ifaddrs *list = NULL;
    uint8_t         bits = e->kind == VERBS_V2_LINK ? 64 : 0;

    if (e->kind == VERBS_IB || e->kind == VERBS_V1 || getifaddrs(&list))
        return 0;
    for (const struct ifaddrs *i = list; i && !bits; i = i->ifa_next) {
        const uint8_t *address, *mask;
        const size_t   size = e->kind == VERBS_V2_IPV4 ? 4 : 16;

        if (!i->ifa_addr || !i->ifa_netmask || i->ifa_addr->sa_family != (size == 4 ? AF_INET : AF_INET6))
            continue;
        address = size == 4 ? (const uint8_t *)&((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr
                            : (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr;
        mask    = size == 4 ? (const uint8_t *)&((const struct sockaddr_in *)(const void *)i->ifa_netmask)->sin_addr
                            : (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)i->ifa_netmask)->sin6_addr;
        if (memcmp(address, e->gid + 16 - size, size) == 0)
            for (size_t k = 0; k < size; k++)
                bits += (uint8_t)__builtin_popcount(mask[k]);
    }
    freeifaddrs(list);
    return bits;
}

/* Does the device take it as an address to send to? */
static bool usable(struct verbs_device *d, const struct verbs_end *e)
{
    struct ibv_ah_attr attr = {.is_global = 1, .grh = {.sgid_index = e->index, .hop_limit = 64}, .port_num = e->port};
    struct ibv_ah     *ah;

    memcpy(attr.grh.dgid.raw, e->gid, sizeof(e->gid));
    ah = verbs.ibv_create_ah(d->pd, &attr);
    if (ah)
        verbs.ibv_destroy_ah(ah);
    return ah != NULL;
}

static void offer(struct verbs_device *d, struct verbs_end e, const union ibv_gid *gid)
{
    memcpy(e.gid, gid->raw, sizeof(e.gid));
    e.prefix = prefix_of(&e);
    if (verbs_nends < VERBS_ENDS && (e.kind == VERBS_IB || usable(d, &e)))
        verbs_ends[verbs_nends++] = e;
}

static void add_port(struct verbs_device *d, int number, int port)
{
    const int            pinned = (int)hkt_options()->verbs_gid;
    struct ibv_port_attr attr   = {0};
    struct verbs_end     e      = {.device = (uint8_t)number, .port = (uint8_t)port};
    union ibv_gid        gid;

    if (verbs.query_port(d->context, (uint8_t)port, &attr) || attr.state != IBV_PORT_ACTIVE)
        return;
    e.lid = attr.lid;
    e.mtu = (uint8_t)attr.active_mtu;
    if (attr.link_layer != IBV_LINK_LAYER_ETHERNET) {
        e.kind = VERBS_IB;
        e.index = (uint8_t)(pinned > 0 ? pinned : 0);
        if (verbs.ibv_query_gid(d->context, (uint8_t)port, e.index, &gid) == 0)
            offer(d, e, &gid);
        return;
    }
    for (int i = 0; i < attr.gid_tbl_len && i < 256; i++) {
        struct ibv_gid_entry entry;

        if ((pinned >= 0 && i != pinned) || verbs._ibv_query_gid_ex(d->context, (uint32_t)port, (uint32_t)i, &entry, 0, sizeof(entry)))
            continue;
        e.index = (uint8_t)i;
        e.kind  = (uint8_t)verbs_kind_of(&entry.gid, entry.gid_type);
        offer(d, e, &entry.gid);
    }
}

uint8_t verbs_class(const struct verbs_device *d, const struct verbs_end *e)
{
    char  path[256], text[64];
    FILE *f;
    int   value = (int)hkt_options()->verbs_class;

    if (value >= 0 || e->kind == VERBS_IB)
        return (uint8_t)(value > 0 ? value : 0);
    value = ROCE_CLASS;
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/tc/%d/traffic_class", verbs.ibv_get_device_name(d->context->device), e->port);
    f = fopen(path, "re");
    if (f && fgets(text, sizeof(text), f))
        sscanf(text, "Global tclass=%d", &value); /* what the administrator has set for the port */
    if (f)
        fclose(f);
    return (uint8_t)value;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

bool verbs_named(const char *list, const char *name, int port)
{
    char pattern[128], whole[128];

    snprintf(whole, sizeof(whole), "%s:%d", name, port);
    for (const char *at = list; *at; at += *at == ',') {
        const size_t n = strcspn(at, ",");

        snprintf(pattern, sizeof(pattern), "%.*s", (int)(n < 100 ? n : 100), at);
        if (fnmatch(pattern, strchr(pattern, ':') ? whole : name, 0) == 0)
            return true;
        at += n;
    }
    return !*list;
}

static void completed(struct hkt_watch *w, uint32_t events)
{
    struct verbs_device *d = (struct verbs_device *)(void *)((char *)w - offsetof(struct verbs_device, watch));
    struct ibv_cq       *cq;
    void                *context;

    (void)events;
    while (verbs.ibv_get_cq_event(d->events, &cq, &context) == 0) {
        verbs.ibv_ack_cq_events(cq, 1);
        d->armed = false;
    }
    verbs_poll(d);
}

/* What concerns a queue pair shows in its completions; what ends a device ends its paths. */
static void befell(struct hkt_watch *w, uint32_t events)
{
    struct verbs_device   *d = (struct verbs_device *)(void *)((char *)w - offsetof(struct verbs_device, trouble));
    struct ibv_async_event event;

    (void)events;
    while (verbs.ibv_get_async_event(d->context, &event) == 0) {
        const enum ibv_event_type type = event.event_type;

        hkt_log(HKT_LOG_INFO, "verbs: %s says: %s", verbs.ibv_get_device_name(d->context->device), verbs.ibv_event_type_str(type));
        verbs.ibv_ack_async_event(&event);
        if (type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_CQ_ERR || type == IBV_EVENT_SRQ_ERR)
            verbs_troubled(d, verbs.ibv_event_type_str(type));
    }
}

static bool open_device(struct verbs_device *d, struct ibv_device *which)
{
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = VERBS_BUFFERS, .max_sge = 1}};
    struct ibv_device_attr   attr;

    *d         = (struct verbs_device){.watch = {completed}, .trouble = {befell}};
    d->context = verbs.ibv_open_device(which);
    if (!d->context || verbs.ibv_query_device(d->context, &attr))
        return false;
    d->entries = attr.max_cqe < ENTRIES ? attr.max_cqe : ENTRIES;
    if (attr.max_srq_wr < VERBS_BUFFERS)
        srq.attr.max_wr = (uint32_t)attr.max_srq_wr;
    d->pd     = verbs.ibv_alloc_pd(d->context);
    d->events = verbs.ibv_create_comp_channel(d->context);
    d->cq     = d->events ? verbs.ibv_create_cq(d->context, d->entries, NULL, d->events, 0) : NULL;
    d->srq    = d->pd && srq.attr.max_wr ? verbs.ibv_create_srq(d->pd, &srq) : NULL;
    if (!d->srq || !d->cq)
        return false;
    fcntl(d->events->fd, F_SETFL, fcntl(d->events->fd, F_GETFL) | O_NONBLOCK);
    fcntl(d->context->async_fd, F_SETFL, fcntl(d->context->async_fd, F_GETFL) | O_NONBLOCK);
    return !hkt_net_watch(&d->watch, d->events->fd, EPOLLIN) && !hkt_net_watch(&d->trouble, d->context->async_fd, EPOLLIN);
}

/* A device that cannot be used is left alone, and its library's memory with it: that happens once. Not 0: it could be, if memory could be registered. */
static int add_device(struct ibv_device *which)
{
    struct verbs_device *d    = &verbs_devices[verbs_ndevices];
    const char          *name = verbs.ibv_get_device_name(which);
    const int            before = verbs_nends;
    uint32_t             key;
    int                  rc;
    struct ibv_device_attr attr;

    if (!open_device(d, which) || verbs.ibv_query_device(d->context, &attr)) {
        hkt_log(HKT_LOG_INFO, "verbs: %s cannot be used: %s", name, strerror(errno));
        return 0;
    }
    for (int port = 1; port <= attr.phys_port_cnt; port++)
        if (verbs_named(hkt_options()->verbs_devices, name, port))
            add_port(d, verbs_ndevices, port);
    rc = verbs_nends > before ? verbs_lend(d, VERBS_WINDOW) : 0;
    if (!rc && verbs_nends > before) { /* there is never less than a block of slots */
        char *slot = verbs_take_slot(d, &key);

        verbs_give_slot(slot);
        rc = slot ? 0 : HKT_ERR_UNSUPPORTED;
    }
    if (rc)
        verbs_nends = before;
    verbs_ndevices += verbs_nends > before;
    return rc;
}

int verbs_start(void)
{
    struct ibv_device **list;
    int                 n = 0, rc = 0;

    HKT_TRY(load());
    verbs.ibv_fork_init(); /* a child must not lose pages of the parent; newer kernels do that by themselves */
    list = verbs.get_device_list(&n);
    for (int i = 0; list && i < n && verbs_ndevices < VERBS_DEVICES; i++) {
        int port = 1;

        while (port < 8 && !verbs_named(hkt_options()->verbs_devices, verbs.ibv_get_device_name(list[i]), port))
            port++;
        if (port < 8)
            rc = add_device(list[i]);
    }
    if (list)
        verbs.ibv_free_device_list(list);
    if (verbs_nends || rc)
        return verbs_nends ? 0 : rc;
    return hkt_fail(HKT_ERR_UNSUPPORTED, n ? "none of the %d RDMA devices has a usable port (HKT_VERBS_DEVICES=%s; ibv_devinfo shows them; HKT_LOG=info says more)"
                                           : "there are %d RDMA devices%s",
                    n, n ? hkt_options()->verbs_devices : "");
}
