/* end.c -- what can be asked of a communicator and how it ends; and the start of the library. */
#include "face/comm.h"
#include "face/library.h"

#include "base/error.h"
#include "base/log.h"
#include "base/option.h"
#include "language/dtype.h"
#include "run/choose.h"

#include <stdio.h>
#include <string.h>

static void start(void)
{
    const char *isa = hkt_options()->isa;

    hkt_fence_init();
    hkt_choose_start();
    if (!hkt_reduce_select(isa[0] ? isa : NULL)) {
        hkt_log(HKT_LOG_ERROR, "HKT_ISA=%s: this machine or build has no such kernels; the best there are will be used", isa);
        hkt_reduce_select(NULL);
    }
}

void hkt_library_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, start);
}

int hkt_version(void)
{
    return HKT_VERSION;
}

int hkt_comm_destroy(hkt_comm_t *handle)
{
    struct hkt_end *end;

    if (!handle)
        return HKT_OK;
    end = hkt_visit(handle);
    if (!end)
        return hkt_stale_code();
    if (!hkt_end_close(end, handle, 1)) {
        hkt_visit_end(end);
        return hkt_fail(HKT_ERR_ARGUMENT, "the communicator is being destroyed by another thread");
    }
    if (end->has_maker)
        pthread_join(end->maker, NULL);
    hkt_turn_wait(end, end->issued);
    hkt_deregister_all(handle);
    hkt_communicator_free(end->comm);
    hkt_visit_end(end);
    hkt_end_free(end);
    return HKT_OK;
}

int hkt_comm_abort(hkt_comm_t *handle)
{
    struct hkt_end          *end = hkt_visit(handle);
    struct hkt_communicator *c;
    char                     who[128];

    if (!end)
        return hkt_stale_code();
    atomic_store(&end->aborted, 1);
    if (atomic_load(&end->state) == HKT_OK) {
        c = end->comm;
        hkt_communicator_kill(c, HKT_ERR_ABORTED, "communicator %s was aborted by %s", c->name,
                              hkt_communicator_who(c, c->rank, who, sizeof(who)));
        hkt_error_clear();
    }
    hkt_visit_end(end);
    return HKT_OK;
}

int hkt_comm_error(hkt_comm_t *handle, int *error)
{
    struct hkt_end *end = hkt_visit(handle);
    int             state;

    if (!end)
        return hkt_stale_code();
    state = atomic_load_explicit(&end->state, memory_order_acquire); /* pairs with the release store in comm.c */
    if (state == HKT_OK)
        state = hkt_communicator_dead(end->comm);
    else if (state < 0)
        hkt_fail_quiet(state, end->sentence);
    hkt_visit_end(end);
    if (!error)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_comm_error: error is NULL");
    *error = state;
    return HKT_OK;
}

/* The communicator of a handle for a look from any thread; NULL with an error. */
static struct hkt_communicator *look(hkt_comm_t *handle, struct hkt_end **end)
{
    *end = hkt_visit(handle);
    if (!*end)
        return NULL;
    if (atomic_load_explicit(&(*end)->state, memory_order_acquire) == HKT_OK)
        return (*end)->comm;
    hkt_fail(HKT_ERR_USAGE, "the communicator is not made yet");
    hkt_visit_end(*end);
    return NULL;
}

static int code_of(const struct hkt_end *end)
{
    return end ? HKT_ERR_USAGE : hkt_stale_code();
}

int hkt_comm_report(hkt_comm_t *handle, char *text, size_t size)
{
    struct hkt_end          *end;
    struct hkt_communicator *c = look(handle, &end);

    if (!c)
        return code_of(end);
    if (text && size)
        hkt_communicator_report(c, text, size);
    hkt_visit_end(end);
    return text && size ? HKT_OK : hkt_fail(HKT_ERR_ARGUMENT, "hkt_comm_report: no room for text");
}

int hkt_comm_rank(hkt_comm_t *handle, int *rank)
{
    struct hkt_end          *end;
    struct hkt_communicator *c = look(handle, &end);

    if (!c)
        return code_of(end);
    if (rank)
        *rank = c->rank;
    hkt_visit_end(end);
    return rank ? HKT_OK : hkt_fail(HKT_ERR_ARGUMENT, "hkt_comm_rank: rank is NULL");
}

int hkt_comm_size(hkt_comm_t *handle, int *size)
{
    struct hkt_end          *end;
    struct hkt_communicator *c = look(handle, &end);

    if (!c)
        return code_of(end);
    if (size)
        *size = c->size;
    hkt_visit_end(end);
    return size ? HKT_OK : hkt_fail(HKT_ERR_ARGUMENT, "hkt_comm_size: size is NULL");
}

int hkt_comm_traffic(hkt_comm_t *handle, const char *collective, hkt_traffic_t *traffic)
{
    struct hkt_end          *end;
    struct hkt_communicator *c     = look(handle, &end);
    hkt_traffic_t            sum   = {0, 0};
    bool                     known = !collective;

    if (!c)
        return code_of(end);
    for (int i = 0; i < HKT_COLLS; i++)
        if (!collective || !strcmp(collective, hkt_coll_name[i])) {
            known = true;
            sum.calls += hkt_load_relaxed(&c->calls[i]);
            sum.bytes += hkt_load_relaxed(&c->bytes[i]);
        }
    hkt_visit_end(end);
    if (!known || !traffic)
        return hkt_fail(HKT_ERR_ARGUMENT, known ? "hkt_comm_traffic: traffic is NULL" : "hkt_comm_traffic: %s is no collective", collective);
    *traffic = sum;
    return HKT_OK;
}

/* ---- premultiplied sums ------------------------------------------------------------------------------------------ */

int hkt_op_create_premul_sum(hkt_op_t *op, double scalar, hkt_comm_t *handle)
{
    struct hkt_end          *end;
    struct hkt_communicator *c;
    int                      i;

    if (!op)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_op_create_premul_sum: op is NULL");
    c = look(handle, &end);
    if (!c)
        return code_of(end);
    i = __builtin_ctzll(~c->premul_used | (c->premul_used == UINT64_MAX));
    if (c->premul_used != UINT64_MAX) {
        c->premul[i] = scalar;
        c->premul_used |= 1ULL << i;
        *op = (hkt_op_t)(HKT_PREMUL_SUM + i);
    } else
        i = -1;
    hkt_visit_end(end);
    return i < 0 ? hkt_fail(HKT_ERR_USAGE, "%d premultiplied sums exist on this communicator; destroy some", HKT_PREMULS) : HKT_OK;
}

int hkt_op_destroy(hkt_op_t op, hkt_comm_t *handle)
{
    struct hkt_end          *end;
    struct hkt_communicator *c = look(handle, &end);
    const int                i = (int)op - HKT_PREMUL_SUM;
    bool                     known;

    if (!c)
        return code_of(end);
    known = i >= 0 && i < HKT_PREMULS && (c->premul_used >> i & 1);
    if (known)
        c->premul_used &= ~(1ULL << i);
    hkt_visit_end(end);
    return known ? HKT_OK : hkt_fail(HKT_ERR_ARGUMENT, "operator %d is no premultiplied sum of this communicator", (int)op);
}
