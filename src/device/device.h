/* device.h -- kinds of memory and who moves bytes in them: host, CUDA. One vtable, so that nothing above knows which device a pointer is of.
 *
 * A queue is a place where copies happen in order: a CUDA stream, or for the host the caller itself.
 */
#ifndef HKT_DEVICE_H
#define HKT_DEVICE_H

#include "device/cuda.h"

#include <stddef.h>

struct hkt_device;

struct hkt_queue {
    const struct hkt_device *device;
    void                    *stream, *context; /* of the device */
};

struct hkt_device {
    const char *name;

    /* A queue of this process for calls that finish before they return, on the device that ptr is of. */
    int (*queue)(struct hkt_queue *queue, const void *ptr);

    /* Puts a copy at the end of the queue; `to` and `from` may be of the host or of the device. */
    int (*copy)(const struct hkt_queue *queue, void *to, const void *from, size_t bytes);

    /* Waits until all of it is done. */
    int (*finish)(const struct hkt_queue *queue);

    int (*allocate)(void **ptr, size_t bytes); /* on the calling thread's current device */
    int (*release)(void *ptr);

    /* Memory of the host that the device is to reach at full speed; 0 or HKT_ERR_*. */
    int (*pin)(void *ptr, size_t bytes);
    void (*unpin)(void *ptr);
};

extern const struct hkt_device hkt_device_host, hkt_device_cuda;

/* Of which device the memory at ptr is. Host where nothing else is known; asks the driver only when there is one. */
static inline const struct hkt_device *hkt_device_of(const void *ptr);
bool                                   hkt_cuda_owns(const void *ptr); /* there is a driver */

static inline const struct hkt_device *hkt_device_of(const void *ptr)
{
    return __builtin_expect(hkt_cuda_here() != NULL, 0) && hkt_cuda_owns(ptr) ? &hkt_device_cuda : &hkt_device_host;
}

/* Makes the primary context of a device, or of the calling thread's current one, current until hkt_cuda_leave(). */
int  hkt_cuda_enter(CUcontext context);
void hkt_cuda_leave(void);

/* The context that a pointer's memory, or a stream, belongs to; NULL with an error. */
CUcontext hkt_cuda_context_of(const void *ptr);
CUcontext hkt_cuda_context_of_stream(CUstream stream);

#endif
