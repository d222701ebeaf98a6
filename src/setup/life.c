/* life.c -- what a process says of itself in its life page, and what else the kernel says of it. See life.h. */
#include "life.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/option.h"
#include "inet.h"
#include "memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* FNV-1a. */
static uint64_t hash(uint64_t h, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return h;
}

static void identify_host(uint64_t host[2])
{
    const char    *name    = hkt_options()->host;
    const uint64_t machine = hkt_inet_host();
    const uid_t    user    = geteuid();

    if (*name) {
        host[0] = hash(0xcbf29ce484222325u, name, strlen(name));
        host[1] = hash(host[0], name, strlen(name));
    } else {
        host[0] = machine;
        host[1] = hash(machine, &user, sizeof(user));
    }
}

int hkt_life_make(struct hkt_life **made, int *fd)
{
    struct hkt_life *life;

    *fd = hkt_memfd_create(sizeof(*life), "life page");
    if (*fd < 0)
        return *fd;
    life = hkt_alloc_check() ? MAP_FAILED : mmap(NULL, sizeof(*life), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (life == MAP_FAILED) {
        close(*fd);
        return hkt_fail(HKT_ERR_MEMORY, "cannot map this process's life page of %zu bytes", sizeof(*life));
    }
    life->self = (uint64_t)(uintptr_t)life;
    life->pid  = getpid();
    if (gethostname(life->host, sizeof(life->host) - 1))
        snprintf(life->host, sizeof(life->host), "?");
    if (*hkt_options()->host)
        snprintf(life->host, sizeof(life->host), "%s", hkt_options()->host);
    identify_host(life->address.host);
    life->address.pid = life->pid;
    memcpy(life->address.name, life->host, sizeof(life->address.name));
    *made = life;
    return 0;
}

bool hkt_process_stopped(const struct hkt_process *p)
{
    char        path[32], text[512];
    const char *end;
    ssize_t     n;
    int         fd;

    if (p->pid <= 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)p->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while ((n = read(fd, text, sizeof(text) - 1)) < 0 && errno == EINTR)
        continue;
    close(fd);
    text[n > 0 ? n : 0] = 0;
    end                 = strrchr(text, ')'); /* the name before it may hold anything */
    return end && end[1] == ' ' && (end[2] == 'T' || end[2] == 't');
}
