/* checkpoint_open.c -- which checkpoint of a folder is the one to load, and what is in it. Complete is one whose
 * manifest is whole and whose files have their sizes; what is in the files is checked as it is read.
 */
#include "parallel/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int load(struct hkt_checkpoint *c, const char *folder, const char *name)
{
    char   manifest[CHECKPOINT_PATH], *text;
    size_t size;

    TRY(file_join(c->path, folder, name));
    TRY(file_join(manifest, c->path, "manifest"));
    TRY(file_get(&text, &size, manifest));
    TRY(manifest_parse(&c->m, text, size, manifest));
    return manifest_check_files(&c->m, c->path);
}

static int prepare(struct hkt_checkpoint *c)
{
    const size_t ranks = (size_t)c->m.ranks;

    c->fd    = malloc(ranks * sizeof(*c->fd));
    c->table = calloc(ranks, sizeof(*c->table));
    c->block = malloc(CHECKPOINT_BLOCK);
    for (size_t r = 0; r < ranks && c->fd; r++)
        c->fd[r] = -1;
    c->block_rank = -1;
    if (!c->fd || !c->table || !c->block)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory to open a checkpoint of %d ranks", c->m.ranks);
    return HKT_OK;
}

static int open_one(struct hkt_checkpoint **checkpoint, const char *folder, const char *name)
{
    struct hkt_checkpoint *c  = calloc(1, sizeof(*c));
    int                    rc = c ? load(c, folder, name) : hkt_error_set(HKT_ERR_MEMORY, "no memory to open %s", name);

    if (rc == HKT_OK)
        rc = prepare(c);
    if (rc < 0) {
        (void)hkt_checkpoint_close(c);
        return rc;
    }
    *checkpoint = c;
    return HKT_OK;
}

/* What `latest` says; false when it is not there or says nothing that can be used. */
static bool read_latest(struct entry *entry, const char *folder)
{
    char   path[CHECKPOINT_PATH], *text;
    size_t size;
    bool   found;

    if (file_join(path, folder, "latest") < 0 || file_get(&text, &size, path) < 0)
        return false;
    text[strcspn(text, "\n")] = 0;
    found                     = folder_entry(entry, text);
    free(text);
    return found;
}

/* The one that `latest` names comes first, and for a step only its own are left. */
static size_t choose_order(struct entry *list, size_t count, const char *folder, int64_t step)
{
    struct entry latest;
    size_t       n = 0;

    if (step >= 0) {
        for (size_t i = 0; i < count; i++)
            if (list[i].step == step)
                list[n++] = list[i];
        return n;
    }
    if (read_latest(&latest, folder))
        for (size_t i = 0; i < count; i++)
            if (strcmp(list[i].name, latest.name) == 0) {
                memmove(list + 1, list, i * sizeof(*list));
                list[0] = latest;
            }
    return count;
}

static int open_first(struct hkt_checkpoint **checkpoint, const char *folder, const struct entry *list, size_t count)
{
    char note[sizeof((*checkpoint)->note)] = "";

    for (size_t i = 0; i < count; i++) {
        const int    rc   = open_one(checkpoint, folder, list[i].name);
        const size_t used = strlen(note);

        if (rc == HKT_OK) {
            memcpy((*checkpoint)->note, note, sizeof(note));
            return HKT_OK;
        }
        if (rc == HKT_ERR_MEMORY)
            return rc;
        snprintf(note + used, sizeof(note) - used, "%s%s passed over: %s", used ? "; " : "", list[i].name,
                 hkt_last_error());
    }
    return hkt_error_set(HKT_ERR_SYSTEM, "there is no complete checkpoint in %s%s%s", folder, *note ? ": " : "", note);
}

static int open_alone(struct hkt_checkpoint **checkpoint, const char *folder, int64_t step)
{
    struct entry *list = NULL;
    size_t        count;
    int           rc;

    if (!folder || step < -1)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "opening a checkpoint: the folder is %s, the step %" PRId64
                             "; a step is >= 0, or -1 for the newest",
                             folder ? folder : "NULL", step);
    TRY(folder_list(&list, &count, folder));
    count = choose_order(list, count, folder, step);
    if (count == 0 && step >= 0)
        rc = hkt_error_set(HKT_ERR_ARGUMENT, "there is no checkpoint of step %" PRId64 " in %s", step, folder);
    else
        rc = open_first(checkpoint, folder, list, count);
    free(list);
    return rc;
}

/* Rank 0 opens it; the others open what has the same name and see that it is the same. */
static int open_together(struct hkt_checkpoint **checkpoint, const char *folder, int64_t step, hkt_comm_t *comm)
{
    struct {
        uint64_t checksum;
        char     name[CHECKPOINT_NAME], note[sizeof((*checkpoint)->note)];
    } chosen                 = {0};
    struct hkt_checkpoint *c = NULL;
    int                    me, rc = HKT_OK;

    TRY(hkt_comm_rank(comm, &me));
    if (me == 0 && (rc = open_alone(&c, folder, step)) == HKT_OK) {
        chosen.checksum = c->m.checksum;
        snprintf(chosen.name, sizeof(chosen.name), "%s", strrchr(c->path, '/') + 1);
        memcpy(chosen.note, c->note, sizeof(chosen.note));
    }
    rc = checkpoint_agree(comm, rc);
    if (rc == HKT_OK)
        rc = hkt_broadcast(&chosen, &chosen, sizeof(chosen), HKT_UINT8, 0, comm, NULL);
    if (rc == HKT_OK) {
        if (me)
            rc = folder ? open_one(&c, folder, chosen.name)
                        : hkt_error_set(HKT_ERR_ARGUMENT, "the folder of a checkpoint is NULL");
        if (rc == HKT_OK && c->m.checksum != chosen.checksum)
            rc =
                hkt_error_set(HKT_ERR_MISMATCH,
                              "%s is not what rank 0 has under this name; all ranks must see the same folder", c->path);
        if (rc == HKT_OK)
            memcpy(c->note, chosen.note, sizeof(c->note));
        rc = checkpoint_agree(comm, rc);
    }
    if (rc < 0)
        (void)hkt_checkpoint_close(c);
    else
        *checkpoint = c;
    return rc;
}

int hkt_checkpoint_open(hkt_checkpoint_t **checkpoint, const char *folder, int64_t step, hkt_comm_t *comm)
{
    return comm ? open_together(checkpoint, folder, step, comm) : open_alone(checkpoint, folder, step);
}

int hkt_checkpoint_close(hkt_checkpoint_t *c)
{
    if (!c)
        return HKT_OK;
    for (int r = 0; r < c->m.ranks; r++) {
        if (c->fd && c->fd[r] >= 0)
            close(c->fd[r]);
        if (c->table)
            free(c->table[r]);
    }
    free(c->fd);
    free(c->table);
    free(c->block);
    manifest_free(&c->m);
    free(c);
    return HKT_OK;
}

int hkt_checkpoint_info(hkt_checkpoint_info_t *info, const hkt_checkpoint_t *c)
{
    *info = (hkt_checkpoint_info_t){c->m.step, c->m.ranks, c->m.stored_count, c->m.metadata_count, c->path, c->note};
    return HKT_OK;
}

static int index_error(const char *what, size_t index, size_t count)
{
    return hkt_error_set(HKT_ERR_ARGUMENT, "%s %zu of a checkpoint that has %zu", what, index, count);
}

int hkt_checkpoint_piece(hkt_piece_t *piece, size_t index, const hkt_checkpoint_t *c)
{
    if (index >= c->m.stored_count)
        return index_error("piece", index, c->m.stored_count);
    *piece = c->m.stored[index].piece;
    return HKT_OK;
}

int hkt_checkpoint_metadatum(hkt_metadata_t *metadatum, size_t index, const hkt_checkpoint_t *c)
{
    if (index >= c->m.metadata_count)
        return index_error("metadatum", index, c->m.metadata_count);
    *metadatum = c->m.metadata[index];
    return HKT_OK;
}

const char *hkt_checkpoint_value(const hkt_checkpoint_t *c, const char *key)
{
    for (size_t i = 0; i < c->m.metadata_count; i++)
        if (strcmp(c->m.metadata[i].key, key) == 0)
            return c->m.metadata[i].value;
    return NULL;
}
