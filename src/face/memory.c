/* memory.c -- memory that every rank of the machine can touch, from hkt_mem_alloc() or adopted by hkt_comm_register(). The work is
 * setup/segment.c's; here is who owns what.
 */
#include "base/error.h"
#include "base/memory.h"
#include "device/device.h"
#include "face/handle.h"
#include "face/library.h"
#include "setup/segment.h"

int hkt_mem_alloc(void **ptr, size_t size)
{
    struct hkt_segment *segment;
    struct hkt_process *self;

    hkt_library_start();
    if (!ptr)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_mem_alloc: ptr is NULL");
    HKT_TRY(hkt_process_self(&self));
    HKT_TRY(hkt_segment_create(&segment, size ? size : 1, "memory"));
    *ptr = segment->base;
    return HKT_OK;
}

/* ---- memory of a GPU --------------------------------------------------------------------------------------------- */

struct on_gpu {
    struct on_gpu *next;
    void          *ptr;
};

static struct on_gpu  *on_gpus;
static pthread_mutex_t gpu_lock = PTHREAD_MUTEX_INITIALIZER;

int hkt_mem_alloc_cuda(void **ptr, size_t size)
{
    struct on_gpu *made;
    int            rc;

    hkt_library_start();
    if (!ptr)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_mem_alloc_cuda: ptr is NULL");
    if (!hkt_cuda())
        return hkt_fail(HKT_ERR_UNSUPPORTED, "hkt_mem_alloc_cuda: %s", hkt_cuda_missing());
    made = hkt_alloc(sizeof(*made));
    if (!made)
        return HKT_ERR_MEMORY;
    rc = hkt_device_cuda.allocate(&made->ptr, size ? size : 1);
    if (rc) {
        hkt_free(made);
        return rc;
    }
    *ptr = made->ptr;
    pthread_mutex_lock(&gpu_lock);
    made->next = on_gpus;
    on_gpus    = made;
    pthread_mutex_unlock(&gpu_lock);
    return HKT_OK;
}

/* True: it was of a GPU, and is freed. */
static bool free_on_gpu(void *ptr, int *rc)
{
    struct on_gpu **at = &on_gpus, *found;

    pthread_mutex_lock(&gpu_lock);
    while (*at && (*at)->ptr != ptr)
        at = &(*at)->next;
    found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&gpu_lock);
    if (found)
        *rc = hkt_device_cuda.release(ptr);
    hkt_free(found);
    return found != NULL;
}

int hkt_mem_free(void *ptr)
{
    struct hkt_segment *segment;
    int                 rc;

    if (!ptr)
        return HKT_OK;
    if (free_on_gpu(ptr, &rc))
        return rc;
    segment = hkt_segment_find(ptr);
    if (!segment || segment->adopted || segment->base != ptr)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_mem_free: %p is not from hkt_mem_alloc()", ptr);
    hkt_segment_free(segment);
    return HKT_OK;
}

/* ---- registrations ----------------------------------------------------------------------------------------------- */

/* Handles are numbers, so that a stale one is recognised. */
struct registration {
    struct registration *next;
    uintptr_t            handle;
    const hkt_comm_t    *comm;
    struct hkt_segment  *segment;
};

static struct registration *registrations;
static uintptr_t            last_handle;
static pthread_mutex_t      lock = PTHREAD_MUTEX_INITIALIZER;

static int adopt(void **handle, const hkt_comm_t *comm, void *ptr, size_t size)
{
    struct registration *r = hkt_alloc(sizeof(*r));
    int                  rc;

    if (!r)
        return HKT_ERR_MEMORY;
    rc = hkt_device_of(ptr) == &hkt_device_host ? hkt_segment_adopt(&r->segment, ptr, size) : 0;
    if (rc) {
        hkt_free(r);
        return rc;
    }
    r->comm = comm;
    pthread_mutex_lock(&lock);
    r->handle     = ++last_handle;
    r->next       = registrations;
    registrations = r;
    *handle       = (void *)r->handle;
    pthread_mutex_unlock(&lock);
    return HKT_OK;
}

/* Takes one off the list: that of a handle, or any of the communicator when the handle is 0. */
static struct registration *take(uintptr_t handle, const hkt_comm_t *comm)
{
    struct registration **at = &registrations, *found;

    pthread_mutex_lock(&lock);
    while (*at && ((*at)->comm != comm || (handle && (*at)->handle != handle)))
        at = &(*at)->next;
    found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

static void release(struct registration *r)
{
    hkt_segment_free(r->segment);
    hkt_free(r);
}

void hkt_deregister_all(const hkt_comm_t *comm)
{
    struct registration *r;

    while ((r = take(0, comm)))
        release(r);
}

int hkt_comm_register(void **handle, hkt_comm_t *comm, void *ptr, size_t size)
{
    struct hkt_end *end;
    int             rc;

    if (!handle || !ptr || !size)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_comm_register: %s", !handle ? "handle is NULL" : !ptr ? "ptr is NULL" : "the size is 0");
    HKT_TRY(hkt_enter(comm, &end));
    rc = adopt(handle, comm, ptr, size);
    hkt_leave(end);
    return rc;
}

int hkt_comm_deregister(void *handle, hkt_comm_t *comm)
{
    struct registration *r = NULL;
    struct hkt_end      *end;

    HKT_TRY(hkt_enter(comm, &end));
    if (handle)
        r = take((uintptr_t)handle, comm);
    if (r)
        release(r);
    hkt_leave(end);
    return r ? HKT_OK
             : hkt_fail(HKT_ERR_ARGUMENT, "hkt_comm_deregister: %p is no registration of this communicator, or is deregistered already", handle);
}
