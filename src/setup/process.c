/* process.c -- the table of processes: this one, and those that its ranks talk to. See process.h. The thread that
 * serves them is helper.c; what a segment is, is left to segment.c.
 *
 * One lock guards the table. It is never held over a system call that can wait for another process.
 */
#include "process.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "handed.h"
#include "helper.h"
#include "life.h"
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BATCH = 32 /* peers that are told at a time */ };

static const uint64_t ANSWER_NS   = 5000000000u;
static const uint64_t FORGET_NS   = 100000000u;  /* a stopped peer with a full queue must not hold us up */
static const uint64_t POPULATE_NS = 1000000000u; /* the helper thread fills page tables at most so long at a time */

struct past {
    void  *base;
    size_t size;
};

struct entry {
    struct hkt_process process;
    struct entry      *next;
    int                pidfd;                /* watched, since the kernel will not mark its life word; or -1 */
    uint32_t           mapped[HKT_SEGMENTS]; /* ids of what segment[] holds */
    struct past        past[HKT_SEGMENTS];   /* where the slot's segment before was: empty pages */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry   *self, *peers;
static int             life_fd = -1;
static atomic_bool     forked;

/* ---- forks ----------------------------------------------------------------------------------------------------- */

static void fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void fork_child(void)
{
    pthread_mutex_unlock(&lock); /* taken by this very thread before the fork */
    if (!self)
        return;
    atomic_store_explicit(&forked, true, memory_order_relaxed); /* the child has one thread yet */
    hkt_helper_close_fds();                                     /* peers must not connect to where nobody listens */
    close(life_fd);
}

bool hkt_process_forked(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed);
}

/* ---- serving peers, on the helper thread ----------------------------------------------------------------------- */

static struct entry *find(const uint64_t uuid[2])
{
    struct entry *e = peers;

    if (self && memcmp(self->process.life->address.uuid, uuid, sizeof(self->process.life->address.uuid)) == 0)
        return self;
    while (e && memcmp(e->process.life->address.uuid, uuid, sizeof(e->process.life->address.uuid)) != 0)
        e = e->next;
    return e;
}

/* Fills the page table for what the segment's owner has touched. Holes stay holes: memory that nobody uses costs
 * nothing. */
static void populate(char *base, size_t size, int fd)
{
#ifdef MADV_POPULATE_WRITE
    const size_t   step = (size_t)16 << 20;
    const uint64_t end  = hkt_now_ns() + POPULATE_NS;
    off_t          from = 0, to;

    while ((from = lseek(fd, from, SEEK_DATA)) >= 0 && (size_t)from < size &&
           (to = lseek(fd, from, SEEK_HOLE)) > from) {
        const size_t most = size - (size_t)from < step ? size - (size_t)from : step;
        const size_t n    = (size_t)(to - from) < most ? (size_t)(to - from) : most;

        if (madvise(base + from, n, MADV_POPULATE_WRITE) || hkt_now_ns() > end)
            return; /* only slower */
        from += (off_t)n;
    }
#else
    (void)base, (void)size, (void)fd;
#endif
}

/* Takes a segment out of the slot. A copy of a call that its owner has given up (abort, then free) may still be at it in this process: empty
 * pages take its place until the slot's next segment goes, HKT_SEGMENTS segments later. The lock is held. */
static void retire_slot(struct entry *e, uint32_t slot)
{
    void *const  base = atomic_exchange_explicit(&e->process.segment[slot], NULL, memory_order_acq_rel);
    const size_t size = e->process.segment_size[slot];
    struct past *past = &e->past[slot];

    e->mapped[slot] = 0;
    if (past->base && base)
        munmap(past->base, past->size);
    if (!base)
        return;
    *past = (struct past){base, size};
    if (mmap(base, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
        munmap(base, size);
        past->base = NULL;
    }
}

static int serve_map(const struct hkt_ask *ask, int fd)
{
    const uint32_t slot = ask->id % HKT_SEGMENTS;
    struct stat    st;
    struct entry  *e;
    char          *base;
    bool           known;

    pthread_mutex_lock(&lock);
    e     = find(ask->from);
    known = e && e->mapped[slot] == ask->id;
    pthread_mutex_unlock(&lock);
    if (known)
        return 0;
    if (!e)
        return -EAGAIN;
    if (e == self || ask->id == 0 || fstat(fd, &st) || ask->size == 0 || (uint64_t)st.st_size < ask->size)
        return -EINVAL;
    base = mmap(NULL, ask->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    populate(base, ask->size, fd);
    pthread_mutex_lock(&lock);
    e = find(ask->from);
    if (!e) { /* it was detached meanwhile */
        pthread_mutex_unlock(&lock);
        munmap(base, ask->size);
        return -EAGAIN;
    }
    retire_slot(e, slot); /* its owner has freed what was there, or it would not use the slot again */
    e->process.segment_size[slot] = ask->size;
    e->mapped[slot]               = ask->id;
    atomic_store_explicit(&e->process.segment[slot], base, memory_order_release); /* pairs with hkt_segment_peer() */
    pthread_mutex_unlock(&lock);
    return 0;
}

static void serve_forget(const struct hkt_ask *ask)
{
    const uint32_t slot = ask->id % HKT_SEGMENTS;
    struct entry  *e;

    pthread_mutex_lock(&lock);
    e = find(ask->from);
    if (e && e != self && e->mapped[slot] == ask->id)
        retire_slot(e, slot);
    pthread_mutex_unlock(&lock);
}

static void serve_gone(int pidfd)
{
    pthread_mutex_lock(&lock);
    for (struct entry *e = peers; e; e = e->next) {
        if (e->pidfd != pidfd)
            continue;
        /* Read by hkt_process_alive(). */
        atomic_fetch_or_explicit(&e->process.life->word, FUTEX_OWNER_DIED, memory_order_relaxed);
        hkt_helper_unwatch(pidfd);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- this process ---------------------------------------------------------------------------------------------- */

/* Makes `self`. The lock is held. */
static int start(void)
{
    static const struct hkt_helper_serve serve = {serve_map, hkt_handed_keep, serve_forget, serve_gone};
    static bool                          fork_known;
    struct entry                        *e  = hkt_alloc(sizeof(*e));
    int                                  rc = HKT_ERR_MEMORY, fd = -1;

    if (!e)
        return rc;
    if (!fork_known && pthread_atfork(fork_prepare, fork_parent, fork_child)) {
        hkt_fail(rc, "out of memory: pthread_atfork");
        goto fail;
    }
    fork_known      = true;
    e->pidfd        = -1;
    e->process.self = true;
    atomic_init(&e->process.readable, 1);
    e->process.pid = getpid();
    rc             = hkt_life_make(&e->process.life, &fd);
    if (rc)
        goto fail;
    rc = hkt_random(e->process.life->address.uuid, sizeof(e->process.life->address.uuid));
    if (!rc)
        rc = hkt_helper_start(e->process.life, fd, &serve);
    if (rc)
        goto fail_life;
    life_fd = fd;
    self    = e;
    return 0;
fail_life:
    munmap(e->process.life, sizeof(*e->process.life));
    close(fd);
fail:
    hkt_free(e);
    return rc;
}

int hkt_process_self(struct hkt_process **process)
{
    int rc = 0;

    if (hkt_process_forked())
        return hkt_fail(HKT_ERR_USAGE,
                        "the library was used after fork: it works only in the process that first called it, pid %d",
                        (int)self->process.life->pid);
    pthread_mutex_lock(&lock);
    if (!self)
        rc = start();
    pthread_mutex_unlock(&lock);
    if (!rc)
        *process = &self->process;
    return rc;
}

void hkt_process_address(struct hkt_process_address *address)
{
    static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER; /* not `lock`: the network has one of its own */
    struct hkt_net_address net = {0};

    pthread_mutex_lock(&asking);
    if (!self->process.life->address.net.bytes && !hkt_network.address(&net))
        self->process.life->address.net = net; /* nobody has the address yet, and so nobody reads it */
    *address = self->process.life->address;
    pthread_mutex_unlock(&asking);
}

/* ---- peers ----------------------------------------------------------------------------------------------------- */

static bool is_elsewhere(const struct hkt_process_address *a)
{
    return memcmp(a->host, self->process.life->address.host, sizeof(a->host)) != 0;
}

/* The peer of this uuid with one reference more, or NULL. The lock is held. */
static struct entry *take(const uint64_t uuid[2])
{
    struct entry *e = find(uuid);

    if (e)
        e->process.refs++;
    return e;
}

/* Where the kernel will not mark the peer's death in its life page (it refuses robust lists, as some sandboxes do), the
 * helper thread does, told by a pidfd. The kernel's way is better by tens of milliseconds when the peer has much
 * memory. */
static void watch(struct entry *e)
{
    if (e->process.pid <= 0)
        return; /* in another pid namespace: its silence will be noticed at the deadline */
    e->pidfd = (int)syscall(SYS_pidfd_open, e->process.pid, 0);
    if (e->pidfd >= 0 && hkt_helper_watch(e->pidfd)) {
        close(e->pidfd);
        e->pidfd = -1;
    }
}

/* A new entry from a life page. fd is borrowed. */
static int make_entry(struct entry **made, int fd, int32_t pid, const struct hkt_process_address *address)
{
    struct entry    *e = hkt_alloc(sizeof(*e));
    struct hkt_life *life;
    struct stat      st;

    if (!e)
        return HKT_ERR_MEMORY;
    life = hkt_alloc_check() || fstat(fd, &st) || st.st_size != sizeof(*life)
               ? MAP_FAILED
               : mmap(NULL, sizeof(*life), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (life == MAP_FAILED) {
        hkt_free(e);
        return hkt_fail(HKT_ERR_MEMORY, "cannot map the life page of a peer process: %zu bytes", sizeof(*life));
    }
    if (memcmp(life->address.uuid, address->uuid, sizeof(address->uuid)) != 0) {
        munmap(life, sizeof(*life));
        hkt_free(e);
        return hkt_fail(HKT_ERR_SYSTEM, "a peer process gave the life page of another one");
    }
    e->process.life = life;
    e->process.pid  = pid;
    e->process.refs = 1;
    e->pidfd        = -1;
    /* Its helper thread wrote the word before it answered. */
    if (atomic_load_explicit(&life->word, memory_order_relaxed) == 0)
        watch(e);
    *made = e;
    return 0;
}

static void free_elsewhere(struct entry *e)
{
    if (e->process.net)
        hkt_network.detach(e->process.net);
    hkt_free(e->process.life);
    hkt_free(e);
}

static void free_entry(struct entry *e)
{
    if (is_elsewhere(&e->process.life->address)) {
        free_elsewhere(e);
        return;
    }
    for (uint32_t slot = 0; slot < HKT_SEGMENTS; slot++) {
        retire_slot(e, slot);
        if (e->past[slot].base)
            munmap(e->past[slot].base, e->past[slot].size);
    }
    if (e->pidfd >= 0) {
        hkt_helper_unwatch(e->pidfd);
        close(e->pidfd);
    }
    munmap(e->process.life, sizeof(*e->process.life));
    hkt_free(e);
}

/* A new entry of a process of another host, unless it is known. */
static int attach_elsewhere(struct hkt_process **peer, const struct hkt_process_address *address)
{
    struct entry *made = hkt_alloc(sizeof(*made)), *e;
    int           rc   = 0;

    if (!made)
        return HKT_ERR_MEMORY;
    made->pidfd        = -1;
    made->process.refs = 1;
    made->process.life = hkt_alloc(sizeof(*made->process.life));
    if (!made->process.life) {
        hkt_free(made);
        return HKT_ERR_MEMORY;
    }
    atomic_init(&made->process.readable, -1);
    made->process.life->address = *address;
    made->process.life->pid     = address->pid;
    memcpy(made->process.life->host, address->name, sizeof(address->name) - 1);
    rc = hkt_network.attach(&made->process.net, &made->process, self->process.life->address.uuid);
    if (rc) {
        free_elsewhere(made);
        return rc;
    }
    pthread_mutex_lock(&lock);
    e = take(address->uuid);
    if (!e) {
        made->next = peers;
        peers      = made;
    }
    pthread_mutex_unlock(&lock);
    if (e)
        free_elsewhere(made);
    *peer = e ? &e->process : &made->process;
    return 0;
}

struct asked {
    int      which; /* of the list of addresses */
    int      fd;
    int32_t  pid;
    uint64_t deadline;
};

static int attach_failed(int rc)
{
    if (rc == -ETIMEDOUT || rc == -EAGAIN)
        return hkt_fail(HKT_ERR_TIMEOUT, "a peer process of this machine does not answer for 5 s: is it stopped?");
    if (rc == -ECONNREFUSED || rc == -ECONNRESET || rc == -EPIPE)
        return hkt_fail(HKT_ERR_PEER, "a peer process of this machine has died, or is not in this network namespace");
    return hkt_fail(HKT_ERR_SYSTEM, "cannot reach a peer process of this machine: %s", hkt_errno_text(-rc));
}

/* Takes those that are known, asks up to BATCH of the others for their life pages, one process once. Gives how many
 * were asked. */
static int ask_lives(struct asked asked[BATCH], struct hkt_process **list, const struct hkt_process_address *address,
                     int count)
{
    const struct hkt_ask ask = {.kind = HKT_ASK_LIFE};
    int                  n   = 0;

    for (int i = 0; i < count && n < BATCH; i++) {
        struct asked *a = &asked[n];
        struct entry *e;
        int           twin = 0;

        if (list[i])
            continue;
        pthread_mutex_lock(&lock);
        e       = take(address[i].uuid);
        list[i] = e ? &e->process : NULL;
        pthread_mutex_unlock(&lock);
        if (!e && is_elsewhere(&address[i])) {
            const int rc = attach_elsewhere(&list[i], &address[i]);

            if (rc)
                return rc;
        }
        while (twin < n && memcmp(&address[asked[twin].which], &address[i], sizeof(*address)) != 0)
            twin++;
        if (list[i] || twin < n)
            continue;
        *a    = (struct asked){.which = i, .deadline = hkt_now_ns() + ANSWER_NS};
        a->fd = hkt_helper_send(&address[i], &ask, -1, a->deadline, &a->pid);
        if (a->fd < 0) {
            while (n > 0)
                close(asked[--n].fd);
            return attach_failed(a->fd);
        }
        n++;
    }
    return n;
}

/* Makes the entry of a process that was asked, unless another thread has been quicker. */
static int take_answer(struct hkt_process **peer, const struct asked *a, const struct hkt_process_address *address)
{
    struct entry *made = NULL, *e;
    int           fd, rc = hkt_helper_answer(a->fd, a->deadline, NULL, &fd);

    if (rc)
        return attach_failed(rc);
    if (fd < 0)
        return attach_failed(-EMFILE); /* the answer came without its descriptor */
    rc = make_entry(&made, fd, a->pid, address);
    close(fd);
    if (rc)
        return rc;
    pthread_mutex_lock(&lock);
    e = take(address->uuid);
    if (!e) {
        made->next = peers;
        peers      = made;
    }
    pthread_mutex_unlock(&lock);
    if (e)
        free_entry(made);
    else
        hkt_helper_poke();
    *peer = e ? &e->process : &made->process;
    return 0;
}

int hkt_process_attach(struct hkt_process **list, const struct hkt_process_address *address, int count)
{
    struct asked        asked[BATCH];
    struct hkt_process *own;
    int                 n, rc = 0;

    for (int i = 0; i < count; i++)
        list[i] = NULL;
    HKT_TRY(hkt_process_self(&own));
    while (!rc && (n = ask_lives(asked, list, address, count)) != 0) {
        rc = n < 0 ? n : 0;
        for (int i = 0; i < n; i++) {
            const int w    = asked[i].which;
            const int each = take_answer(&list[w], &asked[i], &address[w]);

            rc = rc ? rc : each;
        }
    }
    for (int i = 0; i < count && !rc; i++)
        if (!hkt_process_alive(list[i]))
            rc = hkt_fail(HKT_ERR_PEER, "the process of a peer (host %s, pid %d) has died", list[i]->life->host,
                          (int)list[i]->life->pid);
    for (int i = 0; i < count && rc; i++) {
        hkt_process_detach(list[i]);
        list[i] = NULL;
    }
    return rc;
}

void hkt_process_detach(struct hkt_process *peer)
{
    struct entry *gone = NULL;

    if (!peer || hkt_process_forked())
        return;
    pthread_mutex_lock(&lock);
    if (--peer->refs == 0 && !peer->self) {
        struct entry **at = &peers;

        while (&(*at)->process != peer)
            at = &(*at)->next;
        gone = *at;
        *at  = gone->next;
        /* Before anybody can attach it again: it must tell us of its segments again. Pairs with the load in segment.c's
         * knows(). */
        atomic_fetch_add_explicit(&self->process.life->detached, 1, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    if (gone)
        free_entry(gone);
}

/* ---- for segment.c --------------------------------------------------------------------------------------------- */

/* Takes note of up to BATCH peers that have mapped the segment, as forgetting it. */
static int collect(struct hkt_process_address list[BATCH], uint32_t id)
{
    int n = 0;

    pthread_mutex_lock(&lock);
    for (struct entry *e = peers; e && n < BATCH; e = e->next) {
        uint32_t told = id;

        if (atomic_compare_exchange_strong_explicit(&e->process.told[id % HKT_SEGMENTS], &told, 0, memory_order_relaxed,
                                                    memory_order_relaxed) &&
            hkt_process_alive(&e->process))
            list[n++] = e->process.life->address;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

void hkt_process_forget(uint32_t id)
{
    struct hkt_ask             ask = {.kind = HKT_ASK_FORGET, .id = id};
    struct hkt_process_address list[BATCH];
    int                        n;

    memcpy(ask.from, self->process.life->address.uuid, sizeof(ask.from));
    while ((n = collect(list, id)) > 0) {
        for (int i = 0; i < n; i++) {
            const int fd = hkt_helper_send(&list[i], &ask, -1, hkt_now_ns() + FORGET_NS, NULL);

            if (fd >= 0) /* else it keeps the mapping until the slot is used again, or it detaches this process */
                close(fd);
        }
    }
}
