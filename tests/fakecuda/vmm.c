/* vmm.c -- the newer memory interface: allocations without an address, reserved addresses, mappings, and who may touch them.
 *
 * What is mapped cannot be touched before cuMemSetAccess(); sizes are multiples of 2 MiB; an allocation lives as long as a handle or a
 * mapping does; a handle goes to another process as a file descriptor.
 */
#include "fake.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct fake_handle {
    int                 fd, device, references;
    size_t              bytes;
    bool                exportable;
    struct fake_handle *next;
};

struct reservation {
    CUdeviceptr         address;
    size_t              bytes;
    struct reservation *next;
};

static pthread_mutex_t     lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_handle *handles;
static struct reservation *reservations;

/* ---- allocations ------------------------------------------------------------------------------------------------------------------------- */

static struct fake_handle *new_handle(int fd, int device, size_t bytes, bool exportable)
{
    struct fake_handle *h = fd < 0 ? NULL : malloc(sizeof(*h));

    if (!h) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    *h = (struct fake_handle){fd, device, 1, bytes, exportable, NULL};
    pthread_mutex_lock(&lock);
    h->next = handles;
    handles = h;
    pthread_mutex_unlock(&lock);
    fake_count(FAKE_ALLOCATIONS, 1);
    return h;
}

/* One more owner; NULL: no such handle. */
static struct fake_handle *keep(CUmemGenericAllocationHandle handle)
{
    struct fake_handle *h;

    pthread_mutex_lock(&lock);
    for (h = handles; h && (uintptr_t)h != handle; h = h->next) {
    }
    if (h)
        h->references++;
    pthread_mutex_unlock(&lock);
    return h;
}

static bool drop(CUmemGenericAllocationHandle handle)
{
    struct fake_handle *gone = NULL, **at;
    bool                found;

    pthread_mutex_lock(&lock);
    for (at = &handles; *at && (uintptr_t)*at != handle; at = &(*at)->next) {
    }
    found = *at != NULL;
    if (found && !--(*at)->references) {
        gone = *at;
        *at  = gone->next;
    }
    pthread_mutex_unlock(&lock);
    if (gone) {
        close(gone->fd);
        free(gone);
        fake_count(FAKE_ALLOCATIONS, -1);
    }
    return found;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    (void)option;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    *bytes = FAKE_GRANULE;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags)
{
    const int           ordinal = properties->location.id;
    struct fake_handle *h;

    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED | FAKE_UNSAFE));
    if (flags || !bytes || bytes % FAKE_GRANULE || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || ordinal < 0 || ordinal >= fake.ndevices)
        return CUDA_ERROR_INVALID_DEVICE;
    if (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    h = new_handle(fake_memory_fd("vmm", fake.physical[ordinal], bytes), fake.physical[ordinal], bytes, properties->requestedHandleTypes);
    if (!h)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = (uintptr_t)h;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED | FAKE_UNSAFE));
    return drop(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *pointer)
{
    struct fake_memory m;

    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    if (!fake_memory_get(&m, (CUdeviceptr)(uintptr_t)pointer) || m.kind != FAKE_MAPPED || !keep((uintptr_t)m.handle))
        return CUDA_ERROR_INVALID_VALUE;
    *handle = (uintptr_t)m.handle;
    return CUDA_SUCCESS;
}

/* ---- other processes ---------------------------------------------------------------------------------------------------------------------- */

/* callback of the driver's interface, as all entry points are */
CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags)
{
    struct fake_handle *h;
    int                 fd = -1;

    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags)
        return CUDA_ERROR_NOT_SUPPORTED;
    h = keep(handle);
    if (!h)
        return CUDA_ERROR_INVALID_VALUE;
    if (h->exportable)
        fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
    drop(handle);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE; /* it was not asked for when the memory was made */
    *(int *)shareable = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type)
{
    const int           fd = (int)(intptr_t)shareable;
    const int           device = fake_memory_fd_device(fd);
    struct fake_handle *h;
    struct stat         st;

    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || device < 0 || fstat(fd, &st))
        return CUDA_ERROR_INVALID_VALUE;
    h = new_handle(fcntl(fd, F_DUPFD_CLOEXEC, 0), device, (size_t)st.st_size, true); /* the caller's descriptor stays his */
    if (!h)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = (uintptr_t)h;
    return CUDA_SUCCESS;
}

/* ---- addresses ------------------------------------------------------------------------------------------------------------------------------ */

/* callback of the driver's interface */
CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
    const size_t        align = alignment > FAKE_GRANULE ? alignment : FAKE_GRANULE;
    struct reservation *r;
    char               *all, *begin;

    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    (void)hint;
    if (!bytes || bytes % FAKE_GRANULE || align & (align - 1) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    r   = malloc(sizeof(*r));
    all = r ? mmap(NULL, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : MAP_FAILED;
    if (all == MAP_FAILED) {
        free(r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    begin = (char *)(((uintptr_t)all + align - 1) & ~(uintptr_t)(align - 1));
    if (begin > all)
        munmap(all, (size_t)(begin - all));
    munmap(begin + bytes, align - (size_t)(begin - all));
    *r = (struct reservation){fake_address(begin), bytes, NULL};
    pthread_mutex_lock(&lock);
    r->next      = reservations;
    reservations = r;
    pthread_mutex_unlock(&lock);
    *pointer = r->address;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    struct reservation *r = NULL;
    struct fake_memory  m;

    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    for (CUdeviceptr at = pointer; at < pointer + bytes; at += FAKE_GRANULE)
        if (fake_memory_get(&m, at))
            return CUDA_ERROR_INVALID_VALUE; /* still mapped */
    pthread_mutex_lock(&lock);
    for (struct reservation **at = &reservations; *at; at = &(*at)->next)
        if ((*at)->address == pointer && (*at)->bytes == bytes) {
            r   = *at;
            *at = r->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (!r)
        return CUDA_ERROR_INVALID_VALUE;
    munmap(fake_pointer(pointer), bytes);
    free(r);
    return CUDA_SUCCESS;
}

static bool reserved(CUdeviceptr pointer, size_t bytes)
{
    bool inside = false;

    pthread_mutex_lock(&lock);
    for (struct reservation *r = reservations; r; r = r->next)
        inside |= pointer >= r->address && pointer - r->address + bytes <= r->bytes;
    pthread_mutex_unlock(&lock);
    return inside;
}

/* callback of the driver's interface */
CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct fake_memory m = {.address = pointer, .bytes = bytes, .kind = FAKE_MAPPED, .fd = -1, .map_bytes = bytes}, other;

    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED | FAKE_UNSAFE));
    if (flags || offset || !bytes || bytes % FAKE_GRANULE || !reserved(pointer, bytes) || fake_memory_get(&other, pointer))
        return CUDA_ERROR_INVALID_VALUE;
    m.handle = keep(handle);
    if (!m.handle)
        return CUDA_ERROR_INVALID_VALUE;
    m.device = m.handle->device;
    m.fd     = m.handle->fd;
    if (m.handle->bytes < bytes ||
        mmap(fake_pointer(pointer), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, m.handle->fd, 0) == MAP_FAILED || !fake_memory_add(&m)) {
        drop(handle);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED | FAKE_UNSAFE));
    if (!fake_memory_covered(pointer, bytes, FAKE_MAPPED))
        return CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr at = pointer; at < pointer + bytes;) {
        struct fake_memory m;

        if (!fake_memory_take(&m, at, FAKE_MAPPED))
            return CUDA_ERROR_INVALID_VALUE;
        mmap(fake_pointer(at), m.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
        drop((uintptr_t)m.handle);
        at += m.bytes;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    struct fake_memory m;

    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED | FAKE_UNSAFE));
    if (!fake_memory_covered(pointer, bytes, FAKE_MAPPED) || !fake_memory_get(&m, pointer))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const int ordinal = access[i].location.id;

        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || ordinal < 0 || ordinal >= fake.ndevices)
            return CUDA_ERROR_INVALID_DEVICE;
        if (fake.link[m.device][fake.physical[ordinal]] == FAKE_LINK_NONE)
            return CUDA_ERROR_INVALID_DEVICE;
        if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_NOT_SUPPORTED;
        fake_memory_grant(pointer, bytes, 1u << fake.physical[ordinal]);
        mprotect(fake_pointer(pointer), bytes, PROT_READ | PROT_WRITE);
    }
    return CUDA_SUCCESS;
}
