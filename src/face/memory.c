/* memory.c -- memory that every rank of the machine can touch, from hkt_mem_alloc() or adopted by hkt_comm_register(). The work is
 * setup/segment.c's; here is who owns what.
 */
#include "base/error.h"
#include "base/memory.h"
#include "face/handle.h"
#include "face/library.h"
#include "setup/segment.h"

int hkt_mem_alloc(void **ptr, size_t size)
{
    struct hkt_segment *segment;
    struct hkt_process *self;

    hkt_library_start();
    if (!ptr || !size)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_mem_alloc: %s", ptr ? "the size is 0" : "ptr is NULL");
    HKT_TRY(hkt_process_self(&self));
    HKT_TRY(hkt_segment_create(&segment, size, "memory"));
    *ptr = segment->base;
    return HKT_OK;
}

int hkt_mem_free(void *ptr)
{
    struct hkt_segment *segment;

    if (!ptr)
        return HKT_OK;
    segment = hkt_segment_find(ptr);
    if (!segment || segment->adopted || segment->base != ptr)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_mem_free: %p is not from hkt_mem_alloc()", ptr);
    hkt_segment_free(segment);
    return HKT_OK;
}

int hkt_comm_register(void **handle, hkt_comm_t *comm, void *ptr, size_t size)
{
    struct hkt_end     *end;
    struct hkt_segment *segment;
    int                 rc;

    if (!handle || !ptr || !size)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_comm_register: %s", !handle ? "handle is NULL" : !ptr ? "ptr is NULL" : "the size is 0");
    HKT_TRY(hkt_enter(comm, &end));
    rc = hkt_segment_adopt(&segment, ptr, size);
    hkt_leave(end);
    if (rc)
        return rc;
    *handle = segment;
    return HKT_OK;
}

int hkt_comm_deregister(void *handle, hkt_comm_t *comm)
{
    struct hkt_segment *segment = handle;
    struct hkt_end     *end;

    if (!handle)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_comm_deregister: handle is NULL");
    HKT_TRY(hkt_enter(comm, &end));
    hkt_segment_free(segment);
    hkt_leave(end);
    return HKT_OK;
}
