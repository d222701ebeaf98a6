/* verbs_memory.c -- memory that devices may touch.
 *
 * Registering pins pages, and a device goes on using the pages that were there then: when a program unmaps memory and maps other there, a registration that
 * was kept writes to nowhere. No system call tells of that, and hooks in the allocator are not ours to place. So only memory whose life the library
 * knows is registered: segments (hkt_mem_alloc(), hkt_comm_register(), staging), each once, by its id, until it is freed; and what was given for itself
 * (dmabuf). Everything else is copied, through the slots and buffers here.
 */
#include "transports/verbs.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "setup/segment.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum {
    ROOM  = sizeof(struct verbs_frame) + VERBS_BODY,
    BLOCK = 32, /* slots or buffers that are registered together */
    PAGE  = 4096
};

static struct {
    char *block[VERBS_SLOTS / BLOCK];
    int   blocks, free;
    char *list[VERBS_SLOTS]; /* that are free */
} slots;

/* What came of ibv_reg_mr(), and what to do. */
static const char *reason(int error)
{
    static _Thread_local char why[256];
    struct rlimit             limit = {0};

    snprintf(why, sizeof(why), "%s", strerror(error));
    if ((error == ENOMEM || error == EPERM || error == EAGAIN) && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(why, sizeof(why),
                 "this process may lock %llu KiB of memory; RDMA needs \"unlimited\" (ulimit -l; limits.conf, LimitMEMLOCK= of a service, --ulimit memlock=-1 of a container)",
                 (unsigned long long)limit.rlim_cur / 1024);
    return why;
}

static int cannot_register(const struct verbs_device *d, size_t bytes, int error)
{
    return hkt_fail(HKT_ERR_UNSUPPORTED, "cannot register %zu bytes with %s: %s", bytes, verbs.ibv_get_device_name(d->context->device), reason(error));
}

/* ---- buffers to receive into ------------------------------------------------------------------------------------- */

int verbs_repost(struct verbs_device *d, const int *index, int n)
{
    struct ibv_recv_wr wr[BLOCK], *bad;
    struct ibv_sge     sge[BLOCK];

    for (int i = 0; i < n; i++) {
        sge[i] = (struct ibv_sge){(uintptr_t)d->buffer[index[i]], ROOM, d->key[index[i]]};
        wr[i]  = (struct ibv_recv_wr){.wr_id = 1ull << 63 | (uint64_t)index[i], .next = i + 1 < n ? &wr[i + 1] : NULL, .sg_list = &sge[i], .num_sge = 1};
    }
    return n && ibv_post_srq_recv(d->srq, wr, &bad) ? HKT_ERR_SYSTEM : 0;
}

static int add_buffers(struct verbs_device *d)
{
    char          *block = hkt_alloc_aligned((size_t)BLOCK * ROOM, PAGE);
    struct ibv_mr *mr;
    int            index[BLOCK];

    if (!block)
        return HKT_ERR_MEMORY;
    mr = verbs.reg_mr(d->pd, block, (size_t)BLOCK * ROOM, IBV_ACCESS_LOCAL_WRITE);
    if (!mr) {
        const int error = errno;

        hkt_free(block);
        return cannot_register(d, (size_t)BLOCK * ROOM, error);
    }
    for (int i = 0; i < BLOCK; i++) {
        index[i]               = d->buffers++;
        d->buffer[index[i]] = block + (size_t)i * ROOM;
        d->key[index[i]]    = mr->lkey;
    }
    return verbs_repost(d, index, BLOCK);
}

/* There is a window's worth for each channel, up to a limit: then channels share, and the device makes senders wait. */
int verbs_lend(struct verbs_device *d, int buffers)
{
    d->lent += buffers;
    while (d->buffers < d->lent && d->buffers + BLOCK <= VERBS_BUFFERS)
        HKT_TRY(add_buffers(d));
    return 0;
}

/* ---- slots to send from ------------------------------------------------------------------------------------------ */

static bool add_slots(void)
{
    char *block = slots.blocks < VERBS_SLOTS / BLOCK ? hkt_alloc_aligned((size_t)BLOCK * ROOM, PAGE) : NULL;

    if (!block)
        return false;
    slots.block[slots.blocks++] = block;
    for (int i = 0; i < BLOCK; i++)
        slots.list[slots.free++] = block + (size_t)i * ROOM;
    return true;
}

/* The key of the block that a slot is in; false: the device does not take it. */
static bool key_of(struct verbs_device *d, const char *slot, uint32_t *key)
{
    int b = 0;

    while (slot < slots.block[b] || slot >= slots.block[b] + (size_t)BLOCK * ROOM)
        b++;
    if (!d->slots[b] && !d->refused) {
        d->slots[b] = verbs.reg_mr(d->pd, slots.block[b], (size_t)BLOCK * ROOM, IBV_ACCESS_LOCAL_WRITE);
        d->refused  = !d->slots[b];
        if (d->refused)
            hkt_log(HKT_LOG_WARN, "verbs: no more memory can be registered with %s, messages are copied and wait for one another: %s",
                    verbs.ibv_get_device_name(d->context->device), reason(errno));
    }
    if (d->slots[b])
        *key = d->slots[b]->lkey;
    return d->slots[b];
}

char *verbs_take_slot(struct verbs_device *d, uint32_t *key)
{
    if (!slots.free && !add_slots())
        return NULL;
    for (int i = slots.free - 1; i >= 0; i--) {
        char *slot = slots.list[i];

        if (!key_of(d, slot, key))
            continue;
        slots.list[i] = slots.list[--slots.free];
        return slot;
    }
    return NULL;
}

void verbs_give_slot(char *slot)
{
    if (slot)
        slots.list[slots.free++] = slot;
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

static void remove_region(struct verbs_device *d, int i)
{
    if (d->region[i].mr)
        verbs.ibv_dereg_mr(d->region[i].mr);
    d->region[i] = d->region[--d->regions];
}

/* Segments have come or gone: those that are gone are let go of. */
static void refresh(struct verbs_device *d)
{
    const uint64_t now = hkt_segment_generation();

    if (d->generation == now)
        return;
    for (int i = d->regions - 1; i >= 0; i--) {
        const struct hkt_segment *s = d->region[i].segment ? hkt_segment_find(d->region[i].base) : NULL;

        if (d->region[i].segment && (!s || s->id != d->region[i].segment || s->base != d->region[i].base))
            remove_region(d, i);
    }
    d->generation = now;
}

static struct verbs_region *add_region(struct verbs_device *d)
{
    if (d->regions == d->room) {
        const int            room = d->room ? 2 * d->room : 16;
        struct verbs_region *more = hkt_realloc(d->region, (size_t)room * sizeof(*more));

        if (!more)
            return NULL;
        d->region = more;
        d->room   = room;
    }
    return &d->region[d->regions++];
}

static const struct verbs_region *region_at(struct verbs_device *d, const char *at)
{
    const struct hkt_segment *s;
    struct verbs_region      *r;

    for (int i = 0; i < d->regions; i++)
        if (at >= d->region[i].base && at < d->region[i].base + d->region[i].size)
            return &d->region[i];
    s = hkt_segment_find(at);
    r = s ? add_region(d) : NULL;
    if (!r)
        return NULL;
    *r = (struct verbs_region){.segment = s->id, .base = s->base, .size = s->size};
    r->mr = verbs.reg_mr(d->pd, s->base, s->size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!r->mr && !d->refused) {
        hkt_log(HKT_LOG_WARN, "verbs: %zu bytes cannot be registered with %s, so that their messages are copied: %s", s->size,
                verbs.ibv_get_device_name(d->context->device), reason(errno));
        d->refused = true;
    }
    return r;
}

struct ibv_mr *verbs_region_of(struct verbs_device *d, const char *at, size_t bytes)
{
    const struct verbs_region *r;

    refresh(d);
    r = region_at(d, at);
    return r && at + bytes <= r->base + r->size ? r->mr : NULL;
}

/* ---- memory of other devices ------------------------------------------------------------------------------------- */

/* `address` is what messages name; nothing of this process need be mapped there. It belongs to the caller until verbs_remove_dmabuf(). */
int verbs_add_dmabuf(struct verbs_device *d, int fd, uint64_t offset, char *address, size_t bytes)
{
    struct ibv_mr *mr = NULL;
    struct verbs_region *r;

    errno = EOPNOTSUPP;
    if (verbs.reg_dmabuf_mr)
        mr = verbs.reg_dmabuf_mr(d->pd, offset, bytes, (uintptr_t)address, fd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!mr && (errno == EOPNOTSUPP || errno == ENOSYS))
        return hkt_fail(HKT_ERR_UNSUPPORTED, "%s cannot use memory of other devices (dmabuf): its driver has no such thing",
                        verbs.ibv_get_device_name(d->context->device));
    if (!mr)
        return cannot_register(d, bytes, errno);
    r = add_region(d);
    if (!r) {
        verbs.ibv_dereg_mr(mr);
        return HKT_ERR_MEMORY;
    }
    *r = (struct verbs_region){.base = address, .size = bytes, .mr = mr};
    return 0;
}

void verbs_remove_dmabuf(struct verbs_device *d, const char *address)
{
    for (int i = 0; i < d->regions; i++)
        if (!d->region[i].segment && d->region[i].base == address)
            remove_region(d, i--);
}
