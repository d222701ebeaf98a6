/* cuda_api.h -- what this library knows of the CUDA driver's binary interface: types, constants and one table of entry points.
 *
 * Written here so that nothing needs NVIDIA's toolkit to build: the driver is looked for when the program runs (cuda.h). The names are those
 * of the interface, the layouts are its 64-bit ABI; only what is used stands here. No file includes both this and NVIDIA's own cuda.h.
 * HKT_CUDA_FUNCTIONS is read three times: by the loader for its table, by its lookup, and by the fake driver of the tests for prototypes.
 */
#ifndef HKT_CUDA_API_H
#define HKT_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int                          CUdevice;
typedef unsigned long long           CUdeviceptr;
typedef struct CUctx_st             *CUcontext;
typedef struct CUstream_st          *CUstream; /* NULL: the legacy default stream, 1: the same, 2: the thread's own */
typedef struct CUevent_st           *CUevent;
typedef struct CUfunc_st            *CUfunction;
typedef struct CUkern_st            *CUkernel;
typedef struct CUlib_st             *CUlibrary;
typedef struct CUgraph_st           *CUgraph;
typedef struct CUgraphExec_st       *CUgraphExec;
typedef unsigned long long           CUmemGenericAllocationHandle;
typedef struct { char bytes[16]; }   CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;
typedef void (*CUhostFn)(void *argument);

typedef enum {
    CUDA_SUCCESS                              = 0,
    CUDA_ERROR_INVALID_VALUE                  = 1,
    CUDA_ERROR_OUT_OF_MEMORY                  = 2,
    CUDA_ERROR_NOT_INITIALIZED                = 3,
    CUDA_ERROR_DEINITIALIZED                  = 4,
    CUDA_ERROR_NO_DEVICE                      = 100,
    CUDA_ERROR_INVALID_DEVICE                 = 101,
    CUDA_ERROR_INVALID_IMAGE                  = 200,
    CUDA_ERROR_INVALID_CONTEXT                = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU              = 209,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED        = 217,
    CUDA_ERROR_INVALID_HANDLE                 = 400,
    CUDA_ERROR_NOT_FOUND                      = 500,
    CUDA_ERROR_NOT_READY                      = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS                = 700,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED    = 704,
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED        = 705,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED     = 713,
    CUDA_ERROR_LAUNCH_FAILED                  = 719,
    CUDA_ERROR_NOT_PERMITTED                  = 800,
    CUDA_ERROR_NOT_SUPPORTED                  = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED     = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED     = 901,
    CUDA_ERROR_STREAM_CAPTURE_MERGE           = 902,
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED       = 903,
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED        = 904,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION       = 905,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT        = 906,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD    = 908,
    CUDA_ERROR_UNKNOWN                        = 999
} CUresult;

typedef enum {
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT                            = 16,
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID                                      = 33,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID                                   = 34,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING                              = 41,
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID                                   = 50,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR                        = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR                        = 76,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1                       = 92,
    CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED                         = 99,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED             = 102,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED     = 103,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED                       = 116,
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS                   = 122,
    CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED                             = 125,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED                             = 132,
    CU_DEVICE_ATTRIBUTE_MPS_ENABLED                                     = 133
} CUdevice_attribute;

typedef enum {
    CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK        = 1,
    CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED        = 2,
    CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED = 3
} CUdevice_P2PAttribute;

typedef enum {
    CU_POINTER_ATTRIBUTE_CONTEXT              = 1,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE          = 2,
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER       = 3,
    CU_POINTER_ATTRIBUTE_HOST_POINTER         = 4,
    CU_POINTER_ATTRIBUTE_BUFFER_ID            = 7,
    CU_POINTER_ATTRIBUTE_IS_MANAGED           = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL       = 9,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR     = 11,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE           = 12
} CUpointer_attribute;

enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };

/* Flags of calls, as plain numbers. */
enum {
    CU_STREAM_DEFAULT                  = 0,
    CU_STREAM_NON_BLOCKING             = 1, /* does not order itself with the legacy default stream */
    CU_EVENT_DEFAULT                   = 0,
    CU_EVENT_BLOCKING_SYNC             = 1,
    CU_EVENT_DISABLE_TIMING            = 2,
    CU_MEMHOSTALLOC_PORTABLE           = 1,
    CU_MEMHOSTALLOC_DEVICEMAP          = 2,
    CU_MEMHOSTREGISTER_PORTABLE        = 1,
    CU_MEMHOSTREGISTER_DEVICEMAP       = 2,
    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
    CU_STREAM_WAIT_VALUE_GEQ           = 0, /* signed difference, wraps */
    CU_STREAM_WAIT_VALUE_EQ            = 1,
    CU_STREAM_WAIT_VALUE_AND           = 2,
    CU_STREAM_WAIT_VALUE_NOR           = 3,
    CU_STREAM_WRITE_VALUE_DEFAULT      = 0
};

typedef enum {
    CU_STREAM_MEM_OP_WAIT_VALUE_32  = 1,
    CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2,
    CU_STREAM_MEM_OP_WAIT_VALUE_64  = 4,
    CU_STREAM_MEM_OP_WRITE_VALUE_64 = 5
} CUstreamBatchMemOpType;

/* One memory operation of a batch; waits and writes have the same layout. */
typedef union {
    CUstreamBatchMemOpType operation;
    struct {
        CUstreamBatchMemOpType operation;
        CUdeviceptr            address;
        union {
            uint32_t value;
            uint64_t value64;
        };
        unsigned    flags;
        CUdeviceptr alias; /* the driver's */
    } waitValue, writeValue;
    uint64_t pad[6];
} CUstreamBatchMemOpParams;

typedef enum { CU_STREAM_CAPTURE_MODE_GLOBAL = 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1, CU_STREAM_CAPTURE_MODE_RELAXED = 2 } CUstreamCaptureMode;
typedef enum { CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_STREAM_CAPTURE_STATUS_ACTIVE = 1, CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2 } CUstreamCaptureStatus;

typedef enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 } CUmemAllocationType;
typedef enum { CU_MEM_HANDLE_TYPE_NONE = 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1 } CUmemAllocationHandleType;
typedef enum { CU_MEM_LOCATION_TYPE_DEVICE = 1, CU_MEM_LOCATION_TYPE_HOST = 2 } CUmemLocationType;
typedef enum { CU_MEM_ACCESS_FLAGS_PROT_NONE = 0, CU_MEM_ACCESS_FLAGS_PROT_READ = 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 } CUmemAccess_flags;
typedef enum { CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1 } CUmemAllocationGranularity_flags;

typedef struct {
    CUmemLocationType type;
    int               id;
} CUmemLocation;

typedef struct {
    CUmemAllocationType       type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation             location;
    void                     *win32HandleMetaData; /* not of this system; NULL */
    struct {
        unsigned char  compressionType;
        unsigned char  gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char  reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct {
    CUmemLocation     location;
    CUmemAccess_flags flags;
} CUmemAccessDesc;

typedef int CUjit_option;
typedef int CUlibraryOption;
typedef int CUfunction_attribute;
enum { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };

typedef enum {
    CU_GET_PROC_ADDRESS_SUCCESS                = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND       = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2
} CUdriverProcAddressQueryResult;

/* How every other entry point is found; the versioned name, since the plain one has another signature. */
typedef CUresult (*CUgetProcAddress)(const char *symbol, void **function, int version, uint64_t flags, CUdriverProcAddressQueryResult *status);

/* X(name, version of the interface whose form is wanted, arguments). All give a CUresult. */
#define HKT_CUDA_FUNCTIONS(X)                                                                                                              \
    /* the driver, devices */                                                                                                              \
    X(cuInit, 2000, (unsigned flags))                                                                                                      \
    X(cuDriverGetVersion, 2020, (int *version))                                                                                            \
    X(cuDeviceGetCount, 2000, (int *count))                                                                                                \
    X(cuDeviceGet, 2000, (CUdevice * device, int ordinal))                                                                                 \
    X(cuDeviceGetName, 2000, (char *name, int length, CUdevice device))                                                                    \
    X(cuDeviceTotalMem, 3020, (size_t * bytes, CUdevice device))                                                                           \
    X(cuDeviceGetAttribute, 2000, (int *value, CUdevice_attribute attribute, CUdevice device))                                             \
    X(cuDeviceGetUuid, 11040, (CUuuid * uuid, CUdevice device))                                                                            \
    X(cuDeviceGetPCIBusId, 4010, (char *text, int length, CUdevice device))                                                                \
    X(cuDeviceCanAccessPeer, 4000, (int *can, CUdevice device, CUdevice peer))                                                             \
    X(cuDeviceGetP2PAttribute, 8000, (int *value, CUdevice_P2PAttribute attribute, CUdevice source, CUdevice target))                      \
    X(cuGetErrorName, 6000, (CUresult error, const char **text))                                                                           \
    X(cuGetErrorString, 6000, (CUresult error, const char **text))                                                                         \
    /* contexts */                                                                                                                         \
    X(cuDevicePrimaryCtxRetain, 7000, (CUcontext * context, CUdevice device))                                                              \
    X(cuDevicePrimaryCtxRelease, 11000, (CUdevice device))                                                                                 \
    X(cuCtxGetCurrent, 4000, (CUcontext * context))                                                                                        \
    X(cuCtxSetCurrent, 4000, (CUcontext context))                                                                                          \
    X(cuCtxPushCurrent, 4000, (CUcontext context))                                                                                         \
    X(cuCtxPopCurrent, 4000, (CUcontext * context))                                                                                        \
    X(cuCtxGetDevice, 2000, (CUdevice * device))                                                                                           \
    X(cuCtxEnablePeerAccess, 4000, (CUcontext peer, unsigned flags))                                                                       \
    X(cuCtxSynchronize, 2000, (void))                                                                                                      \
    /* memory */                                                                                                                           \
    X(cuMemAlloc, 3020, (CUdeviceptr * pointer, size_t bytes))                                                                             \
    X(cuMemFree, 3020, (CUdeviceptr pointer))                                                                                              \
    X(cuMemHostAlloc, 2020, (void **pointer, size_t bytes, unsigned flags))                                                                \
    X(cuMemFreeHost, 2000, (void *pointer))                                                                                                \
    X(cuMemHostRegister, 6050, (void *pointer, size_t bytes, unsigned flags))                                                              \
    X(cuMemHostUnregister, 4000, (void *pointer))                                                                                          \
    X(cuMemHostGetDevicePointer, 3020, (CUdeviceptr * pointer, void *host, unsigned flags))                                                \
    X(cuMemGetAddressRange, 3020, (CUdeviceptr * base, size_t *bytes, CUdeviceptr pointer))                                                \
    X(cuPointerGetAttribute, 4000, (void *value, CUpointer_attribute attribute, CUdeviceptr pointer))                                      \
    X(cuIpcGetMemHandle, 4010, (CUipcMemHandle * handle, CUdeviceptr pointer))                                                             \
    X(cuIpcOpenMemHandle, 11000, (CUdeviceptr * pointer, CUipcMemHandle handle, unsigned flags))                                           \
    X(cuIpcCloseMemHandle, 4010, (CUdeviceptr pointer))                                                                                    \
    X(cuMemGetAllocationGranularity, 10020,                                                                                                \
      (size_t * bytes, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option))                                    \
    X(cuMemCreate, 10020, (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *properties,                     \
                           unsigned long long flags))                                                                                      \
    X(cuMemRelease, 10020, (CUmemGenericAllocationHandle handle))                                                                          \
    X(cuMemAddressReserve, 10020, (CUdeviceptr * pointer, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags))     \
    X(cuMemAddressFree, 10020, (CUdeviceptr pointer, size_t bytes))                                                                        \
    X(cuMemMap, 10020, (CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags))  \
    X(cuMemUnmap, 10020, (CUdeviceptr pointer, size_t bytes))                                                                              \
    X(cuMemSetAccess, 10020, (CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count))                             \
    X(cuMemExportToShareableHandle, 10020,                                                                                                 \
      (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags))                    \
    X(cuMemImportFromShareableHandle, 10020,                                                                                               \
      (CUmemGenericAllocationHandle * handle, void *shareable, CUmemAllocationHandleType type))                                            \
    X(cuMemRetainAllocationHandle, 11000, (CUmemGenericAllocationHandle * handle, void *pointer))                                          \
    /* streams and events */                                                                                                               \
    X(cuStreamCreateWithPriority, 5050, (CUstream * stream, unsigned flags, int priority))                                                 \
    X(cuStreamDestroy, 4000, (CUstream stream))                                                                                            \
    X(cuStreamSynchronize, 2000, (CUstream stream))                                                                                        \
    X(cuStreamQuery, 2000, (CUstream stream))                                                                                              \
    X(cuStreamWaitEvent, 3020, (CUstream stream, CUevent event, unsigned flags))                                                           \
    X(cuStreamGetCtx, 9020, (CUstream stream, CUcontext * context))                                                                        \
    X(cuStreamIsCapturing, 10000, (CUstream stream, CUstreamCaptureStatus * status))                                                       \
    X(cuStreamGetCaptureInfo, 10010, (CUstream stream, CUstreamCaptureStatus * status, uint64_t * id))                                     \
    X(cuStreamBeginCapture, 10010, (CUstream stream, CUstreamCaptureMode mode))                                                            \
    X(cuStreamEndCapture, 10000, (CUstream stream, CUgraph * graph))                                                                       \
    X(cuThreadExchangeStreamCaptureMode, 10010, (CUstreamCaptureMode * mode))                                                              \
    X(cuStreamWaitValue32, 11070, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags))                                  \
    X(cuStreamWriteValue32, 11070, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags))                                 \
    X(cuStreamBatchMemOp, 11070, (CUstream stream, unsigned count, CUstreamBatchMemOpParams * operations, unsigned flags))                 \
    X(cuEventCreate, 2000, (CUevent * event, unsigned flags))                                                                              \
    X(cuEventDestroy, 4000, (CUevent event))                                                                                               \
    X(cuEventRecord, 2000, (CUevent event, CUstream stream))                                                                               \
    X(cuEventQuery, 2000, (CUevent event))                                                                                                 \
    X(cuEventSynchronize, 2000, (CUevent event))                                                                                           \
    X(cuEventElapsedTime, 2000, (float *milliseconds, CUevent begin, CUevent end))                                                         \
    X(cuMemcpyAsync, 4000, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                                              \
    X(cuMemsetD8Async, 3020, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))                                         \
    X(cuMemsetD32Async, 3020, (CUdeviceptr to, unsigned value, size_t count, CUstream stream))                                             \
    X(cuLaunchHostFunc, 10000, (CUstream stream, CUhostFn function, void *argument))                                                       \
    /* graphs */                                                                                                                           \
    X(cuGraphInstantiateWithFlags, 11040, (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                                   \
    X(cuGraphLaunch, 10000, (CUgraphExec exec, CUstream stream))                                                                           \
    X(cuGraphDestroy, 10000, (CUgraph graph))                                                                                              \
    X(cuGraphExecDestroy, 10000, (CUgraphExec exec))                                                                                       \
    /* code */                                                                                                                             \
    X(cuLibraryLoadData, 12000, (CUlibrary * library, const void *code, CUjit_option *options, void **values, unsigned noptions,           \
                                 CUlibraryOption *library_options, void **library_values, unsigned nlibrary_options))                      \
    X(cuLibraryUnload, 12000, (CUlibrary library))                                                                                         \
    X(cuLibraryGetKernel, 12000, (CUkernel * kernel, CUlibrary library, const char *name))                                                 \
    X(cuKernelGetFunction, 12000, (CUfunction * function, CUkernel kernel))                                                                \
    X(cuFuncSetAttribute, 9000, (CUfunction function, CUfunction_attribute attribute, int value))                                          \
    X(cuFuncLoad, 12040, (CUfunction function))                                                                                            \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, (int *blocks, CUfunction function, int threads, size_t shared))                   \
    X(cuLaunchKernel, 4000,                                                                                                                \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,       \
       unsigned shared, CUstream stream, void **parameters, void **extra))

#ifdef __cplusplus
}
#endif

#endif
