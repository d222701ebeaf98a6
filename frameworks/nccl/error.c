/* error.c -- NCCL's codes for Hocket's, and the sentences behind them. NCCL keeps one sentence for the process, so that a thread that only watches
 * can print it; here a thread's own comes first.
 */
#include "inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char own[NCCL_SENTENCE];   /* "": this thread has had no error */
static _Thread_local char shown[NCCL_SENTENCE]; /* what ncclGetLastError() gave */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char            last[NCCL_SENTENCE]; /* of the process, under lock */

static const struct {
    const char *text;
} results[ncclNumResults] = {
    [ncclSuccess]            = {"no error"},
    [ncclUnhandledCudaError] = {"a CUDA call failed; ncclGetLastError() says which"},
    [ncclSystemError]        = {"a system call failed; ncclGetLastError() says which"},
    [ncclInternalError]      = {"a defect of the library; ncclGetLastError() says where"},
    [ncclInvalidArgument]    = {"an argument is not valid; ncclGetLastError() says which"},
    [ncclInvalidUsage]       = {"the call is not allowed here or now; ncclGetLastError() says why"},
    [ncclRemoteError]        = {"a rank died, left, aborted or did not answer; ncclGetLastError() says which"},
    [ncclInProgress]         = {"not finished yet; ask ncclCommGetAsyncError()"},
    [ncclTimeout]            = {"a rank did not answer before the deadline; ncclGetLastError() says which"},
};

/* By -code. */
static const ncclResult_t result_of[] = {
    [0]                    = ncclSuccess,
    [-HKT_ERR_ARGUMENT]    = ncclInvalidArgument,
    [-HKT_ERR_USAGE]       = ncclInvalidUsage,
    [-HKT_ERR_UNSUPPORTED] = ncclInvalidUsage,
    [-HKT_ERR_MEMORY]      = ncclSystemError,
    [-HKT_ERR_SYSTEM]      = ncclSystemError,
    [-HKT_ERR_MISMATCH]    = ncclInvalidUsage,
    [-HKT_ERR_TIMEOUT]     = ncclRemoteError, /* ncclTimeout is unknown to programs older than 2.30 */
    [-HKT_ERR_PEER]        = ncclRemoteError,
    [-HKT_ERR_ABORTED]     = ncclRemoteError,
    [-HKT_ERR_INTERNAL]    = ncclInternalError,
};

static void keep_for_process(void)
{
    pthread_mutex_lock(&lock);
    memcpy(last, own, sizeof(last));
    pthread_mutex_unlock(&lock);
}

ncclResult_t nccl_fail(ncclResult_t code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(own, sizeof(own), format, args);
    va_end(args);
    keep_for_process();
    return code;
}

ncclResult_t nccl_from(int code)
{
    if (code >= 0)
        return code == HKT_IN_PROGRESS ? ncclInProgress : ncclSuccess;
    snprintf(own, sizeof(own), "%s", hkt_last_error());
    keep_for_process();
    return (size_t)-code < sizeof(result_of) / sizeof(result_of[0]) ? result_of[-code] : ncclInternalError;
}

const char *nccl_sentence(void)
{
    return own;
}

NCCL_API(const char *, GetErrorString, (ncclResult_t result))
{
    return (unsigned)result < ncclNumResults ? results[result].text : "no code of this library";
}

NCCL_API(const char *, GetLastError, (ncclComm_t comm))
{
    shown[0] = 0;
    if (comm && nccl_comm_visit(comm, NULL) == ncclSuccess) {
        if (atomic_load(&comm->async) || atomic_load(&comm->state) > ncclSuccess)
            memcpy(shown, comm->sentence, sizeof(shown));
        nccl_comm_leave(comm);
    }
    if (!shown[0])
        memcpy(shown, own, sizeof(shown));
    if (!shown[0]) {
        pthread_mutex_lock(&lock);
        memcpy(shown, last, sizeof(shown));
        pthread_mutex_unlock(&lock);
    }
    return shown;
}

NCCL_API(ncclResult_t, GetVersion, (int *version))
{
    if (!version)
        return nccl_fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
