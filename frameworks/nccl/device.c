/* device.c -- what NCCL has for kernels that communicate themselves, for one-sided messages and for encryption: refused, each with a sentence, so
 * that a program built against a newer header starts and can go another way. What can be answered is: teams, properties.
 */
#include "inside.h"

#include <stddef.h>
#include <string.h>

static const char one_sided[] = "one-sided messages are not supported; use ncclSend() and ncclRecv() in a group";

NCCL_API(ncclResult_t, PutSignal, (const void *local, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t window, size_t offset, int signal,
                                   int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream))
{
    (void)local, (void)count, (void)datatype, (void)peer, (void)window, (void)offset, (void)signal, (void)context, (void)flags, (void)comm, (void)stream;
    return nccl_group_error(nccl_fail(ncclInvalidUsage, "ncclPutSignal: %s", one_sided));
}

NCCL_API(ncclResult_t, Signal, (int peer, int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream))
{
    (void)peer, (void)signal, (void)context, (void)flags, (void)comm, (void)stream;
    return nccl_group_error(nccl_fail(ncclInvalidUsage, "ncclSignal: %s", one_sided));
}

NCCL_API(ncclResult_t, WaitSignal, (int count, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream))
{
    (void)count, (void)signals, (void)comm, (void)stream;
    return nccl_group_error(nccl_fail(ncclInvalidUsage, "ncclWaitSignal: %s", one_sided));
}

NCCL_API(ncclResult_t, SetEncryption, (const ncclEncryptionConfig_t *config))
{
    if (!config || config->size < offsetof(ncclEncryptionConfig_t, psk) || config->magic != NCCL_API_MAGIC)
        return nccl_fail(ncclInvalidArgument, "ncclSetEncryption: the config is not initialised; begin with NCCL_ENCRYPTION_CONFIG_INITIALIZER");
    if (config->mode != NCCL_ENCRYPTION_MODE_NONE)
        return nccl_fail(ncclInvalidUsage, "ncclSetEncryption: connections are proved with a key but not encrypted; the network has to be trusted");
    return ncclSuccess;
}

/* NCCL's logging is set up anew; Hocket's is HKT_LOG's and stays. */
NCCL_API(void, ResetDebugInit, (void))
{
}

NCCL_EXPORT void ncclResetDebugInitInternal(void);
NCCL_EXPORT void ncclResetDebugInitInternal(void)
{
}

/* ---- teams: every rank, those whose memory kernels reach, the ranks in the same place of their nodes ------------------------ */

typedef struct { int ranks, rank, stride; } team_t;

#define TEAM(name, parameters, ...)                                                                                                      \
    NCCL_EXPORT team_t pnccl##name parameters;                                                                                           \
    NCCL_API(team_t, name, parameters)                                                                                                   \
    {                                                                                                                                    \
        const team_t none = {0, 0, 0};                                                                                                   \
                                                                                                                                         \
        if (nccl_comm_enter(comm, "nccl" #name) != ncclSuccess)                                                                          \
            return none;                                                                                                                 \
        nccl_comm_leave(comm);                                                                                                           \
        return (team_t)__VA_ARGS__;                                                                                                      \
    }
TEAM(TeamWorld, (ncclComm_t comm), {comm->size, comm->rank, 1})
TEAM(TeamLsa, (ncclComm_t comm), {1, 0, 1}) /* no kernel reaches another rank's memory */
TEAM(TeamRail, (ncclComm_t comm), {comm->size, comm->rank, 1})
TEAM(TeamCft, (ncclComm_t comm, int mode __attribute__((unused))), {1, 0, 1})
TEAM(TeamCftMultimem, (ncclComm_t comm), {1, 0, 1})

NCCL_EXPORT int pncclTeamRankToWorld(ncclComm_t comm, team_t team, int rank);
NCCL_API(int, TeamRankToWorld, (ncclComm_t comm, team_t team, int rank))
{
    return (comm ? comm->rank : 0) + (rank - team.rank) * team.stride;
}

NCCL_EXPORT int pncclTeamRankToLsa(ncclComm_t comm, team_t team, int rank);
NCCL_API(int, TeamRankToLsa, (ncclComm_t comm, team_t team, int rank))
{
    (void)comm;
    return (rank - team.rank) * team.stride;
}

/* ---- properties: written as far as the program has room for them ------------------------------------------------------------- */

struct properties { /* to the members of 2.29; later ones are left as the program has set them */
    size_t       size;
    unsigned int magic, version;
    int          rank, ranks, device, nvml_device;
    bool         device_api, multimem;
    int          gin;
    int          lsa_teams;
    bool         host_rma;
};

NCCL_EXPORT ncclResult_t pncclCommQueryProperties(ncclComm_t comm, struct properties *properties);
NCCL_API(ncclResult_t, CommQueryProperties, (ncclComm_t comm, struct properties *properties))
{
    struct properties p;
    size_t            size;

    if (!properties || properties->size < offsetof(struct properties, rank) || properties->magic != NCCL_API_MAGIC)
        return nccl_fail(ncclInvalidArgument, "ncclCommQueryProperties: properties are not initialised; begin with NCCL_COMM_PROPERTIES_INITIALIZER");
    NCCL_TRY(nccl_comm_enter(comm, "ncclCommQueryProperties"));
    memset(&p, 0, sizeof(p));
    size = properties->size < sizeof(p) ? properties->size : sizeof(p);
    memcpy(&p, properties, offsetof(struct properties, rank));
    p.rank        = comm->rank;
    p.ranks       = comm->size;
    p.device      = comm->device;
    p.nvml_device = comm->device;
    p.lsa_teams   = comm->size;
    memcpy(properties, &p, size);
    nccl_comm_leave(comm);
    return ncclSuccess;
}

/* ---- refusals ---------------------------------------------------------------------------------------------------------------- */

/* Whatever the arguments are, none is looked at. */
#define REFUSED(name)                                                                                                                    \
    NCCL_EXPORT ncclResult_t pnccl##name(void);                                                                                          \
    NCCL_API(ncclResult_t, name, (void))                                                                                                 \
    {                                                                                                                                    \
        return nccl_fail(ncclInvalidUsage, "nccl" #name ": kernels cannot communicate themselves here; use the collectives of the host"); \
    }
REFUSED(DevCommCreate)
REFUSED(DevCommDestroy)
REFUSED(GetLsaDevicePointer)
REFUSED(GetLsaMultimemDevicePointer)
REFUSED(GetMultimemDevicePointer)
REFUSED(GetPeerDevicePointer)
REFUSED(GetCftDeviceLeInfo)
REFUSED(GetMultimemDeviceLeInfo)
REFUSED(GetPeerDeviceLeInfo)
REFUSED(LsaBarrierCreateRequirement)
REFUSED(GinBarrierCreateRequirement)
REFUSED(CftBarrierCreateRequirement)
REFUSED(LLA2ACreateRequirement)
REFUSED(GinOutboxCreateRequirement)
REFUSED(GinInboxA2ACreateRequirement)

NCCL_EXPORT int pncclLLA2ACalcSlots(int elements, int size);
NCCL_API(int, LLA2ACalcSlots, (int elements, int size))
{
    (void)elements, (void)size;
    return 0;
}
