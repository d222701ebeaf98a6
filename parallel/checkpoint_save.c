/* checkpoint_save.c -- writing a checkpoint so that it is complete or not there. See checkpoint.h for what lies where.
 *
 *   rank 0     takes the lock, removes what dead saves left, makes .tmp-step-N
 *   every rank writes and synchronises its data file there
 *   rank 0     gathers the ranks' lines; sees that every file has its size (a folder that is not shared shows here);
 *              writes the manifest; synchronises; renames the folder; replaces `latest`; removes the oldest
 * After each line all ranks agree whether to go on. Until the rename nothing that a reader looks at has changed; a
 * rename is atomic; and `latest` is only a hint. Space on disk is needed for one checkpoint more than are kept.
 */
#include "parallel/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a data file */

struct writer {
    int              fd;
    char             path[CHECKPOINT_PATH];
    unsigned char   *block; /* what is not written yet */
    size_t           filled;
    uint64_t        *table;
    size_t           blocks;
    struct data_file file;
};

static int flush(struct writer *w, const void *data, size_t size)
{
    w->table[w->blocks++] = hkt_checksum(data, size, 0);
    return file_write_all(w->fd, data, size, w->path);
}

static int append(struct writer *w, const void *data, size_t size)
{
    const unsigned char *at = data;

    w->file.bytes += size;
    while (size) {
        const size_t room = CHECKPOINT_BLOCK - w->filled, n = size < room ? size : room;

        if (n == CHECKPOINT_BLOCK) { /* a whole block needs no copy */
            TRY(flush(w, at, n));
        } else {
            memcpy(w->block + w->filled, at, n);
            w->filled += n;
            if (w->filled == CHECKPOINT_BLOCK) {
                TRY(flush(w, w->block, CHECKPOINT_BLOCK));
                w->filled = 0;
            }
        }
        at += n;
        size -= n;
    }
    return HKT_OK;
}

/* Writes the pieces and their lines. */
static int write_pieces(struct writer *w, struct text *lines, const struct save *s, int me)
{
    static const char zero[CHECKPOINT_ALIGN];

    for (size_t i = 0; i < s->n_pieces; i++) {
        const size_t  over   = w->file.bytes % CHECKPOINT_ALIGN;
        struct stored stored = {s->pieces[i], me, 0};

        TRY(append(w, zero, over ? CHECKPOINT_ALIGN - over : 0));
        stored.offset = w->file.bytes;
        TRY(append(w, s->pieces[i].data, piece_bytes(&s->pieces[i])));
        manifest_piece(lines, &stored);
    }
    if (w->filled)
        TRY(flush(w, w->block, w->filled));
    w->file.checksum = hkt_checksum(w->table, w->blocks * sizeof(*w->table), 0);
    manifest_file(lines, me, &w->file);
    TRY(file_write_all(w->fd, w->table, w->blocks * sizeof(*w->table), w->path));
    if (fsync(w->fd))
        return file_error("synchronising", w->path);
    return lines->failed ? hkt_error_set(HKT_ERR_MEMORY, "no memory for the lines of %zu pieces", s->n_pieces) : HKT_OK;
}

static int write_file(struct writer *w, struct text *lines, const struct save *s, int me)
{
    size_t bytes = 0;
    int    rc;

    for (size_t i = 0; i < s->n_pieces; i++)
        bytes += piece_bytes(&s->pieces[i]) + CHECKPOINT_ALIGN;
    w->block = malloc(CHECKPOINT_BLOCK);
    w->table = calloc(bytes / CHECKPOINT_BLOCK + 1, sizeof(*w->table));
    if (!w->block || !w->table)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for the checksums of %zu bytes", bytes);
    w->fd = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0)
        return file_error(errno == ENOENT ? "not every host sees the folder of the checkpoint: creating" : "creating",
                          w->path);
    rc = write_pieces(w, lines, s, me);
    if (close(w->fd) && rc == HKT_OK)
        rc = file_error("closing", w->path);
    return rc;
}

/* This rank's data file in `folder`, and its lines of the manifest. */
static int write_data(struct text *lines, const struct save *s, const char *folder)
{
    struct writer w = {.fd = -1};
    char          name[CHECKPOINT_NAME];
    int           me, rc;

    TRY(hkt_comm_rank(s->comm, &me));
    data_name(name, me);
    TRY(file_join(w.path, folder, name));
    rc = s->n_pieces ? write_file(&w, lines, s, me) : HKT_OK;
    free(w.block);
    free(w.table);
    return rc;
}

/* ---- what rank 0 does */

struct chief {
    int         lock; /* descriptor; -1 */
    struct text manifest;
};

static int take_lock(struct chief *chief, const char *folder)
{
    char path[CHECKPOINT_PATH];

    TRY(file_join(path, folder, ".lock"));
    chief->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (chief->lock < 0)
        return file_error("opening", path);
    if (flock(chief->lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return hkt_error_set(HKT_ERR_USAGE,
                             "another save into %s is at work (it holds %s); give every job a folder of its own",
                             folder, path);
    return HKT_OK; /* a file system without locks is used without */
}

/* Makes the temporary folder, whose name in `folder` it writes to `name`. */
static int prepare(struct chief *chief, char name[CHECKPOINT_NAME], const struct save *s)
{
    char path[CHECKPOINT_PATH];
    int  n;

    TRY(hkt_comm_size(s->comm, &n));
    if (s->step < 0 || s->keep < 0)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "a checkpoint of step %" PRId64 " that keeps %d: neither may be negative", s->step,
                             s->keep);
    TRY(manifest_begin(&chief->manifest, s->step, n, s->metadata, s->n_metadata));
    TRY(file_make_folder(s->folder));
    TRY(file_join(path, s->folder, ".."));
    TRY(file_sync_folder(path));
    TRY(take_lock(chief, s->folder));
    TRY(folder_remove_temporary(s->folder));
    snprintf(name, CHECKPOINT_NAME, ".tmp-step-%010" PRId64 "-%d", s->step, (int)getpid());
    TRY(file_join(path, s->folder, name));
    return file_make_folder(path);
}

/* A name for a complete checkpoint of this step that is not taken. */
static int choose_name(struct entry *entry, const struct save *s)
{
    struct entry *list = NULL;
    size_t        count;

    TRY(folder_list(&list, &count, s->folder));
    *entry = (struct entry){.step = s->step};
    for (size_t i = 0; i < count; i++)
        if (list[i].step == s->step && list[i].attempt >= entry->attempt)
            entry->attempt = list[i].attempt + 1;
    free(list);
    if (entry->attempt)
        snprintf(entry->name, sizeof(entry->name), "step-%010" PRId64 ".%d", s->step, entry->attempt);
    else
        snprintf(entry->name, sizeof(entry->name), "step-%010" PRId64, s->step);
    return HKT_OK;
}

/* Whether the manifest can be read back and the files that it names are in `working`. */
static int check_working(const struct text *manifest, const char *working)
{
    struct manifest m;
    char           *copy = malloc(manifest->size + 1);
    int             rc;

    if (!copy)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory to check a manifest of %zu bytes", manifest->size);
    memcpy(copy, manifest->at, manifest->size);
    copy[manifest->size] = 0;
    TRY(manifest_parse(&m, copy, manifest->size, working));
    rc = manifest_check_files(&m, working);
    manifest_free(&m);
    return rc;
}

/* From the temporary folder, in which all data is, to a complete checkpoint. */
static int publish(struct chief *chief, const struct save *s, const char *working)
{
    char         path[CHECKPOINT_PATH], line[CHECKPOINT_NAME + 1];
    struct entry entry;

    TRY(manifest_end(&chief->manifest));
    TRY(check_working(&chief->manifest, working));
    TRY(file_put(working, "manifest", chief->manifest.at, chief->manifest.size));
    TRY(file_sync_folder(working));
    TRY(choose_name(&entry, s));
    TRY(file_join(path, s->folder, entry.name));
    if (rename(working, path))
        return file_error("renaming to", path);
    TRY(file_sync_folder(s->folder));
    snprintf(line, sizeof(line), "%s\n", entry.name);
    TRY(file_replace(s->folder, "latest", line, strlen(line)));
    return folder_prune(s->folder, &entry, s->keep);
}

/* Removes what a failed save has written; the sentence of the failure stays. */
static void abandon(const char *working, int rc)
{
    char sentence[1024];

    snprintf(sentence, sizeof(sentence), "%s", hkt_last_error());
    (void)file_remove_tree(working); /* what stays is removed by the next save */
    (void)hkt_error_set(rc, "%s", sentence);
}

/* ---- all of it */

static int gather_counted(struct text *all, const struct text *lines, size_t *counts, hkt_comm_t *comm)
{
    size_t total = all->size;
    int    me, n, rc = HKT_OK;

    TRY(hkt_comm_rank(comm, &me));
    TRY(hkt_comm_size(comm, &n));
    TRY(hkt_all_gather(&lines->size, counts, 1, HKT_UINT64, comm, NULL));
    for (int r = 0; r < n; r++)
        total += counts[r];
    if (me == 0) {
        char *more = realloc(all->at, total + 64);

        all->at   = more ? more : all->at;
        all->room = more ? total + 64 : all->room;
        if (!more)
            rc = hkt_error_set(HKT_ERR_MEMORY, "no memory for a manifest of %zu bytes", total);
    }
    TRY(checkpoint_agree(comm, rc));
    TRY(hkt_gather_v(lines->at, me ? NULL : all->at + all->size, counts, NULL, HKT_UINT8, 0, comm, NULL));
    if (me == 0)
        all->size = total;
    return HKT_OK;
}

/* Appends the lines of all ranks to `all` of rank 0. */
static int gather_lines(struct text *all, const struct text *lines, hkt_comm_t *comm)
{
    size_t *counts;
    int     n, rc;

    TRY(hkt_comm_size(comm, &n));
    counts = calloc((size_t)n, sizeof(*counts));
    rc     = counts ? HKT_OK : hkt_error_set(HKT_ERR_MEMORY, "no memory to gather the lines of %d ranks", n);
    rc     = checkpoint_agree(comm, rc);
    if (rc == HKT_OK)
        rc = gather_counted(all, lines, counts, comm);
    free(counts);
    return rc;
}

static int write_agreed(const struct save *s, struct chief *chief, struct text *lines, char working[CHECKPOINT_PATH])
{
    char name[CHECKPOINT_NAME] = "";
    int  me;

    TRY(hkt_comm_rank(s->comm, &me));
    TRY(checkpoint_agree(s->comm, me == 0 ? prepare(chief, name, s) : HKT_OK));
    TRY(hkt_broadcast(name, name, sizeof(name), HKT_UINT8, 0, s->comm, NULL));
    TRY(checkpoint_agree(s->comm, file_join(working, s->folder, name)));
    TRY(checkpoint_agree(s->comm, write_data(lines, s, working)));
    TRY(gather_lines(&chief->manifest, lines, s->comm));
    return checkpoint_agree(s->comm, me == 0 ? publish(chief, s, working) : HKT_OK);
}

int checkpoint_write(const struct save *s)
{
    char         working[CHECKPOINT_PATH] = "";
    struct chief chief                    = {.lock = -1};
    struct text  lines                    = {0};
    const int    rc                       = write_agreed(s, &chief, &lines, working);

    if (rc < 0 && chief.lock >= 0 && *working)
        abandon(working, rc);
    if (chief.lock >= 0)
        close(chief.lock);
    free(chief.manifest.at);
    free(lines.at);
    return rc;
}

int hkt_checkpoint_save(hkt_comm_t *comm, const char *folder, int64_t step, int keep, const hkt_piece_t *pieces,
                        size_t n_pieces, const hkt_metadata_t *metadata, size_t n_metadata)
{
    hkt_piece_t *chosen = NULL;
    struct save  save   = {comm, folder, step, keep, NULL, 0, metadata, n_metadata};
    int          rc     = HKT_OK;

    if (!folder || (n_metadata && !metadata))
        rc = hkt_error_set(HKT_ERR_ARGUMENT, "the folder and the metadata of a checkpoint may not be NULL");
    TRY(checkpoint_agree(comm, rc));
    TRY(checkpoint_choose(&chosen, &save.n_pieces, pieces, n_pieces, comm));
    save.pieces = chosen;
    rc          = checkpoint_write(&save);
    free(chosen);
    return rc;
}
