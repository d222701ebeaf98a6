/* config.c -- what a program asks of a communicator by its ncclConfig_t. It begins with its size: a config ends where the header that the program was built
 * with let it end, and is read no further, so every version from 2.14 on is understood. The environment comes before the program, as in NCCL.
 */
#include "inside.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a config may hold, by the place of the member: configs of older programs end before some of them. Those that steer what is on a GPU or a network
 * of NVIDIA's are checked and have no effect. */
static const struct {
    const char *name;
    size_t      at;
    int         least, most;
} member[] = {
#define MEMBER(name, least, most) {#name, offsetof(ncclConfig_t, name), least, most}
    MEMBER(blocking, 0, 1),        MEMBER(cgaClusterSize, 0, 8),  MEMBER(minCTAs, 1, INT_MAX),     MEMBER(maxCTAs, 1, INT_MAX),
    MEMBER(splitShare, 0, 1),      MEMBER(collnetEnable, 0, 1),   MEMBER(CTAPolicy, 0, 3),         MEMBER(shrinkShare, 0, 1),
    MEMBER(nvlsCTAs, 1, INT_MAX),  MEMBER(nChannelsPerNetPeer, 1, 1024), MEMBER(nvlinkCentricSched, 0, 1), MEMBER(graphUsageMode, 0, 2),
};

static bool has_member(const ncclConfig_t *config, size_t at, size_t size)
{
    return config->size >= at + size;
}

static ncclResult_t check(const ncclConfig_t *config, const char *function)
{
    int value;

    if (config->size < offsetof(ncclConfig_t, blocking) || config->magic != NCCL_API_MAGIC)
        return nccl_fail(ncclInvalidArgument, "%s: the config is not initialised (size %zu, magic 0x%x); begin with NCCL_CONFIG_INITIALIZER", function,
                         config->size, config->magic);
    for (size_t i = 0; i < sizeof(member) / sizeof(member[0]); i++) {
        if (!has_member(config, member[i].at, sizeof(int)))
            continue;
        memcpy(&value, (const char *)config + member[i].at, sizeof(value));
        if (value != NCCL_CONFIG_UNDEF_INT && (value < member[i].least || value > member[i].most))
            return nccl_fail(ncclInvalidArgument, "%s: config.%s is %d; it may be %d to %d, or NCCL_CONFIG_UNDEF_INT", function, member[i].name, value,
                             member[i].least, member[i].most);
    }
    return ncclSuccess;
}

ncclResult_t nccl_config_read(ncclComm_t comm, const struct ncclComm *parent, const ncclConfig_t *from, const char *function)
{
    const char *override = getenv("NCCL_COMM_BLOCKING");

    comm->blocking = parent ? parent->blocking : true;
    if (from) {
        NCCL_TRY(check(from, function));
        if (has_member(from, offsetof(ncclConfig_t, blocking), sizeof(int)) && from->blocking != NCCL_CONFIG_UNDEF_INT)
            comm->blocking = from->blocking;
        if (has_member(from, offsetof(ncclConfig_t, commName), sizeof(char *)) && from->commName)
            snprintf(comm->name, sizeof(comm->name), "%s", from->commName);
    }
    if (override && (!strcmp(override, "0") || !strcmp(override, "1")))
        comm->blocking = override[0] == '1';
    return ncclSuccess;
}
