/* checkpoint_file.c -- files that are on disk when a function says so, and errors that name the file. */
#include "parallel/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int file_error(const char *what, const char *path)
{
    const int   error  = errno;
    const char *advice = error == ENOSPC || error == EDQUOT ? "; make room, and save again" : "";

    return hkt_error_set(HKT_ERR_SYSTEM, "%s %s: %s%s", what, path, strerror(error), advice);
}

int file_join(char path[CHECKPOINT_PATH], const char *folder, const char *name)
{
    if (snprintf(path, CHECKPOINT_PATH, "%s/%s", folder, name) < CHECKPOINT_PATH)
        return HKT_OK;
    return hkt_error_set(HKT_ERR_ARGUMENT, "the path %.200s.../%s is longer than %d bytes", folder, name,
                         CHECKPOINT_PATH - 1);
}

int file_make_folder(const char *folder)
{
    char path[CHECKPOINT_PATH];

    if (!*folder || snprintf(path, sizeof(path), "%s", folder) >= (int)sizeof(path))
        return hkt_error_set(HKT_ERR_ARGUMENT, "the name of a folder has %zu bytes; 1 to %d are possible",
                             strlen(folder), CHECKPOINT_PATH - 1);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(path, 0777) && errno != EEXIST)
            return file_error("making the folder", path);
        *slash = '/';
    }
    if (mkdir(path, 0777) && errno != EEXIST)
        return file_error("making the folder", path);
    return HKT_OK;
}

int file_sync_folder(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int       rc = HKT_OK;

    if (fd < 0)
        return file_error("opening the folder", folder);
    if (fsync(fd) && errno != EINVAL) /* EINVAL: a file system without it */
        rc = file_error("synchronising the folder", folder);
    close(fd);
    return rc;
}

int file_remove_tree(const char *folder)
{
    char   *paths[] = {(char *)(uintptr_t)folder, NULL};
    FTS    *walk    = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_NOSTAT, NULL);
    int     rc      = walk ? HKT_OK : file_error("removing", folder);
    FTSENT *entry;

    while (rc == HKT_OK && (entry = fts_read(walk))) {
        const bool folder_now = entry->fts_info == FTS_D;

        if (!folder_now && remove(entry->fts_path) && errno != ENOENT)
            rc = file_error("removing", entry->fts_path);
    }
    if (walk)
        fts_close(walk);
    return rc;
}

int file_write_all(int fd, const void *data, size_t size, const char *path)
{
    const char *at = data;

    while (size) {
        const ssize_t n = write(fd, at, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return file_error("writing", path);
        at += n;
        size -= (size_t)n;
    }
    return HKT_OK;
}

int file_put(const char *folder, const char *name, const void *data, size_t size)
{
    char path[CHECKPOINT_PATH];
    int  fd, rc;

    TRY(file_join(path, folder, name));
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return file_error("creating", path);
    rc = file_write_all(fd, data, size, path);
    if (rc == HKT_OK && fsync(fd))
        rc = file_error("synchronising", path);
    if (close(fd) && rc == HKT_OK)
        rc = file_error("closing", path);
    return rc;
}

int file_replace(const char *folder, const char *name, const void *data, size_t size)
{
    char path[CHECKPOINT_PATH], beside[CHECKPOINT_PATH], temporary[CHECKPOINT_NAME];

    snprintf(temporary, sizeof(temporary), ".tmp-%.48s", name);
    TRY(file_join(path, folder, name));
    TRY(file_join(beside, folder, temporary));
    TRY(file_put(folder, temporary, data, size));
    if (rename(beside, path))
        return file_error("renaming to", path);
    return file_sync_folder(folder);
}

static int read_open(char **data, size_t *size, int fd, const char *path)
{
    struct stat status;
    char       *text;
    int         rc;

    if (fstat(fd, &status))
        return file_error("looking at", path);
    if (!S_ISREG(status.st_mode))
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s is no file", path);
    text = malloc((size_t)status.st_size + 1);
    if (!text)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for the %lld bytes of %s", (long long)status.st_size, path);
    rc = file_read_at(fd, text, (size_t)status.st_size, 0, path);
    if (rc < 0) {
        free(text);
        return rc;
    }
    text[status.st_size] = 0;
    *data                = text;
    *size                = (size_t)status.st_size;
    return HKT_OK;
}

int file_get(char **data, size_t *size, const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    int       rc;

    if (fd < 0)
        return file_error("opening", path);
    rc = read_open(data, size, fd, path);
    close(fd);
    return rc;
}

int file_read_at(int fd, void *data, size_t size, size_t offset, const char *path)
{
    char *at = data;

    while (size) {
        const ssize_t n = pread(fd, at, size, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return file_error("reading", path);
        if (n == 0)
            return hkt_error_set(HKT_ERR_SYSTEM, "%s is cut off: %zu bytes from offset %zu on are missing", path, size,
                                 offset);
        at += n;
        size -= (size_t)n;
        offset += (size_t)n;
    }
    return HKT_OK;
}
