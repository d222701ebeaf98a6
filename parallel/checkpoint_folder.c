/* checkpoint_folder.c -- the checkpoints in a folder by their names: which there are, and removing old ones. What is
 * removed first gets a temporary name, so that a half-removed checkpoint is never taken for a complete one.
 */
#include "parallel/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool folder_entry(struct entry *entry, const char *name)
{
    char     *end;
    long long step;
    long      attempt = 0;

    if (strncmp(name, "step-", 5) != 0 || strlen(name) >= CHECKPOINT_NAME || !strchr("0123456789", name[5]) || !name[5])
        return false;
    errno = 0;
    step  = strtoll(name + 5, &end, 10);
    if (*end == '.' && end[1] >= '1' && end[1] <= '9')
        attempt = strtol(end + 1, &end, 10);
    if (*end || errno || attempt > 1000000)
        return false;
    *entry = (struct entry){.step = step, .attempt = (int)attempt};
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    return true;
}

static int newest_first(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    return (x->attempt < y->attempt) - (x->attempt > y->attempt);
}

int folder_list(struct entry **list, size_t *count, const char *folder)
{
    DIR           *dir  = opendir(folder);
    struct entry  *made = NULL;
    size_t         n    = 0;
    struct dirent *d;

    if (!dir && errno != ENOENT)
        return file_error("opening the folder", folder);
    while (dir && (d = readdir(dir))) {
        struct entry entry, *more;

        if (!folder_entry(&entry, d->d_name))
            continue;
        more = n & (n - 1) ? made : realloc(made, (n ? 2 * n : 1) * sizeof(*made)); /* doubled at powers of two */
        if (!more) {
            free(made);
            closedir(dir);
            return hkt_error_set(HKT_ERR_MEMORY, "no memory for the list of checkpoints in %s", folder);
        }
        made      = more;
        made[n++] = entry;
    }
    if (dir)
        closedir(dir);
    if (n)
        qsort(made, n, sizeof(*made), newest_first);
    *list  = made;
    *count = n;
    return HKT_OK;
}

int folder_remove_temporary(const char *folder)
{
    DIR           *dir = opendir(folder);
    struct dirent *d;
    int            rc = HKT_OK;

    if (!dir)
        return file_error("opening the folder", folder);
    while (rc == HKT_OK && (d = readdir(dir)))
        if (strncmp(d->d_name, ".tmp-", 5) == 0) {
            char path[CHECKPOINT_PATH];

            rc = file_join(path, folder, d->d_name);
            if (rc == HKT_OK)
                rc = file_remove_tree(path);
        }
    closedir(dir);
    return rc;
}

static int remove_one(const char *folder, const struct entry *entry)
{
    char path[CHECKPOINT_PATH], dying[CHECKPOINT_PATH], name[CHECKPOINT_NAME + 16];

    snprintf(name, sizeof(name), ".tmp-old-%s", entry->name);
    TRY(file_join(path, folder, entry->name));
    TRY(file_join(dying, folder, name));
    if (rename(path, dying))
        return file_error("renaming", path);
    return file_remove_tree(dying);
}

int folder_prune(const char *folder, const struct entry *kept, int keep)
{
    struct entry *list  = NULL;
    size_t        count = 0;
    int           rc = folder_list(&list, &count, folder), others = 0;

    for (size_t i = 0; i < count && rc == HKT_OK; i++) {
        const bool replaced = list[i].step == kept->step;

        if (strcmp(list[i].name, kept->name) == 0)
            continue;
        others += !replaced;
        if (replaced || (keep && others > keep - 1))
            rc = remove_one(folder, &list[i]);
    }
    free(list);
    return rc;
}
