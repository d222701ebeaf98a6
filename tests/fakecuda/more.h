/* more.h -- what the fake driver has beyond the library's own list of entry points (device/cuda_api.h): what users of CUDA call around
 * collectives (captures with external events, user objects, plain copies), and what only its tests look at. */
#ifndef FAKECUDA_MORE_H
#define FAKECUDA_MORE_H

#include "device/cuda_api.h"

typedef struct CUuserObject_st *CUuserObject;
typedef struct CUmod_st        *CUmodule;

/* Errors that the library's list does not name. */
enum {
    FAKE_ERROR_SHARED_OBJECT_INIT_FAILED  = 303,
    FAKE_ERROR_MAP_FAILED                 = 205,
    FAKE_ERROR_LAUNCH_OUT_OF_RESOURCES    = 701,
    FAKE_ERROR_CONTEXT_IS_DESTROYED       = 709,
    FAKE_ERROR_CAPTURED_EVENT             = 907
};

/* Attributes that the library does not ask for. */
enum {
    FAKE_ATTRIBUTE_MAX_THREADS_PER_BLOCK          = 1,
    FAKE_ATTRIBUTE_WARP_SIZE                      = 10,
    FAKE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    FAKE_ATTRIBUTE_ASYNC_ENGINE_COUNT             = 40,
    FAKE_ATTRIBUTE_COMPUTE_PREEMPTION             = 90,
    FAKE_ATTRIBUTE_HOST_POINTER_OF_REGISTERED     = 91,
    FAKE_ATTRIBUTE_DMA_BUF                        = 124,
    FAKE_ATTRIBUTE_HOST_NUMA_ID                   = 134,
    FAKE_POINTER_IPC_CAPABLE                      = 10,
    FAKE_POINTER_SYNC_MEMOPS                      = 6,
    FAKE_FUNCTION_MAX_THREADS                     = 0,
    FAKE_FUNCTION_LOCAL_BYTES                     = 3,
    FAKE_EVENT_EXTERNAL                           = 1, /* of cuEventRecordWithFlags() and cuStreamWaitEvent(), in captures */
    FAKE_GRAPH_USER_OBJECT_MOVE                   = 1
};

typedef struct {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    CUstream stream;
    void    *attributes;
    unsigned nattributes;
} CUlaunchConfig;

#define FAKE_FUNCTIONS(X)                                                                                                                  \
    X(cuDeviceGetByPCIBusId, 4010, (CUdevice * device, const char *text))                                                                  \
    X(cuCtxGetStreamPriorityRange, 5050, (int *least, int *greatest))                                                                      \
    X(cuMemGetInfo, 3020, (size_t * available, size_t *total))                                                                             \
    X(cuMemGetHandleForAddressRange, 11070,                                                                                                \
      (void *handle, CUdeviceptr pointer, size_t bytes, int type, unsigned long long flags))                                               \
    X(cuMemcpy, 4000, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                                                                    \
    X(cuMemcpyHtoD, 3020, (CUdeviceptr to, const void *from, size_t bytes))                                                                \
    X(cuMemcpyDtoH, 3020, (void *to, CUdeviceptr from, size_t bytes))                                                                      \
    X(cuMemcpyDtoD, 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                                                                \
    X(cuMemcpyHtoDAsync, 3020, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                                          \
    X(cuMemcpyDtoHAsync, 3020, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                                                \
    X(cuMemcpyDtoDAsync, 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                                          \
    X(cuMemsetD8, 3020, (CUdeviceptr to, unsigned char value, size_t count))                                                               \
    X(cuStreamCreate, 2000, (CUstream * stream, unsigned flags))                                                                           \
    X(cuStreamGetId, 12000, (CUstream stream, unsigned long long *id))                                                                     \
    X(cuStreamGetFlags, 5050, (CUstream stream, unsigned *flags))                                                                          \
    X(cuStreamGetDevice, 12080, (CUstream stream, CUdevice * device))                                                                      \
    X(cuStreamWaitValue64, 11070, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags))                                  \
    X(cuStreamWriteValue64, 11070, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags))                                 \
    X(cuStreamGetCaptureInfo_v2, 11030,                                                                                                    \
      (CUstream stream, CUstreamCaptureStatus * status, uint64_t *id, CUgraph *graph, const void **nodes, size_t *count))                  \
    X(cuEventRecordWithFlags, 11010, (CUevent event, CUstream stream, unsigned flags))                                                     \
    X(cuGraphUpload, 11010, (CUgraphExec exec, CUstream stream))                                                                           \
    X(cuGraphGetNodes, 10000, (CUgraph graph, void *nodes, size_t *count))                                                                 \
    X(cuUserObjectCreate, 11030, (CUuserObject * object, void *pointer, CUhostFn destroy, unsigned references, unsigned flags))            \
    X(cuUserObjectRetain, 11030, (CUuserObject object, unsigned count))                                                                    \
    X(cuUserObjectRelease, 11030, (CUuserObject object, unsigned count))                                                                   \
    X(cuGraphRetainUserObject, 11030, (CUgraph graph, CUuserObject object, unsigned count, unsigned flags))                                \
    X(cuModuleLoadData, 2000, (CUmodule * module, const void *image))                                                                      \
    X(cuModuleUnload, 2000, (CUmodule module))                                                                                             \
    X(cuModuleGetFunction, 2000, (CUfunction * function, CUmodule module, const char *name))                                               \
    X(cuFuncGetAttribute, 2020, (int *value, CUfunction_attribute attribute, CUfunction function))                                         \
    X(cuLaunchKernelEx, 11060, (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra))

/* ---- for tests: exported beside the driver's own names --------------------------------------------------------------------- */

/* What is alive in this process. */
enum fake_kind { FAKE_ALLOCATIONS, FAKE_HOST_RANGES, FAKE_MAPPINGS, FAKE_STREAMS, FAKE_EVENTS, FAKE_GRAPHS, FAKE_LIBRARIES, FAKE_CONTEXTS, FAKE_KINDS };

long fakecuda_alive(enum fake_kind kind);

/* How often this process has called an entry point. */
unsigned long fakecuda_calls(const char *name);

/* The nth call from now (1: the next) of `name` gives `error`; 0: none any more. As FAKECUDA_FAIL does, from a program. */
void fakecuda_fail(const char *name, unsigned long nth, CUresult error);

#endif
