/* offload.c -- see offload.h.
 *
 * The file has two copies of everything and a page for each that says which generation (step) it is. A step reads one
 * and writes the other, whose page is first made void and at the end made valid: a process that is killed at any moment
 * leaves the generation before whole.
 *
 * A process that dies loses nothing that it wrote, a machine that fails does: the kernel writes in any order. So a page
 * has the machine's boot, too, and after another boot only a copy counts that hkt_offload_force() has put on the disk:
 * data first, then its page. That costs as much as writing all of it, so who wants it asks. A forced copy is made void
 * on the disk before it is written over.
 */
#include <parallel/bucket.h>
#include <parallel/offload.h>
#include <parallel/offload_ring.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KINDS = 3, BUFFERS = 3, COPIES = 2, PAGE = 4096 };

/* Lies at PAGE * copy. */
struct page {
    char     magic[8];
    uint64_t version, generation, count, kinds, layout, forced, checksum; /* forced: 1, it is on the disk */
    uint64_t boot; /* the machine's, when it was written; 0: unknown */
};
static const char magic[8] = "hktzero";

struct buffer {
    struct hkt_offload    *owner;
    float                 *memory[KINDS];
    const struct hkt_tile *tile;
    hkt_event_t           *read, *written;
    int                    rc; /* of the read */
};

struct hkt_offload {
    struct hkt_offload_rule rule;
    float                  *array[KINDS]; /* HOST */
    int                     file;         /* FILE, else -1 */
    int                     current;      /* copy that is read; the other is written */
    uint64_t                generation[COPIES];
    bool                    whole[COPIES], forced[COPIES];
    uint64_t                boot;
    hkt_stream_t           *reader, *writer;
    struct hkt_ring        *ring[2]; /* of reader and writer; NULL: plain reads and writes */
    struct buffer           buffer[BUFFERS];
    hkt_offload_times_t     times;
};

static uint64_t checksum_of(const struct page *p)
{
    const uint64_t x[] = {p->version, p->generation, p->count, p->kinds, p->layout, p->forced};
    uint64_t       sum = 0x9e3779b97f4a7c15u;

    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        sum = (sum ^ x[i]) * 0xff51afd7ed558ccdu + (sum >> 31);
    return sum;
}

/* Bytes [at, at + size) of the file, all of them. */
static int transfer(const struct hkt_offload *o, void *memory, size_t size, off_t at, bool write)
{
    char *m = memory;

    while (size) {
        const ssize_t n = write ? pwrite(o->file, m, size, at) : pread(o->file, m, size, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return hkt_error_set(HKT_ERR_SYSTEM, "%s %zu bytes at offset %lld of %s: %s", write ? "writing" : "reading",
                                 size, (long long)at, o->rule.path, n < 0 ? strerror(errno) : "the file ends there");
        m += n;
        size -= (size_t)n;
        at += n;
    }
    return HKT_OK;
}

static off_t place(const struct hkt_offload *o, int copy, int kind, size_t first)
{
    const size_t array = (size_t)copy * (size_t)o->rule.kinds + (size_t)kind;
    return (off_t)(PAGE * (size_t)COPIES + (array * o->rule.count + first) * sizeof(float));
}

/* A number of the kernel's identifier of this boot. */
static uint64_t boot_of_machine(void)
{
    char      text[64];
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t   n    = file < 0 ? 0 : read(file, text, sizeof text);

    if (file >= 0)
        (void)close(file);
    return n > 0 ? hkt_checksum(text, (size_t)n, 0) | 1 : 0;
}

static int force(const struct hkt_offload *o)
{
    return fdatasync(o->file) == 0
               ? HKT_OK
               : hkt_error_set(HKT_ERR_SYSTEM, "forcing %s to the disk: %s", o->rule.path, strerror(errno));
}

static int stamp(struct hkt_offload *o, int copy, bool whole, uint64_t generation)
{
    const bool  was_forced = o->forced[copy];
    struct page p          = {.version    = 2,
                              .generation = generation,
                              .count      = o->rule.count,
                              .kinds      = (uint64_t)o->rule.kinds,
                              .layout     = o->rule.layout,
                              .boot       = o->boot};

    o->whole[copy]      = whole;
    o->forced[copy]     = false;
    o->generation[copy] = generation;
    if (o->file < 0)
        return HKT_OK;
    memcpy(p.magic, magic, sizeof magic);
    p.checksum = whole ? checksum_of(&p) : 0;
    TRY(transfer(o, &p, sizeof p, (off_t)PAGE * copy, true));
    return was_forced && !whole ? force(o) : HKT_OK;
}

int hkt_offload_force(struct hkt_offload *o)
{
    const off_t at = (off_t)PAGE * o->current;
    struct page p;

    if (o->file < 0 || o->forced[o->current])
        return HKT_OK;
    TRY(force(o));
    TRY(transfer(o, &p, sizeof p, at, false));
    p.forced   = 1;
    p.checksum = checksum_of(&p);
    TRY(transfer(o, &p, sizeof p, at, true));
    TRY(force(o));
    o->forced[o->current] = true;
    return HKT_OK;
}

static int read_stamps(struct hkt_offload *o)
{
    bool        lost = false; /* a copy that only the memory of a machine had that has been started anew since */
    struct page p;

    for (int copy = 0; copy < COPIES; copy++) {
        TRY(transfer(o, &p, sizeof p, (off_t)PAGE * copy, false));
        if (memcmp(p.magic, magic, sizeof magic) != 0 || p.version != 2 || p.count != o->rule.count ||
            p.kinds != (uint64_t)o->rule.kinds || p.layout != o->rule.layout)
            return hkt_error_set(
                HKT_ERR_ARGUMENT,
                "%s is not the state of this layout: %llu elements of %llu arrays, layout %016llx, where %zu of %d and "
                "%016llx are needed; start without `resume` and from a checkpoint",
                o->rule.path, (unsigned long long)p.count, (unsigned long long)p.kinds, (unsigned long long)p.layout,
                o->rule.count, o->rule.kinds, (unsigned long long)o->rule.layout);
        o->whole[copy]      = p.checksum == checksum_of(&p);
        o->forced[copy]     = o->whole[copy] && p.forced;
        o->generation[copy] = p.generation;
        if (o->whole[copy] && !p.forced && (!p.boot || p.boot != o->boot)) {
            o->whole[copy] = false;
            lost           = true;
        }
    }
    if (!o->whole[0] && !o->whole[1] && lost)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "%s was written before the machine was started anew, or by another one, and not forced to "
                             "the disk (hkt_zero_persist): parts of it may be missing; start without `resume` and from "
                             "a checkpoint",
                             o->rule.path);
    if (!o->whole[0] && !o->whole[1])
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s was left before any state was complete; start without `resume`",
                             o->rule.path);
    o->current = !o->whole[0] || (o->whole[1] && o->generation[1] > o->generation[0]);
    return HKT_OK;
}

static int open_file(struct hkt_offload *o)
{
    o->file = open(o->rule.path, O_RDWR | O_CLOEXEC | (o->rule.resume ? 0 : O_CREAT | O_TRUNC), 0600);
    if (o->file < 0)
        return hkt_error_set(HKT_ERR_SYSTEM, "opening %s for optimizer state: %s", o->rule.path, strerror(errno));
    o->ring[0] = hkt_ring_make();
    o->ring[1] = hkt_ring_make();
    if (o->rule.resume)
        return read_stamps(o);
    if (ftruncate(o->file, place(o, COPIES, 0, 0)) < 0)
        return hkt_error_set(HKT_ERR_SYSTEM, "making %s %lld bytes large: %s", o->rule.path,
                             (long long)place(o, COPIES, 0, 0), strerror(errno));
    TRY(stamp(o, 1, false, 0));
    return stamp(o, 0, true, 0);
}

static int take_host(struct hkt_offload *o)
{
    const size_t       bytes = o->rule.count * sizeof(float), wanted = bytes * (size_t)o->rule.kinds;
    hkt_ledger_entry_t entry = {0, 0, 0};

    if (o->rule.host)
        TRY(hkt_ledger_read(&entry, HKT_BYTES_OPTIMIZER, o->rule.host));
    if (o->rule.host_cap && entry.now + wanted > o->rule.host_cap)
        return hkt_error_set(
            HKT_ERR_MEMORY,
            "optimizer state needs %zu bytes in host memory, where %zu of at most %zu are taken; use a higher stage, "
            "more ranks, or a file",
            wanted, entry.now, o->rule.host_cap);
    for (int k = 0; k < o->rule.kinds; k++) {
        void *memory;
        TRY(hkt_ledger_take(&memory, bytes, HKT_BYTES_OPTIMIZER, false, o->rule.host));
        o->array[k] = memory;
    }
    return HKT_OK;
}

/* The buffer's tile in the file: all arrays at a time where there is a ring. */
static int move_file(const struct buffer *b, bool write)
{
    struct hkt_offload *o     = b->owner;
    const int           kinds = o->rule.kinds;
    struct hkt_transfer list[KINDS];

    for (int k = 0; k < kinds; k++)
        list[k] = (struct hkt_transfer){(char *)b->memory[k], b->tile->count * sizeof(float),
                                        place(o, o->current ^ (int)write, k, b->tile->first)};
    if (o->ring[write]) {
        const int error = hkt_ring_transfer(o->ring[write], o->file, list, kinds, write);
        return error ? hkt_error_set(HKT_ERR_SYSTEM, "%s a tile of %s: %s", write ? "writing" : "reading", o->rule.path,
                                     error < 0 ? "the file ends there" : strerror(error))
                     : HKT_OK;
    }
    for (int k = 0; k < kinds; k++)
        TRY(transfer(o, list[k].memory, list[k].size, list[k].at, write));
    return HKT_OK;
}

/* Reads or writes the buffer's tile. */
static int move(const struct buffer *b, bool write)
{
    struct hkt_offload *o     = b->owner;
    const size_t        bytes = b->tile->count * sizeof(float);

    if (o->file >= 0)
        return move_file(b, write);
    for (int k = 0; k < o->rule.kinds; k++) {
        float *there = o->array[k] + b->tile->first;
        memcpy(write ? there : b->memory[k], write ? b->memory[k] : there, bytes);
    }
    return HKT_OK;
}

static int read_tile(void *arg)
{
    struct buffer *b     = arg;
    const double   start = hkt_bucket_clock();

    b->rc = move(b, false);
    b->owner->times.reading += hkt_bucket_clock() - start;
    return b->rc;
}

static int write_tile(void *arg)
{
    struct buffer *b     = arg;
    const double   start = hkt_bucket_clock();
    const int      rc    = move(b, true);

    b->owner->times.writing += hkt_bucket_clock() - start;
    return rc;
}

/* Has tile k read into its buffer, once what was there before is written. */
static int begin_read(struct hkt_offload *o, const struct hkt_pass *p, int k)
{
    struct buffer *b = &o->buffer[k % BUFFERS];

    TRY(hkt_event_synchronize(b->written));
    b->tile = &p->tiles[k];
    TRY(hkt_stream_call(o->reader, read_tile, b));
    return hkt_event_record(b->read, o->reader);
}

static int work_on(struct hkt_offload *o, const struct hkt_pass *p, int k)
{
    struct buffer *b = &o->buffer[k % BUFFERS];

    if (k + 1 < p->count)
        TRY(begin_read(o, p, k + 1));
    TRY(hkt_event_synchronize(b->read));
    if (b->rc < 0) /* before anything is made from it; the sentence is the stream's */
        return b->rc;
    const double start = hkt_bucket_clock();
    TRY(p->work(p->arg, b->tile, b->memory));
    o->times.updating += hkt_bucket_clock() - start;
    if (!p->keep)
        return HKT_OK;
    TRY(hkt_stream_call(o->writer, write_tile, b));
    return hkt_event_record(b->written, o->writer);
}

static int make_buffers(struct hkt_offload *o)
{
    TRY(hkt_stream_create(&o->reader));
    TRY(hkt_stream_create(&o->writer));
    for (int i = 0; i < BUFFERS; i++) {
        struct buffer *b = &o->buffer[i];
        b->owner         = o;
        TRY(hkt_event_create(&b->read));
        TRY(hkt_event_create(&b->written));
        for (int k = 0; k < o->rule.kinds; k++) {
            void *memory;
            TRY(hkt_ledger_take(&memory, o->rule.largest * sizeof(float), HKT_BYTES_OPTIMIZER, false, o->rule.device));
            b->memory[k] = memory;
        }
    }
    return HKT_OK;
}

int hkt_offload_make(struct hkt_offload **offload, const struct hkt_offload_rule *rule)
{
    if (rule->tier == HKT_TIER_FILE && !rule->path)
        return hkt_error_set(HKT_ERR_ARGUMENT, "optimizer state in a file needs the path of the file");
    struct hkt_offload *o = calloc(1, sizeof *o);
    if (!o)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for offloading");
    o->rule = *rule;
    o->file = -1;
    o->boot = boot_of_machine();
    int rc  = rule->tier == HKT_TIER_FILE ? open_file(o) : take_host(o);
    if (rc == HKT_OK)
        rc = make_buffers(o);
    if (rc < 0) {
        char why[1024];
        (void)snprintf(why, sizeof why, "%s", hkt_last_error());
        (void)hkt_offload_free(o);
        return hkt_error_set(rc, "%s", why);
    }
    *offload = o;
    return HKT_OK;
}

int hkt_offload_free(struct hkt_offload *o)
{
    if (!o)
        return HKT_OK;
    (void)hkt_stream_destroy(o->reader);
    (void)hkt_stream_destroy(o->writer);
    for (int i = 0; i < BUFFERS; i++) {
        (void)hkt_event_destroy(o->buffer[i].read);
        (void)hkt_event_destroy(o->buffer[i].written);
        for (int k = 0; k < KINDS; k++)
            (void)hkt_ledger_give(o->buffer[i].memory[k], o->rule.device);
    }
    for (int k = 0; k < KINDS; k++)
        (void)hkt_ledger_give(o->array[k], o->rule.host);
    hkt_ring_free(o->ring[0]);
    hkt_ring_free(o->ring[1]);
    if (o->file >= 0)
        (void)close(o->file);
    free(o);
    return HKT_OK;
}

uint64_t hkt_offload_generation(const struct hkt_offload *o)
{
    return o->generation[o->current];
}

int hkt_offload_choose(struct hkt_offload *o, uint64_t generation)
{
    for (int copy = 0; copy < COPIES; copy++)
        if (o->whole[copy] && o->generation[copy] == generation) {
            o->current = copy;
            return HKT_OK;
        }
    return hkt_error_set(HKT_ERR_ARGUMENT,
                         "%s has no whole state of step %llu, which other ranks have (%llu and %llu are there)",
                         o->rule.path, (unsigned long long)generation, (unsigned long long)o->generation[0],
                         (unsigned long long)o->generation[1]);
}

int hkt_offload_pass(struct hkt_offload *o, const struct hkt_pass *p)
{
    const double start = hkt_bucket_clock();
    int          rc    = HKT_OK;

    o->times = (hkt_offload_times_t){0};
    if (p->keep && o->file >= 0)
        TRY(stamp(o, !o->current, false, 0));
    if (p->count)
        rc = begin_read(o, p, 0);
    for (int k = 0; k < p->count && rc == HKT_OK; k++)
        rc = work_on(o, p, k);
    const int read = hkt_stream_synchronize(o->reader), written = hkt_stream_synchronize(o->writer);
    if (rc == HKT_OK || read < 0)
        rc = read < 0 ? read : written;
    o->times.whole = hkt_bucket_clock() - start;
    if (rc < 0 || !p->keep)
        return rc;
    if (o->file >= 0)
        o->current = !o->current;
    return stamp(o, o->current, true, p->generation);
}

int hkt_offload_get(float *values, int kind, size_t first, size_t count, struct hkt_offload *o)
{
    if (o->file >= 0)
        return transfer(o, values, count * sizeof *values, place(o, o->current, kind, first), false);
    memcpy(values, o->array[kind] + first, count * sizeof *values);
    return HKT_OK;
}

int hkt_offload_put(struct hkt_offload *o, int kind, size_t first, size_t count, const float *values)
{
    if (o->file < 0) {
        memcpy(o->array[kind] + first, values, count * sizeof *values);
        return HKT_OK;
    }
    if (o->whole[o->current])
        TRY(stamp(o, o->current, false, 0));
    float *from = (float *)(uintptr_t)values; /* transfer() only reads it when it writes the file */
    return transfer(o, from, count * sizeof *values, place(o, o->current, kind, first), true);
}

int hkt_offload_settle(struct hkt_offload *o, uint64_t generation)
{
    if (o->whole[o->current] && o->generation[o->current] == generation) /* nothing was put: it may be forced */
        return HKT_OK;
    return stamp(o, o->current, true, generation);
}

float *hkt_offload_memory(struct hkt_offload *o, int kind)
{
    return o->array[kind];
}

void hkt_offload_times(hkt_offload_times_t *times, const struct hkt_offload *o)
{
    *times      = o->times;
    times->ring = o->ring[0] && o->ring[1];
}
