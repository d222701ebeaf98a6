/* device.c -- starting, devices and what joins them, contexts, names of errors; and what every entry point asks first. */
#include "fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STACK = 16, FIRST_BUS = 0x10 };

static pthread_mutex_t  lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t            owner; /* 0: not initialised */
static struct CUctx_st  primary[FAKE_DEVICES];
static __thread CUcontext stack[STACK];
static __thread int       depth;
__thread bool             fake_in_callback;

/* ---- what every entry point asks ------------------------------------------------------------------------------------------------ */

CUcontext fake_context(void)
{
    return depth ? stack[depth - 1] : NULL;
}

CUresult fake_enter(const char *name, int need)
{
    const CUcontext context = fake_context();

    FAKE_TRY(fake_fault(name));
    if (fake_in_callback)
        return CUDA_ERROR_NOT_PERMITTED;
    if (need && __atomic_load_n(&owner, __ATOMIC_ACQUIRE) != getpid()) /* pairs with cuInit(); nothing survives a fork */
        return CUDA_ERROR_NOT_INITIALIZED;
    if ((need & FAKE_CONTEXT) == FAKE_CONTEXT) {
        if (!context)
            return CUDA_ERROR_INVALID_CONTEXT;
        if (!__atomic_load_n(&context->references, __ATOMIC_RELAXED))
            return (CUresult)FAKE_ERROR_CONTEXT_IS_DESTROYED;
        FAKE_TRY((CUresult)__atomic_load_n(&context->sticky, __ATOMIC_RELAXED));
    }
    return need & FAKE_UNSAFE ? fake_capture_unsafe() : CUDA_SUCCESS;
}

CUcontext fake_context_of(int device)
{
    for (int i = 0; i < fake.ndevices; i++)
        if (fake.physical[i] == device)
            return &primary[i];
    return NULL;
}

void fake_context_fail(int device, CUresult error)
{
    CUcontext context = fake_context_of(device);

    if (context)
        __atomic_store_n(&context->sticky, error, __ATOMIC_RELAXED);
}

long fake_contexts_alive(void)
{
    long n = 0;

    for (int i = 0; i < fake.ndevices; i++)
        n += __atomic_load_n(&primary[i].references, __ATOMIC_RELAXED);
    return n;
}

/* ---- starting --------------------------------------------------------------------------------------------------------------------- */

/* Kernels are optional: whoever launches none needs none. */
static CUresult load_kernels(void)
{
    if (!fake.kernels[0] || (access(fake.kernels, R_OK) && strstr(fake.kernels, "/libfakekernels.so")))
        return CUDA_SUCCESS;
    if (dlopen(fake.kernels, RTLD_NOW | RTLD_LOCAL))
        return CUDA_SUCCESS;
    fprintf(stderr, "fakecuda: %s\n", dlerror());
    return (CUresult)FAKE_ERROR_SHARED_OBJECT_INIT_FAILED;
}

CUresult cuInit(unsigned flags)
{
    CUresult error = CUDA_SUCCESS;

    FAKE_TRY(fake_enter(__func__, FAKE_NOTHING));
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (owner && owner != getpid())
        error = CUDA_ERROR_NOT_INITIALIZED; /* a forked child: the driver cannot be started again there */
    if (!owner) {
        fake_settings_read();
        for (int i = 0; i < fake.ndevices; i++) {
            primary[i].ordinal = i;
            primary[i].device  = fake.physical[i];
        }
        error = fake.ndevices ? load_kernels() : CUDA_ERROR_NO_DEVICE;
        if (!error)
            __atomic_store_n(&owner, getpid(), __ATOMIC_RELEASE); /* pairs with fake_enter() */
    }
    pthread_mutex_unlock(&lock);
    return error;
}

CUresult cuDriverGetVersion(int *version)
{
    FAKE_TRY(fake_enter(__func__, FAKE_NOTHING));
    *version = 13000;
    return CUDA_SUCCESS;
}

/* ---- devices ---------------------------------------------------------------------------------------------------------------------- */

static CUresult enter_device(const char *name, CUdevice device)
{
    FAKE_TRY(fake_enter(name, FAKE_INITIALISED));
    return device >= 0 && device < fake.ndevices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetCount(int *count)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    *count = fake.ndevices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    FAKE_TRY(enter_device(__func__, ordinal));
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    FAKE_TRY(enter_device(__func__, device));
    snprintf(name, (size_t)length, "Fake GPU");
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    FAKE_TRY(enter_device(__func__, device));
    *bytes = (size_t)16 << 30;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    FAKE_TRY(enter_device(__func__, device));
    memset(uuid, 0, sizeof(*uuid));
    memcpy(uuid->bytes, "fakecuda", 8);
    uuid->bytes[15] = (char)fake.physical[device];
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    FAKE_TRY(enter_device(__func__, device));
    snprintf(text, (size_t)length, "0000:%02X:00.0", (unsigned)(FIRST_BUS + 16 * fake.physical[device]));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
    unsigned bus;

    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    if (sscanf(text, "%*x:%x", &bus) == 1)
        for (int i = 0; i < fake.ndevices; i++)
            if (bus == (unsigned)(FIRST_BUS + 16 * fake.physical[i])) {
                *device = i;
                return CUDA_SUCCESS;
            }
    return CUDA_ERROR_INVALID_DEVICE;
}

static const struct {
    int attribute, value;
} constants[] = {
    {FAKE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {FAKE_ATTRIBUTE_WARP_SIZE, 32},
    {FAKE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {FAKE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {FAKE_ATTRIBUTE_COMPUTE_PREEMPTION, 1},
    {FAKE_ATTRIBUTE_HOST_POINTER_OF_REGISTERED, 1},
    {FAKE_ATTRIBUTE_HOST_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, FAKE_MULTIPROCESSORS},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
};

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    FAKE_TRY(enter_device(__func__, device));
    *value = 0; /* multicast, fabric handles, flushing of remote writes: not here */
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++)
        if (constants[i].attribute == (int)attribute)
            *value = constants[i].value;
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *value = FIRST_BUS + 16 * fake.physical[device];
        break;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        *value = fake.memory_operations;
        break;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
        *value = fake.mps;
        break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case FAKE_ATTRIBUTE_DMA_BUF:
        *value = fake.dma_buf;
        break;
    }
    return CUDA_SUCCESS;
}

static enum fake_link between(CUdevice a, CUdevice b)
{
    return fake.link[fake.physical[a]][fake.physical[b]];
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    FAKE_TRY(enter_device(__func__, device));
    if (peer < 0 || peer >= fake.ndevices)
        return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && between(device, peer) != FAKE_LINK_NONE;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice source, CUdevice target)
{
    FAKE_TRY(enter_device(__func__, source));
    if (target < 0 || target >= fake.ndevices || source == target)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = 0;
    if (attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK) /* 0 is best */
        *value = between(source, target) != FAKE_LINK_NVLINK;
    else if (attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)
        *value = between(source, target) != FAKE_LINK_NONE;
    else if (attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)
        *value = between(source, target) == FAKE_LINK_NVLINK;
    return CUDA_SUCCESS;
}

/* ---- contexts --------------------------------------------------------------------------------------------------------------------- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    FAKE_TRY(enter_device(__func__, device));
    __atomic_add_fetch(&primary[device].references, 1, __ATOMIC_RELAXED);
    *context = &primary[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    FAKE_TRY(enter_device(__func__, device));
    if (!__atomic_load_n(&primary[device].references, __ATOMIC_RELAXED))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!__atomic_sub_fetch(&primary[device].references, 1, __ATOMIC_RELAXED))
        __atomic_store_n(&primary[device].sticky, CUDA_SUCCESS, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    *context = fake_context();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    if (!context) {
        depth -= depth > 0;
        return CUDA_SUCCESS;
    }
    depth += !depth;
    stack[depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    if (!context || depth == STACK)
        return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context)
        *context = stack[depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    *device = fake_context()->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    CUcontext me = fake_context();
    unsigned  bit;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!peer || peer == me)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (fake.link[me->device][peer->device] == FAKE_LINK_NONE)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    bit = 1u << peer->device;
    return __atomic_fetch_or(&me->peers, bit, __ATOMIC_RELAXED) & bit ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

/* ---- names of errors --------------------------------------------------------------------------------------------------------------- */

static const struct {
    int         error;
    const char *name;
} names[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
};

CUresult cuGetErrorName(CUresult error, const char **text)
{
    static __thread char other[32];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].error == (int)error) {
            *text = names[i].name;
            return CUDA_SUCCESS;
        }
    snprintf(other, sizeof(other), "CUresult %d", (int)error);
    *text = other;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    return cuGetErrorName(error, text);
}
