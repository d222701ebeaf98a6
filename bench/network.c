/* network.c -- see network.h. The shared page of the harness is in /dev/shm, which network namespaces have in common. */
#include "network.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int network_enter(struct world *world, const char *text)
{
    char path[128], prefix[64], subnet[16], name[80];
    int  fd;

    if (sscanf(text, "%63[^:]:%d:%11s", prefix, &world->hosts, subnet) != 3 || world->hosts < 1 || world->size % world->hosts) {
        fprintf(stderr, "not a network for %d ranks: %s\n", world->size, text);
        return -1;
    }
    snprintf(name, sizeof name, "%s%d", prefix, host_of(world, world->rank));
    snprintf(path, sizeof path, "/run/netns/%s", name);
    snprintf(world->address, sizeof world->address, "%s.%d", subnet, host_of(world, world->rank) + 1);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) || unshare(CLONE_NEWUTS) || sethostname(name, strlen(name))) {
        perror(path);
        return -1;
    }
    close(fd);
    return 0;
}
