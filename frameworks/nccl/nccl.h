/* nccl.h -- the interface of libnccl.so.2 as Hocket provides it: names, values and layouts of NCCL's binary interface up to 2.31, so that programs
 * built with either header run with either library. What each function does here, and which are refused, is in docs/nccl.md.
 *
 * NCCL_VERSION_CODE is that of the newest NCCL whose whole interface is served (the next one has kernels that communicate themselves); newer
 * functions are declared and work or are refused one by one.
 *
 * Every function ncclX exists as pncclX too, for tools that put their own ncclX in front.
 */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* CUDA's types where they are; without CUDA, streams and events are opaque and NULL. */
#if defined(__has_include)
#if __has_include(<cuda_runtime.h>) && !defined(HOCKET_NCCL_WITHOUT_CUDA)
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#if defined(__cplusplus)
#include <cuda_fp8.h>
#endif
#define HOCKET_NCCL_WITH_CUDA
#endif
#endif
#ifndef HOCKET_NCCL_WITH_CUDA
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st  *cudaEvent_t;
#endif

#define NCCL_MAJOR 2
#define NCCL_MINOR 27
#define NCCL_PATCH 7
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 22707
/* Three digits for the first eight minor versions, then five. */
#define NCCL_VERSION(x, y, z) ((x) * ((x) < 3 && (y) < 9 ? 1000 : 10000) + (y) * 100 + (z))

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values and layouts ---------------------------------------------------------------------------------------------- */

typedef struct ncclComm          *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
#define NCCL_COMM_NULL NULL

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct { char internal[NCCL_UNIQUE_ID_BYTES]; } ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclTimeout = 8,
    ncclNumResults = 9
} ncclResult_t;

typedef enum {
    ncclInt8 = 0, ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2, ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6, ncclHalf = 6,
    ncclFloat32 = 7, ncclFloat = 7,
    ncclFloat64 = 8, ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;

/* From ncclNumOps on: operators that ncclRedOpCreatePreMulSum() has made. */
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5,
    ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

/* Where a scalar is: in memory that is read when the collective runs, or in host memory that is read by the call. */
typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

typedef enum {
    ncclStatGpuMemSuspend = 0,
    ncclStatGpuMemSuspended = 1,
    ncclStatGpuMemPersist = 2,
    ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT      -1.0f
#define NCCL_SPLIT_NOCOLOR    -1
#define NCCL_API_MAGIC        0xcafebeef

#define NCCL_WIN_DEFAULT            0x00
#define NCCL_WIN_COLL_SYMMETRIC     0x01
#define NCCL_WIN_STRICT_ORDERING    0x02
#define NCCL_WIN_GIN_ONLY           0x04
#define NCCL_WIN_CFT_COUNTED        0x08
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

#define NCCL_CTA_POLICY_DEFAULT    0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO       0x02

#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT   0x01
#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_SUSPEND_MEM    0x01

/* Begins with its size, so that programs of every version can be told apart: members are only ever added at the end. */
typedef struct ncclConfig_v23100 {
    size_t       size;
    unsigned int magic, version;
    int          blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char  *netName;
    int          splitShare;                /* to here: 2.17 */
    int          trafficClass;
    const char  *commName;
    int          collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;        /* 2.27 */
    int          nChannelsPerNetPeer, nvlinkCentricSched;                /* 2.28 */
    int          graphUsageMode, numRmaCtx;                              /* 2.29 */
    int          maxP2pPeers, graphStreamOrdering;                       /* 2.30 */
    int          launchOrderImplicit, numRmaSig, rmaEagerInit, hostCftMode, nvlsHostMode; /* 2.31, 2.32 */
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER                                                                                                          \
    {                                                                                                                                    \
        sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,    \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR,           \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,           \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,           \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT            \
    }

/* Options of one vendor's library for one call; those of others are skipped. */
typedef struct ncclConfigExt {
    struct ncclConfigExt *next;
    struct { int vendorId, optionId; } key;
    union { int i; const char *s; void *raw; } val;
} ncclConfigExt_t;

/* Of one collective call. */
typedef struct ncclCollConfig_v23200 {
    size_t           size;
    unsigned int     magic, version;
    ncclConfigExt_t *ext;
    int              minCTAs, maxCTAs, nvlsCTAs, cgaClusterSize;
    const char      *algSelection;
    int              forceAlgSelection, CTAPolicy;
    uint64_t         userProfilerTag;
    cudaEvent_t      launchCompletionEvent;
} ncclCollConfig_t;
#define NCCL_COLLCONFIG_INITIALIZER                                                                                                      \
    {                                                                                                                                    \
        sizeof(ncclCollConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT,                       \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, 1, NCCL_CONFIG_UNDEF_INT, 0,     \
            NCCL_CONFIG_UNDEF_PTR                                                                                                        \
    }

typedef struct ncclSimInfo_v22200 {
    size_t       size;
    unsigned int magic, version;
    float        estimatedTime; /* microseconds; NCCL_UNDEF_FLOAT: no estimate */
} ncclSimInfo_t;
#define NCCL_SIM_INFO_INITIALIZER { sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }

typedef struct { int opCnt, peer, sigIdx, ctx; } ncclWaitSignalDesc_t;

typedef enum { NCCL_ENCRYPTION_MODE_NONE = 0, NCCL_ENCRYPTION_MODE_PSK = 1 } ncclEncryptionMode_t;
typedef struct ncclEncryptionConfig_v23200 {
    size_t       size;
    unsigned int magic, version;
    int          mode;
    const char  *psk;
} ncclEncryptionConfig_t;
#define NCCL_ENCRYPTION_CONFIG_INITIALIZER                                                                                               \
    { sizeof(ncclEncryptionConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_ENCRYPTION_MODE_NONE, NCCL_CONFIG_UNDEF_PTR }

typedef struct ncclParamHandle *ncclParamHandle_t;

/* ---- functions --------------------------------------------------------------------------------------------------------
 * HOCKET_NCCL(result, name, parameters) declares name and pname. */
#define HOCKET_NCCL(result, name, parameters) result nccl##name parameters; result pnccl##name parameters;
#define HOCKET_NCCL_END ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream

/* Errors and versions. ncclGetLastError() says in a sentence what went wrong, where, and what to do. */
HOCKET_NCCL(ncclResult_t, GetVersion, (int *version))
HOCKET_NCCL(const char *, GetErrorString, (ncclResult_t result))
HOCKET_NCCL(const char *, GetLastError, (ncclComm_t comm))
HOCKET_NCCL(void, ResetDebugInit, (void))

/* Communicators. */
HOCKET_NCCL(ncclResult_t, GetUniqueId, (ncclUniqueId *id))
HOCKET_NCCL(ncclResult_t, CommInitRank, (ncclComm_t *comm, int nranks, ncclUniqueId id, int rank))
HOCKET_NCCL(ncclResult_t, CommInitRankConfig, (ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config))
HOCKET_NCCL(ncclResult_t, CommInitRankScalable, (ncclComm_t *comm, int nranks, int rank, int nids, ncclUniqueId *ids, ncclConfig_t *config))
HOCKET_NCCL(ncclResult_t, CommInitAll, (ncclComm_t *comms, int ndev, const int *devices))
HOCKET_NCCL(ncclResult_t, CommSplit, (ncclComm_t comm, int colour, int key, ncclComm_t *newcomm, ncclConfig_t *config))
HOCKET_NCCL(ncclResult_t, CommShrink,
            (ncclComm_t comm, int *exclude, int excluded, ncclComm_t *newcomm, ncclConfig_t *config, int flags))
HOCKET_NCCL(ncclResult_t, CommGetUniqueId, (ncclComm_t comm, ncclUniqueId *id))
HOCKET_NCCL(ncclResult_t, CommGrow,
            (ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm, ncclConfig_t *config))
HOCKET_NCCL(ncclResult_t, CommRevoke, (ncclComm_t comm, int flags))
HOCKET_NCCL(ncclResult_t, CommFinalize, (ncclComm_t comm))
HOCKET_NCCL(ncclResult_t, CommDestroy, (ncclComm_t comm))
HOCKET_NCCL(ncclResult_t, CommAbort, (ncclComm_t comm))
HOCKET_NCCL(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t *error))
HOCKET_NCCL(ncclResult_t, CommCount, (const ncclComm_t comm, int *count))
HOCKET_NCCL(ncclResult_t, CommCuDevice, (const ncclComm_t comm, int *device))
HOCKET_NCCL(ncclResult_t, CommUserRank, (const ncclComm_t comm, int *rank))
HOCKET_NCCL(ncclResult_t, CommSuspend, (ncclComm_t comm, int flags))
HOCKET_NCCL(ncclResult_t, CommResume, (ncclComm_t comm))
HOCKET_NCCL(ncclResult_t, CommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value))

/* Memory. */
HOCKET_NCCL(ncclResult_t, MemAlloc, (void **ptr, size_t size))
HOCKET_NCCL(ncclResult_t, MemFree, (void *ptr))
HOCKET_NCCL(ncclResult_t, CommRegister, (const ncclComm_t comm, void *buffer, size_t size, void **handle))
HOCKET_NCCL(ncclResult_t, CommDeregister, (const ncclComm_t comm, void *handle))
HOCKET_NCCL(ncclResult_t, CommWindowRegister, (ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window, int flags))
HOCKET_NCCL(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t window))
HOCKET_NCCL(ncclResult_t, WinGetUserPtr, (ncclComm_t comm, ncclWindow_t window, void **ptr))

/* Operators: this rank's input times a scalar, summed. */
HOCKET_NCCL(ncclResult_t, RedOpCreatePreMulSum,
            (ncclRedOp_t *op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm))
HOCKET_NCCL(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))

/* Groups. */
HOCKET_NCCL(ncclResult_t, GroupStart, (void))
HOCKET_NCCL(ncclResult_t, GroupEnd, (void))
HOCKET_NCCL(ncclResult_t, GroupSimulateEnd, (ncclSimInfo_t *info))

/* Collectives; counts are elements per rank. The Config forms take options of the call, NULL for none. */
HOCKET_NCCL(ncclResult_t, Bcast, (void *buffer, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream))
HOCKET_NCCL(ncclResult_t, AllReduce,
            (const void *send, void *recv, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream))
HOCKET_NCCL(ncclResult_t, Broadcast,
            (const void *send, void *recv, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream))
HOCKET_NCCL(ncclResult_t, Reduce,
            (const void *send, void *recv, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream))
HOCKET_NCCL(ncclResult_t, AllGather, (const void *send, void *recv, size_t count, HOCKET_NCCL_END))
HOCKET_NCCL(ncclResult_t, ReduceScatter,
            (const void *send, void *recv, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream))
HOCKET_NCCL(ncclResult_t, AlltoAll, (const void *send, void *recv, size_t count, HOCKET_NCCL_END))
HOCKET_NCCL(ncclResult_t, Gather,
            (const void *send, void *recv, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream))
HOCKET_NCCL(ncclResult_t, Scatter,
            (const void *send, void *recv, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream))
HOCKET_NCCL(ncclResult_t, AllReduceConfig, (const void *send, void *recv, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                                            ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))
HOCKET_NCCL(ncclResult_t, BroadcastConfig, (const void *send, void *recv, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                            cudaStream_t stream, const ncclCollConfig_t *config))
HOCKET_NCCL(ncclResult_t, ReduceConfig, (const void *send, void *recv, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
                                         ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))
HOCKET_NCCL(ncclResult_t, AllGatherConfig, (const void *send, void *recv, size_t count, HOCKET_NCCL_END, const ncclCollConfig_t *config))
HOCKET_NCCL(ncclResult_t, ReduceScatterConfig, (const void *send, void *recv, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))
HOCKET_NCCL(ncclResult_t, AlltoAllConfig, (const void *send, void *recv, size_t count, HOCKET_NCCL_END, const ncclCollConfig_t *config))
HOCKET_NCCL(ncclResult_t, GatherConfig, (const void *send, void *recv, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                         cudaStream_t stream, const ncclCollConfig_t *config))
HOCKET_NCCL(ncclResult_t, ScatterConfig, (const void *send, void *recv, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                          cudaStream_t stream, const ncclCollConfig_t *config))

/* Point to point. */
HOCKET_NCCL(ncclResult_t, Send, (const void *send, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream))
HOCKET_NCCL(ncclResult_t, Recv, (void *recv, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream))

/* One-sided; refused. */
HOCKET_NCCL(ncclResult_t, PutSignal, (const void *local, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t window, size_t offset,
                                      int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream))
HOCKET_NCCL(ncclResult_t, Signal, (int peer, int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream))
HOCKET_NCCL(ncclResult_t, WaitSignal, (int count, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream))

/* Encryption of the library's own connections; refused but for NCCL_ENCRYPTION_MODE_NONE. */
HOCKET_NCCL(ncclResult_t, SetEncryption, (const ncclEncryptionConfig_t *config))

/* Parameters that the library was started with. */
HOCKET_NCCL(ncclResult_t, ParamBind, (ncclParamHandle_t *handle, const char *key))
HOCKET_NCCL(ncclResult_t, ParamGetI8, (ncclParamHandle_t handle, int8_t *value))
HOCKET_NCCL(ncclResult_t, ParamGetI16, (ncclParamHandle_t handle, int16_t *value))
HOCKET_NCCL(ncclResult_t, ParamGetI32, (ncclParamHandle_t handle, int32_t *value))
HOCKET_NCCL(ncclResult_t, ParamGetI64, (ncclParamHandle_t handle, int64_t *value))
HOCKET_NCCL(ncclResult_t, ParamGetU8, (ncclParamHandle_t handle, uint8_t *value))
HOCKET_NCCL(ncclResult_t, ParamGetU16, (ncclParamHandle_t handle, uint16_t *value))
HOCKET_NCCL(ncclResult_t, ParamGetU32, (ncclParamHandle_t handle, uint32_t *value))
HOCKET_NCCL(ncclResult_t, ParamGetU64, (ncclParamHandle_t handle, uint64_t *value))
HOCKET_NCCL(ncclResult_t, ParamGetStr, (ncclParamHandle_t handle, const char **value))
HOCKET_NCCL(ncclResult_t, ParamGet, (ncclParamHandle_t handle, void *value, int size, int *length))
HOCKET_NCCL(ncclResult_t, ParamGetParameter, (const char *key, const char **value, int *length))
HOCKET_NCCL(ncclResult_t, ParamGetAllParameterKeys, (const char ***keys, int *count))
HOCKET_NCCL(void, ParamDumpAll, (void))

#ifdef __cplusplus
}
#endif
#endif /* NCCL_H_ */
