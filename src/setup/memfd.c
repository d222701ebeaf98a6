/* memfd.c -- see memfd.h. */
#include "memfd.h"

#include "base/error.h"
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

int hkt_memfd_create(size_t size, const char *what)
{
    struct rlimit limit;
    char          name[48];
    int           fd, error = 0;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && size > limit.rlim_cur) /* would be a signal */
        return hkt_fail(HKT_ERR_SYSTEM,
                        "%s: %zu bytes of shared memory are more than RLIMIT_FSIZE allows, %llu (ulimit -f)", what,
                        size, (unsigned long long)limit.rlim_cur);
    snprintf(name, sizeof(name), "hocket-%s", what);
    /* Systems can demand that it is not executable; Linux before 6.3 does not know the flag. */
    fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return hkt_fail(HKT_ERR_SYSTEM, "%s: no shared memory: %s", what, hkt_errno_text(errno));
    while (ftruncate(fd, (off_t)size) && (error = errno) == EINTR)
        error = 0;
    if (!error && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
        error = errno;
    if (!error)
        return fd;
    close(fd);
    return hkt_fail(HKT_ERR_MEMORY, "%s: no %zu bytes of shared memory: %s", what, size, strerror(error));
}
