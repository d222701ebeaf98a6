/* ipc.c -- the older way to other processes: a handle of 64 bytes for memory from cuMemAlloc().
 *
 * The handle names the memfd of the exporter, which the importer opens through /proc. As with the driver, opening gives the whole
 * allocation's base, whatever pointer was exported, and never works in the exporting process.
 */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC = 0x46414b45 };

struct handle {
    uint32_t magic;
    int      pid, fd, device;
    uint64_t offset, bytes;
};

_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "a handle is 64 bytes");

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    struct fake_memory m;
    struct handle      h;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    if (!fake_memory_get(&m, pointer) || m.kind != FAKE_ALLOCATED) /* other memory has none */
        return CUDA_ERROR_INVALID_VALUE;
    h = (struct handle){MAGIC, getpid(), m.fd, m.device, m.offset, m.bytes};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &h, sizeof(h));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags)
{
    struct fake_memory m = {.kind = FAKE_OPENED};
    struct handle      h;
    char               path[64];
    struct stat        st;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    memcpy(&h, &handle, sizeof(h));
    if (h.magic != MAGIC || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (h.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (fake.link[h.device][fake_context()->device] == FAKE_LINK_NONE)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", h.pid, h.fd);
    m.fd = open(path, O_RDWR | O_CLOEXEC);
    if (m.fd < 0 || fstat(m.fd, &st))
        return (CUresult)FAKE_ERROR_MAP_FAILED; /* it is gone, or its owner is */
    m.map_bytes = (size_t)st.st_size;
    m.map       = mmap(NULL, m.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0);
    close(m.fd);
    m.fd = -1;
    if (m.map == MAP_FAILED)
        return (CUresult)FAKE_ERROR_MAP_FAILED;
    m.address = fake_address((char *)m.map + h.offset);
    m.bytes   = h.bytes;
    m.device  = h.device;
    m.access  = 1u << fake_context()->device;
    if (!fake_memory_add(&m))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = m.address;
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    struct fake_memory m;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    fake_context_drain(fake_context()->device);
    if (!fake_memory_take(&m, pointer, FAKE_OPENED))
        return CUDA_ERROR_INVALID_VALUE;
    munmap(m.map, m.map_bytes);
    return CUDA_SUCCESS;
}
