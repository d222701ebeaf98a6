/* segment.c -- shared memory of this process: makes, adopts, frees, finds and shares it. See segment.h. How peers map
 * it is left to process.c.
 *
 * A memfd belongs to no mounted file system: it is charged to the memory cgroup like any memory and cannot meet the
 * size of /dev/shm. What can go wrong later is strict overcommit (a page that cannot be had is SIGBUS), so there pages
 * are taken at once.
 */
#include "segment.h"

#include "base/atomic.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "helper.h"
#include "machine.h"
#include "memfd.h"
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { BATCH = 32 /* peers that are asked at a time */ };

static const uint64_t SHARE_NS = 5000000000u;

static pthread_mutex_t     lock = PTHREAD_MUTEX_INITIALIZER;
static struct hkt_segment *living[HKT_SEGMENTS]; /* by base; the lock's */
static int                 count;
static uint32_t            last_id;
static _Atomic uint64_t    generation; /* changed under the lock, read by any */

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

/* Index of the first living segment whose base is above ptr. The lock is held. */
static int above(const char *ptr)
{
    int low = 0, high = count;

    while (low < high) {
        const int middle = (low + high) / 2;

        if (living[middle]->base <= ptr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool slot_taken(uint32_t slot)
{
    for (int i = 0; i < count; i++)
        if (living[i]->id % HKT_SEGMENTS == slot)
            return true;
    return false;
}

/* Gives the segment its id and makes it findable. False when there are too many. */
static bool enter(struct hkt_segment *s, struct hkt_process *self)
{
    bool room;
    int  at;

    pthread_mutex_lock(&lock);
    room = count < HKT_SEGMENTS;
    if (room) {
        do
            last_id++;
        while (last_id == 0 || slot_taken(last_id % HKT_SEGMENTS));
        s->id = last_id;
        at    = above(s->base);
        memmove(&living[at + 1], &living[at], (size_t)(count - at) * sizeof(living[0]));
        living[at] = s;
        count++;
        self->segment_size[s->id % HKT_SEGMENTS] = s->size;
        /* Pairs with hkt_segment_peer(). */
        atomic_store_explicit(&self->segment[s->id % HKT_SEGMENTS], s->base, memory_order_release);
        atomic_fetch_add_explicit(&generation, 1, memory_order_release); /* pairs with hkt_segment_generation() */
    }
    pthread_mutex_unlock(&lock);
    return room;
}

static void leave(struct hkt_segment *s, struct hkt_process *self)
{
    int at;

    pthread_mutex_lock(&lock);
    at = above(s->base) - 1;
    count--;
    memmove(&living[at], &living[at + 1], (size_t)(count - at) * sizeof(living[0]));
    atomic_store_explicit(&self->segment[s->id % HKT_SEGMENTS], NULL, memory_order_release); /* hkt_segment_peer() */
    atomic_fetch_add_explicit(&generation, 1, memory_order_release); /* pairs with hkt_segment_generation() */
    pthread_mutex_unlock(&lock);
}

uint64_t hkt_segment_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_acquire); /* pairs with enter() and leave() */
}

struct hkt_segment *hkt_segment_find(const void *ptr)
{
    struct hkt_segment *s = NULL;
    int                 at;

    /* In a forked child the lock may have been held by a thread that is not there. */
    if (hkt_process_forked() || hkt_segment_generation() == 0)
        return NULL;
    pthread_mutex_lock(&lock);
    at = above(ptr) - 1;
    if (at >= 0 && (const char *)ptr < living[at]->base + living[at]->size)
        s = living[at];
    pthread_mutex_unlock(&lock);
    return s;
}

/* ---- making ---------------------------------------------------------------------------------------------------- */

static bool strict_overcommit(void)
{
    char      mode = '0';
    const int fd   = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (read(fd, &mode, 1) != 1)
            mode = '0';
        close(fd);
    }
    return mode == '2';
}

/* 0 when `size` bytes can be had now; `what` for the sentence. */
static int check_size(size_t size, const char *what)
{
    struct hkt_memory memory;

    hkt_machine_memory(&memory);
    if (size > memory.available)
        return hkt_fail(HKT_ERR_MEMORY, "%s: %zu bytes of shared memory were asked for, %" PRIu64 " are available (%s)",
                        what, size, memory.available, memory.limit);
    return 0;
}

/* A memfd of that size, or HKT_ERR_*. */
static int make_fd(size_t size, const char *what)
{
    int fd, error = 0;

    HKT_TRY(check_size(size, what));
    fd = hkt_memfd_create(size, what);
    while (fd >= 0 && strict_overcommit() && fallocate(fd, 0, 0, (off_t)size) && (error = errno) == EINTR)
        error = 0;
    if (error) {
        close(fd);
        return hkt_fail(HKT_ERR_MEMORY, "%s: no %zu bytes of shared memory: %s (vm.overcommit_memory is 2)", what, size,
                        strerror(error));
    }
    return fd;
}

/* The struct and the descriptor; what create and adopt have in common. */
static int begin(struct hkt_segment **made, size_t size, const char *what)
{
    struct hkt_segment *s = hkt_alloc(sizeof(*s));

    if (!s)
        return HKT_ERR_MEMORY;
    s->size = size;
    snprintf(s->what, sizeof(s->what), "%s", what);
    s->fd = make_fd(size, s->what);
    if (s->fd < 0) {
        const int rc = s->fd;

        hkt_free(s);
        return rc;
    }
    *made = s;
    return 0;
}

static void cancel(struct hkt_segment *s)
{
    close(s->fd);
    hkt_free(s);
}

static int too_many(const char *what)
{
    return hkt_fail(HKT_ERR_MEMORY,
                    "%s: this process has %d shared segments already, the most there can be; free or deregister some, "
                    "or register fewer and larger ranges",
                    what, HKT_SEGMENTS);
}

int hkt_segment_create(struct hkt_segment **segment, size_t size, const char *what)
{
    const size_t        page = page_size();
    struct hkt_process *self;
    struct hkt_segment *s;

    if (size > SIZE_MAX / 2)
        return hkt_fail(HKT_ERR_MEMORY,
                        "%s: %zu bytes of shared memory were asked for: more than there is on any machine", what, size);
    HKT_TRY(hkt_process_self(&self));
    HKT_TRY(begin(&s, size ? (size + page - 1) / page * page : page, what));
    s->base = hkt_alloc_check() ? MAP_FAILED : mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (s->base == MAP_FAILED) {
        cancel(s);
        return hkt_fail(HKT_ERR_MEMORY,
                        "%s: cannot map %zu bytes of shared memory (limits: ulimit -v, ulimit -l, vm.max_map_count)",
                        what, size);
    }
    if (!enter(s, self)) {
        munmap(s->base, s->size);
        cancel(s);
        return too_many(what);
    }
    *segment = s;
    return 0;
}

/* ---- adopting -------------------------------------------------------------------------------------------------- */

struct area { /* a line of /proc/self/maps */
    uintptr_t from, to;
    char      mode[5];
    unsigned  major, minor;
    uint64_t  inode;
    char      name[32];
};

/* Calls visit for each mapping that overlaps [from, to), in order, until one gives other than 0. */
static int walk_maps(uintptr_t from, uintptr_t to, int (*visit)(const struct area *, void *), void *arg)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char  line[512]; /* the rest of a longer line looks like no mapping */
    int   rc = 0;

    if (!maps)
        return -errno;
    while (!rc && fgets(line, sizeof(line), maps)) {
        struct area a = {.name = ""};

        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %x:%x %" SCNu64 " %31[^\n]", &a.from, &a.to, a.mode,
                   &a.major, &a.minor, &a.inode, a.name) < 6)
            continue;
        if (a.from >= to)
            break;
        if (a.to > from)
            rc = visit(&a, arg);
    }
    fclose(maps);
    return rc;
}

struct adoption {
    uintptr_t   at; /* checked so far */
    const char *why;
};

static int check_area(const struct area *a, void *arg)
{
    struct adoption *x = arg;

    if (a->from > x->at)
        x->why = "a part of it is not mapped";
    else if (a->mode[3] != 'p')
        x->why = "it is shared memory already";
    else if (strncmp(a->mode, "rw-", 3) != 0)
        x->why = a->mode[2] == 'x' ? "it is executable" : "it is not readable and writable";
    else if (a->inode || a->major || a->minor)
        x->why = "it is mapped from a file";
    else if (strncmp(a->name, "[stack", 6) == 0)
        x->why = "it is a stack";
    x->at = a->to;
    return x->why ? 1 : 0;
}

/* Is something locked in memory within [from, to)? That is seldom, so the slow file is read only when the quick one
 * says so. */
static bool has_locked(uintptr_t from, uintptr_t to)
{
    char      line[256];
    bool      any = false, inside = false, found = false;
    uintptr_t a, b;
    FILE     *f = fopen("/proc/self/status", "re");

    while (f && !any && fgets(line, sizeof(line), f))
        any = strncmp(line, "VmLck:", 6) == 0 && strtoull(line + 6, NULL, 10) > 0;
    if (f)
        fclose(f);
    f = any ? fopen("/proc/self/smaps", "re") : NULL;
    while (f && !found && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &a, &b) == 2)
            inside = a < to && b > from;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, " lo") != NULL;
    }
    if (f)
        fclose(f);
    return found;
}

/* NULL when [from, to) can be adopted, else why not. */
static const char *refuse(uintptr_t from, uintptr_t to)
{
    struct adoption x    = {.at = from};
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);

    if (from >= to)
        return "it holds no whole page";
    if (here >= from && here < to)
        return "it is a stack";
    if (walk_maps(from, to, check_area, &x) < 0)
        return "/proc/self/maps cannot be read";
    if (!x.why && x.at < to)
        x.why = "a part of it is not mapped";
    if (!x.why && has_locked(from, to))
        x.why = "it is locked in memory (mlock)";
    return x.why;
}

static int copy_in(int fd, const char *from, size_t size)
{
    size_t done = 0;

    while (done < size) {
        const ssize_t n = pwrite(fd, from + done, size - done, (off_t)done);

        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Gives the part of an adopted segment that this mapping holds back as private memory. */
static int restore_area(const struct area *a, void *arg)
{
    const struct hkt_segment *s    = arg;
    const uintptr_t           base = (uintptr_t)s->base;
    const uintptr_t           from = a->from > base ? a->from : base;
    const uintptr_t           to   = a->to < base + s->size ? a->to : base + s->size;
    char                     *copy;
    struct stat               st;

    if (fstat(s->fd, &st) || a->inode != st.st_ino || a->major != major(st.st_dev) || a->minor != minor(st.st_dev))
        return 0; /* its owner has unmapped it already; it belongs to somebody else now */
    copy = mmap(NULL, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy != MAP_FAILED) {
        memcpy(copy, (const void *)from, to - from);
        if (mremap(copy, to - from, to - from, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)from) != MAP_FAILED)
            return 0;
        munmap(copy, to - from);
    }
    /* No memory for a copy: private at least from the first write on, page by page. */
    if (mmap((void *)from, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, s->fd, (off_t)(from - base)) ==
        MAP_FAILED)
        hkt_log(HKT_LOG_WARN, "deregistered memory at %p stays shared: %s", (void *)from, strerror(errno));
    return 0;
}

static void restore(struct hkt_segment *s)
{
    const int rc = walk_maps((uintptr_t)s->base, (uintptr_t)s->base + s->size, restore_area, s);

    if (rc < 0)
        hkt_log(HKT_LOG_WARN, "deregistered memory at %p stays shared: /proc/self/maps: %s", (void *)s->base,
                strerror(-rc));
}

/* Moves [from, from + s->size) under the descriptor. */
static int move(struct hkt_segment *s, uintptr_t from)
{
    int error = hkt_alloc_check() ? -ENOMEM : copy_in(s->fd, (char *)from, s->size);

    if (!error && mmap((void *)from, s->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, s->fd, 0) == MAP_FAILED)
        error = -errno;
    if (error)
        return hkt_fail(HKT_ERR_MEMORY, "cannot share %zu bytes at %p: %s", s->size, (void *)from, strerror(-error));
    s->base    = (char *)from;
    s->adopted = true;
    return 0;
}

static int adopt(struct hkt_segment **segment, struct hkt_process *self, uintptr_t from, uintptr_t to)
{
    const char         *why = refuse(from, to);
    struct hkt_segment *s;
    int                 rc;

    if (why)
        return hkt_fail(HKT_ERR_UNSUPPORTED, "memory at %p to %p cannot be shared: %s", (void *)from, (void *)to, why);
    HKT_TRY(begin(&s, to - from, "registered memory"));
    rc = move(s, from);
    if (!rc && !enter(s, self)) {
        restore(s);
        rc = too_many(s->what);
    }
    if (rc)
        cancel(s);
    else
        *segment = s;
    return rc;
}

int hkt_segment_adopt(struct hkt_segment **segment, void *ptr, size_t size)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER; /* two ranges may overlap */
    const uintptr_t        page = page_size(), at = (uintptr_t)ptr;
    struct hkt_process    *self;
    int                    rc;

    HKT_TRY(hkt_process_self(&self));
    if (size > UINTPTR_MAX - at - page)
        return hkt_fail(HKT_ERR_UNSUPPORTED, "%zu bytes at %p cannot be shared: that is no memory", size, ptr);
    pthread_mutex_lock(&one_at_a_time);
    rc = adopt(segment, self, (at + page - 1) / page * page, (at + size) / page * page);
    pthread_mutex_unlock(&one_at_a_time);
    return rc;
}

/* ---- freeing --------------------------------------------------------------------------------------------------- */

void hkt_segment_free(struct hkt_segment *s)
{
    struct hkt_process *self;

    if (!s || hkt_process_forked() || hkt_process_self(&self))
        return;
    leave(s, self);
    hkt_process_forget(s->id);
    if (s->adopted)
        restore(s);
    else if (!HKT_THREAD_SANITIZER)
        munmap(s->base, s->size);
    cancel(s);
}

/* ---- sharing --------------------------------------------------------------------------------------------------- */

struct asked {
    struct hkt_process *peer;
    uint32_t            since; /* its life->detached before it was asked */
    int                 fd;
};

/* Has this peer mapped the segment? What was told before it last let go of a process counts no more: it may have been
 * this one. */
static bool knows(struct hkt_process *p, uint32_t id, uint32_t since)
{
    bool yes;

    pthread_mutex_lock(&lock);
    if (p->told_since != since) {
        for (int i = 0; i < HKT_SEGMENTS; i++) /* read under this lock, and by hkt_process_forget() */
            atomic_store_explicit(&p->told[i], 0, memory_order_relaxed);
        p->told_since = since;
    }
    yes = atomic_load_explicit(&p->told[id % HKT_SEGMENTS], memory_order_relaxed) == id;
    pthread_mutex_unlock(&lock);
    return yes;
}

static void note(const struct asked *a, uint32_t id)
{
    pthread_mutex_lock(&lock);
    if (a->peer->told_since == a->since)
        atomic_store_explicit(&a->peer->told[id % HKT_SEGMENTS], id, memory_order_relaxed); /* likewise */
    pthread_mutex_unlock(&lock);
}

static const char *reason(int error)
{
    return error == -ESRCH    ? "it has not attached this process"
           : error == -EMFILE ? "it, or this process, has as many open files as it may (ulimit -n)"
                              : hkt_errno_text(-error);
}

static int share_failed(const struct hkt_process *p, int error, const struct hkt_segment *s)
{
    if (!hkt_process_alive(p))
        return hkt_fail(HKT_ERR_PEER, "the process of a peer (host %s, pid %d) has died", p->life->host,
                        (int)p->life->pid);
    return hkt_fail(HKT_ERR_SYSTEM,
                    "the process of a peer (host %s, pid %d) cannot map %s of this one (%zu bytes): %s%s",
                    p->life->host, (int)p->life->pid, s->what, s->size, reason(error),
                    hkt_process_stopped(p) ? " (it is stopped)" : "");
}

/* Asks the peers that have not mapped the segment, at most BATCH of them, so that their helper threads work at the same
 * time. Gives how many were asked, or HKT_ERR_*; *next: the first of the list that was not looked at. */
static int ask_batch(struct asked asked[BATCH], const struct hkt_segment *s, struct hkt_process *const *list, int *next,
                     int end)
{
    struct hkt_process_address own;
    struct hkt_ask             ask = {.kind = HKT_ASK_MAP, .id = s->id, .size = s->size};
    int                        n   = 0;

    hkt_process_address(&own);
    memcpy(ask.from, own.uuid, sizeof(ask.from));
    for (; *next < end && n < BATCH; ++*next) {
        struct asked a    = {.peer = list[*next]};
        int          twin = 0;

        /* Pairs with hkt_process_detach() there. */
        a.since = atomic_load_explicit(&a.peer->life->detached, memory_order_acquire);
        while (twin < n && asked[twin].peer != a.peer)
            twin++;
        if (twin < n || a.peer->self || knows(a.peer, s->id, a.since))
            continue;
        a.fd = hkt_helper_send(&a.peer->life->address, &ask, s->fd, hkt_now_ns() + SHARE_NS, NULL);
        if (a.fd < 0) {
            while (n > 0)
                close(asked[--n].fd);
            return share_failed(a.peer, a.fd, s);
        }
        asked[n++] = a;
    }
    return n;
}

int hkt_segment_share(struct hkt_segment *segment, struct hkt_process *const *peers, int number)
{
    struct asked asked[BATCH];
    int          next = 0, rc = 0;

    if (hkt_process_forked())
        return hkt_process_self(&(struct hkt_process *){NULL});
    while (!rc && next < number) {
        const int      n        = ask_batch(asked, segment, peers, &next, number);
        const uint64_t deadline = hkt_now_ns() + SHARE_NS;

        if (n < 0)
            return n;
        for (int i = 0; i < n; i++) {
            const int error = hkt_helper_answer(asked[i].fd, deadline, asked[i].peer, NULL);

            if (!error)
                note(&asked[i], segment->id);
            else if (!rc)
                rc = share_failed(asked[i].peer, error, segment);
        }
    }
    return rc;
}
