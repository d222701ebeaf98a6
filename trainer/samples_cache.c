/* samples_cache.c -- the index of a data set in a file that ranks and jobs share.
 *
 * Its name is a hash of all that the index depends on, which stands in the file as text, too. It is looked for without
 * a lock; where it is missing or damaged, the lock is taken, it is looked for again, made under a temporary name,
 * synchronised and renamed. So two jobs never write one file, and nobody sees half a file; a builder that dies leaves
 * the lock to the next. The file: "HKTINDEX", u64 bytes of the text, u64 numbers, u64 checksum of text and numbers;
 * text, padded to 8 bytes; i64 numbers
 */
#include "samples_index.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT = 512 /* bytes of the description; a multiple of 8 */ };

struct head {
    char     magic[8];
    uint64_t text, numbers, checksum;
    char     description[TEXT];
};

static void describe(struct head *head, const struct index_plan *plan, const struct indexed *indexed,
                     const struct samples_description *d)
{
    *head          = (struct head){.magic = "HKTINDE", .text = TEXT, .numbers = index_numbers(plan)};
    head->magic[7] = 'X';
    snprintf(head->description, TEXT,
             "samples 1\nindex %016" PRIx64 "\ntype %s\ntokens %" PRIu64
             "\ndocuments %zu %zu\nlength %zu\nwanted %" PRIu64 "\nseed %" PRIu64 "\npartial %d\nsamples %" PRIu64
             "\nepochs %" PRIu64 "\n",
             indexed_checksum(indexed), token_name(indexed_code(indexed)), indexed_tokens(indexed), d->first, d->last,
             d->length, d->wanted, d->seed, d->keep_partial, plan->samples, plan->epochs);
}

static uint64_t checksum_of(const struct head *head, const int64_t *numbers)
{
    return hkt_checksum(numbers, head->numbers * sizeof(*numbers), hkt_checksum(head->description, TEXT, 0));
}

static int make(struct index_memory *memory, struct head *head, const struct index_plan *plan,
                const struct indexed *indexed, const struct samples_description *d)
{
    int64_t *arrays;

    memory->size = head->numbers * sizeof(*arrays);
    arrays       = malloc(memory->size);
    if (!arrays)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for an index of %zu bytes", memory->size);
    index_make(arrays, plan, indexed, d);
    head->checksum    = checksum_of(head, arrays);
    memory->allocated = arrays;
    memory->arrays    = arrays;
    memory->checksum  = head->checksum;
    return HKT_OK;
}

/* Maps the file when it is there, whole and of this description. */
static bool map(struct index_memory *memory, const char *path, const struct head *head)
{
    const size_t       size = sizeof(*head) + head->numbers * sizeof(int64_t);
    const int          fd   = open(path, O_RDONLY | O_CLOEXEC);
    struct stat        status;
    const struct head *found;
    const int64_t     *numbers;

    if (fd < 0)
        return false;
    found = fstat(fd, &status) || (size_t)status.st_size != size ? MAP_FAILED
                                                                 : mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (found == MAP_FAILED)
        return false;
    numbers = (const int64_t *)(found + 1);
    if (memcmp(found, head, offsetof(struct head, checksum)) != 0 ||
        memcmp(found->description, head->description, TEXT) != 0 || found->checksum != checksum_of(head, numbers)) {
        munmap((void *)(uintptr_t)found, size);
        return false;
    }
    *memory = (struct index_memory){
        .arrays = numbers, .checksum = found->checksum, .mapped = (void *)(uintptr_t)found, .size = size};
    return true;
}

static int write_all(int fd, const void *data, size_t size)
{
    const char *at = data;

    while (size) {
        const ssize_t n = write(fd, at, size);

        if (n < 0 && errno != EINTR)
            return -1;
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int store(const char *path, const struct head *head, const int64_t *numbers)
{
    char temporary[4200];
    int  fd, failed;

    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return hkt_error_set(HKT_ERR_SYSTEM, "creating %s: %s", temporary, strerror(errno));
    failed = write_all(fd, head, sizeof(*head)) || write_all(fd, numbers, head->numbers * sizeof(*numbers)) ||
             fsync(fd) || rename(temporary, path);
    if (failed) {
        const int error = errno;

        unlink(temporary);
        close(fd);
        return hkt_error_set(HKT_ERR_SYSTEM, "writing %s: %s", temporary, strerror(error));
    }
    close(fd);
    return HKT_OK;
}

/* What an index is made from. */
struct source {
    const struct index_plan          *plan;
    const struct indexed             *indexed;
    const struct samples_description *description;
};

/* With the lock held: the file may have come while this process waited for it. */
static int get_locked(struct index_memory *memory, struct head *head, const char *path, const struct source *from)
{
    int rc;

    if (map(memory, path, head))
        return HKT_OK;
    rc = make(memory, head, from->plan, from->indexed, from->description);
    if (rc == HKT_OK)
        rc = store(path, head, memory->arrays);
    if (rc == HKT_OK) {
        index_release(memory);
        if (!map(memory, path, head))
            rc = hkt_error_set(HKT_ERR_SYSTEM, "%s cannot be read back", path);
    }
    return rc;
}

static int get_cached(struct index_memory *memory, struct head *head, const struct source *from)
{
    char           path[4096], lock[4200];
    const uint64_t name = hkt_checksum(head->description, TEXT, 0);
    int            fd, rc;

    if (snprintf(path, sizeof(path), "%s/samples-%016" PRIx64 ".index", from->description->cache, name) >=
        (int)sizeof(path))
        return hkt_error_set(HKT_ERR_ARGUMENT, "the name of the cache folder is longer than 4000 bytes");
    if (map(memory, path, head))
        return HKT_OK;
    if (mkdir(from->description->cache, 0777) && errno != EEXIST)
        return hkt_error_set(HKT_ERR_SYSTEM, "making the cache folder %s: %s", from->description->cache,
                             strerror(errno));
    snprintf(lock, sizeof(lock), "%s.lock", path);
    fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || flock(fd, LOCK_EX)) {
        rc = hkt_error_set(HKT_ERR_SYSTEM, "locking %s: %s", lock, strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    rc = get_locked(memory, head, path, from);
    close(fd);
    return rc;
}

int index_get(struct index_memory *memory, const struct index_plan *plan, const struct indexed *indexed,
              const struct samples_description *d)
{
    const struct source from = {plan, indexed, d};
    struct head         head;

    describe(&head, plan, indexed, d);
    return d->cache ? get_cached(memory, &head, &from) : make(memory, &head, plan, indexed, d);
}

void index_release(struct index_memory *memory)
{
    if (memory->mapped)
        munmap(memory->mapped, memory->size);
    free(memory->allocated);
    *memory = (struct index_memory){0};
}
