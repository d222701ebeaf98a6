/* devices.c -- the devices of the fake CUDA runtime, which are numbers, and their memory, which is the host's. */
#include <stdlib.h>
#include <string.h>

#include "cuda_runtime.h"

#define EXPORT __attribute__((visibility("default")))

enum { DEVICES = 64 };

static _Thread_local int current;

EXPORT const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid value";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "no such device";
    case cudaErrorInvalidResourceHandle: return "no such handle";
    case cudaErrorNotReady: return "not ready";
    case cudaErrorStreamCaptureUnsupported: return "not while or only while capturing";
    }
    return "?";
}

EXPORT cudaError_t cudaGetDeviceCount(int *count)
{
    *count = DEVICES;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= DEVICES)
        return cudaErrorInvalidDevice;
    current = device;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    memset(p, 0, sizeof(*p));
    strcpy(p->name, "memory of the host");
    p->totalGlobalMem = (size_t)64 << 30;
    p->pciBusID       = device;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)device;
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *available = *total = (size_t)64 << 30;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMalloc(void **ptr, size_t size)
{
    *ptr = malloc(size ? size : 1);
    return *ptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

EXPORT cudaError_t cudaFree(void *ptr)
{
    cudaDeviceSynchronize();
    free(ptr);
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned flags)
{
    (void)flags;
    return cudaMalloc(ptr, size);
}

EXPORT cudaError_t cudaFreeHost(void *ptr)
{
    return cudaFree(ptr);
}
