/* cuda_runtime.h -- as much of the CUDA runtime's interface as NVIDIA's nccl-tests and our suite use, for machines without CUDA: memory of devices is
 * memory of the host, a stream is a thread of it (cudart.c), kernels are functions that a C++ compiler has compiled.
 *
 * Names and values are CUDA's. A kernel is launched by cudaLaunchKernel() with what cuda_kernel() has made of it: see there.
 */
#ifndef FAKE_CUDA_RUNTIME_H
#define FAKE_CUDA_RUNTIME_H

#include <stddef.h>

#define CUDART_VERSION 12040

#define __global__
#define __host__
#define __device__
#define __shared__      static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

typedef struct CUstream_st    *cudaStream_t;
typedef struct CUevent_st     *cudaEvent_t;
typedef struct CUgraph_st     *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef void (*cudaHostFn_t)(void *arg);

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorStreamCaptureUnsupported = 900
} cudaError_t;

enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated };
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76 };
#define cudaStreamDefault     0
#define cudaStreamNonBlocking 1
#define cudaHostAllocMapped   2

struct cudaDeviceProp {
    char   name[256];
    size_t totalGlobalMem;
    int    pciDomainID, pciBusID, pciDeviceID;
};

typedef struct uint3 { unsigned x, y, z; } uint3;

#ifdef __cplusplus
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
extern "C" {
#else
typedef struct dim3 { unsigned x, y, z; } dim3;
#endif

const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaMalloc(void **ptr, size_t size);
cudaError_t cudaFree(void *ptr);
cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned flags);
cudaError_t cudaFreeHost(void *ptr);
cudaError_t cudaMemset(void *ptr, int value, size_t size);
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *arg);
cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

/* The kernel that runs: its place, set by fake_cuda_run() for each of its threads in turn. */
struct fake_cuda_place { uint3 thread, block, threads, blocks; };

/* What a kernel is to cudaLaunchKernel(): reads its arguments, once, and runs it for every thread. */
struct fake_cuda_kernel {
    size_t size;                                                             /* of the arguments, copied */
    void (*copy)(void *to, void **args);
    void (*run)(const struct fake_cuda_kernel *kernel, const void *args);    /* one thread of it */
    void (*function)(void);
};

#ifdef __cplusplus
}

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>
using std::max;
using std::min;

extern "C" thread_local struct fake_cuda_place fake_cuda_place;
#define threadIdx fake_cuda_place.thread
#define blockIdx  fake_cuda_place.block
#define blockDim  fake_cuda_place.threads
#define gridDim   fake_cuda_place.blocks

template<class T> cudaError_t cudaMalloc(T **ptr, size_t size)
{
    return cudaMalloc((void **)ptr, size);
}

/* The older form. */
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, void *, char *, size_t)
{
    return cudaGraphInstantiate(exec, graph, 0);
}

/* cuda_kernel() % &f: the kernel f, for cudaLaunchKernel(). Its threads run one after the other, so they must not wait for each other. */
struct cuda_kernel {};
template<class... A> struct fake_cuda_call {
    using arguments = std::tuple<A...>;
    template<size_t... I> static void take(arguments *to, void **args, std::index_sequence<I...>)
    {
        new (to) arguments(*static_cast<A *>(args[I])...);
    }
    static void copy(void *to, void **args)
    {
        take(static_cast<arguments *>(to), args, std::index_sequence_for<A...>());
    }
    static void run(const fake_cuda_kernel *kernel, const void *args)
    {
        std::apply(reinterpret_cast<void (*)(A...)>(kernel->function), *static_cast<const arguments *>(args));
    }
};
template<class... A> const void *operator%(cuda_kernel, void (*function)(A...))
{
    using call = fake_cuda_call<A...>;

    return new fake_cuda_kernel{sizeof(typename call::arguments), call::copy, call::run, reinterpret_cast<void (*)()>(function)};
}
#endif
#endif
