/* memory.c -- buffers that are shared with the other ranks of the machine, windows, and operators with a scalar.
 *
 * To register a buffer is a hint: memory that cannot be shared, or is shared already, works all the same, by copies; so there is nothing to refuse.
 */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- buffers ---------------------------------------------------------------------------------------------------------- */

NCCL_API(ncclResult_t, MemAlloc, (void **ptr, size_t size))
{
    if (!ptr)
        return nccl_fail(ncclInvalidArgument, "ncclMemAlloc: ptr is NULL");
    return nccl_alloc(ptr, size);
}

NCCL_API(ncclResult_t, MemFree, (void *ptr))
{
    return nccl_free(ptr);
}

static char nothing_to_do; /* the handle of memory that is as it is */

static ncclResult_t hand_over(ncclComm_t comm, void *buffer, size_t size, void **handle)
{
    const int rc = hkt_comm_register(handle, atomic_load(&comm->hkt), buffer, size);

    if (rc == HKT_ERR_UNSUPPORTED)
        *handle = &nothing_to_do;
    return rc == HKT_ERR_UNSUPPORTED ? ncclSuccess : nccl_from(rc);
}

static ncclResult_t take_back(ncclComm_t comm, void *handle)
{
    return handle == &nothing_to_do ? ncclSuccess : nccl_from(hkt_comm_deregister(handle, atomic_load(&comm->hkt)));
}

NCCL_API(ncclResult_t, CommRegister, (const ncclComm_t comm, void *buffer, size_t size, void **handle))
{
    ncclResult_t rc;

    if (!buffer || !size || !handle)
        return nccl_fail(ncclInvalidArgument, "ncclCommRegister: %s", !handle ? "handle is NULL" : !buffer ? "the buffer is NULL" : "the size is 0");
    NCCL_TRY(nccl_comm_enter(comm, "ncclCommRegister"));
    rc = hand_over(comm, buffer, size, handle);
    nccl_comm_leave(comm);
    return rc;
}

NCCL_API(ncclResult_t, CommDeregister, (const ncclComm_t comm, void *handle))
{
    ncclResult_t rc;

    NCCL_TRY(nccl_comm_visit(comm, "ncclCommDeregister"));
    rc = take_back(comm, handle);
    nccl_comm_leave(comm);
    return rc;
}

/* ---- windows ---------------------------------------------------------------------------------------------------------- */

/* Collectives find by themselves what memory can be reached, so a window is a registered buffer that knows where it is. */
struct ncclWindow_vidmem {
    struct ncclWindow_vidmem *next;
    void                     *buffer, *handle;
};

static ncclResult_t add_window(ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window)
{
    struct ncclWindow_vidmem *w = calloc(1, sizeof(*w));
    ncclResult_t              rc;

    if (!w)
        return nccl_fail(ncclSystemError, "ncclCommWindowRegister: out of memory");
    rc = hand_over(comm, buffer, size, &w->handle);
    if (rc != ncclSuccess) {
        free(w);
        return rc;
    }
    w->buffer     = buffer;
    w->next       = comm->windows;
    comm->windows = w;
    *window       = w;
    return ncclSuccess;
}

NCCL_API(ncclResult_t, CommWindowRegister, (ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window, int flags))
{
    const int    known = NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING;
    ncclResult_t rc;

    if (!buffer || !size || !window)
        return nccl_fail(ncclInvalidArgument, "ncclCommWindowRegister: %s", !window ? "window is NULL" : !buffer ? "the buffer is NULL" : "the size is 0");
    if (flags & ~known)
        return nccl_fail(ncclInvalidUsage, "ncclCommWindowRegister: flags 0x%x: windows for kernels that communicate themselves (0x%x) are not supported; "
                         "use NCCL_WIN_DEFAULT or NCCL_WIN_COLL_SYMMETRIC", flags, flags & ~known);
    NCCL_TRY(nccl_comm_enter(comm, "ncclCommWindowRegister"));
    rc = add_window(comm, buffer, size, window);
    nccl_comm_leave(comm);
    return rc;
}

/* Where the list points to the window; NULL: the communicator has no such window. */
static struct ncclWindow_vidmem **find(ncclComm_t comm, ncclWindow_t window)
{
    struct ncclWindow_vidmem **at = &comm->windows;

    while (*at && *at != window)
        at = &(*at)->next;
    return *at ? at : NULL;
}

static ncclResult_t no_window(const char *function, ncclWindow_t window)
{
    return nccl_fail(ncclInvalidArgument, "%s: %p is no window of this communicator, or was deregistered", function, (void *)window);
}

NCCL_API(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t window))
{
    struct ncclWindow_vidmem **at;
    ncclResult_t               rc;

    if (!window)
        return ncclSuccess;
    NCCL_TRY(nccl_comm_visit(comm, "ncclCommWindowDeregister"));
    at = find(comm, window);
    if (at) {
        *at = window->next;
        rc  = take_back(comm, window->handle);
        free(window);
    } else
        rc = no_window("ncclCommWindowDeregister", window);
    nccl_comm_leave(comm);
    return rc;
}

NCCL_API(ncclResult_t, WinGetUserPtr, (ncclComm_t comm, ncclWindow_t window, void **ptr))
{
    bool found;

    if (!ptr)
        return nccl_fail(ncclInvalidArgument, "ncclWinGetUserPtr: ptr is NULL");
    NCCL_TRY(nccl_comm_visit(comm, "ncclWinGetUserPtr"));
    found = window && find(comm, window);
    if (found)
        *ptr = window->buffer;
    nccl_comm_leave(comm);
    return found ? ncclSuccess : no_window("ncclWinGetUserPtr", window);
}

/* ---- operators --------------------------------------------------------------------------------------------------------- */

static double from_half(uint16_t bits)
{
    const int      exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double   sign     = bits >> 15 ? -1 : 1;

    if (exponent == 31)
        return mantissa ? __builtin_nan("") : sign * __builtin_inf();
    return sign * (exponent ? __builtin_ldexp(1024 + mantissa, exponent - 25) : __builtin_ldexp(mantissa, -24));
}

static double from_bfloat16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float          value;

    memcpy(&value, &wide, sizeof(value));
    return value;
}

static double from_e4m3(uint8_t bits)
{
    const int    exponent = bits >> 3 & 15, mantissa = bits & 7;
    const double sign     = bits >> 7 ? -1 : 1;

    if ((bits & 0x7f) == 0x7f)
        return __builtin_nan("");
    return sign * (exponent ? __builtin_ldexp(8 + mantissa, exponent - 10) : __builtin_ldexp(mantissa, -9));
}

double nccl_scalar(const void *at, ncclDataType_t type)
{
    union {
        int8_t i8; uint8_t u8; int32_t i32; uint32_t u32; int64_t i64; uint64_t u64; uint16_t u16; float f32; double f64;
    } x;

    memcpy(&x, at, nccl_type[type].size);
    switch (type) {
    case ncclInt8: return x.i8;
    case ncclUint8: return x.u8;
    case ncclInt32: return x.i32;
    case ncclUint32: return x.u32;
    case ncclInt64: return (double)x.i64;
    case ncclUint64: return (double)x.u64;
    case ncclFloat16: return from_half(x.u16);
    case ncclFloat32: return x.f32;
    case ncclFloat64: return x.f64;
    case ncclBfloat16: return from_bfloat16(x.u16);
    case ncclFloat8e4m3: return from_e4m3(x.u8);
    case ncclFloat8e5m2: return from_half((uint16_t)(x.u8 << 8));
    case ncclNumTypes: break;
    }
    return 0;
}

/* A place in the table, which grows. -1: no memory. */
static int free_place(ncclComm_t comm)
{
    struct nccl_operator *more;
    int                   i = 0;

    while (i < comm->ops && comm->op[i].used)
        i++;
    if (i < comm->ops)
        return i;
    more = realloc(comm->op, 2 * (size_t)(comm->ops + 4) * sizeof(*more));
    if (!more)
        return -1;
    memset(more + comm->ops, 0, (2 * (size_t)(comm->ops + 4) - (size_t)comm->ops) * sizeof(*more));
    comm->op  = more;
    comm->ops = 2 * (comm->ops + 4);
    return i;
}

/* The scalar passes through a double. */
static bool exact(const void *scalar, ncclDataType_t type)
{
    int64_t value;

    if (type != ncclInt64 && type != ncclUint64)
        return true;
    memcpy(&value, scalar, sizeof(value));
    return value > -(INT64_C(1) << 53) && value < INT64_C(1) << 53;
}

static ncclResult_t create(ncclRedOp_t *op, const void *scalar, ncclDataType_t type, bool immediate, ncclComm_t comm)
{
    const int i = free_place(comm);

    if (i < 0)
        return nccl_fail(ncclSystemError, "ncclRedOpCreatePreMulSum: out of memory");
    comm->op[i] = (struct nccl_operator){.used = true, .immediate = immediate, .type = type, .at = scalar};
    if (immediate)
        comm->op[i].scalar = nccl_scalar(scalar, type);
    *op = (ncclRedOp_t)(ncclNumOps + i);
    return ncclSuccess;
}

NCCL_API(ncclResult_t, RedOpCreatePreMulSum,
         (ncclRedOp_t *op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm))
{
    ncclResult_t rc;

    if (!op || !scalar || (unsigned)datatype >= ncclNumTypes || (unsigned)residence > ncclScalarHostImmediate)
        return nccl_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: %s", !op ? "op is NULL" : !scalar ? "scalar is NULL"
                         : (unsigned)datatype >= ncclNumTypes ? "there is no such datatype" : "there is no such residence");
    if (residence == ncclScalarHostImmediate && !exact(scalar, datatype))
        return nccl_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: a scalar of 64 bits has to lie between -2^53 and 2^53");
    NCCL_TRY(nccl_comm_enter(comm, "ncclRedOpCreatePreMulSum"));
    rc = create(op, scalar, datatype, residence == ncclScalarHostImmediate, comm);
    nccl_comm_leave(comm);
    return rc;
}

NCCL_API(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))
{
    const int i = (int)op - ncclNumOps;
    bool      found;

    NCCL_TRY(nccl_comm_visit(comm, "ncclRedOpDestroy"));
    found = i >= 0 && i < comm->ops && comm->op[i].used;
    if (found)
        comm->op[i].used = false;
    nccl_comm_leave(comm);
    return found ? ncclSuccess : nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy: operator %d was not made by ncclRedOpCreatePreMulSum() on this "
                                           "communicator, or is destroyed already", (int)op);
}

ncclResult_t nccl_operator_read(ncclComm_t comm, struct nccl_call *call)
{
    const int                   i = call->op - ncclNumOps;
    const struct nccl_operator *o = i >= 0 && i < comm->ops ? &comm->op[i] : NULL;

    if (call->op >= 0 && i < 0)
        return ncclSuccess;
    if (!o || !o->used)
        return nccl_fail(ncclInvalidArgument, "%s: operator %d is neither built in (0 to %d) nor made by ncclRedOpCreatePreMulSum() on %s",
                         nccl_kind_name(call->kind), call->op, ncclNumOps - 1, comm->name);
    if (o->type != call->type)
        return nccl_fail(ncclInvalidArgument, "%s: operator %d was made for %s and is used with %s", nccl_kind_name(call->kind), call->op,
                         nccl_type[o->type].name, nccl_type[call->type].name);
    call->op        = ncclNumOps;
    call->scalar    = o->scalar;
    call->scalar_at = o->immediate ? NULL : o->at;
    return ncclSuccess;
}

void nccl_memory_forget(ncclComm_t comm)
{
    while (comm->windows) {
        struct ncclWindow_vidmem *w = comm->windows;

        comm->windows = w->next;
        free(w);
    }
}
