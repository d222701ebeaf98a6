/* nccl_ranks.h -- what the suites of libnccl.so.2 share: expectations, and numbers of every type as bytes. */
#ifndef TEST_NCCL_RANKS_H
#define TEST_NCCL_RANKS_H

#include "harness.h"

#include "frameworks/nccl/nccl.h"

/* The call must give the code; the message has ncclGetLastError(). */
#define nccl_gives(call, wanted)                                                                                                         \
    do {                                                                                                                                 \
        const ncclResult_t got_ = (call);                                                                                                \
        expect(got_ == (wanted), "%s gives %d, not %d: %s", #call, (int)got_, (int)(wanted), ncclGetLastError(NULL));                    \
    } while (0)
#define nccl_ok(call) nccl_gives(call, ncclSuccess)

#define SOON 5.0 /* seconds, on a machine that is busy with other things: what is not told waits for minutes */

/* The last error must contain the text. */
void nccl_said(const char *text);

/* The communicator of a rank of a bare world, from the world's id. */
ncclComm_t nccl_join(const struct rank *me);

/* Waits until the state is not ncclInProgress any more, at most `seconds`; gives it. */
ncclResult_t nccl_settled(ncclComm_t comm, double seconds);

extern const size_t nccl_bytes[ncclNumTypes];

/* Writes and reads whole numbers that the type has exactly. */
void   nccl_put(void *buffer, size_t index, ncclDataType_t type, double value);
double nccl_get(const void *buffer, size_t index, ncclDataType_t type);

#endif
