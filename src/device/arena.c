/* arena.c -- see arena.h. VMM memory stays whole until its last mapping goes, so a peer that dies leaves nothing that a kernel could stumble over;
 * that is why it comes first. */
#include "device/arena.h"

#include "base/error.h"

#include <string.h>

static int device_now(CUdevice *device)
{
    HKT_CUDA_TRY(cuCtxGetDevice(device));
    return 0;
}

static CUmemAllocationProp properties(CUdevice device)
{
    CUmemAllocationProp p;

    memset(&p, 0, sizeof(p));
    p.type                 = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    p.location             = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
    return p;
}

static CUresult allow(CUdeviceptr base, size_t size, CUdevice device)
{
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    return hkt_cuda()->cuMemSetAccess(base, size, &access, 1);
}

/* Maps a handle, which may go afterwards. */
static CUresult map(struct hkt_arena *arena, CUmemGenericAllocationHandle handle, CUdevice device)
{
    const struct hkt_cuda *cuda  = hkt_cuda();
    CUresult               error = cuda->cuMemAddressReserve(&arena->base, arena->size, 0, 0, 0);

    if (error)
        return error;
    error = cuda->cuMemMap(arena->base, arena->size, 0, handle, 0);
    if (!error) {
        error = allow(arena->base, arena->size, device);
        if (error)
            cuda->cuMemUnmap(arena->base, arena->size);
    }
    if (error)
        cuda->cuMemAddressFree(arena->base, arena->size);
    return error;
}

static CUresult make_vmm(struct hkt_arena *arena, CUdevice device)
{
    const struct hkt_cuda       *cuda = hkt_cuda();
    const CUmemAllocationProp    p    = properties(device);
    CUmemGenericAllocationHandle handle;
    size_t                       unit = 0;
    CUresult                     error;

    error = cuda->cuMemGetAllocationGranularity(&unit, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (error)
        return error;
    arena->size = (arena->size + unit - 1) / unit * unit;
    error       = cuda->cuMemCreate(&handle, arena->size, &p, 0);
    if (error)
        return error;
    error = map(arena, handle, device);
    cuda->cuMemRelease(handle);
    return error;
}

int hkt_arena_make(struct hkt_arena *arena, size_t size)
{
    CUdevice device;
    int      fds = 0;

    *arena = (struct hkt_arena){.size = size, .vmm = true};
    HKT_TRY(device_now(&device));
    hkt_cuda()->cuDeviceGetAttribute(&fds, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
    if (fds && !make_vmm(arena, device))
        return 0;
    *arena = (struct hkt_arena){.size = size};
    HKT_CUDA_TRY(cuMemAlloc(&arena->base, size));
    return 0;
}

int hkt_arena_export(const struct hkt_arena *arena, int *fd, CUipcMemHandle *handle)
{
    CUmemGenericAllocationHandle vmm;
    CUresult                     error;

    *fd = -1;
    if (!arena->vmm) {
        HKT_CUDA_TRY(cuIpcGetMemHandle(handle, arena->base));
        return 0;
    }
    HKT_CUDA_TRY(cuMemRetainAllocationHandle(&vmm, (void *)(uintptr_t)arena->base));
    error = hkt_cuda()->cuMemExportToShareableHandle(fd, vmm, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    hkt_cuda()->cuMemRelease(vmm);
    return error ? hkt_cuda_fail(error, "a descriptor for device memory") : 0;
}

int hkt_arena_open(struct hkt_arena *arena, size_t size, int fd, const CUipcMemHandle *handle)
{
    CUmemGenericAllocationHandle vmm;
    CUdevice                     device;
    CUresult                     error;

    *arena = (struct hkt_arena){.size = size, .vmm = fd >= 0, .opened = true};
    HKT_TRY(device_now(&device));
    if (fd < 0) {
        HKT_CUDA_TRY(cuIpcOpenMemHandle(&arena->base, *handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        return 0;
    }
    HKT_CUDA_TRY(cuMemImportFromShareableHandle(&vmm, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    error = map(arena, vmm, device);
    hkt_cuda()->cuMemRelease(vmm);
    return error ? hkt_cuda_fail(error, "mapping a peer's device memory") : 0;
}

int hkt_arena_admit(struct hkt_arena *arena, const struct hkt_arena *of, CUcontext owner)
{
    CUmemGenericAllocationHandle vmm;
    CUcontext                    here = NULL;
    CUdevice                     device;
    CUresult                     error;

    *arena = *of;
    HKT_TRY(device_now(&device));
    if (of->vmm) {
        HKT_CUDA_TRY(cuMemRetainAllocationHandle(&vmm, (void *)(uintptr_t)of->base));
        error = map(arena, vmm, device);
        hkt_cuda()->cuMemRelease(vmm);
        return error ? hkt_cuda_fail(error, "mapping the device memory of another rank of this process") : 0;
    }
    HKT_CUDA_TRY(cuCtxGetCurrent(&here));
    error = here == owner ? CUDA_SUCCESS : hkt_cuda()->cuCtxEnablePeerAccess(owner, 0);
    return error && error != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? hkt_cuda_fail(error, "reaching another GPU's memory") : 0;
}

void hkt_arena_close(struct hkt_arena *arena)
{
    const struct hkt_cuda *cuda = hkt_cuda();

    if (!arena->base)
        return;
    if (arena->vmm) {
        cuda->cuMemUnmap(arena->base, arena->size);
        cuda->cuMemAddressFree(arena->base, arena->size);
    } else if (arena->opened)
        cuda->cuIpcCloseMemHandle(arena->base);
    else
        cuda->cuMemFree(arena->base);
    arena->base = 0;
}
