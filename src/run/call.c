/* call.c -- the table of the collectives. See call.h. */
#include "run/call.h"

#include "base/memory.h"

#include <stdio.h>

const struct hkt_collective hkt_collective[HKT_COLLS] = {
    [HKT_COLL_ALL_REDUCE]     = {.reduces = true, .vector = true, .in = HKT_BLOCK, .out = HKT_BLOCK, .flat_deposit = HKT_BLOCK},
    [HKT_COLL_REDUCE_SCATTER] = {.reduces = true, .in = HKT_BLOCKS, .out = HKT_BLOCK, .flat_deposit = HKT_BLOCKS},
    [HKT_COLL_ALL_GATHER]     = {.in = HKT_BLOCK, .out = HKT_BLOCKS, .flat_deposit = HKT_BLOCK},
    [HKT_COLL_REDUCE] = {.reduces = true, .rooted = true, .vector = true, .in = HKT_BLOCK, .out = HKT_BLOCK,
                         .out_root_only = true, .flat_deposit = HKT_BLOCK},
    [HKT_COLL_BROADCAST] = {.rooted = true, .vector = true, .in = HKT_BLOCK, .in_root_only = true, .out = HKT_BLOCK,
                            .flat_deposit = HKT_BLOCK},
    [HKT_COLL_GATHER]  = {.rooted = true, .in = HKT_BLOCK, .out = HKT_BLOCKS, .out_root_only = true, .flat_deposit = HKT_BLOCK},
    [HKT_COLL_SCATTER] = {.rooted = true, .in = HKT_BLOCKS, .in_root_only = true, .out = HKT_BLOCK,
                          .flat_deposit = HKT_BLOCKS},
    [HKT_COLL_ALL_TO_ALL] = {.in = HKT_BLOCKS, .out = HKT_BLOCKS, .flat_deposit = HKT_BLOCKS},
    [HKT_COLL_BARRIER]    = {.reduces = true, .vector = true, .in = HKT_BLOCK, .out = HKT_BLOCK, .flat_deposit = HKT_BLOCK}, /* of nothing */
    [HKT_COLL_SEND]       = {.in = HKT_BLOCK},
    [HKT_COLL_RECV]       = {.out = HKT_BLOCK},
    [HKT_COLL_SPLIT]      = {.in = HKT_BLOCK, .out = HKT_BLOCKS, .flat_deposit = HKT_BLOCK},
};

size_t hkt_call_extent(const struct hkt_call *c, bool out, int rank, int size)
{
    const enum hkt_extent kind = out ? hkt_collective[c->coll].out : hkt_collective[c->coll].in;
    const size_t         *counts, *displs;
    size_t                end = 0;

    if (kind == HKT_NOTHING)
        return 0;
    if (!c->arrays)
        return kind == HKT_BLOCK ? c->count : c->count * (size_t)size;
    counts = hkt_array(c, out ? HKT_OUT_COUNTS : HKT_IN_COUNTS, size);
    displs = hkt_array(c, out ? HKT_OUT_DISPLS : HKT_IN_DISPLS, size);
    if (kind == HKT_BLOCK)
        return counts[rank];
    for (int r = 0; r < size; r++)
        if (counts[r] && displs[r] + counts[r] > end)
            end = displs[r] + counts[r];
    return end;
}

size_t hkt_call_traffic(const struct hkt_call *c, size_t block, int size)
{
    const struct hkt_collective *k  = &hkt_collective[c->coll];
    const size_t                 n  = (size_t)size;
    const size_t                 in = (k->in == HKT_BLOCKS ? n : k->in == HKT_BLOCK) * (k->in_root_only ? 1 : n);
    const size_t                 out = (k->out == HKT_BLOCKS ? n : k->out == HKT_BLOCK) * (k->out_root_only ? 1 : n);

    return block * (in + out);
}

size_t hkt_call_payload(const struct hkt_call *c, int size)
{
    const struct hkt_collective *k      = &hkt_collective[c->coll];
    const bool                   blocks = k->in == HKT_BLOCKS || k->out == HKT_BLOCKS;
    const size_t                *counts;
    size_t                       sum    = 0;

    if (!blocks || !c->arrays)
        return c->count * c->element * (blocks ? (size_t)size : 1);
    counts = hkt_array(c, k->in == HKT_BLOCKS ? HKT_IN_COUNTS : HKT_OUT_COUNTS, size);
    for (int r = 0; r < size; r++)
        sum += counts[r];
    return sum * c->element;
}

void hkt_call_print(const struct hkt_call *c, char *text, size_t size)
{
    const struct hkt_collective *k = &hkt_collective[c->coll];
    size_t                       n = (size_t)snprintf(text, size, "%s", hkt_coll_name[c->coll]);

    if (c->coll == HKT_COLL_BARRIER || c->coll == HKT_COLL_SPLIT)
        return;
    n += (size_t)snprintf(text + n, size - n, " of %zu %s", c->count, hkt_type_name(c->type));
    if (k->reduces)
        n += (size_t)snprintf(text + n, size - n, ", %s", hkt_op_name(c->op));
    if (k->rooted)
        snprintf(text + n, size - n, ", root %d", c->root);
    else if (c->coll == HKT_COLL_SEND || c->coll == HKT_COLL_RECV)
        snprintf(text + n, size - n, ", peer %d", c->root);
}

void hkt_call_release(struct hkt_call *c)
{
    hkt_free(c->arrays);
    c->arrays = NULL;
}
