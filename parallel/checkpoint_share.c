/* checkpoint_share.c -- what the ranks of a save agree on: whether to go on, and who writes a piece that several of
 * them hold.
 *
 * Without it data-parallel ranks would all write the same weights. Every rank tells the others a hash and the bytes of
 * each of its pieces and computes the same plan: the largest first, each to the holder that has the least to write so
 * far.
 */
#include "parallel/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int checkpoint_agree(hkt_comm_t *comm, int rc)
{
    struct {
        int  code;
        char text[1000];
    } said = {rc, ""};
    int32_t first;
    int     me, n;

    TRY(hkt_comm_rank(comm, &me));
    TRY(hkt_comm_size(comm, &n));
    if (rc < 0)
        snprintf(said.text, sizeof(said.text), "%s", hkt_last_error());
    first = rc < 0 ? me : n;
    TRY(hkt_all_reduce(&first, &first, 1, HKT_INT32, HKT_MIN, comm, NULL));
    if (first == n)
        return HKT_OK;
    TRY(hkt_broadcast(&said, &said, sizeof(said), HKT_UINT8, first, comm, NULL));
    return hkt_error_set(said.code, "rank %d: %s", (int)first, said.text);
}

/* One piece of one rank. The first two are what the ranks tell each other. */
struct holding {
    uint64_t hash, bytes;
    size_t   rank, index;
};

static uint64_t identity(const hkt_piece_t *piece)
{
    const uint64_t place[] = {(uint64_t)piece->kind, (uint64_t)piece->type, piece->first,
                              piece->count,          piece->begin,          piece->run,
                              piece->stride,         (uint64_t)piece->dims};
    const uint64_t seed    = hkt_checksum(piece->shape, (size_t)piece->dims * sizeof(piece->shape[0]), 0);

    return hkt_checksum(piece->name, strlen(piece->name), hkt_checksum(place, sizeof(place), seed));
}

/* The largest first; those of one piece side by side. */
static int by_piece(const void *a, const void *b)
{
    const struct holding *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static void plan(bool *mine, struct holding *all, size_t total, uint64_t *load, size_t me)
{
    qsort(all, total, sizeof(*all), by_piece);
    for (size_t i = 0, next; i < total; i = next) {
        const struct holding *chosen = &all[i];

        for (next = i + 1; next < total && all[next].hash == all[i].hash && all[next].bytes == all[i].bytes; next++)
            if (load[all[next].rank] < load[chosen->rank])
                chosen = &all[next];
        load[chosen->rank] += chosen->bytes;
        if (chosen->rank == me)
            mine[chosen->index] = chosen->bytes > 0;
    }
}

struct exchange {
    size_t         *counts; /* u64 of every rank: two a piece */
    uint64_t       *told;   /* of all ranks, side by side */
    struct holding *holding;
    uint64_t       *own, *load;
    size_t          total; /* pieces */
};

static void exchange_free(struct exchange *x)
{
    free(x->counts);
    free(x->told);
    free(x->holding);
    free(x->own);
    free(x->load);
}

static int exchange_counts(struct exchange *x, const hkt_piece_t *pieces, size_t count, hkt_comm_t *comm)
{
    const uint64_t mine = 2 * count;
    int            n, rc = HKT_OK;

    TRY(hkt_comm_size(comm, &n));
    x->counts = calloc((size_t)n, sizeof(*x->counts));
    x->own    = calloc(2 * count + 1, sizeof(*x->own));
    x->load   = calloc((size_t)n, sizeof(*x->load));
    if (!x->counts || !x->own || !x->load)
        rc = hkt_error_set(HKT_ERR_MEMORY, "no memory to plan a save of %zu pieces", count);
    for (size_t i = 0; i < count && rc == HKT_OK; i++) {
        rc = piece_check(&pieces[i], i);
        if (rc == HKT_OK && pieces[i].count && !pieces[i].data)
            rc = hkt_error_set(HKT_ERR_ARGUMENT, "piece %s has %zu elements and its data is NULL", pieces[i].name,
                               pieces[i].count);
        if (rc == HKT_OK) {
            x->own[2 * i]     = identity(&pieces[i]);
            x->own[2 * i + 1] = piece_bytes(&pieces[i]);
        }
    }
    TRY(checkpoint_agree(comm, rc));
    _Static_assert(sizeof(size_t) == sizeof(uint64_t), "counts are exchanged as they are");
    TRY(hkt_all_gather(&mine, x->counts, 1, HKT_UINT64, comm, NULL));
    for (int r = 0; r < n; r++)
        x->total += x->counts[r] / 2;
    x->told    = calloc(2 * x->total + 1, sizeof(*x->told));
    x->holding = calloc(x->total + 1, sizeof(*x->holding));
    if (!x->told || !x->holding)
        rc = hkt_error_set(HKT_ERR_MEMORY, "no memory to plan a save of %zu pieces", x->total);
    return checkpoint_agree(comm, rc);
}

static int share(bool *mine, struct exchange *x, const hkt_piece_t *pieces, size_t count, hkt_comm_t *comm)
{
    int    me, n;
    size_t k = 0;

    TRY(exchange_counts(x, pieces, count, comm));
    TRY(hkt_comm_rank(comm, &me));
    TRY(hkt_comm_size(comm, &n));
    TRY(hkt_all_gather_v(x->own, x->told, x->counts, NULL, HKT_UINT64, comm, NULL));
    for (size_t r = 0; r < (size_t)n; r++)
        for (size_t i = 0; i < x->counts[r] / 2; i++, k++)
            x->holding[k] = (struct holding){x->told[2 * k], x->told[2 * k + 1], r, i};
    plan(mine, x->holding, x->total, x->load, (size_t)me);
    return HKT_OK;
}

int checkpoint_choose(hkt_piece_t **chosen, size_t *n_chosen, const hkt_piece_t *pieces, size_t count, hkt_comm_t *comm)
{
    struct exchange x    = {0};
    bool           *mine = calloc(count + 1, sizeof(*mine));
    hkt_piece_t    *made = calloc(count + 1, sizeof(*made));
    size_t          n    = 0;
    int             rc   = HKT_OK;

    if (!mine || !made)
        rc = hkt_error_set(HKT_ERR_MEMORY, "no memory to save %zu pieces", count);
    else if (count && !pieces)
        rc = hkt_error_set(HKT_ERR_ARGUMENT, "the array of %zu pieces is NULL", count);
    rc = checkpoint_agree(comm, rc);
    if (rc == HKT_OK)
        rc = share(mine, &x, pieces, count, comm);
    for (size_t i = 0; i < count && rc == HKT_OK; i++)
        if (mine[i])
            made[n++] = pieces[i];
    exchange_free(&x);
    free(mine);
    if (rc < 0) {
        free(made);
        return rc;
    }
    *chosen   = made;
    *n_chosen = n;
    return HKT_OK;
}
