/* cuda.c -- finds the driver and its entry points, once. See cuda.h.
 *
 * By name through cuGetProcAddress with the version of the interface that the prototypes have, never by a versioned symbol: so a newer driver
 * gives the old form. A driver before CUDA 12 has no such call in this form and is refused with a sentence.
 */
#include "device/cuda.h"

#include "base/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

const struct hkt_cuda *_Atomic hkt_cuda_found;

static struct hkt_cuda driver;
static char            missing[256] = "";
static pthread_mutex_t lock         = PTHREAD_MUTEX_INITIALIZER;
static bool            tried;

#define LIBRARY "libcuda.so.1"

static bool find(CUgetProcAddress get)
{
    void *function;

#define FIND(name, version, arguments)                                                                                                     \
    function = NULL;                                                                                                                       \
    if (get(#name, &function, version, 0, NULL) || !function) {                                                                            \
        snprintf(missing, sizeof(missing), "the CUDA driver (%s) has no %s; a driver of CUDA 12.4 or newer is needed", LIBRARY, #name);    \
        return false;                                                                                                                      \
    }                                                                                                                                      \
    *(void **)(void *)&driver.name = function;
    HKT_CUDA_FUNCTIONS(FIND)
#undef FIND
    return true;
}

static bool start(void)
{
    const char *text = "?";
    CUresult    error = driver.cuInit(0);
    int         n     = 0;

    if (!error)
        error = driver.cuDeviceGetCount(&n);
    if (!error && n)
        return true;
    driver.cuGetErrorString(error, &text);
    if (error)
        snprintf(missing, sizeof(missing), "the CUDA driver does not start: %s (error %d)", text, (int)error);
    else
        snprintf(missing, sizeof(missing), "the CUDA driver sees no device; is CUDA_VISIBLE_DEVICES empty?");
    return false;
}

/* With the lock held. */
static void load(bool only_if_there)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | (only_if_there ? RTLD_NOLOAD : 0));
    void *get;

    if (!library && only_if_there)
        return;
    tried = true;
    if (!library) {
        snprintf(missing, sizeof(missing), "there is no CUDA driver: %s", dlerror());
        return;
    }
    get = dlsym(library, "cuGetProcAddress_v2");
    if (!get) {
        snprintf(missing, sizeof(missing), "the CUDA driver (%s) is older than CUDA 12", LIBRARY);
        return;
    }
    if (find((CUgetProcAddress)get) && start())
        atomic_store_explicit(&hkt_cuda_found, &driver, memory_order_release); /* pairs with hkt_cuda_here() */
}

const struct hkt_cuda *hkt_cuda(void)
{
    if (!hkt_cuda_here()) {
        pthread_mutex_lock(&lock);
        if (!tried)
            load(false);
        pthread_mutex_unlock(&lock);
    }
    return hkt_cuda_here();
}

void hkt_cuda_notice(void)
{
    if (hkt_cuda_here())
        return;
    pthread_mutex_lock(&lock);
    if (!tried)
        load(true);
    pthread_mutex_unlock(&lock);
}

const char *hkt_cuda_missing(void)
{
    return hkt_cuda() ? "" : missing;
}

int hkt_cuda_fail(CUresult error, const char *what)
{
    const char *name = "?", *text = "?";

    hkt_cuda()->cuGetErrorName(error, &name);
    hkt_cuda()->cuGetErrorString(error, &text);
    return hkt_fail(error == CUDA_ERROR_OUT_OF_MEMORY ? HKT_ERR_MEMORY : HKT_ERR_SYSTEM, "CUDA: %s: %s (%s)", what, text, name);
}

CUstreamCaptureMode hkt_cuda_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    hkt_cuda()->cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void hkt_cuda_restore(CUstreamCaptureMode before)
{
    hkt_cuda()->cuThreadExchangeStreamCaptureMode(&before);
}
