/* mapping.c -- see mapping.h. */
#include "mapping.h"

#include <hocket.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int mapping_open(struct mapping *mapping, const char *path)
{
    const int   fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    void       *at = NULL;

    if (fd < 0)
        return hkt_error_set(HKT_ERR_SYSTEM, "opening %s: %s", path, strerror(errno));
    if (fstat(fd, &status) || !S_ISREG(status.st_mode)) {
        close(fd);
        return hkt_error_set(HKT_ERR_SYSTEM, "%s is no file", path);
    }
    if (status.st_size)
        at = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        return hkt_error_set(HKT_ERR_SYSTEM, "mapping %s: %s", path, strerror(errno));
    *mapping = (struct mapping){at, (size_t)status.st_size};
    return HKT_OK;
}

void mapping_close(struct mapping *mapping)
{
    if (mapping->at)
        munmap((void *)(uintptr_t)mapping->at, mapping->size);
    *mapping = (struct mapping){NULL, 0};
}
