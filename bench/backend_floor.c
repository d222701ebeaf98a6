/* backend_floor.c -- no library at all: the least that the machine needs for each collective when every rank may touch
 * every buffer. Two flags a rank and one loop over memory; no matching, no errors, no plan, no timeout. bench/versus
 * takes the best kind of each cell as its floor. slot    small: everybody posts into its own ring of slots, everybody
 * reads (one exchange of lines an operation) pull    the destination reads the sources in place push    the work is
 * divided, and each part is read once and stored to all destinations (all-reduce: 2nS bytes in all) nt      as push,
 * with non-temporal stores movs    as pull, copied with `rep movsb` */
#include "harness.h"
#include "floor_kernels.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum kind { SLOT, PULL, PUSH, NT, MOVS };
enum {
    DEEP       = 64,
    DEEP_BYTES = 4096,
    FLAT       = 8,
    SLOT_BYTES = 65536,
    LINE       = 64,
    IN_LINE    = 48,
    REGIONS    = 2,
    PATIENCE   = 20
};

/* What a rank tells the others: how many operations it has entered, and how many it has done with. Monotone. */
struct flags {
    _Alignas(LINE) _Atomic uint64_t entered;
    _Alignas(LINE) _Atomic uint64_t done;
};

/* A post that fits in a line travels with its number, so that one line moves per reader. */
struct slot {
    _Alignas(LINE) _Atomic uint64_t number;
    char small[IN_LINE];
};

/* Small posts may run far ahead of their readers, which saves switches when ranks share processors; large ones stay in
 * the cache. */
struct shared {
    struct flags flags;
    struct slot  deep[DEEP], flat[FLAT];
    char         deep_data[DEEP][DEEP_BYTES], flat_data[FLAT][SLOT_BYTES];
};

struct region { /* one buffer of every rank */
    char  *of[MAX_RANKS];
    size_t bytes;
};

static const struct world *me;
static struct shared      *posts[MAX_RANKS];
static struct region       regions[REGIONS];
static enum kind           kind;
static uint64_t            number;     /* of the current operation */
static uint64_t            known_done; /* every rank has done with this one */

/* ---- memory that every rank can touch ---- */
static void *map_of(pid_t pid, int fd, size_t bytes)
{
    char  path[64];
    int   theirs;
    void *p;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
    theirs = open(path, O_RDWR | O_CLOEXEC);
    if (theirs < 0) {
        perror(path);
        exit(1);
    }
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, theirs, 0);
    close(theirs);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return p;
}

static void map_all(void **of, size_t bytes)
{
    struct {
        pid_t pid;
        int   fd;
    } mine = {getpid(), memfd_create("floor", MFD_CLOEXEC)}, all[MAX_RANKS];

    if (mine.fd < 0 || ftruncate(mine.fd, (off_t)bytes)) {
        perror("memfd_create");
        exit(1);
    }
    exchange(&mine, all, sizeof mine);
    for (int i = 0; i < me->size; i++)
        of[i] = map_of(all[i].pid, all[i].fd, bytes);
    line_up();
    close(mine.fd);
}

static int floor_open(const struct world *world, char *version, size_t size)
{
    me = world;
    map_all((void **)posts, sizeof(struct shared));
    snprintf(version, size, "hand-written loops, %s", kernel_name());
    return 0;
}

static void floor_close(void)
{
}

static void floor_select(int k)
{
    kind = (enum kind)k;
}

static void *floor_allocate(int k, size_t bytes)
{
    struct region *r = regions[0].bytes ? &regions[1] : &regions[0];

    (void)k;
    if (r->bytes)
        return NULL;
    map_all((void **)r->of, bytes);
    r->bytes = bytes;
    return r->of[me->rank];
}

static void floor_release(int k, void *memory, size_t bytes)
{
    struct region *r = regions[0].of[me->rank] == memory ? &regions[0] : &regions[1];

    (void)k;
    for (int i = 0; i < me->size; i++)
        munmap(r->of[i], bytes);
    *r = (struct region){.bytes = 0};
}

/* The same buffer in rank `rank`. */
static char *theirs(const void *mine, int rank)
{
    for (int i = 0; i < REGIONS; i++) {
        const ptrdiff_t at = (const char *)mine - regions[i].of[me->rank];

        if (regions[i].bytes && at >= 0 && (size_t)at < regions[i].bytes)
            return regions[i].of[rank] + at;
    }
    abort();
}

/* ---- waiting ---- */
static uint64_t wait_for(_Atomic uint64_t *flag, uint64_t value)
{
    uint64_t seen;

    for (int polls = 0; (seen = atomic_load_explicit(flag, memory_order_acquire)) < value; polls++) {
        if (me->shared && polls >= PATIENCE)
            sched_yield();
        else
            kernel_pause();
    }
    return seen;
}

static void tell(_Atomic uint64_t *flag, uint64_t value)
{
    atomic_store_explicit(flag, value, memory_order_release); /* pairs with the load in wait_for() */
}

static void enter(void)
{
    tell(&posts[me->rank]->flags.entered, ++number);
    for (int i = 0; i < me->size; i++)
        wait_for(&posts[i]->flags.entered, number);
}

static void leave(void)
{
    tell(&posts[me->rank]->flags.done, number);
    for (int i = 0; i < me->size; i++)
        wait_for(&posts[i]->flags.done, number);
    known_done = number;
}

/* ---- slots ---- */
static struct slot *slot_of(struct shared *of, size_t bytes, char **data)
{
    struct slot *s = bytes <= DEEP_BYTES ? &of->deep[number % DEEP] : &of->flat[number % FLAT];

    *data = bytes <= IN_LINE      ? s->small
            : bytes <= DEEP_BYTES ? of->deep_data[number % DEEP]
                                  : of->flat_data[number % FLAT];
    return s;
}

/* The slot that is written next must have been read by all. */
static void slot_free(uint64_t depth)
{
    if (number <= depth || known_done >= number - depth)
        return;
    known_done = number;
    for (int i = 0; i < me->size; i++) {
        const uint64_t done = i == me->rank ? number : wait_for(&posts[i]->flags.done, number - depth);

        known_done = done < known_done ? done : known_done;
    }
}

static void slot_post(const void *data, size_t bytes)
{
    char        *at;
    struct slot *s = slot_of(posts[me->rank], bytes, &at);

    slot_free(bytes <= DEEP_BYTES ? DEEP : FLAT);
    memcpy(at, data, bytes);
    tell(&s->number, number);
}

static const char *slot_read(int from, size_t bytes)
{
    char        *at;
    struct slot *s = slot_of(posts[from], bytes, &at);

    wait_for(&s->number, number);
    return at;
}

static void slot_done(void)
{
    tell(&posts[me->rank]->flags.done, number);
}

static int slot_begin(size_t bytes)
{
    number += bytes <= SLOT_BYTES;
    return bytes <= SLOT_BYTES ? 0 : -1;
}

/* ---- collectives ---- */
static int slot_reduce(const void *send, void *recv, size_t offset, size_t bytes, size_t whole)
{
    const char *in[MAX_RANKS];
    char       *out = recv;

    if (slot_begin(whole))
        return -1;
    slot_post(send, whole);
    for (int i = 0; i < me->size; i++)
        in[i] = slot_read(i, whole) + offset;
    kernel_reduce(&out, 1, in, me->size, bytes, 0);
    slot_done();
    return 0;
}

/* This rank's share of `bytes`, in whole lines. */
static void share(size_t bytes, size_t *from, size_t *to)
{
    const size_t lines = (bytes + LINE - 1) / LINE, n = (size_t)me->size, r = (size_t)me->rank;

    *from = lines * r / n * LINE;
    *to   = lines * (r + 1) / n * LINE;
    *to   = *to < bytes ? *to : bytes;
    *from = *from < *to ? *from : *to;
}

static int floor_all_reduce(const void *send, void *recv, size_t count, enum element type)
{
    const char *in[MAX_RANKS];
    char       *out[MAX_RANKS], *own = recv;
    size_t      from, to, bytes = count * 4;

    if (type != FLOAT32 || kind == MOVS || (kind == PULL && send == recv))
        return -1;
    if (kind == SLOT)
        return slot_reduce(send, recv, 0, bytes, bytes);
    share(bytes, &from, &to);
    for (int i = 0; i < me->size; i++) {
        in[i]  = theirs(send, i) + (kind == PULL ? 0 : from);
        out[i] = theirs(recv, i) + from;
    }
    enter();
    if (kind == PULL)
        kernel_reduce(&own, 1, in, me->size, bytes, 0);
    else
        kernel_reduce(out, me->size, in, me->size, to - from, kind == NT);
    leave();
    return 0;
}

static int floor_reduce_scatter(const void *send, void *recv, size_t count, enum element type)
{
    const size_t block = count * 4, offset = block * (size_t)me->rank;
    const char  *in[MAX_RANKS];
    char        *out = recv;

    if (type != FLOAT32 || kind == MOVS || kind == PUSH)
        return -1;
    if (kind == SLOT)
        return slot_reduce(send, recv, offset, block, block * (size_t)me->size);
    for (int i = 0; i < me->size; i++)
        in[i] = theirs(send, i) + offset;
    enter();
    kernel_reduce(&out, 1, in, me->size, block, kind == NT);
    leave();
    return 0;
}

static int floor_all_gather(const void *send, void *recv, size_t count, enum element type)
{
    const size_t block = count * 4;
    const char  *in    = send;
    char        *out[MAX_RANKS];

    (void)type;
    if (kind == SLOT) {
        if (slot_begin(block))
            return -1;
        slot_post(send, block);
        for (int i = 0; i < me->size; i++)
            memcpy((char *)recv + (size_t)i * block, slot_read(i, block), block);
        slot_done();
        return 0;
    }
    for (int i = 0; i < me->size; i++)
        out[i] = theirs(recv, i) + (size_t)me->rank * block;
    enter();
    if (kind == PUSH || kind == NT)
        kernel_reduce(out, me->size, &in, 1, block, kind == NT);
    else
        for (int i = 0; i < me->size; i++)
            kernel_copy((char *)recv + (size_t)i * block, theirs(send, i), block,
                        kind == MOVS ? COPY_MOVS : COPY_PLAIN);
    leave();
    return 0;
}

static int floor_broadcast(void *buffer, size_t count, enum element type)
{
    size_t      bytes = count * 4, from, to;
    const char *in;
    char       *out[MAX_RANKS];

    (void)type;
    if (kind == SLOT) {
        if (slot_begin(bytes))
            return -1;
        if (me->rank == 0)
            slot_post(buffer, bytes);
        else
            memcpy(buffer, slot_read(0, bytes), bytes);
        slot_done();
        return 0;
    }
    share(bytes, &from, &to);
    in = theirs(buffer, 0) + from;
    for (int i = 1; i < me->size; i++)
        out[i - 1] = theirs(buffer, i) + from;
    enter();
    if (kind == PUSH || kind == NT)
        kernel_reduce(out, me->size - 1, &in, 1, to - from, kind == NT);
    else if (me->rank)
        kernel_copy(buffer, theirs(buffer, 0), bytes, kind == MOVS ? COPY_MOVS : COPY_PLAIN);
    leave();
    return 0;
}

static int floor_all_to_all(const void *send, void *recv, size_t count, enum element type)
{
    const size_t block = count * 4, mine = block * (size_t)me->rank, n = (size_t)me->size;

    (void)type;
    if (kind == SLOT) {
        if (slot_begin(block * n))
            return -1;
        slot_post(send, block * n);
        for (int i = 0; i < me->size; i++)
            memcpy((char *)recv + (size_t)i * block, slot_read(i, block * n) + mine, block);
        slot_done();
        return 0;
    }
    enter();
    for (int j = 0; j < me->size; j++) {
        const int    i  = (me->rank + j) % me->size;
        const size_t at = (size_t)i * block;

        if (kind == PUSH || kind == NT)
            kernel_copy(theirs(recv, i) + mine, (const char *)send + at, block, kind == NT ? COPY_NT : COPY_PLAIN);
        else
            kernel_copy((char *)recv + at, theirs(send, i) + mine, block, kind == MOVS ? COPY_MOVS : COPY_PLAIN);
    }
    leave();
    return 0;
}

static int floor_sendrecv(const void *send, int to, void *recv, int from, size_t count, enum element type)
{
    const size_t bytes = count * 4;

    (void)type;
    if (kind == SLOT) {
        if (slot_begin(bytes))
            return -1;
        slot_post(send, bytes);
        memcpy(recv, slot_read(from, bytes), bytes);
        slot_done();
        return 0;
    }
    tell(&posts[me->rank]->flags.entered, ++number);
    if (kind == PUSH || kind == NT) {
        wait_for(&posts[to]->flags.entered, number);
        kernel_copy(theirs(recv, to), send, bytes, kind == NT ? COPY_NT : COPY_PLAIN);
        tell(&posts[me->rank]->flags.done, number);
        wait_for(&posts[from]->flags.done, number);
    } else {
        wait_for(&posts[from]->flags.entered, number);
        kernel_copy(recv, theirs(send, from), bytes, kind == MOVS ? COPY_MOVS : COPY_PLAIN);
        tell(&posts[me->rank]->flags.done, number);
        wait_for(&posts[to]->flags.done, number);
    }
    return 0;
}

/* A message counts as an operation of both; the one that is not in it (rank > 1) takes no part in the ping-pong at all.
 */
static int floor_send(const void *send, size_t count, enum element type, int to)
{
    const size_t bytes = count * 4;

    (void)type;
    if (kind != SLOT && kind != PULL && kind != MOVS)
        return -1;
    if (kind == SLOT) {
        if (slot_begin(bytes))
            return -1;
        slot_post(send, bytes);
        slot_done();
        return 0;
    }
    tell(&posts[me->rank]->flags.entered, ++number);
    wait_for(&posts[to]->flags.done, number);
    return 0;
}

static int floor_receive(void *recv, size_t count, enum element type, int from)
{
    const size_t bytes = count * 4;

    (void)type;
    if (kind != SLOT && kind != PULL && kind != MOVS)
        return -1;
    if (kind == SLOT) {
        if (slot_begin(bytes))
            return -1;
        memcpy(recv, slot_read(from, bytes), bytes);
        slot_done();
        return 0;
    }
    number++;
    wait_for(&posts[from]->flags.entered, number);
    kernel_copy(recv, regions[0].of[from], bytes,
                kind == MOVS ? COPY_MOVS : COPY_PLAIN); /* the harness sends from there */
    tell(&posts[me->rank]->flags.done, number);
    return 0;
}

const struct backend the_backend = {
    .one_memory     = 1,
    .open           = floor_open,
    .close          = floor_close,
    .select         = floor_select,
    .allocate       = floor_allocate,
    .release        = floor_release,
    .all_reduce     = floor_all_reduce,
    .reduce_scatter = floor_reduce_scatter,
    .all_gather     = floor_all_gather,
    .broadcast      = floor_broadcast,
    .all_to_all     = floor_all_to_all,
    .sendrecv       = floor_sendrecv,
    .send           = floor_send,
    .receive        = floor_receive,
};
