/* memory.c -- device memory from cuMemAlloc(), host memory that devices see, and the list of all ranges that the driver knows.
 *
 * As drivers do it: small allocations share a block of 2 MiB, new memory is not zero, freeing waits for the whole context.
 */
#include "fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SMALL = FAKE_GRANULE / 2, SMALL_ALIGNMENT = 512, NOT_ZERO = 0xCD };

static pthread_mutex_t     lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_memory *ranges;
static unsigned long long  last_id;

static struct {
    int    fd;
    char  *base;
    size_t used;
} pool[FAKE_DEVICES];

/* ---- the list ---------------------------------------------------------------------------------------------------------------------- */

static struct fake_memory *find(CUdeviceptr address) /* under the lock */
{
    for (struct fake_memory *m = ranges; m; m = m->next)
        if (address - m->address < m->bytes)
            return m;
    return NULL;
}

static const enum fake_kind counted_as[] = {[FAKE_ALLOCATED]  = FAKE_ALLOCATIONS, [FAKE_HOST] = FAKE_HOST_RANGES,
                                            [FAKE_REGISTERED] = FAKE_HOST_RANGES, [FAKE_OPENED] = FAKE_MAPPINGS,
                                            [FAKE_MAPPED]     = FAKE_MAPPINGS};

bool fake_memory_add(const struct fake_memory *memory)
{
    struct fake_memory *m = malloc(sizeof(*m));

    if (!m)
        return false;
    *m = *memory;
    pthread_mutex_lock(&lock);
    m->id   = ++last_id;
    m->next = ranges;
    ranges  = m;
    pthread_mutex_unlock(&lock);
    fake_count(counted_as[m->kind], 1);
    return true;
}

bool fake_memory_get(struct fake_memory *copy, CUdeviceptr address)
{
    struct fake_memory *m;

    pthread_mutex_lock(&lock);
    m = find(address);
    if (m)
        *copy = *m;
    pthread_mutex_unlock(&lock);
    return m != NULL;
}

bool fake_memory_take(struct fake_memory *copy, CUdeviceptr address, enum fake_memory_kind kind)
{
    struct fake_memory *m = NULL;

    pthread_mutex_lock(&lock);
    for (struct fake_memory **at = &ranges; *at; at = &(*at)->next)
        if ((*at)->address == address && (*at)->kind == kind) {
            m   = *at;
            *at = m->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (!m)
        return false;
    *copy = *m;
    free(m);
    fake_count(counted_as[kind], -1);
    return true;
}

void fake_memory_grant(CUdeviceptr begin, size_t bytes, unsigned devices)
{
    pthread_mutex_lock(&lock);
    for (struct fake_memory *m = ranges; m; m = m->next)
        if (m->kind == FAKE_MAPPED && m->address - begin < bytes)
            m->access |= devices;
    pthread_mutex_unlock(&lock);
}

bool fake_memory_covered(CUdeviceptr begin, size_t bytes, enum fake_memory_kind kind)
{
    CUdeviceptr at = begin;

    pthread_mutex_lock(&lock);
    while (at < begin + bytes) {
        const struct fake_memory *m = find(at);

        if (!m || m->kind != kind || m->address != at)
            break;
        at += m->bytes;
    }
    pthread_mutex_unlock(&lock);
    return bytes && at == begin + bytes;
}

static bool allowed(CUcontext context, const struct fake_memory *m)
{
    unsigned owners = m->access;

    if (m->kind == FAKE_ALLOCATED && __atomic_load_n(&context->peers, __ATOMIC_RELAXED) >> m->device & 1)
        owners = ~0u;
    return owners >> context->device & 1;
}

bool fake_memory_reach(CUcontext context, CUdeviceptr address, size_t bytes, bool pageable)
{
    const char         *trouble = NULL;
    struct fake_memory *m;

    pthread_mutex_lock(&lock);
    m = find(address);
    if (!m && (address & FAKE_TAG || !pageable))
        trouble = "is no memory that the driver knows";
    else if (m && address - m->address + bytes > m->bytes)
        trouble = "ends before the operation does";
    else if (m && !allowed(context, m))
        trouble = "is not accessible to it";
    pthread_mutex_unlock(&lock);
    if (trouble)
        fprintf(stderr, "fakecuda: device %d: %#llx %s\n", context->device, address, trouble);
    return !trouble;
}

bool fake_memory_pageable(CUdeviceptr address)
{
    bool known;

    pthread_mutex_lock(&lock);
    known = find(address) != NULL;
    pthread_mutex_unlock(&lock);
    return !known && !(address & FAKE_TAG);
}

/* ---- files that hold device memory --------------------------------------------------------------------------------------------------- */

/* The name carries the device to whoever is given the descriptor. */
int fake_memory_fd(const char *kind, int device, size_t bytes)
{
    char name[64];
    int  fd;

    snprintf(name, sizeof(name), "fakecuda-%s-%d", kind, device);
    fd = memfd_create(name, MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int fake_memory_fd_device(int fd)
{
    char        path[64], name[128] = "";
    const char *dash;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (readlink(path, name, sizeof(name) - 1) < 0 || !strstr(name, "fakecuda-vmm-") || !(dash = strrchr(name, '-')))
        return -1;
    return atoi(dash + 1);
}

/* ---- cuMemAlloc ----------------------------------------------------------------------------------------------------------------------- */

/* Part of the block that small allocations of the device share; the part is never used again. */
static CUresult allocate_small(struct fake_memory *m)
{
    const size_t bytes = (m->bytes + SMALL_ALIGNMENT - 1) / SMALL_ALIGNMENT * SMALL_ALIGNMENT;
    CUresult     error = CUDA_SUCCESS;

    pthread_mutex_lock(&lock);
    if (!pool[m->device].base || pool[m->device].used + bytes > FAKE_GRANULE) {
        const int fd   = fake_memory_fd("pool", m->device, FAKE_GRANULE);
        void     *base = fd < 0 ? MAP_FAILED : mmap(NULL, FAKE_GRANULE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (base == MAP_FAILED) {
            error = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            pool[m->device].fd   = fd; /* the old one stays: others may have opened it, allocations lie in it */
            pool[m->device].base = base;
            pool[m->device].used = SMALL_ALIGNMENT; /* so that no allocation begins where its block does */
        }
    }
    if (!error) {
        m->fd      = pool[m->device].fd;
        m->offset  = pool[m->device].used;
        m->address = fake_address(pool[m->device].base + m->offset);
        pool[m->device].used += bytes;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static CUresult allocate_large(struct fake_memory *m)
{
    m->map_bytes = (m->bytes + FAKE_GRANULE - 1) / FAKE_GRANULE * FAKE_GRANULE;
    m->fd        = fake_memory_fd("large", m->device, m->map_bytes);
    if (m->fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->map = mmap(NULL, m->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (m->map == MAP_FAILED) {
        close(m->fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    m->address = fake_address(m->map);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes)
{
    struct fake_memory m = {.bytes = bytes, .kind = FAKE_ALLOCATED};

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    m.device = fake_context()->device;
    m.access = 1u << m.device;
    FAKE_TRY(bytes < SMALL ? allocate_small(&m) : allocate_large(&m));
    memset(fake_pointer(m.address), NOT_ZERO, bytes < SMALL ? bytes : SMALL_ALIGNMENT); /* all of it would cost real memory */
    if (!fake_memory_add(&m))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = m.address;
    return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr pointer)
{
    struct fake_memory m;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    if (!pointer)
        return CUDA_SUCCESS;
    fake_context_drain(fake_context()->device); /* as the driver does: a source of deadlocks worth having */
    if (!fake_memory_take(&m, pointer, FAKE_ALLOCATED))
        return CUDA_ERROR_INVALID_VALUE;
    if (m.map) {
        munmap(m.map, m.map_bytes);
        close(m.fd);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *available, size_t *total)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    *available = (size_t)15 << 30;
    *total     = (size_t)16 << 30;
    return CUDA_SUCCESS;
}

/* ---- host memory ------------------------------------------------------------------------------------------------------------------------ */

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    struct fake_memory m = {.bytes = bytes, .kind = FAKE_HOST, .fd = -1, .access = ~0u};

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    (void)flags;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    m.map_bytes = (bytes + 4095) / 4096 * 4096;
    m.map       = mmap(NULL, m.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m.map == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m.address = (CUdeviceptr)(uintptr_t)m.map;
    m.device  = fake_context()->device;
    if (!fake_memory_add(&m)) {
        munmap(m.map, m.map_bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pointer = m.map;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *pointer)
{
    struct fake_memory m;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    fake_context_drain(fake_context()->device);
    if (!fake_memory_take(&m, (CUdeviceptr)(uintptr_t)pointer, FAKE_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    munmap(m.map, m.map_bytes);
    return CUDA_SUCCESS;
}

static bool overlaps(CUdeviceptr begin, size_t bytes)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (struct fake_memory *m = ranges; m; m = m->next)
        found |= begin < m->address + m->bytes && m->address < begin + bytes;
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    struct fake_memory m = {.address = (CUdeviceptr)(uintptr_t)pointer, .bytes = bytes, .kind = FAKE_REGISTERED, .fd = -1, .access = ~0u};

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    (void)flags;
    if (!pointer || !bytes || m.address & FAKE_TAG)
        return CUDA_ERROR_INVALID_VALUE;
    if (overlaps(m.address, bytes))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    m.device = fake_context()->device;
    return fake_memory_add(&m) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemHostUnregister(void *pointer)
{
    struct fake_memory m;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    return fake_memory_take(&m, (CUdeviceptr)(uintptr_t)pointer, FAKE_REGISTERED) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *pointer, void *host, unsigned flags)
{
    struct fake_memory m;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    if (flags || !fake_memory_get(&m, (CUdeviceptr)(uintptr_t)host) || (m.kind != FAKE_HOST && m.kind != FAKE_REGISTERED))
        return CUDA_ERROR_INVALID_VALUE;
    *pointer = (CUdeviceptr)(uintptr_t)host;
    return CUDA_SUCCESS;
}

/* ---- what a pointer is ------------------------------------------------------------------------------------------------------------------- */

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    struct fake_memory m;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    if (!fake_memory_get(&m, pointer) || m.kind == FAKE_HOST || m.kind == FAKE_REGISTERED)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = m.address;
    if (bytes)
        *bytes = m.bytes;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    struct fake_memory m;
    bool               host;

    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    if (!fake_memory_get(&m, pointer))
        return CUDA_ERROR_INVALID_VALUE; /* also for plain host memory */
    host = m.kind == FAKE_HOST || m.kind == FAKE_REGISTERED;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = fake_context_of(m.device);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)value = pointer;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)value = host ? fake_pointer(pointer) : NULL;
        return host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)value = m.id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)value = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = fake_context_of(m.device) ? fake_context_of(m.device)->ordinal : -1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = m.address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = m.bytes;
        return CUDA_SUCCESS;
    case FAKE_POINTER_IPC_CAPABLE:
        *(int *)value = m.kind == FAKE_ALLOCATED;
        return CUDA_SUCCESS;
    case FAKE_POINTER_SYNC_MEMOPS:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t bytes, int type, unsigned long long flags)
{
    struct fake_memory m;

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    if (!fake.dma_buf || flags || type != 1)
        return CUDA_ERROR_NOT_SUPPORTED;
    if ((pointer | bytes) % 4096 || !fake_memory_get(&m, pointer) || m.fd < 0 || pointer - m.address + bytes > m.map_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *(int *)handle = dup(m.fd);
    return CUDA_SUCCESS;
}
