/* arena.h -- memory of a GPU that other processes, and other GPUs of this one, can reach: made and mapped through the VMM calls and file
 * descriptors, or where those are not to be had through the older IPC handles.
 */
#ifndef HKT_ARENA_H
#define HKT_ARENA_H

#include "device/cuda.h"

struct hkt_arena {
    CUdeviceptr base;
    size_t      size;
    bool        vmm, opened; /* opened: a peer's */
};

/* Makes one on the current context's device. The contents are not defined. */
int hkt_arena_make(struct hkt_arena *arena, size_t size);

/* What a peer needs to open it: a descriptor (the caller's), or -1 and the handle. */
int hkt_arena_export(const struct hkt_arena *arena, int *fd, CUipcMemHandle *handle);

/* Maps a peer's for the current context's device: that of another process; that of another rank of this process, whose context is `owner`. The second is
 * a mapping of its own, which its owner may outlive or not, only where it is VMM memory. */
int hkt_arena_open(struct hkt_arena *arena, size_t size, int fd, const CUipcMemHandle *handle);
int hkt_arena_admit(struct hkt_arena *arena, const struct hkt_arena *of, CUcontext owner);

void hkt_arena_close(struct hkt_arena *arena); /* of either kind */

#endif
