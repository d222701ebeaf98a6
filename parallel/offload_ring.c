/* offload_ring.c -- see offload_ring.h. The system calls themselves, as there is little to do and liburing may not be
 * there.
 *
 * Transfers are cut into pieces of a MiB, up to DEPTH of which are under way: enough to keep a disk with many queues
 * busy. A short transfer is continued, an interrupted one is begun again. */
#include <parallel/offload_ring.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__) && __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEPTH = 32, PIECE = 1 << 20, FREE = -1 };

struct piece {
    struct hkt_transfer left;
    int                 of; /* entry of the list; FREE */
};

struct hkt_ring {
    int                  file;
    void                *rings; /* both queues */
    size_t               rings_size, entries_size;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *results;
    _Atomic unsigned    *sq_tail, *cq_head, *cq_tail;
    unsigned            *sq_array, sq_mask, cq_mask;
    struct piece         piece[DEPTH];
};

static int map(struct hkt_ring *r, const struct io_uring_params *p)
{
    const size_t sq = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    const size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    char        *base;

    r->rings_size   = sq > cq ? sq : cq;
    r->entries_size = p->sq_entries * sizeof(struct io_uring_sqe);
    base = mmap(NULL, r->rings_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->file, IORING_OFF_SQ_RING);
    r->rings = base == MAP_FAILED ? NULL : base;
    r->entries =
        mmap(NULL, r->entries_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->file, IORING_OFF_SQES);
    if (r->entries == MAP_FAILED)
        r->entries = NULL;
    if (!r->rings || !r->entries)
        return -1;
    r->sq_tail  = (_Atomic unsigned *)(void *)(base + p->sq_off.tail);
    r->cq_head  = (_Atomic unsigned *)(void *)(base + p->cq_off.head);
    r->cq_tail  = (_Atomic unsigned *)(void *)(base + p->cq_off.tail);
    r->sq_array = (unsigned *)(void *)(base + p->sq_off.array);
    r->sq_mask  = *(unsigned *)(void *)(base + p->sq_off.ring_mask);
    r->cq_mask  = *(unsigned *)(void *)(base + p->cq_off.ring_mask);
    r->results  = (struct io_uring_cqe *)(void *)(base + p->cq_off.cqes);
    return 0;
}

struct hkt_ring *hkt_ring_make(void)
{
    struct io_uring_params p;
    struct hkt_ring       *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    memset(&p, 0, sizeof p);
    r->file = (int)syscall(SYS_io_uring_setup, DEPTH, &p);
    for (int i = 0; i < DEPTH; i++)
        r->piece[i].of = FREE;
    /* IORING_FEAT_RW_CUR_POS came with plain reads and writes, IORING_FEAT_SINGLE_MMAP before (Linux 5.6). */
    if (r->file < 0 || !(p.features & IORING_FEAT_SINGLE_MMAP) || !(p.features & IORING_FEAT_RW_CUR_POS) ||
        map(r, &p) < 0) {
        hkt_ring_free(r);
        return NULL;
    }
    return r;
}

void hkt_ring_free(struct hkt_ring *r)
{
    if (!r)
        return;
    if (r->entries)
        (void)munmap(r->entries, r->entries_size);
    if (r->rings)
        (void)munmap(r->rings, r->rings_size);
    if (r->file >= 0)
        (void)close(r->file);
    free(r);
}

static void submit(struct hkt_ring *r, int index, int file, bool write)
{
    const unsigned             tail = atomic_load_explicit(r->sq_tail, memory_order_relaxed), slot = tail & r->sq_mask;
    const struct hkt_transfer *t = &r->piece[index].left;

    r->entries[slot]  = (struct io_uring_sqe){.opcode    = write ? IORING_OP_WRITE : IORING_OP_READ,
                                              .fd        = file,
                                              .addr      = (uintptr_t)t->memory,
                                              .len       = (unsigned)t->size,
                                              .off       = (uint64_t)t->at,
                                              .user_data = (unsigned)index};
    r->sq_array[slot] = slot;
    atomic_store_explicit(r->sq_tail, tail + 1, memory_order_release); /* pairs with the kernel's load */
}

/* Cuts pieces for all free places; returns how many were submitted. */
static unsigned refill(struct hkt_ring *r, int file, struct hkt_transfer *rest, int count, bool write)
{
    unsigned submitted = 0;

    for (int i = 0, k = 0; i < DEPTH; i++) {
        if (r->piece[i].of != FREE)
            continue;
        while (k < count && !rest[k].size)
            k++;
        if (k == count)
            break;
        const size_t size = rest[k].size < PIECE ? rest[k].size : PIECE;
        r->piece[i]       = (struct piece){{rest[k].memory, size, rest[k].at}, k};
        rest[k]           = (struct hkt_transfer){rest[k].memory + size, rest[k].size - size, rest[k].at + (off_t)size};
        submit(r, i, file, write);
        submitted++;
    }
    return submitted;
}

/* One result: 0, an errno, or -1 at the end of the file. *again: the piece was submitted once more. */
static int settle(struct hkt_ring *r, const struct io_uring_cqe *c, int file, bool write, unsigned *again)
{
    struct piece *p = &r->piece[c->user_data];

    if (c->res > 0) {
        const size_t n = (size_t)c->res;
        p->left        = (struct hkt_transfer){p->left.memory + n, p->left.size - n, p->left.at + (off_t)n};
    }
    if ((c->res > 0 && p->left.size) || c->res == -EINTR || c->res == -EAGAIN) {
        submit(r, (int)c->user_data, file, write);
        ++*again;
        return 0;
    }
    p->of = FREE;
    return c->res > 0 ? 0 : c->res == 0 ? -1 : -c->res;
}

int hkt_ring_transfer(struct hkt_ring *r, int file, struct hkt_transfer *list, int count, bool write)
{
    unsigned flying = 0, waiting = 0; /* under way; of these, not yet shown to the kernel */
    int      error = 0;

    for (;;) {
        if (!error) {
            const unsigned more = refill(r, file, list, count, write);
            flying += more;
            waiting += more;
        }
        if (!flying)
            return error;
        const long shown = syscall(SYS_io_uring_enter, r->file, waiting, 1, IORING_ENTER_GETEVENTS, NULL, 0);
        if (shown < 0 && errno != EINTR && errno != EAGAIN && errno != EBUSY)
            return errno; /* the ring itself is broken: nothing of it can be waited for */
        waiting -= shown > 0 ? (unsigned)shown : 0;

        unsigned       head = atomic_load_explicit(r->cq_head, memory_order_relaxed);
        const unsigned tail =
            atomic_load_explicit(r->cq_tail, memory_order_acquire); /* pairs with the kernel's store */
        for (; head != tail; head++) {
            unsigned  again = 0;
            const int rc    = settle(r, &r->results[head & r->cq_mask], file, write, &again);
            waiting += again;
            flying -= !again;
            error = error ? error : rc;
        }
        atomic_store_explicit(r->cq_head, head, memory_order_release);
    }
}

#else

struct hkt_ring *hkt_ring_make(void)
{
    return NULL;
}

void hkt_ring_free(struct hkt_ring *ring)
{
    (void)ring;
}

int hkt_ring_transfer(struct hkt_ring *ring, int file, struct hkt_transfer *list, int count, bool write)
{
    (void)ring, (void)file, (void)list, (void)count, (void)write;
    return ENOSYS;
}
#endif
