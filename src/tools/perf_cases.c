/* perf_cases.c -- what hkt-perf can measure: one row each. How much a rank sends and receives, where the results come
 * from and how time becomes bandwidth are data; only the call itself is code. */
#include "perf.h"

#include <ctype.h>
#include <string.h>

#define CALL(name)                                                                                                     \
    static int run_##name(const struct perf_rank *r, const struct perf_call *c, const void *send, void *recv)

CALL(all_reduce)
{
    return hkt_all_reduce(send, recv, c->count, c->type, c->op, r->comm, r->stream);
}

CALL(reduce_scatter)
{
    return hkt_reduce_scatter(send, recv, c->count, c->type, c->op, r->comm, r->stream);
}

CALL(all_gather)
{
    return hkt_all_gather(send, recv, c->count, c->type, r->comm, r->stream);
}

CALL(reduce)
{
    return hkt_reduce(send, recv, c->count, c->type, c->op, c->root, r->comm, r->stream);
}

CALL(broadcast)
{
    return hkt_broadcast(send, recv, c->count, c->type, c->root, r->comm, r->stream);
}

CALL(gather)
{
    return hkt_gather(send, recv, c->count, c->type, c->root, r->comm, r->stream);
}

CALL(scatter)
{
    return hkt_scatter(send, recv, c->count, c->type, c->root, r->comm, r->stream);
}

CALL(all_to_all)
{
    return hkt_all_to_all(send, recv, c->count, c->type, r->comm, r->stream);
}

CALL(reduce_scatter_v)
{
    return hkt_reduce_scatter_v(send, recv, r->counts, NULL, c->type, c->op, r->comm, r->stream);
}

CALL(all_gather_v)
{
    return hkt_all_gather_v(send, recv, r->counts, NULL, c->type, r->comm, r->stream);
}

CALL(gather_v)
{
    return hkt_gather_v(send, recv, r->counts, r->displs, c->type, c->root, r->comm, r->stream);
}

CALL(scatter_v)
{
    return hkt_scatter_v(send, recv, r->counts, r->displs, c->type, c->root, r->comm, r->stream);
}

CALL(all_to_all_v)
{
    return hkt_all_to_all_v(send, r->counts, r->displs, recv, r->counts, r->displs, c->type, r->comm, r->stream);
}

CALL(sendrecv)
{
    const int next = (r->rank + 1) % r->size, previous = (r->rank + r->size - 1) % r->size;
    int       sent, received, ended;

    if (hkt_group_begin())
        return HKT_ERR_USAGE;
    sent     = hkt_send(send, c->count, c->type, next, r->comm, r->stream);
    received = hkt_recv(recv, c->count, c->type, previous, r->comm, r->stream);
    ended    = hkt_group_end();
    return sent ? sent : received ? received : ended;
}

CALL(pingpong)
{
    const int peer = r->rank ^ 1;
    int       rc;

    if (peer >= r->size)
        return 0;
    if (r->rank > peer && (rc = hkt_recv(recv, c->count, c->type, peer, r->comm, r->stream)))
        return rc;
    rc = hkt_send(send, c->count, c->type, peer, r->comm, r->stream);
    if (r->rank > peer || rc)
        return rc;
    return hkt_recv(recv, c->count, c->type, peer, r->comm, r->stream);
}

CALL(barrier)
{
    (void)c, (void)send, (void)recv;
    return hkt_barrier(r->comm, r->stream);
}

/* name, sides, source, (send_root, recv_root), reduces, in_place, weights, share, factor */
#define ROW(name, send, recv, source, sroot, rroot, reduces, in_place, weights, share, factor)                         \
    {                                                                                                                  \
#name, SIDE_##send, SIDE_##recv, SOURCE_##source, sroot, rroot, reduces, in_place, weights, share,             \
            FACTOR_##factor, run_##name                                                                                \
    }

const struct perf_case perf_cases[] = {
    ROW(all_reduce, OWN, OWN, SUM, 0, 0, 1, 1, 0, 1, TWICE),
    ROW(reduce_scatter, ALL, OWN, SUM, 0, 0, 1, 1, 0, 1, OTHERS),
    ROW(all_gather, OWN, ALL, EACH, 0, 0, 0, 1, 0, 1, OTHERS),
    ROW(reduce, OWN, OWN, SUM, 0, 1, 1, 1, 0, 1, ONE),
    ROW(broadcast, OWN, OWN, ROOT, 1, 0, 0, 1, 0, 1, ONE),
    ROW(gather, OWN, ALL, EACH, 0, 1, 0, 1, 0, 1, OTHERS),
    ROW(scatter, ALL, OWN, ROOT, 1, 0, 0, 1, 0, 1, OTHERS),
    ROW(all_to_all, ALL, ALL, EACH, 0, 0, 0, 0, 0, 1, OTHERS),
    ROW(reduce_scatter_v, ALL, OWN, SUM, 0, 0, 1, 1, 1, 1, OTHERS),
    ROW(all_gather_v, OWN, ALL, EACH, 0, 0, 0, 1, 1, 1, OTHERS),
    ROW(gather_v, OWN, ALL, EACH, 0, 1, 0, 1, 1, 1, OTHERS),
    ROW(scatter_v, ALL, OWN, ROOT, 1, 0, 0, 1, 1, 1, OTHERS),
    ROW(all_to_all_v, ALL, ALL, EACH, 0, 0, 0, 0, 2, 1, OTHERS),
    ROW(sendrecv, OWN, OWN, PREVIOUS, 0, 0, 0, 0, 0, 1, ONE),
    ROW(pingpong, OWN, OWN, PARTNER, 0, 0, 0, 0, 0, 0.5, ONE),
    ROW(barrier, NONE, NONE, SUM, 0, 0, 0, 0, 0, 1, ONE),
};
const size_t perf_case_count = sizeof(perf_cases) / sizeof(perf_cases[0]);

/* Equal but for case and punctuation. */
static bool same_name(const char *a, const char *b)
{
    for (;; a++, b++) {
        a += strspn(a, "_-");
        b += strspn(b, "_-");
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return false;
        if (!*a)
            return true;
    }
}

const struct perf_case *perf_case_find(const char *name)
{
    for (size_t i = 0; i < perf_case_count; i++)
        if (same_name(name, perf_cases[i].name))
            return &perf_cases[i];
    return NULL;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Relative size of the block that ranks a and b exchange (a pair of ranks), or of rank b's block. */
static size_t weight(const struct perf_case *what, int a, int b)
{
    return what->weights == 0 ? 1 : what->weights == 1 ? 1 + (size_t)b % 4 : 1 + (size_t)(a + b) % 4;
}

size_t perf_case_volume(const struct perf_case *what, int size)
{
    size_t most = 0;

    if (what->send == SIDE_NONE)
        return 0;
    if (what->send == SIDE_OWN && what->recv == SIDE_OWN)
        return 1;
    for (int a = 0; a < size; a++) {
        size_t sum = 0;

        for (int b = 0; b < size; b++)
            sum += weight(what, a, b);
        most = sum > most ? sum : most;
    }
    return most;
}

void perf_blocks(struct perf_rank *rank, const struct perf_call *call)
{
    size_t at = 0;

    for (int r = 0; r < rank->size; r++) {
        rank->displs[r] = at;
        rank->counts[r] = call->count * weight(call->what, rank->rank, r);
        at += rank->counts[r];
    }
}

size_t perf_elements(const struct perf_rank *rank, const struct perf_call *call, bool recv)
{
    const enum perf_side side = recv ? call->what->recv : call->what->send;
    const int            last = rank->size - 1;

    if (side == SIDE_NONE || ((recv ? call->what->recv_root : call->what->send_root) && rank->rank != call->root))
        return 0;
    if (call->what->source == SOURCE_PARTNER && (rank->rank ^ 1) >= rank->size)
        return 0;
    return side == SIDE_ALL ? rank->displs[last] + rank->counts[last] : rank->counts[rank->rank];
}

size_t perf_place(const struct perf_rank *rank, const struct perf_call *call, bool recv)
{
    const struct perf_case *what = call->what;

    return (recv ? what->recv : what->send) == SIDE_OWN && (recv ? what->send : what->recv) == SIDE_ALL
               ? rank->displs[rank->rank]
               : 0;
}

size_t perf_origin(const struct perf_rank *rank, const struct perf_call *call, int from)
{
    size_t at = 0;

    if (call->what->send != SIDE_ALL)
        return 0;
    for (int r = 0; r < rank->rank; r++)
        at += call->count * weight(call->what, from, r);
    return at;
}

double perf_factor(const struct perf_case *what, int size)
{
    const double others = (double)(size - 1) / size;

    return what->factor == FACTOR_TWICE ? 2 * others : what->factor == FACTOR_OTHERS ? others : 1;
}
