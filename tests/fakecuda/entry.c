/* entry.c -- entry points by name and version. Some names had another form once: who asks for too old a version gets that, which here only
 * says that it is not supported (a real one would misread its arguments, or refuse as drivers do with the first memory operations).
 */
#include "fake.h"

#include <string.h>

/* From this version on the name has the form that is implemented here. */
static const struct {
    const char *name;
    int         version;
} second_forms[] = {
    {"cuDeviceTotalMem", 3020},     {"cuMemAlloc", 3020},           {"cuMemFree", 3020},
    {"cuMemGetAddressRange", 3020}, {"cuMemHostGetDevicePointer", 3020}, {"cuMemcpyHtoD", 3020},
    {"cuMemcpyDtoH", 3020},         {"cuMemcpyDtoD", 3020},         {"cuMemcpyHtoDAsync", 3020},
    {"cuMemcpyDtoHAsync", 3020},    {"cuMemcpyDtoDAsync", 3020},    {"cuMemsetD8Async", 3020},
    {"cuMemsetD32Async", 3020},     {"cuCtxPushCurrent", 4000},     {"cuCtxPopCurrent", 4000},
    {"cuStreamDestroy", 4000},      {"cuEventDestroy", 4000},       {"cuMemHostRegister", 6050},
    {"cuStreamBeginCapture", 10010}, {"cuDevicePrimaryCtxRelease", 11000}, {"cuIpcOpenMemHandle", 11000},
    {"cuDeviceGetUuid", 11040},     {"cuStreamWaitValue32", 11070}, {"cuStreamWriteValue32", 11070},
    {"cuStreamWaitValue64", 11070}, {"cuStreamWriteValue64", 11070}, {"cuStreamBatchMemOp", 11070},
};

typedef void any_fn(void);

static const struct {
    const char *name;
    int         version;
    any_fn     *function;
} entries[] = {
#define ENTRY(name, version, arguments) {#name, version, (any_fn *)name},
    HKT_CUDA_FUNCTIONS(ENTRY) FAKE_FUNCTIONS(ENTRY)
#undef ENTRY
};

static CUresult old_form(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static any_fn *find(const char *name, int version)
{
    const char *wanted = !strcmp(name, "cuStreamGetCaptureInfo") && version >= 11030 ? "cuStreamGetCaptureInfo_v2" : name;

    for (size_t i = 0; i < sizeof(second_forms) / sizeof(second_forms[0]); i++)
        if (!strcmp(second_forms[i].name, name) && version < second_forms[i].version)
            return (any_fn *)old_form;
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        if (!strcmp(entries[i].name, wanted))
            return entries[i].function;
    return NULL;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, CUdriverProcAddressQueryResult *status);

__attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                                                                    CUdriverProcAddressQueryResult *status)
{
    any_fn *found = find(symbol, version);

    FAKE_TRY(fake_enter("cuGetProcAddress", FAKE_NOTHING));
    (void)flags;
    if (!strcmp(symbol, "cuGetProcAddress"))
        found = (any_fn *)cuGetProcAddress_v2;
    memcpy(function, &found, sizeof(found));
    if (status)
        *status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
