/* param.c -- the environment variables of NCCL that have a meaning here, as NCCL's parameter functions show them. Hocket's own options are
 * `hkt-info`'s.
 */
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ncclParamHandle {
    const char *key, *initial;
};

static struct ncclParamHandle param[] = {
    {"NCCL_COMM_BLOCKING", ""}, /* make.c */
};
enum { PARAMS = sizeof(param) / sizeof(param[0]) };

static const char *value_of(const struct ncclParamHandle *p)
{
    const char *value = getenv(p->key);

    return value ? value : p->initial;
}

static struct ncclParamHandle *find(const char *key)
{
    for (int i = 0; key && i < PARAMS; i++)
        if (!strcmp(param[i].key, key))
            return &param[i];
    return NULL;
}

static ncclResult_t unknown(const char *function, const char *key)
{
    return nccl_fail(ncclInvalidArgument, "%s: there is no parameter %s here; Hocket's own are shown by hkt-info", function, key ? key : "(NULL)");
}

NCCL_API(ncclResult_t, ParamBind, (ncclParamHandle_t *handle, const char *key))
{
    struct ncclParamHandle *p = find(key);

    if (!handle)
        return nccl_fail(ncclInvalidArgument, "ncclParamBind: handle is NULL");
    if (!p)
        return unknown("ncclParamBind", key);
    *handle = p;
    return ncclSuccess;
}

static ncclResult_t number(const char *function, ncclParamHandle_t handle, long long *value)
{
    char *end;

    if (!handle)
        return nccl_fail(ncclInvalidArgument, "%s: the handle is NULL", function);
    *value = strtoll(value_of(handle), &end, 0);
    if (*end || end == value_of(handle))
        *value = NCCL_CONFIG_UNDEF_INT;
    return ncclSuccess;
}

#define GET(suffix, type)                                                                                                                \
    NCCL_API(ncclResult_t, ParamGet##suffix, (ncclParamHandle_t handle, type * value))                                                   \
    {                                                                                                                                    \
        long long wide;                                                                                                                  \
                                                                                                                                         \
        if (!value)                                                                                                                      \
            return nccl_fail(ncclInvalidArgument, "ncclParamGet" #suffix ": value is NULL");                                             \
        NCCL_TRY(number("ncclParamGet" #suffix, handle, &wide));                                                                         \
        *value = (type)wide;                                                                                                             \
        return ncclSuccess;                                                                                                              \
    }
GET(I8, int8_t)
GET(I16, int16_t)
GET(I32, int32_t)
GET(I64, int64_t)
GET(U8, uint8_t)
GET(U16, uint16_t)
GET(U32, uint32_t)
GET(U64, uint64_t)

NCCL_API(ncclResult_t, ParamGetStr, (ncclParamHandle_t handle, const char **value))
{
    if (!handle || !value)
        return nccl_fail(ncclInvalidArgument, "ncclParamGetStr: %s is NULL", handle ? "value" : "the handle");
    *value = value_of(handle);
    return ncclSuccess;
}

NCCL_API(ncclResult_t, ParamGet, (ncclParamHandle_t handle, void *value, int size, int *length))
{
    int needed;

    if (!handle || !value || !length)
        return nccl_fail(ncclInvalidArgument, "ncclParamGet: an argument is NULL");
    needed = (int)strlen(value_of(handle)) + 1;
    if (size < needed)
        return nccl_fail(ncclInvalidArgument, "ncclParamGet: %s needs %d bytes, and there are %d", handle->key, needed, size);
    memcpy(value, value_of(handle), (size_t)needed);
    *length = needed;
    return ncclSuccess;
}

NCCL_API(ncclResult_t, ParamGetParameter, (const char *key, const char **value, int *length))
{
    const struct ncclParamHandle *p = find(key);

    if (!value || !length)
        return nccl_fail(ncclInvalidArgument, "ncclParamGetParameter: an argument is NULL");
    if (!p)
        return unknown("ncclParamGetParameter", key);
    *value  = value_of(p);
    *length = (int)strlen(*value);
    return ncclSuccess;
}

NCCL_API(ncclResult_t, ParamGetAllParameterKeys, (const char ***keys, int *count))
{
    static _Thread_local const char *all[PARAMS];

    if (!keys || !count)
        return nccl_fail(ncclInvalidArgument, "ncclParamGetAllParameterKeys: an argument is NULL");
    for (int i = 0; i < PARAMS; i++)
        all[i] = param[i].key;
    *keys  = all;
    *count = PARAMS;
    return ncclSuccess;
}

NCCL_API(void, ParamDumpAll, (void))
{
    for (int i = 0; i < PARAMS; i++)
        fprintf(stderr, "%s=%s\n", param[i].key, value_of(&param[i]));
}
